//! Header views, the parser, checksums and the RoCEv2 ICRC: `no_std`, no I/O, no unsafe code, no allocation.
//!
//! - [`parse`] reads a frame once and answers with a compact [`Parsed`]: offsets, protocols, ports, flags.
//! - One module per protocol holds its header as a view over bytes, and its constants.
//! - [`checksum`], [`icrc`] and [`ecn`] check and rewrite frames in place.
//! - [`build`] writes the few packets floodway makes itself, [`vxlan`] the tunnel's outer headers.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

mod mac;
mod parse;

pub mod arp;
pub mod build;
pub mod checksum;
pub mod ecn;
pub mod ethernet;
pub mod icmp;
pub mod icmpv6;
pub mod icrc;
pub mod ipv4;
pub mod ipv6;
pub mod nd;
pub mod roce;
pub mod sctp;
pub mod tcp;
pub mod udp;
pub mod vxlan;

pub use mac::{Mac, ParseMacError};
pub use parse::{Flags, Fragment, L3, L4, Malformed, Parsed, Part, Quoted, parse, parse_into};
