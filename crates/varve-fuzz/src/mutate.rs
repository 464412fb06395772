//! Changes of an input, for the driver that has no coverage to go by: mostly small ones, so that most of a
//! seed's structure is still there.

use rand::Rng;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;

/// Numbers at the edges of what lengths, counts and ids are stored in.
const EDGES: [u64; 12] = [
    0,
    1,
    0x7f,
    0x80,
    0xff,
    0x7fff,
    0x8000,
    0xffff,
    0x7fff_ffff,
    0xffff_ffff,
    1 << 56,
    u64::MAX,
];

/// A change of `seed`; `other` is one that pieces may come from.
pub fn mutate(seed: &[u8], other: &[u8], rng: &mut SmallRng) -> Vec<u8> {
    let mut out = seed.to_vec();
    for _ in 0..rng.random_range(1..6) {
        change(&mut out, other, rng);
    }
    out
}

fn change(out: &mut Vec<u8>, other: &[u8], rng: &mut SmallRng) {
    if out.is_empty() {
        out.push(rng.random());
        return;
    }
    let at = rng.random_range(0..out.len());
    let left = out.len() - at;
    match rng.random_range(0..9) {
        0 => out[at] ^= 1 << rng.random_range(0..8),
        1 => out[at] = rng.random(),
        2 | 3 => {
            let edge = EDGES.choose(rng).copied().unwrap_or(0).to_le_bytes();
            let width = [1, 2, 4, 8].choose(rng).copied().unwrap_or(1).min(left);
            out[at..at + width].copy_from_slice(&edge[..width]);
        }
        4 => out[at] = out[at].wrapping_add(rng.random_range(1..5)),
        5 => out[at] = out[at].wrapping_sub(rng.random_range(1..5)),
        6 => {
            let n = rng.random_range(1..=left.min(16));
            out.drain(at..at + n);
        }
        7 => {
            let n = rng.random_range(1..=left.min(32));
            let copy = out[at..at + n].to_vec();
            let to = rng.random_range(0..=out.len());
            out.splice(to..to, copy);
        }
        _ if other.is_empty() => out.truncate(at),
        _ => {
            let from = rng.random_range(0..other.len());
            let n = rng.random_range(1..=(other.len() - from).min(64));
            let to = (at + n).min(out.len());
            out.splice(at..to, other[from..from + n].iter().copied());
        }
    }
}
