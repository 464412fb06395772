//! `varve_watch_fn`: how far a call that takes long has come.

use std::ffi::c_void;

use varve::{Phase, Progress, Watch};

use crate::txn::{state, varve_txn};

/// What a call is doing that takes long.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum varve_phase {
    /// Reads the rows that indexes, or another table, are built of. Counts rows.
    VARVE_PHASE_READ = 0,
    /// Fills indexes with what was sorted. Counts rows and entries.
    VARVE_PHASE_FILL = 1,
    /// Looks at rows that others have changed meanwhile. Counts rows.
    VARVE_PHASE_CATCH_UP = 2,
    /// Checks each page of a table's file by itself. Counts pages.
    VARVE_PHASE_CHECK_PAGES = 3,
    /// Checks rows and entries. Counts them.
    VARVE_PHASE_CHECK_RECORDS = 4,
    /// Looks at leaves for statistics. Counts leaves.
    VARVE_PHASE_SAMPLE = 5,
    /// Takes back what was changed, if that is much. Counts undo records.
    VARVE_PHASE_ROLL_BACK = 6,
}

impl From<Phase> for varve_phase {
    fn from(phase: Phase) -> varve_phase {
        match phase {
            Phase::Read => varve_phase::VARVE_PHASE_READ,
            Phase::Fill => varve_phase::VARVE_PHASE_FILL,
            Phase::CatchUp => varve_phase::VARVE_PHASE_CATCH_UP,
            Phase::CheckPages => varve_phase::VARVE_PHASE_CHECK_PAGES,
            Phase::CheckRecords => varve_phase::VARVE_PHASE_CHECK_RECORDS,
            Phase::Sample => varve_phase::VARVE_PHASE_SAMPLE,
            Phase::RollBack => varve_phase::VARVE_PHASE_ROLL_BACK,
        }
    }
}

/// Is told that so much of the estimated work of a phase is done: when a phase begins, which may come again,
/// and every so often. It should return at once.
pub type varve_watch_fn =
    unsafe extern "C" fn(context: *mut c_void, phase: varve_phase, done: u64, estimated: u64);

/// The caller's function, and what it gets.
struct Caller {
    told: varve_watch_fn,
    context: *mut c_void,
}

// SAFETY: it is called by the session's own thread only (PROGRESS-1); that may be another one in each call.
unsafe impl Send for Caller {}
// SAFETY: the same.
unsafe impl Sync for Caller {}

impl Caller {
    fn tell(&self, progress: Progress) {
        let Progress {
            phase,
            done,
            estimated,
        } = progress;
        // SAFETY: CAPI-2.
        unsafe { (self.told)(self.context, phase.into(), done, estimated) };
    }
}

/// From now on `told` is called by the session's own thread, within calls that take long: those about
/// redefinitions, which were prepared with this session, varve_load_finish, varve_table_check,
/// varve_table_analyze, and those that roll back.
/// `context` stays until the session is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_txn_set_watch(
    txn: *const varve_txn,
    told: varve_watch_fn,
    context: *mut c_void,
) {
    let caller = Caller { told, context };
    let watch = Watch::new(move |progress| caller.tell(progress));
    // SAFETY: CAPI-2.
    unsafe { state(&*txn) }.watch(watch);
}
