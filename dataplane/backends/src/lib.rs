//! Ports behind the traits of [`packet`]: in memory, Linux TAP and capture files.
//!
//! They share one buffer type, [`memory::MemoryBuf`], so that a daemon without DPDK mixes them freely; [`host`]
//! opens any of them by its device string.

pub mod allocations;
pub mod counts;
#[cfg(feature = "dpdk")]
pub mod dpdk;
pub mod host;
pub mod memory;
pub mod pcap;
pub mod tap;

use wire::Mac;

/// What is known of an open port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortFacts {
    /// The interface's name, or the device string of a port that has no interface.
    pub name: String,
    /// The address of the port's own end, for frames that the worker makes.
    pub mac: Mac,
    /// Largest IP packet that it carries, in bytes.
    pub mtu: u16,
}

/// Bytes that a frame may have beyond its IP packet: Ethernet header and one 802.1Q tag, without FCS.
pub const FRAME_OVERHEAD: usize = 18;
