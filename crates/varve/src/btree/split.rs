//! Splitting: making room for a record, one page at a time, each in a mini-transaction of its own (BT-4).

use std::cmp::Ordering;
use std::sync::atomic;

use crate::base::{Error, PageNo, Result};
use crate::mtr::{Mtr, PageH};
use crate::page::{BulkRecsBuilder, PageOp, SlottedRef, max_key, record_cost};
use crate::space::Purpose;

use super::descend::{Aim, Found, child_at};
use super::leaf::boundary;
use super::plan::{SplitPlan, plan_split};
use super::{MAX_LEVEL, Seek, Tree, owner_tag, type_at};

/// How an attempt at a split ended.
enum Outcome {
    /// The page has room now, or was split once.
    Done,
    /// The parent needs this much room first.
    ParentFull(usize),
    /// Something changed in between.
    Stale,
}

impl Tree {
    /// Makes the leaf that covers `key` take `room` more bytes. Other threads may fill it up again at once. The caller
    /// holds no latch.
    #[cold]
    pub(super) fn make_room(&self, key: &[u8], room: usize, purpose: Purpose) -> Result<()> {
        self.split_at_level(key, 0, room, purpose)
    }

    /// Splits the page at `level` that covers `key` until it takes `room` more bytes. Recursion goes up the tree.
    fn split_at_level(&self, key: &[u8], level: u16, room: usize, purpose: Purpose) -> Result<()> {
        if level > MAX_LEVEL {
            let expected = format!("a tree of at most {MAX_LEVEL} levels");
            return Err(Error::corrupt(self.page_id(self.root), expected, "more"));
        }
        loop {
            // Before the mini-transaction, and kept until it is committed.
            let reserved = self.space.reserve_for(&self.env, 1, purpose)?;
            let outcome = match self.locate_inner(key, level + 1)? {
                Found::Page(spot) => self.try_split(key, spot.no, level, room)?,
                Found::AboveRoot => self.push_root_down(level, room)?,
                Found::Stale => Outcome::Stale,
            };
            drop(reserved);
            match outcome {
                Outcome::Done => return Ok(()),
                Outcome::ParentFull(room) => self.split_at_level(key, level + 1, room, purpose)?,
                Outcome::Stale => std::thread::yield_now(),
            }
        }
    }

    /// Begins a mini-transaction for a split or a merge, which write at most a page's records twice (a root that moves down
    /// is formatted and filled elsewhere), fences and separators, page addresses, allocation.
    pub(super) fn begin_structure_change(&self) -> Result<Mtr<'_>> {
        let page = self.page_size();
        let max_log_bytes = (2 * page + 8 * max_key(page) + 4096) as u32;
        Mtr::begin_in(&self.env, self.space.id(), max_log_bytes)
    }

    fn try_split(&self, key: &[u8], parent: PageNo, level: u16, room: usize) -> Result<Outcome> {
        let mut mtr = self.begin_structure_change()?;
        let above = mtr.exclusive(self.page_id(parent))?;
        if !self.arrived(mtr.bytes(above), Aim::At(key), level + 1) {
            return Ok(Outcome::Stale);
        }
        let p = SlottedRef::new(mtr.bytes(above));
        let slot = boundary(p, key, Seek::Gt).saturating_sub(1);
        let Some(no) = child_at(p, slot) else {
            return Err(self.damage(parent, "an inner page with children", p.bytes()));
        };
        let h = self.latch_child_page(&mut mtr, above, (slot, no), level)?;
        let p = SlottedRef::new(mtr.bytes(h));
        if p.free_space() >= room {
            return Ok(Outcome::Done);
        }
        let Some(plan) = plan_split(p, key) else {
            let what = format!("a record of index {}", self.index);
            let limit = p.free_space();
            return Err(Error::TooLarge {
                what,
                size: room,
                limit,
            });
        };
        let separator_cost = record_cost(plan.separator.len(), 4);
        if SlottedRef::new(mtr.bytes(above)).free_space() < separator_cost {
            return Ok(Outcome::ParentFull(separator_cost));
        }
        self.split(&mut mtr, above, slot, h, no, &plan)?;
        mtr.commit();
        self.counters.splits.fetch_add(1, atomic::Ordering::Relaxed);
        // One split may not be enough for a large record, and in a leaf the caller's next look decides; an inner page
        // that was split has room for a separator on either side, but perhaps not for the longest.
        Ok(match level {
            0 => Outcome::Done,
            _ => Outcome::Stale,
        })
    }

    /// Splits the latched page `no`, child `slot` of the latched page `above`.
    fn split(
        &self,
        mtr: &mut Mtr<'_>,
        above: PageH,
        slot: usize,
        h: PageH,
        no: PageNo,
        plan: &SplitPlan,
    ) -> Result<()> {
        let right_no = self.space.alloc(mtr, no, owner_tag(self.index))?;
        let right = mtr.exclusive_new(self.page_id(right_no))?;

        let p = SlottedRef::new(mtr.bytes(h));
        let (level, next, n) = (p.level(), p.next(), p.n_slots());
        let high = p.high().map(<[u8]>::to_vec);
        let separator = &plan.separator[..];
        let recs = BulkRecsBuilder::rebase(p, plan.keep..n, separator, high.as_deref());
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
                keep: plan.keep as u16,
                high: separator,
                next: right_no,
            },
        );
        let prefix_len = SlottedRef::new(mtr.bytes(above)).prefix_len();
        let suffix = &separator[prefix_len..];
        let image = mtr.map_image(above, |old| old.with_child(slot + 1, suffix, right_no));
        mtr.op(
            above,
            PageOp::Insert {
                slot: slot as u16 + 1,
                suffix,
                payload: &right_no.0.to_le_bytes(),
            },
        );
        if let Some(image) = image {
            mtr.set_image(above, image);
        }
        Ok(())
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
    pub(super) fn format_whole(&self, mtr: &mut Mtr<'_>, h: PageH, level: u16) {
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
    pub(super) fn move_content(&self, mtr: &mut Mtr<'_>, from: PageH, to: PageH) {
        let p = SlottedRef::new(mtr.bytes(from));
        let level = p.level();
        let recs = BulkRecsBuilder::rebase(p, 0..p.n_slots(), &[], None);
        self.format_whole(mtr, to, level);
        if !recs.is_empty() {
            mtr.op(to, PageOp::BulkInsert { recs: recs.recs() });
        }
    }
}
