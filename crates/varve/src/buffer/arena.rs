//! The memory behind the pool: one arena of page-sized frames, and the frames' states in one array.
//!
//! Both have addresses for the largest pool that there may be, and memory for a part of it, from the
//! beginning on: so a pool that changes its size moves nothing. Addresses without memory cost nothing but
//! themselves.

#![allow(unsafe_code)]

use std::ops::{Deref, Range};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};

use parking_lot::Mutex;

use super::frame::Frame;
use crate::base::instruments::{MeasuredMemory, Memory};
use crate::base::{Error, Result};

/// A piece of the address space, a part of which can be used.
struct Reserved {
    base: NonNull<u8>,
    len: usize,
}

impl Reserved {
    fn new(len: usize) -> Result<Reserved> {
        let len = len.next_multiple_of(system_page());
        // SAFETY: an anonymous private mapping at no particular address; the result is checked.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(no_memory(len));
        }
        // SAFETY: the mapping that was just made. Only advice; a refusal changes nothing.
        unsafe { libc::madvise(base, len, libc::MADV_DONTDUMP) };
        let base = NonNull::new(base.cast()).expect("mmap does not map address 0");
        Ok(Reserved { base, len })
    }

    /// The first `len` bytes can be read and written from now on: what was not so before reads as zeros.
    fn open(&self, len: usize) -> Result<()> {
        assert!(len <= self.len);
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: inside the mapping; nobody is kept from what he could do before.
        let done = unsafe { libc::mprotect(self.base.as_ptr().cast(), len, access) };
        match done {
            0 => Ok(()),
            _ => Err(no_memory(len)),
        }
    }

    /// Has the system give huge pages (2 MiB on most machines) for the first `len` bytes where it can, or
    /// none: as far as they have not been used yet.
    fn advise(&self, len: usize, is_huge: bool) {
        let advice = match is_huge {
            true => libc::MADV_HUGEPAGE,
            false => libc::MADV_NOHUGEPAGE,
        };
        // SAFETY: inside the mapping. Only advice; a refusal changes nothing.
        unsafe { libc::madvise(self.base.as_ptr().cast(), len.min(self.len), advice) };
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`, unmapped once; who uses it borrows it.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// What mappings begin and end with, and the system gives memory in.
fn system_page() -> usize {
    // SAFETY: it asks for a number.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// How large a pool may become: the machine's memory in bytes. 0 if the system does not say, or has only so
/// many addresses for the process, which needs them for other things, too.
pub(super) fn most_bytes() -> u64 {
    let mut addresses = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: it fills in what it is given, and asks for a number.
    let pages = unsafe {
        libc::getrlimit(libc::RLIMIT_AS, &raw mut addresses);
        libc::sysconf(libc::_SC_PHYS_PAGES)
    };
    match addresses.rlim_cur == libc::RLIM_INFINITY {
        true => u64::try_from(pages)
            .unwrap_or(0)
            .saturating_mul(system_page() as u64),
        false => 0,
    }
}

fn no_memory(len: usize) -> Error {
    let why = std::io::Error::last_os_error();
    Error::NoSpace {
        what: format!("buffer pool: {len} bytes can't be mapped: {why}"),
    }
}

/// The states of all frames that there have ever been: a slice that grows at its end.
pub(super) struct Frames {
    room: Reserved,
    most: usize,
    /// Release when it grows, Acquire when it is read: who sees a frame sees it initialised.
    len: AtomicUsize,
}

impl Frames {
    /// None yet, and room for so many.
    pub fn new(most: usize) -> Result<Frames> {
        Ok(Frames {
            room: Reserved::new(most * size_of::<Frame>())?,
            most,
            len: AtomicUsize::new(0),
        })
    }

    /// Adds frames, until there are so many: by one thread at a time. They are as BUF-3 says.
    pub fn grow(&self, len: usize) -> Result<()> {
        self.room.open(len * size_of::<Frame>())?;
        for n in self.len()..len {
            let frame = Frame::new();
            frame.latch.lock_exclusive();
            // SAFETY: inside the mapping, which is aligned for anything, opened above; nobody looks at frames
            // from `len` on, and only this thread changes that.
            unsafe { self.room.base.cast::<Frame>().add(n).write(frame) };
        }
        self.len.store(len, Release);
        Ok(())
    }

    /// How many there can be.
    pub fn most(&self) -> usize {
        self.most
    }
}

impl Deref for Frames {
    type Target = [Frame];

    #[inline]
    fn deref(&self) -> &[Frame] {
        let len = self.len.load(Acquire);
        // SAFETY: so many were written before `len` said so, and none is ever moved.
        unsafe { std::slice::from_raw_parts(self.room.base.cast::<Frame>().as_ptr(), len) }
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        let len = *self.len.get_mut();
        // SAFETY: `&mut self`: nobody has a reference to a frame. The memory goes afterwards, without another
        // drop of them.
        unsafe {
            let frames =
                std::slice::from_raw_parts_mut(self.room.base.cast::<Frame>().as_ptr(), len);
            std::ptr::drop_in_place(frames);
        }
    }
}

/// All frames' page memory: page-aligned, huge pages where the system has them, returned to the system when
/// the pool is dropped or made smaller, left out of core dumps.
pub(super) struct Arena {
    room: Reserved,
    page_size: usize,
    /// Huge pages are wanted. Relaxed: a setting, made before the memory is used.
    is_huge: AtomicBool,
    measured: Mutex<MeasuredMemory>,
}

// SAFETY: the arena is plain memory; every access goes through a frame's latch (guards in guard.rs).
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}
// SAFETY: frames can be sent and shared, and `len` says which there are.
unsafe impl Send for Frames {}
// SAFETY: as above.
unsafe impl Sync for Frames {}

impl Arena {
    /// Addresses for so many frames, none of which can be used yet.
    pub fn new(most: usize, page_size: usize) -> Result<Arena> {
        Ok(Arena {
            room: Reserved::new(most * page_size)?,
            page_size,
            is_huge: AtomicBool::new(true),
            measured: Mutex::new(MeasuredMemory::new(Memory::BufferPool, 0)),
        })
    }

    /// The first `frames` can be used.
    pub fn grow(&self, frames: usize) -> Result<()> {
        let len = frames * self.page_size;
        self.room.open(len)?;
        self.room.advise(len, self.is_huge.load(Relaxed));
        Ok(())
    }

    /// Whether huge pages are wanted, of the memory that has not been used yet.
    pub fn set_huge(&self, is_huge: bool) {
        self.is_huge.store(is_huge, Relaxed);
        self.room.advise(self.room.len, is_huge);
    }

    /// The pool is to take the memory of so many frames: for those who watch.
    pub fn measure(&self, frames: usize) {
        self.measured.lock().resize(frames * self.page_size);
    }

    /// Start of a frame's page. A thread that reads or writes there holds the frame's latch.
    #[inline]
    pub fn page_ptr(&self, frame: u32) -> *mut u8 {
        let offset = frame as usize * self.page_size;
        debug_assert!(offset + self.page_size <= self.room.len);
        // SAFETY: inside the mapping.
        unsafe { self.room.base.as_ptr().add(offset) }
    }

    /// Where these frames' memory begins, and its length.
    fn part(&self, frames: Range<usize>) -> (*mut libc::c_void, usize) {
        let (start, len) = (frames.start * self.page_size, frames.len() * self.page_size);
        assert!(start + len <= self.room.len);
        // SAFETY: inside the mapping.
        let at = unsafe { self.room.base.as_ptr().add(start) };
        (at.cast(), len)
    }

    /// Has the system give memory to these frames now, rather than when each is first written to. What they
    /// hold stays. Only advice: a system that can't do it gives memory later.
    pub fn back(&self, frames: Range<usize>) {
        let (at, len) = self.part(frames);
        // SAFETY: inside the mapping. Pages that have memory keep it and its content, others read as zeros
        // before and after, so a thread that uses them meanwhile sees no difference.
        unsafe { libc::madvise(at, len, libc::MADV_POPULATE_WRITE) };
    }

    /// Gives the memory of frames that nobody uses back to the system, as far as it is whole pages of the
    /// system's. They can be used again, and hold zeros or what they held.
    pub fn release(&self, frames: Range<usize>) {
        let page = system_page();
        let start = (frames.start * self.page_size).next_multiple_of(page);
        let end = frames.end * self.page_size / page * page;
        assert!(end <= self.room.len);
        if start < end {
            // SAFETY: inside the mapping, and the caller has these frames: nobody else reads or writes there.
            unsafe {
                let at = self.room.base.as_ptr().add(start).cast();
                libc::madvise(at, end - start, libc::MADV_DONTNEED);
            }
        }
    }

    /// Whether any of these frames, which are whole pages of the system, has memory.
    #[cfg(all(test, not(loom)))]
    pub fn has_memory(&self, frames: Range<usize>) -> bool {
        let (at, len) = self.part(frames);
        let mut pages = vec![0u8; len / system_page() + 1];
        // SAFETY: inside the mapping, and there is a byte for each of the system's pages.
        let done = unsafe { libc::mincore(at, len, pages.as_mut_ptr().cast()) };
        assert_eq!(done, 0);
        pages.iter().any(|page| page & 1 != 0)
    }

    /// Has the processor fetch the lines of a slotted page that a search reads first: header and the middle
    /// of the slots of a page of some dozens of records. They are fetched at the same time, not one after the
    /// other.
    #[inline]
    pub fn prefetch(&self, frame: u32) {
        let page = self.page_ptr(frame);
        for offset in [0, 64, 192, 320, 448] {
            fetch_line(page.wrapping_add(offset));
        }
    }

    /// The same for a part that is going to be copied.
    #[inline]
    pub fn prefetch_part(&self, frame: u32, part: Range<usize>) {
        let page = self.page_ptr(frame);
        // From the start of a line: the part's last byte need not lie a whole line behind its first one's.
        for offset in (part.start & !63..part.end).step_by(64).take(8) {
            fetch_line(page.wrapping_add(offset));
        }
    }

    /// The same for so many bytes from the page's start.
    pub fn prefetch_start(&self, frame: u32, bytes: usize) {
        let page = self.page_ptr(frame);
        for offset in (0..bytes.min(self.page_size)).step_by(64) {
            fetch_line(page.wrapping_add(offset));
        }
    }

    /// The same for the line with the fences.
    #[inline]
    pub fn prefetch_fences(&self, frame: u32) {
        fetch_line(self.page_ptr(frame).wrapping_add(self.page_size - 64));
    }
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn fetch_line(at: *const u8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a hint to the processor, which reads nothing that the program sees and faults at no address.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
}

#[cfg(not(target_arch = "x86_64"))]
fn fetch_line(_: *const u8) {}
