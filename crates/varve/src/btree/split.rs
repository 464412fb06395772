//! Splitting: making room for a record, one page at a time, each in a mini-transaction of its own (BT-4).
//!
//! An inner page without room is split alone, before the page below it, if that leaves both sides two
//! children. A page with three children, which only very long keys fill, is split *jointly* with its child:
//! of the four children that there will be, each side gets two (BT-7). The boundary may be the child's new
//! separator itself, which is why neither can be split first. If the page above it is like that, too, all of
//! them are split in the one mini-transaction, up to a page that has room or can be split alone.

use std::cmp::Ordering;
use std::sync::atomic;

use crate::base::{Error, PageNo, Result};
use crate::mtr::{MAX_LOG_BYTES, Mtr, PageHandle};
use crate::page::{
    BulkRecsBuilder, CHILD_BYTES, MAX_PAGE_SIZE, PageOp, SlottedRef, max_key, record_cost,
};
use crate::space::AllocPurpose;

use super::descend::{Aim, Located, child_at};
use super::plan::{MIN_CHILDREN, SplitPlan, may_shift, plan_joint, plan_split};
use super::{MAX_LEVEL, Tree, owner_tag, type_at};

/// How an attempt at a split ended.
enum Outcome {
    /// The page has room now, or was split once.
    Done,
    /// The inner page at `level` needs this much room first. It can be split alone.
    Full { level: u16, room: usize },
    /// The highest page that was latched has no room for this much, and too few children to be split alone:
    /// the page above is needed, too.
    Joint { room: usize },
    /// Something changed in between.
    Stale,
}

/// A page that is going to be split.
struct Split {
    h: PageHandle,
    plan: SplitPlan,
    /// Of an inner page: the slot of the child that is split with it.
    child: usize,
}

/// A page that was split off, as the page above will name it.
pub(super) struct Fresh {
    pub separator: Vec<u8>,
    pub no: PageNo,
}

/// Latched pages from an inner page down to the one that is to be split.
struct LatchedPath {
    /// Each with the slot of the next one.
    above: Vec<(PageHandle, PageNo, usize)>,
    last: PageHandle,
}

impl Tree {
    /// Makes the leaf that covers `key` take `room` more bytes. Other threads may fill it up again at once.
    /// The caller holds no latch.
    #[cold]
    pub(super) fn make_room(&self, key: &[u8], room: usize, purpose: AllocPurpose) -> Result<()> {
        self.split_at_level(key, 0, room, purpose)
    }

    /// Splits the page at `level` that covers `key` until it takes `room` more bytes. Recursion goes up the
    /// tree. An inner page with too few children to be split alone is left as it is.
    pub(super) fn split_at_level(
        &self,
        key: &[u8],
        level: u16,
        room: usize,
        purpose: AllocPurpose,
    ) -> Result<()> {
        // The level of the highest page that is latched, and what there has to be room for one level below.
        let (mut top, mut below) = (level + 1, room);
        loop {
            if top > MAX_LEVEL {
                let expected = format!("a tree of at most {MAX_LEVEL} levels");
                return Err(Error::corrupt(self.page_id(self.root), expected, "more"));
            }
            // Before the mini-transaction, and kept until it is committed.
            let pages = u32::from(top - level);
            let reserved = self.space.reserve_for(&self.env, pages, purpose)?;
            let outcome = match self.locate_inner(key, top)? {
                Located::Page(spot) => self.try_split(key, spot.no, top, level, room)?,
                Located::AboveRoot => match self.push_root_down(top - 1, below)? {
                    // A page above the one that is to be split has room now.
                    Outcome::Done if top - 1 > level => Outcome::Stale,
                    outcome => outcome,
                },
                Located::Stale => Outcome::Stale,
            };
            drop(reserved);
            match outcome {
                Outcome::Done => return Ok(()),
                Outcome::Joint { room } => {
                    (top, below) = (top + 1, room);
                    continue;
                }
                Outcome::Full { level, room } => self.split_at_level(key, level, room, purpose)?,
                Outcome::Stale => std::thread::yield_now(),
            }
            (top, below) = (level + 1, room);
        }
    }

    /// Begins a mini-transaction for a split or a merge, which write at most a page's records twice (a root
    /// that moves down is formatted and filled elsewhere), fences and separators, page addresses, allocation.
    pub(super) fn begin_structure_change(&self) -> Result<Mtr<'_>> {
        self.begin_split(1)
    }

    /// The same for a split of pages at so many levels.
    fn begin_split(&self, levels: u16) -> Result<Mtr<'_>> {
        let max_log_bytes = split_log_bytes(self.page_size(), levels) as u32;
        Mtr::begin_in(&self.env, self.space.id(), max_log_bytes)
    }

    /// Splits the page at `level` that covers `key`; `highest`, at level `top`, was found to cover it, too.
    fn try_split(
        &self,
        key: &[u8],
        highest: PageNo,
        top: u16,
        level: u16,
        room: usize,
    ) -> Result<Outcome> {
        let mut mtr = self.begin_split(top - level)?;
        let Some(mut path) = self.latch_path(&mut mtr, key, highest, top, level)? else {
            return Ok(Outcome::Stale);
        };
        let p = SlottedRef::new(mtr.bytes(path.last));
        let alone = level == 0 || p.n_slots() >= 2 * MIN_CHILDREN;
        if p.free_space() >= room || !alone {
            return Ok(Outcome::Done);
        }
        let shifts = level == 0 && (self.is_dense || may_shift(p, key));
        if let (true, Some(&(parent, _, slot))) = (shifts, path.above.last())
            && self.shift(&mut mtr, (parent, slot), &mut path.last, key, room)?
        {
            mtr.commit();
            return Ok(Outcome::Done);
        }
        let p = SlottedRef::new(mtr.bytes(path.last));
        // It may have been let go meanwhile.
        if p.free_space() >= room {
            return Ok(Outcome::Done);
        }
        let Some(plan) = plan_split(p, key, room) else {
            let what = format!("a record of index {}", self.index);
            let limit = p.free_space();
            return Err(Error::TooLarge {
                what,
                size: room,
                limit,
            });
        };
        let mut room = separator_cost(&plan);
        let (h, child) = (path.last, 0);
        let mut splits = vec![Split { h, plan, child }];
        // From the bottom up, to the page that takes the last separator.
        let mut above = path.above.iter().rev().zip(level + 1..);
        let (parent, slot) = loop {
            let Some((&(h, no, child), level)) = above.next() else {
                return Ok(Outcome::Joint { room });
            };
            let p = SlottedRef::new(mtr.bytes(h));
            if p.free_space() >= room {
                break (h, child);
            }
            if p.n_slots() >= 2 * MIN_CHILDREN {
                return Ok(Outcome::Full { level, room });
            }
            let between = splits.last().map_or(&[][..], |split| &split.plan.separator);
            let Some(plan) = plan_joint(p, child, between) else {
                return Err(self.damage(no, "room for a third child", p.bytes()));
            };
            room = separator_cost(&plan);
            splits.push(Split { h, plan, child });
        };
        let count = splits.len() as u64;
        self.split(&mut mtr, splits, parent, slot)?;
        mtr.commit();
        let counter = &self.counters.splits;
        counter.fetch_add(count, atomic::Ordering::Relaxed);
        // One split may not be enough for a large record, and in a leaf the caller's next look decides; an
        // inner page that was split has room for a separator on either side, but perhaps not for the longest.
        Ok(match level {
            0 => Outcome::Done,
            _ => Outcome::Stale,
        })
    }

    /// Latches page `highest` and all below it that cover `key`, down to `level`. `None` if that page is not
    /// at level `top` there.
    fn latch_path(
        &self,
        mtr: &mut Mtr<'_>,
        key: &[u8],
        highest: PageNo,
        top: u16,
        level: u16,
    ) -> Result<Option<LatchedPath>> {
        let aim = Aim::At(key);
        let (mut h, mut no) = (mtr.exclusive(self.page_id(highest))?, highest);
        if !self.arrived(mtr.bytes(h), aim, top) {
            return Ok(None);
        }
        let mut above = Vec::new();
        for below in (level..top).rev() {
            let p = SlottedRef::new(mtr.bytes(h));
            let slot = aim.slot(p);
            let Some(child) = child_at(p, slot) else {
                return Err(self.damage(no, "an inner page with children", p.bytes()));
            };
            above.push((h, no, slot));
            h = self.latch_child_page(mtr, h, slot, child, below)?;
            no = child;
        }
        Ok(Some(LatchedPath { above, last: h }))
    }

    /// Splits latched pages, each a child of the next; the last one is child `slot` of `parent`, which has
    /// room.
    fn split(
        &self,
        mtr: &mut Mtr<'_>,
        splits: Vec<Split>,
        parent: PageHandle,
        slot: usize,
    ) -> Result<()> {
        let mut below: Option<Fresh> = None;
        for split in splits {
            let near = mtr.page_id(split.h).no;
            let no = self.space.alloc(mtr, near, owner_tag(self.index))?;
            let right = mtr.exclusive_new(self.page_id(no))?;
            self.split_page(mtr, &split, right, no, below.as_ref());
            let separator = split.plan.separator;
            below = Some(Fresh { separator, no });
        }
        let fresh = below.expect("at least one page is split");
        self.name_child(mtr, parent, slot + 1, &fresh);
        Ok(())
    }

    /// The page `parent`, which has room, names a fresh child in this slot.
    pub(super) fn name_child(
        &self,
        mtr: &mut Mtr<'_>,
        parent: PageHandle,
        slot: usize,
        fresh: &Fresh,
    ) {
        let suffix = &fresh.separator[SlottedRef::new(mtr.bytes(parent)).prefix_len()..];
        let image = mtr.map_image(parent, |old| old.with_child(slot, suffix, fresh.no));
        insert_child(mtr, parent, slot, fresh);
        if let Some(image) = image {
            mtr.set_image(parent, image);
        }
    }

    /// The root, a leaf, moves down, so that there is a page above it.
    pub(super) fn push_leaf_down(&self) -> Result<()> {
        let _reserved = self.space.reserve(&self.env, 1)?;
        self.push_root_down(0, usize::MAX).map(drop)
    }

    /// Moves a page's records from the boundary on into the fresh page `right`, and puts what was split off
    /// below it where it belongs.
    fn split_page(
        &self,
        mtr: &mut Mtr<'_>,
        &Split { h, ref plan, child }: &Split,
        right: PageHandle,
        right_no: PageNo,
        below: Option<&Fresh>,
    ) {
        let p = SlottedRef::new(mtr.bytes(h));
        let (level, next, n) = (p.level(), p.next(), p.n_slots());
        let high = p.high().map(<[u8]>::to_vec);
        let (keep, separator) = (plan.keep, &plan.separator[..]);
        let mut recs = BulkRecsBuilder::default();
        let begins = |fresh: &&Fresh| fresh.separator == separator;
        if let Some(fresh) = below.filter(begins) {
            recs.push(&[], &[], &fresh.no.0.to_le_bytes());
        }
        recs.push_rebased(p, keep..n, separator, high.as_deref());
        mtr.op(
            right,
            PageOp::FormatSlotted {
                ptype: type_at(level),
                owner: self.index.0,
                level,
                user_len: 0,
                next,
                low: separator,
                high: high.as_deref(),
            },
        );
        if !recs.is_empty() {
            mtr.op(right, PageOp::BulkInsert { recs: recs.recs() });
        }
        mtr.op(
            h,
            PageOp::Trim {
                keep: keep as u16,
                high: separator,
                next: right_no,
            },
        );
        match below.filter(|fresh| !begins(fresh)) {
            Some(fresh) if child < keep => insert_child(mtr, h, child + 1, fresh),
            Some(fresh) => insert_child(mtr, right, child + 1 - keep, fresh),
            None => {}
        }
        let has_two = |h| SlottedRef::new(mtr.bytes(h)).n_slots() >= MIN_CHILDREN;
        debug_assert!(level == 0 || has_two(h) && has_two(right), "BT-7");
    }

    /// The root, at `level`, has no room: its content moves into a fresh page, which becomes its only child.
    fn push_root_down(&self, level: u16, room: usize) -> Result<Outcome> {
        let mut mtr = self.begin_structure_change()?;
        let h = mtr.exclusive(self.page_id(self.root))?;
        match self.root_level(mtr.bytes(h))?.cmp(&level) {
            // The tree shrank: there is nothing left to split at this level.
            Ordering::Less => return Ok(Outcome::Done),
            Ordering::Greater => return Ok(Outcome::Stale),
            Ordering::Equal => {}
        }
        if SlottedRef::new(mtr.bytes(h)).free_space() >= room {
            return Ok(Outcome::Done);
        }
        let child_no = self
            .space
            .alloc(&mut mtr, self.root, owner_tag(self.index))?;
        let child = mtr.exclusive_new(self.page_id(child_no))?;
        self.move_content(&mut mtr, h, child);
        self.format_whole(&mut mtr, h, level + 1);
        mtr.op(
            h,
            PageOp::Insert {
                slot: 0,
                suffix: &[],
                payload: &child_no.0.to_le_bytes(),
            },
        );
        mtr.commit();
        // Its child is split next.
        Ok(Outcome::Stale)
    }

    /// Formats a page that covers all keys at its level.
    pub(super) fn format_whole(&self, mtr: &mut Mtr<'_>, h: PageHandle, level: u16) {
        mtr.op(
            h,
            PageOp::FormatSlotted {
                ptype: type_at(level),
                owner: self.index.0,
                level,
                user_len: 0,
                next: crate::base::NO_PAGE,
                low: &[],
                high: None,
            },
        );
    }

    /// Makes `to` a copy of `from`, the only page of its level.
    pub(super) fn move_content(&self, mtr: &mut Mtr<'_>, from: PageHandle, to: PageHandle) {
        let p = SlottedRef::new(mtr.bytes(from));
        let level = p.level();
        let recs = BulkRecsBuilder::rebase(p, 0..p.n_slots(), &[], None);
        self.format_whole(mtr, to, level);
        if !recs.is_empty() {
            mtr.op(to, PageOp::BulkInsert { recs: recs.recs() });
        }
    }
}

/// Redo that a split of pages at so many levels takes at most: each level beyond the first has three records.
const fn split_log_bytes(page_size: usize, levels: u16) -> usize {
    let key = max_key(page_size);
    2 * page_size + 8 * key + 4096 + (levels as usize - 1) * (6 * key + 512)
}

const _: () = assert!(split_log_bytes(MAX_PAGE_SIZE, MAX_LEVEL) <= MAX_LOG_BYTES as usize);

/// What the page above a split takes for it.
fn separator_cost(plan: &SplitPlan) -> usize {
    record_cost(plan.separator.len(), CHILD_BYTES)
}

fn insert_child(mtr: &mut Mtr<'_>, h: PageHandle, slot: usize, fresh: &Fresh) {
    let prefix_len = SlottedRef::new(mtr.bytes(h)).prefix_len();
    let op = PageOp::Insert {
        slot: slot as u16,
        suffix: &fresh.separator[prefix_len..],
        payload: &fresh.no.0.to_le_bytes(),
    };
    mtr.op(h, op);
}
