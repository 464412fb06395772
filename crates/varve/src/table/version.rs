//! Finding the version of a row that a read view sees: the leaf record, or one behind its roll pointer, or
//! one in the history store.
//!
//! A reader copies the leaf record under the leaf's shared latch and follows roll pointers without one. The
//! undo log it walks may be given back meanwhile, by a rollback of its writer X or by purge: the undo page
//! then holds something else, which `UndoSys::read` notices (a **cut**).
//!
//! - **MVCC-1** A log is given back by purge only when every view sees its transaction, but for the members
//!   of the history store. So for others a cut whose leaf record did not change can't happen. It is counted
//!   and reported as damage.
//!
//! A reader that is no member starts over with the leaf record, which has changed if X rolled back.
//!
//! **Members.** If purge has given back X's log, what the member needs of it was copied before. So after a
//! cut the member asks the store, and what it finds there is the version, whatever became of the leaf: the
//! store's versions are those that committed transactions superseded, and each says for whom (STORE-1). If it
//! finds none, X may have rolled back, wholly or to a savepoint, before or after it committed the rest. What
//! was undone is not copied, so the version may be the one that the leaf has now. But if X had ended before
//! the leaf record was copied, the change was not undone: then purge has given back the log, and the member
//! sees no such row. Whether X had ended then is known if the reader has asked before it copied the leaf
//! record. So it asks, and copies the leaf record once more (MVCC-2). A row that is not in the tree at all,
//! or was inserted by somebody whom the view does not see, is looked for in the store after that was found:
//! what it was before was purged before.
//!
//! - **MVCC-2** A member takes a row for absent after a cut at X only if it had found X ended before it
//!   copied the leaf record.

use crate::base::{Error, Result, Sabotage, TrxId};
use crate::btree::{LeafAhead, Tree};
use crate::catalog::{OpenIndex, OpenTable, ROW_AT, RowRecord};
use crate::history::Kind;
use crate::txn::{Core, Counters, ReadView, Transaction, Visibility};
use crate::undo::{Previous, UndoRecord, UndoTarget};

/// Buffers for walking a version chain.
#[derive(Default)]
pub struct VersionScratch {
    undo: Vec<u8>,
    row: Vec<u8>,
    leaf: Vec<u8>,
}

enum Walk {
    /// `payload` holds the version.
    Found,
    /// The view sees that there is no such row.
    Nothing,
    /// Nor is there in the chain, which ends with an insert: a row that was there before has been purged.
    Inserted,
    /// The chain was cut: the undo log of this transaction is gone.
    Cut(TrxId),
}

/// The cuts that a walk has met.
#[derive(Default)]
pub struct Cuts {
    /// The head of the leaf record at the last one.
    leaf: Option<[u8; ROW_AT]>,
    /// Whose log was gone then, if that transaction had ended.
    ended: Option<TrxId>,
}

/// What a cut means for the walk.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum AfterCut {
    /// The leaf record is to be copied once more.
    Again,
    /// The writer had ended before the leaf record was copied: purge has given back its log (MVCC-2).
    GivenBack,
    /// The leaf record is still the same, and its writer goes on.
    Missing,
}

impl Cuts {
    /// The walk from a leaf record with this head has met a cut: the log of `writer` is gone.
    pub fn meet(&mut self, core: &Core, leaf: Option<[u8; ROW_AT]>, writer: TrxId) -> AfterCut {
        let had_ended = self.ended == Some(writer);
        self.ended = Some(writer).filter(|writer| !core.sys.is_unfinished(*writer));
        let is_same = leaf.is_some() && self.leaf == leaf;
        self.leaf = leaf;
        match self.ended {
            _ if had_ended => AfterCut::GivenBack,
            None if is_same => AfterCut::Missing,
            _ => AfterCut::Again,
        }
    }
}

/// Turns `payload`, a copy of the clustered record with this key, into the version that the view sees.
/// `false`: the view sees no such row. No latch may be held.
pub fn visible_version(
    trx: &Transaction,
    view: &ReadView,
    table: &OpenTable,
    key: &[u8],
    payload: &mut Vec<u8>,
    scratch: &mut VersionScratch,
) -> Result<bool> {
    let mut cuts = Cuts::default();
    loop {
        let leaf = payload.first_chunk::<ROW_AT>().copied();
        let writer = match walk(trx, view, table, key, payload, scratch)? {
            Walk::Found => return Ok(true),
            Walk::Nothing => return Ok(false),
            Walk::Inserted => return gone_version(trx, view, table, key, payload),
            Walk::Cut(writer) => writer,
        };
        let is_member = view.is_member();
        if is_member && gone_version(trx, view, table, key, payload)? {
            return Ok(true);
        }
        let is_rash = is_member && trx.core().log.is_sabotaged(Sabotage::CutTakenForAbsent);
        match cuts.meet(trx.core(), leaf, writer) {
            AfterCut::Again if !is_rash => {}
            AfterCut::Again | AfterCut::GivenBack if is_member => return Ok(false),
            _ => {
                Counters::add(&trx.core().counters.undo_cuts, 1);
                let found = "a row whose older version is missing there";
                return Err(table
                    .clustered
                    .damage_at(key, "a row with its undo log", found));
            }
        }
        if !read_leaf(&table.clustered, key, &mut scratch.leaf)? {
            return gone_version(trx, view, table, key, payload);
        }
        std::mem::swap(payload, &mut scratch.leaf);
    }
}

/// The tree has nothing of a row that the view sees: makes `payload` what the history store has.
pub fn gone_version(
    trx: &Transaction,
    view: &ReadView,
    table: &OpenTable,
    key: &[u8],
    payload: &mut Vec<u8>,
) -> Result<bool> {
    if table.is_temporary() || !view.is_member() {
        return Ok(false);
    }
    let index = &table.clustered;
    match trx.core().history.find(index.id, key, view.number())? {
        None => Ok(false),
        Some(found) if found.kind == Kind::Record => {
            *payload = found.record;
            Ok(true)
        }
        Some(_) => Err(damaged_version(index, key)),
    }
}

/// The error for a version that could not be copied, because what it was made from was damaged.
pub fn damaged_version(index: &OpenIndex, key: &[u8]) -> Error {
    let found = "damage, when it was to be copied to the history store";
    index.damage_at(key, "an older version", found)
}

/// Turns `payload`, a copy of the clustered record with this key, into the version that a plain read of this
/// transaction is to see, if there is one: under READ UNCOMMITTED the record as it is.
pub fn visible_or_newest(
    trx: &Transaction,
    table: &OpenTable,
    key: &[u8],
    payload: &mut Vec<u8>,
    scratch: &mut VersionScratch,
) -> Result<bool> {
    match trx.read_view() {
        Some(view) => visible_version(trx, view, table, key, payload, scratch),
        None => Ok(!row_record(table, key, payload)?.is_deleted()),
    }
}

/// A clustered record that was copied from its page.
pub fn row_record<'a>(table: &OpenTable, key: &[u8], payload: &'a [u8]) -> Result<RowRecord<'a>> {
    RowRecord::decode(payload).ok_or_else(|| {
        let found = format!("{} bytes", payload.len());
        table.clustered.damage_at(key, "a row", found)
    })
}

/// Copies the record of the index's own tree with exactly this key; `false` if there is none.
pub fn read_leaf(index: &OpenIndex, key: &[u8], payload: &mut Vec<u8>) -> Result<bool> {
    read_leaf_of(&index.tree, key, None, payload)
}

/// The same of a tree, which may have been asked before where the leaf is.
#[inline]
pub fn read_leaf_of(
    tree: &Tree,
    key: &[u8],
    ahead: Option<LeafAhead>,
    payload: &mut Vec<u8>,
) -> Result<bool> {
    let leaf = tree.latch_leaf_ahead(key, ahead)?;
    if !leaf.exact {
        return Ok(false);
    }
    payload.clear();
    payload.extend_from_slice(leaf.slotted().payload(leaf.at));
    Ok(true)
}

fn is_seen_wrongly(core: &Core, trx: TrxId) -> bool {
    core.log.is_sabotaged(Sabotage::ViewSeesUnfinished)
        || (core.log.is_sabotaged(Sabotage::ViewMoves) && !core.sys.is_unfinished(trx))
}

/// Whether the view sees what `writer` wrote, waiting for a commit number that is being drawn right now,
/// unless `trx` is interrupted or the database has stopped. No latch may be held.
pub fn sees(trx: &Transaction, view: &ReadView, writer: TrxId) -> Result<bool> {
    let core = trx.core();
    loop {
        match view.sees(writer) {
            Visibility::Visible => return Ok(true),
            Visibility::Invisible => return Ok(is_seen_wrongly(core, writer)),
            Visibility::Unsettled => (core.sys).wait_settled(writer, || trx.check_waiting())?,
        }
    }
}

fn walk(
    trx: &Transaction,
    view: &ReadView,
    table: &OpenTable,
    key: &[u8],
    payload: &mut Vec<u8>,
    scratch: &mut VersionScratch,
) -> Result<Walk> {
    let core = trx.core();
    loop {
        let record = row_record(table, key, payload)?;
        // TEMP-2: of a temporary table the newest version counts.
        if table.is_temporary() || sees(trx, view, record.trx)? {
            return Ok(if record.is_deleted() {
                Walk::Nothing
            } else {
                Walk::Found
            });
        }
        if record.roll_ptr.is_insert() {
            return Ok(Walk::Inserted);
        }
        trx.check_interrupt()?;
        let target = UndoTarget {
            writer: record.trx,
            table: table.id(),
            index: table.clustered.id,
            key,
        };
        if !core
            .undo
            .read(record.roll_ptr, &target, &mut scratch.undo)?
        {
            return Ok(Walk::Cut(record.trx));
        }
        let undo = UndoRecord::decode(&scratch.undo).expect("UndoSys::read decoded it");
        let fits = |p: &Previous<'_>| p.diff.apply(record.row, &mut scratch.row).is_some();
        let Some(previous) = undo.previous.filter(fits) else {
            let found = format!("one of {} that does not fit the row", record.trx);
            return Err(table
                .clustered
                .damage_at(key, "the undo record of a row", found));
        };
        payload.clear();
        payload.extend_from_slice(&previous.head().to_bytes());
        payload.extend_from_slice(&scratch.row);
    }
}
