//! What became of one packet, put down while somebody watches: each drop, and each frame as it left.
//!
//! Off, it costs the packets that are sent nothing: frames are looked at where a port's burst is, not where packets are
//! pushed, and so [`crate::Io::watch`] sends what waits, the packet that is watched goes alone, and
//! [`crate::Io::watched`] sends it. What is seen as sent has been taken by its port.

use arrayvec::ArrayVec;
use packet::{Backend, Buf, Burst};
use program::{DropReason, PortId, TenantId};

use crate::layout::WorkerId;
use crate::{Account, Io};

/// Most bytes of a frame that are kept.
pub const SNAP: usize = 256;
/// Events of one packet; more are counted.
pub const EVENTS: usize = 8;
/// Frames of one packet whose bytes are kept: its own, and an answer to it.
pub const FRAMES: usize = 2;

/// The beginning of a frame.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    len: u16,
    kept: u16,
    bytes: [u8; SNAP],
}

impl Head {
    /// At most `snap` bytes of a frame.
    pub fn of(frame: &[u8], snap: usize) -> Self {
        let kept = frame.len().min(snap).min(SNAP);
        let mut bytes = [0; SNAP];
        bytes[..kept].copy_from_slice(&frame[..kept]);
        // A frame's length has 16 bits.
        Self { len: frame.len() as u16, kept: kept as u16, bytes }
    }

    /// Bytes of the whole frame.
    pub fn frame_len(&self) -> usize {
        self.len.into()
    }

    /// The bytes that were kept.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.kept)]
    }
}

/// One thing that became of a packet, or of what it made come or go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A packet was dropped, and this account charged.
    Dropped {
        /// Whom.
        account: Account,
        /// Why.
        reason: DropReason,
    },
    /// The worker made a packet itself, which is in the next event.
    Originated {
        /// The port that it is for.
        port: PortId,
    },
    /// The port has taken a frame.
    Sent {
        /// Which port.
        port: PortId,
        /// In whose tunnel.
        tenant: Option<TenantId>,
        /// Where its bytes are in [`Journal::frames`]; `None` when there was no room for them.
        frame: Option<u8>,
    },
    /// Another worker sends it, since this one has no queue on that port.
    HandedOver {
        /// Which worker.
        worker: WorkerId,
        /// Which port.
        port: PortId,
    },
    /// It is kept for later.
    Held,
}

/// What became of a packet, in order.
#[derive(Clone, Debug, Default)]
pub struct Journal {
    /// What was seen.
    pub events: ArrayVec<Event, EVENTS>,
    /// Frames as they left.
    pub frames: ArrayVec<Head, FRAMES>,
    /// Events for which there was no room.
    pub omitted: u32,
    /// Packets that had ever been held when it began.
    held_before: u64,
}

impl Journal {
    fn clear(&mut self, held_before: u64) {
        self.events.clear();
        self.frames.clear();
        (self.omitted, self.held_before) = (0, held_before);
    }

    /// Adds an event. Out of line: the code for packets that nobody watches stays as small as it was.
    #[cold]
    #[inline(never)]
    pub(crate) fn note(&mut self, event: Event) {
        if self.events.try_push(event).is_err() {
            self.omitted += 1;
        }
    }

    /// Keeps the beginnings of frames that are offered to a port, before it is known how many that takes. What comes back
    /// is the place of the first.
    #[cold]
    #[inline(never)]
    pub(crate) fn offer<B: Buf>(&mut self, burst: &Burst<B>) -> usize {
        let first = self.frames.len();
        let room = self.frames.remaining_capacity();
        self.frames.extend(burst.iter().take(room).map(|buf| Head::of(buf.bytes(), SNAP)));
        first
    }

    /// The port has taken these, of what was offered from `first` on.
    #[cold]
    #[inline(never)]
    pub(crate) fn sent(
        &mut self,
        port: PortId,
        tenants: impl Iterator<Item = Option<TenantId>>,
        first: usize,
    ) {
        for (at, tenant) in tenants.enumerate() {
            let frame = (first + at < self.frames.len()).then_some((first + at) as u8);
            self.note(Event::Sent { port, tenant, frame });
        }
    }
}

impl<B: Backend> Io<B> {
    /// Sends what waits, and puts down in `journal` from now on what becomes of packets.
    pub fn watch(&mut self, mut journal: Box<Journal>) {
        self.outbox.flush(&mut self.ledger);
        journal.clear(self.hold.pushed());
        self.ledger.journal = Some(journal);
    }

    /// Sends what the packet left, and gives back the journal, which ends here. `None` when nothing was watched.
    pub fn watched(&mut self) -> Option<Box<Journal>> {
        self.outbox.flush(&mut self.ledger);
        let mut journal = self.ledger.journal.take()?;
        if self.hold.pushed() > journal.held_before {
            journal.note(Event::Held);
        }
        Some(journal)
    }
}
