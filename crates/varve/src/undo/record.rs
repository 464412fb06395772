//! Undo records: what has to be known to take back one change of one B+tree record.
//!
//! - **UNDO-1** One undo record per B+tree record changed, written in the same mini-transaction as the
//!   change.
//! - **UNDO-2** Each record names its writer, table and key, so that a reader that follows a roll pointer can
//!   tell whether the slot still holds what it was pointed at.
//!
//! - **UNDO-5** Every overflow page is named by exactly one party: the `OverflowAlloc` of an unfinished
//!   transaction, a live row, or the list `frees` of the update or deletion by which the last such row ceased
//!   to refer to it. An update and a deletion that are not undone own what they list; purge frees it. (A
//!   table that is being loaded has pages that nobody names yet, and is dropped if it stays so: LOAD-2.)
//!
//! Layout (docs/format.md): kind, flags, the pair of the writer's TrxId and the undo number, table id, index
//! id, key, then what the kind needs. Other lengths and ids are varints. Decoding is total: damaged bytes
//! give `None`.

use crate::base::{
    IndexId, MAX_ID_56, PageNo, RollPtr, RowHead, TableId, TrxId, put_pair, take_pair, varint,
};
use crate::row::{EXTERNAL_REF_BYTES, ExternalRef};

use super::header::LogKind;

/// The largest undo number.
pub const MAX_UNDO_NO: u64 = (1 << 48) - 1;

/// What was changed. The numbers are on disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum UndoKind {
    /// Insert log: a row was inserted where no record was.
    RowInsert = 1,
    /// Insert log: a secondary entry was inserted where none was.
    EntryInsert = 2,
    /// Insert log: overflow pages were taken and filled for a row that is about to be written.
    OverflowAlloc = 3,
    /// Insert log: rows are loaded into a table that had none (LOAD-6).
    TableLoad = 4,
    /// Update log: a live row was replaced by a new version.
    RowUpdate = 10,
    /// Update log: a row was delete-marked.
    RowDeleteMark = 11,
    /// Update log: a delete-marked row was un-delete-marked, with new content.
    RowUnmark = 12,
    /// Update log: a secondary entry was delete-marked.
    EntryDeleteMark = 13,
    /// Update log: a secondary entry was un-delete-marked.
    EntryUnmark = 14,
    /// Update log: a secondary entry was delete-marked that nobody has read, in the change buffer (CB-3).
    EntryMarkUnread = 15,
}

impl UndoKind {
    fn from_u8(v: u8) -> Option<UndoKind> {
        use UndoKind::*;
        [
            RowInsert,
            EntryInsert,
            OverflowAlloc,
            TableLoad,
            RowUpdate,
            RowDeleteMark,
            RowUnmark,
            EntryDeleteMark,
            EntryUnmark,
            EntryMarkUnread,
        ]
        .into_iter()
        .find(|k| *k as u8 == v)
    }

    /// The record belongs into the insert log, which is freed at commit.
    pub fn is_insert(self) -> bool {
        use UndoKind::*;
        matches!(self, RowInsert | EntryInsert | OverflowAlloc | TableLoad)
    }

    /// The log that the record belongs into.
    pub(super) fn log_kind(self) -> LogKind {
        match self.is_insert() {
            true => LogKind::Insert,
            false => LogKind::Update,
        }
    }

    /// The change was made to the clustered record (else to a secondary entry).
    pub fn is_row(self) -> bool {
        matches!(
            self,
            UndoKind::RowInsert
                | UndoKind::RowUpdate
                | UndoKind::RowDeleteMark
                | UndoKind::RowUnmark
        )
    }

    /// The record names the clustered index.
    pub fn is_about_rows(self) -> bool {
        self.is_row() || matches!(self, UndoKind::OverflowAlloc | UndoKind::TableLoad)
    }

    /// How many more live rows there are after the change; taking it back is the opposite.
    pub fn row_count_change(self) -> i64 {
        match self {
            UndoKind::RowInsert | UndoKind::RowUnmark => 1,
            UndoKind::RowDeleteMark => -1,
            _ => 0,
        }
    }

    pub fn is_unmark(self) -> bool {
        matches!(self, UndoKind::RowUnmark | UndoKind::EntryUnmark)
    }
}

/// Offset of the flags byte within a record, for setting `FLAG_UNDONE` in place.
pub const FLAGS_OFFSET: u16 = 1;
/// The change was taken back (rollback, savepoint).
pub const FLAG_UNDONE: u8 = 1;

/// The system columns and content that a record had before the change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Previous<'a> {
    pub trx: TrxId,
    pub flags: u8,
    /// Rows only; 0 for entries.
    pub roll_ptr: RollPtr,
    /// Rows: how the old row differs from the new one. Deletions of entries: the middle is the rest of a
    /// long one, which stays what it is.
    pub diff: RowDiff<'a>,
}

impl Previous<'_> {
    /// What stood before the row.
    pub fn head(&self) -> RowHead {
        RowHead {
            flags: self.flags,
            trx: self.trx,
            roll_ptr: self.roll_ptr,
        }
    }
}

/// The old row as a difference to the new row: `new[..prefix] + middle + new[len - suffix..]`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RowDiff<'a> {
    pub prefix: u32,
    pub suffix: u32,
    pub middle: &'a [u8],
}

impl<'a> RowDiff<'a> {
    /// The shortest difference with one middle part.
    pub fn between(old: &'a [u8], new: &[u8]) -> RowDiff<'a> {
        let prefix = common_prefix(old, new);
        let (o, n) = (&old[prefix..], &new[prefix..]);
        let suffix = common_suffix(o, n);
        RowDiff {
            prefix: prefix as u32,
            suffix: suffix as u32,
            middle: &o[..o.len() - suffix],
        }
    }

    /// The part of the new row in place of which the old one has `middle`; `None` if the difference does not
    /// fit that row.
    pub fn replaced<'b>(&self, new: &'b [u8]) -> Option<&'b [u8]> {
        let end = new.len().checked_sub(self.suffix as usize)?;
        new.get(self.prefix as usize..end)
    }

    /// Rebuilds the old row in `out` from the new one; `None` if the difference does not fit that row.
    pub fn apply(&self, new: &[u8], out: &mut Vec<u8>) -> Option<()> {
        self.replaced(new)?;
        out.clear();
        out.extend_from_slice(&new[..self.prefix as usize]);
        out.extend_from_slice(self.middle);
        out.extend_from_slice(&new[new.len() - self.suffix as usize..]);
        Some(())
    }
}

/// Bytes of two rows that are compared at once.
const COMPARED: usize = 16;

/// Length of the common prefix.
fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let (x, y) = (a.as_chunks::<COMPARED>().0, b.as_chunks::<COMPARED>().0);
    let words = x.iter().zip(y).take_while(|(x, y)| x == y).count() * COMPARED;
    words
        + a[words..]
            .iter()
            .zip(&b[words..])
            .take_while(|(x, y)| x == y)
            .count()
}

/// Length of the common suffix.
fn common_suffix(a: &[u8], b: &[u8]) -> usize {
    let (x, y) = (a.as_rchunks::<COMPARED>().1, b.as_rchunks::<COMPARED>().1);
    let pairs = x.iter().rev().zip(y.iter().rev());
    let words = pairs.take_while(|(x, y)| x == y).count() * COMPARED;
    let (a, b) = (&a[..a.len() - words], &b[..b.len() - words]);
    words
        + a.iter()
            .rev()
            .zip(b.iter().rev())
            .take_while(|(x, y)| x == y)
            .count()
}

/// One undo record, decoded in place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UndoRecord<'a> {
    pub kind: UndoKind,
    pub undone: bool,
    /// Position in the transaction's one sequence over both its logs.
    pub undo_no: u64,
    pub trx: TrxId,
    pub table: TableId,
    pub index: IndexId,
    /// The full key of the changed record in `index`.
    pub key: &'a [u8],
    /// `None` for the insert log's kinds.
    pub previous: Option<Previous<'a>>,
    /// `OverflowAlloc` only: the pages, 4 bytes each.
    pub pages: &'a [u8],
    /// `RowUpdate` and `RowDeleteMark` only: the external values that the row ceased to refer to, as
    /// references. These are the record's last bytes. Purge moves a reference to the page after the last one
    /// that it has freed.
    pub frees: &'a [u8],
}

/// An encoded undo record.
#[derive(Clone, Copy)]
pub struct EncodedUndo<'a> {
    pub bytes: &'a [u8],
    /// As `UndoRecord::concerns_purge` says.
    pub concerns_purge: bool,
}

/// Bytes of a page number in `UndoRecord::pages`.
pub const PAGE_NO_BYTES: usize = 4;

/// Reads forward over bytes that may be damaged.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(n)?;
        self.0 = tail;
        Some(head)
    }

    fn u8(&mut self) -> Option<u8> {
        Some(self.take(1)?[0])
    }

    fn varint(&mut self) -> Option<u64> {
        varint::take(&mut self.0)
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        self.array(1)
    }

    /// A number of things of `each` bytes, and these.
    fn array(&mut self, each: usize) -> Option<&'a [u8]> {
        let n = usize::try_from(self.varint()?).ok()?;
        self.take(n.checked_mul(each)?)
    }
}

impl<'a> UndoRecord<'a> {
    /// Purge has something to do for the record once its transaction has committed, unless it was taken back.
    /// A log without such records, and without an un-delete-marking that was taken back, is given back
    /// unread.
    pub fn concerns_purge(&self) -> bool {
        use UndoKind::*;
        match self.kind {
            RowDeleteMark | EntryDeleteMark | EntryMarkUnread => true,
            RowUpdate => !self.frees.is_empty(),
            RowInsert | EntryInsert | OverflowAlloc | TableLoad | RowUnmark | EntryUnmark => false,
        }
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        debug_assert_eq!(self.previous.is_none(), self.kind.is_insert());
        out.push(self.kind as u8);
        out.push(if self.undone { FLAG_UNDONE } else { 0 });
        put_pair(out, self.trx.0, self.undo_no);
        varint::put(out, self.table.0);
        varint::put(out, self.index.0);
        varint::put(out, self.key.len() as u64);
        out.extend_from_slice(self.key);
        if self.kind == UndoKind::OverflowAlloc {
            varint::put(out, (self.pages.len() / PAGE_NO_BYTES) as u64);
            out.extend_from_slice(self.pages);
        }
        let Some(previous) = &self.previous else {
            return;
        };
        previous.head().put(out);
        if self.kind.is_row() {
            varint::put(out, previous.diff.prefix.into());
            varint::put(out, previous.diff.suffix.into());
            varint::put(out, previous.diff.middle.len() as u64);
            out.extend_from_slice(previous.diff.middle);
            if !self.frees.is_empty() {
                varint::put(out, (self.frees.len() / EXTERNAL_REF_BYTES) as u64);
                out.extend_from_slice(self.frees);
            }
        } else if !previous.diff.middle.is_empty() {
            varint::put(out, previous.diff.middle.len() as u64);
            out.extend_from_slice(previous.diff.middle);
        }
    }

    /// The pages of an `OverflowAlloc`.
    pub fn pages(&self) -> impl ExactSizeIterator<Item = PageNo> + use<'a> {
        let numbers = self.pages.chunks_exact(PAGE_NO_BYTES);
        numbers.map(|n| PageNo(u32::from_le_bytes(n.try_into().expect("4 bytes"))))
    }

    /// The external values that the row ceased to refer to.
    pub fn frees(&self) -> impl ExactSizeIterator<Item = ExternalRef> + use<'a> {
        let refs = self.frees.chunks_exact(EXTERNAL_REF_BYTES);
        refs.map(|r| ExternalRef::decode(r.try_into().expect("21 bytes")))
    }

    pub fn decode(bytes: &'a [u8]) -> Option<UndoRecord<'a>> {
        let mut r = Reader(bytes);
        let kind = UndoKind::from_u8(r.u8()?)?;
        let undone = r.u8()? & FLAG_UNDONE != 0;
        let (trx, undo_no) = take_pair(&mut r.0)?;
        if trx > MAX_ID_56 || undo_no > MAX_UNDO_NO {
            return None;
        }
        let mut record = UndoRecord {
            kind,
            undone,
            undo_no,
            trx: TrxId(trx),
            table: TableId(r.varint()?),
            index: IndexId(r.varint()?),
            key: r.bytes()?,
            previous: None,
            pages: &[],
            frees: &[],
        };
        if kind == UndoKind::OverflowAlloc {
            record.pages = r.array(PAGE_NO_BYTES)?;
        }
        if !kind.is_insert() {
            let head = RowHead::take(&mut r.0)?;
            let mut diff = RowDiff::default();
            if kind.is_row() {
                diff.prefix = u32::try_from(r.varint()?).ok()?;
                diff.suffix = u32::try_from(r.varint()?).ok()?;
                diff.middle = r.bytes()?;
                if !r.0.is_empty() {
                    record.frees = r.array(EXTERNAL_REF_BYTES)?;
                }
            } else if !r.0.is_empty() {
                diff.middle = r.bytes()?;
            }
            record.previous = Some(Previous {
                trx: head.trx,
                flags: head.flags,
                roll_ptr: head.roll_ptr,
                diff,
            });
        }
        Some(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::PageNo;
    use proptest::prelude::*;

    #[test]
    fn diff_rebuilds_the_old_row() {
        for (old, new, middle) in [
            ("hello world", "hello there world", ""),
            ("hello there world", "hello world", "there "),
            ("abc", "abc", ""),
            ("", "abc", ""),
            ("abc", "", "abc"),
            ("aXbYc", "aZbZc", "XbY"),
            ("aaaa", "aaa", "a"),
            (
                "0123456789abcdef-X-0123456789abcdef",
                "0123456789abcdef-Y-0123456789abcdef",
                "X",
            ),
            (
                "0123456789abcdef0123456789abcdef",
                "0123456789abcdef",
                "0123456789abcdef",
            ),
        ] {
            let diff = RowDiff::between(old.as_bytes(), new.as_bytes());
            assert_eq!(diff.middle, middle.as_bytes(), "{old} -> {new}");
            let back = RowDiff::between(new.as_bytes(), old.as_bytes());
            assert_eq!(diff.replaced(new.as_bytes()), Some(back.middle));
            let mut out = Vec::new();
            diff.apply(new.as_bytes(), &mut out).expect("fits");
            assert_eq!(out, old.as_bytes());
        }
    }

    fn sample(kind: UndoKind, key: &[u8], middle: &[u8]) -> Vec<u8> {
        let row = kind.is_row();
        let refs = [1, 2].map(|n| ExternalRef {
            page: PageNo(n),
            len: 70_000,
            trx: TrxId(77),
            seq: n.into(),
        });
        let frees = refs.map(|r| r.encode()).concat();
        let previous = (!kind.is_insert()).then(|| Previous {
            trx: TrxId(77),
            flags: 1,
            roll_ptr: if row {
                RollPtr::new(false, 40, PageNo(9), 3)
            } else {
                RollPtr::default()
            },
            diff: if row {
                RowDiff {
                    prefix: 300,
                    suffix: 5,
                    middle,
                }
            } else {
                RowDiff::default()
            },
        });
        let record = UndoRecord {
            kind,
            undone: false,
            undo_no: 1 << 40,
            trx: TrxId(123_456),
            table: TableId(300),
            index: IndexId(5),
            key,
            previous,
            pages: match kind {
                UndoKind::OverflowAlloc => &[7, 0, 0, 0, 0, 1, 0, 0],
                _ => &[],
            },
            frees: match row && previous.is_some() {
                true => &frees,
                false => &[],
            },
        };
        let mut out = Vec::new();
        record.encode(&mut out);
        assert_eq!(UndoRecord::decode(&out), Some(record));
        if kind == UndoKind::OverflowAlloc {
            assert!(record.pages().eq([PageNo(7), PageNo(256)]));
        }
        assert!(
            record
                .frees()
                .eq(refs.into_iter().take(record.frees().len()))
        );
        out
    }

    #[test]
    fn every_kind_survives_the_round_trip_and_every_cut_is_noticed() {
        use UndoKind::*;
        for kind in [
            RowInsert,
            EntryInsert,
            OverflowAlloc,
            TableLoad,
            RowUpdate,
            RowDeleteMark,
            RowUnmark,
            EntryDeleteMark,
            EntryUnmark,
        ] {
            let bytes = sample(kind, b"some key", b"old bytes");
            let list = UndoRecord::decode(&bytes).expect("whole").frees.len();
            // A record without a list of references is whole, too.
            let whole = (list > 0).then(|| bytes.len() - list - 1);
            for cut in (0..bytes.len()).filter(|cut| Some(*cut) != whole) {
                assert_eq!(
                    UndoRecord::decode(&bytes[..cut]),
                    None,
                    "{kind:?} cut at {cut}"
                );
            }
        }
    }

    proptest! {
        #[test]
        fn hostile_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Some(record) = UndoRecord::decode(&bytes) {
                let mut out = Vec::new();
                if let Some(p) = record.previous { let _ = p.diff.apply(&bytes, &mut out); }
            }
        }
    }
}
