//! Locking reads: one record at a time, its lock granted under the leaf's latch or waited for without any.
//!
//! What it does about the gaps between the records is in `gaps`.
//!
//! # Semi-consistent reads
//!
//! Where gaps are not locked, a scan of the clustered index may be asked not to wait for rows that it may
//! turn out not to want ([`LockMode::ExclusiveSemiConsistent`]). Where it would have to wait, it gives the
//! version that was committed last; a row of which nothing was, it passes over.
//!
//! - **SEMI-1** Such a row is neither changed nor passed over by mistake: [`Cursor::current`] refuses it,
//!   and the scan stays before its key, so that the next move comes there again and waits, unless
//!   `unlock_row` was called. What it then gives is the newest version, locked.
//! - **SEMI-2** It was committed: a view says so that opened before the record was read. Of a copy that is
//!   older nobody can say whether its writer, which has ended meanwhile, committed it or took it back.

use crate::base::{IndexId, Result, StopPoint};
use crate::btree::Seek;
use crate::catalog::{IndexLeaf, OpenIndex, RowRecord};
use crate::lock::Acquired;
use crate::page::SlottedRef;
use crate::txn::Transaction;

use super::gaps::GapMode;
use super::state::{Current, Direction, Next};
use super::{Cursor, LockMode, candidates};
use crate::table::rowlock::{IfLocked, entry_of, lock_latched};
use crate::table::version::{read_leaf, visible_version};

/// So many candidates are looked at together: each is locked by itself, and then the place is found again.
const ONE_BY_ONE: usize = 8;

/// What a scan remembers of rows that others had locked.
#[derive(Default)]
pub(super) struct Contended {
    /// Clustered key of a row for which the scan waited, and got a new lock.
    waited_for: Vec<u8>,
    /// Clustered key of the row that it gave last without waiting: coming to it again, the scan waits.
    given_unlocked: Vec<u8>,
}

impl Contended {
    /// Whether the scan has waited for this row's lock and got it; asked once.
    fn is_waited_for(&mut self, key: &[u8]) -> bool {
        let is = !self.waited_for.is_empty() && self.waited_for == key;
        if is {
            self.waited_for.clear();
        }
        is
    }

    /// A new search begins, or another transaction goes on with this one.
    pub(super) fn clear(&mut self) {
        self.waited_for.clear();
        self.given_unlocked.clear();
    }
}

enum Step {
    /// `ends_leaf`: on its way down the scan has come to the last record that can be in the leaf.
    Row {
        ends_leaf: bool,
    },
    End,
    Again,
    /// There may be more in the next leaf.
    NextLeaf,
}

impl Cursor {
    pub(super) fn advance_locking(&mut self, trx: &mut Transaction) -> Result<bool> {
        loop {
            match self.lock_next(trx)? {
                Step::Row { ends_leaf } => {
                    if ends_leaf {
                        self.leaf_passed();
                    }
                    return Ok(true);
                }
                Step::End => return Ok(false),
                Step::Again => {}
                Step::NextLeaf => self.leaf_passed(),
            }
            trx.check_interrupt()?;
        }
    }

    /// Looks at one record, or at a leaf without any that counts.
    fn lock_next(&mut self, trx: &mut Transaction) -> Result<Step> {
        let Next::Key(seek) = self.resume.next else {
            return Ok(Step::End);
        };
        let direction = self.search.direction;
        let table = self.table.clone();
        let index = table.index_at(self.index)?;
        let leaf = self.latch_next(index, seek)?;
        let page = leaf.slotted();
        let candidates = candidates(&leaf, seek.is_forward());
        self.gaps.check_place(index, &leaf, direction)?;
        for n in 0..candidates.len() {
            let slot = match direction {
                Direction::Forward => candidates.start + n,
                Direction::Backward => candidates.end - 1 - n,
            };
            self.row.key.clear();
            page.push_key(slot, &mut self.row.key);
            // What is below such a key is in another leaf: the scan goes on there, and not by `leave`.
            let ends_leaf = self.is_first_of(&leaf);
            if !self.bounds.contain(&self.row.key, direction) {
                self.cover_to_end(trx, index.id)?;
                return Ok(Step::End);
            }
            let payload = page.payload(slot);
            if self.index != 0 {
                let (entry, clustered) = entry_of(index, &leaf, &self.row.key, payload)?;
                let open = trx.id() != Some(entry.trx) && trx.core().sys.is_unfinished(entry.trx);
                if entry.is_deleted() && !open {
                    continue;
                }
                self.row.clustered.clear();
                clustered.push_to(&mut self.row.clustered);
                self.row.flags = entry.flags;
                if self.gaps.mode != GapMode::LockedIfAbsent {
                    self.cover_key(trx, index.id, false)?;
                }
                drop(leaf);
                return Ok(match self.lock_entry(trx, !open)? {
                    true => Step::Row { ends_leaf },
                    false => Step::Again,
                });
            }
            let record = RowRecord::decode(payload).ok_or_else(|| {
                let found = format!("{} bytes", payload.len());
                index.damage_on(leaf.page_id(), "a row", found)
            })?;
            let own = trx.id() == Some(record.trx);
            if record.is_deleted() && (own || !trx.core().sys.is_unfinished(record.trx)) {
                self.forget_waited(trx, table.clustered.id);
                continue;
            }
            if record.is_deleted() {
                trx.core().log.stops.pass(StopPoint::RowBeingDeleted);
            }
            let semi_consistent = self.is_semi_consistent_at(&self.row.key);
            if semi_consistent && !own && trx.core().sys.is_unfinished(record.trx) {
                drop(leaf);
                return self.give_committed(trx);
            }
            let mode = self.search.lock.record_mode();
            if let Some(acquired) = lock_latched(trx, &table, &self.row.key, record.trx, mode) {
                if record.is_deleted() {
                    // Its deleter has ended just now.
                    if acquired == Acquired::New {
                        trx.unlock_record(table.clustered.id, &self.row.key);
                    }
                    self.forget_waited(trx, table.clustered.id);
                    continue;
                }
                if self.search.lock.if_locked() == IfLocked::Wait && trx.prefers_ranges() {
                    self.gaps.lock_rows(mode);
                }
                self.cover_key(trx, index.id, acquired == Acquired::New)?;
                self.row.payload.clear();
                self.row.payload.extend_from_slice(payload);
                let was_waited_for = self.contended.is_waited_for(&self.row.key);
                let is_new = acquired == Acquired::New || was_waited_for;
                self.row.at = Current::Locked { is_new };
                self.resume_behind_row();
                return Ok(Step::Row { ends_leaf });
            }
            if self.search.lock.if_locked() == IfLocked::Skip {
                continue;
            }
            if semi_consistent {
                drop(leaf);
                return self.give_committed(trx);
            }
            drop(leaf);
            if trx.lock_record(table.clustered.id, &self.row.key, mode)? == Acquired::New {
                self.contended.waited_for.clear();
                self.contended.waited_for.extend_from_slice(&self.row.key);
            }
            // Meanwhile others may have put rows before this one.
            return Ok(Step::Again);
        }
        let ends_leaf = leaf.ends_leaf(seek);
        self.leave(trx, index.id, page, ends_leaf)
    }

    /// Latches the leaf where the scan goes on.
    fn latch_next<'i>(&self, index: &'i OpenIndex, seek: Seek) -> Result<IndexLeaf<'i>> {
        let from = &self.resume.key;
        match self.gaps.are_open() {
            true => index.latch_leaf(from, seek, ONE_BY_ONE),
            false => index.latch_leaf_to_lock(from, seek, ONE_BY_ONE),
        }
    }

    /// The row `row.key` is gone: a lock that the scan has waited for to get it goes, too.
    fn forget_waited(&mut self, trx: &Transaction, index: IndexId) {
        if self.contended.is_waited_for(&self.row.key) {
            trx.unlock_record(index, &self.row.key);
        }
    }

    /// Whether the scan gives a row with this clustered key rather than wait for it.
    fn is_semi_consistent_at(&self, key: &[u8]) -> bool {
        self.search.lock == LockMode::ExclusiveSemiConsistent
            && self.contended.given_unlocked != key
    }

    /// Gives what was committed last of the row `row.key`, which another transaction has locked. No latch
    /// may be held.
    fn give_committed(&mut self, trx: &Transaction) -> Result<Step> {
        // SEMI-2: the view, then the record.
        let view = trx.core().sys.open_view(trx.id());
        trx.core().log.stops.pass(StopPoint::ViewOfCommittedRow);
        let (key, payload, scratch) = (&self.row.key, &mut self.row.payload, &mut self.scratch);
        if !read_leaf(&self.table.clustered, key, payload)?
            || !visible_version(trx, &view, &self.table, key, payload, scratch)?
        {
            self.resume_behind_row();
            return Ok(Step::Again);
        }
        self.contended.given_unlocked.clear();
        self.contended
            .given_unlocked
            .extend_from_slice(&self.row.key);
        self.row.at = Current::Committed;
        self.resume_before(self.row.key.clone());
        // The scan comes to this leaf again.
        Ok(Step::Row { ends_leaf: false })
    }

    /// The current row is locked by another transaction, and this is what was committed of it last
    /// ([`LockMode::ExclusiveSemiConsistent`]). A move comes to the row again, and waits for it.
    pub fn was_semi_consistent(&self) -> bool {
        self.row.at == Current::Committed
    }

    /// On its way down the search has come to the first key that the leaf can have.
    fn is_first_of(&self, leaf: &IndexLeaf<'_>) -> bool {
        self.search.direction == Direction::Backward
            && self.row.key == leaf.slotted().low()
            && leaf.ends_leaf(Seek::Lt)
    }

    /// The latched leaf has no more candidates.
    fn leave(
        &mut self,
        trx: &Transaction,
        index: IndexId,
        page: SlottedRef<'_>,
        ends_leaf: bool,
    ) -> Result<Step> {
        if self.ends_within(page) {
            self.cover_to_end(trx, index)?;
            return Ok(Step::End);
        }
        let direction = self.search.direction;
        match direction {
            Direction::Forward => self.gaps.cover_up_to(trx, index, page.high())?,
            Direction::Backward => self.gaps.cover_down_to(trx, index, page.low())?,
        }
        self.resume.beyond(&page, direction);
        Ok(match ends_leaf {
            true => Step::NextLeaf,
            false => Step::Again,
        })
    }

    /// No key of another leaf can be in bounds.
    fn ends_within(&self, page: SlottedRef<'_>) -> bool {
        let (bounds, direction) = (&self.bounds, self.search.direction);
        match direction {
            Direction::Forward => page
                .high()
                .is_none_or(|key| !bounds.contain(key, direction)),
            Direction::Backward => page.low() <= bounds.floor(),
        }
    }

    /// Locks the row `row.clustered` behind the entry `row.key` and takes it if it still has that key.
    /// `is_settled`: it was not written by another transaction that goes on.
    fn lock_entry(&mut self, trx: &mut Transaction, is_settled: bool) -> Result<bool> {
        let found = self.is_wanted(is_settled)? && self.lock_entry_row(trx)?;
        if self.gaps.mode == GapMode::LockedIfAbsent {
            self.gaps.mode = GapMode::Locked;
            match found {
                true => self.resume_at(self.row.key.clone(), Seek::Gt),
                false => self.resume_at(self.bounds.prefix.clone(), Seek::Ge),
            }
        } else {
            self.resume_behind_row();
        }
        Ok(found)
    }

    fn lock_entry_row(&mut self, trx: &mut Transaction) -> Result<bool> {
        let key = std::mem::take(&mut self.row.key);
        let found = self.fetch_clustered(trx, Some(&key));
        self.row.key = key;
        found
    }

    /// Covers what lies before the record `row.key`, and its key.
    fn cover_key(&mut self, trx: &Transaction, index: IndexId, is_new: bool) -> Result<()> {
        let direction = self.search.direction;
        self.gaps
            .cover_key(trx, index, &mut self.row.key, direction, is_new)
    }

    /// Covers the rest of what is in bounds, all of which the latched leaf contains.
    fn cover_to_end(&mut self, trx: &Transaction, index: IndexId) -> Result<()> {
        if self.gaps.are_open() {
            return Ok(());
        }
        match self.search.direction {
            Direction::Forward => {
                let end = self.bounds.ceiling();
                self.gaps.cover_up_to(trx, index, end.as_deref())?;
            }
            Direction::Backward => {
                let begin = self.bounds.floor();
                self.gaps.cover_down_to(trx, index, begin)?;
            }
        }
        // The row is absent; a move beyond is a scan.
        self.gaps.mode = GapMode::Locked;
        Ok(())
    }

    /// The statement does not want the current row: READ COMMITTED gives its lock up, if it was this read
    /// that took it. REPEATABLE READ keeps all locks. Not to be called for a row that the transaction has
    /// changed.
    pub fn unlock_row(&mut self, trx: &mut Transaction) {
        if self.was_semi_consistent() {
            // It has no lock; the scan goes on behind it.
            self.row.at = Current::None;
            return self.resume_behind_row();
        }
        let gives_up = !trx.isolation().locks_gaps();
        if gives_up
            && let Current::Locked { is_new } = &mut self.row.at
            && std::mem::take(is_new)
        {
            trx.unlock_record(self.table.clustered.id, self.position());
        }
    }
}
