//! For people who read later: everything of the terminal, and what it takes to believe and to repeat it.

use std::{fmt::Write as _, time::Duration};

use super::{spark::spark, terminal::kind, view};
use crate::{
    measure::number,
    record::{CellRecord, Record},
    sampler::Who,
};

/// At most so many waits of a cell are listed.
const WAITS: usize = 8;

/// Renders a record as Markdown.
#[must_use]
pub fn markdown(record: &Record) -> String {
    let columns = view::columns(record);
    let verdict = &record.verdict;
    let mut text = String::new();
    let _ = writeln!(text, "# {}: {}\n", record.scenario.name, verdict.outcome.name());
    let _ = writeln!(text, "{}.\n", record.scenario.about.trim_end_matches('.'));
    let _ = writeln!(
        text,
        "**{}**: {} (exit code {}).",
        verdict.outcome.name(),
        view::meaning(verdict),
        verdict.exit_code
    );
    if record.partial {
        text.push_str("This record is partial: not every cell ran to its end.\n");
    }
    if !verdict.reasons.is_empty() {
        text.push('\n');
    }
    for reason in &verdict.reasons {
        let _ = writeln!(text, "- {}: {}", kind(reason.kind), escaped(&reason.text));
    }
    results(&mut text, record, &columns);
    limits(&mut text, record);
    times(&mut text, &columns);
    waits(&mut text, record);
    series(&mut text, record);
    faults(&mut text, record);
    offenders(&mut text, record);
    repeat(&mut text, record);
    text
}

/// A sentence in a table or a list. What is between backquotes stays as it is.
fn escaped(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;").replace('\n', " ")
}

fn results(text: &mut String, record: &Record, columns: &[view::Column<'_>]) {
    if columns.is_empty() {
        return;
    }
    text.push_str("\n## Results\n\n|   |");
    for column in columns {
        let role = if column.role.is_empty() || column.role == column.label {
            String::new()
        } else {
            format!(", {}", column.role)
        };
        let _ = write!(text, " {} ({}{role}) |", escaped(column.label), column.design);
    }
    text.push_str("\n|---|");
    text.push_str(&"--:|".repeat(columns.len()));
    text.push('\n');
    for row in view::rows(record, columns) {
        let _ = write!(text, "| {} |", row.title);
        for value in &row.texts {
            let _ = write!(text, " {} |", escaped(value));
        }
        text.push('\n');
    }
    let legend = view::legend(record);
    if !legend.is_empty() {
        let _ = writeln!(text, "\n{legend}.");
    }
}

fn limits(text: &mut String, record: &Record) {
    let verdict = &record.verdict;
    if !verdict.symptoms.is_empty() {
        text.push_str("\n## Symptoms\n\n| cell | symptom | value | shows |\n|---|---|--:|---|\n");
    }
    for judged in &verdict.symptoms {
        let shows = if judged.passed { "yes" } else { "no" };
        let _ = writeln!(
            text,
            "| {} | {} | {} | {shows} |",
            escaped(&judged.cell),
            escaped(&judged.rule()),
            judged.found()
        );
    }
    if !verdict.criteria.is_empty() {
        text.push_str("\n## Criteria\n\n| cell | criterion | value |   |\n|---|---|--:|---|\n");
    }
    for judged in &verdict.criteria {
        let unasked = if judged.unasked { " (unasked)" } else { "" };
        let _ = writeln!(
            text,
            "| {} | {}{unasked} | {} | {} |",
            escaped(&judged.cell),
            escaped(&judged.rule()),
            judged.found(),
            view::sign(judged.standing)
        );
    }
}

fn times(text: &mut String, columns: &[view::Column<'_>]) {
    let times = view::where_the_time_is(columns);
    if times.is_empty() {
        return;
    }
    text.push_str(
        "\n## Where the time is\n\nShares of the time of all writes, from due to the return of COMMIT.\n\n",
    );
    for (label, sentence) in times {
        let _ = writeln!(text, "- `{label}`: {sentence}");
    }
}

fn title(record: &Record, cell: &CellRecord) -> String {
    if record.scenario.rounds > 1 {
        format!("`{}`, round {}", cell.label, cell.round)
    } else {
        format!("`{}`", cell.label)
    }
}

fn waits(text: &mut String, record: &Record) {
    if record.cells.iter().all(|cell| cell.waits.active.is_empty() && cell.waits.states.is_empty()) {
        return;
    }
    text.push_str("\n## Waits\n\nAverage active sessions in the window, by what they waited for.\n\n");
    text.push_str("| cell | whose | event | sessions |\n|---|---|---|--:|\n");
    for cell in &record.cells {
        for share in cell.waits.active.iter().take(WAITS) {
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} |",
                title(record, cell),
                who(share.who),
                escaped(&share.event),
                number(share.sessions)
            );
        }
    }
    text.push('\n');
    for cell in &record.cells {
        let oldest =
            |age: Option<f64>| age.map_or_else(|| "none".to_owned(), |ms| format!("{} ms", number(ms)));
        let _ = writeln!(
            text,
            "- {}: oldest transaction of a drainer {}, of the foreground {}; an episode of more than {} ms was \
             certainly seen.",
            title(record, cell),
            oldest(cell.waits.oldest.drainer_ms),
            oldest(cell.waits.oldest.foreground_ms),
            number(cell.waits.certain_above_ms)
        );
    }
}

const fn who(who: Who) -> &'static str {
    match who {
        Who::Drainer => "drainer",
        Who::Foreground => "foreground",
    }
}

fn series(text: &mut String, record: &Record) {
    if record.cells.is_empty() {
        return;
    }
    text.push_str(
        "\n## Second by second\n\nEach line from 0 to its maximum, the warm-up included.\n\n```text\n",
    );
    for cell in &record.cells {
        let round =
            if record.scenario.rounds > 1 { format!(", round {}", cell.round) } else { String::new() };
        let _ = writeln!(text, "{}{round}", cell.label);
        #[expect(clippy::cast_precision_loss, reason = "no count of a run comes near 2^53")]
        let counted = |values: &[u64]| values.iter().map(|value| Some(*value as f64)).collect::<Vec<_>>();
        let lines = [
            ("persist p99, ms", cell.series.persist_p99_ms.clone()),
            ("committed", counted(&cell.series.committed)),
            ("arrived", counted(&cell.series.arrived)),
            ("backlog", counted(&cell.series.backlog)),
            ("idle in tx, rows", counted(&cell.series.drainer_idle_in_tx_rows)),
            ("active sessions", cell.series.active_sessions.clone()),
        ];
        for (name, values) in lines {
            let most = values.iter().flatten().copied().fold(0.0, f64::max);
            let line = format!("  {name:<17} {:>9}  {}", number(most), spark(&values));
            let _ = writeln!(text, "{}", line.trim_end());
        }
    }
    text.push_str("```\n");
}

fn faults(text: &mut String, record: &Record) {
    if record.cells.iter().all(|cell| cell.faults.is_empty()) {
        return;
    }
    text.push_str("\n## What was broken on purpose\n\nSeconds since the cell's origin.\n\n");
    text.push_str("| cell | fault | from | to | hit | seen |\n|---|---|--:|--:|---|---|\n");
    for cell in &record.cells {
        for strike in &cell.faults {
            let seconds = |ns: u64| Duration::from_nanos(ns).as_secs_f64();
            let _ = writeln!(
                text,
                "| {} | {} of the {} | {:.3} | {:.3} | {} | {} |",
                title(record, cell),
                escaped(&strike.kind),
                escaped(&strike.target),
                seconds(strike.began_ns),
                seconds(strike.healed_ns),
                if strike.hit { "yes" } else { "no" },
                escaped(&strike.evidence)
            );
        }
    }
}

fn offenders(text: &mut String, record: &Record) {
    // Where nobody drains everything waits.
    let told =
        |cell: &&CellRecord| !cell.audit.offenders.is_empty() && cell.metrics.contains_key("audit.lost");
    if !record.cells.iter().any(|cell| told(&cell)) {
        return;
    }
    text.push_str("\n## Offenders\n\nUp to 20 of each kind; seconds since the cell's origin.\n\n");
    text.push_str("| cell | kind | service | write | event | history |\n|---|---|---|--:|--:|---|\n");
    for cell in record.cells.iter().filter(told) {
        for named in &cell.audit.offenders {
            let place =
                |place: Option<u32>| place.map_or_else(|| view::NOTHING.to_owned(), |n| n.to_string());
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {} | {} |",
                title(record, cell),
                named.offence.name(),
                escaped(&named.service),
                place(named.write),
                place(named.event.map(u32::from)),
                escaped(&named.story)
            );
        }
    }
}

fn repeat(text: &mut String, record: &Record) {
    text.push_str("\n## Where and how\n\n| | |\n|---|---|\n");
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(text, "| {name} | {} |", escaped(value));
    };
    line("started", &record.started_at);
    line("tool", &view::tool(record));
    line("machine", &view::machine(record));
    line("rig", &view::rig(record));
    if let Some(rig) = &record.rig {
        for why in &rig.why {
            line("", why);
        }
        if let Some(containers) = &rig.containers {
            line("containers", &view::containers(containers));
            line(&format!("`{}`", containers.postgres_image), &containers.postgres_image_id);
            line(&format!("`{}`", containers.rabbitmq_image), &containers.rabbitmq_image_id);
        }
        for (name, value) in &rig.postgres_settings {
            line(&format!("`{name}`"), value);
        }
    }
    line("scenario", &format!("{}, SHA-256 {}", record.scenario.name, record.scenario.hash));
    line("seed", &record.scenario.seed.to_string());
    let _ = writeln!(text, "\nRun it again:\n\n```sh\n{}\n```", view::command(record));
    let fence = if record.scenario.text.contains("```") { "````" } else { "```" };
    let _ = writeln!(
        text,
        "\n<details><summary>The scenario</summary>\n\n{fence}toml\n{}\n{fence}\n\n</details>",
        record.scenario.text.trim_end()
    );
}
