//! `drainbench verify`: all cells on one rig, and a verdict.

use std::{path::PathBuf, time::Duration};

use crate::say::complain;
use crate::{
    cmd::{
        args::{RigArgs, ScenarioArgs},
        present,
    },
    exit::Exit,
    experiment::{self, ExperimentError, Request},
    interrupt,
    progress::Progress,
    scenario::{Role, Scenario},
};

/// Arguments of `verify`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A shipped scenario's name, or a file
    #[arg(default_value = "workspace")]
    scenario: String,
    #[command(flatten)]
    changes: ScenarioArgs,
    #[command(flatten)]
    how: How,
}

/// What `verify` and `run` have in common beside the scenario.
#[derive(Debug, clap::Args)]
pub struct How {
    #[command(flatten)]
    rig: RigArgs,
    /// Longest time for everything, in minutes; what was measured until then is recorded as partial
    #[arg(long, value_name = "MINUTES", value_parser = minutes)]
    max_minutes: Option<u32>,
    /// Where record.json and report.md go [default: reports/local/TIME-SCENARIO]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// What is printed: for people, or the record and nothing else
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

fn minutes(given: &str) -> Result<u32, String> {
    let minutes = given.parse().ok().filter(|minutes| (1..=10_000).contains(minutes));
    minutes.ok_or_else(|| "write whole minutes, from 1 to 10000".to_owned())
}

/// What goes to standard output.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// For people
    #[default]
    Terminal,
    /// The record
    Json,
}

/// Runs the verb; `commit` is what the program was built from.
pub async fn main(args: Args, commit: Option<&str>) -> Exit {
    match args.changes.load(&args.scenario) {
        Ok(scenario) if judges_nothing(&scenario) => {
            complain!(
                "drainbench: {} has neither a candidate nor a criterion, so there is nothing to judge: give a cell \
                 `role = \"candidate\"`, or use `drainbench run`",
                scenario.name
            );
            Exit::Usage
        }
        Ok(scenario) => Box::pin(experiment(scenario, args.how, commit)).await,
        Err(exit) => exit,
    }
}

/// Whether a verdict would be a PASS of nothing.
fn judges_nothing(scenario: &Scenario) -> bool {
    scenario.criteria.is_empty() && !scenario.cells.iter().any(|cell| cell.role == Some(Role::Candidate))
}

/// Runs `scenario`, records it, reports it.
pub(super) async fn experiment(scenario: Scenario, how: How, commit: Option<&str>) -> Exit {
    let limit = how.max_minutes.map(|minutes| Duration::from_secs(u64::from(minutes) * 60));
    if let Some(limit) = limit
        && scenario.planned_seconds().0 > limit.as_secs_f64()
    {
        complain!(
            "drainbench: {} takes at least {:.0} s and --max-minutes allows {} s: raise it, or lower load.duration or --rounds",
            scenario.name,
            scenario.planned_seconds().0,
            limit.as_secs()
        );
        return Exit::Usage;
    }
    let out = match present::folder(how.out, &scenario.name) {
        Ok(out) => out,
        Err(error) => {
            complain!("drainbench: {error}");
            return Exit::Usage;
        }
    };
    let stop = match interrupt::token() {
        Ok(stop) => stop,
        Err(error) => {
            complain!("drainbench: cannot listen for Ctrl-C: {error}");
            return Exit::Environment;
        }
    };
    let rig = match how.rig.request() {
        Ok(mut rig) => {
            rig.wishes.scenario = scenario.containers.clone();
            rig
        }
        Err(error) => {
            present::give_up(&out);
            complain!("drainbench: {error}");
            return error.exit();
        }
    };
    let command = std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect();
    let commit = commit.filter(|commit| !commit.is_empty()).map(str::to_owned);
    let request = Request { scenario, rig, command, commit, stop, at_most: limit };
    let progress = Progress::new();
    match Box::pin(experiment::run(&request, &progress)).await {
        Ok(record) => present::record(&record, &out, how.format == Format::Json),
        Err(error) => {
            progress.done();
            present::give_up(&out);
            complain!("drainbench: {error}");
            match error {
                ExperimentError::Interrupted => Exit::Interrupted,
                ExperimentError::Rig(error) => error.exit(),
                ExperimentError::Connections { .. }
                | ExperimentError::Run { .. }
                | ExperimentError::TooLong(_) => Exit::Environment,
            }
        }
    }
}
