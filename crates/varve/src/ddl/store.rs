//! Where table definitions are stored: in a table like any other, so that DDL is a transaction.
//!
//! The system table has one row per piece of a definition, keyed (name, piece). Its own definition is built in; its
//! root page is named by the system tablespace's directory page.

use std::sync::Arc;

use crate::base::{Error, IndexId, PageNo, Result, SYSTEM_SPACE, TableId, TrxId};
use crate::catalog::{OpenTable, TableDef};
use crate::page::max_record;
use crate::row::{ColumnType, Datum};
use crate::table::{Cursor, KeyMatch, LockMode, OnDuplicate, delete_row, insert_row};
use crate::txn::{Isolation, Transaction};

/// Ids of the system table and its index; user tables start above.
pub const SYSTEM_TABLE: TableId = TableId(1);
pub const SYSTEM_INDEX: IndexId = IndexId(1);
/// First ids that tables and indexes of users get.
pub const FIRST_USER_ID: u64 = 16;

const NAME_BYTES: u32 = 512;

/// The system table's definition.
pub fn system_def(root: PageNo, page_size: usize) -> TableDef {
    let mut def = TableDef::new("#varve/tables")
        .column("name", ColumnType::Bytes(NAME_BYTES))
        .column("piece", ColumnType::u32())
        .column("data", ColumnType::Bytes(piece_bytes(page_size) as u32))
        .primary(&["name", "piece"]);
    def.id = SYSTEM_TABLE;
    def.space = SYSTEM_SPACE;
    def.primary.id = SYSTEM_INDEX;
    def.primary.root = root;
    def
}

/// Bytes of a definition in one row: half of what a record may have, the rest is for the name.
fn piece_bytes(page_size: usize) -> usize {
    max_record(page_size) / 2
}

/// Stores a definition.
pub fn write_def(trx: &mut Transaction, system: &Arc<OpenTable>, def: &TableDef) -> Result<()> {
    let mut bytes = Vec::new();
    def.encode(&mut bytes);
    for (n, piece) in bytes
        .chunks(piece_bytes(system.clustered.tree.page_size()))
        .enumerate()
    {
        let n = (n as u32).to_le_bytes();
        let row: [Datum<'_>; 3] = [Some(def.name.as_bytes()), Some(&n), Some(piece)];
        insert_row(trx, system, &row, OnDuplicate::LockShared)?;
    }
    Ok(())
}

/// Removes the definition of the table with this name.
pub fn delete_def(trx: &mut Transaction, system: &Arc<OpenTable>, name: &str) -> Result<()> {
    let mut cursor = Cursor::open(system.clone(), 0)?;
    let key: [Datum<'_>; 1] = [Some(name.as_bytes())];
    let mut found = cursor.seek(trx, &key, KeyMatch::Exact, LockMode::Exclusive)?;
    if !found {
        return Err(Error::not_found(format!("table {name}")));
    }
    while found {
        delete_row(trx, system, cursor.current()?)?;
        found = cursor.next_same(trx)?;
    }
    Ok(())
}

/// All committed definitions, with the transaction that wrote each.
pub fn load_defs(trx: &mut Transaction, system: &Arc<OpenTable>) -> Result<Vec<(TableDef, TrxId)>> {
    debug_assert_eq!(trx.isolation(), Isolation::RepeatableRead);
    let mut cursor = Cursor::open(system.clone(), 0)?;
    let mut defs = Vec::new();
    let mut pending: Option<(Vec<u8>, Vec<u8>, TrxId)> = None;
    let mut more = cursor.first(trx, LockMode::None)?;
    while more {
        let row = cursor.row()?;
        let (name, data) = (
            row.get(0).unwrap_or_default(),
            row.get(2).unwrap_or_default(),
        );
        match &mut pending {
            Some((of, bytes, _)) if of == name => bytes.extend_from_slice(data),
            _ => {
                finish(
                    pending.replace((name.to_vec(), data.to_vec(), cursor.writer()?)),
                    &mut defs,
                )?;
            }
        }
        more = cursor.next(trx)?;
    }
    finish(pending, &mut defs)?;
    Ok(defs)
}

fn finish(
    pending: Option<(Vec<u8>, Vec<u8>, TrxId)>,
    defs: &mut Vec<(TableDef, TrxId)>,
) -> Result<()> {
    let Some((name, bytes, writer)) = pending else {
        return Ok(());
    };
    let def = TableDef::decode(&bytes).map_err(|e| {
        Error::invalid(format!(
            "the definition of table {} is damaged: {e}",
            String::from_utf8_lossy(&name)
        ))
    })?;
    defs.push((def, writer));
    Ok(())
}
