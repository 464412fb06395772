//! The monitor: metrics and a live page over HTTP.

use std::ffi::{CString, c_char, c_void};
use std::mem::MaybeUninit;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use ::varve_monitor::{Monitor, MonitorOptions, Session, token_from_file};

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
    /// Optional, with a context of its own: says what a session is doing, by the number that
    /// varve_txn_set_session was given. False: nothing is known of it. It is called in the monitor's thread,
    /// and only if there is a token.
    pub activity: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            session: u64,
            out: *mut varve_session_activity,
        ) -> bool,
    >,
    pub activity_context: *mut c_void,
}

/// What a session is doing.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct varve_session_activity {
    /// The statement that runs, or of a session that is idle its last one: `statement_bytes` of UTF-8, of
    /// which about 1 KiB is shown. What is no UTF-8 is replaced. It need not outlive the next call.
    pub statement: *const c_char,
    pub statement_bytes: usize,
    /// For so long its transaction runs.
    pub active_us: u64,
    /// No statement runs, for so long.
    pub is_idle: bool,
    pub idle_us: u64,
}

/// `varve_monitor_options::activity`.
pub type varve_session_activity_fn = unsafe extern "C" fn(
    context: *mut c_void,
    session: u64,
    out: *mut varve_session_activity,
) -> bool;

/// The caller's sessions.
struct Teller {
    tell: varve_session_activity_fn,
    context: *mut c_void,
}

// SAFETY: the caller promises that the function may be called in another thread with this context.
unsafe impl Send for Teller {}
// SAFETY: as above; it is the only thread that calls it.
unsafe impl Sync for Teller {}

impl Teller {
    fn tell(&self, session: u64) -> Option<Session> {
        let mut out = MaybeUninit::uninit();
        // SAFETY: CAPI-2. It fills in what it says true about.
        let said: varve_session_activity = unsafe {
            if !(self.tell)(self.context, session, out.as_mut_ptr()) {
                return None;
            }
            out.assume_init()
        };
        let statement = match said.statement_bytes {
            0 => &[],
            // SAFETY: CAPI-2.
            bytes => unsafe { slice::from_raw_parts(said.statement.cast(), bytes) },
        };
        Some(Session {
            statement: String::from_utf8_lossy(statement).into_owned(),
            idle: said.is_idle.then_some(Duration::from_micros(said.idle_us)),
            active: Some(Duration::from_micros(said.active_us)),
        })
    }
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
        if let Some(tell) = options.activity {
            let teller = Teller {
                tell,
                context: options.activity_context,
            };
            given.sessions = Some(Arc::new(move |session| teller.tell(session)));
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
