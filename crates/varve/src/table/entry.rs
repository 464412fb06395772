//! Changes of secondary entries, each in one mini-transaction together with its undo record (UNDO-1). When
//! they are made, and in which order, is said in `write` (SEC-1, SEC-2, GAP-1).

use crate::base::{Error, Result, RollPtr, Sabotage, TrxId};
use crate::btree::{Cuts, LeafHint, Seek, Shorten, Tree};
use crate::buffer::EntryChange;
use crate::catalog::{
    ChangeBuffer, DELETED, Destination, ENTRY_LEN, EntryRecord, FROZEN_AT, FROZEN_CUT, OpenIndex,
    OpenTable, REVIVED, is_frozen, may_freeze, state_bytes,
};
use crate::mtr::Mtr;
use crate::page::{PageOp, SlottedRef, record_cost};
use crate::row::{Datum, RowRef};
use crate::txn::{Core, Transaction};
use crate::undo::{Previous, RowDiff, UndoKind};

use super::merging;
use super::undo::{RecordChange, append_undo, encode_undo};
use super::unique::{Conflict, find_conflict};
use super::version::read_leaf_of;
use super::write::{MAX_MTR, OnDuplicate};

/// Freezes the entries of a leaf that is full (FREEZE-1).
pub(super) struct Freezer<'a>(pub &'a Core);

impl Shorten for Freezer<'_> {
    fn limit(&self) -> TrxId {
        match self.0.log.is_sabotaged(Sabotage::FrozenTooEarly) {
            true => self.0.sys.finished_below(),
            false => self.0.sys.freeze_limit(),
        }
    }

    fn cuts(&self, leaf: SlottedRef<'_>, limit: TrxId) -> Cuts {
        let is_cut = |payload: &[u8]| may_freeze(payload, limit);
        Cuts::of(leaf, FROZEN_AT, FROZEN_CUT, is_cut)
    }
}

/// After so many the entry that is in the way is damage.
const MOST_TRIES: u32 = 1000;

/// Inserts a secondary entry, or un-delete-marks the one with the same key. `unique`: the length of the part
/// of the key that must not occur twice, and how a row that has it already is locked.
pub(super) fn insert_entry(
    trx: &mut Transaction,
    table: &OpenTable,
    index: &OpenIndex,
    key: &[u8],
    unique: Option<(usize, OnDuplicate)>,
    entry: EntryRecord<'_>,
) -> Result<()> {
    let Some((unique_len, on_duplicate)) = unique else {
        while put_entry(trx, table, index, key, entry)? == Set::KeptOut {
            trx.wait_to_insert(index.id, key)?;
        }
        return Ok(());
    };
    let core = trx.core().clone();
    let (mut before, mut tries) = (None, 0);
    loop {
        let stripe = core.unique_stripe(index.id, &key[..unique_len]).lock();
        let Some(conflict) = find_conflict(trx, index, key, unique_len)? else {
            let put = put_entry(trx, table, index, key, entry);
            drop(stripe);
            if put? != Set::KeptOut {
                return Ok(());
            }
            trx.wait_to_insert(index.id, key)?;
            continue;
        };
        drop(stripe);
        if conflict.is_duplicate(trx, table, index, on_duplicate.mode())? {
            return Err(Error::DuplicateKey {
                index: index.name.clone(),
            });
        }
        let is_same = |before: &Conflict| conflict.is_same(before);
        tries = if before.as_ref().is_some_and(is_same) {
            tries + 1
        } else {
            0
        };
        if tries > MOST_TRIES {
            return Err(conflict.damage(index));
        }
        before = Some(conflict);
    }
}

/// Where to change the entry with this key.
enum Target<'a> {
    /// In the index's own tree, where the leaf probably is.
    Own(Option<LeafHint>),
    /// In the change buffer, which has it.
    Buffered(&'a Tree),
    /// In the change buffer, whether it has it or not.
    Buffer(&'a Tree),
}

/// CB-2. `change`: one that may go into the change buffer.
fn target<'a>(
    trx: &mut Transaction,
    table: &'a OpenTable,
    index: &'a OpenIndex,
    key: &[u8],
    change: Option<EntryChange>,
) -> Result<Target<'a>> {
    let destination = match change {
        Some(change) => index.destination(key, change, None)?,
        None => Destination::Own(None),
    };
    let hint = match destination {
        Destination::Own(hint) => hint,
        Destination::Buffer => match merging::buffer_with_room(trx, table, index)? {
            Some(tree) => return Ok(Target::Buffer(tree)),
            None => None,
        },
    };
    match index.buffer.tree_in_use()? {
        Some(tree) if tree.latch_leaf_shared(key, Seek::Ge)?.exact => Ok(Target::Buffered(tree)),
        _ => Ok(Target::Own(hint)),
    }
}

/// Makes the entry live, unless it is kept out.
fn put_entry(
    trx: &mut Transaction,
    table: &OpenTable,
    index: &OpenIndex,
    key: &[u8],
    entry: EntryRecord<'_>,
) -> Result<Set> {
    let room = record_cost(key.len(), ENTRY_LEN + entry.rest.len());
    let revive = |trx: &mut Transaction, at| {
        let forms = Some(entry.forms());
        set_entry(trx, table, (index, at), UndoKind::EntryUnmark, key, forms)
    };
    let mut buffered = Some(EntryChange::Insert);
    loop {
        let (tree, is_buffer, hint) = match target(trx, table, index, key, buffered)? {
            Target::Own(hint) => (&index.tree, false, hint),
            Target::Buffer(tree) => (tree, true, None),
            Target::Buffered(tree) => match revive(trx, (tree, None))? {
                // It was merged meanwhile.
                Set::Absent => continue,
                set => return Ok(set),
            },
        };
        let change = RecordChange::insert(UndoKind::EntryInsert, index.id, key);
        let id = encode_undo(trx, table, &change)?;
        let mut mtr = Mtr::begin_in(table.mtr_env(), table.space(), MAX_MTR)?;
        let by = Some(&Freezer(trx.core()) as &dyn Shorten);
        let mut pos = match tree.latch_leaf_to_insert(&mut mtr, key, room, hint, by) {
            // The own tree may need none.
            Err(Error::NoSpace { .. }) if is_buffer => {
                buffered = None;
                continue;
            }
            pos => pos?,
        };
        if pos.found {
            drop(mtr);
            match revive(trx, (tree, hint))? {
                Set::Absent => continue,
                set => return Ok(set),
            }
        }
        if trx.is_kept_out(index.id, key) {
            return Ok(Set::KeptOut);
        }
        let undo_page = trx
            .undo_mut()
            .latch(&mut mtr, table.id(), UndoKind::EntryInsert)?;
        // CB-3
        let revived = if is_buffer { REVIVED } else { 0 };
        let flags = entry.flags | revived;
        let entry = EntryRecord {
            trx: id,
            flags,
            ..entry
        };
        pos.insert(&mut mtr, key, &index.entry_payload(&entry));
        append_undo(trx, &mut mtr, undo_page, table.id(), UndoKind::EntryInsert);
        match is_buffer {
            true => commit_buffered(trx, mtr, &index.buffer, EntryChange::Insert),
            false => drop(mtr.commit()),
        }
        return Ok(Set::Done);
    }
}

/// Commits a mini-transaction that has put an entry in a change buffer.
fn commit_buffered(trx: &Transaction, mtr: Mtr<'_>, buffer: &ChangeBuffer, change: EntryChange) {
    // Under the latch.
    let is_first = buffer.note_use();
    mtr.commit();
    buffer.note_pages();
    let core = trx.core();
    let counters = &core.pool.change_buffers.counters;
    match change {
        EntryChange::Insert => counters.inserts.add(1),
        EntryChange::Delete => counters.delete_marks.add(1),
    }
    if is_first {
        core.merging_wanted.notify();
    }
}

/// Delete-marks or un-delete-marks the entry with this key (SEC-2: under the row's exclusive lock), where it
/// is: in this tree of the index, maybe in the leaf of the hint. It gets these forms, or keeps its own.
fn set_entry(
    trx: &mut Transaction,
    table: &OpenTable,
    (index, (tree, hint)): (&OpenIndex, (&Tree, Option<LeafHint>)),
    kind: UndoKind,
    key: &[u8],
    forms: Option<u8>,
) -> Result<Set> {
    let unmark = kind == UndoKind::EntryUnmark;
    let mut payload = Vec::new();
    loop {
        if !read_leaf_of(tree, key, None, &mut payload)? {
            return Ok(Set::Absent);
        }
        let old = index
            .entry(&payload)
            .ok_or_else(|| index.damage_at(key, "an entry", format!("{} bytes", payload.len())))?;
        if old.is_deleted() != unmark {
            let (expected, found) = match unmark {
                true => ("a delete-marked entry", "a live one"),
                false => ("a live entry", "a delete-marked one"),
            };
            return Err(index.damage_at(key, expected, found));
        }
        // What is revived is not kept for old views.
        let rest = if unmark { &[] } else { old.rest };
        let change = change_of(kind, index, key, (old.trx, old.flags, rest));
        let id = encode_undo(trx, table, &change)?;
        let mut mtr = Mtr::begin_in(table.mtr_env(), table.space(), MAX_MTR)?;
        let room = match is_frozen(&payload) {
            true => FROZEN_CUT,
            false => 0,
        };
        let by = Freezer(trx.core());
        let pos = tree.latch_shortened_leaf(&mut mtr, key, room, hint, &by)?;
        if !pos.found || pos.payload(&mtr) != &payload[..] {
            // Purge removed it meanwhile, or it was frozen.
            continue;
        }
        if unmark && trx.is_kept_out(index.id, key) {
            return Ok(Set::KeptOut);
        }
        let undo_page = trx.undo_mut().latch(&mut mtr, table.id(), kind)?;
        let flags = if unmark { REVIVED } else { DELETED };
        let flags = flags | forms.unwrap_or(old.forms());
        let state = state_bytes(flags, id);
        let mut bytes = &state[..];
        if is_frozen(&payload) {
            let (flags, trx) = state.split_at(FROZEN_AT);
            let (slot, off) = (pos.slot, FROZEN_AT as u16);
            mtr.op(
                pos.h,
                PageOp::WidenPayload {
                    slot,
                    off,
                    bytes: trx,
                },
            );
            bytes = flags;
        }
        let (slot, off) = (pos.slot, 0);
        mtr.op(pos.h, PageOp::PatchPayload { slot, off, bytes });
        append_undo(trx, &mut mtr, undo_page, table.id(), kind);
        mtr.commit();
        return Ok(Set::Done);
    }
}

/// A change of an entry that had this writer, these flags and this rest.
fn change_of<'a>(
    kind: UndoKind,
    index: &OpenIndex,
    key: &'a [u8],
    (trx, flags, rest): (TrxId, u8, &'a [u8]),
) -> RecordChange<'a> {
    let previous = Previous {
        trx,
        flags,
        roll_ptr: RollPtr::default(),
        diff: RowDiff {
            middle: rest,
            ..RowDiff::default()
        },
    };
    RecordChange {
        kind,
        index: index.id,
        key,
        previous: Some(previous),
        pages: &[],
        frees: &[],
    }
}

/// Delete-marks an entry that must exist: that of the row with this clustered key, the first `in_key` bytes
/// of which are in the entry's key.
pub(super) fn delete_mark_entry(
    trx: &mut Transaction,
    table: &OpenTable,
    index: &OpenIndex,
    key: &[u8],
    (clustered, in_key): (&[u8], usize),
) -> Result<()> {
    let kind = UndoKind::EntryDeleteMark;
    let mut buffered = Some(EntryChange::Delete);
    loop {
        let at = match target(trx, table, index, key, buffered)? {
            Target::Own(hint) => (&index.tree, hint),
            Target::Buffered(tree) => (tree, None),
            Target::Buffer(tree) => {
                let marked = EntryRecord {
                    flags: DELETED,
                    ..EntryRecord::new(0, clustered, in_key)
                };
                match mark_unread(trx, table, (index, tree), key, marked) {
                    Ok(Set::Absent) => (tree, None),
                    // The own tree needs none.
                    Err(Error::NoSpace { .. }) => {
                        buffered = None;
                        continue;
                    }
                    done => return done.map(drop),
                }
            }
        };
        match set_entry(trx, table, (index, at), kind, key, None)? {
            Set::Done => return Ok(()),
            Set::KeptOut => unreachable!("gap locks keep nobody from killing an entry"),
            Set::Absent if std::ptr::eq(at.0, &index.tree) => {
                return Err(index.damage_at(key, "the entry of a live row", "none"));
            }
            // It was merged meanwhile.
            Set::Absent => {}
        }
    }
}

/// Puts a delete-marked entry in the change buffer that does not have it (CB-3). `Absent`: it has.
fn mark_unread(
    trx: &mut Transaction,
    table: &OpenTable,
    (index, tree): (&OpenIndex, &Tree),
    key: &[u8],
    marked: EntryRecord<'_>,
) -> Result<Set> {
    let kind = UndoKind::EntryMarkUnread;
    // Nothing is known of what the own tree has.
    let change = change_of(kind, index, key, (TrxId(0), 0, &[]));
    let id = encode_undo(trx, table, &change)?;
    let mut mtr = Mtr::begin_in(table.mtr_env(), table.space(), MAX_MTR)?;
    let room = record_cost(key.len(), ENTRY_LEN + marked.rest.len());
    let by = Some(&Freezer(trx.core()) as &dyn Shorten);
    let mut pos = tree.latch_leaf_to_insert(&mut mtr, key, room, None, by)?;
    if pos.found {
        return Ok(Set::Absent);
    }
    let undo_page = trx.undo_mut().latch(&mut mtr, table.id(), kind)?;
    let marked = EntryRecord { trx: id, ..marked };
    pos.insert(&mut mtr, key, &index.entry_payload(&marked));
    append_undo(trx, &mut mtr, undo_page, table.id(), kind);
    commit_buffered(trx, mtr, &index.buffer, EntryChange::Delete);
    Ok(Set::Done)
}

/// What became of a change to an entry.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Set {
    Done,
    /// There was none.
    Absent,
    /// Somebody's gap lock forbids to make it live; nothing happened.
    KeptOut,
}

/// Delete-marks the entry of the old row and inserts that of the new one, if they differ: in their keys, or
/// in what is said of texts with the same weights (KEY-6).
pub(super) fn move_entry(
    trx: &mut Transaction,
    table: &OpenTable,
    index: &OpenIndex,
    old: &RowRef<'_>,
    new: &[Datum<'_>],
    pk: &[u8],
) -> Result<()> {
    let mut old_key = Vec::new();
    index.codec.encode_row(old, &mut old_key)?;
    let mut new_key = Vec::new();
    index.codec.encode_columns(new, &mut new_key)?;
    let forms = index.forms(&new_key, pk, |column| new[column])?;
    if old_key == new_key && index.forms(&old_key, pk, |column| old.get(column))? == forms {
        return Ok(());
    }
    let unique = index.unique && !index.codec.has_null(new);
    let unique = unique.then_some((new_key.len(), OnDuplicate::LockShared));
    let old_in_key = index.end_entry_key(&mut old_key, 0, pk)?;
    let in_key = index.end_entry_key(&mut new_key, 0, pk)?;
    delete_mark_entry(trx, table, index, &old_key, (pk, old_in_key))?;
    let entry = EntryRecord::new(forms, pk, in_key);
    insert_entry(trx, table, index, &new_key, unique, entry)
}
