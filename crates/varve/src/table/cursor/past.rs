//! What the history store has for a scan: records that the view sees, and that purge has removed from the
//! index or that were changed since.
//!
//! After a scan has copied records of a leaf, and let go of it, it reads what the store has for the view
//! between the key where it was and the key where it goes on, and puts that among the records, in the order
//! of the scan. A version takes the place of a record with the same key, unless the view sees that record:
//! then the view's own transaction has written it. So what was copied is read like any other batch.
//!
//! - **PAST-1** What is missing from the leaf because purge has removed it was in the store before that. So a
//!   range that is read after the leaf has it.
//! - **PAST-2** A version in the store is the one that its members see, whatever the index has by now
//!   (STORE-1, STORE-2). That none is there means nothing for a record of the leaf: its chain is followed,
//!   and the store asked when that is cut (MVCC-2).
//!
//! An entry that the view sees may belong to a row that the view's own transaction has changed since, and
//! whose entry, which this transaction would have marked, was in the store already. So once it has written,
//! it looks at the rows of a batch with versions from the store.

use std::cmp::Ordering;
use std::ops::{Bound, ControlFlow, Range};

use crate::base::Result;
use crate::btree::Seek;
use crate::catalog::{EntryRecord, RowRecord};
use crate::history::{Kind, Version, VersionOf};
use crate::page::{push_record_parts, record_parts};
use crate::txn::{ReadView, Transaction, Visibility};

use super::consistent::Batch;
use super::state::{Direction, Next};
use super::{Cursor, LockMode};
use crate::table::version::damaged_version;

/// What a record of the index is to a view.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sight {
    Seen,
    /// It sees that the record is deleted.
    Gone,
    Unseen,
    /// It does not see it, nor anything older, unless that is in the history store.
    Nothing,
}

/// Merges versions into the records of a batch, which are in the order of the scan. `S` says of a record's
/// payload what it is to the view.
struct Merge<'a, S> {
    batch: &'a mut Batch,
    direction: Direction,
    sight: S,
    /// A record that the view sees is deleted may take a version's place.
    has_written: bool,
    /// The batch's own records that have not had their turn.
    own: std::slice::Iter<'a, Range<u32>>,
    /// The next one that matters.
    next: Option<(Range<u32>, Sight)>,
    key: Vec<u8>,
}

/// Most keys differ in their first bytes behind what all of them begin with.
#[inline]
fn compare(a: &[u8], b: &[u8]) -> Ordering {
    match (a.first_chunk(), b.first_chunk()) {
        (Some(x), Some(y)) if x != y => u64::from_be_bytes(*x).cmp(&u64::from_be_bytes(*y)),
        _ => a.cmp(b),
    }
}

/// The payload of a record of a batch.
#[inline]
fn record_of<'a>(bytes: &'a [u8], item: &Range<u32>) -> &'a [u8] {
    record_parts(&bytes[item.start as usize..item.end as usize]).1
}

impl<S: Fn(&[u8]) -> Sight> Merge<'_, S> {
    /// Most of what is nothing to the view was inserted later: it need not be compared.
    #[inline]
    fn step(&mut self) {
        self.next = self.own.by_ref().find_map(|own| {
            let sight = (self.sight)(record_of(&self.batch.bytes, own));
            let matters = match sight {
                Sight::Seen | Sight::Unseen => true,
                Sight::Gone => self.has_written,
                Sight::Nothing => false,
            };
            matters.then(|| (own.clone(), sight))
        });
    }

    #[inline]
    fn compare(&self, own: &Range<u32>, suffix: &[u8]) -> Ordering {
        let (own, _) = record_parts(&self.batch.bytes[own.start as usize..own.end as usize]);
        let order = compare(own, suffix);
        match self.direction {
            Direction::Forward => order,
            Direction::Backward => order.reverse(),
        }
    }

    /// Adds a version with this key, and the batch's records that come before it.
    #[inline]
    fn add(&mut self, key: VersionOf<'_>, record: &[u8]) {
        let mut buffer = std::mem::take(&mut self.key);
        self.add_suffix(key.without(self.batch.prefix.len(), &mut buffer), record);
        self.key = buffer;
    }

    #[inline]
    fn add_suffix(&mut self, suffix: &[u8], record: &[u8]) {
        while let Some((own, sight)) = self.next.clone() {
            match self.compare(&own, suffix) {
                Ordering::Less => self.batch.items.push(own),
                Ordering::Greater => break,
                Ordering::Equal => {
                    self.step();
                    match sight {
                        // The view's own transaction wrote it.
                        Sight::Seen => return self.batch.items.push(own),
                        Sight::Gone => return,
                        Sight::Unseen | Sight::Nothing => break,
                    }
                }
            }
            self.step();
        }
        let start = self.batch.bytes.len() as u32;
        push_record_parts(suffix, record, &mut self.batch.bytes);
        let end = self.batch.bytes.len() as u32;
        self.batch.items.push(start..end);
    }

    /// No version comes any more.
    fn end(mut self) {
        while let Some((own, _)) = self.next.take() {
            self.batch.items.push(own);
            self.step();
        }
    }
}

impl Cursor {
    /// What the view needs may be in the history store.
    pub(super) fn is_member(&self, trx: &Transaction) -> bool {
        debug_assert!(self.search.lock == LockMode::None);
        !self.table.is_temporary() && trx.read_view().is_some_and(|view| view.is_member())
    }

    /// What the transaction sees of an entry says whether it sees the row with it.
    pub(super) fn entries_decide(&self, trx: &Transaction) -> bool {
        !self.batch.has_past || trx.id().is_none()
    }

    /// Adds what the store has for the view to a batch that was copied from `start` on, up to `resume` and
    /// below `bound`. Adds `most` versions at most: if there may be more, the batch ends there, and so does
    /// `resume`, and this returns true.
    pub(super) fn add_past(
        &mut self,
        trx: &Transaction,
        (start, seek): (&[u8], Seek),
        bound: Option<&[u8]>,
        most: usize,
    ) -> Result<bool> {
        let Some(view) = trx.read_view() else {
            return Ok(false);
        };
        let direction = self.search.direction;
        let near = match seek {
            Seek::Ge => Bound::Included(start),
            Seek::Gt | Seek::Lt => Bound::Excluded(start),
        };
        let far = match self.resume.next {
            Next::Key(Seek::Ge) => Bound::Excluded(&self.resume.key[..]),
            Next::Key(Seek::Gt | Seek::Lt) => Bound::Included(&self.resume.key[..]),
            Next::End | Next::BehindRow => Bound::Unbounded,
        };
        // The leaf may reach beyond it.
        let far = match (far, bound) {
            (Bound::Included(far) | Bound::Excluded(far), Some(bound)) if far >= bound => {
                Bound::Excluded(bound)
            }
            (Bound::Unbounded, Some(bound)) => Bound::Excluded(bound),
            (far, _) => far,
        };
        let range = match direction {
            Direction::Forward => (near, far),
            Direction::Backward => (far, near),
        };
        let index = self.index().id;
        let mut batch = std::mem::take(&mut self.batch);
        let own = std::mem::replace(&mut batch.items, std::mem::take(&mut batch.spare));
        batch.items.clear();
        let mut merge = Merge {
            batch: &mut batch,
            direction,
            sight: |payload: &[u8]| self.sight(trx, view, payload),
            has_written: trx.id().is_some(),
            own: own.iter(),
            next: None,
            key: Vec::new(),
        };
        merge.step();
        let (mut left, mut last) = (most, Vec::new());
        let mut damaged = None;
        let read = trx.core().history.read(|store| {
            let add = |key: VersionOf<'_>, version: Version<'_>| {
                if version.kind == Kind::Damaged {
                    damaged = Some(key.to_vec());
                    return ControlFlow::Break(());
                }
                merge.add(key, version.record);
                left -= 1;
                if left > 0 {
                    return ControlFlow::Continue(());
                }
                last = key.to_vec();
                ControlFlow::Break(())
            };
            let backward = direction == Direction::Backward;
            store.visit(index, range, Some(view.number()), backward, add)
        });
        let is_cut_short = left == 0;
        if !is_cut_short {
            merge.end();
        }
        batch.has_past = left < most;
        batch.spare = own;
        self.batch = batch;
        read?;
        if let Some(key) = damaged {
            return Err(damaged_version(self.index(), &key));
        }
        if is_cut_short {
            self.resume.at(&last, direction.after());
        }
        Ok(is_cut_short)
    }

    #[inline]
    fn sight(&self, trx: &Transaction, view: &ReadView, payload: &[u8]) -> Sight {
        let record = match self.index {
            0 => RowRecord::decode(payload)
                .map(|row| (row.trx, row.is_deleted(), row.roll_ptr.is_insert())),
            _ => EntryRecord::decode(payload)
                .map(|entry| (entry.trx, entry.is_deleted(), entry.is_inserted())),
        };
        // What is no record is told when its turn comes.
        let Some((writer, is_deleted, is_inserted)) = record else {
            return Sight::Seen;
        };
        let is_later = match self.index {
            0 => self.is_later(trx, writer),
            _ => self.is_later_entry(trx, writer),
        };
        match view.sees(writer) == Visibility::Visible {
            true if is_deleted => Sight::Gone,
            true => Sight::Seen,
            false if is_inserted && is_later => Sight::Nothing,
            false => Sight::Unseen,
        }
    }
}
