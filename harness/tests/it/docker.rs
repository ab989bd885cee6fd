//! The rig in containers. Needs a Docker engine that answers and both images: `make rigs` sees to them.

use std::{
    fs,
    net::TcpListener,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use crate::{
    leftovers::{guard_of, send},
    rigs::{SOON, alone, cell, exe, provision, until, wait_until},
    scenarios::{SMALL, said, scenario},
};
use harness::{
    record::Record,
    rig::{RigChoice, RigKind, RigRequest},
};
use rustix::process::Signal;
use sqlx::{Connection as _, PgConnection};

/// What an engine has: containers, volumes and networks, those that are not ours as well.
#[derive(Debug, PartialEq)]
struct Inventory([String; 3]);

fn docker(arguments: &[&str]) -> String {
    let output = Command::new("docker").args(arguments).output().expect("there is a docker command");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn inventory() -> Inventory {
    Inventory([&["ps", "-aq"][..], &["volume", "ls", "-q"], &["network", "ls", "-q"]].map(docker))
}

fn drainbench(arguments: &[&str]) -> Command {
    let mut command = alone();
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// `drainbench rig --rig docker -- sh`, once its command runs.
fn running(folder: &std::path::Path) -> Child {
    let started = folder.join("started");
    // It ends when its parent is gone: nobody is left to end it where the guard is killed as well.
    let script = format!("touch {}; while kill -0 $PPID 2>/dev/null; do sleep 0.1; done", started.display());
    let child = drainbench(&["rig", "--rig", "docker", "--", "sh", "-c", &script]).spawn().unwrap();
    wait_for("the command runs", || started.exists());
    child
}

/// A container takes seconds to come or to go.
fn wait_for(what: &str, so: impl Fn() -> bool) {
    wait_until(what, 2 * SOON, so);
}

#[test]
#[ignore = "needs a Docker engine and images: make rigs"]
fn nothing_is_left_after_success_failure_and_signals() {
    let before = inventory();
    for (script, code) in [("exit 0", 0), ("exit 7", 7)] {
        let output = drainbench(&["rig", "--rig", "docker", "--", "sh", "-c", script]).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(inventory(), before, "after {script}");
    }
    for (signal, code) in [(Signal::INT, Some(130)), (Signal::TERM, Some(143)), (Signal::KILL, None)] {
        let folder = tempfile::tempdir().unwrap();
        let mut child = running(folder.path());
        assert_ne!(inventory(), before);
        send(child.id(), signal);
        assert_eq!(child.wait().unwrap().code(), code, "{signal:?}");
        // After a kill the guard takes a moment.
        wait_for("the containers are gone", || inventory() == before);
    }
}

#[test]
#[ignore = "needs a Docker engine and images: make rigs"]
fn the_next_start_sweeps_what_a_run_left_whose_guard_was_killed() {
    let before = inventory();
    let folder = tempfile::tempdir().unwrap();
    let mut dead = running(folder.path());
    let alive = tempfile::tempdir().unwrap();
    let mut living = running(alive.path());
    let of_the_living = docker(&["ps", "-q"]).lines().count() - 2;
    send(guard_of(dead.id()).unwrap(), Signal::KILL);
    send(dead.id(), Signal::KILL);
    dead.wait().unwrap();
    let next = drainbench(&["rig", "--rig", "docker", "--", "true"]).output().unwrap();
    let (_, said) = said(&next);
    assert_eq!(next.status.code(), Some(0), "{said}");
    assert!(said.contains("swept what a run that was killed had left: containers"), "{said}");
    assert_eq!(docker(&["ps", "-q"]).lines().count(), of_the_living, "the living run's are still there");
    assert_eq!(living.try_wait().unwrap(), None);
    send(living.id(), Signal::INT);
    living.wait().unwrap();
    assert_eq!(inventory(), before);
}

#[test]
#[ignore = "needs a Docker engine and images: make rigs"]
fn a_registry_that_is_silent_is_given_up_soon() {
    // One that accepts and never says a word.
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let image = format!("127.0.0.1:{}/postgres:17", mute.local_addr().unwrap().port());
    let begun = Instant::now();
    let asked = ["rig", "--rig", "docker", "--postgres-image", &image, "--", "echo", "it ran"];
    let output = drainbench(&asked).output().unwrap();
    let (stdout, stderr) = said(&output);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    for words in [&image, "cannot be pulled", "docker load", "--rig local"] {
        assert!(stderr.contains(words), "{words}: {stderr}");
    }
    assert!(!stdout.contains("it ran"));

    // A closed port says so at once; `auto` goes on to the next rig and says why.
    drop(mute);
    let output = drainbench(&["rig", "--postgres-image", &image, "--", "echo", "it ran"]).output().unwrap();
    let (stdout, stderr) = said(&output);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert!(stdout.contains("it ran"));
    for words in
        ["not docker: Image", "local: its binaries are there", "not used, because there are no containers"]
    {
        assert!(stderr.contains(words), "{words}: {stderr}");
    }
}

#[test]
#[ignore = "needs a Docker engine and images: make rigs"]
fn an_image_that_is_no_server_is_named_with_its_log() {
    let before = inventory();
    let other = std::env::var("DRAINBENCH_RABBITMQ_IMAGE").expect("make rigs sets it");
    let asked = ["rig", "--rig", "docker", "--postgres-image", &other, "--", "true"];
    let output = drainbench(&asked).output().unwrap();
    let (_, said) = said(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("PostgreSQL did not start"), "{said}");
    assert_eq!(inventory(), before);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a Docker engine and images: make rigs"]
async fn settings_limits_and_secrets() {
    let mut request = RigRequest::from_env(RigChoice::Docker, None).unwrap();
    request.exe = exe();
    request.wishes.scenario.cpus = Some("1.5".parse().unwrap());
    request.wishes.scenario.memory = Some("1GiB".parse().unwrap());
    let rig = provision(&request).await.unwrap();
    let facts = rig.facts();
    assert_eq!(facts.kind, RigKind::Docker);
    let containers = facts.containers.clone().unwrap();
    assert!(containers.postgres_image_id.starts_with("sha256:"), "{containers:?}");
    for name in ["fsync", "synchronous_commit", "full_page_writes"] {
        assert_eq!(facts.postgres_settings[name], "on", "{name}");
    }
    assert_eq!(facts.postgres_settings["max_connections"], "300");

    for server in ["postgres", "rabbitmq"] {
        let name = format!("drainbench_{}_{server}", rig.run());
        let inspected: serde_json::Value = serde_json::from_str(&docker(&["inspect", &name])).unwrap();
        let host = &inspected[0]["HostConfig"];
        assert_eq!(
            (host["NanoCpus"].as_i64(), host["Memory"].as_i64()),
            (Some(1_500_000_000), Some(1 << 30))
        );
        let ports = inspected[0]["NetworkSettings"]["Ports"].as_object().unwrap();
        let published: Vec<_> = ports.values().filter_map(|port| port.as_array()).flatten().collect();
        assert!(
            !published.is_empty() && published.iter().all(|port| port["HostIp"] == "127.0.0.1"),
            "{ports:?}"
        );
        for (_, url) in rig.environment() {
            let password =
                url.split_once("://").unwrap().1.split_once('@').unwrap().0.split_once(':').unwrap().1;
            assert!(!inspected.to_string().contains(password), "{server}: a password");
        }
    }

    // The server is ours: its settings are as well.
    let world = rig.world(&cell(&[("database.commit_delay", "20ms")]), 0, 0).await.unwrap();
    let mut connection = PgConnection::connect_with(&world.services[0].database).await.unwrap();
    let begun = Instant::now();
    sqlx::query("INSERT INTO bench_write (id, service, body) VALUES (gen_random_uuid(), 'svc00', 'x')")
        .execute(&mut connection)
        .await
        .unwrap();
    assert!(begun.elapsed() >= Duration::from_millis(20), "{:?}", begun.elapsed());
    connection.close().await.unwrap();
    world.remove().await.unwrap();

    // A dropped rig takes them along.
    let name = format!("drainbench_{}_", rig.run());
    drop(rig);
    until("they are gone", async || docker(&["ps", "-aq", "--filter", &format!("name={name}")]).is_empty())
        .await;
}

#[test]
#[ignore = "needs a Docker engine and images: make rigs"]
fn the_same_verdict_and_the_record_names_images() {
    let before = inventory();
    let dir = tempfile::tempdir().unwrap();
    let file = scenario(dir.path(), SMALL);
    let out = dir.path().join("out");
    let mut command = drainbench(&["verify", "--rig", "docker", "--set", "broker.queue=quorum"]);
    let output = command.arg(file).arg("--out").arg(&out).output().unwrap();
    let (stdout, stderr) = said(&output);
    assert_eq!(output.status.code(), Some(0), "{stdout}{stderr}");
    let record = Record::read(&out.join("record.json")).unwrap();
    let facts = record.rig.unwrap().containers.unwrap();
    assert_eq!(facts.postgres_image.to_string(), std::env::var("DRAINBENCH_POSTGRES_IMAGE").unwrap());
    let report = fs::read_to_string(out.join("report.md")).unwrap();
    assert!(report.contains(&facts.postgres_image_id) && report.contains(&facts.engine), "{report}");
    assert_eq!(inventory(), before);
}

#[test]
#[ignore = "needs a Docker engine and images: make rigs"]
fn doctor_names_the_engine_and_the_images() {
    let too_many = drainbench(&["rig", "--rig", "docker", "--cpus", "1024", "--", "true"]).output().unwrap();
    assert_eq!(too_many.status.code(), Some(1), "{:?}", said(&too_many));
    assert!(said(&too_many).1.contains("1024 CPUs are more"), "{:?}", said(&too_many));
    let output = drainbench(&["doctor"]).output().unwrap();
    let (stdout, stderr) = said(&output);
    assert_eq!(output.status.code(), Some(0), "{stdout}{stderr}");
    for words in ["docker: works", "Docker ", "is there", "--rig auto takes docker"] {
        assert!(stdout.contains(words), "{words}: {stdout}");
    }
}
