//! What the page cleaner needs: dirty pages by age or by disuse, copies to write, and the return of what was
//! written.
//!
//! A page goes through: **taken** (pinned, marked, so that nobody takes it twice or recycles its frame) →
//! **copied** (from here on changes register in `next_first_change`, because the copy may lack them) →
//! written and its file synced → **done** (`first_change := next_first_change`; the page is clean if nothing
//! changed it meanwhile). WAL-1 is the cleaner's: the log must be durable up to the LSN that copying returns
//! before the copy is written. WAL-2 is why `done` comes after the sync, not after the write.
//!
//! Shared latches only, one at a time and for a limited time, so that a thread that waits for a free frame
//! with latches held never waits for itself. A failed write gives the page back dirty as it was.

#![allow(unsafe_code)]

use std::sync::atomic::Ordering::*;
use std::time::Duration;

use super::BufferPool;
#[cfg(doc)]
use super::PageStore;
use super::frame::UNLOGGED_CHANGE;
use crate::base::{Lsn, PageId, Result, SpaceId};
use crate::page;

/// How long the cleaner waits for a page's latch before it leaves the page for the next time.
const LATCH_PATIENCE: Duration = Duration::from_millis(1);

/// A dirty page taken for writing. It must come back through [`BufferPool::write_done`] or
/// [`BufferPool::write_given_up`]; until then nobody else takes it and its frame stays.
#[must_use = "a taken page must be given back"]
#[derive(Debug)]
pub struct DirtyPage {
    frame: u32,
    pub page: PageId,
    /// When the page became dirty; `None` in an unlogged tablespace.
    pub first_change: Option<Lsn>,
}

impl BufferPool {
    /// Takes up to `max` dirty pages whose first change is at or below `up_to`, oldest first.
    pub fn take_oldest(&self, up_to: Lsn, max: usize, out: &mut Vec<DirtyPage>) {
        if max == 0 {
            return;
        }
        let full = out.len() + max;
        self.dirty.visit_oldest(&self.frames, up_to, |frame| {
            out.extend(self.take(frame));
            out.len() < full
        });
    }

    /// The frames of a tablespace's dirty pages whose first change is at or below `up_to`, oldest first. They
    /// may have other pages soon.
    pub fn dirty_frames_of(&self, space: SpaceId, up_to: Lsn) -> Vec<u32> {
        let mut found = Vec::new();
        self.dirty.visit_oldest(&self.frames, up_to, |frame| {
            if self.frames[frame as usize].page_id().space == space {
                found.push(frame);
            }
            true
        });
        found
    }

    /// Takes those of these frames' pages that are the tablespace's and dirty.
    pub fn take_from(&self, frames: &[u32], space: SpaceId, out: &mut Vec<DirtyPage>) {
        for taken in self.take_in(frames) {
            match taken.page.space == space {
                true => out.push(taken),
                false => self.write_given_up(taken),
            }
        }
    }

    /// Takes those of these frames' pages that are dirty.
    pub fn take_in(&self, frames: &[u32]) -> Vec<DirtyPage> {
        frames
            .iter()
            .filter_map(|frame| self.take(*frame))
            .collect()
    }

    /// Takes up to `max` dirty pages that would give way, if they were clean: newcomers, and those that the
    /// clock would free after so many rounds at most (0: next), looking `look_at` frames ahead.
    pub fn take_cold(&self, look_at: usize, rounds: u32, max: usize, out: &mut Vec<DirtyPage>) {
        let found = self
            .cold_dirty_ahead(look_at, rounds)
            .filter_map(|f| self.take(f));
        out.extend(found.take(max));
    }

    fn take(&self, frame: u32) -> Option<DirtyPage> {
        let f = &self.frames[frame as usize];
        if f.taken.load(Relaxed) || self.store.was_refused(f.page_id()) || !f.try_pin() {
            return None;
        }
        if f.taken.swap(true, AcqRel) {
            f.unpin();
            return None;
        }
        let change = f.first_change.load(Acquire);
        let taken = DirtyPage {
            frame,
            page: f.page_id(),
            first_change: (change != UNLOGGED_CHANGE).then_some(Lsn(change)),
        };
        if change == 0 {
            self.write_given_up(taken);
            return None;
        }
        Some(taken)
    }

    /// Copies the page, ready to be written with its checksum, and returns its page LSN: the log must be
    /// durable up to there before the write. `None` if the page's latch could not be had soon; give the page
    /// up then, as after an error of the store ([`PageStore::seal`]).
    pub fn copy_for_write(&self, taken: &DirtyPage, out: &mut [u8]) -> Result<Option<Lsn>> {
        let f = &self.frames[taken.frame as usize];
        if !f.latch.try_lock_shared_for(LATCH_PATIENCE) {
            return Ok(None);
        }
        // SAFETY: latched shared, so nobody writes there.
        let bytes =
            unsafe { std::slice::from_raw_parts(self.arena.page_ptr(taken.frame), self.page_size) };
        out.copy_from_slice(bytes);
        self.store.complete_copy(taken.page, out);
        f.with_dirty_state(|| f.copied.store(true, Relaxed));
        // SAFETY: latched above.
        unsafe { f.latch.unlock_shared() };
        let lsn = page::page_lsn(out);
        self.store.seal(taken.page, out)?;
        Ok(Some(lsn))
    }

    /// The copy is in the data file, which has been synced since.
    pub fn write_done(&self, taken: DirtyPage) {
        let f = &self.frames[taken.frame as usize];
        f.with_dirty_state(|| {
            debug_assert!(f.copied.load(Relaxed), "written without a copy");
            let next = f.next_first_change.load(Relaxed);
            let old = f.first_change.swap(next, Release);
            self.dirty.count_change(old, next);
            f.next_first_change.store(0, Relaxed);
            f.copied.store(false, Release);
        });
        self.counters.writes.fetch_add(1, Relaxed);
        self.put_back(taken);
    }

    /// The page was not written, or not all of it: it stays dirty since its first change.
    pub fn write_given_up(&self, taken: DirtyPage) {
        let f = &self.frames[taken.frame as usize];
        f.with_dirty_state(|| {
            f.next_first_change.store(0, Relaxed);
            f.copied.store(false, Release);
        });
        self.put_back(taken);
    }

    fn put_back(&self, taken: DirtyPage) {
        let f = &self.frames[taken.frame as usize];
        f.taken.store(false, Release);
        f.unpin();
        self.replacement.notify();
    }

    /// The oldest change that is not in a synced data page; `None` if every page is clean. `complete` is the
    /// redo log's `complete_lsn`, read before this call: that order is what makes the answer a safe
    /// checkpoint (WAL-2).
    pub fn min_first_change(&self, complete: Lsn) -> Option<Lsn> {
        self.dirty.oldest(&self.frames, complete)
    }

    /// Calls `wake` whenever a thread finds no clean frame, or frames without memory come near. Once per
    /// pool; must be quick and must not call the pool.
    pub fn set_cleaner_waker(&self, wake: impl Fn() + Send + Sync + 'static) {
        self.replacement.set_waker(Box::new(wake));
    }

    /// How many threads wait for a clean frame now.
    pub fn frames_wanted(&self) -> usize {
        self.replacement.waiting() as usize
    }

    pub fn free_frames(&self) -> usize {
        self.replacement.free_len()
    }

    /// How many pages are dirty; a statistic.
    #[cfg(test)]
    pub fn dirty_pages(&self) -> usize {
        let (logged, unlogged) = self.dirty.counts();
        (logged + unlogged) as usize
    }

    /// The same, by looking at every frame.
    #[cfg(test)]
    pub(super) fn count_dirty_frames(&self) -> usize {
        self.frames.iter().filter(|f| f.is_dirty()).count()
    }

    /// How many of them are of logged tablespaces: those that the checkpoint waits for.
    pub fn dirty_logged_pages(&self) -> usize {
        self.dirty.counts().0 as usize
    }

    /// How many pages have their first change at or below `up_to`, counted up to `most`; a statistic.
    pub fn dirty_pages_up_to(&self, up_to: Lsn, most: usize) -> usize {
        let mut n = 0;
        self.dirty.visit_oldest(&self.frames, up_to, |_| {
            n += 1;
            n < most
        });
        n
    }
}
