//! How everything that a rig holds ends, in one place: the normal end, the net and the guard all come through here.

use std::{fs, io, path::PathBuf, time::Duration};

use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use sqlx::Connection;
use tokio::time::Instant;

use super::{
    RigError,
    broker::Broker,
    endpoints::Endpoints,
    engine::Engine,
    names,
    process::{self, Process},
    space,
};

/// How long a child may take to stop by itself: a drainer then gives back what it claimed.
const CHILD_GRACE: Duration = Duration::from_secs(3);

/// How long PostgreSQL may take to stop at once. A hard kill would leave its shared memory behind.
const SERVER_GRACE: Duration = Duration::from_secs(5);

/// How long a container whose harness is gone may take to appear: an engine that copies its layers takes seconds.
const MADE_WITHIN: Duration = Duration::from_secs(5);

/// How long a database that is in use may resist.
pub(crate) const DROP_WITHIN: Duration = Duration::from_secs(10);

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
    /// Containers of a run.
    Containers {
        /// The run.
        run: String,
    },
    /// That all of them are there: until then one may be in the making, and appear later.
    ContainersAreMade,
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
    // Before folders: the lock in one says that its containers are somebody's.
    for one in held {
        if let Held::Containers { run } = one {
            let quiet = if held.iter().any(|one| matches!(one, Held::ContainersAreMade)) {
                Duration::ZERO
            } else {
                MADE_WITHIN
            };
            left.extend(remove_containers(run, quiet).await);
        }
    }
    for one in held {
        match one {
            Held::Made { run, database_url, amqp_url } => match Endpoints::parse(database_url, amqp_url) {
                Ok(endpoints) => left.extend(remove_run(&endpoints, run).await),
                Err(error) => left.push(format!("what run {run} made ({error})")),
            },
            Held::Folder(folder) => left.extend(remove_folder(folder.clone()).await),
            Held::Child(_)
            | Held::Postgres(_)
            | Held::Server(_)
            | Held::Containers { .. }
            | Held::ContainersAreMade => {}
        }
    }
    left
}

async fn remove_containers(run: &str, quiet: Duration) -> Vec<String> {
    match Engine::connect().await {
        Ok(engine) => engine.remove_run(run, quiet).await,
        Err(error) => vec![format!("containers of run {run}, if any ({error})")],
    }
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

/// Drops every database and schema of a run, and the exchange and queue that are called like it. Returns what is left.
pub(crate) async fn remove_run(endpoints: &Endpoints, run: &str) -> Vec<String> {
    let all = async {
        let mut connection = endpoints.connect().await?;
        let all = space::all(&mut connection).await?;
        let _ = connection.close().await;
        Ok::<_, RigError>(all)
    };
    match all.await {
        Ok(all) => {
            let ours: Vec<_> = all.into_iter().filter(|name| names::run_of(name) == Some(run)).collect();
            remove(endpoints, &ours).await
        }
        Err(error) => vec![format!("what run {run} made, if anything ({error})")],
    }
}

/// Removes exchange, queue, and database or schema of each name; what is not there is no error. Returns what is left.
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
        if let Err(error) = space::drop(endpoints, name).await {
            left.push(format!("database or schema {name} ({error})"));
        }
    }
    left
}
