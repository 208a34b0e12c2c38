//! The tenant edge pipeline, both directions.
//!
//! host -> fabric: parse, tenant by port, anti-spoof, flow lookup (miss: [`decide`]), MTU, MACs and TTL, encapsulate.
//! fabric -> host: decapsulate, ECN, tenant by VNI, parse, flow lookup (miss: [`decide`]), MTU, MACs and TTL, deliver.
//!
//! A burst goes through in passes: [`classify`](crate::classify) every packet into a lane, hash and prefetch, find
//! candidates, then judge one by one in order. What is rare (neighbour discovery, ICMP errors, echo to a gateway) is
//! picked out by the first pass and handled in [`special`](crate::special).
//!
//! Where there are several workers, two hosts' packets all go to one of them ([`steer`](crate::steer)): no state is shared.
#![forbid(unsafe_code)]

mod action;
mod classify;
mod decide;
mod discovery;
mod echo;
mod forward;
mod fragments;
mod judge;
mod key;
mod lane;
mod log;
mod nd;
mod next_hops;
mod record;
mod roce;
mod rules;
mod special;
mod state;
mod steer;
mod tables;
mod tap;
mod underlay;
mod whereabouts;

use std::sync::Arc;

use ::tables::bucket::RateLimit;
use ::tables::flow::FlowTable;
use ::tables::fragments::Datagrams;
use ::tables::qp::QpTable;
use engine::{Gauge, Io, Owner, Pipeline, Queue, Subject, WorkerId};
use packet::{Backend, Burst, Nanos};
use program::{PortId, RoomCount, TenantId, limit};
use quiescent::cell::SharedWords;

pub use ::tables::fragments::Bounds as FragmentBounds;
pub use action::{Action, Target};
pub use decide::{Allowed, decide};
pub use log::{LINES_AT_ONCE, LINES_PER_SECOND, Log, LogRecord};
pub use next_hops::mac_of_word;
pub use record::{Exported, FlowEntry, FlowIdentity, QueuePairEntry, Record};
pub use rules::Rules;
pub use tables::{BuildError, Facts, Tables};
pub use tap::{Filter, FilterError, Order, Tap, TapHandle, Trace, TraceRecord};

use lane::Lane;
use next_hops::NextHops;
use state::State;

/// ICMP errors a second that one tenant may cause, in all workers together.
const ICMP_ERRORS_PER_SECOND: u32 = 1000;
/// And how many at once.
const ICMP_ERROR_BURST: u32 = 50;
/// Flow entries looked at for ageing in one tick.
const EXPIRY_BUDGET: usize = 256;
/// Datagrams in fragments looked at for ageing in one tick: all of them in an eighth of a second.
const DATAGRAM_BUDGET: usize = 64;
/// Queue pairs looked at for ageing in one tick.
const QUEUE_PAIR_BUDGET: usize = 64;
/// Tenants whose part of the tables is told in one tick.
const TENANTS_TOLD: usize = 64;
/// Time between ticks.
const TICK: Nanos = Nanos::from_millis(1);

/// Bounds of one worker's pipeline.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Flow entries of all tenants together.
    pub flows: usize,
    /// Datagrams of which some fragments have come, and fragments that wait for their first.
    pub fragments: FragmentBounds,
    /// Queue pairs of all tenants together.
    pub queue_pairs: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { flows: 1 << 17, fragments: FragmentBounds::default(), queue_pairs: 1 << 14 }
    }
}

/// The pipeline of one worker.
pub struct Edge {
    flows: FlowTable<Action, State>,
    datagrams: Datagrams<Queue>,
    most_held: usize,
    qps: QpTable,
    /// One for each packet of a burst.
    lanes: Vec<Lane>,
    next_hops: NextHops,
    icmp_errors: Vec<RateLimit>,
    log: Option<Log>,
    tap: Option<Tap>,
    /// Hits of the burst in hand, counted in one go.
    hits: u64,
    /// Among how many workers a tenant's bounds are divided.
    workers: u16,
    /// The tenant whose part of the tables was told last.
    told: usize,
    /// TCP segments of the burst in hand that are outside their connection's windows.
    out_of_window: u64,
}

impl Edge {
    /// A pipeline with an empty flow table. `seed` is drawn by the caller, so that nobody outside can aim at one
    /// bucket. Next hops that it resolves are written to `board`, one word per tunnel endpoint.
    pub fn new(limits: Limits, seed: u64, board: Arc<SharedWords>) -> Self {
        Self {
            flows: FlowTable::new(limits.flows, limit::TENANTS, seed),
            datagrams: Datagrams::new(limits.fragments, limit::TENANTS, seed),
            most_held: limits.fragments.waiting,
            qps: QpTable::new(limits.queue_pairs, limit::TENANTS, !seed),
            lanes: Lane::burst(),
            next_hops: NextHops::new(board),
            icmp_errors: vec![RateLimit::new(ICMP_ERRORS_PER_SECOND, ICMP_ERROR_BURST); limit::TENANTS],
            log: None,
            tap: None,
            hits: 0,
            workers: 1,
            told: 0,
            out_of_window: 0,
        }
    }

    /// The same pipeline, which puts flows that rules ask to be logged into `log`.
    pub fn with_log(self, log: Log) -> Self {
        Self { log: Some(log), ..self }
    }

    /// The same pipeline, whose packets may be traced.
    pub fn with_tap(self, tap: Tap) -> Self {
        Self { tap: Some(tap), ..self }
    }

    /// Makes it the pipeline of one of several workers with one board: the first resolves next hops for all, and each has
    /// an equal part of what a tenant may have.
    pub fn among(mut self, worker: WorkerId, workers: u16) -> Self {
        self.workers = workers.max(1);
        if worker != WorkerId(0) {
            self.next_hops.follow();
        }
        let limit = RateLimit::new(self.share(ICMP_ERRORS_PER_SECOND), self.share(ICMP_ERROR_BURST));
        self.icmp_errors.fill(limit);
        self
    }

    /// This worker's part of what a tenant may have: of nothing nothing, else at least one.
    fn share(&self, of_all: u32) -> u32 {
        of_all.div_ceil(u32::from(self.workers))
    }

    /// Counts what was gathered over the burst in hand.
    #[inline]
    fn count_burst(&mut self, ledger: &mut engine::Ledger) {
        ledger.count(Gauge::Hits, core::mem::take(&mut self.hits));
        ledger.count(Gauge::OutOfWindow, core::mem::take(&mut self.out_of_window));
    }

    /// Tells what the next tenants have of the tables.
    fn tell_room(&mut self, tables: &Tables, ledger: &mut engine::Ledger) {
        let tenants = tables.program.tenants.len();
        for _ in 0..TENANTS_TOLD.min(tenants) {
            self.told = (self.told + 1) % tenants;
            let tenant = TenantId(self.told as u16);
            let Some(share) = self.flows.share(tenant.0) else { continue };
            let room = RoomCount {
                flows: share.in_use.into(),
                evicted: share.evicted,
                displaced: share.displaced,
                refused: share.refused,
                queue_pairs: self.qps.in_use(tenant.0) as u64,
            };
            ledger.set_room(tenant, room);
        }
    }

    /// Whether that tenant may cause another ICMP error now.
    fn may_send_icmp_error(&mut self, tenant: TenantId, now: Nanos) -> bool {
        self.icmp_errors.get_mut(usize::from(tenant.0)).is_some_and(|limit| limit.allow(now))
    }
}

impl<B: Backend> Pipeline<B> for Edge {
    type Tables = Tables;
    type Record = Record;

    fn adopt(&mut self, tables: &Tables, io: &mut Io<B>, _now: Nanos) {
        for tenant in tables.program.tenants.iter().flatten() {
            self.flows.set_quota(tenant.id.0, self.share(tenant.flow_quota) as usize);
            self.datagrams.set_quota(tenant.id.0, tenant.fragment_quota as usize);
            self.qps.set_quota(tenant.id.0, self.share(tenant.queue_pair_quota) as usize);
        }
        self.next_hops.adopt(tables);
        io.ledger.set(Gauge::Generation, u64::from(tables.generation().0));
        io.ledger.set(Gauge::ScannedLists, tables.rules().scanned() as u64);
        io.ledger.set(Gauge::FlowCapacity, self.flows.capacity() as u64);
        io.ledger.set(Gauge::QueuePairCapacity, self.qps.capacity() as u64);
    }

    fn most_held(&self) -> usize {
        self.most_held
    }

    fn process(
        &mut self,
        tables: &Tables,
        port: PortId,
        burst: &mut Burst<B::Buf>,
        io: &mut Io<B>,
        now: Nanos,
    ) {
        self.next_hops.catch_up(tables);
        if self.tap.as_ref().is_some_and(Tap::is_armed) {
            return self.process_traced(tables, port, burst, io, now);
        }
        let mut lanes = core::mem::take(&mut self.lanes);
        let used = &mut lanes[..burst.len()];
        classify::classify(tables, port, used, burst, &mut io.ledger);
        self.look_up(used);
        for (lane, buf) in used.iter_mut().zip(burst.drain(..)) {
            self.judge(tables, lane, buf, io, now);
        }
        self.lanes = lanes;
        self.count_burst(&mut io.ledger);
    }

    #[inline]
    fn owner(tables: &Tables, port: PortId, frame: &[u8]) -> Owner {
        steer::owner(tables, port, frame)
    }

    fn tick(&mut self, tables: &Tables, io: &mut Io<B>, now: Nanos) -> Nanos {
        if let Some(tap) = &mut self.tap {
            tap.heed(now);
        }
        self.flows.expire(now, EXPIRY_BUDGET);
        self.expire_datagrams(io, now);
        self.qps.expire(now, QUEUE_PAIR_BUDGET);
        io.ledger.set(Gauge::Flows, self.flows.len() as u64);
        io.ledger.set(Gauge::QueuePairs, self.qps.len() as u64);
        self.tell_room(tables, &mut io.ledger);
        self.ask_next_hops(tables, io, now);
        now + TICK
    }

    fn dump(
        &self,
        subject: Subject,
        from: usize,
        count: usize,
        sink: &mut dyn FnMut(Record),
    ) -> Option<usize> {
        match subject {
            Subject::Flows => self.dump_flows(from, count, sink),
            Subject::QueuePairs => self.dump_queue_pairs(from, count, sink),
        }
    }
}
