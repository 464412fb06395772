//! A table of numbers, text and long values, for tests of what changes in its definition.

use std::time::Duration;

use varve::{
    ColumnType, Database, Isolation, KeyMatch, LockMode, Options, Table, TableDef, Transaction,
    Value,
};

use crate::by_id::delete;
use crate::small;

pub const ROWS: i64 = 4000;

pub fn open(dir: &std::path::Path) -> Database {
    let options = Options {
        sort_buffer_bytes: 64 << 10,
        ..small::options()
    };
    Database::open(dir, options).unwrap()
}

pub fn numbers() -> TableDef {
    TableDef::new("a/t")
        .column("id", ColumnType::i64())
        .nullable("n", ColumnType::i64())
        .column("text", ColumnType::text(100))
        .nullable("long", ColumnType::Bytes(100_000))
        .primary(&["id"])
        .index("by_text", &["text"])
}

pub fn row(id: i64) -> [Value; 4] {
    let n = id * 7 % 1000;
    [
        Value::Int(id),
        if id % 10 == 0 {
            Value::Null
        } else {
            Value::Int(n)
        },
        Value::Text(format!("text {n} of {id}")),
        match id % 500 {
            0 => Value::Bytes(vec![id as u8; 50_000]),
            _ => Value::Null,
        },
    ]
}

/// A table with rows, and some that were deleted.
pub fn filled(db: &Database) -> Table {
    let table = db.create_table(&numbers()).unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    for id in 0..ROWS + 100 {
        table.insert(&mut trx, &row(id)).unwrap();
    }
    trx.commit().unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    for id in ROWS..ROWS + 100 {
        assert!(delete(&mut trx, &table, id).unwrap());
    }
    trx.commit().unwrap();
    db.wait_for_purge(Duration::from_secs(60));
    table
}

/// A transaction that sees what is committed now.
pub fn snapshot(db: &Database) -> Transaction {
    let mut trx = db.begin(Isolation::RepeatableRead);
    trx.take_snapshot();
    trx
}

/// The ids of the rows in the order of an index.
pub fn ids(trx: &mut Transaction, table: &Table, index: &str) -> varve::Result<Vec<i64>> {
    let number = table.def().index_number(index).expect("it is there");
    let mut cursor = table.cursor(number)?;
    let mut ids = Vec::new();
    let mut more = cursor.first(trx, LockMode::None)?;
    while more {
        let row = cursor.row()?;
        match row.value(row.column("id").expect("it has one"))? {
            Value::Int(id) => ids.push(id),
            other => panic!("{other:?}"),
        }
        more = cursor.next(trx)?;
    }
    Ok(ids)
}

pub fn is_sound(db: &Database) {
    let report = db.check_table(&db.table("a/t").unwrap()).unwrap();
    assert_eq!(report.errors, [""; 0]);
}

/// The values of the row with this id, by the names of columns.
pub fn read(
    trx: &mut Transaction,
    table: &Table,
    id: i64,
    names: &[&str],
) -> varve::Result<Vec<Value>> {
    let mut cursor = table.cursor(0)?;
    assert!(cursor.seek(
        trx,
        &[Some(&id.to_le_bytes())],
        KeyMatch::Exact,
        LockMode::None
    )?);
    let row = cursor.row()?;
    names
        .iter()
        .map(|name| row.value(row.column(name).unwrap()))
        .collect()
}
