//! One test per bug report of the corpus (`bugs.tsv`) that a parser, a checksum or a view can have, named by its id.

#![allow(clippy::unwrap_used, reason = "a test fails by panic")]

mod corpus;

use wire::{Flags, L3, L4, Malformed, checksum, ecn, icmpv6, ipv4::protocol, ipv6, parse};

const MACS: [u8; 12] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
const TCP_80: [u8; 20] = [0x9c, 0x40, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 0x20, 0, 0, 0, 0, 0];

/// IPv6 with `payload` behind a header that announces `next`.
fn ipv6(next: u8, payload: &[&[u8]]) -> Vec<u8> {
    let payload = payload.concat();
    let len = (payload.len() as u16).to_be_bytes();
    let mut address = [0; 16];
    address[0] = 0xfd;
    let head = [0x60, 0, 0, 0, len[0], len[1], next, 64];
    [&MACS[..], &[0x86, 0xdd], &head, &address, &address, &payload].concat()
}

/// IPv4 with `options` and `payload`.
fn ipv4(protocol: u8, options: &[u8], payload: &[u8]) -> Vec<u8> {
    let header_len = 20 + options.len();
    let len = ((header_len + payload.len()) as u16).to_be_bytes();
    let head = [0x40 | (header_len / 4) as u8, 0, len[0], len[1], 0, 1, 0x40, 0, 64, protocol, 0, 0];
    let mut packet = [&head[..], &[10, 0, 0, 1, 10, 0, 0, 2], options, payload].concat();
    assert!(checksum::fill_ipv4_header(&mut packet));
    [&MACS[..], &[0x08, 0x00], &packet].concat()
}

/// UDP to 4791 with a right BTH: RC SEND only to QP 0x11, no payload.
fn roce() -> Vec<u8> {
    [&[0xc0, 0, 0x12, 0xb7, 0, 24, 0, 0, 4, 0, 0xff, 0xff, 0, 0, 0, 0x11][..], &[0; 8]].concat()
}

/// An extension header of 8 bytes: padding.
const fn padding(next: u8) -> [u8; 8] {
    [next, 0, 1, 4, 0, 0, 0, 0]
}

#[test]
fn b001_ipv6_payload_length_beyond_the_frame() {
    let right = ipv6(protocol::TCP, &[&TCP_80]);
    assert!(parse(&right).is_ok());
    for more in 1..=40 {
        let mut frame = right.clone();
        frame[19] += more;
        assert_eq!(parse(&frame), Err(Malformed::Ipv6PayloadLen), "{more} bytes more");
    }
}

#[test]
fn b002_a_cut_extension_header_gives_one_answer() {
    let frame = ipv6(protocol::DESTINATION_OPTIONS, &[&[6, 9, 0, 0, 0, 0, 0, 0]]);
    let mut parsed = wire::Parsed::EMPTY;
    for _ in 0..2 {
        assert_eq!(wire::parse_into(&frame, &mut parsed), Err(Malformed::ExtensionCut));
        // Nothing of a refused frame is left in the answer: no flow key can be made of garbage.
        assert_eq!(parsed, wire::Parsed::EMPTY);
    }
}

#[test]
fn b003_payload_behind_an_extension_header_is_found() {
    let frame = ipv6(protocol::HOP_BY_HOP, &[&padding(protocol::UDP), &roce()]);
    let parsed = parse(&frame).unwrap();
    assert_eq!((parsed.l4, parsed.dest_qp, parsed.l4_offset), (L4::Roce, 0x11, 14 + 48));
    assert_eq!(parsed.bth(&frame).unwrap().dest_qp(), 0x11);
}

#[test]
fn b004_router_messages_are_known() {
    for kind in [icmpv6::ROUTER_SOLICITATION, icmpv6::ROUTER_ADVERTISEMENT, icmpv6::REDIRECT] {
        let mut message = [0; 40];
        message[0] = kind;
        let plain = ipv6(protocol::ICMPV6, &[&message]);
        let behind = ipv6(protocol::DESTINATION_OPTIONS, &[&padding(protocol::ICMPV6), &message]);
        for frame in [plain, behind] {
            let parsed = parse(&frame).unwrap();
            assert_eq!(parsed.icmp(&frame).unwrap().kind, kind);
            assert!(icmpv6::is_neighbour_discovery(kind));
            assert!(wire::nd::Message::parse(parsed.l4_bytes(&frame)).unwrap().is_some());
        }
    }
}

#[test]
fn b005_port_zero() {
    let udp = parse(&ipv4(protocol::UDP, &[], &[0, 0, 0, 53, 0, 8, 0, 0])).unwrap();
    assert_eq!((udp.l4, udp.src_port, udp.dst_port), (L4::Udp, 0, 53));
    let mut header = TCP_80;
    header[..4].fill(0);
    let tcp = parse(&ipv4(protocol::TCP, &[], &header)).unwrap();
    assert_eq!((tcp.l4, tcp.src_port, tcp.dst_port), (L4::Tcp, 0, 0));
}

#[test]
fn b006_an_unknown_next_header_has_no_wild_offset() {
    for next in [253, 254, protocol::ESP, 4, 41, 255] {
        let parsed = parse(&ipv6(next, &[&[6, 0, 1, 4, 0, 0, 0, 0], &TCP_80])).unwrap();
        assert_eq!((parsed.l4, parsed.protocol, parsed.l4_offset), (L4::Unknown, next, 54));
        assert_eq!((parsed.src_port, parsed.dst_port), (0, 0));
    }
}

#[test]
fn b007_authentication_header_length() {
    // Length 4: (4 + 2) * 4 = 24 bytes.
    let mut header = [0; 24];
    (header[0], header[1]) = (protocol::TCP, 4);
    let parsed = parse(&ipv6(protocol::AH, &[&header, &TCP_80])).unwrap();
    assert_eq!((parsed.l4, parsed.dst_port, parsed.l4_offset), (L4::Tcp, 80, 54 + 24));
    for len in [0, 1] {
        header[1] = len;
        let found = parse(&ipv6(protocol::AH, &[&header, &TCP_80]));
        assert_eq!(found.err() == Some(Malformed::AhLen), len == 0, "length {len}: {found:?}");
    }
}

#[test]
fn b008_extension_headers_out_of_order() {
    let order =
        [protocol::DESTINATION_OPTIONS, protocol::MOBILITY, protocol::DESTINATION_OPTIONS, protocol::SHIM6];
    let mut payload = Vec::new();
    for next in order[1..].iter().chain([&protocol::TCP]) {
        payload.extend(padding(*next));
    }
    let parsed = parse(&ipv6(order[0], &[&payload, &TCP_80])).unwrap();
    assert_eq!((parsed.l4, parsed.dst_port), (L4::Tcp, 80));
    // The bound: one more is refused, never passed unread.
    for (count, found) in [(ipv6::MAX_EXTENSION_HEADERS, None), (17, Some(Malformed::ExtensionChainLong))] {
        let mut payload: Vec<u8> = (1..count).flat_map(|_| padding(protocol::DESTINATION_OPTIONS)).collect();
        payload.extend(padding(protocol::TCP));
        assert_eq!(parse(&ipv6(protocol::DESTINATION_OPTIONS, &[&payload, &TCP_80])).err(), found);
    }
}

#[test]
fn b009_empty_and_tiny_frames() {
    for len in 0..14 {
        assert_eq!(parse(&MACS.repeat(2)[..len]), Err(Malformed::FrameShort), "{len} bytes");
    }
}

#[test]
fn b010_ipv4_compatible_addresses() {
    let address = |text: &str| text.parse::<std::net::Ipv6Addr>().unwrap().octets();
    assert!(ipv6::is_ipv4_compatible(&address("::1.2.3.4")));
    for other in ["::5:0:0:1.2.3.4", "::", "::1", "::ffff:1.2.3.4", "1::1.2.3.4"] {
        assert!(!ipv6::is_ipv4_compatible(&address(other)), "{other}");
    }
}

#[test]
fn b011_traffic_class_is_not_the_version() {
    let mut frame = ipv6(protocol::TCP, &[&TCP_80]);
    frame[14] = 0x6f;
    frame[15] = 0xf0;
    let parsed = parse(&frame).unwrap();
    assert_eq!((parsed.l3, parsed.tos(&frame)), (L3::Ipv6, Some(0xff)));
}

#[test]
fn b012_an_echo_quotes_nothing() {
    let quoted = ipv4(protocol::TCP, &[], &TCP_80);
    let echo = |kind| ipv4(protocol::ICMP, &[], &[&[kind, 0, 0, 0, 0, 7, 0, 1][..], &quoted[14..]].concat());
    let request = echo(wire::icmp::ECHO_REQUEST);
    let parsed = parse(&request).unwrap();
    assert_eq!(parsed.quoted(&request), Ok(None));
    assert_eq!(parsed.icmp_identifier(&request), Some(7));
    let error = echo(wire::icmp::UNREACHABLE);
    assert_eq!(parse(&error).unwrap().quoted(&error).unwrap().unwrap().dst_port, 80);
}

/// `frame` with tags, outermost first.
fn tagged(tags: &[[u8; 4]], frame: &[u8]) -> Vec<u8> {
    [&frame[..12], &tags.concat(), &frame[12..]].concat()
}

#[test]
fn b013_tag_zero_is_a_tag() {
    let frame = tagged(&[[0x81, 0, 0, 0]], &ipv4(protocol::TCP, &[], &TCP_80));
    let parsed = parse(&frame).unwrap();
    assert_eq!((parsed.vlan.count(), parsed.vlan.outer().map(|tag| tag.tci)), (1, Some(0)));
    assert_eq!(parse(&ipv4(protocol::TCP, &[], &TCP_80)).unwrap().vlan.outer(), None);
}

#[test]
fn b014_a_priority_tag_is_native() {
    let mut arp = [&MACS[..], &[0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, 1]].concat();
    arp.resize(60, 0);
    let parsed = parse(&tagged(&[[0x81, 0, 0xa0, 0]], &arp)).unwrap();
    assert_eq!((parsed.l3, parsed.vlan.is_native()), (L3::Arp, true));
    assert_eq!(parsed.vlan.outer().unwrap().pcp(), 5);
}

#[test]
fn b015_the_inner_tag_after_a_pop() {
    let frame = tagged(&[[0x88, 0xa8, 0, 10], [0x81, 0, 0, 20]], &ipv4(protocol::TCP, &[], &TCP_80));
    let popped = [&frame[..12], &frame[16..]].concat();
    assert_eq!(parse(&popped).unwrap().vlan.outer().unwrap().vid(), 20);
}

#[test]
fn b016_tags_are_outermost_first() {
    let tags = [[0x88, 0xa8, 0, 10], [0x81, 0, 0, 20], [0x81, 0, 0, 30]];
    let frame = tagged(&tags[..2], &ipv4(protocol::TCP, &[], &TCP_80));
    let parsed = parse(&frame).unwrap();
    let written: Vec<_> = parsed.vlan.tags().iter().flat_map(|tag| [tag.tpid, tag.tci]).collect();
    assert_eq!(written, [0x88a8, 10, 0x8100, 20]);
    let three = parse(&tagged(&tags, &ipv4(protocol::TCP, &[], &TCP_80))).unwrap();
    assert!(three.flags.contains(Flags::MANY_TAGS));
    assert_eq!((three.l3, three.vlan.tags()), (L3::Other, parsed.vlan.tags()));
}

#[test]
fn b017_priority_does_not_change_the_vlan() {
    for pcp in [0x00, 0x60] {
        let frame = tagged(&[[0x81, 0, pcp, 10]], &ipv4(protocol::TCP, &[], &TCP_80));
        assert_eq!(parse(&frame).unwrap().vlan.outer().unwrap().vid(), 10);
    }
}

#[test]
fn b030_fragments_without_data() {
    let mut frame = ipv4(protocol::UDP, &[], &[]);
    frame[20] = 0x20;
    assert_eq!(parse(&frame), Err(Malformed::FragmentEmpty));
}

#[test]
fn b027_a_last_fragment_of_one_byte() {
    let mut frame = ipv4(protocol::UDP, &[], &[7]);
    frame[20..22].copy_from_slice(&[0, 9]);
    assert_eq!(parse(&frame).unwrap().fragment, wire::Fragment::Later);
}

#[test]
fn b086_checksum_of_a_header_of_60_bytes() {
    let mut frame = ipv4(protocol::TCP, &[1; 40], &TCP_80);
    let parsed = parse(&frame).unwrap();
    assert_eq!(parsed.l4_offset, 74);
    assert!(ecn::set_tos(&mut frame, &parsed, 0x03));
    assert!(checksum::ipv4_header_is_right(&frame[14..]));
    frame[14 + 59] ^= 1;
    assert!(!checksum::ipv4_header_is_right(&frame[14..]), "the last option byte counts");
}

#[test]
fn b087_padding_and_trailers_do_not_count() {
    let Some(dir) = corpus::dir() else { return };
    let frames = corpus::made(&dir, "lengths_padding");
    let len = |row: usize| parse(&frames[row - 1]).unwrap().l3_len();
    assert_eq!((len(1), len(2), len(3)), (30, 30, 1500));
}
