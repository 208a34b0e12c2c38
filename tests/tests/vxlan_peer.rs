//! The remote box against frames made by hand, and two of them against each other.
#![expect(clippy::unwrap_used, reason = "the functions beside the tests are tests too")]

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
};

use backends::{
    memory::{self, Pool, Wire},
    pcap::Capture,
};
use packet::{Buf, Nanos};
use scenarios::{
    host::{Host, HostConfig},
    vxlan_peer::{Outer, VxlanPeer},
};
use wire::Mac;

const PEER: [u8; 6] = [2, 0, 0, 0, 1, 1];
const BOX: [u8; 6] = [2, 0, 0, 0, 2, 2];
const VNI: u32 = 0x01_02_03;

/// A peer with address 192.0.2.1 and fd01::1, one host wire in segment VNI towards 192.0.2.2, and the uplink.
fn peer(pool: &Pool, remote: &str) -> (VxlanPeer, Wire, Wire) {
    let (uplink, of_peer) = memory::cable(pool, 128);
    let (host, of_segment) = memory::cable(pool, 128);
    let addresses = vec!["192.0.2.1".parse().unwrap(), "fd01::1".parse().unwrap()];
    let mut peer = VxlanPeer::new(Mac(PEER), addresses, of_peer);
    peer.attach(VNI, remote.parse().unwrap(), of_segment);
    (peer, uplink, host)
}

/// RFC 1071.
fn checksum(bytes: &[u8]) -> [u8; 2] {
    let mut sum: u32 =
        bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!(sum as u16)).to_be_bytes()
}

fn ipv4(tos: u8, protocol: u8, from: [u8; 4], to: [u8; 4], payload: &[u8]) -> Vec<u8> {
    let len = (20 + payload.len() as u16).to_be_bytes();
    let mut header = vec![0x45, tos, len[0], len[1], 0, 1, 0x40, 0, 64, protocol, 0, 0];
    header.extend(from);
    header.extend(to);
    let sum = checksum(&header);
    header[10..12].copy_from_slice(&sum);
    header.extend(payload);
    header
}

fn ethernet(to: [u8; 6], from: [u8; 6], kind: [u8; 2], payload: &[u8]) -> Vec<u8> {
    [&to[..], &from, &kind, payload].concat()
}

/// An IPv4 frame of a protocol that nobody knows.
fn inner(tos: u8) -> Vec<u8> {
    ethernet([2; 6], [4; 6], [8, 0], &ipv4(tos, 253, [10, 0, 0, 1], [10, 0, 0, 2], b"inner"))
}

fn outer(tos: u8, vni: u32, inner: &[u8]) -> Vec<u8> {
    let len = (16 + inner.len() as u16).to_be_bytes();
    let vni = vni.to_be_bytes();
    let mut datagram = vec![0xc0, 1, 0x12, 0xb5, len[0], len[1], 0, 0, 8, 0, 0, 0, vni[1], vni[2], vni[3], 0];
    datagram.extend(inner);
    ethernet(PEER, BOX, [8, 0], &ipv4(tos, 17, [192, 0, 2, 2], [192, 0, 2, 1], &datagram))
}

fn arp(to: [u8; 6], operation: u8, sender: ([u8; 6], [u8; 4]), target: ([u8; 6], [u8; 4])) -> Vec<u8> {
    let body = [&[0, 1, 8, 0, 6, 4, 0, operation][..], &sender.0, &sender.1, &target.0, &target.1].concat();
    ethernet(to, sender.0, [8, 6], &body)
}

fn receive(wire: &Wire) -> Vec<u8> {
    wire.receive().expect("a frame waits").bytes().to_vec()
}

#[test]
fn an_outer_packet_is_taken_apart_and_recorded() {
    let pool = Pool::new(32);
    let (mut peer, uplink, host) = peer(&pool, "192.0.2.2");
    uplink.send(&outer(0x28, VNI, &inner(0))).unwrap();
    assert_eq!(peer.poll(), 1);
    assert_eq!(receive(&host), inner(0));
    let seen = &peer.outers()[0];
    assert_eq!((seen.source, seen.destination), ("192.0.2.2".parse().unwrap(), "192.0.2.1".parse().unwrap()));
    assert_eq!((seen.vni, seen.source_port, seen.tos, seen.hop_limit), (VNI, 0xc001, 0x28, 64));
    assert_eq!(seen.inner, inner(0));
    assert_eq!(peer.faults(), &[] as &[String]);
    assert!(host.receive().is_none());
}

#[test]
fn ecn_is_carried_inwards_as_rfc_6040_says() {
    let pool = Pool::new(32);
    let (mut peer, uplink, host) = peer(&pool, "192.0.2.2");
    // Figure 4, with CE being 3, ECT(0) 2 and ECT(1) 1: outer, inner, result.
    for (outside, inside, result) in [
        (0, 0, 0),
        (0, 2, 2),
        (0, 1, 1),
        (0, 3, 3),
        (2, 0, 0),
        (2, 2, 2),
        (2, 1, 1),
        (2, 3, 3),
        (1, 0, 0),
        (1, 2, 1),
        (1, 1, 1),
        (1, 3, 3),
        (3, 2, 3),
        (3, 1, 3),
        (3, 3, 3),
    ] {
        uplink.send(&outer(outside, VNI, &inner(0x28 | inside))).unwrap();
        peer.poll();
        assert_eq!(receive(&host), inner(0x28 | result), "{outside} around {inside}");
    }
    assert_eq!(peer.fault_count(), 0);
    uplink.send(&outer(3, VNI, &inner(0))).unwrap();
    peer.poll();
    assert!(host.receive().is_none());
    assert!(peer.faults()[0].contains("RFC 6040"));
}

#[test]
fn every_wrong_outer_packet_is_a_fault() {
    let good = outer(0, VNI, &inner(0));
    let edited = |at: usize, byte: u8| {
        let mut frame = good.clone();
        frame[at] = byte;
        frame
    };
    let with_sum = |mut frame: Vec<u8>| {
        frame[24..26].fill(0);
        let sum = checksum(&frame[14..34]);
        frame[24..26].copy_from_slice(&sum);
        frame
    };
    for (frame, fault) in [
        (edited(5, 9), "which is not the peer"),
        (edited(6, 3), "which is no host"),
        (edited(12, 7), "an unexpected EtherType"),
        (edited(24, 0), "wrong version or checksum"),
        (with_sum(edited(20, 0x20)), "a fragment"),
        (with_sum(edited(22, 0)), "a hop limit of zero"),
        (with_sum(edited(23, 6)), "an unexpected protocol"),
        (with_sum(edited(33, 9)), "sent to 192.0.2.9"),
        (edited(37, 0xb6), "UDP port 4790"),
        (edited(41, 1), "a wrong UDP checksum"),
        (edited(42, 0), "flags or reserved"),
        (edited(45, 1), "flags or reserved"),
        (edited(49, 1), "flags or reserved"),
        (edited(48, 9), "has no host here"),
        (good[..13].to_vec(), "shorter than an Ethernet header"),
        (good[..40].to_vec(), "a damaged IPv4 header"),
        (outer(0, VNI, &[0; 13]), "an inner frame shorter"),
        (Vec::new(), "shorter than an Ethernet header"),
    ] {
        let pool = Pool::new(32);
        let (mut peer, uplink, host) = peer(&pool, "192.0.2.2");
        uplink.send(&frame).unwrap();
        peer.poll();
        assert_eq!(peer.fault_count(), 1, "{fault}");
        assert!(peer.faults()[0].contains(fault), "{:?} for {fault}", peer.faults());
        assert!(host.receive().is_none());
    }
}

#[test]
fn arp_for_the_endpoint_is_answered_and_learned_from() {
    let pool = Pool::new(32);
    let (mut peer, uplink, _host) = peer(&pool, "192.0.2.2");
    let (own, other) = ([192, 0, 2, 1], [192, 0, 2, 2]);
    uplink.send(&arp([0xff; 6], 1, (BOX, other), ([0; 6], [192, 0, 2, 9]))).unwrap();
    peer.poll();
    assert!(uplink.receive().is_none());
    assert_eq!(peer.neighbour("192.0.2.2".parse().unwrap()), None);
    uplink.send(&arp([0xff; 6], 1, (BOX, other), ([0; 6], own))).unwrap();
    peer.poll();
    assert_eq!(receive(&uplink), arp(BOX, 2, (PEER, own), (BOX, other)));
    assert_eq!(peer.neighbour("192.0.2.2".parse().unwrap()), Some(Mac(BOX)));
    assert_eq!(peer.fault_count(), 0);
}

#[test]
fn what_a_host_sends_waits_for_the_neighbour_and_is_tunnelled() {
    let pool = Pool::new(128);
    let (mut peer, uplink, host) = peer(&pool, "192.0.2.2");
    let (own, other) = ([192, 0, 2, 1], [192, 0, 2, 2]);
    host.send(&inner(0x2a)).unwrap();
    peer.poll();
    assert_eq!(receive(&uplink), arp([0xff; 6], 1, (PEER, own), ([0; 6], other)));
    assert!(uplink.receive().is_none());
    uplink.send(&arp(PEER, 2, (BOX, other), (PEER, own))).unwrap();
    peer.poll();
    let frame = receive(&uplink);
    assert_eq!((&frame[..14], frame[15]), (&ethernet(BOX, PEER, [8, 0], &[])[..], 0x2a));
    assert_eq!(checksum(&frame[14..34]), [0, 0]);
    assert_eq!((&frame[26..34], frame[23]), (&[own, other].concat()[..], 17));
    let port = u16::from_be_bytes([frame[34], frame[35]]);
    assert!(port >= 49_152);
    assert_eq!((&frame[36..38], &frame[40..42]), (&4789_u16.to_be_bytes()[..], &[0, 0][..]));
    assert_eq!(frame[42..50], [8, 0, 0, 0, 1, 2, 3, 0]);
    assert_eq!(frame[50..], inner(0x2a));

    // The same flow again: the same entropy. A congested fabric marks it.
    peer.set_congested(true);
    host.send(&inner(0x2a)).unwrap();
    host.send(&inner(0x28)).unwrap();
    peer.poll();
    let (marked, not_capable) = (receive(&uplink), receive(&uplink));
    assert_eq!((marked[15], u16::from_be_bytes([marked[34], marked[35]])), (0x2b, port));
    assert_eq!(not_capable[15], 0x28);
}

#[test]
fn what_waits_for_a_neighbour_is_bounded() {
    let pool = Pool::new(256);
    let (mut peer, uplink, host) = peer(&pool, "192.0.2.2");
    for _ in 0..65 {
        host.send(&inner(0)).unwrap();
    }
    peer.poll();
    assert_eq!((uplink.waiting(), peer.fault_count()), (64, 1));
}

/// A host behind its own peer; the uplinks of two such meet on one cable.
fn site(pool: &Pool, number: u8, v6: bool, uplink: Wire) -> (VxlanPeer, Host) {
    let tunnel = |number: u8| -> IpAddr {
        if v6 { format!("fd01::{number}") } else { format!("192.0.2.{number}") }.parse().unwrap()
    };
    let (host, segment) = memory::cable(pool, 128);
    let mut peer = VxlanPeer::new(Mac([2, 0, 0, 0, 1, number]), vec![tunnel(number)], uplink);
    peer.attach(VNI, tunnel(3 - number), segment);
    let config = HostConfig {
        mac: Mac([2, 0, 0, 0, 0, number]),
        addresses: vec![format!("10.0.0.{number}/24").parse().unwrap()],
        gateways: vec![],
        mtu: 1450,
        seed: u64::from(number),
    };
    (peer, Host::new(config, host))
}

#[test]
fn tcp_passes_through_two_peers_in_both_outer_families() {
    for v6 in [false, true] {
        let pool = Pool::new(512);
        let (left, right) = memory::cable(&pool, 256);
        let (mut left_peer, mut left) = site(&pool, 1, v6, left);
        let (mut right_peer, mut right) = site(&pool, 2, v6, right);
        let to = right.tcp_receive(5001);
        let server = SocketAddr::new("10.0.0.2".parse().unwrap(), 5001);
        let from = left.tcp_send(server, 40_000, 200_000);
        let mut now = Nanos::from_secs(1);
        while !(left.transfer(from).complete && right.transfer(to).complete) {
            let due = left.poll(now).min(right.poll(now));
            if left_peer.poll() + right_peer.poll() == 0 {
                now = due.max(now + Nanos::from_micros(1));
            }
            assert!(now < Nanos::from_secs(60), "it took a minute of virtual time");
        }
        assert_eq!(left.transfer(from).digest, right.transfer(to).digest);
        assert_eq!((left_peer.faults(), right_peer.faults()), (&[] as &[String], &[] as &[String]));
        let sources: BTreeSet<_> = right_peer
            .outers()
            .iter()
            .filter(|outer| outer.inner[23] == 6)
            .map(|outer| outer.source_port)
            .collect();
        assert_eq!(sources.len(), 1, "one flow, one path");
        drop((left, right, left_peer, right_peer));
        assert_eq!(pool.level().free, 512);
    }
}

/// What a peer with the addresses of each frame says of the frames of a capture: outer packets, and faults.
fn peers_on(capture: &Capture, vni: u32) -> (Vec<Outer>, Vec<String>) {
    let (mut outers, mut faults) = (Vec::new(), Vec::new());
    for frame in capture.frames() {
        let pool = Pool::new(8);
        let (uplink, of_peer) = memory::cable(&pool, 4);
        let (host, segment) = memory::cable(&pool, 4);
        let mac = Mac(frame[..6].try_into().unwrap());
        let address = <[u8; 4]>::try_from(&frame[30..34]).unwrap().into();
        let mut peer = VxlanPeer::new(mac, vec![address], of_peer);
        peer.attach(vni, address, segment);
        uplink.send(frame).unwrap();
        peer.poll();
        assert_eq!(host.waiting(), peer.outers().len());
        outers.extend(peer.outers().iter().cloned());
        faults.extend(peer.faults().iter().cloned());
    }
    (outers, faults)
}

/// The corpus beside the checkout, or where FLOODWAY_CORPUS says.
fn corpus() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("FLOODWAY_CORPUS") {
        return Some(path.into());
    }
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().map(|folder| folder.join("shared/corpus")).find(|path| path.is_dir())
}

/// The expected values are tshark's.
#[test]
fn captures_of_other_endpoints_are_read_as_tshark_reads_them() {
    let Some(corpus) = corpus() else { return println!("skipped: no shared/corpus beside the checkout") };
    let load = |name: &str| Capture::load(&corpus.join("pcap").join(name)).unwrap();
    let (outers, faults) = peers_on(&load("tcpdump_vxlan.pcap"), 100);
    assert_eq!(faults, [] as [String; 0]);
    assert!(outers.iter().all(|outer| outer.vni == 100));
    let ports: BTreeSet<_> = outers.iter().map(|outer| outer.source_port).collect();
    assert_eq!((outers.len(), ports), (10, BTreeSet::from([32_894, 42_710, 45_149, 52_102])));
    // Group policy bits, and reserved bits that are not zero.
    for name in ["pcpp_Vxlan1.pcap", "suri_vxlan_reserved_nonzero.pcap"] {
        let (outers, faults) = peers_on(&load(name), 11);
        assert!(
            outers.is_empty() && faults.iter().all(|fault| fault.contains("flags or reserved")),
            "{faults:?}"
        );
    }
}
