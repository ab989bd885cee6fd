//! What the rig's tests share.

use std::{
    path::PathBuf,
    process::Command,
    time::{Duration, Instant},
};

use harness::{
    rig::{AMQP_URL, DATABASE_URL, Rig, RigChoice, RigError, RigRequest, Wishes},
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
    provision(&RigRequest { exe: exe(), ..request }).await.unwrap()
}

/// Brings a rig up, in silence.
pub(crate) async fn provision(request: &RigRequest) -> Result<Rig, RigError> {
    Rig::provision(request, &|_| {}).await
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
        wishes: Wishes::default(),
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

/// The same where there is no async code: probes with a deadline.
#[expect(clippy::disallowed_methods, reason = "no async code; the pause of a probe with a deadline")]
pub(crate) fn wait_until(what: &str, within: Duration, so: impl Fn() -> bool) {
    let deadline = Instant::now() + within;
    while !so() {
        assert!(Instant::now() < deadline, "not within {} s: {what}", within.as_secs());
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A loopback port that was free a moment ago.
pub(crate) fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// The program without the servers of the environment.
pub(crate) fn alone() -> Command {
    let mut command = Command::new(exe());
    for name in URLS {
        command.env_remove(name);
    }
    command
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

/// The names under which a command finds the rig.
pub(crate) const URLS: [&str; 2] = [DATABASE_URL, AMQP_URL];
