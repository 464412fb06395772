//! Writing undo records: each is encoded before the mini-transaction that changes its record, and appended in
//! it (UNDO-1).

use crate::base::{IndexId, Result, Sabotage, TableId, TrxId};
use crate::catalog::OpenTable;
use crate::mtr::{Mtr, PageHandle};
use crate::txn::Transaction;
use crate::undo::{EncodedUndo, Previous, UndoKind, UndoRecord};

/// A change to one record of an index, as its undo record describes it (`UndoRecord`).
#[derive(Clone, Copy)]
pub(super) struct RecordChange<'a> {
    pub kind: UndoKind,
    pub index: IndexId,
    pub key: &'a [u8],
    pub previous: Option<Previous<'a>>,
    pub pages: &'a [u8],
    pub frees: &'a [u8],
}

impl<'a> RecordChange<'a> {
    /// The insertion of a record where none was.
    pub(super) fn insert(kind: UndoKind, index: IndexId, key: &'a [u8]) -> RecordChange<'a> {
        RecordChange {
            kind,
            index,
            key,
            previous: None,
            pages: &[],
            frees: &[],
        }
    }
}

/// Encodes an undo record for the next undo number into the transaction's scratch buffer, and makes room for
/// it.
pub(super) fn encode_undo(
    trx: &mut Transaction,
    table: &OpenTable,
    change: &RecordChange<'_>,
) -> Result<TrxId> {
    let id = trx.writer()?;
    write_undo(trx, id, table, change);
    trx.prepare_undo(table.id(), change.kind, trx.scratch.undo.len())?;
    Ok(id)
}

/// The part of `encode_undo` that can't fail: room is the caller's business.
pub(super) fn write_undo(
    trx: &mut Transaction,
    id: TrxId,
    table: &OpenTable,
    change: &RecordChange<'_>,
) {
    trx.changes(table);
    let record = UndoRecord {
        kind: change.kind,
        undone: false,
        undo_no: trx.undo_mut().next_no(),
        trx: id,
        table: table.id(),
        index: change.index,
        key: change.key,
        previous: change.previous,
        pages: change.pages,
        frees: change.frees,
    };
    let mut bytes = std::mem::take(&mut trx.scratch.undo);
    bytes.clear();
    record.encode(&mut bytes);
    trx.scratch.undo = bytes;
    trx.scratch.undo_concerns_purge = record.concerns_purge();
}

/// Appends the record that `encode_undo` left in the scratch buffer.
pub(super) fn append_undo(
    trx: &mut Transaction,
    mtr: &mut Mtr<'_>,
    page: PageHandle,
    table: TableId,
    kind: UndoKind,
) {
    let log = &trx.core().log;
    if kind == UndoKind::EntryDeleteMark && log.is_sabotaged(Sabotage::UndoSkipped) {
        return;
    }
    let bytes = std::mem::take(&mut trx.scratch.undo);
    let record = EncodedUndo {
        bytes: &bytes,
        concerns_purge: trx.scratch.undo_concerns_purge,
    };
    trx.undo_mut().append(mtr, page, table, kind, record);
    trx.scratch.undo = bytes;
    trx.locks().set_changes(trx.next_undo_no());
}
