//! What only claims have.

use std::{sync::Arc, time::Duration};

use drainer::Design;
use harness::rig::link::Link;
use tokio::time::Instant;

use crate::support::{
    SOON, World, assert_at_least_once, broker_address, eventually, listener, times, url_through, within_world,
};

/// A claimer that is slower than its lease: the second one takes over, the late marks of the first change nothing and
/// are counted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_mark_changes_nothing() {
    within_world(Design::Lease, |world: Arc<World>| async move {
        let events = world.commit(2).await;
        let line = Link::start(broker_address(), Duration::from_millis(700)).await.unwrap();
        let (observer, told) = listener();
        let short = Duration::from_millis(300);
        let config = world.config().id("slow").pipeline_depth(1).lease_ttl(short);
        let slow = world.drainer_by(config, &url_through(line.addr()), SOON).observed_by(observer);
        let ticking = tokio::spawn(async move { slow.drain_once().await });
        eventually("both are claimed", async || {
            world.rows().await.iter().all(|row| row.claimed_by.as_deref() == Some("slow"))
        })
        .await;
        let second = world.drainer(world.config().id("second").pipeline_depth(1).lease_ttl(short));
        let started = Instant::now();
        while world.unpublished().await > 0 {
            second.drain_once().await.unwrap();
            assert!(started.elapsed() < SOON);
        }
        let rows = world.rows().await;
        let stats = ticking.await.unwrap().unwrap();
        assert_eq!((stats.confirmed, stats.failed), (2, 0));
        assert_eq!(told.lock().unwrap()[0].lost_leases, 2);
        assert_eq!(world.rows().await, rows, "the late mark found nothing of its own");
        assert!(rows.iter().all(|row| row.published && row.attempts == 0));
        let arrivals = world.arrivals().await;
        assert_at_least_once(&events, &arrivals);
        assert!(times(&arrivals).values().all(|times| *times == 2), "published by both");
    })
    .await;
}

/// As in the reference: poison at the head fills every batch, and `attempts` is counted and not read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_of_poison_blocks_but_does_not_spin() {
    within_world(Design::Lease, |world: Arc<World>| async move {
        sqlx::query("INSERT INTO event_outbox (id, payload) SELECT gen_random_uuid(), '{}' FROM generate_series(1, 10)")
            .execute(&world.pool)
            .await
            .unwrap();
        world.commit(1).await;
        let (observer, told) = listener();
        let config = world.config().batch_size(10).poll_interval(Duration::from_millis(300));
        let drainer = world.drainer(config).observed_by(observer);
        let stop = tokio_util::sync::CancellationToken::new();
        let running = tokio::spawn({
            let stop = stop.clone();
            async move { drainer.run(stop).await }
        });
        let started = Instant::now();
        eventually("three ticks", async || told.lock().unwrap().len() >= 3).await;
        assert!(started.elapsed() >= Duration::from_millis(600), "a full batch of which nothing went out must pause");
        stop.cancel();
        running.await.unwrap();
        assert_eq!(world.unpublished().await, 11);
    })
    .await;
}
