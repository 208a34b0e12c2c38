//! The workers' threads: pinned, polling until told to stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, anyhow};
use edge::Edge;
use engine::{Layout, Peers, RING_DEPTH, Worker, WorkerId};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use packet::Backend;

use crate::args::Args;
use crate::clock::Clock;
use crate::plane::WorkerParts;
use crate::ports::World;

/// Polls without a packet before a worker that may sleep does so.
const IDLE_POLLS: u32 = 64;
/// Between two looks at what others hand to a worker that ends, until they end too.
const DRAIN_AGAIN: Duration = Duration::from_micros(100);

/// The running workers.
pub struct Running {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Running {
    /// Lets the workers finish their polls, and waits for them. An error is the number of one that panicked, and what with.
    pub fn stop(self) -> Result<(), (usize, String)> {
        self.stop.store(true, Ordering::Release);
        let ended: Vec<_> = self.threads.into_iter().map(JoinHandle::join).collect();
        let panicked = ended.into_iter().enumerate().find_map(|(worker, end)| Some((worker, end.err()?)));
        let Some((worker, panic)) = panicked else { return Ok(()) };
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        Err((worker, text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()))
    }
}

/// Starts each worker on a thread of its own. When one ends by itself, which only a fault makes it do, the daemon ends
/// too: a data plane that does not forward must not look as if it did.
pub fn start<W: World>(
    args: &Args,
    world: &mut W,
    parts: Vec<WorkerParts>,
    shutdown: &agent::Shutdown,
) -> anyhow::Result<Running> {
    let cpus = cpus(&args.lcores, parts.len())?;
    let layout = Layout::new(args.workers(), world.queues());
    let peers = Peers::all(&layout, RING_DEPTH);
    let mut running = Running { stop: Arc::new(AtomicBool::new(false)), threads: Vec::new() };
    for (((number, parts), peers), cpu) in layout.all().zip(parts).zip(peers).zip(cpus) {
        let ports = world.take_ports(&layout, number);
        let worker = Worker::new(ports, parts.edge, parts.reader, parts.ledger, parts.dump).join(peers);
        let sleep = Duration::from_micros(u64::from(args.idle_sleep_us));
        let thread = Thread { number, cpu, sleep, stop: running.stop.clone(), shutdown: shutdown.clone() };
        match thread.start(world, worker) {
            Ok(thread) => running.threads.push(thread),
            Err(error) => {
                // What the others ended with says less than why this one did not start.
                let _ = running.stop();
                return Err(error);
            }
        }
        tracing::info!(cpu, "worker {} polls", number.0);
    }
    Ok(running)
}

/// A worker's thread, before it runs.
struct Thread {
    number: WorkerId,
    cpu: usize,
    sleep: Duration,
    stop: Arc<AtomicBool>,
    shutdown: agent::Shutdown,
}

impl Thread {
    /// Returns once it polls.
    fn start<W: World>(self, world: &W, worker: Worker<W::Backend, Edge>) -> anyhow::Result<JoinHandle<()>> {
        let (clock, enter) = (world.clock(), world.thread_entry());
        let (started, starting) = mpsc::channel();
        let name = format!("worker-{}", self.number.0);
        let body = move || {
            let _ended = EndsDaemon(self.shutdown);
            let guard = match pin(self.cpu).and_then(|()| enter()) {
                Ok(guard) => guard,
                Err(error) => return drop(started.send(Err(error))),
            };
            drop(started.send(Ok(())));
            poll_until(worker, &clock, self.sleep, &self.stop);
            drop(guard);
        };
        let thread = std::thread::Builder::new().name(name).spawn(body).context("cannot start a thread")?;
        starting.recv().map_err(|_| anyhow!("the worker's thread did not start"))??;
        Ok(thread)
    }
}

/// Ends the daemon when it is dropped.
struct EndsDaemon(agent::Shutdown);

impl Drop for EndsDaemon {
    fn drop(&mut self) {
        self.0.trigger();
    }
}

/// Polls, and drops what is held at the end; the worker and its queues are dropped on this thread, and so is what others
/// have handed to it at the end.
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
    let mut closing = worker.close();
    while !closing.drain() {
        std::thread::sleep(DRAIN_AGAIN);
    }
}

/// A CPU for each worker: those given, in turn, else the last that this process may use. The first is where the rest of
/// the daemon runs, and is left to it as long as there are others.
fn cpus(given: &[usize], workers: usize) -> anyhow::Result<Vec<usize>> {
    if !given.is_empty() {
        return Ok(given.iter().copied().cycle().take(workers).collect());
    }
    let allowed = sched_getaffinity(Pid::from_raw(0)).context("no CPU affinity")?;
    let all: Vec<usize> = (0..CpuSet::count()).filter(|cpu| allowed.is_set(*cpu).unwrap_or(false)).collect();
    choose_cpus(&all, workers).ok_or_else(|| anyhow!("no CPU to run on"))
}

fn choose_cpus(allowed: &[usize], workers: usize) -> Option<Vec<usize>> {
    let others = allowed.get(1..).filter(|others| !others.is_empty()).unwrap_or(allowed);
    let chosen = &others[others.len().saturating_sub(workers)..];
    (!chosen.is_empty()).then(|| chosen.iter().copied().cycle().take(workers).collect())
}

fn pin(cpu: usize) -> anyhow::Result<()> {
    let mut set = CpuSet::new();
    let pinned = set.set(cpu).and_then(|()| sched_setaffinity(Pid::from_raw(0), &set));
    pinned.with_context(|| format!("a worker cannot run on CPU {cpu}: choose another with --lcores"))
}

#[cfg(test)]
mod tests {
    use super::choose_cpus;

    #[test]
    fn the_first_cpu_is_left_to_the_daemon_where_there_are_others() {
        assert_eq!(choose_cpus(&[0, 1, 2, 3], 1), Some(vec![3]));
        assert_eq!(choose_cpus(&[0, 1, 2, 3], 2), Some(vec![2, 3]));
        assert_eq!(choose_cpus(&[0, 1, 2, 3], 5), Some(vec![1, 2, 3, 1, 2]));
        assert_eq!(choose_cpus(&[4], 2), Some(vec![4, 4]));
        assert_eq!(choose_cpus(&[], 1), None);
    }
}
