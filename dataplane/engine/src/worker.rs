//! One worker: its queues, its reader of the published tables, its pipeline.

use packet::{Backend, Buf, Burst, Nanos, PortIo, RxQueue};
use program::PortId;
use quiescent::publish::{Epoch, Reader};

use crate::dump::{Dump, Subject};
use crate::{Account, Gauge, Ledger, Outbox, Tally};

/// Packet logic, driven by a [`Worker`].
pub trait Pipeline<B: Backend> {
    /// What the control plane publishes for it.
    type Tables: Send + Sync;
    /// What a dump of what it remembers yields.
    type Record: Send;

    /// Takes in a new generation; called once per generation, before the first burst that sees it.
    fn adopt(&mut self, tables: &Self::Tables, io: &mut Io<B>, now: Nanos);

    /// Judges a burst that came from `port` and leaves it empty: each packet goes to the outbox or is dropped and
    /// counted.
    fn process(
        &mut self,
        tables: &Self::Tables,
        port: PortId,
        burst: &mut Burst<B::Buf>,
        io: &mut Io<B>,
        now: Nanos,
    );

    /// Does what is due (ageing, neighbour requests); returns when it wants to be called again.
    fn tick(&mut self, tables: &Self::Tables, io: &mut Io<B>, now: Nanos) -> Nanos;

    /// Up to `count` records from position `from` on; returns where to go on, `None` at the end.
    fn dump(
        &self,
        subject: Subject,
        from: usize,
        count: usize,
        sink: &mut dyn FnMut(Self::Record),
    ) -> Option<usize>;
}

/// What a pipeline sends and counts with.
pub struct Io<B: Backend> {
    /// Packets on their way out.
    pub outbox: Outbox<B>,
    /// The worker's books.
    pub ledger: Ledger,
    /// Empty buffers for packets of its own making.
    pub allocator: B::Allocator,
}

/// A worker's queues by port id, with holes for ports that it does not serve.
pub struct WorkerPorts<B: Backend> {
    /// The queues.
    pub queues: Vec<Option<PortIo<B>>>,
    /// Where empty buffers come from.
    pub allocator: B::Allocator,
}

/// What a poll did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Poll {
    /// Packets received.
    pub received: usize,
}

/// One worker. It is driven by whoever owns the thread: an lcore, a test, the simulator.
pub struct Worker<B: Backend, P: Pipeline<B>> {
    rx: Vec<(PortId, B::Rx)>,
    burst: Burst<B::Buf>,
    io: Io<B>,
    reader: Reader<P::Tables>,
    seen: Option<Epoch>,
    pipeline: P,
    dump: Dump<P::Record>,
    deadline: Nanos,
}

impl<B: Backend, P: Pipeline<B>> Worker<B, P> {
    /// A worker over these queues; its books are `ledger`, its tables come from `reader`.
    pub fn new(
        ports: WorkerPorts<B>,
        pipeline: P,
        reader: Reader<P::Tables>,
        ledger: Ledger,
        dump: Dump<P::Record>,
    ) -> Self {
        let mut rx = Vec::new();
        let mut tx = Vec::new();
        for (index, queues) in ports.queues.into_iter().enumerate() {
            let (receive, transmit) = queues.map_or((None, None), |io| (Some(io.rx), Some(io.tx)));
            rx.extend(receive.map(|queue| (PortId(index as u16), queue)));
            tx.push(transmit);
        }
        let io = Io { outbox: Outbox::new(tx), ledger, allocator: ports.allocator };
        Self { rx, burst: Burst::new(), io, reader, seen: None, pipeline, dump, deadline: Nanos(0) }
    }

    /// Receives one burst from each port, judges it and sends what is to be sent. Holds nothing afterwards.
    pub fn poll(&mut self, now: Nanos) -> Poll {
        let (tables, epoch) = self.reader.load_with_epoch();
        if self.seen != Some(epoch) {
            self.seen = Some(epoch);
            self.pipeline.adopt(tables, &mut self.io, now);
            self.deadline = now;
        }
        let mut received = 0;
        for (port, rx) in &mut self.rx {
            if rx.receive(&mut self.burst) == 0 {
                continue;
            }
            received += self.burst.len();
            let mut tally = Tally::default();
            self.burst.iter().for_each(|buf| tally.add(buf.bytes().len()));
            self.io.ledger.received(Account::Port(*port), tally);
            self.pipeline.process(tables, *port, &mut self.burst, &mut self.io, now);
            debug_assert!(self.burst.is_empty(), "a pipeline judges every packet of its burst");
        }
        if now >= self.deadline {
            self.deadline = self.pipeline.tick(tables, &mut self.io, now);
        }
        self.io.outbox.flush(&mut self.io.ledger);
        self.dump.advance(|subject, from, count, sink| self.pipeline.dump(subject, from, count, sink));
        self.io.ledger.count(Gauge::Polls, 1);
        self.io.ledger.count(Gauge::IdlePolls, u64::from(received == 0));
        Poll { received }
    }

    /// When [`Worker::poll`] has something to do even if no packet comes.
    pub fn next_deadline(&self) -> Nanos {
        self.deadline
    }
}
