//! Reading leaves before a scan comes to them.
//!
//! A forward scan says each time that it is through with a leaf ([`Tree::leaf_passed`]). After a few in a row, the setting
//! `read_ahead_threshold` says how many, the leaves that come next are read ahead: their page numbers are in the images of level 1, so that no
//! leaf has to be read to know them, wherever in the file they lie. The window begins small, doubles, and is filled up whenever
//! half of it is used: the disk has work while the scan has, and a scan that stops early has not caused many reads.
//!
//! It is a guess. Images may be out of date, and then a page is read that nobody wants; what can't be read is passed over
//! (`buffer/prefetch.rs`), and a pool without spare frames takes nothing. A scan waits for nothing here but, where it crosses from
//! one page of level 1 to the next, for that page, which it needs at once. The page of level 1 after the one it is in is read ahead,
//! too.

use crate::base::{NO_PAGE, PageId, Result};
use crate::page::PageHint;

use super::Tree;
use super::descend::Found;

/// Leaves of the first window, and of the largest.
const FIRST: u32 = 8;
const MOST: u32 = 64;
/// The largest window in bytes.
const MOST_BYTES: usize = 1 << 20;

/// How a forward scan has gone so far. A new one for each search.
#[derive(Default)]
pub struct ReadAhead {
    /// Leaves that it is through with.
    passed: u32,
    /// Leaves that come next and were asked for.
    asked: u32,
    window: u32,
}

impl Tree {
    /// A forward scan is through with a leaf, and goes on at the key `next`, with which another one begins. It ends before `end`, if
    /// that is known. The caller holds no latch (BT-5).
    pub fn leaf_passed(&self, scan: &mut ReadAhead, next: &[u8], end: Option<&[u8]>) {
        let pool = &self.env.pool;
        scan.passed = scan.passed.saturating_add(1);
        scan.asked = scan.asked.saturating_sub(1);
        let threshold = pool.read_ahead_threshold();
        if threshold == 0 || scan.passed < threshold || scan.asked > scan.window / 2 {
            return;
        }
        let by_bytes = MOST_BYTES / self.page_size();
        let most = by_bytes.min(pool.n_frames() / 16).min(MOST as usize) as u32;
        scan.window = (scan.window * 2).max(FIRST).min(most);
        let wanted = scan.window.saturating_sub(scan.asked);
        // What is wrong the scan will meet itself.
        if let Ok(leaves) = self.leaves_from(next, end, scan.asked, wanted) {
            scan.asked += pool.prefetch(&leaves) as u32;
        }
    }

    /// The leaves of the range that begins at `from`, without the first `skip` and at most `limit` of them, as far as images say.
    fn leaves_from(
        &self,
        from: &[u8],
        end: Option<&[u8]>,
        mut skip: u32,
        limit: u32,
    ) -> Result<Vec<PageId>> {
        let mut leaves = Vec::with_capacity(limit as usize);
        let Found::Page(spot) = self.locate_inner(from, 1)? else {
            return Ok(leaves);
        };
        let (pool, guard) = (&self.env.pool, &crossbeam_epoch::pin());
        let unknown = PageHint::unknown();
        let mut image = pool.inner(self.page_id(spot.no), &unknown, guard)?;
        let mut slot = match image.filter(|image| image.covers(from)) {
            Some(image) => image.child_for(from).slot,
            None => return Ok(leaves),
        };
        while let Some(inner) = image.filter(|i| i.index == self.index && i.level == 1) {
            while slot < inner.n_children() {
                let is_beyond = end.is_some_and(|end| inner.separator(slot)[..] >= *end);
                if is_beyond || leaves.len() == limit as usize {
                    return Ok(leaves);
                }
                match skip {
                    0 => leaves.push(self.page_id(inner.child(slot).no)),
                    _ => skip -= 1,
                }
                slot += 1;
            }
            if inner.next == NO_PAGE {
                break;
            }
            let next = self.page_id(inner.next);
            if !pool.is_resident(next) {
                pool.prefetch(&[next]);
                break;
            }
            image = pool.inner(next, &unknown, guard)?;
            slot = 0;
        }
        Ok(leaves)
    }
}
