//! A drainer in a process of its own, watched from outside.

use std::{
    collections::VecDeque,
    io,
    os::unix::process::ExitStatusExt as _,
    path::{Path, PathBuf},
    process::Stdio,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use drainer::{Design, Tick};
use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, BufReader},
    process::Command,
    sync::mpsc,
    task::JoinHandle,
};

use super::{Ground, Seat};
use crate::{
    clock::Clock,
    history::{DrainerTick, ProcessUse},
    rig::Rig,
    scenario::DrainerSettings,
};

/// The hidden verb under which `drainbench` starts itself as a drainer.
pub(crate) const VERB: &str = "drainer-child";
/// Lines of a child's standard error that are kept to say why it ended.
const LAST_WORDS: usize = 5;
/// How long a stopped process may take to stand still.
const STANDS_STILL_WITHIN: Duration = Duration::from_secs(2);

/// What a drainer process is started with, again and again.
struct Recipe<'a> {
    name: String,
    at: Seat,
    program: PathBuf,
    arguments: Vec<String>,
    /// By environment: a process list shows arguments.
    environment: Vec<(&'static str, String)>,
    clock: Clock,
    rig: &'a Rig,
    report: mpsc::UnboundedSender<DrainerTick>,
}

/// A drainer process, which may be killed on purpose and started again.
pub(crate) struct Child<'a> {
    recipe: Recipe<'a>,
    running: Option<Running>,
    /// It was asked to stop.
    stopping: Option<Running>,
    used: ProcessUse,
    misconduct: Vec<String>,
}

#[derive(Debug)]
struct Running {
    process: tokio::process::Child,
    ticks: JoinHandle<()>,
    last_words: Arc<Mutex<VecDeque<String>>>,
    words: JoinHandle<()>,
    started: Instant,
}

impl<'a> Child<'a> {
    /// Starts it and tells the guard.
    pub(super) fn spawn(
        ground: Ground<'a>,
        design: Design,
        at: Seat,
        report: mpsc::UnboundedSender<DrainerTick>,
    ) -> io::Result<Self> {
        let service = &ground.world.services[usize::from(at.service)];
        let links = &ground.world.links;
        let name = format!("{}:{}", service.tag, at.instance);
        let mut environment = vec![
            ("DRAINER_DATABASE_URL", service.database_url(links.database(at.service, at.instance))),
            ("DRAINER_AMQP_URL", links.broker_url(at.service, at.instance).as_str().to_owned()),
            ("DRAINER_EXCHANGE", service.exchange.clone()),
            ("DRAINER_DESIGN", design.as_str().to_owned()),
            ("DRAINER_ID", name.clone()),
        ];
        let drainer = &ground.cell.settings.drainer;
        environment.extend(settings(drainer));
        let (program, arguments) = program(drainer.command.as_deref(), ground.exe);
        let recipe = Recipe {
            name,
            at,
            program,
            arguments,
            environment,
            clock: ground.work.clock,
            rig: ground.rig,
            report,
        };
        let used = ProcessUse { service: at.service, ..ProcessUse::default() };
        let running = Some(recipe.start()?);
        Ok(Self { recipe, running, stopping: None, used, misconduct: Vec::new() })
    }

    /// `<run>:svc07:0`
    pub(crate) fn name(&self) -> &str {
        &self.recipe.name
    }

    /// Place of its service.
    pub(crate) fn service(&self) -> u16 {
        self.recipe.at.service
    }

    /// Which of its service's drainers it is.
    pub(crate) fn instance(&self) -> u16 {
        self.recipe.at.instance
    }

    /// SIGKILL, and waits for its end. False when it had ended before.
    pub(crate) async fn kill(&mut self) -> bool {
        let Some(mut running) = self.take_running() else { return false };
        let killed = running.process.start_kill().is_ok();
        let status = running.process.wait().await;
        let by_us = killed && status.is_ok_and(|status| status.signal() == Some(Signal::KILL.as_raw()));
        running.read_to_the_end().await;
        by_us
    }

    /// Starts it again, under the same id. Does nothing where it runs.
    ///
    /// # Errors
    /// When it cannot be started: it stays away.
    pub(crate) fn start_again(&mut self) -> io::Result<()> {
        if self.running.is_none() {
            self.running = Some(self.recipe.start()?);
        }
        Ok(())
    }

    /// SIGTERM. False where none runs.
    pub(crate) fn ask_to_stop(&mut self) -> bool {
        self.stopping = self.take_running();
        if let Some(running) = &self.stopping {
            running.signal(Signal::TERM);
        }
        self.stopping.is_some()
    }

    /// Waits for the end of one that was asked to stop, and kills it where that takes too long.
    pub(crate) async fn has_stopped(&mut self, until: tokio::time::Instant) {
        let Some(mut running) = self.stopping.take() else { return };
        let ended = tokio::time::timeout_at(until, running.process.wait()).await;
        if ended.is_err() {
            let _ = running.process.kill().await;
        }
        running.read_to_the_end().await;
        match ended {
            Ok(Ok(status)) if status.success() => {}
            Ok(Ok(status)) => self.accuse(&format!("ended badly ({status})"), &running),
            Ok(Err(error)) => self.accuse(&format!("was lost ({error})"), &running),
            Err(_) => self.accuse("did not stop in time and was killed", &running),
        }
    }

    /// SIGSTOP. True when the system says that it stands still.
    pub(crate) async fn pause(&mut self) -> bool {
        self.signal(Signal::STOP);
        let deadline = tokio::time::Instant::now() + STANDS_STILL_WITHIN;
        while !self.stands_still() {
            if tokio::time::Instant::now() >= deadline {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        true
    }

    /// Whether the system says that it is stopped.
    pub(crate) fn stands_still(&self) -> bool {
        let pid = self.running.as_ref().and_then(|running| running.process.id());
        let stat = pid.and_then(|pid| std::fs::read_to_string(format!("/proc/{pid}/stat")).ok());
        stat.is_some_and(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T')))
    }

    /// SIGCONT.
    pub(crate) fn go_on(&mut self) {
        self.signal(Signal::CONT);
    }

    /// Waits for the end of one that was asked to stop; what all of them used, and what they did that none may.
    pub(super) async fn ended(mut self, until: tokio::time::Instant) -> (ProcessUse, Vec<String>) {
        self.has_stopped(until).await;
        (self.used, self.misconduct)
    }

    fn signal(&self, signal: Signal) {
        if let Some(running) = &self.running {
            running.signal(signal);
        }
    }

    /// The process, to end it: what it used is read before, because /proc forgets a process that ended. `None` where none
    /// runs; one that ended by itself is accused.
    fn take_running(&mut self) -> Option<Running> {
        let mut running = self.running.take()?;
        self.used.wall_seconds += running.started.elapsed().as_secs_f64();
        if let Ok(Some(status)) = running.process.try_wait() {
            self.accuse(&format!("ended by itself ({status})"), &running);
            return None;
        }
        let used = running.process.id().map(used).unwrap_or_default();
        self.used.cpu_seconds += used.cpu_seconds;
        self.used.rss_peak_bytes = self.used.rss_peak_bytes.max(used.rss_peak_bytes);
        Some(running)
    }

    fn accuse(&mut self, what: &str, running: &Running) {
        let words = running.last_words.lock().unwrap_or_else(PoisonError::into_inner);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let name = &self.recipe.name;
        self.misconduct.push(format!("drainer process {name} {what}; last words: {}", words.join(" | ")));
    }
}

impl Recipe<'_> {
    fn start(&self) -> io::Result<Running> {
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        for (variable, _) in std::env::vars_os() {
            // Somebody's shell may export settings of a drainer of theirs.
            let theirs = ["DRAINER_", "CANOPY_MQ_DRAINER_", "DRAINBENCH_", "PG"];
            if variable.to_str().is_some_and(|name| theirs.iter().any(|prefix| name.starts_with(prefix))) {
                command.env_remove(&variable);
            }
        }
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        let mut process = command.spawn()?;
        if let Some(pid) = process.id() {
            self.rig.guard_child(pid);
        }
        let last_words = Arc::new(Mutex::new(VecDeque::new()));
        let stdout = process.stdout.take().ok_or_else(|| io::Error::other("no standard output"))?;
        let stderr = process.stderr.take().ok_or_else(|| io::Error::other("no standard error"))?;
        let report = self.report.clone();
        Ok(Running {
            ticks: tokio::spawn(read_ticks(stdout, self.at, self.clock, report, Arc::clone(&last_words))),
            words: tokio::spawn(read_words(stderr, Arc::clone(&last_words))),
            process,
            last_words,
            started: Instant::now(),
        })
    }
}

impl Running {
    fn signal(&self, signal: Signal) {
        let pid = self.process.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        if let Some(pid) = pid {
            // It may end by itself just now; then there is nothing to signal.
            let _ = kill_process(pid, signal);
        }
    }

    /// Its pipes close with it.
    async fn read_to_the_end(&mut self) {
        let _ = (&mut self.ticks).await;
        let _ = (&mut self.words).await;
    }
}

/// What drains: ourselves, or somebody's program. `drainbench` is this one, wherever it stands.
fn program(command: Option<&str>, ourselves: &Path) -> (PathBuf, Vec<String>) {
    let mut words = command.unwrap_or_default().split_whitespace().map(str::to_owned);
    match words.next() {
        None => (ourselves.to_owned(), vec![VERB.to_owned()]),
        Some(name) if name == "drainbench" => (ourselves.to_owned(), words.collect()),
        Some(name) => (PathBuf::from(name), words.collect()),
    }
}

fn settings(settings: &DrainerSettings) -> [(&'static str, String); 7] {
    let millis = |duration: Duration| duration.as_millis().to_string();
    [
        ("DRAINER_POOL", settings.pool.to_string()),
        ("DRAINER_BATCH_SIZE", settings.batch_size.to_string()),
        ("DRAINER_PIPELINE_DEPTH", settings.pipeline_depth.to_string()),
        ("DRAINER_LEASE_TTL_SECS", settings.lease_ttl.as_secs().to_string()),
        ("DRAINER_POLL_INTERVAL_MS", millis(settings.poll_interval)),
        ("DRAINER_CONFIRM_TIMEOUT_MS", millis(settings.confirm_timeout)),
        ("DRAINER_STOP_WITHIN_MS", millis(settings.stop_within)),
    ]
}

async fn read_ticks(
    stdout: impl AsyncRead + Unpin,
    at: Seat,
    clock: Clock,
    report: mpsc::UnboundedSender<DrainerTick>,
    last_words: Arc<Mutex<VecDeque<String>>>,
) {
    let mut lines = BufReader::new(stdout).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        match serde_json::from_str::<Tick>(&line) {
            Ok(tick) => {
                let told =
                    DrainerTick { service: at.service, instance: at.instance, at_ns: clock.now_ns(), tick };
                // After the fleet stopped nobody listens, and nothing is lost by it.
                let _ = report.send(told);
            }
            Err(error) => remember(&last_words, format!("unreadable report: {error}")),
        }
    }
}

async fn read_words(stderr: impl AsyncRead + Unpin, last_words: Arc<Mutex<VecDeque<String>>>) {
    let mut lines = BufReader::new(stderr).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        remember(&last_words, line);
    }
}

fn remember(last_words: &Mutex<VecDeque<String>>, mut line: String) {
    line.truncate(line.floor_char_boundary(500));
    let mut words = last_words.lock().unwrap_or_else(PoisonError::into_inner);
    if words.len() == LAST_WORDS {
        words.pop_front();
    }
    words.push_back(line);
}

/// CPU and peak memory from /proc; zeros when the process is gone.
fn used(pid: u32) -> ProcessUse {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    // After the command's name, which may hold blanks: utime and stime are the 12th and 13th fields.
    let fields: Vec<u64> = stat
        .rsplit_once(')')
        .map(|(_, rest)| {
            rest.split_ascii_whitespace().skip(11).take(2).filter_map(|n| n.parse().ok()).collect()
        })
        .unwrap_or_default();
    let ticks = rustix::param::clock_ticks_per_second().max(1);
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let peak_kib: u64 = peak.and_then(|rest| rest.trim().split(' ').next()?.parse().ok()).unwrap_or(0);
    ProcessUse {
        cpu_seconds: fields.iter().sum::<u64>() as f64 / ticks as f64,
        rss_peak_bytes: peak_kib * 1024,
        ..ProcessUse::default()
    }
}
