//! The inspector.

use harness::{database::Inspector, history::DatabaseUse};

use super::database::{Database, server_url, with_database};

/// Commits of [`work`]: the session starts with one and asks for its pid in a prepared statement (two), 100 inserts, 10
/// HOT updates, 10 updates of an indexed column; a delete that is rolled back is none.
const COMMITS: u64 = 123;

async fn work(database: &Database) {
    let mut writer = database.session("service").await;
    for id in 0..100 {
        writer.say(&format!("INSERT INTO event_outbox VALUES ({id}, 0, repeat('x', 100))")).await;
    }
    for id in 0..10 {
        writer.say(&format!("UPDATE event_outbox SET note = 'hot' WHERE id = {id}")).await;
        writer.say(&format!("UPDATE event_outbox SET state = 1 WHERE id = {id}")).await;
    }
    writer.say("BEGIN; DELETE FROM event_outbox WHERE id >= 60; ROLLBACK").await;
}

async fn inspected(database: &Database) -> DatabaseUse {
    let mut setup = database.session("service").await;
    setup
        .say(
            "DROP TABLE IF EXISTS event_outbox; CREATE TABLE event_outbox (id int PRIMARY KEY, state int, note text) \
             WITH (fillfactor = 50, autovacuum_enabled = off); CREATE INDEX outbox_state ON event_outbox (state)",
        )
        .await;
    sqlx::Connection::close(setup.connection).await.unwrap();
    let admin = server_url().parse().unwrap();
    let inspector = Inspector::start(std::slice::from_ref(&database.options), &admin, None).await.unwrap();
    work(database).await;
    // Two readings of a second each, so that its own commits are in the count.
    tokio::time::sleep(std::time::Duration::from_millis(2500)).await;
    let asked = std::time::Instant::now();
    let used = inspector.finish(0).await;
    // Nobody else is there, so there is nothing to wait for.
    assert!(asked.elapsed() < std::time::Duration::from_secs(4), "{:?}", asked.elapsed());
    used
}

#[test]
fn counters_are_those_of_the_work_and_not_of_the_inspector() {
    with_database(|database| async move {
        // Autovacuum visits a new database first, and commits there: the second or third attempt is undisturbed.
        let mut seen = Vec::new();
        for _ in 0..3 {
            let used = inspected(&database).await;
            assert_eq!((used.updates, used.hot_updates), (Some(20), Some(10)));
            // 20 versions that updates left, some of them pruned since; what a rollback did not delete is alive.
            let dead = used.dead_tuples_peak.unwrap();
            assert!((10..=20).contains(&dead), "{dead}");
            assert!(used.wal_bytes.unwrap() > 100 * 100, "{:?}", used.wal_bytes);
            let names: Vec<_> = used.relation_bytes.keys().map(String::as_str).collect();
            assert_eq!(names, ["event_outbox", "event_outbox (toast)", "event_outbox_pkey", "outbox_state"]);
            assert!(used.relation_bytes["event_outbox"] >= 8192 * 2);
            seen.push(used.commits);
            eprintln!("commits {seen:?}");
            if used.commits == Some(COMMITS) {
                return;
            }
        }
        panic!("commits {seen:?}, not {COMMITS}");
    });
}

#[test]
fn where_services_share_the_maintenance_database_commits_are_not_told() {
    with_database(|database| async move {
        let inspector =
            Inspector::start(std::slice::from_ref(&database.options), &database.options, None).await.unwrap();
        let used = inspector.finish(0).await;
        assert_eq!(used.commits, None);
        assert!(used.wal_bytes.is_some());
        // No outbox there: nothing to count, and no harm.
        assert_eq!((used.updates, used.dead_tuples_peak), (None, None));
        assert!(used.relation_bytes.is_empty());
    });
}

#[test]
fn a_database_that_is_not_there_is_named() {
    with_database(|database| async move {
        let gone = database.options.clone().database("nowhere");
        let admin = server_url().parse().unwrap();
        let error = Inspector::start(&[database.options.clone(), gone], &admin, None).await.map(drop);
        assert_eq!(error.expect_err("it cannot be read").database, "nowhere");
    });
}
