//! The bytes of a file: chunks that copies share until one of them is written.

use std::collections::BTreeMap;
use std::sync::Arc;

const CHUNK: usize = 4096;

/// Bytes of a file. A chunk that is missing is zero. Cloning copies no bytes.
#[derive(Clone, Default)]
pub(crate) struct Contents {
    len: u64,
    chunks: BTreeMap<u64, Arc<[u8; CHUNK]>>,
}

/// The parts of `len` bytes from `offset` by chunk: its number, where in it, and how many bytes.
fn parts(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, usize)> {
    let mut at = offset;
    let end = offset + len as u64;
    std::iter::from_fn(move || {
        if at == end {
            return None;
        }
        let within = (at % CHUNK as u64) as usize;
        let n = (CHUNK - within).min((end - at) as usize);
        let part = (at / CHUNK as u64, within, n);
        at += n as u64;
        Some(part)
    })
}

impl Contents {
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Fills `buf` from `offset`. `false`: the file ends earlier.
    pub fn read(&self, buf: &mut [u8], offset: u64) -> bool {
        if offset + buf.len() as u64 > self.len {
            return false;
        }
        let mut at = 0;
        for (chunk, within, n) in parts(offset, buf.len()) {
            let to = &mut buf[at..at + n];
            match self.chunks.get(&chunk) {
                Some(bytes) => to.copy_from_slice(&bytes[within..within + n]),
                None => to.fill(0),
            }
            at += n;
        }
        true
    }

    /// Writes `bytes`, extending the file if it ends earlier.
    pub fn write(&mut self, bytes: &[u8], offset: u64) {
        let mut at = 0;
        for (chunk, within, n) in parts(offset, bytes.len()) {
            let to = self
                .chunks
                .entry(chunk)
                .or_insert_with(|| Arc::new([0; CHUNK]));
            Arc::make_mut(to)[within..within + n].copy_from_slice(&bytes[at..at + n]);
            at += n;
        }
        self.len = self.len.max(offset + bytes.len() as u64);
    }

    /// Cuts or extends the file; new bytes are zero.
    pub fn set_len(&mut self, len: u64) {
        if len < self.len {
            // Whole chunks behind the end go; the rest of the last one must read as zero if the file grows
            // again.
            let _cut = self.chunks.split_off(&len.div_ceil(CHUNK as u64));
            let within = (len % CHUNK as u64) as usize;
            if let Some(last) = self.chunks.get_mut(&(len / CHUNK as u64)) {
                Arc::make_mut(last)[within..].fill(0);
            }
        }
        self.len = len;
    }

    /// Chunks that were ever written, with their numbers.
    pub fn chunks(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let len = self.len;
        self.chunks.iter().map(move |(&number, bytes)| {
            let offset = number * CHUNK as u64;
            let n = (len.saturating_sub(offset)).min(CHUNK as u64) as usize;
            (offset, &bytes[..n])
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    /// The plain model: a vector.
    #[test]
    fn contents_are_a_vector() {
        let seed = rand::random();
        println!("seed {seed}");
        let mut rng = SmallRng::seed_from_u64(seed);
        let (mut contents, mut model) = (Contents::default(), Vec::new());
        for _ in 0..2000 {
            let offset = rng.random_range(0..20_000usize);
            match rng.random_range(0..3) {
                0 => {
                    let bytes = vec![rng.random::<u8>(); rng.random_range(0..9000)];
                    contents.write(&bytes, offset as u64);
                    if !bytes.is_empty() || offset > model.len() {
                        model.resize(model.len().max(offset + bytes.len()), 0);
                    }
                    model[offset..offset + bytes.len()].copy_from_slice(&bytes);
                }
                1 => {
                    contents.set_len(offset as u64);
                    model.resize(offset, 0);
                }
                _ => {
                    let mut buf = vec![1; rng.random_range(0..9000)];
                    let within = contents.read(&mut buf, offset as u64);
                    assert_eq!(within, offset + buf.len() <= model.len());
                    if within {
                        assert_eq!(buf, model[offset..offset + buf.len()]);
                    }
                }
            }
            assert_eq!(contents.len(), model.len() as u64);
        }
    }
}
