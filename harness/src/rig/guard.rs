//! The guard: a small child of the same binary that outlives a harness which was killed, by the time it takes to stop
//! what the rig started and remove what it made.
//!
//! It learns what there is as JSON lines on its standard input, and acts at end of file: whether the harness closed the
//! pipe at its normal end, dropped its rig, or was killed, it is the same code. A signal by the terminal or by `kill`
//! is not for it; only the end of the harness is.

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    sync::{
        Mutex, PoisonError,
        mpsc::{Receiver, RecvTimeoutError, channel},
    },
    time::Duration,
};

use tokio::signal::unix::{SignalKind, signal};

use super::{
    RigError, folder,
    teardown::{Held, teardown},
};
use crate::exit::Exit;

/// The hidden verb.
const VERB: &str = "guard";

/// How long it may take to say that it is there.
const READY_WITHIN: Duration = Duration::from_secs(20);

/// How long it works at most.
const WORKS_WITHIN: Duration = Duration::from_secs(60);

/// What it says first.
const READY: &str = "ready";

/// The harness's side of it.
pub(crate) struct Guard {
    child: Child,
    /// Closed is the word to begin.
    stdin: Mutex<Option<ChildStdin>>,
    said: Mutex<Receiver<String>>,
    /// What it was told, in case it is killed itself.
    held: Mutex<Vec<Held>>,
}

impl Guard {
    /// Starts it. Nothing that it is to guard may start before this returns.
    pub(crate) async fn start(exe: &Path) -> Result<Self, RigError> {
        let refused = |reason: String| RigError::Missing {
            what: format!("{} could not be started as the rig's guard: {reason}", exe.display()),
            way_out: "Set DRAINBENCH_EXE to the drainbench binary".to_owned(),
        };
        let guard = Self::spawn(exe).map_err(|error| refused(error.to_string()))?;
        let waited = tokio::task::spawn_blocking(move || {
            let word = guard.hear(READY_WITHIN);
            (guard, word)
        });
        let (guard, word) = waited.await.map_err(|error| refused(error.to_string()))?;
        match word {
            Ok(word) if word == READY => Ok(guard),
            Ok(word) => Err(refused(format!("it said {word:?}"))),
            Err(RecvTimeoutError::Timeout) => Err(refused("it does not answer".to_owned())),
            Err(RecvTimeoutError::Disconnected) => Err(refused("it ended at once".to_owned())),
        }
    }

    fn spawn(exe: &Path) -> std::io::Result<Self> {
        let mut child = Command::new(exe)
            .arg(VERB)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // It must not hold the harness's own streams open for whoever reads them to the end.
            .stderr(Stdio::null())
            .spawn()?;
        let stdin = child.stdin.take();
        let (sender, said) = channel();
        if let Some(stdout) = child.stdout.take() {
            std::thread::spawn(move || {
                for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                    if sender.send(line).is_err() {
                        return;
                    }
                }
            });
        }
        Ok(Self { child, stdin: Mutex::new(stdin), said: Mutex::new(said), held: Mutex::new(Vec::new()) })
    }

    /// Tells it of something. Tell it before that exists where that can be.
    pub(crate) fn hold(&self, held: Held) {
        if let (Ok(mut line), Some(stdin)) = (serde_json::to_vec(&held), lock(&self.stdin).as_mut()) {
            line.push(b'\n');
            // A guard that is gone shows at the end; then we do its work.
            let _ = stdin.write_all(&line);
        }
        lock(&self.held).push(held);
    }

    /// Has it end everything.
    ///
    /// # Errors
    /// What is left, by name.
    pub(crate) async fn finish(mut self) -> Result<(), RigError> {
        let left = tokio::task::spawn_blocking(move || self.end());
        match left.await {
            Ok(left) if left.is_empty() => Ok(()),
            Ok(left) => Err(RigError::Left(left)),
            Err(error) => Err(RigError::Left(vec![format!("unknown ({error})")])),
        }
    }

    /// Blocks until everything has ended. What is left.
    fn end(&mut self) -> Vec<String> {
        if lock(&self.stdin).take().is_none() {
            return Vec::new();
        }
        let answer = self.hear(WORKS_WITHIN).ok();
        let left = answer.and_then(|line| serde_json::from_str::<Vec<String>>(&line).ok());
        // It is at its end or stuck; either way there is nothing to wait for.
        let _ = self.child.kill();
        let _ = self.child.wait();
        left.unwrap_or_else(|| end_without(lock(&self.held).clone()))
    }

    fn hear(&self, within: Duration) -> Result<String, RecvTimeoutError> {
        lock(&self.said).recv_timeout(within)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // The net. It blocks its thread, which is right: whoever drops a rig goes on in the belief that it is gone.
        self.end();
    }
}

/// The guard was killed: its work is done here. On a thread of its own, because a runtime may be in use on this one.
fn end_without(held: Vec<Held>) -> Vec<String> {
    let work = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(runtime.block_on(tear_down_in_time(&held)))
    };
    let ended = std::thread::scope(|scope| scope.spawn(work).join());
    match ended {
        Ok(Ok(left)) => left,
        Ok(Err::<_, std::io::Error>(error)) => vec![format!("unknown ({error})")],
        Err(_) => vec!["unknown (the clean-up panicked)".to_owned()],
    }
}

async fn tear_down_in_time(held: &[Held]) -> Vec<String> {
    tokio::time::timeout(WORKS_WITHIN, teardown(held))
        .await
        .unwrap_or_else(|_| vec![format!("unknown (not done within {} s)", WORKS_WITHIN.as_secs())])
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The guard itself: the hidden verb's `main`.
#[must_use]
pub fn main() -> Exit {
    // Away from the terminal, so that its signals go to the harness alone. It fails only where that is so already.
    let _ = rustix::process::setsid();
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return Exit::Environment;
    };
    // Taken and never read: whoever ends a whole tree of processes politely must leave the guard its work.
    let _taken = runtime.block_on(async {
        [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()].map(signal)
    });
    say(READY);
    let mut held: Vec<Held> = Vec::new();
    // A folder is locked as long as somebody lives who will remove it.
    let mut locks = Vec::new();
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let Ok(one) = serde_json::from_str(&line) else { continue };
        if let Held::Folder(path) = &one {
            locks.extend(folder::lock_shared(path));
        }
        held.push(one);
    }
    let left = runtime.block_on(tear_down_in_time(&held));
    say(&serde_json::to_string(&left).unwrap_or_default());
    drop(locks);
    if left.is_empty() { Exit::Pass } else { Exit::Environment }
}

/// One line to the harness, which may be gone.
fn say(line: &str) {
    let mut stdout = std::io::stdout().lock();
    let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
}
