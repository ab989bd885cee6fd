//! Randomness that flows from the scenario's seed, and from nowhere else.

use rand_chacha::{
    ChaCha8Rng,
    rand_core::{Rng, SeedableRng},
};
use sha2::{Digest, Sha256};

/// What something is drawn for, so that no two draws share their randomness.
#[derive(Debug, Clone, Copy)]
pub(super) enum Purpose {
    Schedule,
    Cases,
    Payload,
    Rollback,
    Key,
}

impl Purpose {
    const fn name(self) -> &'static str {
        match self {
            Self::Schedule => "schedule",
            Self::Cases => "cases",
            Self::Payload => "payload",
            Self::Rollback => "rollback",
            Self::Key => "key",
        }
    }
    /// Odd and far apart, so that the streams of [`word`] don't meet.
    const fn salt(self) -> u64 {
        match self {
            Self::Schedule => 0x9e37_79b9_7f4a_7c15,
            Self::Cases => 0xbf58_476d_1ce4_e5b9,
            Self::Payload => 0x94d0_49bb_1331_11eb,
            Self::Rollback => 0xd6e8_feb8_6659_fd93,
            Self::Key => 0xa076_1d64_78bd_642f,
        }
    }
}

/// A generator for what is drawn in sequence. Each service has its own, so that a part of the services draws the
/// same as the whole.
pub(super) fn generator(seed: u64, purpose: Purpose, service: u16) -> ChaCha8Rng {
    let mut hash = Sha256::new();
    hash.update(b"drainbench ");
    hash.update(purpose.name().as_bytes());
    hash.update(seed.to_be_bytes());
    hash.update(service.to_be_bytes());
    ChaCha8Rng::from_seed(hash.finalize().into())
}

/// 64 bits for one event, the same whoever asks and in whatever order: a chain of SplitMix64 finalisers.
pub(super) fn word(seed: u64, purpose: Purpose, service: u16, write: u32, event: u16) -> u64 {
    let place = u64::from(write) << 32 | u64::from(service) << 16 | u64::from(event);
    mix(mix(seed ^ purpose.salt()).wrapping_add(place.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
}

const fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// 53 of its bits as a number of [0, 1). Written out, because a library's conversion may change with its version.
pub(super) fn unit(word: u64) -> f64 {
    (word >> 11) as f64 / (1_u64 << 53) as f64
}

/// The generator's next number of [0, 1).
pub(super) fn next_unit(rng: &mut ChaCha8Rng) -> f64 {
    unit(rng.next_u64())
}
