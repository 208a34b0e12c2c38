//! Queue pairs: learned from the connection manager and from traffic, what passes by them, and what does not.

use engine::Gauge;
use packet::Nanos;
use program::{DropReason, QueuePairRecord};
use scenarios::corpus::{self, Host};
use scenarios::frames::Ends;
use scenarios::policies::{FABRIC, TENANTS};
use scenarios::rig::Rig;
use scenarios::scene::{BLUE, RED, RED_LOCAL, from_fabric, with};
use scenarios::verbs::{acknowledge, data, notification, plain, release, reply, request};
use wire::roce::{cm::attribute, opcode};

/// Red's and blue's queue pairs and names in these tests.
const QP: u32 = 0x139;
const PEER_QP: u32 = 0x169;
const ID: u32 = 0x73ef_7529;
const PEER_ID: u32 = 0xd65b_8b76;
const PSN: u32 = 0xff_ffff;
const PEER_PSN: u32 = 200;

/// Both tenants' hosts may send RoCEv2 and nobody may send them anything.
const OUTWARDS: &str = "
apiVersion: floodway.dev/v1alpha1
kind: TenantPolicy
metadata: {name: red}
spec: {tenant: red, egress: [{action: Accept, services: [{protocol: RoCEv2}]}], ingress: []}
---
apiVersion: floodway.dev/v1alpha1
kind: TenantPolicy
metadata: {name: blue}
spec: {tenant: blue, egress: [{action: Accept, services: [{protocol: RoCEv2}]}], ingress: []}
";

/// The scene, with these settings of RoCEv2 and quotas for both tenants.
fn scene(settings: &str) -> Rig {
    with(&[FABRIC, &tenants(settings), OUTWARDS])
}

fn tenants(settings: &str) -> String {
    TENANTS.replace("  ports:\n", &format!("  {settings}\n  ports:\n"))
}

fn out(rig: &mut Rig, frame: &[u8]) -> bool {
    rig.pass("red0", frame, "uplink0").len() == 1
}

fn back(rig: &mut Rig, frame: &[u8]) -> bool {
    rig.pass("uplink0", &from_fabric(100, frame), "red0").len() == 1
}

fn only_pair(rig: &mut Rig) -> QueuePairRecord {
    let mut pairs = rig.queue_pairs();
    assert_eq!(pairs.len(), 1, "{pairs:#?}");
    pairs.remove(0)
}

/// REQ, REP and RTU of red's host and its peer.
fn connect(rig: &mut Rig) {
    assert!(out(rig, &request(RED, ID, QP, PEER_PSN)));
    assert!(back(rig, &reply(RED.reversed(), PEER_ID, ID, PEER_QP, PSN)), "{:?}", rig.drops());
    assert!(out(rig, &plain(RED, attribute::RTU, ID, PEER_ID)));
}

const BACK: fn() -> Ends = || RED.reversed();

#[test]
fn a_connection_needs_rules_for_its_opener_only() {
    let mut rig = scene("");
    assert!(!back(&mut rig, &request(BACK(), 9, 9, 9)), "nobody may connect to red's host");
    assert!(!back(&mut rig, &reply(BACK(), PEER_ID, ID, PEER_QP, PSN)), "nobody has asked");
    assert!(!back(&mut rig, &acknowledge(BACK(), QP, PSN)));
    connect(&mut rig);
    assert!(out(&mut rig, &data(RED, PEER_QP, opcode::SEND_FIRST, PSN, 0)));
    assert!(out(&mut rig, &data(RED, PEER_QP, opcode::SEND_LAST, 0, 0)));
    assert!(back(&mut rig, &acknowledge(BACK(), QP, 0)), "its refusal is forgotten");
    assert!(
        back(&mut rig, &data(BACK(), QP, opcode::SEND_ONLY, PEER_PSN, 0)),
        "red has agreed to a connection"
    );
    assert!(back(&mut rig, &notification(BACK(), QP)));
    assert!(back(&mut rig, &data(BACK(), QP, opcode::ACKNOWLEDGE, 1, 0x60)), "a PSN sequence error");
    assert!(back(&mut rig, &data(BACK(), QP, opcode::ACKNOWLEDGE, 1, 0x2c)), "RNR");
    assert!(out(&mut rig, &data(RED, PEER_QP, opcode::SEND_ONLY, 0, 0)), "again from there");
    assert!(out(&mut rig, &data(RED, PEER_QP, opcode::SEND_ONLY, 5, 0)), "four are missing");
    assert!(out(&mut rig, &data(RED, PEER_QP, opcode::SEND_LAST, 6, 0)), "and that is out of order");
    let pair = only_pair(&mut rig);
    assert_eq!((&*pair.tenant, &*pair.service, &*pair.state), ("red", "rc", "open"));
    let QueuePairRecord { opener, peer, .. } = pair;
    assert_eq!((opener.address.to_string(), opener.qp), ("10.1.0.10".into(), Some(QP)));
    assert_eq!((peer.address.to_string(), peer.qp), ("10.1.0.20".into(), Some(PEER_QP)));
    assert_eq!((opener.packets, opener.retries, opener.gaps, opener.out_of_order), (5, 1, 1, 1));
    assert_eq!((opener.request_psn, opener.response_psn), (Some(6), None));
    assert_eq!((peer.packets, peer.cnps, peer.rnr_naks, peer.naks.psn_sequence), (5, 1, 1, 1));
    assert_eq!((peer.request_psn, peer.response_psn), (Some(PEER_PSN), Some(1)));
    rig.assert_balanced();
}

#[test]
fn what_answers_is_listed_with_what_it_answers() {
    let mut rig = scene("");
    connect(&mut rig);
    assert!(out(&mut rig, &data(RED, PEER_QP, opcode::SEND_ONLY, PSN, 0)));
    assert!(back(&mut rig, &acknowledge(BACK(), QP, PSN)));
    let flows = rig.flows();
    let reply = flows.iter().find(|flow| flow.service == "rocev2 qp 0x139").expect("the peer's flow");
    assert_eq!((&*reply.verdict, &*reply.answers, &*reply.rule), ("accept (reply)", "rocev2 qp 0x169", ""));
}

#[test]
fn a_release_closes_it_and_a_new_connection_is_a_new_flow() {
    let mut rig = scene("");
    connect(&mut rig);
    assert!(back(&mut rig, &data(BACK(), QP, opcode::SEND_ONLY, PEER_PSN, 0)));
    assert!(back(&mut rig, &release(BACK(), PEER_ID, ID, QP)), "either side may end it");
    assert!(!back(&mut rig, &data(BACK(), QP, opcode::SEND_ONLY, PEER_PSN + 1, 0)));
    assert!(!back(&mut rig, &acknowledge(BACK(), QP, PSN)));
    assert!(out(&mut rig, &plain(RED, attribute::DREP, ID, PEER_ID)));
    assert_eq!(rig.queue_pairs(), []);
    assert!(!back(&mut rig, &release(BACK(), PEER_ID, ID, QP)), "nothing is left to end");
    connect(&mut rig);
    assert!(back(&mut rig, &data(BACK(), QP, opcode::SEND_ONLY, PEER_PSN, 0)));
    assert_eq!(only_pair(&mut rig).peer.packets, 1, "counted from its own beginning");
    rig.assert_balanced();
}

#[test]
fn a_queue_pair_offered_to_another_host_is_taken_from_the_first() {
    let mut rig = scene("");
    connect(&mut rig);
    assert!(back(&mut rig, &acknowledge(BACK(), QP, PSN)));
    // Bridged or routed: the gateway knows the way to the other host.
    let other = Ends { dst: [10, 1, 0, 30], dst_mac: wire::Mac([2, 0xfd, 0, 0, 100, 1]), ..RED };
    assert!(out(&mut rig, &request(other, 5, QP, 0)));
    assert!(!back(&mut rig, &acknowledge(BACK(), QP, PSN)));
    assert_eq!(only_pair(&mut rig).peer.address.to_string(), "10.1.0.30");
    rig.assert_balanced();
}

#[test]
fn messages_again_late_and_out_of_turn() {
    let mut rig = scene("");
    let rep = reply(BACK(), PEER_ID, ID, PEER_QP, PSN);
    for _ in 0..3 {
        assert!(out(&mut rig, &request(RED, ID, QP, PEER_PSN)));
    }
    assert!(
        out(&mut rig, &plain(RED, attribute::RTU, ID, PEER_ID)),
        "before its REP: rules allow it, it opens nothing"
    );
    assert_eq!(only_pair(&mut rig).state, "requested");
    assert!(back(&mut rig, &plain(BACK(), attribute::MRA, PEER_ID, ID)));
    assert!(back(&mut rig, &rep) && back(&mut rig, &rep));
    // Data instead of the RTU, which was lost.
    assert!(out(&mut rig, &data(RED, PEER_QP, opcode::SEND_ONLY, PSN, 0)));
    assert_eq!(only_pair(&mut rig).state, "open");
    assert!(back(&mut rig, &reply(BACK(), PEER_ID, ID, PEER_QP + 1, 0)), "heard, and too late");
    assert_eq!(only_pair(&mut rig).peer.qp, Some(PEER_QP));
    assert!(back(&mut rig, &plain(BACK(), attribute::REJ, PEER_ID, ID)), "too late as well");
    assert_eq!(only_pair(&mut rig).state, "open");
    rig.assert_balanced();
}

#[test]
fn a_refused_connection_leaves_nothing() {
    let mut rig = scene("");
    assert!(out(&mut rig, &request(RED, ID, QP, PEER_PSN)));
    assert!(back(&mut rig, &plain(BACK(), attribute::REJ, 0, ID)));
    assert_eq!(rig.queue_pairs(), []);
    assert!(!back(&mut rig, &reply(BACK(), PEER_ID, ID, PEER_QP, PSN)));
    assert!(!back(&mut rig, &acknowledge(BACK(), QP, PSN)));
    rig.assert_balanced();
}

#[test]
fn a_third_host_neither_opens_nor_closes() {
    let mut rig = scene("");
    let other = Ends { src: [10, 1, 0, 11], src_mac: RED_LOCAL.dst_mac, dst: RED.dst, dst_mac: RED.dst_mac };
    assert!(out(&mut rig, &request(RED, ID, QP, PEER_PSN)));
    assert!(rig.pass("red1", &plain(other, attribute::RTU, ID, PEER_ID), "uplink0").len() == 1);
    assert!(!back(&mut rig, &reply(other.reversed(), PEER_ID, ID, PEER_QP, PSN)));
    assert_eq!(only_pair(&mut rig).state, "requested");
    assert!(back(&mut rig, &reply(BACK(), PEER_ID, ID, PEER_QP, PSN)));
    assert!(out(&mut rig, &plain(RED, attribute::RTU, ID, PEER_ID)));
    for message in [release(other, ID, PEER_ID, PEER_QP), plain(other, attribute::REJ, ID, PEER_ID)] {
        assert_eq!(
            rig.pass("red1", &message, "uplink0").len(),
            1,
            "rules allow it; it is about no pair of its own"
        );
    }
    // With the peer's address it does not get past the check of addresses.
    let spoofed = Ends { src: RED.src, ..other };
    assert!(rig.pass("red1", &release(spoofed, ID, PEER_ID, PEER_QP), "uplink0").is_empty());
    assert_eq!(only_pair(&mut rig).state, "open");
    assert!(back(&mut rig, &acknowledge(BACK(), QP, PSN)));
    rig.assert_balanced();
}

#[test]
fn traffic_alone_lets_answers_in_and_nothing_else() {
    let mut rig = scene("");
    assert!(!back(&mut rig, &acknowledge(BACK(), QP, 7)));
    assert!(out(&mut rig, &data(RED, PEER_QP, opcode::WRITE_FIRST, 7, 0)));
    assert_eq!(only_pair(&mut rig).state, "half");
    assert!(!back(&mut rig, &notification(BACK(), QP)), "whose it is is not known yet");
    assert!(!back(&mut rig, &acknowledge(BACK(), QP, 8)), "no request had that PSN");
    assert!(back(&mut rig, &acknowledge(BACK(), QP, 7)), "{:?}", rig.drops());
    assert_eq!(only_pair(&mut rig).state, "paired");
    assert!(back(&mut rig, &notification(BACK(), QP)));
    assert!(!back(&mut rig, &data(BACK(), QP, opcode::SEND_ONLY, 1, 0)), "nobody has agreed to that");
    assert!(!back(&mut rig, &acknowledge(BACK(), QP + 1, 7)), "one queue pair of the peer, one of red's");
    let QueuePairRecord { opener, peer, .. } = only_pair(&mut rig);
    assert_eq!((opener.qp, peer.qp, peer.packets, peer.cnps), (Some(QP), Some(PEER_QP), 2, 1));
    rig.assert_balanced();
}

#[test]
fn a_wrong_icrc_teaches_nothing() {
    let broken = |mut frame: Vec<u8>| {
        *frame.last_mut().expect("a frame") ^= 1;
        frame
    };
    let mut rig = scene("");
    assert!(out(&mut rig, &broken(request(RED, ID, QP, PEER_PSN))), "forwarded: its receiver drops it");
    assert!(out(&mut rig, &broken(data(RED, PEER_QP, opcode::SEND_ONLY, 7, 0))));
    assert_eq!(rig.queue_pairs(), []);
    assert!(out(&mut rig, &request(RED, ID, QP, PEER_PSN)));
    assert!(!back(&mut rig, &broken(reply(BACK(), PEER_ID, ID, PEER_QP, PSN))));
    assert_eq!(only_pair(&mut rig).state, "requested");
    rig.assert_balanced();
}

#[test]
fn a_strict_tenant_carries_known_connections_only() {
    let mut rig = scene("roce: {learn: ConnectionManager, unknownQp: Deny}");
    let frame = data(RED, PEER_QP, opcode::SEND_ONLY, PSN, 0);
    for _ in 0..2 {
        assert!(!out(&mut rig, &frame));
    }
    assert_eq!(rig.dropped(DropReason::UnknownQueuePair), 2);
    connect(&mut rig);
    assert!(out(&mut rig, &frame) && back(&mut rig, &acknowledge(BACK(), QP, PSN)));
    assert!(!out(&mut rig, &data(RED, PEER_QP + 1, opcode::SEND_ONLY, PSN, 0)));
    assert!(out(&mut rig, &data(RED, PEER_QP, opcode::UD | opcode::SEND_ONLY, 0, 0)));
    assert_eq!(only_pair(&mut rig).opener.out_of_order, 1, "a datagram is not of this connection");
    assert!(out(&mut rig, &release(RED, ID, PEER_ID, PEER_QP)));
    assert!(!out(&mut rig, &frame), "rules allow it still, and it belongs to nothing");
    // A setting that changes while the flow is open.
    rig.apply(&[FABRIC, &tenants("roce: {learn: ConnectionManager}"), OUTWARDS]);
    assert!(out(&mut rig, &frame));
    rig.apply(&[FABRIC, &tenants("roce: {unknownQp: Deny}"), OUTWARDS]);
    assert!(out(&mut rig, &frame), "learned from traffic");
    rig.apply(&[FABRIC, &tenants("roce: {learn: ConnectionManager, unknownQp: Deny}"), OUTWARDS]);
    assert!(out(&mut rig, &frame), "what is known stays known");
    rig.assert_balanced();
}

#[test]
fn order_is_counted_or_enforced() {
    for (settings, enforced) in [("", false), ("roce: {order: Drop}", true)] {
        let mut rig = scene(settings);
        connect(&mut rig);
        assert!(out(&mut rig, &data(RED, PEER_QP, opcode::SEND_FIRST, PSN, 0)));
        assert_eq!(out(&mut rig, &data(RED, PEER_QP, opcode::WRITE_LAST, 0, 0)), !enforced);
        assert_eq!(rig.dropped(DropReason::RoceOrder), u64::from(enforced));
        assert_eq!(only_pair(&mut rig).opener.out_of_order, 1);
        let next = if enforced { 0 } else { 1 };
        let opcode = if enforced { opcode::SEND_LAST } else { opcode::SEND_ONLY };
        assert!(out(&mut rig, &data(RED, PEER_QP, opcode, next, 0)));
        assert_eq!(only_pair(&mut rig).opener.out_of_order, 1);
        rig.assert_balanced();
    }
}

#[test]
fn the_same_queue_pairs_in_two_tenants() {
    let mut rig = scene("");
    connect(&mut rig);
    let ack = acknowledge(BLUE.reversed(), QP, PSN);
    let blue_back =
        |rig: &mut Rig, frame: &[u8]| rig.pass("uplink0", &from_fabric(200, frame), "blue0").len() == 1;
    assert!(!blue_back(&mut rig, &ack), "red's connection is not blue's");
    assert!(!blue_back(&mut rig, &release(BLUE.reversed(), PEER_ID, ID, QP)));
    assert_eq!(rig.pass("blue0", &request(BLUE, ID, QP, PEER_PSN), "uplink0").len(), 1);
    assert!(blue_back(&mut rig, &reply(BLUE.reversed(), PEER_ID, ID, PEER_QP, PSN)));
    assert!(blue_back(&mut rig, &ack));
    let mut seen: Vec<(String, u64)> =
        rig.queue_pairs().into_iter().map(|pair| (pair.tenant, pair.peer.packets)).collect();
    seen.sort();
    assert_eq!(seen, [("blue".into(), 1), ("red".into(), 0)]);
    assert!(blue_back(&mut rig, &release(BLUE.reversed(), PEER_ID, ID, QP)));
    assert!(back(&mut rig, &acknowledge(BACK(), QP, PSN)), "blue's release is not red's");
    rig.assert_balanced();
}

#[test]
fn a_tenant_fills_its_own_quota_only() {
    let mut rig = scene("quota: {queuePairs: 8}");
    for n in 0..100 {
        assert!(
            out(&mut rig, &data(RED, 1000 + n, opcode::SEND_ONLY, n, 0)),
            "not tracked, and still allowed"
        );
    }
    assert_eq!(rig.queue_pairs().len(), 4, "traffic may take half");
    for n in 0..100 {
        assert!(out(&mut rig, &request(RED, n, 2000 + n, 0)));
    }
    assert_eq!((rig.queue_pairs().len(), rig.ledger.gauge(Gauge::Untracked)), (8, 96 + 96));
    assert_eq!(rig.pass("blue0", &request(BLUE, ID, QP, PEER_PSN), "uplink0").len(), 1);
    assert_eq!(rig.queue_pairs().iter().filter(|pair| pair.tenant == "blue").count(), 1);
    // Sixty seconds without an answer, and there is room again.
    rig.now = rig.now + Nanos::from_secs(61);
    for _ in 0..400 {
        rig.now = rig.now + Nanos::from_millis(1);
        rig.poll();
    }
    assert_eq!(rig.queue_pairs().len(), 4, "the halves may rest longer");
    rig.assert_balanced();
}

#[test]
fn a_policy_that_refuses_the_opener_refuses_what_answers_it() {
    let mut rig = scene("");
    connect(&mut rig);
    let (request, ack) = (data(RED, PEER_QP, opcode::SEND_ONLY, PSN, 0), acknowledge(BACK(), QP, PSN));
    assert!(out(&mut rig, &request) && back(&mut rig, &ack));
    rig.apply(&[FABRIC, &tenants(""), &OUTWARDS.replace("protocol: RoCEv2", "protocol: TCP")]);
    assert!(!back(&mut rig, &ack) && !out(&mut rig, &request));
    assert!(!back(&mut rig, &release(BACK(), PEER_ID, ID, QP)), "nor does it hear of a release");
    rig.apply(&[FABRIC, &tenants(""), OUTWARDS]);
    assert!(back(&mut rig, &ack) && out(&mut rig, &request), "the connection is open still");
    assert_eq!(only_pair(&mut rig).opener.packets, 2);
    rig.assert_balanced();
}

#[test]
fn connections_of_real_adapters() {
    let Some(dir) = corpus::dir() else { return };
    let host = |mac, addresses| Host { mac, addresses, prefixes: "" };
    let mellanox = [host("08:c0:eb:da:e2:e6", "172.17.242.47"), host("08:c0:eb:da:e2:ca", "172.17.242.56")];
    let nvme = [host("24:8a:07:2f:df:02", "2.2.2.1"), host("24:8a:07:2f:e0:5f", "2.2.2.3")];
    for (name, ends, gateway) in [
        ("roce_read_ibdump", mellanox, "172.17.242.1"),
        ("roce_write_ibdump", mellanox, "172.17.242.1"),
        ("nvme_rdma_discover_io", nvme, "2.2.2.254"),
    ] {
        let frames = corpus::captured(&dir, name);
        // Either end may be the one behind floodway; only who sends the REQ needs a rule.
        for (local, remote, opener) in [(ends[0], ends[1], "egress"), (ends[1], ends[0], "ingress")] {
            let rules = format!("{opener}: [{{action: Accept, services: [{{protocol: RoCEv2}}]}}]");
            let text = corpus::policy("192.0.2.1/24", "192.0.2.2", local, remote, gateway, &rules);
            let mut rig = Rig::new(&[&text]);
            rig.settle();
            let local_mac: wire::Mac = local.mac.parse().expect("a MAC");
            let (mut sent, mut open) = (0, None);
            for frame in frames
                .iter()
                .filter(|frame| wire::parse(frame).is_ok_and(|parsed| parsed.l4 == wire::L4::Roce))
            {
                let outwards = frame[6..12] == local_mac.0;
                let passed = match outwards {
                    true => rig.pass("one0", frame, "uplink0").len(),
                    false => rig.pass("uplink0", &from_fabric(100, frame), "one0").len(),
                };
                assert_eq!(passed, 1, "{name}: frame {sent} of {opener}: {:?}", rig.drops());
                sent += 1;
                open = rig.queue_pairs().into_iter().find(|pair| pair.state == "open").or(open);
            }
            assert!(sent >= 13, "{name}");
            let pair = open.expect("it was open");
            for side in [&pair.opener, &pair.peer] {
                assert!(side.packets >= 4);
                assert_eq!(
                    (side.gaps, side.retries, side.out_of_order, side.naks.sum()),
                    (0, 0, 0, 0),
                    "{name}"
                );
            }
            assert_eq!(rig.queue_pairs(), [], "released at the end");
            rig.assert_balanced();
        }
    }
}
