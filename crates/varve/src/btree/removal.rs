//! Removing many records of a leaf in one visit: what purge does.
//!
//! The keys come in ascending order. First the heads of the slots tell where each of them may be, and the
//! processor is asked for all those records: they lie anywhere in the page, and waiting for one after the
//! other took a third of purge's time. Then the records are looked at, and last the garbage among them is
//! removed by one operation, in one pass over the slots. The leaf of the next key is asked for before that,
//! so that its first lines are there when it is visited.
//!
//! Latches: the leaf, for the caller's mini-transaction. Everything that can fail comes before the change.

use smallvec::SmallVec;

use crate::base::Result;
use crate::mtr::Mtr;
use crate::page::{PageOp, SlottedRef};

use super::leaf::is_worth_merging;
use super::{LeafHint, Tree};

/// So many keys take no allocation.
const USUAL_KEYS: usize = 128;
/// Bytes of a record that are looked at first: its key, and the first fields of its payload.
const RECORD_START: usize = 64;

/// What a visit to a leaf came to.
#[derive(Clone, Copy)]
pub struct LeafVisit {
    /// How many of the keys belong into the leaf.
    pub covered: usize,
    pub removed: usize,
    /// After the commit `Tree::maybe_merge` is worth a try.
    pub is_sparse: bool,
    /// Where the next key's leaf probably is.
    pub next: Option<LeafHint>,
}

/// The redo that removing the records of so many keys takes at most.
pub const fn removal_log_bytes(keys: usize) -> u32 {
    32 + 2 * keys as u32
}

impl Tree {
    /// Latches the leaf that covers the first of the ascending `keys`, and removes the records of those that
    /// it covers for which `is_garbage` says so. That is told which of the keys it is and the payload of its
    /// record. `hint`: where the leaf probably is. The caller holds no latch.
    pub fn remove_from_leaf<'k>(
        &self,
        mtr: &mut Mtr<'_>,
        hint: Option<LeafHint>,
        keys: impl Iterator<Item = &'k [u8]> + Clone,
        mut is_garbage: impl FnMut(usize, &[u8]) -> bool,
    ) -> Result<LeafVisit> {
        let first = keys.clone().next().unwrap_or_default();
        let h = self.leaf_exclusive(mtr, first, hint)?;
        let p = SlottedRef::new(mtr.bytes(h));
        let mut places = SmallVec::<[u16; USUAL_KEYS]>::new();
        let mut next = None;
        for key in keys.clone() {
            if p.high().is_some_and(|high| key >= high) {
                // Its slots are about as many.
                next = self.guess_leaf(key, p.slots_end());
                break;
            }
            let slot = p.search_heads(key);
            for place in p.places(slot..p.n_slots().min(slot + 1)) {
                mtr.prefetch(h, place.start..place.end.min(place.start + RECORD_START));
            }
            places.push(slot as u16);
        }
        let covered = places.len();
        let mut slots = SmallVec::<[[u8; 2]; USUAL_KEYS]>::new();
        for (n, (key, place)) in keys.zip(places).enumerate() {
            let Ok(slot) = p.search_from(place.into(), key) else {
                continue;
            };
            let number = (slot as u16).to_le_bytes();
            // A key may come twice.
            if slots.last() != Some(&number) && is_garbage(n, p.payload(slot)) {
                slots.push(number);
            }
        }
        let removed = slots.len();
        if removed > 0 {
            mtr.op(h, PageOp::RemoveMany { slots: &slots });
        }
        let is_sparse = removed > 0 && is_worth_merging(SlottedRef::new(mtr.bytes(h)), removed);
        Ok(LeafVisit {
            covered,
            removed,
            is_sparse,
            next,
        })
    }
}
