//! The pace of row changes while purge lags: writers take turns, and wait for theirs.
//!
//! Turns are points in time, one interval apart. Each row change of a user's logged table that leaves
//! something to purge (an update, a deletion, an insert where a delete-marked row lies) takes the next one,
//! and its writer sleeps until then. So all writers together change rows at one rate, however many they are
//! and however fast each would be: a delay per row would have to be found anew for each load, and has no
//! effect at all as long as writers wait for processors anyway. How long the interval is says the lag
//! controller (purge/lag_rate.rs).
//!
//! - **PACE-1** Nobody waits for longer than `most`: a turn further away is taken that early, and those after
//!   it come one interval later. Then `most` is what holds writers back, not the interval.
//! - **PACE-2** A waiter holds no latch, no page and no stripe, but the row locks of its transaction: that of
//!   the row it is about to change, which was locked when it was read, and those of rows before.
//! - **PACE-3** A wait ends at once when the transaction is interrupted, with `Interrupted` and before the
//!   row was changed (a row whose primary key changes is deleted and inserted: if that un-delete-marks a row,
//!   there is a second wait, and the statement takes the deletion back); and when the pace ends, which a
//!   change of the settings and the closing of the database can bring about.
//!
//! Inserts of new keys, temporary tables, the catalog, rollback, purge and the end of a transaction, a
//! prepared and recovered one too, take no turns: they leave nothing to purge, or must not wait.
//!
//! A sleep takes at least 50 µs longer than asked for. So a writer that is due within `SHORTEST` does not
//! sleep; its turn is taken all the same, and the next ones come later. A writer that overslept finds turns
//! that have passed, and uses them up, as long as they are not older than `CATCH_UP`.
//!
//! Threads: turns are drawn by compare-and-swap. Everything else is Relaxed: a turn drawn by an interval that
//! has just changed is none too early nor too late. Sleepers look at the interval and at their interrupt flag
//! under the mutex, and a thread that changes one of them takes the mutex before it notifies: no wake-up is
//! lost.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::base::{Counter, Error, Result};

/// A writer that is due within this time does not sleep.
const SHORTEST: Duration = Duration::from_micros(50);
/// Turns that nobody took are given up after this time.
const CATCH_UP: Duration = Duration::from_millis(20);

pub struct Pacer {
    /// Times are counted from here.
    epoch: Instant,
    /// Nanoseconds from turn to turn; 0: nobody waits.
    interval_ns: AtomicU64,
    /// PACE-1.
    most_ns: AtomicU64,
    /// The next turn.
    next_ns: AtomicU64,
    asleep: Mutex<()>,
    wake: Condvar,
    pub counters: PaceCounters,
    /// Microseconds: the mean delay of a row change of late, for people to look at.
    shown_delay: AtomicU64,
}

/// Each stands for itself.
#[derive(Default)]
pub struct PaceCounters {
    /// Turns that were taken, those that came as late as `most`, and how far away they were together.
    pub turns: Counter,
    pub turns_at_most: Counter,
    pub ahead_ns: Counter,
    /// Sleeps that have begun, each counted under the sleepers' mutex; and how long those took that are over.
    pub sleeps: Counter,
    pub slept_usec: Counter,
}

impl Default for Pacer {
    fn default() -> Pacer {
        Pacer {
            epoch: Instant::now(),
            interval_ns: AtomicU64::new(0),
            most_ns: AtomicU64::new(0),
            next_ns: AtomicU64::new(0),
            asleep: Mutex::default(),
            wake: Condvar::default(),
            counters: PaceCounters::default(),
            shown_delay: AtomicU64::new(0),
        }
    }
}

impl Pacer {
    /// From now on so many rows a second may be changed, and nobody waits for longer than `most`.
    pub fn set(&self, per_second: f64, most: Duration) {
        assert!(per_second > 0.0, "{per_second} rows a second");
        let interval = (1e9 / per_second).clamp(1.0, 3.6e12) as u64;
        let most = most.as_nanos() as u64;
        let before = self.most_ns.swap(most, Ordering::Relaxed);
        self.interval_ns.store(interval, Ordering::Relaxed);
        if most < before {
            self.wake_all();
        }
    }

    /// Nobody waits any more.
    pub fn end(&self) {
        if self.interval_ns.swap(0, Ordering::Relaxed) != 0 {
            self.wake_all();
        }
    }

    pub fn is_on(&self) -> bool {
        self.interval_ns.load(Ordering::Relaxed) != 0
    }

    /// What row changes are delayed by at present, in microseconds.
    pub fn shown_delay(&self) -> u64 {
        self.shown_delay.load(Ordering::Relaxed)
    }

    pub fn show_delay(&self, usec: u64) {
        self.shown_delay.store(usec, Ordering::Relaxed);
    }

    /// Lets sleepers notice that they were interrupted.
    pub fn wake_all(&self) {
        drop(self.asleep.lock());
        self.wake.notify_all();
    }

    /// Waits until it is this row change's turn.
    #[inline]
    pub fn wait(&self, interrupt: &AtomicBool) -> Result<()> {
        match self.interval_ns.load(Ordering::Relaxed) {
            0 => Ok(()),
            interval => self.wait_for_turn(interval, interrupt),
        }
    }

    #[cold]
    fn wait_for_turn(&self, interval: u64, interrupt: &AtomicBool) -> Result<()> {
        let begun = self.epoch.elapsed();
        let ahead = self.draw(interval, begun.as_nanos() as u64);
        match ahead > SHORTEST {
            true => self.sleep(begun, begun + ahead, interrupt),
            false => Ok(()),
        }
    }

    /// Takes the next turn; returns how far away it is.
    fn draw(&self, interval: u64, now: u64) -> Duration {
        let most = self.most_ns.load(Ordering::Relaxed);
        let due = |next: u64| {
            let earliest = now.saturating_sub(CATCH_UP.as_nanos() as u64);
            next.max(earliest).min(now + most)
        };
        let drawn = self
            .next_ns
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| {
                Some(due(next) + interval)
            });
        let due = due(drawn.expect("always some"));
        let ahead = due.saturating_sub(now);
        assert!(ahead <= most, "PACE-1: {ahead} ns of at most {most}");
        self.counters.turns.add(1);
        self.counters.ahead_ns.add(ahead);
        if due == now + most {
            self.counters.turns_at_most.add(1);
        }
        Duration::from_nanos(ahead)
    }

    /// Times since the epoch.
    fn sleep(&self, begun: Duration, due: Duration, interrupt: &AtomicBool) -> Result<()> {
        let mut asleep = self.asleep.lock();
        self.counters.sleeps.add(1);
        let done = loop {
            if interrupt.load(Ordering::Acquire) {
                break Err(Error::Interrupted);
            }
            let most = Duration::from_nanos(self.most_ns.load(Ordering::Relaxed));
            let due = due.min(begun + most);
            if !self.is_on() || self.epoch.elapsed() >= due {
                break Ok(());
            }
            self.wake.wait_until(&mut asleep, self.epoch + due);
        };
        drop(asleep);
        let slept = self.epoch.elapsed() - begun;
        self.counters.slept_usec.add(slept.as_micros() as u64);
        done
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn drawn(pacer: &Pacer, interval_us: u64, now_us: u64) -> u64 {
        pacer.draw(interval_us * 1000, now_us * 1000).as_micros() as u64
    }

    /// PACE-1.
    #[test]
    fn turns_are_an_interval_apart_and_never_further_than_the_most() {
        let pacer = Pacer::default();
        pacer.set(1000.0, Duration::from_millis(3));
        let start = 1_000_000;
        // Turns that nobody took for 20 ms are used up first.
        for n in 0..21 {
            assert_eq!(drawn(&pacer, 1000, start), 0, "turn {n}");
        }
        let ahead: Vec<u64> = (0..5).map(|_| drawn(&pacer, 1000, start)).collect();
        assert_eq!(ahead, [1000, 2000, 3000, 3000, 3000]);
        assert_eq!(pacer.counters.turns_at_most.get(), 3);
        // They have not run away.
        assert_eq!(drawn(&pacer, 1000, start + 3500), 500);
        assert_eq!(pacer.counters.ahead_ns.get(), 12_500_000);
    }

    /// A writer that sleeps until a turn of an hour's interval; returns what `end` brought about.
    fn end_sleep(end: impl FnOnce(&Pacer, &AtomicBool)) -> Result<()> {
        let (pacer, interrupt) = (Pacer::default(), AtomicBool::new(false));
        pacer.set(1.0 / 3600.0, HOUR);
        pacer.wait(&interrupt).unwrap();
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| pacer.wait(&interrupt));
            while pacer.counters.sleeps.get() < 1 {
                std::thread::yield_now();
            }
            // It holds the mutex until it waits.
            drop(pacer.asleep.lock());
            end(&pacer, &interrupt);
            sleeper.join().unwrap()
        })
    }

    #[test]
    fn an_interrupt_ends_a_wait_with_an_error() {
        let done = end_sleep(|pacer, interrupt| {
            interrupt.store(true, Ordering::Release);
            pacer.wake_all();
        });
        assert!(matches!(done, Err(Error::Interrupted)), "{done:?}");
    }

    /// PACE-3.
    #[test]
    fn the_end_of_the_pace_and_a_shorter_most_end_waits() {
        end_sleep(|pacer, _| pacer.end()).unwrap();
        end_sleep(|pacer, _| pacer.set(1.0 / 3600.0, Duration::from_millis(1))).unwrap();
    }

    #[test]
    fn nobody_waits_while_it_is_off() {
        let pacer = Pacer::default();
        for _ in 0..1000 {
            pacer.wait(&AtomicBool::new(true)).unwrap();
        }
        assert_eq!(pacer.counters.turns.get(), 0);
    }
}
