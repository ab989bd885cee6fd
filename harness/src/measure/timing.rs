//! The ten distributions of times, and what is read from them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Distribution, HistogramError, Measurements, count, distribution::Recorder};
use crate::{
    history::{DrainerTick, EventRef, History, Outcome, Write},
    ledger::Firsts,
    scenario::WriteKind,
};

/// A kind of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Timing {
    /// From due to the return of COMMIT, or to the end of a write that failed or is unsure.
    Persist,
    /// From due to the start.
    Lag,
    /// Waiting for a connection.
    Acquire,
    /// BEGIN and the statements.
    Execute,
    /// COMMIT.
    Commit,
    /// Persist without lag.
    Service,
    /// From the return of COMMIT to the event's first arrival.
    Deliver,
    /// From publish to confirm, told by the drainer.
    Confirm,
    /// A claim, told by the drainer.
    Claim,
    /// The marks, told by the drainer.
    Mark,
}

impl Timing {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Persist,
        Self::Lag,
        Self::Acquire,
        Self::Execute,
        Self::Commit,
        Self::Service,
        Self::Deliver,
        Self::Confirm,
        Self::Claim,
        Self::Mark,
    ];

    /// The parts that persist splits into.
    pub const PARTS: [Self; 4] = [Self::Lag, Self::Acquire, Self::Execute, Self::Commit];

    /// The quantiles that are metrics, by the last part of the metric's name. The maximum is the last.
    pub const QUANTILES: [(&str, f64); 5] =
        [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999), ("max", 1.0)];

    /// First part of its metrics' names.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Persist => "persist",
            Self::Lag => "lag",
            Self::Acquire => "acquire",
            Self::Execute => "execute",
            Self::Commit => "commit",
            Self::Service => "service",
            Self::Deliver => "deliver",
            Self::Confirm => "confirm",
            Self::Claim => "claim",
            Self::Mark => "mark",
        }
    }

    /// Why it has no value in a cell.
    const fn why_not(self) -> &'static str {
        match self {
            Self::Persist | Self::Lag | Self::Acquire | Self::Execute | Self::Service => {
                "no write was due in the window"
            }
            Self::Commit => "no write that was due in the window came to a COMMIT of its own",
            Self::Deliver => "no event of a write that was due in the window arrived",
            Self::Confirm | Self::Claim | Self::Mark => "no drainer told of one",
        }
    }
}

/// What each part is of persist, 0 to 1, the largest first; from mean and number of each. Empty without writes.
#[must_use]
pub fn persist_shares(sum: impl Fn(Timing) -> f64) -> Vec<(Timing, f64)> {
    let whole: f64 = Timing::PARTS.into_iter().map(&sum).sum();
    if whole <= 0.0 {
        return Vec::new();
    }
    let mut shares: Vec<_> = Timing::PARTS.into_iter().map(|part| (part, sum(part) / whole)).collect();
    shares.sort_by(|a, b| b.1.total_cmp(&a.1));
    shares
}

struct Recorders {
    of: BTreeMap<Timing, Recorder>,
    /// Arrivals before their COMMIT had returned.
    early: u64,
}

pub(super) fn measure(found: &mut Measurements, history: &History) {
    let mut recorders =
        Recorders { of: Timing::ALL.map(|kind| (kind, Recorder::new())).into_iter().collect(), early: 0 };
    if let Err(why) = recorders.record(history, &found.audit.firsts) {
        found.facts.broken.push(why.to_string());
    }
    found.set("deliver.early", count(recorders.early));
    for (kind, recorder) in recorders.of {
        match recorder.finish() {
            Ok(Some(distribution)) => publish(found, kind, distribution),
            Ok(None) => miss(found, kind),
            Err(why) => found.facts.broken.push(format!("{}: {why}", kind.name())),
        }
    }
}

fn publish(found: &mut Measurements, kind: Timing, distribution: Distribution) {
    for (suffix, quantile) in Timing::QUANTILES {
        let us = distribution.merged.value_at_quantile(quantile);
        found.set(&format!("{}.{suffix}", kind.name()), count(us) / 1e3);
    }
    if kind == Timing::Persist {
        found.set("persist.p99_worst_service", count(distribution.worst_p99_us) / 1e3);
    }
    found.distributions.insert(kind, distribution);
}

fn miss(found: &mut Measurements, kind: Timing) {
    for (suffix, _) in Timing::QUANTILES {
        found.miss(&format!("{}.{suffix}", kind.name()), kind.why_not());
    }
    if kind == Timing::Persist {
        found.miss("persist.p99_worst_service", kind.why_not());
    }
    if kind == Timing::Deliver {
        found.miss("deliver.early", kind.why_not());
    }
}

impl Recorders {
    fn record(&mut self, history: &History, firsts: &[Firsts]) -> Result<(), HistogramError> {
        let mut told: Vec<Vec<&DrainerTick>> = vec![Vec::new(); history.services.len()];
        for tick in &history.ticks {
            if let Some(of_service) = told.get_mut(usize::from(tick.service)) {
                of_service.push(tick);
            }
        }
        let commits = history.plan.load.write == WriteKind::Transaction;
        for (index, (plan, facts)) in history.plan.services.iter().zip(&history.services).enumerate() {
            for (place, write) in (0u32..).zip(&facts.writes).skip(plan.backlog as usize) {
                if !history.window_ns.contains(&write.due_ns) {
                    continue;
                }
                self.record_write(write, commits);
                if write.outcome != Outcome::Committed {
                    continue;
                }
                for nth in 0..history.plan.events_per_write() {
                    let event = EventRef { write: place, event: nth };
                    if let Some(at) = firsts.get(index).and_then(|first| first.at_ns(&facts.arrivals, event))
                    {
                        self.early += u64::from(at < write.ended_ns);
                        self.ns(Timing::Deliver, write.ended_ns, at);
                    }
                }
            }
            for tick in told.get(index).into_iter().flatten() {
                self.record_tick(tick);
            }
            for recorder in self.of.values_mut() {
                recorder.close_service(&plan.name)?;
            }
        }
        Ok(())
    }

    /// A write that failed counts in the part it failed in and in those before it, not in those it never came to:
    /// their zeros would flatter. A write that rolls back on purpose persists nothing and tells of the generator only. A
    /// single statement has no COMMIT of its own: `commits` tells.
    fn record_write(&mut self, write: &Write, commits: bool) {
        self.ns(Timing::Lag, write.due_ns, write.started_ns);
        if write.outcome == Outcome::RolledBack {
            return;
        }
        self.ns(Timing::Persist, write.due_ns, write.ended_ns);
        self.ns(Timing::Service, write.started_ns, write.ended_ns);
        self.ns(Timing::Acquire, write.started_ns, write.acquired_ns);
        let failed = write.outcome == Outcome::Failed;
        if failed && write.acquired_ns == write.ended_ns {
            return;
        }
        self.ns(Timing::Execute, write.acquired_ns, write.executed_ns);
        if !commits || failed && write.executed_ns == write.ended_ns {
            return;
        }
        self.ns(Timing::Commit, write.executed_ns, write.ended_ns);
    }

    fn record_tick(&mut self, told: &DrainerTick) {
        let tick = &told.tick;
        for us in &tick.confirm_us {
            self.us(Timing::Confirm, *us);
        }
        if let Some(us) = tick.claim_us {
            self.us(Timing::Claim, us);
        }
        if let Some(us) = tick.mark_us {
            self.us(Timing::Mark, us);
        }
    }

    fn ns(&mut self, kind: Timing, from_ns: u64, to_ns: u64) {
        if let Some(recorder) = self.of.get_mut(&kind) {
            recorder.record_ns(to_ns.saturating_sub(from_ns));
        }
    }

    fn us(&mut self, kind: Timing, us: u64) {
        if let Some(recorder) = self.of.get_mut(&kind) {
            recorder.record_us(us);
        }
    }
}
