//! Packets that somebody traces: what came, what was found out, what was decided, what became of it.
//!
//! Off by default, and then it costs one branch a burst. The control plane's orders lie in a ring at which the worker looks
//! with each tick. While a trace is armed, a burst goes through the same passes one packet at a time
//! ([`Edge::process_traced`]); those passes know nothing of it. What is traced is seen from outside: lanes after the first
//! pass, flow table and counts before and after the last, and the journal of ledger and outbox ([`engine::Journal`]) for
//! drops and for frames as they left. So a trace cannot say anything else than what was done and counted.
//!
//! A record is of fixed size, with the first [`engine::SNAP`] bytes of the frame as it came and as it left, and is put into a
//! ring of fixed depth. While that is full, packets go the ordinary way and are counted ([`Gauge::Untraced`]): a full ring
//! makes nothing wait. Filters are asked here, of parsed lanes. A trace ends after its
//! packets, after its time, when the clock goes back, or when it is told to.
//!
//! Not seen are packets that end outside of a burst: held fragments whose time is over, what is held at the end, what another
//! worker has no room for. They are counted as ever.

mod filter;
mod record;

use std::slice::from_mut;

use engine::{Gauge, Head, Io, Journal, Ledger};
use packet::{Backend, Buf, Burst, Nanos};
use program::{PortId, TenantId};
use quiescent::ring::{Consumer, Producer, RingBuffer};
use tables::flow::{FlowKey, Slot};
use wire::{Fragment, L3, L4, Parsed};

use crate::classify::classify;
use crate::lane::{Fate, Lane};
use crate::tables::Role;
use crate::{Edge, Tables, decide, key};

pub use filter::{Filter, FilterError};
pub use record::TraceRecord;
use record::{Class, Decision, Entry};

/// Orders that wait for a worker: the end of a trace, and the next one.
const ORDERS: usize = 4;

/// What a worker is told.
#[derive(Clone, Copy, Debug)]
pub enum Order {
    /// Trace this from now on, in place of what was traced before.
    Arm(Trace),
    /// Trace nothing.
    Disarm,
}

/// One trace.
#[derive(Clone, Copy, Debug)]
pub struct Trace {
    /// Its number, which its records bear.
    pub number: u64,
    /// Which packets.
    pub filter: Filter,
    /// At most so many.
    pub count: u32,
    /// At most so long.
    pub lasts: Nanos,
    /// Bytes that are kept of each frame.
    pub snap: u16,
}

/// The worker's end.
pub struct Tap {
    orders: Consumer<Order>,
    records: Producer<TraceRecord>,
    /// Here but while a packet is watched.
    journal: Option<Box<Journal>>,
    armed: Option<Armed>,
}

/// The other end of a [`Tap`].
pub struct TapHandle {
    orders: Producer<Order>,
    records: Consumer<TraceRecord>,
}

struct Armed {
    trace: Trace,
    since: Nanos,
    left: u32,
}

impl Tap {
    /// Both ends; `depth` records wait for whoever reads them.
    pub fn new(depth: usize) -> (Self, TapHandle) {
        let (orders, ordered) = RingBuffer::new(ORDERS);
        let (records, read) = RingBuffer::new(depth);
        let tap = Self { orders: ordered, records, journal: Some(Box::default()), armed: None };
        (tap, TapHandle { orders, records: read })
    }

    /// Whether a trace is on.
    #[inline]
    pub(crate) fn is_armed(&self) -> bool {
        self.armed.is_some()
    }

    /// Takes orders, and ends a trace whose time is over.
    pub(crate) fn heed(&mut self, now: Nanos) {
        while let Ok(order) = self.orders.pop() {
            self.armed = match order {
                Order::Arm(trace) => Some(Armed { trace, since: now, left: trace.count }),
                Order::Disarm => None,
            };
        }
        let is_over = |armed: &mut Armed| now < armed.since || now.since(armed.since) >= armed.trace.lasts;
        if self.armed.as_mut().is_some_and(is_over) || self.records.is_abandoned() {
            self.armed = None;
        }
    }

    /// Bytes that are kept of a frame.
    fn snap(&self) -> usize {
        self.armed.as_ref().map_or(0, |armed| armed.trace.snap.into())
    }

    /// The journal for a packet that may be traced. It is counted instead when there is no room for its record.
    fn watches(&mut self, seen: &Seen, ledger: &mut Ledger) -> Option<Box<Journal>> {
        let armed = self.armed.as_ref()?;
        if self.records.slots() == 0 {
            ledger.count(Gauge::Untraced, 1);
            return None;
        }
        if armed.trace.filter.wants(seen) { self.journal.take() } else { None }
    }

    fn put(&mut self, record: TraceRecord) {
        let Some(armed) = &mut self.armed else { return };
        // There is room: it was asked for before the packet was judged.
        if self.records.push(record).is_ok() {
            armed.left = armed.left.saturating_sub(1);
        }
        if armed.left == 0 {
            self.armed = None;
        }
    }
}

impl TapHandle {
    /// Tells the worker; false when it has not taken the orders before.
    pub fn order(&mut self, order: Order) -> bool {
        self.orders.push(order).is_ok()
    }

    /// The next record, of whatever trace.
    pub fn take(&mut self) -> Option<TraceRecord> {
        self.records.pop().ok()
    }
}

/// What was seen of a packet before its last pass.
struct Seen {
    received: Head,
    tenant: Option<TenantId>,
    /// Of an IP packet that can be read.
    key: Option<FlowKey>,
    parsed: Parsed,
    class: Class,
}

impl Edge {
    /// As `process`, one packet at a time, with records of those that are asked for.
    #[cold]
    pub(crate) fn process_traced<B: Backend>(
        &mut self,
        tables: &Tables,
        port: PortId,
        burst: &mut Burst<B::Buf>,
        io: &mut Io<B>,
        now: Nanos,
    ) {
        let Some(mut tap) = self.tap.take() else { return };
        for buf in core::mem::take(burst) {
            burst.push(buf);
            self.trace(tables, port, burst, &mut tap, io, now);
        }
        self.tap = Some(tap);
        self.count_burst(&mut io.ledger);
    }

    /// Judges the only packet of a burst, and puts down what became of it if the trace asks for it.
    #[inline(never)]
    fn trace<B: Backend>(
        &mut self,
        tables: &Tables,
        port: PortId,
        burst: &mut Burst<B::Buf>,
        tap: &mut Tap,
        io: &mut Io<B>,
        now: Nanos,
    ) {
        let Some(buf) = burst.first() else { return };
        let received = Head::of(buf.bytes(), tap.snap());
        let lane = &mut Lane::empty();
        classify(tables, port, from_mut(lane), burst, &mut io.ledger);
        self.look_up(from_mut(lane));
        let Some(buf) = burst.pop() else { return };
        let seen = see(tables, port, lane, received, buf.bytes());
        let hits = self.hits;
        if let Some(journal) = tap.watches(&seen, &mut io.ledger) {
            io.watch(journal);
        }
        self.judge(tables, lane, buf, io, now);
        let Some(journal) = io.watched() else { return };
        if let Some(armed) = tap.armed.as_ref().filter(|armed| armed.trace.filter.wants_outcome(&journal)) {
            // A later fragment has been given the key of its first.
            let flow = lane.key;
            let is_flow = matches!(seen.class, Class::Flow | Class::Fragment);
            let is_flow = is_flow && !decide::is_for_gateway(tables, &flow);
            let entry = if is_flow { self.entry(&flow) } else { None };
            tap.put(TraceRecord {
                trace: armed.trace.number,
                after: now.since(armed.since),
                generation: tables.generation(),
                port,
                received: seen.received,
                tenant: seen.tenant,
                key: seen.key,
                is_later_fragment: seen.parsed.fragment == Fragment::Later,
                class: seen.class,
                hit: is_flow.then_some(self.hits > hits),
                decision: is_flow.then(|| Decision::of(tables, &flow, entry.as_ref())),
                entry,
                snap: armed.trace.snap,
                journal: (*journal).clone(),
            });
        }
        tap.journal = Some(journal);
    }

    fn entry(&self, flow: &FlowKey) -> Option<Entry> {
        let slot = self.flows.find(self.flows.hash(flow), flow)?;
        let action = self.flows.entry(slot).action;
        let Slot(number) = slot;
        Some(Entry { slot: number, action, stage: self.stage(slot, flow, action) })
    }
}

/// What the first pass has found out about a packet.
fn see(tables: &Tables, port: PortId, lane: &Lane, received: Head, frame: &[u8]) -> Seen {
    let (parsed, ours) = (lane.parsed, lane.key);
    let tenant = match lane.account {
        engine::Account::Tenant(tenant) => Some(tenant),
        engine::Account::Port(port) => {
            tables.port(port).filter(|view| view.role == Role::Tenant).map(|view| view.tenant)
        }
    };
    let class = Class::of(lane.fate);
    let is_legible = lane.fate != Fate::Drop(program::DropReason::Malformed);
    let key = (is_legible && matches!(parsed.l3, L3::Ipv4 | L3::Ipv6)).then(|| {
        // A packet that was refused before it had a key has one here.
        let mut read = FlowKey::default();
        let ingress = match tenant {
            Some(_) if ours != FlowKey::default() => key::ingress(&ours),
            _ => program::Ingress::Port(port),
        };
        key::read(&mut read, frame, &parsed, tenant.unwrap_or_default(), ingress);
        read
    });
    Seen { received, tenant, key, parsed: if is_legible { parsed } else { Parsed::EMPTY }, class }
}

/// RoCEv2's is told from UDP's, as rules do.
fn is_roce(parsed: &Parsed) -> bool {
    parsed.l4 == L4::Roce
}
