//! Filling an empty tree with records that come in the order of their keys: each leaf is written once, as
//! full as it is to be, and its records are one operation in the log.
//!
//! The rightmost leaf is empty, and its range has no upper end. When the records for a leaf are known, they
//! go there, and in the same mini-transaction it gets its high fence, and an empty leaf behind it that the
//! parent names. So the tree is a good one after each of them (BT-4), and what has been loaded is there,
//! whenever a crash comes. The parent is split where it grows, as by any ascending run.
//!
//! The loader of a table's rows has a helper for that (`helper.rs`) when there are many: where rows come from
//! takes as long as filling the tree, or longer.
//!
//! Nobody else changes the tree meanwhile.

mod helper;

use std::ops::Deref;
use std::sync::atomic::Ordering::Relaxed;

use crate::base::{Error, NO_PAGE, PageNo, Result};
use crate::mtr::{Mtr, PageHandle};
use crate::page::{
    BulkRecsBuilder, CHILD_BYTES, PageOp, PageType, SlottedRef, common_prefix_len, record_cost,
};
use crate::space::AllocPurpose;

use super::descend::{Aim, Located, child_at};
use super::plan::shortest_between;
use super::split::Fresh;
use super::{Tree, owner_tag};
use helper::Helper;

/// For fewer leaves a thread is not worth its while.
const LEAVES_WITHOUT_HELPER: usize = 16;

/// Loads a tree, which it borrows or has a share in.
pub struct Loader<T> {
    tree: T,
    help: Help<T>,
    /// Keys and payloads of records that no leaf has yet.
    bytes: Vec<u8>,
    records: Vec<Record>,
    /// So many of them fill a leaf that ends before the next one; at least one does.
    ready: usize,
    /// What they take without a common prefix.
    cost: usize,
    /// The low fence of the rightmost leaf.
    low: Vec<u8>,
    /// Bytes of a leaf.
    capacity: usize,
    /// Bytes of a leaf that are to be used if it has more than one record.
    wanted: usize,
}

/// Who fills leaves.
enum Help<T> {
    /// The loader does.
    None,
    /// So it does, until it has filled some, and this starts a helper.
    After(usize, fn(&T) -> Option<Helper>),
    Helper(Helper),
}

#[derive(Clone, Copy)]
struct Record {
    start: usize,
    key_end: usize,
    end: usize,
}

impl Record {
    fn cost(self) -> usize {
        record_cost(self.key_end - self.start, self.end - self.key_end)
    }
}

/// What goes into a leaf that is not the last one.
struct Leaf {
    bytes: Vec<u8>,
    records: Vec<Record>,
    low: Vec<u8>,
    high: Vec<u8>,
}

impl<T: Deref<Target = Tree> + Clone + Send + 'static> Loader<T> {
    /// Has another thread fill leaves if there are many.
    pub fn with_helper(mut self) -> Loader<T> {
        self.help = Help::After(LEAVES_WITHOUT_HELPER, Helper::start);
        self
    }
}

impl<T: Deref<Target = Tree>> Loader<T> {
    /// The tree has to be empty. So many percent of each leaf are filled, from 1 on, and one record at least.
    pub fn new(tree: T, fill_factor_pct: u32) -> Result<Loader<T>> {
        let root = tree.env.pool.shared(tree.page_id(tree.root))?;
        let level = tree.root_level(&root)?;
        let p = SlottedRef::new(&root);
        if level > 0 || p.n_slots() > 0 {
            return Err(tree.damage(tree.root, "an empty tree", &root));
        }
        let capacity = p.capacity();
        drop(root);
        Ok(Loader {
            tree,
            help: Help::None,
            bytes: Vec::new(),
            records: Vec::new(),
            ready: 0,
            cost: 0,
            low: Vec::new(),
            capacity,
            wanted: capacity * fill_factor_pct.min(100) as usize / 100,
        })
    }

    /// Takes the next record, with a key above all before.
    pub fn push(&mut self, key: &[u8], payload: &[u8]) -> Result<()> {
        if let Some(&last) = self.records.last() {
            if self.key(last) >= key {
                let root = self.tree.page_id(self.tree.root);
                let expected = "records in the order of their keys, to fill an index with";
                return Err(Error::corrupt(root, expected, "others"));
            }
            if self.fits_before(key) {
                self.ready = self.records.len();
            } else {
                self.fill_leaf()?;
                if !self.records.is_empty() {
                    // A few that were read ahead.
                    assert!(self.fits_before(key), "a leaf takes a record");
                    self.ready = self.records.len();
                }
            }
        }
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(payload);
        let record = Record {
            start,
            key_end: start + key.len(),
            end: self.bytes.len(),
        };
        self.cost += record.cost();
        self.records.push(record);
        Ok(())
    }

    /// What is left goes into the last leaf, or two. Nothing may come after it.
    pub fn finish(&mut self) -> Result<()> {
        // Without a high fence there is no prefix.
        if self.low.len() + self.cost > self.limit() {
            self.fill_leaf()?;
        }
        assert!(
            self.low.len() + self.cost <= self.capacity,
            "one leaf is left"
        );
        if let Help::Helper(helper) = &mut self.help {
            helper.end()?;
        }
        let tree = &*self.tree;
        let mut mtr = tree.begin_structure_change()?;
        let h = tree.leaf_exclusive(&mut mtr, &self.low, None)?;
        check_empty(tree, &mtr, h, &self.low)?;
        put(&mut mtr, h, &self.bytes, &self.records, 0);
        mtr.commit();
        Ok(())
    }

    /// That of the record that came last.
    pub fn last_key(&self) -> Option<&[u8]> {
        self.records.last().map(|record| self.key(*record))
    }

    fn key(&self, record: Record) -> &[u8] {
        &self.bytes[record.start..record.key_end]
    }

    /// How many bytes of a leaf the records that are waiting may take.
    fn limit(&self) -> usize {
        match self.records.len() {
            0 | 1 => self.capacity,
            _ => self.wanted,
        }
    }

    /// Whether all records that are waiting go into a leaf that ends before `key`.
    fn fits_before(&self, key: &[u8]) -> bool {
        let last = *self.records.last().expect("there is one");
        let limit = self.limit();
        // Mostly there is no need to know how long the high fence is: no longer than the key.
        if self.low.len() + key.len() + self.cost <= limit {
            return true;
        }
        let high = shortest_between(self.key(last), key);
        let prefix = common_prefix_len(&self.low, &high);
        let saved = self.records.len() * prefix;
        self.low.len() + high.len() + self.cost - saved <= limit
    }

    /// The records that are ready go into the rightmost leaf, which gets an empty one behind it.
    fn fill_leaf(&mut self) -> Result<()> {
        let n = self.ready;
        assert!(n > 0 && n < self.records.len(), "a leaf takes a record");
        let high = shortest_between(self.key(self.records[n - 1]), self.key(self.records[n]));
        let gone = self.records[n].start;
        let mut bytes = Vec::with_capacity(self.bytes.capacity());
        bytes.extend_from_slice(&self.bytes[gone..]);
        let mut records = Vec::with_capacity(self.records.capacity());
        records.extend(self.records[n..].iter().map(|record| Record {
            start: record.start - gone,
            key_end: record.key_end - gone,
            end: record.end - gone,
        }));
        self.bytes.truncate(gone);
        self.records.truncate(n);
        let leaf = Leaf {
            bytes: std::mem::replace(&mut self.bytes, bytes),
            records: std::mem::replace(&mut self.records, records),
            low: std::mem::replace(&mut self.low, high.clone()),
            high,
        };
        self.cost = self.records.iter().map(|record| record.cost()).sum();
        self.ready = 0;
        self.fill(leaf)
    }

    fn fill(&mut self, leaf: Leaf) -> Result<()> {
        match &mut self.help {
            Help::None => leaf.fill(&self.tree),
            Help::Helper(helper) => helper.fill(leaf),
            Help::After(0, start) => {
                self.help = start(&self.tree).map_or(Help::None, Help::Helper);
                self.fill(leaf)
            }
            Help::After(leaves, _) => {
                *leaves -= 1;
                leaf.fill(&self.tree)
            }
        }
    }
}

impl Leaf {
    fn fill(&self, tree: &Tree) -> Result<()> {
        while !self.try_fill(tree)? {}
        tree.counters.splits.fetch_add(1, Relaxed);
        Ok(())
    }

    /// False: the page above had to be made or split first.
    fn try_fill(&self, tree: &Tree) -> Result<bool> {
        let Leaf { low, high, .. } = self;
        let room = record_cost(high.len(), CHILD_BYTES);
        let parent = match tree.locate_inner(low, 1)? {
            Located::Page(spot) => spot.no,
            Located::AboveRoot => {
                tree.push_leaf_down()?;
                return Ok(false);
            }
            Located::Stale => return Ok(false),
        };
        let space = &tree.space;
        let _reserved = space.reserve_for(&tree.env, 1, AllocPurpose::Normal)?;
        let mut mtr = tree.begin_structure_change()?;
        let parent = mtr.exclusive(tree.page_id(parent))?;
        let aim = Aim::At(low);
        if !tree.arrived(mtr.bytes(parent), aim, 1) {
            return Ok(false);
        }
        let p = SlottedRef::new(mtr.bytes(parent));
        if p.free_space() < room {
            drop(mtr);
            tree.split_at_level(high, 1, room, AllocPurpose::Normal)?;
            return Ok(false);
        }
        let slot = aim.slot(p);
        let Some(no) = child_at(p, slot) else {
            return Err(tree.damage(mtr.page_id(parent).no, "a child in every slot", p.bytes()));
        };
        let h = mtr.exclusive(tree.page_id(no))?;
        check_empty(tree, &mtr, h, low)?;
        let next = space.alloc(&mut mtr, no, owner_tag(tree.index))?;
        let right = mtr.exclusive_new(tree.page_id(next))?;
        let prefix_len = common_prefix_len(low, high);
        mtr.op(right, leaf(tree, NO_PAGE, high, None));
        mtr.op(h, leaf(tree, next, low, Some(high)));
        put(&mut mtr, h, &self.bytes, &self.records, prefix_len);
        let fresh = Fresh {
            separator: high.clone(),
            no: next,
        };
        tree.name_child(&mut mtr, parent, slot + 1, &fresh);
        mtr.commit();
        Ok(true)
    }
}

/// The latched page is the leaf that is to be filled next, with this low fence.
fn check_empty(tree: &Tree, mtr: &Mtr<'_>, h: PageHandle, low: &[u8]) -> Result<()> {
    let page = mtr.bytes(h);
    let is_it = tree.arrived(page, Aim::At(low), 0);
    match is_it && SlottedRef::new(page).n_slots() == 0 {
        true => Ok(()),
        false => {
            let expected = "the empty leaf at the tree's end";
            Err(tree.damage(mtr.page_id(h).no, expected, page))
        }
    }
}

/// Puts records into a leaf whose keys begin with `prefix_len` common bytes.
fn put(mtr: &mut Mtr<'_>, h: PageHandle, bytes: &[u8], records: &[Record], prefix_len: usize) {
    let mut recs = BulkRecsBuilder::default();
    for record in records {
        let suffix = &bytes[record.start + prefix_len..record.key_end];
        recs.push(suffix, &[], &bytes[record.key_end..record.end]);
    }
    if !recs.is_empty() {
        mtr.op(h, PageOp::BulkInsert { recs: recs.recs() });
    }
}

/// Formats an empty leaf with these fences.
fn leaf<'a>(tree: &Tree, next: PageNo, low: &'a [u8], high: Option<&'a [u8]>) -> PageOp<'a> {
    PageOp::FormatSlotted {
        ptype: PageType::Leaf,
        owner: tree.index.0,
        level: 0,
        user_len: 0,
        next,
        low,
        high,
    }
}
