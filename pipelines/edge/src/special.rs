//! A tenant's packets that the flow table does not decide: neighbour discovery, ICMP errors, what is for the gateway.
//!
//! floodway answers ARP and ND for every host that it knows, as a proxy: no broadcast of a tenant leaves its port.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use engine::Io;
use packet::{Backend, Buf, Nanos};
use program::{DropReason, PortId, Tenant};
use wire::{Fragment, L3, L4, Mac, build, icmpv6::nd};

use crate::action::Target;
use crate::classify::mac_at;
use crate::decide;
use crate::key::{self, Ingress};
use crate::{Edge, Tables};

/// Hop limit of everything that floodway makes itself.
pub(crate) const TTL: u8 = 64;

impl Edge {
    /// Ends a lane of [`crate::lanes::Fate::Special`].
    #[cold]
    pub(crate) fn special<B: Backend>(
        &mut self, tables: &Tables, lane: usize, buf: B::Buf, io: &mut Io<B>, now: Nanos,
    ) {
        let parsed = self.lanes.parsed[lane];
        let Some(tenant) = tables.program.tenant(self.lanes.tenant(lane)) else {
            return io.ledger.dropped(self.lanes.account[lane], DropReason::NoTenant);
        };
        match (parsed.l3, parsed.l4) {
            (L3::Arp, _) => self.arp(tables, tenant, lane, buf, io),
            (_, L4::Icmpv6) if is_nd(buf.bytes(), parsed.l4_offset) => self.nd(tables, tenant, lane, buf, io),
            _ if buf.bytes()[0] & 1 != 0 => io.ledger.dropped(self.lanes.account[lane], DropReason::Group),
            _ => self.icmp_error(tables, lane, buf, io, now),
        }
    }

    fn arp<B: Backend>(&mut self, tables: &Tables, tenant: &Tenant, lane: usize, mut buf: B::Buf, io: &mut Io<B>) {
        match self.arp_answer(tables, tenant, lane, buf.bytes()) {
            Ok((owner, request)) => {
                let reply = build::ArpReply {
                    sender_mac: owner,
                    sender_ip: request.target_ip,
                    target_mac: request.sender_mac,
                    target_ip: request.sender_ip,
                };
                self.rewrite_and_send_back(tables, lane, buf, io, |frame| build::arp_reply(frame, &reply));
            }
            Err(reason) => {
                buf.truncate(0);
                io.ledger.dropped(self.lanes.account[lane], reason);
            }
        }
    }

    /// Who the request asks for, if it is a request to answer.
    fn arp_answer(
        &self, tables: &Tables, tenant: &Tenant, lane: usize, frame: &[u8],
    ) -> Result<(Mac, wire::arp::Arp), DropReason> {
        let arp = *wire::arp::view(frame, &self.lanes.parsed[lane]).ok_or(DropReason::Malformed)?;
        let (sender, target) = (IpAddr::from(arp.sender_ip), IpAddr::from(arp.target_ip));
        if arp.sender_mac != mac_at(frame, 6) {
            return Err(DropReason::SpoofedArp);
        }
        let ingress = self.lanes.ingress(lane);
        let is_probe = arp.is_probe();
        if !is_probe && !is_genuine(tables, tenant, ingress, sender, arp.sender_mac) {
            return Err(DropReason::SpoofedArp);
        }
        if arp.operation.get() != wire::arp::REQUEST || is_own(tables, tenant, ingress, target) {
            return Err(DropReason::NeighbourHeard);
        }
        let owner = owner(tenant, ingress, target).ok_or(DropReason::UnknownNeighbour)?;
        Ok((owner, arp))
    }

    fn nd<B: Backend>(&mut self, tables: &Tables, tenant: &Tenant, lane: usize, buf: B::Buf, io: &mut Io<B>) {
        match self.nd_answer(tables, tenant, lane, buf.bytes()) {
            Ok(advert) => {
                self.rewrite_and_send_back(tables, lane, buf, io, |frame| build::neighbour_advert(frame, &advert));
            }
            Err(reason) => io.ledger.dropped(self.lanes.account[lane], reason),
        }
    }

    /// The advertisement that answers a solicitation, if it is one to answer (RFC 4861, section 7).
    fn nd_answer(
        &self, tables: &Tables, tenant: &Tenant, lane: usize, frame: &[u8],
    ) -> Result<build::NeighbourAdvert, DropReason> {
        let message = nd::parse(frame, &self.lanes.parsed[lane]).map_err(|error| match error {
            nd::Error::HopLimit => DropReason::SpoofedNd,
            nd::Error::Malformed => DropReason::Malformed,
        })?;
        let ingress = self.lanes.ingress(lane);
        let src_mac = mac_at(frame, 6);
        let src = self.lanes.parsed[lane].src_ip(frame).ok_or(DropReason::Malformed)?;
        let (target, link_mac) = match message {
            nd::Message::RouterAdvert | nd::Message::Redirect => return Err(DropReason::RouterAdvertisement),
            nd::Message::RouterSolicit => return Err(DropReason::NeighbourHeard),
            nd::Message::NeighbourAdvert { target, target_mac, .. } => {
                let mac = target_mac.unwrap_or(src_mac);
                let genuine = is_genuine(tables, tenant, ingress, IpAddr::V6(target), mac);
                return Err(if genuine { DropReason::NeighbourHeard } else { DropReason::SpoofedNd });
            }
            nd::Message::NeighbourSolicit { target, source_mac } => (target, source_mac.unwrap_or(src_mac)),
        };
        if src == IpAddr::V6(Ipv6Addr::UNSPECIFIED) {
            let own = is_own(tables, tenant, ingress, IpAddr::V6(target)) || target.is_unicast_link_local();
            return Err(if own { DropReason::NeighbourHeard } else { DropReason::SpoofedNd });
        }
        if link_mac != src_mac || !is_genuine(tables, tenant, ingress, src, link_mac) {
            return Err(DropReason::SpoofedNd);
        }
        if is_own(tables, tenant, ingress, IpAddr::V6(target)) {
            return Err(DropReason::NeighbourHeard);
        }
        let owner = owner(tenant, ingress, IpAddr::V6(target)).ok_or(DropReason::UnknownNeighbour)?;
        let IpAddr::V6(asker) = src else { return Err(DropReason::Malformed) };
        Ok(build::NeighbourAdvert {
            src_mac: owner,
            dst_mac: src_mac,
            dst_ip: asker,
            target,
            router: tenant.gateways.contains(&IpAddr::V6(target)),
            solicited: true,
        })
    }

    /// An ICMP error belongs to the flow that it quotes, and passes when that flow may.
    fn icmp_error<B: Backend>(
        &mut self, tables: &Tables, lane: usize, buf: B::Buf, io: &mut Io<B>, now: Nanos,
    ) {
        let key = self.lanes.key[lane];
        let quoted = key::quoted(buf.bytes(), &self.lanes.parsed[lane], &key)
            .and_then(|quoted| decide::place_sender(tables, &quoted));
        let related = quoted.is_some_and(|quoted| {
            let answer_of = decide::opener(tables, &quoted);
            self.is_open(tables, &quoted, now)
                || answer_of.is_some_and(|opener| self.is_open(tables, &opener, now))
        });
        let action = match decide::deliver_reply(tables, &key) {
            Ok(allowed) if related => allowed.action(tables, &key),
            Ok(_) => return io.ledger.dropped(self.lanes.account[lane], DropReason::UnrelatedIcmpError),
            Err(refused) => return io.ledger.dropped(self.lanes.account[lane], refused.reason),
        };
        self.forward(tables, lane, buf, action, io, now);
    }

    /// A packet for the gateway, which is floodway itself: it answers echo requests and nothing else.
    #[cold]
    pub(crate) fn for_gateway<B: Backend>(&mut self, tables: &Tables, lane: usize, mut buf: B::Buf, io: &mut Io<B>) {
        let key = self.lanes.key[lane];
        let Ingress::Port(port) = key::ingress(&key) else {
            return io.ledger.dropped(self.lanes.account[lane], DropReason::NoRoute);
        };
        let gateway_mac = tables.port(port).map(|view| view.gateway_mac);
        let refusal = if !decide::owns(&tables.program, port, key::src(&key)) {
            Some(DropReason::SpoofedAddress)
        } else if gateway_mac != Some(mac_at(buf.bytes(), 0)) {
            Some(DropReason::UnknownDestinationMac)
        } else if !build::echo_reply_in_place(buf.bytes_mut(), &self.lanes.parsed[lane], TTL) {
            Some(DropReason::NoService)
        } else {
            None
        };
        match refusal {
            Some(reason) => io.ledger.dropped(self.lanes.account[lane], reason),
            None => io.outbox.push(port, buf, &mut io.ledger),
        }
    }

    /// Larger than the way ahead: dropped, and the sender is told how large it may be (RFC 1191; RFC 8201).
    #[cold]
    pub(crate) fn refuse_too_big<B: Backend>(
        &mut self, tables: &Tables, lane: usize, buf: B::Buf, mtu: u16, io: &mut Io<B>, now: Nanos,
    ) {
        self.refuse_with_icmp(tables, lane, buf, DropReason::TooBig, build::IcmpError::TooBig { mtu }, io, now);
    }

    /// Its hop limit ran out at the gateway: dropped, and the sender is told (RFC 792; RFC 4443, section 3.3).
    #[cold]
    pub(crate) fn refuse_expired<B: Backend>(
        &mut self, tables: &Tables, lane: usize, buf: B::Buf, io: &mut Io<B>, now: Nanos,
    ) {
        self.refuse_with_icmp(tables, lane, buf, DropReason::TtlExpired, build::IcmpError::TimeExceeded, io, now);
    }

    #[allow(clippy::too_many_arguments)]
    fn refuse_with_icmp<B: Backend>(
        &mut self, tables: &Tables, lane: usize, buf: B::Buf, reason: DropReason, error: build::IcmpError,
        io: &mut Io<B>, now: Nanos,
    ) {
        io.ledger.dropped(self.lanes.account[lane], reason);
        let parsed = self.lanes.parsed[lane];
        let tenant_id = self.lanes.tenant(lane);
        let Some(tenant) = tables.program.tenant(tenant_id) else { return };
        let family = |address: &&IpAddr| address.is_ipv4() == (parsed.l3 == L3::Ipv4);
        let Some(&gateway) = tenant.gateways.iter().find(family) else { return };
        if parsed.fragment == Fragment::Later || !self.may_send_icmp_error(tenant_id, now) {
            return;
        }
        let Some(mut answer) = io.allocator.allocate() else { return };
        let room = build::MAX_ICMP_ERROR_LEN;
        if !answer.append(room) {
            return;
        }
        let sender = build::IcmpSender { mac: tenant.gateway_mac, ip: gateway, ttl: TTL };
        let Ok(len) = build::icmp_error(answer.bytes_mut(), buf.bytes(), &parsed, error, &sender) else { return };
        answer.truncate(len);
        let out = match self.lanes.ingress(lane) {
            Ingress::Port(port) => port,
            Ingress::Vtep(_) => tables.uplink.as_ref().map_or(PortId(0), |uplink| uplink.port),
        };
        io.ledger.originated(out);
        self.send_back(tables, lane, answer, io);
    }

    fn rewrite_and_send_back<B: Backend>(
        &mut self, tables: &Tables, lane: usize, mut buf: B::Buf, io: &mut Io<B>,
        write: impl FnOnce(&mut [u8]) -> Result<usize, build::TooSmall>,
    ) {
        match rewrite(&mut buf, write) {
            true => self.send_back(tables, lane, buf, io),
            false => io.ledger.dropped(self.lanes.account[lane], DropReason::NoBuffer),
        }
    }

    /// Sends a frame to where the lane's packet came from.
    fn send_back<B: Backend>(&mut self, tables: &Tables, lane: usize, buf: B::Buf, io: &mut Io<B>) {
        let tenant = self.lanes.tenant(lane);
        match self.lanes.ingress(lane) {
            Ingress::Port(port) => io.outbox.push(port, buf, &mut io.ledger),
            Ingress::Vtep(vtep) => match tables.tunnel_to(tenant, vtep) {
                Some(tunnel) => {
                    let entropy = key::entropy(&key::anonymous(tenant, Ingress::Vtep(vtep)));
                    self.into_tunnel(tables, lane, buf, tunnel, entropy, io);
                }
                None => io.ledger.dropped(self.lanes.account[lane], DropReason::NoRoute),
            },
        }
    }
}

/// Replaces a received frame by one that is written into its buffer; false when there is no room.
pub(crate) fn rewrite<B: Buf>(buf: &mut B, write: impl FnOnce(&mut [u8]) -> Result<usize, build::TooSmall>) -> bool {
    let missing = build::MAX_NEIGHBOUR_LEN.saturating_sub(buf.bytes().len());
    if !buf.append(missing) {
        return false;
    }
    let Ok(len) = write(buf.bytes_mut()) else { return false };
    buf.truncate(len);
    true
}

fn is_nd(frame: &[u8], l4_offset: u16) -> bool {
    matches!(frame.get(usize::from(l4_offset)), Some(133..=137))
}

/// True when `address` and `mac` belong together and to that side. Link-local addresses are not in the program: the
/// MAC alone must be right.
fn is_genuine(tables: &Tables, tenant: &Tenant, ingress: Ingress, address: IpAddr, mac: Mac) -> bool {
    let link_local = matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local());
    match ingress {
        Ingress::Port(port) => {
            let own_mac = tables.port(port).is_some_and(|view| view.mac == mac);
            own_mac && (decide::owns(&tables.program, port, address) || link_local)
        }
        Ingress::Vtep(vtep) if link_local => {
            tenant.endpoints.iter().any(|endpoint| endpoint.place == program::Place::Vtep(vtep) && endpoint.mac == mac)
        }
        Ingress::Vtep(_) => {
            decide::is_behind(tenant, ingress, address)
                && tenant.locate(address).is_some_and(|(_, owner)| owner == mac)
        }
    }
}

/// True for an address of the asking side itself: a gratuitous announcement, or a check for duplicates.
fn is_own(tables: &Tables, tenant: &Tenant, ingress: Ingress, address: IpAddr) -> bool {
    match ingress {
        Ingress::Port(port) => decide::owns(&tables.program, port, address),
        Ingress::Vtep(_) => decide::is_behind(tenant, ingress, address),
    }
}

/// The MAC to answer with; nobody is told of hosts on its own side.
fn owner(tenant: &Tenant, ingress: Ingress, address: IpAddr) -> Option<Mac> {
    if tenant.gateways.contains(&address) {
        return Some(tenant.gateway_mac);
    }
    let endpoint = tenant.endpoint(address)?;
    let remote_asks_for_remote =
        matches!((ingress, endpoint.place), (Ingress::Vtep(_), program::Place::Vtep(_)));
    (!remote_asks_for_remote).then_some(endpoint.mac)
}

/// Never in a target: keeps the import of [`Target`] honest for the tests below.
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nd_messages_are_told_by_type() {
        assert!(is_nd(&[133], 0) && is_nd(&[137], 0));
        assert!(!is_nd(&[128], 0) && !is_nd(&[], 0));
        let _ = (Target::Tunnel(0), Ipv4Addr::LOCALHOST);
    }
}
