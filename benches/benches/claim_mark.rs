//! What the claim and the marks of each design cost, on a real rig.
//!
//! The drainer tells an observer how long its phases took; that is what is measured, so that nothing of it has to be
//! taken apart: a tick runs whole, against the real broker, and only the phase counts. Each sample starts from a
//! fresh table with the same number of waiting rows.

use std::{
    env,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use criterion::{Criterion, SamplingMode, Throughput};
use drainer::{Broker, Config, Design, Drainer, Tick, migrate};
use lapin::{
    Connection, ConnectionProperties, ExchangeKind,
    options::{ExchangeDeclareOptions, ExchangeDeleteOptions},
    types::FieldTable,
};
use sqlx::{
    AssertSqlSafe, Connection as _, Executor, PgConnection, PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use tokio::runtime::Runtime;
use uuid::Uuid;

/// Rows of a tick.
const BATCH: u32 = 100;
/// Rows that wait beside those of the sample: a drained outbox and a backlog.
const WAITING: [u64; 2] = [0, 10_000];

type Failure = Box<dyn std::error::Error>;

/// What is measured of a tick.
#[derive(Clone, Copy)]
enum Phase {
    Claim,
    Mark,
}

impl Phase {
    fn name(self) -> &'static str {
        match self {
            Self::Claim => "claim",
            Self::Mark => "mark",
        }
    }

    fn of(self, tick: &Tick) -> u64 {
        match self {
            Self::Claim => tick.claim_us.unwrap_or(0),
            Self::Mark => tick.mark_us.unwrap_or(0),
        }
    }
}

/// A database and an exchange of its own.
struct World {
    name: String,
    admin: PgConnectOptions,
    amqp_url: String,
    pool: PgPool,
}

impl World {
    async fn build(database_url: &str, amqp_url: &str, design: Design) -> Result<Self, Failure> {
        let name = format!("drainbench_bench_{}", &Uuid::new_v4().simple().to_string()[..12]);
        let admin: PgConnectOptions = database_url.parse()?;
        execute(&admin, format!("CREATE DATABASE {name}")).await?;
        let broker = Connection::connect(amqp_url, ConnectionProperties::default()).await?;
        let channel = broker.create_channel().await?;
        // Nothing is bound to it: the broker confirms and drops, so no queue fills up.
        let kind = ExchangeKind::Topic;
        let options = ExchangeDeclareOptions::default();
        channel.exchange_declare(name.as_str().into(), kind, options, FieldTable::default()).await?;
        broker.close(200, "declared".into()).await?;
        let pool =
            PgPoolOptions::new().max_connections(2).connect_with(admin.clone().database(&name)).await?;
        migrate(&pool, design).await?;
        Ok(Self { name, admin, amqp_url: amqp_url.to_owned(), pool })
    }

    async fn remove(self) -> Result<(), Failure> {
        self.pool.close().await;
        let broker = Connection::connect(&self.amqp_url, ConnectionProperties::default()).await?;
        let channel = broker.create_channel().await?;
        channel.exchange_delete(self.name.as_str().into(), ExchangeDeleteOptions::default()).await?;
        broker.close(200, "deleted".into()).await?;
        execute(&self.admin, format!("DROP DATABASE {} WITH (FORCE)", self.name)).await
    }

    /// The table as if it were new, with `rows` waiting events of 340 bytes or so, and statistics that know.
    async fn refill(&self, rows: u64) -> Result<(), Failure> {
        self.pool.execute("TRUNCATE event_outbox").await?;
        let fill = "INSERT INTO event_outbox (id, payload) \
                    SELECT id, jsonb_build_object('id', id, 'event_type', 'bench.claimed', \
                           'occurred_at', '2026-01-02T03:04:05Z', 'data', repeat('x', 200)) \
                      FROM (SELECT gen_random_uuid() AS id FROM generate_series(1, $1)) AS new";
        sqlx::query(fill).bind(i64::try_from(rows)?).execute(&self.pool).await?;
        self.pool.execute("VACUUM ANALYZE event_outbox").await?;
        Ok(())
    }

    fn drainer(&self, design: Design, told: &Arc<AtomicU64>, phase: Phase) -> Result<Drainer, Failure> {
        let config = Config::builder().batch_size(BATCH).exchange(&self.name).build()?;
        let broker = Broker::new(&self.amqp_url, &config.session_name(), Duration::from_secs(10))?;
        let told = Arc::clone(told);
        Ok(Drainer::new(design, self.pool.clone(), broker, config).observed_by(Arc::new(
            move |tick: Tick| {
                told.fetch_add(phase.of(&tick), Ordering::Relaxed);
            },
        )))
    }
}

async fn execute(admin: &PgConnectOptions, statement: String) -> Result<(), Failure> {
    let mut conn = PgConnection::connect_with(admin).await?;
    conn.execute(AssertSqlSafe(statement)).await?;
    conn.close().await?;
    Ok(())
}

/// `ticks` ticks with `waiting` rows beside theirs; the time their phase took.
async fn sample(world: &World, drainer: &Drainer, waiting: u64, ticks: u64) -> Result<(), Failure> {
    world.refill(waiting + ticks * u64::from(BATCH)).await?;
    for _ in 0..ticks {
        let stats = drainer.drain_once().await?;
        if stats.confirmed != u64::from(BATCH) {
            return Err(format!("a tick confirmed {} of {BATCH} rows", stats.confirmed).into());
        }
    }
    Ok(())
}

fn bench(criterion: &mut Criterion, runtime: &Runtime, world: &World, design: Design) -> Result<(), Failure> {
    for phase in [Phase::Claim, Phase::Mark] {
        let told = Arc::new(AtomicU64::new(0));
        let drainer = world.drainer(design, &told, phase)?;
        let mut group = criterion.benchmark_group(format!("{}/{design}", phase.name()));
        group
            .sampling_mode(SamplingMode::Flat)
            .sample_size(10)
            .throughput(Throughput::Elements(BATCH.into()));
        // A sample's refill is not measured, and takes longer than its ticks.
        group.warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2));
        for waiting in WAITING {
            let mut failure = None;
            group.bench_function(format!("batch {BATCH}, {waiting} waiting"), |bencher| {
                bencher.iter_custom(|ticks| {
                    told.store(0, Ordering::Relaxed);
                    let outcome = runtime.block_on(sample(world, &drainer, waiting, ticks));
                    failure = failure.take().or(outcome.err());
                    Duration::from_micros(told.load(Ordering::Relaxed).max(1))
                });
            });
            if let Some(failure) = failure {
                return Err(failure);
            }
        }
        group.finish();
    }
    Ok(())
}

fn main() -> Result<(), Failure> {
    let urls = (env::var("DRAINBENCH_DATABASE_URL"), env::var("DRAINBENCH_AMQP_URL"));
    let (Ok(database_url), Ok(amqp_url)) = urls else {
        eprintln!(
            "claim_mark: skipped, DRAINBENCH_DATABASE_URL and DRAINBENCH_AMQP_URL are not set: run `make bench`, or \
             `drainbench rig -- cargo bench --package benches --bench claim_mark`"
        );
        return Ok(());
    };
    let runtime = Runtime::new()?;
    let mut criterion = Criterion::default().configure_from_args();
    for design in Design::ALL {
        let world = runtime.block_on(World::build(&database_url, &amqp_url, *design))?;
        let measured = bench(&mut criterion, &runtime, &world, *design);
        runtime.block_on(world.remove())?;
        measured?;
    }
    criterion.final_summary();
    Ok(())
}
