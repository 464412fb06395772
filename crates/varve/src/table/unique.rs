//! Unique checks of secondary indexes, and looks at entries that lock nothing.
//!
//! The check and the insert that follows it happen under one striped latch on (index, unique key), so that
//! two transactions that insert the same key check one after the other: the second one finds the first one's
//! entry. The stripe is released before any lock wait.
//!
//! Any entry that is not delete-marked for good is a conflict. Its row is then locked shared, which waits for
//! the transaction that is changing it; if the entry lives under that lock, it is a duplicate, and the lock
//! keeps it from going away while the statement deals with it. No gap needs to be locked for that: while the
//! row lives, nobody else can have its unique key.

use crate::base::{Error, PageId, Result, TrxId};
use crate::btree::Seek;
use crate::catalog::{ClusteredKey, DELETED, EntryRecord, OpenIndex, OpenTable, entry_state};
use crate::lock::Mode;
use crate::txn::Transaction;

use super::rowlock::{Locked, entry_of, lock_row};
use super::version::read_leaf;

/// Another row's entry with the same unique key: its full key and its row's clustered key.
pub struct Conflict {
    key: Vec<u8>,
    clustered_key: Vec<u8>,
    /// Who wrote it.
    trx: TrxId,
    /// The leaf that it is on.
    page: PageId,
}

impl Conflict {
    /// The entry has not changed in between.
    pub fn is_same(&self, other: &Conflict) -> bool {
        self.trx == other.trx && self.key == other.key
    }

    /// It stays, and its row is not there: that can't be, for who deletes or takes back a row sees to its
    /// entries before others get its lock.
    pub fn damage(&self, index: &OpenIndex) -> Error {
        let found = format!("one of transaction {} without a row", self.trx);
        index.damage_on(self.page, "entries of rows that are there", found)
    }

    /// Waits for the other row and says whether it really is a duplicate. No stripe or latch may be held.
    pub fn is_duplicate(
        &self,
        trx: &Transaction,
        table: &OpenTable,
        index: &OpenIndex,
        mode: Mode,
    ) -> Result<bool> {
        let mut payload = Vec::new();
        let lock = lock_row(trx, table, &self.clustered_key, mode, &mut payload)?;
        if lock.found != Locked::Live {
            return Ok(false);
        }
        let found = read_leaf(index, &self.key, &mut payload)?;
        Ok(found && entry_state(&payload).is_some_and(|(flags, _)| flags & DELETED == 0))
    }
}

/// Whether there is an entry with this prefix that is live whatever becomes of others' transactions: its row
/// is there, and nobody has begun to delete it or to give it another key.
pub fn has_settled_entry(trx: &Transaction, index: &OpenIndex, prefix: &[u8]) -> Result<bool> {
    let mut found = false;
    for_each_entry(trx, index, prefix, |_, entry, _, _| {
        found = !entry.is_deleted() && !is_open(trx, entry.trx);
        found
    })?;
    Ok(found)
}

/// Another transaction, which has not ended.
fn is_open(trx: &Transaction, writer: TrxId) -> bool {
    trx.id() != Some(writer) && trx.core().sys.is_unfinished(writer)
}

/// Looks for another row with the same unique key: the first `unique_len` bytes of `key`, which is the full
/// key of the entry to be inserted.
pub fn find_conflict(
    trx: &Transaction,
    index: &OpenIndex,
    key: &[u8],
    unique_len: usize,
) -> Result<Option<Conflict>> {
    let mut conflict = None;
    for_each_entry(
        trx,
        index,
        &key[..unique_len],
        |other, entry, clustered_key, page| {
            // The entry of this very row, delete-marked, will be un-delete-marked by the insert.
            if other != key && (!entry.is_deleted() || is_open(trx, entry.trx)) {
                conflict = Some(Conflict {
                    key: other.to_vec(),
                    clustered_key: clustered_key.to_vec(),
                    trx: entry.trx,
                    page,
                });
            }
            conflict.is_some()
        },
    )?;
    Ok(conflict)
}

/// The clustered key of a row that has an entry with this own key, in an index that only one thread uses.
pub fn find_entry(trx: &Transaction, index: &OpenIndex, own_key: &[u8]) -> Result<Option<Vec<u8>>> {
    let mut found = None;
    for_each_entry(trx, index, own_key, |_, _, clustered_key, _| {
        found = Some(clustered_key.to_vec());
        true
    })?;
    Ok(found)
}

/// Hands the entries whose keys begin with `prefix`, delete-marked ones too, to `is_it` until it says yes:
/// the key, the entry, its row's clustered key, the leaf. Under the leaf's latch.
fn for_each_entry(
    trx: &Transaction,
    index: &OpenIndex,
    prefix: &[u8],
    mut is_it: impl FnMut(&[u8], &EntryRecord<'_>, ClusteredKey<'_>, PageId) -> bool,
) -> Result<()> {
    let mut from = prefix.to_vec();
    let mut key = Vec::new();
    loop {
        let leaf = index.latch_leaf(&from, Seek::Ge, usize::MAX)?;
        let page = leaf.slotted();
        for slot in leaf.at()..page.n_slots() {
            key.clear();
            page.push_key(slot, &mut key);
            if !key.starts_with(prefix) {
                return Ok(());
            }
            let (entry, clustered_key) = entry_of(index, &leaf, &key, page.payload(slot))?;
            if is_it(&key, &entry, clustered_key, leaf.page_id()) {
                return Ok(());
            }
        }
        match page.high() {
            Some(high) if high.starts_with(prefix) => {
                let next = high.to_vec();
                drop(leaf);
                trx.check_interrupt()?;
                from = next;
            }
            _ => return Ok(()),
        }
    }
}
