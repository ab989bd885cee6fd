//! The `drainer` binary.

use std::{
    process::{Output, Stdio},
    sync::Arc,
    time::Duration,
};

use drainer::{Design, Tick};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
    time::timeout,
};

use crate::{
    child,
    support::{SOON, World, assert_exactly_once, broker_url, eventually, within_world},
};

async fn signal(child: &Child, name: &str) {
    let kill = format!("kill -{name} {}", child.id().unwrap());
    assert!(Command::new("sh").args(["-c", &kill]).status().await.unwrap().success());
}

async fn ended(child: Child) -> Output {
    timeout(SOON, child.wait_with_output()).await.expect("the drainer ends").unwrap()
}

/// Without servers: arguments and settings only.
async fn run_with(arguments: &[&str], settings: &[(&str, &str)]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_drainer"));
    let output = timeout(SOON, command.args(arguments).envs(settings.iter().copied()).output())
        .await
        .unwrap()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    (output.status.code(), text.into_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_json_line_a_tick_until_it_is_told_to_stop() {
    within_world(Design::Lease, |world: Arc<World>| async move {
        let events = world.commit(12).await;
        let settings =
            [("DRAINER_ID", "lines"), ("DRAINER_BATCH_SIZE", "10"), ("DRAINER_POLL_INTERVAL_MS", "50")];
        let mut command = child(&world, &broker_url(), &settings);
        let mut drainer = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(drainer.stdout.take().unwrap()).lines();
        let mut ticks: Vec<Tick> = Vec::new();
        for _ in 0..3 {
            let line = timeout(SOON, lines.next_line()).await.unwrap().unwrap().unwrap();
            ticks.push(serde_json::from_str(&line).unwrap());
        }
        assert_eq!(ticks.iter().map(|tick| tick.stats.confirmed).collect::<Vec<_>>(), [10, 2, 0]);
        assert!(
            (1..=2).contains(&world.sessions("drainer:lines", "%").await),
            "a pool of two, under the drainer's name"
        );
        assert_exactly_once(&events, &world.arrivals().await);
        signal(&drainer, "TERM").await;
        drop(lines);
        let output = ended(drainer).await;
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_ends_when_nobody_reads_any_more() {
    within_world(Design::Lease, |world: Arc<World>| async move {
        let settings = [("DRAINER_ID", "orphan"), ("DRAINER_POLL_INTERVAL_MS", "20")];
        let mut command = child(&world, &broker_url(), &settings);
        let mut drainer = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(drainer.stdout.take().unwrap()).lines();
        timeout(SOON, lines.next_line()).await.unwrap().unwrap().unwrap();
        drop(lines);
        drop(drainer.stderr.take());
        assert_eq!(ended(drainer).await.status.code(), Some(0));
        eventually("its sessions are gone", async || world.sessions("drainer:orphan", "%").await == 0).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_migrates_many_and_drains_many() {
    within_world(Design::SingleTx, |world: Arc<World>| async move {
        let url = |name: &str| {
            let url = world.database_url();
            let sign = if url.contains('?') { '&' } else { '?' };
            format!("{name}={url}{sign}options[search_path]={name}")
        };
        for name in ["alpha", "beta"] {
            let create = format!("CREATE SCHEMA {name}");
            sqlx::raw_sql(sqlx::AssertSqlSafe(create)).execute(&world.pool).await.unwrap();
        }
        let urls = format!("{} {}", url("alpha"), url("beta"));
        let command = || {
            let mut command = child(&world, &broker_url(), &[("DRAINER_DATABASE_URLS", &urls)]);
            command.env_remove("DRAINER_DATABASE_URL").env("DRAINER_DESIGN", "lease");
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            command
        };
        // Not migrated: says so, and what to do.
        let output = ended(command().spawn().unwrap()).await;
        assert_eq!(output.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&output.stderr).contains("run `drainer migrate`"));

        for expected in ["applied base/0001_event_outbox, lease/0001_claims", "up to date"] {
            let output = ended(command().arg("migrate").spawn().unwrap()).await;
            assert_eq!(output.status.code(), Some(0));
            let said = String::from_utf8(output.stdout).unwrap();
            assert_eq!(said, format!("alpha: {expected}\nbeta: {expected}\n"));
        }

        let mut drainer = command().spawn().unwrap();
        let mut lines = BufReader::new(drainer.stdout.take().unwrap()).lines();
        let mut seen = std::collections::BTreeSet::new();
        while seen.len() < 2 {
            let line = timeout(SOON, lines.next_line()).await.unwrap().unwrap().unwrap();
            let line: serde_json::Value = serde_json::from_str(&line).unwrap();
            seen.insert(line["database"].as_str().unwrap().to_owned());
        }
        signal(&drainer, "INT").await;
        drop(lines);
        assert_eq!(ended(drainer).await.status.code(), Some(0));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_are_away_are_waited_for_and_no_password_is_told() {
    within_world(Design::Lease, |world: Arc<World>| async move {
        let settings = [
            ("DRAINER_DATABASE_URL", "postgres://me:hunter2@127.0.0.1:1/none"),
            ("DRAINER_AMQP_URL", "amqp://me:hunter2@127.0.0.1:1/%2f"),
            ("DRAINER_STATEMENT_TIMEOUT_MS", "200"),
        ];
        let mut command = child(&world, &broker_url(), &settings);
        let mut drainer = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(drainer.stdout.take().unwrap()).lines();
        let mut told = String::new();
        for _ in 0..2 {
            told += &timeout(SOON, lines.next_line()).await.unwrap().unwrap().unwrap();
        }
        assert!(told.contains("claim "), "{told}");
        signal(&drainer, "TERM").await;
        drop(lines);
        let output = ended(drainer).await;
        assert_eq!(output.status.code(), Some(0));
        told += &String::from_utf8_lossy(&output.stderr);
        assert!(!told.contains("hunter2"), "{told}");
    })
    .await;
}

#[tokio::test]
async fn usage_and_settings_are_checked_before_anything_is_connected() {
    let (code, said) = run_with(&["--help"], &[]).await;
    assert_eq!(code, Some(0));
    assert!(said.contains("DRAINER_LEASE_TTL_SECS") && said.contains("drainer migrate"));

    let (code, said) = run_with(&["postgres://me:hunter2@h/x"], &[]).await;
    assert_eq!(code, Some(1));
    assert!(said.contains("--help") && !said.contains("hunter2"), "{said}");

    let url = ("DRAINER_DATABASE_URL", "postgres://me:hunter2@127.0.0.1:1/x");
    let amqp = ("DRAINER_AMQP_URL", "amqp://me:hunter2@127.0.0.1:1");
    for (wrong, expected) in [
        (("DRAINER_BATCH_SIZE", "0"), "DRAINER_BATCH_SIZE is 0: it must be 1 to 10000"),
        (
            ("CANOPY_MQ_DRAINER_LEASE_TTL_SECS", "3"),
            "CANOPY_MQ_DRAINER_LEASE_TTL_SECS is 3000 ms: it must be at least",
        ),
        (("DRAINER_DESIGN", "none"), "DRAINER_DESIGN is \"none\": it must be single-tx or lease"),
        (("DRAINER_AMQP_URL", "hunter2"), "DRAINER_AMQP_URL is no such URL"),
    ] {
        let (code, said) = run_with(&[], &[url, amqp, wrong]).await;
        assert_eq!(code, Some(1), "{said}");
        assert!(said.starts_with(&format!("drainer: {expected}")), "{said}");
        assert!(!said.contains("hunter2"), "{said}");
    }
    let (code, said) = run_with(&["migrate"], &[url, ("DRAINER_STATEMENT_TIMEOUT_MS", "300")]).await;
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("1 of 1 databases were not migrated") && !said.contains("hunter2"), "{said}");
}

/// Silence on the way out is no reason to hang: the reader is there and does not read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_is_stuck_does_not_stop_the_drain() {
    within_world(Design::Lease, |world: Arc<World>| async move {
        let settings = [("DRAINER_POLL_INTERVAL_MS", "1")];
        let mut command = child(&world, &broker_url(), &settings);
        let drainer = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // 64 kB of pipe are about 400 ticks; each commit after that shows that the drain goes on.
        for _ in 0..20 {
            let events = world.commit(1).await;
            eventually("it is published", async || world.unpublished().await == 0).await;
            assert_exactly_once(&events, &world.arrivals().await);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        signal(&drainer, "TERM").await;
        assert_eq!(ended(drainer).await.status.code(), Some(0));
    })
    .await;
}
