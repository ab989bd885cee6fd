//! The databases, exchanges and queues of one cell, and its slow network and disk.

use std::{net::SocketAddr, time::Duration};

use futures_util::{StreamExt, TryStreamExt, stream};
use sqlx::{
    AssertSqlSafe, Connection, PgConnection,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use tokio::time::Instant;

use super::{
    Rig, RigError,
    broker::Broker,
    delay_line::DelayLine,
    endpoints::{Amqp, CONNECT_WITHIN, Endpoints, no_answer},
    names,
    probe::create_database,
    teardown,
};
use crate::scenario::{Cell, DatabaseSettings};

/// Databases that are made at once: each copies a template, and a disk is one.
const MADE_AT_ONCE: usize = 4;

/// How long PostgreSQL may take to read its configuration again.
const RELOADED_WITHIN: Duration = Duration::from_secs(10);

/// The table a service writes beside its outbox.
const BUSINESS_TABLE: &str = "CREATE TABLE bench_write (\
                              id uuid PRIMARY KEY, \
                              service text NOT NULL, \
                              body text NOT NULL, \
                              written_at timestamptz NOT NULL DEFAULT now())";

/// The databases, exchanges and queues of one cell. [`remove`](Self::remove) is the normal end; what is dropped without
/// it goes with the rig, and the next world sets the server's settings itself.
#[must_use = "its delay line ends when it is dropped"]
pub struct World {
    /// One for each service.
    pub services: Vec<ServiceWorld>,
    /// AMQP URL of the broker itself: for the sink and `raw` without latency. Never logged.
    pub broker: String,
    /// AMQP URL for drainers: through the delay line, whose delay is 0 where the cell has no latency.
    pub drainer_broker: String,
    /// The server's maintenance database, with the rights we have.
    pub admin: PgConnectOptions,
    line: DelayLine,
    made: Made,
}

/// What one service works with.
#[derive(Debug, Clone)]
pub struct ServiceWorld {
    /// As in the plan, `svc07`.
    pub name: String,
    /// Its database (name, credentials, `search_path` where schemas are used). No application_name yet.
    pub database: PgConnectOptions,
    /// Name of its database, or of the common one where schemas are used.
    pub database_name: String,
    /// Its topic exchange.
    pub exchange: String,
    /// Its queue, bound with `#`.
    pub queue: String,
}

impl World {
    /// Client connections that the broker has from drainers, all of which go through the delay line; 0 when the broker
    /// has read what they sent and has closed them all.
    #[must_use]
    pub fn drainer_connections(&self) -> usize {
        self.line.connections()
    }

    /// The delay line all drainers go through.
    pub fn delay_line(&self) -> &DelayLine {
        &self.line
    }

    /// Sets `commit_delay` and `full_page_writes` back, drops databases, exchanges and queues.
    ///
    /// # Errors
    /// What could not be removed, by name.
    pub async fn remove(self) -> Result<(), RigError> {
        // Whatever still hangs on it would keep a queue in use.
        drop(self.line);
        self.made.remove().await
    }
}

/// What has to go again.
struct Made {
    endpoints: Endpoints,
    names: Vec<String>,
    /// Whether the server's settings are ours.
    settings: bool,
}

impl Made {
    async fn remove(self) -> Result<(), RigError> {
        let mut left = teardown::remove(&self.endpoints, &self.names).await;
        if self.settings
            && let Err(error) = reset(&self.endpoints).await
        {
            left.push(format!("settings of PostgreSQL ({error})"));
        }
        if left.is_empty() { Ok(()) } else { Err(RigError::Left(left)) }
    }
}

pub(crate) async fn make(rig: &Rig, cell: &Cell, cell_index: usize, round: u32) -> Result<World, RigError> {
    if !rig.is_ours() {
        settings_hold(&rig.endpoints, cell).await?;
    }
    let services: Vec<_> = (0..cell.settings.load.services)
        .map(|index| crate::plan::service_name(cell.settings.load.services, index))
        .map(|service| {
            let name = names::service(&rig.run, cell_index, round, &service);
            ServiceWorld {
                name: service,
                database: rig.endpoints.database.clone().database(&name),
                database_name: name.clone(),
                exchange: name.clone(),
                queue: name,
            }
        })
        .collect();
    let names = services.iter().map(|service| service.database_name.clone()).collect();
    let made = Made { endpoints: rig.endpoints.clone(), names, settings: rig.is_ours() };
    match fill(rig, cell, &services).await {
        Ok(line) => Ok(World {
            services,
            broker: rig.endpoints.amqp.url.clone(),
            drainer_broker: rig.endpoints.amqp.via(line.addr()),
            admin: rig.endpoints.database.clone(),
            line,
            made,
        }),
        Err(error) => match made.remove().await {
            Ok(()) => Err(error),
            Err(left) => Err(RigError::Refused {
                doing: "make a cell's world".to_owned(),
                reason: format!("{error}; {left}"),
            }),
        },
    }
}

async fn fill(rig: &Rig, cell: &Cell, services: &[ServiceWorld]) -> Result<DelayLine, RigError> {
    let endpoints = &rig.endpoints;
    // Where nobody drains, the smallest outbox there is: what a design adds to it, its indexes too, is the design's cost.
    let design = cell.design.drainer().unwrap_or(drainer::Design::SingleTx);
    stream::iter(services)
        .map(|service| fill_database(endpoints, service, design))
        .buffer_unordered(MADE_AT_ONCE)
        .try_collect::<()>()
        .await?;
    let broker = Broker::connect(&endpoints.amqp).await?;
    for service in services {
        broker.make(&service.exchange, &cell.settings.broker).await?;
    }
    broker.close().await;
    if rig.is_ours() {
        apply(endpoints, &cell.settings.database).await?;
    }
    if rig.checkpoints {
        let mut connection = endpoints.connect().await?;
        sqlx::raw_sql("CHECKPOINT")
            .execute(&mut connection)
            .await
            .map_err(RigError::refused("CHECKPOINT"))?;
        let _ = connection.close().await;
    }
    if rig.is_ours() {
        // What others wrote before (a build, another cell) would be written back under the first commits' fsync: a
        // control showed 270 ms that way. On a thread of its own, since it blocks as long as the disk has work.
        tokio::task::spawn_blocking(rustix::fs::sync).await.map_err(RigError::refused("sync"))?;
    }
    let upstream = upstream(&endpoints.amqp).await?;
    DelayLine::start(upstream, cell.settings.broker.latency)
        .await
        .map_err(RigError::refused("start the delay line"))
}

/// The first of the broker's addresses that answers.
async fn upstream(amqp: &Amqp) -> Result<SocketAddr, RigError> {
    let mut reason = "its name has no address".to_owned();
    for addr in amqp.addresses().await? {
        match tokio::time::timeout(CONNECT_WITHIN, tokio::net::TcpStream::connect(addr)).await {
            Ok(Ok(_)) => return Ok(addr),
            Ok(Err(error)) => reason = error.to_string(),
            Err(_) => reason = no_answer(),
        }
    }
    Err(amqp.unreachable(reason))
}

async fn fill_database(
    endpoints: &Endpoints,
    service: &ServiceWorld,
    design: drainer::Design,
) -> Result<(), RigError> {
    let name = &service.database_name;
    create_database(endpoints, name).await?;
    let pool = PgPoolOptions::new()
        .max_connections(1)
        .acquire_timeout(CONNECT_WITHIN)
        .connect_with(service.database.clone())
        .await
        .map_err(RigError::refused(format!("connect to database {name}")))?;
    let migrated = drainer::migrate(&pool, design).await;
    let table = sqlx::raw_sql(BUSINESS_TABLE).execute(&pool).await;
    pool.close().await;
    migrated.map_err(RigError::refused(format!("migrate database {name}")))?;
    table.map_err(RigError::refused(format!("create table bench_write in database {name}")))?;
    Ok(())
}

/// The three settings of a slow disk and of page images, in the form PostgreSQL shows them.
fn wanted(settings: &DatabaseSettings) -> [(&'static str, String); 3] {
    let delay = settings.commit_delay.as_micros();
    [
        ("commit_delay", delay.to_string()),
        // Zero, so that a commit waits even where it is alone. PostgreSQL's own default, 5, where nothing is delayed.
        ("commit_siblings", if delay > 0 { "0" } else { "5" }.to_owned()),
        ("full_page_writes", if settings.full_page_writes { "on" } else { "off" }.to_owned()),
    ]
}

/// Fails when a cell wants something of a server that is not ours to change, and the server does not have it.
async fn settings_hold(endpoints: &Endpoints, cell: &Cell) -> Result<(), RigError> {
    let settings = &cell.settings.database;
    let mut connection = endpoints.connect().await?;
    for (name, value) in wanted(settings) {
        let asked = match name {
            "full_page_writes" => !settings.full_page_writes,
            _ => !settings.commit_delay.is_zero(),
        };
        if asked && shown(&mut connection, name).await? != value {
            return Err(RigError::OwnRigsOnly {
                cell: cell.label.clone(),
                setting: format!("{name} = {value}"),
            });
        }
    }
    let _ = connection.close().await;
    Ok(())
}

async fn apply(endpoints: &Endpoints, settings: &DatabaseSettings) -> Result<(), RigError> {
    let wanted = wanted(settings);
    let statements = wanted.iter().map(|(name, value)| format!("ALTER SYSTEM SET {name} = '{value}'"));
    change(endpoints, statements.collect()).await?;
    let deadline = Instant::now() + RELOADED_WITHIN;
    for (name, value) in wanted {
        // A new connection each time: it has what the server has.
        while shown(&mut endpoints.connect().await?, name).await? != value {
            if Instant::now() >= deadline {
                let reason = format!("not in effect {} s after the reload", RELOADED_WITHIN.as_secs());
                return Err(RigError::Refused { doing: format!("set {name} = {value}"), reason });
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    Ok(())
}

async fn reset(endpoints: &Endpoints) -> Result<(), RigError> {
    let names = ["commit_delay", "commit_siblings", "full_page_writes"];
    change(endpoints, names.map(|name| format!("ALTER SYSTEM RESET {name}")).to_vec()).await
}

/// Runs statements that can't be in a transaction, and has the server read its configuration.
async fn change(endpoints: &Endpoints, statements: Vec<String>) -> Result<(), RigError> {
    let mut connection = endpoints.connect().await?;
    for statement in statements.into_iter().chain(["SELECT pg_reload_conf()".to_owned()]) {
        let refused = RigError::refused(statement.clone());
        sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut connection).await.map_err(refused)?;
    }
    let _ = connection.close().await;
    Ok(())
}

/// A setting as its plain number or word: `SHOW` would add a unit.
async fn shown(connection: &mut PgConnection, name: &str) -> Result<String, RigError> {
    sqlx::query_scalar("SELECT setting FROM pg_settings WHERE name = $1")
        .bind(name)
        .fetch_one(connection)
        .await
        .map_err(RigError::refused(format!("read {name}")))
}
