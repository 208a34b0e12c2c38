//! Which worker a packet belongs to: the one of its two hosts, whatever else the packet is.
//!
//! Told from the pair of (inner) addresses, in either order: so all flows of two hosts meet on one worker with their
//! replies, fragments, queue pairs and connection managers, and with the ICMP errors that quote them. Nothing but the frame
//! and the port's role is looked at, so that a change of program moves no flow. The tenant is not: a card's RSS knows of no
//! tenant, and packets that a card has sent to their owner need no ring.

use engine::Owner;
use packet::rss;
use program::PortId;
use wire::{Fragment, L3, L4, Parsed, vxlan};

use crate::Tables;
use crate::tables::Role;

const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];
const ETHERTYPE_IPV6: [u8; 2] = [0x86, 0xdd];
const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// The owner of a frame that came from `port`. Frames that will be dropped may belong to anyone.
#[inline]
pub(crate) fn owner(tables: &Tables, port: PortId, frame: &[u8]) -> Owner {
    match tables.port(port).map(|view| view.role) {
        Some(Role::Tenant) => of_hosts(frame),
        Some(Role::Uplink) => match plain_tunnel(frame) {
            Some(inner) => of_hosts(inner),
            None => of_underlay(frame),
        },
        Some(Role::Unused) | None => Owner::Receiver,
    }
}

/// The owner of what two hosts send each other. ARP belongs to none of them: it is answered and forgotten.
#[inline]
fn of_hosts(frame: &[u8]) -> Owner {
    // The headers of nearly every packet: no tag, addresses in their usual place, no ICMP.
    match (frame.get(12..14), frame.get(14..54)) {
        (Some(ethertype), Some(ip)) if ethertype == ETHERTYPE_IPV4 && ip[9] != ICMP => of_ipv4(ip, 12),
        (Some(ethertype), Some(ip)) if ethertype == ETHERTYPE_IPV6 && matches!(ip[6], TCP | UDP) => {
            of_ipv6(ip, 8)
        }
        _ => of_any_hosts(frame),
    }
}

/// As [`of_hosts`], by the parser.
#[cold]
fn of_any_hosts(frame: &[u8]) -> Owner {
    let Ok(parsed) = wire::parse(frame) else { return Owner::Receiver };
    let (l3, at) = match parsed.quoted(frame) {
        Ok(Some(quoted)) => (quoted.l3, quoted.offset),
        _ => (parsed.l3, parsed.l3_offset),
    };
    match (l3, usize::from(at)) {
        (L3::Ipv4, at) => of_ipv4(frame, at + 12),
        (L3::Ipv6, at) => of_ipv6(frame, at + 8),
        _ => Owner::Receiver,
    }
}

#[inline(always)]
fn of_ipv4(bytes: &[u8], at: usize) -> Owner {
    let addresses = bytes.get(at..).and_then(|bytes| bytes.first_chunk::<8>());
    addresses.map_or(Owner::Receiver, |addresses| Owner::Hash(rss::hash_v4(*addresses)))
}

#[inline(always)]
fn of_ipv6(bytes: &[u8], at: usize) -> Owner {
    let addresses = bytes.get(at..).and_then(|bytes| bytes.first_chunk::<32>());
    addresses.map_or(Owner::Receiver, |addresses| Owner::Hash(rss::hash_v6(addresses)))
}

/// What VXLAN over IPv4 carries, if the outer headers are as nearly all are: no tag, no options, no fragment.
#[inline]
fn plain_tunnel(frame: &[u8]) -> Option<&[u8]> {
    let outer = frame.first_chunk::<50>()?;
    let unfragmented = u16::from_be_bytes([outer[20], outer[21]]) & 0x3fff == 0;
    let plain = outer[12..15] == [0x08, 0x00, 0x45] && outer[23] == UDP && unfragmented;
    (plain && outer[36..38] == vxlan::PORT.to_be_bytes()).then(|| &frame[50..])
}

/// What came from the fabric and is no plain tunnel. Answers of next hops go to the worker that asks for them.
#[cold]
fn of_underlay(frame: &[u8]) -> Owner {
    let Ok(outer) = wire::parse(frame) else { return Owner::Receiver };
    match (outer.l3, outer.l4) {
        (L3::Arp, _) | (_, L4::Icmpv6) => Owner::First,
        (_, L4::Udp) if outer.dst_port == vxlan::PORT => {
            inner(frame, &outer).map_or(Owner::Receiver, of_hosts)
        }
        _ => Owner::Receiver,
    }
}

fn inner<'a>(frame: &'a [u8], outer: &Parsed) -> Option<&'a [u8]> {
    if outer.fragment != Fragment::None {
        return None;
    }
    let inner = vxlan::decap(frame, outer).ok()?;
    frame.get(usize::from(inner.offset)..usize::from(inner.end))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TAG: [u8; 4] = [0x81, 0, 0, 0];

    /// Ethernet, tagged or not, and an IP packet: header fields as they come, lengths right.
    fn frame(tagged: bool, ipv6: bool, protocol: u8, mut payload: Vec<u8>, addresses: [u8; 32]) -> Vec<u8> {
        let mut frame = vec![2; 12];
        frame.extend(TAG.iter().take(if tagged { 4 } else { 0 }));
        if protocol == UDP && payload.len() >= 8 {
            let len = payload.len() as u16;
            payload[4..6].copy_from_slice(&len.to_be_bytes());
        }
        if ipv6 {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend((payload.len() as u16).to_be_bytes());
            frame.extend([protocol, 64]);
            frame.extend(addresses);
        } else {
            frame.extend([0x08, 0x00, 0x45, 0]);
            frame.extend((20 + payload.len() as u16).to_be_bytes());
            frame.extend([0, 0, 0, 0, 64, protocol, 0, 0]);
            frame.extend(&addresses[..8]);
            let at = frame.len() - 20;
            assert!(wire::checksum::fill_ipv4_header(&mut frame[at..]));
        }
        frame.extend(payload);
        frame
    }

    fn frames() -> impl Strategy<Value = Vec<u8>> {
        let protocol = prop_oneof![Just(ICMP), Just(TCP), Just(UDP), Just(58), Just(132), any::<u8>()];
        let payload = prop::collection::vec(any::<u8>(), 0..80);
        (any::<bool>(), any::<bool>(), protocol, payload, any::<[u8; 32]>()).prop_map(
            |(tagged, ipv6, protocol, payload, addresses)| frame(tagged, ipv6, protocol, payload, addresses),
        )
    }

    /// In a tunnel: outer IPv4, right lengths, any UDP source port.
    fn tunnelled(inner: &[u8]) -> Vec<u8> {
        let mut payload = vec![0xc0, 0, 0x12, 0xb5, 0, 0, 0, 0, vxlan::FLAG_VNI, 0, 0, 0, 0, 0, 100, 0];
        payload.extend(inner);
        frame(false, false, UDP, payload, [7; 32])
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Whatever the parser takes has one owner by the short way and by the parser's.
        #[test]
        fn the_short_way_agrees_with_the_parser(
            frame in frames(),
            mutation in prop::option::of((any::<prop::sample::Index>(), any::<u8>())),
        ) {
            let mut frame = frame;
            if let Some((at, byte)) = mutation {
                *at.get_mut(frame.as_mut_slice()) = byte;
            }
            if wire::parse(&frame).is_ok() {
                prop_assert_eq!(of_hosts(&frame), of_any_hosts(&frame));
            }
        }

        #[test]
        fn a_plain_tunnel_holds_what_the_parser_finds(
            inner in frames(),
            mutation in prop::option::of((0..50_usize, any::<u8>())),
        ) {
            let mut frame = tunnelled(&inner);
            if let Some((at, byte)) = mutation {
                frame[at] = byte;
            }
            if let (Some(plain), Ok(outer)) = (plain_tunnel(&frame), wire::parse(&frame)) {
                // One that is dropped for its VXLAN header belongs to anyone.
                prop_assert!(outer.dst_port == vxlan::PORT && outer.l4 == L4::Udp);
                if let Some(parsed) = super::inner(&frame, &outer) {
                    prop_assert!(plain.starts_with(parsed), "as far as the outer lengths reach");
                }
            }
        }

        #[test]
        fn both_directions_have_one_owner(frame in frames()) {
            let Ok(parsed) = wire::parse(&frame) else { return Ok(()) };
            prop_assume!(matches!(parsed.quoted(&frame), Ok(None)));
            let (at, len) = match parsed.l3 {
                L3::Ipv4 => (usize::from(parsed.l3_offset) + 12, 4),
                L3::Ipv6 => (usize::from(parsed.l3_offset) + 8, 16),
                L3::Arp | L3::Other => return Ok(()),
            };
            let mut back = frame.clone();
            back[at..at + 2 * len].rotate_left(len);
            prop_assert_eq!(of_any_hosts(&back), of_any_hosts(&frame));
            prop_assert!(matches!(of_hosts(&frame), Owner::Hash(_)));
            prop_assert_eq!(of_hosts(plain_tunnel(&tunnelled(&frame)).expect("a plain one")), of_hosts(&frame));
        }
    }
}
