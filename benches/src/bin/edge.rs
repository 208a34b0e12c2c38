//! The full edge pipeline over DPDK, host to fabric: `net_pcap` (endless) in, VXLAN out to `net_null`.
//!
//! Prints one line: packets, seconds, cycles per packet, hit share. Cycles are those of the time stamp counter, over
//! the time that the thread was on its CPU.

use std::path::PathBuf;
use std::sync::Arc;

use backends::dpdk::{DpdkAllocator, DpdkBackend, DpdkPort, DpdkPortConfig};
use benches::scene;
use benches::stage::{HOST, Stage, UPLINK, opened};
use benches::traffic::{PACKETS, Traffic, Transport};
use clap::Parser;
use dpdk::{Eal, Mempool, PoolConfig};
use edge::{Edge, Facts, Limits, Tables};
use engine::{Account, Dump, Gauge, Ledger, LedgerReader, Worker, WorkerPorts};
use packet::Nanos;
use program::{DropReason, limit};
use quiescent::{Publisher, SharedWords};
use wire::Mac;

#[derive(Parser)]
struct Args {
    /// Capture to replay: of the traffic that `--flows`, `--frame-len` and `--transport` describe.
    #[arg(long, required_unless_present = "print_hz")]
    capture: Option<PathBuf>,
    /// Flows in the capture.
    #[arg(long, default_value_t = 1)]
    flows: u32,
    /// Bytes of a frame without FCS.
    #[arg(long, default_value_t = 60)]
    frame_len: usize,
    /// What the frames carry.
    #[arg(long, value_enum, default_value_t = Transport::Udp)]
    transport: Transport,
    /// Rules that each accept a part of the traffic; with 0, one that accepts it all.
    #[arg(long, default_value_t = 0)]
    rules: u32,
    /// Measure misses: start with an empty flow table and stop when each flow has come once.
    #[arg(long)]
    misses: bool,
    /// Print the rate of the time stamp counter and end.
    #[arg(long)]
    print_hz: bool,
    /// CPU to run on.
    #[arg(long, default_value_t = 1)]
    cpu: usize,
    /// Seconds to run.
    #[arg(long, default_value_t = 2)]
    seconds: u64,
}

/// Flows that are let in at a time.
const WARM_UP: u32 = 1 << 14;

fn main() {
    let args = Args::parse();
    let eal =
        Eal::builder().lcores([args.cpu]).no_pci().in_memory().init().unwrap_or_else(|error| fail(&error));
    if args.print_hz {
        return println!("{}", dpdk::tsc_hz(&eal));
    }
    let traffic = Traffic { flows: args.flows, frame_len: args.frame_len, transport: args.transport };
    let pool = Mempool::new(&eal, &pool_config(&traffic)).unwrap_or_else(|error| fail(&error));
    let open = |devargs: &str| {
        let config = DpdkPortConfig { queues: 1, pool: pool.clone(), mtu: 1500 };
        DpdkPort::open(&eal, devargs, config).unwrap_or_else(|error| fail(&error))
    };
    let capture = args.capture.clone().unwrap_or_default();
    let source = format!("net_pcap0,rx_pcap={},infinite_rx=1", capture.display());
    let mut ports = [open("net_null0,no-rx=1"), open(&source)];
    let facts = ports.each_ref().map(|port| Facts { mac: Mac(port.facts().mac) });
    let queues = ports.iter_mut().map(|port| port.take(0)).collect();
    let ports = WorkerPorts { queues, allocator: DpdkAllocator::new(pool.clone()) };

    let program = Arc::new(scene::program(args.rules).unwrap_or_else(|error| fail(&error)));
    let tables = Tables::build(program.clone(), &facts).unwrap_or_else(|error| fail(&error));
    let standard = Limits::default();
    let (flows, queue_pairs) = (2 * args.flows as usize, args.flows as usize);
    let limits = Limits {
        flows: standard.flows.max(2 * flows),
        queue_pairs: standard.queue_pairs.max(queue_pairs),
        ..standard
    };
    let edge = if args.misses {
        Edge::new(limits, 7, Arc::new(SharedWords::new(limit::VTEPS)))
    } else {
        warm_up(program, limits, &traffic)
    };
    let mut publisher = Publisher::new(Box::new(tables));
    let (ledger, reader) = Ledger::new();
    let mut worker = Worker::new(ports, edge, publisher.reader(), ledger, Dump::new(64).0);
    let hz = dpdk::tsc_hz(&eal);
    let end = if args.misses { End::Misses(args.flows.into()) } else { End::Ticks(hz * args.seconds) };
    measure(&mut worker, &reader, hz, &end);
}

/// A pool that holds the capture and what is on its way: 2.4 GB for a million packets.
fn pool_config(traffic: &Traffic) -> PoolConfig {
    PoolConfig::new("bench", traffic.packets() + 3 * PACKETS)
}

/// Lets every flow in, in another order than the capture's: where an entry lies says nothing of when its packet comes.
fn warm_up(program: Arc<program::Program>, limits: Limits, traffic: &Traffic) -> Edge {
    let flows = 0..traffic.flows;
    let stage = Stage::new(program, limits, WARM_UP as usize);
    let batches = flows.clone().step_by(WARM_UP as usize).map(|first| first..flows.end.min(first + WARM_UP));
    batches.fold(stage, |stage, batch| opened(stage, *traffic, batch)).into_edge()
}

/// When a measurement ends.
enum End {
    /// After so many ticks of the time stamp counter.
    Ticks(u64),
    /// When so many packets have missed the flow table.
    Misses(u64),
}

fn measure(worker: &mut Worker<DpdkBackend, Edge>, ledger: &LedgerReader, hz: u64, end: &End) {
    let start = dpdk::tsc();
    let now = |tsc: u64| Nanos((u128::from(tsc - start) * 1_000_000_000 / u128::from(hz)) as u64);
    let poll_until = |worker: &mut Worker<DpdkBackend, Edge>, end: &End| {
        let begin = dpdk::tsc();
        let mut packets = 0;
        loop {
            let tsc = dpdk::tsc();
            let over = match end {
                End::Ticks(ticks) => tsc - begin >= *ticks,
                End::Misses(misses) => ledger.gauge(Gauge::Misses) >= *misses,
            };
            if over {
                return packets;
            }
            packets += worker.poll(now(tsc)).received as u64;
        }
    };
    if matches!(end, End::Ticks(_)) {
        poll_until(worker, &End::Ticks(hz / 5));
    }
    let (hits, on_cpu) = (ledger.gauge(Gauge::Hits), on_cpu_nanos());
    let packets = poll_until(worker, end);
    let ticks = (on_cpu_nanos() - on_cpu) as f64 / 1e9 * hz as f64;
    let hits = ledger.gauge(Gauge::Hits) - hits;
    let sent = ledger.traffic(Account::Port(UPLINK)).tx_packets;
    assert!(sent > 0 && dropped(ledger).is_empty(), "sent {sent}; dropped: {:?}", dropped(ledger));
    println!(
        "packets {packets} seconds {:.3} cycles_per_packet {:.1} hit_share {:.4}",
        ticks / hz as f64,
        ticks / packets as f64,
        hits as f64 / packets as f64
    );
}

/// Time that this thread was on its CPU: what other programs took of it does not count.
fn on_cpu_nanos() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0)
}

fn dropped(ledger: &LedgerReader) -> Vec<(&'static str, u64)> {
    let count = |reason: &DropReason| {
        let accounts = [Account::Port(UPLINK), Account::Port(HOST), Account::Tenant(program::TenantId(0))];
        (reason.name(), accounts.iter().map(|account| ledger.dropped(*account, *reason)).sum())
    };
    DropReason::ALL.iter().map(count).filter(|(_, count)| *count > 0).collect()
}

fn fail(error: &dyn std::fmt::Display) -> ! {
    eprintln!("{error}");
    std::process::exit(1)
}
