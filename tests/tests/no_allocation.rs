//! A million packets of every kind through the worker allocate nothing.

use allocation_counter::measure;
use edge::Limits;
use engine::Gauge;
use scenarios::crew::{Card, Crew};
use scenarios::cuts::fragment;
use scenarios::frames::Ends;
use scenarios::policies::{DEMO, FABRIC, RULES, TENANTS};
use scenarios::rig::Rig;
use scenarios::scene::{BLUE, PEER_VTEP_MAC, RED, RED_GATEWAY, RED_LOCAL, RED6, from_fabric, with};
use wire::Mac;

/// Where a frame enters, and the offset of two bytes that count up, if it is to be another flow each time.
type Kind = (&'static str, Vec<u8>, Option<usize>);

/// One frame of each kind: hits, misses, refusals, discovery, errors, both directions, both families.
fn kinds() -> Vec<Kind> {
    let back = RED.reversed();
    let mut expired = Ends { dst_mac: RED_GATEWAY, ..RED }.udp((7, 5201), b"x");
    expired[22] = 1;
    assert!(wire::checksum::fill_ipv4_header(&mut expired[14..]));
    vec![
        ("red0", RED.tcp((40_000, 5201), "A", b"hit"), None),
        ("red0", RED.roce(50_000, 17, b"payload8"), None),
        ("red0", RED6.udp((7, 5201), b"hit"), None),
        ("red0", RED.udp((0, 5201), b"a flow each"), Some(34)),
        ("red0", RED.tcp((40_000, 9999), "S", b"denied"), Some(34)),
        ("red0", RED.udp((40_000, 53), b"refused"), None),
        ("red0", RED.arp_request([10, 1, 0, 1]), None),
        ("red0", RED6.solicit(RED6.dst), None),
        ("red0", Ends { dst: [10, 1, 0, 1], dst_mac: RED_GATEWAY, ..RED }.ping(1, 1, 64), None),
        ("red0", RED.udp((7, 5201), &[5; 1600]), None),
        ("red0", expired, None),
        ("red0", Ends { src: [1, 2, 3, 4], ..RED }.udp((1, 1), b"spoofed"), Some(34)),
        ("red0", Ends { src_mac: Mac([2, 9, 9, 9, 9, 9]), ..RED }.udp((1, 1), b"spoofed"), None),
        ("red0", vec![0; 9], None),
        ("red0", RED_LOCAL.ping(3, 3, 64), None),
        ("red0", fragment(&RED.udp((7, 5201), &[1; 96]), 0, 0..24), Some(18)),
        ("red0", fragment(&RED.udp((7, 5201), &[1; 96]), 0, 24..104), Some(18)),
        ("blue0", BLUE.tcp((40_000, 5201), "A", b"hit"), None),
        ("uplink0", from_fabric(100, &back.tcp((5201, 40_000), "A", b"reply")), None),
        ("uplink0", from_fabric(100, &back.roce(50_000, 17, b"payload8")), None),
        ("uplink0", from_fabric(100, &back.udp((0, 53), b"refused")), Some(84)),
        ("uplink0", from_fabric(100, &back.arp_request(RED.src)), None),
        ("uplink0", from_fabric(77, &back.udp((1, 1), b"nobody's")), None),
        ("uplink0", scenarios::scene::outer().ping(1, 1, 64), None),
    ]
}

/// Sends one frame of each kind some times over and polls until all is judged; returns allocations while polling.
fn round(rig: &mut Rig, kinds: &mut [Kind], number: u16) -> u64 {
    for (port, frame, counts) in kinds.iter_mut() {
        if let Some(at) = counts {
            frame[*at..*at + 2].copy_from_slice(&number.to_be_bytes());
        }
        for _ in 0..16 {
            rig.send(port, frame);
        }
    }
    let (mut seen, mut received) = (0, 1);
    while received > 0 {
        seen += measure(|| received = rig.poll()).count_total;
    }
    for port in ["uplink0", "red0", "red1", "blue0"] {
        while rig.wire(port).receive().is_some() {}
    }
    seen
}

#[test]
fn handing_over_allocates_nothing() {
    let crew = Crew { workers: 4, card: Card::Lopsided, ..Crew::ONE };
    let mut rig = Rig::with_crew(DEMO, Limits::default(), crew);
    rig.resolve_next_hops("uplink0", PEER_VTEP_MAC);
    let mut kinds = kinds();
    for number in 0..20 {
        round(&mut rig, &mut kinds, number);
    }
    let (before, mut counted) = (rig.ledger.gauge(Gauge::HandedOver), 0);
    for number in 0..300 {
        counted += round(&mut rig, &mut kinds, number);
    }
    assert_eq!(counted, 0);
    assert!(rig.ledger.gauge(Gauge::HandedOver) - before > 50_000);
    rig.assert_balanced();
}

#[test]
fn a_million_packets_allocate_nothing() {
    const PACKETS: u64 = 1_000_000;
    // What is denied is logged too, though nobody writes it down.
    let rules = RULES.replace("- action: Deny\n", "- action: Deny\n      log: true\n");
    let mut rig = with(&[FABRIC, TENANTS, &rules]);
    let mut kinds = kinds();
    for number in 0..20 {
        round(&mut rig, &mut kinds, number);
    }
    let level = rig.pool.level().free + rig.held();
    let (mut sent, mut number, mut counted) = (0, 0, 0);
    while sent < PACKETS {
        counted += round(&mut rig, &mut kinds, number);
        number = number.wrapping_add(1);
        sent += 16 * kinds.len() as u64;
    }
    assert_eq!(counted, 0, "allocations while {sent} packets were judged");
    assert_eq!(rig.pool.level().free + rig.held(), level, "every buffer is back or held");
    assert!(rig.ledger.gauge(Gauge::Hits) > 300_000 && rig.ledger.gauge(Gauge::Misses) > 5_000);
    for reason in [
        "too-big",
        "ttl-expired",
        "policy-deny",
        "spoofed-mac",
        "malformed",
        "unknown-vni",
        "fragment-duplicate",
    ] {
        assert!(rig.drops().iter().any(|(name, _)| *name == reason), "{reason} was among them");
    }
    let log = rig.ledger.log(engine::Account::Tenant(program::TenantId(1)));
    assert!(log.written > 0 && log.suppressed + log.lost > 0, "{log:?}");
    rig.assert_balanced();
    assert_eq!(measure(|| drop(std::hint::black_box(Box::new(1)))).count_total, 1, "the counter counts");
}
