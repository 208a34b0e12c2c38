//! ICMP for IPv4 (RFC 792).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, network_endian::U16};

/// Length of the header, bytes.
pub const HEADER_LEN: usize = 8;
/// Type: echo reply.
pub const ECHO_REPLY: u8 = 0;
/// Type: destination unreachable.
pub const UNREACHABLE: u8 = 3;
/// Code of [`UNREACHABLE`]: fragmentation needed and DF set (RFC 1191).
pub const FRAGMENTATION_NEEDED: u8 = 4;
/// Type: source quench, deprecated (RFC 6633).
pub const SOURCE_QUENCH: u8 = 4;
/// Type: redirect.
pub const REDIRECT: u8 = 5;
/// Type: echo request.
pub const ECHO_REQUEST: u8 = 8;
/// Type: time exceeded.
pub const TIME_EXCEEDED: u8 = 11;
/// Type: parameter problem.
pub const PARAMETER_PROBLEM: u8 = 12;
/// Type: timestamp request.
pub const TIMESTAMP: u8 = 13;
/// Type: timestamp reply.
pub const TIMESTAMP_REPLY: u8 = 14;

/// The eight bytes every ICMP and ICMPv6 message starts with.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Icmp {
    /// Message type.
    pub kind: u8,
    /// Code within the type.
    pub code: u8,
    /// Checksum.
    pub checksum: U16,
    /// Identifier of an echo or timestamp message; the rest of the header otherwise.
    pub identifier: U16,
    /// Sequence number of an echo; next-hop MTU of "fragmentation needed" (RFC 1191, section 4), bytes.
    pub sequence: U16,
}

/// True for the types that report an error and quote the packet that caused it (RFC 1122, section 3.2.2).
pub const fn is_error(kind: u8) -> bool {
    matches!(kind, UNREACHABLE | SOURCE_QUENCH | REDIRECT | TIME_EXCEEDED | PARAMETER_PROBLEM)
}

/// True for the types whose header has an identifier.
pub const fn has_identifier(kind: u8) -> bool {
    matches!(kind, ECHO_REQUEST | ECHO_REPLY | TIMESTAMP | TIMESTAMP_REPLY)
}
