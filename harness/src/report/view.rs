//! What all reports show: a column a cell, a row a number, and each limit beside its value.

use crate::{
    exit::Exit,
    measure::{Timing, figure, number, persist_shares},
    metric::Metric,
    record::{CellRecord, Record},
    rig::ContainerFacts,
    sampler::Who,
    scenario::Role,
    verdict::{Judged, Outcome, Standing, Verdict},
};

/// A cell with all its rounds.
pub(super) struct Column<'a> {
    pub(super) label: &'a str,
    pub(super) design: &'static str,
    pub(super) role: &'static str,
    pub(super) rounds: Vec<&'a CellRecord>,
}

/// A row of the table: a text for each column.
pub(super) struct Row {
    pub(super) title: &'static str,
    pub(super) texts: Vec<String>,
}

/// What a row shows.
enum Show {
    Metric(&'static str),
    /// `1725/1725`, with the limits on `suite.failed`.
    Suite,
    /// `12,000 of 12,000`.
    Delivered,
}

const ROWS: [(&str, Show); 37] = [
    ("persist p50", Show::Metric("persist.p50")),
    ("persist p99", Show::Metric("persist.p99")),
    ("persist p99.9", Show::Metric("persist.p999")),
    ("persist max", Show::Metric("persist.max")),
    ("worst service p99", Show::Metric("persist.p99_worst_service")),
    ("lag p99", Show::Metric("lag.p99")),
    ("acquire p99", Show::Metric("acquire.p99")),
    ("execute p99", Show::Metric("execute.p99")),
    ("commit p99", Show::Metric("commit.p99")),
    ("writes failed", Show::Metric("writes.failed")),
    ("writes unsure", Show::Metric("writes.unsure")),
    ("suite", Show::Suite),
    ("idle in tx, rows", Show::Metric("idle_in_tx.rows")),
    ("idle in tx, oldest", Show::Metric("idle_in_tx.age_max")),
    ("idle in tx, exact", Show::Metric("idle_in_tx.exact_ms")),
    ("deliver p99", Show::Metric("deliver.p99")),
    ("confirm p99", Show::Metric("confirm.p99")),
    ("claim p99", Show::Metric("claim.p99")),
    ("mark p99", Show::Metric("mark.p99")),
    ("drain rate", Show::Metric("drain.rate")),
    ("drain failed", Show::Metric("drain.failed")),
    ("backlog peak", Show::Metric("backlog.peak")),
    ("backlog oldest", Show::Metric("backlog.age_max")),
    ("recovery", Show::Metric("recovery.time")),
    ("rate afterwards", Show::Metric("recovery.rate_share")),
    ("delivered", Show::Delivered),
    ("waiting", Show::Metric("audit.waiting")),
    ("dead", Show::Metric("audit.dead")),
    ("lost", Show::Metric("audit.lost")),
    ("phantom", Show::Metric("audit.phantom")),
    ("duplicated", Show::Metric("audit.duplicated")),
    ("redelivered", Show::Metric("audit.redelivered")),
    ("reordered", Show::Metric("audit.reordered")),
    ("unmarked", Show::Metric("audit.unmarked")),
    ("WAL an event", Show::Metric("db.wal_bytes_per_event")),
    ("commits an event", Show::Metric("db.commits_per_event")),
    ("sampler missed", Show::Metric("sampler.missed")),
];

/// What stands where a cell has no such number.
pub(super) const NOTHING: &str = "–";

pub(super) fn columns(record: &Record) -> Vec<Column<'_>> {
    let mut columns: Vec<Column<'_>> = Vec::new();
    for cell in &record.cells {
        match columns.iter_mut().find(|column| column.label == cell.label) {
            Some(column) => column.rounds.push(cell),
            None => columns.push(Column {
                label: &cell.label,
                design: cell.design.name(),
                role: cell.role.map_or("", Role::name),
                rounds: vec![cell],
            }),
        }
    }
    columns
}

/// The rows in which at least one column has a number.
pub(super) fn rows(record: &Record, columns: &[Column<'_>]) -> Vec<Row> {
    let filled = |(title, show): &(&'static str, Show)| {
        let texts: Vec<Option<String>> =
            columns.iter().map(|column| text(&record.verdict, column, show)).collect();
        texts.iter().any(Option::is_some).then(|| Row {
            title,
            texts: texts.into_iter().map(|text| text.unwrap_or_else(|| NOTHING.to_owned())).collect(),
        })
    };
    let mut rows: Vec<Row> = ROWS.iter().filter_map(filled).collect();
    rows.extend(unshown(record, columns));
    rows
}

/// Metrics that a limit is on and that have no row of their own.
fn unshown(record: &Record, columns: &[Column<'_>]) -> Vec<Row> {
    let shown = |name: &str| {
        ROWS.iter().any(|(_, show)| match show {
            Show::Metric(metric) => *metric == name,
            Show::Suite => name == "suite.failed",
            Show::Delivered => name == "audit.delivered",
        })
    };
    let mut rows: Vec<Row> = Vec::new();
    for judged in record.verdict.criteria.iter().chain(&record.verdict.symptoms) {
        let Ok(metric) = Metric::lookup(&judged.metric) else { continue };
        if shown(metric.name()) || rows.iter().any(|row| row.title == metric.name()) {
            continue;
        }
        let texts = columns.iter().map(|column| {
            let text = text(&record.verdict, column, &Show::Metric(metric.name()));
            text.unwrap_or_else(|| NOTHING.to_owned())
        });
        rows.push(Row { title: metric.name(), texts: texts.collect() });
    }
    rows
}

fn text(verdict: &Verdict, column: &Column<'_>, show: &Show) -> Option<String> {
    let first = column.rounds.first()?;
    match show {
        Show::Metric(name) => Some(format!("{}{}", value(column, name)?, marks(verdict, column.label, name))),
        Show::Suite => {
            let suites: Vec<String> = column
                .rounds
                .iter()
                .filter_map(|cell| cell.suite)
                .map(|suite| format!("{}/{}", suite.passed, suite.cases))
                .collect();
            let marks = marks(verdict, column.label, "suite.failed");
            (!suites.is_empty()).then(|| format!("{}{marks}", suites.join(", ")))
        }
        Show::Delivered => {
            first.metric("audit.delivered")?;
            let each = column.rounds.iter().map(|cell| {
                #[expect(clippy::cast_precision_loss, reason = "no count of a run comes near 2^53")]
                let (came, all) = (cell.audit.tally.delivered as f64, cell.counts.committed_events as f64);
                format!("{} of {}", number(came), number(all))
            });
            let each: Vec<String> = each.collect();
            Some(format!("{}{}", each.join(", "), marks(verdict, column.label, "audit.delivered")))
        }
    }
}

/// A metric's value; of several rounds the median, with the smallest and the largest: `3.20 [2.67–3.44] ms`.
pub(super) fn value(column: &Column<'_>, name: &str) -> Option<String> {
    let metric = Metric::lookup(name).ok()?;
    let mut values: Vec<f64> = column.rounds.iter().filter_map(|cell| cell.metric(name)).collect();
    values.sort_by(f64::total_cmp);
    let (least, most) = (*values.first()?, *values.last()?);
    let (lower, upper) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
    let median = figure(metric, f64::midpoint(lower, upper));
    if values.len() == 1 || least.to_bits() == most.to_bits() {
        return Some(median);
    }
    // The unit once, behind all three.
    let bare = |text: String| text.split_once(' ').map_or(text.clone(), |(number, _)| number.to_owned());
    let (number, unit) =
        median.split_once(' ').map_or((median.as_str(), ""), |(number, unit)| (number, unit));
    let range = format!("[{}–{}]", bare(figure(metric, least)), bare(figure(metric, most)));
    Some(format!("{number} {range} {unit}").trim_end().to_owned())
}

/// The limits on a number, each with how it went.
fn marks(verdict: &Verdict, label: &str, name: &str) -> String {
    let here = |judged: &&Judged| judged.cell == label && judged.metric == name;
    let criteria = verdict
        .criteria
        .iter()
        .filter(here)
        .filter(|judged| !judged.unasked || judged.standing != Standing::Held)
        .map(|judged| format!(" {} {}", sign(judged.standing), limit(judged)));
    let symptoms = verdict.symptoms.iter().filter(here).map(|judged| {
        let shows = if judged.passed { "shows" } else { "does not show" };
        format!(" ({shows} {})", limit(judged))
    });
    criteria.chain(symptoms).collect()
}

/// The rule without the metric's name and, as it stands beside a value that has it, without the unit.
fn limit(judged: &Judged) -> String {
    let rule = judged.rule();
    let rule = rule.strip_prefix(&judged.metric).unwrap_or_default().trim();
    rule.replace(" ms", "")
}

pub(super) const fn sign(standing: Standing) -> &'static str {
    match standing {
        Standing::Held => "✓",
        Standing::Missed => "✗",
        Standing::Split => "±",
        Standing::Excused => "○",
        Standing::Unmeasured => "?",
    }
}

/// What the signs mean, for those that are there.
pub(super) fn legend(record: &Record) -> String {
    let meanings = [
        (Standing::Held, "holds"),
        (Standing::Missed, "does not hold"),
        (Standing::Split, "holds in the median and not in every round"),
        (Standing::Excused, "the control misses it as well, so it is not held against the cell"),
        (Standing::Unmeasured, "not measured"),
    ];
    let there = |standing| record.verdict.criteria.iter().any(|judged| judged.standing == standing);
    let used = meanings.into_iter().filter(|(standing, _)| there(*standing));
    let mut legend: Vec<String> =
        used.map(|(standing, meaning)| format!("{} {meaning}", sign(standing))).collect();
    if record.cells.iter().any(|cell| cell.round > 1) {
        legend.push("of the rounds: median [least–most]".to_owned());
    }
    legend.join(", ")
}

/// One sentence for each column and fault: how often it struck and hit, and what was seen of the last strike.
pub(super) fn broken(columns: &[Column<'_>]) -> Vec<(String, String)> {
    let mut sentences = Vec::new();
    for column in columns {
        let Some(cell) = column.rounds.first() else { continue };
        let mut told = Vec::new();
        for strike in &cell.faults {
            if told.contains(&strike.fault) {
                continue;
            }
            told.push(strike.fault);
            let strikes = cell.faults.iter().filter(|other| other.fault == strike.fault);
            let hits = strikes.clone().filter(|strike| strike.hit).count();
            let times = match (hits, strikes.clone().count()) {
                (1, 1) => String::new(),
                (hits, all) => format!(", hit {hits} of {all} times"),
            };
            let last = strikes.clone().next_back().map_or("", |strike| strike.evidence.as_str());
            let sentence = format!("{} of the {}{times}: {last}", strike.kind, strike.target);
            sentences.push((column.label.to_owned(), sentence));
        }
    }
    sentences
}

/// One sentence for each column: what persist is made of and what its sessions wait for.
pub(super) fn where_the_time_is(columns: &[Column<'_>]) -> Vec<(String, String)> {
    columns
        .iter()
        .filter_map(|column| {
            let cell = column.rounds.first()?;
            let parts = parts(cell);
            if parts.is_empty() {
                return None;
            }
            let waits = waits(cell, Who::Foreground);
            let waits = if waits.is_empty() {
                String::new()
            } else {
                format!("; sessions of the foreground: {waits}")
            };
            Some((column.label.to_owned(), format!("{}{waits}", parts.join(", "))))
        })
        .collect()
}

/// Shares of persist, the largest first, as far as they come to a percent.
pub(super) fn parts(cell: &CellRecord) -> Vec<String> {
    let sum = |part: Timing| {
        let times = cell.histograms.get(&part).and_then(|times| times.histogram().ok());
        times.map_or(0.0, |times| {
            #[expect(clippy::cast_precision_loss, reason = "no count of a run comes near 2^53")]
            let recorded = times.len() as f64;
            times.mean() * recorded
        })
    };
    persist_shares(sum)
        .into_iter()
        .filter(|(_, share)| *share >= 0.005)
        .map(|(part, share)| format!("{} {:.0} %", part.name(), share * 100.0))
        .collect()
}

/// At most so many waits are named in a line.
const WAITS_NAMED: usize = 3;

fn waits(cell: &CellRecord, who: Who) -> String {
    let of = cell.waits.active.iter().filter(|share| share.who == who && share.sessions >= 0.005);
    of.take(WAITS_NAMED)
        .map(|share| format!("{} {}", share.event, number(share.sessions)))
        .collect::<Vec<_>>()
        .join(", ")
}

/// What the outcome means, in a few words.
pub(super) fn meaning(verdict: &Verdict) -> &'static str {
    match verdict.exit() {
        Exit::Interrupted => return "it was interrupted, and what was measured until then is recorded",
        Exit::Environment => return "the environment or the run failed",
        Exit::Pass | Exit::Usage | Exit::Failed | Exit::Regression | Exit::Undecided => {}
    }
    match verdict.outcome {
        Outcome::Pass => "every criterion holds",
        Outcome::Fail => "a criterion does not hold",
        Outcome::Regression => "worse than what it was compared with",
        Outcome::Improved => "better than what it was compared with",
        Outcome::Unchanged => "neither better nor worse",
        Outcome::Inconclusive => "nothing failed, and it was not shown",
        Outcome::Invalid => "the numbers do not mean what they should",
    }
}

/// When it began, to the second.
pub(super) fn started(record: &Record) -> String {
    let whole = record.started_at.split_once('.').map(|(whole, _)| format!("{whole}Z"));
    whole.unwrap_or_else(|| record.started_at.clone())
}

/// Who wrote the record: `drainbench 0.1.0 (0ec41e5)`.
pub(super) fn tool(record: &Record) -> String {
    let commit = record.tool.commit.as_ref().map_or(String::new(), |commit| format!(" ({commit})"));
    format!("{} {}{commit}", record.tool.name, record.tool.version)
}

/// The machine in a line.
pub(super) fn machine(record: &Record) -> String {
    let machine = &record.machine;
    let gib = machine.memory / (1 << 30);
    format!("{}, {} cores, {gib} GiB, {}, {}", machine.cpu, machine.cores, machine.os, machine.kernel)
}

/// The rig in a line.
pub(super) fn rig(record: &Record) -> String {
    record.rig.as_ref().map_or_else(
        || "none".to_owned(),
        |rig| {
            let kind = match rig.kind {
                crate::rig::RigKind::Local => "local",
                crate::rig::RigKind::Docker => "docker",
                crate::rig::RigKind::External => "external",
            };
            format!("{kind}, PostgreSQL {}, RabbitMQ {}", rig.postgres_version, rig.rabbitmq_version)
        },
    )
}

/// What servers in containers run in, and what each may use.
pub(super) fn containers(facts: &ContainerFacts) -> String {
    let cpus = facts.cpus.map(|cpus| format!(", {cpus} CPUs each"));
    let memory = facts.memory_bytes.map(|memory| format!(", {memory} of memory each"));
    format!("{}{}{}", facts.engine, cpus.unwrap_or_default(), memory.unwrap_or_default())
}

/// The command as it can be typed again.
pub(super) fn command(record: &Record) -> String {
    let quoted = |argument: &String| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./=:,@%+".contains(&byte);
        if !argument.is_empty() && argument.bytes().all(plain) {
            argument.clone()
        } else {
            format!("'{}'", argument.replace('\'', r"'\''"))
        }
    };
    record.command.iter().map(quoted).collect::<Vec<_>>().join(" ")
}
