//! floodwayd: opens the ports, starts the workers, answers on a socket. No packet logic.
//!
//! Order of start: arguments, policy directory, socket (so that a second daemon ends before it touches a device),
//! ports, workers. Order of end: socket, workers, ports, DPDK; each lets go of what it holds.

mod args;
mod background;
mod clock;
mod ipfix;
mod log;
mod notify;
mod plane;
mod ports;
mod signals;
mod trace;
mod worker;

use std::process::ExitCode;
use std::sync::Arc;

use agent::Lifecycle;
use anyhow::{Context, anyhow};
use clap::Parser;
use program::Program;

use args::Args;
use plane::Plane;

/// What the daemon starts with.
struct Start {
    program: Program,
    lifecycle: Lifecycle,
}

fn main() -> ExitCode {
    let args = Args::parse();
    start_logging(&args.log);
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("floodwayd: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> anyhow::Result<()> {
    let start = read_policy(args)?;
    let mut listening = agent::bind(&args.socket)?;
    answer_metrics(args, &mut listening)?;
    let shutdown = agent::Shutdown::new();
    signals::end_on(&shutdown)?;
    if ports::want_dpdk(&start.program)? {
        run_on_dpdk(args, start, listening, &shutdown)
    } else {
        let mut opened = ports::host::open(args, &start.program)?;
        serve(args, start, listening, &shutdown, &mut opened)
    }
}

fn answer_metrics(args: &Args, listening: &mut agent::Listening) -> anyhow::Result<()> {
    let Some(address) = args.metrics else { return Ok(()) };
    let address = listening.answer_metrics(address)?;
    tracing::info!(%address, "metrics");
    if !address.ip().is_loopback() {
        tracing::warn!(%address, "whoever reaches this address reads the metrics, tenants' names among them");
    }
    Ok(())
}

#[cfg(feature = "dpdk")]
fn run_on_dpdk(
    args: &Args,
    start: Start,
    listening: agent::Listening,
    shutdown: &agent::Shutdown,
) -> anyhow::Result<()> {
    let mut opened = ports::dpdk::open(args, &start.program)?;
    serve(args, start, listening, shutdown, &mut opened)
}

#[cfg(not(feature = "dpdk"))]
fn run_on_dpdk(
    _args: &Args,
    _start: Start,
    _listening: agent::Listening,
    _shutdown: &agent::Shutdown,
) -> anyhow::Result<()> {
    Err(anyhow!(
        "the policy names dpdk: devices, and this floodwayd was built without DPDK: build it with --features dpdk"
    ))
}

/// Runs until the shutdown or until a worker ends by itself, which it never should.
fn serve<W: ports::World>(
    args: &Args,
    start: Start,
    listening: agent::Listening,
    shutdown: &agent::Shutdown,
    world: &mut W,
) -> anyhow::Result<()> {
    let Start { program, lifecycle } = start;
    let (plane, parts, records) = Plane::new(args, Arc::new(program), world.facts())?;
    let plane = plane.with_pool(world.pool());
    let plane = Arc::new(plane);
    let log = log::start(plane.clone(), records)?;
    let exporter = ipfix::start(&args.ipfix, plane.clone())?;
    let workers = worker::start(args, world, parts, shutdown)?;
    let notifier = notify::start(plane.clone(), args.socket.clone(), shutdown.clone())?;
    tracing::info!(socket = %args.socket.display(), "ready");
    listening.serve_with(plane.clone(), lifecycle, shutdown);
    tracing::info!("ending: the workers send what they hold and stop");
    notifier.stop();
    exporter.stop();
    let ended = workers.stop();
    log.stop();
    log_totals(&plane);
    ended.map_err(|(worker, panic)| anyhow!("worker {worker} ended by a fault: {panic}"))
}

fn read_policy(args: &Args) -> anyhow::Result<Start> {
    let (program, warnings, lifecycle) = Lifecycle::start(&agent::Start {
        policy: args.policy.clone(),
        state: args.state.clone(),
        watch: args.watch,
        generations_kept: args.history as usize,
    })?;
    if !warnings.is_empty() {
        eprintln!("{warnings}");
    }
    Ok(Start { program, lifecycle })
}

fn log_totals(plane: &Plane) {
    let held = plane.held();
    if held == 0 {
        tracing::info!("every packet is accounted for");
    } else {
        tracing::error!(held, "packets that are neither sent nor dropped");
    }
}

fn start_logging(filter: &str) {
    let filter = tracing_subscriber::EnvFilter::try_new(filter);
    let filter = filter.unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    // Colours are for a terminal: a journal and whoever searches it want the plain words.
    let ansi = std::io::IsTerminal::is_terminal(&std::io::stderr());
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    log.with_ansi(ansi).with_target(false).init();
}

/// Eight bytes from the kernel's generator: nobody outside can aim at one bucket of a flow table.
fn draw_seed() -> anyhow::Result<u64> {
    let mut bytes = [0; 8];
    let mut source = std::fs::File::open("/dev/urandom").context("cannot open /dev/urandom")?;
    std::io::Read::read_exact(&mut source, &mut bytes).context("cannot read /dev/urandom")?;
    Ok(u64::from_ne_bytes(bytes))
}
