//! What is built of a table while that is changed: what happened meanwhile comes into it row by row. What
//! follows speaks of indexes; of a table that is rebuilt (`rebuild.rs`) it is true of its rows.
//!
//! Whoever changes a row notes its key (`catalog/followed.rs`). What was changed in it is not noted: undo
//! knows. The build has read the table by a view. A round opens a second view, reads each row that was noted
//! by both, and where its entries differ, those of the first view are removed and those of the second one
//! inserted. Then the second view takes the first one's place. Rounds go on until few rows are left, and the
//! last one is when nobody changes the table: what it reads is the table.
//!
//! - **CATCH-1** Between rounds an index has an entry for each row that `Build::seen`'s view sees, as it sees
//!   it, and no other one.
//! - **CATCH-2** A row that the two views see differently was noted. A note is made before its transaction
//!   ends, and taken after the second view was opened; so a note of whoever that view sees is among those
//!   taken, or was kept. Those of whom it does not see are kept for the next round.
//!
//! Two rows may change their places in a unique index. So of a round first all old entries are removed, then
//! the new ones are inserted, in the order of their keys: what is a duplicate then (BUILD-1), some view
//! would see. Nobody else uses the trees; changes are logged, and have no undo (LOOSE-1).
//!
//! A view that is open for long keeps no history: it becomes a member of the history store like any other
//! one. It differs from InnoDB's row log, and from the side file of Mohan and Narang (Algorithms for Creating
//! Indexes for Very Large Tables Without Quiescing Updates, SIGMOD 1992), in that nothing is logged but keys,
//! and that rollbacks need not log anything.

use std::iter;

use crate::base::{Error, Meter, Phase, Result, TrxId};
use crate::btree::removal_log_bytes;
use crate::catalog::{Notes, OpenIndex, OpenTable};
use crate::mtr::Mtr;
use crate::page::record_cost;
use crate::row::{ExternalValues, KeyCodec, RowRef};
use crate::txn::Transaction;

use super::build::{Build, Duplicate, Entry, EntryParts, Product, TellDuplicate, reader, sorters};
use super::external::{damaged, row_for_keys, whole_row};
use super::sorter::Sorter;
use super::unique::find_entry;
use super::version::{VersionScratch, gone_version, read_leaf, row_record, sees, visible_version};
use super::write::MAX_MTR;

/// Rows of a round between two that are told of.
const TOLD_EVERY: u64 = 256;

/// The version of a row that a view sees.
#[derive(Default)]
pub(super) struct Version {
    payload: Vec<u8>,
    values: ExternalValues,
    scratch: VersionScratch,
}

impl Version {
    /// Reads it by the view of `trx`; returns who wrote it. `None`: there is none.
    pub(super) fn read(
        &mut self,
        trx: &Transaction,
        table: &OpenTable,
        key: &[u8],
    ) -> Result<Option<TrxId>> {
        let view = trx.read_view().expect("readers have a view");
        let payload = &mut self.payload;
        let is_there = match read_leaf(&table.clustered, key, payload)? {
            true => visible_version(trx, view, table, key, payload, &mut self.scratch)?,
            false => gone_version(trx, view, table, key, payload)?,
        };
        match is_there {
            true => Ok(Some(row_record(table, key, payload)?.trx)),
            false => Ok(None),
        }
    }

    /// The row, with what keys of these indexes are made of.
    pub(super) fn row<'a>(
        &'a mut self,
        trx: &Transaction,
        table: &'a OpenTable,
        codecs: &[&KeyCodec],
        key: &[u8],
    ) -> Result<RowRef<'a>> {
        let record = row_record(table, key, &self.payload)?;
        let history = Some(&trx.core().history);
        let row = row_for_keys(table, history, codecs, key, record.row, &mut self.values)?;
        row.ok_or_else(|| damaged(table, key))
    }

    /// The row with all its values.
    pub(super) fn whole_row<'a>(
        &'a mut self,
        trx: &Transaction,
        table: &'a OpenTable,
        key: &[u8],
    ) -> Result<RowRef<'a>> {
        let record = row_record(table, key, &self.payload)?;
        let history = Some(&trx.core().history);
        whole_row(table, history, key, record.row, &mut self.values)
    }
}

impl Entry {
    /// Makes it that of a row, if there is one.
    fn make_of(
        &mut self,
        index: &OpenIndex,
        row: Option<&RowRef<'_>>,
        clustered_key: &[u8],
    ) -> Result<bool> {
        self.key.clear();
        let Some(row) = row else {
            return Ok(false);
        };
        self.make(index, row, clustered_key)?;
        Ok(true)
    }
}

/// What is to be done in a round.
pub(super) struct Round<'a> {
    pub table: &'a OpenTable,
    /// Whose view saw what the product has, and whose view sees what it is to have.
    pub was: &'a Transaction,
    pub now: &'a Transaction,
    /// Of rows that may be others now, in order.
    pub keys: &'a [&'a [u8]],
    pub meter: &'a Meter,
}

impl Build {
    /// A round. Returns how many rows were noted.
    pub(super) fn catch_up(&mut self, tell: TellDuplicate<'_>) -> Result<usize> {
        // CATCH-2: first the view, then the notes.
        let now = reader(&self.seen);
        self.check()?;
        let Some(notes) = self.table.followed.take() else {
            // They became too many only now.
            self.check()?;
            let name = &self.table.def.name;
            return Err(Error::invalid(format!("nobody follows table {name}")));
        };
        let view = now.read_view().expect("readers have a view");
        let (mut keys, mut kept) = (Vec::new(), Notes::default());
        for (writer, key) in notes.iter() {
            match sees(&now, view, writer)? {
                true => keys.push(key),
                false => kept.push(writer, key),
            }
        }
        self.table.followed.put_back(&kept);
        keys.sort_unstable();
        keys.dedup();
        let units = keys.len() as u64;
        let meter = Meter::begin(now.watch(), Phase::CatchUp, units, TOLD_EVERY);
        let round = Round {
            table: &self.table,
            was: &self.seen,
            now: &now,
            keys: &keys,
            meter: &meter,
        };
        let found = match &self.product {
            Product::Indexes(indexes) => {
                let sorters = round.remove_old(indexes, sorters(indexes, &self.room))?;
                round.insert_new(indexes, sorters)?
            }
            Product::Table(new) => {
                new.catch_up(&round, tell)?;
                None
            }
        };
        // The row is told of as the new view sees it.
        self.seen = now;
        self.refuse(found, tell)?;
        Ok(keys.len())
    }
}

impl Round<'_> {
    /// Removes the entries that these rows don't have any more, and has those sorted that they have now.
    fn remove_old(&self, indexes: &[OpenIndex], mut sorters: Vec<Sorter>) -> Result<Vec<Sorter>> {
        let mut codecs: Vec<_> = indexes.iter().map(|index| &index.codec).collect();
        codecs.push(&self.table.clustered.codec);
        let (mut old, mut new) = (Version::default(), Version::default());
        let (mut gone, mut came) = (Entry::default(), Entry::default());
        let (table, now) = (self.table, self.now);
        for &key in self.keys {
            now.check_interrupt()?;
            self.meter.add(1);
            let was = old.read(self.was, table, key)?;
            let is = new.read(now, table, key)?;
            // Of what one transaction wrote views see only the last.
            if was == is {
                continue;
            }
            let old = was.map(|_| old.row(self.was, table, &codecs, key));
            let new = is.map(|_| new.row(now, table, &codecs, key));
            let (old, new) = (old.transpose()?, new.transpose()?);
            for (index, sorter) in indexes.iter().zip(&mut sorters) {
                let has_gone = gone.make_of(index, old.as_ref(), key)?;
                let has_come = came.make_of(index, new.as_ref(), key)?;
                // Flags: texts of the same weights may have other forms.
                if gone.key == came.key && gone.flags() == came.flags() {
                    continue;
                }
                if has_gone {
                    remove(table, index, &gone.key)?;
                }
                if has_come {
                    sorter.push(&came.key, &came.payload)?;
                }
            }
        }
        Ok(sorters)
    }

    fn insert_new(&self, indexes: &[OpenIndex], sorters: Vec<Sorter>) -> Result<Option<Duplicate>> {
        for (index, sorter) in indexes.iter().zip(sorters) {
            if let Some(key) = insert_all(self.now, self.table, index, sorter)? {
                return Ok(Some((index.name.clone(), key)));
            }
        }
        Ok(None)
    }
}

/// Returns another row with the same key, if one is refused (BUILD-1).
fn insert_all(
    now: &Transaction,
    table: &OpenTable,
    index: &OpenIndex,
    sorter: Sorter,
) -> Result<Option<Vec<u8>>> {
    let mut entries = sorter.finish(&|| now.check_interrupt())?;
    while let Some((key, payload)) = entries.next_record()? {
        now.check_interrupt()?;
        let parts = EntryParts::read(index, key, payload)?;
        if parts.is_only
            && let Some(other) = find_entry(now, index, parts.own)?
        {
            return Ok(Some(other));
        }
        insert(table, index, key, parts.record)?;
    }
    Ok(None)
}

fn insert(table: &OpenTable, index: &OpenIndex, key: &[u8], record: &[u8]) -> Result<()> {
    let tree = &index.tree;
    let mut mtr = Mtr::begin_in(table.mtr_env(), index.space(), MAX_MTR)?;
    let room = record_cost(key.len(), record.len());
    let mut at = tree.latch_leaf_to_insert(&mut mtr, key, room, None, None)?;
    if at.found {
        drop(mtr);
        return Err(index.damage_at(key, "CATCH-1", "an entry that was to be inserted"));
    }
    at.insert(&mut mtr, key, record);
    mtr.commit();
    Ok(())
}

fn remove(table: &OpenTable, index: &OpenIndex, key: &[u8]) -> Result<()> {
    let tree = &index.tree;
    let mut mtr = Mtr::begin_in(table.mtr_env(), index.space(), removal_log_bytes(1))?;
    let visit = tree.remove_from_leaf(&mut mtr, None, iter::once(key), |_, _| true)?;
    mtr.commit();
    if visit.removed == 0 {
        return Err(index.damage_at(key, "an entry that was to be removed", "none"));
    }
    match visit.is_sparse {
        true => tree.maybe_merge(key),
        false => Ok(()),
    }
}
