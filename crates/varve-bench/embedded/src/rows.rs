//! The rows, the same for every engine, and how they are checked.
//!
//! A value is its key, a counter of the updates that the row has seen, and filler made from the key. So a
//! read can check cheaply that it got the right row, and at the end a scan can check everything: each row
//! there once, its filler intact, the counters adding up to the updates that were acknowledged.

use std::ops::Range;

/// With the key of eight bytes: rows of 190 bytes.
pub const VALUE_BYTES: usize = 182;
const COUNTER: Range<usize> = 8..16;
const FILLER: usize = 16;

/// A fast generator of pseudo-random numbers (splitmix64).
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }
}

fn u64_at(bytes: &[u8], range: Range<usize>) -> u64 {
    u64::from_le_bytes(bytes[range].try_into().expect("eight bytes"))
}

/// Writes the value that a row is loaded with.
pub fn fill(key: u64, value: &mut [u8]) {
    value[..8].copy_from_slice(&key.to_le_bytes());
    value[COUNTER].fill(0);
    let mut rng = Rng::new(key);
    for chunk in value[FILLER..].chunks_mut(8) {
        chunk.copy_from_slice(&rng.next().to_le_bytes()[..chunk.len()]);
    }
}

/// What an update does to a value.
pub fn count_up(value: &mut [u8]) {
    let counter = counter(value) + 1;
    value[COUNTER].copy_from_slice(&counter.to_le_bytes());
}

/// How many updates the row has seen.
pub fn counter(value: &[u8]) -> u64 {
    u64_at(value, COUNTER)
}

/// The value belongs to the key: cheap enough for every read.
pub fn belongs(key: u64, value: &[u8]) -> bool {
    value.len() == VALUE_BYTES && u64_at(value, 0..8) == key
}

/// What a scan over everything found.
#[derive(Default)]
pub struct Audit {
    pub rows: u64,
    pub updates: u64,
    pub damaged: u64,
    next: u64,
    expected: Vec<u8>,
}

impl Audit {
    pub fn visit(&mut self, key: u64, value: &[u8]) {
        self.expected.resize(VALUE_BYTES, 0);
        fill(key, &mut self.expected);
        let intact =
            key == self.next && belongs(key, value) && value[FILLER..] == self.expected[FILLER..];
        self.damaged += u64::from(!intact);
        self.updates += if intact { counter(value) } else { 0 };
        self.rows += 1;
        self.next = key + 1;
    }
}

/// All keys below `n`, in an order that looks random and is the same each time.
pub fn shuffled(n: u64) -> Vec<u64> {
    let mut keys: Vec<u64> = (0..n).collect();
    let mut rng = Rng::new(n);
    for i in (1..keys.len()).rev() {
        keys.swap(i, rng.below(i as u64 + 1) as usize);
    }
    keys
}
