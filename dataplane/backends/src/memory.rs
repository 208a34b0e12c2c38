//! Packet buffers from a fixed pool, and ports whose far side is a [`Wire`] held by a test, a simulator or a host.
//!
//! Nothing here allocates once the pool and the ports are made, and nothing depends on time: the same calls in the
//! same order give the same packets, on one thread or across two.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use crossbeam_queue::ArrayQueue;
use packet::{Allocator, Backend, Buf, Burst, PortIo, RxQueue, TxQueue};

use crate::counts::{PortCounters, add};

/// Bytes free in front of a fresh packet: room for any encapsulation.
pub const HEADROOM: usize = 128;

/// Bytes that a packet of a pool made by [`Pool::new`] may have.
pub const DEFAULT_ROOM: usize = 2048;

/// The largest room that a pool may be asked for: a jumbo frame.
pub const MAX_ROOM: usize = 9216;

/// A fixed number of packet buffers. Clones share them; any thread may take and give back.
#[derive(Clone)]
pub struct Pool {
    store: Arc<Store>,
}

struct Store {
    free: ArrayQueue<Box<[u8]>>,
    room: usize,
}

/// How full a [`Pool`] is, in buffers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Level {
    /// Not in use now.
    pub free: usize,
    /// All there are.
    pub capacity: usize,
}

impl Pool {
    /// A pool of `capacity` buffers of [`DEFAULT_ROOM`] bytes.
    ///
    /// # Panics
    /// When `capacity` is zero.
    pub fn new(capacity: usize) -> Self {
        Self::with_room(capacity, DEFAULT_ROOM)
    }

    /// A pool of `capacity` buffers, each for packets of at most `room` bytes, with [`HEADROOM`] in front.
    ///
    /// # Panics
    /// When `capacity` is zero or `room` is over [`MAX_ROOM`].
    pub fn with_room(capacity: usize, room: usize) -> Self {
        assert!(room <= MAX_ROOM, "a packet buffer has at most {MAX_ROOM} bytes");
        let free = ArrayQueue::new(capacity);
        for _ in 0..capacity {
            let pushed = free.push(vec![0; HEADROOM + room].into_boxed_slice());
            debug_assert!(pushed.is_ok(), "the queue holds all buffers of its pool");
        }
        Self { store: Arc::new(Store { free, room }) }
    }

    /// How full it is: exact while no other thread takes or gives back.
    pub fn level(&self) -> Level {
        Level { free: self.store.free.len(), capacity: self.store.free.capacity() }
    }

    /// The longest packet, in bytes, that fits behind the headroom.
    pub fn room(&self) -> usize {
        self.store.room
    }

    /// An empty packet behind [`HEADROOM`] bytes; `None` when all buffers are in use.
    pub fn take(&self) -> Option<MemoryBuf> {
        let storage = self.store.free.pop()?;
        Some(MemoryBuf { storage, start: HEADROOM, end: HEADROOM, store: Arc::clone(&self.store) })
    }
}

impl Allocator for Pool {
    type Buf = MemoryBuf;

    fn allocate(&mut self) -> Option<MemoryBuf> {
        self.take()
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("level", &self.level()).field("room", &self.room()).finish()
    }
}

/// One packet in a buffer of a [`Pool`], which gets the buffer back when the packet is dropped.
pub struct MemoryBuf {
    storage: Box<[u8]>,
    // start <= end <= storage.len()
    start: usize,
    end: usize,
    store: Arc<Store>,
}

impl MemoryBuf {
    /// Makes the packet a copy of `frame`, behind [`HEADROOM`] bytes. False, and nothing changed, when it is longer
    /// than the pool's room.
    #[must_use]
    pub fn fill(&mut self, frame: &[u8]) -> bool {
        if frame.len() > self.store.room {
            return false;
        }
        (self.start, self.end) = (HEADROOM, HEADROOM + frame.len());
        self.bytes_mut().copy_from_slice(frame);
        true
    }

    /// Makes the packet what `read` puts at the front of the room that it is given; `read` returns how many bytes.
    pub(crate) fn fill_with<E>(
        &mut self,
        read: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        let room = &mut self.storage[HEADROOM..];
        let len = read(room)?.min(room.len());
        (self.start, self.end) = (HEADROOM, HEADROOM + len);
        Ok(len)
    }
}

impl Buf for MemoryBuf {
    fn bytes(&self) -> &[u8] {
        &self.storage[self.start..self.end]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.storage[self.start..self.end]
    }

    fn prepend(&mut self, count: usize) -> bool {
        let start = self.start.checked_sub(count);
        self.start = start.unwrap_or(self.start);
        start.is_some()
    }

    fn append(&mut self, count: usize) -> bool {
        let fits = count <= self.storage.len() - self.end;
        if fits {
            self.end += count;
        }
        fits
    }

    fn trim_front(&mut self, count: usize) {
        self.start += count.min(self.end - self.start);
    }

    fn truncate(&mut self, len: usize) {
        self.end = self.start + len.min(self.end - self.start);
    }
}

impl Drop for MemoryBuf {
    fn drop(&mut self) {
        let storage = std::mem::take(&mut self.storage);
        let given_back = self.store.free.push(storage);
        debug_assert!(given_back.is_ok(), "a pool never gets more buffers than it gave");
    }
}

impl fmt::Debug for MemoryBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryBuf({} bytes)", self.end - self.start)
    }
}

/// Ports in memory: what one side sends, the other's [`Wire`] receives.
#[derive(Debug)]
pub enum MemoryBackend {}

impl Backend for MemoryBackend {
    type Buf = MemoryBuf;
    type Rx = MemoryRx;
    type Tx = MemoryTx;
    type Allocator = Pool;
}

type Queue = Arc<ArrayQueue<MemoryBuf>>;

/// The worker's end of the queue that a [`Wire`] sends into.
#[derive(Debug)]
pub struct MemoryRx {
    queue: Queue,
    counters: Arc<PortCounters>,
}

impl RxQueue for MemoryRx {
    type Buf = MemoryBuf;

    fn receive(&mut self, burst: &mut Burst<MemoryBuf>) -> usize {
        let (before, mut bytes) = (burst.len(), 0);
        while !burst.is_full()
            && let Some(buf) = self.queue.pop()
        {
            bytes += buf.bytes().len();
            burst.push(buf);
        }
        let count = burst.len() - before;
        add(&self.counters.rx_packets, count);
        add(&self.counters.rx_bytes, bytes);
        count
    }
}

/// The worker's end of the queue that a [`Wire`] receives from.
#[derive(Debug)]
pub struct MemoryTx {
    queue: Queue,
    counters: Arc<PortCounters>,
}

impl TxQueue for MemoryTx {
    type Buf = MemoryBuf;

    fn transmit(&mut self, burst: &mut Burst<MemoryBuf>) -> usize {
        // The worker is the only one to push, so what is free now stays free.
        let count = burst.len().min(self.queue.capacity() - self.queue.len());
        let mut bytes = 0;
        for buf in burst.drain(..count) {
            bytes += buf.bytes().len();
            let pushed = self.queue.push(buf);
            debug_assert!(pushed.is_ok(), "room was there before the burst");
        }
        add(&self.counters.tx_packets, count);
        add(&self.counters.tx_bytes, bytes);
        add(&self.counters.tx_busy, burst.len());
        count
    }
}

/// A port and its outside world. Each direction holds at most `depth` packets; the port refuses more (they stay in
/// the worker's burst), and the wire refuses more with [`SendError::Full`]. Frames sent are copied into `pool`.
///
/// # Panics
/// When `depth` is zero.
pub fn port(pool: &Pool, depth: usize) -> (PortIo<MemoryBackend>, Wire) {
    counted_port(pool, depth, Arc::default())
}

/// As [`port`], counting into `counters`.
///
/// # Panics
/// When `depth` is zero.
pub fn counted_port(pool: &Pool, depth: usize, counters: Arc<PortCounters>) -> (PortIo<MemoryBackend>, Wire) {
    let (mut queues, wire) = queues(pool, depth, 1, counters);
    (queues.remove(0), wire)
}

/// A port of `count` queue pairs, each as deep, whose far side says which of them a frame comes in by.
///
/// # Panics
/// When `depth` is zero.
pub fn queues(
    pool: &Pool,
    depth: usize,
    count: usize,
    counters: Arc<PortCounters>,
) -> (Vec<PortIo<MemoryBackend>>, Wire) {
    let ends = || -> Vec<Queue> { (0..count).map(|_| Arc::new(ArrayQueue::new(depth))).collect() };
    let (inwards, outwards) = (ends(), ends());
    let io = |(inwards, outwards): (&Queue, &Queue)| PortIo {
        rx: MemoryRx { queue: Arc::clone(inwards), counters: Arc::clone(&counters) },
        tx: MemoryTx { queue: Arc::clone(outwards), counters: Arc::clone(&counters) },
    };
    (inwards.iter().zip(&outwards).map(io).collect(), Wire::new(pool, inwards, outwards))
}

/// Two wires joined back to back, with no port between: what one sends, the other receives.
///
/// # Panics
/// When `depth` is zero.
pub fn cable(pool: &Pool, depth: usize) -> (Wire, Wire) {
    let there: Queue = Arc::new(ArrayQueue::new(depth));
    let back: Queue = Arc::new(ArrayQueue::new(depth));
    let other_way = Wire::new(pool, vec![Arc::clone(&back)], vec![Arc::clone(&there)]);
    (Wire::new(pool, vec![there], vec![back]), other_way)
}

/// The outside world's side of a port in memory. One thread sends and receives at a time; the worker may be on another.
#[derive(Debug)]
pub struct Wire {
    pool: Pool,
    /// At least one.
    to_port: Vec<Queue>,
    from_port: Vec<Queue>,
    counts: Counters,
}

#[derive(Debug, Default)]
struct Counters {
    sent: AtomicU64,
    received: AtomicU64,
    refused: AtomicU64,
}

/// What a [`Wire`] has carried, in packets since it was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WireCounts {
    /// Handed to the port.
    pub sent: u64,
    /// Taken from the port.
    pub received: u64,
    /// Answered with a [`SendError`].
    pub refused: u64,
}

/// Why a [`Wire`] did not take a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SendError {
    /// The port's receive queue is full.
    #[error("the port's receive queue is full ({depth} packets)")]
    Full {
        /// Packets that it holds.
        depth: usize,
    },
    /// The pool is empty.
    #[error("all {capacity} packet buffers of the pool are in use")]
    NoBuffer {
        /// Buffers of the pool.
        capacity: usize,
    },
    /// The frame is longer than a buffer.
    #[error("a frame of {len} bytes is longer than a packet buffer ({room} bytes)")]
    TooLong {
        /// Bytes of the frame.
        len: usize,
        /// Bytes that fit.
        room: usize,
    },
}

impl Wire {
    fn new(pool: &Pool, to_port: Vec<Queue>, from_port: Vec<Queue>) -> Self {
        Self { pool: pool.clone(), to_port, from_port, counts: Counters::default() }
    }

    /// Sends a frame, copied, to the port's first queue.
    ///
    /// # Errors
    /// When queue, pool or buffer has no room for it. It is counted as refused.
    pub fn send(&self, frame: &[u8]) -> Result<(), SendError> {
        self.send_to(0, frame)
    }

    /// Sends a frame, copied, to one of the port's queues: the last one when it has no such queue.
    ///
    /// # Errors
    /// As [`Wire::send`].
    pub fn send_to(&self, queue: usize, frame: &[u8]) -> Result<(), SendError> {
        let queue = &self.to_port[queue.min(self.to_port.len() - 1)];
        let sent = self.copy(queue, frame).and_then(|buf| push(queue, buf));
        let count = if sent.is_ok() { &self.counts.sent } else { &self.counts.refused };
        count.fetch_add(1, Relaxed);
        sent
    }

    /// The oldest packet that the port has sent, of its first queue that has any.
    pub fn receive(&self) -> Option<MemoryBuf> {
        let buf = self.from_port.iter().find_map(|queue| queue.pop())?;
        self.counts.received.fetch_add(1, Relaxed);
        Some(buf)
    }

    /// True when [`Wire::send_to`] has room for a frame of any length up to the pool's room, whatever the queue.
    pub fn can_send(&self) -> bool {
        !self.to_port.iter().any(|queue| queue.is_full()) && self.pool.level().free > 0
    }

    /// Packets that wait in [`Wire::receive`].
    pub fn waiting(&self) -> usize {
        self.from_port.iter().map(|queue| queue.len()).sum()
    }

    /// Packets that the port has not taken yet.
    pub fn unread(&self) -> usize {
        self.to_port.iter().map(|queue| queue.len()).sum()
    }

    /// Queue pairs of the port.
    pub fn queues(&self) -> usize {
        self.to_port.len()
    }

    /// What it has carried.
    pub fn counts(&self) -> WireCounts {
        let Counters { sent, received, refused } = &self.counts;
        WireCounts {
            sent: sent.load(Relaxed),
            received: received.load(Relaxed),
            refused: refused.load(Relaxed),
        }
    }

    fn copy(&self, queue: &Queue, frame: &[u8]) -> Result<MemoryBuf, SendError> {
        // Asked first, so that a full queue is not mistaken for the empty pool that it may cause.
        if queue.is_full() {
            return Err(SendError::Full { depth: queue.capacity() });
        }
        let level = self.pool.level();
        let mut buf = self.pool.take().ok_or(SendError::NoBuffer { capacity: level.capacity })?;
        if buf.fill(frame) {
            Ok(buf)
        } else {
            Err(SendError::TooLong { len: frame.len(), room: self.pool.room() })
        }
    }
}

fn push(queue: &Queue, buf: MemoryBuf) -> Result<(), SendError> {
    queue.push(buf).map_err(|_| SendError::Full { depth: queue.capacity() })
}
