//! Data structures of the hot path: no I/O, no clock, no allocation after construction, no unsafe code.
//!
//! Each belongs to one worker and is bounded; what a structure does when it is full is said at its type.
#![forbid(unsafe_code)]

pub mod bucket;
pub mod flow;
pub mod neighbour;
pub mod qp;
