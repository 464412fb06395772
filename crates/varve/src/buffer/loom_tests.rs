//! Look-ups against evictions and loads: every interleaving, up to a bound on preemptions, of two or three
//! threads on a pool of four frames whose table has two buckets, so that chains are shared and frames change
//! between them.
//!
//! Modelled: page id, pins and claim, the hash chains with their mutex, the latch (latch.rs). Not modelled,
//! because each of them is an atomic step here: the queue of free frames, dirty states, images, and the
//! pages' bytes, which show what a guard gives access to. With a pool that changes its size: the limit and
//! the marks of frames that are out of use, too.

use std::sync::Arc;

use loom::thread;

use super::mem_store::MemStore;
use super::{BufferPool, PoolSettings};
use crate::base::{PageId, PageNo, SpaceId, model};
use crate::page::{PageOp, PageType, seal};

const SIZE: usize = 4096;
const FRAMES: u64 = 4;
const MARK_AT: usize = 100;

fn id(no: u32) -> PageId {
    PageId::new(SpaceId(1), PageNo(no))
}

/// A pool whose frames all hold pages: 0 to 3. Page 4 is in the store, too.
fn full_pool() -> Arc<BufferPool> {
    let store = MemStore::default();
    for no in 0..5 {
        let mut page = vec![0; SIZE];
        let op = PageOp::FormatRaw {
            ptype: PageType::Raw,
        };
        op.apply(&mut page, id(no)).unwrap();
        page[MARK_AT] = no as u8;
        seal(&mut page);
        store.put(id(no), page);
    }
    let settings = PoolSettings {
        bytes: FRAMES * SIZE as u64,
        page_size: SIZE,
    };
    let pool = BufferPool::new(settings, Arc::new(store)).unwrap();
    (0..FRAMES as u32).for_each(|no| read(&pool, no));
    Arc::new(pool)
}

/// BUF-1: under the latch the frame holds the page that was asked for.
fn read(pool: &BufferPool, no: u32) {
    let page = pool.shared(id(no)).unwrap();
    assert_eq!((page.id(), page[MARK_AT]), (id(no), no as u8));
    thread::yield_now();
    assert_eq!((page.id(), page[MARK_AT]), (id(no), no as u8));
}

/// The same with the exclusive latch: nobody else has the page meanwhile.
fn write(pool: &BufferPool, no: u32) {
    let mut page = pool.exclusive(id(no)).unwrap();
    assert_eq!((page.id(), page[MARK_AT]), (id(no), no as u8));
    page.records_mut()[MARK_AT] = 0xff;
    thread::yield_now();
    page.records_mut()[MARK_AT] = no as u8;
}

/// PT-2: no page is in two frames; BUF-3: what is free names no page.
fn check_frames(pool: &BufferPool) {
    let held: Vec<PageId> = (pool.frames.iter().map(|f| f.page_id()))
        .filter(|page| page.to_u64() != super::frame::NO_PAGE_ID)
        .collect();
    for (n, page) in held.iter().enumerate() {
        assert!(!held[..n].contains(page), "{page} is in two frames");
        assert!(pool.table.find(&pool.frames, *page).is_some());
    }
    let withdrawn = pool.frames.iter().filter(|f| f.is_withdrawn()).count();
    let free = pool.free_frames();
    assert_eq!(held.len() + free + withdrawn, pool.frames.len());
    for (n, f) in pool.frames.iter().enumerate() {
        assert_eq!(
            f.unpinned(),
            f.page_id().to_u64() != super::frame::NO_PAGE_ID
        );
        let is_beyond = n >= pool.usable_frames();
        assert!(is_beyond || !f.is_withdrawn(), "BUF-9: {n}");
    }
}

type Part = fn(&BufferPool);

/// Runs the parts at the same time, the last one in the model's first thread.
fn check<const N: usize>(preemptions: usize, others: [Part; N], own: Part) {
    model::check(preemptions, move || {
        let pool = full_pool();
        let threads = others.map(|part| {
            let pool = pool.clone();
            thread::spawn(move || part(&pool))
        });
        own(&pool);
        for thread in threads {
            thread.join().unwrap();
        }
        check_frames(&pool);
    });
}

/// PT-1: a frame is recycled for another page while a thread follows a look-up that named it.
#[test]
fn loom_lookup_against_eviction() {
    check(2, [|pool| read(pool, 1)], |pool| {
        pool.forget(id(1));
        read(pool, 4);
    });
}

/// Two threads miss the same page.
#[test]
fn loom_two_loads_of_one_page() {
    check(2, [|pool| read(pool, 4)], |pool| write(pool, 4));
}

/// A thread waits for a latch, under a pin, while the frame is wanted for another page.
#[test]
fn loom_waiting_for_a_latch_against_eviction() {
    check(2, [|pool| write(pool, 1)], |pool| {
        pool.forget(id(1));
        read(pool, 1);
    });
}

/// The clock takes frames while they are looked up and locked.
#[test]
fn loom_clock_against_lookups() {
    let evict: Part = |pool| {
        pool.refill_free(1);
    };
    check(1, [evict, |pool| read(pool, 2)], |pool| write(pool, 2));
}

/// BUF-9: a frame is on its way to the free list while the limit falls below it, and rises again.
#[test]
fn loom_sizes_against_frames_that_become_free() {
    let forget: Part = |pool| pool.forget(id(3));
    check(2, [forget], |pool| {
        pool.set_frames(2).unwrap();
        pool.withdraw_leaving(1, 1);
        pool.set_frames(FRAMES as usize).unwrap();
    });
}
