//! Look-ups: rows that lead to a table's name from what else the table is known by.
//!
//! They are rows of the system table (`store`), before all definitions: their names begin with a zero byte,
//! which no table's name has. What they say is in the definitions, too; they are there so that one table is
//! found without reading all definitions.
//!
//! - **DEF-3** Between two DDL statements the look-ups are those that [`of`] makes of the definitions. They
//!   are written and deleted in the transaction that changes the definition.
//!
//! A database that was made without them, or is new, gets them when it is opened for writing, all in one
//! transaction, whose last row says that they are complete ([`make`]). Who opens a database only to look at
//! it, or because it is damaged, does not rely on them: he collects them from the definitions
//! ([`super::Dictionary`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::base::{Result, SpaceId, TableId, TrxId, fnv1a};
use crate::catalog::{OpenTable, TableDef, is_aside, schema_of};
use crate::row::{Datum, successor};
use crate::table::{Cursor, KeyMatch, LockMode, OnDuplicate, delete_row, insert_row};
use crate::txn::Transaction;

use super::store::{StoredDef, load_defs};

/// What one table is looked up by.
#[derive(Clone, Copy, Debug)]
pub enum Lookup<'a> {
    Table(TableId),
    Space(SpaceId),
    /// A table whose definition could not be read when the look-ups were made.
    Unreadable(&'a str),
}

/// What several may be looked up by: what the names of their rows begin with.
#[derive(Clone, Debug)]
pub struct Prefix(Vec<u8>);

/// The first byte of all look-ups.
const MARK: u8 = 0;
/// The row that says that there is a look-up for everything.
const COMPLETE: [u8; 1] = [MARK];
/// Where definitions begin.
pub(super) const LOOKUPS_END: [u8; 1] = [MARK + 1];

impl Prefix {
    /// `kind` is the second byte.
    fn kind(kind: u8) -> Prefix {
        Prefix(vec![MARK, kind])
    }

    pub fn tables() -> Prefix {
        Prefix::kind(b'T')
    }

    pub fn spaces() -> Prefix {
        Prefix::kind(b'S')
    }

    pub fn unreadable() -> Prefix {
        Prefix::kind(b'U')
    }

    /// Tables that have a foreign key to one of this name.
    pub fn children_of(parent: &str) -> Prefix {
        Prefix::kind(b'P').then(parent.as_bytes()).then(&[0])
    }

    /// The same, of those that are being made, or stand aside.
    pub fn aside_children_of(parent: &str) -> Prefix {
        Prefix::kind(b'Q').then(parent.as_bytes()).then(&[0])
    }

    /// Tables of the schema of `table` that may have a foreign key of this name, in any case of letters: the
    /// name is hashed (FNV-1a), so that it takes little room. Two have it while a copy is to take the place
    /// of one under another name.
    pub fn owners_of(table: &str, constraint: &str) -> Prefix {
        let name = format!("{}/{}", schema_of(table), constraint.to_lowercase());
        Prefix::kind(b'C').then(&fnv1a(name.bytes()).to_be_bytes())
    }

    fn then(mut self, bytes: &[u8]) -> Prefix {
        self.0.extend_from_slice(bytes);
        self
    }

    fn with_id(self, id: TableId) -> Vec<u8> {
        self.then(&id.0.to_be_bytes()).0
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// What follows it in a row's name, if that is a number.
    pub fn number_in(&self, key: &[u8]) -> Option<u64> {
        let bytes = key.strip_prefix(&*self.0)?;
        (bytes.len() <= 8).then(|| bytes.iter().fold(0, |n, byte| n << 8 | u64::from(*byte)))
    }
}

impl Lookup<'_> {
    /// The row's name.
    pub fn key(&self) -> Vec<u8> {
        match self {
            Lookup::Table(id) => Prefix::tables().with_id(*id),
            Lookup::Space(id) => Prefix::spaces().then(&id.0.to_be_bytes()).0,
            Lookup::Unreadable(name) => Prefix::unreadable().then(name.as_bytes()).0,
        }
    }
}

/// Where a look-up leads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    pub name: String,
    /// Views that do not see this transaction don't read the table. Only that of a table's id has it; 0 is
    /// the writer of the row.
    pub created_by: TrxId,
}

impl Found {
    fn data(&self) -> Vec<u8> {
        let mut data = self.created_by.0.to_le_bytes().to_vec();
        data.extend_from_slice(self.name.as_bytes());
        data
    }

    /// From a row's data. `writer` is the row's.
    fn decode(data: &[u8], writer: TrxId) -> Option<Found> {
        let (created_by, name) = data.split_first_chunk()?;
        let created_by = match u64::from_le_bytes(*created_by) {
            0 => writer,
            id => TrxId(id),
        };
        let name = std::str::from_utf8(name).ok()?.to_string();
        Some(Found { name, created_by })
    }
}

/// Where the names of look-ups lead.
pub type Rows = BTreeMap<Vec<u8>, Found>;

/// The look-ups of a table (DEF-3). One that is being made for another one, or was replaced by one, is
/// nobody's child, and its constraints' names do not count.
pub fn of(def: &TableDef, created_by: TrxId) -> Rows {
    let found = |created_by| Found {
        name: def.name.clone(),
        created_by,
    };
    let mut rows = Rows::new();
    rows.insert(Lookup::Table(def.id).key(), found(created_by));
    let mut lead_to_it = |key| rows.insert(key, found(TrxId(0)));
    lead_to_it(Lookup::Space(def.space).key());
    for key in &def.foreign_keys {
        if is_aside(&def.name) {
            lead_to_it(Prefix::aside_children_of(&key.parent).with_id(def.id));
        } else {
            lead_to_it(Prefix::children_of(&key.parent).with_id(def.id));
            lead_to_it(Prefix::owners_of(&def.name, &key.name).with_id(def.id));
        }
    }
    rows
}

/// All look-ups that these definitions have.
pub fn collect(defs: &[StoredDef]) -> Rows {
    let mut rows = Rows::new();
    for stored in defs {
        match &stored.def {
            Ok(def) => rows.extend(of(def, stored.created_by)),
            Err(_) => {
                let found = Found {
                    name: stored.name.clone(),
                    created_by: TrxId(0),
                };
                rows.insert(Lookup::Unreadable(&stored.name).key(), found);
            }
        }
    }
    rows
}

pub(super) fn insert(trx: &mut Transaction, system: &Arc<OpenTable>, rows: &Rows) -> Result<()> {
    let put = |(key, found): (&Vec<u8>, &Found)| insert_one(trx, system, key, &found.data());
    rows.iter().try_for_each(put)
}

/// The key of a look-up in the system table: its name, and the number of the only piece.
fn system_key(name: &[u8]) -> [Datum<'_>; 2] {
    const PIECE: &[u8] = &0u32.to_le_bytes();
    [Some(name), Some(PIECE)]
}

fn insert_one(
    trx: &mut Transaction,
    system: &Arc<OpenTable>,
    key: &[u8],
    data: &[u8],
) -> Result<()> {
    let [name, piece] = system_key(key);
    let row = [name, piece, Some(data)];
    insert_row(trx, system, &row, OnDuplicate::LockShared).map(drop)
}

/// Deletes what there is of these rows, as far as they lead where they should.
pub(super) fn delete(trx: &mut Transaction, system: &Arc<OpenTable>, rows: &Rows) -> Result<()> {
    let mut cursor = Cursor::open(system.clone(), 0)?;
    for (key, found) in rows {
        if cursor.seek(trx, &system_key(key), KeyMatch::Exact, LockMode::Exclusive)?
            && decode(system, &cursor)?.1.name == found.name
        {
            delete_row(trx, system, cursor.current(trx)?)?;
        }
    }
    Ok(())
}

/// The stored look-up of this name.
pub(super) fn stored_one(
    trx: &mut Transaction,
    system: &Arc<OpenTable>,
    key: &[u8],
) -> Result<Option<Found>> {
    let mut cursor = Cursor::open(system.clone(), 0)?;
    match cursor.seek(trx, &system_key(key), KeyMatch::Exact, LockMode::None)? {
        true => decode(system, &cursor).map(|(_, found)| Some(found)),
        false => Ok(None),
    }
}

/// The stored look-ups whose names begin so.
pub(super) fn stored(
    trx: &mut Transaction,
    system: &Arc<OpenTable>,
    prefix: &[u8],
) -> Result<Rows> {
    let mut cursor = Cursor::open(system.clone(), 0)?;
    let mut rows = Rows::new();
    let from: [Datum<'_>; 1] = [Some(prefix)];
    let mut more = cursor.seek(trx, &from, KeyMatch::AtLeast, LockMode::None)?;
    while more {
        let row = cursor.row()?;
        let name = row.get(0).unwrap_or_default();
        if !name.starts_with(prefix) || !name.starts_with(&COMPLETE) {
            break;
        }
        if name != COMPLETE {
            rows.extend([decode(system, &cursor)?]);
        }
        more = cursor.next(trx)?;
    }
    Ok(rows)
}

/// The last one of those whose names begin so.
pub(super) fn last(
    trx: &mut Transaction,
    system: &Arc<OpenTable>,
    prefix: &[u8],
) -> Result<Option<(Vec<u8>, Found)>> {
    let mut behind = prefix.to_vec();
    assert!(successor(&mut behind), "the second byte is a letter");
    let end: [Datum<'_>; 1] = [Some(&behind)];
    let mut cursor = Cursor::open(system.clone(), 0)?;
    if !cursor.seek(trx, &end, KeyMatch::Before, LockMode::None)? {
        return Ok(None);
    }
    let is_one = cursor
        .row()?
        .get(0)
        .is_some_and(|name| name.starts_with(prefix));
    is_one.then(|| decode(system, &cursor)).transpose()
}

/// The look-up in the cursor's row.
fn decode(system: &OpenTable, cursor: &Cursor) -> Result<(Vec<u8>, Found)> {
    let row = cursor.row()?;
    let data = row.get(2).unwrap_or_default();
    let found = Found::decode(data, cursor.writer()?).ok_or_else(|| {
        let at = cursor.position();
        system
            .clustered
            .damage_at(at, "a look-up", format!("{data:?}"))
    })?;
    Ok((row.get(0).unwrap_or_default().to_vec(), found))
}

/// Whether there is a look-up for everything.
pub fn are_complete(trx: &mut Transaction, system: &Arc<OpenTable>) -> Result<bool> {
    let mut cursor = Cursor::open(system.clone(), 0)?;
    cursor.seek(trx, &system_key(&COMPLETE), KeyMatch::Exact, LockMode::None)
}

/// All that are stored. `None`: they are not complete.
pub fn all_stored(trx: &mut Transaction, system: &Arc<OpenTable>) -> Result<Option<Rows>> {
    match are_complete(trx, system)? {
        true => stored(trx, system, &[]).map(Some),
        false => Ok(None),
    }
}

/// Makes those of all definitions, of which there are none. What a crash leaves is rolled back with the
/// transaction, and the next start begins again.
pub fn make(trx: &mut Transaction, system: &Arc<OpenTable>) -> Result<()> {
    let defs = load_defs(trx, system)?;
    insert(trx, system, &collect(&defs))?;
    insert_one(trx, system, &COMPLETE, &[])
}
