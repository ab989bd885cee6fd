//! Migrations and enqueue.

use std::{collections::BTreeMap, sync::Arc};

use drainer::{Design, EnqueueError, Migrated, migrate, migrate_all};
use sqlx::{Executor, postgres::PgConnectOptions};
use uuid::Uuid;

use crate::support::{World, assert_exactly_once, event, ids, pool, within_world};

const ALL: [&str; 2] = ["base/0001_event_outbox", "lease/0001_claims"];

/// A schema of its own in the world's database, as its `search_path`.
async fn schema(world: &World, name: &str) -> PgConnectOptions {
    let create = format!("CREATE SCHEMA {name}");
    world.pool.execute(sqlx::AssertSqlSafe(create)).await.unwrap();
    world.database().options([("search_path", name)])
}

async fn indexes(world: &World, schema: &str) -> Vec<String> {
    sqlx::query_scalar("SELECT indexname::text FROM pg_indexes WHERE schemaname = $1 AND tablename = 'event_outbox' ORDER BY 1")
        .bind(schema)
        .fetch_all(&world.pool)
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_design_gets_its_own_indexes_and_nothing_twice() {
    within_world(Design::SingleTx, |world: Arc<World>| async move {
        let base = ["event_outbox_pkey", "event_outbox_unpublished_idx"];
        assert_eq!(indexes(&world, "public").await, base);
        assert_eq!(migrate(&world.pool, Design::SingleTx).await.unwrap(), Migrated { applied: vec![] });
        // From the old design to the new one, with rows in it.
        let events = world.commit(2).await;
        assert_eq!(migrate(&world.pool, Design::Lease).await.unwrap().applied, [ALL[1]]);
        assert_eq!(migrate(&world.pool, Design::Lease).await.unwrap().applied, Vec::<String>::new());
        assert_eq!(
            indexes(&world, "public").await,
            ["event_outbox_lease_idx", "event_outbox_pkey", "event_outbox_unpublished_idx"]
        );
        let config = world.config().build().unwrap();
        let broker = drainer::Broker::new(&crate::support::broker_url(), "n", crate::support::SOON).unwrap();
        let drainer = drainer::Drainer::new(Design::Lease, world.pool.clone(), broker, config);
        world.drain_all(&drainer).await;
        assert_exactly_once(&events, &world.arrivals().await);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_at_the_same_time_apply_each_step_once() {
    within_world(Design::SingleTx, |world: Arc<World>| async move {
        let options = schema(&world, "crowd").await;
        let callers: Vec<_> = (0..6)
            .map(|_| {
                let pool = pool(options.clone(), 1);
                tokio::spawn(async move { migrate(&pool, Design::Lease).await.unwrap().applied })
            })
            .collect();
        let mut applied = Vec::new();
        for caller in callers {
            applied.extend(caller.await.unwrap());
        }
        applied.sort();
        assert_eq!(applied, ALL);
        assert_eq!(indexes(&world, "crowd").await.len(), 3);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_with_migrations_of_its_own_keeps_them() {
    within_world(Design::SingleTx, |world: Arc<World>| async move {
        let pool = pool(schema(&world, "service").await, 2);
        // As the client library makes it, with a step that we do not know.
        pool.execute(
            "CREATE TABLE _sqlx_migrations (version bigint PRIMARY KEY, description text NOT NULL, \
             installed_on timestamptz NOT NULL DEFAULT now(), success boolean NOT NULL, checksum bytea NOT NULL, \
             execution_time bigint NOT NULL); \
             INSERT INTO _sqlx_migrations VALUES (1, 'theirs', now(), true, '\\x00', 1)",
        )
        .await
        .unwrap();
        assert_eq!(migrate(&pool, Design::Lease).await.unwrap().applied, ALL);
        let theirs: i64 = sqlx::query_scalar("SELECT count(*) FROM _sqlx_migrations").fetch_one(&pool).await.unwrap();
        assert_eq!(theirs, 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_databases_are_reported_one_by_one() {
    within_world(Design::SingleTx, |world: Arc<World>| async move {
        let mut databases = Vec::new();
        for number in 0..19 {
            let name = format!("s{number}");
            databases.push((name.clone(), pool(schema(&world, &name).await, 1)));
        }
        databases[7].1 = pool(world.database().database("drainbench_test_missing"), 1);
        // Something of that name is there already and is no outbox.
        databases[11].1.execute("CREATE TABLE event_outbox (x int)").await.unwrap();
        let reports = migrate_all(&databases, Design::Lease).await;
        assert_eq!(reports.len(), 19);
        for (number, (name, outcome)) in reports.iter().enumerate() {
            assert_eq!(*name, format!("s{number}"));
            match (number, outcome) {
                (7, Err(error)) => assert!(error.to_string().contains("does not exist"), "{error}"),
                (11, Err(error)) => {
                    assert_eq!(error.step(), ALL[0]);
                    assert!(error.to_string().contains("already exists"), "{error}");
                }
                (_, Ok(done)) => assert_eq!(done.applied, ALL),
                (_, Err(error)) => panic!("{name}: {error}"),
            }
        }
        let journal: Option<String> =
            sqlx::query_scalar("SELECT to_regclass('s11.event_outbox_migrations')::text")
                .fetch_one(&world.pool)
                .await
                .unwrap();
        assert_eq!(journal, None, "the failed step was rolled back whole");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn enqueue_lives_and_dies_with_the_callers_transaction() {
    within_world(Design::SingleTx, |world: Arc<World>| async move {
        let mut tx = world.pool.begin().await.unwrap();
        let kept = event(1);
        drainer::enqueue(&mut tx, &kept).await.unwrap();
        // Refused before anything is sent: the transaction goes on.
        let nul = drainer::Event { key: Some("\0".to_owned()), ..event(2) };
        assert!(matches!(drainer::enqueue(&mut tx, &nul).await, Err(EnqueueError::Nul)));
        let reserved = BTreeMap::from([("x-publish-id".to_owned(), String::new())]);
        let reserved = drainer::Event { headers: reserved, ..event(3) };
        assert!(matches!(drainer::enqueue(&mut tx, &reserved).await, Err(EnqueueError::ReservedHeader)));
        tx.commit().await.unwrap();
        let stored: Vec<Uuid> = world.rows().await.iter().map(|row| row.id).collect();
        assert_eq!(stored, [kept.id]);

        // The same id again: the server refuses, and the transaction is over.
        let mut tx = world.pool.begin().await.unwrap();
        assert!(matches!(drainer::enqueue(&mut tx, &kept).await, Err(EnqueueError::Database(_))));
        assert!(drainer::enqueue(&mut tx, &event(4)).await.is_err());
        tx.rollback().await.unwrap();
        assert_eq!(world.rows().await.len(), 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_events_go_in_at_once() {
    within_world(Design::SingleTx, |world: Arc<World>| async move {
        let events: Vec<drainer::Event> = (0..1_001).map(event).collect();
        let mut tx = world.pool.begin().await.unwrap();
        drainer::enqueue_all(&mut tx, &events).await.unwrap();
        tx.commit().await.unwrap();
        let stored: std::collections::BTreeSet<Uuid> = world.rows().await.iter().map(|row| row.id).collect();
        assert_eq!(stored, ids(&events));
        let drainer = world.drainer(world.config().batch_size(1_001));
        drainer.drain_once().await.unwrap();
        assert_exactly_once(&events, &world.arrivals().await);
    })
    .await;
}
