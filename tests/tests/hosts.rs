//! Two tenants with the same addresses, each with a TCP/IP stack here and one behind a remote endpoint, in virtual time.
#![expect(clippy::unwrap_used, reason = "the functions beside the tests are tests too")]

use std::net::{IpAddr, SocketAddr};

use backends::memory;
use packet::Nanos;
use program::DropReason;
use scenarios::frames::Ends;
use scenarios::host::{Host, HostConfig, TransferId};
use scenarios::policies::{DEMO, FABRIC, RULES, TENANTS};
use scenarios::rig::Rig;
use scenarios::scene::{BLUE, PEER_VTEP_MAC, RED, RED6};
use scenarios::vxlan_peer::VxlanPeer;
use wire::Mac;

const PEER: [u8; 4] = [10, 1, 0, 20];

/// The box, what it is wired to, and the clock, which is the rig's.
struct Network {
    rig: Rig,
    peer: VxlanPeer,
    /// Red and blue here, red's and blue's remote.
    hosts: [Host; 4],
}

const RED_HERE: usize = 0;
const BLUE_HERE: usize = 1;
const RED_THERE: usize = 2;
const BLUE_THERE: usize = 3;

fn config(mac: Mac, last: u8, six: bool, seed: u64) -> HostConfig {
    let mut addresses = vec![format!("10.1.0.{last}/24").parse().unwrap()];
    if six {
        addresses.push(format!("fd00::{last}/64").parse().unwrap());
    }
    HostConfig { mac, addresses, gateways: vec![IpAddr::from([10, 1, 0, 1])], mtu: 1500, seed }
}

impl Network {
    fn new() -> Self {
        Self::with(DEMO)
    }

    fn with(texts: &[&str]) -> Self {
        let mut rig = Rig::new(texts);
        let fabric = ["192.0.2.2", "192.0.2.3"].map(|address| address.parse().unwrap());
        let mut peer = VxlanPeer::new(PEER_VTEP_MAC, fabric.to_vec(), rig.take_wire("uplink0"));
        let here = [config(RED.src_mac, 10, true, 1), config(BLUE.src_mac, 10, false, 2)];
        let [red, blue] = here;
        let red_here = Host::new(red, rig.take_wire("red0"));
        let blue_here = Host::new(blue, rig.take_wire("blue0"));
        let mut remote = |vni, config| {
            let (inside, outside) = memory::cable(&rig.pool, 512);
            peer.attach(vni, IpAddr::from([192, 0, 2, 1]), inside);
            Host::new(config, outside)
        };
        let red_there = remote(100, config(RED.dst_mac, 20, true, 3));
        let blue_there = remote(200, config(BLUE.dst_mac, 20, false, 4));
        Self { rig, peer, hosts: [red_here, blue_here, red_there, blue_there] }
    }

    /// Runs until `done`, at most for `span` of virtual time; true when it was done.
    fn run(&mut self, span: Nanos, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        let end = self.rig.now + span;
        while self.rig.now < end {
            let now = self.rig.now;
            let due = self.hosts.iter_mut().map(|host| host.poll(now)).min().unwrap_or(Nanos::NEVER);
            let moved = self.peer.poll() + self.rig.poll();
            if done(self) {
                return true;
            }
            let waiting: usize = self.hosts.iter().map(|host| host.wire().waiting()).sum();
            if moved + waiting == 0 {
                // The worker has something to do every millisecond.
                self.rig.now = due.min(now + Nanos::from_millis(1)).max(self.rig.now);
            }
        }
        false
    }

    /// Lets everything that is under way arrive.
    fn settle(&mut self) {
        self.run(Nanos::from_millis(20), |_| false);
    }

    /// Pings three times, a second apart: a stack that has yet to ask for its peer's MAC drops its first answer.
    fn pings(&mut self, host: usize, target: IpAddr, identifier: u16) -> bool {
        (1..=3).any(|sequence| {
            assert!(self.hosts[host].ping(target, identifier, sequence, b"floodway"));
            self.run(Nanos::from_secs(1), |network| network.hosts[host].pong(identifier).is_some())
        })
    }

    fn send(&mut self, host: usize, port: u16, bytes: u64) -> TransferId {
        self.hosts[host].tcp_send(SocketAddr::from((PEER, port)), 40_000, bytes)
    }

    /// Nothing was wrong on the wire, nothing was lost, nothing went astray.
    fn finish(mut self) {
        self.settle();
        assert_eq!(self.peer.faults(), &[] as &[String]);
        for (here, there, own) in [(RED_HERE, RED_THERE, RED), (BLUE_HERE, BLUE_THERE, BLUE)] {
            for frame in self.hosts[here].frames().iter().chain(self.hosts[there].frames()) {
                let gateway = frame[6..8] == [2, 0xfd];
                let known = gateway || frame[6..12] == own.src_mac.0 || frame[6..12] == own.dst_mac.0;
                assert!(known, "a tenant's hosts hear their own tenant only: {frame:x?}");
            }
        }
        self.rig.assert_balanced();
    }
}

/// Reasons that no packet of a well-behaved host is dropped for.
fn losses(rig: &Rig) -> Vec<(&'static str, u64)> {
    let quiet = ["neighbour-heard", "group", "unresolved-next-hop"];
    rig.drops().into_iter().filter(|(name, _)| !quiet.contains(name)).collect()
}

#[test]
fn both_tenants_ping_their_own_peer_and_gateway() {
    let mut network = Network::new();
    network.settle();
    for (host, identifier) in [(RED_HERE, 7), (BLUE_HERE, 8)] {
        assert!(network.pings(host, IpAddr::from(PEER), identifier), "{:?}", network.rig.drops());
        assert!(network.pings(host, IpAddr::from([10, 1, 0, 1]), identifier + 10));
    }
    assert!(network.pings(RED_HERE, RED6.dst.into(), 30), "{:?}", network.rig.drops());
    assert!(network.pings(RED_THERE, IpAddr::from(RED.src), 31), "red may be pinged");
    assert!(!network.pings(BLUE_THERE, IpAddr::from(BLUE.src), 32), "blue may not");
    assert!(network.rig.dropped(DropReason::PolicyDefault) > 0);
    network.finish();
}

#[test]
fn both_tenants_move_a_megabyte_at_once() {
    let mut network = Network::new();
    network.settle();
    let takers = [RED_THERE, BLUE_THERE].map(|host| network.hosts[host].tcp_receive(5201));
    let givers = [RED_HERE, BLUE_HERE].map(|host| network.send(host, 5201, 1 << 20));
    let whole = network.run(Nanos::from_secs(30), |network| {
        let red = network.hosts[RED_THERE].transfer(takers[0]);
        red.complete && network.hosts[BLUE_THERE].transfer(takers[1]).complete
    });
    assert!(whole, "{:?}", network.rig.drops());
    for (here, there, giver, taker) in
        [(RED_HERE, RED_THERE, givers[0], takers[0]), (BLUE_HERE, BLUE_THERE, givers[1], takers[1])]
    {
        let (sent, got) = (network.hosts[here].transfer(giver), network.hosts[there].transfer(taker));
        assert_eq!((got.bytes, got.digest), (1 << 20, sent.digest));
    }
    assert_eq!(losses(&network.rig), []);
    network.finish();
}

#[test]
fn a_transfer_loses_nothing_to_policy_swaps() {
    let mut network = Network::new();
    network.settle();
    let taker = network.hosts[RED_THERE].tcp_receive(5201);
    let giver = network.send(RED_HERE, 5201, 1 << 20);
    let mut swaps = 0;
    let whole = network.run(Nanos::from_secs(30), |network| {
        let taken = network.hosts[RED_THERE].transfer(taker);
        if taken.bytes / (1 << 14) > swaps {
            swaps += 1;
            let more = RULES.replacen("port: 9999", &format!("port: {}", 9000 + swaps), 1);
            network.rig.apply(&[FABRIC, TENANTS, &more]);
        }
        taken.complete
    });
    assert!(whole && swaps >= 50, "{swaps} swaps, {:?}", network.rig.drops());
    let (sent, got) = (network.hosts[RED_HERE].transfer(giver), network.hosts[RED_THERE].transfer(taker));
    assert_eq!((got.bytes, got.digest), (1 << 20, sent.digest));
    assert_eq!(losses(&network.rig), []);
    let outer_ports: std::collections::HashSet<u16> = network
        .peer
        .outers()
        .iter()
        .filter(|outer| outer.inner.get(23) == Some(&6))
        .map(|outer| outer.source_port)
        .collect();
    assert_eq!(outer_ports.len(), 1, "the flow kept its path");
    network.finish();
}

#[test]
fn a_transfer_stops_when_its_rule_goes() {
    let mut network = Network::new();
    network.settle();
    let taker = network.hosts[RED_THERE].tcp_receive(5201);
    network.send(RED_HERE, 5201, 1 << 20);
    let half = |network: &mut Network| network.hosts[RED_THERE].transfer(taker).bytes > 1 << 19;
    assert!(network.run(Nanos::from_secs(30), half));
    network.rig.apply(&[FABRIC, TENANTS, &RULES.replacen("        - {protocol: TCP, port: 5201}\n", "", 1)]);
    network.settle();
    let stuck = network.hosts[RED_THERE].transfer(taker).bytes;
    network.run(Nanos::from_secs(2), |_| false);
    assert_eq!(network.hosts[RED_THERE].transfer(taker).bytes, stuck);
    assert!(network.rig.dropped(DropReason::PolicyDefault) > 0);
    network.rig.apply(DEMO);
    let whole =
        network.run(Nanos::from_secs(60), |network| network.hosts[RED_THERE].transfer(taker).complete);
    assert!(whole, "and goes on when it is back: {:?}", network.rig.drops());
    network.finish();
}

#[test]
fn a_denied_port_is_refused_and_a_spoof_is_counted() {
    let mut network = Network::new();
    network.settle();
    let taker = network.hosts[RED_THERE].tcp_receive(9999);
    let giver = network.send(RED_HERE, 9999, 1000);
    network.run(Nanos::from_secs(3), |_| false);
    assert!(!network.hosts[RED_THERE].transfer(taker).connected);
    assert!(!network.hosts[RED_HERE].transfer(giver).connected);
    assert!(network.rig.dropped(DropReason::PolicyDeny) >= 2, "the first try and its repetition");
    let frames = network.hosts[RED_THERE].frames().len();
    let spoof = Ends { src: [10, 1, 0, 66], ..RED }.tcp((40_000, 5201), "S", b"");
    network.hosts[RED_HERE].raw_send(&spoof).unwrap();
    network.settle();
    assert_eq!(network.rig.dropped(DropReason::SpoofedAddress), 1);
    assert_eq!(network.hosts[RED_THERE].frames().len(), frames);
    network.finish();
}

#[test]
fn a_host_learns_the_tunnels_mtu() {
    let fabric = FABRIC.replace("mtu: 1600", "mtu: 1500");
    let mut network = Network::with(&[&fabric, TENANTS, RULES]);
    network.settle();
    // 1500 on the uplink leave 1450 inside: a host that sends 1500 is told so.
    assert!(network.hosts[RED_HERE].ping(IpAddr::from(PEER), 9, 1, &[7; 1472]));
    network.settle();
    let told = network.hosts[RED_HERE].frames().iter().any(|frame| {
        frame.len() > 42
            && frame[23] == 1
            && frame[34..36] == [3, 4]
            && frame[40..42] == 1450_u16.to_be_bytes()
    });
    assert!(told, "{:?}", network.rig.drops());
    assert_eq!(network.rig.dropped(DropReason::TooBig), 1);
    network.finish();
}
