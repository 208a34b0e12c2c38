//! What every backend and every pipeline agree on: packet buffers, bursts, ports, time.
//!
//! A pipeline is generic over a [`Backend`] and monomorphised for it, so that the hot path has no virtual call.
#![deny(unsafe_code)]

#[allow(unsafe_code)]
pub mod arch;
mod backend;
pub mod rss;
mod time;

pub use backend::{Allocator, BURST, Backend, Buf, Burst, PortIo, RxQueue, TxQueue};
pub use time::Nanos;
