//! DPDK ports through the packet traits, on virtual devices. Every test ends with its pool full.

use std::{
    fs,
    path::Path,
    process::Command,
    sync::OnceLock,
    thread,
    time::{Duration, Instant},
};

use ::dpdk::{LcoreGuard, PoolConfig};
use proptest::prelude::*;

use super::*;

const MBUFS: u32 = 2047;

fn eal() -> &'static Eal {
    static EAL: OnceLock<Eal> = OnceLock::new();
    EAL.get_or_init(|| {
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let free = meminfo
            .lines()
            .find_map(|line| line.strip_prefix("HugePages_Free:")?.trim().parse().ok())
            .unwrap_or(0);
        let builder = Eal::builder().no_pci();
        let builder = if free > 64 { builder.in_memory() } else { builder.no_huge(256).no_shconf() };
        thread::scope(|scope| scope.spawn(|| builder.init().expect("EAL")).join().expect("no panic"))
    })
}

fn pool(name: &str) -> Mempool {
    Mempool::new(eal(), &PoolConfig { cache: 64, ..PoolConfig::new(name, MBUFS) }).expect("a pool")
}

fn open(devargs: &str, pool: &Mempool) -> DpdkPort {
    DpdkPort::open(eal(), devargs, DpdkPortConfig { queues: 1, pool: pool.clone(), mtu: 1500 })
        .expect("a port")
}

fn frame<A: Allocator>(allocator: &mut A, bytes: &[u8]) -> A::Buf {
    let mut buf = allocator.allocate().expect("a buffer");
    assert!(buf.append(bytes.len()));
    buf.bytes_mut().copy_from_slice(bytes);
    buf
}

/// Only what the traits offer: `count` bursts of numbered frames out, and each back in order.
fn loop_through<B: Backend>(io: &mut PortIo<B>, allocator: &mut B::Allocator, count: u16) {
    let mut out = Burst::<B::Buf>::new();
    let mut back = Burst::<B::Buf>::new();
    for number in 0..count {
        while !out.is_full() {
            let bytes = [number.to_be_bytes()[0], number.to_be_bytes()[1], out.len() as u8];
            out.push(frame(allocator, &bytes));
        }
        assert_eq!(io.tx.transmit(&mut out), packet::BURST);
        assert_eq!(io.rx.receive(&mut back), packet::BURST);
        assert_eq!(io.rx.receive(&mut back), 0, "full");
        for (place, buf) in back.drain(..).enumerate() {
            assert_eq!(buf.bytes(), [number.to_be_bytes()[0], number.to_be_bytes()[1], place as u8]);
        }
    }
}

#[test]
fn a_ring_gives_back_what_it_was_given() {
    let _lcore = LcoreGuard::register(eal()).expect("an lcore");
    let pool = pool("loop");
    let mut port = open("net_ring_loop", &pool);
    let mut io = port.take(0).expect("queues");
    assert!(port.take(0).is_none() && port.take(1).is_none());
    loop_through(&mut io, &mut DpdkAllocator::new(pool.clone()), 500);
    assert_eq!(pool.level().in_use, 0);
    let stats = port.watch().stats().expect("stats");
    assert_eq!((stats.rx_packets, stats.tx_packets), (16_000, 16_000));
    assert_eq!(
        (port.facts().name.as_str(), port.facts().driver.as_str(), port.facts().mtu),
        ("net_ring_loop", "net_ring", 1500)
    );
}

#[test]
fn a_port_has_a_queue_for_each_worker_where_it_can() {
    let _lcore = LcoreGuard::register(eal()).expect("an lcore");
    let pool = pool("queues");
    let open = |devargs: &str, queues| {
        DpdkPort::open(eal(), devargs, DpdkPortConfig { queues, pool: pool.clone(), mtu: 1500 })
            .expect("a port")
    };
    let mut port = open("net_null_queues,no-rx=1", 3);
    assert_eq!(port.queues(), 3);
    assert!((0..3).all(|queue| port.take(queue).is_some()) && port.take(3).is_none());
    // As software has it: whatever the table's length, a packet comes to the queue of its owner.
    let table = port.rss_table().expect("a table");
    let owners = rss::Table::new(3);
    assert!(table.len() >= rss::TABLE_LEN && table.len().is_multiple_of(rss::TABLE_LEN), "{}", table.len());
    assert!((0..table.len()).all(|entry| table[entry] == owners.queue(entry as u32)), "{table:?}");
    // A capture file is one queue, however many workers there are.
    let file = std::env::temp_dir().join(format!("floodway-queues-{}.pcap", std::process::id()));
    let port = open(&format!("net_pcap_queues,tx_pcap={}", file.display()), 3);
    assert_eq!(port.queues(), 1);
    drop(port);
    fs::remove_file(file).expect("the capture");
}

#[test]
fn each_queue_of_a_ring_is_its_own() {
    let _lcore = LcoreGuard::register(eal()).expect("an lcore");
    let pool = pool("two");
    let config = DpdkPortConfig { queues: 2, pool: pool.clone(), mtu: 1500 };
    let mut port = DpdkPort::open(eal(), "net_ring_two", config).expect("a port");
    let mut allocator = DpdkAllocator::new(pool.clone());
    for queue in 0..port.queues() {
        loop_through(&mut port.take(queue).expect("queues"), &mut allocator, 50);
    }
    assert_eq!(pool.level().in_use, 0);
}

#[test]
fn a_full_port_leaves_the_rest_in_order() {
    let _lcore = LcoreGuard::register(eal()).expect("an lcore");
    let pool = pool("full");
    let mut port = open("net_ring_full", &pool);
    let PortIo { mut rx, mut tx } = port.take(0).expect("queues");
    let mut allocator = DpdkAllocator::new(pool.clone());
    let mut burst = Burst::new();
    let mut next = 0u16;
    loop {
        while !burst.is_full() {
            burst.push(frame(&mut allocator, &next.to_be_bytes()));
            next += 1;
        }
        if tx.transmit(&mut burst) < packet::BURST {
            break;
        }
    }
    assert!(!burst.is_empty());
    // What was sent, and then what was not, is all of it.
    let mut expected = 0u16;
    let mut back = Burst::new();
    while rx.receive(&mut back) > 0 {
        for buf in back.drain(..).collect::<Vec<DpdkBuf>>() {
            assert_eq!(buf.bytes(), expected.to_be_bytes());
            expected += 1;
        }
    }
    for buf in &burst {
        assert_eq!(buf.bytes(), expected.to_be_bytes());
        expected += 1;
    }
    assert_eq!(expected, next);
    free_burst(&mut burst);
    assert!(burst.is_empty());
    assert_eq!(pool.level().in_use, 0);
}

#[test]
fn segmented_and_shared_packets_come_in_whole_and_counted() {
    let _lcore = LcoreGuard::register(eal()).expect("an lcore");
    let pool = pool("repairs");
    let mut port = open("net_ring_repairs", &pool);
    let PortIo { mut rx, mut tx } = port.take(0).expect("queues");
    let mut allocator = DpdkAllocator::new(pool.clone());
    let DpdkBuf(head) = frame(&mut allocator, b"in two ");
    let DpdkBuf(tail) = frame(&mut allocator, b"segments");
    let chain = head.into_mbuf().chain(tail).expect("a chain");
    let share = || chain.share().expect("few owners");
    let mut sent: arrayvec::ArrayVec<::dpdk::Mbuf, 4> =
        [share(), frame(&mut allocator, b"whole").0.into_mbuf(), share()].into_iter().collect();
    sent.push(chain);
    assert_eq!(tx.0.transmit(&mut sent), 4);
    let mut burst = Burst::new();
    assert_eq!(rx.receive(&mut burst), 4);
    let whole: Vec<&[u8]> = burst.iter().map(Buf::bytes).collect();
    assert_eq!(whole, [b"in two segments".as_slice(), b"whole", b"in two segments", b"in two segments"]);
    let repairs = port.repairs(0).expect("a queue");
    assert_eq!((repairs.linearised(), repairs.dropped_too_long(), repairs.dropped_no_mbuf()), (3, 0, 0));
    drop(burst);
    assert_eq!(pool.level().in_use, 0);
}

/// Each segment's bytes at their place, or nothing at all: `pool`'s buffers have room for 2,048 bytes.
#[test]
fn b111_five_segments_come_in_as_one_or_are_counted() {
    let _lcore = LcoreGuard::register(eal()).expect("an lcore");
    let pool = pool("segments");
    let mut port = open("net_ring_segments", &pool);
    let PortIo { mut rx, mut tx } = port.take(0).expect("queues");
    let mut allocator = DpdkAllocator::new(pool.clone());
    let mut chain = |bytes: &[u8]| {
        let segments = bytes.chunks(bytes.len() / 5).map(|part| frame(&mut allocator, part).0);
        let mut segments = segments.collect::<Vec<_>>().into_iter();
        let head = segments.next().expect("a segment").into_mbuf();
        segments.fold(head, |chain, next| chain.chain(next).expect("a chain"))
    };
    let bytes: Vec<u8> = (0..9000_u16).map(|number| (number % 251) as u8).collect();
    let (short, long) = (chain(&bytes[..1500]), chain(&bytes));
    assert_eq!((short.segments(), long.segments(), long.len()), (5, 5, 9000));
    let mut sent: arrayvec::ArrayVec<::dpdk::Mbuf, 2> = [short, long].into_iter().collect();
    assert_eq!(tx.0.transmit(&mut sent), 2);
    let mut burst = Burst::new();
    assert_eq!(rx.receive(&mut burst), 1);
    assert_eq!(burst[0].bytes(), &bytes[..1500]);
    let repairs = port.repairs(0).expect("a queue");
    assert_eq!((repairs.linearised(), repairs.dropped_too_long()), (1, 1));
    drop(burst);
    assert_eq!(pool.level().in_use, 0);
}

#[test]
fn frames_go_to_a_capture_and_come_from_it() {
    let _lcore = LcoreGuard::register(eal()).expect("an lcore");
    let pool = pool("pcap");
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("frames.pcap");
    let frames: Vec<Vec<u8>> =
        (14..=1514).step_by(50).map(|len| (0..len).map(|i| (i ^ len) as u8).collect()).collect();
    let mut allocator = DpdkAllocator::new(pool.clone());
    {
        let mut port = open(&format!("net_pcap_out,tx_pcap={}", file.display()), &pool);
        let mut burst: Burst<DpdkBuf> = frames.iter().map(|bytes| frame(&mut allocator, bytes)).collect();
        assert_eq!(port.take(0).expect("queues").tx.transmit(&mut burst), frames.len());
    }
    let mut port = open(&format!("net_pcap_in,rx_pcap={}", file.display()), &pool);
    let mut io = port.take(0).expect("queues");
    let mut burst = Burst::new();
    assert_eq!(io.rx.receive(&mut burst), frames.len());
    assert!(burst.iter().map(Buf::bytes).eq(frames.iter().map(Vec::as_slice)));
    assert_eq!(io.tx.transmit(&mut burst), frames.len(), "this driver drops what has no file to go to");
    assert_eq!(io.rx.receive(&mut burst), 0);
    assert_eq!(pool.level().in_use, 0);
}

#[test]
fn an_empty_pool_gives_nothing() {
    let pool = Mempool::new(eal(), &PoolConfig { cache: 0, ..PoolConfig::new("few", 3) }).expect("a pool");
    let mut allocator = DpdkAllocator::new(pool.clone());
    let all: Vec<DpdkBuf> = core::iter::from_fn(|| allocator.allocate()).collect();
    assert_eq!(all.len(), 3);
    drop(all);
    assert_eq!(pool.level().in_use, 0);
}

#[test]
fn a_port_that_cannot_be_says_why() {
    let pool = pool("cannot");
    let error = |devargs: &str, mtu| {
        let config = DpdkPortConfig { queues: 1, pool: pool.clone(), mtu };
        DpdkPort::open(eal(), devargs, config).err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert!(error("net_absent0", 1500).starts_with("port \"net_absent0\" does not exist"));
    assert!(error("net_null_jumbo", 9000).contains("with MTU 9000 needs mbufs of 9018 bytes"));
    assert_eq!(pool.level().in_use, 0);
}

/// What an edit does to a packet.
#[derive(Clone, Copy, Debug)]
enum Edit {
    Prepend(usize),
    Append(usize),
    TrimFront(usize),
    Truncate(usize),
}

fn edit() -> impl Strategy<Value = Edit> {
    let count = prop_oneof![0..200usize, 0..3000usize];
    (0..4, count).prop_map(|(kind, count)| match kind {
        0 => Edit::Prepend(count),
        1 => Edit::Append(count),
        2 => Edit::TrimFront(count),
        _ => Edit::Truncate(count),
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// The oracle is an array that the packet is a window of.
    #[test]
    fn edits_move_a_window(edits in prop::collection::vec(edit(), 0..40)) {
        static POOL: OnceLock<Mempool> = OnceLock::new();
        let pool = POOL.get_or_init(|| pool("window"));
        let mut buf = DpdkAllocator::new(pool.clone()).allocate().expect("a buffer");
        let mut memory = vec![0u8; 128 + 2048];
        let (mut start, mut end) = (128, 128);
        for (mark, edit) in edits.into_iter().enumerate() {
            let mark = mark as u8 + 1;
            match edit {
                Edit::Prepend(count) => {
                    let fits = count <= start;
                    prop_assert_eq!(buf.prepend(count), fits);
                    if fits {
                        start -= count;
                        memory[start..start + count].fill(mark);
                        buf.bytes_mut()[..count].fill(mark);
                    }
                }
                Edit::Append(count) => {
                    let fits = count <= memory.len() - end;
                    prop_assert_eq!(buf.append(count), fits);
                    if fits {
                        memory[end..end + count].fill(mark);
                        end += count;
                        let len = buf.bytes().len();
                        buf.bytes_mut()[len - count..].fill(mark);
                    }
                }
                Edit::TrimFront(count) => {
                    buf.trim_front(count);
                    start += count.min(end - start);
                }
                Edit::Truncate(len) => {
                    buf.truncate(len);
                    end = end.min(start + len);
                }
            }
            prop_assert_eq!(buf.bytes(), &memory[start..end]);
            buf.prefetch();
        }
        drop(buf);
        prop_assert_eq!(pool.level().in_use, 0);
    }
}

/// The kernel's packets come through a tap port that has moved to another network namespace.
#[test]
fn a_tap_port_works_from_another_namespace() {
    let pool = pool("tap");
    let config = DpdkPortConfig { queues: 1, pool: pool.clone(), mtu: 1400 };
    let netdev = format!("fwt{}", std::process::id());
    let mut port =
        match DpdkPort::open(eal(), &format!("net_tap_ns,iface={netdev},mac=02:00:00:00:00:01"), config) {
            Ok(port) => port,
            Err(error) => return println!("skipped: {error}"),
        };
    assert_eq!(
        (port.facts().driver.as_str(), port.facts().mac, port.facts().mtu),
        ("net_tap", [2, 0, 0, 0, 0, 1], 1400)
    );
    let namespace = Namespace::new(&netdev);
    if !namespace.made {
        return println!("skipped: no network namespace can be made here");
    }
    ip(&["link", "set", &netdev, "netns", &namespace.name]);
    assert!(!Path::new("/sys/class/net").join(&netdev).exists(), "it has moved");
    let inside = |args: &[&str]| ip(&[&["-n", &namespace.name], args].concat());
    inside(&["address", "add", "192.0.2.1/24", "dev", &netdev]);
    inside(&["neighbour", "add", "192.0.2.2", "lladdr", "02:00:00:00:00:02", "dev", &netdev]);
    inside(&["link", "set", &netdev, "up"]);
    let script = "exec 3<>/dev/udp/192.0.2.2/9; printf 'through the tap' >&3";
    let sender = Command::new("ip")
        .args(["netns", "exec", &namespace.name, "bash", "-c", script])
        .status()
        .expect("ip");
    assert!(sender.success());

    let _lcore = LcoreGuard::register(eal()).expect("an lcore");
    let mut io = port.take(0).expect("queues");
    let deadline = Instant::now() + Duration::from_secs(10);
    let mut burst = Burst::new();
    let found = loop {
        io.rx.receive(&mut burst);
        if burst.iter().any(|buf| buf.bytes().ends_with(b"through the tap")) {
            break true;
        }
        burst.clear();
        if Instant::now() > deadline {
            break false;
        }
    };
    assert!(found, "no packet from the kernel in 10 s");
    burst.retain(|buf| buf.bytes().ends_with(b"through the tap"));
    assert_eq!(burst[0].bytes()[..12], [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
    assert_eq!(io.tx.transmit(&mut burst), 1);
    // Closing gives back what the receive ring holds.
    drop((burst, io, port));
    assert_eq!(pool.level().in_use, 0);
}

/// A network namespace, removed on drop.
struct Namespace {
    name: String,
    made: bool,
}

impl Namespace {
    fn new(name: &str) -> Self {
        let made =
            Command::new("ip").args(["netns", "add", name]).status().is_ok_and(|status| status.success());
        Self { name: name.into(), made }
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        if self.made {
            ip(&["netns", "delete", &self.name]);
        }
    }
}

fn ip(args: &[&str]) {
    let output = Command::new("ip").args(args).output().expect("ip");
    assert!(output.status.success(), "ip {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr));
}
