//! Giving back the pages of whole trees that nobody uses any more. Only inner pages are read: a large tree
//! that lies on disk for the most part need not be (SP-6).
//!
//! In an unlogged tablespace [`Tree::discard`] does so with a tree, [`empty_trees`] with all that several
//! trees have but their roots. Such trees need not care for crashes, so they go at once.
//!
//! In a logged one [`Tree::give_back_some`] goes from the right, in mini-transactions of a few hundred pages:
//! after each of them the children that are left lead to all pages that are left, so that the rest can go
//! after a crash. It is no tree to search any more.

use crate::base::{Error, PageNo, Result};
use crate::mtr::Mtr;
use crate::page::{PageOp, PageType, SlottedRef, page_type};
use crate::space::FREE_LOG_BYTES;

use super::descend::child_at;
use super::{MAX_LEVEL, Tree, owner_tag};

/// Leaves that go in one mini-transaction.
const GOING_AT_ONCE: usize = 256;

/// Redo that it takes beside what its caller adds: those leaves, the inner pages above them, and separators.
const GOING_LOG_BYTES: u32 =
    FREE_LOG_BYTES * (GOING_AT_ONCE as u32 + MAX_LEVEL as u32) + 4 * GOING_AT_ONCE as u32 + 1024;

/// Redo that who is told of the end may add ([`Tree::give_back_some`]).
pub const AT_END_LOG_BYTES: u32 = 256;

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

    /// Gives some pages of the tree back, from the right. True: the root was among them. In the
    /// mini-transaction by which it goes, `at_end` may latch pages that come before the allocation pages, and
    /// what it returns change them, by `AT_END_LOG_BYTES` of redo. The caller holds no latch.
    pub fn give_back_some<F: FnOnce(&mut Mtr<'_>)>(
        &self,
        at_end: impl FnOnce(&mut Mtr<'_>) -> Result<F>,
    ) -> Result<bool> {
        let mut mtr = Mtr::begin(&self.env, GOING_LOG_BYTES + AT_END_LOG_BYTES)?;
        let mut h = mtr.exclusive(self.page_id(self.root))?;
        let mut level = self.root_level(mtr.bytes(h))?;
        // Inner pages from the root down to level 1.
        let mut path = Vec::new();
        let mut going = Vec::new();
        while level > 0 {
            let (no, p) = (mtr.page_id(h).no, SlottedRef::new(mtr.bytes(h)));
            let n = p.n_slots();
            let first = match level {
                1 => n.saturating_sub(GOING_AT_ONCE),
                _ => n.saturating_sub(1),
            };
            let children: Option<Vec<PageNo>> = (first..n).map(|slot| child_at(p, slot)).collect();
            let Some(children) = children.filter(|children| !children.is_empty()) else {
                return Err(self.damage(no, "a child in every slot", p.bytes()));
            };
            path.push((h, n));
            level -= 1;
            if level == 0 {
                going = children;
                break;
            }
            h = mtr.exclusive(self.page_id(children[0]))?;
            if !self.is_own(mtr.bytes(h), level) {
                let expected = format!("a page of index {} at level {level}", self.index);
                return Err(self.damage(children[0], &expected, mtr.bytes(h)));
            }
        }
        // What has no child left goes, too.
        let mut gone = going.len();
        while let Some(&(h, n)) = path.last()
            && gone == n
        {
            path.pop();
            if !path.is_empty() {
                going.push(mtr.page_id(h).no);
            }
            gone = 1;
        }
        let rest = path.pop();
        if rest.is_none() {
            going.push(self.root);
        }
        going.sort_unstable();
        if let Some(pair) = going.windows(2).find(|pair| pair[0] == pair[1]) {
            let expected = format!("a page that index {} has once", self.index);
            let id = self.page_id(pair[0]);
            return Err(Error::corrupt(id, expected, "two references to it"));
        }
        let Some((h, n)) = rest else {
            let end = at_end(&mut mtr)?;
            self.space.free_unread(&mut mtr, &going)?;
            end(&mut mtr);
            mtr.commit();
            self.space.forget_user(owner_tag(self.index));
            return Ok(true);
        };
        self.space.free_unread(&mut mtr, &going)?;
        let slots: Vec<[u8; 2]> = (n - gone..n).map(|n| (n as u16).to_le_bytes()).collect();
        mtr.op(h, PageOp::RemoveMany { slots: &slots });
        mtr.commit();
        Ok(false)
    }

    /// All pages but the root, level by level from the top. The leaves are known by what is above them.
    pub fn pages_below_root(&self) -> Result<Vec<PageNo>> {
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
