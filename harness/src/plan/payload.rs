//! What events carry: built before the clock starts, so that the load only takes slices.

use rand_chacha::rand_core::Rng;
use serde_json::value::RawValue;

use super::draw;
use crate::history::EventRef;

/// The pool's size, unless a few values of the largest payload need more.
const POOL_BYTES: u32 = 1 << 20;
/// As many different values at most: enough that neither TOAST nor a broker meets the same one in a row.
const MOST: u32 = 1024;
/// At least as many.
const LEAST: u32 = 4;

const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// A pool of JSON values, each of exactly the same number of bytes and hard to compress.
#[derive(Debug, Clone)]
pub struct Payloads {
    seed: u64,
    pool: Vec<Box<RawValue>>,
}

impl Payloads {
    /// Values of exactly `bytes` bytes, 2 or more: `{"text":"..."}`, or a string where that has no room.
    #[must_use]
    pub fn new(seed: u64, bytes: u32) -> Self {
        let mut rng = draw::generator(seed, draw::Purpose::Payload, 0);
        let values = (POOL_BYTES / bytes.max(2)).clamp(LEAST, MOST);
        let pool = (0..values).map(|_| value(bytes.max(2) as usize, &mut rng)).collect();
        Self { seed, pool }
    }
    /// The `data` of an event: the same for the same seed and place.
    #[must_use]
    pub fn data(&self, service: u16, event: EventRef) -> &RawValue {
        let drawn = draw::word(self.seed, draw::Purpose::Payload, service, event.write, event.event);
        &self.pool[(drawn % self.pool.len() as u64) as usize]
    }
    /// Its text.
    #[must_use]
    pub fn get(&self, service: u16, event: EventRef) -> &str {
        self.data(service, event).get()
    }
}

fn value(bytes: usize, rng: &mut impl Rng) -> Box<RawValue> {
    const HEAD: &str = "{\"text\":\"";
    const TAIL: &str = "\"}";
    let (head, tail) = if bytes < HEAD.len() + TAIL.len() { ("\"", "\"") } else { (HEAD, TAIL) };
    let mut noise = vec![0; bytes - head.len() - tail.len()];
    rng.fill_bytes(&mut noise);
    let text: String = noise.iter().map(|byte| char::from(LETTERS[usize::from(byte % 64)])).collect();
    // Letters, digits, `-` and `_` need no escape, so this is JSON; `null` is never taken.
    RawValue::from_string(format!("{head}{text}{tail}")).unwrap_or_else(|_| RawValue::NULL.to_owned())
}
