//! A failing workload with fewer steps, by leaving some out for as long as something still goes wrong.
//! Background threads write when they like, so that a failure may not come again: then the steps are taken
//! for needed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use varve_sim::panics::{quietly, said};
use varve_sim::{SimDisk, minimal};

use super::crashes::{Finding, Tried, crash_anywhere};
use super::workload::{self, Config};

/// What went wrong.
pub enum Failure {
    /// The workload got a wrong answer, or an assertion failed, before any crash.
    Workload(String),
    Crash(Box<Finding>),
}

/// Searches for a crash that loses something, in `wanted` moments of the workload.
pub fn search(
    config: &Config,
    disk: &dyn Fn() -> SimDisk,
    wanted: usize,
) -> Result<Tried, Failure> {
    let config = Config {
        quiet: true,
        ..config.clone()
    };
    let run = || quietly(|| crash_anywhere(&config, disk(), wanted));
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(found) => found.map_err(Failure::Crash),
        Err(panic) => Err(Failure::Workload(said(&*panic))),
    }
}

/// A smaller workload that still fails, and how it does; `most`: for so long.
pub fn shrink(
    config: &Config,
    failure: Failure,
    most: Duration,
    mut search: impl FnMut(&Config) -> Option<Failure>,
) -> (Config, Failure) {
    let end = Instant::now() + most;
    let mut best = (config.clone(), failure);
    let mut try_it = |config: Config, best: &mut (Config, Failure)| {
        let failed = match Instant::now() < end {
            true => search(&config),
            false => None,
        };
        let fails = failed.is_some();
        if let Some(failure) = failed {
            *best = (config, failure);
        }
        fails
    };
    // The rows that are there before the first step cost the most.
    for rows in [0, config.rows / 8, config.rows / 2] {
        let smaller = Config {
            rows,
            only: Some(config.all_steps().into()),
            ..config.clone()
        };
        if rows < best.0.rows && try_it(smaller, &mut best) {
            break;
        }
    }
    let rows = best.0.rows;
    minimal(config.all_steps(), |steps| {
        let smaller = Config {
            rows,
            only: Some(steps.into()),
            ..config.clone()
        };
        try_it(smaller, &mut best)
    });
    best
}

/// For how long failures are made smaller: `VARVE_SHRINK_SECONDS`, a minute unless given.
pub fn patience() -> Duration {
    let given = std::env::var("VARVE_SHRINK_SECONDS").ok();
    let seconds = given.map_or(60, |n| n.parse().expect("VARVE_SHRINK_SECONDS is a number"));
    Duration::from_secs(seconds)
}

/// Runs the workload without crashes; a failure is made smaller before it is reported.
pub fn run(config: &Config) -> workload::Report {
    let try_quietly = |config: &Config| {
        let config = Config {
            quiet: true,
            ..config.on_fresh_disk()
        };
        let run = || quietly(|| workload::run(&config));
        catch_unwind(AssertUnwindSafe(run)).map_err(|panic| Failure::Workload(said(&*panic)))
    };
    let failure = match try_quietly(config) {
        Ok(report) => return report,
        Err(failure) => failure,
    };
    let (smaller, _) = shrink(config, failure, patience(), |config| {
        try_quietly(config).err()
    });
    // Once more, with all it has to say.
    let report = workload::run(&smaller.on_fresh_disk());
    panic!(
        "it failed from seed {}, but not again: {report:?}",
        config.seed
    );
}
