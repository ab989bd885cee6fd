//! `drainbench check`: validates scenarios and prints what they would do. Starts nothing.

use std::{fmt::Write as _, io::Write as _};

use comfy_table::{CellAlignment, Table, presets};

use crate::{
    cmd::args::ScenarioArgs,
    exit::Exit,
    plan::{self, Counts},
    scenario::{Arrivals, Cell, Expectation, Fault, Role, Scenario},
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
    let about = if scenario.about.is_empty() { String::new() } else { format!(": {}", scenario.about) };
    let mut text = format!("{}{about}\n", scenario.name);
    let planned = scenario.planned_seconds();
    // Writing to a string cannot fail.
    let rounds = if scenario.rounds.get() == 1 { "round" } else { "rounds" };
    let _ = writeln!(text, "  seed     {}, {} {rounds}", scenario.seed, scenario.rounds);
    let _ = writeln!(
        text,
        "  time     {} at least, {} at most, beyond the rig's start",
        minutes(planned.0),
        minutes(planned.1)
    );
    let _ = writeln!(text, "  needs    {} database connections", scenario.connections_needed());
    let _ = writeln!(text, "\n{}", cells(scenario).trim_fmt());
    faults(&mut text, scenario);
    expectations(&mut text, "symptoms, of the baseline", &scenario.symptoms);
    expectations(&mut text, "criteria, of every candidate", &scenario.criteria);
    text
}

fn cells(scenario: &Scenario) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header([
        "  cell",
        "role",
        "design",
        "services",
        "load",
        "writes",
        "events",
        "backlog",
        "cases",
        "connections",
    ]);
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

/// What strikes when, and where.
fn faults(text: &mut String, scenario: &Scenario) {
    let mut told: Vec<&Fault> = Vec::new();
    for fault in scenario.cells.iter().flat_map(|cell| &cell.faults) {
        if told.contains(&fault) {
            continue;
        }
        if told.is_empty() {
            let _ = writeln!(text, "  broken on purpose:");
        }
        told.push(fault);
        let cells = scenario.cells.iter().filter(|cell| cell.faults.contains(fault));
        let labels: Vec<&str> = cells.map(|cell| cell.label.as_str()).collect();
        let lasts = fault.lasts.map_or(", for good".to_owned(), |lasts| format!(" for {lasts:?}"));
        let every = fault.every.map_or(String::new(), |every| format!(", every {every:?}"));
        let _ =
            writeln!(text, "    {} at {:?}{lasts}{every}, in {}", fault.breaks, fault.at, labels.join(", "));
    }
}

fn expectations(text: &mut String, title: &str, expectations: &[Expectation]) {
    if expectations.is_empty() {
        return;
    }
    let _ = writeln!(text, "  {title}:");
    for expectation in expectations {
        let Expectation { metric, limit, cell } = expectation;
        let factor = limit.times.as_ref().map(|of| format!(" times that of cell {of}")).unwrap_or_default();
        let unit = match (limit.times.is_some(), metric.unit().symbol()) {
            (true, _) | (false, "") => String::new(),
            (false, symbol) => format!(" {symbol}"),
        };
        let only = cell.as_ref().map(|label| format!(", in cell {label}"));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{self, Overrides};

    #[test]
    fn the_plan_of_the_workspace() {
        let (name, text) = scenario::find("workspace").expect("shipped");
        let scenario = scenario::load(&name, &text, &Overrides::default()).expect("valid");
        let plan = describe(&scenario);
        let plan: Vec<&str> = plan.lines().map(str::trim_end).collect();
        insta::assert_snapshot!(plan.join("\n"), @r"
        workspace: 19 services whose drainers share their one-connection pools, and a broker whose confirms take 67 ms
          seed     477, 1 round
          time     2.0 min at least, 6.0 min at most, beyond the rig's start
          needs    42 database connections

           cell     role       design     services  load            writes  events  backlog  cases  connections
           control  control    none       19        400/s constant   14000   14000        0   1725           42
           old      baseline   single-tx  19        400/s constant   14000   14000        0   1725           42
           new      candidate  lease      19        400/s constant   14000   14000        0   1725           42
          symptoms, of the baseline:
            persist.p99 > 1000 ms
            idle_in_tx.rows > 0
            suite.failed > 0
          criteria, of every candidate:
            persist.p99 < 50 ms
            persist.p99_worst_service < 50 ms
            idle_in_tx.rows ≤ 0
            suite.failed ≤ 0
        ");
    }

    #[test]
    fn limits_say_of_what_they_are() {
        let text = "name = \"growth\"\nload.backlog = 100\n\
            [[cell]]\nlabel = \"1k\"\ndesign = \"lease\"\n[[cell]]\nlabel = \"1m\"\ndesign = \"lease\"\nload.events_per_write = 3\n\
            [[criterion]]\nmetric = \"claim.p99\"\nat_most = 1.5\ntimes = \"1k\"\ncell = \"1m\"\n";
        let scenario = scenario::load("growth.toml", text, &Overrides::default()).expect("valid");
        let plan = describe(&scenario);
        let plan: Vec<&str> = plan.lines().map(str::trim_end).collect();
        insta::assert_snapshot!(plan.join("\n"), @r"
        growth
          seed     1, 1 round
          time     1 s at least, 3.5 min at most, beyond the rig's start
          needs    10 database connections

           cell  role  design  services  load          writes  events  backlog  cases  connections
           1k    -     lease   1         backlog only       0       0      100      0           10
           1m    -     lease   1         backlog only       0       0      102      0           10
          criteria, of every candidate:
            claim.p99 ≤ 1.5 times that of cell 1k, in cell 1m
        ");
    }
}
