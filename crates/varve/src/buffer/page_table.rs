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
//!
//! **When the pool grows** the heads are replaced by more of them, and every chain is made anew, under all
//! buckets' mutexes. Walks go on meanwhile: they end up in foreign chains, or at heads that are not used any
//! more, whose chains nobody looks after. PT-1 and PT-2 say why that does no harm: whoever has a bucket's
//! mutex sees the heads that count, as they are replaced under it.

use std::sync::atomic::Ordering::*;

use crossbeam_utils::CachePadded;

use super::arena::Frames;
use super::frame::{Frame, NIL, NO_PAGE_ID};
use super::grown::Grown;
use crate::base::PageId;
use crate::base::sync::{AtomicU32, Mutex, MutexGuard};

/// Chains hold one or two frames; a walk of this many steps has strayed.
const MAX_STEPS: usize = 64;

// In a model few, so that pages meet in them.
const STRIPE_BITS: u32 = if cfg!(loom) { 0 } else { 8 };
const MIN_BUCKETS: usize = if cfg!(loom) { 2 } else { 1 << STRIPE_BITS };

pub(super) struct PageTable {
    heads: Grown<CachePadded<Heads>>,
    /// A bucket's mutex is that of the upper bits of its number, which are the same in every table.
    stripes: Box<[CachePadded<Mutex<()>>]>,
}

struct Heads {
    heads: Box<[AtomicU32]>,
    /// Shift that leaves as many upper bits of the hash as there are buckets.
    shift: u32,
}

impl Heads {
    fn new(frames: usize) -> Heads {
        let buckets = match cfg!(loom) {
            true => MIN_BUCKETS,
            false => (frames * 2).next_power_of_two().max(MIN_BUCKETS),
        };
        Heads {
            heads: (0..buckets).map(|_| AtomicU32::new(NIL)).collect(),
            shift: 64 - buckets.trailing_zeros(),
        }
    }

    #[inline]
    fn of(&self, hash: u64) -> &AtomicU32 {
        &self.heads[(hash >> self.shift) as usize]
    }
}

/// Fibonacci hashing: consecutive pages of a tablespace go to well-spread buckets.
#[inline]
fn hash(id: PageId) -> u64 {
    id.to_u64().wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl PageTable {
    pub fn new(frames: usize) -> PageTable {
        PageTable {
            heads: Grown::new(CachePadded::new(Heads::new(frames))),
            stripes: (0..1 << STRIPE_BITS).map(|_| Default::default()).collect(),
        }
    }

    fn stripe(&self, hash: u64) -> MutexGuard<'_, ()> {
        self.stripes[(hash >> 32 >> (32 - STRIPE_BITS)) as usize].lock()
    }

    /// The pool has so many frames now, all of them. By one thread at a time.
    pub fn grow(&self, frames: &[Frame]) {
        let next = Heads::new(frames.len());
        if next.heads.len() <= self.heads.heads.len() {
            return;
        }
        let _all: Vec<_> = self.stripes.iter().map(|stripe| stripe.lock()).collect();
        // Pages come and go under a mutex only, so a frame that names one is in a chain.
        for (at, frame) in frames.iter().enumerate() {
            let page = frame.page.load(Relaxed);
            if page != NO_PAGE_ID {
                let head = next.of(hash(PageId::from_u64(page)));
                frame.hash_next.store(head.load(Relaxed), Release);
                head.store(at as u32, Release);
            }
        }
        self.heads.replace(CachePadded::new(next));
    }

    /// The frame that probably holds `id`.
    #[inline]
    pub fn find(&self, frames: &[Frame], id: PageId) -> Option<u32> {
        let mut at = self.heads.of(hash(id)).load(Acquire);
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
    pub fn insert(&self, frames: &Frames, frame: u32, id: PageId) -> bool {
        let hash = hash(id);
        let _guard = self.stripe(hash);
        let link = self.heads.of(hash);
        let head = link.load(Relaxed);
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
        link.store(frame, Release);
        true
    }

    /// Takes `frame` out of the chain of `id` and clears its page id. The caller holds its exclusive latch.
    pub fn remove(&self, frames: &Frames, frame: u32, id: PageId) {
        let hash = hash(id);
        let _guard = self.stripe(hash);
        let mut link = self.heads.of(hash);
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
        frames[frame as usize].page.store(NO_PAGE_ID, Release);
    }
}
