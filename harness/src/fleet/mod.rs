//! The drainers of a cell: in the services' process on their pools, or as children that can be killed.

mod child;

use std::{ops::Range, path::Path, sync::Arc, time::Duration};

use drainer::{Broker, Config, Design, Drainer, Observer};
use tokio::{
    sync::{Mutex, mpsc},
    task::JoinHandle,
};
use tokio_util::sync::{CancellationToken, DropGuard};

pub(crate) use self::child::Child;
use crate::{
    clock::Clock,
    history::{DrainerTick, ProcessUse},
    load::{Client, Work},
    raw,
    rig::{Rig, World},
    scenario::{Cell, CellDesign, DrainerSettings, Placement},
};

/// A drainer waits this long for one word of the broker that is no confirm.
const BROKER_WITHIN: Duration = Duration::from_secs(10);
/// Beyond `stop_within`, before a drainer is aborted (or killed) and the run told so.
const STOP_MARGIN: Duration = Duration::from_secs(5);

/// Running drainers.
pub struct Fleet<'a> {
    members: Vec<Member<'a>>,
    reports: mpsc::UnboundedReceiver<DrainerTick>,
    // Dropped early (the run failed), it stops the drainers all the same.
    stop: Option<DropGuard>,
    stop_within: Duration,
    started_ns: u64,
    clock: Clock,
}

enum Member<'a> {
    InService {
        name: String,
        task: JoinHandle<()>,
    },
    /// Whoever breaks it holds the lock.
    Process(Box<Mutex<Child<'a>>>),
}

/// What is left of a fleet once it stopped.
#[derive(Debug, Default)]
pub struct Drained {
    /// From the first start to the last stop; `None` without drainers.
    pub span_ns: Option<Range<u64>>,
    /// What they told.
    pub ticks: Vec<DrainerTick>,
    /// What processes used.
    pub processes: Vec<ProcessUse>,
    /// Who did not stop in time, or ended by itself.
    pub misconduct: Vec<String>,
}

/// Why a drainer could not be started.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// The settings are no valid ones for the drainer crate, although the scenario took them.
    #[error("the drainer refuses the cell's settings: {0}")]
    Settings(#[from] drainer::ConfigError),
    /// No AMQP URL.
    #[error("the drainer refuses the broker's URL: {0}")]
    Broker(#[from] drainer::DrainError),
    /// The child did not start.
    #[error("the drainer process of {service} did not start: {source}")]
    Spawn {
        /// Whose.
        service: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The yardstick has no broker.
    #[error(transparent)]
    Raw(#[from] raw::RawError),
}

/// What a fleet is started with.
#[derive(Clone, Copy)]
pub struct Ground<'a> {
    /// Which design, and where.
    pub cell: &'a Cell,
    /// Whose guard is told of children.
    pub rig: &'a Rig,
    /// Its databases and exchanges.
    pub world: &'a World,
    /// The services' pools.
    pub clients: &'a [Client],
    /// What is written, for the yardstick that publishes it.
    pub work: &'a Work,
    /// Our own program, which drainer processes are.
    pub exe: &'a Path,
}

/// The commits that the `raw` yardstick publishes.
pub type Commits = mpsc::UnboundedReceiver<(u16, u32)>;

impl<'a> Fleet<'a> {
    /// Starts the cell's drainers; `None` where its design has none.
    ///
    /// # Errors
    /// What was started until then is stopped.
    pub async fn start(ground: Ground<'a>, commits: Option<Commits>) -> Result<Option<Self>, FleetError> {
        let (report, reports) = mpsc::unbounded_channel();
        let clock = ground.work.clock;
        let started_ns = clock.now_ns();
        let stop = CancellationToken::new();
        // Held from here on: where a later drainer cannot start, the earlier ones stop.
        let stop_all = stop.clone().drop_guard();
        let members = match (ground.cell.design, commits) {
            (CellDesign::None, _) | (CellDesign::Raw, None) => return Ok(None),
            (CellDesign::Raw, Some(commits)) => {
                let task = raw::start(ground, commits, report, stop.clone()).await?;
                vec![Member::InService { name: "raw".to_owned(), task }]
            }
            (CellDesign::SingleTx, _) => drainers(ground, Design::SingleTx, &report, &stop)?,
            (CellDesign::Lease, _) => drainers(ground, Design::Lease, &report, &stop)?,
        };
        let settings = &ground.cell.settings;
        let stop_within = match ground.cell.design {
            // It stops once everything that was committed is published, which for a backlog is the drain itself.
            CellDesign::Raw => settings.load.drain_deadline,
            CellDesign::None | CellDesign::SingleTx | CellDesign::Lease => settings.drainer.stop_within,
        };
        Ok(Some(Self { members, reports, stop: Some(stop_all), stop_within, started_ns, clock }))
    }

    /// The drainers that are processes.
    pub(crate) fn processes(&self) -> impl Iterator<Item = &Mutex<Child<'a>>> {
        self.members.iter().filter_map(|member| match member {
            Member::InService { .. } => None,
            Member::Process(child) => Some(&**child),
        })
    }

    /// Stops every drainer cleanly, and by force where that takes longer than allowed.
    pub async fn stop(mut self) -> Drained {
        self.stop.take();
        for child in self.processes() {
            child.lock().await.ask_to_stop();
        }
        let until = tokio::time::Instant::now() + self.stop_within + STOP_MARGIN;
        let mut drained = Drained::default();
        for member in self.members {
            match member {
                Member::InService { name, mut task } => {
                    match tokio::time::timeout_at(until, &mut task).await {
                        Ok(Ok(())) => {}
                        Ok(Err(error)) => {
                            drained.misconduct.push(format!("drainer {name} panicked: {error}"));
                        }
                        Err(_) => {
                            task.abort();
                            drained.misconduct.push(format!("drainer {name} did not stop in time"));
                        }
                    }
                }
                Member::Process(child) => {
                    let (used, misconduct) = child.into_inner().ended(until).await;
                    drained.processes.push(used);
                    drained.misconduct.extend(misconduct);
                }
            }
        }
        drained.span_ns = Some(self.started_ns..self.clock.now_ns());
        self.reports.close();
        while let Some(tick) = self.reports.recv().await {
            drained.ticks.push(tick);
        }
        drained
    }
}

fn drainers<'a>(
    ground: Ground<'a>,
    design: Design,
    report: &mpsc::UnboundedSender<DrainerTick>,
    stop: &CancellationToken,
) -> Result<Vec<Member<'a>>, FleetError> {
    let settings = &ground.cell.settings.drainer;
    let mut members = Vec::new();
    for client in ground.clients {
        for instance in 0..u16::try_from(settings.instances.get()).unwrap_or(u16::MAX) {
            let at = Seat { service: client.service, instance };
            members.push(match settings.placement {
                Placement::InService => in_service(ground, design, client, at, report, stop)?,
                Placement::Process => {
                    let name = ground.world.services[usize::from(client.service)].name.clone();
                    let child = Child::spawn(ground, design, at, report.clone());
                    let child = child.map_err(|source| FleetError::Spawn { service: name, source })?;
                    Member::Process(Box::new(Mutex::new(child)))
                }
            });
        }
    }
    Ok(members)
}

/// Which drainer of which service.
#[derive(Debug, Clone, Copy)]
struct Seat {
    service: u16,
    instance: u16,
}

fn in_service<'a>(
    ground: Ground<'a>,
    design: Design,
    client: &Client,
    at: Seat,
    report: &mpsc::UnboundedSender<DrainerTick>,
    stop: &CancellationToken,
) -> Result<Member<'a>, FleetError> {
    let service = &ground.world.services[usize::from(at.service)];
    let name = format!("{}:{}", service.tag, at.instance);
    let config = config(&ground.cell.settings.drainer, &name, &service.exchange)?;
    let url = ground.world.links.broker_url(at.service, at.instance);
    let broker = Broker::new(url.as_str(), &format!("drainer:{name}"), BROKER_WITHIN)?;
    let (report, clock) = (report.clone(), ground.work.clock);
    let observer: Observer = Arc::new(move |tick| {
        // After the fleet stopped nobody listens, and nothing is lost by it.
        let _ = report.send(DrainerTick {
            service: at.service,
            instance: at.instance,
            at_ns: clock.now_ns(),
            tick,
        });
    });
    let drainer = Drainer::new(design, client.pool.clone(), broker, config).observed_by(observer);
    let stop = stop.clone();
    let task = tokio::spawn(async move { drainer.run(stop).await });
    Ok(Member::InService { name, task })
}

/// The scenario's settings as the drainer's own.
fn config(settings: &DrainerSettings, id: &str, exchange: &str) -> Result<Config, drainer::ConfigError> {
    Config::builder()
        .batch_size(settings.batch_size.get())
        .pipeline_depth(settings.pipeline_depth.get())
        .lease_ttl(settings.lease_ttl)
        .poll_interval(settings.poll_interval)
        .confirm_timeout(settings.confirm_timeout)
        .stop_within(settings.stop_within)
        .id(id)
        .exchange(exchange)
        .build()
}
