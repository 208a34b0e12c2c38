//! Runs floodway and its peers in turn on the same traffic and the same core, several rounds, and prints the table of
//! docs/benchmarks.md.
//!
//! A run's time is the time that its lcore was on the CPU, so that a busy machine blurs the figures less.

mod floodway;
mod ovs;
mod testpmd;
mod thread_time;

use std::path::Path;
use std::process::ExitCode;

use benches::traffic::{Traffic, Transport};
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
    /// Only the rows whose name contains this.
    #[arg(long, default_value = "")]
    only: String,
    /// Leave Open vSwitch out.
    #[arg(long)]
    no_ovs: bool,
}

/// One program at one work.
#[derive(Clone, Copy)]
enum Runner {
    Testpmd,
    Floodway(floodway::Work),
    Ovs(ovs::Work),
}

/// Programs that do the same work on the same traffic.
struct Row {
    work: &'static str,
    flows: u32,
    transport: Transport,
    runners: Vec<(&'static str, Runner)>,
}

const HIT: floodway::Work = floodway::Work { rules: 0, misses: false };

fn rows() -> Vec<Row> {
    let testpmd = ("testpmd io (source and drain)", Runner::Testpmd);
    let hit = ("floodway: edge, VXLAN", Runner::Floodway(HIT));
    let forward = ("OVS-DPDK: 5-tuple, no tunnel", Runner::Ovs(ovs::Work::Forward));
    let encapsulate = ("OVS-DPDK: 5-tuple, VXLAN", Runner::Ovs(ovs::Work::Encapsulate));
    let row =
        |work, flows, transport, runners: &[_]| Row { work, flows, transport, runners: runners.to_vec() };
    let udp = Transport::Udp;
    let track = ("OVS-DPDK: conntrack, no tunnel", Runner::Ovs(ovs::Work::Track));
    let track_encapsulate = ("OVS-DPDK: conntrack, VXLAN", Runner::Ovs(ovs::Work::TrackAndEncapsulate));
    let tcp = ("floodway: edge, TCP, VXLAN", Runner::Floodway(HIT));
    let miss = floodway::Work { rules: 10_000, misses: true };
    // As many as a million flows are spread over.
    let all = floodway::Work { rules: 12_288, ..miss };
    vec![
        row("hit", 1, udp, &[testpmd, hit]),
        row("hit", 1_000, udp, &[testpmd, hit, forward, encapsulate]),
        row("hit", 10_000, udp, &[testpmd, hit, forward, encapsulate]),
        row("hit", 1_000_000, udp, &[testpmd, hit]),
        row("stateful hit", 1_000, Transport::Tcp, &[testpmd, tcp, track, track_encapsulate]),
        row("queue pairs", 1_000, Transport::Roce, &[testpmd, ("floodway: edge, RoCEv2, VXLAN", hit.1)]),
        row(
            "miss, 10,000 rules",
            100_000,
            udp,
            &[
                ("floodway: edge, VXLAN", Runner::Floodway(miss)),
                ("OVS-DPDK: upcall, no tunnel", Runner::Ovs(ovs::Work::Miss(10_000))),
            ],
        ),
        row("miss, 12,288 rules", 1_000_000, udp, &[("floodway: edge, VXLAN", Runner::Floodway(all))]),
    ]
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
    let hz = floodway::tsc_hz()?;
    println!("| work | flows | program | cycles per packet: median | min | max | packets per second |");
    println!("|---|---|---|---|---|---|---|");
    for row in rows().iter().filter(|row| row.work.contains(&args.only)) {
        let traffic = Traffic { flows: row.flows, frame_len: args.frame_len, transport: row.transport };
        let capture =
            std::env::temp_dir().join(format!("floodway-bench-{}-{}.pcap", std::process::id(), row.flows));
        traffic.write_capture(&capture).map_err(|error| format!("{}: {error}", capture.display()))?;
        let result = measure(args, hz, row, &traffic, &capture);
        let _ = std::fs::remove_file(&capture);
        result?;
    }
    Ok(())
}

/// All rounds of a row, its programs in turn; prints a line for each program.
fn measure(args: &Args, hz: f64, row: &Row, traffic: &Traffic, capture: &Path) -> Result<(), String> {
    let wanted = |runner: &Runner| !(args.no_ovs && matches!(runner, Runner::Ovs(_)));
    let runners: Vec<_> = row.runners.iter().filter(|(_, runner)| wanted(runner)).collect();
    let mut cycles = vec![Vec::new(); runners.len()];
    for round in 0..args.rounds {
        for ((name, runner), cycles) in runners.iter().zip(&mut cycles) {
            let value = match runner {
                Runner::Testpmd => testpmd::run(args, hz, traffic, capture)?,
                Runner::Floodway(work) => floodway::run(args, traffic, *work, capture)?,
                Runner::Ovs(work) => ovs::run(args, hz, traffic, *work, capture)?,
            };
            eprintln!("{} {} flows, round {round}: {name} {value:.1}", row.work, row.flows);
            cycles.push(value);
        }
    }
    for ((name, _), cycles) in runners.iter().zip(&mut cycles) {
        cycles.sort_by(f64::total_cmp);
        let (Some(min), Some(max)) = (cycles.first(), cycles.last()) else { continue };
        let median = cycles[cycles.len() / 2];
        println!(
            "| {} | {} | {name} | {median:.1} | {min:.1} | {max:.1} | {:.2} M |",
            row.work,
            row.flows,
            hz / median / 1e6
        );
    }
    Ok(())
}
