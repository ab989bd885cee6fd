//! Carries events from a transactional outbox in PostgreSQL to RabbitMQ.

pub mod broker;
pub mod config;
pub mod drainer;
pub mod envelope;
pub mod outbox;
pub mod process;

pub use broker::Broker;
pub use config::{Config, ConfigBuilder, ConfigError};
pub use drainer::{Design, DrainError, DrainStats, Drainer, ErrorClass, Observer, Tick};
pub use envelope::{Event, EventType};
pub use outbox::{EnqueueError, MigrateError, Migrated, enqueue, migrate, migrate_all};
