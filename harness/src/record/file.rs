//! A record on disk.

use std::{
    fs, io,
    io::{Read as _, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use serde::Deserialize;

use super::{FORMAT, Record};

/// Name of a record in its folder.
pub const FILE_NAME: &str = "record.json";

/// No record is longer: one of 1,000 cells of a day, second by second, would be. `/dev/zero` is.
const MAX_BYTES: u64 = 512 << 20;

/// Why a record cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The file system refused.
    #[error("cannot {doing} {path}: {source}", path = path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// It is not JSON, or ends early.
    #[error("{path} is not a whole record: {why}; was its writing cut off?", path = path.display())]
    Syntax {
        /// Which file.
        path: PathBuf,
        /// Where and why.
        why: String,
    },
    /// It is JSON and no record.
    #[error("{path} is no record of drainbench: {why}", path = path.display())]
    Shape {
        /// Which file.
        path: PathBuf,
        /// What is missing or wrong.
        why: String,
    },
    /// A later version wrote it.
    #[error(
        "{path} has format {format}, written by drainbench {version}; this is drainbench {ours}, which reads formats \
         up to {FORMAT}: read it with drainbench {version} or newer",
        path = path.display(), ours = env!("CARGO_PKG_VERSION")
    )]
    Newer {
        /// Which file.
        path: PathBuf,
        /// Its format.
        format: u64,
        /// The version that wrote it.
        version: String,
    },
}

/// What every format begins with.
#[derive(Deserialize)]
struct Head {
    format: u64,
    #[serde(default)]
    tool: HeadTool,
}

#[derive(Default, Deserialize)]
struct HeadTool {
    #[serde(default)]
    version: Option<String>,
}

impl Record {
    /// The record as JSON, with a line break at its end.
    ///
    /// # Errors
    /// When a number in it is not finite.
    pub fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self).map(|mut text| {
            text.push('\n');
            text
        })
    }

    /// Writes `record.json` into a folder, which is made when it is missing, and returns its path. Readers see the old
    /// file or the new one, never half of one.
    ///
    /// # Errors
    /// When the file system refuses; an earlier record is still there.
    pub fn write(&self, dir: &Path) -> Result<PathBuf, RecordError> {
        let path = dir.join(FILE_NAME);
        let failed = |doing| {
            let path = path.clone();
            move |source| RecordError::Io { doing, path, source }
        };
        let text = self.to_json().map_err(|why| failed("write")(why.into()))?;
        fs::create_dir_all(dir).map_err(failed("make the folder of"))?;
        let mut file = tempfile::Builder::new()
            .prefix(".record-")
            .permissions(fs::Permissions::from_mode(0o644))
            .tempfile_in(dir)
            .map_err(failed("write"))?;
        file.write_all(text.as_bytes()).map_err(failed("write"))?;
        file.as_file().sync_all().map_err(failed("write"))?;
        file.persist(&path).map_err(|why| failed("write")(why.error))?;
        Ok(path)
    }

    /// Reads a record, or the `record.json` of a folder.
    ///
    /// # Errors
    /// When there is none, it is cut off, it is no record, or a later version wrote it.
    pub fn read(path: &Path) -> Result<Self, RecordError> {
        let path = if path.is_dir() { path.join(FILE_NAME) } else { path.to_owned() };
        let failed = |source| RecordError::Io { doing: "read", path: path.clone(), source };
        let mut text = String::new();
        let mut file = fs::File::open(&path).map_err(failed)?.take(MAX_BYTES + 1);
        file.read_to_string(&mut text).map_err(failed)?;
        if text.len() as u64 > MAX_BYTES {
            let why = format!("it is longer than {} MiB", MAX_BYTES >> 20);
            return Err(RecordError::Shape { path, why });
        }
        Self::parse(&text, &path)
    }

    /// Reads a record from text; `path` is for the error.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn parse(text: &str, path: &Path) -> Result<Self, RecordError> {
        let wrong = |why: serde_json::Error| {
            let path = path.to_owned();
            match why.classify() {
                serde_json::error::Category::Data => RecordError::Shape { path, why: why.to_string() },
                serde_json::error::Category::Io
                | serde_json::error::Category::Syntax
                | serde_json::error::Category::Eof => RecordError::Syntax { path, why: why.to_string() },
            }
        };
        let head: Head = serde_json::from_str(text).map_err(wrong)?;
        if head.format == 0 {
            let why = "format 0 does not exist; the first is 1".to_owned();
            return Err(RecordError::Shape { path: path.to_owned(), why });
        }
        if head.format > u64::from(FORMAT) {
            let version = head.tool.version.unwrap_or_else(|| "(unknown)".to_owned());
            return Err(RecordError::Newer { path: path.to_owned(), format: head.format, version });
        }
        // Format 1 is the only one so far; a later one converts it here.
        serde_json::from_str(text).map_err(wrong)
    }
}
