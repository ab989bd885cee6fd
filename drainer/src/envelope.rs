//! What one outbox row carries, and the message it becomes.

use std::collections::BTreeMap;

use lapin::{BasicProperties, types::ShortString};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::{EnqueueError, publish::properties};

/// Header of the publish's own id, new each time an event is published: tells a repeated publish from a repeated
/// delivery of the same one. No event may carry a header of this name.
pub const PUBLISH_ID_HEADER: &str = "x-publish-id";

/// An AMQP short string: routing key, type, names of headers.
const SHORT_STRING_BYTES: usize = 255;
/// Ordering key and subject.
const TEXT_BYTES: usize = 1_024;
/// Names and values of all headers. They travel in one frame, and a broker may have lowered `frame_max` from 128 kB.
const HEADERS_BYTES: usize = 32 * 1_024;
/// The whole envelope. A batch of them is in memory at once, and RabbitMQ recommends small messages.
const ENVELOPE_BYTES: usize = 16 * 1_024 * 1_024;

/// The routing key: 1 to 255 bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EventType(String);

impl EventType {
    /// # Errors
    /// When empty or longer than 255 bytes, which AMQP cannot carry.
    pub fn new(name: impl Into<String>) -> Result<Self, EnqueueError> {
        let name = name.into();
        if name.is_empty() || name.len() > SHORT_STRING_BYTES {
            return Err(EnqueueError::Length {
                field: "event_type",
                bytes: name.len(),
                rule: "1 to 255 bytes, because it is the AMQP routing key",
            });
        }
        Ok(Self(name))
    }

    /// The routing key.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<'de> Deserialize<'de> for EventType {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

/// One event. Its JSON has these fields in this order; the optional ones are left out when empty.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Event {
    /// Also the message's `message_id`.
    pub id: Uuid,
    /// Routing key and AMQP type.
    pub event_type: EventType,
    /// When it happened. The message's `timestamp` is its whole seconds; before 1970 there is none.
    pub occurred_at: jiff::Timestamp,
    /// Ordering key, at most 1,024 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Whom it is about, at most 1,024 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// Become AMQP headers: names of 1 to 255 bytes, with their values at most 32 KiB together.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// The body's `data`: any JSON. PostgreSQL stores it as `jsonb`, which keeps neither blanks nor the order or
    /// repetition of keys.
    pub data: Box<RawValue>,
}

impl Event {
    /// The JSON text that is stored in `event_outbox.payload` and, with `data` as `jsonb` gives it back, published
    /// as the body.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Strings, a map of strings and JSON text: there is nothing in an event that could fail to serialise.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Proves what the types do not: sizes, the reserved header, and that PostgreSQL can store `json`, which is
    /// this event's [`to_json`](Self::to_json).
    pub(crate) fn check(&self, json: &str) -> Result<(), EnqueueError> {
        self.check_sizes()?;
        if json.len() > ENVELOPE_BYTES {
            return Err(EnqueueError::Length {
                field: "the envelope",
                bytes: json.len(),
                rule: "at most 16 MiB",
            });
        }
        if holds_nul(json) {
            return Err(EnqueueError::Nul);
        }
        Ok(())
    }

    /// What a publish needs as well, also of a row that was not put in by us.
    fn check_sizes(&self) -> Result<(), EnqueueError> {
        for (field, text) in [("key", &self.key), ("subject", &self.subject)] {
            let bytes = text.as_ref().map_or(0, String::len);
            if bytes > TEXT_BYTES {
                return Err(EnqueueError::Length { field, bytes, rule: "at most 1024 bytes" });
            }
        }
        for name in self.headers.keys() {
            if name.is_empty() || name.len() > SHORT_STRING_BYTES {
                let rule = "1 to 255 bytes, as AMQP has it";
                return Err(EnqueueError::Length { field: "a header's name", bytes: name.len(), rule });
            }
            if name.eq_ignore_ascii_case(PUBLISH_ID_HEADER) {
                return Err(EnqueueError::ReservedHeader);
            }
        }
        let bytes = self.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        if bytes > HEADERS_BYTES {
            let rule = "at most 32768 bytes of names and values together";
            return Err(EnqueueError::Length { field: "headers", bytes, rule });
        }
        Ok(())
    }
}

/// JSON can say NUL, PostgreSQL's text and jsonb can't hold it.
fn holds_nul(json: &str) -> bool {
    let mut rest = json;
    while let Some(at) = rest.find('\\') {
        let escape = &rest[at + 1..];
        if escape.starts_with("u0000") {
            return true;
        }
        // Whatever is escaped is not the start of another escape: `\\u0000` is a backslash and five letters.
        rest = escape.get(1..).unwrap_or_default();
    }
    false
}

/// What is published: made anew from the stored row, as the reference does, so that a row which is no event is
/// found before it reaches a consumer.
pub(crate) struct Message {
    pub(crate) routing_key: ShortString,
    pub(crate) properties: BasicProperties,
    pub(crate) body: Vec<u8>,
}

/// Why a stored row cannot become a message. The row's own fault.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EnvelopeError {
    #[error("deserialise: {0}")]
    Deserialise(serde_json::Error),
    #[error("deserialise: the payload's id is {0}, which is not the row's")]
    OtherId(Uuid),
    #[error("deserialise: {0}")]
    Size(EnqueueError),
    #[error("serialise: {0}")]
    Serialise(serde_json::Error),
}

impl Message {
    /// `id` is the row's.
    pub(crate) fn of_row(id: Uuid, payload: &RawValue) -> Result<Self, EnvelopeError> {
        let event: Event = serde_json::from_str(payload.get()).map_err(EnvelopeError::Deserialise)?;
        if event.id != id {
            return Err(EnvelopeError::OtherId(event.id));
        }
        event.check_sizes().map_err(EnvelopeError::Size)?;
        let body = serde_json::to_vec(&event).map_err(EnvelopeError::Serialise)?;
        // Checked above and by `EventType`: at most 255 bytes, more would panic.
        let routing_key = ShortString::from(event.event_type.0.as_str());
        Ok(Self { properties: properties(&event), routing_key, body })
    }
}

#[cfg(test)]
mod tests;
