//! etherparse as a second opinion on every captured frame and on changed ones: where both take a frame, they must
//! agree on offsets, protocols and ports. Where they differ on purpose, [`REFUSED_HERE_ONLY`] and [`beyond`] say so
//! and why.

#![allow(clippy::unwrap_used, reason = "a test fails by panic")]

mod corpus;

use etherparse::{EtherType, LinkExtSlice, NetSlice, SlicedPacket, TransportSlice};
use proptest::prelude::*;
use std::{collections::BTreeMap, sync::OnceLock};
use wire::{Flags, Fragment, L3, L4, Malformed, Parsed, ipv4::protocol, parse};

/// What we refuse and etherparse takes.
const REFUSED_HERE_ONLY: &[(Malformed, &str)] = &[
    (Malformed::FrameLong, "our offsets have 16 bits"),
    (Malformed::ArpFormat, "etherparse reads ARP for any pair of address families"),
    (Malformed::Ipv4Option, "etherparse does not look into options"),
    (Malformed::JumboPayload, "etherparse takes payload length 0 as all there is, and does not read options"),
    (Malformed::ExtensionOption, "etherparse does not look into options"),
    (Malformed::OptionDiscard, "etherparse does not look into options"),
    (Malformed::ExtensionChainLong, "etherparse has no bound"),
    (
        Malformed::ExtensionCut,
        "etherparse takes payload length 0 as all there is, and stops at mobility, HIP, shim6",
    ),
    (Malformed::HopByHopNotFirst, "etherparse stops at mobility, HIP and shim6, which we pass"),
    (Malformed::AhLen, "etherparse stops at mobility, HIP and shim6, which we pass"),
    (Malformed::FragmentTwice, "etherparse takes any number of fragment headers"),
    (Malformed::FragmentEmpty, "etherparse does not judge fragments"),
    (Malformed::FragmentUnaligned, "etherparse does not judge fragments"),
    (Malformed::FragmentBeyond, "etherparse does not judge fragments"),
    (Malformed::FragmentTiny, "etherparse does not read the L4 header of a first fragment"),
    (Malformed::TcpDataOffset, "etherparse does not read the L4 header of a first fragment"),
    (Malformed::UdpLen, "etherparse takes UDP length 0, which only a jumbogram may have (RFC 2675)"),
    (Malformed::SctpCut, "etherparse does not read SCTP"),
    (
        Malformed::TcpCut,
        "etherparse takes IPv6 payload length 0 as all there is, and stops at mobility, HIP, shim6",
    ),
    (
        Malformed::UdpCut,
        "etherparse takes IPv6 payload length 0 as all there is, and stops at mobility, HIP, shim6",
    ),
    (Malformed::IcmpCut, "etherparse stops at mobility, HIP and shim6, and takes ICMPv6 in payload length 0"),
    (Malformed::BthCut, "etherparse does not read RoCEv2"),
    (Malformed::BthVersion, "etherparse does not read RoCEv2"),
    (Malformed::RoceCut, "etherparse does not read RoCEv2"),
    (Malformed::RocePad, "etherparse does not read RoCEv2"),
];

/// Why the two answers of a frame that both take are not comparable, if so.
fn beyond(parsed: &Parsed, frame: &[u8], sliced: &SlicedPacket) -> Option<&'static str> {
    if sliced.link_exts.iter().any(|ext| matches!(ext, LinkExtSlice::Macsec(_))) {
        return Some("MACsec: opaque to us");
    }
    // The tag protocols stand 4 bytes apart, the first behind the MAC addresses.
    let tpids = frame[12..].chunks(4).take(sliced.link_exts.len());
    if tpids.into_iter().any(|tag| tag.starts_with(&EtherType::VLAN_DOUBLE_TAGGED_FRAME.0.to_be_bytes())) {
        return Some("tag protocol 0x9100: no standard, opaque to us");
    }
    if parsed.flags.contains(Flags::MANY_TAGS) {
        return Some("a third tag: opaque to us");
    }
    if parsed.ipv4(frame).is_some_and(|ip| ip.protocol == protocol::AH) {
        return Some("AH over IPv4: a protocol to us, an extension to etherparse");
    }
    if parsed.ipv6(frame).is_some_and(|ip| ip.payload_len.get() == 0) {
        return Some("IPv6 payload length 0: etherparse takes it as all there is");
    }
    if parsed.l3 == L3::Ipv6 && parsed.fragment == Fragment::Later && is_extension(parsed.protocol) {
        return Some("etherparse reads the data of a later fragment as extension headers");
    }
    let payload = sliced.net.as_ref().and_then(NetSlice::ip_payload_ref);
    let is_fragment = parsed.fragment != Fragment::None;
    let has_fragment_header = is_fragment || parsed.flags.contains(Flags::ATOMIC_FRAGMENT);
    if parsed.l3 == L3::Ipv6 && has_fragment_header && payload.is_some_and(|p| p.fragmented != is_fragment) {
        return Some(
            "etherparse 0.19 masks the fragment offset with 0x9f where the field is 0xf8: it reads two reserved \
                     bits and misses offsets 32, 64 and 96",
        );
    }
    match payload.map(|payload| payload.ip_number.0) {
        Some(protocol::MOBILITY | protocol::HIP | protocol::SHIM6) if parsed.l3 == L3::Ipv6 => {
            Some("mobility, HIP, shim6: extension headers to us (IANA), the payload to etherparse")
        }
        _ => None,
    }
}

const fn is_extension(next: u8) -> bool {
    use protocol::{AH, DESTINATION_OPTIONS, FRAGMENT, HOP_BY_HOP, ROUTING};
    matches!(next, HOP_BY_HOP | ROUTING | FRAGMENT | AH | DESTINATION_OPTIONS)
}

/// What is compared.
#[derive(PartialEq, Debug)]
struct Answer {
    vlan_ids: Vec<u16>,
    l3: L3,
    l3_offset: usize,
    end: usize,
    fragment: bool,
    protocol: u8,
    l4_offset: usize,
    /// Kind, ports or ICMP type, and the length of the payload behind the L4 header.
    l4: Option<(L4, u16, u16, usize)>,
}

fn ours(parsed: &Parsed, frame: &[u8]) -> Answer {
    let is_ip = matches!(parsed.l3, L3::Ipv4 | L3::Ipv6);
    let whole = parsed.fragment == Fragment::None;
    let l4 = match parsed.l4 {
        L4::Tcp => Some((L4::Tcp, parsed.tcp_payload(frame).len())),
        L4::Udp | L4::Roce => Some((L4::Udp, parsed.udp_payload(frame).len())),
        L4::Icmp | L4::Icmpv6 => Some((parsed.l4, 0)),
        L4::None | L4::Unknown | L4::Sctp => None,
    };
    let first = parsed.icmp(frame).map_or(parsed.src_port, |icmp| icmp.kind.into());
    Answer {
        vlan_ids: parsed.vlan.tags().iter().map(|tag| tag.vid()).collect(),
        l3: parsed.l3,
        l3_offset: parsed.l3_offset.into(),
        end: if is_ip { parsed.end.into() } else { 0 },
        fragment: !whole,
        protocol: parsed.protocol,
        l4_offset: if is_ip { parsed.l4_offset.into() } else { 0 },
        l4: l4.filter(|_| whole).map(|(kind, payload)| (kind, first, parsed.dst_port, payload)),
    }
}

fn theirs(sliced: &SlicedPacket, frame: &[u8]) -> Answer {
    let offset_of = |part: &[u8]| part.as_ptr() as usize - frame.as_ptr() as usize;
    let (l3, l3_offset) = match &sliced.net {
        None => (L3::Other, 14 + 4 * sliced.link_exts.len()),
        Some(NetSlice::Arp(arp)) => (L3::Arp, offset_of(arp.slice())),
        Some(NetSlice::Ipv4(ip)) => (L3::Ipv4, offset_of(ip.header().slice())),
        Some(NetSlice::Ipv6(ip)) => (L3::Ipv6, offset_of(ip.header().slice())),
    };
    let payload = sliced.net.as_ref().and_then(NetSlice::ip_payload_ref);
    let l4 = sliced.transport.as_ref().map(|transport| match transport {
        TransportSlice::Tcp(tcp) => (L4::Tcp, tcp.source_port(), tcp.destination_port(), tcp.payload().len()),
        TransportSlice::Udp(udp) => (L4::Udp, udp.source_port(), udp.destination_port(), udp.payload().len()),
        TransportSlice::Icmpv4(icmp) => (L4::Icmp, icmp.type_u8().into(), 0, 0),
        TransportSlice::Icmpv6(icmp) => (L4::Icmpv6, icmp.type_u8().into(), 0, 0),
    });
    Answer {
        vlan_ids: sliced.vlan_ids().iter().map(|id| id.value()).collect(),
        l3,
        l3_offset,
        end: payload.map_or(0, |payload| offset_of(payload.payload) + payload.payload.len()),
        fragment: payload.is_some_and(|payload| payload.fragmented),
        protocol: payload.map_or(0, |payload| payload.ip_number.0),
        l4_offset: payload.map_or(0, |payload| offset_of(payload.payload)),
        // We read ICMP of one family over the other as an unknown protocol, as hosts do.
        l4: l4.filter(|l4| !matches!((l4.0, l3), (L4::Icmp, L3::Ipv6) | (L4::Icmpv6, L3::Ipv4))),
    }
}

/// How the two differ, or what was found the same.
fn compare(frame: &[u8]) -> Result<&'static str, String> {
    match (parse(frame), SlicedPacket::from_ethernet(frame)) {
        (Err(_), Err(_)) => Ok("refused by both"),
        (Ok(_), Err(_)) => Ok("refused by etherparse"),
        (Err(cause), Ok(sliced)) => {
            let reason = REFUSED_HERE_ONLY.iter().find(|(listed, _)| *listed == cause);
            reason.map(|_| "refused here").ok_or(format!("refused as {cause}, but etherparse has {sliced:?}"))
        }
        (Ok(parsed), Ok(sliced)) => {
            if let Some(reason) = beyond(&parsed, frame, &sliced) {
                return Ok(reason);
            }
            let (ours, theirs) = (ours(&parsed, frame), theirs(&sliced, frame));
            if ours == theirs { Ok("the same") } else { Err(format!("{ours:?}\nbut etherparse {theirs:?}")) }
        }
    }
}

#[test]
fn captured_frames() {
    let Some(dir) = corpus::dir() else { return };
    let mut outcomes: BTreeMap<&str, usize> = BTreeMap::new();
    let mut wrong = Vec::new();
    for capture in corpus::captures(&dir) {
        for (index, frame) in capture.frames.iter().enumerate() {
            match compare(frame) {
                Ok(outcome) => *outcomes.entry(outcome).or_default() += 1,
                Err(difference) => wrong.push(format!("{} {}: {difference}", capture.name, index + 1)),
            }
        }
    }
    println!("{outcomes:#?}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(outcomes["the same"] > 3_500, "{outcomes:#?}");
}

/// All captured frames, or none, once per process.
fn frames() -> &'static [Vec<u8>] {
    static FRAMES: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    FRAMES.get_or_init(|| {
        let captures = corpus::dir().map(|dir| corpus::captures(&dir)).unwrap_or_default();
        captures.into_iter().flat_map(|capture| capture.frames).filter(|frame| frame.len() > 14).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn changed_frames(
        which: prop::sample::Index,
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in prop_oneof![3 => Just(None), 1 => any::<prop::sample::Index>().prop_map(Some)],
    ) {
        if frames().is_empty() {
            return Ok(());
        }
        let mut frame = which.get(frames()).clone();
        // Headers are in front: that is where changes tell.
        let reach = frame.len().min(110);
        for (at, byte) in changes {
            frame[12 + at.index(reach - 12)] = byte;
        }
        if let Some(cut) = cut {
            frame.truncate(cut.index(frame.len()));
        }
        if let Err(difference) = compare(&frame) {
            prop_assert!(false, "{difference}");
        }
    }
}
