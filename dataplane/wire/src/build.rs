//! The few packets floodway makes itself: ARP, neighbour discovery, ICMP errors.
//!
//! Each function writes a whole Ethernet frame into `out` and answers with its length, bytes.

mod arp;
mod icmp;
mod nd;

pub use arp::{ARP_FRAME_LEN, arp_reply, arp_request};
pub use icmp::{IcmpError, MAX_ICMP_ERROR_LEN, Origin, icmp_error};
pub use nd::{ND_FRAME_LEN, neighbour_advertisement, neighbour_solicitation};

use core::fmt;
use zerocopy::{Immutable, IntoBytes};

/// Why no packet was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BuildError {
    /// `out` is too short.
    NoRoom,
    /// The packet to answer must not be answered, or cannot be: see the function.
    Unanswerable,
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoRoom => "the buffer is too short for the packet",
            Self::Unanswerable => "the packet must not be answered",
        })
    }
}

impl core::error::Error for BuildError {}

/// Writes parts one behind the other.
struct Writer<'a> {
    out: &'a mut [u8],
    len: usize,
}

impl<'a> Writer<'a> {
    const fn new(out: &'a mut [u8]) -> Self {
        Self { out, len: 0 }
    }

    fn put<T: IntoBytes + Immutable + ?Sized>(&mut self, part: &T) -> Result<(), BuildError> {
        let part = part.as_bytes();
        let room = self.out.get_mut(self.len..).and_then(|rest| rest.get_mut(..part.len()));
        room.ok_or(BuildError::NoRoom)?.copy_from_slice(part);
        self.len += part.len();
        Ok(())
    }

    /// What was written from `at` on.
    fn since(&mut self, at: usize) -> &mut [u8] {
        self.out.get_mut(at..self.len).unwrap_or_default()
    }
}
