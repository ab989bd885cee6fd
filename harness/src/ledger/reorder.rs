//! Order within a key. Of two events where a's COMMIT returned before b's enqueue began, or both in one transaction
//! and a first, b must not arrive before a. Overlapping transactions are not judged.

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

/// All inversions, key by key: O(n log n).
pub(super) fn inversions(writes: &[Write], mut keyed: Vec<Keyed>) -> Vec<Inversion> {
    let began = |keyed: &Keyed| writes[keyed.event.write as usize].acquired_ns;
    keyed.sort_unstable_by_key(|keyed| (keyed.key, began(keyed), keyed.event));
    keyed.chunk_by(|a, b| a.key == b.key).flat_map(|group| of_key(writes, group)).collect()
}

/// Sweeps one key's events in the order they began and keeps, of those that were over by then, the one that arrived
/// last.
fn of_key(writes: &[Write], by_begin: &[Keyed]) -> Vec<Inversion> {
    let ended = |keyed: &Keyed| writes[keyed.event.write as usize].ended_ns;
    let mut by_end: Vec<&Keyed> = by_begin.iter().filter(|keyed| keyed.committed).collect();
    by_end.sort_unstable_by_key(|keyed| ended(keyed));

    let mut found = Vec::new();
    let mut over = by_end.into_iter().peekable();
    let mut last_of_over: Option<&Keyed> = None;
    let mut last_of_write: Option<&Keyed> = None;
    for b in by_begin {
        let began = writes[b.event.write as usize].acquired_ns;
        while let Some(a) = over.next_if(|a| ended(a) < began) {
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
