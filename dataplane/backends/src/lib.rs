//! Ports behind the traits of [`packet`]: in memory, Linux TAP and capture files.
//!
//! They share one buffer type, [`MemoryBuf`], so that a daemon without DPDK mixes them freely; [`host`] opens any
//! of them by its device string.

pub mod memory;
