//! The edge pipeline on memory ports, programmed by policy text and driven by hand, one poll at a time; with one worker
//! or with several, who have their turns in an order that a seed says.

use std::sync::Arc;

use backends::memory::{self, MemoryBackend, MemoryBuf, Pool, Wire};
use edge::{
    Edge, Facts, Filter, FilterError, Limits, Log, LogRecord, Order, Record, Tables, Tap, TapHandle, Trace,
    TraceRecord,
};
use engine::{
    Account, Closing, Dump, DumpRequest, Dumped, Gauge, Layout, Ledger, LedgerReader, Peers, Subject, Worker,
    WorkerId, WorkerPorts,
};
use packet::{Buf, Nanos, PortIo};
use policy::Source;
use program::{
    DropReason, FlowRecord, PortId, Program, QueuePairRecord, TenantId, TraceRequest, TracedPacket, Traffic,
    VtepId, limit,
};
use quiescent::{Publisher, SharedWords, ring::Consumer};
use wire::Mac;

use crate::crew::{Books, Crew, Seeded};

/// Frames that a memory port holds.
const DEPTH: usize = 1024;
/// Buffers of the rig's pool.
const BUFFERS: usize = 4096;
/// Log lines that wait to be taken.
pub const LOG_DEPTH: usize = 256;
/// Traced packets that wait to be taken.
pub const TRACE_DEPTH: usize = 64;

/// Workers with their ports' other ends in the test's hands.
pub struct Rig {
    workers: Vec<Worker<MemoryBackend, Edge>>,
    dump_requests: Vec<DumpRequest<Record>>,
    logged: Vec<Consumer<LogRecord>>,
    taps: Vec<TapHandle>,
    publisher: Publisher<Tables>,
    facts: Vec<Facts>,
    program: Arc<Program>,
    wires: Vec<Wire>,
    crew: Crew,
    turns: Seeded,
    /// Of the workers in the last round.
    order: Vec<usize>,
    /// What the workers counted.
    pub ledger: Books,
    /// Where all buffers come from.
    pub pool: Pool,
    /// The time of the next poll.
    pub now: Nanos,
}

/// One worker and what asks and reads it.
struct Hired {
    worker: Worker<MemoryBackend, Edge>,
    dump_request: DumpRequest<Record>,
    logged: Consumer<LogRecord>,
    tap: TapHandle,
    ledger: LedgerReader,
}

/// The control plane's side of a rig.
pub struct Editor<'a> {
    publisher: &'a mut Publisher<Tables>,
    facts: &'a [Facts],
    program: &'a mut Arc<Program>,
}

impl Editor<'_> {
    /// Publishes another policy.
    pub fn apply(&mut self, texts: &[&str]) {
        self.publish(Arc::new(compile_texts(texts, Some(self.program))));
    }

    /// Publishes another program.
    pub fn publish(&mut self, program: Arc<Program>) {
        *self.program = program;
        let known = self.publisher.current().rules();
        let tables = Tables::build_knowing(self.program.clone(), self.facts, known);
        self.publisher.publish(Box::new(tables.expect("tables of a sound program")));
    }
}

impl Rig {
    /// A worker that runs the policy in these texts.
    ///
    /// # Panics
    /// When the texts are no sound policy, with all diagnostics.
    pub fn new(texts: &[&str]) -> Self {
        Self::with_limits(texts, Limits::default())
    }

    /// As [`Rig::new`], with other bounds.
    pub fn with_limits(texts: &[&str], limits: Limits) -> Self {
        Self::with_crew(texts, limits, Crew::from_environment())
    }

    /// As [`Rig::with_limits`], with these workers.
    pub fn with_crew(texts: &[&str], limits: Limits, crew: Crew) -> Self {
        Self::running(Arc::new(compile_texts(texts, None)), limits, crew, BUFFERS)
    }

    /// Workers that run a compiled program, with that many buffers.
    pub fn running(program: Arc<Program>, limits: Limits, crew: Crew, buffers: usize) -> Self {
        let count = program.devices.len();
        let facts: Vec<Facts> = (0..count).map(|index| Facts { mac: port_mac(index) }).collect();
        let pool = Pool::new(buffers);
        let queues = usize::from(crew.queues());
        let port = |_| memory::queues(&pool, DEPTH, queues, Arc::default());
        let (ports, wires): (Vec<_>, Vec<_>) = (0..count).map(port).unzip();
        let tables = Tables::build(program.clone(), &facts).expect("tables of a sound program");
        let mut publisher = Publisher::new(Box::new(tables));
        let board = Arc::new(SharedWords::new(limit::VTEPS));
        let layout = Layout::new(crew.workers, vec![crew.queues(); count]);
        let mut queues: Vec<Vec<_>> =
            ports.into_iter().map(|queues| queues.into_iter().map(Some).collect()).collect();
        let peers = Peers::all(&layout, crew.ring_depth).into_iter().zip(layout.all());
        let hired: Vec<Hired> = peers
            .map(|(peers, number)| {
                let ports = WorkerPorts {
                    queues: take_queues(&mut queues, &layout, number),
                    allocator: pool.clone(),
                };
                // A seed of its own, as the daemon draws it.
                let edge = Edge::new(limits, 1 + u64::from(number.0), board.clone());
                hire(ports, edge.among(number, crew.workers), &mut publisher, peers)
            })
            .collect();
        let ledger = Books(hired.iter().map(|hired| hired.ledger.clone()).collect());
        let (mut logged, mut taps) = (Vec::new(), Vec::new());
        let (workers, dump_requests) = hired
            .into_iter()
            .map(|hired| {
                logged.push(hired.logged);
                taps.push(hired.tap);
                (hired.worker, hired.dump_request)
            })
            .unzip();
        let (turns, now) = (Seeded(crew.seed), Nanos::from_secs(1));
        let order = (0..usize::from(crew.workers)).collect();
        Self {
            workers,
            dump_requests,
            logged,
            taps,
            publisher,
            facts,
            program,
            wires,
            crew,
            turns,
            order,
            ledger,
            pool,
            now,
        }
    }

    /// Publishes another policy; the next poll runs it.
    pub fn apply(&mut self, texts: &[&str]) {
        self.split().2.apply(texts);
    }

    /// As [`Rig::apply`], of a program that is compiled already.
    pub fn publish(&mut self, program: Arc<Program>) {
        self.split().2.publish(program);
    }

    /// The first worker, the wires and the publisher apart, for a test with a thread for each.
    pub fn split(&mut self) -> (&mut Worker<MemoryBackend, Edge>, &[Wire], Editor<'_>) {
        let editor =
            Editor { publisher: &mut self.publisher, facts: &self.facts, program: &mut self.program };
        (&mut self.workers[0], &self.wires, editor)
    }

    /// The running program.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Every flow that the workers remember, as it is listed.
    pub fn flows(&mut self) -> Vec<FlowRecord> {
        (0..self.workers.len()).flat_map(|worker| self.flows_of(worker)).collect()
    }

    /// Every flow that one worker remembers.
    pub fn flows_of(&mut self, worker: usize) -> Vec<FlowRecord> {
        let records = self.records(worker, Subject::Flows);
        records.iter().filter_map(|record| record.flow(self.publisher.current())).collect()
    }

    /// Every pair of queue pairs that the workers know, as it is listed.
    pub fn queue_pairs(&mut self) -> Vec<QueuePairRecord> {
        let of = |rig: &mut Self, worker| rig.records(worker, Subject::QueuePairs);
        let records: Vec<Record> = (0..self.workers.len()).flat_map(|worker| of(self, worker)).collect();
        records.iter().filter_map(|record| record.queue_pair(self.publisher.current())).collect()
    }

    fn records(&mut self, worker: usize, subject: Subject) -> Vec<Record> {
        self.dump_requests[worker].ask(subject);
        let mut records = Vec::new();
        loop {
            self.poll();
            while let Some(step) = self.dump_requests[worker].answer() {
                match step {
                    Dumped::Record(record) => records.push(record),
                    Dumped::End => return records,
                }
            }
        }
    }

    /// The flows that were logged since the last look, as lines of the running program.
    pub fn logged(&mut self) -> Vec<FlowRecord> {
        let records = self.logged.iter_mut().flat_map(|ring| std::iter::from_fn(|| ring.pop().ok()));
        records.map(|record| record.line(&self.program)).collect()
    }

    /// Begins a trace in every worker, in place of the one before.
    ///
    /// # Errors
    /// The request is none of the running program.
    pub fn trace(&mut self, request: &TraceRequest) -> Result<(), FilterError> {
        let filter = Filter::new(request, &self.program)?;
        let lasts = Nanos::from_millis(request.timeout_ms.into());
        let order = Order::Arm(Trace { number: 1, filter, count: request.count, lasts, snap: request.snap });
        for tap in &mut self.taps {
            assert!(tap.order(order), "the workers take orders");
        }
        // Orders are taken with a tick.
        self.now = self.now + Nanos::from_millis(1);
        self.poll();
        Ok(())
    }

    /// What was traced since the last look.
    pub fn trace_records(&mut self) -> Vec<TraceRecord> {
        self.taps.iter_mut().flat_map(|tap| std::iter::from_fn(|| tap.take())).collect()
    }

    /// As [`Rig::trace_records`], in the names of the running program.
    pub fn traced(&mut self) -> Vec<TracedPacket> {
        let records = self.trace_records();
        records.iter().map(|record| record.name(&self.program, 0, 0)).collect()
    }

    /// The outside end of a port.
    pub fn wire(&self, port: &str) -> &Wire {
        &self.wires[self.port(port)]
    }

    /// Frees the outside end of a port for a host of its own.
    pub fn take_wire(&mut self, port: &str) -> Wire {
        let index = self.port(port);
        let (_, unused) = memory::cable(&self.pool, 1);
        std::mem::replace(&mut self.wires[index], unused)
    }

    /// Puts a frame on a port, in the queue that the rig's card chooses.
    ///
    /// # Panics
    /// When the port's queue is full.
    pub fn send(&self, port: &str, frame: &[u8]) {
        let is_uplink =
            self.program.uplink.as_ref().is_some_and(|uplink| self.port(port) == usize::from(uplink.port.0));
        let queue = self.crew.queue(frame, is_uplink);
        self.wire(port).send_to(queue, frame).expect("room in the port's queue");
    }

    /// Polls each worker once, and on until nothing is on its way between them, a microsecond later than before.
    pub fn poll(&mut self) -> usize {
        self.now = self.now + Nanos::from_micros(1);
        let mut received = self.round();
        while self.ledger.in_rings() > 0 {
            received += self.round();
        }
        received
    }

    /// Each worker's turn, in some order.
    fn round(&mut self) -> usize {
        let mut order = std::mem::take(&mut self.order);
        self.turns.shuffle(&mut order);
        let received = order.iter().map(|worker| self.step(*worker)).sum();
        self.order = order;
        received
    }

    /// Polls one worker, now.
    pub fn step(&mut self, worker: usize) -> usize {
        self.workers[worker].poll(self.now).received
    }

    /// The workers, for threads of their own; the rig has none afterwards.
    pub fn hire_out(&mut self) -> Vec<Worker<MemoryBackend, Edge>> {
        std::mem::take(&mut self.workers)
    }

    /// How many workers there are.
    pub fn workers(&self) -> usize {
        self.workers.len()
    }

    /// Ends the workers one after the other, as threads that are told to stop do; what others still hand to them is
    /// counted as dropped.
    pub fn close(&mut self) {
        let mut closing: Vec<Closing<MemoryBuf>> = self.hire_out().into_iter().map(Worker::close).collect();
        while !closing.iter_mut().map(Closing::drain).fold(true, |all, done| all & done) {}
    }

    /// Polls until nothing comes in any more.
    pub fn settle(&mut self) {
        while self.poll() > 0 {}
    }

    /// Everything that has left a port.
    pub fn take(&self, port: &str) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| self.wire(port).receive()).map(|buf| buf.bytes().to_vec()).collect()
    }

    /// Sends one frame and returns what leaves `to` for it.
    pub fn pass(&mut self, from: &str, frame: &[u8], to: &str) -> Vec<Vec<u8>> {
        self.send(from, frame);
        self.settle();
        self.take(to)
    }

    /// Packets that the worker holds for later, as it says itself.
    pub fn held(&self) -> usize {
        self.ledger.gauge(Gauge::Held) as usize
    }

    /// Packets dropped for that reason, by whomever.
    pub fn dropped(&self, reason: DropReason) -> u64 {
        let ports = (0..self.facts.len()).map(|index| Account::Port(PortId(index as u16)));
        let tenants = (0..self.program.tenants.len()).map(|index| Account::Tenant(TenantId(index as u16)));
        ports.chain(tenants).map(|account| self.ledger.dropped(account, reason)).sum()
    }

    /// All reasons that have counted something, with their counts.
    pub fn drops(&self) -> Vec<(&'static str, u64)> {
        let counts = DropReason::ALL.iter().map(|&reason| (reason.name(), self.dropped(reason)));
        counts.filter(|(_, count)| *count > 0).collect()
    }

    /// What a port received and sent.
    pub fn traffic(&self, port: &str) -> Traffic {
        self.ledger.traffic(Account::Port(PortId(self.port(port) as u16)))
    }

    /// Resolves every next hop by answering its ARP request as `mac` would.
    pub fn resolve_next_hops(&mut self, uplink: &str, mac: Mac) {
        self.settle();
        for frame in self.take(uplink) {
            if frame.len() >= 42 && frame[12..14] == [8, 6] && frame[21] == 1 {
                let reply = crate::frames::arp_reply_to(&frame, mac);
                self.send(uplink, &reply);
            }
        }
        self.settle();
    }

    /// The id of a tunnel endpoint.
    pub fn vtep(&self, name: &str) -> VtepId {
        let find = |vtep: &Option<program::Vtep>| vtep.as_ref().is_some_and(|vtep| vtep.name == name);
        VtepId(self.program.vteps.iter().position(find).expect("a configured endpoint") as u16)
    }

    /// Nothing is lost: what came in has left, is held or is counted as dropped, and every buffer that is neither held nor
    /// on a wire is back.
    pub fn assert_balanced(&self) {
        let held = self.held();
        assert_eq!(
            (self.ledger.held(), self.ledger.in_rings()),
            (held as i64, 0),
            "received + originated = sent + held + dropped; drops: {:?}",
            self.drops()
        );
        let on_wires: usize = self.wires.iter().map(Wire::waiting).sum();
        let level = self.pool.level();
        assert_eq!(level.free + on_wires + held, level.capacity, "every buffer is free, held or on a wire");
    }

    fn port(&self, name: &str) -> usize {
        self.program.devices.iter().position(|device| device.name == name).expect("a port of the Fabric")
    }
}

/// The queues of one worker, by port.
fn take_queues(
    queues: &mut [Vec<Option<PortIo<MemoryBackend>>>],
    layout: &Layout,
    worker: WorkerId,
) -> Vec<Option<PortIo<MemoryBackend>>> {
    let queue = |(port, queues): (usize, &mut Vec<Option<_>>)| {
        layout.queue(port, worker).and_then(|queue| queues[usize::from(queue)].take())
    };
    queues.iter_mut().enumerate().map(queue).collect()
}

fn hire(
    ports: WorkerPorts<MemoryBackend>,
    edge: Edge,
    publisher: &mut Publisher<Tables>,
    peers: Peers<MemoryBuf>,
) -> Hired {
    let (ledger, reader) = Ledger::new();
    let (dump, dump_request) = Dump::new(64);
    let (log, logged) = Log::new(LOG_DEPTH);
    let (edge, (taps, tap)) = (edge.with_log(log), Tap::new(TRACE_DEPTH));
    let worker = Worker::new(ports, edge.with_tap(taps), publisher.reader(), ledger, dump).join(peers);
    Hired { worker, dump_request, logged, tap, ledger: reader }
}

/// The MAC of a rig's port by its place in the Fabric.
pub fn port_mac(index: usize) -> Mac {
    Mac([2, 0xff, 0, 0, 0, index as u8])
}

/// Compiles policy texts.
///
/// # Panics
/// With all diagnostics, when they are no sound policy.
pub fn compile_texts(texts: &[&str], previous: Option<&Program>) -> Program {
    let source = |(index, text): (usize, &&str)| Source {
        name: format!("{index}.yaml"),
        bytes: text.as_bytes().to_vec(),
    };
    let sources: Vec<Source> = texts.iter().enumerate().map(source).collect();
    let parsed = policy::parse(&sources).unwrap_or_else(|errors| panic!("{errors}"));
    let compiled = compile::compile(&parsed.policy, previous).unwrap_or_else(|errors| panic!("{errors}"));
    compiled.program
}
