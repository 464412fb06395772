//! Shifting: a full leaf gives records to a neighbour before it is split. All leaves of a *dense* tree do,
//! and in any other tree those in which a record grows, or an ascending run ends before other records.
//!
//! Insertions in random order leave leaves two thirds full if a full one is split in two. Here it is split
//! only when its neighbours are nearly full, too, as in Knuth's B*-trees; but two full pages do not become
//! three at once, and only neighbours under the same parent are looked at. It costs rewriting a page each
//! time, which is why no tree is dense that is redo-logged.
//!
//! Records that grow are another matter. Runs of insertions leave full leaves behind, and if their rows
//! grow later, each of these leaves would be split, and stay half full. With this the first one makes room
//! for some of the next ones, too. Mostly they grow in the order of their keys, or against it, which their
//! writers tell: then what has grown is left in nearly full pages, and what has room moves along with the
//! growth (`plan.rs`). What lies beyond the end of a run would get a page of its own, once in a run: the
//! next page takes it, if it has the room.
//!
//! Like a split it is one mini-transaction (BT-4): parent, left and right page are latched, in this order,
//! and the separator between the two becomes another one. That a page's range grows is nothing to those who
//! come by an old image: they end on the wrong side of a fence, and start again (BT-1).

use std::sync::atomic::Ordering::Relaxed;

use crate::base::Result;
use crate::mtr::{Mtr, PageHandle};
use crate::page::{BulkRecsBuilder, CHILD_BYTES, PageOp, PageType, SlottedRef, record_cost};

use super::Tree;
use super::descend::child_at;
use super::plan::{Moved, ShiftPlan, plan_shift};

/// Two neighbours, latched exclusively.
#[derive(Clone, Copy)]
struct Pair {
    left: PageHandle,
    right: PageHandle,
}

impl Tree {
    /// Moves records of a leaf without `room` bytes for `key`, child `slot` of `parent`, to a neighbour, if
    /// that is worth it. `leaf` is latched exclusively, as the parent is; it may be let go and latched again,
    /// which the parent's latch makes the same page with the same range.
    pub(super) fn shift(
        &self,
        mtr: &mut Mtr<'_>,
        (parent, slot): (PageHandle, usize),
        leaf: &mut PageHandle,
        key: &[u8],
        room: usize,
    ) -> Result<bool> {
        let child = |mtr: &Mtr<'_>, slot| child_at(SlottedRef::new(mtr.bytes(parent)), slot);
        if let Some(no) = child(mtr, slot + 1) {
            let right = self.latch_child_page(mtr, parent, slot + 1, no, 0)?;
            let pair = Pair { left: *leaf, right };
            if self.shift_between(mtr, (parent, slot + 1), pair, key, room) {
                return Ok(true);
            }
            mtr.release(right);
        }
        let before = slot.checked_sub(1).and_then(|before| child(mtr, before));
        let (Some(before), Some(no)) = (before, child(mtr, slot)) else {
            return Ok(false);
        };
        // BT-3
        mtr.release(*leaf);
        let left = self.latch_child_page(mtr, parent, slot - 1, before, 0)?;
        *leaf = self.latch_child_page(mtr, parent, slot, no, 0)?;
        let pair = Pair { left, right: *leaf };
        if self.shift_between(mtr, (parent, slot), pair, key, room) {
            return Ok(true);
        }
        mtr.release(left);
        Ok(false)
    }

    /// The same between two leaves, of which the right one is child `slot` of `parent`.
    fn shift_between(
        &self,
        mtr: &mut Mtr<'_>,
        (parent, slot): (PageHandle, usize),
        Pair { left, right }: Pair,
        key: &[u8],
        room: usize,
    ) -> bool {
        let above = SlottedRef::new(mtr.bytes(parent));
        let l = SlottedRef::new(mtr.bytes(left));
        let r = SlottedRef::new(mtr.bytes(right));
        // The separator of before goes.
        let most = above.free_space() + above.cost(slot);
        let fits = |plan: &ShiftPlan| {
            let suffix = plan.separator.len() - above.prefix_len();
            record_cost(suffix, CHILD_BYTES) <= most
        };
        let Some(plan) = plan_shift(l, r, key, room).filter(fits) else {
            return false;
        };
        let separator = &plan.separator[..];
        let (next, high) = (r.next(), r.high().map(<[u8]>::to_vec));
        let high = high.as_deref();
        let right_no = mtr.page_id(right).no;
        // What the right page has then, and what the left one gets.
        let (mut whole, mut gets) = (BulkRecsBuilder::default(), BulkRecsBuilder::default());
        match plan.moved {
            Moved::Right(keep) => {
                whole.push_rebased(l, keep..l.n_slots(), separator, high);
                whole.push_rebased(r, 0..r.n_slots(), separator, high);
            }
            Moved::Left(keep) => {
                whole.push_rebased(r, keep..r.n_slots(), separator, high);
                gets.push_rebased(r, 0..keep, l.low(), Some(separator));
            }
        }
        let format = PageOp::FormatSlotted {
            ptype: PageType::Leaf,
            owner: self.index.0,
            level: 0,
            user_len: 0,
            next,
            low: separator,
            high,
        };
        mtr.op(right, format);
        mtr.op(right, PageOp::BulkInsert { recs: whole.recs() });
        match plan.moved {
            Moved::Right(keep) => {
                let (keep, high) = (keep as u16, separator);
                let next = right_no;
                mtr.op(left, PageOp::Trim { keep, high, next });
            }
            Moved::Left(_) => {
                let (high, next) = (Some(separator), right_no);
                mtr.op(left, PageOp::Widen { high, next });
                mtr.op(left, PageOp::BulkInsert { recs: gets.recs() });
            }
        }
        self.change_separator(mtr, parent, slot, separator);
        self.counters.shifts.fetch_add(1, Relaxed);
        true
    }

    fn change_separator(
        &self,
        mtr: &mut Mtr<'_>,
        parent: PageHandle,
        slot: usize,
        separator: &[u8],
    ) {
        let p = SlottedRef::new(mtr.bytes(parent));
        let (prefix_len, child) = (p.prefix_len(), p.payload(slot).to_vec());
        let slot = slot as u16;
        mtr.op(parent, PageOp::Remove { slot });
        let (suffix, payload) = (&separator[prefix_len..], &child[..]);
        let insert = PageOp::Insert {
            slot,
            suffix,
            payload,
        };
        mtr.op(parent, insert);
    }
}
