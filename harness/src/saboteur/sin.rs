//! What can be done wrong.

use std::collections::HashMap;

use uuid::Uuid;

use super::work::Row;

/// What a saboteur does wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Sin {
    /// Marks before it publishes.
    MarksEarly,
    /// Marks what was sent, confirmed or not.
    NoConfirms,
    /// Deletes what failed.
    DropsFailed,
    /// Gives up, and deletes, what failed three times, whatever the reason.
    CountsOutages,
    /// Never looks behind what it has seen: what was enqueued early and committed late is skipped.
    Cursor,
    /// Publishes twice.
    Doubles,
    /// Publishes an event before an earlier one of its key.
    Reorders,
    /// Holds a transaction while it publishes.
    HoldsTransaction,
    /// Takes what another one has claimed.
    IgnoresLeases,
    /// Stops for ever at an event.
    Stalls,
    /// Asks again and again while there is nothing to do.
    Burns,
    /// Nothing: an honest drainer, which must not be accused.
    Nothing,
}

/// Failures after which an event is given up.
const PATIENCE: u32 = 3;

/// A sin, with the share of events it is committed on, and what it remembers.
pub(super) struct Wrongs {
    sin: Sin,
    share: f64,
    ticks: u64,
    seen_us: i64,
    failures: HashMap<Uuid, u32>,
}

impl Wrongs {
    pub(super) fn new(sin: Sin, share: f64) -> Self {
        Self { sin, share, ticks: 0, seen_us: i64::MIN, failures: HashMap::new() }
    }

    fn commits(&self, sin: Sin, id: Uuid) -> bool {
        // One half of our ids is the same for all events of a cell.
        let (high, low) = id.as_u64_pair();
        self.sin == sin && drawn(high.rotate_left(32) ^ low, self.share)
    }

    pub(super) fn ignores_leases(&mut self) -> bool {
        self.ticks += 1;
        self.sin == Sin::IgnoresLeases && drawn(self.ticks, self.share)
    }

    pub(super) fn stalls(&self, rows: &[Row]) -> bool {
        rows.iter().any(|row| self.commits(Sin::Stalls, row.id))
    }

    /// Takes out what stands before the newest that was ever seen.
    pub(super) fn skipped(&mut self, rows: &mut Vec<Row>) -> Vec<Uuid> {
        let seen_us = self.seen_us;
        self.seen_us = rows.iter().map(|row| row.enqueued_us).fold(seen_us, i64::max);
        let is_behind = |row: &Row| row.enqueued_us < seen_us && self.commits(Sin::Cursor, row.id);
        let skipped = rows.iter().filter(|row| is_behind(row)).map(|row| row.id).collect();
        rows.retain(|row| !is_behind(row));
        skipped
    }

    pub(super) fn marks_early(&self, row: &Row) -> bool {
        self.commits(Sin::MarksEarly, row.id)
    }

    pub(super) fn holds(&self, rows: &[Row]) -> bool {
        rows.iter().any(|row| self.commits(Sin::HoldsTransaction, row.id))
    }

    /// Puts an event before the nearest earlier one of its key.
    pub(super) fn reorder(&self, rows: &mut [Row]) {
        for later in 1..rows.len() {
            if self.commits(Sin::Reorders, rows[later].id)
                && let Some(earlier) = (0..later).rev().find(|at| rows[*at].key == rows[later].key)
            {
                rows.swap(earlier, later);
            }
        }
    }

    pub(super) fn times(&self, row: &Row) -> u32 {
        if self.commits(Sin::Doubles, row.id) { 2 } else { 1 }
    }

    pub(super) fn waits_for(&self, row: &Row) -> bool {
        !self.commits(Sin::NoConfirms, row.id)
    }

    /// What failed and is not tried again.
    pub(super) fn given_up(&mut self, failed: &[Uuid]) -> Vec<Uuid> {
        for id in failed {
            *self.failures.entry(*id).or_default() += 1;
        }
        let gives_up = |id: &&Uuid| {
            self.commits(Sin::DropsFailed, **id)
                || self.commits(Sin::CountsOutages, **id) && self.failures[*id] >= PATIENCE
        };
        failed.iter().filter(gives_up).copied().collect()
    }
}

/// The same for the same number, for a share of all numbers. SplitMix64's last steps.
fn drawn(number: u64, share: f64) -> bool {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^= mixed >> 31;
    #[expect(clippy::cast_precision_loss, reason = "53 bits of it are enough")]
    let place = (mixed >> 11) as f64 / (1_u64 << 53) as f64;
    place < share
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_drawn_and_always_the_same() {
        for (share, least, most) in [(0.0, 0, 0), (0.01, 800, 1_200), (1.0, 100_000, 100_000)] {
            let drawn_of = || (0..100_000).filter(|number| drawn(*number, share)).count();
            assert!((least..=most).contains(&drawn_of()), "{share}: {}", drawn_of());
            assert_eq!(drawn_of(), drawn_of());
        }
    }
}
