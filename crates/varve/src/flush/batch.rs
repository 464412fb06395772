//! Writes one batch of dirty pages: copy → log durable → doublewrite file → data files → sync → done.
//!
//! The order is what makes it safe. The log first (WAL-1); a whole copy in the doublewrite file before the first byte in place
//! (FL-1); the sync of the data files before a page counts as clean (WAL-2). The batch is over when all of this is
//! done, so the doublewrite file never holds more than one batch that matters.
//!
//! Pages of unlogged tablespaces are just written: they mean nothing after a crash.
//!
//! One batch at a time, under the caller's mutex. On an error every page is given back dirty, and the database is poisoned: after
//! a failed sync nobody knows what is on disk.

use std::sync::Arc;

use super::doublewrite::{Doublewrite, HEADER_BYTES};
use super::{Cause, FlushCounters, count};
use crate::base::{Lsn, PageId, Result, Sabotage, SpaceId};
use crate::buffer::{BufferPool, DirtyPage};
use crate::redo::RedoLog;

pub struct BatchWriter {
    pool: Arc<BufferPool>,
    log: Arc<RedoLog>,
    doublewrite: Option<Doublewrite>,
    /// The doublewrite file's header, then the copies of the batch's pages.
    buf: Vec<u8>,
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
        let buf = vec![0; HEADER_BYTES + batch_pages * pool.page_size()];
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

    fn write_logged(&mut self, taken: Vec<DirtyPage>, cause: Cause) -> Result<()> {
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
        if copied.is_empty() {
            return Ok(());
        }
        match self.store(&copied, newest) {
            Ok(()) => {
                count(self.counters.pages(cause), copied.len());
                count(&self.counters.batches, 1);
                copied.into_iter().for_each(|p| self.pool.write_done(p));
                Ok(())
            }
            Err(e) => {
                copied.into_iter().for_each(|p| self.pool.write_given_up(p));
                Err(e)
            }
        }
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
        if let Some(doublewrite) = &mut self.doublewrite {
            let ids: Vec<PageId> = copied.iter().map(|p| p.page).collect();
            doublewrite.write(&ids, &mut self.buf[..used])?;
            count(&self.counters.doublewrite_pages, copied.len());
        }
        let store = self.pool.store();
        let mut spaces: Vec<SpaceId> = Vec::new();
        for (page, bytes) in copied
            .iter()
            .zip(self.buf[HEADER_BYTES..used].chunks_exact(size))
        {
            store.write(page.page, bytes)?;
            // Sorted by page, so equal tablespaces stand together.
            if spaces.last() != Some(&page.page.space) {
                spaces.push(page.page.space);
            }
        }
        count(&self.counters.space_syncs, spaces.len());
        spaces.into_iter().try_for_each(|space| store.sync(space))
    }

    fn write_unlogged(&mut self, taken: Vec<DirtyPage>, cause: Cause) -> Result<()> {
        let mut result = Ok(());
        for page in taken {
            if result.is_err() || self.copy(&page, 0).is_none() {
                self.pool.write_given_up(page);
                continue;
            }
            let bytes = &self.buf[HEADER_BYTES..HEADER_BYTES + self.pool.page_size()];
            result = self.pool.store().write(page.page, bytes);
            match result {
                Ok(()) => {
                    count(self.counters.pages(cause), 1);
                    self.pool.write_done(page);
                }
                Err(_) => self.pool.write_given_up(page),
            }
        }
        result
    }
}
