//! Whether others have work for the processors, too: a thread that helps would take turns from them then.
//!
//! The system says how long a thread has run, and how long it has waited for a processor while it could have
//! run (Linux, /proc/thread-self/schedstat). Where it doesn't nobody knows of a crowd.

use std::fs;

/// A thread that waits for a processor more than a part in so many of its time is in a crowd: it has got less
/// than it could use, and so have others.
const CROWDED_PART: u64 = 4;

/// Nanoseconds of the calling thread, from its beginning.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    ran: u64,
    waited: u64,
}

impl Times {
    fn now() -> Times {
        let said = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        let mut numbers = said.split(' ').map(|number| number.parse().unwrap_or(0));
        let mut next = || numbers.next().unwrap_or(0);
        Times {
            ran: next(),
            waited: next(),
        }
    }
}

/// What a thread has been through since it looked last.
#[derive(Debug)]
pub struct Crowd {
    seen: Times,
}

impl Crowd {
    /// Looks from now on.
    pub fn begin() -> Crowd {
        Crowd { seen: Times::now() }
    }

    /// Whether the calling thread had to wait for processors since the last call. If that was another
    /// thread's, the answer is anything.
    pub fn is_dense(&mut self) -> bool {
        let now = Times::now();
        let before = std::mem::replace(&mut self.seen, now);
        let ran = now.ran.saturating_sub(before.ran);
        let waited = now.waited.saturating_sub(before.waited);
        waited > (ran + waited) / CROWDED_PART
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::hint::black_box;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::base::processors;

    fn spin_for(time: Duration) {
        let begun = Instant::now();
        while begun.elapsed() < time {
            black_box(0);
        }
    }

    /// With many more threads than processors each waits most of the time; one that only sleeps does not.
    #[test]
    fn more_threads_than_processors_are_a_crowd() {
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..processors() * 4 {
                scope.spawn(|| {
                    while !is_over.load(Relaxed) {
                        black_box(0);
                    }
                });
            }
            let mut crowd = Crowd::begin();
            spin_for(Duration::from_millis(300));
            let is_dense = crowd.is_dense();
            is_over.store(true, Relaxed);
            assert!(is_dense);
        });
    }

    #[test]
    fn who_does_nothing_waits_for_nobody() {
        let seen = Times {
            ran: u64::MAX,
            waited: u64::MAX,
        };
        assert!(!Crowd { seen }.is_dense());
    }
}
