//! Processes by pid and start time, so that a pid which went to somebody else is never signalled.

use std::{
    ffi::OsStr,
    fs,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::Path,
    time::Duration,
};

use rustix::process::{Pid, PidfdFlags, Signal, getpgid, kill_process_group, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

/// Set in the environment of every server of ours, and so of what they start: it names the rig's folder. RabbitMQ's
/// helpers lead process groups of their own and outlive their parent by a moment; this finds them.
pub(crate) const MARKER: &str = "DRAINBENCH_RIG";

/// How long a killed process may take to be gone.
const KILLED_WITHIN: Duration = Duration::from_secs(10);

/// A process that is or was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Process {
    pid: i32,
    /// Clock ticks since boot, as in `/proc/PID/stat`.
    start: u64,
}

impl Process {
    /// The process that has this pid now.
    pub(crate) fn of(pid: u32) -> Option<Self> {
        let pid = i32::try_from(pid).ok()?;
        Some(Self { pid, start: stat(pid)?.1 })
    }

    /// Whether it still runs. One that waits to be reaped does not.
    pub(crate) fn alive(self) -> bool {
        stat(self.pid).is_some_and(|(state, start)| start == self.start && !matches!(state, 'Z' | 'X'))
    }

    /// Sends `signal` if it still runs, and to its process group if it leads one.
    pub(crate) fn signal(self, signal: Signal) {
        let Some(pid) = Pid::from_raw(self.pid) else { return };
        // While the descriptor is open the pid can't go to somebody else unnoticed: look after opening it.
        let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else { return };
        if !self.alive() {
            return;
        }
        let leads = getpgid(Some(pid)).is_ok_and(|group| group == pid);
        // It may end meanwhile, which is what is wanted.
        let _ = if leads { kill_process_group(pid, signal) } else { pidfd_send_signal(&handle, signal) };
    }
}

/// State and start time.
fn stat(pid: i32) -> Option<(char, u64)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command's name stands in parentheses and may contain anything.
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ');
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(18)?.parse().ok()?))
}

/// What runs in `folder`: whatever carries the marker, and PostgreSQL's processes, which sit in their data folder.
pub(crate) fn of_folder(folder: &Path) -> Vec<Process> {
    let mut marker = MARKER.as_bytes().to_vec();
    marker.push(b'=');
    marker.extend_from_slice(folder.as_os_str().as_bytes());
    let owners = owners(folder);
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter(|entry| entry.metadata().is_ok_and(|meta| owners.contains(&meta.uid())))
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter(|pid| *pid != std::process::id() && belongs(*pid, folder, &marker))
        .filter_map(Process::of)
        .filter(|process| process.alive())
        .collect()
}

/// Owners of the folder and of what lies in it: whose processes may be looked at.
fn owners(folder: &Path) -> Vec<u32> {
    let inside =
        fs::read_dir(folder).into_iter().flatten().flatten().filter_map(|entry| entry.metadata().ok());
    fs::metadata(folder).into_iter().chain(inside).map(|meta| meta.uid()).collect()
}

fn belongs(pid: u32, folder: &Path, marker: &[u8]) -> bool {
    let proc = Path::new("/proc").join(pid.to_string());
    let marked =
        fs::read(proc.join("environ")).is_ok_and(|all| all.split(|byte| *byte == 0).any(|one| one == marker));
    let is_postgres = || {
        fs::read_link(proc.join("exe")).is_ok_and(|exe| exe.file_name() == Some(OsStr::new("postgres")))
            && fs::read_link(proc.join("cwd")).is_ok_and(|cwd| cwd.starts_with(folder))
    };
    marked || is_postgres()
}

/// Ends what `find` finds: `polite` first, after `grace` without a choice. False when some of it is still there.
pub(crate) async fn end(find: impl Fn() -> Vec<Process>, polite: Signal, grace: Duration) -> bool {
    for process in find() {
        process.signal(polite);
    }
    if gone(&find, None, grace).await {
        return true;
    }
    gone(&find, Some(Signal::KILL), KILLED_WITHIN).await
}

/// Waits until nothing is found; sends `signal` to what is, again and again, because it may have forked meanwhile.
async fn gone(find: &impl Fn() -> Vec<Process>, signal: Option<Signal>, within: Duration) -> bool {
    let deadline = Instant::now() + within;
    loop {
        let found = find();
        if found.is_empty() {
            return true;
        }
        if let Some(signal) = signal {
            found.iter().for_each(|process| process.signal(signal));
        }
        if Instant::now() >= deadline {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_pid_of_another_start_time_is_not_alive() {
        let own = Process::of(std::process::id()).unwrap();
        assert!(own.alive());
        assert!(!Process { start: own.start + 1, ..own }.alive());
    }

    #[tokio::test]
    async fn ends_what_ignores_the_polite_signal() {
        let mut child = Command::new("sh")
            .args(["-c", "trap '' TERM; echo ready; read -r never"])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = [0; 6];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut ready).unwrap();
        let process = Process::of(child.id()).unwrap();
        let find = || Some(process).filter(|process| process.alive()).into_iter().collect();
        assert!(end(find, Signal::TERM, Duration::from_millis(100)).await);
        assert!(!process.alive(), "a zombie counts as ended");
        child.wait().unwrap();
    }

    #[tokio::test]
    async fn finds_what_carries_the_marker_of_this_folder_only() {
        let folder = tempfile::tempdir().unwrap();
        let spawn = |value: &Path| Command::new("sleep").arg("60").env(MARKER, value).spawn().unwrap();
        let mut ours = spawn(folder.path());
        let mut other = spawn(&folder.path().join("other"));
        // Between fork and exec a child still has its parent's environment.
        let deadline = Instant::now() + Duration::from_secs(5);
        while of_folder(folder.path()).is_empty() && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(of_folder(folder.path()), vec![Process::of(ours.id()).unwrap()]);
        assert!(end(|| of_folder(folder.path()), Signal::TERM, Duration::from_secs(5)).await);
        assert!(other.try_wait().unwrap().is_none());
        other.kill().unwrap();
        ours.wait().unwrap();
        other.wait().unwrap();
    }
}
