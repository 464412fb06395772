//! Trees in a table's file that may be no index of it: those of indexes that are being built, and of indexes
//! that were dropped, until their pages are given back.
//!
//! - **LOOSE-1** A tree is on the file's list from the mini-transaction that makes it until its index's
//!   definition is committed, and from before the commit that drops its index until the mini-transaction that
//!   gives its root back. So, whenever a crash comes, each tree of the file is in the definition or on the
//!   list. One that is on both is an index; one on the list alone is given back when the table is opened.
//!
//! The list's page is made when it is first needed, and stays. Page 2 says where it is:
//!
//! | offset | field |
//! |---|---|
//! | 56 | number of the list's page u32; 0: there is none; 4 zero bytes |
//!
//! On the list's page, which is of type Raw:
//!
//! | offset | field |
//! |---|---|
//! | 48 | n, the number of trees u32 |
//! | 56 | n times: index id u64, root page u32, 4 zero bytes |

use crate::base::{Error, IndexId, PageId, PageNo, Result, Sabotage};
use crate::btree::{AT_END_LOG_BYTES, Tree};
use crate::mtr::{Mtr, PageHandle};
use crate::page::{PageOp, PageType, page_type};
use crate::space::{ALLOC_LOG_BYTES, MIXED};

use super::{IndexDef, META_PAGE, OpenTable};

/// Where the page of counters says which page has the list.
const LIST_AT: usize = 56;
const COUNT_AT: usize = 48;
const TREES_AT: usize = 56;
const TREE_BYTES: usize = 16;

/// Redo that making a page, and putting a tree on the list, takes at most.
const ADD_LOG_BYTES: u32 = 1024 + ALLOC_LOG_BYTES;

/// A tree in a table's file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LooseTree {
    pub index: IndexId,
    pub root: PageNo,
}

impl LooseTree {
    pub fn of(index: &IndexDef) -> LooseTree {
        LooseTree {
            index: index.id,
            root: index.root,
        }
    }

    fn encode(self) -> [u8; TREE_BYTES] {
        let mut bytes = [0; TREE_BYTES];
        bytes[..8].copy_from_slice(&self.index.0.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.root.0.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; TREE_BYTES]) -> LooseTree {
        LooseTree {
            index: IndexId(u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes"))),
            root: PageNo(u32_at(bytes, 8)),
        }
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

/// The trees on a list's page; `None` if it is none.
fn decode(page: &[u8]) -> Option<Vec<LooseTree>> {
    let n = u32_at(page, COUNT_AT) as usize;
    let bytes = page.get(TREES_AT..TREES_AT + n.checked_mul(TREE_BYTES)?)?;
    let trees = bytes.as_chunks().0.iter().map(LooseTree::decode);
    (page_type(page) == Some(PageType::Raw)).then(|| trees.collect())
}

impl OpenTable {
    fn page(&self, no: PageNo) -> PageId {
        PageId::new(self.space(), no)
    }

    fn damaged_list(&self, no: PageNo, page: &[u8]) -> Error {
        let expected = format!("the list of trees of table {}", self.def.name);
        let found = format!("type {:?}", page_type(page));
        Error::corrupt(self.page(no), expected, found)
    }

    /// The page of the list of trees, and what is on it. None for the system table and temporary ones.
    pub fn loose_trees(&self) -> Result<Option<(PageNo, Vec<LooseTree>)>> {
        if !self.has_own_file() {
            return Ok(None);
        }
        let pool = &self.mtr_env().pool;
        let meta = pool.shared(self.page(META_PAGE))?;
        self.check_meta_page(&meta)?;
        let no = PageNo(u32_at(&meta, LIST_AT));
        drop(meta);
        if no.0 == 0 {
            return Ok(None);
        }
        let page = pool.shared(self.page(no))?;
        let trees = decode(&page).ok_or_else(|| self.damaged_list(no, &page))?;
        Ok(Some((no, trees)))
    }

    /// Latches page 2 and the list's page, if there is one.
    fn latch_list(&self, mtr: &mut Mtr<'_>) -> Result<(PageHandle, Option<PageHandle>)> {
        let meta = mtr.exclusive(self.page(META_PAGE))?;
        self.check_meta_page(mtr.bytes(meta))?;
        match PageNo(u32_at(mtr.bytes(meta), LIST_AT)) {
            PageNo(0) => Ok((meta, None)),
            no => {
                let list = mtr.exclusive(self.page(no))?;
                match decode(mtr.bytes(list)) {
                    Some(_) => Ok((meta, Some(list))),
                    None => Err(self.damaged_list(no, mtr.bytes(list))),
                }
            }
        }
    }

    /// Makes the page of the list, if there is none.
    fn make_list(&self) -> Result<()> {
        let env = self.mtr_env();
        let space = &self.clustered.tree.space;
        let _reserved = space.reserve(env, 1)?;
        let mut mtr = Mtr::begin(env, ADD_LOG_BYTES)?;
        let (meta, None) = self.latch_list(&mut mtr)? else {
            return Ok(());
        };
        let no = space.alloc(&mut mtr, META_PAGE, MIXED)?;
        let list = mtr.exclusive_new(self.page(no))?;
        let ptype = PageType::Raw;
        mtr.op(list, PageOp::FormatRaw { ptype });
        write(&mut mtr, meta, LIST_AT, &no.0.to_le_bytes());
        mtr.commit();
        Ok(())
    }

    /// Latches the list, which was made, and says how many trees are on it. There is room for `added` more.
    fn latch_list_to_add(&self, mtr: &mut Mtr<'_>, added: usize) -> Result<(PageHandle, usize)> {
        let (meta, list) = self.latch_list(mtr)?;
        let list = list.ok_or_else(|| self.damaged_list(META_PAGE, mtr.bytes(meta)))?;
        let before = u32_at(mtr.bytes(list), COUNT_AT) as usize;
        match TREES_AT + (before + added) * TREE_BYTES <= mtr.bytes(list).len() {
            true => Ok((list, before)),
            false => Err(Error::unsupported(format!(
                "{added} more indexes that come and go in table {}, while {before} have not gone yet",
                self.def.name
            ))),
        }
    }

    /// Makes a tree for an index, which is on the list. Returns its root.
    pub fn make_loose_tree(&self, index: IndexId) -> Result<PageNo> {
        self.make_list()?;
        let env = self.mtr_env();
        let space = &self.clustered.tree.space;
        let _reserved = space.reserve(env, 1)?;
        let mut mtr = Mtr::begin(env, ADD_LOG_BYTES)?;
        let (list, before) = self.latch_list_to_add(&mut mtr, 1)?;
        let root = Tree::create(&mut mtr, space, index)?;
        add(&mut mtr, list, before, &[LooseTree { index, root }]);
        mtr.commit();
        Ok(root)
    }

    /// Puts the trees of indexes on the list that are about to be dropped.
    pub fn loosen(&self, trees: &[LooseTree]) -> Result<()> {
        if trees.is_empty() {
            return Ok(());
        }
        self.make_list()?;
        let log_bytes = ADD_LOG_BYTES + (trees.len() * TREE_BYTES) as u32;
        let mut mtr = Mtr::begin(self.mtr_env(), log_bytes)?;
        let (list, before) = self.latch_list_to_add(&mut mtr, trees.len())?;
        add(&mut mtr, list, before, trees);
        mtr.commit();
        Ok(())
    }

    /// Takes trees off the list that are indexes now.
    pub fn fasten(&self, trees: &[LooseTree]) -> Result<()> {
        for tree in trees {
            let mut mtr = Mtr::begin(self.mtr_env(), AT_END_LOG_BYTES)?;
            let forget = self.forget(&mut mtr, tree.index)?;
            forget(&mut mtr);
            mtr.commit();
        }
        Ok(())
    }

    /// Latches the list; what it returns takes the tree of this index off it.
    fn forget(
        &self,
        mtr: &mut Mtr<'_>,
        index: IndexId,
    ) -> Result<impl FnOnce(&mut Mtr<'_>) + use<>> {
        let (_, list) = self.latch_list(mtr)?;
        let trees = list.and_then(|h| decode(mtr.bytes(h)));
        let trees = trees.unwrap_or_default();
        Ok(move |mtr: &mut Mtr<'_>| {
            let at = trees.iter().position(|tree| tree.index == index);
            let (Some(list), Some(at), Some(last)) = (list, at, trees.last()) else {
                return;
            };
            write(mtr, list, TREES_AT + at * TREE_BYTES, &last.encode());
            let n = trees.len() as u32 - 1;
            write(mtr, list, COUNT_AT, &n.to_le_bytes());
        })
    }

    /// Gives the pages of a tree on the list back, and takes it off. Nobody uses it.
    fn give_back(&self, tree: LooseTree) -> Result<()> {
        let opened = self.open_tree(tree.index, tree.root);
        while !opened.give_back_some(|mtr| self.forget(mtr, tree.index))? {}
        Ok(())
    }

    /// All pages of a tree on the list; none if it is an index.
    pub fn pages_of_loose_tree(&self, tree: LooseTree) -> Result<Vec<PageNo>> {
        if self.index(tree.index).is_some() {
            return Ok(Vec::new());
        }
        let mut pages = self.open_tree(tree.index, tree.root).pages_below_root()?;
        pages.push(tree.root);
        Ok(pages)
    }

    /// Brings the list in line with the definition (LOOSE-1), as far as these trees go. Nobody else uses
    /// them, or changes the table's definition.
    pub fn give_back_loose_trees(&self, which: impl Fn(&LooseTree) -> bool) -> Result<()> {
        let Some((_, trees)) = self.loose_trees()? else {
            return Ok(());
        };
        // A change buffer goes with its index.
        let is_meant = |tree: &&LooseTree| {
            let of = tree.index.change_buffer_of();
            which(tree)
                || trees
                    .iter()
                    .any(|other| of == Some(other.index) && which(other))
        };
        for &tree in trees.iter().filter(is_meant) {
            let of = tree.index.change_buffer_of();
            if of.is_some_and(|of| self.index(of).is_some()) {
                continue;
            }
            match self.index(tree.index) {
                Some(_) => self.fasten(&[tree])?,
                None => self.give_back(tree)?,
            }
        }
        Ok(())
    }
}

/// Puts trees on the list, behind the `before` that are on it.
fn add(mtr: &mut Mtr<'_>, list: PageHandle, before: usize, trees: &[LooseTree]) {
    if mtr.env().log.is_sabotaged(Sabotage::LooseTreeForgotten) {
        return;
    }
    let bytes: Vec<u8> = trees.iter().flat_map(|tree| tree.encode()).collect();
    write(mtr, list, TREES_AT + before * TREE_BYTES, &bytes);
    let n = (before + trees.len()) as u32;
    write(mtr, list, COUNT_AT, &n.to_le_bytes());
}

fn write(mtr: &mut Mtr<'_>, h: PageHandle, at: usize, bytes: &[u8]) {
    let off = at as u16;
    mtr.op(h, PageOp::Write { off, bytes });
}
