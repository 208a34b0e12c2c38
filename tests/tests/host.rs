//! Two hosts on one cable, in virtual time.
#![expect(clippy::unwrap_used, reason = "the functions beside the tests are tests too")]

use std::net::{IpAddr, SocketAddr};

use backends::memory::{self, Pool};
use packet::Nanos;
use scenarios::host::{Host, HostConfig};
use wire::Mac;

fn config(number: u8) -> HostConfig {
    HostConfig {
        mac: Mac([2, 0, 0, 0, 0, number]),
        addresses: vec![
            format!("10.0.0.{number}/24").parse().unwrap(),
            format!("fd00::{number}/64").parse().unwrap(),
        ],
        gateways: vec![],
        mtu: 1500,
        seed: u64::from(number),
    }
}

fn address(number: u8, v6: bool) -> IpAddr {
    let text = if v6 { format!("fd00::{number}") } else { format!("10.0.0.{number}") };
    text.parse().unwrap()
}

struct Pair {
    pool: Pool,
    left: Host,
    right: Host,
    now: Nanos,
}

impl Pair {
    fn new() -> Self {
        Self::of(config(1), config(2))
    }

    fn of(first: HostConfig, second: HostConfig) -> Self {
        let pool = Pool::new(256);
        let (left, right) = memory::cable(&pool, 64);
        Self { left: Host::new(first, left), right: Host::new(second, right), pool, now: Nanos::from_secs(1) }
    }

    /// Runs until `done`, at most for `span` of virtual time; true when it was done.
    fn run(&mut self, span: Nanos, mut done: impl FnMut(&mut Host, &mut Host) -> bool) -> bool {
        let end = self.now + span;
        loop {
            let due = self.left.poll(self.now).min(self.right.poll(self.now));
            if done(&mut self.left, &mut self.right) {
                return true;
            }
            if self.left.wire().waiting() + self.right.wire().waiting() == 0 {
                self.now = due.max(self.now + Nanos::from_micros(1));
            }
            if self.now > end {
                return false;
            }
        }
    }

    fn finish(self) {
        let Self { pool, left, right, .. } = self;
        drop((left, right));
        assert_eq!(pool.level().free, 256, "buffers leaked");
    }
}

#[test]
fn pings_are_answered_in_both_families() {
    for v6 in [false, true] {
        let mut pair = Pair::new();
        assert!(pair.left.ping(address(2, v6), 7, 1, b"payload"));
        let mut answer = None;
        assert!(pair.run(Nanos::from_secs(1), |left, _| {
            answer = left.pong(7);
            answer.is_some()
        }));
        let pong = answer.unwrap();
        assert_eq!((pong.from, pong.sequence, &pong.payload[..]), (address(2, v6), 1, &b"payload"[..]));
        assert_eq!(pair.left.pong(8), None);
        // Neighbour resolution and the ping itself.
        assert!(pair.right.frames().len() >= 2);
        pair.finish();
    }
}

#[test]
fn a_ping_to_nobody_is_not_answered() {
    let mut pair = Pair::new();
    assert!(pair.left.ping(address(3, false), 7, 1, b""));
    assert!(!pair.run(Nanos::from_secs(3), |left, _| left.pong(7).is_some()));
    pair.finish();
}

#[test]
fn what_is_off_link_goes_to_the_gateway() {
    let gateways = vec![address(2, false), address(2, true)];
    let mut pair = Pair::of(HostConfig { gateways, ..config(1) }, config(2));
    let far: IpAddr = "192.0.2.7".parse().unwrap();
    assert!(pair.left.ping(far, 7, 1, b""));
    assert!(pair.run(Nanos::from_secs(5), |_, right| right.frames().len() == 2));
    let frame = &pair.right.frames()[1];
    assert_eq!((&frame[..6], &frame[30..34]), (&[2, 0, 0, 0, 0, 2][..], &[192, 0, 2, 7][..]));
    pair.finish();
}

#[test]
fn a_megabyte_passes_unchanged_over_tcp() {
    const BYTES: u64 = 1 << 20;
    for v6 in [false, true] {
        let mut pair = Pair::new();
        let to = pair.right.tcp_receive(5001);
        let from = pair.left.tcp_send(SocketAddr::new(address(2, v6), 5001), 40_000, BYTES);
        assert!(!pair.left.transfer(from).connected);
        assert!(pair.run(Nanos::from_secs(60), |left, right| {
            left.transfer(from).complete && right.transfer(to).complete
        }));
        let (sent, received) = (pair.left.transfer(from), pair.right.transfer(to));
        assert_eq!((sent.bytes, received.bytes), (BYTES, BYTES));
        assert_eq!(sent.digest, received.digest);
        assert!(!sent.failed && !received.failed);
        pair.finish();
    }
}

#[test]
fn the_digest_depends_on_the_content() {
    let digest = |port| {
        let mut pair = Pair::new();
        let to = pair.right.tcp_receive(5001);
        pair.left.tcp_send(SocketAddr::new(address(2, false), 5001), port, 1000);
        assert!(pair.run(Nanos::from_secs(60), |_, right| right.transfer(to).complete));
        pair.right.transfer(to).digest
    };
    assert_eq!(digest(40_000), digest(40_000));
    assert_ne!(digest(40_000), digest(40_001));
}

#[test]
fn a_refused_connection_fails() {
    let mut pair = Pair::new();
    let id = pair.left.tcp_send(SocketAddr::new(address(2, false), 5001), 40_000, 10);
    assert!(pair.run(Nanos::from_secs(10), |left, _| left.transfer(id).failed));
    assert!(!pair.left.transfer(id).connected && !pair.left.transfer(id).complete);
}

#[test]
fn a_reset_is_a_failure_at_both_ends() {
    let mut pair = Pair::new();
    let to = pair.right.tcp_receive(5001);
    let from = pair.left.tcp_send(SocketAddr::new(address(2, false), 5001), 40_000, 1 << 30);
    assert!(pair.run(Nanos::from_secs(10), |_, right| right.transfer(to).bytes > 100_000));
    // A host that has lost its state answers with resets.
    let unplugged = Host::new(config(2), memory::cable(&pair.pool, 1).0);
    let old = std::mem::replace(&mut pair.right, unplugged);
    pair.right = Host::new(config(2), old.into_wire());
    assert!(pair.run(Nanos::from_secs(30), |left, _| left.transfer(from).failed));
    assert!(!pair.left.transfer(from).complete);
}

#[test]
fn datagrams_pass_both_ways() {
    let mut pair = Pair::new();
    let (client, server) = (pair.left.udp_bind(6000), pair.right.udp_bind(7));
    assert!(pair.left.udp_send(client, SocketAddr::new(address(2, false), 7), b"question"));
    let mut got = None;
    assert!(pair.run(Nanos::from_secs(1), |_, right| {
        got = right.udp_receive(server);
        got.is_some()
    }));
    let (from, payload) = got.unwrap();
    assert_eq!((from, &payload[..]), (SocketAddr::new(address(1, false), 6000), &b"question"[..]));
    assert!(pair.right.udp_send(server, from, b"answer"));
    assert!(pair.run(Nanos::from_secs(1), |left, _| {
        left.udp_receive(client).is_some_and(|(_, payload)| payload == b"answer")
    }));
    pair.finish();
}

#[test]
fn raw_frames_pass_by_the_stack_and_are_kept() {
    let mut pair = Pair::new();
    pair.left.raw_send(b"").unwrap();
    pair.left.raw_send(b"not a frame").unwrap();
    pair.right.poll(pair.now);
    assert_eq!(pair.right.frames().iter().map(Vec::as_slice).collect::<Vec<_>>(), [&b""[..], b"not a frame"]);
    pair.right.clear_frames();
    assert!(pair.right.frames().is_empty());
    pair.finish();
}
