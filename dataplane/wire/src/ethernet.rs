//! Ethernet II headers (IEEE 802.3-2018, section 3) and VLAN tags (IEEE 802.1Q-2018, section 9).

use crate::Mac;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, network_endian::U16};

/// Length of an untagged Ethernet header, bytes.
pub const HEADER_LEN: usize = 14;
/// Length of one VLAN tag, bytes.
pub const TAG_LEN: usize = 4;
/// The longest frame the parser takes, bytes: every offset fits 16 bits.
pub const MAX_FRAME_LEN: usize = u16::MAX as usize;
/// The shortest frame on a wire, without its check sequence (IEEE 802.3-2018, section 4.4.2), bytes.
pub const MIN_FRAME_LEN: usize = 60;

/// EtherType values (IANA registry "IEEE 802 Numbers").
pub mod ether_type {
    /// Below this the field is the length of an LLC frame (IEEE 802.3-2018, section 3.2.6).
    pub const FIRST: u16 = 0x0600;
    /// IPv4 (RFC 894).
    pub const IPV4: u16 = 0x0800;
    /// ARP (RFC 826).
    pub const ARP: u16 = 0x0806;
    /// Customer VLAN tag (IEEE 802.1Q).
    pub const VLAN: u16 = 0x8100;
    /// IPv6 (RFC 2464, section 3).
    pub const IPV6: u16 = 0x86dd;
    /// Service VLAN tag (IEEE 802.1ad).
    pub const SERVICE_VLAN: u16 = 0x88a8;
}

/// An untagged Ethernet II header.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Ethernet {
    /// Destination.
    pub dst: Mac,
    /// Source.
    pub src: Mac,
    /// [`ether_type`] of what follows: a tag's if the frame is tagged.
    pub ether_type: U16,
}

/// A VLAN tag as it stands on the wire behind the MAC addresses.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct VlanTag {
    /// Tag protocol: [`ether_type::VLAN`] or [`ether_type::SERVICE_VLAN`].
    pub tpid: U16,
    /// Tag control information.
    pub tci: U16,
}

/// One VLAN tag in host order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Tag {
    /// Tag protocol: [`ether_type::VLAN`] or [`ether_type::SERVICE_VLAN`].
    pub tpid: u16,
    /// Tag control information: priority (3 bits), drop eligible (1), VLAN identifier (12).
    pub tci: u16,
}

impl Tag {
    /// VLAN identifier, 0 to 4095; 0 is a priority tag, 4095 is reserved (IEEE 802.1Q-2018, table 9-2).
    pub const fn vid(self) -> u16 {
        self.tci & 0x0fff
    }

    /// Priority code point, 0 to 7.
    pub const fn pcp(self) -> u8 {
        (self.tci >> 13) as u8
    }

    /// Drop eligible indicator.
    pub const fn dei(self) -> bool {
        self.tci & 0x1000 != 0
    }
}

/// The VLAN tags of a frame, outermost first: at most [`Vlan::MAX`].
///
/// "No tag" and "a tag with VID 0" differ: the former has no [`outer`](Self::outer).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Vlan {
    tags: [Tag; Self::MAX],
    count: u8,
}

impl Vlan {
    /// Most tags understood.
    pub const MAX: usize = 2;
    /// An untagged frame.
    pub const NONE: Self = Self { tags: [Tag { tpid: 0, tci: 0 }; Self::MAX], count: 0 };

    /// The tags, outermost first.
    pub fn tags(&self) -> &[Tag] {
        self.tags.get(..usize::from(self.count)).unwrap_or(&[])
    }

    /// The tag next to the MAC addresses.
    pub const fn outer(&self) -> Option<Tag> {
        if self.count > 0 { Some(self.tags[0]) } else { None }
    }

    /// The second tag.
    pub const fn inner(&self) -> Option<Tag> {
        if self.count > 1 { Some(self.tags[1]) } else { None }
    }

    /// Number of tags, 0 to 2.
    pub const fn count(&self) -> u8 {
        self.count
    }

    /// True for no tag and for a single customer tag of VID 0, which only carries a priority
    /// (IEEE 802.1Q-2018, section 6.9.1).
    pub const fn is_native(&self) -> bool {
        match (self.outer(), self.inner()) {
            (None, _) => true,
            (Some(tag), None) => tag.vid() == 0 && tag.tpid == ether_type::VLAN,
            _ => false,
        }
    }

    /// Adds a tag inside the ones there; false if there is no room.
    pub(crate) fn push_inner(&mut self, tag: Tag) -> bool {
        let Some(slot) = self.tags.get_mut(usize::from(self.count)) else { return false };
        *slot = tag;
        self.count += 1;
        true
    }
}

/// True for the EtherTypes that announce a VLAN tag.
pub(crate) const fn is_tag(ether_type: u16) -> bool {
    matches!(ether_type, ether_type::VLAN | ether_type::SERVICE_VLAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tag_fields() {
        let tag = Tag { tpid: ether_type::VLAN, tci: 0xb00a };
        assert_eq!((tag.pcp(), tag.dei(), tag.vid()), (5, true, 10));
    }

    #[test]
    fn tag_zero_is_not_no_tag() {
        let mut vlan = Vlan::NONE;
        assert!(vlan.push_inner(Tag { tpid: ether_type::VLAN, tci: 0 }));
        assert_ne!(vlan, Vlan::NONE);
        assert!(vlan.is_native() && Vlan::NONE.is_native());
        assert!(vlan.push_inner(Tag { tpid: ether_type::VLAN, tci: 20 }));
        assert!(!vlan.is_native());
        assert!(!vlan.push_inner(Tag { tpid: ether_type::VLAN, tci: 30 }), "a third tag has no room");
        assert_eq!(vlan.tags().len(), 2);
    }
}
