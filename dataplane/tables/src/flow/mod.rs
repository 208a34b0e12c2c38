//! The exact-match flow table of one worker.
//!
//! An index of buckets, each one cache line of eight 16-bit tags and eight entry numbers, stands in front of an array of
//! entries of two cache lines: key and action on the first, bookkeeping on the second. A key has a home bucket and one
//! other; it lives in its home unless that is crowded, and never moves. So there is no rehash and no pause, and an
//! insert may be refused with both buckets full ([`Full::Bucket`]): some seven times in a million at full load, since at
//! most [`MAX_LOAD_PERCENT`] of the lanes are ever used.
//!
//! A burst is looked up in passes, so that the cache misses of its packets overlap: [`FlowTable::hash`] and
//! [`FlowTable::prefetch_bucket`] for all, [`FlowTable::candidate`] for all, then [`FlowTable::confirm`] and
//! [`FlowTable::count`] for all. A candidate that is not confirmed says nothing: ask [`FlowTable::find`].
//!
//! An insert changes what was learned before it: it may give the slot of an expired entry to another flow, and it may
//! add the very flow that a later packet of the burst missed. So confirm each packet right before acting on it, and
//! after a miss earlier in the burst ask [`FlowTable::find`] again where there was no candidate.

mod entry;
mod index;
mod key;
mod table;

pub use entry::{Entry, Timeout};
pub use index::MAX_LOAD_PERCENT;
pub(crate) use key::Secret;
pub use key::{FlowHash, FlowKey};
pub use table::{FlowTable, Full, Share, Slot};

#[cfg(test)]
mod tests;
