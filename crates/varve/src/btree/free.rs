//! Freeing a whole tree, page by page.
//!
//! Every step is one mini-transaction that frees one page and forgets it where it is referred to; the last
//! child of the last page first. So a crash leaves a smaller tree, never a leaked page or one that was freed
//! twice, and a thread that finds the unfinished drop goes on with the same calls. The tree is not a good
//! index in between: nobody else may use it.
//!
//! Trees in an unlogged tablespace need not care for crashes: they go at once, by [`Tree::discard`] or
//! [`empty_trees`], which read inner pages only. So a large tree that lies on disk for the most part need not
//! be read (SP-6).

use crate::base::{PageNo, Result};
use crate::mtr::Mtr;
use crate::page::{PageOp, PageType, SlottedRef, page_type};

use super::descend::child_at;
use super::{Tree, owner_tag};

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
        let mut mtr = self.begin_structure_change()?;
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
            if !self.is_own(c, level - 1) {
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

    /// Gives all pages of a tree in an unlogged tablespace back. Nobody uses the tree any more.
    pub fn discard(&self) -> Result<()> {
        let mut pages = self.pages_below_root()?;
        pages.push(self.root);
        pages.sort_unstable();
        self.space.discard(&self.env, &pages)?;
        self.space.forget_user(owner_tag(self.index));
        Ok(())
    }

    /// All pages but the root, level by level from the top. The leaves are known by what is above them.
    fn pages_below_root(&self) -> Result<Vec<PageNo>> {
        let top = self.root_level(&self.env.pool.shared(self.page_id(self.root))?)?;
        let (mut all, mut above) = (Vec::new(), vec![self.root]);
        for level in (1..=top).rev() {
            let mut below = Vec::new();
            for no in above {
                let page = self.env.pool.shared(self.page_id(no))?;
                if !self.is_own(&page, level) {
                    let expected = format!("a page of index {} at level {level}", self.index);
                    return Err(self.damage(no, &expected, &page));
                }
                let p = SlottedRef::new(&page);
                for slot in 0..p.n_slots() {
                    let child = child_at(p, slot);
                    below.push(
                        child.ok_or_else(|| self.damage(no, "a child in every slot", &page))?,
                    );
                }
            }
            all.extend_from_slice(&below);
            above = below;
        }
        Ok(all)
    }

    /// A latched page is of this tree and at this level.
    fn is_own(&self, page: &[u8], level: u16) -> bool {
        matches!(page_type(page), Some(PageType::Leaf | PageType::Inner)) && {
            let p = SlottedRef::new(page);
            p.owner() == self.index.0 && p.level() == level
        }
    }

    /// Frees the root of a tree that has nothing else, in the mini-transaction that removes the reference to
    /// it.
    pub fn free_root(&self, mtr: &mut Mtr<'_>) -> Result<()> {
        let h = mtr.exclusive(self.page_id(self.root))?;
        if self.root_level(mtr.bytes(h))? != 0 {
            return Err(self.damage(self.root, "a root without children", mtr.bytes(h)));
        }
        self.space.free(mtr, self.root)
    }
}

/// Empties trees of an unlogged tablespace at once: all of them, or none if it fails. Nobody else uses them,
/// and the caller holds no latch. Returns the pages that they don't need any more, for `Space::discard`.
pub fn empty_trees(trees: &[&Tree]) -> Result<Vec<PageNo>> {
    let Some(first) = trees.first() else {
        return Ok(Vec::new());
    };
    let mut pages = Vec::new();
    for tree in trees {
        pages.extend(tree.pages_below_root()?);
    }
    pages.sort_unstable();
    let mut mtr = Mtr::begin_in(&first.env, first.space.id(), 0)?;
    let mut roots = Vec::new();
    for tree in trees {
        roots.push(mtr.exclusive(tree.page_id(tree.root))?);
    }
    for (tree, root) in trees.iter().zip(roots) {
        tree.format_whole(&mut mtr, root, 0);
    }
    mtr.commit();
    Ok(pages)
}
