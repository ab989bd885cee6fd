//! From facts to numbers. Pure.
//!
//! Every percentile is read from a histogram that the record carries, so that it can be computed again from there.
//! A metric is either measured or has a reason why not; there is no third.

mod database;
mod distribution;
mod drain;
mod figure;
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
    history::{DatabaseUse, History, Outcome},
    ledger::{self, Audit},
    metric::Metric,
    scenario::{Cell, CellDesign},
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
    /// Whether the sampler saw a session of the drainer; `None` where no drainer uses the database.
    pub drainer_seen: Option<bool>,
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

/// Whether somebody carries events to the broker.
#[must_use]
pub fn drains(design: CellDesign) -> bool {
    match design {
        CellDesign::None => false,
        CellDesign::Raw | CellDesign::SingleTx | CellDesign::Lease => true,
    }
}

/// Whether the cell's drainer works on the database, so that the sampler must see it.
#[must_use]
pub fn drains_database(design: CellDesign) -> bool {
    match design {
        CellDesign::None | CellDesign::Raw => false,
        CellDesign::SingleTx | CellDesign::Lease => true,
    }
}

/// Measures a cell. `control` is the paired control of the same round, for what only a difference can tell.
#[must_use]
pub fn measure(history: &History, cell: &Cell, control: Option<&Measurements>) -> Measurements {
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
    found.miss("recovery.time", "no fault was injected");
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
    let tally = found.audit.tally;
    let terms = [
        ("audit.delivered", tally.delivered),
        ("audit.waiting", tally.waiting),
        ("audit.dead", tally.dead),
        ("audit.lost", tally.lost),
        ("audit.duplicated", tally.duplicated),
        ("audit.redelivered", tally.redelivered),
        ("audit.phantom", tally.phantom),
        ("audit.recovered", tally.recovered),
        ("audit.foreign", tally.foreign),
        ("audit.reordered", tally.reordered),
    ];
    for (name, value) in terms {
        if drains(cell.design) {
            found.set(name, count(value));
        } else {
            found.miss(name, "nobody drains in this cell");
        }
    }
}

fn facts(found: &mut Measurements, history: &History, cell: &Cell) {
    let behind = history.services.iter().map(|service| service.marker_max_ns).max().unwrap_or(0);
    let seen = drains_database(cell.design).then(|| sampled::drainer_seen(history));
    found.facts.lag_p99_ms = found.named("lag.p99");
    found.facts.sink_behind_ms = ms(behind);
    found.facts.sampler_missed = sampled::missed(&history.samples);
    found.facts.sampler_error = history.samples.last_error.clone();
    found.facts.drainer_seen = seen;
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
