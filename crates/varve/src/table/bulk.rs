//! Inserting many rows at once: in the order of their keys, and with one mini-transaction for all that go
//! into one leaf.
//!
//! Such a **run** descends once, latches leaf and undo page once, and takes one place in the log. What is
//! left to do for a row is a search in the latched leaf, its record there, and its undo record (UNDO-1). All
//! rows go before all entries (SEC-1), and each index gets its entries in the order of their keys, too.
//!
//! - **BULK-1** Nothing that may wait or fail happens between the first change of a run and its commit. So a
//!   run ends before a row that needs another leaf, a split, room for its undo record, a lock, a gap that
//!   somebody holds, or overflow pages, or whose key is there. The next run begins with it, or it is inserted
//!   by itself, as `insert_row` does.
//!
//! Entries of unique indexes are inserted by themselves: the check of each one holds its stripe (unique.rs).

use crate::base::{Result, RollPtr, RowHead, TrxId};
use crate::btree::{LeafHint, Shorten};
use crate::buffer::EntryChange;
use crate::catalog::{Destination, EntryRecord, OpenIndex, OpenTable, ROW_AT, state_bytes};
use crate::lock::Mode;
use crate::mtr::Mtr;
use crate::page::record_cost;
use crate::row::{Datum, put_row_id};
use crate::txn::{Counters, Transaction};
use crate::undo::UndoKind;

use super::entry::{Freezer, insert_entry};
use super::external::{row_limit, store_row};
use super::undo::{RecordChange, append_undo, encode_undo, write_undo};
use super::write::{MAX_MTR, OnDuplicate, encode_key, insert_clustered, insert_row, whole};

/// Redo of an inserted record and its undo record, beside the key and the payload: the heads of the
/// operations.
const RECORD_LOG_BYTES: usize = 128;

/// Keys of rows that are going to be inserted in one index.
#[derive(Default)]
struct Keys {
    bytes: Vec<u8>,
    places: Vec<Place>,
}

#[derive(Clone, Copy)]
struct Place {
    /// Of the key in `Keys::bytes`.
    start: usize,
    end: usize,
    /// Number of the row in the batch.
    row: usize,
    /// Bytes of an entry's own key.
    own_len: usize,
    /// Bytes of the clustered key that a long entry has behind its record; here they stand behind the key.
    rest_len: usize,
    /// Of the texts of an entry.
    forms: u8,
}

impl Keys {
    fn len(&self) -> usize {
        self.places.len()
    }

    #[inline]
    fn key(&self, n: usize) -> &[u8] {
        let place = &self.places[n];
        &self.bytes[place.start..place.end]
    }

    fn entry(&self, n: usize) -> EntryRecord<'_> {
        let place = &self.places[n];
        let rest = &self.bytes[place.end..][..place.rest_len];
        EntryRecord {
            flags: place.forms,
            ..EntryRecord::behind(self.key(n), place.own_len, rest)
        }
    }

    /// The key that was written to the end of `bytes` since there were `start` of them is that of a row.
    fn end_key(&mut self, start: usize, row: usize) {
        self.places.push(Place {
            start,
            end: self.bytes.len(),
            row,
            own_len: 0,
            rest_len: 0,
            forms: 0,
        });
    }

    fn sort(&mut self) {
        let bytes = &self.bytes;
        let key = |place: &Place| &bytes[place.start..place.end];
        // They often come in their order.
        if !self.places.is_sorted_by_key(key) {
            self.places
                .sort_unstable_by(|a, b| key(a).cmp(key(b)).then(a.row.cmp(&b.row)));
        }
    }

    /// The clustered keys of rows.
    fn of_rows(table: &OpenTable, rows: &[&[Datum<'_>]]) -> Result<Keys> {
        let mut keys = Keys::default();
        for (n, row) in rows.iter().enumerate() {
            let start = keys.bytes.len();
            match table.def.has_row_id() {
                true => put_row_id(table.draw_row_id()?, &mut keys.bytes),
                false => encode_key(table, row, &mut keys.bytes)?,
            }
            keys.end_key(start, n);
        }
        keys.sort();
        Ok(keys)
    }

    /// The keys of the same rows' entries in a secondary index.
    fn of_entries(&self, index: &OpenIndex, rows: &[&[Datum<'_>]]) -> Result<Keys> {
        let mut keys = Keys::default();
        for (n, place) in self.places.iter().enumerate() {
            let (start, clustered) = (keys.bytes.len(), self.key(n));
            let row = rows[place.row];
            index.codec.encode_columns(row, &mut keys.bytes)?;
            let forms = index.forms(&keys.bytes[start..], clustered, |column| row[column])?;
            let own_len = keys.bytes.len() - start;
            let in_key = index.end_entry_key(&mut keys.bytes, start, clustered)?;
            keys.places.push(Place {
                start,
                end: keys.bytes.len(),
                row: place.row,
                own_len,
                rest_len: clustered.len() - in_key,
                forms,
            });
            keys.bytes.extend_from_slice(&clustered[in_key..]);
        }
        keys.sort();
        Ok(keys)
    }
}

/// What the records of one index are made of.
struct Batch<'a> {
    table: &'a OpenTable,
    index: &'a OpenIndex,
    kind: UndoKind,
    keys: &'a Keys,
    rows: &'a [&'a [Datum<'a>]],
}

/// Inserts rows, one datum per column each. If one can't be inserted, none is.
pub fn insert_rows(trx: &mut Transaction, table: &OpenTable, rows: &[&[Datum<'_>]]) -> Result<()> {
    if table.needs_parents() && trx.checks_foreign_keys() {
        // Each row may be the parent of the next.
        let insert = |trx: &mut Transaction, row: &&[Datum<'_>]| {
            insert_row(trx, table, row, OnDuplicate::LockShared)
        };
        return whole(trx, |trx| rows.iter().try_for_each(|row| insert(trx, row)));
    }
    rows.iter()
        .try_for_each(|row| table.format.check_count(row))?;
    let keys = Keys::of_rows(table, rows)?;
    let counters = rows
        .iter()
        .filter_map(|row| table.auto_increment_value(row));
    let clustered = Batch {
        table,
        index: &table.clustered,
        kind: UndoKind::RowInsert,
        keys: &keys,
        rows,
    };
    whole(trx, |trx| {
        clustered.insert(trx)?;
        for index in &table.secondary {
            let entries = Batch {
                index,
                kind: UndoKind::EntryInsert,
                keys: &keys.of_entries(index, rows)?,
                ..clustered
            };
            entries.insert(trx)?;
        }
        // Last, so that rows that are taken back again leave the counter alone.
        match counters.max() {
            Some(most) => move_counter(table, most),
            None => Ok(()),
        }
    })?;
    Counters::add(&trx.core().counters.rows_inserted, rows.len() as u64);
    Ok(())
}

/// Moves the AUTO_INCREMENT counter past the greatest value of the rows.
pub(super) fn move_counter(table: &OpenTable, most: u64) -> Result<()> {
    let mut mtr = Mtr::begin_in(table.mtr_env(), table.space(), MAX_MTR)?;
    let raised = table.log_auto_increment(&mut mtr, most)?;
    raised.commit(mtr);
    table.raise_auto_increment(most.saturating_add(1));
    Ok(())
}

/// Where the record after the one at hand will go. If keys are far apart each record goes into a leaf of its
/// own, and most of the time is spent waiting for the memory of that leaf: it is fetched while the record
/// before is inserted.
#[derive(Default)]
struct Ahead {
    number: usize,
    leaf: Option<LeafHint>,
}

impl Ahead {
    /// A hint to the leaf of record `n`; looks for that of the next one. No latch may be held.
    fn look(&mut self, batch: &Batch<'_>, n: usize) -> Result<Option<LeafHint>> {
        let found = self.leaf.take().filter(|_| self.number == n);
        self.number = n + 1;
        if self.number < batch.keys.len() {
            self.leaf = batch.index.tree.expect_leaf(batch.keys.key(self.number))?;
        }
        Ok(found)
    }
}

impl Batch<'_> {
    fn insert(&self, trx: &mut Transaction) -> Result<()> {
        let mut payload = Vec::new();
        let mut next = Ahead::default();
        let mut n = 0;
        while n < self.keys.len() {
            let run = match self.index.unique && !self.kind.is_row() {
                true => 0,
                false => self.insert_run(trx, n, &mut payload, &mut next)?,
            };
            if run == 0 {
                self.insert_one(trx, n)?;
            }
            n += run.max(1);
        }
        Ok(())
    }

    /// Inserts the record by itself.
    fn insert_one(&self, trx: &mut Transaction, n: usize) -> Result<()> {
        let (place, key) = (self.keys.places[n], self.keys.key(n));
        let values = self.rows[place.row];
        let on_duplicate = OnDuplicate::LockShared;
        if self.kind.is_row() {
            let row = store_row(trx, self.table, values, key.len(), None)?;
            // Without the values, by which the counter would be moved: that comes last.
            insert_clustered(trx, self.table, &[], key, &row, on_duplicate)?;
            row.give_back(trx);
            return Ok(());
        }
        let unique = self.index.unique && !self.index.codec.has_null(values);
        let unique = unique.then_some((place.own_len, on_duplicate));
        insert_entry(trx, self.table, self.index, key, unique, self.keys.entry(n))
    }

    /// Inserts as many records as go into one leaf, from number `first` on. Returns how many: none if the
    /// first one needs more.
    fn insert_run(
        &self,
        trx: &mut Transaction,
        first: usize,
        payload: &mut Vec<u8>,
        next: &mut Ahead,
    ) -> Result<usize> {
        let (table, kind) = (self.table, self.kind);
        let change = |n| RecordChange::insert(kind, self.index.id, self.keys.key(n));
        let hint = next.look(self, first)?;
        let key = self.keys.key(first);
        let hint = match (self.index).destination(key, EntryChange::Insert, hint)? {
            Destination::Own(hint) if self.index.buffer.tree_in_use()?.is_none() => hint,
            // What goes into the change buffer, or may be there, goes one by one.
            _ => return Ok(0),
        };
        if !self.encode(first, payload) {
            return Ok(0);
        }
        let id = encode_undo(trx, table, &change(first))?;
        let mut mtr = Mtr::begin_in(table.mtr_env(), table.space(), MAX_MTR)?;
        let room = record_cost(key.len(), payload.len());
        let tree = &self.index.tree;
        let freezer = Freezer(trx.core());
        let by = (!kind.is_row()).then_some(&freezer as &dyn Shorten);
        let mut pos = tree.latch_leaf_to_insert(&mut mtr, key, room, hint, by)?;
        if pos.found || self.is_in_the_way(trx, key) {
            return Ok(0);
        }
        let undo_page = trx.undo_mut().latch(&mut mtr, table.id(), kind)?;
        // BULK-1: from here on nothing fails.
        let mut n = first;
        loop {
            let roll_ptr = trx.undo_mut().next_roll_ptr(table.id(), kind);
            self.stamp(payload, id, roll_ptr);
            pos.insert(&mut mtr, self.keys.key(n), payload);
            append_undo(trx, &mut mtr, undo_page, table.id(), kind);
            n += 1;
            if n == self.keys.len() || !self.encode(n, payload) {
                break;
            }
            write_undo(trx, id, table, &change(n));
            let key = self.keys.key(n);
            let room = record_cost(key.len(), payload.len());
            match tree.place_in_leaf(&mtr, pos.h, key, room) {
                Some(next) if !next.found && self.goes_on(trx, &mtr, key, payload.len()) => {
                    pos = next;
                }
                _ => break,
            }
        }
        mtr.commit();
        if kind.is_row() {
            (first..n).for_each(|n| table.followed.note(id, self.keys.key(n)));
        }
        table.count_rows(kind.row_count_change() * (n - first) as i64);
        Ok(n - first)
    }

    /// The record that is encoded needs nothing but its places in the latched leaf and undo page.
    fn goes_on(&self, trx: &mut Transaction, mtr: &Mtr<'_>, key: &[u8], payload: usize) -> bool {
        let undo = trx.scratch.undo.len();
        let log_bytes = key.len() + payload + undo + RECORD_LOG_BYTES;
        log_bytes <= mtr.log_room()
            && trx.undo_mut().has_room(self.table.id(), self.kind, undo)
            && !self.is_in_the_way(trx, key)
    }

    /// Somebody's lock or gap lock keeps the key out.
    fn is_in_the_way(&self, trx: &Transaction, key: &[u8]) -> bool {
        let (locks, index) = (&trx.core().locks, self.index.id);
        let locked =
            self.kind.is_row() && locks.conflicts(trx.locks(), index, key, Mode::Exclusive);
        locked || trx.is_kept_out(index, key)
    }

    /// Makes the payload of a record, but for what `stamp` writes. False if `insert_one` has to look at it:
    /// it does not fit, or not without overflow pages.
    fn encode(&self, n: usize, payload: &mut Vec<u8>) -> bool {
        let (place, key) = (self.keys.places[n], self.keys.key(n));
        let table = self.table;
        payload.clear();
        if self.kind.is_row() {
            let values = self.rows[place.row];
            let is_short = table.format.encoded_len(values) <= row_limit(table, key.len());
            payload.resize(ROW_AT, 0);
            return is_short && table.format.encode(values, payload).is_ok();
        }
        payload.extend_from_slice(&self.index.entry_payload(&self.keys.entry(n)));
        true
    }

    /// Says in a payload who writes it, and where its undo record is.
    fn stamp(&self, payload: &mut [u8], id: TrxId, roll_ptr: RollPtr) {
        match self.kind.is_row() {
            true => {
                let head = RowHead {
                    flags: 0,
                    trx: id,
                    roll_ptr,
                };
                payload[..ROW_AT].copy_from_slice(&head.to_bytes());
            }
            false => {
                let state = state_bytes(payload[0], id);
                payload[..state.len()].copy_from_slice(&state);
            }
        }
    }
}
