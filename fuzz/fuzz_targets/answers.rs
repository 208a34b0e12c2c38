//! Answers to any frame, into buffers of any size.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::{
    L3, Mac,
    build::{
        BuildError, IcmpError, Origin, arp_reply, icmp_error, neighbour_advertisement, neighbour_solicitation,
    },
    checksum::{self, Check},
    nd, parse,
};

const OWN: Mac = Mac([2, 0, 0, 0, 0, 1]);

fuzz_target!(|input: (u16, u16, u8, u32, &[u8])| {
    let (room, mtu, which, flags, frame) = input;
    let Ok(parsed) = parse(frame) else { return };
    let mut out = vec![0; usize::from(room % 2048)];
    let error = match which % 3 {
        0 => IcmpError::TooBig { mtu },
        1 => IcmpError::TimeExceeded,
        _ => IcmpError::Prohibited,
    };
    let ip = match parsed.l3 {
        L3::Ipv6 => [0xfd; 16].into(),
        _ => [10, 0, 0, 1].into(),
    };
    match icmp_error(&mut out, frame, &parsed, &Origin { mac: OWN, ip }, error) {
        Ok(len) => check(&out[..len]),
        // An IPv6 error and two tags.
        Err(BuildError::NoRoom) => assert!(out.len() < 14 + 8 + 1280),
        Err(BuildError::Unanswerable) => {}
    }
    if let Some(request) = parsed.arp(frame)
        && let Ok(len) = arp_reply(&mut out, request, OWN)
    {
        assert_eq!(parse(&out[..len]).map(|reply| reply.l3), Ok(L3::Arp));
    }
    let Ok(Some(nd::Message::NeighbourSolicitation(asked, _))) = nd::Message::parse(parsed.l4_bytes(frame))
    else {
        return;
    };
    let (Some(ip), Some(ethernet)) = (parsed.ipv6(frame), parsed.ethernet(frame)) else { return };
    if let Ok(len) = neighbour_advertisement(&mut out, OWN, asked.target, (ethernet.src, ip.src), flags) {
        check(&out[..len]);
    }
    if let Ok(len) = neighbour_solicitation(&mut out, OWN, ip.dst, asked.target) {
        check(&out[..len]);
    }
});

fn check(frame: &[u8]) {
    let parsed = parse(frame).expect("a right frame");
    assert_eq!(checksum::verify_l4(frame, &parsed), Check::Right);
    assert_eq!(usize::from(parsed.end), frame.len());
    assert!(parsed.quoted(frame).is_ok());
}
