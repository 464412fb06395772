//! A crash at any operation of the disk. What could break here: redo, flush, doublewrite, undo, rollback,
//! purge, DDL and recovery itself; whatever relies on an order of writes that no sync enforces.
//!
//! `VARVE_MODEL_SEED` replays the workload and the states drawn; background threads still write when they
//! like. So a failure found is made smaller, and what the last crash left on the disk is kept in a directory,
//! with what should be there: the command that recovers it again is printed. `VARVE_CRASH_POINTS` is the
//! number of moments tried (0: all).

mod support;

use support::crashes::crash_anywhere;
use support::kept::Kept;
use support::shrink::{Failure, patience, search, shrink};
use support::workload::Config;
use varve_sim::SimDisk;

fn check(config: &Config, usual: usize) {
    let wanted = std::env::var("VARVE_CRASH_POINTS");
    let wanted = wanted.map_or(usual, |n| {
        n.parse().expect("VARVE_CRASH_POINTS is a number")
    });
    let finding = match crash_anywhere(config, SimDisk::default(), wanted) {
        Ok(tried) => {
            println!("{tried}");
            assert!(tried.changes > 15 && tried.operations > 150, "{tried:?}");
            assert!(tried.in_recovery > tried.moments / 3, "{tried:?}");
            return;
        }
        Err(finding) => finding,
    };
    println!("{finding}\n{}", finding.keep());
    let first = Failure::Crash(finding);
    let again = |config: &Config| search(config, &SimDisk::default, wanted.clamp(1, 300)).err();
    match shrink(config, first, patience(), again) {
        (_, Failure::Crash(finding)) => panic!("{finding}\n{}", finding.keep()),
        (config, Failure::Workload(why)) => panic!("without a crash: {why}; {config:?}"),
    }
}

/// Recovers what an earlier failure kept.
#[test]
#[ignore = "replays the finding in the directory that VARVE_CRASH_REPLAY names"]
fn replay() {
    let dir = std::env::var("VARVE_CRASH_REPLAY").expect("VARVE_CRASH_REPLAY names a directory");
    let kept = Kept { dir: dir.into() };
    kept.replay().unwrap_or_else(|why| panic!("{why}"));
    println!("nothing is wrong with it");
}

/// SP-4, among others: a crash before each operation of a run, from the creation of the database on.
#[test]
fn every_moment_of_a_short_run() {
    let config = Config {
        rows: 3,
        spread: 20,
        transactions: 3,
        steps_per_phase: 40,
        ..Config::new(120)
    };
    check(&config, 0);
}

/// More pages than the pool holds: they are written in the middle of everything.
#[test]
fn small_pages_and_a_small_pool() {
    let config = Config {
        rows: 500,
        steps_per_phase: 200,
        ..Config::new(800)
    };
    check(&config, 400);
}

/// Few rows: versions, rollbacks and purge meet on the same pages. A change that is there without its undo
/// record would stay after a crash (UNDO-1).
#[test]
fn few_rows_and_many_versions() {
    let config = Config {
        spread: 12,
        rows: 4,
        transactions: 6,
        steps_per_phase: 200,
        ..Config::new(600)
    };
    check(&config, 300);
}

/// SP-14 and SP-15: pages of the tables that are compressed are smaller than their places.
#[test]
fn compressed_pages() {
    let config = Config {
        page_size: 8192,
        buffer_pool_bytes: 2 << 20,
        rows: 200,
        transactions: 4,
        steps_per_phase: 100,
        ..Config::new(400)
    };
    check(&config, 300);
}

/// UNDODIR-1: undo tablespaces are in another directory, which has to be known after every crash.
#[test]
fn every_moment_with_undo_elsewhere() {
    let mut config = Config {
        rows: 3,
        spread: 20,
        transactions: 3,
        steps_per_phase: 40,
        ..Config::new(120)
    };
    // See `Config::open`.
    config.seed = config.seed / 3 * 3 + 2;
    check(&config, 300);
}

/// LINK-1 to LINK-3: every second table has its file in another directory, and tables change as a whole all
/// the time.
#[test]
fn every_moment_with_tables_elsewhere() {
    let config = Config {
        rows: 3,
        spread: 20,
        transactions: 2,
        steps_per_phase: 30,
        ddl: 25,
        elsewhere: true,
        ..Config::new(90)
    };
    check(&config, 0);
}
