//! What makes a cell's numbers mean nothing.

use std::time::Duration;

use super::{MeasuredCell, ReasonKind, named};
use crate::{
    measure::number,
    scenario::{Fault, Scenario},
};

/// Checks a cell against the limits of its own settings. Of an interrupted cell only the accounting is checked.
pub(super) fn check(scenario: &Scenario, cell: &MeasuredCell, add: &mut impl FnMut(ReasonKind, String)) {
    let facts = &cell.measurements.facts;
    let name = named(cell);
    for broken in &facts.broken {
        add(ReasonKind::Invalid, format!("{name}: the accounting is broken: {broken}"));
    }
    if cell.cut.is_some() {
        return;
    }
    if facts.foreign > 0 {
        add(
            ReasonKind::Invalid,
            format!(
                "{name}: {} foreign messages arrived: somebody else publishes to its exchange",
                facts.foreign
            ),
        );
    }
    // A drainer that carried nothing may have had nothing to show: that it carried nothing is held against it.
    if let Some(unseen) = facts.unseen.as_ref().filter(|unseen| !unseen.is_empty())
        && !cell.measurements.delivered_nothing()
    {
        let whose = unseen.join(", ");
        let text = format!(
            "{name}: the sampler is blind: it never saw a session of the drainer of {whose}, so its zeros mean nothing"
        );
        add(ReasonKind::Invalid, text);
    }
    let Some(known) = scenario.cells.iter().find(|known| known.label == cell.label) else {
        add(ReasonKind::Invalid, format!("{name} is no cell of the scenario"));
        return;
    };
    let settings = &known.settings;
    for text in never_hit(cell, &known.faults) {
        add(ReasonKind::Invalid, format!("{name}: {text}"));
    }
    let late = ms(settings.validity.lag_p99);
    if let Some(lag) = facts.lag_p99_ms.filter(|lag| *lag > late) {
        let text = format!(
            "{name}: the generator was late: lag p99 is {} ms, validity.lag_p99 is {} ms; what it measured is its own \
             delay",
            number(lag),
            number(late)
        );
        add(ReasonKind::Invalid, text);
    }
    let behind = ms(settings.validity.sink_behind);
    if facts.sink_behind_ms > behind {
        let text = format!(
            "{name}: the sink was behind: a marker took {} ms through a queue, validity.sink_behind is {} ms",
            number(facts.sink_behind_ms),
            number(behind)
        );
        add(ReasonKind::Invalid, text);
    }
    if facts.sampler_missed > settings.sampler.max_missed {
        let why =
            facts.sampler_error.as_ref().map_or(String::new(), |error| format!("; its last error: {error}"));
        let text = format!(
            "{name}: the sampler missed {} % of its ticks, sampler.max_missed is {} %{why}",
            number(facts.sampler_missed * 100.0),
            number(settings.sampler.max_missed * 100.0)
        );
        add(ReasonKind::Invalid, text);
    }
}

/// Faults that were to strike and that nobody saw: what the cell shows, it shows without them.
fn never_hit(cell: &MeasuredCell, faults: &[Fault]) -> Vec<String> {
    let missed = faults.iter().enumerate().filter_map(|(place, fault)| {
        let mut strikes = cell.measurements.faults.iter().filter(|span| span.fault == place);
        if strikes.clone().any(|span| span.hit) {
            return None;
        }
        let seen = strikes.next_back().map_or("it never struck", |span| &span.evidence);
        Some(format!("the {} never hit: {seen}", fault.breaks))
    });
    missed.collect()
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
