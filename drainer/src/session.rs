//! A pool connection that never goes back with something open on it.

use std::time::Duration;

use sqlx::{
    Execute, Executor, PgPool, Postgres,
    pool::PoolConnection,
    postgres::{PgQueryResult, PgRow},
};
use tokio::time::timeout;

use crate::DrainError;

/// One connection, each statement on it bounded and counted.
///
/// Dropped while a statement is running (a deadline, a dropped future) or a [`Tx`](crate::tx::Tx) is open, it is
/// closed instead of going back: the service's next user would wait for our statement, or work in our transaction.
pub(crate) struct Session {
    conn: PoolConnection<Postgres>,
    open: bool,
    deadline: Duration,
}

impl Session {
    /// `phase` is what the connection is for; `deadline` bounds the wait for it and each statement on it.
    pub(crate) async fn acquire(
        pool: &PgPool,
        phase: &'static str,
        deadline: Duration,
    ) -> Result<Self, DrainError> {
        match timeout(deadline, pool.acquire()).await {
            Ok(Ok(conn)) => Ok(Self { conn, open: false, deadline }),
            Ok(Err(source)) => Err(DrainError::Database { phase, source }),
            Err(_) => Err(DrainError::DatabaseDeadline { phase, deadline }),
        }
    }

    /// From now on it is closed when dropped; see [`Tx`](crate::tx::Tx).
    pub(crate) fn set_open(&mut self, open: bool) {
        self.open = open;
    }

    /// Sends one statement for its effect.
    pub(crate) async fn execute<'q, E>(
        &mut self,
        phase: &'static str,
        statement: E,
        sent: &mut u64,
    ) -> Result<PgQueryResult, DrainError>
    where
        E: Execute<'q, Postgres> + Send + 'q,
    {
        let was_open = self.start(sent);
        let answer = timeout(self.deadline, self.conn.execute(statement)).await;
        self.finish(phase, was_open, answer)
    }

    /// Sends one statement for its rows.
    pub(crate) async fn fetch_all<'q, E>(
        &mut self,
        phase: &'static str,
        statement: E,
        sent: &mut u64,
    ) -> Result<Vec<PgRow>, DrainError>
    where
        E: Execute<'q, Postgres> + Send + 'q,
    {
        let was_open = self.start(sent);
        let answer = timeout(self.deadline, self.conn.fetch_all(statement)).await;
        self.finish(phase, was_open, answer)
    }

    fn start(&mut self, sent: &mut u64) -> bool {
        *sent += 1;
        std::mem::replace(&mut self.open, true)
    }

    fn finish<T>(
        &mut self,
        phase: &'static str,
        was_open: bool,
        answer: Result<Result<T, sqlx::Error>, tokio::time::error::Elapsed>,
    ) -> Result<T, DrainError> {
        match answer {
            Ok(Ok(value)) => {
                self.open = was_open;
                Ok(value)
            }
            Ok(Err(source)) => {
                // An error the server reported ends the statement and leaves the connection in step; any other
                // (a cut socket, a broken protocol) leaves it in an unknown state.
                let in_step = matches!(source, sqlx::Error::Database(_));
                self.open = was_open || !in_step;
                Err(DrainError::Database { phase, source })
            }
            Err(_) => Err(DrainError::DatabaseDeadline { phase, deadline: self.deadline }),
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.open {
            self.conn.close_on_drop();
        }
    }
}
