//! The pauses that purge makes for others (`share`).
//!
//! A batch that waits for the disk takes seconds. So a coordinator that works alone pauses within it, too,
//! between the undo pages that it reads and between two chunks of a sweep, where it has no latch and no
//! table; what it still owes then follows the batch. Pauses end when nobody else does anything any more.

use std::time::{Duration, Instant};

use crate::txn::Core;

/// Shorter pauses are put together: sleeping takes some time by itself. Nor are they much longer: whoever
/// wakes up on purge's processor between two pauses waits for the next one, and a commit takes no longer than
/// that.
const SHORTEST: Duration = Duration::from_micros(200);
/// A pause has parts: a setting may change meanwhile, or the others may end.
const LONGEST_PART: Duration = Duration::from_millis(100);

/// The pauses of one batch.
pub(super) struct Rest {
    begun: Instant,
    /// For each second of work within the batch.
    ratio: f64,
    paused: Duration,
    is_over: bool,
}

impl Rest {
    pub fn begin(ratio: f64) -> Rest {
        Rest {
            begun: Instant::now(),
            ratio,
            paused: Duration::ZERO,
            is_over: false,
        }
    }

    /// Between the pauses, up to now.
    pub fn worked(&self) -> Duration {
        self.begun.elapsed().saturating_sub(self.paused)
    }

    pub fn paused(&self) -> Duration {
        self.paused
    }

    /// In the middle of a batch: pauses for what was worked so far.
    pub fn pause_within(&mut self, core: &Core) {
        if self.ratio > 0.0 && !self.is_over {
            self.pause_up_to(core, self.worked().mul_f64(self.ratio));
        }
    }

    /// Until all pauses of the batch make up `total`.
    pub fn pause_up_to(&mut self, core: &Core, total: Duration) {
        // Asked for often, and mostly in vain: looked at before anything else.
        let left = |rest: &Rest| total.saturating_sub(rest.paused);
        if left(self) < SHORTEST {
            return;
        }
        let mut done = done_by_others(core);
        loop {
            let left = left(self);
            if left < SHORTEST || self.is_over {
                return;
            }
            self.is_over = is_far_behind(core);
            if self.is_over {
                return;
            }
            let (begun, part) = (Instant::now(), left.min(LONGEST_PART));
            self.is_over = core.purge_wanted.pause(part);
            self.paused += begun.elapsed();
            let before = std::mem::replace(&mut done, done_by_others(core));
            self.is_over |= part == LONGEST_PART && done == before;
        }
    }
}

/// The history is above the limit of lag control.
pub(super) fn is_far_behind(core: &Core) -> bool {
    let limit = core.settings.purge().max_purge_lag;
    limit > 0 && core.undo.history_len() > limit
}

/// A sum of anything that transactions do.
pub(super) fn done_by_others(core: &Core) -> u64 {
    let counters = &core.counters;
    let counted = [
        &counters.rows_read,
        &counters.rows_inserted,
        &counters.rows_updated,
        &counters.rows_deleted,
        &counters.commits,
    ];
    counted.iter().map(|counter| counter.get()).sum()
}
