//! `varve_txn`: a session's transactions, one after the other, and the row changes in them.

use std::cell::UnsafeCell;
use std::ffi::c_char;
use std::mem::MaybeUninit;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use varve::{
    AutoIncLock, Database, Datum, Error, Isolation, OnDuplicate, RedefinitionWaits, Savepoint,
    Transaction, ValueSource, Watch,
};

use crate::choice::{choice, chosen};
use crate::collation::text;
use crate::cursor::varve_cursor;
use crate::database::varve_db;
use crate::error::guard;
use crate::error::varve_code::{self, VARVE_OK, VARVE_UNCHANGED};
use crate::table::varve_table;
use crate::value::{slice_of, varve_value, with_datums};
use crate::value_source::varve_value_source;

/// A session: it has at most one transaction at a time, and can be used for many.
pub struct varve_txn {
    pub(crate) db: Database,
    locking: varve_table_locks,
    /// Interrupts the session's transactions, unless `State::interrupt` is another's. Another thread may look
    /// at nothing else.
    pub(crate) interrupt: Arc<AtomicBool>,
    /// Only the session's own thread comes here (varve.h, first rule).
    state: UnsafeCell<State>,
}

pub(crate) struct State {
    pub(crate) current: Option<Transaction>,
    lock_wait_timeout: Option<Duration>,
    /// Those of the transaction that can be gone back to, in their order. Another number might be in the
    /// middle of a row's change.
    savepoints: Vec<Savepoint>,
    foreign_key_checks: bool,
    values: Option<Arc<dyn ValueSource>>,
    /// What interrupts the transactions that begin from now on.
    interrupt: Arc<AtomicBool>,
    /// Of the same ones.
    watch: Option<Watch>,
    sort_directory: Option<PathBuf>,
    /// Whose they are, for lists of transactions; 0: nobody has said.
    pub(crate) session: u64,
}

impl State {
    /// Is told how far calls that take long have come.
    pub(crate) fn watch(&mut self, watch: Watch) {
        if let Some(t) = &mut self.current {
            t.set_watch(Some(watch.clone()));
        }
        self.watch = Some(watch);
    }

    fn running(&mut self) -> varve::Result<&mut Transaction> {
        (self.current.as_mut()).ok_or_else(|| Error::invalid("no transaction has begun"))
    }
}

#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum varve_isolation {
    VARVE_READ_UNCOMMITTED = 0,
    VARVE_READ_COMMITTED = 1,
    VARVE_REPEATABLE_READ = 2,
    VARVE_SERIALIZABLE = 3,
}

choice!(
    varve_isolation: VARVE_READ_UNCOMMITTED, VARVE_READ_COMMITTED, VARVE_REPEATABLE_READ, VARVE_SERIALIZABLE,
);
choice!(varve_table_locks: VARVE_TABLES_LOCKED_BY_ENGINE, VARVE_TABLES_LOCKED_BY_CALLER);
choice!(varve_on_duplicate: VARVE_DUPLICATE_SHARE, VARVE_DUPLICATE_LOCK);
choice!(
    varve_auto_increment_lock: VARVE_COUNTER_NOT_LOCKED, VARVE_COUNTER_AFTER_OTHERS, VARVE_COUNTER_LOCKED,
);

impl From<varve_isolation> for Isolation {
    fn from(isolation: varve_isolation) -> Isolation {
        match isolation {
            varve_isolation::VARVE_READ_UNCOMMITTED => Isolation::ReadUncommitted,
            varve_isolation::VARVE_READ_COMMITTED => Isolation::ReadCommitted,
            varve_isolation::VARVE_REPEATABLE_READ => Isolation::RepeatableRead,
            varve_isolation::VARVE_SERIALIZABLE => Isolation::Serializable,
        }
    }
}

/// Who sees to it that a table does not change its definition under a transaction that uses it.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum varve_table_locks {
    /// The engine: transactions lock the tables that they use.
    VARVE_TABLES_LOCKED_BY_ENGINE = 0,
    /// The caller, who has locks of its own.
    VARVE_TABLES_LOCKED_BY_CALLER = 1,
}

/// What an insert does with a row that has its key already.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum varve_on_duplicate {
    /// Lock it shared, and fail.
    VARVE_DUPLICATE_SHARE = 0,
    /// Lock it exclusively, and fail: the caller is going to replace or update it.
    VARVE_DUPLICATE_LOCK = 1,
}

/// Whether a statement keeps others from drawing values of a table's counter between its own.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum varve_auto_increment_lock {
    /// It does not, and draws between those of others.
    VARVE_COUNTER_NOT_LOCKED = 0,
    /// It draws all its values at once, but not between those of a statement that locks the counter.
    VARVE_COUNTER_AFTER_OTHERS = 1,
    /// It locks the counter until it ends.
    VARVE_COUNTER_LOCKED = 2,
}

impl From<varve_auto_increment_lock> for AutoIncLock {
    fn from(lock: varve_auto_increment_lock) -> AutoIncLock {
        match lock {
            varve_auto_increment_lock::VARVE_COUNTER_NOT_LOCKED => AutoIncLock::None,
            varve_auto_increment_lock::VARVE_COUNTER_AFTER_OTHERS => AutoIncLock::AfterOthers,
            varve_auto_increment_lock::VARVE_COUNTER_LOCKED => AutoIncLock::Statement,
        }
    }
}

/// Takes `n` consecutive values from a table's counter for the running statement; `first` gets the first of
/// them. Values are not given back by a rollback, and never given twice, also after a crash.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_auto_increment_reserve(
    txn: *const varve_txn,
    table: *const varve_table,
    n: u64,
    lock: MaybeUninit<varve_auto_increment_lock>,
    first: *mut u64,
) -> varve_code {
    // SAFETY: CAPI-2.
    unsafe {
        with_running(txn, |t| {
            let lock = chosen("lock", lock)?;
            first.write(t.auto_increment_reserve(&(*table).table, n, lock.into())?);
            Ok(())
        })
    }
}

/// The session's running transaction.
///
/// # Safety
/// Only the session's own thread calls this, and keeps no reference from an earlier call.
#[allow(clippy::mut_from_ref)]
pub(crate) unsafe fn state(txn: &varve_txn) -> &mut State {
    // SAFETY: the caller's promise.
    unsafe { &mut *txn.state.get() }
}

/// As `state`, and the transaction in it.
///
/// # Safety
/// As for `state`.
#[allow(clippy::mut_from_ref)]
pub(crate) unsafe fn running(txn: &varve_txn) -> varve::Result<&mut Transaction> {
    // SAFETY: the caller's promise.
    unsafe { state(txn) }.running()
}

/// Does something with the session's running transaction.
///
/// # Safety
/// CAPI-2 holds for `txn`; the rest as for `state`.
#[inline]
pub(crate) unsafe fn with_running(
    txn: *const varve_txn,
    body: impl FnOnce(&mut Transaction) -> varve::Result<()>,
) -> varve_code {
    // SAFETY: the caller's promise.
    let txn = unsafe { &*txn };
    guard(&txn.db, || {
        // SAFETY: the caller's promise.
        body(unsafe { running(txn)? })?;
        Ok(VARVE_OK)
    })
}

/// Opens a session.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_txn_open(
    db: *const varve_db,
    locking: MaybeUninit<varve_table_locks>,
    out: *mut *mut varve_txn,
) -> varve_code {
    // SAFETY: CAPI-2.
    let db = unsafe { &*db };
    guard(&db.0, || {
        let interrupt = Arc::new(AtomicBool::new(false));
        let txn = varve_txn {
            db: db.0.clone(),
            locking: chosen("locking", locking)?,
            interrupt: interrupt.clone(),
            state: UnsafeCell::new(State {
                current: None,
                lock_wait_timeout: None,
                savepoints: Vec::new(),
                foreign_key_checks: true,
                values: None,
                interrupt,
                watch: None,
                sort_directory: None,
                session: 0,
            }),
        };
        // SAFETY: CAPI-2.
        unsafe { out.write(Box::into_raw(Box::new(txn))) };
        Ok(VARVE_OK)
    })
}

/// Closes a session; a transaction that has not ended is rolled back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_txn_close(txn: *mut varve_txn) {
    // SAFETY: CAPI-2; the box came from varve_txn_open.
    let txn = unsafe { Box::from_raw(txn) };
    let db = txn.db.clone();
    guard(&db, || {
        if let Some(t) = txn.state.into_inner().current {
            t.rollback()?;
        }
        Ok(VARVE_OK)
    });
}

/// How the session's transactions wait, where they sort, and who watches them.
///
/// # Safety
/// As of `state`.
pub(crate) unsafe fn waits_of(txn: &varve_txn) -> RedefinitionWaits {
    // SAFETY: the caller's promise.
    let state = unsafe { state(txn) };
    RedefinitionWaits {
        interrupt: Some(txn.interrupt.clone()),
        lock_wait_timeout: state.lock_wait_timeout,
        watch: state.watch.clone(),
        sort_directory: state.sort_directory.clone(),
    }
}

/// Begins a transaction. It costs next to nothing until it reads or writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_txn_begin(
    txn: *const varve_txn,
    isolation: MaybeUninit<varve_isolation>,
) -> varve_code {
    // SAFETY: CAPI-2.
    let (txn, state) = unsafe { (&*txn, state(&*txn)) };
    guard(&txn.db, || {
        if state.current.is_some() {
            return Err(Error::invalid("a transaction has begun already"));
        }
        let mut t = txn.db.begin(chosen("isolation", isolation)?.into());
        t.set_interrupt(state.interrupt.clone());
        t.set_session(state.session);
        if txn.locking == varve_table_locks::VARVE_TABLES_LOCKED_BY_CALLER {
            t.trust_metadata_locks();
        }
        if let Some(timeout) = state.lock_wait_timeout {
            t.set_lock_wait_timeout(timeout);
        }
        t.set_foreign_key_checks(state.foreign_key_checks);
        t.set_watch(state.watch.clone());
        t.set_sort_directory(state.sort_directory.clone());
        if let Some(values) = &state.values {
            t.set_value_source(values.clone());
        }
        state.savepoints.clear();
        state.current = Some(t);
        Ok(VARVE_OK)
    })
}

/// Has a transaction begun and not ended?
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_txn_is_open(txn: *const varve_txn) -> bool {
    // SAFETY: CAPI-2.
    unsafe { state(&*txn) }.current.is_some()
}

/// The transaction's id, 0 as long as it has written nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_txn_id(txn: *const varve_txn) -> u64 {
    // SAFETY: CAPI-2.
    let state = unsafe { state(&*txn) };
    let id = state.current.as_ref().and_then(Transaction::id);
    id.map_or(0, |id| id.0)
}

/// Opens the transaction's read view now, instead of at its first read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_txn_take_snapshot(txn: *const varve_txn) -> varve_code {
    // SAFETY: CAPI-2.
    unsafe {
        with_running(txn, |t| {
            t.take_snapshot();
            Ok(())
        })
    }
}

/// A statement begins: what follows can be undone by varve_txn_rollback_statement, and under READ COMMITTED
/// it gets a read view of its own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_txn_start_statement(txn: *const varve_txn) -> varve_code {
    // SAFETY: CAPI-2.
    unsafe {
        with_running(txn, |t| {
            t.start_statement();
            Ok(())
        })
    }
}

/// A statement has ended well: it gives up the locks on tables' counters that it took.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_txn_end_statement(txn: *const varve_txn) -> varve_code {
    // SAFETY: CAPI-2.
    let (txn, state) = unsafe { (&*txn, state(&*txn)) };
    guard(&txn.db, || {
        if let Some(t) = &mut state.current {
            t.end_statement();
        }
        Ok(VARVE_OK)
    })
}

/// Undoes what the statement did; nothing if no transaction is running. Its locks on rows and gaps stay.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_txn_rollback_statement(txn: *const varve_txn) -> varve_code {
    // SAFETY: CAPI-2.
    let (txn, state) = unsafe { (&*txn, state(&*txn)) };
    guard(&txn.db, || {
        if let Some(t) = &mut state.current {
            t.rollback_statement()?;
            let now = t.savepoint();
            state.savepoints.retain(|savepoint| *savepoint <= now);
        }
        Ok(VARVE_OK)
    })
}

/// Marks a point that varve_txn_rollback_to can go back to, as often as wanted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_txn_savepoint(txn: *const varve_txn, out: *mut u64) -> varve_code {
    // SAFETY: CAPI-2.
    let (txn, state) = unsafe { (&*txn, state(&*txn)) };
    guard(&txn.db, || {
        let savepoint = state.running()?.savepoint();
        if state.savepoints.last() != Some(&savepoint) {
            state.savepoints.push(savepoint);
        }
        // SAFETY: CAPI-2.
        unsafe { out.write(savepoint.0) };
        Ok(VARVE_OK)
    })
}

/// Undoes everything since the savepoint. Locks stay. One that the transaction has not got, or that it has
/// gone back behind, is VARVE_INVALID.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_txn_rollback_to(
    txn: *const varve_txn,
    savepoint: u64,
) -> varve_code {
    // SAFETY: CAPI-2.
    let (txn, state) = unsafe { (&*txn, state(&*txn)) };
    guard(&txn.db, || {
        let Ok(at) = state.savepoints.binary_search(&Savepoint(savepoint)) else {
            state.running()?;
            return Err(Error::invalid(format!(
                "{savepoint} is no savepoint of the transaction"
            )));
        };
        state.running()?.rollback_to(Savepoint(savepoint))?;
        state.savepoints.truncate(at + 1);
        Ok(VARVE_OK)
    })
}

/// Whether others may have to wait for the transaction: it has written, or holds a lock. False if none is
/// running.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_txn_holds_locks(txn: *const varve_txn) -> bool {
    // SAFETY: CAPI-2.
    let state = unsafe { state(&*txn) };
    let running = state.current.as_ref();
    running.is_some_and(Transaction::holds_locks)
}

/// Commits, or ends what varve_txn_commit_start began. Returns when the commit is as durable as the database
/// is set to make it. On an error the transaction has ended too: the database is poisoned, and recovery
/// decides.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_txn_commit(txn: *const varve_txn) -> varve_code {
    // SAFETY: CAPI-2.
    let (txn, state) = unsafe { (&*txn, state(&*txn)) };
    guard(&txn.db, || {
        if let Some(mut t) = state.current.take() {
            if !t.is_committed() {
                t.commit_start()?;
            }
            t.commit_wait()?;
        }
        Ok(VARVE_OK)
    })
}

/// Rolls back; nothing if no transaction is running.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_txn_rollback(txn: *const varve_txn) -> varve_code {
    // SAFETY: CAPI-2.
    let (txn, state) = unsafe { (&*txn, state(&*txn)) };
    guard(&txn.db, || {
        if let Some(t) = state.current.take() {
            t.rollback()?;
        }
        Ok(VARVE_OK)
    })
}

/// Drops a temporary table that the running transaction may have used; it goes on. VARVE_NOT_FOUND if there
/// is no temporary table of that name. Handles and cursors of the table must be closed, not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_txn_drop_temporary(
    txn: *const varve_txn,
    name: *const c_char,
) -> varve_code {
    // SAFETY: CAPI-2.
    let txn = unsafe { &*txn };
    guard(&txn.db, || {
        // SAFETY: CAPI-2.
        let (name, trx) = unsafe { (text(name, "the table's name")?, running(txn)?) };
        let table = txn.db.table(name)?;
        if !table.is_temporary() {
            return Err(Error::not_found(format!("temporary table {name}")));
        }
        trx.drop_temporary_table(&table)?;
        Ok(VARVE_OK)
    })
}

/// The running transaction did something elsewhere that can't be taken back, or did not: if it runs into a
/// deadlock, others are rolled back rather than one that did. Nothing if none is running.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_txn_set_spared(txn: *const varve_txn, spared: bool) {
    // SAFETY: CAPI-2.
    let state = unsafe { state(&*txn) };
    if let Some(t) = &mut state.current {
        t.set_spared(spared);
    }
}

/// How long this session waits for a lock; 0 does not wait at all.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_txn_set_lock_wait_timeout(txn: *const varve_txn, ms: u64) {
    // SAFETY: CAPI-2.
    let state = unsafe { state(&*txn) };
    let timeout = Duration::from_millis(ms);
    state.lock_wait_timeout = Some(timeout);
    if let Some(t) = &mut state.current {
        t.set_lock_wait_timeout(timeout);
    }
}

/// Where what this session loads, and what it prepares to redefine, is sorted if memory is not enough: a
/// directory, in which there is a file without a name as long as that takes. Null: where
/// varve_options.sort_directory says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_txn_set_sort_directory(
    txn: *const varve_txn,
    directory: *const c_char,
) -> varve_code {
    // SAFETY: CAPI-2.
    let (txn, state) = unsafe { (&*txn, state(&*txn)) };
    guard(&txn.db, || {
        let directory: Option<PathBuf> = match directory.is_null() {
            true => None,
            // SAFETY: CAPI-2.
            false => Some(unsafe { text(directory, "the directory")? }.into()),
        };
        if let Some(t) = &mut state.current {
            t.set_sort_directory(directory.clone());
        }
        state.sort_directory = directory;
        Ok(VARVE_OK)
    })
}

/// Whether this session's changes are checked by foreign keys, and followed by children. They are unless this
/// was called. What is changed while they are not is not looked at later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_txn_set_foreign_key_checks(txn: *const varve_txn, on: bool) {
    // SAFETY: CAPI-2.
    let state = unsafe { state(&*txn) };
    state.foreign_key_checks = on;
    if let Some(t) = &mut state.current {
        t.set_foreign_key_checks(on);
    }
}

/// Sets whom to ask for values when a foreign key changes a row of a table that has computed columns or
/// history. Without one such a change is VARVE_UNSUPPORTED. `source` is copied; what it points to stays until
/// the session is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_txn_set_value_source(
    txn: *const varve_txn,
    source: *const varve_value_source,
) {
    // SAFETY: CAPI-2.
    let (state, source) = unsafe { (state(&*txn), *source) };
    let values: Arc<dyn ValueSource> = Arc::new(source);
    state.values = Some(values.clone());
    if let Some(t) = &mut state.current {
        t.set_value_source(values);
    }
}

/// Makes this session's waits, searches and whatever else may take long, those of now and later ones, end
/// with VARVE_INTERRUPTED, until varve_txn_clear_interrupt. Rollback and commit go on. From any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_txn_interrupt(txn: *const varve_txn) {
    // SAFETY: CAPI-2. Nothing is touched but what any thread may touch.
    let txn = unsafe { &*txn };
    guard(&txn.db, || {
        // Release: pairs with the waiter's Acquire load after it was woken.
        txn.interrupt.store(true, Ordering::Release);
        txn.db.wake_interrupted();
        Ok(VARVE_OK)
    });
}

/// Lets this session's transactions go on again. Whoever looks after this call sees what the interrupter had
/// done before an interrupt that is cleared.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_txn_clear_interrupt(txn: *const varve_txn) {
    // SAFETY: CAPI-2.
    let txn = unsafe { &*txn };
    // A write would take the line from whoever reads it, for nothing nearly always.
    if txn.interrupt.load(Ordering::Relaxed) {
        // Acquire: pairs with the Release store of the interrupt that is cleared.
        txn.interrupt.swap(false, Ordering::AcqRel);
    }
}

/// From its next transaction on `txn` is interrupted when `by` is, and no more by calls about `txn` itself:
/// for a session that does something on behalf of another. Either may be closed before the other.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_txn_interrupt_with(txn: *const varve_txn, by: *const varve_txn) {
    // SAFETY: CAPI-2.
    let (state, by) = unsafe { (state(&*txn), &*by) };
    state.interrupt = by.interrupt.clone();
}

/// Locks a search key exclusively, whether or not any row has it, against those who do the same: so a caller
/// can keep keys unique that the engine does not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_lock_key(
    txn: *const varve_txn,
    table: *const varve_table,
    index: u32,
    key: *const varve_value,
    n: u32,
) -> varve_code {
    // SAFETY: CAPI-2.
    unsafe {
        let (table, index) = (&(*table).table, index as usize);
        with_running(txn, |t| {
            with_datums(key, n, |key| t.lock_key(table, index, key))
        })
    }
}

/// Inserts a row: `n` values, one for each column, in the table's order.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_insert(
    txn: *const varve_txn,
    table: *const varve_table,
    row: *const varve_value,
    n: u32,
    on_duplicate: MaybeUninit<varve_on_duplicate>,
) -> varve_code {
    // SAFETY: CAPI-2.
    unsafe {
        let table = &(*table).table;
        with_running(txn, |t| {
            let on_duplicate = match chosen("on_duplicate", on_duplicate)? {
                varve_on_duplicate::VARVE_DUPLICATE_SHARE => OnDuplicate::LockShared,
                varve_on_duplicate::VARVE_DUPLICATE_LOCK => OnDuplicate::LockExclusive,
            };
            with_datums(row, n, |row| t.insert_or(table, row, on_duplicate))
        })
    }
}

/// Inserts `n_rows` rows of `n` values each, one row's behind the other's, which costs less than one call for
/// each. If one can't be inserted, none is. A row with the same key is locked as VARVE_DUPLICATE_SHARE says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_insert_many(
    txn: *const varve_txn,
    table: *const varve_table,
    rows: *const varve_value,
    n: u32,
    n_rows: u32,
) -> varve_code {
    // SAFETY: CAPI-2.
    unsafe {
        let n = n as usize;
        with_running(txn, |t| {
            let values = slice_of(rows, n * n_rows as usize);
            let datums: Vec<Datum<'_>> = values.iter().map(|v| v.datum()).collect();
            let rows: Vec<&[Datum<'_>]> = (0..n_rows as usize)
                .map(|i| &datums[i * n..][..n])
                .collect();
            t.insert_many(&(*table).table, &rows)
        })
    }
}

/// Gives the row that the cursor stands on new values: `n`, one for each column. They may be the cursor's
/// own. VARVE_UNCHANGED: it has these values already, byte by byte, and nothing was written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_update(
    txn: *const varve_txn,
    cursor: *const varve_cursor,
    row: *const varve_value,
    n: u32,
) -> varve_code {
    // SAFETY: CAPI-2.
    let (txn, cursor) = unsafe { (&*txn, &*cursor) };
    // SAFETY: CAPI-2.
    guard(&txn.db, || unsafe {
        let t = running(txn)?;
        match with_datums(row, n, |row| t.update(&cursor.table, &cursor.cursor, row))? {
            true => Ok(VARVE_OK),
            false => Ok(VARVE_UNCHANGED),
        }
    })
}

/// Deletes the row that the cursor stands on. The cursor stays there and can go on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_delete(
    txn: *const varve_txn,
    cursor: *const varve_cursor,
) -> varve_code {
    // SAFETY: CAPI-2.
    unsafe {
        let cursor = &*cursor;
        with_running(txn, |t| t.delete(&cursor.table, &cursor.cursor))
    }
}
