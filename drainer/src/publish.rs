//! One publish and its confirm. Public is only what makes a message of an event, for those who publish without an
//! outbox.

use std::time::Duration;

use lapin::{
    BasicProperties, Channel, Confirmation, PublisherConfirm,
    options::BasicPublishOptions,
    types::{AMQPValue, FieldTable, LongString, ReplyCode, ShortString},
};
use serde_json::value::RawValue;
use sqlx::{Row as _, postgres::PgRow, types::Json};
use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

use crate::{
    Event, PUBLISH_ID_HEADER,
    envelope::{EnvelopeError, Message},
};

/// What a stored `last_error` may take. Enough for a broker's sentence, and the row is rewritten with it.
const REASON_BYTES: usize = 500;

/// The message's properties: id, type, timestamp (none before 1970), content type, persistence, the event's headers and
/// an [`x-publish-id`](PUBLISH_ID_HEADER) that is new on each call. Headers whose names AMQP can't carry, which
/// [`enqueue`](crate::enqueue) refuses, are left out.
#[must_use]
pub fn properties(event: &Event) -> BasicProperties {
    const PERSISTENT: u8 = 2;
    let mut headers = FieldTable::default();
    let own = event.headers.iter().map(|(name, value)| (name.as_str(), value.clone()));
    for (name, value) in own.chain([(PUBLISH_ID_HEADER, Uuid::new_v4().to_string())]) {
        if let Ok(name) = ShortString::try_new(name) {
            headers.insert(name, AMQPValue::LongString(LongString::from(value)));
        }
    }
    let properties = BasicProperties::default()
        .with_message_id(event.id.to_string().into())
        .with_type(event.event_type.as_str().into())
        .with_content_type("application/json".into())
        .with_delivery_mode(PERSISTENT)
        .with_headers(headers);
    match u64::try_from(event.occurred_at.as_second()) {
        Ok(seconds) => properties.with_timestamp(seconds),
        Err(_) => properties,
    }
}

/// A row that was claimed or locked.
pub(crate) struct Claimed {
    pub(crate) id: Uuid,
    pub(crate) payload: Box<RawValue>,
}

impl TryFrom<&PgRow> for Claimed {
    type Error = sqlx::Error;

    fn try_from(row: &PgRow) -> Result<Self, sqlx::Error> {
        let Json(payload) = row.try_get("payload")?;
        Ok(Self { id: row.try_get("id")?, payload })
    }
}

/// Why one event was not confirmed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PublishError {
    #[error("{0}")]
    Envelope(#[from] EnvelopeError),
    #[error("publish: {0}")]
    Publish(lapin::Error),
    #[error("nack: the broker did not take the message (a full queue that rejects, or an internal error)")]
    Nack,
    #[error("ack with return: {code} {text}")]
    Returned { code: ReplyCode, text: ShortString },
    #[error("confirm: the channel was not in confirm mode")]
    NotRequested,
    #[error("amqp: {0}")]
    Confirm(lapin::Error),
    #[error("no confirm within {} ms", .0.as_millis())]
    Deadline(Duration),
}

impl PublishError {
    /// Whose fault it is.
    #[cfg(feature = "baseline")]
    pub(crate) fn class(&self) -> crate::ErrorClass {
        use crate::ErrorClass;
        match self {
            Self::Envelope(_) | Self::Nack | Self::Returned { .. } => ErrorClass::Event,
            Self::Publish(_) | Self::NotRequested | Self::Confirm(_) | Self::Deadline(_) => {
                ErrorClass::Infrastructure
            }
        }
    }

    /// What is stored in `last_error`.
    pub(crate) fn reason(&self) -> String {
        bounded(&self.to_string())
    }
}

/// At most [`REASON_BYTES`] of `text`, whole characters, without NUL, which PostgreSQL cannot store.
fn bounded(text: &str) -> String {
    let mut kept: String = text.replace('\0', "");
    kept.truncate(kept.floor_char_boundary(REASON_BYTES));
    kept
}

/// A publish that is on its way.
pub(crate) struct InFlight {
    pub(crate) id: Uuid,
    sent: Instant,
    within: Duration,
    confirm: PublisherConfirm,
}

/// Publishes one row. `within` bounds the wait from here to the confirm.
pub(crate) async fn publish(
    channel: &Channel,
    exchange: &str,
    row: &Claimed,
    within: Duration,
) -> Result<InFlight, PublishError> {
    let Message { routing_key, properties, body } = Message::of_row(row.id, &row.payload)?;
    let sent = Instant::now();
    // Not mandatory, as the reference decided: an event that no queue is bound for counts as published.
    let options = BasicPublishOptions::default();
    let publish = channel.basic_publish(exchange.into(), routing_key, options, &body, properties);
    match timeout_at(sent + within, publish).await {
        Ok(Ok(confirm)) => Ok(InFlight { id: row.id, sent, within, confirm }),
        Ok(Err(error)) => Err(PublishError::Publish(error)),
        Err(_) => Err(PublishError::Deadline(within)),
    }
}

impl InFlight {
    /// How long the confirm took.
    pub(crate) async fn confirmed(self) -> Result<Duration, PublishError> {
        let Ok(answer) = timeout_at(self.sent + self.within, self.confirm).await else {
            return Err(PublishError::Deadline(self.within));
        };
        match answer {
            Ok(Confirmation::Ack(None)) => Ok(self.sent.elapsed()),
            Ok(Confirmation::Ack(Some(message))) => {
                Err(PublishError::Returned { code: message.reply_code, text: message.reply_text })
            }
            Ok(Confirmation::Nack(_)) => Err(PublishError::Nack),
            Ok(Confirmation::NotRequested) => Err(PublishError::NotRequested),
            Err(error) => Err(PublishError::Confirm(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_bounded_at_a_character() {
        assert_eq!(bounded("short"), "short");
        assert_eq!(bounded("a\0b"), "ab");
        let long = bounded(&format!("x{}", "é".repeat(300)));
        assert_eq!(long.len(), 499, "500 would cut a character in two");
    }
}
