//! Pools, mbufs, ports and queues on virtual devices. Every test ends with its pool full.
//!
//! EAL starts once per process, so the tests share one, on hugepages when the machine has free ones.

use std::{
    fs,
    sync::{Arc, Barrier, OnceLock},
    thread,
};

use arrayvec::ArrayVec;
use dpdk::{
    Eal, EthDev, Exhausted, LcoreError, LcoreGuard, Level, Mbuf, Mempool, OpenError, PoolConfig, PoolError,
    Port, PortConfig, UniqueMbuf,
};

const MBUFS: u32 = 1023;

fn eal() -> &'static Eal {
    static EAL: OnceLock<Eal> = OnceLock::new();
    EAL.get_or_init(|| {
        let builder = Eal::builder().no_pci();
        let builder =
            if free_hugepages() > 64 { builder.in_memory() } else { builder.no_huge(256).no_shconf() };
        // On a thread of its own, so that no test's thread is the main lcore.
        thread::scope(|scope| scope.spawn(|| builder.init().expect("EAL")).join().expect("no panic"))
    })
}

fn free_hugepages() -> u64 {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = meminfo.lines().find_map(|line| line.strip_prefix("HugePages_Free:"));
    line.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

fn pool(name: &str) -> Mempool {
    Mempool::new(eal(), &PoolConfig { cache: 32, ..PoolConfig::new(name, MBUFS) }).expect("a pool")
}

fn full() -> Level {
    Level { available: MBUFS, in_use: 0 }
}

fn port(devargs: &str, pool: &Mempool) -> Port {
    EthDev::open(eal(), devargs).expect("a device").start(&PortConfig::new(1, pool.clone())).expect("a port")
}

fn frame(pool: &Mempool, len: usize) -> UniqueMbuf {
    let mut mbuf = pool.alloc().expect("an mbuf");
    assert!(mbuf.append(len));
    mbuf.bytes_mut().iter_mut().zip(0u8..=255).for_each(|(byte, value)| *byte = value);
    mbuf
}

#[test]
fn a_second_eal_is_an_error() {
    let _first = eal();
    let error = Eal::builder().no_pci().no_huge(64).init().err().expect("no second EAL");
    assert_eq!(
        error.to_string(),
        "DPDK was started in this process before: keep the first Eal, it cannot start twice"
    );
}

#[test]
fn an_mbuf_grows_and_shrinks_inside_its_buffer() {
    let pool = pool("grow");
    let mut mbuf = pool.alloc().expect("an mbuf");
    assert_eq!((mbuf.len(), mbuf.headroom(), mbuf.tailroom()), (0, 128, 2048));
    assert!(mbuf.write(b"payload") && mbuf.prepend(3));
    mbuf.bytes_mut()[..3].copy_from_slice(b"<<<");
    assert!(mbuf.append(1));
    *mbuf.bytes_mut().last_mut().expect("a byte") = b'>';
    assert_eq!(mbuf.bytes(), b"<<<payload>");
    assert_eq!((mbuf.headroom(), mbuf.tailroom()), (125, 2040));
    assert!(!mbuf.prepend(126) && !mbuf.append(2041) && !mbuf.write(&[0; 2052]));
    mbuf.truncate(12);
    mbuf.truncate(10);
    mbuf.trim_front(3);
    assert_eq!(mbuf.bytes(), b"payload");
    mbuf.trim_front(99);
    assert!(mbuf.is_empty() && mbuf.bytes().is_empty());
    assert_eq!(pool.level(), Level { available: MBUFS - 1, in_use: 1 });
    drop(mbuf);
    assert_eq!(pool.level(), full());
}

#[test]
fn a_failed_bulk_allocation_takes_nothing() {
    let pool = pool("bulk");
    let mut bursts: Vec<ArrayVec<UniqueMbuf, 100>> = Vec::new();
    for _ in 0..10 {
        bursts.push(ArrayVec::new());
        pool.alloc_bulk(bursts.last_mut().expect("one"), 100).expect("100 mbufs");
    }
    let mut last = ArrayVec::<UniqueMbuf, 100>::new();
    assert_eq!(pool.alloc_bulk(&mut last, 24), Err(Exhausted));
    assert!(last.is_empty());
    assert_eq!(pool.level(), Level { available: 23, in_use: 1000 });
    assert_eq!(pool.alloc_bulk(&mut last, 23), Ok(()));
    assert_eq!(pool.alloc_bulk(&mut last, 78), Err(Exhausted), "no room in the burst");
    assert!(pool.alloc().is_none());
    let mut addresses: Vec<*const u8> =
        bursts.iter().flatten().chain(&last).map(|mbuf| mbuf.bytes().as_ptr()).collect();
    addresses.sort_unstable();
    addresses.dedup();
    assert_eq!(addresses.len(), MBUFS as usize, "no mbuf was given out twice");
    bursts.iter_mut().for_each(dpdk::free_burst);
    assert_eq!(pool.level().in_use, 23);
    drop(last);
    assert_eq!(pool.level(), full());
}

#[test]
fn only_a_sole_owner_of_one_segment_may_write() {
    let pool = pool("unique");
    let mbuf = frame(&pool, 60).into_mbuf();
    let other = mbuf.share().expect("few owners");
    let mbuf = mbuf.into_unique().expect_err("two owners");
    assert_eq!((mbuf.owners(), other.owners()), (2, 2));
    assert_eq!(pool.level().in_use, 1);
    drop(other);
    let unique = mbuf.into_unique().expect("one owner");

    let chain = unique.into_mbuf().chain(frame(&pool, 40)).expect("a chain");
    assert_eq!((chain.len(), chain.segments(), chain.first_segment().len()), (100, 2, 60));
    let mut across = [0; 4];
    assert!(chain.read(58, &mut across));
    assert_eq!(across, [58, 59, 0, 1]);
    assert!(!chain.read(97, &mut across) && !chain.read(usize::MAX, &mut across));
    let chain = chain.into_unique().expect_err("two segments");
    let shared = chain.share().expect("few owners");
    assert!(chain.chain(frame(&pool, 1)).is_err(), "its other owner would see it grow");
    let copy = pool.copy(&shared).expect("a copy");
    assert_eq!((copy.len(), copy.bytes()[99]), (100, 39));
    drop((copy, shared));
    assert_eq!(pool.level(), full());
}

#[test]
fn owners_are_counted_without_overflow() {
    let pool = pool("owners");
    let mbuf = frame(&pool, 60).into_mbuf();
    let others: Vec<Mbuf> = core::iter::from_fn(|| mbuf.share()).take(70_000).collect();
    assert_eq!((others.len(), mbuf.owners()), (32_767, 32_768));
    drop(others);
    assert!(mbuf.is_unique());
    drop(mbuf);
    assert_eq!(pool.level(), full());
}

#[test]
fn what_was_sent_is_the_ports_and_what_was_not_is_the_callers() {
    let lcore = LcoreGuard::register(eal()).expect("an lcore");
    let pool = pool("partial");
    // A ring of 1,024 holds 1,023 packets.
    let mut port = port("net_ring_partial", &pool);
    let (mut rx, mut tx) = (port.take_rx(0).expect("rx"), port.take_tx(0).expect("tx"));
    let filler = frame(&pool, 60).into_mbuf();
    let mut full_after = 0;
    loop {
        let mut burst: ArrayVec<Mbuf, 32> = (0..32).filter_map(|_| filler.share()).collect();
        let sent = tx.transmit(&mut burst);
        full_after += sent;
        assert_eq!(burst.len(), 32 - sent);
        if sent < 32 {
            break;
        }
    }
    assert_eq!(full_after, 1023);
    assert_eq!(filler.owners(), 1024, "the unsent were dropped here, the sent are the port's");
    drop(filler);
    // Each shared packet comes back as one reference to the same mbuf.
    let mut burst = ArrayVec::<Mbuf, 32>::new();
    let mut back = 0;
    while rx.receive(&mut burst) > 0 {
        back += burst.len();
        dpdk::free_burst(&mut burst);
    }
    assert_eq!(back, full_after);

    // Of a partly sent burst, the rest keeps its order.
    let mut marked = ArrayVec::<UniqueMbuf, 32>::new();
    for mark in 0..1030u32 {
        let mut mbuf = pool.alloc().unwrap_or_else(|| panic!("mbuf {mark}"));
        assert!(mbuf.write(&mark.to_be_bytes()));
        marked.push(mbuf);
        if marked.is_full() && tx.transmit(&mut marked) < 32 {
            break;
        }
        if pool.level().available == 0 {
            break;
        }
    }
    let rest: Vec<u32> =
        marked.iter().map(|mbuf| u32::from_be_bytes(mbuf.bytes().try_into().expect("4 bytes"))).collect();
    assert_eq!(rest, (1023 - rest.len() as u32..1023).collect::<Vec<_>>());
    drop(marked);
    drain(&mut rx);
    assert_eq!(pool.level(), full());
    drop((rx, tx, port, lcore));
    assert_eq!(pool.level(), full());
}

fn drain(rx: &mut dpdk::RxQueue) -> usize {
    let mut burst = ArrayVec::<Mbuf, 32>::new();
    let mut count = 0;
    while rx.receive(&mut burst) > 0 {
        count += burst.len();
        burst.clear();
    }
    count
}

#[test]
fn freed_once_after_sending() {
    let _lcore = LcoreGuard::register(eal()).expect("an lcore");
    let pool = pool("sent");
    let mut port = port("net_null_sent", &pool);
    let mut tx = port.take_tx(0).expect("tx");
    for _ in 0..1000 {
        let mut burst = ArrayVec::<UniqueMbuf, 32>::new();
        pool.alloc_bulk(&mut burst, 32).expect("32 mbufs");
        assert_eq!(tx.transmit(&mut burst), 32);
        assert!(burst.is_empty());
        drop(burst);
        assert_eq!(pool.level(), full(), "net_null frees what it sends, and nobody else does");
    }
    assert_eq!(port.watch().stats().expect("stats").tx_packets, 32_000);
}

#[test]
fn a_burst_dropped_half_way_leaks_nothing() {
    let _lcore = LcoreGuard::register(eal()).expect("an lcore");
    let pool = pool("half");
    let mut port = port("net_null_half", &pool);
    let mut rx = port.take_rx(0).expect("rx");
    for consumed in 0..32 {
        let mut burst = ArrayVec::<Mbuf, 32>::new();
        assert_eq!(rx.receive(&mut burst), 32);
        assert_eq!(rx.receive(&mut burst), 0, "no room");
        let mut packets = burst.into_iter();
        for _ in 0..consumed {
            packets.next();
        }
    }
    assert_eq!(pool.level(), full());
    let mut burst = ArrayVec::<Mbuf, 32>::new();
    rx.receive(&mut burst);
    drop(burst.drain(3..9));
    assert_eq!(burst.len(), 26);
    drop(burst);
    assert_eq!(pool.level(), full());
}

#[test]
fn packets_that_are_not_unique_are_copied_or_dropped_and_counted() {
    let _lcore = LcoreGuard::register(eal()).expect("an lcore");
    let pool = pool("repair");
    let small =
        Mempool::new(eal(), &PoolConfig { cache: 0, ..PoolConfig::new("repair_small", 2) }).expect("a pool");
    let config = PortConfig { pool: small.clone(), ..PortConfig::new(1, pool.clone()) };
    let mut port = EthDev::open(eal(), "net_ring_repair").expect("a device").start(&config).expect("a port");
    let (mut rx, mut tx) = (port.take_rx(0).expect("rx"), port.take_tx(0).expect("tx"));
    let mirrored = frame(&pool, 60).into_mbuf();
    let mut burst = ArrayVec::<Mbuf, 32>::new();
    burst.push(frame(&pool, 61).into_mbuf());
    burst.push(frame(&pool, 1500).into_mbuf().chain(frame(&pool, 600)).expect("a chain"));
    burst.extend(mirrored.share());
    burst.push(frame(&pool, 62).into_mbuf());
    burst.push(frame(&pool, 40).into_mbuf().chain(frame(&pool, 50)).expect("a chain"));
    burst.extend(mirrored.share());
    assert_eq!(tx.transmit(&mut burst), 6);
    let mut received = ArrayVec::<UniqueMbuf, 32>::new();
    assert_eq!(rx.receive_unique(&mut received), 4);
    assert_eq!(received.iter().map(UniqueMbuf::len).collect::<Vec<_>>(), [61, 60, 62, 90]);
    assert_eq!(received[3].bytes()[40..44], [0, 1, 2, 3]);
    received[1].bytes_mut()[0] = 0xaa;
    assert_eq!(mirrored.first_segment()[0], 0, "the mirror's bytes are its own");
    assert_eq!(
        (rx.repairs().linearised(), rx.repairs().dropped_too_long(), rx.repairs().dropped_no_mbuf()),
        (2, 1, 1)
    );
    assert_eq!(port.watch().repairs(0).map(dpdk::Repairs::linearised), Some(2));
    drop((received, mirrored));
    assert_eq!((pool.level(), small.level().in_use), (full(), 0));
}

#[test]
fn queues_are_handed_out_once_and_hold_the_port_open() {
    let pool = pool("once");
    let device = EthDev::open(eal(), "net_null_once").expect("a device");
    assert_eq!(
        (device.name(), device.driver().expect("a driver")),
        ("net_null_once".into(), "net_null".into())
    );
    let again = EthDev::open(eal(), "net_null_once").err();
    assert_eq!(again, Some(OpenError::OpenBefore("net_null_once".into())));
    let mut port = device.start(&PortConfig::new(1, pool.clone())).expect("a port");
    assert!(port.take_rx(1).is_none() && port.take_tx(7).is_none());
    let rx = port.take_rx(0).expect("rx");
    assert!(port.take_rx(0).is_none());
    assert!(port.take_tx(0).is_some() && port.take_tx(0).is_none());
    let watch = port.watch();
    let port = port.stop().err().expect("a queue and a watch are out");
    drop(watch);
    let port = port.stop().err().expect("a queue is out");
    drop(port);
    let lent = EthDev::open(eal(), "net_null_once").err();
    assert_eq!(lent, Some(OpenError::OpenBefore("net_null_once".into())), "the queue keeps it open");
    drop(rx);
    let port = EthDev::open(eal(), "net_null_once")
        .expect("closed")
        .start(&PortConfig::new(1, pool.clone()))
        .expect("a port");
    let stopped = port.stop().ok().expect("no queue is out");
    let mut port = stopped.start(&PortConfig::new(1, pool.clone())).expect("a port");
    assert!(port.take_rx(0).is_some(), "a new start has new queues");
}

#[test]
fn several_queues_go_to_several_threads() {
    let pool = pool("threads");
    let config = PortConfig::new(2, pool.clone());
    let mut port = EthDev::open(eal(), "net_ring_threads").expect("a device").start(&config).expect("a port");
    let workers: Vec<_> = (0..2u8)
        .map(|number| {
            let queues = (port.take_rx(number.into()).expect("rx"), port.take_tx(number.into()).expect("tx"));
            let pool = pool.clone();
            thread::spawn(move || loop_through(queues, &pool, number))
        })
        .collect();
    assert!(workers.into_iter().all(|worker| worker.join().expect("no panic") == 3200));
    assert_eq!(pool.level(), full());
    assert_eq!(port.watch().stats().expect("stats").rx_packets, 6400);
}

/// Sends bursts marked with `number` and receives them; how many came back.
fn loop_through((mut rx, mut tx): (dpdk::RxQueue, dpdk::TxQueue), pool: &Mempool, number: u8) -> usize {
    let _lcore = LcoreGuard::register(eal()).expect("an lcore");
    let mut back = 0;
    for _ in 0..100 {
        let mut burst: ArrayVec<UniqueMbuf, 32> = (0..32).map(|_| frame(pool, 60)).collect();
        burst.iter_mut().for_each(|mbuf| mbuf.bytes_mut()[59] = number);
        assert_eq!(tx.transmit(&mut burst), 32);
        assert_eq!(rx.receive_unique(&mut burst), 32);
        assert!(burst.iter().all(|mbuf| mbuf.bytes()[59] == number), "each ring is its worker's own");
        back += burst.len();
    }
    back
}

#[test]
fn a_thread_that_is_no_lcore_may_not_poll() {
    let pool = pool("unregistered");
    let mut port = port("net_null_unregistered", &pool);
    let mut rx = port.take_rx(0).expect("rx");
    let mut poll = || rx.receive(&mut ArrayVec::<Mbuf, 32>::new());
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(&mut poll)).expect_err("no lcore");
    assert!(panic.downcast_ref::<&str>().is_some_and(|text| text.contains("LcoreGuard::register")));
    let lcore = LcoreGuard::register(eal()).expect("an lcore");
    assert_eq!(LcoreGuard::register(eal()).err(), Some(LcoreError::RegisteredBefore(lcore.id())));
    assert_eq!(poll(), 32);
    drop(lcore);
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(poll)).is_err());
    assert_eq!(pool.level(), full());
}

#[test]
fn lcores_are_numbered_apart_and_give_their_caches_back() {
    let pool = pool("lcores");
    let both = Arc::new(Barrier::new(2));
    let run = |pool: Mempool, both: Arc<Barrier>| {
        move || {
            let lcore = LcoreGuard::register(eal()).expect("an lcore");
            both.wait();
            drop(pool.alloc());
            both.wait();
            lcore.id()
        }
    };
    let threads = [thread::spawn(run(pool.clone(), both.clone())), thread::spawn(run(pool.clone(), both))];
    let ids = threads.map(|thread| thread.join().expect("no panic"));
    assert_ne!(ids[0], ids[1]);
    // This thread has no cache, so it can take all of them only when none is stuck in a dead lcore's.
    let all: Vec<UniqueMbuf> = core::iter::from_fn(|| pool.alloc()).collect();
    assert_eq!(all.len(), MBUFS as usize);
    drop(all);
    assert_eq!(pool.level(), full());
}

#[test]
fn a_pool_outlives_its_handles_while_mbufs_are_out() {
    let first = pool("orphans");
    let mut orphan = frame(&first, 60);
    drop(first);
    let taken = Mempool::new(eal(), &PoolConfig { cache: 32, ..PoolConfig::new("orphans", MBUFS) }).err();
    assert_eq!(taken, Some(PoolError::NameTaken("orphans".into())), "its memory is still there");
    orphan.bytes_mut().fill(7);
    assert!(orphan.bytes().iter().all(|byte| *byte == 7));
    drop(orphan);
    // The next pool to go sweeps.
    drop(pool("sweeper"));
    assert_eq!(pool("orphans").level(), full());
}

#[test]
fn a_port_keeps_its_pool() {
    let lcore = LcoreGuard::register(eal()).expect("an lcore");
    let pool = pool("held");
    let mut port = port("net_null_held", &pool);
    drop(pool);
    let mut rx = port.take_rx(0).expect("rx");
    drop(port);
    let mut burst = ArrayVec::<Mbuf, 32>::new();
    assert_eq!(rx.receive(&mut burst), 32);
    let name_is_taken = || Mempool::new(eal(), &PoolConfig::new("held", MBUFS)).is_err();
    drop(rx);
    assert!(name_is_taken(), "32 mbufs are out");
    drop(burst);
    drop(lcore);
    assert!(!name_is_taken());
}

#[test]
fn pools_that_cannot_be_are_refused_in_a_sentence() {
    let make = |config: PoolConfig| {
        Mempool::new(eal(), &config).err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert_eq!(make(PoolConfig::new("", 64)), "mbuf pool \"\": its name must have 1 to 25 bytes");
    assert_eq!(make(PoolConfig::new("none", 0)), "mbuf pool \"none\": it must have at least one mbuf");
    assert_eq!(
        make(PoolConfig { cache: 50, ..PoolConfig::new("caches", 64) }),
        "mbuf pool \"caches\": a cache may have at most two thirds of the mbufs"
    );
    assert_eq!(
        make(PoolConfig { room_bytes: u16::MAX, ..PoolConfig::new("room", 64) }),
        "mbuf pool \"room\": room_bytes plus headroom must fit in 16 bits"
    );
    assert_eq!(
        make(PoolConfig::new("huge", 100_000_000)),
        "mbuf pool \"huge\": no memory for 100000000 mbufs of 2048 bytes: ask for fewer, or give DPDK more hugepages"
    );
}

#[test]
fn ports_that_cannot_be_are_refused_in_a_sentence() {
    let open =
        |devargs: &str| EthDev::open(eal(), devargs).err().map(|error| error.to_string()).unwrap_or_default();
    for unknown in ["net_nonsense0", "0000:fe:00.0", "0000:fe:00.0,representor=vf0", "eth0"] {
        let error = open(unknown);
        assert!(error.starts_with(&format!("port \"{unknown}\" does not exist")), "{error}");
    }
    assert!(open("").starts_with("\"\" names no port"));
    assert!(open("net_null\0").contains("names no port"));
    let error = open("net_pcap_absent,rx_pcap=/nonexistent.pcap,tx_pcap=/dev/null");
    assert!(error.contains("net_pcap_absent") && error.contains("cannot be made"), "{error}");
    let error = open("net_null_badargs,nonsense=1");
    assert!(error.contains("cannot be made"), "{error}");

    let pool = pool("refused");
    let start = |config: PortConfig| {
        let device = EthDev::open(eal(), "net_null_refused").expect("a device");
        device.start(&config).err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert!(start(PortConfig::new(0, pool.clone())).contains("cannot have 0 queues: it can have 1 to"));
    let tiny = PortConfig { mtu: 10, ..PortConfig::new(1, pool.clone()) };
    assert!(start(tiny).starts_with("port net_null_refused cannot have an MTU of 10: it can have 46 to"));
    let jumbo = PortConfig { mtu: 9000, ..PortConfig::new(1, pool.clone()) };
    assert_eq!(
        start(jumbo),
        "port net_null_refused with MTU 9000 needs mbufs of 9018 bytes, and its pool's have 2048: give the pool more room per mbuf"
    );
    assert_eq!(pool.level(), full());
}

#[test]
fn a_ports_facts_can_be_read() {
    let pool = pool("facts");
    let port = port("net_null_facts", &pool);
    assert_eq!(
        (port.name().as_str(), port.driver().expect("a driver").as_str()),
        ("net_null_facts", "net_null")
    );
    assert_eq!(port.mtu().expect("an MTU"), 1500);
    assert_ne!(port.mac().expect("a MAC"), [0; 6]);
    let watch = port.watch();
    assert!(watch.link().expect("a link").up);
    assert_eq!(watch.stats().expect("stats"), dpdk::PortStats::default());
    assert!(watch.repairs(0).is_some() && watch.repairs(1).is_none());
}

#[test]
fn the_clock_runs_at_its_stated_rate() {
    let hz = dpdk::tsc_hz(eal());
    let (start, first) = (std::time::Instant::now(), dpdk::tsc());
    // Not a wait for something: a span of the other clock to compare with.
    while start.elapsed() < std::time::Duration::from_millis(50) {}
    let (span, ticks) = (start.elapsed(), dpdk::tsc() - first);
    let expected = span.as_secs_f64() * hz as f64;
    assert!((0.8..1.25).contains(&(ticks as f64 / expected)), "{ticks} ticks, {expected} expected");
}
