//! Change buffers: what waits in them, and how much.

use std::mem::MaybeUninit;

use varve::{ChangeBufferOptions, ChangeBuffering, Result};

use crate::choice::{choice, chosen};
use crate::database::varve_db;
use crate::error::guard;
use crate::error::varve_code::{self, VARVE_OK};

/// Which changes of entries wait in change buffers while their leaf is not in the buffer pool. The purge of a
/// delete mark goes the way of the mark.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum varve_change_buffering {
    VARVE_BUFFER_NONE = 0,
    VARVE_BUFFER_INSERTS = 1,
    VARVE_BUFFER_DELETES = 2,
    /// Insertions and deletions.
    VARVE_BUFFER_CHANGES = 3,
    /// As VARVE_BUFFER_DELETES.
    VARVE_BUFFER_PURGES = 4,
    /// As VARVE_BUFFER_CHANGES.
    VARVE_BUFFER_ALL = 5,
}

choice!(
    varve_change_buffering: VARVE_BUFFER_NONE,
    VARVE_BUFFER_INSERTS,
    VARVE_BUFFER_DELETES,
    VARVE_BUFFER_CHANGES,
    VARVE_BUFFER_PURGES,
    VARVE_BUFFER_ALL,
);

/// How changes are buffered.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct varve_change_buffer_options {
    pub buffering: MaybeUninit<varve_change_buffering>,
    /// How many percent of the buffer pool the change buffers of all indexes may have together: up to 50.
    pub max_size_pct: u32,
}

impl From<ChangeBufferOptions> for varve_change_buffer_options {
    fn from(o: ChangeBufferOptions) -> varve_change_buffer_options {
        use varve_change_buffering::*;
        let buffering = match o.buffering {
            ChangeBuffering::None => VARVE_BUFFER_NONE,
            ChangeBuffering::Inserts => VARVE_BUFFER_INSERTS,
            ChangeBuffering::Deletes => VARVE_BUFFER_DELETES,
            ChangeBuffering::Changes => VARVE_BUFFER_CHANGES,
            ChangeBuffering::Purges => VARVE_BUFFER_PURGES,
            ChangeBuffering::All => VARVE_BUFFER_ALL,
        };
        varve_change_buffer_options {
            buffering: MaybeUninit::new(buffering),
            max_size_pct: o.max_size_pct,
        }
    }
}

pub(crate) fn change_buffer_options(o: varve_change_buffer_options) -> Result<ChangeBufferOptions> {
    use varve_change_buffering::*;
    let buffering = match chosen("change_buffer.buffering", o.buffering)? {
        VARVE_BUFFER_NONE => ChangeBuffering::None,
        VARVE_BUFFER_INSERTS => ChangeBuffering::Inserts,
        VARVE_BUFFER_DELETES => ChangeBuffering::Deletes,
        VARVE_BUFFER_CHANGES => ChangeBuffering::Changes,
        VARVE_BUFFER_PURGES => ChangeBuffering::Purges,
        VARVE_BUFFER_ALL => ChangeBuffering::All,
    };
    Ok(ChangeBufferOptions {
        buffering,
        max_size_pct: o.max_size_pct,
    })
}

/// Changes what waits in change buffers, and how large these may become. What is in them is merged in any
/// case. VARVE_INVALID: a value is out of bounds, nothing was changed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_db_set_change_buffer(
    db: *const varve_db,
    options: *const varve_change_buffer_options,
) -> varve_code {
    // SAFETY: CAPI-2.
    let (db, options) = unsafe { (&*db, *options) };
    guard(&db.0, || {
        db.0.set_change_buffer_options(change_buffer_options(options)?)?;
        Ok(VARVE_OK)
    })
}
