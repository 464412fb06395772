//! The history store when its file fails, its tables go, its options change, or its process ends. What could
//! break here: a wrong answer instead of an error, an error for somebody who is no member, purge that stops,
//! versions or a file that nobody removes.

#[allow(dead_code, reason = "each test uses its part")]
#[path = "support/long_views.rs"]
mod long_views;
#[allow(dead_code, reason = "each test uses its part")]
#[path = "support/reads.rs"]
mod reads;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use varve::{Database, HistoryOptions, LockMode, Options};
use varve_sim::{Failure, Fault, Operation, SimDisk};

use long_views::{Texts, WAIT, counter, options, until};

const DIR: &str = "/data/db";

fn open(disk: &SimDisk, options: Options) -> Database {
    Database::open_on(Arc::new(disk.clone()), Path::new(DIR), options).unwrap()
}

fn has_file(disk: &SimDisk) -> bool {
    (disk.files().iter()).any(|file| file.ends_with("history.store"))
}

fn members(db: &Database) -> u64 {
    counter(db, "history_store_members")
}

/// Statements of members say that the store is lost, nobody else notices, and purge goes on. Once the members
/// have gone there is a new store.
#[test]
fn a_lost_store_is_lost_for_its_members_alone() {
    for operation in [Operation::Read, Operation::Write] {
        let disk = SimDisk::default();
        let options = Options {
            buffer_pool_bytes: 1 << 20,
            ..options()
        };
        let texts = Texts::in_database(open(&disk, options), 4000);
        let mut member = texts.snapshot();
        let fault = Fault::always(operation, Failure::Io).on("history.store");
        texts.round(1);
        until("the view is a member", || members(&texts.db) == 1);
        if operation == Operation::Write {
            disk.inject(fault.clone());
        }
        assert!(texts.db.wait_for_purge(WAIT));
        if operation == Operation::Read {
            texts.compare(&mut member, 0);
            disk.inject(fault);
        }
        let mut scan = || -> varve::Result<()> {
            let mut cursor = texts.table.cursor(0)?;
            let mut found = cursor.first(&mut member, LockMode::None)?;
            while found {
                found = cursor.next(&mut member)?;
            }
            Ok(())
        };
        let mut n = 1;
        let error = loop {
            if let Err(e) = scan() {
                break e;
            }
            n += 1;
            assert!(n < 20, "{operation:?}: the store does without its file");
            texts.round(n);
        };
        assert!(error.to_string().contains("history.store"), "{error}");
        let mut stranger = texts.snapshot();
        texts.round(n + 1);
        // A store whose pages could not be written has no new members.
        if operation == Operation::Write {
            texts.compare(&mut stranger, n);
            assert!(!texts.db.wait_for_purge(Duration::from_millis(100)));
        }
        stranger.commit().unwrap();
        assert!(texts.db.wait_for_purge(WAIT), "{:?}", texts.db.report());
        assert!(scan().is_err(), "it does not come back");
        disk.heal();
        // Purge may have met the error, too; else it was none of the file's.
        match (scan(), operation) {
            (Ok(()), Operation::Read) => texts.compare(&mut member, 0),
            (Err(_), _) => {}
            (Ok(()), _) => panic!("what was not written is there"),
        }
        member.rollback().unwrap();
        until("the store is gone", || !has_file(&disk));
        let mut another = texts.snapshot();
        texts.round(n + 2);
        assert!(texts.db.wait_for_purge(WAIT));
        assert_eq!(members(&texts.db), 1);
        texts.compare(&mut another, n + 1);
    }
}

/// STORE-2: the versions of a table that is emptied or dropped go, others stay.
#[test]
fn versions_go_with_their_table() {
    let disk = SimDisk::default();
    let texts = Texts::in_database(open(&disk, options()), 300);
    let names = ["h/emptied", "h/dropped"];
    let others = names.map(|name| Texts::in_table(texts.db.clone(), name, 300));
    let mut member = texts.snapshot();
    texts.round(1);
    for other in &others {
        other.round(1);
    }
    assert!(texts.db.wait_for_purge(WAIT));
    let versions = || texts.counter("history_store_versions");
    let of_one = 2 * texts.rows as u64;
    assert_eq!(versions(), 3 * of_one);
    drop(others);
    texts.db.truncate_table("h/emptied").unwrap();
    texts.db.drop_table("h/dropped").unwrap();
    // Those of the definitions stay: they are rows, too.
    until("they go", || versions() < of_one + 10);
    texts.compare(&mut member, 0);
}

/// What was promised to a member is kept with the store off; nobody else becomes one.
#[test]
fn a_store_that_is_switched_off_keeps_its_members() {
    let disk = SimDisk::default();
    let texts = Texts::in_database(open(&disk, options()), 300);
    let set = |store, delay| {
        let history = HistoryOptions {
            store,
            delay,
            ..HistoryOptions::default()
        };
        texts.db.set_history_options(history).unwrap();
    };
    let mut first = texts.snapshot();
    texts.round(1);
    assert!(texts.db.wait_for_purge(WAIT));
    for (store, delay) in [(false, Duration::ZERO), (true, Duration::from_secs(3600))] {
        set(store, delay);
        let mut second = texts.snapshot();
        texts.round(2);
        assert!(!texts.db.wait_for_purge(Duration::from_millis(100)));
        assert_eq!(members(&texts.db), 1);
        texts.compare(&mut first, 0);
        texts.compare(&mut second, 1);
        set(true, Duration::ZERO);
        assert!(texts.db.wait_for_purge(WAIT));
        assert_eq!(members(&texts.db), 2);
        texts.compare(&mut second, 1);
        drop(second);
        texts.round(1);
    }
    texts.compare(&mut first, 0);
}

/// More room lets purge go on; less removes nothing.
#[test]
fn a_full_store_goes_on_with_more_room() {
    let disk = SimDisk::default();
    let limit = |max_size| HistoryOptions {
        max_size: Some(max_size),
        ..options().history
    };
    let least = HistoryOptions::MIN_MAX_SIZE;
    let options = Options {
        history: limit(least),
        ..options()
    };
    let texts = Texts::in_database(open(&disk, options), 4000);
    let mut member = texts.snapshot();
    texts.round(1);
    until("it is full", || texts.counter("history_store_full") > 0);
    texts.db.set_history_options(limit(least * 20)).unwrap();
    assert!(texts.db.wait_for_purge(WAIT));
    texts.db.set_history_options(limit(least)).unwrap();
    texts.compare(&mut member, 0);
    texts.round(2);
    assert!(texts.db.wait_for_purge(WAIT), "nothing more is needed");
    texts.compare(&mut member, 0);
}

/// Neither a shutdown nor a crash leaves a store behind.
#[test]
fn no_store_outlives_its_process() {
    for is_crash in [false, true] {
        let disk = SimDisk::default();
        let texts = Texts::in_database(open(&disk, options()), 300);
        let member = texts.snapshot();
        texts.round(1);
        assert!(texts.db.wait_for_purge(WAIT));
        assert!(has_file(&disk));
        let Texts { db, table, .. } = texts;
        drop(table);
        match is_crash {
            true => {
                db.crash();
                drop(member);
            }
            false => {
                member.rollback().unwrap();
                db.close().unwrap();
                assert!(!has_file(&disk));
            }
        }
        let db = open(&disk, options());
        assert!(!has_file(&disk));
        assert_eq!(members(&db), 0);
    }
}
