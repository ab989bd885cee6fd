//! Several cells on one rig, in rounds, judged by one verdict.

use std::{sync::Arc, time::Duration};

use tokio_util::sync::CancellationToken;

use crate::{
    history::History,
    live::Live,
    measure::{self, Measurements},
    plan::Plan,
    progress::Progress,
    record::Record,
    rig::{Rig, RigError, RigFacts, RigRequest},
    run::{self, RunError, Setting},
    scenario::{Cell, Role, Scenario},
    verdict::{self, MeasuredCell},
};

/// Why an experiment has no record.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    /// There is no rig.
    #[error(transparent)]
    Rig(#[from] RigError),
    /// The server has too few connections for the largest cell.
    #[error(
        "cell {cell} needs {needed} connections and the server has {free} to give: raise max_connections, or lower \
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
    #[error("cell {cell}: {source}")]
    Run {
        /// Which.
        cell: String,
        /// Why.
        #[source]
        source: RunError,
    },
    /// Stopped by the user before there was anything to record.
    #[error("interrupted before anything was measured")]
    Interrupted,
}

/// What an experiment is run with.
#[derive(Debug)]
pub struct Request {
    /// What is asked.
    pub scenario: Scenario,
    /// Where.
    pub rig: RigRequest,
    /// The command line, for the record. No secret can be on it.
    pub command: String,
    /// Ends it early: what was measured is recorded as partial.
    pub stop: CancellationToken,
    /// Longest time for all of it.
    pub at_most: Option<Duration>,
}

/// Runs it.
///
/// # Errors
/// Nothing is left running and nothing is left behind, as far as the servers still answer.
pub async fn run(request: &Request, progress: &Progress) -> Result<Record, ExperimentError> {
    let started_at = jiff::Timestamp::now();
    progress.say("bringing the rig up");
    let rig = tokio::select! {
        biased;
        () = request.stop.cancelled() => return Err(ExperimentError::Interrupted),
        rig = Rig::provision(&request.rig) => rig?,
    };
    for why in &rig.facts().why {
        progress.keep(why);
    }
    let cells = cells(request, &rig, progress).await;
    progress.say("taking the rig down");
    let facts = rig.facts().clone();
    let invalid = rig.invalid();
    let closed = rig.close().await;
    progress.done();
    let mut cells = cells?;
    if let Err(error) = closed {
        progress.keep(format!("drainbench: {error}"));
    }
    if request.stop.is_cancelled() && cells.is_empty() {
        return Err(ExperimentError::Interrupted);
    }
    let verdict = verdict::judge(&request.scenario, &cells, &invalid);
    Ok(Record::new(&request.scenario, started_at, &request.command, facts, &mut cells, verdict))
}

async fn cells(
    request: &Request,
    rig: &Rig,
    progress: &Progress,
) -> Result<Vec<MeasuredCell>, ExperimentError> {
    if !rig.invalid().is_empty() {
        return Ok(Vec::new());
    }
    enough_connections(&request.scenario, rig).await?;
    let mut measured = Vec::new();
    for round in 1..=request.scenario.rounds.get() {
        let mut control: Option<Measurements> = None;
        for (place, cell) in order(&request.scenario.cells, round) {
            if request.stop.is_cancelled() {
                return Ok(measured);
            }
            let total = request.scenario.cells.len();
            let label = format!("[round {round} of {}, cell {} of {total}]", request.scenario.rounds, place + 1);
            let seat = Seat { cell, place, round, label };
            let history = one(request, rig, progress, &seat).await?;
            let cell = measure::cell(&history, cell, round, control.as_ref());
            if cell.role == Some(Role::Control) {
                control = Some(cell.measurements.clone());
            }
            measured.push(cell);
        }
    }
    Ok(measured)
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
    rig: &Rig,
    progress: &Progress,
    seat: &Seat<'_>,
) -> Result<History, ExperimentError> {
    let failed = |source| ExperimentError::Run { cell: seat.cell.label.clone(), source };
    let plan = Plan::new(request.scenario.seed, seat.cell, seat.round);
    let world = rig.world(seat.cell, seat.place, seat.round).await?;
    let live = Arc::new(Live::default());
    let line = progress.cell(&seat.label, seat.cell, &live);
    let setting = Setting { cell: seat.cell, rig, world: &world, stop: &request.stop, live: &live };
    let history = run::run(setting, plan, request.scenario.seed).await;
    drop(line);
    if let Err(error) = world.remove().await {
        progress.keep(format!("drainbench: {error}"));
    }
    history.map_err(failed)
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
