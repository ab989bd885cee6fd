//! Several cells on one rig, in rounds, judged by one verdict.

use std::{sync::Arc, time::Duration};

use tokio_util::sync::CancellationToken;

use crate::{
    history::History,
    live::Live,
    measure::{self, Measurements},
    plan::Plan,
    progress::Progress,
    record::{self, Machine, Record},
    rig::{Rig, RigError, RigRequest},
    run::{self, RunError, Setting},
    scenario::{Cell, Role, Scenario},
    verdict::{self, Cut, MeasuredCell, ReasonKind},
};

/// Why an experiment came to no end.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    /// There is no rig, or it broke.
    #[error(transparent)]
    Rig(#[from] RigError),
    /// The server has too few connections for the largest cell.
    #[error(
        "cell `{cell}` needs {needed} connections and the server has {free} to give: raise max_connections, or lower \
         service.pool, load.services or drainer.instances"
    )]
    Connections {
        /// The largest cell.
        cell: String,
        /// What it opens.
        needed: u32,
        /// What there is.
        free: u32,
    },
    /// A cell could not be run to its end.
    #[error("cell `{cell}`: {source}{left}")]
    Run {
        /// Which.
        cell: String,
        /// Why.
        #[source]
        source: Box<RunError>,
        /// What of its world could not be removed, behind a semicolon; empty when nothing is left.
        left: String,
    },
    /// Stopped by the user before there was anything to record.
    #[error("interrupted before anything was measured")]
    Interrupted,
    /// It took longer than it may.
    #[error("it did not end within --max-minutes {0}")]
    TooLong(u64),
}

/// What an experiment is run with.
#[derive(Debug)]
pub struct Request {
    /// What is asked.
    pub scenario: Scenario,
    /// Where.
    pub rig: RigRequest,
    /// The command line, for the record. No secret can be on it.
    pub command: Vec<String>,
    /// The commit that this program was built from, for the record.
    pub commit: Option<String>,
    /// Ends it early: what was measured is recorded as partial.
    pub stop: CancellationToken,
    /// Longest time for all of it; then it ends as if it were stopped.
    pub at_most: Option<Duration>,
}

/// What was measured, and what ended it before all of it was.
#[derive(Debug, Default)]
struct Measured {
    cells: Vec<MeasuredCell>,
    ended: Option<ExperimentError>,
}

/// Runs it. Where a later cell fails, what was measured before is recorded as partial, with the reason.
///
/// # Errors
/// When there is nothing to record. Nothing is left running and nothing is left behind, as far as the servers still
/// answer.
pub async fn run(request: &Request, progress: &Progress) -> Result<Record, ExperimentError> {
    let started_at = jiff::Timestamp::now();
    progress.say("bringing the rig up");
    let say = |line: &str| progress.say(line);
    let rig = tokio::select! {
        biased;
        () = request.stop.cancelled() => return Err(ExperimentError::Interrupted),
        rig = Rig::provision(&request.rig, &say) => rig?,
    };
    for why in &rig.facts().why {
        progress.keep(why);
    }
    let mut measured = within_limit(request, &rig, progress).await;
    progress.say("taking the rig down");
    let (facts, invalid) = (rig.facts().clone(), rig.invalid());
    if let Err(error) = rig.close().await {
        measured.ended.get_or_insert(error.into());
    }
    if measured.cells.is_empty() {
        if let Some(error) = measured.ended {
            return Err(error);
        }
        if request.stop.is_cancelled() {
            return Err(ExperimentError::Interrupted);
        }
    }
    let mut verdict = verdict::judge(&request.scenario, &measured.cells, &invalid);
    if let Some(error) = measured.ended {
        verdict = verdict.because(ReasonKind::Environment, error.to_string());
    } else if request.stop.is_cancelled() {
        verdict = verdict.because(ReasonKind::Interrupted, "the experiment was interrupted: it is partial");
    }
    let experiment = record::Experiment {
        scenario: &request.scenario,
        started_at,
        command: request.command.clone(),
        commit: request.commit.clone(),
        machine: Machine::here(),
        rig: Some(facts),
    };
    Ok(Record::new(experiment, &measured.cells, verdict))
}

/// Runs the cells; the limit ends them as an interrupt would, so that what they measured is kept.
async fn within_limit(request: &Request, rig: &Rig, progress: &Progress) -> Measured {
    let limit = request.at_most.unwrap_or(Duration::MAX);
    let stop = request.stop.child_token();
    let mut measured = Measured::default();
    let in_time = {
        let cells = cells(request, &stop, rig, progress, &mut measured);
        tokio::pin!(cells);
        tokio::select! {
            () = &mut cells => true,
            () = tokio::time::sleep(limit) => {
                stop.cancel();
                cells.await;
                false
            }
        }
    };
    if in_time {
        return measured;
    }
    measured.ended = Some(ExperimentError::TooLong(limit.as_secs() / 60));
    // The user did not stop it: the reason is the limit.
    for cell in &mut measured.cells {
        cell.cut = cell.cut.map(|_| Cut::OutOfTime);
    }
    measured
}

async fn cells(
    request: &Request,
    stop: &CancellationToken,
    rig: &Rig,
    progress: &Progress,
    measured: &mut Measured,
) {
    if !rig.invalid().is_empty() {
        return;
    }
    measured.ended = enough_connections(&request.scenario, rig).await.err();
    for round in 1..=request.scenario.rounds.get() {
        let mut control: Option<(&Cell, Measurements)> = None;
        for (place, cell) in order(&request.scenario.cells, round) {
            if stop.is_cancelled() || measured.ended.is_some() {
                return;
            }
            let total = request.scenario.cells.len();
            let label =
                format!("[round {round} of {}, cell {} of {total}]", request.scenario.rounds, place + 1);
            let seat = Seat { cell, place, round, label };
            match Box::pin(one(request, stop, rig, progress, &seat)).await {
                Ok(history) => measured.cells.push(measure_cell(history, cell, round, &mut control)),
                // Before the first write there is nothing to keep, and the stop itself says why.
                Err(ExperimentError::Run { source, .. }) if matches!(*source, RunError::Interrupted) => {
                    return;
                }
                Err(error) => measured.ended = Some(error),
            }
        }
    }
}

/// A history becomes numbers here, and is dropped: only one is in memory at a time.
fn measure_cell<'a>(
    history: History,
    cell: &'a Cell,
    round: u32,
    control: &mut Option<(&'a Cell, Measurements)>,
) -> MeasuredCell {
    let paired = control.as_ref().map(|(cell, measurements)| (*cell, measurements));
    let measurements = measure::measure(&history, cell, paired);
    if cell.role == Some(Role::Control) {
        *control = Some((cell, measurements.clone()));
    }
    MeasuredCell {
        label: cell.label.clone(),
        role: cell.role,
        design: cell.design,
        round,
        measurements,
        troubles: history.troubles,
        void: history.void,
        misconduct: history.misconduct,
        cut: history.interrupted.then_some(Cut::Interrupted),
    }
}

/// The control first, because others are paired with it; the rest forward in odd rounds and backward in even ones, so
/// that a machine that drifts does not always favour the same cell.
fn order(cells: &[Cell], round: u32) -> Vec<(usize, &Cell)> {
    let (mut controls, mut rest): (Vec<_>, Vec<_>) =
        cells.iter().enumerate().partition(|(_, cell)| cell.role == Some(Role::Control));
    if round.is_multiple_of(2) {
        rest.reverse();
    }
    controls.append(&mut rest);
    controls
}

struct Seat<'a> {
    cell: &'a Cell,
    place: usize,
    round: u32,
    label: String,
}

async fn one(
    request: &Request,
    stop: &CancellationToken,
    rig: &Rig,
    progress: &Progress,
    seat: &Seat<'_>,
) -> Result<History, ExperimentError> {
    let plan = Plan::new(request.scenario.seed, seat.cell, seat.round);
    progress.say(format!("{} {}: making its databases", seat.label, seat.cell.label));
    let world = rig.world(seat.cell, seat.place, seat.round).await?;
    let before = rig.vitals().await?;
    let live = Arc::new(Live::default());
    let line = progress.cell(&seat.label, seat.cell, &live);
    let setting = Setting { cell: seat.cell, rig, world: &world, stop, exe: &request.rig.exe, live: &live };
    // Boxed: everything a cell holds lives in it.
    let history = Box::pin(run::run(setting, plan, request.scenario.seed)).await;
    drop(line);
    let after = rig.vitals().await;
    let left = world.remove().await.err().map(|error| error.to_string());
    let mut history = history.map_err(|source| ExperimentError::Run {
        cell: seat.cell.label.clone(),
        source: Box::new(source),
        left: left.as_ref().map_or_else(String::new, |left| format!("; {left}")),
    })?;
    match after {
        Ok(after) => history.void.extend(before.changes(&after)),
        Err(error) => history.troubles.push(error.to_string()),
    }
    // What was measured is kept: an event that was lost is lost, whatever else went wrong.
    history.troubles.extend(left);
    Ok(history)
}

async fn enough_connections(scenario: &Scenario, rig: &Rig) -> Result<(), ExperimentError> {
    let free = rig.free_connections().await?;
    let largest = scenario.cells.iter().map(|cell| (cell.connections_needed(), cell)).max_by_key(|(n, _)| *n);
    match largest {
        Some((needed, cell)) if needed > free => {
            Err(ExperimentError::Connections { cell: cell.label.clone(), needed, free })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_rounds_run_backward_after_the_control() {
        let overrides = crate::scenario::Overrides::default();
        let (name, text) = crate::scenario::find("workspace").expect("it is shipped");
        let scenario = crate::scenario::load(&name, &text, &overrides).expect("it is valid");
        let labels = |round| -> Vec<&str> {
            order(&scenario.cells, round).iter().map(|(_, cell)| cell.label.as_str()).collect()
        };
        assert_eq!(labels(1), ["control", "old", "new"]);
        assert_eq!(labels(2), ["control", "new", "old"]);
    }
}
