//! Hears by inotify that a directory changed, whatever way it did: files in it, its `..data` link, itself.
//!
//! Its parent is listened to as well, for a directory that is removed and made again, or a link that is switched.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use notify::{
    Config, Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher,
    event::{AccessKind, AccessMode, ModifyKind},
};
use tokio::sync::Notify;

/// Listens to one directory. Events only wake; what happened is read from the directory.
pub(crate) struct Ears {
    directory: PathBuf,
    /// Many wakes that nobody waited for are one.
    wake: Arc<Notify>,
    listening: Option<Listening>,
}

struct Listening {
    /// Ends its thread when dropped.
    _watcher: RecommendedWatcher,
    /// What is listened to: the parent and the directory, by device and inode.
    identities: [Option<(u64, u64)>; 2],
    /// The directory, or a link to it, has gone or come.
    is_stale: Arc<AtomicBool>,
}

impl Ears {
    /// Hears nothing before [`Ears::listen`].
    pub(crate) fn new(directory: &Path) -> Self {
        let directory = std::path::absolute(directory).unwrap_or_else(|_| directory.into());
        Self { directory, wake: Arc::default(), listening: None }
    }

    /// Returns after something changed.
    pub(crate) async fn heard(&self) {
        self.wake.notified().await;
    }

    /// Listens to what bears the name now. A directory that is not there yet is no error.
    ///
    /// # Errors
    /// Why nothing is heard, as a clause.
    pub(crate) fn listen(&mut self) -> Result<(), String> {
        let parent = self.directory.parent().unwrap_or(&self.directory).to_owned();
        let identities = [identity(&parent), identity(&self.directory)];
        if let Some(listening) = &self.listening
            && listening.identities == identities
            && !listening.is_stale.load(Ordering::Acquire)
        {
            return Ok(());
        }
        // The old one goes first: it may hold the last inotify instance that this user may have.
        self.listening = None;
        let is_stale = Arc::new(AtomicBool::new(false));
        let mut watcher = self.watcher(is_stale.clone()).map_err(clause)?;
        watcher.watch(&parent, RecursiveMode::NonRecursive).map_err(clause)?;
        if identities[1].is_some() {
            watcher.watch(&self.directory, RecursiveMode::NonRecursive).map_err(clause)?;
        }
        self.listening = Some(Listening { _watcher: watcher, identities, is_stale });
        Ok(())
    }

    fn watcher(&self, is_stale: Arc<AtomicBool>) -> notify::Result<RecommendedWatcher> {
        let (directory, wake) = (self.directory.clone(), self.wake.clone());
        let hear = move |event: notify::Result<Event>| match event {
            Ok(event) if is_news(&event, &directory) => {
                if concerns_itself(&event, &directory) {
                    is_stale.store(true, Ordering::Release);
                }
                wake.notify_one();
            }
            Ok(_) => {}
            Err(error) => {
                tracing::warn!("watching {}: {error}", directory.display());
                is_stale.store(true, Ordering::Release);
                wake.notify_one();
            }
        };
        RecommendedWatcher::new(hear, Config::default())
    }
}

/// Reading is no news, or the daemon would wake itself; nor is what else happens in the parent.
fn is_news(event: &Event, directory: &Path) -> bool {
    let is_change = match event.kind {
        EventKind::Access(access) => access == AccessKind::Close(AccessMode::Write),
        _ => true,
    };
    let is_here = |path: &PathBuf| path == directory || path.parent() == Some(directory);
    event.need_rescan() || is_change && event.paths.iter().any(is_here)
}

fn concerns_itself(event: &Event, directory: &Path) -> bool {
    let comes_or_goes = matches!(
        event.kind,
        EventKind::Create(_) | EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(_))
    );
    event.need_rescan() || comes_or_goes && event.paths.iter().any(|path| path == directory)
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    let metadata = fs::metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

fn clause(error: notify::Error) -> String {
    match error.kind {
        notify::ErrorKind::MaxFilesWatch => "the limit of inotify watches is reached".into(),
        notify::ErrorKind::Io(error) => crate::files::sentence(&error),
        _ => error.to_string(),
    }
}
