//! Reading the history: which logs come next, and their records, page by page.
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
use crate::undo::{HistoryEntry, LogSpan, LogWalk, Rseg, UndoRecord};

use super::work::Work;

/// Logs with so many numbers are looked up at a time.
const WINDOW: u64 = 64 * 1024;
/// A full batch takes the rest of what was looked up, too, if that seems to be less than this part of it: a
/// small batch visits nearly as many pages of the trees as a large one.
const REST: usize = 4;

/// The oldest logs of some rollback segments, in the order of their numbers.
pub(super) struct Pending {
    rsegs: Vec<Arc<Rseg>>,
    /// What comes next, with the place of its rollback segment in `rsegs`.
    logs: VecDeque<(HistoryEntry, usize)>,
    /// Where the first of them is being read.
    reading: Option<Reading>,
    /// The page of each that was counted last: small logs share pages.
    last_pages: Vec<PageNo>,
    /// Logs whose records are all in the batch, but for what `small` says.
    read: Vec<(HistoryEntry, usize)>,
    /// For each rollback segment: the places in `read` of its small logs that are still to be read.
    small: Vec<Vec<usize>>,
}

struct Reading {
    span: LogSpan,
    walk: LogWalk,
    /// What is taken on the way through the log, and later.
    sweeps: &'static [Wanted],
    /// One past the number of the last undo record that was read on that way.
    undo_no: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    All,
    Entries,
    Rows,
}

impl Wanted {
    /// PURGE-1.
    fn of(log: &HistoryEntry) -> &'static [Wanted] {
        match log.undone_unmark {
            true => &[Wanted::Entries, Wanted::Rows],
            false => &[Wanted::All],
        }
    }

    fn takes(self, record: &UndoRecord<'_>) -> bool {
        match self {
            Wanted::All => true,
            Wanted::Entries => !record.kind.is_row(),
            Wanted::Rows => record.kind.is_row(),
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
            read: Vec::new(),
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
        self.read_small(core, work, between)?;
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
        let enough = |pages, rest, read| {
            pages >= budget && (rest >= read / REST || pages >= budget + budget / REST)
        };
        while !enough(pages, self.logs.len(), self.read.len()) {
            if self.logs.is_empty() && (!self.read.is_empty() || !self.look_up(core, limit)?) {
                break;
            }
            let (log, n) = self.logs[0];
            let is_small = log.is_in_one_page() && !log.undone_unmark;
            if is_small && !log.only_space {
                self.small[n].push(self.read.len());
                if std::mem::replace(&mut self.last_pages[n], log.first) != log.first {
                    pages += 1;
                }
            }
            let is_read = log.only_space || is_small;
            if is_read || self.read_page(core, &log, n, &mut pages, work)? {
                self.reading = None;
                self.logs.pop_front();
                self.read.push((log, n));
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
        let page = |place: usize| self.read[place].0.first;
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
            if let Err((place, e)) = read_shared_page(core, rseg, places, &self.read, work)
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
                self.read.truncate(place);
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
            self.logs.extend(below.iter().map(|log| (*log, n)));
        }
        let logs = self.logs.make_contiguous();
        // Stable: that merges what is in order already, the logs of each segment.
        logs.sort_by_key(|(log, _)| log.no);
        Ok(!self.logs.is_empty())
    }

    /// Reads one page of a log; true if it was the last.
    fn read_page(
        &mut self,
        core: &Core,
        log: &HistoryEntry,
        n: usize,
        pages: &mut usize,
        work: &mut Work,
    ) -> Result<bool> {
        let rseg = &self.rsegs[n];
        let reading = match &mut self.reading {
            Some(reading) => reading,
            none => none.insert(Reading::begin(core, rseg, log)?),
        };
        if let Some(no) = reading.walk.next(rseg.space())? {
            let (sweep, order) = (reading.sweeps[0], self.read.len());
            let undo_no = &mut reading.undo_no;
            let next =
                core.undo
                    .read_page(rseg.space(), &reading.span, no, |slot, record, bytes| {
                        *undo_no = record.undo_no + 1;
                        if sweep.takes(record) && concerns_purge(record, log.undone_unmark) {
                            let at = RollPtr::new(false, rseg.id(), no, slot);
                            work.add(record, bytes, at, order);
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
        reading.sweeps = &reading.sweeps[1..];
        reading.undo_no = 0;
        reading.walk = reading.span.walk();
        Ok(reading.sweeps.is_empty())
    }

    /// No log is in the batch, or about to be.
    pub fn is_empty(&self) -> bool {
        self.read.is_empty() && self.logs.is_empty()
    }

    /// After a batch: the undo number below which everything in the oldest log is worked off.
    pub fn undo_no(&self) -> u64 {
        match &self.reading {
            // Not while only entries are worked off (PURGE-1).
            Some(reading) if reading.sweeps.len() == 1 => reading.undo_no,
            _ => 0,
        }
    }

    /// Gives back the logs of the batch, but for those from the `end`th on. If there are such, what was read
    /// is forgotten: the next batch begins with them. Returns how many were given back.
    pub fn give_back(&mut self, core: &Core, end: Option<usize>) -> Result<usize> {
        let done = end.map_or(self.read.len(), |end| end.min(self.read.len()));
        let mut by_rseg = vec![Vec::new(); self.rsegs.len()];
        for (log, n) in &self.read[..done] {
            by_rseg[*n].push(*log);
        }
        self.read.clear();
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
            sweeps: Wanted::of(log),
            undo_no: 0,
        })
    }
}

/// Takes what concerns purge from small logs that have their page in common: those in these places of `read`.
/// An error comes with the place of the first one that was not read.
fn read_shared_page(
    core: &Core,
    rseg: &Rseg,
    places: &[usize],
    read: &[(HistoryEntry, usize)],
    work: &mut Work,
) -> std::result::Result<(), (usize, Error)> {
    let first = places[0];
    let id = PageId::new(rseg.space(), read[first].0.first);
    let page = core.undo.env.pool.shared(id).map_err(|e| (first, e))?;
    for &place in places {
        let log = LogSpan::in_one_page(&read[place].0);
        log.read_records(&page, id, |slot, record, bytes| {
            if concerns_purge(record, false) {
                let at = RollPtr::new(false, rseg.id(), id.no, slot);
                work.add(record, bytes, at, place);
            }
        })
        .map_err(|e| (place, e))?;
    }
    Ok(())
}

fn concerns_purge(record: &UndoRecord<'_>, unmarks: bool) -> bool {
    match record.concerns_purge() {
        true => !record.undone,
        false => unmarks && record.kind.is_unmark(),
    }
}
