//! IPv4 (RFC 791).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, network_endian::U16};

/// Length of a header without options, bytes.
pub const HEADER_LEN: usize = 20;
/// "Don't fragment" in [`Ipv4::fragment`].
pub const DF: u16 = 0x4000;
/// "More fragments" in [`Ipv4::fragment`].
pub const MF: u16 = 0x2000;
/// Fragment offset in [`Ipv4::fragment`], units of 8 bytes.
pub const FRAGMENT_OFFSET: u16 = 0x1fff;

/// Option kinds the parser looks at (RFC 791, section 3.1).
pub mod option {
    /// End of the option list.
    pub const END: u8 = 0;
    /// One byte of padding.
    pub const NOP: u8 = 1;
    /// Loose source and record route.
    pub const LSRR: u8 = 131;
    /// Strict source and record route.
    pub const SSRR: u8 = 137;
}

/// Protocol numbers and IPv6 next headers (IANA registry "Protocol Numbers").
pub mod protocol {
    /// IPv6 hop-by-hop options (RFC 8200, section 4.3).
    pub const HOP_BY_HOP: u8 = 0;
    /// ICMP (RFC 792).
    pub const ICMP: u8 = 1;
    /// TCP (RFC 9293).
    pub const TCP: u8 = 6;
    /// UDP (RFC 768).
    pub const UDP: u8 = 17;
    /// IPv6 routing header (RFC 8200, section 4.4).
    pub const ROUTING: u8 = 43;
    /// IPv6 fragment header (RFC 8200, section 4.5).
    pub const FRAGMENT: u8 = 44;
    /// Encapsulating security payload (RFC 4303).
    pub const ESP: u8 = 50;
    /// Authentication header (RFC 4302).
    pub const AH: u8 = 51;
    /// ICMPv6 (RFC 4443).
    pub const ICMPV6: u8 = 58;
    /// Nothing follows (RFC 8200, section 4.7).
    pub const NO_NEXT_HEADER: u8 = 59;
    /// IPv6 destination options (RFC 8200, section 4.6).
    pub const DESTINATION_OPTIONS: u8 = 60;
    /// SCTP (RFC 9260).
    pub const SCTP: u8 = 132;
    /// Mobility header (RFC 6275, section 6.1).
    pub const MOBILITY: u8 = 135;
    /// Host identity protocol (RFC 7401, section 5.1).
    pub const HIP: u8 = 139;
    /// Shim6 (RFC 5533, section 5.1).
    pub const SHIM6: u8 = 140;
}

/// An IPv4 header without its options.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Ipv4 {
    /// Version (upper half, 4) and header length (lower half, units of 4 bytes).
    pub version_ihl: u8,
    /// DSCP (6 bits, RFC 2474) and ECN (2 bits, RFC 3168).
    pub tos: u8,
    /// Length of header and payload, bytes.
    pub total_len: U16,
    /// Identification.
    pub id: U16,
    /// Flags ([`DF`], [`MF`]) and [`FRAGMENT_OFFSET`].
    pub fragment: U16,
    /// Time to live, hops.
    pub ttl: u8,
    /// [`protocol`] of the payload.
    pub protocol: u8,
    /// Header checksum.
    pub checksum: U16,
    /// Source.
    pub src: [u8; 4],
    /// Destination.
    pub dst: [u8; 4],
}

impl Ipv4 {
    /// Header length by the IHL field, bytes: 0 to 60, not checked.
    pub const fn header_len(&self) -> usize {
        (self.version_ihl & 0x0f) as usize * 4
    }
}
