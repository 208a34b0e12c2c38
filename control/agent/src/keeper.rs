//! Keeps what was agreed: holds the applier, rolls back when nobody confirms, and tells what goes on meanwhile.

use std::{
    mem,
    sync::{Arc, Mutex as SyncMutex, PoisonError},
};

use tokio::{
    sync::{Mutex, OwnedMutexGuard, watch},
    task,
    time::sleep_until,
};

use crate::{
    DataPlane,
    api::{HistoryList, Status, Unconfirmed, WatchStatus},
    applier::{Applier, Seen},
};

/// Shared by the routes, the timer and the watch.
pub(crate) struct Keeper {
    plane: Arc<dyn DataPlane>,
    applier: Arc<Mutex<Applier>>,
    seen: watch::Receiver<Seen>,
    watch: SyncMutex<Option<WatchStatus>>,
}

impl Keeper {
    pub(crate) fn new(plane: Arc<dyn DataPlane>, applier: Applier) -> Arc<Self> {
        let seen = applier.seen();
        let applier = Arc::new(Mutex::new(applier));
        Arc::new(Self { plane, applier, seen, watch: SyncMutex::default() })
    }

    pub(crate) fn plane(&self) -> Arc<dyn DataPlane> {
        self.plane.clone()
    }

    /// Waits until nobody else changes anything.
    pub(crate) async fn applier(&self) -> OwnedMutexGuard<Applier> {
        self.applier.clone().lock_owned().await
    }

    /// Works on a thread that may block, and alone. `None` when it panicked, which is logged.
    pub(crate) async fn exclusively<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Applier, &dyn DataPlane) -> T + Send + 'static,
    ) -> Option<T> {
        let (plane, mut applier) = (self.plane(), self.applier().await);
        let result = task::spawn_blocking(move || work(&mut applier, &*plane)).await;
        result.inspect_err(|error| tracing::error!("a change failed: {error}")).ok()
    }

    /// What the applier shows; changes after each change.
    pub(crate) fn seen(&self) -> watch::Receiver<Seen> {
        self.seen.clone()
    }

    pub(crate) fn history(&self) -> HistoryList {
        HistoryList { generations: self.seen.borrow().entries.clone() }
    }

    pub(crate) fn status(&self) -> Status {
        let seen = self.seen.borrow().clone();
        let unconfirmed = |pending: &crate::applier::Pending| Unconfirmed {
            generation: pending.generation,
            left_ms: pending.left().as_millis().try_into().unwrap_or(u64::MAX),
        };
        Status {
            policy: seen.policy(),
            unconfirmed: seen.pending.as_ref().map(unconfirmed),
            running: seen.entries.last().cloned(),
            refused: seen.refused,
            state: seen.state,
            watch: self.watch.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }

    /// Gives what was shown before.
    pub(crate) fn show_watch(&self, status: WatchStatus) -> Option<WatchStatus> {
        mem::replace(&mut *self.watch.lock().unwrap_or_else(PoisonError::into_inner), Some(status))
    }

    /// Rolls back at each deadline; does not end. By the monotonic clock, so that setting the time changes nothing.
    pub(crate) async fn keep_deadlines(self: Arc<Self>) {
        let mut seen = self.seen();
        loop {
            let deadline = seen.borrow_and_update().pending.as_ref().map(|pending| pending.deadline);
            let passed = async {
                match deadline {
                    Some(deadline) => sleep_until(deadline).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                changed = seen.changed() => if changed.is_err() { return },
                () = passed => drop(self.exclusively(|applier, plane| applier.expire(plane)).await),
            }
        }
    }
}
