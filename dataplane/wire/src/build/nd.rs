//! Neighbour solicitation and advertisement (RFC 4861).

use super::{BuildError, Writer};
use crate::{
    Mac,
    checksum::{self, pseudo_ipv6},
    ethernet::{self, Ethernet, ether_type},
    icmpv6,
    ipv4::protocol,
    ipv6::{self, Ipv6},
    nd::{HOP_LIMIT, Head, NeighbourAdvertisement, NeighbourSolicitation, option},
};
use zerocopy::{
    Immutable, IntoBytes,
    network_endian::{U16, U32},
};

const MESSAGE_LEN: usize = size_of::<NeighbourSolicitation>() + 8;
/// Length of either frame, bytes.
pub const ND_FRAME_LEN: usize = ethernet::HEADER_LEN + ipv6::HEADER_LEN + MESSAGE_LEN;

const ALL_NODES: [u8; 16] = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];

/// Asks who has `target`, by the solicited-node multicast address (section 7.2.2).
///
/// # Errors
/// [`BuildError::NoRoom`] below [`ND_FRAME_LEN`].
pub fn neighbour_solicitation(
    out: &mut [u8],
    src_mac: Mac,
    src_ip: [u8; 16],
    target: [u8; 16],
) -> Result<usize, BuildError> {
    let dst_ip = solicited_node(target);
    let addresses = Addresses { src_mac, dst_mac: multicast_mac(dst_ip), src_ip, dst_ip };
    let head = Head { kind: icmpv6::NEIGHBOUR_SOLICITATION, code: 0, checksum: U16::ZERO };
    let message = NeighbourSolicitation { head, reserved: U32::ZERO, target };
    write(out, &addresses, &message, option::SOURCE_LINK_LAYER)
}

/// Tells `asker` (MAC and IP) that `target` is at `mac`, with `flags` of [`NeighbourAdvertisement`].
///
/// An asker without an address (`::`, duplicate address detection) is told by multicast, and then
/// [`NeighbourAdvertisement::SOLICITED`] is left out (section 7.2.4).
///
/// # Errors
/// [`BuildError::NoRoom`] below [`ND_FRAME_LEN`]; [`BuildError::Unanswerable`] if the asker's address is a
/// multicast one.
pub fn neighbour_advertisement(
    out: &mut [u8],
    mac: Mac,
    target: [u8; 16],
    asker: (Mac, [u8; 16]),
    flags: u32,
) -> Result<usize, BuildError> {
    let (dst_mac, dst_ip, flags) = match asker {
        (_, [0xff, ..]) => return Err(BuildError::Unanswerable),
        (_, ip) if ip == [0; 16] => {
            (multicast_mac(ALL_NODES), ALL_NODES, flags & !NeighbourAdvertisement::SOLICITED)
        }
        (mac, ip) => (mac, ip, flags),
    };
    let addresses = Addresses { src_mac: mac, dst_mac, src_ip: target, dst_ip };
    let head = Head { kind: icmpv6::NEIGHBOUR_ADVERTISEMENT, code: 0, checksum: U16::ZERO };
    let message = NeighbourAdvertisement { head, flags: U32::new(flags), target };
    write(out, &addresses, &message, option::TARGET_LINK_LAYER)
}

struct Addresses {
    src_mac: Mac,
    dst_mac: Mac,
    src_ip: [u8; 16],
    dst_ip: [u8; 16],
}

fn write<T: IntoBytes + Immutable>(
    out: &mut [u8],
    to: &Addresses,
    message: &T,
    option: u8,
) -> Result<usize, BuildError> {
    let mut writer = Writer::new(out);
    writer.put(&Ethernet { dst: to.dst_mac, src: to.src_mac, ether_type: U16::new(ether_type::IPV6) })?;
    writer.put(&Ipv6 {
        version_class_label: U32::new(6 << 28),
        payload_len: U16::new(MESSAGE_LEN as u16),
        next_header: protocol::ICMPV6,
        hop_limit: HOP_LIMIT,
        src: to.src_ip,
        dst: to.dst_ip,
    })?;
    let at = writer.len;
    writer.put(message)?;
    writer.put(&[option, 1])?;
    writer.put(&to.src_mac)?;
    let pseudo = pseudo_ipv6(&to.src_ip, &to.dst_ip, protocol::ICMPV6, MESSAGE_LEN as u32);
    checksum::fill_icmp(writer.since(at), pseudo);
    Ok(writer.len)
}

/// The solicited-node multicast address (RFC 4291, section 2.7.1).
fn solicited_node(target: [u8; 16]) -> [u8; 16] {
    let mut address = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0, 0, 0];
    address[13..].copy_from_slice(&target[13..]);
    address
}

/// The MAC address of an IPv6 multicast address (RFC 2464, section 7).
fn multicast_mac(ip: [u8; 16]) -> Mac {
    Mac([0x33, 0x33, ip[12], ip[13], ip[14], ip[15]])
}
