//! The outbox table: its migrations, and how a service puts an event in.

use sqlx::{PgConnection, PgPool};

use crate::{Design, Event};

/// Why an event was not enqueued.
#[derive(Debug, thiserror::Error)]
#[error("placeholder")]
pub struct EnqueueError {}

/// Why a migration failed.
#[derive(Debug, thiserror::Error)]
#[error("placeholder")]
pub struct MigrateError {}

/// What a migration did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Migrated {
    /// Names of the steps that were applied now; empty when all were there.
    pub applied: Vec<String>,
}

/// Brings one database to what `design` has in production. Forward only, safe to call from several processes at once.
///
/// # Errors
/// A step that fails is rolled back whole; earlier steps stay.
pub async fn migrate(pool: &PgPool, design: Design) -> Result<Migrated, MigrateError> {
    let _ = (pool, design);
    todo!()
}

/// [`migrate`] for many databases, each reported on its own: one that fails does not stop the others.
pub async fn migrate_all(
    databases: &[(String, PgPool)],
    design: Design,
) -> Vec<(String, Result<Migrated, MigrateError>)> {
    let _ = (databases, design);
    todo!()
}

/// Inserts `event` in the caller's open transaction (pass `&mut *tx`).
///
/// # Errors
/// The caller's transaction is aborted by PostgreSQL, as after any failed statement.
pub async fn enqueue(conn: &mut PgConnection, event: &Event) -> Result<(), EnqueueError> {
    let _ = (conn, event);
    todo!()
}
