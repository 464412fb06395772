//! What the engine counts, by name.

use std::ffi::{CString, c_char, c_void};

use crate::database::{tell, varve_db, varve_text_fn};
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

/// Hands what `SHOW ENGINE STATUS` says beside counters to `each`, by turns a title and its lines: the last deadlock, lock
/// waits, what holds purge back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_db_report(
    db: *const varve_db,
    each: varve_text_fn,
    context: *mut c_void,
) -> varve_code {
    // SAFETY: CAPI-2.
    let db = unsafe { &*db };
    guard(&db.0, || {
        for (title, lines) in db.0.report() {
            // SAFETY: CAPI-2.
            unsafe {
                tell(each, context, title);
                tell(each, context, &lines);
            }
        }
        Ok(VARVE_OK)
    })
}
