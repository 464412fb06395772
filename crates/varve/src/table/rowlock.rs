//! Locking a row, and reading the version that the lock protects.
//!
//! Row locks are held on the clustered key, whichever index led there. A record whose TrxId belongs to a
//! transaction that has not ended is locked exclusively by it without an entry in the lock table (an implicit
//! lock); the transaction that runs into one first turns it into an explicit lock on behalf of the holder,
//! then waits like for any other.
//!
//! - **ROWLOCK-1** A lock is granted or refused under the leaf latch, so what is read under the same latch is
//!   what the lock protects. Waiting happens without any latch, and the row is read again afterwards.

use crate::base::{Result, TrxId};
use crate::btree::Seek;
use crate::catalog::{ClusteredKey, EntryRecord, IndexLeaf, OpenIndex, OpenTable, RowRecord};
use crate::lock::{Acquired, Mode, TableMode};
use crate::row::Datum;
use crate::txn::Transaction;

/// The outcome of locking a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Locked {
    /// The row lives; the lock is held.
    Live,
    /// The record is delete-marked by a transaction that has ended (or by this one); the lock is held.
    DeleteMarked,
    /// There is no record with this key. The lock may or may not be held.
    Absent,
    /// Somebody else has locked it, and it is to be skipped.
    Busy,
}

/// What to do about a row that somebody else has locked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IfLocked {
    /// Wait, as long as the transaction's lock wait timeout allows.
    Wait,
    /// Do without the row (SKIP LOCKED).
    Skip,
}

/// A lock on a row: what it protects, and whether the transaction had none there before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RowLock {
    pub found: Locked,
    pub is_new: bool,
}

/// Locks the row with this clustered key and copies its record into `payload`.
pub fn lock_row(
    trx: &Transaction,
    table: &OpenTable,
    key: &[u8],
    mode: Mode,
    payload: &mut Vec<u8>,
) -> Result<RowLock> {
    lock_row_or(trx, table, key, mode, IfLocked::Wait, payload, || Ok(()))
}

/// As `lock_row`, or skips it; `gone` is called under the leaf's latch if there is no live row.
pub fn lock_row_or(
    trx: &Transaction,
    table: &OpenTable,
    key: &[u8],
    mode: Mode,
    if_locked: IfLocked,
    payload: &mut Vec<u8>,
    gone: impl Fn() -> Result<()>,
) -> Result<RowLock> {
    let mut is_new = false;
    loop {
        let leaf = table.clustered.tree.latch_leaf_shared(key, Seek::Ge)?;
        let page = leaf.slotted();
        if !leaf.exact {
            gone()?;
            let found = Locked::Absent;
            return Ok(RowLock { found, is_new });
        }
        let bytes = page.payload(leaf.at);
        let record = RowRecord::decode(bytes).ok_or_else(|| {
            let found = format!("{} bytes", bytes.len());
            table.clustered.damage_on(leaf.page_id(), "a row", found)
        })?;
        if let Some(acquired) = lock_latched(trx, table, key, record.trx, mode) {
            payload.clear();
            payload.extend_from_slice(bytes);
            is_new |= acquired == Acquired::New;
            let found = match record.is_deleted() {
                true => Locked::DeleteMarked,
                false => Locked::Live,
            };
            if found == Locked::DeleteMarked {
                gone()?;
            }
            return Ok(RowLock { found, is_new });
        }
        drop(leaf);
        if if_locked == IfLocked::Skip {
            let found = Locked::Busy;
            return Ok(RowLock { found, is_new });
        }
        is_new |= trx.lock_record(table.clustered.id, key, mode)? == Acquired::New;
    }
}

/// Locks a search key of an index exclusively, whether or not any row has it. It is a lock on the key itself:
/// it keeps out nobody but those who ask for the same.
pub fn lock_search_key(
    trx: &mut Transaction,
    table: &OpenTable,
    index: usize,
    values: &[Datum<'_>],
) -> Result<()> {
    trx.use_table(table, TableMode::IntentionExclusive)?;
    let mut key = Vec::new();
    table.encode_search(index, values, &mut key)?;
    let index = table.index_at(index)?.id;
    trx.lock_record(index, &key, Mode::Exclusive).map(drop)
}

/// Tries to lock a record that the caller has latched and whose TrxId is `writer`. `None`: let the latch go,
/// wait with `Transaction::lock_record`, and read the row again.
///
/// The writer's implicit lock is made explicit under the latch. Later it might have rolled back to a
/// savepoint, and be given a lock that somebody else holds by then.
pub fn lock_latched(
    trx: &Transaction,
    table: &OpenTable,
    key: &[u8],
    writer: TrxId,
    mode: Mode,
) -> Option<Acquired> {
    if trx.id() == Some(writer) {
        // Implicitly ours: nobody else can hold a lock on it.
        return Some(Acquired::Already);
    }
    let core = trx.core();
    if table.is_temporary() {
        // The transaction has the whole table (TEMP-1).
        debug_assert!(!core.sys.is_unfinished(writer), "TEMP-1: {writer:?}");
        return Some(Acquired::Already);
    }
    let index = table.clustered.id;
    if core.sys.is_unfinished(writer) {
        if core.locks.convert_implicit(writer, index, key) {
            return None;
        }
        debug_assert!(!core.sys.is_unfinished(writer), "{writer:?} has no locks");
    }
    trx.try_lock_record(index, key, mode)
}

/// A secondary entry on a latched leaf with its clustered key, or damage.
pub fn entry_of<'a>(
    index: &OpenIndex,
    leaf: &IndexLeaf<'_>,
    key: &'a [u8],
    payload: &'a [u8],
) -> Result<(EntryRecord<'a>, ClusteredKey<'a>)> {
    let entry = index.entry(payload);
    let found = entry.and_then(|e| Some((e, e.clustered_key(key)?)));
    found.ok_or_else(|| {
        let found = format!("{} bytes behind a key of {}", payload.len(), key.len());
        index.damage_on(leaf.page_id(), "an entry", found)
    })
}
