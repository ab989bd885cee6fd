//! The broker side of a drainer: one connection, opened when first needed and opened again after it was lost.

use std::{fmt, future::Future, time::Duration};

use lapin::{Channel, Connection, options::ConfirmSelectOptions};
use tokio::{sync::Mutex, time::timeout};

use crate::{BrokerUrl, DrainError};

/// Where a drainer publishes. Connects on first use; a lost connection is opened again by the next call.
pub struct Broker {
    url: BrokerUrl,
    name: String,
    deadline: Duration,
    link: Mutex<Link>,
}

/// What is open now.
#[derive(Default)]
struct Link {
    connection: Option<Connection>,
    /// The channel that outlives its tick.
    kept: Option<Channel>,
}

impl fmt::Debug for Broker {
    /// Without the URL, which holds the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Broker")
            .field("address", &self.address())
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Broker {
    /// `url` is a [`BrokerUrl`]; `name` is what the broker lists the connection as; `deadline` bounds every single wait
    /// on the broker outside of a confirm.
    ///
    /// # Errors
    /// When `url` is none, or a file that it names can't be used. Nothing is connected yet.
    pub fn new(url: &str, name: &str, deadline: Duration) -> Result<Self, DrainError> {
        let url = url.parse::<BrokerUrl>()?;
        Ok(Self { url, name: name.to_owned(), deadline, link: Mutex::default() })
    }

    /// A fresh channel in confirm mode.
    ///
    /// # Errors
    /// When there is no connection or no channel within the deadline. The connection is dropped: the next call opens
    /// another.
    pub(crate) async fn channel(&self) -> Result<Channel, DrainError> {
        self.open(&mut *self.link.lock().await).await
    }

    /// The same channel as last time, as long as it is usable.
    ///
    /// # Errors
    /// As [`channel`](Self::channel).
    #[cfg(feature = "baseline")]
    pub(crate) async fn kept_channel(&self) -> Result<Channel, DrainError> {
        let mut link = self.link.lock().await;
        if let Some(channel) = link.kept.as_ref().filter(|kept| kept.status().connected()) {
            return Ok(channel.clone());
        }
        let channel = self.open(&mut link).await?;
        link.kept = Some(channel.clone());
        Ok(channel)
    }

    /// Gives up the connection, after it did not answer in time.
    pub(crate) async fn forget(&self) {
        *self.link.lock().await = Link::default();
    }

    /// Closes the connection, and waits at most `within` for the broker to say so.
    pub(crate) async fn close(&self, within: Duration) {
        let Link { connection, kept } = std::mem::take(&mut *self.link.lock().await);
        drop(kept);
        if let Some(connection) = connection {
            // Whatever the answer, it is dropped: there is nobody left to tell.
            let _ = timeout(within, connection.close(200, "drainer stopped".into())).await;
        }
    }

    async fn open(&self, link: &mut Link) -> Result<Channel, DrainError> {
        let opened = self.try_open(link).await;
        if opened.is_err() {
            *link = Link::default();
        }
        opened
    }

    async fn try_open(&self, link: &mut Link) -> Result<Channel, DrainError> {
        let usable = link.connection.take().filter(|open| open.status().connected());
        let connection = match usable {
            Some(open) => open,
            None => self.within("connect", self.url.connect(&self.name)).await?,
        };
        let connection = link.connection.insert(connection);
        let channel = self.within("open a channel", connection.create_channel()).await?;
        self.within("switch to confirms", channel.confirm_select(ConfirmSelectOptions::default())).await?;
        Ok(channel)
    }

    async fn within<T>(
        &self,
        what: &'static str,
        answer: impl Future<Output = lapin::Result<T>>,
    ) -> Result<T, DrainError> {
        match timeout(self.deadline, answer).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(source)) => Err(DrainError::Broker { what, address: self.address(), source }),
            Err(_) => {
                Err(DrainError::BrokerDeadline { what, address: self.address(), deadline: self.deadline })
            }
        }
    }

    /// Host and port, to name the broker by without a secret.
    pub(crate) fn address(&self) -> String {
        self.url.address()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_shows_the_password() {
        let broker =
            Broker::new("amqp://me:hunter2@127.0.0.1:5672/%2f", "n", Duration::from_secs(1)).unwrap();
        assert_eq!(broker.address(), "127.0.0.1:5672");
        assert!(!format!("{broker:?}").contains("hunter2"));
        let wrong = Broker::new("postgres://me:hunter2@h", "n", Duration::from_secs(1)).unwrap_err();
        assert!(!format!("{wrong} {wrong:?}").contains("hunter2"), "{wrong}");
    }
}
