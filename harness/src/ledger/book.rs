//! One service's book: where each of its events first arrived, and what the outbox says of it.

use std::collections::{BTreeMap, HashMap};

use super::{Audit, Offence, reorder};
use crate::{
    history::{Arrival, EventRef, Outcome, ServiceHistory},
    plan::ServicePlan,
};

/// What the book keeps of each planned event: the place of its first arrival and what the outbox says.
pub const BYTES_AN_EVENT: usize = size_of::<u32>() + size_of::<u8>();

/// No arrival.
const NEVER: u32 = u32::MAX;

/// The outbox still has it, unpublished.
const WAITING: u8 = 1;
/// The outbox set it aside.
const DEAD: u8 = 2;

/// Where each event of a service first arrived.
#[derive(Debug, Clone, Default)]
pub struct Firsts {
    /// Place in the service's arrivals, by write and event.
    places: Vec<u32>,
    events_per_write: u16,
}

impl Firsts {
    /// When the event arrived first, nanoseconds since the origin. `arrivals` are those of the same service.
    #[must_use]
    pub fn at_ns(&self, arrivals: &[Arrival], event: EventRef) -> Option<u64> {
        let place = *self.places.get(slot(event, self.events_per_write)?)?;
        (place != NEVER).then(|| arrivals.get(place as usize).map(|arrival| arrival.at_ns))?
    }
}

/// Place of an event in the dense arrays; `None` for an event number that no write has.
fn slot(event: EventRef, events_per_write: u16) -> Option<usize> {
    (event.event < events_per_write)
        .then(|| event.write as usize * usize::from(events_per_write) + usize::from(event.event))
}

/// What was found against an event, or against a delivery that belongs to none.
#[derive(Debug, Clone, Copy)]
pub(super) struct Finding {
    pub(super) offence: Offence,
    pub(super) event: Option<EventRef>,
    /// Another event that it concerns: the one that was overtaken.
    pub(super) other: Option<EventRef>,
    /// The delivery, where it belongs to no event.
    pub(super) arrival: Option<u32>,
}

pub(super) struct Book<'a> {
    facts: &'a ServiceHistory,
    firsts: Firsts,
    outbox: Vec<u8>,
    findings: Vec<Finding>,
    /// How many findings there are of each kind.
    kept: BTreeMap<Offence, usize>,
    service: &'a str,
    /// Writes before the schedule.
    backlog: u32,
}

impl<'a> Book<'a> {
    pub(super) fn new(plan: &'a ServicePlan, facts: &'a ServiceHistory, events_per_write: u16) -> Self {
        let events = facts.writes.len() * usize::from(events_per_write);
        Self {
            facts,
            firsts: Firsts { places: vec![NEVER; events], events_per_write },
            outbox: vec![0; events],
            findings: Vec::new(),
            kept: BTreeMap::new(),
            service: &plan.name,
            backlog: plan.backlog,
        }
    }

    /// The write of an event that was attempted, and the event's slot.
    fn find(&self, event: EventRef) -> Option<(Outcome, usize)> {
        let write = self.facts.writes.get(event.write as usize)?;
        Some((write.outcome, slot(event, self.firsts.events_per_write)?))
    }

    /// Keeps a finding; what is named is bounded, so nothing is lost by keeping a bounded number of each kind.
    fn find_fault(&mut self, offence: Offence, event: EventRef, other: Option<EventRef>) {
        self.keep(Finding { offence, event: Some(event), other, arrival: None });
    }

    fn keep(&mut self, finding: Finding) {
        let kept = self.kept.entry(finding.offence).or_default();
        if *kept < super::NAMED {
            *kept += 1;
            self.findings.push(finding);
        }
    }

    pub(super) fn enter_arrivals(&mut self, audit: &mut Audit) {
        // Publishes beyond the first of the few events that have several.
        let mut further: HashMap<usize, Vec<u64>> = HashMap::new();
        for (place, arrival) in (0u32..).zip(&self.facts.arrivals) {
            audit.counts.arrivals += 1;
            let found =
                arrival.event.and_then(|event| self.find(event).map(|(how, slot)| (event, how, slot)));
            let Some((event, outcome, slot)) = found else {
                audit.tally.foreign += 1;
                self.keep(Finding {
                    offence: Offence::Foreign,
                    event: arrival.event,
                    other: None,
                    arrival: Some(place),
                });
                continue;
            };
            if self.firsts.places[slot] == NEVER {
                self.firsts.places[slot] = place;
                self.enter_first(audit, event, outcome);
            } else if self.delivered_before(arrival, slot, &mut further) {
                audit.tally.redelivered += 1;
                self.find_fault(Offence::Redelivered, event, None);
            } else {
                audit.tally.duplicated += 1;
                self.find_fault(Offence::Duplicated, event, None);
            }
        }
    }

    fn enter_first(&mut self, audit: &mut Audit, event: EventRef, outcome: Outcome) {
        match outcome {
            Outcome::Committed => audit.tally.delivered += 1,
            Outcome::Unsure => {
                audit.tally.recovered += 1;
                self.find_fault(Offence::Recovered, event, None);
            }
            Outcome::RolledBack | Outcome::Failed => {
                audit.tally.phantom += 1;
                self.find_fault(Offence::Phantom, event, None);
            }
        }
    }

    /// Whether the broker delivered this very publish again. Both must say so: the broker, because a drainer may send a
    /// message twice with the properties it had; and the publish id, because a repeat by the drainer can be redelivered
    /// before we saw it once. Without a publish id the broker's word has to do.
    fn delivered_before(
        &self,
        arrival: &Arrival,
        slot: usize,
        further: &mut HashMap<usize, Vec<u64>>,
    ) -> bool {
        if arrival.publish == 0 {
            return arrival.redelivered;
        }
        let first = self.facts.arrivals[self.firsts.places[slot] as usize].publish;
        let known = further.entry(slot).or_default();
        let before = first == arrival.publish || known.contains(&arrival.publish);
        if !before {
            known.push(arrival.publish);
        }
        before && arrival.redelivered
    }

    pub(super) fn enter_outbox(&mut self, audit: &mut Audit) {
        let facts = self.facts;
        for event in &facts.waiting {
            if self.enter_row(audit, *event, WAITING) {
                audit.tally.waiting += 1;
                self.find_fault(Offence::Waiting, *event, None);
            }
        }
        for event in &facts.dead {
            if self.enter_row(audit, *event, DEAD) {
                audit.tally.dead += 1;
                self.find_fault(Offence::Dead, *event, None);
            }
        }
    }

    /// Enters a row of the outbox; whether it is a committed event that did not arrive.
    fn enter_row(&mut self, audit: &mut Audit, event: EventRef, state: u8) -> bool {
        let service = self.service;
        let EventRef { write, event: nth } = event;
        let Some((outcome, slot)) = self.find(event) else {
            audit.misfit(format!(
                "the outbox of {service} has event {nth} of write {write}, which nobody wrote"
            ));
            return false;
        };
        if self.outbox[slot] != 0 {
            audit.misfit(format!("the outbox of {service} has event {nth} of write {write} twice"));
        }
        self.outbox[slot] |= state;
        match outcome {
            Outcome::Committed if self.firsts.places[slot] == NEVER => true,
            Outcome::Committed => {
                audit.tally.unmarked += u64::from(state == WAITING);
                false
            }
            // It did commit; what is owed is owed to committed writes only.
            Outcome::Unsure => false,
            Outcome::RolledBack | Outcome::Failed => {
                audit.misfit(format!(
                    "the outbox of {service} has event {nth} of write {write}, which did not commit"
                ));
                false
            }
        }
    }

    pub(super) fn find_lost(&mut self, audit: &mut Audit) {
        let facts = self.facts;
        for (write, fact) in (0u32..).zip(&facts.writes) {
            if fact.outcome != Outcome::Committed {
                continue;
            }
            for nth in 0..self.firsts.events_per_write {
                let event = EventRef { write, event: nth };
                let Some(slot) = slot(event, self.firsts.events_per_write) else { continue };
                if self.firsts.places[slot] == NEVER && self.outbox[slot] == 0 {
                    audit.tally.lost += 1;
                    self.find_fault(Offence::Lost, event, None);
                }
            }
        }
    }

    pub(super) fn find_reordered(&mut self, audit: &mut Audit, key: impl Fn(EventRef) -> Option<u32>) {
        let mut keyed = Vec::new();
        for (write, fact) in (0u32..).zip(&self.facts.writes) {
            let committed = match fact.outcome {
                Outcome::Committed => true,
                Outcome::Unsure => false,
                Outcome::RolledBack | Outcome::Failed => continue,
            };
            for nth in 0..self.firsts.events_per_write {
                let event = EventRef { write, event: nth };
                let place =
                    slot(event, self.firsts.events_per_write).map_or(NEVER, |slot| self.firsts.places[slot]);
                if place == NEVER {
                    continue;
                }
                // A load without keys has none for any event.
                let Some(key) = key(event) else { return };
                keyed.push(reorder::Keyed { key, event, place, committed });
            }
        }
        for inversion in reorder::inversions(&self.facts.writes, self.backlog, keyed) {
            audit.tally.reordered += 1;
            self.find_fault(Offence::Reordered, inversion.event, Some(inversion.overtook));
        }
    }

    pub(super) fn close(self) -> (Firsts, Vec<Finding>) {
        (self.firsts, self.findings)
    }
}
