//! The edge pipeline on memory ports, programmed by policy text and driven by hand, one poll at a time.

use std::sync::Arc;

use backends::memory::{self, MemoryBackend, Pool, Wire};
use edge::{Edge, Facts, Limits, Record, Tables};
use engine::{Account, Dump, DumpRequest, Dumped, Ledger, LedgerReader, Subject, Worker, WorkerPorts};
use packet::{Buf, Nanos};
use policy::Source;
use program::{DropReason, FlowRecord, PortId, Program, QueuePairRecord, TenantId, Traffic, VtepId, limit};
use quiescent::{Publisher, SharedWords};
use wire::Mac;

/// Frames that a memory port holds.
const DEPTH: usize = 1024;
/// Buffers of the rig's pool.
const BUFFERS: usize = 4096;

/// One worker with its ports' other ends in the test's hands.
pub struct Rig {
    worker: Worker<MemoryBackend, Edge>,
    dump_request: DumpRequest<Record>,
    publisher: Publisher<Tables>,
    facts: Vec<Facts>,
    program: Arc<Program>,
    wires: Vec<Wire>,
    /// What the worker counted.
    pub ledger: LedgerReader,
    /// Where all buffers come from.
    pub pool: Pool,
    /// The time of the next poll.
    pub now: Nanos,
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
        *self.program = Arc::new(compile_texts(texts, Some(self.program)));
        self.publisher.publish(Box::new(build(self.program, self.facts)));
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
        let program = Arc::new(compile_texts(texts, None));
        let count = program.devices.len();
        let facts: Vec<Facts> = (0..count).map(|index| Facts { mac: port_mac(index) }).collect();
        let pool = Pool::new(BUFFERS);
        let (queues, wires): (Vec<_>, Vec<_>) = (0..count).map(|_| memory::port(&pool, DEPTH)).unzip();
        let (ledger, reader) = Ledger::new();
        let mut publisher = Publisher::new(Box::new(build(&program, &facts)));
        let edge = Edge::new(limits, 1, Arc::new(SharedWords::new(limit::VTEPS)));
        let ports = WorkerPorts { queues: queues.into_iter().map(Some).collect(), allocator: pool.clone() };
        let (dump, dump_request) = Dump::new(64);
        let worker = Worker::new(ports, edge, publisher.reader(), ledger, dump);
        let now = Nanos::from_secs(1);
        Self { worker, dump_request, publisher, facts, program, wires, ledger: reader, pool, now }
    }

    /// Publishes another policy; the next poll runs it.
    pub fn apply(&mut self, texts: &[&str]) {
        self.split().2.apply(texts);
    }

    /// The worker, its wires and its publisher apart, for a test with a thread for each.
    pub fn split(&mut self) -> (&mut Worker<MemoryBackend, Edge>, &[Wire], Editor<'_>) {
        let editor =
            Editor { publisher: &mut self.publisher, facts: &self.facts, program: &mut self.program };
        (&mut self.worker, &self.wires, editor)
    }

    /// The running program.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Every flow that the worker remembers, as it is listed.
    pub fn flows(&mut self) -> Vec<FlowRecord> {
        let records = self.records(Subject::Flows);
        records.iter().filter_map(|record| record.flow(self.publisher.current())).collect()
    }

    /// Every pair of queue pairs that the worker knows, as it is listed.
    pub fn queue_pairs(&mut self) -> Vec<QueuePairRecord> {
        let records = self.records(Subject::QueuePairs);
        records.iter().filter_map(|record| record.queue_pair(self.publisher.current())).collect()
    }

    fn records(&mut self, subject: Subject) -> Vec<Record> {
        self.dump_request.ask(subject);
        let mut records = Vec::new();
        loop {
            self.poll();
            while let Some(step) = self.dump_request.answer() {
                match step {
                    Dumped::Record(record) => records.push(record),
                    Dumped::End => return records,
                }
            }
        }
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

    /// Puts a frame on a port.
    ///
    /// # Panics
    /// When the port's queue is full.
    pub fn send(&self, port: &str, frame: &[u8]) {
        self.wire(port).send(frame).expect("room in the port's queue");
    }

    /// Polls once, a microsecond later than before.
    pub fn poll(&mut self) -> usize {
        self.now = self.now + Nanos::from_micros(1);
        self.worker.poll(self.now).received
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

    /// Nothing is lost and nothing is held: what came in has left or is counted as dropped, and every buffer that is
    /// not on a wire is back.
    pub fn assert_balanced(&self) {
        assert_eq!(
            self.ledger.held(),
            0,
            "received + originated = sent + dropped; drops: {:?}",
            self.drops()
        );
        let on_wires: usize = self.wires.iter().map(Wire::waiting).sum();
        let level = self.pool.level();
        assert_eq!(level.free + on_wires, level.capacity, "every buffer is free or on a wire");
    }

    fn port(&self, name: &str) -> usize {
        self.program.devices.iter().position(|device| device.name == name).expect("a port of the Fabric")
    }
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

fn build(program: &Arc<Program>, facts: &[Facts]) -> Tables {
    Tables::build(program.clone(), facts).expect("tables of a sound program")
}
