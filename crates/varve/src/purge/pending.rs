//! Reading the history: which logs come next, and their records, page by page.
//!
//! | state of a log | where it is | what comes next |
//! |---|---|---|
//! | in the history | its rollback segment | `look_up` finds the oldest, a window of numbers at a time |
//! | looked up | `logs` | `collect` takes the first, until the batch is full |
//! | being read | still the first of `logs`, and `reading` | its next page, in this batch or the next one |
//! | in the batch | `batch`; if it is small, also `small` until it is read | `give_back` takes it off the history |
//!
//! The coordinator makes all transitions: `fill` those up to the batch, `give_back` the last one. Where it
//! may not go on, because something could not be read, worked off or given back, everything that was looked
//! up is forgotten, and the next batch begins with the oldest log that is still in the history.
//!
//! Small logs share pages. Those of a batch are first collected, and then read page by page: in the order of
//! their numbers each page would be latched a hundred times, and its lines be fetched one by one, in turn
//! with those of a hundred others.
//!
//! A log may have more pages than a batch: the next batch goes on in its middle. Nothing of this is kept
//! across a restart, and nothing need be: a log stays in the history until all of it is worked off (PURGE-2).

use std::collections::VecDeque;
use std::sync::Arc;

use crate::base::{Error, NO_PAGE, PageId, PageNo, Result, RollPtr, TrxNo};
use crate::txn::Core;
use crate::undo::{HistoryEntry, LogSpan, LogWalk, Rseg, UndoKind, UndoRecord};

use super::work::Work;

/// Logs with so many numbers are looked up at a time.
const WINDOW: u64 = 64 * 1024;
/// A full batch takes what is left of the logs that were looked up, too, if that seems to be less than this
/// part of it: a small batch visits nearly as many pages of the trees as a large one.
const REMAINDER: usize = 4;

/// A log that is not worked off.
#[derive(Clone, Copy)]
struct PendingLog {
    entry: HistoryEntry,
    /// The place of its rollback segment in `Pending::rsegs`.
    rseg: usize,
}

/// The oldest logs of some rollback segments, in the order of their numbers.
pub(super) struct Pending {
    rsegs: Vec<Arc<Rseg>>,
    /// What comes next.
    logs: VecDeque<PendingLog>,
    /// Where the first of them is being read.
    reading: Option<Reading>,
    /// The page of each that was counted last: small logs share pages.
    last_pages: Vec<PageNo>,
    /// Logs whose records are all in the batch, but for what `small` says.
    batch: Vec<PendingLog>,
    /// For each rollback segment: the places in `batch` of its small logs that are still to be read.
    small: Vec<Vec<usize>>,
}

struct Reading {
    span: LogSpan,
    walk: LogWalk,
    /// This pass through the log, and those after it.
    passes: &'static [Pass],
    /// One past the number of the last undo record that was read in this pass.
    undo_no: u64,
}

/// Which records are taken on the way through a log.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pass {
    All,
    Entries,
    Rows,
}

impl Pass {
    /// PURGE-1.
    fn through(log: &HistoryEntry) -> &'static [Pass] {
        match log.undone_unmark {
            true => &[Pass::Entries, Pass::Rows],
            false => &[Pass::All],
        }
    }

    fn takes(self, record: &UndoRecord<'_>) -> bool {
        match self {
            Pass::All => true,
            Pass::Entries => !record.kind.is_row(),
            Pass::Rows => record.kind.is_row(),
        }
    }
}

impl Pending {
    pub fn new(rsegs: &[Arc<Rseg>]) -> Pending {
        Pending {
            rsegs: rsegs.to_vec(),
            logs: VecDeque::new(),
            reading: None,
            last_pages: vec![NO_PAGE; rsegs.len()],
            batch: Vec::new(),
            small: vec![Vec::new(); rsegs.len()],
        }
    }

    /// Reads up to about `budget` pages of undo of the oldest logs, which are all below `limit`, into `work`;
    /// calls `between` before each page of small logs, without a latch. Returns how many.
    pub fn fill(
        &mut self,
        core: &Core,
        limit: TrxNo,
        budget: usize,
        work: &mut Work,
        between: impl FnMut(),
    ) -> Result<usize> {
        let pages = self.collect(core, limit, budget, work);
        let read = self.read_small(core, work, between);
        if work.copies() {
            // That which is being read comes next.
            let logs = self.batch.iter().chain(self.logs.front());
            work.numbers.extend(logs.map(|log| log.entry.no));
        }
        read?;
        pages
    }

    /// Does that but for the small logs, which it collects.
    fn collect(
        &mut self,
        core: &Core,
        limit: TrxNo,
        budget: usize,
        work: &mut Work,
    ) -> Result<usize> {
        let mut pages = 0;
        let enough = |pages, left, taken| {
            pages >= budget && (left >= taken / REMAINDER || pages >= budget + budget / REMAINDER)
        };
        while !enough(pages, self.logs.len(), self.batch.len()) {
            if self.logs.is_empty() && (!self.batch.is_empty() || !self.look_up(core, limit)?) {
                break;
            }
            let log = self.logs[0];
            let PendingLog { entry, rseg } = log;
            let is_small = entry.is_in_one_page() && !entry.undone_unmark;
            let is_unread = entry.only_space && !work.copies();
            if is_small && !is_unread {
                self.small[rseg].push(self.batch.len());
                if std::mem::replace(&mut self.last_pages[rseg], entry.first) != entry.first {
                    pages += 1;
                }
            }
            let is_taken = is_unread || is_small;
            if is_taken || self.read_page(core, log, &mut pages, work)? {
                self.reading = None;
                self.logs.pop_front();
                self.batch.push(log);
            }
        }
        Ok(pages)
    }

    /// Reads the small logs; pages that are no longer in the pool are read ahead. After an error the batch
    /// ends with the first log that could not be read.
    fn read_small(
        &mut self,
        core: &Core,
        work: &mut Work,
        mut between: impl FnMut(),
    ) -> Result<()> {
        let mut failed: Option<(usize, Error)> = None;
        let page = |place: usize| self.batch[place].entry.first;
        let mut by_page: Vec<(&Rseg, &[usize])> = Vec::new();
        for (rseg, small) in self.rsegs.iter().zip(&self.small) {
            let same_page = small.chunk_by(|a, b| page(*a) == page(*b));
            by_page.extend(same_page.map(|places| (&**rseg, places)));
        }
        for (at, &(rseg, places)) in by_page.iter().enumerate() {
            core.pool.prefetch_walk(at, |n| {
                let (rseg, places) = by_page.get(n)?;
                Some(PageId::new(rseg.space(), page(places[0])))
            });
            between();
            if let Err((place, e)) = read_shared_page(core, rseg, places, &self.batch, work)
                && failed.as_ref().is_none_or(|(first, _)| place < *first)
            {
                failed = Some((place, e));
            }
        }
        self.small.iter_mut().for_each(Vec::clear);
        match failed {
            None => Ok(()),
            Some((place, e)) => {
                // PURGE-1: no row of a later log.
                self.batch.truncate(place);
                work.truncate(place);
                Err(e)
            }
        }
    }

    /// Finds the oldest logs, while the batch has none. `false`: there is none below the limit.
    fn look_up(&mut self, core: &Core, limit: TrxNo) -> Result<bool> {
        let oldest = self.rsegs.iter().filter_map(|r| r.oldest()).min();
        let Some(oldest) = oldest.filter(|no| *no < limit) else {
            return Ok(false);
        };
        let end = TrxNo(oldest.0.saturating_add(WINDOW)).min(limit);
        let mut below = Vec::new();
        for (n, rseg) in self.rsegs.iter().enumerate() {
            below.clear();
            rseg.logs_below(&core.undo.env, end, &mut below)?;
            let found = below.iter();
            self.logs
                .extend(found.map(|&entry| PendingLog { entry, rseg: n }));
        }
        let logs = self.logs.make_contiguous();
        // Stable: that merges what is in order already, the logs of each segment.
        logs.sort_by_key(|log| log.entry.no);
        Ok(!self.logs.is_empty())
    }

    /// Reads one page of a log; true if it was the last.
    fn read_page(
        &mut self,
        core: &Core,
        PendingLog { entry, rseg: n }: PendingLog,
        pages: &mut usize,
        work: &mut Work,
    ) -> Result<bool> {
        let rseg = &self.rsegs[n];
        let reading = match &mut self.reading {
            Some(reading) => reading,
            none => none.insert(Reading::begin(core, rseg, &entry)?),
        };
        if let Some(no) = reading.walk.next(rseg.space())? {
            let (pass, place) = (reading.passes[0], self.batch.len());
            let undo_no = &mut reading.undo_no;
            let next =
                core.undo
                    .read_page(rseg.space(), &reading.span, no, |slot, record, bytes| {
                        *undo_no = record.undo_no + 1;
                        if pass.takes(record) && concerns_purge(record, entry.undone_unmark, work) {
                            let at = RollPtr::new(false, rseg.id(), no, slot);
                            work.add(record, bytes, at, place);
                        }
                    })?;
            reading.walk.goes_on_at(next);
            if std::mem::replace(&mut self.last_pages[n], no) != no {
                *pages += 1;
            }
        }
        if !reading.walk.is_at_end() {
            return Ok(false);
        }
        reading.passes = &reading.passes[1..];
        reading.undo_no = 0;
        reading.walk = reading.span.walk();
        Ok(reading.passes.is_empty())
    }

    /// No log is in the batch, or about to be.
    pub fn is_empty(&self) -> bool {
        self.batch.is_empty() && self.logs.is_empty()
    }

    /// After a batch: the undo number below which everything in the oldest log is worked off.
    pub fn undo_no(&self) -> u64 {
        match &self.reading {
            // Not while only entries are worked off (PURGE-1).
            Some(reading) if reading.passes.len() == 1 => reading.undo_no,
            _ => 0,
        }
    }

    /// Gives back the logs of the batch, but for those from the `end`th on. If there are such, what was read
    /// is forgotten: the next batch begins with them. Returns how many were given back.
    pub fn give_back(&mut self, core: &Core, end: Option<usize>) -> Result<usize> {
        let done = end.map_or(self.batch.len(), |end| end.min(self.batch.len()));
        let mut by_rseg = vec![Vec::new(); self.rsegs.len()];
        for log in &self.batch[..done] {
            by_rseg[log.rseg].push(log.entry);
        }
        self.batch.clear();
        self.last_pages.fill(NO_PAGE);
        if end.is_some() {
            self.forget();
        }
        for (rseg, logs) in self.rsegs.iter().zip(by_rseg) {
            let freed = core.undo.free_logs(rseg, &logs);
            if let Err(e) = freed {
                // What could not be given back is worked through again.
                self.forget();
                return Err(e);
            }
        }
        Ok(done)
    }

    fn forget(&mut self) {
        self.logs.clear();
        self.reading = None;
    }
}

impl Reading {
    fn begin(core: &Core, rseg: &Rseg, log: &HistoryEntry) -> Result<Reading> {
        let span = core.undo.history_log(rseg, log)?;
        Ok(Reading {
            walk: span.walk(),
            span,
            passes: Pass::through(log),
            undo_no: 0,
        })
    }
}

/// Takes what concerns purge from small logs that have their page in common: those in these places of the
/// batch. An error comes with the place of the first one that was not read.
fn read_shared_page(
    core: &Core,
    rseg: &Rseg,
    places: &[usize],
    batch: &[PendingLog],
    work: &mut Work,
) -> std::result::Result<(), (usize, Error)> {
    let first = places[0];
    let id = PageId::new(rseg.space(), batch[first].entry.first);
    let page = core.undo.env.pool.shared(id).map_err(|e| (first, e))?;
    for &place in places {
        let log = LogSpan::in_one_page(&batch[place].entry);
        log.read_records(&page, id, |slot, record, bytes| {
            if concerns_purge(record, false, work) {
                let at = RollPtr::new(false, rseg.id(), id.no, slot);
                work.add(record, bytes, at, place);
            }
        })
        .map_err(|e| (place, e))?;
    }
    Ok(())
}

fn concerns_purge(record: &UndoRecord<'_>, unmarks: bool, work: &mut Work) -> bool {
    match record.kind {
        _ if record.concerns_purge() => !record.undone,
        UndoKind::RowUpdate => !record.undone && work.wants_update(record),
        kind => unmarks && kind.is_unmark(),
    }
}
