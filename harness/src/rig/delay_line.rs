//! A slow way to the broker: what it says arrives `delay` later, in order, at full throughput.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{ReadHalf, WriteHalf},
    },
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch},
    task::{JoinHandle, JoinSet},
    time::Instant,
};

/// Largest read, bytes.
const CHUNK: usize = 16 * 1024;

/// Bytes under way on one connection. A confirm is 21 bytes, so that 8 MiB in 67 ms are six million confirms a second.
const UNDER_WAY: usize = 8 * 1024 * 1024;

/// What a small chunk costs beside its bytes, so that a flood of one-byte reads is bounded as well.
const CHUNK_OVERHEAD: usize = 64;

/// How long the broker may take to accept a connection.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);

/// A listener on loopback whose connections go to the broker.
///
/// Bytes that the broker sends at t leave at t + delay; bytes to the broker pass at once. An end of stream, a half
/// close included, is carried to the other side behind the bytes before it. A broken connection to the broker is
/// carried as a reset, after the delay; a broken connection to the drainer as an end of stream, so that the broker
/// still reads everything that was sent before it.
///
/// Everything ends on drop.
#[derive(Debug)]
#[must_use = "its connections end when it is dropped"]
pub struct DelayLine {
    addr: SocketAddr,
    open: Arc<AtomicUsize>,
    gate: watch::Sender<Gate>,
    accepting: JoinHandle<()>,
}

/// Whether connections are let in. Every cut is a new epoch, so that one that is restored at once is not missed.
#[derive(Debug, Clone, Copy)]
struct Gate {
    epoch: u64,
    cut: bool,
}

impl DelayLine {
    /// Listens on a free loopback port.
    ///
    /// # Errors
    /// When no port can be opened. Nothing is left.
    pub async fn start(upstream: SocketAddr, delay: Duration) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let addr = listener.local_addr()?;
        let open = Arc::new(AtomicUsize::new(0));
        let (gate, watched) = watch::channel(Gate { epoch: 0, cut: false });
        let line = Line { upstream, delay, open: Arc::clone(&open), gate: watched };
        let accepting = tokio::spawn(line.accept(listener));
        Ok(Self { addr, open, gate, accepting })
    }

    /// Where drainers connect to.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Connections of which at least one side is still open: at 0 the broker has read all that came through here and
    /// has closed.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.open.load(Ordering::Acquire)
    }

    /// Resets all connections, and new ones as they come, until [`restore`](Self::restore).
    pub fn cut(&self) {
        self.gate.send_modify(|gate| *gate = Gate { epoch: gate.epoch + 1, cut: true });
    }

    /// Lets new connections through again.
    pub fn restore(&self) {
        self.gate.send_modify(|gate| gate.cut = false);
    }
}

impl Drop for DelayLine {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// What every connection needs to know.
#[derive(Clone)]
struct Line {
    upstream: SocketAddr,
    delay: Duration,
    open: Arc<AtomicUsize>,
    gate: watch::Receiver<Gate>,
}

impl Line {
    async fn accept(self, listener: TcpListener) {
        // Owned by this task: when it is aborted they end as well.
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                Some(_) = connections.join_next() => {}
                accepted = listener.accept() => match accepted {
                    Ok((client, _)) => {
                        let counted = Counted::new(&self.open);
                        let gate = *self.gate.borrow();
                        if gate.cut {
                            reset(&client);
                        } else {
                            connections.spawn(self.clone().carry(client, gate.epoch, counted));
                        }
                    }
                    // Out of file descriptors, or the client is gone already: the next one may do.
                    Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
                }
            }
        }
    }

    async fn carry(mut self, mut client: TcpStream, epoch: u64, _counted: Counted) {
        let connect = tokio::time::timeout(CONNECT_WITHIN, TcpStream::connect(self.upstream));
        let Ok(Ok(mut broker)) = connect.await else {
            reset(&client);
            return;
        };
        let nodelay = client.set_nodelay(true).and_then(|()| broker.set_nodelay(true));
        let ended = tokio::select! {
            ended = both_ways(&mut client, &mut broker, self.delay) => nodelay.and(ended),
            _ = self.gate.wait_for(|gate| gate.epoch != epoch) => Err(io::ErrorKind::ConnectionReset.into()),
        };
        if ended.is_err() {
            reset(&client);
            reset(&broker);
        }
    }
}

/// One in [`DelayLine::connections`] while it lives.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(open: &Arc<AtomicUsize>) -> Self {
        open.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(open))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Makes the drop of `stream` a reset. Where it can't, the drop is an orderly end, which a client notices as well.
fn reset(stream: &TcpStream) {
    let _ = stream.set_zero_linger();
}

/// Ends when both directions have ended, or in an error.
async fn both_ways(client: &mut TcpStream, broker: &mut TcpStream, delay: Duration) -> io::Result<()> {
    let (client_read, client_write) = client.split();
    let (broker_read, broker_write) = broker.split();
    let (under_way, arriving) = mpsc::unbounded_channel();
    let forwarded = async {
        forward(client_read, broker_write).await;
        Ok(())
    };
    let listened = async {
        listen(broker_read, under_way).await;
        Ok(())
    };
    // A broken connection to the broker ends the rest at once, when the news arrives.
    tokio::try_join!(forwarded, listened, deliver(arriving, client_write, delay)).map(|_| ())
}

/// Drainer to broker, undelayed.
async fn forward(mut client: ReadHalf<'_>, mut broker: WriteHalf<'_>) {
    let mut buffer = vec![0; CHUNK];
    // An error of either side ends this direction alone: how the connection ends is for the broker to say, and its
    // last words are still under way.
    while let Ok(read @ 1..) = client.read(&mut buffer).await {
        if broker.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
    let _ = broker.shutdown().await;
}

/// What the broker said, and when.
struct Chunk {
    at: Instant,
    /// Bytes; empty at the end of the stream.
    said: io::Result<Vec<u8>>,
    /// Its share of [`UNDER_WAY`].
    _room: Option<OwnedSemaphorePermit>,
}

/// Broker to queue.
async fn listen(mut broker: ReadHalf<'_>, queue: mpsc::UnboundedSender<Chunk>) {
    let room = Arc::new(Semaphore::new(UNDER_WAY));
    let mut buffer = vec![0; CHUNK];
    loop {
        let said = broker.read(&mut buffer).await.map(|read| buffer[..read].to_vec());
        let at = Instant::now();
        let size = said.as_ref().map_or(0, Vec::len);
        let cost = u32::try_from(size + CHUNK_OVERHEAD).unwrap_or(u32::MAX);
        let permit = Arc::clone(&room).acquire_many_owned(cost).await.ok();
        if queue.send(Chunk { at, said, _room: permit }).is_err() || size == 0 {
            return;
        }
    }
}

/// Queue to drainer, `delay` after it was said.
async fn deliver(
    mut queue: mpsc::UnboundedReceiver<Chunk>,
    mut client: WriteHalf<'_>,
    delay: Duration,
) -> io::Result<()> {
    let mut out = Vec::with_capacity(CHUNK);
    let mut gone = false;
    let mut next = queue.recv().await;
    while let Some(chunk) = next.take() {
        if !delay.is_zero() {
            tokio::time::sleep_until(chunk.at + delay).await;
        }
        // Whatever is due by now goes in one write.
        let now = Instant::now();
        let mut end = take(chunk, &mut out);
        while end.is_none() && next.is_none() && out.len() < 4 * CHUNK {
            match queue.try_recv() {
                Ok(chunk) if chunk.at + delay <= now => end = take(chunk, &mut out),
                Ok(chunk) => next = Some(chunk),
                Err(_) => break,
            }
        }
        // A drainer that is gone does not end the connection: the broker closes it when it has read everything.
        gone = gone || client.write_all(&out).await.is_err();
        out.clear();
        match end {
            Some(Ok(())) => {
                let _ = client.shutdown().await;
                return Ok(());
            }
            Some(Err(error)) => return Err(error),
            None if next.is_none() => next = queue.recv().await,
            None => {}
        }
    }
    Ok(())
}

/// Adds what was said to `out`, or tells how the stream ended.
fn take(chunk: Chunk, out: &mut Vec<u8>) -> Option<io::Result<()>> {
    match chunk.said {
        Ok(said) if said.is_empty() => Some(Ok(())),
        Ok(said) => {
            out.extend_from_slice(&said);
            None
        }
        Err(error) => Some(Err(error)),
    }
}

#[cfg(test)]
mod tests;
