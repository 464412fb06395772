//! Several databases in one process: they share nothing, and what belongs to one is refused by another.
//!
//! What could break here: state of the process that two databases both use; a row locked in one database's
//! lock table and changed in another's pages; a cursor that is passed from transaction to transaction and
//! keeps the first one's view or changes rows that the second one has not locked.

use std::path::Path;
use std::thread;

use varve::{
    AutoIncLock, ColumnType, Cursor, Database, Error, Isolation, KeyMatch, LockMode, Options,
    Table, TableDef, Transaction, Value,
};

fn open(dir: &Path) -> (Database, Table) {
    let options = Options {
        buffer_pool_bytes: 8 << 20,
        redo_capacity_bytes: 8 << 20,
        ..Options::default()
    };
    let db = Database::open(dir, options).unwrap();
    let table = db.table("a/t").or_else(|_| {
        let def = TableDef::new("a/t")
            .column("id", ColumnType::i64())
            .column("n", ColumnType::i64())
            .primary(&["id"]);
        db.create_table(&def)
    });
    let table = table.unwrap();
    (db, table)
}

fn put(trx: &mut Transaction, table: &Table, id: i64, n: i64) -> varve::Result<()> {
    table.put(trx, &[Value::Int(id), Value::Int(n)])
}

fn find(
    cursor: &mut Cursor,
    trx: &mut Transaction,
    id: i64,
    lock: LockMode,
) -> varve::Result<bool> {
    let id = id.to_le_bytes();
    cursor.seek(trx, &[Some(&id)], KeyMatch::Exact, lock)
}

fn n_of(cursor: &Cursor) -> i64 {
    let row = cursor.row().unwrap();
    i64::from_le_bytes(row.get(1).unwrap().try_into().unwrap())
}

fn assert_refused<T>(result: varve::Result<T>, because: &str) {
    match result.map(drop) {
        Err(Error::Invalid { what }) if what.contains(because) => {}
        other => panic!("{other:?}, not {because}"),
    }
}

/// Three databases, four threads in each, all counting the same rows; closed and opened in between while the
/// others work.
#[test]
fn databases_of_one_process_do_not_meet() {
    const ROWS: i64 = 20;
    const ROUNDS: i64 = 300;
    let dirs: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    thread::scope(|scope| {
        for (which, dir) in dirs.iter().enumerate() {
            scope.spawn(move || {
                let step = which as i64 + 1;
                for life in 0..3 {
                    let (db, table) = open(dir.path());
                    if life == 0 {
                        let mut trx = db.begin(Isolation::ReadCommitted);
                        for id in 0..ROWS {
                            put(&mut trx, &table, id, 0).unwrap();
                        }
                        trx.commit().unwrap();
                    }
                    thread::scope(|scope| {
                        for thread in 0..4 {
                            let (db, table) = (&db, &table);
                            scope.spawn(move || count(db, table, thread, step, ROUNDS, ROWS));
                        }
                    });
                    let mut trx = db.begin(Isolation::RepeatableRead);
                    let mut sum = 0;
                    for row in table.rows(&mut trx).unwrap() {
                        sum += row.unwrap().get::<i64>("n").unwrap();
                    }
                    assert_eq!(sum, 4 * ROUNDS * step * (life + 1));
                    trx.commit().unwrap();
                    db.close().unwrap();
                }
            });
        }
    });
}

/// Adds `step` to one row after the other, retrying what loses a deadlock.
fn count(db: &Database, table: &Table, thread: i64, step: i64, rounds: i64, rows: i64) {
    for round in 0..rounds {
        let id = (round * 7 + thread) % rows;
        loop {
            let mut trx = db.begin(Isolation::ReadCommitted);
            let found = table.get_for_update(&mut trx, &[Value::Int(id)]);
            let done = found.and_then(|row| {
                let n = row.expect("made before").get::<i64>("n")?;
                put(&mut trx, table, id, n + step)
            });
            match done {
                Ok(()) => break trx.commit().unwrap(),
                Err(Error::Deadlock) => trx.rollback().unwrap(),
                Err(e) => panic!("{e}"),
            }
        }
    }
}

#[test]
fn a_data_directory_is_opened_once() {
    let dir = tempfile::tempdir().unwrap();
    let (db, _) = open(dir.path());
    let again = Database::open(dir.path(), Options::default());
    assert!(matches!(again.err(), Some(Error::InUse { path }) if path.starts_with(dir.path())));
    db.close().unwrap();
    open(dir.path()).0.close().unwrap();
}

#[test]
fn a_transaction_refuses_tables_of_another_database() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let (here, table) = open(dirs[0].path());
    let (_there, other) = open(dirs[1].path());
    let mut trx = here.begin(Isolation::RepeatableRead);
    put(&mut trx, &table, 1, 1).unwrap();
    let because = "another database";
    assert_refused(put(&mut trx, &other, 1, 2), because);
    assert_refused(other.get(&mut trx, &[Value::Int(1)]), because);
    let first = other.rows(&mut trx).unwrap().next();
    assert_refused(first.unwrap(), because);
    let key = 1i64.to_le_bytes();
    assert_refused(trx.lock_key(&other, 0, &[Some(&key)]), because);
    assert_refused(trx.lock_table_shared(&other), because);
    let drawn = trx.auto_increment_reserve(&other, 1, AutoIncLock::Statement);
    assert_refused(drawn, because);
    assert_refused(here.check_table(&other), because);
    // A row of this table, found here, written there.
    let mut cursor = table.cursor(0).unwrap();
    assert!(find(&mut cursor, &mut trx, 1, LockMode::Exclusive).unwrap());
    assert_refused(trx.delete(&other, &cursor), "a cursor on table");
    trx.commit().unwrap();
    let mut trx = here.begin(Isolation::RepeatableRead);
    let row = table.get(&mut trx, &[Value::Int(1)]).unwrap().unwrap();
    assert_eq!(row.get::<i64>("n").unwrap(), 1);
}

/// The search goes on behind the row where it stands, with the view and the locks of who goes on with it.
#[test]
fn a_cursor_goes_on_with_the_transaction_that_moves_it() {
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = open(dir.path());
    let mut trx = db.begin(Isolation::RepeatableRead);
    for id in 0..10 {
        put(&mut trx, &table, id, 0).unwrap();
    }
    trx.commit().unwrap();

    let mut old = db.begin(Isolation::RepeatableRead);
    let mut cursor = table.cursor(0).unwrap();
    assert!(cursor.first(&mut old, LockMode::None).unwrap());
    assert!(cursor.next(&mut old).unwrap());
    let mut trx = db.begin(Isolation::RepeatableRead);
    put(&mut trx, &table, 2, 5).unwrap();
    trx.commit().unwrap();
    let mut young = db.begin(Isolation::RepeatableRead);
    assert!(cursor.next(&mut young).unwrap());
    assert_eq!(n_of(&cursor), 5, "what the new owner sees");
    assert!(cursor.prev(&mut old).unwrap() && cursor.next(&mut old).unwrap());
    assert_eq!(n_of(&cursor), 0, "what the old one sees");
    old.commit().unwrap();
    young.commit().unwrap();

    // A search that ended goes on where it ended, in both transactions' eyes.
    let mut trx = db.begin(Isolation::RepeatableRead);
    let id = 5i64.to_le_bytes();
    assert!(
        cursor
            .seek(&mut trx, &[Some(&id)], KeyMatch::AtLeast, LockMode::None)
            .unwrap()
    );
    assert!(!cursor.next_same(&mut trx).unwrap());
    trx.commit().unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    assert!(cursor.next(&mut trx).unwrap());
    assert_eq!(cursor.row().unwrap().get(0), Some(&6i64.to_le_bytes()[..]));
    trx.commit().unwrap();

    // Locks too: the second transaction has to lock what it reads.
    let mut first = db.begin(Isolation::RepeatableRead);
    assert!(find(&mut cursor, &mut first, 3, LockMode::Exclusive).unwrap());
    let mut second = db.begin(Isolation::RepeatableRead);
    let because = "by the transaction that changes it";
    assert_refused(second.delete(&table, &cursor), because);
    assert!(cursor.next(&mut second).unwrap());
    second.delete(&table, &cursor).unwrap();
    assert_refused(first.delete(&table, &cursor), because);
    first.commit().unwrap();
    second.commit().unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    assert!(table.get(&mut trx, &[Value::Int(3)]).unwrap().is_some());
    assert!(table.get(&mut trx, &[Value::Int(4)]).unwrap().is_none());
}
