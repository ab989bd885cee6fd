//! One cell, run in process: what its history holds, and what a verdict makes of an instrument that failed.

use std::{
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

use harness::{
    history::{History, Outcome},
    live::Live,
    measure,
    plan::Plan,
    rig::{RigChoice, RigRequest, World},
    run::{self, Setting},
    sampler::Who,
    scenario::{self, Overrides, Scenario},
    verdict::{self, MeasuredCell, Outcome as VerdictOutcome},
};
use sqlx::ConnectOptions as _;
use tokio_util::sync::CancellationToken;

const RATE: f64 = 100.0;
const STOPPED: Duration = Duration::from_secs(2);

/// A scenario of one cell.
fn one_cell(design: &str, set: &[(&str, &str)]) -> Scenario {
    let overrides = Overrides {
        set: set.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        designs: Some(vec![design.to_owned()]),
        ..Overrides::default()
    };
    let text = crate::scenarios::SMALL.split("[[symptom]]").next().expect("there is a first part");
    scenario::load("small", text, &overrides).expect("it is valid")
}

/// Runs its last cell, with something happening beside it.
async fn history(scenario: &Scenario, beside: impl AsyncFnOnce(&World, &Live)) -> History {
    crate::scenarios::rig_urls();
    let cell = scenario.cells.last().expect("there is a cell");
    let mut request = RigRequest::from_env(RigChoice::Auto, None).expect("the environment is fine");
    request.exe = env!("CARGO_BIN_EXE_drainbench").into();
    let rig = crate::rigs::provision(&request).await.expect("there is a rig");
    let world = rig.world(cell, 0, 1).await.expect("there is a world");
    let stop = CancellationToken::new();
    let live = Arc::new(Live::default());
    let setting = Setting { cell, rig: &rig, world: &world, stop: &stop, exe: &request.exe, live: &live };
    let running = run::run(setting, Plan::new(scenario.seed, cell, 1), scenario.seed);
    let (history, ()) = tokio::join!(running, beside(&world, &live));
    world.remove().await.expect("the world goes");
    rig.close().await.expect("the rig goes");
    history.expect("the cell ran")
}

/// The open loop itself: the schedule goes on while the database stands still, and the generator is not late for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_stops_for_two_seconds_makes_two_seconds_of_slow_writes() {
    let load = [("load.rate", "100"), ("load.services", "1"), ("load.duration", "6s"), ("service.pool", "5")];
    let scenario = one_cell("none", &load);
    let history = Box::pin(history(&scenario, async |world: &World, live: &Live| {
        stop_backends(&world.admin, &world.services[0].database_name, live).await;
    }))
    .await;

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
    let found = measure::measure(&history, scenario.cells.last().expect("there is a cell"), None);
    assert!(found.named("persist.max") >= Some(1_800.0), "{:?}", found.named("persist.max"));
    assert!(found.named("lag.p99") < Some(50.0), "the generator waited: {:?}", found.named("lag.p99"));
}

/// Zero rows of a drainer that was never seen prove nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_sampler_that_cannot_see_the_drainer_makes_the_cell_invalid() {
    let scenario = one_cell("lease", &[("load.duration", "2s")]);
    let mut history = Box::pin(history(&scenario, async |_: &World, _: &Live| {})).await;
    let cell = scenario.cells.last().expect("there is a cell");
    let judged = |history: &History| {
        let measured = MeasuredCell {
            label: cell.label.clone(),
            role: cell.role,
            design: cell.design,
            round: 1,
            measurements: measure::measure(history, cell, None),
            troubles: history.troubles.clone(),
            void: Vec::new(),
            misconduct: Vec::new(),
            cut: None,
        };
        verdict::judge(&scenario, &[measured], &[])
    };
    assert_eq!(judged(&history).exit_code, 0, "{:?}", judged(&history).reasons);

    history.samples.rows.retain(|row| row.who == Who::Foreground);
    let verdict = judged(&history);
    assert_eq!((verdict.outcome, verdict.exit_code), (VerdictOutcome::Invalid, 5));
    assert!(verdict.reasons.iter().any(|reason| reason.text.contains("sampler")), "{:?}", verdict.reasons);
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
