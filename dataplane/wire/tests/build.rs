//! The packets we make, read back by our parser and by etherparse.
#![allow(clippy::unwrap_used, reason = "a test fails by panic")]

mod corpus;

use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use proptest::prelude::*;
use std::net::IpAddr;
use wire::{
    Fragment, L3, L4, Mac, Parsed,
    arp::REPLY,
    build::{
        ARP_FRAME_LEN, BuildError, IcmpError, ND_FRAME_LEN, Origin, arp_reply, arp_request, icmp_error,
        neighbour_advertisement, neighbour_solicitation,
    },
    checksum::{self, Check},
    ecn,
    nd::{Message, NeighbourAdvertisement, option},
    parse,
    vxlan::{self, Addresses, Outer, Template, Vni},
};

const OWN: Mac = Mac([2, 0, 0, 0, 0, 1]);
const PEER: Mac = Mac([2, 0, 0, 0, 0, 2]);

fn v6(last: u8) -> [u8; 16] {
    [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xa1, 0xb2, 0xc3, last]
}

#[test]
fn arp() {
    let mut out = [0xaa; 64];
    assert_eq!(arp_request(&mut out, PEER, [10, 0, 0, 2], [10, 0, 0, 1]), Ok(ARP_FRAME_LEN));
    let request = out;
    let request = *parse(&request).unwrap().arp(&request).unwrap();
    assert_eq!(arp_reply(&mut out, &request, OWN), Ok(ARP_FRAME_LEN));
    let frame = &out[..ARP_FRAME_LEN];
    let sliced = SlicedPacket::from_ethernet(frame).unwrap();
    let Some(NetSlice::Arp(packet)) = sliced.net else { panic!("ARP") };
    assert_eq!((packet.operation().0, packet.sender_hw_addr()), (REPLY, &OWN.0[..]));
    assert_eq!((packet.sender_protocol_addr(), packet.target_hw_addr()), (&[10, 0, 0, 1][..], &PEER.0[..]));
    assert_eq!(packet.target_protocol_addr(), [10, 0, 0, 2]);
    assert_eq!(frame[..6], PEER.0);
    let reply = *parse(frame).unwrap().arp(frame).unwrap();
    assert_eq!(arp_reply(&mut [0; 64], &reply, OWN), Err(BuildError::Unanswerable), "no request");
    assert_eq!(arp_request(&mut [0; 59], PEER, [0; 4], [0; 4]), Err(BuildError::NoRoom));
}

#[test]
fn neighbour_discovery() {
    let mut out = [0; 100];
    let len = neighbour_solicitation(&mut out, PEER, v6(2), v6(1)).unwrap();
    assert_eq!(len, ND_FRAME_LEN);
    let frame = &out[..len];
    let parsed = parse(frame).unwrap();
    assert_eq!(frame[..6], [0x33, 0x33, 0xff, 0xb2, 0xc3, 1], "solicited-node multicast");
    assert_eq!((parsed.ttl(frame), checksum::verify_l4(frame, &parsed)), (Some(255), Check::Right));
    assert_eq!(etherparse_checksum(frame), Some(true));
    let Ok(Some(Message::NeighbourSolicitation(message, options))) = Message::parse(parsed.l4_bytes(frame))
    else {
        panic!("a solicitation")
    };
    assert_eq!(message.target, v6(1));
    assert_eq!(options.link_layer(option::SOURCE_LINK_LAYER), Ok(Some(PEER)));

    let flags = NeighbourAdvertisement::SOLICITED | NeighbourAdvertisement::ROUTER;
    let told = |asker, wanted_flags, dst_mac: [u8; 6]| {
        let mut out = [0; 100];
        let len = neighbour_advertisement(&mut out, OWN, v6(1), asker, flags).unwrap();
        let frame = &out[..len];
        let parsed = parse(frame).unwrap();
        assert_eq!(checksum::verify_l4(frame, &parsed), Check::Right);
        assert_eq!(etherparse_checksum(frame), Some(true));
        assert_eq!(frame[..6], dst_mac);
        let Ok(Some(Message::NeighbourAdvertisement(message, options))) =
            Message::parse(parsed.l4_bytes(frame))
        else {
            panic!("an advertisement")
        };
        assert_eq!((message.target, message.flags.get()), (v6(1), wanted_flags));
        assert_eq!(options.link_layer(option::TARGET_LINK_LAYER), Ok(Some(OWN)));
    };
    told((PEER, v6(2)), flags, PEER.0);
    told((PEER, [0; 16]), NeighbourAdvertisement::ROUTER, [0x33, 0x33, 0, 0, 0, 1]);
    let multicast = (PEER, [0xff; 16]);
    assert_eq!(neighbour_advertisement(&mut out, OWN, v6(1), multicast, 0), Err(BuildError::Unanswerable));
}

/// Whether etherparse finds the ICMP or ICMPv6 checksum right.
fn etherparse_checksum(frame: &[u8]) -> Option<bool> {
    let sliced = SlicedPacket::from_ethernet(frame).ok()?;
    match (sliced.net?, sliced.transport?) {
        (NetSlice::Ipv6(ip), TransportSlice::Icmpv6(icmp)) => {
            Some(icmp.is_checksum_valid(ip.header().source(), ip.header().destination()))
        }
        (NetSlice::Ipv4(ip), TransportSlice::Icmpv4(icmp)) => {
            let header = ip.header().to_header();
            let whole = icmp.header().icmp_type.calc_checksum(icmp.payload());
            Some(whole == icmp.header().checksum && header.calc_header_checksum() == header.header_checksum)
        }
        _ => None,
    }
}

#[test]
fn icmp_errors_quote_every_offender_right() {
    let Some(dir) = corpus::dir() else { return };
    let (mut made, mut refused) = (0, 0);
    for capture in corpus::captures(&dir) {
        for frame in &capture.frames {
            let Ok(parsed) = parse(frame) else { continue };
            for error in [IcmpError::TooBig { mtu: 1400 }, IcmpError::TimeExceeded, IcmpError::Prohibited] {
                let ip = match parsed.l3 {
                    L3::Ipv6 => IpAddr::V6(v6(1).into()),
                    _ => IpAddr::V4([10, 9, 9, 9].into()),
                };
                let mut out = vec![0; 1500];
                match icmp_error(&mut out, frame, &parsed, &Origin { mac: OWN, ip }, error) {
                    Ok(len) => check_error(frame, &parsed, &out[..len]),
                    Err(BuildError::Unanswerable) => {
                        refused += 1;
                        continue;
                    }
                    Err(BuildError::NoRoom) => panic!("1500 bytes are enough"),
                }
                made += 1;
            }
        }
    }
    assert!(made > 1_000 && refused > 100, "{made} made, {refused} refused");
}

fn check_error(offender: &[u8], parsed: &Parsed, frame: &[u8]) {
    let error = parse(frame).unwrap();
    assert_eq!((error.vlan, error.l3, usize::from(error.end)), (parsed.vlan, parsed.l3, frame.len()));
    assert_eq!(checksum::verify_l4(frame, &error), Check::Right);
    // etherparse 0.19 takes one tag protocol more than two tags deep, as we do.
    assert_eq!(etherparse_checksum(frame), Some(true), "{parsed:?}");
    assert!(usize::from(error.l3_len()) <= if parsed.l3 == L3::Ipv4 { 576 } else { 1280 });
    let quoted = error.quoted(frame).unwrap().unwrap();
    let quote = &frame[quoted.offset.into()..];
    assert!(parsed.l3_bytes(offender).starts_with(quote));
    assert!(quote.len() >= 28.min(parsed.l3_len().into()));
    match parsed.l4 {
        L4::Tcp | L4::Udp | L4::Sctp | L4::Roce => {
            assert_eq!(
                (quoted.l4, quoted.src_port, quoted.dst_port),
                (parsed.l4, parsed.src_port, parsed.dst_port)
            );
            assert_eq!(quoted.dest_qp, (parsed.l4 == L4::Roce).then_some(parsed.dest_qp));
        }
        L4::Icmp | L4::Icmpv6 => {
            let identifier = parsed.icmp_identifier(offender).unwrap_or(0);
            assert_eq!((quoted.src_port, quoted.dst_port), (identifier, identifier));
        }
        L4::None | L4::Unknown => assert_eq!(quoted.l4, L4::None),
    }
    // An error is never answered with an error.
    let ip = match parsed.l3 {
        L3::Ipv6 => IpAddr::V6(v6(1).into()),
        _ => IpAddr::V4([10, 9, 9, 9].into()),
    };
    let again = icmp_error(&mut [0; 1500], frame, &error, &Origin { mac: OWN, ip }, IcmpError::TimeExceeded);
    assert_eq!(again, Err(BuildError::Unanswerable));
}

#[test]
fn who_gets_no_icmp_error() {
    let Some(dir) = corpus::dir() else { return };
    let ask = |frame: &[u8], room: usize| {
        let origin = Origin { mac: OWN, ip: IpAddr::V4([10, 9, 9, 9].into()) };
        let error = IcmpError::TooBig { mtu: 1400 };
        icmp_error(&mut vec![0; room], frame, &parse(frame).unwrap(), &origin, error)
    };
    let spoofed = corpus::made(&dir, "antispoof");
    // Sources 0.0.0.0, broadcast, multicast, loopback; a multicast and a zero Ethernet source.
    for row in [24, 25, 26, 27, 29, 30] {
        assert_eq!(ask(&spoofed[row - 1], 1500), Err(BuildError::Unanswerable), "row {row}");
    }
    assert!(ask(&spoofed[22], 1500).is_ok());
    assert_eq!(ask(&spoofed[0], 1500), Err(BuildError::Unanswerable), "ARP");
    let related = corpus::made(&dir, "icmp_related");
    assert_eq!(ask(&related[17], 1500), Err(BuildError::Unanswerable), "to multicast");
    assert_eq!(ask(&related[1], 1500), Err(BuildError::Unanswerable), "about an ICMP error");
    let fragments = corpus::made(&dir, "ipv4_fragments");
    assert!(ask(&fragments[2], 1500).is_ok(), "a first fragment");
    assert_eq!(parse(&fragments[3]).unwrap().fragment, Fragment::Later);
    assert_eq!(ask(&fragments[3], 1500), Err(BuildError::Unanswerable), "a later fragment");
    let len = ask(&fragments[2], 1500).unwrap();
    for room in 0..len {
        assert_eq!(ask(&fragments[2], room), Err(BuildError::NoRoom), "{room} bytes");
    }
}

fn outer(is_ipv6: bool, vni: u32) -> Outer {
    let addresses = if is_ipv6 {
        Addresses::V6 { src: v6(1), dst: v6(2) }
    } else {
        Addresses::V4 { src: [192, 0, 2, 1], dst: [192, 0, 2, 2] }
    };
    Outer::new(OWN, PEER, addresses, Vni::new(vni).unwrap())
}

proptest! {
    #[test]
    fn a_stamped_tunnel_packet_is_right(
        is_ipv6: bool,
        vni in 0..=Vni::MAX,
        inner in proptest::collection::vec(any::<u8>(), 14..400),
        src_port: u16,
        tos: u8,
    ) {
        let template = Template::new(&outer(is_ipv6, vni));
        let mut frame = vec![0xee; template.len()];
        prop_assert_eq!(template.len(), if is_ipv6 { 70 } else { 50 });
        frame.extend_from_slice(&inner);
        prop_assert!(template.stamp(&mut frame, src_port, ecn::encap(tos)));
        let parsed = parse(&frame).unwrap();
        prop_assert_eq!((usize::from(parsed.end), parsed.src_port, parsed.dst_port), (frame.len(), src_port, 4789));
        prop_assert_eq!((parsed.tos(&frame), parsed.ttl(&frame)), (Some(tos), Some(64)));
        let found = vxlan::decap(&frame, &parsed).unwrap();
        prop_assert_eq!(found.vni.get(), vni);
        prop_assert_eq!(&frame[found.offset.into()..found.end.into()], &inner[..]);
        let sliced = SlicedPacket::from_ethernet(&frame).unwrap();
        let Some(TransportSlice::Udp(udp)) = sliced.transport else { panic!("UDP") };
        match sliced.net.unwrap() {
            NetSlice::Ipv4(ip) => {
                let header = ip.header().to_header();
                prop_assert_eq!(header.header_checksum, header.calc_header_checksum());
                prop_assert_eq!(udp.checksum(), 0);
            }
            NetSlice::Ipv6(ip) => {
                let checksum = udp.to_header().calc_checksum_ipv6_raw(
                    ip.header().source(), ip.header().destination(), udp.payload()).unwrap();
                prop_assert_eq!(udp.checksum(), checksum);
                prop_assert_eq!(checksum::verify_l4(&frame, &parsed), Check::Right);
            }
            NetSlice::Arp(_) => panic!("IP"),
        }
    }
}

#[test]
fn what_no_tunnel_packet_can_be() {
    assert_eq!(Vni::new(0x0100_0000), None);
    for is_ipv6 in [false, true] {
        let template = Template::new(&outer(is_ipv6, 7));
        for len in 0..template.len() + 14 {
            let mut frame = vec![0xee; len];
            assert!(!template.stamp(&mut frame, 1, 0));
            assert!(frame.iter().all(|byte| *byte == 0xee), "nothing written");
        }
        assert!(template.stamp(&mut vec![0; 65_535], 1, 0));
        assert!(!template.stamp(&mut vec![0; 65_536], 1, 0));
    }
}
