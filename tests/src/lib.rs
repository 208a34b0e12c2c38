//! Scenarios: the whole pipeline, by hand and between hosts that speak real TCP/IP, in virtual time and without root.

pub mod demo;
pub mod frames;
pub mod host;
pub mod policies;
pub mod rig;
pub mod vxlan_peer;
