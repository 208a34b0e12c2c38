//! ICMP and ICMPv6 errors (RFC 792, RFC 1812 section 4.3, RFC 4443).

use super::{BuildError, Writer};
use crate::{
    Fragment, L3, L4, Mac, Parsed,
    checksum::{self, Sum, pseudo_ipv6},
    ethernet::Ethernet,
    icmp::{self, Icmp},
    icmpv6,
    ipv4::{self, Ipv4, protocol},
    ipv6::{self, Ipv6, MIN_MTU},
};
use core::net::IpAddr;
use zerocopy::network_endian::{U16, U32};

/// What went wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IcmpError {
    /// The packet is longer than the `mtu` of the next hop, bytes: "fragmentation needed" (RFC 1191) or "packet too
    /// big" (RFC 4443, section 3.2).
    TooBig {
        /// Longest packet that fits.
        mtu: u16,
    },
    /// The TTL or hop limit ran out.
    TimeExceeded,
    /// Policy forbids it (type 3 code 13, RFC 1812; type 1 code 1, RFC 4443).
    Prohibited,
}

/// Who sends the error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Origin {
    /// Source MAC address.
    pub mac: Mac,
    /// Source address, of the offender's family.
    pub ip: IpAddr,
}

/// An IPv4 error is at most this long (RFC 1812, section 4.3.2.3), bytes; an IPv6 one [`MIN_MTU`] (RFC 4443,
/// section 2.4).
const MAX_IPV4_LEN: usize = 576;
/// Precedence "internetwork control" (RFC 1812, section 4.3.2.5).
const TOS: u8 = 0xc0;
const TTL: u8 = 64;

/// The most bytes [`icmp_error`] writes for an untagged offender; each tag adds 4.
pub const MAX_ICMP_ERROR_LEN: usize = crate::ethernet::HEADER_LEN + MIN_MTU;

/// Writes the error about `frame`, quoting it, to its sender: MAC addresses swapped, the same VLAN tags.
///
/// # Errors
/// [`BuildError::NoRoom`]; [`BuildError::Unanswerable`] if the offender is not IP of `origin`'s family, is an ICMP
/// error or redirect itself, a later fragment, or if its source is no single host, or its destination is not and
/// the error is not an IPv6 [`IcmpError::TooBig`] (RFC 1122, section 3.2.2; RFC 4443, section 2.4).
pub fn icmp_error(
    out: &mut [u8],
    frame: &[u8],
    parsed: &Parsed,
    origin: &Origin,
    error: IcmpError,
) -> Result<usize, BuildError> {
    if parsed.fragment == Fragment::Later || is_icmp_error(frame, parsed) {
        return Err(BuildError::Unanswerable);
    }
    match (parsed.l3, origin.ip) {
        (L3::Ipv4, IpAddr::V4(ip)) => ipv4_error(out, frame, parsed, origin.mac, ip.octets(), error),
        (L3::Ipv6, IpAddr::V6(ip)) => ipv6_error(out, frame, parsed, origin.mac, ip.octets(), error),
        _ => Err(BuildError::Unanswerable),
    }
}

fn is_icmp_error(frame: &[u8], parsed: &Parsed) -> bool {
    parsed.icmp(frame).is_some_and(|header| match parsed.l4 {
        L4::Icmp => icmp::is_error(header.kind),
        _ => icmpv6::is_error(header.kind) || header.kind == icmpv6::REDIRECT,
    })
}

fn ipv4_error(
    out: &mut [u8],
    frame: &[u8],
    parsed: &Parsed,
    mac: Mac,
    src: [u8; 4],
    error: IcmpError,
) -> Result<usize, BuildError> {
    let offender = parsed.ipv4(frame).ok_or(BuildError::Unanswerable)?;
    if !is_host_ipv4(offender.src) || !is_host_ipv4(offender.dst) {
        return Err(BuildError::Unanswerable);
    }
    let (kind, code, mtu) = match error {
        IcmpError::TooBig { mtu } => (icmp::UNREACHABLE, icmp::FRAGMENTATION_NEEDED, mtu),
        IcmpError::TimeExceeded => (icmp::TIME_EXCEEDED, 0, 0),
        IcmpError::Prohibited => (icmp::UNREACHABLE, 13, 0),
    };
    let quote = quote(frame, parsed, MAX_IPV4_LEN - ipv4::HEADER_LEN - icmp::HEADER_LEN);
    let mut writer = Writer::new(out);
    write_l2(&mut writer, frame, parsed, mac, false)?;
    let l3 = writer.len;
    writer.put(&Ipv4 {
        version_ihl: 0x45,
        tos: TOS,
        total_len: U16::new((ipv4::HEADER_LEN + icmp::HEADER_LEN + quote.len()) as u16),
        id: U16::ZERO,
        fragment: U16::ZERO,
        ttl: TTL,
        protocol: protocol::ICMP,
        checksum: U16::ZERO,
        src,
        dst: offender.src,
    })?;
    checksum::fill_ipv4_header(writer.since(l3));
    let l4 = writer.len;
    writer.put(&Icmp { kind, code, checksum: U16::ZERO, identifier: U16::ZERO, sequence: U16::new(mtu) })?;
    writer.put(quote)?;
    checksum::fill_icmp(writer.since(l4), Sum::ZERO);
    Ok(writer.len)
}

fn ipv6_error(
    out: &mut [u8],
    frame: &[u8],
    parsed: &Parsed,
    mac: Mac,
    src: [u8; 16],
    error: IcmpError,
) -> Result<usize, BuildError> {
    let offender = parsed.ipv6(frame).ok_or(BuildError::Unanswerable)?;
    let too_big = matches!(error, IcmpError::TooBig { .. });
    if !is_host_ipv6(offender.src) || !(too_big || is_host_ipv6(offender.dst)) {
        return Err(BuildError::Unanswerable);
    }
    let (kind, code, mtu) = match error {
        IcmpError::TooBig { mtu } => (icmpv6::PACKET_TOO_BIG, 0, mtu),
        IcmpError::TimeExceeded => (icmpv6::TIME_EXCEEDED, 0, 0),
        IcmpError::Prohibited => (icmpv6::UNREACHABLE, 1, 0),
    };
    let quote = quote(frame, parsed, MIN_MTU - ipv6::HEADER_LEN - icmpv6::HEADER_LEN);
    let message_len = icmpv6::HEADER_LEN + quote.len();
    let mut writer = Writer::new(out);
    write_l2(&mut writer, frame, parsed, mac, too_big)?;
    writer.put(&Ipv6 {
        version_class_label: U32::new(6 << 28 | u32::from(TOS) << 20),
        payload_len: U16::new(message_len as u16),
        next_header: protocol::ICMPV6,
        hop_limit: TTL,
        src,
        dst: offender.src,
    })?;
    let l4 = writer.len;
    writer.put(&Icmp { kind, code, checksum: U16::ZERO, identifier: U16::ZERO, sequence: U16::new(mtu) })?;
    writer.put(quote)?;
    let pseudo = pseudo_ipv6(&src, &offender.src, protocol::ICMPV6, message_len as u32);
    checksum::fill_icmp(writer.since(l4), pseudo);
    Ok(writer.len)
}

/// As much of the offending packet as fits `max_len`.
fn quote<'a>(frame: &'a [u8], parsed: &Parsed, max_len: usize) -> &'a [u8] {
    let packet = parsed.l3_bytes(frame);
    packet.get(..max_len).unwrap_or(packet)
}

/// Swapped MAC addresses, then tags and EtherType as they came. A frame that was sent to a group of stations is
/// answered only if `to_group` says so.
fn write_l2(
    writer: &mut Writer<'_>,
    frame: &[u8],
    parsed: &Parsed,
    mac: Mac,
    to_group: bool,
) -> Result<(), BuildError> {
    let ethernet = parsed.ethernet(frame).ok_or(BuildError::Unanswerable)?;
    let group = ethernet.dst.is_multicast() && !to_group;
    if group || ethernet.src.is_multicast() || ethernet.src.is_zero() {
        return Err(BuildError::Unanswerable);
    }
    writer.put(&Ethernet { dst: ethernet.src, src: mac, ether_type: ethernet.ether_type })?;
    let tags = frame.get(size_of::<Ethernet>()..usize::from(parsed.l3_offset)).unwrap_or(&[]);
    writer.put(tags)
}

/// Neither "this network", loopback, multicast, reserved nor broadcast (RFC 1122, section 3.2.1.3).
const fn is_host_ipv4(ip: [u8; 4]) -> bool {
    !matches!(ip[0], 0 | 127 | 224..)
}

/// Neither unspecified, loopback nor multicast.
const fn is_host_ipv6(ip: [u8; 16]) -> bool {
    u128::from_be_bytes(ip) > 1 && ip[0] != 0xff
}
