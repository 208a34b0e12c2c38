//! Words that one thread writes and any worker reads, each on its own or all of one moment: the MACs of neighbours.

use crate::sync::{AtomicU64, Ordering};

/// The stamp while words are being replaced.
const IN_BETWEEN: u64 = 0;

/// A fixed array of shared words under a stamp, all zero at first. Share it in an `Arc`.
///
/// One thread replaces them; should several, words of both may stand beside each other, and that is all that goes wrong.
pub struct SharedWords {
    stamp: AtomicU64,
    words: Box<[AtomicU64]>,
}

impl SharedWords {
    /// `len` words of zero, under the stamp zero.
    pub fn new(len: usize) -> Self {
        Self { stamp: AtomicU64::new(IN_BETWEEN), words: (0..len).map(|_| AtomicU64::new(0)).collect() }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.words.len()
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// The word at `index`, of whatever stamp; zero beyond the end.
    #[inline(always)]
    pub fn load(&self, index: usize) -> u64 {
        self.words.get(index).map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// The stamp of the words; zero before the first [`SharedWords::replace`] and during any.
    #[inline(always)]
    pub fn stamp(&self) -> u64 {
        self.stamp.load(Ordering::Acquire)
    }

    /// Replaces all words, by zeros when `words` ends before, under a new stamp: not zero, and never one from before.
    pub fn replace(&self, stamp: u64, words: impl IntoIterator<Item = u64>) {
        self.stamp.store(IN_BETWEEN, Ordering::Relaxed);
        let mut values = words.into_iter();
        for word in &self.words {
            // Whoever sees this value also sees that the stamp was taken away.
            word.store(values.next().unwrap_or(0), Ordering::Release);
        }
        self.stamp.store(stamp, Ordering::Release);
    }

    /// Copies the first words, as many as `into` has room for, if all of them are of one stamp, which it returns.
    /// `None` while they are being replaced: try again later, what is in `into` may be a mix.
    pub fn copy(&self, into: &mut [u64]) -> Option<u64> {
        let stamp = self.stamp();
        for (index, word) in into.iter_mut().enumerate() {
            *word = self.load(index);
        }
        // A word that was stored since brings the zero that was stored before it.
        (stamp != IN_BETWEEN && self.stamp.load(Ordering::Relaxed) == stamp).then_some(stamp)
    }
}
