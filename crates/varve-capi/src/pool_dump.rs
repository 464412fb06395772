//! The list of the pages in the buffer pool, which is read in again after a restart.

use std::ffi::{c_char, c_void};
use std::ptr;
use std::time::UNIX_EPOCH;

use varve::{PoolDumpOptions, PoolDumpStatus};

use crate::collation::{c_text, text};
use crate::database::varve_db;
use crate::error::guard;
use crate::error::varve_code::{self, VARVE_OK};

/// Whether the buffer pool is filled after a restart as it was before.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct varve_pool_dump_options {
    /// Write the list of pages when the database is closed.
    pub at_shutdown: bool,
    /// Read the pages on the list in, in the background, when it is opened.
    pub at_startup: bool,
    /// How many of the pages in the pool are listed, in percent: the most recently used ones. 1 to 100.
    pub pct: u32,
    /// The list's name in the data directory. Null: varve_buffer_pool.
    pub file: *const c_char,
}

impl Default for varve_pool_dump_options {
    fn default() -> varve_pool_dump_options {
        let d = PoolDumpOptions::default();
        varve_pool_dump_options {
            at_shutdown: d.at_shutdown,
            at_startup: d.at_startup,
            pct: d.pct,
            file: ptr::null(),
        }
    }
}

/// # Safety
/// CAPI-2 holds for the file's name.
pub(crate) unsafe fn pool_dump_options(
    o: &varve_pool_dump_options,
) -> varve::Result<PoolDumpOptions> {
    let mut options = PoolDumpOptions {
        at_shutdown: o.at_shutdown,
        at_startup: o.at_startup,
        pct: o.pct,
        ..PoolDumpOptions::default()
    };
    if !o.file.is_null() {
        // SAFETY: the caller's promise.
        options.file = unsafe { text(o.file, "pool_dump.file")? }.into();
    }
    Ok(options)
}

/// Changes what is done when the database is closed, and by the next two. VARVE_INVALID: a value is out of
/// bounds, nothing was changed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_db_set_pool_dump(
    db: *const varve_db,
    options: *const varve_pool_dump_options,
) -> varve_code {
    // SAFETY: CAPI-2.
    let (db, options) = unsafe { (&*db, &*options) };
    guard(&db.0, || {
        // SAFETY: CAPI-2.
        let options = unsafe { pool_dump_options(options)? };
        db.0.set_pool_dump_options(options)?;
        Ok(VARVE_OK)
    })
}

/// Writes the list now.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_db_pool_dump(db: *const varve_db) -> varve_code {
    // SAFETY: CAPI-2.
    let db = unsafe { &*db };
    guard(&db.0, || db.0.dump_buffer_pool().map(|()| VARVE_OK))
}

/// Begins to read the pages on the list in, in the background.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_db_pool_load(db: *const varve_db) -> varve_code {
    // SAFETY: CAPI-2.
    let db = unsafe { &*db };
    guard(&db.0, || db.0.load_buffer_pool().map(|()| VARVE_OK))
}

/// Ends that, if it is under way.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_db_pool_load_abort(db: *const varve_db) {
    // SAFETY: CAPI-2.
    let db = unsafe { &*db };
    guard(&db.0, || {
        db.0.abort_buffer_pool_load();
        Ok(VARVE_OK)
    });
}

/// Receives what writing the list and reading it in have come to, for a person to read, and when each ended,
/// in seconds since 1970; 0: it has not.
pub type varve_pool_dump_status_fn = unsafe extern "C" fn(
    context: *mut c_void,
    dump: *const c_char,
    dump_ended: u64,
    load: *const c_char,
    load_ended: u64,
);

/// Hands that to `tell`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_db_pool_dump_status(
    db: *const varve_db,
    tell: varve_pool_dump_status_fn,
    context: *mut c_void,
) {
    // SAFETY: CAPI-2.
    let db = unsafe { &*db };
    guard(&db.0, || {
        let (dump, load) = (
            db.0.buffer_pool_dump_status(),
            db.0.buffer_pool_load_status(),
        );
        let c_text = |s: &PoolDumpStatus| c_text(&s.text);
        let ended = |s: &PoolDumpStatus| {
            let since = s.ended.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
            since.map_or(0, |since| since.as_secs())
        };
        let (dump_text, load_text) = (c_text(&dump), c_text(&load));
        let (dumped, loaded) = (ended(&dump), ended(&load));
        // SAFETY: CAPI-2; the texts outlive the call.
        unsafe {
            tell(
                context,
                dump_text.as_ptr(),
                dumped,
                load_text.as_ptr(),
                loaded,
            )
        };
        Ok(VARVE_OK)
    });
}
