//! What time it is for a worker.

use std::time::Instant;

use packet::Nanos;

/// A clock that never steps back.
pub trait Clock: Send + 'static {
    /// Nanoseconds since some moment before the worker's start.
    fn now(&self) -> Nanos;
}

/// `CLOCK_MONOTONIC`.
pub struct MonotonicClock(Instant);

impl MonotonicClock {
    /// Zero is now.
    pub fn start() -> Self {
        Self(Instant::now())
    }
}

impl Clock for MonotonicClock {
    fn now(&self) -> Nanos {
        Nanos(u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}

/// The processor's time stamp counter: one instruction instead of a call.
#[cfg(feature = "dpdk")]
pub struct TscClock {
    start: u64,
    /// Nanoseconds per tick, as a fixed-point number of 32 fractional bits.
    nanos_per_tick: u64,
}

#[cfg(feature = "dpdk")]
impl TscClock {
    /// Zero is now.
    pub fn start(eal: &dpdk::Eal) -> Self {
        let nanos_per_tick = ((1_000_000_000_u128 << 32) / u128::from(dpdk::tsc_hz(eal).max(1))) as u64;
        Self { start: dpdk::tsc(), nanos_per_tick }
    }
}

#[cfg(feature = "dpdk")]
impl Clock for TscClock {
    #[inline]
    fn now(&self) -> Nanos {
        let ticks = dpdk::tsc().saturating_sub(self.start);
        Nanos(((u128::from(ticks) * u128::from(self.nanos_per_tick)) >> 32) as u64)
    }
}
