//! The information elements of a flow record: one table, from which templates and records are written.

use std::net::IpAddr;

use program::DropReason;

/// Says that an element's length is in front of each value (RFC 7011, section 7).
pub const VARIABLE: u16 = 0xffff;
/// A queue pair has 24 bits: no flow has this one.
pub const NO_QUEUE_PAIR: u32 = u32::MAX;
/// The drop reason of what is forwarded. A text without a byte is allowed, and not every collector reads it.
const NO_REASON: &str = "-";
/// Bytes of an Ethernet header, which frames are counted with.
const ETHERNET_BYTES: u64 = 14;

/// What a record says.
#[derive(Clone, Debug)]
pub struct Flow<'a> {
    pub src: IpAddr,
    pub dst: IpAddr,
    pub protocol: u8,
    /// Source and destination port; zeros where there are none.
    pub ports: (u16, u16),
    /// Type and code; zeros where there are none.
    pub icmp: (u8, u8),
    /// Since the last record.
    pub packets: u64,
    /// Of whole frames, since the last record.
    pub bytes: u64,
    /// When the table was read, in milliseconds since 1970.
    pub read_ms: u64,
    pub interface: u32,
    pub vni: u32,
    pub dropped: Option<DropReason>,
    pub queue_pair: Option<u32>,
    pub tenant: &'a str,
}

/// Which template has the element.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    V4,
    V6,
    Both,
}

impl Family {
    /// The one of an address.
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }
}

/// Who has numbered an element.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Registry {
    Iana,
    /// The number given by `--ipfix-enterprise`.
    Ours,
}

/// One column of a record.
pub struct Element {
    /// As its registry has it; a template carries the number only.
    #[cfg_attr(not(test), expect(dead_code, reason = "the documentation is held against it"))]
    pub name: &'static str,
    pub registry: Registry,
    pub number: u16,
    /// Bytes in a record, or [`VARIABLE`].
    pub len: u16,
    pub family: Family,
    pub write: fn(&Flow<'_>, &mut Vec<u8>),
}

const fn iana(name: &'static str, number: u16, len: u16, write: fn(&Flow<'_>, &mut Vec<u8>)) -> Element {
    Element { name, registry: Registry::Iana, number, len, family: Family::Both, write }
}

const fn ours(name: &'static str, number: u16, len: u16, write: fn(&Flow<'_>, &mut Vec<u8>)) -> Element {
    Element { name, registry: Registry::Ours, number, len, family: Family::Both, write }
}

const fn only(family: Family, element: Element) -> Element {
    Element { family, ..element }
}

/// In the order of a record. Numbers are those of IANA's registry "IPFIX Information Elements".
pub const ELEMENTS: &[Element] = &[
    only(Family::V4, iana("sourceIPv4Address", 8, 4, |flow, out| address(flow.src, out))),
    only(Family::V4, iana("destinationIPv4Address", 12, 4, |flow, out| address(flow.dst, out))),
    only(Family::V6, iana("sourceIPv6Address", 27, 16, |flow, out| address(flow.src, out))),
    only(Family::V6, iana("destinationIPv6Address", 28, 16, |flow, out| address(flow.dst, out))),
    iana("protocolIdentifier", 4, 1, |flow, out| out.push(flow.protocol)),
    iana("sourceTransportPort", 7, 2, |flow, out| out.extend(flow.ports.0.to_be_bytes())),
    iana("destinationTransportPort", 11, 2, |flow, out| out.extend(flow.ports.1.to_be_bytes())),
    only(Family::V4, iana("icmpTypeCodeIPv4", 32, 2, |flow, out| out.extend([flow.icmp.0, flow.icmp.1]))),
    only(Family::V6, iana("icmpTypeCodeIPv6", 139, 2, |flow, out| out.extend([flow.icmp.0, flow.icmp.1]))),
    iana("packetDeltaCount", 2, 8, |flow, out| out.extend(flow.packets.to_be_bytes())),
    iana("octetDeltaCount", 1, 8, |flow, out| {
        out.extend(flow.bytes.saturating_sub(flow.packets.saturating_mul(ETHERNET_BYTES)).to_be_bytes());
    }),
    iana("layer2OctetDeltaCount", 352, 8, |flow, out| out.extend(flow.bytes.to_be_bytes())),
    iana("observationTimeMilliseconds", 323, 8, |flow, out| out.extend(flow.read_ms.to_be_bytes())),
    iana("ingressInterface", 10, 4, |flow, out| out.extend(flow.interface.to_be_bytes())),
    iana("layer2SegmentId", 351, 8, |flow, out| out.extend(segment(flow.vni).to_be_bytes())),
    iana("forwardingStatus", 89, 1, |flow, out| out.push(forwarding_status(flow.dropped))),
    ours("roceDestinationQueuePair", 1, 4, |flow, out| {
        out.extend(flow.queue_pair.unwrap_or(NO_QUEUE_PAIR).to_be_bytes());
    }),
    ours("dropReason", 2, VARIABLE, |flow, out| text(flow.dropped.map_or(NO_REASON, DropReason::name), out)),
    ours("tenantName", 3, VARIABLE, |flow, out| text(flow.tenant, out)),
];

fn address(address: IpAddr, out: &mut Vec<u8>) {
    match address {
        IpAddr::V4(address) => out.extend(address.octets()),
        IpAddr::V6(address) => out.extend(address.octets()),
    }
}

/// A VXLAN's segment: its kind in the first byte, its VNI in the last three (RFC 7133, appendix; IANA, element 351).
fn segment(vni: u32) -> u64 {
    1 << 56 | u64::from(vni & 0x00ff_ffff)
}

/// What became of the packets (RFC 7270, section 4.12).
fn forwarding_status(dropped: Option<DropReason>) -> u8 {
    match dropped {
        None => 64,
        Some(DropReason::PolicyDeny | DropReason::PolicyDefault) => 129,
        Some(DropReason::NoRoute) => 131,
        Some(DropReason::UnresolvedNextHop) => 132,
        Some(DropReason::TtlExpired) => 137,
        Some(DropReason::SpoofedAddress) => 140,
        Some(_) => 128,
    }
}

/// With its length in front, in one byte: a longer text is cut before a character.
fn text(text: &str, out: &mut Vec<u8>) {
    let end = (0..=text.len().min(254)).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    out.push(end as u8);
    out.extend(&text.as_bytes()[..end]);
}
