//! Neighbour discovery as the pipeline needs it: who asks for whom, or tells what.

use std::net::{IpAddr, Ipv6Addr};

use program::DropReason;
use wire::build::{self, BuildError};
use wire::nd::{HOP_LIMIT, Message, NeighbourAdvertisement, option};
use wire::{Mac, Parsed, icmpv6};

use crate::key;

/// A message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Nd {
    /// Somebody at `src` asks for `target`; its own MAC if it says so.
    Solicit { src: Ipv6Addr, target: Ipv6Addr, mac: Option<Mac> },
    /// Somebody tells of `target`; its MAC if it says so.
    Advert { target: Ipv6Addr, mac: Option<Mac> },
    /// Somebody looks for a router.
    RouterSolicit,
    /// A router advertisement or a redirect.
    Router,
}

/// True for the ICMPv6 types of neighbour discovery.
pub(crate) fn is_nd(frame: &[u8], parsed: &Parsed) -> bool {
    parsed.l4_bytes(frame).first().is_some_and(|kind| icmpv6::is_neighbour_discovery(*kind))
}

/// Reads a message that [`is_nd`]. One that came from beyond the link (RFC 4861, section 11.2) is spoofed.
pub(crate) fn read(frame: &[u8], parsed: &Parsed) -> Result<Nd, DropReason> {
    if parsed.ttl(frame) != Some(HOP_LIMIT) {
        return Err(DropReason::SpoofedNd);
    }
    let message = Message::parse(parsed.l4_bytes(frame)).ok().flatten().ok_or(DropReason::Malformed)?;
    let link_layer = |kind| message.options().link_layer(kind).map_err(|_| DropReason::Malformed);
    Ok(match &message {
        Message::RouterSolicitation(..) => Nd::RouterSolicit,
        Message::RouterAdvertisement(..) | Message::Redirect(..) => Nd::Router,
        Message::NeighbourSolicitation(solicit, _) => {
            let Some((IpAddr::V6(src), _)) = key::addresses(frame, parsed) else {
                return Err(DropReason::Malformed);
            };
            Nd::Solicit { src, target: solicit.target.into(), mac: link_layer(option::SOURCE_LINK_LAYER)? }
        }
        Message::NeighbourAdvertisement(advert, _) => {
            Nd::Advert { target: advert.target.into(), mac: link_layer(option::TARGET_LINK_LAYER)? }
        }
    })
}

/// An answer to a solicitation.
pub(crate) struct Advert {
    pub(crate) owner: Mac,
    pub(crate) target: Ipv6Addr,
    /// Whom to tell.
    pub(crate) asker: (Mac, Ipv6Addr),
    pub(crate) router: bool,
}

impl Advert {
    /// Writes the frame; returns its length in bytes.
    pub(crate) fn write(&self, frame: &mut [u8]) -> Result<usize, BuildError> {
        let router = if self.router { NeighbourAdvertisement::ROUTER } else { 0 };
        let flags = NeighbourAdvertisement::SOLICITED | NeighbourAdvertisement::OVERRIDE | router;
        let asker = (self.asker.0, self.asker.1.octets());
        build::neighbour_advertisement(frame, self.owner, self.target.octets(), asker, flags)
    }
}
