//! The applications of a [`Host`](super::Host): one sends bytes over TCP, the other takes them, and both say what
//! they saw.

use smoltcp::{
    iface::{SocketHandle, SocketSet},
    socket::tcp,
};

/// How far a TCP transfer is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transfer {
    /// Bytes sent and acknowledged, or received.
    pub bytes: u64,
    /// FNV-1a over the bytes written or received so far: equal at both ends of a whole transfer.
    pub digest: u64,
    /// The connection was made at some time.
    pub connected: bool,
    /// All bytes are through and both sides have closed.
    pub complete: bool,
    /// The connection ended (refused, reset) before it was complete.
    pub failed: bool,
}

/// What one poll writes or reads at most, so that a fast peer cannot hold it.
const CHUNK: usize = 16 * 1024;

pub(super) struct Job {
    handle: SocketHandle,
    role: Role,
    bytes: u64,
    digest: u64,
    connected: bool,
    closed: bool,
}

enum Role {
    Sender { left: u64, content: u64 },
    Receiver,
}

impl Job {
    pub(super) fn send(handle: SocketHandle, bytes: u64, seed: u64) -> Self {
        Self::new(handle, Role::Sender { left: bytes, content: seed })
    }

    pub(super) fn receive(handle: SocketHandle) -> Self {
        Self::new(handle, Role::Receiver)
    }

    fn new(handle: SocketHandle, role: Role) -> Self {
        Self { handle, role, bytes: 0, digest: 0xcbf2_9ce4_8422_2325, connected: false, closed: false }
    }

    pub(super) fn handle(&self) -> SocketHandle {
        self.handle
    }

    /// Writes or reads what the socket has room for; returns how many bytes, and one for a close.
    pub(super) fn advance(&mut self, sockets: &mut SocketSet<'static>) -> usize {
        let socket = sockets.get_mut::<tcp::Socket>(self.handle);
        self.connected |= socket.may_send();
        if !self.connected || self.closed {
            return 0;
        }
        let (moved, finished) = match &mut self.role {
            Role::Sender { left, content } => {
                let moved = write(socket, left, content, &mut self.digest);
                (moved, *left == 0)
            }
            Role::Receiver => read(socket, &mut self.digest),
        };
        self.bytes += moved as u64;
        if moved == 0 && finished {
            socket.close();
            self.closed = true;
            return 1;
        }
        moved
    }

    pub(super) fn report(&self, sockets: &SocketSet<'static>) -> Transfer {
        let socket = sockets.get::<tcp::Socket>(self.handle);
        let gone = matches!(socket.state(), tcp::State::Closed | tcp::State::TimeWait);
        let waits = socket.send_queue() as u64;
        let complete = self.closed && gone && waits == 0;
        let failed = socket.state() == tcp::State::Closed && !complete;
        let bytes = match self.role {
            Role::Sender { .. } => self.bytes - waits,
            Role::Receiver => self.bytes,
        };
        Transfer { bytes, digest: self.digest, connected: self.connected, complete, failed }
    }
}

fn write(socket: &mut tcp::Socket, left: &mut u64, content: &mut u64, digest: &mut u64) -> usize {
    let fill = |room: &mut [u8]| {
        let len = room.len().min(CHUNK).min(usize::try_from(*left).unwrap_or(usize::MAX));
        for byte in &mut room[..len] {
            *content = next(*content);
            *byte = (*content >> 56) as u8;
            *digest = fold(*digest, *byte);
        }
        (len, len)
    };
    let written = socket.send(fill).unwrap_or(0);
    *left -= written as u64;
    written
}

/// How many bytes it took, and whether the peer has closed: a reset is no close.
fn read(socket: &mut tcp::Socket, digest: &mut u64) -> (usize, bool) {
    let take = |data: &mut [u8]| {
        let len = data.len().min(CHUNK);
        *digest = data[..len].iter().fold(*digest, |digest, byte| fold(digest, *byte));
        (len, len)
    };
    match socket.recv(take) {
        Ok(len) => (len, false),
        Err(error) => (0, error == tcp::RecvError::Finished),
    }
}

/// Knuth's MMIX generator: its upper bits are good enough to tell shifted or repeated bytes.
fn next(state: u64) -> u64 {
    state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407)
}

/// FNV-1a.
fn fold(digest: u64, byte: u8) -> u64 {
    (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
}
