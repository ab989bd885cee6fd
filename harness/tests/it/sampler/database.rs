//! Databases and sessions for a test, on the rig that `make test` brings up.

use std::{
    future::Future,
    panic::AssertUnwindSafe,
    time::{Duration, Instant},
};

use futures_util::FutureExt as _;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, postgres::PgConnectOptions};

/// How long anything here may take to happen.
const WITHIN: Duration = Duration::from_secs(20);

/// A database of the test's own, and the way to it.
#[derive(Clone)]
pub(crate) struct Database {
    pub(crate) name: String,
    pub(crate) url: String,
    pub(crate) options: PgConnectOptions,
}

/// URL of the rig's PostgreSQL.
pub(crate) fn server_url() -> String {
    std::env::var("DRAINBENCH_DATABASE_URL")
        .expect("run `make test`, or `drainbench rig -- cargo nextest run`")
}

/// Runs a test in a fresh database, which is gone afterwards, also when the test fails.
pub(crate) fn with_database<F: Future<Output = ()>>(test: impl FnOnce(Database) -> F) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let name = format!("drainbench_test_{}", uuid::Uuid::new_v4().simple());
        let server: PgConnectOptions = server_url().parse().unwrap();
        let mut admin = PgConnection::connect_with(&server).await.unwrap();
        say(&mut admin, &format!("CREATE DATABASE {name}")).await;
        let database = Database {
            url: with_path(&server_url(), &name),
            options: server.database(&name),
            name: name.clone(),
        };
        let outcome = AssertUnwindSafe(test(database)).catch_unwind().await;
        say(&mut admin, &format!("DROP DATABASE {name} WITH (FORCE)")).await;
        if let Err(panic) = outcome {
            std::panic::resume_unwind(panic);
        }
    });
}

/// The URL with another database.
pub(crate) fn with_path(url: &str, database: &str) -> String {
    let (base, parameters) = url.split_once('?').map_or((url, ""), |(base, parameters)| (base, parameters));
    let (scheme, rest) = base.split_once("://").unwrap();
    let authority = rest.split('/').next().unwrap();
    format!("{scheme}://{authority}/{database}?{parameters}")
}

impl Database {
    /// A session of somebody.
    pub(crate) async fn session(&self, application: &str) -> Session {
        let options = self.options.clone().application_name(application);
        let mut connection = PgConnection::connect_with(&options).await.unwrap();
        let pid = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut connection).await.unwrap();
        Session { connection, pid }
    }

    /// Waits until the sampler's or another's session is in this database, and returns its backend.
    pub(crate) async fn backend_of(&self, application: &str) -> i32 {
        let mut other = self.session("test").await;
        let sql =
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = $1";
        until("its session", async || {
            sqlx::query_scalar(sql).bind(application).fetch_optional(&mut other.connection).await.unwrap()
        })
        .await
    }
}

/// One connection.
pub(crate) struct Session {
    pub(crate) connection: PgConnection,
    pub(crate) pid: i32,
}

impl Session {
    /// Sends text as it is, comments and all.
    pub(crate) async fn say(&mut self, sql: &str) {
        say(&mut self.connection, sql).await;
    }
}

async fn say(connection: &mut PgConnection, sql: &str) {
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(connection).await.unwrap();
}

/// Asks again until there is an answer.
pub(crate) async fn until<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + WITHIN;
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(Instant::now() < deadline, "waited {WITHIN:?} for {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Lets a sampler make some ticks.
pub(crate) async fn a_while() {
    tokio::time::sleep(Duration::from_millis(300)).await;
}
