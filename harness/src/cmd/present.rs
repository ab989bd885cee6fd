//! Where a record goes, and what is printed of it.

use std::{
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use crate::say::complain;
use crate::{exit::Exit, record::Record, report};

/// The folder that a record of `scenario` goes to: the one that was asked for, or a new one below `reports/local`.
/// It is made now, so that a wrong one is known before anything runs.
///
/// # Errors
/// When it cannot be made or written to, or holds a record already.
pub(super) fn folder(asked: Option<PathBuf>, scenario: &str) -> io::Result<PathBuf> {
    let stamp = jiff::Timestamp::now().strftime("%Y-%m-%dT%H-%M-%SZ").to_string();
    let said = |folder: &Path| {
        let folder = folder.display().to_string();
        move |error: io::Error| io::Error::new(error.kind(), format!("--out {folder}: {error}"))
    };
    let Some(folder) = asked else {
        let base = Path::new("reports/local");
        std::fs::create_dir_all(base).map_err(said(base))?;
        return fresh(base, &format!("{stamp}-{scenario}")).map_err(said(base));
    };
    std::fs::create_dir_all(&folder).map_err(said(&folder))?;
    if folder.join("record.json").exists() {
        let taken = "holds a record already: name another folder, or remove it";
        return Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            format!("--out {} {taken}", folder.display()),
        ));
    }
    tempfile::tempfile_in(&folder).map_err(said(&folder))?;
    Ok(folder)
}

/// A folder that did not exist: two runs may begin in one second.
fn fresh(base: &Path, name: &str) -> io::Result<PathBuf> {
    let mut folder = base.join(name);
    for again in 2..1_000 {
        match std::fs::create_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                folder = base.join(format!("{name}-{again}"));
            }
            Err(error) => return Err(error),
            Ok(()) => return Ok(folder),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Removes the folder of a record that never came, where nothing is in it.
pub(super) fn give_up(folder: &Path) {
    // Not empty: somebody else's.
    let _ = std::fs::remove_dir(folder);
}

/// Writes record.json and report.md to `out`, prints the report (or the record and nothing else) and returns the
/// verdict's exit code. What cannot be written is still printed: it took minutes to measure.
pub(super) fn record(record: &Record, out: &Path, json: bool) -> Exit {
    let written = write(record, out);
    if let Err(error) = &written {
        complain!("drainbench: the record was not saved: {error}");
    }
    let printed = if json {
        record.to_json().map_err(|error| error.to_string())
    } else {
        let mut text = format!("{}\n", report::terminal(record, super::report::look()));
        if written.is_ok() {
            text.push_str(&format!("report: {}\n", out.join("report.md").display()));
        }
        Ok(text)
    };
    let printed = printed.and_then(|text| {
        let mut stdout = io::stdout().lock();
        stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).map_err(|error| error.to_string())
    });
    if let Err(error) = printed {
        complain!("drainbench: the report cannot be printed: {error}");
        if written.is_ok() {
            complain!("drainbench: it is in {}", out.display());
        }
    }
    match written {
        Ok(()) => record.verdict.exit(),
        Err(_) => Exit::Environment,
    }
}

fn write(record: &Record, out: &Path) -> Result<(), String> {
    record.write(out).map_err(|error| error.to_string())?;
    let markdown = out.join("report.md");
    std::fs::write(&markdown, report::markdown(record))
        .map_err(|error| format!("{}: {error}", markdown.display()))
}
