//! What is in the pool, page by page, for people.

use std::sync::atomic::Ordering::Relaxed;

use super::frame::NO_PAGE_ID;
use super::{BufferPool, SharedPage};
use crate::base::{IndexId, Lsn, PageId};
use crate::page::{PageType, SlottedRef, page_lsn, page_type};

/// A frame with a page, as it was for a moment.
#[derive(Clone, Debug)]
pub struct PooledPage {
    /// The number of the frame.
    pub frame: usize,
    pub id: PageId,
    /// How many want it to stay, those that wait for its latch among them.
    pub pins: u32,
    /// It has changes that are not written yet.
    pub is_dirty: bool,
    /// The oldest of these, unless no redo was written for them.
    pub oldest_change: Option<Lsn>,
    /// How many more rounds of the clock it would stay without being used.
    pub usage: u32,
    /// `None` while somebody has it latched exclusively.
    pub content: Option<PageContent>,
}

/// What a page holds.
#[derive(Clone, Copy, Debug)]
pub struct PageContent {
    pub kind: PageType,
    pub newest_change: Lsn,
    /// Of a tree's page: which index's, that of its change buffer too, and how far above the leaves.
    pub tree: Option<(IndexId, u16)>,
    /// Of a page with records: how many, and their bytes with what they need to be found.
    pub records: u64,
    pub record_bytes: u64,
}

impl PageContent {
    fn of(page: &[u8]) -> PageContent {
        let kind = page_type(page).unwrap_or(PageType::Unused);
        let slotted = kind.is_slotted().then(|| SlottedRef::new(page));
        let is_tree = matches!(kind, PageType::Leaf | PageType::Inner);
        PageContent {
            kind,
            newest_change: page_lsn(page),
            tree: slotted.filter(|_| is_tree).map(|page| {
                let id = IndexId(page.owner());
                (id.change_buffer_of().unwrap_or(id), page.level())
            }),
            records: slotted.map_or(0, |page| page.n_slots() as u64),
            record_bytes: slotted.map_or(0, |page| page.used_space() as u64),
        }
    }
}

impl BufferPool {
    /// Hands every page in the pool to `each`, in the order of the frames, until that says false. A page is
    /// latched for a moment, if nobody is in the way: nothing is waited for. The caller has none latched.
    pub fn each_page(&self, each: &mut dyn FnMut(PooledPage) -> bool) {
        for (frame, f) in self.frames.iter().enumerate() {
            if f.page.load(Relaxed) == NO_PAGE_ID {
                continue;
            }
            let latched = f.latch.try_lock_shared();
            let page = latched.then(|| SharedPage::new(self, frame as u32));
            // Final if it is latched (BUF-1), and good enough if it is not.
            let id = f.page.load(Relaxed);
            if id == NO_PAGE_ID {
                continue;
            }
            let first_change = f.first_change.load(Relaxed);
            let is_logged = first_change != 0 && first_change != super::frame::UNLOGGED_CHANGE;
            let seen = PooledPage {
                frame,
                id: PageId::from_u64(id),
                pins: f.pins(),
                is_dirty: f.is_dirty(),
                oldest_change: is_logged.then_some(Lsn(first_change)),
                usage: f.touched.usage(),
                content: page.as_deref().map(PageContent::of),
            };
            drop(page);
            if !each(seen) {
                return;
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::Duration;

    use super::super::LatchClass;
    use super::super::tests::{change, id, pool_of};
    use super::*;

    /// Who gets a latch at once, or within a few tries, is not counted.
    #[test]
    fn waits_for_latches_are_counted_and_pages_are_looked_at_without() {
        let (pool, _store) = pool_of(64, 3);
        change(&pool, 1, 100);
        drop(pool.shared(id(2)).unwrap());
        let pages = || {
            let mut pages = Vec::new();
            pool.each_page(&mut |page| {
                pages.push(page);
                true
            });
            pages.sort_by_key(|page| page.id.no);
            pages
        };
        let waits = || pool.stats().latch_waits(LatchClass::Other);
        assert_eq!(waits().waits, 0);
        // A waiter that the processor leaves alone for long has not tried often enough yet.
        for tries in 1.. {
            assert!(tries < 100, "no wait was counted");
            std::thread::scope(|scope| {
                let held = pool.exclusive(id(2)).unwrap();
                let waiter = scope.spawn(|| drop(pool.shared(id(2)).unwrap()));
                let busy = || pages().into_iter().find(|page| page.id == id(2)).unwrap();
                while busy().pins == 0 {
                    std::thread::yield_now();
                }
                assert!(busy().content.is_none());
                std::thread::sleep(Duration::from_millis(20));
                drop(held);
                waiter.join().unwrap();
            });
            if waits().waits > 0 {
                break;
            }
        }
        assert_eq!(waits().waits, 1);
        assert!(waits().usec > 0);
        let pages = pages();
        assert_eq!(pages.len(), 2, "{pages:?}");
        assert!(
            pages[0].is_dirty && pages[0].oldest_change == Some(Lsn(100)),
            "{pages:?}"
        );
        assert!(
            !pages[1].is_dirty && pages[1].oldest_change.is_none(),
            "{pages:?}"
        );
        let content = pages[0].content.unwrap();
        assert_eq!(
            (content.kind, content.newest_change),
            (PageType::Raw, Lsn(108))
        );
        assert_eq!((content.tree, content.records), (None, 0));
    }
}
