//! ARP and neighbour discovery of tenants. floodway answers for every host that it knows, as a proxy: no broadcast of a
//! tenant leaves its port. Whoever claims what is not its own is not heard.

use std::net::IpAddr;

use engine::Io;
use packet::{Backend, Buf};
use program::{Answers, DropReason, Hop, Ingress, Place, Tenant};
use wire::{Mac, build};

use crate::classify::mac_at;
use crate::lane::Lane;
use crate::nd::{self, Advert, Nd};
use crate::{Edge, Tables};

impl Edge {
    pub(crate) fn arp<B: Backend>(
        &mut self,
        tables: &Tables,
        tenant: &Tenant,
        lane: &Lane,
        buf: B::Buf,
        io: &mut Io<B>,
    ) {
        match self.arp_answer(tables, tenant, lane, buf.bytes()) {
            Ok((owner, request)) => {
                self.rewrite_and_send_back(tables, lane, buf, io, |frame| {
                    build::arp_reply(frame, &request, owner)
                });
            }
            Err(reason) => io.ledger.dropped(lane.account, reason),
        }
    }

    /// Who the request asks for, if it is a request to answer.
    fn arp_answer(
        &self,
        tables: &Tables,
        tenant: &Tenant,
        lane: &Lane,
        frame: &[u8],
    ) -> Result<(Mac, wire::arp::Arp), DropReason> {
        let arp = *lane.parsed.arp(frame).ok_or(DropReason::Malformed)?;
        let (sender, target) = (IpAddr::from(arp.sender_ip), IpAddr::from(arp.target_ip));
        if arp.sender_mac != mac_at(frame, 6) {
            return Err(DropReason::SpoofedArp);
        }
        let ingress = lane.ingress();
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

    pub(crate) fn nd<B: Backend>(
        &mut self,
        tables: &Tables,
        tenant: &Tenant,
        lane: &Lane,
        buf: B::Buf,
        io: &mut Io<B>,
    ) {
        match self.nd_answer(tables, tenant, lane, buf.bytes()) {
            Ok(advert) => {
                self.rewrite_and_send_back(tables, lane, buf, io, |frame| advert.write(frame));
            }
            Err(reason) => io.ledger.dropped(lane.account, reason),
        }
    }

    /// The advertisement that answers a solicitation, if it is one to answer (RFC 4861, section 7).
    fn nd_answer(
        &self,
        tables: &Tables,
        tenant: &Tenant,
        lane: &Lane,
        frame: &[u8],
    ) -> Result<Advert, DropReason> {
        let message = nd::read(frame, &lane.parsed)?;
        let ingress = lane.ingress();
        let src_mac = mac_at(frame, 6);
        let (src, target, link_mac) = match message {
            Nd::Router => return Err(DropReason::RouterAdvertisement),
            Nd::RouterSolicit => return Err(DropReason::NeighbourHeard),
            Nd::Advert { target, mac } => {
                let genuine = is_genuine(tables, tenant, ingress, IpAddr::V6(target), mac.unwrap_or(src_mac));
                return Err(if genuine { DropReason::NeighbourHeard } else { DropReason::SpoofedNd });
            }
            Nd::Solicit { src, target, mac } => (src, target, mac.unwrap_or(src_mac)),
        };
        if src.is_unspecified() {
            let own = is_own(tables, tenant, ingress, IpAddr::V6(target)) || target.is_unicast_link_local();
            return Err(if own { DropReason::NeighbourHeard } else { DropReason::SpoofedNd });
        }
        if link_mac != src_mac || !is_genuine(tables, tenant, ingress, IpAddr::V6(src), link_mac) {
            return Err(DropReason::SpoofedNd);
        }
        if is_own(tables, tenant, ingress, IpAddr::V6(target)) {
            return Err(DropReason::NeighbourHeard);
        }
        let owner = owner(tenant, ingress, IpAddr::V6(target)).ok_or(DropReason::UnknownNeighbour)?;
        let router = tenant.gateways.contains(&IpAddr::V6(target));
        Ok(Advert { owner, target, asker: (src_mac, src), router })
    }
}

/// True when `address` and `mac` belong together and to that side. Link-local addresses are not in the program: the
/// MAC alone must be right.
fn is_genuine(tables: &Tables, tenant: &Tenant, ingress: Ingress, address: IpAddr, mac: Mac) -> bool {
    let link_local = matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local());
    match ingress {
        Ingress::Port(port) => {
            let own_mac = tables.port(port).is_some_and(|view| view.mac == mac);
            own_mac && (tables.program.owns(port, address) || link_local)
        }
        Ingress::Vtep(vtep) if link_local => {
            let own = Hop { mac, place: Place::Vtep(vtep) };
            tenant.endpoints.iter().any(|endpoint| endpoint.hop == own)
        }
        Ingress::Vtep(vtep) => {
            tables.locate(tenant, address).contains(&Hop { mac, place: Place::Vtep(vtep) })
        }
    }
}

/// True for an address of the asking side itself: a gratuitous announcement, or a check for duplicates.
fn is_own(tables: &Tables, tenant: &Tenant, ingress: Ingress, address: IpAddr) -> bool {
    match ingress {
        Ingress::Port(port) => tables.program.owns(port, address),
        Ingress::Vtep(_) => tables.is_behind(tenant, ingress, address),
    }
}

/// The MAC to answer with; nobody is told of hosts on its own side.
fn owner(tenant: &Tenant, ingress: Ingress, address: IpAddr) -> Option<Mac> {
    if tenant.gateways.contains(&address) {
        return Some(tenant.gateway_mac);
    }
    let endpoint = tenant.endpoint(address)?;
    let remote_asks_for_remote = matches!((ingress, endpoint.hop.place), (Ingress::Vtep(_), Place::Vtep(_)));
    (!remote_asks_for_remote).then_some(endpoint.hop.mac)
}
