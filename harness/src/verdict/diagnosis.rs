//! Sentences that say which mechanism was at work.

use super::{Judged, limit::Bench};
use crate::{
    measure::{Measurements, Timing, figure, number, persist_shares},
    metric::Metric,
    sampler::Who,
};

/// Whether a metric is made of writes, so that their parts explain it.
pub(super) fn about_writes(metric: &str) -> bool {
    ["persist.", "lag.", "acquire.", "execute.", "commit.", "service.", "suite.", "writes."]
        .iter()
        .any(|family| metric.starts_with(family))
}

/// The largest part of persist and its share.
fn largest(found: &Measurements) -> Option<(Timing, f64)> {
    let sum = |part: Timing| {
        found.distributions.get(&part).map_or(0.0, |times| {
            let recorded = times.merged.len();
            #[expect(clippy::cast_precision_loss, reason = "no count of a run comes near 2^53")]
            let recorded = recorded as f64;
            times.merged.mean() * recorded
        })
    };
    persist_shares(sum).into_iter().next()
}

/// What active foreground sessions waited for most; none when they never waited.
fn top_wait(found: &Measurements) -> Option<&str> {
    let foreground = found.waits.active.iter().filter(|share| share.who == Who::Foreground);
    foreground.filter(|share| share.event.contains(':')).map(|share| share.event.as_str()).next()
}

/// Where a cell's writes spent their time.
pub(super) fn mechanism(found: &Measurements) -> Option<String> {
    let (part, share) = largest(found)?;
    let spent = format!("{} % of persist is {}", number((share * 100.0).round()), part.name());
    match part {
        // Only a COMMIT waits for the disk as a rule; what all sessions waited for says nothing of another part.
        Timing::Commit => {
            Some(top_wait(found).map_or(spent.clone(), |wait| format!("{spent}, waiting on {wait}")))
        }
        Timing::Execute
        | Timing::Lag
        | Timing::Acquire
        | Timing::Persist
        | Timing::Service
        | Timing::Deliver
        | Timing::Confirm
        | Timing::Claim
        | Timing::Mark => Some(spent),
    }
}

/// Why the control misses a limit: it is not the drainer, because there is none.
pub(super) fn control(judged: &Judged, found: &Measurements) -> String {
    let miss = format!("the control itself misses {} ({})", judged.rule(), judged.found());
    if !about_writes(&judged.metric) {
        return format!("{miss}: not the drainer");
    }
    let (Some((part, _)), Some(spent)) = (largest(found), mechanism(found)) else {
        return format!("{miss}: not the drainer");
    };
    let culprit = match part {
        Timing::Lag => "the generator is late, not the drainer",
        Timing::Acquire => "the services' pools are too small for this load, with or without a drainer",
        Timing::Commit => match top_wait(found) {
            Some(wait) if on_disk(wait) => "the disk, not the drainer",
            Some(_) | None => "the database, not the drainer",
        },
        Timing::Execute => "the database, not the drainer",
        Timing::Persist
        | Timing::Service
        | Timing::Deliver
        | Timing::Confirm
        | Timing::Claim
        | Timing::Mark => "not the drainer",
    };
    format!("{miss}: {spent}: {culprit}")
}

/// Whether a wait is for the disk: its own class, and the lock that is held while WAL is flushed.
fn on_disk(wait: &str) -> bool {
    wait.starts_with("IO:") || wait.eq_ignore_ascii_case("LWLock:WALWrite")
}

/// Which symptoms showed and which did not.
pub(super) fn symptoms(shown: &[&Judged], missing: &[&Judged]) -> String {
    let list = |judged: &[&Judged], verb: &str| {
        let each = judged
            .iter()
            .map(|symptom| format!("{} {verb} in `{}` ({})", symptom.rule(), symptom.cell, symptom.found()));
        each.collect::<Vec<_>>().join(", ")
    };
    let missing = list(missing, "does not");
    if shown.is_empty() {
        return format!("no symptom shows, so there is nothing to fix: {missing}");
    }
    format!("not every symptom shows: {missing}; {}", list(shown, "does"))
}

/// A held transaction that shows and hurts nobody, where that is so.
pub(super) fn harmless(bench: &Bench<'_>, shown: &[&Judged], missing: &[&Judged]) -> Option<String> {
    let held = shown.iter().find(|symptom| symptom.metric == "idle_in_tx.rows")?;
    let hurts = |symptom: &&&Judged| about_writes(&symptom.metric);
    if shown.iter().any(|symptom| hurts(&symptom)) || !missing.iter().any(|symptom| hurts(&symptom)) {
        return None;
    }
    let cell = bench.rounds(&held.cell).next()?;
    let p99 = Metric::lookup("persist.p99").ok()?;
    let age = Metric::lookup("idle_in_tx.age_max").ok()?;
    let ours = cell.measurements.get(p99)?;
    let control = bench.control().and_then(|control| control.measurements.get(p99));
    let beside = control.map_or(String::new(), |value| format!(", {} in the control", figure(p99, value)));
    let oldest = cell
        .measurements
        .get(age)
        .map_or(String::new(), |value| format!(", the oldest {}", figure(age, value)));
    Some(format!(
        "the transaction that `{}`'s drainer holds stands in the samples ({} rows{oldest}) and hurts nobody here: \
         persist p99 is {}{beside}",
        held.cell,
        held.found(),
        figure(p99, ours)
    ))
}
