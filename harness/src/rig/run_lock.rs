//! An advisory lock that says that a run lives, for whoever sweeps the server later.

use std::time::Duration;

use sqlx::{Connection, PgConnection};
use tokio::task::JoinHandle;

use super::{RigError, endpoints::Endpoints, sweep::lock_number};

/// How often the connection is used: firewalls forget idle ones, and a lock that is lost must be taken again.
const EVERY: Duration = Duration::from_secs(20);

/// Held while it lives.
pub(crate) struct RunLock(JoinHandle<()>);

impl RunLock {
    /// Takes it.
    pub(crate) async fn take(endpoints: &Endpoints, run: &str) -> Result<Self, RigError> {
        let number = lock_number(run);
        let connection = lock(endpoints, number).await?;
        Ok(Self(tokio::spawn(keep(endpoints.clone(), number, connection))))
    }
}

impl Drop for RunLock {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn lock(endpoints: &Endpoints, number: i64) -> Result<PgConnection, RigError> {
    let mut connection = endpoints.connect().await?;
    sqlx::query("SELECT pg_advisory_lock($1)")
        .bind(number)
        .execute(&mut connection)
        .await
        .map_err(RigError::refused("take the run's advisory lock"))?;
    Ok(connection)
}

async fn keep(endpoints: Endpoints, number: i64, mut connection: PgConnection) {
    loop {
        tokio::time::sleep(EVERY).await;
        if connection.ping().await.is_err() {
            // The server may be away, on purpose even; as long as it is nobody can sweep it either.
            if let Ok(again) = lock(&endpoints, number).await {
                connection = again;
            }
        }
    }
}
