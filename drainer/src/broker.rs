//! The broker side of a drainer: one connection, opened when first needed and opened again after it was lost.

use std::time::Duration;

/// Where a drainer publishes. Connects on first use; a lost connection is opened again by the next call.
#[derive(Debug)]
pub struct Broker {}

impl Broker {
    /// `url` is `amqp://user:password@host:port/vhost` or `amqps://...`; `name` is what the broker lists the
    /// connection as; `deadline` bounds every single wait on the broker outside of a confirm.
    ///
    /// # Errors
    /// When `url` is no AMQP URL. Nothing is connected yet.
    pub fn new(url: &str, name: &str, deadline: Duration) -> Result<Self, crate::DrainError> {
        let _ = (url, name, deadline);
        todo!()
    }
}
