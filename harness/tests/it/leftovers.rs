//! Nothing is left: no process, no folder, no port, no database, however a run ends.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    net::TcpStream,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use crate::rigs::{
    cell, channel, databases, has_exchange, has_queue, on_servers_of, provision, shared, until,
};
use harness::rig::{Rig, RigChoice, RigRequest};
use rustix::process::Signal;
use tempfile::TempDir;

/// `drainbench rig --rig local -- sh`, whose temporary files lie in a folder of its own.
struct Running {
    harness: Child,
    folder: TempDir,
    /// Of both servers.
    ports: Vec<String>,
}

impl Running {
    /// Starts it and waits until the command runs, which then does `then`.
    fn start(then: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        // The servers' user must be able to pass.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let script = format!("echo \"$DRAINBENCH_DATABASE_URL\"; echo \"$DRAINBENCH_AMQP_URL\"; {then}");
        let mut harness = launch(folder.path(), &script);
        let mut lines = BufReader::new(harness.stdout.take().unwrap()).lines();
        let urls: Vec<_> = (0..2).map(|_| lines.next().unwrap().unwrap()).collect();
        let secrets: Vec<_> = urls.iter().map(|url| password(url)).collect();
        let ports = urls.iter().map(|url| address(url)).collect();
        let running = Self { harness, folder, ports };
        for pid in pids() {
            for secret in &secrets {
                assert!(!command_line(pid).contains(secret), "a password is in the command line of {pid}");
            }
        }
        running
    }

    /// The code it ended with, once nothing is left.
    fn ended(mut self) -> Option<i32> {
        let deadline = Instant::now() + crate::rigs::SOON;
        let status = loop {
            match self.harness.try_wait().unwrap() {
                Some(status) => break status,
                None => assert!(Instant::now() < deadline, "it does not end"),
            }
            pause();
        };
        nothing_left(self.folder.path(), &self.ports);
        let mut said = String::new();
        self.harness.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(!said.contains("left behind"), "{said}");
        status.code()
    }
}

/// Every process.
fn pids() -> Vec<u32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Every process that has `folder` in its environment or works in it, with its command line: what was started with
/// `folder` as TMPDIR, its children and theirs, whatever they call themselves.
fn processes_of(folder: &Path) -> Vec<(u32, String)> {
    let needle = folder.to_str().unwrap().as_bytes();
    let mut found = Vec::new();
    for pid in pids() {
        let proc = PathBuf::from(format!("/proc/{pid}"));
        let environment = fs::read(proc.join("environ")).unwrap_or_default();
        let works_in = fs::read_link(proc.join("cwd")).is_ok_and(|cwd| cwd.starts_with(folder));
        if works_in || environment.windows(needle.len()).any(|window| window == needle) {
            found.push((pid, command_line(pid)));
        }
    }
    found
}

fn command_line(pid: u32) -> String {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).replace('\0', " ")
}

/// The guard of a process.
pub(crate) fn guard_of(pid: u32) -> Option<u32> {
    pids().into_iter().find(|child| {
        let stat = fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        let parent = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1)?.parse().ok());
        parent == Some(pid) && command_line(*child).trim_end().ends_with(" guard")
    })
}

pub(crate) fn send(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

fn launch(folder: &Path, script: &str) -> Child {
    crate::rigs::alone()
        .args(["rig", "--rig", "local", "--", "sh", "-c", script])
        .env("TMPDIR", folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn password(url: &str) -> String {
    url.split_once("://").unwrap().1.split_once('@').unwrap().0.split_once(':').unwrap().1.to_owned()
}

fn address(url: &str) -> String {
    url.split_once('@').unwrap().1.split_once('/').unwrap().0.to_owned()
}

#[expect(clippy::disallowed_methods, reason = "no async code; the pause of a probe with a deadline")]
fn pause() {
    std::thread::sleep(Duration::from_millis(20));
}

/// No process, file or port, soon.
fn nothing_left(folder: &Path, ports: &[String]) {
    let deadline = Instant::now() + crate::rigs::SOON;
    loop {
        let processes = processes_of(folder);
        let files: Vec<_> = fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path()).collect();
        let open: Vec<_> = ports.iter().filter(|port| TcpStream::connect(port).is_ok()).collect();
        if processes.is_empty() && files.is_empty() && open.is_empty() {
            return;
        }
        assert!(Instant::now() < deadline, "left: {processes:?} {files:?} {open:?}");
        pause();
    }
}

#[test]
fn after_a_failure() {
    assert_eq!(Running::start("exit 7").ended(), Some(7));
}

#[test]
fn after_ctrl_c() {
    let running = Running::start("exec sleep 1000");
    send(running.harness.id(), Signal::INT);
    assert_eq!(running.ended(), Some(130));
}

#[test]
fn after_sigterm() {
    let running = Running::start("exec sleep 1000");
    send(running.harness.id(), Signal::TERM);
    assert_eq!(running.ended(), Some(143));
}

#[test]
fn after_kill_9() {
    let running = Running::start("trap '' TERM; sleep 1000 & wait; wait; wait");
    assert!(processes_of(running.folder.path()).len() > 8, "{:?}", processes_of(running.folder.path()));
    send(running.harness.id(), Signal::KILL);
    assert_eq!(running.ended(), None);
}

#[test]
fn after_success_even_what_a_run_left_whose_guard_was_killed() {
    let mut running = Running::start("exec sleep 1000");
    let pid = running.harness.id();
    send(guard_of(pid).unwrap(), Signal::KILL);
    send(pid, Signal::KILL);
    running.harness.wait().unwrap();
    // The command is nobody's now; the servers are the folder's.
    for (pid, line) in processes_of(running.folder.path()) {
        if line.starts_with("sleep ") {
            send(pid, Signal::KILL);
        }
    }
    assert!(!processes_of(running.folder.path()).is_empty());
    let next = launch(running.folder.path(), "exit 0").wait_with_output().unwrap();
    assert!(next.status.success(), "{}", String::from_utf8_lossy(&next.stderr));
    nothing_left(running.folder.path(), &running.ports);
}

#[test]
fn after_ctrl_c_while_it_starts() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let mut harness = launch(folder.path(), "exit 0");
    let deadline = Instant::now() + crate::rigs::SOON;
    // The broker's start is the longest part.
    while !processes_of(folder.path()).iter().any(|(_, line)| line.contains("beam")) {
        assert!(Instant::now() < deadline);
        pause();
    }
    send(harness.id(), Signal::INT);
    assert_eq!(harness.wait().unwrap().code(), Some(130));
    nothing_left(folder.path(), &[]);
}

/// Not a test: holds a world on external servers until it is killed. Started by the next one.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "started by another test"]
async fn holds_a_world() {
    let request = RigRequest::from_env(RigChoice::External, None).unwrap();
    let rig = provision(&RigRequest { exe: crate::rigs::exe(), ..request }).await.unwrap();
    let _world = rig.world(&cell(&[]), 0, 0).await.unwrap();
    println!("holds {}", rig.run());
    std::future::pending::<()>().await;
}

fn holder(rig: &Rig) -> (Child, String) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "leftovers::holds_a_world", "--nocapture"])
        .envs(rig.environment())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let run = lines.find_map(|line| Some(line.unwrap().split_once("holds ")?.1.to_owned())).unwrap();
    (child, run)
}

#[tokio::test(flavor = "multi_thread")]
async fn databases_of_a_killed_run_go_from_servers_that_stay() {
    let rig = shared().await;
    let [(_, database_url), (_, amqp_url)] = rig.environment();
    let (broker, _channel) = channel(&amqp_url).await;

    let (mut child, run) = holder(&rig);
    let made = databases(&database_url, &run).await;
    assert_eq!(made.len(), 2);
    assert!(has_queue(&broker, &made[0]).await);
    child.kill().unwrap();
    until("the guard drops them", async || databases(&database_url, &run).await.is_empty()).await;
    until("the guard ends", async || guard_of(child.id()).is_none()).await;
    assert!(!has_queue(&broker, &made[1]).await && !has_exchange(&broker, &made[1]).await);
    child.wait().unwrap();

    // Without its guard they stay, until the next run comes.
    let (mut child, run) = holder(&rig);
    send(guard_of(child.id()).unwrap(), Signal::KILL);
    child.kill().unwrap();
    child.wait().unwrap();
    let next = async || provision(&on_servers_of(&rig)).await.unwrap().close().await.unwrap();
    until("the next run sweeps", async || {
        // The dead one's connections take the server a moment to notice.
        next().await;
        databases(&database_url, &run).await.is_empty()
    })
    .await;
    rig.close().await.unwrap();
}
