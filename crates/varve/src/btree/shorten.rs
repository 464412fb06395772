//! Room in a full leaf that its records give up, in a mini-transaction of its own, before the leaf is split.

use std::sync::atomic::Ordering::Relaxed;

use crate::base::{Result, TrxId};
use crate::mtr::Mtr;
use crate::page::{MAX_PAGE_SIZE, MIN_RECORD_COST, PageOp, SlottedRef};

use super::Tree;

/// A leaf is written anew, with redo for it, if that frees such a part of it.
const WORTH: usize = 16;

/// Redo of cuts in a leaf, which has a bit for each record, and the operation's head.
const LOG_BYTES: usize = MAX_PAGE_SIZE / MIN_RECORD_COST / 8 + 64;

/// Which records of a leaf can be shorter.
pub struct Cuts {
    /// Where in the payloads bytes are cut out, and how many.
    off: u16,
    cut: u16,
    /// A bit for each record.
    slots: Vec<u8>,
    count: usize,
}

impl Cuts {
    /// The records whose payloads are as asked.
    pub fn of(
        leaf: SlottedRef<'_>,
        off: usize,
        cut: usize,
        is_cut: impl Fn(&[u8]) -> bool,
    ) -> Cuts {
        let n = leaf.n_slots();
        let mut cuts = Cuts {
            off: off as u16,
            cut: cut as u16,
            slots: vec![0; n.div_ceil(8)],
            count: 0,
        };
        for slot in (0..n).filter(|&slot| is_cut(leaf.payload(slot))) {
            cuts.slots[slot / 8] |= 1 << (slot % 8);
            cuts.count += 1;
        }
        cuts
    }

    fn gain(&self) -> usize {
        self.count * usize::from(self.cut)
    }
}

/// Whoever writes a tree's records and knows which bytes of them nobody needs any more.
pub trait Shorten {
    /// Nobody asks any more who has written what carries an id below this one.
    fn limit(&self) -> TrxId;

    /// Under the leaf's latch.
    fn cuts(&self, leaf: SlottedRef<'_>, limit: TrxId) -> Cuts;
}

impl Tree {
    /// Makes the leaf that covers `key` take `room` more bytes by making its records shorter. `false`: that
    /// is not possible, or not worth it. The caller holds no latch.
    #[cold]
    pub(super) fn shorten(&self, key: &[u8], room: usize, by: &dyn Shorten) -> Result<bool> {
        // It takes a look at all views, and only grows.
        let limit = by.limit();
        let mut mtr = Mtr::begin_in(&self.env, self.space.id(), LOG_BYTES as u32)?;
        let h = self.leaf_exclusive(&mut mtr, key, None)?;
        let leaf = SlottedRef::new(mtr.bytes(h));
        let cuts = by.cuts(leaf, limit);
        let is_worth_it = cuts.gain() >= leaf.capacity() / WORTH;
        if !is_worth_it || leaf.free_space() + cuts.gain() < room {
            return Ok(false);
        }
        let op = PageOp::CutPayloads {
            off: cuts.off,
            cut: cuts.cut,
            slots: &cuts.slots,
        };
        mtr.op(h, op);
        mtr.commit();
        self.counters.shortenings.fetch_add(1, Relaxed);
        Ok(true)
    }
}
