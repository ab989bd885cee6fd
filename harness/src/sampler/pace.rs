//! When ticks are due.

use std::time::{Duration, Instant};

/// Ticks at absolute instants: a late one does not move those after it, and one that is overdue by a whole period is
/// missed, not made up for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    start: Instant,
    rate: u32,
    next: u64,
}

impl Pace {
    /// The first tick is due at `start`. A rate of 0 counts as 1.
    pub(crate) fn new(start: Instant, rate: u32) -> Self {
        Self { start, rate: rate.max(1), next: 0 }
    }

    /// When the next tick is due.
    pub(crate) fn due(&self) -> Instant {
        self.start + Duration::from_nanos(self.offset_ns(self.next))
    }

    /// Ends the tick that was due. Returns how many others had become due by `now`: they are missed.
    pub(crate) fn advance(&mut self, now: Instant) -> u64 {
        let elapsed = now.saturating_duration_since(self.start).as_nanos();
        // Tick k is due at k / rate seconds, so this many after the first are due already.
        let passed = u64::try_from(elapsed * u128::from(self.rate) / 1_000_000_000).unwrap_or(u64::MAX - 1);
        let missed = passed.saturating_sub(self.next);
        self.next += missed + 1;
        missed
    }

    fn offset_ns(&self, tick: u64) -> u64 {
        let ns = u128::from(tick) * 1_000_000_000 / u128::from(self.rate);
        u64::try_from(ns).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn ticks_in_time_stay_on_the_grid() {
        let start = Instant::now();
        let mut pace = Pace::new(start, 50);
        assert_eq!(pace.due(), start);
        assert_eq!(pace.advance(start + ms(3)), 0);
        assert_eq!(pace.due(), start + ms(20));
        // Late within its period: the one after is still due at 40.
        assert_eq!(pace.advance(start + ms(39)), 0);
        assert_eq!(pace.due(), start + ms(40));
    }

    #[test]
    fn ticks_that_fell_due_meanwhile_are_missed() {
        let start = Instant::now();
        let mut pace = Pace::new(start, 50);
        pace.advance(start);
        // Due at 20, returned at 65: 40 and 60 are missed, 80 is next.
        assert_eq!(pace.advance(start + ms(65)), 2);
        assert_eq!(pace.due(), start + ms(80));
    }

    #[test]
    fn made_and_missed_add_up_after_a_long_time_at_an_odd_rate() {
        let start = Instant::now();
        let mut pace = Pace::new(start, 7);
        let mut missed = 0;
        let mut made = 0;
        let mut now = start;
        while now < start + ms(10_000) {
            now = now.max(pace.due()) + ms(200);
            missed += pace.advance(now);
            made += 1;
        }
        let due = pace.due();
        assert_eq!(due, start + Duration::from_nanos((made + missed) * 1_000_000_000 / 7));
    }

    #[test]
    fn a_start_in_the_future_misses_nothing() {
        let now = Instant::now();
        let mut pace = Pace::new(now + ms(500), 50);
        assert_eq!(pace.advance(now), 0);
    }
}
