//! Tells the server to end, from any thread.

use tokio::sync::watch;

/// A handle that ends a server. Clones are the same handle. Not for use inside a signal handler: a thread that waits
/// for signals calls [`Shutdown::trigger`].
#[derive(Clone, Debug)]
pub struct Shutdown {
    triggered: watch::Sender<bool>,
}

impl Default for Shutdown {
    fn default() -> Self {
        Self { triggered: watch::Sender::new(false) }
    }
}

impl Shutdown {
    /// A handle that is not triggered.
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends the server, now or as soon as it starts. Calling it again changes nothing.
    pub fn trigger(&self) {
        self.triggered.send_replace(true);
    }

    /// True once triggered.
    pub fn is_triggered(&self) -> bool {
        *self.triggered.borrow()
    }

    /// Returns once triggered.
    pub(crate) async fn triggered(&self) {
        // The sender lives as long as `self`, so waiting cannot fail.
        let _ = self.triggered.subscribe().wait_for(|&triggered| triggered).await;
    }
}
