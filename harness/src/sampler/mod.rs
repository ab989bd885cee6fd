//! Watches the database from outside: one connection, one autocommit statement a tick.
//!
//! Every file here does one thing: `pace` says when a tick is due, `probe` asks the server, `activity` reads its
//! rows, `attribution` tells drainer from foreground, `recorder` keeps what was seen, `cost` says what watching
//! cost, and `thread` knows the order. `drainbench watch` stands on the first three.

use std::time::Instant;

use serde::{Deserialize, Serialize};
use sqlx::postgres::PgConnectOptions;
use tokio_util::sync::CancellationToken;

use crate::scenario::SamplerSettings;

pub(crate) mod activity;
mod attribution;
mod cost;
mod intern;
pub(crate) mod pace;
pub(crate) mod probe;
mod recorder;
mod services;
mod thread;
pub(crate) mod wait_event;

/// `application_name` of the sampler's session.
pub const APPLICATION_NAME: &str = "drainbench-sampler";

/// Everything the sampler saw in one cell.
#[derive(Debug, Clone, Default)]
pub struct SampleLog {
    /// Ticks a second that were asked for.
    pub rate: u32,
    /// When each tick's statement returned, nanoseconds since the origin.
    pub ticks_ns: Vec<u64>,
    /// Ticks that were due and not made.
    pub missed: u64,
    /// Longest gap between two ticks, from the sending of one to the return of the next, the start and the end of
    /// sampling included: an episode longer than this was certainly seen.
    pub longest_gap_ns: u64,
    /// Rows, in the order of their ticks. Sessions of the cell's databases only; an `idle` session only when its
    /// last statement was a drainer's.
    pub rows: Vec<Sample>,
    /// Wait events that rows point to (`LWLock:WALWrite`), normalised across versions.
    pub wait_events: Vec<String>,
    /// Statements that rows point to (first 200 bytes).
    pub statements: Vec<String>,
    /// CPU seconds of the sampler's own thread.
    pub own_cpu_seconds: f64,
    /// CPU seconds of its backend; `None` when it runs where we cannot look.
    pub backend_cpu_seconds: Option<f64>,
    /// How long it sampled.
    pub wall_seconds: f64,
    /// The last error that cost a tick.
    pub last_error: Option<String>,
}

/// Whose session a row is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Who {
    /// By application name, by the statement's tag, or by a transaction that had one.
    Drainer,
    /// Everybody else.
    Foreground,
}

/// State of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Runs a statement.
    Active,
    /// Waits for a statement, outside a transaction.
    Idle,
    /// Waits for a statement, inside a transaction.
    IdleInTransaction,
    /// The same, after an error.
    IdleInTransactionAborted,
    /// Anything else (`fastpath function call`, `disabled`).
    Other,
}

/// One session in one tick.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// Place in [`SampleLog::ticks_ns`].
    pub tick: u32,
    /// Backend.
    pub pid: i32,
    /// Place of its service in the plan.
    pub service: u16,
    /// Drainer or foreground.
    pub who: Who,
    /// Its state.
    pub state: State,
    /// Place in [`SampleLog::wait_events`]; `None`: on CPU (when active).
    pub wait_event: Option<u16>,
    /// Place in [`SampleLog::statements`].
    pub statement: u32,
    /// Age of its transaction in microseconds; `None` outside one.
    pub xact_age_us: Option<u64>,
    /// How long it has been in this state, microseconds.
    pub state_age_us: u64,
}

/// Why there is no sampler.
#[derive(Debug, thiserror::Error)]
pub enum SamplerError {
    /// No thread or no runtime for it.
    #[error("cannot start the sampler's thread: {0}")]
    Thread(#[from] std::io::Error),
    /// The server does not answer, or not in time.
    #[error("the sampler cannot read from the database: {0}")]
    Database(String),
    /// A database is not there.
    #[error("there is no database `{0}` to sample on this server")]
    NoDatabase(String),
    /// What sessions do would be hidden.
    #[error(
        "role `{role}` may not see what sessions of database `{database}` do: its owner is another role and `{role}` \
         is no member of pg_monitor. GRANT pg_monitor TO \"{role}\""
    )]
    Privilege {
        /// Who we are.
        role: String,
        /// Which database, the first of them.
        database: String,
    },
}

impl From<String> for Watched {
    /// A database that is one service's alone.
    fn from(database: String) -> Self {
        Self { database, tag: None }
    }
}

/// A sampler at work, on a thread and a connection of its own, so that neither the load nor its pools can delay it.
/// [`stop`](Self::stop) is the normal end, `Drop` the net.
#[derive(Debug)]
pub struct Sampler {
    rate: u32,
    stop: CancellationToken,
    thread: Option<std::thread::JoinHandle<()>>,
    log: Option<tokio::sync::oneshot::Receiver<SampleLog>>,
}

impl Sampler {
    /// Connects to the maintenance database (`options`), checks that it may look, and samples the sessions of `services`
    /// (in the order of the plan; where two can't be told apart the first counts) until it is stopped. `origin` is the instant that [`SampleLog::ticks_ns`] counts from; ticks before it carry 0.
    ///
    /// # Errors
    /// When it cannot connect, a database is missing, or sessions would be hidden. Nothing is left running.
    pub async fn start(
        options: PgConnectOptions,
        services: Vec<Watched>,
        settings: &SamplerSettings,
        origin: Instant,
    ) -> Result<Self, SamplerError> {
        let rate = settings.rate.get();
        let stop = CancellationToken::new();
        let (ready, is_ready) = tokio::sync::oneshot::channel();
        let (log, logged) = tokio::sync::oneshot::channel();
        let order = thread::Order { options, services, rate, origin, stop: stop.clone() };
        let thread = std::thread::Builder::new()
            .name(APPLICATION_NAME.to_owned())
            .spawn(move || thread::main(order, ready, log))?;
        let sampler = Self { rate, stop, thread: Some(thread), log: Some(logged) };
        match is_ready.await {
            Ok(Ok(())) => Ok(sampler),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(SamplerError::Database(GONE.to_owned())),
        }
    }

    /// Ends sampling and returns what was seen, also while the server does not answer.
    pub async fn stop(mut self) -> SampleLog {
        self.stop.cancel();
        let log = match self.log.take() {
            Some(log) => log.await.ok(),
            None => None,
        };
        // A log without a tick is a blind sampler: the cell is INVALID, and this says why.
        log.unwrap_or_else(|| SampleLog {
            rate: self.rate,
            last_error: Some(GONE.to_owned()),
            ..SampleLog::default()
        })
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            // It gives up whatever it waits for at once. A panic of its was printed, and the log is missing.
            let _ = thread.join();
        }
    }
}

/// The thread ended without a word: it panicked.
const GONE: &str = "the sampler's thread is gone";

/// Where a service's sessions are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watched {
    /// Its database.
    pub database: String,
    /// Where others work in that database: what its sessions' `application_name` holds behind `drainbench:` or
    /// `drainer:`, up to the end or another colon. Such sessions log in as we do.
    pub tag: Option<String>,
}
