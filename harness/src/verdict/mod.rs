//! From numbers to a verdict. Pure.
//!
//! Precedence: interrupted, environment, a safety failure, invalid, a failed criterion, inconclusive, pass. All
//! reasons are listed whatever the outcome.

mod diagnosis;
mod limit;
#[cfg(test)]
mod tests;
mod validity;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use limit::{Judged, JudgedLimit, Standing};

use crate::{
    exit::Exit,
    measure::Measurements,
    scenario::{CellDesign, Expectation, Role, Scenario},
};

/// One measured run of one cell.
#[derive(Debug, Clone)]
pub struct MeasuredCell {
    /// The cell's label.
    pub label: String,
    /// What it is judged as.
    pub role: Option<Role>,
    /// Who drained.
    pub design: CellDesign,
    /// Which repetition, from 1.
    pub round: u32,
    /// Its numbers.
    pub measurements: Measurements,
    /// What broke the instrument or its servers, in words.
    pub troubles: Vec<String>,
    /// What changed under it, so that its numbers mean nothing.
    pub void: Vec<String>,
    /// What its drainers did that none may.
    pub misconduct: Vec<String>,
    /// It was cut off: what is here is partial.
    pub cut: Option<Cut>,
}

/// What cut a cell off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// The user.
    Interrupted,
    /// The limit of the whole experiment.
    OutOfTime,
}

/// What an experiment comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum Outcome {
    /// Every criterion holds.
    Pass,
    /// A criterion does not.
    Fail,
    /// Worse than what it was compared with.
    Regression,
    /// Better than what it was compared with.
    Improved,
    /// Neither.
    Unchanged,
    /// Nothing failed, and nothing was shown.
    Inconclusive,
    /// The numbers do not mean what they should.
    Invalid,
}

impl Outcome {
    /// As it is printed.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pass => "PASS",
            Self::Fail => "FAIL",
            Self::Regression => "REGRESSION",
            Self::Improved => "IMPROVED",
            Self::Unchanged => "UNCHANGED",
            Self::Inconclusive => "INCONCLUSIVE",
            Self::Invalid => "INVALID",
        }
    }
}

/// What a reason speaks for, the weightiest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ReasonKind {
    /// The user stopped it.
    Interrupted,
    /// The environment or the run failed.
    Environment,
    /// An event was lost, or one that should not exist arrived.
    Safety,
    /// The numbers do not mean what they should.
    Invalid,
    /// A criterion does not hold.
    Criterion,
    /// Nothing was shown.
    Inconclusive,
    /// Worth knowing; decides nothing.
    Note,
}

/// Why the outcome is what it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Reason {
    /// What it speaks for.
    pub kind: ReasonKind,
    /// One sentence, naming cell, limit and value.
    pub text: String,
}

/// The verdict of an experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Verdict {
    /// In a word.
    pub outcome: Outcome,
    /// For CI.
    pub exit_code: u8,
    /// What the candidates had to meet, unasked requirements last.
    pub criteria: Vec<Judged>,
    /// What the baseline had to show.
    pub symptoms: Vec<Judged>,
    /// Why, the weightiest first.
    pub reasons: Vec<Reason>,
}

impl Verdict {
    /// Adds what the numbers cannot know, such as a cell that could not run, and decides again.
    #[must_use]
    pub fn because(mut self, kind: ReasonKind, text: impl Into<String>) -> Self {
        self.reasons.push(Reason { kind, text: text.into() });
        decide(self.criteria, self.symptoms, self.reasons)
    }

    /// The exit code as a value.
    #[must_use]
    pub fn exit(&self) -> Exit {
        ending(self.reasons.iter().map(|reason| reason.kind).min()).1
    }
}

/// Judges the cells that were measured. `rig_invalid` are settings of the rig under which nothing measured would mean
/// anything: where there are some no cell has run.
#[must_use]
pub fn judge(scenario: &Scenario, cells: &[MeasuredCell], rig_invalid: &[String]) -> Verdict {
    let mut reasons: Vec<Reason> = Vec::new();
    let mut add = |kind, text: String| reasons.push(Reason { kind, text });
    for text in rig_invalid {
        add(ReasonKind::Invalid, text.clone());
    }
    for cell in cells {
        match cell.cut {
            None => {}
            Some(Cut::Interrupted) => add(
                ReasonKind::Interrupted,
                format!("{} was interrupted: its numbers are partial", named(cell)),
            ),
            Some(Cut::OutOfTime) => {
                add(ReasonKind::Environment, format!("{} was cut off: its numbers are partial", named(cell)));
            }
        }
        for trouble in &cell.troubles {
            add(ReasonKind::Environment, format!("{}: {trouble}", named(cell)));
        }
        for change in &cell.void {
            add(ReasonKind::Invalid, format!("{}: {change}", named(cell)));
        }
        // Of a candidate it is what it is judged for; of others it spoils what it is compared with.
        let weight = match cell.role {
            Some(Role::Candidate) => ReasonKind::Criterion,
            Some(Role::Control | Role::Baseline) | None => ReasonKind::Invalid,
        };
        for misconduct in &cell.misconduct {
            add(weight, format!("{}: {misconduct}", named(cell)));
        }
        if cell.role == Some(Role::Candidate)
            && cell.cut.is_none()
            && cell.measurements.audit.counts.committed_events == 0
        {
            add(
                ReasonKind::Inconclusive,
                format!("{}: nothing was committed, so there was nothing to drain", named(cell)),
            );
        }
        validity::check(scenario, cell, &mut add);
    }
    let bench = limit::Bench {
        scenario,
        cells,
        // What is missing is missing because of that.
        excused: !rig_invalid.is_empty() || cells.iter().any(|cell| cell.cut.is_some()),
    };
    let symptoms = judge_symptoms(&bench, &mut add);
    let mut criteria = judge_criteria(&bench, &mut add);
    criteria.extend(limit::unasked(&bench, &mut add));
    decide(criteria, symptoms, reasons)
}

fn named(cell: &MeasuredCell) -> String {
    if cell.round > 1 {
        format!("`{}`, round {}", cell.label, cell.round)
    } else {
        format!("`{}`", cell.label)
    }
}

fn decide(criteria: Vec<Judged>, symptoms: Vec<Judged>, mut reasons: Vec<Reason>) -> Verdict {
    reasons.sort_by_key(|reason| reason.kind);
    let (outcome, exit) = ending(reasons.first().map(|reason| reason.kind));
    Verdict { outcome, exit_code: exit as u8, criteria, symptoms, reasons }
}

/// The weightiest reason decides.
const fn ending(weightiest: Option<ReasonKind>) -> (Outcome, Exit) {
    match weightiest {
        Some(ReasonKind::Interrupted) => (Outcome::Inconclusive, Exit::Interrupted),
        Some(ReasonKind::Environment) => (Outcome::Invalid, Exit::Environment),
        Some(ReasonKind::Safety | ReasonKind::Criterion) => (Outcome::Fail, Exit::Failed),
        Some(ReasonKind::Invalid) => (Outcome::Invalid, Exit::Undecided),
        Some(ReasonKind::Inconclusive) => (Outcome::Inconclusive, Exit::Undecided),
        Some(ReasonKind::Note) | None => (Outcome::Pass, Exit::Pass),
    }
}

/// The cells an expectation is about.
fn targets<'a>(scenario: &'a Scenario, expectation: &'a Expectation, role: Role) -> Vec<&'a str> {
    match &expectation.cell {
        Some(label) => vec![label],
        None => {
            let of_role = scenario.cells.iter().filter(|cell| cell.role == Some(role));
            of_role.map(|cell| cell.label.as_str()).collect()
        }
    }
}

fn judge_symptoms(bench: &limit::Bench<'_>, add: &mut impl FnMut(ReasonKind, String)) -> Vec<Judged> {
    let mut symptoms = Vec::new();
    for expectation in &bench.scenario.symptoms {
        for label in targets(bench.scenario, expectation, Role::Baseline) {
            symptoms.push(bench.judge(expectation, label, add));
        }
    }
    let measured = |symptom: &&Judged| symptom.value.is_some();
    let (shown, missing): (Vec<_>, Vec<_>) =
        symptoms.iter().filter(measured).partition(|symptom| symptom.passed);
    if !missing.is_empty() {
        add(ReasonKind::Inconclusive, diagnosis::symptoms(&shown, &missing));
        if let Some(note) = diagnosis::harmless(bench, &shown, &missing) {
            add(ReasonKind::Note, note);
        }
    }
    for symptom in symptoms.iter().filter(|symptom| symptom.standing == Standing::Split) {
        add(ReasonKind::Inconclusive, limit::disagreement(symptom));
    }
    symptoms
}

fn judge_criteria(bench: &limit::Bench<'_>, add: &mut impl FnMut(ReasonKind, String)) -> Vec<Judged> {
    let mut criteria = Vec::new();
    for expectation in &bench.scenario.criteria {
        let mut control = bench.control_misses(expectation);
        for label in targets(bench.scenario, expectation, Role::Candidate) {
            let mut judged = bench.judge(expectation, label, add);
            let held = bench
                .scenario
                .cells
                .iter()
                .all(|cell| cell.label != label || cell.role != Some(Role::Control));
            if let Some(miss) = control.as_mut().filter(|_| held && judged.value.is_some()) {
                judged.standing = Standing::Excused;
                if let Some(text) = miss.text.take() {
                    add(ReasonKind::Inconclusive, text);
                }
            }
            limit::report(bench, &judged, ReasonKind::Criterion, add);
            criteria.push(judged);
        }
    }
    criteria
}
