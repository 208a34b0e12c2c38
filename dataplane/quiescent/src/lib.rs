//! Everything that two threads touch at once: publication to workers, counters, rings, shared words.
//!
//! A worker never waits here: no lock, no read-modify-write, one atomic load where it reads and one store where it
//! writes. Loom checks the protocols: `RUSTFLAGS="--cfg loom" cargo test -p quiescent --release --lib loom`.

pub mod cell;
pub mod counters;
#[cfg(all(test, loom))]
mod loom;
pub mod publish;
pub mod ring;
mod sync;

pub use cell::SharedWords;
pub use publish::{Epoch, Publisher, Reader, ReaderId};
