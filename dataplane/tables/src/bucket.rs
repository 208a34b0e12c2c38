//! A token bucket for what is sent rarely: ICMP errors, ARP requests.

use packet::Nanos;

/// One token, in the unit of the fill level: what one packet per second earns in a second of nanoseconds.
const TOKEN: u64 = 1_000_000_000;

/// Lets `per_second` events pass a second in the long run, and at most `burst` at once. Exact: nothing is rounded.
#[derive(Clone, Debug)]
pub struct RateLimit {
    per_second: u32,
    full: u64,
    level: u64,
    filled: Nanos,
}

impl RateLimit {
    /// A full bucket. With `burst` zero nothing ever passes; with `per_second` zero only the first `burst`.
    pub const fn new(per_second: u32, burst: u32) -> Self {
        let full = burst as u64 * TOKEN;
        Self { per_second, full, level: full, filled: Nanos(0) }
    }

    /// True, and one token taken, when an event may pass. While `now` is behind the latest time seen, no tokens are
    /// earned, so a clock that steps back and forth earns no burst.
    pub fn allow(&mut self, now: Nanos) -> bool {
        let earned = now.since(self.filled).0.saturating_mul(u64::from(self.per_second));
        self.level = self.level.saturating_add(earned).min(self.full);
        self.filled = self.filled.max(now);
        let allowed = self.level >= TOKEN;
        if allowed {
            self.level -= TOKEN;
        }
        allowed
    }
}
