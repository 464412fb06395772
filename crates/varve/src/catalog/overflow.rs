//! Overflow pages: chains of pages that hold the external values of a table's rows, below the row layer.
//!
//! A chain is written once, before the row that refers to it, and never changed: its pages are only freed,
//! from the first one on. Every page names its table, the transaction that wrote the chain, the chain's
//! sequence number in that transaction, and its own place in the chain.
//!
//! - **OVF-1** No two chains have the same (table, TrxId, sequence), before or after a crash: a TrxId is
//!   never given twice, and the sequence is an undo number, which a transaction never uses twice. A load has
//!   an id of its own, and counts its chains.
//! - **OVF-2** So a page that says it is page *i* of chain *c* holds exactly what was written there, whenever
//!   it is read and whatever else the reader knows: a page that was freed says that it is free, or, used
//!   again, something else.
//!
//! Because of OVF-2 a reader needs no latch but that of the page it copies from, one after the other. What it
//! can meet is a chain that is (partly) gone, a **cut**. Then the row version that refers to it is not the
//! one to be read any more: the reader starts over from the leaf (`table/cursor/external.rs`).
//!
//! Latches: readers hold one page's at a time and nothing else. A thread that frees pages latches them in the
//! order of the chain, after tree pages and before undo and allocation pages. Nobody else latches a chain's
//! pages: only one transaction's rollback, or purge, ever frees a chain.
//!
//! A temporary table shares its tablespace with others, so it remembers which overflow pages are its own
//! ([`TemporaryPages`], TEMP-5): dropping or truncating it gives them back at once.
//!
//! Failure: a page that can't be read is an error. One that is not what it should be is a cut to readers, and
//! damage to the thread that frees.

use std::collections::BTreeSet;

use parking_lot::Mutex;

use crate::base::{Error, NO_PAGE, PageId, PageNo, Result, TableId, TrxId};
use crate::mtr::{Mtr, PageHandle};
use crate::page::{PageType, page_type};
use crate::row::ExternalRef;

use super::table::OpenTable;

const TABLE: usize = 48;
const TRX: usize = 56;
const SEQ: usize = 64;
const INDEX: usize = 72;
const NEXT: usize = 76;
const LEN: usize = 80;
const DATA: usize = 88;

/// Bytes of the header that an overflow page has behind the header of all pages.
const HEADER_BYTES: usize = DATA - TABLE;

/// Offset of the header: what is to be written to a fresh page begins here.
pub const OVERFLOW_HEADER_AT: u16 = TABLE as u16;

/// Bytes of a value that a page of this size holds.
pub const fn overflow_capacity(page_size: usize) -> usize {
    page_size - DATA
}

/// What an overflow page says about itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OverflowPage<'a> {
    pub table: TableId,
    pub trx: TrxId,
    pub seq: u64,
    /// Its place in the chain, from 0.
    pub index: u32,
    pub next: PageNo,
    pub data: &'a [u8],
}

impl<'a> OverflowPage<'a> {
    /// `None` if the page is none, or says impossible things. Total on any bytes of a page's size.
    pub fn decode(page: &'a [u8]) -> Option<OverflowPage<'a>> {
        if page_type(page) != Some(PageType::Overflow) {
            return None;
        }
        let u32_at = |at: usize| u32::from_le_bytes(page[at..at + 4].try_into().expect("4 bytes"));
        let u64_at = |at: usize| u64::from_le_bytes(page[at..at + 8].try_into().expect("8 bytes"));
        Some(OverflowPage {
            table: TableId(u64_at(TABLE)),
            trx: TrxId(u64_at(TRX)),
            seq: u64_at(SEQ),
            index: u32_at(INDEX),
            next: PageNo(u32_at(NEXT)),
            data: page.get(DATA..DATA.checked_add(u32_at(LEN) as usize)?)?,
        })
    }

    /// The content of a fresh page, from [`OVERFLOW_HEADER_AT`] on.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(&self.table.0.to_le_bytes());
        out.extend_from_slice(&self.trx.0.to_le_bytes());
        out.extend_from_slice(&self.seq.to_le_bytes());
        out.extend_from_slice(&self.index.to_le_bytes());
        out.extend_from_slice(&self.next.0.to_le_bytes());
        out.extend_from_slice(&(self.data.len() as u32).to_le_bytes());
        out.resize(HEADER_BYTES, 0);
        out.extend_from_slice(self.data);
    }

    fn belongs_to(&self, table: TableId, chain: &ExternalRef) -> bool {
        (self.table, self.trx, self.seq) == (table, chain.trx, chain.seq)
    }
}

/// The overflow pages of a temporary table (TEMP-5).
///
/// A page enters before the mini-transaction commits that takes it, and leaves before the one commits that
/// gives it back. Both have the tablespace's allocation page latched exclusively, so nobody takes a page that
/// is still listed.
#[derive(Default)]
pub struct TemporaryPages(Mutex<BTreeSet<PageNo>>);

impl TemporaryPages {
    fn add(&self, pages: &[PageNo]) {
        let mut all = self.0.lock();
        for no in pages {
            assert!(all.insert(*no), "TEMP-5: page {no} was taken twice");
        }
    }

    fn remove(&self, pages: &[PageNo]) {
        let mut all = self.0.lock();
        for no in pages {
            assert!(all.remove(no), "TEMP-5: page {no} is not the table's");
        }
    }

    pub fn contains(&self, no: PageNo) -> bool {
        self.0.lock().contains(&no)
    }

    pub fn count(&self) -> u64 {
        self.0.lock().len() as u64
    }
}

/// How a walk along a chain ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChainWalk {
    /// All that was asked for was visited.
    Done,
    /// The visitor had enough.
    Stopped,
    /// A page is not the chain's any more.
    Cut,
}

impl OpenTable {
    /// What allocation pages note as the owner of extents with the table's overflow pages: none of its index
    /// ids.
    pub fn overflow_owner(&self) -> u32 {
        self.clustered.id.0 as u32 ^ (1 << 31)
    }

    /// A mini-transaction that is about to commit has taken these pages for external values.
    pub fn note_taken_overflow(&self, pages: &[PageNo]) {
        if let Some(own) = self.temporary_overflow() {
            own.add(pages);
        }
    }

    /// A mini-transaction that is about to commit has given these pages back.
    pub fn note_freed_overflow(&self, pages: &[PageNo]) {
        if let Some(own) = self.temporary_overflow() {
            own.remove(pages);
        }
    }

    /// Gives all overflow pages of a temporary table back at once. Nobody reads its rows any more, and purge
    /// is kept away.
    pub fn discard_overflow(&self) -> Result<()> {
        let own = self.temporary_overflow().expect("the table is temporary");
        let pages = Vec::from_iter(std::mem::take(&mut *own.0.lock()));
        let space = &self.clustered.tree.space;
        space.discard(self.mtr_env(), &pages)?;
        space.forget_user(self.overflow_owner());
        Ok(())
    }

    /// Whether the pages of a chain that purge is about to free were given back by `discard_overflow` before:
    /// TRUNCATE of a temporary table leaves the undo records that name them.
    pub fn has_discarded(&self, chain: &ExternalRef) -> Result<bool> {
        let Some(own) = self.temporary_overflow() else {
            return Ok(false);
        };
        if !own.contains(chain.page) {
            return Ok(true);
        }
        // The page may have been taken again, for another chain.
        let id = PageId::new(self.space(), chain.page);
        let page = self.mtr_env().pool.shared(id)?;
        let page = OverflowPage::decode(&page);
        Ok(page.is_none_or(|page| !page.belongs_to(self.id(), chain)))
    }

    /// Calls `visit` with the pieces of an external value in order, `at_most` bytes in all, and the pages
    /// they are on; it says whether to go on. No latch may be held; `visit` runs under the page's.
    pub fn walk_chain(
        &self,
        chain: &ExternalRef,
        at_most: usize,
        mut visit: impl FnMut(PageNo, &[u8]) -> bool,
    ) -> Result<ChainWalk> {
        let space = &self.clustered.tree.space;
        let capacity = overflow_capacity(self.clustered.tree.page_size());
        let mut left = (chain.len as usize).min(at_most);
        let (mut no, mut index) = (chain.page, 0u32);
        while left > 0 {
            if no == NO_PAGE || no.0 >= space.size_pages() {
                return Ok(ChainWalk::Cut);
            }
            let page = self.mtr_env().pool.shared(PageId::new(self.space(), no))?;
            let expected = (chain.len as usize - index as usize * capacity).min(capacity);
            let piece = OverflowPage::decode(&page).filter(|p| {
                p.belongs_to(self.id(), chain) && p.index == index && p.data.len() == expected
            });
            let Some(piece) = piece else {
                return Ok(ChainWalk::Cut);
            };
            let wanted = &piece.data[..expected.min(left)];
            if !visit(no, wanted) {
                return Ok(ChainWalk::Stopped);
            }
            left -= wanted.len();
            (no, index) = (piece.next, index + 1);
        }
        Ok(ChainWalk::Done)
    }

    /// Latches up to `at_most` pages of a chain, from its first one that is still there, to be freed in this
    /// mini-transaction; and says which page follows.
    pub fn latch_chain(
        &self,
        mtr: &mut Mtr<'_>,
        chain: &ExternalRef,
        at_most: usize,
    ) -> Result<(Vec<PageNo>, PageNo)> {
        let (mut pages, mut no) = (Vec::new(), chain.page);
        let mut expected_index = None;
        while no != NO_PAGE && pages.len() < at_most {
            let h = mtr.exclusive(PageId::new(self.space(), no))?;
            let page = self.check_owner(mtr, h, chain.trx)?;
            let in_order = expected_index.is_none_or(|i| i == page.index);
            if !in_order || !page.belongs_to(self.id(), chain) {
                return Err(Error::corrupt(
                    mtr.page_id(h),
                    "the next page of an external value",
                    format!("page {} of {:?}/{}", page.index, page.trx, page.seq),
                ));
            }
            expected_index = Some(page.index + 1);
            let next = page.next;
            pages.push(no);
            no = next;
        }
        Ok((pages, no))
    }

    /// Latches pages that transaction `trx` wrote, to be freed in this mini-transaction.
    pub fn latch_overflow(&self, mtr: &mut Mtr<'_>, pages: &[PageNo], trx: TrxId) -> Result<()> {
        for &no in pages {
            let h = mtr.exclusive(PageId::new(self.space(), no))?;
            self.check_owner(mtr, h, trx)?;
        }
        Ok(())
    }

    fn check_owner<'m>(
        &self,
        mtr: &'m Mtr<'_>,
        h: PageHandle,
        trx: TrxId,
    ) -> Result<OverflowPage<'m>> {
        let bytes = mtr.bytes(h);
        let page = OverflowPage::decode(bytes);
        page.filter(|p| (p.table, p.trx) == (self.id(), trx))
            .ok_or_else(|| {
                let found = match page {
                    Some(p) => format!("one of table {} and {:?}", p.table, p.trx),
                    None => format!("type {:?}", page_type(bytes)),
                };
                let expected = format!("an overflow page of table {} and {trx:?}", self.id());
                Error::corrupt(mtr.page_id(h), expected, found)
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::SpaceId;
    use crate::page::PageOp;

    #[test]
    fn pages_survive_the_round_trip_and_damage_is_noticed() {
        let page = OverflowPage {
            table: TableId(16),
            trx: TrxId(99),
            seq: 7,
            index: 3,
            next: PageNo(12),
            data: b"some of an external value",
        };
        let mut body = Vec::new();
        page.encode(&mut body);
        let mut bytes = vec![0; 4096];
        let id = PageId::new(SpaceId(5), PageNo(11));
        let ptype = PageType::Overflow;
        PageOp::FormatRaw { ptype }.apply(&mut bytes, id).unwrap();
        let off = OVERFLOW_HEADER_AT;
        PageOp::Write { off, bytes: &body }
            .apply(&mut bytes, id)
            .unwrap();
        assert_eq!(OverflowPage::decode(&bytes), Some(page));
        bytes[LEN + 1] = 0x10;
        assert_eq!(OverflowPage::decode(&bytes), None);
        bytes[LEN + 3] = 0xff;
        assert_eq!(OverflowPage::decode(&bytes), None);
        assert_eq!(overflow_capacity(4096), 4096 - off as usize - HEADER_BYTES);
    }
}
