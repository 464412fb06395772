//! Rollback: each undo record, newest first, is taken back in one mini-transaction that restores exactly the
//! previous state and marks the undo record UNDONE. A crash in between leaves a log whose marked records are done.

use crate::base::{Error, Result};
use crate::btree::LeafPos;
use crate::catalog::{ENTRY_LEN, OpenIndex, ROW_AT, RowRecord, entry_state, row_header};
use crate::mtr::Mtr;
use crate::page::PageOp;
use crate::undo::{Previous, UndoKind, UndoRecord};

use super::core::{Core, Counters};
use super::transaction::Transaction;

/// Redo that taking back one record can write.
const MAX_MTR: u32 = 256 * 1024;

/// Takes back everything with an undo number of at least `down_to`.
pub(super) fn roll_back(trx: &mut Transaction, down_to: u64) -> Result<()> {
    let core = trx.core().clone();
    let mut bytes = std::mem::take(&mut trx.scratch.undo);
    let done = (|| {
        while let Some(undo) = &trx.undo
            && undo.read_newest(&core.undo.env, down_to, &mut bytes)?
        {
            let record = UndoRecord::decode(&bytes)
                .ok_or_else(|| Error::invalid("an undo record can't be decoded"))?;
            take_back(&core, trx, &record)?;
            let undo = trx.undo.as_mut().expect("has a log");
            undo.pop_newest(&core.undo.env, record.kind)?;
        }
        Ok(())
    })();
    trx.scratch.undo = bytes;
    if down_to == 0 && trx.id().is_some() {
        Counters::add(&core.counters.rollbacks, 1);
    }
    done
}

fn take_back(core: &Core, trx: &mut Transaction, record: &UndoRecord<'_>) -> Result<()> {
    let table = core
        .tables
        .by_id(record.table)
        .ok_or_else(|| Error::not_found(format!("table {} of an undo record", record.table)))?;
    let index = table
        .index(record.index)
        .ok_or_else(|| Error::not_found(format!("index {} of an undo record", record.index)))?;
    match (record.kind, &record.previous) {
        (UndoKind::RowInsert | UndoKind::EntryNew, _) => remove(core, trx, index, record)?,
        (UndoKind::EntryKill | UndoKind::EntryRevive, Some(previous)) => {
            restore_entry(core, trx, index, record, previous)?;
        }
        (_, Some(previous)) => restore_row(core, trx, index, record, previous)?,
        (_, None) => return Err(Error::invalid("an undo record without a previous state")),
    }
    table.count_rows(-record.kind.row_count_change());
    Ok(())
}

/// The record that the undo record speaks of, latched.
fn find(
    core: &Core,
    mtr: &mut Mtr<'_>,
    index: &OpenIndex,
    key: &[u8],
    room: usize,
) -> Result<LeafPos> {
    let pos = index.tree.latch_leaf_to_undo(mtr, key, room)?;
    if !pos.found {
        let message = format!("rollback misses a record of index {}", index.name);
        core.warn(&message);
        return Err(Core::damaged_record(
            &index.name,
            "a record that rollback must restore is missing",
        ));
    }
    Ok(pos)
}

/// The same, in a leaf where the record may have a payload of `len` bytes. Most have their length: nothing is split for them.
fn find_with_room(
    core: &Core,
    mtr: &mut Mtr<'_>,
    index: &OpenIndex,
    key: &[u8],
    len: usize,
) -> Result<LeafPos> {
    let mut room = 0;
    loop {
        let pos = find(core, mtr, index, key, room)?;
        let growth = len.saturating_sub(pos.payload(mtr).len());
        if pos.slotted(mtr).free_space() >= growth {
            return Ok(pos);
        }
        mtr.release(pos.h);
        room = growth;
    }
}

fn remove(
    core: &Core,
    trx: &mut Transaction,
    index: &OpenIndex,
    record: &UndoRecord<'_>,
) -> Result<()> {
    let mut mtr = Mtr::begin(&core.mtr, MAX_MTR)?;
    let pos = find(core, &mut mtr, index, record.key, 0)?;
    let undo = trx.undo.as_mut().expect("has a log");
    let latch = undo.latch_undone(&mut mtr, record.kind)?;
    mtr.op(pos.h, PageOp::Remove { slot: pos.slot });
    undo.mark_undone(&mut mtr, latch);
    let sparse = pos.underfull(&mtr);
    mtr.commit();
    if sparse {
        // A merge is an optimisation: if it fails, the tree is as correct as before.
        let _ = index.tree.maybe_merge(record.key);
    }
    Ok(())
}

fn restore_entry(
    core: &Core,
    trx: &mut Transaction,
    index: &OpenIndex,
    record: &UndoRecord<'_>,
    previous: &Previous<'_>,
) -> Result<()> {
    let mut mtr = Mtr::begin(&core.mtr, MAX_MTR)?;
    let pos = find(core, &mut mtr, index, record.key, 0)?;
    let undo = trx.undo.as_mut().expect("has a log");
    let latch = undo.latch_undone(&mut mtr, record.kind)?;
    debug_assert_eq!(pos.payload(&mtr).len(), ENTRY_LEN);
    let state = entry_state(previous.flags, previous.trx);
    mtr.op(
        pos.h,
        PageOp::PatchPayload {
            slot: pos.slot,
            off: 0,
            bytes: &state,
        },
    );
    undo.mark_undone(&mut mtr, latch);
    mtr.commit();
    Ok(())
}

fn restore_row(
    core: &Core,
    trx: &mut Transaction,
    index: &OpenIndex,
    record: &UndoRecord<'_>,
    previous: &Previous<'_>,
) -> Result<()> {
    let diff = &previous.diff;
    let old_len = diff.prefix as usize + diff.middle.len() + diff.suffix as usize;
    let mut mtr = Mtr::begin(&core.mtr, MAX_MTR)?;
    let pos = find_with_room(core, &mut mtr, index, record.key, old_len + ROW_AT)?;
    let mut row = std::mem::take(&mut trx.scratch.payload);
    let undo = trx.undo.as_mut().expect("has a log");
    let latch = undo.latch_undone(&mut mtr, record.kind)?;
    let current = RowRecord::decode(pos.payload(&mtr))
        .filter(|r| r.trx == record.trx)
        .ok_or_else(|| {
            Core::damaged_record(&index.name, "rollback found another version of a row")
        })?;
    diff.apply(current.row, &mut row)
        .ok_or_else(|| Core::damaged_record(&index.name, "an undo record does not fit its row"))?;
    let header = row_header(previous.flags, previous.trx, previous.roll_ptr);
    if row.len() == current.row.len() {
        mtr.op(
            pos.h,
            PageOp::PatchPayload {
                slot: pos.slot,
                off: 0,
                bytes: &header,
            },
        );
        let off = (header.len() + diff.prefix as usize) as u16;
        if !diff.middle.is_empty() {
            mtr.op(
                pos.h,
                PageOp::PatchPayload {
                    slot: pos.slot,
                    off,
                    bytes: diff.middle,
                },
            );
        }
    } else {
        row.splice(0..0, header);
        mtr.op(
            pos.h,
            PageOp::ReplacePayload {
                slot: pos.slot,
                payload: &row,
            },
        );
    }
    undo.mark_undone(&mut mtr, latch);
    mtr.commit();
    trx.scratch.payload = row;
    Ok(())
}
