//! Which rig it will be, and how it comes up.

use std::{path::PathBuf, time::Instant};

use sqlx::Connection;

use super::{
    AMQP_URL, ContainerFacts, DATABASE_URL, Rig, RigChoice, RigError, RigFacts, RigKind, RigRequest,
    binaries, broker,
    containers::{Containers, ImageName},
    docker,
    endpoints::{CONNECT_WITHIN, Endpoints, no_answer},
    engine::Engine,
    folder::{self, Folder},
    guard::Guard,
    names, postgres, probe, rabbitmq,
    run_lock::RunLock,
    secret,
    server::{Ground, Server, User},
    space::{Rights, Separation},
    sweep,
    teardown::Held,
    vitals::Vitals,
};
use crate::sampler::probe::said;

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

/// Our own servers while they run. The guard ends them.
pub(crate) struct Servers {
    _folder: Folder,
    /// None of them where they are containers.
    _servers: Vec<Server>,
}

/// What was decided.
enum Decision {
    Local(binaries::Postgres, binaries::RabbitMq),
    Docker(Box<Containerised>),
    External(Box<Endpoints>),
}

/// An engine and images that it has.
struct Containerised {
    engine: Engine,
    images: [docker::Image; 2],
    limits: Containers,
}

/// Where progress is told, one line at a time.
pub(crate) type Say<'a> = &'a (dyn Fn(&str) + Sync);

pub(crate) async fn provision(request: &RigRequest, say: Say<'_>) -> Result<Rig, RigError> {
    let begun = Instant::now();
    let mut why = Vec::new();
    // Whatever can be wrong is found before anything starts.
    let decision = decide(request, &mut why, say).await?;
    let run = secret::random(names::RUN_LENGTH)?;
    let guard = Guard::start(&request.exe).await?;
    let mut up = match decision {
        Decision::Local(postgres, rabbitmq) => local(&run, &postgres, &rabbitmq, &guard).await?,
        Decision::Docker(found) => containers(&run, &found, &guard).await?,
        Decision::External(endpoints) => external(&run, endpoints, &guard).await?,
    };
    why.append(&mut up.swept);
    probe::send(&up.endpoints, up.separation, &run).await?;
    let (facts, checkpoints) = facts(&up, why, begun).await?;
    Ok(Rig { facts, run, endpoints: up.endpoints, checkpoints, guard, _lock: up.lock, _servers: up.servers })
}

/// Servers that answer, and what belongs to them.
struct Up {
    kind: RigKind,
    endpoints: Endpoints,
    swept: Vec<String>,
    servers: Option<Servers>,
    containers: Option<ContainerFacts>,
    lock: Option<RunLock>,
    separation: Separation,
}

impl Up {
    fn new(kind: RigKind, endpoints: Endpoints, swept: Vec<String>) -> Self {
        Self {
            kind,
            endpoints,
            swept,
            servers: None,
            containers: None,
            lock: None,
            separation: Separation::Databases,
        }
    }
}

async fn decide(request: &RigRequest, why: &mut Vec<String>, say: Say<'_>) -> Result<Decision, RigError> {
    let decision = match request.choice {
        RigChoice::External => {
            why.push("external: asked for".to_owned());
            Decision::External(Box::new(urls(request)?))
        }
        RigChoice::Docker => {
            let found = look_for_containers(request, say).await?;
            why.push(format!("docker: asked for ({})", found.engine.version));
            Decision::Docker(Box::new(found))
        }
        RigChoice::Local => {
            let (postgres, rabbitmq) = look_for_binaries(request)?;
            why.push(taken("local: asked for", &postgres, &rabbitmq));
            Decision::Local(postgres, rabbitmq)
        }
        RigChoice::Auto => first_that_works(request, why, say).await?,
    };
    let wishes = request.wishes.asked().wishes();
    if !wishes.is_empty() && !matches!(decision, Decision::Docker(_)) {
        why.push(format!("not used, because there are no containers: {}", wishes.join(", ")));
    }
    Ok(decision)
}

async fn first_that_works(
    request: &RigRequest,
    why: &mut Vec<String>,
    say: Say<'_>,
) -> Result<Decision, RigError> {
    match &request.external {
        (Some(_), Some(_)) => {
            why.push(format!("external: {DATABASE_URL} and {AMQP_URL} are set"));
            return Ok(Decision::External(Box::new(urls(request)?)));
        }
        (Some(_), None) => why.push(format!("not external: {AMQP_URL} is not set")),
        (None, Some(_)) => why.push(format!("not external: {DATABASE_URL} is not set")),
        (None, None) => why.push(format!("not external: {DATABASE_URL} and {AMQP_URL} are not set")),
    }
    if request.pg_bin.is_some() {
        why.push("not docker: --pg-bin is for the local rig".to_owned());
    } else if docker::engine_is_outside().await {
        why.push(format!("not docker: {}", docker::ENGINE_IS_OUTSIDE));
    } else {
        match look_for_containers(request, say).await {
            Ok(found) => {
                why.push(format!("docker: {} answers and has the images", found.engine.version));
                return Ok(Decision::Docker(Box::new(found)));
            }
            Err(RigError::Missing { what, .. } | RigError::Refused { reason: what, .. }) => {
                why.push(format!("not docker: {what}"));
            }
            Err(error) => return Err(error),
        }
    }
    match look_for_binaries(request) {
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

fn look_for_binaries(request: &RigRequest) -> Result<(binaries::Postgres, binaries::RabbitMq), RigError> {
    let found = (binaries::postgres(request.pg_bin.as_deref())?, binaries::rabbitmq()?);
    binaries::localhost()?;
    Ok(found)
}

/// An engine that answers, with both images: those that are missing are pulled.
async fn look_for_containers(request: &RigRequest, say: Say<'_>) -> Result<Containerised, RigError> {
    let wishes = request.wishes.all();
    let engine = Engine::connect().await?;
    check_limits(&engine, &wishes).await?;
    let [postgres, rabbitmq] = wishes.images();
    let images = tokio::try_join!(get(&engine, postgres, say), get(&engine, rabbitmq, say))?;
    Ok(Containerised { engine, images: images.into(), limits: wishes })
}

/// A limit that limits nothing would stand in the record, or the engine refuses it.
async fn check_limits(engine: &Engine, wishes: &Containers) -> Result<(), RigError> {
    if wishes.cpus.is_none() && wishes.memory.is_none() {
        return Ok(());
    }
    let (cpus, memory) = engine.size().await?;
    let beyond = |what: String| RigError::Misconfigured {
        what,
        way_out: "Lower the limit (--cpus, --memory, or [rig] in the scenario), or leave it out".to_owned(),
    };
    if let Some(asked) = wishes.cpus
        && asked.nanos() > cpus.saturating_mul(1_000_000_000)
    {
        return Err(beyond(format!("{asked} CPUs are more than the Docker engine's {cpus}")));
    }
    if let Some(asked) = wishes.memory
        && asked.bytes() > memory
    {
        return Err(beyond(format!("{asked} are more than the Docker engine's {} MiB", memory >> 20)));
    }
    Ok(())
}

async fn get(engine: &Engine, name: ImageName, say: Say<'_>) -> Result<docker::Image, RigError> {
    let mut id = engine.image(&name).await?;
    if id.is_none() {
        engine.pull(&name, say).await?;
        id = engine.image(&name).await?;
    }
    let id =
        id.ok_or_else(|| RigError::refused(format!("get image {name}"))("it is not there after its pull"))?;
    Ok(docker::Image { name, id })
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
) -> Result<Up, RigError> {
    let swept = sweep::folders(&folder::base()).await;
    let user = User::unprivileged()?;
    let path = Folder::path_of(run);
    if let Some(user) = &user {
        user.can_reach(&path)?;
    }
    let folder = guarded_folder(path, guard)?;
    let ground = Ground { folder: folder.path().to_owned(), user };
    // The first to fail ends the other: the guard is dropped with this future.
    let (postgres, rabbitmq) = tokio::try_join!(
        postgres::start(&ground, postgres, guard),
        rabbitmq::start(&ground, rabbitmq, run, guard),
    )?;
    let servers =
        Servers { _folder: folder, _servers: vec![postgres.server, rabbitmq.server, rabbitmq.port_mapper] };
    let endpoints = Endpoints::parse(&postgres.url, &rabbitmq.url)?;
    Ok(Up { servers: Some(servers), ..Up::new(RigKind::Local, endpoints, swept) })
}

/// Makes a run's folder. The guard hears of it twice: before it is there, so that none is left, and when it has a lock,
/// which the guard then shares.
fn guarded_folder(path: PathBuf, guard: &Guard) -> Result<Folder, RigError> {
    guard.hold(Held::Folder(path.clone()));
    let folder = Folder::make(path.clone())?;
    guard.hold(Held::Folder(path));
    Ok(folder)
}

/// Starts both containers at once. The run's folder holds nothing but the lock that says that it lives.
async fn containers(run: &str, found: &Containerised, guard: &Guard) -> Result<Up, RigError> {
    let Containerised { engine, images, limits } = found;
    let mut swept = sweep::containers(engine).await;
    swept.extend(sweep::folders(&folder::base()).await);
    let folder = guarded_folder(Folder::path_of(run), guard)?;
    guard.hold(Held::Containers { run: run.to_owned() });
    let ground = docker::Ground { engine, run, folder: folder.path(), limits };
    let endpoints = docker::start(&ground, images).await?;
    guard.hold(Held::ContainersAreMade);
    let [postgres, rabbitmq] = images;
    let facts = ContainerFacts {
        engine: engine.version.clone(),
        postgres_image: postgres.name.clone(),
        postgres_image_id: postgres.id.clone(),
        rabbitmq_image: rabbitmq.name.clone(),
        rabbitmq_image_id: rabbitmq.id.clone(),
        cpus: limits.cpus,
        memory_bytes: limits.memory,
    };
    let servers = Servers { _folder: folder, _servers: Vec::new() };
    let up = Up::new(RigKind::Docker, endpoints, swept);
    Ok(Up { servers: Some(servers), containers: Some(facts), ..up })
}

/// Looks whether both servers are there, takes the run's lock and sweeps what dead runs left.
async fn external(run: &str, endpoints: Box<Endpoints>, guard: &Guard) -> Result<Up, RigError> {
    // Both, so that an error names whichever is missing within one deadline.
    let (mut connection, broker) =
        tokio::try_join!(endpoints.connect(), broker::Broker::connect(&endpoints.amqp))?;
    broker.close().await;
    refuse_pooler(&endpoints).await?;
    let rights = Rights::read(&mut connection).await?;
    let separation = rights.separation()?;
    let _ = connection.close().await;
    let lock = RunLock::take(&endpoints, run).await?;
    guard.hold(Held::Made {
        run: run.to_owned(),
        database_url: endpoints.database_url.clone(),
        amqp_url: endpoints.amqp.0.as_str().to_owned(),
    });
    let swept = sweep::made(&endpoints, run).await?;
    Ok(Up { lock: Some(lock), separation, ..Up::new(RigKind::External, *endpoints, swept) })
}

/// A pooler in between would be measured as the database's, and breaks what must hold for a session: prepared statements,
/// `search_path`, the lock that says that the run lives.
pub(crate) async fn refuse_pooler(endpoints: &Endpoints) -> Result<(), RigError> {
    // Each of its connections may take as long as any other.
    let looked = drainer::pooler::shares_sessions(&endpoints.database);
    match tokio::time::timeout(drainer::pooler::CONNECTIONS * CONNECT_WITHIN, looked).await {
        Ok(Ok(false)) => Ok(()),
        // Too few connections for a look are too few for a cell, and the count before it says so better.
        Ok(Err(sqlx::Error::Database(refusal))) if refusal.code().is_some_and(|code| code == "53300") => {
            Ok(())
        }
        Ok(Ok(true)) => Err(RigError::Missing {
            what: format!(
                "PostgreSQL at {} is reached through a pooler that gives each transaction another session (PgBouncer with \
                 pool_mode = transaction), where neither drainers nor load nor sampler work as they are meant to",
                endpoints.database_at()
            ),
            way_out: format!("Name the server itself in {DATABASE_URL}, or a pool with pool_mode = session"),
        }),
        Ok(Err(error)) => Err(RigError::refused("look for a pooler")(said(&error))),
        Err(_) => Err(RigError::refused("look for a pooler")(no_answer())),
    }
}

/// What a report says of the rig, and whether a CHECKPOINT is allowed.
async fn facts(up: &Up, mut why: Vec<String>, begun: Instant) -> Result<(RigFacts, bool), RigError> {
    let endpoints = &up.endpoints;
    let refused = || RigError::refused::<sqlx::Error>("read PostgreSQL's settings");
    let mut connection = endpoints.connect().await?;
    let postgres_version = sqlx::query_scalar("SELECT current_setting('server_version')")
        .fetch_one(&mut connection)
        .await
        .map_err(refused())?;
    let settings = Vitals::read(endpoints).await?.into_settings();
    let rights = Rights::read(&mut connection).await?;
    let _ = connection.close().await;
    why.extend(limits(up, rights));
    let rabbitmq_version = broker::version(&endpoints.amqp.0).await.unwrap_or_else(|_| "unknown".to_owned());
    let facts = RigFacts {
        kind: up.kind,
        why,
        separation: up.separation,
        postgres_version,
        rabbitmq_version,
        postgres_settings: settings,
        containers: up.containers.clone(),
        ready_seconds: begun.elapsed().as_secs_f64(),
    };
    Ok((facts, rights.checkpoint))
}

/// What can't be done or seen here, and what follows.
fn limits(up: &Up, rights: Rights) -> Vec<String> {
    let mut limits = Vec::new();
    if up.separation == Separation::Schemas {
        limits.push(
            "schemas instead of databases: the role may not create any; what others do in the same database is in its WAL \
             and dead tuples as well, and commits are not measured"
                .to_owned(),
        );
    }
    if !rights.checkpoint {
        limits.push(
            "no CHECKPOINT before a cell: the role is neither superuser nor a member of pg_checkpoint"
                .to_owned(),
        );
    }
    if !rights.read_all_stats {
        limits.push(
            "sessions of other roles (autovacuum, replication) are not seen: the role is no member of pg_monitor"
                .to_owned(),
        );
    }
    limits
}
