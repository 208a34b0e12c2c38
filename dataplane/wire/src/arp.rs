//! ARP for IPv4 on Ethernet (RFC 826).

use crate::Mac;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, network_endian::U16};

/// Length of an ARP packet for IPv4 on Ethernet, bytes.
pub const LEN: usize = 28;
/// Hardware type Ethernet.
pub const HARDWARE_ETHERNET: u16 = 1;
/// Operation: request.
pub const REQUEST: u16 = 1;
/// Operation: reply.
pub const REPLY: u16 = 2;

/// An ARP packet for IPv4 on Ethernet.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Arp {
    /// Hardware type, [`HARDWARE_ETHERNET`].
    pub hardware: U16,
    /// Protocol type, the EtherType of IPv4.
    pub protocol: U16,
    /// Length of a hardware address: 6.
    pub hardware_len: u8,
    /// Length of a protocol address: 4.
    pub protocol_len: u8,
    /// [`REQUEST`] or [`REPLY`].
    pub operation: U16,
    /// Sender's hardware address.
    pub sender_mac: Mac,
    /// Sender's protocol address.
    pub sender_ip: [u8; 4],
    /// Target's hardware address; not meaningful in a request.
    pub target_mac: Mac,
    /// Target's protocol address.
    pub target_ip: [u8; 4],
}

impl Arp {
    /// True if types and lengths are those of IPv4 on Ethernet: only then do the address fields mean anything.
    pub fn is_ipv4_ethernet(&self) -> bool {
        self.hardware.get() == HARDWARE_ETHERNET
            && self.protocol.get() == crate::ethernet::ether_type::IPV4
            && self.hardware_len == 6
            && self.protocol_len == 4
    }

    /// A probe (RFC 5227, section 1.1): a request whose sender address is all zeroes.
    pub fn is_probe(&self) -> bool {
        self.operation.get() == REQUEST && self.sender_ip == [0; 4]
    }
}
