//! A record proves itself: accounting and percentiles once more, from the record alone.

use hdrhistogram::Histogram;

use super::{CellRecord, HistogramRecord, Record};
use crate::{
    ledger::equations,
    measure::{HistogramError, Timing, decode},
};

/// Something in a record that does not follow from the rest of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cell `{cell}`, round {round}: {what}")]
pub struct Mismatch {
    /// Label of the cell.
    pub cell: String,
    /// Its round.
    pub round: u32,
    /// What does not follow, with both values.
    pub what: String,
}

/// Computes what can be computed again: the equations of the accounting, the audit's metrics, every percentile, the
/// sum of the services' histograms, the suite, and the length of the series. Empty when all of it agrees.
#[must_use]
pub fn recompute(record: &Record) -> Vec<Mismatch> {
    record
        .cells
        .iter()
        .flat_map(|cell| {
            let mut wrong = equations(&cell.counts, &cell.audit.tally);
            audit(cell, &mut wrong);
            suite(cell, &mut wrong);
            series(cell, &mut wrong);
            for (kind, times) in &cell.histograms {
                if let Err(why) = percentiles(cell, *kind, times, &mut wrong) {
                    wrong.push(format!("{}: {why}", kind.name()));
                }
            }
            orphans(cell, &mut wrong);
            wrong.into_iter().map(|what| Mismatch { cell: cell.label.clone(), round: cell.round, what })
        })
        .collect()
}

fn agree(cell: &CellRecord, name: &str, again: f64, wrong: &mut Vec<String>) {
    match cell.metric(name) {
        // Both come from the same integers by the same division.
        Some(value) if value.to_bits() == again.to_bits() => {}
        Some(value) => wrong.push(format!("{name} is {value} and comes to {again}")),
        None => wrong.push(format!("{name} is missing and comes to {again}")),
    }
}

/// A sum that a forged record cannot make overflow.
fn sum(terms: impl IntoIterator<Item = u64>) -> u128 {
    terms.into_iter().map(u128::from).sum()
}

#[expect(clippy::cast_precision_loss, reason = "no count of a run comes near 2^53")]
fn count(value: u64) -> f64 {
    value as f64
}

fn audit(cell: &CellRecord, wrong: &mut Vec<String>) {
    for (name, value) in cell.audit.tally.terms() {
        if !cell.unmeasured.contains_key(name) {
            agree(cell, name, count(value), wrong);
        }
    }
}

fn suite(cell: &CellRecord, wrong: &mut Vec<String>) {
    let Some(suite) = &cell.suite else { return };
    agree(cell, "suite.passed", count(suite.passed), wrong);
    agree(cell, "suite.failed", count(suite.persisted_late.saturating_add(suite.arrived_late)), wrong);
    if u128::from(suite.cases) != sum([suite.passed, suite.persisted_late, suite.arrived_late]) {
        wrong.push(format!("the suite's {} cases are not its passed and failed ones", suite.cases));
    }
}

fn series(cell: &CellRecord, wrong: &mut Vec<String>) {
    let series = &cell.series;
    let lengths = [
        series.due.len(),
        series.committed.len(),
        series.arrived.len(),
        series.persist_p50_ms.len(),
        series.persist_p99_ms.len(),
        series.persist_max_ms.len(),
        series.backlog.len(),
        series.drainer_idle_in_tx_rows.len(),
        series.active_sessions.len(),
    ];
    if lengths.iter().any(|length| *length != lengths[0]) {
        wrong.push(format!("the series are of different lengths: {lengths:?}"));
    }
    let committed = sum(series.committed.iter().copied());
    if committed != u128::from(cell.counts.committed_events) {
        wrong.push(format!(
            "the series has {committed} committed events, the counts {}",
            cell.counts.committed_events
        ));
    }
}

fn percentiles(
    cell: &CellRecord,
    kind: Timing,
    times: &HistogramRecord,
    wrong: &mut Vec<String>,
) -> Result<(), HistogramError> {
    let merged = times.histogram()?;
    for (suffix, quantile) in Timing::QUANTILES {
        let ms = count(merged.value_at_quantile(quantile)) / 1e3;
        agree(cell, &format!("{}.{suffix}", kind.name()), ms, wrong);
    }
    let mut sum: Option<Histogram<u64>> = None;
    let mut worst = 0;
    for text in times.services.values() {
        let service = decode(text)?;
        worst = worst.max(service.value_at_quantile(0.99));
        match &mut sum {
            None => {
                let mut first = service;
                first.auto(true);
                sum = Some(first);
            }
            Some(sum) => {
                if let Err(why) = sum.add(service) {
                    wrong.push(format!("{}: the services' histograms do not add up: {why}", kind.name()));
                }
            }
        }
    }
    if sum.is_none_or(|sum| sum != merged) {
        wrong.push(format!("{}: the services' histograms together are not the merged one", kind.name()));
    }
    if kind == Timing::Persist {
        agree(cell, "persist.p99_worst_service", count(worst) / 1e3, wrong);
        persisted(cell, merged.len(), wrong);
    }
    Ok(())
}

/// Every write of the window that was not rolled back on purpose is in `persist`.
fn persisted(cell: &CellRecord, recorded: u64, wrong: &mut Vec<String>) {
    let ended: f64 = ["writes.committed", "writes.failed", "writes.unsure"]
        .iter()
        .map(|name| cell.metric(name).unwrap_or_default())
        .sum();
    if ended.to_bits() != count(recorded).to_bits() {
        wrong.push(format!("persist has {recorded} writes, the window {ended}"));
    }
}

/// Percentiles that no histogram stands behind.
fn orphans(cell: &CellRecord, wrong: &mut Vec<String>) {
    for kind in Timing::ALL.into_iter().filter(|kind| !cell.histograms.contains_key(kind)) {
        for (suffix, _) in Timing::QUANTILES {
            let name = format!("{}.{suffix}", kind.name());
            if cell.metric(&name).is_some() {
                wrong.push(format!("{name} has no histogram"));
            }
        }
    }
}
