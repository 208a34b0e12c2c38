//! The internet checksum (RFC 1071), its incremental update (RFC 1624) and the places that carry it.
//!
//! Sums are of big-endian 16-bit words in ones' complement. A header or segment that contains a right checksum
//! sums to 0xffff.

use crate::{
    Fragment, L3, L4, Parsed, icmp,
    ipv4::{Ipv4, protocol},
};
use zerocopy::{FromBytes, network_endian::U16};

/// A running sum, not yet folded. 32 bits of carries are room for 2^32 words.
#[derive(Clone, Copy, Default, Debug)]
pub struct Sum(u64);

impl Sum {
    /// The empty sum.
    pub const ZERO: Self = Self(0);

    /// Adds the bytes; an odd one at the end counts as if a zero followed (RFC 1071, section 1). Only the last
    /// slice added may have odd length.
    pub fn add_bytes(mut self, bytes: &[u8]) -> Self {
        let mut words = bytes.chunks_exact(4);
        for word in &mut words {
            // Two 16-bit words at once: 2^16 is 1 in ones' complement, so a word of 32 bits sums like its halves.
            self.0 += u64::from(u32::from_be_bytes([word[0], word[1], word[2], word[3]]));
        }
        let mut last = [0; 4];
        for (to, from) in last.iter_mut().zip(words.remainder()) {
            *to = *from;
        }
        self.0 += u64::from(u32::from_be_bytes(last));
        self
    }

    /// Adds one word.
    pub const fn add_u16(self, word: u16) -> Self {
        Self(self.0 + word as u64)
    }

    /// Adds two words.
    pub const fn add_u32(self, words: u32) -> Self {
        Self(self.0 + words as u64)
    }

    /// The sum folded to 16 bits. Without a branch: how often there is a carry differs from packet to packet.
    pub const fn fold(self) -> u16 {
        let sum = (self.0 >> 32) + (self.0 & 0xffff_ffff);
        // Of 33 bits, then of 18, then at most 3 above 16.
        let sum = (sum >> 16) + (sum & 0xffff);
        let sum = (sum >> 16) + (sum & 0xffff);
        ((sum >> 16) + (sum & 0xffff)) as u16
    }

    /// The checksum: the complement of the folded sum.
    pub const fn checksum(self) -> u16 {
        !self.fold()
    }
}

/// The checksum of `bytes`, in which the checksum field must be zero.
pub fn internet(bytes: &[u8]) -> u16 {
    Sum::ZERO.add_bytes(bytes).checksum()
}

/// A checksum after one 16-bit word under it changed from `old` to `new` (RFC 1624, equation 3).
///
/// Equation 3 is right where equation 4 of RFC 1141 is not: the answer 0x0000 stays 0x0000 and is not written as
/// 0xffff.
pub const fn update(checksum: u16, old: u16, new: u16) -> u16 {
    Sum(!checksum as u64 + !old as u64 + new as u64).checksum()
}

/// [`update`] for two words.
pub const fn update_u32(checksum: u16, old: u32, new: u32) -> u16 {
    let old = Sum(!old as u64);
    Sum(!checksum as u64 + old.fold() as u64 + Sum(new as u64).fold() as u64).checksum()
}

/// The UDP form of a checksum: a computed 0x0000 is sent as 0xffff, as zero means "not computed" (RFC 768).
pub const fn udp_form(checksum: u16) -> u16 {
    if checksum == 0 { 0xffff } else { checksum }
}

/// True if the header checksum of the IPv4 packet that starts `packet` is right; false for a cut header too.
pub fn ipv4_header_is_right(packet: &[u8]) -> bool {
    ipv4_header(packet).is_some_and(|header| Sum::ZERO.add_bytes(header).fold() == 0xffff)
}

/// Writes the header checksum of the IPv4 packet that starts `packet`; false, and nothing written, if the header
/// is cut.
pub fn fill_ipv4_header(packet: &mut [u8]) -> bool {
    let Some(len) = ipv4_header(packet).map(<[u8]>::len) else { return false };
    let header = &mut packet[..len];
    header[10..12].fill(0);
    let checksum = internet(header);
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    true
}

fn ipv4_header(packet: &[u8]) -> Option<&[u8]> {
    let (header, _) = Ipv4::ref_from_prefix(packet).ok()?;
    let len = header.header_len();
    if len < size_of::<Ipv4>() { None } else { packet.get(..len) }
}

/// The sum of an IPv4 pseudo header (RFC 9293, section 3.1). `len` is that of L4 header and data, bytes.
pub fn pseudo_ipv4(src: [u8; 4], dst: [u8; 4], protocol: u8, len: u16) -> Sum {
    Sum::ZERO.add_bytes(&src).add_bytes(&dst).add_u16(u16::from(protocol)).add_u16(len)
}

/// The sum of an IPv6 pseudo header (RFC 8200, section 8.1). `len` is that of L4 header and data, bytes.
pub fn pseudo_ipv6(src: &[u8; 16], dst: &[u8; 16], next_header: u8, len: u32) -> Sum {
    Sum::ZERO.add_bytes(src).add_bytes(dst).add_u32(len).add_u16(u16::from(next_header))
}

/// What a look at an L4 checksum can say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Check {
    /// Right.
    Right,
    /// Wrong.
    Wrong,
    /// UDP without one: the sender's choice over IPv4; over IPv6 for tunnels only (RFC 8200, section 8.1; RFC 6935),
    /// which the caller knows.
    Absent,
    /// Cannot be said: a fragment, a protocol the parser does not read, SCTP (CRC32c), or an IPv6 destination
    /// that a routing header changes on the way.
    Unknown,
}

/// Checks the TCP, UDP, ICMP or ICMPv6 checksum of the frame that `parsed` was made from.
pub fn verify_l4(frame: &[u8], parsed: &Parsed) -> Check {
    let Some((bytes, at, pseudo)) = l4_parts(frame, parsed) else { return Check::Unknown };
    if parsed.is_udp() && bytes.get(at..at + 2) == Some(&[0, 0]) {
        return Check::Absent;
    }
    if pseudo.add_bytes(bytes).fold() == 0xffff { Check::Right } else { Check::Wrong }
}

/// Writes the TCP, UDP, ICMP or ICMPv6 checksum; false, and nothing written, where [`verify_l4`] says
/// [`Check::Unknown`].
pub fn fill_l4(frame: &mut [u8], parsed: &Parsed) -> bool {
    let Some((bytes, at, pseudo)) = l4_parts(frame, parsed) else { return false };
    let Some((before, rest)) = bytes.split_at_checked(at) else { return false };
    let Some((_, behind)) = rest.split_at_checked(2) else { return false };
    let sum = pseudo.add_bytes(before).add_bytes(behind);
    let checksum = if parsed.is_udp() { udp_form(sum.checksum()) } else { sum.checksum() };
    let at = usize::from(parsed.l4_offset) + at;
    match frame.get_mut(at..at + 2) {
        Some(field) => field.copy_from_slice(&checksum.to_be_bytes()),
        None => return false,
    }
    true
}

/// The bytes a checksum covers, where in them it stands, and the sum of the pseudo header.
fn l4_parts<'a>(frame: &'a [u8], parsed: &Parsed) -> Option<(&'a [u8], usize, Sum)> {
    if parsed.fragment != Fragment::None || parsed.flags.contains(crate::Flags::ROUTING) {
        return None;
    }
    let bytes = parsed.l4_bytes(frame);
    let (bytes, at, protocol) = match parsed.l4 {
        L4::Tcp => (bytes, 16, protocol::TCP),
        L4::Udp | L4::Roce => {
            let len = usize::from(parsed.udp(frame)?.len.get());
            (bytes.get(..len)?, 6, protocol::UDP)
        }
        L4::Icmp => return Some((bytes, 2, Sum::ZERO)),
        L4::Icmpv6 => (bytes, 2, protocol::ICMPV6),
        L4::None | L4::Unknown | L4::Sctp => return None,
    };
    let pseudo = match parsed.l3 {
        L3::Ipv4 => parsed.ipv4(frame).map(|ip| pseudo_ipv4(ip.src, ip.dst, protocol, bytes.len() as u16)),
        L3::Ipv6 => parsed.ipv6(frame).map(|ip| pseudo_ipv6(&ip.src, &ip.dst, protocol, bytes.len() as u32)),
        L3::Other | L3::Arp => None,
    }?;
    Some((bytes, at, pseudo))
}

/// Writes the checksum of an ICMP message into it; `pseudo` is [`Sum::ZERO`] but for ICMPv6.
pub(crate) fn fill_icmp(message: &mut [u8], pseudo: Sum) {
    if let Ok((header, _)) = icmp::Icmp::mut_from_prefix(message) {
        header.checksum = U16::ZERO;
    }
    let checksum = pseudo.add_bytes(message).checksum();
    if let Ok((header, _)) = icmp::Icmp::mut_from_prefix(message) {
        header.checksum.set(checksum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;
    use proptest::prelude::*;
    use std::vec::Vec;

    /// RFC 1071, section 1, word by word.
    fn slow(bytes: &[u8]) -> u16 {
        let mut sum = 0u32;
        for pair in bytes.chunks(2) {
            sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    #[test]
    fn rfc_1071_example() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(Sum::ZERO.add_bytes(&bytes).fold(), 0xddf2);
    }

    #[test]
    fn rfc_1624_example() {
        // Section 4: a checksum of 0xdd2f, a word that goes from 0x5555 to 0x3285.
        assert_eq!(update(0xdd2f, 0x5555, 0x3285), 0x0000);
    }

    #[test]
    fn udp_zero_is_sent_as_ones() {
        assert_eq!(udp_form(0), 0xffff);
        assert_eq!(udp_form(0x1234), 0x1234);
        let mut frame = [0u8; 60];
        frame[12..14].copy_from_slice(&[0x08, 0x00]);
        frame[14..24].copy_from_slice(&[0x45, 0, 0, 30, 0, 0, 0, 0, 64, 17]);
        frame[34..40].copy_from_slice(&[0x04, 0x00, 0, 53, 0, 10]);
        let parsed = parse(&frame).unwrap();
        assert_eq!(verify_l4(&frame, &parsed), Check::Absent);
        // The two bytes of data make the sum 0xffff.
        let rest = pseudo_ipv4([0; 4], [0; 4], 17, 10).add_bytes(&frame[34..42]).checksum();
        frame[42..44].copy_from_slice(&rest.to_be_bytes());
        assert!(fill_l4(&mut frame, &parsed));
        assert_eq!(frame[40..42], [0xff, 0xff]);
        assert_eq!(verify_l4(&frame, &parsed), Check::Right);
    }

    proptest! {
        #[test]
        fn sums_as_word_by_word(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            // Zero and minus zero are the same sum; only the empty or all-zero input folds to 0.
            prop_assert_eq!(Sum::ZERO.add_bytes(&bytes).fold(), slow(&bytes));
        }

        #[test]
        fn an_update_is_as_good_as_a_new_sum(
            mut words in proptest::collection::vec(prop_oneof![any::<u16>(), Just(0u16), Just(0xffffu16)], 2..10),
            new in prop_oneof![any::<u32>(), Just(0u32), Just(u32::MAX)],
        ) {
            // No header is all zeroes, the one case where the two forms of zero differ.
            words.push(0x4500);
            let bytes = |words: &[u16]| words.iter().flat_map(|w| w.to_be_bytes()).collect::<Vec<_>>();
            let before = internet(&bytes(&words));
            let old = u32::from(words[0]) << 16 | u32::from(words[1]);
            let mid = update(before, words[0], (new >> 16) as u16);
            let both = update_u32(before, old, new);
            (words[0], words[1]) = ((new >> 16) as u16, new as u16);
            let after = internet(&bytes(&words));
            prop_assert_eq!(both, after);
            prop_assert_eq!(update(mid, old as u16, new as u16), after);
        }
    }
}
