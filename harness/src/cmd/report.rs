//! `drainbench report`: renders a record again.

use std::{
    fs,
    io::{IsTerminal as _, Write as _},
    path::{Path, PathBuf},
};

use crate::{
    exit::Exit,
    record::{Record, RecordError, recompute},
    report::{
        JunitError, Look, MarkerError, Place, faults_table, into_markers, junit, markdown, results_table,
        terminal,
    },
};

/// How a record is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people at a terminal.
    Terminal,
    /// For people who read later.
    Markdown,
    /// For CI.
    Junit,
    /// The record itself.
    Json,
    /// A page with charts: not in this version.
    #[value(hide = true)]
    Html,
}

/// Renders a record again: reads it, and nothing else.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A record, or the folder that holds its record.json; several with --faults-into
    #[arg(required = true, value_name = "RECORD")]
    pub records: Vec<PathBuf>,
    /// How to show it
    #[arg(long, value_enum, default_value = "terminal")]
    pub format: Format,
    /// Puts the results table between the markers <!-- results:begin --> and <!-- results:end --> of this file
    #[arg(long, value_name = "FILE", conflicts_with = "format")]
    pub into: Option<PathBuf>,
    /// Puts a table of designs under faults, of all records, between the markers <!-- faults:begin --> and
    /// <!-- faults:end --> of this file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["format", "into"])]
    pub faults_into: Option<PathBuf>,
    /// Computes accounting and percentiles again from the record alone, and says what does not agree
    #[arg(long)]
    pub check: bool,
}

/// Why a record could not be shown.
#[derive(Debug, thiserror::Error)]
enum ReportError {
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error(transparent)]
    Junit(#[from] JunitError),
    #[error("the record cannot be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
    #[error("cannot {doing} {path}: {source}", path = path.display())]
    File {
        doing: &'static str,
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("{path} {source}", path = path.display())]
    Markers {
        path: PathBuf,
        #[source]
        source: MarkerError,
    },
    #[error("this version has no HTML report; --format takes terminal, markdown, junit or json")]
    Html,
    #[error("one record at a time is shown; several are for --faults-into")]
    Several,
    #[error("{0} of the record's numbers do not follow from the rest of it")]
    Disagrees(usize),
}

/// Shows a record. Exit code 0 when it was shown, 1 on bad input; the record's verdict is not this command's.
#[must_use]
pub fn main(args: Args) -> Exit {
    match run(&args) {
        Ok(()) => Exit::Pass,
        Err(why) => {
            let _ = writeln!(std::io::stderr(), "drainbench report: {why}");
            Exit::Usage
        }
    }
}

fn run(args: &Args) -> Result<(), ReportError> {
    if args.format == Format::Html {
        return Err(ReportError::Html);
    }
    let records = args.records.iter().map(|path| Record::read(path)).collect::<Result<Vec<_>, _>>()?;
    if args.check {
        records.iter().try_for_each(check)?;
    }
    if let Some(path) = &args.faults_into {
        return into(path, Place::Faults, &faults_table(&records));
    }
    let [record] = records.as_slice() else { return Err(ReportError::Several) };
    if let Some(path) = &args.into {
        return into(path, Place::Results, &results_table(record));
    }
    let text = match args.format {
        Format::Terminal => terminal(record, look()),
        Format::Markdown => markdown(record),
        Format::Junit => junit(record)?,
        Format::Json => record.to_json()?,
        Format::Html => return Err(ReportError::Html),
    };
    // A reader that closed the pipe has seen enough.
    let _ = std::io::stdout().write_all(text.as_bytes());
    Ok(())
}

fn check(record: &Record) -> Result<(), ReportError> {
    let wrong = recompute(record);
    for mismatch in &wrong {
        let _ = writeln!(std::io::stderr(), "{mismatch}");
    }
    if wrong.is_empty() { Ok(()) } else { Err(ReportError::Disagrees(wrong.len())) }
}

fn into(path: &Path, place: Place, table: &str) -> Result<(), ReportError> {
    let failed = |doing| move |source| ReportError::File { doing, path: path.to_owned(), source };
    let text = fs::read_to_string(path).map_err(failed("read"))?;
    let text = into_markers(&text, place, table)
        .map_err(|source| ReportError::Markers { path: path.to_owned(), source })?;
    fs::write(path, text).map_err(failed("write"))
}

/// What this process's standard output can show.
#[must_use]
pub fn look() -> Look {
    let stdout = std::io::stdout();
    let told = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let asked =
        || rustix::termios::tcgetwinsize(&stdout).ok().map(|size| size.ws_col).filter(|width| *width > 0);
    let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    Look { width: told.or_else(asked).unwrap_or(100), colour: stdout.is_terminal() && !no_colour }
}
