//! What the rig says to the broker: exchanges and queues, and who it is.

use std::{future::Future, time::Duration};

use drainer::BrokerUrl;
use futures_util::{AsyncReadExt, AsyncWriteExt};
use lapin::{
    BasicProperties, Channel, Confirmation, Connection, ExchangeKind,
    options::{
        BasicGetOptions, BasicPublishOptions, ConfirmSelectOptions, ExchangeDeclareOptions,
        ExchangeDeleteOptions, QueueBindOptions, QueueDeclareOptions, QueueDeleteOptions,
    },
    types::{AMQPValue, FieldTable},
};

use super::{
    RigError,
    endpoints::{Amqp, CONNECT_WITHIN, no_answer},
};
use crate::scenario::{BrokerSettings, QueueKind};

/// How long one answer of the broker may take. A quorum queue's declaration takes the longest.
const ANSWER_WITHIN: Duration = Duration::from_secs(15);

/// A connection that makes and removes things.
pub(crate) struct Broker {
    connection: Connection,
    channel: Channel,
}

impl Broker {
    pub(crate) async fn connect(amqp: &Amqp) -> Result<Self, RigError> {
        let connected = async {
            let connection = amqp.0.connect("drainbench rig").await?;
            let channel = connection.create_channel().await?;
            Ok(Self { connection, channel })
        };
        match tokio::time::timeout(CONNECT_WITHIN, connected).await {
            Ok(Ok(broker)) => Ok(broker),
            Ok(Err(error)) => Err(amqp.unreachable(lapin::Error::to_string(&error))),
            Err(_) => Err(amqp.unreachable(no_answer())),
        }
    }

    /// A durable topic exchange and one durable queue of the same name, bound with `#`.
    pub(crate) async fn make(&self, name: &str, settings: &BrokerSettings) -> Result<(), RigError> {
        let durable = ExchangeDeclareOptions { durable: true, ..Default::default() };
        let declared =
            self.channel.exchange_declare(name.into(), ExchangeKind::Topic, durable, FieldTable::default());
        answer(&format!("declare exchange {name}"), declared).await?;
        let durable = QueueDeclareOptions { durable: true, ..Default::default() };
        let declared = self.channel.queue_declare(name.into(), durable, arguments(settings));
        answer(&format!("declare queue {name}"), declared).await?;
        let bound = self.channel.queue_bind(
            name.into(),
            name.into(),
            "#".into(),
            QueueBindOptions::default(),
            FieldTable::default(),
        );
        answer(&format!("bind queue {name}"), bound).await
    }

    /// Removes what [`make`](Self::make) makes; what is not there is no error.
    pub(crate) async fn remove(&self, name: &str) -> Result<(), RigError> {
        let deleted = self.channel.queue_delete(name.into(), QueueDeleteOptions::default());
        answer(&format!("delete queue {name}"), deleted).await?;
        let deleted = self.channel.exchange_delete(name.into(), ExchangeDeleteOptions::default());
        answer(&format!("delete exchange {name}"), deleted).await
    }

    /// Publishes `body` to exchange `name`, has it confirmed and takes it out of queue `name` again.
    pub(crate) async fn there_and_back(&self, name: &str, body: &[u8]) -> Result<(), RigError> {
        let doing = format!("send a probe event through queue {name}");
        answer(&doing, self.channel.confirm_select(ConfirmSelectOptions::default())).await?;
        let sent = self.channel.basic_publish(
            name.into(),
            "drainbench.probe".into(),
            BasicPublishOptions::default(),
            body,
            BasicProperties::default().with_delivery_mode(2),
        );
        match answer(&doing, answer(&doing, sent).await?).await? {
            Confirmation::Ack(_) => {}
            Confirmation::Nack(_) => return Err(refusal(&doing, "the broker rejected it")),
            Confirmation::NotRequested => return Err(refusal(&doing, "the broker does not confirm")),
        }
        // Confirmed means that it is in the queue.
        let got = self.channel.basic_get(name.into(), BasicGetOptions { no_ack: true });
        match answer(&doing, got).await? {
            Some(message) if message.data == body => Ok(()),
            Some(_) => Err(refusal(&doing, "another message came out")),
            None => Err(refusal(&doing, "it was confirmed and did not come out")),
        }
    }

    /// An orderly end. Dropped without it the broker notices the closed socket.
    pub(crate) async fn close(self) {
        // Nothing depends on it.
        let _ = tokio::time::timeout(CONNECT_WITHIN, self.connection.close(200, "done".into())).await;
    }
}

fn arguments(settings: &BrokerSettings) -> FieldTable {
    let mut arguments = FieldTable::default();
    let kind = match settings.queue {
        QueueKind::Classic => "classic",
        QueueKind::Quorum => "quorum",
    };
    arguments.insert("x-queue-type".into(), AMQPValue::LongString(kind.into()));
    if settings.max_length > 0 {
        arguments.insert("x-max-length".into(), AMQPValue::LongLongInt(i64::from(settings.max_length)));
        arguments.insert("x-overflow".into(), AMQPValue::LongString("reject-publish".into()));
    }
    arguments
}

/// Waits for the broker's answer, and not for ever. What it answers beside yes is of no interest here.
async fn answer<T>(doing: &str, answer: impl Future<Output = lapin::Result<T>>) -> Result<T, RigError> {
    match tokio::time::timeout(ANSWER_WITHIN, answer).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(refusal(doing, error)),
        Err(_) => Err(refusal(doing, format!("no answer within {} s", ANSWER_WITHIN.as_secs()))),
    }
}

fn refusal(doing: &str, reason: impl std::fmt::Display) -> RigError {
    RigError::refused(format!("{doing} at the broker"))(reason)
}

/// Says hello without credentials and returns the broker's version: the `version` of its first frame's server
/// properties, which the client keeps to itself.
pub(crate) async fn version(url: &BrokerUrl) -> std::io::Result<String> {
    let greeting = async {
        let mut stream = url.dial().await?;
        stream.write_all(b"AMQP\x00\x00\x09\x01").await?;
        let mut header = [0; 7];
        stream.read_exact(&mut header).await?;
        let size = u32::from_be_bytes([header[3], header[4], header[5], header[6]]);
        // A first frame is below 1 kB; somebody who speaks another protocol may announce anything.
        let mut frame = vec![0; usize::try_from(size.min(64 * 1024)).unwrap_or(0)];
        stream.read_exact(&mut frame).await?;
        Ok(version_in(&frame).unwrap_or_else(|| "unknown".to_owned()))
    };
    let late = |_| std::io::Error::new(std::io::ErrorKind::TimedOut, no_answer());
    tokio::time::timeout(CONNECT_WITHIN, greeting).await.map_err(late)?
}

/// A table entry: length of the name, name, type (`S`: a long string), length of the value, value.
fn version_in(frame: &[u8]) -> Option<String> {
    const KEY: &[u8] = b"\x07versionS";
    let at = frame.windows(KEY.len()).position(|window| window == KEY)? + KEY.len();
    let (length, value) = frame[at..].split_first_chunk::<4>()?;
    let value = value.get(..usize::try_from(u32::from_be_bytes(*length)).ok()?)?;
    String::from_utf8(value.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_version_from_server_properties() {
        let frame = b"\x00\x0a\x00\x0a\x00\x09\x00\x00\x00\x30\x07productS\x00\x00\x00\x08RabbitMQ\x07versionS\x00\x00\x00\x063.10.8rest";
        assert_eq!(version_in(frame).as_deref(), Some("3.10.8"));
        assert_eq!(version_in(b"HTTP/1.1 400 Bad Request"), None);
        assert_eq!(version_in(b"\x07versionS\xff\xff\xff\xff"), None);
    }
}
