//! A frame that a port receives, read as the data plane reads it: up to where the flow is known, or a reason to drop it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use program::{DropReason, Flow, Ingress, PortId, Program, Service, TenantId, Uplink, VtepId};
use wire::{
    Flags, Fragment, L3, L4, Mac, Parsed,
    checksum::{Check, verify_l4},
    ecn, vxlan,
};

use super::{Link, Packet, quoted};

/// What came in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// Whose it is, as far as that was found out.
    pub tenant: Option<TenantId>,
    /// Where from, as far as that was found out.
    pub from: Option<Ingress>,
    /// What it is.
    pub outcome: Result<Content, DropReason>,
}

/// What a frame is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Content {
    /// A tenant's IP packet.
    Packet(Packet),
    /// A tenant's ARP.
    Neighbour,
    /// For this box itself.
    Local,
}

/// Reads a frame. The uplink's own MAC is not in the program: outer frames are taken to be sent to it.
pub(super) fn arrive(program: &Program, port: PortId, frame: &[u8]) -> Arrival {
    let (mut tenant, mut from) = (None, Some(Ingress::Port(port)));
    let outcome = match (program.port(port), &program.uplink) {
        (Some(view), _) => {
            tenant = Some(view.tenant);
            from_host(frame, view)
        }
        (None, Some(uplink)) if uplink.port == port => match open_tunnel(program, uplink, frame) {
            Ok(Some(opened)) => {
                (tenant, from) = (Some(opened.tenant), Some(Ingress::Vtep(opened.vtep)));
                from_tunnel(&opened)
            }
            Ok(None) => Ok(Content::Local),
            Err(reason) => Err(reason),
        },
        _ => Err(DropReason::NoTenant),
    };
    Arrival { tenant, from, outcome }
}

fn from_host(frame: &[u8], port: &program::Port) -> Result<Content, DropReason> {
    let mut frame = frame.to_vec();
    let mut parsed = wire::parse(&frame).map_err(|_| DropReason::Malformed)?;
    if parsed.vlan.count() != 0 {
        // A priority tag (VID 0) carries no VLAN (IEEE 802.1Q-2018, section 6.9.1).
        if !parsed.vlan.is_native() {
            return Err(DropReason::UnexpectedVlan);
        }
        frame.drain(12..12 + wire::ethernet::TAG_LEN);
        parsed = wire::parse(&frame).map_err(|_| DropReason::UnexpectedVlan)?;
    }
    if mac_at(&frame, 6) != port.mac {
        return Err(DropReason::SpoofedMac);
    }
    enter(&frame, &parsed, port.tenant, Ingress::Port(port.id))
}

/// An inner frame, and whose it is.
struct Opened {
    tenant: TenantId,
    vtep: VtepId,
    outer_tos: u8,
    inner: Vec<u8>,
}

/// Takes the outer headers off; `None` for what is no tunnel but for this box.
fn open_tunnel(program: &Program, uplink: &Uplink, frame: &[u8]) -> Result<Option<Opened>, DropReason> {
    let outer = wire::parse(frame).map_err(|_| DropReason::Malformed)?;
    let is_ours = |address| uplink.addresses.iter().any(|own| own.addr() == address);
    let ends = addresses(frame, &outer);
    if outer.l4 != L4::Udp || outer.dst_port != vxlan::PORT {
        return match (outer.l3, ends) {
            (L3::Arp, _) => Ok(None),
            (L3::Ipv4 | L3::Ipv6, Some((_, dst))) if is_ours(dst) && outer.fragment == Fragment::Later => {
                Err(DropReason::OuterFragment)
            }
            (L3::Ipv4 | L3::Ipv6, Some((_, dst))) if is_ours(dst) || outer.l4 == L4::Icmpv6 => Ok(None),
            (L3::Other, _) => Err(DropReason::UnsupportedEtherType),
            _ => Err(DropReason::NotForUs),
        };
    }
    if outer.vlan.count() != 0 {
        return Err(DropReason::UnexpectedVlan);
    }
    let (src, dst) = ends.ok_or(DropReason::Malformed)?;
    if !is_ours(dst) {
        return Err(DropReason::NotForUs);
    }
    let is_it = |vtep: &Option<program::Vtep>| vtep.as_ref().is_some_and(|vtep| vtep.address == src);
    let vtep = program.vteps.iter().position(is_it).ok_or(DropReason::UnknownVtep)?;
    let has_checksum =
        frame.get(usize::from(outer.l4_offset) + 6..).is_none_or(|rest| !rest.starts_with(&[0, 0]));
    if has_checksum && verify_l4(frame, &outer) != Check::Right {
        let is_whole = outer.fragment == Fragment::None;
        return Err(if is_whole { DropReason::OuterChecksum } else { DropReason::OuterFragment });
    }
    let inner = vxlan::decap(frame, &outer).map_err(|error| match error {
        wire::Malformed::VxlanFlags => DropReason::VxlanFlags,
        wire::Malformed::VxlanFragment => DropReason::OuterFragment,
        _ => DropReason::Malformed,
    })?;
    let mut tenants = program.tenants.iter().flatten();
    let tenant = tenants.find(|tenant| tenant.vni.0 == inner.vni.get()).ok_or(DropReason::UnknownVni)?;
    Ok(Some(Opened {
        tenant: tenant.id,
        vtep: VtepId(vtep as u16),
        outer_tos: outer.tos(frame).unwrap_or(0),
        inner: frame[usize::from(inner.offset)..usize::from(inner.end)].to_vec(),
    }))
}

fn from_tunnel(opened: &Opened) -> Result<Content, DropReason> {
    let parsed = wire::parse(&opened.inner).map_err(|_| DropReason::Malformed)?;
    if parsed.vlan.count() != 0 {
        return Err(DropReason::UnexpectedVlan);
    }
    if opened.outer_tos & 3 != 0 && !ecn::apply_decap(&mut opened.inner.clone(), &parsed, opened.outer_tos) {
        return Err(DropReason::IllegalEcn);
    }
    enter(&opened.inner, &parsed, opened.tenant, Ingress::Vtep(opened.vtep))
}

/// The same for both directions: what of the frame the rules look at.
fn enter(frame: &[u8], parsed: &Parsed, tenant: TenantId, ingress: Ingress) -> Result<Content, DropReason> {
    match parsed.l3 {
        L3::Ipv4 | L3::Ipv6 => {}
        L3::Arp => return Ok(Content::Neighbour),
        L3::Other => return Err(DropReason::UnsupportedEtherType),
    }
    if parsed.flags.contains(Flags::SOURCE_ROUTE) || parsed.flags.contains(Flags::ROUTING_TYPE0) {
        return Err(DropReason::SourceRoute);
    }
    if frame[6] & 1 != 0 {
        return Err(DropReason::SpoofedMac);
    }
    if is_fragmented_control(frame, parsed) {
        return Err(DropReason::FragmentedControl);
    }
    let is_error = matches!(parsed.l4, L4::Icmp | L4::Icmpv6) && is_error(frame, parsed);
    // Its sum is asked for, since it is sent on about another flow.
    if is_error && verify_l4(frame, parsed) == Check::Wrong {
        return Err(DropReason::Malformed);
    }
    let (src, dst) = addresses(frame, parsed).ok_or(DropReason::Malformed)?;
    let service = service(frame, parsed);
    let src_port = if matches!(parsed.l4, L4::Tcp | L4::Udp | L4::Sctp) { parsed.src_port } else { 0 };
    Ok(Content::Packet(Packet {
        flow: Flow { tenant, ingress, src, dst, service, src_port },
        fragment: parsed.fragment,
        identifier: identifier(service, be16(frame, usize::from(parsed.l4_offset) + 4)),
        quote: is_error.then(|| quoted::read(frame, parsed)),
        link: Some(Link {
            dst_mac: mac_at(frame, 0),
            hop_limit: parsed.ttl(frame).unwrap_or(0),
            ip_len: parsed.end - parsed.l3_offset,
        }),
    }))
}

/// ICMP errors in fragments; neighbour discovery with a fragment header, even if it is whole (RFC 6980, section 5).
fn is_fragmented_control(frame: &[u8], parsed: &Parsed) -> bool {
    let kind = frame.get(usize::from(parsed.l4_offset)).copied().unwrap_or(0);
    let is_cut = parsed.fragment == Fragment::First;
    match parsed.l4 {
        L4::Icmp => is_cut && super::ICMP_ERRORS.contains(&kind) && kind != super::ICMP_REDIRECT,
        L4::Icmpv6 if wire::icmpv6::is_neighbour_discovery(kind) => {
            is_cut || parsed.flags.contains(Flags::ATOMIC_FRAGMENT)
        }
        L4::Icmpv6 => is_cut && (1..=127).contains(&kind),
        _ => false,
    }
}

/// ICMP that is judged by the packet that it quotes, sent to one station.
fn is_error(frame: &[u8], parsed: &Parsed) -> bool {
    let kind = frame.get(usize::from(parsed.l4_offset)).copied().unwrap_or(0);
    let is_quoting = match parsed.l4 {
        L4::Icmp => super::ICMP_ERRORS.contains(&kind) && kind != super::ICMP_REDIRECT,
        _ => (1..=127).contains(&kind),
    };
    is_quoting && frame[0] & 1 == 0
}

/// An echo's identifier, which tells pings between the same hosts apart.
pub(super) fn identifier(service: Service, found: u16) -> Option<u16> {
    matches!(service, Service::Icmp(0 | 8, _) | Service::Icmpv6(128 | 129, _)).then_some(found)
}

fn be16(frame: &[u8], at: usize) -> u16 {
    frame.get(at..at + 2).map_or(0, |bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
}

fn service(frame: &[u8], parsed: &Parsed) -> Service {
    if parsed.fragment == Fragment::Later {
        return Service::Opaque(parsed.protocol);
    }
    match (parsed.l4, parsed.icmp(frame)) {
        (L4::Roce, _) => Service::Roce(parsed.dest_qp),
        (L4::Tcp, _) => Service::Tcp(parsed.dst_port),
        (L4::Udp, _) => Service::Udp(parsed.dst_port),
        (L4::Sctp, _) => Service::Sctp(parsed.dst_port),
        (L4::Icmp, Some(header)) => Service::Icmp(header.kind, header.code),
        (L4::Icmpv6, Some(header)) => Service::Icmpv6(header.kind, header.code),
        _ => Service::Opaque(parsed.protocol),
    }
}

fn addresses(frame: &[u8], parsed: &Parsed) -> Option<(IpAddr, IpAddr)> {
    if let Some(header) = parsed.ipv4(frame) {
        return Some((Ipv4Addr::from(header.src).into(), Ipv4Addr::from(header.dst).into()));
    }
    let header = parsed.ipv6(frame)?;
    Some((Ipv6Addr::from(header.src).into(), Ipv6Addr::from(header.dst).into()))
}

fn mac_at(frame: &[u8], at: usize) -> Mac {
    frame.get(at..at + 6).and_then(|bytes| bytes.try_into().ok()).map_or(Mac::default(), Mac)
}
