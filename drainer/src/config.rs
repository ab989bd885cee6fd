//! Settings of a drainer, valid by construction.

use std::{num::NonZeroU32, time::Duration};

/// Valid settings. Built by [`Config::builder`] or [`Config::from_env`].
#[derive(Debug, Clone)]
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

/// Collects settings; `build` proves them. Every setter takes plain numbers, so that a zero is an error with a
/// way out instead of a type puzzle at the caller's.
#[derive(Debug, Clone, Default)]
pub struct ConfigBuilder {}

/// What is wrong with a setting, and the way out.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(pub String);

impl Config {
    /// Starts from the defaults.
    #[must_use]
    pub fn builder() -> ConfigBuilder {
        ConfigBuilder::default()
    }
    /// Settings from `DRAINER_*` or `CANOPY_MQ_DRAINER_*`.
    ///
    /// # Errors
    /// Names the variable, its value, the rule and the way out.
    pub fn from_env() -> Result<Self, ConfigError> {
        todo!()
    }
}

impl ConfigBuilder {
    /// Rows of one tick.
    #[must_use]
    pub fn batch_size(self, rows: u32) -> Self {
        let _ = rows;
        self
    }
    /// Publishes in flight before the first confirm is awaited.
    #[must_use]
    pub fn pipeline_depth(self, publishes: u32) -> Self {
        let _ = publishes;
        self
    }
    /// How long a claim holds.
    #[must_use]
    pub fn lease_ttl(self, ttl: Duration) -> Self {
        let _ = ttl;
        self
    }
    /// Pause after a tick that found less than a full batch.
    #[must_use]
    pub fn poll_interval(self, pause: Duration) -> Self {
        let _ = pause;
        self
    }
    /// Deadline of one confirm.
    #[must_use]
    pub fn confirm_timeout(self, deadline: Duration) -> Self {
        let _ = deadline;
        self
    }
    /// Deadline of one statement.
    #[must_use]
    pub fn statement_timeout(self, deadline: Duration) -> Self {
        let _ = deadline;
        self
    }
    /// How long a clean stop may take before what is held is released or left to its lease.
    #[must_use]
    pub fn stop_within(self, deadline: Duration) -> Self {
        let _ = deadline;
        self
    }
    /// Who claims. Default: host, pid and a random part.
    #[must_use]
    pub fn id(self, id: impl Into<String>) -> Self {
        let _ = id.into();
        self
    }
    /// Exchange to publish to.
    #[must_use]
    pub fn exchange(self, exchange: impl Into<String>) -> Self {
        let _ = exchange.into();
        self
    }
    /// Proves the settings.
    ///
    /// # Errors
    /// The first rule that does not hold, with the way out.
    pub fn build(self) -> Result<Config, ConfigError> {
        todo!()
    }
}
