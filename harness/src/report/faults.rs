//! What became of the events of each design under each fault, as a table for a README.

use std::fmt::Write as _;

use super::view::NOTHING;
use crate::{
    measure::figure,
    metric::Metric,
    record::{CellRecord, Record},
    scenario::Role,
    verdict::{ReasonKind, Standing},
};

/// A line a scenario and judged cell, and why it failed where it did. Cells in which nothing was broken have no line.
#[must_use]
pub fn faults_table(records: &[Record]) -> String {
    let mut text = String::from(
        "| scenario | design | broken | lost | duplicated | waiting | reordered | recovery | verdict |\n\
         |---|---|---|--:|--:|--:|--:|--:|---|\n",
    );
    let mut origins: Vec<String> = Vec::new();
    for record in records {
        for cell in record.cells.iter().filter(|cell| !cell.faults.is_empty()) {
            let value = |name| value(cell, name);
            let _ = writeln!(
                text,
                "| `{}` | {} | {} | {} | {} | {} | {} | {} | {} |",
                record.scenario.name,
                cell.design.name(),
                broken(cell),
                value("audit.lost"),
                value("audit.duplicated"),
                value("audit.waiting"),
                value("audit.reordered"),
                value("recovery.time"),
                verdict(record, cell),
            );
        }
        let origin = format!(
            "{}, {}; {}",
            super::view::tool(record),
            super::view::rig(record),
            super::view::machine(record)
        );
        if !origins.contains(&origin) {
            origins.push(origin);
        }
    }
    let days = records.iter().filter_map(|record| record.started_at.get(..10));
    let (first, last) = (days.clone().min().unwrap_or_default(), days.max().unwrap_or_default());
    let days = if first == last { first.to_owned() } else { format!("{first} to {last}") };
    let _ = writeln!(text, "\n{days}, {}.", origins.join("; "));
    text
}

fn value(cell: &CellRecord, name: &str) -> String {
    let metric = Metric::lookup(name).ok();
    let value = metric.and_then(|metric| Some(figure(metric, cell.metric(name)?)));
    value.unwrap_or_else(|| NOTHING.to_owned())
}

/// `kill ×3, stall`: what hit, and how often.
fn broken(cell: &CellRecord) -> String {
    let mut kinds: Vec<(&str, usize)> = Vec::new();
    for strike in cell.faults.iter().filter(|strike| strike.hit) {
        match kinds.iter_mut().find(|(kind, _)| *kind == strike.kind) {
            Some((_, times)) => *times += 1,
            None => kinds.push((&strike.kind, 1)),
        }
    }
    let named = kinds.into_iter().map(|(kind, times)| match times {
        1 => kind.to_owned(),
        times => format!("{kind} ×{times}"),
    });
    named.collect::<Vec<_>>().join(", ")
}

/// Of a candidate the limits it missed; of another cell whether an event was lost.
fn verdict(record: &Record, cell: &CellRecord) -> String {
    let missed = record
        .verdict
        .criteria
        .iter()
        .filter(|judged| judged.cell == cell.label && judged.standing == Standing::Missed);
    let missed: Vec<String> = missed
        .map(|judged| {
            let rule = judged.rule();
            let limit = rule.strip_prefix(&judged.metric).unwrap_or(&rule).trim();
            format!("`{}` is {}, and must be {limit}", judged.metric, judged.found())
        })
        .collect();
    let invalid = record.verdict.reasons.iter().any(|reason| reason.kind <= ReasonKind::Invalid);
    if !missed.is_empty() {
        return format!("**FAIL**: {}", missed.join("; ").replace('|', "\\|").replace('<', "&lt;"));
    }
    match cell.role {
        Some(Role::Candidate) if invalid => record.verdict.outcome.name().to_owned(),
        Some(Role::Candidate) => "PASS".to_owned(),
        Some(Role::Control | Role::Baseline) | None => NOTHING.to_owned(),
    }
}
