//! The foreground: writes at a fixed schedule, whatever became of the ones before.
//!
//! Open loop. A dispatcher a service sleeps until each absolute due instant and starts the write on a task of its
//! own, so a slow database meets the arrivals it would meet in production. A write that starts late is still made,
//! and its lateness counts: latency runs from due.

use std::{sync::Arc, time::Duration};

use drainer::{Event, EventType};
use jiff::Timestamp;
use serde_json::value::RawValue;
use sqlx::{Acquire, PgConnection, PgPool};
use tokio::{sync::mpsc, task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{
    clock::Clock,
    history::{EventRef, Outcome, Write},
    live::Live,
    plan::{Payloads, Plan},
    scenario::WriteKind,
};

/// Writes of a backlog in one transaction. Larger ones gain nothing (measured by the COMMIT's share); smaller ones
/// make a backlog of a million take minutes.
const BACKLOG_CHUNK: u32 = 500;

/// How long writes in flight may take to end once the run was interrupted.
const INTERRUPT_GRACE: Duration = Duration::from_secs(5);

/// How long they may take once the last one is due: a database that accepts a statement and never answers would hold the
/// run for ever. What is cut off then is unsure, with its time.
const LAST_ENDS_WITHIN: Duration = Duration::from_mins(5);

/// One service that writes.
#[derive(Debug, Clone)]
pub struct Client {
    /// Place in the plan.
    pub service: u16,
    /// Its connections, which an in-service drainer shares.
    pub pool: PgPool,
}

/// What every write needs.
#[derive(Debug, Clone)]
pub struct Work {
    /// What is to be written.
    pub plan: Arc<Plan>,
    /// The bytes of it.
    pub payloads: Arc<Payloads>,
    /// The cell's clock.
    pub clock: Clock,
    /// What a person watching sees.
    pub live: Arc<Live>,
    /// Told of each write whose COMMIT returned: service, place of the write.
    pub committed: Option<mpsc::UnboundedSender<(u16, u32)>>,
}

/// Why a backlog could not be written.
#[derive(Debug, thiserror::Error)]
#[error("the backlog of {service} could not be committed after {done} writes: {source}")]
pub struct BacklogError {
    service: String,
    done: u32,
    #[source]
    source: Box<dyn std::error::Error + Send + Sync>,
}

/// Commits a service's backlog in the order of the plan.
///
/// # Errors
/// When the database refuses; what was committed until then stays.
pub async fn backlog(client: &Client, work: &Work) -> Result<Vec<Write>, BacklogError> {
    let plan = &work.plan.services[usize::from(client.service)];
    let mut first = 0;
    while first < plan.backlog {
        let last = plan.backlog.min(first + BACKLOG_CHUNK);
        let chunk = backlog_chunk(client, work, first..last).await;
        chunk.map_err(|source| BacklogError { service: plan.name.clone(), done: first, source })?;
        work.live.committed(u64::from(last - first));
        first = last;
    }
    let write = Write {
        due_ns: 0,
        started_ns: 0,
        acquired_ns: 0,
        executed_ns: 0,
        ended_ns: 0,
        outcome: Outcome::Committed,
    };
    Ok(vec![write; plan.backlog as usize])
}

async fn backlog_chunk(
    client: &Client,
    work: &Work,
    writes: std::ops::Range<u32>,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let mut ids = Vec::with_capacity(writes.len());
    let mut bodies = Vec::with_capacity(writes.len());
    let mut events = Vec::with_capacity(writes.len() * usize::from(work.plan.events_per_write()));
    for write in writes {
        ids.push(work.plan.write_id(client.service, write));
        bodies.push(body(work, client.service, write));
        events.extend(self::events(work, client.service, write)?);
    }
    let service = &work.plan.services[usize::from(client.service)].name;
    let mut tx = client.pool.begin().await?;
    sqlx::query(
        "INSERT INTO bench_write (id, service, body) SELECT id, $2, body FROM unnest($1::uuid[], $3::text[]) AS w (id, body)",
    )
    .bind(&ids)
    .bind(service)
    .bind(&bodies)
    .execute(&mut *tx)
    .await?;
    drainer::enqueue_all(&mut tx, &events).await?;
    tx.commit().await?;
    Ok(())
}

/// Makes every scheduled write of one service; those that `held` names, by their place in the schedule, hold their
/// COMMIT back for so long. Returns them in the order of the plan; fewer than planned only when
/// `stop` was cancelled.
///
/// # Panics
/// When a write's task did: the instrument is broken then.
pub async fn run(
    client: Client,
    work: Work,
    held: Vec<(usize, Duration)>,
    stop: CancellationToken,
) -> Vec<Write> {
    let plan = Arc::clone(&work.plan);
    let service = &plan.services[usize::from(client.service)];
    let mut ended: Vec<Option<Write>> = Vec::with_capacity(service.due_ns.len());
    let mut tasks = JoinSet::new();
    for (place, &due_ns) in service.due_ns.iter().enumerate() {
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            () = tokio::time::sleep_until(Instant::from_std(work.clock.at(due_ns))) => {}
        }
        while let Some(done) = tasks.try_join_next() {
            keep(&mut ended, done);
        }
        ended.push(None);
        let write = service.backlog + u32::try_from(place).unwrap_or(u32::MAX);
        let held =
            held.binary_search_by_key(&place, |(place, _)| *place).map_or(Duration::ZERO, |at| held[at].1);
        let (client, work) = (client.clone(), work.clone());
        tasks.spawn(async move { (place, one_write(&client, &work, write, due_ns, held).await) });
    }
    let collect = async {
        while let Some(done) = tasks.join_next().await {
            keep(&mut ended, done);
        }
    };
    tokio::select! {
        () = collect => {}
        () = grace(&stop) => tasks.abort_all(),
        () = tokio::time::sleep(LAST_ENDS_WITHIN) => tasks.abort_all(),
    }
    let now_ns = work.clock.now_ns();
    // A write that was cut off may or may not have been committed.
    let cut = |place: usize| Write {
        due_ns: service.due_ns[place],
        started_ns: service.due_ns[place],
        acquired_ns: now_ns,
        executed_ns: now_ns,
        ended_ns: now_ns,
        outcome: Outcome::Unsure,
    };
    ended.into_iter().enumerate().map(|(place, write)| write.unwrap_or_else(|| cut(place))).collect()
}

async fn grace(stop: &CancellationToken) {
    stop.cancelled().await;
    tokio::time::sleep(INTERRUPT_GRACE).await;
}

fn keep(ended: &mut [Option<Write>], done: Result<(usize, Write), tokio::task::JoinError>) {
    match done {
        Ok((place, write)) => ended[place] = Some(write),
        Err(broken) => {
            if let Ok(panic) = broken.try_into_panic() {
                std::panic::resume_unwind(panic);
            }
        }
    }
}

async fn one_write(client: &Client, work: &Work, write: u32, due_ns: u64, held: Duration) -> Write {
    let clock = work.clock;
    let started_ns = clock.now_ns();
    let mut marks = Marks { acquired_ns: None, executed_ns: None };
    let outcome = attempt(client, work, write, held, &mut marks).await;
    let ended_ns = clock.now_ns();
    match outcome {
        Outcome::Committed => {
            work.live.committed(1);
            if let Some(committed) = &work.committed {
                // The receiver ends only after the load: a closed channel means that the run is over.
                let _ = committed.send((client.service, write));
            }
        }
        Outcome::RolledBack | Outcome::Failed | Outcome::Unsure => work.live.not_committed(1),
    }
    Write {
        due_ns,
        started_ns,
        acquired_ns: marks.acquired_ns.unwrap_or(ended_ns),
        executed_ns: marks.executed_ns.unwrap_or(ended_ns),
        ended_ns,
        outcome,
    }
}

/// Instants that a write reached; what is missing was not reached.
struct Marks {
    acquired_ns: Option<u64>,
    executed_ns: Option<u64>,
}

async fn attempt(client: &Client, work: &Work, write: u32, held: Duration, marks: &mut Marks) -> Outcome {
    let Ok(mut connection) = client.pool.acquire().await else { return Outcome::Failed };
    marks.acquired_ns = Some(work.clock.now_ns());
    // What comes from here on is large, and made only now: of an overloaded open loop most writes wait for a connection.
    match work.plan.load.write {
        WriteKind::Transaction => {
            Box::pin(in_transaction(&mut connection, client.service, work, write, held, marks)).await
        }
        WriteKind::Statement => {
            match Box::pin(one_statement(&mut connection, client.service, work, write)).await {
                Ok(()) => Outcome::Committed,
                Err(error) => after_commit_error(&error),
            }
        }
    }
}

async fn in_transaction(
    connection: &mut PgConnection,
    service: u16,
    work: &Work,
    write: u32,
    held: Duration,
    marks: &mut Marks,
) -> Outcome {
    let Ok(mut tx) = connection.begin().await else { return Outcome::Failed };
    if insert(&mut tx, service, work, write).await.is_err() {
        return Outcome::Failed;
    }
    marks.executed_ns = Some(work.clock.now_ns());
    if !held.is_zero() {
        tokio::time::sleep(held).await;
    }
    if work.plan.rolls_back(service, write) {
        // Nothing persists either way: without an answer the server rolls back on its own.
        let _ = tx.rollback().await;
        return Outcome::RolledBack;
    }
    match tx.commit().await {
        Ok(()) => Outcome::Committed,
        Err(error) => after_commit_error(&error),
    }
}

async fn insert(
    connection: &mut PgConnection,
    service: u16,
    work: &Work,
    write: u32,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    sqlx::query("INSERT INTO bench_write (id, service, body) VALUES ($1, $2, $3)")
        .bind(work.plan.write_id(service, write))
        .bind(&work.plan.services[usize::from(service)].name)
        .bind(body(work, service, write))
        .execute(&mut *connection)
        .await?;
    for event in events(work, service, write)? {
        drainer::enqueue(connection, &event).await?;
    }
    Ok(())
}

/// The business row and its events in one statement, which is its own transaction.
async fn one_statement(
    connection: &mut PgConnection,
    service: u16,
    work: &Work,
    write: u32,
) -> Result<(), sqlx::Error> {
    let events = events(work, service, write).map_err(|error| sqlx::Error::Encode(error.into()))?;
    let (ids, payloads): (Vec<Uuid>, Vec<String>) =
        events.iter().map(|event| (event.id, event.to_json())).unzip();
    sqlx::query(
        "WITH business AS (INSERT INTO bench_write (id, service, body) VALUES ($1, $2, $3)) \
         INSERT INTO event_outbox (id, payload) SELECT id, payload::jsonb FROM unnest($4::uuid[], $5::text[]) AS e (id, payload)",
    )
    .bind(work.plan.write_id(service, write))
    .bind(&work.plan.services[usize::from(service)].name)
    .bind(body(work, service, write))
    .bind(&ids)
    .bind(&payloads)
    .execute(connection)
    .await?;
    Ok(())
}

/// Whether an error at COMMIT tells that nothing persisted. Only a refusal by the server does; a lost connection, or
/// a session ended by an administrator or a shutdown (class 57P), may have come after the commit record was written.
fn after_commit_error(error: &sqlx::Error) -> Outcome {
    match error {
        sqlx::Error::Database(refusal) => match refusal.code().as_deref() {
            Some(code) if code.starts_with("08") || code.starts_with("57P") || code == "40003" => {
                Outcome::Unsure
            }
            None => Outcome::Unsure,
            Some(_) => Outcome::Failed,
        },
        _ => Outcome::Unsure,
    }
}

fn body(work: &Work, service: u16, write: u32) -> &str {
    work.payloads.get(service, EventRef { write, event: 0 })
}

/// The events of one write, as the drainer crate's users build them.
pub fn events(work: &Work, service: u16, write: u32) -> Result<Vec<Event>, drainer::EnqueueError> {
    (0..work.plan.events_per_write()).map(|event| build(work, service, EventRef { write, event })).collect()
}

/// One event of the plan.
///
/// # Errors
/// When the service's name makes no routing key.
pub fn build(work: &Work, service: u16, at: EventRef) -> Result<Event, drainer::EnqueueError> {
    let data = RawValue::from_string(work.payloads.get(service, at).to_owned()).unwrap_or_default();
    Ok(Event {
        id: work.plan.event_id(service, at),
        event_type: EventType::new(format!("{}.written", work.plan.services[usize::from(service)].name))?,
        occurred_at: Timestamp::now(),
        key: work.plan.key(service, at).map(|key| format!("k{key}")),
        subject: None,
        headers: std::collections::BTreeMap::new(),
        data,
    })
}
