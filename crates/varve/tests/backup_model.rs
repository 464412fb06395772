//! Backups beside the random workload: each is made in small steps between those of the workload, restored,
//! and compared with what had committed when it ended (`support/workload/backups.rs`).
//!
//! What could break here: a backup that lacks what had committed, or has what had not, after DDL, truncation
//! of undo, checkpoints, crashes, changes of the log's size and of encryption at any moment of it.

mod support;

use support::shrink::run;
use support::workload::Config;
use varve_sim::SimDisk;

/// Backups one after the other beside transactions, DDL, truncation of undo, checkpoints and crashes, on a
/// simulated disk: BACKUP-1, BACKUP-2. Most are increments: INCREMENT-1, INCREMENT-2, TRACK-1, TRACK-2.
#[test]
fn a_backup_has_what_had_committed_when_it_ended() {
    let report = run(&Config {
        disk: Some(SimDisk::default()),
        steps_per_phase: 300,
        rows: 200,
        ddl: 4,
        backups: 20,
        ..Config::new(1500)
    });
    println!("{report:?}");
    assert!(report.backups > 10, "{report:?}");
    assert!(report.increments > 5, "{report:?}");
}

/// The same on the system's files.
#[test]
fn a_backup_on_the_systems_files() {
    let report = run(&Config {
        rows: 200,
        ddl: 4,
        backups: 20,
        ..Config::new(600)
    });
    assert!(report.backups > 2, "{report:?}");
}

#[cfg(feature = "sabotage")]
#[test]
fn backups_that_lack_something_are_noticed() {
    use varve::internals::base::Sabotage::{BackupWithoutNewTables, BackupWithoutOldRedo};
    use varve_sim::panics::quietly;
    for sabotage in [BackupWithoutNewTables, BackupWithoutOldRedo] {
        let fails = |seed: u64| {
            let config = Config {
                seed,
                disk: Some(SimDisk::default()),
                sabotage: Some(sabotage),
                rows: 100,
                ddl: 8,
                backups: 20,
                quiet: true,
                ..Config::new(400)
            };
            let run = || quietly(|| support::workload::run(&config));
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err()
        };
        assert!((0..24).any(fails), "{sabotage:?} was not noticed");
    }
}
