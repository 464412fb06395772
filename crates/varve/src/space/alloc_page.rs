//! Allocation pages: which pages of a group are in use, and whose its extents are. Pure functions of bytes
//! and numbers.
//!
//! The file is cut into **groups** of `page_size * 3 / 2` pages (24,576 pages of 16 KiB: 384 MiB) and each
//! group into **extents** of 64 pages. Page 1 of each group is its allocation page:
//!
//! | offset | field |
//! |---|---|
//! | 48 | first page of the group u32, 12 zero bytes |
//! | 64 | one nibble per page, lower half first: bit 0 in use, bits 1–2 free-space class, bit 3 zero |
//! | 64 + pages/2 | owner u32 per extent |
//!
//! The free-space class is zero as long as nothing fills pages by room. An extent's owner is 0 while none of
//! its pages is in use, [`MIXED`] if several share it, otherwise a number that its user chose (an index id's
//! low bits). It only guides where pages are put; a page may be in an extent of another owner.

use crate::base::PageNo;

/// Pages in an extent.
pub const EXTENT_PAGES: u32 = 64;

/// Owner of extents whose pages are handed out one by one to small users.
pub const MIXED: u32 = u32::MAX;

const NIBBLES: usize = 64;

/// The first page of the group that an allocation page says it describes.
pub(super) fn group_start(alloc_page: &[u8]) -> u32 {
    u32::from_le_bytes(alloc_page[48..52].try_into().expect("4 bytes"))
}

/// How the pages of a file of this page size are grouped.
#[derive(Clone, Copy)]
pub(super) struct Geometry {
    pub page_size: usize,
}

impl Geometry {
    pub fn group_pages(self) -> u32 {
        (self.page_size * 3 / 2) as u32
    }

    pub fn group_extents(self) -> u32 {
        self.group_pages() / EXTENT_PAGES
    }

    pub fn group_of(self, page: PageNo) -> u32 {
        page.0 / self.group_pages()
    }

    /// Groups that a file of `pages` pages has.
    pub fn groups(self, pages: u32) -> u32 {
        pages.div_ceil(self.group_pages())
    }

    pub fn alloc_page(self, group: u32) -> PageNo {
        PageNo(group * self.group_pages() + 1)
    }

    /// Offset of the byte with the page's nibble, and the nibble's shift.
    pub fn nibble(self, page: PageNo) -> (usize, u32) {
        let at = page.0 % self.group_pages();
        (NIBBLES + at as usize / 2, at % 2 * 4)
    }

    /// Offset of the extent's owner. `extent` counts through the file.
    pub fn owner_offset(self, extent: u32) -> usize {
        NIBBLES + self.group_pages() as usize / 2 + (extent % self.group_extents()) as usize * 4
    }

    pub fn in_use(self, alloc_page: &[u8], page: PageNo) -> bool {
        let (offset, shift) = self.nibble(page);
        alloc_page[offset] >> shift & 1 != 0
    }

    pub fn owner(self, alloc_page: &[u8], extent: u32) -> u32 {
        let at = self.owner_offset(extent);
        u32::from_le_bytes(alloc_page[at..at + 4].try_into().expect("4 bytes"))
    }

    /// Pages in use in an extent: bit 0 of each of its nibbles.
    pub fn used_in(self, alloc_page: &[u8], extent: u32) -> u32 {
        let (start, _) = self.nibble(PageNo(extent * EXTENT_PAGES));
        let bytes = &alloc_page[start..start + EXTENT_PAGES as usize / 2];
        bytes.iter().map(|b| (b & 0x11).count_ones()).sum()
    }

    /// The first free page of the extent at or after `from`, wrapping round; pages from `end` on don't exist.
    pub fn find_free(
        self,
        alloc_page: &[u8],
        extent: u32,
        from: PageNo,
        end: u32,
    ) -> Option<PageNo> {
        let first = extent * EXTENT_PAGES;
        let last = first.saturating_add(EXTENT_PAGES).min(end);
        let from = match (first..last).contains(&from.0) {
            true => from.0,
            false => first,
        };
        let mut order = (from..last).chain(first..from).map(PageNo);
        order.find(|p| !self.in_use(alloc_page, *p))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_size_has_room_for_its_group() {
        for page_size in [4096, 8192, 16384, 32768, 65536] {
            let g = Geometry { page_size };
            assert_eq!(g.group_pages() % EXTENT_PAGES, 0);
            let last = g.owner_offset(g.group_extents() - 1);
            let (nibble, shift) = g.nibble(PageNo(2 * g.group_pages() - 1));
            assert!(last + 4 <= page_size && last + 4 <= u16::MAX as usize);
            assert_eq!((nibble + 1, shift), (g.owner_offset(0), 4));
            assert_eq!(g.owner_offset(g.group_extents()), g.owner_offset(0));
            assert_eq!(g.group_of(g.alloc_page(7)), 7);
            assert_eq!(g.groups(g.group_pages()), 1);
            assert_eq!(g.groups(g.group_pages() + 1), 2);
        }
    }

    #[test]
    fn finds_free_pages_from_a_page_on() {
        let g = Geometry { page_size: 4096 };
        let mut page = vec![0u8; 4096];
        for no in (64..128).filter(|n| ![70, 90].contains(n)) {
            let (offset, shift) = g.nibble(PageNo(no));
            page[offset] |= 1 << shift;
        }
        assert_eq!((g.used_in(&page, 0), g.used_in(&page, 1)), (0, 62));
        for (from, end, want) in [
            (64, 128, Some(70)),
            (70, 128, Some(70)),
            (71, 128, Some(90)),
            (91, 128, Some(70)),
            (71, 80, Some(70)),
            (500, 128, Some(70)),
            (64, 70, None),
        ] {
            let got = g.find_free(&page, 1, PageNo(from), end);
            assert_eq!(got, want.map(PageNo), "from {from}, end {end}");
        }
    }
}
