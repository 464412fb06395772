//! Reading leaves before a scan comes to them.
//!
//! A scan says each time that it is through with a leaf ([`Tree::leaf_passed`]). After a few in a row, the
//! setting `read_ahead_threshold` says how many, the leaves that come next are read ahead: their page numbers
//! are in the images of level 1, so that no leaf has to be read to know them, wherever in the file they lie,
//! and in either direction. The window begins small, doubles, and is filled up whenever half of it is used:
//! the disk has work while the scan has, and a scan that stops early has not caused many reads.
//!
//! It is a guess. Images may be out of date, and then a page is read that nobody wants; what can't be read is
//! passed over (`buffer/prefetch.rs`), and a pool without spare frames takes nothing. A scan waits for
//! nothing here but, where it crosses from one page of level 1 to the next, for that page, which it needs at
//! once. The page of level 1 after the one it is in is read ahead, too.

use crate::base::{PageId, Result};
use crate::page::{InnerImage, PageHint};

use super::descend::{Aim, Located};
use super::{Seek, Tree};

/// Leaves of the first window, and of the largest.
const FIRST: u32 = 8;
const MOST: u32 = 64;
/// The largest window in bytes.
const MOST_BYTES: usize = 1 << 20;

/// How a scan has gone so far. A new one for each search, and for each turn.
#[derive(Default)]
pub struct ReadAhead {
    /// Leaves that it is through with.
    passed: u32,
    /// Leaves that come next and were asked for.
    asked: u32,
    window: u32,
}

/// Where a scan goes on.
#[derive(Clone, Copy)]
pub struct Onward<'a> {
    /// The fence that the next leaf has on the side from which the scan comes.
    pub from: &'a [u8],
    /// `Ge`: the next leaf begins there; `Lt`: it ends there.
    pub seek: Seek,
    /// Nothing is wanted at this key and above, in a scan forward; nothing below it, in one backward.
    pub bound: Option<&'a [u8]>,
}

impl Onward<'_> {
    /// A leaf that lies behind this fence has nothing that is wanted.
    fn is_over(&self, fence: &[u8]) -> bool {
        self.bound
            .is_some_and(|bound| match self.seek.is_forward() {
                true => fence >= bound,
                false => fence <= bound,
            })
    }
}

impl Tree {
    /// A scan is through with a leaf. The caller holds no latch (BT-5).
    pub fn leaf_passed(&self, scan: &mut ReadAhead, onward: Onward<'_>) {
        let pool = &self.env.pool;
        scan.passed = scan.passed.saturating_add(1);
        scan.asked = scan.asked.saturating_sub(1);
        let threshold = pool.read_ahead_threshold();
        if threshold == 0 || scan.passed < threshold || scan.asked > scan.window / 2 {
            return;
        }
        let by_bytes = MOST_BYTES / self.page_size();
        let most = by_bytes.min(pool.usable_frames() / 16).min(MOST as usize) as u32;
        scan.window = (scan.window * 2).max(FIRST).min(most);
        let wanted = scan.window.saturating_sub(scan.asked);
        // What is wrong the scan will meet itself.
        if let Ok(leaves) = self.leaves_onward(onward, scan.asked, wanted) {
            scan.asked += pool.prefetch(&leaves) as u32;
        }
    }

    /// Begins to read the leaves of these keys, which are in order, at most so many. The caller holds no
    /// latch.
    pub fn read_leaves_ahead(&self, keys: &[Vec<u8>], limit: usize) -> Result<()> {
        let (pool, guard) = (&self.env.pool, &crossbeam_epoch::pin());
        if pool.read_ahead_threshold() == 0 {
            return Ok(());
        }
        let mut leaves: Vec<PageId> = Vec::new();
        for key in keys {
            let Located::Page(spot) = self.locate(Aim::At(key), 0, guard)? else {
                break;
            };
            let id = self.page_id(spot.no);
            if leaves.last() != Some(&id) {
                if leaves.len() == limit {
                    break;
                }
                leaves.push(id);
            }
        }
        pool.prefetch(&leaves);
        Ok(())
    }

    /// The leaves that a scan comes to, without the first `skip` and at most `limit` of them, as far as
    /// images say.
    fn leaves_onward(&self, onward: Onward<'_>, mut skip: u32, limit: u32) -> Result<Vec<PageId>> {
        let (pool, guard) = (&self.env.pool, &crossbeam_epoch::pin());
        let is_forward = onward.seek.is_forward();
        let mut leaves = Vec::with_capacity(limit as usize);
        // The fence at which the next leaf begins, on the side from which the scan comes. It moves on with
        // each.
        let mut fence = onward.from.to_vec();
        let mut is_needed_now = true;
        loop {
            let aim = Aim::of(&fence, onward.seek);
            let Located::Page(spot) = self.locate(aim, 1, guard)? else {
                return Ok(leaves);
            };
            let id = self.page_id(spot.no);
            if !is_needed_now && !pool.is_resident(id) {
                pool.prefetch(&[id]);
                return Ok(leaves);
            }
            is_needed_now = false;
            let image = pool.inner(id, &PageHint::unknown(), guard)?;
            let is_it = |image: &&InnerImage| {
                (image.index, image.level) == (self.index, 1) && aim.in_image(image)
            };
            let Some(image) = image.filter(is_it) else {
                return Ok(leaves);
            };
            let mut next = Some(aim.child(image).slot);
            while let Some(slot) = next {
                if leaves.len() == limit as usize || onward.is_over(&fence) {
                    return Ok(leaves);
                }
                match skip {
                    0 => leaves.push(self.page_id(image.child(slot).no)),
                    _ => skip -= 1,
                }
                let (low, high) = image.fences(slot);
                let far = match is_forward {
                    true => high,
                    false => Some(low).filter(|low| !low.is_empty()),
                };
                // The last leaf of the tree has none.
                let Some(far) = far else {
                    return Ok(leaves);
                };
                fence = far;
                next = match is_forward {
                    true => Some(slot + 1).filter(|&slot| slot < image.n_children()),
                    false => slot.checked_sub(1),
                };
            }
        }
    }
}
