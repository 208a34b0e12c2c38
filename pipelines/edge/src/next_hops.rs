//! The MACs that outer headers are sent to: resolved by ARP and ND, kept across a change of program.

use std::net::IpAddr;
use std::sync::Arc;

use packet::Nanos;
use program::{VtepId, limit};
use quiescent::cell::SharedWords;
use tables::neighbour::{Learned, Neighbours, Solicit};
use wire::Mac;

use crate::Tables;

/// Set in a word of the board when the MAC in its lower 48 bits is valid.
const RESOLVED: u64 = 1 << 63;

/// One worker's next hops.
pub(crate) struct NextHops {
    neighbours: Neighbours,
    /// The MAC to send to, by tunnel endpoint: what packets look up.
    macs: Vec<Option<Mac>>,
    /// The same for whoever reports it.
    board: Arc<SharedWords>,
}

impl NextHops {
    pub(crate) fn new(board: Arc<SharedWords>) -> Self {
        Self { neighbours: Neighbours::new(limit::VTEPS), macs: Vec::with_capacity(limit::VTEPS), board }
    }

    /// Where packets for that tunnel endpoint are sent.
    #[inline]
    pub(crate) fn mac(&self, vtep: VtepId) -> Option<Mac> {
        *self.macs.get(usize::from(vtep.0))?
    }

    /// Takes in a new program: what is resolved and still wanted stays resolved.
    pub(crate) fn adopt(&mut self, tables: &Tables) {
        let wanted =
            |ip| tables.program.vteps.iter().flatten().any(|vtep| vtep.mac.is_none() && vtep.next_hop == ip);
        let gone: Vec<IpAddr> = self.neighbours.iter().map(|(ip, _)| ip).filter(|ip| !wanted(*ip)).collect();
        for ip in gone {
            self.neighbours.unregister(ip);
        }
        for vtep in tables.program.vteps.iter().flatten().filter(|vtep| vtep.mac.is_none()) {
            // There is room: a program has no more tunnel endpoints than the table has slots.
            let _ = self.neighbours.register(vtep.next_hop);
        }
        self.refresh(tables);
    }

    /// Takes an answer; true when it changed where packets go.
    pub(crate) fn learn(&mut self, tables: &Tables, ip: IpAddr, mac: Mac, now: Nanos) {
        if matches!(self.neighbours.learn(ip, mac, now), Learned::Resolved | Learned::Changed) {
            self.refresh(tables);
        }
    }

    /// The next request to send now.
    pub(crate) fn due(&mut self, now: Nanos) -> Option<Solicit> {
        self.neighbours.due(now)
    }

    /// Copies what is resolved to where packets look.
    pub(crate) fn refresh(&mut self, tables: &Tables) {
        self.macs.clear();
        for vtep in &tables.program.vteps {
            let mac =
                vtep.as_ref().and_then(|vtep| vtep.mac.or_else(|| self.neighbours.lookup(vtep.next_hop)));
            self.macs.push(mac);
        }
        for index in 0..self.board.len() {
            let mac = self.macs.get(index).copied().flatten();
            self.board.store(index, mac.map_or(0, to_word));
        }
    }
}

fn to_word(mac: Mac) -> u64 {
    mac.0.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)) | RESOLVED
}

/// The MAC in a word of the board; `None` while the next hop has not answered.
pub fn mac_of_word(word: u64) -> Option<Mac> {
    let bytes = word.to_be_bytes();
    (word & RESOLVED != 0).then(|| Mac([bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7]]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mac_survives_the_board() {
        let mac = Mac([0xfe, 1, 2, 3, 4, 0xff]);
        assert_eq!(mac_of_word(to_word(mac)), Some(mac));
        assert_eq!(mac_of_word(to_word(Mac::default())), Some(Mac::default()));
        assert_eq!(mac_of_word(0), None);
    }
}
