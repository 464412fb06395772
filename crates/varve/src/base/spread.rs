//! Spreading what all threads write over several cache lines, so that they don't take them away from each
//! other.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crossbeam_utils::CachePadded;

/// A number that differs from thread to thread, so that threads start at different places. Threads that begin
/// one after the other have numbers one after the other: as many of them as there are places meet nowhere. It
/// has no meaning beyond that.
#[inline]
pub fn thread_spot() -> usize {
    thread_local!(static SPOT: Cell<usize> = const { Cell::new(NO_SPOT) });
    const NO_SPOT: usize = usize::MAX;
    /// The process's, not a database's: threads work on several.
    static NEXT: AtomicUsize = AtomicUsize::new(0);

    #[cold]
    fn draw(spot: &Cell<usize>) -> usize {
        // Relaxed: only that threads differ matters. Half of the numbers, so that sums with them don't
        // overflow.
        spot.set(NEXT.fetch_add(1, Ordering::Relaxed) & (NO_SPOT >> 1));
        spot.get()
    }

    SPOT.with(|spot| match spot.get() {
        NO_SPOT => draw(spot),
        drawn => drawn,
    })
}

/// Threads of a model have small stacks.
const STRIPES: usize = if cfg!(loom) { 1 } else { 16 };

/// A counter that many threads add to and few read. Relaxed: it stands for itself.
#[derive(Default)]
pub struct Counter {
    stripes: [CachePadded<AtomicU64>; STRIPES],
}

impl Counter {
    #[inline]
    pub fn add(&self, n: u64) {
        self.stripes[thread_spot() % STRIPES].fetch_add(n, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.stripes
            .iter()
            .map(|stripe| stripe.load(Ordering::Relaxed))
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Threads that run at the same time, and were begun one after the other, are spread evenly.
    #[test]
    fn threads_meet_nowhere() {
        let begin = || std::thread::spawn(|| (thread_spot(), thread_spot()));
        let spots: Vec<_> = (0..4).map(|_| begin().join().unwrap()).collect();
        for (n, (spot, again)) in spots.iter().enumerate() {
            assert_eq!(spot, again);
            let others = spots.iter().filter(|(other, _)| other == spot);
            assert_eq!(others.count(), 1, "thread {n}");
        }
    }

    #[test]
    fn a_counter_loses_nothing() {
        let counter = Counter::default();
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| (0..1000).for_each(|_| counter.add(2)));
            }
        });
        assert_eq!(counter.get(), 8000);
    }
}
