//! A drainer: one design, one database, one exchange.

use std::{fmt, time::Duration};

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

#[cfg(feature = "baseline")]
use crate::single_tx;
use crate::{Broker, Config, DrainStats, Observer, Tick, lease};

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

impl Design {
    /// Every design this build has.
    pub const ALL: &[Self] = &[
        #[cfg(feature = "baseline")]
        Self::SingleTx,
        Self::Lease,
    ];

    /// As in settings and reports.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            #[cfg(feature = "baseline")]
            Self::SingleTx => "single-tx",
            Self::Lease => "lease",
        }
    }
}

impl fmt::Display for Design {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
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

/// Why a tick failed. What state is left behind stands at [`Drainer::drain_once`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DrainError {
    /// The broker's URL is none.
    #[error(transparent)]
    BrokerUrl(#[from] crate::BrokerUrlError),
    /// The broker refused, or could not be reached.
    #[error("could not {what} at the broker {address}: {source}")]
    Broker {
        /// What was tried.
        what: &'static str,
        /// Host and port.
        address: String,
        /// The client's error.
        source: lapin::Error,
    },
    /// The broker did not answer.
    #[error("could not {what} at the broker {address} within {} ms", .deadline.as_millis())]
    BrokerDeadline {
        /// What was tried.
        what: &'static str,
        /// Host and port.
        address: String,
        /// How long it was waited for.
        deadline: Duration,
    },
    /// The broker went away in the middle of a transaction, which is rolled back.
    #[error("lost the broker {address} in the middle of a batch: {reason}")]
    Lost {
        /// Host and port.
        address: String,
        /// How it showed.
        reason: String,
    },
    /// The database refused, or could not be reached.
    #[error("{phase} failed: {source}")]
    Database {
        /// Which phase.
        phase: &'static str,
        /// The client's error.
        source: sqlx::Error,
    },
    /// The database did not answer, or the pool had no connection.
    #[error("{phase} got no connection or no answer within {} ms", .deadline.as_millis())]
    DatabaseDeadline {
        /// Which phase.
        phase: &'static str,
        /// How long it was waited for.
        deadline: Duration,
    },
    /// A stop had no time to finish the batch.
    #[error("stopped before the batch was done: what was not confirmed was given back")]
    CutShort,
    /// A stop had no time to give back what was held.
    #[error("stopped in the middle of a batch: what was held is left to its lease or its transaction")]
    Abandoned,
}

impl DrainError {
    /// Whose fault it is. What fails a tick is never one event's: those are counted in [`DrainStats::failed`].
    #[must_use]
    pub fn class(&self) -> ErrorClass {
        ErrorClass::Infrastructure
    }
}

/// First and longest pause after a failed tick. The first is short because most losses are restarts; the longest keeps
/// a fleet from hammering a broker that is down, and bounds how long recovery goes unnoticed.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// How long a stopped drainer waits for the broker to close its connection.
const CLOSE_WITHIN: Duration = Duration::from_secs(1);
/// At most this much of `stop_within` is kept for giving back what is held.
const GIVE_BACK_WITHIN: Duration = Duration::from_secs(2);

/// One design at work on one database.
pub struct Drainer {
    design: Design,
    pub(crate) pool: PgPool,
    pub(crate) broker: Broker,
    pub(crate) config: Config,
    observer: Option<Observer>,
}

impl fmt::Debug for Drainer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { design, pool: _, broker, config, observer: _ } = self;
        f.debug_struct("Drainer")
            .field("design", design)
            .field("broker", broker)
            .field("config", config)
            .finish_non_exhaustive()
    }
}

impl Drainer {
    /// Nothing is connected or read until [`run`](Self::run) or [`drain_once`](Self::drain_once).
    #[must_use]
    pub fn new(design: Design, pool: PgPool, broker: Broker, config: Config) -> Self {
        Self { design, pool, broker, config, observer: None }
    }

    /// Reports every tick to `observer`.
    #[must_use]
    pub fn observed_by(mut self, observer: Observer) -> Self {
        self.observer = Some(observer);
        self
    }

    /// One tick: at most one batch.
    ///
    /// # Errors
    /// `single-tx`: everything is rolled back, attempts included; what was confirmed before is published again by a
    /// later tick. `lease`: where no channel could be had, all claims are released and attempts are as before; where
    /// the broker fell silent in the middle, what was confirmed is marked, the unconfirmed count one attempt and the
    /// unpublished are released; where a claim, mark or release failed, claims stay until the lease lapses.
    ///
    /// Dropping the future leaves `lease` with its claims until they lapse, and `single-tx` rolled back.
    pub async fn drain_once(&self) -> Result<DrainStats, DrainError> {
        let mut tick = Tick::default();
        let outcome = self.work(&CancellationToken::new(), &mut tick).await;
        let stats = tick.stats;
        self.report(tick, &outcome);
        outcome.map(|()| stats)
    }

    /// Ticks until `stop`, then finishes the batch, or, when that takes longer than `stop_within`, releases what it
    /// holds. Errors are reported to the observer and retried with backoff: only a stop ends it.
    pub async fn run(&self, stop: CancellationToken) {
        let mut backoff = backoff();
        while !stop.is_cancelled() {
            let mut tick = Tick::default();
            let outcome = self.work_until(&stop, &mut tick).await;
            let pause = if outcome.is_err() {
                Some(backoff.next().unwrap_or(BACKOFF.1).min(BACKOFF.1))
            } else {
                backoff = self::backoff();
                self.pause_after(tick.stats)
            };
            self.report(tick, &outcome);
            if let Some(pause) = pause {
                tokio::select! {
                    () = sleep(pause) => {}
                    () = stop.cancelled() => {}
                }
            }
        }
        self.broker.close(CLOSE_WITHIN).await;
    }

    /// A full batch means that more may wait. Unless nothing of it went out: poison at the head would spin.
    fn pause_after(&self, stats: DrainStats) -> Option<Duration> {
        let full = stats.claimed >= u64::from(self.config.batch_size.get());
        (!full || stats.confirmed == 0).then_some(self.config.poll_interval)
    }

    /// One tick that a stop bounds: it goes on for most of `stop_within`, gives back in the rest, and is dropped then.
    async fn work_until(&self, stop: &CancellationToken, tick: &mut Tick) -> Result<(), DrainError> {
        let give_back = GIVE_BACK_WITHIN.min(self.config.stop_within / 4);
        let cut = CancellationToken::new();
        let mut work = Box::pin(self.work(&cut, tick));
        tokio::select! {
            outcome = &mut work => return outcome,
            () = stop.cancelled() => {}
        }
        tokio::select! {
            outcome = &mut work => return outcome,
            () = sleep(self.config.stop_within - give_back) => cut.cancel(),
        }
        timeout(give_back, work).await.unwrap_or(Err(DrainError::Abandoned))
    }

    async fn work(&self, cut: &CancellationToken, tick: &mut Tick) -> Result<(), DrainError> {
        match self.design {
            #[cfg(feature = "baseline")]
            Design::SingleTx => single_tx::tick(self, cut, tick).await,
            Design::Lease => lease::tick(self, cut, tick).await,
        }
    }

    fn report(&self, mut tick: Tick, outcome: &Result<(), DrainError>) {
        if let Some(observer) = &self.observer {
            tick.error = outcome.as_ref().err().map(ToString::to_string);
            observer(tick);
        }
    }

    /// `pipeline_depth` as a size of chunks.
    pub(crate) fn chunk(&self) -> usize {
        usize::try_from(self.config.pipeline_depth.get()).unwrap_or(usize::MAX)
    }

    pub(crate) fn silent_broker(&self) -> DrainError {
        DrainError::BrokerDeadline {
            what: "get a confirm",
            address: self.broker.address(),
            deadline: self.config.confirm_timeout,
        }
    }
}

/// Doubles from the first pause to the longest, with jitter so that a fleet does not come back in step.
fn backoff() -> ExponentialBackoff {
    ExponentialBuilder::default()
        .with_min_delay(BACKOFF.0)
        .with_max_delay(BACKOFF.1)
        .without_max_times()
        .with_jitter()
        .build()
}
