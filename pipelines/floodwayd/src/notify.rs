//! What systemd is told (sd_notify(3)): when the daemon serves, that its workers work, and that it ends.
//!
//! The watchdog is fed by the workers' progress. The thread that tells is none of theirs, and does nothing but look at
//! their counters: a worker that hangs is not covered by another that runs, nor by this thread.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use agent::client::Client;
use sd_notify::NotifyState;

use crate::background::Background;
use crate::plane::Plane;

/// Between two looks at the workers, at most; the watchdog's time may ask for more.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// That the daemon ends, by whatever it was asked.
const ENDS: &[NotifyState<'_>] =
    &[NotifyState::Stopping, NotifyState::Status("the workers send what they hold and stop")];

/// Starts the thread that tells systemd, when somebody listens.
pub fn start(plane: Arc<Plane>, socket: PathBuf, shutdown: agent::Shutdown) -> anyhow::Result<Background> {
    const WHAT: &str = "what tells systemd";
    if std::env::var_os("NOTIFY_SOCKET").is_none() {
        return Ok(Background::none(WHAT));
    }
    Background::start("notify", WHAT, move |stop| tell_until(&plane, &socket, &shutdown, stop))
}

fn tell_until(plane: &Plane, socket: &PathBuf, shutdown: &agent::Shutdown, stop: &AtomicBool) {
    // A quarter of the time in which systemd wants to hear: one look that comes late is no alarm.
    let every = sd_notify::watchdog_enabled().map(|time| time / 4);
    let look_again = every.map_or(LOOK_AGAIN, |every| every.min(LOOK_AGAIN));
    let (mut is_ready, mut is_stopping, mut said) = (false, false, String::new());
    let (mut progress, mut beaten) = (Progress::new(&plane.polls()), Instant::now());
    while !stop.load(Ordering::Acquire) {
        if !is_ready && serves(plane, socket) {
            is_ready = true;
            tell(&[NotifyState::Ready]);
        }
        if !is_stopping && shutdown.is_triggered() {
            is_stopping = true;
            tell(ENDS);
        }
        let standing = progress.look(&plane.polls());
        if every.is_some_and(|every| beaten.elapsed() >= every) && standing.is_none() {
            beaten = Instant::now();
            progress.begin();
            tell(&[NotifyState::Watchdog]);
        }
        let status = status(plane, standing.filter(|_| beaten.elapsed() > every.unwrap_or(LOOK_AGAIN) * 2));
        if is_ready && !is_stopping && status != said {
            tell(&[NotifyState::Status(&status)]);
            said = status;
        }
        std::thread::sleep(look_again);
    }
    if !is_stopping {
        tell(ENDS);
    }
}

/// True when every worker runs what was published, and the API answers as it would to anybody.
fn serves(plane: &Plane, socket: &PathBuf) -> bool {
    plane.settled().is_some() && Client::new(socket).status().is_ok()
}

fn status(plane: &Plane, standing: Option<usize>) -> String {
    match (standing, plane.settled()) {
        (Some(worker), _) => format!("worker {worker} does not poll"),
        (None, Some(generation)) => format!("generation {}, {} workers", generation.0, plane.polls().len()),
        (None, None) => "a worker does not run the program yet".into(),
    }
}

fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!("systemd cannot be told: {error}");
    }
}

/// Which workers have polled since the last beat.
struct Progress {
    polls: Vec<u64>,
    moved: Vec<bool>,
}

impl Progress {
    fn new(polls: &[u64]) -> Self {
        Self { polls: polls.to_vec(), moved: vec![false; polls.len()] }
    }

    /// A worker that has not polled since the last beat, if there is one.
    fn look(&mut self, polls: &[u64]) -> Option<usize> {
        for ((moved, before), now) in self.moved.iter_mut().zip(&mut self.polls).zip(polls) {
            *moved |= now != before;
            *before = *now;
        }
        self.moved.iter().position(|moved| !moved)
    }

    /// The beat was sent: from here on everybody has to poll again.
    fn begin(&mut self) {
        self.moved.fill(false);
    }
}

#[cfg(test)]
mod tests {
    use super::Progress;

    #[test]
    fn each_worker_has_to_poll_between_two_beats() {
        let mut progress = Progress::new(&[5, 5, 5]);
        assert_eq!(progress.look(&[5, 5, 5]), Some(0));
        assert_eq!(progress.look(&[6, 5, 6]), Some(1));
        // It has polled since the last beat, whether or not it has since the last look; a counter that wraps moves too.
        assert_eq!(progress.look(&[6, u64::MAX, 6]), None);
        progress.begin();
        assert_eq!(progress.look(&[7, u64::MAX, 7]), Some(1));
        assert_eq!(progress.look(&[8, 0, 8]), None);
    }

    #[test]
    fn without_workers_nobody_stands() {
        assert_eq!(Progress::new(&[]).look(&[]), None);
    }
}
