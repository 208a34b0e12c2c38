//! Measures floodway, and its peers in the same run: same traffic, same core, interleaved.
//!
//! Benchmarks measure time; tests check behaviour. Nothing here decides whether a change may land.

pub mod classbench;
pub mod daemon;
pub mod directory;
pub mod scene;
pub mod stage;
pub mod traffic;
