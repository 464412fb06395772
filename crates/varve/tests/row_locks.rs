//! Row locks as transactions meet them: what a statement gives up early, and who gets a key that several
//! want.

#[path = "support/small.rs"]
mod small;

use std::thread;
use std::time::Duration;

use varve::{
    ColumnType, Cursor, Database, Error, Isolation, KeyMatch, LockMode, Table, TableDef,
    Transaction, Value,
};

fn open(dir: &std::path::Path) -> (Database, Table) {
    let db = Database::open(dir, small::options()).unwrap();
    let def = TableDef::new("a/t")
        .column("id", ColumnType::i64())
        .column("k", ColumnType::i64())
        .primary(&["id"])
        .index("by_k", &["k"]);
    let table = db.create_table(&def).unwrap();
    (db, table)
}

/// A table with the rows 1 to `rows`.
fn open_with_rows(dir: &std::path::Path, rows: i64) -> (Database, Table) {
    let (db, table) = open(dir);
    let mut trx = db.begin(Isolation::ReadCommitted);
    (1..=rows).for_each(|id| insert(&mut trx, &table, id).unwrap());
    trx.commit().unwrap();
    (db, table)
}

fn insert(trx: &mut Transaction, table: &Table, id: i64) -> varve::Result<()> {
    let row = [Value::Int(id), Value::Int(id * 10)];
    trx.insert(table, &table.def().row(&row).unwrap().datums())
}

/// Reads the row for update through an index. The cursor stands on it.
fn lock(
    trx: &mut Transaction,
    table: &Table,
    index: usize,
    id: i64,
) -> varve::Result<Option<Cursor>> {
    let mut cursor = table.cursor(index)?;
    let key = if index == 0 { id } else { id * 10 };
    let key = key.to_le_bytes();
    let found = cursor.seek(trx, &[Some(&key)], KeyMatch::Exact, LockMode::Exclusive)?;
    Ok(found.then_some(cursor))
}

fn is_locked(db: &Database, table: &Table, id: i64) -> bool {
    let mut trx = db.begin(Isolation::ReadCommitted);
    trx.set_lock_wait_timeout(Duration::ZERO);
    match lock(&mut trx, table, 0, id) {
        Ok(found) => {
            assert!(found.is_some(), "row {id}");
            false
        }
        Err(Error::LockWaitTimeout) => true,
        Err(e) => panic!("{e}"),
    }
}

fn until_waiting(db: &Database, n: u64) {
    while !db.status().contains(&("row_lock_current_waits", n)) {
        thread::yield_now();
    }
}

/// Where a move fails, the cursor is not on the row that it left: its key would be that of the row it could
/// not lock. The search goes on from there all the same.
#[test]
fn a_move_that_fails_leaves_the_cursor_on_no_row() {
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = open_with_rows(dir.path(), 3);
    for index in [0, 1] {
        let mut holder = db.begin(Isolation::ReadCommitted);
        lock(&mut holder, &table, 0, 2).unwrap().unwrap();
        let mut trx = db.begin(Isolation::ReadCommitted);
        trx.set_lock_wait_timeout(Duration::ZERO);
        let mut cursor = table.cursor(index).unwrap();
        assert!(cursor.first(&mut trx, LockMode::Exclusive).unwrap());
        let moved = cursor.next(&mut trx);
        assert!(matches!(moved, Err(Error::LockWaitTimeout)), "{moved:?}");
        assert!(!cursor.on_row() && cursor.row().is_err());
        assert!(trx.delete(&table, &cursor).is_err(), "of which row?");
        holder.commit().unwrap();
        assert!(cursor.next(&mut trx).unwrap());
        assert_eq!(cursor.row().unwrap().get(1), Some(&20i64.to_le_bytes()[..]));
    }
}

/// The scan's next row, for which it waits until `holder` commits.
fn next_after(db: &Database, holder: Transaction, cursor: &mut Cursor, scan: &mut Transaction) {
    thread::scope(|s| {
        let moved = s.spawn(|| cursor.next(scan).unwrap());
        until_waiting(db, 1);
        holder.commit().unwrap();
        assert!(moved.join().unwrap());
    });
}

/// A scan that waited for a row whose deletion is committed then has no lock on it: others may use its key.
#[test]
fn a_row_that_goes_while_a_scan_waits_for_it_is_not_locked() {
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = open_with_rows(dir.path(), 3);
    let mut deleter = db.begin(Isolation::ReadCommitted);
    let cursor = lock(&mut deleter, &table, 0, 2).unwrap().unwrap();
    deleter.delete(&table, &cursor).unwrap();
    let mut scan = db.begin(Isolation::ReadCommitted);
    let mut cursor = table.cursor(0).unwrap();
    assert!(cursor.first(&mut scan, LockMode::Exclusive).unwrap());
    next_after(&db, deleter, &mut cursor, &mut scan);
    assert_eq!(cursor.row().unwrap().get(0), Some(&3i64.to_le_bytes()[..]));
    let mut other = db.begin(Isolation::ReadCommitted);
    other.set_lock_wait_timeout(Duration::ZERO);
    insert(&mut other, &table, 2).unwrap();
}

/// A row that the scan has waited for is new to it once. Coming to it again, it has it already.
#[test]
fn only_the_first_visit_to_a_row_gives_up_the_lock_that_was_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = open_with_rows(dir.path(), 3);
    let mut holder = db.begin(Isolation::ReadCommitted);
    lock(&mut holder, &table, 0, 2).unwrap().unwrap();
    let mut scan = db.begin(Isolation::ReadCommitted);
    let mut cursor = table.cursor(0).unwrap();
    assert!(cursor.first(&mut scan, LockMode::Exclusive).unwrap());
    next_after(&db, holder, &mut cursor, &mut scan);
    assert!(cursor.next(&mut scan).unwrap() && cursor.prev(&mut scan).unwrap());
    assert_eq!(cursor.row().unwrap().get(0), Some(&2i64.to_le_bytes()[..]));
    cursor.unlock_row(&mut scan);
    assert!(is_locked(&db, &table, 2));
}

/// A row that its own transaction has changed since the cursor read it has to be read again. That is no
/// damage.
#[test]
fn deleting_what_a_cursor_read_before_a_change_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = open(dir.path());
    let mut trx = db.begin(Isolation::ReadCommitted);
    insert(&mut trx, &table, 1).unwrap();
    let cursor = lock(&mut trx, &table, 0, 1).unwrap().unwrap();
    let row = table.def().row(&[Value::Int(1), Value::Int(11)]).unwrap();
    assert!(trx.update(&table, &cursor, &row.datums()).unwrap());
    let refused = trx.delete(&table, &cursor).unwrap_err();
    assert!(refused.to_string().contains("read it again"), "{refused}");
    trx.commit().unwrap();
    let report = db.check_table(&table).unwrap();
    assert_eq!((report.errors, report.rows), (vec![], 1));
}

/// A row that a statement does not want is unlocked, but not one that an earlier statement locked.
#[test]
fn only_the_read_that_took_a_lock_gives_it_up() {
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = open_with_rows(dir.path(), 3);
    for index in [0, 1] {
        let mut trx = db.begin(Isolation::ReadCommitted);
        lock(&mut trx, &table, index, 1).unwrap().unwrap();
        let mut again = lock(&mut trx, &table, index, 1).unwrap().unwrap();
        again.unlock_row(&mut trx);
        let mut fresh = lock(&mut trx, &table, index, 2).unwrap().unwrap();
        assert!(is_locked(&db, &table, 1) && is_locked(&db, &table, 2));
        fresh.unlock_row(&mut trx);
        assert!(
            is_locked(&db, &table, 1),
            "an earlier statement's lock, index {index}"
        );
        assert!(!is_locked(&db, &table, 2), "index {index}");
        trx.rollback().unwrap();
        assert!(!is_locked(&db, &table, 1));
    }
}

/// As above, when the lock was waited for: the row is read again then, with the lock held.
#[test]
fn a_lock_that_was_waited_for_is_given_up_too() {
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = open(dir.path());
    let mut trx = db.begin(Isolation::ReadCommitted);
    insert(&mut trx, &table, 1).unwrap();
    trx.commit().unwrap();
    for index in [0, 1] {
        let mut holder = db.begin(Isolation::ReadCommitted);
        lock(&mut holder, &table, 0, 1).unwrap().unwrap();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let mut trx = db.begin(Isolation::ReadCommitted);
                let mut cursor = lock(&mut trx, &table, index, 1).unwrap().unwrap();
                assert!(is_locked(&db, &table, 1));
                cursor.unlock_row(&mut trx);
                assert!(!is_locked(&db, &table, 1), "index {index}");
            });
            until_waiting(&db, 1);
            holder.commit().unwrap();
            waiter.join().unwrap();
        });
    }
}

/// Two inserts wait for a key that a third transaction inserted and took back. The first gets it, though the
/// second still waits: it must not wait for that one in turn.
#[test]
fn an_insert_that_was_granted_its_key_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = open(dir.path());
    for round in 0..20 {
        let id = 100 + round;
        let mut holder = db.begin(Isolation::RepeatableRead);
        let savepoint = holder.savepoint();
        insert(&mut holder, &table, id).unwrap();
        let run = || {
            let mut trx = db.begin(Isolation::RepeatableRead);
            insert(&mut trx, &table, id).map(|()| trx.commit().unwrap())
        };
        thread::scope(|scope| {
            let first = scope.spawn(run);
            until_waiting(&db, 1);
            holder.rollback_to(savepoint).unwrap();
            let second = scope.spawn(run);
            until_waiting(&db, 2);
            holder.commit().unwrap();
            first.join().unwrap().expect("it came first");
            let result = second.join().unwrap();
            assert!(
                matches!(result, Err(Error::DuplicateKey { .. })),
                "{result:?}"
            );
        });
    }
}

/// All rows, the last first or last, locked by one scan.
fn scan(
    trx: &mut Transaction,
    table: &Table,
    index: usize,
    backward: bool,
) -> varve::Result<Cursor> {
    let mut cursor = table.cursor(index)?;
    let mut found = match backward {
        true => cursor.last(trx, LockMode::Exclusive)?,
        false => cursor.first(trx, LockMode::Exclusive)?,
    };
    while found {
        found = match backward {
            true => cursor.prev(trx)?,
            false => cursor.next(trx)?,
        };
    }
    Ok(cursor)
}

fn locked(db: &Database) -> usize {
    db.core().locks.status().locked
}

/// RANGE-1: a long scan at REPEATABLE READ holds no lock of each row, in whichever direction and whatever
/// dead rows are between, and no row is free.
#[test]
fn a_long_scan_locks_its_rows_by_a_range() {
    const ROWS: i64 = 3000;
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = open_with_rows(dir.path(), ROWS);
    for backward in [false, true] {
        let mut trx = db.begin(Isolation::RepeatableRead);
        scan(&mut trx, &table, 0, backward).unwrap();
        assert!(locked(&db) <= 1000, "{} locks", locked(&db));
        assert!((1..=ROWS).step_by(7).all(|id| is_locked(&db, &table, id)));
        // Its own it has.
        trx.set_lock_wait_timeout(Duration::ZERO);
        for id in (1..=ROWS).step_by(7) {
            assert!(lock(&mut trx, &table, 0, id).unwrap().is_some());
            assert!(lock(&mut trx, &table, 1, id).unwrap().is_some());
        }
        assert!(locked(&db) <= 1000, "{} locks", locked(&db));
        trx.rollback().unwrap();
        assert!(!is_locked(&db, &table, 1) && !is_locked(&db, &table, ROWS));
        assert_eq!(locked(&db), 0);
    }
}

/// A range says nothing of rows that a scan has skipped, nor does one at READ COMMITTED.
#[test]
fn what_a_scan_skips_is_in_no_range() {
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = open_with_rows(dir.path(), 5);
    db.core().locks.set_few_locks(0);
    let mut other = db.begin(Isolation::RepeatableRead);
    lock(&mut other, &table, 0, 3).unwrap().unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    let mut cursor = table.cursor(0).unwrap();
    let mut found = cursor
        .first(&mut trx, LockMode::ExclusiveSkipLocked)
        .unwrap();
    let mut rows = 0;
    while found {
        rows += 1;
        found = cursor.next(&mut trx).unwrap();
    }
    other.rollback().unwrap();
    let is_locked = |id| is_locked(&db, &table, id);
    assert_eq!(
        (rows, [1, 2, 3, 4, 5].map(is_locked)),
        (4, [true, true, false, true, true])
    );
}

/// WRITTEN-1: a row that was changed needs no lock of its own, whichever index led to it, and is locked until
/// the transaction ends; also when the change was taken back.
#[test]
fn a_row_that_was_changed_is_locked_by_its_writer() {
    const ROWS: i64 = 50;
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = open_with_rows(dir.path(), ROWS);
    db.core().locks.set_few_locks(0);
    for (level, index) in [
        (Isolation::ReadCommitted, 0),
        (Isolation::ReadCommitted, 1),
        (Isolation::RepeatableRead, 1),
    ] {
        let mut trx = db.begin(level);
        let savepoint = trx.savepoint();
        for id in 1..=ROWS {
            let cursor = lock(&mut trx, &table, index, id).unwrap().unwrap();
            let row = table
                .def()
                .row(&[Value::Int(id), Value::Int(id * 10 + 1)])
                .unwrap();
            trx.update(&table, &cursor, &row.datums()).unwrap();
        }
        assert_eq!(locked(&db), 0, "{level:?}, index {index}");
        // To look makes a lock explicit: not of all.
        assert!((1..=ROWS).step_by(2).all(|id| is_locked(&db, &table, id)));
        trx.rollback_to(savepoint).unwrap();
        assert!((1..=ROWS).all(|id| is_locked(&db, &table, id)), "WRITTEN-1");
        trx.rollback().unwrap();
        assert!(!(1..=ROWS).any(|id| is_locked(&db, &table, id)));
        assert_eq!(locked(&db), 0);
    }
}
