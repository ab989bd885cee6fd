//! One suite for every design, against real servers: `DRAINBENCH_DATABASE_URL` (with the right to create databases)
//! and `DRAINBENCH_AMQP_URL`. Run `make test`, or `drainbench rig -- cargo nextest run`.

#![expect(clippy::unwrap_used, reason = "a test tells by panicking")]

mod cases;
mod support;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use drainer::{Design, DrainStats, ErrorClass, PUBLISH_ID_HEADER};
use harness::rig::link::{Condition, Link};
use sqlx::types::Json;
use tokio::{process::Command, time::Instant};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use support::{
    RowState, SOON, World, assert_at_least_once, assert_exactly_once, broker_address, event, eventually, ids,
    listener, pool, times, url_through, within_world,
};

macro_rules! for_every_design {
    ($($test:ident),* $(,)?) => {
        mod single_tx {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    super::within_world(drainer::Design::SingleTx, super::$test).await;
                }
            )*
        }
        mod lease {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    super::within_world(drainer::Design::Lease, super::$test).await;
                }
            )*
        }
    };
}

for_every_design!(
    publishes_all_and_only_what_was_committed,
    a_message_carries_the_event,
    oldest_events_go_first,
    poison_counts_an_attempt_and_stops_nobody,
    a_full_queue_counts_an_attempt,
    an_exchange_that_is_not_there_is_an_error_and_loses_nothing,
    a_broker_that_is_down_costs_no_attempt,
    a_broker_lost_in_the_middle_is_recovered_from,
    a_silent_broker_ends_the_tick,
    killed_in_the_middle_loses_nothing,
    two_drainers_publish_nothing_twice,
    a_stop_finishes_the_batch,
    a_stop_that_takes_too_long_gives_back,
    a_dropped_tick_leaves_no_transaction_in_the_pool,
    a_drainer_is_seen_for_what_it_is,
    the_run_goes_on_after_errors,
);

async fn publishes_all_and_only_what_was_committed(world: Arc<World>) {
    let events = world.commit(25).await;
    let mut tx = world.pool.begin().await.unwrap();
    drainer::enqueue(&mut tx, &event(1000)).await.unwrap();
    tx.rollback().await.unwrap();

    let (observer, told) = listener();
    let drainer = world.drainer(world.config()).observed_by(observer);
    let mut stats = Vec::new();
    for _ in 0..4 {
        stats.push(drainer.drain_once().await.unwrap());
    }
    let of = |rows| DrainStats { claimed: rows, confirmed: rows, failed: 0 };
    assert_eq!(stats, [of(10), of(10), of(5), of(0)]);
    assert_exactly_once(&events, &world.arrivals().await);
    for row in world.rows().await {
        assert_eq!(
            row,
            RowState { id: row.id, published: true, attempts: 0, last_error: None, claimed_by: None }
        );
    }
    let told = told.lock().unwrap();
    let statements: Vec<u64> = told.iter().map(|tick| tick.statements).collect();
    match world.design {
        // BEGIN, the read, an UPDATE a row, COMMIT.
        Design::SingleTx => assert_eq!(statements, [13, 13, 8, 3]),
        // Claim and mark; of nothing only the claim.
        Design::Lease => assert_eq!(statements, [2, 2, 2, 1]),
    }
    assert_eq!(told[0].confirm_us.len(), 10);
    assert!(told[0].claim_us.is_some() && told[0].mark_us.is_some() && told[0].error.is_none());
    assert_eq!((told[3].mark_us, told[3].released, told[3].lost_leases), (None, 0, 0));
}

async fn a_message_carries_the_event(world: Arc<World>) {
    let events = world.commit(3).await;
    world.drain_all(&world.drainer(world.config())).await;
    let arrivals = world.arrivals().await;
    let mut publishes = BTreeSet::new();
    for (event, arrival) in events.iter().zip(&arrivals) {
        assert_eq!(arrival.id(), event.id);
        assert_eq!(arrival.exchange, world.name);
        assert_eq!(arrival.routing_key, event.event_type.as_str());
        let properties = &arrival.properties;
        assert_eq!(properties.kind().as_ref().unwrap().as_str(), event.event_type.as_str());
        assert_eq!(properties.content_type().as_ref().unwrap().as_str(), "application/json");
        assert_eq!(*properties.delivery_mode(), Some(2), "persistent");
        assert_eq!(*properties.timestamp(), Some(1_770_091_506));
        assert_eq!(arrival.header("tenant").as_ref(), event.headers.get("tenant"));
        publishes.insert(arrival.header(PUBLISH_ID_HEADER).unwrap().parse::<Uuid>().unwrap());

        let body: serde_json::Value = serde_json::from_slice(&arrival.body).unwrap();
        assert_eq!(body, serde_json::from_str::<serde_json::Value>(&event.to_json()).unwrap());
        let fields = String::from_utf8_lossy(&arrival.body);
        assert!(fields.starts_with(&format!("{{\"id\":\"{}\",\"event_type\":", event.id)), "{fields}");
    }
    assert_eq!((arrivals.len(), publishes.len()), (3, 3), "each publish has an id of its own");
}

async fn oldest_events_go_first(world: Arc<World>) {
    let events = world.commit(30).await;
    world.drain_all(&world.drainer(world.config())).await;
    let arrived: Vec<Uuid> = world.arrivals().await.iter().map(support::Arrival::id).collect();
    assert_eq!(arrived, events.iter().map(|event| event.id).collect::<Vec<_>>());
}

async fn put(world: &World, payload: serde_json::Value) -> Uuid {
    let id = Uuid::new_v4();
    let insert =
        sqlx::query("INSERT INTO event_outbox (id, payload) VALUES ($1, $2)").bind(id).bind(Json(payload));
    insert.execute(&world.pool).await.unwrap();
    id
}

async fn row(world: &World, id: Uuid) -> RowState {
    world.rows().await.into_iter().find(|row| row.id == id).unwrap()
}

async fn poison_counts_an_attempt_and_stops_nobody(world: Arc<World>) {
    let no_event = put(&world, serde_json::json!({ "hello": 1 })).await;
    let no_object = put(&world, serde_json::json!("x".repeat(2000))).await;
    let mut long: serde_json::Value = serde_json::from_str(&event(0).to_json()).unwrap();
    long["event_type"] = serde_json::json!("x".repeat(256));
    let unroutable = put(&world, long).await;
    let events = world.commit(3).await;

    let drainer = world.drainer(world.config());
    let stats = drainer.drain_once().await.unwrap();
    assert_eq!(stats, DrainStats { claimed: 6, confirmed: 3, failed: 3 });
    assert_exactly_once(&events, &world.arrivals().await);
    for (id, why) in
        [(no_event, "missing field `id`"), (no_object, "deserialise: "), (unroutable, "256 bytes")]
    {
        let row = row(&world, id).await;
        let error = row.last_error.clone().unwrap_or_default();
        assert!(error.contains(why) && error.len() <= 500, "{error}");
        assert_eq!((row.published, row.attempts, row.claimed_by), (false, 1, None));
    }
    drainer.drain_once().await.unwrap();
    assert_eq!(row(&world, no_event).await.attempts, 2, "it is tried again: nothing reads `attempts`");
}

async fn a_full_queue_counts_an_attempt(world: Arc<World>) {
    world.limit_queue(3).await;
    let events = world.commit(5).await;
    let drainer = world.drainer(world.config().pipeline_depth(1));
    let stats = drainer.drain_once().await.unwrap();
    assert_eq!(stats, DrainStats { claimed: 5, confirmed: 3, failed: 2 });
    for (event, row) in events.iter().zip(world.rows().await).skip(3) {
        assert_eq!((row.id, row.published, row.attempts, row.claimed_by), (event.id, false, 1, None));
        assert!(row.last_error.unwrap().starts_with("nack: "));
    }
    let mut arrivals = world.arrivals().await;
    world.drain_all(&drainer).await;
    arrivals.extend(world.arrivals().await);
    assert_exactly_once(&events, &arrivals);
    assert_eq!(world.rows().await[4].attempts, 1, "a success keeps what was counted");
}

async fn an_exchange_that_is_not_there_is_an_error_and_loses_nothing(world: Arc<World>) {
    let events = world.commit(2).await;
    let lost = world.drainer(world.config().exchange("drainbench_test_nowhere"));
    match (world.design, lost.drain_once().await) {
        // The broker closes the channel: lost, so rolled back.
        (Design::SingleTx, Err(error)) => assert!(error.to_string().contains("NOT_FOUND"), "{error}"),
        // Each row is blamed, as in the reference.
        (Design::Lease, Ok(stats)) => assert_eq!(stats.failed, 2),
        (_, other) => panic!("{other:?}"),
    }
    assert_eq!(world.unpublished().await, 2);
    world.drain_all(&world.drainer(world.config())).await;
    assert_exactly_once(&events, &world.arrivals().await);
}

const CUT: Condition = Condition {
    delay: Duration::ZERO,
    jitter: Duration::ZERO,
    stalled: false,
    cut: true,
    reset_after: None,
    bandwidth: None,
};

async fn line(delay: Duration) -> (Link, String) {
    let line = Link::start(broker_address(), delay).await.unwrap();
    let url = url_through(line.addr());
    (line, url)
}

/// Nobody holds anything and nobody was blamed.
fn assert_untouched(rows: &[RowState]) {
    for row in rows {
        assert_eq!((row.published, row.attempts, &row.last_error, &row.claimed_by), (false, 0, &None, &None));
    }
}

async fn a_broker_that_is_down_costs_no_attempt(world: Arc<World>) {
    let events = world.commit(4).await;
    let (line, url) = line(Duration::ZERO).await;
    let cut = line.impose(CUT);
    let (observer, told) = listener();
    let drainer = world.drainer_by(world.config(), &url, Duration::from_secs(2)).observed_by(observer);
    let error = drainer.drain_once().await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Infrastructure);
    assert!(
        error.to_string().starts_with(&format!("could not connect at the broker {}", line.addr())),
        "{error}"
    );
    assert_untouched(&world.rows().await);
    let released = told.lock().unwrap()[0].released;
    assert_eq!(released, if world.design == Design::Lease { 4 } else { 0 });

    drop(cut);
    world.drain_all(&drainer).await;
    assert_exactly_once(&events, &world.arrivals().await);
    assert!(world.rows().await.iter().all(|row| row.attempts == 0));
}

async fn a_broker_lost_in_the_middle_is_recovered_from(world: Arc<World>) {
    let events = world.commit(10).await;
    let (line, url) = line(Duration::from_millis(150)).await;
    let drainer = Arc::new(world.drainer_by(world.config().pipeline_depth(2), &url, SOON));
    let ticking = tokio::spawn({
        let drainer = Arc::clone(&drainer);
        async move { drainer.drain_once().await }
    });
    eventually("some of the batch is at the broker", async || world.queued().await >= 3).await;
    let cut = line.impose(CUT);
    let outcome = ticking.await.unwrap();
    let rows = world.rows().await;
    match (world.design, outcome) {
        (Design::SingleTx, Err(error)) => {
            assert_eq!(error.class(), ErrorClass::Infrastructure);
            assert_untouched(&rows);
        }
        (Design::Lease, Ok(stats)) => {
            assert_eq!((stats.claimed, stats.confirmed + stats.failed), (10, 10));
            assert!((1..10).contains(&stats.confirmed), "{stats:?}");
            for row in &rows {
                assert_eq!((row.attempts, &row.claimed_by), (i32::from(!row.published), &None));
                assert_eq!(row.last_error.is_some(), !row.published);
            }
        }
        (_, other) => panic!("{other:?}"),
    }
    drop(cut);
    world.drain_all(&drainer).await;
    assert_at_least_once(&events, &world.arrivals().await);
}

async fn a_silent_broker_ends_the_tick(world: Arc<World>) {
    let events = world.commit(6).await;
    let (_line, url) = line(Duration::from_millis(400)).await;
    let hasty = world.config().pipeline_depth(2).confirm_timeout(Duration::from_millis(50));
    let (observer, told) = listener();
    let drainer = world.drainer_by(hasty, &url, SOON).observed_by(observer);
    let error = drainer.drain_once().await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Infrastructure);
    let rows = world.rows().await;
    match world.design {
        Design::SingleTx => assert_untouched(&rows),
        Design::Lease => {
            // Two were on their way and are blamed, as when the connection is lost; the others were never tried.
            let attempts: Vec<i32> = rows.iter().map(|row| row.attempts).collect();
            assert_eq!(attempts, [1, 1, 0, 0, 0, 0]);
            assert!(rows.iter().all(|row| row.claimed_by.is_none()));
            assert_eq!(rows[0].last_error.as_deref(), Some("no confirm within 50 ms"));
            let told = told.lock().unwrap();
            assert_eq!((told[0].stats.failed, told[0].released), (2, 4));
        }
    }
    world.drain_all(&world.drainer(world.config())).await;
    assert_at_least_once(&events, &world.arrivals().await);
}

/// The `drainer` binary on this world. It is killed when dropped.
fn child(world: &World, amqp_url: &str, settings: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_drainer"));
    command.kill_on_drop(true).stdin(std::process::Stdio::null());
    command.env("DRAINER_DATABASE_URL", world.database_url());
    command.env("DRAINER_AMQP_URL", amqp_url);
    command.env("DRAINER_EXCHANGE", &world.name);
    command.env("DRAINER_DESIGN", world.design.as_str());
    command.envs(settings.iter().copied());
    command
}

async fn killed_in_the_middle_loses_nothing(world: Arc<World>) {
    let events = world.commit(10).await;
    let (_line, url) = line(Duration::from_millis(300)).await;
    let settings =
        [("DRAINER_ID", "victim"), ("DRAINER_PIPELINE_DEPTH", "1"), ("DRAINER_LEASE_TTL_SECS", "3600")];
    let mut victim = child(&world, &url, &settings).stdout(std::process::Stdio::null()).spawn().unwrap();
    eventually("some of the batch is at the broker", async || world.queued().await >= 3).await;
    victim.kill().await.unwrap();
    let before = world.arrivals().await;
    assert!(before.len() < 10, "the kill came too late to test anything");
    // The server notices the closed socket; until then the old design's rows stay locked.
    eventually("the killed drainer's sessions are gone", async || {
        world.sessions("drainer:victim", "%").await == 0
    })
    .await;
    let rows = world.rows().await;
    let holder = match world.design {
        Design::SingleTx => None,
        Design::Lease => Some("victim".to_owned()),
    };
    for row in &rows {
        assert_eq!((row.published, row.attempts, &row.claimed_by), (false, 0, &holder));
    }
    if world.design == Design::Lease {
        let patient = world.drainer(world.config().lease_ttl(Duration::from_secs(3600)));
        assert_eq!(
            patient.drain_once().await.unwrap().claimed,
            0,
            "the lease holds beyond the claimer's death"
        );
    }
    // It lapses for whoever waits no longer than that.
    let heir = world.drainer(world.config().pipeline_depth(1).lease_ttl(Duration::from_millis(300)));
    world.drain_all(&heir).await;
    assert!(world.rows().await.iter().all(|row| row.attempts == 0 && row.claimed_by.is_none()));
    let after = world.arrivals().await;
    assert_exactly_once(&events, &after);
    assert!(
        times(&before).keys().all(|id| ids(&events).contains(id)),
        "what came before the kill comes again"
    );
}

async fn two_drainers_publish_nothing_twice(world: Arc<World>) {
    let events = world.commit(300).await;
    let stop = CancellationToken::new();
    let (observer, told) = listener();
    let running: Vec<_> = ["left", "right"]
        .map(|id| {
            let drainer =
                world.drainer(world.config().id(id).batch_size(7)).observed_by(Arc::clone(&observer));
            let stop = stop.clone();
            tokio::spawn(async move { drainer.run(stop).await })
        })
        .into();
    eventually("everything is published", async || world.unpublished().await == 0).await;
    stop.cancel();
    for drainer in running {
        drainer.await.unwrap();
    }
    assert_exactly_once(&events, &world.arrivals().await);
    assert!(told.lock().unwrap().iter().all(|tick| tick.lost_leases == 0 && tick.error.is_none()));
}

async fn a_stop_finishes_the_batch(world: Arc<World>) {
    let events = world.commit(15).await;
    let (line, url) = line(Duration::from_millis(50)).await;
    let drainer = world.drainer_by(world.config().pipeline_depth(1), &url, SOON);
    let stop = CancellationToken::new();
    let running = tokio::spawn({
        let stop = stop.clone();
        async move { drainer.run(stop).await }
    });
    eventually("some of the batch is at the broker", async || world.queued().await >= 2).await;
    stop.cancel();
    running.await.unwrap();
    let rows = world.rows().await;
    assert_eq!(rows.iter().filter(|row| row.published).count(), 10, "this batch, and no other");
    assert!(rows.iter().all(|row| row.claimed_by.is_none()));
    assert_exactly_once(&events[..10], &world.arrivals().await);
    eventually("the broker has closed the connection", async || line.connections() == 0).await;
}

async fn a_stop_that_takes_too_long_gives_back(world: Arc<World>) {
    let events = world.commit(10).await;
    let (_line, url) = line(Duration::from_secs(1)).await;
    // A quarter of it is for giving back, which on a busy disk takes a while.
    let within = Duration::from_secs(4);
    let (observer, told) = listener();
    let config = world.config().pipeline_depth(1).stop_within(within);
    let drainer = world.drainer_by(config, &url, SOON).observed_by(observer);
    let stop = CancellationToken::new();
    let running = tokio::spawn({
        let stop = stop.clone();
        async move { drainer.run(stop).await }
    });
    eventually("some of the batch is at the broker", async || world.queued().await >= 1).await;
    let asked = Instant::now();
    stop.cancel();
    running.await.unwrap();
    // A second more for the broker's goodbye, and one for a slow machine.
    assert!(asked.elapsed() < within + Duration::from_secs(2), "{:?}", asked.elapsed());
    let rows = world.rows().await;
    match world.design {
        Design::SingleTx => assert_untouched(&rows),
        Design::Lease => {
            let published = rows.iter().filter(|row| row.published).count();
            assert!((1..10).contains(&published), "{published}");
            assert!(rows.iter().all(|row| row.attempts == 0 && row.claimed_by.is_none()), "{rows:?}");
            let last = told.lock().unwrap().last().unwrap().clone();
            assert_eq!(last.released + last.stats.confirmed, 10);
            assert!(last.error.unwrap().starts_with("stopped before the batch was done"));
        }
    }
    world.drain_all(&world.drainer(world.config())).await;
    assert_at_least_once(&events, &world.arrivals().await);
}

async fn a_dropped_tick_leaves_no_transaction_in_the_pool(world: Arc<World>) {
    world.commit(5).await;
    let (_line, url) = line(Duration::from_millis(200)).await;
    let config = world.config().id("dropped").pipeline_depth(1).build().unwrap();
    let one = pool(world.database().application_name("drainer:dropped"), 1);
    let broker = drainer::Broker::new(&url, "dropped", SOON).unwrap();
    let drainer = drainer::Drainer::new(world.design, one.clone(), broker, config);
    let ticking = tokio::spawn(async move { drainer.drain_once().await.map(|_| ()) });
    eventually("some of the batch is at the broker", async || world.queued().await >= 1).await;
    ticking.abort();
    assert!(ticking.await.unwrap_err().is_cancelled());

    // The pool's only connection, as the service would take it.
    let mut conn = one.acquire().await.unwrap();
    let held: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND relation = 'event_outbox'::regclass",
    )
    .fetch_one(&mut *conn)
    .await
    .unwrap();
    assert_eq!(held, 0, "the service would work in the drainer's transaction");
    let free = "SELECT count(*) FROM (SELECT id FROM event_outbox FOR UPDATE SKIP LOCKED) AS free";
    eventually("no row is locked", async || {
        sqlx::query_scalar::<_, i64>(free).fetch_one(&world.pool).await.unwrap() == 5
    })
    .await;
    assert_eq!(world.sessions("drainer:dropped", "idle in transaction%").await, 0);
}

async fn a_drainer_is_seen_for_what_it_is(world: Arc<World>) {
    world.commit(5).await;
    let (_line, url) = line(Duration::from_millis(200)).await;
    let drainer = world.drainer_by(world.config().id("seen").pipeline_depth(1), &url, SOON);
    let ticking = tokio::spawn(async move { drainer.drain_once().await.map(|_| ()) });
    eventually("some of the batch is at the broker", async || world.queued().await >= 2).await;
    let seen: (String, String) = sqlx::query_as(
        "SELECT state, query FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'drainer:seen'",
    )
    .fetch_one(&world.pool)
    .await
    .unwrap();
    match world.design {
        // This is the flaw: a transaction that waits for the broker.
        Design::SingleTx => {
            assert_eq!(seen.0, "idle in transaction");
            assert!(seen.1.starts_with("/* drainer:mark */") || seen.1.starts_with("/* drainer:claim */"));
        }
        // And this its absence.
        Design::Lease => {
            assert_eq!(seen.0, "idle");
            assert!(seen.1.starts_with("/* drainer:claim */"), "{}", seen.1);
        }
    }
    ticking.await.unwrap().unwrap();
}

async fn the_run_goes_on_after_errors(world: Arc<World>) {
    let (line, url) = line(Duration::ZERO).await;
    let cut = line.impose(CUT);
    let (observer, told) = listener();
    let drainer = world.drainer_by(world.config(), &url, Duration::from_secs(2)).observed_by(observer);
    let stop = CancellationToken::new();
    let running = tokio::spawn({
        let stop = stop.clone();
        async move { drainer.run(stop).await }
    });
    let mut events = world.commit(3).await;
    let errors = || told.lock().unwrap().iter().filter(|tick| tick.error.is_some()).count();
    eventually("it failed more than once", async || errors() >= 2).await;
    drop(cut);
    eventually("it came back", async || world.unpublished().await == 0).await;
    drop(line.impose(CUT));
    events.extend(world.commit(3).await);
    eventually("it came back again", async || world.unpublished().await == 0).await;
    stop.cancel();
    running.await.unwrap();
    assert_at_least_once(&events, &world.arrivals().await);
}
