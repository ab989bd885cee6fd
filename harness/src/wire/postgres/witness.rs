//! How long a connection sits in a transaction while its client does something else.

use super::{Ready, Status};

/// Watches one connection. Times are nanoseconds on any one clock that does not go back, as the proxy saw the bytes.
///
/// In a transaction is what a ReadyForQuery says so (`T`, or `E` for a failed one, which keeps its locks until it is
/// rolled back). A transaction that begins and ends between two of them, as a single statement's does, is none here.
/// When the conversation turns opaque, nothing more will be seen: call [`closed`](Self::closed).
#[derive(Debug, Clone, Default)]
pub struct Witness {
    /// When the client's first bytes since the last ReadyForQuery were read.
    asked_ns: Option<u64>,
    last_asked_ns: u64,
    transaction_ns: Option<u64>,
    idle_ns: Option<u64>,
    closed: bool,
    past: Idle,
}

/// What a [`Witness`] has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Idle {
    /// Nanoseconds in all spells.
    pub total_ns: u64,
    /// Nanoseconds in the longest of them.
    pub longest_ns: u64,
    /// Spells: each from a ReadyForQuery in a transaction, after which nothing is left to answer, to the client's next
    /// bytes.
    pub spells: u64,
    /// Nanoseconds of the longest transaction, busy and idle time together: from the first bytes of the request after
    /// whose ReadyForQuery there was a transaction to the ReadyForQuery after which there was none. That is a
    /// round trip more than the server counts; several transactions without a ReadyForQuery between them that says so
    /// (`COMMIT; BEGIN`) are one.
    pub longest_transaction_ns: u64,
}

impl Witness {
    /// Nothing seen.
    pub fn new() -> Self {
        Self::default()
    }

    /// Bytes of the client were read, whatever they are.
    pub fn asked(&mut self, at_ns: u64) {
        if self.closed {
            return;
        }
        self.end_spell(at_ns);
        self.asked_ns.get_or_insert(at_ns);
        self.last_asked_ns = at_ns;
    }

    /// The server said that it is ready.
    pub fn ready(&mut self, at_ns: u64, ready: &Ready) {
        if self.closed {
            return;
        }
        self.end_spell(at_ns);
        let asked_ns = self.asked_ns.take().unwrap_or(self.last_asked_ns);
        match ready.status {
            Status::Idle => self.end_transaction(at_ns),
            Status::InTransaction | Status::Failed => {
                self.transaction_ns.get_or_insert(asked_ns);
                if !ready.asked_ahead {
                    self.idle_ns = Some(at_ns);
                }
            }
        }
    }

    /// The connection has ended, and a transaction with it. What comes later is ignored.
    pub fn closed(&mut self, at_ns: u64) {
        self.end_spell(at_ns);
        self.end_transaction(at_ns);
        self.closed = true;
    }

    /// Up to `at_ns`: a spell and a transaction that have not ended count as far as they got.
    pub fn idle(&self, at_ns: u64) -> Idle {
        let mut now = self.clone();
        now.closed(at_ns);
        now.past
    }

    fn end_spell(&mut self, at_ns: u64) {
        if let Some(since_ns) = self.idle_ns.take() {
            let spell_ns = at_ns.saturating_sub(since_ns);
            self.past.total_ns = self.past.total_ns.saturating_add(spell_ns);
            self.past.longest_ns = self.past.longest_ns.max(spell_ns);
            self.past.spells += 1;
        }
    }

    fn end_transaction(&mut self, at_ns: u64) {
        if let Some(since_ns) = self.transaction_ns.take() {
            let whole_ns = at_ns.saturating_sub(since_ns);
            self.past.longest_transaction_ns = self.past.longest_transaction_ns.max(whole_ns);
        }
    }
}
