//! Histories that never happened: for tests and benches of everything below `History`.

use std::{collections::BTreeMap, num::NonZeroU32, time::Duration};

use crate::{
    history::{
        Arrival, DatabaseUse, DrainerTick, EventRef, History, Outcome, ProcessUse, ServiceHistory, Write,
    },
    plan::Plan,
    sampler::{Sample, SampleLog, State, Who},
    scenario::{
        Arrivals, BrokerSettings, Cell, CellDesign, DatabaseSettings, DrainerSettings, Load, Placement,
        QueueKind, Role, SamplerSettings, Service, Settings, Suite, Validity, WriteKind,
    },
};

/// Nanoseconds of a millisecond.
pub const MS: u64 = 1_000_000;
/// Nanoseconds of a second.
pub const SECOND: u64 = 1_000 * MS;

/// Writes a second.
const RATE: f64 = 400.0;

/// Builds a history write by write. Its measured window is the first ten seconds unless set.
#[derive(Debug)]
pub struct Builder {
    history: History,
}

/// A cell like those of `workspace`.
#[must_use]
pub fn cell(label: &str, role: Option<Role>, design: CellDesign) -> Cell {
    Cell { label: label.to_owned(), role, design, faults: Vec::new(), settings: settings() }
}

fn cell_of(services: u16, rate: Option<f64>) -> Cell {
    let mut cell = cell("synthetic", None, CellDesign::Lease);
    cell.settings.load.services = services;
    cell.settings.load.rate = rate;
    cell
}

/// The settings of `workspace`, without a suite and with one service.
#[must_use]
pub fn settings() -> Settings {
    Settings {
        load: load(),
        service: Service { pool: NonZeroU32::MIN, acquire_timeout: Duration::from_secs(30) },
        drainer: DrainerSettings {
            command: None,
            placement: Placement::InService,
            pool: NonZeroU32::MIN,
            instances: NonZeroU32::MIN,
            batch_size: NonZeroU32::MIN.saturating_add(99),
            pipeline_depth: NonZeroU32::MIN.saturating_add(31),
            lease_ttl: Duration::from_secs(30),
            poll_interval: Duration::from_millis(200),
            confirm_timeout: Duration::from_secs(30),
            stop_within: Duration::from_secs(15),
        },
        broker: BrokerSettings {
            latency: Duration::from_millis(67),
            queue: QueueKind::Classic,
            max_length: 0,
        },
        database: DatabaseSettings { commit_delay: Duration::ZERO, full_page_writes: true },
        sampler: SamplerSettings {
            rate: NonZeroU32::MIN.saturating_add(49),
            max_missed: 0.05,
            witness: false,
        },
        validity: Validity { lag_p99: Duration::from_millis(10), sink_behind: Duration::from_secs(1) },
        suite: Suite {
            cases: 0,
            persist_within: Duration::from_secs(5),
            arrive_within: Duration::from_secs(10),
        },
    }
}

fn load() -> Load {
    Load {
        services: 1,
        rate: Some(RATE),
        arrivals: Arrivals::Constant,
        payload_bytes: 340,
        events_per_write: 1,
        rollback_share: 0.0,
        keys: 0,
        key_skew: 0.0,
        write: WriteKind::Transaction,
        warm_up: Duration::ZERO,
        duration: Duration::from_secs(10),
        drain_deadline: Duration::from_secs(60),
        backlog: 0,
    }
}

impl Builder {
    /// Services without a write.
    #[must_use]
    pub fn new(services: u16) -> Self {
        let mut plan = Plan::new(1, &cell_of(services, None), 1);
        plan.load.rate = Some(RATE);
        Self {
            history: History {
                started_at: jiff::Timestamp::UNIX_EPOCH,
                plan,
                window_ns: 0..10 * SECOND,
                drained_ns: Some(0..12 * SECOND),
                services: (0..services).map(|_| ServiceHistory::default()).collect(),
                ticks: Vec::new(),
                faults: Vec::new(),
                witness: None,
                processes: Vec::new(),
                samples: SampleLog { rate: 50, wall_seconds: 12.0, ..SampleLog::default() },
                database: DatabaseUse { relation_bytes: BTreeMap::new(), ..DatabaseUse::default() },
                troubles: Vec::new(),
                void: Vec::new(),
                misconduct: Vec::new(),
                interrupted: false,
            },
        }
    }

    /// So many events of every write, and so many keys.
    #[must_use]
    pub fn shape(mut self, events_per_write: u16, keys: u32) -> Self {
        self.history.plan.load.events_per_write = events_per_write;
        self.history.plan.load.keys = keys;
        self
    }

    /// Anything else.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut History)) -> Self {
        change(&mut self.history);
        self
    }

    /// A write of the schedule: due at the first instant, then started, acquired, executed and ended.
    pub fn write(&mut self, service: u16, instants: [u64; 5], outcome: Outcome) -> u32 {
        let [due_ns, started_ns, acquired_ns, executed_ns, ended_ns] = instants;
        self.history.plan.services[usize::from(service)].due_ns.push(due_ns);
        self.push(service, Write { due_ns, started_ns, acquired_ns, executed_ns, ended_ns, outcome })
    }

    /// A healthy write that is due at `due_ns` and takes `took_ns`, nearly all of it COMMIT.
    pub fn commit(&mut self, service: u16, due_ns: u64, took_ns: u64) -> u32 {
        let step = took_ns / 20;
        self.write(
            service,
            [due_ns, due_ns, due_ns + step, due_ns + 2 * step, due_ns + took_ns],
            Outcome::Committed,
        )
    }

    /// A write of the backlog. All of a service must come before its scheduled writes.
    pub fn backlog(&mut self, service: u16) -> u32 {
        self.history.plan.services[usize::from(service)].backlog += 1;
        let zero = Write {
            due_ns: 0,
            started_ns: 0,
            acquired_ns: 0,
            executed_ns: 0,
            ended_ns: 0,
            outcome: Outcome::Committed,
        };
        self.push(service, zero)
    }

    fn push(&mut self, service: u16, write: Write) -> u32 {
        let writes = &mut self.history.services[usize::from(service)].writes;
        writes.push(write);
        u32::try_from(writes.len() - 1).unwrap_or(u32::MAX)
    }

    /// A delivery.
    pub fn arrive(&mut self, service: u16, write: u32, event: u16, at_ns: u64, publish: u64) {
        self.history.services[usize::from(service)].arrivals.push(Arrival {
            at_ns,
            event: Some(EventRef { write, event }),
            publish,
            redelivered: false,
        });
    }

    /// An idle session in a tick that exists, whose last statement was the drainer's.
    pub fn drainer_seen(&mut self, service: u16) {
        let log = &mut self.history.samples;
        log.rows.push(Sample {
            tick: u32::try_from(log.ticks_ns.len().saturating_sub(1)).unwrap_or(u32::MAX),
            pid: 300 + i32::from(service),
            service,
            who: Who::Drainer,
            state: State::Idle,
            wait_event: None,
            statement: 0,
            xact_age_us: None,
            state_age_us: 0,
        });
    }

    /// A session of service 0 in a tick; the tick is made when it is new.
    pub fn sample(
        &mut self,
        at_ns: u64,
        who: Who,
        state: State,
        wait: Option<&str>,
        xact_age_ms: Option<u64>,
    ) {
        let log = &mut self.history.samples;
        if log.ticks_ns.last() != Some(&at_ns) {
            log.ticks_ns.push(at_ns);
        }
        let wait_event = wait.map(|wait| {
            let place = log.wait_events.iter().position(|known| known == wait).unwrap_or_else(|| {
                log.wait_events.push(wait.to_owned());
                log.wait_events.len() - 1
            });
            u16::try_from(place).unwrap_or(u16::MAX)
        });
        let pid = match who {
            Who::Drainer => 100,
            Who::Foreground => 200,
        };
        log.rows.push(Sample {
            tick: u32::try_from(log.ticks_ns.len() - 1).unwrap_or(u32::MAX),
            pid,
            service: 0,
            who,
            state,
            wait_event,
            statement: 0,
            xact_age_us: xact_age_ms.map(|ms| ms * 1_000),
            state_age_us: 0,
        });
    }

    /// A tick that a drainer of service 0 told of.
    pub fn told(&mut self, at_ns: u64, tick: drainer::Tick) {
        self.history.ticks.push(DrainerTick { service: 0, instance: 0, at_ns, tick });
    }

    /// A drainer process.
    pub fn process(&mut self, used: ProcessUse) {
        self.history.processes.push(used);
    }

    /// The history.
    #[must_use]
    pub fn build(self) -> History {
        self.history
    }
}
