//! Where a service's tables are: a database of its own or, where our role may not make any, a schema.

use std::{future::Future, time::Duration};

use serde::{Deserialize, Serialize};
use sqlx::{AssertSqlSafe, Connection, PgConnection, postgres::PgConnectOptions};
use tokio::time::Instant;

use super::{RigError, endpoints::Endpoints, names, teardown::DROP_WITHIN};

/// What keeps services apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Separation {
    /// Each has a database, as services do.
    #[default]
    Databases,
    /// Each has a schema of the database that the URL names, which may hold other things.
    Schemas,
}

/// What our role may do on a server that is somebody's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rights {
    createdb: bool,
    create_schema: bool,
    /// A CHECKPOINT.
    pub(crate) checkpoint: bool,
    /// What sessions of other roles do.
    pub(crate) read_all_stats: bool,
    /// `server_version_num`.
    version: i32,
}

/// How long one answer may take. A database is a copy of files, and a disk may be slow.
const ANSWERS_WITHIN: Duration = Duration::from_secs(60);

/// Oldest server whose statements ours are.
const MIN_VERSION: i32 = 140_000;

impl Rights {
    /// Asks. The role pg_checkpoint came with 15.
    pub(crate) async fn read(connection: &mut PgConnection) -> Result<Self, RigError> {
        const SQL: &str = "SELECT rolcreatedb OR rolsuper, \
                           has_database_privilege(current_database(), 'CREATE'), \
                           rolsuper OR EXISTS (SELECT 1 FROM pg_roles AS given WHERE given.rolname = 'pg_checkpoint' \
                           AND pg_has_role(given.oid, 'USAGE')), \
                           pg_has_role('pg_read_all_stats', 'USAGE'), \
                           current_setting('server_version_num')::int4 \
                           FROM pg_roles WHERE rolname = current_user";
        let asked = async {
            sqlx::query_as(SQL).fetch_one(connection).await.map_err(RigError::refused("ask for its rights"))
        };
        let (createdb, create_schema, checkpoint, read_all_stats, version) =
            in_time("ask for its rights", asked).await?;
        Ok(Self { createdb, create_schema, checkpoint, read_all_stats, version })
    }

    /// How services can be kept apart.
    ///
    /// # Errors
    /// When they can't, or the server is too old.
    pub(crate) fn separation(self) -> Result<Separation, RigError> {
        if self.version < MIN_VERSION {
            return Err(RigError::Missing {
                what: format!("PostgreSQL {} is too old: 14 or newer is needed", self.version / 10_000),
                way_out: "Use a newer server, or --rig local".to_owned(),
            });
        }
        match (self.createdb, self.create_schema) {
            (true, _) => Ok(Separation::Databases),
            (false, true) => Ok(Separation::Schemas),
            (false, false) => Err(RigError::Missing {
                what: "The role of DRAINBENCH_DATABASE_URL may make neither databases nor schemas in the database that \
                       the URL names, and each service needs one"
                    .to_owned(),
                way_out: "Give it one of both (ALTER ROLE ... CREATEDB; GRANT CREATE ON DATABASE ... TO ...), or use \
                          --rig local"
                    .to_owned(),
            }),
        }
    }
}

impl Separation {
    /// The way into the space called `name`.
    pub(crate) fn options(self, endpoints: &Endpoints, name: &str) -> PgConnectOptions {
        let options = endpoints.database.clone();
        match self {
            Self::Databases => options.database(name),
            Self::Schemas => options.options([("search_path", name)]),
        }
    }

    /// The database that the space called `name` is in.
    pub(crate) fn database(self, endpoints: &Endpoints, name: &str) -> String {
        let common =
            || endpoints.database.get_database().unwrap_or(endpoints.database.get_username()).to_owned();
        match self {
            Self::Databases => name.to_owned(),
            Self::Schemas => common(),
        }
    }

    /// Makes an empty one. A database's template is the one that nobody can be connected to.
    pub(crate) async fn make(self, endpoints: &Endpoints, name: &str) -> Result<(), RigError> {
        let (what, statement) = match self {
            Self::Databases => ("database", format!("CREATE DATABASE \"{name}\" TEMPLATE template0")),
            Self::Schemas => ("schema", format!("CREATE SCHEMA \"{name}\"")),
        };
        let doing = format!("create {what} {name}");
        let made = async {
            let mut connection = endpoints.connect().await?;
            let refused = RigError::refused(doing.clone());
            sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut connection).await.map_err(refused)?;
            let _ = connection.close().await;
            Ok(())
        };
        in_time(&doing, made).await
    }
}

/// All databases, and schemas of this one, that are called like ours and that we may drop: another role's would resist
/// until the deadline, each of them.
pub(crate) async fn all(connection: &mut PgConnection) -> Result<Vec<String>, RigError> {
    const SQL: &str = "SELECT datname::text FROM pg_database WHERE NOT datistemplate AND pg_has_role(datdba, 'USAGE') \
                       UNION SELECT nspname::text FROM pg_namespace WHERE pg_has_role(nspowner, 'USAGE')";
    let doing = "list databases and schemas";
    let asked =
        async { sqlx::query_scalar(SQL).fetch_all(connection).await.map_err(RigError::refused(doing)) };
    let all: Vec<String> = in_time(doing, asked).await?;
    Ok(all.into_iter().filter(|name| names::run_of(name).is_some()).collect())
}

/// Drops the space called `name`, whichever it is, and throws out who works in it. What is not there is no error. Another
/// cleaner may be at it: then it is tried again.
pub(crate) async fn drop(endpoints: &Endpoints, name: &str) -> Result<(), RigError> {
    let deadline = Instant::now() + DROP_WITHIN;
    loop {
        match in_time("drop it", try_drop(endpoints, name)).await {
            Ok(()) => return Ok(()),
            Err(error) if Instant::now() >= deadline => return Err(error),
            Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
        }
    }
}

/// A server that stands still must not hold us for ever.
async fn in_time<T>(doing: &str, answer: impl Future<Output = Result<T, RigError>>) -> Result<T, RigError> {
    match tokio::time::timeout(ANSWERS_WITHIN, answer).await {
        Ok(answer) => answer,
        Err(_) => Err(RigError::refused(doing)(format!("no answer within {} s", ANSWERS_WITHIN.as_secs()))),
    }
}

async fn try_drop(endpoints: &Endpoints, name: &str) -> Result<(), RigError> {
    // Whoever of ours holds a lock on something in the schema: a drainer that was cut off. Autovacuum gives way by itself.
    const THROW_OUT: &str = "SELECT pg_terminate_backend(pid) FROM (SELECT DISTINCT held.pid FROM pg_locks AS held \
                             JOIN pg_class AS relation ON relation.oid = held.relation \
                             JOIN pg_namespace AS space ON space.oid = relation.relnamespace \
                             JOIN pg_stat_activity AS session ON session.pid = held.pid \
                             WHERE space.nspname = $1 AND held.pid <> pg_backend_pid() \
                             AND session.usename = current_user AND session.datname = current_database()) AS holders";
    let refused = || RigError::refused::<sqlx::Error>("drop it");
    let mut connection = endpoints.connect().await?;
    let statement = format!("DROP DATABASE IF EXISTS \"{name}\" WITH (FORCE)");
    sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut connection).await.map_err(refused())?;
    sqlx::query(THROW_OUT).bind(name).execute(&mut connection).await.map_err(refused())?;
    let statement = format!("SET LOCAL lock_timeout = '2s'; DROP SCHEMA IF EXISTS \"{name}\" CASCADE");
    sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut connection).await.map_err(refused())?;
    let _ = connection.close().await;
    Ok(())
}
