//! Copying the versions that members of the history store need, before a batch destroys what these are made
//! from.
//!
//! An undo record holds the difference to the *newer* row, so a version is made on the way from the leaf back
//! to the record: one walk for each row and batch, as far as the oldest change of the batch whose version
//! somebody needs. Most are of no concern to any member, which the record alone tells: then nothing is read.
//!
//! - **COPY-1** A copy depends on nothing but the undo record and its log's number: not on what the record in
//!   the tree is by now, nor on whether purge removes anything.
//! - **COPY-2** What is not met on the way was copied by an earlier run: a log is worked through again after
//!   a failure, and what follows it in the batch may have been given back. That it was purge that gave it
//!   back, and no rollback, is known as in MVCC-2.
//! - **COPY-3** Of a row or entry whose versions could not all be copied the least log of the batch, and all
//!   later ones, stay in the history: its records are in no order.
//! - **COPY-4** An update that only copying takes is not even in the batch if the newest member does not see
//!   ids like that of who wrote the version before: then no member does. Most rows that are changed have been
//!   changed since, and a walk finds its way by the undo pages, not by the batch.

use crate::base::{Error, Result, RollPtr, Sabotage, TrxId, TrxNo};
use crate::catalog::{ChainWalk, EntryRecord, OpenTable, ROW_AT};
use crate::history::{Kind, Members, Put, Store};
use crate::table::{AfterCut, Cuts, read_leaf, row_record};
use crate::txn::{Core, Member};
use crate::undo::{Previous, UndoKind, UndoRecord, UndoTarget};

use super::behind::CopyTo;
use super::in_table;
use super::work::{Item, Work};

/// A version that is to be copied: the one before a change.
struct Wanted {
    /// Where the change's undo record stands.
    at: RollPtr,
    superseder: TrxNo,
    members: Members,
}

/// Buffers for walking a row's versions.
#[derive(Default)]
pub(super) struct CopyScratch {
    undo: Vec<u8>,
    row: Vec<u8>,
    version: Vec<u8>,
    wanted: Vec<Wanted>,
    value: Vec<u8>,
    copied: u64,
    /// Superseded versions that no member needs.
    dropped: u64,
}

impl CopyScratch {
    /// Adds what was done with it to the counters.
    pub fn count(&self, core: &Core) {
        let counters = &core.history.counters;
        counters.copied.add(self.copied);
        counters.dropped.add(self.dropped);
    }
}

/// What copying a batch takes.
pub(super) struct Copying<'a> {
    core: &'a Core,
    store: &'a Store,
    /// In order.
    members: &'a [Member],
    work: &'a Work,
}

impl<'a> Copying<'a> {
    pub fn new(core: &'a Core, to: &'a CopyTo, work: &'a Work) -> Copying<'a> {
        Copying {
            core,
            store: &to.store,
            members: &to.members,
            work,
        }
    }

    /// How many items the first key of `items` has.
    pub fn items_of_first_key(&self, items: &[Item]) -> usize {
        let is_same = |item: &&Item| self.work.is_same_key(&items[0], item);
        items.iter().take_while(is_same).count()
    }

    /// Copies what members need of the versions of one row or entry: `items` are all that the batch has of
    /// it.
    pub fn copy(&self, items: &[Item], scratch: &mut CopyScratch) -> Result<()> {
        if !items[0].kind.is_row() {
            return items
                .iter()
                .try_for_each(|item| self.copy_entry(item, scratch));
        }
        let is_sabotaged = |sabotage| self.core.log.is_sabotaged(sabotage);
        for item in items.iter().filter(|item| item.frees) {
            if !is_sabotaged(Sabotage::ValueNotCopied) {
                self.copy_external_values(item, scratch)?;
            }
        }
        match is_sabotaged(Sabotage::CopySkipped) {
            true => Ok(()),
            false => self.copy_row(items, scratch),
        }
    }

    fn copy_row(&self, items: &[Item], scratch: &mut CopyScratch) -> Result<()> {
        let (first, key) = (&items[0], self.work.key(&items[0]));
        scratch.wanted.clear();
        for item in items {
            let superseder = self.work.number(item);
            match self.members_for(item, superseder) {
                Some(members) if !self.store.has(first.index, key, superseder)? => {
                    scratch.wanted.push(Wanted {
                        at: item.at,
                        superseder,
                        members,
                    });
                }
                Some(_) => {}
                None => scratch.dropped += 1,
            }
        }
        if scratch.wanted.is_empty() {
            return Ok(());
        }
        in_table(self.core, first.table, |table| {
            let walked = self.walk(table, key, scratch);
            walked.or_else(|e| self.mark_damaged(table, key, scratch, e))
        })
    }

    /// The row can't be walked: whoever needs one of the versions is to be told so. Other errors may pass.
    fn mark_damaged(
        &self,
        table: &OpenTable,
        key: &[u8],
        scratch: &mut CopyScratch,
        e: Error,
    ) -> Result<()> {
        if !matches!(e, Error::Corrupt { .. }) || self.store.is_lost_by(&e) {
            return Err(e);
        }
        for wanted in scratch.wanted.drain(..) {
            let Wanted {
                superseder,
                members,
                ..
            } = wanted;
            let index = table.clustered.id;
            self.store
                .put(index, key, superseder, members, Kind::Damaged, &[])?;
        }
        self.core
            .warn(&format!("old versions of a row are lost: {e}"));
        Ok(())
    }

    /// Who needs the version that the item's change replaced. Nobody, if that was the transaction's own: who
    /// sees the transaction does not read what it superseded.
    fn members_for(&self, item: &Item, superseder: TrxNo) -> Option<Members> {
        use UndoKind::{EntryDeleteMark, RowDeleteMark, RowUpdate};
        if !matches!(item.kind, RowUpdate | RowDeleteMark | EntryDeleteMark) {
            return None;
        }
        self.needing(self.work.record(item).previous?.trx, superseder)
    }

    /// Who needs what `writer` wrote and `superseder` replaced.
    fn needing(&self, writer: TrxId, superseder: TrxNo) -> Option<Members> {
        let is_sabotaged = |sabotage| self.core.log.is_sabotaged(sabotage);
        let first_that_sees = |members: &[Member]| {
            if is_sabotaged(Sabotage::WriterTakenForOld) {
                return members.partition_point(|member| member.number().0 <= writer.0);
            }
            let first = self.core.sys.first_that_sees(members, writer);
            first.saturating_sub(usize::from(is_sabotaged(Sabotage::IntervalTooLow)))
        };
        let is_short = is_sabotaged(Sabotage::IntervalTooShort);
        let last = TrxNo(superseder.0 - u64::from(is_short));
        Members::needing(self.members, Member::number, first_that_sees, last)
    }

    /// All of an entry is known from its undo record, but for where its clustered key begins.
    fn copy_entry(&self, item: &Item, scratch: &mut CopyScratch) -> Result<()> {
        if item.kind == UndoKind::EntryMarkUnread {
            return self.copy_unread(item, scratch);
        }
        let (key, superseder) = (self.work.key(item), self.work.number(item));
        let Some(members) = self.members_for(item, superseder) else {
            scratch.dropped += 1;
            return Ok(());
        };
        let previous = self.work.record(item).previous;
        let Previous {
            flags, trx, diff, ..
        } = previous.expect("`members_for` has looked");
        in_table(self.core, item.table, |table| {
            let Some(index) = table.index(item.index) else {
                return Ok(());
            };
            let own = index.codec.own_len(key);
            let own = own.map_err(|d| index.damage_at(key, d.expected, d.found))?;
            let entry = EntryRecord {
                flags,
                trx,
                ..EntryRecord::behind(key, own, diff.middle)
            };
            let payload = index.entry_payload(&entry);
            let put = self
                .store
                .put(index.id, key, superseder, members, Kind::Record, &payload)?;
            scratch.copied += u64::from(put == Put::Done);
            Ok(())
        })
    }

    /// Who delete-marked the entry has not read it: it is where it was, in the index's own tree (CB-4). If it
    /// is not, an earlier run has copied it (COPY-2), or nobody needed it when another one came there.
    fn copy_unread(&self, item: &Item, scratch: &mut CopyScratch) -> Result<()> {
        let (key, superseder) = (self.work.key(item), self.work.number(item));
        in_table(self.core, item.table, |table| {
            let Some(index) = table.index(item.index) else {
                return Ok(());
            };
            let payload = &mut scratch.row;
            if !read_leaf(index, key, payload)? {
                return Ok(());
            }
            let entry = index.entry(payload);
            let Some(entry) = entry.filter(|entry| !entry.is_deleted()) else {
                return Ok(());
            };
            let Some(members) = self.needing(entry.trx, superseder) else {
                scratch.dropped += 1;
                return Ok(());
            };
            let payload = index.entry_payload(&entry);
            let put = self
                .store
                .put(index.id, key, superseder, members, Kind::Record, &payload)?;
            scratch.copied += u64::from(put == Put::Done);
            Ok(())
        })
    }

    /// Those that the change has freed. A member may come to one by any version that has it, the first of
    /// which the value's writer made.
    fn copy_external_values(&self, item: &Item, scratch: &mut CopyScratch) -> Result<()> {
        let superseder = self.work.number(item);
        for value in self.work.record(item).frees() {
            let Some(members) = self.needing(value.trx, superseder) else {
                continue;
            };
            if self
                .store
                .has_external_value(item.table, &value, superseder)?
            {
                continue;
            }
            in_table(self.core, item.table, |table| {
                // As long as it is: whoever wrote it had it in memory, too.
                scratch.value.clear();
                let walk = table.walk_chain(&value, usize::MAX, |_, piece| {
                    scratch.value.extend_from_slice(piece);
                    true
                })?;
                // COPY-2: some of it may have been freed by an earlier run, which copied it before.
                if walk == ChainWalk::Done {
                    if self.core.log.is_sabotaged(Sabotage::ValueCopiedInPart) {
                        scratch.value.truncate(scratch.value.len() / 2);
                    }
                    let bytes = &scratch.value;
                    (self.store).put_external_value(
                        table.id(),
                        &value,
                        bytes,
                        superseder,
                        members,
                    )?;
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Goes back from the leaf, and copies the versions that are wanted as it comes to them.
    fn walk(&self, table: &OpenTable, key: &[u8], scratch: &mut CopyScratch) -> Result<()> {
        let CopyScratch {
            undo,
            row,
            version,
            wanted,
            copied,
            ..
        } = scratch;
        let index = table.clustered.id;
        let mut cuts = Cuts::default();
        'again: loop {
            if !read_leaf(&table.clustered, key, version)? {
                return Ok(());
            }
            let leaf = version.first_chunk::<ROW_AT>().copied();
            loop {
                let record = row_record(table, key, version)?;
                if record.roll_ptr.is_insert() {
                    return Ok(());
                }
                let target = UndoTarget {
                    writer: record.trx,
                    table: table.id(),
                    index,
                    key,
                };
                if !self.core.undo.read(record.roll_ptr, &target, undo)? {
                    match cuts.meet(self.core, leaf, record.trx) {
                        // Somebody may have taken back what the leaf said.
                        AfterCut::Again => continue 'again,
                        // COPY-2
                        AfterCut::GivenBack => return Ok(()),
                        AfterCut::Missing => {
                            let found = format!("none of {}", record.trx);
                            let expected = "the undo record of a row";
                            return Err(table.clustered.damage_at(key, expected, found));
                        }
                    }
                }
                let change = UndoRecord::decode(undo).expect("UndoSys::read decoded it");
                let fits = |p: &Previous<'_>| p.diff.apply(record.row, row).is_some();
                let Some(previous) = change.previous.filter(fits) else {
                    let found = format!("one of {} that does not fit the row", record.trx);
                    let expected = "the undo record of a row";
                    return Err(table.clustered.damage_at(key, expected, found));
                };
                let is_it = |wanted: &Wanted| wanted.at == record.roll_ptr;
                let found = wanted.iter().position(is_it);
                version.clear();
                version.extend_from_slice(&previous.head().to_bytes());
                version.extend_from_slice(row);
                if let Some(n) = found {
                    let wanted = wanted.swap_remove(n);
                    *copied += self.put(table, key, &wanted, version)?;
                }
                if wanted.is_empty() {
                    return Ok(());
                }
            }
        }
    }

    /// A deleted row is no version: members do not find it, which is what they are to see.
    fn put(&self, table: &OpenTable, key: &[u8], wanted: &Wanted, version: &[u8]) -> Result<u64> {
        if row_record(table, key, version)?.is_deleted() {
            return Ok(0);
        }
        let index = table.clustered.id;
        let Wanted {
            superseder,
            members,
            ..
        } = *wanted;
        self.store
            .put_new(index, key, superseder, members, Kind::Record, version)?;
        Ok(1)
    }
}
