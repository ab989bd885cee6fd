//! A drainer in a process of its own, watched from outside.

use std::{
    collections::VecDeque,
    io,
    process::{ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
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
    scenario::DrainerSettings,
};

/// The hidden verb under which `drainbench` starts itself as a drainer.
pub(crate) const VERB: &str = "drainer-child";
/// Lines of a child's standard error that are kept to say why it ended.
const LAST_WORDS: usize = 5;

/// A drainer process.
#[derive(Debug)]
pub(super) struct Child {
    name: String,
    service: u16,
    process: tokio::process::Child,
    ticks: JoinHandle<()>,
    last_words: Arc<Mutex<VecDeque<String>>>,
    words: JoinHandle<()>,
    started: Instant,
    used: ProcessUse,
    ended_early: Option<ExitStatus>,
}

impl Child {
    /// Starts it and tells the guard.
    pub(super) fn spawn(
        ground: Ground<'_>,
        design: Design,
        at: Seat,
        report: mpsc::UnboundedSender<DrainerTick>,
    ) -> io::Result<Self> {
        let service = &ground.world.services[usize::from(at.service)];
        let name = format!("{}:{}", service.tag, at.instance);
        let mut command = Command::new(ground.exe);
        command
            .arg(VERB)
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
        // By environment: a process list shows arguments.
        command
            .env("DRAINER_DATABASE_URL", service.database_url())
            .env("DRAINER_AMQP_URL", ground.world.drainer_broker.as_str())
            .env("DRAINER_EXCHANGE", &service.exchange)
            .env("DRAINER_DESIGN", design.as_str())
            .env("DRAINER_ID", &name);
        settings(&mut command, &ground.cell.settings.drainer);
        let mut process = command.spawn()?;
        if let Some(pid) = process.id() {
            ground.rig.guard_child(pid);
        }
        let last_words = Arc::new(Mutex::new(VecDeque::new()));
        let stdout = process.stdout.take().ok_or_else(|| io::Error::other("no standard output"))?;
        let stderr = process.stderr.take().ok_or_else(|| io::Error::other("no standard error"))?;
        Ok(Self {
            ticks: tokio::spawn(read_ticks(stdout, at, ground.work.clock, report, Arc::clone(&last_words))),
            words: tokio::spawn(read_words(stderr, Arc::clone(&last_words))),
            name,
            service: at.service,
            process,
            last_words,
            started: Instant::now(),
            used: ProcessUse::default(),
            ended_early: None,
        })
    }

    /// SIGTERM, after its use was read: /proc forgets a process that ended.
    pub(super) fn ask_to_stop(&mut self) {
        self.ended_early = self.process.try_wait().ok().flatten();
        if let Some(pid) = self.process.id() {
            self.used = used(pid);
            if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
                // It may end by itself just now; then there is nothing to stop.
                let _ = kill_process(pid, Signal::TERM);
            }
        }
        self.used.service = self.service;
        self.used.wall_seconds = self.started.elapsed().as_secs_f64();
    }

    /// Waits for its end, kills it where that takes too long.
    pub(super) async fn stopped(mut self, until: tokio::time::Instant) -> (ProcessUse, Option<String>) {
        let ended = tokio::time::timeout_at(until, self.process.wait()).await;
        if ended.is_err() {
            let _ = self.process.kill().await;
        }
        // Its pipes close with it.
        let _ = self.ticks.await;
        let _ = self.words.await;
        let trouble = match (self.ended_early, ended) {
            (Some(status), _) => Some(format!("ended by itself ({status})")),
            (None, Ok(Ok(status))) if status.success() => None,
            (None, Ok(Ok(status))) => Some(format!("ended badly ({status})")),
            (None, Ok(Err(error))) => Some(format!("was lost ({error})")),
            (None, Err(_)) => Some("did not stop in time and was killed".to_owned()),
        };
        let words = self.last_words.lock().unwrap_or_else(PoisonError::into_inner);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        (
            self.used,
            trouble.map(|what| {
                format!("drainer process {} {what}; last words: {}", self.name, words.join(" | "))
            }),
        )
    }
}

fn settings(command: &mut Command, settings: &DrainerSettings) {
    let millis = |duration: std::time::Duration| duration.as_millis().to_string();
    command
        .env("DRAINER_POOL", settings.pool.to_string())
        .env("DRAINER_BATCH_SIZE", settings.batch_size.to_string())
        .env("DRAINER_PIPELINE_DEPTH", settings.pipeline_depth.to_string())
        .env("DRAINER_LEASE_TTL_SECS", settings.lease_ttl.as_secs().to_string())
        .env("DRAINER_POLL_INTERVAL_MS", millis(settings.poll_interval))
        .env("DRAINER_CONFIRM_TIMEOUT_MS", millis(settings.confirm_timeout))
        .env("DRAINER_STOP_WITHIN_MS", millis(settings.stop_within));
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
