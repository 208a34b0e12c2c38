//! A packet socket (packet(7)) on an interface of a namespace: whole Ethernet frames, out and in.

use std::os::fd::{AsRawFd, OwnedFd};

use nix::{
    errno::Errno,
    ifaddrs::getifaddrs,
    sys::socket::{
        AddressFamily, LinkAddr, MsgFlags, SockFlag, SockProtocol, SockType, bind, recv, send, setsockopt,
        socket, sockopt,
    },
};

use super::layout::run_inside;
use crate::demo::world::Outcome;

/// Bytes of frames that may wait to be read.
const BUFFER_BYTES: usize = 32 << 20;
/// Longest frame.
const FRAME_BYTES: usize = 65_536;

/// Sends and keeps frames until it is dropped.
pub struct PacketSocket {
    socket: OwnedFd,
    interface: String,
}

impl PacketSocket {
    /// Opens it; from now on it keeps every frame of that interface, both ways.
    pub fn open(namespace: &str, interface: &str) -> Outcome<Self> {
        let name = interface.to_owned();
        let socket = run_inside(namespace, move || open(&name).map_err(|error| format!("{name}: {error}")))?;
        Ok(Self { socket, interface: interface.into() })
    }

    /// Sends a frame.
    pub fn send(&self, frame: &[u8]) -> Outcome<()> {
        let sent = send(self.socket.as_raw_fd(), frame, MsgFlags::empty());
        sent.map(drop).map_err(|error| format!("cannot send on {}: {error}", self.interface))
    }

    /// The frames kept so far.
    pub fn drain(self) -> Outcome<Vec<Vec<u8>>> {
        let mut frames = Vec::new();
        let mut buffer = vec![0; FRAME_BYTES];
        loop {
            match recv(self.socket.as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT) {
                Ok(len) => frames.push(buffer[..len].to_vec()),
                Err(Errno::EAGAIN) => return Ok(frames),
                Err(error) => return Err(format!("cannot receive on {}: {error}", self.interface)),
            }
        }
    }
}

fn open(interface: &str) -> nix::Result<OwnedFd> {
    let address = find(interface)?;
    let all = SockProtocol::EthAll;
    let socket = socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, all)?;
    setsockopt(&socket, sockopt::RcvBufForce, &BUFFER_BYTES)?;
    bind(socket.as_raw_fd(), &address)?;
    // Between its creation and this the socket was open to all interfaces.
    let mut early = [0; 1];
    while recv(socket.as_raw_fd(), &mut early, MsgFlags::MSG_DONTWAIT).is_ok() {}
    Ok(socket)
}

/// The link-layer address of an interface holds its index.
fn find(interface: &str) -> nix::Result<LinkAddr> {
    let mut links = getifaddrs()?.filter(|entry| entry.interface_name == interface);
    links.find_map(|entry| entry.address?.as_link_addr().copied()).ok_or(Errno::ENODEV)
}
