//! From a record to what people read. Pure.

use crate::record::Record;

/// stub
#[must_use]
pub fn terminal(record: &Record, _colour: bool) -> String {
    let mut out = String::new();
    for cell in &record.cells {
        out.push_str(&format!("{} {:#?}\n", cell.label, cell.metrics));
    }
    format!("{out}{:#?}", record.verdict)
}
/// stub
#[must_use]
pub fn markdown(record: &Record) -> String {
    terminal(record, false)
}
