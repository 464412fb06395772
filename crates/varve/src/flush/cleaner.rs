//! The page cleaner's thread: when to write pages. How many is `pace`'s.
//!
//! Every tenth of a second, every second while there is nothing to do, and whenever it is woken, it asks the
//! system for the memory that the pool will use next (`buffer/replace.rs`), and looks after five things, the
//! most urgent first:
//!
//! 1. **Pages of tablespaces that are gone** leave their frames (BUF-10), for a quarter of a tick at a time:
//!    that makes room, and leaves less to write.
//! 2. **Frames.** Threads should find free frames without waiting: clean unused pages are taken out of their
//!    frames; if that gives too few, unused dirty ones are written. `lru_scan_depth` says how many are kept;
//!    below half of that the cleaner is woken.
//! 3. **Age.** While the checkpoint age is above the synchronous watermark it writes at full speed, oldest
//!    first, with a checkpoint after each batch, because threads may be waiting for room in the log.
//!    Otherwise it writes what `pace` says.
//! 4. **Checkpoint**, once a second, or when it can advance by 1/32 of the capacity.
//! 5. **Frames of a pool that was made smaller** are emptied (BUF-9), for a quarter of a tick at a time.
//!
//! No thread of a user writes pages. A thread that finds the log full waits, without latches, for the next
//! checkpoint (`redo/log.rs`), which comes after each batch; it would only queue for the doublewrite file if
//! it wrote a batch of its own.
//!
//! An error has poisoned the database when it comes here; from then on the thread only waits to be stopped.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::counters::Cause;
use super::pace::{Pace, Plan, SYNC, Sight, TICK};
use super::{FlushOptions, Shared};
use crate::base::{Lsn, Result};

/// How long the cleaner rests while there is nothing to do.
const IDLE_TICK: Duration = Duration::from_secs(1);
const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(1);

/// The rounds of the clock that a page has left which was used once since it was last visited.
const USED_ONCE: u32 = 2;

/// A batch that is at least half as large as was wanted: there are more pages like these.
fn is_most(written: usize, wanted: usize) -> bool {
    2 * written >= wanted
}

/// Batches at full speed, or for frames, before the other duties get their turn.
const BATCHES_IN_A_ROW: usize = 16;

/// Frames that are looked at, for pages of tablespaces that are gone or because they are to go themselves,
/// before the cleaner asks whether to go on.
const PORTION: usize = 4096;

/// Wakes the cleaner. Kept apart from everything else, as the pool and the log refer to it.
#[derive(Default)]
pub struct Signal {
    state: Mutex<SignalState>,
    changed: Condvar,
}

#[derive(Default)]
struct SignalState {
    woken: bool,
    stop: bool,
}

impl Signal {
    pub fn wake(&self) {
        self.state.lock().woken = true;
        self.changed.notify_one();
    }

    pub fn stop(&self) {
        self.state.lock().stop = true;
        self.changed.notify_one();
    }

    fn stopped(&self) -> bool {
        self.state.lock().stop
    }

    /// Waits for a wake-up or until `rest` is over; false to stop.
    fn wait(&self, rest: Duration) -> bool {
        let deadline = Instant::now() + rest;
        let mut state = self.state.lock();
        while !state.woken && !state.stop {
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                break;
            }
        }
        state.woken = false;
        !state.stop
    }
}

pub struct Cleaner {
    shared: Arc<Shared>,
    signal: Arc<Signal>,
    pace: Pace,
    checkpointed: Instant,
}

impl Cleaner {
    pub fn new(shared: Arc<Shared>, signal: Arc<Signal>) -> Cleaner {
        let now = Instant::now();
        let pace = Pace::new(shared.log.next_lsn(), now);
        Cleaner {
            shared,
            signal,
            pace,
            checkpointed: now,
        }
    }

    /// The thread's body: returns when it is stopped.
    pub fn run(&mut self) {
        let mut rest = TICK;
        self.shared.pool.back_ahead();
        while self.signal.wait(rest) {
            if self.shared.log.check().is_err() {
                rest = IDLE_TICK;
                continue;
            }
            rest = match self.round() {
                Ok(rest) => rest,
                // Poisoned where it happened, with the reason.
                Err(_) => IDLE_TICK,
            };
        }
    }

    /// One look at all duties; returns how long to rest.
    fn round(&mut self) -> Result<Duration> {
        self.shared.pool.back_ahead();
        let options = self.shared.options();
        let more_gone = self.forget_gone();
        let more_frames = self.keep_free_frames(&options)?;
        let more_age = self.keep_age(&options)?;
        self.checkpoint_if_due()?;
        let more_leave = self.withdraw_frames()?;
        if more_gone || more_frames || more_age || more_leave {
            return Ok(Duration::ZERO);
        }
        let pool = &self.shared.pool;
        let clean = pool.dirty_logged_pages() == 0 && pool.frames_leaving() == 0;
        Ok(match clean && self.pace.is_quiet(Instant::now()) {
            true => IDLE_TICK,
            false => TICK,
        })
    }

    /// Duty 1. True if there is more to do.
    fn forget_gone(&self) -> bool {
        let begun = Instant::now();
        while self.shared.pool.forget_gone(PORTION) {
            if begun.elapsed() >= TICK / 4 || self.signal.stopped() {
                return true;
            }
        }
        false
    }

    /// Duty 2. True if there is more to do.
    fn keep_free_frames(&self, options: &FlushOptions) -> Result<bool> {
        let pool = &self.shared.pool;
        let depth = options.lru_scan_depth as usize;
        let frames = pool.usable_frames();
        let target = depth.min(frames / 32).max(8);
        let look_at = depth.saturating_mul(4).min(frames / 4).max(256);
        for _ in 0..BATCHES_IN_A_ROW {
            if pool.refill_free(target) >= target && pool.frames_wanted() == 0 {
                return Ok(false);
            }
            let batch = self.shared.batch_pages();
            if self.shared.flush_cold(look_at, 0, batch, Cause::Lru)? == 0 {
                // Pages in use, or clean ones that the next round of the clock will get. Threads that still
                // wait wake us.
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The oldest unwritten change; the log's end if there is none.
    fn oldest(&self, end: Lsn) -> Lsn {
        let oldest = self.shared.checkpointer.oldest_change();
        oldest.map_or(end, |l| l.min(end))
    }

    /// Duty 3. True if there is more to do at full speed.
    fn keep_age(&mut self, options: &FlushOptions) -> Result<bool> {
        let end = self.shared.log.next_lsn();
        let pool = &self.shared.pool;
        let sight = Sight {
            now: Instant::now(),
            end,
            oldest: self.oldest(end),
            capacity: self.shared.log.capacity(),
            dirty: pool.dirty_logged_pages(),
            frames: pool.usable_frames(),
            lru_pages: self.pages_not_by_age(),
        };
        self.pace.measure(&sight, options, |lsn, most| {
            pool.dirty_pages_up_to(lsn, most)
        });
        self.shared.counters.tell(&sight, self.pace.estimates());
        // Threads wait for the checkpoint, so that is what decides about urgency.
        if self.is_urgent() {
            return self.catch_up(options);
        }
        self.follow_plan()?;
        Ok(false)
    }

    /// How many pages were written for being unused, ever.
    fn pages_not_by_age(&self) -> u64 {
        let counters = &self.shared.counters;
        let of = [&counters.lru, &counters.max_dirty];
        of.map(|c| c.pages.load(Ordering::Relaxed)).iter().sum()
    }

    fn is_urgent(&self) -> bool {
        let log = &self.shared.log;
        log.counted_age_bytes() as f64 / log.capacity() as f64 > SYNC
    }

    /// Full speed, oldest first, until the age is below the synchronous watermark.
    fn catch_up(&mut self, options: &FlushOptions) -> Result<bool> {
        for _ in 0..BATCHES_IN_A_ROW {
            self.checkpoint()?;
            if !self.is_urgent() || self.signal.stopped() {
                return Ok(false);
            }
            if self.shared.pool.frames_wanted() > 0 {
                self.keep_free_frames(options)?;
            }
            let end = self.shared.log.next_lsn();
            let batch = self.shared.batch_pages();
            if self.shared.flush_oldest(end, batch, Cause::Sync)? == 0 {
                // The oldest pages are in others' hands; look again at the next tick.
                return Ok(false);
            }
        }
        self.checkpoint()?;
        Ok(true)
    }

    /// For a round at most, and until frames are wanted: the other duties come first.
    fn follow_plan(&mut self) -> Result<()> {
        let begun = Instant::now();
        let batch = self.shared.batch_pages();
        while let Some(plan) = self.pace.plan(Instant::now(), batch) {
            let wanted = plan.pages.min(batch);
            let written = self.write_planned(&plan, wanted)?;
            self.pace
                .wrote(Instant::now(), &plan, written, is_most(written, wanted));
            if begun.elapsed() >= TICK || self.shared.pool.frames_wanted() > 0 {
                break;
            }
        }
        Ok(())
    }

    fn write_planned(&self, plan: &Plan, wanted: usize) -> Result<usize> {
        match plan.cause {
            Cause::MaxDirty => self.write_cold(plan, wanted),
            cause => self.shared.flush_oldest(plan.up_to, wanted, cause),
        }
    }

    /// Pages that are written because there are too many dirty ones are those that will have to give way
    /// next: they go then without being written again. If there are too few of them, others that are not used
    /// all the time. Those that are would be dirty again at once: of them the oldest ones are written, the
    /// more the further the limit is exceeded.
    fn write_cold(&self, plan: &Plan, wanted: usize) -> Result<usize> {
        let (shared, cause) = (&self.shared, plan.cause);
        let frames = shared.pool.usable_frames();
        let mut written = shared.flush_cold(frames / 4, 0, wanted, cause)?;
        if !is_most(written, wanted) {
            written += shared.flush_cold(frames, USED_ONCE, wanted - written, cause)?;
        }
        let hot = (wanted as f64 * self.excess_of_dirty()) as usize;
        if written < hot {
            written += shared.flush_oldest(plan.up_to, hot - written, cause)?;
        }
        Ok(written)
    }

    /// How far the share of dirty pages is above its limit, as a share of the limit; 1 at most.
    fn excess_of_dirty(&self) -> f64 {
        let pool = &self.shared.pool;
        let dirty = pool.dirty_logged_pages() as f64 / pool.usable_frames() as f64 * 100.0;
        let limit = self.shared.options().max_dirty_pages_pct;
        ((dirty - limit) / limit).clamp(0.0, 1.0)
    }

    /// Duty 4.
    fn checkpoint_if_due(&mut self) -> Result<()> {
        let log = &self.shared.log;
        let oldest = self.oldest(log.next_lsn());
        let gained = oldest.0.saturating_sub(log.checkpoint_lsn().0);
        if gained >= log.capacity() / 32 || self.checkpointed.elapsed() >= CHECKPOINT_INTERVAL {
            self.checkpoint()?;
        }
        Ok(())
    }

    /// Duty 5. True if there is more to do at once. Each frame is looked at once: a page that is changed all
    /// the time, or in use, has to wait for the next tick.
    fn withdraw_frames(&self) -> Result<bool> {
        let begun = Instant::now();
        let (shared, pool) = (&self.shared, &self.shared.pool);
        let mut left = pool.frames_leaving();
        let mut is_any_gone = false;
        while left > 0 {
            let found = pool.withdraw_leaving(left.min(PORTION), shared.batch_pages());
            if found.seen == 0 {
                break;
            }
            left = left.saturating_sub(found.seen);
            is_any_gone |= found.gone > 0;
            if !found.dirty.is_empty() {
                shared.flush_frames(&found.dirty)?;
            }
            let is_over = begun.elapsed() >= TICK / 4 || self.signal.stopped();
            if is_over || pool.frames_wanted() > 0 || self.is_urgent() {
                return Ok(left > 0 || is_any_gone);
            }
        }
        Ok(is_any_gone)
    }

    fn checkpoint(&mut self) -> Result<()> {
        self.shared.checkpointer.run(false)?;
        self.checkpointed = Instant::now();
        Ok(())
    }
}
