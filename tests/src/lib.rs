//! Scenarios: the whole pipeline, by hand and between hosts that speak real TCP/IP, in virtual time and without root.

pub mod corpus;
pub mod crew;
pub mod cuts;
pub mod daemon;
pub mod demo;
pub mod frames;
pub mod frames6;
pub mod host;
pub mod policies;
pub mod rig;
pub mod scene;
pub mod storm;
pub mod verbs;
pub mod vxlan_peer;
