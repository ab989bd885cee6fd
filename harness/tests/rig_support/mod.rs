//! What the rig's tests share.

#![allow(dead_code, reason = "each test binary uses its part")]

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use harness::{
    rig::{AMQP_URL, DATABASE_URL, Rig, RigChoice, RigRequest},
    scenario::{Cell, Overrides},
};
use lapin::{Channel, Connection, ConnectionProperties};
use sqlx::{Connection as _, PgConnection};

/// Longest wait for something that must happen.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// The binary, which is its own guard.
pub(crate) fn exe() -> PathBuf {
    env!("CARGO_BIN_EXE_drainbench").into()
}

/// The servers of `drainbench rig --` where the tests run under it, else private ones.
pub(crate) async fn shared() -> Rig {
    let request = RigRequest::from_env(RigChoice::Auto, None).unwrap();
    Rig::provision(&RigRequest { exe: exe(), ..request }).await.unwrap()
}

/// A second rig on the servers of `rig`, as on servers that stay.
pub(crate) fn on_servers_of(rig: &Rig) -> RigRequest {
    let [(_, database), (_, amqp)] = rig.environment();
    external(&database, &amqp)
}

pub(crate) fn external(database: &str, amqp: &str) -> RigRequest {
    RigRequest {
        choice: RigChoice::External,
        pg_bin: None,
        exe: exe(),
        external: (Some(database.to_owned()), Some(amqp.to_owned())),
    }
}

/// The control of the smallest scenario with these settings.
pub(crate) fn cell(set: &[(&str, &str)]) -> Cell {
    const TEXT: &str =
        "name = \"t\"\n[load]\nservices = 2\nrate = 10\n[[cell]]\nlabel = \"here\"\ndesign = \"none\"\n";
    let set = set.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let scenario = harness::scenario::load("t", TEXT, &Overrides { set, ..Overrides::default() }).unwrap();
    scenario.cells[0].clone()
}

/// Asks until it is so.
pub(crate) async fn until(what: &str, mut so: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !so().await {
        assert!(Instant::now() < deadline, "not within {} s: {what}", SOON.as_secs());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Databases of a run.
pub(crate) async fn databases(database_url: &str, run: &str) -> Vec<String> {
    let mut connection = PgConnection::connect(database_url).await.unwrap();
    let found = sqlx::query_scalar(
        "SELECT datname::text FROM pg_database WHERE starts_with(datname::text, $1) ORDER BY 1",
    )
    .bind(format!("drainbench_{run}_"))
    .fetch_all(&mut connection)
    .await
    .unwrap();
    connection.close().await.unwrap();
    found
}

/// A channel of a connection that must be kept.
pub(crate) async fn channel(url: &str) -> (Connection, Channel) {
    let connection = Connection::connect(url, ConnectionProperties::default()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    (connection, channel)
}

/// Whether a queue is there. A no closes the channel, so it gets one of its own.
pub(crate) async fn has_queue(connection: &Connection, name: &str) -> bool {
    let passive = lapin::options::QueueDeclareOptions { passive: true, ..Default::default() };
    let channel = connection.create_channel().await.unwrap();
    channel.queue_declare(name.into(), passive, Default::default()).await.is_ok()
}

/// Whether an exchange is there.
pub(crate) async fn has_exchange(connection: &Connection, name: &str) -> bool {
    let passive = lapin::options::ExchangeDeclareOptions { passive: true, ..Default::default() };
    let channel = connection.create_channel().await.unwrap();
    channel
        .exchange_declare(name.into(), lapin::ExchangeKind::Topic, passive, Default::default())
        .await
        .is_ok()
}

/// Every process.
pub(crate) fn pids() -> Vec<u32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Every process that has `folder` in its environment or works in it, with its command line: what was started with
/// `folder` as TMPDIR, its children and theirs, whatever they call themselves.
pub(crate) fn processes_of(folder: &Path) -> Vec<(u32, String)> {
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

pub(crate) fn command_line(pid: u32) -> String {
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

/// The names under which a command finds the rig.
pub(crate) const URLS: [&str; 2] = [DATABASE_URL, AMQP_URL];
