//! Which of several hops a flow takes: rendezvous hashing (Thaler and Ravishankar, 1998).
//!
//! Each hop draws a number for the flow, and the highest wins. When a hop goes, only its own flows draw again; when one
//! comes, it takes an equal share from every other. The draw depends on the flow and on the hop's MAC alone: neither ids,
//! nor the order in files, nor a restart change it, and another card draws alike.

use std::net::IpAddr;

use wire::Mac;

use crate::{Flow, Place, Service};

/// Who packets to an address are handed to. Within a tenant the MAC says which hop it is: it has one place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hop {
    /// The inner destination MAC.
    pub mac: Mac,
    /// Where it is.
    pub place: Place,
}

impl Flow {
    /// The hop of this flow among those of its destination; `None` when there is none. What two hosts send each other by
    /// the same ports takes one hop, whichever of them is asked about; RoCEv2 goes by its destination queue pair, and what
    /// shows no ports by its addresses.
    pub fn choose<'h>(&self, hops: &'h [Hop]) -> Option<&'h Hop> {
        match hops {
            [] => None,
            [only] => Some(only),
            several => {
                let path = self.path();
                several.iter().max_by_key(|hop| (draw(path, hop.mac), hop.mac.0))
            }
        }
    }

    /// The same number for both directions of a flow, but for RoCEv2, whose other queue pair is not known.
    fn path(&self) -> u64 {
        let (src_port, dst_port, queue_pair) = match self.service {
            Service::Tcp(port) | Service::Udp(port) | Service::Sctp(port) => (self.src_port, port, 0),
            Service::Roce(queue_pair) => (0, 0, queue_pair),
            Service::Icmp(..) | Service::Icmpv6(..) | Service::Opaque(_) => (0, 0, 0),
        };
        let ends = [(number(self.src), src_port), (number(self.dst), dst_port)];
        let (low, high) = (ends[0].min(ends[1]), ends[0].max(ends[1]));
        let ports = u64::from(low.1) << 16 | u64::from(high.1);
        let head = u64::from(queue_pair) << 40 | u64::from(self.service.protocol()) << 32 | ports;
        let words = [head, low.0 as u64, (low.0 >> 64) as u64, high.0 as u64, (high.0 >> 64) as u64];
        words.into_iter().fold(0, |path, word| stir(path ^ word))
    }
}

/// What a hop draws for a flow.
fn draw(path: u64, mac: Mac) -> u64 {
    let [a, b, c, d, e, f] = mac.0;
    stir(path ^ stir(u64::from_be_bytes([0, 0, a, b, c, d, e, f])))
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(u32::from(v4)),
        IpAddr::V6(v6) => v6.into(),
    }
}

/// Each bit depends on every bit: the finaliser of SplitMix64 (Steele, Lea and Flood, 2014).
const fn stir(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}
