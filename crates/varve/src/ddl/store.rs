//! Where table definitions are stored: in a table like any other, so that DDL is a transaction.
//!
//! The system table has one row per piece of a definition, keyed (name, piece). Its own definition is built
//! in; its root page is named by the system tablespace's directory page.

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
        delete_row(trx, system, cursor.current(trx)?)?;
        found = cursor.next_same(trx)?;
    }
    Ok(())
}

/// Stores `def` instead of the definition of the table `name`.
pub fn replace_def(
    trx: &mut Transaction,
    system: &Arc<OpenTable>,
    name: &str,
    def: &TableDef,
) -> Result<()> {
    delete_def(trx, system, name)?;
    write_def(trx, system, def)
}

/// A committed definition.
pub struct StoredDef {
    pub name: String,
    /// An error if the stored bytes are no definition of that name.
    pub def: Result<TableDef>,
    /// The transaction that wrote it.
    pub writer: TrxId,
}

/// The pieces of a definition, as far as they have been read.
struct Pieces {
    name: Vec<u8>,
    key: Vec<u8>,
    bytes: Vec<u8>,
    /// `None`: one is missing.
    count: Option<u32>,
    writer: TrxId,
}

/// All committed definitions.
pub fn load_defs(trx: &mut Transaction, system: &Arc<OpenTable>) -> Result<Vec<StoredDef>> {
    debug_assert_eq!(trx.isolation(), Isolation::RepeatableRead);
    let mut cursor = Cursor::open(system.clone(), 0)?;
    let mut defs = Vec::new();
    let mut pending: Option<Pieces> = None;
    let mut more = cursor.first(trx, LockMode::None)?;
    while more {
        let row = cursor.row()?;
        let column = |n: usize| row.get(n).unwrap_or_default();
        let (name, number, data) = (column(0), column(1), column(2));
        if pending.as_ref().is_none_or(|p| p.name != name) {
            let first = Pieces {
                name: name.to_vec(),
                key: cursor.position().to_vec(),
                bytes: Vec::new(),
                count: Some(0),
                writer: cursor.writer()?,
            };
            defs.extend(pending.replace(first).map(|done| finish(system, done)));
        }
        let pieces = pending.as_mut().expect("there is one now");
        let in_order = |n: &u32| n.to_le_bytes()[..] == *number;
        pieces.count = pieces.count.filter(in_order).map(|n| n + 1);
        pieces.bytes.extend_from_slice(data);
        more = cursor.next(trx)?;
    }
    defs.extend(pending.map(|done| finish(system, done)));
    Ok(defs)
}

fn finish(system: &OpenTable, pieces: Pieces) -> StoredDef {
    let name = String::from_utf8_lossy(&pieces.name).into_owned();
    let def = match pieces.count {
        Some(_) => TableDef::decode(&pieces.bytes),
        None => Err(Error::invalid("a piece is missing")),
    };
    let named = match def {
        Ok(def) if def.name.as_bytes() == pieces.name => Ok(def),
        Ok(def) => Err(format!("that of {}", def.name.escape_debug())),
        Err(e) => Err(e.to_string()),
    };
    let expected = format!("the definition of table {}, in a row", name.escape_debug());
    StoredDef {
        def: named.map_err(|found| system.clustered.damage_at(&pieces.key, &expected, found)),
        name,
        writer: pieces.writer,
    }
}
