//! [`Recently`]: something that happens again and again, and ends when it is not heard of any more.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

static BEGUN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Until when something counts that was noted. Relaxed: nothing else depends on when others see it.
#[derive(Debug, Default)]
pub struct Recently {
    /// Milliseconds since `BEGUN`; 0: it is not, or not any more.
    until: AtomicU64,
}

impl Recently {
    /// It happens now, and counts for so long.
    pub fn note(&self, lasts: Duration) {
        let until = (BEGUN.elapsed() + lasts).as_millis() as u64;
        self.until.fetch_max(until, Relaxed);
    }

    #[inline]
    pub fn is_on(&self) -> bool {
        let until = self.until.load(Relaxed);
        until > 0 && self.is_before(until)
    }

    /// When it is over nobody has to look at the clock any more.
    #[cold]
    fn is_before(&self, until: u64) -> bool {
        let is_on = BEGUN.elapsed().as_millis() < u128::from(until);
        if !is_on {
            // Fails if it was noted again.
            let _ = self.until.compare_exchange(until, 0, Relaxed, Relaxed);
        }
        is_on
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends_by_itself() {
        let recent = Recently::default();
        assert!(!recent.is_on());
        recent.note(Duration::from_secs(600));
        assert!(recent.is_on());
        let short = Recently::default();
        short.note(Duration::ZERO);
        assert!(!short.is_on());
        short.note(Duration::from_secs(600));
        assert!(short.is_on());
    }
}
