//! The history store: what it may take, and from when on purge goes on behind a view.

use std::time::Duration;

use varve::HistoryOptions;

use crate::database::varve_db;
use crate::error::guard;
use crate::error::varve_code::{self, VARVE_OK};

/// The history store, with which purge need not wait for old read views.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct varve_history_options {
    /// Purge goes on behind old views, and copies what they need to the store. Otherwise it waits for them,
    /// but for those that rely on the store already.
    pub store: bool,
    /// For how many milliseconds a view holds purge back before purge goes on behind it: up to 3600000.
    pub delay_ms: u64,
    /// Bytes that the store may take, 1 MiB at least; 0: a tenth of the file system. While it is full purge
    /// waits.
    pub max_size_bytes: u64,
}

impl From<HistoryOptions> for varve_history_options {
    fn from(o: HistoryOptions) -> varve_history_options {
        varve_history_options {
            store: o.store,
            delay_ms: o.delay.as_millis() as u64,
            max_size_bytes: o.max_size.unwrap_or(0),
        }
    }
}

impl From<varve_history_options> for HistoryOptions {
    fn from(o: varve_history_options) -> HistoryOptions {
        HistoryOptions {
            store: o.store,
            delay: Duration::from_millis(o.delay_ms),
            max_size: (o.max_size_bytes != 0).then_some(o.max_size_bytes),
        }
    }
}

/// Changes what becomes of versions that old read views need, from purge's next batch on. Views that rely on
/// the store already keep doing so. VARVE_INVALID: a value is out of bounds, nothing was changed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_db_set_history(
    db: *const varve_db,
    options: *const varve_history_options,
) -> varve_code {
    // SAFETY: CAPI-2.
    let (db, options) = unsafe { (&*db, *options) };
    guard(&db.0, || {
        db.0.set_history_options(options.into())?;
        Ok(VARVE_OK)
    })
}
