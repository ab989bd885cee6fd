//! Reads the two protocols a drainer speaks, PostgreSQL 3 and AMQP 0-9-1, while their bytes go by.
//!
//! Pure: bytes in, findings out, no I/O and no clock. A proxy between a drainer and a server owns one
//! [`postgres::Conversation`] or [`amqp::Conversation`] a connection and gives it what it reads, in the order in which it
//! reads it and **before** it forwards any of it: an answer is understood from what was asked.
//!
//! # Positions
//!
//! Each direction of a connection is counted in bytes, from 0 at its first. A finding's `start` is the position of the
//! first byte of its message in the direction of the call that returned it, `end` the position after its last byte.
//! Unless its text says otherwise a finding is made as soon as its message is understood, so `end` may lie beyond what
//! has been read.
//!
//! # Holding
//!
//! `client_settled` and `server_settled` are positions up to which everything read belongs to messages that are
//! understood. What lies between there and the last byte read is the beginning of a message, at most a few hundred
//! bytes (a PostgreSQL startup: 10 000), and is to be kept back until more is read; at the end of a stream it is
//! forwarded all the same. No finding is ever made whose message began before what was settled already. So a proxy
//! forwards up to *settled*, or only up to a finding's `start` when that is where it wants to stop.
//!
//! # What is not understood
//!
//! A conversation that contradicts the protocol, or that would need more memory than its limits allow, becomes
//! *opaque*: it says so once, with a [`Reason`], in the call that noticed it. From then on all bytes of both directions
//! are settled as they are read and there are no findings. No input makes it panic.

pub mod amqp;
pub mod postgres;
mod stream;

#[cfg(test)]
mod pieces;

use std::fmt;

/// One end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Peer {
    /// Who opened it: the drainer.
    Client,
    /// Who accepted it: PostgreSQL or RabbitMQ.
    Server,
}

/// Why a conversation is not understood any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// TLS or GSSAPI from here on.
    Encrypted,
    /// A PostgreSQL replication connection, which speaks in CopyBoth mode.
    Replication,
    /// A PostgreSQL cancel request: it has no answer and no statements.
    Cancel,
    /// Bytes that the protocol does not have: another protocol, another version, damage.
    NotTheProtocol,
    /// A message that the protocol has, where it cannot be: an answer to what was not asked, a body without a header.
    OutOfStep,
    /// A part of the protocol that is not read here: PostgreSQL's FunctionCall.
    Unsupported,
    /// A name or a startup message that is longer than what is kept of it.
    TooLarge,
    /// More statements, portals, answers, channels or gaps between confirms outstanding than are remembered.
    TooMany,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Encrypted => "the connection is encrypted",
            Self::Replication => "it is a replication connection",
            Self::Cancel => "it is a cancel request",
            Self::NotTheProtocol => "it does not speak the protocol",
            Self::OutOfStep => "a message came where the protocol has none",
            Self::Unsupported => "it uses a part of the protocol that is not read",
            Self::TooLarge => "a name or the startup message is too long",
            Self::TooMany => "too much is outstanding",
        })
    }
}
