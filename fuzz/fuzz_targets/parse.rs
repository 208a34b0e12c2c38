//! Any bytes through the parser and every view of its answer.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::{L3, L4, checksum, ecn, nd, parse, roce, vxlan};

fuzz_target!(|frame: &[u8]| {
    let Ok(parsed) = parse(frame) else { return };
    let (l3, l4, end) =
        (usize::from(parsed.l3_offset), usize::from(parsed.l4_offset), usize::from(parsed.end));
    assert!(14 <= l3 && l3 <= l4 && l4 <= end && end <= frame.len());
    assert_eq!(parsed.arp(frame).is_some(), parsed.l3 == L3::Arp);
    assert_eq!(parsed.ipv4(frame).is_some(), parsed.l3 == L3::Ipv4);
    assert_eq!(parsed.ipv6(frame).is_some(), parsed.l3 == L3::Ipv6);
    assert_eq!(parsed.tcp(frame).is_some(), parsed.l4 == L4::Tcp);
    assert_eq!(parsed.udp(frame).is_some(), parsed.is_udp());
    assert_eq!(parsed.sctp(frame).is_some(), parsed.l4 == L4::Sctp);
    assert_eq!(parsed.icmp(frame).is_some(), matches!(parsed.l4, L4::Icmp | L4::Icmpv6));
    assert_eq!(parsed.bth(frame).map_or(0, roce::Bth::dest_qp), parsed.dest_qp);
    let _ = (parsed.udp_payload(frame), parsed.tcp_payload(frame), parsed.roce_payload(frame));
    let _ = parsed.roce_header::<roce::Reth>(frame, roce::Headers::RETH);
    let _ = (parsed.icmp_identifier(frame), parsed.quoted(frame), checksum::verify_l4(frame, &parsed));
    if let Ok(Some(message)) = nd::Message::parse(parsed.l4_bytes(frame)) {
        assert!(message.options().count() <= frame.len() / 8 + 1);
    }
    if let Ok(inner) = vxlan::decap(frame, &parsed) {
        let _ = parse(&frame[inner.offset.into()..inner.end.into()]);
    }
    let mut copy = frame.to_vec();
    if ecn::set_tos(&mut copy, &parsed, 0x55) {
        assert_eq!(parsed.tos(&copy), Some(0x55));
    }
    if checksum::fill_l4(&mut copy, &parsed) {
        assert_eq!(checksum::verify_l4(&copy, &parsed), checksum::Check::Right);
    }
    assert_eq!(parse(&copy), Ok(parsed));
    // Views of another frame answer with something or nothing.
    let half = &frame[..frame.len() / 2];
    let _ = (parsed.tos(half), parsed.bth(half), parsed.quoted(half), checksum::verify_l4(half, &parsed));
});
