//! VXLAN (RFC 7348): the header, the check on the way in, and the outer headers on the way out ([`Template`]).

mod template;

pub use template::{Addresses, Outer, Template};

use crate::{Fragment, L4, Malformed, Parsed, udp};
use core::fmt;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, network_endian::U32};

/// Length of the VXLAN header, bytes.
pub const HEADER_LEN: usize = 8;
/// The registered UDP destination port.
pub const PORT: u16 = 4789;
/// The I flag: the VNI field is valid. The only flag RFC 7348 defines.
pub const FLAG_VNI: u8 = 0x08;

/// A VXLAN network identifier, 24 bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Vni(u32);

impl Vni {
    /// The largest.
    pub const MAX: u32 = 0x00ff_ffff;

    /// `None` above [`Vni::MAX`].
    pub const fn new(vni: u32) -> Option<Self> {
        if vni <= Self::MAX { Some(Self(vni)) } else { None }
    }

    /// The number.
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Vni {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

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
    /// The network identifier; `None` if the I flag is clear. Reserved bits are ignored (RFC 7348, section 5).
    pub fn vni(&self) -> Option<Vni> {
        (self.flags & FLAG_VNI != 0).then(|| Vni(self.vni_reserved.get() >> 8))
    }
}

/// What a VXLAN packet holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Inner {
    /// Network identifier.
    pub vni: Vni,
    /// Where the inner Ethernet frame starts in the outer frame.
    pub offset: u16,
    /// One past its last byte, by the outer UDP length.
    pub end: u16,
}

/// Reads the VXLAN header of a frame that `parsed` calls UDP to the VXLAN port: the caller knows which port that
/// is, and whether addresses and UDP checksum are right. The inner frame is for [`crate::parse`] to judge.
///
/// # Errors
/// [`Malformed::VxlanFragment`], [`Malformed::VxlanCut`] (not UDP counts as cut), [`Malformed::VxlanFlags`].
#[inline]
pub fn decap(frame: &[u8], parsed: &Parsed) -> Result<Inner, Malformed> {
    if parsed.fragment != Fragment::None {
        return Err(Malformed::VxlanFragment);
    }
    if parsed.l4 != L4::Udp {
        return Err(Malformed::VxlanCut);
    }
    let payload = parsed.udp_payload(frame);
    let (header, inner) = Vxlan::ref_from_prefix(payload).map_err(|_| Malformed::VxlanCut)?;
    let vni = header.vni().ok_or(Malformed::VxlanFlags)?;
    let offset = parsed.l4_offset + (udp::HEADER_LEN + HEADER_LEN) as u16;
    Ok(Inner { vni, offset, end: offset + inner.len() as u16 })
}
