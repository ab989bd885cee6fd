//! One limit against the values of one cell in all rounds.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{MeasuredCell, ReasonKind, diagnosis};
use crate::{
    measure::{Measurements, figure, number},
    metric::Metric,
    scenario::{Expectation, Limit, Op, Role, Scenario},
};

/// How a limit and a value stand to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// It holds, in every round.
    Held,
    /// It does not.
    Missed,
    /// The median holds and a round does not.
    Split,
    /// The control misses it as well: it is not held against the cell.
    Excused,
    /// There is no value.
    Unmeasured,
}

/// A limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JudgedLimit {
    /// The comparison.
    pub op: Op,
    /// The number, in the metric's unit, or how many times the other cell's value.
    pub value: f64,
    /// The other cell.
    pub times: Option<String>,
}

/// A limit and what it was held against.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Judged {
    /// What was measured.
    pub metric: String,
    /// In which cell.
    pub cell: String,
    /// How it is compared.
    pub limit: JudgedLimit,
    /// The limit in the metric's unit; none when the other cell has no value.
    pub bound: Option<f64>,
    /// The value: of several rounds the median, of a requirement nobody had to ask for the worst.
    pub value: Option<f64>,
    /// The value of each round.
    pub rounds: Vec<Option<f64>>,
    /// Whether the value is within the limit.
    pub passed: bool,
    /// What follows from it.
    pub standing: Standing,
    /// Required of every such cell, whatever the scenario says.
    pub unasked: bool,
}

impl Judged {
    fn metric(&self) -> Option<Metric> {
        Metric::lookup(&self.metric).ok()
    }

    /// A value of its metric, with unit.
    #[must_use]
    pub fn figure(&self, value: f64) -> String {
        self.metric().map_or_else(|| number(value), |metric| figure(metric, value))
    }

    /// The limit as people write it: `persist.p99 < 50 ms`, `drain.rate ≥ 10 × old (9,020/s)`.
    #[must_use]
    pub fn rule(&self) -> String {
        let op = self.limit.op.symbol();
        match &self.limit.times {
            None => format!("{} {op} {}", self.metric, self.figure(self.limit.value)),
            Some(cell) => {
                let bound = self.bound.map_or(String::new(), |bound| format!(" ({})", self.figure(bound)));
                format!("{} {op} {} × {cell}{bound}", self.metric, number(self.limit.value))
            }
        }
    }

    /// Its value, with unit.
    #[must_use]
    pub fn found(&self) -> String {
        self.value.map_or_else(|| "not measured".to_owned(), |value| self.figure(value))
    }
}

fn within(op: Op, value: f64, bound: f64) -> bool {
    match op {
        Op::Below => value < bound,
        Op::AtMost => value <= bound,
        Op::Above => value > bound,
        Op::AtLeast => value >= bound,
    }
}

/// Median; of an even number the mean of the middle two.
fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    if sorted.len() % 2 == 1 {
        return Some(upper);
    }
    sorted.get(sorted.len() / 2 - 1).map(|lower| f64::midpoint(*lower, upper))
}

/// What the control is found to miss.
pub(super) struct Miss {
    /// The reason, until it is given.
    pub(super) text: Option<String>,
}

/// Everything a limit can refer to.
pub(super) struct Bench<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) cells: &'a [MeasuredCell],
    /// What has no value has none for a reason that is already given.
    pub(super) excused: bool,
}

impl<'a> Bench<'a> {
    /// The rounds of a cell.
    pub(super) fn rounds(&self, label: &str) -> impl Iterator<Item = &'a MeasuredCell> {
        self.cells.iter().filter(move |cell| cell.label == label)
    }

    /// The first round of the control.
    pub(super) fn control(&self) -> Option<&'a MeasuredCell> {
        self.cells.iter().find(|cell| cell.role == Some(Role::Control))
    }

    /// The value that `limit` comes to in a round.
    fn bound(&self, limit: &Limit, metric: Metric, round: u32) -> Option<f64> {
        match &limit.times {
            None => Some(limit.value),
            Some(other) => {
                let other = self.rounds(other).find(|cell| cell.round == round)?;
                Some(limit.value * other.measurements.get(metric)?)
            }
        }
    }

    /// Holds the limit against a cell. Says why when there is no value.
    pub(super) fn judge(
        &self,
        expectation: &Expectation,
        label: &str,
        add: &mut impl FnMut(ReasonKind, String),
    ) -> Judged {
        let Expectation { metric, limit, .. } = expectation;
        let rounds: Vec<_> = self
            .rounds(label)
            .map(|cell| (cell.measurements.get(*metric), self.bound(limit, *metric, cell.round)))
            .collect();
        let values: Vec<f64> = rounds.iter().filter_map(|(value, _)| *value).collect();
        let bounds: Vec<f64> = rounds.iter().filter_map(|(_, bound)| *bound).collect();
        let complete = !rounds.is_empty() && values.len() == rounds.len() && bounds.len() == rounds.len();
        let (value, bound) = (median(&values), median(&bounds));
        let mut judged = Judged {
            metric: metric.name().to_owned(),
            cell: label.to_owned(),
            limit: JudgedLimit { op: limit.op, value: limit.value, times: limit.times.clone() },
            bound,
            value,
            rounds: rounds.iter().map(|(value, _)| *value).collect(),
            passed: false,
            standing: Standing::Unmeasured,
            unasked: false,
        };
        if let (Some(value), Some(bound)) = (value, bound) {
            judged.passed = within(limit.op, value, bound);
            let each = rounds.iter().all(|(value, bound)| {
                value.zip(*bound).is_none_or(|(value, bound)| within(limit.op, value, bound))
            });
            judged.standing = match (judged.passed, each) {
                (true, true) => Standing::Held,
                (true, false) => Standing::Split,
                (false, _) => Standing::Missed,
            };
        }
        if !complete && !self.excused {
            // Where nothing came through there is nothing to time: that is the drainer's failure, not the instrument's.
            let silent = self.rounds(label).any(|cell| cell.measurements.delivered_nothing());
            let kind = if silent { ReasonKind::Criterion } else { ReasonKind::Invalid };
            add(kind, self.why_not(&judged, *metric));
        }
        judged
    }

    fn why_not(&self, judged: &Judged, metric: Metric) -> String {
        let rule = judged.rule();
        let gap = |label: &str| {
            if self.rounds(label).next().is_none() {
                return Some(format!("`{label}` did not run"));
            }
            let without = self.rounds(label).find(|cell| cell.measurements.get(metric).is_none())?;
            let why = without.measurements.unmeasured.get(&metric).map_or("no value", String::as_str);
            Some(format!(
                "{metric} was not measured in {}: {why}",
                super::named(without),
                metric = metric.name()
            ))
        };
        let why = gap(&judged.cell).or_else(|| judged.limit.times.as_deref().and_then(gap));
        let why = why.unwrap_or_else(|| "the other cell has no value in every round".to_owned());
        format!("{rule} cannot be judged: {why}")
    }

    /// Whether the control itself misses a criterion's limit. A limit that is a multiple of the control's own value
    /// says nothing of the control.
    pub(super) fn control_misses(&self, expectation: &Expectation) -> Option<Miss> {
        let control = self.control()?;
        if expectation.limit.times.as_deref() == Some(&control.label) {
            return None;
        }
        control.measurements.get(expectation.metric)?;
        let judged = self.judge(expectation, &control.label, &mut |_, _| {});
        let missed = judged.value.is_some() && judged.bound.is_some() && !judged.passed;
        missed.then(|| Miss { text: Some(diagnosis::control(&judged, &control.measurements)) })
    }
}

/// Gives the reason for a criterion that is missed or split.
pub(super) fn report(
    bench: &Bench<'_>,
    judged: &Judged,
    kind: ReasonKind,
    add: &mut impl FnMut(ReasonKind, String),
) {
    match judged.standing {
        Standing::Held | Standing::Excused | Standing::Unmeasured => {}
        Standing::Split => add(ReasonKind::Inconclusive, disagreement(judged)),
        Standing::Missed => {
            let mechanism = bench
                .rounds(&judged.cell)
                .next()
                .filter(|_| diagnosis::about_writes(&judged.metric))
                .and_then(|cell| diagnosis::mechanism(&cell.measurements));
            let because = mechanism.map_or(String::new(), |mechanism| format!("; {mechanism}"));
            let rounds = if judged.rounds.len() > 1 {
                format!(", the median of {} rounds ({})", judged.rounds.len(), each(judged))
            } else {
                String::new()
            };
            let text = format!(
                "`{}` misses {}: it is {}{rounds}{because}",
                judged.cell,
                judged.rule(),
                judged.found()
            );
            add(kind, text);
        }
    }
}

fn each(judged: &Judged) -> String {
    let values = judged.rounds.iter().flatten().map(|value| judged.figure(*value));
    values.collect::<Vec<_>>().join(", ")
}

/// The median holds and a round does not.
pub(super) fn disagreement(judged: &Judged) -> String {
    format!(
        "rounds disagree on {} in `{}`: the median {} is within it, a round is not ({})",
        judged.rule(),
        judged.cell,
        judged.found(),
        each(judged)
    )
}

/// What every drained cell and every candidate must meet though nobody wrote it down. The worst round counts.
pub(super) fn unasked(bench: &Bench<'_>, add: &mut impl FnMut(ReasonKind, String)) -> Vec<Judged> {
    let zero = Limit { op: Op::AtMost, value: 0.0, times: None };
    let some = Limit { op: Op::Above, value: 0.0, times: None };
    let mut all = Vec::new();
    for cell in &bench.scenario.cells {
        let candidate = cell.role == Some(Role::Candidate);
        let drained = cell.design.drains();
        let wrote = bench.rounds(&cell.label).any(|cell| cell.measurements.audit.counts.committed_events > 0);
        let required = [
            ("audit.lost", &zero, ReasonKind::Safety, drained),
            ("audit.phantom", &zero, ReasonKind::Safety, drained),
            ("audit.waiting", &zero, ReasonKind::Criterion, candidate && drained),
            ("audit.unmarked", &zero, ReasonKind::Criterion, candidate && drained),
            ("writes.failed", &zero, ReasonKind::Criterion, candidate),
            ("audit.delivered", &some, ReasonKind::Criterion, candidate && drained && wrote),
        ];
        for (name, limit, kind, _) in required.into_iter().filter(|(.., applies)| *applies) {
            let Ok(metric) = Metric::lookup(name) else { continue };
            let expectation = Expectation { metric, limit: limit.clone(), cell: None };
            all.extend(bench.require(&expectation, &cell.label, kind, add));
        }
    }
    all
}

impl Bench<'_> {
    /// Requires a limit of every round of a cell; of what was interrupted only what cannot heal.
    fn require(
        &self,
        expectation: &Expectation,
        label: &str,
        kind: ReasonKind,
        add: &mut impl FnMut(ReasonKind, String),
    ) -> Option<Judged> {
        let heals = expectation.metric.name() != "audit.phantom";
        let values: Vec<f64> = self
            .rounds(label)
            .filter(|cell| !(heals && cell.cut.is_some()))
            .filter_map(|cell| cell.measurements.get(expectation.metric))
            .collect();
        let worst = values.iter().copied().reduce(|a, b| match expectation.limit.op {
            Op::Below | Op::AtMost => a.max(b),
            Op::Above | Op::AtLeast => a.min(b),
        })?;
        let mut judged = self.judge(expectation, label, &mut |_, _| {});
        judged.unasked = true;
        judged.value = Some(worst);
        judged.passed = within(expectation.limit.op, worst, expectation.limit.value);
        judged.standing = if judged.passed { Standing::Held } else { Standing::Missed };
        let excusable = expectation.metric.name() == "writes.failed";
        if let Some(miss) = self.control_misses(expectation).filter(|_| excusable && !judged.passed) {
            judged.standing = Standing::Excused;
            if let Some(text) = miss.text {
                add(ReasonKind::Inconclusive, text);
            }
        }
        if judged.standing == Standing::Missed {
            let named = self.offender(label, expectation.metric.name());
            let text = format!("`{label}` misses {}: it is {}{named}", judged.rule(), judged.found());
            add(kind, text);
        }
        Some(judged)
    }

    /// The first offender of that kind, by name.
    fn offender(&self, label: &str, metric: &str) -> String {
        let kind = metric.strip_prefix("audit.").unwrap_or_default();
        let of = |measurements: &Measurements| {
            let first = measurements.audit.offenders.iter().find(|named| named.offence.name() == kind)?;
            let place = first.write.zip(first.event);
            let event = place.map_or(String::new(), |(write, event)| format!(" write {write} event {event}"));
            Some(format!("; the first: {}{event}: {}", first.service, first.story))
        };
        self.rounds(label).find_map(|cell| of(&cell.measurements)).unwrap_or_default()
    }
}
