//! The world a run happens in: a PostgreSQL and a RabbitMQ that nothing outlives.

mod binaries;
mod broker;
mod containers;
mod docker;
mod endpoints;
mod engine;
mod folder;
pub mod guard;
pub mod link;
mod links;
mod names;
mod postgres;
mod probe;
mod process;
mod provision;
mod rabbitmq;
mod run_lock;
mod secret;
mod server;
mod space;
pub mod survey;
mod sweep;
mod teardown;
mod vitals;
mod world;

use std::{collections::BTreeMap, env::VarError, fmt, path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};
use sqlx::Connection;

pub use containers::{Containers, Cpus, ImageName, Memory, Unfit};
pub(crate) use endpoints::without_brackets;
pub use links::Links;
pub use space::Separation;
pub use vitals::Vitals;
pub use world::{ServiceWorld, World};

use self::{endpoints::Endpoints, guard::Guard, process::Process, run_lock::RunLock, teardown::Held};
use crate::{exit::Exit, scenario::Cell};

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

impl fmt::Display for RigKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Local => "local",
            Self::Docker => "docker",
            Self::External => "external",
        })
    }
}

/// What a rig is asked to be.
#[derive(Clone)]
pub struct RigRequest {
    /// Which.
    pub choice: RigChoice,
    /// Folder of PostgreSQL's server binaries, instead of looking for them.
    pub pg_bin: Option<PathBuf>,
    /// The `drainbench` binary, which is started again as the rig's guard.
    pub exe: PathBuf,
    /// `DRAINBENCH_DATABASE_URL`, `DRAINBENCH_AMQP_URL`, when set.
    pub external: (Option<String>, Option<String>),
    /// What servers in containers are to be made of.
    pub wishes: Wishes,
}

/// Who wishes what of servers in containers.
#[derive(Debug, Clone, Default)]
pub struct Wishes {
    /// The command line; goes before all.
    pub arguments: Containers,
    /// The environment; it is also `docker compose`'s.
    pub environment: Containers,
    /// The scenario.
    pub scenario: Containers,
}

impl Wishes {
    /// What holds.
    fn all(&self) -> Containers {
        self.arguments.clone().or(self.environment.clone()).or(self.scenario.clone())
    }

    /// What was asked of this run. A variable may be set for somebody else.
    fn asked(&self) -> Containers {
        self.arguments.clone().or(self.scenario.clone())
    }
}

impl RigRequest {
    /// With the URLs of the environment, and this binary (or `DRAINBENCH_EXE`, for programs that are not `drainbench`)
    /// as the guard.
    ///
    /// # Errors
    /// When the binary's own path is unknown, or a variable says what cannot be.
    pub fn from_env(choice: RigChoice, pg_bin: Option<PathBuf>) -> Result<Self, RigError> {
        let set = |name: &str| match std::env::var(name) {
            Ok(value) => Ok(Some(value).filter(|value| !value.is_empty())),
            Err(VarError::NotPresent) => Ok(None),
            Err(VarError::NotUnicode(_)) => Err(RigError::Misconfigured {
                what: format!("{name} is not UTF-8"),
                way_out: "Percent-encode what is special in it".to_owned(),
            }),
        };
        let exe = match std::env::var_os("DRAINBENCH_EXE").filter(|value| !value.is_empty()) {
            Some(exe) => exe.into(),
            None => std::env::current_exe().map_err(RigError::refused("find its own binary"))?,
        };
        let image = |name: &str| -> Result<Option<ImageName>, RigError> {
            let Some(value) = set(name)? else { return Ok(None) };
            value.parse().map(Some).map_err(|unfit: Unfit| RigError::Misconfigured {
                what: format!("{name} is {value:?} and {}", unfit.rule),
                way_out: "Write it as postgres:17 or registry/name:tag".to_owned(),
            })
        };
        let [postgres_image, rabbitmq_image] = containers::IMAGE_VARIABLES.map(image);
        let environment = Containers {
            postgres_image: postgres_image?,
            rabbitmq_image: rabbitmq_image?,
            ..Containers::default()
        };
        let wishes = Wishes { environment, ..Wishes::default() };
        Ok(Self { choice, pg_bin, exe, external: (set(DATABASE_URL)?, set(AMQP_URL)?), wishes })
    }
}

impl fmt::Debug for RigRequest {
    /// Without the URLs: they hold passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RigRequest")
            .field("choice", &self.choice)
            .field("pg_bin", &self.pg_bin)
            .field("exe", &self.exe)
            .field("wishes", &self.wishes)
            .finish_non_exhaustive()
    }
}

/// The external rig's database. Never one of the common names: somebody's shell exports those.
pub const DATABASE_URL: &str = "DRAINBENCH_DATABASE_URL";

/// The external rig's broker.
pub const AMQP_URL: &str = "DRAINBENCH_AMQP_URL";

/// What a report says of the rig. No secret is in it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct RigFacts {
    /// Which it is.
    pub kind: RigKind,
    /// Why it was taken, why others were not, and what can't be done or seen on it.
    pub why: Vec<String>,
    /// What keeps services apart.
    #[serde(default)]
    pub separation: Separation,
    /// `server_version`.
    pub postgres_version: String,
    /// The broker's own word.
    pub rabbitmq_version: String,
    /// Settings that decide what is measured: fsync, synchronous_commit, full_page_writes, wal_level,
    /// shared_buffers, max_connections, commit_delay, commit_siblings.
    pub postgres_settings: BTreeMap<String, String>,
    /// What the servers run in, where that is containers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub containers: Option<ContainerFacts>,
    /// Seconds until ready.
    pub ready_seconds: f64,
}

/// What a report says of servers in containers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ContainerFacts {
    /// `Docker 28.2.2`
    pub engine: String,
    /// Name of PostgreSQL's image.
    pub postgres_image: ImageName,
    /// What that name meant, `sha256:...`.
    pub postgres_image_id: String,
    /// Name of RabbitMQ's image.
    pub rabbitmq_image: ImageName,
    /// What that name meant, `sha256:...`.
    pub rabbitmq_image_id: String,
    /// CPUs that each server might use; none: all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<Cpus>,
    /// Memory that each server might use, bytes; none: all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<Memory>,
}

/// One of a rig's servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerKind {
    /// The database.
    PostgreSql,
    /// The broker.
    RabbitMq,
}

impl fmt::Display for ServerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PostgreSql => "PostgreSQL",
            Self::RabbitMq => "RabbitMQ",
        })
    }
}

/// Why there is no rig, or why it can't do something.
#[derive(Debug, thiserror::Error)]
pub enum RigError {
    /// Something has to be installed or set first.
    #[error("{what}. {way_out}.")]
    Missing {
        /// What is missing or wrong.
        what: String,
        /// How to get it.
        way_out: String,
    },
    /// A variable says what cannot be.
    #[error("{what}. {way_out}.")]
    Misconfigured {
        /// What is wrong with which.
        what: String,
        /// What to write instead.
        way_out: String,
    },
    /// A server that is to be there does not answer, or does not let us in.
    #[error(
        "{server} at {at} can't be used: {reason}. Start it, or correct {} (the password is not shown here).",
        match server { ServerKind::PostgreSql => DATABASE_URL, ServerKind::RabbitMq => AMQP_URL }
    )]
    Unreachable {
        /// Which.
        server: ServerKind,
        /// Host and port.
        at: String,
        /// Its word or ours.
        reason: String,
    },
    /// A server of ours did not start.
    #[error(
        "{server} did not start: {reason}.{}",
        if log.is_empty() { String::new() } else { format!(" The end of its log:\n{log}") }
    )]
    NotStarted {
        /// Which.
        server: ServerKind,
        /// What happened.
        reason: String,
        /// Last lines of its log.
        log: String,
    },
    /// A server, or the machine, said no.
    #[error("the rig could not {doing}: {reason}")]
    Refused {
        /// What was tried.
        doing: String,
        /// The answer.
        reason: String,
    },
    /// A setting that is not ours to change on servers that are somebody's.
    #[error(
        "cell {cell} sets {setting}, which the whole server would feel: that is for rigs of our own. Take `--rig local`, \
         or set it on the server yourself and run again."
    )]
    OwnRigsOnly {
        /// Label of the cell.
        cell: String,
        /// Setting and value.
        setting: String,
    },
    /// What could not be removed, by name.
    #[error("left behind, please remove by hand: {}", .0.join("; "))]
    Left(Vec<String>),
}

impl RigError {
    /// The code to end with.
    #[must_use]
    pub const fn exit(&self) -> Exit {
        match self {
            Self::Misconfigured { .. } => Exit::Usage,
            Self::Missing { .. }
            | Self::Unreachable { .. }
            | Self::NotStarted { .. }
            | Self::Refused { .. }
            | Self::OwnRigsOnly { .. }
            | Self::Left(_) => Exit::Environment,
        }
    }

    /// Makes an error out of somebody's no.
    pub(crate) fn refused<E: fmt::Display>(doing: impl Into<String>) -> impl FnOnce(E) -> Self {
        let doing = doing.into();
        move |reason| Self::Refused { doing, reason: reason.to_string() }
    }
}

/// Servers that are up and were proven with a probe event. [`close`](Self::close) is the normal end, `Drop` the net (it
/// blocks until everything is gone), the guard what is left after a `kill -9`.
#[must_use = "its servers end when it is dropped"]
pub struct Rig {
    facts: RigFacts,
    run: String,
    endpoints: Endpoints,
    /// Whether a CHECKPOINT is allowed.
    checkpoints: bool,
    // Ended by the guard, which outlives the fields above and below.
    guard: Guard,
    _lock: Option<RunLock>,
    _servers: Option<provision::Servers>,
}

impl Rig {
    /// Brings the servers up, or connects, and proves them with a probe event. `say` is told what takes long (an image
    /// that is pulled), a line at a time.
    ///
    /// # Errors
    /// What is missing and how to get it. Nothing is left running.
    pub async fn provision(request: &RigRequest, say: &(dyn Fn(&str) + Sync)) -> Result<Self, RigError> {
        Box::pin(provision::provision(request, say)).await
    }

    /// For the record.
    #[must_use]
    pub fn facts(&self) -> &RigFacts {
        &self.facts
    }

    /// Short random name of this run, `[a-z0-9]{8}`.
    #[must_use]
    pub fn run(&self) -> &str {
        &self.run
    }

    /// Settings under which nothing measured would mean anything (fsync off, synchronous_commit off): one sentence each.
    #[must_use]
    pub fn invalid(&self) -> Vec<String> {
        ["fsync", "synchronous_commit"]
            .into_iter()
            .filter(|name| self.facts.postgres_settings.get(*name).is_some_and(|value| value == "off"))
            .map(|name| {
                format!(
                    "PostgreSQL runs with {name} = off: a commit does not wait for the disk there, so that no time \
                     measured on it means anything. Set {name} = on."
                )
            })
            .collect()
    }

    /// What must not change under a cell: see [`Vitals::changes`].
    ///
    /// # Errors
    /// When the server does not answer.
    pub async fn vitals(&self) -> Result<Vitals, RigError> {
        Vitals::read(&self.endpoints).await
    }

    /// Connections that may be opened: `max_connections` minus reserved ones minus those in use by others, or what the
    /// limits of the role and of the database leave, whichever is least.
    ///
    /// # Errors
    /// When the server does not answer.
    pub async fn free_connections(&self) -> Result<u32, RigError> {
        // Our own connection here is closed before anybody else opens one.
        const SQL: &str = "SELECT least(current_setting('max_connections')::int8 \
                           - current_setting('superuser_reserved_connections')::int8 \
                           - coalesce(current_setting('reserved_connections', true), '0')::int8 \
                           - (SELECT coalesce(sum(numbackends), 0)::int8 FROM pg_stat_database), \
                           (SELECT nullif(rolconnlimit, -1) - (SELECT count(*) FROM pg_stat_activity \
                           WHERE usesysid = own.oid) FROM pg_roles AS own WHERE rolname = current_user), \
                           (SELECT nullif(datconnlimit, -1) - (SELECT numbackends FROM pg_stat_database AS stats \
                           WHERE stats.datid = own.oid) FROM pg_database AS own \
                           WHERE datname = current_database() AND $1)) + 1";
        let mut connection = self.endpoints.connect().await?;
        let free: i64 = sqlx::query_scalar(SQL)
            .bind(self.facts.separation == Separation::Schemas)
            .fetch_one(&mut connection)
            .await
            .map_err(RigError::refused("count free connections"))?;
        let _ = connection.close().await;
        Ok(u32::try_from(free.max(0)).unwrap_or(u32::MAX))
    }

    /// Fresh databases, exchanges and queues for a cell, `drainbench_<run>_<cell>_<service>` each; `commit_delay`
    /// and `full_page_writes` are set after the migrations; then a CHECKPOINT. `cell_index` and `round` make the
    /// names unique. The migrations are the design's; `none` and `raw` get the base alone.
    ///
    /// # Errors
    /// What was made until then is removed.
    pub async fn world(&self, cell: &Cell, cell_index: usize, round: u32) -> Result<World, RigError> {
        world::make(self, cell, cell_index, round).await
    }

    /// Tells the guard of a child that must not outlive this process.
    pub fn guard_child(&self, pid: u32) {
        // One that has ended already needs no guard.
        if let Some(process) = Process::of(pid) {
            self.guard.hold(Held::Child(process));
        }
    }

    /// URLs of both servers, under the names an external rig reads them from. Secret.
    #[must_use]
    pub fn environment(&self) -> [(&'static str, String); 2] {
        [
            (DATABASE_URL, self.endpoints.database_url.clone()),
            (AMQP_URL, self.endpoints.amqp.0.as_str().to_owned()),
        ]
    }

    /// Stops what was started, removes what was made.
    ///
    /// # Errors
    /// What could not be removed, by name.
    pub async fn close(self) -> Result<(), RigError> {
        self.guard.finish().await
    }

    /// Whether its servers are ours, so that their settings are as well.
    pub(crate) fn is_ours(&self) -> bool {
        match self.facts.kind {
            RigKind::Local | RigKind::Docker => true,
            RigKind::External => false,
        }
    }
}

/// How long to wait for a server of ours to be ready.
pub const READY_WITHIN: Duration = Duration::from_secs(60);
