//! AMQP 0-9-1 with RabbitMQ's publisher confirms. Sources: "AMQP 0-9-1 Specification" 4.2 (framing) and RabbitMQ's
//! extensions confirm, basic.nack and connection.blocked.

mod found;
mod frame;
mod tags;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use self::{
    frame::{BODY, Frame, HEAD, HEADER, METHOD, Method},
    tags::Tags,
};
use super::{Peer, Reason, stream::Stream};

pub use self::found::{Confirm, Found};

/// What a client says first: `AMQP`, 0, and the version.
const PROTOCOL: &[u8] = b"AMQP\0\x00\x09\x01";
/// Channels open at once; RabbitMQ allows 2047 unless told otherwise.
const MAX_CHANNELS: usize = 4096;
/// Runs of tags not confirmed yet, of all channels together. A server that confirms in order leaves one a channel.
const MAX_RUNS: usize = 16_384;

#[derive(Debug, Clone, Copy)]
enum At {
    /// Before the client's protocol header is complete.
    Opening,
    Head,
    Payload(Frame),
    /// Before the octet that ends the frame.
    End(Frame),
}

/// Who has closed a channel that the other has not agreed to close yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    Open,
    ClosedBy(Peer),
}

#[derive(Debug)]
struct Channel {
    life: Life,
    confirms: Option<Tags>,
    /// The publish whose content is on its way.
    content: Option<Content>,
}

#[derive(Debug, Clone, Copy)]
struct Content {
    tag: Option<u64>,
    /// Bytes of body to come; not known before the content header.
    remaining: Option<u64>,
}

/// One connection, both directions of it. See the [module above](super) for positions and holding.
///
/// Memory: 24 bytes a direction, at most 4096 channels, at most 16 384 runs of consecutive outstanding tags.
#[derive(Debug)]
pub struct Conversation {
    client: Stream,
    server: Stream,
    client_at: At,
    server_at: At,
    channels: BTreeMap<u16, Channel>,
    unsettled: u64,
    runs: usize,
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
            client: Stream::new(PROTOCOL.len()),
            server: Stream::new(HEAD),
            client_at: At::Opening,
            server_at: At::Head,
            channels: BTreeMap::new(),
            unsettled: 0,
            runs: 0,
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

    /// Publishes that were sent whole on channels with confirms and are not confirmed, refused or lost with their
    /// channel. Those of a connection that is closed or lost still count; of an opaque one none do.
    pub fn unsettled(&self) -> u64 {
        self.unsettled
    }

    fn give_up(&mut self) {
        self.opaque = true;
        self.client.give_up();
        self.server.give_up();
        self.channels = BTreeMap::new();
        self.unsettled = 0;
        self.runs = 0;
    }

    fn client_step(&mut self, found: &mut Vec<Found>) -> Result<(), Reason> {
        match self.client_at {
            At::Opening => {
                match self.client.kept() {
                    PROTOCOL => {}
                    [0x16, 0x03, ..] => return Err(Reason::Encrypted),
                    _ => return Err(Reason::NotTheProtocol),
                }
                self.client.next(self.client.position(), HEAD);
                self.client_at = At::Head;
            }
            At::Head => self.client_at = head(&mut self.client)?,
            At::Payload(frame) => {
                self.client_frame(&frame, found)?;
                self.client_at = payload(&mut self.client, frame);
            }
            At::End(frame) => {
                self.client_at = end(&mut self.client)?;
                self.published(&frame, found)?;
            }
        }
        Ok(())
    }

    fn server_step(&mut self, found: &mut Vec<Found>) -> Result<(), Reason> {
        // The server does not speak first.
        if matches!(self.client_at, At::Opening) {
            return Err(Reason::OutOfStep);
        }
        match self.server_at {
            At::Opening | At::Head => self.server_at = head(&mut self.server)?,
            At::Payload(frame) => {
                self.server_frame(&frame, found)?;
                self.server_at = payload(&mut self.server, frame);
            }
            At::End(_) => self.server_at = end(&mut self.server)?,
        }
        Ok(())
    }

    /// A frame of the client, of whose payload the beginning is there.
    fn client_frame(&mut self, frame: &Frame, found: &mut Vec<Found>) -> Result<(), Reason> {
        let prefix = self.client.kept().get(HEAD..).unwrap_or_default();
        if frame.kind == METHOD {
            let method = Method::read(prefix)?;
            return self.client_method(frame, method, found);
        }
        let Some(channel) = self.channels.get_mut(&frame.channel) else { return Ok(()) };
        match (frame.kind, channel.content.as_mut()) {
            (HEADER, Some(Content { remaining: remaining @ None, .. })) => {
                *remaining = Some(frame::body_size(prefix)?);
            }
            (BODY, Some(Content { remaining: Some(remaining), .. })) => {
                *remaining = remaining.checked_sub(u64::from(frame.size)).ok_or(Reason::OutOfStep)?;
            }
            (HEADER | BODY, _) => return Err(Reason::OutOfStep),
            // A heartbeat.
            _ => {}
        }
        Ok(())
    }

    fn client_method(&mut self, frame: &Frame, method: Method, found: &mut Vec<Found>) -> Result<(), Reason> {
        let &Frame { channel: number, start, .. } = frame;
        match method {
            Method::ConnectionClose { code } => {
                found.push(Found::ConnectionClose { by: Peer::Client, code, start });
            }
            Method::ChannelOpen => {
                self.forget(number);
                if self.channels.len() == MAX_CHANNELS {
                    return Err(Reason::TooMany);
                }
                self.channels.insert(number, Channel { life: Life::Open, confirms: None, content: None });
                found.push(Found::ChannelOpen { channel: number, start });
            }
            Method::ChannelClose { code } => {
                if let Some(channel) = self.channels.get_mut(&number) {
                    // What the server has closed already stays so.
                    if channel.life == Life::Open {
                        channel.life = Life::ClosedBy(Peer::Client);
                    }
                    channel.content = None;
                    let unsettled = channel.confirms.as_ref().map_or(0, Tags::outstanding);
                    let by = Peer::Client;
                    found.push(Found::ChannelClose { by, channel: number, code, unsettled, start });
                }
            }
            Method::ChannelCloseOk => self.agreed(number, Peer::Server),
            Method::Select => {
                if let Some(channel) = self.channels.get_mut(&number) {
                    channel.confirms.get_or_insert_default();
                    found.push(Found::Select { channel: number, start });
                }
            }
            Method::Publish => {
                if let Some(channel) = self.channels.get_mut(&number) {
                    let open = channel.life == Life::Open;
                    let tag = channel.confirms.as_mut().filter(|_| open).map(Tags::next);
                    channel.content = Some(Content { tag, remaining: None });
                    found.push(Found::Publish { channel: number, tag, start });
                }
            }
            // An ack or nack here is a consumer's.
            Method::Blocked
            | Method::Unblocked
            | Method::Return { .. }
            | Method::Ack { .. }
            | Method::Nack { .. }
            | Method::Skipped => {}
        }
        Ok(())
    }

    /// A frame of the client is complete, and maybe a publish with it.
    fn published(&mut self, frame: &Frame, found: &mut Vec<Found>) -> Result<(), Reason> {
        let Some(channel) = self.channels.get_mut(&frame.channel) else { return Ok(()) };
        let Some(Content { tag, remaining: Some(0) }) = channel.content else { return Ok(()) };
        channel.content = None;
        found.push(Found::Published { channel: frame.channel, tag, end: self.client.position() });
        if let (Life::Open, Some(tag), Some(confirms)) = (channel.life, tag, channel.confirms.as_mut()) {
            let before = confirms.runs();
            confirms.sent(tag);
            self.unsettled += 1;
            self.runs += confirms.runs() - before;
            if self.runs > MAX_RUNS {
                return Err(Reason::TooMany);
            }
        }
        Ok(())
    }

    /// A frame of the server, of whose payload the beginning is there.
    fn server_frame(&mut self, frame: &Frame, found: &mut Vec<Found>) -> Result<(), Reason> {
        if frame.kind != METHOD {
            return Ok(());
        }
        let &Frame { channel: number, start, .. } = frame;
        match Method::read(self.server.kept().get(HEAD..).unwrap_or_default())? {
            Method::ConnectionClose { code } => {
                found.push(Found::ConnectionClose { by: Peer::Server, code, start });
            }
            Method::Blocked => found.push(Found::Blocked { start }),
            Method::Unblocked => found.push(Found::Unblocked { start }),
            Method::Return { code } => found.push(Found::Return { channel: number, code, start }),
            Method::Ack { tag, multiple } => found.push(self.confirm(frame, true, tag, multiple)?),
            Method::Nack { tag, multiple } => found.push(self.confirm(frame, false, tag, multiple)?),
            Method::ChannelClose { code } => {
                let by = Peer::Server;
                let unsettled = self.lose(number);
                if let Some(channel) = self.channels.get_mut(&number) {
                    channel.life = Life::ClosedBy(by);
                    found.push(Found::ChannelClose { by, channel: number, code, unsettled, start });
                }
            }
            Method::ChannelCloseOk => self.agreed(number, Peer::Client),
            Method::ChannelOpen | Method::Select | Method::Publish | Method::Skipped => {}
        }
        Ok(())
    }

    fn confirm(&mut self, frame: &Frame, ack: bool, tag: u64, multiple: bool) -> Result<Found, Reason> {
        let mut settles = 0;
        if let Some(confirms) =
            self.channels.get_mut(&frame.channel).and_then(|channel| channel.confirms.as_mut())
        {
            let before = confirms.runs();
            settles = confirms.settle(tag, multiple);
            self.unsettled -= settles;
            self.runs = self.runs + confirms.runs() - before;
            if self.runs > MAX_RUNS {
                return Err(Reason::TooMany);
            }
        }
        let &Frame { channel, start, .. } = frame;
        Ok(Found::Confirm(Confirm { channel, ack, tag, multiple, settles, start, end: frame.end() }))
    }

    /// channel.close-ok to a close by `closer`.
    fn agreed(&mut self, number: u16, closer: Peer) {
        if self.channels.get(&number).is_some_and(|channel| channel.life == Life::ClosedBy(closer)) {
            self.forget(number);
        }
    }

    fn forget(&mut self, number: u16) {
        self.lose(number);
        self.channels.remove(&number);
    }

    /// What is outstanding on a channel will not be answered; how much that is.
    fn lose(&mut self, number: u16) -> u64 {
        let Some(channel) = self.channels.get_mut(&number) else { return 0 };
        let Some(confirms) = channel.confirms.take() else { return 0 };
        self.unsettled -= confirms.outstanding();
        self.runs -= confirms.runs();
        confirms.outstanding()
    }
}

/// The head of a frame is there: gathers what is read of its payload.
fn head(stream: &mut Stream) -> Result<At, Reason> {
    let frame = Frame::read(stream.kept(), stream.start())?;
    stream.want(HEAD + frame.prefix());
    Ok(At::Payload(frame))
}

/// The payload is understood: skips to the octet after it.
fn payload(stream: &mut Stream, frame: Frame) -> At {
    stream.next(frame.end() - 1, 1);
    At::End(frame)
}

/// The octet after a frame is there.
fn end(stream: &mut Stream) -> Result<At, Reason> {
    if stream.kept() != [frame::END] {
        return Err(Reason::NotTheProtocol);
    }
    stream.next(stream.position(), HEAD);
    Ok(At::Head)
}
