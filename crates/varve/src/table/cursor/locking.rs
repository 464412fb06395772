//! Locking reads: one record at a time, its lock granted under the leaf's latch or waited for without any.

use crate::base::Result;
use crate::btree::Seek;
use crate::catalog::RowRecord;
use crate::lock::Acquired;
use crate::txn::{Isolation, Transaction};

use super::{Current, Cursor, Direction, Resume, beyond, candidates};
use crate::table::rowlock::{entry_of, lock_latched};

enum Step {
    Row,
    End,
    Again,
}

impl Cursor {
    pub(super) fn advance_locking(&mut self, trx: &mut Transaction) -> Result<bool> {
        loop {
            match self.lock_next(trx)? {
                Step::Row => return Ok(true),
                Step::End => return Ok(false),
                Step::Again => {}
            }
        }
    }

    /// Looks at one record, or at a leaf without any that counts.
    fn lock_next(&mut self, trx: &mut Transaction) -> Result<Step> {
        let Resume::At(from, seek) = &self.resume else {
            return Ok(Step::End);
        };
        let mode = self.lock.record_mode();
        let table = self.table.clone();
        let index = table.index_at(self.index)?;
        let leaf = index.tree.latch_leaf_shared(from, *seek)?;
        let page = leaf.slotted();
        let candidates = candidates(&leaf, seek.is_forward());
        let forward = self.direction == Direction::Forward;
        for n in 0..candidates.len() {
            let slot = if forward {
                candidates.start + n
            } else {
                candidates.end - 1 - n
            };
            self.key.clear();
            page.push_key(slot, &mut self.key);
            if !self.in_bounds(&self.key) {
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
            if let Some(acquired) = lock_latched(trx, &table, &self.key, record.trx, mode) {
                self.payload.clear();
                self.payload.extend_from_slice(payload);
                self.current = Current::Own;
                self.is_new_lock = acquired == Acquired::New || self.waited_for == self.key;
                self.resume_after_key();
                return Ok(Step::Row);
            }
            drop(leaf);
            if trx.lock_record(table.clustered.id, &self.key, mode)? == Acquired::New {
                self.waited_for.clear();
                self.waited_for.extend_from_slice(&self.key);
            }
            let seek = if forward { Seek::Ge } else { Seek::Le };
            self.resume = Resume::At(self.key.clone(), seek);
            return Ok(Step::Again);
        }
        self.resume = beyond(&page, self.direction);
        Ok(Step::Again)
    }

    /// Locks the row `self.clustered` behind the entry `self.key` and takes it if it still has that key.
    fn lock_entry(&mut self, trx: &mut Transaction) -> Result<Step> {
        if !self.is_wanted()? {
            self.resume_after_key();
            return Ok(Step::Again);
        }
        let key = std::mem::take(&mut self.key);
        let found = self.fetch_clustered(trx, Some(&key));
        self.key = key;
        self.resume_after_key();
        Ok(if found? { Step::Row } else { Step::Again })
    }

    /// The statement does not want the current row: READ COMMITTED gives its lock up, if it was this read that took it.
    /// REPEATABLE READ keeps all locks. Not to be called for a row that the transaction has changed.
    pub fn unlock_row(&mut self, trx: &mut Transaction) {
        let gives_up = trx.isolation() == Isolation::ReadCommitted;
        if gives_up && self.on_row() && std::mem::take(&mut self.is_new_lock) {
            trx.unlock_record(self.table.clustered.id, self.position());
        }
    }
}
