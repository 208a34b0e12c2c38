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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The definition in signed 128-bit integers, where nothing saturates: a level in billionths of a token.
    struct Exact {
        per_second: i128,
        cap: i128,
        level: i128,
        latest: i128,
    }

    impl Exact {
        fn allow(&mut self, now: u64) -> bool {
            let now = i128::from(now);
            self.level = (self.level + (now - self.latest).max(0) * self.per_second).min(self.cap);
            self.latest = self.latest.max(now);
            let allowed = self.level >= 1_000_000_000;
            self.level -= if allowed { 1_000_000_000 } else { 0 };
            allowed
        }
    }

    fn step() -> impl Strategy<Value = i64> {
        prop_oneof![0..3_i64, 0..2_000_000_000_i64, -3_000_000_000..0_i64, any::<i64>()]
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn agrees_with_exact_arithmetic(
            per_second in prop_oneof![0..5_u32, any::<u32>()],
            burst in prop_oneof![0..5_u32, any::<u32>()],
            start: u64,
            steps in prop::collection::vec(step(), 1..200),
        ) {
            let mut limit = RateLimit::new(per_second, burst);
            let cap = i128::from(burst) * 1_000_000_000;
            let mut exact = Exact { per_second: per_second.into(), cap, level: cap, latest: 0 };
            let mut now = start;
            for step in steps {
                now = now.saturating_add_signed(step);
                prop_assert_eq!(limit.allow(Nanos(now)), exact.allow(now));
            }
        }

        /// The promise itself, for any window between two events that passed: burst + rate * time, no more.
        #[test]
        fn no_window_passes_more_than_burst_and_rate(
            per_second in 1..2_000_u32,
            burst in 1..20_u32,
            steps in prop::collection::vec(0..5_000_000_u64, 1..300),
        ) {
            let mut limit = RateLimit::new(per_second, burst);
            let mut now = 0;
            let times: Vec<u64> = steps.iter().filter_map(|step| {
                now += step;
                limit.allow(Nanos(now)).then_some(now)
            }).collect();
            for first in 0..times.len() {
                for last in first..times.len() {
                    let events = (last - first + 1) as u128 * 1_000_000_000;
                    let span = u128::from(times[last] - times[first]);
                    prop_assert!(events <= u128::from(burst) * 1_000_000_000 + span * u128::from(per_second));
                }
            }
        }
    }

    #[test]
    fn the_long_run_rate_is_exact_where_a_rounded_interval_would_drift() {
        let mut limit = RateLimit::new(3, 2);
        let passed = (0..=3_000_000).filter(|tick| limit.allow(Nanos(tick * 100_000))).count();
        assert_eq!(passed, 902, "two at the start and three a second for 300 s");
    }

    #[test]
    fn a_clock_that_swings_earns_nothing() {
        let mut limit = RateLimit::new(1_000, 2);
        let times =
            [5_000_000_000, 5_000_000_000, 0, 5_000_000_000, 0, 5_000_000_000, 4_999_999_999].map(Nanos);
        assert_eq!(times.map(|now| limit.allow(now)), [true, true, false, false, false, false, false]);
        assert!(limit.allow(Nanos(5_001_000_000)));
    }

    #[test]
    fn a_million_events_at_once_pass_as_many_as_the_burst() {
        let mut limit = RateLimit::new(u32::MAX, 7);
        assert_eq!((0..1_000_000).filter(|_| limit.allow(Nanos(u64::MAX))).count(), 7);
    }
}
