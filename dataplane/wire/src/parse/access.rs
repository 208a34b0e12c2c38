//! Views of the frame that a [`Parsed`] was made from.
//!
//! Each takes that frame again. Given another frame they answer with what is there or with nothing; they never
//! panic.

use super::{L3, L4, Parsed};
use crate::{
    arp::Arp,
    ethernet::Ethernet,
    icmp::{self, Icmp},
    icmpv6,
    ipv4::Ipv4,
    ipv6::Ipv6,
    roce::{self, Bth, ICRC_LEN},
    sctp::Sctp,
    tcp::Tcp,
    udp::{self, Udp},
};
use zerocopy::FromBytes;

impl Parsed {
    /// The MAC addresses and the first EtherType.
    #[inline]
    pub fn ethernet<'a>(&self, frame: &'a [u8]) -> Option<&'a Ethernet> {
        Some(Ethernet::ref_from_prefix(frame).ok()?.0)
    }

    /// The ARP packet.
    #[inline]
    pub fn arp<'a>(&self, frame: &'a [u8]) -> Option<&'a Arp> {
        (self.l3 == L3::Arp).then(|| view(self.l3_bytes(frame)))?
    }

    /// The IPv4 header.
    #[inline]
    pub fn ipv4<'a>(&self, frame: &'a [u8]) -> Option<&'a Ipv4> {
        (self.l3 == L3::Ipv4).then(|| view(self.l3_bytes(frame)))?
    }

    /// The IPv6 header.
    #[inline]
    pub fn ipv6<'a>(&self, frame: &'a [u8]) -> Option<&'a Ipv6> {
        (self.l3 == L3::Ipv6).then(|| view(self.l3_bytes(frame)))?
    }

    /// The TCP header.
    #[inline]
    pub fn tcp<'a>(&self, frame: &'a [u8]) -> Option<&'a Tcp> {
        (self.l4 == L4::Tcp).then(|| view(self.l4_bytes(frame)))?
    }

    /// The UDP header, of RoCEv2 too.
    #[inline]
    pub fn udp<'a>(&self, frame: &'a [u8]) -> Option<&'a Udp> {
        self.is_udp().then(|| view(self.l4_bytes(frame)))?
    }

    /// The SCTP common header.
    #[inline]
    pub fn sctp<'a>(&self, frame: &'a [u8]) -> Option<&'a Sctp> {
        (self.l4 == L4::Sctp).then(|| view(self.l4_bytes(frame)))?
    }

    /// The ICMP or ICMPv6 header.
    #[inline]
    pub fn icmp<'a>(&self, frame: &'a [u8]) -> Option<&'a Icmp> {
        matches!(self.l4, L4::Icmp | L4::Icmpv6).then(|| view(self.l4_bytes(frame)))?
    }

    /// The identifier of an ICMP or ICMPv6 echo (or ICMP timestamp): part of the flow's identity.
    #[inline]
    pub fn icmp_identifier(&self, frame: &[u8]) -> Option<u16> {
        let header = self.icmp(frame)?;
        let has = match self.l4 {
            L4::Icmp => icmp::has_identifier(header.kind),
            _ => icmpv6::has_identifier(header.kind),
        };
        has.then(|| header.identifier.get())
    }

    /// The base transport header.
    #[inline]
    pub fn bth<'a>(&self, frame: &'a [u8]) -> Option<&'a Bth> {
        (self.l4 == L4::Roce).then(|| view(self.udp_payload(frame)))?
    }

    /// An extension transport header of RoCEv2, of the type that `header` names, if the opcode carries it.
    ///
    /// ```
    /// # fn f(parsed: wire::Parsed, frame: &[u8]) {
    /// let reth: Option<&wire::roce::Reth> = parsed.roce_header(frame, wire::roce::Headers::RETH);
    /// # }
    /// ```
    pub fn roce_header<'a, T>(&self, frame: &'a [u8], header: roce::Headers) -> Option<&'a T>
    where
        T: FromBytes + zerocopy::KnownLayout + zerocopy::Immutable + zerocopy::Unaligned,
    {
        let bth = self.bth(frame)?;
        let offset = roce::headers(bth.opcode)?.offset_of(header)?;
        view(self.udp_payload(frame).get(roce::BTH_LEN + offset..)?)
    }

    /// What a RoCEv2 packet carries for the application: without headers, padding and ICRC. `None` for an unknown
    /// opcode and for a fragment, where the end of the headers or of the payload is not known.
    pub fn roce_payload<'a>(&self, frame: &'a [u8]) -> Option<&'a [u8]> {
        let bth = self.bth(frame)?;
        let headers = roce::headers(bth.opcode)?;
        if self.fragment != super::Fragment::None {
            return None;
        }
        let data = self.udp_payload(frame);
        let end = data.len().checked_sub(ICRC_LEN + bth.pad_count())?;
        data.get(roce::BTH_LEN + headers.len()..end)
    }

    /// The IP packet: from its header to its end by its own length.
    #[inline]
    pub fn l3_bytes<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
        frame.get(usize::from(self.l3_offset)..usize::from(self.end)).unwrap_or(&[])
    }

    /// L4 header and data, up to the end of the IP packet.
    #[inline]
    pub fn l4_bytes<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
        frame.get(usize::from(self.l4_offset)..usize::from(self.end)).unwrap_or(&[])
    }

    /// The data of UDP by its own length, which may end before the IP packet does; of a first fragment what is there.
    #[inline]
    pub fn udp_payload<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
        let bytes = self.l4_bytes(frame);
        let Some(header) = self.udp(frame) else { return &[] };
        let end = usize::from(header.len.get()).min(bytes.len());
        bytes.get(udp::HEADER_LEN..end).unwrap_or(&[])
    }

    /// The data of TCP.
    #[inline]
    pub fn tcp_payload<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
        let Some(header) = self.tcp(frame) else { return &[] };
        self.l4_bytes(frame).get(header.header_len()..).unwrap_or(&[])
    }

    /// True if L4 starts with a UDP header: UDP and RoCEv2.
    #[inline]
    pub const fn is_udp(&self) -> bool {
        matches!(self.l4, L4::Udp | L4::Roce)
    }

    /// The length of the IP packet, bytes; 0 if not IP. What an MTU is compared with.
    #[inline]
    pub const fn l3_len(&self) -> u16 {
        match self.l3 {
            L3::Ipv4 | L3::Ipv6 => self.end - self.l3_offset,
            L3::Other | L3::Arp => 0,
        }
    }

    /// TOS byte or traffic class: DSCP (6 bits) and ECN (2).
    #[inline]
    pub fn tos(&self, frame: &[u8]) -> Option<u8> {
        match self.l3 {
            L3::Ipv4 => self.ipv4(frame).map(|header| header.tos),
            L3::Ipv6 => self.ipv6(frame).map(Ipv6::traffic_class),
            L3::Other | L3::Arp => None,
        }
    }

    /// Time to live or hop limit, hops.
    #[inline]
    pub fn ttl(&self, frame: &[u8]) -> Option<u8> {
        match self.l3 {
            L3::Ipv4 => self.ipv4(frame).map(|header| header.ttl),
            L3::Ipv6 => self.ipv6(frame).map(|header| header.hop_limit),
            L3::Other | L3::Arp => None,
        }
    }
}

/// The header at the start of `bytes`.
#[inline]
fn view<T>(bytes: &[u8]) -> Option<&T>
where
    T: FromBytes + zerocopy::KnownLayout + zerocopy::Immutable + zerocopy::Unaligned,
{
    Some(T::ref_from_prefix(bytes).ok()?.0)
}
