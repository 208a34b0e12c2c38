//! Keeps what was agreed: holds the applier, rolls back when nobody confirms, and tells what goes on meanwhile.

use std::sync::{Arc, Mutex as SyncMutex, PoisonError};

use tokio::{
    sync::{Mutex, OwnedMutexGuard, watch},
    task,
    time::sleep_until,
};

use crate::{
    DataPlane,
    api::{HistoryList, Status, Unconfirmed, WatchStatus},
    applier::{Applier, Seen, Tally},
    recompile::Shared,
};

/// Shared by the routes, the timer and the watch.
pub(crate) struct Keeper {
    plane: Arc<dyn DataPlane>,
    applier: Arc<Mutex<Applier>>,
    seen: watch::Receiver<Seen>,
    recompiler: Shared,
    watch: SyncMutex<Option<WatchStatus>>,
}

impl Keeper {
    pub(crate) fn new(plane: Arc<dyn DataPlane>, applier: Applier) -> Arc<Self> {
        let (seen, recompiler) = (applier.seen(), applier.recompiler());
        let applier = Arc::new(Mutex::new(applier));
        Arc::new(Self { plane, applier, seen, recompiler, watch: SyncMutex::default() })
    }

    pub(crate) fn plane(&self) -> Arc<dyn DataPlane> {
        self.plane.clone()
    }

    pub(crate) fn recompiler(&self) -> Shared {
        self.recompiler.clone()
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

    pub(crate) fn tally(&self) -> Tally {
        self.seen.borrow().tally
    }

    /// Gives what was shown before.
    pub(crate) fn show_watch(&self, status: WatchStatus) -> Option<WatchStatus> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner).replace(status)
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

/// On a clock that stands still and jumps to the next timer when nothing else is left to do.
#[cfg(test)]
mod tests {
    use std::time::Duration;

    use policy::Source;
    use tokio::time::{Instant, sleep};

    use super::*;
    use crate::{
        Start,
        api::{Applied, ApplyRequest, By, Outcome, PolicyStatus},
        apply::Refusal,
        fake::{Fake, apply, sources},
        start::Lifecycle,
    };

    /// A daemon that runs the files of port 1, and keeps state.
    struct Daemon {
        directory: tempfile::TempDir,
        plane: Arc<Fake>,
        keeper: Arc<Keeper>,
        timer: task::JoinHandle<()>,
    }

    fn write(directory: &std::path::Path, port: u16) {
        std::fs::create_dir_all(directory.join("p")).unwrap();
        for file in sources(port) {
            std::fs::write(directory.join(file.name), file.text).unwrap();
        }
    }

    impl Daemon {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            write(directory.path(), 1);
            Self::on(directory)
        }

        fn on(directory: tempfile::TempDir) -> Self {
            let start = Start {
                policy: directory.path().join("p"),
                state: Some(directory.path().join("state")),
                watch: false,
                generations_kept: 16,
            };
            let (program, _, lifecycle) = Lifecycle::start(&start).unwrap();
            let plane = Arc::new(Fake::running(program));
            let keeper = Keeper::new(plane.clone(), lifecycle.into_applier());
            let timer = tokio::spawn(keeper.clone().keep_deadlines());
            Self { directory, plane, keeper, timer }
        }

        /// The process is gone, and another one starts.
        async fn killed(self) -> Self {
            Self::on(self.gone().await)
        }

        async fn gone(self) -> tempfile::TempDir {
            let Self { directory, keeper, timer, .. } = self;
            timer.abort();
            assert!(timer.await.unwrap_err().is_cancelled());
            // The last that had it: its lock on the state goes as with a process.
            assert_eq!(Arc::strong_count(&keeper), 1);
            directory
        }

        async fn apply(&self, port: u16, confirm_s: Option<u32>) -> Result<Applied, Refusal> {
            let request = ApplyRequest { confirm_s, ..apply(port) };
            self.keeper.exclusively(|applier, plane| applier.apply(plane, request, By::Apply)).await.unwrap()
        }

        async fn confirm(&self, generation: Option<u32>) -> Result<u32, String> {
            let result =
                self.keeper.exclusively(move |applier, plane| applier.confirm(plane, generation)).await;
            result.unwrap().map(|kept| kept.generation).map_err(|refusal| refusal.to_string())
        }

        async fn rollback(&self, to: Option<u32>) -> Result<Applied, String> {
            let result = self.keeper.exclusively(move |applier, plane| applier.rollback(plane, to)).await;
            result.unwrap().map_err(|refusal| refusal.to_string())
        }

        fn history(&self) -> Vec<(u32, By, Outcome)> {
            let entries = self.keeper.history().generations;
            entries.iter().map(|entry| (entry.generation, entry.by, entry.outcome)).collect()
        }

        fn digest(&self) -> String {
            agent::digest(&DataPlane::running(&*self.plane))
        }

        async fn until_nothing_waits(&self) {
            let mut seen = self.keeper.seen();
            seen.wait_for(|seen| seen.pending.is_none()).await.unwrap();
        }
    }

    fn digest(port: u16) -> String {
        let source = |text: crate::api::SourceText| Source { name: text.name, bytes: text.text.into() };
        format!("{:016x}", policy::digest(&sources(port).into_iter().map(source).collect::<Vec<_>>()))
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_confirms_is_rolled_back_in_time() {
        let this = Daemon::new();
        let start = Instant::now();
        assert_eq!(this.apply(2, Some(30)).await.unwrap().generation, 2);
        assert_eq!(this.digest(), digest(2));
        sleep(Duration::from_millis(29_900)).await;
        assert_eq!(this.keeper.status().unconfirmed.unwrap().generation, 2);
        this.until_nothing_waits().await;
        let took = start.elapsed();
        assert!((30_000..30_100).contains(&took.as_millis()), "{took:?}");
        assert_eq!((this.digest(), this.plane.generations()), (digest(1), vec![1, 2, 3]));
        let expected = [
            (1, By::Start, Outcome::Confirmed),
            (2, By::Apply, Outcome::RolledBack),
            (3, By::Rollback, Outcome::Confirmed),
        ];
        assert_eq!(this.history(), expected);
        assert_eq!(this.confirm(None).await.unwrap_err(), "nothing waits to be confirmed");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_confirmed_stays() {
        let this = Daemon::new();
        this.apply(2, Some(30)).await.unwrap();
        let error = this.confirm(Some(1)).await.unwrap_err();
        assert_eq!(error, "generation 2 waits to be confirmed, not 1");
        assert_eq!(this.confirm(Some(2)).await, Ok(2));
        sleep(Duration::from_secs(7200)).await;
        assert_eq!((this.digest(), this.plane.generations()), (digest(2), vec![1, 2]));
        write(this.directory.path(), 3);
        std::fs::write(this.directory.path().join("p/red.yaml"), "no policy").unwrap();
        assert_eq!(this.killed().await.digest(), digest(2));
    }

    #[tokio::test(start_paused = true)]
    async fn meanwhile_other_files_are_refused_with_a_sentence() {
        let this = Daemon::new();
        this.apply(2, Some(30)).await.unwrap();
        for confirm_s in [None, Some(60)] {
            let refusal = this.apply(3, confirm_s).await.unwrap_err();
            assert!(matches!(refusal, Refusal::Waiting { generation: 2, .. }), "{refusal}");
        }
        assert_eq!(this.rollback(None).await.unwrap().generation, 3);
        assert_eq!((this.digest(), this.history()[1].2), (digest(1), Outcome::RolledBack));
        assert_eq!(this.apply(3, None).await.unwrap().generation, 4);
        // The deadline of what is no more does not strike.
        sleep(Duration::from_secs(7200)).await;
        assert_eq!(this.digest(), digest(3));
    }

    /// The same files in the directory do not make it good: that may be what took the daemon down.
    #[tokio::test(start_paused = true)]
    async fn a_daemon_that_dies_unconfirmed_starts_with_what_was_good() {
        let this = Daemon::new();
        this.apply(2, Some(30)).await.unwrap();
        write(this.directory.path(), 2);
        let this = this.killed().await;
        assert_eq!(this.digest(), digest(1));
        let status = this.keeper.status();
        assert_eq!(status.policy, PolicyStatus::LastGood);
        let error = status.refused.unwrap().error;
        assert!(
            error.contains("was applied as generation 2, and not confirmed; starting with the last"),
            "{error}"
        );
        assert_eq!(this.history().last(), Some(&(3, By::LastGood, Outcome::Confirmed)));
        // Somebody who means it says so.
        assert_eq!(this.apply(2, None).await.unwrap().generation, 4);
        let this = this.killed().await;
        assert_eq!((this.digest(), this.keeper.status().policy), (digest(2), PolicyStatus::Current));
    }

    /// Two files are written for a confirmation. A kill between them leaves a last-good that is unconfirmed by the other.
    #[tokio::test(start_paused = true)]
    async fn a_daemon_that_dies_while_it_is_confirmed_starts_with_it() {
        let this = Daemon::new();
        this.apply(2, Some(30)).await.unwrap();
        write(this.directory.path(), 2);
        let directory = this.gone().await;
        let state = directory.path().join("state");
        std::fs::copy(state.join("generation-2"), state.join("last-good")).unwrap();
        let this = Daemon::on(directory);
        assert_eq!((this.digest(), this.keeper.status().policy), (digest(2), PolicyStatus::Current));
        assert_eq!(this.history().last(), Some(&(3, By::Start, Outcome::Confirmed)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_stuck_worker_delays_neither_deadline_nor_truth() {
        let this = Daemon::new();
        this.plane.set_stuck(&[1]);
        assert!(matches!(this.apply(2, Some(30)).await, Err(Refusal::Stuck { .. })));
        assert!(this.confirm(None).await.unwrap_err().contains("do not run it: 1"));
        this.plane.set_stuck(&[]);
        assert_eq!(this.confirm(None).await, Ok(2));
        this.plane.set_stuck(&[0]);
        assert!(matches!(this.apply(3, Some(30)).await, Err(Refusal::Stuck { .. })));
        this.until_nothing_waits().await;
        assert_eq!((this.digest(), this.history()[2].2), (digest(2), Outcome::RolledBack));
        assert_eq!(this.history()[3], (4, By::Rollback, Outcome::Stuck));
        this.plane.set_stuck(&[]);
        assert!(!this.apply(2, None).await.unwrap().changed);
        assert_eq!(this.history()[3], (4, By::Rollback, Outcome::Confirmed));
    }

    #[tokio::test(start_paused = true)]
    async fn a_rollback_that_is_not_taken_is_tried_again() {
        let this = Daemon::new();
        this.apply(2, Some(1)).await.unwrap();
        this.plane.set_rejects(true);
        sleep(Duration::from_secs(60)).await;
        assert_eq!(this.keeper.status().unconfirmed.unwrap().generation, 2);
        let error = this.keeper.status().refused.unwrap().error;
        assert!(error.starts_with("rolling back from generation 2: "), "{error}");
        this.plane.set_rejects(false);
        this.until_nothing_waits().await;
        assert_eq!((this.digest(), this.keeper.status().refused), (digest(1), None));
    }

    #[tokio::test(start_paused = true)]
    async fn a_rejected_program_leaves_no_trace() {
        let this = Daemon::new();
        this.plane.set_rejects(true);
        assert!(matches!(this.apply(2, Some(30)).await, Err(Refusal::Rejected(_))));
        assert_eq!(this.keeper.status().unconfirmed, None);
        assert_eq!(this.history(), [(1, By::Start, Outcome::Confirmed)]);
        this.plane.set_rejects(false);
        assert_eq!(this.apply(2, None).await.unwrap().generation, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn each_kept_generation_can_be_gone_back_to() {
        let this = Daemon::new();
        for port in 2..=4 {
            this.apply(port, None).await.unwrap();
        }
        let rolled = this.rollback(Some(2)).await.unwrap();
        assert_eq!((rolled.generation, this.digest()), (5, digest(2)));
        assert_eq!((this.rollback(None).await.unwrap().generation, this.digest()), (6, digest(4)));
        assert!(!this.rollback(Some(6)).await.unwrap().changed);
        let error = this.rollback(Some(9)).await.unwrap_err();
        assert_eq!(
            error,
            "no way back to generation 9: it is not kept; kept are 1, 2, 3, 4, 5, 6; nothing was changed"
        );
        // Over a restart too, with numbers that go on.
        write(this.directory.path(), 4);
        let this = this.killed().await;
        assert_eq!((this.digest(), this.plane.generations()), (digest(4), vec![6]));
        assert_eq!((this.rollback(Some(1)).await.unwrap().generation, this.digest()), (7, digest(1)));
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_generations_go_first() {
        let this = Daemon::new();
        for port in 2..=40 {
            this.apply(port, None).await.unwrap();
        }
        let numbers: Vec<u32> = this.history().iter().map(|entry| entry.0).collect();
        assert_eq!(numbers, (25..=40).collect::<Vec<_>>());
        // And last-good, and nothing else.
        assert_eq!(std::fs::read_dir(this.directory.path().join("state")).unwrap().count(), 17);
    }

    #[tokio::test(start_paused = true)]
    async fn a_disk_that_fails_warns_and_the_program_runs() {
        let this = Daemon::new();
        let state = this.directory.path().join("state");
        // Nothing can be renamed onto a directory.
        std::fs::remove_file(state.join("last-good")).unwrap();
        std::fs::create_dir(state.join("last-good")).unwrap();
        let applied = this.apply(2, None).await.unwrap();
        let warning = applied.warnings.list[0].message.clone();
        assert!(warning.contains("last-good: is a directory; a restart would not know"), "{warning}");
        assert!(this.keeper.status().state.unwrap().error.is_some());
        assert_eq!((this.rollback(None).await.unwrap().generation, this.digest()), (3, digest(1)));
        std::fs::remove_dir(state.join("last-good")).unwrap();
        assert!(this.apply(3, None).await.unwrap().warnings.is_empty());
        assert_eq!(this.keeper.status().state.unwrap().error, None);
    }
}
