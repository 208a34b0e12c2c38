//! ARP (RFC 826).

use super::{BuildError, Writer};
use crate::{
    Mac,
    arp::{Arp, HARDWARE_ETHERNET, LEN, REPLY, REQUEST},
    ethernet::{Ethernet, HEADER_LEN, MIN_FRAME_LEN, ether_type},
};
use zerocopy::network_endian::U16;

/// Length of an ARP frame, padded to the shortest frame, bytes.
pub const ARP_FRAME_LEN: usize = MIN_FRAME_LEN;

/// Asks who has `target_ip`, by broadcast.
///
/// # Errors
/// [`BuildError::NoRoom`] below [`ARP_FRAME_LEN`].
pub fn arp_request(
    out: &mut [u8],
    src_mac: Mac,
    src_ip: [u8; 4],
    target_ip: [u8; 4],
) -> Result<usize, BuildError> {
    write(out, Mac::BROADCAST, packet(REQUEST, src_mac, src_ip, Mac::default(), target_ip))
}

/// Answers `request`: its target address is at `mac`.
///
/// # Errors
/// [`BuildError::NoRoom`] below [`ARP_FRAME_LEN`]; [`BuildError::Unanswerable`] if it is no request or its sender
/// has no unicast MAC address.
pub fn arp_reply(out: &mut [u8], request: &Arp, mac: Mac) -> Result<usize, BuildError> {
    let to = request.sender_mac;
    if !request.is_ipv4_ethernet() || request.operation.get() != REQUEST || to.is_multicast() || to.is_zero()
    {
        return Err(BuildError::Unanswerable);
    }
    write(out, to, packet(REPLY, mac, request.target_ip, to, request.sender_ip))
}

fn packet(operation: u16, sender_mac: Mac, sender_ip: [u8; 4], target_mac: Mac, target_ip: [u8; 4]) -> Arp {
    Arp {
        hardware: U16::new(HARDWARE_ETHERNET),
        protocol: U16::new(ether_type::IPV4),
        hardware_len: 6,
        protocol_len: 4,
        operation: U16::new(operation),
        sender_mac,
        sender_ip,
        target_mac,
        target_ip,
    }
}

fn write(out: &mut [u8], dst: Mac, arp: Arp) -> Result<usize, BuildError> {
    let mut writer = Writer::new(out);
    writer.put(&Ethernet { dst, src: arp.sender_mac, ether_type: U16::new(ether_type::ARP) })?;
    writer.put(&arp)?;
    writer.put(&[0u8; ARP_FRAME_LEN - HEADER_LEN - LEN])?;
    Ok(writer.len)
}
