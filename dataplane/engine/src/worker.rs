//! One worker: its queues, its reader of the published tables, its pipeline.

use packet::{BURST, Backend, Buf, Burst, Nanos, PortIo, RxQueue, rss};
use program::{DropReason, PortId};
use quiescent::publish::{Epoch, Reader};
use quiescent::ring::Consumer;

use crate::dump::{Dump, Subject};
use crate::layout::{Owner, WorkerId};
use crate::peers::{Closing, Handed, Inbox, Peers};
use crate::{Account, Gauge, Hold, Ledger, Outbox, Tally};

/// Packet logic, driven by a [`Worker`].
pub trait Pipeline<B: Backend> {
    /// What the control plane publishes for it.
    type Tables: Send + Sync;
    /// What a dump of what it remembers yields.
    type Record: Send;

    /// Takes in a new generation; called once per generation, before the first burst that sees it.
    fn adopt(&mut self, tables: &Self::Tables, io: &mut Io<B>, now: Nanos);

    /// Most packets that it ever holds between two polls: the room of [`Io::hold`].
    fn most_held(&self) -> usize {
        0
    }

    /// Judges a burst that came from `port` and leaves it empty: each packet goes to the outbox, is held, or is dropped
    /// and counted.
    fn process(
        &mut self,
        tables: &Self::Tables,
        port: PortId,
        burst: &mut Burst<B::Buf>,
        io: &mut Io<B>,
        now: Nanos,
    );

    /// Whose a packet that came from `port` is; asked only where there are several workers. The answer is the same for
    /// all packets of which one must know what another left behind, in both directions.
    fn owner(tables: &Self::Tables, port: PortId, frame: &[u8]) -> Owner;

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
    /// Packets kept for later.
    pub hold: Hold<B::Buf>,
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
    /// Packets received from ports, and taken over from other workers.
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
    /// The time of the last poll.
    polled: Nanos,
    /// `None` for an only worker, who owns whatever it receives.
    team: Option<Team>,
    inbox: Inbox<B::Buf>,
}

/// What tells an owner's number.
struct Team {
    number: WorkerId,
    table: rss::Table,
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
        let hold = Hold::new(pipeline.most_held());
        let io = Io { outbox: Outbox::new(tx), hold, ledger, allocator: ports.allocator };
        Self {
            rx,
            burst: Burst::new(),
            io,
            reader,
            seen: None,
            pipeline,
            dump,
            deadline: Nanos(0),
            polled: Nanos(0),
            team: None,
            inbox: Inbox { rings: Vec::new() },
        }
    }

    /// Makes it one of several, by its ends of the rings between them. An only worker stays as it is.
    pub fn join(mut self, peers: Peers<B::Buf>) -> Self {
        let Peers { number, senders, inbox, outward, workers } = peers;
        if workers > 1 {
            self.team = Some(Team { number, table: rss::Table::new(workers) });
            self.inbox = inbox;
            self.io.outbox.join(outward, senders);
        }
        self
    }

    /// Takes over what other workers have handed over, receives one burst from each port, judges it all and sends what
    /// is to be sent. Holds nothing afterwards but what the pipeline keeps for later.
    pub fn poll(&mut self, now: Nanos) -> Poll {
        let Self { rx, burst, io, reader, pipeline, dump, team, inbox, .. } = self;
        let (tables, epoch) = reader.load_with_epoch();
        if self.seen != Some(epoch) {
            self.seen = Some(epoch);
            pipeline.adopt(tables, io, now);
            self.deadline = now;
        }
        if now < self.polled {
            // The clock has gone back: what was due by the old one is due now.
            self.deadline = now;
        }
        self.polled = now;
        let mut received = 0;
        for ring in &mut inbox.rings {
            received += take_over(ring, pipeline, tables, burst, io, now);
        }
        for (port, rx) in rx {
            if rx.receive(burst) == 0 {
                continue;
            }
            received += burst.len();
            let mut tally = Tally::default();
            burst.iter().for_each(|buf| tally.add(buf.bytes().len()));
            io.ledger.received(Account::Port(*port), tally);
            if let Some(team) = team {
                team.keep_own::<B, P>(tables, *port, burst, io);
            }
            pipeline.process(tables, *port, burst, io, now);
            debug_assert!(burst.is_empty(), "a pipeline judges every packet of its burst");
        }
        if now >= self.deadline {
            self.deadline = pipeline.tick(tables, io, now);
        }
        io.outbox.flush(&mut io.ledger);
        dump.advance(|subject, from, count, sink| pipeline.dump(subject, from, count, sink));
        io.ledger.set(Gauge::Held, io.hold.len() as u64);
        io.ledger.count(Gauge::Polls, 1);
        io.ledger.count(Gauge::IdlePolls, u64::from(received == 0));
        Poll { received }
    }

    /// Ends it: what it held is dropped and counted; its queues, its flows and its reader are gone, and what remains is to
    /// be drained of what others have handed to it.
    pub fn close(mut self) -> Closing<B::Buf> {
        for held in self.io.hold.close() {
            self.io.ledger.dropped(held.account, DropReason::Shutdown);
        }
        self.io.ledger.set(Gauge::Held, 0);
        Closing::new(self.inbox, self.io.ledger)
    }

    /// When [`Worker::poll`] has something to do even if no packet comes.
    pub fn next_deadline(&self) -> Nanos {
        self.deadline
    }
}

impl Team {
    /// Hands over what others own, and leaves the rest in the burst, in order.
    fn keep_own<B: Backend, P: Pipeline<B>>(
        &self,
        tables: &P::Tables,
        port: PortId,
        burst: &mut Burst<B::Buf>,
        io: &mut Io<B>,
    ) {
        burst.iter().for_each(Buf::prefetch);
        for buf in core::mem::take(burst) {
            let owner = match P::owner(tables, port, buf.bytes()) {
                Owner::Receiver => self.number,
                Owner::First => WorkerId(0),
                Owner::Hash(hash) => WorkerId(self.table.queue(hash)),
            };
            if owner == self.number {
                burst.push(buf);
            } else {
                io.outbox.hand_over(owner, port, buf, &mut io.ledger);
            }
        }
    }
}

/// Takes over what is in a ring now; what is handed over meanwhile waits for the next poll.
fn take_over<B: Backend, P: Pipeline<B>>(
    ring: &mut Consumer<Handed<B::Buf>>,
    pipeline: &mut P,
    tables: &P::Tables,
    burst: &mut Burst<B::Buf>,
    io: &mut Io<B>,
    now: Nanos,
) -> usize {
    let waiting = ring.slots();
    let mut left = waiting;
    let mut from = PortId::default();
    while left > 0 {
        let Ok(chunk) = ring.read_chunk(left.min(BURST)) else { break };
        left -= chunk.len();
        io.ledger.count(Gauge::TakenOver, chunk.len() as u64);
        for handed in chunk {
            match handed {
                Handed::Received { port, buf } => {
                    if port != from && !burst.is_empty() {
                        pipeline.process(tables, from, burst, io, now);
                    }
                    from = port;
                    burst.push(buf);
                }
                Handed::Outgoing { port, buf, charge } => {
                    io.outbox.push_charged(port, buf, charge, &mut io.ledger);
                }
            }
        }
        if !burst.is_empty() {
            pipeline.process(tables, from, burst, io, now);
        }
    }
    waiting - left
}
