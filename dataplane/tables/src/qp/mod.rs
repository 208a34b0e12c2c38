//! RoCEv2 queue pairs of one worker: which two queue pairs talk to each other, and what they said last.
//!
//! A packet names the queue pair that it goes to and not the one that it comes from, so the other direction of a flow
//! cannot be told from its headers. It is learned, in one of two ways:
//!
//! - from the **connection manager** ([`QpTable::hear`]): REQ and REP carry both queue pairs and the PSN that each side
//!   is to begin with, DREQ ends it. Every message is taken from its two hosts only: a third host's finds nothing.
//! - from **traffic** ([`QpTable::open`], [`QpTable::answer`]): a request opens half a pair; the first response between
//!   the same hosts whose PSN is one of the requests seen, of that half pair and no other, completes it.
//!
//! What a packet does to its pair is [`QpTable::record`]: PSNs in 24-bit serial arithmetic, the order of FIRST, MIDDLE,
//! LAST and ONLY, negative acknowledgements, CNPs. It takes a [`Link`], found once per flow; a link to a pair that has
//! ended, or whose place another pair has, is stale.
//!
//! Bounds: a fixed number of pairs, a quota for each tenant of which traffic may learn half, no allocation after
//! construction. When there is no room a pair is not tracked ([`Full`]); nothing is evicted before its time.

mod chains;
mod connection;
mod end;
mod pair;
mod step;
mod table;

pub use end::{Counts, Note, Packet, Refusal};
pub use pair::Naks;
pub use pair::{Pair, Service, State};
pub use table::{Found, Full, Heard, Hosts, Link, QpTable, Side, View};

#[cfg(test)]
mod tests;
