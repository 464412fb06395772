//! Looking at the rows behind the current one that a consistent scan forward has copied already, and going on
//! over several of them at once: who hands rows on in portions pays for a move once for each portion.
//!
//! - **PEEK-1** A row that was peeked at is the one that as many moves in the same direction come to. What
//!   would take more than a look (an older version, an external value, a filter, the next leaf) ends the rows
//!   that can be peeked at.

use std::ops::Range;

use crate::catalog::{EXTERNAL, EntryRecord, ROW_AT, RowRecord};
use crate::row::{KeyField, RowRef};
use crate::txn::Transaction;

use super::state::Current;
use super::{Cursor, LockMode};

/// A row behind the current one.
pub enum Peeked<'a> {
    Row(RowRef<'a>),
    /// Nothing but the row's key is wanted.
    Entry(PeekedEntry<'a>),
}

/// An entry of a secondary index behind the current one.
pub struct PeekedEntry<'a> {
    /// The key's first bytes, and the others.
    pub key: (&'a [u8], &'a [u8]),
    pub(super) record: EntryRecord<'a>,
}

impl Peeked<'_> {
    /// Reads fields of a row's key: `out` gets their values one behind the other, and has just the room for
    /// them. `false` if the key is damaged: the move there says where.
    #[inline]
    pub fn read_fields(
        (prefix, suffix): (&[u8], &[u8]),
        fields: &[KeyField],
        mut out: &mut [u8],
    ) -> bool {
        for field in fields {
            let (value, rest) = out.split_at_mut(field.len());
            if field.read_split(prefix, suffix, value).is_err() {
                return false;
            }
            out = rest;
        }
        true
    }
}

impl Cursor {
    /// How many rows can be peeked at, at most: none unless the scan goes forward and reads what the view
    /// sees.
    pub fn peekable(&self) -> usize {
        let is_plain = self.search.lock == LockMode::None && !self.row.is_none() && self.is_cut();
        let decides = self.index == 0 || (self.keys.suffice && self.keys.filter.is_none());
        match is_plain && decides {
            true => self.batch.left(),
            false => 0,
        }
    }

    /// The `n`-th row behind the current one, from 0, which is below `peekable`; `None` if it can't be had by
    /// a look.
    #[inline]
    pub fn peek(&self, trx: &Transaction, n: usize) -> Option<Peeked<'_>> {
        let (prefix, suffix, payload) = self.batch.record(n)?;
        let payload = self.batch.bytes.get(payload)?;
        if self.index != 0 {
            let entry = self.index().entry(payload)?;
            let is_whole = entry.clustered_key_len as usize <= prefix.len() + suffix.len();
            let is_seen = self.is_seen(trx, entry.trx) && self.entries_decide(trx);
            let is_plain = is_whole && !entry.is_long() && !entry.is_deleted() && is_seen;
            let (key, record) = ((prefix, suffix), entry);
            return is_plain.then_some(Peeked::Entry(PeekedEntry { key, record }));
        }
        let record = RowRecord::decode(payload)?;
        let is_plain = payload[0] & EXTERNAL == 0 && !record.is_deleted();
        if !is_plain || !self.is_seen(trx, record.trx) {
            return None;
        }
        // What is damaged is told by the move that comes there.
        let row = RowRef::new(&self.table.format, &payload[ROW_AT..]).ok()?;
        (!row.has_external_values()).then_some(Peeked::Row(row))
    }

    /// Goes on over `n` rows that were peeked at, to the last of them (PEEK-1).
    pub fn pass(&mut self, trx: &mut Transaction, n: usize) {
        let Some(last) = n.checked_sub(1) else {
            return;
        };
        let payload = self.batch.look(last, &mut self.row.key).expect("PEEK-1");
        self.row.at = self.on_peeked(payload);
        self.batch.skip(n);
        trx.count_rows(n as u64);
    }

    fn on_peeked(&mut self, payload: Range<usize>) -> Current {
        if self.index == 0 {
            return Current::Batch(payload);
        }
        let entry = self.index().entry(&self.batch.bytes[payload]);
        let clustered = entry.as_ref().and_then(|e| e.clustered_key(&self.row.key));
        self.row.clustered.clear();
        clustered.expect("PEEK-1").push_to(&mut self.row.clustered);
        self.row.flags = entry.map_or(0, |entry| entry.flags);
        Current::Entry
    }
}
