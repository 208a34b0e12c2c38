//! Scenarios: the whole pipeline between hosts that speak real TCP/IP, in virtual time and without root.

pub mod host;
pub mod vxlan_peer;
