//! The full edge pipeline over DPDK, host to fabric: `net_pcap` (endless) in, VXLAN out to `net_null`.
//!
//! Prints one line: packets, seconds, cycles per packet, hit share. Cycles are those of the time stamp counter.

use std::path::PathBuf;
use std::sync::Arc;

use backends::dpdk::{DpdkAllocator, DpdkBackend, DpdkPort, DpdkPortConfig};
use clap::Parser;
use dpdk::{Eal, Mempool, PoolConfig};
use edge::{Edge, Facts, Limits, Tables};
use engine::{Account, Dump, Gauge, Ledger, LedgerReader, Worker, WorkerPorts};
use packet::Nanos;
use program::{DropReason, PortId, limit};
use quiescent::{Publisher, SharedWords};
use wire::Mac;

/// One tenant with one port here and one host behind a tunnel endpoint whose MAC is given, and a rule for UDP 5201
/// behind nine that do not match.
const POLICY: &str = include_str!("../../policies/edge.yaml");

#[derive(Parser)]
struct Args {
    /// Capture to replay.
    #[arg(long, required_unless_present = "print_hz")]
    capture: Option<PathBuf>,
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

fn main() {
    let args = Args::parse();
    let eal =
        Eal::builder().lcores([args.cpu]).no_pci().in_memory().init().unwrap_or_else(|error| fail(&error));
    if args.print_hz {
        return println!("{}", dpdk::tsc_hz(&eal));
    }
    let pool = Mempool::new(&eal, &PoolConfig::new("bench", 32_768)).unwrap_or_else(|error| fail(&error));
    let open = |devargs: &str| {
        let config = DpdkPortConfig { queues: 1, pool: pool.clone(), mtu: 1500 };
        DpdkPort::open(&eal, devargs, config).unwrap_or_else(|error| fail(&error))
    };
    let capture = args.capture.unwrap_or_default();
    let source = format!("net_pcap0,rx_pcap={},infinite_rx=1", capture.display());
    let mut ports = [open("net_null0,no-rx=1"), open(&source)];
    let facts = ports.each_ref().map(|port| Facts { mac: Mac(port.facts().mac) });
    let queues = ports.iter_mut().map(|port| port.take(0)).collect();
    let ports = WorkerPorts { queues, allocator: DpdkAllocator::new(pool.clone()) };

    let tables = Tables::build(Arc::new(program()), &facts).unwrap_or_else(|error| fail(&error));
    let mut publisher = Publisher::new(Box::new(tables));
    let (ledger, reader) = Ledger::new();
    let edge = Edge::new(Limits::default(), 7, Arc::new(SharedWords::new(limit::VTEPS)));
    let mut worker = Worker::new(ports, edge, publisher.reader(), ledger, Dump::new(64).0);
    measure(&mut worker, &reader, dpdk::tsc_hz(&eal), args.seconds);
}

fn measure(worker: &mut Worker<DpdkBackend, Edge>, ledger: &LedgerReader, hz: u64, seconds: u64) {
    let start = dpdk::tsc();
    let now = |tsc: u64| Nanos((u128::from(tsc - start) * 1_000_000_000 / u128::from(hz)) as u64);
    let poll_for = |worker: &mut Worker<DpdkBackend, Edge>, ticks: u64| {
        let begin = dpdk::tsc();
        let mut packets = 0;
        loop {
            let tsc = dpdk::tsc();
            if tsc - begin >= ticks {
                return (packets, tsc - begin);
            }
            packets += worker.poll(now(tsc)).received as u64;
        }
    };
    poll_for(worker, hz / 5);
    let (hits, on_cpu) = (ledger.gauge(Gauge::Hits), on_cpu_nanos());
    let (packets, _) = poll_for(worker, hz * seconds);
    let ticks = (on_cpu_nanos() - on_cpu) as f64 / 1e9 * hz as f64;
    let hits = ledger.gauge(Gauge::Hits) - hits;
    let sent = ledger.traffic(Account::Port(PortId(0))).tx_packets;
    assert!(sent > 0, "nothing was sent; dropped: {:?}", drops(ledger));
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

fn drops(ledger: &LedgerReader) -> Vec<(&'static str, u64)> {
    let count = |reason: &DropReason| {
        let accounts =
            [Account::Port(PortId(0)), Account::Port(PortId(1)), Account::Tenant(program::TenantId(0))];
        (reason.name(), accounts.iter().map(|account| ledger.dropped(*account, *reason)).sum())
    };
    DropReason::ALL.iter().map(count).filter(|(_, count)| *count > 0).collect()
}

fn program() -> program::Program {
    let source = policy::Source { name: "edge.yaml".into(), bytes: POLICY.as_bytes().to_vec() };
    let parsed = policy::parse(&[source]).unwrap_or_else(|errors| fail(&errors));
    compile::compile(&parsed.policy, None).unwrap_or_else(|errors| fail(&errors)).program
}

fn fail(error: &dyn std::fmt::Display) -> ! {
    eprintln!("{error}");
    std::process::exit(1)
}
