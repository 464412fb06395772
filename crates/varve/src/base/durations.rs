//! How long something took, each time, in a small histogram.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The last one takes everything from about half a second on.
const BUCKETS: usize = 21;

/// Durations by powers of two of microseconds, and the longest. Relaxed throughout: they count, and nothing
/// else depends on them.
#[derive(Default)]
pub struct Durations {
    /// Under 1 µs, under 2 µs, under 4 µs and so on.
    buckets: [AtomicU64; BUCKETS],
    longest_ns: AtomicU64,
}

impl Durations {
    pub fn note(&self, took: Duration) {
        let us = took.as_micros() as u64;
        let bucket = (u64::BITS - us.leading_zeros()) as usize;
        self.buckets[bucket.min(BUCKETS - 1)].fetch_add(1, Ordering::Relaxed);
        let ns = took.as_nanos() as u64;
        self.longest_ns.fetch_max(ns, Ordering::Relaxed);
    }

    /// Notes how long the answer lives.
    pub fn begin(&self) -> Timed<'_> {
        Timed {
            durations: self,
            since: Instant::now(),
        }
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        let counts = self.buckets.iter().map(|n| n.load(Ordering::Relaxed));
        counts.sum()
    }

    fn longest(&self) -> Duration {
        Duration::from_nanos(self.longest_ns.load(Ordering::Relaxed))
    }

    /// Rounded up.
    pub fn longest_usec(&self) -> u64 {
        self.longest().as_nanos().div_ceil(1000) as u64
    }
}

/// Something that takes a while.
#[must_use]
pub struct Timed<'a> {
    durations: &'a Durations,
    since: Instant,
}

impl Drop for Timed<'_> {
    fn drop(&mut self) {
        self.durations.note(self.since.elapsed());
    }
}

/// `12 times, longest 3.4 us; under 1 us: 9, 4 us: 3`.
impl fmt::Display for Durations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let longest = self.longest().as_nanos() as f64 / 1e3;
        write!(f, "{} times, longest {longest:.1} us", self.count())?;
        let mut separator = "; under";
        for (n, count) in self.buckets.iter().enumerate() {
            let count = count.load(Ordering::Relaxed);
            if count > 0 {
                match n < BUCKETS - 1 {
                    true => write!(f, "{separator} {} us: {count}", 1u64 << n)?,
                    false => write!(f, "{separator} any: {count}")?,
                }
                separator = ",";
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_counted_by_powers_of_two() {
        for (us, shown) in [
            (0, "under 1 us: 1"),
            (1, "under 2 us: 1"),
            (3, "under 4 us: 1"),
            (4, "under 8 us: 1"),
            (1000, "under 1024 us: 1"),
            (1 << 19, "under any: 1"),
            (1 << 40, "under any: 1"),
        ] {
            let durations = Durations::default();
            durations.note(Duration::from_micros(us));
            let text = durations.to_string();
            assert!(text.ends_with(shown), "{us}: {text}");
        }
        let durations = Durations::default();
        assert_eq!(durations.to_string(), "0 times, longest 0.0 us");
        for ns in [400, 1500, 3400, 300] {
            durations.note(Duration::from_nanos(ns));
        }
        assert_eq!(
            durations.to_string(),
            "4 times, longest 3.4 us; under 1 us: 2, 2 us: 1, 4 us: 1"
        );
        drop(durations.begin());
        assert_eq!(durations.count(), 5);
    }
}
