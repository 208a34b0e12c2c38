//! UDP (RFC 768).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, network_endian::U16};

/// Length of a header, bytes.
pub const HEADER_LEN: usize = 8;

/// A UDP header.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Udp {
    /// Source port; 0 means "none".
    pub src_port: U16,
    /// Destination port.
    pub dst_port: U16,
    /// Length of header and data, bytes.
    pub len: U16,
    /// Checksum over pseudo header, header and data; 0 means "not computed", which IPv6 only allows tunnels
    /// (RFC 6935).
    pub checksum: U16,
}
