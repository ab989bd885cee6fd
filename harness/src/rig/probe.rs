//! A rig is ready when an event has gone through it end to end: committed as a row, published, confirmed, consumed.

use sqlx::Connection;

use super::{RigError, broker::Broker, endpoints::Endpoints, names, space::Separation, teardown};
use crate::scenario::{BrokerSettings, QueueKind};

/// Sends it, through a database or schema, exchange and queue of its own, which are gone after.
///
/// # Errors
/// What did not work. What was made is removed.
pub(crate) async fn send(endpoints: &Endpoints, space: Separation, run: &str) -> Result<(), RigError> {
    let name = names::probe(run);
    let sent = through(endpoints, space, &name).await;
    let left = teardown::remove(endpoints, std::slice::from_ref(&name)).await;
    sent?;
    if left.is_empty() { Ok(()) } else { Err(RigError::Left(left)) }
}

async fn through(endpoints: &Endpoints, space: Separation, name: &str) -> Result<(), RigError> {
    let body = commit(endpoints, space, name).await?;
    let settings =
        BrokerSettings { latency: std::time::Duration::ZERO, queue: QueueKind::Classic, max_length: 0 };
    let broker = Broker::connect(&endpoints.amqp).await?;
    broker.make(name, &settings).await?;
    broker.there_and_back(name, body.as_bytes()).await?;
    broker.close().await;
    Ok(())
}

/// Commits a row in a new database or schema and reads it back on another connection.
async fn commit(endpoints: &Endpoints, space: Separation, name: &str) -> Result<String, RigError> {
    space.make(endpoints, name).await?;
    let options = space.options(endpoints, name);
    let refused = || RigError::refused::<sqlx::Error>("commit a probe event");
    let mut writer = endpoints.connect_to(&options).await?;
    sqlx::raw_sql("CREATE TABLE probe (body text NOT NULL)").execute(&mut writer).await.map_err(refused())?;
    let mut transaction = writer.begin().await.map_err(refused())?;
    sqlx::query("INSERT INTO probe (body) VALUES ($1)")
        .bind(name)
        .execute(&mut *transaction)
        .await
        .map_err(refused())?;
    transaction.commit().await.map_err(refused())?;
    let mut reader = endpoints.connect_to(&options).await?;
    let body = sqlx::query_scalar("SELECT body FROM probe").fetch_one(&mut reader).await.map_err(refused())?;
    let _ = tokio::join!(writer.close(), reader.close());
    Ok(body)
}
