//! One connection through a link: both directions, with whatever is wrong with it at each moment.

use std::{
    io,
    num::NonZeroU64,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpStream,
        tcp::{ReadHalf, WriteHalf},
    },
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch},
    time::Instant,
};

use super::{
    Shared,
    condition::State,
    hearing::{Armed, Hearing},
};

/// Largest read, bytes.
const CHUNK: usize = 16 * 1024;

/// Bytes under way on one connection. A confirm is 21 bytes, so that 8 MiB in 67 ms are six million confirms a second.
const UNDER_WAY: usize = 8 * 1024 * 1024;

/// What a small chunk costs beside its bytes, so that a flood of one-byte reads is bounded as well.
const CHUNK_OVERHEAD: usize = 64;

/// Bytes that go at once where bandwidth is little.
const SIP: usize = 512;

pub(super) struct Passage<'a> {
    shared: &'a Shared,
    hearing: Hearing<'a>,
    state: watch::Receiver<State>,
    passed: AtomicU64,
    /// Which limit of bytes holds, and how many had passed when it came.
    limit: Mutex<(u64, u64)>,
}

impl<'a> Passage<'a> {
    pub(super) fn new(shared: &'a Shared, state: watch::Receiver<State>) -> Self {
        let hearing = Hearing::new(&shared.heard, shared.protocol);
        Self { shared, hearing, state, passed: AtomicU64::new(0), limit: Mutex::new((0, 0)) }
    }

    /// Ends when both directions have ended, or in an error.
    pub(super) async fn both_ways(&self, client: &mut TcpStream, server: &mut TcpStream) -> io::Result<()> {
        let (client_read, client_write) = client.split();
        let (server_read, server_write) = server.split();
        let (under_way, arriving) = mpsc::unbounded_channel();
        // A broken connection to the server ends the rest at once, when the news arrives.
        tokio::try_join!(
            self.forward(client_read, server_write),
            self.listen(server_read, under_way),
            self.deliver(arriving, client_write)
        )
        .map(|_| ())
    }

    /// Client to server, undelayed.
    async fn forward(&self, mut client: ReadHalf<'_>, mut server: WriteHalf<'_>) -> io::Result<()> {
        let mut lane = Lane::new(self);
        let mut buffer = vec![0; CHUNK];
        let mut kept = Kept::default();
        // An error of either side ends this direction alone: how the connection ends is for the server to say, and its
        // last words are still under way.
        while let Ok(read @ 1..) = client.read(&mut buffer).await {
            let course = self.hearing.client(&buffer[..read]);
            let ready = kept.with(&buffer[..read], course.until);
            if lane.pass(&mut server, &ready).await? == Passed::NobodyThere {
                return Ok(());
            }
            if course.held {
                return self.held(course.springs).await;
            }
        }
        if lane.pass(&mut server, &kept.bytes).await? == Passed::NobodyThere {
            return Ok(());
        }
        lane.until_it_flows(1).await;
        let _ = server.shutdown().await;
        Ok(())
    }

    /// Server to queue.
    async fn listen(&self, mut server: ReadHalf<'_>, queue: mpsc::UnboundedSender<Chunk>) -> io::Result<()> {
        let room = Arc::new(Semaphore::new(UNDER_WAY));
        // The same on each connection of each run: what is drawn is a wait and no fact.
        let mut jitters = ChaCha8Rng::seed_from_u64(0);
        let mut buffer = vec![0; CHUNK];
        let mut kept = Kept::default();
        let mut last = Instant::now();
        loop {
            let said = server.read(&mut buffer).await.map(|read| &buffer[..read]);
            let (delay, is_late) = {
                let state = self.state.borrow();
                let now = state.now();
                (now.delay + drawn(&mut jitters, now.jitter), state.is_late())
            };
            if is_late {
                self.shared.counters.delayed();
            }
            // In order, also where the delay became shorter meanwhile.
            last = last.max(Instant::now() + delay);
            let (said, course) = match said {
                Ok([]) | Err(_) if !kept.bytes.is_empty() => {
                    let rest = std::mem::take(&mut kept.bytes);
                    self.send(&queue, &room, Chunk::of(last, Ok(rest))).await;
                    (said.map(<[u8]>::to_vec), None)
                }
                Ok(bytes @ [_, ..]) => {
                    let course = self.hearing.server(bytes);
                    (Ok(kept.with(bytes, course.until)), Some(course))
                }
                Ok(_) | Err(_) => (said.map(<[u8]>::to_vec), None),
            };
            let ended = course.is_none();
            let held = course.as_ref().is_some_and(|course| course.held);
            let springs = course.and_then(|course| course.springs);
            if held {
                let has_said = said.as_ref().is_ok_and(|said| !said.is_empty());
                let first = springs.clone().filter(|_| has_said);
                if has_said {
                    self.send(&queue, &room, Chunk { springs: first.clone(), ..Chunk::of(last, said) }).await;
                }
                let at_once = springs.filter(|_| first.is_none());
                return self.held_and_read(at_once, server).await;
            }
            // Nothing of it is understood yet.
            if !ended && said.as_ref().is_ok_and(Vec::is_empty) {
                continue;
            }
            if !self.send(&queue, &room, Chunk::of(last, said)).await || ended {
                return Ok(());
            }
        }
    }

    async fn send(
        &self,
        queue: &mpsc::UnboundedSender<Chunk>,
        room: &Arc<Semaphore>,
        mut chunk: Chunk,
    ) -> bool {
        let size = chunk.said.as_ref().map_or(0, Vec::len);
        let cost = u32::try_from(size + CHUNK_OVERHEAD).unwrap_or(u32::MAX);
        chunk.room = Arc::clone(room).acquire_many_owned(cost).await.ok();
        queue.send(chunk).is_ok()
    }

    /// Stands still until the trap is taken away; what was held back never arrives.
    async fn held(&self, springs: Option<Arc<Armed>>) -> io::Result<()> {
        if let Some(springs) = springs {
            springs.spring();
        }
        let _ = self.state.clone().wait_for(|state| !state.is_trapped()).await;
        Err(io::ErrorKind::ConnectionReset.into())
    }

    /// As [`held`](Self::held); what the server still says is heard and goes nowhere, so that it is not kept waiting.
    async fn held_and_read(&self, springs: Option<Arc<Armed>>, mut server: ReadHalf<'_>) -> io::Result<()> {
        let read_on = async {
            let mut buffer = vec![0; CHUNK];
            while let Ok(read @ 1..) = server.read(&mut buffer).await {
                self.hearing.server(&buffer[..read]);
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            held = self.held(springs) => held,
            () = read_on => Ok(()),
        }
    }

    /// Queue to client, each chunk when it is due.
    async fn deliver(
        &self,
        mut queue: mpsc::UnboundedReceiver<Chunk>,
        mut client: WriteHalf<'_>,
    ) -> io::Result<()> {
        let mut lane = Lane::new(self);
        let mut out = Vec::with_capacity(CHUNK);
        let mut gone = false;
        let mut next = queue.recv().await;
        while let Some(chunk) = next.take() {
            if chunk.due > Instant::now() {
                tokio::time::sleep_until(chunk.due).await;
            }
            // Whatever is due by now goes in one write.
            let now = Instant::now();
            let mut springs = chunk.springs.clone();
            let mut end = take(chunk, &mut out);
            while end.is_none() && next.is_none() && out.len() < 4 * CHUNK {
                match queue.try_recv() {
                    Ok(chunk) if chunk.due <= now => {
                        springs = springs.or(chunk.springs.clone());
                        end = take(chunk, &mut out);
                    }
                    Ok(chunk) => next = Some(chunk),
                    Err(_) => break,
                }
            }
            // A client that is gone does not end the connection: the server closes it when it has read everything.
            if !gone && !out.is_empty() {
                gone = lane.pass(&mut client, &out).await? == Passed::NobodyThere;
            }
            out.clear();
            if let Some(springs) = springs {
                springs.spring();
            }
            match end {
                Some(Ok(())) => {
                    lane.until_it_flows(1).await;
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

    /// How many of `bytes` may still pass before the connection is to be reset.
    fn allowed(&self, bytes: usize) -> usize {
        let (number, most) = {
            let state = self.state.borrow();
            (state.resets(), state.now().reset_after)
        };
        let Some(most) = most else { return bytes };
        let passed = self.passed.load(Ordering::Relaxed);
        let mut limit = self.limit.lock().unwrap_or_else(PoisonError::into_inner);
        if limit.0 != number {
            *limit = (number, passed);
        }
        let left = most.get().saturating_sub(passed - limit.1);
        bytes.min(usize::try_from(left).unwrap_or(usize::MAX))
    }
}

/// Whether the other side still takes what passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Passed {
    Taken,
    NobodyThere,
}

/// One direction.
struct Lane<'p, 'a> {
    passage: &'p Passage<'a>,
    state: watch::Receiver<State>,
    /// When the next byte may go, where bandwidth is little.
    free_at: Instant,
}

impl<'p, 'a> Lane<'p, 'a> {
    fn new(passage: &'p Passage<'a>) -> Self {
        Self { passage, state: passage.state.clone(), free_at: Instant::now() }
    }

    /// Writes all of it, as fast as the link lets it.
    ///
    /// # Errors
    /// When the connection is to be reset.
    async fn pass(&mut self, to: &mut WriteHalf<'_>, mut bytes: &[u8]) -> io::Result<Passed> {
        while !bytes.is_empty() {
            self.until_it_flows(bytes.len() as u64).await;
            let bandwidth = self.state.borrow().now().bandwidth;
            let wanted = if bandwidth.is_some() { bytes.len().min(SIP) } else { bytes.len() };
            let allowed = self.passage.allowed(wanted);
            if let Some(bandwidth) = bandwidth {
                self.wait_for_room(allowed, bandwidth).await;
            }
            if to.write_all(&bytes[..allowed]).await.is_err() {
                return Ok(Passed::NobodyThere);
            }
            self.passage.passed.fetch_add(allowed as u64, Ordering::Relaxed);
            self.passage.shared.counters.passed(allowed as u64);
            if allowed < wanted {
                self.passage.shared.counters.reset();
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            bytes = &bytes[allowed..];
        }
        Ok(Passed::Taken)
    }

    async fn until_it_flows(&mut self, bytes: u64) {
        if self.state.borrow().now().stalled {
            self.passage.shared.counters.withheld(bytes);
            // An error means that the link is gone, and this with it.
            let _ = self.state.wait_for(|state| !state.now().stalled).await;
        }
    }

    async fn wait_for_room(&mut self, bytes: usize, bandwidth: NonZeroU64) {
        let now = Instant::now();
        if self.free_at > now {
            self.passage.shared.counters.throttled(bytes as u64);
            tokio::time::sleep_until(self.free_at).await;
        }
        let nanos = (bytes as u128 * 1_000_000_000) / u128::from(bandwidth.get());
        let takes = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        self.free_at = self.free_at.max(now) + takes;
    }
}

/// What the server said, and when it is to arrive.
struct Chunk {
    due: Instant,
    /// Bytes; empty at the end of the stream.
    said: io::Result<Vec<u8>>,
    /// Its share of [`UNDER_WAY`].
    room: Option<OwnedSemaphorePermit>,
    /// Springs when it has arrived.
    springs: Option<Arc<Armed>>,
}

impl Chunk {
    fn of(due: Instant, said: io::Result<Vec<u8>>) -> Self {
        Self { due, said, room: None, springs: None }
    }
}

/// What was read of a direction and is not forwarded yet.
#[derive(Debug, Default)]
struct Kept {
    bytes: Vec<u8>,
    forwarded: u64,
}

impl Kept {
    /// Adds what was read, and takes what may go: all up to that position.
    fn with(&mut self, read: &[u8], until: u64) -> Vec<u8> {
        self.bytes.extend_from_slice(read);
        let more = usize::try_from(until.saturating_sub(self.forwarded)).unwrap_or(usize::MAX);
        self.forwarded = self.forwarded.max(until);
        let rest = self.bytes.split_off(more.min(self.bytes.len()));
        std::mem::replace(&mut self.bytes, rest)
    }
}

fn drawn(jitters: &mut ChaCha8Rng, jitter: Duration) -> Duration {
    if jitter.is_zero() { Duration::ZERO } else { jitter.mul_f64(jitters.random::<f64>()) }
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
