//! This box as a host on the underlay: it resolves its next hops, answers for its own address, and nothing else.

use std::net::IpAddr;

use engine::Io;
use packet::{Allocator, Backend, Buf, Nanos};
use program::DropReason;
use tables::neighbour::Solicit;
use wire::{L3, L4, Mac, Parsed, build};

use crate::classify::mac_at;
use crate::echo;
use crate::key;
use crate::lane::Lane;
use crate::nd::{self, Advert, Nd};
use crate::special::{NEIGHBOUR_LEN, rewrite};
use crate::tables::UplinkView;
use crate::{Edge, Tables};

/// What came of a packet for this box.
enum Outcome {
    /// The buffer holds the answer.
    Answered,
    /// No answer.
    Ended(DropReason),
}

impl Edge {
    /// Ends a lane of [`crate::lane::Fate::Underlay`].
    #[cold]
    pub(crate) fn underlay<B: Backend>(
        &mut self,
        tables: &Tables,
        lane: &Lane,
        mut buf: B::Buf,
        io: &mut Io<B>,
        now: Nanos,
    ) {
        let parsed = lane.parsed;
        let Some(uplink) = &tables.uplink else {
            return io.ledger.dropped(lane.account, DropReason::NoTenant);
        };
        let outcome = match (parsed.l3, parsed.l4) {
            _ if parsed.vlan.count() != 0 => Outcome::Ended(DropReason::UnexpectedVlan),
            (L3::Arp, _) => self.underlay_arp(tables, uplink, lane, &mut buf, now),
            (L3::Ipv6, L4::Icmpv6) if nd::is_nd(buf.bytes(), &parsed) => {
                self.underlay_nd(tables, uplink, lane, &mut buf, now)
            }
            (_, L4::Icmp | L4::Icmpv6)
                if is_for(uplink, buf.bytes(), &parsed) && echo::reply_in_place(buf.bytes_mut(), &parsed) =>
            {
                Outcome::Answered
            }
            _ => Outcome::Ended(DropReason::NoService),
        };
        match outcome {
            Outcome::Answered => io.outbox.push(uplink.port, buf, &mut io.ledger),
            Outcome::Ended(reason) => io.ledger.dropped(lane.account, reason),
        }
    }

    fn underlay_arp<B: Buf>(
        &mut self,
        tables: &Tables,
        uplink: &UplinkView,
        lane: &Lane,
        buf: &mut B,
        now: Nanos,
    ) -> Outcome {
        let Some(&arp) = lane.parsed.arp(buf.bytes()) else {
            return Outcome::Ended(DropReason::Malformed);
        };
        let sender = IpAddr::from(arp.sender_ip);
        if uplink.is_ours(sender) || arp.sender_mac != mac_at(buf.bytes(), 6) {
            return Outcome::Ended(DropReason::SpoofedArp);
        }
        self.next_hops.learn(tables, sender, arp.sender_mac, now);
        if arp.operation.get() != wire::arp::REQUEST || !uplink.is_ours(IpAddr::from(arp.target_ip)) {
            return Outcome::Ended(DropReason::NeighbourHeard);
        }
        answer(buf, |frame| build::arp_reply(frame, &arp, uplink.mac))
    }

    fn underlay_nd<B: Buf>(
        &mut self,
        tables: &Tables,
        uplink: &UplinkView,
        lane: &Lane,
        buf: &mut B,
        now: Nanos,
    ) -> Outcome {
        let message = match nd::read(buf.bytes(), &lane.parsed) {
            Ok(message) => message,
            Err(reason) => return Outcome::Ended(reason),
        };
        let src_mac = mac_at(buf.bytes(), 6);
        let (src, target, mac) = match message {
            Nd::Solicit { src, target, mac } => (src, target, mac),
            Nd::Advert { target, mac } if !uplink.is_ours(IpAddr::V6(target)) => {
                self.next_hops.learn(tables, IpAddr::V6(target), mac.unwrap_or(src_mac), now);
                return Outcome::Ended(DropReason::NeighbourHeard);
            }
            Nd::Advert { .. } => return Outcome::Ended(DropReason::SpoofedNd),
            Nd::RouterSolicit | Nd::Router => return Outcome::Ended(DropReason::NeighbourHeard),
        };
        if let Some(mac) = mac {
            self.next_hops.learn(tables, IpAddr::V6(src), mac, now);
        }
        if !uplink.is_ours(IpAddr::V6(target)) || src.is_unspecified() {
            return Outcome::Ended(DropReason::NeighbourHeard);
        }
        let asker = (mac.unwrap_or(src_mac), src);
        let advert = Advert { owner: uplink.mac, target, asker, router: false };
        answer(buf, |frame| advert.write(frame))
    }

    /// Sends the requests that are due; a next hop that was lost is no longer sent to.
    pub(crate) fn ask_next_hops<B: Backend>(&mut self, tables: &Tables, io: &mut Io<B>, now: Nanos) {
        let Some(uplink) = &tables.uplink else { return };
        let mut asked = false;
        while let Some(solicit) = self.next_hops.due(now) {
            asked = true;
            let Some(mut buf) = io.allocator.allocate() else { continue };
            if buf.append(NEIGHBOUR_LEN)
                && let Some(len) = write_request(buf.bytes_mut(), uplink, &solicit)
            {
                buf.truncate(len);
                io.ledger.originated(uplink.port);
                io.outbox.push(uplink.port, buf, &mut io.ledger);
            }
        }
        if asked {
            self.next_hops.refresh(tables);
        }
    }
}

/// Asks for a next hop, everybody or, to see that it is still there, itself; `None` when this box has no address of
/// that family.
fn write_request(frame: &mut [u8], uplink: &UplinkView, solicit: &Solicit) -> Option<usize> {
    let len = match (uplink.source(solicit.ip)?, solicit.ip) {
        (IpAddr::V4(own), IpAddr::V4(ip)) => build::arp_request(frame, uplink.mac, own.octets(), ip.octets()),
        (IpAddr::V6(own), IpAddr::V6(ip)) => {
            build::neighbour_solicitation(frame, uplink.mac, own.octets(), ip.octets())
        }
        _ => return None,
    };
    if let Some(Mac(mac)) = solicit.to {
        frame.get_mut(..6)?.copy_from_slice(&mac);
    }
    len.ok()
}

/// True for a packet to this box alone: its MAC and its address.
fn is_for(uplink: &UplinkView, frame: &[u8], parsed: &Parsed) -> bool {
    mac_at(frame, 0) == uplink.mac
        && key::addresses(frame, parsed).is_some_and(|(_, dst)| uplink.is_ours(dst))
}

fn answer<B: Buf>(buf: &mut B, write: impl FnOnce(&mut [u8]) -> Result<usize, build::BuildError>) -> Outcome {
    if rewrite(buf, write) { Outcome::Answered } else { Outcome::Ended(DropReason::NoBuffer) }
}
