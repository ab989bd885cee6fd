//! What a connection says.

use super::{Executions, Phase, Reason, SqlState};

/// What the transaction is like when the server is ready. Source: the status byte of ReadyForQuery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Status {
    /// `I`: there is none.
    Idle,
    /// `T`: one is open.
    InTransaction,
    /// `E`: one is open and can only be rolled back; it still holds its locks.
    Failed,
}

/// How an execution ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// CommandComplete. `rows` as its tag counts them (sent, or changed), of all statements of a Query together; `None`
    /// for a command that counts none, such as COMMIT.
    Done {
        /// Rows.
        rows: Option<u64>,
    },
    /// EmptyQueryResponse.
    Empty,
    /// PortalSuspended: as many rows as were asked for; the portal may be executed again, as another execution.
    Suspended,
    /// ErrorResponse, with its code when that was legible.
    Failed(Option<SqlState>),
}

impl Outcome {
    /// Of two statements of one Query, one after the other.
    pub(super) fn and(self, next: Self) -> Self {
        match (self, next) {
            (Self::Done { rows: Some(before) }, Self::Done { rows }) => {
                Self::Done { rows: Some(before.saturating_add(rows.unwrap_or(0))) }
            }
            (_, next) => next,
        }
    }
}

/// An execution is answered. Made by the message that ends its answer: for an Execute CommandComplete,
/// EmptyQueryResponse, PortalSuspended or ErrorResponse; for a Query, which may hold several statements, the
/// ReadyForQuery after it.
///
/// Outside of a transaction block it is **not yet committed** when it came by Execute: the server commits at the Sync
/// and says so with ReadyForQuery, or takes it all back with an ErrorResponse in its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Complete {
    /// What it was for.
    pub phase: Phase,
    /// How it ended.
    pub outcome: Outcome,
    /// Position of the first message of its answer, which may have been settled long ago: see [`Found::Answer`].
    pub start: u64,
    /// Position after the last message of its answer, without ReadyForQuery.
    pub end: u64,
}

/// ReadyForQuery: everything up to one Sync, Query or startup message of the client is done. Made when all of it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ready {
    /// What the transaction is like.
    pub status: Status,
    /// Executions answered since the last ReadyForQuery, one that failed included.
    pub executions: Executions,
    /// Executions since then that the server read over because of an error before them: they never get an answer.
    pub skipped: Executions,
    /// Code of the last error since then.
    pub error: Option<SqlState>,
    /// Executions that were sent after what this answers and that are not answered.
    pub outstanding: usize,
    /// More bytes of the client had been read than this answers: the client is not waiting, the server not idle.
    pub asked_ahead: bool,
    /// Position of its first byte.
    pub start: u64,
    /// Position after its last byte.
    pub end: u64,
}

/// What a connection has said. Positions of `Execution` count the client's bytes, those of `Answer`, `Error`, `Complete`
/// and `Ready` the server's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// The client sends an Execute or a Query.
    Execution {
        /// What it is for.
        phase: Phase,
        /// Position of its first byte. Of an Execute: Parse and Bind have gone before.
        start: u64,
        /// Position after its last byte. Of an Execute: the server may do nothing before the Sync that follows.
        end: u64,
    },
    /// The server begins to answer an execution. Made by the first message that is an answer to it and not to the Parse,
    /// Bind or Describe before it: a row, a CopyInResponse, CommandComplete, an error; of a Query also RowDescription.
    /// Who stops here has the client see nothing of the result. Whether it is committed is only known at the
    /// [`Ready`](Self::Ready) that comes later, so go on reading while you hold: a long result is sent in part before.
    Answer {
        /// What the execution was for.
        phase: Phase,
        /// Position of the first byte.
        start: u64,
    },
    /// An ErrorResponse: to an execution, to anything else, or to nothing, as when the server ends the session (`57P01`)
    /// or refuses one (`53300`); there is no ReadyForQuery then.
    Error {
        /// Its code, when that was legible.
        state: Option<SqlState>,
        /// Position of its first byte.
        start: u64,
        /// Position after its last byte.
        end: u64,
    },
    /// An execution is answered.
    Complete(Complete),
    /// The server waits for the client.
    Ready(Ready),
    /// From here on nothing is understood, in either direction; made once.
    Opaque {
        /// Why.
        reason: Reason,
        /// Position, in the direction of the call, of the message that was not understood.
        start: u64,
    },
}
