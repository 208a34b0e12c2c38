//! Ports that receive from a capture file and transmit into another one.
//!
//! What was captured when is not replayed: a worker gets packets as fast as it asks. The clock that stamps
//! transmitted packets is the caller's.

mod read;
mod write;

use std::{path::Path, sync::Arc};

use packet::{Backend, Buf, Burst, Nanos, PortIo, RxQueue, TxQueue};

pub use self::{
    read::{Capture, MAX_FILE},
    write::{CaptureWriter, Precision},
};
use crate::{
    counts::{PortCounters, add},
    memory::{MemoryBuf, Pool},
};

/// Capture-file ports with buffers of a [`Pool`].
#[derive(Debug)]
pub enum PcapBackend {}

impl Backend for PcapBackend {
    type Buf = MemoryBuf;
    type Rx = PcapRx;
    type Tx = PcapTx;
    type Allocator = Pool;
}

/// Why a capture file was not opened.
#[derive(Debug, thiserror::Error)]
pub enum PcapError {
    /// Not readable.
    #[error("cannot read {file}: {source}")]
    Read {
        /// The file.
        file: String,
        /// Why.
        source: std::io::Error,
    },
    /// Not writable.
    #[error("cannot create {file}: {source}")]
    Create {
        /// The file.
        file: String,
        /// Why.
        source: std::io::Error,
    },
    /// Larger than [`MAX_FILE`].
    #[error("{file} has more than the {MAX_FILE} bytes that are held in memory: split it")]
    TooLarge {
        /// The file.
        file: String,
    },
    /// Neither a pcap nor a pcapng header.
    #[error("{file} is not a pcap or pcapng file")]
    NotACapture {
        /// The file.
        file: String,
    },
    /// The file ends within a packet, or a length in it is wrong.
    #[error("{file}: damaged at packet {packet} (the first is 1)")]
    Damaged {
        /// The file.
        file: String,
        /// The packet that could not be read.
        packet: usize,
    },
    /// Captured on something else than Ethernet.
    #[error("{file}: packet {packet} is of link type {linktype}, only Ethernet (1) can be replayed")]
    NotEthernet {
        /// The file.
        file: String,
        /// The packet, the first being 1.
        packet: usize,
        /// Its LINKTYPE value.
        linktype: i32,
    },
    /// Longer than a packet buffer.
    #[error("{file}: packet {packet} has {len} bytes, a packet buffer has {room}")]
    TooLong {
        /// The file.
        file: String,
        /// The packet, the first being 1.
        packet: usize,
        /// Its bytes.
        len: usize,
        /// Bytes that fit.
        room: usize,
    },
}

/// Where a [`PcapRx`] receives from.
#[derive(Debug)]
pub struct Source {
    /// The packets.
    pub capture: Capture,
    /// Start again after the last packet.
    pub repeat: bool,
}

/// Makes a port of a capture to receive from and a writer to transmit into; without one, nothing is received, and
/// what is transmitted is discarded (and counted as sent). `clock` is asked once per transmitted burst.
///
/// # Errors
/// When a packet of the capture is longer than the pool's room.
pub fn port(
    source: Option<Source>,
    writer: Option<CaptureWriter>,
    pool: &Pool,
    clock: fn() -> Nanos,
    counters: Arc<PortCounters>,
) -> Result<PortIo<PcapBackend>, PcapError> {
    if let Some(Source { capture, .. }) = &source {
        capture.check_room(pool.room())?;
    }
    let rx = PcapRx { source, next: 0, pool: pool.clone(), counters: Arc::clone(&counters) };
    Ok(PortIo { rx, tx: PcapTx { writer, clock, counters } })
}

/// The receive queue of a capture-file port.
#[derive(Debug)]
pub struct PcapRx {
    source: Option<Source>,
    next: usize,
    pool: Pool,
    counters: Arc<PortCounters>,
}

impl PcapRx {
    /// True when no packet will come any more.
    pub fn is_finished(&self) -> bool {
        match &self.source {
            Some(Source { capture, repeat }) => capture.is_empty() || (!repeat && self.next == capture.len()),
            None => true,
        }
    }

    /// Copies the next packet out of the capture.
    fn next(&mut self) -> Option<MemoryBuf> {
        let Source { capture, repeat } = self.source.as_ref()?;
        if *repeat && self.next == capture.len() {
            self.next = 0;
        }
        let frame = capture.frame(self.next)?;
        let Some(mut buf) = self.pool.take() else {
            add(&self.counters.rx_no_buffer, 1);
            return None;
        };
        let fits = buf.fill(frame);
        debug_assert!(fits, "checked when the port was made");
        self.next += 1;
        Some(buf)
    }
}

impl RxQueue for PcapRx {
    type Buf = MemoryBuf;

    fn receive(&mut self, burst: &mut Burst<MemoryBuf>) -> usize {
        let (before, mut bytes) = (burst.len(), 0);
        while !burst.is_full()
            && let Some(buf) = self.next()
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

/// The transmit queue of a capture-file port. It takes every packet; those that the file then cannot take are counted
/// as transmit errors. The file is complete after [`PcapTx::flush`] or the drop.
#[derive(Debug)]
pub struct PcapTx {
    writer: Option<CaptureWriter>,
    clock: fn() -> Nanos,
    counters: Arc<PortCounters>,
}

impl PcapTx {
    /// Writes what is buffered to the file.
    pub fn flush(&mut self) {
        if let Some(writer) = &mut self.writer {
            add(&self.counters.tx_errors, writer.flush());
        }
    }
}

impl TxQueue for PcapTx {
    type Buf = MemoryBuf;

    fn transmit(&mut self, burst: &mut Burst<MemoryBuf>) -> usize {
        let count = burst.len();
        if count == 0 {
            return 0;
        }
        let (now, mut bytes, mut lost) = ((self.clock)(), 0, 0);
        for buf in burst.drain(..) {
            bytes += buf.bytes().len();
            if let Some(writer) = &mut self.writer {
                lost += writer.write(now, buf.bytes());
            }
        }
        add(&self.counters.tx_packets, count);
        add(&self.counters.tx_bytes, bytes);
        add(&self.counters.tx_errors, lost);
        count
    }
}

impl Drop for PcapTx {
    fn drop(&mut self) {
        self.flush();
    }
}

/// How errors name a file.
fn display(path: &Path) -> String {
    path.display().to_string()
}
