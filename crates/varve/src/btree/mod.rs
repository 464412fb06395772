//! B+trees: one index is one tree of slotted pages in one tablespace.
//!
//! # Shape
//!
//! Leaves (level 0) hold records, inner pages hold separators and children. Every page stores its range as
//! two fence keys, `[low, high)`; at each level the ranges of the pages cut the key space into pieces without
//! gap or overlap, and each page names its right sibling. There are no left pointers: a backward scan goes
//! from a leaf to the key range below its low fence by a new descent. The root's page number never changes:
//! when the root is full its content moves down into a fresh page, when it has one child left that child
//! moves up.
//!
//! - **BT-1** A leaf of this index (type, owner, level) whose fences contain a key is *the* leaf for that
//!   key, however one got to it. So arriving is checked on the page, and nothing else about the way matters.
//! - **BT-2** The low fence of an inner page's first child is the page's own (and not stored again, PG-5);
//!   the low fence of any other child equals the child's separator, the high fence the next one's, the last
//!   child's high fence the page's.
//! - **BT-3** A thread that holds latches of tree pages takes further ones only downward (parent before
//!   child) and, at one level, rightward; then allocation pages. Nothing is waited for but latches of that
//!   order, page reads and the log writer.
//! - **BT-4** A structure change is one mini-transaction that holds exclusively every page it changes, from
//!   before the first change to the commit. So no thread sees, and no crash leaves, a split that the parent
//!   does not know.
//! - **BT-5** Nobody descends while holding a latch: a descent may wait for the latch of an inner page. A
//!   guess by the images that are there waits for nothing. A change buffer comes behind its index: who has
//!   latched one leaf of the index may descend there, and nobody goes the other way.
//! - **BT-6** A leaf's place in an image has a range stamp other than 0 only if the leaf had the range that
//!   the image says while its frame had that stamp. So a search that went by the image and latched the frame
//!   with that stamp is where it wanted to go (BT-1, BUF-5), without a look at the fences.
//! - **BT-7** As long as nothing is removed from a tree, every inner page but the root has two children or
//!   more, however long the keys are. So each level has at most half the pages of the one below it, and a
//!   tree of 2^32 pages, more than a tablespace has, at most 33 levels (the root may have a single child
//!   while it moves down).
//!
//! # Descending
//!
//! A descent reads the immutable images of inner pages (`InnerImage`): no latch, no pin, nothing written but
//! usage statistics. An image may be older than its page. So at every step down the image is checked for
//! index, level and fences, and the leaf is checked once it is latched (BT-1); if something does not fit, the
//! descent starts again. A change clears the image under the page's exclusive latch; a descent that finds
//! none waits on the latch of the changing page and so does not spin. A page that was freed has type `Free`
//! or, used again, another owner, level or range; if it is a leaf of this index whose range holds the key, it
//! is the right one.
//!
//! After `OPTIMISTIC_TRIES` failures a descent couples shared latches from the root (child latched before the
//! parent is released). That way can't meet a half-changed tree (BT-4), so what does not fit is reported as
//! `Corrupt`.
//!
//! # Splitting
//!
//! [`Tree::latch_leaf_exclusive`] finds a leaf without room, releases it, and splits it in a mini-transaction
//! of its own: parent exclusive, child exclusive, allocation page, fresh right page. If the parent can't take
//! one more separator, it is split first, in the same way and also alone; each of these steps leaves a good
//! tree. Then everything starts again. An inner page of four children or more is split so that both sides
//! have two (BT-7). One of three, which only keys of a fifth of a page or more can fill, is split with its
//! child in one mini-transaction (`split`).
//!
//! A page is split between the nearest records to its middle (in bytes) with the shortest
//! separator near it, or at the place of insertion if the page's last insertion was next to it: ascending and
//! descending runs, also several in one index, leave full pages behind. What lies beyond the end of a run
//! goes to the other page, and the new record stays with the run. If records grow one after the other, those
//! that have grown stay together in one page. Leaf separators are cut to the shortest string that separates.
//!
//! A leaf whose records can be made shorter is not split until they are (`shorten`): their owner knows of
//! bytes that nobody needs any more. A leaf in which a record grows first gives records to a neighbour, and
//! one with a run what lies beyond its end; in a dense tree, one of the history store, each full leaf does
//! (`shift`).
//!
//! # Merging
//!
//! [`Tree::maybe_merge`] takes parent, left and right page and moves the right one's records into the left
//! one, if the result leaves some room, for as long as that goes on: with long separators an empty leaf may
//! have to wait for a neighbour until its parent could be merged, and an inner page with one child is merged
//! wherever it fits. It then looks one level up, and at last makes the root's only child the root. Freed
//! pages return to the tablespace in the same mini-transaction.
//!
//! # What differs from the literature
//!
//! Lehman and Yao (and PostgreSQL's nbtree) let a split reach the parent later, and readers move right in the
//! meantime. Here a split changes parent and child together, as Graefe's trees with fence keys do, and
//! readers never move right: they start again, which costs two or three image look-ups. That makes deletion
//! simple: nbtree's half-dead pages exist because readers may stand anywhere on a path of right links. It
//! costs an exclusive latch on the parent during a split; descents pass the parent by its image until the
//! first byte changes, so they wait only briefly.
//!
//! # Failure
//!
//! Everything that can fail (reading pages, space, redo capacity) happens before the first change of a
//! mini-transaction, but for finding a frame for a fresh page once it is allocated, and the second page of a
//! joint split: that poisons the database. Damage found on the way is `Error::Corrupt` with the page's
//! address.

mod ahead;
mod check;
mod count;
mod descend;
mod drain;
mod free;
mod leaf;
mod load;
mod merge;
mod plan;
mod removal;
mod shift;
mod shorten;
mod split;
#[cfg(test)]
pub(crate) mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::base::{IndexId, NO_PAGE, PageId, PageNo, Result};
use crate::buffer::BufferPool;
use crate::mtr::{Mtr, MtrEnv};
use crate::page::{
    PageHint, PageOp, PageType, SlottedRef, VERSION_BYTES, VERSION_KEY_BYTES, max_key, max_record,
};
use crate::space::Space;

pub use ahead::{Onward, ReadAhead};
pub use check::TreeReport;
pub use count::ChosenLeaf;
pub use descend::{LeafAhead, LeafHint};
pub use free::{AT_END_LOG_BYTES, empty_trees};
pub use leaf::{LeafPos, SharedLeaf};
pub use load::Loader;
pub use removal::{LeafVisit, removal_log_bytes};
pub use shorten::{Cuts, Shorten};

/// Descents that may fail to arrive before one goes by latches.
const OPTIMISTIC_TRIES: usize = 16;

/// Levels above this are damage: two children a page (BT-7) would need more pages than a tablespace has.
const MAX_LEVEL: u16 = 36;

/// Where a search goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seek {
    /// First record ≥ key.
    Ge,
    /// First record > key.
    Gt,
    /// Last record < key.
    Lt,
}

impl Seek {
    pub fn is_forward(self) -> bool {
        matches!(self, Seek::Ge | Seek::Gt)
    }
}

/// What happened to one tree since it was opened.
#[derive(Default)]
pub struct TreeCounters {
    pub splits: AtomicU64,
    pub merges: AtomicU64,
    /// Leaves that gave records to a neighbour instead of being split.
    pub shifts: AtomicU64,
    /// Leaves whose records were made shorter instead.
    pub shortenings: AtomicU64,
    /// Descents that arrived at a page that had changed meanwhile, and started again.
    pub restarts: AtomicU64,
}

/// An open index. Cheap to share; all methods take `&self`.
pub struct Tree {
    pub space: Arc<Space>,
    pub root: PageNo,
    pub index: IndexId,
    pub counters: TreeCounters,
    env: Arc<MtrEnv>,
    /// The longest key and, of key and payload together, record, in bytes.
    max_key: usize,
    max_record: usize,
    /// Full leaves give records to a neighbour before they are split (`shift`), also if a new one comes.
    is_dense: bool,
    /// Where the root was found last.
    root_hint: PageHint,
}

impl Tree {
    /// Opens a tree that `create` made.
    pub fn open(env: Arc<MtrEnv>, space: Arc<Space>, root: PageNo, index: IndexId) -> Tree {
        let page_size = env.pool.page_size();
        Tree {
            space,
            root,
            index,
            counters: TreeCounters::default(),
            env,
            max_key: max_key(page_size),
            max_record: max_record(page_size),
            is_dense: false,
            root_hint: PageHint::unknown(),
        }
    }

    /// A tree of the history store: its records are those of other trees and somewhat longer, and its pages,
    /// which are not redo-logged, are kept fuller.
    pub fn of_versions(self) -> Tree {
        Tree {
            max_key: self.max_key + VERSION_KEY_BYTES,
            max_record: self.max_record + VERSION_BYTES,
            is_dense: true,
            ..self
        }
    }

    /// Allocates and formats an empty tree's root in the caller's mini-transaction, for which the caller has
    /// reserved a page of the tablespace.
    pub fn create(mtr: &mut Mtr<'_>, space: &Space, index: IndexId) -> Result<PageNo> {
        let root = space.alloc(mtr, PageNo(0), owner_tag(index))?;
        let h = mtr.exclusive_new(PageId::new(space.id(), root))?;
        mtr.op(
            h,
            PageOp::FormatSlotted {
                ptype: PageType::Leaf,
                owner: index.0,
                level: 0,
                user_len: 0,
                next: NO_PAGE,
                low: &[],
                high: None,
            },
        );
        Ok(root)
    }

    /// The tree's pages, had it been a single one when it was opened; levels that were added are not counted.
    pub fn pages_since_opened(&self) -> u64 {
        let splits = self.counters.splits.load(Relaxed);
        let merges = self.counters.merges.load(Relaxed);
        1 + splits.saturating_sub(merges)
    }

    /// It has no record, nor pages from which purge and rollback have removed them.
    pub fn is_empty(&self) -> Result<bool> {
        let leaf = self.latch_leaf_shared(&[], Seek::Ge)?;
        Ok(is_empty_tree(leaf.slotted()))
    }

    pub fn pool(&self) -> &BufferPool {
        &self.env.pool
    }

    fn page_id(&self, no: PageNo) -> PageId {
        PageId::new(self.space.id(), no)
    }

    pub fn page_size(&self) -> usize {
        self.env.pool.page_size()
    }
}

/// The leaf is all of its tree, and empty.
pub fn is_empty_tree(leaf: SlottedRef<'_>) -> bool {
    leaf.n_slots() == 0 && leaf.low().is_empty() && leaf.high().is_none()
}

/// What allocation pages note as an extent's owner.
fn owner_tag(index: IndexId) -> u32 {
    // A change buffer and its index have extents of their own.
    (index.0 ^ index.0 >> 31) as u32
}

/// The type that a page of this level has.
fn type_at(level: u16) -> PageType {
    match level {
        0 => PageType::Leaf,
        _ => PageType::Inner,
    }
}
