//! The AUTO_INCREMENT counter in a table's file, which rows raise without its page (space/counter.rs).
//!
//! What could break here: a value that is given out again after a crash, because the checkpoint passed the
//! record that says so, or a page was written without it; a counter that is higher than it should be after a
//! clean end, or lower after one that was set; redo that lowers what is in the file already.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use varve::{
    AutoIncLock, ColumnType, Cursor, Database, FlushOptions, Isolation, KeyMatch, LockMode,
    Options, PreparedRedefinition, RedefinitionWaits, Result, Table, TableDef, Transaction, Value,
};
use varve_sim::sample::{self, DIR};
use varve_sim::{CrashPoints, Failure, Fault, Operation, SimDisk};

const NAME: &str = "a/counted";
const SOON: Duration = Duration::from_secs(60);

fn open(disk: &SimDisk) -> Database {
    let options = Options {
        lock_wait_timeout: SOON,
        redo_capacity_bytes: 2 << 20,
        flush: FlushOptions {
            max_dirty_pages_pct: 1.0,
            ..FlushOptions::default()
        },
        ..sample::options()
    };
    Database::open_on(Arc::new(disk.clone()), Path::new(DIR), options).unwrap()
}

fn create(db: &Database) -> Table {
    let def = TableDef::new(NAME)
        .column("id", ColumnType::u64())
        .column("fill", ColumnType::Bytes(200))
        .primary(&["id"])
        .auto_increment("id");
    db.create_table(&def).unwrap()
}

fn begin(db: &Database) -> Transaction {
    db.begin(Isolation::RepeatableRead)
}

fn insert(trx: &mut Transaction, table: &Table, id: u64) {
    let values = [Value::UInt(id), Value::Bytes(vec![7; 100])];
    table.insert(trx, &values).unwrap();
}

fn delete(trx: &mut Transaction, table: &Table, id: u64) {
    let mut cursor = table.cursor(0).unwrap();
    let key = id.to_le_bytes();
    let found = cursor.seek(trx, &[Some(&key)], KeyMatch::Exact, LockMode::Exclusive);
    assert!(found.unwrap(), "row {id}");
    trx.delete(table, &cursor).unwrap();
}

/// Has all pages of the table written.
fn write_out(db: &Database) {
    drop(db.export_table(NAME, RedefinitionWaits::default()).unwrap());
}

fn last_row(db: &Database, table: &Table) -> u64 {
    let mut trx = begin(db);
    let mut cursor: Cursor = table.cursor(0).unwrap();
    if !cursor.last(&mut trx, LockMode::None).unwrap() {
        return 0;
    }
    match cursor.row().unwrap().values().unwrap()[0] {
        Value::UInt(id) => id,
        ref other => panic!("{other:?}"),
    }
}

fn rows(db: &Database, name: &str) -> usize {
    let mut trx = begin(db);
    let mut cursor = db.table(name).unwrap().cursor(0).unwrap();
    let mut more = cursor.first(&mut trx, LockMode::None).unwrap();
    let mut rows = 0;
    while more {
        rows += 1;
        more = cursor.next(&mut trx).unwrap();
    }
    rows
}

/// Inserts rows one by one, and deletes most of them at once; returns after which operation of the disk each
/// was there for good.
fn insert_and_delete(db: &Database, table: &Table, disk: &SimDisk, seed: u64) -> Vec<(usize, u64)> {
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut there = Vec::new();
    for _ in 0..250 {
        let mut trx = begin(db);
        let id = match rng.random_range(0..20) {
            0 => table.auto_increment_next() + rng.random_range(1..5),
            _ => trx
                .auto_increment_reserve(table, 1, AutoIncLock::AfterOthers)
                .unwrap(),
        };
        let values = [Value::UInt(id), Value::Bytes(vec![7; 100])];
        if table.insert(&mut trx, &values).is_err() {
            // Somebody has drawn it meanwhile.
            continue;
        }
        if rng.random_range(0..3) > 0 {
            delete(&mut trx, table, id);
        }
        trx.commit().unwrap();
        there.push((disk.operations(), id));
    }
    there
}

/// COUNTER-1 and COUNTER-2: whatever a crash leaves, no value that had become durable comes again.
#[test]
fn no_value_comes_again_after_a_crash() {
    let disk = SimDisk::default();
    let db = open(&disk);
    let table = create(&db);
    let is_over = AtomicBool::new(false);
    let mut there = thread::scope(|scope| {
        let writers = [1, 2, 3].map(|seed| {
            let (db, table, disk) = (&db, &table, &disk);
            scope.spawn(move || insert_and_delete(db, table, disk, seed))
        });
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                write_out(&db);
            }
        });
        let there = writers.map(|writer| writer.join().unwrap());
        is_over.store(true, Ordering::Relaxed);
        there.into_iter().flatten().collect::<Vec<_>>()
    });
    there.sort_unstable();
    drop(table);
    db.crash();

    let journal = disk.journal();
    let moments = journal.len();
    let (mut points, mut rng) = (CrashPoints::new(journal), SmallRng::seed_from_u64(8));
    let first = there[0].0;
    for n in 1..=80 {
        let moment = first + (moments - first) * n / 80;
        points.advance(moment);
        let left = SimDisk::new(points.crash(&mut rng));
        let db = open(&left);
        let table = db.table(NAME).unwrap();
        let next = table.auto_increment_next();
        assert!(next > last_row(&db, &table), "COUNTER-1 at {moment}");
        let durable = there.iter().take_while(|(at, _)| *at <= moment);
        let most = durable.map(|(_, id)| *id).max();
        assert!(most < Some(next), "COUNTER-1 at {moment}: {most:?}, {next}");
        assert!(db.wait_for_recovery(SOON));
        // What recovery has found is in the file then, too.
        db.close().unwrap();
        let table = open(&left).table(NAME).unwrap();
        assert_eq!(table.auto_increment_next(), next, "COUNTER-2 at {moment}");
    }
}

/// The counter is what it was, wherever the page and the checkpoint were, if the log was durable.
#[test]
fn the_counter_is_exact_after_a_clean_end_and_after_a_crash() {
    let disk = SimDisk::default();
    let mut rng = SmallRng::seed_from_u64(3);
    let mut next = 1;
    create(&open(&disk));
    for life in 0..40 {
        let db = open(&disk);
        let table = db.table(NAME).unwrap();
        assert_eq!(table.auto_increment_next(), next, "life {life}");
        for _ in 0..rng.random_range(0..6) {
            match rng.random_range(0..8) {
                0 => write_out(&db),
                1 => {
                    next = rng.random_range(1..200);
                    table.set_auto_increment(next).unwrap();
                }
                step => {
                    let mut trx = begin(&db);
                    let id = if step == 2 { next + 3 } else { next };
                    next = id + 1;
                    insert(&mut trx, &table, id);
                    delete(&mut trx, &table, id);
                    trx.commit().unwrap();
                }
            }
            assert_eq!(table.auto_increment_next(), next, "life {life}");
        }
        drop(table);
        match rng.random_range(0..3) {
            0 => db.close().unwrap(),
            _ => {
                db.flush_log().unwrap();
                db.crash();
            }
        }
    }
}

/// COUNTER-3, with everything in the redo that is replayed.
#[test]
fn a_lower_value_that_was_set_survives_a_crash() {
    let disk = SimDisk::default();
    let db = open(&disk);
    let table = create(&db);
    let mut trx = begin(&db);
    insert(&mut trx, &table, 100);
    delete(&mut trx, &table, 100);
    trx.commit().unwrap();
    table.set_auto_increment(10).unwrap();
    let mut trx = begin(&db);
    insert(&mut trx, &table, 10);
    trx.commit().unwrap();
    drop(table);
    db.crash();
    let table = open(&disk).table(NAME).unwrap();
    assert_eq!(table.auto_increment_next(), 11, "COUNTER-3");
}

/// What sets the counter of a table together with its definition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Setting {
    Redefinition,
    Rebuild,
    /// The definition is the one that the table has.
    Alone,
}

const SETTINGS: [Setting; 3] = [Setting::Redefinition, Setting::Rebuild, Setting::Alone];

/// What the counter was, and what it is set to; 40 rows are below both.
const COUNTERS: [u64; 2] = [700, 60];

/// A table with rows whose counter is the first one.
fn with_counter_far_ahead(disk: &SimDisk) -> Database {
    let db = open(disk);
    let table = create(&db);
    let mut trx = begin(&db);
    (1..=40).for_each(|id| insert(&mut trx, &table, id));
    trx.commit().unwrap();
    table.set_auto_increment(COUNTERS[0]).unwrap();
    drop(table);
    db.flush_log().unwrap();
    db
}

fn prepare(db: &Database, setting: Setting) -> Result<PreparedRedefinition> {
    let mut def = db.table(NAME)?.def().clone();
    let waits = RedefinitionWaits::default();
    if setting != Setting::Alone {
        def = def.nullable("more", ColumnType::i64());
    }
    let mut prepared = match setting {
        Setting::Rebuild => db.prepare_rebuild(&def, waits)?,
        _ => db.prepare_redefinition(&def, waits)?,
    };
    prepared.set_auto_increment(COUNTERS[1])?;
    Ok(prepared)
}

/// Whether the table has its new definition, and what its counter is; the next row gets that.
fn changed_and_counter(db: &Database) -> (bool, u64) {
    let table = db.table(NAME).unwrap();
    let report = db.check_table(&table).unwrap();
    assert_eq!(report.errors, [""; 0]);
    assert_eq!(last_row(db, &table), 40);
    let next = table.auto_increment_next();
    (table.def().columns.len() > 2, next)
}

/// The counter that is set with a definition is there when that is, and one that is set alone when the
/// statement has succeeded. A table that is still the old one has its old counter, or the new one, as in
/// InnoDB: no row has numbers from there on. What is written anew has nothing of a statement that has not
/// succeeded.
#[test]
fn a_counter_that_is_set_with_a_definition_survives_a_crash() {
    for setting in SETTINGS {
        let disk = SimDisk::default();
        let db = with_counter_far_ahead(&disk);
        let first = disk.operations();
        prepare(&db, setting)
            .unwrap()
            .commit(&mut |_, _| {})
            .unwrap();
        let done = disk.operations();
        assert_eq!(changed_and_counter(&db).1, COUNTERS[1]);
        db.crash();
        let journal = disk.journal();
        let last = journal.len();
        let (mut points, mut rng) = (CrashPoints::new(journal), SmallRng::seed_from_u64(21));
        for moment in first..=last {
            points.advance(moment);
            let db = open(&SimDisk::new(points.crash(&mut rng)));
            let (is_changed, next) = changed_and_counter(&db);
            let context = format!("{setting:?}, {moment} of {first}..{done}: {is_changed}, {next}");
            assert!(COUNTERS.contains(&next), "{context}");
            match setting {
                Setting::Redefinition => assert!(!is_changed || next == COUNTERS[1], "{context}"),
                Setting::Rebuild => assert_eq!(is_changed, next == COUNTERS[1], "{context}"),
                Setting::Alone => assert!(!is_changed, "{context}"),
            }
            if moment >= done {
                assert_eq!(is_changed, setting != Setting::Alone, "{context}");
                assert_eq!(next, COUNTERS[1], "{context}");
            }
        }
    }
}

/// A statement that fails leaves the counter alone, wherever the disk fails it; one that succeeds does not.
#[test]
fn a_counter_that_is_set_goes_back_with_a_failed_statement() {
    for setting in SETTINGS {
        let disk = SimDisk::default();
        with_counter_far_ahead(&disk).close().unwrap();
        let image = disk.image();
        let mut failures = 0;
        for n in 0.. {
            let disk = SimDisk::new(image.clone());
            let db = open(&disk);
            disk.inject(Fault::always(Operation::Any, Failure::Io).limited(n, u64::MAX));
            let set = prepare(&db, setting).and_then(|prepared| prepared.commit(&mut |_, _| {}));
            disk.heal();
            let expected = (
                set.is_ok() && setting != Setting::Alone,
                COUNTERS[usize::from(set.is_ok())],
            );
            // A failed write of the log ends it all, and what is in the log then counts.
            let is_over =
                matches!(set, Err(varve::Error::Poisoned { .. })) || db.table(NAME).is_err();
            if !is_over {
                assert_eq!(
                    changed_and_counter(&db),
                    expected,
                    "{setting:?}, {n}: {set:?}"
                );
            }
            db.crash();
            let (is_changed, next) = changed_and_counter(&open(&disk));
            assert!(
                !is_changed || next == COUNTERS[1],
                "{setting:?}, {n}: {set:?}, {next}"
            );
            if set.is_ok() {
                assert_eq!((is_changed, next), expected, "{setting:?}, {n}");
                break;
            }
            failures += 1;
        }
        assert!(failures > 0, "{setting:?}");
    }
}

/// A table whose counter is set already has its old one when the next table of the same redefinition fails.
#[test]
fn a_counter_goes_back_if_another_table_fails() {
    const OTHER: &str = "a/other";
    const THIRD: &str = "a/third";
    let disk = SimDisk::default();
    let db = with_counter_far_ahead(&disk);
    let fill = |name: &str, last| {
        let mut def = db.table(NAME).unwrap().def().clone();
        def.name = name.into();
        let table = db.create_table(&def).unwrap();
        let mut trx = begin(&db);
        (1..=last).for_each(|id| insert(&mut trx, &table, id));
        trx.commit().unwrap();
        table.def().clone()
    };
    let other = fill(OTHER, 3000);
    // More than the pool has room for.
    fill(THIRD, 30_000);
    db.close().unwrap();
    let image = disk.image();
    let mut failures = 0;
    for n in 0.. {
        let disk = SimDisk::new(image.clone());
        let db = open(&disk);
        let mut prepared = prepare(&db, Setting::Redefinition).unwrap();
        prepared.and_redefine(&other).unwrap();
        prepared.set_auto_increment(COUNTERS[1]).unwrap();
        // Nothing of the other table's rows is in the pool afterwards.
        assert_eq!(rows(&db, THIRD), 30_000);
        let fault = Fault::always(Operation::Read, Failure::Io).on("other.vdt");
        disk.inject(fault.limited(n, u64::MAX));
        let set = prepared.commit(&mut |_, _| {});
        disk.heal();
        if set.is_ok() {
            assert_eq!(changed_and_counter(&db), (true, COUNTERS[1]));
            break;
        }
        assert_eq!(
            changed_and_counter(&db),
            (false, COUNTERS[0]),
            "{n}: {set:?}"
        );
        db.flush_log().unwrap();
        db.crash();
        let left = changed_and_counter(&open(&disk));
        assert_eq!(left, (false, COUNTERS[0]), "{n}: {set:?}");
        failures += 1;
    }
    // One reads the header, another one the rows, when the first counter is set.
    assert!(failures > 1);
}
