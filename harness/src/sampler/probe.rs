//! A connection that reads activity: one statement at a time, with a deadline, and made anew when it was lost.

use std::time::Duration;

use sqlx::{
    Connection, PgConnection, Postgres,
    postgres::{PgArguments, PgConnectOptions, PgRow},
    query::Query,
};
use tokio::time::{Instant, timeout};

/// Deadline of one statement. A tick takes about a millisecond; what takes this long is a server that stands still.
const STATEMENT_WITHIN: Duration = Duration::from_secs(2);

/// Deadline of a connection attempt. A server that has just been continued forks slowly.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// Pause between two attempts: a server that starts forks a backend for each.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// Why a read returned nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProbeError {
    /// No connection.
    #[error("no connection to the database within {} s", CONNECT_WITHIN.as_secs())]
    ConnectDeadline,
    /// No answer.
    #[error("the database did not answer within {} s", STATEMENT_WITHIN.as_secs())]
    StatementDeadline,
    /// The server said no, or the connection broke.
    #[error("{}", said(.0))]
    Database(#[from] sqlx::Error),
}

/// What the server said, without the line of its source code that the client library adds.
pub(crate) fn said(error: &sqlx::Error) -> String {
    error.as_database_error().map_or_else(|| error.to_string(), |refusal| refusal.message().to_owned())
}

/// One connection and the way back to it.
pub(crate) struct Probe {
    options: PgConnectOptions,
    connection: Option<PgConnection>,
    retry_at: Instant,
    connects: u64,
}

impl Probe {
    /// Connects. The server ends an abandoned statement by itself (`statement_timeout`).
    ///
    /// # Errors
    /// When the server cannot be reached in time or refuses. Nothing is left open.
    pub(crate) async fn connect(options: PgConnectOptions, name: &str) -> Result<Self, ProbeError> {
        let limit = STATEMENT_WITHIN.as_millis().to_string();
        let options = options.application_name(name).options([("statement_timeout", limit.as_str())]);
        let mut probe = Self { options, connection: None, retry_at: Instant::now(), connects: 0 };
        probe.connection().await?;
        Ok(probe)
    }

    /// Sends one autocommit statement and returns its rows, over a new connection when the last one was lost.
    ///
    /// # Errors
    /// When there is no connection or no answer in time. The connection is dropped then; the next call makes a new
    /// one. Dropping the future does the same.
    pub(crate) async fn rows(
        &mut self,
        query: Query<'_, Postgres, PgArguments>,
    ) -> Result<Vec<PgRow>, ProbeError> {
        self.connection().await?;
        // Taken out, so that an early end leaves no connection with half an answer in it.
        let Some(mut connection) = self.connection.take() else { return Err(ProbeError::ConnectDeadline) };
        let rows = timeout(STATEMENT_WITHIN, query.fetch_all(&mut connection))
            .await
            .map_err(|_| ProbeError::StatementDeadline)??;
        self.connection = Some(connection);
        Ok(rows)
    }

    /// The same for a statement without parameters over the simple protocol: values come as text, and the statement
    /// is exactly one transaction of the server's count (a prepared one is two the first time).
    ///
    /// # Errors
    /// As [`rows`](Self::rows).
    pub(crate) async fn text_rows(&mut self, sql: &'static str) -> Result<Vec<PgRow>, ProbeError> {
        self.connection().await?;
        let Some(mut connection) = self.connection.take() else { return Err(ProbeError::ConnectDeadline) };
        let rows = timeout(STATEMENT_WITHIN, sqlx::raw_sql(sql).fetch_all(&mut connection))
            .await
            .map_err(|_| ProbeError::StatementDeadline)??;
        self.connection = Some(connection);
        Ok(rows)
    }

    /// Connections made so far.
    pub(crate) fn connects(&self) -> u64 {
        self.connects
    }

    /// Says goodbye, so that the backend is gone when this returns or soon after.
    pub(crate) async fn close(mut self) {
        if let Some(connection) = self.connection.take() {
            // What cannot be told is dropped: the server sees the closed socket.
            let _ = timeout(Duration::from_millis(200), connection.close()).await;
        }
    }

    async fn connection(&mut self) -> Result<(), ProbeError> {
        if self.connection.is_some() {
            return Ok(());
        }
        tokio::time::sleep_until(self.retry_at).await;
        self.retry_at = Instant::now() + RETRY_PAUSE;
        let connection = timeout(CONNECT_WITHIN, PgConnection::connect_with(&self.options))
            .await
            .map_err(|_| ProbeError::ConnectDeadline)??;
        self.connection = Some(connection);
        self.connects += 1;
        Ok(())
    }
}
