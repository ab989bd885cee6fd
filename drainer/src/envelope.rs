//! What one outbox row carries, and the message it becomes.

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use uuid::Uuid;

/// The routing key: 1 to 255 bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventType(String);

impl EventType {
    /// # Errors
    /// When empty or longer than 255 bytes, which AMQP cannot carry.
    pub fn new(name: impl Into<String>) -> Result<Self, crate::EnqueueError> {
        Ok(Self(name.into()))
    }
    /// The routing key.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// One event.
#[derive(Debug, Clone)]
pub struct Event {
    /// Also the message's `message_id`.
    pub id: Uuid,
    /// Routing key and AMQP type.
    pub event_type: EventType,
    /// When it happened.
    pub occurred_at: jiff::Timestamp,
    /// Ordering key.
    pub key: Option<String>,
    /// Whom it is about.
    pub subject: Option<String>,
    /// Become AMQP headers.
    pub headers: BTreeMap<String, String>,
    /// The body's `data`.
    pub data: Box<RawValue>,
}

impl Event {
    /// The JSON text that is stored in `event_outbox.payload` and published as the body.
    #[must_use]
    pub fn to_json(&self) -> String {
        todo!()
    }
}
