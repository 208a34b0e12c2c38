//! The scene that most tests play in: [`policies::DEMO`] on a [`Rig`] whose next hops have answered.

use std::net::Ipv6Addr;

use wire::Mac;

use crate::frames::{Ends, tunnel};
use crate::frames6::Ends6;
use crate::policies;
use crate::rig::{Rig, port_mac};

/// Whatever is reached on the fabric.
pub const PEER_VTEP_MAC: Mac = Mac([2, 0xee, 0, 0, 0, 2]);
/// Red's gateway: the default of VNI 100.
pub const RED_GATEWAY: Mac = Mac([2, 0xfd, 0, 0, 100, 1]);

/// Red's host on `red0` towards its peer.
pub const RED: Ends = Ends {
    src_mac: Mac([2, 0, 0, 0, 0x0a, 0x10]),
    dst_mac: Mac([2, 0, 0, 0, 0x0a, 0x20]),
    src: [10, 1, 0, 10],
    dst: [10, 1, 0, 20],
};
/// Blue's host on `blue0` towards its peer: red's addresses, its own MACs.
pub const BLUE: Ends =
    Ends { src_mac: Mac([2, 0, 0, 0, 0x0b, 0x10]), dst_mac: Mac([2, 0, 0, 0, 0x0b, 0x20]), ..RED };
/// Red's host on `red0` towards red's host on `red1`.
pub const RED_LOCAL: Ends = Ends { dst_mac: Mac([2, 0, 0, 0, 0x0a, 0x11]), dst: [10, 1, 0, 11], ..RED };
/// Red's host on `red0` towards its peer, over IPv6.
pub const RED6: Ends6 = Ends6 {
    src_mac: RED.src_mac,
    dst_mac: RED.dst_mac,
    src: Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0x10),
    dst: Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0x20),
};
/// Red's gateway, over IPv6.
pub const RED_GATEWAY6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);

/// The demo's policy, next hops resolved.
pub fn demo() -> Rig {
    with(policies::DEMO)
}

/// Another policy on the same ports, next hops resolved.
pub fn with(texts: &[&str]) -> Rig {
    let mut rig = Rig::new(texts);
    rig.resolve_next_hops("uplink0", PEER_VTEP_MAC);
    rig
}

/// The outer ends of what the endpoint `fabric` sends.
pub fn outer() -> Ends {
    Ends { src_mac: PEER_VTEP_MAC, dst_mac: port_mac(0), src: [192, 0, 2, 2], dst: [192, 0, 2, 1] }
}

/// A frame from the endpoint `fabric`.
pub fn from_fabric(vni: u32, inner: &[u8]) -> Vec<u8> {
    tunnel(outer(), 0, vni, inner)
}
