//! What the flow table remembers: replies, refusals, timeouts, quotas, and what a new program does to all of them.

use engine::Gauge;
use packet::Nanos;
use program::DropReason;
use scenarios::frames::Ends;
use scenarios::policies::{DEMO, FABRIC, RULES, TENANTS};
use scenarios::rig::Rig;
use scenarios::scene::{BLUE, PEER_VTEP_MAC, RED, demo, from_fabric, with};

/// Rules of red's, each list as YAML.
fn rules(egress: &str, ingress: &str) -> String {
    format!(
        "apiVersion: floodway.dev/v1alpha1\nkind: TenantPolicy\nmetadata: {{name: rules}}\n\
         spec: {{tenant: red, egress: [{egress}], ingress: [{ingress}]}}\n"
    )
}

fn accept(services: &str) -> String {
    format!("{{action: Accept, services: [{services}]}}")
}

/// True when a frame of red's host leaves on the uplink.
fn goes_out(rig: &mut Rig, frame: &[u8]) -> bool {
    rig.pass("red0", frame, "uplink0").len() == 1
}

/// True when a frame in red's tunnel leaves on red's port.
fn comes_in(rig: &mut Rig, frame: &[u8]) -> bool {
    rig.pass("uplink0", &from_fabric(100, frame), "red0").len() == 1
}

fn wait(rig: &mut Rig, secs: u64) {
    rig.now = rig.now + Nanos::from_secs(secs);
    // Their next hops answer again, since nobody heard of them for so long.
    for _ in 0..4 {
        rig.resolve_next_hops("uplink0", PEER_VTEP_MAC);
        rig.now = rig.now + Nanos::from_millis(1);
    }
}

#[test]
fn a_reply_passes_after_its_request_only() {
    let mut rig = demo();
    let back = RED.reversed();
    for (request, reply) in [
        (RED.tcp((40_000, 5201), "S", b""), back.tcp((5201, 40_000), "SA", b"")),
        (RED.udp((7, 5201), b"x"), back.udp((5201, 7), b"y")),
        (RED.ping(5, 1, 64), back.pong(5, 1)),
    ] {
        assert!(!comes_in(&mut rig, &reply), "unasked");
        assert!(!comes_in(&mut rig, &reply), "a remembered refusal");
        assert!(goes_out(&mut rig, &request));
        assert!(comes_in(&mut rig, &reply), "the request forgets the refusal: {:?}", rig.drops());
    }
    assert!(!comes_in(&mut rig, &back.pong(6, 1)), "an echo reply with another identifier");
    assert!(!comes_in(&mut rig, &back.tcp((5201, 40_001), "SA", b"")), "another port");
    assert_eq!(rig.dropped(DropReason::PolicyDefault), 8);
    rig.assert_balanced();
}

#[test]
fn an_echo_request_is_no_reply_to_an_unasked_echo_reply() {
    let mut rig = with(&[FABRIC, TENANTS, &rules(&accept("{protocol: ICMP}"), "")]);
    assert!(goes_out(&mut rig, &RED.pong(5, 1)), "rules allow it");
    assert!(!comes_in(&mut rig, &RED.reversed().ping(5, 1, 64)));
    rig.assert_balanced();
}

#[test]
fn an_expired_flow_is_decided_anew() {
    // B042: expired is a miss, not a refusal.
    let mut rig = demo();
    let request = RED.udp((7, 5201), b"x");
    assert!(goes_out(&mut rig, &request));
    wait(&mut rig, 400);
    assert!(!comes_in(&mut rig, &RED.reversed().udp((5201, 7), b"y")), "its reply is no longer expected");
    let misses = rig.ledger.gauge(Gauge::Misses);
    assert!(goes_out(&mut rig, &request));
    assert_eq!(rig.ledger.gauge(Gauge::Misses), misses + 1);
    assert!(comes_in(&mut rig, &RED.reversed().udp((5201, 7), b"y")));
    rig.assert_balanced();
}

/// How long an idle TCP flow stays open after these packets of red's: true when longer than `secs`.
fn outlives(flags: &[&str], secs: u64) -> bool {
    let mut rig = demo();
    for flags in flags {
        assert!(goes_out(&mut rig, &RED.tcp((40_000, 5201), flags, b"")));
    }
    wait(&mut rig, secs);
    let open = comes_in(&mut rig, &RED.reversed().tcp((5201, 40_000), "A", b""));
    rig.assert_balanced();
    open
}

#[test]
fn tcp_timeouts_follow_the_connection() {
    assert!(outlives(&["S"], 58) && !outlives(&["S"], 62), "opening");
    assert!(outlives(&["S", "A"], 7000) && !outlives(&["S", "A"], 7500), "open");
    assert!(outlives(&["A"], 7000), "a connection from before");
    assert!(outlives(&["S", "A", "FA"], 20) && !outlives(&["S", "A", "FA"], 62), "closing");
    assert!(!outlives(&["S", "A", "FA", "A"], 62), "an acknowledgement does not open it again");
    assert!(!outlives(&["S", "A", "R"], 62), "reset");
    assert!(outlives(&["S", "A", "R", "S", "A"], 7000), "opened again");
}

#[test]
fn entries_that_expired_are_swept() {
    let mut rig = demo();
    for port in 0..600 {
        assert!(goes_out(&mut rig, &RED.ping(port, 1, 64)));
    }
    wait(&mut rig, 61);
    for _ in 0..10 {
        rig.now = rig.now + Nanos::from_millis(1);
        rig.poll();
    }
    assert_eq!(rig.ledger.gauge(Gauge::Flows), 0);
    rig.assert_balanced();
}

#[test]
fn a_swap_stops_what_it_denies_at_the_next_packet() {
    let mut rig = demo();
    let (request, reply) = (RED.tcp((40_000, 5201), "S", b""), RED.reversed().tcp((5201, 40_000), "A", b""));
    let kept = (RED.udp((7, 5201), b"x"), RED.reversed().udp((5201, 7), b"y"));
    for _ in 0..3 {
        assert!(goes_out(&mut rig, &request) && comes_in(&mut rig, &reply));
        assert!(goes_out(&mut rig, &kept.0) && comes_in(&mut rig, &kept.1));
    }
    let narrower = RULES.replacen("        - {protocol: TCP, port: 5201}\n", "", 1);
    rig.apply(&[FABRIC, TENANTS, &narrower]);
    assert!(!goes_out(&mut rig, &request));
    assert!(!comes_in(&mut rig, &reply), "its replies have lost their reason");
    assert!(goes_out(&mut rig, &kept.0) && comes_in(&mut rig, &kept.1), "the other flow lives");
    rig.apply(DEMO);
    assert!(!comes_in(&mut rig, &reply), "not before its request");
    assert!(goes_out(&mut rig, &request) && comes_in(&mut rig, &reply));
    rig.assert_balanced();
}

#[test]
fn a_reply_first_after_the_swap() {
    let mut rig = demo();
    let (request, reply) = (RED.tcp((40_000, 5201), "S", b""), RED.reversed().tcp((5201, 40_000), "A", b""));
    assert!(goes_out(&mut rig, &request) && comes_in(&mut rig, &reply));
    rig.apply(DEMO);
    assert!(comes_in(&mut rig, &reply), "still allowed, before its request is seen again");
    rig.apply(&[FABRIC, TENANTS, &rules("", "")]);
    assert!(!comes_in(&mut rig, &reply), "refused, before its request is seen again");
    assert!(!goes_out(&mut rig, &request));
    rig.assert_balanced();
}

#[test]
fn an_unrelated_edit_keeps_established_flows() {
    // B056: the session lives.
    let mut rig = demo();
    let (request, reply) = (RED.tcp((40_000, 5201), "S", b""), RED.reversed().tcp((5201, 40_000), "A", b""));
    assert!(goes_out(&mut rig, &request) && comes_in(&mut rig, &reply));
    for port in 2000..2050 {
        let more = format!("{RULES}---\n{}", rules(&accept(&format!("{{protocol: TCP, port: {port}}}")), ""));
        rig.apply(&[FABRIC, TENANTS, &more]);
        let (first, second) = if port % 2 == 0 { (true, false) } else { (false, true) };
        for outwards in [first, second] {
            let passed = if outwards { goes_out(&mut rig, &request) } else { comes_in(&mut rig, &reply) };
            assert!(passed, "edit {port}: {:?}", rig.drops());
        }
    }
    rig.assert_balanced();
}

#[test]
fn a_reply_lives_on_when_its_openers_entry_is_gone() {
    let mut rig = demo();
    let (request, reply) = (RED.udp((7, 5201), b"x"), RED.reversed().udp((5201, 7), b"y"));
    assert!(goes_out(&mut rig, &request));
    for _ in 0..4 {
        assert!(comes_in(&mut rig, &reply));
        wait(&mut rig, 100);
    }
    // The request's entry expired a hundred seconds ago.
    assert!(comes_in(&mut rig, &reply));
    rig.apply(DEMO);
    assert!(comes_in(&mut rig, &reply), "the request would still be allowed");
    rig.apply(&[FABRIC, TENANTS, &rules("", "")]);
    assert!(!comes_in(&mut rig, &reply));
    rig.assert_balanced();
}

#[test]
fn an_answer_that_rules_allow_too_does_not_keep_its_opener_alive() {
    // B056: the server's own egress rules allow all that it sends.
    let (all, web) = (accept("{protocol: TCP}"), accept("{protocol: TCP, port: 80}"));
    let mut rig = with(&[FABRIC, TENANTS, &rules(&all, &web)]);
    let (request, answer) = (RED.reversed().tcp((40_000, 80), "S", b""), RED.tcp((80, 40_000), "SA", b""));
    for _ in 0..2 {
        assert!(comes_in(&mut rig, &request) && goes_out(&mut rig, &answer));
    }
    rig.apply(&[FABRIC, TENANTS, &rules(&all, "")]);
    for _ in 0..3 {
        assert!(!comes_in(&mut rig, &request), "refused at the next packet");
        assert!(goes_out(&mut rig, &answer), "what the server sends is allowed in itself");
    }
    rig.apply(&[FABRIC, TENANTS, &rules(&all, &web)]);
    assert!(comes_in(&mut rig, &request) && goes_out(&mut rig, &answer));
    rig.assert_balanced();
}

#[test]
fn an_answer_after_the_swap_does_not_open_what_it_answers() {
    let (all, web) = (accept("{protocol: TCP}"), accept("{protocol: TCP, port: 80}"));
    let mut rig = with(&[FABRIC, TENANTS, &rules(&all, &web)]);
    let (request, answer) = (RED.reversed().tcp((40_000, 80), "S", b""), RED.tcp((80, 40_000), "SA", b""));
    assert!(comes_in(&mut rig, &request));
    rig.apply(&[FABRIC, TENANTS, &rules(&all, "")]);
    assert!(goes_out(&mut rig, &answer));
    assert!(!comes_in(&mut rig, &request));
    rig.assert_balanced();
}

#[test]
fn a_flow_that_a_swap_allows_is_a_new_flow() {
    let mut rig = with(&[FABRIC, TENANTS, &rules("", "")]);
    let (request, reply) = (RED.udp((7, 5201), b"x"), RED.reversed().udp((5201, 7), b"y"));
    assert!(!goes_out(&mut rig, &request) && !comes_in(&mut rig, &reply));
    rig.apply(DEMO);
    assert!(!comes_in(&mut rig, &reply), "refused under the new program as well");
    assert!(goes_out(&mut rig, &request));
    assert!(comes_in(&mut rig, &reply), "its refusal is forgotten");
    wait(&mut rig, 100);
    assert!(comes_in(&mut rig, &reply), "it has a datagram's timeout, not a refusal's");
    rig.assert_balanced();
}

#[test]
fn an_address_that_becomes_the_gateways_is_answered_for() {
    let mut rig = demo();
    let ends = Ends { dst: [10, 1, 0, 30], dst_mac: wire::Mac([2, 0xfd, 0, 0, 100, 1]), ..RED };
    assert!(goes_out(&mut rig, &ends.ping(1, 1, 64)));
    let moved = TENANTS.replacen("addresses: [10.1.0.1, ", "addresses: [10.1.0.30, ", 1).replacen(
        "addresses: [10.1.0.30], prefixes",
        "addresses: [10.1.0.31], prefixes",
        1,
    );
    rig.apply(&[FABRIC, &moved, RULES]);
    for _ in 0..2 {
        assert_eq!(rig.pass("red0", &ends.ping(1, 1, 64), "red0"), [ends.reversed().pong(1, 1)]);
    }
    rig.assert_balanced();
}

#[test]
fn a_host_that_moves_takes_its_flows_along() {
    let mut rig = demo();
    let frame = Ends { dst: [10, 1, 0, 30], dst_mac: wire::Mac([2, 0, 0, 0, 0x0a, 0x30]), ..RED }
        .udp((7, 5201), b"x");
    let outer_dst =
        |rig: &mut Rig| scenarios::frames::untunnel(&rig.pass("red0", &frame, "uplink0")[0]).ends.1;
    assert_eq!(outer_dst(&mut rig), [192, 0, 2, 3]);
    rig.apply(&[FABRIC, &TENANTS.replace("vtep: other", "vtep: fabric"), RULES]);
    assert_eq!(outer_dst(&mut rig), [192, 0, 2, 2]);
    rig.assert_balanced();
}

/// Both tenants have this many flow entries at most.
fn with_quota(flows: usize) -> String {
    TENANTS.replace("  ports:\n", &format!("  quota: {{flows: {flows}}}\n  ports:\n"))
}

#[test]
fn a_tenant_fills_its_own_quota_only() {
    let mut rig = with(&[FABRIC, &with_quota(64), RULES]);
    for port in 0..1000 {
        assert!(goes_out(&mut rig, &RED.udp((1000 + port, 5201), b"x")), "without an entry, still decided");
    }
    assert_eq!(rig.ledger.gauge(Gauge::Uncached), 1000 - 64);
    let hits = rig.ledger.gauge(Gauge::Hits);
    for _ in 0..2 {
        for port in 0..64 {
            assert_eq!(rig.pass("blue0", &BLUE.tcp((1000 + port, 5201), "S", b""), "uplink0").len(), 1);
        }
    }
    assert_eq!(rig.ledger.gauge(Gauge::Hits) - hits, 64, "each of blue's flows has its entry");
    assert_eq!(rig.ledger.gauge(Gauge::Uncached), 1000 - 64);
    rig.assert_balanced();
}

#[test]
fn refusals_take_half_of_a_quota_at_most() {
    let mut rig = with(&[FABRIC, &with_quota(64), RULES]);
    for port in 0..1000 {
        assert!(!goes_out(&mut rig, &RED.tcp((port, 22), "S", b"")));
    }
    let misses = rig.ledger.gauge(Gauge::Misses);
    for port in 0..32 {
        assert!(goes_out(&mut rig, &RED.udp((1000 + port, 5201), b"x")));
        assert!(comes_in(&mut rig, &RED.reversed().udp((5201, 1000 + port), b"y")) == (port < 16));
    }
    assert!(rig.ledger.gauge(Gauge::Misses) > misses);
    rig.now = rig.now + Nanos::from_millis(2);
    rig.poll();
    assert!(rig.ledger.gauge(Gauge::Flows) <= 64);
    assert_eq!(rig.dropped(DropReason::PolicyDefault), 1000 + 16);
    rig.assert_balanced();
}

#[test]
fn a_full_table_decides_without_entries() {
    let mut rig = Rig::with_limits(DEMO, edge::Limits { flows: 16, ..edge::Limits::default() });
    rig.resolve_next_hops("uplink0", PEER_VTEP_MAC);
    for _ in 0..2 {
        for port in 0..200 {
            assert!(goes_out(&mut rig, &RED.udp((1000 + port, 5201), b"x")));
            assert!(!goes_out(&mut rig, &RED.udp((1000 + port, 53), b"x")));
        }
    }
    assert!(rig.ledger.gauge(Gauge::Uncached) >= 2 * (200 - 16));
    wait(&mut rig, 301);
    let uncached = rig.ledger.gauge(Gauge::Uncached);
    assert!(goes_out(&mut rig, &RED.udp((1, 5201), b"x")));
    assert_eq!(rig.ledger.gauge(Gauge::Uncached), uncached, "room again after expiry");
    rig.assert_balanced();
}

#[test]
fn fifty_thousand_flows_keep_their_own_verdicts() {
    let mut rig = demo();
    let frame = |flow: u16| RED.udp((flow, if flow.is_multiple_of(3) { 53 } else { 5201 }), b"x");
    for round in 0..2 {
        let hits = rig.ledger.gauge(Gauge::Hits);
        for first in (1..50_000).step_by(500) {
            let flows = first..(first + 500_u16).min(50_000);
            flows.clone().for_each(|flow| rig.send("red0", &frame(flow)));
            rig.settle();
            let passed = rig.take("uplink0").len();
            assert_eq!(passed, flows.filter(|flow| !flow.is_multiple_of(3)).count(), "flows from {first} on");
        }
        let hits = rig.ledger.gauge(Gauge::Hits) - hits;
        // Every allowed flow has its entry; refusals may not take more than half of the quota.
        assert!(if round == 0 { hits == 0 } else { hits >= 33_333 }, "{hits} hits in round {round}");
    }
    assert_eq!(rig.ledger.gauge(Gauge::Uncached), 0);
    rig.assert_balanced();
}
