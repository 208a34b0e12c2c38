//! Addresses of one family on a line.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use program::PeerBlock;

use super::set::Set;

/// A packet's source and destination are of the same one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Family {
    V4,
    V6,
}

impl Family {
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];

    pub fn all(self) -> Set<u128> {
        match self {
            Self::V4 => Set::span(0, u128::from(u32::MAX)),
            Self::V6 => Set::span(0, u128::MAX),
        }
    }

    /// The point of an address, if it is of this family.
    pub fn point(self, address: IpAddr) -> Option<u128> {
        match (self, address) {
            (Self::V4, IpAddr::V4(v4)) => Some(v4.to_bits().into()),
            (Self::V6, IpAddr::V6(v6)) => Some(v6.to_bits()),
            _ => None,
        }
    }

    pub fn address(self, point: u128) -> IpAddr {
        match self {
            Self::V4 => Ipv4Addr::from_bits(point as u32).into(),
            Self::V6 => Ipv6Addr::from_bits(point).into(),
        }
    }

    pub fn net(self, net: IpNet) -> Option<(u128, u128)> {
        self.point(net.network()).zip(self.point(net.broadcast()))
    }

    pub fn nets<'a>(self, nets: impl IntoIterator<Item = &'a IpNet>) -> Set<u128> {
        Set::of_spans(nets.into_iter().filter_map(|net| self.net(*net)).collect())
    }

    /// The addresses in one of the blocks, as [`PeerBlock::contains`] has it.
    pub fn blocks(self, blocks: &[PeerBlock]) -> Set<u128> {
        let mut spans = Vec::with_capacity(blocks.len());
        for block in blocks {
            let Some((first, last)) = self.net(block.net) else { continue };
            if block.except.is_empty() {
                spans.push((first, last));
            } else {
                spans.extend(Set::span(first, last).minus(&self.nets(&block.except)).spans());
            }
        }
        Set::of_spans(spans)
    }

    /// Sources that no packet may have, whoever sends it: what [`program::Program::way`] calls martian.
    pub fn martians(self) -> Set<u128> {
        let nets: &[&str] = match self {
            Self::V4 => &["127.0.0.0/8", "224.0.0.0/4", "255.255.255.255/32"],
            Self::V6 => &["::1/128", "ff00::/8"],
        };
        let nets: Vec<IpNet> = nets.iter().filter_map(|net| net.parse().ok()).collect();
        self.nets(&nets)
    }
}
