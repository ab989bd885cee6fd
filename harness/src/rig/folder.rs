//! The temporary folder of our own servers. Its lock tells whether anybody lives who will remove it.

use std::{
    env, fs,
    fs::{File, TryLockError},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use super::{RigError, names};

const LOCK: &str = "lock";

/// A folder without a lock is being made right now, or its maker was killed in the very moment.
const MADE_WITHIN: Duration = Duration::from_secs(600);

/// A folder that is ours. The guard removes it.
pub(crate) struct Folder {
    path: PathBuf,
    /// Shared by harness and guard; whoever sweeps needs it alone.
    _lock: File,
}

impl Folder {
    /// Where the folder of a run is.
    pub(crate) fn path_of(run: &str) -> PathBuf {
        env::temp_dir().join(names::folder(run))
    }

    /// Makes it: others may pass through (a server that runs as another user must) and see nothing.
    pub(crate) fn make(path: PathBuf) -> Result<Self, RigError> {
        let failed = RigError::refused(format!("make {}", path.display()));
        let made = || {
            fs::DirBuilder::new().mode(0o711).create(&path)?;
            // Locked before it is called so: a lock that is there and free means that nobody lives.
            let unborn = path.join("lock.new");
            let lock = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unborn)?;
            lock.lock_shared()?;
            fs::rename(&unborn, path.join(LOCK))?;
            Ok::<_, io::Error>(lock)
        };
        let lock = made().map_err(failed)?;
        Ok(Self { path, _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// Shares a folder's lock.
pub(crate) fn lock_shared(folder: &Path) -> Option<File> {
    let lock = File::open(folder.join(LOCK)).ok()?;
    lock.lock_shared().ok()?;
    Some(lock)
}

/// Folders in `base` that no live run holds, each with its lock (held against other sweepers) where it has one.
pub(crate) fn abandoned(base: &Path) -> Vec<(PathBuf, Option<File>)> {
    let Ok(entries) = fs::read_dir(base) else { return Vec::new() };
    let us = rustix::process::geteuid().as_raw();
    entries
        .flatten()
        .filter(|entry| entry.file_name().to_str().is_some_and(names::is_folder))
        // Not followed: a link that somebody put there is not ours.
        .filter(|entry| entry.metadata().is_ok_and(|meta| meta.is_dir() && meta.uid() == us))
        .filter_map(|entry| {
            let path = entry.path();
            match File::open(path.join(LOCK)) {
                Ok(lock) => match lock.try_lock() {
                    Ok(()) => Some((path, Some(lock))),
                    Err(TryLockError::WouldBlock | TryLockError::Error(_)) => None,
                },
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    let made = entry.metadata().and_then(|meta| meta.modified()).ok()?;
                    let age = SystemTime::now().duration_since(made).ok()?;
                    (age > MADE_WITHIN).then_some((path, None))
                }
                Err(_) => None,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_folder_of_ours_that_nobody_holds_is_abandoned() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("drainbench_ab12cd34");
        let held = Folder::make(path.clone()).unwrap();
        for other in ["drainbench_other", "drainbench_ab12cd34_x", "something"] {
            fs::create_dir(base.path().join(other)).unwrap();
            File::create(base.path().join(other).join(LOCK)).unwrap();
        }
        let young = base.path().join("drainbench_young123");
        fs::create_dir(&young).unwrap();
        assert!(abandoned(base.path()).is_empty());

        let guard = lock_shared(held.path()).unwrap();
        drop(held);
        assert!(abandoned(base.path()).is_empty(), "its guard still lives");
        drop(guard);
        let found = abandoned(base.path());
        assert_eq!(found.iter().map(|(path, _)| path).collect::<Vec<_>>(), vec![&path]);
        assert!(abandoned(base.path()).is_empty(), "another sweeper is at it");
    }

    #[test]
    fn a_folder_that_never_got_its_lock_is_abandoned_when_it_is_old() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("drainbench_old12345");
        fs::create_dir(&path).unwrap();
        assert!(abandoned(base.path()).is_empty());
        let old = SystemTime::now() - 2 * MADE_WITHIN;
        File::open(&path).unwrap().set_modified(old).unwrap();
        assert_eq!(abandoned(base.path()).len(), 1);
    }
}
