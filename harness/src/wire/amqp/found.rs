//! What a connection says.

use super::{Peer, Reason};

/// The server confirms, or refuses, publishes of a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Confirm {
    /// Channel.
    pub channel: u16,
    /// basic.ack; otherwise basic.nack, with which the server says that it did not take care of the message.
    pub ack: bool,
    /// The tag it names: the n-th publish since confirm.select. 0 with `multiple`: all so far.
    pub tag: u64,
    /// All outstanding tags up to this one.
    pub multiple: bool,
    /// Outstanding publishes that it settles; 0 when it names nothing outstanding.
    pub settles: u64,
    /// Position of its first byte.
    pub start: u64,
    /// Position after its last byte.
    pub end: u64,
}

/// What a connection has said. Positions of what only one peer says count that peer's bytes; those of the two closes
/// count the bytes of who closes.
///
/// Frames on a channel that is not open are passed over: they are the server's to refuse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// The client opens a channel (channel.open). Whatever the channel of that number was before is forgotten.
    ChannelOpen {
        /// Channel.
        channel: u16,
        /// Position of its first byte.
        start: u64,
    },
    /// The client asks for confirms (confirm.select): publishes that it sends from here on are counted.
    Select {
        /// Channel.
        channel: u16,
        /// Position of its first byte.
        start: u64,
    },
    /// The client begins to publish: basic.publish, which the content follows.
    Publish {
        /// Channel.
        channel: u16,
        /// The n-th publish since confirm.select, from 1; `None` on a channel without confirms, or one that the server
        /// has closed.
        tag: Option<u64>,
        /// Position of its first byte.
        start: u64,
    },
    /// All of a publish is there. Made when its last byte is read, and outstanding from then on.
    Published {
        /// Channel.
        channel: u16,
        /// As in [`Publish`](Self::Publish).
        tag: Option<u64>,
        /// Position after the last byte of its content.
        end: u64,
    },
    /// The server confirms or refuses.
    Confirm(Confirm),
    /// The server gives back what it could not route (basic.return); its confirm comes later. The content follows.
    Return {
        /// Channel.
        channel: u16,
        /// Reply code: 312 is NO_ROUTE.
        code: u16,
        /// Position of its first byte.
        start: u64,
    },
    /// The server reads no more publishes for now (connection.blocked).
    Blocked {
        /// Position of its first byte.
        start: u64,
    },
    /// It does again.
    Unblocked {
        /// Position of its first byte.
        start: u64,
    },
    /// channel.close. By the server: what was outstanding stays without an answer. By the client: it may still be
    /// answered until the server agrees.
    ChannelClose {
        /// Who closes.
        by: Peer,
        /// Channel.
        channel: u16,
        /// Reply code: 200 is none, 404 NOT_FOUND.
        code: u16,
        /// Publishes outstanding on it.
        unsettled: u64,
        /// Position of its first byte.
        start: u64,
    },
    /// connection.close.
    ConnectionClose {
        /// Who closes.
        by: Peer,
        /// Reply code: 200 is none, 320 CONNECTION_FORCED.
        code: u16,
        /// Position of its first byte.
        start: u64,
    },
    /// From here on nothing is understood, in either direction; made once.
    Opaque {
        /// Why.
        reason: Reason,
        /// Position, in the direction of the call, of what was not understood: a frame, or the octet that ends it.
        start: u64,
    },
}
