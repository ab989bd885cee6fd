//! The temporary folder of our own servers. Its lock tells whether anybody lives who will remove it.

use std::{
    env, fs,
    fs::File,
    io::{self, Read as _, Write as _},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use super::{RigError, names};

const LOCK: &str = "lock";

/// What stands in the lock. A name alone is no proof: somebody may call a folder of theirs like ours.
const MARK: &[u8] = b"drainbench rig\n";

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
        base().join(names::folder(run))
    }

    /// Makes it: others may pass through (a server that runs as another user must) and see nothing.
    pub(crate) fn make(path: PathBuf) -> Result<Self, RigError> {
        let failed = RigError::refused(format!("make {}", path.display()));
        let made = || {
            fs::DirBuilder::new().mode(0o711).create(&path)?;
            // Whatever the umask took away.
            fs::set_permissions(&path, fs::Permissions::from_mode(0o711))?;
            // Locked before it is called so: a lock that is there and free means that nobody lives.
            let unborn = path.join("lock.new");
            let mut lock = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unborn)?;
            lock.write_all(MARK)?;
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

/// Where folders are made: TMPDIR, as an absolute path because the guard works from another folder.
pub(crate) fn base() -> PathBuf {
    let told = env::temp_dir();
    let told = if told.as_os_str().is_empty() { PathBuf::from("/tmp") } else { told };
    std::path::absolute(&told).unwrap_or(told)
}

/// Where a path means the same: this boot of this machine, and these mounts of it. A container, or another machine that
/// shares the engine, has others.
pub(crate) fn place() -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let mounts = fs::read_link("/proc/self/ns/mnt").unwrap_or_default();
    format!("{} {}", boot.trim(), mounts.display())
}

/// Whether nobody lives any more who would remove a folder of ours: it is gone, or its lock is free. One that can't be
/// looked into (another user's) is somebody's.
pub(crate) fn is_dead(folder: &Path) -> bool {
    match File::open(folder.join(LOCK)) {
        Ok(lock) => lock.try_lock().is_ok(),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
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
                Ok(mut lock) => {
                    let mut mark = Vec::new();
                    (&mut lock).take(MARK.len() as u64 + 1).read_to_end(&mut mark).ok()?;
                    (mark == MARK && lock.try_lock().is_ok()).then_some((path, Some(lock)))
                }
                // Made and never locked: its maker was killed in that very moment, and it is empty.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    let made = entry.metadata().and_then(|meta| meta.modified()).ok()?;
                    let age = SystemTime::now().duration_since(made).ok()?;
                    let empty = fs::read_dir(&path).is_ok_and(|mut inside| inside.next().is_none());
                    (empty && age > MADE_WITHIN).then_some((path, None))
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
        let theirs = base.path().join("drainbench_projects");
        fs::create_dir(&theirs).unwrap();
        fs::write(theirs.join("thesis.txt"), "precious").unwrap();
        fs::write(theirs.join(LOCK), "").unwrap();
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
    fn a_run_is_dead_when_its_lock_is_free_or_gone_and_not_when_it_cannot_be_seen() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("drainbench_ab12cd34");
        assert!(is_dead(&path));
        let held = Folder::make(path.clone()).unwrap();
        assert!(!is_dead(&path));
        drop(held);
        assert!(is_dead(&path));
        // Nobody may open what is no file's child, root neither.
        fs::write(base.path().join("file"), "").unwrap();
        assert!(!is_dead(&base.path().join("file/drainbench_ab12cd34")));
    }

    #[test]
    fn a_folder_that_never_got_its_lock_is_abandoned_when_it_is_old() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("drainbench_old12345");
        fs::create_dir(&path).unwrap();
        assert!(abandoned(base.path()).is_empty());
        let old = SystemTime::now() - 2 * MADE_WITHIN;
        File::open(&path).unwrap().set_modified(old).unwrap();
        let theirs = base.path().join("drainbench_projects");
        fs::create_dir(&theirs).unwrap();
        fs::write(theirs.join("thesis.txt"), "precious").unwrap();
        File::open(&theirs).unwrap().set_modified(old).unwrap();
        let found = abandoned(base.path());
        assert_eq!(found.iter().map(|(path, _)| path).collect::<Vec<_>>(), vec![&path]);
    }
}
