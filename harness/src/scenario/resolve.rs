//! From what a table says to what it means: each key on its own, and the relations within one table.

use std::{num::NonZeroU32, time::Duration};

use drainer::config::bound;

use super::{
    Arrivals, BrokerSettings, CellDesign, DatabaseSettings, DrainerSettings, Expectation, Limit, Load, Op,
    Placement, QueueKind, Role, SamplerSettings, Service, Settings, Suite, Validity, WriteKind,
    error::Flaw,
    nearest::{advice, listed},
    value::{Key, LONGEST},
    wire::{
        BrokerWire, DatabaseWire, DrainerWire, ExpectationWire, LoadWire, RigWire, SamplerWire, Sections,
        ServiceWire, SuiteWire, ValidityWire,
    },
};
use crate::{
    metric::{Metric, Unit},
    plan::MAX_PLACES,
    rig::{Containers, Cpus, ImageName, Memory},
};

const MAX_RATE: f64 = 1_000_000.0;
/// Their cumulative shares are kept, 8 bytes each.
const MAX_KEYS: u32 = 1_000_000;
const MAX_SKEW: f64 = 10.0;
/// PostgreSQL's own limit of `commit_delay`.
pub(super) const MAX_COMMIT_DELAY: Duration = Duration::from_millis(100);
pub(super) const MS: Duration = Duration::from_millis(1);

const ARRIVALS: &[&str] = &["constant", "poisson", "burst", "ramp"];
const WRITES: &[(&str, WriteKind)] =
    &[("transaction", WriteKind::Transaction), ("statement", WriteKind::Statement)];
const PLACEMENTS: &[(&str, Placement)] =
    &[("in-service", Placement::InService), ("process", Placement::Process)];
const QUEUES: &[(&str, QueueKind)] = &[("classic", QueueKind::Classic), ("quorum", QueueKind::Quorum)];
const ROLES: &[(&str, Role)] =
    &[("control", Role::Control), ("baseline", Role::Baseline), ("candidate", Role::Candidate)];
/// Designs that have a name and no code yet.
const PLANNED: &[&str] = &["partitioned", "work-queue"];

pub(super) fn settings(wire: &Sections) -> Result<Settings, Flaw> {
    let default = Settings::default();
    Ok(Settings {
        load: load(&wire.load, default.load)?,
        service: service(&wire.service, &default.service)?,
        drainer: drainer(&wire.drainer, &default.drainer)?,
        broker: broker(&wire.broker, &default.broker)?,
        database: database(&wire.database, &default.database)?,
        sampler: sampler(&wire.sampler, &default.sampler)?,
        validity: validity(&wire.validity, &default.validity)?,
        suite: suite(&wire.suite, &default.suite)?,
    })
}

pub(super) fn containers(wire: &RigWire) -> Result<Containers, Flaw> {
    Ok(Containers {
        postgres_image: wire.postgres_image().parsed::<ImageName>()?,
        rabbitmq_image: wire.rabbitmq_image().parsed::<ImageName>()?,
        cpus: wire.cpus().parsed::<Cpus>()?,
        memory: wire.memory().parsed::<Memory>()?,
    })
}

fn load(wire: &LoadWire, default: Load) -> Result<Load, Flaw> {
    Ok(Load {
        services: wire.services().whole(1..=MAX_PLACES)?.unwrap_or(default.services),
        rate: rate(wire.rate())?,
        arrivals: arrivals(wire)?,
        payload_bytes: wire.payload().size(2..=1 << 20)?.unwrap_or(default.payload_bytes),
        events_per_write: wire.events_per_write().whole(1..=MAX_PLACES)?.unwrap_or(default.events_per_write),
        rollback_share: wire.rollback_share().share()?.unwrap_or(default.rollback_share),
        keys: wire.keys().whole(0..=MAX_KEYS)?.unwrap_or(default.keys),
        key_skew: skew(wire.key_skew())?.unwrap_or(default.key_skew),
        write: wire.write().word(WRITES)?.unwrap_or(default.write),
        warm_up: wire.warm_up().duration(Duration::ZERO..=LONGEST)?.unwrap_or(default.warm_up),
        duration: wire.duration().duration(MS..=LONGEST)?.unwrap_or(default.duration),
        drain_deadline: wire.drain_deadline().duration(MS..=LONGEST)?.unwrap_or(default.drain_deadline),
        backlog: wire.backlog().whole(0..=100_000_000)?.unwrap_or(default.backlog),
    })
}

fn rate(key: Key<'_>) -> Result<Option<f64>, Flaw> {
    key.number(
        |rate| rate > 0.0 && rate <= MAX_RATE,
        "must be a number of writes a second, above 0 and at most 1000000",
        "write one such as 400 or 0.5; leave `rate` out where only the backlog is to be drained",
    )
}

fn skew(key: Key<'_>) -> Result<Option<f64>, Flaw> {
    key.number(
        |skew| (0.0..=MAX_SKEW).contains(&skew),
        "must be a Zipf exponent from 0 to 10",
        "write 0 for keys that are equally likely, 1 for a common skew",
    )
}

/// `arrivals` and the keys that only one of its kinds has.
fn arrivals(wire: &LoadWire) -> Result<Arrivals, Flaw> {
    let words: Vec<(&str, &str)> = ARRIVALS.iter().map(|word| (*word, *word)).collect();
    let kind = wire.arrivals().word(&words)?.unwrap_or("constant");
    for (key, of) in [(wire.burst_every(), "burst"), (wire.ramp_from(), "ramp")] {
        if key.given.is_some() && kind != of {
            return Err(key.flaw(
                format_args!("is of `arrivals = \"{of}\"` alone, and these are \"{kind}\""),
                format!("leave it out, or write `arrivals = \"{of}\"`"),
            ));
        }
    }
    let missing = |key: &str, example: &str| {
        wire.arrivals().flaw(format_args!("needs `{key}`"), format!("add `{key} = {example}`"))
    };
    match kind {
        "poisson" => Ok(Arrivals::Poisson),
        "burst" => match wire.burst_every().duration(MS..=LONGEST)? {
            Some(every) => Ok(Arrivals::Burst { every }),
            None => Err(missing("burst_every", "\"10s\"")),
        },
        "ramp" => {
            let from = wire.ramp_from().number(
                |from| (0.0..=MAX_RATE).contains(&from),
                "must be a number of writes a second, from 0 to 1000000",
                "write the rate at the start; `rate` is the one at the end",
            )?;
            from.map(|from| Arrivals::Ramp { from }).ok_or_else(|| missing("ramp_from", "10"))
        }
        _ => Ok(Arrivals::Constant),
    }
}

fn service(wire: &ServiceWire, default: &Service) -> Result<Service, Flaw> {
    Ok(Service {
        pool: count(wire.pool(), 10_000)?.unwrap_or(default.pool),
        acquire_timeout: wire.acquire_timeout().duration(MS..=LONGEST)?.unwrap_or(default.acquire_timeout),
    })
}

fn drainer(wire: &DrainerWire, default: &DrainerSettings) -> Result<DrainerSettings, Flaw> {
    Ok(DrainerSettings {
        placement: wire.placement().word(PLACEMENTS)?.unwrap_or(default.placement),
        command: wire.command().text()?.map(str::to_owned).or_else(|| default.command.clone()),
        pool: count(wire.pool(), *bound::POOL.end())?.unwrap_or(default.pool),
        instances: count(wire.instances(), 100)?.unwrap_or(default.instances),
        batch_size: count(wire.batch_size(), *bound::BATCH_SIZE.end())?.unwrap_or(default.batch_size),
        pipeline_depth: count(wire.pipeline_depth(), *bound::PIPELINE_DEPTH.end())?
            .unwrap_or(default.pipeline_depth),
        lease_ttl: wire.lease_ttl().duration(bound::LEASE_TTL)?.unwrap_or(default.lease_ttl),
        poll_interval: wire.poll_interval().duration(bound::POLL_INTERVAL)?.unwrap_or(default.poll_interval),
        confirm_timeout: wire.confirm_timeout().duration(bound::DEADLINE)?.unwrap_or(default.confirm_timeout),
        stop_within: wire.stop_within().duration(bound::DEADLINE)?.unwrap_or(default.stop_within),
    })
}

fn broker(wire: &BrokerWire, default: &BrokerSettings) -> Result<BrokerSettings, Flaw> {
    Ok(BrokerSettings {
        latency: wire
            .latency()
            .duration(Duration::ZERO..=Duration::from_secs(60))?
            .unwrap_or(default.latency),
        queue: wire.queue().word(QUEUES)?.unwrap_or(default.queue),
        max_length: wire.max_length().whole(0..=100_000_000)?.unwrap_or(default.max_length),
    })
}

fn database(wire: &DatabaseWire, default: &DatabaseSettings) -> Result<DatabaseSettings, Flaw> {
    let commit_delay = wire.commit_delay().duration(Duration::ZERO..=MAX_COMMIT_DELAY)?;
    Ok(DatabaseSettings {
        commit_delay: commit_delay.unwrap_or(default.commit_delay),
        full_page_writes: wire.full_page_writes().flag()?.unwrap_or(default.full_page_writes),
    })
}

fn sampler(wire: &SamplerWire, default: &SamplerSettings) -> Result<SamplerSettings, Flaw> {
    Ok(SamplerSettings {
        rate: wire.rate().whole(20..=100)?.and_then(NonZeroU32::new).unwrap_or(default.rate),
        max_missed: wire.max_missed().share()?.unwrap_or(default.max_missed),
        witness: wire.witness().flag()?.unwrap_or(default.witness),
    })
}

fn validity(wire: &ValidityWire, default: &Validity) -> Result<Validity, Flaw> {
    Ok(Validity {
        lag_p99: wire.lag_p99().duration(MS..=LONGEST)?.unwrap_or(default.lag_p99),
        sink_behind: wire.sink_behind().duration(MS..=LONGEST)?.unwrap_or(default.sink_behind),
    })
}

fn suite(wire: &SuiteWire, default: &Suite) -> Result<Suite, Flaw> {
    Ok(Suite {
        cases: wire.cases().whole(0..=u32::MAX)?.unwrap_or(default.cases),
        persist_within: wire.persist_within().duration(MS..=LONGEST)?.unwrap_or(default.persist_within),
        arrive_within: wire.arrive_within().duration(MS..=LONGEST)?.unwrap_or(default.arrive_within),
    })
}

/// A number of things of which there is at least one.
pub(super) fn count(key: Key<'_>, most: u32) -> Result<Option<NonZeroU32>, Flaw> {
    Ok(key.whole(1..=most)?.and_then(NonZeroU32::new))
}

pub(super) fn role(key: Key<'_>) -> Result<Option<Role>, Flaw> {
    key.word(ROLES)
}

pub(super) fn design(key: Key<'_>) -> Result<Option<CellDesign>, Flaw> {
    let Some(name) = key.text()? else { return Ok(None) };
    if let Some(design) = CellDesign::ALL.iter().find(|design| design.name() == name) {
        return Ok(Some(*design));
    }
    let known = CellDesign::ALL.map(CellDesign::name);
    let help = if PLANNED.contains(&name) {
        format!("this version has {}; `{name}` is planned", listed(&known))
    } else {
        format!("there is {}", listed(&known))
    };
    Err(key.flaw("there is no such design", help))
}

/// A symptom or a criterion: a metric and one comparison.
pub(super) fn expectation(wire: &ExpectationWire, span: std::ops::Range<usize>) -> Result<Expectation, Flaw> {
    const HELP: &str =
        "write `metric = \"persist.p99\"` and one of `below`, `at_most`, `above` and `at_least`";
    let Some(name) = wire.metric().text()? else {
        return Err(Flaw::new(span, "an expectation without `metric`", HELP));
    };
    let metric = Metric::lookup(name).map_err(|unknown| {
        let help = unknown.to_string();
        let help = help.split_once(": ").map_or(help.as_str(), |(_, way_out)| way_out).to_owned();
        wire.metric().flaw("there is no such metric", help)
    })?;
    let ops = [
        (wire.below(), Op::Below),
        (wire.at_most(), Op::AtMost),
        (wire.above(), Op::Above),
        (wire.at_least(), Op::AtLeast),
    ];
    let mut given = ops.into_iter().filter(|(key, _)| key.given.is_some());
    let Some((key, op)) = given.next() else {
        return Err(wire.metric().flaw("has no limit", HELP));
    };
    if let Some((second, _)) = given.next() {
        let rule = format!("stands beside `{}`, and an expectation has one limit", key.path);
        return Err(second.flaw(rule, "write a second expectation for the second limit"));
    }
    let times = wire.times().text()?.map(str::to_owned);
    let value =
        match key.number(|_| true, &limit_rule(metric, times.is_some()), &limit_help(key.path, metric))? {
            Some(value) => value,
            None => return Err(wire.metric().flaw("has no limit", HELP)),
        };
    let cell = wire.cell().text()?.map(str::to_owned);
    Ok(Expectation { metric, limit: Limit { op, value, times }, cell })
}

fn limit_rule(metric: Metric, is_factor: bool) -> String {
    if is_factor {
        return String::from("must be a number: how many times the other cell's value");
    }
    match metric.unit() {
        Unit::Milliseconds => format!("must be a number, because {metric} is in milliseconds"),
        Unit::Bytes => format!("must be a number, because {metric} is in bytes"),
        Unit::Share => format!("must be a number from 0 to 1, because {metric} is a share"),
        Unit::PerSecond | Unit::Count | Unit::Sessions | Unit::Cores | Unit::PerEvent => {
            String::from("must be a number")
        }
    }
}

fn limit_help(op: &str, metric: Metric) -> String {
    let about = metric.about();
    format!("write it without quotes and without a unit, such as `{op} = 50` ({metric}: {about})")
}

/// That a cell is named which is not there.
pub(super) fn unknown_cell(key: Key<'_>, asked: &str, labels: &[&str]) -> Flaw {
    key.flaw("there is no cell of that label", advice(asked, labels.iter().copied()))
}
