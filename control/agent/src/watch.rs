//! Applies what changes in the policy directory, as `POST /v1/apply` does, and with whom it waits in one line.
//!
//! A change is read once the directory has been quiet for a moment, or has not been for a second: latest wins, and a
//! directory that never rests costs a bounded share.

use std::{path::PathBuf, sync::Arc, time::Duration};

use policy::Source;
use tokio::{
    task,
    time::{Instant, sleep_until, timeout, timeout_at},
};

use crate::{
    api::{By, WatchStatus},
    applier::How,
    apply::Refusal,
    files::{FilesError, read_directory},
    keeper::Keeper,
    start::{Found, found},
    watch_ears::Ears,
};

/// So long the directory has to be quiet before it is read,
const QUIET: Duration = Duration::from_millis(100);
/// unless it has not been for so long.
const RESTLESS: Duration = Duration::from_secs(1);
/// At least so long from one reading to the next.
const PAUSE: Duration = Duration::from_millis(500);
/// From one look to the next, where changes are not heard.
const POLL: Duration = Duration::from_secs(2);
/// From one look to the next, where they are: a file behind a link elsewhere may change unheard.
const LOOK: Duration = Duration::from_secs(30);

/// Nobody is there to say that something unproven is meant.
const WATCHED: How = How { by: By::Watch, confirm: None, is_unproven_taken: false };

/// Watches until it is dropped.
pub(crate) async fn watch(keeper: Arc<Keeper>, directory: PathBuf, handled: Found) {
    let ears = Ears::new(&directory);
    let mut watch = Watch { keeper, directory, handled, reads: 0 };
    watch.run(ears, Ears::listen).await;
}

struct Watch {
    keeper: Arc<Keeper>,
    directory: PathBuf,
    /// The last files that were applied or refused.
    handled: Found,
    reads: u64,
}

impl Watch {
    async fn run(&mut self, mut ears: Ears, listen: impl Fn(&mut Ears) -> Result<(), String>) {
        let mut seen = self.keeper.seen();
        loop {
            // Before the directory is read, so that no change falls in between.
            let polling = listen(&mut ears).err();
            let next = Instant::now() + if polling.is_some() { POLL } else { LOOK };
            let rested = Instant::now() + PAUSE;
            // Whoever waits for a confirmation is not overtaken; this goes on when the wait is over.
            let is_waiting = seen.borrow_and_update().pending.is_some() || !self.look().await;
            self.show(polling);
            loop {
                tokio::select! {
                    () = ears.heard() => {
                        quiet(&ears).await;
                        break;
                    }
                    () = sleep_until(next) => break,
                    changed = seen.changed() => match changed {
                        Err(_) => return,
                        Ok(()) if is_waiting && seen.borrow_and_update().pending.is_none() => break,
                        Ok(()) => {}
                    },
                }
            }
            sleep_until(rested).await;
        }
    }

    /// Reads the directory, and applies it if it is not what was read last. False when it has to wait for whoever
    /// confirms.
    async fn look(&mut self) -> bool {
        let directory = self.directory.clone();
        let Ok(read) = task::spawn_blocking(move || read_directory(&directory)).await else { return true };
        self.reads += 1;
        let found = found(&read);
        if self.handled == found {
            return true;
        }
        let is_handled = self.handle(read).await;
        if is_handled {
            self.handled = found;
        }
        is_handled
    }

    /// False when it is to be tried again.
    async fn handle(&self, read: Result<Vec<Source>, FilesError>) -> bool {
        let directory = self.directory.display().to_string();
        let work = move |applier: &mut crate::applier::Applier, plane: &dyn crate::DataPlane| {
            let refusal = match read {
                Err(error) => {
                    let refusal = Refusal::Impossible(format!("{error}; the running program stays"));
                    applier.refuse_unread(format!("watching {directory}: {refusal}"), &refusal, By::Watch);
                    return true;
                }
                Ok(sources) => match applier.apply_sources(plane, sources, WATCHED) {
                    Ok(_) => return true,
                    Err(Refusal::Waiting { .. }) => return false,
                    Err(refusal) => refusal,
                },
            };
            applier.refuse(format!("watching {directory}: {refusal}"), &refusal);
            true
        };
        // After a panic the same files are not tried again.
        self.keeper.exclusively(work).await.unwrap_or(true)
    }

    fn show(&self, polling: Option<String>) {
        let status =
            WatchStatus { directory: self.directory.display().to_string(), polling, reads: self.reads };
        let (directory, polling) = (status.directory.clone(), status.polling.clone());
        let before = self.keeper.show_watch(status);
        match (&polling, before.and_then(|before| before.polling)) {
            (Some(reason), None) => {
                tracing::warn!(directory, "inotify is of no use ({reason}): looking every {POLL:?} instead");
            }
            (None, Some(_)) => tracing::info!(directory, "watching by inotify again"),
            _ => {}
        }
    }
}

/// Returns when nothing was heard for a moment, or enough was.
async fn quiet(ears: &Ears) {
    let enough = Instant::now() + RESTLESS;
    let settled = async { while timeout(QUIET, ears.heard()).await.is_ok() {} };
    let _ = timeout_at(enough, settled).await;
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;
    use crate::{
        fake::{Fake, sources},
        history::History,
    };

    #[tokio::test(start_paused = true)]
    async fn what_has_to_wait_is_not_forgotten() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), 1);
        let policy = root.path().join("p");
        let start = crate::Start { policy: policy.clone(), state: None, watch: true, generations_kept: 16 };
        let (program, _, lifecycle) = crate::Lifecycle::start(&start).unwrap();
        let handled = lifecycle.watch.clone().unwrap().1;
        let plane = Arc::new(Fake::running(program));
        let keeper = Keeper::new(plane.clone(), lifecycle.into_applier());
        let mut watch = Watch { keeper: keeper.clone(), directory: policy, handled, reads: 0 };
        assert!(watch.look().await);
        let request = crate::api::ApplyRequest { confirm_s: Some(30), ..crate::fake::apply(7) };
        let apply = |applier: &mut crate::applier::Applier, plane: &dyn crate::DataPlane| {
            applier.apply(plane, request, By::Apply).is_ok()
        };
        assert_eq!(keeper.exclusively(apply).await, Some(true));
        assert!(watch.look().await);
        write(root.path(), 2);
        assert!(!watch.look().await);
        assert!(!watch.look().await);
        assert_eq!(plane.generations(), [1, 2]);
        let confirm = |applier: &mut crate::applier::Applier, plane: &dyn crate::DataPlane| {
            applier.confirm(plane, None).is_ok()
        };
        assert_eq!(keeper.exclusively(confirm).await, Some(true));
        assert!(watch.look().await);
        assert!(watch.look().await);
        assert_eq!(plane.generations(), [1, 2, 3]);
    }

    fn write(directory: &std::path::Path, port: u16) {
        std::fs::create_dir_all(directory.join("p")).unwrap();
        for file in sources(port) {
            std::fs::write(directory.join(file.name), file.text).unwrap();
        }
    }

    /// On a clock that jumps to the next timer: without inotify it is the timer that finds each change.
    #[tokio::test(start_paused = true)]
    async fn without_inotify_the_directory_is_looked_at_every_two_seconds() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), 1);
        let applier =
            crate::applier::Applier::new(History::in_memory(16), None, crate::Recompiler::default());
        let keeper = Keeper::new(Arc::new(Fake::default()), applier);
        let mut seen = keeper.seen();
        let directory = root.path().join("p");
        let mut watch = Watch {
            keeper: keeper.clone(),
            directory: directory.clone(),
            handled: Err("nothing yet".into()),
            reads: 0,
        };
        tokio::spawn(async move {
            let deaf = |_: &mut Ears| Err("too many open files".to_owned());
            watch.run(Ears::new(&directory), deaf).await;
        });
        for port in 1..4 {
            write(root.path(), port);
            let start = Instant::now();
            let runs = |seen: &crate::applier::Seen| seen.entries.len() == usize::from(port);
            seen.wait_for(runs).await.unwrap();
            assert!(start.elapsed() <= POLL + Duration::from_millis(10), "{:?}", start.elapsed());
        }
        advance(Duration::from_millis(1)).await;
        let watch = keeper.status().watch.unwrap();
        assert_eq!(watch.polling.as_deref(), Some("too many open files"));
    }
}
