//! Every frame the straight line does not take: tags, ARP, options, extension headers, fragments, and all that
//! is wrong.

use super::{Flags, L3, Malformed, Parsed, ipv4, ipv6};
use crate::{
    arp::{self, Arp},
    ethernet::{HEADER_LEN, MAX_FRAME_LEN, TAG_LEN, Tag, Vlan, ether_type, is_tag},
};
use zerocopy::FromBytes;

/// The whole parser, without the short cuts of [`super::parse_into`].
#[cold]
#[inline(never)]
pub(super) fn general(frame: &[u8], parsed: &mut Parsed) -> Result<(), Malformed> {
    *parsed = whole(frame)?;
    Ok(())
}

fn whole(frame: &[u8]) -> Result<Parsed, Malformed> {
    if frame.len() > MAX_FRAME_LEN {
        return Err(Malformed::FrameLong);
    }
    let parsed = ethernet(frame)?;
    match parsed.ether_type {
        _ if parsed.flags.contains(Flags::MANY_TAGS) => Ok(parsed),
        ether_type::IPV4 => ipv4::ipv4(frame, parsed),
        ether_type::IPV6 => ipv6::ipv6(frame, parsed),
        ether_type::ARP => arp(frame, parsed),
        _ => Ok(parsed),
    }
}

/// MAC addresses, tags and EtherType.
fn ethernet(frame: &[u8]) -> Result<Parsed, Malformed> {
    let mut vlan = Vlan::NONE;
    let mut flags = Flags::NONE;
    let mut l3_offset = HEADER_LEN;
    let mut ether_type = be16(frame, HEADER_LEN - 2).ok_or(Malformed::FrameShort)?;
    while is_tag(ether_type) {
        let tci = be16(frame, l3_offset).ok_or(Malformed::VlanCut)?;
        let behind = be16(frame, l3_offset + 2).ok_or(Malformed::VlanCut)?;
        if !vlan.push_inner(Tag { tpid: ether_type, tci }) {
            flags = Flags::MANY_TAGS;
            break;
        }
        ether_type = behind;
        l3_offset += TAG_LEN;
    }
    let (l3_offset, end) = (l3_offset as u16, frame.len() as u16);
    Ok(Parsed { vlan, ether_type, l3_offset, l4_offset: l3_offset, end, flags, ..Parsed::EMPTY })
}

fn arp(frame: &[u8], parsed: Parsed) -> Result<Parsed, Malformed> {
    let packet = frame.get(usize::from(parsed.l3_offset)..).unwrap_or(&[]);
    let (packet, _) = Arp::ref_from_prefix(packet).map_err(|_| Malformed::ArpCut)?;
    if !packet.is_ipv4_ethernet() {
        return Err(Malformed::ArpFormat);
    }
    Ok(Parsed { l3: L3::Arp, end: parsed.l3_offset + arp::LEN as u16, ..parsed })
}

/// Two bytes at `at`, if they are there.
pub(super) fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|pair| u16::from_be_bytes(*pair))
}
