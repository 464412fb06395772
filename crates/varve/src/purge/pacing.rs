//! When purge works, when it does not, and how much of the processors it takes.
//!
//! # The states of the coordinator
//!
//! Its thread is always in one of these, and makes all transitions itself. Others can only wake it.
//!
//! | state | what it is | what ends it |
//! |---|---|---|
//! | **round** | batches, one after the other, with pauses | nothing is left below the limit; an error; the stop |
//! | **interval** | a pause after a round | 2 or 10 ms, or who demands purge |
//! | **sleep** | waits for work, after the interval | a commit, who demands purge, or its time, which doubles |
//!
//! A round is a sequence of **batches**. A batch reads undo pages (`pending`), sweeps the entries, then the
//! rows (`sweep`), and gives the logs back. A round that worked off logs is followed by a short sleep, one
//! that found nothing to do by a longer one each time: up to 10 s, or up to 100 ms while a view holds history
//! back. Who ends a view wakes nobody, and there may be no commit that does. After an error purge sleeps for
//! 10 s and tries again. A sleep of 2 s or more says that nobody writes: then what the rollback segments have
//! cached goes back to the tablespaces.
//!
//! Two ways of waiting differ in who can end them. A **pause** ends only for who demands purge
//! (`notify_always`: the stop, and `Database::wait_for_purge`). A **sleep** ends also for a commit or a
//! truncation (`notify`). So commits can't wake purge for a moment, which under a long view each would do.
//! Who demands purge ends also the sleep that follows, and thereby all pauses up to it.
//!
//! # Full speed and throttled
//!
//! A view that was open for long leaves a history that purge could work off with all its threads at once.
//! Meanwhile everybody else would be slowed down by half, to save a second. So a batch has one of two paces
//! ([`Pace`]):
//!
//! - **full speed**: all workers, no pauses.
//! - **throttled**: a `SHARE` of the processors, or what it takes to work `HEADWAY` times as fast as history
//!   grows, whichever is more. With one processor's worth or less the coordinator works alone, and pauses
//!   within batches and between them.
//!
//! The coordinator chooses the pace of the next batch when one ends ([`Throttle::after_batch`]): throttled if
//! transactions did anything since the batch before, else full speed. With a history above the limit of lag
//! control it is full speed in any case. A batch tells what the next one may take: its logs, the time and
//! threads that it took, and how many logs joined the history meanwhile. The last two are smoothed, by half
//! with each batch; but a speed that falls counts at once. When copying for a member of the history store
//! begins, a log takes a hundred times as long. With the mean purge would go on to pause as long as it may
//! when it is fast, while the versions behind which it has to go become more. (A log of many pages takes
//! several batches in which none ends: then purge seems slow, and may take more.) The speeds are shown, too:
//! when purge will be through follows from them (`Database::purge_standing`).
//!
//! A batch that waits for the disk takes seconds. So the coordinator pauses within it, too, between the undo
//! pages that it reads and between two chunks of a sweep, where it has no latch and no table; what it still
//! owes then follows the batch. All pauses of a batch end for good ([`BatchPace`]) when nobody else did
//! anything for 100 ms, when the history is above the limit of lag control, or for who demands purge.
//!
//! # Standstill
//!
//! There is history, but a read view or an error keeps purge from going on ([`Standstill`]). Short ones are
//! the order of the day, since every statement has a view; only those that last a second are counted and
//! shown.

use std::time::{Duration, Instant};

use crate::base::Error;
use crate::txn::{Core, Counters, PurgeState};

const SHORTEST_SLEEP: Duration = Duration::from_millis(10);
const LONGEST_SLEEP: Duration = Duration::from_secs(10);
/// While a view holds history back: whoever ends it wakes nobody.
const HELD_SLEEP: Duration = Duration::from_millis(100);
/// A sleep as long as this says that nobody writes.
const IDLE: Duration = Duration::from_secs(2);

const INTERVAL: Duration = Duration::from_millis(10);
/// After a round with so many logs the next one comes sooner: the undo pages that transactions take in turn
/// stay few enough for the processor's cache.
const BUSY_LOGS: usize = 256;
const BUSY_INTERVAL: Duration = Duration::from_millis(2);

/// Of all processors.
const SHARE: f64 = 1.0 / 6.0;
/// Purge works off at least so many logs for each that joins the history.
const HEADWAY: f64 = 4.0;

/// Shorter pauses are put together: sleeping takes some time by itself. Nor are they much longer: whoever
/// wakes up on purge's processor between two pauses waits for the next one, and a commit takes no longer than
/// that.
const SHORTEST_PAUSE: Duration = Duration::from_micros(200);
/// A pause has parts: a setting may change meanwhile, or the others may end.
const LONGEST_PART: Duration = Duration::from_millis(100);

/// From when on it is a standstill.
const SHORTEST_STANDSTILL: Duration = Duration::from_secs(1);

/// How a round ended.
#[derive(Debug)]
pub(super) enum RoundEnd {
    /// It worked off so many logs.
    Worked(usize),
    /// There was nothing to do, or nothing that may be done yet.
    Nothing,
    /// The history store has no room for what has to be copied next.
    Full,
    /// The temporary tablespace is lost. What is left to do concerns tables that nobody can use (TEMP-6).
    TemporaryLost,
    Failed(Error),
}

/// How the coordinator waits between rounds.
pub(super) struct Waiting {
    interval: Duration,
    sleep: Duration,
}

impl Waiting {
    pub fn new() -> Waiting {
        Waiting {
            interval: INTERVAL,
            sleep: SHORTEST_SLEEP,
        }
    }

    /// Nobody has written for about as long as the last sleep took.
    pub fn is_idle(&self) -> bool {
        self.sleep >= IDLE
    }

    /// What follows a round that ended so.
    /// `holds_back`: a view does, or is a member of the history store.
    pub fn after_round(&mut self, end: &RoundEnd, holds_back: bool) {
        let longest = match holds_back {
            true => HELD_SLEEP,
            false => LONGEST_SLEEP,
        };
        match end {
            RoundEnd::Worked(logs) => {
                self.sleep = SHORTEST_SLEEP;
                self.interval = match *logs >= BUSY_LOGS {
                    true => BUSY_INTERVAL,
                    false => INTERVAL,
                };
            }
            RoundEnd::Nothing => self.sleep = (self.sleep * 2).min(longest),
            RoundEnd::Full => self.sleep = HELD_SLEEP,
            RoundEnd::TemporaryLost => self.sleep = SHORTEST_SLEEP,
            RoundEnd::Failed(_) => self.sleep = LONGEST_SLEEP,
        }
    }

    /// The interval, then the sleep.
    pub fn wait(&self, core: &Core, stopped: impl Fn() -> bool) {
        core.purge_wanted.pause(self.interval);
        core.purge_wanted.sleep(self.sleep, stopped);
    }
}

/// What a batch may take of the processors.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Pace {
    /// All that purge is given: nobody else does anything, or the history is above the limit of lag control.
    Full,
    /// So many processors, which may be less than one.
    Throttled(f64),
}

impl Pace {
    /// How many threads a batch may have beside the coordinator, if there are `most`.
    fn workers(self, most: usize) -> usize {
        match self {
            Pace::Full => most,
            Pace::Throttled(processors) => (processors.ceil() as usize).saturating_sub(1).min(most),
        }
    }

    /// How many processors a batch has, if there are `most` workers.
    fn processors(self, most: usize) -> f64 {
        let all = (1 + most) as f64;
        match self {
            Pace::Full => all,
            Pace::Throttled(processors) => processors.min(all),
        }
    }

    /// How long the coordinator pauses for each second that it works; 0 if it may have workers.
    fn pause_ratio(self) -> f64 {
        match self {
            Pace::Full => 0.0,
            Pace::Throttled(processors) => (1.0 / processors - 1.0).max(0.0),
        }
    }
}

/// What was counted since the database was opened.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sums {
    at: Instant,
    /// Logs that joined the history.
    joined: u64,
    done_by_others: u64,
}

impl Sums {
    pub fn read(core: &Core) -> Sums {
        Sums {
            at: Instant::now(),
            joined: core.undo.history_len() + core.counters.purged_logs.get(),
            done_by_others: done_by_others(core),
        }
    }
}

/// What a batch took.
struct BatchCost {
    logs: usize,
    /// Beside the coordinator.
    workers: usize,
    worked: Duration,
}

/// Chooses the pace of each batch.
pub(super) struct Throttle {
    processors: f64,
    pace: Pace,
    /// When the last batch ended, or the round began.
    before: Sums,
    /// Logs a second: those that join the history, and those that one thread works off.
    joining: f64,
    speed: f64,
}

impl Throttle {
    pub fn new(processors: usize, sums: Sums) -> Throttle {
        Throttle {
            processors: processors as f64,
            pace: Pace::Full,
            before: sums,
            joining: 0.0,
            speed: 0.0,
        }
    }

    /// A round begins after a sleep: what the others did meanwhile is no sign of what they do now.
    pub fn begin_round(&mut self, sums: Sums) {
        self.before = sums;
    }

    /// A batch begins, with so many workers at most.
    pub fn begin_batch(&self, most_workers: usize) -> BatchPace {
        BatchPace {
            workers: self.pace.workers(most_workers),
            pause_ratio: self.pace.pause_ratio(),
            begun: Instant::now(),
            paused: Duration::ZERO,
            pauses_are_over: false,
        }
    }

    /// A batch of so many logs has ended: pauses for what is owed for it, and chooses the pace of the next.
    pub fn end_batch(&mut self, core: &Core, logs: usize, mut batch: BatchPace) {
        let cost = BatchCost {
            logs,
            workers: batch.workers,
            worked: batch.worked(),
        };
        let pause = self.after_batch(&cost, Sums::read(core));
        batch.pause_up_to(core, pause);
        if is_far_behind(core) {
            self.pace = Pace::Full;
        }
        let most = core.settings.purge().threads as usize;
        let working_off = self.speed * self.pace.processors(most);
        core.purge_progress.set_speeds(working_off, self.joining);
        let paused = batch.paused.as_micros() as u64;
        Counters::add(&core.counters.purge_pause_usec, paused);
    }

    /// Chooses the pace of the next batch. Returns how long the pauses of this one are to be.
    fn after_batch(&mut self, cost: &BatchCost, sums: Sums) -> Duration {
        let before = std::mem::replace(&mut self.before, sums);
        let worked = cost.worked.as_secs_f64();
        let threads = (1 + cost.workers) as f64;
        let joined = sums.joined.saturating_sub(before.joined) as f64;
        smooth(
            &mut self.joining,
            joined / (sums.at - before.at).as_secs_f64(),
        );
        let speed = cost.logs as f64 / (worked * threads);
        match cost.logs > 0 && speed < self.speed {
            true => self.speed = speed,
            false => smooth(&mut self.speed, speed),
        }
        if sums.done_by_others == before.done_by_others {
            self.pace = Pace::Full;
            return Duration::ZERO;
        }
        let allowed = (self.processors * SHARE).max(HEADWAY * self.joining / self.speed);
        self.pace = Pace::Throttled(allowed);
        let pause = worked * (threads / allowed - 1.0);
        Duration::try_from_secs_f64(pause).unwrap_or_default()
    }
}

/// A batch of no time says nothing.
fn smooth(mean: &mut f64, now: f64) {
    if now.is_finite() {
        *mean = (*mean + now) / 2.0;
    }
}

/// How one batch is worked off, and the pauses that it has had.
pub(super) struct BatchPace {
    /// How many threads may take part beside the coordinator.
    pub workers: usize,
    /// Pauses within the batch, for each second of work.
    pause_ratio: f64,
    begun: Instant,
    paused: Duration,
    pauses_are_over: bool,
}

impl BatchPace {
    /// Between the pauses, up to now.
    fn worked(&self) -> Duration {
        self.begun.elapsed().saturating_sub(self.paused)
    }

    /// In the middle of a batch: pauses for what was worked so far.
    pub fn pause_within(&mut self, core: &Core) {
        if self.pause_ratio > 0.0 && !self.pauses_are_over {
            self.pause_up_to(core, self.worked().mul_f64(self.pause_ratio));
        }
    }

    /// Until all pauses of the batch make up `total`.
    fn pause_up_to(&mut self, core: &Core, total: Duration) {
        // Asked for often, and mostly in vain: looked at before anything else.
        let left = |pace: &BatchPace| total.saturating_sub(pace.paused);
        if left(self) < SHORTEST_PAUSE {
            return;
        }
        let mut done = done_by_others(core);
        loop {
            let left = left(self);
            if left < SHORTEST_PAUSE || self.pauses_are_over {
                return;
            }
            if is_far_behind(core) {
                self.pauses_are_over = true;
                return;
            }
            let (begun, part) = (Instant::now(), left.min(LONGEST_PART));
            let is_demanded = core.purge_wanted.pause(part);
            self.paused += begun.elapsed();
            let before = std::mem::replace(&mut done, done_by_others(core));
            let nobody_else_works = part == LONGEST_PART && done == before;
            self.pauses_are_over = is_demanded || nobody_else_works;
        }
    }
}

/// The history is above the limit of lag control.
fn is_far_behind(core: &Core) -> bool {
    let limit = core.settings.purge().max_purge_lag;
    limit > 0 && core.undo.history_len() > limit
}

/// A sum of anything that transactions do.
fn done_by_others(core: &Core) -> u64 {
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

/// Whether purge is kept from its work, and since when.
#[derive(Default)]
pub(super) enum Standstill {
    /// There is no history, or the last round worked some off.
    #[default]
    None,
    /// Rounds have left history and done nothing since then: not for long enough.
    Short(Instant),
    /// The same for longer; it is counted.
    Counted,
}

impl Standstill {
    /// To be told after each round whether it has left history and done nothing. Returns the state to be
    /// shown.
    pub fn after_round(
        &mut self,
        counters: &Counters,
        is_held_back: bool,
        now: Instant,
    ) -> PurgeState {
        *self = match (&*self, is_held_back) {
            (Standstill::None, true) => Standstill::Short(now),
            (Standstill::Short(since), true) if now - *since >= SHORTEST_STANDSTILL => {
                Counters::add(&counters.purge_stop_count, 1);
                Standstill::Counted
            }
            (Standstill::Short(since), true) => Standstill::Short(*since),
            (Standstill::Counted, true) => Standstill::Counted,
            (Standstill::Counted, false) => {
                Counters::add(&counters.purge_resume_count, 1);
                Standstill::None
            }
            (Standstill::None | Standstill::Short(_), false) => Standstill::None,
        };
        match self {
            Standstill::Counted => PurgeState::Stopped,
            Standstill::None | Standstill::Short(_) => PurgeState::Idle,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const BATCH: Duration = Duration::from_millis(10);

    fn throttle(processors: usize) -> Throttle {
        let sums = Sums {
            at: Instant::now(),
            joined: 0,
            done_by_others: 0,
        };
        Throttle::new(processors, sums)
    }

    fn by_coordinator(logs: usize, worked: Duration) -> BatchCost {
        BatchCost {
            logs,
            workers: 0,
            worked,
        }
    }

    /// Batches of 10 ms, 10,000 logs by the coordinator alone, while so many logs join the history in each
    /// second.
    fn catch_up(throttle: &mut Throttle, batches: u32, joining: u64) -> Vec<f64> {
        let start = Instant::now();
        let mut sums = Sums {
            at: start,
            joined: 0,
            done_by_others: 0,
        };
        throttle.begin_round(sums);
        let mut duties = Vec::new();
        for _ in 0..batches {
            sums.at += BATCH;
            sums.joined = ((sums.at - start).as_secs_f64() * joining as f64) as u64;
            sums.done_by_others += 1;
            let pause = throttle.after_batch(&by_coordinator(10_000, BATCH), sums);
            duties.push(BATCH.as_secs_f64() / (BATCH + pause).as_secs_f64());
            sums.at += pause;
        }
        duties
    }

    #[test]
    fn a_share_of_two_processors_is_a_third_of_one() {
        let duties = catch_up(&mut throttle(2), 20, 10_000);
        assert!((duties[19] - 1.0 / 3.0).abs() < 0.01, "{duties:?}");
    }

    #[test]
    fn a_pace_says_how_many_processors_a_batch_has() {
        assert_eq!(Pace::Full.processors(3), 4.0);
        assert_eq!(Pace::Throttled(0.5).processors(3), 0.5);
        assert_eq!(Pace::Throttled(9.0).processors(3), 4.0);
    }

    #[test]
    fn of_many_processors_it_is_several_threads_without_a_pause() {
        let mut throttle = throttle(24);
        let duties = catch_up(&mut throttle, 20, 10_000);
        assert_eq!(duties[19], 1.0);
        let workers = |most| throttle.begin_batch(most).workers;
        assert_eq!((workers(8), workers(2)), (3, 2));
    }

    /// One thread works off a million logs a second.
    #[test]
    fn purge_stays_ahead_of_what_joins() {
        let duties = catch_up(&mut throttle(2), 20, 150_000);
        assert!((duties[19] - 0.6).abs() < 0.02, "{duties:?}");
        let mut throttle = throttle(2);
        let duties = catch_up(&mut throttle, 20, 500_000);
        assert_eq!((duties[19], throttle.begin_batch(8).workers), (1.0, 1));
    }

    /// As when copying for a member of the history store begins.
    #[test]
    fn a_batch_that_is_much_slower_is_followed_by_no_pause() {
        let mut throttle = throttle(2);
        catch_up(&mut throttle, 20, 150_000);
        let mut sums = throttle.before;
        sums.at += 100 * BATCH;
        sums.joined += 150_000;
        sums.done_by_others += 1;
        let pause = throttle.after_batch(&by_coordinator(10_000, 100 * BATCH), sums);
        assert_eq!(
            (pause, throttle.begin_batch(8).workers),
            (Duration::ZERO, 8)
        );
    }

    #[test]
    fn nobody_else_means_full_speed() {
        let mut throttle = throttle(2);
        assert_eq!(throttle.begin_batch(32).workers, 32);
        catch_up(&mut throttle, 20, 10_000);
        assert_eq!(throttle.begin_batch(32).workers, 0);
        let mut sums = throttle.before;
        sums.at += BATCH;
        let pause = throttle.after_batch(&by_coordinator(1, BATCH), sums);
        assert_eq!((pause, throttle.pace), (Duration::ZERO, Pace::Full));
        let batch = throttle.begin_batch(32);
        assert_eq!((batch.workers, batch.pause_ratio), (32, 0.0));
    }

    /// Batches that wait for the disk take seconds.
    #[test]
    fn a_long_batch_is_followed_by_a_pause_twice_as_long() {
        let mut throttle = throttle(2);
        let worked = Duration::from_secs(3);
        let mut sums = throttle.before;
        sums.at += worked;
        sums.done_by_others = 1;
        let pause = throttle.after_batch(&by_coordinator(100_000, worked), sums);
        let ratio = throttle.begin_batch(0).pause_ratio;
        assert!((ratio - 2.0).abs() < 1e-9, "{ratio}");
        assert!((pause.as_secs_f64() - 6.0).abs() < 1e-6, "{pause:?}");
    }

    #[test]
    fn batches_of_no_time_change_nothing() {
        let mut throttle = throttle(2);
        catch_up(&mut throttle, 5, 10_000);
        let mut sums = throttle.before;
        sums.done_by_others += 1;
        let speed = throttle.speed;
        throttle.after_batch(&by_coordinator(0, Duration::ZERO), sums);
        let workers = throttle.begin_batch(32).workers;
        assert_eq!((throttle.speed, workers), (speed, 0));
    }

    /// Nobody may come after the last reader: its end must not be noticed ten seconds later.
    #[test]
    fn purge_looks_often_while_history_is_held_back() {
        let mut waiting = Waiting::new();
        for _ in 0..20 {
            waiting.after_round(&RoundEnd::Nothing, true);
        }
        assert!(waiting.sleep <= Duration::from_millis(100) && !waiting.is_idle());
        for _ in 0..20 {
            waiting.after_round(&RoundEnd::Nothing, false);
        }
        assert!(waiting.sleep == LONGEST_SLEEP && waiting.is_idle());
    }

    #[test]
    fn a_round_with_many_logs_is_soon_followed_by_the_next() {
        let mut waiting = Waiting::new();
        for (logs, interval) in [(1, INTERVAL), (BUSY_LOGS, BUSY_INTERVAL), (255, INTERVAL)] {
            waiting.after_round(&RoundEnd::Worked(logs), true);
            assert_eq!(
                (waiting.interval, waiting.sleep),
                (interval, SHORTEST_SLEEP)
            );
        }
    }

    #[test]
    fn only_standstills_that_last_are_counted_and_once() {
        let (counters, mut standstill) = (Counters::default(), Standstill::default());
        let begun = Instant::now();
        let mut at = |ms, is_held_back| {
            let now = begun + Duration::from_millis(ms);
            let state = standstill.after_round(&counters, is_held_back, now);
            let counts = [&counters.purge_stop_count, &counters.purge_resume_count];
            let counts = counts.map(|c| c.get());
            assert_eq!(state == PurgeState::Stopped, counts[0] > counts[1]);
            counts
        };
        assert_eq!(at(0, true), [0, 0]);
        assert_eq!(at(900, true), [0, 0]);
        assert_eq!(at(950, false), [0, 0]);
        assert_eq!(at(1500, true), [0, 0]);
        assert_eq!(at(2600, true), [1, 0]);
        assert_eq!(at(9000, true), [1, 0]);
        assert_eq!(at(9001, false), [1, 1]);
        assert_eq!(at(9002, false), [1, 1]);
    }
}
