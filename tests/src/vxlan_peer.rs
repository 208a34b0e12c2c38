//! The far end of the tunnels: a remote box with a VXLAN endpoint (RFC 7348) and its own hosts behind it.
//!
//! It is the oracle for what leaves the uplink, so it parses and builds with smoltcp's wire formats and its own VXLAN
//! code, never with this project's. It is strict: whatever is wrong with an outer packet is kept as a fault, for a
//! test to find none. It has no clock; unresolved packets wait, bounded, until the neighbour answers.

use std::{
    collections::{BTreeMap, VecDeque},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use backends::memory::Wire;
use packet::Buf;
use smoltcp::{
    phy::ChecksumCapabilities,
    wire::{
        ArpOperation, ArpPacket, ArpRepr, EthernetAddress, EthernetFrame, EthernetProtocol, Icmpv6Packet,
        Icmpv6Repr, IpProtocol, Ipv4Packet, Ipv4Repr, Ipv6Packet, Ipv6Repr, NdiscNeighborFlags, NdiscRepr,
        RawHardwareAddress, UdpPacket,
    },
};
use wire::Mac;

/// The UDP port of VXLAN (RFC 7348, section 5).
pub const VXLAN_PORT: u16 = 4789;

/// Outer packets that are kept; older ones are forgotten.
pub const RECORDED: usize = 4096;

/// Outer packets that wait for a neighbour; more are dropped and kept as a fault.
pub const WAITING: usize = 64;

/// Faults that are kept; more are only counted.
pub const FAULTS: usize = 64;

const ETHERNET: usize = 14;
const UDP: usize = 8;
const VXLAN: usize = 8;
const ECT0: u8 = 0b10;
const ECT1: u8 = 0b01;
const CE: u8 = 0b11;

/// The remote box.
pub struct VxlanPeer {
    uplink: Wire,
    mac: EthernetAddress,
    addresses: Vec<IpAddr>,
    segments: Vec<Segment>,
    neighbours: BTreeMap<IpAddr, EthernetAddress>,
    /// IP packets by the neighbour that they wait for.
    waiting: VecDeque<(IpAddr, Vec<u8>)>,
    outers: VecDeque<Outer>,
    faults: Vec<String>,
    fault_count: u64,
    congested: bool,
}

/// A host behind the peer.
struct Segment {
    vni: u32,
    remote: IpAddr,
    wire: Wire,
}

/// An outer packet as it came from the uplink, and what was in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outer {
    /// The tunnel's start.
    pub source: IpAddr,
    /// The tunnel's end.
    pub destination: IpAddr,
    /// The flow's entropy.
    pub source_port: u16,
    /// The outer TOS or traffic class: DSCP in the upper six bits, ECN in the lower two.
    pub tos: u8,
    /// The outer TTL or hop limit.
    pub hop_limit: u8,
    /// The segment, 24 bits.
    pub vni: u32,
    /// The inner frame, before ECN is carried over to it.
    pub inner: Vec<u8>,
}

/// What the outer IP header says.
struct Ip<'a> {
    source: IpAddr,
    destination: IpAddr,
    tos: u8,
    hop_limit: u8,
    protocol: IpProtocol,
    payload: &'a [u8],
}

impl VxlanPeer {
    /// A peer at the far side of the uplink's `wire`, with the addresses of its tunnel endpoint.
    pub fn new(mac: Mac, addresses: Vec<IpAddr>, wire: Wire) -> Self {
        Self {
            uplink: wire,
            mac: EthernetAddress(mac.0),
            addresses,
            segments: Vec::new(),
            neighbours: BTreeMap::new(),
            waiting: VecDeque::new(),
            outers: VecDeque::new(),
            faults: Vec::new(),
            fault_count: 0,
            congested: false,
        }
    }

    /// Puts a host, at the far side of `wire`, into segment `vni`. What it sends is tunnelled to `remote`; every host
    /// of a segment sees all that arrives for the segment.
    pub fn attach(&mut self, vni: u32, remote: IpAddr, wire: Wire) {
        self.segments.push(Segment { vni, remote, wire });
    }

    /// From now on the fabric towards the uplink is congested, or no longer: outer packets that may be marked are
    /// marked CE.
    pub fn set_congested(&mut self, congested: bool) {
        self.congested = congested;
    }

    /// Takes all that waits on the uplink and from the hosts; returns how many frames.
    pub fn poll(&mut self) -> usize {
        let mut moved = 0;
        while let Some(buf) = self.uplink.receive() {
            if let Err(fault) = self.take(buf.bytes()) {
                self.fault(fault);
            }
            moved += 1;
        }
        for index in 0..self.segments.len() {
            while let Some(buf) = self.segments[index].wire.receive() {
                self.encapsulate(index, buf.bytes());
                moved += 1;
            }
        }
        moved
    }

    /// Outer packets that were right: the last [`RECORDED`], oldest first.
    pub fn outers(&self) -> &VecDeque<Outer> {
        &self.outers
    }

    /// Forgets the outer packets.
    pub fn clear_outers(&mut self) {
        self.outers.clear();
    }

    /// What was wrong with frames from the uplink: the first [`FAULTS`] of them, in words.
    pub fn faults(&self) -> &[String] {
        &self.faults
    }

    /// How many frames were wrong.
    pub fn fault_count(&self) -> u64 {
        self.fault_count
    }

    /// The MAC of a neighbour on the uplink, once it is known.
    pub fn neighbour(&self, address: IpAddr) -> Option<Mac> {
        self.neighbours.get(&address).map(|mac| Mac(mac.0))
    }

    /// The peer's side of the uplink.
    pub fn wire(&self) -> &Wire {
        &self.uplink
    }

    fn fault(&mut self, fault: String) {
        self.fault_count += 1;
        if self.faults.len() < FAULTS {
            self.faults.push(fault);
        }
    }

    fn take(&mut self, bytes: &[u8]) -> Result<(), String> {
        let frame = EthernetFrame::new_checked(bytes).map_err(|_| "shorter than an Ethernet header")?;
        if frame.dst_addr() != self.mac && frame.dst_addr().is_unicast() {
            return Err(format!("sent to {}, which is not the peer", frame.dst_addr()));
        }
        if !frame.src_addr().is_unicast() {
            return Err(format!("sent by {}, which is no host", frame.src_addr()));
        }
        match frame.ethertype() {
            EthernetProtocol::Arp => self.take_arp(&frame),
            EthernetProtocol::Ipv4 => self.take_ip(parse_v4(frame.payload())?),
            EthernetProtocol::Ipv6 => self.take_ip(parse_v6(frame.payload())?),
            other => Err(format!("an unexpected EtherType: {other}")),
        }
    }

    fn take_arp(&mut self, frame: &EthernetFrame<&[u8]>) -> Result<(), String> {
        let packet = ArpPacket::new_checked(frame.payload()).map_err(|_| "a short ARP packet")?;
        let ArpRepr::EthernetIpv4 {
            operation,
            source_hardware_addr: mac,
            source_protocol_addr: source,
            target_protocol_addr: target,
            ..
        } = ArpRepr::parse(&packet).map_err(|_| "an ARP packet for other than Ethernet and IPv4")?
        else {
            return Err("an ARP packet of an unknown kind".into());
        };
        if mac != frame.src_addr() {
            return Err(format!("ARP says {mac}, Ethernet says {}", frame.src_addr()));
        }
        if !self.addresses.contains(&target.into()) {
            return Ok(());
        }
        self.learn(source.into(), mac);
        if operation == ArpOperation::Request {
            self.send_arp(ArpOperation::Reply, target, (mac, source), mac);
        }
        Ok(())
    }

    fn take_ip(&mut self, ip: Ip) -> Result<(), String> {
        match (ip.protocol, ip.source, ip.destination) {
            (IpProtocol::Icmpv6, IpAddr::V6(source), IpAddr::V6(destination)) => {
                self.take_icmpv6(&ip, source, destination)
            }
            (IpProtocol::Udp, ..) if !self.addresses.contains(&ip.destination) => {
                Err(format!("sent to {}, which is not the peer", ip.destination))
            }
            (IpProtocol::Udp, ..) => {
                // A neighbour is learned from ARP and ND only, as the kernel does it.
                let outer = parse_udp(&ip)?;
                self.deliver(outer)
            }
            (other, ..) => Err(format!("an unexpected protocol: {other}")),
        }
    }

    fn take_icmpv6(&mut self, ip: &Ip, source: Ipv6Addr, destination: Ipv6Addr) -> Result<(), String> {
        let packet = Icmpv6Packet::new_checked(ip.payload).map_err(|_| "a short ICMPv6 packet")?;
        let parsed = Icmpv6Repr::parse(&source, &destination, &packet, &ChecksumCapabilities::default());
        let Icmpv6Repr::Ndisc(message) = parsed.map_err(|_| "an ICMPv6 packet that is damaged")? else {
            return Err("an ICMPv6 packet that is not ND".into());
        };
        if ip.hop_limit != 255 {
            return Err(format!("ND with hop limit {} (RFC 4861, 7.1)", ip.hop_limit));
        }
        match message {
            NdiscRepr::NeighborSolicit { target_addr, lladdr: Some(lladdr) }
                if self.addresses.contains(&target_addr.into()) =>
            {
                let mac = EthernetAddress::from_bytes(lladdr.as_bytes());
                self.learn(source.into(), mac);
                self.send_advert(target_addr, source, mac);
            }
            NdiscRepr::NeighborAdvert { target_addr, lladdr: Some(lladdr), .. } => {
                self.learn(target_addr.into(), EthernetAddress::from_bytes(lladdr.as_bytes()));
            }
            _ => {}
        }
        Ok(())
    }

    /// Hands the inner frame to the hosts of its segment.
    fn deliver(&mut self, outer: Outer) -> Result<(), String> {
        let mut frame = outer.inner.clone();
        let marked = carry_ecn_in(outer.tos & CE, &mut frame);
        let (vni, mut hosts) = (outer.vni, 0);
        if self.outers.len() == RECORDED {
            self.outers.pop_front();
        }
        self.outers.push_back(outer);
        marked?;
        for segment in self.segments.iter().filter(|segment| segment.vni == vni) {
            hosts += 1;
            segment.wire.send(&frame).map_err(|refusal| format!("a host cannot take more: {refusal}"))?;
        }
        if hosts == 0 { Err(format!("VNI {vni} has no host here")) } else { Ok(()) }
    }

    /// Notes who has an address, and sends what waited for it.
    fn learn(&mut self, address: IpAddr, mac: EthernetAddress) {
        self.neighbours.insert(address, mac);
        for _ in 0..self.waiting.len() {
            if let Some((next_hop, packet)) = self.waiting.pop_front() {
                self.send_ip(next_hop, packet);
            }
        }
    }

    fn encapsulate(&mut self, index: usize, inner: &[u8]) {
        let Segment { vni, remote, .. } = self.segments[index];
        let mut tos = inner_tos(inner).unwrap_or(0);
        if self.congested && matches!(tos & CE, ECT0 | ECT1) {
            tos |= CE;
        }
        let source = self.addresses.iter().copied().find(|own| own.is_ipv4() == remote.is_ipv4());
        match (source, remote) {
            (Some(IpAddr::V4(from)), IpAddr::V4(to)) => {
                self.send_ip(remote, build_v4(from, to, tos, &build_vxlan(vni, inner)));
            }
            (Some(IpAddr::V6(from)), IpAddr::V6(to)) => {
                self.send_ip(remote, build_v6(from, to, tos, &build_vxlan(vni, inner)));
            }
            _ => self.fault(format!("the peer has no address of the family of {remote}")),
        }
    }

    /// Sends an IP packet, or lets it wait and asks who has the address.
    fn send_ip(&mut self, next_hop: IpAddr, packet: Vec<u8>) {
        if let Some(&mac) = self.neighbours.get(&next_hop) {
            let kind = if next_hop.is_ipv4() { EthernetProtocol::Ipv4 } else { EthernetProtocol::Ipv6 };
            return self.send_frame(mac, kind, &packet);
        }
        if self.waiting.len() == WAITING {
            return self.fault(format!("more than {WAITING} packets wait for a neighbour"));
        }
        self.waiting.push_back((next_hop, packet));
        let source = self.addresses.iter().copied().find(|own| own.is_ipv4() == next_hop.is_ipv4());
        match (source, next_hop) {
            (Some(IpAddr::V4(own)), IpAddr::V4(target)) => {
                let unknown = EthernetAddress([0; 6]);
                self.send_arp(ArpOperation::Request, own, (unknown, target), EthernetAddress::BROADCAST);
            }
            (Some(IpAddr::V6(own)), IpAddr::V6(target)) => self.send_solicit(own, target),
            _ => {}
        }
    }

    fn send_arp(
        &mut self,
        operation: ArpOperation,
        own: Ipv4Addr,
        target: (EthernetAddress, Ipv4Addr),
        to: EthernetAddress,
    ) {
        let arp = ArpRepr::EthernetIpv4 {
            operation,
            source_hardware_addr: self.mac,
            source_protocol_addr: own,
            target_hardware_addr: target.0,
            target_protocol_addr: target.1,
        };
        let mut packet = vec![0; arp.buffer_len()];
        arp.emit(&mut ArpPacket::new_unchecked(&mut packet));
        self.send_frame(to, EthernetProtocol::Arp, &packet);
    }

    fn send_solicit(&mut self, own: Ipv6Addr, target: Ipv6Addr) {
        let [.., a, b, c] = target.octets();
        let group = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | u16::from(a), u16::from_be_bytes([b, c]));
        let lladdr = Some(RawHardwareAddress::from_bytes(self.mac.as_bytes()));
        let message = NdiscRepr::NeighborSolicit { target_addr: target, lladdr };
        self.send_nd(own, group, EthernetAddress([0x33, 0x33, 0xff, a, b, c]), message);
    }

    fn send_advert(&mut self, own: Ipv6Addr, to: Ipv6Addr, mac: EthernetAddress) {
        let flags = NdiscNeighborFlags::SOLICITED | NdiscNeighborFlags::OVERRIDE;
        let lladdr = Some(RawHardwareAddress::from_bytes(self.mac.as_bytes()));
        self.send_nd(own, to, mac, NdiscRepr::NeighborAdvert { flags, target_addr: own, lladdr });
    }

    fn send_nd(&mut self, own: Ipv6Addr, to: Ipv6Addr, mac: EthernetAddress, message: NdiscRepr) {
        let message = Icmpv6Repr::Ndisc(message);
        let mut packet = build_v6_header(own, to, IpProtocol::Icmpv6, 255, message.buffer_len());
        let mut body = Icmpv6Packet::new_unchecked(&mut packet[40..]);
        message.emit(&own, &to, &mut body, &ChecksumCapabilities::default());
        self.send_frame(mac, EthernetProtocol::Ipv6, &packet);
    }

    fn send_frame(&mut self, to: EthernetAddress, kind: EthernetProtocol, payload: &[u8]) {
        let mut bytes = vec![0; ETHERNET + payload.len()];
        let mut frame = EthernetFrame::new_unchecked(&mut bytes);
        frame.set_dst_addr(to);
        frame.set_src_addr(self.mac);
        frame.set_ethertype(kind);
        frame.payload_mut().copy_from_slice(payload);
        if let Err(refusal) = self.uplink.send(&bytes) {
            self.fault(format!("the uplink cannot take more: {refusal}"));
        }
    }
}

fn parse_v4(bytes: &[u8]) -> Result<Ip<'_>, String> {
    let packet = Ipv4Packet::new_checked(bytes).map_err(|_| "a damaged IPv4 header")?;
    if packet.version() != 4 || !packet.verify_checksum() {
        return Err("an IPv4 header with a wrong version or checksum".into());
    }
    if packet.more_frags() || packet.frag_offset() != 0 {
        return Err("a fragment, which a tunnel endpoint must not make (RFC 7348, 4.3)".into());
    }
    Ok(Ip {
        source: packet.src_addr().into(),
        destination: packet.dst_addr().into(),
        tos: packet.dscp() << 2 | packet.ecn(),
        hop_limit: packet.hop_limit(),
        protocol: packet.next_header(),
        payload: packet.payload(),
    })
}

fn parse_v6(bytes: &[u8]) -> Result<Ip<'_>, String> {
    let packet = Ipv6Packet::new_checked(bytes).map_err(|_| "a damaged IPv6 header")?;
    if packet.version() != 6 {
        return Err("an IPv6 header with a wrong version".into());
    }
    Ok(Ip {
        source: packet.src_addr().into(),
        destination: packet.dst_addr().into(),
        tos: packet.traffic_class(),
        hop_limit: packet.hop_limit(),
        protocol: packet.next_header(),
        payload: packet.payload(),
    })
}

fn parse_udp(ip: &Ip) -> Result<Outer, String> {
    let packet = UdpPacket::new_checked(ip.payload).map_err(|_| "a damaged UDP header")?;
    if packet.dst_port() != VXLAN_PORT {
        return Err(format!("UDP port {} instead of {VXLAN_PORT}", packet.dst_port()));
    }
    // Zero: not computed, as RFC 7348 asks and RFC 6935 allows for IPv6.
    if packet.checksum() != 0 && !packet.verify_checksum(&ip.source.into(), &ip.destination.into()) {
        return Err("a wrong UDP checksum".into());
    }
    if usize::from(packet.len()) != ip.payload.len() {
        return Err("bytes behind the UDP datagram".into());
    }
    if ip.hop_limit == 0 {
        return Err("a hop limit of zero".into());
    }
    let (header, inner) = packet.payload().split_at_checked(VXLAN).ok_or("a short VXLAN header")?;
    if header[..4] != [0x08, 0, 0, 0] || header[7] != 0 {
        return Err(format!("VXLAN flags or reserved fields are wrong: {header:02x?}"));
    }
    if inner.len() < ETHERNET {
        return Err("an inner frame shorter than an Ethernet header".into());
    }
    Ok(Outer {
        source: ip.source,
        destination: ip.destination,
        source_port: packet.src_port(),
        tos: ip.tos,
        hop_limit: ip.hop_limit,
        vni: u32::from_be_bytes([0, header[4], header[5], header[6]]),
        inner: inner.to_vec(),
    })
}

/// UDP and VXLAN header and the inner frame; the UDP checksum is zero.
fn build_vxlan(vni: u32, inner: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; UDP + VXLAN];
    let mut udp = UdpPacket::new_unchecked(&mut bytes);
    udp.set_src_port(source_port(inner));
    udp.set_dst_port(VXLAN_PORT);
    udp.set_len((UDP + VXLAN + inner.len()) as u16);
    let [_, a, b, c] = vni.to_be_bytes();
    bytes[UDP..].copy_from_slice(&[0x08, 0, 0, 0, a, b, c, 0]);
    bytes.extend_from_slice(inner);
    bytes
}

fn build_v4(from: Ipv4Addr, to: Ipv4Addr, tos: u8, datagram: &[u8]) -> Vec<u8> {
    let header = Ipv4Repr {
        src_addr: from,
        dst_addr: to,
        next_header: IpProtocol::Udp,
        payload_len: datagram.len(),
        hop_limit: 64,
    };
    let mut bytes = vec![0; header.buffer_len()];
    let mut packet = Ipv4Packet::new_unchecked(&mut bytes);
    header.emit(&mut packet, &ChecksumCapabilities::default());
    packet.set_dscp(tos >> 2);
    packet.set_ecn(tos & CE);
    packet.fill_checksum();
    bytes.extend_from_slice(datagram);
    bytes
}

fn build_v6(from: Ipv6Addr, to: Ipv6Addr, tos: u8, datagram: &[u8]) -> Vec<u8> {
    let mut bytes = build_v6_header(from, to, IpProtocol::Udp, 64, datagram.len());
    Ipv6Packet::new_unchecked(&mut bytes).set_traffic_class(tos);
    bytes[40..].copy_from_slice(datagram);
    UdpPacket::new_unchecked(&mut bytes[40..]).fill_checksum(&from.into(), &to.into());
    bytes
}

/// An IPv6 header, and zeros for the payload.
fn build_v6_header(
    from: Ipv6Addr,
    to: Ipv6Addr,
    kind: IpProtocol,
    hop_limit: u8,
    payload_len: usize,
) -> Vec<u8> {
    let header = Ipv6Repr { src_addr: from, dst_addr: to, next_header: kind, payload_len, hop_limit };
    let mut bytes = vec![0; header.buffer_len() + payload_len];
    header.emit(&mut Ipv6Packet::new_unchecked(&mut bytes));
    bytes
}

/// TOS or traffic class of an untagged IP frame.
fn inner_tos(frame: &[u8]) -> Option<u8> {
    let frame = EthernetFrame::new_checked(frame).ok()?;
    match frame.ethertype() {
        EthernetProtocol::Ipv4 => parse_tos_v4(frame.payload()),
        EthernetProtocol::Ipv6 => Some(Ipv6Packet::new_checked(frame.payload()).ok()?.traffic_class()),
        _ => None,
    }
}

fn parse_tos_v4(bytes: &[u8]) -> Option<u8> {
    let packet = Ipv4Packet::new_checked(bytes).ok()?;
    Some(packet.dscp() << 2 | packet.ecn())
}

/// Carries the outer ECN field over to the inner one (RFC 6040, figure 4); an error when the packet must be dropped.
fn carry_ecn_in(outer: u8, frame: &mut [u8]) -> Result<(), String> {
    let Some(inner) = inner_tos(frame).map(|tos| tos & CE) else { return Ok(()) };
    let ecn = match (outer, inner) {
        (CE, 0) => return Err("CE around a packet that is not ECN-capable: dropped (RFC 6040)".into()),
        (CE, _) => CE,
        (ECT1, ECT0) => ECT1,
        _ => return Ok(()),
    };
    let mut frame = EthernetFrame::new_unchecked(frame);
    if frame.ethertype() == EthernetProtocol::Ipv4 {
        let mut packet = Ipv4Packet::new_unchecked(frame.payload_mut());
        packet.set_ecn(ecn);
        packet.fill_checksum();
    } else {
        let mut packet = Ipv6Packet::new_unchecked(frame.payload_mut());
        let class = packet.traffic_class();
        packet.set_traffic_class(class & !CE | ecn);
    }
    Ok(())
}

/// 49152 to 65535 (RFC 7348, section 5), by MACs, addresses, protocol and ports of the inner frame.
fn source_port(inner: &[u8]) -> u16 {
    let field = |from: usize, to: usize| inner.get(from..to).unwrap_or_default();
    let fields = match inner.get(12..14) {
        Some([0x08, 0x00]) => [field(0, 14), field(23, 24), field(26, 38)],
        Some([0x86, 0xdd]) => [field(0, 14), field(20, 21), field(22, 58)],
        _ => [field(0, 14), &[], &[]],
    };
    let hash = fields
        .concat()
        .iter()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
    49152 + (hash >> 18) as u16
}
