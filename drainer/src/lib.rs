//! Carries events from a transactional outbox in PostgreSQL to RabbitMQ.
//!
//! A service inserts each event in the transaction that changes its business rows ([`enqueue`]); a [`Drainer`] carries
//! it to the broker afterwards. An event whose transaction committed is published at least once, one whose transaction
//! rolled back never. Consumers recognise repeats by `message_id`, which is the event's id.
//!
//! ```no_run
//! use std::{collections::BTreeMap, time::Duration};
//!
//! use drainer::{Broker, Config, Design, Drainer, Event, EventType};
//! use tokio_util::sync::CancellationToken;
//!
//! # async fn service() -> Result<(), Box<dyn std::error::Error>> {
//! let pool = sqlx::PgPool::connect("postgres://service:secret@localhost/appeals").await?;
//! drainer::migrate(&pool, Design::Lease).await?;
//!
//! // Settings come from DRAINER_* variables, or from the builder. They are valid, or an error says what to change.
//! let config = Config::builder().batch_size(200).lease_ttl(Duration::from_secs(30)).exchange("events").build()?;
//! let broker =
//!     Broker::new("amqp://service:secret@localhost/%2f", &config.session_name(), Duration::from_secs(10))?;
//! let drainer = Drainer::new(Design::Lease, pool.clone(), broker, config);
//! let stop = CancellationToken::new();
//! let draining = tokio::spawn({
//!     let stop = stop.clone();
//!     async move { drainer.run(stop).await }
//! });
//!
//! let mut tx = pool.begin().await?;
//! // ... the business rows, in the same transaction ...
//! let lodged = Event {
//!     id: uuid::Uuid::new_v4(),
//!     event_type: EventType::new("appeal.lodged")?,
//!     occurred_at: jiff::Timestamp::now(),
//!     key: Some("appeal-17".to_owned()),
//!     subject: None,
//!     headers: BTreeMap::new(),
//!     data: serde_json::value::to_raw_value(&serde_json::json!({ "appeal": 17 }))?,
//! };
//! drainer::enqueue(&mut tx, &lodged).await?;
//! tx.commit().await?;
//!
//! // At shutdown: what is in flight is finished, or given back within `stop_within`.
//! stop.cancel();
//! draining.await?;
//! # Ok(())
//! # }
//! ```
//!
//! Cargo features: `baseline` adds `Design::SingleTx`, the old design, which exists to be measured against.
//!
//! Every statement a drainer sends starts with a comment that names its phase (`/* drainer:claim */`), so that it can
//! be told from the service's own on a shared pool. [`process`] is a drainer that serves databases from a process of
//! its own.

pub mod broker;
pub mod broker_url;
pub mod config;
pub mod drainer;
pub mod envelope;
mod environment;
mod lease;
pub mod outbox;
pub mod pooler;
pub mod process;
pub mod publish;
mod query;
mod session;
#[cfg(feature = "baseline")]
mod single_tx;
pub mod tick;
mod tx;

pub use broker::Broker;
pub use broker_url::{BrokerUrl, BrokerUrlError};
pub use config::{Config, ConfigBuilder, ConfigError};
pub use drainer::{Design, DrainError, Drainer, ErrorClass};
pub use envelope::{Event, EventType, PUBLISH_ID_HEADER};
pub use outbox::{EnqueueError, MigrateError, Migrated, enqueue, enqueue_all, migrate, migrate_all};
pub use tick::{DrainStats, Observer, Tick};
