//! Whether marks of congestion arrive: on the cards, through the tunnel, and across the fabric.

use crate::{
    Machine, Setup,
    finding::{Found, ok, skipped, skipped_but, warn},
};

/// What a daemon calls a packet whose sender knows no ECN, and whose tunnel was marked (RFC 6040, section 4.2).
const ILLEGAL: &str = "illegal-ecn";

/// The switches of RoCE's congestion control by priority: notification point and reaction point of the mlx5 driver.
pub(crate) fn roce(machine: &Machine, _: &Setup) -> Found {
    let mut seen = Vec::new();
    for netdev in machine.netdevs() {
        for point in ["roce_np", "roce_rp"] {
            let folder = format!("/sys/class/net/{}/ecn/{point}/enable", netdev.name);
            let priorities = machine.list(&folder);
            if priorities.is_empty() {
                continue;
            }
            let is_on = |priority: &&String| {
                machine.read(&format!("{folder}/{priority}")).is_some_and(|on| on == "1")
            };
            let on: Vec<_> = priorities.iter().filter(is_on).cloned().collect();
            if on.is_empty() {
                return warn(
                    format!("{folder}: off at all priorities"),
                    "marked RoCEv2 packets slow nobody down",
                    format!("echo 1 > {folder}/3   # the priority of your RoCE traffic"),
                );
            }
            seen.push(format!("{} {point} on at {}", netdev.name, on.join(",")));
        }
    }
    match seen.is_empty() {
        true => skipped("/sys/class/net/*/ecn/roce_*", "no device has these switches"),
        false => ok(format!("/sys/class/net/*/ecn: {}", seen.join("; "))),
    }
}

pub(crate) fn tunnel(_: &Machine, setup: &Setup) -> Found {
    let Some(Ok(daemon)) = &setup.daemon else {
        return skipped("drops of floodwayd", "no floodwayd answers");
    };
    let drops = daemon.after.ports.iter().flat_map(|port| &port.drops);
    let dropped: u64 = drops.filter(|drop| drop.reason == ILLEGAL).map(|drop| drop.packets).sum();
    let seen = format!("drops of floodwayd: {dropped} {ILLEGAL}");
    match dropped {
        0 => ok(seen),
        _ => warn(
            seen,
            "something on the way marks tunnels whose packets know no ECN, or a far endpoint sets CE by itself",
            "look at the ECN of the far endpoint's outer headers: tcpdump -vni <uplink> 'udp port 4789 and ip[1] & 3 == 3'",
        ),
    }
}

/// A mark has to be set by a queue that is not this machine's: what it would do to itself proves nothing of the fabric.
pub(crate) fn end_to_end(_: &Machine, _: &Setup) -> Found {
    skipped_but(
        "this machine",
        "CE and DSCP across the fabric are seen only with a second card behind the switches",
        "on a far host of the tenant: ping -Q 0x02 <local host>; congest the path (ib_write_bw, several senders); here: \
         tcpdump -vni <tenant port> 'ip[1] & 3 == 3' has to show CE, and 'ip[1] & 0xfc' the DSCP that was sent",
    )
}
