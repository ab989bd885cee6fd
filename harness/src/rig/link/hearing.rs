//! Reads along what a connection says, and stops it where a trap is set.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::{sync::watch, time::Instant};

use crate::{
    scenario::{Point, When},
    wire::{
        amqp,
        postgres::{self, Idle, Phase, Witness},
    },
};

/// What is spoken on a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// Whatever it is, nobody reads along.
    Unread,
    /// PostgreSQL's.
    Postgres,
    /// AMQP 0-9-1.
    Amqp,
}

/// Where a link stops everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trap {
    /// At what.
    pub point: Point,
    /// On which side of it.
    pub when: When,
    /// At the how-manyth on this link since the trap was set, from 1.
    pub nth: u64,
}

/// A trap that is set.
#[derive(Debug)]
pub(super) struct Armed {
    pub(super) id: u64,
    trap: Trap,
    counted: Mutex<u64>,
    sprung: watch::Sender<bool>,
}

impl Armed {
    pub(super) fn new(id: u64, trap: Trap) -> Arc<Self> {
        Arc::new(Self { id, trap, counted: Mutex::new(0), sprung: watch::Sender::new(false) })
    }

    pub(super) async fn sprung(&self) {
        // An error means that the link is gone.
        let _ = self.sprung.subscribe().wait_for(|sprung| *sprung).await;
    }

    pub(super) fn spring(&self) {
        self.sprung.send_replace(true);
    }

    /// Counts `more` of its point. Whether the one it waits for is among them.
    fn counts(&self, more: u64) -> bool {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let before = *counted;
        *counted = before + more;
        before < self.trap.nth && self.trap.nth <= *counted
    }

    fn waits_for(&self, point: Point, when: When) -> bool {
        self.trap.point == point && self.trap.when == when
    }
}

/// How far what was read may be forwarded.
#[derive(Debug)]
pub(super) struct Course {
    /// Position in the direction, counted in bytes.
    pub(super) until: u64,
    /// Nothing beyond it ever is.
    pub(super) held: bool,
    /// Springs once all until there was forwarded.
    pub(super) springs: Option<Arc<Armed>>,
}

/// What was heard on all connections of a link.
#[derive(Debug, Default)]
pub(super) struct Heard {
    trap: Mutex<Option<Arc<Armed>>>,
    idle: Mutex<Idle>,
    unread: Mutex<Option<String>>,
}

impl Heard {
    pub(super) fn set(&self, armed: Option<Arc<Armed>>) {
        *lock(&self.trap) = armed;
    }

    pub(super) fn trap(&self) -> Option<Arc<Armed>> {
        lock(&self.trap).clone()
    }

    /// Time in a transaction while its client did something else, of the connections that have ended.
    pub(super) fn idle(&self) -> Idle {
        *lock(&self.idle)
    }

    /// Why a connection could not be read.
    pub(super) fn unread(&self) -> Option<String> {
        lock(&self.unread).clone()
    }
}

/// One connection.
pub(super) struct Hearing<'a> {
    heard: &'a Heard,
    began: Instant,
    both: Mutex<Both>,
}

struct Both {
    conversation: Conversation,
    client: Direction,
    server: Direction,
}

enum Conversation {
    Unread,
    Postgres(Box<postgres::Conversation>, Witness),
    Amqp(Box<amqp::Conversation>),
}

/// Of one direction.
#[derive(Debug, Clone, Copy, Default)]
struct Direction {
    read: u64,
    hold_at: Option<u64>,
}

impl<'a> Hearing<'a> {
    pub(super) fn new(heard: &'a Heard, protocol: Protocol) -> Self {
        let conversation = match protocol {
            Protocol::Unread => Conversation::Unread,
            Protocol::Postgres => Conversation::Postgres(Box::default(), Witness::new()),
            Protocol::Amqp => Conversation::Amqp(Box::default()),
        };
        let both = Both { conversation, client: Direction::default(), server: Direction::default() };
        Self { heard, began: Instant::now(), both: Mutex::new(both) }
    }

    /// Bytes of the client were read.
    pub(super) fn client(&self, bytes: &[u8]) -> Course {
        let trap = self.heard.trap();
        let mut both = lock(&self.both);
        let both = &mut *both;
        both.client.read += bytes.len() as u64;
        let settled = match &mut both.conversation {
            Conversation::Unread => both.client.read,
            Conversation::Postgres(conversation, witness) => {
                witness.asked(self.now_ns());
                for found in conversation.client(bytes) {
                    both.client.hold(of_client(found, trap.as_deref()));
                    self.note(found);
                }
                conversation.client_settled()
            }
            Conversation::Amqp(conversation) => {
                for found in conversation.client(bytes) {
                    both.client.hold(of_publisher(found, trap.as_deref()));
                    self.note_amqp(found);
                }
                conversation.client_settled()
            }
        };
        both.client.course(settled, trap)
    }

    /// Bytes of the server were read.
    pub(super) fn server(&self, bytes: &[u8]) -> Course {
        let trap = self.heard.trap();
        let mut both = lock(&self.both);
        let both = &mut *both;
        both.server.read += bytes.len() as u64;
        let settled = match &mut both.conversation {
            Conversation::Unread => both.server.read,
            Conversation::Postgres(conversation, witness) => {
                for found in conversation.server(bytes) {
                    if let postgres::Found::Ready(ready) = &found {
                        witness.ready(self.now_ns(), ready);
                        // Held at the first word of an answer: it is done only now.
                        if both.server.hold_at.is_some()
                            && let Some(trap) = &trap
                        {
                            trap.spring();
                        }
                    }
                    both.server.hold(of_server(found, trap.as_deref()));
                    self.note(found);
                }
                conversation.server_settled()
            }
            Conversation::Amqp(conversation) => {
                for found in conversation.server(bytes) {
                    both.server.hold(of_broker(found, trap.as_deref()));
                    self.note_amqp(found);
                }
                conversation.server_settled()
            }
        };
        let is_postgres = matches!(both.conversation, Conversation::Postgres(..));
        both.server.course(settled, trap.filter(|_| !is_postgres))
    }

    fn note(&self, found: postgres::Found) {
        if let postgres::Found::Opaque { reason, .. } = found {
            lock(&self.heard.unread).get_or_insert_with(|| reason.to_string());
        }
    }

    fn note_amqp(&self, found: amqp::Found) {
        if let amqp::Found::Opaque { reason, .. } = found {
            lock(&self.heard.unread).get_or_insert_with(|| reason.to_string());
        }
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

impl Drop for Hearing<'_> {
    fn drop(&mut self) {
        let now_ns = self.now_ns();
        if let Conversation::Postgres(_, witness) = &lock(&self.both).conversation {
            let here = witness.idle(now_ns);
            let mut all = lock(&self.heard.idle);
            all.total_ns += here.total_ns;
            all.spells += here.spells;
            all.longest_ns = all.longest_ns.max(here.longest_ns);
            all.longest_transaction_ns = all.longest_transaction_ns.max(here.longest_transaction_ns);
        }
    }
}

impl Direction {
    fn hold(&mut self, at: Option<u64>) {
        self.hold_at = self.hold_at.or(at);
    }

    fn course(self, settled: u64, trap: Option<Arc<Armed>>) -> Course {
        match self.hold_at {
            Some(at) if at <= settled => Course { until: at, held: true, springs: trap },
            Some(_) | None => Course { until: settled, held: false, springs: None },
        }
    }
}

/// The point that a statement is.
fn point(phase: Phase) -> Option<Point> {
    match phase {
        Phase::Claim => Some(Point::Claim),
        Phase::Mark => Some(Point::Mark),
        Phase::Commit => Some(Point::Commit),
        Phase::Release | Phase::Begin | Phase::Rollback | Phase::Probe | Phase::Other => None,
    }
}

fn of_client(found: postgres::Found, trap: Option<&Armed>) -> Option<u64> {
    let postgres::Found::Execution { phase, start, .. } = found else { return None };
    let trap = trap.filter(|trap| point(phase).is_some_and(|point| trap.waits_for(point, When::Before)))?;
    trap.counts(1).then_some(start)
}

fn of_server(found: postgres::Found, trap: Option<&Armed>) -> Option<u64> {
    let postgres::Found::Answer { phase, start } = found else { return None };
    let trap = trap.filter(|trap| point(phase).is_some_and(|point| trap.waits_for(point, When::After)))?;
    trap.counts(1).then_some(start)
}

fn of_publisher(found: amqp::Found, trap: Option<&Armed>) -> Option<u64> {
    let trap = trap?;
    match found {
        amqp::Found::Publish { start, .. } if trap.waits_for(Point::Publish, When::Before) => {
            trap.counts(1).then_some(start)
        }
        amqp::Found::Published { end, .. } if trap.waits_for(Point::Publish, When::After) => {
            trap.counts(1).then_some(end)
        }
        _ => None,
    }
}

fn of_broker(found: amqp::Found, trap: Option<&Armed>) -> Option<u64> {
    let (amqp::Found::Confirm(confirm), Some(trap)) = (found, trap) else { return None };
    if trap.waits_for(Point::Confirm, When::Before) {
        trap.counts(confirm.settles).then_some(confirm.start)
    } else if trap.waits_for(Point::Confirm, When::After) {
        trap.counts(confirm.settles).then_some(confirm.end)
    } else {
        None
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
