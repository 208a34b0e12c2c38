//! What a port has carried, and what it could not carry, by reason.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// One port's counters: the worker that owns the queues counts, any thread reads.
#[derive(Debug, Default)]
pub struct PortCounters {
    pub(crate) rx_packets: AtomicU64,
    pub(crate) rx_bytes: AtomicU64,
    pub(crate) rx_no_buffer: AtomicU64,
    pub(crate) rx_too_long: AtomicU64,
    pub(crate) rx_errors: AtomicU64,
    pub(crate) tx_packets: AtomicU64,
    pub(crate) tx_bytes: AtomicU64,
    pub(crate) tx_busy: AtomicU64,
    pub(crate) tx_down: AtomicU64,
    pub(crate) tx_too_long: AtomicU64,
    pub(crate) tx_errors: AtomicU64,
}

/// The values of a port's [`PortCounters`] at one moment; packets, unless the name says bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PortCounts {
    /// Handed to the worker.
    pub rx_packets: u64,
    /// Bytes of these packets, without FCS.
    pub rx_bytes: u64,
    /// Times that receiving stopped because the pool was empty; the packets wait in the device.
    pub rx_no_buffer: u64,
    /// Dropped: longer than the port's MTU and [`FRAME_OVERHEAD`](crate::FRAME_OVERHEAD).
    pub rx_too_long: u64,
    /// Times that the device failed to give a packet.
    pub rx_errors: u64,
    /// Given to the device.
    pub tx_packets: u64,
    /// Bytes of these packets, without FCS.
    pub tx_bytes: u64,
    /// Left with the worker because the device had no room. A packet that is tried again counts again.
    pub tx_busy: u64,
    /// Left with the worker because the interface is down. A packet that is tried again counts again.
    pub tx_down: u64,
    /// Dropped: longer than the port's MTU and [`FRAME_OVERHEAD`](crate::FRAME_OVERHEAD).
    pub tx_too_long: u64,
    /// Dropped: the device refused them, took only a part, or lost them after it took them.
    pub tx_errors: u64,
}

impl PortCounters {
    /// The values now; each is exact, but they are not of one instant while the worker runs.
    pub fn read(&self) -> PortCounts {
        PortCounts {
            rx_packets: self.rx_packets.load(Relaxed),
            rx_bytes: self.rx_bytes.load(Relaxed),
            rx_no_buffer: self.rx_no_buffer.load(Relaxed),
            rx_too_long: self.rx_too_long.load(Relaxed),
            rx_errors: self.rx_errors.load(Relaxed),
            tx_packets: self.tx_packets.load(Relaxed),
            tx_bytes: self.tx_bytes.load(Relaxed),
            tx_busy: self.tx_busy.load(Relaxed),
            tx_down: self.tx_down.load(Relaxed),
            tx_too_long: self.tx_too_long.load(Relaxed),
            tx_errors: self.tx_errors.load(Relaxed),
        }
    }
}

/// Adds to a counter; cheap when there is nothing to add.
pub(crate) fn add(counter: &AtomicU64, count: usize) {
    if count > 0 {
        counter.fetch_add(count as u64, Relaxed);
    }
}
