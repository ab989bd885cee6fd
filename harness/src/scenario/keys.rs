//! Which keys there are, and what to say of one that is not.
//!
//! The structs in `wire` deny unknown keys as well; this walk goes first because it knows the path and the nearest.

use std::ops::Range;

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{
    error::Flaw,
    nearest::{listed, nearest},
    wire::{CELL, ExpectationWire, FaultWire, OF_THE_FILE, SECTIONS, TOP},
};

const LISTS: [(&str, &[&str]); 4] = [
    ("cell", CELL),
    ("fault", FaultWire::KEYS),
    ("symptom", ExpectationWire::KEYS),
    ("criterion", ExpectationWire::KEYS),
];

/// Every key there is, from the top: `load.rate`, `cell.label`.
#[cfg(test)]
pub(super) fn all() -> Vec<String> {
    let tables = SECTIONS.iter().chain(OF_THE_FILE).copied().chain(LISTS);
    let within = tables.flat_map(|(table, keys)| keys.iter().map(move |key| format!("{table}.{key}")));
    TOP.iter().map(|key| (*key).to_owned()).chain(within).collect()
}

/// Proves that every key is one there is, and every table a table.
pub(super) fn check(document: &DeTable<'_>) -> Result<(), Flaw> {
    for (key, value) in document {
        let name: &str = key.get_ref();
        if TOP.contains(&name) {
            continue;
        }
        let mut sections = SECTIONS.iter().chain(OF_THE_FILE);
        if let Some((section, keys)) = sections.find(|(section, _)| *section == name) {
            check_section(section, keys, value)?;
            continue;
        }
        let Some((list, keys)) = LISTS.iter().find(|(list, _)| *list == name) else {
            let tables = SECTIONS.iter().chain(OF_THE_FILE).chain(&LISTS);
            let known = TOP.iter().copied().chain(tables.map(|(table, _)| *table));
            return Err(unknown("", name, key.span(), &known.collect::<Vec<_>>()));
        };
        let DeValue::Array(elements) = value.get_ref() else { return Err(no_list(list, key.span())) };
        for element in elements {
            let DeValue::Table(table) = element.get_ref() else { return Err(no_list(list, element.span())) };
            check_element(list, keys, table)?;
        }
    }
    Ok(())
}

fn check_section(section: &str, keys: &[&str], value: &Spanned<DeValue<'_>>) -> Result<(), Flaw> {
    let DeValue::Table(table) = value.get_ref() else {
        let message = format!("`{section}` must be a table");
        return Err(Flaw::new(value.span(), message, format!("write its keys under `[{section}]`")));
    };
    match table.iter().find(|(key, _)| !keys.contains(&key.get_ref().as_ref())) {
        None => Ok(()),
        Some((key, _)) => Err(unknown(&format!("{section}."), key.get_ref(), key.span(), keys)),
    }
}

/// One of a list. Cells have the sections too.
fn check_element(list: &str, keys: &[&str], table: &DeTable<'_>) -> Result<(), Flaw> {
    for (key, value) in table {
        let name: &str = key.get_ref();
        if keys.contains(&name) {
            continue;
        }
        let sections = if list == "cell" { SECTIONS } else { &[] };
        match sections.iter().find(|(section, _)| *section == name) {
            Some((section, section_keys)) => check_section(section, section_keys, value)?,
            None => {
                let known: Vec<&str> =
                    keys.iter().copied().chain(sections.iter().map(|(section, _)| *section)).collect();
                return Err(unknown(&format!("{list}."), name, key.span(), &known));
            }
        }
    }
    Ok(())
}

/// A key of that very name in another table, then the nearest in the same one.
fn unknown(table: &str, name: &str, span: Range<usize>, known: &[&str]) -> Flaw {
    let elsewhere = SECTIONS.iter().chain(OF_THE_FILE).filter(|(_, keys)| keys.contains(&name));
    let near = nearest(name, known.iter().copied(), 2);
    let offers: Vec<String> = elsewhere
        .map(|(section, _)| format!("{section}.{name}"))
        .chain(near.iter().map(|key| format!("{table}{key}")))
        .collect();
    let help = match offers.len() {
        0 => format!(
            "there is {}",
            listed(&known.iter().map(|key| format!("{table}{key}")).collect::<Vec<_>>())
        ),
        1 => format!("the nearest is {}", listed(&offers)),
        _ => format!("the nearest are {}", listed(&offers)),
    };
    Flaw::new(
        span,
        format!("unknown key `{table}{name}`"),
        format!("{help}; scenarios/README.md lists all keys"),
    )
}

fn no_list(list: &str, span: Range<usize>) -> Flaw {
    let message = format!("`{list}` must be a list of tables");
    Flaw::new(span, message, format!("write each under a `[[{list}]]` of its own"))
}
