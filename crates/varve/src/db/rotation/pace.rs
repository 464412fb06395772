//! How fast the background reads and writes pages.

use std::time::{Duration, Instant};

/// So many pages a second, of all threads together.
#[derive(Default)]
pub(super) struct Pace {
    iops: u32,
    /// Since when, and how many.
    begun: Option<Instant>,
    pages: u32,
}

impl Pace {
    /// How long to wait before the next one: at most a second, as it counts anew each second.
    pub(super) fn count(&mut self, iops: u32) -> Duration {
        if self.iops != iops || self.pages >= iops {
            *self = Pace {
                iops,
                ..Pace::default()
            };
        }
        let begun = *self.begun.get_or_insert_with(Instant::now);
        self.pages += 1;
        let due = Duration::from_secs_f64(f64::from(self.pages) / f64::from(iops));
        let early = due.saturating_sub(begun.elapsed());
        // The system sleeps no less.
        match early >= Duration::from_millis(10) {
            true => early,
            false => Duration::ZERO,
        }
    }
}
