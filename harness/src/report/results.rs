//! A record's results as a table for a README, between two markers.

use std::fmt::Write as _;

use super::view::{self, NOTHING};
use crate::record::Record;

/// Which table, by the name in its markers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// A record's cells.
    Results,
    /// Designs under faults, of many records.
    Faults,
}

impl Place {
    fn markers(self) -> [String; 2] {
        let name = match self {
            Self::Results => "results",
            Self::Faults => "faults",
        };
        ["begin", "end"].map(|side| format!("<!-- {name}:{side} -->"))
    }
}

/// A text without a place for the table.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("needs `{0}` and after it `{1}`, once each, to know where the results go")]
pub struct MarkerError(String, String);

/// The results: a line a cell, and where they come from.
#[must_use]
pub fn results_table(record: &Record) -> String {
    let columns = view::columns(record);
    let mut text = String::from(
        "| cell | design | persist p50 | p99 | max | worst service p99 | where the time is | drainer rows idle in \
         transaction | suite | drained | lost | duplicated |\n|---|---|--:|--:|--:|--:|---|--:|--:|--:|--:|--:|\n",
    );
    for column in &columns {
        let value = |name| view::value(column, name).unwrap_or_else(|| NOTHING.to_owned());
        let first = column.rounds.first();
        let parts = first.map(|cell| view::parts(cell)).unwrap_or_default();
        let suites: Vec<String> = column
            .rounds
            .iter()
            .filter_map(|cell| cell.suite)
            .map(|suite| format!("{}/{}", suite.passed, suite.cases))
            .collect();
        let or_nothing = |text: String| if text.is_empty() { NOTHING.to_owned() } else { text };
        let _ = writeln!(
            text,
            "| {} | {} | {} | **{}** | {} | {} | {} | {} | {} | {} | {} | {} |",
            column.label,
            column.design,
            value("persist.p50"),
            value("persist.p99"),
            value("persist.max"),
            value("persist.p99_worst_service"),
            or_nothing(parts.into_iter().take(2).collect::<Vec<_>>().join(", ")),
            value("idle_in_tx.rows"),
            or_nothing(suites.join(", ")),
            value("drain.rate"),
            value("audit.lost"),
            value("audit.duplicated"),
        );
    }
    let day = record.started_at.get(..10).unwrap_or(&record.started_at);
    let _ = writeln!(
        text,
        "\n`{}`: **{}** (exit code {}), {day}, {}, {}; {}.",
        record.scenario.name,
        record.verdict.outcome.name(),
        record.verdict.exit_code,
        view::tool(record),
        view::rig(record),
        view::machine(record)
    );
    text
}

/// `text` with `table` between the markers, whatever stood there.
///
/// # Errors
/// When the markers are not there, once each and in order.
pub fn into_markers(text: &str, place: Place, table: &str) -> Result<String, MarkerError> {
    let [begin, end] = place.markers();
    let wrong = || MarkerError(begin.clone(), end.clone());
    let (before, rest) = text.split_once(&begin).ok_or_else(wrong)?;
    let (_, after) = rest.split_once(&end).ok_or_else(wrong)?;
    if after.contains(&begin) || after.contains(&end) || before.contains(&end) {
        return Err(wrong());
    }
    Ok(format!("{before}{begin}\n{}\n{end}{after}", table.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::{Place, into_markers};

    #[test]
    fn only_what_stands_between_the_markers_changes() {
        let text = "a\n<!-- results:begin -->\nold\n<!-- results:end -->\nb\n";
        let once = into_markers(text, Place::Results, "| new |\n").expect("markers");
        assert_eq!(once, "a\n<!-- results:begin -->\n| new |\n<!-- results:end -->\nb\n");
        assert_eq!(into_markers(&once, Place::Results, "| new |\n").expect("markers"), once);
    }

    #[test]
    fn a_text_without_its_markers_is_left_alone() {
        for text in [
            "",
            "<!-- results:begin -->",
            "<!-- results:end --> <!-- results:begin -->",
            "<!-- results:begin --><!-- results:end --><!-- results:begin --><!-- results:end -->",
        ] {
            assert!(into_markers(text, Place::Results, "x").is_err());
        }
    }
}
