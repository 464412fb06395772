//! Filling an empty tree with records that come in the order of their keys: each leaf is written once, as
//! full as it is to be, and its records are one operation in the log.
//!
//! The rightmost leaf is empty, and its range has no upper end. When the records for a leaf are known, they
//! go there, and in the same mini-transaction it gets its high fence, and an empty leaf behind it that the
//! parent names. So the tree is a good one after each of them (BT-4), and what has been loaded is there,
//! whenever a crash comes. The parent is split where it grows, as by any ascending run.
//!
//! Nobody else changes the tree meanwhile.

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

/// Loads a tree, which it borrows or has a share in.
pub struct Loader<T> {
    tree: T,
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
        let mut mtr = self.tree.begin_structure_change()?;
        let h = self.tree.leaf_exclusive(&mut mtr, &self.low, None)?;
        self.check_empty(&mtr, h)?;
        self.put(&mut mtr, h, self.records.len(), 0);
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

    /// The latched page is the leaf that is to be filled next.
    fn check_empty(&self, mtr: &Mtr<'_>, h: PageHandle) -> Result<()> {
        let page = mtr.bytes(h);
        let is_it = self.tree.arrived(page, Aim::At(&self.low), 0);
        match is_it && SlottedRef::new(page).n_slots() == 0 {
            true => Ok(()),
            false => {
                let expected = "the empty leaf at the tree's end";
                Err(self.tree.damage(mtr.page_id(h).no, expected, page))
            }
        }
    }

    /// Puts the first `n` records into a leaf whose keys begin with `prefix_len` common bytes.
    fn put(&self, mtr: &mut Mtr<'_>, h: PageHandle, n: usize, prefix_len: usize) {
        let mut recs = BulkRecsBuilder::default();
        for record in &self.records[..n] {
            let suffix = &self.bytes[record.start + prefix_len..record.key_end];
            recs.push(suffix, &[], &self.bytes[record.key_end..record.end]);
        }
        if !recs.is_empty() {
            mtr.op(h, PageOp::BulkInsert { recs: recs.recs() });
        }
    }

    /// The records that are ready go into the rightmost leaf, which gets an empty one behind it.
    fn fill_leaf(&mut self) -> Result<()> {
        let n = self.ready;
        assert!(n > 0 && n < self.records.len(), "a leaf takes a record");
        let high = shortest_between(self.key(self.records[n - 1]), self.key(self.records[n]));
        while !self.try_fill(n, &high)? {}
        self.tree.counters.splits.fetch_add(1, Relaxed);
        let gone = self.records[n].start;
        self.bytes.drain(..gone);
        self.records.drain(..n);
        let back = |range: &mut Record| {
            range.start -= gone;
            range.key_end -= gone;
            range.end -= gone;
        };
        self.records.iter_mut().for_each(back);
        self.cost = self.records.iter().map(|record| record.cost()).sum();
        self.low = high;
        self.ready = 0;
        Ok(())
    }

    /// False: the page above had to be made or split first.
    fn try_fill(&self, n: usize, high: &[u8]) -> Result<bool> {
        let tree = &*self.tree;
        let room = record_cost(high.len(), CHILD_BYTES);
        let parent = match tree.locate_inner(&self.low, 1)? {
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
        let aim = Aim::At(&self.low);
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
        self.check_empty(&mtr, h)?;
        let next = space.alloc(&mut mtr, no, owner_tag(tree.index))?;
        let right = mtr.exclusive_new(tree.page_id(next))?;
        let prefix_len = common_prefix_len(&self.low, high);
        mtr.op(right, leaf(tree, NO_PAGE, high, None));
        mtr.op(h, leaf(tree, next, &self.low, Some(high)));
        self.put(&mut mtr, h, n, prefix_len);
        let fresh = Fresh {
            separator: high.to_vec(),
            no: next,
        };
        tree.name_child(&mut mtr, parent, slot + 1, &fresh);
        mtr.commit();
        Ok(true)
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
