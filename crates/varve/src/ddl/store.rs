//! Where table definitions are stored: in a table like any other, so that DDL is a transaction.
//!
//! The system table has one row per piece of a definition, keyed (name, piece), and before all of them the
//! look-ups (`lookups`). Its own definition is built in; its root page is named by the system tablespace's
//! directory page.

use std::sync::Arc;

use crate::base::{Error, IndexId, PageNo, Result, SYSTEM_SPACE, TableId, TrxId};
use crate::catalog::{OpenTable, TableDef};
use crate::page::max_record;
use crate::row::{ColumnType, Datum, RowRef};
use crate::table::{Cursor, KeyMatch, LockMode, OnDuplicate, delete_row, insert_row};
use crate::txn::{Isolation, Transaction};

use super::lookups;

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

/// Stores a definition, and its look-ups. `created_by` is 0 for the transaction itself.
pub fn write_def(
    trx: &mut Transaction,
    system: &Arc<OpenTable>,
    def: &TableDef,
    created_by: TrxId,
) -> Result<()> {
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
    lookups::insert(trx, system, &lookups::of(def, created_by))
}

/// Removes the definition of the table with this name, and its look-ups.
pub fn delete_def(trx: &mut Transaction, system: &Arc<OpenTable>, name: &str) -> Result<()> {
    let bytes = delete_pieces(trx, system, name)?;
    let def = TableDef::decode(&bytes)?;
    lookups::delete(trx, system, &lookups::of(&def, TrxId(0)))
}

/// The same if the definition need not be right: all look-ups are gone through.
pub fn delete_broken_def(trx: &mut Transaction, system: &Arc<OpenTable>, name: &str) -> Result<()> {
    delete_pieces(trx, system, name)?;
    let mut rows = lookups::stored(trx, system, &[])?;
    rows.retain(|_, found| found.name == name);
    lookups::delete(trx, system, &rows)
}

/// Returns the definition.
fn delete_pieces(trx: &mut Transaction, system: &Arc<OpenTable>, name: &str) -> Result<Vec<u8>> {
    let mut cursor = Cursor::open(system.clone(), 0)?;
    let key: [Datum<'_>; 1] = [Some(name.as_bytes())];
    let mut found = cursor.seek(trx, &key, KeyMatch::Exact, LockMode::Exclusive)?;
    if !found {
        return Err(Error::not_found(format!("table {name}")));
    }
    let mut bytes = Vec::new();
    while found {
        bytes.extend_from_slice(cursor.row()?.get(2).unwrap_or_default());
        delete_row(trx, system, cursor.current(trx)?)?;
        found = cursor.next_same(trx)?;
    }
    Ok(bytes)
}

/// Stores `def` instead of the definition of the table `name`.
pub fn replace_def(
    trx: &mut Transaction,
    system: &Arc<OpenTable>,
    name: &str,
    def: &TableDef,
    created_by: TrxId,
) -> Result<()> {
    delete_def(trx, system, name)?;
    write_def(trx, system, def, created_by)
}

/// A committed definition.
pub struct StoredDef {
    pub name: String,
    /// An error if the stored bytes are no definition of that name.
    pub def: Result<TableDef>,
    /// The transaction that created it: a view that does not see it must not read the table.
    pub created_by: TrxId,
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

impl Pieces {
    /// The first piece is the cursor's row.
    fn begin(cursor: &Cursor) -> Result<Pieces> {
        Ok(Pieces {
            name: cursor.row()?.get(0).unwrap_or_default().to_vec(),
            key: cursor.position().to_vec(),
            bytes: Vec::new(),
            count: Some(0),
            writer: cursor.writer()?,
        })
    }

    fn add(&mut self, row: &RowRef<'_>) {
        let column = |n: usize| row.get(n).unwrap_or_default();
        let in_order = |n: &u32| n.to_le_bytes()[..] == *column(1);
        self.count = self.count.filter(in_order).map(|n| n + 1);
        self.bytes.extend_from_slice(column(2));
    }

    fn finish(self, system: &OpenTable) -> StoredDef {
        let name = String::from_utf8_lossy(&self.name).into_owned();
        let def = match self.count {
            Some(_) => TableDef::decode(&self.bytes),
            None => Err(Error::invalid("a piece is missing")),
        };
        let named = match def {
            Ok(def) if def.name.as_bytes() == self.name => Ok(def),
            Ok(def) => Err(format!("that of {}", def.name.escape_debug())),
            Err(e) => Err(e.to_string()),
        };
        let expected = format!("the definition of table {}, in a row", name.escape_debug());
        StoredDef {
            def: named.map_err(|found| system.clustered.damage_at(&self.key, &expected, found)),
            name,
            created_by: self.writer,
        }
    }
}

/// All committed definitions, as if each had been created when it was written last.
pub fn load_defs(trx: &mut Transaction, system: &Arc<OpenTable>) -> Result<Vec<StoredDef>> {
    debug_assert_eq!(trx.isolation(), Isolation::RepeatableRead);
    let mut cursor = Cursor::open(system.clone(), 0)?;
    let mut defs = Vec::new();
    let mut pending: Option<Pieces> = None;
    let from: [Datum<'_>; 1] = [Some(&lookups::LOOKUPS_END)];
    let mut more = cursor.seek(trx, &from, KeyMatch::AtLeast, LockMode::None)?;
    while more {
        let row = cursor.row()?;
        let name = row.get(0).unwrap_or_default();
        if pending.as_ref().is_none_or(|p| p.name != name) {
            let done = pending.replace(Pieces::begin(&cursor)?);
            defs.extend(done.map(|done| done.finish(system)));
        }
        pending.as_mut().expect("there is one now").add(&row);
        more = cursor.next(trx)?;
    }
    defs.extend(pending.map(|done| done.finish(system)));
    Ok(defs)
}

/// The committed definition of this name, as if it had been created when it was written last.
pub(super) fn load_def(
    trx: &mut Transaction,
    system: &Arc<OpenTable>,
    name: &str,
) -> Result<Option<StoredDef>> {
    let mut cursor = Cursor::open(system.clone(), 0)?;
    let key: [Datum<'_>; 1] = [Some(name.as_bytes())];
    let mut more = cursor.seek(trx, &key, KeyMatch::Exact, LockMode::None)?;
    if !more {
        return Ok(None);
    }
    let mut pieces = Pieces::begin(&cursor)?;
    while more {
        pieces.add(&cursor.row()?);
        more = cursor.next_same(trx)?;
    }
    Ok(Some(pieces.finish(system)))
}
