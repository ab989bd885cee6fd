//! Publishes of a channel that wait for their confirm.

use std::collections::BTreeMap;

/// Tags, counted from 1 at confirm.select. Kept as runs of consecutive ones, so that a hundred thousand outstanding take
/// no more room than one.
#[derive(Debug, Default)]
pub(super) struct Tags {
    last: u64,
    /// First to last tag of each run.
    runs: BTreeMap<u64, u64>,
    outstanding: u64,
}

impl Tags {
    /// The tag of the next publish.
    pub(super) fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// The publish of that tag, the highest so far, has been sent.
    pub(super) fn sent(&mut self, tag: u64) {
        self.outstanding += 1;
        match self.runs.last_entry() {
            Some(mut run) if *run.get() + 1 == tag => *run.get_mut() = tag,
            Some(_) | None => {
                self.runs.insert(tag, tag);
            }
        }
    }

    /// A confirm of that tag came; how many outstanding publishes it settles. 0 with `multiple` is all of them.
    pub(super) fn settle(&mut self, tag: u64, multiple: bool) -> u64 {
        let settled = match (tag, multiple) {
            (0, true) => self.settle_through(u64::MAX),
            (_, true) => self.settle_through(tag),
            (_, false) => self.settle_one(tag),
        };
        self.outstanding -= settled;
        settled
    }

    fn settle_through(&mut self, tag: u64) -> u64 {
        let mut settled = 0;
        while let Some(run) = self.runs.first_entry().filter(|run| *run.key() <= tag) {
            let (first, last) = run.remove_entry();
            if last > tag {
                self.runs.insert(tag + 1, last);
            }
            settled += last.min(tag) - first + 1;
        }
        settled
    }

    fn settle_one(&mut self, tag: u64) -> u64 {
        let Some((&first, &last)) = self.runs.range(..=tag).next_back().filter(|(_, last)| **last >= tag)
        else {
            return 0;
        };
        self.runs.remove(&first);
        if first < tag {
            self.runs.insert(first, tag - 1);
        }
        if tag < last {
            self.runs.insert(tag + 1, last);
        }
        1
    }

    /// Publishes sent and not settled.
    pub(super) fn outstanding(&self) -> u64 {
        self.outstanding
    }

    /// Runs of consecutive outstanding tags: the room it takes.
    pub(super) fn runs(&self) -> usize {
        self.runs.len()
    }
}
