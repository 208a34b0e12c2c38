//! Flow identity: what makes two packets one flow, and the way back from a key to what rules look at.
//!
//! TCP, UDP, SCTP: tenant, ingress, 5-tuple. ICMP: addresses, identifier, type and code. RoCEv2: addresses and
//! destination queue pair; the UDP source port is entropy, not identity. A first fragment has the key of a whole packet;
//! a later one says only where it goes, and is given the key of its first ([`crate::fragments`]).
//! The ingress (port or tunnel endpoint) is part of the key, so that the check of a source address, done once when
//! the flow is decided, holds for every later packet of it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use program::{Flow, Ingress, PortId, Service, TenantId, VtepId};
use tables::flow::FlowKey;
use wire::{L3, L4, Parsed};

/// The addresses are IPv6.
const IPV6: u8 = 1;
/// RoCEv2; `l4` is the destination queue pair.
const ROCE: u8 = 2;
/// From a tunnel; `ingress` is a [`VtepId`].
const FABRIC: u8 = 4;

const TCP: u8 = 6;
const UDP: u8 = 17;
const SCTP: u8 = 132;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;

/// Reads the key of an IP packet into `key`; `frame` and `parsed` belong together. The caller has made sure that it is
/// IP.
#[inline(always)]
pub fn read(key: &mut FlowKey, frame: &[u8], parsed: &Parsed, tenant: TenantId, ingress: Ingress) {
    let l3 = usize::from(parsed.l3_offset);
    let mut kind = 0;
    if parsed.l3 == L3::Ipv4 {
        // An address is a whole word of four bytes and zeros behind it: no partial writes.
        (key.src, key.dst) = (widened(frame, l3 + 12), widened(frame, l3 + 16));
    } else if let Some(addresses) = frame.get(l3 + 8..l3 + 40) {
        key.src.copy_from_slice(&addresses[..16]);
        key.dst.copy_from_slice(&addresses[16..]);
        kind |= IPV6;
    }
    key.ingress = match ingress {
        Ingress::Port(port) => port.0,
        Ingress::Vtep(vtep) => {
            kind |= FABRIC;
            vtep.0
        }
    };
    // Branches, not a jump table: the first is nearly always taken.
    key.l4 = if matches!(parsed.l4, L4::Tcp | L4::Udp | L4::Sctp) {
        u32::from(parsed.src_port) << 16 | u32::from(parsed.dst_port)
    } else if parsed.l4 == L4::Roce {
        kind |= ROCE;
        parsed.dest_qp
    } else if matches!(parsed.l4, L4::Icmp | L4::Icmpv6) {
        icmp_identity(frame, usize::from(parsed.l4_offset))
    } else {
        0
    };
    key.tenant = tenant.0;
    (key.protocol, key.kind, key.zero) = (parsed.protocol, kind, [0; 6]);
}

/// The four bytes at `at` and twelve zeros.
#[inline(always)]
fn widened(frame: &[u8], at: usize) -> [u8; 16] {
    let address = frame.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_ne_bytes);
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&address.to_ne_bytes());
    bytes
}

/// Identifier, type and code of a message.
fn icmp_identity(frame: &[u8], l4: usize) -> u32 {
    let identifier = frame.get(l4 + 4..l4 + 6).map_or(0, |id| u16::from_be_bytes([id[0], id[1]]));
    echo_identity(frame[l4], frame[l4 + 1], identifier)
}

/// The identifier is zero for messages that are no echo.
fn echo_identity(kind: u8, code: u8, identifier: u16) -> u32 {
    let identifier = if matches!(kind, 0 | 8 | 128 | 129) { identifier } else { 0 };
    u32::from(identifier) << 16 | u32::from(kind) << 8 | u32::from(code)
}

/// RoCEv2, but for a later fragment of it.
pub fn is_roce(key: &FlowKey) -> bool {
    key.kind & ROCE != 0
}

/// Where the flow comes in.
pub fn ingress(key: &FlowKey) -> Ingress {
    if key.kind & FABRIC == 0 {
        Ingress::Port(PortId(key.ingress))
    } else {
        Ingress::Vtep(VtepId(key.ingress))
    }
}

/// Source address.
pub fn src(key: &FlowKey) -> IpAddr {
    address(key, &key.src)
}

/// Destination address.
pub fn dst(key: &FlowKey) -> IpAddr {
    address(key, &key.dst)
}

fn address(key: &FlowKey, bytes: &[u8; 16]) -> IpAddr {
    if key.kind & IPV6 == 0 {
        IpAddr::V4(Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]))
    } else {
        IpAddr::V6(Ipv6Addr::from(*bytes))
    }
}

/// TCP, UDP or SCTP source port; zero for others.
pub fn src_port(key: &FlowKey) -> u16 {
    if matches!(key.protocol, TCP | UDP | SCTP) && key.kind & ROCE == 0 { (key.l4 >> 16) as u16 } else { 0 }
}

/// What the program judges.
pub fn flow(key: &FlowKey) -> Flow {
    Flow {
        tenant: TenantId(key.tenant),
        ingress: ingress(key),
        src: src(key),
        dst: dst(key),
        service: service(key),
        src_port: src_port(key),
    }
}

/// What rules look at.
pub fn service(key: &FlowKey) -> Service {
    let (port, kind, code) = (key.l4 as u16, (key.l4 >> 8) as u8, key.l4 as u8);
    match key.protocol {
        UDP if key.kind & ROCE != 0 => Service::Roce(key.l4),
        TCP => Service::Tcp(port),
        UDP => Service::Udp(port),
        SCTP => Service::Sctp(port),
        ICMP if key.kind & IPV6 == 0 => Service::Icmp(kind, code),
        ICMPV6 if key.kind & IPV6 != 0 => Service::Icmpv6(kind, code),
        // The other family's ICMP among them: it is no message of this one, and nothing of it is read.
        other => Service::Opaque(other),
    }
}

/// The key of the same flow's packets in the other direction, which come in at `ingress`. `None` where the other
/// direction cannot be told: RoCEv2 (its queue pair is not in this packet), ICMP that is no echo.
pub fn mirror(key: &FlowKey, ingress: Ingress) -> Option<FlowKey> {
    if key.kind & ROCE != 0 {
        return None;
    }
    let of_kind = |kind: u32| key.l4 & 0xffff_0000 | kind << 8 | key.l4 & 0xff;
    let l4 = match service(key) {
        Service::Tcp(_) | Service::Udp(_) | Service::Sctp(_) => key.l4.rotate_left(16),
        Service::Icmp(8, _) => of_kind(0),
        Service::Icmp(0, _) => of_kind(8),
        Service::Icmpv6(128, _) => of_kind(129),
        Service::Icmpv6(129, _) => of_kind(128),
        Service::Icmp(..) | Service::Icmpv6(..) | Service::Roce(_) => return None,
        Service::Opaque(_) => key.l4,
    };
    Some(entering(&FlowKey { src: key.dst, dst: key.src, l4, ..*key }, ingress))
}

/// True for the flow of an echo request, which answers nothing.
pub fn is_echo_request(key: &FlowKey) -> bool {
    matches!(service(key), Service::Icmp(8, _) | Service::Icmpv6(128, _))
}

/// The outer UDP source port of a flow, 49152 to 65535 (RFC 7348, section 5): the same for all packets of a flow, for
/// RoCEv2 by destination queue pair.
pub fn entropy(key: &FlowKey) -> u16 {
    let word =
        |bytes: &[u8; 16], at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap_or_default());
    let head = u64::from(key.l4) << 32 | u64::from(key.tenant) << 8 | u64::from(key.protocol);
    let words = [head, word(&key.src, 0), word(&key.src, 8), word(&key.dst, 0), word(&key.dst, 8)];
    let hash = words.into_iter().fold(0x9e37_79b9_7f4a_7c15_u64, |hash, word| {
        let product = u128::from(hash ^ word) * u128::from(0xa076_1d64_78bd_642f_u64);
        (product >> 64) as u64 ^ product as u64
    });
    0xc000 | (hash >> 50) as u16
}

/// The service of a flow as text, for lists. Echoes of one pair of hosts are told apart by their identifiers.
pub fn service_text(key: &FlowKey) -> String {
    let service = service(key);
    let text = service.text(src_port(key));
    match service {
        Service::Icmp(..) | Service::Icmpv6(..) => format!("{text} id {}", key.l4 >> 16),
        _ => text,
    }
}

/// A key that says only whose packet it is and where it came in.
pub fn anonymous(tenant: TenantId, ingress: Ingress) -> FlowKey {
    entering(&FlowKey { tenant: tenant.0, ..FlowKey::default() }, ingress)
}

/// The same key with another ingress.
pub fn entering(key: &FlowKey, ingress: Ingress) -> FlowKey {
    match ingress {
        Ingress::Port(port) => FlowKey { ingress: port.0, kind: key.kind & !FABRIC, ..*key },
        Ingress::Vtep(vtep) => FlowKey { ingress: vtep.0, kind: key.kind | FABRIC, ..*key },
    }
}

/// The identity of the datagram that a fragment is part of, by its identification.
///
/// It is that of whoever puts the datagram together: addresses and identification, with IPv4 the protocol too (RFC 791,
/// section 3.2), with IPv6 not (RFC 8200, section 4.5: next headers may differ, that of the first fragment counts).
/// Tenant and ingress keep those apart that nobody puts together.
pub fn datagram(key: &FlowKey, id: u32) -> FlowKey {
    let protocol = if key.kind & IPV6 == 0 { key.protocol } else { 0 };
    FlowKey { l4: id, protocol, kind: key.kind & (IPV6 | FABRIC), ..*key }
}

/// The key of the packet that an ICMP error quotes, as its sender's packets have it but for the ingress, which is not
/// in the quote. `None` when the quote is too short to say whose it is.
pub fn quoted(frame: &[u8], parsed: &Parsed, error: &FlowKey) -> Option<FlowKey> {
    let quoted = parsed.quoted(frame).ok()??;
    let mut key = FlowKey { tenant: error.tenant, protocol: quoted.protocol, ..FlowKey::default() };
    if let Some(header) = quoted.ipv4(frame) {
        key.src[..4].copy_from_slice(&header.src);
        key.dst[..4].copy_from_slice(&header.dst);
    } else {
        let header = quoted.ipv6(frame)?;
        (key.src, key.dst, key.kind) = (header.src, header.dst, IPV6);
    }
    match quoted.l4 {
        L4::Tcp | L4::Udp | L4::Sctp => {
            key.l4 = u32::from(quoted.src_port) << 16 | u32::from(quoted.dst_port)
        }
        L4::Roce => {
            key.l4 = quoted.dest_qp?;
            key.kind |= ROCE;
        }
        L4::Icmp | L4::Icmpv6 => key.l4 = echo_identity(quoted.icmp.0, quoted.icmp.1, quoted.src_port),
        L4::None | L4::Unknown => {}
    }
    Some(key)
}

/// The sequence number of the TCP segment that an ICMP error quotes; `None` when it quotes something else.
pub fn quoted_sequence(frame: &[u8], parsed: &Parsed) -> Option<u32> {
    parsed.quoted(frame).ok()??.sequence
}

/// Source and destination address of an IP packet; `None` for anything else.
#[inline]
pub fn addresses(frame: &[u8], parsed: &Parsed) -> Option<(IpAddr, IpAddr)> {
    let l3 = usize::from(parsed.l3_offset);
    let v4 = |at: usize| Some(IpAddr::V4(Ipv4Addr::from(<[u8; 4]>::try_from(frame.get(at..at + 4)?).ok()?)));
    let v6 =
        |at: usize| Some(IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(frame.get(at..at + 16)?).ok()?)));
    match parsed.l3 {
        L3::Ipv4 => Some((v4(l3 + 12)?, v4(l3 + 16)?)),
        L3::Ipv6 => Some((v6(l3 + 8)?, v6(l3 + 24)?)),
        L3::Arp | L3::Other => None,
    }
}
