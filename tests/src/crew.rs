//! The workers of a rig: how many, which queues they have, whose turn it is, and what they have counted together.

use engine::{Account, Gauge, LedgerReader};
use packet::rss::{self, Table};
use program::{DropReason, LogCount, PortId, RoomCount, TenantId, Traffic};
use wire::{L3, L4, Parsed, vxlan};

/// Set to a number, it is that of the workers of every rig that does not say otherwise.
pub const WORKERS_VARIABLE: &str = "FLOODWAY_WORKERS";

/// The workers that a rig is to have.
#[derive(Clone, Copy, Debug)]
pub struct Crew {
    /// How many.
    pub workers: u16,
    /// How packets come to them.
    pub card: Card,
    /// Of the order in which they have their turns.
    pub seed: u64,
    /// Packets that a ring between two of them holds.
    pub ring_depth: usize,
}

/// What the ports of a rig do with what they receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Card {
    /// One queue a port.
    OneQueue,
    /// A queue for each worker, chosen by the outer addresses in one order: the two directions come to different workers.
    Lopsided,
    /// A queue for each worker, chosen by the inner addresses as [`rss`] says.
    Symmetric,
}

impl Crew {
    /// One worker, who does it all.
    pub const ONE: Self = Self { workers: 1, card: Card::OneQueue, seed: 1, ring_depth: engine::RING_DEPTH };

    /// As many as the environment says, else one.
    ///
    /// # Panics
    /// When it says no number.
    pub fn from_environment() -> Self {
        let workers = std::env::var(WORKERS_VARIABLE).ok();
        let workers = workers.map_or(1, |text| text.parse().expect("a number of workers"));
        // With two, each port has its worker; with more, packets come in anywhere.
        let card = if workers > 2 { Card::Lopsided } else { Card::OneQueue };
        Self { workers, card, ..Self::ONE }
    }

    /// Queue pairs of each port.
    pub(crate) fn queues(&self) -> u16 {
        if self.card == Card::OneQueue { 1 } else { self.workers }
    }

    /// The queue by which a frame comes in.
    pub(crate) fn queue(&self, frame: &[u8], is_uplink: bool) -> usize {
        match self.card {
            Card::OneQueue => 0,
            Card::Lopsided => {
                let header = frame.iter().take(12).chain(frame.get(26..34).unwrap_or(&[]));
                let hash = header.fold(7_usize, |hash, byte| hash.wrapping_mul(31) + usize::from(*byte));
                hash % usize::from(self.workers)
            }
            Card::Symmetric => symmetric_queue(frame, is_uplink, self.workers),
        }
    }
}

/// As a card with inner RSS; what is not IP goes to the first queue.
fn symmetric_queue(frame: &[u8], is_uplink: bool, queues: u16) -> usize {
    let Ok(mut parsed) = wire::parse(frame) else { return 0 };
    let mut frame = frame;
    if is_uplink && parsed.l4 == L4::Udp && parsed.dst_port == vxlan::PORT {
        let Ok(inner) = vxlan::decap(frame, &parsed) else { return 0 };
        frame = &frame[usize::from(inner.offset)..];
        let Ok(inner) = wire::parse(frame) else { return 0 };
        parsed = inner;
    }
    hash(frame, &parsed).map_or(0, |hash| usize::from(Table::new(queues).queue(hash)))
}

fn hash(frame: &[u8], parsed: &Parsed) -> Option<u32> {
    let ip = &frame[usize::from(parsed.l3_offset)..];
    match parsed.l3 {
        L3::Ipv4 => Some(rss::hash_v4(*ip.get(12..)?.first_chunk()?)),
        L3::Ipv6 => Some(rss::hash_v6(ip.get(8..)?.first_chunk()?)),
        L3::Arp | L3::Other => None,
    }
}

/// The books of all workers, read as one.
#[derive(Clone)]
pub struct Books(pub Vec<LedgerReader>);

impl Books {
    /// What came and went.
    pub fn traffic(&self, account: Account) -> Traffic {
        self.0.iter().map(|ledger| ledger.traffic(account)).fold(Traffic::default(), |sum, one| Traffic {
            rx_packets: sum.rx_packets + one.rx_packets,
            rx_bytes: sum.rx_bytes + one.rx_bytes,
            tx_packets: sum.tx_packets + one.tx_packets,
            tx_bytes: sum.tx_bytes + one.tx_bytes,
        })
    }

    /// Packets that workers made for that port.
    pub fn originated(&self, port: PortId) -> u64 {
        self.0.iter().map(|ledger| ledger.originated(port)).sum()
    }

    /// Packets dropped for that reason.
    pub fn dropped(&self, account: Account, reason: DropReason) -> u64 {
        self.0.iter().map(|ledger| ledger.dropped(account, reason)).sum()
    }

    /// A figure of all workers together; the generation that all of them run or have left behind.
    pub fn gauge(&self, gauge: Gauge) -> u64 {
        let each = self.0.iter().map(|ledger| ledger.gauge(gauge));
        if gauge == Gauge::Generation { each.min().unwrap_or(0) } else { each.sum() }
    }

    /// Packets dropped for whatever reason.
    pub fn dropped_in_all(&self) -> u64 {
        self.0.iter().map(LedgerReader::dropped_in_all).sum()
    }

    /// What a tenant has of all workers' tables.
    pub fn room(&self, tenant: TenantId) -> RoomCount {
        self.0.iter().map(|ledger| ledger.room(tenant)).fold(RoomCount::default(), |sum, one| RoomCount {
            flows: sum.flows + one.flows,
            evicted: sum.evicted + one.evicted,
            displaced: sum.displaced + one.displaced,
            refused: sum.refused + one.refused,
            queue_pairs: sum.queue_pairs + one.queue_pairs,
        })
    }

    /// Flows that rules asked to be logged.
    pub fn log(&self, account: Account) -> LogCount {
        self.0.iter().map(|ledger| ledger.log(account)).fold(LogCount::default(), |sum, one| LogCount {
            written: sum.written + one.written,
            suppressed: sum.suppressed + one.suppressed,
            lost: sum.lost + one.lost,
        })
    }

    /// Packets in rings between workers.
    pub fn in_rings(&self) -> u64 {
        self.gauge(Gauge::HandedOver) - self.gauge(Gauge::TakenOver)
    }

    /// What workers hold beside that; zero between polls, for each of them.
    pub fn held(&self) -> i64 {
        self.0.iter().map(|ledger| ledger.held().abs()).sum()
    }
}

/// SplitMix64: the same numbers for the same seed.
#[derive(Clone, Debug)]
pub struct Seeded(pub u64);

impl Seeded {
    /// The next 64 bits.
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is not zero.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.word() % bound as u64) as usize
    }

    /// Puts a list into some other order.
    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        (1..list.len()).rev().for_each(|last| list.swap(last, self.below(last + 1)));
    }
}
