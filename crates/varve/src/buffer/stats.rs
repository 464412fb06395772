//! What the pool counts.

#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::BufferPool;
use crate::base::Counter;
use crate::page::{self, PageType};

#[derive(Default)]
pub(super) struct Counters {
    /// Hits that were told (touched.rs).
    pub hits: Counter,
    pub changes: Counter,
    pub writes: AtomicU64,
    pub creates: AtomicU64,
    pub damaged: AtomicU64,
    pub expanded: AtomicU64,
    pub evictions: AtomicU64,
    pub free_waits: AtomicU64,
    pub image_builds: AtomicU64,
    pub read_ahead: AtomicU64,
    pub read_ahead_evicted: AtomicU64,
    /// Frames that are being filled ahead. Relaxed: a bound that is passed by a few does no harm.
    pub ahead_under_way: AtomicU64,
    pub latch_waits: [WaitCounters; LatchClass::ALL.len()],
}

/// Waits for latches that were not to be had within a few tries, by what kind of page they are for. Who gets
/// a latch at once counts nothing and looks at no clock.
#[derive(Default)]
pub(super) struct WaitCounters {
    waits: AtomicU64,
    usec: AtomicU64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LatchClass {
    Leaf,
    Inner,
    Undo,
    Other,
}

impl LatchClass {
    const ALL: [LatchClass; 4] = [
        LatchClass::Leaf,
        LatchClass::Inner,
        LatchClass::Undo,
        LatchClass::Other,
    ];

    fn of(page: &[u8]) -> LatchClass {
        match page::page_type(page) {
            Some(PageType::Leaf) => LatchClass::Leaf,
            Some(PageType::Inner) => LatchClass::Inner,
            Some(kind) if kind.is_undo() => LatchClass::Undo,
            _ => LatchClass::Other,
        }
    }
}

/// Waits of a class that have ended.
#[derive(Clone, Copy, Debug, Default)]
pub struct LatchWaits {
    pub waits: u64,
    pub usec: u64,
}

/// What happened since the pool was made, and what it holds now.
#[derive(Clone, Copy, Debug, Default)]
pub struct PoolStats {
    /// What the setting says.
    pub frames: u64,
    /// More, which are there until they are empty (size.rs).
    pub leaving_frames: u64,
    /// Those of the setting that are for no page now (size.rs), and the others that have none.
    pub held_back_frames: u64,
    pub free_frames: u64,
    /// How often a page was latched that was in the pool. Each frame tells of its last few later.
    pub hits: u64,
    /// How often a mini-transaction has changed a page: once for each of its pages.
    pub changes: u64,
    /// Pages read from the store or created in the pool.
    pub loads: u64,
    /// Those that were created.
    pub creates: u64,
    /// How often a page was read that was not what had been written.
    pub damaged: u64,
    /// Pages read that were stored compressed.
    pub expanded: u64,
    pub writes: u64,
    pub evictions: u64,
    /// Times a thread had to wait for the page cleaner.
    pub free_waits: u64,
    pub image_builds: u64,
    /// Pages whose reading was begun before anybody needed them, and those of them that nobody used before
    /// others took their place.
    pub read_ahead: u64,
    pub read_ahead_evicted: u64,
    /// In the order of `LatchClass::ALL`.
    latch_waits: [LatchWaits; LatchClass::ALL.len()],
}

impl PoolStats {
    /// Frames with a page.
    pub fn pages_data(&self) -> u64 {
        let without_page = self.free_frames + self.held_back_frames;
        (self.frames + self.leaving_frames).saturating_sub(without_page)
    }

    /// Those of a class that have ended.
    pub fn latch_waits(&self, class: LatchClass) -> LatchWaits {
        self.latch_waits[class as usize]
    }
}

impl BufferPool {
    pub fn stats(&self) -> PoolStats {
        let c = &self.counters;
        PoolStats {
            frames: self.n_frames() as u64,
            leaving_frames: self.frames_leaving() as u64,
            held_back_frames: self.held_back_frames() as u64,
            free_frames: self.replacement.free_len() as u64,
            hits: c.hits.get(),
            changes: c.changes.get(),
            loads: self.replacement.loads(),
            creates: c.creates.load(Relaxed),
            damaged: c.damaged.load(Relaxed),
            expanded: c.expanded.load(Relaxed),
            writes: c.writes.load(Relaxed),
            evictions: c.evictions.load(Relaxed),
            free_waits: c.free_waits.load(Relaxed),
            image_builds: c.image_builds.load(Relaxed),
            read_ahead: c.read_ahead.load(Relaxed),
            read_ahead_evicted: c.read_ahead_evicted.load(Relaxed),
            latch_waits: LatchClass::ALL.map(|class| {
                let counted = &c.latch_waits[class as usize];
                LatchWaits {
                    waits: counted.waits.load(Relaxed),
                    usec: counted.usec.load(Relaxed),
                }
            }),
        }
    }

    /// The caller has the latch of the frame, in either mode.
    pub(super) fn count_latch_wait(&self, frame: u32, waited: Duration) {
        // SAFETY: it is latched, so nobody writes to the page.
        let page =
            unsafe { std::slice::from_raw_parts(self.arena.page_ptr(frame), self.page_size) };
        let counted = &self.counters.latch_waits[LatchClass::of(page) as usize];
        counted.waits.fetch_add(1, Relaxed);
        counted.usec.fetch_add(waited.as_micros() as u64, Relaxed);
    }
}
