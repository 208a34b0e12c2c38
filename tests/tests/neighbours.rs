//! ARP and neighbour discovery of tenants, and who may claim what: on the port and out of the tunnel.
#![expect(clippy::unwrap_used, reason = "the functions beside the tests are tests too")]

use std::net::Ipv6Addr;

use program::DropReason;
use scenarios::frames::{Ends, untunnel};
use scenarios::frames6::{Ends6, extend};
use scenarios::rig::Rig;
use scenarios::scene::{BLUE, RED, RED_GATEWAY, RED_GATEWAY6, RED6, demo, from_fabric};
use wire::Mac;

const NOBODY: Mac = Mac([2, 0, 0, 0, 0x0a, 0x66]);
const PEER: Ends = Ends {
    src_mac: Mac([2, 0, 0, 0, 0x0a, 0x20]),
    dst_mac: Mac([2, 0, 0, 0, 0x0a, 0x10]),
    src: [10, 1, 0, 20],
    dst: [10, 1, 0, 10],
};

/// What an ARP reply says, read byte by byte: owner's MAC and address, asker's MAC and address.
fn arp_reply(frame: &[u8]) -> (Mac, [u8; 4], Mac, [u8; 4]) {
    assert_eq!(frame[42..], [0; 18], "padding tells nothing of other packets");
    assert_eq!(frame[12..22], [8, 6, 0, 1, 8, 0, 6, 4, 0, 2]);
    assert_eq!(
        (&frame[..6], &frame[6..12]),
        (&frame[32..38], &frame[22..28]),
        "both layers name the same hosts"
    );
    let mac = |at: usize| Mac(frame[at..at + 6].try_into().unwrap());
    let ip = |at: usize| frame[at..at + 4].try_into().unwrap();
    (mac(22), ip(28), mac(32), ip(38))
}

/// Sends a frame that must be dropped for one reason, and answered by nobody.
fn refused(rig: &mut Rig, port: &str, frame: &[u8], reason: DropReason) {
    let before = rig.dropped(reason);
    assert!(rig.pass(port, frame, port).is_empty());
    assert_eq!(rig.dropped(reason), before + 1, "{reason:?}: {:?}", rig.drops());
    for other in ["uplink0", "red0", "red1", "blue0"] {
        assert!(rig.take(other).is_empty(), "nothing leaves {other}");
    }
    rig.assert_balanced();
}

#[test]
fn arp_is_answered_for_everybody_whom_the_tenant_knows() {
    let mut rig = demo();
    let gateway = RED_GATEWAY;
    for (target, owner) in [
        ([10, 1, 0, 1], gateway),
        ([10, 1, 0, 20], PEER.src_mac),
        ([10, 1, 0, 30], Mac([2, 0, 0, 0, 0x0a, 0x30])),
        ([10, 1, 0, 11], Mac([2, 0, 0, 0, 0x0a, 0x11])),
    ] {
        let seen = rig.pass("red0", &RED.arp_request(target), "red0");
        assert_eq!(arp_reply(&seen[0]), (owner, target, RED.src_mac, RED.src));
        assert_eq!(seen.len(), 1);
        assert!(rig.take("uplink0").is_empty(), "no broadcast of a tenant leaves its port");
    }
    rig.assert_balanced();
}

#[test]
fn each_tenant_gets_its_own_hosts() {
    let mut rig = demo();
    let seen = rig.pass("blue0", &BLUE.arp_request([10, 1, 0, 20]), "blue0");
    assert_eq!(arp_reply(&seen[0]).0, BLUE.dst_mac);
    refused(&mut rig, "blue0", &BLUE.arp_request([10, 1, 0, 30]), DropReason::UnknownNeighbour);
    refused(&mut rig, "blue0", &BLUE.arp_request([10, 1, 0, 11]), DropReason::UnknownNeighbour);
}

#[test]
fn a_probe_and_a_gratuitous_arp_are_heard_in_silence() {
    let mut rig = demo();
    let probe = Ends { src: [0; 4], ..RED }.arp_request(RED.src);
    refused(&mut rig, "red0", &probe, DropReason::NeighbourHeard);
    refused(&mut rig, "red0", &RED.arp_request(RED.src), DropReason::NeighbourHeard);
    // A probe for an address that somebody has is told so (RFC 5227, section 2.1.1).
    let probe = Ends { src: [0; 4], ..RED }.arp_request([10, 1, 0, 20]);
    let seen = rig.pass("red0", &probe, "red0");
    assert_eq!(arp_reply(&seen[0]), (PEER.src_mac, [10, 1, 0, 20], RED.src_mac, [0; 4]));
    rig.assert_balanced();
}

#[test]
fn a_spoofed_arp_is_dropped() {
    let mut rig = demo();
    let others = Ends { src: [10, 1, 0, 11], ..RED }.arp_request([10, 1, 0, 20]);
    refused(&mut rig, "red0", &others, DropReason::SpoofedArp);
    let gateways = Ends { src: [10, 1, 0, 1], ..RED }.arp_request([10, 1, 0, 20]);
    refused(&mut rig, "red0", &gateways, DropReason::SpoofedArp);
    let mut inner_mac = RED.arp_request([10, 1, 0, 20]);
    inner_mac[22..28].copy_from_slice(&NOBODY.0);
    refused(&mut rig, "red0", &inner_mac, DropReason::SpoofedArp);
    let outer_mac = Ends { src_mac: NOBODY, ..RED }.arp_request([10, 1, 0, 20]);
    refused(&mut rig, "red0", &outer_mac, DropReason::SpoofedMac);
    let mut reply = RED.arp_request(RED.src);
    (reply[21], reply[31]) = (2, 1);
    refused(&mut rig, "red0", &reply, DropReason::SpoofedArp);
    refused(&mut rig, "red0", &RED.arp_request([10, 1, 0, 99]), DropReason::UnknownNeighbour);
    refused(&mut rig, "red0", &RED.arp_request([10, 1, 0, 20])[..41], DropReason::Malformed);
}

#[test]
fn arp_out_of_the_tunnel_is_answered_into_it() {
    let mut rig = demo();
    for (target, owner) in [([10, 1, 0, 10], RED.src_mac), ([10, 1, 0, 1], RED_GATEWAY)] {
        let request = from_fabric(100, &PEER.arp_request(target));
        let seen = rig.pass("uplink0", &request, "uplink0");
        let seen = untunnel(&seen[0]);
        assert_eq!((seen.vni, seen.ends), (100, ([192, 0, 2, 1], [192, 0, 2, 2])));
        assert_eq!(arp_reply(&seen.inner), (owner, target, PEER.src_mac, PEER.src));
    }
    assert!(rig.take("red0").is_empty());
    rig.assert_balanced();
}

#[test]
fn a_spoofed_arp_out_of_the_tunnel_is_dropped() {
    let mut rig = demo();
    let mut arp = |ends: Ends, target, reason| {
        refused(&mut rig, "uplink0", &from_fabric(100, &ends.arp_request(target)), reason);
    };
    arp(Ends { src: [10, 1, 0, 11], ..PEER }, [10, 1, 0, 10], DropReason::SpoofedArp);
    arp(Ends { src: [10, 1, 0, 1], ..PEER }, [10, 1, 0, 10], DropReason::SpoofedArp);
    arp(Ends { src_mac: NOBODY, ..PEER }, [10, 1, 0, 10], DropReason::SpoofedArp);
    // The host is known, but lives behind another endpoint.
    arp(
        Ends { src: [10, 1, 0, 30], src_mac: Mac([2, 0, 0, 0, 0x0a, 0x30]), ..PEER },
        [10, 1, 0, 10],
        DropReason::SpoofedArp,
    );
    // Its own side knows that host better.
    arp(PEER, [10, 1, 0, 30], DropReason::UnknownNeighbour);
    arp(PEER, [10, 1, 0, 20], DropReason::NeighbourHeard);
}

/// An advertisement read byte by byte: flags, target, option's MAC; its checksum by etherparse.
fn advert(frame: &[u8]) -> (u8, Ipv6Addr, Mac) {
    let sliced = etherparse::SlicedPacket::from_ethernet(frame).unwrap();
    let Some(etherparse::NetSlice::Ipv6(ip)) = &sliced.net else { panic!("IPv6") };
    let Some(etherparse::TransportSlice::Icmpv6(icmp)) = &sliced.transport else { panic!("ICMPv6") };
    assert!(icmp.is_checksum_valid(ip.header().source(), ip.header().destination()));
    assert_eq!((frame[21], frame[54], frame[55]), (255, 136, 0));
    assert_eq!(frame[59..62], [0, 0, 0], "the flags are the top bits of the first byte");
    assert_eq!((frame.len(), frame[78], frame[79]), (86, 2, 1));
    assert_eq!(frame[6..12], frame[80..86]);
    let target: [u8; 16] = frame[62..78].try_into().unwrap();
    (frame[58], target.into(), Mac(frame[80..86].try_into().unwrap()))
}

#[test]
fn solicitations_are_answered_for_everybody_whom_the_tenant_knows() {
    let mut rig = demo();
    for (target, flags, owner) in [(RED_GATEWAY6, 0xe0, RED_GATEWAY), (RED6.dst, 0x60, RED6.dst_mac)] {
        let seen = rig.pass("red0", &RED6.solicit(target), "red0");
        assert_eq!(advert(&seen[0]), (flags, target, owner));
        assert_eq!((&seen[0][..6], &seen[0][38..54]), (&RED6.src_mac.0[..], &RED6.src.octets()[..]));
        assert!(rig.take("uplink0").is_empty());
    }
    let request = from_fabric(100, &RED6.reversed().solicit(RED6.src));
    let seen = rig.pass("uplink0", &request, "uplink0");
    assert_eq!(advert(&untunnel(&seen[0]).inner), (0x60, RED6.src, RED6.src_mac));
    let link_local = Ends6 { src: "fe80::1234".parse().unwrap(), ..RED6 };
    let seen = rig.pass("red0", &link_local.solicit(RED_GATEWAY6), "red0");
    assert_eq!(advert(&seen[0]), (0xe0, RED_GATEWAY6, RED_GATEWAY));
    rig.assert_balanced();
}

#[test]
fn duplicate_address_detection_is_heard_in_silence() {
    let mut rig = demo();
    let unspecified = Ends6 { src: Ipv6Addr::UNSPECIFIED, ..RED6 };
    let dad = |target: Ipv6Addr| {
        let mut body = vec![0; 4];
        body.extend_from_slice(&target.octets());
        let group = Ends6 {
            dst: "ff02::1:ff00:10".parse().unwrap(),
            dst_mac: Mac([0x33, 0x33, 0xff, 0, 0, 0x10]),
            ..unspecified
        };
        group.icmpv6(135, 0, &body, 255)
    };
    refused(&mut rig, "red0", &dad(RED6.src), DropReason::NeighbourHeard);
    refused(&mut rig, "red0", &dad(RED6.dst), DropReason::SpoofedNd);
}

#[test]
fn spoofed_neighbour_discovery_is_dropped() {
    let mut rig = demo();
    let other = Ends6 { src: "fd00::11".parse().unwrap(), ..RED6 };
    refused(&mut rig, "red0", &other.solicit(RED6.dst), DropReason::SpoofedNd);
    let mut option = RED6.solicit(RED6.dst);
    option[80..86].copy_from_slice(&NOBODY.0);
    let parsed = wire::parse(&option).unwrap();
    assert!(wire::checksum::fill_l4(&mut option, &parsed));
    refused(&mut rig, "red0", &option, DropReason::SpoofedNd);
    refused(&mut rig, "red0", &RED6.advertise(RED6.dst, RED6.src_mac, 0x20), DropReason::SpoofedNd);
    refused(&mut rig, "red0", &RED6.advertise(RED_GATEWAY6, RED6.src_mac, 0x20), DropReason::SpoofedNd);
    refused(&mut rig, "red0", &RED6.advertise(RED6.src, NOBODY, 0x20), DropReason::SpoofedNd);
    refused(&mut rig, "red0", &RED6.advertise(RED6.src, RED6.src_mac, 0x60), DropReason::NeighbourHeard);
    let peer = RED6.reversed();
    let lie = peer.advertise(RED6.src, peer.src_mac, 0x20);
    refused(&mut rig, "uplink0", &from_fabric(100, &lie), DropReason::SpoofedNd);
}

#[test]
fn neighbour_discovery_from_beyond_the_link_is_dropped() {
    let mut rig = demo();
    let mut body = vec![0; 4];
    body.extend_from_slice(&RED6.dst.octets());
    refused(&mut rig, "red0", &RED6.icmpv6(135, 0, &body, 64), DropReason::SpoofedNd);
    refused(&mut rig, "red0", &RED6.icmpv6(135, 0, &body, 254), DropReason::SpoofedNd);
}

#[test]
fn an_option_of_no_length_ends_the_reading() {
    let mut rig = demo();
    let mut frame = RED6.solicit(RED6.dst);
    frame[79] = 0;
    let parsed = wire::parse(&frame).unwrap();
    assert!(wire::checksum::fill_l4(&mut frame, &parsed));
    refused(&mut rig, "red0", &frame, DropReason::Malformed);
}

#[test]
fn router_advertisements_and_redirects_are_dropped_behind_any_header() {
    let mut rig = demo();
    let all_nodes = Ends6 {
        dst: "ff02::1".parse().unwrap(),
        dst_mac: Mac([0x33, 0x33, 0, 0, 0, 1]),
        src: "fe80::1".parse().unwrap(),
        ..RED6
    };
    let advertisement = all_nodes.icmpv6(134, 0, &[64, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], 255);
    let unicast = Ends6 { dst: RED6.dst, dst_mac: RED6.dst_mac, ..all_nodes };
    let redirect = unicast.icmpv6(137, 0, &[0; 36], 255);
    for frame in [&advertisement, &redirect] {
        refused(&mut rig, "red0", frame, DropReason::RouterAdvertisement);
        for (next, header) in [
            (0, vec![58, 0, 1, 4, 0, 0, 0, 0]),
            (60, vec![58, 0, 1, 4, 0, 0, 0, 0]),
            (44, vec![58, 0, 0, 0, 0, 0, 0, 1]),
        ] {
            let behind = extend(frame, next, &header);
            // With a fragment header it is none of neighbour discovery's, whatever it says (RFC 6980).
            let is_fragment = next == 44;
            let reason =
                if is_fragment { DropReason::FragmentedControl } else { DropReason::RouterAdvertisement };
            refused(&mut rig, "red0", &behind, reason);
        }
    }
    refused(
        &mut rig,
        "uplink0",
        &from_fabric(100, &unicast.reversed().icmpv6(134, 0, &[0; 12], 255)),
        DropReason::RouterAdvertisement,
    );
}
