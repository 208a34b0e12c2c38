//! Data structures of the hot path: no I/O, no clock, no allocation after construction, no unsafe code.
//!
//! Each belongs to one worker, or is only read, and is bounded; what a structure does when it is full is said at its type.
#![forbid(unsafe_code)]

pub mod bucket;
pub mod classifier;
pub mod connection;
pub mod flow;
pub mod fragments;
pub mod lpm;
pub mod neighbour;
pub mod prefix;
pub mod qp;
pub mod wheel;
