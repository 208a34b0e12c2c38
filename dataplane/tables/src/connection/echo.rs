//! ICMP echo (RFC 792, RFC 4443 section 4): an answer has been asked for.

use super::Followed;

/// How far an answer may lag behind the newest request, in requests.
const LAG: u16 = 4096;

/// The requests of one identifier between two hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Requests {
    newest: u16,
    any: bool,
}

impl Requests {
    /// From the word of [`Requests::to_word`].
    pub const fn from_word(word: u32) -> Self {
        Self { newest: word as u16, any: word >> 16 != 0 }
    }

    /// As four bytes; zero when nothing was asked.
    pub const fn to_word(self) -> u32 {
        (self.any as u32) << 16 | self.newest as u32
    }

    /// A request goes out. Sequence numbers may begin anew at any time.
    pub fn ask(&mut self, sequence: u16) {
        (self.newest, self.any) = (sequence, true);
    }

    /// An answer comes: to the newest request or to one shortly before it.
    pub fn answer(&self, sequence: u16) -> Followed {
        let asked = self.any && self.newest.wrapping_sub(sequence) <= LAG;
        if asked { Followed::Same } else { Followed::OutOfWindow }
    }
}
