//! Ids that say whose they are, so that the sink needs no map from ids to events.
//!
//! A UUIDv8 of
//! 1 bit (0 event, 1 business row), 15 zero bits, 32 bits place of the write in its service |
//! version | 12 bits event in the write | variant | 12 bits service, 50 bits tag of cell and round.

use sha2::{Digest, Sha256};
use uuid::Uuid;

/// Services, and events of a write, that an id has room for.
pub const MAX_PLACES: u16 = 1 << 12;

const TAG_BITS: u32 = 50;
const VERSION: u128 = 8 << 76;
const VARIANT: u128 = 0b10 << 62;
const ROW: u64 = 1 << 47;

/// What an id is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Parts {
    /// A business row's, not an event's.
    pub(super) row: bool,
    /// Place in the service.
    pub(super) write: u32,
    /// Place in the write, below [`MAX_PLACES`].
    pub(super) event: u16,
    /// Place in the plan, below [`MAX_PLACES`].
    pub(super) service: u16,
    /// 50 bits.
    pub(super) tag: u64,
}

/// 50 bits that differ between cells, rounds and seeds.
pub(super) fn tag(seed: u64, label: &str, round: u32) -> u64 {
    let mut hash = Sha256::new();
    hash.update(b"drainbench tag");
    hash.update(seed.to_be_bytes());
    hash.update(round.to_be_bytes());
    hash.update(label.as_bytes());
    let digest: [u8; 32] = hash.finalize().into();
    digest[..8].iter().fold(0, |word, byte| word << 8 | u64::from(*byte)) >> (64 - TAG_BITS)
}

pub(super) fn encode(parts: Parts) -> Uuid {
    let head = u64::from(parts.write) | if parts.row { ROW } else { 0 };
    let event = u128::from(parts.event % MAX_PLACES);
    let service = u128::from(parts.service % MAX_PLACES);
    let tag = u128::from(parts.tag & ((1 << TAG_BITS) - 1));
    Uuid::from_u128(u128::from(head) << 80 | VERSION | event << 64 | VARIANT | service << TAG_BITS | tag)
}

/// `None` when it is not of this layout.
pub(super) fn decode(id: Uuid) -> Option<Parts> {
    let bits = id.as_u128();
    let head = (bits >> 80) as u64;
    let parts = Parts {
        row: head & ROW != 0,
        write: u32::try_from(head & !ROW).ok()?,
        event: (bits >> 64) as u16 % MAX_PLACES,
        service: (bits >> TAG_BITS) as u16 % MAX_PLACES,
        tag: bits as u64 & ((1 << TAG_BITS) - 1),
    };
    (encode(parts) == id).then_some(parts)
}
