//! The monitor: metrics and a live page over HTTP.

use std::ffi::{CString, c_char};

use ::varve_monitor::{Monitor, MonitorOptions, token_from_file};

use crate::collation::{c_text, text};
use crate::database::varve_db;
use crate::error::guard;
use crate::error::varve_code::{self, VARVE_OK};

/// Where a monitor listens, and for whom.
#[repr(C)]
pub struct varve_monitor_options {
    /// A loopback address with a port: `127.0.0.1:3480`, `[::1]:3480`. Port 0: one that is free.
    pub address: *const c_char,
    /// Optional. A file with the token that everybody has to show, 16 to 256 letters, digits, `-`, `.`, `_`
    /// and `~`, which not everybody may read. Without it everybody on this machine may look.
    pub token_file: *const c_char,
}

/// A monitor that runs.
pub struct varve_monitor {
    monitor: Monitor,
    url: CString,
}

/// Starts a monitor of the database, in a thread of its own. VARVE_INVALID for an address that can't be used
/// or a file without a usable token, VARVE_IO if the port is taken or the file can't be read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_monitor_start(
    db: *const varve_db,
    options: *const varve_monitor_options,
    out: *mut *mut varve_monitor,
) -> varve_code {
    // SAFETY: CAPI-2.
    let (db, options) = unsafe { (&*db, &*options) };
    guard(&db.0, || {
        // SAFETY: CAPI-2.
        let mut given = MonitorOptions::new(unsafe { text(options.address, "address")? });
        if !options.token_file.is_null() {
            // SAFETY: CAPI-2.
            let file = unsafe { text(options.token_file, "token_file")? };
            given.token = Some(token_from_file(file)?);
        }
        let monitor = Monitor::start(&db.0, given)?;
        let url = c_text(&monitor.url());
        let monitor = Box::new(varve_monitor { monitor, url });
        // SAFETY: CAPI-2.
        unsafe { out.write(Box::into_raw(monitor)) };
        Ok(VARVE_OK)
    })
}

/// Where the page is. Valid until the monitor is stopped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_monitor_url(monitor: *const varve_monitor) -> *const c_char {
    // SAFETY: CAPI-2.
    let monitor = unsafe { &*monitor };
    monitor.url.as_ptr()
}

/// Stops it: before the database is closed. Nothing of it is left when this returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_monitor_stop(monitor: *mut varve_monitor) {
    // SAFETY: CAPI-2; the box came from varve_monitor_start.
    let monitor = unsafe { Box::from_raw(monitor) };
    monitor.monitor.stop();
}
