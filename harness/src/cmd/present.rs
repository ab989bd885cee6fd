//! Where a record goes, and what is printed of it.

use std::{
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use crate::{exit::Exit, record::Record, report};

/// The folder that a record of `scenario` goes to: the one that was asked for, or a new one below `reports/local`.
/// It is made now, so that a wrong one is known before anything runs.
///
/// # Errors
/// When it cannot be made or written to, or holds a record already.
pub(super) fn folder(asked: Option<PathBuf>, scenario: &str) -> io::Result<PathBuf> {
    let stamp = jiff::Timestamp::now().strftime("%Y-%m-%dT%H-%M-%SZ").to_string();
    let folder = asked.unwrap_or_else(|| Path::new("reports/local").join(format!("{stamp}-{scenario}")));
    let said =
        |error: io::Error| io::Error::new(error.kind(), format!("--out {}: {error}", folder.display()));
    std::fs::create_dir_all(&folder).map_err(said)?;
    if folder.join("record.json").exists() {
        let taken = "holds a record already: name another folder, or remove it";
        return Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            format!("--out {} {taken}", folder.display()),
        ));
    }
    tempfile::tempfile_in(&folder).map_err(said)?;
    Ok(folder)
}

/// Writes record.json and report.md to `out`, prints the report (or the record and nothing else) and returns the
/// verdict's exit code.
pub(super) fn record(record: &Record, out: &Path, json: bool) -> Exit {
    if let Err(error) = write(record, out) {
        eprintln!("drainbench: {error}");
        return Exit::Environment;
    }
    let printed = if json {
        record.to_json().map_err(|error| error.to_string())
    } else {
        Ok(format!(
            "{}\nreport: {}\n",
            report::terminal(record, super::report::look()),
            out.join("report.md").display()
        ))
    };
    let printed = printed.and_then(|text| {
        let mut stdout = io::stdout().lock();
        stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).map_err(|error| error.to_string())
    });
    if let Err(error) = printed {
        eprintln!("drainbench: cannot print the report, it is in {}: {error}", out.display());
    }
    record.verdict.exit()
}

fn write(record: &Record, out: &Path) -> Result<(), String> {
    record.write(out).map_err(|error| error.to_string())?;
    let markdown = out.join("report.md");
    std::fs::write(&markdown, report::markdown(record))
        .map_err(|error| format!("{}: {error}", markdown.display()))
}
