//! A decided packet on its way out: hop to the receiver's MAC, through the gateway if it was sent there, into a
//! tunnel or to a port.

use engine::Io;
use packet::{Backend, Buf, Nanos};
use program::{DropReason, DscpMode};
use wire::build::IcmpError;
use wire::{L3, Mac, Parsed};

use crate::action::{Action, Target};
use crate::classify::mac_at;
use crate::lane::Lane;
use crate::tables::Tunnel;
use crate::{Edge, Tables};

/// What the way ahead asks of a packet.
struct Way {
    gateway_mac: Mac,
    dst_mac: Mac,
    /// Largest IP packet.
    mtu: u16,
}

impl Edge {
    /// Sends a packet where its flow's action says.
    #[inline(always)]
    pub(crate) fn forward<B: Backend>(
        &mut self,
        tables: &Tables,
        lane: &Lane,
        buf: B::Buf,
        action: Action,
        io: &mut Io<B>,
        now: Nanos,
    ) {
        let dst_mac = action.dst_mac;
        match action.target() {
            Target::Tunnel(index) => {
                let Some(tunnel) = tables.tunnels.get(index as usize) else {
                    return io.ledger.dropped(lane.account, DropReason::NoRoute);
                };
                let way = Way { gateway_mac: tunnel.gateway_mac, dst_mac, mtu: tunnel.mtu };
                if let Some(buf) = self.make_ready(tables, lane, buf, &way, io, now) {
                    self.encapsulate(tables, lane, buf, tunnel, action.entropy, io);
                }
            }
            Target::Port(port) => {
                let Some(view) = tables.port(port) else {
                    return io.ledger.dropped(lane.account, DropReason::NoRoute);
                };
                let way = Way { gateway_mac: view.gateway_mac, dst_mac, mtu: view.mtu };
                if let Some(buf) = self.make_ready(tables, lane, buf, &way, io, now) {
                    io.outbox.push(port, buf, &mut io.ledger);
                }
            }
            Target::Drop(reason) => io.ledger.dropped(lane.account, reason),
        }
    }

    /// The packet as its receiver is to see it; `None` when it was dropped instead.
    #[inline(always)]
    fn make_ready<B: Backend>(
        &mut self,
        tables: &Tables,
        lane: &Lane,
        mut buf: B::Buf,
        way: &Way,
        io: &mut Io<B>,
        now: Nanos,
    ) -> Option<B::Buf> {
        let parsed = &lane.parsed;
        // Padding behind the IP packet is the last wire's, not the packet's.
        buf.truncate(usize::from(parsed.end));
        if parsed.end - parsed.l3_offset > way.mtu {
            self.refuse(tables, lane, buf, IcmpError::TooBig { mtu: way.mtu }, io, now);
            return None;
        }
        match hop(buf.bytes_mut(), parsed, way) {
            Ok(()) => return Some(buf),
            Err(DropReason::TtlExpired) => self.refuse(tables, lane, buf, IcmpError::TimeExceeded, io, now),
            Err(reason) => io.ledger.dropped(lane.account, reason),
        }
        None
    }

    /// Puts an inner frame that is ready to leave into its tunnel and on the uplink. The lane's `parsed` says where
    /// its TOS is.
    #[inline(always)]
    pub(crate) fn encapsulate<B: Backend>(
        &mut self,
        tables: &Tables,
        lane: &Lane,
        mut buf: B::Buf,
        tunnel: &Tunnel,
        entropy: u16,
        io: &mut Io<B>,
    ) {
        let account = lane.account;
        let Some(uplink) = &tables.uplink else {
            return io.ledger.dropped(account, DropReason::NoRoute);
        };
        let Some(next_hop) = self.next_hops.mac(tunnel.vtep) else {
            return io.ledger.dropped(account, DropReason::UnresolvedNextHop);
        };
        let inner_len = buf.bytes().len();
        let tos = outer_tos(lane.parsed.tos(buf.bytes()).unwrap_or(0), uplink.dscp);
        if !buf.prepend(tunnel.template.len()) {
            return io.ledger.dropped(account, DropReason::NoBuffer);
        }
        let frame = buf.bytes_mut();
        if !tunnel.template.stamp(frame, entropy, tos) {
            return io.ledger.dropped(account, DropReason::TooBig);
        }
        frame[..6].copy_from_slice(&next_hop.0);
        io.outbox.push_tunnelled(uplink.port, buf, tunnel.tenant, inner_len, &mut io.ledger);
    }
}

/// RFC 6040, section 4.1 (normal mode): the outer ECN field is a copy of the inner one; the DSCP by setting.
#[inline]
fn outer_tos(inner: u8, dscp: DscpMode) -> u8 {
    match dscp {
        DscpMode::Copy => inner,
        DscpMode::Fixed(dscp) => dscp << 2 | inner & 3,
    }
}

/// One hop inside the tenant's network: bridged when the sender named the receiver's MAC, routed when it named the
/// gateway's.
#[inline]
fn hop(frame: &mut [u8], parsed: &Parsed, way: &Way) -> Result<(), DropReason> {
    let named = mac_at(frame, 0);
    if named == way.gateway_mac {
        if !decrement_ttl(frame, parsed) {
            return Err(DropReason::TtlExpired);
        }
        frame[..6].copy_from_slice(&way.dst_mac.0);
        frame[6..12].copy_from_slice(&way.gateway_mac.0);
    } else if named != way.dst_mac {
        return Err(DropReason::UnknownDestinationMac);
    }
    Ok(())
}

/// False, and nothing changed, when the packet may not travel on. The IPv4 checksum follows by RFC 1624.
fn decrement_ttl(frame: &mut [u8], parsed: &Parsed) -> bool {
    let l3 = usize::from(parsed.l3_offset);
    let at = if parsed.l3 == L3::Ipv4 { l3 + 8 } else { l3 + 7 };
    let ttl = frame[at];
    if ttl <= 1 {
        return false;
    }
    frame[at] = ttl - 1;
    if parsed.l3 == L3::Ipv4 {
        let protocol = frame[l3 + 9];
        let old = u16::from_be_bytes([ttl, protocol]);
        let new = u16::from_be_bytes([ttl - 1, protocol]);
        let sum = u16::from_be_bytes([frame[l3 + 10], frame[l3 + 11]]);
        frame[l3 + 10..l3 + 12].copy_from_slice(&wire::checksum::update(sum, old, new).to_be_bytes());
    }
    true
}
