//! `drainbench run`: one cell, measured and audited, held to no criterion.

use crate::{
    cmd::{
        args::ScenarioArgs,
        verify::{How, experiment},
    },
    exit::Exit,
    scenario::{Role, Scenario},
};

/// Arguments of `run`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A shipped scenario's name, or a file
    scenario: String,
    /// The design to run instead of the candidate's
    #[arg(long, value_name = "DESIGN", conflicts_with = "designs")]
    design: Option<String>,
    #[command(flatten)]
    changes: ScenarioArgs,
    #[command(flatten)]
    how: How,
}

/// Runs the verb; `commit` is what the program was built from.
pub async fn main(mut args: Args, commit: Option<&str>) -> Exit {
    if let Some(design) = args.design.take() {
        args.changes.designs = Some(vec![design]);
    }
    match args.changes.load(&args.scenario) {
        Ok(scenario) => Box::pin(experiment(one_cell(scenario), args.how, commit)).await,
        Err(exit) => exit,
    }
}

/// Only the candidate is left, without a role: criteria compare cells, and there is one.
fn one_cell(mut scenario: Scenario) -> Scenario {
    let candidate = scenario.cells.iter().rposition(|cell| cell.role == Some(Role::Candidate));
    let kept = candidate.unwrap_or(scenario.cells.len().saturating_sub(1));
    let mut place = 0;
    scenario.cells.retain(|_| {
        place += 1;
        place - 1 == kept
    });
    for cell in &mut scenario.cells {
        cell.role = None;
    }
    scenario.symptoms.clear();
    scenario.criteria.clear();
    scenario
}
