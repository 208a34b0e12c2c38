//! The gateway that floodway plays: echo, routing, hop limits, MTU, and the ICMP errors that follow.
#![expect(clippy::unwrap_used, reason = "the functions beside the tests are tests too")]

use etherparse::{Icmpv4Slice, Icmpv6Slice, Ipv4HeaderSlice, NetSlice, SlicedPacket, TransportSlice};
use packet::Nanos;
use program::DropReason;
use scenarios::cuts::fragment;
use scenarios::frames::{Ends, untunnel};
use scenarios::policies::{FABRIC, TENANTS};
use scenarios::rig::Rig;
use scenarios::scene::{RED, RED_GATEWAY, RED_GATEWAY6, RED6, demo, from_fabric, with};
use wire::Mac;

const GATEWAY: [u8; 4] = [10, 1, 0, 1];

/// Red lets everything out and in.
const OPEN: &str = r#"
apiVersion: floodway.dev/v1alpha1
kind: TenantPolicy
metadata: {name: open}
spec: {tenant: red, egress: [{action: Accept}], ingress: [{action: Accept}]}
"#;

/// As [`FABRIC`], with a port that takes less than its tunnels bring.
fn narrow() -> String {
    FABRIC.replace(r#"{name: red0, device: "memory:"}"#, r#"{name: red0, device: "memory:", mtu: 1300}"#)
}

fn via_gateway(ends: Ends) -> Ends {
    Ends { dst_mac: RED_GATEWAY, ..ends }
}

fn assert_ipv4_sum(frame: &[u8]) {
    let header = Ipv4HeaderSlice::from_slice(&frame[14..]).unwrap().to_header();
    assert_eq!(header.header_checksum, header.calc_header_checksum());
}

#[test]
fn the_gateway_answers_echo_requests_of_both_families() {
    let mut rig = demo();
    let to_gateway = Ends { dst: GATEWAY, ..via_gateway(RED) };
    for ttl in [1, 64] {
        let seen = rig.pass("red0", &to_gateway.ping(7, 9, ttl), "red0");
        assert_eq!(seen, [to_gateway.reversed().pong(7, 9)]);
    }
    let to_gateway = scenarios::frames6::Ends6 { dst: RED_GATEWAY6, dst_mac: RED_GATEWAY, ..RED6 };
    let seen = rig.pass("red0", &to_gateway.ping(7, 9, 255), "red0");
    assert_eq!(seen, [to_gateway.reversed().pong(7, 9)]);
    rig.assert_balanced();
}

#[test]
fn the_gateway_has_no_other_service() {
    let mut rig = demo();
    let to_gateway = Ends { dst: GATEWAY, ..via_gateway(RED) };
    let cases = [
        (to_gateway.tcp((40_000, 5201), "S", b""), DropReason::NoService),
        (to_gateway.pong(1, 1), DropReason::NoService),
        (Ends { src: [10, 1, 0, 11], ..to_gateway }.ping(1, 1, 64), DropReason::SpoofedAddress),
        (Ends { dst_mac: RED.dst_mac, ..to_gateway }.ping(1, 1, 64), DropReason::UnknownDestinationMac),
    ];
    for (frame, reason) in cases {
        for _ in 0..2 {
            let before = rig.dropped(reason);
            assert!(rig.pass("red0", &frame, "red0").is_empty());
            assert_eq!(rig.dropped(reason), before + 1, "{:?}", rig.drops());
            assert!(rig.take("uplink0").is_empty());
        }
    }
    rig.assert_balanced();
}

#[test]
fn a_packet_to_the_gateways_mac_is_routed() {
    let mut rig = demo();
    let sent = via_gateway(RED).udp((7, 5201), b"x");
    let seen = untunnel(&rig.pass("red0", &sent, "uplink0")[0]).inner;
    assert_eq!((&seen[..6], &seen[6..12]), (&RED.dst_mac.0[..], &RED_GATEWAY.0[..]));
    assert_eq!((seen[22], sent[22]), (63, 64));
    assert_ipv4_sum(&seen);
    assert_eq!(
        (&seen[..22][12..], &seen[26..]),
        (&sent[..22][12..], &sent[26..]),
        "nothing else has changed"
    );
    let sent6 = scenarios::frames6::Ends6 { dst_mac: RED_GATEWAY, ..RED6 }.udp((7, 5201), b"x");
    let seen = untunnel(&rig.pass("red0", &sent6, "uplink0")[0]).inner;
    assert_eq!((seen[21], &seen[22..]), (63, &sent6[22..]));
    // Bridged: the same flow to the peer's own MAC keeps its hop limit.
    let bridged = RED.udp((7, 5201), b"x");
    assert_eq!(untunnel(&rig.pass("red0", &bridged, "uplink0")[0]).inner, bridged);
    rig.assert_balanced();
}

#[test]
fn every_ttl_is_decremented_with_a_right_checksum() {
    let mut rig = with(&[FABRIC, TENANTS, OPEN]);
    for ttl in 2..=255 {
        for id in [0, 0xffff, 0x1234] {
            let mut frame = via_gateway(RED).ping(3, 4, ttl);
            frame[18..20].copy_from_slice(&u16::to_be_bytes(id));
            assert!(wire::checksum::fill_ipv4_header(&mut frame[14..]));
            let seen = untunnel(&rig.pass("red0", &frame, "uplink0")[0]).inner;
            assert_eq!(seen[22], ttl - 1);
            assert_ipv4_sum(&seen);
        }
    }
    rig.assert_balanced();
}

#[test]
fn a_prefix_is_routed_to_its_host() {
    let mut rig = demo();
    let far = Ends { dst: [10, 9, 200, 3], ..via_gateway(RED) };
    let seen = untunnel(&rig.pass("red0", &far.udp((7, 5201), b"x"), "uplink0")[0]);
    assert_eq!((seen.ends.1, &seen.inner[..6]), ([192, 0, 2, 3], &[2, 0, 0, 0, 0x0a, 0x30][..]));
    let nowhere = Ends { dst: [10, 77, 0, 1], ..far };
    assert!(rig.pass("red0", &nowhere.udp((7, 5201), b"x"), "uplink0").is_empty());
    assert_eq!(rig.dropped(DropReason::NoRoute), 1);
    rig.assert_balanced();
}

#[test]
fn a_mac_of_somebody_else_is_dropped() {
    let mut rig = demo();
    let wrong = Ends { dst_mac: Mac([2, 0, 0, 0, 0x0a, 0x30]), ..RED };
    for _ in 0..2 {
        assert!(rig.pass("red0", &wrong.udp((7, 5201), b"x"), "uplink0").is_empty());
    }
    let wrong = Ends { dst_mac: Mac([2, 0, 0, 0, 0x0a, 0x11]), ..RED.reversed() };
    assert!(rig.pass("uplink0", &from_fabric(100, &wrong.udp((5201, 7), b"x")), "red0").is_empty());
    assert_eq!(rig.dropped(DropReason::UnknownDestinationMac), 3);
    rig.assert_balanced();
}

/// Type, code, the 16 bits at the header's end, and the quoted packet of an ICMP error from the gateway; MACs,
/// addresses and checksums are right.
fn icmp_error(frame: &[u8], to: Ends) -> (u8, u8, u16, Vec<u8>) {
    assert_eq!((&frame[..6], &frame[6..12]), (&to.src_mac.0[..], &RED_GATEWAY.0[..]));
    assert_ipv4_sum(frame);
    let sliced = SlicedPacket::from_ethernet(frame).unwrap();
    let Some(NetSlice::Ipv4(ip)) = &sliced.net else { panic!("IPv4") };
    assert_eq!((ip.header().source(), ip.header().destination()), (GATEWAY, to.src));
    assert!(frame.len() <= 14 + 576);
    let Some(TransportSlice::Icmpv4(icmp)) = &sliced.transport else { panic!("ICMP") };
    let slice: &Icmpv4Slice<'_> = icmp;
    assert_eq!(slice.checksum(), slice.icmp_type().calc_checksum(slice.payload()), "the ICMP checksum");
    let last = u16::from_be_bytes([frame[40], frame[41]]);
    (slice.type_u8(), slice.code_u8(), last, slice.payload().to_vec())
}

#[test]
fn too_big_for_the_tunnel() {
    let mut rig = demo();
    // 1600 on the uplink less 50 of outer headers leaves 1550 for an inner packet.
    let largest = RED.udp((7, 5201), &[5; 1522]);
    assert_eq!(untunnel(&rig.pass("red0", &largest, "uplink0")[0]).inner, largest);
    for ends in [RED, via_gateway(RED)] {
        let sent = ends.udp((7, 5201), &[5; 1523]);
        let seen = rig.pass("red0", &sent, "red0");
        let (kind, code, mtu, quoted) = icmp_error(&seen[0], RED);
        assert_eq!((kind, code, mtu), (3, 4, 1550));
        assert_eq!(quoted, sent[14..][..quoted.len()]);
        assert_eq!(quoted.len(), 548, "as much as fits 576 bytes");
        assert!(rig.take("uplink0").is_empty());
    }
    assert_eq!(rig.dropped(DropReason::TooBig), 2);
    rig.assert_balanced();
}

#[test]
fn too_big_for_the_port_goes_back_into_the_tunnel() {
    let mut rig = with(&[&narrow(), TENANTS, OPEN]);
    let fits = RED.reversed().udp((7, 8), &[5; 1272]);
    assert_eq!(rig.pass("uplink0", &from_fabric(100, &fits), "red0"), [fits]);
    let sent = RED.reversed().udp((7, 8), &[5; 1273]);
    let seen = rig.pass("uplink0", &from_fabric(100, &sent), "uplink0");
    let seen = untunnel(&seen[0]);
    assert_eq!((seen.vni, seen.ends.1), (100, [192, 0, 2, 2]));
    let (kind, code, mtu, quoted) = icmp_error(&seen.inner, RED.reversed());
    assert_eq!((kind, code, mtu), (3, 4, 1300));
    assert_eq!(quoted, sent[14..][..quoted.len()]);
    assert!(rig.take("red0").is_empty());
    rig.assert_balanced();
}

#[test]
fn too_big_over_ipv6() {
    let mut rig = demo();
    let largest = RED6.udp((7, 5201), &[5; 1502]);
    assert_eq!(untunnel(&rig.pass("red0", &largest, "uplink0")[0]).inner, largest);
    let sent = RED6.udp((7, 5201), &[5; 1503]);
    let frame = &rig.pass("red0", &sent, "red0")[0];
    let sliced = SlicedPacket::from_ethernet(frame).unwrap();
    let Some(NetSlice::Ipv6(ip)) = &sliced.net else { panic!("IPv6") };
    assert_eq!((ip.header().source_addr(), ip.header().destination_addr()), (RED_GATEWAY6, RED6.src));
    let Some(TransportSlice::Icmpv6(icmp)) = &sliced.transport else { panic!("ICMPv6") };
    let slice: &Icmpv6Slice<'_> = icmp;
    assert!(slice.is_checksum_valid(ip.header().source(), ip.header().destination()));
    assert_eq!((slice.type_u8(), slice.code_u8(), slice.bytes5to8()), (2, 0, 1550_u32.to_be_bytes()));
    assert_eq!(frame.len(), 14 + 1280, "as much as the minimum MTU takes");
    assert_eq!(slice.payload(), &sent[14..][..slice.payload().len()]);
    rig.assert_balanced();
}

#[test]
fn some_packets_are_answered_by_no_error() {
    let mut rig = with(&[FABRIC, TENANTS, OPEN]);
    let big = vec![5; 1560];
    let whole = RED.udp((7, 8), &vec![5; 3000]);
    rig.pass("red0", &fragment(&whole, 1, 0..1000), "red0");
    assert!(rig.pass("red0", &fragment(&whole, 1, 1000..2560), "red0").is_empty(), "a later fragment");
    let group = Ends { dst: [239, 1, 1, 1], dst_mac: Mac([1, 0, 0x5e, 1, 1, 1]), ..RED };
    assert!(rig.pass("red0", &group.udp((7, 8), &big), "red0").is_empty(), "to a group");
    // An ICMP error about an open flow, itself too big.
    rig.pass("uplink0", &from_fabric(100, &RED.reversed().udp((8, 7), b"x")), "red0");
    let mut error = RED.ping(0, 0, 64);
    error.truncate(42);
    error.extend_from_slice(&RED.reversed().udp((8, 7), b"x")[14..]);
    error.resize(1600, 0);
    error[16..18].copy_from_slice(&1586_u16.to_be_bytes());
    (error[34], error[35]) = (3, 3);
    assert!(wire::checksum::fill_ipv4_header(&mut error[14..]));
    let parsed = wire::parse(&error).unwrap();
    assert!(wire::checksum::fill_l4(&mut error, &parsed));
    assert!(rig.pass("red0", &error, "red0").is_empty(), "an ICMP error");
    assert_eq!(
        (rig.dropped(DropReason::TooBig), rig.dropped(DropReason::Group)),
        (2, 1),
        "{:?}",
        rig.drops()
    );
    rig.assert_balanced();
}

fn time_exceeded(rig: &mut Rig, count: usize) -> usize {
    let sent = via_gateway(RED).udp((7, 5201), b"x");
    let mut expired = sent;
    expired[22] = 1;
    assert!(wire::checksum::fill_ipv4_header(&mut expired[14..]));
    let mut answers = 0;
    for _ in 0..count {
        let seen = rig.pass("red0", &expired, "red0");
        if let Some(frame) = seen.first() {
            let (kind, code, rest, quoted) = icmp_error(frame, RED);
            assert_eq!((kind, code, rest), (11, 0, 0));
            assert_eq!(quoted, expired[14..]);
        }
        answers += seen.len();
    }
    answers
}

#[test]
fn a_hop_limit_that_runs_out_is_told_of() {
    let mut rig = demo();
    assert_eq!(time_exceeded(&mut rig, 1), 1);
    assert_eq!(rig.dropped(DropReason::TtlExpired), 1);
    let mut sent = scenarios::frames6::Ends6 { dst_mac: RED_GATEWAY, ..RED6 }.udp((7, 5201), b"x");
    sent[21] = 1;
    let frame = &rig.pass("red0", &sent, "red0")[0];
    assert_eq!((frame[54], frame[55], &frame[62..]), (3, 0, &sent[14..]));
    assert!(rig.take("uplink0").is_empty());
    rig.assert_balanced();
}

#[test]
fn icmp_errors_are_limited_by_rate() {
    let mut rig = demo();
    // A burst of 50, and what 1000 a second earn in the microseconds of these polls.
    let answers = time_exceeded(&mut rig, 200);
    assert!((50..=51).contains(&answers), "{answers} errors at once");
    assert_eq!(rig.dropped(DropReason::TtlExpired), 200, "each is dropped and counted all the same");
    rig.now = rig.now + Nanos::from_millis(10);
    let answers = time_exceeded(&mut rig, 100);
    assert!((10..=11).contains(&answers), "{answers} errors for ten milliseconds");
    rig.assert_balanced();
}

#[test]
fn the_longest_prefix_wins_and_a_host_wins_over_all() {
    let remotes = "  remotes:\n    - {vtep: fabric, mac: \"02:00:00:00:0a:40\", addresses: [10.9.1.77], prefixes: [10.9.1.0/24]}\n";
    let tenants = TENANTS.replacen("  remotes:\n", remotes, 1);
    let mut rig = with(&[FABRIC, &tenants, OPEN]);
    for (dst, vtep, mac) in [
        ([10, 9, 0, 1], 3, 0x30),
        ([10, 9, 1, 1], 2, 0x40),
        ([10, 9, 1, 77], 2, 0x40),
        ([10, 9, 2, 1], 3, 0x30),
    ] {
        let seen =
            untunnel(&rig.pass("red0", &Ends { dst, ..via_gateway(RED) }.udp((7, 8), b"x"), "uplink0")[0]);
        assert_eq!((seen.ends.1, seen.inner[5]), ([192, 0, 2, vtep], mac), "{dst:?}");
    }
    rig.assert_balanced();
}

#[test]
fn without_a_free_buffer_packets_pass_and_errors_are_not_sent() {
    let mut rig = demo();
    rig.send("red0", &RED.udp((7, 5201), &[5; 1600]));
    rig.send("red0", &RED.udp((7, 5201), b"x"));
    rig.send("red0", &RED.arp_request(GATEWAY));
    let taken: Vec<_> = std::iter::from_fn(|| rig.pool.take()).collect();
    rig.settle();
    drop(taken);
    assert_eq!(
        (rig.take("uplink0").len(), rig.take("red0").len()),
        (1, 1),
        "the packet, and the ARP reply in place"
    );
    assert_eq!(rig.dropped(DropReason::TooBig), 1);
    rig.assert_balanced();
}

#[test]
fn a_tenant_without_a_gateway_gets_no_errors() {
    let tenants = TENANTS.replacen("  gateway: {addresses: [10.1.0.1, \"fd00::1\"]}\n", "", 1);
    let mut rig = with(&[FABRIC, &tenants, OPEN]);
    assert!(rig.pass("red0", &RED.udp((7, 8), &[5; 1600]), "red0").is_empty());
    assert!(rig.pass("red0", &RED.arp_request(GATEWAY), "red0").is_empty());
    assert_eq!((rig.dropped(DropReason::TooBig), rig.dropped(DropReason::UnknownNeighbour)), (1, 1));
    rig.assert_balanced();
}
