//! A transaction: its id, undo, read view and locks, from begin to the end of commit or rollback.
//!
//! Commit (ARCHITECTURE.md section 7) has two steps. `commit_start` does everything up to "locks released"
//! and no I/O but reading a page that was evicted: the undo logs' mini-transaction is latched first, so that
//! whatever can fail fails before the transaction is COMMITTING; then the number is drawn, the history
//! written, the state set to COMMITTED, the locks released. `commit_wait` waits until the redo is as durable
//! as `flush_log_at_trx_commit` asks. The LSN is reserved before the state says COMMITTED, so a dependent
//! commit never becomes durable first.
//!
//! - **TRX-1** A transaction that did not write has no id, no undo and nothing to wait for.
//! - **TRX-2** Dropping a transaction that did not end rolls it back, unless it is prepared.
//! - **PREP-3** From `prepare` on only `commit` and `rollback` change anything. A prepared transaction
//!   survives its handle and the database: it is then found by its name (prepared.rs), with its locks.
//! - **PREP-4** After `hold_commit`, `commit_start` neither fails nor does I/O, unless the database was
//!   poisoned.

mod locks;
mod reads;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::base::{
    Error, IndexId, Lsn, Result, SYSTEM_SPACE, Sabotage, SpaceId, TableId, TrxId, TrxNo, Watch, Xid,
};
use crate::btree::LeafHint;
use crate::catalog::{ChangedTables, Claim, OpenTable};
use crate::lock::{TableMode, TrxLocks, Wait};
use crate::space::AllocPurpose;
use crate::undo::{TrxUndo, UndoKind};

use locks::EVERY_TABLE;

use super::core::{Core, Counters};
use super::handle::CoreHandle;
use super::interrupt::Interrupt;
use super::parts::{TablesHeld, TrxNumber, TrxParts};
use super::prepared::Parked;
use super::value_source::ValueSource;
use super::view::{ReadView, ViewPlace};

/// What a transaction sees of others.
#[repr(u8)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Isolation {
    /// Reads see the newest version of each row, committed or not.
    ReadUncommitted,
    /// Each statement sees what was committed when it started.
    ReadCommitted,
    /// Every statement sees what was committed when the first one read. Locking reads keep others from adding
    /// rows where they looked.
    #[default]
    RepeatableRead,
    /// Reads lock what they read, shared, as far as they don't lock it anyway; otherwise as `RepeatableRead`.
    Serializable,
}

impl Isolation {
    const ALL: [Isolation; 4] = [
        Isolation::ReadUncommitted,
        Isolation::ReadCommitted,
        Isolation::RepeatableRead,
        Isolation::Serializable,
    ];

    /// The one with this number as `u8`.
    pub(crate) fn of(number: u8) -> Isolation {
        Isolation::ALL[usize::from(number)]
    }

    /// Locking reads lock the gaps that they pass, and keep the locks of rows that the statement did not
    /// want.
    pub fn locks_gaps(self) -> bool {
        matches!(self, Isolation::RepeatableRead | Isolation::Serializable)
    }
}

/// A commit that leaves at least this many logs in the history of its rollback segment wakes purge.
const PURGE_WAKE_LENGTH: u64 = 32;

/// How many rows a transaction reads before it adds them to the counter of all.
const MOST_ROWS_UNTOLD: u64 = 1024;

/// A place in a transaction to roll back to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Savepoint(pub u64);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TrxState {
    Active,
    /// Its coordinator decides. It has undo logs, and they have its name.
    Prepared,
    /// Its number is being drawn and written. One that is dropped so has met a panic (TXN-5).
    Ending,
    /// Committed; durable once the redo up to here is (`None`: it wrote nothing, or only temporary tables).
    Committed(Option<Lsn>),
    RolledBack,
    /// What could be taken back was (RB-2).
    LeftToNextStart,
}

/// Buffers that a transaction's operations reuse.
#[derive(Default)]
pub struct Scratch {
    /// An encoded undo record, and whether it concerns purge.
    pub undo: Vec<u8>,
    pub undo_concerns_purge: bool,
    pub payload: Vec<u8>,
    pub row: Vec<u8>,
    pub key: Vec<u8>,
    pub other_key: Vec<u8>,
}

impl Scratch {
    /// Memory of the largest buffer.
    pub(super) fn largest(&self) -> usize {
        let all = [
            &self.undo,
            &self.payload,
            &self.row,
            &self.key,
            &self.other_key,
        ];
        all.iter().map(|b| b.capacity()).max().unwrap_or(0)
    }
}

/// A running transaction. It belongs to one thread at a time.
pub struct Transaction {
    core: CoreHandle,
    number: TrxNumber,
    isolation: Isolation,
    state: TrxState,
    id: Option<TrxId>,
    pub(super) undo: Option<TrxUndo>,
    /// What its undo will want pages for.
    undo_purpose: AllocPurpose,
    view: Option<ReadView>,
    /// Where the view goes, while there is none.
    view_place: Option<ViewPlace>,
    /// `None` once the transaction has ended for good.
    locks: Option<TrxLocks>,
    /// Temporary tables that are claimed are among them.
    tables: TablesHeld,
    /// Those that were locked shared beside the tables that a statement names (FK-4).
    read_tables: Vec<TableId>,
    claims: Vec<Claim>,
    changed: ChangedTables,
    /// Tables whose AUTO-INC lock the statement holds; which it drew from last, and the counter behind that.
    pub(super) auto_inc: Vec<Arc<OpenTable>>,
    pub(super) drawn: Option<(TableId, u64)>,
    own_table_locks: bool,
    /// Counts read views opened and rollbacks to savepoints: what was read before may be otherwise now.
    read_epoch: u64,
    foreign_key_checks: bool,
    values: Option<Arc<dyn ValueSource>>,
    statement_start: u64,
    lock_wait: Duration,
    /// Rows read that the counter of all does not have yet: adding to it for each would be dear.
    rows_read: u64,
    /// The transaction's own flag; `None` once it has ended for good.
    own_interrupt: Option<Arc<AtomicBool>>,
    /// The caller's flag, which counts instead.
    interrupt: Option<Arc<AtomicBool>>,
    /// Is told how far its long statements have come.
    watch: Option<Watch>,
    sort_directory: Option<PathBuf>,
    pub(crate) scratch: Scratch,
    /// Rows come in the order of their keys: the index, and the leaf that took the last one.
    pub(crate) run: Option<(IndexId, LeafHint)>,
}

impl Transaction {
    pub(crate) fn begin(core: impl Into<CoreHandle>, isolation: Isolation) -> Transaction {
        let core = core.into();
        let (parts, number) = core.spare.take(&core.locks);
        let TrxParts {
            locks,
            interrupt,
            scratch,
            view_place,
        } = parts;
        locks.shown().begin(number.get(), isolation as u8);
        locks.take_waited();
        let lock_wait = core.settings.lock_wait_timeout();
        Transaction {
            core,
            number,
            isolation,
            state: TrxState::Active,
            id: None,
            undo: None,
            undo_purpose: AllocPurpose::Normal,
            view: None,
            view_place,
            locks: Some(locks),
            tables: TablesHeld::new(),
            read_tables: Vec::new(),
            claims: Vec::new(),
            changed: ChangedTables::default(),
            auto_inc: Vec::new(),
            drawn: None,
            own_table_locks: true,
            read_epoch: 0,
            foreign_key_checks: true,
            values: None,
            statement_start: 0,
            lock_wait,
            rows_read: 0,
            own_interrupt: Some(interrupt),
            interrupt: None,
            watch: None,
            sort_directory: None,
            scratch,
            run: None,
        }
    }

    /// A transaction that recovery found prepared, with the locks that keep DDL away from what it changed.
    /// Nobody else uses the database yet. Dropped, it waits for its coordinator.
    pub(crate) fn recovered_prepared(core: Arc<Core>, undo: TrxUndo) -> Result<Transaction> {
        let xid = *undo.xid().expect("recovery looked at it");
        let tables = undo.tables(&core.undo)?;
        core.prepared.enter(&xid)?;
        let mut trx = Transaction::recovered(core, undo);
        trx.state = TrxState::Prepared;
        trx.lock_changed(&tables)?;
        Ok(trx)
    }

    /// A transaction that recovery found unfinished and that will be rolled back while the database is in
    /// use: with the same locks. Nobody else uses the database yet. To learn which tables a long one has
    /// changed all of its undo would have to be read: it keeps DDL away from every table.
    pub(crate) fn recovered_loser(core: Arc<Core>, undo: TrxUndo) -> Result<Transaction> {
        const MOST_PAGES_READ: u32 = 64;
        let changed = match undo.pages() > MOST_PAGES_READ {
            true => {
                core.any_table_may_be_changed.store(true, Ordering::Relaxed);
                vec![EVERY_TABLE]
            }
            false => undo.tables(&core.undo)?,
        };
        let mut trx = Transaction::recovered(core, undo);
        trx.state = TrxState::LeftToNextStart;
        trx.lock_changed(&changed)?;
        Ok(trx)
    }

    /// Keeps DDL away from these tables.
    fn lock_changed(&self, tables: &[TableId]) -> Result<()> {
        let mode = TableMode::IntentionExclusive;
        let locks = &self.core.locks;
        tables.iter().try_for_each(|table| {
            locks
                .lock_table(self.locks(), *table, mode, Wait::No)
                .map(drop)
        })
    }

    /// Takes over a prepared transaction that no handle stands for.
    pub(crate) fn find_prepared(core: Arc<Core>, xid: &Xid) -> Result<Transaction> {
        let parked = core.prepared.take(xid)?;
        let mut trx = Transaction::begin(core, Isolation::RepeatableRead);
        trx.id = Some(parked.undo.trx());
        trx.undo = Some(parked.undo);
        parked
            .locks
            .shown()
            .begin(trx.number.get(), trx.isolation as u8);
        trx.locks = Some(parked.locks);
        trx.claims = parked.claims;
        trx.changed = parked.changed;
        trx.state = TrxState::Prepared;
        Ok(trx)
    }

    /// One that was prepared before the last start has forgotten which tables it has changed, and will tell
    /// them when it commits. Those that can't be used are told nothing.
    pub(crate) fn remember_changed(&mut self) {
        let Some(undo) = self.undo.as_ref().filter(|_| self.changed.is_empty()) else {
            return;
        };
        for table in undo.tables(&self.core.undo).unwrap_or_default() {
            if let Ok(Some(table)) = self.core.tables.by_id(table) {
                self.changed.add(&table.changed, 0);
            }
        }
    }

    /// A transaction that recovery found unfinished. It is registered as active already.
    pub(crate) fn recovered(core: Arc<Core>, undo: TrxUndo) -> Transaction {
        let mut trx = Transaction::begin(core, Isolation::RepeatableRead);
        trx.id = Some(undo.trx());
        trx.core.locks.set_trx(trx.locks(), undo.trx());
        trx.locks().set_changes(undo.next_no());
        trx.undo = Some(undo);
        trx
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// Tells the transaction from all others of the process, those that have ended included.
    pub(crate) fn number(&self) -> TrxNumber {
        self.number
    }

    pub fn isolation(&self) -> Isolation {
        self.isolation
    }

    /// Changes the isolation level for what comes; a view that is open stays.
    pub fn set_isolation(&mut self, isolation: Isolation) {
        self.isolation = isolation;
        self.locks().shown().set_isolation(isolation as u8);
    }

    /// The id, if the transaction has written.
    pub fn id(&self) -> Option<TrxId> {
        self.id
    }

    /// Setting the flag and waking the waiter makes waits, searches and whatever else may take long end with
    /// `Interrupted`.
    pub fn interrupt_handle(&self) -> Interrupt {
        Interrupt {
            core: Arc::clone(&self.core),
            flag: self.interrupt().clone(),
        }
    }

    /// Uses the caller's flag for interrupts: set it, then call `Database::wake_interrupted`.
    pub fn set_interrupt(&mut self, flag: Arc<AtomicBool>) {
        self.interrupt = Some(flag);
    }

    /// To be called every so often by whatever may run long without giving its caller anything.
    #[inline]
    pub(crate) fn check_interrupt(&self) -> Result<()> {
        // Relaxed: nothing else is read on its strength.
        match self.interrupt().load(Ordering::Relaxed) {
            true => Err(Error::Interrupted),
            false => Ok(()),
        }
    }

    /// The flag that interrupts it.
    pub(crate) fn interrupt(&self) -> &Arc<AtomicBool> {
        let flag = self.interrupt.as_ref().or(self.own_interrupt.as_ref());
        flag.expect("there until the transaction is dropped")
    }

    /// A cursor has come to `n` rows. Told to the counter at the statement's end and every so often.
    #[inline]
    pub(crate) fn count_rows(&mut self, n: u64) {
        self.rows_read += n;
        if self.rows_read >= MOST_ROWS_UNTOLD {
            self.tell_rows_read();
        }
    }

    fn tell_rows_read(&mut self) {
        let n = std::mem::take(&mut self.rows_read);
        if n > 0 {
            Counters::add(&self.core.counters.rows_read, n);
        }
    }

    /// An error if the transaction was prepared, committed or rolled back.
    pub(crate) fn check_active(&self) -> Result<()> {
        match self.state {
            TrxState::Prepared => Err(Error::invalid(
                "the transaction is prepared; commit it or roll it back",
            )),
            _ => self.check_open(),
        }
    }

    /// An error if the transaction was committed or rolled back.
    fn check_open(&self) -> Result<()> {
        match self.state {
            TrxState::Active | TrxState::Prepared => Ok(()),
            _ => Err(Error::invalid("the transaction has ended; begin a new one")),
        }
    }

    /// Marks the start of a statement: `rollback_statement` comes back here, READ COMMITTED takes a new view.
    pub fn start_statement(&mut self) {
        self.tell_rows_read();
        self.end_statement();
        self.statement_start = self.next_undo_no();
        if !self.isolation.locks_gaps() {
            self.close_view();
        }
    }

    /// How many undo records the transaction has written.
    pub(crate) fn next_undo_no(&self) -> u64 {
        self.undo.as_ref().map_or(0, TrxUndo::next_no)
    }

    pub fn savepoint(&self) -> Savepoint {
        Savepoint(self.next_undo_no())
    }

    /// Takes back everything after the savepoint; locks stay. If that fails, the database is poisoned.
    pub fn rollback_to(&mut self, savepoint: Savepoint) -> Result<()> {
        self.check_active()?;
        self.read_epoch += 1;
        self.changed.roll_back_to(savepoint.0);
        super::rollback::roll_back_to(self, savepoint.0).inspect_err(|e| {
            let id = self.id;
            self.core.fail(&format!(
                "rollback of transaction {id:?} to a savepoint failed: {e}"
            ));
        })
    }

    /// Takes back what the statement changed.
    pub fn rollback_statement(&mut self) -> Result<()> {
        self.rollback_to(Savepoint(self.statement_start))?;
        self.end_statement();
        Ok(())
    }

    /// Draws the id if this is the first write.
    pub(crate) fn writer(&mut self) -> Result<TrxId> {
        // FL-3; what removes files makes room.
        if self.undo_purpose == AllocPurpose::Normal {
            self.core.log.check_room()?;
        }
        if let Some(id) = self.id {
            return Ok(id);
        }
        self.check_active()?;
        self.core.check_writable()?;
        let id = self.core.sys.assign_id()?;
        self.id = Some(id);
        self.core.locks.set_trx(self.locks(), id);
        if let Some(view) = &mut self.view {
            view.set_own(id);
        }
        self.undo = Some(self.core.undo.assign(id, self.undo_purpose));
        Ok(id)
    }

    /// The undo logs; `writer` was called.
    pub(crate) fn undo_mut(&mut self) -> &mut TrxUndo {
        self.undo.as_mut().expect("writer() was called first")
    }

    /// An undo record about the table is going to be written.
    pub(crate) fn changes(&mut self, table: &OpenTable) {
        let undo_no = self.next_undo_no();
        self.changed.add(&table.changed, undo_no);
    }

    /// Waits as long as purge lag asks for before a row is changed (pacer.rs). No latch may be held.
    #[inline]
    pub(crate) fn wait_for_turn(&self, table: &OpenTable) -> Result<()> {
        match table.is_temporary() || table.space() == SYSTEM_SPACE {
            true => Ok(()),
            false => self.core.pacer.wait(self.interrupt()),
        }
    }

    /// Makes room for an undo record of `len` bytes about `table`.
    pub(crate) fn prepare_undo(
        &mut self,
        table: TableId,
        kind: UndoKind,
        len: usize,
    ) -> Result<()> {
        self.check_active()?;
        self.writer()?;
        let undo = self.undo.as_mut().expect("writer() was called");
        self.core.undo.prepare(undo, table, kind, len)
    }

    /// Promises, as durably as `flush_log_at_trx_commit` asks, that a commit will not fail: the first phase
    /// of a two-phase commit, whose coordinator knows the transaction by this name. What follows is `commit`
    /// or `rollback`. If the transaction is dropped instead, or the database crashes, it waits, with the
    /// locks on what it changed, for [`Database::commit_prepared`](crate::Database::commit_prepared) or
    /// `rollback_prepared`. One that wrote nothing has nothing to promise, and is not listed by `prepared`.
    ///
    /// # Errors
    ///
    /// `AlreadyExists` if another transaction is prepared under the name. The transaction is active as
    /// before.
    pub fn prepare(&mut self, xid: &Xid) -> Result<()> {
        self.check_active()?;
        let (Some(id), Some(undo)) = (self.id, &mut self.undo) else {
            return Ok(());
        };
        if !undo.has_logged() {
            return Ok(());
        }
        let core = &self.core;
        core.prepared.enter(xid)?;
        let end = undo
            .write_prepared(&core.undo.env, xid)
            .inspect_err(|_| core.prepared.leave(xid))?;
        core.sys.prepare(id);
        self.state = TrxState::Prepared;
        self.drop_view();
        self.core.make_durable(end)
    }

    /// Whether the transaction has changed temporary tables, which nobody else can use until it has ended.
    pub fn has_temporary_changes(&self) -> bool {
        self.undo.as_ref().is_some_and(TrxUndo::has_temporary)
    }

    /// Gets hold of what the commit needs, which may wait: from here on `commit_start` neither fails nor
    /// waits for a disk (PREP-4). For commits under a mutex of the caller.
    pub fn hold_commit(&mut self) -> Result<()> {
        self.check_open()?;
        match &mut self.undo {
            Some(undo) => undo.hold_commit(&self.core.undo.env),
            None => Ok(()),
        }
    }

    /// The transaction removes a file, or gives it another name: its undo may take the pages that are kept
    /// for such (SP-9). It has not written yet.
    pub(crate) fn may_use_kept_pages(&mut self) {
        assert!(self.undo.is_none(), "SP-9: it has pages already");
        self.undo_purpose = AllocPurpose::Cleaning;
    }

    /// The commit says in redo that the file of this tablespace goes with it, too: recovery removes it then.
    /// Something was changed already.
    pub(crate) fn removes_file(&mut self, space: SpaceId, path: String) -> Result<()> {
        self.check_open()?;
        let undo = self.undo.as_mut();
        undo.expect("a definition was changed")
            .removes_file(space, path)
    }

    /// Commits and waits until the commit is durable.
    pub fn commit(mut self) -> Result<()> {
        self.commit_start()?;
        self.commit_wait()
    }

    /// Commits up to "locks released": others see the changes, but they may not be durable yet.
    pub fn commit_start(&mut self) -> Result<()> {
        self.check_open()?;
        let xid = self.xid();
        let mut durable_at = None;
        if let (Some(id), Some(undo)) = (self.id, &mut self.undo) {
            let core = &self.core;
            match undo.has_logs() {
                true => {
                    let number = || {
                        self.state = TrxState::Ending;
                        let no = core.sys.start_commit(id);
                        let dies = core.log.is_sabotaged(Sabotage::CommitterDies);
                        assert!(!dies, "sabotage: a thread dies");
                        no
                    };
                    let (no, end) = undo.commit(&core.undo.env, number)?;
                    core.sys.finish_commit(id, no);
                    durable_at = end;
                    wake_purge(core, undo);
                    Counters::add(&core.counters.commits, 1);
                    self.changed.commit();
                }
                // An id was drawn, but nothing was written under it.
                false => core.sys.abort(id),
            }
        }
        self.state = TrxState::Committed(durable_at);
        self.end();
        self.forget_prepared(xid);
        Ok(())
    }

    /// `commit_start` has been there, `commit_wait` may have.
    pub fn is_committed(&self) -> bool {
        matches!(self.state, TrxState::Committed(_))
    }

    /// The name under which the transaction is prepared.
    pub fn xid(&self) -> Option<Xid> {
        self.undo.as_ref().and_then(TrxUndo::xid).copied()
    }

    fn forget_prepared(&self, xid: Option<Xid>) {
        if let Some(xid) = xid {
            self.core.prepared.leave(&xid);
        }
    }

    /// Waits until the commit is as durable as `flush_log_at_trx_commit` asks.
    pub fn commit_wait(&mut self) -> Result<()> {
        match self.state {
            TrxState::Committed(Some(lsn)) => self.core.make_durable(lsn),
            TrxState::Committed(None) => Ok(()),
            _ => Err(Error::invalid("the transaction was not committed")),
        }
    }

    /// Ends a prepared transaction's commit without waiting: its coordinator has logged the decision, and
    /// will repeat it if a crash comes before the redo is durable.
    pub fn commit_decided(&mut self) -> Result<()> {
        match self.state {
            TrxState::Committed(_) => self.core.check_usable(),
            _ => Err(Error::invalid("the transaction was not committed")),
        }
    }

    /// The redo position at which the commit is durable; `None` before the commit, and if there is nothing to
    /// wait for.
    pub fn commit_lsn(&self) -> Option<Lsn> {
        match self.state {
            TrxState::Committed(lsn) => lsn,
            _ => None,
        }
    }

    /// Takes everything back.
    pub fn rollback(mut self) -> Result<()> {
        self.check_open()?;
        self.roll_back_all()
    }

    fn roll_back_all(&mut self) -> Result<()> {
        self.locks().shown().set_rolls_back();
        if let (TrxState::Prepared, Some(undo)) = (self.state, &mut self.undo) {
            // First: what is taken back by half must not be found prepared (UNDO-7).
            let xid = undo.xid().copied();
            let end = undo.write_active(&self.core.undo.env)?;
            self.state = TrxState::Active;
            self.forget_prepared(xid);
            // The coordinator will not be asked again.
            self.core.make_durable(end)?;
        }
        if self.undo.is_none() {
            return self.finish_rollback();
        }
        let left = super::rollback::roll_back_whole(self)?;
        self.end_rollback(&left)
    }

    /// Takes back what recovery found.
    pub(crate) fn roll_back_recovered(mut self) -> Result<()> {
        let left = super::rollback::roll_back_recovered(&mut self)?;
        self.end_rollback(&left)
    }

    /// The same for one from `recovered_loser`. Ended by `stop`, it is left to the next start.
    pub(crate) fn roll_back_in_background(
        mut self,
        stop: &AtomicBool,
        changes_left: &AtomicU64,
    ) -> Result<()> {
        self.locks().shown().set_rolls_back();
        let left = super::rollback::roll_back_in_background(&mut self, stop, changes_left)?;
        self.end_rollback(&left)
    }

    /// RB-2: if changes are left, the transaction stays unfinished, and its undo where the next start will
    /// find it. Of its locks it keeps those that it holds implicitly on what is left.
    fn end_rollback(&mut self, left: &BTreeSet<TableId>) -> Result<()> {
        if left.is_empty() {
            return self.finish_rollback();
        }
        self.state = TrxState::LeftToNextStart;
        self.drop_view();
        self.tables.clear();
        self.read_tables.clear();
        self.claims.clear();
        self.end_statement();
        self.core.locks.release_explicit(self.locks());
        Ok(())
    }

    fn finish_rollback(&mut self) -> Result<()> {
        if let (Some(id), Some(undo)) = (self.id, &mut self.undo) {
            let core = &self.core;
            if undo.has_logs() {
                undo.finish_rollback(&core.undo.env, |joins_history| match joins_history {
                    true => {
                        self.state = TrxState::Ending;
                        core.sys.start_commit(id)
                    }
                    false => TrxNo(0),
                })?;
                wake_purge(core, undo);
            }
            core.sys.abort(id);
            Counters::add(&core.counters.rollbacks, 1);
        }
        self.state = TrxState::RolledBack;
        self.end();
        Ok(())
    }

    /// Gives up view and locks once the outcome is decided.
    fn end(&mut self) {
        self.tell_rows_read();
        self.close_view();
        self.undo = None;
        self.tables.clear();
        self.read_tables.clear();
        self.claims.clear();
        self.changed.clear();
        self.end_statement();
        self.core.locks.release_all(self.locks());
        self.locks().shown().end();
    }
}

/// Purge looks by itself every few milliseconds while there is work. It is woken only if it sleeps while a
/// history grows, or while a large log's pages wait to be returned: a wake-up at each commit would cost more
/// than the purge.
fn wake_purge(core: &Core, undo: &TrxUndo) {
    if undo.segment_history_len() >= PURGE_WAKE_LENGTH || undo.segment_surplus_pages() > 0 {
        core.purge_wanted.notify();
    }
}

impl Transaction {
    /// The handle goes, the prepared transaction stays.
    fn park(&mut self) {
        if let (Some(mut undo), Some(locks)) = (self.undo.take(), self.locks.take()) {
            undo.release_hold();
            locks.shown().set_session(0);
            let mut claims = std::mem::take(&mut self.claims);
            if !undo.has_temporary() {
                // What was only read may be used by others.
                claims.clear();
            }
            self.core.prepared.park(Parked {
                undo,
                locks,
                claims,
                changed: std::mem::take(&mut self.changed),
            });
        }
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        if self.state == TrxState::Prepared {
            return self.park();
        }
        if self.state == TrxState::Ending {
            let id = self.id;
            (self.core).fail(&format!("a thread died while it ended transaction {id:?}"));
            self.drop_view();
            return;
        }
        if self.state == TrxState::Active
            && let Err(e) = self.roll_back_all()
        {
            // Its changes stay, implicitly locked, until recovery takes them back.
            let id = self.id;
            (self.core).fail(&format!("rollback of transaction {id:?} failed: {e}"));
            self.drop_view();
            return;
        }
        // What was left to the next start keeps its locks.
        let has_ended = self.state != TrxState::LeftToNextStart;
        if has_ended
            && let (Some(locks), Some(interrupt)) = (self.locks.take(), self.own_interrupt.take())
        {
            self.core.spare.give(TrxParts {
                locks,
                interrupt,
                scratch: std::mem::take(&mut self.scratch),
                view_place: self.view_place.take(),
            });
        }
    }
}
