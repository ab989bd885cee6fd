//! Relations between tables, and between cells.

use std::{collections::BTreeSet, ops::Range, time::Duration};

use super::{
    Cell, CellDesign, Expectation, Load, Placement, Role, WriteKind,
    error::Flaw,
    resolve,
    value::{Key, duration_text},
    wire::{ExpectationWire, Sections},
};
use crate::plan;

/// A cell, and what it was made from.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) cell: Cell,
    /// What the file and the cell say together.
    pub(super) merged: Sections,
    /// What the cell says itself.
    pub(super) own: Sections,
    /// Where its label stands.
    pub(super) label: Range<usize>,
}

/// One cell on its own.
pub(super) fn cell(made: &Made) -> Result<(), Flaw> {
    let Made { cell, merged, label, .. } = made;
    if cell.design == CellDesign::None && matches!(cell.role, Some(Role::Baseline | Role::Candidate)) {
        let message =
            format!("cell `{}`: design `none` drains nothing, so there is nothing to judge", cell.label);
        return Err(Flaw::new(label.clone(), message, "write `role = \"control\"`, or leave `role` out"));
    }
    lease(cell, merged, label)?;
    own_program(cell, merged)?;
    whole_units(cell, merged, label)?;
    something_to_write(cell, merged, label)
}

/// The lease must outlast the confirms of a chunk.
fn lease(cell: &Cell, merged: &Sections, label: &Range<usize>) -> Result<(), Flaw> {
    let depth = cell.settings.drainer.pipeline_depth;
    let least = drainer::Config::shortest_lease(depth.get());
    if cell.design.drainer().is_none() || cell.settings.drainer.lease_ttl >= least {
        return Ok(());
    }
    let ttl = duration_text(cell.settings.drainer.lease_ttl);
    let message = format!(
        "`drainer.lease_ttl = \"{ttl}\"` in cell `{}`: a lease must hold 3 x `drainer.pipeline_depth` x 100 ms, \
         which is {} for a depth of {depth}",
        cell.label,
        duration_text(least)
    );
    let most = cell.settings.drainer.lease_ttl.as_millis() / drainer::Config::shortest_lease(1).as_millis();
    let help = if most == 0 {
        format!("write `lease_ttl = \"{}\"` or more", duration_text(least))
    } else {
        format!(
            "write `lease_ttl = \"{}\"` or more, or `pipeline_depth = {most}` or less",
            duration_text(least)
        )
    };
    Err(Flaw::new(
        place(&[merged.drainer.lease_ttl(), merged.drainer.pipeline_depth()], label),
        message,
        help,
    ))
}

/// A program is a process.
fn own_program(cell: &Cell, merged: &Sections) -> Result<(), Flaw> {
    let drainer = &cell.settings.drainer;
    let key = merged.drainer.command();
    let Some(command) = &drainer.command else { return Ok(()) };
    if command.trim().is_empty() {
        return Err(key.flaw("names no program", "write a program and its arguments, separated by blanks"));
    }
    if drainer.placement == Placement::InService {
        let help = "write `placement = \"process\"` under `[drainer]`";
        return Err(key.flaw("a program runs in a process of its own", help));
    }
    Ok(())
}

/// A drainer process gets its settings as its users write them: the lease in whole seconds, the rest in milliseconds.
fn whole_units(cell: &Cell, merged: &Sections, label: &Range<usize>) -> Result<(), Flaw> {
    let (drainer, wire) = (&cell.settings.drainer, &merged.drainer);
    if drainer.placement == Placement::InService || cell.design.drainer().is_none() {
        return Ok(());
    }
    let second = Duration::from_secs(1);
    let ms = Duration::from_millis(1);
    let settings = [
        (wire.lease_ttl(), drainer.lease_ttl, second, "seconds"),
        (wire.poll_interval(), drainer.poll_interval, ms, "milliseconds"),
        (wire.confirm_timeout(), drainer.confirm_timeout, ms, "milliseconds"),
        (wire.stop_within(), drainer.stop_within, ms, "milliseconds"),
    ];
    for (key, value, unit, name) in settings {
        if !value.as_nanos().is_multiple_of(unit.as_nanos()) {
            let message = format!(
                "`{} = \"{}\"` in cell `{}`: a drainer process takes whole {name}",
                key.path,
                duration_text(value),
                cell.label
            );
            let help = "round it, or write `placement = \"in-service\"`";
            return Err(Flaw::new(place(&[key], label), message, help));
        }
    }
    Ok(())
}

fn something_to_write(cell: &Cell, merged: &Sections, label: &Range<usize>) -> Result<(), Flaw> {
    let load = &cell.settings.load;
    if load.rate.is_none() && load.backlog == 0 {
        let message =
            format!("cell `{}` has neither `load.rate` nor `load.backlog`: nothing is written", cell.label);
        return Err(Flaw::new(label.clone(), message, "add `rate = 400` under `[load]`, or a `backlog`"));
    }
    let expected = plan::expected_writes(load);
    if expected > plan::MAX_WRITES as f64 {
        let message = format!(
            "cell `{}` comes to {expected:.0} writes, and a cell has at most {}",
            cell.label,
            plan::MAX_WRITES
        );
        let span = place(&[merged.load.rate(), merged.load.duration()], label);
        return Err(Flaw::new(
            span,
            message,
            "lower `load.rate`, shorten `load.duration` or, of bursts, their `load.burst_every`",
        ));
    }
    Ok(())
}

/// The schedule of each load is walked through once: that writes fall into its window, and as many as there are
/// cases.
pub(super) fn schedules(seed: u64, cells: &[Made]) -> Result<(), Flaw> {
    let mut known: Vec<(&Load, plan::Counts)> = Vec::new();
    for made in cells {
        let load = &made.cell.settings.load;
        let counts = match known.iter().find(|(other, _)| *other == load) {
            Some((_, counts)) => *counts,
            None => {
                let counts = plan::counts(seed, load);
                known.push((load, counts));
                counts
            }
        };
        if load.rate.is_some() && counts.measured == 0 {
            let message = format!("no write of cell `{}` is due in the measured window", made.cell.label);
            let span = place(&[made.merged.load.rate(), made.merged.load.duration()], &made.label);
            return Err(Flaw::new(span, message, "lengthen `load.duration` or raise `load.rate`"));
        }
        enough_cases(made, counts)?;
    }
    Ok(())
}

fn enough_cases(made: &Made, counts: plan::Counts) -> Result<(), Flaw> {
    let cases = made.cell.settings.suite.cases;
    if u64::from(cases) <= counts.candidates {
        return Ok(());
    }
    let message = format!(
        "`suite.cases = {cases}`: cases are drawn from the writes that are due in the measured window and don't \
         roll back, and cell `{}` has {} of these",
        made.cell.label, counts.candidates
    );
    let help =
        format!("write at most {}, or lengthen `load.duration`, or raise `load.rate`", counts.candidates);
    let load = &made.merged.load;
    let span = place(&[made.merged.suite.cases(), load.duration(), load.rate()], &made.label);
    Err(Flaw::new(span, message, help))
}

/// All cells together: labels, roles, pairing.
pub(super) fn cells(cells: &[Made]) -> Result<(), Flaw> {
    let mut labels = BTreeSet::new();
    for made in cells {
        if !labels.insert(made.cell.label.as_str()) {
            let message = format!("`label = \"{}\"`: another cell has this label", made.cell.label);
            return Err(Flaw::new(made.label.clone(), message, "give each cell a label of its own"));
        }
    }
    for (role, name) in [(Role::Control, "control"), (Role::Baseline, "baseline")] {
        let mut with_role = cells.iter().filter(|made| made.cell.role == Some(role));
        if let (Some(first), Some(second)) = (with_role.next(), with_role.next()) {
            let message = format!(
                "cell `{}` is a {name}, and cell `{}` is the {name} already",
                second.cell.label, first.cell.label
            );
            let help = "leave its `role` out: then it is reported and not judged";
            return Err(Flaw::new(second.label.clone(), message, help));
        }
    }
    cells
        .iter()
        .filter(|made| made.cell.role == Some(Role::Control))
        .try_for_each(|control| paired(control, cells))
}

/// The control does what the others do, without a drainer; else its figures could not be compared with theirs.
fn paired(control: &Made, cells: &[Made]) -> Result<(), Flaw> {
    let (own, settings) = (&control.own, &control.cell.settings);
    for other in cells.iter().map(|made| &made.cell).filter(|other| other.label != control.cell.label) {
        let unpairing = [
            ("load", settings.load == other.settings.load),
            ("service", settings.service == other.settings.service),
            ("database", settings.database == other.settings.database),
        ];
        for (table, same) in unpairing {
            let of_table = |key: &Key<'_>| key.path.split('.').next() == Some(table);
            if let Some(key) = own.given().find(|key| !same && of_table(key)) {
                return Err(key.flaw(
                    format_args!(
                        "would unpair the control `{}` from cell `{}`, whose `[{table}]` is another",
                        control.cell.label, other.label
                    ),
                    "leave it out of the control and write it at the top, for all cells",
                ));
            }
        }
    }
    Ok(())
}

/// A symptom or criterion: the cells it speaks of.
pub(super) fn expectation(
    expectation: &Expectation,
    wire: &ExpectationWire,
    span: &Range<usize>,
    judged: Role,
    cells: &[Made],
) -> Result<(), Flaw> {
    let labels: Vec<&str> = cells.iter().map(|made| made.cell.label.as_str()).collect();
    for (key, asked) in [(wire.cell(), &expectation.cell), (wire.times(), &expectation.limit.times)] {
        if let Some(asked) = asked.as_deref().filter(|asked| !labels.contains(asked)) {
            return Err(resolve::unknown_cell(key, asked, &labels));
        }
    }
    if expectation.cell.is_none() && !cells.iter().any(|made| made.cell.role == Some(judged)) {
        let (what, role) = match judged {
            Role::Candidate => ("criterion", "candidate"),
            Role::Baseline => ("symptom", "baseline"),
            Role::Control => ("expectation", "control"),
        };
        let metric = expectation.metric;
        let message = format!("a {what} on {metric}, and no cell is a {role} to look for it in");
        let help = format!("give a cell `role = \"{role}\"`, or say which with `cell = \"label\"`");
        return Err(Flaw::new(span.clone(), message, help));
    }
    let about = |made: &&Made| match &expectation.cell {
        Some(label) => made.cell.label == *label,
        None => made.cell.role == Some(judged),
    };
    cells.iter().filter(about).try_for_each(|made| measurable(expectation, made, span))
}

/// What is known to have no value in a cell could only end INVALID, minutes later.
fn measurable(expectation: &Expectation, made: &Made, span: &Range<usize>) -> Result<(), Flaw> {
    let (metric, cell) = (expectation.metric, &made.cell);
    let (why, help) = match metric.name() {
        name if name.starts_with("recovery.") && cell.faults.is_empty() => {
            ("nothing is broken in it", "add a `[[fault]]`, or leave the expectation out")
        }
        "idle_in_tx.exact_ms"
            if !cell.settings.sampler.witness || cell.settings.drainer.placement == Placement::InService =>
        {
            (
                "no link reads along what its drainers say",
                "write `witness = true` under `[sampler]` and `placement = \"process\"` under `[drainer]`",
            )
        }
        "suite.passed" | "suite.failed" if cell.settings.suite.cases == 0 => {
            ("it has no suite", "write `cases` under `[suite]`, or leave the expectation out")
        }
        name if name.starts_with("commit.") && cell.settings.load.write == WriteKind::Statement => {
            ("its writes are single statements, without a COMMIT of their own", "take `persist` or `execute`")
        }
        _ => return Ok(()),
    };
    let message = format!("{metric} has no value in cell `{}`: {why}", cell.label);
    Err(Flaw::new(span.clone(), message, help))
}

/// Where the first of `keys` that is given stands, or else the cell's label.
fn place(keys: &[Key<'_>], label: &Range<usize>) -> Range<usize> {
    keys.iter().find_map(|key| key.given).map_or_else(|| label.clone(), toml::Spanned::span)
}
