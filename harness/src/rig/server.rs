//! A server process of ours: its user, its environment, its log, its port.

use std::{
    ffi::OsString,
    fs,
    fs::File,
    io,
    net::{Ipv4Addr, TcpListener},
    os::unix::fs::{MetadataExt, OpenOptionsExt, chown},
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use rand::{TryRng, rngs::SysRng};
use tokio::process::{Child, Command};

use super::{RigError, ServerKind, process};

/// How often a server that lost its port to somebody else is started again.
pub(crate) const ATTEMPTS: u32 = 3;

/// Pause between two looks at a server that starts.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(50);

/// How much of a log an error shows.
const LOG_LINES: usize = 15;

/// Who servers run as when we are root: PostgreSQL refuses to be root, and neither needs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct User {
    uid: u32,
    gid: u32,
}

impl User {
    /// `postgres` if there is one, else `nobody`; nobody else than us when we are not root.
    ///
    /// # Errors
    /// When there is neither.
    pub(crate) fn unprivileged() -> Result<Option<Self>, RigError> {
        if !rustix::process::geteuid().is_root() {
            return Ok(None);
        }
        let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
        let user = find(&users, "postgres").or_else(|| find(&users, "nobody"));
        user.map(Some).ok_or_else(|| RigError::Missing {
            what: "PostgreSQL does not run as root, and there is neither a user postgres nor a user nobody"
                .to_owned(),
            way_out: "Run drainbench as another user than root".to_owned(),
        })
    }
}

impl User {
    /// Whether it may pass through all folders above `path`.
    ///
    /// # Errors
    /// The first that it may not enter.
    pub(crate) fn can_reach(&self, path: &Path) -> Result<(), RigError> {
        let closed = path.ancestors().skip(1).find(|folder| {
            fs::metadata(folder).is_ok_and(|meta| {
                let (user, group) = (meta.uid() == self.uid, meta.gid() == self.gid);
                let bit = if user {
                    0o100
                } else if group {
                    0o010
                } else {
                    0o001
                };
                meta.mode() & bit == 0
            })
        });
        match closed {
            None => Ok(()),
            Some(folder) => Err(RigError::Missing {
                what: format!(
                    "PostgreSQL does not run as root, and the user it runs as (uid {}) may not enter {}",
                    self.uid,
                    folder.display()
                ),
                way_out: "Set TMPDIR to a folder below which everybody may enter, such as /tmp".to_owned(),
            }),
        }
    }
}

fn find(passwd: &str, name: &str) -> Option<User> {
    let line = passwd.lines().find(|line| line.split(':').next() == Some(name))?;
    let mut fields = line.split(':').skip(2);
    Some(User { uid: fields.next()?.parse().ok()?, gid: fields.next()?.parse().ok()? })
}

/// What all servers of a rig have in common.
#[derive(Debug, Clone)]
pub(crate) struct Ground {
    /// The rig's folder.
    pub(crate) folder: PathBuf,
    /// Who they run as, if not as us.
    pub(crate) user: Option<User>,
}

impl Ground {
    /// Makes a folder that only the servers' user can enter.
    pub(crate) fn make_folder(&self, path: &Path) -> io::Result<()> {
        use std::os::unix::fs::DirBuilderExt;
        fs::DirBuilder::new().mode(0o700).create(path)?;
        self.give(path)
    }

    /// Writes a file that only the servers' user can read.
    pub(crate) fn write_secret(&self, path: &Path, text: &str) -> io::Result<()> {
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        io::Write::write_all(&mut file, text.as_bytes())?;
        self.give(path)
    }

    fn give(&self, path: &Path) -> io::Result<()> {
        match self.user {
            Some(user) => chown(path, Some(user.uid), Some(user.gid)),
            None => Ok(()),
        }
    }

    /// A program in the rig's folder, with an environment of ours alone: what somebody's shell exports for servers of
    /// theirs (`PGDATA`, `RABBITMQ_NODENAME`) must not reach ours.
    pub(crate) fn command(&self, program: &Path, path: OsString) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(&self.folder)
            .env_clear()
            .env("PATH", path)
            .env("HOME", &self.folder)
            .env("TMPDIR", &self.folder)
            .env("LC_ALL", "C")
            .env(process::MARKER, &self.folder)
            .stdin(Stdio::null())
            // Ctrl-C at the terminal is for the harness, which then stops its servers in order.
            .process_group(0);
        if let Some(user) = self.user {
            command.uid(user.uid).gid(user.gid);
        }
        command
    }
}

/// The PATH of servers, behind `first`.
pub(crate) fn search_path(first: &Path) -> OsString {
    let mut path = first.as_os_str().to_owned();
    path.push(":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    path
}

/// A server of ours that is on its way up, whatever it runs in.
pub(crate) trait Starting {
    /// Fails when it has ended.
    async fn check(&mut self) -> Result<(), RigError>;
    /// Why it did not start, with the end of its log.
    async fn not_started(&self, reason: String) -> RigError;
}

/// A server that was started. It does not end on drop: the guard knows it and ends it the way it must be.
#[derive(Debug)]
pub(crate) struct Server {
    kind: ServerKind,
    child: Child,
    logs: Vec<PathBuf>,
}

impl Server {
    /// Starts it with its output in `log`; `more` are logs that it writes itself.
    pub(crate) fn start(
        kind: ServerKind,
        mut command: Command,
        log: PathBuf,
        more: Vec<PathBuf>,
    ) -> Result<Self, RigError> {
        let mut started = || {
            let output = File::create(&log)?;
            command.stdout(output.try_clone()?).stderr(output).spawn()
        };
        let child = started().map_err(RigError::refused(format!("start {kind}")))?;
        let logs = more.into_iter().chain([log]).collect();
        Ok(Self { kind, child, logs })
    }

    /// Its pid, while it has not been seen to end.
    pub(crate) fn process(&self) -> Option<process::Process> {
        process::Process::of(self.child.id()?)
    }

    /// The last lines of its log.
    fn log(&self) -> String {
        let texts = self.logs.iter().filter_map(|log| fs::read(log).ok());
        let text =
            texts.map(|text| String::from_utf8_lossy(&text).into_owned()).collect::<Vec<_>>().join("\n");
        last_lines(&text)
    }

    /// Ends it without a choice.
    pub(crate) async fn kill(&mut self) {
        // It fails only where it has ended.
        let _ = self.child.kill().await;
    }
}

impl Starting for Server {
    async fn check(&mut self) -> Result<(), RigError> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(self.not_started(format!("it ended ({status})")).await),
            Err(error) => Err(self.not_started(format!("it can't be watched ({error})")).await),
        }
    }

    async fn not_started(&self, reason: String) -> RigError {
        RigError::NotStarted { server: self.kind, reason, log: self.log() }
    }
}

/// The end of a log, as an error shows it.
pub(crate) fn last_lines(text: &str) -> String {
    let lines: Vec<_> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
}

/// Whether a server ended because somebody else was faster to take its port.
pub(crate) fn lost_its_port(error: &RigError) -> bool {
    match error {
        RigError::NotStarted { log, .. } => {
            ["in use", "eaddrinuse", "could not bind", "could not create any TCP/IP"]
                .iter()
                .any(|words| log.contains(words))
        }
        RigError::Missing { .. }
        | RigError::Misconfigured { .. }
        | RigError::Unreachable { .. }
        | RigError::Refused { .. }
        | RigError::OwnRigsOnly { .. }
        | RigError::Left(_) => false,
    }
}

/// A loopback port that is free now. Taken below the range from which the kernel gives ports to outgoing connections:
/// RabbitMQ opens its port eight seconds later, and a busy machine would have given it away by then.
pub(crate) fn free_port() -> Result<u16, RigError> {
    const FIRST: u16 = 10_000;
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let end = range.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(32_768);
    let width = u32::from(end.max(FIRST + 1_000) - FIRST);
    for _ in 0..200 {
        let drawn = SysRng.try_next_u32().map_err(RigError::refused("read random numbers"))? % width;
        let port = FIRST + u16::try_from(drawn).unwrap_or(0);
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    Err(RigError::refused("find a free loopback port")("none of 200 was free"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_users_by_their_whole_name() {
        let passwd =
            "root:x:0:0:root:/root:/bin/sh\npostgres2:x:7:8::/:/bin/sh\npostgres:x:101:104::/:/bin/sh\n";
        assert_eq!(find(passwd, "postgres"), Some(User { uid: 101, gid: 104 }));
        assert_eq!(find(passwd, "nobody"), None);
    }

    #[test]
    fn a_free_port_can_be_taken() {
        let port = free_port().unwrap();
        assert!(port >= 10_000);
        TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
    }
}
