//! From a text to a scenario that cannot be wrong afterwards.

use std::num::NonZeroU32;

use sha2::{Digest, Sha256};

use super::{
    Cell, Expectation, Overrides, Role, Scenario, ScenarioError,
    error::Flaw,
    fault, overrides,
    resolve::{self, count},
    rules::{self, Made},
    value::Key,
    wire::{CellWire, ExpectationWire, ScenarioWire},
};

/// Most cells, and rounds, of an experiment.
const MAX_CELLS: usize = 100;
const MAX_ROUNDS: u32 = 1_000;
/// Longest scenario text, so that a file that is none is refused at once.
pub(super) const MAX_TEXT_BYTES: usize = 1 << 20;
const LONGEST_NAME: usize = 40;

/// Reads a scenario. `source_name` is what errors call it: its file, or a shipped scenario's name.
///
/// # Errors
/// The first thing that is wrong: file, line, key, value, rule and way out.
pub fn load(source_name: &str, text: &str, overrides: &Overrides) -> Result<Scenario, ScenarioError> {
    if text.len() > MAX_TEXT_BYTES {
        let message = format!("{} bytes are too many for a scenario: at most {MAX_TEXT_BYTES}", text.len());
        return Err(
            Flaw::new(0..0, message, "give a file as scenarios/README.md shows").in_text(source_name, "")
        );
    }
    let (text, wire) = overrides::read(text, overrides);
    match wire.and_then(|wire| scenario(&wire)) {
        Ok(scenario) => {
            let hash: [u8; 32] = Sha256::digest(text.as_bytes()).into();
            let hash = hash.iter().map(|byte| format!("{byte:02x}")).collect();
            Ok(Scenario { text, hash, ..scenario })
        }
        Err(flaw) => Err(flaw.in_text(source_name, &text)),
    }
}

/// All but its text and hash.
fn scenario(wire: &ScenarioWire) -> Result<Scenario, Flaw> {
    let name = match identifier(wire.name())? {
        Some(name) => name,
        None => return Err(Flaw::new(0..0, "`name` is missing", "begin with `name = \"my-scenario\"`")),
    };
    let seed = wire.seed().whole(0..=i64::MAX)?.map_or(1, i64::unsigned_abs);
    let mut cells = cells(wire)?;
    rules::cells(&cells)?;
    fault::of_cells(&wire.fault, &mut cells)?;
    rules::schedules(seed, &cells)?;
    let symptoms = expectations(&wire.symptom, Role::Baseline, &cells)?;
    let criteria = expectations(&wire.criterion, Role::Candidate, &cells)?;
    Ok(Scenario {
        name,
        about: wire.about().text()?.unwrap_or_default().to_owned(),
        seed,
        rounds: count(wire.rounds(), MAX_ROUNDS)?.unwrap_or(NonZeroU32::MIN),
        containers: resolve::containers(&wire.rig)?,
        cells: cells.into_iter().map(|made| made.cell).collect(),
        symptoms,
        criteria,
        text: String::new(),
        hash: String::new(),
    })
}

fn cells(wire: &ScenarioWire) -> Result<Vec<Made>, Flaw> {
    let Some(beyond) = wire.cell.get(MAX_CELLS) else {
        if wire.cell.is_empty() {
            let help = "add a `[[cell]]` with `label`, `role` and `design`";
            return Err(Flaw::new(0..0, "there is no `[[cell]]`: nothing would run", help));
        }
        return wire.cell.iter().map(|cell| made(wire, cell.get_ref(), cell.span())).collect();
    };
    let message = format!("{} cells are too many: at most {MAX_CELLS}", wire.cell.len());
    Err(Flaw::new(beyond.span(), message, "split the scenario"))
}

fn made(scenario: &ScenarioWire, wire: &CellWire, span: std::ops::Range<usize>) -> Result<Made, Flaw> {
    let missing = |key: &str, example: &str| {
        Flaw::new(span.clone(), format!("a cell without `{key}`"), format!("add `{key} = \"{example}\"`"))
    };
    let label = identifier(wire.label())?.ok_or_else(|| missing("label", "new"))?;
    let design = resolve::design(wire.design())?.ok_or_else(|| missing("design", "lease"))?;
    let own = wire.sections();
    let merged = own.clone().over(scenario.sections());
    let settings = resolve::settings(&merged)?;
    let cell = Cell { label, role: resolve::role(wire.role())?, design, faults: Vec::new(), settings };
    let label = wire.label().given.map_or(span, toml::Spanned::span);
    let made = Made { cell, merged, own, label };
    rules::cell(&made)?;
    Ok(made)
}

/// A name that can stand in folders, databases and queues.
fn identifier(key: Key<'_>) -> Result<Option<String>, Flaw> {
    let Some(text) = key.text()? else { return Ok(None) };
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
    if !text.is_empty() && text.len() <= LONGEST_NAME && text.chars().all(fits) {
        return Ok(Some(text.to_owned()));
    }
    Err(key.flaw(
        format_args!("must be 1 to {LONGEST_NAME} small letters, digits, `-` and `_`"),
        "it becomes part of the names of folders, databases and queues",
    ))
}

fn expectations(
    wires: &[toml::Spanned<ExpectationWire>],
    judged: Role,
    cells: &[Made],
) -> Result<Vec<Expectation>, Flaw> {
    wires
        .iter()
        .map(|wire| {
            let expectation = resolve::expectation(wire.get_ref(), wire.span())?;
            rules::expectation(&expectation, wire.get_ref(), &wire.span(), judged, cells)?;
            Ok(expectation)
        })
        .collect()
}
