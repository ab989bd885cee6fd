//! What a killed run left behind although it had a guard: removed at the next start, if no live run holds it.

use std::{collections::BTreeSet, path::Path, time::Duration};

use sha2::{Digest, Sha256};
use sqlx::{Connection, PgConnection};

use super::{
    RigError,
    endpoints::Endpoints,
    engine::{Engine, Found},
    folder, names, space,
    teardown::{remove_folder, remove_run},
};

/// Seconds.
const A_DAY: i64 = 24 * 3600;

/// Number of a run's advisory lock.
pub(crate) fn lock_number(run: &str) -> i64 {
    let digest = Sha256::digest(format!("drainbench run {run}").as_bytes());
    let mut first = [0; 8];
    first.copy_from_slice(&digest[..8]);
    i64::from_be_bytes(first)
}

/// Removes folders in `base` whose run is dead, and what still runs in them. Says which. What can't be removed is left for
/// the next start: it hinders nobody.
pub(crate) async fn folders(base: &Path) -> Vec<String> {
    let mut said = Vec::new();
    for (path, _lock) in folder::abandoned(base) {
        said.push(swept(&path.display().to_string(), remove_folder(path).await.as_slice()));
    }
    said
}

/// Removes containers of dead runs. Says which. One that another machine (or a container) has started is let be, unless
/// it has stood still for a day: whether its run lives can't be told from here.
pub(crate) async fn containers(engine: &Engine) -> Vec<String> {
    let found = match engine.ours(None).await {
        Ok(found) => found,
        // Whoever starts next will say why the engine does not work.
        Err(_) => return Vec::new(),
    };
    let (here, now) = (folder::place(), jiff::Timestamp::now().as_second());
    let is_dead = |container: &&Found| {
        let idle = !container.runs && now - container.created > A_DAY;
        if container.place == here { folder::is_dead(&container.folder) } else { idle }
    };
    let dead: BTreeSet<String> =
        found.iter().filter(is_dead).map(|container| container.run.clone()).collect();
    let mut said = Vec::new();
    for run in dead {
        let what = format!("containers {}{run}_...", names::PREFIX);
        said.push(swept(&what, &engine.remove_run(&run, Duration::ZERO).await));
    }
    said
}

fn swept(what: &str, left: &[String]) -> String {
    if left.is_empty() {
        format!("swept what a run that was killed had left: {what}")
    } else {
        format!("a run that was killed has left {what}, and it can't be removed: {}", left.join("; "))
    }
}

/// Removes databases, schemas, exchanges and queues of runs whose advisory lock nobody holds. Says which.
pub(crate) async fn made(endpoints: &Endpoints, own_run: &str) -> Result<Vec<String>, RigError> {
    let mut said = Vec::new();
    let mut connection = endpoints.connect().await?;
    let found = space::all(&mut connection).await?;
    let runs: BTreeSet<_> = found.iter().filter_map(|name| names::run_of(name)).collect();
    for run in runs.into_iter().filter(|run| *run != own_run) {
        if !lives(&mut connection, run).await? {
            let what = format!("databases or schemas, exchanges and queues drainbench_{run}_...");
            said.push(swept(&what, &remove_run(endpoints, run).await));
        }
    }
    let _ = connection.close().await;
    Ok(said)
}

/// Whether somebody holds the run's lock (in whatever database: a lock belongs to one, and not every run need use the
/// same for maintenance), or still works in one of its databases or under its name although the
/// connection that held it broke.
async fn lives(connection: &mut PgConnection, run: &str) -> Result<bool, RigError> {
    const SQL: &str = "SELECT EXISTS (SELECT 1 FROM pg_locks \
                       WHERE locktype = 'advisory' AND objsubid = 1 AND granted \
                       AND (classid::int8 << 32) | objid::int8 = $1) \
                       OR EXISTS (SELECT 1 FROM pg_stat_activity \
                       WHERE starts_with(datname::text, $2) OR strpos(application_name, $3) > 0)";
    sqlx::query_scalar(SQL)
        .bind(lock_number(run))
        .bind(format!("{}{run}_", names::PREFIX))
        .bind(format!(":{run}:"))
        .fetch_one(connection)
        .await
        .map_err(RigError::refused("ask which runs are alive"))
}
