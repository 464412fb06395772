//! The page cleaner's thread: when to write how many pages.
//!
//! Every tenth of a second, and whenever it is woken, it asks the system for the memory that the pool will use next
//! (`buffer/replace.rs`), and looks after three things, the most urgent first:
//!
//! 1. **Frames.** Threads should find free frames without waiting: clean unused pages are taken out of their frames; if that
//!    gives too few, unused dirty ones are written.
//! 2. **Age.** The *age* is the distance from the oldest change that is not in a data file to the end of the log, as a
//!    fraction of the log's capacity. Above 7/8 it writes at full speed, oldest first, until 3/4, with a checkpoint after each batch because
//!    threads may be waiting for room in the log. Below, it lets the oldest change advance at `rate × (age / 0.6)²`, `rate` being the
//!    smoothed speed at which the log grows: at a steady load the age settles at 0.6 of the capacity with as many pages
//!    written as are needed to stay there, and no wave of full-speed writing is ever due. Pages changed again and again are written
//!    once per trip through the log.
//! 3. **Checkpoint**, once a second, or when it can advance by 1/32 of the capacity.
//!
//! When the log has not grown for a second it writes `io_capacity_pages` per second until no page is dirty.
//!
//! An error has poisoned the database when it comes here; from then on the thread only waits to be stopped.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::{Cause, FlushSettings, Shared};
use crate::base::{Lsn, Result};

/// How long the cleaner rests while there is something to do, and while there is nothing.
const TICK: Duration = Duration::from_millis(100);
const IDLE_TICK: Duration = Duration::from_secs(1);
/// The shortest time over which a speed is measured.
const MEASURE: Duration = Duration::from_millis(50);
const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(1);

/// Fractions of the log's capacity: full speed from `URGENT` down to `RELAXED`; `STEADY` is where a steady load settles.
const URGENT: f64 = 0.875;
const RELAXED: f64 = 0.75;
const STEADY: f64 = 0.6;

/// Batches at full speed, or for frames, before the other duties get their turn.
const BATCHES_IN_A_ROW: usize = 16;

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
    settings: FlushSettings,
    pace: Pace,
    checkpointed: Instant,
}

/// The speed of the log, and how far the pages should have followed.
struct Pace {
    measured: Instant,
    end: Lsn,
    /// Bytes per second, smoothed over about a second.
    rate: f64,
    /// Changes up to here are to be in data files.
    goal: f64,
    /// Since when the log has not grown.
    idle_since: Instant,
    /// Pages that may be written because of idleness.
    idle_credit: f64,
}

/// How fast the oldest change advances, as a multiple of the speed of the log, at some age.
fn gain(age: f64) -> f64 {
    (age / STEADY).powi(2)
}

impl Pace {
    fn new(end: Lsn, now: Instant) -> Pace {
        Pace {
            measured: now,
            end,
            rate: 0.0,
            goal: 0.0,
            idle_since: now,
            idle_credit: 0.0,
        }
    }

    /// Takes a measurement, if it is time for one. `oldest`: the oldest unwritten change.
    fn measure(&mut self, now: Instant, end: Lsn, oldest: Lsn, capacity: f64, io_capacity: f64) {
        let elapsed = now - self.measured;
        if elapsed < MEASURE {
            return;
        }
        let seconds = elapsed.as_secs_f64().min(1.0);
        let speed = (end.0 - self.end.0) as f64 / elapsed.as_secs_f64();
        self.rate += (speed - self.rate) * (seconds / (seconds + 1.0));
        let age = (end.0 - oldest.0) as f64 / capacity;
        self.goal = self.goal.max(oldest.0 as f64) + self.rate * gain(age) * seconds;
        self.goal = self.goal.min(end.0 as f64);
        if end != self.end {
            self.idle_since = now;
            self.idle_credit = 0.0;
        } else if now - self.idle_since >= IDLE_TICK {
            self.idle_credit = (self.idle_credit + io_capacity * seconds).min(io_capacity);
        }
        self.measured = now;
        self.end = end;
    }
}

impl Cleaner {
    pub fn new(shared: Arc<Shared>, signal: Arc<Signal>, settings: FlushSettings) -> Cleaner {
        let now = Instant::now();
        let pace = Pace::new(shared.log.next_lsn(), now);
        Cleaner {
            shared,
            signal,
            settings,
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
        let more_frames = self.keep_free_frames()?;
        let more_age = self.keep_age()?;
        self.checkpoint_if_due()?;
        if more_frames || more_age {
            return Ok(Duration::ZERO);
        }
        let clean = self.shared.checkpointer.oldest_change().is_none();
        let idle = self.pace.idle_since.elapsed() >= IDLE_TICK;
        Ok(if clean && idle { IDLE_TICK } else { TICK })
    }

    /// Duty 1. True if there is more to do.
    fn keep_free_frames(&self) -> Result<bool> {
        let pool = &self.shared.pool;
        let target = (pool.n_frames() / 32).clamp(8, 1024);
        let look_at = (pool.n_frames() / 4).max(256);
        for _ in 0..BATCHES_IN_A_ROW {
            if pool.refill_free(target) >= target && pool.frames_wanted() == 0 {
                return Ok(false);
            }
            if self.shared.flush_unused(look_at)? == 0 {
                // Pages in use, or clean ones that the next round of the clock will get. Threads that still wait wake us.
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The oldest unwritten change; the log's end if there is none.
    fn oldest(&self, end: Lsn) -> Lsn {
        self.shared
            .checkpointer
            .oldest_change()
            .map_or(end, |l| l.min(end))
    }

    /// Duty 2. True if there is more to do at full speed.
    fn keep_age(&mut self) -> Result<bool> {
        let capacity = self.shared.log.capacity() as f64;
        let end = self.shared.log.next_lsn();
        let oldest = self.oldest(end);
        let io_capacity = self.settings.io_capacity_pages as f64;
        self.pace
            .measure(Instant::now(), end, oldest, capacity, io_capacity);
        // Threads wait for the checkpoint, so that is what decides about urgency.
        if self.shared.log.checkpoint_age_bytes() as f64 / capacity > URGENT {
            return self.catch_up(capacity);
        }
        self.follow_goal()?;
        self.use_idle_time()?;
        Ok(false)
    }

    /// Full speed, oldest first.
    fn catch_up(&mut self, capacity: f64) -> Result<bool> {
        for _ in 0..BATCHES_IN_A_ROW {
            self.checkpoint()?;
            let age = self.shared.log.checkpoint_age_bytes() as f64 / capacity;
            if age < RELAXED || self.signal.stopped() {
                return Ok(false);
            }
            let end = self.shared.log.next_lsn();
            let batch = self.shared.batch_pages;
            if self.shared.flush_oldest(end, batch, Cause::Urgent)? == 0 {
                // The oldest pages are in others' hands; look again at the next tick.
                return Ok(false);
            }
        }
        self.checkpoint()?;
        Ok(true)
    }

    /// Adaptive: pages changed up to the goal.
    fn follow_goal(&self) -> Result<()> {
        let goal = Lsn(self.pace.goal as u64);
        let batch = self.shared.batch_pages;
        for _ in 0..BATCHES_IN_A_ROW {
            if self.shared.flush_oldest(goal, batch, Cause::Adaptive)? < batch {
                break;
            }
            if self.shared.pool.frames_wanted() > 0 {
                break;
            }
        }
        Ok(())
    }

    fn use_idle_time(&mut self) -> Result<()> {
        let pages = (self.pace.idle_credit as usize).min(self.shared.batch_pages);
        if pages == 0 {
            return Ok(());
        }
        let end = self.shared.log.next_lsn();
        let written = self.shared.flush_oldest(end, pages, Cause::Idle)?;
        self.pace.idle_credit -= written as f64;
        Ok(())
    }

    /// Duty 3.
    fn checkpoint_if_due(&mut self) -> Result<()> {
        let log = &self.shared.log;
        let oldest = self.oldest(log.next_lsn());
        let gained = oldest.0.saturating_sub(log.checkpoint_lsn().0);
        if gained >= log.capacity() / 32 || self.checkpointed.elapsed() >= CHECKPOINT_INTERVAL {
            self.checkpoint()?;
        }
        Ok(())
    }

    fn checkpoint(&mut self) -> Result<()> {
        self.shared.checkpointer.run(false)?;
        self.checkpointed = Instant::now();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// At a steady load the age settles at `STEADY` and stays there: no waves.
    #[test]
    fn a_steady_load_settles() {
        let capacity = 100e6;
        for rate in [1e6, 5e6, 20e6] {
            let mut now = Instant::now();
            let mut pace = Pace::new(Lsn(0), now);
            let mut end = 0.0;
            let mut ages = Vec::new();
            let ticks = (10.0 * capacity / rate / 0.1) as usize;
            for _ in 0..ticks {
                now += TICK;
                end += rate * 0.1;
                // Every page up to the last goal has been written.
                let oldest = Lsn(pace.goal as u64);
                pace.measure(now, Lsn(end as u64), oldest, capacity, 200.0);
                ages.push((end - pace.goal) / capacity);
            }
            assert!(ages.iter().all(|&a| a < URGENT), "never at full speed");
            let settled = &ages[ticks / 2..];
            let spread = settled
                .iter()
                .fold((1.0f64, 0.0f64), |(l, h), &a| (l.min(a), h.max(a)));
            assert!(
                spread.0 > STEADY - 0.05 && spread.1 < STEADY + 0.05,
                "{spread:?} at {rate}"
            );
        }
    }

    #[test]
    fn idle_time_is_used_only_after_a_quiet_second() {
        let start = Instant::now();
        let mut pace = Pace::new(Lsn(0), start);
        pace.measure(start + TICK, Lsn(1000), Lsn(8), 1e6, 200.0);
        pace.measure(start + TICK * 6, Lsn(1000), Lsn(8), 1e6, 200.0);
        assert_eq!(pace.idle_credit, 0.0);
        pace.measure(start + TICK * 12, Lsn(1000), Lsn(8), 1e6, 200.0);
        assert!(pace.idle_credit > 0.0);
        pace.measure(start + TICK * 90, Lsn(1000), Lsn(8), 1e6, 200.0);
        assert!(pace.idle_credit <= 200.0, "a second's worth at most");
        pace.measure(start + TICK * 91, Lsn(1008), Lsn(8), 1e6, 200.0);
        assert_eq!(pace.idle_credit, 0.0);
    }
}
