//! TCP: the windows of a connection, from the headers of its segments.

use program::{DropReason, MidStream, Windows};
use tables::connection::Followed;
use tables::connection::tcp::{self, Segment, Side};
use tables::flow::{FlowKey, Slot};
use wire::tcp::{HEADER_LEN, flag};
use wire::{Fragment, Parsed};

use super::{idle, settings};
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
        lane: usize,
        frame: &[u8],
    ) -> Result<(), DropReason> {
        let segment = read(frame, &self.lanes.parsed[lane]);
        let peer = self.peer(slot);
        let mut own = Side::from_words(self.flows.entry(slot).state.words);
        let mut other =
            peer.map_or(Side::default(), |peer| Side::from_words(self.flows.entry(peer).state.words));
        let followed = tcp::follow(&mut own, &mut other, &segment);
        if self.lanes.parsed[lane].fragment == Fragment::First {
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
                match settings(tables, self.lanes.tenant(lane)).windows {
                    Windows::Strict => return Err(DropReason::TcpWindow),
                    Windows::Loose => own.leave_unchecked(),
                }
                Ok(())
            }
        };
        self.flows.entry_mut(slot).state.words = own.to_words();
        if let Some(peer) = peer {
            self.flows.entry_mut(peer).state.words = other.to_words();
        }
        outcome
    }

    /// The sides of a TCP flow as its entry and that of the other direction have them.
    pub(crate) fn tcp_sides(&self, slot: Slot) -> (Side, Side) {
        let side = |slot| Side::from_words(self.flows.entry(slot).state.words);
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

/// The parser has seen that the whole header is there.
#[inline(always)]
fn read(frame: &[u8], parsed: &Parsed) -> Segment {
    let l4 = usize::from(parsed.l4_offset);
    let Some(header) = frame.get(l4..).and_then(|l4| l4.first_chunk::<HEADER_LEN>()) else {
        return Segment::default();
    };
    let word = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let header_len = u16::from(header[12] >> 4) * 4;
    let flags = header[13];
    Segment {
        seq: word(4),
        ack: word(8),
        window: u16::from_be_bytes([header[14], header[15]]),
        flags,
        len: parsed.end.saturating_sub(parsed.l4_offset).saturating_sub(header_len),
        scale: if flags & flag::SYN != 0 {
            window_scale(frame.get(l4 + HEADER_LEN..l4 + usize::from(header_len)).unwrap_or_default())
        } else {
            None
        },
    }
}

/// The window scale among a SYN's options.
#[cold]
fn window_scale(mut options: &[u8]) -> Option<u8> {
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
    use super::window_scale;

    #[test]
    fn the_scale_is_found_among_other_options() {
        assert_eq!(window_scale(&[2, 4, 5, 0xb4, 1, 3, 3, 7, 4, 2]), Some(7));
        assert_eq!(window_scale(&[2, 4, 5, 0xb4, 0, 3, 3, 7]), None, "behind the end");
        for broken in [&[3, 3][..], &[3], &[8, 0, 3, 3, 7], &[8, 1, 3, 3, 7], &[8, 200, 3, 3, 7], &[3, 2, 7]]
        {
            assert_eq!(window_scale(broken), None, "{broken:?}");
        }
    }
}
