//! Whether each page of a tablespace is what its place says: for `varve check`.
//!
//! Looks at one page at a time, and at what the allocation pages say of it. What a page means to others
//! (trees, undo) is theirs to judge. Nothing may change the tablespace meanwhile.

use super::alloc::check_alloc_page;
use super::{EXTENT_PAGES, Space};
use crate::base::{Error, Lsn, PageId, PageNo, Result};
use crate::page::{PageType, is_zero, page_lsn, page_type};

impl Space {
    /// Reads every page by `read`, which checks what a page says by itself, and hands each error to `tell`:
    /// those of reading, a page that is newer than the redo log's end `newest`, and one whose type
    /// contradicts the allocation pages (SP-7).
    pub fn verify_pages(
        &self,
        newest: Lsn,
        read: &mut dyn FnMut(PageId, &mut [u8]) -> Result<()>,
        tell: &mut dyn FnMut(Error),
    ) {
        let (g, size) = (self.geometry, self.size_pages());
        let mut alloc = vec![0; g.page_size];
        let mut page = vec![0; g.page_size];
        for group in 0..g.groups(size) {
            let own = self.page(g.alloc_page(group));
            let first = group * g.group_pages();
            let end = first.saturating_add(g.group_pages()).min(size);
            // Of what can't be read nothing can be derived.
            let known = match own.no.0 < size {
                true => read(own, &mut alloc),
                false => Err(Error::corrupt(
                    own,
                    "an allocation page",
                    "the end of the file",
                )),
            }
            .and_then(|()| self.verify_alloc_page(&alloc, own));
            let known = known.inspect_err(|e| tell(e.clone())).is_ok();
            for no in (first..end).map(PageNo).filter(|no| *no != own.no) {
                let id = self.page(no);
                let whole = read(id, &mut page).and_then(|()| {
                    let lsn = page_lsn(&page);
                    match lsn <= newest {
                        true => Ok(()),
                        false => {
                            let expected = format!("a change before the redo log's end, {newest}");
                            Err(Error::corrupt(id, expected, format!("one of LSN {lsn}")))
                        }
                    }
                });
                let in_use = g.in_use(&alloc, no);
                let done = whole.and_then(|()| match known {
                    true => check_use(&page, id, in_use),
                    false => Ok(()),
                });
                if let Err(e) = done {
                    tell(e);
                }
            }
        }
    }

    /// An allocation page, and that it takes no page for used that is not there, or is in an extent of
    /// nobody.
    fn verify_alloc_page(&self, alloc: &[u8], own: PageId) -> Result<()> {
        let (g, size) = (self.geometry, self.size_pages());
        // A group of which nothing was used yet.
        if own.no.0 != 1 && is_zero(alloc) {
            return Ok(());
        }
        check_alloc_page(alloc, own)?;
        let first = own.no.0 - 1;
        let end = first.saturating_add(g.group_pages());
        let found = |what: String| Err(Error::corrupt(own, "what the file has", what));
        for extent in first / EXTENT_PAGES..end / EXTENT_PAGES {
            let used = g.used_in(alloc, extent);
            if used > 0 && g.owner(alloc, extent) == 0 {
                return found(format!("{used} used pages in extent {extent} of nobody"));
            }
        }
        let beyond = (size.max(first)..end).map(PageNo);
        if let Some(no) = beyond.into_iter().find(|no| g.in_use(alloc, *no)) {
            return found(format!("page {no} in use, in a file of {size} pages"));
        }
        match g.in_use(alloc, own.no) && (first > 0 || g.in_use(alloc, PageNo(0))) {
            true => Ok(()),
            false => found("its own pages not in use".into()),
        }
    }
}

/// SP-7. What a free page holds means nothing (SP-6).
fn check_use(page: &[u8], id: PageId, in_use: bool) -> Result<()> {
    let found = page_type(page);
    let is_free = matches!(found, Some(PageType::Unused | PageType::Free));
    let expected = match (id.no.0, in_use) {
        (0, _) if found == Some(PageType::FileHeader) => return Ok(()),
        (0, _) => "the file header",
        (_, true) if !is_free && found != Some(PageType::Alloc) => return Ok(()),
        (_, true) => "a page in use, as the allocation page says",
        (_, false) => return Ok(()),
    };
    Err(Error::corrupt(id, expected, format!("type {found:?}")))
}
