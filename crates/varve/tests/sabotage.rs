//! Whether the search for crashes that lose data would find any: each database here does one thing wrong, or its disk
//! breaks one promise, and that must be noticed, by the search or by the workload itself.
//!
//! `cargo test -p varve --features sabotage --test sabotage`

#[path = "support/lists.rs"]
mod lists;
mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};

use support::crashes::crash_anywhere;
use support::workload::Config;
use varve::Isolation::{self, ReadCommitted, RepeatableRead, Serializable};
use varve::Options;
use varve::base::Sabotage;
use varve_sim::{Lie, SimDisk};

/// More pages than the pool holds, so that they are written at any time.
fn config() -> Config {
    Config {
        rows: 500,
        steps_per_phase: 150,
        ..Config::new(450)
    }
}

/// Tries several seeds: luck may save one run, not all.
#[track_caller]
fn is_caught(what: &str, config: impl Fn() -> Config, disk: impl Fn() -> SimDisk) {
    for _ in 0..5 {
        let run = || crash_anywhere(&config(), disk(), 150);
        match catch_unwind(AssertUnwindSafe(run)) {
            Ok(Ok(_)) => continue,
            Ok(Err(finding)) => {
                println!("{what}: {finding:?}");
                finding.forget();
            }
            Err(_) => println!("{what}: the workload noticed it"),
        }
        return;
    }
    panic!("nobody noticed: {what}");
}

#[test]
fn every_sabotage_is_noticed() {
    for sabotage in [
        Sabotage::WriteAheadForgotten,
        Sabotage::CheckpointTooFar,
        Sabotage::AcknowledgedTooEarly,
        Sabotage::UndoSkipped,
        Sabotage::EntryLeftByRollback,
        Sabotage::UndoPageTakenTooEarly,
    ] {
        let config = || Config {
            sabotage: Some(sabotage),
            ..config()
        };
        is_caught(&format!("{sabotage:?}"), config, SimDisk::default);
    }
}

#[test]
fn torn_pages_are_noticed_without_doublewrite() {
    let config = || Config {
        doublewrite: false,
        ..config()
    };
    is_caught("no doublewrite", config, SimDisk::default);
}

#[test]
fn a_disk_that_lies_is_noticed() {
    for lie in [
        Lie::Sync { files: "vlog" },
        Lie::Sync { files: "vdt" },
        Lie::Sync { files: "ctl" },
        Lie::SyncDir,
    ] {
        let disk = || {
            let disk = SimDisk::default();
            disk.lie(lie);
            disk
        };
        is_caught(&format!("{lie:?}"), config, disk);
    }
}

/// Histories at the weakest level that forbids what goes wrong.
#[test]
fn broken_isolation_is_noticed() {
    let cases: [(Sabotage, Isolation); 4] = [
        (Sabotage::ViewSeesUnfinished, ReadCommitted),
        (Sabotage::ViewMoves, RepeatableRead),
        (Sabotage::GapsOpen, RepeatableRead),
        (Sabotage::SharedLocksForgotten, Serializable),
    ];
    for (sabotage, level) in cases {
        let notices = |seed| {
            let plan = lists::Plan::new(level, seed);
            let options = Options {
                sabotage: Some(sabotage),
                ..plan.options
            };
            let run = || lists::run(lists::Plan { options, ..plan }).1;
            let noticed = match catch_unwind(AssertUnwindSafe(run)) {
                Ok(found) => found.first().map(|anomaly| format!("{:?}", anomaly.kind)),
                Err(_) => Some("a session noticed it".to_string()),
            };
            noticed
                .inspect(|how| println!("{sabotage:?}: {how}"))
                .is_some()
        };
        assert!((1..20).any(notices), "nobody noticed: {sabotage:?}");
    }
}
