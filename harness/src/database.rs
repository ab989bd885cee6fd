//! Counters of the database over a cell: WAL, commits, dead tuples, HOT updates, sizes.
//!
//! They are the server's own, so what else works in the cell's databases is in them: autovacuum visits each new
//! database soon and commits two to four times there. Our own commits are counted and taken off, exactly.

use std::{collections::BTreeSet, time::Duration};

use futures_util::{StreamExt, TryStreamExt, stream};
use sqlx::postgres::{PgConnectOptions, PgRow};
use tokio::{task::JoinHandle, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    history::DatabaseUse,
    sampler::{
        activity::{bytes, number, statement},
        pace::Pace,
        probe::{Probe, ProbeError},
    },
};

/// `application_name` of the inspector's sessions; the sampler leaves them out.
pub const APPLICATION_NAME: &str = "drainbench-inspector";

/// How long the end waits for other sessions to go and for counters to stand still.
const SETTLED_WITHIN: Duration = Duration::from_secs(5);

/// How long the start waits for them: a migration's session that has just been closed hands in its commits late.
const QUIET_WITHIN: Duration = Duration::from_secs(1);

/// Pause between two looks at them.
const SETTLE_PAUSE: Duration = Duration::from_millis(50);

/// Why there is no inspector.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the counters of database `{database}`: {reason}")]
pub struct InspectorError {
    /// Which database.
    pub database: String,
    /// What the server or the connection said.
    pub reason: String,
}

/// Reads counters from outside, over one connection to each service's database and one to the maintenance database.
/// Each service is read once a second, evenly spread, so that the reads never come in a burst.
pub struct Inspector {
    admin: Probe,
    databases: Vec<String>,
    run: Option<String>,
    before: Server,
    /// Our own instrument's statements are in the count, so it would say nothing.
    commits_are_mixed: bool,
    stop: CancellationToken,
    task: Option<JoinHandle<Services>>,
}

/// Counters of the server and the cell's databases.
#[derive(Debug, Clone, Copy, Default)]
struct Server {
    wal: Option<u64>,
    commits: Option<u64>,
}

/// Counters of one outbox.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Outbox {
    dead: Option<u64>,
    updates: Option<u64>,
    hot_updates: Option<u64>,
}

/// The connections to the services' databases, and what was read over them.
struct Services {
    services: Vec<Service>,
    dead_peak: Option<u64>,
}

struct Service {
    probe: Probe,
    before: Outbox,
    last: Outbox,
    statements: u64,
}

impl Inspector {
    /// Begins to count. `services` are the services' databases, `admin` the maintenance database. Call it before the
    /// cell's pools are opened: a session hands in its commits late, and those of before would be counted as the cell's.
    /// Uses one connection more than there are services. Where services share a database with others, `run` tells its
    /// sessions from theirs: it is part of their `application_name`.
    ///
    /// # Errors
    /// When a database cannot be read. Nothing is left open.
    pub async fn start(
        services: &[PgConnectOptions],
        admin: &PgConnectOptions,
        run: Option<&str>,
    ) -> Result<Self, InspectorError> {
        let names: BTreeSet<String> = services.iter().map(database_of).collect();
        let failed = |database: String| {
            move |error: ProbeError| InspectorError { database, reason: error.to_string() }
        };
        let opened = Probe::connect(admin.clone(), APPLICATION_NAME).await;
        let mut admin_probe = opened.map_err(failed(database_of(admin)))?;
        let databases: Vec<String> = names.iter().cloned().collect();
        let wal = wal(&mut admin_probe).await;
        // Before our own connections: each counts as a commit, and the end takes off what we made since here.
        let look = Look { databases: &databases, run };
        let commits = settle(&mut admin_probe, look, None, QUIET_WITHIN).await;
        let before = Server { wal: wal.ok(), commits: commits.map_err(failed(database_of(admin)))? };
        let services: Vec<Service> = stream::iter(services.iter().cloned())
            .map(|options| async move {
                let database = database_of(&options);
                Service::open(options).await.map_err(failed(database))
            })
            .buffered(8)
            .try_collect()
            .await?;
        let stop = CancellationToken::new();
        let watch = Services { services, dead_peak: None }.watch(stop.clone());
        Ok(Self {
            commits_are_mixed: names.contains(&database_of(admin)),
            admin: admin_probe,
            databases,
            run: run.map(str::to_owned),
            before,
            stop,
            task: Some(tokio::spawn(watch)),
        })
    }

    /// Ends counting; `others` of the commits are the instrument's too. The cell's pools must be closed: a session hands
    /// in its last counters when it ends. Waits at most five seconds for sessions that are not ours to go; what could
    /// not be read is `None`.
    pub async fn finish(mut self, others: u64) -> DatabaseUse {
        let wal_after = wal(&mut self.admin).await.ok();
        self.stop.cancel();
        let services = match self.task.take() {
            Some(task) => task.await.ok(),
            None => None,
        };
        let look = Look { databases: &self.databases, run: self.run.as_deref() };
        let _ = settle(&mut self.admin, look, Some(APPLICATION_NAME), SETTLED_WITHIN).await;
        let mut used =
            DatabaseUse { wal_bytes: difference(self.before.wal, wal_after), ..DatabaseUse::default() };
        if let Some(services) = services {
            let own = services.finish(&mut used).await;
            let after = settle(&mut self.admin, look, None, SETTLED_WITHIN).await.ok().flatten();
            let commits = difference(self.before.commits, after);
            used.commits = commits
                .filter(|_| !self.commits_are_mixed)
                .map(|commits| commits.saturating_sub(own + others));
        }
        used
    }
}

impl Drop for Inspector {
    fn drop(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }
}

impl Services {
    async fn watch(mut self, stop: CancellationToken) -> Self {
        let Ok(count) = u32::try_from(self.services.len()) else { return self };
        let mut pace = Pace::new(std::time::Instant::now(), count);
        // `count` reads a second, one of each service: place after place.
        for place in (0..self.services.len()).cycle() {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = tokio::time::sleep_until(pace.due().into()) => {}
            }
            // Not broken off: half a statement is half a commit in the count, and it has a deadline.
            self.services[place].read().await;
            self.peak();
            pace.advance(std::time::Instant::now());
        }
        self
    }

    fn peak(&mut self) {
        let sum = self.services.iter().map(|service| service.last.dead).sum::<Option<u64>>();
        self.dead_peak = self.dead_peak.max(sum);
    }

    /// Last reading. Returns how many commits were our own, and closes.
    async fn finish(mut self, used: &mut DatabaseUse) -> u64 {
        let mut own = 0;
        for service in &mut self.services {
            service.read().await;
            service.sizes(used).await;
        }
        self.peak();
        used.dead_tuples_peak = self.dead_peak;
        let sum = |of: fn(&Outbox) -> Option<u64>| {
            self.services.iter().map(|service| difference(of(&service.before), of(&service.last))).sum()
        };
        used.updates = sum(|outbox| outbox.updates);
        used.hot_updates = sum(|outbox| outbox.hot_updates);
        for service in self.services {
            // The start of a session is a transaction of its own.
            own += service.statements + service.probe.connects();
            service.probe.close().await;
        }
        own
    }
}

impl Service {
    async fn open(options: PgConnectOptions) -> Result<Self, ProbeError> {
        let probe = Probe::connect(options, APPLICATION_NAME).await?;
        let mut service = Self { probe, before: Outbox::default(), last: Outbox::default(), statements: 0 };
        service.try_read().await?;
        service.before = service.last;
        Ok(service)
    }

    /// Reads the counters; a failure leaves the last ones.
    async fn read(&mut self) {
        let _ = self.try_read().await;
    }

    async fn try_read(&mut self) -> Result<(), ProbeError> {
        let rows = self.probe.text_rows(statement(include_str!("database/outbox.sql"))).await?;
        self.statements += 1;
        if let Some(row) = rows.first() {
            self.last = Outbox {
                dead: text_number(row, 0),
                updates: text_number(row, 1),
                hot_updates: text_number(row, 2),
            };
        }
        Ok(())
    }

    async fn sizes(&mut self, used: &mut DatabaseUse) {
        let Ok(rows) = self.probe.text_rows(statement(include_str!("database/relations.sql"))).await else {
            return;
        };
        self.statements += 1;
        for row in &rows {
            let name = bytes(row, 0).unwrap_or_default();
            if let Some(size) = text_number(row, 1) {
                *used.relation_bytes.entry(String::from_utf8_lossy(name).into_owned()).or_default() += size;
            }
        }
    }
}

/// WAL written since the server was made, bytes. What is still in its buffers counts.
async fn wal(admin: &mut Probe) -> Result<u64, ProbeError> {
    let rows = admin.text_rows("SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint").await?;
    rows.first().and_then(|row| text_number(row, 0)).ok_or(ProbeError::Database(sqlx::Error::RowNotFound))
}

/// Whose sessions are looked at.
#[derive(Clone, Copy)]
struct Look<'a> {
    databases: &'a [String],
    run: Option<&'a str>,
}

/// Waits until no session but those named `but` is left in the databases and the commits stand still. Returns them as they are then,
/// or when the time is up.
async fn settle(
    admin: &mut Probe,
    look: Look<'_>,
    but: Option<&str>,
    within: Duration,
) -> Result<Option<u64>, ProbeError> {
    let deadline = Instant::now() + within;
    let mut last = None;
    loop {
        let (now, others) = commits(admin, look, but).await?;
        if (others == 0 && last == Some(now)) || Instant::now() >= deadline {
            return Ok(now);
        }
        last = Some(now);
        tokio::time::sleep(SETTLE_PAUSE).await;
    }
}

/// Commits of the databases, and sessions in them but this one and those named `but`.
async fn commits(
    admin: &mut Probe,
    look: Look<'_>,
    but: Option<&str>,
) -> Result<(Option<u64>, i64), ProbeError> {
    let query = sqlx::query(statement(include_str!("database/commits.sql")));
    let rows = admin.rows(query.bind(look.databases).bind(but).bind(look.run)).await?;
    let Some(row) = rows.first() else { return Err(ProbeError::Database(sqlx::Error::RowNotFound)) };
    let value = |column| Ok::<_, ProbeError>(number(bytes(row, column)?).map(i64::from_be_bytes));
    Ok((value(0)?.and_then(|commits| u64::try_from(commits).ok()), value(1)?.unwrap_or(0)))
}

/// What was added between two readings; `None` when one is missing or the server forgot its counters (it does after a
/// crash).
fn difference(before: Option<u64>, after: Option<u64>) -> Option<u64> {
    after?.checked_sub(before?)
}

/// A number that came as text; `None` for NULL.
fn text_number(row: &PgRow, column: usize) -> Option<u64> {
    std::str::from_utf8(bytes(row, column).ok()?).ok()?.parse().ok()
}

/// Name of the database that options lead to.
fn database_of(options: &PgConnectOptions) -> String {
    options.get_database().unwrap_or_else(|| options.get_username()).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_that_were_forgotten_give_nothing() {
        assert_eq!(difference(Some(5), Some(7)), Some(2));
        assert_eq!(difference(Some(7), Some(5)), None);
        assert_eq!(difference(None, Some(5)), None);
    }

    #[test]
    fn a_database_is_named_or_named_after_its_role() {
        let options = PgConnectOptions::new_without_pgpass().username("canopy");
        assert_eq!(database_of(&options.clone().database("svc07")), "svc07");
        assert_eq!(
            database_of(&PgConnectOptions::new_without_pgpass().username("canopy")).as_str(),
            "canopy"
        );
    }
}
