//! The worker's books: every packet received or made is later sent, held or dropped for a reason.
//!
//! received + originated + taken over = sent + handed over + held + the sum of all drop reasons. The block has one writer,
//! its worker; anybody may read it at any time. What was handed over and not yet taken over is in a ring between two
//! workers.

use std::sync::Arc;

use program::{DropReason, LogCount, PortId, RoomCount, TenantId, Traffic, limit};
use quiescent::counters::{self, Counters};

use crate::journal::{Event, Journal};

const RX_PACKETS: usize = 0;
const RX_BYTES: usize = 1;
const TX_PACKETS: usize = 2;
const TX_BYTES: usize = 3;
const ORIGINATED: usize = 4;
const FIRST_LOGGED: usize = 5;
const FIRST_ROOM: usize = FIRST_LOGGED + 3;
const FIRST_REASON: usize = FIRST_ROOM + 5;
const COLUMNS: usize = FIRST_REASON + DropReason::COUNT;

const FIRST_TENANT: usize = limit::PORTS;
const WORKER: usize = limit::PORTS + limit::TENANTS;
const ROWS: usize = WORKER + 1;

/// Whom a count is charged to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Account {
    /// A port: whatever came from it, until it is known to come out of a tenant's tunnel.
    Port(PortId),
    /// A tenant's side towards the fabric: inner frames in its tunnels.
    Tenant(TenantId),
}

impl Account {
    fn row(self) -> usize {
        match self {
            Self::Port(id) => usize::from(id.0).min(limit::PORTS - 1),
            Self::Tenant(id) => FIRST_TENANT + usize::from(id.0).min(limit::TENANTS - 1),
        }
    }
}

/// Figures of the worker itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Gauge {
    /// Polls so far.
    Polls,
    /// Polls that moved no packet.
    IdlePolls,
    /// Flow entries in use.
    Flows,
    /// Flow entries at most.
    FlowCapacity,
    /// Packets that found their flow.
    Hits,
    /// Packets that went to the rules.
    Misses,
    /// Flows that found no room in the table.
    Uncached,
    /// TCP segments outside their connection's windows, dropped or not.
    OutOfWindow,
    /// Queue pairs in the table.
    QueuePairs,
    /// Queue pairs at most.
    QueuePairCapacity,
    /// Queue pairs that found no room in the table.
    Untracked,
    /// The generation that it runs.
    Generation,
    /// Packets given to other workers.
    HandedOver,
    /// Packets taken from other workers.
    TakenOver,
    /// Packets that the pipeline holds for later.
    Held,
    /// Datagrams of which some fragments have come.
    Datagrams,
    /// Datagrams whose time was over before they were complete.
    Unfinished,
    /// Lists of rules that are gone through one rule after the other, since they are too large to be compiled.
    ScannedLists,
    /// Packets that a trace did not look at, since its ring was full.
    Untraced,
}

/// What became of a log line that a rule asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Logged {
    /// It is on its way to whoever writes it down.
    Written,
    /// The tenant has had as many as it may.
    Suppressed,
    /// Whoever writes them down does not keep up.
    Lost,
}

/// Packets and bytes of a part of a burst.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// How many packets.
    pub packets: u64,
    /// Their bytes, of Ethernet frames without FCS.
    pub bytes: u64,
}

impl Tally {
    /// Adds one packet.
    pub fn add(&mut self, bytes: usize) {
        self.packets += 1;
        self.bytes += bytes as u64;
    }
}

/// The writing side, owned by one worker.
pub struct Ledger {
    counters: counters::Writer,
    /// Of the packet in hand, while it is watched.
    pub(crate) journal: Option<Box<Journal>>,
}

impl Ledger {
    /// An empty ledger and what reads it.
    pub fn new() -> (Self, LedgerReader) {
        let (counters, reader) = Counters::new(ROWS, COLUMNS);
        (Self { counters, journal: None }, LedgerReader { counters: reader })
    }

    /// Counts packets that came in.
    pub fn received(&mut self, account: Account, tally: Tally) {
        self.counters.add(account.row(), RX_PACKETS, tally.packets);
        self.counters.add(account.row(), RX_BYTES, tally.bytes);
    }

    /// Counts packets that went out.
    pub fn sent(&mut self, account: Account, tally: Tally) {
        self.counters.add(account.row(), TX_PACKETS, tally.packets);
        self.counters.add(account.row(), TX_BYTES, tally.bytes);
    }

    /// Counts a packet that the worker made itself, for that port.
    pub fn originated(&mut self, port: PortId) {
        self.counters.add(Account::Port(port).row(), ORIGINATED, 1);
        if let Some(journal) = &mut self.journal {
            journal.note(Event::Originated { port });
        }
    }

    /// Counts a packet that ends here.
    pub fn dropped(&mut self, account: Account, reason: DropReason) {
        self.dropped_many(account, reason, 1);
    }

    /// Counts packets that end here.
    pub fn dropped_many(&mut self, account: Account, reason: DropReason, packets: u64) {
        self.counters.add(account.row(), FIRST_REASON + reason as usize, packets);
        if let Some(journal) = &mut self.journal {
            journal.note(Event::Dropped { account, reason });
        }
    }

    /// Counts a log line.
    pub fn logged(&mut self, account: Account, what: Logged) {
        self.counters.add(account.row(), FIRST_LOGGED + what as usize, 1);
    }

    /// Sets what a tenant has of the worker's tables.
    pub fn set_room(&mut self, tenant: TenantId, room: RoomCount) {
        let RoomCount { flows, evicted, displaced, refused, queue_pairs } = room;
        for (column, value) in (FIRST_ROOM..).zip([flows, evicted, displaced, refused, queue_pairs]) {
            self.counters.set(Account::Tenant(tenant).row(), column, value);
        }
    }

    /// Raises a figure of the worker.
    pub fn count(&mut self, gauge: Gauge, by: u64) {
        self.counters.add(WORKER, gauge as usize, by);
    }

    /// Sets a figure of the worker.
    pub fn set(&mut self, gauge: Gauge, value: u64) {
        self.counters.set(WORKER, gauge as usize, value);
    }
}

/// The reading side; each value is whole, values beside each other may be a burst apart.
#[derive(Clone)]
pub struct LedgerReader {
    counters: Arc<counters::Reader>,
}

impl LedgerReader {
    /// What came and went.
    pub fn traffic(&self, account: Account) -> Traffic {
        let get = |column| self.counters.get(account.row(), column);
        Traffic {
            rx_packets: get(RX_PACKETS),
            rx_bytes: get(RX_BYTES),
            tx_packets: get(TX_PACKETS),
            tx_bytes: get(TX_BYTES),
        }
    }

    /// Packets that the worker made for that port.
    pub fn originated(&self, port: PortId) -> u64 {
        self.counters.get(Account::Port(port).row(), ORIGINATED)
    }

    /// Packets dropped for that reason.
    pub fn dropped(&self, account: Account, reason: DropReason) -> u64 {
        self.counters.get(account.row(), FIRST_REASON + reason as usize)
    }

    /// Log lines that rules asked for.
    pub fn log(&self, account: Account) -> LogCount {
        let get = |what: Logged| self.counters.get(account.row(), FIRST_LOGGED + what as usize);
        LogCount {
            written: get(Logged::Written),
            suppressed: get(Logged::Suppressed),
            lost: get(Logged::Lost),
        }
    }

    /// What a tenant has of the worker's tables.
    pub fn room(&self, tenant: TenantId) -> RoomCount {
        let get = |column| self.counters.get(Account::Tenant(tenant).row(), FIRST_ROOM + column);
        RoomCount { flows: get(0), evicted: get(1), displaced: get(2), refused: get(3), queue_pairs: get(4) }
    }

    /// A figure of the worker.
    pub fn gauge(&self, gauge: Gauge) -> u64 {
        self.counters.get(WORKER, gauge as usize)
    }

    /// Packets dropped for whatever reason, of all accounts.
    pub fn dropped_in_all(&self) -> u64 {
        let rows = 0..WORKER;
        rows.flat_map(|row| (FIRST_REASON..COLUMNS).map(move |column| (row, column)))
            .map(|(row, column)| self.counters.get(row, column))
            .sum()
    }

    /// `received + originated + taken over - sent - handed over - dropped` of all ports: what the worker holds. Between
    /// polls it is what [`Gauge::Held`] says.
    pub fn held(&self) -> i64 {
        let sum = |column| (0..limit::PORTS).map(|row| self.counters.get(row, column)).sum::<u64>();
        let taken = sum(RX_PACKETS) + sum(ORIGINATED) + self.gauge(Gauge::TakenOver);
        let left = sum(TX_PACKETS) + self.dropped_in_all() + self.gauge(Gauge::HandedOver);
        taken.wrapping_sub(left) as i64
    }
}
