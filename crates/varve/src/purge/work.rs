//! The records of a batch, in the order in which purge works them off: by index and key.
//!
//! So records that are neighbours in a tree are worked off together: one descent, one latch and one mini-transaction for
//! all that lie in a leaf, and each page of a tree that does not fit into memory is read once in a batch. Every rule is a condition
//! on a record's current state (PURGE-2), so the order in which the changes were made does not matter, but for
//! PURGE-1. A batch is worked off in two sweeps, entries then rows.

use crate::base::{IndexId, RollPtr, TrxId};
use crate::undo::{UndoKind, UndoRecord};

/// Bytes of a key's head: two integers.
const HEAD: usize = 16;

/// One undo record that purge has something to do for. It holds what a kill or a deletion takes: the records' bytes lie in the order of the
/// logs, and to look there for each one would take longer than all else.
#[derive(Clone, Copy)]
pub(super) struct Item {
    pub index: IndexId,
    /// The first bytes of the key, then zeros: most comparisons end here.
    head: [u8; HEAD],
    /// The record's writer.
    pub trx: TrxId,
    /// Of the undo record in `Work::bytes`, and of the key.
    start: u32,
    end: u32,
    key_start: u32,
    key_len: u32,
    /// The log's place in the batch.
    pub log: u32,
    pub kind: UndoKind,
    /// The record has long values to be freed.
    pub frees: bool,
    /// Where the undo record stands.
    pub at: RollPtr,
}

impl Item {
    /// The row or entry may have to be removed.
    pub fn removes(&self) -> bool {
        self.kind != UndoKind::RowUpdate
    }
}

#[derive(Default)]
pub(super) struct Work {
    bytes: Vec<u8>,
    pub entries: Vec<Item>,
    pub rows: Vec<Item>,
}

impl Work {
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
        self.rows.clear();
    }

    /// Adds a record of the batch's `log`th log. Called under the latch of the undo page that `bytes` lies in.
    pub fn add(&mut self, record: &UndoRecord<'_>, bytes: &[u8], at: RollPtr, log: usize) {
        let start = self.bytes.len();
        // The record's key is a part of its bytes.
        let key_start = start + (record.key.as_ptr() as usize - bytes.as_ptr() as usize);
        self.bytes.extend_from_slice(bytes);
        let mut head = [0; HEAD];
        let n = record.key.len().min(HEAD);
        head[..n].copy_from_slice(&record.key[..n]);
        let items = match record.kind.is_row() {
            true => &mut self.rows,
            false => &mut self.entries,
        };
        items.push(Item {
            index: record.index,
            head,
            trx: record.trx,
            start: start as u32,
            end: self.bytes.len() as u32,
            key_start: key_start as u32,
            key_len: record.key.len() as u32,
            log: log as u32,
            kind: record.kind,
            frees: !record.frees.is_empty(),
            at,
        });
    }

    pub fn key<'a>(&'a self, item: &'a Item) -> &'a [u8] {
        let len = item.key_len as usize;
        match len <= HEAD {
            true => &item.head[..len],
            false => &self.bytes[item.key_start as usize..][..len],
        }
    }

    pub fn record(&self, item: &Item) -> UndoRecord<'_> {
        let bytes = &self.bytes[item.start as usize..item.end as usize];
        UndoRecord::decode(bytes).expect("decoded before it was copied")
    }

    pub fn sort(&mut self) {
        let (mut entries, mut rows) = (
            std::mem::take(&mut self.entries),
            std::mem::take(&mut self.rows),
        );
        for items in [&mut entries, &mut rows] {
            items.sort_unstable_by(|a, b| {
                let place = |item: &Item| (item.index, u128::from_be_bytes(item.head));
                let order = place(a).cmp(&place(b));
                order.then_with(|| self.key(a).cmp(self.key(b)))
            });
        }
        (self.entries, self.rows) = (entries, rows);
    }
}
