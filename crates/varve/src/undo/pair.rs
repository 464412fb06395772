//! A transaction's insert and update log in one rollback segment, and how they end together.
//!
//! A transaction has one pair in an undo tablespace and, once it has written to temporary tables, another one
//! in the temporary tablespace (TEMP-4). Both end at the same moment, under one number: all pages of both are
//! latched before it is drawn, those of the logged pair first.

use crate::base::{Lsn, NO_PAGE, Result, RollPtr, TrxId, TrxNo};
use crate::mtr::{Mtr, PageHandle, RawRecord};
use crate::space::AllocPurpose;

use super::UndoEnv;
use super::header::LogKind;
use super::hold::{CommitHold, MAX_COMMIT_MTR};
use super::log::UndoLog;
use super::record::UndoKind;
use super::rseg::{Rseg, RsegUse, Tail};

pub(super) struct LogPair {
    insert: Option<UndoLog>,
    update: Option<UndoLog>,
    /// What pages of the undo tablespace are wanted for.
    purpose: AllocPurpose,
    /// What the commit will need is at hand.
    hold: Option<Box<CommitHold>>,
    /// Dropped last: a thread that finds the segment without users finds nothing of theirs (RSEG-6).
    pub rseg: RsegUse,
}

/// What becomes of the update log when its transaction ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TrxOutcome {
    Committed,
    /// Everything was taken back. A log in which an un-delete-marking was taken back joins the history all
    /// the same: what it delete-marked again may have been passed over by purge meanwhile.
    RolledBack,
}

/// Where a log and its pages go at the end of its transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LogEnd {
    /// It joins the history. Its page stays in its slot, as a cached one.
    Share,
    /// It joins the history and closes its page.
    Close,
    /// The same, after its further pages went to the free chain: everything on them was taken back.
    CutAndClose,
    /// Nobody needs it. Its only page stays in its slot, as a cached one.
    Cache,
    /// Nobody needs it. All its pages go to the free chain.
    Free,
}

impl LogEnd {
    fn of(log: &UndoLog, env: &UndoEnv, rseg: &Rseg, outcome: TrxOutcome) -> LogEnd {
        let is_update = log.header().kind == LogKind::Update;
        if is_update && (outcome == TrxOutcome::Committed || log.undone_unmark()) {
            return match log.leaves_room(env) {
                true => LogEnd::Share,
                false => LogEnd::Close,
            };
        }
        // What is left of an update log that was taken back stands between others. If there is no room behind
        // it, only the history can take the page.
        match (log.is_one_page(), is_update && !log.is_alone(rseg)) {
            (true, true) if !log.leaves_room(env) => LogEnd::Close,
            (true, _) => LogEnd::Cache,
            (false, true) => LogEnd::CutAndClose,
            (false, false) => LogEnd::Free,
        }
    }

    fn joins_history(self) -> bool {
        matches!(self, LogEnd::Share | LogEnd::Close | LogEnd::CutAndClose)
    }

    /// The log's slot becomes free.
    fn frees_slot(self) -> bool {
        matches!(self, LogEnd::Close | LogEnd::CutAndClose | LogEnd::Free)
    }
}

/// A log's pages, latched for its end.
#[derive(Clone, Copy)]
struct LogEndPages {
    end: LogEnd,
    /// `None` for `Free`.
    first: Option<PageHandle>,
    /// For `Free` and `CutAndClose`.
    last: Option<PageHandle>,
}

impl LogEndPages {
    fn latch(log: &UndoLog, end: LogEnd, mtr: &mut Mtr<'_>) -> Result<LogEndPages> {
        let first = match end {
            LogEnd::Free => None,
            _ => Some(log.latch_header(mtr)?),
        };
        let last = match end {
            LogEnd::Free | LogEnd::CutAndClose => Some(log.latch_end(mtr)?),
            _ => None,
        };
        Ok(LogEndPages { end, first, last })
    }
}

/// The latched pages by which a pair ends.
pub(super) struct LatchedEnd<'a> {
    mtr: Mtr<'a>,
    /// A log that nobody needs, and whose page stays where it is, has nothing to do with the rollback
    /// segment's header.
    rseg: Option<PageHandle>,
    /// Where the update log joins the history, if it does.
    tail: Option<Tail>,
    /// Of the update and the insert log.
    logs: [Option<LogEndPages>; 2],
}

impl LatchedEnd<'_> {
    pub fn joins_history(&self) -> bool {
        self.tail.is_some()
    }
}

impl LogPair {
    pub fn new(rseg: RsegUse, purpose: AllocPurpose) -> LogPair {
        LogPair {
            insert: None,
            update: None,
            purpose,
            hold: None,
            rseg,
        }
    }

    /// Takes over a log that recovery found.
    pub fn adopt(&mut self, env: &UndoEnv, log: UndoLog) -> Result<()> {
        let kind = log.header().kind;
        match kind {
            LogKind::Insert => self.insert = Some(log),
            LogKind::Update => {
                self.rseg.adopt_reservation(env)?;
                self.update = Some(log);
            }
        }
        Ok(())
    }

    pub fn has_log(&self, kind: LogKind) -> bool {
        match kind {
            LogKind::Insert => self.insert.is_some(),
            LogKind::Update => self.update.is_some(),
        }
    }

    /// Something was written.
    pub fn has_logs(&self) -> bool {
        let begun = |log: &Option<UndoLog>| log.as_ref().is_some_and(UndoLog::has_started);
        begun(&self.insert) || begun(&self.update)
    }

    pub fn log(&self, kind: UndoKind) -> &UndoLog {
        let log = match kind.log_kind() {
            LogKind::Insert => &self.insert,
            LogKind::Update => &self.update,
        };
        log.as_ref().expect("prepare created the log")
    }

    pub fn log_mut(&mut self, kind: UndoKind) -> &mut UndoLog {
        let log = match kind.log_kind() {
            LogKind::Insert => &mut self.insert,
            LogKind::Update => &mut self.update,
        };
        log.as_mut().expect("prepare created the log")
    }

    /// Makes room for a record, in a mini-transaction of its own (UNDO-3).
    pub fn prepare(&mut self, env: &UndoEnv, trx: TrxId, kind: UndoKind, len: usize) -> Result<()> {
        let (kind, rseg, purpose) = (kind.log_kind(), &self.rseg, self.purpose);
        let log = match kind {
            LogKind::Insert => &mut self.insert,
            LogKind::Update => &mut self.update,
        };
        if log.is_none() {
            *log = Some(UndoLog::create(env, rseg, kind, len, trx, purpose)?);
        }
        let log = log.as_mut().expect("just created");
        log.ensure_room(env, rseg, len, purpose)
    }

    pub fn next_roll_ptr(&self, kind: UndoKind) -> RollPtr {
        self.log(kind).next_roll_ptr(self.rseg.id())
    }

    /// The log with the newest record that is not taken back, and that record's number.
    pub fn newest(&self) -> Option<(u64, &UndoLog)> {
        let logs = [&self.insert, &self.update].into_iter().flatten();
        logs.filter_map(|log| Some((log.top_no()?, log)))
            .max_by_key(|(no, _)| *no)
    }

    /// The update and the insert log.
    pub fn logs(&self) -> impl Iterator<Item = &UndoLog> {
        [&self.update, &self.insert].into_iter().flatten()
    }

    /// Changes the headers of both logs in one mini-transaction (UNDO-7).
    pub fn write_headers(
        &mut self,
        env: &UndoEnv,
        write: impl Fn(&mut UndoLog, &mut Mtr<'_>, PageHandle),
    ) -> Result<Lsn> {
        self.return_unused();
        let mut mtr = Mtr::begin_in(&env.mtr, self.rseg.space(), MAX_COMMIT_MTR)?;
        let mut latched = Vec::with_capacity(2);
        for log in self.logs() {
            latched.push(log.latch_header(&mut mtr)?);
        }
        let logs = [&mut self.update, &mut self.insert].into_iter().flatten();
        for (log, h) in logs.zip(latched) {
            write(log, &mut mtr, h);
        }
        Ok(mtr.commit())
    }

    /// With room for so many bytes of redo that the commit logs beside its own.
    pub fn hold_commit(&mut self, env: &UndoEnv, also: u32) -> Result<()> {
        self.return_unused();
        if self.hold.is_none() && self.has_logs() {
            let hold = CommitHold::take(env, &self.rseg, self.logs(), also)?;
            self.hold = Some(Box::new(hold));
        }
        Ok(())
    }

    pub fn release_hold(&mut self) {
        self.hold = None;
    }

    /// Latches what the end changes: everything that can fail. `None` if nothing was written.
    pub fn latch_end<'a>(
        &mut self,
        env: &'a UndoEnv,
        outcome: TrxOutcome,
    ) -> Result<Option<LatchedEnd<'a>>> {
        self.return_unused();
        if !self.has_logs() {
            return Ok(None);
        }
        let logs = [&self.update, &self.insert];
        let end_of = |log: &UndoLog| LogEnd::of(log, env, &self.rseg, outcome);
        let ends = logs.map(|log| log.as_ref().map(end_of));
        let any = |which: fn(LogEnd) -> bool| ends.iter().flatten().any(|end| which(*end));
        let joins_history = any(LogEnd::joins_history);
        let mut mtr = match &self.hold {
            Some(hold) => hold.begin(env)?,
            None => Mtr::begin_in(&env.mtr, self.rseg.space(), MAX_COMMIT_MTR)?,
        };
        let rseg = match joins_history || any(LogEnd::frees_slot) {
            true => Some(self.rseg.latch(&mut mtr)?),
            false => None,
        };
        let tail = match rseg.filter(|_| joins_history) {
            Some(rseg) => Some(self.rseg.latch_tail(env, &mut mtr, rseg)?),
            None => None,
        };
        let mut latched = [None; 2];
        for ((log, end), latched) in logs.into_iter().zip(ends).zip(&mut latched) {
            if let (Some(log), Some(end)) = (log, end) {
                *latched = Some(LogEndPages::latch(log, end, &mut mtr)?);
            }
        }
        Ok(Some(LatchedEnd {
            mtr,
            rseg,
            tail,
            logs: latched,
        }))
    }

    /// Ends the pair: the update log joins the history under `no` if it was latched for that; all else is
    /// given back. `also` is logged with it. Returns the LSN that makes it durable.
    pub fn end(&mut self, latched_end: LatchedEnd<'_>, no: TrxNo, also: &[RawRecord<'_>]) -> Lsn {
        let LatchedEnd {
            mut mtr,
            rseg: rseg_h,
            tail,
            logs: latched,
        } = latched_end;
        let rseg = &self.rseg;
        let mut logs = [self.update.take(), self.insert.take()];
        for (log, pages) in logs.iter_mut().zip(latched) {
            let (Some(log), Some(pages)) = (log, pages) else {
                continue;
            };
            let LogEndPages { end, first, last } = pages;
            if let (LogEnd::CutAndClose, Some(rseg_h), Some(first), Some(last)) =
                (end, rseg_h, first, last)
            {
                log.cut_off(&mut mtr, rseg, rseg_h, first, last);
            }
            if let Some(first) = first {
                log.write_ended(&mut mtr, first);
            }
            if let (true, Some(rseg_h), Some(tail), Some(first)) =
                (end.joins_history(), rseg_h, &tail, first)
            {
                let entry = log.history_entry(mtr.bytes(first), no, end.frees_slot());
                let pages = log.header().pages;
                rseg.append_history(&mut mtr, rseg_h, tail, entry, pages);
            }
            if let (LogEnd::Free, Some(rseg_h), Some(last)) = (end, rseg_h, last) {
                log.give_back(&mut mtr, rseg, rseg_h, last);
            }
            if let (true, Some(rseg_h)) = (end.frees_slot(), rseg_h) {
                rseg.write_slot(&mut mtr, rseg_h, log.header().slot, NO_PAGE);
            }
        }
        also.iter().for_each(|record| mtr.log_raw(record));
        let lsn = mtr.commit();
        self.hold = None;
        for (log, pages) in logs.iter().zip(latched) {
            let (Some(log), Some(LogEndPages { end, .. })) = (log, pages) else {
                continue;
            };
            let joined = end.joins_history();
            match end.frees_slot() {
                true => rseg.return_slot(log.header().slot),
                false => rseg.return_cached(log.cached(joined.then_some(no))),
            }
            if log.header().kind == LogKind::Update && !joined {
                rseg.return_history();
            }
        }
        lsn
    }

    /// Returns logs that were created, but not written to.
    fn return_unused(&mut self) {
        for log in [&mut self.insert, &mut self.update] {
            if let Some(unused) = log.take_if(|log| !log.has_started()) {
                self.rseg.return_cached(unused.taken());
                if unused.header().kind == LogKind::Update {
                    self.rseg.return_history();
                }
            }
        }
    }
}

impl Drop for LogPair {
    fn drop(&mut self) {
        self.return_unused();
    }
}
