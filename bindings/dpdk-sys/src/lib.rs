//! Raw bindings to the DPDK that pkg-config finds, made at build time; see the crate `dpdk` for safe ones.
//!
//! Functions `shim_*` stand for DPDK's static inlines (their text is in `c/shim.h`), constants `SHIM_MBUF_*` are byte
//! offsets of `rte_mbuf`'s fields on this target. Only what floodway calls is bound.
#![no_std]
#![allow(
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    missing_docs,
    clippy::all,
    clippy::undocumented_unsafe_blocks
)]

/// The DPDK release that this build was made for, such as `22.11.11`.
pub const VERSION: &str = env!("DPDK_VERSION");

include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
