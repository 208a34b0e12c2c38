//! The first pass: whose packet is it, what is it, and is it what it claims to be?

use engine::{Account, Ledger, Tally};
use packet::{Buf, Burst};
use program::{DropReason, PortId, TenantId};
use tables::flow::FlowKey;
use wire::{Flags, Fragment, L3, L4, Mac, Parsed, ecn, vxlan};

use crate::key::{self, Ingress};
use crate::lanes::Fate;
use crate::tables::{PortView, Role, UplinkView};
use crate::{Edge, Tables};

const ETHERNET_LEN: usize = wire::ethernet::HEADER_LEN;

impl Edge {
    /// Fills the lanes of a burst from `port`.
    pub(crate) fn classify<B: Buf>(
        &mut self, tables: &Tables, port: PortId, burst: &mut Burst<B>, ledger: &mut Ledger,
    ) {
        self.lanes.port = port;
        self.lanes.account = [Account::Port(port); packet::BURST];
        burst.iter().for_each(Buf::prefetch);
        match tables.port(port) {
            Some(view) if view.role == Role::Tenant => {
                for (lane, buf) in burst.iter_mut().enumerate() {
                    self.lanes.fate[lane] = self.classify_host(view, port, lane, buf);
                }
            }
            Some(PortView { role: Role::Uplink, .. }) if tables.uplink.is_some() => {
                let mut outer = OuterMemo::default();
                for (lane, buf) in burst.iter_mut().enumerate() {
                    self.lanes.fate[lane] = self.classify_fabric(tables, &mut outer, lane, buf, ledger);
                }
            }
            _ => self.lanes.fate = [Fate::Drop(DropReason::NoTenant); packet::BURST],
        }
    }

    /// A packet from a tenant's host.
    #[inline]
    fn classify_host<B: Buf>(&mut self, view: &PortView, port: PortId, lane: usize, buf: &mut B) -> Fate {
        let parsed = match wire::parse(buf.bytes()) {
            Ok(parsed) if parsed.vlan.count() == 0 => parsed,
            Ok(parsed) => match strip_priority_tag(buf, &parsed) {
                Some(parsed) => parsed,
                None => return Fate::Drop(DropReason::UnexpectedVlan),
            },
            Err(_) => return Fate::Drop(DropReason::Malformed),
        };
        if mac_at(buf.bytes(), 6) != view.mac {
            return Fate::Drop(DropReason::SpoofedMac);
        }
        self.enter_tenant(lane, buf.bytes(), parsed, view.tenant, Ingress::Port(port))
    }

    /// A packet from the uplink: a tunnel's end, or something for this box.
    #[inline]
    fn classify_fabric<B: Buf>(
        &mut self, tables: &Tables, memo: &mut OuterMemo, lane: usize, buf: &mut B, ledger: &mut Ledger,
    ) -> Fate {
        let Some(uplink) = &tables.uplink else { return Fate::Drop(DropReason::NoTenant) };
        let outer = match wire::parse(buf.bytes()) {
            Ok(outer) => outer,
            Err(_) => return Fate::Drop(DropReason::Malformed),
        };
        if outer.l4 != L4::Udp || outer.dst_port != vxlan::PORT {
            self.lanes.parsed[lane] = outer;
            return classify_underlay(uplink, buf.bytes(), &outer);
        }
        let header = match self.open_tunnel(tables, uplink, memo, &outer, buf.bytes()) {
            Ok(header) => header,
            Err(reason) => return Fate::Drop(reason),
        };
        self.lanes.account[lane] = Account::Tenant(header.tenant);
        buf.truncate(usize::from(outer.end));
        buf.trim_front(header.inner_offset);
        let mut tally = Tally::default();
        tally.add(buf.bytes().len());
        ledger.received(self.lanes.account[lane], tally);
        let inner = match wire::parse(buf.bytes()) {
            Ok(inner) if inner.vlan.count() == 0 => inner,
            Ok(_) => return Fate::Drop(DropReason::UnexpectedVlan),
            Err(_) => return Fate::Drop(DropReason::Malformed),
        };
        if header.outer_ecn != 0 && !ecn::decapsulate(buf.bytes_mut(), &inner, header.outer_ecn) {
            return Fate::Drop(DropReason::IllegalEcn);
        }
        self.enter_tenant(lane, buf.bytes(), inner, header.tenant, Ingress::Vtep(header.vtep))
    }

    /// Checks the headers of a VXLAN packet, outermost first.
    #[inline]
    fn open_tunnel(
        &self, tables: &Tables, uplink: &UplinkView, memo: &mut OuterMemo, outer: &Parsed, frame: &[u8],
    ) -> Result<TunnelHeader, DropReason> {
        if outer.vlan.count() != 0 {
            return Err(DropReason::UnexpectedVlan);
        }
        if mac_at(frame, 0) != uplink.mac || !uplink.is_ours(outer.dst_ip(frame).ok_or(DropReason::Malformed)?) {
            return Err(DropReason::NotForUs);
        }
        if outer.fragment != Fragment::None {
            return Err(DropReason::OuterFragment);
        }
        let src = outer.src_ip(frame).ok_or(DropReason::Malformed)?;
        let vtep = memo.vtep(tables, src).ok_or(DropReason::UnknownVtep)?;
        if !wire::checksum::verify_udp(frame, outer) {
            return Err(DropReason::OuterChecksum);
        }
        let udp = usize::from(outer.l4_offset);
        let inner_offset = udp + wire::udp::HEADER_LEN + vxlan::HEADER_LEN;
        if inner_offset + ETHERNET_LEN > usize::from(outer.end) {
            return Err(DropReason::Malformed);
        }
        let header = vxlan::header(&frame[udp + wire::udp::HEADER_LEN..]).ok_or(DropReason::Malformed)?;
        let vni = header.vni().ok_or(DropReason::VxlanFlags)?;
        let tenant = memo.tenant(tables, vni).ok_or(DropReason::UnknownVni)?;
        Ok(TunnelHeader { tenant, vtep, outer_ecn: outer.tos(frame) & 3, inner_offset })
    }

    /// Puts a packet into its tenant's lane: the same for both directions.
    #[inline]
    fn enter_tenant(&mut self, lane: usize, frame: &[u8], parsed: Parsed, tenant: TenantId, ingress: Ingress) -> Fate {
        self.lanes.parsed[lane] = parsed;
        if !matches!(parsed.l3, L3::Ipv4 | L3::Ipv6) {
            self.lanes.key[lane] = key::anonymous(tenant, ingress);
            return if parsed.l3 == L3::Arp { Fate::Special } else { Fate::Drop(DropReason::UnsupportedEtherType) };
        }
        self.lanes.key[lane] = key::of(frame, &parsed, tenant, ingress);
        let odd = parsed.flags.intersects(UNROUTABLE) | (frame[0] & 1 != 0);
        if odd | matches!(parsed.l4, L4::Icmp | L4::Icmpv6) {
            return classify_odd(frame, &parsed, &self.lanes.key[lane]);
        }
        Fate::LookUp
    }
}

/// Source routes of either version: a sender that picks the path goes around the rules.
const UNROUTABLE: Flags = Flags::SOURCE_ROUTE.with(Flags::ROUTING_TYPE0);

/// What of a VXLAN packet's outer headers matters inside.
struct TunnelHeader {
    tenant: TenantId,
    vtep: program::VtepId,
    outer_ecn: u8,
    inner_offset: usize,
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

/// ICMP, groups and source routes: which of them the flow table does not decide.
#[cold]
fn classify_odd(frame: &[u8], parsed: &Parsed, key: &FlowKey) -> Fate {
    if parsed.flags.intersects(UNROUTABLE) {
        return Fate::Drop(DropReason::SourceRoute);
    }
    let kind = (key.l4 >> 8) as u8;
    let special = match parsed.l4 {
        L4::Icmp => matches!(kind, 3 | 4 | 5 | 11 | 12),
        L4::Icmpv6 => matches!(kind, 1..=127 | 133..=137),
        _ => false,
    };
    if special || frame[0] & 1 != 0 { Fate::Special } else { Fate::LookUp }
}

/// What is not a tunnel, on the uplink.
#[cold]
fn classify_underlay(uplink: &UplinkView, frame: &[u8], outer: &Parsed) -> Fate {
    let to_us = mac_at(frame, 0) == uplink.mac || frame[0] & 1 != 0;
    match outer.l3 {
        L3::Arp if to_us => Fate::Underlay,
        L3::Ipv4 | L3::Ipv6 if to_us => match outer.dst_ip(frame) {
            Some(dst) if uplink.is_ours(dst) || outer.l4 == L4::Icmpv6 => Fate::Underlay,
            _ => Fate::Drop(DropReason::NotForUs),
        },
        L3::Other => Fate::Drop(DropReason::UnsupportedEtherType),
        _ => Fate::Drop(DropReason::NotForUs),
    }
}

/// Removes a priority tag (VID 0), which carries no VLAN (IEEE 802.1Q-2018, section 6.9.1); `None` for other tags.
#[cold]
fn strip_priority_tag<B: Buf>(buf: &mut B, parsed: &Parsed) -> Option<Parsed> {
    if !parsed.vlan.is_native() {
        return None;
    }
    buf.bytes_mut().copy_within(0..12, wire::ethernet::TAG_LEN);
    buf.trim_front(wire::ethernet::TAG_LEN);
    wire::parse(buf.bytes()).ok()
}

/// The MAC at that offset; the frame has been parsed, so that both MACs are there.
#[inline]
pub(crate) fn mac_at(frame: &[u8], offset: usize) -> Mac {
    frame.get(offset..offset + 6).and_then(|bytes| bytes.try_into().ok()).map_or(Mac::default(), Mac)
}
