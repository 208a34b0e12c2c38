//! testpmd in io mode: from the same source to the same drain, no packet touched. It is the cost of both.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use benches::traffic::{PACKETS, Traffic};

use crate::Args;
use crate::thread_time::{children, named_thread_nanos};

/// Cycles per packet of one run.
pub fn run(args: &Args, hz: f64, traffic: &Traffic, capture: &Path) -> Result<f64, String> {
    let source = format!("net_pcap0,rx_pcap={},infinite_rx=1", capture.display());
    let cpus = format!("{},{}", usize::from(args.cpu == 0), args.cpu);
    let mbufs = format!("--total-num-mbufs={}", traffic.packets() + 3 * PACKETS);
    // It runs until it is told to end: should it print nothing, `timeout` tells it.
    let limit = (args.seconds + 30).to_string();
    let mut child = Command::new("timeout")
        .args([&limit, "dpdk-testpmd", "-l", &cpus, "--no-pci", "--in-memory"])
        .args(["--vdev", &source, "--vdev", "net_null0,no-rx=1", "--"])
        .args(["--auto-start", "--forward-mode=io", "--no-mlockall", &mbufs])
        .args(["--stats-period", "1"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("dpdk-testpmd: {error}; install the package dpdk-dev"))?;
    let samples = child.stdout.take().map(|out| sample(child.id(), out, args.seconds as usize + 2));
    // SIGTERM reaches testpmd through `timeout`.
    let _ = Command::new("kill").arg(child.id().to_string()).status();
    let _ = child.wait();
    let samples = samples.unwrap_or_default();
    let (Some(first), Some(last)) = (samples.get(1), samples.last()) else {
        return Err("dpdk-testpmd printed no statistics".into());
    };
    Ok((last.1 - first.1) as f64 / 1e9 * hz / (last.0 - first.0) as f64)
}

/// Packets received by port 0, and nanoseconds that the forwarding lcore was on its CPU, at each statistics print.
fn sample(timeout: u32, out: impl std::io::Read, count: usize) -> Vec<(u64, u64)> {
    let mut samples = Vec::new();
    let mut port = None;
    for line in BufReader::new(out).lines().map_while(Result::ok) {
        if let Some(rest) = line.split("NIC statistics for port").nth(1) {
            port = rest.split_whitespace().next().and_then(|word| word.parse::<u32>().ok());
        }
        if port == Some(0) && line.trim_start().starts_with("RX-packets:") {
            let packets = line.split_whitespace().nth(1).and_then(|word| word.parse().ok());
            // DPDK 22.11 calls the thread rte-worker-1, later releases dpdk-worker1.
            let nanos = children(timeout).first().and_then(|pid| named_thread_nanos(*pid, "worker"));
            if let (Some(packets), Some(nanos)) = (packets, nanos) {
                samples.push((packets, nanos));
            }
            port = None;
            if samples.len() == count {
                break;
            }
        }
    }
    samples
}
