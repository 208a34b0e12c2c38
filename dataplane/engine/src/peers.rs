//! The way from worker to worker: one bounded ring for each ordered pair.
//!
//! A packet goes to its owner as it was received, and is judged there as if it had come in there: by one worker, under
//! one program. A packet that is to leave by a port of which its worker has no queue goes to one that has.

use arrayvec::ArrayVec;
use packet::{BURST, Buf};
use program::{DropReason, PortId};
use quiescent::ring::{ChunkError, Consumer, Producer, RingBuffer};

use crate::layout::{Layout, WorkerId};
use crate::outbox::Charge;
use crate::{Account, Gauge, Ledger};

/// Packets that a ring holds.
pub const RING_DEPTH: usize = 1024;

/// One worker's ends of all its rings.
pub struct Peers<B> {
    pub(crate) number: WorkerId,
    /// By port: who sends what this worker has no queue for.
    pub(crate) senders: Vec<WorkerId>,
    pub(crate) inbox: Inbox<B>,
    pub(crate) outward: Outward<B>,
    pub(crate) workers: u16,
}

/// A packet on its way to another worker.
pub(crate) enum Handed<B> {
    /// To be judged, as if it had been received there.
    Received { port: PortId, buf: B },
    /// To be sent, as if it had been judged there.
    Outgoing { port: PortId, buf: B, charge: Charge },
}

/// The receiving ends.
pub(crate) struct Inbox<B> {
    pub(crate) rings: Vec<Consumer<Handed<B>>>,
}

/// The sending ends, by worker; `None` for the worker itself.
pub(crate) struct Outward<B> {
    lanes: Vec<Option<Lane<B>>>,
}

struct Lane<B> {
    ring: Producer<Handed<B>>,
    /// Gathered until there is a burst, or the poll ends: one notice to the other side instead of many.
    pending: ArrayVec<Handed<B>, BURST>,
}

impl<B: Buf> Peers<B> {
    /// The rings of all workers of a layout, each of `depth` packets.
    pub fn all(layout: &Layout, depth: usize) -> Vec<Self> {
        let workers = usize::from(layout.workers());
        let mut inboxes: Vec<_> = (0..workers).map(|_| Inbox { rings: Vec::new() }).collect();
        let mut outward: Vec<_> = (0..workers).map(|_| Outward { lanes: Vec::new() }).collect();
        for (from, outward) in outward.iter_mut().enumerate() {
            for (to, inbox) in inboxes.iter_mut().enumerate() {
                let ring = (from != to).then(|| RingBuffer::new(depth));
                outward.lanes.push(ring.map(|(ring, end)| {
                    inbox.rings.push(end);
                    Lane { ring, pending: ArrayVec::new() }
                }));
            }
        }
        let ends = layout.all().zip(inboxes).zip(outward);
        let peers = ends.map(|((number, inbox), outward)| Self {
            number,
            senders: layout.senders(number),
            inbox,
            outward,
            workers: layout.workers(),
        });
        peers.collect()
    }
}

impl<B> Handed<B> {
    fn account(&self) -> Account {
        match self {
            Self::Received { port, .. } => Account::Port(*port),
            Self::Outgoing { port, charge, .. } => charge.account(*port),
        }
    }
}

impl<B> Outward<B> {
    /// Adds a packet for that worker.
    #[inline]
    pub(crate) fn push(&mut self, to: WorkerId, handed: Handed<B>, ledger: &mut Ledger) {
        let Some(Some(lane)) = self.lanes.get_mut(usize::from(to.0)) else {
            // No worker of that number: as lost as in a ring that is always full.
            return ledger.dropped(handed.account(), DropReason::HandOverFull);
        };
        lane.pending.push(handed);
        if lane.pending.is_full() {
            lane.flush(ledger);
        }
    }

    /// Hands everything over; what the rings have no room for is dropped and counted.
    pub(crate) fn flush(&mut self, ledger: &mut Ledger) {
        for lane in self.lanes.iter_mut().flatten().filter(|lane| !lane.pending.is_empty()) {
            lane.flush(ledger);
        }
    }
}

impl<B> Lane<B> {
    fn flush(&mut self, ledger: &mut Ledger) {
        let count = match self.ring.write_chunk_uninit(self.pending.len()) {
            Ok(chunk) => chunk.len(),
            Err(ChunkError::TooFewSlots(room)) => room,
        };
        // First counted, then handed over: whoever reads in between sees it held, not gone.
        ledger.count(Gauge::HandedOver, count as u64);
        if let Ok(chunk) = self.ring.write_chunk_uninit(count) {
            chunk.fill_from_iter(self.pending.drain(..count));
        }
        self.pending.drain(..).for_each(|handed| ledger.dropped(handed.account(), DropReason::HandOverFull));
    }
}

/// What is left of a worker that polls no more: what others still hand to it is dropped and counted.
pub struct Closing<B> {
    inbox: Inbox<B>,
    ledger: Ledger,
}

impl<B: Buf> Closing<B> {
    pub(crate) fn new(inbox: Inbox<B>, ledger: Ledger) -> Self {
        Self { inbox, ledger }
    }

    /// Drops what waits, as `shutdown`; true once every other worker is closing too, or gone, so that no more can come.
    pub fn drain(&mut self) -> bool {
        let Self { inbox, ledger } = self;
        let mut done = true;
        for ring in &mut inbox.rings {
            // Asked before the ring is emptied: what was pushed before its other end went is seen.
            done &= ring.is_abandoned();
            while let Ok(handed) = ring.pop() {
                ledger.count(Gauge::TakenOver, 1);
                ledger.dropped(handed.account(), DropReason::Shutdown);
            }
        }
        done
    }
}
