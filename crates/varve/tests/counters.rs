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
    Options, RedefinitionWaits, Table, TableDef, Transaction, Value,
};
use varve_sim::sample::{self, DIR};
use varve_sim::{CrashPoints, SimDisk};

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
