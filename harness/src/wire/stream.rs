//! One direction of a connection: counts, gathers the little that is needed and skips the rest.

/// Gathers `wanted` bytes after having skipped `skip`, in whatever pieces they come.
#[derive(Debug)]
pub(crate) struct Stream {
    position: u64,
    settled: u64,
    kept: Vec<u8>,
    wanted: usize,
    skip: u64,
}

impl Stream {
    /// Nothing read yet; gathers `wanted` bytes first.
    pub(crate) fn new(wanted: usize) -> Self {
        Self { position: 0, settled: 0, kept: Vec::new(), wanted, skip: 0 }
    }

    /// Bytes read.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// Up to here everything is understood.
    pub(crate) fn settled(&self) -> u64 {
        self.settled
    }

    /// What was gathered, from [`start`](Self::start).
    pub(crate) fn kept(&self) -> &[u8] {
        &self.kept
    }

    /// Position of the first byte kept.
    pub(crate) fn start(&self) -> u64 {
        self.position - self.kept.len() as u64
    }

    /// Takes from the front of `bytes`; whether all that is wanted is there now.
    pub(crate) fn take(&mut self, bytes: &mut &[u8]) -> bool {
        let skipped = usize::try_from(self.skip).unwrap_or(usize::MAX).min(bytes.len());
        if skipped > 0 {
            self.skip -= skipped as u64;
            self.position += skipped as u64;
            self.settled = self.position;
            *bytes = &bytes[skipped..];
        }
        if self.skip > 0 {
            return false;
        }
        let (now, later) = bytes.split_at((self.wanted - self.kept.len()).min(bytes.len()));
        self.kept.extend_from_slice(now);
        self.position += now.len() as u64;
        *bytes = later;
        self.kept.len() == self.wanted
    }

    /// Keeps what was gathered and gathers on until there are `wanted` bytes.
    pub(crate) fn want(&mut self, wanted: usize) {
        self.wanted = wanted.max(self.kept.len());
    }

    /// What was gathered is understood: skips up to the position `end`, then gathers `wanted` bytes.
    pub(crate) fn next(&mut self, end: u64, wanted: usize) {
        self.kept.clear();
        self.settled = self.position;
        self.skip = end.saturating_sub(self.position);
        self.wanted = wanted;
    }

    /// Gives up understanding: keeps nothing, and nothing is held back.
    pub(crate) fn give_up(&mut self) {
        self.kept = Vec::new();
        self.settled = self.position;
    }

    /// Counts bytes after having given up.
    pub(crate) fn pass(&mut self, bytes: &[u8]) {
        self.position += bytes.len() as u64;
        self.settled = self.position;
    }
}
