//! What a person watching sees while a cell runs. Nothing is judged by it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counts so far.
#[derive(Debug, Default)]
pub struct Live {
    committed: AtomicU64,
    not_committed: AtomicU64,
    arrived: AtomicU64,
}

impl Live {
    /// Writes whose COMMIT returned.
    pub fn committed(&self, writes: u64) {
        self.committed.fetch_add(writes, Relaxed);
    }
    /// Writes that ended otherwise.
    pub fn not_committed(&self, writes: u64) {
        self.not_committed.fetch_add(writes, Relaxed);
    }
    /// Deliveries at the sink.
    pub fn arrived(&self, deliveries: u64) {
        self.arrived.fetch_add(deliveries, Relaxed);
    }
    /// Committed, otherwise ended, arrived.
    #[must_use]
    pub fn read(&self) -> (u64, u64, u64) {
        (self.committed.load(Relaxed), self.not_committed.load(Relaxed), self.arrived.load(Relaxed))
    }
}
