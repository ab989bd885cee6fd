//! A way to a server, and what can be wrong with it: late, slow, silent, or cut.

mod condition;
mod hearing;
mod passage;
#[cfg(test)]
mod tests;

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::{JoinHandle, JoinSet},
};

pub use self::{
    condition::{Condition, Seen},
    hearing::{Protocol, Trap},
};
use self::{
    condition::{Counters, State},
    hearing::{Armed, Heard},
    passage::Passage,
};
use crate::wire::postgres::Idle;

/// How long the server may take to accept a connection.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);

/// A listener on loopback whose connections go to a server.
///
/// Bytes that the server sends at t leave at t + delay; bytes to the server pass at once. An end of stream, a half
/// close included, is carried to the other side behind the bytes before it. A broken connection to the server is
/// carried as a reset, after the delay; a broken connection to the client as an end of stream, so that the server
/// still reads everything that was sent before it.
///
/// What is wrong with it beyond its delay is [imposed](Self::impose), for as long as a value lives. Everything ends on
/// drop.
#[derive(Debug)]
#[must_use = "its connections end when it is dropped"]
pub struct Link {
    addr: SocketAddr,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

/// What the listener, its connections and who imposes something share.
#[derive(Debug)]
struct Shared {
    upstream: SocketAddr,
    open: AtomicUsize,
    next: AtomicU64,
    state: watch::Sender<State>,
    counters: Counters,
    protocol: Protocol,
    heard: Heard,
}

/// A condition of a link, while it lives. Its drop heals.
#[derive(Debug)]
#[must_use = "the link heals when it is dropped"]
pub struct Imposed {
    shared: Arc<Shared>,
    id: u64,
    before: Seen,
}

impl Link {
    /// Listens on a free loopback port.
    ///
    /// # Errors
    /// When no port can be opened. Nothing is left.
    pub async fn start(upstream: SocketAddr, delay: Duration) -> io::Result<Self> {
        Self::reading(Protocol::Unread, upstream, delay).await
    }

    /// One that reads along what its connections say.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn reading(protocol: Protocol, upstream: SocketAddr, delay: Duration) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let addr = listener.local_addr()?;
        let (state, _) = watch::channel(State::new(Condition { delay, ..Condition::default() }));
        let shared = Arc::new(Shared {
            upstream,
            open: AtomicUsize::new(0),
            next: AtomicU64::new(0),
            state,
            counters: Counters::default(),
            protocol,
            heard: Heard::default(),
        });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Ok(Self { addr, shared, accepting })
    }

    /// Where clients connect to.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Connections of which at least one side is still open: at 0 the server has read all that came through here and
    /// has closed.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.open.load(Ordering::Acquire)
    }

    /// What happened on it so far.
    #[must_use]
    pub fn seen(&self) -> Seen {
        self.shared.counters.read()
    }

    /// Time that its connections of PostgreSQL sat in a transaction while their client did something else, of those that
    /// have ended; or why one of them could not be read.
    ///
    /// # Errors
    /// The reason, such as TLS.
    pub fn idle(&self) -> Result<Idle, String> {
        self.shared.heard.unread().map_or_else(|| Ok(self.shared.heard.idle()), Err)
    }

    /// Sets a trap, in place of one that was. It holds the connection that springs it, for ever; when it is taken away
    /// that connection is reset, and what it held back never arrives.
    pub fn trap(&self, trap: Trap) -> Trapped {
        let id = self.shared.next.fetch_add(1, Ordering::Relaxed);
        let armed = Armed::new(id, trap);
        self.shared.heard.set(Some(Arc::clone(&armed)));
        self.shared.state.send_modify(|state| state.trap(Some(id)));
        Trapped { shared: Arc::clone(&self.shared), armed }
    }

    /// Makes it worse until the value is dropped. Several add up: delays and jitters are summed, of limits the lowest
    /// holds, and it is stalled or cut while any of them says so.
    pub fn impose(&self, condition: Condition) -> Imposed {
        let before = self.seen();
        let id = self.shared.next.fetch_add(1, Ordering::Relaxed);
        self.shared.state.send_modify(|state| state.impose(id, condition));
        Imposed { shared: Arc::clone(&self.shared), id, before }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// A trap of a link, while it lives.
#[derive(Debug)]
#[must_use = "the trap is gone when it is dropped"]
pub struct Trapped {
    shared: Arc<Shared>,
    armed: Arc<Armed>,
}

impl Trapped {
    /// Waits until what it waits for has come, and stands still.
    pub async fn sprung(&self) {
        self.armed.sprung().await;
    }
}

impl Drop for Trapped {
    fn drop(&mut self) {
        // Another one may stand in its place.
        if self.shared.heard.trap().is_some_and(|armed| armed.id == self.armed.id) {
            self.shared.heard.set(None);
            self.shared.state.send_modify(|state| state.trap(None));
        }
    }
}

impl Imposed {
    /// What happened on the link since.
    #[must_use]
    pub fn seen(&self) -> Seen {
        self.shared.counters.read().since(self.before)
    }
}

impl Drop for Imposed {
    fn drop(&mut self) {
        self.shared.state.send_modify(|state| state.lift(self.id));
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    // Owned by this task: when it is aborted they end as well.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((client, _)) => {
                    let counted = Counted::new(&shared);
                    let state = shared.state.subscribe();
                    if state.borrow().now().cut {
                        shared.counters.refused();
                        reset(&client);
                    } else {
                        connections.spawn(carry(Arc::clone(&shared), client, state, counted));
                    }
                }
                // Out of file descriptors, or the client is gone already: the next one may do.
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    }
}

async fn carry(
    shared: Arc<Shared>,
    mut client: TcpStream,
    mut state: watch::Receiver<State>,
    _counted: Counted,
) {
    // From here on a cut ends it, also one that is healed at once.
    let cuts = state.borrow().cuts();
    shared.counters.accepted();
    let connect = tokio::time::timeout(CONNECT_WITHIN, TcpStream::connect(shared.upstream));
    let Ok(Ok(mut server)) = connect.await else {
        reset(&client);
        return;
    };
    let nodelay = client.set_nodelay(true).and_then(|()| server.set_nodelay(true));
    let passage = Passage::new(&shared, state.clone());
    let ended = tokio::select! {
        ended = passage.both_ways(&mut client, &mut server) => nodelay.and(ended),
        _ = state.wait_for(|state| state.cuts() != cuts) => {
            shared.counters.cut();
            Err(io::ErrorKind::ConnectionReset.into())
        }
    };
    if ended.is_err() {
        reset(&client);
        reset(&server);
    }
}

/// One in [`Link::connections`] while it lives.
struct Counted(Arc<Shared>);

impl Counted {
    fn new(shared: &Arc<Shared>) -> Self {
        shared.open.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(shared))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Makes the drop of `stream` a reset. Where it can't, the drop is an orderly end, which a client notices as well.
fn reset(stream: &TcpStream) {
    let _ = stream.set_zero_linger();
}
