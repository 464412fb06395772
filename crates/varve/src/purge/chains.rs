//! Freeing the external values that a row ceased to refer to.
//!
//! The undo record of the update or deletion lists them (UNDO-5), so purge need not know the row, which may
//! have changed ten times since, or be gone. A long chain takes several mini-transactions. Each frees some
//! pages and moves the reference in the undo record to the page after them, so that a crash neither leaks
//! pages nor frees them twice: whoever works through the record again goes on where the reference points.
//! `NO_PAGE` there says that nothing is left.
//!
//! An un-delete-marked row shares no external value with the delete-marked one before it, whose values are on
//! the list of the deletion. So the list may be worked off whether or not the row was un-delete-marked, and a
//! delete-marked row may refer to pages that are gone: whoever could still read it sees the deletion.
//!
//! Latches: the chain's pages, then the undo page, then allocation pages. A table's gate is held for one
//! mini-transaction at a time, so DDL does not wait for a whole chain.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::base::{Error, NO_PAGE, PageId, PageNo, Result, RollPtr, Sabotage, TableId};
use crate::catalog::OpenTable;
use crate::mtr::Mtr;
use crate::page::{PageOp, PageType, SlottedRef, page_type};
use crate::row::{EXTERNAL_REF_BYTES, ExternalRef};
use crate::space::FREE_LOG_BYTES;
use crate::txn::{Core, Counters};
use crate::undo::UndoRecord;

/// Pages freed in one mini-transaction.
const PAGES_PER_STEP: usize = 32;

/// Redo that one step can write: the pages, and the reference that moves.
const MAX_MTR: u32 = PAGES_PER_STEP as u32 * FREE_LOG_BYTES + 256;

/// A reference to an external value on the list of an undo record.
pub(super) struct Reference {
    chain: ExternalRef,
    /// Where the undo record stands.
    record: RollPtr,
    /// So many bytes before the record's end the reference begins.
    behind_end: usize,
}

impl Reference {
    /// Those of the record, which stands at `at`.
    pub fn all_of(record: &UndoRecord<'_>, at: RollPtr) -> impl Iterator<Item = Reference> {
        let bytes = record.frees.len();
        record.frees().enumerate().map(move |(n, chain)| Reference {
            chain,
            record: at,
            behind_end: bytes - n * EXTERNAL_REF_BYTES,
        })
    }

    /// Where in the undo record it begins, whose first bytes are its page number; damage if something else
    /// is there.
    fn offset_in(&self, page: &[u8], id: PageId) -> Result<u16> {
        let damaged = |found: &str| Error::corrupt(id, "the undo record of a row change", found);
        if !matches!(
            page_type(page),
            Some(PageType::UndoLog | PageType::UndoPage)
        ) {
            return Err(damaged("a page of another type"));
        }
        let page = SlottedRef::new(page);
        let slot = self.record.slot() as usize;
        if slot >= page.n_slots() {
            return Err(damaged("fewer slots"));
        }
        let payload = page.payload(slot);
        let off = payload.len().checked_sub(self.behind_end);
        let off = off.ok_or_else(|| damaged("a shorter record"))?;
        let stored = payload[off..].first_chunk().map(ExternalRef::decode);
        match stored == Some(self.chain) {
            true => Ok(off as u16),
            false => Err(damaged("another reference")),
        }
    }
}

/// Frees what is left of an external value. `false`: told to stop before its end.
pub(super) fn free(
    core: &Core,
    table: TableId,
    mut reference: Reference,
    stop: &AtomicBool,
) -> Result<bool> {
    while reference.chain.page != NO_PAGE {
        // Relaxed: nothing else depends on it.
        if stop.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let next = super::in_table(core, table, |table| {
            free_some(core, table, &reference).map(Some)
        })?;
        match next {
            Some(next) => reference.chain.page = next,
            // The table is gone, and its file with it.
            None => return Ok(true),
        }
    }
    Ok(true)
}

/// Frees some pages of a chain and moves the reference to it. Returns the chain's first page that is left.
fn free_some(core: &Core, table: &OpenTable, reference: &Reference) -> Result<PageNo> {
    let (chain, at) = (&reference.chain, reference.record);
    if table.has_discarded(chain)? {
        return Ok(NO_PAGE);
    }
    let undo_page = core.undo.page_of(at)?;
    let mut mtr = Mtr::begin_in(&core.mtr, table.space(), MAX_MTR)?;
    let (pages, next) = table.latch_chain(&mut mtr, chain, PAGES_PER_STEP)?;
    let undo_h = mtr.exclusive(undo_page)?;
    let off = reference.offset_in(mtr.bytes(undo_h), undo_page)?;
    if !core.log.is_sabotaged(Sabotage::OverflowFreedTwice) {
        mtr.op(
            undo_h,
            PageOp::PatchPayload {
                slot: at.slot(),
                off,
                bytes: &next.0.to_le_bytes(),
            },
        );
    }
    for &no in &pages {
        table.clustered.tree.space.free(&mut mtr, no)?;
    }
    table.note_freed_overflow(&pages);
    let end = mtr.commit();
    if core.log.is_sabotaged(Sabotage::OverflowFreedTwice) {
        // So that a crash finds it like this.
        core.log.sync_to(end)?;
    }
    Counters::add(&core.counters.overflow_pages_freed, pages.len() as u64);
    Ok(next)
}
