//! What is broken on purpose: its meaning, and how a `[[fault]]` says it.

use std::{fmt, num::NonZeroU64, ops::Range, time::Duration};

use serde::Serialize;
use toml::Spanned;

use super::{
    Cell, Placement, WriteKind, as_text,
    error::Flaw,
    nearest::listed,
    resolve::{MAX_COMMIT_DELAY, MS, unknown_cell},
    rules::Made,
    value::{Key, LONGEST, duration_text},
    wire::FaultWire,
};

/// Most faults of a scenario, and most times that one of them strikes in a cell.
const MAX_FAULTS: usize = 100;
const MAX_STRIKES: u32 = 10_000;

/// Something that is broken on purpose, once or at intervals, and heals.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Fault {
    /// What.
    #[serde(flatten)]
    pub breaks: Breaks,
    /// When for the first time, from the start of the schedule (the warm-up is part of it).
    #[serde(serialize_with = "as_text")]
    pub at: Duration,
    /// How long each time; `None`: nothing heals it.
    #[serde(rename = "for", serialize_with = "as_text_where_given")]
    pub lasts: Option<Duration>,
    /// Again so long after each start, to the end of the schedule.
    #[serde(serialize_with = "as_text_where_given")]
    pub every: Option<Duration>,
    /// In this cell alone; else in all it can strike.
    pub cell: Option<String>,
}

/// What is broken. `instance`: of this drainer of each service; else of all.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Breaks {
    /// Drainers are killed, and started again under the same id when it heals.
    Kill {
        /// Which.
        instance: Option<u16>,
    },
    /// Drainers are stopped and continued.
    Pause {
        /// Which.
        instance: Option<u16>,
    },
    /// Drainers are asked to stop, and started again under the same id when it heals.
    Restart {
        /// Which.
        instance: Option<u16>,
    },
    /// Drainers are killed at a point of their work, and started again under the same id when it heals.
    Crash {
        /// Which.
        instance: Option<u16>,
        /// At what.
        point: Point,
        /// On which side of it.
        when: When,
        /// At the how-manyth, from 1.
        nth: u64,
    },
    /// Something is wrong with the drainers' way to a server.
    Link {
        /// Which server.
        target: Server,
        /// Whose way.
        instance: Option<u16>,
        /// What.
        weakness: Weakness,
    },
    /// The server ends the drainers' sessions, so many times a second all of them.
    Terminate {
        /// Times a second.
        rate: f64,
    },
    /// Somebody reads in one long transaction in each database.
    HeldXmin,
    /// Each WAL flush takes longer.
    SlowDisk {
        /// By so much.
        #[serde(serialize_with = "as_text")]
        commit_delay: Duration,
    },
    /// All connections of the services' pools are taken.
    Starve,
    /// Rows that no drainer can publish stand in each outbox, and are taken out when it heals.
    Poison {
        /// So many.
        events: u32,
    },
    /// The next write of each service holds its COMMIT back.
    LateCommit,
}

/// Where a drainer's connections lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Server {
    /// RabbitMQ.
    Broker,
    /// PostgreSQL.
    Database,
}

/// What a drainer is doing, as its connections tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Point {
    /// A statement that claims (or locks) rows.
    Claim,
    /// A message to the broker.
    Publish,
    /// The broker's word on one.
    Confirm,
    /// A statement that marks rows.
    Mark,
    /// The end of a transaction that says COMMIT.
    Commit,
}

/// On which side of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum When {
    /// It has not happened: the statement or message has not been forwarded; of a confirm, the drainer has not seen it.
    Before,
    /// It has: the statement is done and its answer was not forwarded; the message, or the confirm, was.
    After,
}

/// What is wrong with the way to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Weakness {
    /// What the server says is late.
    Latency {
        /// By so much.
        #[serde(serialize_with = "as_text")]
        latency: Duration,
        /// And by up to so much more.
        #[serde(serialize_with = "as_text")]
        jitter: Duration,
    },
    /// Connections are reset and refused.
    Cut,
    /// Connections are accepted, and nothing passes.
    Stall,
    /// Each connection is reset after so many bytes.
    Reset {
        /// Bytes, both directions together.
        after: NonZeroU64,
    },
    /// Few bytes a second.
    Bandwidth {
        /// Of each connection, in each direction.
        bytes_per_second: NonZeroU64,
    },
}

/// What is broken, in the words of a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    Drainer,
    Broker,
    Database,
    Service,
}

impl Target {
    const fn name(self) -> &'static str {
        match self {
            Self::Drainer => "drainer",
            Self::Broker => "broker",
            Self::Database => "database",
            Self::Service => "service",
        }
    }
}

/// One kind of fault as a scenario writes it.
struct Kind {
    name: &'static str,
    targets: &'static [Target],
    /// Keys beside those that every kind has.
    takes: &'static [&'static str],
    /// Whether it may be left unhealed.
    may_stay: bool,
}

const POINTS: &[(&str, Point)] = &[
    ("claim", Point::Claim),
    ("publish", Point::Publish),
    ("confirm", Point::Confirm),
    ("mark", Point::Mark),
    ("commit", Point::Commit),
];
const WHENS: &[(&str, When)] = &[("before", When::Before), ("after", When::After)];

const LINKS: &[Target] = &[Target::Broker, Target::Database];

const KINDS: [Kind; 15] = [
    Kind { name: "kill", targets: &[Target::Drainer], takes: &["instance"], may_stay: true },
    Kind { name: "pause", targets: &[Target::Drainer], takes: &["instance"], may_stay: false },
    Kind { name: "restart", targets: &[Target::Drainer], takes: &["instance"], may_stay: false },
    Kind {
        name: "crash",
        targets: &[Target::Drainer],
        takes: &["instance", "point", "when", "nth"],
        may_stay: true,
    },
    Kind { name: "latency", targets: LINKS, takes: &["instance", "latency", "jitter"], may_stay: false },
    Kind { name: "cut", targets: LINKS, takes: &["instance"], may_stay: false },
    Kind { name: "stall", targets: LINKS, takes: &["instance"], may_stay: false },
    Kind { name: "reset", targets: LINKS, takes: &["instance", "after"], may_stay: false },
    Kind { name: "bandwidth", targets: LINKS, takes: &["instance", "bandwidth"], may_stay: false },
    Kind { name: "terminate", targets: &[Target::Database], takes: &["rate"], may_stay: false },
    Kind { name: "held-xmin", targets: &[Target::Database], takes: &[], may_stay: false },
    Kind { name: "slow-disk", targets: &[Target::Database], takes: &["commit_delay"], may_stay: false },
    Kind { name: "starve", targets: &[Target::Service], takes: &[], may_stay: false },
    Kind { name: "poison", targets: &[Target::Service], takes: &["events"], may_stay: false },
    Kind { name: "late-commit", targets: &[Target::Service], takes: &[], may_stay: false },
];

impl Fault {
    /// When it strikes, from the start of the schedule.
    pub fn strikes(&self, cell: &Cell) -> impl Iterator<Item = Duration> {
        let (at, end) = (self.at, cell.schedule_ends());
        let every = self.every;
        let again = (1..MAX_STRIKES).map_while(move |nth| Some(at + every? * nth));
        std::iter::once(at).chain(again.take_while(move |next| *next < end))
    }

    /// When the last strike in this cell has healed.
    #[must_use]
    pub(super) fn ends(&self, cell: &Cell) -> Duration {
        self.strikes(cell).last().unwrap_or(self.at) + self.lasts.unwrap_or(Duration::ZERO)
    }

    /// Whether it can strike there at all.
    fn concerns(&self, cell: &Cell) -> bool {
        let is_there = match self.breaks {
            Breaks::Kill { .. }
            | Breaks::Pause { .. }
            | Breaks::Restart { .. }
            | Breaks::Crash { .. }
            | Breaks::Terminate { .. } => cell.design.drains_database(),
            Breaks::Link { target: Server::Database, .. } => cell.design.drains_database(),
            Breaks::Link { target: Server::Broker, .. } => cell.design.drains(),
            Breaks::HeldXmin
            | Breaks::SlowDisk { .. }
            | Breaks::Starve
            | Breaks::Poison { .. }
            | Breaks::LateCommit => true,
        };
        is_there && self.cell.as_ref().is_none_or(|label| *label == cell.label)
    }

    /// Whether it needs drainers that are processes: only those can be killed, and told apart from their service.
    fn needs_processes(&self) -> bool {
        match self.breaks {
            Breaks::Kill { .. }
            | Breaks::Pause { .. }
            | Breaks::Restart { .. }
            | Breaks::Crash { .. }
            | Breaks::Terminate { .. } => true,
            Breaks::Link { target, .. } => target == Server::Database,
            Breaks::HeldXmin
            | Breaks::SlowDisk { .. }
            | Breaks::Starve
            | Breaks::Poison { .. }
            | Breaks::LateCommit => false,
        }
    }
}

impl Point {
    /// The server on the way to which it is seen.
    #[must_use]
    pub const fn way(self) -> Server {
        match self {
            Self::Publish | Self::Confirm => Server::Broker,
            Self::Claim | Self::Mark | Self::Commit => Server::Database,
        }
    }
}

impl Breaks {
    /// Its kind, as scenarios write it.
    #[must_use]
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Kill { .. } => "kill",
            Self::Pause { .. } => "pause",
            Self::Restart { .. } => "restart",
            Self::Crash { .. } => "crash",
            Self::Link { weakness, .. } => match weakness {
                Weakness::Latency { .. } => "latency",
                Weakness::Cut => "cut",
                Weakness::Stall => "stall",
                Weakness::Reset { .. } => "reset",
                Weakness::Bandwidth { .. } => "bandwidth",
            },
            Self::Terminate { .. } => "terminate",
            Self::HeldXmin => "held-xmin",
            Self::SlowDisk { .. } => "slow-disk",
            Self::Starve => "starve",
            Self::Poison { .. } => "poison",
            Self::LateCommit => "late-commit",
        }
    }

    /// What it breaks, as scenarios write it.
    #[must_use]
    pub const fn target(self) -> &'static str {
        match self {
            Self::Kill { .. } | Self::Pause { .. } | Self::Restart { .. } | Self::Crash { .. } => {
                Target::Drainer.name()
            }
            Self::Link { target: Server::Broker, .. } => Target::Broker.name(),
            Self::Link { target: Server::Database, .. }
            | Self::Terminate { .. }
            | Self::HeldXmin
            | Self::SlowDisk { .. } => Target::Database.name(),
            Self::Starve | Self::Poison { .. } | Self::LateCommit => Target::Service.name(),
        }
    }

    /// The server on the way to which it happens.
    #[must_use]
    pub const fn way(self) -> Option<Server> {
        match self {
            Self::Link { target, .. } => Some(target),
            Self::Crash { point, .. } => Some(point.way()),
            Self::Kill { .. }
            | Self::Pause { .. }
            | Self::Restart { .. }
            | Self::Terminate { .. }
            | Self::HeldXmin
            | Self::SlowDisk { .. }
            | Self::Starve
            | Self::Poison { .. }
            | Self::LateCommit => None,
        }
    }

    fn instance(self) -> Option<u16> {
        match self {
            Self::Kill { instance }
            | Self::Pause { instance }
            | Self::Restart { instance }
            | Self::Crash { instance, .. }
            | Self::Link { instance, .. } => instance,
            Self::Terminate { .. }
            | Self::HeldXmin
            | Self::SlowDisk { .. }
            | Self::Starve
            | Self::Poison { .. }
            | Self::LateCommit => None,
        }
    }
}

impl fmt::Display for Breaks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::Crash { point, when, nth, .. } = self {
            let name =
                |point: &Point| POINTS.iter().find(|(_, other)| other == point).map_or("", |(name, _)| name);
            let side = WHENS.iter().find(|(_, other)| other == when).map_or("", |(name, _)| name);
            return write!(f, "crash of the drainer {side} {} {nth}", name(point));
        }
        write!(f, "{} of the {}", self.kind(), self.target())
    }
}

impl Cell {
    /// End of its schedule, from its start; zero where only a backlog is drained.
    #[must_use]
    pub fn schedule_ends(&self) -> Duration {
        let load = &self.settings.load;
        if load.rate.is_some() { load.warm_up + load.duration } else { Duration::ZERO }
    }
}

/// Reads all faults and gives each cell its own.
pub(super) fn of_cells(wires: &[Spanned<FaultWire>], cells: &mut [Made]) -> Result<(), Flaw> {
    if let Some(beyond) = wires.get(MAX_FAULTS) {
        let message = format!("{} faults are too many: at most {MAX_FAULTS}", wires.len());
        return Err(Flaw::new(beyond.span(), message, "split the scenario"));
    }
    let labels: Vec<String> = cells.iter().map(|made| made.cell.label.clone()).collect();
    for spanned in wires {
        let (wire, span) = (spanned.get_ref(), spanned.span());
        let fault = fault(wire, &span)?;
        if let Some(asked) = fault.cell.as_deref().filter(|asked| !labels.iter().any(|label| label == asked))
        {
            let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
            return Err(unknown_cell(wire.cell(), asked, &labels));
        }
        let mut strikes = 0;
        for made in cells.iter_mut().filter(|made| fault.concerns(&made.cell)) {
            possible(&fault, wire, &made.cell, &span)?;
            made.cell.faults.push(fault.clone());
            strikes += 1;
        }
        if strikes == 0 {
            let message = format!("there is no cell for the {} to strike in", fault.breaks);
            return Err(Flaw::new(span, message, "add a cell whose design has what it breaks"));
        }
    }
    Ok(())
}

fn fault(wire: &FaultWire, span: &Range<usize>) -> Result<Fault, Flaw> {
    let names: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
    let words: Vec<(&'static str, usize)> =
        KINDS.iter().enumerate().map(|(n, kind)| (kind.name, n)).collect();
    let Some(place) = wire.kind().word(&words)? else {
        let help = format!("add `kind`, one of {}", listed(&names));
        return Err(Flaw::new(span.clone(), "a fault without `kind`", help));
    };
    let kind = &KINDS[place];
    own_keys(kind, wire)?;
    let target = target(kind, wire)?;
    let Some(at) = wire.at().duration(Duration::ZERO..=LONGEST)? else {
        return Err(wire
            .kind()
            .flaw("has no `at`", "add `at = \"5s\"`, counted from the start of the schedule"));
    };
    let lasts = wire.r#for().duration(MS..=LONGEST)?;
    if lasts.is_none() && !kind.may_stay {
        return Err(wire.kind().flaw("has no `for`", "add `for = \"2s\"`: then it heals"));
    }
    let every = wire.every().duration(MS..=LONGEST)?;
    if let Some(every) = every
        && lasts.is_none_or(|lasts| lasts >= every)
    {
        let shown =
            lasts.map_or_else(|| "never heals".to_owned(), |lasts| format!("lasts {}", duration_text(lasts)));
        return Err(wire.every().flaw(
            format_args!("the fault {shown}, so it would strike again before it has healed"),
            "make `for` shorter than `every`",
        ));
    }
    let breaks = breaks(kind, target, wire)?;
    Ok(Fault { breaks, at, lasts, every, cell: wire.cell().text()?.map(str::to_owned) })
}

/// That no key is given which this kind does not have.
fn own_keys(kind: &Kind, wire: &FaultWire) -> Result<(), Flaw> {
    let special = [
        wire.instance(),
        wire.point(),
        wire.when(),
        wire.nth(),
        wire.latency(),
        wire.jitter(),
        wire.after(),
        wire.bandwidth(),
        wire.rate(),
        wire.commit_delay(),
        wire.events(),
    ];
    match special.iter().find(|key| key.given.is_some() && !kind.takes.contains(&key.path)) {
        None => Ok(()),
        Some(key) => {
            let takes = if kind.takes.is_empty() { "none of its own".to_owned() } else { listed(kind.takes) };
            Err(key.flaw(
                format_args!("a fault of `kind = \"{}\"` has no such key", kind.name),
                format!("leave it out; beside `at`, `for`, `every` and `cell` it takes {takes}"),
            ))
        }
    }
}

fn target(kind: &Kind, wire: &FaultWire) -> Result<Target, Flaw> {
    let words: Vec<(&'static str, Target)> =
        kind.targets.iter().map(|target| (target.name(), *target)).collect();
    match (wire.target().word(&words)?, kind.targets) {
        (Some(target), _) => Ok(target),
        (None, [only]) => Ok(*only),
        (None, _) => {
            let names: Vec<&str> = kind.targets.iter().map(|target| target.name()).collect();
            let help = format!("add `target`, one of {}", listed(&names));
            Err(wire.kind().flaw("does not say what it strikes", help))
        }
    }
}

fn breaks(kind: &Kind, target: Target, wire: &FaultWire) -> Result<Breaks, Flaw> {
    let instance = wire.instance().whole(0..=99)?;
    let weakness = match kind.name {
        "kill" => return Ok(Breaks::Kill { instance }),
        "pause" => return Ok(Breaks::Pause { instance }),
        "restart" => return Ok(Breaks::Restart { instance }),
        "crash" => {
            let Some(point) = wire.point().word(POINTS)? else {
                let points: Vec<&str> = POINTS.iter().map(|(name, _)| *name).collect();
                return Err(wire
                    .kind()
                    .flaw("has no `point`", format!("add `point`, one of {}", listed(&points))));
            };
            let when = wire.when().word(WHENS)?.unwrap_or(When::After);
            let nth = wire.nth().whole(1..=1_000_000_u32)?.unwrap_or(1);
            return Ok(Breaks::Crash { instance, point, when, nth: u64::from(nth) });
        }
        "terminate" => return Ok(Breaks::Terminate { rate: rate(wire)? }),
        "held-xmin" => return Ok(Breaks::HeldXmin),
        "slow-disk" => {
            let delay = wire.commit_delay().duration(MS..=MAX_COMMIT_DELAY)?;
            return Ok(Breaks::SlowDisk { commit_delay: delay.unwrap_or(Duration::from_millis(50)) });
        }
        "starve" => return Ok(Breaks::Starve),
        "poison" => return Ok(Breaks::Poison { events: wire.events().whole(1..=100_000)?.unwrap_or(100) }),
        "late-commit" => return Ok(Breaks::LateCommit),
        "latency" => Weakness::Latency {
            latency: wire.latency().duration(Duration::ZERO..=LONGEST)?.unwrap_or(Duration::from_millis(500)),
            jitter: wire.jitter().duration(Duration::ZERO..=LONGEST)?.unwrap_or_default(),
        },
        "cut" => Weakness::Cut,
        "stall" => Weakness::Stall,
        "reset" => Weakness::Reset { after: bytes(wire.after(), 4096)? },
        _ => Weakness::Bandwidth { bytes_per_second: bytes(wire.bandwidth(), 10_000)? },
    };
    let target = if target == Target::Broker { Server::Broker } else { Server::Database };
    Ok(Breaks::Link { target, instance, weakness })
}

fn bytes(key: Key<'_>, default: u64) -> Result<NonZeroU64, Flaw> {
    let bytes = key.size(1..=1 << 30)?.map_or(default, u64::from);
    Ok(NonZeroU64::new(bytes).unwrap_or(NonZeroU64::MIN))
}

fn rate(wire: &FaultWire) -> Result<f64, Flaw> {
    let rate = wire.rate().number(
        |rate| rate > 0.0 && rate <= 100.0,
        "must be a number of times a second, above 0 and at most 100",
        "write one such as 1: all sessions of the drainers end once a second",
    )?;
    Ok(rate.unwrap_or(1.0))
}

/// That a cell has what is to be broken there, at that time.
fn possible(fault: &Fault, wire: &FaultWire, cell: &Cell, span: &Range<usize>) -> Result<(), Flaw> {
    let here = format!("the {} cannot strike in cell `{}`", fault.breaks, cell.label);
    let flaw = |why: &str, help: &str| Flaw::new(span.clone(), format!("{here}: {why}"), help);
    let drainer = &cell.settings.drainer;
    if fault.needs_processes() && drainer.placement == Placement::InService {
        return Err(flaw(
            "its drainers share their service's process and pool, and would take it with them",
            "write `placement = \"process\"` under `[drainer]`",
        ));
    }
    if fault.breaks.instance().is_some_and(|instance| u32::from(instance) >= drainer.instances.get()) {
        return Err(wire.instance().flaw(
            format_args!("cell `{}` has {} of each service, counted from 0", cell.label, drainer.instances),
            "raise `drainer.instances`, or leave `instance` out: then all are struck",
        ));
    }
    let ends = cell.schedule_ends();
    if ends.is_zero() {
        if fault.every.is_some() {
            return Err(wire.every().flaw(
                "without `load.rate` there is no schedule whose end would end it",
                "leave it out, or write further faults",
            ));
        }
    } else if fault.at >= ends {
        let why = format!("the schedule ends at {}", duration_text(ends));
        return Err(wire.at().flaw(why, "write an earlier `at`, or lengthen `load.duration`"));
    }
    if fault.breaks == Breaks::LateCommit
        && (ends.is_zero() || cell.settings.load.write == WriteKind::Statement)
    {
        return Err(flaw(
            "it has no writes with a COMMIT of their own",
            "write `rate` and `write = \"transaction\"`",
        ));
    }
    Ok(())
}

fn as_text_where_given<S: serde::Serializer>(
    given: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match given {
        Some(duration) => as_text(duration, serializer),
        None => serializer.serialize_none(),
    }
}
