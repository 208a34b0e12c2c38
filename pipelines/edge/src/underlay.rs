//! This box as a host on the underlay: it resolves its next hops, answers for its own address, and nothing else.

use std::net::{IpAddr, Ipv6Addr};

use engine::Io;
use packet::{Backend, Buf, Nanos};
use program::DropReason;
use tables::neighbour::Solicit;
use wire::{L3, L4, Mac, build, icmpv6::nd};

use crate::classify::mac_at;
use crate::special::{TTL, rewrite};
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
    /// Ends a lane of [`crate::lanes::Fate::Underlay`].
    #[cold]
    pub(crate) fn underlay<B: Backend>(
        &mut self, tables: &Tables, lane: usize, mut buf: B::Buf, io: &mut Io<B>, now: Nanos,
    ) {
        let parsed = self.lanes.parsed[lane];
        let Some(uplink) = &tables.uplink else {
            return io.ledger.dropped(self.lanes.account[lane], DropReason::NoTenant);
        };
        let outcome = match (parsed.l3, parsed.l4) {
            _ if parsed.vlan.count() != 0 => Outcome::Ended(DropReason::UnexpectedVlan),
            (L3::Arp, _) => self.underlay_arp(tables, uplink, lane, &mut buf, now),
            (L3::Ipv6, L4::Icmpv6) if nd::is_nd(buf.bytes(), &parsed) => {
                self.underlay_nd(tables, uplink, lane, &mut buf, now)
            }
            (_, L4::Icmp | L4::Icmpv6)
                if mac_at(buf.bytes(), 0) == uplink.mac
                    && build::echo_reply_in_place(buf.bytes_mut(), &parsed, TTL) =>
            {
                Outcome::Answered
            }
            _ => Outcome::Ended(DropReason::NoService),
        };
        match outcome {
            Outcome::Answered => io.outbox.push(uplink.port, buf, &mut io.ledger),
            Outcome::Ended(reason) => io.ledger.dropped(self.lanes.account[lane], reason),
        }
    }

    fn underlay_arp<B: Buf>(
        &mut self, tables: &Tables, uplink: &UplinkView, lane: usize, buf: &mut B, now: Nanos,
    ) -> Outcome {
        let Some(&arp) = wire::arp::view(buf.bytes(), &self.lanes.parsed[lane]) else {
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
        let reply = build::ArpReply {
            sender_mac: uplink.mac,
            sender_ip: arp.target_ip,
            target_mac: arp.sender_mac,
            target_ip: arp.sender_ip,
        };
        answer(buf, |frame| build::arp_reply(frame, &reply))
    }

    fn underlay_nd<B: Buf>(
        &mut self, tables: &Tables, uplink: &UplinkView, lane: usize, buf: &mut B, now: Nanos,
    ) -> Outcome {
        let parsed = self.lanes.parsed[lane];
        let message = match nd::parse(buf.bytes(), &parsed) {
            Ok(message) => message,
            Err(nd::Error::HopLimit) => return Outcome::Ended(DropReason::SpoofedNd),
            Err(nd::Error::Malformed) => return Outcome::Ended(DropReason::Malformed),
        };
        let src_mac = mac_at(buf.bytes(), 6);
        match message {
            nd::Message::NeighbourAdvert { target, target_mac, .. } if !uplink.is_ours(IpAddr::V6(target)) => {
                self.next_hops.learn(tables, IpAddr::V6(target), target_mac.unwrap_or(src_mac), now);
                Outcome::Ended(DropReason::NeighbourHeard)
            }
            nd::Message::NeighbourAdvert { .. } => Outcome::Ended(DropReason::SpoofedNd),
            nd::Message::NeighbourSolicit { target, source_mac } => {
                let Some(IpAddr::V6(src)) = parsed.src_ip(buf.bytes()) else {
                    return Outcome::Ended(DropReason::Malformed);
                };
                if let Some(mac) = source_mac {
                    self.next_hops.learn(tables, IpAddr::V6(src), mac, now);
                }
                if !uplink.is_ours(IpAddr::V6(target)) || src == Ipv6Addr::UNSPECIFIED {
                    return Outcome::Ended(DropReason::NeighbourHeard);
                }
                let advert = build::NeighbourAdvert {
                    src_mac: uplink.mac,
                    dst_mac: source_mac.unwrap_or(src_mac),
                    dst_ip: src,
                    target,
                    router: false,
                    solicited: true,
                };
                answer(buf, |frame| build::neighbour_advert(frame, &advert))
            }
            _ => Outcome::Ended(DropReason::NeighbourHeard),
        }
    }

    /// Sends the requests that are due; a next hop that was lost is no longer sent to.
    pub(crate) fn ask_next_hops<B: Backend>(&mut self, tables: &Tables, io: &mut Io<B>, now: Nanos) {
        let Some(uplink) = &tables.uplink else { return };
        let mut asked = false;
        while let Some(solicit) = self.next_hops.due(now) {
            asked = true;
            let Some(mut buf) = io.allocator.allocate() else { continue };
            if buf.append(build::MAX_NEIGHBOUR_LEN)
                && let Some(Ok(len)) = write_request(buf.bytes_mut(), uplink, &solicit)
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

fn write_request(frame: &mut [u8], uplink: &UplinkView, solicit: &Solicit) -> Option<Result<usize, build::TooSmall>> {
    match (uplink.source(solicit.ip)?, solicit.ip) {
        (IpAddr::V4(own), IpAddr::V4(ip)) => {
            let request = build::ArpRequest {
                dst_mac: solicit.to.unwrap_or(Mac::BROADCAST),
                sender_mac: uplink.mac,
                sender_ip: own.octets(),
                target_ip: ip.octets(),
            };
            Some(build::arp_request(frame, &request))
        }
        (IpAddr::V6(own), IpAddr::V6(ip)) => {
            let request =
                build::NeighbourSolicit { src_mac: uplink.mac, src_ip: own, target: ip, unicast_to: solicit.to };
            Some(build::neighbour_solicit(frame, &request))
        }
        _ => None,
    }
}

fn answer<B: Buf>(buf: &mut B, write: impl FnOnce(&mut [u8]) -> Result<usize, build::TooSmall>) -> Outcome {
    if rewrite(buf, write) { Outcome::Answered } else { Outcome::Ended(DropReason::NoBuffer) }
}
