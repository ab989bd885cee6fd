//! A rig is ready when an event has gone through it end to end: committed as a row, published, confirmed, consumed.

use sqlx::{AssertSqlSafe, Connection};

use super::{RigError, broker::Broker, endpoints::Endpoints, names, teardown};
use crate::scenario::{BrokerSettings, QueueKind};

/// Sends it, through a database, exchange and queue of its own, which are gone after.
///
/// # Errors
/// What did not work. What was made is removed.
pub(crate) async fn send(endpoints: &Endpoints, run: &str) -> Result<(), RigError> {
    let name = names::probe(run);
    let sent = through(endpoints, &name).await;
    let left = teardown::remove(endpoints, std::slice::from_ref(&name)).await;
    sent?;
    if left.is_empty() { Ok(()) } else { Err(RigError::Left(left)) }
}

async fn through(endpoints: &Endpoints, name: &str) -> Result<(), RigError> {
    let body = commit(endpoints, name).await?;
    let settings =
        BrokerSettings { latency: std::time::Duration::ZERO, queue: QueueKind::Classic, max_length: 0 };
    let broker = Broker::connect(&endpoints.amqp).await?;
    broker.make(name, &settings).await?;
    broker.there_and_back(name, body.as_bytes()).await?;
    broker.close().await;
    Ok(())
}

/// Commits a row in a new database and reads it back on another connection.
async fn commit(endpoints: &Endpoints, name: &str) -> Result<String, RigError> {
    create_database(endpoints, name).await?;
    let options = endpoints.database.clone().database(name);
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

/// Makes an empty database. Its template is the one that nobody can be connected to.
pub(crate) async fn create_database(endpoints: &Endpoints, name: &str) -> Result<(), RigError> {
    let mut connection = endpoints.connect().await?;
    sqlx::raw_sql(AssertSqlSafe(format!("CREATE DATABASE \"{name}\" TEMPLATE template0")))
        .execute(&mut connection)
        .await
        .map_err(RigError::refused(format!("create database {name}")))?;
    let _ = connection.close().await;
    Ok(())
}
