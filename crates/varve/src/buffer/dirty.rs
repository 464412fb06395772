//! Dirty frames ordered by their first change, without a lock on the path that dirties a page.
//!
//! The LSN axis is cut into buckets of 256 KiB; a ring of 4,096 heads holds one chain of frames (through
//! `Frame::dirty_next`) per bucket. A page that becomes dirty is pushed on the chain of its `first_change`
//! with one compare-and-swap. Only the **walker** takes frames out, whole chains at a time, under its mutex:
//! pushes never race with a removal in the middle, so there is no ABA problem.
//!
//! Invariants:
//! - **DQ-1** Every frame with a logged `first_change` is in exactly one chain (or in the walker's hands),
//!   and `Frame::queued` says so. The chain is that of its `first_change` or of an older one: `first_change`
//!   only moves up, and the walker moves such a frame when it meets it.
//! - **DQ-2** `Walker::base` is at most the bucket of every present and future `first_change`.
//! - **DQ-3** Clean frames may linger in a chain, and so may a frame that was used again for a page of an
//!   unlogged tablespace. The walker drops them: such a frame, left in a chain, would be in the wrong one
//!   when its next page is changed.
//!
//! DQ-1 across the race of "walker drops a clean frame" with "writer dirties it": the writer stores
//! `first_change`, then swaps `queued` to true and pushes if it was false; the walker swaps `queued` to
//! false, then reads `first_change` again. Both swaps are AcqRel on one variable, so one of them comes second
//! and sees what the other stored before: either the writer finds false and pushes, or the walker finds a
//! `first_change` and puts the frame back.
//!
//! DQ-2: a mini-transaction registers `first_change = start` before it marks `[start, end)` complete. So when
//! the caller of [`DirtyQueue::oldest`] read `complete` first, every change below it is registered, and later
//! ones start at or above it: the least of `complete` and of what the walk finds bounds everything that may
//! come.
//!
//! - **DQ-4** While pages are registered that lacked redo (pending.rs), `first_change` does not only move up:
//!   a frame that lingers in a chain may be used again for an older change, and DQ-1 does not hold. Until
//!   [`DirtyQueue::settle`] has put all frames in their chains, what `oldest` returns may be too new, and the
//!   caller's `complete` is below all these changes, so that DQ-2 holds.
//!
//! Pages of unlogged tablespaces are dirty but in no chain; the clock finds them.
//!
//! How many pages are dirty is counted where `first_change` becomes or ceases to be 0, once for each time
//! that a page is written; each kind by itself, since only logged pages are written for their age. Relaxed: a
//! statistic, and what the page cleaner's speed depends on.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

use crossbeam_utils::CachePadded;
use parking_lot::Mutex;

use super::arena::Frames;
use super::frame::{Frame, NIL, UNLOGGED_CHANGE};
use crate::base::Lsn;

const BUCKET_SHIFT: u32 = 18;
const BUCKETS: usize = 4096;

pub(super) struct DirtyQueue {
    heads: Box<[AtomicU32]>,
    walker: Mutex<Walker>,
    logged: CachePadded<AtomicU64>,
    unlogged: CachePadded<AtomicU64>,
}

struct Walker {
    /// Number of the oldest bucket that may hold frames (DQ-2).
    base: u64,
}

fn bucket_of(change: u64) -> u64 {
    change >> BUCKET_SHIFT
}

/// The frame's `first_change`; 0 if it is clean, or dirty in a way that concerns no checkpoint.
fn logged_change(f: &Frame) -> u64 {
    match f.first_change.load(Acquire) {
        UNLOGGED_CHANGE => 0,
        change => change,
    }
}

impl DirtyQueue {
    pub fn new() -> DirtyQueue {
        DirtyQueue {
            heads: (0..BUCKETS).map(|_| AtomicU32::new(NIL)).collect(),
            walker: Mutex::new(Walker { base: 0 }),
            logged: CachePadded::default(),
            unlogged: CachePadded::default(),
        }
    }

    /// How many pages are dirty, of logged tablespaces and of others.
    pub fn counts(&self) -> (u64, u64) {
        (self.logged.load(Relaxed), self.unlogged.load(Relaxed))
    }

    fn count_of(&self, change: u64) -> &AtomicU64 {
        match change {
            UNLOGGED_CHANGE => &self.unlogged,
            _ => &self.logged,
        }
    }

    /// A page is not dirty any more, or since another change only: `first_change` was `old` and is `new`.
    /// Under `dirty_mutex`.
    pub fn count_change(&self, old: u64, new: u64) {
        if old != 0 {
            self.count_of(old).fetch_sub(1, Relaxed);
        }
        if new != 0 {
            self.count_of(new).fetch_add(1, Relaxed);
        }
    }

    /// The page in `frame`, which the caller has latched exclusively, was changed from LSN `start` on.
    #[inline]
    pub fn register(&self, frames: &Frames, frame: u32, start: u64) {
        let f = &frames[frame as usize];
        // Nobody sets `copied` while the page is latched exclusively, and as long as it is not set nobody but
        // the latch's holder changes `first_change`. Acquire pairs with the Release of the thread that
        // cleared `copied` after changing it.
        if !f.copied.load(Acquire) && f.first_change.load(Relaxed) != 0 {
            return;
        }
        let became_dirty = f.with_dirty_state(|| {
            if f.copied.load(Relaxed) {
                if f.next_first_change.load(Relaxed) == 0 {
                    f.next_first_change.store(start, Relaxed);
                }
                return false;
            }
            let clean = f.first_change.load(Relaxed) == 0;
            if clean {
                f.first_change.store(start, Release);
                self.count_change(0, start);
            }
            clean
        });
        if became_dirty && start != UNLOGGED_CHANGE {
            self.enqueue(frames, frame, start);
        }
    }

    fn enqueue(&self, frames: &Frames, frame: u32, change: u64) {
        if !frames[frame as usize].queued.swap(true, AcqRel) {
            self.push_chain(frames, frame, frame, bucket_of(change));
        }
    }

    /// Puts a chain that the caller owns in front of a bucket's. Release: the walker's Acquire sees the
    /// links.
    fn push_chain(&self, frames: &Frames, first: u32, last: u32, bucket: u64) {
        let head = &self.heads[bucket as usize % BUCKETS];
        let mut old = head.load(Relaxed);
        loop {
            frames[last as usize].dirty_next.store(old, Relaxed);
            match head.compare_exchange_weak(old, first, Release, Relaxed) {
                Ok(_) => return,
                Err(now) => old = now,
            }
        }
    }

    /// Shows every dirty frame of bucket `n` to `visit`; drops clean ones, moves those that belong to later
    /// buckets.
    fn walk(&self, frames: &Frames, n: u64, mut visit: impl FnMut(u32, u64)) {
        let mut at = self.heads[n as usize % BUCKETS].swap(NIL, Acquire);
        let mut kept: Option<(u32, u32)> = None;
        while at != NIL {
            let f = &frames[at as usize];
            let next = f.dirty_next.load(Relaxed);
            let mut change = logged_change(f);
            if change == 0 {
                f.queued.swap(false, AcqRel);
                change = logged_change(f);
                if change != 0 {
                    self.enqueue(frames, at, change);
                }
            } else if bucket_of(change) % BUCKETS as u64 != n % BUCKETS as u64 {
                self.push_chain(frames, at, at, bucket_of(change));
            } else {
                let (first, last) = kept.unwrap_or((NIL, at));
                f.dirty_next.store(first, Relaxed);
                kept = Some((at, last));
            }
            if change != 0 {
                visit(at, change);
            }
            at = next;
        }
        if let Some((first, last)) = kept {
            self.push_chain(frames, first, last, n);
        }
    }

    /// The oldest `first_change` of all frames. `complete` is the redo log's, read before this call (DQ-2).
    pub fn oldest(&self, frames: &Frames, complete: Lsn) -> Option<Lsn> {
        let mut walker = self.walker.lock();
        let mut least = None;
        for n in walker.base..walker.base + BUCKETS as u64 {
            if self.heads[n as usize % BUCKETS].load(Acquire) == NIL {
                continue;
            }
            let mut settled = false;
            self.walk(frames, n, |_, change| {
                least = Some(least.map_or(change, |l: u64| l.min(change)));
                // Frames further on belong to later buckets than this one; but one that the ring wrapped
                // round to bucket n, or that was just moved on, does not settle it.
                settled |= bucket_of(change) <= n;
            });
            if settled {
                break;
            }
        }
        let bound = least.map_or(complete.0, |l| l.min(complete.0));
        walker.base = walker.base.max(bucket_of(bound));
        least.map(Lsn)
    }

    /// Puts every frame in the chain that it belongs to (DQ-4).
    pub fn settle(&self, frames: &Frames) {
        let walker = self.walker.lock();
        for n in walker.base..walker.base + BUCKETS as u64 {
            self.walk(frames, n, |_, change| {
                assert!(
                    bucket_of(change) >= walker.base,
                    "DQ-2: {change} is too old"
                );
            });
        }
    }

    /// Shows frames with `first_change` up to `up_to`, oldest first, until `visit` has had enough (false).
    pub fn visit_oldest(&self, frames: &Frames, up_to: Lsn, mut visit: impl FnMut(u32) -> bool) {
        let walker = self.walker.lock();
        let last = bucket_of(up_to.0).min(walker.base + BUCKETS as u64 - 1);
        let mut found = Vec::new();
        for n in walker.base..=last {
            if self.heads[n as usize % BUCKETS].load(Acquire) == NIL {
                continue;
            }
            found.clear();
            self.walk(frames, n, |frame, change| found.push((change, frame)));
            found.retain(|f| f.0 <= up_to.0);
            found.sort_unstable();
            if !found.iter().all(|f| visit(f.1)) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(n: usize) -> Frames {
        let frames = Frames::new(n).unwrap();
        frames.grow(n).unwrap();
        frames
    }

    fn clean(f: &Frame) {
        f.first_change.store(0, Relaxed);
    }

    #[test]
    fn finds_the_oldest_whatever_the_order_of_registration_and_cleaning() {
        const KIB: u64 = 1024;
        // Starts of changes (frame i gets the i-th), frames that are cleaned, then the oldest that is left.
        // Distances within a bucket, across buckets and once around the ring.
        for (starts, cleaned, want) in [
            (vec![8], vec![], Some(8)),
            (vec![900, 8, 70], vec![1], Some(70)),
            (vec![300 * KIB, 8, 700 * KIB], vec![1], Some(300 * KIB)),
            (
                vec![8, 2048 * 1024 * KIB, 40],
                vec![0, 2],
                Some(2048 * 1024 * KIB),
            ),
            (vec![8, 2048 * 1024 * KIB, 40], vec![], Some(8)),
            (vec![8, 16], vec![0, 1], None),
        ] {
            let frames = frames(starts.len());
            let queue = DirtyQueue::new();
            for (i, &s) in starts.iter().enumerate() {
                queue.register(&frames, i as u32, s);
            }
            let all = starts.iter().min().map(|&s| Lsn(s));
            assert_eq!(queue.oldest(&frames, Lsn(u64::MAX >> 1)), all, "{starts:?}");
            for &i in &cleaned {
                clean(&frames[i]);
            }
            for _ in 0..3 {
                let got = queue.oldest(&frames, Lsn(u64::MAX >> 1));
                assert_eq!(got, want.map(Lsn), "{starts:?} without {cleaned:?}");
            }
        }
    }

    #[test]
    fn a_frame_dirtied_again_while_still_chained_is_found() {
        let frames = frames(2);
        let queue = DirtyQueue::new();
        queue.register(&frames, 0, 100);
        clean(&frames[0]);
        queue.register(&frames, 0, 5 << 20);
        queue.register(&frames, 1, 4 << 20);
        assert_eq!(queue.oldest(&frames, Lsn(6 << 20)), Some(Lsn(4 << 20)));
        clean(&frames[1]);
        assert_eq!(queue.oldest(&frames, Lsn(6 << 20)), Some(Lsn(5 << 20)));
        let mut seen = vec![];
        queue.visit_oldest(&frames, Lsn(6 << 20), |f| {
            seen.push(f);
            true
        });
        assert_eq!(seen, [0]);
    }

    /// A frame changes hands while it lingers in a chain: from a logged page to an unlogged one and back. In
    /// between it is in no chain (DQ-3): its next first change may be older than whatever bucket it would be
    /// found in.
    #[test]
    fn a_frame_used_for_an_unlogged_page_leaves_its_chain() {
        let frames = frames(2);
        let queue = DirtyQueue::new();
        queue.register(&frames, 0, 100);
        clean(&frames[0]);
        queue.register(&frames, 0, UNLOGGED_CHANGE);
        assert_eq!(queue.oldest(&frames, Lsn(1000)), None);
        assert!(!frames[0].queued.load(Relaxed));
        clean(&frames[0]);
        queue.register(&frames, 0, 5 << 20);
        queue.register(&frames, 1, 6 << 20);
        assert_eq!(queue.oldest(&frames, Lsn(7 << 20)), Some(Lsn(5 << 20)));
    }

    /// DQ-4. A frame changes hands while it lingers in a chain, and gets an older change.
    #[test]
    fn a_frame_used_for_an_older_change_is_found_once_all_is_settled() {
        let frames = frames(3);
        let queue = DirtyQueue::new();
        queue.register(&frames, 0, 9 << 20);
        queue.register(&frames, 1, 7 << 20);
        clean(&frames[0]);
        queue.register(&frames, 0, 5 << 20);
        queue.register(&frames, 2, 6 << 20);
        queue.settle(&frames);
        assert_eq!(queue.oldest(&frames, Lsn(10 << 20)), Some(Lsn(5 << 20)));
        let mut seen = vec![];
        queue.visit_oldest(&frames, Lsn(10 << 20), |f| {
            seen.push(f);
            true
        });
        assert_eq!(seen, [0, 2, 1]);
    }

    /// DQ-1 and DQ-2 under concurrency: writers register ever later changes, cleaners clean, and the walker's
    /// answer must never pass a change that is registered and not cleaned.
    #[test]
    fn the_bound_never_passes_a_registered_change() {
        use std::sync::atomic::AtomicU64;
        const WRITERS: usize = 3;
        const PER: usize = 8;
        let frames = frames(WRITERS * PER);
        let queue = DirtyQueue::new();
        let next = AtomicU64::new(8);
        // What each writer is about to register: a change at or above this is not complete.
        let pending: Vec<AtomicU64> = (0..WRITERS).map(|_| AtomicU64::new(0)).collect();
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|s| {
            for w in 0..WRITERS {
                let (frames, queue, next, pending, stop) =
                    (&frames, &queue, &next, &pending, &stop);
                s.spawn(move || {
                    for round in 0..30_000usize {
                        let f = (w * PER + round % PER) as u32;
                        pending[w].store(next.load(SeqCst), SeqCst);
                        let start = next.fetch_add(50_000, SeqCst);
                        if frames[f as usize].first_change.load(Relaxed) != 0 {
                            clean(&frames[f as usize]);
                        }
                        queue.register(frames, f, start);
                        pending[w].store(u64::MAX, SeqCst);
                    }
                    stop.store(true, SeqCst);
                });
            }
            let mut walks = 0;
            while !stop.load(SeqCst) || walks < 100 {
                let mut complete = next.load(SeqCst);
                for p in &pending {
                    complete = complete.min(p.load(SeqCst));
                }
                // Frames that hold a change below `complete` now and still do after the walk were there all
                // along.
                let before: Vec<u64> = frames.iter().map(|f| f.first_change.load(SeqCst)).collect();
                let bound = queue
                    .oldest(&frames, Lsn(complete))
                    .map_or(u64::MAX, |l| l.0);
                for (f, &b) in frames.iter().zip(&before) {
                    if b != 0 && b < complete && f.first_change.load(SeqCst) == b {
                        assert!(bound <= b, "bound {bound} passed {b}");
                    }
                }
                walks += 1;
            }
        });
    }
}
