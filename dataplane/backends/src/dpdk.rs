//! DPDK ports: the packet traits over the crate `dpdk`, with nothing in between but its checks.
//!
//! Queues poll from threads that hold a [`dpdk::LcoreGuard`], and panic elsewhere.

use ::dpdk as eal;
use eal::{
    Eal, EthDev, Mempool, OpenError, OwnsMbuf, OwnsUniqueMbuf, PortConfig, PortWatch, Rss, StartError,
    UniqueMbuf,
};
use packet::{Allocator, Backend, Buf, Burst, PortIo, RxQueue, TxQueue, rss};

/// Ports that DPDK drives: cards and their representors, `net_tap`, `net_af_packet` and others.
pub struct DpdkBackend;

impl Backend for DpdkBackend {
    type Buf = DpdkBuf;
    type Rx = DpdkRx;
    type Tx = DpdkTx;
    type Allocator = DpdkAllocator;
}

/// An mbuf of one owner and one segment.
#[derive(Debug)]
#[repr(transparent)]
pub struct DpdkBuf(UniqueMbuf);

// SAFETY: it is `repr(transparent)` over `UniqueMbuf`.
unsafe impl OwnsMbuf for DpdkBuf {}
// SAFETY: as above.
unsafe impl OwnsUniqueMbuf for DpdkBuf {}

impl Buf for DpdkBuf {
    #[inline]
    fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }

    #[inline]
    fn bytes_mut(&mut self) -> &mut [u8] {
        self.0.bytes_mut()
    }

    #[inline]
    fn prepend(&mut self, count: usize) -> bool {
        self.0.prepend(count)
    }

    #[inline]
    fn append(&mut self, count: usize) -> bool {
        self.0.append(count)
    }

    #[inline]
    fn trim_front(&mut self, count: usize) {
        self.0.trim_front(count);
    }

    #[inline]
    fn truncate(&mut self, len: usize) {
        self.0.truncate(len);
    }

    #[inline]
    fn prefetch(&self) {
        self.0.prefetch();
    }
}

/// Gives all of `burst` back to its pool in one go, which is faster than dropping one by one.
#[inline]
pub fn free_burst(burst: &mut Burst<DpdkBuf>) {
    eal::free_burst(burst);
}

/// A receive queue. Packets that come in segments, or that somebody else holds too, are copied into one mbuf, or dropped
/// and counted: see [`DpdkPort::repairs`].
pub struct DpdkRx(eal::RxQueue);

impl RxQueue for DpdkRx {
    type Buf = DpdkBuf;

    #[inline]
    fn receive(&mut self, burst: &mut Burst<DpdkBuf>) -> usize {
        self.0.receive_unique(burst)
    }
}

/// A transmit queue.
pub struct DpdkTx(eal::TxQueue);

impl TxQueue for DpdkTx {
    type Buf = DpdkBuf;

    #[inline]
    fn transmit(&mut self, burst: &mut Burst<DpdkBuf>) -> usize {
        self.0.transmit(burst)
    }
}

/// Takes mbufs from a pool, through the calling lcore's cache.
#[derive(Clone)]
pub struct DpdkAllocator(Mempool);

impl DpdkAllocator {
    /// From this pool.
    pub fn new(pool: Mempool) -> Self {
        Self(pool)
    }
}

impl Allocator for DpdkAllocator {
    type Buf = DpdkBuf;

    #[inline]
    fn allocate(&mut self) -> Option<DpdkBuf> {
        self.0.alloc().map(DpdkBuf)
    }
}

/// Why there is no port; each text is one sentence with what to do.
#[derive(Debug, thiserror::Error)]
pub enum DpdkPortError {
    /// It cannot be found or made.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// It does not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// It does not tell its address or the like.
    #[error("port \"{port}\" runs, but does not tell about itself: {errno}")]
    Facts {
        /// What was asked for.
        port: String,
        /// Why not.
        errno: eal::Errno,
    },
}

/// How to open a port.
#[derive(Clone)]
pub struct DpdkPortConfig {
    /// Number of queue pairs: one for each worker. A port that can have fewer has what it can; it spreads packets over them
    /// as [`rss`] says, where it can.
    pub queues: u16,
    /// Where received packets are put.
    pub pool: Mempool,
    /// Bytes of a frame without its Ethernet header.
    pub mtu: u16,
}

/// A port, configured and started, and its queues until workers take them. It closes when the last of them is gone.
///
/// A `net_tap` port is moved into a namespace after this, and then left running: see [`eal::Port`].
pub struct DpdkPort {
    port: eal::Port,
    watch: PortWatch,
    facts: PortFacts,
    queues: u16,
}

/// What does not change while a port runs, read before a netdev can move out of sight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortFacts {
    /// DPDK's name of it, such as `net_tap0`.
    pub name: String,
    /// Its driver's name, such as `net_tap`.
    pub driver: String,
    /// Its MAC address, in wire order.
    pub mac: [u8; 6],
    /// Bytes of a frame without its Ethernet header.
    pub mtu: u16,
}

impl DpdkPort {
    /// Opens and starts a port by name or device arguments, such as `net_tap0,iface=red0` or
    /// `0000:03:00.0,representor=vf0` (PCI devices only when EAL was started with them).
    pub fn open(eal: &Eal, devargs: &str, config: DpdkPortConfig) -> Result<Self, DpdkPortError> {
        let DpdkPortConfig { queues, pool, mtu } = config;
        let silent = |errno| DpdkPortError::Facts { port: devargs.into(), errno };
        let device = EthDev::open(eal, devargs)?;
        let queues = queues.min(most_queues(&device).map_err(silent)?);
        let rss = Rss { key: rss::KEY, table: rss::Table::new(queues).entries().to_vec() };
        let port = device.start(&PortConfig { mtu, rss, ..PortConfig::new(queues, pool) })?;
        let facts = facts(&port).map_err(silent)?;
        Ok(Self { watch: port.watch(), port, facts, queues })
    }

    /// How many queue pairs it has.
    pub fn queues(&self) -> u16 {
        self.queues
    }

    /// The queue by the low bits of a packet's hash, as the port has it; empty where it has no such table.
    ///
    /// # Errors
    /// When the port has one, and does not tell.
    pub fn rss_table(&self) -> Result<Vec<u16>, eal::Errno> {
        self.port.rss_table()
    }

    /// One worker's queues; `None` when they were taken before, or there are none of this number.
    pub fn take(&mut self, queue: u16) -> Option<PortIo<DpdkBackend>> {
        Some(PortIo { rx: DpdkRx(self.port.take_rx(queue)?), tx: DpdkTx(self.port.take_tx(queue)?) })
    }

    /// What does not change while it runs.
    pub fn facts(&self) -> &PortFacts {
        &self.facts
    }

    /// A reader of its statistics, link and repairs, for any thread. It keeps the port open.
    pub fn watch(&self) -> PortWatch {
        self.watch.clone()
    }

    /// What a queue did with packets that came in segments or shared; `None` when there is no such queue.
    pub fn repairs(&self, queue: u16) -> Option<&eal::Repairs> {
        self.watch.repairs(queue)
    }
}

fn facts(port: &eal::Port) -> Result<PortFacts, eal::Errno> {
    Ok(PortFacts { name: port.name(), driver: port.driver()?, mac: port.mac()?, mtu: port.mtu()? })
}

/// At least one. The kernel moves a TAP's flow to the queue that last sent for it, past what waits in the one before: with
/// a single queue they stay in order.
fn most_queues(device: &EthDev) -> Result<u16, eal::Errno> {
    if device.driver()? == "net_tap" { Ok(1) } else { Ok(device.max_queues()?.max(1)) }
}

#[cfg(test)]
mod tests;
