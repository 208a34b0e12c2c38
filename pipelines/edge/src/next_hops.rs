//! The MACs that outer headers are sent to: resolved by ARP and ND, kept across a change of program.

use std::net::IpAddr;
use std::sync::Arc;

use packet::Nanos;
use program::{Generation, VtepId, limit};
use quiescent::cell::SharedWords;
use tables::neighbour::{Learned, Neighbours, Solicit};
use wire::Mac;

use crate::Tables;

/// Set in a word of the board when the MAC in its lower 48 bits is valid.
const RESOLVED: u64 = 1 << 63;

/// One worker's next hops.
pub(crate) struct NextHops {
    /// `None` in a worker that leaves the asking to another, and reads what that one has learned.
    neighbours: Option<Neighbours>,
    /// The MAC to send to, by tunnel endpoint: what packets look up.
    macs: Vec<Option<Mac>>,
    /// The same for other workers, and for whoever reports it.
    board: Arc<SharedWords>,
    /// Of the board's words: those written last, or those read last.
    stamp: u64,
    /// By tunnel endpoint, the next hop that `macs` is of, unless the program gives its MAC.
    asked: Vec<Option<IpAddr>>,
    /// The board's words as they are read, before they are known to be of one moment.
    words: Vec<u64>,
}

impl NextHops {
    pub(crate) fn new(board: Arc<SharedWords>) -> Self {
        Self {
            neighbours: Some(Neighbours::new(limit::VTEPS)),
            macs: Vec::with_capacity(limit::VTEPS),
            board,
            stamp: 0,
            asked: Vec::new(),
            words: Vec::new(),
        }
    }

    /// Leaves the asking to the worker that writes the board.
    pub(crate) fn follow(&mut self) {
        self.neighbours = None;
        self.asked = Vec::with_capacity(limit::VTEPS);
        self.words = vec![0; limit::VTEPS];
    }

    /// Where packets for that tunnel endpoint are sent.
    #[inline]
    pub(crate) fn mac(&self, vtep: VtepId) -> Option<Mac> {
        *self.macs.get(usize::from(vtep.0))?
    }

    /// Takes in a new program: what is resolved and still wanted stays resolved.
    pub(crate) fn adopt(&mut self, tables: &Tables) {
        let Some(neighbours) = &mut self.neighbours else {
            return self.carry_over(tables);
        };
        let wanted =
            |ip| tables.program.vteps.iter().flatten().any(|vtep| vtep.mac.is_none() && vtep.next_hop == ip);
        let gone: Vec<IpAddr> = neighbours.iter().map(|(ip, _)| ip).filter(|ip| !wanted(*ip)).collect();
        for ip in gone {
            neighbours.unregister(ip);
        }
        for vtep in tables.program.vteps.iter().flatten().filter(|vtep| vtep.mac.is_none()) {
            // There is room: a program has no more tunnel endpoints than the table has slots.
            let _ = neighbours.register(vtep.next_hop);
        }
        self.refresh(tables);
    }

    /// Keeps what another worker has learned of next hops that have not changed, until that worker has written the board
    /// for the new program.
    fn carry_over(&mut self, tables: &Tables) {
        let vteps = &tables.program.vteps;
        self.macs.resize(vteps.len(), None);
        self.asked.resize(vteps.len(), None);
        for ((vtep, asked), mac) in vteps.iter().zip(&mut self.asked).zip(&mut self.macs) {
            let ask = vtep.as_ref().filter(|vtep| vtep.mac.is_none()).map(|vtep| vtep.next_hop);
            let known = mac.filter(|_| ask.is_some() && ask == *asked);
            *mac = vtep.as_ref().and_then(|vtep| vtep.mac).or(known);
            *asked = ask;
        }
    }

    /// Reads the board again when it has changed, if it is of this worker's program.
    #[inline]
    pub(crate) fn catch_up(&mut self, tables: &Tables) {
        if self.neighbours.is_none() && self.board.stamp() != self.stamp {
            self.read_board(tables);
        }
    }

    #[cold]
    fn read_board(&mut self, tables: &Tables) {
        let Some(stamp) = self.board.copy(&mut self.words) else { return };
        if generation_of(stamp) == tables.generation() {
            self.stamp = stamp;
            let macs = self.words.iter().map(|word| mac_of_word(*word));
            self.macs.clear();
            self.macs.extend(macs.take(tables.program.vteps.len()));
        }
    }

    /// Takes an answer; true when it changed where packets go.
    pub(crate) fn learn(&mut self, tables: &Tables, ip: IpAddr, mac: Mac, now: Nanos) {
        let learned = self.neighbours.as_mut().map(|neighbours| neighbours.learn(ip, mac, now));
        if matches!(learned, Some(Learned::Resolved | Learned::Changed)) {
            self.refresh(tables);
        }
    }

    /// The next request to send now.
    pub(crate) fn due(&mut self, now: Nanos) -> Option<Solicit> {
        self.neighbours.as_mut()?.due(now)
    }

    /// Copies what is resolved to where packets look.
    pub(crate) fn refresh(&mut self, tables: &Tables) {
        let Some(neighbours) = &self.neighbours else { return };
        self.macs.clear();
        for vtep in &tables.program.vteps {
            let mac = vtep.as_ref().and_then(|vtep| vtep.mac.or_else(|| neighbours.lookup(vtep.next_hop)));
            self.macs.push(mac);
        }
        self.stamp = next_stamp(self.stamp, tables.generation());
        self.board.replace(self.stamp, self.macs.iter().map(|mac| mac.map_or(0, to_word)));
    }
}

/// Stamps of the board: the generation that its words are of in the upper half, and which writing of it in the lower,
/// from 1.
fn next_stamp(last: u64, generation: Generation) -> u64 {
    let writing = if generation_of(last) == generation { (last as u32).wrapping_add(1).max(1) } else { 1 };
    u64::from(generation.0) << 32 | u64::from(writing)
}

fn generation_of(stamp: u64) -> Generation {
    Generation((stamp >> 32) as u32)
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
    fn a_stamp_says_its_generation_and_is_never_the_one_before() {
        let first = next_stamp(0, Generation(0));
        assert_eq!((first, next_stamp(first, Generation(0))), (1, 2));
        let wrapped = next_stamp(7 << 32 | u64::from(u32::MAX), Generation(7));
        assert_eq!((generation_of(wrapped), wrapped as u32), (Generation(7), 1), "zero means: being written");
        assert_eq!(next_stamp(wrapped, Generation(8)), 8 << 32 | 1);
    }

    #[test]
    fn a_mac_survives_the_board() {
        let mac = Mac([0xfe, 1, 2, 3, 4, 0xff]);
        assert_eq!(mac_of_word(to_word(mac)), Some(mac));
        assert_eq!(mac_of_word(to_word(Mac::default())), Some(Mac::default()));
        assert_eq!(mac_of_word(0), None);
    }
}
