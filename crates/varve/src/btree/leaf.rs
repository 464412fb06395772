//! Latched leaves: where a search arrived, and the changes of single records.
//!
//! A thread that holds one of these holds its leaf's latch, and must not descend again before giving it back
//! (BT-5).

use std::ops::Range;

use crate::base::PageId;
use crate::buffer::SharedPage;
use crate::mtr::{Mtr, PageHandle};
use crate::page::{PageOp, SlottedRef};

use super::{LeafHint, Seek};

/// A leaf latched shared, and where the search arrived in it.
pub struct SharedLeaf<'a> {
    page: SharedPage<'a>,
    /// A boundary between slots. Forward: the candidates are `at..n_slots`, and go on in the leaf found by
    /// `Ge` of the high fence. Backward: they are `0..at` from the end, and go on in the leaf found by `Lt`
    /// of the low fence.
    pub at: usize,
    /// The search was for `Ge`, and the record at `at` has the very key.
    pub exact: bool,
}

impl<'a> SharedLeaf<'a> {
    /// Has the processor fetch these slots' records, all at once.
    pub fn prefetch(&self, slots: Range<usize>) {
        for place in self.slotted().places(slots) {
            self.page.prefetch(place);
        }
    }

    pub(super) fn new(page: SharedPage<'a>, at: usize, exact: bool) -> SharedLeaf<'a> {
        SharedLeaf { page, at, exact }
    }

    #[inline]
    pub fn slotted(&self) -> SlottedRef<'_> {
        SlottedRef::new(&self.page)
    }

    pub fn page_id(&self) -> PageId {
        self.page.id()
    }
}

/// The boundary at which candidates begin (forward) or end (backward).
#[inline]
pub(super) fn boundary(p: SlottedRef<'_>, key: &[u8], seek: Seek) -> usize {
    boundary_of(p.search(key), seek)
}

/// The same from what a search for the key found.
#[inline]
pub(super) fn boundary_of(found: std::result::Result<usize, usize>, seek: Seek) -> usize {
    match (found, seek) {
        (Ok(slot), Seek::Gt) => slot + 1,
        (Ok(slot) | Err(slot), _) => slot,
    }
}

/// A leaf latched exclusively in a mini-transaction: the one that covers a key, and where the key is or
/// belongs.
#[derive(Clone, Copy)]
pub struct LeafPos {
    pub h: PageHandle,
    pub slot: u16,
    /// `slot` holds a record with the key; otherwise an insert goes there.
    pub found: bool,
}

impl LeafPos {
    /// Where `key` is or belongs in the leaf `p`, which covers it.
    #[inline]
    pub(super) fn search(h: PageHandle, p: SlottedRef<'_>, key: &[u8]) -> LeafPos {
        let (slot, found) = match p.search_covered(key) {
            Ok(slot) => (slot, true),
            Err(slot) => (slot, false),
        };
        let slot = slot as u16;
        LeafPos { h, slot, found }
    }

    #[inline]
    pub fn slotted<'m>(&self, mtr: &'m Mtr<'_>) -> SlottedRef<'m> {
        SlottedRef::new(mtr.bytes(self.h))
    }

    /// The payload of the record that was found.
    #[inline]
    pub fn payload<'m>(&self, mtr: &'m Mtr<'_>) -> &'m [u8] {
        assert!(self.found, "no record at this position");
        self.slotted(mtr).payload(self.slot as usize)
    }

    /// The key that is about to be inserted goes on with a run: it comes behind all others of the leaf, and
    /// so did the one before it. Then the next one probably belongs there, too.
    #[inline]
    pub fn run_hint(&self, mtr: &Mtr<'_>) -> Option<LeafHint> {
        let (p, slot) = (self.slotted(mtr), self.slot as usize);
        let goes_on = slot == p.n_slots() && slot.checked_sub(1) == p.last_insert();
        goes_on.then(|| LeafHint::of(mtr, self.h))
    }

    /// Inserts `key`, which was not found, with the payload for which room was asked.
    #[inline]
    pub fn insert(&mut self, mtr: &mut Mtr<'_>, key: &[u8], payload: &[u8]) {
        assert!(!self.found, "the key is there already");
        let prefix_len = self.slotted(mtr).prefix_len();
        mtr.op(
            self.h,
            PageOp::Insert {
                slot: self.slot,
                suffix: &key[prefix_len..],
                payload,
            },
        );
        self.found = true;
    }

    /// Removes the record that was found. If the leaf is `underfull` then, call `Tree::maybe_merge` after the
    /// commit.
    #[cfg(test)]
    pub fn remove(&mut self, mtr: &mut Mtr<'_>) {
        assert!(self.found, "no record at this position");
        mtr.op(self.h, PageOp::Remove { slot: self.slot });
        self.found = false;
    }

    /// Overwrites bytes inside the payload of the record that was found.
    #[cfg(test)]
    pub fn patch(&self, mtr: &mut Mtr<'_>, off: usize, bytes: &[u8]) {
        assert!(self.found, "no record at this position");
        mtr.op(
            self.h,
            PageOp::PatchPayload {
                slot: self.slot,
                off: off as u16,
                bytes,
            },
        );
    }

    /// The leaf is worth a `Tree::maybe_merge` after a removal, once the latch is given back.
    #[inline]
    pub fn underfull(&self, mtr: &Mtr<'_>) -> bool {
        self.is_sparse(mtr, 1)
    }

    /// The same after so many removals.
    #[inline]
    pub fn is_sparse(&self, mtr: &Mtr<'_>, removed: usize) -> bool {
        is_worth_merging(self.slotted(mtr), removed)
    }
}

/// Less than a third of the leaf is in use after `removed` removals. Says so only for every eighth removal,
/// and for the last few records: if the neighbours are full, each attempt is for nothing.
#[inline]
pub(super) fn is_worth_merging(p: SlottedRef<'_>, removed: usize) -> bool {
    let n = p.n_slots();
    underfull(p) && (n < 4 || n.next_multiple_of(8) < n + removed)
}

pub(super) fn underfull(p: SlottedRef<'_>) -> bool {
    p.used_space() < p.capacity() / 3
}
