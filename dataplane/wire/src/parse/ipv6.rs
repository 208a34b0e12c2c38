//! IPv6 with extension headers, in any order, up to [`MAX_EXTENSION_HEADERS`].

use super::{Flags, Fragment, L3, L4, Malformed, Parsed, ipv4::fragment_kind, l4};
use crate::{
    ipv4::protocol,
    ipv6::{
        Extension, FRAGMENT_LEN, FragmentHeader, HEADER_LEN, Ipv6, MAX_EXTENSION_HEADERS, Routing, option,
    },
};
use zerocopy::FromBytes;

pub(super) fn ipv6(frame: &[u8], parsed: Parsed) -> Result<Parsed, Malformed> {
    let packet = frame.get(usize::from(parsed.l3_offset)..).unwrap_or(&[]);
    let (header, behind) = Ipv6::ref_from_prefix(packet).map_err(|_| Malformed::Ipv6Cut)?;
    if header.version_class_label.get() >> 28 != 6 {
        return Err(Malformed::Ipv6Version);
    }
    let payload_len = usize::from(header.payload_len.get());
    if payload_len == 0 && header.next_header == protocol::HOP_BY_HOP {
        return Err(Malformed::JumboPayload);
    }
    let payload = behind.get(..payload_len).ok_or(Malformed::Ipv6PayloadLen)?;
    let mut chain = Chain {
        payload,
        is_cut: false,
        at: 0,
        next: header.next_header,
        flags: parsed.flags,
        fragment: None,
    };
    chain.walk()?;
    let l4_offset = parsed.l3_offset + (HEADER_LEN + chain.at) as u16;
    let found = Parsed {
        l3: L3::Ipv6,
        l4: L4::Unknown,
        flags: chain.flags,
        protocol: chain.next,
        l4_offset,
        end: parsed.l3_offset + (HEADER_LEN + payload_len) as u16,
        fragment: chain.fragment.unwrap_or(Fragment::None),
        ..parsed
    };
    l4::l4(frame, found)
}

/// Protocol, fragment kind and bytes of what stands behind the extension headers of a packet that may be cut;
/// `None` if it is cut before that.
pub(super) fn upper_layer(next: u8, payload: &[u8]) -> Option<(u8, Fragment, &[u8])> {
    let mut chain = Chain { payload, is_cut: true, at: 0, next, flags: Flags::NONE, fragment: None };
    chain.walk().ok()?;
    Some((chain.next, chain.fragment.unwrap_or(Fragment::None), payload.get(chain.at..)?))
}

/// The fragment header of a packet, and its data: all behind it. `None` when the chain has none.
pub(super) fn fragment_header(next: u8, payload: &[u8]) -> Option<(&FragmentHeader, &[u8])> {
    let mut chain = Chain { payload, is_cut: false, at: 0, next, flags: Flags::NONE, fragment: None };
    while chain.next != protocol::FRAGMENT {
        if !is_extension(chain.next) {
            return None;
        }
        chain.step().ok()?;
    }
    FragmentHeader::ref_from_prefix(payload.get(chain.at..)?).ok()
}

/// A walk along the extension headers of one packet.
struct Chain<'a> {
    /// All behind the fixed header, by the payload length.
    payload: &'a [u8],
    /// `payload` may end before the packet did: an ICMP error's quote.
    is_cut: bool,
    /// Where in `payload` the header `next` starts.
    at: usize,
    next: u8,
    flags: Flags,
    /// `None` until a fragment header was seen.
    fragment: Option<Fragment>,
}

impl Chain<'_> {
    /// Goes on until a header that is no extension, or the data of a later fragment.
    fn walk(&mut self) -> Result<(), Malformed> {
        for count in 0.. {
            if !is_extension(self.next) || self.fragment == Some(Fragment::Later) {
                break;
            }
            if count == MAX_EXTENSION_HEADERS {
                return Err(Malformed::ExtensionChainLong);
            }
            if self.next == protocol::HOP_BY_HOP && count > 0 {
                return Err(Malformed::HopByHopNotFirst);
            }
            self.flags = self.flags.with(Flags::EXTENSIONS);
            self.step()?;
        }
        Ok(())
    }

    /// Passes one extension header.
    fn step(&mut self) -> Result<(), Malformed> {
        if self.next == protocol::FRAGMENT {
            return self.fragment();
        }
        let rest = &self.payload[self.at..];
        let (extension, _) = Extension::ref_from_prefix(rest).map_err(|_| self.cut())?;
        let len = match self.next {
            protocol::AH => (usize::from(extension.len) + 2) * 4,
            _ => (usize::from(extension.len) + 1) * 8,
        };
        let header = rest.get(..len).ok_or(self.cut())?;
        match self.next {
            protocol::AH if len < 12 => return Err(Malformed::AhLen),
            protocol::HOP_BY_HOP => options(&header[2..], true)?,
            protocol::DESTINATION_OPTIONS => options(&header[2..], false)?,
            protocol::ROUTING => self.routing(header),
            _ => {}
        }
        self.at += len;
        self.next = extension.next_header;
        Ok(())
    }

    fn routing(&mut self, header: &[u8]) {
        self.flags = self.flags.with(Flags::ROUTING);
        if Routing::ref_from_prefix(header).is_ok_and(|(routing, _)| routing.routing_type == 0) {
            self.flags = self.flags.with(Flags::ROUTING_TYPE0);
        }
    }

    fn fragment(&mut self) -> Result<(), Malformed> {
        if self.fragment.is_some() || self.flags.contains(Flags::ATOMIC_FRAGMENT) {
            return Err(Malformed::FragmentTwice);
        }
        let rest = &self.payload[self.at..];
        let (header, data) = FragmentHeader::ref_from_prefix(rest).map_err(|_| Malformed::ExtensionCut)?;
        // The datagram put together has all headers up to this one, and not this one.
        let max_len = usize::from(u16::MAX) - self.at;
        let offset = usize::from(header.offset());
        // How much data a cut packet had is not known; eight bytes are never wrong.
        let data_len = if self.is_cut { 8 } else { data.len() };
        match fragment_kind(header.next_header, offset, header.more(), data_len, max_len)? {
            Fragment::None => self.flags = self.flags.with(Flags::ATOMIC_FRAGMENT),
            kind => self.fragment = Some(kind),
        }
        self.at += FRAGMENT_LEN;
        self.next = header.next_header;
        Ok(())
    }

    /// A first fragment must hold the whole chain (RFC 7112, section 5).
    fn cut(&self) -> Malformed {
        if self.fragment.is_some() { Malformed::FragmentTiny } else { Malformed::ExtensionCut }
    }
}

/// The headers the walk passes. All but the fragment header and AH have the length of RFC 6564, section 4.
/// ESP ends the walk: what it holds is encrypted.
const fn is_extension(next_header: u8) -> bool {
    matches!(
        next_header,
        protocol::HOP_BY_HOP
            | protocol::ROUTING
            | protocol::FRAGMENT
            | protocol::AH
            | protocol::DESTINATION_OPTIONS
            | protocol::MOBILITY
            | protocol::HIP
            | protocol::SHIM6
    )
}

/// Checks the options of a hop-by-hop or destination options header.
///
/// The discard bits bind every node for hop-by-hop options; for destination options only the destination, so
/// only a jumbo payload is refused there.
fn options(mut bytes: &[u8], hop_by_hop: bool) -> Result<(), Malformed> {
    while let [kind, rest @ ..] = bytes {
        if *kind == option::PAD1 {
            bytes = rest;
            continue;
        }
        let (len, data) = rest.split_first().ok_or(Malformed::ExtensionOption)?;
        bytes = data.get(usize::from(*len)..).ok_or(Malformed::ExtensionOption)?;
        match *kind {
            option::JUMBO => return Err(Malformed::JumboPayload),
            option::MPL => {}
            kind if hop_by_hop && kind & option::ACTION != 0 => return Err(Malformed::OptionDiscard),
            _ => {}
        }
    }
    Ok(())
}
