//! Tunnel headers: stamped and read back, and any bytes taken for a tunnel packet.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::{
    Mac, checksum, ecn, parse,
    vxlan::{self, Addresses, Outer, Template, Vni},
};

fuzz_target!(|input: (bool, u32, u16, u8, &[u8])| {
    let (is_ipv6, vni, src_port, tos, bytes) = input;
    taken_for_a_tunnel_packet(bytes);
    let addresses = if is_ipv6 {
        Addresses::V6 { src: [0xfd; 16], dst: [0xfe; 16] }
    } else {
        Addresses::V4 { src: [192, 0, 2, 1], dst: [192, 0, 2, 2] }
    };
    let Some(vni) = Vni::new(vni) else { return };
    let outer = Outer::new(Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2]), addresses, vni);
    let template = Template::new(&outer);
    let mut frame = vec![0; template.len()];
    frame.extend_from_slice(bytes);
    if !template.stamp(&mut frame, src_port, tos) {
        assert!(bytes.len() < 14 || frame.len() > 65_535);
        return;
    }
    let parsed = parse(&frame).expect("a right frame");
    let inner = vxlan::decap(&frame, &parsed).expect("a right tunnel packet");
    assert_eq!((inner.vni, &frame[inner.offset.into()..inner.end.into()]), (vni, bytes));
    assert_eq!((parsed.tos(&frame), parsed.src_port, parsed.dst_port), (Some(tos), src_port, vxlan::PORT));
    let right = if is_ipv6 { checksum::Check::Right } else { checksum::Check::Absent };
    assert_eq!(checksum::verify_l4(&frame, &parsed), right);
    assert!(is_ipv6 || checksum::ipv4_header_is_right(parsed.l3_bytes(&frame)));
});

fn taken_for_a_tunnel_packet(frame: &[u8]) {
    let Ok(parsed) = parse(frame) else { return };
    let Ok(inner) = vxlan::decap(frame, &parsed) else { return };
    let outer_tos = parsed.tos(frame).expect("IP");
    let mut inner = frame[inner.offset.into()..inner.end.into()].to_vec();
    let Ok(parsed) = parse(&inner) else { return };
    let before = parsed.tos(&inner).map(ecn::Ecn::of);
    if ecn::apply_decap(&mut inner, &parsed, outer_tos) {
        let after = parsed.tos(&inner).map(ecn::Ecn::of);
        assert_eq!(after, before.and_then(|ecn| ecn::decap(ecn, ecn::Ecn::of(outer_tos))));
    }
}
