//! `drainbench verify`: all cells on one rig, and a verdict.

use std::{path::PathBuf, time::Duration};

use crate::{
    cmd::{
        args::{RigArgs, ScenarioArgs},
        present,
    },
    exit::Exit,
    experiment::{self, ExperimentError, Request},
    interrupt,
    progress::Progress,
    scenario::Scenario,
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
    #[arg(long, value_name = "MINUTES", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    max_minutes: Option<u32>,
    /// Where record.json and report.md go [default: reports/local/TIME-SCENARIO]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// What is printed: for people, or the record and nothing else
    #[arg(long, value_enum, default_value_t)]
    format: Format,
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

/// Runs the verb.
pub async fn main(args: Args) -> Exit {
    match args.changes.load(&args.scenario) {
        Ok(scenario) => Box::pin(experiment(scenario, args.how)).await,
        Err(exit) => exit,
    }
}

/// Runs `scenario`, records it, reports it.
pub(super) async fn experiment(scenario: Scenario, how: How) -> Exit {
    let limit = how.max_minutes.map(|minutes| Duration::from_secs(u64::from(minutes) * 60));
    if let Some(limit) = limit
        && scenario.planned_seconds().0 > limit.as_secs_f64()
    {
        eprintln!(
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
            eprintln!("drainbench: {error}");
            return Exit::Usage;
        }
    };
    let stop = match interrupt::token() {
        Ok(stop) => stop,
        Err(error) => {
            eprintln!("drainbench: cannot listen for Ctrl-C: {error}");
            return Exit::Environment;
        }
    };
    let rig = match how.rig.request() {
        Ok(rig) => rig,
        Err(error) => {
            eprintln!("drainbench: {error}");
            return Exit::Environment;
        }
    };
    let command = std::env::args().collect();
    let request = Request { scenario, rig, command, stop, at_most: limit };
    let progress = Progress::new();
    match Box::pin(experiment::run(&request, &progress)).await {
        Ok(record) => present::record(&record, &out, how.format == Format::Json),
        Err(error) => {
            progress.done();
            eprintln!("drainbench: {error}");
            match error {
                ExperimentError::Interrupted => Exit::Interrupted,
                _ => Exit::Environment,
            }
        }
    }
}
