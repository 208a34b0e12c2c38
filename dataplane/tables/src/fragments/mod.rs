//! Datagrams in pieces: what a later fragment needs to know of its first.
//!
//! Only a first fragment shows what a policy looks at. A datagram is known from whichever of its fragments comes first
//! until all have come, or for [`LIFETIME`]; later fragments that are there before the first wait for it. Nothing is put
//! together: fragments are sent on as they came.
//!
//! Fragments that overlap (RFC 1858; RFC 3128; RFC 5722), that contradict each other about the datagram's length, or of
//! which there are more than [`PIECES_MAX`] spoil their datagram: whatever comes of it afterwards is refused, for the
//! rest of its lifetime. So no receiver ever sees two fragments that overlap, and puts nothing together but what was
//! seen here. The very same piece again is refused and spoils nothing (RFC 8200, section 4.5), unless it is a first
//! fragment of another flow.
//!
//! Each tenant has a quota of datagrams, and a bound on fragments that wait. At its own bound a tenant loses its oldest
//! datagram; when the table itself is full, the tenant that has most of it does. A tenant within its fair share loses
//! nothing to others.

mod order;
mod pieces;
mod table;
#[cfg(test)]
mod tests;

use packet::Nanos;

pub use pieces::{PIECES_MAX, Piece};
pub use table::{Datagrams, Later};

/// How long a datagram may take to be complete, from the first of its fragments that came. Nothing is sent when it is
/// over (RFC 792 has a message for it, which would tell strangers what is held here).
pub const LIFETIME: Nanos = Nanos::from_secs(2);

/// Bounds of one table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// Datagrams of all tenants together, at most 65,535; 440 bytes each, taken at once.
    pub datagrams: usize,
    /// Fragments of all tenants that wait for their first, at most 65,535.
    pub waiting: usize,
    /// Fragments of one tenant that wait.
    pub waiting_per_tenant: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { datagrams: 8192, waiting: 1024, waiting_per_tenant: 64 }
    }
}

/// Why a fragment, or one that waited, goes no further.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Loss {
    /// Fragments of its datagram overlap or contradict each other.
    Overlap,
    /// The same piece was seen before.
    Duplicate,
    /// No room: its datagram was the oldest of a tenant at its bound, or has too many pieces.
    Limit,
    /// Its first fragment did not come in time.
    Timeout,
}
