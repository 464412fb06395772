//! Why pages are written, and how many for each reason.

use std::sync::atomic::{AtomicU64, Ordering};

use super::pace::{ASYNC, Estimates, Sight};

/// Why pages are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The checkpoint is to keep pace with the redo log.
    Adaptive,
    /// The checkpoint age is above the asynchronous watermark.
    Async,
    /// It is above the synchronous one: writers are held up.
    Sync,
    /// Too much of the pool is dirty.
    MaxDirty,
    /// There is nothing else to do.
    Background,
    /// Others need the frames.
    Lru,
    /// Somebody waits for it: a shutdown, for example.
    Requested,
}

/// What was written for one cause. Relaxed throughout: they count, and nothing else depends on them.
#[derive(Debug, Default)]
pub struct CauseCounters {
    /// Batches.
    pub flushes: AtomicU64,
    /// Their pages.
    pub pages: AtomicU64,
    /// Pages of the last batch.
    pub last: AtomicU64,
}

impl CauseCounters {
    pub(super) fn flushed(&self, pages: usize) {
        count(&self.flushes, 1);
        self.last.store(pages as u64, Ordering::Relaxed);
    }
}

/// Pages written per cause, what else happened, and what the page cleaner last made of it.
#[derive(Debug, Default)]
pub struct FlushCounters {
    pub adaptive: CauseCounters,
    pub async_: CauseCounters,
    pub sync: CauseCounters,
    pub max_dirty: CauseCounters,
    pub background: CauseCounters,
    pub lru: CauseCounters,
    pub requested: CauseCounters,
    /// Batches that went to the doublewrite file, and their pages there.
    pub doublewrite_batches: AtomicU64,
    pub doublewrite_pages: AtomicU64,
    /// All that was written there, and what was written to tablespaces.
    pub doublewrite_bytes: AtomicU64,
    pub place_bytes: AtomicU64,
    /// Syncs of tablespaces, and how long batches waited for theirs.
    pub space_syncs: AtomicU64,
    pub space_syncs_usec: AtomicU64,
    /// Pages whose latch was busy, left for the next time.
    pub skipped_pages: AtomicU64,
    /// Pages whose file could not be opened, or which have no room on the disk, left for later.
    pub refused_pages: AtomicU64,
    pub checkpoints: AtomicU64,
    /// What the cleaner's speed was decided by last; see `pace`.
    pub redo_rate: AtomicU64,
    pub lru_rate: AtomicU64,
    pub pages_by_formula: AtomicU64,
    pub pages_by_age: AtomicU64,
    pub pages_wanted: AtomicU64,
    /// Of the asynchronous watermark.
    pub pct_for_age: AtomicU64,
    /// Of the pool.
    pub pct_for_dirty: AtomicU64,
}

impl FlushCounters {
    pub(super) fn of(&self, cause: Cause) -> &CauseCounters {
        match cause {
            Cause::Adaptive => &self.adaptive,
            Cause::Async => &self.async_,
            Cause::Sync => &self.sync,
            Cause::MaxDirty => &self.max_dirty,
            Cause::Background => &self.background,
            Cause::Lru => &self.lru,
            Cause::Requested => &self.requested,
        }
    }

    pub(super) fn tell(&self, sight: &Sight, e: &Estimates) {
        let told = [
            (&self.redo_rate, e.redo_rate),
            (&self.lru_rate, e.lru_rate),
            (&self.pages_by_formula, e.by_formula),
            (&self.pages_by_age, e.by_age),
            (&self.pages_wanted, e.wanted),
            (&self.pct_for_age, 100.0 * sight.age() / ASYNC),
            (&self.pct_for_dirty, sight.dirty_pct()),
        ];
        for (to, value) in told {
            to.store(value.round() as u64, Ordering::Relaxed);
        }
    }

    pub(super) fn pages(&self, cause: Cause) -> &AtomicU64 {
        &self.of(cause).pages
    }
}

pub(super) fn count(counter: &AtomicU64, n: usize) {
    counter.fetch_add(n as u64, Ordering::Relaxed);
}
