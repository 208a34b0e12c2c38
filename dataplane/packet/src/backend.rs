//! The burst-shaped traits that memory, TAP, pcap and DPDK ports implement.

use arrayvec::ArrayVec;

/// Most packets that one receive or transmit call moves.
pub const BURST: usize = 32;

/// Up to [`BURST`] packet buffers, in order of arrival.
pub type Burst<B> = ArrayVec<B, BURST>;

/// One packet, owned and writable: nobody else holds it and its bytes are contiguous.
///
/// Dropping it gives its memory back to the pool that it came from.
pub trait Buf: Sized + Send {
    /// The packet, from its first Ethernet byte to its last, without FCS.
    fn bytes(&self) -> &[u8];

    /// As [`Buf::bytes`], to be written.
    fn bytes_mut(&mut self) -> &mut [u8];

    /// Grows the packet by `count` bytes at its front, whose content is unspecified.
    /// False, and nothing changed, when the headroom is too small.
    #[must_use]
    fn prepend(&mut self, count: usize) -> bool;

    /// Grows the packet by `count` bytes at its end, whose content is unspecified.
    /// False, and nothing changed, when the tailroom is too small.
    #[must_use]
    fn append(&mut self, count: usize) -> bool;

    /// Removes `count` bytes from the front; all of them when there are fewer.
    fn trim_front(&mut self, count: usize);

    /// Shortens the packet to `len` bytes; nothing happens when it is not longer.
    fn truncate(&mut self, len: usize);

    /// Asks the processor to fetch the first bytes of the packet.
    fn prefetch(&self) {}
}

/// A receive queue. It belongs to one worker.
pub trait RxQueue: Send {
    /// What it yields.
    type Buf: Buf;

    /// Appends at most as many packets to `burst` as it has room for; returns how many. Never blocks.
    fn receive(&mut self, burst: &mut Burst<Self::Buf>) -> usize;
}

/// A transmit queue. It belongs to one worker.
pub trait TxQueue: Send {
    /// What it takes.
    type Buf: Buf;

    /// Sends packets from the front of `burst` and removes them from it; returns how many. What the port has no
    /// room for stays in `burst`, in order. Never blocks.
    fn transmit(&mut self, burst: &mut Burst<Self::Buf>) -> usize;
}

/// Where a worker takes empty buffers from, for packets of its own making.
pub trait Allocator: Send {
    /// What it hands out.
    type Buf: Buf;

    /// An empty packet with headroom for any encapsulation; `None` when the pool has no more.
    fn allocate(&mut self) -> Option<Self::Buf>;
}

/// A family of ports whose queues share one buffer type.
pub trait Backend: 'static {
    /// Its packet buffer.
    type Buf: Buf;
    /// Its receive queue.
    type Rx: RxQueue<Buf = Self::Buf>;
    /// Its transmit queue.
    type Tx: TxQueue<Buf = Self::Buf>;
    /// Its source of empty buffers.
    type Allocator: Allocator<Buf = Self::Buf>;
}

/// One worker's queues of one port.
pub struct PortIo<B: Backend> {
    /// Where packets come in.
    pub rx: B::Rx,
    /// Where packets go out.
    pub tx: B::Tx,
}
