//! Finding the version of a row that a read view sees: the leaf record, or one behind its roll pointer.
//!
//! A reader copies the leaf record under the leaf's shared latch and follows roll pointers without one. The
//! undo log it walks may be given back meanwhile if its writer rolled back: the undo page then holds
//! something else, which `UndoSys::read` notices (a **cut**). The leaf record has changed in that case, so
//! the reader starts over with it.
//!
//! - **MVCC-1** A log is given back by purge only when every view sees its transaction, so that a cut whose
//!   leaf record did not change can't happen. It is counted and reported as damage.

use crate::base::{Result, Sabotage, TrxId};
use crate::btree::LeafAhead;
use crate::catalog::{OpenIndex, OpenTable, ROW_AT, RowRecord};
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
    /// The view sees no such row.
    Nothing,
    /// The chain was cut.
    Cut,
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
    let mut at_cut: Option<[u8; ROW_AT]> = None;
    loop {
        let leaf_header = payload.first_chunk::<ROW_AT>().copied();
        match walk(trx, view, table, key, payload, scratch)? {
            Walk::Found => return Ok(true),
            Walk::Nothing => return Ok(false),
            Walk::Cut => {}
        }
        if at_cut.is_some() && at_cut == leaf_header {
            Counters::add(&trx.core().counters.undo_cuts, 1);
            let found = "a row whose older version is missing there";
            return Err(table
                .clustered
                .damage_at(key, "a row with its undo log", found));
        }
        at_cut = leaf_header;
        if !read_leaf(&table.clustered, key, &mut scratch.leaf)? {
            return Ok(false);
        }
        std::mem::swap(payload, &mut scratch.leaf);
    }
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

/// Copies the record with exactly this key; `false` if there is none.
pub fn read_leaf(index: &OpenIndex, key: &[u8], payload: &mut Vec<u8>) -> Result<bool> {
    read_leaf_ahead(index, key, None, payload)
}

/// The same if the tree was asked before where the leaf is.
#[inline]
pub fn read_leaf_ahead(
    index: &OpenIndex,
    key: &[u8],
    ahead: Option<LeafAhead>,
    payload: &mut Vec<u8>,
) -> Result<bool> {
    let leaf = index.tree.latch_leaf_ahead(key, ahead)?;
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
            return Ok(Walk::Nothing);
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
            return Ok(Walk::Cut);
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
