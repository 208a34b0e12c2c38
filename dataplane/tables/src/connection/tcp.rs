//! TCP between two hosts (RFC 9293), by the windows that they offer each other (van Rooij, "Real Stateful TCP Packet
//! Filtering in IP Filter", 2001).
//!
//! A side knows how far it has sent, and how far the other side has allowed it to. A segment outside that, or an
//! acknowledgement of what was never sent, is out of window. A connection that was picked up in its middle has windows
//! of unknown scale: it is followed, but not checked.

use wire::tcp::flag::{ACK, FIN, RST, SYN};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::{Followed, Stage};

/// How far back an acknowledgement may lie, in bytes, at least: more than any unscaled window.
const OLD_ACK: u32 = 66_000;
/// The largest window scale (RFC 7323, section 2.3).
const MAX_SCALE: u8 = 14;

/// What a segment says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Segment {
    /// Sequence number of its first byte, or of its SYN.
    pub seq: u32,
    /// Acknowledgement number; means something with ACK only.
    pub ack: u32,
    /// The window field as it is sent, unscaled.
    pub window: u16,
    /// The flags' byte.
    pub flags: u8,
    /// Bytes of data.
    pub len: u16,
    /// The window scale option of a SYN.
    pub scale: Option<u8>,
}

impl Segment {
    /// The sequence number behind it.
    fn end(&self) -> u32 {
        let flags = u32::from(self.has(SYN)) + u32::from(self.has(FIN));
        self.seq.wrapping_add(u32::from(self.len)).wrapping_add(flags)
    }

    fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// How far one side is. A number, so that any three words are a side.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, FromBytes, IntoBytes, Immutable)]
#[repr(transparent)]
struct Phase(u8);

impl Phase {
    /// Nothing was seen of it.
    const SILENT: Self = Self(0);
    /// It has sent a SYN that is not acknowledged.
    const OPENING: Self = Self(1);
    /// It may send data.
    const OPEN: Self = Self(2);
    /// It has sent a FIN that is not acknowledged.
    const FINISHING: Self = Self(3);
    /// Its FIN is acknowledged.
    const FINISHED: Self = Self(4);
    /// The connection was reset.
    const RESET: Self = Self(5);
}

/// One side of a connection, as its sender. Of all zeros nothing was seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct Side {
    /// The sequence number behind the highest that it sent.
    end: u32,
    /// The sequence number up to which the other side has allowed it to send; while it is opening, that behind its SYN,
    /// which may have carried data (RFC 7413).
    limit: u32,
    /// The largest window that it offered, in units of its scale.
    window: u16,
    phase: Phase,
    scale: Scale,
}

/// A side's window scale, and in its upper bits what there is to know of it besides.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable)]
#[repr(transparent)]
struct Scale(u8);

impl Scale {
    const SHIFT: u8 = 0x0f;
    /// It has asked for a connection anew while there was one.
    const AGAIN: u8 = 0x20;
    /// Its SYN had the option.
    const OFFERED: u8 = 0x40;
    /// It is followed without checks.
    const UNCHECKED: u8 = 0x80;

    fn of(option: Option<u8>) -> Self {
        Self(option.map_or(0, |shift| Self::OFFERED | shift.min(MAX_SCALE)))
    }

    fn is(self, bit: u8) -> bool {
        self.0 & bit != 0
    }
}

impl Side {
    /// The side that lies in three words of an entry's state.
    #[inline(always)]
    pub const fn of(words: [u32; 3]) -> Self {
        zerocopy::transmute!(words)
    }

    /// The same, to be changed where it lies: nothing is copied for the one number that most segments change.
    #[inline(always)]
    pub fn of_mut(words: &mut [u32; 3]) -> &mut Self {
        zerocopy::transmute_mut!(words)
    }

    /// True when nothing was seen of it.
    pub fn is_silent(&self) -> bool {
        self.phase == Phase::SILENT
    }

    /// Follows the connection without checks from here on.
    pub fn leave_unchecked(&mut self) {
        self.scale.0 |= Scale::UNCHECKED;
    }

    /// True for a sequence number that is on its way, or was of late: an ICMP error that quotes another is none of this
    /// connection (RFC 5927, section 4.1).
    pub fn may_be_quoted(&self, other: &Self, seq: u32) -> bool {
        let oldest = match self.phase {
            // Nothing but its SYN is on its way.
            Phase::OPENING => self.limit.wrapping_sub(1),
            _ if self.is_unchecked(other) => return true,
            _ => self.end.wrapping_sub(other.reach(self)),
        };
        at_most(oldest, seq) && at_most(seq, self.end)
    }

    /// The side that has sent this SYN.
    fn opening(segment: &Segment) -> Self {
        let scale = Scale::of(segment.scale);
        let window = (segment.window >> (scale.0 & Scale::SHIFT)).max(1);
        Self { end: segment.end(), limit: segment.seq.wrapping_add(1), window, phase: Phase::OPENING, scale }
    }

    /// The side of a connection whose beginning nobody saw.
    fn picked_up(segment: &Segment) -> Self {
        let end = segment.end();
        Self { end, limit: end, window: segment.window, phase: Phase::OPEN, scale: Scale(Scale::UNCHECKED) }
    }

    /// Windows are scaled when both sides said so (RFC 7323, section 2.2).
    #[inline(always)]
    fn shift(&self, other: &Self) -> u8 {
        let both = self.scale.0 & other.scale.0 & Scale::OFFERED != 0;
        if both { self.scale.0 & Scale::SHIFT } else { 0 }
    }

    /// A SYN's window, which is never scaled, was stored as if its scale counted. When it does not, this undoes it.
    fn settle_scale(&mut self, other: &Self) {
        if self.shift(other) == 0 {
            let shift = self.scale.0 & Scale::SHIFT;
            let window = ((u32::from(self.window) + 1) << shift) - 1;
            self.window = u16::try_from(window).unwrap_or(u16::MAX);
        }
    }

    /// The largest window that it offered, in bytes.
    #[inline(always)]
    fn reach(&self, other: &Self) -> u32 {
        (u32::from(self.window) << self.shift(other)).max(1)
    }

    /// True for an acknowledgement of its SYN, and perhaps of data that came with it.
    fn was_asked(&self, ack: u32) -> bool {
        ack == self.end || at_most(self.limit, ack) && at_most(ack, self.end)
    }

    #[inline(always)]
    fn is_unchecked(&self, other: &Self) -> bool {
        (self.scale.0 | other.scale.0) & Scale::UNCHECKED != 0 || other.phase == Phase::SILENT
    }
}

/// Lets a segment of `own` change both sides.
#[inline]
pub fn follow(own: &mut Side, other: &mut Side, segment: &Segment) -> Followed {
    if follow_ordinary(own, other, segment) { Followed::Same } else { follow_odd(own, other, segment) }
}

/// As [`follow`], for what nearly every segment is: data or an acknowledgement within the windows of a connection that is open
/// and checked. False, and nothing changed, for all others, which may be right nevertheless.
#[inline(always)]
pub fn follow_ordinary(own: &mut Side, other: &mut Side, segment: &Segment) -> bool {
    let ordinary = is_ordinary(own, other, segment) && is_in_window(own, other, segment);
    if ordinary {
        advance(own, other, segment);
    }
    ordinary
}

#[inline(always)]
fn is_ordinary(own: &Side, other: &Side, segment: &Segment) -> bool {
    let scales = own.scale.0 | other.scale.0;
    let open = (own.phase == Phase::OPEN) & (other.phase == Phase::OPEN);
    open & (segment.flags & (SYN | FIN | RST | ACK) == ACK)
        & (scales & (Scale::UNCHECKED | Scale::AGAIN) == 0)
}

/// As [`follow`], for any segment.
#[inline(never)]
pub(super) fn follow_odd(own: &mut Side, other: &mut Side, segment: &Segment) -> Followed {
    if segment.has(SYN) {
        return synchronise(own, other, segment);
    }
    if own.phase == Phase::SILENT {
        return speak_up(own, other, segment);
    }
    if own.phase == Phase::OPENING && other.phase == Phase::SILENT && !segment.has(RST) {
        return Followed::Odd;
    }
    if !own.is_unchecked(other) && !is_in_window(own, other, segment) {
        return Followed::OutOfWindow;
    }
    if segment.has(RST) {
        return reset(own, other, segment);
    }
    if own.phase == Phase::RESET {
        return Followed::Odd;
    }
    // The other host lives on with the connection that there is.
    other.scale.0 &= !Scale::AGAIN;
    advance(own, other, segment);
    let before = (own.phase, other.phase);
    if segment.has(ACK) {
        acknowledge(other, segment.ack);
    }
    if segment.has(FIN) && own.phase <= Phase::OPEN {
        own.phase = Phase::FINISHING;
    }
    if before == (own.phase, other.phase) { Followed::Same } else { Followed::Changed }
}

/// How far the connection is, whichever side is which.
pub fn stage(own: &Side, other: &Side) -> Stage {
    let (early, late) = (own.phase.min(other.phase), own.phase.max(other.phase));
    match (early, late) {
        (_, Phase::RESET) => Stage::Closed,
        (_, Phase::SILENT | Phase::OPENING) | (Phase::OPENING, _) => Stage::Opening,
        // Of a side that is silent nothing is known, so the other one's word counts.
        (Phase::SILENT | Phase::OPEN, Phase::OPEN) => Stage::Open,
        (Phase::SILENT | Phase::OPEN, _) => Stage::HalfClosed,
        _ => Stage::Closing,
    }
}

/// A SYN, with or without ACK.
#[cold]
fn synchronise(own: &mut Side, other: &mut Side, segment: &Segment) -> Followed {
    if segment.has(RST | FIN) {
        return Followed::OutOfState;
    }
    if segment.has(ACK) { answer(own, other, segment) } else { ask(own, other, segment) }
}

/// A SYN that opens.
fn ask(own: &mut Side, other: &mut Side, segment: &Segment) -> Followed {
    match own.phase {
        // A first try, one more, or both sides at once.
        Phase::SILENT | Phase::OPENING if other.phase <= Phase::OPENING => *own = Side::opening(segment),
        _ if may_begin_anew(own, other, segment) => {
            (*own, *other) = (Side::opening(segment), Side::default())
        }
        _ => {
            // The other host knows whether this is an old one, to which it says so (RFC 9293, section 3.10.7.4), or
            // opens anew because it has forgotten the connection: then its answer tells.
            own.scale = Scale(Scale::of(segment.scale).0 | own.scale.0 & Scale::UNCHECKED | Scale::AGAIN);
            return Followed::Odd;
        }
    }
    Followed::Changed
}

/// A connection that has ended may be followed by another one between the same ports (RFC 9293, section 3.6.1).
fn may_begin_anew(own: &Side, other: &Side, segment: &Segment) -> bool {
    match stage(own, other) {
        Stage::Closed => true,
        Stage::Closing => !at_most(segment.seq, own.end),
        _ => false,
    }
}

/// SYN and ACK: the other side's SYN was received.
fn answer(own: &mut Side, other: &mut Side, segment: &Segment) -> Followed {
    let again = own.phase != Phase::SILENT && segment.seq.wrapping_add(1) == own.end;
    match other.phase {
        Phase::OPENING if !other.was_asked(segment.ack) => return Followed::OutOfWindow,
        Phase::OPENING => other.phase = Phase::OPEN,
        Phase::SILENT => {
            *own = Side::picked_up(segment);
            return Followed::Changed;
        }
        _ if again || !other.scale.is(Scale::AGAIN) => return Followed::Odd,
        // The host has forgotten the connection and takes the SYN that was odd before as a new one's.
        _ => {
            let scale = Scale(other.scale.0 & !(Scale::UNCHECKED | Scale::AGAIN));
            *other =
                Side { end: segment.ack, phase: Phase::OPEN, window: u16::MAX, scale, ..Side::default() };
        }
    }
    *own = Side::opening(segment);
    own.settle_scale(other);
    other.settle_scale(own);
    own.limit = own.end.wrapping_add(other.reach(own).max(u32::from(u16::MAX)));
    other.limit = segment.ack.wrapping_add(u32::from(segment.window));
    Followed::Changed
}

/// The first segment of a side, and no SYN.
#[cold]
fn speak_up(own: &mut Side, other: &mut Side, segment: &Segment) -> Followed {
    if other.phase == Phase::OPENING {
        // A refusal, or the host has an old connection and says so.
        let refuses = segment.has(RST) && segment.has(ACK) && other.was_asked(segment.ack);
        if !refuses {
            return if segment.has(RST) { Followed::OutOfWindow } else { Followed::Odd };
        }
        (own.phase, other.phase) = (Phase::RESET, Phase::RESET);
        return Followed::Changed;
    }
    if segment.has(RST) {
        return Followed::Odd;
    }
    *own = Side::picked_up(segment);
    if segment.has(FIN) {
        own.phase = Phase::FINISHING;
    }
    Followed::Changed
}

/// Only a reset that continues exactly what was sent ends the connection (RFC 5961, section 3.2): of any other one
/// nobody but the host knows whether it counts.
#[cold]
fn reset(own: &mut Side, other: &mut Side, segment: &Segment) -> Followed {
    if segment.seq != own.end && !own.is_unchecked(other) {
        return Followed::Odd;
    }
    (own.phase, other.phase) = (Phase::RESET, Phase::RESET);
    Followed::Changed
}

#[inline(always)]
fn is_in_window(own: &Side, other: &Side, segment: &Segment) -> bool {
    // A probe of a window that is shut begins right at its limit.
    let in_time =
        at_most(segment.seq, own.limit) & at_most(own.end.wrapping_sub(other.reach(own)), segment.end());
    let oldest = other.end.wrapping_sub(own.reach(other).max(OLD_ACK));
    let acknowledged = at_most(segment.ack, other.end) & at_most(oldest, segment.ack);
    in_time & (acknowledged | !segment.has(ACK))
}

#[inline(always)]
fn advance(own: &mut Side, other: &mut Side, segment: &Segment) {
    own.end = later(own.end, segment.end());
    own.window = own.window.max(segment.window);
    if segment.has(ACK) {
        let window = u32::from(segment.window) << own.shift(other);
        other.limit = later(other.limit, segment.ack.wrapping_add(window));
    }
}

#[inline(always)]
fn acknowledge(other: &mut Side, ack: u32) {
    if ack == other.end {
        other.phase = match other.phase {
            Phase::OPENING => Phase::OPEN,
            Phase::FINISHING => Phase::FINISHED,
            phase => phase,
        };
    } else if other.phase == Phase::OPENING {
        // A part of what came with the SYN.
        other.phase = Phase::OPEN;
    }
}

/// a <= b in sequence space (RFC 9293, section 3.4).
#[inline(always)]
fn at_most(a: u32, b: u32) -> bool {
    b.wrapping_sub(a) < 1 << 31
}

#[inline(always)]
fn later(a: u32, b: u32) -> u32 {
    if at_most(a, b) { b } else { a }
}
