//! Settings of a drainer, valid by construction.

use std::{collections::BTreeMap, num::NonZeroU32, ops::RangeInclusive, time::Duration};

use uuid::Uuid;

use crate::environment::{self, Environment};

/// Bounds of the settings, each with its reason.
pub mod bound {
    use super::{Duration, RangeInclusive};

    /// Ids of a batch go to the server as one array and its payloads are in memory at once.
    pub const BATCH_SIZE: RangeInclusive<u32> = 1..=10_000;
    /// Connections of a drainer process to each database: it works on one at a time, and heartbeats on another.
    pub const POOL: RangeInclusive<u32> = 1..=100;
    /// More than a batch has no effect.
    pub const PIPELINE_DEPTH: RangeInclusive<u32> = 1..=10_000;
    /// A crash strands its claims for as long.
    pub const LEASE_TTL: RangeInclusive<Duration> = Duration::from_millis(300)..=Duration::from_hours(24);
    /// Zero would spin on an idle outbox.
    pub const POLL_INTERVAL: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_hours(1);
    /// Zero would fail before anything could answer.
    pub const DEADLINE: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_hours(1);
    /// `application_name` holds 63 bytes, of which `drainer:` takes 8.
    pub const ID_BYTES: RangeInclusive<usize> = 1..=55;
    /// An AMQP short string.
    pub const EXCHANGE_BYTES: RangeInclusive<usize> = 1..=255;
}

/// What one publish may take in the reference's rule for the lease.
const ASSUMED_PUBLISH: Duration = Duration::from_millis(100);
/// How many times a full pipeline must fit into the lease.
const LEASE_SAFETY: u32 = 3;

/// Valid settings. Built by [`Config::builder`] or [`Config::from_env`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    pub(crate) batch_size: NonZeroU32,
    pub(crate) pipeline_depth: NonZeroU32,
    pub(crate) lease_ttl: Duration,
    pub(crate) poll_interval: Duration,
    pub(crate) confirm_timeout: Duration,
    pub(crate) statement_timeout: Duration,
    pub(crate) stop_within: Duration,
    pub(crate) id: String,
    pub(crate) exchange: String,
}

/// What is wrong with a setting, and the way out.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigError {
    /// A value breaks its rule.
    #[error("{variable} is {value}: it must be {rule}; {way_out}")]
    Rule {
        /// The setting's variable, also when it was set by the builder.
        variable: String,
        /// What it was set to.
        value: String,
        /// What it must be.
        rule: String,
        /// What to do about it.
        way_out: &'static str,
    },
    /// A full pipeline would outlive the lease.
    #[error(
        "{lease_variable} is {} ms: it must be at least 3 x {depth_variable} x 100 ms = {} ms, so that a slow batch \
         does not outlive its own lease; raise {lease_variable} or lower {depth_variable} (now {depth}) to at most {}",
        .lease.as_millis(), .needed.as_millis(), .lease.as_millis() / 300
    )]
    LeaseTooShort {
        /// Variable of the lease.
        lease_variable: String,
        /// The lease.
        lease: Duration,
        /// Variable of the pipeline depth.
        depth_variable: String,
        /// The pipeline depth.
        depth: u32,
        /// The shortest lease that is valid.
        needed: Duration,
    },
    /// Two names of one setting disagree.
    #[error("{first} and {second} name one setting and differ ({values}); unset one of them")]
    Conflict {
        /// The one name.
        first: String,
        /// The other.
        second: String,
        /// Both values, or that they are hidden.
        values: String,
    },
    /// A setting without a default is not there.
    #[error("{variable} is not set; {way_out}")]
    Missing {
        /// Its variable.
        variable: String,
        /// What to set it to.
        way_out: &'static str,
    },
}

impl Config {
    /// Starts from the defaults: batches of 100, 32 publishes in flight, a lease of 30 s, a poll every 200 ms,
    /// 30 s for a confirm and for a statement, 15 s for a clean stop, the exchange `events`, and an id of host,
    /// pid and a random part.
    #[must_use]
    pub fn builder() -> ConfigBuilder {
        ConfigBuilder::default()
    }

    /// Settings from `DRAINER_*` or, under the reference's names, `CANOPY_MQ_DRAINER_*`: `BATCH_SIZE`,
    /// `PIPELINE_DEPTH`, `LEASE_TTL_SECS`, `POLL_INTERVAL_MS`, `CONFIRM_TIMEOUT_MS`, `STATEMENT_TIMEOUT_MS`,
    /// `STOP_WITHIN_MS`, `ID` and `EXCHANGE`. What is not set keeps its default.
    ///
    /// # Errors
    /// Names the variable, its value, the rule and the way out. Both names of a setting may be set only to the same
    /// value.
    pub fn from_env() -> Result<Self, ConfigError> {
        Self::from_environment(&Environment::of_process())
    }

    pub(crate) fn from_environment(env: &Environment) -> Result<Self, ConfigError> {
        let mut builder = Self::builder();
        builder.batch_size = env.number("BATCH_SIZE")?.unwrap_or(builder.batch_size);
        builder.pipeline_depth = env.number("PIPELINE_DEPTH")?.unwrap_or(builder.pipeline_depth);
        let seconds = env.number("LEASE_TTL_SECS")?.map(Duration::from_secs);
        builder.lease_ttl = seconds.unwrap_or(builder.lease_ttl);
        for (name, setting) in [
            ("POLL_INTERVAL_MS", &mut builder.poll_interval),
            ("CONFIRM_TIMEOUT_MS", &mut builder.confirm_timeout),
            ("STATEMENT_TIMEOUT_MS", &mut builder.statement_timeout),
            ("STOP_WITHIN_MS", &mut builder.stop_within),
        ] {
            *setting = env.number(name)?.map_or(*setting, Duration::from_millis);
        }
        builder.id = env.text("ID")?.or(builder.id);
        builder.exchange = env.text("EXCHANGE")?.unwrap_or(builder.exchange);
        builder.names = env.names();
        builder.build()
    }

    /// The shortest lease for a pipeline of that depth: three times what a full one may take.
    #[must_use]
    pub const fn shortest_lease(pipeline_depth: u32) -> Duration {
        ASSUMED_PUBLISH.saturating_mul(pipeline_depth).saturating_mul(LEASE_SAFETY)
    }

    /// Who claims.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Name under which the drainer is seen at both servers: `drainer:<id>`, at most 63 bytes.
    #[must_use]
    pub fn session_name(&self) -> String {
        format!("drainer:{}", self.id)
    }

    /// Deadline of one confirm.
    #[must_use]
    pub fn confirm_timeout(&self) -> Duration {
        self.confirm_timeout
    }
}

/// Collects settings; `build` proves them. Every setter takes plain numbers, so that a zero is an error with a
/// way out instead of a type puzzle at the caller's.
#[derive(Debug, Clone)]
pub struct ConfigBuilder {
    batch_size: u32,
    pipeline_depth: u32,
    lease_ttl: Duration,
    poll_interval: Duration,
    confirm_timeout: Duration,
    statement_timeout: Duration,
    stop_within: Duration,
    id: Option<String>,
    exchange: String,
    /// Under which variable a setting was found, by its name without a prefix.
    names: BTreeMap<&'static str, String>,
}

impl Default for ConfigBuilder {
    fn default() -> Self {
        Self {
            batch_size: 100,
            pipeline_depth: 32,
            lease_ttl: Duration::from_secs(30),
            poll_interval: Duration::from_millis(200),
            confirm_timeout: Duration::from_secs(30),
            statement_timeout: Duration::from_secs(30),
            stop_within: Duration::from_secs(15),
            id: None,
            exchange: "events".to_owned(),
            names: BTreeMap::new(),
        }
    }
}

impl ConfigBuilder {
    /// Rows of one tick, 1 to 10,000.
    #[must_use]
    pub fn batch_size(mut self, rows: u32) -> Self {
        self.batch_size = rows;
        self
    }

    /// Publishes in flight before the first confirm is awaited, 1 to 10,000.
    #[must_use]
    pub fn pipeline_depth(mut self, publishes: u32) -> Self {
        self.pipeline_depth = publishes;
        self
    }

    /// How long a claim holds: at least three times `pipeline_depth` x 100 ms, at most a day.
    #[must_use]
    pub fn lease_ttl(mut self, ttl: Duration) -> Self {
        self.lease_ttl = ttl;
        self
    }

    /// Pause after a tick that found less than a full batch, 1 ms to 1 h.
    #[must_use]
    pub fn poll_interval(mut self, pause: Duration) -> Self {
        self.poll_interval = pause;
        self
    }

    /// Deadline of one confirm, from its publish, 1 ms to 1 h.
    #[must_use]
    pub fn confirm_timeout(mut self, deadline: Duration) -> Self {
        self.confirm_timeout = deadline;
        self
    }

    /// Deadline of one statement and of the wait for a connection from the pool, 1 ms to 1 h.
    #[must_use]
    pub fn statement_timeout(mut self, deadline: Duration) -> Self {
        self.statement_timeout = deadline;
        self
    }

    /// How long a clean stop may take before what is held is released or left to its lease, 1 ms to 1 h.
    #[must_use]
    pub fn stop_within(mut self, deadline: Duration) -> Self {
        self.stop_within = deadline;
        self
    }

    /// Who claims, 1 to 55 bytes without control characters. Default: host, pid and a random part.
    ///
    /// A claim is recognised by this name alone (a weakness of the reference that is kept): two drainers of one
    /// name mark each other's rows.
    #[must_use]
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Exchange to publish to, 1 to 255 bytes. It must exist.
    #[must_use]
    pub fn exchange(mut self, exchange: impl Into<String>) -> Self {
        self.exchange = exchange.into();
        self
    }

    /// Proves the settings.
    ///
    /// # Errors
    /// The first rule that does not hold, with the way out.
    pub fn build(self) -> Result<Config, ConfigError> {
        let batch_size = self.count("BATCH_SIZE", self.batch_size, &bound::BATCH_SIZE)?;
        let pipeline_depth = self.count("PIPELINE_DEPTH", self.pipeline_depth, &bound::PIPELINE_DEPTH)?;
        self.time("LEASE_TTL_SECS", self.lease_ttl, &bound::LEASE_TTL)?;
        self.time("POLL_INTERVAL_MS", self.poll_interval, &bound::POLL_INTERVAL)?;
        self.time("CONFIRM_TIMEOUT_MS", self.confirm_timeout, &bound::DEADLINE)?;
        self.time("STATEMENT_TIMEOUT_MS", self.statement_timeout, &bound::DEADLINE)?;
        self.time("STOP_WITHIN_MS", self.stop_within, &bound::DEADLINE)?;
        self.text("EXCHANGE", &self.exchange, &bound::EXCHANGE_BYTES)?;
        self.lease_outlives_a_pipeline()?;
        let id = self.id.clone().unwrap_or_else(default_id);
        self.text("ID", &id, &bound::ID_BYTES)?;
        Ok(Config {
            batch_size,
            pipeline_depth,
            lease_ttl: self.lease_ttl,
            poll_interval: self.poll_interval,
            confirm_timeout: self.confirm_timeout,
            statement_timeout: self.statement_timeout,
            stop_within: self.stop_within,
            id,
            exchange: self.exchange,
        })
    }

    fn variable(&self, name: &'static str) -> String {
        self.names.get(name).cloned().unwrap_or_else(|| environment::variable(name))
    }

    fn count(
        &self,
        name: &'static str,
        value: u32,
        bound: &RangeInclusive<u32>,
    ) -> Result<NonZeroU32, ConfigError> {
        NonZeroU32::new(value).filter(|_| bound.contains(&value)).ok_or_else(|| ConfigError::Rule {
            variable: self.variable(name),
            value: value.to_string(),
            rule: format!("{} to {}", bound.start(), bound.end()),
            way_out: "set it within these bounds, or leave it out for the default",
        })
    }

    fn time(
        &self,
        name: &'static str,
        value: Duration,
        bound: &RangeInclusive<Duration>,
    ) -> Result<(), ConfigError> {
        if bound.contains(&value) {
            return Ok(());
        }
        Err(ConfigError::Rule {
            variable: self.variable(name),
            value: format!("{} ms", value.as_millis()),
            rule: format!("{} to {} ms", bound.start().as_millis(), bound.end().as_millis()),
            way_out: "set it within these bounds, or leave it out for the default",
        })
    }

    fn text(
        &self,
        name: &'static str,
        value: &str,
        bytes: &RangeInclusive<usize>,
    ) -> Result<(), ConfigError> {
        if bytes.contains(&value.len()) && !value.chars().any(char::is_control) {
            return Ok(());
        }
        Err(ConfigError::Rule {
            variable: self.variable(name),
            value: format!("{value:?} ({} bytes)", value.len()),
            rule: format!("{} to {} bytes without control characters", bytes.start(), bytes.end()),
            way_out: "choose another, or leave it out for the default",
        })
    }

    fn lease_outlives_a_pipeline(&self) -> Result<(), ConfigError> {
        let needed = Config::shortest_lease(self.pipeline_depth);
        if self.lease_ttl >= needed {
            return Ok(());
        }
        Err(ConfigError::LeaseTooShort {
            lease_variable: self.variable("LEASE_TTL_SECS"),
            lease: self.lease_ttl,
            depth_variable: self.variable("PIPELINE_DEPTH"),
            depth: self.pipeline_depth,
            needed,
        })
    }
}

/// Host, pid and a random part: unique without a registry, and a person finds the process by it.
fn default_id() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname")
        .ok()
        .or_else(|| std::env::var("HOSTNAME").ok())
        .unwrap_or_default();
    let host: String =
        host.trim().chars().filter(|c| c.is_ascii_alphanumeric() || "-._".contains(*c)).take(32).collect();
    let host = if host.is_empty() { "host" } else { &host };
    let random = Uuid::new_v4().simple().to_string();
    format!("{host}-{}-{}", std::process::id(), &random[..8])
}

#[cfg(test)]
mod tests;
