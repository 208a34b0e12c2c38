//! Fragments of whole frames, cut as a sender would, or as no honest one does.

use std::ops::Range;

/// Where the data of the IP packet starts in an untagged frame without options or extension headers.
const fn data_at(frame: &[u8]) -> usize {
    if is_ipv4(frame) { 34 } else { 54 }
}

const fn is_ipv4(frame: &[u8]) -> bool {
    frame[12] == 8
}

/// The bytes `range` of an IP packet's data as a fragment of the datagram `id`: the last one if it reaches the end.
pub fn fragment(whole: &[u8], id: u32, range: Range<usize>) -> Vec<u8> {
    let data = &whole[data_at(whole)..];
    let more = range.end < data.len();
    fragment_of(whole, id, range.start, more, &data[range])
}

/// Any fragment with the headers of a whole frame. `offset` is in bytes, a multiple of eight; IPv4 has 16 bits of `id`.
pub fn fragment_of(whole: &[u8], id: u32, offset: usize, more: bool, data: &[u8]) -> Vec<u8> {
    let mut frame = whole[..data_at(whole)].to_vec();
    let offset = u16::try_from(offset).expect("an offset of 16 bits");
    if is_ipv4(whole) {
        frame.extend_from_slice(data);
        let len = (frame.len() - 14) as u16;
        frame[16..18].copy_from_slice(&len.to_be_bytes());
        frame[18..20].copy_from_slice(&(id as u16).to_be_bytes());
        frame[20..22].copy_from_slice(&((u16::from(more) << 13) | (offset / 8)).to_be_bytes());
        assert!(wire::checksum::fill_ipv4_header(&mut frame[14..]));
        return frame;
    }
    let next = std::mem::replace(&mut frame[20], 44);
    frame.extend_from_slice(&[next, 0]);
    frame.extend_from_slice(&(offset | u16::from(more)).to_be_bytes());
    frame.extend_from_slice(&id.to_be_bytes());
    frame.extend_from_slice(data);
    let len = (frame.len() - 54) as u16;
    frame[18..20].copy_from_slice(&len.to_be_bytes());
    frame
}

/// A whole frame in fragments that end at these bytes of its data, and one with the rest.
pub fn cut(whole: &[u8], id: u32, ends: &[usize]) -> Vec<Vec<u8>> {
    let len = whole.len() - data_at(whole);
    let starts = [0].into_iter().chain(ends.iter().copied());
    starts
        .zip(ends.iter().copied().chain([len]))
        .map(|(start, end)| fragment(whole, id, start..end))
        .collect()
}

/// Puts fragments together, by their places alone: the data of the packet, if no byte of it is missing.
pub fn joined(fragments: &[Vec<u8>]) -> Option<Vec<u8>> {
    let (mut bytes, mut end) = (std::collections::BTreeMap::new(), None);
    for frame in fragments {
        let (start, more, data) = if is_ipv4(frame) {
            let field = u16::from_be_bytes([frame[20], frame[21]]);
            (usize::from(field & 0x1fff) * 8, field & 0x2000 != 0, &frame[34..])
        } else {
            let field = u16::from_be_bytes([frame[56], frame[57]]);
            (usize::from(field & 0xfff8), field & 1 != 0, &frame[62..])
        };
        bytes.extend((start..).zip(data.iter().copied()));
        end = if more { end } else { Some(start + data.len()) };
    }
    (0..end?).map(|at| bytes.get(&at).copied()).collect()
}
