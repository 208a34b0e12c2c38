//! VXLAN (RFC 7348).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, network_endian::U32};

/// Length of the VXLAN header, bytes.
pub const HEADER_LEN: usize = 8;
/// The registered UDP destination port.
pub const PORT: u16 = 4789;
/// The I flag: the VNI field is valid. The only flag RFC 7348 defines.
pub const FLAG_VNI: u8 = 0x08;

/// A VXLAN header.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Vxlan {
    /// [`FLAG_VNI`] and reserved bits, which are ignored on receipt.
    pub flags: u8,
    /// Reserved.
    pub reserved: [u8; 3],
    /// VXLAN network identifier (upper 24 bits) and reserved (8).
    pub vni_reserved: U32,
}

impl Vxlan {
    /// The network identifier, 24 bits; `None` if the I flag is clear, when the packet must be dropped
    /// (RFC 7348, section 5). Reserved bits are ignored.
    pub fn vni(&self) -> Option<u32> {
        (self.flags & FLAG_VNI != 0).then(|| self.vni_reserved.get() >> 8)
    }
}
