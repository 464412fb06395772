//! Consistent reads: batches of records copied from a leaf under one shared latch, and taken apart without
//! it.

use std::ops::Range;

use crate::base::{Result, TrxId};
use crate::btree::Seek;
use crate::catalog::RowRecord;
use crate::history::head_len;
use crate::page::{SlottedRef, VERSION_KEY_BYTES, record_parts};
use crate::txn::{Transaction, Visibility};

use super::state::{Current, Direction, Next};
use super::{Cursor, candidates};
use crate::table::version::visible_or_newest;

/// Records copied from a leaf at most while a scan is young; grows with each batch.
const FIRST_BATCH: usize = 4;

/// The same for a search that says where it ends: what is copied will be wanted, unless the caller stops
/// early.
const BOUNDED_BATCH: usize = 64;

/// A record that was copied: where it is in [`Batch::bytes`], and the number of the leaf that it comes from.
#[derive(Clone, Copy)]
pub(super) struct Item {
    pub(super) at: u32,
    pub(super) len: u16,
    pub(super) leaf: u16,
}

impl Item {
    #[inline]
    pub(super) fn of(self, bytes: &[u8]) -> &[u8] {
        let at = self.at as usize;
        &bytes[at..at + self.len as usize]
    }
}

/// What the keys of records from a leaf of the history store start with: where that is in [`Batch::bytes`].
#[derive(Clone, Copy)]
pub(super) struct PastPrefix {
    at: u32,
    len: u16,
}

impl PastPrefix {
    /// Of this leaf, whose records are copied to `bytes` next.
    pub(super) fn copy(page: SlottedRef<'_>, bytes: &mut Vec<u8>) -> PastPrefix {
        let (at, len) = (bytes.len() as u32, page.prefix_len() as u16);
        bytes.extend_from_slice(page.prefix());
        PastPrefix { at, len }
    }

    #[inline]
    pub(super) fn of(self, bytes: &[u8]) -> &[u8] {
        &bytes[self.at as usize..][..self.len as usize]
    }
}

/// Records of one leaf, and versions of the history store that belong among them, which were copied as they
/// are stored and wait for their turn.
pub(super) struct Batch {
    pub(super) bytes: Vec<u8>,
    /// In the order of the scan.
    pub(super) items: Vec<Item>,
    /// Kept for their memory.
    pub(super) spare: [Vec<Item>; 2],
    /// What all keys of the index's leaf start with, whose number is 0.
    pub(super) prefix: Vec<u8>,
    /// The same of the store's, whose numbers follow.
    pub(super) past: Vec<PastPrefix>,
    next: usize,
    /// When they were copied (`Transaction::read_epoch`).
    epoch: u64,
    /// Nothing was copied that does not start with what the search must start with.
    within_prefix: bool,
    /// How many the next batch may have.
    limit: usize,
    /// Some of them come from the history store.
    pub(super) has_past: bool,
}

impl Default for Batch {
    fn default() -> Batch {
        Batch {
            bytes: Vec::new(),
            items: Vec::new(),
            spare: Default::default(),
            prefix: Vec::new(),
            past: Vec::new(),
            next: 0,
            epoch: 0,
            within_prefix: false,
            limit: FIRST_BATCH,
            has_past: false,
        }
    }
}

/// Appends these records of a latched leaf to `bytes`, and where they are to `items`.
pub(super) fn copy_records(
    page: SlottedRef<'_>,
    slots: Range<usize>,
    leaf: u16,
    bytes: &mut Vec<u8>,
    items: &mut Vec<Item>,
) {
    if slots.len() > page.n_slots() / 2 {
        // One copy of everything takes less than many of most.
        let (start, heap) = page.heap();
        let to = bytes.len();
        bytes.extend_from_slice(heap);
        let item = |place: Range<usize>| Item {
            at: (to + place.start - start) as u32,
            len: place.len() as u16,
            leaf,
        };
        items.extend(page.places(slots).map(item));
    } else {
        for place in page.places(slots) {
            let (at, len) = (bytes.len() as u32, place.len() as u16);
            bytes.extend_from_slice(&page.bytes()[place]);
            items.push(Item { at, len, leaf });
        }
    }
}

impl Batch {
    fn clear(&mut self) {
        self.bytes.clear();
        self.items.clear();
        self.past.clear();
        self.next = 0;
        self.has_past = false;
    }

    /// The scan begins anew from somewhere.
    pub(super) fn forget(&mut self) {
        self.clear();
        self.limit = FIRST_BATCH;
    }

    /// Copies these records of a latched leaf.
    fn copy(&mut self, page: SlottedRef<'_>, slots: Range<usize>, direction: Direction) {
        self.clear();
        self.prefix.clear();
        self.prefix.extend_from_slice(page.prefix());
        copy_records(page, slots, 0, &mut self.bytes, &mut self.items);
        if direction == Direction::Backward {
            self.items.reverse();
        }
    }

    /// How many records have not had their turn.
    pub(super) fn left(&self) -> usize {
        self.items.len() - self.next
    }

    /// The `n`-th of them, from 0: its key in two pieces, and where its payload is in `bytes`.
    #[inline(always)]
    pub(super) fn record(&self, n: usize) -> Option<(&[u8], &[u8], Range<usize>)> {
        let item = *self.items.get(self.next + n)?;
        if item.leaf != 0 {
            return Some(self.version(item));
        }
        let (suffix, payload) = self.parts(item);
        Some((&self.prefix, suffix, payload))
    }

    /// The same of one that comes from the history store; apart, so that others do not pay for it.
    #[inline(never)]
    fn version(&self, item: Item) -> (&[u8], &[u8], Range<usize>) {
        let (suffix, payload) = self.parts(item);
        let suffix = &suffix[..suffix.len() - VERSION_KEY_BYTES];
        let payload = payload.start + head_len(&self.bytes[payload.clone()])..payload.end;
        let prefix = self.past[item.leaf as usize - 1].of(&self.bytes);
        (prefix, suffix, payload)
    }

    /// An item's key suffix, and where its payload is.
    #[inline(always)]
    fn parts(&self, item: Item) -> (&[u8], Range<usize>) {
        let (suffix, payload) = record_parts(item.of(&self.bytes));
        let end = item.at as usize + item.len as usize;
        (suffix, end - payload.len()..end)
    }

    /// The next `n` of them have had their turn.
    pub(super) fn skip(&mut self, n: usize) {
        self.next += n;
    }

    /// The `n`-th of them: makes `key` its key, and returns where its payload is.
    #[inline(always)]
    pub(super) fn look(&self, n: usize, key: &mut Vec<u8>) -> Option<Range<usize>> {
        let (prefix, suffix, payload) = self.record(n)?;
        key.clear();
        key.extend_from_slice(prefix);
        key.extend_from_slice(suffix);
        Some(payload)
    }
}

impl Cursor {
    /// Forgets what was read ahead: it will be read again.
    pub(super) fn unread(&mut self) {
        let mut key = Vec::new();
        if self.batch.look(0, &mut key).is_some() {
            self.resume_before(key);
        }
        self.batch.forget();
    }

    pub(super) fn advance_consistent(&mut self, trx: &mut Transaction) -> Result<bool> {
        // At READ COMMITTED each statement opens a view of its own, for which the writer of a record that was
        // copied before may have ended, by a rollback too. And what the transaction itself has taken back
        // must not come from a copy.
        trx.open_read_view();
        if self.batch.epoch != trx.read_epoch() {
            self.unread();
            self.batch.epoch = trx.read_epoch();
        }
        loop {
            let is_cut = self.is_cut();
            while let Some(payload) = self.batch.look(0, &mut self.row.key) {
                if !is_cut && !self.is_in_bounds(&self.row.key) {
                    return Ok(false);
                }
                debug_assert!(self.is_in_bounds(&self.row.key));
                self.batch.next += 1;
                if self.accept(trx, payload)? {
                    return Ok(true);
                }
            }
            if !self.fill(trx)? {
                return Ok(false);
            }
        }
    }

    fn is_in_bounds(&self, key: &[u8]) -> bool {
        self.bounds.contain(key, self.search.direction)
    }

    /// Nothing was copied that lies beyond the bounds.
    pub(super) fn is_cut(&self) -> bool {
        self.search.direction == Direction::Forward
            && (self.batch.within_prefix || !self.bounds.within_prefix)
    }

    /// Whether there is no doubt that the transaction sees what `writer` wrote.
    #[inline]
    pub(super) fn is_seen(&self, trx: &Transaction, writer: TrxId) -> bool {
        // TEMP-2: of a temporary table the newest version counts.
        let by_view = || {
            let view = trx.read_view();
            view.is_none_or(|view| view.sees(writer) == Visibility::Visible)
        };
        self.table.is_temporary() || by_view()
    }

    /// The writer, whom the transaction does not see, began to write after its view was opened. What it
    /// inserted is nothing to the view: what had the key before, if it did not come to the history store, was
    /// purged before the view was opened.
    #[inline]
    pub(super) fn is_later(&self, trx: &Transaction, writer: TrxId) -> bool {
        trx.read_view()
            .is_some_and(|view| view.number().hides(writer))
    }

    /// The same of an entry. But its row may have been changed since by the transaction itself, which sees
    /// the row then, and need not have touched this entry.
    #[inline]
    pub(super) fn is_later_entry(&self, trx: &Transaction, writer: TrxId) -> bool {
        trx.id().is_none() && self.is_later(trx, writer)
    }

    /// Decides whether the transaction sees the record with key `row.key` and what `payload` of the batch
    /// says.
    #[inline]
    fn accept(&mut self, trx: &mut Transaction, payload: Range<usize>) -> Result<bool> {
        if self.index != 0 {
            return self.accept_entry(trx, payload);
        }
        let bytes = &self.batch.bytes[payload.clone()];
        let Some(record) = RowRecord::decode(bytes) else {
            let found = format!("{} bytes", bytes.len());
            return Err(self.index().damage_at(&self.row.key, "a row", found));
        };
        if self.is_seen(trx, record.trx) {
            let is_row = !record.is_deleted();
            if is_row {
                self.row.at = Current::Batch(payload);
            }
            return Ok(is_row);
        }
        if record.roll_ptr.is_insert() && self.is_later(trx, record.trx) {
            return Ok(false);
        }
        self.accept_older(trx, payload)
    }

    /// The view does not see the record of a row: maybe an older version.
    #[cold]
    fn accept_older(&mut self, trx: &mut Transaction, payload: Range<usize>) -> Result<bool> {
        self.row.payload.clear();
        self.row
            .payload
            .extend_from_slice(&self.batch.bytes[payload]);
        let (payload, scratch) = (&mut self.row.payload, &mut self.scratch);
        let found = visible_or_newest(trx, &self.table, &self.row.key, payload, scratch)?;
        if found {
            self.row.at = Current::Version;
        }
        Ok(found)
    }

    fn accept_entry(&mut self, trx: &mut Transaction, payload: Range<usize>) -> Result<bool> {
        let payload = &self.batch.bytes[payload];
        let entry = self.index().entry(payload);
        let parts = entry.and_then(|e| Some((e, e.clustered_key(&self.row.key)?)));
        let Some((entry, clustered)) = parts else {
            let found = format!(
                "{} bytes behind a key of {}",
                payload.len(),
                self.row.key.len()
            );
            return Err(self.index().damage_at(&self.row.key, "an entry", found));
        };
        let seen = self.is_seen(trx, entry.trx);
        if seen && entry.is_deleted() {
            return Ok(false);
        }
        if !seen && entry.is_inserted() && self.is_later_entry(trx, entry.trx) {
            return Ok(false);
        }
        self.row.clustered.clear();
        clustered.push_to(&mut self.row.clustered);
        self.row.flags = entry.flags;
        let is_enough = seen && self.entries_decide(trx);
        // Without a view the row may be newer than its entry.
        let decides = is_enough && trx.read_view().is_some();
        if !self.is_wanted(decides)? {
            return Ok(false);
        }
        if is_enough && self.keys.suffice && !self.keys.asks_row && self.gives_wanted()? {
            self.row.at = Current::Entry;
            return Ok(true);
        }
        let key = std::mem::take(&mut self.row.key);
        let found = self.fetch_clustered(trx, (!decides).then_some(&key[..]));
        self.row.key = key;
        if let Ok(false) = found {
            trx.check_interrupt()?;
        }
        found
    }

    /// Copies the next records of the index into the batch. `false`: there are no more.
    fn fill(&mut self, trx: &Transaction) -> Result<bool> {
        self.batch.clear();
        self.batch.within_prefix = self.bounds.within_prefix;
        let direction = self.search.direction;
        let bound = match direction {
            Direction::Forward => self.bounds.ceiling(),
            Direction::Backward => None,
        };
        while self.batch.items.is_empty() {
            trx.check_interrupt()?;
            let Next::Key(seek) = self.resume.next else {
                return Ok(false);
            };
            let from = &self.resume.key;
            if bound.as_ref().is_some_and(|bound| from >= bound) {
                return Ok(false);
            }
            let index = match self.index {
                0 => &self.table.clustered,
                n => &self.table.secondary[n - 1],
            };
            let limit = match bound {
                Some(_) => self.batch.limit.max(BOUNDED_BATCH),
                None => self.batch.limit,
            };
            let leaf = index.latch_leaf(from, seek, limit)?;
            // Under the latch: whoever misses what purge has removed from the leaf is known as a member.
            let start = self.is_member(trx).then(|| from.clone());
            let page = leaf.slotted();
            let mut candidates = candidates(&leaf, seek.is_forward());
            let cut = bound.as_ref().filter(|bound| {
                let (Ok(end) | Err(end)) = page.search(bound);
                let is_cut = end < candidates.end;
                candidates.end = candidates.end.min(end).max(candidates.start);
                // Nothing of the leaf lies behind the bound, but versions may: they are read with what comes
                // there, if the scan is to go on.
                is_cut || start.is_some() && page.high().is_none_or(|high| &bound[..] < high)
            });
            let left_out = candidates.len().saturating_sub(limit);
            let wanted = match direction {
                Direction::Forward => candidates.start..candidates.end - left_out,
                Direction::Backward => candidates.start + left_out..candidates.end,
            };
            self.batch.copy(page, wanted.clone(), direction);
            let resume = &mut self.resume;
            match (direction, left_out, cut) {
                (_, 0, Some(bound)) => resume.at(bound, Seek::Ge),
                (direction, 0, None) => resume.beyond(&page, direction),
                (Direction::Forward, ..) => resume.after_slot(&page, wanted.end - 1, direction),
                (Direction::Backward, ..) => resume.after_slot(&page, wanted.start, direction),
            }
            let ends_leaf = leaf.ends_leaf(seek);
            drop(leaf);
            let is_cut_short = match start {
                Some(start) => self.add_past(trx, (&start, seek), bound.as_deref(), limit)?,
                None => false,
            };
            if left_out == 0 && cut.is_none() && !is_cut_short && ends_leaf {
                self.leaf_passed();
            }
        }
        self.batch.limit = self.batch.limit.saturating_mul(4);
        Ok(true)
    }
}
