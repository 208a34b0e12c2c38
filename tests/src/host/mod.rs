//! A tenant's host: smoltcp behind a [`Wire`]. It answers ARP, ND and pings itself, moves bytes over TCP and UDP, and
//! keeps the raw frames that it is sent.
//!
//! Time is virtual: the caller polls every host, and moves `now` on to the earliest of the returned deadlines when
//! no frame is under way any more. Equal seeds and calls give equal frames.

mod link;
mod transfer;

use std::{
    collections::{BTreeMap, VecDeque},
    net::{IpAddr, SocketAddr},
};

use backends::memory::{SendError, Wire};
use ipnet::IpNet;
use packet::Nanos;
use smoltcp::{
    iface::{Config, Interface, PollResult, SocketHandle, SocketSet},
    phy::ChecksumCapabilities,
    socket::{icmp, tcp, udp},
    time::Instant,
    wire::{
        EthernetAddress, HardwareAddress, Icmpv4Packet, Icmpv4Repr, Icmpv6Packet, Icmpv6Repr, IpAddress,
        IpCidr,
    },
};
use wire::Mac;

use self::{link::Link, transfer::Job};
pub use self::{link::RECORDED, transfer::Transfer};

/// Who a [`Host`] is.
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// Its MAC, unicast.
    pub mac: Mac,
    /// Its addresses, each with the length of the on-link prefix; at most eight.
    pub addresses: Vec<IpNet>,
    /// Its default gateways: at most one of each family.
    pub gateways: Vec<IpAddr>,
    /// Largest IP packet that it sends, in bytes.
    pub mtu: u16,
    /// Where TCP sequence numbers, identifiers and payloads come from.
    pub seed: u64,
}

/// An endpoint with a TCP/IP stack of its own.
pub struct Host {
    link: Link,
    interface: Interface,
    sockets: SocketSet<'static>,
    config: HostConfig,
    /// The sockets of pings, by identifier.
    echoes: BTreeMap<u16, SocketHandle>,
    jobs: Vec<Job>,
}

/// A reply to [`Host::ping`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pong {
    /// Who answered.
    pub from: IpAddr,
    /// As sent.
    pub sequence: u16,
    /// As sent, when the network is right.
    pub payload: Vec<u8>,
}

/// Names a TCP transfer of a [`Host`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TransferId(usize);

/// Names a UDP socket of a [`Host`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UdpId(SocketHandle);

/// Bytes of a TCP socket's send buffer, and of its receive buffer.
const TCP_BUFFER: usize = 64 * 1024;

/// Packets and bytes that an ICMP or UDP socket holds in each direction.
const DATAGRAMS: (usize, usize) = (64, 64 * 1024);

impl Host {
    /// A host at the far side of `wire`, at time zero.
    ///
    /// # Panics
    /// When the configuration breaks a bound that [`HostConfig`] states.
    pub fn new(config: HostConfig, wire: Wire) -> Self {
        let mut link = Link::new(wire, config.mtu);
        let mut of_interface = Config::new(HardwareAddress::Ethernet(EthernetAddress(config.mac.0)));
        of_interface.random_seed = config.seed;
        let mut interface = Interface::new(of_interface, &mut link, Instant::ZERO);
        interface.update_ip_addrs(|addresses| {
            for net in &config.addresses {
                let address = IpCidr::new(net.addr().into(), net.prefix_len());
                addresses.push(address).expect("a host has at most eight addresses");
            }
        });
        for gateway in &config.gateways {
            let routes = interface.routes_mut();
            match gateway {
                IpAddr::V4(gateway) => routes.add_default_ipv4_route(*gateway),
                IpAddr::V6(gateway) => routes.add_default_ipv6_route(*gateway),
            }
            .expect("a host has one default route of each family");
        }
        let (sockets, echoes, jobs) = (SocketSet::new(Vec::new()), BTreeMap::new(), Vec::new());
        Self { link, interface, sockets, config, echoes, jobs }
    }

    /// Who it is.
    pub fn config(&self) -> &HostConfig {
        &self.config
    }

    /// Takes what has arrived, answers, and sends what is due. Returns when it wants to be polled again if nothing
    /// arrives before: `now` when it has more to do at once, [`Nanos::NEVER`] when it waits for others only.
    pub fn poll(&mut self, now: Nanos) -> Nanos {
        let instant = Instant::from_micros((now.0 / 1_000) as i64);
        // Sending fills the room that the applications made, and they the room that sending made.
        loop {
            let progress = self.interface.poll(instant, &mut self.link, &mut self.sockets);
            let moved = self.jobs.iter_mut().fold(0, |sum, job| sum + job.advance(&mut self.sockets));
            if progress == PollResult::None && moved == 0 {
                break;
            }
        }
        match self.interface.poll_at(instant, &self.sockets) {
            Some(due) => Nanos((due.total_micros().max(0) as u64).saturating_mul(1_000)).max(now),
            None => Nanos::NEVER,
        }
    }

    /// Sends an ICMP or ICMPv6 echo request; false when 64 of them wait to be sent.
    #[must_use]
    pub fn ping(&mut self, target: IpAddr, identifier: u16, sequence: u16, payload: &[u8]) -> bool {
        let handle = self.echo_socket(identifier);
        let source = self.interface.get_source_address(&target.into());
        let packet = match (target, source) {
            (IpAddr::V4(_), _) => echo_request_v4(identifier, sequence, payload),
            (IpAddr::V6(to), Some(IpAddress::Ipv6(from))) => {
                echo_request_v6(from, to, identifier, sequence, payload)
            }
            _ => return false,
        };
        self.sockets.get_mut::<icmp::Socket>(handle).send_slice(&packet, target.into()).is_ok()
    }

    /// The oldest reply to a ping of that identifier.
    pub fn pong(&mut self, identifier: u16) -> Option<Pong> {
        let socket = self.sockets.get_mut::<icmp::Socket>(*self.echoes.get(&identifier)?);
        while let Ok((packet, from)) = socket.recv() {
            let reply = match from {
                IpAddress::Ipv4(_) => echo_reply_v4(packet),
                IpAddress::Ipv6(_) => echo_reply_v6(packet),
            };
            if let Some((sequence, payload)) = reply {
                return Some(Pong { from: from.into(), sequence, payload });
            }
        }
        None
    }

    /// Accepts one TCP connection, takes all that its peer sends, and closes when the peer does.
    ///
    /// # Panics
    /// When `port` is zero.
    pub fn tcp_receive(&mut self, port: u16) -> TransferId {
        let mut socket = tcp_socket();
        socket.listen(port).expect("a port to listen on is not zero");
        let handle = self.sockets.add(socket);
        self.start(Job::receive(handle))
    }

    /// Connects over TCP, sends `bytes` bytes of seeded content, and closes.
    ///
    /// # Panics
    /// When a port is zero or the host has no address of that family.
    pub fn tcp_send(&mut self, remote: SocketAddr, local_port: u16, bytes: u64) -> TransferId {
        let mut socket = tcp_socket();
        let connected = socket.connect(self.interface.context(), remote, local_port);
        connected.expect("ports are not zero and the host has an address of the family");
        let handle = self.sockets.add(socket);
        self.start(Job::send(handle, bytes, self.config.seed ^ u64::from(local_port)))
    }

    /// How far a TCP transfer is.
    pub fn transfer(&self, id: TransferId) -> Transfer {
        self.jobs[id.0].report(&self.sockets)
    }

    /// Gives a transfer up without a word to its peer; it has failed.
    pub fn abandon(&mut self, id: TransferId) {
        *self.sockets.get_mut::<tcp::Socket>(self.jobs[id.0].handle()) = tcp_socket();
    }

    /// Opens a UDP socket.
    ///
    /// # Panics
    /// When `port` is zero.
    pub fn udp_bind(&mut self, port: u16) -> UdpId {
        let buffer = || {
            let (packets, bytes) = DATAGRAMS;
            udp::PacketBuffer::new(vec![udp::PacketMetadata::EMPTY; packets], vec![0; bytes])
        };
        let mut socket = udp::Socket::new(buffer(), buffer());
        socket.bind(port).expect("a port to bind to is not zero");
        UdpId(self.sockets.add(socket))
    }

    /// Sends a datagram; false when the socket's buffer is full or `remote` cannot be sent to.
    #[must_use]
    pub fn udp_send(&mut self, id: UdpId, remote: SocketAddr, payload: &[u8]) -> bool {
        self.sockets.get_mut::<udp::Socket>(id.0).send_slice(payload, remote).is_ok()
    }

    /// The oldest datagram that the socket has received, and from whom.
    pub fn udp_receive(&mut self, id: UdpId) -> Option<(SocketAddr, Vec<u8>)> {
        let (payload, metadata) = self.sockets.get_mut::<udp::Socket>(id.0).recv().ok()?;
        let from = SocketAddr::new(metadata.endpoint.addr.into(), metadata.endpoint.port);
        Some((from, payload.to_vec()))
    }

    /// Sends a frame past the stack.
    ///
    /// # Errors
    /// When the wire does not take it.
    pub fn raw_send(&self, frame: &[u8]) -> Result<(), SendError> {
        self.link.wire.send(frame)
    }

    /// The frames that have arrived, whoever they were for: the last [`RECORDED`], oldest first.
    pub fn frames(&self) -> &VecDeque<Vec<u8>> {
        &self.link.received
    }

    /// Forgets the frames that have arrived.
    pub fn clear_frames(&mut self) {
        self.link.received.clear();
    }

    /// The host's side of the wire.
    pub fn wire(&self) -> &Wire {
        &self.link.wire
    }

    /// Ends the host and gives its wire back, for another to take its place.
    pub fn into_wire(self) -> Wire {
        self.link.wire
    }

    fn start(&mut self, job: Job) -> TransferId {
        self.jobs.push(job);
        TransferId(self.jobs.len() - 1)
    }

    fn echo_socket(&mut self, identifier: u16) -> SocketHandle {
        let sockets = &mut self.sockets;
        *self.echoes.entry(identifier).or_insert_with(|| {
            let buffer = || {
                let (packets, bytes) = DATAGRAMS;
                icmp::PacketBuffer::new(vec![icmp::PacketMetadata::EMPTY; packets], vec![0; bytes])
            };
            let mut socket = icmp::Socket::new(buffer(), buffer());
            socket.bind(icmp::Endpoint::Ident(identifier)).expect("a new socket is unbound");
            sockets.add(socket)
        })
    }
}

fn tcp_socket() -> tcp::Socket<'static> {
    let buffer = || tcp::SocketBuffer::new(vec![0; TCP_BUFFER]);
    tcp::Socket::new(buffer(), buffer())
}

fn echo_request_v4(ident: u16, seq_no: u16, data: &[u8]) -> Vec<u8> {
    let request = Icmpv4Repr::EchoRequest { ident, seq_no, data };
    let mut packet = vec![0; request.buffer_len()];
    request.emit(&mut Icmpv4Packet::new_unchecked(&mut packet), &ChecksumCapabilities::default());
    packet
}

fn echo_request_v6(
    from: std::net::Ipv6Addr,
    to: std::net::Ipv6Addr,
    ident: u16,
    seq_no: u16,
    data: &[u8],
) -> Vec<u8> {
    let request = Icmpv6Repr::EchoRequest { ident, seq_no, data };
    let mut packet = vec![0; request.buffer_len()];
    request.emit(&from, &to, &mut Icmpv6Packet::new_unchecked(&mut packet), &ChecksumCapabilities::default());
    packet
}

fn echo_reply_v4(packet: &[u8]) -> Option<(u16, Vec<u8>)> {
    let packet = Icmpv4Packet::new_checked(packet).ok()?;
    match Icmpv4Repr::parse(&packet, &ChecksumCapabilities::ignored()).ok()? {
        Icmpv4Repr::EchoReply { seq_no, data, .. } => Some((seq_no, data.to_vec())),
        _ => None,
    }
}

/// The stack has checked the checksum, so no addresses are needed.
fn echo_reply_v6(packet: &[u8]) -> Option<(u16, Vec<u8>)> {
    let packet = Icmpv6Packet::new_checked(packet).ok()?;
    let is_reply = packet.msg_type() == smoltcp::wire::Icmpv6Message::EchoReply;
    is_reply.then(|| (packet.echo_seq_no(), packet.payload().to_vec()))
}
