//! The end of the pipe: every delivery at the broker, with the instant it arrived.
//!
//! The sink talks to the broker itself, never through a proxy, and acknowledges by hand. Once a second it sends a
//! marker through every queue: how long one takes is how far the sink is behind. The last marker ends a cell: a queue
//! is first in, first out, so what has not come before it never will.

use std::{sync::Arc, time::Duration};

use drainer::BrokerUrl;
use futures_util::StreamExt;
use lapin::{
    BasicProperties, Channel, Confirmation, Connection, Consumer,
    message::Delivery,
    options::{
        BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, BasicQosOptions, ConfirmSelectOptions,
    },
    types::{AMQPValue, FieldTable},
};
use tokio::{task::JoinHandle, time::Instant};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{clock::Clock, history::Arrival, live::Live, plan::Plan};

/// Deliveries the broker may send ahead of our acknowledgements, a queue. Two thousand keep a queue of 10,000 a second
/// flowing at 100 ms between acknowledgements; more only moves the waiting from the broker into our memory.
const PREFETCH: u16 = 2_000;
/// Deliveries acknowledged at once.
const ACK_EVERY: usize = 256;
/// One connection reads at most this many queues: a lapin connection is one thread's work.
const QUEUES_A_CONNECTION: usize = 8;
const MARKER_EVERY: Duration = Duration::from_secs(1);
/// Deadline of one word with the broker.
const BROKER_WITHIN: Duration = Duration::from_secs(15);

/// Consumers of every queue of a cell.
#[derive(Debug)]
pub struct Sink {
    queues: Vec<Reader>,
    markers: JoinHandle<Result<(), SinkError>>,
    stop_markers: CancellationToken,
    sender: Channel,
    run: Arc<str>,
    clock: Clock,
    // Dropped last: the consumers live on them.
    _connections: Vec<Connection>,
}

#[derive(Debug)]
struct Reader {
    queue: String,
    task: JoinHandle<Result<Read, SinkError>>,
}

/// What came through one queue.
#[derive(Debug, Default)]
pub struct Read {
    /// In the order they came.
    pub arrivals: Vec<Arrival>,
    /// Longest time a marker took.
    pub marker_max_ns: u64,
}

/// Why the sink cannot tell what arrived.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    /// The broker said no, or went away.
    #[error("the sink lost the broker while it {doing}: {source}")]
    Broker {
        /// What it was at.
        doing: &'static str,
        /// The client's error.
        #[source]
        source: lapin::Error,
    },
    /// The broker did not answer.
    #[error("the broker did not answer within {} s while the sink {doing}", BROKER_WITHIN.as_secs())]
    Silent {
        /// What it was at.
        doing: &'static str,
    },
    /// The last marker did not come through.
    #[error(
        "the last marker did not come through queue {queue} within {within_s} s: what is still in it is unknown"
    )]
    NoMarker {
        /// Which queue.
        queue: String,
        /// The deadline.
        within_s: u64,
    },
    /// A consumer ended by itself.
    #[error("the broker cancelled the consumer of queue {queue}")]
    Cancelled {
        /// Which queue.
        queue: String,
    },
}

/// Consumers that are subscribed and not yet read.
#[derive(Debug)]
pub struct Subscribed {
    consumers: Vec<(String, Consumer)>,
    sender: Channel,
    connections: Vec<Connection>,
}

/// Subscribes to `queues` (in the order of the plan's services) at the broker at `url`.
///
/// # Errors
/// When the broker refuses or does not answer; nothing consumes then.
pub async fn subscribe(url: &BrokerUrl, queues: &[String]) -> Result<Subscribed, SinkError> {
    let connection = connect(url).await?;
    let sender = within("opened a channel", connection.create_channel()).await?;
    within("switched on confirms", sender.confirm_select(ConfirmSelectOptions::default())).await?;
    let mut subscribed = Subscribed { consumers: Vec::new(), sender, connections: vec![connection] };
    for part in queues.chunks(QUEUES_A_CONNECTION) {
        let connection = connect(url).await?;
        for queue in part {
            subscribed.consumers.push((queue.clone(), consume(&connection, queue).await?));
        }
        subscribed.connections.push(connection);
    }
    Ok(subscribed)
}

impl Sink {
    /// Reads what was subscribed to, and sends the first markers.
    #[must_use]
    pub fn start(subscribed: Subscribed, plan: &Arc<Plan>, clock: Clock, live: &Arc<Live>) -> Self {
        let Subscribed { consumers, sender, connections } = subscribed;
        let run: Arc<str> = Uuid::new_v4().to_string().into();
        let queues: Vec<String> = consumers.iter().map(|(queue, _)| queue.clone()).collect();
        let reader = |(service, (queue, consumer)): (u16, (String, Consumer))| {
            let decode = Decode { plan: Arc::clone(plan), service, run: Arc::clone(&run), clock };
            let task = tokio::spawn(read(consumer, queue.clone(), decode, Arc::clone(live)));
            Reader { queue, task }
        };
        let readers = (0..).zip(consumers).map(reader).collect();
        let stop_markers = CancellationToken::new();
        let markers = send_markers(sender.clone(), queues, Arc::clone(&run), clock, stop_markers.clone());
        Self {
            queues: readers,
            markers: tokio::spawn(markers),
            stop_markers,
            sender,
            run,
            clock,
            _connections: connections,
        }
    }

    /// Sends the last marker through every queue and returns what came before it.
    ///
    /// # Errors
    /// When a marker does not come through within `deadline`, or the broker was lost at any time before: then nobody
    /// knows what is still in the queues.
    pub async fn finish(self, deadline: Duration) -> Result<Vec<Read>, SinkError> {
        self.stop_markers.cancel();
        let markers = self.markers.await;
        if let Ok(Err(error)) = markers {
            return Err(error);
        }
        let until = Until { instant: Instant::now() + deadline, within_s: deadline.as_secs() };
        let mut reads = Vec::with_capacity(self.queues.len());
        for reader in &self.queues {
            last_marker(&self.sender, &reader.queue, &self.run, self.clock, until).await?;
        }
        for reader in self.queues {
            let abort = reader.task.abort_handle();
            match tokio::time::timeout_at(until.instant, reader.task).await {
                Ok(Ok(read)) => reads.push(read?),
                Ok(Err(_)) | Err(_) => {
                    abort.abort();
                    return Err(SinkError::NoMarker { queue: reader.queue, within_s: until.within_s });
                }
            }
        }
        Ok(reads)
    }
}

/// A deadline, and how long that was.
#[derive(Debug, Clone, Copy)]
struct Until {
    instant: Instant,
    within_s: u64,
}

async fn within<T>(
    doing: &'static str,
    word: impl Future<Output = lapin::Result<T>>,
) -> Result<T, SinkError> {
    match tokio::time::timeout(BROKER_WITHIN, word).await {
        Ok(answer) => answer.map_err(|source| SinkError::Broker { doing, source }),
        Err(_) => Err(SinkError::Silent { doing }),
    }
}

async fn connect(url: &BrokerUrl) -> Result<Connection, SinkError> {
    within("connected", url.connect("drainbench-sink")).await
}

async fn consume(connection: &Connection, queue: &str) -> Result<Consumer, SinkError> {
    let channel = within("opened a channel", connection.create_channel()).await?;
    within("set its prefetch", channel.basic_qos(PREFETCH, BasicQosOptions::default())).await?;
    let options = BasicConsumeOptions::default();
    let tag = "drainbench".into();
    within("subscribed", channel.basic_consume(queue.into(), tag, options, FieldTable::default())).await
}

/// Reads one queue until its last marker.
async fn read(consumer: Consumer, queue: String, decode: Decode, live: Arc<Live>) -> Result<Read, SinkError> {
    let mut read = Read::default();
    // What is ready is taken at once and acknowledged at once: no timer, and no delivery waits for a full batch.
    let mut batches = consumer.ready_chunks(ACK_EVERY);
    while let Some(batch) = batches.next().await {
        let at_ns = decode.clock.now_ns();
        let mut last = None;
        let mut ended = false;
        let before = read.arrivals.len();
        for delivery in batch {
            let delivery = delivery.map_err(|source| SinkError::Broker { doing: "consumed", source })?;
            ended |= decode.delivery(&delivery, at_ns, &mut read);
            last = Some(delivery);
        }
        live.arrived((read.arrivals.len() - before) as u64);
        if let Some(delivery) = last {
            let all = BasicAckOptions { multiple: true };
            delivery.ack(all).await.map_err(|source| SinkError::Broker { doing: "acknowledged", source })?;
        }
        if ended {
            return Ok(read);
        }
    }
    Err(SinkError::Cancelled { queue })
}

/// Tells what a delivery is.
struct Decode {
    plan: Arc<Plan>,
    service: u16,
    run: Arc<str>,
    clock: Clock,
}

impl Decode {
    /// Adds the delivery to `read`; true when it is the last marker.
    fn delivery(&self, delivery: &Delivery, at_ns: u64, read: &mut Read) -> bool {
        let id = delivery.properties.message_id().as_ref().map_or("", |id| id.as_str());
        if let Some(marker) = Marker::parse(id, &self.run) {
            read.marker_max_ns = read.marker_max_ns.max(at_ns.saturating_sub(marker.sent_ns));
            return marker.last;
        }
        let event = Uuid::try_parse(id).ok().and_then(|id| self.plan.decode(self.service, id));
        let publish = delivery.properties.headers().as_ref().map_or(0, publish_of);
        read.arrivals.push(Arrival { at_ns, event, publish, redelivered: delivery.redelivered });
        false
    }
}

/// `x-publish-id` folded to eight bytes. Compared only among the publishes of one event, so chance has no room.
fn publish_of(headers: &FieldTable) -> u64 {
    let text = match headers.inner().get("x-publish-id") {
        Some(AMQPValue::LongString(text)) => std::str::from_utf8(text.as_bytes()).unwrap_or(""),
        Some(AMQPValue::ShortString(text)) => text.as_str(),
        _ => return 0,
    };
    Uuid::try_parse(text).map_or(0, |id| id.as_u64_pair().0 ^ id.as_u64_pair().1.rotate_left(32))
}

/// `marker/<run>/<sent_ns>/<tick|last>`
struct Marker {
    sent_ns: u64,
    last: bool,
}

impl Marker {
    fn text(run: &str, sent_ns: u64, last: bool) -> String {
        format!("marker/{run}/{sent_ns}/{}", if last { "last" } else { "tick" })
    }
    fn parse(id: &str, run: &str) -> Option<Self> {
        let (sent_ns, kind) =
            id.strip_prefix("marker/")?.strip_prefix(run)?.strip_prefix('/')?.split_once('/')?;
        Some(Self { sent_ns: sent_ns.parse().ok()?, last: kind == "last" })
    }
}

async fn publish_marker(sender: &Channel, queue: &str, id: String) -> Result<Confirmation, SinkError> {
    let properties = BasicProperties::default().with_message_id(id.into());
    let options = BasicPublishOptions::default();
    let confirm =
        within("sent a marker", sender.basic_publish("".into(), queue.into(), options, b"", properties));
    within("awaited a marker's confirm", confirm.await?).await
}

async fn send_markers(
    sender: Channel,
    queues: Vec<String>,
    run: Arc<str>,
    clock: Clock,
    stop: CancellationToken,
) -> Result<(), SinkError> {
    let mut next = Instant::now() + MARKER_EVERY;
    let mut due_ns: Vec<Option<u64>> = vec![None; queues.len()];
    loop {
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            () = tokio::time::sleep_until(next) => {}
        }
        for (queue, due_ns) in queues.iter().zip(&mut due_ns) {
            // A full queue rejects it. The next one then carries the instant of the first that was rejected: that is how
            // far we are behind.
            let sent_ns = *due_ns.get_or_insert_with(|| clock.now_ns());
            let sent = publish_marker(&sender, queue, Marker::text(&run, sent_ns, false)).await?;
            if matches!(sent, Confirmation::Ack(_)) {
                *due_ns = None;
            }
        }
        next = Instant::now().max(next + MARKER_EVERY);
    }
}

/// Sends the last marker until the queue takes it: a full one rejects, and drains as it is read.
async fn last_marker(
    sender: &Channel,
    queue: &str,
    run: &str,
    clock: Clock,
    until: Until,
) -> Result<(), SinkError> {
    loop {
        let sent = publish_marker(sender, queue, Marker::text(run, clock.now_ns(), true)).await?;
        if matches!(sent, Confirmation::Ack(_)) {
            return Ok(());
        }
        if Instant::now() >= until.instant {
            return Err(SinkError::NoMarker { queue: queue.to_owned(), within_s: until.within_s });
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_of_another_run_is_no_marker() {
        let text = Marker::text("a", 7, true);
        assert!(Marker::parse(&text, "b").is_none());
        let marker = Marker::parse(&text, "a").expect("its own run knows it");
        assert_eq!((marker.sent_ns, marker.last), (7, true));
    }
}
