//! Any port that needs no DPDK behind one type, opened by its device string.
//!
//! | device string | port |
//! |---|---|
//! | `memory:` or `memory:<name>` | a queue of [`MEMORY_DEPTH`] packets in each direction, see [`Opened::wire`] |
//! | `tap:<interface>` | a Linux TAP interface |
//! | `pcap:rx=<file>,tx=<file>,loop` | capture files: one of `rx` and `tx` may be absent, `loop` repeats `rx` |

use std::{
    os::fd::{AsFd, BorrowedFd},
    path::Path,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use packet::{Backend, Burst, Nanos, PortIo, RxQueue, TxQueue};
use wire::Mac;

use crate::{
    PortFacts,
    counts::PortCounters,
    memory::{self, MemoryBuf, MemoryRx, MemoryTx, Pool, Wire},
    pcap::{self, Capture, CaptureWriter, PcapError, PcapRx, PcapTx, Precision, Source},
    tap::{self, TapError, TapRx, TapTx},
};

/// Packets that a `memory:` port holds in each direction.
pub const MEMORY_DEPTH: usize = 512;

/// Memory, TAP and capture-file ports, mixed.
#[derive(Debug)]
pub enum HostBackend {}

impl Backend for HostBackend {
    type Buf = MemoryBuf;
    type Rx = HostRx;
    type Tx = HostTx;
    type Allocator = Pool;
}

/// A receive queue of any of them: one branch per burst.
#[derive(Debug)]
pub enum HostRx {
    /// In memory.
    Memory(MemoryRx),
    /// A TAP interface.
    Tap(TapRx),
    /// A capture file.
    Pcap(PcapRx),
}

impl HostRx {
    /// What to wait on with `poll(2)` until a packet comes, where the kernel can tell.
    pub fn readiness(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Tap(rx) => Some(rx.as_fd()),
            Self::Memory(_) | Self::Pcap(_) => None,
        }
    }
}

impl RxQueue for HostRx {
    type Buf = MemoryBuf;

    fn receive(&mut self, burst: &mut Burst<MemoryBuf>) -> usize {
        match self {
            Self::Memory(rx) => rx.receive(burst),
            Self::Tap(rx) => rx.receive(burst),
            Self::Pcap(rx) => rx.receive(burst),
        }
    }
}

/// A transmit queue of any of them: one branch per burst.
#[derive(Debug)]
pub enum HostTx {
    /// In memory.
    Memory(MemoryTx),
    /// A TAP interface.
    Tap(TapTx),
    /// A capture file.
    Pcap(PcapTx),
}

impl TxQueue for HostTx {
    type Buf = MemoryBuf;

    fn transmit(&mut self, burst: &mut Burst<MemoryBuf>) -> usize {
        match self {
            Self::Memory(tx) => tx.transmit(burst),
            Self::Tap(tx) => tx.transmit(burst),
            Self::Pcap(tx) => tx.transmit(burst),
        }
    }
}

/// A port that [`open`] opened.
pub struct Opened {
    /// Its queues, for one worker.
    pub io: PortIo<HostBackend>,
    /// Name, MAC and MTU.
    pub facts: PortFacts,
    /// What it carries, to be read from any thread.
    pub counters: Arc<PortCounters>,
    /// The outside world's side of a `memory:` port.
    pub wire: Option<Wire>,
}

/// Why a device did not open.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The string before the colon names no kind of port.
    #[error("{device:?} is no device: write memory:, tap:<interface> or pcap:rx=<file>,tx=<file>[,loop]")]
    Unknown {
        /// As given.
        device: String,
    },
    /// A DPDK port was asked for here.
    #[error(
        "{device:?} needs DPDK: use a floodwayd built with the feature dpdk, or a tap:, pcap: or memory: device"
    )]
    Dpdk {
        /// As given.
        device: String,
    },
    /// Something after `pcap:` is not understood, given twice, or missing.
    #[error("{device:?}: {problem}; write pcap:rx=<file>,tx=<file>[,loop]")]
    Pcap {
        /// As given.
        device: String,
        /// What.
        problem: String,
    },
    /// The capture file is at fault.
    #[error(transparent)]
    File(#[from] PcapError),
    /// The TAP interface is at fault.
    #[error(transparent)]
    Tap(#[from] TapError),
}

/// Opens a device for IP packets of at most `mtu` bytes, with buffers of `pool`.
///
/// Memory and capture-file ports have no interface to take a MAC from: theirs is locally administered and derived
/// from the device string, so it stays the same, and differs from port to port when the strings do.
///
/// # Errors
/// One sentence that names the device and what to change.
pub fn open(device: &str, mtu: u16, pool: &Pool) -> Result<Opened, OpenError> {
    let counters = Arc::new(PortCounters::default());
    let derived = PortFacts { name: device.into(), mac: derive_mac(device), mtu };
    match device.split_once(':') {
        Some(("memory", _)) => {
            let (io, wire) = memory::counted_port(pool, MEMORY_DEPTH, Arc::clone(&counters));
            let io = PortIo { rx: HostRx::Memory(io.rx), tx: HostTx::Memory(io.tx) };
            Ok(Opened { io, facts: derived, counters, wire: Some(wire) })
        }
        Some(("tap", interface)) => {
            let (io, facts) = tap::open(interface, mtu, pool, Arc::clone(&counters))?;
            let io = PortIo { rx: HostRx::Tap(io.rx), tx: HostTx::Tap(io.tx) };
            Ok(Opened { io, facts, counters, wire: None })
        }
        Some(("pcap", files)) => {
            let files =
                parse_files(files).map_err(|problem| OpenError::Pcap { device: device.into(), problem })?;
            let io = open_pcap(&files, pool, Arc::clone(&counters))?;
            Ok(Opened { io, facts: derived, counters, wire: None })
        }
        Some(("dpdk", _)) => Err(OpenError::Dpdk { device: device.into() }),
        _ => Err(OpenError::Unknown { device: device.into() }),
    }
}

fn open_pcap(
    files: &Files,
    pool: &Pool,
    counters: Arc<PortCounters>,
) -> Result<PortIo<HostBackend>, PcapError> {
    let load = |file| {
        let capture = Capture::load(Path::new(file))?;
        // Before `tx` is emptied.
        capture.check_room(pool.room())?;
        Ok::<_, PcapError>(Source { capture, repeat: files.repeat })
    };
    let source = files.rx.map(load).transpose()?;
    let create = |file| CaptureWriter::create(Path::new(file), Precision::Nanoseconds);
    let writer = files.tx.map(create).transpose()?;
    let io = pcap::port(source, writer, pool, wall_clock, counters)?;
    Ok(PortIo { rx: HostRx::Pcap(io.rx), tx: HostTx::Pcap(io.tx) })
}

#[derive(Default)]
struct Files<'a> {
    rx: Option<&'a str>,
    tx: Option<&'a str>,
    repeat: bool,
}

fn parse_files(text: &str) -> Result<Files<'_>, String> {
    let mut files = Files::default();
    for part in text.split(',') {
        let twice = match part.split_once('=') {
            Some((key @ ("rx" | "tx"), "")) => return Err(format!("{key} names no file")),
            Some(("rx", file)) => files.rx.replace(file).is_some(),
            Some(("tx", file)) => files.tx.replace(file).is_some(),
            None if part == "loop" => std::mem::replace(&mut files.repeat, true),
            _ => return Err(format!("{part:?} is not understood")),
        };
        if twice {
            return Err(format!("{part:?} is the second of its kind"));
        }
    }
    match files {
        Files { rx: None, tx: None, .. } => Err("it names neither rx nor tx".into()),
        Files { rx: None, repeat: true, .. } => Err("there is no rx to loop over".into()),
        Files { rx: Some(rx), tx: Some(tx), .. } if rx == tx => Err("rx and tx are the same file".into()),
        files => Ok(files),
    }
}

/// FNV-1a of the text, cut to the five low bytes: spread is all that is asked of it.
fn derive_mac(text: &str) -> Mac {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let [a, b, c, d, e, ..] = hash.to_le_bytes();
    Mac([0x02, a, b, c, d, e])
}

/// Time since 1970, for capture files only.
fn wall_clock() -> Nanos {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}
