//! The raw facts of one cell. Above it is I/O, below it everything is a pure function of it.
//!
//! Every `_ns` is nanoseconds on one monotonic clock since the cell's origin, which is before the first drainer starts
//! and `Plan::start_ns` before the schedule does. What happened before it (a backlog) is 0.

use std::{collections::BTreeMap, ops::Range};

use crate::{plan::Plan, sampler::SampleLog, wire::postgres::Idle};

/// Everything that was seen in one cell.
#[derive(Debug)]
pub struct History {
    /// Wall clock of the origin, RFC 3339.
    pub started_at: jiff::Timestamp,
    /// What was meant to happen.
    pub plan: Plan,
    /// The measured window.
    pub window_ns: Range<u64>,
    /// When the first drainer started and the last one had stopped; `None` without drainers.
    pub drained_ns: Option<Range<u64>>,
    /// What happened in each service, in the order of the plan.
    pub services: Vec<ServiceHistory>,
    /// What the drainers told of themselves, all services together.
    pub ticks: Vec<DrainerTick>,
    /// What was broken on purpose, in the order it began.
    pub faults: Vec<FaultSpan>,
    /// What a link that reads along saw of the drainers' sessions, or why it could not; `None` without one.
    pub witness: Option<Result<Idle, String>>,
    /// Drainer processes, where there are any.
    pub processes: Vec<ProcessUse>,
    /// What the sampler saw.
    pub samples: SampleLog,
    /// Counters of the database.
    pub database: DatabaseUse,
    /// What broke the instrument or its servers, in words; empty when nothing did.
    pub troubles: Vec<String>,
    /// What changed under the cell, so that its numbers mean nothing, in words.
    pub void: Vec<String>,
    /// What the drainers did that none may: ended by themselves, panicked, did not stop.
    pub misconduct: Vec<String>,
    /// The user stopped it: what is here is partial.
    pub interrupted: bool,
}

/// One service's facts.
#[derive(Debug, Default)]
pub struct ServiceHistory {
    /// One for each write of the plan that was attempted, in the order of the plan (backlog first).
    /// Shorter than the plan only when the run was interrupted.
    pub writes: Vec<Write>,
    /// Every delivery, in the order of arrival.
    pub arrivals: Vec<Arrival>,
    /// Events still unpublished in the outbox at the end.
    pub waiting: Vec<EventRef>,
    /// Events set aside as dead letters.
    pub dead: Vec<EventRef>,
    /// Longest time a marker that we published ourselves took through the queue.
    pub marker_max_ns: u64,
}

/// An event of this service: the write's place in the plan and the event's place in the write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EventRef {
    /// Place in [`ServiceHistory::writes`].
    pub write: u32,
    /// Place in the write.
    pub event: u16,
}

/// How a write ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// COMMIT returned.
    Committed,
    /// Rolled back on purpose.
    RolledBack,
    /// Refused, or no connection in time: nothing persisted.
    Failed,
    /// The reply to COMMIT was lost.
    Unsure,
}

/// One foreground transaction. Where it ended early the later instants equal `ended_ns`.
#[derive(Debug, Clone, Copy)]
pub struct Write {
    /// When it should have started.
    pub due_ns: u64,
    /// When the generator started it.
    pub started_ns: u64,
    /// When it had a connection.
    pub acquired_ns: u64,
    /// When its statements had returned, before COMMIT.
    pub executed_ns: u64,
    /// When COMMIT (or ROLLBACK, or the error) returned.
    pub ended_ns: u64,
    /// How.
    pub outcome: Outcome,
}

/// One delivery at the broker.
#[derive(Debug, Clone, Copy)]
pub struct Arrival {
    /// When the sink had it.
    pub at_ns: u64,
    /// Which event, or `None`: nobody of this cell wrote it.
    pub event: Option<EventRef>,
    /// First 8 bytes of `x-publish-id`; 0 when the message carries none.
    pub publish: u64,
    /// The broker says it delivered it before.
    pub redelivered: bool,
}

/// One tick that a drainer reported.
#[derive(Debug, Clone)]
pub struct DrainerTick {
    /// Place of the service in the plan.
    pub service: u16,
    /// Which of its drainers.
    pub instance: u16,
    /// When the report was read.
    pub at_ns: u64,
    /// What it said.
    pub tick: drainer::Tick,
}

/// What a drainer process used, read from outside.
#[derive(Debug, Clone, Copy, Default)]
pub struct ProcessUse {
    /// Place of the service in the plan.
    pub service: u16,
    /// CPU seconds, user and system.
    pub cpu_seconds: f64,
    /// Peak resident bytes.
    pub rss_peak_bytes: u64,
    /// How long it ran.
    pub wall_seconds: f64,
}

/// Counters of the database over the cell, all its databases together. `None`: not visible on this rig.
#[derive(Debug, Clone, Default)]
pub struct DatabaseUse {
    /// WAL written by the whole server from before the cell's first write (its backlog included) to after the last
    /// drainer stopped. A paired control wrote the same backlog.
    pub wal_bytes: Option<u64>,
    /// `xact_commit` of the cell's databases over the same span.
    pub commits: Option<u64>,
    /// Most dead tuples of all outbox tables together, sampled once a second.
    pub dead_tuples_peak: Option<u64>,
    /// `n_tup_upd` of the outbox tables.
    pub updates: Option<u64>,
    /// `n_tup_hot_upd` of the outbox tables.
    pub hot_updates: Option<u64>,
    /// Size in bytes of each relation of the outbox at the end, by name, all services together.
    pub relation_bytes: BTreeMap<String, u64>,
}

/// One strike of a fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultSpan {
    /// Place in [`Cell::faults`](crate::scenario::Cell::faults).
    pub fault: usize,
    /// Its kind, as scenarios write it.
    pub kind: &'static str,
    /// What it broke, as scenarios write it.
    pub target: &'static str,
    /// When it was to be broken.
    pub began_ns: u64,
    /// When it had healed; of what never heals, when it had been broken.
    pub healed_ns: u64,
    /// Whether the other side saw it.
    pub hit: bool,
    /// What the other side saw.
    pub evidence: String,
}
