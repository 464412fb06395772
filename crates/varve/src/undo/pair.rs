//! A transaction's insert and update log in one rollback segment, and how they end together.
//!
//! A transaction has one pair in an undo tablespace and, once it has written to temporary tables, another one in the
//! temporary tablespace (TEMP-4). Both end at the same moment, under one number: all pages of both are latched before it
//! is drawn, those of the logged pair first.

use std::sync::Arc;

use crate::base::{Lsn, NO_PAGE, PageId, Result, RollPtr, TrxId, TrxNo};
use crate::mtr::{Mtr, PageH};

use super::UndoEnv;
use super::hold::{CommitHold, MAX_COMMIT_MTR};
use super::log::{LogKind, UndoLog};
use super::record::UndoKind;
use super::rseg::{Rseg, Tail};

pub(super) struct LogPair {
    pub rseg: Arc<Rseg>,
    insert: Option<UndoLog>,
    update: Option<UndoLog>,
    /// What the commit will need is at hand.
    hold: Option<Box<CommitHold>>,
}

/// What becomes of the update log when its transaction ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ends {
    Committed,
    /// Everything was taken back. A log in which a revive was taken back joins the history all the same: what it restored to
    /// 'dead' may have been passed over by purge meanwhile.
    RolledBack,
}

/// Where a log goes at the end of its transaction.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    History,
    /// It stays in its slot, as a cached page.
    Cache,
    FreeChain,
}

impl End {
    fn of(log: &UndoLog, how: Ends) -> End {
        let joins = how == Ends::Committed || log.undone_revive();
        if joins && log.header().kind == LogKind::Update {
            End::History
        } else if log.is_one_page() {
            End::Cache
        } else {
            End::FreeChain
        }
    }
}

/// The latched pages by which a pair ends.
pub(super) struct Ending<'a> {
    mtr: Mtr<'a>,
    /// A log whose page stays where it is changes nothing in the rollback segment's header.
    rseg: Option<PageH>,
    /// Where the update log joins the history, if it does.
    tail: Option<Tail>,
    /// Of the update and the insert log.
    logs: [Option<(End, PageH)>; 2],
}

impl Ending<'_> {
    pub fn joins_history(&self) -> bool {
        self.tail.is_some()
    }
}

impl LogPair {
    pub fn new(rseg: Arc<Rseg>) -> LogPair {
        LogPair {
            rseg,
            insert: None,
            update: None,
            hold: None,
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

    /// The first page of one of the logs, for messages.
    pub fn first_page(&self) -> Option<PageId> {
        let log = self.insert.as_ref().or(self.update.as_ref());
        log.map(UndoLog::first_page)
    }

    /// Something was written.
    pub fn has_logs(&self) -> bool {
        let begun = |log: &Option<UndoLog>| log.as_ref().is_some_and(UndoLog::is_begun);
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
        let (kind, rseg) = (kind.log_kind(), &self.rseg);
        let log = match kind {
            LogKind::Insert => &mut self.insert,
            LogKind::Update => &mut self.update,
        };
        if log.is_none() {
            *log = Some(UndoLog::create(env, rseg, kind, trx)?);
        }
        let log = log.as_mut().expect("just created");
        log.ensure_room(env, rseg, len)
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

    /// Changes the headers of both logs in one mini-transaction (UNDO-5).
    pub fn write_headers(
        &mut self,
        env: &UndoEnv,
        write: impl Fn(&mut UndoLog, &mut Mtr<'_>, PageH),
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

    pub fn hold_commit(&mut self, env: &UndoEnv) -> Result<()> {
        self.return_unused();
        if self.hold.is_none() && self.has_logs() {
            let hold = CommitHold::take(env, &self.rseg, self.logs())?;
            self.hold = Some(Box::new(hold));
        }
        Ok(())
    }

    pub fn release_hold(&mut self) {
        self.hold = None;
    }

    /// Latches what the end changes: everything that can fail. `None` if nothing was written.
    pub fn latch_end<'a>(&mut self, env: &'a UndoEnv, how: Ends) -> Result<Option<Ending<'a>>> {
        self.return_unused();
        if !self.has_logs() {
            return Ok(None);
        }
        let logs = [&self.update, &self.insert];
        let ends = logs.map(|log| log.as_ref().map(|log| End::of(log, how)));
        let joins_history = ends.contains(&Some(End::History));
        let mut mtr = match &self.hold {
            Some(hold) => hold.begin(env)?,
            None => Mtr::begin_in(&env.mtr, self.rseg.space(), MAX_COMMIT_MTR)?,
        };
        let rseg = match joins_history || ends.contains(&Some(End::FreeChain)) {
            true => Some(self.rseg.latch(&mut mtr)?),
            false => None,
        };
        let tail = match rseg.filter(|_| joins_history) {
            Some(rseg) => Some(self.rseg.latch_tail(env, &mut mtr, rseg)?),
            None => None,
        };
        let mut latched = [None; 2];
        for ((log, end), latched) in logs.into_iter().zip(ends).zip(&mut latched) {
            let (Some(log), Some(end)) = (log, end) else {
                continue;
            };
            let page = match end {
                End::FreeChain => log.latch_last(&mut mtr)?,
                End::History | End::Cache => log.latch_header(&mut mtr)?,
            };
            *latched = Some((end, page));
        }
        Ok(Some(Ending {
            mtr,
            rseg,
            tail,
            logs: latched,
        }))
    }

    /// Ends the pair: the update log joins the history under `no` if it was latched for that; all else is given back. Returns
    /// the LSN that makes it durable.
    pub fn end(&mut self, ending: Ending<'_>, no: TrxNo) -> Lsn {
        let Ending {
            mut mtr,
            rseg: rseg_h,
            tail,
            logs: latched,
        } = ending;
        let rseg = &self.rseg;
        let mut logs = [self.update.take(), self.insert.take()];
        for (log, latched) in logs.iter_mut().zip(latched) {
            let (Some(log), Some((end, page))) = (log, latched) else {
                continue;
            };
            match (end, rseg_h, &tail) {
                (End::Cache, ..) => log.write_cached(&mut mtr, page),
                (End::History, Some(rseg_h), Some(tail)) => {
                    let entry = log.write_committed(&mut mtr, page, no);
                    rseg.append_history(&mut mtr, rseg_h, tail, entry);
                    rseg.write_slot(&mut mtr, rseg_h, log.header().slot, NO_PAGE);
                }
                (End::FreeChain, Some(rseg_h), _) => {
                    log.give_back(&mut mtr, rseg, rseg_h, page);
                    rseg.write_slot(&mut mtr, rseg_h, log.header().slot, NO_PAGE);
                }
                _ => unreachable!("the header was latched for it"),
            }
        }
        let lsn = mtr.commit();
        self.hold = None;
        for (log, latched) in logs.iter().zip(latched) {
            let (Some(log), Some((end, _))) = (log, latched) else {
                continue;
            };
            match end {
                End::Cache => rseg.return_cached(log.place()),
                End::History | End::FreeChain => rseg.return_slot(log.header().slot),
            }
            if log.header().kind == LogKind::Update && end != End::History {
                rseg.return_history();
            }
        }
        lsn
    }

    /// Returns logs that were created, but not written to.
    fn return_unused(&mut self) {
        for log in [&mut self.insert, &mut self.update] {
            if let Some(unused) = log.take_if(|log| !log.is_begun()) {
                self.rseg.return_cached(unused.place());
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
