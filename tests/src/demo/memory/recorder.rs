//! Passes frames between two wires and keeps them while somebody listens.

use backends::memory::{self, Pool, Wire};
use packet::Buf;

/// Stands between a host and its port.
pub struct Recorder {
    inside: Wire,
    outside: Wire,
    frames: Option<Vec<Vec<u8>>>,
}

impl Recorder {
    /// A recorder in front of `inside`, and the wire that is now the host's.
    pub fn new(inside: Wire, pool: &Pool, depth: usize) -> (Self, Wire) {
        let (outside, of_host) = memory::cable(pool, depth);
        (Self { inside, outside, frames: None }, of_host)
    }

    /// Passes on whatever waits, both ways, as far as there is room; returns how many frames.
    pub fn pass(&mut self) -> usize {
        let Self { inside, outside, frames } = self;
        pass(outside, inside, frames) + pass(inside, outside, frames)
    }

    /// Keeps frames from now on.
    pub fn listen(&mut self) {
        self.frames = Some(Vec::new());
    }

    /// The frames kept; keeps no more.
    pub fn heard(&mut self) -> Vec<Vec<u8>> {
        self.frames.take().unwrap_or_default()
    }
}

fn pass(from: &Wire, to: &Wire, frames: &mut Option<Vec<Vec<u8>>>) -> usize {
    let mut passed = 0;
    while to.can_send()
        && let Some(buf) = from.receive()
    {
        if let Some(frames) = frames {
            frames.push(buf.bytes().to_vec());
        }
        // There was room, and whoever sent it had a buffer of that length.
        to.send(buf.bytes()).expect("room for a frame");
        passed += 1;
    }
    passed
}
