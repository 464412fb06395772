//! A crash at any operation of the disk. What could break here: redo, flush, doublewrite, undo, rollback, purge, DDL and
//! recovery itself; whatever relies on an order of writes that no sync enforces.
//!
//! `VARVE_MODEL_SEED` replays the workload and the states drawn; background threads still write when they like. So what a
//! failure found on the disk is kept in a directory, whose name is printed. `VARVE_CRASH_POINTS` is the number of moments
//! tried (0: all).

mod support;

use support::crashes::crash_anywhere;
use support::workload::Config;
use varve_sim::SimDisk;

fn check(config: &Config, usual: usize) {
    let wanted = std::env::var("VARVE_CRASH_POINTS");
    let wanted = wanted.map_or(usual, |n| {
        n.parse().expect("VARVE_CRASH_POINTS is a number")
    });
    match crash_anywhere(config, SimDisk::default(), wanted) {
        Ok(tried) => {
            println!("{tried:?}");
            assert!(tried.changes > 20 && tried.operations > 300, "{tried:?}");
        }
        Err(finding) => panic!("{finding:?}"),
    }
}

/// More pages than the pool holds: they are written in the middle of everything.
#[test]
fn small_pages_and_a_small_pool() {
    let config = Config {
        rows: 500,
        steps_per_phase: 200,
        ..Config::new(800)
    };
    check(&config, 500);
}

/// Few rows: versions, rollbacks and purge meet on the same pages.
#[test]
fn few_rows_and_many_versions() {
    let config = Config {
        spread: 12,
        rows: 4,
        transactions: 6,
        steps_per_phase: 200,
        ..Config::new(600)
    };
    check(&config, 1000);
}
