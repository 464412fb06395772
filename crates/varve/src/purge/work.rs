//! The records of a batch, in the order in which purge works them off: by index and key.
//!
//! So records that are neighbours in a tree are worked off together: one descent, one latch and one
//! mini-transaction for all that lie in a leaf, and each page of a tree that does not fit into memory is read
//! once in a batch. Every rule is a condition on a record's current state (PURGE-2), so the order in which
//! the changes were made does not matter, but for PURGE-1. A batch is worked off in two sweeps, entries then
//! rows.

use std::cmp::Ordering;

use crate::base::{IndexId, RollPtr, TableId, TrxId, TrxNo};
use crate::undo::{UndoKind, UndoRecord};

/// Bytes of a key's head: two integers.
const HEAD: usize = 16;

/// One undo record that purge has something to do for. It holds what delete-marking an entry or a row takes;
/// the record itself is kept only for what needs more.
#[derive(Clone, Copy)]
pub(super) struct Item {
    pub index: IndexId,
    pub table: TableId,
    /// The first bytes of the key, then zeros: most comparisons end here.
    head: [u8; HEAD],
    /// The record's writer.
    pub trx: TrxId,
    /// Where the undo record stands.
    pub at: RollPtr,
    /// The log's place in the batch.
    pub log: u32,
    /// Of the undo record in `Work::bytes`, if it is kept. No record has more bytes than a page.
    start: u32,
    len: u16,
    /// Of the key in the record.
    key_start: u16,
    key_len: u16,
    pub kind: UndoKind,
    /// The record has external values to be freed.
    pub frees: bool,
}

/// A cache line.
const _: () = assert!(size_of::<Item>() == 64);

impl Item {
    /// The row or entry may have to be removed.
    pub fn removes(&self) -> bool {
        self.kind != UndoKind::RowUpdate
    }

    fn head(&self) -> u128 {
        u128::from_be_bytes(self.head)
    }
}

/// An item while its half of the batch is sorted: what is moved about then is small.
#[derive(Clone, Copy)]
struct Place {
    /// The first bits of index and head in which items differ.
    bits: u64,
    item: u32,
}

#[derive(Default)]
pub(super) struct Work {
    bytes: Vec<u8>,
    pub entries: Vec<Item>,
    pub rows: Vec<Item>,
    /// Space to sort in.
    places: Vec<Place>,
    unsorted: Vec<Item>,
    /// Versions are copied for members of the history store, of which the newest has this number: the bytes
    /// of all records in the batch are kept.
    pub newest_member: Option<TrxNo>,
    /// Of the batch's logs, if versions are copied.
    pub numbers: Vec<TrxNo>,
    /// Updates that were left out (COPY-4).
    pub unneeded: u64,
}

impl Work {
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
        self.rows.clear();
        self.numbers.clear();
        self.unneeded = 0;
    }

    /// Versions are copied.
    pub fn copies(&self) -> bool {
        self.newest_member.is_some()
    }

    /// Whether to add an update that takes nothing but copying the version before it (COPY-4). Counts what
    /// is left out.
    pub fn wants_update(&mut self, update: &UndoRecord<'_>) -> bool {
        let Some(newest) = self.newest_member else {
            return false;
        };
        let previous = update.previous.as_ref();
        let is_wanted = previous.is_none_or(|previous| !newest.hides(previous.trx));
        self.unneeded += u64::from(!is_wanted);
        is_wanted
    }

    /// Adds a record of the batch's `log`th log. Called under the latch of the undo page that `bytes` lies
    /// in.
    pub fn add(&mut self, record: &UndoRecord<'_>, bytes: &[u8], at: RollPtr, log: usize) {
        let (start, key) = (self.bytes.len(), record.key);
        let needs_record = record.kind.is_unmark() || !record.frees.is_empty();
        let is_kept = key.len() > HEAD || needs_record || self.copies();
        let kept = if is_kept { bytes } else { &[] };
        self.bytes.extend_from_slice(kept);
        let mut head = [0; HEAD];
        let n = key.len().min(HEAD);
        head[..n].copy_from_slice(&key[..n]);
        let items = match record.kind.is_row() {
            true => &mut self.rows,
            false => &mut self.entries,
        };
        items.push(Item {
            index: record.index,
            table: record.table,
            head,
            trx: record.trx,
            at,
            log: log as u32,
            start: start as u32,
            len: kept.len() as u16,
            // The record's key is a part of its bytes.
            key_start: (key.as_ptr() as usize - bytes.as_ptr() as usize) as u16,
            key_len: key.len() as u16,
            kind: record.kind,
            frees: !record.frees.is_empty(),
        });
    }

    /// Forgets the records of the logs from the `end`th on.
    pub fn truncate(&mut self, end: usize) {
        for items in [&mut self.entries, &mut self.rows] {
            items.retain(|item| (item.log as usize) < end);
        }
    }

    pub fn key<'a>(&'a self, item: &'a Item) -> &'a [u8] {
        key(&self.bytes, item)
    }

    /// Both are of the same row or entry.
    pub fn is_same_key(&self, a: &Item, b: &Item) -> bool {
        a.index == b.index && self.key(a) == self.key(b)
    }

    /// The record of an item that frees something, or of an un-delete-marking; of any item if versions are
    /// copied.
    pub fn record(&self, item: &Item) -> UndoRecord<'_> {
        let bytes = &self.bytes[item.start as usize..][..item.len as usize];
        UndoRecord::decode(bytes).expect("decoded before it was copied")
    }

    /// The number of the item's log, if versions are copied.
    pub fn number(&self, item: &Item) -> TrxNo {
        self.numbers[item.log as usize]
    }

    pub fn sort(&mut self) {
        for items in [&mut self.entries, &mut self.rows] {
            self.places.clear();
            self.places.extend(places(items));
            self.places.sort_unstable_by(|a, b| {
                let of = |place: &Place| &items[place.item as usize];
                a.bits
                    .cmp(&b.bits)
                    .then_with(|| compare(&self.bytes, of(a), of(b)))
            });
            std::mem::swap(items, &mut self.unsorted);
            items.clear();
            items.extend(self.places.iter().map(|p| self.unsorted[p.item as usize]));
        }
    }
}

fn key<'a>(bytes: &'a [u8], item: &'a Item) -> &'a [u8] {
    let len = item.key_len as usize;
    match len <= HEAD {
        true => &item.head[..len],
        false => &bytes[item.start as usize + item.key_start as usize..][..len],
    }
}

fn compare(bytes: &[u8], a: &Item, b: &Item) -> Ordering {
    let place = |item: &Item| (item.index, item.head());
    let order = place(a).cmp(&place(b));
    order.then_with(|| key(bytes, a).cmp(key(bytes, b)))
}

/// Keys of neighbours have long common beginnings, and a batch has few indexes. So of the index's bits those
/// are taken that are not the same in all items, then as many of the heads' bits, from the first on that is
/// not the same in all.
fn places(items: &[Item]) -> impl Iterator<Item = Place> {
    let (mut indexes, mut heads) = (0u64, 0u128);
    for item in items {
        indexes |= item.index.0 ^ items[0].index.0;
        heads |= item.head() ^ items[0].head();
    }
    let index_bits = u64::BITS - indexes.leading_zeros();
    let same = heads.leading_zeros();
    items.iter().zip(0..).map(move |(item, n)| {
        let index = item.index.0.checked_shl(u64::BITS - index_bits);
        let head = item.head().checked_shl(same).unwrap_or_default();
        let head = head.checked_shr(u64::BITS + index_bits);
        Place {
            bits: index.unwrap_or_default() | head.unwrap_or_default() as u64,
            item: n,
        }
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::undo::{Previous, RowDiff};

    /// COPY-4.
    #[test]
    fn an_update_is_left_out_if_the_newest_member_does_not_see_what_it_replaced() {
        let update = |writer| UndoRecord {
            kind: UndoKind::RowUpdate,
            undone: false,
            undo_no: 0,
            trx: TrxId(50),
            table: TableId(3),
            index: IndexId(4),
            key: b"k",
            previous: Some(Previous {
                trx: TrxId(writer),
                flags: 0,
                roll_ptr: RollPtr::default(),
                diff: RowDiff::default(),
            }),
            pages: &[],
            frees: &[],
        };
        let mut work = Work::default();
        assert!(!work.wants_update(&update(9)));
        assert_eq!(work.unneeded, 0, "nobody counts where nothing is copied");
        work.newest_member = Some(TrxNo(40));
        let wanted = [9, 39, 40, 41].map(|writer| work.wants_update(&update(writer)));
        assert_eq!((wanted, work.unneeded), ([true, true, false, false], 2));
        work.clear();
        assert_eq!(work.unneeded, 0);
    }

    /// Whatever the first bits are that make the difference.
    #[test]
    fn items_are_in_the_order_of_index_and_key() {
        let keys: [&[u8]; 11] = [
            b"",
            b"\0",
            b"\0\0",
            b"a",
            b"aaaaaaaaaaaaaaaa",
            b"aaaaaaaaaaaaaaaa\0",
            b"aaaaaaaaaaaaaaaab",
            b"aaaaaaaaaaaaaaac",
            b"aaaaaaaz",
            b"b",
            b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        ];
        let indexes: [&[u64]; 5] = [&[7], &[7, 8], &[1, 2, 1 << 40], &[0, u64::MAX], &[6, 5, 4]];
        for (indexes, keys) in indexes
            .iter()
            .flat_map(|i| [(*i, &keys[..]), (*i, &keys[4..7]), (*i, &keys[..1])])
        {
            let mut work = Work::default();
            let mut expected = Vec::new();
            let pairs = indexes
                .iter()
                .flat_map(|i| keys.iter().map(move |k| (*i, *k)));
            for (n, (index, key)) in pairs.clone().chain(pairs).enumerate() {
                let record = UndoRecord {
                    kind: UndoKind::RowInsert,
                    undone: false,
                    undo_no: n as u64,
                    trx: TrxId(9),
                    table: TableId(3),
                    index: IndexId(index),
                    key,
                    previous: None,
                    pages: &[],
                    frees: &[],
                };
                let mut bytes = Vec::new();
                record.encode(&mut bytes);
                let record = UndoRecord::decode(&bytes).expect("just encoded");
                work.add(&record, &bytes, RollPtr::default(), n);
                expected.push((index, key.to_vec()));
            }
            work.sort();
            expected.sort();
            let rows = work.rows.iter();
            let found: Vec<_> = rows.map(|r| (r.index.0, work.key(r).to_vec())).collect();
            assert_eq!(found, expected);
            work.truncate(2);
            assert_eq!(work.rows.len(), 2);
        }
    }
}
