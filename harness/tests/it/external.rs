//! Servers that are somebody's: roles that may do little, and databases that others use as well.

use std::path::Path;

use crate::{
    rigs::{channel, has_queue, shared},
    scenarios::verify_external as verify,
};
use harness::{record::Record, rig::Separation};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, postgres::PgConnectOptions};

/// What the role is allowed beside LOGIN is in `attributes`; its password is the name.
async fn role(admin: &mut PgConnection, attributes: &str) -> String {
    let random: String =
        sqlx::query_scalar("SELECT substr(md5(random()::text), 1, 12)").fetch_one(&mut *admin).await.unwrap();
    let name = format!("test_{random}");
    run(admin, &format!("CREATE ROLE {name} LOGIN {attributes} PASSWORD '{name}'")).await;
    name
}

async fn run(connection: &mut PgConnection, statement: &str) {
    sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).execute(connection).await.unwrap();
}

/// The URL of the shared rig's PostgreSQL for somebody else.
fn url_of(database_url: &str, role: &str, database: &str) -> String {
    let options: PgConnectOptions = database_url.parse().unwrap();
    let (host, port) = (options.get_host(), options.get_port());
    format!("postgres://{role}:{role}@{host}:{port}/{database}?sslmode=disable")
}

fn record(dir: &Path) -> Record {
    Record::read(&dir.join("out/record.json")).unwrap()
}

/// Databases and schemas of all runs that this server's role may see.
async fn leftovers(database_url: &str) -> Vec<String> {
    let mut connection = PgConnection::connect(database_url).await.unwrap();
    let left = sqlx::query_scalar(
        "SELECT nspname::text FROM pg_namespace WHERE starts_with(nspname, 'drainbench_')",
    )
    .fetch_all(&mut connection)
    .await
    .unwrap();
    connection.close().await.unwrap();
    left
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_that_may_only_make_databases_is_enough_and_the_report_says_what_is_missing() {
    let rig = shared().await;
    let [(_, database_url), (_, amqp_url)] = rig.environment();
    let mut admin = PgConnection::connect(&database_url).await.unwrap();
    let role = role(&mut admin, "CREATEDB").await;
    let dir = tempfile::tempdir().unwrap();
    let placement = ["--set", "drainer.placement=process"];
    let (code, said) = verify(dir.path(), &url_of(&database_url, &role, "postgres"), &amqp_url, &placement);
    assert_eq!(code, Some(0), "{said}");
    let record = record(dir.path());
    let facts = record.rig.unwrap();
    assert_eq!(facts.separation, Separation::Databases);
    for words in ["no CHECKPOINT", "pg_monitor"] {
        assert!(facts.why.iter().any(|why| why.contains(words)), "{words}: {:?}", facts.why);
    }
    let report = std::fs::read_to_string(dir.path().join("out/report.md")).unwrap();
    assert!(report.contains("no CHECKPOINT before a cell"), "{report}");
    let new = record.cells.last().unwrap();
    assert_eq!(new.audit.tally.delivered, new.counts.committed_events);
    assert!(new.metric("db.commits_per_event").is_some(), "{:?}", new.unmeasured);
    assert_eq!(new.metric("idle_in_tx.rows"), Some(0.0));
    run(&mut admin, &format!("DROP ROLE {role}")).await;
    rig.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn without_databases_services_get_schemas_and_what_others_do_beside_them_is_not_counted() {
    let rig = shared().await;
    let [(_, database_url), (_, amqp_url)] = rig.environment();
    let mut admin = PgConnection::connect(&database_url).await.unwrap();
    let role = role(&mut admin, "").await;
    run(&mut admin, &format!("CREATE DATABASE {role}_db")).await;
    run(&mut admin, &format!("GRANT CREATE ON DATABASE {role}_db TO {role}")).await;
    let url = url_of(&database_url, &role, &format!("{role}_db"));
    // Somebody who works there: idle in a transaction, and called like a drainer of another run.
    let stranger: PgConnectOptions = url.parse().unwrap();
    let mut stranger =
        PgConnection::connect_with(&stranger.application_name("drainer:zzzz9999:svc00:0")).await.unwrap();
    // What a dead run left, and a schema that is nobody's business.
    let dead = "drainbench_dead0001_c0r0_svc00";
    run(&mut stranger, &format!("CREATE SCHEMA {dead}; CREATE SCHEMA drainbench_mine")).await;
    run(&mut stranger, "BEGIN").await;
    let (broker, broker_channel) = channel(&amqp_url).await;
    broker_channel.queue_declare(dead.into(), Default::default(), Default::default()).await.unwrap();

    let dir = tempfile::tempdir().unwrap();
    let (code, said) = verify(dir.path(), &url, &amqp_url, &["--set", "drainer.placement=process"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("drainbench_dead0001_..."), "the sweep is told: {said}");
    let record = record(dir.path());
    let facts = record.rig.clone().unwrap();
    assert_eq!(facts.separation, Separation::Schemas);
    assert!(facts.why.iter().any(|why| why.contains("schemas instead of databases")), "{:?}", facts.why);
    let new = record.cells.last().unwrap();
    assert_eq!(new.audit.tally.delivered, new.counts.committed_events);
    assert_eq!(new.metric("idle_in_tx.rows"), Some(0.0), "the stranger was counted");
    assert!(new.unmeasured["db.commits_per_event"].contains("share a database"), "{:?}", new.unmeasured);
    assert!(new.metric("db.wal_bytes_per_event").is_some(), "{:?}", new.unmeasured);
    assert_eq!(leftovers(&url).await, ["drainbench_mine"]);
    assert!(!has_queue(&broker, dead).await);

    // The old design is caught there as well.
    let out = tempfile::tempdir().unwrap();
    let (code, said) = verify(out.path(), &url, &amqp_url, &["--designs", "single-tx"]);
    assert_eq!(code, Some(3), "{said}");
    assert_eq!(leftovers(&url).await, ["drainbench_mine"]);

    stranger.close().await.unwrap();
    run(&mut admin, &format!("DROP DATABASE {role}_db WITH (FORCE)")).await;
    run(&mut admin, &format!("DROP ROLE {role}")).await;
    rig.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_that_may_do_too_little_is_told_both_ways_out() {
    let rig = shared().await;
    let [(_, database_url), (_, amqp_url)] = rig.environment();
    let mut admin = PgConnection::connect(&database_url).await.unwrap();
    let nothing = role(&mut admin, "").await;
    let dir = tempfile::tempdir().unwrap();
    let (code, said) = verify(dir.path(), &url_of(&database_url, &nothing, "postgres"), &amqp_url, &[]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("CREATEDB") && said.contains("GRANT CREATE ON DATABASE"), "{said}");

    let few = role(&mut admin, "CREATEDB CONNECTION LIMIT 3").await;
    let (code, said) = verify(dir.path(), &url_of(&database_url, &few, "postgres"), &amqp_url, &[]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("connections"), "{said}");
    for role in [nothing, few] {
        run(&mut admin, &format!("DROP ROLE {role}")).await;
    }
    rig.close().await.unwrap();
}
