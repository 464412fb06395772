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

use crate::base::{Result, TrxNo};
use crate::btree::{Seek, SharedLeaf};
use crate::catalog::RowRecord;
use crate::history::{Kind, VersionOf, version_in};
use crate::page::{VERSION_KEY_BYTES, push_record_parts, record_parts};
use crate::txn::{ReadView, Transaction, Visibility};

use super::consistent::{Item, PastPrefix, copy_records};
use super::state::{Direction, Next};
use super::{Cursor, LockMode};
use crate::table::version::damaged_version;

/// A batch with so much is large enough: what its leaf lacks may be any number of versions, each on another
/// page of the store. A page adds a dozen bytes at least, so there are fewer pages than an item can number.
const MOST_BYTES: usize = 512 << 10;

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

/// Merges versions into records that were copied, in the order of the scan. `S` says of a record's payload
/// what it is to the view.
struct Merge<'a, S> {
    /// Where the result goes.
    items: &'a mut Vec<Item>,
    direction: Direction,
    /// Records leave out so much of their keys.
    prefix_len: usize,
    sight: S,
    /// A record that the view sees is deleted may take a version's place.
    has_written: bool,
    /// The records of the index that have not had their turn.
    own: std::slice::Iter<'a, Item>,
    /// The next one that matters.
    next: Option<(Item, Sight)>,
}

impl<S: Fn(&[u8]) -> Sight> Merge<'_, S> {
    /// Most of what is nothing to the view was inserted later: it need not be compared.
    #[inline]
    fn step(&mut self, bytes: &[u8]) {
        self.next = self.own.by_ref().find_map(|own| {
            let sight = (self.sight)(record_parts(own.of(bytes)).1);
            let matters = match sight {
                Sight::Seen | Sight::Unseen => true,
                Sight::Gone => self.has_written,
                Sight::Nothing => false,
            };
            matters.then_some((*own, sight))
        });
    }

    /// Adds `version`, which has this key, and the records that come before it.
    #[inline]
    fn add(&mut self, bytes: &[u8], key: VersionOf<'_>, version: Item) {
        while let Some((own, sight)) = self.next {
            let suffix = record_parts(own.of(bytes)).0;
            let order = key.compare_behind(self.prefix_len, suffix);
            let order = match self.direction {
                Direction::Forward => order,
                Direction::Backward => order.reverse(),
            };
            match order {
                Ordering::Greater => self.items.push(own),
                Ordering::Less => break,
                Ordering::Equal => {
                    self.step(bytes);
                    match sight {
                        // The view's own transaction wrote it.
                        Sight::Seen => return self.items.push(own),
                        Sight::Gone => return,
                        Sight::Unseen | Sight::Nothing => break,
                    }
                }
            }
            self.step(bytes);
        }
        self.items.push(version);
    }

    /// No version comes any more.
    fn end(mut self, bytes: &[u8]) {
        while let Some((own, _)) = self.next.take() {
            self.items.push(own);
            self.step(bytes);
        }
    }
}

/// Why no more versions are added.
enum End {
    /// The key of the last one.
    Enough(Vec<u8>),
    /// The key of what can't be read.
    Damaged(Vec<u8>),
}

/// Adds a member's versions to a batch.
struct Adding<'a, S> {
    merge: Merge<'a, S>,
    bytes: &'a mut Vec<u8>,
    past: &'a mut Vec<PastPrefix>,
    member: TrxNo,
    /// How many more may be added.
    left: usize,
    /// All of one leaf of the store.
    versions: Vec<Item>,
    end: Option<End>,
}

impl<S: Fn(&[u8]) -> Sight> Adding<'_, S> {
    /// Copies what these slots of a latched leaf of the store hold, as it is stored, and adds the member's.
    fn add_leaf(&mut self, leaf: &SharedLeaf<'_>, slots: Range<usize>) -> Result<ControlFlow<()>> {
        let page = leaf.slotted();
        let start = self.bytes.len();
        let prefix = PastPrefix::copy(page, self.bytes);
        self.past.push(prefix);
        if slots.len() <= page.n_slots() / 2 {
            leaf.prefetch(slots.clone());
        }
        let number = u16::try_from(self.past.len()).expect("MOST_BYTES");
        self.versions.clear();
        copy_records(page, slots, number, self.bytes, &mut self.versions);
        if self.merge.direction == Direction::Backward {
            self.versions.reverse();
        }
        let Some(last) = self.add_versions(leaf, prefix)? else {
            // All of it is other members'.
            self.bytes.truncate(start);
            self.past.pop();
            return Ok(ControlFlow::Continue(()));
        };
        if self.end.is_none() && (self.left == 0 || self.bytes.len() >= MOST_BYTES) {
            let (suffix, payload) = record_parts(last.of(self.bytes));
            let (key, _) = version_in(leaf, prefix.of(self.bytes), suffix, payload)?;
            self.end = Some(End::Enough(key.to_vec()));
        }
        Ok(match self.end {
            Some(_) => ControlFlow::Break(()),
            None => ControlFlow::Continue(()),
        })
    }

    /// Adds those of the member, and returns the last one.
    fn add_versions(&mut self, leaf: &SharedLeaf<'_>, prefix: PastPrefix) -> Result<Option<Item>> {
        let mut last = None;
        for item in &self.versions {
            let (suffix, payload) = record_parts(item.of(self.bytes));
            let (key, version) = version_in(leaf, prefix.of(self.bytes), suffix, payload)?;
            if !version.members.contain(self.member) {
                continue;
            }
            last = Some(*item);
            if version.kind == Kind::Damaged {
                self.end = Some(End::Damaged(key.to_vec()));
                break;
            }
            if suffix.len() >= VERSION_KEY_BYTES {
                self.merge.add(self.bytes, key, *item);
            } else {
                // The page leaves part of the number out, too: the record is made anew.
                let (key, record) = (key.to_vec(), version.record.to_vec());
                let at = self.bytes.len();
                push_record_parts(&key[self.merge.prefix_len..], &record, self.bytes);
                let made = Item {
                    at: at as u32,
                    len: (self.bytes.len() - at) as u16,
                    leaf: 0,
                };
                self.merge.add(self.bytes, VersionOf::whole(&key), made);
            }
            self.left -= 1;
            if self.left == 0 {
                break;
            }
        }
        Ok(last)
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

    /// The keys that a batch covers which was copied from `start` on, up to `resume` and below `bound`.
    fn range_of_batch<'a>(
        &'a self,
        (start, seek): (&'a [u8], Seek),
        bound: Option<&'a [u8]>,
    ) -> (Bound<&'a [u8]>, Bound<&'a [u8]>) {
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
        match self.search.direction {
            Direction::Forward => (near, far),
            Direction::Backward => (far, near),
        }
    }

    /// Adds what the store has for the view to a batch that was copied from `start` on, up to `resume` and
    /// below `bound`. Adds about `most` versions at most: if there may be more, the batch ends there, and so
    /// does `resume`, and this returns true.
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
        let index = self.index().id;
        let mut batch = std::mem::take(&mut self.batch);
        let range = self.range_of_batch((start, seek), bound);
        let [mut own, versions] = std::mem::take(&mut batch.spare);
        std::mem::swap(&mut own, &mut batch.items);
        batch.items.clear();
        let mut adding = Adding {
            merge: Merge {
                items: &mut batch.items,
                direction,
                prefix_len: batch.prefix.len(),
                sight: |payload: &[u8]| self.sight(trx, view, payload),
                has_written: trx.id().is_some(),
                own: own.iter(),
                next: None,
            },
            bytes: &mut batch.bytes,
            past: &mut batch.past,
            member: view.number(),
            left: most,
            versions,
            end: None,
        };
        adding.merge.step(adding.bytes);
        let backward = direction == Direction::Backward;
        let read = trx.core().history.read(|store| {
            store.visit_leaves(index, range, backward, |leaf, slots| {
                adding.add_leaf(leaf, slots)
            })
        });
        let Adding {
            merge,
            bytes,
            left,
            versions,
            end,
            ..
        } = adding;
        if end.is_none() {
            merge.end(bytes);
        }
        batch.has_past = left < most;
        batch.spare = [own, versions];
        self.batch = batch;
        read?;
        match end {
            None => Ok(false),
            Some(End::Enough(last)) => {
                self.resume.at(&last, direction.after());
                Ok(true)
            }
            Some(End::Damaged(key)) => Err(damaged_version(self.index(), &key)),
        }
    }

    #[inline]
    fn sight(&self, trx: &Transaction, view: &ReadView, payload: &[u8]) -> Sight {
        let record = match self.index {
            0 => RowRecord::decode(payload)
                .map(|row| (row.trx, row.is_deleted(), row.roll_ptr.is_insert())),
            _ => self
                .index()
                .entry(payload)
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
