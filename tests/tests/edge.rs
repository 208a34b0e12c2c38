//! What the edge pipeline does with single packets, both directions.

use program::DropReason;
use scenarios::frames::{tunnel, untunnel};
use scenarios::rig::port_mac;
use scenarios::scene::{PEER_VTEP_MAC, RED, demo as rig, outer};

#[test]
fn an_allowed_packet_leaves_in_its_tenants_tunnel() {
    let mut rig = rig();
    let frame = RED.tcp((40_000, 5201), "S", b"");
    let out = rig.pass("red0", &frame, "uplink0");
    assert_eq!(out.len(), 1, "{:?}", rig.drops());
    let seen = untunnel(&out[0]);
    assert_eq!(seen.inner, frame);
    assert_eq!(seen.vni, 100);
    assert_eq!(seen.macs, (PEER_VTEP_MAC, port_mac(0)));
    assert_eq!(seen.ends, ([192, 0, 2, 1], [192, 0, 2, 2]));
    assert!(seen.src_port >= 49_152);
    rig.assert_balanced();
}

#[test]
fn a_reply_comes_back_and_only_after_the_request() {
    let mut rig = rig();
    let reply = tunnel(outer(), 0, 100, &RED.reversed().tcp((5201, 40_000), "SA", b""));
    assert!(rig.pass("uplink0", &reply, "red0").is_empty());
    assert_eq!(rig.dropped(DropReason::PolicyDefault), 1);
    assert_eq!(rig.pass("red0", &RED.tcp((40_000, 5201), "S", b""), "uplink0").len(), 1);
    assert_eq!(rig.pass("uplink0", &reply, "red0").len(), 1, "{:?}", rig.drops());
    rig.assert_balanced();
}

#[test]
fn what_no_rule_allows_is_dropped_by_name() {
    let mut rig = rig();
    assert!(rig.pass("red0", &RED.tcp((40_000, 9999), "S", b""), "uplink0").is_empty());
    assert!(rig.pass("red0", &RED.tcp((40_000, 22), "S", b""), "uplink0").is_empty());
    assert_eq!((rig.dropped(DropReason::PolicyDeny), rig.dropped(DropReason::PolicyDefault)), (1, 1));
    rig.assert_balanced();
}
