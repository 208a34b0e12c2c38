//! IPv4 with options and fragments.

use super::{Flags, Fragment, L3, L4, Malformed, Parsed, l4};
use crate::ipv4::{DF, FRAGMENT_OFFSET, HEADER_LEN, Ipv4, MF, option, protocol};
use zerocopy::FromBytes;

/// The longest datagram, header and all (RFC 791, section 3.1), bytes.
const MAX_LEN: usize = u16::MAX as usize;

pub(super) fn ipv4(frame: &[u8], parsed: Parsed) -> Result<Parsed, Malformed> {
    let packet = frame.get(usize::from(parsed.l3_offset)..).unwrap_or(&[]);
    let (header, _) = Ipv4::ref_from_prefix(packet).map_err(|_| Malformed::Ipv4Cut)?;
    if header.version_ihl >> 4 != 4 {
        return Err(Malformed::Ipv4Version);
    }
    let total_len = usize::from(header.total_len.get());
    if total_len < HEADER_LEN || total_len > packet.len() {
        return Err(Malformed::Ipv4TotalLen);
    }
    let header_len = header.header_len();
    if header_len < HEADER_LEN || header_len > total_len {
        return Err(Malformed::Ipv4HeaderLen);
    }
    let mut flags = parsed.flags.with(options(&packet[HEADER_LEN..header_len])?);
    if header.fragment.get() & DF != 0 {
        flags = flags.with(Flags::DF);
    }
    let found = Parsed {
        l3: L3::Ipv4,
        l4: L4::Unknown,
        flags,
        protocol: header.protocol,
        l4_offset: parsed.l3_offset + header_len as u16,
        end: parsed.l3_offset + total_len as u16,
        fragment: fragment(header, header_len, total_len)?,
        ..parsed
    };
    l4::l4(frame, found)
}

/// What the options say; each must lie within the header (RFC 791, section 3.1).
fn options(mut bytes: &[u8]) -> Result<Flags, Malformed> {
    let mut flags = if bytes.is_empty() { Flags::NONE } else { Flags::IPV4_OPTIONS };
    while let [kind, rest @ ..] = bytes {
        match *kind {
            option::END => break,
            option::NOP => bytes = rest,
            kind => {
                let len = usize::from(*rest.first().ok_or(Malformed::Ipv4Option)?);
                if len < 2 || len > bytes.len() {
                    return Err(Malformed::Ipv4Option);
                }
                if matches!(kind, option::LSRR | option::SSRR) {
                    flags = flags.with(Flags::SOURCE_ROUTE);
                }
                bytes = &bytes[len..];
            }
        }
    }
    Ok(flags)
}

fn fragment(header: &Ipv4, header_len: usize, total_len: usize) -> Result<Fragment, Malformed> {
    let field = header.fragment.get();
    let more = field & MF != 0;
    let offset = usize::from(field & FRAGMENT_OFFSET) * 8;
    fragment_kind(header.protocol, offset, more, total_len - header_len, MAX_LEN - header_len)
}

/// Classes a fragment of `data_len` bytes at `offset` of a datagram whose data is at most `max_len`, and refuses
/// those that no honest host sends (RFC 1858, RFC 3128, RFC 8200 section 4.5).
pub(super) fn fragment_kind(
    protocol: u8,
    offset: usize,
    more: bool,
    data_len: usize,
    max_len: usize,
) -> Result<Fragment, Malformed> {
    if offset == 0 && !more {
        return Ok(Fragment::None);
    }
    if data_len == 0 {
        return Err(Malformed::FragmentEmpty);
    }
    if more && !data_len.is_multiple_of(8) {
        return Err(Malformed::FragmentUnaligned);
    }
    if offset + data_len > max_len {
        return Err(Malformed::FragmentBeyond);
    }
    // Overlaps the flags of the TCP header, or completes one cut to hide them.
    if offset == 8 && protocol == protocol::TCP {
        return Err(Malformed::FragmentTiny);
    }
    Ok(if offset == 0 { Fragment::First } else { Fragment::Later })
}
