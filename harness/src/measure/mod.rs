//! From facts to numbers. Pure.
//!
//! Every percentile is read from a histogram that the record carries, so that it can be computed again from there.
//! A metric is either measured or has a reason why not; there is no third.

mod database;
mod distribution;
mod drain;
mod figure;
mod recovery;
mod sampled;
mod series;
mod suite;
#[cfg(test)]
mod tests;
mod timing;

use std::{collections::BTreeMap, ops::Range};

pub use distribution::{Distribution, HIGHEST_US, HistogramError, decode};
pub use figure::{figure, number};
pub use sampled::{Oldest, StateShare, WaitShare, Waits};
pub use series::Series;
pub use suite::SuiteCounts;
pub use timing::{Timing, persist_shares};

use crate::{
    history::{DatabaseUse, FaultSpan, History, Outcome},
    ledger::{self, Audit},
    metric::Metric,
    scenario::Cell,
};

/// What one cell comes to.
#[derive(Debug, Clone)]
pub struct Measurements {
    /// Wall clock of the origin.
    pub started_at: jiff::Timestamp,
    /// The measured window, nanoseconds since the origin.
    pub window_ns: Range<u64>,
    /// From the first drainer's start to the last one's stop.
    pub drained_ns: Option<Range<u64>>,
    /// What was measured.
    pub metrics: BTreeMap<Metric, f64>,
    /// Why each other metric was not, in words.
    pub unmeasured: BTreeMap<Metric, String>,
    /// Where the percentiles come from. Only those with a value.
    pub distributions: BTreeMap<Timing, Distribution>,
    /// The accounts, without the first arrivals.
    pub audit: Audit,
    /// The suite, where there is one.
    pub suite: Option<SuiteCounts>,
    /// Second by second.
    pub series: Series,
    /// What sessions waited for.
    pub waits: Waits,
    /// What was broken on purpose.
    pub faults: Vec<FaultSpan>,
    /// The database's counters, for a paired cell.
    pub database: DatabaseUse,
    /// What decides whether any of it means anything.
    pub facts: Facts,
}

/// What decides whether a cell means anything.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Facts {
    /// How late the generator started its writes, p99, milliseconds; `None` without writes in the window.
    pub lag_p99_ms: Option<f64>,
    /// Longest time that a marker took through a queue, milliseconds.
    pub sink_behind_ms: f64,
    /// Share of the sampler's ticks that were not made.
    pub sampler_missed: f64,
    /// The last error that cost the sampler a tick.
    pub sampler_error: Option<String>,
    /// Services whose drainer the sampler never saw; `None` where no drainer uses the database.
    pub unseen: Option<Vec<String>>,
    /// Deliveries that nobody of the cell wrote.
    pub foreign: u64,
    /// Equations of the accounting that do not hold.
    pub broken: Vec<String>,
}

impl Measurements {
    /// A metric's value.
    #[must_use]
    pub fn get(&self, metric: Metric) -> Option<f64> {
        self.metrics.get(&metric).copied()
    }

    /// Whether there was something to drain and none of it arrived.
    #[must_use]
    pub fn delivered_nothing(&self) -> bool {
        self.audit.counts.committed_events > 0 && self.audit.tally.delivered == 0
    }

    /// A metric's value by name.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<f64> {
        self.get(Metric::lookup(name).ok()?)
    }

    /// Sets a metric. What is not a finite number was not measured.
    fn set(&mut self, name: &str, value: f64) {
        let Ok(metric) = Metric::lookup(name) else {
            self.facts.broken.push(format!("`{name}` is measured and is no metric"));
            return;
        };
        if value.is_finite() {
            self.unmeasured.remove(&metric);
            self.metrics.insert(metric, value);
        }
    }

    /// Says why a metric is not measured.
    fn miss(&mut self, name: &str, why: &str) {
        if let Ok(metric) = Metric::lookup(name) {
            self.metrics.remove(&metric);
            self.unmeasured.insert(metric, why.to_owned());
        }
    }

    fn miss_all(&mut self, names: &[&str], why: &str) {
        for name in names {
            self.miss(name, why);
        }
    }

    /// Sets it, or says why not.
    fn set_or(&mut self, name: &str, value: Option<f64>, why: &str) {
        match value {
            Some(value) => self.set(name, value),
            None => self.miss(name, why),
        }
    }
}

/// The control of the same round, and what it was asked to be.
pub type Paired<'a> = (&'a Cell, &'a Measurements);

/// Measures a cell. `control` is the paired control of the same round, for what only a difference can tell.
#[must_use]
pub fn measure(history: &History, cell: &Cell, control: Option<Paired<'_>>) -> Measurements {
    let audit = ledger::audit(history);
    let flow = drain::Flow::of(history, &audit);
    let mut found = Measurements {
        started_at: history.started_at,
        window_ns: history.window_ns.clone(),
        drained_ns: history.drained_ns.clone(),
        metrics: BTreeMap::new(),
        unmeasured: BTreeMap::new(),
        distributions: BTreeMap::new(),
        suite: None,
        series: series::series(history, &flow),
        waits: sampled::waits(history),
        faults: Vec::new(),
        database: history.database.clone(),
        facts: Facts { broken: audit.check().err().unwrap_or_default(), ..Facts::default() },
        audit,
    };
    timing::measure(&mut found, history);
    writes(&mut found, history);
    suite::measure(&mut found, history, cell);
    drain::measure(&mut found, history, cell, &flow);
    accounts(&mut found, cell);
    sampled::measure(&mut found, history, cell);
    database::measure(&mut found, cell, control);
    facts(&mut found, history, cell);
    recovery::measure(&mut found, history, cell, &flow);
    found.faults = history.faults.clone();
    // Four bytes an event, and nothing asks for them again.
    found.audit.firsts = Vec::new();
    for metric in Metric::all() {
        if !found.metrics.contains_key(&metric) {
            found.unmeasured.entry(metric).or_insert_with(|| "it had no value in this cell".to_owned());
        }
    }
    found
}

/// How the writes that were due in the window ended.
fn writes(found: &mut Measurements, history: &History) {
    let [mut committed, mut rolled_back, mut failed, mut unsure] = [0u32; 4];
    for (plan, facts) in history.plan.services.iter().zip(&history.services) {
        for write in facts.writes.iter().skip(plan.backlog as usize) {
            if !history.window_ns.contains(&write.due_ns) {
                continue;
            }
            match write.outcome {
                Outcome::Committed => committed += 1,
                Outcome::RolledBack => rolled_back += 1,
                Outcome::Failed => failed += 1,
                Outcome::Unsure => unsure += 1,
            }
        }
    }
    found.set("writes.committed", committed.into());
    found.set("writes.rolled_back", rolled_back.into());
    found.set("writes.failed", failed.into());
    found.set("writes.unsure", unsure.into());
}

/// The audit's terms. Where nobody drains they say nothing and are no metrics.
fn accounts(found: &mut Measurements, cell: &Cell) {
    for (name, value) in found.audit.tally.terms() {
        if cell.design.drains() {
            found.set(name, count(value));
        } else {
            found.miss(name, "nobody drains in this cell");
        }
    }
    if !cell.design.drains_database() {
        found.miss("audit.unmarked", "no drainer works on the database in this cell");
    }
}

fn facts(found: &mut Measurements, history: &History, cell: &Cell) {
    let behind = history.services.iter().map(|service| service.marker_max_ns).max().unwrap_or(0);
    found.facts.lag_p99_ms = found.named("lag.p99");
    found.facts.sink_behind_ms = ms(behind);
    found.facts.sampler_missed = sampled::missed(&history.samples);
    found.facts.sampler_error = history.samples.last_error.clone();
    found.facts.unseen = cell.design.drains_database().then(|| sampled::unseen(history));
    found.facts.foreign = found.audit.tally.foreign;
}

/// Milliseconds of nanoseconds.
fn ms(ns: u64) -> f64 {
    count(ns) / 1e6
}

/// A count as a metric's number; exact below 2^53.
#[expect(clippy::cast_precision_loss, reason = "no count of a run comes near 2^53")]
fn count(value: u64) -> f64 {
    value as f64
}
