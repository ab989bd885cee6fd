//! The accounting: what became of every event. Each term is counted on its own, none by subtraction, so that the
//! equations of [`Audit::check`] can fail when the instrument is broken.

mod book;
mod offender;
mod reorder;
pub mod synthetic;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use book::{BYTES_AN_EVENT, Firsts};
pub use offender::{Offence, Offender};

use crate::history::{History, Outcome, ServiceHistory};

/// At most so many offenders of each kind are named.
pub const NAMED: usize = 20;

/// What was attempted and what came, warm-up and backlog included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Counts {
    /// Writes of the plan, the backlog included; of an interrupted run those that were attempted.
    pub scheduled: u64,
    /// Writes whose COMMIT returned.
    pub committed: u64,
    /// Writes that were rolled back on purpose.
    pub rolled_back: u64,
    /// Writes that were refused or had no connection in time.
    pub failed: u64,
    /// Writes whose reply to COMMIT was lost.
    pub unsure: u64,
    /// Events of the committed writes.
    pub committed_events: u64,
    /// Deliveries at the broker.
    pub arrivals: u64,
}

/// What became of the events and what the deliveries were.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Tally {
    /// Committed events that arrived.
    pub delivered: u64,
    /// Committed events that did not arrive and are still unpublished in the outbox.
    pub waiting: u64,
    /// Committed events that did not arrive and were set aside.
    pub dead: u64,
    /// Committed events that did not arrive and are neither waiting nor dead.
    pub lost: u64,
    /// Deliveries of another publish of an event that had arrived.
    pub duplicated: u64,
    /// Deliveries of a publish that had been delivered.
    pub redelivered: u64,
    /// First deliveries of events that were rolled back or failed.
    pub phantom: u64,
    /// First deliveries of events whose COMMIT was unsure.
    pub recovered: u64,
    /// Deliveries that nobody of the cell wrote.
    pub foreign: u64,
    /// Events that arrived before an earlier event of their key.
    pub reordered: u64,
    /// Committed events that arrived and are still unpublished in the outbox: they would be sent again. No term of the
    /// equations, because they are delivered.
    #[serde(default)]
    pub unmarked: u64,
}

impl Tally {
    /// Each term with the name of its metric.
    #[must_use]
    pub const fn terms(&self) -> [(&'static str, u64); 11] {
        [
            ("audit.delivered", self.delivered),
            ("audit.waiting", self.waiting),
            ("audit.dead", self.dead),
            ("audit.lost", self.lost),
            ("audit.duplicated", self.duplicated),
            ("audit.redelivered", self.redelivered),
            ("audit.phantom", self.phantom),
            ("audit.recovered", self.recovered),
            ("audit.foreign", self.foreign),
            ("audit.reordered", self.reordered),
            ("audit.unmarked", self.unmarked),
        ]
    }
}

/// The accounts of one cell.
#[derive(Debug, Clone, Default)]
pub struct Audit {
    /// What was attempted and what came.
    pub counts: Counts,
    /// What became of it.
    pub tally: Tally,
    /// Up to [`NAMED`] of each kind, with their history.
    pub offenders: Vec<Offender>,
    /// When each event arrived first, a service each, in the order of the plan.
    pub firsts: Vec<Firsts>,
    /// Facts that contradict each other, in words: up to [`NAMED`].
    misfits: Vec<String>,
}

impl Audit {
    /// Verifies the three equations of the accounting, and that no fact contradicts another.
    ///
    /// # Errors
    /// One sentence for each that does not hold: the instrument is broken and the cell proves nothing.
    pub fn check(&self) -> Result<(), Vec<String>> {
        let mut broken = equations(&self.counts, &self.tally);
        broken.extend(self.misfits.iter().cloned());
        if broken.is_empty() { Ok(()) } else { Err(broken) }
    }

    fn misfit(&mut self, sentence: String) {
        if self.misfits.len() < NAMED {
            self.misfits.push(sentence);
        }
    }
}

/// The equations of the accounting that do not hold, in words. Needs nothing but a record's numbers.
#[must_use]
pub fn equations(counts: &Counts, tally: &Tally) -> Vec<String> {
    let sides = [
        (
            "scheduled = committed + rolled back + failed + unsure",
            counts.scheduled,
            vec![counts.committed, counts.rolled_back, counts.failed, counts.unsure],
        ),
        (
            "committed events = delivered + waiting + dead + lost",
            counts.committed_events,
            vec![tally.delivered, tally.waiting, tally.dead, tally.lost],
        ),
        (
            "arrivals = delivered + recovered + phantom + duplicated + redelivered + foreign",
            counts.arrivals,
            vec![
                tally.delivered,
                tally.recovered,
                tally.phantom,
                tally.duplicated,
                tally.redelivered,
                tally.foreign,
            ],
        ),
    ];
    sides
        .into_iter()
        .filter(|(_, left, right)| u128::from(*left) != right.iter().copied().map(u128::from).sum())
        .map(|(rule, left, right)| {
            let terms: Vec<String> = right.iter().map(u64::to_string).collect();
            format!("{rule} does not hold: {left} is not {}", terms.join(" + "))
        })
        .collect()
}

/// Does the accounts of a cell.
///
/// Time: a pass over writes, arrivals and outbox, and a sort of the keyed events of each service. Memory:
/// [`BYTES_AN_EVENT`] for each planned event, and 24 bytes for each keyed event of one service while it is sorted.
#[must_use]
pub fn audit(history: &History) -> Audit {
    let mut audit = Audit::default();
    let mut room: BTreeMap<Offence, usize> = BTreeMap::new();
    audit.counts.scheduled = scheduled(history);
    for (index, (plan, facts)) in history.plan.services.iter().zip(&history.services).enumerate() {
        count_writes(&mut audit.counts, facts, history.plan.events_per_write());
        let mut book = book::Book::new(plan, facts, history.plan.events_per_write());
        book.enter_arrivals(&mut audit);
        book.enter_outbox(&mut audit);
        book.find_lost(&mut audit);
        let service = u16::try_from(index).unwrap_or(u16::MAX);
        book.find_reordered(&mut audit, |event| history.plan.key(service, event));
        let (firsts, offences) = book.close();
        audit.offenders.extend(offender::name(plan, facts, &offences, &mut room));
        audit.firsts.push(firsts);
    }
    audit.offenders.sort_by_key(|offender| offender.offence);
    audit
}

/// Of a run that was not interrupted every planned write must have been attempted.
fn scheduled(history: &History) -> u64 {
    if history.interrupted {
        history.services.iter().map(|facts| facts.writes.len() as u64).sum()
    } else {
        history.plan.services.iter().map(|plan| u64::from(plan.writes())).sum()
    }
}

fn count_writes(counts: &mut Counts, facts: &ServiceHistory, events_per_write: u16) {
    for write in &facts.writes {
        match write.outcome {
            Outcome::Committed => {
                counts.committed += 1;
                counts.committed_events += u64::from(events_per_write);
            }
            Outcome::RolledBack => counts.rolled_back += 1,
            Outcome::Failed => counts.failed += 1,
            Outcome::Unsure => counts.unsure += 1,
        }
    }
}
