//! ICMPv6 (RFC 4443); its header is [`Icmp`](crate::icmp::Icmp).

/// Length of the header, bytes.
pub const HEADER_LEN: usize = 8;
/// Type: destination unreachable.
pub const UNREACHABLE: u8 = 1;
/// Type: packet too big; the 32 bits behind the checksum are the MTU.
pub const PACKET_TOO_BIG: u8 = 2;
/// Type: time exceeded.
pub const TIME_EXCEEDED: u8 = 3;
/// Type: parameter problem.
pub const PARAMETER_PROBLEM: u8 = 4;
/// Type: echo request.
pub const ECHO_REQUEST: u8 = 128;
/// Type: echo reply.
pub const ECHO_REPLY: u8 = 129;
/// Type: router solicitation (RFC 4861, section 4.1).
pub const ROUTER_SOLICITATION: u8 = 133;
/// Type: router advertisement (RFC 4861, section 4.2).
pub const ROUTER_ADVERTISEMENT: u8 = 134;
/// Type: neighbour solicitation (RFC 4861, section 4.3).
pub const NEIGHBOUR_SOLICITATION: u8 = 135;
/// Type: neighbour advertisement (RFC 4861, section 4.4).
pub const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
/// Type: redirect (RFC 4861, section 4.5).
pub const REDIRECT: u8 = 137;

/// True for the types that report an error and quote the packet that caused it (RFC 4443, section 2.1).
pub const fn is_error(kind: u8) -> bool {
    kind < 128
}

/// True for the types whose header has an identifier.
pub const fn has_identifier(kind: u8) -> bool {
    matches!(kind, ECHO_REQUEST | ECHO_REPLY)
}

/// True for neighbour discovery (RFC 4861), which is only valid with hop limit 255.
pub const fn is_neighbour_discovery(kind: u8) -> bool {
    ROUTER_SOLICITATION <= kind && kind <= REDIRECT
}
