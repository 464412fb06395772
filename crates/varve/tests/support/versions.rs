//! Rows that say how often they were changed: a key, a version by which there is an index, too, and bytes
//! whose number changes with it.

use varve::{
    ColumnType, DatumBuf, KeyMatch, LockMode, Result, Table, TableDef, Transaction, Value,
};

pub fn definition(name: &str) -> TableDef {
    TableDef::new(name)
        .column("id", ColumnType::i64())
        .column("version", ColumnType::i64())
        .column("body", ColumnType::Bytes(300))
        .primary(&["id"])
        .index("by_version", &["version"])
}

pub fn row(table: &Table, id: i64, version: i64) -> DatumBuf {
    let body = vec![(id + version) as u8; 100 + (version % 7) as usize];
    let row = [Value::Int(id), Value::Int(version), Value::Bytes(body)];
    table.def().row(&row).unwrap()
}

pub fn insert(trx: &mut Transaction, table: &Table, id: i64, version: i64) -> Result<()> {
    trx.insert(table, &row(table, id, version).datums())
}

/// The version of a row; `None`: there is no such row.
pub fn read(trx: &mut Transaction, table: &Table, id: i64, lock: LockMode) -> Result<Option<i64>> {
    let mut cursor = table.cursor(0)?;
    if !cursor.seek(trx, &[Some(&id.to_le_bytes())], KeyMatch::Exact, lock)? {
        return Ok(None);
    }
    let row = cursor.row()?;
    let version = row.get(1).expect("not null");
    Ok(Some(i64::from_le_bytes(version.try_into().unwrap())))
}

pub fn set(trx: &mut Transaction, table: &Table, id: i64, version: i64) -> Result<()> {
    let mut cursor = table.cursor(0)?;
    let key = id.to_le_bytes();
    let found = cursor.seek(trx, &[Some(&key)], KeyMatch::Exact, LockMode::Exclusive)?;
    assert!(found, "row {id}");
    trx.update(table, &cursor, &row(table, id, version).datums())?;
    Ok(())
}

pub fn delete(trx: &mut Transaction, table: &Table, id: i64) -> Result<()> {
    let mut cursor = table.cursor(0)?;
    let key = id.to_le_bytes();
    let found = cursor.seek(trx, &[Some(&key)], KeyMatch::Exact, LockMode::Exclusive)?;
    assert!(found, "row {id}");
    trx.delete(table, &cursor)
}
