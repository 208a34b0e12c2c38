//! Time as a value: whoever drives a worker owns the clock.

use core::ops::{Add, Sub};

/// Nanoseconds on a clock that never steps back (TSC, `CLOCK_MONOTONIC` or virtual time); its zero has no meaning.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(transparent)]
pub struct Nanos(pub u64);

impl Nanos {
    /// No deadline.
    pub const NEVER: Self = Self(u64::MAX);

    /// A span of whole microseconds.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros * 1_000)
    }

    /// A span of whole milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis * 1_000_000)
    }

    /// A span of whole seconds.
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs * 1_000_000_000)
    }

    /// Time passed since `earlier`; zero when `earlier` is in the future, as it is after a clock fault.
    pub const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }
}

impl Add for Nanos {
    type Output = Self;

    fn add(self, span: Self) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl Sub for Nanos {
    type Output = Self;

    fn sub(self, span: Self) -> Self {
        self.since(span)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_back_is_no_time_at_all() {
        assert_eq!(Nanos(5).since(Nanos(9)), Nanos(0));
        assert_eq!(Nanos::NEVER + Nanos(1), Nanos::NEVER);
    }
}
