//! Echo requests to this box's own addresses, answered in the buffer that they came in.

use wire::{Fragment, L3, L4, Parsed, checksum, icmp, icmpv6};

/// Hop limit of an answer.
const TTL: u8 = 64;

/// Turns an echo request into its reply (RFC 792; RFC 4443, section 4.2): MACs and addresses swapped, type changed,
/// hop limit renewed. False, and nothing written, when it is something else.
pub(crate) fn reply_in_place(frame: &mut [u8], parsed: &Parsed) -> bool {
    let (request, reply) = match parsed.l4 {
        L4::Icmp => (icmp::ECHO_REQUEST, icmp::ECHO_REPLY),
        L4::Icmpv6 => (icmpv6::ECHO_REQUEST, icmpv6::ECHO_REPLY),
        _ => return false,
    };
    let (l3, l4) = (usize::from(parsed.l3_offset), usize::from(parsed.l4_offset));
    if parsed.fragment != Fragment::None || frame.get(l4..l4 + 2) != Some(&[request, 0]) {
        return false;
    }
    swap(frame, 0, 6, 6);
    if parsed.l3 == L3::Ipv4 {
        swap(frame, l3 + 12, l3 + 16, 4);
        frame[l3 + 8] = TTL;
        checksum::fill_ipv4_header(&mut frame[l3..]);
    } else {
        swap(frame, l3 + 8, l3 + 24, 16);
        frame[l3 + 7] = TTL;
    }
    frame[l4] = reply;
    let sum = u16::from_be_bytes([frame[l4 + 2], frame[l4 + 3]]);
    let sum = checksum::update(sum, u16::from(request) << 8, u16::from(reply) << 8);
    frame[l4 + 2..l4 + 4].copy_from_slice(&sum.to_be_bytes());
    true
}

fn swap(frame: &mut [u8], a: usize, b: usize, len: usize) {
    (0..len).for_each(|at| frame.swap(a + at, b + at));
}
