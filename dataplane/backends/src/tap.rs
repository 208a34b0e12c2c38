//! Linux TAP interfaces, without DPDK: one queue, non-blocking (Linux, Documentation/networking/tuntap.rst).
//!
//! The interface is made in the network namespace of the calling thread and vanishes with the last of its queues,
//! unless someone had made it persistent before.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Write},
    net::{Ipv4Addr, UdpSocket},
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd},
        unix::fs::OpenOptionsExt,
    },
    sync::Arc,
};

use packet::{Backend, Buf, Burst, PortIo, RxQueue, TxQueue};
use wire::Mac;

use crate::{
    FRAME_OVERHEAD, PortFacts,
    counts::{PortCounters, add},
    memory::{MemoryBuf, Pool},
};

/// TAP ports with buffers of a [`Pool`].
#[derive(Debug)]
pub enum TapBackend {}

impl Backend for TapBackend {
    type Buf = MemoryBuf;
    type Rx = TapRx;
    type Tx = TapTx;
    type Allocator = Pool;
}

/// Why a TAP port did not open; each text says what to do.
#[derive(Debug, thiserror::Error)]
pub enum TapError {
    /// Not a name that Linux accepts.
    #[error("{name:?} cannot name an interface: use 1 to 15 letters, digits, `-`, `_` or `.`")]
    Name {
        /// As given.
        name: String,
    },
    /// There is no control device.
    #[error(
        "/dev/net/tun is missing: load the module with `modprobe tun`, or give the container that device"
    )]
    NoDevice,
    /// The process may not.
    #[error(
        "no permission for TAP interface {name}: run as root or with CAP_NET_ADMIN and access to /dev/net/tun"
    )]
    NoPermission {
        /// The interface.
        name: String,
    },
    /// Another process holds it, or an interface of another kind has that name.
    #[error("interface {name} is in use: choose another name or end the process that holds it")]
    InUse {
        /// The interface.
        name: String,
    },
    /// A frame of that MTU, and one byte to see that it is longer, does not fit a buffer.
    #[error("MTU {mtu} of {name} needs packet buffers of more than {} bytes, the pool's have {room}", usize::from(*mtu) + FRAME_OVERHEAD)]
    Mtu {
        /// The interface.
        name: String,
        /// As given.
        mtu: u16,
        /// Bytes of a buffer.
        room: usize,
    },
    /// Anything else that the kernel said.
    #[error("cannot {step} TAP interface {name}: {source}")]
    Io {
        /// The interface.
        name: String,
        /// What was tried.
        step: &'static str,
        /// What the kernel answered.
        source: io::Error,
    },
}

/// Opens TAP interface `name`, sets its MTU and brings it up.
///
/// # Errors
/// A sentence with the fix; the interface is gone again then.
pub fn open(
    name: &str,
    mtu: u16,
    pool: &Pool,
    counters: Arc<PortCounters>,
) -> Result<(PortIo<TapBackend>, PortFacts), TapError> {
    check_name(name)?;
    if usize::from(mtu) + FRAME_OVERHEAD >= pool.room() {
        return Err(TapError::Mtu { name: name.into(), mtu, room: pool.room() });
    }
    let file = attach(name)?;
    let mac = configure(name, mtu)?;
    let device = Arc::new(Device { file, longest: usize::from(mtu) + FRAME_OVERHEAD, counters });
    let io = PortIo { rx: TapRx { device: Arc::clone(&device), pool: pool.clone() }, tx: TapTx { device } };
    Ok((io, PortFacts { name: name.into(), mac, mtu }))
}

#[derive(Debug)]
struct Device {
    file: File,
    /// Bytes of the longest frame that passes.
    longest: usize,
    counters: Arc<PortCounters>,
}

/// The receive queue of a TAP port: frames that the kernel sends out of the interface.
#[derive(Debug)]
pub struct TapRx {
    device: Arc<Device>,
    pool: Pool,
}

/// What one read gave.
enum Received {
    Packet(MemoryBuf),
    TooLong,
    Nothing,
}

impl TapRx {
    fn read(&self) -> Received {
        let Device { file, longest, counters } = &*self.device;
        let Some(mut buf) = self.pool.take() else {
            add(&counters.rx_no_buffer, 1);
            return Received::Nothing;
        };
        match buf.fill_with(|room| (&*file).read(room)) {
            Ok(len) if len > *longest => {
                add(&counters.rx_too_long, 1);
                Received::TooLong
            }
            Ok(_) => Received::Packet(buf),
            Err(error) => {
                let waits = matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted);
                add(&counters.rx_errors, usize::from(!waits));
                Received::Nothing
            }
        }
    }
}

impl RxQueue for TapRx {
    type Buf = MemoryBuf;

    fn receive(&mut self, burst: &mut Burst<MemoryBuf>) -> usize {
        let (before, mut bytes) = (burst.len(), 0);
        // Bounded by the burst's room even when every frame is too long.
        for _ in 0..burst.remaining_capacity() {
            match self.read() {
                Received::Packet(buf) => {
                    bytes += buf.bytes().len();
                    burst.push(buf);
                }
                Received::TooLong => {}
                Received::Nothing => break,
            }
        }
        let count = burst.len() - before;
        add(&self.device.counters.rx_packets, count);
        add(&self.device.counters.rx_bytes, bytes);
        count
    }
}

/// Readable when a frame waits: for `poll(2)`.
impl AsFd for TapRx {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.file.as_fd()
    }
}

/// The transmit queue of a TAP port: frames that the kernel receives from the interface.
///
/// A packet that cannot go now (the socket's queue is full, the interface is down) stays with the worker; one that
/// can never go (too long, refused, half written) is dropped. Both are counted.
#[derive(Debug)]
pub struct TapTx {
    device: Arc<Device>,
}

enum Written {
    Sent,
    Dropped,
    Busy,
    Down,
}

impl TapTx {
    fn write(&self, frame: &[u8]) -> Written {
        let Device { file, longest, counters } = &*self.device;
        if frame.len() > *longest {
            add(&counters.tx_too_long, 1);
            return Written::Dropped;
        }
        let error = match (&*file).write(frame) {
            Ok(len) if len == frame.len() => return Written::Sent,
            Ok(_) => None,
            Err(error) => error.raw_os_error(),
        };
        match error {
            Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM | libc::EINTR) => Written::Busy,
            Some(libc::EIO) => Written::Down,
            _ => {
                add(&counters.tx_errors, 1);
                Written::Dropped
            }
        }
    }
}

impl TxQueue for TapTx {
    type Buf = MemoryBuf;

    fn transmit(&mut self, burst: &mut Burst<MemoryBuf>) -> usize {
        let counters = &self.device.counters;
        let (mut removed, mut sent, mut bytes) = (0, 0, 0);
        let mut why_left = &counters.tx_busy;
        for buf in burst.iter() {
            match self.write(buf.bytes()) {
                Written::Sent => {
                    sent += 1;
                    bytes += buf.bytes().len();
                }
                Written::Dropped => {}
                Written::Busy => break,
                Written::Down => {
                    why_left = &counters.tx_down;
                    break;
                }
            }
            removed += 1;
        }
        burst.drain(..removed);
        add(&counters.tx_packets, sent);
        add(&counters.tx_bytes, bytes);
        add(why_left, burst.len());
        removed
    }
}

/// Names that the kernel takes and that need no quoting anywhere; `%` would be a template for it.
fn check_name(name: &str) -> Result<(), TapError> {
    let plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    if plain && (1..libc::IFNAMSIZ).contains(&name.len()) && name != "." && name != ".." {
        Ok(())
    } else {
        Err(TapError::Name { name: name.into() })
    }
}

fn attach(name: &str) -> Result<File, TapError> {
    let mut options = OpenOptions::new();
    let opened = options.read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun");
    let file = opened.map_err(|source| match source.raw_os_error() {
        Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => TapError::NoDevice,
        _ => explain(name, "open", source),
    })?;
    let mut request = request(name);
    request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as i16;
    ioctl(&file, libc::TUNSETIFF as libc::Ioctl, &mut request).map_err(|e| explain(name, "create", e))?;
    Ok(file)
}

fn configure(name: &str, mtu: u16) -> Result<Mac, TapError> {
    // Any socket serves as a handle to the interfaces of this network namespace.
    let handle = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).map_err(|e| explain(name, "configure", e))?;
    let mut request = request(name);
    request.ifr_ifru.ifru_mtu = i32::from(mtu);
    ioctl(&handle, libc::SIOCSIFMTU, &mut request).map_err(|e| explain(name, "set the MTU of", e))?;
    ioctl(&handle, libc::SIOCGIFFLAGS, &mut request).map_err(|e| explain(name, "read the state of", e))?;
    // SAFETY: SIOCGIFFLAGS succeeded, so the flags are the member that the kernel wrote.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    request.ifr_ifru.ifru_flags = flags | libc::IFF_UP as i16;
    ioctl(&handle, libc::SIOCSIFFLAGS, &mut request).map_err(|e| explain(name, "bring up", e))?;
    ioctl(&handle, libc::SIOCGIFHWADDR, &mut request).map_err(|e| explain(name, "read the address of", e))?;
    // SAFETY: SIOCGIFHWADDR succeeded, so the hardware address is the member that the kernel wrote.
    let [a, b, c, d, e, f, ..] = unsafe { request.ifr_ifru.ifru_hwaddr.sa_data };
    Ok(Mac([a, b, c, d, e, f].map(|byte| byte as u8)))
}

fn explain(name: &str, step: &'static str, source: io::Error) -> TapError {
    let name = name.into();
    match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => TapError::NoPermission { name },
        // EINVAL from TUNSETIFF: an interface of that name exists and is no TAP.
        Some(libc::EBUSY) => TapError::InUse { name },
        Some(libc::EINVAL) if step == "create" => TapError::InUse { name },
        _ => TapError::Io { name, step, source },
    }
}

/// A request about interface `name`, which [`check_name`] has accepted, with the rest of it zero.
fn request(name: &str) -> libc::ifreq {
    // SAFETY: `ifreq` is plain old data, for which all bytes zero is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request
}

fn ioctl(handle: &impl AsRawFd, code: libc::Ioctl, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: all codes used here take a pointer to one `ifreq`, which outlives the call.
    match unsafe { libc::ioctl(handle.as_raw_fd(), code, std::ptr::from_mut(request)) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
