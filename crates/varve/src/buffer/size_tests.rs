//! Frames that are held back, and pools that change their size.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::frame::NO_PAGE_ID;
use super::mem_store::MemStore;
use super::tests::{PAGE, change, clean, fill, id, raw_page, value};
use super::*;
use crate::base::{Lsn, SpaceId};
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
    assert!(held().all(|frame| frame.page.load(Relaxed) == NO_PAGE_ID));
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
    load(&pool, 0..FRAMES as u32);
    pool.hold_back(PAGE);
}

/// Empties frames that leave, as the page cleaner does, until none is left that can go. How many are left.
fn let_leave(pool: &BufferPool) -> usize {
    loop {
        let found = pool.withdraw_leaving(100, 20);
        let written = clean(pool, pool.take_in(&found.dirty));
        if found.gone + written == 0 && found.seen < 100 {
            return pool.frames_leaving();
        }
    }
}

/// BUF-9: each frame is withdrawn, on the free list, or holds a page that the table finds, and the last two
/// only below the limit.
fn check_all(pool: &BufferPool) {
    let mut free: Vec<u32> = std::iter::from_fn(|| pool.replacement.pop()).collect();
    free.sort_unstable();
    for (n, frame) in pool.frames.iter().enumerate() {
        let page = frame.page_id();
        let is_free = free.binary_search(&(n as u32)).is_ok();
        let holds = page.to_u64() != NO_PAGE_ID;
        let states = [is_free, holds, frame.is_withdrawn()];
        assert_eq!(
            states.iter().filter(|is| **is).count(),
            1,
            "{n}: {states:?}"
        );
        assert_eq!(frame.is_withdrawn(), n >= pool.usable_frames(), "{n}");
        if holds {
            assert_eq!(pool.table.find(&pool.frames, page), Some(n as u32));
        }
    }
    let n = free.len();
    free.dedup();
    assert_eq!(free.len(), n, "a frame is on the list twice");
    free.into_iter()
        .for_each(|frame| pool.replacement.push(frame));
}

fn resident(pool: &BufferPool) -> usize {
    (0..PAGES).filter(|no| pool.is_resident(id(*no))).count()
}

/// BUF-9: what is in the pool stays there when it grows, and more has room; also where the table of pages and
/// the queue of newcomers are replaced by larger ones.
#[test]
fn a_pool_grows() {
    let pool = pool();
    pool.set_frames(MIN_FRAMES).unwrap();
    assert_eq!(let_leave(&pool), 0);
    for frames in [100, 1000, 1001, FRAMES, 2 * FRAMES, 20 * FRAMES] {
        load(&pool, 0..PAGES);
        let before = resident(&pool);
        pool.set_frames(frames).unwrap();
        assert_eq!(resident(&pool), before);
        assert_eq!((pool.usable_frames(), pool.frames_leaving()), (frames, 0));
        load(&pool, 0..PAGES);
        assert!(resident(&pool) > frames.min(PAGES as usize) * 3 / 4);
        check_all(&pool);
    }
    assert_eq!(resident(&pool), PAGES as usize);
}

/// BUF-9: frames of a pool that is made smaller are emptied, whatever was in them, and give their memory
/// back.
#[test]
fn a_pool_shrinks() {
    let pool = Arc::new(pool());
    load(&pool, 0..FRAMES as u32);
    (0..FRAMES as u32)
        .step_by(3)
        .for_each(|no| change(&pool, no, 8));
    let pins: Vec<Pin> = [5, 1500, 2047].map(|no| pool.pin(id(no)).unwrap()).into();
    let leaving = pool.shared(id(1900)).unwrap();
    pool.set_frames(512).unwrap();
    assert_eq!(pool.usable_frames(), 512);
    let left = let_leave(&pool);
    assert!((1..=4).contains(&left), "{left}: those that are in use");
    drop(leaving);
    let left = let_leave(&pool);
    assert!((1..=3).contains(&left), "{left}: those that are pinned");
    assert!(pins.len() == 3 && [5, 1500, 2047].iter().all(|no| pool.is_resident(id(*no))));
    drop(pins);
    assert_eq!(let_leave(&pool), 0);
    check_all(&pool);
    check_untouched(&pool, 512);
    let kept = resident(&pool);
    assert!((500..=512).contains(&kept), "{kept}");
    load(&pool, 0..PAGES);
    check_all(&pool);
    // Those that left have to be read, and what was changed was written.
    for no in 0..FRAMES as u32 {
        let lsn = page::page_lsn(&pool.shared(id(no)).unwrap());
        assert_eq!(lsn, if no % 3 == 0 { Lsn(16) } else { Lsn(0) });
    }
    pool.set_frames(FRAMES).unwrap();
    load(&pool, 0..PAGES);
    check_all(&pool);
}

/// A size that is changed back before the frames have left: those that were not withdrawn keep their pages.
#[test]
fn a_pool_that_shrinks_grows_again() {
    let pool = pool();
    load(&pool, 0..FRAMES as u32);
    pool.set_frames(512).unwrap();
    let found = pool.withdraw_leaving(300, 1);
    assert_eq!((found.seen, found.gone, found.dirty.len()), (300, 300, 0));
    assert_eq!(pool.frames_leaving(), FRAMES - 512 - 300);
    pool.set_frames(1024).unwrap();
    assert_eq!(pool.frames_leaving(), 1024);
    pool.set_frames(FRAMES).unwrap();
    assert_eq!((resident(&pool), pool.free_frames()), (FRAMES - 300, 300));
    check_all(&pool);
}

#[test]
fn sizes_that_can_not_be_are_refused() {
    let pool = pool();
    let most = pool.most_frames();
    for frames in [
        0,
        MIN_FRAMES - 1,
        most + 1,
        most.next_multiple_of(4096) + 4096,
    ] {
        let refusal = pool.set_frames(frames).unwrap_err();
        assert!(
            refusal.to_string().contains("it can have from 64 to"),
            "{refusal}"
        );
    }
    assert_eq!(pool.usable_frames(), FRAMES);
}

/// BUF-9, with users: sizes change all the time, up and down, while threads read and change pages, and a
/// cleaner writes. Nothing is lost, and no frame.
#[test]
fn sizes_change_under_load() {
    const THREADS: u32 = 3;
    let pool = Arc::new(pool());
    let (stop, lsn) = (AtomicBool::new(false), AtomicU64::new(8));
    let work = |thread: u32| {
        let mut rng = SmallRng::seed_from_u64(u64::from(thread));
        let mut last = vec![7; PAGES as usize];
        while !stop.load(Relaxed) {
            // Each has pages of its own to change, and reads them all.
            let no = rng.random_range(0..PAGES);
            if no % THREADS != thread {
                value(&pool.shared(id(no)).unwrap(), id(no));
                continue;
            }
            let mut page = pool.exclusive(id(no)).unwrap();
            assert_eq!(value(&page, id(no)), last[no as usize], "{no}");
            last[no as usize] += 1;
            fill(page.bytes_mut(), last[no as usize]);
            page.changed(Lsn(lsn.fetch_add(8, Relaxed)));
        }
    };
    let cleaner = || {
        while !stop.load(Relaxed) {
            let mut taken = vec![];
            pool.take_oldest(Lsn(u64::MAX >> 1), 16, &mut taken);
            pool.take_cold(200, 0, 16, &mut taken);
            clean(&pool, taken);
            pool.refill_free(8);
            let found = pool.withdraw_leaving(500, 50);
            clean(&pool, pool.take_in(&found.dirty));
        }
    };
    std::thread::scope(|scope| {
        let (work, cleaner) = (&work, &cleaner);
        (0..THREADS).for_each(|thread| drop(scope.spawn(move || work(thread))));
        scope.spawn(cleaner);
        let mut rng = SmallRng::seed_from_u64(9);
        for _ in 0..200 {
            pool.set_frames(rng.random_range(MIN_FRAMES * 2..3 * FRAMES))
                .unwrap();
            std::thread::sleep(Duration::from_millis(rng.random_range(0..10)));
        }
        stop.store(true, Relaxed);
    });
    pool.set_frames(300).unwrap();
    assert_eq!(let_leave(&pool), 0);
    check_all(&pool);
}
