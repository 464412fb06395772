//! Consistent reads: batches of records copied from a leaf under one shared latch.

use std::ops::Range;

use crate::base::Result;
use crate::btree::Seek;
use crate::catalog::{EntryRecord, RowRecord};
use crate::txn::{Sees, Transaction};

use super::{Current, Cursor, Direction, Resume, beyond, candidates};
use crate::table::version::visible_or_newest;

/// Records copied from a leaf at most while a scan is young; doubles with each batch.
pub(super) const FIRST_BATCH: usize = 4;

/// The same for a search that says where it ends: what is copied will be wanted, unless the caller stops early.
const BOUNDED_BATCH: usize = 64;

/// One record of a batch, as places in the batch's bytes. A batch is a part of one page.
#[derive(Clone, Copy)]
struct Item {
    key_at: u32,
    payload_at: u32,
    end: u32,
    /// The view sees the record's TrxId, or there is no view.
    seen: bool,
}

impl Item {
    fn key(self) -> Range<usize> {
        self.key_at as usize..self.payload_at as usize
    }

    fn payload(self) -> Range<usize> {
        self.payload_at as usize..self.end as usize
    }
}

/// Records that were copied and wait for their turn.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) bytes: Vec<u8>,
    items: Vec<Item>,
    next: usize,
    /// Nothing was copied that does not start with what the search must start with.
    bounded: bool,
}

impl Batch {
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.items.clear();
        self.next = 0;
    }

    fn push(&mut self, (prefix, suffix): (&[u8], &[u8]), payload: &[u8], seen: bool) {
        let bytes = &mut self.bytes;
        let key_at = bytes.len() as u32;
        bytes.extend_from_slice(prefix);
        bytes.extend_from_slice(suffix);
        let payload_at = bytes.len() as u32;
        bytes.extend_from_slice(payload);
        self.items.push(Item {
            key_at,
            payload_at,
            end: bytes.len() as u32,
            seen,
        });
    }
}

impl Cursor {
    /// Forgets what was read ahead: it will be read again.
    pub(super) fn unread(&mut self) {
        if let Some(item) = self.batch.items.get(self.batch.next) {
            let mut key = self.batch.bytes[item.key()].to_vec();
            let seek = match self.direction {
                Direction::Forward => Seek::Ge,
                Direction::Backward => {
                    // The smallest key behind it.
                    key.push(0);
                    Seek::Lt
                }
            };
            self.resume_at(key, seek);
        }
        self.batch.clear();
        self.batch_limit = FIRST_BATCH;
    }

    pub(super) fn advance_consistent(&mut self, trx: &mut Transaction) -> Result<bool> {
        // At READ COMMITTED each statement opens a view of its own.
        trx.open_read_view();
        loop {
            // Forward, what lies beyond the bounds was not copied.
            let is_cut =
                self.direction == Direction::Forward && (self.batch.bounded || !self.bounded);
            while let Some(&item) = self.batch.items.get(self.batch.next) {
                let key = &self.batch.bytes[item.key()];
                if !is_cut && !self.in_bounds(key) {
                    return Ok(false);
                }
                debug_assert!(self.in_bounds(key));
                self.batch.next += 1;
                self.key.clear();
                self.key.extend_from_slice(key);
                if self.accept(trx, item.payload(), item.seen)? {
                    return Ok(true);
                }
            }
            if !self.fill(trx)? {
                return Ok(false);
            }
        }
    }

    /// Decides whether the view sees the record that was copied to `payload` of the batch.
    fn accept(&mut self, trx: &mut Transaction, payload: Range<usize>, seen: bool) -> Result<bool> {
        if self.index == 0 {
            if seen {
                self.current = Current::Batch(payload);
                return Ok(true);
            }
            self.payload.clear();
            self.payload.extend_from_slice(&self.batch.bytes[payload]);
            let (payload, scratch) = (&mut self.payload, &mut self.scratch);
            let found = visible_or_newest(trx, &self.table, &self.key, payload, scratch)?;
            self.current = if found { Current::Own } else { Current::None };
            return Ok(found);
        }
        let payload = &self.batch.bytes[payload];
        let entry = EntryRecord::decode(payload);
        let Some(clustered) = entry.and_then(|e| e.clustered_key(&self.key)) else {
            let found = format!("{} bytes behind a key of {}", payload.len(), self.key.len());
            return Err(self.index().damage_at(&self.key, "an entry", found));
        };
        self.clustered.clear();
        self.clustered.extend_from_slice(clustered);
        if !self.is_wanted()? {
            return Ok(false);
        }
        if seen && self.keys_suffice {
            self.current = Current::Entry;
            return Ok(true);
        }
        // Without a view the row may be newer than its entry.
        let decides = seen && trx.read_view().is_some();
        let key = std::mem::take(&mut self.key);
        let found = self.fetch_clustered(trx, (!decides).then_some(&key[..]));
        self.key = key;
        found
    }

    /// Copies the next records of the index into the batch. `false`: there are no more.
    fn fill(&mut self, trx: &mut Transaction) -> Result<bool> {
        self.batch.clear();
        self.batch.bounded = self.bounded;
        let view = trx.read_view();
        let clustered = self.index == 0;
        let bound = self.bound();
        while self.batch.items.is_empty() {
            let Resume::At(from, seek) = &self.resume else {
                return Ok(false);
            };
            if bound.as_ref().is_some_and(|bound| from >= bound) {
                return Ok(false);
            }
            let index = match self.index {
                0 => &self.table.clustered,
                n => &self.table.secondary[n - 1],
            };
            let leaf = index.tree.latch_leaf_shared(from, *seek)?;
            let page = leaf.slotted();
            let mut candidates = candidates(&leaf, seek.is_forward());
            let is_cut = bound.as_ref().is_some_and(|bound| {
                let (Ok(end) | Err(end)) = page.search(bound);
                let is_cut = end < candidates.end;
                candidates.end = candidates.end.min(end).max(candidates.start);
                is_cut
            });
            let limit = match bound {
                Some(_) => self.batch_limit.max(BOUNDED_BATCH),
                None => self.batch_limit,
            };
            let prefix = page.prefix();
            let mut visit = |slot: usize| -> Result<bool> {
                let (suffix, payload) = page.entry(slot);
                let (flags, writer) = match clustered {
                    true => RowRecord::decode(payload).map(|r| (r.is_deleted(), r.trx)),
                    false => EntryRecord::decode(payload).map(|e| (e.is_deleted(), e.trx)),
                }
                .ok_or_else(|| {
                    let found = format!("{} bytes", payload.len());
                    index.damage_on(leaf.page_id(), "a record", found)
                })?;
                // TEMP-2: of a temporary table the newest version counts.
                let seen = self.table.is_temporary()
                    || view.is_none_or(|view| view.sees(writer) == Sees::Yes);
                if seen && flags {
                    return Ok(true);
                }
                self.batch.push((prefix, suffix), payload, seen);
                Ok(self.batch.items.len() < limit)
            };
            let mut complete = true;
            match self.direction {
                Direction::Forward => {
                    for slot in candidates.clone() {
                        if !visit(slot)? {
                            complete = slot + 1 == candidates.end;
                            break;
                        }
                    }
                }
                Direction::Backward => {
                    for slot in candidates.clone().rev() {
                        if !visit(slot)? {
                            complete = slot == candidates.start;
                            break;
                        }
                    }
                }
            }
            self.resume = match complete {
                true if is_cut => Resume::At(bound.clone().expect("it cut"), Seek::Ge),
                true => beyond(&page, self.direction),
                false => {
                    let last = self.batch.items.last();
                    let last = last.expect("the limit was reached").key();
                    let seek = if self.direction == Direction::Forward {
                        Seek::Gt
                    } else {
                        Seek::Lt
                    };
                    Resume::At(self.batch.bytes[last].to_vec(), seek)
                }
            };
        }
        self.batch_limit = self.batch_limit.saturating_mul(4);
        Ok(true)
    }
}
