//! What every pipeline runs in: the worker's poll, its ledger of packets, and its way out to the ports.
//!
//! Sans-IO: the caller owns thread, clock and sleep; [`Worker::poll`] is given the time and never waits.
#![forbid(unsafe_code)]

mod dump;
mod ledger;
mod outbox;
mod worker;

pub use dump::{Dump, DumpRequest, Dumped, Subject};
pub use ledger::{Account, Gauge, Ledger, LedgerReader, Tally};
pub use outbox::Outbox;
pub use worker::{Io, Pipeline, Poll, Worker, WorkerPorts};
