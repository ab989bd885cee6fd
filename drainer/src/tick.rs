//! What one tick did: the only thing a drainer says of itself.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// What one tick did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainStats {
    /// Rows claimed (or locked).
    pub claimed: u64,
    /// Rows the broker confirmed.
    pub confirmed: u64,
    /// Rows that failed for a reason of their own, or that `lease` blames.
    pub failed: u64,
}

/// What only the drainer can know of one tick. One JSON line of a drainer process.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Tick {
    /// What it did.
    pub stats: DrainStats,
    /// Claims given back without blame.
    pub released: u64,
    /// Rows whose mark did not match any more.
    pub lost_leases: u64,
    /// Statements sent, BEGIN, COMMIT and ROLLBACK included.
    pub statements: u64,
    /// Microseconds of the claim, with the wait for a connection and, in `single-tx`, with BEGIN.
    pub claim_us: Option<u64>,
    /// Microseconds from each publish to its confirm, in the order of the confirms.
    pub confirm_us: Vec<u64>,
    /// Microseconds of the marks, with the wait for a connection and, in `single-tx`, with COMMIT.
    pub mark_us: Option<u64>,
    /// What ended the tick early.
    pub error: Option<String>,
}

impl Tick {
    /// Adds `spent` to the marks of this tick.
    pub(crate) fn add_mark(&mut self, spent: std::time::Duration) {
        self.mark_us = Some(self.mark_us.unwrap_or(0) + micros(spent));
    }
}

/// Whole microseconds; 584,000 years are enough.
pub(crate) fn micros(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// A count of things in memory.
pub(crate) fn count(things: usize) -> u64 {
    u64::try_from(things).unwrap_or(u64::MAX)
}

/// Is told every tick. Called on the drainer's task: must not block.
pub type Observer = Arc<dyn Fn(Tick) + Send + Sync>;
