//! Threads beside the workers, which end when they are asked to.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use anyhow::Context;

/// One such thread, or none where there is nothing to do.
#[must_use = "it goes on until it is stopped"]
pub struct Background {
    what: &'static str,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    /// Starts a thread named `name` that does `what`. It is to end soon after the flag that it is given has become true.
    pub fn start(
        name: &str,
        what: &'static str,
        body: impl FnOnce(&AtomicBool) + Send + 'static,
    ) -> anyhow::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let asked = stop.clone();
        let thread = std::thread::Builder::new().name(name.into()).spawn(move || body(&asked));
        Ok(Self { what, stop, thread: Some(thread.context("cannot start a thread")?) })
    }

    /// Nothing to do.
    pub fn none(what: &'static str) -> Self {
        Self { what, stop: Arc::default(), thread: None }
    }

    /// Asks it to end, and waits until it has.
    pub fn stop(self) {
        self.stop.store(true, Ordering::Release);
        if self.thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("{} ended by a fault", self.what);
        }
    }
}
