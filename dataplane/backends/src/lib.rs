//! Placeholder of the tree; filled by the next commits.

#[cfg(feature = "dpdk")]
pub mod dpdk;
