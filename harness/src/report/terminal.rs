//! For a terminal: the table, where the time is, and the verdict last, where the eye is.

use std::fmt::Write as _;

use comfy_table::{CellAlignment, ContentArrangement, LineStyle, Table, TableStyle};

use super::view::{self, Column, Row};
use crate::{
    record::Record,
    verdict::{Outcome, ReasonKind},
};

/// What a terminal can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// Characters of a line.
    pub width: u16,
    /// Whether it has colours.
    pub colour: bool,
}

/// A line is never broken at fewer characters.
const NARROWEST: usize = 40;
/// Room for the titles of the rows.
const TITLES: usize = 22;
/// A column needs so much to be read; where all do not fit there are several tables.
const COLUMN: usize = 19;

/// A line above, below the head and below the table: one between rows would double its length.
const STYLE: TableStyle = TableStyle::new()
    .top_border(LineStyle::none().fill('─').junction('─'))
    .header_separator(LineStyle::none().fill('─').junction('─'))
    .bottom_border(LineStyle::none().fill('─').junction('─'));

/// Renders a record for a terminal.
#[must_use]
pub fn terminal(record: &Record, look: Look) -> String {
    let width = usize::from(look.width).max(NARROWEST);
    let columns = view::columns(record);
    let mut text = String::new();
    let about = if record.scenario.about.is_empty() { "" } else { " · " };
    let title = format!("{}{about}{}", record.scenario.name, record.scenario.about);
    text.push_str(&wrapped(&title, width, "  "));
    let origin = format!("{} · {} · {}", view::started(record), view::tool(record), view::rig(record));
    text.push_str(&wrapped(&origin, width, "  "));
    text.push_str(&wrapped(&view::machine(record), width, "  "));

    let rows = view::rows(record, &columns);
    let fit = (width.saturating_sub(TITLES) / COLUMN).max(1);
    for from in (0..columns.len()).step_by(fit) {
        let to = (from + fit).min(columns.len());
        text.push('\n');
        text.push_str(&table(&columns[from..to], &rows, from, look.width));
        text.push('\n');
    }
    let legend = view::legend(record);
    if !legend.is_empty() {
        text.push_str(&wrapped(&legend, width, ""));
    }
    let times = view::where_the_time_is(&columns);
    if !times.is_empty() {
        text.push_str("\nWhere the time is (of all persist):\n");
    }
    for (label, sentence) in times {
        text.push_str(&wrapped(&format!("  {label}: {sentence}"), width, "    "));
    }
    let broken = view::broken(&columns);
    if !broken.is_empty() {
        text.push_str("\nBroken on purpose, and what was seen of it:\n");
    }
    for (label, sentence) in broken {
        text.push_str(&wrapped(&format!("  {label}: {sentence}"), width, "    "));
    }
    text.push_str(&verdict(record, width));
    // A record may be anybody's, and a terminal obeys what it is shown.
    let text: String =
        text.chars().map(|c| if c.is_control() && c != '\n' { '\u{fffd}' } else { c }).collect();
    if look.colour { coloured(&text, record.verdict.outcome) } else { text }
}

fn table(columns: &[Column<'_>], rows: &[Row], from: usize, width: u16) -> String {
    let mut table = Table::new();
    table.load_style(STYLE);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(width.max(40));
    let head = |column: &Column<'_>| {
        let role = if column.role.is_empty() || column.role == column.label {
            String::new()
        } else {
            format!("\n{}", column.role)
        };
        format!("{}\n{}{role}", column.label, column.design)
    };
    table.set_header(std::iter::once(String::new()).chain(columns.iter().map(head)));
    for row in rows {
        let texts = row.texts[from..from + columns.len()].iter().map(String::as_str);
        table.add_row(std::iter::once(row.title).chain(texts));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 0));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
        column.set_padding((2, 0));
    }
    table.trim_fmt()
}

fn verdict(record: &Record, width: usize) -> String {
    let verdict = &record.verdict;
    let mut text = String::from("\n");
    for reason in &verdict.reasons {
        text.push_str(&wrapped(&format!("{}: {}", kind(reason.kind), reason.text), width, "  "));
    }
    if record.partial {
        text.push_str("This record is partial: not every cell ran to its end.\n");
    }
    let last =
        format!("{}: {} (exit code {})", verdict.outcome.name(), view::meaning(verdict), verdict.exit_code);
    text.push_str(&wrapped(&last, width, "  "));
    text
}

pub(super) const fn kind(kind: ReasonKind) -> &'static str {
    match kind {
        ReasonKind::Interrupted => "interrupted",
        ReasonKind::Environment => "environment",
        ReasonKind::Safety => "safety",
        ReasonKind::Invalid => "invalid",
        ReasonKind::Criterion => "criterion",
        ReasonKind::Inconclusive => "inconclusive",
        ReasonKind::Note => "note",
    }
}

/// Breaks at spaces; lines after the first are indented.
fn wrapped(text: &str, width: usize, indent: &str) -> String {
    let leading: String = text.chars().take_while(|letter| *letter == ' ').collect();
    let mut lines = String::new();
    let mut line = leading;
    let mut empty = true;
    for word in text.split_whitespace() {
        let longer = line.chars().count() + 1 + word.chars().count();
        if !empty && longer > width {
            let _ = writeln!(lines, "{line}");
            indent.clone_into(&mut line);
            empty = true;
        }
        if !empty {
            line.push(' ');
        }
        line.push_str(word);
        empty = false;
    }
    let _ = writeln!(lines, "{line}");
    lines
}

/// Colours what was laid out: signs and the last line. Colours before the layout would count as characters.
fn coloured(text: &str, outcome: Outcome) -> String {
    const GREEN: &str = "\x1b[32m";
    const RED: &str = "\x1b[31m";
    const YELLOW: &str = "\x1b[33m";
    const BOLD: &str = "\x1b[1m";
    const PLAIN: &str = "\x1b[0m";
    let colour = match outcome {
        Outcome::Pass | Outcome::Improved => GREEN,
        Outcome::Fail | Outcome::Regression => RED,
        Outcome::Unchanged | Outcome::Inconclusive | Outcome::Invalid => YELLOW,
    };
    let name = outcome.name();
    text.replace('✓', &format!("{GREEN}✓{PLAIN}"))
        .replace('✗', &format!("{RED}✗{PLAIN}"))
        .replace(&format!("\n{name}: "), &format!("\n{BOLD}{colour}{name}{PLAIN}: "))
}

#[cfg(test)]
mod tests {
    use super::wrapped;

    #[test]
    fn lines_break_at_spaces() {
        assert_eq!(wrapped("one two three", 8, "  "), "one two\n  three\n");
        assert_eq!(wrapped("  label: word", 80, ""), "  label: word\n");
        assert_eq!(wrapped("unbreakable", 3, "  "), "unbreakable\n");
    }
}
