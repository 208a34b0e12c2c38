//! A tenant's packets that the flow table does not decide: ICMP errors, taken in and made, and what is for the gateway.
//! Neighbour discovery is in [`crate::discovery`].

use std::net::IpAddr;

use engine::Io;
use packet::{Allocator, Backend, Buf, Nanos};
use program::{DropReason, Ingress, PortId};
use wire::checksum::{Check, verify_l4};
use wire::{Fragment, L3, L4, build};

use crate::classify::mac_at;
use crate::decide;
use crate::key;
use crate::lane::Lane;
use crate::{Edge, Tables, echo, nd};

/// The longest frame of ARP or neighbour discovery that floodway writes, in bytes.
pub(crate) const NEIGHBOUR_LEN: usize =
    if build::ND_FRAME_LEN > build::ARP_FRAME_LEN { build::ND_FRAME_LEN } else { build::ARP_FRAME_LEN };

impl Edge {
    /// Ends a lane of [`crate::lane::Fate::Special`].
    #[cold]
    pub(crate) fn special<B: Backend>(
        &mut self,
        tables: &Tables,
        lane: &Lane,
        buf: B::Buf,
        io: &mut Io<B>,
        now: Nanos,
    ) {
        let parsed = lane.parsed;
        let Some(tenant) = tables.program.tenant(lane.tenant()) else {
            return io.ledger.dropped(lane.account, DropReason::NoTenant);
        };
        match (parsed.l3, parsed.l4) {
            (L3::Arp, _) => self.arp(tables, tenant, lane, buf, io),
            (_, L4::Icmpv6) if nd::is_nd(buf.bytes(), &parsed) => self.nd(tables, tenant, lane, buf, io),
            _ if buf.bytes()[0] & 1 != 0 => io.ledger.dropped(lane.account, DropReason::Group),
            _ => self.icmp_error(tables, lane, buf, io, now),
        }
    }

    /// An ICMP error belongs to the flow that it quotes, and passes when that flow may.
    fn icmp_error<B: Backend>(
        &mut self,
        tables: &Tables,
        lane: &Lane,
        buf: B::Buf,
        io: &mut Io<B>,
        now: Nanos,
    ) {
        let (key, parsed) = (lane.key, &lane.parsed);
        if verify_l4(buf.bytes(), parsed) == Check::Wrong {
            return io.ledger.dropped(lane.account, DropReason::Malformed);
        }
        // It is for whoever sent what it quotes, and comes from where that went.
        let quoted = key::quoted(buf.bytes(), parsed, &key)
            .filter(|quoted| key::src(quoted) == key::dst(&key))
            .filter(|quoted| decide::came_back(tables, &key, quoted));
        let mut senders = quoted.iter().flat_map(|quoted| decide::place_sender(tables, quoted));
        let related = senders.any(|quoted| {
            let was_sent = || {
                let sequence = key::quoted_sequence(buf.bytes(), parsed);
                sequence.is_none_or(|sequence| self.may_be_quoted(&quoted, sequence))
            };
            let is_open = self.is_open(tables, &quoted, now)
                || decide::openers(tables, &quoted).any(|opener| self.is_open(tables, &opener, now));
            is_open && was_sent()
        });
        let action = match decide::deliver_reply(tables, &key) {
            Ok(allowed) if related => allowed.action(tables, &key),
            Ok(_) => return io.ledger.dropped(lane.account, DropReason::UnrelatedIcmpError),
            Err(refused) => return io.ledger.dropped(lane.account, refused.reason),
        };
        self.forward(tables, lane, buf, action, io, now);
    }

    /// A packet for the gateway, which is floodway itself: it answers echo requests and nothing else.
    #[cold]
    pub(crate) fn for_gateway<B: Backend>(
        &mut self,
        tables: &Tables,
        lane: &Lane,
        mut buf: B::Buf,
        io: &mut Io<B>,
    ) {
        let key = lane.key;
        let Ingress::Port(port) = key::ingress(&key) else {
            return io.ledger.dropped(lane.account, DropReason::NoRoute);
        };
        let gateway_mac = tables.port(port).map(|view| view.gateway_mac);
        let refusal = if !tables.program.owns(port, key::src(&key)) {
            Some(DropReason::SpoofedAddress)
        } else if gateway_mac != Some(mac_at(buf.bytes(), 0)) {
            Some(DropReason::UnknownDestinationMac)
        } else if !echo::reply_in_place(buf.bytes_mut(), &lane.parsed) {
            Some(DropReason::NoService)
        } else {
            None
        };
        match refusal {
            Some(reason) => io.ledger.dropped(lane.account, reason),
            None => io.outbox.push(port, buf, &mut io.ledger),
        }
    }

    /// Drops a packet that cannot go on, and tells its sender why: how large it may be (RFC 1191; RFC 8201), or that
    /// its hop limit ran out at the gateway (RFC 792; RFC 4443, section 3.3).
    #[cold]
    pub(crate) fn refuse<B: Backend>(
        &mut self,
        tables: &Tables,
        lane: &Lane,
        buf: B::Buf,
        error: build::IcmpError,
        io: &mut Io<B>,
        now: Nanos,
    ) {
        let reason = match error {
            build::IcmpError::TooBig { .. } => DropReason::TooBig,
            build::IcmpError::TimeExceeded => DropReason::TtlExpired,
            build::IcmpError::Prohibited => DropReason::PolicyDeny,
        };
        io.ledger.dropped(lane.account, reason);
        let parsed = lane.parsed;
        let tenant_id = lane.tenant();
        let Some(tenant) = tables.program.tenant(tenant_id) else { return };
        let family = |address: &&IpAddr| address.is_ipv4() == (parsed.l3 == L3::Ipv4);
        let Some(&gateway) = tenant.gateways.iter().find(family) else { return };
        if parsed.fragment == Fragment::Later || !self.may_send_icmp_error(tenant_id, now) {
            return;
        }
        let Some(mut answer) = io.allocator.allocate() else { return };
        if !answer.append(build::MAX_ICMP_ERROR_LEN) {
            return;
        }
        let origin = build::Origin { mac: tenant.gateway_mac, ip: gateway };
        let Ok(len) = build::icmp_error(answer.bytes_mut(), buf.bytes(), &parsed, &origin, error) else {
            return;
        };
        answer.truncate(len);
        let out = match lane.ingress() {
            Ingress::Port(port) => port,
            Ingress::Vtep(_) => tables.uplink.as_ref().map_or(PortId(0), |uplink| uplink.port),
        };
        io.ledger.originated(out);
        self.send_back(tables, lane, answer, io);
    }

    pub(crate) fn rewrite_and_send_back<B: Backend>(
        &mut self,
        tables: &Tables,
        lane: &Lane,
        mut buf: B::Buf,
        io: &mut Io<B>,
        write: impl FnOnce(&mut [u8]) -> Result<usize, build::BuildError>,
    ) {
        match rewrite(&mut buf, write) {
            true => self.send_back(tables, lane, buf, io),
            false => io.ledger.dropped(lane.account, DropReason::NoBuffer),
        }
    }

    /// Sends a frame to where the lane's packet came from.
    #[inline(never)]
    fn send_back<B: Backend>(&mut self, tables: &Tables, lane: &Lane, buf: B::Buf, io: &mut Io<B>) {
        let tenant = lane.tenant();
        match lane.ingress() {
            Ingress::Port(port) => io.outbox.push(port, buf, &mut io.ledger),
            Ingress::Vtep(vtep) => {
                match tables.tunnel_to(tenant, vtep).and_then(|index| tables.tunnels.get(index as usize)) {
                    Some(tunnel) => {
                        let entropy = key::entropy(&key::anonymous(tenant, Ingress::Vtep(vtep)));
                        self.encapsulate(tables, lane, buf, tunnel, entropy, io);
                    }
                    None => io.ledger.dropped(lane.account, DropReason::NoRoute),
                }
            }
        }
    }
}

/// Replaces a received frame by one that is written into its buffer; false when there is no room.
pub(crate) fn rewrite<B: Buf>(
    buf: &mut B,
    write: impl FnOnce(&mut [u8]) -> Result<usize, build::BuildError>,
) -> bool {
    let missing = NEIGHBOUR_LEN.saturating_sub(buf.bytes().len());
    if !buf.append(missing) {
        return false;
    }
    let Ok(len) = write(buf.bytes_mut()) else { return false };
    buf.truncate(len);
    true
}
