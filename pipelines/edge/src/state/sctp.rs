//! SCTP: the tags of an association, from the common header and the first chunk of its packets.

use program::DropReason;
use tables::connection::Followed;
use tables::connection::sctp::{self, Packet, Side};
use tables::flow::Slot;
use wire::Parsed;

use super::idle;
use crate::Edge;
use crate::lane::Lane;

/// The T bit of ABORT and SHUTDOWN COMPLETE (RFC 9260, sections 3.3.7 and 3.3.13).
const REFLECTED: u8 = 0x01;

impl Edge {
    #[cold]
    pub(super) fn track_sctp(&mut self, slot: Slot, lane: &Lane, frame: &[u8]) -> Result<(), DropReason> {
        let Some(packet) = read(frame, &lane.parsed) else { return Ok(()) };
        let peer = self.peer(slot);
        let mut own = self.sctp_side(Some(slot));
        let mut other = self.sctp_side(peer);
        match sctp::follow(&mut own, &mut other, &packet) {
            Followed::OutOfWindow | Followed::OutOfState => return Err(DropReason::SctpTag),
            Followed::Changed => self.set_timeouts(slot, peer, idle::of_sctp(sctp::stage(&own, &other))),
            Followed::Same | Followed::Odd => {}
        }
        self.set_sctp_side(slot, own);
        if let Some(peer) = peer {
            self.set_sctp_side(peer, other);
        } else {
            // It answers with the tag that it is told here, and its entry comes with its answer.
            let [tag, _] = other.to_words();
            self.flows.entry_mut(slot).state.words[2] = tag;
        }
        Ok(())
    }

    /// The sides of an SCTP flow as its entry and that of the other direction have them.
    pub(crate) fn sctp_sides(&self, slot: Slot) -> (Side, Side) {
        (self.sctp_side(Some(slot)), self.sctp_side(self.peer(slot)))
    }

    /// Hands the tag that a side was told to it, once it speaks.
    fn sctp_side(&self, slot: Option<Slot>) -> Side {
        let Some(slot) = slot else { return Side::default() };
        let [tag, phase, _] = self.flows.entry(slot).state.words;
        let told = self.peer(slot).map_or(0, |peer| self.flows.entry(peer).state.words[2]);
        Side::from_words([if tag == 0 { told } else { tag }, phase])
    }

    fn set_sctp_side(&mut self, slot: Slot, side: Side) {
        let [tag, phase] = side.to_words();
        let words = &mut self.flows.entry_mut(slot).state.words;
        (words[0], words[1]) = (tag, phase);
    }
}

/// `None` when there is no chunk, or not the part of it that counts.
fn read(frame: &[u8], parsed: &Parsed) -> Option<Packet> {
    let l4 = frame.get(usize::from(parsed.l4_offset)..usize::from(parsed.end))?;
    let word = |at: usize| Some(u32::from_be_bytes(*l4.get(at..)?.first_chunk()?));
    let (&chunk, &flags) = (l4.get(12)?, l4.get(13)?);
    Some(Packet {
        tag: word(4)?,
        chunk,
        reflected: flags & REFLECTED != 0,
        initiate_tag: if matches!(chunk, 1 | 2) { word(16)? } else { 0 },
    })
}
