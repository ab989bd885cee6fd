//! `drainbench check`: validates scenarios and prints what they would do. Starts nothing.

use std::{fmt::Write as _, io::Write as _};

use comfy_table::{CellAlignment, Table, presets};

use crate::{
    cmd::args::ScenarioArgs,
    exit::Exit,
    plan::{self, Counts},
    scenario::{Arrivals, Cell, Expectation, Role, Scenario},
};

/// Arguments of `check`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Shipped scenarios' names, or files
    #[arg(required = true, value_name = "SCENARIO")]
    scenarios: Vec<String>,
    #[command(flatten)]
    changes: ScenarioArgs,
}

/// Runs the verb. All scenarios are looked at, also after one that is wrong.
pub fn main(args: Args) -> Exit {
    let mut exit = Exit::Pass;
    for name in &args.scenarios {
        match args.changes.load(name) {
            Err(wrong) => exit = wrong,
            Ok(scenario) => {
                // Whoever closed standard output doesn't want to read it.
                let _ = writeln!(std::io::stdout(), "{}", describe(&scenario));
            }
        }
    }
    exit
}

/// The plan of a scenario, for people.
#[must_use]
pub fn describe(scenario: &Scenario) -> String {
    let mut text = format!("{}: {}\n", scenario.name, scenario.about);
    let planned = scenario.planned_seconds();
    // Writing to a string cannot fail.
    let _ = writeln!(text, "  seed     {}, {} round(s)", scenario.seed, scenario.rounds);
    let _ = writeln!(
        text,
        "  time     {} at least, {} at most, beyond the rig's start",
        minutes(planned.0),
        minutes(planned.1)
    );
    let _ = writeln!(text, "  needs    {} database connections", scenario.connections_needed());
    let _ = writeln!(text, "\n{}", cells(scenario));
    expectations(&mut text, "symptoms, of the baseline", &scenario.symptoms, Role::Baseline);
    expectations(&mut text, "criteria, of every candidate", &scenario.criteria, Role::Candidate);
    text
}

fn cells(scenario: &Scenario) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["  cell", "role", "design", "services", "load", "writes", "events", "backlog", "cases", "connections"]);
    for cell in &scenario.cells {
        let load = &cell.settings.load;
        let Counts { backlog, scheduled, .. } = plan::counts(scenario.seed, load);
        let events = u64::from(load.events_per_write);
        table.add_row([
            format!("  {}", cell.label),
            cell.role.map_or("-", Role::name).to_owned(),
            cell.design.name().to_owned(),
            load.services.to_string(),
            flow(cell),
            scheduled.to_string(),
            (scheduled * events).to_string(),
            (backlog * events).to_string(),
            cell.settings.suite.cases.to_string(),
            cell.connections_needed().to_string(),
        ]);
    }
    for column in table.column_iter_mut().skip(5) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// `400/s constant`.
fn flow(cell: &Cell) -> String {
    let load = &cell.settings.load;
    let Some(rate) = load.rate else { return String::from("backlog only") };
    match load.arrivals {
        Arrivals::Constant => format!("{rate}/s constant"),
        Arrivals::Poisson => format!("{rate}/s poisson"),
        Arrivals::Burst { every } => format!("{rate}/s in bursts every {every:?}"),
        Arrivals::Ramp { from } => format!("{from}/s to {rate}/s"),
    }
}

fn expectations(text: &mut String, title: &str, expectations: &[Expectation], judged: Role) {
    if expectations.is_empty() {
        return;
    }
    let _ = writeln!(text, "  {title}:");
    for expectation in expectations {
        let Expectation { metric, limit, cell } = expectation;
        let factor = limit.times.as_ref().map(|of| format!(" times that of cell {of}")).unwrap_or_default();
        let unit = if limit.times.is_some() { "" } else { metric.unit().symbol() };
        let only = cell.as_ref().map(|label| format!(", of cell {label} and no {}", judged.name()));
        let _ = writeln!(
            text,
            "    {metric} {} {}{unit}{factor}{}",
            limit.op.symbol(),
            limit.value,
            only.unwrap_or_default()
        );
    }
}

fn minutes(seconds: f64) -> String {
    if seconds < 120.0 { format!("{seconds:.0} s") } else { format!("{:.1} min", seconds / 60.0) }
}
