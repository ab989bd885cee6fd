//! The cell second by second, for charts.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{count, drain::Flow, drain::last_instant, sampled::holds_idle};
use crate::{
    history::{History, Outcome},
    sampler::{State, Who},
};

/// One number for each second since the origin; all arrays are of equal length. The warm-up is in it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Series {
    /// Writes that were due.
    pub due: Vec<u64>,
    /// Events whose COMMIT returned.
    pub committed: Vec<u64>,
    /// First arrivals of committed events.
    pub arrived: Vec<u64>,
    /// Median persist of the writes that were due, milliseconds; none without writes.
    pub persist_p50_ms: Vec<Option<f64>>,
    /// Its 99th percentile.
    pub persist_p99_ms: Vec<Option<f64>>,
    /// Its maximum.
    pub persist_max_ms: Vec<Option<f64>>,
    /// Events committed and not yet arrived, at the end of the second.
    pub backlog: Vec<u64>,
    /// Rows of the drainer seen idle in transaction.
    pub drainer_idle_in_tx_rows: Vec<u64>,
    /// Average active sessions, drainer and foreground; none without a tick.
    pub active_sessions: Vec<Option<f64>>,
}

/// A series is never longer than a day; what comes later is in its last second.
const LONGEST: usize = 86_400;

pub(super) fn series(history: &History, flow: &Flow) -> Series {
    let length = (second(last_instant(history)) + 1).min(LONGEST);
    let place = |ns: u64| second(ns).min(length - 1);
    let mut series = Series {
        due: vec![0; length],
        committed: vec![0; length],
        arrived: vec![0; length],
        backlog: vec![0; length],
        ..Series::default()
    };
    for ns in &flow.commits_ns {
        series.committed[place(*ns)] += 1;
    }
    for ns in &flow.arrivals_ns {
        series.arrived[place(*ns)] += 1;
    }
    let mut waiting = 0u64;
    for (backlog, (came, left)) in series.backlog.iter_mut().zip(series.committed.iter().zip(&series.arrived))
    {
        waiting = (waiting + came).saturating_sub(*left);
        *backlog = waiting;
    }
    persist(&mut series, history, place);
    sampled(&mut series, history, place);
    series
}

fn second(ns: u64) -> usize {
    usize::try_from(ns / 1_000_000_000).unwrap_or(usize::MAX - 1)
}

fn persist(series: &mut Series, history: &History, place: impl Fn(u64) -> usize) {
    let mut taken: Vec<Vec<u64>> = vec![Vec::new(); series.due.len()];
    for (plan, facts) in history.plan.services.iter().zip(&history.services) {
        for write in facts.writes.iter().skip(plan.backlog as usize) {
            let at = place(write.due_ns);
            series.due[at] += 1;
            if write.outcome != Outcome::RolledBack {
                taken[at].push(write.ended_ns.saturating_sub(write.due_ns));
            }
        }
    }
    for taken in &mut taken {
        taken.sort_unstable();
        // Nearest rank: the smallest that at least so many are no larger than.
        let at = |hundredths: usize| {
            let rank = (taken.len() * hundredths).div_ceil(100).max(1);
            taken.get(rank - 1).map(|ns| super::ms(*ns))
        };
        series.persist_p50_ms.push(at(50));
        series.persist_p99_ms.push(at(99));
        series.persist_max_ms.push(at(100));
    }
}

fn sampled(series: &mut Series, history: &History, place: impl Fn(u64) -> usize) {
    let log = &history.samples;
    let length = series.due.len();
    let mut ticks = vec![0u64; length];
    let mut active = vec![0u64; length];
    let mut idle = vec![0u64; length];
    for at in &log.ticks_ns {
        ticks[place(*at)] += 1;
    }
    for row in &log.rows {
        let Some(at) = log.ticks_ns.get(row.tick as usize).map(|at| place(*at)) else { continue };
        active[at] += u64::from(row.state == State::Active);
        idle[at] += u64::from(row.who == Who::Drainer && holds_idle(row.state));
    }
    series.active_sessions = ticks
        .iter()
        .zip(&active)
        .map(|(ticks, rows)| (*ticks > 0).then(|| count(*rows) / count(*ticks)))
        .collect();
    series.drainer_idle_in_tx_rows = idle;
}
