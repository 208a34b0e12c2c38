//! The parser: total, free of allocation, one pass.
//!
//! [`parse`] is a straight line for what nearly every frame is: untagged Ethernet, IPv4 without options or IPv6
//! without extension headers, not a fragment, TCP or UDP. One VLAN tag costs little more. Everything else goes to
//! the cold [`general`] parser, which gives the same answers for those frames too (a property test holds them to it).

mod access;
mod general;
mod ipv4;
mod ipv6;
mod l4;
mod malformed;
mod part;
mod quoted;
#[cfg(test)]
mod tests;

pub use malformed::Malformed;
pub use part::Part;
pub use quoted::Quoted;

use crate::{
    ethernet::{self, MAX_FRAME_LEN, TAG_LEN, Tag, Vlan, VlanTag, ether_type},
    ipv4::protocol,
    roce, tcp, udp,
};
use zerocopy::FromBytes;

/// What an Ethernet frame carries.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum L3 {
    /// None of the others: another EtherType, an LLC frame, or more than two VLAN tags.
    Other,
    /// ARP for IPv4 on Ethernet.
    Arp,
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

/// What an IP packet carries.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum L4 {
    /// Nothing: not IP, a later fragment, or IPv6 "no next header".
    None,
    /// A protocol the parser does not read, ESP and tunnels among them; see [`Parsed::protocol`].
    Unknown,
    /// TCP.
    Tcp,
    /// UDP with any destination port but RoCEv2's.
    Udp,
    /// ICMP over IPv4.
    Icmp,
    /// ICMPv6 over IPv6.
    Icmpv6,
    /// SCTP.
    Sctp,
    /// RoCEv2: UDP with destination port 4791.
    Roce,
}

/// Whether an IP packet is a fragment.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Fragment {
    /// Not one; an IPv6 atomic fragment (RFC 6946) counts as whole, see [`Flags::ATOMIC_FRAGMENT`].
    None,
    /// The first, which holds the L4 header.
    First,
    /// Any other: no L4 header, so [`L4::None`].
    Later,
}

/// Rare facts about a frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Flags(u16);

impl Flags {
    /// None.
    pub const NONE: Self = Self(0);
    /// The IPv4 header has options.
    pub const IPV4_OPTIONS: Self = Self(0x01);
    /// IPv6 extension headers stand before the L4 header.
    pub const EXTENSIONS: Self = Self(0x02);
    /// An IPv4 source route option, loose or strict.
    pub const SOURCE_ROUTE: Self = Self(0x04);
    /// IPv4 "don't fragment".
    pub const DF: Self = Self(0x08);
    /// An IPv6 routing header of any type.
    pub const ROUTING: Self = Self(0x10);
    /// An IPv6 routing header of type 0 (RFC 5095), whatever its segments left.
    pub const ROUTING_TYPE0: Self = Self(0x20);
    /// An IPv6 fragment header on a packet that is whole (RFC 6946).
    pub const ATOMIC_FRAGMENT: Self = Self(0x40);
    /// More VLAN tags than [`Vlan::MAX`]: the rest is not read.
    pub const MANY_TAGS: Self = Self(0x80);

    /// True if every flag of `other` is set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both sets.
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// What [`parse`] found. Offsets count from the start of the frame; all lie within it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parsed {
    /// RoCEv2 destination queue pair, 24 bits; else 0.
    pub dest_qp: u32,
    /// VLAN tags, outermost first.
    pub vlan: Vlan,
    /// EtherType behind the tags; below 0x0600 the length of an LLC frame.
    pub ether_type: u16,
    /// Where the IP header, the ARP packet or the payload of another EtherType starts.
    pub l3_offset: u16,
    /// Where L4 starts: its header, or for a later fragment its data. Not IP: equal to `l3_offset`.
    pub l4_offset: u16,
    /// One past the last byte of the IP packet, by its own length: Ethernet padding and trailers are outside.
    /// Not IP: one past the ARP packet, or the frame's length.
    pub end: u16,
    /// Source port of TCP, UDP, RoCEv2 or SCTP; else 0.
    pub src_port: u16,
    /// Destination port of TCP, UDP, RoCEv2 or SCTP; else 0.
    pub dst_port: u16,
    /// Rare facts.
    pub flags: Flags,
    /// IPv4 protocol or the last IPv6 next header found; 0 if not IP.
    pub protocol: u8,
    /// What the frame carries.
    pub l3: L3,
    /// What the IP packet carries.
    pub l4: L4,
    /// Whether the IP packet is a fragment.
    pub fragment: Fragment,
}

impl Parsed {
    /// A frame that holds nothing: what to fill an array with before [`parse_into`].
    pub const EMPTY: Self = Self {
        dest_qp: 0,
        vlan: Vlan::NONE,
        ether_type: 0,
        l3_offset: 0,
        l4_offset: 0,
        end: 0,
        src_port: 0,
        dst_port: 0,
        flags: Flags::NONE,
        protocol: 0,
        l3: L3::Other,
        l4: L4::None,
        fragment: Fragment::None,
    };
}

impl Default for Parsed {
    fn default() -> Self {
        Self::EMPTY
    }
}

const _: () = assert!(size_of::<Parsed>() == 32 && size_of::<Result<Parsed, Malformed>>() == 32);

/// Where the EtherType of an untagged frame stands.
const ETHER_TYPE: usize = 12;
const IPV4_L4: usize = ethernet::HEADER_LEN + crate::ipv4::HEADER_LEN;
const IPV6_L4: usize = ethernet::HEADER_LEN + crate::ipv6::HEADER_LEN;

/// Parses an Ethernet frame (without its check sequence), or the inner frame of a VXLAN packet.
///
/// Total: any bytes give an answer, without a panic, a read past the end or an allocation. Checksums are not
/// checked. Lengths are: every header the answer names lies within its packet, and the packet in the frame.
///
/// ```
/// let mut frame = [0u8; 60];
/// frame[12..14].copy_from_slice(&[0x08, 0x00]);
/// frame[14..20].copy_from_slice(&[0x45, 0, 0, 30, 0, 0]);
/// frame[23] = 17;
/// frame[34..40].copy_from_slice(&[0x04, 0x00, 0, 53, 0, 10]);
/// let parsed = wire::parse(&frame).unwrap();
/// assert_eq!((parsed.l4, parsed.src_port, parsed.dst_port, parsed.end), (wire::L4::Udp, 1024, 53, 44));
/// ```
#[inline(always)]
pub fn parse(frame: &[u8]) -> Result<Parsed, Malformed> {
    let mut parsed = Parsed::EMPTY;
    parse_into(frame, &mut parsed).map(|()| parsed)
}

/// [`parse`] that writes its answer in place: a third of the cost (10 cycles against 35) for a caller that keeps it
/// in an array, because the fields are stored once and not copied. After an error `parsed` holds nothing of use.
#[inline(always)]
pub fn parse_into(frame: &[u8], parsed: &mut Parsed) -> Result<(), Malformed> {
    match line(frame, parsed) {
        Some(L4::Roce) => l4::roce(frame, parsed),
        Some(_) => Ok(()),
        None => odd(frame, parsed),
    }
}

/// The straight line; `None`, and nothing written, for a frame that is not on it.
#[inline(always)]
fn line(frame: &[u8], parsed: &mut Parsed) -> Option<L4> {
    match frame.first_chunk() {
        Some(head) if be16(head, ETHER_TYPE) == ether_type::IPV4 => ipv4_line(head, frame.len(), parsed),
        Some(_) => match frame.first_chunk() {
            Some(head) if be16(head, ETHER_TYPE) == ether_type::IPV6 => ipv6_line(head, frame.len(), parsed),
            _ => None,
        },
        None => None,
    }
}

/// What is not on the straight line: one VLAN tag and then the line, or the general parser.
#[inline(never)]
fn odd(frame: &[u8], parsed: &mut Parsed) -> Result<(), Malformed> {
    match tagged_line(frame, parsed) {
        Some(L4::Roce) => l4::roce(frame, parsed),
        Some(_) => Ok(()),
        None => general::general(frame, parsed),
    }
}

#[inline(always)]
fn tagged_line(frame: &[u8], parsed: &mut Parsed) -> Option<L4> {
    let (tag, _) = VlanTag::ref_from_prefix(frame.get(ETHER_TYPE..)?).ok()?;
    if !ethernet::is_tag(tag.tpid.get()) || frame.len() > MAX_FRAME_LEN {
        return None;
    }
    // Without its first four bytes a tagged frame has its EtherType, and all behind it, where an untagged one has.
    let l4 = line(frame.get(TAG_LEN..)?, parsed)?;
    parsed.vlan.push_inner(Tag { tpid: tag.tpid.get(), tci: tag.tci.get() });
    parsed.l3_offset += TAG_LEN as u16;
    parsed.l4_offset += TAG_LEN as u16;
    parsed.end += TAG_LEN as u16;
    Some(l4)
}

/// The straight line for IPv4. The chunk holds the shortest TCP header, and no wire frame is shorter than 60
/// bytes; UDP in a shorter inner frame takes the general way.
#[inline(always)]
fn ipv4_line(head: &[u8; IPV4_L4 + tcp::HEADER_LEN], frame_len: usize, parsed: &mut Parsed) -> Option<L4> {
    const L3: usize = ethernet::HEADER_LEN;
    let end = L3 + usize::from(be16(head, L3 + 2));
    let fragment = be16(head, L3 + 6);
    let protocol = head[L3 + 9];
    let odd = (head[L3] != 0x45) | (fragment & !crate::ipv4::DF != 0);
    if odd | (end > frame_len) | (frame_len > MAX_FRAME_LEN) {
        return None;
    }
    let l4 = line_l4(head, IPV4_L4, protocol, end)?;
    *parsed = Parsed {
        ether_type: ether_type::IPV4,
        l3_offset: L3 as u16,
        l4_offset: IPV4_L4 as u16,
        end: end as u16,
        src_port: be16(head, IPV4_L4),
        dst_port: be16(head, IPV4_L4 + 2),
        // DF is bit 14 of the field and bit 3 of the flags.
        flags: Flags(fragment >> 11),
        protocol,
        l3: L3::Ipv4,
        l4,
        ..Parsed::EMPTY
    };
    Some(l4)
}

/// The straight line for IPv6.
#[inline(always)]
fn ipv6_line(head: &[u8; IPV6_L4 + tcp::HEADER_LEN], frame_len: usize, parsed: &mut Parsed) -> Option<L4> {
    const L3: usize = ethernet::HEADER_LEN;
    let end = IPV6_L4 + usize::from(be16(head, L3 + 4));
    let protocol = head[L3 + 6];
    let odd = head[L3] >> 4 != 6;
    if odd | (end > frame_len) | (frame_len > MAX_FRAME_LEN) {
        return None;
    }
    let l4 = line_l4(head, IPV6_L4, protocol, end)?;
    *parsed = Parsed {
        ether_type: ether_type::IPV6,
        l3_offset: L3 as u16,
        l4_offset: IPV6_L4 as u16,
        end: end as u16,
        src_port: be16(head, IPV6_L4),
        dst_port: be16(head, IPV6_L4 + 2),
        protocol,
        l3: L3::Ipv6,
        l4,
        ..Parsed::EMPTY
    };
    Some(l4)
}

/// TCP, UDP or RoCEv2 at `at`, if its own length ends no later than the IP packet, at `end`; `None` for anything
/// else.
#[inline(always)]
fn line_l4<const N: usize>(head: &[u8; N], at: usize, protocol: u8, end: usize) -> Option<L4> {
    let udp_len = usize::from(be16(head, at + 4));
    let tcp_len = usize::from(head[at + 12] >> 4) * 4;
    match protocol {
        protocol::UDP if udp_len >= udp::HEADER_LEN && at + udp_len <= end => {
            Some(if be16(head, at + 2) == roce::PORT { L4::Roce } else { L4::Udp })
        }
        protocol::TCP if tcp_len >= tcp::HEADER_LEN && at + tcp_len <= end => Some(L4::Tcp),
        _ => None,
    }
}

/// Two bytes at a constant offset; the compiler proves the bound.
#[inline(always)]
fn be16<const N: usize>(bytes: &[u8; N], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}
