//! Header views, checksums and the RoCEv2 ICRC: `no_std`, no I/O, no unsafe code, no allocation.
#![no_std]
#![forbid(unsafe_code)]

mod mac;

pub use mac::{Mac, ParseMacError};
