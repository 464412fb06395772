//! How many rows a second writers may change while purge lags: a pure function of what was measured. It runs
//! every tenth of a second or so (lag.rs), and writers keep to its answer (txn/pacer.rs).
//!
//! **What it aims at.** The history grows by the logs that commits add and shrinks by those that purge takes
//! off. So it comes to rest where writers add what purge takes off, which is measured, and how far the
//! history is from where it should be is corrected slowly:
//!
//! ```text
//! wanted logs a second = purge rate + (1.1 limit - history) / T        T = 5 s
//! ```
//!
//! That is a first-order system with the time constant T, whatever the limit, the number of writers, and
//! their speed: it approaches 1.1 limit and does not swing around it. T is longer than whatever is measured
//! late. Below the limit the wanted rate also grows in proportion to the room: a purge that has nothing left
//! to do looks slow, but is not. Above, writers get at least half of what purge takes off: a history that is
//! ten times too long is not worth a standstill. While a view holds all of the history back, the purge rate
//! falls to nothing, and the wanted rate to what is left up to 1.1 limit; then the longest delay alone is
//! what slows writers (PACE-1).
//!
//! Logs are what is counted, row changes are what can be delayed: the wanted rate is multiplied by the number
//! of row changes that came with each log lately.
//!
//! - **LAG-1** Below the limit nobody begins to be delayed. Delays that have begun end gradually, also below
//!   the limit.
//! - **LAG-2** It begins with the rate at which rows are being changed, and changes by no more than a factor
//!   of `SLEW` in a second, up or down: no jumps, and no swinging between full speed and standstill, whatever
//!   is measured.
//! - **LAG-3** It never falls further than to where half of the row changes wait for as long as they may: it
//!   would be long in coming back.
//! - **LAG-4** A limit of 0 ends it at once.
//!
//! A purge that works in long batches takes nothing off for a while, and then much. So its rate is not
//! believed to fall before it has been silent for longer than its batches take, and T is at least twice that
//! time.

/// By so much the rate changes in a second at most.
const SLEW: f64 = 1.4;
/// Where the history should be, as a multiple of the limit: a little above, so that it does not go below and
/// back.
const AIM: f64 = 1.1;
/// T, in seconds.
const CORRECTION: f64 = 5.0;
/// Over so many seconds measurements are averaged.
const AVERAGE: f64 = 2.0;
/// Nobody was delayed for so many seconds, and the history is below the limit: it is over.
const UNUSED: f64 = 1.0;
/// Fewer logs a second count as so many: rates by log stay finite.
const LEAST_ADDED: f64 = 1e-6;

/// What happened since the tick before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub seconds: f64,
    /// Logs in the history now.
    pub history: u64,
    /// Logs that came to the history, and that purge took off.
    pub added: f64,
    pub purged: u64,
    /// Rows that were changed.
    pub changes: u64,
    /// Half of them or more had to wait as long as they may.
    pub at_most: bool,
    /// Somebody had to wait.
    pub delayed: bool,
}

#[derive(Default)]
pub(super) struct Controller {
    purge: PurgeRate,
    /// Averages: row changes and logs that came, a second.
    changes: f64,
    added: f64,
    /// Row changes a second that are allowed.
    allowed: Option<f64>,
    /// Seconds since `allowed` was changed, and since somebody was delayed.
    unchanged: f64,
    unused: f64,
}

impl Controller {
    /// How many rows a second may be changed from now on; `None`: as many as there are.
    pub fn tick(&mut self, limit: u64, seen: &Seen) -> Option<f64> {
        self.purge.tick(seen.seconds, seen.purged);
        let changes = seen.changes as f64 / seen.seconds;
        approach(&mut self.changes, changes, seen.seconds);
        approach(&mut self.added, seen.added / seen.seconds, seen.seconds);
        self.unchanged += seen.seconds;
        self.unused += seen.seconds;
        if seen.delayed {
            self.unused = 0.0;
        }
        self.allowed = match self.allowed {
            // LAG-4.
            _ if limit == 0 => None,
            // LAG-1.
            None if seen.history <= limit || seen.changes == 0 => None,
            None => {
                (self.unused, self.unchanged) = (0.0, 0.0);
                Some(changes.max(self.changes))
            }
            Some(_) if seen.history <= limit && self.unused >= UNUSED => None,
            // Nothing was measured.
            Some(allowed) if seen.changes == 0 => Some(allowed),
            Some(allowed) => Some(self.next(allowed, limit, seen)),
        };
        self.allowed
    }

    fn next(&mut self, allowed: f64, limit: u64, seen: &Seen) -> f64 {
        let factor = SLEW.powf(self.unchanged.min(1.0));
        self.unchanged = 0.0;
        let wanted = self.wanted_logs(limit as f64, seen.history as f64);
        // A large transaction adds a log after many changes: until then it is huge.
        let changes_per_log = self.changes / self.added.max(LEAST_ADDED);
        // LAG-2.
        let next = (wanted * changes_per_log).clamp(allowed / factor, allowed * factor);
        // LAG-3.
        match seen.at_most {
            true => next.max(allowed),
            false => next,
        }
    }

    /// How many logs a second may come.
    fn wanted_logs(&self, limit: f64, history: f64) -> f64 {
        let purge = self.purge.per_second();
        let time = CORRECTION.max(2.0 * self.purge.step);
        let correction = (AIM * limit - history) / time;
        match history < limit {
            true => purge + correction.max(purge * (limit - history) / limit),
            false => (purge + correction).max(purge / 2.0),
        }
    }
}

/// An average over about `AVERAGE` seconds, of which the newest value stands for the last `seconds`.
fn approach(average: &mut f64, value: f64, seconds: f64) {
    *average += (value - *average) * (1.0 - (-seconds / AVERAGE).exp());
}

/// Logs a second that purge takes off.
#[derive(Default)]
struct PurgeRate {
    average: f64,
    /// Seconds since it last took something off, and how long that usually is.
    silent: f64,
    step: f64,
}

impl PurgeRate {
    fn tick(&mut self, seconds: f64, purged: u64) {
        self.silent += seconds;
        if purged > 0 {
            let silent = self.silent;
            approach(&mut self.average, purged as f64 / silent, silent);
            // A view that was held for an hour says nothing of how purge works.
            approach(&mut self.step, silent.min(10.0), silent.min(AVERAGE));
            self.silent = 0.0;
        }
    }

    fn per_second(&self) -> f64 {
        let usual = AVERAGE.max(2.0 * self.step);
        self.average * (usual / self.silent.max(usual))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const TICK: f64 = 0.1;

    /// A database that is made of numbers: writers, purge and the history between them.
    #[derive(Clone)]
    struct Plant {
        /// Logs a second that writers add if nobody holds them back, and row changes of each.
        writers_speed: f64,
        changes_per_log: f64,
        writers: f64,
        /// Logs a second that purge can take off, and how long its batches take.
        purge_speed: f64,
        batch_seconds: f64,
        view_is_open: bool,
        limit: u64,
        most: f64,
        // What follows is its state.
        control: Control,
        history: f64,
        batch_age: f64,
    }

    #[derive(Default)]
    struct Control(Controller, Option<f64>);

    impl Clone for Control {
        fn clone(&self) -> Control {
            Control::default()
        }
    }

    /// What was to be seen in one second.
    #[derive(Debug, Clone, Copy)]
    struct Second {
        history: f64,
        delay: f64,
        logs: f64,
        purged: f64,
    }

    impl Default for Plant {
        fn default() -> Plant {
            Plant {
                writers_speed: 20_000.0,
                changes_per_log: 1.0,
                writers: 16.0,
                purge_speed: 10_000.0,
                batch_seconds: 0.05,
                view_is_open: false,
                limit: 200_000,
                most: 0.05,
                control: Control::default(),
                history: 0.0,
                batch_age: 0.0,
            }
        }
    }

    impl Plant {
        /// Logs a second that come, and the delay of each row change, by Little's law.
        fn pace(&self) -> (f64, f64, bool) {
            let free = self.writers_speed * self.changes_per_log;
            let cycle = self.writers / free;
            let allowed = self.control.1.unwrap_or(f64::INFINITY);
            let delay = (self.writers / allowed.min(free) - cycle).min(self.most);
            let changes = self.writers / (cycle + delay);
            (
                changes / self.changes_per_log,
                delay,
                delay >= self.most * 0.999,
            )
        }

        fn tick(&mut self) -> Second {
            let (logs, delay, at_most) = self.pace();
            let (added, mut purged) = (logs * TICK, 0.0);
            self.history += added;
            self.batch_age += TICK;
            if self.batch_age >= self.batch_seconds {
                let can = self.purge_speed * self.batch_age;
                purged = if self.view_is_open {
                    0.0
                } else {
                    can.min(self.history)
                }
                .floor();
                self.history -= purged;
                self.batch_age = 0.0;
            }
            let seen = Seen {
                seconds: TICK,
                history: self.history as u64,
                added,
                purged: purged as u64,
                changes: (added * self.changes_per_log).round() as u64,
                at_most,
                delayed: delay > 0.0,
            };
            self.control.1 = self.control.0.tick(self.limit, &seen);
            Second {
                history: self.history,
                delay,
                logs: added,
                purged,
            }
        }

        /// The last tick of each second, with the sums of the second.
        fn run(&mut self, seconds: usize) -> Vec<Second> {
            let second = |_| {
                let ticks: Vec<Second> = (0..10).map(|_| self.tick()).collect();
                Second {
                    logs: ticks.iter().map(|t| t.logs).sum(),
                    purged: ticks.iter().map(|t| t.purged).sum(),
                    ..ticks[9]
                }
            };
            (0..seconds).map(second).collect()
        }
    }

    /// LAG-2, seen from outside: neither the speed nor the delay jumps by more than half of the larger of its
    /// two values, once there is a delay worth the name.
    #[track_caller]
    fn assert_smooth(seconds: &[Second]) {
        for (n, pair) in seconds.windows(2).enumerate() {
            let speed = pair[1].logs / pair[0].logs;
            assert!((0.66..=1.5).contains(&speed), "second {n}: {pair:?}");
            if pair[0].delay > 0.0005 && pair[1].delay > 0.0005 {
                let delay = pair[1].delay / pair[0].delay;
                assert!((0.5..=2.0).contains(&delay), "second {n}: {pair:?}");
            }
        }
    }

    #[track_caller]
    fn assert_settles(mut plant: Plant, longest: f64) -> Vec<Second> {
        let seconds = plant.run(120);
        assert_smooth(&seconds);
        let limit = plant.limit as f64;
        let history = seconds.iter().map(|s| s.history).fold(0.0, f64::max);
        assert!(history <= longest * limit, "history {history}");
        let end = &seconds[80..];
        for second in end {
            let off = (second.history - AIM * limit).abs();
            let batch = plant.purge_speed * plant.batch_seconds;
            assert!(off <= 0.05 * limit + 2.0 * batch, "{second:?}");
        }
        let logs: f64 = end.iter().map(|s| s.logs).sum();
        let can = plant.purge_speed * end.len() as f64;
        assert!(logs >= 0.95 * can, "{logs} of {can} logs");
        seconds
    }

    #[test]
    fn the_history_comes_to_rest_a_little_above_the_limit() {
        assert_settles(Plant::default(), 1.2);
        // Whatever a transaction is, however many writers there are, and however little there is of
        // everything.
        for changes_per_log in [1.0, 20.0] {
            for (writers, scale) in [(1.0, 1.0), (16.0, 0.01), (200.0, 3.0)] {
                let plant = Plant {
                    changes_per_log,
                    writers,
                    writers_speed: 15_000.0 * scale,
                    purge_speed: 10_000.0 * scale,
                    limit: (200_000.0 * scale) as u64,
                    most: 10.0,
                    ..Plant::default()
                };
                assert_settles(plant, 1.2);
            }
        }
    }

    #[test]
    fn long_batches_of_purge_do_not_make_it_swing() {
        for batch_seconds in [0.5, 2.0, 4.0] {
            let plant = Plant {
                batch_seconds,
                ..Plant::default()
            };
            let seconds = assert_settles(plant, 1.4);
            let logs = seconds[80..].iter().map(|s| s.logs);
            let (least, most) = logs.fold((f64::MAX, 0.0f64), |(a, b), n| (a.min(n), b.max(n)));
            assert!(most < 1.5 * least, "{batch_seconds}: {least} to {most}");
        }
    }

    #[test]
    fn a_small_limit_makes_it_no_less_smooth() {
        let mut plant = Plant {
            limit: 100,
            ..Plant::default()
        };
        let seconds = plant.run(200);
        assert_smooth(&seconds);
    }

    /// LAG-3: it is not long in coming back.
    #[test]
    fn under_an_open_view_the_delay_grows_smoothly_to_the_most_and_comes_back() {
        let mut plant = Plant {
            view_is_open: true,
            ..Plant::default()
        };
        let held = plant.run(120);
        assert_smooth(&held);
        let delays: Vec<f64> = held.iter().map(|s| s.delay).collect();
        assert!(delays.is_sorted(), "it only grows: {delays:?}");
        assert!(delays.iter().all(|d| *d <= 0.05));
        assert!(delays[110] >= 0.049, "{}", delays[110]);
        plant.view_is_open = false;
        plant.purge_speed = 100_000.0;
        let freed = plant.run(60);
        assert_smooth(&freed);
        assert_eq!(freed[59].delay, 0.0);
        assert!(plant.control.1.is_none());
    }

    #[test]
    fn what_it_is_told_at_run_time_counts() {
        let mut plant = Plant {
            limit: 0,
            ..Plant::default()
        };
        assert!(plant.run(40).iter().all(|s| s.delay == 0.0));
        assert!(plant.history > 300_000.0);
        // LAG-2: though the history is far above, nobody is stopped.
        plant.limit = 50_000;
        let lowered = plant.run(150);
        assert_smooth(&lowered);
        assert!(lowered.iter().all(|s| s.logs >= 0.45 * plant.purge_speed));
        assert!(plant.history < 1.2 * 50_000.0, "{}", plant.history);
        assert!(plant.pace().1 > 0.0);
        // LAG-4.
        plant.limit = 0;
        plant.tick();
        assert_eq!(plant.pace().1, 0.0);
    }

    /// LAG-1.
    #[test]
    fn nobody_is_delayed_below_the_limit_nor_by_a_purge_that_keeps_up() {
        let mut plant = Plant {
            purge_speed: 30_000.0,
            ..Plant::default()
        };
        assert!(plant.run(60).iter().all(|s| s.delay == 0.0));
        plant.purge_speed = 10_000.0;
        let growing = plant.run(60);
        for (before, second) in growing.iter().zip(&growing[1..]) {
            assert!(
                second.delay == 0.0 || before.history > 0.9 * 200_000.0,
                "{second:?}"
            );
        }
        // Purge is quicker now: the delays end.
        plant.purge_speed = 50_000.0;
        assert_smooth(&plant.run(60));
        assert!(plant.control.1.is_none());
    }

    #[test]
    fn there_is_a_rate_though_neither_writers_nor_purge_end_a_log() {
        let seen = Seen {
            seconds: TICK,
            history: 1000,
            added: 0.0,
            purged: 0,
            changes: 500,
            at_most: false,
            delayed: true,
        };
        let mut controller = Controller::default();
        let mut allowed = controller.tick(100, &seen).unwrap();
        for _ in 0..20 {
            let next = controller.tick(100, &seen).unwrap();
            assert!((allowed / SLEW..allowed).contains(&next), "{next}");
            allowed = next;
        }
    }

    #[test]
    fn a_load_that_rests_finds_its_pace_again() {
        let mut plant = Plant::default();
        plant.run(60);
        let before = plant.control.1.unwrap();
        plant.purge_speed = 0.001;
        plant.writers_speed = 0.001;
        plant.run(30);
        let rested = plant.control.1.unwrap();
        assert!(rested >= before / SLEW, "{before} to {rested}");
    }

    #[test]
    fn a_large_transaction_that_adds_one_log_is_let_through() {
        let mut plant = Plant {
            writers: 1.0,
            writers_speed: 0.02,
            changes_per_log: 1e6,
            history: 400_000.0,
            purge_speed: 100.0,
            ..Plant::default()
        };
        let seconds = plant.run(60);
        assert!(
            seconds[20..].iter().all(|s| s.delay < 1e-5),
            "{:?}",
            seconds[59]
        );
    }
}
