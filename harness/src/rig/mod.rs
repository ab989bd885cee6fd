//! The world a run happens in: a PostgreSQL and a RabbitMQ that nothing outlives.

pub mod delay_line;

use std::{path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};
use sqlx::postgres::PgConnectOptions;

use crate::scenario::Cell;

/// Which rig is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum RigChoice {
    /// External if both URLs are set, else docker, else local.
    #[default]
    Auto,
    /// Private servers from installed binaries.
    Local,
    /// Containers.
    Docker,
    /// Servers that are there.
    External,
}

/// Which rig it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RigKind {
    /// Private servers from installed binaries.
    Local,
    /// Containers.
    Docker,
    /// Servers that are there.
    External,
}

/// What a rig is asked to be.
#[derive(Debug, Clone)]
pub struct RigRequest {
    /// Which.
    pub choice: RigChoice,
    /// Folder of PostgreSQL's server binaries, instead of looking for them.
    pub pg_bin: Option<PathBuf>,
    /// The `drainbench` binary, which is started again as the rig's guard.
    pub exe: PathBuf,
    /// `DRAINBENCH_DATABASE_URL`, `DRAINBENCH_AMQP_URL`, when set.
    pub external: (Option<String>, Option<String>),
}

/// What a report says of the rig. No secret is in it.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
pub struct RigFacts {
    /// Which it is.
    pub kind: RigKind,
    /// Why it was taken, and why others were not.
    pub why: Vec<String>,
    /// `server_version`.
    pub postgres_version: String,
    /// The broker's own word.
    pub rabbitmq_version: String,
    /// Settings that decide what is measured: fsync, synchronous_commit, full_page_writes, wal_level,
    /// shared_buffers, max_connections, commit_delay, commit_siblings.
    pub postgres_settings: std::collections::BTreeMap<String, String>,
    /// Seconds until ready.
    pub ready_seconds: f64,
}

/// Servers that are up and were proven with a probe event. [`close`](Self::close) is the normal end, `Drop` the net,
/// the guard what is left after a `kill -9`.
pub struct Rig {}

/// Why there is no rig.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct RigError(pub String);

impl Rig {
    /// Brings the servers up, or connects, and proves them with a probe event.
    ///
    /// # Errors
    /// What is missing and how to get it. Nothing is left running.
    pub async fn provision(request: &RigRequest) -> Result<Self, RigError> {
        let _ = request;
        todo!()
    }
    /// For the record.
    #[must_use]
    pub fn facts(&self) -> &RigFacts {
        todo!()
    }
    /// Short random name of this run, `[a-z0-9]{8}`.
    #[must_use]
    pub fn run(&self) -> &str {
        todo!()
    }
    /// Settings under which nothing measured would mean anything (fsync off, synchronous_commit off): one sentence each.
    #[must_use]
    pub fn invalid(&self) -> Vec<String> {
        todo!()
    }
    /// Connections that may be opened: `max_connections` minus reserved ones minus those in use by others.
    ///
    /// # Errors
    /// When the server does not answer.
    pub async fn free_connections(&self) -> Result<u32, RigError> {
        todo!()
    }
    /// Fresh databases, exchanges and queues for a cell, `drainbench_<run>_<cell>_<service>` each; `commit_delay`
    /// and `full_page_writes` are set after the migrations; then a CHECKPOINT. `cell_index` and `round` make the
    /// names unique. The migrations are the design's (`none` and `raw` get those of the lease design's base).
    ///
    /// # Errors
    /// What was made until then is removed.
    pub async fn world(&self, cell: &Cell, cell_index: usize, round: u32) -> Result<World, RigError> {
        let _ = (cell, cell_index, round);
        todo!()
    }
    /// Tells the guard of a child that must not outlive this process.
    pub fn guard_child(&self, pid: u32) {
        let _ = pid;
    }
    /// Stops what was started, removes what was made.
    ///
    /// # Errors
    /// What could not be removed, by name.
    pub async fn close(self) -> Result<(), RigError> {
        Ok(())
    }
}

/// The databases, exchanges and queues of one cell.
pub struct World {
    /// One for each service.
    pub services: Vec<ServiceWorld>,
    /// AMQP URL of the broker itself: for the sink and `raw` without latency. Never logged.
    pub broker: String,
    /// AMQP URL for drainers: through the delay line where the cell has latency.
    pub drainer_broker: String,
    /// The server's maintenance database, with the rights we have.
    pub admin: PgConnectOptions,
}

/// What one service works with.
#[derive(Debug, Clone)]
pub struct ServiceWorld {
    /// As in the plan, `svc07`.
    pub name: String,
    /// Its database (name, credentials, `search_path` where schemas are used). No application_name yet.
    pub database: PgConnectOptions,
    /// Name of its database, or of the common one where schemas are used.
    pub database_name: String,
    /// Its topic exchange.
    pub exchange: String,
    /// Its queue, bound with `#`.
    pub queue: String,
}

impl World {
    /// Names of all client connections that the broker has from drainers through the delay line; 0 when all are closed.
    #[must_use]
    pub fn drainer_connections(&self) -> usize {
        todo!()
    }
    /// Sets `commit_delay` and `full_page_writes` back, drops databases, exchanges and queues.
    ///
    /// # Errors
    /// What could not be removed, by name.
    pub async fn remove(self) -> Result<(), RigError> {
        Ok(())
    }
}

/// How long to wait for a server of ours to be ready.
pub const READY_WITHIN: Duration = Duration::from_secs(60);
