//! What is asked: a validated scenario, and nothing that could be wrong afterwards.

//!
//! [`find`] a text, [`load`] it. The file's own shape is `wire`, what each of its tables means `resolve`, and how
//! tables and cells relate `rules`; `overrides` is what the command line changes before any of them looks.

mod budget;
mod defaults;
mod error;
mod fault;
mod keys;
mod load;
mod names;
pub(crate) mod nearest;
mod overrides;
mod resolve;
mod rules;
mod shipped;
#[cfg(test)]
mod tests;
mod value;
mod wire;

use std::{num::NonZeroU32, time::Duration};

use serde::{Deserialize, Serialize};

pub use self::{
    error::{Invalid, ScenarioError},
    fault::{Breaks, Fault, Point, Server, Weakness, When},
    load::load,
    shipped::{SHIPPED, find},
};
use crate::{metric::Metric, rig::Containers};

/// A whole question: cells to run on one rig and what is expected of them.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// Short name; a shipped scenario is found by it.
    pub name: String,
    /// One line for people.
    pub about: String,
    /// Everything random is a function of it.
    pub seed: u64,
    /// Repetitions of all cells; at least 1.
    pub rounds: NonZeroU32,
    /// `[rig]`: what servers in containers are made of. The command line and the environment go before it.
    pub containers: Containers,
    /// In the order they run within a round.
    pub cells: Vec<Cell>,
    /// What the baseline must show.
    pub symptoms: Vec<Expectation>,
    /// What every candidate must meet.
    pub criteria: Vec<Expectation>,
    /// The TOML it was read from, overrides included as comments at its end, and SHA-256 of it in hex.
    pub text: String,
    /// SHA-256 of `text`, hex.
    pub hash: String,
}

/// One measured run of one design, every key resolved.
#[derive(Debug, Clone, Serialize)]
pub struct Cell {
    /// Unique within the scenario.
    pub label: String,
    /// What it is judged as; none is reported only.
    pub role: Option<Role>,
    /// Who drains.
    pub design: CellDesign,
    /// What is broken in it on purpose.
    pub faults: Vec<Fault>,
    /// All other keys.
    #[serde(flatten)]
    pub settings: Settings,
}

/// What a cell is judged as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// No drainer, or a reference load: what the machine can do.
    Control,
    /// The old design: must show the symptoms.
    Baseline,
    /// The new design: must meet the criteria.
    Candidate,
}

/// Who drains in a cell: a design of the drainer crate or a yardstick.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CellDesign {
    /// Nobody.
    None,
    /// No database: each event is published when its write's COMMIT returned, a backlog from the plan at the start.
    Raw,
    /// The old design.
    SingleTx,
    /// The reference's lease design.
    Lease,
}

/// Every key of a scenario that a cell may override.
#[derive(Debug, Clone, Serialize)]
pub struct Settings {
    /// `[load]`
    pub load: Load,
    /// `[service]`
    pub service: Service,
    /// `[drainer]`
    pub drainer: DrainerSettings,
    /// `[broker]`
    pub broker: BrokerSettings,
    /// `[database]`
    pub database: DatabaseSettings,
    /// `[sampler]`
    pub sampler: SamplerSettings,
    /// `[validity]`
    pub validity: Validity,
    /// `[suite]`
    pub suite: Suite,
}

/// When writes are due.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Arrivals {
    /// Evenly spaced over all services, round robin.
    Constant,
    /// Exponential gaps, each service on its own.
    Poisson,
    /// All writes of a period are due at its start.
    Burst {
        /// The period.
        #[serde(serialize_with = "as_text")]
        every: Duration,
    },
    /// The rate grows linearly from `from` at the start of the warm-up to `rate` at the end of the window.
    Ramp {
        /// Writes a second at the start, all services together.
        from: f64,
    },
}

/// How a write reaches the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum WriteKind {
    /// BEGIN, statements, COMMIT.
    Transaction,
    /// One statement that does all of it.
    Statement,
}

/// What is written.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Load {
    /// Databases, each with its own pool, exchange and queue. 1 to 4096.
    pub services: u16,
    /// Writes a second, all services together; `None`: no writes, only the backlog. Above 0.
    pub rate: Option<f64>,
    /// When they are due.
    pub arrivals: Arrivals,
    /// Bytes of one event's `data`, 2 to 1 MiB.
    pub payload_bytes: u32,
    /// Events of one write, 1 to 4096.
    pub events_per_write: u16,
    /// Share of writes that roll back on purpose, 0 to 1.
    pub rollback_share: f64,
    /// Ordering keys of each service; 0: events have no key.
    pub keys: u32,
    /// Zipf exponent over the keys; 0: uniform.
    pub key_skew: f64,
    /// One statement or a transaction.
    pub write: WriteKind,
    /// Written and audited, not measured.
    #[serde(serialize_with = "as_text")]
    pub warm_up: Duration,
    /// The measured window.
    #[serde(serialize_with = "as_text")]
    pub duration: Duration,
    /// From the last write's end; what is unpublished then is waiting.
    #[serde(serialize_with = "as_text")]
    pub drain_deadline: Duration,
    /// Events committed before the drainers start, all services together.
    pub backlog: u32,
}

/// A service that writes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Service {
    /// Connections of each service.
    pub pool: NonZeroU32,
    /// How long a write waits for one of them before it fails.
    #[serde(serialize_with = "as_text")]
    pub acquire_timeout: Duration,
}

/// Where a drainer lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// In the service's process, sharing its pool.
    InService,
    /// A child process with a pool of its own.
    Process,
}

/// `[drainer]`
#[derive(Debug, Clone, Serialize)]
pub struct DrainerSettings {
    /// Shares the service's pool or has its own.
    pub placement: Placement,
    /// A program that drains instead of the design's own, with its arguments, separated by blanks.
    pub command: Option<String>,
    /// Connections of a drainer process.
    pub pool: NonZeroU32,
    /// Drainers of each service.
    pub instances: NonZeroU32,
    /// Rows a tick.
    pub batch_size: NonZeroU32,
    /// Publishes in flight.
    pub pipeline_depth: NonZeroU32,
    /// How long a claim holds.
    #[serde(serialize_with = "as_text")]
    pub lease_ttl: Duration,
    /// Pause after a tick that found less than a batch.
    #[serde(serialize_with = "as_text")]
    pub poll_interval: Duration,
    /// Deadline of one confirm.
    #[serde(serialize_with = "as_text")]
    pub confirm_timeout: Duration,
    /// How long a clean stop may take.
    #[serde(serialize_with = "as_text")]
    pub stop_within: Duration,
}

/// Kind of the services' queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum QueueKind {
    /// Durable classic queue.
    Classic,
    /// Quorum queue.
    Quorum,
}

/// `[broker]`
#[derive(Debug, Clone, Serialize)]
pub struct BrokerSettings {
    /// Delay of bytes from the broker to the drainers; 0: none.
    #[serde(serialize_with = "as_text")]
    pub latency: Duration,
    /// Kind of the queues.
    pub queue: QueueKind,
    /// Longest queue; a full one rejects. 0: unlimited.
    pub max_length: u32,
}

/// `[database]`: only on rigs of our own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DatabaseSettings {
    /// `commit_delay`, with `commit_siblings = 0`: a slow disk.
    #[serde(serialize_with = "as_text")]
    pub commit_delay: Duration,
    /// `full_page_writes`.
    pub full_page_writes: bool,
}

/// `[sampler]`
#[derive(Debug, Clone, Serialize)]
pub struct SamplerSettings {
    /// Ticks a second, 1 to 100.
    pub rate: NonZeroU32,
    /// Share of ticks that may be missed, 0 to 1.
    pub max_missed: f64,
    /// Whether drainer processes go to their database through a link that reads along.
    pub witness: bool,
}

/// `[validity]`: beyond these a run is INVALID.
#[derive(Debug, Clone, Serialize)]
pub struct Validity {
    /// How late the generator may start its writes, p99.
    #[serde(serialize_with = "as_text")]
    pub lag_p99: Duration,
    /// How far the sink may fall behind the queues.
    #[serde(serialize_with = "as_text")]
    pub sink_behind: Duration,
}

/// `[suite]`: writes that are test cases as well.
#[derive(Debug, Clone, Serialize)]
pub struct Suite {
    /// How many of the measured writes; 0: no suite.
    pub cases: u32,
    /// From due to the return of COMMIT.
    #[serde(serialize_with = "as_text")]
    pub persist_within: Duration,
    /// From due to the last of its events' arrivals.
    #[serde(serialize_with = "as_text")]
    pub arrive_within: Duration,
}

/// A limit on a metric.
#[derive(Debug, Clone)]
pub struct Expectation {
    /// What is measured.
    pub metric: Metric,
    /// How it is compared.
    pub limit: Limit,
    /// Of this cell only; else of the baseline (symptom) or of every candidate (criterion).
    pub cell: Option<String>,
}

/// How a value is compared.
#[derive(Debug, Clone, PartialEq)]
pub struct Limit {
    /// The comparison.
    pub op: Op,
    /// The number, in the metric's unit.
    pub value: f64,
    /// `value` times this cell's own value of the metric.
    pub times: Option<String>,
}

/// A comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    /// `<`
    Below,
    /// `<=`
    AtMost,
    /// `>`
    Above,
    /// `>=`
    AtLeast,
}

/// What the command line changes.
#[derive(Debug, Clone, Default)]
pub struct Overrides {
    /// `--set key=value`, in order.
    pub set: Vec<(String, String)>,
    /// `--designs a,b`.
    pub designs: Option<Vec<String>>,
    /// `--seed`.
    pub seed: Option<u64>,
    /// `--rounds`.
    pub rounds: Option<u32>,
}

impl Scenario {
    /// The cell of that label.
    #[must_use]
    pub fn cell(&self, label: &str) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.label == label)
    }
}

/// Durations stand in records as in scenarios: `67ms`.
fn as_text<S: serde::Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&value::duration_text(*duration))
}
