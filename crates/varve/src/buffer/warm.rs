//! Which pages the pool holds, and how many more it would hold without anybody's giving way: for a pool that
//! is to be filled after a restart as it was before.

use std::cmp::Reverse;
use std::sync::atomic::Ordering::*;

use super::BufferPool;
use super::frame::{Frame, NO_PAGE_ID};
use crate::base::PageId;

impl BufferPool {
    /// The pages in the pool, most recently used first, as far as that is known. They may change at any time.
    pub fn pages_by_use(&self) -> Vec<PageId> {
        let now = self.replacement.now();
        let used = |f: &Frame| {
            let touched = &f.touched;
            (
                f.page.load(Relaxed),
                touched.idle_ticks(now),
                touched.usage(),
            )
        };
        let mut pages: Vec<_> = self.frames.iter().map(used).collect();
        pages.retain(|page| page.0 != NO_PAGE_ID);
        pages.sort_by_key(|&(_, idle, usage)| (idle, Reverse(usage)));
        let ids = pages.into_iter().map(|page| PageId::from_u64(page.0));
        ids.collect()
    }

    /// How many frames are free beyond those that the page cleaner keeps so.
    pub fn frames_to_spare(&self) -> usize {
        let kept = 2 * self.replacement.low_mark() + 8;
        self.free_frames().saturating_sub(kept)
    }
}
