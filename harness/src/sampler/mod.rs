//! Watches the database from outside: one connection, one autocommit statement a tick.

use serde::{Deserialize, Serialize};

/// Everything the sampler saw in one cell.
#[derive(Debug, Clone, Default)]
pub struct SampleLog {
    /// Ticks a second that were asked for.
    pub rate: u32,
    /// When each tick's statement returned, nanoseconds since the origin.
    pub ticks_ns: Vec<u64>,
    /// Ticks that were due and not made.
    pub missed: u64,
    /// Longest gap between two ticks: an episode longer than this was certainly seen.
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
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
