//! DSCP (RFC 2474) and ECN (RFC 3168) in place, and what a tunnel does with them (RFC 6040).

use crate::{L3, Parsed, checksum, ipv4::Ipv4, ipv6::Ipv6};
use zerocopy::FromBytes;

/// The ECN field: the lower two bits of the TOS byte or traffic class (RFC 3168, section 5).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Ecn {
    /// The endpoints do not know ECN.
    NotEct = 0,
    /// ECN-capable, codepoint 1; L4S (RFC 9331).
    Ect1 = 1,
    /// ECN-capable, codepoint 0.
    Ect0 = 2,
    /// Congestion experienced.
    Ce = 3,
}

impl Ecn {
    /// The ECN field of a TOS byte or traffic class.
    pub const fn of(tos: u8) -> Self {
        match tos & 3 {
            0 => Self::NotEct,
            1 => Self::Ect1,
            2 => Self::Ect0,
            _ => Self::Ce,
        }
    }

    /// `tos` with this ECN field.
    pub const fn in_tos(self, tos: u8) -> u8 {
        tos & !3 | self as u8
    }

    /// True if the endpoints know ECN, so that congestion may be marked.
    pub const fn is_capable(self) -> bool {
        !matches!(self, Self::NotEct)
    }
}

/// The outer TOS byte of a tunnel packet: DSCP and ECN of the inner one, in normal mode (RFC 6040, section 4.1;
/// uniform model of RFC 2983).
pub const fn encap(inner_tos: u8) -> u8 {
    inner_tos
}

/// The inner ECN field after the outer header is taken off (RFC 6040, figure 4); `None` means drop: congestion
/// was marked on a packet whose endpoints cannot be told.
pub const fn decap(inner: Ecn, outer: Ecn) -> Option<Ecn> {
    Some(match (inner, outer) {
        (Ecn::NotEct, Ecn::Ce) => return None,
        (Ecn::NotEct, _) => Ecn::NotEct,
        (_, Ecn::Ce) | (Ecn::Ce, _) => Ecn::Ce,
        (Ecn::Ect0, Ecn::Ect1) => Ecn::Ect1,
        (inner, _) => inner,
    })
}

/// True for the pairs that no right tunnel and network give, marked "!!!" in RFC 6040, figure 4: worth a count.
pub const fn is_suspect(inner: Ecn, outer: Ecn) -> bool {
    matches!((inner, outer), (Ecn::NotEct, Ecn::Ect0 | Ecn::Ect1 | Ecn::Ce) | (Ecn::Ce, Ecn::Ect1))
}

/// Sets the whole TOS byte or traffic class of the IP packet that `parsed` found in `frame`, and updates the IPv4
/// header checksum incrementally. False, and nothing written, if there is no IP packet.
#[inline]
pub fn set_tos(frame: &mut [u8], parsed: &Parsed, tos: u8) -> bool {
    let Some(packet) = frame.get_mut(usize::from(parsed.l3_offset)..) else { return false };
    match parsed.l3 {
        L3::Ipv4 => set_tos_ipv4(packet, tos),
        L3::Ipv6 => set_traffic_class(packet, tos),
        L3::Other | L3::Arp => false,
    }
}

/// Sets the ECN field, and leaves the DSCP alone. See [`set_tos`].
#[inline]
pub fn set_ecn(frame: &mut [u8], parsed: &Parsed, ecn: Ecn) -> bool {
    match parsed.tos(frame) {
        Some(tos) => set_tos(frame, parsed, ecn.in_tos(tos)),
        None => false,
    }
}

/// Sets the DSCP, 0 to 63 (higher bits are ignored), and leaves the ECN field alone. See [`set_tos`].
#[inline]
pub fn set_dscp(frame: &mut [u8], parsed: &Parsed, dscp: u8) -> bool {
    match parsed.tos(frame) {
        Some(tos) => set_tos(frame, parsed, dscp << 2 | tos & 3),
        None => false,
    }
}

/// Takes the outer header's mark into the inner packet (RFC 6040, section 4.2). False means drop the packet:
/// [`decap`] says so, or it holds no IP packet to mark and the outer header says CE.
#[inline]
pub fn apply_decap(frame: &mut [u8], parsed: &Parsed, outer_tos: u8) -> bool {
    let outer = Ecn::of(outer_tos);
    let Some(tos) = parsed.tos(frame) else { return outer != Ecn::Ce };
    let inner = Ecn::of(tos);
    match decap(inner, outer) {
        Some(ecn) if ecn == inner => true,
        Some(ecn) => set_tos(frame, parsed, ecn.in_tos(tos)),
        None => false,
    }
}

/// Sets the TOS byte of the IPv4 packet that starts `packet`, checksum and all.
pub fn set_tos_ipv4(packet: &mut [u8], tos: u8) -> bool {
    let Ok((header, _)) = Ipv4::mut_from_prefix(packet) else { return false };
    let old = u16::from_be_bytes([header.version_ihl, header.tos]);
    let new = u16::from_be_bytes([header.version_ihl, tos]);
    header.checksum.set(checksum::update(header.checksum.get(), old, new));
    header.tos = tos;
    true
}

/// Sets the traffic class of the IPv6 packet that starts `packet`.
pub fn set_traffic_class(packet: &mut [u8], class: u8) -> bool {
    let Ok((header, _)) = Ipv6::mut_from_prefix(packet) else { return false };
    let word = header.version_class_label.get();
    header.version_class_label.set(word & 0xf00f_ffff | u32::from(class) << 20);
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use Ecn::{Ce, Ect0, Ect1, NotEct};

    #[test]
    fn rfc_6040_figure_4() {
        let outers = [NotEct, Ect0, Ect1, Ce];
        for (inner, results) in [
            (NotEct, [Some(NotEct), Some(NotEct), Some(NotEct), None]),
            (Ect0, [Some(Ect0), Some(Ect0), Some(Ect1), Some(Ce)]),
            (Ect1, [Some(Ect1), Some(Ect1), Some(Ect1), Some(Ce)]),
            (Ce, [Some(Ce), Some(Ce), Some(Ce), Some(Ce)]),
        ] {
            for (outer, result) in outers.into_iter().zip(results) {
                assert_eq!(decap(inner, outer), result, "inner {inner:?}, outer {outer:?}");
            }
        }
    }

    #[test]
    fn traffic_class_spans_two_bytes() {
        let mut packet = [0u8; 40];
        packet[..4].copy_from_slice(&[0x60, 0x0a, 0xbc, 0xde]);
        assert!(set_traffic_class(&mut packet, 0xb9));
        assert_eq!(packet[..4], [0x6b, 0x9a, 0xbc, 0xde]);
        let (header, _) = Ipv6::ref_from_prefix(&packet).unwrap();
        assert_eq!((header.traffic_class(), header.flow_label()), (0xb9, 0xabcde));
    }

    #[test]
    fn dscp_and_ecn_are_apart() {
        let mut frame = [0u8; 34];
        frame[12..14].copy_from_slice(&[0x08, 0x00]);
        frame[14..24].copy_from_slice(&[0x45, 0x02, 0, 20, 0, 1, 0, 0, 64, 253]);
        assert!(checksum::fill_ipv4_header(&mut frame[14..]));
        let parsed = crate::parse(&frame).unwrap();
        assert!(set_dscp(&mut frame, &parsed, 48));
        assert_eq!(parsed.tos(&frame), Some(0xc2));
        assert!(set_ecn(&mut frame, &parsed, Ce));
        assert_eq!(parsed.tos(&frame), Some(0xc3));
        assert!(checksum::ipv4_header_is_right(&frame[14..]));
    }
}
