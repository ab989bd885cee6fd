//! The outbox table: its migrations, and how a service puts an event in.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use crate::{
    Design, DrainError, Event,
    query::{body, query},
    session::Session,
    tx::Tx,
};

/// Why an event was not enqueued.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EnqueueError {
    /// A field is too short or too long. Nothing was sent to the database.
    #[error("{field} has {bytes} bytes; it must have {rule}")]
    Length {
        /// Which.
        field: &'static str,
        /// How many it has.
        bytes: usize,
        /// How many it may have.
        rule: &'static str,
    },
    /// A header has the name of the publish's own id. Nothing was sent to the database.
    #[error(
        "a header is called {}, which each publish sets itself; choose another name",
        crate::PUBLISH_ID_HEADER
    )]
    ReservedHeader,
    /// A text holds NUL. Nothing was sent to the database.
    #[error("the event holds a NUL character, which PostgreSQL cannot store; leave it out or encode it")]
    Nul,
    /// The INSERT failed. The caller's transaction is aborted by PostgreSQL, as after any failed statement.
    #[error("the event was not inserted: {0}")]
    Database(#[from] sqlx::Error),
}

/// Why a migration failed.
#[derive(Debug, thiserror::Error)]
#[error("migration {step} failed and was rolled back: {reason}")]
pub struct MigrateError {
    step: &'static str,
    reason: DrainError,
}

impl MigrateError {
    /// The step that failed; those before it are applied.
    #[must_use]
    pub fn step(&self) -> &str {
        self.step
    }
}

/// What a migration did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Migrated {
    /// Names of the steps that were applied now; empty when all were there.
    pub applied: Vec<String>,
}

/// One step: a file under `migrations/`.
struct Step {
    name: &'static str,
    sql: &'static str,
}

macro_rules! step {
    ($name:literal) => {
        Step { name: $name, sql: const { body(include_str!(concat!("../migrations/", $name, ".sql"))) } }
    };
}

const BASE: Step = step!("base/0001_event_outbox");
const CLAIMS: Step = step!("lease/0001_claims");

/// Building the lease index over a large backlog takes a while; a lock that is not granted is given up much sooner.
const STEP_WITHIN: Duration = Duration::from_mins(10);
/// Events of one INSERT: enough that round trips don't count, and a message to the server stays bounded.
const EVENTS_AT_ONCE: usize = 1_000;
/// A look at a database that is there takes milliseconds.
const PROBE_WITHIN: Duration = Duration::from_secs(5);
/// Databases migrated at the same time.
const MIGRATIONS_AT_ONCE: usize = 8;

fn steps(design: Design) -> &'static [Step] {
    match design {
        #[cfg(feature = "baseline")]
        Design::SingleTx => &[BASE],
        Design::Lease => &[BASE, CLAIMS],
    }
}

/// Brings one database to what `design` has in production. Forward only, safe to call from several processes at once.
/// Tables land in the first schema of the connection's `search_path`.
///
/// The journal is a table of its own, `event_outbox_migrations`. The client library's migrator could be given another
/// table name, but it refuses to run beside steps it does not know (a service may be ahead of this crate or behind
/// it), does not tell what it applied, and returns its connection with the session's advisory lock held when a step
/// fails.
///
/// # Errors
/// A step that fails is rolled back whole; earlier steps stay. A lock that is not granted within 5 s fails a step, so
/// that those who write the outbox don't queue behind it: try again when no long transaction is open.
pub async fn migrate(pool: &PgPool, design: Design) -> Result<Migrated, MigrateError> {
    let mut applied = Vec::new();
    for step in steps(design) {
        let new = apply(pool, step).await.map_err(|reason| MigrateError { step: step.name, reason })?;
        applied.extend(new.then(|| step.name.to_owned()));
    }
    Ok(Migrated { applied })
}

/// Applies `step` unless it is in the journal; true when it was applied now.
async fn apply(pool: &PgPool, step: &Step) -> Result<bool, DrainError> {
    const PHASE: &str = "migrate";
    let sent = &mut 0;
    let mut tx = Tx::begin(pool, STEP_WITHIN, sent).await?;
    let session = tx.session();
    session.execute(PHASE, query!("migrate/lock"), sent).await?;
    session.execute(PHASE, query!("migrate/bound_lock_wait"), sent).await?;
    session.execute(PHASE, query!("migrate/journal"), sent).await?;
    let record = sqlx::query(query!("migrate/record")).bind(step.name);
    let new = session.execute(PHASE, record, sent).await?.rows_affected() == 1;
    if new {
        session.execute(PHASE, step.sql, sent).await?;
    }
    tx.commit(sent).await?;
    Ok(new)
}

/// [`migrate`] for many databases, at most eight at a time. Each is reported on its own, in the order given: one that
/// fails does not stop the others.
pub async fn migrate_all(
    databases: &[(String, PgPool)],
    design: Design,
) -> Vec<(String, Result<Migrated, MigrateError>)> {
    let one = |(name, pool): (String, PgPool)| async move { (name, migrate(&pool, design).await) };
    stream::iter(databases.to_vec()).map(one).buffered(MIGRATIONS_AT_ONCE).collect().await
}

/// Inserts `event` in the caller's open transaction (pass `&mut *tx`).
///
/// # Errors
/// What cannot be stored or published is refused before anything is sent, and the transaction goes on. When the
/// INSERT fails, the caller's transaction is aborted by PostgreSQL, as after any failed statement.
pub async fn enqueue(conn: &mut PgConnection, event: &Event) -> Result<(), EnqueueError> {
    let json = event.to_json();
    event.check(&json)?;
    sqlx::query(query!("outbox/enqueue")).bind(event.id).bind(json).execute(conn).await?;
    Ok(())
}

/// [`enqueue`] for many events, 1,000 a statement.
///
/// # Errors
/// As [`enqueue`]; an event that is refused is found before anything is sent. In the transaction all are inserted or
/// none, once the caller rolls back.
pub async fn enqueue_all(conn: &mut PgConnection, events: &[Event]) -> Result<(), EnqueueError> {
    let mut rows = Vec::with_capacity(events.len());
    for event in events {
        let json = event.to_json();
        event.check(&json)?;
        rows.push((event.id, json));
    }
    for some in rows.chunks(EVENTS_AT_ONCE) {
        let (ids, envelopes): (Vec<Uuid>, Vec<&str>) =
            some.iter().map(|(id, json)| (*id, json.as_str())).unzip();
        sqlx::query(query!("outbox/enqueue_all")).bind(ids).bind(envelopes).execute(&mut *conn).await?;
    }
    Ok(())
}

/// Whether the outbox that `design` needs is there.
///
/// # Errors
/// When the database does not answer.
pub(crate) async fn is_migrated(pool: &PgPool, design: Design) -> Result<bool, DrainError> {
    const UNDEFINED_TABLE: &str = "42P01";
    const UNDEFINED_COLUMN: &str = "42703";
    let statement = match design {
        #[cfg(feature = "baseline")]
        Design::SingleTx => query!("single_tx/probe"),
        Design::Lease => query!("lease/probe"),
    };
    let mut session = Session::acquire(pool, "probe", PROBE_WITHIN).await?;
    match session.execute("probe", statement, &mut 0).await {
        Ok(_) => Ok(true),
        Err(DrainError::Database { source: sqlx::Error::Database(error), .. })
            if [UNDEFINED_TABLE, UNDEFINED_COLUMN].map(Some).contains(&error.code().as_deref()) =>
        {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}
