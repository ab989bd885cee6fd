//! What goes wrong at PostgreSQL. Its own backend list and settings say whether it hit.

use std::time::Duration;

use sqlx::{AssertSqlSafe, Connection as _, PgConnection, postgres::PgConnectOptions};
use tokio::time::Instant;

use super::{Evidence, Ground, Stay};
use crate::database::APPLICATION_NAME as OWN_SESSION;

/// How long one statement of ours may take. What is broken may be the database itself.
const WITHIN: Duration = Duration::from_secs(10);

/// Ends all sessions of the drainers, `rate` times a second.
pub(super) async fn terminate(ground: Ground<'_, '_>, rate: f64, stay: Stay<'_>) -> Evidence {
    let mut admin = match connect(&ground.world.admin).await {
        Ok(admin) => admin,
        Err(error) => return ground.could_not("connect", &error),
    };
    let names: Vec<String> =
        ground.world.services.iter().map(|service| format!("drainer:{}:%", service.tag)).collect();
    let mut ended: Vec<i32> = Vec::new();
    let mut next = Instant::now();
    while !stay.is_over() {
        let terminated = sqlx::query_scalar(
            // One query would be free to ask the second condition first, and ended our own session and everybody's.
            "WITH theirs AS MATERIALIZED (SELECT pid FROM pg_stat_activity WHERE application_name LIKE ANY ($1)) \
             SELECT pid FROM theirs WHERE pg_terminate_backend(pid)",
        )
        .bind(&names)
        .fetch_all(&mut admin);
        match within(terminated).await {
            Ok(pids) => ended.extend::<Vec<i32>>(pids),
            Err(error) => return ground.could_not("end the drainers' sessions", &error),
        }
        next += Duration::from_secs_f64(1.0 / rate);
        Stay { until: next.min(stay.until), ..stay }.over().await;
    }
    // Told to end is not yet ended.
    let gone = async {
        loop {
            let left: i64 =
                sqlx::query_scalar("SELECT count(*) FROM pg_stat_activity WHERE pid = ANY ($1) AND application_name LIKE ANY ($2)")
                    .bind(&ended)
                    .bind(&names)
                    .fetch_one(&mut admin)
                    .await?;
            if left == 0 {
                return Ok::<_, sqlx::Error>(());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let all_gone = matches!(tokio::time::timeout(WITHIN, gone).await, Ok(Ok(())));
    let said = format!(
        "{} sessions of drainers were told to end and {}",
        ended.len(),
        if all_gone { "are gone from the backend list" } else { "some still stand in the backend list" }
    );
    ground.saw(all_gone && !ended.is_empty(), said)
}

/// A reader in one long transaction, in each database.
pub(super) async fn hold_xmin(ground: Ground<'_, '_>, stay: Stay<'_>) -> Evidence {
    let mut holders: Vec<PgConnection> = Vec::new();
    for service in &ground.world.services {
        let held = async {
            let mut holder =
                PgConnection::connect_with(&service.database.clone().application_name(OWN_SESSION)).await?;
            sqlx::raw_sql("BEGIN ISOLATION LEVEL REPEATABLE READ").execute(&mut holder).await?;
            sqlx::raw_sql("SELECT 1 FROM event_outbox LIMIT 1").execute(&mut holder).await?;
            Ok(holder)
        };
        match within(held).await {
            Ok(holder) => holders.push(holder),
            Err(error) => return ground.could_not("hold a transaction open", &error),
        }
    }
    stay.over().await;
    // How many transactions began since the oldest snapshot of ours was taken.
    let behind = async {
        let mut admin =
            PgConnection::connect_with(&ground.world.admin.clone().application_name(OWN_SESSION)).await?;
        sqlx::query_scalar(
            "SELECT max(age(backend_xmin)) FROM pg_stat_activity \
             WHERE application_name = $1 AND state = 'idle in transaction'",
        )
        .bind(OWN_SESSION)
        .fetch_one(&mut admin)
        .await
    };
    let behind: Result<Option<i32>, _> = within(behind).await;
    drop(holders);
    match behind {
        Ok(behind) => {
            let behind = behind.unwrap_or(0);
            ground.saw(
                behind > 0,
                format!("the oldest snapshot was {behind} transactions old when it was let go"),
            )
        }
        Err(error) => ground.could_not("see the held transaction", &error),
    }
}

/// Each WAL flush takes longer.
pub(super) async fn slow_disk(ground: Ground<'_, '_>, commit_delay: Duration, stay: Stay<'_>) -> Evidence {
    let micros = commit_delay.as_micros().to_string();
    let slowed =
        Slowed { admin: ground.world.admin.clone(), before: ground.cell.settings.database.commit_delay };
    let slow = [
        format!("ALTER SYSTEM SET commit_delay = '{micros}'"),
        "ALTER SYSTEM SET commit_siblings = '0'".to_owned(),
    ];
    if let Err(error) = within(change(&slowed.admin, &slow)).await {
        return ground.could_not("slow the disk", &error);
    }
    stay.over().await;
    let shown = within(shown(&slowed.admin, "commit_delay")).await;
    let healed = within(slowed.heal()).await;
    match (shown, healed) {
        (Ok(shown), Ok(())) => {
            let said = format!("commit_delay was {shown} us at the end of it");
            ground.saw(shown == micros, said)
        }
        (Err(error), _) | (_, Err(error)) => ground.could_not("read or set commit_delay", &error),
    }
}

/// The world's removal sets it back as well.
struct Slowed {
    admin: PgConnectOptions,
    before: Duration,
}

impl Slowed {
    async fn heal(&self) -> Result<(), sqlx::Error> {
        let siblings = if self.before.is_zero() { 5 } else { 0 };
        let back = [
            format!("ALTER SYSTEM SET commit_delay = '{}'", self.before.as_micros()),
            format!("ALTER SYSTEM SET commit_siblings = '{siblings}'"),
        ];
        change(&self.admin, &back).await
    }
}

async fn change(admin: &PgConnectOptions, statements: &[String]) -> Result<(), sqlx::Error> {
    let mut admin = PgConnection::connect_with(&admin.clone().application_name(OWN_SESSION)).await?;
    for statement in statements {
        sqlx::raw_sql(AssertSqlSafe(statement.clone())).execute(&mut admin).await?;
    }
    sqlx::raw_sql("SELECT pg_reload_conf()").execute(&mut admin).await?;
    admin.close().await
}

async fn shown(admin: &PgConnectOptions, name: &str) -> Result<String, sqlx::Error> {
    let mut admin = PgConnection::connect_with(&admin.clone().application_name(OWN_SESSION)).await?;
    sqlx::query_scalar("SELECT setting FROM pg_settings WHERE name = $1")
        .bind(name)
        .fetch_one(&mut admin)
        .await
}

pub(super) async fn connect(options: &PgConnectOptions) -> Result<PgConnection, sqlx::Error> {
    within(PgConnection::connect_with(&options.clone().application_name(OWN_SESSION))).await
}

pub(super) async fn within<T>(doing: impl Future<Output = Result<T, sqlx::Error>>) -> Result<T, sqlx::Error> {
    tokio::time::timeout(WITHIN, doing).await.unwrap_or(Err(sqlx::Error::PoolTimedOut))
}
