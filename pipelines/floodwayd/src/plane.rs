//! The data plane as the control plane sees it: publishes programs, reads counters, lists flows.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use agent::{DataPlane, PublishError, Published};
use edge::{Edge, Facts, Limits, Record, Tables, mac_of_word};
use engine::{Account, Dump, DumpRequest, Dumped, Gauge, Ledger, LedgerReader, Subject};
use program::{
    DropCount, DropReason, FlowRecord, NeighbourReport, PortId, PortReport, Program, QueuePairRecord, Report,
    Tenant, TenantReport, Traffic, WorkerReport, limit,
};
use quiescent::{Publisher, Reader, SharedWords};

use crate::args::Args;

/// How long the workers may take to run a new program before they count as stuck.
const ACKNOWLEDGE_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a worker may take with its next flow records before the list ends short.
const DUMP_TIMEOUT: Duration = Duration::from_millis(500);
/// Between two looks at what a worker has done.
const LOOK_AGAIN: Duration = Duration::from_micros(50);
/// Flow records on their way from a worker.
const DUMP_DEPTH: usize = 1024;

/// What floodwayd gives to the API.
pub struct Plane {
    publisher: Mutex<Publisher<Tables>>,
    facts: Vec<Facts>,
    ledgers: Vec<LedgerReader>,
    dumps: Mutex<Vec<DumpRequest<Record>>>,
    next_hops: Arc<SharedWords>,
}

/// What goes to the worker's thread.
pub struct WorkerParts {
    pub edge: Edge,
    pub reader: Reader<Tables>,
    pub ledger: Ledger,
    pub dump: Dump<Record>,
}

impl Plane {
    /// A plane that runs `program` on ports of which `facts` are known, and its one worker.
    pub fn new(args: &Args, program: Arc<Program>, facts: Vec<Facts>) -> anyhow::Result<(Self, WorkerParts)> {
        let mut publisher = Publisher::new(Box::new(Tables::build(program, &facts)?));
        let next_hops = Arc::new(SharedWords::new(limit::VTEPS));
        let (ledger, ledger_reader) = Ledger::new();
        let (dump, request) = Dump::new(DUMP_DEPTH);
        let limits = Limits { flows: args.flows as usize, queue_pairs: args.queue_pairs as usize };
        let edge = Edge::new(limits, crate::draw_seed()?, next_hops.clone());
        let parts = WorkerParts { edge, reader: publisher.reader(), ledger, dump };
        let plane = Self {
            publisher: Mutex::new(publisher),
            facts,
            ledgers: vec![ledger_reader],
            dumps: Mutex::new(vec![request]),
            next_hops,
        };
        Ok((plane, parts))
    }

    /// Packets that are neither sent nor dropped; zero once the workers have stopped.
    pub fn held(&self) -> i64 {
        self.ledgers.iter().map(LedgerReader::held).sum()
    }

    fn records(&self, subject: Subject, limit: usize) -> Vec<Record> {
        let mut records = Vec::new();
        let mut dumps = self.dumps.lock().unwrap_or_else(PoisonError::into_inner);
        for dump in dumps.iter_mut() {
            collect(dump, subject, limit, &mut records);
        }
        records
    }

    fn publisher(&self) -> MutexGuard<'_, Publisher<Tables>> {
        self.publisher.lock().unwrap_or_else(PoisonError::into_inner)
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
        }
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
        let tables = Tables::build(Arc::new(program), &self.facts);
        let tables = tables.map_err(|error| PublishError::Rejected { reason: error.to_string() })?;
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
}

/// Reads one worker's answer to its end, so that the next request starts afresh; keeps at most `limit` records.
fn collect(dump: &mut DumpRequest<Record>, subject: Subject, limit: usize, records: &mut Vec<Record>) {
    dump.ask(subject);
    let mut last = Instant::now();
    loop {
        match dump.answer() {
            Some(Dumped::Record(record)) => {
                last = Instant::now();
                if records.len() < limit {
                    records.push(record);
                }
            }
            Some(Dumped::End) => return,
            None if last.elapsed() > DUMP_TIMEOUT => return,
            None => std::thread::sleep(LOOK_AGAIN),
        }
    }
}
