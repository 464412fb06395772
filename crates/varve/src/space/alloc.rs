//! Reserving, allocating and freeing pages of a tablespace.
//!
//! Protocol of a change (SP-2): latch page 1, which is the file's allocation latch; choose an extent in the
//! mirror; latch the group's allocation page; change it through the mini-transaction. The mirror follows
//! under the same latch. The mirror is built by the first reservation, with page 1 latched shared, so that no
//! change runs meanwhile; a page freed before that changes the allocation page only.
//!
//! A page that is freed and used again is safe for replay: its new user formats it as new
//! (`Mtr::exclusive_new`), and that record does not depend on what the page held.

use std::sync::atomic::Ordering;

use super::alloc_page::{EXTENT_PAGES, MIXED, group_start};
use super::extents::{Extents, FREE};
use super::header::{DEF, DEF_LEN, DefinitionCopy};
use super::{Space, SpaceKind};
use crate::base::{Error, NO_PAGE, PageId, PageNo, Result};
use crate::mtr::{Mtr, MtrEnv, PageHandle};
use crate::page::{PageOp, PageType, page_type};

/// Redo that one allocation may take, in bytes.
pub const ALLOC_LOG_BYTES: u32 = 96;

/// Redo that freeing one page may take, in bytes.
pub const FREE_LOG_BYTES: u32 = 64;

/// The most that a file is extended at once, in bytes.
const MAX_GROWTH_BYTES: u64 = 4 << 20;

/// Of a file larger than an extent, one page in so many is kept (SP-9), at least `MIN_KEPT_PAGES`.
const KEPT_ONE_IN: u32 = 64;
const MIN_KEPT_PAGES: u32 = 16;
/// Pages that are kept of a smaller file with rollback segments.
const KEPT_OF_SMALL_UNDO: u32 = 8;

/// Pages that are given back under one latch of the allocation page.
const DISCARDED_AT_ONCE: usize = 512;

/// Free pages promised to one mini-transaction; given back when dropped, whether used or not.
#[must_use = "the pages are promised only as long as this lives"]
pub struct Reserved<'a> {
    space: &'a Space,
    pages: u32,
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        if let Some(extents) = &mut *self.space.extents.lock() {
            extents.reserved -= self.pages;
        }
    }
}

/// What pages are wanted for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AllocPurpose {
    Normal,
    /// Rollback, purge, and what removes or renames a table's file: it may use up the pages that are kept
    /// (SP-9).
    Cleaning,
}

/// Pages of a file of `size` pages that are kept (SP-9).
fn kept_pages(kind: SpaceKind, size: u32) -> u32 {
    match kind {
        _ if size > EXTENT_PAGES => MIN_KEPT_PAGES.max(size / KEPT_ONE_IN),
        SpaceKind::System | SpaceKind::Undo => KEPT_OF_SMALL_UNDO,
        SpaceKind::Table | SpaceKind::Temp => 1,
    }
}

impl Space {
    /// Makes sure that `pages` allocations will find a page, extending the file if needed. Call before the
    /// mini-transaction begins, holding no latch, and keep the result until its last allocation.
    pub fn reserve(&self, env: &MtrEnv, pages: u32) -> Result<Reserved<'_>> {
        self.reserve_for(env, pages, AllocPurpose::Normal)
    }

    /// The same for a purpose.
    pub fn reserve_for(
        &self,
        env: &MtrEnv,
        pages: u32,
        purpose: AllocPurpose,
    ) -> Result<Reserved<'_>> {
        self.build_mirror(env)?;
        let mut refused = None;
        loop {
            let size = {
                let mut guard = self.extents.lock();
                let extents = guard.as_mut().expect("built above");
                if extents.size() < self.size_pages() {
                    extents.grow(self.size_pages());
                    self.note_used(extents);
                }
                let size = extents.size();
                let left = match purpose {
                    AllocPurpose::Normal => kept_pages(self.kind(), size),
                    AllocPurpose::Cleaning => 0,
                };
                let enough = extents.available() >= pages.saturating_add(left);
                // A large file keeps an extent to give away whole, unless the disk is full.
                let scattered = size > EXTENT_PAGES && !extents.has_free_extent();
                if enough && (!scattered || refused.is_some()) {
                    extents.reserved += pages;
                    return Ok(Reserved { space: self, pages });
                }
                size
            };
            if let Some(e) = refused {
                return Err(e);
            }
            let step = growth(size, self.geometry.page_size).max(pages);
            let grown = self.grow_file(size.saturating_add(step));
            refused = grown.err();
        }
    }

    fn build_mirror(&self, env: &MtrEnv) -> Result<()> {
        if self.extents.lock().is_some() {
            return Ok(());
        }
        let first = env.pool.shared(self.page(PageNo(1)))?;
        let size = self.size_pages();
        let g = self.geometry;
        let mut extents = Extents::new(g);
        extents.grow(size);
        let mut read_group = |group: u32, bytes: &[u8]| -> Result<()> {
            let id = self.page(g.alloc_page(group));
            if group > 0 && page_type(bytes) == Some(PageType::Unused) {
                return Ok(());
            }
            check_alloc_page(bytes, id)?;
            extents.set_formatted(group);
            let start = group * g.group_extents();
            for extent in start..(start + g.group_extents()).min(size.div_ceil(EXTENT_PAGES)) {
                let (owner, used) = (g.owner(bytes, extent), g.used_in(bytes, extent));
                let most = (size - extent * EXTENT_PAGES).min(EXTENT_PAGES);
                if used > most || (owner == FREE && used > 0) {
                    let found = format!("{used} of {most} pages, owner {owner}");
                    let expected = format!("what is in use of extent {extent}");
                    return Err(Error::corrupt(id, expected, found));
                }
                extents.set_extent(extent, owner, used);
            }
            Ok(())
        };
        read_group(0, &first)?;
        for group in 1..g.groups(size) {
            let page = env.pool.shared(self.page(g.alloc_page(group)))?;
            read_group(group, &page)?;
        }
        // Still under the latch of page 1: nothing was allocated or freed since the pages were read.
        self.note_used(self.extents.lock().get_or_insert(Box::new(extents)));
        Ok(())
    }

    /// `extents`, which is locked, has changed.
    fn note_used(&self, extents: &Extents) {
        self.used.store(extents.used(), Ordering::Relaxed);
    }

    /// Takes a free page for `owner` (an index id's low bits, say; 0 if none), near `near` if possible. The
    /// caller has a reservation, and latches the page as new. The page's old content stays until then.
    pub fn alloc(&self, mtr: &mut Mtr<'_>, near: PageNo, owner: u32) -> Result<PageNo> {
        let owner = if owner == FREE { MIXED } else { owner };
        self.latch_alloc_page(mtr, 0)?;
        let (choice, end, formatted) = {
            let mut guard = self.extents.lock();
            let extents = guard.as_mut().expect("a reservation came first");
            let choice = extents.take(owner, near).ok_or_else(|| Error::NoSpace {
                what: format!("tablespace {} has no page left", self.header.intro.space),
            })?;
            self.note_used(extents);
            let group = choice.extent / self.geometry.group_extents();
            (choice, extents.size(), extents.is_formatted(group))
        };
        let group = choice.extent / self.geometry.group_extents();
        let latched = match formatted {
            true => self.latch_alloc_page(mtr, group),
            false => self.format_alloc_page(mtr, group),
        };
        let h = latched.inspect_err(|_| self.mirror_give(choice.extent))?;
        let from = match near {
            NO_PAGE => near,
            no => PageNo(no.0 + 1),
        };
        let free = self
            .geometry
            .find_free(mtr.bytes(h), choice.extent, from, end);
        let Some(no) = free else {
            let expected = format!("a free page in extent {}", choice.extent);
            return Err(Error::corrupt(mtr.page_id(h), expected, "none"));
        };
        // What the allocation page calls free is in use for sure if it is the file's own, or latched by the
        // caller.
        let own = no.0 == 0 || no == self.geometry.alloc_page(group);
        if own || mtr.find(self.page(no)).is_some() {
            let expected = format!("page {no} in use");
            return Err(Error::corrupt(mtr.page_id(h), expected, "a free page"));
        }
        self.set_in_use(mtr, h, no, 1);
        if let Some(owner) = choice.claim {
            self.set_owner(mtr, h, choice.extent, owner);
        }
        Ok(no)
    }

    /// Gives a page back. The page is latched exclusively by the mini-transaction, or will be here; then it
    /// comes before the allocation pages in the latch order: if several are freed, all are latched before the
    /// first is.
    pub fn free(&self, mtr: &mut Mtr<'_>, no: PageNo) -> Result<()> {
        let id = self.page(no);
        let h = match mtr.find(id) {
            Some(h) => h,
            None => {
                let in_order = mtr.find(self.page(PageNo(1))).is_none();
                assert!(in_order, "{id} is latched after an allocation page");
                mtr.exclusive(id)?
            }
        };
        self.latch_alloc_page(mtr, 0)?;
        let alloc = self.latch_alloc_page(mtr, self.geometry.group_of(no))?;
        self.check_can_free(mtr.bytes(alloc), no)?;
        mtr.op(h, PageOp::Free);
        self.clear_in_use(mtr, alloc, no);
        Ok(())
    }

    /// Gives pages of an unlogged tablespace back, in ascending order, without reading or writing them
    /// (SP-6). Nobody refers to them any more. If this fails, some of them are lost until the tablespace is
    /// made anew.
    pub fn discard(&self, env: &MtrEnv, pages: &[PageNo]) -> Result<()> {
        assert!(
            !self.id.is_logged(),
            "SP-6: pages of {} are discarded",
            self.path()
        );
        debug_assert!(pages.is_sorted());
        for pages in pages.chunks(DISCARDED_AT_ONCE) {
            pages.iter().for_each(|no| env.pool.forget(self.page(*no)));
            let mut mtr = Mtr::begin_in(env, self.id, 0)?;
            self.free_unread(&mut mtr, pages)?;
            mtr.commit();
        }
        Ok(())
    }

    /// Gives pages back that are neither read nor written (SP-6). From this mini-transaction on nobody refers
    /// to them. If it fails nothing has happened.
    pub fn free_unread(&self, mtr: &mut Mtr<'_>, pages: &[PageNo]) -> Result<()> {
        self.latch_alloc_page(mtr, 0)?;
        let alloc_page =
            |mtr: &mut Mtr<'_>, no: PageNo| self.latch_alloc_page(mtr, self.geometry.group_of(no));
        for no in pages {
            let alloc = alloc_page(mtr, *no)?;
            self.check_can_free(mtr.bytes(alloc), *no)?;
        }
        for no in pages {
            let alloc = alloc_page(mtr, *no)?;
            self.clear_in_use(mtr, alloc, *no);
        }
        Ok(())
    }

    /// The user of this number has given all its pages back, and will take none any more.
    pub fn forget_user(&self, owner: u32) {
        if let Some(extents) = &mut *self.extents.lock() {
            extents.forget_user(owner);
        }
    }

    fn check_can_free(&self, alloc_page: &[u8], no: PageNo) -> Result<()> {
        let alloc_no = self.geometry.alloc_page(self.geometry.group_of(no));
        check_alloc_page(alloc_page, self.page(alloc_no))?;
        let in_use = self.geometry.in_use(alloc_page, no);
        let own = no.0 == 0 || no == alloc_no;
        let found = match (in_use, own) {
            (true, false) => return Ok(()),
            (true, true) => "a page of the file's own",
            (false, _) => "a free one",
        };
        let expected = "a page that can be freed";
        Err(Error::corrupt(self.page(no), expected, found))
    }

    /// The page is free again. The caller has checked that it was in use, and latched its allocation page.
    fn clear_in_use(&self, mtr: &mut Mtr<'_>, alloc: PageHandle, no: PageNo) {
        self.set_in_use(mtr, alloc, no, 0);
        let extent = no.0 / EXTENT_PAGES;
        if self.geometry.used_in(mtr.bytes(alloc), extent) == 0 {
            self.set_owner(mtr, alloc, extent, FREE);
        }
        self.mirror_give(extent);
    }

    fn mirror_give(&self, extent: u32) {
        if let Some(extents) = &mut *self.extents.lock() {
            extents.give(extent);
            self.note_used(extents);
        }
    }

    /// Whether the page is in use.
    pub fn is_allocated(&self, env: &MtrEnv, no: PageNo) -> Result<bool> {
        let g = self.geometry;
        if no.0 >= self.size_pages() {
            return Ok(false);
        }
        let page = env.pool.shared(self.page(g.alloc_page(g.group_of(no))))?;
        Ok(g.in_use(&page, no))
    }

    /// Every page in use, but for the file's own: the file header and the allocation pages.
    pub fn pages_in_use(&self, env: &MtrEnv) -> Result<Vec<PageNo>> {
        let (g, size) = (self.geometry, self.size_pages());
        let mut pages = Vec::new();
        for group in 0..g.groups(size) {
            let own = g.alloc_page(group);
            let page = env.pool.shared(self.page(own))?;
            // A group whose allocation page was never written has no other page in use.
            if page_type(&page) != Some(PageType::Alloc) {
                continue;
            }
            let first = group * g.group_pages();
            let end = first.saturating_add(g.group_pages()).min(size);
            let used = (first..end).map(PageNo).filter(|no| g.in_use(&page, *no));
            pages.extend(used.filter(|no| no.0 != 0 && *no != own));
        }
        Ok(pages)
    }

    /// Pages in use, the file's own included.
    pub fn used_pages(&self, env: &MtrEnv) -> Result<u32> {
        let used = || self.used.load(Ordering::Relaxed);
        if used() == 0 {
            self.build_mirror(env)?;
        }
        Ok(used())
    }

    /// Replaces the copy of the table's definition in page 0. Takes as much redo as what is stored there, and
    /// 64 bytes.
    pub fn set_definition(&self, mtr: &mut Mtr<'_>, copy: DefinitionCopy<'_>) -> Result<()> {
        let h = mtr.exclusive(self.page(PageNo(0)))?;
        let head = copy.head();
        let off = DEF_LEN as u16;
        mtr.op(h, PageOp::Write { off, bytes: &head });
        if !copy.stored.is_empty() {
            let (off, bytes) = (DEF as u16, copy.stored);
            mtr.op(h, PageOp::Write { off, bytes });
        }
        Ok(())
    }

    /// Whether page 0 has this copy of the table's definition.
    pub fn has_definition(&self, env: &MtrEnv, copy: DefinitionCopy<'_>) -> Result<bool> {
        let id = self.page(PageNo(0));
        let page = env.pool.shared(id)?;
        let found = DefinitionCopy::read(&page)
            .map_err(|found| Error::corrupt(id, "the table's definition", found))?;
        Ok(found == copy)
    }

    fn latch_alloc_page(&self, mtr: &mut Mtr<'_>, group: u32) -> Result<PageHandle> {
        let id = self.page(self.geometry.alloc_page(group));
        match mtr.find(id) {
            Some(h) => Ok(h),
            None => mtr.exclusive(id),
        }
    }

    /// The first page of a group is about to be used: writes the group's allocation page.
    fn format_alloc_page(&self, mtr: &mut Mtr<'_>, group: u32) -> Result<PageHandle> {
        let g = self.geometry;
        let own = g.alloc_page(group);
        let h = mtr.exclusive_new(self.page(own))?;
        let ptype = PageType::Alloc;
        mtr.op(h, PageOp::FormatRaw { ptype });
        let first = (own.0 - 1).to_le_bytes();
        let bytes = &first;
        mtr.op(h, PageOp::Write { off: 48, bytes });
        self.set_in_use(mtr, h, own, 1);
        self.set_owner(mtr, h, own.0 / EXTENT_PAGES, MIXED);
        if let Some(extents) = &mut *self.extents.lock() {
            extents.set_formatted(group);
        }
        Ok(h)
    }

    /// Fills page 1 of a new file, before it has a mini-transaction: pages 0 and 1 are in use.
    pub(super) fn format_first_alloc_page(&self, page: &mut [u8]) {
        let ptype = PageType::Alloc;
        let formatted = PageOp::FormatRaw { ptype }.apply(page, self.page(PageNo(1)));
        formatted.expect("any page can be formatted");
        for no in [0, 1] {
            let (offset, shift) = self.geometry.nibble(PageNo(no));
            page[offset] |= 1 << shift;
        }
        let owner = self.geometry.owner_offset(0);
        page[owner..owner + 4].copy_from_slice(&MIXED.to_le_bytes());
    }

    /// Writes a page's nibble.
    fn set_in_use(&self, mtr: &mut Mtr<'_>, h: PageHandle, no: PageNo, nibble: u8) {
        let (offset, shift) = self.geometry.nibble(no);
        let others = mtr.bytes(h)[offset] & !(0xf << shift);
        let off = offset as u16;
        let bytes = &[others | nibble << shift];
        mtr.op(h, PageOp::Write { off, bytes });
    }

    fn set_owner(&self, mtr: &mut Mtr<'_>, h: PageHandle, extent: u32, owner: u32) {
        let off = self.geometry.owner_offset(extent) as u16;
        let bytes = &owner.to_le_bytes();
        mtr.op(h, PageOp::Write { off, bytes });
    }
}

/// The page is the allocation page that belongs there.
pub(super) fn check_alloc_page(page: &[u8], id: PageId) -> Result<()> {
    let (ptype, first) = (page_type(page), group_start(page));
    if ptype == Some(PageType::Alloc) && first == id.no.0 - 1 {
        return Ok(());
    }
    let expected = format!("the allocation page of the pages from {} on", id.no.0 - 1);
    let found = format!("type {ptype:?}, first page {first}");
    Err(Error::corrupt(id, expected, found))
}

/// Pages by which a file of `size` pages is extended: doubling up to an extent, then an extent at a time,
/// then an eighth of the file, at most 4 MiB.
fn growth(size: u32, page_size: usize) -> u32 {
    if size < EXTENT_PAGES {
        return size.max(4).min(EXTENT_PAGES - size);
    }
    let most = (MAX_GROWTH_BYTES / page_size as u64) as u32;
    let step = (size / 8).clamp(EXTENT_PAGES, most.max(EXTENT_PAGES));
    step.next_multiple_of(EXTENT_PAGES)
}
