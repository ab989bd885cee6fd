//! A drainer: one design, one database, one exchange.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

use crate::{Broker, Config};

/// A way to drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Design {
    /// One transaction from the read through every publish to the marks: the old design.
    #[cfg(feature = "baseline")]
    SingleTx,
    /// Claim, publish outside any transaction, mark.
    Lease,
}

/// What one tick did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainStats {
    /// Rows claimed (or locked).
    pub claimed: u64,
    /// Rows the broker confirmed.
    pub confirmed: u64,
    /// Rows that failed for a reason of their own.
    pub failed: u64,
}

/// Whose fault an error is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ErrorClass {
    /// Connection, channel, time-out: no event is to blame.
    Infrastructure,
    /// One event is to blame.
    Event,
}

/// Why a tick failed.
#[derive(Debug, thiserror::Error)]
#[error("placeholder")]
pub struct DrainError {}

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
    /// Microseconds of the claim.
    pub claim_us: Option<u64>,
    /// Microseconds from each publish to its confirm.
    pub confirm_us: Vec<u64>,
    /// Microseconds of the marks.
    pub mark_us: Option<u64>,
    /// What ended the tick early.
    pub error: Option<String>,
}

/// Is told every tick. Called on the drainer's task: must not block.
pub type Observer = Arc<dyn Fn(Tick) + Send + Sync>;

/// One design at work on one database.
pub struct Drainer {}

impl Drainer {
    /// Nothing is connected or read until [`run`](Self::run) or [`drain_once`](Self::drain_once).
    #[must_use]
    pub fn new(design: Design, pool: PgPool, broker: Broker, config: Config) -> Self {
        let _ = (design, pool, broker, config);
        todo!()
    }
    /// Reports every tick to `observer`.
    #[must_use]
    pub fn observed_by(self, observer: Observer) -> Self {
        let _ = observer;
        self
    }
    /// One tick.
    ///
    /// # Errors
    /// Says what state is left behind.
    pub async fn drain_once(&self) -> Result<DrainStats, DrainError> {
        todo!()
    }
    /// Ticks until `stop`, then finishes or releases what it holds within `stop_within`. Errors are reported to
    /// the observer and retried with backoff: only a stop ends it.
    pub async fn run(&self, stop: CancellationToken) {
        let _ = stop;
        todo!()
    }
}
