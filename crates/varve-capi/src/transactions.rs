//! The transactions that run, who waits for whom, and what sessions have to say of themselves in reports.

use std::ffi::{CStr, CString, c_char, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::time::{Duration, SystemTime};

use varve::{Isolation, LockInfo, SessionText, Transaction, TransactionInfo, TransactionState};

use crate::database::{tell, varve_db, varve_text_fn};
use crate::error::guard;
use crate::error::varve_code::{self, VARVE_OK};
use crate::txn::{state, varve_isolation, varve_txn};

/// What a transaction is doing.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum varve_transaction_state {
    VARVE_TRANSACTION_RUNNING = 0,
    VARVE_TRANSACTION_WAITS = 1,
    VARVE_TRANSACTION_ROLLS_BACK = 2,
    VARVE_TRANSACTION_COMMITS = 3,
}

/// A running transaction, as it is at the moment.
#[repr(C)]
pub struct varve_transaction {
    /// Tells it from all others: its id, or if it has written nothing a number from 2^56 on.
    pub number: u64,
    /// 0: it has written nothing.
    pub id: u64,
    /// As varve_txn_set_session says; 0: nobody's.
    pub session: u64,
    pub state: varve_transaction_state,
    /// Its coordinator decides.
    pub prepared: bool,
    pub isolation: varve_isolation,
    /// Undo records that it has written.
    pub changes: u64,
    /// Locks on rows, on tables, and indexes in which it has locked gaps. Those on rows that it wrote are
    /// among them only if somebody has waited for them.
    pub locks: u64,
    pub rows_locked: u64,
    pub tables_locked: u64,
    /// Memory of its locks, about.
    pub lock_bytes: u64,
    /// varve_lock_info.id of what it waits for, and for how long it has; null: it does not wait.
    pub waits_for: *const c_char,
    pub waited_us: u64,
    /// Its open read view, which sees no commit with a number from this one on; 0: it has none.
    pub view: u64,
    /// Undo logs of committed transactions that purge can't remove before the view is closed, about.
    pub pinned_history: u64,
    /// The pages of undo that they fill, about.
    pub pinned_undo_bytes: u64,
    /// Versions in the history store that the view needs, and their bytes.
    pub pinned_versions: u64,
    pub pinned_bytes: u64,
}

/// Receives one transaction.
pub type varve_transaction_fn =
    unsafe extern "C" fn(context: *mut c_void, transaction: *const varve_transaction);

/// A lock that somebody waits for, or is in the way with.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct varve_lock_info {
    /// Tells it from all others.
    pub id: *const c_char,
    /// varve_transaction.number and session of whose it is.
    pub transaction: u64,
    pub session: u64,
    /// "S", "X", "S,GAP", "X,GAP", "IS", "IX" or "AUTO_INC".
    pub mode: *const c_char,
    /// The table's name.
    pub table: *const c_char,
    /// The table's tablespace; 0 if that is not known.
    pub space: u32,
    /// The index, and the values of the key that is locked in it; null: it is the table that is locked.
    pub index: *const c_char,
    pub key: *const c_char,
}

/// Receives a lock that is waited for, and one that is in its way; null: it is granted at this moment.
pub type varve_lock_wait_fn = unsafe extern "C" fn(
    context: *mut c_void,
    wanted: *const varve_lock_info,
    blocking: *const varve_lock_info,
);

/// What a session has to say of itself among the lines about its transaction. The texts need not outlive the
/// next call, nor that of the engine.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct varve_session_text {
    /// For so long its transaction runs.
    pub active_seconds: u64,
    /// What it is doing, in a word or two; may be empty.
    pub operation: *const c_char,
    /// Whole lines, which come before and after that about its locks.
    pub before: *const c_char,
    pub after: *const c_char,
}

/// Says what there is to say of a session. False: nothing.
pub type varve_session_fn =
    unsafe extern "C" fn(context: *mut c_void, session: u64, out: *mut varve_session_text) -> bool;

fn c_text(text: impl Into<Vec<u8>>) -> CString {
    CString::new(text).unwrap_or_default()
}

fn pointer(text: &Option<CString>) -> *const c_char {
    text.as_ref().map_or(ptr::null(), |text| text.as_ptr())
}

/// Whose this session's transactions are, for lists of transactions: a number other than 0 that the caller
/// chooses. From its next transaction on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_txn_set_session(txn: *const varve_txn, session: u64) {
    // SAFETY: CAPI-2.
    unsafe { state(&*txn) }.session = session;
}

/// How many microseconds this session's transaction has waited for locks since this was asked for last, or
/// since it began.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_txn_take_lock_wait_us(txn: *const varve_txn) -> u64 {
    // SAFETY: CAPI-2.
    let state = unsafe { state(&*txn) };
    let waited = state.current.as_mut().map(Transaction::take_lock_wait);
    waited.map_or(0, |waited| waited.as_micros() as u64)
}

/// Hands every running transaction to `each`, those of the engine itself included.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_db_transactions(
    db: *const varve_db,
    each: varve_transaction_fn,
    context: *mut c_void,
) -> varve_code {
    // SAFETY: CAPI-2.
    let db = unsafe { &*db };
    guard(&db.0, || {
        for transaction in db.0.transactions() {
            // SAFETY: CAPI-2.
            unsafe { tell_transaction(each, context, transaction) };
        }
        Ok(VARVE_OK)
    })
}

/// # Safety
/// CAPI-2 holds for `each` and its context.
unsafe fn tell_transaction(
    each: varve_transaction_fn,
    context: *mut c_void,
    transaction: TransactionInfo,
) {
    let (waits_for, waited) = transaction.waits.unzip();
    let waits_for = waits_for.map(c_text);
    let view = transaction.view;
    let out = varve_transaction {
        number: transaction.number,
        id: transaction.id.map_or(0, |id| id.0),
        session: transaction.session,
        state: match transaction.state {
            TransactionState::Running => varve_transaction_state::VARVE_TRANSACTION_RUNNING,
            TransactionState::LockWait => varve_transaction_state::VARVE_TRANSACTION_WAITS,
            TransactionState::RollingBack => varve_transaction_state::VARVE_TRANSACTION_ROLLS_BACK,
            TransactionState::Committing => varve_transaction_state::VARVE_TRANSACTION_COMMITS,
        },
        prepared: transaction.prepared,
        isolation: match transaction.isolation {
            Isolation::ReadUncommitted => varve_isolation::VARVE_READ_UNCOMMITTED,
            Isolation::ReadCommitted => varve_isolation::VARVE_READ_COMMITTED,
            Isolation::RepeatableRead => varve_isolation::VARVE_REPEATABLE_READ,
            Isolation::Serializable => varve_isolation::VARVE_SERIALIZABLE,
        },
        changes: transaction.changes,
        locks: transaction.locks,
        rows_locked: transaction.rows_locked,
        tables_locked: transaction.tables_locked,
        lock_bytes: transaction.lock_bytes,
        waits_for: pointer(&waits_for),
        waited_us: waited.map_or(0, |waited| waited.as_micros() as u64),
        view: view.map_or(0, |view| view.number.0),
        pinned_history: view.map_or(0, |view| view.pinned_history),
        pinned_undo_bytes: view.map_or(0, |view| view.pinned_undo_bytes),
        pinned_versions: view.map_or(0, |view| view.pinned_versions),
        pinned_bytes: view.map_or(0, |view| view.pinned_bytes),
    };
    // SAFETY: the caller's promise; the text outlives the call.
    unsafe { each(context, &out) };
}

/// Calls `f` with the lock as C has it.
fn with_lock<R>(lock: &LockInfo, f: impl FnOnce(&varve_lock_info) -> R) -> R {
    let [id, mode, table] = [&lock.id[..], lock.mode, &lock.table].map(c_text);
    let [index, key] = [&lock.index, &lock.key].map(|text| text.as_deref().map(c_text));
    f(&varve_lock_info {
        id: id.as_ptr(),
        transaction: lock.transaction,
        session: lock.session,
        mode: mode.as_ptr(),
        table: table.as_ptr(),
        space: lock.space.map_or(0, |space| space.0),
        index: pointer(&index),
        key: pointer(&key),
    })
}

/// Hands each lock that is waited for to `each`, once for every other one that is in its way: those that are
/// held, and if none is held, those that were asked for before it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_db_lock_waits(
    db: *const varve_db,
    each: varve_lock_wait_fn,
    context: *mut c_void,
) -> varve_code {
    // SAFETY: CAPI-2.
    let db = unsafe { &*db };
    guard(&db.0, || {
        for wait in db.0.lock_waits() {
            with_lock(&wait.wanted, |wanted| {
                // SAFETY: CAPI-2; the texts outlive the calls.
                let tell = |blocking| unsafe { each(context, wanted, blocking) };
                if wait.blocking.is_empty() {
                    tell(ptr::null());
                }
                for blocking in &wait.blocking {
                    with_lock(blocking, |blocking| tell(blocking));
                }
            });
        }
        Ok(VARVE_OK)
    })
}

/// What the caller says of a session.
///
/// # Safety
/// CAPI-2 holds for `session` and its context, and the caller of this is not gone.
unsafe fn text_of(
    session: varve_session_fn,
    context: *mut c_void,
    number: u64,
) -> Option<SessionText> {
    let mut out = MaybeUninit::uninit();
    // SAFETY: the caller's promise. It fills in what it says true about.
    let said: varve_session_text = unsafe {
        if !session(context, number, out.as_mut_ptr()) {
            return None;
        }
        out.assume_init()
    };
    let text = |text| {
        // SAFETY: the same.
        let text = unsafe { CStr::from_ptr(text) };
        text.to_string_lossy().into_owned()
    };
    Some(SessionText {
        active: Duration::from_secs(said.active_seconds),
        operation: text(said.operation),
        before: text(said.before),
        after: text(said.after),
    })
}

/// Hands what `SHOW ENGINE STATUS` says beside counters to `each`, by turns a title and its lines: the last
/// deadlock, lock waits, what holds purge back, each transaction. `session` is asked about the sessions of
/// transactions, with a context of its own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_db_report(
    db: *const varve_db,
    session: varve_session_fn,
    sessions: *mut c_void,
    each: varve_text_fn,
    context: *mut c_void,
) -> varve_code {
    // SAFETY: CAPI-2.
    let db = unsafe { &*db };
    guard(&db.0, || {
        // SAFETY: CAPI-2.
        let describe = |number| unsafe { text_of(session, sessions, number) };
        for (title, lines) in db.0.report_with(describe) {
            // SAFETY: CAPI-2.
            unsafe {
                tell(each, context, title);
                tell(each, context, &lines);
            }
        }
        Ok(VARVE_OK)
    })
}

/// When the last deadlock was found that the report tells, in seconds since 1970; 0: there was none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_db_last_deadlock(db: *const varve_db, out: *mut u64) -> varve_code {
    // SAFETY: CAPI-2.
    let db = unsafe { &*db };
    guard(&db.0, || {
        let since_1970 = |when: SystemTime| when.duration_since(SystemTime::UNIX_EPOCH).ok();
        let when = db.0.last_deadlock().and_then(since_1970);
        // SAFETY: CAPI-2.
        unsafe { out.write(when.unwrap_or_default().as_secs()) };
        Ok(VARVE_OK)
    })
}

/// Has the reports of deadlocks say what the sessions of their members were doing. To be called by who got
/// VARVE_DEADLOCK, before it rolls back: until then the others wait for it. `each` gets those reports, of the
/// newest 64 deadlocks if nobody has asked for long; NULL: nobody wants them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_db_describe_deadlocks(
    db: *const varve_db,
    session: varve_session_fn,
    sessions: *mut c_void,
    each: Option<unsafe extern "C" fn(context: *mut c_void, text: *const c_char)>,
    context: *mut c_void,
) -> varve_code {
    // SAFETY: CAPI-2.
    let db = unsafe { &*db };
    guard(&db.0, || {
        // SAFETY: CAPI-2.
        let describe = |number| unsafe { text_of(session, sessions, number) };
        let reports = db.0.describe_deadlocks(describe);
        if let Some(each) = each {
            for text in reports {
                // SAFETY: CAPI-2.
                unsafe { tell(each, context, &text) };
            }
        }
        Ok(VARVE_OK)
    })
}
