//! The first pass: whose packet is it, what is it, and is it what it claims to be?

use engine::{Account, Ledger, Tally};
use packet::{Buf, Burst};
use program::{DropReason, Ingress, PortId, TenantId};
use tables::flow::FlowKey;
use wire::checksum::{Check, verify_l4};
use wire::{Flags, Fragment, L3, L4, Mac, Parsed, ecn, vxlan};

use crate::Tables;
use crate::key;
use crate::lane::{Fate, Lane};
use crate::tables::{PortView, Role, UplinkView};

/// Fills a lane for each packet of a burst from `port`.
pub(crate) fn classify<B: Buf>(
    tables: &Tables,
    port: PortId,
    lanes: &mut [Lane],
    burst: &mut Burst<B>,
    ledger: &mut Ledger,
) {
    burst.iter().for_each(Buf::prefetch);
    let packets = lanes.iter_mut().zip(burst.iter_mut());
    match (tables.port(port), &tables.uplink) {
        (Some(view), _) if view.role == Role::Tenant => {
            for (lane, buf) in packets {
                lane.account = Account::Port(port);
                lane.fate = classify_host(view, port, lane, buf);
            }
        }
        (Some(PortView { role: Role::Uplink, .. }), Some(uplink)) => {
            let mut outer = OuterMemo::default();
            for (lane, buf) in packets {
                lane.account = Account::Port(port);
                lane.fate = classify_fabric(tables, uplink, &mut outer, lane, buf, ledger);
            }
        }
        _ => {
            for (lane, _) in packets {
                lane.account = Account::Port(port);
                lane.fate = Fate::Drop(DropReason::NoTenant);
            }
        }
    }
}

/// A packet from a tenant's host.
#[inline]
fn classify_host<B: Buf>(view: &PortView, port: PortId, lane: &mut Lane, buf: &mut B) -> Fate {
    let parsed = &mut lane.parsed;
    if wire::parse_into(buf.bytes(), parsed).is_err() {
        return Fate::Drop(DropReason::Malformed);
    }
    if parsed.vlan.count() != 0 && !strip_priority_tag(buf, parsed) {
        return Fate::Drop(DropReason::UnexpectedVlan);
    }
    if mac_at(buf.bytes(), 6) != view.mac {
        return Fate::Drop(DropReason::SpoofedMac);
    }
    enter_tenant(lane, buf.bytes(), view.tenant, Ingress::Port(port))
}

/// A packet from the uplink: a tunnel's end, or something for this box.
#[inline]
fn classify_fabric<B: Buf>(
    tables: &Tables,
    uplink: &UplinkView,
    memo: &mut OuterMemo,
    lane: &mut Lane,
    buf: &mut B,
    ledger: &mut Ledger,
) -> Fate {
    let mut outer = Parsed::EMPTY;
    if wire::parse_into(buf.bytes(), &mut outer).is_err() {
        return Fate::Drop(DropReason::Malformed);
    }
    if outer.l4 != L4::Udp || outer.dst_port != vxlan::PORT {
        lane.parsed = outer;
        return classify_underlay(uplink, buf.bytes(), &outer);
    }
    let header = match open_tunnel(tables, uplink, memo, &outer, buf.bytes()) {
        Ok(header) => header,
        Err(reason) => return Fate::Drop(reason),
    };
    lane.account = Account::Tenant(header.tenant);
    buf.truncate(usize::from(header.inner.end));
    buf.trim_front(usize::from(header.inner.offset));
    let mut tally = Tally::default();
    tally.add(buf.bytes().len());
    ledger.received(lane.account, tally);
    let inner = &mut lane.parsed;
    if wire::parse_into(buf.bytes(), inner).is_err() {
        return Fate::Drop(DropReason::Malformed);
    }
    if inner.vlan.count() != 0 {
        return Fate::Drop(DropReason::UnexpectedVlan);
    }
    if header.outer_tos & 3 != 0 && !ecn::apply_decap(buf.bytes_mut(), inner, header.outer_tos) {
        return Fate::Drop(DropReason::IllegalEcn);
    }
    enter_tenant(lane, buf.bytes(), header.tenant, Ingress::Vtep(header.vtep))
}

/// Checks the headers of a VXLAN packet, outermost first.
#[inline]
fn open_tunnel(
    tables: &Tables,
    uplink: &UplinkView,
    memo: &mut OuterMemo,
    outer: &Parsed,
    frame: &[u8],
) -> Result<TunnelHeader, DropReason> {
    if outer.vlan.count() != 0 {
        return Err(DropReason::UnexpectedVlan);
    }
    let (src, dst) = key::addresses(frame, outer).ok_or(DropReason::Malformed)?;
    if mac_at(frame, 0) != uplink.mac || !uplink.is_ours(dst) {
        return Err(DropReason::NotForUs);
    }
    let vtep = memo.vtep(tables, src).ok_or(DropReason::UnknownVtep)?;
    if has_udp_checksum(frame, outer) && verify_l4(frame, outer) != Check::Right {
        // A fragment's checksum covers what is not here.
        let whole = outer.fragment == Fragment::None;
        return Err(if whole { DropReason::OuterChecksum } else { DropReason::OuterFragment });
    }
    let inner = vxlan::decap(frame, outer).map_err(|error| match error {
        wire::Malformed::VxlanFlags => DropReason::VxlanFlags,
        wire::Malformed::VxlanFragment => DropReason::OuterFragment,
        _ => DropReason::Malformed,
    })?;
    let tenant = memo.tenant(tables, inner.vni.get()).ok_or(DropReason::UnknownVni)?;
    let outer_tos = outer.tos(frame).unwrap_or(0);
    Ok(TunnelHeader { tenant, vtep, outer_tos, inner })
}

/// Puts a packet, which is parsed, into its tenant's lane: the same for both directions. Parser and key write to the lane in
/// place: a copy right behind small writes would wait for them.
#[inline(always)]
fn enter_tenant(lane: &mut Lane, frame: &[u8], tenant: TenantId, ingress: Ingress) -> Fate {
    let Lane { parsed, key, .. } = lane;
    if !matches!(parsed.l3, L3::Ipv4 | L3::Ipv6) {
        *key = key::anonymous(tenant, ingress);
        let arp = parsed.l3 == L3::Arp;
        return if arp { Fate::Special } else { Fate::Drop(DropReason::UnsupportedEtherType) };
    }
    key::read(key, frame, parsed, tenant, ingress);
    let odd = is_source_routed(parsed) | ((frame[0] | frame[6]) & 1 != 0);
    if odd | matches!(parsed.l4, L4::Icmp | L4::Icmpv6) | (parsed.fragment != Fragment::None) {
        return classify_odd(frame, parsed, key);
    }
    Fate::LookUp
}

/// Source routes of either version: a sender that picks the path goes around the rules.
#[inline]
fn is_source_routed(parsed: &Parsed) -> bool {
    parsed.flags.contains(Flags::SOURCE_ROUTE) | parsed.flags.contains(Flags::ROUTING_TYPE0)
}

/// True when the sender gave a UDP checksum. IPv6 may leave it out too in a tunnel (RFC 6935, section 5).
#[inline]
fn has_udp_checksum(frame: &[u8], outer: &Parsed) -> bool {
    let at = usize::from(outer.l4_offset) + 6;
    frame.get(at..at + 2) != Some(&[0, 0])
}

/// What of a VXLAN packet's outer headers matters inside.
struct TunnelHeader {
    tenant: TenantId,
    vtep: program::VtepId,
    outer_tos: u8,
    inner: vxlan::Inner,
}

/// The last lookups of a burst: packets of one tunnel come in runs.
#[derive(Default)]
struct OuterMemo {
    vtep: Option<(std::net::IpAddr, program::VtepId)>,
    tenant: Option<(u32, TenantId)>,
}

impl OuterMemo {
    #[inline]
    fn vtep(&mut self, tables: &Tables, address: std::net::IpAddr) -> Option<program::VtepId> {
        match self.vtep {
            Some((known, vtep)) if known == address => Some(vtep),
            _ => {
                let vtep = tables.vtep_of(address)?;
                self.vtep = Some((address, vtep));
                Some(vtep)
            }
        }
    }

    #[inline]
    fn tenant(&mut self, tables: &Tables, vni: u32) -> Option<TenantId> {
        match self.tenant {
            Some((known, tenant)) if known == vni => Some(tenant),
            _ => {
                let tenant = tables.tenant_of_vni(vni)?;
                self.tenant = Some((vni, tenant));
                Some(tenant)
            }
        }
    }
}

/// ICMP, fragments, groups and source routes: which of them the flow table does not decide.
#[cold]
fn classify_odd(frame: &[u8], parsed: &Parsed, key: &FlowKey) -> Fate {
    if is_source_routed(parsed) {
        return Fate::Drop(DropReason::SourceRoute);
    }
    if frame[6] & 1 != 0 {
        // No station has a group's MAC (IEEE 802.3, section 3.2.3); on a port the sender's own was asked for already.
        return Fate::Drop(DropReason::SpoofedMac);
    }
    let kind = (key.l4 >> 8) as u8;
    if parsed.l4 == L4::Icmp && kind == wire::icmp::REDIRECT {
        return Fate::Drop(DropReason::RouterAdvertisement);
    }
    let special = match parsed.l4 {
        L4::Icmp => matches!(kind, 3 | 4 | 5 | 11 | 12),
        L4::Icmpv6 => matches!(kind, 1..=127 | 133..=137),
        _ => false,
    };
    let is_fragment = parsed.fragment != Fragment::None;
    if special && (is_fragment || is_discovery_with_fragment_header(parsed, kind)) {
        return Fate::Drop(DropReason::FragmentedControl);
    }
    match is_fragment {
        _ if special || frame[0] & 1 != 0 => Fate::Special,
        true => Fate::Fragment,
        false => Fate::LookUp,
    }
}

/// Neighbour discovery may have no fragment header, even if it is whole (RFC 6980, section 5).
fn is_discovery_with_fragment_header(parsed: &Parsed, kind: u8) -> bool {
    parsed.flags.contains(Flags::ATOMIC_FRAGMENT) && wire::icmpv6::is_neighbour_discovery(kind)
}

/// What is not a tunnel, on the uplink.
#[cold]
fn classify_underlay(uplink: &UplinkView, frame: &[u8], outer: &Parsed) -> Fate {
    let to_us = mac_at(frame, 0) == uplink.mac || frame[0] & 1 != 0;
    match outer.l3 {
        L3::Arp if to_us => Fate::Underlay,
        L3::Ipv4 | L3::Ipv6 if to_us => match key::addresses(frame, outer) {
            Some((_, dst)) if uplink.is_ours(dst) && outer.fragment == Fragment::Later => {
                Fate::Drop(DropReason::OuterFragment)
            }
            Some((_, dst)) if uplink.is_ours(dst) || outer.l4 == L4::Icmpv6 => Fate::Underlay,
            _ => Fate::Drop(DropReason::NotForUs),
        },
        L3::Other => Fate::Drop(DropReason::UnsupportedEtherType),
        _ => Fate::Drop(DropReason::NotForUs),
    }
}

/// Removes a priority tag (VID 0), which carries no VLAN (IEEE 802.1Q-2018, section 6.9.1); false for other tags.
#[cold]
fn strip_priority_tag<B: Buf>(buf: &mut B, parsed: &mut Parsed) -> bool {
    if !parsed.vlan.is_native() {
        return false;
    }
    buf.bytes_mut().copy_within(0..12, wire::ethernet::TAG_LEN);
    buf.trim_front(wire::ethernet::TAG_LEN);
    wire::parse_into(buf.bytes(), parsed).is_ok()
}

/// The MAC at that offset; the frame has been parsed, so that both MACs are there.
#[inline]
pub(crate) fn mac_at(frame: &[u8], offset: usize) -> Mac {
    frame.get(offset..offset + 6).and_then(|bytes| bytes.try_into().ok()).map_or(Mac::default(), Mac)
}
