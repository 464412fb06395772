//! Parents and children, by a foreign key with any actions.

#![allow(dead_code, reason = "each test uses its part")]

use std::time::Duration;

use varve::{
    ColumnType, Cursor, Database, Error, ForeignKey, Isolation, KeyMatch, LockMode, Options,
    ReferentialAction, Result, Table, TableDef, Transaction, Value,
};

use super::small;

pub fn parents() -> TableDef {
    TableDef::new("a/parents")
        .column("id", ColumnType::i64())
        .nullable("code", ColumnType::text(20))
        .primary(&["id"])
        .index("by_code", &["code"])
}

pub fn children(on_delete: ReferentialAction, on_update: ReferentialAction) -> TableDef {
    TableDef::new("a/children")
        .column("id", ColumnType::i64())
        .nullable("parent", ColumnType::i64())
        .primary(&["id"])
        .index("by_parent", &["parent"])
        .foreign_key(
            ForeignKey::new("child_parent", &["parent"], "a/parents", &["id"])
                .on_delete(on_delete)
                .on_update(on_update),
        )
}

pub struct Family {
    pub db: Database,
    pub parents: Table,
    pub children: Table,
    pub dir: tempfile::TempDir,
}

/// Parents 1 to 3, children 10 of 1, 20 and 21 of 2, 90 of nobody.
pub fn family(on_delete: ReferentialAction, on_update: ReferentialAction) -> Family {
    family_with(on_delete, on_update, small::options())
}

pub fn family_with(
    on_delete: ReferentialAction,
    on_update: ReferentialAction,
    options: Options,
) -> Family {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options).unwrap();
    let parents = db.create_table(&parents()).unwrap();
    let children = db.create_table(&children(on_delete, on_update)).unwrap();
    let mut trx = db.begin(Isolation::RepeatableRead);
    for id in 1..=3 {
        put(&mut trx, &parents, &[Value::Int(id), Value::Null]).unwrap();
    }
    for (id, parent) in [(10, Some(1)), (20, Some(2)), (21, Some(2)), (90, None)] {
        child(&mut trx, &children, id, parent).unwrap();
    }
    trx.commit().unwrap();
    Family {
        db,
        parents,
        children,
        dir,
    }
}

impl Family {
    pub fn begin(&self, isolation: Isolation) -> Transaction {
        let mut trx = self.db.begin(isolation);
        trx.set_lock_wait_timeout(Duration::ZERO);
        trx
    }

    /// The children with their parents, as last committed.
    pub fn children(&self) -> Vec<(i64, Option<i64>)> {
        let mut trx = self.begin(Isolation::ReadCommitted);
        rows(&mut trx, &self.children)
    }
}

pub fn put(trx: &mut Transaction, table: &Table, row: &[Value]) -> Result<()> {
    trx.insert(table, &table.def().row(row)?.datums())
}

pub fn int(value: Option<i64>) -> Value {
    value.map_or(Value::Null, Value::Int)
}

pub fn child(trx: &mut Transaction, table: &Table, id: i64, parent: Option<i64>) -> Result<()> {
    put(trx, table, &[Value::Int(id), int(parent)])
}

pub fn rows(trx: &mut Transaction, table: &Table) -> Vec<(i64, Option<i64>)> {
    let mut cursor = table.cursor(0).unwrap();
    let mut rows = Vec::new();
    let mut more = cursor.first(trx, LockMode::None).unwrap();
    while more {
        let row = cursor.row().unwrap();
        let number = |column| match row.value(column).unwrap() {
            Value::Int(n) => Some(n),
            _ => None,
        };
        rows.push((number(0).unwrap(), number(1)));
        more = cursor.next(trx).unwrap();
    }
    rows
}

/// A cursor on this row, which is there and is now locked.
pub fn lock(trx: &mut Transaction, table: &Table, id: i64) -> Result<Cursor> {
    let mut cursor = table.cursor(0)?;
    let key = table.def().key(0, &[Value::Int(id)])?;
    assert!(cursor.seek(trx, &key.datums(), KeyMatch::Exact, LockMode::Exclusive)?);
    Ok(cursor)
}

pub fn delete(trx: &mut Transaction, table: &Table, id: i64) -> Result<()> {
    let cursor = lock(trx, table, id)?;
    trx.delete(table, &cursor)
}

/// Gives the row another id.
pub fn renumber(trx: &mut Transaction, table: &Table, id: i64, to: i64) -> Result<bool> {
    let cursor = lock(trx, table, id)?;
    let row = table.def().row(&[Value::Int(to), Value::Null])?;
    trx.update(table, &cursor, &row.datums())
}

pub fn has_no_parent<T: std::fmt::Debug>(refused: Result<T>) {
    assert!(
        matches!(refused, Err(Error::NoReferencedRow(_))),
        "{refused:?}"
    );
}

pub fn is_referenced<T: std::fmt::Debug>(refused: Result<T>) {
    assert!(
        matches!(refused, Err(Error::RowIsReferenced(_))),
        "{refused:?}"
    );
}
