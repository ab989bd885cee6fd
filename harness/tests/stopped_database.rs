//! The open loop itself: a database that stops for two seconds shows as two seconds times the rate of slow writes, and
//! the generator is not late for it.

mod support;

use std::{
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

use harness::{
    history::Outcome,
    live::Live,
    measure,
    plan::Plan,
    rig::{Rig, RigChoice, RigRequest},
    run::{self, Setting},
    scenario::{self, Overrides},
};
use sqlx::ConnectOptions as _;
use tokio_util::sync::CancellationToken;

const RATE: f64 = 100.0;
const STOPPED: Duration = Duration::from_secs(2);

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_stops_for_two_seconds_makes_two_seconds_of_slow_writes() {
    support::rig_urls();
    let overrides = Overrides {
        set: [("load.rate", "100"), ("load.services", "1"), ("load.duration", "6s"), ("service.pool", "5")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .to_vec(),
        designs: Some(vec!["none".to_owned()]),
        ..Overrides::default()
    };
    let text = support::SMALL.split("[[symptom]]").next().expect("there is a first part").to_owned();
    let scenario = scenario::load("small", &text, &overrides).expect("it is valid");
    let cell = scenario.cells.last().expect("there is a cell");
    let mut request = RigRequest::from_env(RigChoice::Auto, None).expect("the environment is fine");
    request.exe = env!("CARGO_BIN_EXE_drainbench").into();
    let rig = Rig::provision(&request).await.expect("there is a rig");
    let world = rig.world(cell, 0, 1).await.expect("there is a world");
    let stop = CancellationToken::new();
    let live = Arc::new(Live::default());
    let setting = Setting { cell, rig: &rig, world: &world, stop: &stop, exe: &request.exe, live: &live };
    let plan = Plan::new(scenario.seed, cell, 1);
    let running = run::run(setting, plan, scenario.seed);
    let database = world.services[0].database_name.clone();
    let (history, ()) = tokio::join!(running, stop_backends(&world.admin, &database, &live));
    let history = history.expect("the cell ran");
    world.remove().await.expect("the world goes");
    rig.close().await.expect("the rig goes");

    let planned = RATE * STOPPED.as_secs_f64();
    let slow = history.services[0]
        .writes
        .iter()
        .filter(|write| write.outcome != Outcome::Failed && write.ended_ns - write.due_ns > 100_000_000)
        .count();
    // A write due in the last 100 ms of the stop is not slower than that; some before the stop wait behind it.
    assert!(
        (slow as f64 - planned).abs() < planned * 0.2,
        "{slow} slow writes, {planned} were due in the stop"
    );
    let found = measure::measure(&history, cell, None);
    assert!(found.named("persist.max") >= Some(1_800.0), "{:?}", found.named("persist.max"));
    assert!(found.named("lag.p99") < Some(50.0), "the generator waited: {:?}", found.named("lag.p99"));
}

/// SIGSTOP to every backend of the load two seconds into it, SIGCONT two seconds later.
async fn stop_backends(admin: &sqlx::postgres::PgConnectOptions, database: &str, live: &Live) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while live.read().0 < 200 {
        assert!(Instant::now() < deadline, "the load did not begin");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let mut connection = admin.connect().await.expect("the server answers");
    let backends =
        "SELECT pid FROM pg_stat_activity WHERE datname = $1 AND application_name LIKE 'drainbench:%'";
    let pids: Vec<i32> =
        sqlx::query_scalar(backends).bind(database).fetch_all(&mut connection).await.expect("it is a query");
    assert_eq!(pids.len(), 5, "the whole pool is stopped");
    signal("-STOP", &pids);
    tokio::time::sleep(STOPPED).await;
    signal("-CONT", &pids);
}

fn signal(signal: &str, pids: &[i32]) {
    let status = Command::new("kill").arg(signal).args(pids.iter().map(i32::to_string)).status();
    assert!(status.expect("kill is there").success());
}
