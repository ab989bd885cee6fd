//! What was asked and is not answered yet, in the order in which the server answers it.

use std::collections::VecDeque;

use super::{Complete, Executions, Outcome, Phase, Ready, Reason, SqlState, Status};

/// Executions and Syncs that may be outstanding at once; libraries that pipeline send some hundred.
const MAX_OUTSTANDING: usize = 4096;

/// One thing that the server answers. `end` is the position after its message, or after what belongs to it (copied rows,
/// a password).
#[derive(Debug, Clone, Copy)]
enum Item {
    /// Answered by one CommandComplete, EmptyQueryResponse, PortalSuspended or ErrorResponse.
    Execute(Phase),
    /// Answered by some of these and then a ReadyForQuery.
    Query { phase: Phase, end: u64 },
    /// Answered by a ReadyForQuery. The startup message is one as well.
    Sync { end: u64 },
}

/// What has been said so far of the answer to the first item.
#[derive(Debug, Clone, Copy)]
struct Answer {
    start: u64,
    /// Outcome and position after its message; of a Query's statements so far.
    outcome: Option<(Outcome, u64)>,
}

/// The queue of one connection.
#[derive(Debug, Default)]
pub(super) struct Outstanding {
    items: VecDeque<Item>,
    answer: Option<Answer>,
    executions: usize,
    /// The server has said an error and reads over everything up to a Sync that the client has not sent yet.
    skipping: bool,
    /// The client has ended a copy since the last execution it sent.
    copied: bool,
    answered: Executions,
    skipped: Executions,
    error: Option<SqlState>,
}

impl Outstanding {
    pub(super) fn execute(&mut self, phase: Phase) -> Result<(), Reason> {
        self.ask(phase, Item::Execute(phase))
    }

    pub(super) fn query(&mut self, phase: Phase, end: u64) -> Result<(), Reason> {
        self.ask(phase, Item::Query { phase, end })
    }

    fn ask(&mut self, phase: Phase, item: Item) -> Result<(), Reason> {
        if self.skipping {
            self.skipped.add(phase);
            return Ok(());
        }
        self.executions += 1;
        self.copied = false;
        self.push(item)
    }

    pub(super) fn sync(&mut self, end: u64) -> Result<(), Reason> {
        self.skipping = false;
        self.push(Item::Sync { end })
    }

    fn push(&mut self, item: Item) -> Result<(), Reason> {
        if self.items.len() == MAX_OUTSTANDING {
            return Err(Reason::TooMany);
        }
        self.items.push_back(item);
        Ok(())
    }

    /// The client has gone on, up to the position `end`, with what it asked last: copied rows, a password.
    pub(super) fn extend(&mut self, to: u64) {
        match self.items.back_mut() {
            Some(Item::Query { end, .. } | Item::Sync { end }) => *end = to,
            Some(Item::Execute(_)) | None => {}
        }
    }

    /// The server waits for rows to be copied in, and until it has them ignores Syncs, such as one that was sent
    /// together with the Execute.
    pub(super) fn copying(&mut self) {
        if !self.copied {
            self.ignore_syncs();
        }
    }

    /// The client has sent all rows, or will send no more. See [`copying`](Self::copying).
    pub(super) fn copied(&mut self) {
        if self.items.iter().any(|item| matches!(item, Item::Execute(_))) {
            self.ignore_syncs();
        }
        self.copied = true;
    }

    /// Those after the last execution.
    fn ignore_syncs(&mut self) {
        while let Some(Item::Sync { .. }) = self.items.back() {
            self.items.pop_back();
        }
    }

    /// A message at `start` that answers the first execution; its phase when it is the first that does.
    pub(super) fn answer(&mut self, start: u64) -> Result<Option<Phase>, Reason> {
        let Some(Item::Execute(phase) | Item::Query { phase, .. }) = self.items.front() else {
            return Err(Reason::OutOfStep);
        };
        if self.answer.is_some() {
            return Ok(None);
        }
        self.answer = Some(Answer { start, outcome: None });
        Ok(Some(*phase))
    }

    /// A RowDescription at `start`: it begins the answer to a Query; otherwise it answers a Describe.
    pub(super) fn describe(&mut self, start: u64) -> Result<Option<Phase>, Reason> {
        match self.items.front() {
            Some(Item::Query { .. }) => self.answer(start),
            Some(Item::Execute(_) | Item::Sync { .. }) | None => Ok(None),
        }
    }

    /// A message up to `end` that completes the first execution, of whose answer it may be the first. A Query's is
    /// completed by [`ready`](Self::ready) only.
    pub(super) fn complete(&mut self, outcome: Outcome, end: u64) -> Result<Option<Complete>, Reason> {
        let (Some(item), Some(answer)) = (self.items.front(), self.answer.as_mut()) else {
            return Err(Reason::OutOfStep);
        };
        match *item {
            Item::Execute(phase) => {
                let start = answer.start;
                self.pop_execution(phase);
                Ok(Some(Complete { phase, outcome, start, end }))
            }
            Item::Query { .. } => {
                let so_far = answer.outcome.map(|(outcome, _)| outcome);
                answer.outcome = Some((so_far.map_or(outcome, |so_far| so_far.and(outcome)), end));
                Ok(None)
            }
            Item::Sync { .. } => Err(Reason::OutOfStep),
        }
    }

    fn pop_execution(&mut self, phase: Phase) {
        self.items.pop_front();
        self.executions -= 1;
        self.answer = None;
        self.answered.add(phase);
    }

    /// An ErrorResponse from `start` to `end`. It fails the first execution before the next Sync, if there is one; up
    /// to that Sync the server skips everything, unless it is a Query that failed.
    pub(super) fn error(
        &mut self,
        state: Option<SqlState>,
        start: u64,
        end: u64,
    ) -> Result<(Option<Phase>, Option<Complete>), Reason> {
        self.error = state.or(self.error);
        let failed = match self.items.front() {
            Some(Item::Query { .. }) => {
                let begun = self.answer(start)?;
                return Ok((begun, self.complete(Outcome::Failed(state), end)?));
            }
            Some(Item::Execute(_)) => {
                let begun = self.answer(start)?;
                (begun, self.complete(Outcome::Failed(state), end)?)
            }
            Some(Item::Sync { .. }) | None => (None, None),
        };
        loop {
            match self.items.front() {
                Some(Item::Execute(phase) | Item::Query { phase, .. }) => {
                    self.skipped.add(*phase);
                    self.executions -= 1;
                    self.items.pop_front();
                }
                Some(Item::Sync { .. }) => break,
                None => {
                    self.skipping = true;
                    break;
                }
            }
        }
        Ok(failed)
    }

    /// A ReadyForQuery from `start` to `end`, when `read` bytes of the client had been read. It completes the Query that
    /// it answers, if it answers one.
    pub(super) fn ready(
        &mut self,
        status: Status,
        start: u64,
        end: u64,
        read: u64,
    ) -> Result<(Option<Complete>, Ready), Reason> {
        let (complete, asked) = match (self.items.front(), self.answer) {
            (Some(Item::Sync { end }), _) => {
                let asked = *end;
                self.items.pop_front();
                (None, asked)
            }
            (
                Some(Item::Query { phase, end }),
                Some(Answer { start, outcome: Some((outcome, answered)) }),
            ) => {
                let (phase, asked) = (*phase, *end);
                self.pop_execution(phase);
                (Some(Complete { phase, outcome, start, end: answered }), asked)
            }
            (Some(Item::Query { .. } | Item::Execute(_)) | None, _) => return Err(Reason::OutOfStep),
        };
        let ready = Ready {
            status,
            executions: std::mem::take(&mut self.answered),
            skipped: std::mem::take(&mut self.skipped),
            error: self.error.take(),
            outstanding: self.executions,
            asked_ahead: read > asked,
            start,
            end,
        };
        Ok((complete, ready))
    }
}
