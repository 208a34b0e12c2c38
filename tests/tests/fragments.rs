//! Datagrams in fragments: the verdict of the first for all of them, in any order, and nothing kept for ever.

use engine::Gauge;
use packet::Nanos;
use program::DropReason;
use proptest::prelude::*;
use scenarios::cuts::{cut, fragment, fragment_of, joined};
use scenarios::frames::{Ends, untunnel};
use scenarios::frames6::{Ends6, extend};
use scenarios::policies::{DEMO, FABRIC, RULES, TENANTS};
use scenarios::rig::Rig;
use scenarios::scene::{BLUE, PEER_VTEP_MAC, RED, RED_GATEWAY6, RED6, demo, from_fabric, with};

/// Fragments that red's host sends and that leave in red's tunnel, as they are inside.
fn out(rig: &mut Rig, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let seen = frames.iter().flat_map(|frame| rig.pass("red0", frame, "uplink0"));
    // This box asks for next hops that it has not heard of for long.
    let seen = seen.filter(|frame| frame[12..14] != [8, 6]);
    seen.map(|frame| untunnel(&frame))
        .inspect(|seen| assert_eq!(seen.vni, 100))
        .map(|seen| seen.inner)
        .collect()
}

/// Fragments in red's tunnel that leave on red's port.
fn inwards(rig: &mut Rig, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    frames.iter().flat_map(|frame| rig.pass("uplink0", &from_fabric(100, frame), "red0")).collect()
}

/// Lets time pass, a poll a millisecond at its end; nothing but questions for next hops may leave meanwhile.
fn wait(rig: &mut Rig, time: Nanos) {
    rig.now = rig.now + time;
    for _ in 0..150 {
        rig.now = rig.now + Nanos::from_millis(1);
        rig.poll();
        let sent = rig.take("uplink0").into_iter().filter(|frame| frame[12..14] != [8, 6]);
        let at_ports = ["red0", "red1", "blue0"].map(|port| rig.take(port).len());
        assert_eq!((sent.count(), at_ports), (0, [0; 3]), "time that passes sends nothing");
    }
    rig.resolve_next_hops("uplink0", PEER_VTEP_MAC);
}

/// How long a datagram may take to be complete.
const LIFETIME: Nanos = Nanos::from_secs(2);

/// Every order of four.
fn orders() -> Vec<[usize; 4]> {
    let numbers = || 0..4_usize;
    let all = numbers().flat_map(|a| {
        numbers().flat_map(move |b| numbers().flat_map(move |c| numbers().map(move |d| [a, b, c, d])))
    });
    all.filter(|order| numbers().all(|number| order.contains(&number))).collect()
}

/// UDP to an open and to a closed port, over both families, in four fragments.
fn datagrams(id: u32) -> [(bool, Vec<u8>, Vec<Vec<u8>>); 4] {
    [
        (true, RED.udp((7, 5201), &[1; 70])),
        (false, RED.udp((7, 53), &[2; 70])),
        (true, RED6.udp((7, 5201), &[3; 70])),
        (false, RED6.udp((7, 53), &[4; 70])),
    ]
    .map(|(passes, whole)| (passes, whole.clone(), cut(&whole, id, &[24, 40, 72])))
}

#[test]
fn the_first_decides_for_all_in_every_order() {
    let mut rig = demo();
    for (number, order) in (1..).zip(orders()) {
        for (passes, whole, pieces) in datagrams(number) {
            let before = rig.dropped(DropReason::PolicyDefault);
            let sent = order.map(|index| pieces[index].clone());
            let seen = out(&mut rig, &sent);
            assert_eq!(rig.dropped(DropReason::PolicyDefault) - before, if passes { 0 } else { 4 });
            assert_eq!(rig.held(), 0);
            if passes {
                // The first, what waited for it in the order of its arrival, then the rest.
                let first = order.iter().position(|index| *index == 0).unwrap();
                let expected = [&sent[first..=first], &sent[..first], &sent[first + 1..]].concat();
                assert_eq!(seen, expected, "{order:?}");
                assert_eq!(joined(&seen).as_deref(), Some(&whole[if whole[12] == 8 { 34 } else { 54 }..]));
            } else {
                assert!(seen.is_empty(), "{order:?}");
            }
            rig.assert_balanced();
        }
    }
    assert_eq!(rig.ledger.gauge(Gauge::Datagrams), 0, "what is complete is forgotten");
    let flows = rig.flows();
    assert_eq!(flows.len(), 4, "{flows:?}");
    let open = flows.iter().filter(|flow| flow.service == "udp 7 > 5201");
    assert!(
        open.into_iter().all(|flow| flow.packets == 4 * 24),
        "later fragments count on their flow: {flows:?}"
    );
}

#[test]
fn b025_answers_in_fragments_pass_as_answers() {
    let mut rig = demo();
    let answer = cut(&RED.reversed().udp((5201, 7), &[9; 3000]), 1, &[1000, 2000]);
    let answer: Vec<_> = answer.into_iter().rev().collect();
    assert!(inwards(&mut rig, &answer).is_empty(), "unasked");
    assert_eq!((rig.dropped(DropReason::PolicyDefault), rig.held()), (3, 0));
    assert_eq!(out(&mut rig, &[RED.udp((7, 5201), b"?")]).len(), 1);
    let answer = cut(&RED.reversed().udp((5201, 7), &[9; 3000]), 2, &[1000, 2000]);
    let reversed: Vec<_> = answer.iter().rev().cloned().collect();
    assert_eq!(inwards(&mut rig, &reversed), [&answer[..1], &reversed[..2]].concat());
    // And a request in fragments opens the way for a whole answer.
    let request = cut(&RED.udp((8, 5201), &[9; 100]), 3, &[48]);
    assert_eq!(out(&mut rig, &request).len(), 2);
    assert_eq!(inwards(&mut rig, &[RED.reversed().udp((5201, 8), b"!")]).len(), 1);
    rig.assert_balanced();
}

#[test]
fn a_ping_of_four_thousand_bytes_and_its_reply() {
    let mut rig = demo();
    let ends = [1480, 2960];
    let long = |mut frame: Vec<u8>| {
        frame.resize(42 + 4000, 7);
        frame
    };
    assert_eq!(out(&mut rig, &cut(&long(RED.ping(5, 1, 64)), 1, &ends)).len(), 3);
    assert_eq!(inwards(&mut rig, &cut(&long(RED.reversed().pong(5, 1)), 1, &ends)).len(), 3);
    assert!(
        inwards(&mut rig, &cut(&long(RED.reversed().pong(6, 1)), 2, &ends)).is_empty(),
        "of another ping"
    );
    rig.assert_balanced();
}

#[test]
fn b027_duplicates_and_a_last_fragment_of_one_byte() {
    let mut rig = demo();
    let whole = RED.udp((7, 5201), &[1; 41]);
    let pieces = cut(&whole, 1, &[24, 48]);
    assert_eq!(pieces[2].len(), 34 + 1);
    let copies = |index: usize| vec![pieces[index].clone(); 64];
    // One of each gets through, and the 63 others of each are duplicates; the last one's come when all is complete.
    let seen = out(&mut rig, &[copies(1), copies(0)].concat());
    assert_eq!((seen.len(), rig.dropped(DropReason::FragmentDuplicate)), (2, 126));
    let seen = [seen, out(&mut rig, &pieces[2..])].concat();
    assert_eq!(joined(&seen).as_deref(), Some(&whole[34..]));
    assert!(out(&mut rig, &copies(2)).is_empty(), "of a datagram that is complete: they wait for a first");
    assert_eq!((rig.held(), rig.dropped(DropReason::FragmentDuplicate)), (1, 126 + 63));
    rig.assert_balanced();
}

#[test]
fn overlaps_and_contradictions_spoil_the_datagram() {
    let whole = |ends: bool| if ends { RED.udp((7, 5201), &[1; 96]) } else { RED6.udp((7, 5201), &[1; 96]) };
    let bad = [
        ("front", 16, 16, true),
        ("back", 40, 16, true),
        ("inside", 56, 8, true),
        ("spanning", 40, 40, true),
        ("a longer first", 0, 32, true),
        ("a shorter first", 0, 16, true),
        ("behind the end", 104, 8, false),
        ("another end", 80, 8, false),
        ("more at the end", 96, 8, true),
    ];
    for family in [true, false] {
        for (what, offset, len, more) in bad {
            let mut rig = demo();
            let whole = whole(family);
            // All but what is between 24 and 48.
            let seen = [0..24, 48..72, 72..96, 96..104].map(|range| fragment(&whole, 1, range));
            assert_eq!(out(&mut rig, &seen).len(), 4, "{what}");
            // A first of the same flow, by its header.
            let mut data = if offset == 0 { whole[whole.len() - 104..].to_vec() } else { vec![0xee; 104] };
            data.truncate(len);
            assert!(out(&mut rig, &[fragment_of(&whole, 1, offset, more, &data)]).is_empty(), "{what}");
            assert!(
                out(&mut rig, &[fragment(&whole, 1, 24..48)]).is_empty(),
                "{what}: the rest is refused too"
            );
            assert_eq!(rig.dropped(DropReason::FragmentOverlap), 2, "{what}: {:?}", rig.drops());
            assert_eq!(out(&mut rig, &cut(&whole, 2, &[48])).len(), 2, "{what}: another datagram");
            rig.assert_balanced();
        }
    }
}

#[test]
fn an_overlap_drops_what_waits() {
    let mut rig = demo();
    let whole = RED.udp((7, 5201), &[1; 96]);
    let pieces = [48..72, 72..104, 64..80, 0..24].map(|range| fragment(&whole, 1, range));
    assert!(out(&mut rig, &pieces).is_empty());
    assert_eq!((rig.held(), rig.dropped(DropReason::FragmentOverlap)), (0, 4));
    rig.assert_balanced();
}

#[test]
fn a_second_first_does_not_smuggle_a_port() {
    let mut rig = demo();
    let (open, closed) = (RED.udp((7, 5201), &[1; 96]), RED.udp((7, 53), &[1; 96]));
    for (id, one, other) in [(1, &open, &closed), (2, &closed, &open)] {
        let first = out(&mut rig, &[fragment(one, id, 0..24)]).len();
        assert_eq!(first, usize::from(id == 1));
        assert!(out(&mut rig, &[fragment(other, id, 0..24), fragment(other, id, 24..104)]).is_empty());
    }
    assert_eq!((rig.dropped(DropReason::FragmentOverlap), rig.dropped(DropReason::PolicyDefault)), (4, 1));
    rig.assert_balanced();
}

#[test]
fn tiny_and_too_long() {
    let mut rig = demo();
    let tcp = RED.tcp((40_000, 5201), "S", &[1; 100]);
    let bad = [
        fragment(&tcp, 1, 0..8),   // no flags: RFC 1858, section 3
        fragment(&tcp, 1, 8..120), // and what would complete it
        fragment(&tcp, 2, 0..16),
        fragment_of(&RED.udp((7, 5201), b""), 3, 0, true, &[0; 4]),
        fragment_of(&tcp, 4, 65_512, false, &[7; 24]), // the ping of death
        fragment_of(&tcp, 5, 65_528, true, &[7; 8]),
    ];
    assert!(out(&mut rig, &bad).is_empty());
    assert_eq!(rig.dropped(DropReason::Malformed), bad.len() as u64);
    // What goes with a tiny first waits for another, which does not come.
    assert!(out(&mut rig, &[fragment(&tcp, 2, 16..120)]).is_empty());
    assert_eq!(rig.held(), 1);
    wait(&mut rig, LIFETIME);
    assert_eq!((rig.held(), rig.dropped(DropReason::FragmentTimeout)), (0, 1));
    rig.assert_balanced();
}

#[test]
fn tenants_with_the_same_addresses_and_identification_stay_apart() {
    let mut rig = with(&[
        FABRIC,
        TENANTS,
        &RULES.replace("{protocol: TCP, port: 5201}, {protocol: RoCEv2}]", "{protocol: UDP, port: 5201}]"),
    ]);
    let (red, blue) = (RED.udp((7, 5201), &[1; 96]), BLUE.udp((7, 5201), &[2; 96]));
    assert_eq!(out(&mut rig, &[fragment(&red, 1, 0..24)]).len(), 1);
    let later = fragment(&blue, 1, 24..104);
    assert!(rig.pass("blue0", &later, "uplink0").is_empty(), "it does not follow red's first");
    let seen = rig.pass("blue0", &fragment(&blue, 1, 0..24), "uplink0");
    assert_eq!(seen.iter().map(|frame| untunnel(frame).vni).collect::<Vec<_>>(), [200, 200]);
    // Nor does what comes in by a tunnel follow what came in by the port.
    assert!(inwards(&mut rig, &[fragment(&red, 1, 24..104)]).is_empty());
    assert_eq!(rig.dropped(DropReason::SpoofedAddress), 1);
    assert_eq!(out(&mut rig, &[fragment(&red, 1, 24..104)]).len(), 1);
    rig.assert_balanced();
}

#[test]
fn the_protocol_tells_ipv4_datagrams_apart_and_ipv6_not() {
    let mut rig = demo();
    let (udp, tcp) = (RED.udp((7, 5201), &[1; 96]), RED.tcp((7, 5201), "A", &[1; 84]));
    assert_eq!(out(&mut rig, &[fragment(&udp, 1, 0..24), fragment(&tcp, 1, 0..24)]).len(), 2);
    assert_eq!(out(&mut rig, &[fragment(&udp, 1, 24..104), fragment(&tcp, 1, 24..104)]).len(), 2);
    // RFC 8200, section 4.5: only the first fragment's next header counts, and two firsts overlap.
    let udp = RED6.udp((7, 5201), &[1; 96]);
    let mut other = fragment(&udp, 1, 24..104);
    other[54] = 60;
    assert_eq!(out(&mut rig, &[fragment(&udp, 1, 0..24), other]).len(), 2);
    assert_eq!(rig.ledger.gauge(Gauge::Datagrams), 0, "it is complete");
    rig.assert_balanced();
}

#[test]
fn b018_time_that_is_over_sends_nothing() {
    let mut rig = demo();
    let whole = RED.udp((7, 5201), &[1; 96]);
    assert_eq!(out(&mut rig, &[fragment(&whole, 1, 0..24)]).len(), 1);
    assert!(out(&mut rig, &[fragment(&whole, 2, 24..104)]).is_empty());
    wait(&mut rig, LIFETIME);
    assert_eq!((rig.ledger.gauge(Gauge::Unfinished), rig.ledger.gauge(Gauge::Datagrams)), (2, 0));
    assert_eq!((rig.held(), rig.dropped(DropReason::FragmentTimeout)), (0, 1));
    assert!(out(&mut rig, &[fragment(&whole, 1, 24..104)]).is_empty(), "too late: its first is forgotten");
    assert_eq!(rig.held(), 1);
    rig.assert_balanced();
}

#[test]
fn a_clock_that_jumps_keeps_nothing_for_ever() {
    let mut rig = demo();
    let whole = RED.udp((7, 5201), &[1; 96]);
    let start = rig.now;
    rig.now = start + Nanos::from_secs(100_000);
    assert!(out(&mut rig, &[fragment(&whole, 1, 24..104)]).is_empty());
    rig.now = start;
    assert!(out(&mut rig, &[fragment(&whole, 2, 24..104)]).is_empty());
    wait(&mut rig, Nanos(0));
    assert_eq!(rig.held(), 2, "both have their time from here on");
    wait(&mut rig, LIFETIME);
    assert_eq!((rig.held(), rig.dropped(DropReason::FragmentTimeout)), (0, 2));
    assert!(out(&mut rig, &[fragment(&whole, 3, 24..104)]).is_empty());
    wait(&mut rig, Nanos::from_secs(1_000_000));
    assert_eq!((rig.held(), rig.dropped(DropReason::FragmentTimeout)), (0, 3));
    rig.assert_balanced();
}

/// Red may send to nobody.
const CLOSED: &str = "apiVersion: floodway.dev/v1alpha1\nkind: TenantPolicy\nmetadata: {name: closed}\n\
                      spec: {tenant: red, egress: [{action: Deny}]}\n";

#[test]
fn a_new_program_decides_what_is_still_to_come() {
    let mut rig = demo();
    let whole = RED.udp((7, 5201), &[1; 96]);
    assert_eq!(out(&mut rig, &[fragment(&whole, 1, 0..24), fragment(&whole, 1, 24..48)]).len(), 2);
    assert!(out(&mut rig, &[fragment(&whole, 2, 48..104)]).is_empty());
    rig.apply(&[FABRIC, TENANTS, CLOSED]);
    assert!(
        out(&mut rig, &[fragment(&whole, 1, 48..72)]).is_empty(),
        "its first was allowed by the old program"
    );
    assert!(out(&mut rig, &[fragment(&whole, 2, 0..48)]).is_empty(), "and what waited goes with its first");
    assert_eq!((rig.dropped(DropReason::PolicyDeny), rig.held()), (3, 0));
    rig.apply(DEMO);
    assert_eq!(out(&mut rig, &[fragment(&whole, 1, 72..104)]).len(), 1);
    rig.assert_balanced();
}

#[test]
fn b019_a_million_identifications_of_one_tenant_cost_others_nothing() {
    let quota = TENANTS.replace("  vni: 100\n", "  vni: 100\n  quota: {fragments: 100}\n");
    let open = "apiVersion: floodway.dev/v1alpha1\nkind: TenantPolicy\nmetadata: {name: open}\n\
                spec: {tenant: blue, egress: [{action: Accept}]}\n";
    let mut rig = with(&[FABRIC, &quota, &RULES[..RULES.find("---").unwrap()], open]);
    let blue = BLUE.udp((7, 8), &[2; 96]);
    assert_eq!(rig.pass("blue0", &fragment(&blue, 1, 0..24), "uplink0").len(), 1);
    assert!(rig.pass("blue0", &fragment(&blue, 2, 24..104), "uplink0").is_empty());
    let red = RED6.udp((7, 5201), &[1; 96]);
    let level = rig.pool.level();
    // Firsts and later ones in turn, no two of one datagram.
    let mut frames = [fragment(&red, 0, 0..24), fragment(&red, 0, 24..104)];
    for id in 0..1_000_000_u32 {
        let frame = &mut frames[id as usize % 2];
        frame[58..62].copy_from_slice(&id.to_be_bytes());
        rig.send("red0", frame);
        if id % 32 == 0 {
            rig.settle();
            while rig.wire("uplink0").receive().is_some() {}
        }
    }
    rig.settle();
    while rig.wire("uplink0").receive().is_some() {}
    // Red's share, and the two of blue's.
    assert!(rig.held() <= 64 + 1 && level.free <= rig.pool.level().free + 64);
    wait(&mut rig, Nanos(0));
    assert!((3..=102).contains(&rig.ledger.gauge(Gauge::Datagrams)));
    assert!(rig.dropped(DropReason::FragmentLimit) > 400_000);
    assert_eq!(rig.pass("blue0", &fragment(&blue, 1, 24..104), "uplink0").len(), 1, "{:?}", rig.drops());
    assert_eq!(rig.pass("blue0", &fragment(&blue, 2, 0..24), "uplink0").len(), 2);
    wait(&mut rig, LIFETIME);
    assert_eq!((rig.held(), rig.ledger.gauge(Gauge::Datagrams)), (0, 0));
    rig.assert_balanced();
}

#[test]
fn b023_many_datagrams_at_once_are_a_bounded_loss() {
    let mut rig = demo();
    let whole = |port: u16| RED6.udp((port, 5201), &[1; 96]);
    let seen: usize = (0..8200).map(|id| out6(&mut rig, &fragment(&whole(id), id.into(), 0..24))).sum();
    assert_eq!(seen, 8200);
    let seen: usize =
        (0..8200).rev().map(|id| out6(&mut rig, &fragment(&whole(id), id.into(), 24..104))).sum();
    // The quota's newest; the rest waits in vain, no more of it than a tenant may have.
    assert_eq!((seen, rig.held()), (1024, 64));
    assert_eq!(rig.dropped(DropReason::FragmentLimit), 8200 - 1024 - 64);
    rig.assert_balanced();
}

fn out6(rig: &mut Rig, frame: &[u8]) -> usize {
    rig.pass("red0", frame, "uplink0").len()
}

#[test]
fn b022_a_port_rule_covers_later_fragments() {
    let egress = "[{action: Accept, services: [{protocol: UDP, port: 7001}]}]";
    let only = format!(
        "apiVersion: floodway.dev/v1alpha1\nkind: TenantPolicy\nmetadata: {{name: one}}\nspec: {{tenant: red, egress: {egress}}}\n"
    );
    let mut rig = with(&[FABRIC, TENANTS, &only]);
    assert_eq!(out(&mut rig, &cut(&RED.udp((7, 7001), &[1; 96]), 1, &[24, 48])).len(), 3);
    assert!(out(&mut rig, &cut(&RED.udp((7, 7002), &[1; 96]), 2, &[24, 48])).is_empty());
    // B024: the second one first.
    let [first, second] = [0..24, 24..104].map(|range| fragment(&RED.udp((7, 7001), &[1; 96]), 3, range));
    assert_eq!(out(&mut rig, &[second, first]).len(), 2);
    rig.assert_balanced();
}

#[test]
fn what_is_held_at_the_end_is_counted() {
    let mut rig = demo();
    let whole = RED.udp((7, 5201), &[1; 96]);
    assert!(out(&mut rig, &[fragment(&whole, 1, 24..48), fragment(&whole, 1, 48..104)]).is_empty());
    rig.assert_balanced();
    assert_eq!(rig.held(), 2);
    rig.close();
    assert_eq!((rig.held(), rig.ledger.held(), rig.dropped(DropReason::Shutdown)), (0, 0, 2));
    rig.assert_balanced();
}

#[test]
fn a_fragment_that_goes_nowhere_takes_no_room() {
    let mut rig = demo();
    let later = |ends: Ends| fragment(&ends.udp((7, 5201), &[1; 96]), 1, 24..104);
    let frames = [
        (later(Ends { src: [10, 1, 0, 99], ..RED }), DropReason::SpoofedAddress),
        (later(Ends { dst: [10, 1, 0, 99], ..RED }), DropReason::NoRoute),
        (later(Ends { src: [127, 0, 0, 1], ..RED }), DropReason::Martian),
        (
            later(Ends { dst: [10, 1, 0, 1], dst_mac: scenarios::scene::RED_GATEWAY, ..RED }),
            DropReason::NoService,
        ),
    ];
    for (frame, reason) in frames {
        assert!(out(&mut rig, &[frame]).is_empty());
        assert_eq!((rig.dropped(reason), rig.held()), (1, 0), "{reason:?}");
    }
    assert_eq!(rig.ledger.gauge(Gauge::Datagrams), 0);
    rig.assert_balanced();
}

#[test]
fn errors_and_discovery_come_whole_or_not_at_all() {
    let mut rig = demo();
    let asked = RED.udp((7, 5201), &[1; 96]);
    assert_eq!(out(&mut rig, std::slice::from_ref(&asked)).len(), 1);
    let error = RED.reversed().unreachable(&asked);
    assert_eq!(inwards(&mut rig, std::slice::from_ref(&error)).len(), 1);
    assert!(inwards(&mut rig, &[fragment(&error, 1, 0..64)]).is_empty());
    // RFC 6980, section 5: neither in fragments nor as an atomic one.
    let solicit = RED6.solicit(RED_GATEWAY6);
    assert_eq!(rig.pass("red0", &solicit, "red0").len(), 1);
    for atomic in
        [extend(&solicit, 44, &[58, 0, 0, 0, 0, 0, 0, 9]), extend(&solicit, 44, &[58, 0, 0, 1, 0, 0, 0, 9])]
    {
        assert!(rig.pass("red0", &atomic, "red0").is_empty());
    }
    assert_eq!(rig.dropped(DropReason::FragmentedControl), 3, "{:?}", rig.drops());
    rig.assert_balanced();
}

#[test]
fn rocev2_in_fragments_is_judged_by_the_queue_pair_of_its_first() {
    let mut rig = demo();
    let to = |qp| RED.reversed().roce(50_000, qp, &[7; 200]);
    assert_eq!(inwards(&mut rig, &cut(&to(17), 1, &[80])).len(), 2);
    assert!(inwards(&mut rig, &cut(&to(32), 2, &[80])).is_empty());
    assert_eq!(rig.dropped(DropReason::PolicyDefault), 2);
    rig.assert_balanced();
}

#[test]
fn headers_behind_the_fragment_header_hide_no_port() {
    let mut rig = demo();
    // Destination options, which are part of what is fragmented, then UDP.
    let with_options = |port| {
        let whole = RED6.udp((7, port), &[1; 96]);
        extend(&whole, 60, &[17, 0, 1, 4, 0, 0, 0, 0])
    };
    assert_eq!(out(&mut rig, &cut(&with_options(5201), 1, &[32])).len(), 2);
    assert!(out(&mut rig, &cut(&with_options(53), 2, &[32])).is_empty());
    assert_eq!(rig.dropped(DropReason::PolicyDefault), 2);
    // A first that ends inside the chain (RFC 7112): refused, and nothing follows it.
    assert!(out(&mut rig, &cut(&with_options(5201), 3, &[8])).is_empty());
    assert_eq!((rig.dropped(DropReason::Malformed), rig.held()), (1, 1));
    // A fragment header behind a fragment header.
    let nested = extend(&with_options(5201), 44, &[60, 0, 0, 0, 0, 0, 0, 9]);
    assert!(out(&mut rig, &cut(&nested, 4, &[48])[..1]).is_empty());
    assert_eq!(rig.dropped(DropReason::Malformed), 2);
    rig.assert_balanced();
}

/// A datagram cut anywhere, its fragments shuffled, some of them sent again.
fn shuffled()
-> impl Strategy<Value = (Vec<usize>, Vec<prop::sample::Index>, Vec<prop::sample::Index>, bool, bool)> {
    let ends = prop::collection::btree_set(3..25_usize, 0..8)
        .prop_map(|ends| ends.into_iter().map(|end| end * 8).collect());
    let indexes = || prop::collection::vec(any::<prop::sample::Index>(), 12);
    (ends, indexes(), indexes(), any::<bool>(), any::<bool>())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..Default::default() })]

    /// Whoever puts together what has left has what was sent, or nothing at all when the port is closed.
    #[test]
    fn what_leaves_is_what_was_sent((ends, order, again, six, open) in shuffled()) {
        let mut rig = demo();
        let port = if open { 5201 } else { 53 };
        let data: Vec<u8> = (0..201).collect();
        let ends6: Ends6 = RED6;
        let whole = if six { ends6.udp((7, port), &data) } else { RED.udp((7, port), &data) };
        let mut pieces = if ends.is_empty() { vec![whole.clone()] } else { cut(&whole, 77, &ends) };
        for (index, other) in (0..pieces.len()).zip(&order) {
            let other = other.index(pieces.len());
            pieces.swap(index, other);
        }
        // Copies come before the last piece, since the datagram is forgotten behind it.
        let mut sent = pieces.clone();
        if let Some(last) = sent.pop() {
            for index in again.iter().filter(|_| pieces.len() > 2).take(4) {
                sent.push(pieces[index.index(pieces.len() - 1)].clone());
            }
            sent.push(last);
        }
        let seen = out(&mut rig, &sent);
        rig.assert_balanced();
        prop_assert_eq!(rig.held(), 0);
        if !open {
            prop_assert!(seen.is_empty());
        } else if ends.is_empty() {
            prop_assert_eq!(&seen[..], &[whole][..]);
        } else {
            prop_assert_eq!(seen.len(), pieces.len());
            prop_assert_eq!(joined(&seen), Some(whole[whole.len() - 209..].to_vec()));
        }
    }
}

/// An ICMP error is tied to its flow by the ports that it quotes: a first fragment has them, a later one has none.
#[test]
fn an_error_quotes_the_first_fragment_of_an_open_flow() {
    let mut rig = demo();
    let parts = cut(&RED.udp((7, 5201), &[1; 70]), 5, &[32]);
    assert_eq!(out(&mut rig, &parts).len(), 2);
    assert_eq!(inwards(&mut rig, &[RED.reversed().unreachable(&parts[0])]).len(), 1);
    assert!(inwards(&mut rig, &[RED.reversed().unreachable(&parts[1])]).is_empty());
    assert_eq!(rig.dropped(DropReason::UnrelatedIcmpError), 1);
    rig.assert_balanced();
}
