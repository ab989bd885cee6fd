//! Frames, and the methods that are read. Source: AMQP 0-9-1 Specification 4.2.3 and 1.2 to 1.8 of its reference.

use super::Reason;

/// Type, channel and size.
pub(super) const HEAD: usize = 7;
/// Type of a frame with a method.
pub(super) const METHOD: u8 = 1;
/// Type of a frame with a content header.
pub(super) const HEADER: u8 = 2;
/// Type of a frame with a part of a body.
pub(super) const BODY: u8 = 3;
const HEARTBEAT: u8 = 8;
/// The octet after each frame.
pub(super) const END: u8 = 0xCE;

/// Kept of a payload: the longest that is read is a nack (class, method, tag and two bits in 13 bytes).
const PREFIX: u32 = 16;
/// Class, weight, body size and property flags: the shortest content header.
const CONTENT_HEADER: u32 = 14;

/// A frame, as its head has it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frame {
    pub(super) kind: u8,
    pub(super) channel: u16,
    /// Bytes of payload.
    pub(super) size: u32,
    pub(super) start: u64,
}

impl Frame {
    /// From its head, which begins at the position `start`.
    pub(super) fn read(head: &[u8], start: u64) -> Result<Self, Reason> {
        let &[kind, c1, c0, s3, s2, s1, s0] = head else { return Err(Reason::NotTheProtocol) };
        let (channel, size) = (u16::from_be_bytes([c1, c0]), u32::from_be_bytes([s3, s2, s1, s0]));
        match (kind, size) {
            (METHOD, 4..) | (HEADER, CONTENT_HEADER..) | (BODY | HEARTBEAT, _) => {
                Ok(Self { kind, channel, size, start })
            }
            _ => Err(Reason::NotTheProtocol),
        }
    }

    /// Bytes of the payload to keep.
    pub(super) fn prefix(&self) -> usize {
        match self.kind {
            METHOD | HEADER => self.size.min(PREFIX) as usize,
            _ => 0,
        }
    }

    /// Position after the octet that ends it.
    pub(super) fn end(&self) -> u64 {
        self.start + HEAD as u64 + u64::from(self.size) + 1
    }
}

/// Bytes of body, from the beginning of a content header.
pub(super) fn body_size(prefix: &[u8]) -> Result<u64, Reason> {
    let size = prefix.get(4..).and_then(<[u8]>::first_chunk).ok_or(Reason::NotTheProtocol)?;
    Ok(u64::from_be_bytes(*size))
}

/// The methods that matter, whoever sends them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    ConnectionClose { code: u16 },
    Blocked,
    Unblocked,
    ChannelOpen,
    ChannelClose { code: u16 },
    ChannelCloseOk,
    Select,
    Publish,
    Return { code: u16 },
    Ack { tag: u64, multiple: bool },
    Nack { tag: u64, multiple: bool },
    Skipped,
}

impl Method {
    /// From the beginning of a method frame's payload.
    pub(super) fn read(prefix: &[u8]) -> Result<Self, Reason> {
        let &[c1, c0, m1, m0, ref arguments @ ..] = prefix else { return Err(Reason::NotTheProtocol) };
        let code = || arguments.first_chunk().copied().map(u16::from_be_bytes).ok_or(Reason::NotTheProtocol);
        let tag = || arguments.first_chunk().copied().map(u64::from_be_bytes).ok_or(Reason::NotTheProtocol);
        let multiple = || arguments.get(8).map(|bits| bits & 1 == 1).ok_or(Reason::NotTheProtocol);
        Ok(match (u16::from_be_bytes([c1, c0]), u16::from_be_bytes([m1, m0])) {
            (10, 50) => Self::ConnectionClose { code: code()? },
            (10, 60) => Self::Blocked,
            (10, 61) => Self::Unblocked,
            (20, 10) => Self::ChannelOpen,
            (20, 40) => Self::ChannelClose { code: code()? },
            (20, 41) => Self::ChannelCloseOk,
            (85, 10) => Self::Select,
            (60, 40) => Self::Publish,
            (60, 50) => Self::Return { code: code()? },
            (60, 80) => Self::Ack { tag: tag()?, multiple: multiple()? },
            (60, 120) => Self::Nack { tag: tag()?, multiple: multiple()? },
            _ => Self::Skipped,
        })
    }
}
