//! The outer headers of a tunnel, made once and stamped on each packet.

use super::{FLAG_VNI, HEADER_LEN, PORT, Vni, Vxlan};
use crate::{
    Mac,
    checksum::{self, Sum},
    ethernet::{self, Ethernet, ether_type},
    ipv4::{self, Ipv4, protocol},
    ipv6::{self, Ipv6},
    udp::{self, Udp},
};
use zerocopy::{
    FromZeros, IntoBytes,
    network_endian::{U16, U32},
};

const L3: usize = ethernet::HEADER_LEN;
const LEN_V4: usize = L3 + ipv4::HEADER_LEN + udp::HEADER_LEN + HEADER_LEN;
const LEN_V6: usize = L3 + ipv6::HEADER_LEN + udp::HEADER_LEN + HEADER_LEN;
/// Time to live or hop limit of what floodway sends, hops (RFC 1700's default).
const TTL: u8 = 64;

/// The two ends of a tunnel: one family.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Addresses {
    /// IPv4: 50 bytes of outer headers.
    V4 {
        /// Own end.
        src: [u8; 4],
        /// The other end.
        dst: [u8; 4],
    },
    /// IPv6: 70 bytes of outer headers.
    V6 {
        /// Own end.
        src: [u8; 16],
        /// The other end.
        dst: [u8; 16],
    },
}

/// What the outer headers of a tunnel say, on every packet alike.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outer {
    /// Own MAC address on the uplink.
    pub src_mac: Mac,
    /// The next hop's.
    pub dst_mac: Mac,
    /// The ends of the tunnel.
    pub addresses: Addresses,
    /// UDP destination port, [`PORT`] unless configured.
    pub port: u16,
    /// Network identifier.
    pub vni: Vni,
}

impl Outer {
    /// An outer header with the registered port.
    pub const fn new(src_mac: Mac, dst_mac: Mac, addresses: Addresses, vni: Vni) -> Self {
        Self { src_mac, dst_mac, addresses, port: PORT, vni }
    }
}

/// Ready-made outer headers, 50 or 70 bytes: Ethernet, IP, UDP, VXLAN.
///
/// IPv4 goes out with DF and identification 0 (RFC 6864, section 4.1) and without UDP checksum (RFC 7348,
/// section 5); IPv6 with UDP checksum, and with the UDP source port as flow label (RFC 6438).
#[derive(Clone, Debug)]
pub struct Template {
    bytes: [u8; LEN_V6],
    is_ipv6: bool,
    /// IPv4: the header's sum; IPv6: that of pseudo header, UDP and VXLAN; both without what differs per packet.
    sum: Sum,
}

impl Template {
    /// The most bytes a template has.
    pub const MAX_LEN: usize = LEN_V6;

    /// Makes the headers.
    pub fn new(outer: &Outer) -> Self {
        let mut bytes = [0; LEN_V6];
        let udp =
            Udp { src_port: U16::ZERO, dst_port: U16::new(outer.port), len: U16::ZERO, checksum: U16::ZERO };
        let vxlan = Vxlan { flags: FLAG_VNI, reserved: [0; 3], vni_reserved: U32::new(outer.vni.get() << 8) };
        let (ether_type, sum, l4) = match outer.addresses {
            Addresses::V4 { src, dst } => {
                let ip = ipv4_header(src, dst);
                bytes[L3..][..ipv4::HEADER_LEN].copy_from_slice(ip.as_bytes());
                (ether_type::IPV4, Sum::ZERO.add_bytes(ip.as_bytes()), L3 + ipv4::HEADER_LEN)
            }
            Addresses::V6 { src, dst } => {
                let ip = ipv6_header(src, dst);
                bytes[L3..][..ipv6::HEADER_LEN].copy_from_slice(ip.as_bytes());
                let sum = checksum::pseudo_ipv6(&src, &dst, protocol::UDP, 0);
                let sum = sum.add_bytes(udp.as_bytes()).add_bytes(vxlan.as_bytes());
                (ether_type::IPV6, sum, L3 + ipv6::HEADER_LEN)
            }
        };
        let ethernet = Ethernet { dst: outer.dst_mac, src: outer.src_mac, ether_type: U16::new(ether_type) };
        bytes[..L3].copy_from_slice(ethernet.as_bytes());
        bytes[l4..][..udp::HEADER_LEN].copy_from_slice(udp.as_bytes());
        bytes[l4 + udp::HEADER_LEN..][..HEADER_LEN].copy_from_slice(vxlan.as_bytes());
        Self { bytes, is_ipv6: ether_type == ether_type::IPV6, sum }
    }

    /// Length of the outer headers, bytes: how much room the caller makes in front of the inner frame.
    #[inline(always)]
    pub const fn len(&self) -> usize {
        if self.is_ipv6 { LEN_V6 } else { LEN_V4 }
    }

    /// Never: there is no empty template.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// What the tunnel takes from the MTU: outer IP, UDP and VXLAN, and the inner Ethernet header, bytes.
    pub const fn overhead(&self) -> usize {
        self.len()
    }

    /// Writes the headers over the first [`len`](Self::len) bytes of `frame`, behind which the inner frame stands,
    /// with `src_port` for entropy and `tos` as [`crate::ecn::encap`] gives it.
    ///
    /// False, and nothing written, if `frame` is too short for the headers and an inner Ethernet header, or longer
    /// than a UDP datagram can be.
    #[inline]
    pub fn stamp(&self, frame: &mut [u8], src_port: u16, tos: u8) -> bool {
        if frame.len() > ethernet::MAX_FRAME_LEN || frame.len() < self.len() + ethernet::HEADER_LEN {
            return false;
        }
        if self.is_ipv6 {
            self.stamp_ipv6(frame, src_port, tos)
        } else {
            self.stamp_ipv4(frame, src_port, tos)
        }
    }

    #[inline]
    fn stamp_ipv4(&self, frame: &mut [u8], src_port: u16, tos: u8) -> bool {
        const L4: usize = L3 + ipv4::HEADER_LEN;
        let total_len = (frame.len() - L3) as u16;
        let Some(head) = frame.first_chunk_mut::<LEN_V4>() else { return false };
        if let Some(own) = self.bytes.first_chunk::<LEN_V4>() {
            *head = *own;
        }
        let checksum = self.sum.add_u16(total_len).add_u16(u16::from(tos)).checksum();
        head[L3 + 1] = tos;
        put16(head, L3 + 2, total_len);
        put16(head, L3 + 10, checksum);
        put16(head, L4, src_port);
        put16(head, L4 + 4, total_len - ipv4::HEADER_LEN as u16);
        true
    }

    #[inline]
    fn stamp_ipv6(&self, frame: &mut [u8], src_port: u16, tos: u8) -> bool {
        const L4: usize = L3 + ipv6::HEADER_LEN;
        let len = (frame.len() - L4) as u16;
        let Some((head, inner)) = frame.split_first_chunk_mut::<LEN_V6>() else { return false };
        *head = self.bytes;
        // The length is in the pseudo header and in the UDP header.
        let sum = self.sum.add_u16(len).add_u16(len).add_u16(src_port).add_bytes(inner);
        head[L3] = 0x60 | tos >> 4;
        head[L3 + 1] = tos << 4;
        put16(head, L3 + 2, src_port);
        put16(head, L3 + 4, len);
        put16(head, L4, src_port);
        put16(head, L4 + 4, len);
        put16(head, L4 + 6, checksum::udp_form(sum.checksum()));
        true
    }
}

fn ipv4_header(src: [u8; 4], dst: [u8; 4]) -> Ipv4 {
    Ipv4 {
        version_ihl: 0x45,
        fragment: U16::new(ipv4::DF),
        ttl: TTL,
        protocol: protocol::UDP,
        src,
        dst,
        ..Ipv4::new_zeroed()
    }
}

fn ipv6_header(src: [u8; 16], dst: [u8; 16]) -> Ipv6 {
    Ipv6 {
        version_class_label: U32::new(6 << 28),
        payload_len: U16::ZERO,
        next_header: protocol::UDP,
        hop_limit: TTL,
        src,
        dst,
    }
}

#[inline(always)]
fn put16<const N: usize>(bytes: &mut [u8; N], at: usize, value: u16) {
    [bytes[at], bytes[at + 1]] = value.to_be_bytes();
}
