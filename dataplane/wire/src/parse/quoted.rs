//! The packet that an ICMP error quotes: the start of one, cut anywhere behind its IP header.

use super::{Fragment, L3, L4, Malformed, Parsed, general::be16, ipv6};
use crate::{
    icmp, icmpv6,
    ipv4::{HEADER_LEN, Ipv4, protocol},
    ipv6::Ipv6,
    roce,
};
use zerocopy::FromBytes;

/// What an ICMP error quotes. Whether it belongs to a flow is for the caller to say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Quoted {
    /// Where the quoted IP header starts in the frame.
    pub offset: u16,
    /// Its family.
    pub l3: L3,
    /// IPv4 protocol or last IPv6 next header found.
    pub protocol: u8,
    /// What is quoted of L4; [`L4::None`] if that is none, or less than the 8 bytes that everybody quotes (RFC 792).
    pub l4: L4,
    /// Source port; of an echo the identifier in both ports.
    pub src_port: u16,
    /// Destination port; of an echo the identifier in both ports.
    pub dst_port: u16,
    /// ICMP type and code of a quoted echo.
    pub icmp: (u8, u8),
    /// Sequence number of a quoted TCP segment.
    pub sequence: Option<u32>,
    /// RoCEv2 destination queue pair, if the quote reaches that far: 8 bytes of L4 do not.
    pub dest_qp: Option<u32>,
}

impl Quoted {
    /// The quoted IPv4 header.
    pub fn ipv4<'a>(&self, frame: &'a [u8]) -> Option<&'a Ipv4> {
        let bytes = frame.get(usize::from(self.offset)..)?;
        if self.l3 == L3::Ipv4 { Some(Ipv4::ref_from_prefix(bytes).ok()?.0) } else { None }
    }

    /// The quoted IPv6 header.
    pub fn ipv6<'a>(&self, frame: &'a [u8]) -> Option<&'a Ipv6> {
        let bytes = frame.get(usize::from(self.offset)..)?;
        if self.l3 == L3::Ipv6 { Some(Ipv6::ref_from_prefix(bytes).ok()?.0) } else { None }
    }
}

impl Parsed {
    /// What an ICMP or ICMPv6 error quotes; `None` for any other packet, an echo with a packet as its data among
    /// them.
    ///
    /// # Errors
    /// [`Malformed::QuoteCut`] if the quoted IP header is cut or is none of the error's family.
    pub fn quoted(&self, frame: &[u8]) -> Result<Option<Quoted>, Malformed> {
        let Some(header) = self.icmp(frame) else { return Ok(None) };
        let packet = self.l4_bytes(frame).get(icmp::HEADER_LEN..).unwrap_or(&[]);
        let offset = self.l4_offset + icmp::HEADER_LEN as u16;
        match self.l4 {
            L4::Icmp if icmp::is_error(header.kind) => ipv4_quote(packet, offset).map(Some),
            L4::Icmpv6 if icmpv6::is_error(header.kind) => ipv6_quote(packet, offset).map(Some),
            _ => Ok(None),
        }
    }
}

fn ipv4_quote(packet: &[u8], offset: u16) -> Result<Quoted, Malformed> {
    let (header, _) = Ipv4::ref_from_prefix(packet).map_err(|_| Malformed::QuoteCut)?;
    let header_len = header.header_len();
    if header.version_ihl >> 4 != 4 || header_len < HEADER_LEN {
        return Err(Malformed::QuoteCut);
    }
    let l4 = packet.get(header_len..).ok_or(Malformed::QuoteCut)?;
    let later = header.fragment.get() & crate::ipv4::FRAGMENT_OFFSET != 0;
    let quoted = empty(offset, L3::Ipv4, header.protocol);
    Ok(if later { quoted } else { with_l4(quoted, l4) })
}

fn ipv6_quote(packet: &[u8], offset: u16) -> Result<Quoted, Malformed> {
    let (header, payload) = Ipv6::ref_from_prefix(packet).map_err(|_| Malformed::QuoteCut)?;
    if header.version_class_label.get() >> 28 != 6 {
        return Err(Malformed::QuoteCut);
    }
    Ok(match ipv6::upper_layer(header.next_header, payload) {
        Some((protocol, Fragment::Later, _)) => empty(offset, L3::Ipv6, protocol),
        Some((protocol, _, l4)) => with_l4(empty(offset, L3::Ipv6, protocol), l4),
        None => empty(offset, L3::Ipv6, header.next_header),
    })
}

const fn empty(offset: u16, l3: L3, protocol: u8) -> Quoted {
    Quoted {
        offset,
        l3,
        protocol,
        l4: L4::None,
        src_port: 0,
        dst_port: 0,
        icmp: (0, 0),
        sequence: None,
        dest_qp: None,
    }
}

/// Adds what `bytes` hold of L4: nothing, unless they are as many as make the packet known.
fn with_l4(quoted: Quoted, bytes: &[u8]) -> Quoted {
    let Some(&[a, b, c, d, rest @ ..]) = bytes.first_chunk::<8>() else { return quoted };
    let (first, second) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
    let ports = |l4| Quoted { l4, src_port: first, dst_port: second, ..quoted };
    match (quoted.protocol, quoted.l3) {
        (protocol::TCP, _) => Quoted { sequence: Some(u32::from_be_bytes(rest)), ..ports(L4::Tcp) },
        (protocol::SCTP, _) => ports(L4::Sctp),
        (protocol::UDP, _) if second == roce::PORT => Quoted { dest_qp: dest_qp(bytes), ..ports(L4::Roce) },
        (protocol::UDP, _) => ports(L4::Udp),
        (protocol::ICMP, L3::Ipv4) if icmp::has_identifier((first >> 8) as u8) => {
            with_identifier(quoted, L4::Icmp, bytes)
        }
        (protocol::ICMPV6, L3::Ipv6) if icmpv6::has_identifier((first >> 8) as u8) => {
            with_identifier(quoted, L4::Icmpv6, bytes)
        }
        _ => quoted,
    }
}

fn with_identifier(quoted: Quoted, l4: L4, bytes: &[u8]) -> Quoted {
    match be16(bytes, 4) {
        Some(identifier) => {
            let icmp = (bytes[0], bytes[1]);
            Quoted { l4, src_port: identifier, dst_port: identifier, icmp, ..quoted }
        }
        None => quoted,
    }
}

fn dest_qp(udp: &[u8]) -> Option<u32> {
    let word = udp.get(crate::udp::HEADER_LEN + 4..)?.first_chunk()?;
    Some(u32::from_be_bytes(*word) & 0x00ff_ffff)
}
