//! The data plane as the control plane sees it: publishes programs, reads counters, lists flows.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use agent::{DataPlane, PublishError, Published, TraceError};
use edge::{Edge, Exported, Facts, FragmentBounds, Limits, Log, LogRecord, Record, Tables, Tap, mac_of_word};
use engine::{Account, Dump, DumpRequest, Dumped, Gauge, Ledger, LedgerReader, Subject, WorkerId};
use program::{
    DropCount, DropReason, FlowRecord, Generation, LogCount, NeighbourReport, PoolReport, PortId, PortReport,
    Program, QueuePairRecord, Report, RoomCount, Tenant, TenantId, TenantReport, TraceReport, TraceRequest,
    TraceStarted, Traffic, WorkerReport, limit,
};
use quiescent::{Publisher, Reader, SharedWords, ring::Consumer};

use crate::args::Args;
use crate::log::{self, Programs};
use crate::trace::{self, Traces};

/// How long the workers may take to run a new program before they count as stuck.
const ACKNOWLEDGE_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a worker may take with its next flow records before the list ends short.
const DUMP_TIMEOUT: Duration = Duration::from_millis(500);
/// Between two looks at what a worker has done.
const LOOK_AGAIN: Duration = Duration::from_micros(50);
/// Flow records on their way from a worker.
const DUMP_DEPTH: usize = 1024;
/// Flow records that are named in one go, while nothing is published.
const NAMED_AT_ONCE: usize = 4096;

/// What floodwayd gives to the API.
pub struct Plane {
    publisher: Mutex<Publisher<Tables>>,
    facts: Vec<Facts>,
    ledgers: Vec<LedgerReader>,
    dumps: Mutex<Vec<DumpRequest<Record>>>,
    next_hops: Arc<SharedWords>,
    pool: PoolLevel,
    /// What records of flows may still speak of.
    pub programs: Programs,
    /// What somebody traces.
    pub traces: Traces,
}

/// Tells how full the pool of packet buffers is, from any thread.
pub type PoolLevel = Box<dyn Fn() -> PoolReport + Send + Sync>;

/// What goes to a worker's thread.
pub struct WorkerParts {
    pub edge: Edge,
    pub reader: Reader<Tables>,
    pub ledger: Ledger,
    pub dump: Dump<Record>,
}

/// What waits may use one buffer in sixteen, in all workers together, so that it never starves the ports.
fn fragment_bounds(buffers: usize, workers: u16) -> FragmentBounds {
    let bounds = FragmentBounds::default();
    FragmentBounds { waiting: bounds.waiting.min(buffers / 16 / usize::from(workers)), ..bounds }
}

impl Plane {
    /// A plane that runs `program` on ports of which `facts` are known, its workers, in order of their numbers, and what
    /// each of them logs.
    pub fn new(
        args: &Args,
        program: Arc<Program>,
        facts: Vec<Facts>,
    ) -> anyhow::Result<(Self, Vec<WorkerParts>, log::Records)> {
        let programs = Programs::new(program.clone());
        let publisher = Publisher::new(Box::new(Tables::build(program, &facts)?));
        let mut plane = Self {
            publisher: Mutex::new(publisher),
            facts,
            ledgers: Vec::new(),
            dumps: Mutex::default(),
            next_hops: Arc::new(SharedWords::new(limit::VTEPS)),
            pool: Box::new(PoolReport::default),
            programs,
            traces: Traces::default(),
        };
        let workers = args.workers();
        let limits = Limits {
            flows: args.flows as usize,
            fragments: fragment_bounds(args.buffers() as usize, workers),
            queue_pairs: args.queue_pairs as usize,
        };
        let parts = (0..workers).map(|number| plane.add_worker(WorkerId(number), workers, limits));
        let parts: Vec<_> = parts.collect::<anyhow::Result<_>>()?;
        let (parts, records) = parts.into_iter().unzip();
        Ok((plane, parts, records))
    }

    /// One whose report says how full the pool is.
    pub fn with_pool(self, pool: PoolLevel) -> Self {
        Self { pool, ..self }
    }

    /// The generation that every worker runs; `None` while one does not run the one published last.
    pub fn settled(&self) -> Option<Generation> {
        let publisher = self.publisher();
        (publisher.acknowledged() >= publisher.epoch()).then(|| publisher.current().generation())
    }

    fn add_worker(
        &mut self,
        number: WorkerId,
        workers: u16,
        limits: Limits,
    ) -> anyhow::Result<(WorkerParts, Consumer<LogRecord>)> {
        let (ledger, ledger_reader) = Ledger::new();
        let (dump, request) = Dump::new(DUMP_DEPTH);
        let (log, records) = Log::new(log::DEPTH);
        let edge = Edge::new(limits, crate::draw_seed()?, self.next_hops.clone());
        let (tap, tap_handle) = Tap::new(trace::DEPTH);
        self.traces.add(tap_handle);
        let edge = edge.among(number, workers).with_log(log).with_tap(tap);
        self.ledgers.push(ledger_reader);
        self.dumps.get_mut().unwrap_or_else(PoisonError::into_inner).push(request);
        // Readers are numbered as they are made: as the workers are.
        let reader = self.publisher().reader();
        Ok((WorkerParts { edge, reader, ledger, dump }, records))
    }

    /// Polls of each worker so far.
    pub fn polls(&self) -> Vec<u64> {
        self.ledgers.iter().map(|ledger| ledger.gauge(Gauge::Polls)).collect()
    }

    /// Packets that are neither sent nor dropped; zero once the workers have stopped.
    pub fn held(&self) -> i64 {
        // What one has handed over is in a ring until another has taken it over.
        let in_rings = |ledger: &LedgerReader| {
            ledger.gauge(Gauge::HandedOver).wrapping_sub(ledger.gauge(Gauge::TakenOver)) as i64
        };
        self.ledgers.iter().map(|ledger| ledger.held() + in_rings(ledger)).sum()
    }

    /// At most `limit` records of any worker.
    fn records(&self, subject: Subject, limit: usize) -> Vec<Record> {
        let mut records = Vec::new();
        self.dump(subject, &mut |record| {
            if records.len() < limit {
                records.push(record);
            }
        });
        records
    }

    /// Packets that no trace looked at, since a ring was full.
    fn untraced(&self) -> u64 {
        self.ledgers.iter().map(|ledger| ledger.gauge(Gauge::Untraced)).sum()
    }

    fn publisher(&self) -> MutexGuard<'_, Publisher<Tables>> {
        self.publisher.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Every flow entry, for export; false when a worker did not tell all of its own in time.
    pub fn exported(&self) -> (Vec<Exported>, bool) {
        let mut entries = Vec::new();
        let is_whole = self.dump(Subject::Flows, &mut |record| entries.extend(record.exported()));
        (entries, is_whole)
    }

    /// Every record of every worker; false when a worker did not tell all in time.
    fn dump(&self, subject: Subject, sink: &mut dyn FnMut(Record)) -> bool {
        let mut dumps = self.dumps.lock().unwrap_or_else(PoisonError::into_inner);
        let mut is_whole = true;
        for dump in dumps.iter_mut() {
            is_whole &= collect(dump, subject, sink);
        }
        is_whole
    }

    fn traffic(&self, account: Account) -> Traffic {
        let each = self.ledgers.iter().map(|ledger| ledger.traffic(account));
        each.fold(Traffic::default(), |sum, traffic| Traffic {
            rx_packets: sum.rx_packets + traffic.rx_packets,
            rx_bytes: sum.rx_bytes + traffic.rx_bytes,
            tx_packets: sum.tx_packets + traffic.tx_packets,
            tx_bytes: sum.tx_bytes + traffic.tx_bytes,
        })
    }

    /// Drops of these accounts together, by reason, without those that are zero.
    fn drops(&self, accounts: &[Account]) -> Vec<DropCount> {
        let count = |reason| {
            let of =
                |account| self.ledgers.iter().map(move |ledger| ledger.dropped(account, reason)).sum::<u64>();
            accounts.iter().map(|account| of(*account)).sum()
        };
        let all = DropReason::ALL
            .iter()
            .map(|&reason| DropCount { reason: reason.name().into(), packets: count(reason) });
        all.filter(|drop| drop.packets > 0).collect()
    }

    fn workers(&self) -> Vec<WorkerReport> {
        let report = |(number, ledger): (usize, &LedgerReader)| WorkerReport {
            worker: number as u32,
            generation: ledger.gauge(Gauge::Generation) as u32,
            polls: ledger.gauge(Gauge::Polls),
            idle_polls: ledger.gauge(Gauge::IdlePolls),
            flows: ledger.gauge(Gauge::Flows),
            flow_capacity: ledger.gauge(Gauge::FlowCapacity),
            hits: ledger.gauge(Gauge::Hits),
            misses: ledger.gauge(Gauge::Misses),
            uncached: ledger.gauge(Gauge::Uncached),
            taken_over: ledger.gauge(Gauge::TakenOver),
            handed_over: ledger.gauge(Gauge::HandedOver),
            held: ledger.gauge(Gauge::Held),
            datagrams: ledger.gauge(Gauge::Datagrams),
            unfinished: ledger.gauge(Gauge::Unfinished),
            scanned_lists: ledger.gauge(Gauge::ScannedLists),
            queue_pairs: ledger.gauge(Gauge::QueuePairs),
            queue_pair_capacity: ledger.gauge(Gauge::QueuePairCapacity),
            untracked: ledger.gauge(Gauge::Untracked),
        };
        self.ledgers.iter().enumerate().map(report).collect()
    }

    fn port(&self, program: &Program, index: usize) -> PortReport {
        let id = PortId(index as u16);
        let device = &program.devices[index];
        let tenant = program.port(id).and_then(|port| program.tenant(port.tenant));
        PortReport {
            name: device.name.clone(),
            device: device.device.clone(),
            tenant: tenant.map_or_else(String::new, |tenant| tenant.name.clone()),
            traffic: self.traffic(Account::Port(id)),
            originated: self.ledgers.iter().map(|ledger| ledger.originated(id)).sum(),
            drops: self.drops(&[Account::Port(id)]),
        }
    }

    fn tenant(&self, program: &Program, tenant: &Tenant) -> TenantReport {
        let ports = program.ports.iter().flatten().filter(|port| port.tenant == tenant.id);
        let ports: Vec<Account> = ports.map(|port| Account::Port(port.id)).collect();
        let sum =
            ports.iter().map(|port| self.traffic(*port)).fold(Traffic::default(), |sum, traffic| Traffic {
                rx_packets: sum.rx_packets + traffic.rx_packets,
                rx_bytes: sum.rx_bytes + traffic.rx_bytes,
                tx_packets: sum.tx_packets + traffic.tx_packets,
                tx_bytes: sum.tx_bytes + traffic.tx_bytes,
            });
        let fabric = Account::Tenant(tenant.id);
        let all: Vec<Account> = ports.into_iter().chain([fabric]).collect();
        TenantReport {
            name: tenant.name.clone(),
            vni: tenant.vni.0,
            fabric: self.traffic(fabric),
            ports: sum,
            drops: self.drops(&all),
            log: self.log(fabric),
            room: self.room(tenant.id),
        }
    }

    fn room(&self, tenant: TenantId) -> RoomCount {
        let each = self.ledgers.iter().map(|ledger| ledger.room(tenant));
        each.fold(RoomCount::default(), |sum, room| RoomCount {
            flows: sum.flows + room.flows,
            evicted: sum.evicted + room.evicted,
            displaced: sum.displaced + room.displaced,
            refused: sum.refused + room.refused,
            queue_pairs: sum.queue_pairs + room.queue_pairs,
        })
    }

    fn log(&self, account: Account) -> LogCount {
        let each = self.ledgers.iter().map(|ledger| ledger.log(account));
        each.fold(LogCount::default(), |sum, log| LogCount {
            written: sum.written + log.written,
            suppressed: sum.suppressed + log.suppressed,
            lost: sum.lost + log.lost,
        })
    }

    fn neighbours(&self, program: &Program) -> Vec<NeighbourReport> {
        let report = |(index, vtep): (usize, &Option<program::Vtep>)| {
            let mac = mac_of_word(self.next_hops.load(index));
            let mac = mac.map_or_else(String::new, |mac| mac.to_string());
            vtep.as_ref().map(|vtep| NeighbourReport { address: vtep.next_hop, mac })
        };
        let mut neighbours: Vec<_> = program.vteps.iter().enumerate().filter_map(report).collect();
        neighbours.sort_by_key(|neighbour| neighbour.address);
        neighbours.dedup();
        neighbours
    }
}

impl DataPlane for Plane {
    fn running(&self) -> Arc<Program> {
        self.publisher().current().program.clone()
    }

    fn publish(&self, program: Program) -> Result<Published, PublishError> {
        let generation = program.generation;
        let program = Arc::new(program);
        let known = self.publisher().current().rules().clone();
        let tables = Tables::build_knowing(program.clone(), &self.facts, &known);
        let tables = tables.map_err(|error| PublishError::Rejected { reason: error.to_string() })?;
        self.programs.add(program);
        let start = Instant::now();
        let epoch = self.publisher().publish(Box::new(tables));
        while self.publisher().acknowledged() < epoch {
            if start.elapsed() > ACKNOWLEDGE_TIMEOUT {
                let readers = self.publisher().readers();
                let behind = readers.iter().filter(|(_, loaded)| loaded.is_some_and(|loaded| loaded < epoch));
                let workers = behind.map(|(id, _)| id.0 as u32).collect();
                return Err(PublishError::Stuck { workers, waited: start.elapsed() });
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        let took = start.elapsed();
        self.publisher().reclaim();
        Ok(Published { generation, took })
    }

    fn report(&self) -> Report {
        let program = self.running();
        Report {
            generation: program.generation.0,
            digest: agent::digest(&program),
            workers: self.workers(),
            ports: (0..program.devices.len()).map(|index| self.port(&program, index)).collect(),
            tenants: program.tenants.iter().flatten().map(|tenant| self.tenant(&program, tenant)).collect(),
            neighbours: self.neighbours(&program),
            pool: (self.pool)(),
        }
    }

    fn flows(&self, limit: usize) -> Vec<FlowRecord> {
        let records = self.records(Subject::Flows, limit);
        let publisher = self.publisher();
        records.iter().filter_map(|record| record.flow(publisher.current())).collect()
    }

    fn queue_pairs(&self, limit: usize) -> Vec<QueuePairRecord> {
        let records = self.records(Subject::QueuePairs, limit);
        let publisher = self.publisher();
        records.iter().filter_map(|record| record.queue_pair(publisher.current())).collect()
    }

    fn begin_trace(&self, request: &TraceRequest) -> Result<TraceStarted, TraceError> {
        self.traces.begin(request, &self.running(), self.untraced())
    }

    fn traced(&self, trace: u64) -> Option<TraceReport> {
        self.traces.read(trace, &self.programs, || self.untraced())
    }

    fn end_trace(&self, trace: u64) -> bool {
        self.traces.end(trace)
    }

    fn flows_wanted(&self, wanted: &dyn Fn(&FlowRecord) -> bool, limit: usize) -> Vec<FlowRecord> {
        let (mut found, mut records) = (Vec::new(), Vec::with_capacity(NAMED_AT_ONCE));
        let mut name = |records: &mut Vec<Record>| {
            let publisher = self.publisher();
            let named = records.drain(..).filter_map(|record| record.flow(publisher.current()));
            let room = limit - found.len();
            found.extend(named.filter(wanted).take(room));
        };
        self.dump(Subject::Flows, &mut |record| {
            records.push(record);
            if records.len() == NAMED_AT_ONCE {
                name(&mut records);
            }
        });
        name(&mut records);
        found
    }
}

/// Reads one worker's answer to its end, so that the next request starts afresh; false when the end did not come in time.
fn collect(dump: &mut DumpRequest<Record>, subject: Subject, sink: &mut dyn FnMut(Record)) -> bool {
    dump.ask(subject);
    let mut last = Instant::now();
    loop {
        match dump.answer() {
            Some(Dumped::Record(record)) => {
                last = Instant::now();
                sink(record);
            }
            Some(Dumped::End) => return true,
            None if last.elapsed() > DUMP_TIMEOUT => return false,
            None => std::thread::sleep(LOOK_AGAIN),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use program::Generation;

    use super::*;

    fn plane(workers: &str) -> (Plane, Vec<WorkerParts>) {
        let arguments = ["floodwayd", "--policy", "p", "--flows", "1024", "--workers", workers];
        let args = Args::parse_from(arguments);
        let (plane, parts, _) = Plane::new(&args, Arc::default(), Vec::new()).expect("a plane");
        (plane, parts)
    }

    fn poll_all(parts: &mut [WorkerParts]) {
        for parts in parts {
            parts.reader.load();
        }
    }

    #[test]
    fn a_worker_that_does_not_poll_is_named() {
        let (plane, mut parts) = plane("3");
        poll_all(&mut parts);
        let next = |generation| Program { generation: Generation(generation), ..Program::default() };
        let [first, _, third] = parts.as_mut_slice() else { panic!("three workers") };
        let stuck = std::thread::scope(|scope| {
            let publishing = scope.spawn(|| plane.publish(next(1)));
            while !publishing.is_finished() {
                first.reader.load();
                third.reader.load();
                std::thread::sleep(LOOK_AGAIN);
            }
            publishing.join().expect("no panic")
        });
        assert!(matches!(&stuck, Err(PublishError::Stuck { workers, .. }) if *workers == [1]), "{stuck:?}");
        // When it goes on it runs what was published, and the next one is run by all.
        assert_eq!(parts[1].reader.load().generation(), Generation(1));
        let published = std::thread::scope(|scope| {
            let publishing = scope.spawn(|| plane.publish(next(2)));
            while !publishing.is_finished() {
                poll_all(&mut parts);
                std::thread::sleep(LOOK_AGAIN);
            }
            publishing.join().expect("no panic")
        });
        assert_eq!(published.expect("all poll").generation, Generation(2));
    }

    #[test]
    fn reports_have_each_worker_and_the_sum_of_all() {
        let (plane, mut parts) = plane("2");
        let mut tally = engine::Tally::default();
        tally.add(60);
        for parts in &mut parts {
            parts.ledger.received(Account::Port(PortId(0)), tally);
        }
        assert_eq!(plane.traffic(Account::Port(PortId(0))).rx_packets, 2);
        assert_eq!((plane.held(), plane.workers().len()), (2, 2));
        // Handed over and not taken: still held. Taken and dropped: not any more.
        parts[0].ledger.count(Gauge::HandedOver, 1);
        assert_eq!(plane.held(), 2);
        parts[1].ledger.count(Gauge::TakenOver, 1);
        parts[1].ledger.dropped(Account::Port(PortId(0)), DropReason::Shutdown);
        assert_eq!((plane.held(), plane.workers()[0].handed_over, plane.workers()[1].taken_over), (1, 1, 1));
    }
}
