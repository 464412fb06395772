//! Whatever may run long for a statement ends when it is interrupted, not only its waits. What could break
//! here: a loop that never comes back to the caller, because nothing that it meets counts (rows that are
//! deleted and not purged, entries that a filter does not want, versions that are too new), and does not ask;
//! something that is changed by halves; an interrupt that is still there for the next statement.

#[path = "support/small.rs"]
mod small;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use varve::{
    ColumnType, Database, Error, Isolation, KeyMatch, LockMode, Result, Table, TableDef,
    Transaction, Value,
};

use Isolation::{ReadCommitted, RepeatableRead};

/// Enough for many leaves.
const ROWS: i64 = 2000;

fn open(dir: &tempfile::TempDir) -> (Database, Table) {
    let def = TableDef::new("a/t")
        .column("id", ColumnType::i64())
        .column("k", ColumnType::i64())
        .column("u", ColumnType::i64())
        .column("long", ColumnType::Bytes(1 << 20))
        .primary(&["id"])
        .index("by_k", &["k"])
        .unique("by_u", &["u"]);
    small::lazy_with(dir, &def)
}

fn insert(trx: &mut Transaction, table: &Table, id: i64, u: i64, long: usize) -> Result<()> {
    let long = Value::Bytes(vec![7; long]);
    let row = [Value::Int(id), Value::Int(id), Value::Int(u), long];
    trx.insert(table, &table.def().row(&row)?.datums())
}

fn fill(db: &Database, table: &Table) {
    let mut trx = db.begin(RepeatableRead);
    for id in 0..ROWS {
        insert(&mut trx, table, id, id, 1).unwrap();
    }
    trx.commit().unwrap();
}

/// Deletes all rows. The transaction that comes back keeps them from being purged, and sees them.
fn kill_rows(db: &Database, table: &Table) -> Transaction {
    let mut reader = db.begin(RepeatableRead);
    reader.take_snapshot();
    let mut trx = db.begin(RepeatableRead);
    let mut cursor = table.cursor(0).unwrap();
    let mut found = cursor.first(&mut trx, LockMode::Exclusive).unwrap();
    while found {
        trx.delete(table, &cursor).unwrap();
        found = cursor.next(&mut trx).unwrap();
    }
    trx.commit().unwrap();
    reader
}

/// `what` is interrupted if its transaction is, and does it all if not. `done` says whether it has.
fn check<T: std::fmt::Debug>(
    name: &str,
    trx: &mut Transaction,
    mut what: impl FnMut(&mut Transaction) -> Result<T>,
    done: impl Fn(&T) -> bool,
) {
    let interrupt = trx.interrupt_handle();
    interrupt.interrupt();
    let ended = what(trx);
    assert!(
        matches!(ended, Err(Error::Interrupted)),
        "{name}: {ended:?}"
    );
    interrupt.clear();
    let ended = what(trx).unwrap_or_else(|e| panic!("{name}: {e}"));
    assert!(done(&ended), "{name}: {ended:?}");
}

#[test]
fn a_search_among_dead_rows() {
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = open(&dir);
    fill(&db, &table);
    let _reader = kill_rows(&db, &table);
    for isolation in [ReadCommitted, RepeatableRead] {
        for mode in [LockMode::None, LockMode::Shared, LockMode::Exclusive] {
            for index in 0..3 {
                let name = format!("{isolation:?} {mode:?} index {index}");
                let mut trx = db.begin(isolation);
                let mut cursor = table.cursor(index).unwrap();
                let forward = |trx: &mut Transaction| cursor.first(trx, mode);
                check(&name, &mut trx, forward, |found| !found);
                let backward = |trx: &mut Transaction| cursor.last(trx, mode);
                check(&name, &mut trx, backward, |found| !found);
                trx.commit().unwrap();
            }
        }
    }
}

#[test]
fn a_search_among_entries_that_a_filter_does_not_want() {
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = open(&dir);
    fill(&db, &table);
    for mode in [LockMode::None, LockMode::Exclusive] {
        let mut trx = db.begin(RepeatableRead);
        let interrupt = trx.interrupt_handle();
        let asked = Arc::new(AtomicU64::new(0));
        let (count, kill) = (asked.clone(), trx.interrupt_handle());
        let mut cursor = table.cursor(1).unwrap();
        cursor.set_filter(
            Some(Box::new(move |_, _| {
                if count.fetch_add(1, Relaxed) == 100 {
                    kill.interrupt();
                }
                Ok(false)
            })),
            None,
        );
        let ended = cursor.first(&mut trx, mode);
        assert!(matches!(ended, Err(Error::Interrupted)), "{ended:?}");
        let until_then = asked.load(Relaxed) as i64;
        assert!((101..ROWS / 2).contains(&until_then), "{until_then}");
        interrupt.clear();
        assert!(!cursor.first(&mut trx, mode).unwrap());
        assert_eq!(asked.load(Relaxed) as i64, until_then + ROWS);
        trx.commit().unwrap();
    }
}

/// A row that was changed very often, read by a view that is older than all that.
#[test]
fn a_search_for_an_old_version() {
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = open(&dir);
    fill(&db, &table);
    let mut reader = db.begin(RepeatableRead);
    reader.take_snapshot();
    let key = 5i64.to_le_bytes();
    let at = [Some(&key[..])];
    for n in 1..300i64 {
        let mut trx = db.begin(RepeatableRead);
        let mut cursor = table.cursor(0).unwrap();
        let (how, mode) = (KeyMatch::Exact, LockMode::Exclusive);
        assert!(cursor.seek(&mut trx, &at, how, mode).unwrap());
        let row = [5, 5, ROWS + n].map(Value::Int);
        let row = [&row[..], &[Value::Bytes(vec![1])]].concat();
        let row = table.def().row(&row).unwrap();
        trx.update(&table, &cursor, &row.datums()).unwrap();
        trx.commit().unwrap();
    }
    let mut cursor = table.cursor(0).unwrap();
    let u = |trx: &mut Transaction| {
        let found = cursor.seek(trx, &at, KeyMatch::Exact, LockMode::None)?;
        assert!(found);
        cursor.row()?.value(2)
    };
    check("point", &mut reader, u, |u| *u == Value::Int(5));
}

#[test]
fn changes() {
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = open(&dir);
    // Dead entries with the same unique key, one of each row, over many leaves.
    let mut reader = db.begin(RepeatableRead);
    reader.take_snapshot();
    for id in 0..ROWS {
        let mut trx = db.begin(RepeatableRead);
        insert(&mut trx, &table, id, 1, 1).unwrap();
        let mut cursor = table.cursor(0).unwrap();
        assert!(cursor.last(&mut trx, LockMode::Exclusive).unwrap());
        trx.delete(&table, &cursor).unwrap();
        trx.commit().unwrap();
    }
    for (name, u, len) in [("unique key", 1, 1), ("external value", 2, 1 << 20)] {
        let mut trx = db.begin(RepeatableRead);
        let put = |trx: &mut Transaction| {
            trx.start_statement();
            let put = insert(trx, &table, ROWS + u, u, len);
            put.or_else(|e| trx.rollback_statement().and(Err(e)))
        };
        check(name, &mut trx, put, |()| true);
        trx.commit().unwrap();
    }
    let report = db.check_table(&table).unwrap();
    assert_eq!(report.errors, [""; 0]);
    assert_eq!(report.rows, 2);
}

#[test]
fn what_the_administrator_asks() {
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = open(&dir);
    fill(&db, &table);
    let mut trx = db.begin(RepeatableRead);
    let rows = |trx: &mut Transaction| trx.check_table(&table).map(|report| report.rows);
    check("check", &mut trx, rows, |rows| *rows == ROWS as u64);
    let keys = |trx: &mut Transaction| {
        trx.analyze(&table)?;
        table.index_estimate(1).map(|e| e.rows_per_key)
    };
    check("analyze", &mut trx, keys, |rows_per_key| {
        rows_per_key[0] < 2.0
    });
}

/// A check waits for who has changed the table, as long as the transaction would, and can be interrupted
/// meanwhile.
#[test]
fn a_check_that_waits() {
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = open(&dir);
    let mut writer = db.begin(RepeatableRead);
    insert(&mut writer, &table, 1, 1, 1).unwrap();
    let mut trx = db.begin(RepeatableRead);
    trx.set_lock_wait_timeout(std::time::Duration::ZERO);
    let ended = trx.check_table(&table);
    assert!(matches!(ended, Err(Error::LockWaitTimeout)), "{ended:?}");
    trx.set_lock_wait_timeout(std::time::Duration::from_secs(3600));
    let interrupt = trx.interrupt_handle();
    let ended = std::thread::scope(|scope| {
        let table = &table;
        let waiter = scope.spawn(move || trx.check_table(table));
        interrupt.interrupt();
        waiter.join().unwrap()
    });
    assert!(matches!(ended, Err(Error::Interrupted)), "{ended:?}");
    writer.commit().unwrap();
}
