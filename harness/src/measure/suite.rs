//! Writes that are test cases as well.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Measurements, count};
use crate::{
    history::{EventRef, History, Outcome, ServiceHistory},
    ledger::Firsts,
    scenario::Cell,
};

/// How the suite went.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SuiteCounts {
    /// Cases that were attempted.
    pub cases: u64,
    /// Cases that persisted in time and whose events all arrived in time.
    pub passed: u64,
    /// Cases that did not persist in time.
    pub persisted_late: u64,
    /// Cases that persisted in time and one of whose events did not arrive in time.
    pub arrived_late: u64,
}

enum CaseEnd {
    Passed,
    PersistedLate,
    ArrivedLate,
}

pub(super) fn measure(found: &mut Measurements, history: &History, cell: &Cell) {
    if cell.settings.suite.cases == 0 {
        found.miss_all(&["suite.passed", "suite.failed"], "the scenario has no suite");
        return;
    }
    let mut suite = SuiteCounts::default();
    for (index, (plan, facts)) in history.plan.services.iter().zip(&history.services).enumerate() {
        let Some(firsts) = found.audit.firsts.get(index) else { continue };
        for case in &plan.cases {
            // Not attempted: the run was interrupted.
            let Some(end) = end(history, cell, facts, firsts, *case) else { continue };
            suite.cases += 1;
            match end {
                CaseEnd::Passed => suite.passed += 1,
                CaseEnd::PersistedLate => suite.persisted_late += 1,
                CaseEnd::ArrivedLate => suite.arrived_late += 1,
            }
        }
    }
    found.set("suite.passed", count(suite.passed));
    found.set("suite.failed", count(suite.persisted_late + suite.arrived_late));
    found.suite = Some(suite);
}

fn end(
    history: &History,
    cell: &Cell,
    facts: &ServiceHistory,
    firsts: &Firsts,
    case: u32,
) -> Option<CaseEnd> {
    let write = facts.writes.get(case as usize)?;
    let suite = &cell.settings.suite;
    let persisted = write.outcome == Outcome::Committed
        && write.ended_ns.saturating_sub(write.due_ns) <= ns(suite.persist_within);
    if !persisted {
        return Some(CaseEnd::PersistedLate);
    }
    let arrived = |nth| {
        let at = firsts.at_ns(&facts.arrivals, EventRef { write: case, event: nth });
        at.is_some_and(|at| at.saturating_sub(write.due_ns) <= ns(suite.arrive_within))
    };
    if !cell.design.drains() || (0..history.plan.events_per_write()).all(arrived) {
        Some(CaseEnd::Passed)
    } else {
        Some(CaseEnd::ArrivedLate)
    }
}

fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
