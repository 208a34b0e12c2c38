//! SCTP, its common header only (RFC 9260, section 3.1).

use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned,
    network_endian::{U16, U32},
};

/// Length of the common header, bytes.
pub const HEADER_LEN: usize = 12;

/// The SCTP common header.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Sctp {
    /// Source port.
    pub src_port: U16,
    /// Destination port.
    pub dst_port: U16,
    /// Verification tag.
    pub verification_tag: U32,
    /// CRC32c over the packet; not checked here.
    pub checksum: U32,
}
