//! An empty table that a transaction loads (`Database::load_table`): it is as if it had inserted the rows.
//!
//! What could break here: somebody sees rows before the commit, or misses one after it; a rollback leaves a
//! row, an entry or a page of a long value, or takes out what another transaction has put there since; a load
//! begins where somebody has a lock in a gap, or purge has something to remove; others are kept from the
//! table for longer than the load takes.

#[path = "support/small.rs"]
mod small;

use std::path::Path;
use std::time::Duration;

use varve::{
    ColumnType, Database, Error, HistoryOptions, Isolation, LockMode, Options, Result, Table,
    TableDef, TableLoad, Transaction, Value, Xid,
};

const NAME: &str = "a/t";
const ROWS: i64 = 2000;

fn open(dir: &Path) -> Database {
    let options = Options {
        sort_buffer_bytes: 64 << 10,
        lock_wait_timeout: Duration::from_millis(20),
        ..small::options()
    };
    let db = Database::open(dir, options).unwrap();
    assert!(db.wait_for_recovery(Duration::from_secs(60)));
    db
}

fn create(db: &Database) -> Table {
    let def = TableDef::new(NAME)
        .column("id", ColumnType::i64())
        .nullable("n", ColumnType::i64())
        .nullable("long", ColumnType::Bytes(100_000))
        .primary(&["id"])
        .unique("by_n", &["n"])
        .index("by_both", &["n", "id"]);
    db.create_table(&def).unwrap()
}

/// Every hundredth has a value that takes pages of its own.
fn row(id: i64) -> Vec<Value> {
    let long = match id % 100 {
        0 => Value::Bytes(vec![id as u8; 30_000]),
        _ => Value::Null,
    };
    vec![Value::Int(id), Value::Int(-id), long]
}

fn begin(db: &Database) -> Transaction {
    db.begin(Isolation::RepeatableRead)
}

/// One who reads without a lock on the table.
fn reader(db: &Database, isolation: Isolation) -> Transaction {
    let mut trx = db.begin(isolation);
    trx.trust_metadata_locks();
    trx
}

fn push(load: &mut TableLoad, trx: &mut Transaction, table: &Table, id: i64) -> Result<()> {
    load.push(trx, &table.def().row(&row(id))?.datums())
}

/// In order, or in none.
fn ids(in_order: bool) -> Vec<i64> {
    let place = |n: i64| if in_order { n } else { n * 7 % (ROWS + 1) };
    (1..=ROWS).map(place).collect()
}

/// All rows but the load's end.
fn begin_load(
    db: &Database,
    trx: &mut Transaction,
    table: &Table,
    in_order: bool,
) -> Result<TableLoad> {
    let mut load = db.load_table(trx, table, 1)?;
    for id in ids(in_order) {
        push(&mut load, trx, table, id)?;
    }
    Ok(load)
}

fn load(db: &Database, trx: &mut Transaction, table: &Table, in_order: bool) -> Result<()> {
    let load = begin_load(db, trx, table, in_order)?;
    load.finish(trx, &mut |_, _| {})
}

/// The keys that one sees by each index, which are the same.
fn seen(trx: &mut Transaction, table: &Table) -> Vec<i64> {
    let by = |trx: &mut Transaction, index: usize| {
        let mut cursor = table.cursor(index).unwrap();
        let mut keys = Vec::new();
        let mut more = cursor.first(trx, LockMode::None).unwrap();
        while more {
            let found = cursor.row().unwrap();
            let values: Vec<_> = (0..3).map(|at| found.value(at).unwrap()).collect();
            let Value::Int(id) = values[0] else {
                panic!("{values:?}");
            };
            assert!(values == row(id), "row {id}");
            keys.push(id);
            more = cursor.next(trx).unwrap();
        }
        keys
    };
    let keys = by(trx, 0);
    for index in 1..=2 {
        let mut others = by(trx, index);
        others.reverse();
        assert!(keys == others, "index {index}");
    }
    keys
}

/// The table has these rows, sound, and no page that is nobody's.
fn has(db: &Database, keys: &[i64]) {
    assert!(db.wait_for_purge(Duration::from_secs(60)));
    let table = db.table(NAME).unwrap();
    assert!(seen(&mut begin(db), &table) == keys, "the rows");
    let report = db.check_table(&table).unwrap();
    assert_eq!(report.errors, [""; 0]);
    assert_eq!(report.rows, keys.len() as u64);
    assert_eq!(report.deleted_rows, 0);
}

fn used_pages(db: &Database, table: &Table) -> u32 {
    let core = db.core();
    let space = core.undo.env.spaces.get(table.def().space).unwrap();
    space.used_pages(&core.mtr).unwrap()
}

fn all() -> Vec<i64> {
    (1..=ROWS).collect()
}

/// LOAD-6: rows are their transaction's alone until it has committed.
#[test]
fn rows_are_seen_when_the_transaction_has_committed() {
    for in_order in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let db = open(dir.path());
        let table = create(&db);
        let mut old = reader(&db, Isolation::RepeatableRead);
        old.take_snapshot();
        let mut trx = begin(&db);
        let mut load = db.load_table(&mut trx, &table, 1).unwrap();
        let mut meanwhile = reader(&db, Isolation::ReadCommitted);
        for id in ids(in_order) {
            push(&mut load, &mut trx, &table, id).unwrap();
            if id % 500 == 0 {
                meanwhile.start_statement();
                assert_eq!(seen(&mut meanwhile, &table), [0; 0], "while it goes on");
            }
        }
        load.finish(&mut trx, &mut |_, _| {}).unwrap();
        assert_eq!(seen(&mut old, &table), [0; 0], "before the commit");
        meanwhile.start_statement();
        assert_eq!(seen(&mut meanwhile, &table), [0; 0], "before the commit");
        assert!(seen(&mut trx, &table) == all(), "its own");
        trx.commit().unwrap();
        meanwhile.start_statement();
        assert!(seen(&mut meanwhile, &table) == all(), "after the commit");
        assert_eq!(seen(&mut old, &table), [0; 0], "by an old view");
        drop((old, meanwhile));
        has(&db, &all());
    }
}

/// LOAD-6, LOAD-8: whatever a load has come to, rollback leaves an empty table, that can be loaded again.
#[test]
fn a_rollback_takes_all_out() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let table = create(&db);
    let mut size = None;
    for way in 0..10 {
        let in_order = way % 2 == 0;
        let mut trx = begin(&db);
        let savepoint = trx.savepoint();
        let mut load = begin_load(&db, &mut trx, &table, in_order).unwrap();
        match way / 2 {
            0 => drop(load),
            1 => load.abandon(&mut trx),
            2 => {
                push(&mut load, &mut trx, &table, 1000).unwrap();
                let refused = load.finish(&mut trx, &mut |_, _| {}).unwrap_err();
                assert!(matches!(refused, Error::DuplicateKey { .. }), "{refused}");
            }
            _ => load.finish(&mut trx, &mut |_, _| {}).unwrap(),
        }
        if way >= 8 {
            // What came later is taken back before.
            assert!(table.delete(&mut trx, &[Value::Int(5)]).unwrap());
            let new = [("long", Value::Bytes(vec![1; 20_000]))];
            assert!(table.set(&mut trx, &[Value::Int(6)], &new).unwrap());
            table.insert(&mut trx, &row(ROWS + 1)).unwrap();
        }
        trx.rollback_to(savepoint).unwrap();
        assert_eq!(seen(&mut trx, &table), [0; 0], "way {way}");
        match in_order {
            true => trx.rollback().unwrap(),
            false => trx.commit().unwrap(),
        }
        has(&db, &[]);
        let pages = used_pages(&db, &table);
        assert_eq!(*size.get_or_insert(pages), pages, "way {way}: pages");
    }
    let mut trx = begin(&db);
    load(&db, &mut trx, &table, true).unwrap();
    trx.commit().unwrap();
    has(&db, &all());
}

/// LOAD-7: when the load has ended others change the table, and a rollback leaves their rows.
#[test]
fn others_go_on_when_the_load_has_ended() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let table = create(&db);
    let mut trx = begin(&db);
    let mut load = db.load_table(&mut trx, &table, 1).unwrap();
    let mut other = begin(&db);
    let refused = table.insert(&mut other, &row(ROWS + 1)).unwrap_err();
    assert!(matches!(refused, Error::LockWaitTimeout), "{refused}");
    for id in ids(false) {
        push(&mut load, &mut trx, &table, id).unwrap();
    }
    load.finish(&mut trx, &mut |_, _| {}).unwrap();
    // Among the loaded rows and behind them.
    for id in [0, ROWS + 1] {
        table.insert(&mut other, &row(id)).unwrap();
    }
    let refused = table.insert(&mut other, &row(7)).unwrap_err();
    assert!(
        matches!(refused, Error::LockWaitTimeout),
        "an implicit lock: {refused}"
    );
    other.commit().unwrap();
    trx.rollback().unwrap();
    has(&db, &[0, ROWS + 1]);
}

/// LOAD-7: not where somebody has locked a gap, where purge has yet to remove something, nor in a table that
/// is used.
#[test]
fn a_load_needs_the_table_empty_and_for_itself() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let table = create(&db);
    let refused = |why: &str| {
        let mut trx = begin(&db);
        let refused = db.load_table(&mut trx, &table, 1).err();
        let refused = refused.expect(why);
        // It keeps nobody out then.
        trx.commit().unwrap();
        refused
    };
    let mut other = begin(&db);
    let mut cursor = table.cursor(0).unwrap();
    assert!(!cursor.first(&mut other, LockMode::Exclusive).unwrap());
    let why = refused("a locked gap");
    assert!(matches!(why, Error::LockWaitTimeout), "{why}");
    drop(cursor);
    other.commit().unwrap();
    let mut old = begin(&db);
    db.set_history_options(HistoryOptions {
        store: false,
        ..HistoryOptions::default()
    })
    .unwrap();
    let mut trx = begin(&db);
    table.insert(&mut trx, &row(1)).unwrap();
    trx.commit().unwrap();
    old.take_snapshot();
    let mut trx = begin(&db);
    assert!(table.delete(&mut trx, &[Value::Int(1)]).unwrap());
    trx.commit().unwrap();
    let why = refused("a row that is delete-marked");
    assert!(why.to_string().contains("not empty"), "{why}");
    drop(old);
    assert!(db.wait_for_purge(Duration::from_secs(60)));
    let mut trx = begin(&db);
    load(&db, &mut trx, &table, true).unwrap();
    trx.commit().unwrap();
    has(&db, &all());
    // A handle that is out of date.
    db.drop_table(NAME).unwrap();
    let why = refused("a table that was dropped");
    assert!(matches!(why, Error::NotFound { .. }), "{why}");
}

/// A transaction that had the table for itself keeps it so.
#[test]
fn a_lock_of_the_whole_table_stays() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let table = create(&db);
    let mut trx = begin(&db);
    trx.lock_table_exclusive(&table).unwrap();
    load(&db, &mut trx, &table, true).unwrap();
    let refused = table.insert(&mut begin(&db), &row(0)).unwrap_err();
    assert!(matches!(refused, Error::LockWaitTimeout), "{refused}");
    trx.commit().unwrap();
    has(&db, &all());
}

/// LOAD-6 after a crash: what had not ended is taken out, beside what others do in the meantime, and what was
/// prepared ends as its coordinator says.
#[test]
fn a_crash_takes_out_what_had_not_committed() {
    for way in 0..4 {
        let dir = tempfile::tempdir().unwrap();
        let db = open(dir.path());
        let table = create(&db);
        let mut trx = begin(&db);
        load(&db, &mut trx, &table, way % 2 == 0).unwrap();
        let xid = Xid::new(1, b"load", b"branch").unwrap();
        if way >= 2 {
            trx.prepare(&xid).unwrap();
        }
        let mut other = begin(&db);
        table.insert(&mut other, &row(ROWS + 1)).unwrap();
        other.commit().unwrap();
        drop(table);
        std::mem::forget(trx);
        db.crash();
        let db = open(dir.path());
        let table = db.table(NAME).unwrap();
        let mut other = begin(&db);
        table.insert(&mut other, &row(0)).unwrap();
        other.commit().unwrap();
        match way {
            2 => db.commit_prepared(&xid).unwrap(),
            3 => db.rollback_prepared(&xid).unwrap(),
            _ => {}
        }
        match way {
            2 => has(&db, &(0..=ROWS + 1).collect::<Vec<_>>()),
            _ => has(&db, &[0, ROWS + 1]),
        }
    }
}

/// Versions of loaded rows go to the history store for a view that sees them, and one that is older than the
/// load goes on seeing none.
#[test]
fn old_views_are_served_by_the_history_store() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    db.set_history_options(HistoryOptions {
        delay: Duration::ZERO,
        ..HistoryOptions::default()
    })
    .unwrap();
    let table = create(&db);
    let mut before = reader(&db, Isolation::RepeatableRead);
    before.take_snapshot();
    let mut trx = begin(&db);
    load(&db, &mut trx, &table, false).unwrap();
    trx.commit().unwrap();
    let mut after = reader(&db, Isolation::RepeatableRead);
    after.take_snapshot();
    let mut trx = begin(&db);
    for id in (1..=ROWS).step_by(3) {
        assert!(table.delete(&mut trx, &[Value::Int(id)]).unwrap());
    }
    trx.commit().unwrap();
    assert!(db.wait_for_purge(Duration::from_secs(60)));
    assert!(seen(&mut after, &table) == all(), "a view of all rows");
    assert_eq!(seen(&mut before, &table), [0; 0], "a view of none");
}

/// A load takes rows as long as they come in order. The others are inserted behind it, a duplicate is refused
/// at once, and a rollback takes back both.
#[test]
fn rows_out_of_order_are_inserted_behind_the_load() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let table = create(&db);
    for commits in [false, true] {
        let mut trx = begin(&db);
        let mut load = db.load_table(&mut trx, &table, 1).unwrap();
        let mut next = |trx: &mut Transaction, id: i64| {
            let row = table.def().row(&row(id)).unwrap();
            load.push_next(trx, &row.datums()).unwrap()
        };
        for id in (2..=ROWS).filter(|id| id % 3 > 0) {
            assert!(next(&mut trx, id), "{id}");
        }
        for id in [ROWS, 3, 1] {
            assert!(!next(&mut trx, id), "{id}");
        }
        load.finish(&mut trx, &mut |_, _| {}).unwrap();
        for id in (1..=ROWS).filter(|id| *id == 1 || id % 3 == 0) {
            table.insert(&mut trx, &row(id)).unwrap();
        }
        let twice = table.insert(&mut trx, &row(3));
        assert!(
            matches!(twice, Err(Error::DuplicateKey { .. })),
            "{twice:?}"
        );
        assert_eq!(seen(&mut trx, &table), ids(true));
        match commits {
            false => trx.rollback().unwrap(),
            true => trx.commit().unwrap(),
        }
        let left = match commits {
            false => Vec::new(),
            true => ids(true),
        };
        has(&db, &left);
    }
}
