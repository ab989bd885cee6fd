//! The rig on real servers: what a cell gets, what is gone after, and what it says when there is none.

use std::{
    net::TcpListener,
    process::{Output, Stdio},
    time::{Duration, Instant},
};

use crate::rigs::{
    cell, channel, databases, has_exchange, has_queue, on_servers_of, provision, shared, until,
};
use futures_util::future::join_all;
use harness::{
    rig::{Rig, RigChoice, RigError, RigKind, RigRequest, World, link::Condition},
    scenario::Server,
};
use lapin::{
    BasicProperties, Channel, Confirmation,
    options::{BasicPublishOptions, ConfirmSelectOptions},
};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

/// A second rig that sees the first one's servers as somebody's.
async fn guest(rig: &Rig) -> Rig {
    provision(&on_servers_of(rig)).await.unwrap()
}

async fn publish(channel: &Channel, world: &World, service: usize) -> Confirmation {
    let exchange = world.services[service].exchange.as_str();
    let sent = channel.basic_publish(
        exchange.into(),
        "a.b".into(),
        BasicPublishOptions::default(),
        b"x",
        BasicProperties::default(),
    );
    sent.await.unwrap().await.unwrap()
}

async fn setting(database: &sqlx::postgres::PgConnectOptions, name: &str) -> String {
    let mut connection = PgConnection::connect_with(database).await.unwrap();
    let value = sqlx::query_scalar("SELECT setting FROM pg_settings WHERE name = $1")
        .bind(name)
        .fetch_one(&mut connection)
        .await
        .unwrap();
    connection.close().await.unwrap();
    value
}

#[tokio::test(flavor = "multi_thread")]
async fn a_world_is_what_its_cell_asks_for_and_gone_when_removed() {
    let rig = shared().await;
    let [(_, database_url), (_, amqp_url)] = rig.environment();
    assert!(rig.facts().postgres_version.starts_with(|c: char| c.is_ascii_digit()), "{:?}", rig.facts());
    assert!(rig.facts().rabbitmq_version.starts_with(|c: char| c.is_ascii_digit()), "{:?}", rig.facts());
    assert_eq!(rig.facts().postgres_settings.len(), 8);
    assert_eq!(rig.invalid(), Vec::<String>::new());
    assert!(!rig.facts().why.is_empty());
    assert!(databases(&database_url, rig.run()).await.is_empty(), "the probe's database is still there");
    let free = rig.free_connections().await.unwrap();
    assert!((1..300).contains(&free), "{free}");

    let cell = cell(&[("load.services", "3"), ("broker.max_length", "2"), ("broker.queue", "quorum")]);
    let world = rig.world(&cell, 4, 2).await.unwrap();
    let run = rig.run();
    let names: Vec<_> = world.services.iter().map(|service| service.database_name.clone()).collect();
    let expected: Vec<_> = (0..3).map(|service| format!("drainbench_{run}_c4r2_svc0{service}")).collect();
    assert_eq!(names, expected);
    assert_eq!(databases(&database_url, run).await, expected);
    for service in &world.services {
        let mut connection = PgConnection::connect_with(&service.database).await.unwrap();
        for table in ["event_outbox", "bench_write"] {
            let rows: i64 = sqlx::query_scalar(AssertSqlSafe(format!("SELECT count(*) FROM {table}")))
                .fetch_one(&mut connection)
                .await
                .unwrap();
            assert_eq!(rows, 0);
        }
        connection.close().await.unwrap();
    }

    // The queue takes two messages; from then on it may say no.
    assert_eq!(world.links.broker_connections(), 0);
    let (connection, drainer) = channel(world.links.broker_url(0, 0).as_str()).await;
    drainer.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
    assert_eq!(world.links.broker_connections(), 1);
    for _ in 0..2 {
        assert!(matches!(publish(&drainer, &world, 1).await, Confirmation::Ack(_)));
    }
    until("a full queue rejects", async || {
        matches!(publish(&drainer, &world, 1).await, Confirmation::Nack(_))
    })
    .await;
    connection.close(200, "bye".into()).await.unwrap();
    until("the broker has closed", async || world.links.broker_connections() == 0).await;

    world.remove().await.unwrap();
    assert!(databases(&database_url, run).await.is_empty());
    let (connection, _channel) = channel(&amqp_url).await;
    for name in &names {
        assert!(
            !has_queue(&connection, name).await && !has_exchange(&connection, name).await,
            "{name} is still there"
        );
    }
    rig.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn confirms_are_late_one_by_one_and_fast_in_a_pipeline() {
    let rig = shared().await;
    let world = rig.world(&cell(&[("broker.latency", "67ms")]), 0, 0).await.unwrap();
    let (_connection, channel) = channel(world.links.broker_url(0, 0).as_str()).await;
    channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();

    let begun = Instant::now();
    for _ in 0..10 {
        assert!(matches!(publish(&channel, &world, 0).await, Confirmation::Ack(_)));
    }
    let one_by_one = begun.elapsed();
    assert!(one_by_one >= Duration::from_millis(670), "{one_by_one:?}");

    // The machine may be busy with something else for one of the attempts.
    let mut fastest = Duration::MAX;
    for _ in 0..5 {
        let begun = Instant::now();
        let mut confirms = Vec::new();
        for _ in 0..1_000 {
            let exchange = world.services[0].exchange.as_str();
            let sent = channel.basic_publish(
                exchange.into(),
                "a.b".into(),
                BasicPublishOptions::default(),
                &[7; 340],
                BasicProperties::default(),
            );
            confirms.push(sent.await.unwrap());
        }
        for confirmed in join_all(confirms).await {
            assert!(matches!(confirmed.unwrap(), Confirmation::Ack(_)));
        }
        fastest = fastest.min(begun.elapsed());
    }
    println!("10 one by one: {one_by_one:?}; 1,000 in a pipeline: {fastest:?}");
    assert!(fastest >= Duration::from_millis(67), "{fastest:?}");
    assert!(fastest < Duration::from_millis(300), "{fastest:?}");

    let _cut =
        world.links.to(Server::Broker, None)[0].impose(Condition { cut: true, ..Condition::default() });
    until("cut ends it", async || world.links.broker_connections() == 0).await;
    world.remove().await.unwrap();
    rig.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_are_changed_on_servers_of_our_own_and_never_on_others() {
    let request = RigRequest::from_env(RigChoice::Local, None).unwrap();
    let rig = provision(&RigRequest { exe: crate::rigs::exe(), ..request }).await.unwrap();
    let [(_, database_url), _] = rig.environment();
    let slow = cell(&[("database.commit_delay", "20ms"), ("database.full_page_writes", "false")]);
    let world = rig.world(&slow, 0, 0).await.unwrap();
    for (name, value) in
        [("commit_delay", "20000"), ("commit_siblings", "0"), ("full_page_writes", "off"), ("fsync", "on")]
    {
        assert_eq!(setting(&world.admin, name).await, value, "{name}");
    }
    let mut connection = PgConnection::connect_with(&world.services[0].database).await.unwrap();
    let begun = Instant::now();
    sqlx::query("INSERT INTO bench_write (id, service, body) VALUES (gen_random_uuid(), 'svc00', 'x')")
        .execute(&mut connection)
        .await
        .unwrap();
    assert!(begun.elapsed() >= Duration::from_millis(20), "{:?}", begun.elapsed());
    connection.close().await.unwrap();
    let admin = world.admin.clone();
    world.remove().await.unwrap();
    until("set back", async || {
        setting(&admin, "commit_delay").await == "0" && setting(&admin, "full_page_writes").await == "on"
    })
    .await;

    // The same servers, as somebody's.
    let stranger = guest(&rig).await;
    match stranger.world(&slow, 0, 0).await {
        Err(error @ RigError::OwnRigsOnly { .. }) => {
            let said = error.to_string();
            assert!(said.contains("commit_delay = 20000") && said.contains("cell here"), "{said}");
        }
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("somebody's server was made slow"),
    }
    assert!(databases(&database_url, stranger.run()).await.is_empty());
    assert!(stranger.invalid().is_empty());
    stranger.close().await.unwrap();

    let mut connection = PgConnection::connect(&database_url).await.unwrap();
    for statement in ["ALTER SYSTEM SET fsync = off", "SELECT pg_reload_conf()"] {
        sqlx::raw_sql(statement).execute(&mut connection).await.unwrap();
    }
    connection.close().await.unwrap();
    until("fsync is off", async || setting(&admin, "fsync").await == "off").await;
    let careless = guest(&rig).await;
    let invalid = careless.invalid();
    assert!(invalid.len() == 1 && invalid[0].contains("fsync = off"), "{invalid:?}");
    careless.close().await.unwrap();
    rig.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_dropped_rig_made_on_servers_that_stay_is_gone() {
    let rig = shared().await;
    let [(_, database_url), (_, amqp_url)] = rig.environment();
    let guest = guest(&rig).await;
    assert_eq!(guest.facts().kind, RigKind::External);
    let run = guest.run().to_owned();
    let world = guest.world(&cell(&[]), 0, 0).await.unwrap();
    let queue = world.services[0].queue.clone();
    // A service that is still connected.
    let mut connection = PgConnection::connect_with(&world.services[0].database).await.unwrap();
    connection.ping().await.unwrap();
    drop(world);
    assert_eq!(databases(&database_url, &run).await.len(), 2);
    drop(guest);
    assert!(databases(&database_url, &run).await.is_empty());
    let (broker, _channel) = channel(&amqp_url).await;
    assert!(!has_queue(&broker, &queue).await);
    rig.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_sweeps_what_dead_runs_left_and_nothing_else() {
    let rig = shared().await;
    let [(_, database_url), (_, amqp_url)] = rig.environment();
    let mut admin = PgConnection::connect(&database_url).await.unwrap();
    let (broker, channel) = channel(&amqp_url).await;
    let random: String =
        sqlx::query_scalar("SELECT substr(md5(random()::text), 1, 7)").fetch_one(&mut admin).await.unwrap();
    let dead = format!("drainbench_a{random}_c0r0_svc00");
    let in_use = format!("drainbench_b{random}_c0r0_svc00");
    let other = format!("drainbench_c{random}");
    for name in [&dead, &in_use, &other] {
        sqlx::raw_sql(AssertSqlSafe(format!("CREATE DATABASE \"{name}\" TEMPLATE template0")))
            .execute(&mut admin)
            .await
            .unwrap();
    }
    for name in [&dead, &other] {
        channel.queue_declare(name.as_str().into(), Default::default(), Default::default()).await.unwrap();
    }
    let options: sqlx::postgres::PgConnectOptions = database_url.parse().unwrap();
    let user = PgConnection::connect_with(&options.database(&in_use)).await.unwrap();
    // A run that lives has its lock and nothing open.
    let living = guest(&rig).await;
    let world = living.world(&cell(&[]), 0, 0).await.unwrap();

    let sweeper = guest(&rig).await;
    let left: Vec<String> =
        sqlx::query_scalar("SELECT datname::text FROM pg_database").fetch_all(&mut admin).await.unwrap();
    assert!(!left.contains(&dead));
    assert!(!has_queue(&broker, &dead).await);
    for name in [&in_use, &other, &world.services[0].database_name] {
        assert!(left.contains(name), "{name} was somebody's");
    }
    assert!(has_queue(&broker, &other).await);
    assert!(has_queue(&broker, &world.services[0].queue).await);

    user.close().await.unwrap();
    sweeper.close().await.unwrap();
    world.remove().await.unwrap();
    living.close().await.unwrap();
    for name in [&in_use, &other] {
        sqlx::raw_sql(AssertSqlSafe(format!("DROP DATABASE IF EXISTS \"{name}\" WITH (FORCE)")))
            .execute(&mut admin)
            .await
            .unwrap();
    }
    channel.queue_delete(other.as_str().into(), Default::default()).await.unwrap();
    rig.close().await.unwrap();
}

/// `drainbench rig` with these variables and arguments, and neither servers of the environment nor a Docker engine.
fn drainbench(set: &[(&str, &str)], arguments: &[&str]) -> (Output, Duration) {
    let begun = Instant::now();
    let mut command = crate::rigs::alone();
    command.env("DOCKER_HOST", "unix:///nonexistent/docker.sock");
    let output = command.envs(set.iter().copied()).args(arguments).stdin(Stdio::null()).output().unwrap();
    (output, begun.elapsed())
}

fn fails(set: &[(&str, &str)], arguments: &[&str], expected: &[&str]) {
    ends(2, set, arguments, expected);
}

fn ends(code: i32, set: &[(&str, &str)], arguments: &[&str], expected: &[&str]) {
    let (output, took) = drainbench(set, arguments);
    let said =
        String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(code), "{said}");
    for words in expected {
        assert!(said.contains(words), "{words:?} is missing in: {said}");
    }
    assert!(!said.contains("hidden"), "a password in: {said}");
    assert!(!said.contains("it ran"), "{said}");
    assert!(took < Duration::from_secs(10), "{took:?}");
}

const RUN: [&str; 3] = ["--", "echo", "it ran"];

#[test]
fn unreachable_servers_are_named_without_their_password() {
    // One that accepts and never says a word, and a port that is closed.
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = mute.local_addr().unwrap();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let rig = [&["rig", "--rig", "external"], &RUN[..]].concat();
    for at in [silent, closed] {
        let database = format!("postgres://me:hidden@{at}/postgres?sslmode=disable");
        let amqp = format!("amqp://me:hidden@{closed}/%2f");
        let expected = [at.to_string(), "DRAINBENCH_DATABASE_URL".to_owned()];
        let expected: Vec<_> = expected.iter().map(String::as_str).collect();
        let set = [(crate::rigs::URLS[0], database.as_str()), (crate::rigs::URLS[1], amqp.as_str())];
        // Whichever is found out first is named.
        let (output, _) = drainbench(&set, &rig);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if said.contains("DRAINBENCH_AMQP_URL") {
            fails(&set, &rig, &[&closed.to_string(), "RabbitMQ"]);
        } else {
            fails(&set, &rig, &expected);
        }
    }
    drop(mute);
}

#[test]
fn a_variable_that_cannot_be_is_a_usage_error() {
    let external = [&["rig", "--rig", "external"], &RUN[..]].concat();
    let database = ("DRAINBENCH_DATABASE_URL", "postgres://u:hidden@h/d");
    ends(1, &[], &external, &["DRAINBENCH_DATABASE_URL and DRAINBENCH_AMQP_URL", "--rig local"]);
    ends(1, &[database], &external, &["needs DRAINBENCH_AMQP_URL"]);
    let tls = ("DRAINBENCH_AMQP_URL", "amqps://u:hidden@h?cacertfile=/no/such.pem");
    ends(1, &[database, tls], &external, &["DRAINBENCH_AMQP_URL", "cacertfile", "/no/such.pem"]);
    let image = ("DRAINBENCH_POSTGRES_IMAGE", "not an image");
    ends(
        1,
        &[image],
        &[&["rig"], &RUN[..]].concat(),
        &["DRAINBENCH_POSTGRES_IMAGE", "not an image", "postgres:17"],
    );
    let local = [&["rig", "--rig", "local", "--cpus", "2"], &RUN[..]].concat();
    ends(1, &[], &local, &["--cpus", "--rig docker"]);
    let docker = [&["rig", "--rig", "docker", "--pg-bin", "/usr/bin"], &RUN[..]].concat();
    ends(1, &[], &docker, &["--pg-bin", "--rig local"]);
    for (flag, value) in [("--cpus", "0"), ("--memory", "many"), ("--rabbitmq-image", "a b")] {
        ends(1, &[], &[&["rig", flag, value], &RUN[..]].concat(), &[flag, value]);
    }
}

#[test]
fn what_is_missing_is_named_with_the_way_out() {
    let nothing = ["rig", "--", "no-such-command"];
    fails(&[], &nothing, &["no command no-such-command", "PATH"]);
    let docker = [&["rig", "--rig", "docker"], &RUN[..]].concat();
    fails(&[], &docker, &["No Docker engine answers at unix:///nonexistent", "--rig local"]);
    let elsewhere = ("DOCKER_HOST", "tcp://build.example:2376");
    fails(&[elsewhere], &docker, &["build.example", "another machine", "--rig external"]);
    let local = [&["rig", "--rig", "local", "--pg-bin", "/nonexistent"], &RUN[..]].concat();
    fails(&[], &local, &["--pg-bin /nonexistent", "14 or newer"]);
    let auto = [&["rig", "--pg-bin", "/nonexistent"], &RUN[..]].concat();
    fails(&[], &auto, &["No rig works here", "not external", "not docker", "not local", "/nonexistent"]);
}

#[test]
fn doctor_says_what_is_there_and_what_is_missing() {
    let (output, _) = drainbench(&[], &["doctor", "--pg-bin", "/nonexistent"]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    for words in ["external: not here", "docker: not here", "local: not here", "/nonexistent", "No rig works"]
    {
        assert!(said.contains(words), "{words:?} is missing in: {said}");
    }
    let (output, _) = drainbench(&[], &["doctor"]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("local: works") && said.contains("--rig auto takes local"), "{said}");
}

/// Servers that somebody named are meant: `auto` fails with them, and so does what foretells it.
#[test]
fn doctor_does_not_promise_another_rig_than_the_one_that_is_named() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (database, amqp) = (format!("postgres://u:hidden@{closed}/d"), format!("amqp://u:hidden@{closed}"));
    let set = [(crate::rigs::URLS[0], database.as_str()), (crate::rigs::URLS[1], amqp.as_str())];
    fails(&set, &["doctor"], &["external: not here", "--rig auto takes external", "fails"]);
}

#[test]
fn a_request_shows_no_password() {
    let request: RigRequest = crate::rigs::external("postgres://u:hidden@h/d", "amqp://u:hidden@h");
    assert!(!format!("{request:?}").contains("hidden"));
}
