//! Out of a tenant's port into a tunnel, and back.
#![expect(clippy::unwrap_used, reason = "the functions beside the tests are tests too")]

use std::collections::HashSet;
use std::net::Ipv6Addr;

use program::DropReason;
use scenarios::frames::{Ends, tunnel, untunnel};
use scenarios::frames6::{Ends6, tunnel6, untunnel6};
use scenarios::policies::{DEMO, FABRIC, RULES, TENANTS};
use scenarios::rig::{Rig, port_mac};
use scenarios::scene::{PEER_VTEP_MAC, RED, RED6, demo, from_fabric, outer, with};
use wire::Mac;

/// Sends a frame of red's and returns the one frame that leaves for it.
fn out(rig: &mut Rig, frame: &[u8]) -> Vec<u8> {
    let mut seen = rig.pass("red0", frame, "uplink0");
    assert_eq!(seen.len(), 1, "{:?}", rig.drops());
    seen.remove(0)
}

/// The outer source port of a frame of red's.
fn entropy(rig: &mut Rig, frame: &[u8]) -> u16 {
    let seen = untunnel(&out(rig, frame));
    assert_eq!(seen.inner, frame, "the inner frame is as it was sent");
    seen.src_port
}

fn with_tos(mut frame: Vec<u8>, tos: u8) -> Vec<u8> {
    let parsed = wire::parse(&frame).unwrap();
    assert!(wire::ecn::set_tos(&mut frame, &parsed, tos));
    frame
}

#[test]
fn a_flow_keeps_its_outer_source_port_and_flows_spread() {
    let mut rig = demo();
    let mut ports = HashSet::new();
    for flow in 0..1000 {
        let frame = RED.tcp((10_000 + flow, 5201), "S", b"");
        let port = entropy(&mut rig, &frame);
        assert!((49_152..=65_535).contains(&port));
        let later = RED.tcp((10_000 + flow, 5201), "A", b"data");
        assert_eq!(entropy(&mut rig, &later), port, "stable per flow");
        ports.insert(port);
    }
    // 1000 balls in 16384 bins: 970 bins are expected to be hit, with a deviation below 6.
    assert!(ports.len() > 930, "{} different ports", ports.len());
    let quarters: HashSet<u16> = ports.iter().map(|port| port >> 12).collect();
    assert_eq!(quarters.len(), 4, "all of the range is used");
    rig.assert_balanced();
}

#[test]
fn roce_is_spread_by_queue_pair_and_not_by_source_port() {
    let mut rig = demo();
    let mut ports = HashSet::new();
    for qp in 0..1000 {
        let port = entropy(&mut rig, &RED.roce(50_000, qp, b"payload8"));
        assert_eq!(
            entropy(&mut rig, &RED.roce(60_001, qp, b"payload8")),
            port,
            "the queue pair alone counts"
        );
        ports.insert(port);
    }
    assert!(ports.len() > 930, "{} different ports", ports.len());
    rig.assert_balanced();
}

/// A fragment of a UDP datagram of red's: `offset` in eights of bytes.
fn fragment(id: u16, offset: u16, more: bool, data: &[u8]) -> Vec<u8> {
    let whole = RED.udp((7, 5201), data);
    let mut frame = whole[..34].to_vec();
    frame.extend_from_slice(if offset == 0 { &whole[34..] } else { data });
    let len = (frame.len() - 14) as u16;
    frame[16..18].copy_from_slice(&len.to_be_bytes());
    frame[18..20].copy_from_slice(&id.to_be_bytes());
    frame[20..22].copy_from_slice(&(u16::from(more) << 13 | offset).to_be_bytes());
    assert!(wire::checksum::fill_ipv4_header(&mut frame[14..]));
    frame
}

const UDP_ALLOWED: &str = r#"
apiVersion: floodway.dev/v1alpha1
kind: TenantPolicy
metadata: {name: udp}
spec: {tenant: red, egress: [{action: Accept, services: [{protocol: UDP}]}]}
"#;

#[test]
fn fragments_of_one_datagram_stay_together() {
    let mut rig = with(&[FABRIC, TENANTS, UDP_ALLOWED]);
    let fragments =
        [fragment(9, 0, true, &[1; 792]), fragment(9, 100, true, &[2; 800]), fragment(9, 200, false, b"x")];
    let ports: HashSet<u16> = fragments.iter().map(|frame| entropy(&mut rig, frame)).collect();
    assert_eq!(ports.len(), 1, "{ports:?}");
    rig.assert_balanced();
}

#[test]
fn fragments_take_the_path_of_their_flow() {
    let mut rig = demo();
    let whole = entropy(&mut rig, &RED.udp((7, 5201), b"whole"));
    let fragments = [fragment(9, 0, true, &[1; 792]), fragment(9, 100, false, b"x")];
    assert_eq!(
        fragments.map(|frame| entropy(&mut rig, &frame)),
        [whole, whole],
        "a rule on ports lets both by"
    );
    rig.assert_balanced();
}

#[test]
fn outer_headers_take_dscp_and_ecn_from_the_inner() {
    let mut rig = demo();
    for tos in 0..=255 {
        let frame = with_tos(RED.udp((7, 5201), b"x"), tos);
        let seen = untunnel(&out(&mut rig, &frame));
        assert_eq!((seen.tos, seen.inner), (tos, frame));
    }
    rig.assert_balanced();
}

#[test]
fn a_fixed_dscp_leaves_ecn_alone() {
    let fabric = FABRIC.replace("addresses: [192.0.2.1/24]", "addresses: [192.0.2.1/24]\n    dscp: 26");
    let mut rig = with(&[&fabric, TENANTS, RULES]);
    for tos in [0, 1, 2, 3, 0xb8, 0xbb] {
        let frame = with_tos(RED.udp((7, 5201), b"x"), tos);
        let seen = untunnel(&out(&mut rig, &frame));
        assert_eq!((seen.tos, seen.inner), (26 << 2 | tos & 3, frame));
    }
    rig.assert_balanced();
}

#[test]
fn ethernet_padding_does_not_travel() {
    let mut rig = demo();
    let frame = RED.udp((7, 5201), b"x");
    let mut padded = frame.clone();
    padded.resize(60, 0x55);
    assert_eq!(untunnel(&out(&mut rig, &padded)).inner, frame);
    let back = RED.reversed().udp((5201, 7), b"y");
    let mut padded = back.clone();
    padded.extend_from_slice(&[0x55; 80]);
    assert_eq!(rig.pass("uplink0", &from_fabric(100, &padded), "red0"), [back]);
    rig.assert_balanced();
}

/// RFC 6040, figure 4: rows are the inner ECN field, columns the outer one, 4 stands for a drop.
const DECAP: [[u8; 4]; 4] = [[0, 0, 0, 4], [1, 1, 1, 3], [2, 1, 2, 3], [3, 3, 3, 3]];

#[test]
fn congestion_marks_come_in_by_rfc_6040() {
    let mut rig = demo();
    rig.pass("red0", &RED.udp((7, 5201), b"open"), "uplink0");
    for (inner, row) in (0..).zip(DECAP) {
        for (outer_ecn, expected) in (0..).zip(row) {
            let dscp = 0xb8;
            let frame = with_tos(RED.reversed().udp((5201, 7), b"y"), dscp | inner);
            let seen = rig.pass("uplink0", &tunnel(outer(), outer_ecn, 100, &frame), "red0");
            if expected == 4 {
                assert!(seen.is_empty());
            } else {
                let want = with_tos(RED.reversed().udp((5201, 7), b"y"), dscp | expected);
                assert_eq!(seen, [want], "inner {inner}, outer {outer_ecn}: the DSCP and all else is kept");
            }
        }
    }
    assert_eq!(rig.dropped(DropReason::IllegalEcn), 1);
    rig.assert_balanced();
}

#[test]
fn congestion_marks_come_into_ipv6_too() {
    let mut rig = demo();
    rig.pass("red0", &RED6.udp((7, 5201), b"open"), "uplink0");
    let frame = with_tos(RED6.reversed().udp((5201, 7), b"y"), 0xb9);
    let seen = rig.pass("uplink0", &tunnel(outer(), 3, 100, &frame), "red0");
    assert_eq!(seen, [with_tos(frame, 0xbb)]);
    rig.assert_balanced();
}

const FABRIC6: &str = r#"
apiVersion: floodway.dev/v1alpha1
kind: Fabric
metadata: {name: rig}
spec:
  ports:
    - {name: uplink0, device: "memory:", mtu: 1600}
    - {name: red0, device: "memory:"}
    - {name: blue0, device: "memory:"}
    - {name: red1, device: "memory:"}
  uplink: {port: uplink0, addresses: ["2001:db8::1/64"]}
  vteps:
    - {name: fabric, address: "2001:db8::2", mac: "02:ee:00:00:00:02"}
    - {name: other, address: "2001:db8::3"}
"#;

const OUTER6: Ends6 = Ends6 {
    src_mac: PEER_VTEP_MAC,
    dst_mac: Mac([2, 0xff, 0, 0, 0, 0]),
    src: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2),
    dst: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1),
};

#[test]
fn an_ipv6_underlay_carries_both_families() {
    assert_eq!(OUTER6.dst_mac, port_mac(0));
    let mut rig = Rig::new(&[FABRIC6, TENANTS, RULES]);
    rig.settle();
    rig.take("uplink0");
    for (frame, reply) in [
        (RED.udp((7, 5201), b"odd"), RED.reversed().udp((5201, 7), b"even")),
        (RED6.udp((7, 5201), b"odd"), RED6.reversed().udp((5201, 7), b"even")),
    ] {
        let frame = with_tos(frame, 0xba);
        let seen = untunnel6(&out(&mut rig, &frame));
        assert_eq!((seen.vni, seen.tos), (100, 0xba));
        assert_eq!(seen.ends, (OUTER6.dst, OUTER6.src));
        assert!(seen.src_port >= 49_152);
        assert_eq!(seen.inner, frame);
        assert_eq!(rig.pass("uplink0", &tunnel6(OUTER6, 100, &reply), "red0"), [reply]);
    }
    rig.assert_balanced();
}

#[test]
fn an_ipv6_underlay_resolves_its_next_hop_by_neighbour_discovery() {
    let mut rig = Rig::new(&[FABRIC6, TENANTS, RULES]);
    rig.settle();
    let asked = rig.take("uplink0");
    assert_eq!(asked.len(), 1, "the endpoint with a MAC of its own is not asked for");
    let far = Ends { dst: [10, 1, 0, 30], dst_mac: Mac([2, 0, 0, 0, 0x0a, 0x30]), ..RED };
    assert!(rig.pass("red0", &far.udp((7, 5201), b"x"), "uplink0").is_empty());
    assert_eq!(rig.dropped(DropReason::UnresolvedNextHop), 1);
    let target = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 3);
    let mac = Mac([2, 0xee, 0, 0, 0, 3]);
    let advert = Ends6 { src: target, src_mac: mac, ..OUTER6 }.advertise(target, mac, 0x60);
    assert!(rig.pass("uplink0", &advert, "uplink0").is_empty());
    let seen = rig.pass("red0", &far.udp((7, 5201), b"x"), "uplink0");
    assert_eq!((seen.len(), &seen[0][..6]), (1, &mac.0[..]));
    rig.assert_balanced();
}

#[test]
fn outer_checksums_are_checked_when_given() {
    let mut rig = Rig::new(&[FABRIC6, TENANTS, RULES]);
    rig.pass("red0", &RED.udp((7, 5201), b"x"), "uplink0");
    let reply = RED.reversed().udp((5201, 7), b"y");
    let mut wrong = tunnel6(OUTER6, 100, &reply);
    wrong[60] ^= 1;
    assert!(rig.pass("uplink0", &wrong, "red0").is_empty());
    assert_eq!(rig.dropped(DropReason::OuterChecksum), 1);
    // RFC 6935: a tunnel may leave it out over IPv6 too.
    let mut absent = tunnel6(OUTER6, 100, &reply);
    absent[60..62].fill(0);
    assert_eq!(rig.pass("uplink0", &absent, "red0"), [reply]);
    rig.assert_balanced();
}

/// Changes to a good tunnel frame, and what each is dropped for.
fn bad_outers() -> Vec<(&'static str, Vec<u8>, DropReason)> {
    // Two bytes of payload: a first fragment has a multiple of eight bytes.
    let good = from_fabric(100, &RED.reversed().tcp((40_000, 80), "S", b"xy"));
    let change = |at: usize, value: u8| {
        let mut frame = good.clone();
        frame[at] = value;
        assert!(wire::checksum::fill_ipv4_header(&mut frame[14..]));
        frame
    };
    let mut tagged = good[..12].to_vec();
    tagged.extend_from_slice(&[0x81, 0, 0, 5]);
    tagged.extend_from_slice(&good[12..]);
    vec![
        ("a VNI of nobody", change(48, 77), DropReason::UnknownVni),
        ("VNI 0", change(48, 0), DropReason::UnknownVni),
        ("no I flag", change(42, 0), DropReason::VxlanFlags),
        ("an unknown endpoint", change(29, 99), DropReason::UnknownVtep),
        ("somebody else's address", change(33, 7), DropReason::NotForUs),
        ("somebody else's MAC", change(5, 7), DropReason::NotForUs),
        ("a wrong checksum", change(40, 1), DropReason::OuterChecksum),
        ("a first fragment", change(20, 0x20), DropReason::OuterFragment),
        ("a later fragment", change(21, 2), DropReason::OuterFragment),
        ("another UDP port", change(37, 0x18), DropReason::NoService),
        ("an outer VLAN", tagged, DropReason::UnexpectedVlan),
        ("a cut inner frame", good[..60].to_vec(), DropReason::Malformed),
    ]
}

#[test]
fn a_bad_outer_header_is_dropped_by_name() {
    let mut rig = demo();
    for (what, frame, reason) in bad_outers() {
        let before = rig.dropped(reason);
        assert!(rig.pass("uplink0", &frame, "red0").is_empty(), "{what}");
        assert_eq!(rig.dropped(reason), before + 1, "{what}: {:?}", rig.drops());
        assert!(rig.take("uplink0").is_empty(), "{what} is not answered");
        rig.assert_balanced();
    }
    let good = from_fabric(100, &RED.reversed().tcp((40_000, 80), "S", b""));
    assert_eq!(rig.pass("uplink0", &good, "red0").len(), 1, "{:?}", rig.drops());
}

#[test]
fn reserved_bits_are_ignored_on_receipt() {
    let mut rig = demo();
    let inner = RED.reversed().tcp((40_000, 80), "S", b"");
    let mut frame = from_fabric(100, &inner);
    frame[42] = 0xff;
    frame[43..46].fill(0xff);
    frame[49] = 0xff;
    assert_eq!(rig.pass("uplink0", &frame, "red0"), [inner]);
    rig.assert_balanced();
}

#[test]
fn a_tunnel_frame_cut_anywhere_is_dropped() {
    let mut rig = demo();
    let good = from_fabric(100, &RED.reversed().tcp((40_000, 80), "S", b"0123456789"));
    for len in 0..good.len() {
        assert!(rig.pass("uplink0", &good[..len], "red0").is_empty(), "cut to {len}");
    }
    assert_eq!(rig.dropped(DropReason::Malformed), good.len() as u64);
    rig.assert_balanced();
}

#[test]
fn packets_wait_for_nothing_while_a_next_hop_is_unresolved() {
    let mut rig = Rig::new(DEMO);
    for _ in 0..100 {
        assert!(!rig.pass("red0", &RED.udp((7, 5201), b"x"), "uplink0").iter().any(|f| f[12..14] == [8, 0]));
    }
    assert_eq!(rig.dropped(DropReason::UnresolvedNextHop), 100);
    rig.assert_balanced();
}

#[test]
fn endpoints_beyond_the_link_share_a_gateways_mac() {
    let fabric = FABRIC
        .replace("addresses: [192.0.2.1/24]", "addresses: [192.0.2.1/24]\n    gateways: [192.0.2.254]")
        .replace("192.0.2.2}", "198.51.100.2}")
        .replace("192.0.2.3}", "198.51.100.3}");
    let mut rig = Rig::new(&[&fabric, TENANTS, RULES]);
    rig.settle();
    let asked = rig.take("uplink0");
    assert_eq!((asked.len(), &asked[0][38..42]), (1, &[192, 0, 2, 254][..]), "one request for both");
    // Somebody else's answer teaches nothing; the gateway's own does.
    let mut other = scenarios::frames::arp_reply_to(&asked[0], Mac([2, 9, 9, 9, 9, 9]));
    other[31] = 9;
    rig.pass("uplink0", &other, "uplink0");
    assert!(rig.pass("red0", &RED.udp((7, 5201), b"x"), "uplink0").is_empty());
    rig.pass("uplink0", &scenarios::frames::arp_reply_to(&asked[0], PEER_VTEP_MAC), "uplink0");
    let far = Ends { dst: [10, 1, 0, 30], dst_mac: Mac([2, 0, 0, 0, 0x0a, 0x30]), ..RED };
    for (ends, vtep) in [(RED, 2), (far, 3)] {
        let seen = untunnel(&out(&mut rig, &ends.udp((7, 5201), b"x")));
        assert_eq!((seen.macs.0, seen.ends.1), (PEER_VTEP_MAC, [198, 51, 100, vtep]));
    }
    rig.assert_balanced();
}

#[test]
fn a_next_hop_that_moves_is_followed_and_one_that_is_lost_is_dropped() {
    let mut rig = demo();
    let mac = |last| Mac([2, 0xee, 0, 0, 0, last]);
    let next_hop = |rig: &mut Rig| {
        let seen = rig.pass("red0", &RED.udp((7, 5201), b"x"), "uplink0");
        seen.iter()
            .find(|frame| frame[12..14] == [8, 0])
            .map(|frame| Mac(frame[..6].try_into().expect("a MAC")))
    };
    assert_eq!(next_hop(&mut rig), Some(mac(2)));
    // It announces itself from another MAC (RFC 5227, section 3).
    let moved = Ends { src_mac: mac(7), src: [192, 0, 2, 2], ..outer() };
    rig.pass("uplink0", &moved.arp_request([192, 0, 2, 2]), "uplink0");
    assert_eq!(next_hop(&mut rig), Some(mac(7)));
    // Asked again after half a minute of silence, thrice in vain.
    for _ in 0..40 {
        rig.now = rig.now + packet::Nanos::from_secs(1);
        rig.settle();
        rig.take("uplink0");
    }
    assert_eq!(next_hop(&mut rig), None);
    assert_eq!(rig.dropped(DropReason::UnresolvedNextHop), 1);
    rig.assert_balanced();
}
