//! Which rig it will be, and how it comes up.

use std::time::Instant;

use sqlx::Connection;

use super::{
    AMQP_URL, DATABASE_URL, Rig, RigChoice, RigError, RigFacts, RigKind, RigRequest, binaries, broker,
    endpoints::Endpoints,
    folder::{self, Folder},
    guard::Guard,
    names, postgres, probe, rabbitmq,
    run_lock::RunLock,
    secret,
    server::{Ground, Server, User},
    sweep,
    teardown::Held,
    vitals::Vitals,
};

/// Settings of PostgreSQL that decide what is measured.
pub(super) const SETTINGS: [&str; 8] = [
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "wal_level",
    "shared_buffers",
    "max_connections",
    "commit_delay",
    "commit_siblings",
];

/// Why containers are not there yet.
pub(crate) const NO_DOCKER: &str = "it comes with a later release";

/// Our own servers while they run. The guard ends them.
pub(crate) struct Servers {
    _folder: Folder,
    _postgres: Server,
    _rabbitmq: Server,
    _port_mapper: Server,
}

/// What was decided.
enum Decision {
    Local(binaries::Postgres, binaries::RabbitMq),
    External(Box<Endpoints>),
}

pub(crate) async fn provision(request: &RigRequest) -> Result<Rig, RigError> {
    let begun = Instant::now();
    let mut why = Vec::new();
    // Whatever can be wrong is found before anything starts.
    let decision = decide(request, &mut why)?;
    let run = secret::random(names::RUN_LENGTH)?;
    let guard = Guard::start(&request.exe).await?;
    let (kind, endpoints, servers, lock) = match decision {
        Decision::Local(postgres, rabbitmq) => {
            why.extend(sweep::folders(&folder::base()).await);
            let (servers, endpoints) = local(&run, &postgres, &rabbitmq, &guard).await?;
            (RigKind::Local, endpoints, Some(servers), None)
        }
        Decision::External(endpoints) => {
            let (lock, swept) = external(&run, &endpoints, &guard).await?;
            why.extend(swept);
            (RigKind::External, *endpoints, None, Some(lock))
        }
    };
    probe::send(&endpoints, &run).await?;
    let (facts, checkpoints) = facts(kind, why, &endpoints, begun).await?;
    Ok(Rig { facts, run, endpoints, checkpoints, guard, _lock: lock, _servers: servers })
}

fn decide(request: &RigRequest, why: &mut Vec<String>) -> Result<Decision, RigError> {
    let local = || Ok::<_, RigError>((binaries::postgres(request.pg_bin.as_deref())?, binaries::rabbitmq()?));
    match request.choice {
        RigChoice::External => {
            why.push("external: asked for".to_owned());
            Ok(Decision::External(Box::new(urls(request)?)))
        }
        RigChoice::Docker => Err(RigError::Missing {
            what: format!("The docker rig is not there yet: {NO_DOCKER}"),
            way_out: "Use --rig local or --rig external".to_owned(),
        }),
        RigChoice::Local => {
            let (postgres, rabbitmq) = local()?;
            binaries::localhost()?;
            why.push(taken("local: asked for", &postgres, &rabbitmq));
            Ok(Decision::Local(postgres, rabbitmq))
        }
        RigChoice::Auto => {
            match &request.external {
                (Some(_), Some(_)) => {
                    why.push(format!("external: {DATABASE_URL} and {AMQP_URL} are set"));
                    return Ok(Decision::External(Box::new(urls(request)?)));
                }
                (Some(_), None) => why.push(format!("not external: {AMQP_URL} is not set")),
                (None, Some(_)) => why.push(format!("not external: {DATABASE_URL} is not set")),
                (None, None) => why.push(format!("not external: {DATABASE_URL} and {AMQP_URL} are not set")),
            }
            why.push(format!("not docker: {NO_DOCKER}"));
            let found = local().and_then(|found| binaries::localhost().map(|()| found));
            match found {
                Ok((postgres, rabbitmq)) => {
                    why.push(taken("local: its binaries are there", &postgres, &rabbitmq));
                    Ok(Decision::Local(postgres, rabbitmq))
                }
                Err(RigError::Missing { what, way_out }) => Err(RigError::Missing {
                    what: format!("No rig works here.\n  {}\n  not local: {what}", why.join("\n  ")),
                    way_out,
                }),
                Err(error) => Err(error),
            }
        }
    }
}

fn taken(why: &str, postgres: &binaries::Postgres, rabbitmq: &binaries::RabbitMq) -> String {
    format!("{why} ({}, {})", postgres.folder.display(), rabbitmq.server.display())
}

fn urls(request: &RigRequest) -> Result<Endpoints, RigError> {
    match &request.external {
        (Some(database), Some(amqp)) => Endpoints::parse(database, amqp),
        (database, amqp) => {
            let unset = [(DATABASE_URL, database), (AMQP_URL, amqp)];
            let unset: Vec<_> =
                unset.into_iter().filter(|(_, url)| url.is_none()).map(|(name, _)| name).collect();
            Err(RigError::Misconfigured {
                what: format!("The external rig needs {}", unset.join(" and ")),
                way_out: "Set both URLs in the environment, or use --rig local".to_owned(),
            })
        }
    }
}

/// Starts both servers at once.
async fn local(
    run: &str,
    postgres: &binaries::Postgres,
    rabbitmq: &binaries::RabbitMq,
    guard: &Guard,
) -> Result<(Servers, Endpoints), RigError> {
    let user = User::unprivileged()?;
    let path = Folder::path_of(run);
    if let Some(user) = &user {
        user.can_reach(&path)?;
    }
    guard.hold(Held::Folder(path.clone()));
    let folder = Folder::make(path)?;
    let ground = Ground { folder: folder.path().to_owned(), user };
    // The first to fail ends the other: the guard is dropped with this future.
    let (postgres, rabbitmq) = tokio::try_join!(
        postgres::start(&ground, postgres, guard),
        rabbitmq::start(&ground, rabbitmq, run, guard),
    )?;
    let endpoints = Endpoints::parse(&postgres.url, &rabbitmq.url)?;
    let servers = Servers {
        _folder: folder,
        _postgres: postgres.server,
        _rabbitmq: rabbitmq.server,
        _port_mapper: rabbitmq.port_mapper,
    };
    Ok((servers, endpoints))
}

/// Looks whether both servers are there, takes the run's lock and sweeps what dead runs left.
async fn external(
    run: &str,
    endpoints: &Endpoints,
    guard: &Guard,
) -> Result<(RunLock, Vec<String>), RigError> {
    // Both, so that an error names whichever is missing within one deadline.
    let (connection, broker) =
        tokio::try_join!(endpoints.connect(), broker::Broker::connect(&endpoints.amqp))?;
    broker.close().await;
    may_create_databases(connection).await?;
    let lock = RunLock::take(endpoints, run).await?;
    guard.hold(Held::Made {
        run: run.to_owned(),
        database_url: endpoints.database_url.clone(),
        amqp_url: endpoints.amqp.url.clone(),
    });
    let swept = sweep::made(endpoints, run).await?;
    Ok((lock, swept))
}

async fn may_create_databases(mut connection: sqlx::PgConnection) -> Result<(), RigError> {
    let may: bool =
        sqlx::query_scalar("SELECT rolcreatedb OR rolsuper FROM pg_roles WHERE rolname = current_user")
            .fetch_one(&mut connection)
            .await
            .map_err(RigError::refused("ask for its rights"))?;
    let _ = connection.close().await;
    if may {
        return Ok(());
    }
    Err(RigError::Missing {
        what: format!(
            "The role of {DATABASE_URL} must not create databases, and each service needs one of its own"
        ),
        way_out: "Give it the right (ALTER ROLE ... CREATEDB), or use --rig local".to_owned(),
    })
}

/// What a report says of the rig, and whether a CHECKPOINT is allowed.
async fn facts(
    kind: RigKind,
    mut why: Vec<String>,
    endpoints: &Endpoints,
    begun: Instant,
) -> Result<(RigFacts, bool), RigError> {
    let refused = || RigError::refused::<sqlx::Error>("read PostgreSQL's settings");
    let mut connection = endpoints.connect().await?;
    let postgres_version = sqlx::query_scalar("SELECT current_setting('server_version')")
        .fetch_one(&mut connection)
        .await
        .map_err(refused())?;
    let settings = Vitals::read(endpoints).await?.into_settings();
    // The role pg_checkpoint came with 15.
    let checkpoints: bool = sqlx::query_scalar(
        "SELECT rolsuper OR EXISTS (SELECT 1 FROM pg_roles AS given WHERE given.rolname = 'pg_checkpoint' \
         AND pg_has_role(given.oid, 'USAGE')) FROM pg_roles WHERE rolname = current_user",
    )
    .fetch_one(&mut connection)
    .await
    .map_err(refused())?;
    let _ = connection.close().await;
    if !checkpoints {
        why.push(
            "no CHECKPOINT before a cell: the role is neither superuser nor a member of pg_checkpoint"
                .to_owned(),
        );
    }
    let addresses = endpoints.amqp.addresses().await?;
    let mut rabbitmq_version = "unknown".to_owned();
    for addr in addresses {
        if let Ok(version) = broker::version(addr).await {
            rabbitmq_version = version;
            break;
        }
    }
    let facts = RigFacts {
        kind,
        why,
        postgres_version,
        rabbitmq_version,
        postgres_settings: settings,
        ready_seconds: begun.elapsed().as_secs_f64(),
    };
    Ok((facts, checkpoints))
}
