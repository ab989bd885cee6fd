//! The sampler's thread: the only place that knows the order of things.

use std::time::Instant;

use sqlx::postgres::{PgConnectOptions, PgRow};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::{
    APPLICATION_NAME, SampleLog, SamplerError, Watched,
    activity::{Session, bytes, number, statement},
    cost::{BackendCpu, thread_seconds},
    pace::Pace,
    probe::{Probe, ProbeError},
    recorder::Recorder,
    services::Services,
};

/// What to do.
pub(crate) struct Order {
    pub(crate) options: PgConnectOptions,
    pub(crate) services: Vec<Watched>,
    pub(crate) rate: u32,
    pub(crate) origin: Instant,
    pub(crate) stop: CancellationToken,
}

/// Runs until told to stop. Says on `ready` that the first tick can be made, or why it cannot.
pub(crate) fn main(
    order: Order,
    ready: oneshot::Sender<Result<(), SamplerError>>,
    log: oneshot::Sender<SampleLog>,
) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            let _ = ready.send(Err(error.into()));
            return;
        }
    };
    runtime.block_on(async {
        let stop = order.stop.clone();
        let opened = tokio::select! {
            () = stop.cancelled() => return,
            opened = open(&order) => opened,
        };
        match opened {
            Ok(sampling) => {
                // Nobody waits any more: then the stop is on its way.
                let _ = ready.send(Ok(()));
                let _ = log.send(sampling.run(order.origin, &stop).await);
            }
            Err(error) => {
                let _ = ready.send(Err(error));
            }
        }
    });
}

/// Connected and allowed to look.
struct Sampling {
    probe: Probe,
    oids: Vec<sqlx::postgres::types::Oid>,
    recorder: Recorder,
    rate: u32,
    backend: BackendCpu,
    connects: u64,
}

async fn open(order: &Order) -> Result<Sampling, SamplerError> {
    let unreadable = |error: ProbeError| SamplerError::Database(error.to_string());
    let mut probe = Probe::connect(order.options.clone(), APPLICATION_NAME).await.map_err(unreadable)?;
    let databases: Vec<&str> = order.services.iter().map(|service| service.database.as_str()).collect();
    let query = sqlx::query(statement(include_str!("databases.sql"))).bind(databases);
    let rows = probe.rows(query).await.map_err(unreadable)?;
    let services = services(&rows, &order.services)?;
    let oids = services.databases().map(sqlx::postgres::types::Oid).collect();
    let mut backend = BackendCpu::default();
    backend.follow(&mut probe).await.map_err(unreadable)?;
    let connects = probe.connects();
    Ok(Sampling {
        probe,
        oids,
        recorder: Recorder::new(order.rate, services),
        rate: order.rate,
        backend,
        connects,
    })
}

/// Maps oids to places in the plan.
fn services(rows: &[PgRow], watched: &[Watched]) -> Result<Services, SamplerError> {
    let text = |row, column| bytes(row, column).map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    let mut services = Services::default();
    for (place, Watched { database: name, tag }) in watched.iter().enumerate() {
        let row = rows.iter().find(|row| bytes(row, 1).is_ok_and(|found| found == name.as_bytes()));
        let Some(row) = row else { return Err(SamplerError::NoDatabase(name.clone())) };
        let read = || -> Result<_, sqlx::Error> {
            Ok((number(bytes(row, 0)?).map_or(0, u32::from_be_bytes), bytes(row, 2)? == [1], text(row, 3)?))
        };
        let (oid, readable, role) = read().map_err(|error| SamplerError::Database(error.to_string()))?;
        // In a shared one the sessions that count log in as we do, and are not hidden from us.
        if !readable && tag.is_none() {
            return Err(SamplerError::Privilege { role, database: name.clone() });
        }
        services.add(oid, tag.as_deref(), u16::try_from(place).unwrap_or(u16::MAX));
    }
    Ok(services)
}

impl Sampling {
    async fn run(mut self, origin: Instant, stop: &CancellationToken) -> SampleLog {
        let start = Instant::now();
        let own = thread_seconds();
        let mut pace = Pace::new(start, self.rate);
        self.recorder.begin(0);
        let mut cost_due = 0;
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = tokio::time::sleep_until(pace.due().into()) => {}
            }
            let sent = Instant::now();
            tokio::select! {
                biased;
                () = stop.cancelled() => {
                    self.unfinished(&mut pace);
                    break;
                }
                read = self.read() => self.keep(read, [start, sent, Instant::now(), origin]),
            }
            self.recorder.miss(pace.advance(Instant::now()));
            let seconds = start.elapsed().as_secs();
            if seconds > cost_due {
                cost_due = seconds;
                self.backend.read();
            }
        }
        self.backend.read();
        let mut log = self.recorder.finish(ns(start.elapsed()));
        log.own_cpu_seconds = thread_seconds() - own;
        log.backend_cpu_seconds = self.backend.seconds();
        log.wall_seconds = start.elapsed().as_secs_f64();
        self.probe.close().await;
        log
    }

    /// One tick's rows. A new connection is looked up first, so that its backend's cost is known.
    async fn read(&mut self) -> Result<Vec<PgRow>, ProbeError> {
        let query = sqlx::query(statement(include_str!("tick.sql"))).bind(&self.oids);
        let rows = self.probe.rows(query).await?;
        if self.probe.connects() != self.connects {
            self.backend.follow(&mut self.probe).await?;
            self.connects = self.probe.connects();
        }
        Ok(rows)
    }

    fn keep(&mut self, read: Result<Vec<PgRow>, ProbeError>, [start, sent, returned, origin]: [Instant; 4]) {
        let since = |instant: Instant, zero| ns(instant.saturating_duration_since(zero));
        let outcome = read.map_err(|error| error.to_string()).and_then(|rows| {
            let sessions: Result<Vec<_>, _> = rows.iter().map(Session::read).collect();
            let sessions = sessions.map_err(|error| error.to_string())?;
            self.recorder
                .tick(since(sent, start), since(returned, start), since(returned, origin), &sessions)
                .map_err(|blind| blind.to_string())
        });
        if let Err(error) = outcome {
            self.recorder.miss(1);
            self.recorder.error(error);
        }
    }

    /// The stop came during a tick. Younger than a period it is neither made nor missed.
    fn unfinished(&mut self, pace: &mut Pace) {
        let missed = pace.advance(Instant::now());
        if missed > 0 {
            self.recorder.miss(missed + 1);
            self.recorder.error("the database did not answer until the end".to_owned());
        }
    }
}

fn ns(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
