//! [`TrxUndo`]: the undo of one transaction.
//!
//! It writes records and takes them back, newest first over all of its logs, and ends them (TEMP-4, UNDO-7).
//! Undo of temporary tables that is lost is forgotten, and the transaction goes on without (TEMP-6).

use std::cell::Cell;

use smallvec::SmallVec;

use super::hold::MAX_COMMIT_MTR;
use super::log::{self, UndoLog};
use super::pair::{LatchedEnd, LogPair, TrxOutcome};
use super::record::MAX_UNDO_NO;
use super::rseg::RsegUse;
use super::{EncodedUndo, UndoCopies, UndoEnv, UndoKind, UndoRecord, UndoSys};
use crate::base::{Error, Lsn, PageId, Result, RollPtr, SpaceId, TableId, TrxId, TrxNo, Xid};
use crate::mtr::{FILE_RECORD_BYTES, MAX_LOG_BYTES, Mtr, PageHandle, RawRecord};
use crate::space::AllocPurpose;

/// The undo of one transaction: its logs, and the one sequence of undo numbers over all of them.
pub struct TrxUndo {
    pub(super) trx: TrxId,
    /// The logs of lasting tables, which a crash leaves to be rolled back.
    pub(super) logged: LogPair,
    /// The logs of temporary tables, once there are any (TEMP-4).
    pub(super) temporary: Option<LogPair>,
    pub(super) next_no: u64,
    /// Records that were taken back. Of those from before a restart nobody knows.
    taken_back: u64,
    /// The name under which the transaction is prepared.
    pub(super) xid: Option<Box<Xid>>,
    /// The tablespaces that its commit removes, and the files' paths.
    removes: Vec<(SpaceId, String)>,
}

impl TrxUndo {
    pub(super) fn new(rseg: RsegUse, trx: TrxId, purpose: AllocPurpose) -> TrxUndo {
        TrxUndo {
            trx,
            logged: LogPair::new(rseg, purpose),
            temporary: None,
            next_no: 0,
            taken_back: 0,
            xid: None,
            removes: Vec::new(),
        }
    }

    /// The commit says in redo that this tablespace goes with it, too. `hold_commit` has to follow, which
    /// makes room for that.
    pub fn removes_file(&mut self, space: SpaceId, path: String) -> Result<()> {
        self.removes.push((space, path));
        let (size, limit) = (
            self.removal_bytes(),
            (MAX_LOG_BYTES - MAX_COMMIT_MTR) as usize,
        );
        match size <= limit {
            true => Ok(()),
            false => Err(Error::TooLarge {
                what: format!("the names of {} files that go at once", self.removes.len()),
                size,
                limit,
            }),
        }
    }

    /// Bytes of redo of the records about files, at most.
    fn removal_bytes(&self) -> usize {
        let bytes = |(_, path): &(SpaceId, String)| FILE_RECORD_BYTES + path.len();
        self.removes.iter().map(bytes).sum()
    }

    pub fn trx(&self) -> TrxId {
        self.trx
    }

    /// The number that the next record will get: what a savepoint remembers.
    pub fn next_no(&self) -> u64 {
        self.next_no
    }

    /// How many records a rollback down to a number will take back, at most.
    pub fn left_from(&self, down_to: u64) -> u64 {
        let left = self.next_no.saturating_sub(self.taken_back);
        left.min(self.next_no.saturating_sub(down_to))
    }

    pub(super) fn pairs(&self) -> impl Iterator<Item = &LogPair> {
        std::iter::once(&self.logged).chain(&self.temporary)
    }

    /// The logs of records about `table` (TEMP-4).
    fn pair(&self, table: TableId) -> &LogPair {
        match table.is_temporary() {
            true => self.temporary.as_ref().expect("prepare made it"),
            false => &self.logged,
        }
    }

    pub(super) fn pair_mut(&mut self, table: TableId) -> &mut LogPair {
        match table.is_temporary() {
            true => self.temporary.as_mut().expect("prepare made it"),
            false => &mut self.logged,
        }
    }

    /// The table that the newest record not taken back belongs to.
    pub fn newest_table(&self, env: &UndoEnv) -> Result<Option<TableId>> {
        let mut bytes = Vec::new();
        let newest = self.read_newest(env, 0, &mut bytes)?;
        let record = newest.and_then(|_| UndoRecord::decode(&bytes));
        Ok(record.map(|r| r.table))
    }

    /// How many undo pages there are.
    pub fn pages(&self) -> u32 {
        let logs = self.pairs().flat_map(LogPair::logs);
        logs.map(|log| log.header().pages).sum()
    }

    /// Logs in the history of the transaction's rollback segments.
    pub fn segment_history_len(&self) -> u64 {
        self.pairs().map(|p| p.rseg.history_len()).sum()
    }

    /// Free pages of the transaction's rollback segments that purge should return.
    pub fn segment_surplus_pages(&self) -> u32 {
        self.pairs().map(|p| p.rseg.surplus_pages()).sum()
    }

    /// Something was written: there is a log to end.
    pub fn has_logs(&self) -> bool {
        self.pairs().any(LogPair::has_logs)
    }

    /// Whether a record of `len` bytes goes where the last one went, without `UndoSys::prepare`.
    pub fn has_room(&self, table: TableId, kind: UndoKind, len: usize) -> bool {
        check_undo_no(self.trx, self.next_no).is_ok() && self.pair(table).log(kind).has_room(len)
    }

    /// Where the next record of this kind about `table` will stand.
    pub fn next_roll_ptr(&self, table: TableId, kind: UndoKind) -> RollPtr {
        self.pair(table).next_roll_ptr(kind)
    }

    /// Latches the undo page; after the tree's pages, before the first change of the mini-transaction.
    pub fn latch(&self, mtr: &mut Mtr<'_>, table: TableId, kind: UndoKind) -> Result<PageHandle> {
        self.pair(table).log(kind).latch_last(mtr)
    }

    /// Appends the encoded record, which carries `next_no`.
    pub fn append(
        &mut self,
        mtr: &mut Mtr<'_>,
        page: PageHandle,
        table: TableId,
        kind: UndoKind,
        record: EncodedUndo<'_>,
    ) {
        let no = self.next_no;
        let log = self.pair_mut(table).log_mut(kind);
        log.append(mtr, page, no, record);
        self.next_no += 1;
    }

    /// Copies the newest record with a number of at least `down_to` that is not taken back yet into `out`: it
    /// can be decoded. Returns the page that it stands on, or `None` if there is none.
    pub fn read_newest(
        &self,
        env: &UndoEnv,
        down_to: u64,
        out: &mut Vec<u8>,
    ) -> Result<Option<PageId>> {
        let newest = self.pairs().filter_map(LogPair::newest);
        match newest.max_by_key(|(no, _)| *no) {
            Some((no, log)) if no >= down_to => log.read_top(env, out).map(Some),
            _ => Ok(None),
        }
    }

    /// Latches what marking the newest record, of this kind and about this table, changes.
    pub fn latch_undone(
        &self,
        mtr: &mut Mtr<'_>,
        table: TableId,
        kind: UndoKind,
    ) -> Result<UndoneLatch> {
        let top = self.pair(table).log(kind).latch_top(mtr, kind)?;
        Ok(UndoneLatch { table, kind, top })
    }

    /// Marks the newest record as taken back, in the mini-transaction that took it back.
    pub fn mark_undone(&mut self, mtr: &mut Mtr<'_>, latch: UndoneLatch) {
        let log = self.pair_mut(latch.table).log_mut(latch.kind);
        log.mark_undone(mtr, latch.top);
    }

    /// Goes on to the record before the one that was just taken back.
    pub fn pop_newest(&mut self, env: &UndoEnv, table: TableId, kind: UndoKind) -> Result<()> {
        self.pair_mut(table).log_mut(kind).pop_top(env)?;
        self.taken_back += 1;
        Ok(())
    }

    /// The name under which the transaction is prepared.
    pub fn xid(&self) -> Option<&Xid> {
        self.xid.as_deref()
    }

    /// Something was written that a crash does not take away: there is something to promise.
    pub fn has_logged(&self) -> bool {
        self.logged.has_logs()
    }

    /// Something was written to temporary tables.
    pub fn has_temporary(&self) -> bool {
        self.temporary.as_ref().is_some_and(LogPair::has_logs)
    }

    /// Says in the logs' headers that the transaction is prepared under this name (UNDO-7). Returns the LSN
    /// that makes it durable.
    pub fn write_prepared(&mut self, env: &UndoEnv, xid: &Xid) -> Result<Lsn> {
        let write = |log: &mut UndoLog, mtr: &mut Mtr<'_>, h| log.write_prepared(mtr, h, xid);
        let end = self.logged.write_headers(env, write)?;
        self.xid = Some(Box::new(*xid));
        Ok(end)
    }

    /// Takes `write_prepared` back, before the first record is taken back (UNDO-7). Returns the LSN that
    /// makes it durable.
    pub fn write_active(&mut self, env: &UndoEnv) -> Result<Lsn> {
        self.release_hold();
        let end = self.logged.write_headers(env, UndoLog::write_active)?;
        self.xid = None;
        Ok(end)
    }

    /// Gets hold of what the commit needs, so that `commit` neither fails nor waits for a disk or for redo
    /// capacity.
    pub fn hold_commit(&mut self, env: &UndoEnv) -> Result<()> {
        let also = self.removal_bytes() as u32;
        self.logged.hold_commit(env, also)?;
        self.in_temporary(env, |pair| pair.hold_commit(env, 0))
            .map(drop)
    }

    /// Does something with the undo of temporary tables, if there is any. If that is lost, it is forgotten
    /// (TEMP-6).
    fn in_temporary<T>(
        &mut self,
        env: &UndoEnv,
        f: impl FnOnce(&mut LogPair) -> Result<T>,
    ) -> Result<Option<T>> {
        let Some(pair) = &mut self.temporary else {
            return Ok(None);
        };
        let done = env.spaces.check_temporary().and_then(|()| f(pair));
        match done {
            Err(e) if env.spaces.loses_temporary(&e) => {
                self.forget_temporary();
                Ok(None)
            }
            done => done.map(Some),
        }
    }

    /// What was done to temporary tables can't be taken back any more, nor need it (TEMP-6).
    pub fn forget_temporary(&mut self) {
        self.temporary = None;
    }

    /// Gives that back: the transaction will not end soon.
    pub fn release_hold(&mut self) {
        self.logged.release_hold();
        if let Some(pair) = &mut self.temporary {
            pair.release_hold();
        }
    }

    /// The tables, but for temporary ones, whose records the transaction changed and has not taken back.
    pub fn tables(&self, sys: &UndoSys) -> Result<Vec<TableId>> {
        let mut tables = Vec::new();
        let mut copies = UndoCopies::default();
        let newest = Cell::new(None);
        let space = self.logged.rseg.space();
        for log in self.logged.logs().map(UndoLog::span) {
            let wanted =
                |r: &UndoRecord<'_>| !r.undone && newest.replace(Some(r.table)) != Some(r.table);
            sys.walk(space, &log, &mut copies, wanted, |_, _, record| {
                if !tables.contains(&record.table) {
                    tables.push(record.table);
                }
                Ok(())
            })?;
        }
        Ok(tables)
    }

    /// Ends the transaction's undo at commit: the update logs join the history under the number that `number`
    /// draws, the insert logs are given back. Everything that can fail happens before `number` is called.
    /// Returns the LSN that makes it durable; `None` if nothing was written but temporary tables.
    pub fn commit(
        &mut self,
        env: &UndoEnv,
        number: impl FnOnce() -> TrxNo,
    ) -> Result<(TrxNo, Option<Lsn>)> {
        self.finish(env, TrxOutcome::Committed, |_| number())
    }

    /// Ends the transaction's undo after everything was taken back. `number` is told whether a log joins the
    /// history.
    pub fn finish_rollback(
        &mut self,
        env: &UndoEnv,
        number: impl FnOnce(bool) -> TrxNo,
    ) -> Result<(TrxNo, Option<Lsn>)> {
        self.finish(env, TrxOutcome::RolledBack, number)
    }

    fn finish(
        &mut self,
        env: &UndoEnv,
        outcome: TrxOutcome,
        number: impl FnOnce(bool) -> TrxNo,
    ) -> Result<(TrxNo, Option<Lsn>)> {
        let logged = self.logged.latch_end(env, outcome)?;
        let temporary = self.in_temporary(env, |pair| pair.latch_end(env, outcome))?;
        let temporary = temporary.flatten();
        let joins = |latched_end: &Option<LatchedEnd<'_>>| {
            latched_end.as_ref().is_some_and(LatchedEnd::joins_history)
        };
        let no = number(joins(&logged) || joins(&temporary));
        let removes = self
            .removes
            .iter()
            .filter(|_| outcome == TrxOutcome::Committed);
        let removals: SmallVec<[RawRecord<'_>; 1]> = removes
            .map(|(space, path)| RawRecord::FileDelete {
                space: *space,
                path,
            })
            .collect();
        let end = logged.map(|latched_end| self.logged.end(latched_end, no, &removals));
        if let (Some(pair), Some(latched_end)) = (&mut self.temporary, temporary) {
            pair.end(latched_end, no, &[]);
        }
        Ok((no, end))
    }
}

/// Pages latched for `TrxUndo::mark_undone`.
pub struct UndoneLatch {
    table: TableId,
    kind: UndoKind,
    top: log::TopLatch,
}

/// Fails for a number that is too large, which a reader takes for damage.
pub(super) fn check_undo_no(trx: TrxId, no: u64) -> Result<()> {
    match no <= MAX_UNDO_NO {
        true => Ok(()),
        false => Err(Error::NoSpace {
            what: format!("transaction {trx} has made 2^48 changes: commit it or roll it back"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn undo_numbers_that_run_out_are_refused() {
        check_undo_no(TrxId(7), (1 << 48) - 1).unwrap();
        let refused = check_undo_no(TrxId(7), 1 << 48).unwrap_err();
        assert!(refused.to_string().contains("transaction 7"), "{refused}");
    }
}
