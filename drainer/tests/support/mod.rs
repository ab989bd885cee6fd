//! A database, an exchange and a queue for one test, and what it asks of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    net::{SocketAddr, ToSocketAddrs},
    panic::AssertUnwindSafe,
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use drainer::{Broker, Config, ConfigBuilder, Design, Drainer, Event, EventType, Observer, Tick};
use futures_util::FutureExt;
use lapin::{
    BasicProperties, Channel, Connection, ConnectionProperties, ExchangeKind,
    options::{
        BasicAckOptions, BasicGetOptions, ExchangeDeclareOptions, ExchangeDeleteOptions, QueueBindOptions,
        QueueDeclareOptions, QueueDeleteOptions,
    },
    types::{AMQPValue, FieldTable},
};
use sqlx::{
    AssertSqlSafe, Connection as _, Executor, PgConnection, PgPool, Row,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use tokio::time::{Instant, sleep, timeout};
use uuid::Uuid;

/// Longest wait for something that must happen.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// Where one test happens. Removed when the test ends, however it ends.
pub(crate) struct World {
    pub(crate) design: Design,
    pub(crate) pool: PgPool,
    pub(crate) name: String,
    admin: PgConnectOptions,
    broker: Connection,
    channel: Channel,
}

/// One row of the outbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RowState {
    pub(crate) id: Uuid,
    pub(crate) published: bool,
    pub(crate) attempts: i32,
    pub(crate) last_error: Option<String>,
    /// Always `None` where the design has no claims.
    pub(crate) claimed_by: Option<String>,
}

/// One message as a consumer gets it.
pub(crate) struct Arrival {
    pub(crate) exchange: String,
    pub(crate) routing_key: String,
    pub(crate) properties: BasicProperties,
    pub(crate) body: Vec<u8>,
}

impl Arrival {
    pub(crate) fn id(&self) -> Uuid {
        self.properties.message_id().as_ref().unwrap().as_str().parse().unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> Option<String> {
        match self.properties.headers().as_ref()?.inner().get(name)? {
            AMQPValue::LongString(text) => Some(text.to_string()),
            other => panic!("{name} is {other:?}"),
        }
    }
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| {
        panic!("{name} is not set: run `make test`, or `drainbench rig -- cargo nextest run`")
    })
}

/// Runs `test` in a world of its own and removes it afterwards. Boxed, because a test's future is large.
pub(crate) fn within_world<F>(
    design: Design,
    test: impl FnOnce(Arc<World>) -> F,
) -> Pin<Box<impl Future<Output = ()>>>
where
    F: Future<Output = ()>,
{
    Box::pin(async move {
        let world = Arc::new(Box::pin(World::build(design)).await);
        let ended = AssertUnwindSafe(test(Arc::clone(&world))).catch_unwind().await;
        world.remove().await;
        if let Err(panic) = ended {
            std::panic::resume_unwind(panic);
        }
    })
}

impl World {
    async fn build(design: Design) -> Self {
        let admin: PgConnectOptions = variable("DRAINBENCH_DATABASE_URL").parse().unwrap();
        let name = format!("drainbench_test_{}", &Uuid::new_v4().simple().to_string()[..12]);
        let mut conn = PgConnection::connect_with(&admin).await.expect("DRAINBENCH_DATABASE_URL answers");
        conn.execute(AssertSqlSafe(format!("CREATE DATABASE {name}"))).await.unwrap();
        conn.close().await.unwrap();
        let broker = Connection::connect(&variable("DRAINBENCH_AMQP_URL"), ConnectionProperties::default())
            .await
            .expect("DRAINBENCH_AMQP_URL answers");
        let channel = broker.create_channel().await.unwrap();
        let durable = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
        channel
            .exchange_declare(name.as_str().into(), ExchangeKind::Topic, durable, FieldTable::default())
            .await
            .unwrap();
        let pool = pool(admin.clone().database(&name), 5);
        let world = Self { design, pool, name, admin, broker, channel };
        world.declare_queue(FieldTable::default()).await;
        drainer::migrate(&world.pool, design).await.unwrap();
        world
    }

    async fn remove(&self) {
        self.pool.close().await;
        // The test may have closed the channel by a mistake of its own.
        let channel = self.broker.create_channel().await.unwrap();
        let name = self.name.as_str();
        channel.queue_delete(name.into(), QueueDeleteOptions::default()).await.unwrap();
        channel.exchange_delete(name.into(), ExchangeDeleteOptions::default()).await.unwrap();
        self.broker.close(200, "done".into()).await.unwrap();
        let mut conn = PgConnection::connect_with(&self.admin).await.unwrap();
        conn.execute(AssertSqlSafe(format!("DROP DATABASE {name} WITH (FORCE)"))).await.unwrap();
        conn.close().await.unwrap();
    }

    async fn declare_queue(&self, arguments: FieldTable) {
        let name = self.name.as_str();
        let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        self.channel.queue_declare(name.into(), durable, arguments).await.unwrap();
        let bind = QueueBindOptions::default();
        self.channel
            .queue_bind(name.into(), name.into(), "#".into(), bind, FieldTable::default())
            .await
            .unwrap();
    }

    /// Replaces the queue by one that takes `messages` and refuses more.
    pub(crate) async fn limit_queue(&self, messages: i64) {
        self.channel.queue_delete(self.name.as_str().into(), QueueDeleteOptions::default()).await.unwrap();
        let mut arguments = FieldTable::default();
        arguments.insert("x-max-length".into(), AMQPValue::LongLongInt(messages));
        arguments.insert("x-overflow".into(), AMQPValue::LongString("reject-publish".into()));
        self.declare_queue(arguments).await;
    }

    pub(crate) fn database(&self) -> PgConnectOptions {
        self.admin.clone().database(&self.name)
    }

    /// URL of this test's database, password included.
    pub(crate) fn database_url(&self) -> String {
        let url = variable("DRAINBENCH_DATABASE_URL");
        let (base, parameters) = url.split_once('?').map_or((url.as_str(), None), |(b, p)| (b, Some(p)));
        let (scheme, rest) = base.split_once("://").unwrap();
        let authority = rest.split('/').next().unwrap();
        let parameters = parameters.map_or(String::new(), |p| format!("?{p}"));
        format!("{scheme}://{authority}/{}{parameters}", self.name)
    }

    /// Short waits, small batches, this world's exchange.
    pub(crate) fn config(&self) -> ConfigBuilder {
        Config::builder()
            .exchange(&self.name)
            .pipeline_depth(3)
            .batch_size(10)
            .poll_interval(Duration::from_millis(20))
            .confirm_timeout(Duration::from_secs(10))
    }

    /// A drainer with a pool of its own, straight to the broker.
    pub(crate) fn drainer(&self, config: ConfigBuilder) -> Drainer {
        self.drainer_by(config, &variable("DRAINBENCH_AMQP_URL"), Duration::from_secs(10))
    }

    /// A drainer that reaches the broker by `url`, and waits for it at most `deadline`.
    pub(crate) fn drainer_by(&self, config: ConfigBuilder, url: &str, deadline: Duration) -> Drainer {
        let config = config.build().unwrap();
        let broker = Broker::new(url, &config.session_name(), deadline).unwrap();
        Drainer::new(
            self.design,
            pool(self.database().application_name(&config.session_name()), 2),
            broker,
            config,
        )
    }

    /// Commits `count` events, one transaction each.
    pub(crate) async fn commit(&self, count: usize) -> Vec<Event> {
        let events: Vec<Event> = (0..count).map(event).collect();
        for event in &events {
            let mut tx = self.pool.begin().await.unwrap();
            drainer::enqueue(&mut tx, event).await.unwrap();
            tx.commit().await.unwrap();
        }
        events
    }

    /// All rows, oldest first.
    pub(crate) async fn rows(&self) -> Vec<RowState> {
        let rows = sqlx::query(
            "SELECT to_jsonb(o)->>'claimed_by' AS claimed_by, * FROM event_outbox o ORDER BY enqueued_at, id",
        )
        .fetch_all(&self.pool)
        .await
        .unwrap();
        let state = |row: &sqlx::postgres::PgRow| RowState {
            id: row.get("id"),
            published: row.try_get_raw("published_at").is_ok_and(|raw| !sqlx::ValueRef::is_null(&raw)),
            attempts: row.get("attempts"),
            last_error: row.get("last_error"),
            claimed_by: row.get(0),
        };
        rows.iter().map(state).collect()
    }

    pub(crate) async fn unpublished(&self) -> usize {
        self.rows().await.iter().filter(|row| !row.published).count()
    }

    /// Messages that wait in the queue.
    pub(crate) async fn queued(&self) -> u32 {
        let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        let queue =
            self.channel.queue_declare(self.name.as_str().into(), passive, FieldTable::default()).await;
        queue.unwrap().message_count()
    }

    /// Takes everything out of the queue. A confirmed message is in it, so nothing needs to be waited for.
    pub(crate) async fn arrivals(&self) -> Vec<Arrival> {
        let mut arrivals = Vec::new();
        while let Some(message) =
            self.channel.basic_get(self.name.as_str().into(), BasicGetOptions::default()).await.unwrap()
        {
            message.delivery.acker.ack(BasicAckOptions::default()).await.unwrap();
            arrivals.push(Arrival {
                exchange: message.delivery.exchange.to_string(),
                routing_key: message.delivery.routing_key.to_string(),
                properties: message.delivery.properties,
                body: message.delivery.data,
            });
        }
        arrivals
    }

    /// Sessions of `config`'s drainer in `state`.
    pub(crate) async fn sessions(&self, application: &str, state: &str) -> i64 {
        sqlx::query_scalar(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = $1 AND state LIKE $2",
        )
        .bind(application)
        .bind(state)
        .fetch_one(&self.pool)
        .await
        .unwrap()
    }

    /// Drains until nothing waits any more.
    pub(crate) async fn drain_all(&self, drainer: &Drainer) {
        let started = Instant::now();
        while self.unpublished().await > 0 {
            drainer.drain_once().await.unwrap();
            assert!(started.elapsed() < SOON, "still unpublished: {:?}", self.rows().await);
        }
    }
}

pub(crate) fn pool(options: PgConnectOptions, connections: u32) -> PgPool {
    PgPoolOptions::new().max_connections(connections).acquire_timeout(SOON).connect_lazy_with(options)
}

/// Distinct in every field that a consumer could mix up.
pub(crate) fn event(number: usize) -> Event {
    let data =
        serde_json::json!({ "number": number, "text": "ä \"quoted\" \\ line\n", "list": [1, 2.5, null] });
    Event {
        id: Uuid::new_v4(),
        event_type: EventType::new(format!("appeal.lodged.{}", number % 7)).unwrap(),
        occurred_at: "2026-02-03T04:05:06.789Z".parse().unwrap(),
        key: Some(format!("key-{}", number % 3)),
        subject: None,
        headers: BTreeMap::from([("tenant".to_owned(), format!("t{number}"))]),
        data: serde_json::value::to_raw_value(&data).unwrap(),
    }
}

pub(crate) fn ids(events: &[Event]) -> BTreeSet<Uuid> {
    events.iter().map(|event| event.id).collect()
}

/// How often each event arrived.
pub(crate) fn times(arrivals: &[Arrival]) -> BTreeMap<Uuid, usize> {
    arrivals.iter().fold(BTreeMap::new(), |mut times, arrival| {
        *times.entry(arrival.id()).or_default() += 1;
        times
    })
}

/// Each of `events` arrived exactly once, and nothing else.
pub(crate) fn assert_exactly_once(events: &[Event], arrivals: &[Arrival]) {
    let expected: BTreeMap<Uuid, usize> = ids(events).into_iter().map(|id| (id, 1)).collect();
    assert_eq!(times(arrivals), expected);
}

/// Each of `events` arrived, perhaps more than once, and nothing else.
pub(crate) fn assert_at_least_once(events: &[Event], arrivals: &[Arrival]) {
    assert_eq!(times(arrivals).into_keys().collect::<BTreeSet<_>>(), ids(events));
}

/// Probes until `holds`, with a deadline.
pub(crate) async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let probing = async {
        while !holds().await {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(SOON, probing).await.unwrap_or_else(|_| panic!("not within {SOON:?}: {what}"));
}

/// Where the broker listens, and its URL with another address in it.
pub(crate) fn broker_address() -> SocketAddr {
    let url = variable("DRAINBENCH_AMQP_URL");
    let authority = url.split("://").nth(1).unwrap().split(['/', '?']).next().unwrap();
    let host = authority.rsplit('@').next().unwrap();
    let host = if host.contains(':') { host.to_owned() } else { format!("{host}:5672") };
    host.to_socket_addrs().unwrap().find(SocketAddr::is_ipv4).expect("the broker has an IPv4 address")
}

/// The broker's URL by way of `address`.
pub(crate) fn url_through(address: SocketAddr) -> String {
    let url = variable("DRAINBENCH_AMQP_URL");
    let (scheme, rest) = url.split_once("://").unwrap();
    let (authority, path) = rest.find(['/', '?']).map_or((rest, ""), |at| rest.split_at(at));
    let user = authority.rsplit_once('@').map_or(String::new(), |(user, _)| format!("{user}@"));
    format!("{scheme}://{user}{address}{path}")
}

/// The broker's URL itself.
pub(crate) fn broker_url() -> String {
    variable("DRAINBENCH_AMQP_URL")
}

/// An observer and what it was told.
pub(crate) fn listener() -> (Observer, Arc<std::sync::Mutex<Vec<Tick>>>) {
    let told: Arc<std::sync::Mutex<Vec<Tick>>> = Arc::default();
    let observer = {
        let told = Arc::clone(&told);
        Arc::new(move |tick: Tick| told.lock().unwrap().push(tick))
    };
    (observer, told)
}
