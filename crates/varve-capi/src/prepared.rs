//! Two-phase commit: a transaction is prepared under a name, and a coordinator decides how it ends.

use std::ffi::c_void;

use varve::{Error, Transaction, Xid};

use crate::database::varve_db;
use crate::error::guard;
use crate::error::varve_code::{self, VARVE_OK};
use crate::table::varve_table;
use crate::txn::{state, varve_txn, with_running};

/// The name of a prepared transaction, as in X/Open XA. Names are equal if both their parts are.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct varve_xid {
    pub format: i64,
    /// 1 to 64 bytes of `parts`.
    pub global_len: u32,
    /// At most 64 bytes of `parts`, behind the global part.
    pub branch_len: u32,
    pub parts: [u8; 128],
}

impl TryFrom<&varve_xid> for Xid {
    type Error = Error;

    fn try_from(xid: &varve_xid) -> Result<Xid, Error> {
        let (global, branch) = (xid.global_len as usize, xid.branch_len as usize);
        let end = global.saturating_add(branch);
        match xid.parts.get(..end) {
            Some(parts) => Xid::new(xid.format, &parts[..global], &parts[global..]),
            None => Err(Error::invalid(format!(
                "an XA name of {global} and {branch} bytes"
            ))),
        }
    }
}

impl From<&Xid> for varve_xid {
    fn from(xid: &Xid) -> varve_xid {
        let (global, branch) = (xid.global(), xid.branch());
        let mut parts = [0; 128];
        parts[..global.len()].copy_from_slice(global);
        parts[global.len()..global.len() + branch.len()].copy_from_slice(branch);
        varve_xid {
            format: xid.format(),
            global_len: global.len() as u32,
            branch_len: branch.len() as u32,
            parts,
        }
    }
}

/// Promises, as durably as commits are, that the running transaction's commit will not fail. After it only
/// varve_txn_commit and its kin, varve_txn_rollback or varve_txn_detach may be called. Does nothing if the
/// transaction wrote nothing. VARVE_ALREADY_EXISTS if another one is prepared under the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_txn_prepare(
    txn: *const varve_txn,
    xid: *const varve_xid,
) -> varve_code {
    // SAFETY: CAPI-2.
    unsafe { with_running(txn, |t| t.prepare(&Xid::try_from(&*xid)?)) }
}

/// Has the running transaction changed temporary tables? Nobody else can use them until it has ended, even if
/// its session lets it go.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_txn_has_temporary_changes(txn: *const varve_txn) -> bool {
    // SAFETY: CAPI-2.
    let state = unsafe { state(&*txn) };
    (state.current.as_ref()).is_some_and(Transaction::has_temporary_changes)
}

/// The prepared transaction gives up what a restart would not bring back either: its locks on rows that it
/// has not changed, and on gaps. At VARVE_SERIALIZABLE it keeps them. Does nothing if it is not prepared.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_txn_release_searches(txn: *const varve_txn) -> varve_code {
    // SAFETY: CAPI-2.
    unsafe {
        with_running(txn, |t| {
            t.release_searches();
            Ok(())
        })
    }
}

/// Gets hold of what the running transaction's commit needs, so that varve_txn_commit_start neither fails nor
/// waits for a disk. May wait itself.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_txn_hold_commit(txn: *const varve_txn) -> varve_code {
    // SAFETY: CAPI-2.
    unsafe { with_running(txn, Transaction::hold_commit) }
}

/// Commits as far as others see: the changes are visible and the locks are released, but a crash may still
/// undo it. varve_txn_commit or varve_txn_commit_decided ends it. Another thread than the session's own may
/// call this, while that one waits for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_txn_commit_start(txn: *const varve_txn) -> varve_code {
    // SAFETY: CAPI-2.
    unsafe { with_running(txn, Transaction::commit_start) }
}

/// Ends what varve_txn_commit_start began, without waiting: the transaction was prepared, and its coordinator
/// has logged the decision, which it will repeat if there is a crash before the commit is durable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_txn_commit_decided(txn: *const varve_txn) -> varve_code {
    // SAFETY: CAPI-2.
    let (txn, state) = unsafe { (&*txn, state(&*txn)) };
    guard(&txn.db, || {
        if let Some(mut t) = state.current.take() {
            t.commit_decided()?;
        }
        Ok(VARVE_OK)
    })
}

/// Lets a prepared transaction go: the session has no transaction any more, and anybody can decide by
/// varve_db_commit_prepared or varve_db_rollback_prepared. `*out` says whether there was one; a transaction
/// that is not prepared stays.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_txn_detach(txn: *const varve_txn, out: *mut bool) -> varve_code {
    // SAFETY: CAPI-2.
    let (txn, state) = unsafe { (&*txn, state(&*txn)) };
    guard(&txn.db, || {
        let prepared = state.current.take_if(|t| t.xid().is_some());
        // SAFETY: CAPI-2.
        unsafe { out.write(prepared.is_some()) };
        Ok(VARVE_OK)
    })
}

/// Commits a prepared transaction that its session has let go, or that a crash left. VARVE_NOT_FOUND if none
/// is prepared under the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_db_commit_prepared(
    db: *const varve_db,
    xid: *const varve_xid,
) -> varve_code {
    // SAFETY: CAPI-2.
    let (db, xid) = unsafe { (&*db, &*xid) };
    guard(&db.0, || {
        db.0.commit_prepared(&Xid::try_from(xid)?)?;
        Ok(VARVE_OK)
    })
}

/// Rolls it back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_db_rollback_prepared(
    db: *const varve_db,
    xid: *const varve_xid,
) -> varve_code {
    // SAFETY: CAPI-2.
    let (db, xid) = unsafe { (&*db, &*xid) };
    guard(&db.0, || {
        db.0.rollback_prepared(&Xid::try_from(xid)?)?;
        Ok(VARVE_OK)
    })
}

/// Receives one name at a time.
pub type varve_xid_fn = unsafe extern "C" fn(context: *mut c_void, xid: *const varve_xid);

/// Hands the names of all prepared transactions to `each`, in order.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_db_prepared(
    db: *const varve_db,
    each: varve_xid_fn,
    context: *mut c_void,
) -> varve_code {
    // SAFETY: CAPI-2.
    let db = unsafe { &*db };
    guard(&db.0, || {
        for xid in db.0.prepared() {
            // SAFETY: CAPI-2; the name outlives the call.
            unsafe { each(context, &varve_xid::from(&xid)) };
        }
        Ok(VARVE_OK)
    })
}

/// Is told that something has happened.
pub type varve_notify_fn = unsafe extern "C" fn(context: *mut c_void);

struct Notification {
    notify: varve_notify_fn,
    context: *mut c_void,
}

// SAFETY: the caller promises that the function may be called from any thread with this context.
unsafe impl Send for Notification {}

impl Notification {
    fn send(self) {
        // SAFETY: the caller's promise.
        unsafe { (self.notify)(self.context) }
    }
}

/// Has `notify` called once everything that is committed now is durable: at once if it is, otherwise soon,
/// from another thread. Does not wait. It is not called if the database is poisoned or closed before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_db_notify_durable(
    db: *const varve_db,
    notify: varve_notify_fn,
    context: *mut c_void,
) -> varve_code {
    // SAFETY: CAPI-2.
    let db = unsafe { &*db };
    guard(&db.0, || {
        let notification = Notification { notify, context };
        db.0.when_durable(move || notification.send());
        Ok(VARVE_OK)
    })
}

/// Locks a whole table for reading, until the transaction ends: waits for those who changed it, prepared
/// transactions without a session among them. If `exclusive`, it waits also for those who have looked for
/// parents there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_txn_lock_table(
    txn: *const varve_txn,
    table: *const varve_table,
    exclusive: bool,
) -> varve_code {
    // SAFETY: CAPI-2.
    unsafe {
        with_running(txn, |t| match exclusive {
            true => t.lock_table_exclusive(&(*table).table),
            false => t.lock_table_shared(&(*table).table),
        })
    }
}
