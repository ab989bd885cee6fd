//! Order within a key. Of two events where a's COMMIT returned before b's enqueue began, or both in one transaction
//! and a first, b must not arrive before a. Overlapping transactions are not judged. The writes of a backlog are made
//! one after another in the order of the plan, so of these each comes before the next, and all before the schedule.

use crate::history::{EventRef, Write};

/// An event that arrived and has a key.
#[derive(Debug, Clone, Copy)]
pub(super) struct Keyed {
    pub(super) key: u32,
    pub(super) event: EventRef,
    /// Place of its first arrival.
    pub(super) place: u32,
    /// Its COMMIT returned: others can be said to come after it.
    pub(super) committed: bool,
}

/// An event that arrived before an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Inversion {
    pub(super) event: EventRef,
    /// The earlier event that arrived last.
    pub(super) overtook: EventRef,
}

/// All inversions, key by key: O(n log n). The first `backlog` of the writes are the backlog's.
pub(super) fn inversions(writes: &[Write], backlog: u32, mut keyed: Vec<Keyed>) -> Vec<Inversion> {
    let spans = Spans { writes, backlog };
    keyed.sort_unstable_by_key(|keyed| (keyed.key, spans.began(keyed), keyed.event));
    keyed.chunk_by(|a, b| a.key == b.key).flat_map(|group| of_key(&spans, group)).collect()
}

/// When each write began and was over, on a scale on which the backlog comes first.
struct Spans<'a> {
    writes: &'a [Write],
    backlog: u32,
}

impl Spans<'_> {
    fn began(&self, keyed: &Keyed) -> u64 {
        self.at(keyed, 0, |write| write.acquired_ns)
    }
    fn ended(&self, keyed: &Keyed) -> u64 {
        self.at(keyed, 1, |write| write.ended_ns)
    }
    fn at(&self, keyed: &Keyed, in_backlog: u64, of: impl Fn(&Write) -> u64) -> u64 {
        let write = keyed.event.write;
        if write < self.backlog {
            return 2 * u64::from(write) + in_backlog;
        }
        2 * u64::from(self.backlog) + of(&self.writes[write as usize])
    }
}

/// Sweeps one key's events in the order they began and keeps, of those that were over by then, the one that arrived
/// last.
fn of_key(spans: &Spans<'_>, by_begin: &[Keyed]) -> Vec<Inversion> {
    let mut by_end: Vec<&Keyed> = by_begin.iter().filter(|keyed| keyed.committed).collect();
    by_end.sort_unstable_by_key(|keyed| spans.ended(keyed));

    let mut found = Vec::new();
    let mut over = by_end.into_iter().peekable();
    let mut last_of_over: Option<&Keyed> = None;
    let mut last_of_write: Option<&Keyed> = None;
    for b in by_begin {
        let began = spans.began(b);
        while let Some(a) = over.next_if(|a| spans.ended(a) < began) {
            last_of_over = later(last_of_over, a);
        }
        if last_of_write.is_some_and(|a| a.event.write != b.event.write) {
            last_of_write = None;
        }
        let before = match (last_of_over, last_of_write) {
            (Some(over), other) => later(other, over),
            (None, other) => other,
        };
        if let Some(a) = before.filter(|a| a.place > b.place) {
            found.push(Inversion { event: b.event, overtook: a.event });
        }
        last_of_write = later(last_of_write, b);
    }
    found
}

fn later<'a>(a: Option<&'a Keyed>, b: &'a Keyed) -> Option<&'a Keyed> {
    a.filter(|a| a.place >= b.place).or(Some(b))
}
