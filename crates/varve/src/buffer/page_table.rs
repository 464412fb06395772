//! Which frame holds which page: a hash table of frame numbers, read without a lock.
//!
//! Buckets are heads of chains that run through `Frame::hash_next`. Chains change only under the bucket's
//! mutex; look-ups walk them without it. A walk may meet a frame that is being moved to another bucket and
//! end up in a foreign chain. Two things make that harmless:
//!
//! - **PT-1** A hit is only a guess: the caller latches or pins the frame and looks at its page id again
//!   (BUF-1).
//! - **PT-2** A miss is only a guess: before a page is loaded, the chain is walked again under the bucket's
//!   mutex ([`PageTable::insert`]), where it can't change. So a page is never in two frames.
//!
//! A walk that was led astray could meet moving frames for ever; it gives up after a bounded number of steps
//! and reports a miss, which PT-2 settles. A frame is unlinked before its page id changes, and linked after
//! the new one is set. Heads and links are stored with Release and loaded with Acquire, so that a thread that
//! finds a frame through a chain sees the page id that put it there or a newer one.

use std::sync::atomic::Ordering::*;

use crossbeam_utils::CachePadded;

use super::frame::{Frame, NIL};
use crate::base::PageId;
use crate::base::sync::{AtomicU32, Mutex, MutexGuard};

/// Chains hold one or two frames; a walk of this many steps has strayed.
const MAX_STEPS: usize = 64;

// In a model few, so that pages meet in them.
const STRIPES: usize = if cfg!(loom) { 1 } else { 256 };
const MIN_BUCKETS: usize = if cfg!(loom) { 2 } else { 64 };

pub(super) struct PageTable {
    heads: Box<[AtomicU32]>,
    /// Shift that leaves as many upper bits of the hash as there are buckets.
    shift: u32,
    /// A bucket's mutex is the stripe of its number.
    stripes: Box<[CachePadded<Mutex<()>>]>,
}

impl PageTable {
    pub fn new(frames: usize) -> PageTable {
        let buckets = match cfg!(loom) {
            true => MIN_BUCKETS,
            false => (frames * 2).next_power_of_two().max(MIN_BUCKETS),
        };
        PageTable {
            heads: (0..buckets).map(|_| AtomicU32::new(NIL)).collect(),
            shift: 64 - buckets.trailing_zeros(),
            stripes: (0..STRIPES).map(|_| Default::default()).collect(),
        }
    }

    /// Fibonacci hashing: consecutive pages of a tablespace go to well-spread buckets.
    #[inline]
    fn bucket(&self, id: PageId) -> usize {
        (id.to_u64().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize
    }

    fn stripe(&self, bucket: usize) -> MutexGuard<'_, ()> {
        self.stripes[bucket % STRIPES].lock()
    }

    /// The frame that probably holds `id`.
    #[inline]
    pub fn find(&self, frames: &[Frame], id: PageId) -> Option<u32> {
        let mut at = self.heads[self.bucket(id)].load(Acquire);
        for _ in 0..MAX_STEPS {
            let frame = frames.get(at as usize)?;
            if frame.holds(id) {
                return Some(at);
            }
            at = frame.hash_next.load(Acquire);
        }
        None
    }

    /// Links `frame`, which the caller has claimed and exclusively latched, as the one that holds `id`. False
    /// if another frame does already; then nothing changed.
    pub fn insert(&self, frames: &[Frame], frame: u32, id: PageId) -> bool {
        let bucket = self.bucket(id);
        let _guard = self.stripe(bucket);
        let head = self.heads[bucket].load(Relaxed);
        let mut at = head;
        while at != NIL {
            if frames[at as usize].holds(id) {
                return false;
            }
            at = frames[at as usize].hash_next.load(Relaxed);
        }
        let f = &frames[frame as usize];
        f.page.store(id.to_u64(), Release);
        f.hash_next.store(head, Release);
        self.heads[bucket].store(frame, Release);
        true
    }

    /// Takes `frame` out of the chain of `id` and clears its page id. The caller holds its exclusive latch.
    pub fn remove(&self, frames: &[Frame], frame: u32, id: PageId) {
        let bucket = self.bucket(id);
        let _guard = self.stripe(bucket);
        let mut link = &self.heads[bucket];
        loop {
            let at = link.load(Relaxed);
            assert!(at != NIL, "{id} is in a frame but not in the page table");
            let next = &frames[at as usize].hash_next;
            if at == frame {
                link.store(next.load(Relaxed), Release);
                break;
            }
            link = next;
        }
        // The frame keeps its own link: a walker that stands on it finds the rest of the chain.
        frames[frame as usize]
            .page
            .store(super::frame::NO_PAGE_ID, Release);
    }
}
