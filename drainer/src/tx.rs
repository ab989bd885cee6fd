//! A transaction whose every statement is tagged and which never outlives its value.
//!
//! The client library's own sends a bare COMMIT, and its BEGIN, when the future is dropped between sending and
//! answering, goes back to the pool open. Here the connection is closed unless COMMIT or ROLLBACK was answered.

use std::time::Duration;

use sqlx::PgPool;

use crate::{DrainError, query::query, session::Session};

/// An open transaction. Dropped, it closes its connection, and the server rolls back.
#[must_use = "dropped, it closes its connection"]
pub(crate) struct Tx(Session);

impl Tx {
    pub(crate) async fn begin(pool: &PgPool, deadline: Duration, sent: &mut u64) -> Result<Self, DrainError> {
        let mut session = Session::acquire(pool, "begin", deadline).await?;
        // Before BEGIN is sent: dropped while it is on its way, the transaction may be open at the server.
        session.set_open(true);
        session.execute("begin", query!("tx/begin"), sent).await?;
        Ok(Self(session))
    }

    /// To send statements in it.
    pub(crate) fn session(&mut self) -> &mut Session {
        &mut self.0
    }

    /// # Errors
    /// Whether it was committed is not known when the connection was lost or the deadline passed.
    pub(crate) async fn commit(self, sent: &mut u64) -> Result<(), DrainError> {
        self.end("commit", query!("tx/commit"), sent).await
    }

    /// # Errors
    /// Rolled back all the same: the connection is closed.
    #[cfg(feature = "baseline")]
    pub(crate) async fn rollback(self, sent: &mut u64) -> Result<(), DrainError> {
        self.end("rollback", query!("tx/rollback"), sent).await
    }

    async fn end(
        mut self,
        phase: &'static str,
        statement: &'static str,
        sent: &mut u64,
    ) -> Result<(), DrainError> {
        self.0.execute(phase, statement, sent).await?;
        self.0.set_open(false);
        Ok(())
    }
}
