//! Cuts what two peers say into pieces, as a network may.

use super::Peer;

/// What is said, in its order.
pub(crate) type Script = Vec<(Peer, Vec<u8>)>;

/// The same in pieces: whole, byte by byte, with each speech cut in two at each position, and at random.
pub(crate) fn ways(script: &Script) -> Vec<Vec<(Peer, &[u8])>> {
    let whole: Vec<(Peer, &[u8])> = script.iter().map(|(peer, bytes)| (*peer, bytes.as_slice())).collect();
    let bytewise = whole.iter().flat_map(|(peer, bytes)| bytes.chunks(1).map(|byte| (*peer, byte))).collect();
    let mut ways = vec![whole.clone(), bytewise];
    for (at, (peer, bytes)) in whole.iter().enumerate() {
        for cut in 1..bytes.len() {
            let mut way = whole.clone();
            way.splice(at..=at, [(*peer, &bytes[..cut]), (*peer, &bytes[cut..])]);
            ways.push(way);
        }
    }
    for seed in 1..=8 {
        let mut dice = Dice(seed);
        let mut way = Vec::new();
        for (peer, mut bytes) in whole.iter().copied() {
            while !bytes.is_empty() {
                let (piece, rest) = bytes.split_at(1 + dice.below(bytes.len().min(40)));
                way.push((peer, piece));
                bytes = rest;
            }
        }
        ways.push(way);
    }
    ways
}

/// Marsaglia's xorshift64: the same numbers for the same seed, which is not 0.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| (self.next() >> 32) as u8).collect()
    }
}
