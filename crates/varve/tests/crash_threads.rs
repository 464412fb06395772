//! A crash at any operation of the disk while several threads commit. What could break here and not in
//! `crash_points.rs`: group commit, which acknowledges for others; the order of commits in the log against
//! that of locks; pages that are flushed while others change them.
//!
//! `VARVE_MODEL_SEED` chooses what each thread does, `VARVE_CRASH_POINTS` the number of moments tried (0:
//! all). Threads interleave as they like, so a failure is kept as a disk, which `crash_points.rs` replays
//! with the command that is printed.

mod support;

use support::threads::crash_anywhere;
use support::workload::Config;

/// Steps of each thread.
const STEPS: usize = 60;

fn moments() -> usize {
    let wanted = std::env::var("VARVE_CRASH_POINTS");
    wanted.map_or(60, |n| n.parse().expect("VARVE_CRASH_POINTS is a number"))
}

#[test]
fn what_was_acknowledged_to_any_thread_survives() {
    for threads in 2..=4 {
        match crash_anywhere(&Config::new(STEPS), threads, moments()) {
            Ok(tried) => {
                println!("{tried}");
                assert!(
                    tried.changes > 30 * threads && tried.operations > 300,
                    "{tried:?}"
                );
            }
            Err(finding) => panic!("with {threads} threads: {finding}\n{}", finding.keep()),
        }
    }
}

/// The test would notice a commit that is acknowledged before its redo is durable.
#[cfg(feature = "sabotage")]
#[test]
fn a_commit_that_is_acknowledged_too_early_is_found() {
    let config = Config {
        sabotage: Some(varve::internals::base::Sabotage::AcknowledgedTooEarly),
        ..Config::new(STEPS)
    };
    let found = (0..10).find_map(|_| crash_anywhere(&config, 3, 60).err());
    let finding = found.expect("nothing was noticed");
    println!("Found after {:?}", finding.tried);
    let replayed = finding.keep();
    replayed.replay().expect_err("what was kept is not wrong");
    replayed.forget();
}
