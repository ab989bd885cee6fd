//! The drain: how fast, how far behind, and what its processes took.

use super::{Measurements, count, ms};
use crate::{
    history::{EventRef, History, Outcome},
    ledger::Audit,
    scenario::Cell,
};

/// When committed events were committed and when they arrived, each ascending, nanoseconds since the origin.
pub(super) struct Flow {
    pub(super) commits_ns: Vec<u64>,
    /// First arrivals; never before the event's commit.
    pub(super) arrivals_ns: Vec<u64>,
    /// Longest time from a commit to the first arrival, or to the end.
    age_max_ns: u64,
}

impl Flow {
    pub(super) fn of(history: &History, audit: &Audit) -> Self {
        let end = last_instant(history);
        let mut flow = Self { commits_ns: Vec::new(), arrivals_ns: Vec::new(), age_max_ns: 0 };
        for (facts, firsts) in history.services.iter().zip(&audit.firsts) {
            for (place, write) in (0u32..).zip(&facts.writes) {
                if write.outcome != Outcome::Committed {
                    continue;
                }
                for nth in 0..history.plan.events_per_write() {
                    let committed = write.ended_ns;
                    let arrived = firsts.at_ns(&facts.arrivals, EventRef { write: place, event: nth });
                    flow.commits_ns.push(committed);
                    flow.arrivals_ns.extend(arrived.map(|at| at.max(committed)));
                    let left = arrived.unwrap_or(end);
                    flow.age_max_ns = flow.age_max_ns.max(left.saturating_sub(committed));
                }
            }
        }
        flow.commits_ns.sort_unstable();
        flow.arrivals_ns.sort_unstable();
        flow
    }

    /// For tests of what is made of it.
    #[cfg(test)]
    pub(super) fn made_of(commits_ns: Vec<u64>, arrivals_ns: Vec<u64>) -> Self {
        Self { commits_ns, arrivals_ns, age_max_ns: 0 }
    }

    /// Events that were committed and had not arrived at that instant.
    pub(super) fn backlog(&self, at_ns: u64) -> usize {
        let until = |instants: &[u64]| instants.partition_point(|instant| *instant <= at_ns);
        until(&self.commits_ns).saturating_sub(until(&self.arrivals_ns))
    }

    /// Most events that were committed and had not arrived.
    fn peak(&self) -> usize {
        let mut arrived = 0;
        let mut peak = 0;
        for (before, at) in self.commits_ns.iter().enumerate() {
            while self.arrivals_ns.get(arrived).is_some_and(|arrival| arrival <= at) {
                arrived += 1;
            }
            peak = peak.max((before + 1).saturating_sub(arrived));
        }
        peak
    }

    /// Events a second between the first and the last arrival; `None` when they are one instant.
    fn rate(&self) -> Option<f64> {
        let (first, last) = (self.arrivals_ns.first()?, self.arrivals_ns.last()?);
        let span = last - first;
        (span > 0).then(|| count(self.arrivals_ns.len() as u64 - 1) / (count(span) / 1e9))
    }
}

/// The end of what was seen.
pub(super) fn last_instant(history: &History) -> u64 {
    let drained = history.drained_ns.as_ref().map_or(0, |span| span.end);
    let seen = history.services.iter().flat_map(|facts| {
        let written = facts.writes.iter().map(|write| write.ended_ns).max();
        [written, facts.arrivals.last().map(|arrival| arrival.at_ns)]
    });
    seen.flatten().fold(drained.max(history.window_ns.end), u64::max)
}

const FLOW: [&str; 4] = ["drain.rate", "drain.failed", "backlog.peak", "backlog.age_max"];
const PROCESS: [&str; 2] = ["drainer.cpu", "drainer.rss_peak"];

pub(super) fn measure(found: &mut Measurements, history: &History, cell: &Cell, flow: &Flow) {
    if !cell.design.drains() {
        let why = "nobody drains in this cell";
        found.miss_all(&FLOW, why);
        found.miss_all(&PROCESS, why);
        found.miss("drainer.statements_per_sec", why);
        return;
    }
    found.set_or("drain.rate", flow.rate(), "fewer than two events arrived");
    found.set("backlog.peak", count(flow.peak() as u64));
    found.set("backlog.age_max", ms(flow.age_max_ns));
    if cell.design.drains_database() {
        told(found, history);
    } else {
        let why = "no drainer works on the database in this cell";
        found.miss_all(&["drain.failed", "drainer.statements_per_sec"], why);
    }
    processes(found, history);
}

/// What only the drainer can know.
fn told(found: &mut Measurements, history: &History) {
    let failed: u64 = history.ticks.iter().map(|told| told.tick.stats.failed).sum();
    let statements: u64 = history.ticks.iter().map(|told| told.tick.statements).sum();
    let span = history.drained_ns.as_ref().map_or(0, |span| span.end.saturating_sub(span.start));
    if history.ticks.is_empty() || span == 0 {
        found.miss_all(&["drain.failed", "drainer.statements_per_sec"], "no drainer told of a tick");
        return;
    }
    found.set("drain.failed", count(failed));
    found.set("drainer.statements_per_sec", count(statements) / (count(span) / 1e9));
}

fn processes(found: &mut Measurements, history: &History) {
    let used: f64 = history.processes.iter().map(|process| process.cpu_seconds).sum();
    let wall = history.processes.iter().map(|process| process.wall_seconds).fold(0.0, f64::max);
    if wall <= 0.0 {
        found.miss_all(&PROCESS, "the drainers have no process of their own");
        return;
    }
    found.set("drainer.cpu", used / wall);
    let rss = history.processes.iter().map(|process| process.rss_peak_bytes).max().unwrap_or(0);
    found.set("drainer.rss_peak", count(rss));
}
