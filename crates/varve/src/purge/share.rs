//! What purge takes of the processors while transactions run.
//!
//! A view that was open for long leaves a history that purge could work off with all its threads at once;
//! meanwhile everybody else would be slowed down by half, to save a second. So while there is other work,
//! purge takes a `SHARE` of the processors, or what it takes to work `HEADWAY` times as fast as history
//! grows, whichever is more. With one processor's worth or less the coordinator works alone, and pauses
//! within batches and between them (`rest`). With nothing else to do, or with a history above the limit of
//! lag control, purge takes all that it is given. (A log of many pages takes several batches in which none
//! ends: then purge seems slow, and may take more.)
//!
//! One batch tells what the next one may take: its logs, the time and threads that it took, and how many logs
//! joined the history meanwhile. The last two are smoothed, by half with each batch.

use std::time::{Duration, Instant};

/// Of all processors.
const SHARE: f64 = 1.0 / 6.0;
/// Purge works off at least so many logs for each that joins the history.
const HEADWAY: f64 = 4.0;

/// What is counted since the database was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Sums {
    /// Logs that joined the history.
    pub joined: u64,
    /// Anything that transactions do.
    pub done_by_others: u64,
}

pub(super) struct Share {
    processors: f64,
    /// How much purge may take: 1 is one processor.
    allowed: f64,
    /// When and what was seen last.
    before: (Instant, Sums),
    /// Logs a second: those that join the history, and those that one thread works off.
    joining: f64,
    speed: f64,
}

impl Share {
    pub fn new(processors: usize) -> Share {
        Share {
            processors: processors as f64,
            allowed: f64::INFINITY,
            before: (Instant::now(), Sums::default()),
            joining: 0.0,
            speed: 0.0,
        }
    }

    /// Purge begins after it slept: what the others did meanwhile is no sign of what they do now.
    pub fn begin(&mut self, now: Instant, sums: Sums) {
        self.before = (now, sums);
    }

    /// How many threads the next batch may have beside the coordinator, if there are `most`.
    pub fn helpers(&self, most: usize) -> usize {
        (self.allowed.ceil() as usize).saturating_sub(1).min(most)
    }

    /// The next batch may take all that there is.
    pub fn take_all(&mut self) {
        self.allowed = f64::INFINITY;
    }

    /// How long the coordinator pauses for each second that it works; 0 if it may have helpers.
    pub fn pause_ratio(&self) -> f64 {
        (1.0 / self.allowed - 1.0).max(0.0)
    }

    /// After a batch of `logs`, at which this many helpers `worked` for so long: how long purge is to pause
    /// for it.
    pub fn pause_after(
        &mut self,
        (logs, helpers): (usize, usize),
        (worked, now): (Duration, Instant),
        sums: Sums,
    ) -> Duration {
        let (then, before) = std::mem::replace(&mut self.before, (now, sums));
        let worked = worked.as_secs_f64();
        let threads = (1 + helpers) as f64;
        let joined = sums.joined.saturating_sub(before.joined) as f64;
        smooth(&mut self.joining, joined / (now - then).as_secs_f64());
        smooth(&mut self.speed, logs as f64 / (worked * threads));
        if sums.done_by_others == before.done_by_others {
            self.take_all();
            return Duration::ZERO;
        }
        self.allowed = (self.processors * SHARE).max(HEADWAY * self.joining / self.speed);
        let pause = worked * (threads / self.allowed - 1.0);
        Duration::try_from_secs_f64(pause).unwrap_or_default()
    }
}

/// A batch of no time says nothing.
fn smooth(mean: &mut f64, now: f64) {
    if now.is_finite() {
        *mean = (*mean + now) / 2.0;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const BATCH: Duration = Duration::from_millis(10);

    /// Batches of 10 ms, 10,000 logs by the coordinator alone, while so many logs join the history in each
    /// second.
    fn catch_up(share: &mut Share, batches: u32, joining: u64) -> Vec<f64> {
        let start = Instant::now();
        let (mut now, mut sums) = (start, Sums::default());
        share.begin(now, sums);
        let mut duties = Vec::new();
        for _ in 0..batches {
            now += BATCH;
            sums.joined = ((now - start).as_secs_f64() * joining as f64) as u64;
            sums.done_by_others += 1;
            let helpers = share.helpers(0);
            let pause = share.pause_after((10_000, helpers), (BATCH, now), sums);
            duties.push(BATCH.as_secs_f64() / (BATCH + pause).as_secs_f64());
            now += pause;
        }
        duties
    }

    #[test]
    fn a_share_of_two_processors_is_a_third_of_one() {
        let duties = catch_up(&mut Share::new(2), 20, 10_000);
        assert!((duties[19] - 1.0 / 3.0).abs() < 0.01, "{duties:?}");
    }

    #[test]
    fn of_many_processors_it_is_several_threads_without_a_pause() {
        let mut share = Share::new(24);
        let duties = catch_up(&mut share, 20, 10_000);
        assert_eq!(duties[19], 1.0);
        assert_eq!((share.helpers(8), share.helpers(2)), (3, 2));
    }

    /// One thread works off a million logs a second.
    #[test]
    fn purge_stays_ahead_of_what_joins() {
        let duties = catch_up(&mut Share::new(2), 20, 150_000);
        assert!((duties[19] - 0.6).abs() < 0.02, "{duties:?}");
        let mut share = Share::new(2);
        let duties = catch_up(&mut share, 20, 500_000);
        assert_eq!((duties[19], share.helpers(8)), (1.0, 1));
    }

    #[test]
    fn nobody_else_or_too_much_history_means_all() {
        let mut share = Share::new(2);
        catch_up(&mut share, 20, 10_000);
        assert_eq!(share.helpers(32), 0);
        share.take_all();
        assert_eq!(share.helpers(32), 32);
        catch_up(&mut share, 20, 10_000);
        assert_eq!(share.helpers(32), 0);
        let (now, sums) = share.before;
        let pause = share.pause_after((1, 0), (BATCH, now + BATCH), sums);
        assert_eq!((pause, share.helpers(32)), (Duration::ZERO, 32));
    }

    /// Batches that wait for the disk take seconds.
    #[test]
    fn a_long_batch_is_followed_by_a_pause_twice_as_long() {
        let mut share = Share::new(2);
        let begun = share.before.0;
        let sums = Sums {
            joined: 0,
            done_by_others: 1,
        };
        let worked = Duration::from_secs(3);
        let pause = share.pause_after((100_000, 0), (worked, begun + worked), sums);
        assert!(
            (share.pause_ratio() - 2.0).abs() < 1e-9,
            "{}",
            share.pause_ratio()
        );
        assert!((pause.as_secs_f64() - 6.0).abs() < 1e-6, "{pause:?}");
    }

    #[test]
    fn batches_of_no_time_change_nothing() {
        let mut share = Share::new(2);
        catch_up(&mut share, 5, 10_000);
        let (now, mut sums) = share.before;
        sums.done_by_others += 1;
        let speed = share.speed;
        share.pause_after((0, 0), (Duration::ZERO, now), sums);
        assert_eq!((share.speed, share.helpers(32)), (speed, 0));
    }
}
