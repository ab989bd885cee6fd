//! The old design: one transaction from the read through every publish to the marks.
//!
//! Kept to be measured against; do not improve it. It holds a connection, its row locks and a snapshot horizon for
//! as long as the broker takes for the whole batch, one confirm after the other.

use lapin::Channel;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    DrainError, Drainer, ErrorClass, Tick,
    publish::{Claimed, PublishError, publish},
    query::query,
    tick::{count, micros},
    tx::Tx,
};

/// One tick. `cut` ends it early by rolling back.
///
/// # Errors
/// Everything is rolled back: rows are as before, and what was confirmed in this tick is published again. Only when
/// the answer to COMMIT was lost may it have been committed.
pub(crate) async fn tick(
    drainer: &Drainer,
    cut: &CancellationToken,
    tick: &mut Tick,
) -> Result<(), DrainError> {
    let started = Instant::now();
    let mut tx = Tx::begin(&drainer.pool, drainer.config.statement_timeout, &mut tick.statements).await?;
    let rows = lock(drainer, &mut tx, tick).await?;
    tick.claim_us = Some(micros(started.elapsed()));
    if rows.is_empty() {
        return tx.commit(&mut tick.statements).await;
    }
    let published = tokio::select! {
        biased;
        done = publish_all(drainer, &mut tx, &rows, tick) => done,
        () = cut.cancelled() => Err(DrainError::CutShort),
    };
    if let Err(error) = published {
        // When the rollback fails as well, the connection is closed, which rolls back too; the first error counts.
        let _ = tx.rollback(&mut tick.statements).await;
        return Err(error);
    }
    let started = Instant::now();
    tx.commit(&mut tick.statements).await?;
    tick.add_mark(started.elapsed());
    Ok(())
}

/// Locks a batch, oldest first.
async fn lock(drainer: &Drainer, tx: &mut Tx, tick: &mut Tick) -> Result<Vec<Claimed>, DrainError> {
    let statement = sqlx::query(query!("single_tx/claim")).bind(i64::from(drainer.config.batch_size.get()));
    let rows = tx.session().fetch_all("claim", statement, &mut tick.statements).await?;
    let rows: Result<Vec<Claimed>, sqlx::Error> = rows.iter().map(Claimed::try_from).collect();
    let rows = rows.map_err(|source| DrainError::Database { phase: "claim", source })?;
    tick.stats.claimed = count(rows.len());
    Ok(rows)
}

/// Publishes row by row: each is confirmed and marked before the next is sent.
async fn publish_all(
    drainer: &Drainer,
    tx: &mut Tx,
    rows: &[Claimed],
    tick: &mut Tick,
) -> Result<(), DrainError> {
    let channel = drainer.broker.kept_channel().await?;
    for row in rows {
        match publish_one(drainer, &channel, row, tick).await {
            Ok(()) => mark_published(tx, row, tick).await?,
            Err(error) => match error.class() {
                ErrorClass::Event => mark_failed(tx, row, &error, tick).await?,
                ErrorClass::Infrastructure => {
                    drainer.broker.forget().await;
                    return Err(DrainError::Lost {
                        address: drainer.broker.address(),
                        reason: error.reason(),
                    });
                }
            },
        }
    }
    Ok(())
}

async fn publish_one(
    drainer: &Drainer,
    channel: &Channel,
    row: &Claimed,
    tick: &mut Tick,
) -> Result<(), PublishError> {
    let config = &drainer.config;
    let took = publish(channel, &config.exchange, row, config.confirm_timeout).await?.confirmed().await?;
    tick.confirm_us.push(micros(took));
    Ok(())
}

/// Marks one row in the transaction.
async fn mark_published(tx: &mut Tx, row: &Claimed, tick: &mut Tick) -> Result<(), DrainError> {
    let started = Instant::now();
    let statement = sqlx::query(query!("single_tx/mark_published")).bind(row.id);
    tx.session().execute("mark", statement, &mut tick.statements).await?;
    tick.add_mark(started.elapsed());
    tick.stats.confirmed += 1;
    Ok(())
}

async fn mark_failed(
    tx: &mut Tx,
    row: &Claimed,
    error: &PublishError,
    tick: &mut Tick,
) -> Result<(), DrainError> {
    let started = Instant::now();
    let statement = sqlx::query(query!("single_tx/mark_failed")).bind(row.id).bind(error.reason());
    tx.session().execute("mark", statement, &mut tick.statements).await?;
    tick.add_mark(started.elapsed());
    tick.stats.failed += 1;
    Ok(())
}
