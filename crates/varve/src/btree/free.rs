//! Giving back the pages of whole trees in an unlogged tablespace: [`Tree::discard`] does so with a tree,
//! [`empty_trees`] with all that several trees have but their roots.
//!
//! Such trees need not care for crashes, so they go at once. Only inner pages are read: a large tree that
//! lies on disk for the most part need not be (SP-6).

use crate::base::{PageNo, Result};
use crate::mtr::Mtr;
use crate::page::{PageType, SlottedRef, page_type};

use super::descend::child_at;
use super::{Tree, owner_tag};

impl Tree {
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
