//! One flow: two cache lines when its action and its state have 16 bytes each.

use super::FlowKey;
use crate::wheel::{Link, Timed};
use packet::Nanos;

/// How long a flow may be idle, in whole milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(transparent)]
pub struct Timeout(u32);

impl Timeout {
    /// It may be idle for ever.
    pub const NEVER: Self = Self(u32::MAX);

    /// Idle for `millis` milliseconds, at most 49.7 days: [`Timeout::NEVER`] is 2^32 - 1.
    pub const fn from_millis(millis: u32) -> Self {
        Self(millis)
    }

    /// Idle for `secs` seconds; [`Timeout::NEVER`] when they are too many for 32 bits of milliseconds.
    pub const fn from_secs(secs: u32) -> Self {
        Self(secs.saturating_mul(1_000))
    }

    /// In milliseconds; 2^32 - 1 for [`Timeout::NEVER`].
    pub const fn as_millis(self) -> u32 {
        self.0
    }

    /// True when a span of `idle` is at least this long.
    #[inline(always)]
    fn is_over(self, idle: Nanos) -> bool {
        self != Self::NEVER && idle.0 >= u64::from(self.0) * 1_000_000
    }
}

/// A flow of the table. The first cache line says what it is and what to do, the second what it did.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Entry<A, S = ()> {
    pub(super) key: FlowKey,
    /// What the pipeline decided for it; 16 bytes are intended.
    pub action: A,
    /// When its last packet came.
    pub last_seen: Nanos,
    /// Packets that were counted on it.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Its neighbours in the wheel of its tenant; of a free entry, `u32::MAX`.
    pub(super) next: u32,
    pub(super) prev: u32,
    /// How long it may be idle.
    pub(super) timeout: Timeout,
    /// Its home bucket.
    pub(super) home: u32,
    /// The bucket it lives in; of a free entry, the next free one.
    pub(super) place: u32,
    pub(super) tenant: u16,
    pub(super) lane: u8,
    /// Which slot of the wheel it is in.
    pub(super) slot: u8,
    /// What the pipeline keeps of its protocol, as new when it is inserted; 16 bytes are intended.
    pub state: S,
}

const _: () = assert!(size_of::<Entry<[u8; 16], [u32; 4]>>() == 128 && align_of::<Entry<[u8; 16]>>() == 64);
const _: () = assert!(core::mem::offset_of!(Entry<[u8; 16], [u32; 4]>, last_seen) == 64);

impl<A, S> Entry<A, S> {
    /// The flow's identity.
    #[inline(always)]
    pub const fn key(&self) -> &FlowKey {
        &self.key
    }

    /// How long it may be idle.
    #[inline(always)]
    pub const fn timeout(&self) -> Timeout {
        self.timeout
    }

    /// Whose quota it is counted on.
    #[inline(always)]
    pub const fn tenant(&self) -> u16 {
        self.tenant
    }

    /// True from the moment when it has been idle for exactly its timeout; never while `now` is before its last packet.
    #[inline(always)]
    pub fn is_expired(&self, now: Nanos) -> bool {
        self.timeout.is_over(now.since(self.last_seen))
    }

    /// When it expires if no more packet comes.
    pub(super) fn deadline(&self) -> Nanos {
        match self.timeout {
            Timeout::NEVER => Nanos::NEVER,
            Timeout(millis) => Nanos(self.last_seen.0.saturating_add(u64::from(millis) * 1_000_000)),
        }
    }

    /// True when another flow may have its place: what is short-lived anyway (opening, closing, refused), or has been
    /// idle for a sixteenth of its timeout.
    pub(super) fn gives_way(&self, now: Nanos) -> bool {
        let sixteenth = Timeout(self.timeout.0 / 16);
        self.timeout <= SHORT_LIVED
            || self.timeout != Timeout::NEVER && sixteenth.is_over(now.since(self.last_seen))
    }
}

/// Flows that may be idle for no longer than this give way at any time.
const SHORT_LIVED: Timeout = Timeout::from_secs(60);

impl<A, S> Timed for Entry<A, S> {
    #[inline(always)]
    fn link(&self) -> Link {
        Link { next: self.next, prev: self.prev, slot: self.slot }
    }

    #[inline(always)]
    fn set_link(&mut self, link: Link) {
        (self.next, self.prev, self.slot) = (link.next, link.prev, link.slot);
    }
}

impl<A: Default, S: Default> Entry<A, S> {
    pub(super) fn free() -> Self {
        Self {
            key: FlowKey::default(),
            action: A::default(),
            last_seen: Nanos(0),
            packets: 0,
            bytes: 0,
            timeout: Timeout::NEVER,
            home: 0,
            place: 0,
            tenant: 0,
            lane: 0,
            next: Link::NONE.next,
            prev: Link::NONE.prev,
            slot: Link::NONE.slot,
            state: S::default(),
        }
    }
}
