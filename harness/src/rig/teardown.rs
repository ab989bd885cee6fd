//! How everything that a rig holds ends, in one place: the normal end, the net and the guard all come through here.

use std::{fs, io, path::PathBuf, time::Duration};

use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tokio::time::Instant;

use super::{
    RigError,
    broker::Broker,
    endpoints::Endpoints,
    names,
    process::{self, Process},
};

/// How long a child may take to stop by itself: a drainer then gives back what it claimed.
const CHILD_GRACE: Duration = Duration::from_secs(3);

/// How long PostgreSQL may take to stop at once. A hard kill would leave its shared memory behind.
const SERVER_GRACE: Duration = Duration::from_secs(5);

/// How long a database that is in use may resist.
const DROP_WITHIN: Duration = Duration::from_secs(10);

/// Something that must not outlive the rig. One JSON line to the guard each.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Held {
    /// A drainer or a command.
    Child(Process),
    /// PostgreSQL's first process.
    Postgres(Process),
    /// The broker or its port mapper.
    Server(Process),
    /// The folder of our own servers.
    Folder(PathBuf),
    /// Databases, exchanges and queues of a run on servers that stay. The URLs are secret.
    Made {
        /// The run.
        run: String,
        /// Where.
        database_url: String,
        /// Where.
        amqp_url: String,
    },
}

/// Ends all of it: drainers, servers, what was made, folders. Returns what is left, by name. Safe to repeat.
pub(crate) async fn teardown(held: &[Held]) -> Vec<String> {
    let mut left = Vec::new();
    let children = || of(held, |one| if let Held::Child(process) = one { Some(*process) } else { None });
    if !process::end(children, Signal::TERM, CHILD_GRACE).await {
        left.push("a drainer process".to_owned());
    }
    let postgres = || of(held, |one| if let Held::Postgres(process) = one { Some(*process) } else { None });
    let others = || of(held, |one| if let Held::Server(process) = one { Some(*process) } else { None });
    // Their data goes as well, so that neither need write it down: QUIT is PostgreSQL's immediate shutdown.
    others().iter().for_each(|process| process.signal(Signal::KILL));
    if !process::end(postgres, Signal::QUIT, SERVER_GRACE).await {
        left.push("PostgreSQL".to_owned());
    }
    if !process::end(others, Signal::KILL, SERVER_GRACE).await {
        left.push("RabbitMQ".to_owned());
    }
    for one in held {
        match one {
            Held::Made { run, database_url, amqp_url } => match Endpoints::parse(database_url, amqp_url) {
                Ok(endpoints) => left.extend(remove_run(&endpoints, run).await),
                Err(error) => left.push(format!("what run {run} made ({error})")),
            },
            Held::Folder(folder) => left.extend(remove_folder(folder.clone()).await),
            Held::Child(_) | Held::Postgres(_) | Held::Server(_) => {}
        }
    }
    left
}

fn of(held: &[Held], which: impl Fn(&Held) -> Option<Process>) -> Vec<Process> {
    held.iter().filter_map(which).filter(|process| process.alive()).collect()
}

/// Ends whatever still runs in a folder and removes it.
pub(crate) async fn remove_folder(folder: PathBuf) -> Option<String> {
    // PostgreSQL first gets the chance to remove its shared memory; the broker's helpers end with it.
    if !process::end(|| process::of_folder(&folder), Signal::QUIT, SERVER_GRACE).await {
        return Some(format!("processes of {}", folder.display()));
    }
    let deadline = Instant::now() + SERVER_GRACE;
    loop {
        match fs::remove_dir_all(&folder) {
            Ok(()) => return None,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            // Something that is just ending may still write.
            Err(_) if Instant::now() < deadline => tokio::time::sleep(Duration::from_millis(50)).await,
            Err(error) => return Some(format!("folder {} ({error})", folder.display())),
        }
    }
}

/// Drops every database of a run, and the exchange and queue that are called like it. Returns what is left.
pub(crate) async fn remove_run(endpoints: &Endpoints, run: &str) -> Vec<String> {
    let databases = async {
        let mut connection = endpoints.connect().await?;
        let databases = databases(&mut connection).await?;
        let _ = connection.close().await;
        Ok::<_, RigError>(databases)
    };
    match databases.await {
        Ok(databases) => {
            let ours: Vec<_> =
                databases.into_iter().filter(|name| names::run_of(name) == Some(run)).collect();
            remove(endpoints, &ours).await
        }
        Err(error) => vec![format!("what run {run} made, if anything ({error})")],
    }
}

/// All databases that are called like ours and that we may drop.
pub(crate) async fn databases(connection: &mut PgConnection) -> Result<Vec<String>, RigError> {
    let all: Vec<String> =
        // Another role's would resist until the deadline, each of them.
        sqlx::query_scalar(
            "SELECT datname::text FROM pg_database WHERE NOT datistemplate AND pg_has_role(datdba, 'USAGE')",
        )
            .fetch_all(connection)
            .await
            .map_err(RigError::refused("list the databases"))?;
    Ok(all.into_iter().filter(|name| names::run_of(name).is_some()).collect())
}

/// Removes exchange, queue and database of each name; what is not there is no error. Returns what is left.
pub(crate) async fn remove(endpoints: &Endpoints, names: &[String]) -> Vec<String> {
    if names.is_empty() {
        return Vec::new();
    }
    let mut left = Vec::new();
    // The exchange goes first: a name whose database is gone is never looked for again.
    match Broker::connect(&endpoints.amqp).await {
        Ok(broker) => {
            for name in names {
                if let Err(error) = broker.remove(name).await {
                    left.push(format!("exchange and queue {name} ({error})"));
                }
            }
            broker.close().await;
        }
        Err(error) => {
            // Their databases stay with them: by these the next start finds them, when the broker is back.
            left.push(format!("databases, exchanges and queues {} ({error})", names.join(", ")));
            return left;
        }
    }
    for name in names {
        if let Err(error) = drop_database(endpoints, name).await {
            left.push(format!("database {name} ({error})"));
        }
    }
    left
}

/// Drops a database and whoever is connected to it. Another cleaner may be at it: then it is tried again.
async fn drop_database(endpoints: &Endpoints, name: &str) -> Result<(), RigError> {
    let deadline = Instant::now() + DROP_WITHIN;
    loop {
        let mut connection = endpoints.connect().await?;
        let dropped =
            sqlx::raw_sql(AssertSqlSafe(format!("DROP DATABASE IF EXISTS \"{name}\" WITH (FORCE)")))
                .execute(&mut connection)
                .await;
        let _ = connection.close().await;
        match dropped {
            Ok(_) => return Ok(()),
            Err(error) if Instant::now() >= deadline => return Err(RigError::refused("drop it")(error)),
            Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
        }
    }
}
