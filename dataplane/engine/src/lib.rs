//! What every pipeline runs in: the worker's poll, its ledger of packets, what it holds, and its way out
//! to the ports.
//!
//! Sans-IO: the caller owns thread, clock and sleep; [`Worker::poll`] is given the time and never waits.
#![forbid(unsafe_code)]

mod dump;
mod hold;
mod journal;
mod layout;
mod ledger;
mod outbox;
mod peers;
mod worker;

pub use dump::{Dump, DumpRequest, Dumped, Subject};
pub use hold::{Held, Hold, Queue};
pub use journal::{Event, Head, Journal, SNAP};
pub use layout::{Layout, Owner, WorkerId};
pub use ledger::{Account, Gauge, Ledger, LedgerReader, Logged, Tally};
pub use outbox::Outbox;
pub use peers::{Closing, Peers, RING_DEPTH};
pub use worker::{Io, Pipeline, Poll, Worker, WorkerPorts};
