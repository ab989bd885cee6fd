//! One monotonic clock a cell: every instant in a history is nanoseconds since its origin.

use std::time::{Duration, Instant};

/// Counts from a cell's origin. `Instant` is CLOCK_MONOTONIC on Linux, the same in every thread of this process.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    /// A clock that reads 0 at `origin` and before it.
    #[must_use]
    pub const fn starting_at(origin: Instant) -> Self {
        Self { origin }
    }

    /// Nanoseconds since the origin.
    #[must_use]
    pub fn now_ns(self) -> u64 {
        u64::try_from(Instant::now().saturating_duration_since(self.origin).as_nanos()).unwrap_or(u64::MAX)
    }

    /// The instant that reads `ns`.
    #[must_use]
    pub fn at(self, ns: u64) -> Instant {
        self.origin + Duration::from_nanos(ns)
    }

    /// The instant that reads 0.
    #[must_use]
    pub const fn origin(self) -> Instant {
        self.origin
    }
}
