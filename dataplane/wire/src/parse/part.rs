//! What a fragment says of itself.

use super::{Fragment, L3, Parsed, ipv6};
use crate::ipv4::{FRAGMENT_OFFSET, MF};

/// A fragment's place in its datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// Identification: 16 bits of IPv4, 32 of IPv6.
    pub id: u32,
    /// Where its data starts in that of the datagram, bytes.
    pub offset: u16,
    /// How much data it has, bytes.
    pub len: u16,
    /// False for the last fragment.
    pub more: bool,
}

impl Parsed {
    /// A fragment's place in its datagram; `None` for a packet that is none, an atomic one among them.
    pub fn part(&self, frame: &[u8]) -> Option<Part> {
        if self.fragment == Fragment::None {
            return None;
        }
        if let Some(header) = self.ipv4(frame) {
            let field = header.fragment.get();
            return Some(Part {
                id: header.id.get().into(),
                offset: (field & FRAGMENT_OFFSET) * 8,
                len: self.end.checked_sub(self.l4_offset)?,
                more: field & MF != 0,
            });
        }
        if self.l3 != L3::Ipv6 {
            return None;
        }
        let next = self.ipv6(frame)?.next_header;
        let payload = self.l3_bytes(frame).get(crate::ipv6::HEADER_LEN..)?;
        let (header, data) = ipv6::fragment_header(next, payload)?;
        Some(Part {
            id: header.id.get(),
            offset: header.offset(),
            len: u16::try_from(data.len()).ok()?,
            more: header.more(),
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::parse;
    use std::{vec, vec::Vec};

    fn ipv4(field: u16, data: &[u8]) -> Vec<u8> {
        let len = (20 + data.len()) as u8;
        let [high, low] = field.to_be_bytes();
        let header = [0x45, 0, 0, len, 0xbe, 0xef, high, low, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        [&[2; 12][..], &[8, 0], &header, data].concat()
    }

    fn ipv6(chain: &[u8], first: u8) -> Vec<u8> {
        let header = [&[0x60, 0, 0, 0, 0, chain.len() as u8, first, 64][..], &[0xfd; 32]].concat();
        [&[2; 12][..], &[0x86, 0xdd], &header, chain].concat()
    }

    fn part(frame: &[u8]) -> Option<(u32, u16, u16, bool)> {
        let part = parse(frame).unwrap().part(frame)?;
        Some((part.id, part.offset, part.len, part.more))
    }

    #[test]
    fn ipv4_counts_in_eights() {
        let udp = [0, 7, 0, 8, 0, 40, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
        assert_eq!(part(&ipv4(0x2000, &udp)), Some((0xbeef, 0, 16, true)));
        assert_eq!(part(&ipv4(0x2003, &udp)), Some((0xbeef, 24, 16, true)));
        assert_eq!(part(&ipv4(0x1ffd, &[1])), Some((0xbeef, 65_512, 1, false)));
        assert_eq!(part(&ipv4(0x4000, &[0, 7, 0, 8, 0, 8, 0, 0])), None);
        let padded = [ipv4(3, &[1, 2]), vec![0; 20]].concat();
        assert_eq!(part(&padded), Some((0xbeef, 24, 2, false)), "padding is no data");
    }

    #[test]
    fn ipv6_counts_from_behind_its_fragment_header() {
        let udp = [0, 7, 0, 8, 0, 40, 0, 0];
        let options = |next| [next, 0, 1, 4, 0, 0, 0, 0];
        let fragment = |next, offset_more: u16| {
            let [high, low] = offset_more.to_be_bytes();
            [next, 0, high, low, 0xde, 0xad, 0xbe, 0xef]
        };
        // Hop-by-hop options, fragment header, destination options, UDP: the options behind the fragment header are data.
        let first = ipv6(&[options(44), fragment(60, 1), options(17), udp].concat(), 0);
        assert_eq!(part(&first), Some((0xdead_beef, 0, 16, true)));
        let later = ipv6(&[&options(44)[..], &fragment(60, 16), &[1, 2, 3]].concat(), 0);
        assert_eq!(part(&later), Some((0xdead_beef, 16, 3, false)));
        let mut whole = udp;
        whole[5] = 8;
        assert_eq!(part(&ipv6(&[fragment(17, 0), whole].concat(), 44)), None, "atomic");
    }
}
