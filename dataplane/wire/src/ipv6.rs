//! IPv6 (RFC 8200) and its extension headers.

use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned,
    network_endian::{U16, U32},
};

/// Length of the fixed header, bytes.
pub const HEADER_LEN: usize = 40;
/// Length of a fragment header, bytes.
pub const FRAGMENT_LEN: usize = 8;
/// The most extension headers the parser walks; one more is refused.
///
/// RFC 8504, section 5.3 lets a node set such a limit; no legitimate chain comes near this one.
pub const MAX_EXTENSION_HEADERS: usize = 16;
/// Every link carries packets of this length (RFC 8200, section 5), bytes.
pub const MIN_MTU: usize = 1280;

/// Option kinds of hop-by-hop and destination options that the parser looks at
/// (IANA registry "Destination Options and Hop-by-Hop Options").
pub mod option {
    /// One byte of padding (RFC 8200, section 4.2).
    pub const PAD1: u8 = 0;
    /// Jumbo payload (RFC 2675).
    pub const JUMBO: u8 = 0xc2;
    /// The upper bits of an option kind say what a node that does not know it must do;
    /// zero means "skip" (RFC 8200, section 4.2).
    pub const ACTION: u8 = 0xc0;
    /// MPL (RFC 7731, section 6.1), the one registered hop-by-hop option with discard bits beside [`JUMBO`].
    pub const MPL: u8 = 0x6d;
}

/// An IPv6 header.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Ipv6 {
    /// Version (4 bits, 6), traffic class (8), flow label (20).
    pub version_class_label: U32,
    /// Length of everything behind this header, bytes.
    pub payload_len: U16,
    /// Protocol of what follows ([`crate::ipv4::protocol`]).
    pub next_header: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Source.
    pub src: [u8; 16],
    /// Destination.
    pub dst: [u8; 16],
}

impl Ipv6 {
    /// DSCP (6 bits, RFC 2474) and ECN (2 bits, RFC 3168).
    pub fn traffic_class(&self) -> u8 {
        (self.version_class_label.get() >> 20) as u8
    }

    /// Flow label, 20 bits (RFC 6437).
    pub fn flow_label(&self) -> u32 {
        self.version_class_label.get() & 0x000f_ffff
    }
}

/// The start all extension headers but the fragment header share (RFC 6564, section 4).
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Extension {
    /// Protocol of what follows.
    pub next_header: u8,
    /// Length without the first 8 bytes, units of 8 bytes; in AH length in units of 4 bytes, minus 2
    /// (RFC 4302, section 2.2).
    pub len: u8,
}

/// The fixed part of a routing header (RFC 8200, section 4.4).
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Routing {
    /// Next header and length.
    pub extension: Extension,
    /// 0 is deprecated (RFC 5095), 4 is segment routing (RFC 8754).
    pub routing_type: u8,
    /// Nodes still to be visited.
    pub segments_left: u8,
}

/// A fragment header (RFC 8200, section 4.5).
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct FragmentHeader {
    /// Protocol of the first header of the fragmentable part.
    pub next_header: u8,
    /// Reserved.
    pub reserved: u8,
    /// Fragment offset (13 bits, units of 8 bytes), reserved (2), more fragments (1).
    pub offset_more: U16,
    /// Identification.
    pub id: U32,
}

impl FragmentHeader {
    /// Where this fragment's data belongs in the fragmentable part, bytes.
    pub fn offset(&self) -> u16 {
        self.offset_more.get() & 0xfff8
    }

    /// True unless this is the last fragment.
    pub fn more(&self) -> bool {
        self.offset_more.get() & 1 != 0
    }
}

/// True for an IPv4-compatible address, `::a.b.c.d` (RFC 4291, section 2.5.5.1): the upper 96 bits are zero.
///
/// `::` and `::1` have an upper part of zeroes too but are the unspecified and the loopback address.
pub const fn is_ipv4_compatible(address: &[u8; 16]) -> bool {
    let value = u128::from_be_bytes(*address);
    value >> 32 == 0 && value > 1
}
