//! IPv6 frames made and taken apart by etherparse, neighbour discovery byte by byte.

use std::net::Ipv6Addr;

use etherparse::{Icmpv6Type, PacketBuilder, SlicedPacket};
use wire::Mac;

/// Ends of a conversation over IPv6.
#[derive(Clone, Copy, Debug)]
pub struct Ends6 {
    /// Sender's MAC.
    pub src_mac: Mac,
    /// Receiver's MAC.
    pub dst_mac: Mac,
    /// Sender's address.
    pub src: Ipv6Addr,
    /// Receiver's address.
    pub dst: Ipv6Addr,
}

impl Ends6 {
    /// The other direction.
    pub fn reversed(self) -> Self {
        Self { src_mac: self.dst_mac, dst_mac: self.src_mac, src: self.dst, dst: self.src }
    }

    fn ipv6(self, hop_limit: u8) -> etherparse::PacketBuilderStep<etherparse::IpHeaders> {
        let step = PacketBuilder::ethernet2(self.src_mac.0, self.dst_mac.0);
        step.ipv6(self.src.octets(), self.dst.octets(), hop_limit)
    }

    /// A UDP frame.
    pub fn udp(self, ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
        let mut frame = Vec::new();
        self.ipv6(64).udp(ports.0, ports.1).write(&mut frame, payload).expect("a frame");
        frame
    }

    /// A RoCEv2 packet: RC SEND only to `qp`, with UDP source port `entropy`. The ICRC is not filled in.
    pub fn roce(self, entropy: u16, qp: u32, payload: &[u8]) -> Vec<u8> {
        self.udp((entropy, 4791), &crate::frames::send_only(qp, payload))
    }

    /// The first TCP frame of a connection.
    pub fn syn(self, ports: (u16, u16)) -> Vec<u8> {
        let mut frame = Vec::new();
        self.ipv6(64).tcp(ports.0, ports.1, 1, 1024).syn().write(&mut frame, b"").expect("a frame");
        frame
    }

    /// An ICMPv6 echo request.
    pub fn ping(self, id: u16, seq: u16, hop_limit: u8) -> Vec<u8> {
        let mut frame = Vec::new();
        let step = self.ipv6(hop_limit).icmpv6_echo_request(id, seq);
        step.write(&mut frame, b"floodway").expect("a frame");
        frame
    }

    /// An ICMPv6 echo reply.
    pub fn pong(self, id: u16, seq: u16) -> Vec<u8> {
        let mut frame = Vec::new();
        self.ipv6(64).icmpv6_echo_reply(id, seq).write(&mut frame, b"floodway").expect("a frame");
        frame
    }

    /// An ICMPv6 message of that type whose body is what stands behind the checksum.
    pub fn icmpv6(self, kind: u8, code: u8, body: &[u8], hop_limit: u8) -> Vec<u8> {
        let first = body[..4].try_into().expect("four bytes");
        let message = Icmpv6Type::Unknown { type_u8: kind, code_u8: code, bytes5to8: first };
        let mut frame = Vec::new();
        self.ipv6(hop_limit).icmpv6(message).write(&mut frame, &body[4..]).expect("a frame");
        frame
    }

    /// "Address unreachable" about a packet, all of it quoted.
    pub fn unreachable(self, about: &[u8]) -> Vec<u8> {
        let mut body = vec![0; 4];
        body.extend_from_slice(&about[14..]);
        self.icmpv6(1, 3, &body, 64)
    }

    /// A neighbour solicitation for `target` with the sender's MAC as its option; to everybody.
    pub fn solicit(self, target: Ipv6Addr) -> Vec<u8> {
        let mut body = vec![0; 4];
        body.extend_from_slice(&target.octets());
        body.extend_from_slice(&[1, 1]);
        body.extend_from_slice(&self.src_mac.0);
        let [.., a, b, c] = target.octets();
        let dst = Ipv6Addr::from([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, a, b, c]);
        let dst_mac = Mac([0x33, 0x33, 0xff, a, b, c]);
        Self { dst, dst_mac, ..self }.icmpv6(135, 0, &body, 255)
    }

    /// A neighbour advertisement of `target` at `mac`, with these flags in the top bits.
    pub fn advertise(self, target: Ipv6Addr, mac: Mac, flags: u8) -> Vec<u8> {
        let mut body = vec![flags, 0, 0, 0];
        body.extend_from_slice(&target.octets());
        body.extend_from_slice(&[2, 1]);
        body.extend_from_slice(&mac.0);
        self.icmpv6(136, 0, &body, 255)
    }
}

/// Puts extension headers between an IPv6 frame's header and what follows it: `next` is the first one's number, and
/// the last one's "next header" must be what followed.
pub fn extend(frame: &[u8], next: u8, headers: &[u8]) -> Vec<u8> {
    let mut out = frame[..54].to_vec();
    out[20] = next;
    let len = (frame.len() - 54 + headers.len()) as u16;
    out[18..20].copy_from_slice(&len.to_be_bytes());
    out.extend_from_slice(headers);
    out.extend_from_slice(&frame[54..]);
    out
}

/// What an IPv6 VXLAN frame says.
#[derive(Clone, Debug)]
pub struct Tunnelled6 {
    /// Outer addresses: source, destination.
    pub ends: (Ipv6Addr, Ipv6Addr),
    /// Outer traffic class.
    pub tos: u8,
    /// Outer UDP source port.
    pub src_port: u16,
    /// Network identifier.
    pub vni: u32,
    /// The inner frame.
    pub inner: Vec<u8>,
}

/// Takes an IPv6 VXLAN frame apart.
///
/// # Panics
/// When it is none, or when its lengths or its UDP checksum are wrong.
pub fn untunnel6(frame: &[u8]) -> Tunnelled6 {
    let sliced = SlicedPacket::from_ethernet(frame).expect("a sound outer frame");
    let Some(etherparse::NetSlice::Ipv6(ip)) = &sliced.net else { panic!("outer IPv6") };
    let Some(etherparse::TransportSlice::Udp(udp)) = &sliced.transport else { panic!("outer UDP") };
    let header = ip.header();
    assert_eq!(usize::from(header.payload_length()) + 54, frame.len(), "outer payload length");
    assert_eq!(usize::from(udp.length()) + 54, frame.len(), "outer UDP length");
    let sum = udp.to_header().calc_checksum_ipv6_raw(header.source(), header.destination(), udp.payload());
    assert_eq!(udp.checksum(), sum.expect("a checksum"), "outer UDP checksum");
    assert_eq!(udp.destination_port(), 4789);
    let vxlan = udp.payload();
    assert_eq!(vxlan[0], 8, "the I flag");
    Tunnelled6 {
        ends: (header.source().into(), header.destination().into()),
        tos: header.traffic_class(),
        src_port: udp.source_port(),
        vni: u32::from_be_bytes([0, vxlan[4], vxlan[5], vxlan[6]]),
        inner: vxlan[8..].to_vec(),
    }
}

/// Puts a frame into an IPv6 VXLAN tunnel, with UDP checksum.
pub fn tunnel6(outer: Ends6, vni: u32, inner: &[u8]) -> Vec<u8> {
    let mut payload = vec![8, 0, 0, 0];
    payload.extend_from_slice(&(vni << 8).to_be_bytes());
    payload.extend_from_slice(inner);
    outer.udp((51_000, 4789), &payload)
}
