//! Runs floodway and its peers in turn on the same traffic and the same core, several rounds, and prints the table of
//! docs/benchmarks.md.
//!
//! A run's time is the time that its lcore was on the CPU, so that a busy machine blurs the figures less.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use benches::traffic;
use clap::Parser;

#[derive(Parser)]
struct Args {
    /// Rounds; each runs every program once.
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// Seconds of one run.
    #[arg(long, default_value_t = 2)]
    seconds: u64,
    /// CPU of the lcore that is measured.
    #[arg(long, default_value_t = 1)]
    cpu: usize,
    /// Bytes of a frame without FCS.
    #[arg(long, default_value_t = 60)]
    frame_len: usize,
}

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("peers: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<(), String> {
    println!("| flows | program | cycles per packet: median | min | max | above the source |");
    println!("|---|---|---|---|---|---|");
    for flows in [1, 1000] {
        let capture =
            std::env::temp_dir().join(format!("floodway-bench-{}-{flows}.pcap", std::process::id()));
        traffic::write_capture(&capture, flows, args.frame_len)
            .map_err(|error| format!("{}: {error}", capture.display()))?;
        let result = measure(args, flows, &capture);
        let _ = std::fs::remove_file(&capture);
        result?;
    }
    Ok(())
}

fn measure(args: &Args, flows: u16, capture: &Path) -> Result<(), String> {
    let (mut testpmd, mut edge) = (Vec::new(), Vec::new());
    for round in 0..args.rounds {
        testpmd.push(run_testpmd(args, capture)?);
        edge.push(run_edge(args, capture)?);
        eprintln!("flows {flows} round {round}: testpmd io {:.1}, edge {:.1}", testpmd[round], edge[round]);
    }
    let source = median(&mut testpmd);
    for (name, cycles) in [("testpmd io", &mut testpmd), ("floodway edge, VXLAN encap", &mut edge)] {
        let middle = median(cycles);
        println!(
            "| {flows} | {name} | {middle:.1} | {:.1} | {:.1} | {:.1} |",
            cycles[0],
            cycles[cycles.len() - 1],
            middle - source
        );
    }
    Ok(())
}

/// The middle of the values, which are sorted.
fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn run_edge(args: &Args, capture: &Path) -> Result<f64, String> {
    let program = beside_this("edge")?;
    let output = Command::new(&program)
        .args(["--cpu", &args.cpu.to_string(), "--seconds", &args.seconds.to_string(), "--capture"])
        .arg(capture)
        .output()
        .map_err(|error| format!("{}: {error}; build it with --features dpdk", program.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let value = text.split_whitespace().skip_while(|word| *word != "cycles_per_packet").nth(1);
    value
        .and_then(|value| value.parse().ok())
        .ok_or_else(|| format!("the edge benchmark failed: {}", String::from_utf8_lossy(&output.stderr)))
}

/// testpmd forwards from the same source to the same drain and touches nothing.
fn run_testpmd(args: &Args, capture: &Path) -> Result<f64, String> {
    let source = format!("net_pcap0,rx_pcap={},infinite_rx=1", capture.display());
    let cpus = format!("{},{}", usize::from(args.cpu == 0), args.cpu);
    // It runs until it is told to end: should it print nothing, `timeout` tells it.
    let limit = (args.seconds + 20).to_string();
    let mut child = Command::new("timeout")
        .args([&limit, "dpdk-testpmd"])
        .args([
            "-l",
            &cpus,
            "--no-pci",
            "--in-memory",
            "--vdev",
            &source,
            "--vdev",
            "net_null0,no-rx=1",
            "--",
        ])
        .args([
            "--auto-start",
            "--forward-mode=io",
            "--no-mlockall",
            "--total-num-mbufs=32768",
            "--stats-period",
            "1",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("dpdk-testpmd: {error}; install the package dpdk-dev"))?;
    let samples = child.stdout.take().map(|out| sample_testpmd(child.id(), out, args.seconds as usize + 2));
    // SIGTERM reaches testpmd through `timeout`.
    let _ = Command::new("kill").arg(child.id().to_string()).status();
    let _ = child.wait();
    let samples = samples.unwrap_or_default();
    let (Some(first), Some(last)) = (samples.get(1), samples.last()) else {
        return Err("dpdk-testpmd printed no statistics".into());
    };
    let hz = tsc_hz()?;
    Ok((last.1 - first.1) as f64 / 1e9 * hz / (last.0 - first.0) as f64)
}

/// Packets received by port 0, and nanoseconds that the forwarding lcore was on its CPU, at each statistics print.
fn sample_testpmd(pid: u32, out: impl std::io::Read, count: usize) -> Vec<(u64, u64)> {
    let mut samples = Vec::new();
    let mut port = None;
    for line in BufReader::new(out).lines().map_while(Result::ok) {
        if let Some(rest) = line.split("NIC statistics for port").nth(1) {
            port = rest.split_whitespace().next().and_then(|word| word.parse::<u32>().ok());
        }
        if port == Some(0) && line.trim_start().starts_with("RX-packets:") {
            let packets = line.split_whitespace().nth(1).and_then(|word| word.parse().ok());
            if let (Some(packets), Some(nanos)) = (packets, lcore_nanos(pid)) {
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

/// CPU time of the forwarding thread of the testpmd that `timeout`, which is `pid`, has started.
fn lcore_nanos(pid: u32) -> Option<u64> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    let pid = children.split_whitespace().next()?;
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let of = |name: &str| {
        let is =
            |task: &PathBuf| std::fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm.contains(name));
        tasks.filter_map(Result::ok).map(|task| task.path()).find(is)
    };
    // DPDK 22.11 calls it rte-worker-1, later releases dpdk-worker1.
    let task = of("worker")?;
    std::fs::read_to_string(task.join("schedstat")).ok()?.split_whitespace().next()?.parse().ok()
}

/// The rate of the time stamp counter, as the edge benchmark measures in.
fn tsc_hz() -> Result<f64, String> {
    let program = beside_this("edge")?;
    let output = Command::new(&program).arg("--print-hz").output().map_err(|error| error.to_string())?;
    String::from_utf8_lossy(&output.stdout).trim().parse().map_err(|_| "no TSC rate".to_string())
}

fn beside_this(name: &str) -> Result<PathBuf, String> {
    let this = std::env::current_exe().map_err(|error| error.to_string())?;
    Ok(this.with_file_name(name))
}
