//! How many pages the page cleaner writes in a second, and why.
//!
//! The redo log may grow to its capacity while the checkpoint stands still, so every page that is dirty now
//! has to be written before the log has grown by what is left. The *age* is the distance from the oldest
//! change that is in no data file to the end of the log, as a fraction of the capacity. `TARGET` is the age
//! at which a steady load comes to rest. Two estimates say how many pages per second that takes:
//!
//! ```text
//! by formula = dirty pages × speed of the log ÷ (TARGET × capacity) − pages per second written to free their frames
//! by age     = pages whose first change lies within the next LOOK_AHEAD seconds' way of the checkpoint ÷ LOOK_AHEAD
//! ```
//!
//! The first looks at all dirty pages alike, so it is smooth, whatever wave their changes once came in; but
//! it is wrong by as much as pages of one age differ from those of another. The second is right about the
//! oldest ones, and hands each wave on to the next trip through the log. Where many pages are written for
//! their frames, what the formula has left says nothing of the others, hot ones that nobody wants the frame
//! of: its weight, half otherwise, falls as that part of it does, down to none. The weighted mean is
//! multiplied by `gain = (age ÷ TARGET)⁴`: at `TARGET` that is 1, so a load that both describe well is
//! answered by just what it takes; a younger checkpoint lets pages be changed again before they are written,
//! an older one is caught up with. All speeds are averages over `flushing_avg_loops` rounds.
//!
//! Below the asynchronous watermark this is limited to `io_capacity_max`. From there to the synchronous one
//! the limit is lifted, gradually and at last altogether, so that a limit that is too low for the load ends
//! neither in waves nor in a standstill. Past that the cleaner writes at full speed (`cleaner`), and writers
//! wait when the log is full.
//!
//! Two other reasons may want more: too much of the pool being dirty, and idleness. What they want beyond
//! what the age does is written, too, but need not be the oldest pages.

use std::time::{Duration, Instant};

use super::FlushOptions;
use super::counters::Cause;
use crate::base::Lsn;

/// One round of the cleaner while there is something to do.
pub const TICK: Duration = Duration::from_millis(100);
/// When the log has not grown for so long, nothing else goes on.
pub const QUIET: Duration = Duration::from_secs(1);
/// The shortest time over which a speed is measured.
const MEASURE: Duration = Duration::from_millis(50);
/// Seconds' worth of pages that may be made up for at once.
const CREDIT: f64 = 1.0;

/// Fractions of the log's capacity.
pub const TARGET: f64 = 0.6;
pub const ASYNC: f64 = 0.75;
pub const SYNC: f64 = 0.875;

/// Seconds.
const LOOK_AHEAD: f64 = 3.0;

/// What the cleaner sees at the beginning of a round.
#[derive(Clone, Copy, Debug)]
pub struct Sight {
    pub now: Instant,
    /// The end of the log.
    pub end: Lsn,
    /// The oldest change that is in no data file; the end if there is none.
    pub oldest: Lsn,
    /// Of the redo log.
    pub capacity: u64,
    /// Dirty pages that the checkpoint waits for.
    pub dirty: usize,
    /// Of the buffer pool.
    pub frames: usize,
    /// Pages that were written because of their frames, ever.
    pub lru_pages: u64,
}

impl Sight {
    pub fn age(&self) -> f64 {
        (self.end.0 - self.oldest.0) as f64 / self.capacity as f64
    }

    pub fn dirty_pct(&self) -> f64 {
        100.0 * self.dirty as f64 / self.frames as f64
    }
}

/// The next batch to be written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    pub cause: Cause,
    pub pages: usize,
    /// Only pages whose first change is at or below this.
    pub up_to: Lsn,
}

/// Pages that may be written for one cause.
#[derive(Clone, Copy, Debug)]
struct Lane {
    cause: Cause,
    up_to: Lsn,
    /// Pages that may be written and were not.
    credit: f64,
}

impl Lane {
    fn new(cause: Cause) -> Lane {
        Lane {
            cause,
            up_to: Lsn(0),
            credit: 0.0,
        }
    }

    /// `rate`: in a second.
    fn set(&mut self, rate: f64, cause: Cause, up_to: Lsn, elapsed: f64) {
        let credit = (self.credit + rate * elapsed).min(rate * CREDIT);
        *self = Lane {
            cause,
            up_to,
            credit,
        };
    }
}

/// In pages per second.
#[derive(Clone, Copy, Debug, Default)]
pub struct Estimates {
    /// Bytes per second.
    pub redo_rate: f64,
    pub lru_rate: f64,
    pub by_formula: f64,
    pub by_age: f64,
    /// Pages per second that the checkpoint age asks for.
    pub for_age: f64,
    pub for_dirty: f64,
    /// The greater of these, or what is written because there is nothing else to do.
    pub wanted: f64,
}

pub struct Pace {
    measured: Instant,
    end: Lsn,
    lru_pages: u64,
    /// Since when the log has not grown.
    quiet_since: Instant,
    /// For the age, and what else is wanted.
    lanes: [Lane; 2],
    written: Instant,
    estimates: Estimates,
}

fn gain(age: f64) -> f64 {
    (age / TARGET).powi(4)
}

/// What io_capacity_max is multiplied by.
fn lift(age: f64) -> f64 {
    match (age - ASYNC) / (SYNC - ASYNC) {
        x if x <= 0.0 => 1.0,
        x if x < 1.0 => 1.0 / (1.0 - x),
        _ => f64::INFINITY,
    }
}

/// Pages per second because so much of the pool is dirty.
fn for_dirty(pct: f64, options: &FlushOptions) -> f64 {
    let (least, most) = (
        f64::from(options.io_capacity),
        f64::from(options.io_capacity_max),
    );
    let (limit, lwm) = (options.max_dirty_pages_pct, options.max_dirty_pages_pct_lwm);
    if pct > limit {
        least + (most - least) * (pct - limit) / (100.0 - limit)
    } else if lwm > 0.0 && pct >= lwm {
        least * pct / limit
    } else {
        0.0
    }
}

impl Pace {
    pub fn new(end: Lsn, now: Instant) -> Pace {
        Pace {
            measured: now,
            end,
            lru_pages: 0,
            quiet_since: now,
            lanes: [Lane::new(Cause::Adaptive), Lane::new(Cause::Background)],
            written: now,
            estimates: Estimates::default(),
        }
    }

    pub fn estimates(&self) -> &Estimates {
        &self.estimates
    }

    /// Nothing has been logged for a while.
    pub fn is_quiet(&self, now: Instant) -> bool {
        now - self.quiet_since >= QUIET
    }

    /// Takes a measurement, if it is time for one. `dirty_up_to` counts the pages whose first change is at or
    /// below an LSN, up to a number that is enough.
    pub fn measure(
        &mut self,
        sight: &Sight,
        options: &FlushOptions,
        dirty_up_to: impl FnOnce(Lsn, usize) -> usize,
    ) {
        let elapsed = (sight.now - self.measured).as_secs_f64();
        if elapsed < MEASURE.as_secs_f64() {
            return;
        }
        if sight.end != self.end {
            self.quiet_since = sight.now;
        }
        let span = f64::from(options.flushing_avg_loops) * TICK.as_secs_f64();
        let weight = elapsed / (elapsed + span);
        let e = &mut self.estimates;
        let redo_rate = (sight.end.0 - self.end.0) as f64 / elapsed;
        e.redo_rate += (redo_rate - e.redo_rate) * weight;
        let lru_rate = sight.lru_pages.saturating_sub(self.lru_pages) as f64 / elapsed;
        e.lru_rate += (lru_rate - e.lru_rate) * weight;
        (self.measured, self.end, self.lru_pages) = (sight.now, sight.end, sight.lru_pages);

        self.estimate(sight, options, dirty_up_to);
        self.allot(sight, options, elapsed);
    }

    fn estimate(
        &mut self,
        sight: &Sight,
        options: &FlushOptions,
        dirty_up_to: impl FnOnce(Lsn, usize) -> usize,
    ) {
        let age = sight.age();
        let e = &mut self.estimates;
        (e.by_formula, e.by_age, e.for_age) = (0.0, 0.0, 0.0);
        e.for_dirty = for_dirty(sight.dirty_pct(), options);
        let lwm = options.adaptive_flushing_lwm / 100.0;
        if age < ASYNC && !(options.adaptive_flushing && age > lwm) {
            return;
        }
        let of_all = sight.dirty as f64 * e.redo_rate / (TARGET * sight.capacity as f64);
        e.by_formula = (of_all - e.lru_rate).max(0.0);
        let near = Lsn(sight.oldest.0 + (e.redo_rate * LOOK_AHEAD) as u64);
        e.by_age = dirty_up_to(near, sight.dirty) as f64 / LOOK_AHEAD;
        let limit = f64::from(options.io_capacity_max) * lift(age);
        let weight = match e.by_formula > 0.0 {
            true => e.by_formula / of_all / 2.0,
            false => 0.0,
        };
        let mean = weight * e.by_formula + (1.0 - weight) * e.by_age;
        e.for_age = (gain(age) * mean).min(limit);
    }

    fn allot(&mut self, sight: &Sight, options: &FlushOptions, elapsed: f64) {
        let quiet = match self.is_quiet(sight.now) && sight.dirty > 0 {
            true => f64::from(options.io_capacity),
            false => 0.0,
        };
        let e = &mut self.estimates;
        e.wanted = e.for_age.max(e.for_dirty).max(quiet);
        let (cause, up_to) = match sight.age() >= ASYNC {
            true => (Cause::Async, sight.end),
            false => {
                let young = options.adaptive_flushing_lwm / 100.0 * sight.capacity as f64;
                let up_to = sight.end.0.saturating_sub(young as u64);
                (Cause::Adaptive, Lsn(up_to))
            }
        };
        self.lanes[0].set(e.for_age, cause, up_to, elapsed);
        let cause = match e.for_dirty >= quiet {
            true => Cause::MaxDirty,
            false => Cause::Background,
        };
        self.lanes[1].set(e.wanted - e.for_age, cause, sight.end, elapsed);
    }

    /// The next batch: at least about half a batch, unless a second has passed, because each costs its syncs.
    pub fn plan(&self, now: Instant, batch: usize) -> Option<Plan> {
        let [age, other] = &self.lanes;
        let all = (age.credit + other.credit) as usize;
        let is_due = all >= batch.div_ceil(2) || now - self.written >= QUIET;
        let lane = if age.credit >= other.credit {
            age
        } else {
            other
        };
        let pages = lane.credit as usize;
        (pages > 0 && is_due).then_some(Plan {
            cause: lane.cause,
            pages,
            up_to: lane.up_to,
        })
    }

    /// So many of the planned pages were written; if not `more`, there are no more.
    pub fn wrote(&mut self, now: Instant, plan: &Plan, pages: usize, more: bool) {
        self.written = now;
        let lane = self.lanes.iter_mut().find(|lane| lane.cause == plan.cause);
        let lane = lane.expect("a lane made the plan");
        lane.credit = match more {
            true => (lane.credit - pages as f64).max(0.0),
            false => 0.0,
        };
    }
}

#[cfg(test)]
mod tests;
