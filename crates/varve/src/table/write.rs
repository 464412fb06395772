//! Insert, update and delete of one row: the clustered record and its secondary entries.
//!
//! Each B+tree record is changed in one mini-transaction together with its undo record (UNDO-1). An operation
//! that fails halfway (a duplicate in the third index, say) takes back what it did before it returns the
//! error, so that the caller sees all of it or nothing.
//!
//! - **SEC-1** A secondary entry exists only while its row's record does: INSERT writes the row first, DELETE
//!   delete-marks the entries first and the row last.
//! - **SEC-2** Only the holder of the row's exclusive lock, its rollback, or purge changes an entry.
//!
//! A record is inserted or un-delete-marked only if no other transaction's gap lock keeps its key out, as
//! seen under the exclusive latch of its leaf (GAP-1). Otherwise everything is let go, the stripe of a unique
//! check too, before it is waited.
//!
//! What leaves something to purge first waits for its turn, if purge lags, before it takes a latch (PACE-2).
//!
//! Latch order within a mini-transaction: leaf, undo page, meta page.

use std::sync::Arc;

use crate::base::{Error, Result, RowHead, Sabotage, StopPoint};
use crate::catalog::{
    DELETED, EXTERNAL, EntryRecord, OpenIndex, OpenTable, ROW_AT, RaisedCounter, RowRecord,
};
use crate::lock::Mode;
use crate::mtr::Mtr;
use crate::page::{PageOp, record_cost};
use crate::row::{Datum, ExternalValues, RowRef, put_row_id};
use crate::txn::{Counters, Transaction};
use crate::undo::{Previous, RowDiff, UndoKind};

use super::entry::{delete_mark_entry, insert_entry, move_entry};
use super::external::{
    StoredRow, damaged, dropped_refs, inline_row, row_for_keys, row_with_external_columns,
    store_row,
};
use super::follow::unless_own_history;
use super::foreign::{
    Cascade, check_own_reference, check_parents, check_parents_again, check_parents_without_index,
    see_to_children,
};
use super::rowlock::{Locked, lock_row};
use super::undo::{RecordChange, append_undo, encode_undo};
use super::unique::find_conflict;
use super::version::{read_leaf, row_record};

/// Redo that one row mini-transaction can write: the record, its undo, a page reorganised at worst.
pub(super) const MAX_MTR: u32 = 256 * 1024;

/// The row that an update or delete starts from: its clustered key and record, under the exclusive lock.
#[derive(Clone, Copy)]
pub struct CurrentRow<'a> {
    pub key: &'a [u8],
    /// The clustered record's payload.
    pub payload: &'a [u8],
}

impl<'a> CurrentRow<'a> {
    fn record(&self, table: &OpenTable) -> Result<RowRecord<'a>> {
        row_record(table, self.key, self.payload)
    }
}

/// How an insert locks the row that has its key already.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OnDuplicate {
    /// Shared: the duplicate stays what it is until the transaction ends.
    #[default]
    LockShared,
    /// Exclusive: the statement will change or delete it (REPLACE, ON DUPLICATE KEY UPDATE).
    LockExclusive,
}

impl OnDuplicate {
    pub(super) fn mode(self) -> Mode {
        match self {
            OnDuplicate::LockShared => Mode::Shared,
            OnDuplicate::LockExclusive => Mode::Exclusive,
        }
    }
}

/// Runs `operation`; if it fails, takes back what it changed.
pub(super) fn whole(
    trx: &mut Transaction,
    operation: impl FnOnce(&mut Transaction) -> Result<()>,
) -> Result<()> {
    trx.check_active()?;
    let before = trx.savepoint();
    operation(trx).inspect_err(|_| {
        if trx.core().log.is_sabotaged(Sabotage::RefusedCascadeStays) {
            return;
        }
        // If this fails, too, it has poisoned the database; the first error is the one to report.
        let _ = trx.rollback_to(before);
    })
}

/// Inserts a row.
pub fn insert_row(
    trx: &mut Transaction,
    table: &OpenTable,
    values: &[Datum<'_>],
    on_duplicate: OnDuplicate,
) -> Result<()> {
    let inserted = insert_row_by(trx, table, values, on_duplicate, Cascade::default());
    inserted.map(|()| raise_counter(trx, table, values))
}

/// The same if its hidden row id, should it have one, is given: it is that of no other row.
pub(super) fn insert_row_with(
    trx: &mut Transaction,
    table: &OpenTable,
    row_id: Option<&[u8]>,
    values: &[Datum<'_>],
) -> Result<()> {
    let (how, by) = (OnDuplicate::default(), Cascade::default());
    let inserted = insert_under(trx, table, row_id, values, how, by);
    inserted.map(|()| raise_counter(trx, table, values))
}

pub(super) fn insert_row_by(
    trx: &mut Transaction,
    table: &OpenTable,
    values: &[Datum<'_>],
    on_duplicate: OnDuplicate,
    by: Cascade<'_>,
) -> Result<()> {
    insert_under(trx, table, None, values, on_duplicate, by)
}

fn insert_under(
    trx: &mut Transaction,
    table: &OpenTable,
    row_id: Option<&[u8]>,
    values: &[Datum<'_>],
    on_duplicate: OnDuplicate,
    by: Cascade<'_>,
) -> Result<()> {
    table.format.check_count(values)?;
    let mut key = std::mem::take(&mut trx.scratch.key);
    key.clear();
    clustered_key(table, row_id, values, &mut key)?;
    let done = whole(trx, |trx| {
        check_parents(trx, table, Some(0), values, by)?;
        let row = match inline_row(trx, table, values, key.len())? {
            Some(row) => row,
            None => {
                refuse_duplicate(trx, table, values, &key, on_duplicate)?;
                row_with_external_columns(trx, table, values, key.len(), None)?
            }
        };
        insert_clustered(trx, table, values, &key, &row, on_duplicate)?;
        row.give_back(trx);
        insert_entries(trx, table, values, &key, on_duplicate, by)?;
        check_parents(trx, table, None, values, by)
    });
    trx.scratch.key = key;
    done?;
    Counters::add(&trx.core().counters.rows_inserted, 1);
    Ok(())
}

/// Fails if the row is a duplicate, as its insert would, and with the same locks: before its external values
/// are written. They would only be freed again. That nothing is found here promises nothing.
fn refuse_duplicate(
    trx: &mut Transaction,
    table: &OpenTable,
    values: &[Datum<'_>],
    pk: &[u8],
    on_duplicate: OnDuplicate,
) -> Result<()> {
    table.format.check(values)?;
    let duplicate = |index: &OpenIndex| {
        let index = index.name.clone();
        Err(Error::DuplicateKey { index })
    };
    let mut payload = Vec::new();
    if read_leaf(&table.clustered, pk, &mut payload)?
        && !row_record(table, pk, &payload)?.is_deleted()
        && lock_row(trx, table, pk, on_duplicate.mode(), &mut payload)?.found == Locked::Live
    {
        return duplicate(&table.clustered);
    }
    let mut key = Vec::new();
    let unique = |index: &&OpenIndex| index.unique && !index.codec.has_null(values);
    for index in table.secondary.iter().filter(unique) {
        key.clear();
        index.codec.encode_columns(values, &mut key)?;
        let unique_len = key.len();
        index.end_entry_key(&mut key, 0, pk)?;
        if let Some(conflict) = find_conflict(trx, index, &key, unique_len)?
            && conflict.is_duplicate(trx, table, index, on_duplicate.mode())?
        {
            return duplicate(index);
        }
    }
    Ok(())
}

/// The clustered key of a row with these values; a hidden row id is drawn unless it is given.
#[inline]
pub(super) fn clustered_key(
    table: &OpenTable,
    row_id: Option<&[u8]>,
    values: &[Datum<'_>],
    key: &mut Vec<u8>,
) -> Result<()> {
    match (table.def.has_row_id(), row_id) {
        (false, _) => encode_key(table, values, key)?,
        (true, None) => put_row_id(table.draw_row_id()?, key),
        (true, Some(id)) => key.extend_from_slice(id),
    }
    Ok(())
}

pub(super) fn encode_key(table: &OpenTable, values: &[Datum<'_>], key: &mut Vec<u8>) -> Result<()> {
    let encoded = table.clustered.codec.encode_columns(values, key);
    // What is wrong with a value says more than what is wrong with the key made of it.
    encoded.or_else(|e| table.format.check(values).and(Err(e)))
}

fn insert_entries(
    trx: &mut Transaction,
    table: &OpenTable,
    values: &[Datum<'_>],
    pk: &[u8],
    on_duplicate: OnDuplicate,
    by: Cascade<'_>,
) -> Result<()> {
    let mut key = std::mem::take(&mut trx.scratch.other_key);
    let done = (1..).zip(&table.secondary).try_for_each(|(number, index)| {
        check_parents(trx, table, Some(number), values, by)?;
        key.clear();
        index.codec.encode_columns(values, &mut key)?;
        let unique =
            (index.unique && !index.codec.has_null(values)).then_some((key.len(), on_duplicate));
        let forms = index.forms(&key, pk, |column| values[column])?;
        let in_key = index.end_entry_key(&mut key, 0, pk)?;
        let entry = EntryRecord::new(forms, pk, in_key);
        insert_entry(trx, table, index, &key, unique, entry)
    });
    trx.scratch.other_key = key;
    done
}

pub(super) fn insert_clustered(
    trx: &mut Transaction,
    table: &OpenTable,
    values: &[Datum<'_>],
    key: &[u8],
    row: &StoredRow<'_>,
    on_duplicate: OnDuplicate,
) -> Result<()> {
    let kind = UndoKind::RowInsert;
    let room = record_cost(key.len(), ROW_AT + row.bytes.len());
    let index = &table.clustered;
    loop {
        let id = encode_undo(trx, table, &RecordChange::insert(kind, index.id, key))?;
        let mut mtr = Mtr::begin_in(table.mtr_env(), table.space(), MAX_MTR)?;
        let hint = trx.run.take().filter(|(of, _)| *of == index.id);
        let hint = hint.map(|(_, leaf)| leaf);
        let mut pos = index
            .tree
            .latch_leaf_to_insert(&mut mtr, key, room, hint, None)?;
        if pos.found {
            drop(mtr);
            if unmark_row(trx, table, values, key, row, on_duplicate)? {
                return Ok(());
            }
            continue;
        }
        let locks = &trx.core().locks;
        if locks.conflicts(trx.locks(), index.id, key, Mode::Exclusive) {
            // Somebody holds a lock on the key of a row that is gone.
            drop(mtr);
            trx.lock_record(index.id, key, Mode::Exclusive)?;
            continue;
        }
        if trx.is_kept_out(index.id, key) {
            drop(mtr);
            trx.wait_to_insert(index.id, key)?;
            continue;
        }
        let undo_page = trx.undo_mut().latch(&mut mtr, table.id(), kind)?;
        let roll_ptr = trx.undo_mut().next_roll_ptr(table.id(), kind);
        let payload = &mut trx.scratch.payload;
        payload.clear();
        let head = RowHead {
            flags: row.flags,
            trx: id,
            roll_ptr,
        };
        payload.extend_from_slice(&head.to_bytes());
        payload.extend_from_slice(&row.bytes);
        let raised = log_counter(table, &mut mtr, values)?;
        trx.run = pos.run_hint(&mtr).map(|leaf| (index.id, leaf));
        pos.insert(&mut mtr, key, &trx.scratch.payload);
        append_undo(trx, &mut mtr, undo_page, table.id(), kind);
        raised.commit(mtr);
        table.followed.note(id, key);
        table.count_rows(kind.row_count_change());
        return Ok(());
    }
}

/// Makes the AUTO_INCREMENT counter on disk greater than the value of a row that is about to be there.
fn log_counter<'a>(
    table: &'a OpenTable,
    mtr: &mut Mtr<'_>,
    values: &[Datum<'_>],
) -> Result<RaisedCounter<'a>> {
    match table.auto_increment_value(values) {
        Some(value) => table.log_auto_increment(mtr, value),
        None => Ok(RaisedCounter::default()),
    }
}

/// Does the same to the counter that values are drawn from: when the row is there, so that one that is
/// refused leaves it alone.
fn raise_counter(trx: &Transaction, table: &OpenTable, values: &[Datum<'_>]) {
    if let Some(value) = table.auto_increment_value(values) {
        trx.raise_auto_increment(table, value);
    }
}

/// Inserts where a record with this key exists. `false`: it has gone meanwhile, try again.
fn unmark_row(
    trx: &mut Transaction,
    table: &OpenTable,
    values: &[Datum<'_>],
    key: &[u8],
    row: &StoredRow<'_>,
    on_duplicate: OnDuplicate,
) -> Result<bool> {
    trx.wait_for_turn(table)?;
    let mut payload = Vec::new();
    let mode = match read_leaf(&table.clustered, key, &mut payload)? {
        false => return Ok(false),
        true if payload.first().is_some_and(|flags| flags & DELETED != 0) => Mode::Exclusive,
        true => on_duplicate.mode(),
    };
    match lock_row(trx, table, key, mode, &mut payload)?.found {
        Locked::Live => {
            return Err(Error::DuplicateKey {
                index: table.clustered.name.clone(),
            });
        }
        Locked::Absent => return Ok(false),
        Locked::Busy => unreachable!("locked rows are waited for here"),
        // It died while the shared lock was waited for.
        Locked::DeleteMarked if mode == Mode::Shared => return Ok(false),
        Locked::DeleteMarked => {}
    }
    let marked = CurrentRow {
        key,
        payload: &payload,
    };
    // A delete-marked record is locked against everybody but purge, which may have removed it by now.
    trx.core().log.stops.pass(StopPoint::DeadRowLocked);
    let changed = change_row(trx, table, UndoKind::RowUnmark, marked, row, values)?;
    if changed == Changed::KeptOut {
        trx.wait_to_insert(table.clustered.id, key)?;
    }
    Ok(changed == Changed::Done)
}

/// What became of a change to a record that was read before.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Changed {
    Done,
    /// The record is not as it was read; nothing happened.
    Stale,
    /// Somebody's gap lock forbids to un-delete-mark it; nothing happened.
    KeptOut,
}

/// Changes a live row, which nobody but this transaction can change while it holds the row's lock.
fn change_live_row(
    trx: &mut Transaction,
    table: &OpenTable,
    kind: UndoKind,
    current: CurrentRow<'_>,
    row: &StoredRow<'_>,
    values: &[Datum<'_>],
) -> Result<()> {
    match change_row(trx, table, kind, current, row, values)? {
        Changed::Done => Ok(()),
        Changed::Stale => Err(stale(table)),
        Changed::KeptOut => unreachable!("gap locks keep nobody from a live row"),
    }
}

fn stale(table: &OpenTable) -> Error {
    Error::invalid(format!(
        "the row of table {} was changed since the cursor read it; read it again",
        table.def.name
    ))
}

/// Replaces the locked record `current` by a new state: an update, an un-delete-marking, or (with the same
/// row) a delete mark.
fn change_row(
    trx: &mut Transaction,
    table: &OpenTable,
    kind: UndoKind,
    current: CurrentRow<'_>,
    row: &StoredRow<'_>,
    values: &[Datum<'_>],
) -> Result<Changed> {
    let old = current.record(table)?;
    let frees = dropped_by(table, kind, current.key, &old, row)?;
    let (flags, row) = (row.flags, &row.bytes[..]);
    let previous = Previous {
        trx: old.trx,
        flags: old.flags,
        roll_ptr: old.roll_ptr,
        diff: RowDiff::between(old.row, row),
    };
    let index = &table.clustered;
    let change = RecordChange {
        kind,
        index: index.id,
        key: current.key,
        previous: Some(previous),
        pages: &[],
        frees: &frees,
    };
    let id = encode_undo(trx, table, &change)?;
    // The old record's place counts as free.
    let room = row.len().saturating_sub(old.row.len());
    let mut mtr = Mtr::begin_in(table.mtr_env(), table.space(), MAX_MTR)?;
    let pos = index
        .tree
        .latch_leaf_exclusive(&mut mtr, current.key, room)?;
    let unchanged = pos.found && pos.payload(&mtr).get(..ROW_AT) == current.payload.get(..ROW_AT);
    if !unchanged {
        return Ok(Changed::Stale);
    }
    if kind == UndoKind::RowUnmark && trx.is_kept_out(index.id, current.key) {
        return Ok(Changed::KeptOut);
    }
    let undo_page = trx.undo_mut().latch(&mut mtr, table.id(), kind)?;
    let roll_ptr = trx.undo_mut().next_roll_ptr(table.id(), kind);
    let mark = if kind == UndoKind::RowDeleteMark {
        DELETED
    } else {
        0
    };
    let head = RowHead {
        flags: flags | mark,
        trx: id,
        roll_ptr,
    };
    let raised = match kind {
        UndoKind::RowDeleteMark => RaisedCounter::default(),
        _ => log_counter(table, &mut mtr, values)?,
    };
    let diff = &previous.diff;
    mtr.op(
        pos.h,
        PageOp::UpdateRow {
            slot: pos.slot,
            head,
            at: diff.prefix as u16,
            cut: diff.middle.len() as u16,
            bytes: diff.replaced(row).expect("it was made for this row"),
        },
    );
    append_undo(trx, &mut mtr, undo_page, table.id(), kind);
    raised.commit(mtr);
    trx.give_up_written(index.id, current.key);
    table.followed.note(id, current.key);
    table.count_rows(kind.row_count_change());
    Ok(Changed::Done)
}

/// The external values that nobody but older versions refers to once `old` is replaced by `row`. A
/// delete-marked row's are on the list of its deletion already.
fn dropped_by(
    table: &OpenTable,
    kind: UndoKind,
    key: &[u8],
    old: &RowRecord<'_>,
    row: &StoredRow<'_>,
) -> Result<Vec<u8>> {
    if !old.has_external_values() || kind == UndoKind::RowUnmark {
        return Ok(Vec::new());
    }
    let old = table.row(key, old.row)?;
    Ok(match kind {
        UndoKind::RowDeleteMark => dropped_refs(&old, None),
        _ => dropped_refs(&old, Some(&table.row(key, &row.bytes)?)),
    })
}

/// The row to be changed, with what the keys of all indexes are made of. Under its lock no external value can
/// be missing, unless the transaction has changed the row since.
fn row_to_change<'a>(
    table: &'a OpenTable,
    current: CurrentRow<'a>,
    values: &'a mut ExternalValues,
) -> Result<RowRef<'a>> {
    let record = current.record(table)?;
    if !record.has_external_values() {
        return table.row_of(current.key, &record);
    }
    let codecs: Vec<_> = table.indexes().map(|index| &index.codec).collect();
    if let Some(row) = row_for_keys(table, None, &codecs, current.key, record.row, values)? {
        return Ok(row);
    }
    Err(damage_or_stale(table, current, damaged(table, current.key)))
}

/// What is wrong with the row is damage, unless it has changed since the caller read it.
#[cold]
fn damage_or_stale(table: &OpenTable, current: CurrentRow<'_>, damage: Error) -> Error {
    let mut now = Vec::new();
    match read_leaf(&table.clustered, current.key, &mut now) {
        Ok(true) if now == current.payload => damage,
        Ok(_) => stale(table),
        Err(e) => e,
    }
}

/// Deletes the row that the transaction has locked exclusively.
pub fn delete_row(trx: &mut Transaction, table: &OpenTable, current: CurrentRow<'_>) -> Result<()> {
    delete_row_by(trx, table, current, Cascade::default())
}

pub(super) fn delete_row_by(
    trx: &mut Transaction,
    table: &OpenTable,
    current: CurrentRow<'_>,
    by: Cascade<'_>,
) -> Result<()> {
    trx.wait_for_turn(table)?;
    let mut long = ExternalValues::default();
    let row = row_to_change(table, current, &mut long)?;
    whole(trx, |trx| {
        remove_row(trx, table, current, &row)?;
        see_to_children(trx, table, &row, None, by)
    })
}

/// Deletes the row, whatever refers to it.
fn remove_row(
    trx: &mut Transaction,
    table: &OpenTable,
    current: CurrentRow<'_>,
    row: &RowRef<'_>,
) -> Result<()> {
    let record = current.record(table)?;
    let mut key = std::mem::take(&mut trx.scratch.other_key);
    for index in &table.secondary {
        key.clear();
        index.codec.encode_row(row, &mut key)?;
        let in_key = index.end_entry_key(&mut key, 0, current.key)?;
        let entry = (current.key, in_key);
        delete_mark_entry(trx, table, index, &key, entry).map_err(|e| match e {
            Error::Corrupt { .. } => damage_or_stale(table, current, e),
            e => e,
        })?;
    }
    trx.scratch.other_key = key;
    let marked = StoredRow {
        bytes: record.row.into(),
        flags: record.flags & EXTERNAL,
    };
    change_live_row(trx, table, UndoKind::RowDeleteMark, current, &marked, &[])?;
    Counters::add(&trx.core().counters.rows_deleted, 1);
    Ok(())
}

/// Replaces the row that the transaction has locked exclusively by `values`. `false`: they are what it has
/// already, and nothing was written. A row that becomes history, and has become it already by this
/// transaction at the same time, can only be deleted: `ForeignDuplicateKey`.
pub fn update_row(
    trx: &mut Transaction,
    table: &Arc<OpenTable>,
    current: CurrentRow<'_>,
    values: &[Datum<'_>],
) -> Result<bool> {
    update_row_by(trx, table, current, values, Cascade::default())
}

pub(super) fn update_row_by(
    trx: &mut Transaction,
    table: &Arc<OpenTable>,
    current: CurrentRow<'_>,
    values: &[Datum<'_>],
    by: Cascade<'_>,
) -> Result<bool> {
    table.format.check_count(values)?;
    let mut long = ExternalValues::default();
    let old = row_to_change(table, current, &mut long)?;
    // HIST-1: if it becomes history it is deleted to others.
    let seen = (!table.def.is_history(values)).then_some(values);
    if !table.def.has_row_id() && !table.clustered.codec.same_columns(&old, values) {
        let mut key = Vec::new();
        table.clustered.codec.encode_columns(values, &mut key)?;
        if key != current.key {
            check_own_reference(trx, table, &old, values)?;
            trx.wait_for_turn(table)?;
            let moved = whole(trx, |trx| {
                remove_row(trx, table, current, &old)?;
                insert_row_by(trx, table, values, OnDuplicate::LockShared, by.moving(&old))?;
                see_to_children(trx, table, &old, seen, by)
            });
            moved.map_err(|e| unless_own_history(trx, table, values, e))?;
            raise_counter(trx, table, values);
            return Ok(true);
        }
    }
    trx.wait_for_turn(table)?;
    let mut changes = true;
    let changed = whole(trx, |trx| {
        let row = store_row(trx, table, values, current.key.len(), Some(&old))?;
        // Only an older row is written in another way.
        let is_older = old.schema_version() < table.def.schema_version;
        if row.bytes[..] == *old.bytes()
            || (is_older && table.row(current.key, &row.bytes)?.is_same(&old))
        {
            changes = false;
            row.give_back(trx);
            return Ok(());
        }
        change_live_row(trx, table, UndoKind::RowUpdate, current, &row, values)?;
        check_parents_again(trx, table, &old, values, by)?;
        let (clustered, changing) = (&table.clustered.codec, by.changing(&old));
        for (number, index) in (1..).zip(&table.secondary) {
            let has_other_key = !index.codec.same_columns(&old, values);
            if has_other_key {
                check_parents(trx, table, Some(number), values, changing)?;
            }
            if has_other_key
                || (index.has_clustered_texts() && !clustered.same_columns(&old, values))
            {
                move_entry(trx, table, index, &old, values, current.key)?;
            }
        }
        row.give_back(trx);
        check_parents_without_index(trx, table, &old, values, by)?;
        see_to_children(trx, table, &old, seen, by)
    });
    if let Err(e) = changed {
        return Err(unless_own_history(trx, table, values, e));
    }
    if changes {
        raise_counter(trx, table, values);
        Counters::add(&trx.core().counters.rows_updated, 1);
    }
    Ok(changes)
}
