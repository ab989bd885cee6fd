//! One cell, from an empty world to its history. The only place that knows the order.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use sqlx::{Connection as _, PgConnection, postgres::PgPoolOptions};
use tokio::{sync::mpsc, task::JoinSet};
use tokio_util::sync::CancellationToken;

use crate::{
    clock::Clock,
    database::{APPLICATION_NAME as OWN_SESSION, Inspector},
    fault,
    fleet::{Drained, Fleet, Ground},
    history::{EventRef, History, ServiceHistory, Write},
    live::Live,
    load::{self, Client, Work},
    plan::{Payloads, Plan},
    rig::{Rig, Separation, ServiceWorld, World},
    sampler::{Sampler, Watched},
    scenario::{Cell, CellDesign},
    sink::{self, Sink},
};

/// Between "everything is connected" and the first write that is due: drainers start in it. A whole second, so that the
/// seconds of the series are those of the schedule.
const HEAD_START: Duration = Duration::from_secs(1);
/// How often an outbox is asked whether it is empty, once its writes are done.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How long the broker may take to close the connections of drainers that stopped.
const CLOSED_WITHIN: Duration = Duration::from_secs(15);
/// How long the last markers may take: a full queue is read at thousands of messages a second.
const MARKERS_WITHIN: Duration = Duration::from_secs(60);
/// How long a database may take to answer while a cell is put together or taken apart.
const DATABASE_WITHIN: Duration = Duration::from_secs(30);

/// Why a cell has no history.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A service has no connection.
    #[error("service {service} cannot use its database: {source}")]
    Service {
        /// Which.
        service: String,
        /// Why.
        #[source]
        source: sqlx::Error,
    },
    /// Its backlog is missing.
    #[error(transparent)]
    Backlog(#[from] load::BacklogError),
    /// Nobody counts arrivals.
    #[error(transparent)]
    Sink(#[from] crate::sink::SinkError),
    /// Nobody watches.
    #[error(transparent)]
    Sampler(#[from] crate::sampler::SamplerError),
    /// Nobody counts.
    #[error(transparent)]
    Inspector(#[from] crate::database::InspectorError),
    /// Nobody drains.
    #[error(transparent)]
    Fleet(#[from] crate::fleet::FleetError),
    /// A task of the instrument itself failed.
    #[error("a task of the instrument failed: {0}")]
    Task(#[from] tokio::task::JoinError),
    /// Stopped before there was anything to measure.
    #[error("interrupted before the first write was due")]
    Interrupted,
}

/// What a cell runs with.
#[derive(Clone, Copy)]
pub struct Setting<'a> {
    /// What is asked.
    pub cell: &'a Cell,
    /// Where.
    pub rig: &'a Rig,
    /// Its databases, exchanges and queues.
    pub world: &'a World,
    /// Ends it early.
    pub stop: &'a CancellationToken,
    /// Our own program, which drainer processes are.
    pub exe: &'a Path,
    /// For people.
    pub live: &'a Arc<Live>,
}

/// Runs one cell.
///
/// # Errors
/// The cell's drainers have been told to stop and nothing waits for them; its world is still there and the caller's to
/// remove.
pub async fn run(setting: Setting<'_>, plan: Plan, seed: u64) -> Result<History, RunError> {
    let Setting { cell, world, stop, live, .. } = setting;
    let plan = Arc::new(plan.starting_later(u64::try_from(HEAD_START.as_nanos()).unwrap_or(0)));
    let payloads = Arc::new(Payloads::new(seed, plan.load.payload_bytes));
    // Before the pools: a session that was there before would hand in its counters late.
    let databases: Vec<_> = world.services.iter().map(|service| service.database.clone()).collect();
    let run = shares_a_database(setting.rig).then(|| setting.rig.run());
    let inspector = Inspector::start(&databases, &world.admin, run).await?;
    let clients = clients(cell, world).await?;
    let work = |clock, committed| Work {
        plan: Arc::clone(&plan),
        payloads: Arc::clone(&payloads),
        clock,
        live: Arc::clone(live),
        committed,
    };
    let backlogs = backlogs(&clients, &work(Clock::starting_at(Instant::now()), None), stop).await?;

    let queues: Vec<String> = world.services.iter().map(|service| service.queue.clone()).collect();
    let consumers = sink::subscribe(&world.broker, &queues).await?;
    // Before anybody can drain, so that no arrival is earlier than the clock.
    let clock = Clock::starting_at(Instant::now());
    let started_at = jiff::Timestamp::now();
    let sampler = sampler(setting, clock).await?;
    let sink = Sink::start(consumers, &plan, clock, live);

    let (committed, commits) = mpsc::unbounded_channel();
    let raw = cell.design == CellDesign::Raw;
    // The fleet's has no sender: the yardstick ends when the load's is dropped.
    let (work, watched) = (work(clock, raw.then_some(committed)), work(clock, None));
    let ground =
        Ground { cell, rig: setting.rig, world, clients: &clients, work: &watched, exe: setting.exe };
    let fleet = Fleet::start(ground, raw.then_some(commits)).await?;
    let (scheduled, mut faults) = {
        let start_ns = plan.start_ns;
        let broken =
            fault::Ground { cell, world, clients: &clients, fleet: fleet.as_ref(), clock, start_ns, stop };
        tokio::join!(schedule(&clients, &work, stop, cell), fault::run(broken))
    };
    drop(work);

    let looks = Looks::default();
    let drained = drain(fleet, setting, &looks).await;
    let scheduled = scheduled?;
    let mut misconduct = drained.misconduct;
    misconduct.extend(connections_closed(world).await);
    let reads = sink.finish(MARKERS_WITHIN).await?;
    let samples = sampler.stop().await;
    let troubles = pools_closed(&clients).await;
    let database = inspector.finish(looks.commits()).await;
    let services = services(world, &plan, backlogs, scheduled, reads).await?;
    faults.extend(fault::late_commit_spans(cell, &plan, &services));
    faults.sort_by_key(|span| span.began_ns);
    Ok(History {
        started_at,
        window_ns: plan.window_ns(),
        plan: Arc::unwrap_or_clone(plan),
        drained_ns: drained.span_ns,
        services,
        ticks: drained.ticks,
        faults,
        witness: world.links.idle(),
        processes: drained.processes,
        samples,
        database,
        troubles,
        void: Vec::new(),
        misconduct,
        interrupted: stop.is_cancelled(),
    })
}

/// Whether services work in one database, where others may work as well.
fn shares_a_database(rig: &Rig) -> bool {
    match rig.facts().separation {
        Separation::Databases => false,
        Separation::Schemas => true,
    }
}

async fn sampler(setting: Setting<'_>, clock: Clock) -> Result<Sampler, crate::sampler::SamplerError> {
    let is_shared = shares_a_database(setting.rig);
    let services = setting.world.services.iter().map(|service| Watched {
        database: service.database_name.clone(),
        tag: is_shared.then(|| service.tag.clone()),
    });
    Sampler::start(
        setting.world.admin.clone(),
        services.collect(),
        &setting.cell.settings.sampler,
        clock.origin(),
    )
    .await
}

/// Each service's pool, every connection open: the first writes of a service do not measure connecting.
async fn clients(cell: &Cell, world: &World) -> Result<Vec<Client>, RunError> {
    let settings = &cell.settings.service;
    let mut clients = Vec::with_capacity(world.services.len());
    for (service, place) in world.services.iter().zip(0..) {
        let options = service.database.clone().application_name(&format!("drainbench:{}", service.tag));
        let pool = PgPoolOptions::new()
            .max_connections(settings.pool.get())
            .min_connections(settings.pool.get())
            .acquire_timeout(settings.acquire_timeout)
            .max_lifetime(None)
            .idle_timeout(None)
            .connect_with(options)
            .await
            .map_err(|source| RunError::Service { service: service.name.clone(), source })?;
        clients.push(Client { service: place, pool });
    }
    Ok(clients)
}

/// All backlogs, one after another within a service, services side by side.
async fn backlogs(
    clients: &[Client],
    work: &Work,
    stop: &CancellationToken,
) -> Result<Vec<Vec<Write>>, RunError> {
    let mut tasks = JoinSet::new();
    for client in clients {
        let (client, work) = (client.clone(), work.clone());
        tasks.spawn(async move { (client.service, load::backlog(&client, &work).await) });
    }
    tokio::select! {
        biased;
        () = stop.cancelled() => Err(RunError::Interrupted),
        backlogs = of_services(clients, tasks) => backlogs?.into_iter().map(|backlog| Ok(backlog?)).collect(),
    }
}

/// All schedules at once.
async fn schedule(
    clients: &[Client],
    work: &Work,
    stop: &CancellationToken,
    cell: &Cell,
) -> Result<Vec<Vec<Write>>, RunError> {
    let mut tasks = JoinSet::new();
    for client in clients {
        let (client, work, stop) = (client.clone(), work.clone(), stop.clone());
        let held = fault::held_commits(cell, &work.plan, usize::from(client.service));
        tasks.spawn(async move { (client.service, load::run(client, work, held, stop).await) });
    }
    of_services(clients, tasks).await
}

/// What a task of each service returned, in the order of the services.
async fn of_services<T: 'static>(
    clients: &[Client],
    mut tasks: JoinSet<(u16, T)>,
) -> Result<Vec<T>, RunError> {
    let mut ended = Vec::with_capacity(clients.len());
    while let Some(task) = tasks.join_next().await {
        ended.push(task?);
    }
    ended.sort_unstable_by_key(|(service, _)| *service);
    Ok(ended.into_iter().map(|(_, returned)| returned).collect())
}

/// A backend reports its counters when it exits. One that does not let go is closed by dropping the cell's databases.
async fn pools_closed(clients: &[Client]) -> Vec<String> {
    let close = async {
        for client in clients {
            client.pool.close().await;
        }
    };
    let late = tokio::time::timeout(DATABASE_WITHIN, close).await.is_err();
    let within = DATABASE_WITHIN.as_secs();
    late.then(|| {
        format!("a service's connections did not close within {within} s: the database does not answer")
    })
    .into_iter()
    .collect()
}

/// Lets the drainers finish, until every outbox is empty or the deadline has passed, then stops them.
async fn drain(fleet: Option<Fleet<'_>>, setting: Setting<'_>, looks: &Looks) -> Drained {
    let Some(fleet) = fleet else { return Drained::default() };
    let deadline = setting.cell.settings.load.drain_deadline;
    // `raw` has no outbox to look at: it stops once it published what was committed.
    if setting.cell.design != CellDesign::Raw {
        tokio::select! {
            () = setting.stop.cancelled() => {}
            _ = tokio::time::timeout(deadline, all_empty(setting.world, looks)) => {}
        }
    }
    fleet.stop().await
}

/// How often we looked ourselves: each look is a commit that the cell's database counts, and so is each connection.
#[derive(Debug, Default)]
struct Looks(AtomicU64);

impl Looks {
    fn count(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
    fn commits(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

async fn all_empty(world: &World, looks: &Looks) {
    for service in &world.services {
        until_empty(service, looks).await;
    }
}

/// Looks until an outbox holds nothing unpublished. A database that does not answer is asked again: how long, is the
/// drain deadline's matter.
async fn until_empty(service: &ServiceWorld, looks: &Looks) {
    let options = service.database.clone().application_name(OWN_SESSION);
    let mut connection: Option<PgConnection> = None;
    loop {
        if connection.is_none() {
            connection = PgConnection::connect_with(&options).await.ok();
            connection.iter().for_each(|_| looks.count());
        }
        if let Some(open) = &mut connection {
            // One message and so one commit: a prepared statement's first use would be two.
            let unpublished = sqlx::raw_sql("SELECT 1 FROM event_outbox WHERE published_at IS NULL LIMIT 1");
            looks.count();
            match unpublished.fetch_optional(open).await {
                Ok(None) => return,
                Ok(Some(_)) => {}
                Err(_) => connection = None,
            }
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// A drainer that stopped may have bytes on their way: only a closed connection has none.
async fn connections_closed(world: &World) -> Option<String> {
    let closed = async {
        while world.links.broker_connections() > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(CLOSED_WITHIN, closed).await.err().map(|_| {
        format!(
            "{} drainer connections were still open {} s after the drainers had stopped: what they sent may still arrive",
            world.links.broker_connections(),
            CLOSED_WITHIN.as_secs()
        )
    })
}

async fn services(
    world: &World,
    plan: &Plan,
    backlogs: Vec<Vec<Write>>,
    scheduled: Vec<Vec<Write>>,
    reads: Vec<sink::Read>,
) -> Result<Vec<ServiceHistory>, RunError> {
    let mut services = Vec::with_capacity(world.services.len());
    let facts = world.services.iter().zip(0..).zip(backlogs).zip(scheduled).zip(reads);
    for ((((service, place), mut writes), scheduled), read) in facts {
        writes.extend(scheduled);
        services.push(ServiceHistory {
            waiting: waiting(service, plan, place).await?,
            // Neither design of the reference sets events aside.
            dead: Vec::new(),
            writes,
            arrivals: read.arrivals,
            marker_max_ns: read.marker_max_ns,
        });
    }
    Ok(services)
}

/// Events that nobody published, by the table's own word.
async fn waiting(service: &ServiceWorld, plan: &Plan, place: u16) -> Result<Vec<EventRef>, RunError> {
    let failed = |source| RunError::Service { service: service.name.clone(), source };
    let options = service.database.clone().application_name(OWN_SESSION);
    let read = async {
        let mut connection = PgConnection::connect_with(&options).await?;
        let ids: Vec<uuid::Uuid> =
            sqlx::query_scalar("SELECT id FROM event_outbox WHERE published_at IS NULL")
                .fetch_all(&mut connection)
                .await?;
        connection.close().await?;
        Ok(ids)
    };
    let ids = tokio::time::timeout(DATABASE_WITHIN, read).await;
    let ids = ids.unwrap_or_else(|_| Err(sqlx::Error::PoolTimedOut)).map_err(failed)?;
    Ok(ids.into_iter().filter_map(|id| plan.decode(place, id)).collect())
}
