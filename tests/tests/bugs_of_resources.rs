//! Public bugs of other data planes (corpus, bugs.tsv), each as a test of the same input here: RoCE, resources, clocks,
//! counters, layer 2.
#![expect(clippy::unwrap_used, reason = "the functions beside the tests are tests too")]

use engine::Account;
use packet::Nanos;
use program::{DropReason, TenantId, Traffic};
use scenarios::frames::{Ends, arp_reply_to, tunnel, untunnel};
use scenarios::policies::{DEMO, FABRIC, RULES, TENANTS};
use scenarios::rig::Rig;
use scenarios::scene::{
    BLUE, PEER_VTEP_MAC, RED, RED_GATEWAY, RED_LOCAL, RED6, demo, from_fabric, outer, with,
};
use wire::icrc::{self, Check};

const OPEN: &str = r#"
apiVersion: floodway.dev/v1alpha1
kind: TenantPolicy
metadata: {name: open}
spec: {tenant: red, egress: [{action: Accept}], ingress: [{action: Accept}]}
"#;

const ALL_PORTS: [&str; 4] = ["uplink0", "red0", "red1", "blue0"];

/// The demo's policy with a MAC for each endpoint, so that nobody is asked and time may jump.
fn resolved() -> Rig {
    let fabric = FABRIC
        .replace("192.0.2.2}", "192.0.2.2, mac: \"02:ee:00:00:00:02\"}")
        .replace("192.0.2.3}", "192.0.2.3, mac: \"02:ee:00:00:00:03\"}");
    with(&[&fabric, TENANTS, RULES])
}

#[test]
fn b096_the_source_port_and_the_icrc_survive_every_way() {
    let mut rig = with(&[FABRIC, TENANTS, OPEN]);
    let sound = |mut frame: Vec<u8>| {
        let parsed = wire::parse(&frame).unwrap();
        frame[15] |= 2;
        if parsed.l3 == wire::L3::Ipv4 {
            assert!(wire::checksum::fill_ipv4_header(&mut frame[14..]));
        } else {
            frame[15] = 0x20;
        }
        assert!(icrc::fill(&mut frame, &parsed));
        frame
    };
    let check = |what: &str, seen: &[u8], sent: &[u8]| {
        let (after, before) = (wire::parse(seen).unwrap(), wire::parse(sent).unwrap());
        assert_eq!(icrc::verify(seen, &after), Check::Right, "{what}");
        assert_eq!((after.src_port, after.dest_qp), (before.src_port, before.dest_qp), "{what}");
        let l4 = usize::from(before.l4_offset);
        assert_eq!(seen[l4..], sent[l4..], "{what}");
    };
    let gateway = |ends: Ends| Ends { dst_mac: RED_GATEWAY, ..ends };
    let routed6 = scenarios::frames6::Ends6 { dst_mac: RED_GATEWAY, ..RED6 };
    for (what, frame) in [
        ("bridged", RED.roce(54_321, 5, b"payload8")),
        ("routed", gateway(RED).roce(54_321, 5, b"payload8")),
        ("bridged over IPv6", RED6.roce(54_321, 5, b"payload8")),
        ("routed over IPv6", routed6.roce(54_321, 5, b"payload8")),
    ] {
        let sent = sound(frame);
        check(what, &untunnel(&rig.pass("red0", &sent, "uplink0")[0]).inner, &sent);
    }
    for (what, ends) in [("local", RED_LOCAL), ("local and routed", gateway(RED_LOCAL))] {
        let sent = sound(ends.roce(54_321, 5, b"payload8"));
        check(what, &rig.pass("red0", &sent, "red1")[0], &sent);
    }
    for outer_ecn in 0..4 {
        for sent in [
            sound(RED.reversed().roce(54_321, 5, b"payload8")),
            sound(RED6.reversed().roce(54_321, 5, b"payload8")),
        ] {
            let seen = rig.pass("uplink0", &tunnel(outer(), outer_ecn, 100, &sent), "red0");
            check("decapsulated, perhaps marked", &seen[0], &sent);
        }
    }
    rig.assert_balanced();
}

#[test]
fn b104_an_unresolved_next_hop_holds_nothing() {
    let mut rig = Rig::new(DEMO);
    rig.settle();
    // Only the endpoint `fabric` answers.
    for frame in rig.take("uplink0").iter().filter(|frame| frame[38..42] == [192, 0, 2, 2]) {
        rig.send("uplink0", &arp_reply_to(frame, PEER_VTEP_MAC));
    }
    rig.settle();
    let level = rig.pool.level();
    let far = Ends { dst: [10, 9, 0, 0], dst_mac: RED_GATEWAY, ..RED };
    for number in 0..10_000_u16 {
        let [high, low] = number.to_be_bytes();
        rig.send("red0", &Ends { dst: [10, 9, high, low], ..far }.udp((7, 5201), b"x"));
        rig.send("red0", &RED.udp((7, 5201), b"x"));
        rig.settle();
        let seen = rig.take("uplink0").iter().filter(|frame| frame[12..14] == [8, 0]).count();
        assert_eq!(seen, 1, "the other flow loses nothing");
    }
    assert_eq!(rig.dropped(DropReason::UnresolvedNextHop), 10_000);
    assert_eq!(rig.pool.level(), level);
    rig.assert_balanced();
}

#[test]
fn b106_a_port_comes_and_goes_under_traffic() {
    let without = TENANTS.lines().filter(|line| !line.contains("port: red1")).collect::<Vec<_>>().join("\n");
    let mut rig = with(&[FABRIC, TENANTS, OPEN]);
    let frame = RED_LOCAL.udp((7, 8), b"x");
    for edit in 0..1000 {
        let there = edit % 2 == 0;
        for _ in 0..3 {
            rig.send("red0", &frame);
            rig.send("red1", &RED_LOCAL.reversed().udp((8, 7), b"y"));
        }
        rig.settle();
        let (to, from) = (rig.take("red1").len(), rig.take("red0").len());
        assert_eq!((to, from), if there { (3, 3) } else { (0, 0) }, "edit {edit}");
        rig.apply(&[FABRIC, if there { &without } else { TENANTS }, OPEN]);
    }
    assert_eq!((rig.dropped(DropReason::NoRoute), rig.dropped(DropReason::NoTenant)), (1500, 1500));
    rig.assert_balanced();
}

#[test]
fn b108_sixteen_ports_with_full_bursts_at_once() {
    let mut text = String::from(
        "apiVersion: floodway.dev/v1alpha1\nkind: Fabric\nmetadata: {name: wide}\nspec:\n  \
         uplink: {port: uplink0, addresses: [192.0.2.1/24]}\n  \
         vteps: [{name: fabric, address: 192.0.2.2, mac: \"02:ee:00:00:00:02\"}]\n  \
         ports:\n    - {name: uplink0, device: \"memory:\"}\n",
    );
    for port in 0..16 {
        text.push_str(&format!("    - {{name: p{port}, device: \"memory:\"}}\n"));
    }
    text.push_str("---\napiVersion: floodway.dev/v1alpha1\nkind: Tenant\nmetadata: {name: red}\nspec:\n  vni: 100\n  ports:\n");
    for port in 0..16 {
        text.push_str(&format!(
            "    - {{port: p{port}, mac: \"02:00:00:00:01:{port:02x}\", addresses: [10.1.0.{}]}}\n",
            100 + port
        ));
    }
    let mut rig = Rig::new(&[&text, OPEN]);
    // Everybody to the first: sixteen times 200 meet a queue of 1024.
    for port in 1..16_u8 {
        let ends = Ends {
            src_mac: wire::Mac([2, 0, 0, 0, 1, port]),
            dst_mac: wire::Mac([2, 0, 0, 0, 1, 0]),
            src: [10, 1, 0, 100 + port],
            dst: [10, 1, 0, 100],
        };
        for _ in 0..200 {
            rig.send(&format!("p{port}"), &ends.udp((7, 8), b"x"));
        }
    }
    rig.settle();
    assert_eq!(rig.take("p0").len(), 1024);
    assert_eq!(rig.dropped(DropReason::TxFull), 15 * 200 - 1024);
    rig.assert_balanced();
}

#[test]
fn b109_a_full_transmit_queue() {
    let mut rig = with(&[FABRIC, TENANTS, OPEN]);
    for (frame, to) in [(RED_LOCAL.udp((7, 8), b"x"), "red1"), (RED.udp((7, 8), b"x"), "uplink0")] {
        let (received, sent, full) =
            (rig.traffic("red0").rx_packets, rig.traffic(to).tx_packets, rig.dropped(DropReason::TxFull));
        for _ in 0..3 {
            (0..500).for_each(|_| rig.send("red0", &frame));
            rig.settle();
        }
        let received = rig.traffic("red0").rx_packets - received;
        let sent = rig.traffic(to).tx_packets - sent;
        let full = rig.dropped(DropReason::TxFull) - full;
        assert_eq!((received, sent, full), (1500, 1024, 1500 - 1024));
        assert_eq!(rig.take(to).len(), 1024);
        assert_eq!(rig.pass("red0", &frame, to).len(), 1, "and it goes on");
    }
    // What did not leave was not sent by the tenant either (B117).
    assert_eq!(tenant_traffic(&rig, "red").tx_packets, 1025);
    rig.assert_balanced();
}

#[test]
fn b113_the_clock_near_its_corners() {
    for corner in [1 << 31, 1 << 32, (1 << 31) * 1_000_000, (1 << 32) * 1_000_000, 1 << 63] {
        let mut rig = resolved();
        let (request, reply) =
            (RED.udp((7, 5201), b"x"), from_fabric(100, &RED.reversed().udp((5201, 7), b"y")));
        rig.now = Nanos(corner - 1_000_000_000);
        assert_eq!(rig.pass("red0", &request, "uplink0").len(), 1);
        rig.now = Nanos(corner + 1_000_000_000);
        assert_eq!(rig.pass("uplink0", &reply, "red0").len(), 1, "two seconds later, at {corner}");
        rig.now = Nanos(corner + 400_000_000_000);
        assert!(rig.pass("uplink0", &reply, "red0").is_empty(), "and gone after its time");
        rig.assert_balanced();
    }
}

#[test]
fn b114_traffic_within_the_age_limit_keeps_a_flow() {
    let mut rig = resolved();
    let (request, reply) = (RED.udp((7, 5201), b"x"), from_fabric(100, &RED.reversed().udp((5201, 7), b"y")));
    // Both sides have spoken: it may be idle for five minutes from here on.
    assert_eq!(rig.pass("red0", &request, "uplink0").len(), 1);
    assert_eq!(rig.pass("uplink0", &reply, "red0").len(), 1);
    for _ in 0..20 {
        assert_eq!(rig.pass("red0", &request, "uplink0").len(), 1);
        rig.now = rig.now + Nanos::from_secs(210);
        for _ in 0..3 {
            rig.now = rig.now + Nanos::from_millis(1);
            rig.settle();
        }
        assert_eq!(rig.pass("uplink0", &reply, "red0").len(), 1);
    }
    assert_eq!(rig.ledger.gauge(engine::Gauge::Misses), 2);
    rig.assert_balanced();
}

#[test]
fn b114_a_next_hop_that_answers_is_never_lost() {
    let mut rig = demo();
    for _ in 0..300 {
        rig.now = rig.now + Nanos::from_millis(700);
        rig.send("red0", &RED.udp((7, 5201), b"x"));
        rig.settle();
        for frame in rig.take("uplink0").iter().filter(|frame| frame[12..14] == [8, 6]) {
            rig.send("uplink0", &arp_reply_to(frame, PEER_VTEP_MAC));
        }
        rig.settle();
    }
    assert_eq!(rig.dropped(DropReason::UnresolvedNextHop), 0);
    rig.assert_balanced();
}

#[test]
fn b115_a_clock_that_steps_back() {
    let mut rig = resolved();
    let (request, reply) = (RED.udp((7, 5201), b"x"), from_fabric(100, &RED.reversed().udp((5201, 7), b"y")));
    rig.now = Nanos::from_secs(10_000);
    for now_secs in [10_000, 2_800, 10_000, 9_999, 10_001] {
        rig.now = Nanos::from_secs(now_secs);
        assert_eq!(rig.pass("red0", &request, "uplink0").len(), 1);
        assert_eq!(rig.pass("uplink0", &reply, "red0").len(), 1);
        assert!(rig.pass("red0", &RED.udp((7, 53), b"x"), "uplink0").is_empty());
    }
    assert_eq!(rig.ledger.gauge(engine::Gauge::Flows), 3);
    rig.assert_balanced();
}

#[test]
fn b117_the_books_balance_at_every_moment() {
    let mut rig = demo();
    let frames: [(&str, Vec<u8>); 8] = [
        ("red0", RED.udp((7, 5201), b"x")),
        ("red0", RED.udp((7, 53), b"x")),
        ("red0", RED.arp_request([10, 1, 0, 1])),
        ("red0", RED.udp((7, 5201), &[0; 1600])),
        ("blue0", BLUE.tcp((7, 5201), "S", b"")),
        ("uplink0", from_fabric(100, &RED.reversed().udp((5201, 7), b"y"))),
        ("uplink0", from_fabric(9, b"nobody's")),
        ("red1", vec![0; 3]),
    ];
    for round in 0..300 {
        for (port, frame) in frames.iter().cycle().skip(round % 8).take(round % 40) {
            rig.send(port, frame);
        }
        rig.poll();
        assert_eq!(rig.ledger.held(), 0, "after poll {round}");
        // The uplink is emptied, the others fill up and overflow.
        rig.take("uplink0");
    }
    rig.assert_balanced();
}

fn tenant_traffic(rig: &Rig, name: &str) -> Traffic {
    let is_it = |tenant: &Option<program::Tenant>| tenant.as_ref().is_some_and(|tenant| tenant.name == name);
    let index = rig.program().tenants.iter().position(is_it).unwrap();
    rig.ledger.traffic(Account::Tenant(TenantId(index as u16)))
}

#[test]
fn b118_a_tenants_totals_never_fall() {
    let mut rig = demo();
    let mut before = 0;
    for edit in 0..50 {
        rig.pass("blue0", &BLUE.tcp((7, 5201), "A", b"x"), "uplink0");
        let total = tenant_traffic(&rig, "blue").tx_packets;
        assert_eq!(total, before + 1);
        before = total;
        // A tenant that sorts before all others comes and goes.
        let more =
            "apiVersion: floodway.dev/v1alpha1\nkind: Tenant\nmetadata: {name: aaa}\nspec: {vni: 77}\n";
        let wider = [FABRIC, TENANTS, RULES, more];
        rig.apply(if edit % 2 == 0 { &wider } else { DEMO });
    }
    rig.assert_balanced();
}

#[test]
fn b119_tenants_are_counted_by_inner_frames_both_ways() {
    let mut rig = demo();
    let (sent, got) = (RED.udp((7, 5201), &[1; 333]), RED.reversed().udp((5201, 7), &[2; 444]));
    for _ in 0..10 {
        assert_eq!(rig.pass("red0", &sent, "uplink0").len(), 1);
        assert_eq!(rig.pass("uplink0", &from_fabric(100, &got), "red0").len(), 1);
    }
    let red = tenant_traffic(&rig, "red");
    assert_eq!((red.tx_packets, red.tx_bytes), (10, 10 * sent.len() as u64));
    assert_eq!((red.rx_packets, red.rx_bytes), (10, 10 * got.len() as u64));
    let port = rig.traffic("red0");
    assert_eq!((port.rx_bytes, port.tx_bytes), (red.tx_bytes, red.rx_bytes));
    assert_eq!(tenant_traffic(&rig, "blue"), Traffic::default());
    rig.assert_balanced();
}

#[test]
fn b120_an_unresolved_next_hop_is_asked_once_a_second() {
    let mut rig = Rig::new(DEMO);
    let mut requests = [0; 2];
    for _ in 0..3500 {
        rig.now = rig.now + Nanos::from_millis(1);
        for _ in 0..20 {
            rig.send("red0", &RED.udp((7, 5201), b"x"));
        }
        rig.settle();
        for frame in rig.take("uplink0") {
            assert_eq!(frame[12..14], [8, 6]);
            requests[usize::from(frame[41] - 2)] += 1;
        }
    }
    assert_eq!(requests, [4, 4], "at once, and after each second");
    rig.assert_balanced();
}

#[test]
fn b121_b124_a_unicast_arp_request_gets_one_answer_with_the_hosts_own_mac() {
    let mut rig = demo();
    for (target, owner) in [([10, 1, 0, 20], RED.dst_mac), ([10, 1, 0, 11], RED_LOCAL.dst_mac)] {
        let mut request = RED.arp_request(target);
        request[..6].copy_from_slice(&owner.0);
        rig.send("red0", &request);
        rig.settle();
        // The tenant's hosts are all known here, so that the answer is theirs, and no request travels.
        let seen: Vec<Vec<u8>> = ALL_PORTS.iter().flat_map(|port| rig.take(port)).collect();
        assert_eq!((seen.len(), &seen[0][..6], &seen[0][22..28]), (1, &RED.src_mac.0[..], &owner.0[..]));
    }
    rig.assert_balanced();
}

#[test]
fn b122_b123_a_group_gets_no_error_and_its_sender_no_copy() {
    let mut rig = with(&[FABRIC, TENANTS, OPEN]);
    let group = Ends { dst: [239, 1, 1, 1], dst_mac: wire::Mac([1, 0, 0x5e, 1, 1, 1]), ..RED };
    for len in [10, 1600] {
        rig.send("red0", &group.udp((7, 8), &vec![0; len]));
        rig.settle();
        assert!(ALL_PORTS.iter().all(|port| rig.take(port).is_empty()));
    }
    assert_eq!(rig.dropped(DropReason::Group), 2);
    rig.assert_balanced();
}

#[test]
fn b126_the_flags_of_an_advertisement_are_its_top_bits() {
    let mut rig = demo();
    for (target, flags) in [(RED6.dst, 0x60), (scenarios::scene::RED_GATEWAY6, 0xe0)] {
        let seen = rig.pass("red0", &RED6.solicit(target), "red0");
        assert_eq!(seen[0][54..58][..1], [136]);
        assert_eq!(seen[0][58..62], [flags, 0, 0, 0]);
    }
    rig.assert_balanced();
}
