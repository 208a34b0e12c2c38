//! Packets on their way out, gathered per port so that each port is sent whole bursts.

use packet::{BURST, Backend, Burst, TxQueue};
use program::{DropReason, PortId};

use crate::{Account, Ledger, Tally};

/// How often a burst that the port did not take whole is offered again before the rest is dropped.
const TX_ATTEMPTS: usize = 4;

/// The transmit side of a worker's ports.
pub struct Outbox<B: Backend> {
    lanes: Vec<Option<Lane<B>>>,
    /// Ports that have something to send, each once.
    waiting: Vec<PortId>,
}

struct Lane<B: Backend> {
    tx: B::Tx,
    burst: Burst<B::Buf>,
}

impl<B: Backend> Outbox<B> {
    /// The queues by port id; an id that is not there drops what is pushed to it.
    pub fn new(queues: Vec<Option<B::Tx>>) -> Self {
        let lanes = queues.into_iter().map(|queue| queue.map(|tx| Lane { tx, burst: Burst::new() }));
        let lanes: Vec<_> = lanes.collect();
        Self { waiting: Vec::with_capacity(lanes.len()), lanes }
    }

    /// Adds a packet for `port`; sends the port's burst when it is full.
    #[inline]
    pub fn push(&mut self, port: PortId, buf: B::Buf, ledger: &mut Ledger) {
        let Some(Some(lane)) = self.lanes.get_mut(usize::from(port.0)) else {
            ledger.dropped(Account::Port(port), DropReason::TxFull);
            return;
        };
        if lane.burst.is_empty() {
            self.waiting.push(port);
        }
        lane.burst.push(buf);
        if lane.burst.len() == BURST {
            lane.flush(port, ledger);
            self.waiting.retain(|waiting| *waiting != port);
        }
    }

    /// Sends everything; what the ports do not take is dropped and counted, so that nothing is held afterwards.
    pub fn flush(&mut self, ledger: &mut Ledger) {
        while let Some(port) = self.waiting.pop() {
            if let Some(Some(lane)) = self.lanes.get_mut(usize::from(port.0)) {
                lane.flush(port, ledger);
            }
        }
    }
}

impl<B: Backend> Lane<B> {
    fn flush(&mut self, port: PortId, ledger: &mut Ledger) {
        let bytes =
            |burst: &Burst<B::Buf>| burst.iter().map(|buf| packet::Buf::bytes(buf).len() as u64).sum::<u64>();
        let mut sent = Tally { packets: 0, bytes: bytes(&self.burst) };
        for _ in 0..TX_ATTEMPTS {
            sent.packets += self.tx.transmit(&mut self.burst) as u64;
            if self.burst.is_empty() {
                break;
            }
        }
        if !self.burst.is_empty() {
            sent.bytes -= bytes(&self.burst);
            ledger.dropped_many(Account::Port(port), DropReason::TxFull, self.burst.len() as u64);
            self.burst.clear();
        }
        ledger.sent(Account::Port(port), sent);
    }
}
