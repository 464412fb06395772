//! The free pages of a rollback segment.
//!
//! The segment's header leads to a chain of free pages, and says how many there are. Some of the chain's
//! pages are **lists** (type `UndoFree`): free like the others, with the numbers of further free pages, which
//! are neither read nor written until they are used again, and then formatted without being read. SQLite's
//! freelist has such pages ("trunk pages"). The others are what they were, and have a successor only.
//!
//! Purge lists the pages of small logs, and pages of the history queue that are empty. A log with more pages
//! is chained as a whole: its last page is linked to what was the first of the chain, one page changed,
//! however long the log.
//!
//! - **RSEG-7** Nobody looks at a page that is listed, or changes it. The thread that takes it off the list
//!   latches it for new (`exclusive_new`), and formats or frees it. So listing it takes no latch on it, and
//!   what it holds may be of any time.
//!
//! All of it is guarded by the latch of the segment's header.

use std::sync::atomic::{AtomicBool, Ordering};

use smallvec::SmallVec;

use crate::base::{Error, NO_PAGE, PageNo, Result};
use crate::mtr::{Mtr, PageHandle};
use crate::page::{PageOp, PageType, page_type};
use crate::undo::UndoEnv;

use super::pages::PAGES_PER_MTR;
use super::{FREE_HEAD, FREE_LEN, NEXT, Rseg, put_u32, set_next, u32_at};

/// Free pages kept for reuse in a rollback segment; more go back to the tablespace.
pub const FREE_PAGES_KEPT: u32 = 64;

/// In a list: how many pages it lists, and their numbers.
const COUNT: usize = 48;
const NUMBERS: usize = 80;

/// Pages that one mini-transaction of purge lists.
pub(super) type PageList = SmallVec<[PageNo; 32]>;

/// What a page of the free chain says.
pub(super) struct FreeLink {
    pub next: PageNo,
    pub listed: u32,
}

/// Pages that are about to be listed.
pub(super) struct Listing {
    pages: PageList,
    list: PageHandle,
    /// The list is one of the free pages, and not in the chain yet.
    fresh: Option<PageNo>,
}

/// The number of the `n`th page that a list lists.
pub(super) fn listed_at(list: &[u8], n: u32) -> PageNo {
    PageNo(u32_at(list, NUMBERS + n as usize * 4))
}

fn capacity(page_size: usize) -> u32 {
    ((page_size - NUMBERS) / 4) as u32
}

impl Rseg {
    pub(super) fn free_link(&self, page: &[u8], no: PageNo) -> Result<FreeLink> {
        let damaged = |found| {
            let expected = format!("a free page of rollback segment {}", self.id);
            Err(Error::corrupt(self.page(no), expected, found))
        };
        let listed = match page_type(page) {
            Some(PageType::UndoLog | PageType::UndoPage | PageType::History) => 0,
            Some(PageType::UndoFree) => u32_at(page, COUNT),
            found => return damaged(format!("type {found:?}")),
        };
        if listed > capacity(page.len()) {
            return damaged(format!("a list of {listed} pages"));
        }
        let next = PageNo(u32_at(page, NEXT));
        Ok(FreeLink { next, listed })
    }

    /// Latches a page of the free chain.
    fn latch_free(&self, mtr: &mut Mtr<'_>, no: PageNo) -> Result<(PageHandle, FreeLink)> {
        let h = mtr.exclusive(self.page(no))?;
        let link = self.free_link(mtr.bytes(h), no)?;
        Ok((h, link))
    }

    /// Latches the `n`th page of a list for whatever is to be made of it (RSEG-7).
    fn latch_listed(
        &self,
        env: &UndoEnv,
        mtr: &mut Mtr<'_>,
        list: PageHandle,
        n: u32,
    ) -> Result<(PageNo, PageHandle)> {
        let no = listed_at(mtr.bytes(list), n);
        let size = env.space(self.space())?.size_pages();
        if no.0 >= size || no <= self.header_no || mtr.find(self.page(no)).is_some() {
            let expected = format!("a list of free pages of rollback segment {}", self.id);
            let list = mtr.page_id(list);
            return Err(Error::corrupt(list, expected, format!("page {no}")));
        }
        Ok((no, mtr.exclusive_new(self.page(no))?))
    }

    /// A page for a new log or queue page: from the free chain, else from the tablespace. The caller has
    /// reserved a page of the tablespace before the mini-transaction, and formats the page.
    pub(in crate::undo) fn take_page(
        &self,
        env: &UndoEnv,
        mtr: &mut Mtr<'_>,
        header: PageHandle,
    ) -> Result<(PageNo, PageHandle)> {
        let head = PageNo(u32_at(mtr.bytes(header), FREE_HEAD));
        if head == NO_PAGE {
            let no = env.alloc_page(mtr, self.header())?;
            let page = mtr.exclusive_new(self.page(no))?;
            return Ok((no, page));
        }
        let (page, link) = self.latch_free(mtr, head)?;
        let len = u32_at(mtr.bytes(header), FREE_LEN).saturating_sub(1);
        let Some(last) = link.listed.checked_sub(1) else {
            self.write_free_chain(mtr, header, link.next, len);
            return Ok((head, page));
        };
        let taken = self.latch_listed(env, mtr, page, last)?;
        put_u32(mtr, page, COUNT, last);
        self.write_free_chain(mtr, header, head, len);
        Ok(taken)
    }

    fn write_free_chain(&self, mtr: &mut Mtr<'_>, header: PageHandle, head: PageNo, len: u32) {
        let mut both = [0; 8];
        both[..4].copy_from_slice(&head.0.to_le_bytes());
        both[4..].copy_from_slice(&len.to_le_bytes());
        self.free_len.store(len, Ordering::Relaxed);
        mtr.op(
            header,
            PageOp::Write {
                off: FREE_HEAD as u16,
                bytes: &both,
            },
        );
    }

    /// Links the pages `first ..= last` (latched: `last_h`) into the free chain.
    pub(in crate::undo) fn give_back(
        &self,
        mtr: &mut Mtr<'_>,
        header: PageHandle,
        first: PageNo,
        last_h: PageHandle,
        pages: u32,
    ) {
        let (head, len) = (
            u32_at(mtr.bytes(header), FREE_HEAD),
            u32_at(mtr.bytes(header), FREE_LEN),
        );
        set_next(mtr, last_h, PageNo(head));
        self.write_free_chain(mtr, header, first, len.saturating_add(pages));
    }

    /// Latches what `list` changes: the list at the head of the chain, if it has room for these pages, or one
    /// of them. `None`: there are none.
    pub(super) fn latch_listing(
        &self,
        mtr: &mut Mtr<'_>,
        header: PageHandle,
        mut pages: PageList,
    ) -> Result<Option<Listing>> {
        let Some(&last) = pages.last() else {
            return Ok(None);
        };
        let head = PageNo(u32_at(mtr.bytes(header), FREE_HEAD));
        if head != NO_PAGE {
            let (list, link) = self.latch_free(mtr, head)?;
            let bytes = mtr.bytes(list);
            let room = capacity(bytes.len()) - link.listed;
            if page_type(bytes) == Some(PageType::UndoFree) && room as usize >= pages.len() {
                let fresh = None;
                return Ok(Some(Listing { pages, list, fresh }));
            }
            mtr.release(list);
        }
        // The last one: a page of the queue is in memory.
        pages.pop();
        let (list, fresh) = (mtr.exclusive_new(self.page(last))?, Some(last));
        Ok(Some(Listing { pages, list, fresh }))
    }

    /// Adds these pages to the free chain.
    pub(super) fn list(&self, mtr: &mut Mtr<'_>, header: PageHandle, listing: Option<Listing>) {
        let Some(Listing { pages, list, fresh }) = listing else {
            return;
        };
        let mut head = PageNo(u32_at(mtr.bytes(header), FREE_HEAD));
        let mut len = u32_at(mtr.bytes(header), FREE_LEN);
        if let Some(no) = fresh {
            let ptype = PageType::UndoFree;
            mtr.op(list, PageOp::FormatRaw { ptype });
            set_next(mtr, list, head);
            head = no;
            len = len.saturating_add(1);
        }
        let listed = u32_at(mtr.bytes(list), COUNT);
        let numbers: SmallVec<[u8; 128]> = pages.iter().flat_map(|no| no.0.to_le_bytes()).collect();
        let off = NUMBERS + listed as usize * 4;
        mtr.op(
            list,
            PageOp::Write {
                off: off as u16,
                bytes: &numbers,
            },
        );
        let more = pages.len() as u32;
        put_u32(mtr, list, COUNT, listed + more);
        self.write_free_chain(mtr, header, head, len.saturating_add(more));
    }

    /// Free pages that nobody but this segment can use, above those that it keeps.
    pub fn surplus_pages(&self) -> u32 {
        let free = self.free_len.load(Ordering::Relaxed);
        free.saturating_sub(FREE_PAGES_KEPT)
    }

    /// Returns free pages above `FREE_PAGES_KEPT` to the tablespace, a few in each mini-transaction, until
    /// told to stop.
    pub fn trim_free_chain(&self, env: &UndoEnv, stop: &AtomicBool) -> Result<()> {
        let upkeep = self.upkeep.try_lock();
        let may_go_on = || upkeep.is_some() && self.is_active() && !stop.load(Ordering::Relaxed);
        while self.surplus_pages() > 0 && may_go_on() {
            if !self.trim_some(env)? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// One mini-transaction of `trim_free_chain`; `false`: there was nothing to do.
    fn trim_some(&self, env: &UndoEnv) -> Result<bool> {
        let mut mtr = env.begin(self.space())?;
        let header = self.latch(&mut mtr)?;
        let mut head = PageNo(u32_at(mtr.bytes(header), FREE_HEAD));
        let len = u32_at(mtr.bytes(header), FREE_LEN);
        let most = (len.saturating_sub(FREE_PAGES_KEPT) as usize).min(PAGES_PER_MTR);
        // All are latched before the first is freed: allocation pages come last.
        let mut pages = PageList::new();
        let mut shortened = None;
        while head != NO_PAGE && pages.len() < most {
            let (list, link) = self.latch_free(&mut mtr, head)?;
            let mut left = link.listed;
            while left > 0 && pages.len() < most {
                left -= 1;
                pages.push(self.latch_listed(env, &mut mtr, list, left)?.0);
            }
            if pages.len() == most {
                shortened = Some((list, left));
                break;
            }
            pages.push(head);
            head = link.next;
        }
        let freed = pages.len() as u32;
        for no in pages {
            env.free_page(&mut mtr, self.page(no))?;
        }
        if freed == 0 {
            return Ok(false);
        }
        if let Some((list, left)) = shortened {
            put_u32(&mut mtr, list, COUNT, left);
        }
        self.write_free_chain(&mut mtr, header, head, len - freed);
        mtr.commit();
        Ok(true)
    }
}
