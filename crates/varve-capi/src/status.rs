//! What the engine counts, and what it tells about itself.

use std::ffi::{CString, c_char, c_void};

use varve::{MetricKind, PurgeState};

use crate::database::varve_db;
use crate::error::guard;
use crate::error::varve_code::{self, VARVE_OK};

/// Receives one counter. `name` is lower case with underscores.
pub type varve_counter_fn =
    unsafe extern "C" fn(context: *mut c_void, name: *const c_char, value: u64);

/// Hands every counter to `each`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_db_status(
    db: *const varve_db,
    each: varve_counter_fn,
    context: *mut c_void,
) -> varve_code {
    // SAFETY: CAPI-2.
    let db = unsafe { &*db };
    guard(&db.0, || {
        for (name, value) in db.0.status() {
            let name = CString::new(name).unwrap_or_default();
            // SAFETY: CAPI-2; the name outlives the call.
            unsafe { each(context, name.as_ptr(), value) };
        }
        Ok(VARVE_OK)
    })
}

/// How a metric is to be read.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum varve_metric_kind {
    /// How often, or how much, since the database was opened: it never falls.
    VARVE_METRIC_COUNTER = 0,
    /// What is now.
    VARVE_METRIC_VALUE = 1,
}

/// Something that the engine counts.
#[repr(C)]
pub struct varve_metric {
    pub name: *const c_char,
    /// Its name for varve_db_status.
    pub status_name: *const c_char,
    /// The part of the engine that it is about.
    pub subsystem: *const c_char,
    pub comment: *const c_char,
    pub kind: varve_metric_kind,
    pub value: u64,
}

/// Receives one metric.
pub type varve_metric_fn = unsafe extern "C" fn(context: *mut c_void, metric: *const varve_metric);

/// Hands every metric to `each`, those of a subsystem together.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_db_metrics(
    db: *const varve_db,
    each: varve_metric_fn,
    context: *mut c_void,
) -> varve_code {
    // SAFETY: CAPI-2.
    let db = unsafe { &*db };
    guard(&db.0, || {
        for metric in db.0.metrics() {
            let texts = [
                metric.name,
                metric.status_name,
                metric.subsystem,
                metric.comment,
            ];
            let texts = texts.map(|text| CString::new(text).unwrap_or_default());
            let out = varve_metric {
                name: texts[0].as_ptr(),
                status_name: texts[1].as_ptr(),
                subsystem: texts[2].as_ptr(),
                comment: texts[3].as_ptr(),
                kind: match metric.kind {
                    MetricKind::Counter => varve_metric_kind::VARVE_METRIC_COUNTER,
                    MetricKind::Value => varve_metric_kind::VARVE_METRIC_VALUE,
                },
                value: metric.value,
            };
            // SAFETY: CAPI-2; the texts outlive the call.
            unsafe { each(context, &out) };
        }
        Ok(VARVE_OK)
    })
}

/// An undo tablespace, as it is at the moment.
#[repr(C)]
pub struct varve_undo_tablespace {
    /// From 1 on.
    pub number: u32,
    /// Another one after each truncation.
    pub space_id: u32,
    /// Relative to the data directory, unless it is elsewhere.
    pub path: *const c_char,
    /// "active"; "inactive" while it is being emptied; "empty" while it is being truncated.
    pub state: *const c_char,
    pub rollback_segments: u32,
    pub pages_used: u32,
    pub file_bytes: u64,
    /// Undo logs of committed transactions that are not purged yet.
    pub history_length: u64,
    /// Since the database was opened.
    pub truncations: u64,
}

/// Receives one undo tablespace.
pub type varve_undo_tablespace_fn =
    unsafe extern "C" fn(context: *mut c_void, tablespace: *const varve_undo_tablespace);

/// Hands every undo tablespace to `each`, by number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_db_undo_tablespaces(
    db: *const varve_db,
    each: varve_undo_tablespace_fn,
    context: *mut c_void,
) -> varve_code {
    // SAFETY: CAPI-2.
    let db = unsafe { &*db };
    guard(&db.0, || {
        for space in db.0.undo_tablespaces() {
            let path = CString::new(space.path).unwrap_or_default();
            let state = CString::new(space.state.name()).unwrap_or_default();
            let out = varve_undo_tablespace {
                number: space.number as u32,
                space_id: space.space.0,
                path: path.as_ptr(),
                state: state.as_ptr(),
                rollback_segments: space.rollback_segments as u32,
                pages_used: space.used_pages,
                file_bytes: space.file_bytes,
                history_length: space.history_len,
                truncations: space.truncations,
            };
            // SAFETY: CAPI-2; the texts outlive the call.
            unsafe { each(context, &out) };
        }
        Ok(VARVE_OK)
    })
}

/// What purge is doing.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum varve_purge_state {
    /// There is nothing to do, or nothing that may be done yet.
    VARVE_PURGE_IDLE = 0,
    VARVE_PURGE_RUNNING = 1,
    /// A view or an error has stopped it.
    VARVE_PURGE_STOPPED = 2,
}

/// How far purge has come.
#[repr(C)]
pub struct varve_purge {
    pub state: varve_purge_state,
    /// Undo logs of committed transactions that are not purged yet.
    pub history: u64,
    /// Everything that was committed with a lower number is purged.
    pub purged_below: u64,
    /// The view that purge can't go beyond, 0 if there is none, and whose it is (varve_txn_set_session).
    pub view: u64,
    pub session: u64,
    /// Logs a second, as of purge's last batches: those that it works off at the pace that it has, and those
    /// that joined the history meanwhile.
    pub working_off: f64,
    pub joining: f64,
    /// Seconds until the history will have been worked off at these speeds; negative if that is not to be
    /// seen: a view or an error has stopped purge, it is not faster than the history grows, or it has not
    /// worked off anything yet.
    pub seconds_left: f64,
}

/// Says how far purge has come, and when it will be through.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_db_purge(db: *const varve_db, out: *mut varve_purge) -> varve_code {
    // SAFETY: CAPI-2.
    let db = unsafe { &*db };
    guard(&db.0, || {
        let standing = db.0.purge_standing();
        let (view, session) = standing.waits_for.unzip();
        let purge = varve_purge {
            state: match standing.state {
                PurgeState::Idle => varve_purge_state::VARVE_PURGE_IDLE,
                PurgeState::Running => varve_purge_state::VARVE_PURGE_RUNNING,
                PurgeState::Stopped => varve_purge_state::VARVE_PURGE_STOPPED,
            },
            history: standing.history,
            purged_below: standing.purged_below.0,
            view: view.map_or(0, |view| view.0),
            session: session.unwrap_or(0),
            working_off: standing.working_off,
            joining: standing.joining,
            seconds_left: standing.left.map_or(-1.0, |left| left.as_secs_f64()),
        };
        // SAFETY: CAPI-2.
        unsafe { out.write(purge) };
        Ok(VARVE_OK)
    })
}
