//! The pool under load: a store in memory, a cleaner as small as one can be, and pages whose content proves
//! itself.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};

use super::mem_store::MemStore;
use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::base::{Lsn, NO_PAGE, PageNo};
use crate::page::{PAGE_HEADER, PageOp, seal, set_page_lsn};

pub(super) const PAGE: usize = 4096;
const SPACE: SpaceId = SpaceId(5);

pub(super) fn id(no: u32) -> PageId {
    PageId::new(SPACE, PageNo(no))
}

/// Body words of a test page, all the same.
pub(super) fn fill(page: &mut [u8], value: u64) {
    for w in page[PAGE_HEADER..].chunks_exact_mut(8) {
        w.copy_from_slice(&value.to_le_bytes());
    }
}

/// The value of a test page; panics if it is torn or another page.
pub(super) fn value(page: &[u8], id: PageId) -> u64 {
    assert_eq!(page::page_id(page), id);
    let words: Vec<u64> = page[PAGE_HEADER..]
        .chunks_exact(8)
        .map(|w| u64::from_le_bytes(w.try_into().unwrap()))
        .collect();
    assert!(words.iter().all(|w| *w == words[0]), "{id} is torn");
    words[0]
}

pub(super) fn raw_page(id: PageId, content: u64) -> Vec<u8> {
    let mut page = vec![0; PAGE];
    let ptype = PageType::Raw;
    PageOp::FormatRaw { ptype }.apply(&mut page, id).unwrap();
    fill(&mut page, content);
    seal(&mut page);
    page
}

pub(super) fn pool_of(frames: usize, pages: u32) -> (Arc<BufferPool>, Arc<MemStore>) {
    let store = Arc::new(MemStore::default());
    for no in 0..pages {
        store.pages.lock().insert(id(no), raw_page(id(no), 0));
    }
    let settings = PoolSettings {
        bytes: (frames * PAGE) as u64,
        page_size: PAGE,
    };
    let pool = BufferPool::new(settings, store.clone()).unwrap();
    (Arc::new(pool), store)
}

/// Writes what `take` yields; returns how many pages that were.
pub(super) fn clean(pool: &BufferPool, taken: Vec<DirtyPage>) -> usize {
    let mut buf = vec![0; PAGE];
    let mut written = 0;
    for page in taken {
        match pool.copy_for_write(&page, &mut buf).unwrap() {
            Some(_) => {
                pool.store().write(page.page, &buf).unwrap();
                pool.write_done(page);
                written += 1;
            }
            None => pool.write_given_up(page),
        }
    }
    written
}

pub(super) fn change(pool: &BufferPool, no: u32, lsn: u64) {
    let mut page = pool.exclusive(id(no)).unwrap();
    set_page_lsn(page.bytes_mut(), Lsn(lsn + 8));
    page.changed(Lsn(lsn));
}

fn clean_all(pool: &BufferPool) {
    let mut taken = vec![];
    pool.take_oldest(Lsn(u64::MAX >> 1), usize::MAX >> 1, &mut taken);
    clean(pool, taken);
}

/// Runs `work` on `threads` threads beside a cleaner.
fn with_cleaner(pool: &BufferPool, threads: usize, work: impl Fn(usize) + Sync) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| {
            let mut turn = 0;
            while !stop.load(Acquire) {
                let mut taken = vec![];
                match turn % 3 {
                    0 => pool.take_oldest(Lsn(u64::MAX >> 1), 8, &mut taken),
                    1 => pool.take_cold(pool.usable_frames(), 0, 8, &mut taken),
                    _ => drop(pool.refill_free(4)),
                }
                clean(pool, taken);
                turn += 1;
                std::thread::yield_now();
            }
        });
        let workers: Vec<_> = (0..threads)
            .map(|t| {
                let work = &work;
                s.spawn(move || work(t))
            })
            .collect();
        let outcomes: Vec<_> = workers.into_iter().map(|w| w.join()).collect();
        stop.store(true, Release);
        for o in outcomes {
            o.unwrap();
        }
    });
}

/// The cleaner is asked for memory before it is needed, once at a time.
#[test]
fn memory_is_asked_for_ahead_of_use() {
    let (pool, _) = pool_of(320, 320);
    let asked = Arc::new(AtomicU32::new(0));
    let count = asked.clone();
    pool.set_cleaner_waker(move || {
        count.fetch_add(1, Relaxed);
    });
    let backed = || pool.replacement.backing.until.load(Relaxed);
    let touch = |range: std::ops::Range<u32>| {
        range.for_each(|no| drop(pool.exclusive(id(no)).expect("a page")));
    };
    pool.back_ahead();
    assert_eq!((backed(), asked.load(Relaxed)), (20, 0), "a sixteenth");
    touch(0..10);
    assert_eq!(asked.load(Relaxed), 0, "enough is left");
    touch(10..15);
    assert_eq!(asked.load(Relaxed), 1, "asked once");
    pool.back_ahead();
    assert_eq!(backed(), 35, "a sixteenth beyond what is used");
    for no in 0..15 {
        assert_eq!(value(&pool.shared(id(no)).unwrap(), id(no)), 0);
    }
    // A cleaner that comes late, and a pool that is used up.
    touch(15..320);
    assert_eq!(asked.load(Relaxed), 2, "not once for each frame");
    pool.back_ahead();
    assert_eq!(backed(), 320, "all there is");
}

/// Each latching of a page that is in the pool counts. What its frame has not told yet comes when the page
/// goes.
#[test]
fn hits_are_counted() {
    let (pool, _) = pool_of(64, 1000);
    (0..1000).for_each(|_| drop(pool.shared(id(0)).unwrap()));
    drop(pool.exclusive(id(0)).unwrap());
    assert!(pool.try_shared(id(0)).unwrap().is_some());
    // The first one was a load.
    let told = pool.stats().hits;
    assert!((986..=1001).contains(&told), "{told}");
    (100..1000).for_each(|no| drop(pool.shared(id(no)).unwrap()));
    assert!(!pool.is_resident(id(0)));
    assert_eq!(pool.stats().hits, 1001);
}

/// The cleaner is told once that free frames get scarce, and again when it has seen to it.
#[test]
fn free_frames_are_asked_for_ahead_of_demand() {
    let (pool, _) = pool_of(320, 500);
    let told = Arc::new(AtomicU32::new(0));
    let count = told.clone();
    let touch = |range: std::ops::Range<u32>| {
        range.for_each(|no| drop(pool.shared(id(no)).expect("a page")));
    };
    touch(0..300);
    pool.back_ahead();
    pool.set_cleaner_waker(move || {
        count.fetch_add(1, Relaxed);
    });
    assert!(pool.refill_free(40) >= 40);
    let spare = pool.free_frames() as u32 - 20;
    touch(300..300 + spare);
    assert_eq!((pool.free_frames(), told.load(Relaxed)), (20, 0));
    touch(300 + spare..315 + spare);
    assert_eq!(told.load(Relaxed), 1, "once");
    assert!(pool.refill_free(40) >= 40);
    touch(400..435);
    assert_eq!(told.load(Relaxed), 2, "again");
}

/// BUF-4: more pages than frames, more threads than cores: every increment must survive eviction, reload and
/// cleaning, and no reader may see a torn or foreign page.
#[test]
fn changes_survive_a_tiny_pool() {
    const PAGES: u32 = 300;
    let (pool, store) = pool_of(MIN_FRAMES, PAGES);
    let expected: Vec<AtomicU64> = (0..PAGES).map(|_| AtomicU64::new(0)).collect();
    let lsn = AtomicU64::new(8);
    let seed = rand::random::<u64>();
    println!("seed {seed}");
    with_cleaner(&pool, 6, |t| {
        let mut rng = SmallRng::seed_from_u64(seed ^ t as u64);
        for _ in 0..4000 {
            // Half of the accesses go to few pages, so that threads meet on latches.
            let no = if rng.random() {
                rng.random_range(0..PAGES)
            } else {
                rng.random_range(0..4)
            };
            if rng.random_range(0..3) > 0 {
                value(&pool.shared(id(no)).unwrap(), id(no));
                continue;
            }
            let mut page = pool.exclusive(id(no)).unwrap();
            let v = value(&page, id(no)) + 1;
            let start = lsn.fetch_add(8, Relaxed);
            set_page_lsn(page.bytes_mut(), Lsn(start + 8));
            fill(page.bytes_mut(), v);
            page.changed(Lsn(start));
            expected[no as usize].fetch_add(1, Relaxed);
        }
    });
    assert!(pool.stats().evictions > 1000, "{:?}", pool.stats());
    assert_eq!(pool.dirty_pages(), pool.count_dirty_frames());
    clean_all(&pool);
    assert_eq!((pool.dirty_pages(), pool.count_dirty_frames()), (0, 0));
    assert_eq!(pool.min_first_change(Lsn(lsn.load(Relaxed))), None);
    for no in 0..PAGES {
        let want = expected[no as usize].load(Relaxed);
        assert_eq!(value(&pool.shared(id(no)).unwrap(), id(no)), want);
        assert_eq!(value(&store.pages.lock()[&id(no)], id(no)), want);
    }
}

/// Readers that load one missing page at the same time cause one read.
#[test]
fn concurrent_misses_of_a_page_read_it_once() {
    let (pool, store) = pool_of(MIN_FRAMES, 40);
    for no in 0..40 {
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| value(&pool.shared(id(no)).unwrap(), id(no)));
            }
        });
    }
    assert_eq!(store.reads.load(Relaxed), 40);
}

/// A damaged page is an error for each reader, costs no frame, and can be read once it is repaired.
#[test]
fn failed_loads_leave_nothing_behind() {
    let (pool, store) = pool_of(MIN_FRAMES, 2);
    let good = raw_page(id(1), 7);
    let mut bad = good.clone();
    bad[200] ^= 1;
    store.pages.lock().insert(id(1), bad);
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                for _ in 0..5 * MIN_FRAMES {
                    let e = pool.shared(id(1)).map(drop).unwrap_err();
                    assert!(
                        matches!(e, Error::Corrupt { page, .. } if page == id(1)),
                        "{e}"
                    );
                    let e = pool.exclusive(id(99)).map(drop).unwrap_err();
                    assert!(matches!(e, Error::NotFound { .. }), "{e}");
                }
            });
        }
    });
    store.put(id(1), good);
    assert_eq!(value(&pool.shared(id(1)).unwrap(), id(1)), 7);
    assert_eq!(pool.stats().free_waits, 0);
    let each_time = 4 * 5 * MIN_FRAMES as u64;
    assert_eq!(pool.stats().damaged, each_time, "not those of no page");
}

/// What the cleaner writes first: pages that nobody used again, then those that were used once.
#[test]
fn pages_in_use_all_the_time_are_not_cold() {
    let (pool, _store) = pool_of(256, 200);
    let change = |no, lsn| change(&pool, no, lsn);
    // So many loads are a tick.
    for tick in 0..4 {
        change(0, 8 + 8 * u64::from(tick));
        if tick < 2 {
            change(1, 108 + 8 * u64::from(tick));
        }
        if tick == 0 {
            change(2, 208);
        }
        (0..16).for_each(|n| drop(pool.shared(id(10 + 16 * tick + n)).unwrap()));
    }
    for (rounds, cold) in [(0, &[2][..]), (2, &[1, 2]), (4, &[0, 1, 2])] {
        let mut taken = vec![];
        pool.take_cold(pool.usable_frames(), rounds, 8, &mut taken);
        let mut pages: Vec<u32> = taken.iter().map(|taken| taken.page.no.0).collect();
        pages.sort_unstable();
        assert_eq!(pages, cold, "{rounds} rounds");
        taken
            .into_iter()
            .for_each(|taken| pool.write_given_up(taken));
    }
}

/// A scan of many times the pool leaves the pages in regular use where they are.
#[test]
fn a_scan_does_not_drive_out_what_is_used() {
    let (pool, store) = pool_of(256, 5000);
    let hot = 0..100;
    for round in 0..40 {
        for no in hot.clone() {
            pool.shared(id(no)).unwrap();
        }
        for no in 100 + round * 16..116 + round * 16 {
            pool.shared(id(no)).unwrap();
        }
    }
    let before = store.reads.load(Relaxed);
    for no in 1000..5000 {
        // Many latches of the same page in a row, as by a locking cursor, count as one use.
        for _ in 0..50 {
            pool.shared(id(no)).unwrap();
        }
        // Each hot page once in 200 loads; 256 frames in LRU order would have dropped it by then.
        if no % 2 == 0 {
            pool.shared(id(no / 2 % 100)).unwrap();
        }
    }
    let reread = store.reads.load(Relaxed) - before - 4000;
    assert!(reread <= 20, "{reread} reads of pages in regular use");
}

/// With every frame dirty a thread waits for the cleaner, and goes on when that has written one page.
#[test]
fn a_thread_waits_for_the_cleaner_when_all_is_dirty() {
    let (pool, _) = pool_of(MIN_FRAMES, 100);
    let asked = Arc::new((Mutex::new(false), parking_lot::Condvar::new()));
    let signal = asked.clone();
    pool.set_cleaner_waker(move || {
        *signal.0.lock() = true;
        signal.1.notify_all();
    });
    for no in 0..MIN_FRAMES as u32 {
        let mut page = pool.exclusive(id(no)).unwrap();
        fill(page.bytes_mut(), u64::from(no));
        page.changed(Lsn(8 * u64::from(no) + 8));
    }
    // So far the cleaner was asked for memory only.
    *asked.0.lock() = false;
    std::thread::scope(|s| {
        s.spawn(|| value(&pool.shared(id(99)).unwrap(), id(99)));
        let mut wanted = asked.0.lock();
        asked.1.wait_while(&mut wanted, |w| !*w);
        assert_eq!(pool.frames_wanted(), 1);
        let mut taken = vec![];
        pool.take_oldest(Lsn(8), 1, &mut taken);
        assert_eq!(taken.iter().map(|t| t.page).collect::<Vec<_>>(), [id(0)]);
        assert_eq!(clean(&pool, taken), 1);
    });
    assert!(pool.is_resident(id(99)) && !pool.is_resident(id(0)));
}

/// A change made while a page is being written keeps the page dirty, since that change only; a write that
/// failed keeps it dirty since the first.
#[test]
fn a_change_during_the_write_is_not_lost() {
    let change = |pool: &BufferPool, v: u64| {
        let mut page = pool.exclusive(id(0)).unwrap();
        fill(page.bytes_mut(), v);
        page.changed(Lsn(v));
    };
    for (written, want) in [(true, 24), (false, 8)] {
        let (pool, _) = pool_of(MIN_FRAMES, 1);
        change(&pool, 8);
        change(&pool, 16);
        let mut taken = vec![];
        pool.take_oldest(Lsn(100), 9, &mut taken);
        pool.take_oldest(Lsn(100), 9, &mut taken);
        assert_eq!(taken.len(), 1, "a page is taken once");
        let mut buf = vec![0; PAGE];
        pool.copy_for_write(&taken[0], &mut buf).unwrap().unwrap();
        assert_eq!(value(&buf, id(0)), 16);
        change(&pool, 24);
        change(&pool, 32);
        assert_eq!(
            pool.min_first_change(Lsn(100)),
            Some(Lsn(8)),
            "not synced yet"
        );
        let page = taken.pop().unwrap();
        if written {
            pool.write_done(page);
        } else {
            pool.write_given_up(page);
        }
        assert_eq!(pool.min_first_change(Lsn(100)), Some(Lsn(want)));
        clean_all(&pool);
        assert_eq!(pool.min_first_change(Lsn(100)), None);
    }
}

/// Pages of unlogged tablespaces hold no checkpoint back, but are written before their frames are reused.
#[test]
fn unlogged_pages_are_cleaned_for_their_frames_only() {
    let (pool, store) = pool_of(MIN_FRAMES, 200);
    let mut page = pool.exclusive(id(0)).unwrap();
    fill(page.bytes_mut(), 5);
    page.changed_unlogged();
    drop(page);
    assert_eq!(pool.min_first_change(Lsn(100)), None);
    assert_eq!(pool.dirty_pages(), 1);
    with_cleaner(&pool, 1, |_| {
        for no in 1..200 {
            pool.shared(id(no)).unwrap();
        }
        while pool.is_resident(id(0)) {
            for no in 1..200 {
                pool.shared(id(no)).unwrap();
            }
        }
    });
    assert_eq!(value(&store.pages.lock()[&id(0)], id(0)), 5);
    assert_eq!(value(&pool.shared(id(0)).unwrap(), id(0)), 5);
}

/// A page that is forgotten is not written, and its frame is free; one that is in use stays.
#[test]
fn a_forgotten_page_leaves_nothing() {
    let (pool, store) = pool_of(MIN_FRAMES, 3);
    for no in 0..3 {
        let mut page = pool.exclusive(id(no)).unwrap();
        fill(page.bytes_mut(), 7);
        page.changed_unlogged();
    }
    let free = pool.free_frames();
    pool.forget(id(0));
    let latched = pool.shared(id(1)).unwrap();
    pool.forget(id(1));
    drop(latched);
    let pin = pool.pin(id(2)).unwrap();
    pool.forget(id(2));
    drop(pin);
    pool.forget(id(99));
    assert_eq!((pool.free_frames(), pool.dirty_pages()), (free + 1, 2));
    assert!(!pool.is_resident(id(0)) && pool.is_resident(id(1)) && pool.is_resident(id(2)));
    assert_ne!(value(&pool.shared(id(0)).unwrap(), id(0)), 7);
    assert_eq!(store.writes.load(Relaxed), 0);
}

#[test]
fn dropping_a_space_forgets_its_pages_unwritten() {
    let (pool, store) = pool_of(MIN_FRAMES, 20);
    let other = PageId::new(SpaceId(6), PageNo(1));
    store.pages.lock().insert(other, raw_page(other, 3));
    for no in 0..20 {
        let mut page = pool.exclusive(id(no)).unwrap();
        fill(page.bytes_mut(), 1);
        page.changed(Lsn(8));
    }
    pool.shared(other).unwrap();
    pool.drop_space(SPACE);
    while pool.forget_gone(7) {}
    assert_eq!(
        (pool.dirty_pages(), pool.free_frames()),
        (0, MIN_FRAMES - 1)
    );
    assert_eq!(pool.min_first_change(Lsn(100)), None);
    assert!(pool.is_resident(other));
    assert_eq!(store.writes.load(Relaxed), 0);
}

/// BUF-10. What drops a tablespace looks at no page of it, and a portion at no more frames than it was told.
/// A second one that goes in the middle of a round has a whole round of its own, and those that go together
/// take one.
#[test]
fn a_dropped_space_leaves_in_portions() {
    let (pool, store) = pool_of(MIN_FRAMES, 16);
    let spaces = [SPACE, SpaceId(6), SpaceId(7), SpaceId(8)];
    let pages = |space| (0..16).map(move |no| PageId::new(space, PageNo(no)));
    for page in spaces.into_iter().flat_map(pages) {
        store.pages.lock().insert(page, raw_page(page, 1));
        pool.exclusive(page).unwrap().changed(Lsn(8));
    }
    let resident = || spaces.map(|space| pages(space).filter(|id| pool.is_resident(*id)).count());
    pool.drop_space(spaces[0]);
    pool.drop_space(spaces[1]);
    assert_eq!((resident(), pool.drop_held.count()), ([16; 4], 0));
    let mut looked_at = 0;
    let mut left = 32;
    while looked_at < MIN_FRAMES / 2 {
        assert!(pool.forget_gone(4), "a round is longer than this");
        looked_at += 4;
        let now = resident()[..2].iter().sum();
        assert!(left - now <= 4, "{left} pages, {now} after a portion of 4");
        left = now;
    }
    pool.drop_space(spaces[2]);
    while pool.forget_gone(4) {
        looked_at += 4;
    }
    assert_eq!((resident(), pool.drop_held.count()), ([0, 0, 0, 16], 48));
    assert_eq!(looked_at + 4, MIN_FRAMES / 2 + MIN_FRAMES);
    assert_eq!((pool.dirty_pages(), store.writes.load(Relaxed)), (16, 0));
}

/// BUF-10. The cleaner comes to a dirty page before the round does: it is forgotten then.
#[test]
fn a_page_of_a_dropped_space_is_not_written() {
    let (pool, store) = pool_of(MIN_FRAMES, 4);
    let other = PageId::new(SpaceId(6), PageNo(1));
    store.pages.lock().insert(other, raw_page(other, 3));
    for page in [id(1), id(2), other] {
        pool.exclusive(page).unwrap().changed(Lsn(8));
    }
    pool.drop_space(SPACE);
    let mut taken = Vec::new();
    pool.take_oldest(Lsn(8), 10, &mut taken);
    assert_eq!(taken.len(), 3);
    let to_write = pool.forget_taken(taken);
    assert_eq!(to_write.iter().map(|t| t.page).collect::<Vec<_>>(), [other]);
    assert!(
        ![id(1), id(2)]
            .into_iter()
            .any(|page| pool.is_resident(page))
    );
    assert_eq!(pool.dirty_pages(), 1);
    to_write.into_iter().for_each(|t| pool.write_given_up(t));
    while pool.forget_gone(4) {}
    assert_eq!(pool.dirty_pages(), 1);
}

#[test]
fn a_new_page_is_not_read_and_not_kept_unless_filled() {
    let (pool, store) = pool_of(MIN_FRAMES, 0);
    for _ in 0..3 * MIN_FRAMES {
        let page = pool.exclusive_new(id(7)).unwrap();
        assert!(page::is_zero(&page));
    }
    assert!(!pool.is_resident(id(7)));
    let mut page = pool.exclusive_new(id(7)).unwrap();
    let ptype = PageType::Raw;
    PageOp::FormatRaw { ptype }
        .apply(page.bytes_mut(), id(7))
        .unwrap();
    fill(page.bytes_mut(), 9);
    page.changed(Lsn(8));
    drop(page);
    assert_eq!(value(&pool.shared(id(7)).unwrap(), id(7)), 9);
    assert_eq!(store.reads.load(Relaxed), 0);
}

#[test]
fn a_pin_keeps_the_page_and_a_taken_latch_is_not_waited_for_by_try() {
    let (pool, store) = pool_of(MIN_FRAMES, 400);
    let pin = pool.pin(id(3)).unwrap();
    for no in 4..400 {
        pool.shared(id(no)).unwrap();
    }
    let reads = store.reads.load(Relaxed);
    let page = pool.exclusive(id(3)).unwrap();
    assert_eq!(store.reads.load(Relaxed), reads);
    assert!(pool.try_shared(id(3)).unwrap().is_none());
    assert!(pool.try_exclusive(id(3)).unwrap().is_none());
    drop(page);
    let shared = pool.try_shared(id(3)).unwrap().unwrap();
    assert!(pool.try_exclusive(id(3)).unwrap().is_none());
    drop((shared, pin));
    while pool.is_resident(id(3)) {
        pool.refill_free(MIN_FRAMES);
    }
}

fn inner_page(id: PageId, children: u32) -> Vec<u8> {
    let mut page = vec![0; PAGE];
    let format = PageOp::FormatSlotted {
        ptype: PageType::Inner,
        owner: 77,
        level: 1,
        user_len: 0,
        next: NO_PAGE,
        low: b"",
        high: None,
    };
    format.apply(&mut page, id).unwrap();
    for i in 0..children {
        let key = if i == 0 { vec![] } else { vec![i as u8] };
        let op = PageOp::Insert {
            slot: i as u16,
            suffix: &key,
            payload: &i.to_le_bytes(),
        };
        op.apply(&mut page, id).unwrap();
    }
    seal(&mut page);
    page
}

/// BUF-5: a thread that has noted a page's range stamp learns of every change of the page but those of
/// records, and when the page has been away.
#[test]
fn a_range_stamp_holds_as_long_as_the_range() {
    let (pool, _) = pool_of(MIN_FRAMES, 300);
    let hint = |no| pool.shared(id(no)).unwrap().hint();
    let first = hint(0);
    assert!(first.still_holds(hint(0)) && !first.still_holds(hint(1)));
    pool.exclusive(id(0)).unwrap().records_mut();
    assert!(first.still_holds(hint(0)));
    pool.exclusive(id(0)).unwrap().bytes_mut();
    assert!(!first.still_holds(hint(0)));

    let before: Vec<_> = (0..8).map(hint).collect();
    for round in 0..20 {
        (8..300).for_each(|no| drop(pool.shared(id(no))));
        if (0..8).all(|no| !pool.is_resident(id(no))) {
            break;
        }
        assert!(round < 19, "pages that nobody reads stay for ever");
    }
    for (no, before) in before.into_iter().enumerate() {
        assert!(!before.still_holds(hint(no as u32)));
    }
}

/// Images follow the page: built once, gone with the first change, new afterwards; while a reader holds an
/// old one it stays readable, also when its frame has long been recycled.
#[test]
fn images_follow_their_page() {
    let (pool, store) = pool_of(MIN_FRAMES, 300);
    store.pages.lock().insert(id(0), inner_page(id(0), 3));
    let hint = PageHint::unknown();
    let guard = crossbeam_epoch::pin();
    for _ in 0..5 {
        let image = pool.inner(id(0), &hint, &guard).unwrap().unwrap();
        assert_eq!((image.id, image.n_children()), (id(0), 3));
    }
    assert_eq!(pool.stats().image_builds, 1);
    let old = pool.inner(id(0), &hint, &guard).unwrap().unwrap();
    let mut page = pool.exclusive(id(0)).unwrap();
    let op = PageOp::Remove { slot: 2 };
    op.apply(page.bytes_mut(), id(0)).unwrap();
    page.changed(Lsn(8));
    drop(page);
    let new = pool.inner(id(0), &hint, &guard).unwrap().unwrap();
    assert_eq!((old.n_children(), new.n_children()), (3, 2));
    clean_all(&pool);
    for no in 1..300 {
        assert!(
            pool.inner(id(no), &hint, &guard).unwrap().is_none(),
            "not an inner page"
        );
    }
    assert_eq!(old.child(2).no, PageNo(2));
}

/// Descents, changes and evictions at once: an image is never of another page, and never older than a change
/// that ended before it was asked for.
#[test]
fn images_are_never_stale_after_a_change_ended() {
    let (pool, store) = pool_of(MIN_FRAMES, 200);
    const INNER: u32 = 4;
    for no in 0..INNER {
        store.pages.lock().insert(id(no), inner_page(id(no), 2));
    }
    // Per page the value that the last finished change put into child 1.
    let newest: Vec<AtomicU64> = (0..INNER).map(|_| AtomicU64::new(1)).collect();
    let lsn = AtomicU64::new(8);
    with_cleaner(&pool, 4, |t| {
        let mut rng = SmallRng::seed_from_u64(t as u64);
        let hints: Vec<_> = (0..INNER).map(|_| PageHint::unknown()).collect();
        for _ in 0..6000 {
            let no = rng.random_range(0..INNER);
            match rng.random_range(0..8) {
                0 => {
                    let mut page = pool.exclusive(id(no)).unwrap();
                    let v = newest[no as usize].load(Relaxed) + 1;
                    let op = PageOp::PatchPayload {
                        slot: 1,
                        off: 0,
                        bytes: &(v as u32).to_le_bytes(),
                    };
                    op.apply(page.bytes_mut(), id(no)).unwrap();
                    page.changed(Lsn(lsn.fetch_add(8, Relaxed)));
                    newest[no as usize].store(v, Release);
                }
                1 => drop(pool.shared(id(rng.random_range(INNER..200))).unwrap()),
                _ => {
                    let least = newest[no as usize].load(Acquire);
                    let guard = crossbeam_epoch::pin();
                    let image = pool
                        .inner(id(no), &hints[no as usize], &guard)
                        .unwrap()
                        .unwrap();
                    assert_eq!(image.id, id(no));
                    assert!(u64::from(image.child(1).no.0) >= least, "stale image");
                }
            }
        }
    });
}

/// Everything that moves frames about at once: loads, failed loads, new pages kept and given up, pins,
/// dropped spaces, cleaning. Afterwards every frame is free or holds a page, and nobody has kept a latch or a
/// pin.
#[test]
fn no_frame_is_lost() {
    let (pool, store) = pool_of(MIN_FRAMES, 150);
    store.put(id(150), vec![1; PAGE]);
    let spaces = AtomicU32::new(100);
    let lsn = AtomicU64::new(8);
    let seed = rand::random::<u64>();
    println!("seed {seed}");
    with_cleaner(&pool, 6, |t| {
        let mut rng = SmallRng::seed_from_u64(seed ^ t as u64);
        let change = |mut page: ExclusivePage<'_>| {
            let at = page.id();
            let ptype = PageType::Raw;
            PageOp::FormatRaw { ptype }
                .apply(page.bytes_mut(), at)
                .unwrap();
            page.changed(Lsn(lsn.fetch_add(8, Relaxed)));
        };
        for _ in 0..3000 {
            let no = rng.random_range(0..150);
            match rng.random_range(0..10) {
                0 => assert!(pool.shared(id(150)).is_err()),
                1 => drop(pool.exclusive_new(id(no)).unwrap()),
                2 => change(pool.exclusive_new(id(no)).unwrap()),
                3 => drop(pool.pin(id(no)).unwrap()),
                4 => drop(pool.try_exclusive(id(no)).unwrap()),
                5 => {
                    let space = SpaceId(spaces.fetch_add(1, Relaxed));
                    for no in 0..3 {
                        change(pool.exclusive_new(PageId::new(space, PageNo(no))).unwrap());
                    }
                    pool.drop_space(space);
                    pool.forget_gone(rng.random_range(0..2 * MIN_FRAMES));
                }
                _ => drop(pool.shared(id(no)).unwrap()),
            }
        }
    });
    clean_all(&pool);
    let mut resident = 0;
    for (i, f) in pool.frames.iter().enumerate() {
        if f.unpinned() {
            resident += 1;
            assert!(f.latch.try_lock_exclusive(), "frame {i} is still latched");
        } else {
            assert_eq!(f.page.load(Relaxed), u64::MAX, "frame {i} is pinned");
        }
    }
    assert_eq!(resident + pool.free_frames(), MIN_FRAMES);
}
