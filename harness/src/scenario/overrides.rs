//! What the command line changes. Each override becomes a comment at the end of the scenario's text, so that the
//! record shows it; a flaw in it points there.

use std::{collections::BTreeMap, ops::Range};

use toml::{Spanned, Value, de::DeTable};

use super::{
    Overrides, Role,
    error::Flaw,
    keys, resolve,
    value::{Given, Key},
    wire::{CellWire, ExpectationWire, ScenarioWire},
};

/// The text with its overrides, and what the file and they say together. Flaws point into that text.
pub(super) fn read(file: &str, overrides: &Overrides) -> (String, Result<ScenarioWire, Flaw>) {
    let mut text = String::from(file);
    let wire = read_into(&mut text, overrides);
    (text, wire)
}

fn read_into(text: &mut String, overrides: &Overrides) -> Result<ScenarioWire, Flaw> {
    let mut wire = parse(text)?;
    for (key, value) in &overrides.set {
        wire = set(text, key, value)?.over(wire);
    }
    let seed = overrides.seed.map(|seed| ("seed", seed.to_string()));
    let rounds = overrides.rounds.map(|rounds| ("rounds", rounds.to_string()));
    for (key, number) in [seed, rounds].into_iter().flatten() {
        let span = comment(text, &format!("--{key} "), &number);
        // So that the number stands where the comment has it.
        let start = span.start.saturating_sub(key.len() + 1);
        wire = parse(&padded(start, &format!("{key}={number}")))?.over(wire);
    }
    if let Some(designs) = &overrides.designs {
        let span = comment(text, "--designs ", &designs.join(","));
        replace_cells(&mut wire, designs, &span)?;
    }
    Ok(wire)
}

fn parse(text: &str) -> Result<ScenarioWire, Flaw> {
    let syntax = |error: toml::de::Error| {
        let span = error.span().unwrap_or(0..0);
        Flaw::new(span, format!("not TOML: {}", error.message()), "scenarios/README.md shows the format")
    };
    let document = DeTable::parse(text).map_err(syntax)?;
    keys::check(document.get_ref())?;
    toml::from_str(text).map_err(|error| {
        let span = error.span().unwrap_or(0..0);
        Flaw::new(span, error.message(), "scenarios/README.md shows the format")
    })
}

/// `--set key=value`. The value is TOML, or else a bare word that is taken as text.
fn set(text: &mut String, key: &str, value: &str) -> Result<ScenarioWire, Flaw> {
    let given = format!("{key}={value}");
    if given.contains(['\n', '\r']) || key.trim().is_empty() {
        let span = comment(text, "--set ", &given.replace(['\n', '\r'], " "));
        return Err(Flaw::new(
            span,
            "an override is one `key=value` on one line",
            "write `--set load.rate=200`",
        ));
    }
    let is_toml = DeTable::parse(&given).is_ok();
    let is_word = !value.is_empty() && !value.contains(['"', '\\']);
    let line = if is_toml || !is_word { given } else { format!("{key}=\"{value}\"") };
    let span = comment(text, "--set ", &line);
    parse(&padded(span.start, &line))
}

/// Adds a line `# <flag><what>` and returns where `what` stands.
fn comment(text: &mut String, flag: &str, what: &str) -> Range<usize> {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str("# ");
    text.push_str(flag);
    let start = text.len();
    text.push_str(what);
    text.push('\n');
    start..start + what.len()
}

/// `line` where the comment has it, so that the parser's spans fit the whole text.
fn padded(start: usize, line: &str) -> String {
    " ".repeat(start) + line
}

/// The first design is the baseline, the last the candidate, those between have no role; a single one is the
/// candidate. A control of the file stays, and in front.
fn replace_cells(wire: &mut ScenarioWire, designs: &[String], span: &Range<usize>) -> Result<(), Flaw> {
    if designs.is_empty() {
        return Err(Flaw::new(span.clone(), "no design is named", "write `--designs single-tx,lease`"));
    }
    let mut cells = Vec::new();
    for cell in &wire.cell {
        if resolve::role(cell.get_ref().role())? == Some(Role::Control) {
            cells.push(cell.clone());
        }
    }
    let mut taken: BTreeMap<String, u32> = BTreeMap::new();
    for cell in &cells {
        if let Some(label) = cell.get_ref().label().text()? {
            taken.insert(label.to_owned(), 1);
        }
    }
    let at = |value: &str| -> Given { Some(Spanned::new(span.clone(), Value::String(value.to_owned()))) };
    for (place, design) in designs.iter().enumerate() {
        let given = at(design);
        // Before a label is made of it: a wrong name is a flaw of the design.
        resolve::design(Key { path: "design", given: given.as_ref() })?;
        let count = taken.entry(design.clone()).and_modify(|count| *count += 1).or_insert(1);
        let label = if *count == 1 { design.clone() } else { format!("{design}-{count}") };
        let role = match place {
            _ if design == "none" => None,
            _ if place + 1 == designs.len() => Some("candidate"),
            0 => Some("baseline"),
            _ => None,
        };
        let wire = CellWire::new(at(&label), role.and_then(at), given);
        cells.push(Spanned::new(span.clone(), wire));
    }
    if let [only] = designs {
        leave_out_comparisons(wire, &taken, only == "none");
    }
    wire.cell = cells;
    Ok(())
}

/// With one design there is no baseline to look for symptoms in, and nothing to compare with; that is what was asked
/// for. Without a drainer there is no candidate either.
fn leave_out_comparisons(wire: &mut ScenarioWire, labels: &BTreeMap<String, u32>, undrained: bool) {
    let is_there = |key: Key<'_>| {
        key.given.is_none_or(|given| given.get_ref().as_str().is_none_or(|label| labels.contains_key(label)))
    };
    let stays = |wire: &Spanned<ExpectationWire>| {
        let wire = wire.get_ref();
        is_there(wire.cell()) && is_there(wire.times())
    };
    wire.symptom.retain(|wire| stays(wire) && wire.get_ref().cell().given.is_some());
    wire.criterion.retain(|wire| stays(wire) && (!undrained || wire.get_ref().cell().given.is_some()));
}
