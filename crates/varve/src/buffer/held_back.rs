//! Frames that are held back: as long as recovery has redo in memory, the pool makes do with so many frames
//! less, so that both together take no more than the pool may.
//!
//! - **BUF-9** Frames from the limit on are held back. They are free as BUF-3 says, but on no list; nobody
//!   writes to them, and the system is not asked for their memory, so they have none. The limit falls once,
//!   before the first page comes into the pool, and not below half of the frames: those are always there for
//!   pages. From then on it only rises, and the thread that raises it puts the frames that it passes on the
//!   free list.
//!
//! Frames are used for the first time in their order, so those that are held back have never been used. To
//! all others they are as if they were not there: the clock goes round below the limit, and a thread that
//! finds no frame has pages written and waits, as always. What is held back follows the redo: whenever a page
//! was brought up to date, or its tablespace is gone, and at the end (pending.rs).

use std::sync::atomic::Ordering::*;

use super::BufferPool;

impl BufferPool {
    /// Holds back frames for so many bytes, but no more than half of them. No page has been in the pool yet.
    pub fn hold_back(&self, bytes: usize) {
        let all = self.frames.len();
        let limit = all - bytes.div_ceil(self.page_size).min(all / 2);
        self.replacement.lower_limit(all as u32, limit as u32);
    }

    /// Holds no more frames back than so many bytes take.
    pub(super) fn give_back(&self, bytes: usize) {
        let all = self.frames.len();
        let limit = all.saturating_sub(bytes.div_ceil(self.page_size)) as u32;
        if self.replacement.limit() < limit {
            self.replacement.raise_limit(limit);
        }
    }

    /// How many frames there are for pages.
    pub fn usable_frames(&self) -> usize {
        self.replacement.limit() as usize
    }

    pub fn held_back_frames(&self) -> usize {
        self.frames.len() - self.usable_frames()
    }
}

impl super::replace::Replacement {
    fn lower_limit(&self, all: u32, limit: u32) {
        assert_eq!(self.limit(), all, "BUF-9: it falls once");
        self.limit.store(limit, Relaxed);
        for frame in 0..all {
            let first = self.pop();
            assert_eq!(first, Some(frame), "BUF-9: no frame was used");
            if frame < limit {
                self.push(frame);
            }
        }
    }

    /// Several threads may: each frame is passed by one of them.
    fn raise_limit(&self, limit: u32) {
        let before = self.limit.fetch_max(limit, Relaxed);
        (before..limit).for_each(|frame| self.push(frame));
        self.notify();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::ops::Range;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    use super::super::mem_store::MemStore;
    use super::super::tests::{PAGE, id, raw_page, value};
    use super::*;
    use crate::base::{Lsn, PageId, Result, SpaceId};
    use crate::buffer::{Need, PendingRedo, PoolSettings};

    const FRAMES: usize = 2048;
    /// More than the pool has frames.
    const PAGES: u32 = 3000;

    /// Redo that changes nothing of any page.
    struct Redo(AtomicUsize);

    impl PendingRedo for Redo {
        fn need(&self, _: PageId) -> Need {
            Need::Stored
        }

        fn apply(&self, _: PageId, _: &mut [u8], _: &mut dyn FnMut(Lsn)) -> Result<()> {
            Ok(())
        }

        fn forget(&self, _: SpaceId) {
            self.0.store(0, Relaxed);
        }

        fn held_bytes(&self) -> usize {
            self.0.load(Relaxed)
        }
    }

    fn pool() -> BufferPool {
        let store = Arc::new(MemStore::default());
        (0..PAGES).for_each(|no| store.put(id(no), raw_page(id(no), 7)));
        let settings = PoolSettings {
            bytes: (FRAMES * PAGE) as u64,
            page_size: PAGE,
        };
        BufferPool::new(settings, store).unwrap()
    }

    fn load(pool: &BufferPool, pages: Range<u32>) {
        for no in pages {
            assert_eq!(value(&pool.shared(id(no)).unwrap(), id(no)), 7);
        }
    }

    /// The frames from this one on hold no page, and have no memory but what huge pages give them along with
    /// others.
    fn check_untouched(pool: &BufferPool, from: usize) {
        let held = || pool.frames[from..].iter();
        assert!(held().all(|frame| frame.page.load(Relaxed) == super::super::frame::NO_PAGE_ID));
        assert!(held().all(|frame| !frame.unpinned()), "BUF-3: claimed");
        let beyond = from + (2 << 20) / PAGE;
        assert!(beyond >= FRAMES || !pool.arena.has_memory(beyond..FRAMES));
    }

    /// BUF-9: pages make do with the other frames, and the system is asked for no more than those.
    #[test]
    fn frames_held_back_are_not_there_for_pages() {
        for (bytes, held) in [
            (0, 0),
            (1, 1),
            (100 * PAGE + 1, 101),
            (FRAMES / 2 * PAGE, FRAMES / 2),
            (10 * FRAMES * PAGE, FRAMES / 2),
        ] {
            let pool = pool();
            pool.hold_back(bytes);
            let usable = FRAMES - held;
            assert_eq!(
                (pool.held_back_frames(), pool.usable_frames()),
                (held, usable)
            );
            assert_eq!(pool.free_frames(), usable);
            for pages in [0..PAGES, 0..PAGES] {
                load(&pool, pages);
                pool.back_ahead();
            }
            check_untouched(&pool, usable);
            let resident = (0..PAGES).filter(|no| pool.is_resident(id(*no))).count();
            assert!(
                resident <= usable && resident > usable * 3 / 4,
                "{resident}"
            );
            // The clock goes round below the limit, and finds all of them unused before long.
            let rounds = (0..100).map(|_| pool.refill_free(FRAMES));
            assert_eq!(rounds.max(), Some(usable));
            pool.give_back(0);
            assert_eq!((pool.held_back_frames(), pool.free_frames()), (0, FRAMES));
        }
    }

    /// BUF-9: what is held back follows the redo, and comes back once.
    #[test]
    fn frames_come_back_as_the_redo_goes() {
        let pool = pool();
        let redo = Arc::new(Redo(AtomicUsize::new(FRAMES / 2 * PAGE)));
        pool.hold_back(redo.held_bytes());
        pool.set_pending(redo.clone());
        let mut next = 0;
        for held in [1024, 1000, 999, 10, 3, 3] {
            redo.0.store(held * PAGE - 1, Relaxed);
            load(&pool, next..next + 1);
            next += 1;
            assert_eq!(pool.held_back_frames(), held);
            assert_eq!(pool.free_frames() + next as usize, FRAMES - held);
            check_untouched(&pool, FRAMES - held);
        }
        pool.forget_pending(SpaceId(9));
        assert_eq!(pool.held_back_frames(), 0);
        pool.end_pending();
        assert_eq!(pool.free_frames() + next as usize, FRAMES);
        load(&pool, 0..PAGES);

        // The end has them all, whatever the redo says.
        let pool = self::pool();
        pool.hold_back(PAGE);
        pool.set_pending(Arc::new(Redo(AtomicUsize::new(PAGE))));
        pool.end_pending();
        assert_eq!((pool.held_back_frames(), pool.free_frames()), (0, FRAMES));
    }

    /// BUF-9: several threads at it give each frame back once; the free list has no room for one twice.
    #[test]
    fn frames_come_back_once() {
        for _ in 0..20 {
            let pool = pool();
            pool.hold_back(FRAMES / 2 * PAGE);
            std::thread::scope(|scope| {
                for thread in 0..3 {
                    let pool = &pool;
                    scope.spawn(move || {
                        let steps = (0..FRAMES / 2).rev().filter(|n| n % 3 != thread);
                        steps.for_each(|n| pool.give_back(n * PAGE));
                    });
                }
            });
            let mut frames: Vec<u32> = std::iter::from_fn(|| pool.pop_free()).collect();
            frames.sort_unstable();
            assert!(frames.into_iter().eq(0..FRAMES as u32));
        }
    }

    #[test]
    #[should_panic(expected = "BUF-9: no frame was used")]
    fn a_pool_with_pages_holds_nothing_back() {
        let pool = pool();
        load(&pool, 0..1);
        pool.hold_back(PAGE);
    }
}
