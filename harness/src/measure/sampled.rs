//! What the sampler saw: average active sessions, held transactions, and whether it could see at all.

use std::collections::{BTreeMap, HashSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Measurements, count};
use crate::{
    history::History,
    metric::Metric,
    sampler::{Sample, SampleLog, State, Who},
    scenario::{Cell, Placement},
};

/// What sessions did and waited for. Averages are over the ticks in the window.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Waits {
    /// Ticks in the window.
    pub ticks: u64,
    /// An episode longer than this was certainly seen: the longest gap between two ticks, milliseconds.
    pub certain_above_ms: f64,
    /// Active sessions by what they waited for, the most first.
    pub active: Vec<WaitShare>,
    /// Sessions by state, drainer and foreground.
    pub states: Vec<StateShare>,
    /// The oldest transactions that were seen, in the whole cell.
    pub oldest: Oldest,
}

/// Average active sessions with one wait event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WaitShare {
    /// Whose.
    #[schemars(with = "String")]
    pub who: Who,
    /// The event as `Class:Name`, or `CPU` where a session did not wait.
    pub event: String,
    /// Average active sessions.
    pub sessions: f64,
}

/// Sessions of one state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StateShare {
    /// Whose.
    #[schemars(with = "String")]
    pub who: Who,
    /// Their state.
    #[schemars(with = "String")]
    pub state: State,
    /// Average sessions.
    pub sessions: f64,
}

/// Age of the oldest transaction that was seen, milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Oldest {
    /// Of a drainer.
    pub drainer_ms: Option<f64>,
    /// Of the foreground.
    pub foreground_ms: Option<f64>,
}

/// As it stands in [`WaitShare::event`] when a session did not wait.
const ON_CPU: &str = "CPU";

/// Order of the states in a table.
const fn rank(state: State) -> u8 {
    match state {
        State::Active => 0,
        State::IdleInTransaction => 1,
        State::IdleInTransactionAborted => 2,
        State::Idle => 3,
        State::Other => 4,
    }
}

/// Idle in transaction, after an error too.
pub(super) const fn holds_idle(state: State) -> bool {
    match state {
        State::IdleInTransaction | State::IdleInTransactionAborted => true,
        State::Active | State::Idle | State::Other => false,
    }
}

pub(super) fn waits(history: &History) -> Waits {
    let log = &history.samples;
    let in_window =
        |tick: u32| log.ticks_ns.get(tick as usize).is_some_and(|at| history.window_ns.contains(at));
    let ticks = log.ticks_ns.iter().filter(|at| history.window_ns.contains(at)).count() as u64;
    let mut active: BTreeMap<(bool, Option<u16>), u64> = BTreeMap::new();
    let mut states: BTreeMap<(bool, u8), (Who, State, u64)> = BTreeMap::new();
    let mut oldest = Oldest::default();
    for row in &log.rows {
        let drainer = row.who == Who::Drainer;
        let age = row.xact_age_us.map(|us| count(us) / 1e3);
        let held = if drainer { &mut oldest.drainer_ms } else { &mut oldest.foreground_ms };
        *held = age.map_or(*held, |age| Some(held.map_or(age, |held| held.max(age))));
        if !in_window(row.tick) {
            continue;
        }
        states.entry((drainer, rank(row.state))).or_insert((row.who, row.state, 0)).2 += 1;
        if row.state == State::Active {
            *active.entry((drainer, row.wait_event)).or_default() += 1;
        }
    }
    let average = |rows: u64| if ticks == 0 { 0.0 } else { count(rows) / count(ticks) };
    let named = |place: Option<u16>| {
        place.and_then(|place| log.wait_events.get(usize::from(place))).map_or(ON_CPU, String::as_str)
    };
    let mut shares: Vec<WaitShare> = active
        .into_iter()
        .map(|((drainer, place), rows)| WaitShare {
            who: if drainer { Who::Drainer } else { Who::Foreground },
            event: named(place).to_owned(),
            sessions: average(rows),
        })
        .collect();
    shares.sort_by(|a, b| b.sessions.total_cmp(&a.sessions));
    Waits {
        ticks,
        certain_above_ms: super::ms(log.longest_gap_ns),
        active: shares,
        states: states
            .into_values()
            .map(|(who, state, rows)| StateShare { who, state, sessions: average(rows) })
            .collect(),
        oldest,
    }
}

/// Services of whose drainer no session was seen. An idle one counts: its last statement carries the tag.
pub(super) fn unseen(history: &History) -> Vec<String> {
    let drainers = history.samples.rows.iter().filter(|row| row.who == Who::Drainer);
    let seen: HashSet<u16> = drainers.map(|row| row.service).collect();
    let services = history.plan.services.iter();
    services.filter(|service| !seen.contains(&service.index)).map(|service| service.name.clone()).collect()
}

/// Share of the ticks that were not made; all of them when none was.
pub(super) fn missed(log: &SampleLog) -> f64 {
    let made = log.ticks_ns.len() as u64;
    if made == 0 { 1.0 } else { count(log.missed) / count(made + log.missed) }
}

pub(super) fn measure(found: &mut Measurements, history: &History, cell: &Cell) {
    classes(found);
    found.set("sampler.missed", missed(&history.samples));
    cost(found, &history.samples);
    drainer(found, history, cell);
    witness(found, history);
}

/// Average active sessions of each class.
fn classes(found: &mut Measurements) {
    if found.waits.ticks == 0 {
        return;
    }
    let mut classes: BTreeMap<String, f64> = BTreeMap::new();
    for share in &found.waits.active {
        let class = share.event.split(':').next().unwrap_or_default().to_ascii_lowercase();
        *classes.entry(class).or_default() += share.sessions;
    }
    for metric in Metric::all() {
        if let Some(class) = metric.name().strip_prefix("waits.") {
            found.set(metric.name(), classes.get(class).copied().unwrap_or(0.0));
        }
    }
}

fn cost(found: &mut Measurements, log: &SampleLog) {
    let spent = log.backend_cpu_seconds.map(|backend| backend + log.own_cpu_seconds);
    let cost = spent.filter(|_| log.wall_seconds > 0.0).map(|seconds| seconds / log.wall_seconds);
    found.set_or("sampler.cost", cost, "the sampler's backend runs where its CPU time cannot be read");
}

/// What was read on the wire, without sampling.
fn witness(found: &mut Measurements, history: &History) {
    match &history.witness {
        Some(Ok(idle)) => found.set("idle_in_tx.exact_ms", super::ms(idle.total_ns)),
        Some(Err(why)) => {
            found.miss("idle_in_tx.exact_ms", &format!("the drainers' sessions could not be read: {why}"));
        }
        None => found.miss(
            "idle_in_tx.exact_ms",
            "no link reads along: `sampler.witness` is false, or no drainer is a process",
        ),
    }
}

const SESSIONS: [&str; 3] = ["idle_in_tx.rows", "idle_in_tx.age_max", "drainer.connections"];

/// The drainer's sessions. A zero counts only if the sampler saw that drainer in this cell.
fn drainer(found: &mut Measurements, history: &History, cell: &Cell) {
    if !cell.design.drains_database() {
        found.miss_all(&SESSIONS, "no drainer works on the database in this cell");
        return;
    }
    if !unseen(history).is_empty() {
        found.miss_all(&SESSIONS, "the sampler did not see every drainer");
        return;
    }
    let log = &history.samples;
    let rows = log.rows.iter().filter(|row| row.who == Who::Drainer);
    let idle: Vec<&Sample> = rows.clone().filter(|row| holds_idle(row.state)).collect();
    found.set("idle_in_tx.rows", count(idle.len() as u64));
    let oldest = idle.iter().filter_map(|row| row.xact_age_us).max().unwrap_or(0);
    found.set("idle_in_tx.age_max", count(oldest) / 1e3);

    // A session of the service's pool is the drainer's only while it works for it.
    let shared = cell.settings.drainer.placement == Placement::InService;
    let used = rows.filter(|row| !(shared && row.state == State::Idle));
    let mut peak = 0;
    let mut tick = None;
    let mut pids: HashSet<i32> = HashSet::new();
    for row in used {
        if tick != Some(row.tick) {
            tick = Some(row.tick);
            pids.clear();
        }
        pids.insert(row.pid);
        peak = peak.max(pids.len());
    }
    found.set("drainer.connections", count(peak as u64));
}
