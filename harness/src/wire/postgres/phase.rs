//! What a statement is for.

/// The part of a drainer's work that a statement does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Takes rows: `/* drainer:claim */`.
    Claim,
    /// Notes what became of them: `/* drainer:mark */`.
    Mark,
    /// Gives them back: `/* drainer:release */`.
    Release,
    /// Opens a transaction: `/* drainer:begin */`, or BEGIN or START TRANSACTION without a tag.
    Begin,
    /// Ends one: `/* drainer:commit */`, or COMMIT or END without a tag.
    Commit,
    /// Takes one back: `/* drainer:rollback */`, or ROLLBACK or ABORT without a tag.
    Rollback,
    /// Checks the table at start: `/* drainer:probe */`.
    Probe,
    /// Everything else.
    Other,
}

impl Phase {
    /// Of the beginning of a statement's text, up to its NUL if there is one; a hundred bytes are plenty.
    ///
    /// The tag is a comment before the first word. Other comments there are passed over, and a drainer's tag that is not
    /// one of these is [`Other`](Self::Other) whatever follows. Of a text of several statements the first counts.
    /// ROLLBACK TO and what is about prepared transactions does not end a transaction, so it is `Other` too.
    pub fn of(text: &[u8]) -> Self {
        let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
        let mut rest = text.trim_ascii_start();
        loop {
            let (open, close): (&[u8], &[u8]) = match rest {
                [b'/', b'*', ..] => (b"/*", b"*/"),
                [b'-', b'-', ..] => (b"--", b"\n"),
                _ => return Self::of_words(rest),
            };
            let comment = &rest[open.len()..];
            let Some(length) = comment.windows(close.len()).position(|window| window == close) else {
                return Self::Other;
            };
            if let Some(tag) = comment[..length].trim_ascii().strip_prefix(b"drainer:") {
                return Self::of_tag(tag);
            }
            rest = comment[length + close.len()..].trim_ascii_start();
        }
    }

    fn of_tag(tag: &[u8]) -> Self {
        match tag {
            b"claim" => Self::Claim,
            b"mark" => Self::Mark,
            b"release" => Self::Release,
            b"begin" => Self::Begin,
            b"commit" => Self::Commit,
            b"rollback" => Self::Rollback,
            b"probe" => Self::Probe,
            _ => Self::Other,
        }
    }

    fn of_words(text: &[u8]) -> Self {
        let statement = text.split(|byte| *byte == b';').next().unwrap_or_default();
        let mut words = statement
            .split(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_')
            .filter(|word| !word.is_empty());
        let mut word = || words.next().unwrap_or_default().to_ascii_uppercase();
        let (first, second, third) = (word(), word(), word());
        match (first.as_slice(), second.as_slice(), third.as_slice()) {
            (b"COMMIT" | b"ROLLBACK", b"PREPARED", _) => Self::Other,
            (b"ROLLBACK", b"TO", _) | (b"ROLLBACK", b"WORK" | b"TRANSACTION", b"TO") => Self::Other,
            (b"BEGIN", ..) | (b"START", b"TRANSACTION", _) => Self::Begin,
            (b"COMMIT" | b"END", ..) => Self::Commit,
            (b"ROLLBACK" | b"ABORT", ..) => Self::Rollback,
            _ => Self::Other,
        }
    }

    /// All of them, in the order of the flow.
    pub const ALL: [Self; 8] = [
        Self::Claim,
        Self::Mark,
        Self::Release,
        Self::Begin,
        Self::Commit,
        Self::Rollback,
        Self::Probe,
        Self::Other,
    ];
}

/// How many executions of each phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Executions([u64; Phase::ALL.len()]);

impl Executions {
    /// Of one phase.
    pub fn of(&self, phase: Phase) -> u64 {
        self.0[phase as usize]
    }

    /// Of all phases.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    pub(super) fn add(&mut self, phase: Phase) {
        self.0[phase as usize] += 1;
    }
}
