//! The candidate: claim in one statement, publish outside any transaction, mark in short statements.
//!
//! Faithful to the reference, with its weaknesses: a claim is recognised by the drainer's name alone, `attempts` is
//! counted and never read, a lost connection counts as an attempt of every row that was not confirmed, a chunk waits
//! for its slowest confirm, and a failed mark forgets what was confirmed. Ours are the deadlines, and that a tick
//! which is cut short (a deadline, a stop) marks what it knows and releases the rest.

use std::{collections::HashSet, time::Duration};

use futures_util::{StreamExt, stream::FuturesUnordered};
use lapin::Channel;
use sqlx::{Row as _, postgres::PgRow};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{
    DrainError, Drainer, Tick,
    publish::{Claimed, InFlight, PublishError, publish},
    query::query,
    session::Session,
    tick::{count, micros},
};

/// One tick. `cut` ends the publishing early: what was confirmed is marked, the rest released.
///
/// # Errors
/// A failed claim leaves nothing claimed, or claims that lapse with the lease when only its answer was lost. A failed
/// mark or release leaves the rest of the batch claimed until the lease lapses. In every other case no claim is left.
pub(crate) async fn tick(
    drainer: &Drainer,
    cut: &CancellationToken,
    tick: &mut Tick,
) -> Result<(), DrainError> {
    let rows = claim(drainer, tick).await?;
    if rows.is_empty() {
        return Ok(());
    }
    let mut progress = Progress::default();
    let published = tokio::select! {
        biased;
        done = publish_all(drainer, &rows, &mut progress) => done,
        () = cut.cancelled() => Err(DrainError::CutShort),
    };
    tick.confirm_us.extend(progress.confirmed.iter().map(|(_, took)| micros(*took)));
    mark_published(drainer, &progress, tick).await?;
    mark_failed(drainer, &progress, tick).await?;
    release(drainer, &progress.unsettled(&rows), tick).await?;
    published
}

/// What became of the rows so far. Kept outside the publishing, which may be cut.
#[derive(Default)]
struct Progress {
    confirmed: Vec<(Uuid, Duration)>,
    failed: Vec<(Uuid, String)>,
    /// The broker did not answer in time: nothing more is published.
    silent: bool,
}

impl Progress {
    fn settle(&mut self, id: Uuid, outcome: Result<Duration, PublishError>) {
        match outcome {
            Ok(took) => self.confirmed.push((id, took)),
            Err(error) => {
                self.silent |= matches!(error, PublishError::Deadline(_));
                self.failed.push((id, error.reason()));
            }
        }
    }

    fn unsettled(&self, rows: &[Claimed]) -> Vec<Uuid> {
        let confirmed = self.confirmed.iter().map(|(id, _)| id);
        let settled: HashSet<&Uuid> = confirmed.chain(self.failed.iter().map(|(id, _)| id)).collect();
        rows.iter().map(|row| row.id).filter(|id| !settled.contains(id)).collect()
    }
}

/// Claims a batch, oldest first.
async fn claim(drainer: &Drainer, tick: &mut Tick) -> Result<Vec<Claimed>, DrainError> {
    let config = &drainer.config;
    let started = Instant::now();
    let mut session = Session::acquire(&drainer.pool, "claim", config.statement_timeout).await?;
    let statement = sqlx::query(query!("lease/claim"))
        .bind(&config.id)
        .bind(config.lease_ttl.as_secs_f64())
        .bind(i64::from(config.batch_size.get()));
    let mut rows = session.fetch_all("claim", statement, &mut tick.statements).await?;
    tick.claim_us = Some(micros(started.elapsed()));
    let database = |source| DrainError::Database { phase: "claim", source };
    rows.sort_by_cached_key(|row: &PgRow| row.try_get::<i64, _>("enqueued_us").unwrap_or(i64::MAX));
    let rows: Vec<Claimed> =
        rows.iter().map(Claimed::try_from).collect::<Result<_, _>>().map_err(database)?;
    tick.stats.claimed = count(rows.len());
    Ok(rows)
}

/// Publishes the batch on a channel of its own, `pipeline_depth` at a time.
async fn publish_all(drainer: &Drainer, rows: &[Claimed], progress: &mut Progress) -> Result<(), DrainError> {
    let channel = drainer.broker.channel().await?;
    for chunk in rows.chunks(drainer.chunk()) {
        publish_chunk(drainer, &channel, chunk, progress).await;
        if progress.silent {
            // What is still to come would wait as long again for nothing. Not in the reference, which waits for ever.
            drainer.broker.forget().await;
            return Err(drainer.silent_broker());
        }
    }
    Ok(())
}

async fn publish_chunk(drainer: &Drainer, channel: &Channel, chunk: &[Claimed], progress: &mut Progress) {
    let config = &drainer.config;
    let in_flight = FuturesUnordered::new();
    for row in chunk {
        match publish(channel, &config.exchange, row, config.confirm_timeout).await {
            Ok(publish) => in_flight.push(settled(publish)),
            Err(error) => progress.settle(row.id, Err(error)),
        }
        if progress.silent {
            break;
        }
    }
    let mut in_flight = in_flight;
    while let Some((id, outcome)) = in_flight.next().await {
        progress.settle(id, outcome);
    }
}

async fn settled(publish: InFlight) -> (Uuid, Result<Duration, PublishError>) {
    (publish.id, publish.confirmed().await)
}

async fn mark_published(drainer: &Drainer, progress: &Progress, tick: &mut Tick) -> Result<(), DrainError> {
    let ids: Vec<Uuid> = progress.confirmed.iter().map(|(id, _)| *id).collect();
    tick.stats.confirmed = count(ids.len());
    if ids.is_empty() {
        return Ok(());
    }
    let statement = sqlx::query(query!("lease/mark_published")).bind(&drainer.config.id).bind(&ids);
    mark(drainer, ids.len(), statement, tick).await
}

async fn mark_failed(drainer: &Drainer, progress: &Progress, tick: &mut Tick) -> Result<(), DrainError> {
    let (ids, reasons): (Vec<Uuid>, Vec<String>) = progress.failed.iter().cloned().unzip();
    tick.stats.failed = count(ids.len());
    if ids.is_empty() {
        return Ok(());
    }
    let statement =
        sqlx::query(query!("lease/mark_failed")).bind(&drainer.config.id).bind(&ids).bind(&reasons);
    mark(drainer, ids.len(), statement, tick).await
}

type Statement<'a> = sqlx::query::Query<'a, sqlx::Postgres, sqlx::postgres::PgArguments>;

/// Sends one mark of `rows` rows, and counts those that were not ours any more.
async fn mark(
    drainer: &Drainer,
    rows: usize,
    statement: Statement<'_>,
    tick: &mut Tick,
) -> Result<(), DrainError> {
    let started = Instant::now();
    let mut session = Session::acquire(&drainer.pool, "mark", drainer.config.statement_timeout).await?;
    let marked = session.execute("mark", statement, &mut tick.statements).await?.rows_affected();
    tick.add_mark(started.elapsed());
    tick.lost_leases += count(rows).saturating_sub(marked);
    Ok(())
}

/// Gives `ids` back without blame.
async fn release(drainer: &Drainer, ids: &[Uuid], tick: &mut Tick) -> Result<(), DrainError> {
    if ids.is_empty() {
        return Ok(());
    }
    let mut session = Session::acquire(&drainer.pool, "release", drainer.config.statement_timeout).await?;
    let statement = sqlx::query(query!("lease/release")).bind(&drainer.config.id).bind(ids);
    let released = session.execute("release", statement, &mut tick.statements).await?.rows_affected();
    tick.released = released;
    tick.lost_leases += count(ids.len()).saturating_sub(released);
    Ok(())
}
