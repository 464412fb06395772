//! Races and misuse between two or three parties, each by the fewest steps that show it.
//!
//! What could break here: an operation that looks, lets go of its latch, and finds something else when it
//! comes back (purge, a rolled-back transaction, DDL were faster); bookkeeping that only the successful path
//! keeps; a caller's mistake that costs more than an error.

#[path = "support/dying_disk.rs"]
mod dying_disk;

use std::sync::{Arc, Barrier};
use std::time::Duration;

#[cfg(feature = "sabotage")]
use varve::internals::base::StopPoint;
use varve::{
    ColumnType, Database, Error, FlushLog, Isolation, KeyMatch, LockMode, Options, PurgeOptions,
    Table, TableDef, Transaction, Value,
};

const WAIT: Duration = Duration::from_secs(60);

fn options() -> Options {
    Options {
        page_size: 4096,
        buffer_pool_bytes: 2 << 20,
        redo_capacity_bytes: 16 << 20,
        flush_log_at_trx_commit: FlushLog::Lazy,
        ..Options::default()
    }
}

fn definition(name: &str) -> TableDef {
    TableDef::new(name)
        .column("id", ColumnType::i64())
        .column("k", ColumnType::i64())
        .primary(&["id"])
        .unique("by_k", &["k"])
}

fn open(dir: &tempfile::TempDir) -> (Database, Table) {
    let db = Database::open(dir.path(), options()).unwrap();
    let table = db.create_table(&definition("a/t")).unwrap();
    (db, table)
}

fn status(db: &Database, name: &str) -> u64 {
    let found = db.status().into_iter().find(|(n, _)| *n == name);
    found.unwrap_or_else(|| panic!("no counter {name}")).1
}

fn insert(trx: &mut Transaction, table: &Table, id: i64, k: i64) -> varve::Result<()> {
    let row = table.def().row(&[Value::Int(id), Value::Int(k)]).unwrap();
    trx.insert(table, &row.datums())
}

fn begin(db: &Database) -> Transaction {
    db.begin(Isolation::RepeatableRead)
}

/// A cursor on the row, locked exclusively.
fn find(trx: &mut Transaction, table: &Table, id: i64) -> varve::Cursor {
    let mut cursor = table.cursor(0).unwrap();
    let key = table.def().key(0, &[Value::Int(id)]).unwrap();
    let found = cursor.seek(trx, &key.datums(), KeyMatch::Exact, LockMode::Exclusive);
    assert!(found.unwrap(), "row {id}");
    cursor
}

fn check(db: &Database, name: &str, rows: u64, deleted: u64) {
    let report = db.check_table(&db.table(name).unwrap()).unwrap();
    assert!(report.errors.is_empty(), "{:#?}", report.errors);
    assert_eq!((report.rows, report.deleted_rows), (rows, deleted));
}

/// A delete-marked row that an insert has found and locked may be purged before the insert comes back to
/// un-delete-mark it.
#[cfg(feature = "sabotage")]
#[test]
fn a_deleted_row_is_inserted_again_while_purge_removes_it() {
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = open(&dir);
    let mut trx = begin(&db);
    insert(&mut trx, &table, 1, 1).unwrap();
    trx.commit().unwrap();
    // It keeps the dead row from purge.
    let mut view = begin(&db);
    view.take_snapshot();
    let mut trx = begin(&db);
    let cursor = find(&mut trx, &table, 1);
    trx.delete(&table, &cursor).unwrap();
    trx.commit().unwrap();
    let stop = db.core().log.stops.set(StopPoint::DeadRowLocked);
    std::thread::scope(|scope| {
        let inserted = scope.spawn(|| {
            let mut trx = begin(&db);
            insert(&mut trx, &table, 1, 1)?;
            trx.commit()
        });
        stop.wait();
        drop(view);
        let is_purged = db.wait_for_purge(WAIT);
        stop.wait();
        inserted.join().unwrap().unwrap();
        assert!(is_purged);
    });
    // The row and its entry, as the insert came in between.
    assert_eq!(status(&db, "purged_records"), 2);
    check(&db, "a/t", 1, 0);
}

/// SEMI-2: a semi-consistent scan that meets a transaction just when it is rolled back does not take for
/// committed what that wrote.
#[cfg(feature = "sabotage")]
#[test]
fn a_semi_consistent_scan_sees_nothing_that_is_rolled_back() {
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = open(&dir);
    let mut trx = begin(&db);
    insert(&mut trx, &table, 1, 1).unwrap();
    trx.commit().unwrap();
    let read = || {
        let mut trx = db.begin(Isolation::ReadCommitted);
        let mut cursor = table.cursor(0).unwrap();
        let found = cursor.first(&mut trx, LockMode::ExclusiveSemiConsistent);
        let value = found
            .unwrap()
            .then(|| cursor.row().unwrap().value(1).unwrap());
        (value, cursor.was_semi_consistent())
    };
    for deletes in [true, false] {
        let mut writer = begin(&db);
        let cursor = find(&mut writer, &table, 1);
        if deletes {
            writer.delete(&table, &cursor).unwrap();
        } else {
            let row = table.def().row(&[Value::Int(1), Value::Int(2)]).unwrap();
            writer.update(&table, &cursor, &row.datums()).unwrap();
        }
        let stop = db.core().log.stops.set(StopPoint::ViewOfCommittedRow);
        let seen = std::thread::scope(|scope| {
            let seen = scope.spawn(read);
            stop.wait();
            let rolled_back = writer.rollback();
            stop.wait();
            rolled_back.unwrap();
            seen.join().unwrap()
        });
        assert_eq!(seen, (Some(Value::Int(1)), true), "deletes: {deletes}");
    }
}

/// ROWLOCK-1: a locking scan does not give a row that its deleter, at the end of the transaction, has just
/// let go of.
#[cfg(feature = "sabotage")]
#[test]
fn a_scan_passes_over_a_row_whose_deletion_is_committed_meanwhile() {
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = open(&dir);
    let mut trx = begin(&db);
    (1..=3).for_each(|id| insert(&mut trx, &table, id, id).unwrap());
    trx.commit().unwrap();
    let mut deleter = begin(&db);
    let cursor = find(&mut deleter, &table, 2);
    deleter.delete(&table, &cursor).unwrap();
    let scan = || {
        let mut trx = begin(&db);
        let mut cursor = table.cursor(0).unwrap();
        let mut ids = Vec::new();
        let mut more = cursor.first(&mut trx, LockMode::Exclusive).unwrap();
        while more {
            ids.push(cursor.row().unwrap().value(0).unwrap());
            more = cursor.next(&mut trx).unwrap();
        }
        ids
    };
    let stop = db.core().log.stops.set(StopPoint::RowBeingDeleted);
    let ids = std::thread::scope(|scope| {
        let ids = scope.spawn(scan);
        stop.wait();
        let committed = deleter.commit();
        stop.wait();
        committed.unwrap();
        ids.join().unwrap()
    });
    assert_eq!(ids, [Value::Int(1), Value::Int(3)]);
}

/// WRITTEN-2: a row that a rollback has put back is nobody else's before its entries are there, too. Whoever
/// took it then would find an entry that does not fit.
#[cfg(feature = "sabotage")]
#[test]
fn a_row_is_locked_until_a_rollback_has_put_back_its_entries() {
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = open(&dir);
    // What a transaction writes it does not lock beside.
    db.core().locks.set_few_locks(0);
    let mut trx = begin(&db);
    insert(&mut trx, &table, 1, 1).unwrap();
    trx.commit().unwrap();
    for is_whole in [true, false] {
        let mut deleter = db.begin(Isolation::ReadCommitted);
        let savepoint = deleter.savepoint();
        let cursor = find(&mut deleter, &table, 1);
        deleter.delete(&table, &cursor).unwrap();
        let mut other = db.begin(Isolation::ReadCommitted);
        other.set_lock_wait_timeout(Duration::ZERO);
        let stop = db.core().log.stops.set(StopPoint::RowPutBack);
        let locked = std::thread::scope(|scope| {
            let rollback = scope.spawn(move || {
                match is_whole {
                    true => deleter.rollback().unwrap(),
                    false => deleter.rollback_to(savepoint).unwrap(),
                };
            });
            stop.wait();
            let mut cursor = table.cursor(0).unwrap();
            let key = table.def().key(0, &[Value::Int(1)]).unwrap();
            let found = cursor.seek(
                &mut other,
                &key.datums(),
                KeyMatch::Exact,
                LockMode::Exclusive,
            );
            stop.wait();
            rollback.join().unwrap();
            found
        });
        assert!(matches!(locked, Err(Error::LockWaitTimeout)), "{locked:?}");
        let cursor = find(&mut other, &table, 1);
        other.delete(&table, &cursor).unwrap();
        other.rollback().unwrap();
        assert_eq!(db.core().locks.status().locked, 0);
        check(&db, "a/t", 1, 0);
    }
}

/// Rows are counted where they are changed, so that what takes a change back finds it counted.
#[test]
fn failed_inserts_do_not_change_the_number_of_rows() {
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = open(&dir);
    let mut trx = begin(&db);
    for id in 0..10 {
        insert(&mut trx, &table, id, id).unwrap();
    }
    for id in 10..20 {
        let duplicate = insert(&mut trx, &table, id, 5);
        assert!(matches!(duplicate, Err(Error::DuplicateKey { .. })));
    }
    assert_eq!(table.row_count_estimate(), 10);
    let savepoint = trx.savepoint();
    let cursor = find(&mut trx, &table, 3);
    trx.delete(&table, &cursor).unwrap();
    insert(&mut trx, &table, 3, 33).unwrap();
    insert(&mut trx, &table, 30, 30).unwrap();
    trx.rollback_to(savepoint).unwrap();
    assert_eq!(table.row_count_estimate(), 10);
    trx.commit().unwrap();
    check(&db, "a/t", 10, 0);
}

/// Nothing keeps the key away from the other one between the look for the row and the insert: at READ
/// COMMITTED no gap is locked.
#[test]
fn two_that_put_the_same_new_row_both_do() {
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = open(&dir);
    // Both have looked and found nothing when it lets them insert.
    let mut keeper = begin(&db);
    let row = table.get_for_update(&mut keeper, &[Value::Int(1)]);
    assert!(row.unwrap().is_none());
    std::thread::scope(|scope| {
        let put = |k| {
            let (db, table) = (&db, &table);
            move || {
                let mut trx = db.begin(Isolation::ReadCommitted);
                table.put(&mut trx, &[Value::Int(1), Value::Int(k)])?;
                trx.commit()
            }
        };
        let both = [1, 2].map(|k| scope.spawn(put(k)));
        while status(&db, "row_lock_current_waits") < 2 && !both.iter().any(|t| t.is_finished()) {
            std::thread::yield_now();
        }
        let waited = status(&db, "row_lock_current_waits");
        drop(keeper);
        for put in both {
            put.join().unwrap().unwrap();
        }
        assert_eq!(waited, 2);
    });
    // What it does not wait for is another row with the same unique key.
    let mut trx = begin(&db);
    let taken = table.put(&mut trx, &[Value::Int(-1), Value::Int(-1)]);
    taken.unwrap();
    let row = [Value::Int(-2), Value::Int(-1)];
    let Err(Error::DuplicateKey { index }) = table.put(&mut trx, &row) else {
        panic!("two rows with k = -1");
    };
    assert_eq!(index, "by_k");
    trx.rollback().unwrap();
    assert!(db.wait_for_purge(WAIT));
    check(&db, "a/t", 1, 0);
    db.close().unwrap();
}

/// A statement gives up the locks that it took itself, under READ COMMITTED, and no others.
#[test]
fn unlocking_a_row_leaves_earlier_locks_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = open(&dir);
    let mut trx = begin(&db);
    (1..4).for_each(|id| insert(&mut trx, &table, id, id).unwrap());
    trx.commit().unwrap();
    for (isolation, free) in [
        (Isolation::ReadCommitted, [false, true, true]),
        (Isolation::RepeatableRead, [false, false, false]),
    ] {
        for index in [0, 1] {
            let mut trx = db.begin(isolation);
            find(&mut trx, &table, 1);
            let mut cursor = table.cursor(index).unwrap();
            let mut on_row = cursor.first(&mut trx, LockMode::Exclusive).unwrap();
            while on_row {
                cursor.unlock_row(&mut trx);
                on_row = cursor.next(&mut trx).unwrap();
            }
            let is_free = [1, 2, 3].map(|id| {
                let mut other = begin(&db);
                other.set_lock_wait_timeout(Duration::ZERO);
                let key = table.def().key(0, &[Value::Int(id)]).unwrap();
                let mut cursor = table.cursor(0).unwrap();
                let got = cursor.seek(&mut other, &key.datums(), KeyMatch::Exact, LockMode::Shared);
                match got {
                    Ok(true) => true,
                    Err(Error::LockWaitTimeout) => false,
                    other => panic!("row {id}: {other:?}"),
                }
            });
            assert_eq!(is_free, free, "{isolation:?}, index {index}");
        }
    }
}

/// While a table is renamed its old handle is closed and the new one is not there yet. Purge waits for it.
#[test]
fn purge_misses_nothing_in_a_table_that_is_renamed() {
    let dir = tempfile::tempdir().unwrap();
    let disk = dying_disk::DyingDisk::new();
    let db = Database::open_on(Arc::new(disk.clone()), dir.path(), options()).unwrap();
    // So that the coordinator alone comes to one table after the other, in the order in which they were made.
    let alone = PurgeOptions {
        threads: 0,
        ..PurgeOptions::default()
    };
    db.set_purge_options(alone).unwrap();
    const ROWS: i64 = 300;
    let tables = ["a/first", "a/t"].map(|name| db.create_table(&definition(name)).unwrap());
    let mut view = begin(&db);
    view.take_snapshot();
    let mut trx = begin(&db);
    for table in &tables {
        for id in 0..ROWS {
            insert(&mut trx, table, id, id).unwrap();
            let cursor = find(&mut trx, table, id);
            trx.delete(table, &cursor).unwrap();
        }
    }
    trx.commit().unwrap();
    let stop = Arc::new(Barrier::new(2));
    let at_rename = stop.clone();
    disk.before(move |operation, path| {
        if operation == "rename" && path.ends_with("a/t.vdt") {
            at_rename.wait();
            at_rename.wait();
        }
    });
    std::thread::scope(|scope| {
        let renamed = scope.spawn(|| db.rename_table("a/t", "a/u"));
        stop.wait();
        let before = status(&db, "purged_records");
        drop(view);
        while status(&db, "purged_records") < before + ROWS as u64 {
            std::thread::yield_now();
        }
        // It is through with the other table's entries, and can't go on with this one's, however long it has.
        let is_past = db.wait_for_purge(Duration::from_millis(100));
        stop.wait();
        renamed.join().unwrap().unwrap();
        assert!(!is_past, "purge passed the table over");
    });
    assert!(db.wait_for_purge(WAIT));
    check(&db, "a/first", 0, 0);
    check(&db, "a/u", 0, 0);
}

/// CHECK TABLE keeps purge away for as long as it takes; transactions that come meanwhile don't wait for
/// that.
#[test]
fn transactions_use_a_table_from_which_purge_is_kept_away() {
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = open(&dir);
    let opened = db.core().tables.get("a/t").unwrap();
    let _gate = opened.keep_purge_away();
    let (done, finished) = std::sync::mpsc::channel();
    let (other, other_table) = (db.clone(), table.clone());
    std::thread::spawn(move || {
        let mut trx = begin(&other);
        insert(&mut trx, &other_table, 1, 1).unwrap();
        trx.commit().unwrap();
        done.send(()).unwrap();
    });
    finished
        .recv_timeout(WAIT)
        .expect("the transaction waits for the gate");
}

/// The copy that ALTER TABLE fills counts as made when it takes the table's place: a view that was opened
/// while it was filled would find an empty table.
#[test]
fn a_view_does_not_read_a_copy_that_was_filled_after_it_was_opened() {
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = open(&dir);
    let mut def = table.def().clone();
    def.name = "a/#sql-alter-1".into();
    let copy = db.create_table(&def).unwrap();
    let mut trx = begin(&db);
    insert(&mut trx, &table, 1, 1).unwrap();
    trx.commit().unwrap();
    let mut older = begin(&db);
    assert!(table.get(&mut older, &[Value::Int(1)]).unwrap().is_some());
    drop(table);
    let mut trx = begin(&db);
    insert(&mut trx, &copy, 7, 7).unwrap();
    trx.commit().unwrap();
    drop(copy);
    db.rename_table("a/#sql-alter-1", "a/new").unwrap();
    let new = db.table("a/new").unwrap();
    let read = new
        .get(&mut older, &[Value::Int(7)])
        .map(|row| row.is_some());
    assert!(
        matches!(&read, Err(Error::DefinitionChanged { table }) if table == "a/new"),
        "{read:?}"
    );
    older.rollback().unwrap();
    // Under another name it is the same table.
    let mut older = begin(&db);
    assert!(new.get(&mut older, &[Value::Int(7)]).unwrap().is_some());
    older.commit().unwrap();
    let mut older = begin(&db);
    older.take_snapshot();
    db.rename_table("a/new", "a/newer").unwrap();
    let newer = db.table("a/newer").unwrap();
    assert!(newer.get(&mut older, &[Value::Int(7)]).unwrap().is_some());
    older.commit().unwrap();
    db.close().unwrap();
}

/// Once a rename is committed it has to happen: what can be wrong with the name is found before.
#[test]
fn a_rename_that_cannot_be_done_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = open(&dir);
    let mut trx = begin(&db);
    insert(&mut trx, &table, 1, 1).unwrap();
    trx.commit().unwrap();
    std::fs::write(dir.path().join("a/taken.vdt"), "not a tablespace").unwrap();
    std::fs::write(dir.path().join("file"), "").unwrap();
    for to in [
        &format!("a/{}", "n".repeat(252)),
        "a/.t",
        "a/taken",
        "file/t",
        "t",
    ] {
        assert!(db.rename_table("a/t", to).is_err(), "{to}");
        assert_eq!(db.tables().unwrap(), ["a/t"], "{to}");
        check(&db, "a/t", 1, 0);
    }
    db.flush_log().unwrap();
    db.crash();
    let (_, db) = (
        table,
        Database::open(dir.path(), Options::default()).unwrap(),
    );
    assert_eq!(db.tables().unwrap(), ["a/t"]);
    db.rename_table("a/t", "b/u").unwrap();
    check(&db, "b/u", 1, 0);
}

/// A caller's mistake is an error, and nothing else.
#[test]
fn mistakes_of_callers_cost_no_more_than_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = open(&dir);
    let other = db
        .create_table(
            &TableDef::new("a/other")
                .column("id", ColumnType::i64())
                .column("k", ColumnType::i64())
                .primary(&["id"]),
        )
        .unwrap();
    let mut trx = begin(&db);
    insert(&mut trx, &table, 1, 1).unwrap();
    insert(&mut trx, &other, 1, 1).unwrap();
    trx.commit().unwrap();

    let mut trx = begin(&db);
    let cursor = find(&mut trx, &table, 1);
    let row = table.def().row(&[Value::Int(1), Value::Int(2)]).unwrap();
    assert!(matches!(
        trx.update(&other, &cursor, &row.datums()),
        Err(Error::Invalid { .. })
    ));
    assert!(matches!(
        trx.delete(&other, &cursor),
        Err(Error::Invalid { .. })
    ));
    // The second time the cursor's row is an old one.
    trx.update(&table, &cursor, &row.datums()).unwrap();
    let row = table.def().row(&[Value::Int(1), Value::Int(3)]).unwrap();
    assert!(matches!(
        trx.update(&table, &cursor, &row.datums()),
        Err(Error::Invalid { .. })
    ));
    trx.commit_start().unwrap();
    assert!(matches!(
        trx.update(&table, &cursor, &row.datums()),
        Err(Error::Invalid { .. })
    ));
    assert!(matches!(
        trx.delete(&table, &cursor),
        Err(Error::Invalid { .. })
    ));
    assert!(matches!(
        insert(&mut trx, &table, 5, 5),
        Err(Error::Invalid { .. })
    ));
    assert!(matches!(
        trx.rollback_to(trx.savepoint()),
        Err(Error::Invalid { .. })
    ));
    trx.commit_wait().unwrap();
    drop(trx);
    // The database still works, and has what was right.
    let mut trx = begin(&db);
    let cursor = find(&mut trx, &table, 1);
    assert_eq!(cursor.row().unwrap().value(1).unwrap(), Value::Int(2));
    insert(&mut trx, &table, 2, 1).unwrap();
    trx.commit().unwrap();
    check(&db, "a/t", 2, 0);
    check(&db, "a/other", 1, 0);
}

/// Pages that were filled in order are full: taking back what did not change a row's length needs no room in
/// them.
#[test]
fn rolling_updates_back_splits_no_page() {
    let dir = tempfile::tempdir().unwrap();
    let (db, _) = open(&dir);
    let def = TableDef::new("a/full")
        .column("id", ColumnType::i64())
        .column("fill", ColumnType::Bytes(400))
        .primary(&["id"]);
    let table = db.create_table(&def).unwrap();
    let row = |id, byte| {
        let fill = Value::Bytes(vec![byte; 400]);
        def.row(&[Value::Int(id), fill]).unwrap()
    };
    let mut trx = begin(&db);
    (0..500).for_each(|id| trx.insert(&table, &row(id, 1).datums()).unwrap());
    trx.commit().unwrap();
    let splits = || {
        let opened = db.core().tables.get("a/full").unwrap();
        let splits = &opened.clustered.tree.counters.splits;
        splits.load(std::sync::atomic::Ordering::Relaxed)
    };
    let before = splits();
    assert!(before > 10);
    let mut trx = begin(&db);
    for id in 0..500 {
        let cursor = find(&mut trx, &table, id);
        trx.update(&table, &cursor, &row(id, 2).datums()).unwrap();
    }
    trx.rollback().unwrap();
    assert_eq!(splits(), before);
    check(&db, "a/full", 500, 0);
}

/// A statement that is taken back by half must not be committed, whatever the caller does about the error.
#[test]
fn a_rollback_to_a_savepoint_that_fails_is_no_commit() {
    let dir = tempfile::tempdir().unwrap();
    let disk = dying_disk::DyingDisk::new();
    let options = Options {
        page_size: 4096,
        buffer_pool_bytes: 1 << 20,
        logger: Some(Arc::new(|_, _| {})),
        ..Options::default()
    };
    let db = Database::open_on(Arc::new(disk.clone()), dir.path(), options.clone()).unwrap();
    let def = TableDef::new("a/large")
        .column("id", ColumnType::i64())
        .column("fill", ColumnType::Bytes(400))
        .primary(&["id"]);
    let table = db.create_table(&def).unwrap();
    const ROWS: i64 = 3000;
    let row = |id, byte| {
        let fill = Value::Bytes(vec![byte; 400]);
        def.row(&[Value::Int(id), fill]).unwrap()
    };
    let mut trx = begin(&db);
    (0..ROWS).for_each(|id| trx.insert(&table, &row(id, 1).datums()).unwrap());
    trx.commit().unwrap();
    let mut trx = begin(&db);
    let savepoint = trx.savepoint();
    for id in 0..ROWS {
        let cursor = find(&mut trx, &table, id);
        trx.update(&table, &cursor, &row(id, 2).datums()).unwrap();
    }
    // The pool holds a part of what has to be taken back.
    disk.fail_reads(true);
    assert!(trx.rollback_to(savepoint).is_err());
    disk.fail_reads(false);
    assert!(trx.commit().is_err());
    drop(table);
    db.crash();
    let db = Database::open(dir.path(), options).unwrap();
    let table = db.table("a/large").unwrap();
    let mut trx = begin(&db);
    let mut cursor = table.cursor(0).unwrap();
    let mut on_row = cursor.first(&mut trx, LockMode::None).unwrap();
    let mut rows = 0;
    while on_row {
        assert_eq!(
            cursor.row().unwrap().get(1),
            Some(&[1; 400][..]),
            "row {rows}"
        );
        rows += 1;
        on_row = cursor.next(&mut trx).unwrap();
    }
    assert_eq!(rows, ROWS);
}
