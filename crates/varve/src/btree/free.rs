//! Freeing a whole tree, page by page.
//!
//! Every step is one mini-transaction that frees one page and forgets it where it is referred to; the last child of the
//! last page first. So a crash leaves a smaller tree, never a leaked page or one that was freed twice, and whoever
//! finds the unfinished drop goes on with the same calls. The tree is not a good index in between: nobody else may
//! use it.

use crate::base::Result;
use crate::mtr::Mtr;
use crate::page::{PageOp, PageType, SlottedRef, page_type};

use super::Tree;
use super::descend::child_at;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FreeStep {
    /// A page was freed; call again.
    More,
    /// Only the root is left, an empty leaf. Free it with what refers to it, by `Tree::free_root`.
    RootLeft,
}

impl Tree {
    /// Frees every page but the root.
    pub fn free_all_but_root(&self) -> Result<()> {
        while self.free_step()? == FreeStep::More {}
        Ok(())
    }

    /// Frees one page. The caller holds no latch.
    pub fn free_step(&self) -> Result<FreeStep> {
        let mut mtr = Mtr::begin(&self.env, self.structure_log_bytes())?;
        let mut above = mtr.exclusive(self.page_id(self.root))?;
        let mut above_no = self.root;
        let level = self.root_level(mtr.bytes(above))?;
        if level == 0 || SlottedRef::new(mtr.bytes(above)).n_slots() == 0 {
            self.format_whole(&mut mtr, above, 0);
            mtr.commit();
            return Ok(FreeStep::RootLeft);
        }
        loop {
            let p = SlottedRef::new(mtr.bytes(above));
            let slot = p.n_slots() - 1;
            let level = p.level();
            let Some(no) = child_at(p, slot) else {
                return Err(self.damage(above_no, "a child in every slot", p.bytes()));
            };
            let h = mtr.exclusive(self.page_id(no))?;
            let c = mtr.bytes(h);
            let fits = matches!(page_type(c), Some(PageType::Leaf | PageType::Inner)) && {
                let c = SlottedRef::new(c);
                c.owner() == self.index.0 && c.level() + 1 == level
            };
            if !fits {
                let expected = format!("a page of index {} at level {}", self.index, level - 1);
                return Err(self.damage(no, &expected, c));
            }
            if level == 1 || SlottedRef::new(c).n_slots() == 0 {
                self.space.free(&mut mtr, no)?;
                let slot = slot as u16;
                mtr.op(above, PageOp::Remove { slot });
                mtr.commit();
                return Ok(FreeStep::More);
            }
            mtr.release(above);
            (above, above_no) = (h, no);
        }
    }

    /// Frees the root of a tree that has nothing else, in the mini-transaction that removes the reference to it.
    pub fn free_root(&self, mtr: &mut Mtr<'_>) -> Result<()> {
        let h = mtr.exclusive(self.page_id(self.root))?;
        if self.root_level(mtr.bytes(h))? != 0 {
            return Err(self.damage(self.root, "a root without children", mtr.bytes(h)));
        }
        self.space.free(mtr, self.root)
    }
}
