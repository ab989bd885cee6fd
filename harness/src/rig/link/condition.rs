//! What is wrong with a link, and what is counted on it.

use std::{
    num::NonZeroU64,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

/// What is wrong with a link. The default: nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Condition {
    /// What the server says arrives so much later.
    pub delay: Duration,
    /// And up to so much later still, drawn evenly for each read. The order stays.
    pub jitter: Duration,
    /// Connections are accepted, and no byte passes in either direction.
    pub stalled: bool,
    /// Connections are reset, and new ones as they come.
    pub cut: bool,
    /// Each connection is reset once so many more bytes have passed on it, both directions together.
    pub reset_after: Option<NonZeroU64>,
    /// Bytes a second of each connection in each direction.
    pub bandwidth: Option<NonZeroU64>,
}

impl Condition {
    fn and(self, other: Self) -> Self {
        let lowest = |one: Option<NonZeroU64>, two: Option<NonZeroU64>| one.into_iter().chain(two).min();
        Self {
            delay: self.delay + other.delay,
            jitter: self.jitter + other.jitter,
            stalled: self.stalled || other.stalled,
            cut: self.cut || other.cut,
            reset_after: lowest(self.reset_after, other.reset_after),
            bandwidth: lowest(self.bandwidth, other.bandwidth),
        }
    }
}

/// All that is wrong with a link now.
#[derive(Debug)]
pub(super) struct State {
    base: Condition,
    imposed: Vec<(u64, Condition)>,
    now: Condition,
    cuts: u64,
    resets: u64,
    trap: Option<u64>,
}

impl State {
    pub(super) fn new(base: Condition) -> Self {
        Self { base, imposed: Vec::new(), now: base, cuts: 0, resets: 0, trap: None }
    }

    pub(super) fn impose(&mut self, id: u64, condition: Condition) {
        self.cuts += u64::from(condition.cut);
        self.resets += u64::from(condition.reset_after.is_some());
        self.imposed.push((id, condition));
        self.add_up();
    }

    pub(super) fn lift(&mut self, id: u64) {
        self.imposed.retain(|(other, _)| *other != id);
        self.add_up();
    }

    /// Sets the trap of that number, or takes it away.
    pub(super) fn trap(&mut self, trap: Option<u64>) {
        self.trap = trap;
    }

    pub(super) fn is_trapped(&self) -> bool {
        self.trap.is_some()
    }

    fn add_up(&mut self) {
        self.now = self.imposed.iter().fold(self.base, |sum, (_, condition)| sum.and(*condition));
    }

    pub(super) fn now(&self) -> Condition {
        self.now
    }

    /// Whether what the server says is later than it always is.
    pub(super) fn is_late(&self) -> bool {
        self.now.delay > self.base.delay || self.now.jitter > self.base.jitter
    }

    /// How often it was cut.
    pub(super) fn cuts(&self) -> u64 {
        self.cuts
    }

    /// How often a limit of bytes was imposed: each counts anew.
    pub(super) fn resets(&self) -> u64 {
        self.resets
    }
}

/// What happened on a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Seen {
    /// Connections that were let in.
    pub accepted: u64,
    /// Connections that came while it was cut.
    pub refused: u64,
    /// Connections that a cut ended.
    pub cut: u64,
    /// Connections that a limit of bytes ended.
    pub reset: u64,
    /// Reads of the server's bytes that were later than always.
    pub delayed: u64,
    /// Bytes, or ends of a stream counted as one, that waited for a stall to end.
    pub withheld: u64,
    /// Bytes that waited for bandwidth.
    pub throttled: u64,
    /// Bytes that passed, both directions together.
    pub passed: u64,
}

impl Seen {
    /// What came to it since `before`.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            accepted: self.accepted - before.accepted,
            refused: self.refused - before.refused,
            cut: self.cut - before.cut,
            reset: self.reset - before.reset,
            delayed: self.delayed - before.delayed,
            withheld: self.withheld - before.withheld,
            throttled: self.throttled - before.throttled,
            passed: self.passed - before.passed,
        }
    }

    /// Both together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            accepted: self.accepted + other.accepted,
            refused: self.refused + other.refused,
            cut: self.cut + other.cut,
            reset: self.reset + other.reset,
            delayed: self.delayed + other.delayed,
            withheld: self.withheld + other.withheld,
            throttled: self.throttled + other.throttled,
            passed: self.passed + other.passed,
        }
    }
}

/// [`Seen`], as it is counted.
#[derive(Debug, Default)]
pub(super) struct Counters {
    accepted: AtomicU64,
    refused: AtomicU64,
    cut: AtomicU64,
    reset: AtomicU64,
    delayed: AtomicU64,
    withheld: AtomicU64,
    throttled: AtomicU64,
    passed: AtomicU64,
}

impl Counters {
    pub(super) fn accepted(&self) {
        self.accepted.fetch_add(1, Relaxed);
    }
    pub(super) fn refused(&self) {
        self.refused.fetch_add(1, Relaxed);
    }
    pub(super) fn cut(&self) {
        self.cut.fetch_add(1, Relaxed);
    }
    pub(super) fn reset(&self) {
        self.reset.fetch_add(1, Relaxed);
    }
    pub(super) fn delayed(&self) {
        self.delayed.fetch_add(1, Relaxed);
    }
    pub(super) fn withheld(&self, bytes: u64) {
        self.withheld.fetch_add(bytes, Relaxed);
    }
    pub(super) fn throttled(&self, bytes: u64) {
        self.throttled.fetch_add(bytes, Relaxed);
    }
    pub(super) fn passed(&self, bytes: u64) {
        self.passed.fetch_add(bytes, Relaxed);
    }

    pub(super) fn read(&self) -> Seen {
        Seen {
            accepted: self.accepted.load(Relaxed),
            refused: self.refused.load(Relaxed),
            cut: self.cut.load(Relaxed),
            reset: self.reset.load(Relaxed),
            delayed: self.delayed.load(Relaxed),
            withheld: self.withheld.load(Relaxed),
            throttled: self.throttled.load(Relaxed),
            passed: self.passed.load(Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_add_up_and_go_one_by_one() {
        let ms = Duration::from_millis;
        let mut state = State::new(Condition { delay: ms(10), ..Condition::default() });
        let limit = |bytes| Condition { bandwidth: NonZeroU64::new(bytes), ..Condition::default() };
        state.impose(1, Condition { delay: ms(5), jitter: ms(2), stalled: true, ..limit(900) });
        state.impose(2, Condition { cut: true, ..limit(100) });
        let now = state.now();
        assert_eq!((now.delay, now.jitter, now.stalled, now.cut), (ms(15), ms(2), true, true));
        assert_eq!(now.bandwidth, NonZeroU64::new(100));
        assert!(state.is_late());
        assert_eq!(state.cuts(), 1);
        state.lift(2);
        assert_eq!(state.now().bandwidth, NonZeroU64::new(900));
        assert!(!state.now().cut);
        assert_eq!(state.cuts(), 1, "what was cut stays cut");
        state.lift(1);
        assert_eq!(state.now(), Condition { delay: ms(10), ..Condition::default() });
        assert!(!state.is_late());
    }
}
