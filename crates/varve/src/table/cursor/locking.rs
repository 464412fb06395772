//! Locking reads: one record at a time, its lock granted under the leaf's latch or waited for without any.
//!
//! # Gaps
//!
//! Under REPEATABLE READ and SERIALIZABLE a locking search also keeps others from putting keys where it
//! looked. What it locks is an interval of keys, from where the search began to where it has got: `covered`
//! is that place. It grows piece by piece, each under the shared latch of the leaf whose fences contain it:
//! up to and including a record that is about to be locked, up to the search's end when a record beyond that
//! end is met, up to the leaf's fence before the scan leaves the leaf. A record that has to be waited for
//! adds nothing yet: the scan then looks again from where it was.
//!
//! - GAP-2 What a locking search has passed is covered without a hole: each piece begins where the last one
//!   ended, and that place is within the leaf's fences or at one of them, so that nothing can have been added
//!   in between.
//!
//! A search for all parts of a unique key without NULL is different if it finds the row: the row's lock alone
//! keeps any other from having that key, so nothing is covered. If the row turns out to be gone, the search
//! begins again and covers what it passes, like any other.
//!
//! The interval of a search by key ends where the search does, not at the next record, wherever that may be.
//! So what is locked follows from the statement and the rows that it found, not from their neighbours or from
//! where pages begin.
//!
//! # Semi-consistent reads
//!
//! Where gaps are not locked, a scan of the clustered index may be asked not to wait for rows that it may
//! turn out not to want ([`LockMode::ExclusiveSemiConsistent`]). Where it would have to wait, it gives the
//! version that was committed last; a row of which nothing was, it passes over.
//!
//! - SEMI-1 Such a row is neither changed nor passed over by mistake: [`Cursor::current`] refuses it, and the
//!   scan stays before its key, so that the next move comes there again and waits, unless `unlock_row` was
//!   called. What it then gives is the newest version, locked.
//! - SEMI-2 It was committed: a view says so that opened before the record was read. Of a copy that is older
//!   nobody can say whether its writer, which has ended meanwhile, committed it or took it back.

use crate::base::{IndexId, Result, StopPoint};
use crate::btree::{Seek, SharedLeaf};
use crate::catalog::RowRecord;
use crate::lock::Acquired;
use crate::page::SlottedRef;
use crate::txn::Transaction;

use super::{Current, Cursor, Direction, LockMode, Resume, beyond, candidates};
use crate::table::rowlock::{IfLocked, entry_of, lock_latched};
use crate::table::version::{read_leaf, visible_version};

/// What a search does about the gaps that it passes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Gaps {
    /// Nothing.
    Open,
    /// It locks them.
    Locked,
    /// It locks them, unless it finds the one row that can be there.
    LockedIfAbsent,
}

enum Step {
    Row,
    End,
    Again,
    /// There may be more in the next leaf.
    NextLeaf,
}

impl Cursor {
    pub(super) fn advance_locking(&mut self, trx: &mut Transaction) -> Result<bool> {
        self.semi_consistent = false;
        loop {
            match self.lock_next(trx)? {
                Step::Row => {
                    if self.was_last_of_leaf && !self.semi_consistent {
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
        let Resume::At(from, seek) = &self.resume else {
            return Ok(Step::End);
        };
        let table = self.table.clone();
        let index = table.index_at(self.index)?;
        let leaf = index.tree.latch_leaf_shared(from, *seek)?;
        let page = leaf.slotted();
        let candidates = candidates(&leaf, seek.is_forward());
        self.check_place(&leaf)?;
        for n in 0..candidates.len() {
            let slot = match self.direction {
                Direction::Forward => candidates.start + n,
                Direction::Backward => candidates.end - 1 - n,
            };
            self.key.clear();
            page.push_key(slot, &mut self.key);
            // What is below such a key is in another leaf: the scan goes on there, and not by `leave`.
            self.was_last_of_leaf = self.direction == Direction::Backward && self.key == page.low();
            if !self.in_bounds(&self.key) {
                self.cover_to_end(trx, index.id)?;
                return Ok(Step::End);
            }
            let payload = page.payload(slot);
            if self.index != 0 {
                let (entry, clustered) = entry_of(index, &leaf, &self.key, payload)?;
                let open = trx.id() != Some(entry.trx) && trx.core().sys.is_unfinished(entry.trx);
                if entry.is_deleted() && !open {
                    continue;
                }
                self.clustered.clear();
                self.clustered.extend_from_slice(clustered);
                if self.gaps != Gaps::LockedIfAbsent {
                    self.cover_key(trx, index.id)?;
                }
                drop(leaf);
                return self.lock_entry(trx);
            }
            let record = RowRecord::decode(payload).ok_or_else(|| {
                let found = format!("{} bytes", payload.len());
                index.damage_on(leaf.page_id(), "a row", found)
            })?;
            let own = trx.id() == Some(record.trx);
            if record.is_deleted() && (own || !trx.core().sys.is_unfinished(record.trx)) {
                continue;
            }
            let semi_consistent = self.is_semi_consistent_at(&self.key);
            if semi_consistent && !own && trx.core().sys.is_unfinished(record.trx) {
                drop(leaf);
                return self.give_committed(trx);
            }
            let mode = self.lock.record_mode();
            if let Some(acquired) = lock_latched(trx, &table, &self.key, record.trx, mode) {
                self.cover_key(trx, index.id)?;
                self.payload.clear();
                self.payload.extend_from_slice(payload);
                self.current = Current::Own;
                self.is_new_lock = acquired == Acquired::New || self.waited_for == self.key;
                self.resume_after_key();
                return Ok(Step::Row);
            }
            if self.lock.if_locked() == IfLocked::Skip {
                continue;
            }
            if semi_consistent {
                drop(leaf);
                return self.give_committed(trx);
            }
            drop(leaf);
            if trx.lock_record(table.clustered.id, &self.key, mode)? == Acquired::New {
                self.waited_for.clear();
                self.waited_for.extend_from_slice(&self.key);
            }
            // Meanwhile others may have put rows before this one.
            return Ok(Step::Again);
        }
        self.leave(trx, index.id, page)
    }

    /// Whether the scan gives a row with this clustered key rather than wait for it.
    fn is_semi_consistent_at(&self, key: &[u8]) -> bool {
        self.lock == LockMode::ExclusiveSemiConsistent && self.seen_unlocked != key
    }

    /// Gives what was committed last of the row `self.key`, which another transaction has locked. No latch
    /// may be held.
    fn give_committed(&mut self, trx: &Transaction) -> Result<Step> {
        // SEMI-2: the view, then the record.
        let view = trx.core().sys.open_view(trx.id());
        trx.core().log.stops.pass(StopPoint::ViewOfCommittedRow);
        let (key, payload, scratch) = (&self.key, &mut self.payload, &mut self.scratch);
        if !read_leaf(&self.table.clustered, key, payload)?
            || !visible_version(trx, &view, &self.table, key, payload, scratch)?
        {
            self.resume_after_key();
            return Ok(Step::Again);
        }
        self.seen_unlocked.clear();
        self.seen_unlocked.extend_from_slice(&self.key);
        self.semi_consistent = true;
        self.is_new_lock = false;
        self.current = Current::Own;
        let mut key = self.key.clone();
        match self.direction {
            Direction::Forward => self.resume_at(key, Seek::Ge),
            Direction::Backward => {
                // The smallest key behind it.
                key.push(0);
                self.resume_at(key, Seek::Lt);
            }
        }
        Ok(Step::Row)
    }

    /// The current row is locked by another transaction, and this is what was committed of it last
    /// ([`LockMode::ExclusiveSemiConsistent`]). A move comes to the row again, and waits for it.
    pub fn was_semi_consistent(&self) -> bool {
        self.semi_consistent && self.on_row()
    }

    /// The latched leaf has no more candidates.
    fn leave(&mut self, trx: &Transaction, index: IndexId, page: SlottedRef<'_>) -> Result<Step> {
        if self.ends_within(page) {
            self.cover_to_end(trx, index)?;
            return Ok(Step::End);
        }
        match self.direction {
            Direction::Forward => self.cover_up_to(trx, index, page.high())?,
            Direction::Backward => self.cover_down_to(trx, index, page.low())?,
        }
        self.resume = beyond(&page, self.direction);
        Ok(Step::NextLeaf)
    }

    /// No key of another leaf can be in bounds.
    fn ends_within(&self, page: SlottedRef<'_>) -> bool {
        match self.direction {
            Direction::Forward => page.high().is_none_or(|high| !self.in_bounds(high)),
            Direction::Backward => page.low() <= self.floor(),
        }
    }

    /// Locks the row `self.clustered` behind the entry `self.key` and takes it if it still has that key.
    fn lock_entry(&mut self, trx: &mut Transaction) -> Result<Step> {
        let found = self.is_wanted()? && self.lock_entry_row(trx)?;
        if self.gaps == Gaps::LockedIfAbsent {
            self.gaps = Gaps::Locked;
            if !found {
                self.resume_at(self.prefix.clone(), Seek::Ge);
                return Ok(Step::Again);
            }
            self.resume_at(self.key.clone(), Seek::Gt);
        } else {
            self.resume_after_key();
        }
        Ok(if found { Step::Row } else { Step::Again })
    }

    fn lock_entry_row(&mut self, trx: &mut Transaction) -> Result<bool> {
        let key = std::mem::take(&mut self.key);
        let found = self.fetch_clustered(trx, Some(&key));
        self.key = key;
        found
    }

    /// GAP-2. Only damaged fences let a scan leave a gap behind.
    fn check_place(&self, leaf: &SharedLeaf<'_>) -> Result<()> {
        if self.gaps == Gaps::Open {
            return Ok(());
        }
        let page = leaf.slotted();
        let covered = &self.covered[..];
        let adjoins = match self.direction {
            Direction::Forward => page.low() <= covered,
            Direction::Backward => page.high().is_none_or(|high| covered <= high),
        };
        if adjoins {
            return Ok(());
        }
        let expected = "fences that adjoin those of the leaf before";
        let damage = self.index().damage_on(leaf.page_id(), expected, "a gap");
        Err(damage)
    }

    /// Covers what lies before the record `self.key`, and its key.
    fn cover_key(&mut self, trx: &Transaction, index: IndexId) -> Result<()> {
        let mut key = std::mem::take(&mut self.key);
        let covered = match self.direction {
            Direction::Forward => {
                // The smallest key behind it.
                key.push(0);
                let covered = self.cover_up_to(trx, index, Some(&key));
                key.pop();
                covered
            }
            Direction::Backward => self.cover_down_to(trx, index, &key),
        };
        self.key = key;
        covered
    }

    /// Covers the rest of what is in bounds, all of which the latched leaf contains.
    fn cover_to_end(&mut self, trx: &Transaction, index: IndexId) -> Result<()> {
        if self.gaps == Gaps::Open {
            return Ok(());
        }
        match self.direction {
            Direction::Forward => {
                let end = self.bound();
                self.cover_up_to(trx, index, end.as_deref())?;
            }
            Direction::Backward => {
                let begin = self.floor().to_vec();
                self.cover_down_to(trx, index, &begin)?;
            }
        }
        // The row is absent; a move beyond is a scan.
        self.gaps = Gaps::Locked;
        Ok(())
    }

    fn cover_up_to(
        &mut self,
        trx: &Transaction,
        index: IndexId,
        high: Option<&[u8]>,
    ) -> Result<()> {
        if self.gaps == Gaps::Open || high.is_some_and(|high| high <= &self.covered[..]) {
            return Ok(());
        }
        trx.lock_gap(index, &self.covered, high)?;
        if let Some(high) = high {
            self.covered.clear();
            self.covered.extend_from_slice(high);
        }
        Ok(())
    }

    fn cover_down_to(&mut self, trx: &Transaction, index: IndexId, low: &[u8]) -> Result<()> {
        if self.gaps == Gaps::Open || low >= &self.covered[..] {
            return Ok(());
        }
        trx.lock_gap(index, low, Some(&self.covered))?;
        self.covered.clear();
        self.covered.extend_from_slice(low);
        Ok(())
    }

    /// The statement does not want the current row: READ COMMITTED gives its lock up, if it was this read
    /// that took it. REPEATABLE READ keeps all locks. Not to be called for a row that the transaction has
    /// changed.
    pub fn unlock_row(&mut self, trx: &mut Transaction) {
        if self.was_semi_consistent() {
            // It has no lock; the scan goes on behind it.
            self.semi_consistent = false;
            self.current = Current::None;
            return self.resume_after_key();
        }
        let gives_up = !trx.isolation().locks_gaps();
        if gives_up && self.on_row() && std::mem::take(&mut self.is_new_lock) {
            trx.unlock_record(self.table.clustered.id, self.position());
        }
    }
}
