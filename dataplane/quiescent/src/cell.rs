//! Words that any worker may read and write, each on its own: the MAC of a neighbour, a port's link state.

use crate::sync::{AtomicU64, Ordering};

/// A fixed array of shared words, all zero at first. Share it in an `Arc`.
///
/// Words are independent. A load that sees a stored value also sees all that its writer did before the store
/// (release, acquire); of several writers of one word the last wins.
pub struct SharedWords(Box<[AtomicU64]>);

impl SharedWords {
    /// `len` words of zero.
    pub fn new(len: usize) -> Self {
        Self((0..len).map(|_| AtomicU64::new(0)).collect())
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The word at `index`; zero beyond the end.
    #[inline(always)]
    pub fn load(&self, index: usize) -> u64 {
        self.0.get(index).map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// Replaces the word at `index`; false, and nothing stored, beyond the end.
    #[inline(always)]
    pub fn store(&self, index: usize, value: u64) -> bool {
        self.0.get(index).map(|word| word.store(value, Ordering::Release)).is_some()
    }
}
