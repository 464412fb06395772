//! Many rows inserted at once: the same rows and entries as if each had been inserted by itself, or none of
//! them.
//!
//! What could break here: a row without its entries or in the wrong leaf, because a run of rows went on where
//! it should have ended; a duplicate that is not noticed, or noticed and left half done; a key that goes
//! where another transaction's gap lock forbids it; a counter or an external value that only the way of
//! single rows takes care of. (Random batches beside other transactions, with crashes: tests/model.rs and
//! tests/crash_points.rs.)

#[path = "support/small.rs"]
mod small;

use std::time::Duration;

use varve::{
    ColumnType, Database, DatumBuf, Error, FlushLog, Isolation, LockMode, Options, Result, Table,
    TableDef, Transaction, Value, values,
};

fn options() -> Options {
    Options {
        flush_log_at_trx_commit: FlushLog::Write,
        lock_wait_timeout: Duration::from_millis(20),
        logger: Some(std::sync::Arc::new(|_, _| {})),
        ..small::options()
    }
}

fn definition(name: &str) -> TableDef {
    TableDef::new(name)
        .column("id", ColumnType::i64())
        .column("k", ColumnType::i64())
        .nullable("u", ColumnType::i64())
        .nullable("body", ColumnType::Bytes(u32::MAX))
        .primary(&["id"])
        .index("by_k", &["k"])
        .unique("by_u", &["u"])
}

fn open(dir: &tempfile::TempDir) -> (Database, Table) {
    let db = Database::open(dir.path(), options()).unwrap();
    let table = db.create_table(&definition("a/t")).unwrap();
    (db, table)
}

/// Every seventh row has no `u`, every hundredth one a long body.
fn row(id: i64) -> Vec<Value> {
    let u = match id % 7 {
        0 => Value::Null,
        _ => Value::Int(-id),
    };
    let len = if id % 100 == 3 {
        9000
    } else {
        id as usize % 300
    };
    vec![
        Value::Int(id),
        Value::Int(id * 31 % 97),
        u,
        Value::Bytes(vec![id as u8; len]),
    ]
}

/// The numbers below `n` in an order that looks random.
fn shuffled(n: i64) -> Vec<i64> {
    let mut ids: Vec<i64> = (0..n).collect();
    ids.sort_by_key(|id| id.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64));
    ids
}

fn insert_many(trx: &mut Transaction, table: &Table, rows: &[Vec<Value>]) -> Result<()> {
    let rows: Vec<&[Value]> = rows.iter().map(Vec::as_slice).collect();
    table.insert_many(trx, &rows)
}

fn begin(db: &Database) -> Transaction {
    db.begin(Isolation::RepeatableRead)
}

/// All rows in the order of each index.
fn contents(db: &Database, table: &Table) -> Vec<Vec<Value>> {
    let mut trx = begin(db);
    let indexes = 0..=table.def().indexes.len();
    let all = indexes.flat_map(|index| {
        let rows = table.range(&mut trx, index, ..).unwrap();
        rows.map(|row| row.unwrap().values().unwrap())
            .collect::<Vec<_>>()
    });
    all.collect()
}

fn check(db: &Database, table: &Table) {
    let report = db.check_table(table).unwrap();
    assert!(report.errors.is_empty(), "{:?}", report.errors);
}

#[test]
fn batches_leave_what_single_rows_leave() {
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = open(&dir);
    let singles = db.create_table(&definition("a/singles")).unwrap();
    for (n, ids) in shuffled(3000).chunks(700).enumerate() {
        let mut ids = ids.to_vec();
        if n == 2 {
            ids.sort_unstable();
        }
        let rows: Vec<_> = ids.iter().map(|id| row(*id)).collect();
        let mut trx = begin(&db);
        insert_many(&mut trx, &table, &rows).unwrap();
        rows.iter()
            .for_each(|row| singles.insert(&mut trx, row).unwrap());
        trx.commit().unwrap();
    }
    assert!(
        contents(&db, &table) == contents(&db, &singles),
        "different rows"
    );
    assert_eq!(table.row_count_estimate(), 3000);
    check(&db, &table);
    // And after a crash.
    drop((table, singles));
    db.crash();
    let db = Database::open(dir.path(), options()).unwrap();
    let (table, singles) = (db.table("a/t").unwrap(), db.table("a/singles").unwrap());
    assert!(
        contents(&db, &table) == contents(&db, &singles),
        "different rows after a crash"
    );
    check(&db, &table);
}

/// BULK-1: a row that is refused ends the run before it, and all of the batch is taken back.
#[test]
fn a_batch_with_a_fault_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = open(&dir);
    let mut trx = begin(&db);
    let there: Vec<_> = (0..500).map(|n| row(2 * n)).collect();
    insert_many(&mut trx, &table, &there).unwrap();
    trx.commit().unwrap();
    let before = contents(&db, &table);

    let good = || (0..400).map(|n| row(2 * n + 1));
    let of_row = |id: i64, row: &[Value]| {
        let mut row = row.to_vec();
        row[0] = Value::Int(id);
        row
    };
    // What is wrong with the batch's last row, and what the error says.
    for (fault, index) in [
        (row(600), "PRIMARY"),
        (row(401), "PRIMARY"),
        (of_row(9_001, &row(604)), "by_u"),
        (of_row(9_001, &row(201)), "by_u"),
    ] {
        let mut trx = begin(&db);
        insert_many(&mut trx, &table, &[row(5_001)]).unwrap();
        let rows: Vec<_> = good().chain([fault]).collect();
        match insert_many(&mut trx, &table, &rows) {
            Err(Error::DuplicateKey { index: found }) => assert_eq!(found, index),
            other => panic!("expected a duplicate in {index}, got {other:?}"),
        }
        // The transaction goes on with what it had.
        insert_many(&mut trx, &table, &[row(5_003)]).unwrap();
        trx.rollback().unwrap();
        assert!(contents(&db, &table) == before, "{index}: rows were left");
        check(&db, &table);
    }
    // A row that can't be one: of too few columns, and of a value that does not fit, which only its turn
    // shows.
    let bytes: Vec<DatumBuf> = good().map(|row| table.def().row(&row).unwrap()).collect();
    let mut rows: Vec<_> = bytes.iter().map(DatumBuf::datums).collect();
    for damage in [rows[300][..3].to_vec(), {
        let mut row = rows[300].clone();
        row[1] = Some(b"short");
        row
    }] {
        rows[300] = damage;
        let mut trx = begin(&db);
        let refused = trx.insert_many(&table, &rows).unwrap_err();
        assert!(matches!(refused, Error::Invalid { .. }), "{refused:?}");
        trx.commit().unwrap();
        assert!(contents(&db, &table) == before, "rows were left");
    }
    check(&db, &table);
}

#[test]
fn deleted_rows_come_to_life_again() {
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = open(&dir);
    let rows: Vec<_> = (0..300).map(row).collect();
    let mut trx = begin(&db);
    insert_many(&mut trx, &table, &rows).unwrap();
    trx.commit().unwrap();
    // A view that keeps purge from removing what is deleted.
    let mut reader = begin(&db);
    reader.take_snapshot();
    let mut trx = begin(&db);
    for id in (0..300).step_by(3) {
        assert!(table.delete(&mut trx, values![id]).unwrap());
    }
    trx.commit().unwrap();
    let again: Vec<_> = (0..300).step_by(3).chain(300..400).map(row).collect();
    let mut trx = begin(&db);
    insert_many(&mut trx, &table, &again).unwrap();
    trx.commit().unwrap();
    drop(reader);
    let ids: Vec<_> = contents(&db, &table).into_iter().take(400).collect();
    let all: Vec<_> = (0..400).map(row).collect();
    assert!(ids == all, "not all rows");
    check(&db, &table);
}

/// BULK-1: a row that has to be waited for ends the run before it.
#[test]
fn a_batch_waits_for_gaps_and_for_rows_of_others() {
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = open(&dir);
    let mut trx = begin(&db);
    let rows: Vec<_> = (0..10).map(|n| row(n * 100)).collect();
    insert_many(&mut trx, &table, &rows).unwrap();
    trx.commit().unwrap();

    // A locking search for what is not there keeps its interval of the primary key empty.
    let mut reader = begin(&db);
    let mut cursor = table.cursor(0).unwrap();
    let key = table.def().key(0, values![250]).unwrap();
    let found = cursor.seek(
        &mut reader,
        &key.datums(),
        varve::KeyMatch::AtLeast,
        LockMode::Exclusive,
    );
    assert!(found.unwrap());
    let mut trx = begin(&db);
    let batch: Vec<_> = (230..260).map(row).collect();
    let refused = insert_many(&mut trx, &table, &batch).unwrap_err();
    assert!(matches!(refused, Error::LockWaitTimeout), "{refused:?}");
    insert_many(&mut trx, &table, &batch[..20]).unwrap();
    trx.rollback().unwrap();
    reader.commit().unwrap();

    // A row that another transaction has not committed.
    let mut other = begin(&db);
    table.insert(&mut other, &row(245)).unwrap();
    let mut trx = begin(&db);
    let refused = insert_many(&mut trx, &table, &batch).unwrap_err();
    assert!(matches!(refused, Error::LockWaitTimeout), "{refused:?}");
    other.rollback().unwrap();
    insert_many(&mut trx, &table, &batch).unwrap();
    trx.commit().unwrap();
    check(&db, &table);
    assert_eq!(contents(&db, &table).len() / 3, 40);
}

#[test]
fn counters_and_hidden_keys_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let counted = |name| {
        TableDef::new(name)
            .column("id", ColumnType::u32())
            .column("k", ColumnType::i64())
            .primary(&["id"])
            .auto_increment("id")
    };
    let hidden = TableDef::new("a/hidden")
        .column("k", ColumnType::i64())
        .index("by_k", &["k"]);
    let db = Database::open(dir.path(), options()).unwrap();
    let (a, b) = (
        db.create_table(&counted("a/counted")).unwrap(),
        db.create_table(&hidden).unwrap(),
    );
    let c = db.create_temporary_table(&counted("a/temporary")).unwrap();
    let mut trx = begin(&db);
    for table in [&a, &c] {
        let rows: Vec<_> = shuffled(500)
            .into_iter()
            .map(|n| values![n + 1, n].to_vec())
            .collect();
        insert_many(&mut trx, table, &rows).unwrap();
        assert_eq!(table.auto_increment_next(), 501);
        assert_eq!(table.rows(&mut trx).unwrap().count(), 500);
        let rows: Vec<_> = [-1i64, 499, 9000]
            .map(|n| values![n + 1, n].to_vec())
            .into();
        insert_many(&mut trx, table, &rows).unwrap_err();
        assert_eq!(table.auto_increment_next(), 501, "the rows are not there");
    }
    let rows: Vec<_> = (0..500i64).map(|n| values![n % 9].to_vec()).collect();
    insert_many(&mut trx, &b, &rows).unwrap();
    b.insert(&mut trx, values![77]).unwrap();
    let found = b.rows(&mut trx).unwrap();
    let last = found.last().unwrap().unwrap();
    assert_eq!(
        last.get::<i64>("k").unwrap(),
        77,
        "a later row, a larger id"
    );
    trx.commit().unwrap();
    check(&db, &b);
    drop((a, b, c));
    db.crash();
    let db = Database::open(dir.path(), options()).unwrap();
    let a = db.table("a/counted").unwrap();
    assert_eq!(a.auto_increment_next(), 501);
    check(&db, &a);
    check(&db, &db.table("a/hidden").unwrap());
}

/// A row that is inserted by itself, here for its external value, moves the counter no earlier than the
/// others of its batch; nor does one that is refused because of a secondary index.
#[test]
fn a_refused_batch_leaves_the_counter_alone() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options()).unwrap();
    let definition = TableDef::new("a/t")
        .column("id", ColumnType::u32())
        .column("u", ColumnType::i64())
        .column("body", ColumnType::Bytes(u32::MAX))
        .primary(&["id"])
        .unique("by_u", &["u"])
        .auto_increment("id");
    let table = db.create_table(&definition).unwrap();
    let row = |id: i64, u: i64| {
        let body = Value::Bytes(vec![7; 9000]);
        vec![Value::Int(id), Value::Int(u), body]
    };
    let mut trx = begin(&db);
    insert_many(&mut trx, &table, &[row(1, 5)]).unwrap();
    insert_many(&mut trx, &table, &[row(9000, 5)]).unwrap_err();
    table.insert(&mut trx, &row(9000, 5)).unwrap_err();
    assert_eq!(table.auto_increment_next(), 2);
    insert_many(&mut trx, &table, &[row(9000, 6)]).unwrap();
    assert_eq!(table.auto_increment_next(), 9001);
    trx.commit().unwrap();
    check(&db, &table);
}

#[test]
fn nothing_is_a_batch_too() {
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = open(&dir);
    let mut trx = begin(&db);
    insert_many(&mut trx, &table, &[]).unwrap();
    trx.commit().unwrap();
    assert!(contents(&db, &table).is_empty());
}
