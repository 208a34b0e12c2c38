//! Frames made and taken apart by etherparse: somebody else's view of what floodway sends.

use std::path::Path;

use backends::pcap::{CaptureWriter, Precision};
use etherparse::{PacketBuilder, SlicedPacket};
use packet::Nanos;
use wire::Mac;

/// Ends of a conversation.
#[derive(Clone, Copy, Debug)]
pub struct Ends {
    /// Sender's MAC.
    pub src_mac: Mac,
    /// Receiver's MAC.
    pub dst_mac: Mac,
    /// Sender's address.
    pub src: [u8; 4],
    /// Receiver's address.
    pub dst: [u8; 4],
}

impl Ends {
    /// The other direction.
    pub fn reversed(self) -> Self {
        Self { src_mac: self.dst_mac, dst_mac: self.src_mac, src: self.dst, dst: self.src }
    }

    fn ipv4(self, ttl: u8) -> etherparse::PacketBuilderStep<etherparse::IpHeaders> {
        PacketBuilder::ethernet2(self.src_mac.0, self.dst_mac.0).ipv4(self.src, self.dst, ttl)
    }

    /// A UDP frame.
    pub fn udp(self, ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
        let mut frame = Vec::new();
        self.ipv4(64).udp(ports.0, ports.1).write(&mut frame, payload).expect("a frame");
        frame
    }

    /// A TCP frame with these of the flags `S`, `A`, `F`, `R`.
    pub fn tcp(self, ports: (u16, u16), flags: &str, payload: &[u8]) -> Vec<u8> {
        // The connection's first bytes: a SYN has the number before.
        let sequence = u32::from(!flags.contains('S'));
        let mut step = self.ipv4(64).tcp(ports.0, ports.1, sequence, 1024);
        for flag in flags.chars() {
            step = match flag {
                'S' => step.syn(),
                'A' => step.ack(1),
                'F' => step.fin(),
                'R' => step.rst(),
                other => panic!("no TCP flag {other}"),
            };
        }
        let mut frame = Vec::new();
        step.write(&mut frame, payload).expect("a frame");
        frame
    }

    /// An ICMP echo request.
    pub fn ping(self, id: u16, seq: u16, ttl: u8) -> Vec<u8> {
        let mut frame = Vec::new();
        self.ipv4(ttl).icmpv4_echo_request(id, seq).write(&mut frame, b"floodway").expect("a frame");
        frame
    }

    /// An ICMP echo reply.
    pub fn pong(self, id: u16, seq: u16) -> Vec<u8> {
        let mut frame = Vec::new();
        self.ipv4(64).icmpv4_echo_reply(id, seq).write(&mut frame, b"floodway").expect("a frame");
        frame
    }

    /// "Host unreachable" about a packet, all of it quoted.
    pub fn unreachable(self, about: &[u8]) -> Vec<u8> {
        let kind =
            etherparse::Icmpv4Type::DestinationUnreachable(etherparse::icmpv4::DestUnreachableHeader::Host);
        let mut frame = Vec::new();
        self.ipv4(64).icmpv4(kind).write(&mut frame, &about[14..]).expect("a frame");
        frame
    }

    /// A RoCEv2 packet: RC SEND only to `qp`, with UDP source port `entropy`. The ICRC is not filled in.
    pub fn roce(self, entropy: u16, qp: u32, payload: &[u8]) -> Vec<u8> {
        self.udp((entropy, 4791), &send_only(qp, payload))
    }

    /// An ARP request of the sender for `target`.
    pub fn arp_request(self, target: [u8; 4]) -> Vec<u8> {
        let mut frame = Mac::BROADCAST.0.to_vec();
        frame.extend_from_slice(&self.src_mac.0);
        frame.extend_from_slice(&[8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
        frame.extend_from_slice(&self.src_mac.0);
        frame.extend_from_slice(&self.src);
        frame.extend_from_slice(&[0; 6]);
        frame.extend_from_slice(&target);
        frame
    }
}

/// BTH of an RC SEND only to `qp`, payload, and an ICRC of zeros.
pub(crate) fn send_only(qp: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x04, 0, 0xff, 0xff, 0];
    bytes.extend_from_slice(&qp.to_be_bytes()[1..]);
    bytes.extend_from_slice(&[0, 0, 0, 1]);
    bytes.extend_from_slice(payload);
    bytes.extend_from_slice(&[0; 4]);
    bytes
}

/// The reply of whoever has `mac` to an ARP request.
pub fn arp_reply_to(request: &[u8], mac: Mac) -> Vec<u8> {
    let mut reply = request[6..12].to_vec();
    reply.extend_from_slice(&mac.0);
    reply.extend_from_slice(&[8, 6, 0, 1, 8, 0, 6, 4, 0, 2]);
    reply.extend_from_slice(&mac.0);
    reply.extend_from_slice(&request[38..42]);
    reply.extend_from_slice(&request[22..32]);
    reply
}

/// What a VXLAN frame says, read byte by byte.
#[derive(Clone, Debug)]
pub struct Tunnelled {
    /// Outer MACs: destination, source.
    pub macs: (Mac, Mac),
    /// Outer addresses: source, destination.
    pub ends: ([u8; 4], [u8; 4]),
    /// Outer TOS.
    pub tos: u8,
    /// Outer UDP source port.
    pub src_port: u16,
    /// Network identifier.
    pub vni: u32,
    /// The inner frame.
    pub inner: Vec<u8>,
}

/// Takes an IPv4 VXLAN frame apart.
///
/// # Panics
/// When it is none, or when its lengths or its IPv4 checksum are wrong.
pub fn untunnel(frame: &[u8]) -> Tunnelled {
    let sliced = SlicedPacket::from_ethernet(frame).expect("a sound outer frame");
    let Some(etherparse::NetSlice::Ipv4(ip)) = &sliced.net else { panic!("outer IPv4") };
    let Some(etherparse::TransportSlice::Udp(udp)) = &sliced.transport else { panic!("outer UDP") };
    let header = ip.header();
    assert_eq!(header.header_checksum(), header.to_header().calc_header_checksum(), "outer IPv4 checksum");
    assert_eq!(usize::from(header.total_len()) + 14, frame.len(), "outer length");
    assert_eq!((udp.destination_port(), udp.checksum()), (4789, 0));
    let vxlan = udp.payload();
    assert_eq!(vxlan[0], 8, "the I flag");
    Tunnelled {
        macs: (mac(&frame[..6]), mac(&frame[6..12])),
        ends: (header.source(), header.destination()),
        tos: frame[15],
        src_port: udp.source_port(),
        vni: u32::from_be_bytes([0, vxlan[4], vxlan[5], vxlan[6]]),
        inner: vxlan[8..].to_vec(),
    }
}

/// Puts a frame into a VXLAN tunnel.
pub fn tunnel(outer: Ends, tos: u8, vni: u32, inner: &[u8]) -> Vec<u8> {
    let mut payload = vec![8, 0, 0, 0];
    payload.extend_from_slice(&(vni << 8).to_be_bytes());
    payload.extend_from_slice(inner);
    let mut frame = Vec::new();
    let ip = etherparse::Ipv4Header::new(0, 64, etherparse::IpNumber::UDP, outer.src, outer.dst)
        .expect("a header");
    let mut ip = ip;
    ip.dscp = etherparse::IpDscp::try_new(tos >> 2).expect("six bits");
    ip.ecn = etherparse::IpEcn::try_new(tos & 3).expect("two bits");
    let headers = etherparse::IpHeaders::Ipv4(ip, etherparse::Ipv4Extensions::default());
    PacketBuilder::ethernet2(outer.src_mac.0, outer.dst_mac.0)
        .ip(headers)
        .udp(51_000, 4789)
        .write(&mut frame, &payload)
        .expect("a frame");
    // RFC 7348, section 5: no UDP checksum.
    frame[40..42].copy_from_slice(&[0, 0]);
    frame
}

fn mac(bytes: &[u8]) -> Mac {
    Mac(bytes.try_into().expect("six bytes"))
}

/// Writes frames to a capture file, all at one time.
///
/// # Panics
/// When it cannot be written.
pub fn write_capture(path: &Path, at: Nanos, frames: impl IntoIterator<Item = Vec<u8>>) {
    let mut capture = CaptureWriter::create(path, Precision::Nanoseconds).expect("a capture file");
    for frame in frames {
        assert_eq!(capture.write(at, &frame), 0, "none lost");
    }
    assert_eq!(capture.flush(), 0, "none lost");
}
