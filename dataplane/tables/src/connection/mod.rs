//! What a box between two hosts keeps of their connections, one side per direction: pure state machines.
//!
//! Each has a `Side` of at most 12 bytes and a function that lets one packet change both sides, its sender's and the
//! other's. A packet that is refused changes nothing. Who may send at all is for rules to say, and that a packet
//! comes from whom it says it does is for the caller to have checked.

pub mod echo;
pub mod sctp;
pub mod tcp;

/// What became of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Followed {
    /// It belongs to the connection, whose stage is as before.
    Same,
    /// It belongs to the connection, whose stage may be another now.
    Changed,
    /// It passes and changes nothing: the hosts settle it between them.
    Odd,
    /// Its sequence numbers, or its tag, are not of this connection.
    OutOfWindow,
    /// The connection is not in a state for it.
    OutOfState,
}

/// How far a connection is: what decides how long it may be idle, and what is forgotten first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Stage {
    /// One side has asked, the other has not agreed yet.
    Opening,
    /// Both sides have agreed.
    Open,
    /// One side has ended, the other still sends.
    HalfClosed,
    /// Both sides have ended, or are about to.
    Closing,
    /// It was refused or broken off.
    Closed,
}

impl Stage {
    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Opening => "opening",
            Self::Open => "open",
            Self::HalfClosed => "half-closed",
            Self::Closing => "closing",
            Self::Closed => "closed",
        }
    }
}

#[cfg(test)]
mod tests;
