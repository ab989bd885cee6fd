//! The parts of messages that are read.

use super::{Reason, Status, Stream};

/// Type byte and length.
pub(super) const HEADER: usize = 5;
/// Kept of a body at most. Names end at 63 bytes in the server, a Bind has two of them, and the text of a statement is
/// understood from its first comment or words.
pub(super) const PREFIX: usize = 256;
/// A typed message, as its header has it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head {
    pub(super) kind: u8,
    pub(super) start: u64,
    pub(super) end: u64,
}

/// The header of a typed message, which is what `stream` has kept.
pub(super) fn head(stream: &Stream) -> Result<Head, Reason> {
    let kind = *stream.kept().first().ok_or(Reason::NotTheProtocol)?;
    let length = number(stream.kept(), 1)?;
    // It counts itself, and is signed.
    if !(4..=i32::MAX as u32).contains(&length) {
        return Err(Reason::NotTheProtocol);
    }
    Ok(Head { kind, start: stream.start(), end: stream.start() + 1 + u64::from(length) })
}

/// Bytes to keep of a message: its header and at most `prefix` of its body.
pub(super) fn wanted(head: &Head, prefix: usize) -> usize {
    let whole = usize::try_from(head.end - head.start).unwrap_or(usize::MAX);
    whole.min(HEADER + prefix)
}

pub(super) fn number(bytes: &[u8], at: usize) -> Result<u32, Reason> {
    let bytes = bytes.get(at..).and_then(<[u8]>::first_chunk).ok_or(Reason::NotTheProtocol)?;
    Ok(u32::from_be_bytes(*bytes))
}

/// A text that ends in NUL, and what follows.
pub(super) fn name(body: &[u8]) -> Result<(&[u8], &[u8]), Reason> {
    match body.iter().position(|byte| *byte == 0) {
        Some(end) => Ok((&body[..end], &body[end + 1..])),
        None if body.len() < PREFIX => Err(Reason::NotTheProtocol),
        None => Err(Reason::TooLarge),
    }
}

pub(super) fn status(body: &[u8]) -> Result<Status, Reason> {
    match body {
        b"I" => Ok(Status::Idle),
        b"T" => Ok(Status::InTransaction),
        b"E" => Ok(Status::Failed),
        _ => Err(Reason::NotTheProtocol),
    }
}

/// The last word of a CommandComplete's tag (`INSERT 0 5`, `COMMIT`).
pub(super) fn rows(body: &[u8]) -> Option<u64> {
    let tag = body.split(|byte| *byte == 0).next()?;
    let word = tag.rsplit(|byte| *byte == b' ').next()?;
    std::str::from_utf8(word).ok()?.parse().ok()
}

/// Of the pairs of NUL-ended texts of a startup message: `replication` is a boolean or `database`.
pub(super) fn asks_for_replication(parameters: &[u8]) -> bool {
    let mut texts = parameters.split(|byte| *byte == 0);
    while let (Some(key), Some(value)) = (texts.next(), texts.next()) {
        if key == b"replication" {
            let no = [b"false".as_slice(), b"off", b"no", b"0", b"f", b"n"];
            return !no.iter().any(|no| value.eq_ignore_ascii_case(no));
        }
    }
    false
}
