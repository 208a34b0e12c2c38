//! The made captures, frame by frame, against their tables of expectations, which are read: a frame that the table lets
//! pass passes, one that it does not is dropped, and where floodway does otherwise a note beside the frame says why. The
//! reason of a drop, which no table has, stands here.
#![expect(clippy::unwrap_used, reason = "the functions beside the tests are tests too")]

use std::ops::RangeInclusive;

use Outcome::{Answered, Delivered, Dropped, Held, Released, Tunnelled};
use program::DropReason::{self, *};
use scenarios::corpus::{self, Host};
use scenarios::frames::{tunnel, untunnel};
use scenarios::rig::{Rig, port_mac};
use scenarios::scene::outer;
use scenarios::verbs;

/// What becomes of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    /// It leaves in the tunnel of the tenant whose port it came from, unchanged but for padding and priority tag.
    Tunnelled,
    /// As [`Tunnelled`], and what was held for it leaves behind it.
    Released,
    /// Held: nothing leaves, nothing is dropped.
    Held,
    /// It leaves on tenant one's port, unchanged but for padding.
    Delivered,
    /// Something goes back to where it came from, and nothing elsewhere.
    Answered,
    /// Dropped for that reason, and nothing leaves.
    Dropped(DropReason),
}

/// Frames, what becomes of them, and what differs from the table's expectation, if something does.
type Row = (RangeInclusive<usize>, Outcome, &'static str);

const A: Host = Host { mac: "02:00:00:00:0a:01", addresses: "10.0.1.1, fd00:1::1", prefixes: "" };
const B: Host =
    Host { mac: "02:00:00:00:0b:02", addresses: "10.0.2.2, fd00:2::2", prefixes: "10.0.9.0/24, fd00:9::/64" };
const GATEWAY: &str = "10.0.1.254";
const ALL: &str = "egress: [{action: Accept}], ingress: [{action: Accept}]";

fn rig(local: Host, remote: Host, gateway: &str, rules: &str) -> Rig {
    let mut rig = Rig::new(&[&corpus::policy("192.0.2.1/24", "192.0.2.2", local, remote, gateway, rules)]);
    rig.settle();
    rig
}

/// Where a frame of a capture enters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Entry {
    /// On tenant one's port.
    Port,
    /// Out of tenant one's tunnel.
    Tunnel,
    /// On the uplink, as it is.
    Uplink,
}

/// Sends one frame and says what became of it. Tenant two never sees anything.
fn outcome(rig: &mut Rig, entry: Entry, frame: &[u8]) -> Outcome {
    let (before, held) = (rig.drops(), rig.held());
    match entry {
        Entry::Port => rig.send("one0", frame),
        Entry::Tunnel => rig.send("uplink0", &tunnel(outer(), 0, 100, frame)),
        Entry::Uplink => rig.send("uplink0", frame),
    }
    rig.settle();
    let (port, uplink) = (rig.take("one0"), rig.take("uplink0"));
    assert!(rig.take("two0").is_empty(), "nothing leaves another tenant's port");
    rig.assert_balanced();
    match (&port[..], &uplink[..], entry) {
        ([], [out], Entry::Port) => {
            let seen = untunnel(out);
            assert_eq!(seen.vni, 100);
            assert!(seen.src_port >= 49_152);
            assert_unchanged(frame, &seen.inner);
            Tunnelled
        }
        ([], [first, _, ..], Entry::Port) => {
            assert_eq!(rig.held() + uplink.len(), held + 1);
            assert_unchanged(frame, &untunnel(first).inner);
            Released
        }
        ([], [], _) if rig.held() > held => {
            assert_eq!((rig.held(), rig.drops()), (held + 1, before));
            Held
        }
        ([back], [], Entry::Port) => {
            assert_eq!(back[..6], frame[6..12]);
            Answered
        }
        ([], [back], _) => {
            assert_eq!(back[..6], [2, 0, 0, 0, 0xf0, 1]);
            Answered
        }
        ([seen], [], _) => {
            let inner = if entry == Entry::Tunnel { frame } else { &frame[frame.len() - seen.len()..] };
            assert_unchanged(inner, seen);
            Delivered
        }
        ([], [], _) => Dropped(counted(&before, &rig.drops())),
        _ => panic!("{port:?} {uplink:?}"),
    }
}

/// Same bytes, up to the end of the IP packet; a priority tag is gone.
fn assert_unchanged(sent: &[u8], seen: &[u8]) {
    let parsed = wire::parse(sent).unwrap();
    let (l3, end) = (usize::from(parsed.l3_offset), usize::from(parsed.end));
    assert_eq!((&sent[..12], &sent[l3 - 2..end]), (&seen[..12], &seen[12..]));
    if parsed.l4 == wire::L4::Roce {
        let after = wire::parse(seen).unwrap();
        assert_eq!(
            wire::icrc::verify(seen, &after),
            wire::icrc::verify(sent, &parsed),
            "the ICRC is as it was"
        );
    }
}

/// The one reason whose count has risen by one.
fn counted(before: &[(&'static str, u64)], after: &[(&'static str, u64)]) -> DropReason {
    let old = |name: &str| before.iter().find(|(other, _)| *other == name).map_or(0, |(_, count)| *count);
    let risen: Vec<_> = after.iter().filter(|(name, count)| *count != old(name)).collect();
    assert_eq!(risen.len(), 1, "one reason for one frame: {risen:?}");
    let (name, count) = risen[0];
    assert_eq!(*count, old(name) + 1);
    *DropReason::ALL.iter().find(|reason| reason.name() == *name).unwrap()
}

/// Runs a capture through `rig` by its table. `entry` says where each frame comes in.
fn run(name: &str, rig: &mut Rig, entry: impl Fn(&[u8]) -> Entry, rows: &[Row]) {
    let Some(dir) = corpus::dir() else { return };
    let frames = corpus::made(&dir, name);
    let table = corpus::expectations(&dir, name);
    let covered: Vec<usize> = rows.iter().flat_map(|(numbers, ..)| numbers.clone()).collect();
    let all: Vec<usize> = (1..=table.len()).collect();
    assert_eq!((covered, frames.len()), (all.clone(), all.len()), "{name}: every frame once, in order");
    let mut wrong = Vec::new();
    for (numbers, expected, note) in rows {
        for number in numbers.clone() {
            let frame = &frames[number - 1];
            let seen = outcome(rig, entry(frame), frame);
            if seen != *expected || !fits(seen, &table[number - 1], note) {
                let table = &table[number - 1];
                wrong.push(format!(
                    "{name} frame {number}: {seen:?}, expected {expected:?} {note}; {table:?}"
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Whether that is what the table expects, or a note says why not.
fn fits(seen: Outcome, expected: &str, note: &str) -> bool {
    let passed = match seen {
        Tunnelled | Released | Delivered | Answered => true,
        Dropped(_) => false,
        Held => return true,
    };
    corpus::passes(expected).is_none_or(|passes| passes == passed) || !note.is_empty()
}

/// From whom it is: A sends on the port, everybody else out of the tunnel.
fn by_source(frame: &[u8]) -> Entry {
    if frame.get(6..12) == Some(&[2, 0, 0, 0, 0x0a, 1][..]) { Entry::Port } else { Entry::Tunnel }
}

fn on_port(_: &[u8]) -> Entry {
    Entry::Port
}

#[test]
fn antispoof() {
    let rows: &[Row] = &[
        (1..=1, Answered, ""),
        (2..=3, Dropped(SpoofedArp), ""),
        (4..=4, Dropped(SpoofedArp), ""),
        (5..=5, Dropped(NeighbourHeard), "taken in; no broadcast of a tenant is passed on"),
        (6..=6, Dropped(NeighbourHeard), "taken in; no broadcast of a tenant is passed on"),
        (7..=7, Dropped(NeighbourHeard), "neither request nor reply: not answered"),
        (8..=8, Dropped(Malformed), ""),
        (9..=9, Dropped(SpoofedMac), ""),
        (10..=10, Answered, ""),
        (11..=12, Dropped(SpoofedNd), ""),
        (13..=13, Dropped(NeighbourHeard), "taken in; no multicast of a tenant is passed on"),
        (14..=15, Dropped(SpoofedNd), ""),
        (16..=16, Dropped(Malformed), ""),
        (17..=17, Dropped(SpoofedNd), ""),
        (18..=18, Dropped(NeighbourHeard), "taken in; no multicast of a tenant is passed on"),
        (19..=21, Dropped(RouterAdvertisement), ""),
        (22..=22, Dropped(Group), "dropped as a broadcast already"),
        (23..=24, Dropped(SpoofedAddress), ""),
        (25..=28, Dropped(Martian), ""),
        (29..=30, Dropped(SpoofedMac), ""),
    ];
    let remote = Host { addresses: "10.0.2.2, fd00:1::2", ..B };
    run("antispoof", &mut rig(A, remote, GATEWAY, ALL), on_port, rows);
}

#[test]
fn b125_antispoof_out_of_the_tunnel() {
    // The same host, now behind the tunnel: its claims are checked there too, but for its MAC.
    let local = Host { addresses: "10.0.2.2, fd00:1::2", prefixes: "", ..B };
    let rows: &[Row] = &[
        (1..=1, Answered, ""),
        (2..=4, Dropped(SpoofedArp), ""),
        (5..=7, Dropped(NeighbourHeard), "taken in, as on the port"),
        (8..=8, Dropped(Malformed), ""),
        (9..=9, Dropped(SpoofedArp), ""),
        (10..=10, Answered, ""),
        (11..=12, Dropped(SpoofedNd), ""),
        (13..=13, Dropped(NeighbourHeard), "taken in"),
        (14..=15, Dropped(SpoofedNd), ""),
        (16..=16, Dropped(Malformed), ""),
        (17..=17, Dropped(SpoofedNd), ""),
        (18..=18, Dropped(NeighbourHeard), "taken in"),
        (19..=21, Dropped(RouterAdvertisement), ""),
        (22..=22, Dropped(Group), ""),
        (23..=24, Dropped(SpoofedAddress), ""),
        (25..=28, Dropped(Martian), ""),
        (29..=29, Dropped(SpoofedMac), ""),
        (30..=30, Delivered, "other inner source MACs are not checked out of a tunnel"),
    ];
    run("antispoof", &mut rig(local, A, GATEWAY, ALL), |_| Entry::Tunnel, rows);
}

#[test]
fn roce_opcodes() {
    let Some(dir) = corpus::dir() else { return };
    for name in ["roce_opcodes_v4", "roce_opcodes_v6"] {
        run(name, &mut rig(A, B, GATEWAY, ALL), on_port, &[(1..=32, Tunnelled, "")]);
        for (frame, expected) in corpus::made(&dir, name).iter().zip(corpus::expectations(&dir, name)) {
            let parsed = wire::parse(frame).unwrap();
            let opcode = parsed.bth(frame).unwrap().opcode;
            let is_right = wire::icrc::verify(frame, &parsed) == wire::icrc::Check::Right;
            assert_eq!(
                (expected.contains(&format!("opcode {opcode:#04x},")), is_right),
                (true, true),
                "{expected}"
            );
        }
    }
}

#[test]
fn roce_opcodes_are_a_matter_of_queue_pairs() {
    let rules = "egress: [{action: Accept, services: [{protocol: RoCEv2, queuePairs: 16711680-16711681}]}]";
    let dropped: &[Row] = &[(1..=32, Dropped(PolicyDefault), "")];
    run("roce_opcodes_v4", &mut rig(A, B, GATEWAY, rules), on_port, dropped);
    run("roce_opcodes_v6", &mut rig(A, B, GATEWAY, rules), on_port, dropped);
}

#[test]
fn roce_malformed() {
    let rows: &[Row] = &[
        (1..=1, Tunnelled, "forwarded: ICRC errors are not counted yet (RoCE monitoring)"),
        (2..=8, Dropped(Malformed), ""),
        (9..=9, Tunnelled, ""),
        (10..=10, Dropped(Malformed), ""),
        (11..=12, Tunnelled, "by policy, unread beyond the BTH"),
        (13..=13, Tunnelled, "checksums of inner packets are not checked: the receiver does"),
        (14..=15, Dropped(Malformed), ""),
        (16..=16, Tunnelled, "a first fragment has its queue pair"),
        (17..=17, Tunnelled, "a later fragment follows its first"),
        (18..=19, Tunnelled, ""),
        (20..=21, Tunnelled, ""),
    ];
    run("roce_malformed", &mut rig(A, B, GATEWAY, ALL), on_port, rows);
    let roce = "egress: [{action: Accept, services: [{protocol: RoCEv2}]}]";
    let rows: &[Row] = &[
        (1..=1, Tunnelled, "as above"),
        (2..=8, Dropped(Malformed), ""),
        (9..=9, Tunnelled, ""),
        (10..=10, Dropped(Malformed), ""),
        (11..=13, Tunnelled, "as above"),
        (14..=15, Dropped(Malformed), ""),
        (16..=17, Tunnelled, "a later fragment follows its first"),
        (18..=19, Dropped(PolicyDefault), ""),
        (20..=21, Tunnelled, ""),
    ];
    run("roce_malformed", &mut rig(A, B, GATEWAY, roce), on_port, rows);
}

#[test]
fn roce_marks_acknowledgements_and_notifications() {
    let mut rig = rig(A, B, GATEWAY, "egress: [{action: Accept, services: [{protocol: RoCEv2}]}]");
    let note = "forwarded; CE is not counted and no CNP is made yet (congestion control)";
    run("roce_ecn_ttl", &mut rig, on_port, &[(1..=11, Tunnelled, note)]);
    run("roce_nak", &mut rig, on_port, &[(1..=10, Tunnelled, "counted below, where the pair is known")]);
    let rows: &[Row] = &[
        (1..=2, Tunnelled, "forwarded; not acted on yet"),
        (3..=3, Dropped(UnexpectedVlan), "tenant ports have no VLANs"),
        (4..=5, Tunnelled, "forwarded; not acted on yet"),
        (6..=6, Dropped(Malformed), ""),
        (7..=8, Tunnelled, "forwarded; not acted on yet"),
        (9..=9, Dropped(SpoofedAddress), ""),
    ];
    run("roce_cnp", &mut rig, on_port, rows);
}

/// Red's queue pair 0x22 is connected to that of the other host.
fn connected(qp: u32) -> Rig {
    let mut rig = rig(A, B, GATEWAY, "egress: [{action: Accept, services: [{protocol: RoCEv2}]}]");
    let ends = scenarios::frames::Ends {
        src_mac: wire::Mac([2, 0, 0, 0, 0x0a, 1]),
        dst_mac: wire::Mac([2, 0, 0, 0, 0x0b, 2]),
        src: [10, 0, 1, 1],
        dst: [10, 0, 2, 2],
    };
    assert_eq!(outcome(&mut rig, Entry::Port, &verbs::request(ends, 1, 0x22, 0)), Tunnelled);
    assert_eq!(outcome(&mut rig, Entry::Tunnel, &verbs::reply(ends.reversed(), 2, 1, qp, 100)), Delivered);
    rig
}

#[test]
fn roce_negative_acknowledgements_by_syndrome() {
    let mut rig = connected(0x11);
    run("roce_nak", &mut rig, on_port, &[(1..=10, Tunnelled, "")]);
    let pairs = rig.queue_pairs();
    if corpus::dir().is_some() {
        let expected = program::NakCounts {
            psn_sequence: 1,
            invalid_request: 1,
            remote_access: 1,
            remote_operational: 1,
            invalid_rd: 1,
            reserved: 1,
        };
        let opener = &pairs[0].opener;
        assert_eq!((opener.packets, opener.rnr_naks, opener.naks, opener.out_of_order), (10, 2, expected, 0));
    }
}

#[test]
fn roce_notifications_and_retries_of_a_known_pair() {
    let Some(dir) = corpus::dir() else { return };
    // Frames 1, 3, 8 and 9 go to queue pair 0xd2 of the other host, 4 to 7 to 0x11.
    for (qp, cnps, out_of_order) in [(0xd2, 2, 0), (0x11, 2, 1)] {
        let mut rig = connected(qp);
        for frame in corpus::made(&dir, "roce_cnp") {
            outcome(&mut rig, on_port(&frame), &frame);
        }
        let opener = rig.queue_pairs()[0].opener.clone();
        assert_eq!((opener.cnps, opener.out_of_order, opener.request_psn), (cnps, out_of_order, Some(99)));
    }
    let mut rig = connected(0x11);
    for frame in corpus::made(&dir, "roce_ecn_ttl") {
        outcome(&mut rig, on_port(&frame), &frame);
    }
    let opener = rig.queue_pairs()[0].opener.clone();
    // Each PSN is there twice; the first packet is a MIDDLE without a FIRST, the UD one is not of this service.
    assert_eq!((opener.retries, opener.gaps, opener.cnps, opener.out_of_order), (4, 0, 1, 2));
    assert_eq!((opener.request_psn, opener.response_psn), (Some(103), Some(1)));
}

#[test]
fn roce_real_hardware() {
    let local = Host { mac: "7c:fe:90:64:3b:32", addresses: "10.0.17.1", prefixes: "" };
    let remote = Host { mac: "e4:1d:2d:ab:2b:c2", addresses: "10.0.18.1", prefixes: "" };
    let rows: &[Row] = &[(1..=1, Tunnelled, ""), (2..=3, Dropped(SpoofedMac), "RoCEv1 is not IP")];
    run("roce_real_hw_frames", &mut rig(local, remote, "10.0.17.254", ALL), on_port, rows);
    let local = Host { mac: "7c:fe:90:75:3c:d8", ..local };
    let rows: &[Row] =
        &[(1..=1, Dropped(SpoofedMac), ""), (2..=3, Dropped(UnsupportedEtherType), "RoCEv1 is not IP")];
    run("roce_real_hw_frames", &mut rig(local, remote, "10.0.17.254", ALL), on_port, rows);
}

#[test]
fn lengths_and_padding() {
    let rules = "egress: [{action: Accept, services: [{protocol: TCP, port: 1, endPort: 65535}, \
                 {protocol: UDP}, {protocol: 0}, {protocol: 255}]}]";
    let rows: &[Row] = &[
        (1..=3, Tunnelled, ""),
        (4..=4, Answered, ""),
        (5..=6, Tunnelled, ""),
        (7..=7, Dropped(SourceRoute), ""),
        (8..=9, Tunnelled, ""),
        (10..=10, Dropped(PolicyDefault), ""),
        (11..=11, Dropped(UnsupportedEtherType), ""),
        (12..=15, Dropped(Malformed), ""),
    ];
    run("lengths_padding", &mut rig(A, B, GATEWAY, rules), on_port, rows);
}

#[test]
fn vlan_tags() {
    let local = Host { addresses: "172.16.0.10", ..A };
    let remote = Host { addresses: "172.16.0.20", prefixes: "", ..B };
    let note = "tenants have ports of their own; VLANs to tenants are not in this slice";
    let rows: &[Row] = &[
        (1..=1, Tunnelled, ""),
        (2..=3, Tunnelled, "the tag's priority is not carried over"),
        (4..=5, Dropped(UnexpectedVlan), note),
        (6..=6, Dropped(UnexpectedVlan), ""),
        (7..=9, Dropped(UnexpectedVlan), note),
        (10..=10, Dropped(UnsupportedEtherType), ""),
        (11..=12, Dropped(UnexpectedVlan), note),
        (13..=13, Dropped(Malformed), ""),
        (14..=15, Dropped(UnexpectedVlan), note),
    ];
    run("vlan_tags", &mut rig(local, remote, "172.16.0.1", ALL), on_port, rows);
}

#[test]
fn ipv6_extension_headers_do_not_hide_a_port() {
    let only_80 = "egress: [{action: Accept, services: [{protocol: TCP, port: 80}]}]";
    let rows: &[Row] = &[
        (1..=1, Dropped(PolicyDefault), ""),
        (2..=2, Tunnelled, ""),
        (3..=4, Dropped(PolicyDefault), ""),
        (5..=6, Dropped(SourceRoute), "both have a routing header of type 0"),
        (7..=7, Dropped(PolicyDefault), ""),
        (8..=10, Dropped(Malformed), "its data is no multiple of eight bytes"),
        (11..=11, Held, "its first does not come: see below"),
        (12..=12, Dropped(PolicyDefault), ""),
        (13..=15, Dropped(Malformed), ""),
        (16..=16, Dropped(PolicyDefault), ""),
        (17..=17, Dropped(Malformed), ""),
        (18..=22, Dropped(PolicyDefault), ""),
        (23..=25, Dropped(Malformed), ""),
        (26..=27, Dropped(PolicyDefault), ""),
    ];
    let mut strict = rig(A, B, GATEWAY, only_80);
    run("ipv6_ext_bypass", &mut strict, on_port, rows);
    assert_never_comes(&mut strict);
    let not_22 = "egress: [{action: Deny, services: [{protocol: TCP, port: 22}]}, {action: Accept}]";
    let rows: &[Row] = &[
        (1..=1, Dropped(PolicyDeny), ""),
        (2..=2, Tunnelled, ""),
        (3..=4, Dropped(PolicyDeny), ""),
        (5..=6, Dropped(SourceRoute), ""),
        (7..=7, Dropped(PolicyDeny), ""),
        (8..=10, Dropped(Malformed), ""),
        (11..=11, Held, "its first does not come: see below"),
        (12..=12, Dropped(PolicyDeny), ""),
        (13..=15, Dropped(Malformed), ""),
        (16..=16, Dropped(PolicyDeny), ""),
        (17..=17, Dropped(Malformed), ""),
        (18..=18, Tunnelled, "by rule"),
        (19..=21, Dropped(PolicyDeny), ""),
        (22..=22, Tunnelled, "by rule: a protocol of its own"),
        (23..=25, Dropped(Malformed), ""),
        (26..=27, Tunnelled, "by rule: protocols of their own"),
    ];
    let mut lax = rig(A, B, GATEWAY, not_22);
    run("ipv6_ext_bypass", &mut lax, on_port, rows);
    assert_never_comes(&mut lax);
}

/// What waits for its first is dropped when that does not come, and nothing is sent.
fn assert_never_comes(rig: &mut Rig) {
    let waiting = rig.held() as u64;
    rig.now = rig.now + packet::Nanos::from_secs(3);
    // Ageing looks at a few datagrams in a poll.
    for _ in 0..200 {
        rig.now = rig.now + packet::Nanos::from_millis(1);
        rig.poll();
    }
    assert_eq!((rig.held(), rig.dropped(FragmentTimeout)), (0, waiting));
    let answers = rig.take("uplink0").into_iter().filter(|frame| frame[12..14] != [8, 6]);
    assert_eq!(answers.count() + rig.take("one0").len(), 0);
    rig.assert_balanced();
}

#[test]
fn ipv4_fragments() {
    let rows: &[Row] = &[
        (1..=2, Dropped(Malformed), "tiny, and what would complete it"),
        (3..=5, Tunnelled, ""),
        (6..=7, Dropped(FragmentOverlap), "the first fragment to port 80 has left before"),
        (8..=8, Held, ""),
        (9..=9, Released, ""),
        (10..=10, Held, "what it overlaps is not in the capture"),
        (11..=13, Dropped(Malformed), ""),
        (14..=14, Tunnelled, ""),
        (15..=15, Dropped(Malformed), "its UDP length is zero"),
        (16..=16, Dropped(UnexpectedVlan), ""),
        (17..=18, Held, ""),
        (19..=20, Tunnelled, "the reserved bit is not looked at"),
    ];
    let only_80 = "egress: [{action: Accept, services: [{protocol: TCP, port: 80}]}]";
    let mut rig = rig(A, B, GATEWAY, only_80);
    run("ipv4_fragments", &mut rig, on_port, rows);
    assert_never_comes(&mut rig);
    assert_eq!(rig.ledger.gauge(engine::Gauge::Datagrams), 0);
}

/// The attack frames of these captures, among ordinary ones of the same host; the table of alerts is Suricata's.
#[test]
fn suricata_ipv6_evasion() {
    let Some(dir) = corpus::dir() else { return };
    let local = Host { mac: "00:23:55:9c:73:26", addresses: "2001:db8:1::2", prefixes: "" };
    let remote = Host { mac: "64:00:6a:5b:8f:4a", addresses: "2001:db8:1::1", prefixes: "" };
    let rules = "egress: [{action: Accept, services: [{protocol: ICMPv6, type: 128}]}]";
    let cases: &[(&str, &[(usize, Outcome)])] = &[
        // The second of two pieces of one place does not get to the receiver, whatever it holds.
        ("1", &[(5, Tunnelled), (6, Tunnelled), (8, Dropped(FragmentDuplicate)), (9, Tunnelled)]),
        ("9", &[(7, Tunnelled)]),           // atomic: a whole packet (RFC 6946)
        ("11", &[(6, Dropped(Malformed))]), // a fragment header in a fragment header
        ("23", &[(5, Tunnelled), (6, Dropped(Malformed)), (9, Tunnelled)]), // no multiple of eight; never complete
        ("25", &[(8, Dropped(Malformed))]),                                 // TCP without a header
        ("27", &[(5, Tunnelled), (7, Tunnelled), (8, Dropped(Malformed))]),
    ];
    for (name, expected) in cases {
        let frames = corpus::captured(&dir, &format!("suri_ipv6_frag{name}"));
        let mut rig = rig(local, remote, "2001:db8:1::fe", rules);
        for (number, expected) in *expected {
            assert_eq!(
                outcome(&mut rig, Entry::Port, &frames[number - 1]),
                *expected,
                "{name}, frame {number}"
            );
        }
        assert_never_comes(&mut rig);
    }
}

#[test]
fn icmp_related() {
    let local = Host { addresses: "10.0.1.1, 10.0.1.50, fd00:1::1", ..A };
    let mut rig = rig(local, B, GATEWAY, "egress: [{action: Accept}]");
    let ends = scenarios::frames6::Ends6 {
        src_mac: wire::Mac([2, 0, 0, 0, 0x0a, 1]),
        dst_mac: wire::Mac([2, 0, 0, 0, 0x0b, 2]),
        src: "fd00:1::1".parse().unwrap(),
        dst: "fd00:2::2".parse().unwrap(),
    };
    assert_eq!(outcome(&mut rig, Entry::Port, &ends.syn((40_000, 80))), Tunnelled);
    let rows: &[Row] = &[
        (1..=1, Tunnelled, ""),
        (2..=2, Delivered, ""),
        (3..=3, Dropped(UnrelatedIcmpError), ""),
        (4..=4, Delivered, ""),
        (5..=6, Dropped(UnrelatedIcmpError), "what is cut is in the quote"),
        (7..=10, Delivered, "no path MTU is kept, so none is lowered"),
        (11..=11, Dropped(RouterAdvertisement), ""),
        (12..=12, Dropped(UnrelatedIcmpError), ""),
        (13..=14, Dropped(PolicyDefault), ""),
        (15..=15, Dropped(Malformed), ""),
        (16..=17, Delivered, ""),
        (18..=18, Dropped(Group), ""),
        (19..=19, Dropped(UnrelatedIcmpError), "eight quoted bytes do not reach the queue pair"),
    ];
    run("icmp_related", &mut rig, by_source, rows);
}

/// The outer frames of these captures are for this MAC; the rig's uplink has another.
fn readdressed(mut frame: Vec<u8>) -> Vec<u8> {
    if frame[..6] == [2, 0, 0, 0, 0xf0, 2] {
        frame[..6].copy_from_slice(&port_mac(0).0);
    }
    frame
}

#[test]
fn vxlan_isolation() {
    let Some(dir) = corpus::dir() else { return };
    let (frames, table) =
        (corpus::made(&dir, "vxlan_isolation"), corpus::expectations(&dir, "vxlan_isolation"));
    let local = Host { mac: "02:aa:00:00:00:20", addresses: "172.16.0.20", prefixes: "" };
    let remote = Host { mac: "02:aa:00:00:00:10", addresses: "172.16.0.10", prefixes: "" };
    let rules = "ingress: [{action: Accept, services: [{protocol: TCP, port: 80}]}]";
    let over = |uplink, vtep| corpus::policy(uplink, vtep, local, remote, "172.16.0.1", rules);
    let v4 = over("192.0.2.2/24", "192.0.2.1");
    let rows: &[Row] = &[
        (1..=1, Delivered, ""),
        (3..=5, Dropped(UnknownVni), ""),
        (6..=6, Dropped(VxlanFlags), ""),
        (7..=8, Delivered, ""),
        (9..=9, Dropped(OuterChecksum), ""),
        (10..=10, Dropped(NotForUs), "no IPv6 on this uplink; with it, below"),
        (11..=11, Dropped(UnexpectedVlan), ""),
        (12..=12, Dropped(NotForUs), ""),
        (13..=13, Dropped(UnknownVtep), ""),
        (14..=15, Dropped(Malformed), ""),
        (16..=17, Dropped(SpoofedAddress), "the inner tunnel's ends are no hosts of the tenant"),
        (18..=18, Dropped(Group), "groups are not flooded in this slice"),
        (19..=19, Dropped(SpoofedArp), ""),
        (20..=21, Dropped(NoService), ""),
        (22..=22, Dropped(Malformed), "its data is no multiple of eight bytes"),
    ];
    let mut rig = Rig::new(&[&v4]);
    rig.settle();
    for (numbers, expected, note) in rows {
        for number in numbers.clone() {
            let frame = readdressed(frames[number - 1].clone());
            let seen = outcome(&mut rig, Entry::Uplink, &frame);
            assert_eq!(seen, *expected, "frame {number} {note}");
            assert!(fits(seen, &table[number - 1], note), "frame {number}: {}", table[number - 1]);
        }
    }
    assert_eq!(frames.len(), table.len());
    // Frame 2 is the one for tenant two, and for it alone.
    rig.send("uplink0", &readdressed(frames[1].clone()));
    rig.settle();
    assert_eq!((rig.take("two0").len(), rig.take("one0").len(), rig.take("uplink0").len()), (1, 0, 0));
    rig.assert_balanced();
    let mut rig = Rig::new(&[&over("\"2001:db8::2/64\"", "2001:db8::1")]);
    rig.settle();
    assert_eq!(outcome(&mut rig, Entry::Uplink, &readdressed(frames[9].clone())), Delivered);
}

/// The inner field that the table expects behind the tunnel.
fn ecn_after(expected: &str) -> Option<u8> {
    let (_, after) = expected.split_once("becomes ")?;
    let (name, _) = after.split_once(';')?;
    ["Not-ECT", "ECT(1)", "ECT(0)", "CE"].iter().position(|known| *known == name).map(|field| field as u8)
}

#[test]
fn rfc_6040_decapsulation() {
    let Some(dir) = corpus::dir() else { return };
    let table = corpus::expectations(&dir, "rfc6040_vxlan_decap");
    let rules = "ingress: [{action: Accept, services: [{protocol: RoCEv2}]}]";
    let mut rig = Rig::new(&[&corpus::policy(
        "192.0.2.2/24",
        "192.0.2.1",
        Host { prefixes: "", ..B },
        A,
        "10.0.2.254",
        rules,
    )]);
    rig.settle();
    let frames = corpus::made(&dir, "rfc6040_vxlan_decap");
    assert_eq!(frames.len(), 16);
    for (index, frame) in frames.into_iter().enumerate() {
        let frame = readdressed(frame);
        let sent = &frame[50..];
        assert_eq!(
            (sent[15] & 3, frame[15] & 3),
            ((index / 4) as u8, (index % 4) as u8),
            "the capture's order"
        );
        let seen = rig.pass("uplink0", &frame, "one0");
        let Some(expected) = ecn_after(&table[index]) else {
            assert!(table[index].contains("DROP"), "{}", table[index]);
            assert!(seen.is_empty());
            assert_eq!(rig.dropped(IllegalEcn), 1);
            continue;
        };
        let seen = &seen[0];
        assert_eq!(seen[15], sent[15] & !3 | expected, "the DSCP is kept");
        assert!(wire::checksum::ipv4_header_is_right(&seen[14..]));
        assert_eq!((&seen[..15], &seen[16..24], &seen[26..]), (&sent[..15], &sent[16..24], &sent[26..]));
        let parsed = wire::parse(seen).unwrap();
        assert_eq!(wire::icrc::verify(seen, &parsed), wire::icrc::Check::Right);
    }
    assert!(rig.take("two0").is_empty());
    rig.assert_balanced();
}
