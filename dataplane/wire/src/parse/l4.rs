//! L4 headers and RoCEv2.

use super::{Fragment, L3, L4, Malformed, Parsed, general::be16};
use crate::{
    icmp,
    ipv4::protocol,
    roce::{self, Bth, ICRC_LEN},
    sctp, tcp, udp,
};
use zerocopy::FromBytes;

/// Checks the L4 header that `parsed.protocol` names at `parsed.l4_offset` and adds what it says.
pub(super) fn l4(frame: &[u8], parsed: Parsed) -> Result<Parsed, Malformed> {
    if parsed.fragment == Fragment::Later {
        return Ok(Parsed { l4: L4::None, ..parsed });
    }
    let data = parsed.l4_bytes(frame);
    match (parsed.protocol, parsed.l3) {
        (protocol::TCP, _) => tcp(data, parsed),
        (protocol::UDP, _) => udp(frame, data, parsed),
        (protocol::SCTP, _) if data.len() < sctp::HEADER_LEN => Err(cut(parsed, Malformed::SctpCut)),
        (protocol::SCTP, _) => Ok(with_ports(data, Parsed { l4: L4::Sctp, ..parsed })),
        (protocol::ICMP, L3::Ipv4) => icmp(data, Parsed { l4: L4::Icmp, ..parsed }),
        (protocol::ICMPV6, L3::Ipv6) => icmp(data, Parsed { l4: L4::Icmpv6, ..parsed }),
        (protocol::NO_NEXT_HEADER, L3::Ipv6) => Ok(Parsed { l4: L4::None, ..parsed }),
        _ => Ok(Parsed { l4: L4::Unknown, ..parsed }),
    }
}

fn tcp(data: &[u8], parsed: Parsed) -> Result<Parsed, Malformed> {
    let (header, _) = tcp::Tcp::ref_from_prefix(data).map_err(|_| cut(parsed, Malformed::TcpCut))?;
    let header_len = header.header_len();
    if header_len < tcp::HEADER_LEN {
        return Err(Malformed::TcpDataOffset);
    }
    if header_len > data.len() {
        return Err(cut(parsed, Malformed::TcpDataOffset));
    }
    Ok(with_ports(data, Parsed { l4: L4::Tcp, ..parsed }))
}

fn udp(frame: &[u8], data: &[u8], parsed: Parsed) -> Result<Parsed, Malformed> {
    let (header, _) = udp::Udp::ref_from_prefix(data).map_err(|_| cut(parsed, Malformed::UdpCut))?;
    let len = usize::from(header.len.get());
    // The UDP length of a first fragment is that of the whole datagram.
    let too_long = len > data.len() && parsed.fragment == Fragment::None;
    if len < udp::HEADER_LEN || too_long {
        return Err(Malformed::UdpLen);
    }
    let parsed = with_ports(data, Parsed { l4: L4::Udp, ..parsed });
    if parsed.dst_port != roce::PORT {
        return Ok(parsed);
    }
    let mut found = Parsed { l4: L4::Roce, ..parsed };
    roce(frame, &mut found).map(|()| found)
}

fn icmp(data: &[u8], parsed: Parsed) -> Result<Parsed, Malformed> {
    if data.len() < icmp::HEADER_LEN { Err(cut(parsed, Malformed::IcmpCut)) } else { Ok(parsed) }
}

/// Checks the BTH behind a UDP header that was checked, for an answer that says `L4::Roce` already.
///
/// Transport versions other than 0 are refused: nothing behind such a version can be read, the QP included.
/// An unknown opcode is not: its headers and payload are simply not looked at.
#[inline(never)]
pub(super) fn roce(frame: &[u8], parsed: &mut Parsed) -> Result<(), Malformed> {
    let data = parsed.udp_payload(frame);
    let (bth, _) = Bth::ref_from_prefix(data).map_err(|_| cut(*parsed, Malformed::BthCut))?;
    if bth.version() != 0 {
        return Err(Malformed::BthVersion);
    }
    parsed.dest_qp = bth.dest_qp();
    if parsed.fragment == Fragment::First {
        // The rest, ICRC included, is in the fragments to come.
        return Ok(());
    }
    let Some(payload_len) = data.len().checked_sub(roce::headers_len(bth.opcode) + ICRC_LEN) else {
        return Err(Malformed::RoceCut);
    };
    if bth.pad_count() > payload_len && roce::headers(bth.opcode).is_some() {
        return Err(Malformed::RocePad);
    }
    Ok(())
}

fn with_ports(data: &[u8], parsed: Parsed) -> Parsed {
    Parsed { src_port: be16(data, 0).unwrap_or(0), dst_port: be16(data, 2).unwrap_or(0), ..parsed }
}

/// A first fragment must hold the whole L4 header (RFC 1858, RFC 7112).
fn cut(parsed: Parsed, cause: Malformed) -> Malformed {
    if parsed.fragment == Fragment::First { Malformed::FragmentTiny } else { cause }
}
