//! Doing something with each of many things, some of them at the same time, and waiting for all.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;

use super::threads;

/// How many threads do it if they wait for the disk for most of the time, whatever the number of processors.
pub const DISK_THREADS: usize = 8;

/// What `f` makes of each item, in the order of the items. Up to `threads` threads take the next one in turn;
/// the caller's is one of them, and does the part of those that the system does not give. A panic of `f` goes
/// on in the caller when all of them have ended.
pub fn map_together<T: Sync, R: Send + Sync>(
    items: &[T],
    threads: usize,
    f: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    // Relaxed: only that each number is drawn once matters; the end of the scope makes the results visible.
    let next = AtomicUsize::new(0);
    let made: Vec<OnceLock<R>> = items.iter().map(|_| OnceLock::new()).collect();
    let work = || {
        while let Some((item, place)) = nth(&next, items, &made) {
            let is_first = place.set(f(item)).is_ok();
            assert!(is_first, "each item is drawn once");
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads.min(items.len()) {
            let _ = threads::spawn_scoped(scope, "varve-helper", work);
        }
        work();
    });
    let made = made.into_iter();
    made.map(|place| place.into_inner().expect("all were drawn"))
        .collect()
}

fn nth<'a, T, R>(next: &AtomicUsize, items: &'a [T], made: &'a [R]) -> Option<(&'a T, &'a R)> {
    let n = next.fetch_add(1, Relaxed);
    Some((items.get(n)?, made.get(n)?))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn results_stand_in_the_order_of_the_items() {
        for (items, threads) in [(0, 4), (1, 4), (100, 1), (100, 0), (1000, 7)] {
            let items: Vec<u32> = (0..items).collect();
            let squares = map_together(&items, threads, |n| n * n);
            assert!(squares.iter().copied().eq(items.iter().map(|n| n * n)));
        }
    }

    /// All threads are at work at the same time: each waits for the others.
    #[test]
    fn they_work_at_the_same_time() {
        let all = std::sync::Barrier::new(4);
        map_together(&[(); 4], 4, |()| all.wait().is_leader());
    }
}
