//! Merging: a page that has become nearly empty joins a neighbour under the same parent.
//!
//! Pages are not rebalanced by moving single records: a page between a third full and full is left alone (but
//! for full leaves, `shift`).

use std::sync::atomic::Ordering::Relaxed;

use crate::base::{PageNo, Result};
use crate::mtr::{Mtr, PageHandle};
use crate::page::{BulkRecsBuilder, PageOp, PageType, SlottedRef, page_type};

use super::descend::{Aim, Located, child_at};
use super::leaf::{boundary, underfull};
use super::plan::can_merge;
use super::{MAX_LEVEL, Seek, Tree};

enum Outcome {
    /// Two pages became one; whether their parent is worth a look.
    Merged { parent_underfull: bool },
    /// The page has no neighbour under its parent.
    OnlyChild,
    /// Nothing to do, or somebody else was faster.
    Nothing,
}

/// One page of a pair, latched exclusively.
struct Half {
    h: PageHandle,
    no: PageNo,
}

impl Tree {
    /// Call it after removals, when the leaf that covers `key` was left `underfull`. The caller holds no
    /// latch. Doing nothing is always right: if neighbours are too full, or another thread works here.
    #[cold]
    pub fn maybe_merge(&self, key: &[u8]) -> Result<()> {
        self.merge_at_level(key, 0).map(|_| ())
    }

    /// True if pages were merged at this level. Recursion goes up the tree.
    fn merge_at_level(&self, key: &[u8], level: u16) -> Result<bool> {
        if level > MAX_LEVEL {
            return Ok(false);
        }
        let mut merged = false;
        while let Located::Page(spot) = self.locate_inner(key, level + 1)? {
            let parent = spot.no;
            let go_on = match self.try_merge(key, parent, level)? {
                Outcome::Merged { parent_underfull } => {
                    merged = true;
                    if parent_underfull {
                        self.merge_or_shrink(key, parent, level + 1)?;
                    }
                    // The page may still be nearly empty, and its neighbour, too, that could not join it
                    // before.
                    true
                }
                Outcome::Nothing => false,
                // With another parent there may be a neighbour.
                Outcome::OnlyChild => self.merge_or_shrink(key, parent, level + 1)?,
            };
            if !go_on {
                break;
            }
        }
        Ok(merged)
    }

    fn merge_or_shrink(&self, key: &[u8], page: PageNo, level: u16) -> Result<bool> {
        if page == self.root {
            self.pull_up_only_child()?;
            return Ok(false);
        }
        self.merge_at_level(key, level)
    }

    fn try_merge(&self, key: &[u8], parent: PageNo, level: u16) -> Result<Outcome> {
        let mut mtr = self.begin_structure_change()?;
        let above = mtr.exclusive(self.page_id(parent))?;
        if !self.arrived(mtr.bytes(above), Aim::At(key), level + 1) {
            return Ok(Outcome::Nothing);
        }
        let p = SlottedRef::new(mtr.bytes(above));
        let n = p.n_slots();
        if n <= 1 {
            return Ok(Outcome::OnlyChild);
        }
        let slot = boundary(p, key, Seek::Gt).saturating_sub(1);
        // With the right neighbour first, then with the left one.
        let pairs = [(slot + 1 < n).then_some(slot), slot.checked_sub(1)];
        for first in pairs.into_iter().flatten() {
            let left = self.latch_child(&mut mtr, above, parent, first, level)?;
            let right = self.latch_child(&mut mtr, above, parent, first + 1, level)?;
            let target = if first == slot { left.h } else { right.h };
            if !underfull(SlottedRef::new(mtr.bytes(target))) {
                return Ok(Outcome::Nothing);
            }
            let (l, r) = (mtr.bytes(left.h), mtr.bytes(right.h));
            if can_merge(SlottedRef::new(l), SlottedRef::new(r)) {
                self.merge(&mut mtr, above, first, left, right)?;
                let p = SlottedRef::new(mtr.bytes(above));
                let parent_underfull = p.n_slots() == 1 || underfull(p);
                mtr.commit();
                self.counters.merges.fetch_add(1, Relaxed);
                return Ok(Outcome::Merged { parent_underfull });
            }
            mtr.release(right.h);
            mtr.release(left.h);
        }
        Ok(Outcome::Nothing)
    }

    /// Latches a child of a latched page; it must be what its parent says (BT-2).
    fn latch_child(
        &self,
        mtr: &mut Mtr<'_>,
        above: PageHandle,
        parent: PageNo,
        slot: usize,
        level: u16,
    ) -> Result<Half> {
        let p = SlottedRef::new(mtr.bytes(above));
        let Some(no) = child_at(p, slot) else {
            return Err(self.damage(parent, "children in every slot", p.bytes()));
        };
        let h = self.latch_child_page(mtr, above, slot, no, level)?;
        Ok(Half { h, no })
    }

    /// Moves the right page's records into the left one, child `slot` of `above`, and frees the right page.
    fn merge(
        &self,
        mtr: &mut Mtr<'_>,
        above: PageHandle,
        slot: usize,
        left: Half,
        right: Half,
    ) -> Result<()> {
        let l = SlottedRef::new(mtr.bytes(left.h));
        let r = SlottedRef::new(mtr.bytes(right.h));
        let high = r.high().map(<[u8]>::to_vec);
        let next = r.next();
        let recs = BulkRecsBuilder::rebase(r, 0..r.n_slots(), l.low(), high.as_deref());
        // The one step that can fail, before anything else has changed.
        self.space.free(mtr, right.no)?;
        let high = high.as_deref();
        mtr.op(left.h, PageOp::Widen { high, next });
        if !recs.is_empty() {
            mtr.op(left.h, PageOp::BulkInsert { recs: recs.recs() });
        }
        let slot = slot as u16 + 1;
        mtr.op(above, PageOp::Remove { slot });
        Ok(())
    }

    /// As long as the root has a single child, the child's content becomes the root's.
    fn pull_up_only_child(&self) -> Result<()> {
        loop {
            let mut mtr = self.begin_structure_change()?;
            let h = mtr.exclusive(self.page_id(self.root))?;
            let p = SlottedRef::new(mtr.bytes(h));
            if page_type(p.bytes()) != Some(PageType::Inner) || p.n_slots() != 1 {
                return Ok(());
            }
            let level = self.root_level(p.bytes())?;
            let child = self.latch_child(&mut mtr, h, self.root, 0, level - 1)?;
            let c = SlottedRef::new(mtr.bytes(child.h));
            let recs = BulkRecsBuilder::rebase(c, 0..c.n_slots(), &[], None);
            self.space.free(&mut mtr, child.no)?;
            self.format_whole(&mut mtr, h, level - 1);
            if !recs.is_empty() {
                mtr.op(h, PageOp::BulkInsert { recs: recs.recs() });
            }
            mtr.commit();
        }
    }
}
