//! SCTP associations between two hosts (RFC 9260), by their verification tags.
//!
//! The tag that a side's packets must carry is the one that the other side has named in its INIT or INIT ACK (section
//! 8.5). An association that was picked up in its middle takes the tag of the first packet.

use super::{Followed, Stage};

const INIT: u8 = 1;
const INIT_ACK: u8 = 2;
const ABORT: u8 = 6;
const SHUTDOWN: u8 = 7;
const SHUTDOWN_ACK: u8 = 8;
const COOKIE_ACK: u8 = 11;
const SHUTDOWN_COMPLETE: u8 = 14;

/// What the common header and the first chunk of a packet say.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Packet {
    /// Verification tag.
    pub tag: u32,
    /// Type of the first chunk.
    pub chunk: u8,
    /// The first chunk's T bit: the tag is the sender's own (section 8.5.1).
    pub reflected: bool,
    /// Initiate tag of an INIT or INIT ACK.
    pub initiate_tag: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
enum Phase {
    #[default]
    Silent,
    Opening,
    Open,
    Closing,
    Closed,
}

/// One side of an association, as its sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Side {
    /// The tag that its packets must carry; zero while it is not known.
    tag: u32,
    phase: Phase,
}

impl Side {
    /// From the two words of [`Side::to_words`].
    pub const fn from_words([tag, phase]: [u32; 2]) -> Self {
        let phase = match phase {
            1 => Phase::Opening,
            2 => Phase::Open,
            3 => Phase::Closing,
            4 => Phase::Closed,
            _ => Phase::Silent,
        };
        Self { tag, phase }
    }

    /// As eight bytes; all zero for a side of which nothing was seen.
    pub const fn to_words(self) -> [u32; 2] {
        [self.tag, self.phase as u32]
    }
}

/// Lets a packet of `own` change both sides.
pub fn follow(own: &mut Side, other: &mut Side, packet: &Packet) -> Followed {
    match packet.chunk {
        // An INIT begins anew whatever was before (section 5.2.2): its tag is zero (section 8.5.1).
        INIT if packet.tag != 0 || packet.initiate_tag == 0 => Followed::OutOfWindow,
        INIT => {
            (own.phase, other.tag) = (Phase::Opening, packet.initiate_tag);
            Followed::Changed
        }
        _ if !is_tagged_right(own, other, packet) => Followed::OutOfWindow,
        INIT_ACK if packet.initiate_tag == 0 => Followed::OutOfWindow,
        INIT_ACK => {
            (own.phase, other.tag) = (Phase::Opening, packet.initiate_tag);
            Followed::Changed
        }
        ABORT | SHUTDOWN_COMPLETE => enter(own, other, Phase::Closed),
        SHUTDOWN | SHUTDOWN_ACK => enter(own, other, Phase::Closing),
        COOKIE_ACK => enter(own, other, Phase::Open),
        _ if own.phase == Phase::Silent => {
            own.tag = packet.tag;
            own.phase = if other.phase == Phase::Opening { Phase::Opening } else { Phase::Open };
            Followed::Changed
        }
        _ => Followed::Same,
    }
}

/// How far the association is, whichever side is which.
pub fn stage(own: &Side, other: &Side) -> Stage {
    match (own.phase, other.phase) {
        (Phase::Closed, _) | (_, Phase::Closed) => Stage::Closed,
        (Phase::Closing, _) | (_, Phase::Closing) => Stage::Closing,
        (Phase::Open, _) | (_, Phase::Open) => Stage::Open,
        _ => Stage::Opening,
    }
}

fn is_tagged_right(own: &Side, other: &Side, packet: &Packet) -> bool {
    let may_reflect = matches!(packet.chunk, ABORT | SHUTDOWN_COMPLETE) && packet.reflected;
    let wanted = if may_reflect { other.tag } else { own.tag };
    wanted == 0 && packet.tag != 0 || wanted == packet.tag && wanted != 0
}

fn enter(own: &mut Side, other: &mut Side, phase: Phase) -> Followed {
    (own.phase, other.phase) = (phase, phase);
    Followed::Changed
}
