//! Tenants apart, ports apart, and packets that are not what they claim to be.

use std::net::Ipv6Addr;

use program::DropReason;
use scenarios::frames::{Ends, untunnel};
use scenarios::frames6::{Ends6, extend};
use scenarios::policies::{FABRIC, TENANTS};
use scenarios::rig::Rig;
use scenarios::scene::{BLUE, RED, RED_LOCAL, RED6, demo, from_fabric, with};
use wire::Mac;

const ALL_OPEN: &str = r#"
apiVersion: floodway.dev/v1alpha1
kind: TenantPolicy
metadata: {name: open}
spec: {tenant: red, egress: [{action: Accept}], ingress: [{action: Accept}]}
---
apiVersion: floodway.dev/v1alpha1
kind: TenantPolicy
metadata: {name: open}
spec: {tenant: blue, egress: [{action: Accept}], ingress: [{action: Accept}]}
"#;

const PORTS: [&str; 4] = ["uplink0", "red0", "red1", "blue0"];

fn open() -> Rig {
    with(&[FABRIC, TENANTS, ALL_OPEN])
}

/// Sends a frame twice, which must be dropped for that reason both times, and leave nowhere.
fn refused(rig: &mut Rig, port: &str, frame: &[u8], reason: DropReason) {
    for _ in 0..2 {
        let before = rig.dropped(reason);
        rig.send(port, frame);
        rig.settle();
        assert_eq!(rig.dropped(reason), before + 1, "{reason:?}: {:?}", rig.drops());
        for other in PORTS {
            assert!(rig.take(other).is_empty(), "nothing leaves {other}");
        }
    }
    rig.assert_balanced();
}

/// The ports that a frame leaves by.
fn leaves(rig: &mut Rig, port: &str, frame: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    rig.send(port, frame);
    rig.settle();
    let all = PORTS.into_iter().flat_map(|port| rig.take(port).into_iter().map(move |frame| (port, frame)));
    let all = all.collect();
    rig.assert_balanced();
    all
}

#[test]
fn the_same_addresses_meet_their_own_tenant_only() {
    let mut rig = open();
    for _ in 0..2 {
        for (port, ends, vni) in [("red0", RED, 100), ("blue0", BLUE, 200)] {
            let sent = ends.tcp((40_000, 80), "S", b"");
            let seen = leaves(&mut rig, port, &sent);
            assert_eq!((seen.len(), seen[0].0), (1, "uplink0"));
            let seen = untunnel(&seen[0].1);
            assert_eq!((seen.vni, seen.inner), (vni, sent));
            let back = ends.reversed().tcp((80, 40_000), "SA", b"");
            assert_eq!(leaves(&mut rig, "uplink0", &from_fabric(vni, &back)), [(port, back)]);
        }
    }
}

#[test]
fn a_reply_in_the_other_tenants_tunnel_is_no_reply() {
    let mut rig = demo();
    rig.pass("red0", &RED.tcp((40_000, 5201), "S", b""), "uplink0");
    let reply = BLUE.reversed().tcp((5201, 40_000), "SA", b"");
    refused(&mut rig, "uplink0", &from_fabric(200, &reply), DropReason::PolicyDefault);
    let reply = RED.reversed().tcp((5201, 40_000), "SA", b"");
    refused(&mut rig, "uplink0", &from_fabric(200, &reply), DropReason::PolicyDefault);
}

#[test]
fn reds_frame_in_blues_tunnel_meets_blues_rules_and_macs() {
    let mut rig = open();
    let reds = RED.reversed().udp((7, 8), b"x");
    refused(&mut rig, "uplink0", &from_fabric(200, &reds), DropReason::UnknownDestinationMac);
    let only_red = Ends { dst: [10, 1, 0, 11], dst_mac: Mac([2, 0, 0, 0, 0x0a, 0x11]), ..RED.reversed() };
    refused(&mut rig, "uplink0", &from_fabric(200, &only_red.udp((7, 8), b"x")), DropReason::NoRoute);
    // From an endpoint behind which blue has nobody.
    let mut other = from_fabric(200, &BLUE.reversed().udp((7, 8), b"x"));
    other[29] = 3;
    assert!(wire::checksum::fill_ipv4_header(&mut other[14..]));
    refused(&mut rig, "uplink0", &other, DropReason::SpoofedAddress);
}

#[test]
fn blue_cannot_reach_what_only_red_has() {
    let mut rig = open();
    for dst in [[10, 1, 0, 11], [10, 1, 0, 30], [10, 9, 1, 1]] {
        for dst_mac in [Mac([2, 0, 0, 0, 0x0a, 0x11]), Mac([2, 0xfd, 0, 0, 200, 1])] {
            let frame = Ends { dst, dst_mac, ..BLUE }.udp((7, 8), b"x");
            refused(&mut rig, "blue0", &frame, DropReason::NoRoute);
        }
    }
}

#[test]
fn a_vxlan_frame_from_a_tenant_is_that_tenants_payload() {
    let mut rig = open();
    // B063: the port alone does not make it a tunnel.
    let mut outer = RED;
    (outer.dst, outer.dst_mac) = ([10, 1, 0, 20], RED.dst_mac);
    let sent = scenarios::frames::tunnel(outer, 0, 200, &BLUE.udp((7, 8), b"x"));
    let seen = leaves(&mut rig, "red0", &sent);
    assert_eq!((seen.len(), seen[0].0), (1, "uplink0"));
    let seen = untunnel(&seen[0].1);
    assert_eq!((seen.vni, seen.inner), (100, sent.clone()));
    // And a tunnel in a tunnel is delivered to red, never opened for blue.
    let nested = scenarios::frames::tunnel(RED.reversed(), 0, 200, &BLUE.reversed().udp((7, 8), b"x"));
    assert_eq!(leaves(&mut rig, "uplink0", &from_fabric(100, &nested)), [("red0", nested)]);
    // Towards the underlay's own addresses there is no way.
    let underlay = scenarios::frames::tunnel(Ends { dst: [192, 0, 2, 1], ..RED }, 0, 200, &sent);
    refused(&mut rig, "red0", &underlay, DropReason::NoRoute);
}

fn local_rules(egress: &str, ingress: &str) -> String {
    format!(
        "apiVersion: floodway.dev/v1alpha1\nkind: TenantPolicy\nmetadata: {{name: e}}\n\
         spec: {{tenant: red, ports: [red0], egress: [{egress}]}}\n---\n\
         apiVersion: floodway.dev/v1alpha1\nkind: TenantPolicy\nmetadata: {{name: i}}\n\
         spec: {{tenant: red, ports: [red1], ingress: [{ingress}]}}\n"
    )
}

#[test]
fn between_two_ports_both_sides_rules_are_asked() {
    let accept = "{action: Accept, services: [{protocol: TCP, port: 80}]}";
    let sent = RED_LOCAL.tcp((40_000, 80), "S", b"");
    for (egress, ingress) in [("", ""), (accept, ""), ("", accept)] {
        let mut rig = with(&[FABRIC, TENANTS, &local_rules(egress, ingress)]);
        refused(&mut rig, "red0", &sent, DropReason::PolicyDefault);
    }
    let mut rig = with(&[FABRIC, TENANTS, &local_rules(accept, accept)]);
    let back = RED_LOCAL.reversed().tcp((80, 40_000), "SA", b"");
    refused(&mut rig, "red1", &back, DropReason::PolicyDefault);
    assert_eq!(leaves(&mut rig, "red0", &sent), [("red1", sent)]);
    assert_eq!(leaves(&mut rig, "red1", &back), [("red0", back)]);
    let from_remote = Ends { dst: [10, 1, 0, 11], dst_mac: RED_LOCAL.dst_mac, ..RED.reversed() };
    let seen = leaves(&mut rig, "uplink0", &from_fabric(100, &from_remote.tcp((1, 80), "S", b"")));
    assert_eq!(seen[0].0, "red1", "the fabric has no egress rules here");
}

#[test]
fn the_source_is_the_ports_own() {
    let mut rig = open();
    let udp = |ends: Ends| ends.udp((7, 8), b"x");
    let mac = |last| Mac([2, 0, 0, 0, 0x0a, last]);
    refused(&mut rig, "red0", &udp(Ends { src_mac: mac(0x11), ..RED }), DropReason::SpoofedMac);
    refused(&mut rig, "red0", &udp(Ends { src_mac: Mac([0; 6]), ..RED }), DropReason::SpoofedMac);
    refused(
        &mut rig,
        "red0",
        &udp(Ends { src_mac: Mac([3, 0, 0, 0, 0x0a, 0x10]), ..RED }),
        DropReason::SpoofedMac,
    );
    refused(&mut rig, "red0", &udp(BLUE), DropReason::SpoofedMac);
    for src in [[10, 1, 0, 11], [10, 1, 0, 99], [10, 1, 0, 1], [0; 4], [8, 8, 8, 8]] {
        refused(&mut rig, "red0", &udp(Ends { src, ..RED }), DropReason::SpoofedAddress);
    }
    for src in [[127, 0, 0, 1], [224, 0, 0, 5], [255; 4], RED.dst] {
        refused(&mut rig, "red0", &udp(Ends { src, ..RED }), DropReason::Martian);
    }
    let udp = |src: &str| Ends6 { src: src.parse().unwrap(), ..RED6 }.udp((7, 8), b"x");
    for src in ["fd00::11", "::", "fe80::10", "::ffff:10.1.0.10"] {
        refused(&mut rig, "red0", &udp(src), DropReason::SpoofedAddress);
    }
    for src in ["::1", "ff02::1", "fd00::20"] {
        refused(&mut rig, "red0", &udp(src), DropReason::Martian);
    }
    // red1 has no IPv6 address at all.
    let other = Ends6 { src_mac: RED_LOCAL.dst_mac, ..RED6 };
    refused(&mut rig, "red1", &other.udp((7, 8), b"x"), DropReason::SpoofedAddress);
}

#[test]
fn the_source_out_of_a_tunnel_lives_behind_it() {
    let mut rig = open();
    let back = RED.reversed();
    for src in [[10, 1, 0, 30], [10, 9, 0, 1], [10, 1, 0, 11], [10, 1, 0, 1], [10, 1, 0, 99]] {
        let frame = from_fabric(100, &Ends { src, ..back }.udp((7, 8), b"x"));
        refused(&mut rig, "uplink0", &frame, DropReason::SpoofedAddress);
    }
    let own = from_fabric(100, &Ends { src: RED.src, ..back }.udp((7, 8), b"x"));
    refused(&mut rig, "uplink0", &own, DropReason::Martian);
    // Behind the endpoint `other` lives 10.9.0.0/16, and 10.1.0.20 does not.
    let mut routed = from_fabric(100, &Ends { src: [10, 9, 3, 3], ..back }.udp((7, 8), b"x"));
    routed[29] = 3;
    assert!(wire::checksum::fill_ipv4_header(&mut routed[14..]));
    assert_eq!(leaves(&mut rig, "uplink0", &routed).len(), 1);
    let mut spoofed = from_fabric(100, &back.udp((7, 8), b"x"));
    spoofed[29] = 3;
    assert!(wire::checksum::fill_ipv4_header(&mut spoofed[14..]));
    refused(&mut rig, "uplink0", &spoofed, DropReason::SpoofedAddress);
}

#[test]
fn nothing_goes_from_tunnel_to_tunnel_or_back_to_its_own_port() {
    let mut rig = open();
    let through = Ends { dst: [10, 1, 0, 30], dst_mac: Mac([2, 0, 0, 0, 0x0a, 0x30]), ..RED.reversed() };
    refused(&mut rig, "uplink0", &from_fabric(100, &through.udp((7, 8), b"x")), DropReason::NoRoute);
    let two = TENANTS.replace(r#"addresses: [10.1.0.11]"#, r#"addresses: [10.1.0.11, 10.1.0.12]"#);
    let mut rig = with(&[FABRIC, &two, ALL_OPEN]);
    let own = Ends {
        src_mac: RED_LOCAL.dst_mac,
        dst_mac: RED_LOCAL.dst_mac,
        src: [10, 1, 0, 11],
        dst: [10, 1, 0, 12],
    };
    refused(&mut rig, "red1", &own.udp((7, 8), b"x"), DropReason::NoRoute);
}

#[test]
fn tags_on_a_port() {
    let mut rig = open();
    let frame = RED.udp((7, 8), b"0123456789");
    let tagged = |tags: &[[u8; 4]]| {
        let mut tagged = frame[..12].to_vec();
        tagged.extend(tags.iter().flatten());
        tagged.extend_from_slice(&frame[12..]);
        tagged
    };
    // B013, B014: a priority tag carries no VLAN, whatever its priority.
    for tci in [0x00, 0xa0, 0xf0] {
        let seen = leaves(&mut rig, "red0", &tagged(&[[0x81, 0, tci, 0]]));
        assert_eq!(untunnel(&seen[0].1).inner, frame);
    }
    let vid = [0x81, 0, 0, 10];
    for tags in [
        &[vid][..],
        &[[0x81, 0, 0x0f, 0xff]],
        &[[0x88, 0xa8, 0, 0]],
        &[[0x81, 0, 0, 0], vid],
        &[vid, vid],
        &[vid; 3],
    ] {
        refused(&mut rig, "red0", &tagged(tags), DropReason::UnexpectedVlan);
    }
    refused(&mut rig, "red0", &tagged(&[[0x91, 0, 0, 10]]), DropReason::UnsupportedEtherType);
    refused(&mut rig, "red0", &tagged(&[vid])[..15], DropReason::Malformed);
    let inner = RED.reversed().udp((8, 7), b"0123456789");
    let mut tagged = inner[..12].to_vec();
    tagged.extend_from_slice(&[0x81, 0, 0, 0]);
    tagged.extend_from_slice(&inner[12..]);
    refused(&mut rig, "uplink0", &from_fabric(100, &tagged), DropReason::UnexpectedVlan);
}

#[test]
fn a_priority_tagged_arp_request_is_answered() {
    let mut rig = demo();
    let request = RED.arp_request([10, 1, 0, 1]);
    let mut tagged = request[..12].to_vec();
    tagged.extend_from_slice(&[0x81, 0, 0xa0, 0]);
    tagged.extend_from_slice(&request[12..]);
    let seen = leaves(&mut rig, "red0", &tagged);
    assert_eq!((seen.len(), seen[0].0, &seen[0].1[12..14]), (1, "red0", &[8, 6][..]));
}

#[test]
fn source_routes_are_dropped() {
    let mut rig = open();
    for option in [0x83, 0x89] {
        let plain = RED.udp((7, 8), b"x");
        let mut frame = plain[..34].to_vec();
        frame.extend_from_slice(&[1, option, 7, 4, 10, 1, 0, 20]);
        frame.extend_from_slice(&plain[34..]);
        frame[14] = 0x47;
        let len = frame.len() as u16 - 14;
        frame[16..18].copy_from_slice(&len.to_be_bytes());
        assert!(wire::checksum::fill_ipv4_header(&mut frame[14..]));
        refused(&mut rig, "red0", &frame, DropReason::SourceRoute);
    }
    let mut routing = vec![17, 2, 0, 1, 0, 0, 0, 0];
    routing.extend_from_slice(&Ipv6Addr::LOCALHOST.octets());
    let frame = extend(&RED6.udp((7, 8), b"x"), 43, &routing);
    refused(&mut rig, "red0", &frame, DropReason::SourceRoute);
    refused(
        &mut rig,
        "uplink0",
        &from_fabric(100, &extend(&RED6.reversed().udp((7, 8), b"x"), 43, &routing)),
        DropReason::SourceRoute,
    );
}

#[test]
fn an_icmp_error_comes_from_where_its_quote_went_and_goes_to_who_sent_it() {
    let mut rig = demo();
    let sent = RED.udp((7, 5201), b"x");
    assert_eq!(leaves(&mut rig, "red0", &sent).len(), 1);
    let error = |ends: Ends| {
        let mut error = ends.ping(0, 0, 64);
        error.truncate(42);
        error.extend_from_slice(&sent[14..]);
        error[34] = 3;
        let len = error.len() as u16 - 14;
        error[16..18].copy_from_slice(&len.to_be_bytes());
        assert!(wire::checksum::fill_ipv4_header(&mut error[14..]));
        let parsed = wire::parse(&error).unwrap();
        assert!(wire::checksum::fill_l4(&mut error, &parsed));
        error
    };
    // From another port of the tenant, whose rules let it send nothing of the kind.
    refused(&mut rig, "red1", &error(RED_LOCAL.reversed()), DropReason::UnrelatedIcmpError);
    let to_another = Ends { dst: RED_LOCAL.dst, dst_mac: RED_LOCAL.dst_mac, ..RED.reversed() };
    refused(&mut rig, "uplink0", &from_fabric(100, &error(to_another)), DropReason::UnrelatedIcmpError);
    let mut wrong = error(RED.reversed());
    wrong[36] ^= 1;
    refused(&mut rig, "uplink0", &from_fabric(100, &wrong), DropReason::Malformed);
    refused(&mut rig, "uplink0", &from_fabric(200, &error(BLUE.reversed())), DropReason::UnrelatedIcmpError);
    let right = error(RED.reversed());
    assert_eq!(leaves(&mut rig, "uplink0", &from_fabric(100, &right)), [("red0", right)]);
}

#[test]
fn a_dhcp_server_on_a_tenants_port_is_dropped() {
    let mut rig = open();
    refused(&mut rig, "red0", &RED_LOCAL.udp((67, 68), b"offer"), DropReason::RogueDhcp);
    refused(&mut rig, "red0", &RED6.udp((547, 546), b"advertise"), DropReason::RogueDhcp);
    assert_eq!(leaves(&mut rig, "red0", &RED_LOCAL.udp((68, 67), b"discover")).len(), 1);
    let to_group = Ends { dst: [255; 4], dst_mac: Mac::BROADCAST, ..RED };
    refused(&mut rig, "red0", &to_group.udp((67, 68), b"offer"), DropReason::Group);
}

#[test]
fn groups_are_not_flooded() {
    let mut rig = open();
    let group = Ends { dst: [224, 0, 0, 251], dst_mac: Mac([1, 0, 0x5e, 0, 0, 0xfb]), ..RED };
    refused(&mut rig, "red0", &group.udp((5353, 5353), b"x"), DropReason::Group);
    let everybody = Ends { dst_mac: Mac::BROADCAST, ..RED.reversed() };
    refused(&mut rig, "uplink0", &from_fabric(100, &everybody.udp((7, 8), b"x")), DropReason::Group);
    let mut other = RED.udp((7, 8), b"x");
    other[12..14].copy_from_slice(&[0x88, 0xcc]);
    refused(&mut rig, "red0", &other, DropReason::UnsupportedEtherType);
}

#[test]
fn a_port_without_a_tenant_passes_nothing() {
    let only_blue = TENANTS.split("---").nth(1).unwrap();
    let mut rig = with(&[FABRIC, only_blue]);
    refused(&mut rig, "red0", &RED.udp((7, 8), b"x"), DropReason::NoTenant);
    refused(
        &mut rig,
        "uplink0",
        &from_fabric(100, &RED.reversed().udp((7, 8), b"x")),
        DropReason::UnknownVni,
    );
}

#[test]
fn the_uplink_answers_for_itself_and_nothing_else() {
    let mut rig = demo();
    let outer = scenarios::scene::outer();
    assert_eq!(
        leaves(&mut rig, "uplink0", &outer.ping(1, 2, 64)),
        [("uplink0", outer.reversed().pong(1, 2))]
    );
    let seen = leaves(&mut rig, "uplink0", &outer.arp_request([192, 0, 2, 1]));
    assert_eq!((seen[0].0, &seen[0].1[22..28]), ("uplink0", &outer.dst_mac.0[..]));
    refused(&mut rig, "uplink0", &outer.tcp((1, 22), "S", b""), DropReason::NoService);
    refused(&mut rig, "uplink0", &outer.arp_request([192, 0, 2, 9]), DropReason::NeighbourHeard);
    refused(&mut rig, "uplink0", &Ends { dst: [10, 1, 0, 10], ..outer }.ping(1, 2, 64), DropReason::NotForUs);
    refused(
        &mut rig,
        "uplink0",
        &Ends { src: [192, 0, 2, 1], ..outer }.arp_request([192, 0, 2, 1]),
        DropReason::SpoofedArp,
    );
    // An echo request over IPv6 to an address that is not ours.
    let stray = Ends6 { src_mac: outer.src_mac, dst_mac: outer.dst_mac, ..RED6 };
    refused(&mut rig, "uplink0", &stray.ping(1, 2, 64), DropReason::NoService);
}
