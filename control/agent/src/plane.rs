//! What the API needs of the data plane.

use std::{sync::Arc, time::Duration};

use program::{
    FlowRecord, Generation, Program, QueuePairRecord, Report, TraceReport, TraceRequest, TraceStarted,
};

/// The data plane as the control plane sees it. Methods may block for up to about a second; the server calls them from
/// threads that may wait, and never calls [`DataPlane::publish`] twice at the same time.
pub trait DataPlane: Send + Sync + 'static {
    /// The program that was published last.
    fn running(&self) -> Arc<Program>;

    /// Hands `program` to the workers and waits until each of them runs it.
    ///
    /// # Errors
    /// See [`PublishError`]: it says whether the program was published all the same.
    fn publish(&self, program: Program) -> Result<Published, PublishError>;

    /// Counters at this moment.
    fn report(&self) -> Report;

    /// At most `limit` flow entries, of any worker.
    fn flows(&self, limit: usize) -> Vec<FlowRecord>;

    /// At most `limit` of the flow entries that are wanted, of all that there are.
    fn flows_wanted(&self, wanted: &dyn Fn(&FlowRecord) -> bool, limit: usize) -> Vec<FlowRecord>;
    /// At most `limit` queue pairs, of any worker.
    fn queue_pairs(&self, limit: usize) -> Vec<QueuePairRecord>;

    /// Traces packets from now on, one trace at a time.
    ///
    /// # Errors
    /// See [`TraceError`].
    fn begin_trace(&self, request: &TraceRequest) -> Result<TraceStarted, TraceError>;

    /// What a trace has found since the last call, each packet once. `None` when it is not the one that was begun last.
    fn traced(&self, trace: u64) -> Option<TraceReport>;

    /// Ends a trace; false when it is not the one that was begun last.
    fn end_trace(&self, trace: u64) -> bool;
}

/// Every worker runs the new program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Published {
    /// Its generation.
    pub generation: Generation,
    /// From the swap of the root pointer to the last worker's acknowledgement.
    pub took: Duration,
}

/// Not every worker runs the new program.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PublishError {
    /// The program is published and is what [`DataPlane::running`] gives, but these workers did not acknowledge it.
    #[error("workers {workers:?} did not take up the program within {} ms", waited.as_millis())]
    Stuck {
        /// Their numbers.
        workers: Vec<u32>,
        /// How long was waited.
        waited: Duration,
    },
    /// The data plane cannot run this program. It was not published; the one before runs on.
    #[error("the data plane cannot run it: {reason}")]
    Rejected {
        /// Why, as a clause.
        reason: String,
    },
}

/// There is no such trace.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TraceError {
    /// Another one runs.
    #[error("{by} has been tracing for {} s, and there is one trace at a time", since.as_secs())]
    Busy {
        /// Who began it.
        by: String,
        /// How long ago.
        since: Duration,
    },
    /// The request names what is not there, or is out of bounds.
    #[error("{reason}")]
    Impossible {
        /// Why, as a clause.
        reason: String,
    },
}
