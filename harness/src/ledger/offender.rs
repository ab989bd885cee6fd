//! Offenders by name, each with its history.

use std::{
    collections::{BTreeMap, HashMap},
    fmt::Write as _,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{NAMED, book::Finding};
use crate::{
    history::{Arrival, EventRef, Outcome, ServiceHistory},
    plan::ServicePlan,
};

/// What an event or a delivery is named for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Offence {
    /// Committed and nowhere.
    Lost,
    /// Arrived though rolled back or failed.
    Phantom,
    /// Nobody wrote it.
    Foreign,
    /// Still unpublished.
    Waiting,
    /// Set aside.
    Dead,
    /// Published again.
    Duplicated,
    /// Delivered again.
    Redelivered,
    /// Overtook an earlier event of its key.
    Reordered,
    /// Arrived, its COMMIT was unsure.
    Recovered,
}

impl Offence {
    /// As it stands in the audit: `lost`, `phantom`, ...
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lost => "lost",
            Self::Phantom => "phantom",
            Self::Foreign => "foreign",
            Self::Waiting => "waiting",
            Self::Dead => "dead",
            Self::Duplicated => "duplicated",
            Self::Redelivered => "redelivered",
            Self::Reordered => "reordered",
            Self::Recovered => "recovered",
        }
    }
}

/// One event or delivery, and what happened to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Offender {
    /// What it is named for.
    pub offence: Offence,
    /// Name of its service.
    pub service: String,
    /// Its write's place in the plan; none of a foreign delivery.
    pub write: Option<u32>,
    /// Its place in the write.
    pub event: Option<u16>,
    /// Its history in one line; seconds since the origin.
    pub story: String,
}

/// At most so many deliveries of one event are told.
const DELIVERIES_TOLD: usize = 8;

/// Names what there is still room for.
pub(super) fn name(
    plan: &ServicePlan,
    facts: &ServiceHistory,
    findings: &[Finding],
    room: &mut BTreeMap<Offence, usize>,
) -> Vec<Offender> {
    let mut named: Vec<&Finding> = Vec::new();
    for finding in findings {
        let used = room.entry(finding.offence).or_default();
        if *used < NAMED {
            *used += 1;
            named.push(finding);
        }
    }
    if named.is_empty() {
        return Vec::new();
    }
    let deliveries = deliveries(facts, &named);
    named
        .into_iter()
        .map(|finding| Offender {
            offence: finding.offence,
            service: plan.name.clone(),
            write: finding.event.map(|event| event.write),
            event: finding.event.map(|event| event.event),
            story: story(facts, finding, &deliveries),
        })
        .collect()
}

/// The deliveries of the events that are named, in one pass.
fn deliveries<'a>(facts: &'a ServiceHistory, named: &[&Finding]) -> HashMap<EventRef, Vec<&'a Arrival>> {
    let mut of: HashMap<EventRef, Vec<&Arrival>> = named
        .iter()
        .flat_map(|finding| [finding.event, finding.other])
        .flatten()
        .map(|event| (event, Vec::new()))
        .collect();
    for arrival in &facts.arrivals {
        if let Some(seen) = arrival.event.and_then(|event| of.get_mut(&event))
            && seen.len() < DELIVERIES_TOLD
        {
            seen.push(arrival);
        }
    }
    of
}

fn story(facts: &ServiceHistory, finding: &Finding, of: &HashMap<EventRef, Vec<&Arrival>>) -> String {
    if let Some(arrival) = finding.arrival.and_then(|place| facts.arrivals.get(place as usize)) {
        return match arrival.event {
            Some(EventRef { write, event }) => {
                format!("{}, claims to be event {event} of write {write}", delivery(arrival))
            }
            None => format!("{}, carries no id of this cell", delivery(arrival)),
        };
    }
    let mut text = finding.event.map(|event| tell(facts, event, of)).unwrap_or_default();
    if let Some(other) = finding.other {
        let _ =
            write!(text, "; before write {} event {}: {}", other.write, other.event, tell(facts, other, of));
    }
    text
}

fn tell(facts: &ServiceHistory, event: EventRef, of: &HashMap<EventRef, Vec<&Arrival>>) -> String {
    let mut text = match facts.writes.get(event.write as usize) {
        Some(write) => {
            let how = match write.outcome {
                Outcome::Committed => "committed",
                Outcome::RolledBack => "rolled back",
                Outcome::Failed => "failed",
                Outcome::Unsure => "unsure",
            };
            let (due, acquired, ended) =
                (seconds(write.due_ns), seconds(write.acquired_ns), seconds(write.ended_ns));
            format!("due {due}, enqueued from {acquired}, {how} {ended}")
        }
        None => "never attempted".to_owned(),
    };
    let seen = of.get(&event).map(Vec::as_slice).unwrap_or_default();
    if seen.is_empty() {
        text.push_str(", never arrived");
    }
    for arrival in seen {
        let _ = write!(text, ", {}", delivery(arrival));
    }
    text
}

fn delivery(arrival: &Arrival) -> String {
    let again = if arrival.redelivered { " again" } else { "" };
    format!("arrived{again} {} as publish {:016x}", seconds(arrival.at_ns), arrival.publish)
}

fn seconds(ns: u64) -> String {
    format!("{}.{:06} s", ns / 1_000_000_000, ns % 1_000_000_000 / 1_000)
}
