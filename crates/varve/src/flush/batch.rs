//! Writes one batch of dirty pages: copy → log durable → doublewrite file → data files → sync → done.
//!
//! The order is what makes it safe. The log first (WAL-1); a whole copy in the doublewrite file before the
//! first byte in place (FL-1); the sync of the data files before a page counts as clean (WAL-2). The batch is
//! over when all of this is done, so the doublewrite file never holds more than one batch that matters.
//!
//! - **FL-2** All files of a batch are open before anything is written, and stay so until their syncs are
//!   over (FILE-1). A file that can't be opened because too many are open costs nothing: its pages stay
//!   dirty, and are taken again by a later batch.
//!
//! - **FL-3** Want of space stops nobody: a page that is stored compressed, and for which its place has no
//!   room on the disk (SP-14), stays dirty, and is not taken for a while ([`PageStore::was_refused`]), so
//!   that others have their turn. New work is refused when such a page holds back half the redo log, or half
//!   the pool is dirty ([`RedoLog::check_room`]).
//!
//! Where the file system and the device promise atomic writes of a page (IO-7), its tablespace's pages are
//! written that way and need no copy. That is asked of each file of the batch, once.
//!
//! Pages of unlogged tablespaces are just written: they mean nothing after a crash. If that fails they are
//! lost (TEMP-6), and nothing else is.
//!
//! The writes to the data files are under way together, in any order, those of pages that lie side by side as
//! one; the first sync is called when all of them are over. The syncs of the data files are under way
//! together, too.
//!
//! One batch at a time, under the caller's mutex. On any other error of a logged tablespace every page is
//! given back dirty, and the database is poisoned: after
//! a failed sync nobody knows what is on disk.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::doublewrite::{Doublewrite, HEADER_BYTES};
use super::{Cause, FlushCounters, count};
use crate::base::{Error, Lsn, PageId, Recently, Result, Sabotage, SpaceId};
#[cfg(doc)]
use crate::buffer::PageStore;
use crate::buffer::{BufferPool, DirtyPage, KeptOpen};
use crate::io::{AlignedBuf, DIRECT_BLOCK};
use crate::page;
use crate::redo::RedoLog;

/// How long a refusal counts: longer than until the next one.
const REFUSAL_LASTS: Duration = Duration::from_secs(3);

pub struct BatchWriter {
    pool: Arc<BufferPool>,
    log: Arc<RedoLog>,
    doublewrite: Option<Doublewrite>,
    /// The doublewrite file's header, then the copies of the batch's pages.
    buf: AlignedBuf,
    counters: Arc<FlushCounters>,
    /// Why pages were left out last (FL-2, FL-3).
    refusal: Option<Error>,
    refused_lately: Recently,
    refused_now: usize,
}

/// The files of a batch.
type BatchFiles = HashMap<SpaceId, KeptOpen>;

impl BatchWriter {
    pub fn new(
        pool: Arc<BufferPool>,
        log: Arc<RedoLog>,
        doublewrite: Option<Doublewrite>,
        most_in_batch: usize,
        counters: Arc<FlushCounters>,
    ) -> BatchWriter {
        let buf = AlignedBuf::new(HEADER_BYTES + most_in_batch * pool.page_size());
        BatchWriter {
            pool,
            log,
            doublewrite,
            buf,
            counters,
            refusal: None,
            refused_lately: Recently::default(),
            refused_now: 0,
        }
    }

    /// Writes the pages, at most a batch, and gives them back. Returns how many were written: some may be in
    /// others' hands, or have to wait (FL-2, FL-3).
    pub fn write(&mut self, taken: Vec<DirtyPage>, cause: Cause) -> Result<usize> {
        self.refused_now = 0;
        let mut taken = self.pool.forget_taken(taken);
        // Ascending, so that the data files are written in order.
        taken.sort_by_key(|p| p.page.to_u64());
        let result = self.write_sorted(taken, cause);
        if let Err(e) = &result {
            self.log.poison(format!("pages could not be written: {e}"));
        }
        result
    }

    /// Why pages were left out lately, if any were: too many files are open, or there is no room on the disk.
    pub fn refusal(&self) -> Option<&Error> {
        let refusal = self.refusal.as_ref()?;
        self.refused_lately.is_on().then_some(refusal)
    }

    /// Pages of the last batch for which there was no room.
    pub fn refused_now(&self) -> usize {
        self.refused_now
    }

    /// The page stays dirty, which others may feel.
    fn hold_back(&self, page: &DirtyPage) {
        let fills_pool = self.pool.dirty_logged_pages() > self.pool.usable_frames() / 2;
        let from = page.first_change.filter(|_| !fills_pool);
        self.log.hold_back(from, REFUSAL_LASTS);
    }

    fn refuse(&mut self, why: Error) {
        self.refused_lately.note(REFUSAL_LASTS);
        self.refusal = Some(why);
    }

    fn write_sorted(&mut self, taken: Vec<DirtyPage>, cause: Cause) -> Result<usize> {
        let (taken, open) = self.open_files(taken)?;
        let (logged, unlogged): (Vec<_>, Vec<_>) =
            taken.into_iter().partition(|p| p.first_change.is_some());
        let logged = self.write_logged(logged, &open, cause);
        let unlogged = self.write_unlogged(unlogged, cause);
        Ok(logged? + unlogged?)
    }

    /// FL-2. Returns the pages whose files are open, and the files; the other pages are given back, and after
    /// an error all of them.
    fn open_files(&mut self, taken: Vec<DirtyPage>) -> Result<(Vec<DirtyPage>, BatchFiles)> {
        let mut open = BatchFiles::new();
        let mut refused = Vec::new();
        // Sorted by page, so equal tablespaces stand together.
        let mut spaces: Vec<SpaceId> = taken.iter().map(|p| p.page.space).collect();
        spaces.dedup();
        for space in spaces {
            match self.pool.store().keep_open(space) {
                Ok(kept) => drop(open.insert(space, kept)),
                Err(e) => refused.push(e),
            }
        }
        let failed = refused.iter().find(|e| !e.is_out_of_means()).cloned();
        let is_ready = |page: &DirtyPage| failed.is_none() && open.contains_key(&page.page.space);
        let (ready, left): (Vec<_>, Vec<_>) = taken.into_iter().partition(is_ready);
        count(&self.counters.refused_pages, left.len());
        left.into_iter().for_each(|p| self.pool.write_given_up(p));
        if let Some(why) = refused.pop() {
            self.refuse(why);
        }
        failed.map_or(Ok((ready, open)), Err)
    }

    /// `None`: it can't be had now.
    fn copy(&mut self, taken: &DirtyPage, slot: usize) -> Result<Option<Lsn>> {
        let size = self.pool.page_size();
        let at = HEADER_BYTES + slot * size;
        let copied = self
            .pool
            .copy_for_write(taken, &mut self.buf[at..at + size]);
        match copied {
            Err(e @ Error::NoSpace { .. }) => {
                count(&self.counters.refused_pages, 1);
                self.refused_now += 1;
                self.hold_back(taken);
                self.refuse(e);
                Ok(None)
            }
            Ok(None) => {
                count(&self.counters.skipped_pages, 1);
                Ok(None)
            }
            copied => copied,
        }
    }

    /// Copies the pages, one behind the other. Returns those that could be had, and the greatest page LSN.
    fn copy_all(&mut self, taken: Vec<DirtyPage>) -> Result<(Vec<DirtyPage>, Lsn)> {
        let mut copied = Vec::with_capacity(taken.len());
        let mut newest = Lsn(0);
        let mut taken = taken.into_iter();
        while let Some(page) = taken.next() {
            match self.copy(&page, copied.len()) {
                Ok(Some(lsn)) => {
                    newest = newest.max(lsn);
                    copied.push(page);
                }
                Ok(None) => self.pool.write_given_up(page),
                Err(e) => {
                    let all = copied.into_iter().chain([page]).chain(taken);
                    all.for_each(|page| self.pool.write_given_up(page));
                    return Err(e);
                }
            }
        }
        Ok((copied, newest))
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

    fn write_logged(
        &mut self,
        taken: Vec<DirtyPage>,
        open: &BatchFiles,
        cause: Cause,
    ) -> Result<usize> {
        // Those that need no copies stand last: the others lie together in the buffer.
        let is_torn = |page: &DirtyPage| !open[&page.page.space].writes_atomically;
        let (mut taken, whole): (Vec<_>, Vec<_>) = taken.into_iter().partition(is_torn);
        taken.extend(whole);
        let (copied, newest) = self.copy_all(taken)?;
        if copied.is_empty() {
            return Ok(0);
        }
        let n = copied.len();
        let torn = copied.iter().take_while(|&page| is_torn(page)).count();
        let result = self.store(&copied, torn, newest);
        self.give_back(copied, cause, &result);
        result.map(|()| n)
    }

    /// Makes the copies durable in place, of which the first `torn` may be torn there.
    fn store(&mut self, copied: &[DirtyPage], torn: usize, newest: Lsn) -> Result<()> {
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
        let middle = HEADER_BYTES + torn * size;
        if let Some(doublewrite) = self.doublewrite.as_mut().filter(|_| torn > 0) {
            let path = |space| store.file_name(space);
            let bytes = doublewrite.write(&ids[..torn], &mut self.buf[..middle], path)?;
            count(&self.counters.doublewrite_bytes, bytes);
            count(&self.counters.doublewrite_batches, 1);
            count(&self.counters.doublewrite_pages, torn);
        }
        store.write_all(&ids[..torn], &self.buf[HEADER_BYTES..middle])?;
        store.write_all_atomically(&ids[torn..], &self.buf[middle..used])?;
        // As in the beginning: equal tablespaces stand together.
        let mut spaces: Vec<SpaceId> = ids.iter().map(|id| id.space).collect();
        spaces.dedup();
        let begun = Instant::now();
        let synced = store.sync_all(&spaces);
        count(&self.counters.space_syncs, spaces.len());
        let took = begun.elapsed().as_micros() as usize;
        count(&self.counters.space_syncs_usec, took);
        synced?;
        let copies = self.buf[HEADER_BYTES..middle].chunks_exact(size);
        let mut places: Vec<_> = ids
            .iter()
            .copied()
            .zip(copies.map(page::place_bytes))
            .collect();
        let in_place: usize = places.iter().map(|place| place.1).sum();
        count(
            &self.counters.place_bytes,
            in_place + (copied.len() - torn) * size,
        );
        if self.log.is_sabotaged(Sabotage::HoleOverPage) {
            let short = |bytes: usize| bytes.saturating_sub(DIRECT_BLOCK).max(DIRECT_BLOCK);
            places.iter_mut().for_each(|place| place.1 = short(place.1));
        }
        store.written(&places);
        Ok(())
    }

    fn write_unlogged(&mut self, taken: Vec<DirtyPage>, cause: Cause) -> Result<usize> {
        let (copied, _) = self.copy_all(taken)?;
        let n = copied.len();
        let size = self.pool.page_size();
        let store = self.pool.store();
        let mut result = Ok(());
        let mut from = HEADER_BYTES;
        // Each tablespace for itself: the loss of one is not another's.
        for pages in copied.chunk_by(|a, b| a.page.space == b.page.space) {
            let ids: Vec<PageId> = pages.iter().map(|p| p.page).collect();
            let to = from + ids.len() * size;
            let written = store.write_all(&ids, &self.buf[from..to]);
            count(&self.counters.place_bytes, to - from);
            result = result.and(
                written.or_else(|e| match store.lose_unlogged(ids[0].space, &e) {
                    true => Ok(()),
                    false => Err(e),
                }),
            );
            from = to;
        }
        self.give_back(copied, cause, &result);
        result.map(|()| n)
    }
}
