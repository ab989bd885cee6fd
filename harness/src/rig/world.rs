//! The databases, exchanges and queues of one cell, and its slow network and disk.

use std::{net::SocketAddr, time::Duration};

use drainer::BrokerUrl;
use futures_util::{StreamExt, TryStreamExt, stream};
use sqlx::{
    AssertSqlSafe, ConnectOptions as _, Connection, PgConnection,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use tokio::time::Instant;

use super::{
    Rig, RigError,
    broker::Broker,
    endpoints::{CONNECT_WITHIN, Endpoints},
    links::{self, Links},
    names, teardown,
};
use crate::scenario::{Breaks, Cell, DatabaseSettings};

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
#[must_use = "its links end when it is dropped"]
pub struct World {
    /// One for each service.
    pub services: Vec<ServiceWorld>,
    /// The broker itself: for the sink.
    pub broker: BrokerUrl,
    /// The drainers' ways to both.
    pub links: Links,
    /// The server's maintenance database, with the rights we have.
    pub admin: PgConnectOptions,
    made: Made,
}

/// What one service works with.
#[derive(Debug, Clone)]
pub struct ServiceWorld {
    /// As in the plan, `svc07`.
    pub name: String,
    /// `<run>:svc07`: part of the `application_name` of its sessions, the drainer's included.
    pub tag: String,
    /// Its database (name, credentials, `search_path` where schemas are used). No application_name yet.
    pub database: PgConnectOptions,
    /// Name of its database, or of the common one where schemas are used.
    pub database_name: String,
    /// Its topic exchange.
    pub exchange: String,
    /// Its queue, bound with `#`.
    pub queue: String,
}

impl ServiceWorld {
    /// URL of its database for a program of its own, through a link where one is given. Secret.
    #[must_use]
    pub fn database_url(&self, link: Option<SocketAddr>) -> String {
        match link {
            None => url(&self.database),
            Some(link) => url(&links::via(self.database.clone(), link)),
        }
    }
}

fn url(options: &PgConnectOptions) -> String {
    // The library writes neither an IPv6 address, a user's special characters nor a file in a form that it reads
    // again, and leaves the session's settings out (the schema is one).
    let mut url = options.clone().host("localhost").username("user").to_url_lossy();
    // Both can only fail for a URL without a host.
    let _ = url.set_username(options.get_username());
    if options.get_socket().is_none() {
        let host = options.get_host();
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        let _ = url.set_host(Some(&host));
    }
    // A certificate's file comes out as `file: /path`.
    let bare = |value: &str| value.strip_prefix("file: ").unwrap_or(value).to_owned();
    let pairs: Vec<_> = url.query_pairs().map(|(name, value)| (name.into_owned(), bare(&value))).collect();
    url.query_pairs_mut().clear().extend_pairs(pairs);
    if let Some(settings) = options.get_options() {
        url.query_pairs_mut().append_pair("options", settings);
    }
    url.into()
}

impl World {
    /// Sets `commit_delay` and `full_page_writes` back, drops databases, exchanges and queues.
    ///
    /// # Errors
    /// What could not be removed, by name.
    pub async fn remove(self) -> Result<(), RigError> {
        // Whatever still hangs on it would keep a queue in use.
        drop(self.links);
        self.made.remove().await
    }
}

/// What has to go again.
struct Made {
    endpoints: Endpoints,
    names: Vec<String>,
    /// Whether the servers are ours, and with them their settings.
    ours: bool,
}

impl Made {
    async fn remove(self) -> Result<(), RigError> {
        let mut left = teardown::remove(&self.endpoints, &self.names).await;
        if self.ours
            && let Err(error) = reset(&self.endpoints).await
        {
            left.push(format!("settings of PostgreSQL ({error})"));
        }
        // Servers of our own go soon, and with them whatever could not be removed: a dead one is reported by who needs it.
        if left.is_empty() || self.ours { Ok(()) } else { Err(RigError::Left(left)) }
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
                tag: format!("{}:{service}", rig.run),
                name: service,
                database: rig.facts.separation.options(&rig.endpoints, &name),
                database_name: rig.facts.separation.database(&rig.endpoints, &name),
                exchange: name.clone(),
                queue: name,
            }
        })
        .collect();
    let names = services.iter().map(|service| service.exchange.clone()).collect();
    let made = Made { endpoints: rig.endpoints.clone(), names, ours: rig.is_ours() };
    match fill(rig, cell, &services).await {
        Ok(links) => Ok(World {
            services,
            broker: rig.endpoints.amqp.0.clone(),
            links,
            admin: rig.endpoints.database.clone(),
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

async fn fill(rig: &Rig, cell: &Cell, services: &[ServiceWorld]) -> Result<Links, RigError> {
    let endpoints = &rig.endpoints;
    // Where nobody drains, the smallest outbox there is: what a design adds to it, its indexes too, is the design's cost.
    let design = cell.design.drainer().unwrap_or(drainer::Design::SingleTx);
    stream::iter(services)
        .map(|service| fill_database(rig, service, design))
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
    // What others wrote before (a build, another cell) would be written back under the first commits' fsync: a control
    // showed 270 ms that way. For servers of others as well, which may be on this machine: with compose's, a commit now
    // and then stood still for 80 to 230 ms. On a thread of its own: it blocks as long as the disk has work.
    tokio::task::spawn_blocking(rustix::fs::sync).await.map_err(RigError::refused("sync"))?;
    Links::start(endpoints, cell).await
}

async fn fill_database(rig: &Rig, service: &ServiceWorld, design: drainer::Design) -> Result<(), RigError> {
    let name = &service.exchange;
    rig.facts.separation.make(&rig.endpoints, name).await?;
    let pool = PgPoolOptions::new()
        .max_connections(1)
        .acquire_timeout(CONNECT_WITHIN)
        .connect_with(service.database.clone())
        .await
        .map_err(RigError::refused(format!("connect to {name}")))?;
    let migrated = drainer::migrate(&pool, design).await;
    let table = sqlx::raw_sql(BUSINESS_TABLE).execute(&pool).await;
    pool.close().await;
    migrated.map_err(RigError::refused(format!("migrate {name}")))?;
    table.map_err(RigError::refused(format!("create table bench_write in {name}")))?;
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
    for fault in &cell.faults {
        if let Breaks::SlowDisk { commit_delay } = fault.breaks {
            let setting = format!("commit_delay = {}", commit_delay.as_micros());
            return Err(RigError::OwnRigsOnly { cell: cell.label.clone(), setting });
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_for_another_program_is_read_there_as_it_was_meant() {
        for (url, schema) in [
            (
                "postgres://me:s%40%2Fcret@db.example:6543/app?sslmode=verify-full&sslrootcert=/a b/ca.pem",
                None,
            ),
            ("postgres://a%40b%2Fc@localhost/app?sslmode=disable", Some("drainbench_ab12cd34_c0r1_svc00")),
            ("postgres://me@%2Frun%2Fpostgresql/app", None),
            ("postgres://me@localhost/app?options=-c%20role%3Dbench%20-c%20x.y%3Da%5C%20b", None),
        ] {
            let mut meant: PgConnectOptions = url.parse().unwrap();
            if let Some(schema) = schema {
                meant = meant.options([("search_path", schema)]);
            }
            let service = ServiceWorld {
                name: "svc00".to_owned(),
                tag: "ab12cd34:svc00".to_owned(),
                database: meant.clone(),
                database_name: "app".to_owned(),
                exchange: String::new(),
                queue: String::new(),
            };
            let read: PgConnectOptions = service.database_url(None).parse().unwrap();
            assert_eq!(format!("{read:?}"), format!("{meant:?}"), "{url}");
        }
        let mut options: PgConnectOptions = "postgres://me@localhost/app".parse().unwrap();
        options = options.host("::1");
        let service = ServiceWorld {
            name: "svc00".to_owned(),
            tag: "ab12cd34:svc00".to_owned(),
            database: options,
            database_name: "app".to_owned(),
            exchange: String::new(),
            queue: String::new(),
        };
        assert!(
            service.database_url(None).starts_with("postgres://me@[::1]:5432/app?"),
            "{}",
            service.database_url(None)
        );
    }
}
