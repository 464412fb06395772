//! Who goes and who stays.

use super::tests::{change, clean, id, pool_of};
use super::*;

/// Pages from here on pass through once.
const PASSERS_BY: u32 = 10_000;
/// So many loads are a tick.
const TICK: u32 = 16;
const FRAMES: usize = 16 * TICK as usize;

fn touch(pool: &BufferPool, no: u32) {
    drop(pool.shared(id(no)).unwrap());
}

/// `n` of the passers-by.
fn pass(pool: &BufferPool, next: &mut u32, n: u32) {
    (0..n).for_each(|i| touch(pool, *next + i));
    *next += n;
}

fn absent(pool: &BufferPool, mut pages: std::ops::Range<u32>) -> Option<u32> {
    pages.find(|no| !pool.is_resident(id(*no)))
}

/// Pages that fill four fifths of the pool, each used so rarely that as many others pass through meanwhile.
#[test]
fn passers_by_make_room_for_themselves() {
    let (pool, _) = pool_of(FRAMES, PASSERS_BY + 8000);
    let set = 0..(FRAMES as u32 * 4 / 5);
    let mut next = PASSERS_BY;
    for no in set.clone() {
        touch(&pool, no);
    }
    pass(&pool, &mut next, TICK);
    set.clone().for_each(|no| touch(&pool, no));
    for round in 0..20 {
        pass(&pool, &mut next, FRAMES as u32);
        assert_eq!(absent(&pool, set.clone()), None, "round {round}");
        set.clone().for_each(|no| touch(&pool, no));
    }
}

/// The same with passers-by that are changed, which have to be written before they go.
#[test]
fn changed_passers_by_make_room_for_themselves() {
    let (pool, _) = pool_of(FRAMES, PASSERS_BY + 8000);
    let set = 0..(FRAMES as u32 * 3 / 4);
    set.clone().for_each(|no| touch(&pool, no));
    let mut next = PASSERS_BY;
    pass(&pool, &mut next, TICK);
    let mut lsn = 8;
    for round in 0..20 {
        set.clone().for_each(|no| touch(&pool, no));
        for _ in 0..FRAMES / 8 {
            for _ in 0..8 {
                change(&pool, next, lsn);
                (next, lsn) = (next + 1, lsn + 8);
            }
            let mut taken = vec![];
            pool.take_cold(FRAMES, 0, 8, &mut taken);
            clean(&pool, taken);
            pool.refill_free(8);
        }
        assert_eq!(absent(&pool, set.clone()), None, "round {round}");
    }
}

/// A page that comes back soon after it had to go is trusted; one that comes back later is a newcomer again.
#[test]
fn who_comes_back_soon_stays() {
    for (later, stays) in [(FRAMES as u32 / 2, true), (2 * FRAMES as u32, false)] {
        let (pool, _) = pool_of(FRAMES, PASSERS_BY + 8000);
        let mut next = PASSERS_BY;
        touch(&pool, 0);
        while pool.is_resident(id(0)) {
            pass(&pool, &mut next, 1);
        }
        pass(&pool, &mut next, later);
        touch(&pool, 0);
        pass(&pool, &mut next, 2 * FRAMES as u32);
        assert_eq!(pool.is_resident(id(0)), stays, "{later} loads later");
    }
}

/// A page that was read ahead waits longer for its first use, but not for ever.
#[test]
fn who_waits_for_a_first_use_has_more_time() {
    let (pool, _) = pool_of(FRAMES, PASSERS_BY + 8000);
    let mut next = PASSERS_BY;
    // Those that stay leave room for few newcomers.
    let set = 2..FRAMES as u32 * 9 / 10;
    set.clone().for_each(|no| touch(&pool, no));
    pass(&pool, &mut next, TICK);
    set.clone().for_each(|no| touch(&pool, no));
    pass(&pool, &mut next, FRAMES as u32);
    let ahead = pool.free_frame().unwrap();
    assert!(pool.link(ahead, id(0)));
    let frame = &pool.frames[ahead as usize];
    frame.touched.start_ahead(pool.replacement.now());
    pool.admit(frame, id(0));
    frame.unclaim();
    // SAFETY: as `free_frame` left it.
    unsafe { frame.latch.unlock_exclusive() };
    touch(&pool, 1);
    pass(&pool, &mut next, 2 * TICK);
    assert_eq!([0, 1].map(|no| pool.is_resident(id(no))), [true, false]);
    pass(&pool, &mut next, 4 * TICK);
    assert!(!pool.is_resident(id(0)));
}
