//! PostgreSQL's protocol 3. Source: "Frontend/Backend Protocol" of its manual, chapters Message Flow and Message Formats.

mod found;
mod message;
mod outstanding;
mod phase;
mod sql_state;
mod statements;
mod witness;

#[cfg(test)]
mod tests;

use self::{
    message::{HEADER, Head, PREFIX, asks_for_replication, head, name, number, rows, status, wanted},
    outstanding::Outstanding,
    statements::Statements,
};
use super::{Reason, stream::Stream};

pub use self::{
    found::{Complete, Found, Outcome, Ready, Status},
    phase::{Executions, Phase},
    sql_state::SqlState,
    witness::{Idle, Witness},
};

/// Length and version of the first message, which has no type byte.
const OPENING: usize = 8;
/// The server refuses a longer startup message (`MAX_STARTUP_PACKET_LENGTH`).
const MAX_STARTUP: u64 = 10_000;

const CANCEL_REQUEST: u32 = 80_877_102;
const SSL_REQUEST: u32 = 80_877_103;
const GSSENC_REQUEST: u32 = 80_877_104;

#[derive(Debug, Clone, Copy)]
enum ClientAt {
    /// Before or in the first message, or one after encryption was declined.
    Opening,
    /// In the startup message, which ends there.
    Startup {
        end: u64,
    },
    /// Asked for encryption and has to wait.
    Encryption {
        yes: u8,
    },
    Header,
    Body(Head),
}

#[derive(Debug, Clone, Copy)]
enum ServerAt {
    /// Nothing said yet, or nothing after having declined encryption.
    First,
    Header,
    Body(Head),
}

/// One connection, both directions of it. See the [module above](super) for positions and holding.
///
/// Memory: 256 bytes a direction (10 000 during the startup message), at most 1024 names of statements and as many of
/// portals, at most 4096 unanswered executions and Syncs.
#[derive(Debug)]
pub struct Conversation {
    client: Stream,
    server: Stream,
    client_at: ClientAt,
    server_at: ServerAt,
    statements: Statements,
    outstanding: Outstanding,
    opaque: bool,
}

impl Default for Conversation {
    fn default() -> Self {
        Self::new()
    }
}

impl Conversation {
    /// Nothing read yet.
    pub fn new() -> Self {
        Self {
            client: Stream::new(OPENING),
            server: Stream::new(1),
            client_at: ClientAt::Opening,
            server_at: ServerAt::First,
            statements: Statements::default(),
            outstanding: Outstanding::default(),
            opaque: false,
        }
    }

    /// Bytes were read from the client: what they say, in their order.
    pub fn client(&mut self, mut bytes: &[u8]) -> Vec<Found> {
        let mut found = Vec::new();
        while !self.opaque && self.client.take(&mut bytes) {
            if let Err(reason) = self.client_step(&mut found) {
                found.push(Found::Opaque { reason, start: self.client.start() });
                self.give_up();
            }
        }
        if self.opaque {
            self.client.pass(bytes);
        }
        found
    }

    /// Bytes were read from the server: what they say, in their order.
    pub fn server(&mut self, mut bytes: &[u8]) -> Vec<Found> {
        let mut found = Vec::new();
        while !self.opaque && self.server.take(&mut bytes) {
            if let Err(reason) = self.server_step(&mut found) {
                found.push(Found::Opaque { reason, start: self.server.start() });
                self.give_up();
            }
        }
        if self.opaque {
            self.server.pass(bytes);
        }
        found
    }

    /// Position in the client's bytes up to which all that was read may go.
    pub fn client_settled(&self) -> u64 {
        self.client.settled()
    }

    /// Position in the server's bytes up to which all that was read may go.
    pub fn server_settled(&self) -> u64 {
        self.server.settled()
    }

    fn give_up(&mut self) {
        self.opaque = true;
        self.client.give_up();
        self.server.give_up();
        self.statements = Statements::default();
        self.outstanding = Outstanding::default();
    }

    fn client_step(&mut self, found: &mut Vec<Found>) -> Result<(), Reason> {
        match self.client_at {
            ClientAt::Opening => self.opening(),
            ClientAt::Startup { end } => {
                let parameters = self.client.kept().get(OPENING..).unwrap_or_default();
                if asks_for_replication(parameters) {
                    return Err(Reason::Replication);
                }
                self.outstanding.sync(end)?;
                self.client.give_up();
                self.client.next(end, HEADER);
                self.client_at = ClientAt::Header;
                Ok(())
            }
            // A client that goes on before it knows whether it has to encrypt has not read the manual.
            ClientAt::Encryption { .. } => Err(Reason::OutOfStep),
            ClientAt::Header => {
                let head = head(&self.client)?;
                let prefix = match head.kind {
                    b'Q' | b'P' | b'B' | b'E' | b'C' => PREFIX,
                    b'D' | b'S' | b'H' | b'X' | b'p' | b'd' | b'c' | b'f' => 0,
                    b'F' => return Err(Reason::Unsupported),
                    _ => return Err(Reason::NotTheProtocol),
                };
                self.client.want(wanted(&head, prefix));
                self.client_at = ClientAt::Body(head);
                Ok(())
            }
            ClientAt::Body(head) => {
                self.asked(&head, found)?;
                self.client.next(head.end, HEADER);
                self.client_at = ClientAt::Header;
                Ok(())
            }
        }
    }

    fn opening(&mut self) -> Result<(), Reason> {
        let [0x16, 0x03, ..] = self.client.kept() else {
            let (length, code) = (number(self.client.kept(), 0)?, number(self.client.kept(), 4)?);
            let end = self.client.start() + u64::from(length);
            match (code, length) {
                (CANCEL_REQUEST, 16..) => return Err(Reason::Cancel),
                (SSL_REQUEST, 8) => {
                    self.client_at = ClientAt::Encryption { yes: b'S' };
                    self.client.next(end, 1);
                }
                (GSSENC_REQUEST, 8) => {
                    self.client_at = ClientAt::Encryption { yes: b'G' };
                    self.client.next(end, 1);
                }
                (0x0003_0000..=0x0003_ffff, 8..) => {
                    if u64::from(length) > MAX_STARTUP {
                        return Err(Reason::TooLarge);
                    }
                    self.client_at = ClientAt::Startup { end };
                    self.client.want(length as usize);
                }
                _ => return Err(Reason::NotTheProtocol),
            }
            return Ok(());
        };
        // A TLS handshake without asking, as PostgreSQL 17 allows.
        Err(Reason::Encrypted)
    }

    /// One message of the client, of whose body the beginning is there.
    fn asked(&mut self, head: &Head, found: &mut Vec<Found>) -> Result<(), Reason> {
        let body = self.client.kept().get(HEADER..).unwrap_or_default();
        let &Head { start, end, .. } = head;
        match head.kind {
            b'P' => {
                let (statement, text) = name(body)?;
                self.statements.parse(statement, Phase::of(text))?;
            }
            b'B' => {
                let (portal, rest) = name(body)?;
                let (statement, _) = name(rest)?;
                self.statements.bind(portal, statement)?;
            }
            b'E' => {
                let (portal, _) = name(body)?;
                let phase = self.statements.portal(portal);
                self.outstanding.execute(phase)?;
                found.push(Found::Execution { phase, start, end });
            }
            b'Q' => {
                let phase = Phase::of(body);
                self.outstanding.query(phase, end)?;
                found.push(Found::Execution { phase, start, end });
            }
            b'C' => match body.split_first() {
                Some((b'S', rest)) => self.statements.close_statement(name(rest)?.0),
                Some((b'P', rest)) => self.statements.close_portal(name(rest)?.0),
                Some(_) | None => return Err(Reason::NotTheProtocol),
            },
            b'S' => self.outstanding.sync(end)?,
            b'c' | b'f' => {
                self.outstanding.copied();
                self.outstanding.extend(end);
            }
            b'p' | b'd' => self.outstanding.extend(end),
            // Describe, Flush, Terminate.
            _ => {}
        }
        Ok(())
    }

    fn server_step(&mut self, found: &mut Vec<Found>) -> Result<(), Reason> {
        match self.server_at {
            ServerAt::First => self.first_answer(),
            ServerAt::Header => {
                let head = head(&self.server)?;
                let prefix = match head.kind {
                    b'Z' | b'C' | b'E' => PREFIX,
                    b'I' | b's' | b'D' | b'T' | b'G' | b'H' => 0,
                    b'W' => return Err(Reason::Replication),
                    b'R' | b'K' | b'S' | b'N' | b'A' | b't' | b'n' | b'1' | b'2' | b'3' | b'c' | b'd'
                    | b'v' => 0,
                    _ => return Err(Reason::NotTheProtocol),
                };
                self.server.want(wanted(&head, prefix));
                self.server_at = ServerAt::Body(head);
                Ok(())
            }
            ServerAt::Body(head) => {
                self.answered(&head, found)?;
                self.server.next(head.end, HEADER);
                self.server_at = ServerAt::Header;
                Ok(())
            }
        }
    }

    fn first_answer(&mut self) -> Result<(), Reason> {
        let first = self.server.kept().first().copied().unwrap_or_default();
        match self.client_at {
            ClientAt::Encryption { yes } if first == yes => return Err(Reason::Encrypted),
            ClientAt::Encryption { .. } if first == b'N' => {
                self.server.next(self.server.position(), 1);
                self.client.want(OPENING);
                self.client_at = ClientAt::Opening;
            }
            // Instead of answering, a server that does not know the request reports an error.
            ClientAt::Encryption { .. } if first != b'E' => return Err(Reason::NotTheProtocol),
            ClientAt::Encryption { .. } | ClientAt::Header | ClientAt::Body(_) => {
                self.server.want(HEADER);
                self.server_at = ServerAt::Header;
            }
            ClientAt::Opening | ClientAt::Startup { .. } => return Err(Reason::OutOfStep),
        }
        Ok(())
    }

    /// One message of the server, of whose body the beginning is there.
    fn answered(&mut self, head: &Head, found: &mut Vec<Found>) -> Result<(), Reason> {
        let body = self.server.kept().get(HEADER..).unwrap_or_default();
        let &Head { start, end, .. } = head;
        let outcome = match head.kind {
            b'Z' => {
                let status = status(body)?;
                let (complete, ready) = self.outstanding.ready(status, start, end, self.client.position())?;
                // The transaction's portals are gone, and the client has bound no others.
                if status == Status::Idle && !ready.asked_ahead {
                    self.statements.forget_portals();
                }
                found.extend(complete.map(Found::Complete));
                found.push(Found::Ready(ready));
                return Ok(());
            }
            b'E' => {
                let state = SqlState::of_error(body);
                let (begun, complete) = self.outstanding.error(state, start, end)?;
                found.extend(begun.map(|phase| Found::Answer { phase, start }));
                found.push(Found::Error { state, start, end });
                found.extend(complete.map(Found::Complete));
                return Ok(());
            }
            b'T' => {
                let begun = self.outstanding.describe(start)?;
                found.extend(begun.map(|phase| Found::Answer { phase, start }));
                return Ok(());
            }
            b'C' => Some(Outcome::Done { rows: rows(body) }),
            b'I' => Some(Outcome::Empty),
            b's' => Some(Outcome::Suspended),
            b'D' | b'H' => None,
            b'G' => {
                self.outstanding.copying();
                None
            }
            _ => return Ok(()),
        };
        let begun = self.outstanding.answer(start)?;
        found.extend(begun.map(|phase| Found::Answer { phase, start }));
        if let Some(outcome) = outcome {
            found.extend(self.outstanding.complete(outcome, end)?.map(Found::Complete));
        }
        Ok(())
    }
}
