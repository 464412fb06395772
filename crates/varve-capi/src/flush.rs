//! How changed pages are written.

use varve::FlushOptions;

use crate::database::varve_db;
use crate::error::guard;
use crate::error::varve_code::{self, VARVE_OK};

/// How changed pages are written.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct varve_flush_options {
    /// Pages per second that are written while there is nothing else to do: 100 at least.
    pub io_capacity: u32,
    /// Pages per second that are written at most unless the redo log gets short: io_capacity at least.
    pub io_capacity_max: u32,
    /// Percentage of the buffer pool that is to be dirty at most, below 100.
    pub max_dirty_pages_pct: f64,
    /// Percentage from which that is worked towards, max_dirty_pages_pct at most; 0: from that.
    pub max_dirty_pages_pct_lwm: f64,
    /// Write pages ahead of the redo log's need for room.
    pub adaptive_flushing: bool,
    /// Percentage of the redo capacity from which that is done: 70 at most.
    pub adaptive_flushing_lwm: f64,
    /// Over how many tenths of a second speeds are averaged: 1 to 1000.
    pub flushing_avg_loops: u32,
    /// Pages of the buffer pool that are kept free ahead of demand, up to a 32nd of it: 100 at least.
    pub lru_scan_depth: u32,
}

/// Each is made of the other: the fields are the same.
macro_rules! same_fields {
    ($ours:ident, $theirs:ident: $($field:ident),+ $(,)?) => {
        impl From<$theirs> for $ours {
            fn from(o: $theirs) -> $ours {
                $ours { $($field: o.$field),+ }
            }
        }

        impl From<$ours> for $theirs {
            fn from(o: $ours) -> $theirs {
                $theirs { $($field: o.$field),+ }
            }
        }
    };
}

same_fields!(
    varve_flush_options,
    FlushOptions: io_capacity,
    io_capacity_max,
    max_dirty_pages_pct,
    max_dirty_pages_pct_lwm,
    adaptive_flushing,
    adaptive_flushing_lwm,
    flushing_avg_loops,
    lru_scan_depth,
);

/// Changes how pages are written, from now on. VARVE_INVALID: a value is out of bounds, nothing was changed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_db_set_flush(
    db: *const varve_db,
    options: *const varve_flush_options,
) -> varve_code {
    // SAFETY: CAPI-2.
    let (db, options) = unsafe { (&*db, *options) };
    guard(&db.0, || {
        db.0.set_flush_options(options.into())?;
        Ok(VARVE_OK)
    })
}
