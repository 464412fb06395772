//! [`AlignedBuf`]: memory that can be written to a file past the operating system's cache (IO-6).

use std::ops::{Deref, DerefMut};

use super::DiskFile;
use crate::base::Result;

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

    /// Leaves only the first `len` bytes to be seen, if there are more.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
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

/// Whether the memory may be used with this file.
fn fits(file: &dyn DiskFile, memory: &[u8]) -> bool {
    !file.is_direct() || memory.as_ptr().addr().is_multiple_of(DIRECT_BLOCK)
}

/// Reads whole blocks into memory that may lie anywhere (IO-6).
pub fn read_aligned(file: &dyn DiskFile, to: &mut [u8], offset: u64) -> Result<()> {
    if fits(file, to) {
        return file.read_at(to, offset);
    }
    let mut aligned = AlignedBuf::new(to.len());
    file.read_at(&mut aligned, offset)?;
    to.copy_from_slice(&aligned);
    Ok(())
}

/// Writes whole blocks from memory that may lie anywhere (IO-6).
pub fn write_aligned(file: &dyn DiskFile, from: &[u8], offset: u64) -> Result<()> {
    if fits(file, from) {
        return file.write_at(from, offset);
    }
    let mut aligned = AlignedBuf::new(from.len());
    aligned.copy_from_slice(from);
    file.write_at(&aligned, offset)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::{Disk, OpenMode, RealDisk};

    #[test]
    fn memory_may_lie_anywhere() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        RealDisk.open(&path, OpenMode::CreateNew).unwrap();
        let file = RealDisk.open_direct(&path).unwrap();
        let mut block = AlignedBuf::new(2 * DIRECT_BLOCK);
        for shift in [0, 1, 512] {
            let odd = &mut block[shift..][..DIRECT_BLOCK];
            odd.fill(shift as u8 + 3);
            write_aligned(&*file, odd, 0).unwrap();
            odd.fill(0);
            read_aligned(&*file, odd, 0).unwrap();
            assert!(odd.iter().all(|&b| b == shift as u8 + 3), "{shift}");
        }
    }

    #[test]
    fn buffers_begin_at_a_block() {
        for len in [1, DIRECT_BLOCK, 3 * DIRECT_BLOCK + 7] {
            let mut buf = AlignedBuf::new(len);
            assert_eq!(buf.as_ptr().addr() % DIRECT_BLOCK, 0);
            assert_eq!(buf.len(), len);
            buf[len - 1] = 1;
            let mut moved = Box::new(buf);
            assert_eq!(moved.as_ptr().addr() % DIRECT_BLOCK, 0, "it moves whole");
            moved.truncate(len + 1);
            assert_eq!(moved.last(), Some(&1));
            moved.truncate(len / 2);
            assert_eq!(moved[..], vec![0; len / 2]);
        }
    }
}
