//! The invariant CRC of RoCEv2 (InfiniBand Architecture Specification volume 1, annex A17, section 3).
//!
//! CRC-32 (the Ethernet polynomial) over eight bytes of ones and the packet from its IP header on, in which the
//! fields that may change on the way count as ones: TOS or traffic class, flow label, TTL, the IPv4 and UDP
//! checksums, and the BTH byte with FECN and BECN. It covers the rest: IP identification and lengths, the UDP ports.
//! Sent least significant byte first.
//!
//! Cost, x86-64: about 0.6 cycles a byte by tables, and 0.15 with the crate's feature `std`, which finds out whether
//! the processor has a carry-less multiply (or, on Arm, CRC instructions).
//!
//! IPv4 options are covered as they stand. So are IPv6 extension headers; annex A17 does not foresee them.

use crate::{
    Fragment, L3, L4, Parsed,
    roce::{BTH_LEN, ICRC_LEN},
    udp,
};
use crc32fast::Hasher;

/// Longest IPv4 header, UDP header and BTH, or IPv6 and no more than 20 bytes of extensions; longer heads are
/// hashed piece by piece.
const MAX_HEAD: usize = 60 + udp::HEADER_LEN + BTH_LEN;

/// What a look at an ICRC can say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Check {
    /// Right.
    Right,
    /// Wrong: the packet was changed on the way or is forged; nothing in it may change a state.
    Wrong,
    /// Cannot be said: a fragment, or not RoCEv2.
    Unknown,
}

/// The ICRC, in wire order, of a RoCEv2 packet that starts with its IP header and whose UDP header starts at
/// `l4_offset` (at least the length of that IP header). The packet ends where the ICRC will start.
///
/// `None` if it is neither IPv4 nor IPv6 or ends inside the BTH.
pub fn compute(packet: &[u8], l4_offset: usize) -> Option<[u8; ICRC_LEN]> {
    let masked = match packet.first()? >> 4 {
        4 => mask_ipv4,
        6 => mask_ipv6,
        _ => return None,
    };
    let fixed = if packet[0] >> 4 == 4 { crate::ipv4::HEADER_LEN } else { crate::ipv6::HEADER_LEN };
    if l4_offset < fixed {
        return None;
    }
    let head_len = l4_offset.checked_add(udp::HEADER_LEN + BTH_LEN)?;
    let (head, rest) = packet.split_at_checked(head_len)?;
    let mut crc = Hasher::new();
    crc.update(&[0xff; 8]);
    if head_len <= MAX_HEAD {
        let mut copy = [0; MAX_HEAD];
        let copy = &mut copy[..head_len];
        copy.copy_from_slice(head);
        masked(copy);
        mask_l4(&mut copy[l4_offset..]);
        crc.update(copy);
    } else {
        let (mut ip, mut l4) = ([0; crate::ipv6::HEADER_LEN], [0; udp::HEADER_LEN + BTH_LEN]);
        ip[..fixed].copy_from_slice(&head[..fixed]);
        l4.copy_from_slice(&head[l4_offset..]);
        masked(&mut ip[..fixed]);
        mask_l4(&mut l4);
        crc.update(&ip[..fixed]);
        crc.update(&head[fixed..l4_offset]);
        crc.update(&l4);
    }
    crc.update(rest);
    Some(crc.finalize().to_le_bytes())
}

/// Checks the ICRC of the frame that `parsed` was made from.
pub fn verify(frame: &[u8], parsed: &Parsed) -> Check {
    let Some((packet, l4_offset)) = packet(frame, parsed) else { return Check::Unknown };
    let Some((covered, icrc)) = packet.split_last_chunk::<ICRC_LEN>() else { return Check::Unknown };
    match compute(covered, l4_offset) {
        Some(right) if right == *icrc => Check::Right,
        Some(_) => Check::Wrong,
        None => Check::Unknown,
    }
}

/// Writes the ICRC into its place after a covered field was changed; false, and nothing written, where
/// [`verify`] says [`Check::Unknown`].
pub fn fill(frame: &mut [u8], parsed: &Parsed) -> bool {
    let Some((whole, l4_offset)) = packet(frame, parsed) else { return false };
    let Some((covered, _)) = whole.split_last_chunk::<ICRC_LEN>() else { return false };
    let Some(icrc) = compute(covered, l4_offset) else { return false };
    let at = usize::from(parsed.l3_offset) + covered.len();
    match frame.get_mut(at..at + ICRC_LEN) {
        Some(field) => field.copy_from_slice(&icrc),
        None => return false,
    }
    true
}

/// The packet from its IP header to the end of UDP by UDP's own length, and where in it UDP starts.
fn packet<'a>(frame: &'a [u8], parsed: &Parsed) -> Option<(&'a [u8], usize)> {
    if parsed.l4 != L4::Roce || parsed.fragment != Fragment::None || parsed.l3 == L3::Other {
        return None;
    }
    let l4_offset = usize::from(parsed.l4_offset.checked_sub(parsed.l3_offset)?);
    let udp_len = usize::from(parsed.udp(frame)?.len.get());
    Some((parsed.l3_bytes(frame).get(..l4_offset + udp_len)?, l4_offset))
}

fn mask_ipv4(header: &mut [u8]) {
    header[1] = 0xff;
    header[8] = 0xff;
    header[10..12].fill(0xff);
}

fn mask_ipv6(header: &mut [u8]) {
    header[0] |= 0x0f;
    header[1..4].fill(0xff);
    header[7] = 0xff;
}

/// UDP checksum, and FECN, BECN and the reserved bits beside them.
fn mask_l4(header: &mut [u8]) {
    header[6..8].fill(0xff);
    header[udp::HEADER_LEN + 4] = 0xff;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;
    use proptest::prelude::*;
    use std::vec::Vec;

    /// The definition, bit by bit, over a masked copy of the whole packet.
    fn slow(packet: &[u8], l4_offset: usize) -> [u8; 4] {
        let mut masked = packet.to_vec();
        let is_ipv4 = packet[0] >> 4 == 4;
        masked[0] |= if is_ipv4 { 0 } else { 0x0f };
        let ip = if is_ipv4 { [1, 8, 10, 11] } else { [1, 2, 3, 7] };
        for at in ip.into_iter().chain([6, 7, 12].map(|at| l4_offset + at)) {
            masked[at] = 0xff;
        }
        let mut crc = u32::MAX;
        for byte in [0xff; 8].iter().chain(&masked) {
            crc ^= u32::from(*byte);
            for _ in 0..8 {
                crc = if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
            }
        }
        (!crc).to_le_bytes()
    }

    proptest! {
        /// Heads of any length: in one piece and, behind many extension headers, in several.
        #[test]
        fn as_bit_by_bit(
            is_ipv6: bool,
            options in 0usize..100,
            mut packet in proptest::collection::vec(any::<u8>(), 160..300),
        ) {
            packet[0] = packet[0] & 0x0f | if is_ipv6 { 0x60 } else { 0x40 };
            let l4_offset = if is_ipv6 { 40 } else { 20 } + options;
            prop_assert_eq!(compute(&packet, l4_offset), Some(slow(&packet, l4_offset)));
        }
    }

    /// A CNP of a ConnectX-4 Lx: 74 bytes, published with the RoCE tests of scapy (test/contrib/roce.uts).
    fn cnp() -> Vec<u8> {
        let mut frame = [
            &[0xe4, 0x1d, 0x2d, 0xab, 0x2b, 0xc2, 0x7c, 0xfe, 0x90, 0x64, 0x3b, 0x32, 0x08, 0x00][..],
            &[0x45, 0xc2, 0x00, 0x3c, 0x71, 0x8c, 0x40, 0x00, 0x40, 0x11, 0x91, 0x61, 0x0a, 0x00, 0x11, 0x01],
            &[0x0a, 0x00, 0x12, 0x01, 0x00, 0x00, 0x12, 0xb7, 0x00, 0x28, 0x00, 0x00],
            &[0x81, 0x00, 0xff, 0xff, 0x40, 0x00, 0x01, 0x18, 0x00, 0x00, 0x00, 0x00],
        ]
        .concat();
        frame.extend_from_slice(&[0; 16]);
        frame.extend_from_slice(&[0x82, 0xfd, 0x00, 0x2a]);
        frame
    }

    #[test]
    fn a_real_adapters_icrc() {
        let frame = cnp();
        let parsed = parse(&frame).unwrap();
        assert_eq!(parsed.dest_qp, 0x118);
        assert_eq!(compute(&frame[14..70], 20), Some([0x82, 0xfd, 0x00, 0x2a]));
        assert_eq!(verify(&frame, &parsed), Check::Right);
    }

    #[test]
    fn what_it_covers() {
        let right = cnp();
        let parsed = parse(&right).unwrap();
        // TOS, TTL, IP checksum, UDP checksum, FECN and BECN may change; nothing else may.
        let free = [15, 22, 24, 25, 40, 41, 46];
        for at in 14..right.len() {
            let mut frame = right.clone();
            frame[at] ^= 0x01;
            if frame[at] != right[at] && [14, 16, 17, 23, 36, 37, 38, 39].contains(&at) {
                continue; // Version, lengths, protocol and port: not this packet any more.
            }
            let expected = if free.contains(&at) { Check::Right } else { Check::Wrong };
            assert_eq!(verify(&frame, &parsed), expected, "byte {at}");
        }
    }

    #[test]
    fn fill_repairs() {
        let mut frame = cnp();
        let parsed = parse(&frame).unwrap();
        frame[35] = 7;
        assert_eq!(verify(&frame, &parsed), Check::Wrong);
        assert!(fill(&mut frame, &parsed));
        assert_eq!(verify(&frame, &parsed), Check::Right);
    }

    #[test]
    fn short_packets_have_none() {
        let frame = cnp();
        for len in 0..40 {
            assert_eq!(compute(&frame[14..14 + len], 20), None, "{len} bytes");
        }
        assert_eq!(compute(&frame[14..70], 19), None);
        assert_eq!(compute(&frame[14..70], usize::MAX), None);
        assert_eq!(compute(&frame[..70], 20), None, "not an IP packet");
    }
}
