//! About how many rows a table has: counted by all threads, asked by each statement.
//!
//! In a large table a thread adds up what it has changed, and tells it now and then: neither who counts nor
//! who asks touches a cache line that all threads write. Who asks knows of its own changes, and may miss a
//! few of each other thread. A small table's rows are counted one by one.
//!
//! - **ROWS-1** What is not told is at most a thirty-second part of what is known.
//!
//! Relaxed: an estimate.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use crossbeam_utils::CachePadded;

use crate::base::thread_spot;

const STRIPES: usize = 8;
/// A thread tells so many changes at once, of tables that have this many rows.
const TOLD_AT: i64 = 64;
const LARGE: i64 = 32 * TOLD_AT * STRIPES as i64;

#[derive(Default)]
pub(super) struct RowCount {
    known: CachePadded<AtomicI64>,
    untold: [CachePadded<AtomicI64>; STRIPES],
}

impl RowCount {
    fn own(&self) -> &AtomicI64 {
        &self.untold[thread_spot() % STRIPES]
    }

    pub fn get(&self) -> u64 {
        let rows = self.known.load(Relaxed) + self.own().load(Relaxed);
        rows.max(0) as u64
    }

    pub fn set(&self, rows: u64) {
        let rows = i64::try_from(rows).unwrap_or(i64::MAX / 2);
        for untold in &self.untold {
            untold.store(0, Relaxed);
        }
        self.known.store(rows, Relaxed);
    }

    pub fn add(&self, change: i64) {
        let own = self.own();
        let is_large = self.known.load(Relaxed) >= LARGE;
        if is_large && (own.fetch_add(change, Relaxed) + change).abs() < TOLD_AT {
            return;
        }
        let own = own.swap(0, Relaxed);
        self.known
            .fetch_add(if is_large { own } else { own + change }, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_and_little_is_untold() {
        let count = RowCount::default();
        let add = |threads: i64, each: i64, change: i64| {
            std::thread::scope(|s| {
                for _ in 0..threads {
                    let count = &count;
                    s.spawn(move || (0..each).for_each(|_| count.add(change)));
                }
            });
        };
        add(4, 1000, 1);
        assert_eq!(count.get(), 4000, "a small table");
        add(2, 10_000, 1);
        let known = count.known.load(Relaxed);
        assert!((24_000 - 24_000 / 32..=24_000).contains(&known), "ROWS-1");
        let untold = || count.untold.iter().map(|n| n.load(Relaxed)).sum::<i64>();
        assert_eq!(known + untold(), 24_000);
        add(3, 8000, -1);
        assert_eq!(count.known.load(Relaxed) + untold(), 0);
        count.set(7);
        assert_eq!((count.get(), untold()), (7, 0));
    }

    /// Who asks knows of its own changes.
    #[test]
    fn one_thread_counts_exactly() {
        let count = RowCount::default();
        count.set(100_000);
        for n in 1..=200 {
            count.add(1);
            assert_eq!(count.get(), 100_000 + n);
        }
        count.add(-5000);
        assert_eq!(count.get(), 95_200);
    }
}
