//! The yardstick `raw`: the same messages through a sliding window, no database. The broker client's ceiling.
//!
//! It takes the drainers' road to the broker (their link, their exchange), so that a design's share of it is a
//! share of the same thing. Each event is published when its write's COMMIT returned, a backlog from the plan at the start.

use std::time::Duration;

use futures_util::{StreamExt, stream::FuturesUnordered};
use lapin::{
    Channel, Confirmation,
    options::{BasicPublishOptions, ConfirmSelectOptions},
};
use tokio::{sync::mpsc, task::JoinHandle, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    clock::Clock,
    fleet::{Commits, Ground},
    history::{DrainerTick, EventRef},
    load::{self, Work},
};

/// Unconfirmed publishes at most: beyond 1,000 the client gained nothing when it was measured (9,768 events a second).
const WINDOW: usize = 1_000;
/// Deadline of one word with the broker, and of one confirm.
const BROKER_WITHIN: Duration = Duration::from_secs(30);
const REPORT_EVERY: Duration = Duration::from_secs(1);

/// Why the yardstick could not start.
#[derive(Debug, thiserror::Error)]
pub enum RawError {
    /// The broker said no.
    #[error("the raw publisher could not {doing}: {source}")]
    Broker {
        /// What it was at.
        doing: &'static str,
        /// The client's error.
        #[source]
        source: lapin::Error,
    },
    /// The broker did not answer.
    #[error("the broker did not answer within {} s when the raw publisher wanted to {doing}", BROKER_WITHIN.as_secs())]
    Silent {
        /// What it was at.
        doing: &'static str,
    },
}

/// Starts publishing: the backlog, then every write that `commits` names, until `stop` and the last confirm.
///
/// # Errors
/// When the broker cannot be reached; nothing runs then.
pub async fn start(
    ground: Ground<'_>,
    commits: Commits,
    report: mpsc::UnboundedSender<DrainerTick>,
    stop: CancellationToken,
) -> Result<JoinHandle<()>, RawError> {
    let connection = within("connect", ground.world.links.broker_url(0, 0).connect("drainer:raw")).await?;
    let channel = within("open a channel", connection.create_channel()).await?;
    within("switch on confirms", channel.confirm_select(ConfirmSelectOptions::default())).await?;
    let exchanges = ground.world.services.iter().map(|service| service.exchange.clone()).collect();
    let work = ground.work.clone();
    let publisher = Publisher { channel, exchanges, work, told: Told::new(report, ground.work.clock) };
    Ok(tokio::spawn(async move {
        publisher.run(commits, stop).await;
        // Closing tells the broker; what it then answers changes nothing.
        let _ = connection.close(200, "done".into()).await;
    }))
}

async fn within<T>(doing: &'static str, word: impl Future<Output = lapin::Result<T>>) -> Result<T, RawError> {
    match tokio::time::timeout(BROKER_WITHIN, word).await {
        Ok(answer) => answer.map_err(|source| RawError::Broker { doing, source }),
        Err(_) => Err(RawError::Silent { doing }),
    }
}

/// What the client calls a publisher confirm and does not let us name.
trait Confirm: Future<Output = lapin::Result<Confirmation>> + Send {}
impl<T: Future<Output = lapin::Result<Confirmation>> + Send> Confirm for T {}

struct Publisher {
    channel: Channel,
    exchanges: Vec<String>,
    work: Work,
    told: Told,
}

impl Publisher {
    async fn run(mut self, mut commits: Commits, stop: CancellationToken) {
        let mut window = FuturesUnordered::new();
        let plan = std::sync::Arc::clone(&self.work.plan);
        let mut backlog =
            plan.services.iter().flat_map(|service| (0..service.backlog).map(|write| (service.index, write)));
        let mut next = backlog.next();
        loop {
            let write = match next {
                Some(write) => Some(write),
                None => tokio::select! {
                    biased;
                    // Stopped after the load ended: what was committed is in the channel already.
                    () = stop.cancelled() => commits.try_recv().ok(),
                    write = commits.recv() => write,
                    Some(confirmed) = window.next(), if !window.is_empty() => { self.told.confirmed(confirmed); continue }
                },
            };
            let Some((service, write)) = write else { break };
            for event in 0..plan.events_per_write() {
                while window.len() >= WINDOW {
                    if let Some(confirmed) = window.next().await {
                        self.told.confirmed(confirmed);
                    }
                }
                match self.publish(service, EventRef { write, event }).await {
                    Ok(confirm) => window.push(timed(Instant::now(), confirm)),
                    Err(error) => self.told.failed(error.to_string()),
                }
            }
            if next.is_some() {
                next = backlog.next();
            }
        }
        while let Some(confirmed) = window.next().await {
            self.told.confirmed(confirmed);
        }
        self.told.tell();
    }

    async fn publish(
        &self,
        service: u16,
        at: EventRef,
    ) -> Result<impl Confirm + use<>, Box<dyn std::error::Error + Send + Sync>> {
        let event = load::build(&self.work, service, at)?;
        let exchange = self.exchanges[usize::from(service)].as_str();
        let body = event.to_json();
        let publish = self.channel.basic_publish(
            exchange.into(),
            event.event_type.as_str().into(),
            BasicPublishOptions::default(),
            body.as_bytes(),
            drainer::publish::properties(&event),
        );
        Ok(within("publish", publish).await?)
    }
}

async fn timed(published: Instant, confirm: impl Confirm) -> Result<Duration, String> {
    match tokio::time::timeout(BROKER_WITHIN, confirm).await {
        Ok(Ok(Confirmation::Ack(None))) => Ok(published.elapsed()),
        Ok(Ok(other)) => Err(format!("{other:?}")),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("no confirm in time".to_owned()),
    }
}

/// Gathers what is told once a second.
struct Told {
    report: mpsc::UnboundedSender<DrainerTick>,
    clock: Clock,
    tick: drainer::Tick,
    last: Instant,
}

impl Told {
    fn new(report: mpsc::UnboundedSender<DrainerTick>, clock: Clock) -> Self {
        Self { report, clock, tick: drainer::Tick::default(), last: Instant::now() }
    }
    fn confirmed(&mut self, confirmed: Result<Duration, String>) {
        match confirmed {
            Ok(took) => {
                self.tick.stats.claimed += 1;
                self.tick.stats.confirmed += 1;
                self.tick.confirm_us.push(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
            }
            Err(error) => self.failed(error),
        }
        if self.last.elapsed() >= REPORT_EVERY {
            self.tell();
        }
    }
    fn failed(&mut self, error: String) {
        self.tick.stats.claimed += 1;
        self.tick.stats.failed += 1;
        self.tick.error = Some(error);
    }
    fn tell(&mut self) {
        let tick = std::mem::take(&mut self.tick);
        self.last = Instant::now();
        // After the fleet stopped nobody listens, and nothing is lost by it.
        let _ = self.report.send(DrainerTick { service: 0, instance: 0, at_ns: self.clock.now_ns(), tick });
    }
}
