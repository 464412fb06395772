//! Lag control: delays writers while the history is longer than `max_purge_lag`, whatever keeps purge from
//! working it off, an open read view too. What rate they are held to is in lag_rate.rs, how they are held to
//! it in txn/pacer.rs.
//!
//! A thread of its own measures and decides: purge itself may be busy with a batch for long, and sleeps while
//! a view holds the history back. Without a limit the thread sleeps until there is one. It takes no latch and
//! cannot fail.
//!
//! Threads: counters are read one after the other while others add to them, so a log may be counted as purged
//! one tick before it is counted as gone from the history. Both are sums, so the next tick has what this one
//! lacks. Who sets the limit to 0 stores that and then ends the pace; this thread sets the pace and then
//! looks at the limit: one of the two sees the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::base::{Result, threads};
use crate::txn::Core;

use super::lag_rate::{Controller, Seen};

const TICK: Duration = Duration::from_millis(100);
/// The delay that is shown is the mean of so many ticks.
const SHOWN_TICKS: usize = 10;
/// As long as there is no limit; a change of the settings wakes the thread.
const REST: Duration = Duration::from_secs(3600);

/// The thread that delays writers.
pub(super) struct LagControl {
    core: Arc<Core>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl LagControl {
    pub fn start(core: Arc<Core>) -> Result<LagControl> {
        let stop = Arc::new(AtomicBool::new(false));
        let (of_thread, thread_stop) = (core.clone(), stop.clone());
        let thread = threads::spawn("varve-lag", move || run(&of_thread, &thread_stop))?;
        Ok(LagControl {
            core,
            stop,
            thread: Some(thread),
        })
    }

    /// Ends the thread; nobody is delayed any more.
    pub fn stop(&mut self) {
        // Relaxed: the wake-up's mutex orders it.
        self.stop.store(true, Ordering::Relaxed);
        self.core.lag_options_changed.notify_always();
        if let Some(thread) = self.thread.take() {
            // Its panic was caught and told.
            let _ = thread.join();
        }
        self.core.pacer.end();
    }
}

impl Drop for LagControl {
    fn drop(&mut self) {
        self.stop();
    }
}

fn run(core: &Core, stop: &AtomicBool) {
    let stopped = || stop.load(Ordering::Relaxed);
    let body = std::panic::AssertUnwindSafe(|| {
        while !stopped() {
            if core.settings.purge().limits_lag() && core.check_usable().is_ok() {
                control(core, &stopped);
                core.pacer.end();
                core.pacer.show_delay(0);
            } else {
                core.lag_options_changed.sleep(REST, stopped);
            }
        }
    });
    if std::panic::catch_unwind(body).is_err() {
        core.fail("the thread that delays writers panicked");
    }
}

/// As long as there is a limit, and the database works.
fn control(core: &Core, stopped: &impl Fn() -> bool) {
    let mut controller = Controller::default();
    let mut shown = Shown::default();
    let mut before = Sums::read(core);
    while !stopped() {
        core.lag_options_changed.sleep(TICK, stopped);
        let options = core.settings.purge();
        if !options.limits_lag() || core.check_usable().is_err() {
            return;
        }
        let now = Sums::read(core);
        let seen = now.since(&before, core.pacer.is_on());
        // Somebody may have changed the settings twice.
        if seen.seconds < TICK.as_secs_f64() / 2.0 {
            continue;
        }
        match controller.tick(options.max_purge_lag, &seen) {
            Some(per_second) => core.pacer.set(per_second, options.max_purge_lag_delay),
            None => core.pacer.end(),
        }
        if !core.settings.purge().limits_lag() {
            return;
        }
        core.pacer.show_delay(shown.next(&now, core.pacer.is_on()));
        before = now;
    }
}

/// What only grows, and the history.
#[derive(Clone, Copy)]
struct Sums {
    at: Instant,
    history: u64,
    purged: u64,
    /// Rows that were updated or deleted.
    rows: u64,
    turns: u64,
    turns_at_most: u64,
    ahead_ns: u64,
}

impl Sums {
    fn read(core: &Core) -> Sums {
        let (counters, pace) = (&core.counters, &core.pacer.counters);
        Sums {
            at: Instant::now(),
            history: core.undo.history_len(),
            purged: counters.purged_logs.get(),
            rows: counters.rows_updated.get() + counters.rows_deleted.get(),
            turns: pace.turns.get(),
            turns_at_most: pace.turns_at_most.get(),
            ahead_ns: pace.ahead_ns.get(),
        }
    }

    fn since(&self, before: &Sums, is_paced: bool) -> Seen {
        let purged = self.purged - before.purged;
        let turns = self.turns - before.turns;
        Seen {
            seconds: (self.at - before.at).as_secs_f64(),
            history: self.history,
            added: self.history as f64 - before.history as f64 + purged as f64,
            purged,
            // Nobody takes turns before there is a pace. Rows of temporary tables count then; the first ticks
            // put that right.
            changes: match is_paced {
                true => turns,
                false => self.rows - before.rows,
            },
            at_most: turns > 0 && (self.turns_at_most - before.turns_at_most) * 2 >= turns,
            delayed: self.ahead_ns > before.ahead_ns,
        }
    }
}

/// The mean delay of a row change in the last second.
#[derive(Default)]
struct Shown {
    /// The last ticks, in turn.
    ticks: [Option<Sums>; SHOWN_TICKS],
    next: usize,
    usec: u64,
}

impl Shown {
    /// Where nobody changed a row, the delay is what it was.
    fn next(&mut self, now: &Sums, is_paced: bool) -> u64 {
        let oldest = self.ticks[self.next].replace(*now);
        self.next = (self.next + 1) % SHOWN_TICKS;
        let Some(oldest) = oldest.or(self.ticks[0]).filter(|_| is_paced) else {
            *self = Shown::default();
            return 0;
        };
        let turns = now.turns - oldest.turns;
        let ahead_usec = (now.ahead_ns - oldest.ahead_ns) / 1000;
        self.usec = ahead_usec.checked_div(turns).unwrap_or(self.usec);
        self.usec
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_delay_that_is_shown_is_the_mean_of_the_last_second() {
        let at = Instant::now();
        let sums = |turns: u64, ahead_us: u64| Sums {
            at,
            history: 0,
            purged: 0,
            rows: 0,
            turns,
            turns_at_most: 0,
            ahead_ns: ahead_us * 1000,
        };
        let mut shown = Shown::default();
        assert_eq!(shown.next(&sums(5, 0), true), 0);
        assert_eq!(shown.next(&sums(15, 500), true), 50);
        assert_eq!(shown.next(&sums(25, 2500), true), 125);
        assert_eq!(shown.next(&sums(25, 2500), true), 125);
        // Ten ticks later only the new ones count, and without any the last one stays.
        for _ in 0..9 {
            shown.next(&sums(30, 3000), true);
        }
        assert_eq!(shown.next(&sums(30, 3000), true), 100);
        assert_eq!(shown.next(&sums(30, 3000), false), 0);
        assert_eq!(shown.next(&sums(31, 4000), true), 0);
    }

    #[test]
    fn what_is_seen_between_two_readings() {
        let at = Instant::now();
        let before = Sums {
            at,
            history: 1000,
            purged: 50,
            rows: 10,
            turns: 100,
            turns_at_most: 0,
            ahead_ns: 7,
        };
        let now = Sums {
            at: at + TICK,
            history: 900,
            purged: 250,
            rows: 15,
            turns: 110,
            turns_at_most: 5,
            ahead_ns: 7,
        };
        let seen = now.since(&before, true);
        assert_eq!((seen.history, seen.purged, seen.changes), (900, 200, 10));
        assert_eq!(seen.added, 100.0);
        assert!(seen.at_most && !seen.delayed);
        assert_eq!(now.since(&before, false).changes, 5);
    }
}
