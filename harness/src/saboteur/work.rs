//! What an honest drainer does, in small: one session, one channel.

use std::time::Duration;

use drainer::{BrokerUrl, PUBLISH_ID_HEADER};
use lapin::{
    BasicProperties, Channel, Confirmation, Connection, PublisherConfirm,
    options::{BasicPublishOptions, ConfirmSelectOptions},
    types::{AMQPValue, FieldTable, LongString, ShortString},
};
use sqlx::{Connection as _, PgConnection, postgres::PgConnectOptions};
use uuid::Uuid;

/// How long a server may take for one word.
const WITHIN: Duration = Duration::from_secs(5);

pub(super) type Trouble = Box<dyn std::error::Error + Send + Sync>;

/// One event.
pub(super) struct Row {
    pub(super) id: Uuid,
    pub(super) key: Option<String>,
    pub(super) enqueued_us: i64,
    payload: String,
    event_type: String,
}

/// What it works with.
pub(super) struct Bench {
    database: PgConnection,
    // Closes with it.
    _broker: Connection,
    channel: Channel,
    exchange: String,
    id: String,
    batch: i64,
    lease_seconds: f64,
}

fn told(name: &str) -> Result<String, Trouble> {
    std::env::var(format!("DRAINER_{name}")).map_err(|error| format!("DRAINER_{name}: {error}").into())
}

async fn within<T, E: Into<Trouble>>(doing: impl Future<Output = Result<T, E>>) -> Result<T, Trouble> {
    tokio::time::timeout(WITHIN, doing).await?.map_err(Into::into)
}

impl Bench {
    pub(super) async fn open() -> Result<Self, Trouble> {
        let id = told("ID")?;
        let options: PgConnectOptions = told("DATABASE_URL")?.parse()?;
        let database =
            within(PgConnection::connect_with(&options.application_name(&format!("drainer:{id}")))).await?;
        let broker =
            within(told("AMQP_URL")?.parse::<BrokerUrl>()?.connect(&format!("drainer:{id}"))).await?;
        let channel = within(broker.create_channel()).await?;
        within(channel.confirm_select(ConfirmSelectOptions::default())).await?;
        Ok(Self {
            database,
            _broker: broker,
            channel,
            exchange: told("EXCHANGE")?,
            id,
            batch: told("BATCH_SIZE")?.parse()?,
            lease_seconds: told("LEASE_TTL_SECS")?.parse()?,
        })
    }

    /// In the order in which they were enqueued; also what others have claimed, when asked.
    pub(super) async fn claim(&mut self, of_others: bool) -> Result<Vec<Row>, Trouble> {
        let query = sqlx::query_as::<_, (Uuid, Option<String>, i64, String, String)>(
            "/* drainer:claim */ WITH mine AS (
                SELECT id FROM event_outbox
                 WHERE published_at IS NULL
                   AND (claimed_at IS NULL OR claimed_at < CURRENT_TIMESTAMP - make_interval(secs => $2)
                        OR $4 AND claimed_at < 'infinity')
                 ORDER BY enqueued_at LIMIT $3 FOR UPDATE SKIP LOCKED
            )
            UPDATE event_outbox AS taken SET claimed_by = $1, claimed_at = CURRENT_TIMESTAMP
              FROM mine WHERE taken.id = mine.id
            RETURNING taken.id, payload ->> 'key', (extract(epoch FROM enqueued_at) * 1000000)::bigint,
                      payload::text, payload ->> 'event_type'",
        )
        .bind(&self.id)
        .bind(self.lease_seconds)
        .bind(self.batch)
        .bind(of_others)
        .fetch_all(&mut self.database);
        let rows = within(query).await?;
        let mut rows: Vec<Row> = rows
            .into_iter()
            .map(|(id, key, enqueued_us, payload, event_type)| Row {
                id,
                key,
                enqueued_us,
                payload,
                event_type,
            })
            .collect();
        // Ids are in the order of the schedule, which decides where two were enqueued at once.
        rows.sort_by_key(|row| (row.enqueued_us, row.id));
        Ok(rows)
    }

    pub(super) async fn publish(&self, row: &Row) -> Result<PublisherConfirm, Trouble> {
        const PERSISTENT: u8 = 2;
        let mut headers = FieldTable::default();
        let publish = AMQPValue::LongString(LongString::from(Uuid::new_v4().to_string()));
        headers.insert(ShortString::from(PUBLISH_ID_HEADER), publish);
        let properties = BasicProperties::default()
            .with_message_id(row.id.to_string().into())
            .with_delivery_mode(PERSISTENT)
            .with_headers(headers);
        within(self.channel.basic_publish(
            self.exchange.as_str().into(),
            row.event_type.as_str().into(),
            BasicPublishOptions::default(),
            row.payload.as_bytes(),
            properties,
        ))
        .await
    }

    pub(super) async fn mark(&mut self, ids: &[Uuid]) -> Result<(), Trouble> {
        const MARK: &str = "/* drainer:mark */ UPDATE event_outbox SET published_at = CURRENT_TIMESTAMP, claimed_by = NULL, \
                            claimed_at = NULL WHERE published_at IS NULL AND id = ANY ($1)";
        self.change(MARK, ids).await
    }

    pub(super) async fn delete(&mut self, ids: &[Uuid]) -> Result<(), Trouble> {
        self.change("/* drainer:mark */ DELETE FROM event_outbox WHERE id = ANY ($1)", ids).await
    }

    pub(super) async fn release(&mut self, ids: &[Uuid]) -> Result<(), Trouble> {
        const RELEASE: &str = "/* drainer:release */ UPDATE event_outbox SET claimed_by = NULL, claimed_at = NULL \
                               WHERE published_at IS NULL AND id = ANY ($1)";
        self.change(RELEASE, ids).await
    }

    /// Nobody claims them any more.
    pub(super) async fn hide(&mut self, ids: &[Uuid]) -> Result<(), Trouble> {
        self.change(
            "/* drainer:mark */ UPDATE event_outbox SET claimed_at = 'infinity' WHERE id = ANY ($1)",
            ids,
        )
        .await
    }

    pub(super) async fn begin(&mut self) -> Result<(), Trouble> {
        self.say("/* drainer:begin */ BEGIN").await
    }

    pub(super) async fn commit(&mut self) -> Result<(), Trouble> {
        self.say("/* drainer:commit */ COMMIT").await
    }

    async fn say(&mut self, statement: &'static str) -> Result<(), Trouble> {
        within(sqlx::raw_sql(statement).execute(&mut self.database)).await.map(|_| ())
    }

    async fn change(&mut self, statement: &'static str, ids: &[Uuid]) -> Result<(), Trouble> {
        if ids.is_empty() {
            return Ok(());
        }
        within(sqlx::query(statement).bind(ids).execute(&mut self.database)).await.map(|_| ())
    }
}

/// Waits for the broker's word.
pub(super) async fn confirmed(confirm: PublisherConfirm) -> Result<(), Trouble> {
    match within(confirm).await? {
        Confirmation::Ack(_) => Ok(()),
        Confirmation::Nack(_) | Confirmation::NotRequested => Err("nacked".into()),
    }
}
