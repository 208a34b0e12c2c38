//! Whatever two hosts send each other comes to one worker.

use engine::Gauge;
use program::DropReason;
use scenarios::crew::{Card, Crew};
use scenarios::frames::Ends;
use scenarios::frames6::Ends6;
use scenarios::policies::{DEMO, FABRIC, RULES, TENANTS};
use scenarios::rig::Rig;
use scenarios::scene::{RED, RED6, from_fabric};

use crate::rings::{far, rig};

/// Which worker judged what was sent between the two calls.
fn judges(rig: &Rig) -> Vec<u64> {
    let judged = |gauge| rig.ledger.0.iter().map(move |ledger| ledger.gauge(gauge));
    judged(Gauge::Hits).zip(judged(Gauge::Misses)).map(|(hits, misses)| hits + misses).collect()
}

/// The one worker that looked all of these up, each as (port, frame).
fn judge_of(rig: &mut Rig, frames: &[(&str, Vec<u8>)]) -> usize {
    let before = judges(rig);
    for (port, frame) in frames {
        rig.send(port, frame);
        rig.settle();
    }
    let after = judges(rig);
    let did: Vec<usize> = (0..after.len()).filter(|worker| after[*worker] > before[*worker]).collect();
    assert_eq!(did.len(), 1, "of {before:?} to {after:?}");
    did[0]
}

/// As the IPv4 frame's fragment at that offset (in units of eight bytes), with more to come or not.
fn fragment(mut frame: Vec<u8>, offset: u16, more: bool) -> Vec<u8> {
    frame[20..22].copy_from_slice(&(u16::from(more) << 13 | offset).to_be_bytes());
    assert!(wire::checksum::fill_ipv4_header(&mut frame[14..]));
    frame
}

#[test]
fn both_directions_fragments_and_queue_pairs_of_two_hosts_meet() {
    for crew in [2, 3, 4].into_iter().flat_map(|workers| {
        [Card::OneQueue, Card::Lopsided, Card::Symmetric].map(|card| Crew { workers, card, ..Crew::ONE })
    }) {
        let mut rig = rig(DEMO, crew);
        let mut chosen = Vec::new();
        for host in 1..=24 {
            let ends = Ends { dst: [10, 9, 0, host], ..far() };
            let back = Ends { src_mac: scenarios::scene::RED_GATEWAY, ..ends.reversed() };
            let in_tunnel = |frame: Vec<u8>| ("uplink0", from_fabric(100, &frame));
            let long = ends.udp((7, 5201), &[0; 64]);
            chosen.push(judge_of(
                &mut rig,
                &[
                    ("red0", ends.tcp((40_000, 5201), "S", b"")),
                    in_tunnel(back.tcp((5201, 40_000), "SA", b"")),
                    ("red0", ends.udp((7, 5201), b"x")),
                    in_tunnel(back.udp((5201, 7), b"y")),
                    ("red0", ends.ping(1, 1, 64)),
                    in_tunnel(back.pong(1, 1)),
                    ("red0", ends.roce(50_000, 17, b"payload8")),
                    in_tunnel(back.roce(60_000, 18, b"payload8")),
                    ("red0", ends.roce(50_001, 1, b"a CM one")),
                    ("red0", fragment(long.clone(), 0, true)),
                    ("red0", fragment(long, 8, false)),
                    in_tunnel(back.tcp((9, 9), "S", b"refused")),
                ],
            ));
        }
        chosen.sort_unstable();
        chosen.dedup();
        assert_eq!(chosen.len(), usize::from(crew.workers), "every worker has some: {crew:?}");
        rig.assert_balanced();
    }
}

#[test]
fn both_families_meet_and_a_priority_tag_changes_nothing() {
    let mut rig = rig(DEMO, Crew { workers: 4, card: Card::Lopsided, ..Crew::ONE });
    let back = Ends6 { src_mac: RED6.dst_mac, ..RED6.reversed() };
    let mut tagged = RED6.udp((7, 5201), b"x");
    tagged.splice(12..12, [0x81, 0, 0xa0, 0]);
    let plain = judge_of(
        &mut rig,
        &[
            ("red0", RED6.udp((7, 5201), b"x")),
            ("uplink0", from_fabric(100, &back.udp((5201, 7), b"y"))),
            ("red0", RED6.ping(1, 1, 64)),
            ("red0", scenarios::frames6::extend(&RED6.udp((7, 5201), b"x"), 60, &[17, 0, 1, 4, 0, 0, 0, 0])),
            ("red0", tagged),
        ],
    );
    assert!(plain < 4 && rig.take("red0").len() == 1, "the answer passed");
    rig.assert_balanced();
}

#[test]
fn an_icmp_error_of_a_third_host_comes_to_the_flow_that_it_quotes() {
    for workers in [2, 4] {
        let mut rig = rig(DEMO, Crew { workers, card: Card::Lopsided, ..Crew::ONE });
        let mut passed = 0;
        for host in 1..=32 {
            let ends = Ends { dst: [10, 9, 0, host], ..far() };
            let request = ends.udp((7, 5201), b"x");
            assert_eq!(rig.pass("red0", &request, "uplink0").len(), 1);
            // A router on the way, behind the same endpoint as the destination.
            let router = Ends { src: [10, 9, 255, 1], src_mac: RED.dst_mac, ..RED.reversed() };
            let error = router.unreachable(&request);
            let outer = Ends { src: [192, 0, 2, 3], ..scenarios::scene::outer() };
            let frame = scenarios::frames::tunnel(outer, 0, 100, &error);
            passed += rig.pass("uplink0", &frame, "red0").len();
        }
        assert_eq!((passed, rig.dropped(DropReason::UnrelatedIcmpError)), (32, 0), "{:?}", rig.drops());
        rig.assert_balanced();
    }
}

#[test]
fn a_card_that_hashes_the_same_way_leaves_nothing_to_hand_over() {
    let mut rig = rig(DEMO, Crew { workers: 4, card: Card::Symmetric, ..Crew::ONE });
    let before = rig.ledger.gauge(Gauge::HandedOver);
    for host in 1..=200 {
        let ends = Ends { dst: [10, 9, 0, host], ..far() };
        rig.send("red0", &ends.tcp((40_000, 5201), "S", b""));
        rig.send("red0", &ends.ping(1, 1, 64));
        rig.settle();
        rig.send("uplink0", &from_fabric(100, &ends.reversed().tcp((5201, 40_000), "SA", b"")));
        rig.settle();
    }
    assert_eq!(rig.ledger.gauge(Gauge::HandedOver), before);
    assert!(rig.ledger.0.iter().all(|ledger| ledger.gauge(Gauge::Misses) > 20));
}

#[test]
fn one_worker_asks_for_next_hops_and_all_know_them() {
    let mut rig =
        Rig::with_crew(DEMO, edge::Limits::default(), Crew { workers: 4, card: Card::Lopsided, ..Crew::ONE });
    rig.settle();
    assert_eq!(rig.take("uplink0").len(), 2, "one request for each of two endpoints");
    rig.resolve_next_hops("uplink0", scenarios::scene::PEER_VTEP_MAC);
    rig.now = rig.now + packet::Nanos::from_secs(1);
    rig.resolve_next_hops("uplink0", scenarios::scene::PEER_VTEP_MAC);
    for host in 1..=64 {
        let ends = Ends { dst: [10, 9, 0, host], ..far() };
        assert_eq!(rig.pass("red0", &ends.udp((1, 5201), b"x"), "uplink0").len(), 1, "{:?}", rig.drops());
    }
    assert_eq!(rig.dropped(DropReason::UnresolvedNextHop), 0);
}

/// The Fabric with its endpoints off link, behind that gateway.
fn behind(gateway: &str) -> String {
    FABRIC.replace("192.0.2.2}", "198.51.100.2}").replace("192.0.2.3}", "198.51.100.3}").replace(
        "    addresses: [192.0.2.1/24]\n",
        &format!("    addresses: [192.0.2.1/24]\n    gateways: [{gateway}]\n"),
    )
}

/// A worker runs a new program before the one that resolves next hops does: it goes on with what has not changed, and
/// does not send to where only the old program leads.
#[test]
fn a_new_program_keeps_next_hops_that_it_has_too_and_no_others() {
    let (first, second) = (behind("192.0.2.250"), behind("192.0.2.251"));
    let edited = RULES.replace("port: 9999", "port: 9998");
    let mut rig = rig(&[&first, TENANTS, RULES], Crew { workers: 2, ..Crew::ONE });
    // Red's port is the second worker's; so is the pair of hosts.
    let ends = (1..=254).map(|host| Ends { dst: [10, 9, 0, host], ..far() }).find(|ends| {
        let before = rig.ledger.0[1].gauge(Gauge::Misses);
        assert_eq!(rig.pass("red0", &ends.udp((1, 5201), b"x"), "uplink0").len(), 1);
        rig.ledger.0[1].gauge(Gauge::Misses) > before
    });
    let frame = ends.expect("one that the second worker owns").udp((1, 5201), b"x");
    for (texts, passes) in [([&first, TENANTS, &edited], true), ([&second, TENANTS, &edited], false)] {
        rig.apply(&texts);
        rig.send("red0", &frame);
        assert_eq!(rig.step(1), 1);
        assert_eq!(rig.ledger.in_rings() == 1, passes, "judged, and on its way to who sends it, or not");
        assert_eq!(rig.dropped(DropReason::UnresolvedNextHop), u64::from(!passes));
        rig.settle();
    }
    rig.take("uplink0");
    rig.now = rig.now + packet::Nanos::from_secs(2);
    rig.resolve_next_hops("uplink0", scenarios::scene::PEER_VTEP_MAC);
    assert_eq!(rig.pass("red0", &frame, "uplink0").len(), 1, "{:?}", rig.drops());
    rig.assert_balanced();
}

#[test]
fn what_a_tenant_may_have_is_divided_among_the_workers() {
    let tenants = TENANTS.replacen("spec:\n  vni: 100", "spec:\n  quota: {flows: 90}\n  vni: 100", 1);
    let mut rig = rig(&[FABRIC, &tenants, RULES], Crew { workers: 4, ..Crew::ONE });
    for host in 1..=250 {
        let ends = Ends { dst: [10, 9, 0, host], ..far() };
        for port in 0..2 {
            assert_eq!(rig.pass("red0", &ends.udp((port, 5201), b"x"), "uplink0").len(), 1);
        }
    }
    rig.now = rig.now + packet::Nanos::from_millis(2);
    rig.poll();
    let flows: Vec<u64> = rig.ledger.0.iter().map(|ledger| ledger.gauge(Gauge::Flows)).collect();
    assert_eq!(flows, [23; 4], "a quarter of 90, rounded up");
    assert_eq!(rig.ledger.gauge(Gauge::Uncached), 0, "what is one-way gives way");
    assert_eq!(rig.flows().len(), 4 * 23, "the list has those of all workers");
}
