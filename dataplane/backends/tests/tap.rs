//! A TAP port against the kernel's own network stack, in a network namespace of the test's thread.
#![expect(clippy::unwrap_used, reason = "the functions beside the tests are tests too")]

use std::{
    net::UdpSocket,
    os::fd::AsFd,
    process::{Command, Stdio},
    sync::Arc,
};

use backends::{
    PortFacts,
    counts::PortCounters,
    host,
    memory::Pool,
    tap::{self, TapBackend, TapError},
};
use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sched::{CloneFlags, unshare},
};
use packet::{Buf, Burst, PortIo, RxQueue, TxQueue};

/// Runs `test` on a thread with a network namespace of its own, which ends with it.
fn in_namespace(test: fn()) {
    let thread = std::thread::spawn(move || {
        if let Err(errno) = unshare(CloneFlags::CLONE_NEWNET) {
            return println!("skipped: no network namespace of its own ({errno}); run it as root");
        }
        if !std::path::Path::new("/dev/net/tun").exists() {
            return println!("skipped: no /dev/net/tun");
        }
        if !ip(&["link", "show", "lo"]) {
            return println!("skipped: no `ip` command");
        }
        test();
    });
    thread.join().unwrap();
}

/// True when `ip` succeeds; it runs in the thread's namespace.
fn ip(arguments: &[&str]) -> bool {
    let mut command = Command::new("ip");
    command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

struct Port {
    pool: Pool,
    io: PortIo<TapBackend>,
    facts: PortFacts,
    counters: Arc<PortCounters>,
}

fn open(mtu: u16) -> Port {
    let (pool, counters) = (Pool::new(64), Arc::<PortCounters>::default());
    let (io, facts) = tap::open("fwtap0", mtu, &pool, Arc::clone(&counters)).unwrap();
    Port { pool, io, facts, counters }
}

impl Port {
    /// The first frame that `wanted` accepts, among the next ones; the kernel also sends of its own accord.
    fn expect(&mut self, wanted: impl Fn(&[u8]) -> bool) -> Vec<u8> {
        for _ in 0..64 {
            let mut fds = [PollFd::new(self.io.rx.as_fd(), PollFlags::POLLIN)];
            assert_eq!(poll(&mut fds, PollTimeout::from(5_000_u16)), Ok(1), "the kernel sent no frame");
            let mut burst = Burst::new();
            self.io.rx.receive(&mut burst);
            if let Some(buf) = burst.iter().find(|buf| wanted(buf.bytes())) {
                return buf.bytes().to_vec();
            }
        }
        panic!("64 polls without the frame");
    }

    fn burst(&self, frames: &[&[u8]]) -> Burst<backends::memory::MemoryBuf> {
        let fill = |frame: &&[u8]| {
            let mut buf = self.pool.take().unwrap();
            assert!(buf.fill(frame));
            buf
        };
        frames.iter().map(fill).collect()
    }

    fn finish(self) {
        let Self { pool, io, .. } = self;
        drop(io);
        assert_eq!(pool.level().free, pool.level().capacity, "buffers leaked");
        assert!(!ip(&["link", "show", "fwtap0"]), "the interface outlived its port");
    }
}

const PEER: [u8; 6] = [2, 0, 0, 0, 0, 9];

/// An ARP packet about 10.9.0.x (RFC 826): operation, then sender and target.
fn arp(to: [u8; 6], operation: u8, sender: ([u8; 6], u8), target: ([u8; 6], u8)) -> Vec<u8> {
    let mut frame = Vec::new();
    frame.extend(to);
    frame.extend(sender.0);
    frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, operation]);
    for (mac, host) in [sender, target] {
        frame.extend(mac);
        frame.extend([10, 9, 0, host]);
    }
    frame
}

#[test]
fn the_kernel_and_the_port_see_each_others_frames() {
    in_namespace(|| {
        let mut port = open(1500);
        let kernel = port.facts.mac.0;
        assert!(ip(&["addr", "add", "10.9.0.1/24", "dev", "fwtap0"]));

        let question = arp([0xff; 6], 1, (PEER, 9), ([0; 6], 1));
        let mut burst = port.burst(&[&question]);
        assert_eq!(port.io.tx.transmit(&mut burst), 1);
        let answer = arp(PEER, 2, (kernel, 1), (PEER, 9));
        port.expect(|frame| frame == answer);

        let socket = UdpSocket::bind("10.9.0.1:0").unwrap();
        socket.send_to(b"to the port", "10.9.0.9:7").unwrap();
        let datagram = port.expect(|frame| frame.ends_with(b"to the port"));
        assert_eq!(datagram[..14], [&PEER[..], &kernel, &[8, 0]].concat());
        assert_eq!(datagram.len(), 14 + 20 + 8 + 11);

        let counts = port.counters.read();
        assert_eq!((counts.tx_packets, counts.tx_bytes), (1, 42));
        assert!(counts.rx_packets >= 2 && counts.rx_bytes >= 42 + 53);
        assert_eq!((counts.tx_errors, counts.rx_errors, counts.tx_busy), (0, 0, 0));
        port.finish();
    });
}

#[test]
fn what_cannot_go_is_dropped_or_stays_and_is_counted() {
    in_namespace(|| {
        let mut port = open(1000);
        let fits = [[0xff; 12].as_slice(), &[0x88, 0xb5], &[0; 1004]].concat();
        let longer = [&fits[..], &[0]].concat();
        let mut burst = port.burst(&[&longer, b"short", b"", &fits]);
        assert_eq!(port.io.tx.transmit(&mut burst), 4);
        let counts = port.counters.read();
        assert_eq!((counts.tx_too_long, counts.tx_errors, counts.tx_packets), (1, 2, 1));

        assert!(ip(&["link", "set", "fwtap0", "down"]));
        let mut burst = port.burst(&[&longer, &fits, &fits]);
        assert_eq!(port.io.tx.transmit(&mut burst), 1);
        assert_eq!(burst.len(), 2);
        let counts = port.counters.read();
        assert_eq!((counts.tx_down, counts.tx_busy, counts.tx_too_long), (2, 0, 2));

        assert!(ip(&["link", "set", "fwtap0", "up"]));
        assert_eq!(port.io.tx.transmit(&mut burst), 2);
        assert_eq!(port.counters.read().tx_packets, 3);
        port.finish();
    });
}

#[test]
fn frames_longer_than_the_mtu_are_not_received() {
    in_namespace(|| {
        let mut port = open(1000);
        assert!(ip(&["addr", "add", "10.9.0.1/24", "dev", "fwtap0"]));
        assert!(ip(&["neigh", "add", "10.9.0.9", "lladdr", "02:00:00:00:00:09", "dev", "fwtap0"]));
        // Someone raises the MTU behind the port's back.
        assert!(ip(&["link", "set", "fwtap0", "mtu", "1500"]));
        let socket = UdpSocket::bind("10.9.0.1:0").unwrap();
        socket.send_to(&[0xee; 1018 - 42 + 1], "10.9.0.9:7").unwrap();
        socket.send_to(&[0xee; 1018 - 42], "10.9.0.9:7").unwrap();
        let frame = port.expect(|frame| frame.ends_with(&[0xee; 900]));
        assert_eq!((frame.len(), port.counters.read().rx_too_long), (1018, 1));
        port.finish();
    });
}

#[test]
fn an_empty_pool_leaves_frames_with_the_kernel() {
    in_namespace(|| {
        let mut port = open(1500);
        assert!(ip(&["addr", "add", "10.9.0.1/24", "dev", "fwtap0"]));
        let held: Vec<_> = std::iter::from_fn(|| port.pool.take()).collect();
        let socket = UdpSocket::bind("10.9.0.1:0").unwrap();
        socket.send_to(b"wait", "10.9.0.9:7").unwrap();
        assert_eq!(port.io.rx.receive(&mut Burst::new()), 0);
        assert_eq!(port.counters.read().rx_no_buffer, 1);
        drop(held);
        port.expect(|frame| frame[12..14] == [8, 6]);
        port.finish();
    });
}

#[test]
fn a_device_string_opens_it_and_poll_wakes_for_it() {
    in_namespace(|| {
        let pool = Pool::new(8);
        let mut opened = host::open("tap:fwtap0", 1400, &pool).unwrap();
        assert_eq!((&opened.facts.name[..], opened.facts.mtu, opened.wire.is_none()), ("fwtap0", 1400, true));
        assert!(!opened.facts.mac.is_zero() && !opened.facts.mac.is_multicast());
        assert!(ip(&["addr", "add", "10.9.0.1/24", "dev", "fwtap0"]));
        UdpSocket::bind("10.9.0.1:0").unwrap().send_to(b"who?", "10.9.0.9:7").unwrap();
        let mut fds = [PollFd::new(opened.io.rx.readiness().unwrap(), PollFlags::POLLIN)];
        assert_eq!(poll(&mut fds, PollTimeout::from(5_000_u16)), Ok(1));
        assert!(opened.io.rx.receive(&mut Burst::new()) > 0);
        assert!(opened.counters.read().rx_packets > 0);
    });
}

#[test]
fn errors_name_the_interface_and_the_fix() {
    in_namespace(|| {
        let pool = Pool::new(1);
        let open = |name: &str, mtu| {
            tap::open(name, mtu, &pool, Arc::default())
                .map(|(_, facts)| facts.name)
                .map_err(|e| e.to_string())
        };
        for name in ["", "sixteen-letters-", "a b", "a/b", "tap%d", ".", "..", "ü"] {
            assert!(open(name, 1500).unwrap_err().contains("cannot name an interface"), "{name}");
        }
        assert!(open("fwtap0", 2030).unwrap_err().contains("more than 2048 bytes, the pool's have 2048"));
        assert_eq!(open("fifteen-letters", 2029), Ok("fifteen-letters".into()));
        // lo exists and is no TAP.
        assert!(open("lo", 1500).unwrap_err().contains("interface lo is in use"));
        let first = tap::open("fwtap0", 1500, &pool, Arc::default()).unwrap();
        assert!(open("fwtap0", 1500).unwrap_err().contains("interface fwtap0 is in use"));
        drop(first);
        // Too small for Ethernet: the kernel's own words. Under a name of its own: a program that another test has just
        // started holds the first one's descriptor for a moment.
        let refused = tap::open("fwtap1", 67, &pool, Arc::default());
        assert!(matches!(refused, Err(TapError::Io { step: "set the MTU of", .. })));
        assert!(!ip(&["link", "show", "fwtap1"]), "a failed open left its interface behind");
    });
}
