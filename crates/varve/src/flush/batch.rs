//! Writes one batch of dirty pages: copy → log durable → doublewrite file → data files → sync → done.
//!
//! The order is what makes it safe. The log first (WAL-1); a whole copy in the doublewrite file before the first byte in place
//! (FL-1); the sync of the data files before a page counts as clean (WAL-2). The batch is over when all of this is
//! done, so the doublewrite file never holds more than one batch that matters.
//!
//! Where the file system and the device promise atomic writes of a page (IO-7), its tablespace's pages are written that way and need no copy.
//! That is asked of each file, and a page whose file has become another one in between is not written but an error.
//!
//! Pages of unlogged tablespaces are just written: they mean nothing after a crash.
//!
//! The writes to the data files are under way together, in any order, those of pages that lie side by side as one; the first sync is
//! called when all of them are over. The syncs of the data files are under way together, too.
//!
//! One batch at a time, under the caller's mutex. On an error every page is given back dirty, and the database is poisoned: after
//! a failed sync nobody knows what is on disk.

use std::sync::Arc;
use std::time::Instant;

use super::doublewrite::{Doublewrite, HEADER_BYTES};
use super::{Cause, FlushCounters, count};
use crate::base::{Lsn, PageId, Result, Sabotage, SpaceId};
use crate::buffer::{BufferPool, DirtyPage};
use crate::io::AlignedBuf;
use crate::redo::RedoLog;

pub struct BatchWriter {
    pool: Arc<BufferPool>,
    log: Arc<RedoLog>,
    doublewrite: Option<Doublewrite>,
    /// The doublewrite file's header, then the copies of the batch's pages.
    buf: AlignedBuf,
    counters: Arc<FlushCounters>,
}

impl BatchWriter {
    pub fn new(
        pool: Arc<BufferPool>,
        log: Arc<RedoLog>,
        doublewrite: Option<Doublewrite>,
        batch_pages: usize,
        counters: Arc<FlushCounters>,
    ) -> BatchWriter {
        let buf = AlignedBuf::new(HEADER_BYTES + batch_pages * pool.page_size());
        BatchWriter {
            pool,
            log,
            doublewrite,
            buf,
            counters,
        }
    }

    /// Writes the pages, at most a batch, and gives them back. Returns how many there were.
    pub fn write(&mut self, mut taken: Vec<DirtyPage>, cause: Cause) -> Result<usize> {
        let n = taken.len();
        if n == 0 {
            return Ok(0);
        }
        // Ascending, so that the data files are written in order.
        taken.sort_by_key(|p| p.page.to_u64());
        let (logged, unlogged): (Vec<_>, Vec<_>) =
            taken.into_iter().partition(|p| p.first_change.is_some());
        let result = self
            .write_logged(logged, cause)
            .and(self.write_unlogged(unlogged, cause));
        if let Err(e) = &result {
            self.log.poison(format!("pages could not be written: {e}"));
        }
        result.map(|()| n)
    }

    fn copy(&mut self, taken: &DirtyPage, slot: usize) -> Option<Lsn> {
        let size = self.pool.page_size();
        let at = HEADER_BYTES + slot * size;
        let lsn = self
            .pool
            .copy_for_write(taken, &mut self.buf[at..at + size]);
        if lsn.is_none() {
            count(&self.counters.skipped_pages, 1);
        }
        lsn
    }

    /// Copies the pages, one behind the other. Returns those that could be had, and the greatest page LSN.
    fn copy_all(&mut self, taken: Vec<DirtyPage>) -> (Vec<DirtyPage>, Lsn) {
        let mut copied = Vec::with_capacity(taken.len());
        let mut newest = Lsn(0);
        for page in taken {
            match self.copy(&page, copied.len()) {
                Some(lsn) => {
                    newest = newest.max(lsn);
                    copied.push(page);
                }
                None => self.pool.write_given_up(page),
            }
        }
        (copied, newest)
    }

    /// Gives the pages back, according to what came of writing them.
    fn give_back(&self, copied: Vec<DirtyPage>, cause: Cause, result: &Result<()>) {
        match result {
            Ok(()) => {
                count(self.counters.pages(cause), copied.len());
                copied.into_iter().for_each(|p| self.pool.write_done(p));
            }
            Err(_) => copied.into_iter().for_each(|p| self.pool.write_given_up(p)),
        }
    }

    fn write_logged(&mut self, mut taken: Vec<DirtyPage>, cause: Cause) -> Result<()> {
        // Those that need no copies stand last: the others lie together in the buffer.
        let store = self.pool.store();
        taken.sort_by_cached_key(|p| (store.writes_atomically(p.page.space), p.page.to_u64()));
        let (copied, newest) = self.copy_all(taken);
        if copied.is_empty() {
            return Ok(());
        }
        let result = self.store(&copied, newest);
        count(&self.counters.batches, usize::from(result.is_ok()));
        self.give_back(copied, cause, &result);
        result
    }

    /// Makes the copies durable in place.
    fn store(&mut self, copied: &[DirtyPage], newest: Lsn) -> Result<()> {
        if !self.log.is_sabotaged(Sabotage::WriteAheadForgotten) {
            self.log.sync_to(newest)?;
            assert!(
                self.log.durable_lsn() >= newest,
                "WAL-1: page LSN {newest} is not durable"
            );
        }
        let size = self.pool.page_size();
        let used = HEADER_BYTES + copied.len() * size;
        let ids: Vec<PageId> = copied.iter().map(|p| p.page).collect();
        let store = self.pool.store();
        let is_torn = |id: &&PageId| !store.writes_atomically(id.space);
        let torn = ids.iter().take_while(is_torn).count();
        let middle = HEADER_BYTES + torn * size;
        if let Some(doublewrite) = self.doublewrite.as_mut().filter(|_| torn > 0) {
            doublewrite.write(&ids[..torn], &mut self.buf[..middle])?;
            count(&self.counters.doublewrite_pages, torn);
        }
        store.write_all(&ids[..torn], &self.buf[HEADER_BYTES..middle])?;
        store.write_all_atomically(&ids[torn..], &self.buf[middle..used])?;
        // Sorted by page, so equal tablespaces stand together.
        let mut spaces: Vec<SpaceId> = ids.iter().map(|id| id.space).collect();
        spaces.dedup();
        let begun = Instant::now();
        let synced = store.sync_all(&spaces);
        count(&self.counters.space_syncs, spaces.len());
        let took = begun.elapsed().as_micros() as usize;
        count(&self.counters.space_syncs_usec, took);
        synced
    }

    fn write_unlogged(&mut self, taken: Vec<DirtyPage>, cause: Cause) -> Result<()> {
        let (copied, _) = self.copy_all(taken);
        if copied.is_empty() {
            return Ok(());
        }
        let ids: Vec<PageId> = copied.iter().map(|p| p.page).collect();
        let used = HEADER_BYTES + copied.len() * self.pool.page_size();
        let bytes = &self.buf[HEADER_BYTES..used];
        let result = self.pool.store().write_all(&ids, bytes);
        self.give_back(copied, cause, &result);
        result
    }
}
