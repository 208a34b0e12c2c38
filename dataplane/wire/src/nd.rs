//! Neighbour discovery for IPv6 (RFC 4861): the messages behind the ICMPv6 type, and their options.

use crate::{Mac, Malformed, icmpv6};
use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned,
    network_endian::{U16, U32},
};

/// The hop limit every message must arrive with (RFC 4861, section 11.2): it came from the same link.
pub const HOP_LIMIT: u8 = 255;

/// Router solicitation (section 4.1).
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct RouterSolicitation {
    /// Type, code, checksum.
    pub head: Head,
    /// Reserved.
    pub reserved: U32,
}

/// Router advertisement (section 4.2).
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct RouterAdvertisement {
    /// Type, code, checksum.
    pub head: Head,
    /// Hop limit for the hosts to use; 0 for none.
    pub hop_limit: u8,
    /// Managed (0x80), other configuration (0x40), and flags of later RFCs.
    pub flags: u8,
    /// How long the sender is a default router; 0 for not at all, seconds.
    pub lifetime_s: U16,
    /// How long a neighbour stays reachable, milliseconds.
    pub reachable_ms: U32,
    /// Time between solicitations, milliseconds.
    pub retransmit_ms: U32,
}

/// Neighbour solicitation (section 4.3).
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct NeighbourSolicitation {
    /// Type, code, checksum.
    pub head: Head,
    /// Reserved.
    pub reserved: U32,
    /// Whose link-layer address is wanted.
    pub target: [u8; 16],
}

/// Neighbour advertisement (section 4.4).
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct NeighbourAdvertisement {
    /// Type, code, checksum.
    pub head: Head,
    /// [`ROUTER`](Self::ROUTER), [`SOLICITED`](Self::SOLICITED), [`OVERRIDE`](Self::OVERRIDE); the rest reserved.
    pub flags: U32,
    /// Whose link-layer address is told.
    pub target: [u8; 16],
}

impl NeighbourAdvertisement {
    /// The sender is a router.
    pub const ROUTER: u32 = 0x8000_0000;
    /// In answer to a solicitation.
    pub const SOLICITED: u32 = 0x4000_0000;
    /// Replaces what the receiver knows.
    pub const OVERRIDE: u32 = 0x2000_0000;
}

/// Redirect (section 4.5).
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Redirect {
    /// Type, code, checksum.
    pub head: Head,
    /// Reserved.
    pub reserved: U32,
    /// The better first hop.
    pub target: [u8; 16],
    /// For packets to this address.
    pub destination: [u8; 16],
}

/// The first four bytes of an ICMPv6 message.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Head {
    /// Type.
    pub kind: u8,
    /// Code: 0 in all of these.
    pub code: u8,
    /// Checksum.
    pub checksum: U16,
}

/// Option kinds (section 4.6).
pub mod option {
    /// Source link-layer address.
    pub const SOURCE_LINK_LAYER: u8 = 1;
    /// Target link-layer address.
    pub const TARGET_LINK_LAYER: u8 = 2;
    /// Prefix information.
    pub const PREFIX: u8 = 3;
    /// The packet that caused a redirect.
    pub const REDIRECTED: u8 = 4;
    /// MTU.
    pub const MTU: u8 = 5;
}

/// A message with its options still unread.
#[derive(Clone, Copy, Debug)]
pub enum Message<'a> {
    /// Router solicitation.
    RouterSolicitation(&'a RouterSolicitation, Options<'a>),
    /// Router advertisement.
    RouterAdvertisement(&'a RouterAdvertisement, Options<'a>),
    /// Neighbour solicitation.
    NeighbourSolicitation(&'a NeighbourSolicitation, Options<'a>),
    /// Neighbour advertisement.
    NeighbourAdvertisement(&'a NeighbourAdvertisement, Options<'a>),
    /// Redirect.
    Redirect(&'a Redirect, Options<'a>),
}

impl<'a> Message<'a> {
    /// Reads an ICMPv6 message; `None` if it is not of neighbour discovery.
    ///
    /// # Errors
    /// [`Malformed::NdCut`] if it ends inside its fixed part.
    pub fn parse(icmpv6: &'a [u8]) -> Result<Option<Self>, Malformed> {
        fn split<T>(bytes: &[u8]) -> Result<(&T, Options<'_>), Malformed>
        where
            T: FromBytes + KnownLayout + Immutable + Unaligned,
        {
            let (message, options) = T::ref_from_prefix(bytes).map_err(|_| Malformed::NdCut)?;
            Ok((message, Options { bytes: options }))
        }
        Ok(Some(match icmpv6.first() {
            Some(&icmpv6::ROUTER_SOLICITATION) => {
                let (message, options) = split(icmpv6)?;
                Self::RouterSolicitation(message, options)
            }
            Some(&icmpv6::ROUTER_ADVERTISEMENT) => {
                let (message, options) = split(icmpv6)?;
                Self::RouterAdvertisement(message, options)
            }
            Some(&icmpv6::NEIGHBOUR_SOLICITATION) => {
                let (message, options) = split(icmpv6)?;
                Self::NeighbourSolicitation(message, options)
            }
            Some(&icmpv6::NEIGHBOUR_ADVERTISEMENT) => {
                let (message, options) = split(icmpv6)?;
                Self::NeighbourAdvertisement(message, options)
            }
            Some(&icmpv6::REDIRECT) => {
                let (message, options) = split(icmpv6)?;
                Self::Redirect(message, options)
            }
            _ => return Ok(None),
        }))
    }

    /// The options, unread.
    pub const fn options(&self) -> Options<'a> {
        match self {
            Self::RouterSolicitation(_, options)
            | Self::RouterAdvertisement(_, options)
            | Self::NeighbourSolicitation(_, options)
            | Self::NeighbourAdvertisement(_, options)
            | Self::Redirect(_, options) => *options,
        }
    }
}

/// One option.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opt<'a> {
    /// Which: see [`option`].
    pub kind: u8,
    /// What follows kind and length: 6, 14, 22 ... bytes.
    pub data: &'a [u8],
}

/// Walks the options. Ends after the first error; each step takes at least 8 bytes, so the walk is bounded by the
/// message.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    bytes: &'a [u8],
}

impl<'a> Options<'a> {
    /// The Ethernet address in the first option of `kind` ([`option::SOURCE_LINK_LAYER`] or
    /// [`option::TARGET_LINK_LAYER`]).
    ///
    /// # Errors
    /// [`Malformed::NdOption`] if any option is wrong, before or behind: such a message is discarded as a whole
    /// (RFC 4861, section 6.1).
    pub fn link_layer(mut self, kind: u8) -> Result<Option<Mac>, Malformed> {
        self.try_fold(None, |found, opt| {
            let opt = opt?;
            let mac = || opt.data.first_chunk().filter(|_| opt.kind == kind).map(|bytes| Mac(*bytes));
            Ok(found.or_else(mac))
        })
    }
}

impl<'a> Iterator for Options<'a> {
    type Item = Result<Opt<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        let (kind, rest) = self.bytes.split_first()?;
        let len = rest.first().map_or(0, |units| usize::from(*units) * 8);
        let bytes = core::mem::take(&mut self.bytes);
        // A length of zero would never end (section 4.6).
        if len == 0 || len > bytes.len() {
            return Some(Err(Malformed::NdOption));
        }
        let (option, rest) = bytes.split_at(len);
        self.bytes = rest;
        Some(Ok(Opt { kind: *kind, data: &option[2..] }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{vec, vec::Vec};

    fn solicitation(options: &[u8]) -> Vec<u8> {
        let mut message = vec![0; 24];
        message[0] = icmpv6::NEIGHBOUR_SOLICITATION;
        message.extend_from_slice(options);
        message
    }

    fn source(options: &[u8]) -> Result<Option<Mac>, Malformed> {
        let bytes = solicitation(options);
        Message::parse(&bytes)?.unwrap().options().link_layer(option::SOURCE_LINK_LAYER)
    }

    #[test]
    fn link_layer_option() {
        let mac = Mac([2, 0, 0, 0, 0, 1]);
        assert_eq!(source(&[]), Ok(None));
        assert_eq!(source(&[1, 1, 2, 0, 0, 0, 0, 1]), Ok(Some(mac)));
        assert_eq!(source(&[5, 1, 0, 0, 0, 0, 5, 220, 1, 1, 2, 0, 0, 0, 0, 1]), Ok(Some(mac)));
        assert_eq!(source(&[2, 1, 2, 0, 0, 0, 0, 1]), Ok(None), "another kind");
    }

    #[test]
    fn wrong_options_end_the_walk() {
        assert_eq!(source(&[1, 0, 2, 0, 0, 0, 0, 1]), Err(Malformed::NdOption), "length 0");
        assert_eq!(source(&[1, 2, 2, 0, 0, 0, 0, 1]), Err(Malformed::NdOption), "cut");
        assert_eq!(source(&[1]), Err(Malformed::NdOption), "no length");
        let bytes = solicitation(&[1, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(Message::parse(&bytes).unwrap().unwrap().options().count(), 1);
    }

    #[test]
    fn cut_messages() {
        let bytes = solicitation(&[]);
        for len in 1..24 {
            assert_eq!(
                Message::parse(&bytes[..len]).map(|m| m.is_some()),
                Err(Malformed::NdCut),
                "{len} bytes"
            );
        }
        assert!(matches!(Message::parse(&[]), Ok(None)));
        assert!(matches!(Message::parse(&[128, 0, 0, 0, 0, 0, 0, 0]), Ok(None)));
    }
}
