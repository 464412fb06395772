//! [`AlignedBuf`]: memory that can be written to a file past the operating system's cache (IO-6).

use std::ops::{Deref, DerefMut};

/// Block size for direct writes: a multiple of the sector size of every disk that is met today.
pub const DIRECT_BLOCK: usize = 4096;

/// Bytes of a fixed number whose first one is aligned to [`DIRECT_BLOCK`]. Zero at first.
pub struct AlignedBuf {
    /// With room to begin at an aligned byte. It never grows, so that byte stays where it is.
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl AlignedBuf {
    pub fn new(len: usize) -> AlignedBuf {
        let bytes = vec![0; len + DIRECT_BLOCK];
        AlignedBuf {
            start: bytes.as_ptr().align_offset(DIRECT_BLOCK),
            bytes,
            len,
        }
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_begin_at_a_block() {
        for len in [1, DIRECT_BLOCK, 3 * DIRECT_BLOCK + 7] {
            let mut buf = AlignedBuf::new(len);
            assert_eq!(buf.as_ptr().addr() % DIRECT_BLOCK, 0);
            assert_eq!(buf.len(), len);
            buf[len - 1] = 1;
            let moved = Box::new(buf);
            assert_eq!(moved.as_ptr().addr() % DIRECT_BLOCK, 0, "it moves whole");
        }
    }
}
