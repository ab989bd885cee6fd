//! What is broken on purpose in a cell: when it strikes, how it heals, and whether it really hit.
//!
//! Each kind is a function that breaks something, waits, heals it and returns what the other side saw of it: the server's
//! backend list, the kernel's word on a process, the link's counts. Never the injector's own belief: a fault that missed
//! makes a run INVALID. What is broken is a value, and heals when that value is dropped.

mod database;
mod drainer;
mod link;
mod service;

use std::time::Duration;

use futures_util::future::join_all;
use tokio_util::sync::CancellationToken;

use crate::{
    clock::Clock,
    fleet::Fleet,
    history::{FaultSpan, Outcome, ServiceHistory},
    load::Client,
    plan::Plan,
    rig::{World, link::Trap},
    scenario::{Breaks, Cell, Fault},
};

/// Beyond `stop_within`, before a drainer that was asked to stop is killed.
const STOP_MARGIN: Duration = Duration::from_secs(5);

/// What faults work on.
#[derive(Clone, Copy)]
pub(crate) struct Ground<'a, 'f> {
    /// Which faults.
    pub cell: &'a Cell,
    /// Its links and databases.
    pub world: &'a World,
    /// The services' pools.
    pub clients: &'a [Client],
    /// Its drainers.
    pub fleet: Option<&'a Fleet<'f>>,
    /// The cell's clock.
    pub clock: Clock,
    /// When the schedule starts.
    pub start_ns: u64,
    /// Heals everything at once.
    pub stop: &'a CancellationToken,
}

/// What the other side saw of a fault.
struct Evidence {
    hit: bool,
    said: String,
    /// When it began, where that was not when it was to.
    began_ns: Option<u64>,
    healed_ns: u64,
}

/// How long it is to stay broken.
#[derive(Clone, Copy)]
struct Stay<'a> {
    until: tokio::time::Instant,
    stop: &'a CancellationToken,
}

impl Stay<'_> {
    /// Waits until it is to heal.
    async fn over(self) {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => {}
            () = tokio::time::sleep_until(self.until) => {}
        }
    }

    fn is_over(self) -> bool {
        self.stop.is_cancelled() || tokio::time::Instant::now() >= self.until
    }
}

/// Breaks what the cell says, when it says so. Ends when everything has healed.
pub(crate) async fn run(ground: Ground<'_, '_>) -> Vec<FaultSpan> {
    let faults =
        ground.cell.faults.iter().enumerate().map(|(place, fault)| all_strikes(ground, place, fault));
    let mut spans: Vec<FaultSpan> = join_all(faults).await.into_iter().flatten().collect();
    spans.sort_by_key(|span| span.began_ns);
    spans
}

async fn all_strikes(ground: Ground<'_, '_>, place: usize, fault: &Fault) -> Vec<FaultSpan> {
    let mut spans = Vec::new();
    // The writes themselves hold their commits back; what became of them is seen after.
    if fault.breaks == Breaks::LateCommit {
        return spans;
    }
    for at in fault.strikes(ground.cell) {
        let begins = ground.clock.at(ground.start_ns + nanos(at));
        tokio::select! {
            biased;
            () = ground.stop.cancelled() => break,
            () = tokio::time::sleep_until(begins.into()) => {}
        }
        let began_ns = ground.clock.now_ns();
        let lasts = fault.lasts.unwrap_or_default();
        let stay = Stay { until: tokio::time::Instant::from_std(begins + lasts), stop: ground.stop };
        let evidence = strike(ground, fault, stay).await;
        spans.push(FaultSpan {
            fault: place,
            kind: fault.breaks.kind(),
            target: fault.breaks.target(),
            began_ns: evidence.began_ns.unwrap_or(began_ns),
            healed_ns: evidence.healed_ns,
            hit: evidence.hit,
            evidence: evidence.said,
        });
    }
    spans
}

async fn strike(ground: Ground<'_, '_>, fault: &Fault, stay: Stay<'_>) -> Evidence {
    match fault.breaks {
        Breaks::Kill { instance } => drainer::kill(ground, instance, fault.lasts, stay).await,
        Breaks::Pause { instance } => drainer::pause(ground, instance, stay).await,
        Breaks::Restart { instance } => drainer::restart(ground, instance, stay).await,
        Breaks::Crash { instance, point, when, nth } => {
            let trap = Trap { point, when, nth };
            drainer::crash(ground, instance, trap, fault.lasts).await
        }
        Breaks::Link { target, instance, weakness } => {
            link::worsen(ground, target, instance, weakness, stay).await
        }
        Breaks::Terminate { rate } => database::terminate(ground, rate, stay).await,
        Breaks::HeldXmin => database::hold_xmin(ground, stay).await,
        Breaks::SlowDisk { commit_delay } => database::slow_disk(ground, commit_delay, stay).await,
        Breaks::Starve => service::starve(ground, stay).await,
        Breaks::Poison { events } => service::poison(ground, events, stay).await,
        Breaks::LateCommit => Evidence {
            hit: false,
            said: "its writes hold their commits back themselves".to_owned(),
            began_ns: None,
            healed_ns: ground.clock.now_ns(),
        },
    }
}

impl Ground<'_, '_> {
    /// When nothing is written any more, and what has not struck by then never will.
    fn gives_up(&self) -> Stay<'_> {
        let ends = self.cell.schedule_ends();
        let ends = if ends.is_zero() { self.cell.settings.load.drain_deadline } else { ends };
        let until = self.clock.at(self.start_ns + nanos(ends));
        Stay { until: until.into(), stop: self.stop }
    }

    /// What was seen, healed just now.
    fn saw(&self, hit: bool, said: String) -> Evidence {
        Evidence { hit, said, began_ns: None, healed_ns: self.clock.now_ns() }
    }

    /// That it could not be broken.
    fn could_not(&self, doing: &str, error: &dyn std::fmt::Display) -> Evidence {
        self.saw(false, format!("could not {doing}: {error}"))
    }
}

/// The writes of a service that hold their COMMIT back: the first that is due at or after each strike. Place in the
/// schedule and how long, ascending.
#[must_use]
pub(crate) fn held_commits(cell: &Cell, plan: &Plan, service: usize) -> Vec<(usize, Duration)> {
    held(cell, plan, service).into_iter().map(|held| (held.place, held.lasts)).collect()
}

/// A write that holds its COMMIT back.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Held {
    /// Place in the schedule.
    place: usize,
    lasts: Duration,
    /// Place in the cell's faults.
    fault: usize,
}

/// Ascending, one for each place: of two faults that strike the same write the longer one holds it.
fn held(cell: &Cell, plan: &Plan, service: usize) -> Vec<Held> {
    let due_ns = &plan.services[service].due_ns;
    let late = cell.faults.iter().enumerate().filter(|(_, fault)| fault.breaks == Breaks::LateCommit);
    let mut held: Vec<Held> = late
        .flat_map(|(number, fault)| {
            fault.strikes(cell).filter_map(move |at| {
                let from = plan.start_ns + nanos(at);
                let place = due_ns.partition_point(|due| *due < from);
                (place < due_ns.len()).then_some(Held { place, lasts: fault.lasts?, fault: number })
            })
        })
        .collect();
    held.sort_unstable_by(|one, other| (one.place, other.lasts).cmp(&(other.place, one.lasts)));
    held.dedup_by_key(|held| held.place);
    held
}

/// What became of the commits that were held back: each hit where a later write of its service was committed before.
#[must_use]
pub(crate) fn late_commit_spans(cell: &Cell, plan: &Plan, services: &[ServiceHistory]) -> Vec<FaultSpan> {
    let mut spans = Vec::new();
    for (service, facts) in services.iter().enumerate() {
        let backlog = plan.services[service].backlog as usize;
        for Held { place, fault, .. } in held(cell, plan, service) {
            let Some(write) = facts.writes.get(backlog + place) else { continue };
            let overtaken = facts.writes[backlog + place + 1..]
                .iter()
                .filter(|other| other.outcome == Outcome::Committed && other.ended_ns < write.ended_ns)
                .count();
            spans.push(FaultSpan {
                fault,
                kind: Breaks::LateCommit.kind(),
                target: Breaks::LateCommit.target(),
                began_ns: write.executed_ns,
                healed_ns: write.ended_ns,
                hit: overtaken > 0 && write.outcome == Outcome::Committed,
                evidence: format!(
                    "{overtaken} later writes of {} were committed before the one that was held back",
                    plan.services[service].name
                ),
            });
        }
    }
    spans
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
