//! [`MappedBlock`]: memory that is the system's again as soon as it is dropped.
//!
//! For much memory in small blocks that are filled at about the same time and dropped one by one, in another
//! order: an allocator keeps what is dropped for itself until everything around it is free, too. Blocks are
//! cut one after the other out of anonymous mappings, and a mapping goes with the last of its blocks.
//!
//! - **IO-8** A byte of a mapping belongs to one block at most, and is read and written through that block
//!   only. When the block is dropped the system takes back the pages that are the block's alone, so blocks of
//!   less than a page stay until their mapping goes.

#![allow(unsafe_code)]

use std::ops::{Deref, Range};
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

use super::DIRECT_BLOCK;
use crate::base::{Error, Result};

/// Of a mapping, unless a single block is longer. The system gives memory to what is written to, so what is
/// not cut costs nothing.
const MAPPING_BYTES: usize = 4 << 20;

/// An anonymous mapping. Zero at first.
struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: plain memory; a thread that reads or writes a part of it has the block that it belongs to (IO-8).
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(len: usize) -> Result<Mapping> {
        // SAFETY: an anonymous private mapping at no particular address; the result is checked.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            let why = std::io::Error::last_os_error();
            return Err(Error::NoSpace {
                what: format!("{len} bytes of memory can't be mapped: {why}"),
            });
        }
        let base = NonNull::new(base.cast()).expect("mmap does not map address 0");
        Ok(Mapping { base, len })
    }

    /// Start of a part.
    fn at(&self, part: &Range<usize>) -> *mut u8 {
        assert!(part.start <= part.end && part.end <= self.len, "IO-8");
        // SAFETY: inside the mapping.
        unsafe { self.base.as_ptr().add(part.start) }
    }

    /// Gives the pages that lie in this part as a whole back to the system. Only advice: they go with the
    /// mapping at the latest. Nobody uses the part any more.
    fn give_back(&self, part: Range<usize>) {
        let page = system_page_bytes();
        let whole = part.start.next_multiple_of(page)..part.end - part.end % page;
        if whole.start < whole.end {
            // SAFETY: inside the mapping, which begins at a page; nobody reads there any more, who would see
            // zeros.
            unsafe { libc::madvise(self.at(&whole).cast(), whole.len(), libc::MADV_DONTNEED) };
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`, unmapped once; blocks keep it, so none is left.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

fn system_page_bytes() -> usize {
    static BYTES: OnceLock<usize> = OnceLock::new();
    *BYTES.get_or_init(|| {
        // SAFETY: asks for a constant.
        let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        usize::try_from(bytes).expect("the system has pages")
    })
}

/// Where blocks are cut from.
#[derive(Default)]
pub struct MappedBlocks {
    mapping: Option<Arc<Mapping>>,
    /// Bytes of the mapping that are cut.
    cut: usize,
}

impl MappedBlocks {
    /// An empty block of so many bytes. If it is longer than [`DIRECT_BLOCK`], of so many more that the next
    /// one begins at a page, too.
    ///
    /// # Errors
    ///
    /// `NoSpace`: the system has no memory.
    pub fn cut(&mut self, len: usize) -> Result<MappedBlock> {
        let len = match len < DIRECT_BLOCK {
            true => len,
            false => len.next_multiple_of(DIRECT_BLOCK),
        };
        let mapping = match self.mapping.take().filter(|m| m.len - self.cut >= len) {
            Some(mapping) => mapping,
            None => {
                self.cut = 0;
                Arc::new(Mapping::new(len.max(MAPPING_BYTES))?)
            }
        };
        let at = self.cut..self.cut + len;
        self.cut = at.end;
        self.mapping = Some(mapping.clone());
        Ok(MappedBlock {
            mapping,
            at,
            len: 0,
        })
    }
}

/// Bytes of which there may be a fixed number.
pub struct MappedBlock {
    mapping: Arc<Mapping>,
    at: Range<usize>,
    /// How many there are.
    len: usize,
}

impl MappedBlock {
    pub fn capacity(&self) -> usize {
        self.at.len()
    }

    /// How many more may come.
    pub fn room(&self) -> usize {
        self.capacity() - self.len
    }

    /// Puts these behind those that are there. There is room for them.
    pub fn push(&mut self, bytes: &[u8]) {
        assert!(bytes.len() <= self.room(), "there is no room");
        let behind = self.at.start + self.len;
        let to = self.mapping.at(&(behind..behind + bytes.len()));
        // SAFETY: a part of this block, of which `&mut self` is the only user (IO-8); `bytes` is not there,
        // or it would borrow the block.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        self.len += bytes.len();
    }

    pub fn clear(&mut self) {
        self.len = 0;
    }
}

impl Deref for MappedBlock {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let there = self.at.start..self.at.start + self.len;
        // SAFETY: a part of this block (IO-8), which nobody writes to as long as it is borrowed. A mapping's
        // bytes have values from the beginning.
        unsafe { std::slice::from_raw_parts(self.mapping.at(&there), self.len) }
    }
}

impl Drop for MappedBlock {
    fn drop(&mut self) {
        self.mapping.give_back(self.at.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// IO-8: whatever else is cut and dropped, a block has what was put in it, of all lengths and in several
    /// mappings.
    #[test]
    fn blocks_keep_to_themselves() {
        let mut blocks = MappedBlocks::default();
        let lens = [1000, 4096, 3000, 10_000, 65_536, MAPPING_BYTES + 1, 4096, 1];
        let mut all = Vec::new();
        for n in 0..400 {
            let mut block = blocks.cut(lens[n % lens.len()]).unwrap();
            assert!(block.is_empty() && block.room() >= lens[n % lens.len()]);
            let half = vec![n as u8; block.capacity() / 2];
            block.push(&half);
            block.push(&half);
            all.push((n, block));
        }
        all.retain(|(n, _)| n % 3 != 1);
        for (n, block) in &all {
            assert_eq!(block.len(), block.capacity() / 2 * 2);
            assert!(block.iter().all(|b| *b == *n as u8), "block {n}");
        }
        let (n, block) = &mut all[5];
        block.clear();
        block.push(&[3; 900]);
        assert_eq!(block[..], [3; 900], "block {n}");
    }

    /// Memory of this process in these blocks' mapping, in pages.
    fn resident(mapping: &Mapping) -> usize {
        let mut pages = vec![0u8; mapping.len / system_page_bytes()];
        // SAFETY: a whole mapping, and a byte for each of its pages.
        let done = unsafe {
            libc::mincore(
                mapping.base.as_ptr().cast(),
                mapping.len,
                pages.as_mut_ptr().cast(),
            )
        };
        assert_eq!(done, 0);
        pages.iter().filter(|page| **page & 1 != 0).count()
    }

    /// IO-8: memory comes when a block is written to and goes with it, in any order.
    #[test]
    fn the_system_has_the_memory_of_what_was_dropped() {
        const PAGES: usize = 4;
        let len = PAGES * system_page_bytes();
        let mut blocks = MappedBlocks::default();
        let mut all: Vec<_> = (0..50).map(|_| blocks.cut(len).unwrap()).collect();
        let mapping = all[0].mapping.clone();
        assert_eq!(resident(&mapping), 0);
        all.iter_mut().for_each(|block| block.push(&vec![1; len]));
        assert_eq!(resident(&mapping), 50 * PAGES);
        let mut n = 0;
        all.retain(|_| {
            n += 1;
            n % 5 == 0
        });
        assert_eq!(resident(&mapping), 10 * PAGES);
    }
}
