//! TCP: the windows of a connection, from the headers of its segments.

use program::{DropReason, MidStream, Windows};
use tables::connection::Followed;
use tables::connection::tcp::{self, Segment, Side};
use tables::flow::{FlowKey, Slot};
use wire::tcp::{HEADER_LEN, flag};
use wire::{Fragment, Parsed};

use super::{idle, settings};
use crate::lane::Lane;
use crate::{Edge, Tables};

/// Kinds of TCP options (RFC 9293, section 3.1; RFC 7323, section 2.2).
const END_OF_OPTIONS: u8 = 0;
const NO_OPERATION: u8 = 1;
const WINDOW_SCALE: u8 = 3;

impl Edge {
    #[inline(always)]
    pub(super) fn track_tcp(
        &mut self,
        tables: &Tables,
        slot: Slot,
        lane: &Lane,
        frame: &[u8],
    ) -> Result<(), DropReason> {
        let segment = read(frame, &lane.parsed);
        if let Some([own, other]) = self.both_directions(slot) {
            let (own, other) = (Side::of_mut(&mut own.state.words), Side::of_mut(&mut other.state.words));
            if lane.parsed.fragment == Fragment::None && tcp::follow_ordinary(own, other, &segment) {
                return Ok(());
            }
        }
        self.track_odd_tcp(tables, slot, lane, frame)
    }

    /// What is no ordinary segment of an open connection.
    #[inline(never)]
    fn track_odd_tcp(
        &mut self,
        tables: &Tables,
        slot: Slot,
        lane: &Lane,
        frame: &[u8],
    ) -> Result<(), DropReason> {
        let header = read(frame, &lane.parsed);
        let segment = Segment { scale: window_scale(frame, &lane.parsed), ..header };
        let peer = self.peer(slot);
        let (mut own, mut other) = self.tcp_sides(slot);
        let followed = tcp::follow(&mut own, &mut other, &segment);
        if lane.parsed.fragment == Fragment::First {
            // What the later fragments carry is not in this one.
            own.leave_unchecked();
        }
        let outcome = match followed {
            Followed::Same | Followed::Odd => Ok(()),
            Followed::Changed => {
                self.set_timeouts(slot, peer, idle::of_tcp(tcp::stage(&own, &other)));
                Ok(())
            }
            Followed::OutOfState => return Err(DropReason::NoConnection),
            Followed::OutOfWindow => {
                self.out_of_window += 1;
                match settings(tables, lane.tenant()).windows {
                    Windows::Strict => return Err(DropReason::TcpWindow),
                    Windows::Loose => own.leave_unchecked(),
                }
                Ok(())
            }
        };
        *Side::of_mut(&mut self.flows.entry_mut(slot).state.words) = own;
        if let Some(peer) = peer {
            *Side::of_mut(&mut self.flows.entry_mut(peer).state.words) = other;
        }
        outcome
    }

    /// The sides of a TCP flow as its entry and that of the other direction have them.
    pub(crate) fn tcp_sides(&self, slot: Slot) -> (Side, Side) {
        let side = |slot| Side::of(self.flows.entry(slot).state.words);
        (side(slot), self.peer(slot).map_or(Side::default(), side))
    }

    /// True when that sequence number may be quoted by an ICMP error about the flow.
    pub(crate) fn may_be_quoted(&self, key: &FlowKey, sequence: u32) -> bool {
        let slot = self.flows.find(self.flows.hash(key), key);
        slot.is_none_or(|slot| {
            let (own, other) = self.tcp_sides(slot);
            own.may_be_quoted(&other, sequence)
        })
    }
}

/// True when a packet may be the first one of a TCP flow that nobody knows.
pub(crate) fn opens_connection(tables: &Tables, key: &FlowKey, frame: &[u8], parsed: &Parsed) -> bool {
    let syn = read(frame, parsed).flags & (flag::SYN | flag::ACK | flag::RST | flag::FIN) == flag::SYN;
    syn || settings(tables, program::TenantId(key.tenant)).mid_stream == MidStream::Accept
}

/// A segment by its header, which the parser has seen to be whole: its options are read of a SYN only.
#[inline(always)]
fn read(frame: &[u8], parsed: &Parsed) -> Segment {
    let l4 = usize::from(parsed.l4_offset);
    let Some(header) = frame.get(l4..).and_then(|l4| l4.first_chunk::<HEADER_LEN>()) else {
        return Segment::default();
    };
    let word = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    Segment {
        seq: word(4),
        ack: word(8),
        window: u16::from_be_bytes([header[14], header[15]]),
        flags: header[13],
        len: usize::from(parsed.end).saturating_sub(l4 + header_len(header)) as u16,
        scale: None,
    }
}

/// With its options, bytes.
#[inline(always)]
fn header_len(header: &[u8; HEADER_LEN]) -> usize {
    usize::from(header[12] >> 4) * 4
}

/// The window scale that a SYN asks for; `None` for any other segment.
fn window_scale(frame: &[u8], parsed: &Parsed) -> Option<u8> {
    let header = frame.get(usize::from(parsed.l4_offset)..)?.first_chunk::<HEADER_LEN>()?;
    let options = usize::from(parsed.l4_offset);
    let options = frame.get(options + HEADER_LEN..options + header_len(header))?;
    if header[13] & flag::SYN != 0 { scale_among(options) } else { None }
}

fn scale_among(mut options: &[u8]) -> Option<u8> {
    loop {
        options = match *options {
            [] | [END_OF_OPTIONS, ..] => return None,
            [NO_OPERATION, ref rest @ ..] => rest,
            [WINDOW_SCALE, 3, shift, ..] => return Some(shift),
            [_, len, ..] if len >= 2 => options.get(usize::from(len)..)?,
            _ => return None,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::scale_among;

    #[test]
    fn the_scale_is_found_among_other_options() {
        assert_eq!(scale_among(&[2, 4, 5, 0xb4, 1, 3, 3, 7, 4, 2]), Some(7));
        assert_eq!(scale_among(&[2, 4, 5, 0xb4, 0, 3, 3, 7]), None, "behind the end");
        for broken in [&[3, 3][..], &[3], &[8, 0, 3, 3, 7], &[8, 1, 3, 3, 7], &[8, 200, 3, 3, 7], &[3, 2, 7]]
        {
            assert_eq!(scale_among(broken), None, "{broken:?}");
        }
    }
}
