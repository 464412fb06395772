//! Spreading what all threads write over several cache lines, so that they don't take them away from each other.

use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;

/// A number that differs from thread to thread, so that threads start at different places: the address of a
/// thread-local variable. It has no meaning beyond that.
#[inline]
pub fn thread_spot() -> usize {
    thread_local!(static SPOT: u8 = const { 0 });
    let address = SPOT.with(|spot| std::ptr::from_ref(spot) as u64);
    (address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize
}

const STRIPES: usize = 8;

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
