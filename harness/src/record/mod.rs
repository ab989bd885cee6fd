//! One experiment as one JSON object: everything a report needs.
//!
//! A reader of format N reads every earlier one. No secret is in a record: addresses lose their credentials when it
//! is made.

mod file;
mod machine;
mod recompute;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use file::{FILE_NAME, RecordError};
pub use machine::Machine;
pub use recompute::{Mismatch, recompute};

use crate::{
    history::FaultSpan,
    ledger::{Counts, Offender, Tally},
    measure::{Distribution, HistogramError, Series, SuiteCounts, Timing, Waits, decode},
    metric::Metric,
    rig::RigFacts,
    scenario::{CellDesign, Role, Scenario},
    verdict::{MeasuredCell, ReasonKind, Verdict},
};

/// The format that is written. 1 is the first.
pub const FORMAT: u32 = 1;

/// One experiment.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Record {
    /// Number of the format.
    pub format: u32,
    /// Who wrote it.
    pub tool: Tool,
    /// When the experiment started, RFC 3339.
    pub started_at: String,
    /// The command, without credentials.
    pub command: Vec<String>,
    /// What was asked.
    pub scenario: ScenarioRecord,
    /// Where it ran.
    pub machine: Machine,
    /// The servers; none when there were none.
    pub rig: Option<RigFacts>,
    /// What was measured, in the order it ran.
    pub cells: Vec<CellRecord>,
    /// What it comes to.
    pub verdict: Verdict,
    /// It was interrupted, or failed, before all cells had run.
    pub partial: bool,
}

/// The program that wrote a record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Tool {
    /// `drainbench`.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The commit it was built from, where known.
    pub commit: Option<String>,
}

/// The scenario of a record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ScenarioRecord {
    /// Its name.
    pub name: String,
    /// One line for people.
    pub about: String,
    /// The seed that everything random is a function of.
    pub seed: u64,
    /// How often all cells were to run.
    pub rounds: u32,
    /// The TOML.
    pub text: String,
    /// SHA-256 of the text, hex.
    pub hash: String,
    /// Every key of every cell, as it was.
    pub resolved: serde_json::Value,
}

/// One measured cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CellRecord {
    /// Its label.
    pub label: String,
    /// Who drained.
    pub design: CellDesign,
    /// What it was judged as.
    pub role: Option<Role>,
    /// Which repetition, from 1.
    pub round: u32,
    /// When.
    pub window: Window,
    /// What was attempted and what came.
    pub counts: Counts,
    /// The suite, where there is one.
    pub suite: Option<SuiteCounts>,
    /// Name to number.
    pub metrics: BTreeMap<String, f64>,
    /// Why each other metric has none.
    pub unmeasured: BTreeMap<String, String>,
    /// Where the percentiles come from.
    pub histograms: BTreeMap<Timing, HistogramRecord>,
    /// Second by second.
    pub series: Series,
    /// What sessions waited for.
    pub waits: Waits,
    /// What became of the events.
    pub audit: AuditRecord,
    /// What was broken when.
    pub faults: Vec<FaultRecord>,
    /// What broke the instrument or its servers, in words.
    pub troubles: Vec<String>,
    /// What changed under it, so that its numbers mean nothing: a setting, or the server itself.
    #[serde(default)]
    pub void: Vec<String>,
    /// What its drainers did that none may: ended by themselves, did not stop.
    #[serde(default)]
    pub misconduct: Vec<String>,
    /// It was cut off.
    pub interrupted: bool,
}

/// The spans of a cell, nanoseconds since its origin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Window {
    /// Wall clock of the origin, RFC 3339.
    pub origin: String,
    /// Start of the measured window.
    pub start_ns: u64,
    /// Its end.
    pub end_ns: u64,
    /// When the first drainer started.
    pub drain_start_ns: Option<u64>,
    /// When the last had stopped.
    pub drain_end_ns: Option<u64>,
}

/// Times in microseconds, three significant digits; HdrHistogram V2, compressed, base64.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HistogramRecord {
    /// All services together.
    pub merged: String,
    /// Each service that has a value, by name.
    pub services: BTreeMap<String, String>,
    /// Times beyond the longest that is recorded, 24 hours.
    pub saturated: u64,
}

/// One strike of a fault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FaultRecord {
    /// Place in the faults of the resolved cell.
    pub fault: usize,
    /// Its kind, as scenarios write it.
    pub kind: String,
    /// What it broke, as scenarios write it.
    pub target: String,
    /// When it was to be broken, nanoseconds since the cell's origin.
    pub began_ns: u64,
    /// When it had healed; of what never heals, when it had been broken.
    pub healed_ns: u64,
    /// Whether the other side saw it.
    pub hit: bool,
    /// What the other side saw.
    pub evidence: String,
}

impl FaultRecord {
    fn new(span: &FaultSpan) -> Self {
        Self {
            fault: span.fault,
            kind: span.kind.to_owned(),
            target: span.target.to_owned(),
            began_ns: span.began_ns,
            healed_ns: span.healed_ns,
            hit: span.hit,
            evidence: span.evidence.clone(),
        }
    }
}

/// The accounts of a cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuditRecord {
    /// What became of the events and what the deliveries were.
    #[serde(flatten)]
    pub tally: Tally,
    /// Up to 20 of each kind, with their history.
    pub offenders: Vec<Offender>,
}

/// What a record is made of beside the cells and the verdict.
#[derive(Debug, Clone)]
pub struct Experiment<'a> {
    /// What was asked.
    pub scenario: &'a Scenario,
    /// When it started.
    pub started_at: jiff::Timestamp,
    /// The command line, program name first.
    pub command: Vec<String>,
    /// The commit the program was built from, where known.
    pub commit: Option<String>,
    /// Where it ran.
    pub machine: Machine,
    /// The servers.
    pub rig: Option<RigFacts>,
}

impl Record {
    /// Makes a record.
    #[must_use]
    pub fn new(experiment: Experiment<'_>, cells: &[MeasuredCell], verdict: Verdict) -> Self {
        let Experiment { scenario, started_at, command, commit, machine, rig } = experiment;
        let expected = scenario.cells.len() * scenario.rounds.get() as usize;
        let broken_off = verdict
            .reasons
            .iter()
            .any(|reason| matches!(reason.kind, ReasonKind::Interrupted | ReasonKind::Environment));
        Self {
            format: FORMAT,
            tool: Tool {
                name: "drainbench".to_owned(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                commit,
            },
            started_at: started_at.to_string(),
            command: command.iter().map(|argument| without_credentials(argument)).collect(),
            scenario: ScenarioRecord {
                name: scenario.name.clone(),
                about: scenario.about.clone(),
                seed: scenario.seed,
                rounds: scenario.rounds.get(),
                text: scenario.text.clone(),
                hash: scenario.hash.clone(),
                resolved: serde_json::json!({
                    "seed": scenario.seed,
                    "rounds": scenario.rounds.get(),
                    "cells": scenario.cells,
                }),
            },
            machine,
            rig,
            partial: broken_off || cells.len() < expected,
            cells: cells.iter().map(CellRecord::new).collect(),
            verdict,
        }
    }

    /// The JSON Schema of the format that is written.
    #[must_use]
    pub fn schema() -> serde_json::Value {
        schemars::schema_for!(Self).to_value()
    }

    /// The first cell of a role, in the first round.
    #[must_use]
    pub fn cell_of(&self, role: Role) -> Option<&CellRecord> {
        self.cells.iter().find(|cell| cell.role == Some(role))
    }
}

impl CellRecord {
    fn new(cell: &MeasuredCell) -> Self {
        let found = &cell.measurements;
        let name = |metric: &Metric| metric.name().to_owned();
        Self {
            label: cell.label.clone(),
            design: cell.design,
            role: cell.role,
            round: cell.round,
            window: Window {
                origin: found.started_at.to_string(),
                start_ns: found.window_ns.start,
                end_ns: found.window_ns.end,
                drain_start_ns: found.drained_ns.as_ref().map(|span| span.start),
                drain_end_ns: found.drained_ns.as_ref().map(|span| span.end),
            },
            counts: found.audit.counts,
            suite: found.suite,
            metrics: found.metrics.iter().map(|(metric, value)| (name(metric), *value)).collect(),
            unmeasured: found.unmeasured.iter().map(|(metric, why)| (name(metric), why.clone())).collect(),
            histograms: found
                .distributions
                .iter()
                .map(|(kind, times)| (*kind, HistogramRecord::new(times)))
                .collect(),
            series: found.series.clone(),
            waits: found.waits.clone(),
            audit: AuditRecord { tally: found.audit.tally, offenders: found.audit.offenders.clone() },
            faults: found.faults.iter().map(FaultRecord::new).collect(),
            troubles: cell.troubles.clone(),
            void: cell.void.clone(),
            misconduct: cell.misconduct.clone(),
            interrupted: cell.cut.is_some(),
        }
    }

    /// A metric's value by name.
    #[must_use]
    pub fn metric(&self, name: &str) -> Option<f64> {
        self.metrics.get(name).copied()
    }
}

impl HistogramRecord {
    fn new(times: &Distribution) -> Self {
        Self { merged: times.encoded.clone(), services: times.services.clone(), saturated: times.saturated }
    }

    /// All services together.
    ///
    /// # Errors
    /// When the text is no such histogram.
    pub fn histogram(&self) -> Result<hdrhistogram::Histogram<u64>, HistogramError> {
        decode(&self.merged)
    }
}

/// An argument without what stands between `://` and `@`, which may be a password.
fn without_credentials(argument: &str) -> String {
    let Some((scheme, rest)) = argument.split_once("://") else { return argument.to_owned() };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    match authority.rfind('@') {
        Some(at) => format!("{scheme}://***@{}", &rest[at + 1..]),
        None => argument.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::without_credentials;

    #[test]
    fn a_command_is_recorded_without_credentials() {
        let cases = [
            ("--rig", "--rig"),
            ("amqp://me:secret@127.0.0.1:5672/%2f", "amqp://***@127.0.0.1:5672/%2f"),
            ("--url=postgres://me:a@b@host/db", "--url=postgres://***@host/db"),
            ("postgres://host/db?user=a@b", "postgres://host/db?user=a@b"),
        ];
        for (given, kept) in cases {
            assert_eq!(without_credentials(given), kept);
        }
    }
}
