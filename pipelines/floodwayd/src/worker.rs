//! The worker's thread: pinned, polling until told to stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, anyhow};
use edge::Edge;
use engine::Worker;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use packet::Backend;

use crate::args::Args;
use crate::clock::Clock;
use crate::plane::WorkerParts;
use crate::ports::World;

/// Polls without a packet before a worker that may sleep does so.
const IDLE_POLLS: u32 = 64;

/// A running worker.
pub struct Running {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Running {
    /// Lets the worker finish its poll, and waits for it. An error is what it panicked with.
    pub fn stop(self) -> Result<(), String> {
        self.stop.store(true, Ordering::Release);
        self.thread.join().map_err(|panic| match panic.downcast_ref::<&str>() {
            Some(text) => (*text).to_owned(),
            None => panic.downcast_ref::<String>().cloned().unwrap_or_default(),
        })
    }
}

/// Starts the worker on a thread of its own. When it ends by itself, which only a fault makes it do, the daemon ends
/// too: a data plane that does not forward must not look as if it did.
pub fn start<W: World>(
    args: &Args,
    world: &mut W,
    parts: WorkerParts,
    shutdown: &agent::Shutdown,
) -> anyhow::Result<Running> {
    let cpu = args.lcore.map_or_else(last_cpu, Ok)?;
    let ports = world.take_ports()?;
    let worker: Worker<W::Backend, Edge> =
        Worker::new(ports, parts.edge, parts.reader, parts.ledger, parts.dump);
    let clock = world.clock();
    let sleep = Duration::from_micros(u64::from(args.idle_sleep_us));
    let stop = Arc::new(AtomicBool::new(false));
    let (started, starting) = mpsc::channel();
    let enter = world.thread_entry();
    let (stop_asked, ended) = (stop.clone(), EndsDaemon(shutdown.clone()));
    let body = move || {
        let _ended = ended;
        let guard = match pin(cpu).and_then(|()| enter()) {
            Ok(guard) => guard,
            Err(error) => return drop(started.send(Err(error))),
        };
        drop(started.send(Ok(())));
        poll_until(worker, &clock, sleep, &stop_asked);
        drop(guard);
    };
    let thread =
        std::thread::Builder::new().name("worker-0".into()).spawn(body).context("cannot start a thread")?;
    starting.recv().map_err(|_| anyhow!("the worker's thread did not start"))??;
    tracing::info!(cpu, "worker 0 polls");
    Ok(Running { stop, thread })
}

/// Ends the daemon when it is dropped.
struct EndsDaemon(agent::Shutdown);

impl Drop for EndsDaemon {
    fn drop(&mut self) {
        self.0.trigger();
    }
}

/// Polls, and drops what is held at the end; the worker and its queues are dropped on this thread.
fn poll_until<B: Backend>(
    mut worker: Worker<B, Edge>,
    clock: &impl Clock,
    sleep: Duration,
    stop: &AtomicBool,
) {
    let mut idle_polls = 0;
    while !stop.load(Ordering::Acquire) {
        let now = clock.now();
        if worker.poll(now).received > 0 {
            idle_polls = 0;
            continue;
        }
        idle_polls += 1;
        if idle_polls >= IDLE_POLLS && !sleep.is_zero() {
            let until_deadline = Duration::from_nanos(worker.next_deadline().since(now).0);
            std::thread::sleep(sleep.min(until_deadline));
        } else {
            std::hint::spin_loop();
        }
    }
    worker.finish();
}

/// The last CPU that this process may use: the first is where the rest of the daemon runs.
fn last_cpu() -> anyhow::Result<usize> {
    let allowed = sched_getaffinity(Pid::from_raw(0)).context("no CPU affinity")?;
    let last = (0..CpuSet::count()).rev().find(|cpu| allowed.is_set(*cpu).unwrap_or(false));
    last.ok_or_else(|| anyhow!("no CPU to run on"))
}

fn pin(cpu: usize) -> anyhow::Result<()> {
    let mut set = CpuSet::new();
    let pinned = set.set(cpu).and_then(|()| sched_setaffinity(Pid::from_raw(0), &set));
    pinned.with_context(|| format!("the worker cannot run on CPU {cpu}: choose another with --lcore"))
}
