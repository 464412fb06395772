//! Backups.

use std::ffi::c_char;

use varve::backup::{BackupOptions, BackupSummary, merge, restore_chain, verify};
use varve::{BackupState, Database, Error, RunningBackup};

use crate::collation::text;
use crate::database::varve_db;
use crate::error::varve_code::{self, VARVE_OK};
use crate::error::{guard, guard_without_database};

/// How a backup is made. Zeros are the defaults.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct varve_backup_options {
    /// Threads that copy: 1 to 64.
    pub threads: u32,
    /// A backup that is behind the log's checkpoint by more bytes of redo than this fails: the disk of the
    /// database has to hold them. So does one that follows the log for more than that, and nobody ends it.
    pub max_redo_bytes: u64,
    /// Of tablespaces; 0: as fast as it goes.
    pub bytes_per_second: u64,
    /// Damaged pages are copied as they are, and tablespaces that were lost left out. Otherwise such a backup
    /// fails.
    pub keep_damaged: bool,
    /// The directory of an older backup, whole or an increment: makes an increment, which has what was
    /// written since that was made. NULL: a whole backup.
    pub base: *const c_char,
}

impl varve_backup_options {
    /// # Safety
    ///
    /// CAPI-2.
    unsafe fn read(&self) -> Result<BackupOptions, Error> {
        let (o, d) = (self, BackupOptions::default());
        let base = match o.base.is_null() {
            true => None,
            // SAFETY: the caller's.
            false => Some(unsafe { text(o.base, "the base's directory")? }.into()),
        };
        Ok(BackupOptions {
            base,
            threads: if o.threads == 0 { d.threads } else { o.threads },
            max_redo_bytes: match o.max_redo_bytes {
                0 => d.max_redo_bytes,
                bytes => bytes,
            },
            bytes_per_second: o.bytes_per_second,
            keep_damaged: o.keep_damaged,
            ..d
        })
    }
}

/// How far a backup is.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub enum varve_backup_state {
    /// Pages are being copied.
    #[default]
    VARVE_BACKUP_COPYING = 0,
    /// All pages are copied, and redo is as it comes: it may end.
    VARVE_BACKUP_FOLLOWING = 1,
    /// The moment has come that it is of. What is left is being copied.
    VARVE_BACKUP_ENDING = 2,
    VARVE_BACKUP_COMPLETE = 3,
    /// Nothing of it is left.
    VARVE_BACKUP_FAILED = 4,
}

/// What a backup has come to.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct varve_backup_progress {
    pub state: varve_backup_state,
    /// Of tablespaces, so far; of a complete one, of all files.
    pub bytes: u64,
    /// Of a complete one: its redo, files, damaged pages, and tablespaces that were lost.
    pub from_lsn: u64,
    pub to_lsn: u64,
    pub files: u64,
    pub damaged_pages: u64,
    pub lost_tablespaces: u64,
}

impl From<&BackupSummary> for varve_backup_progress {
    fn from(made: &BackupSummary) -> varve_backup_progress {
        varve_backup_progress {
            state: varve_backup_state::VARVE_BACKUP_COMPLETE,
            bytes: made.bytes,
            from_lsn: made.from.0,
            to_lsn: made.to.0,
            files: made.files as u64,
            damaged_pages: made.damaged.len() as u64,
            lost_tablespaces: made.lost.len() as u64,
        }
    }
}

/// A backup that a thread makes.
pub struct varve_backup {
    running: RunningBackup,
    /// Panics poison it.
    db: Database,
}

/// Has a thread make a backup of the database in `dir`, which is made, or is empty. It goes on until
/// varve_backup_end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_backup_start(
    db: *const varve_db,
    dir: *const c_char,
    options: *const varve_backup_options,
    out: *mut *mut varve_backup,
) -> varve_code {
    // SAFETY: CAPI-2.
    let (db, options) = unsafe { (&*db, *options) };
    guard(&db.0, || {
        // SAFETY: CAPI-2.
        let dir = unsafe { text(dir, "the backup's directory")? };
        // SAFETY: CAPI-2.
        let options = unsafe { options.read()? };
        let running = db.0.start_backup(dir, options)?;
        let db = db.0.clone();
        // SAFETY: CAPI-2.
        unsafe { out.write(Box::into_raw(Box::new(varve_backup { running, db }))) };
        Ok(VARVE_OK)
    })
}

/// How far it is. The code of what has made it fail: its state is VARVE_BACKUP_FAILED then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_backup_progress_of(
    backup: *const varve_backup,
    out: *mut varve_backup_progress,
) -> varve_code {
    // SAFETY: CAPI-2.
    let backup = unsafe { &*backup };
    guard(&backup.db, || {
        let state = backup.running.state();
        let at = |state, bytes| varve_backup_progress {
            state,
            bytes,
            ..varve_backup_progress::default()
        };
        let (progress, failed) = match &state {
            BackupState::Copying(bytes) => {
                (at(varve_backup_state::VARVE_BACKUP_COPYING, *bytes), None)
            }
            BackupState::Following => (at(varve_backup_state::VARVE_BACKUP_FOLLOWING, 0), None),
            BackupState::Ending => (at(varve_backup_state::VARVE_BACKUP_ENDING, 0), None),
            BackupState::Complete(made) => (made.into(), None),
            BackupState::Failed(e) => (at(varve_backup_state::VARVE_BACKUP_FAILED, 0), Some(e)),
        };
        // SAFETY: CAPI-2.
        unsafe { out.write(progress) };
        failed.map_or(Ok(VARVE_OK), |e| Err(e.clone()))
    })
}

/// The backup is of this moment: it has all that has committed before the call, and what commits later is not
/// in it. VARVE_INVALID: pages are still being copied, or it has ended before. What is left is done by its
/// thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_backup_end(backup: *const varve_backup) -> varve_code {
    // SAFETY: CAPI-2.
    let backup = unsafe { &*backup };
    guard(&backup.db, || {
        backup.running.end()?;
        Ok(VARVE_OK)
    })
}

/// Nobody asks any more. One that is not complete ends, and nothing of it is left; before the database is
/// closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_backup_free(backup: *mut varve_backup) {
    // SAFETY: CAPI-2; the box came from varve_backup_start.
    drop(unsafe { Box::from_raw(backup) });
}

/// Reads all of the backup in `dir`, and finds out whether it is as it was made. VARVE_NOT_FOUND: there is
/// none, or it is not complete. VARVE_CORRUPT: it was changed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_backup_verify(
    dir: *const c_char,
    out: *mut varve_backup_progress,
) -> varve_code {
    guard_without_database(|| {
        // SAFETY: CAPI-2.
        let dir = unsafe { text(dir, "the backup's directory")? };
        let found = verify(dir)?;
        // SAFETY: CAPI-2.
        unsafe { out.write((&found).into()) };
        Ok(VARVE_OK)
    })
}

/// Makes a database of a backup and the increments that go with it, in their order, once all are verified.
/// The directory `target` is made, or is empty.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_backup_restore(
    dirs: *const *const c_char,
    count: usize,
    target: *const c_char,
    out: *mut varve_backup_progress,
) -> varve_code {
    // SAFETY: CAPI-2.
    unsafe { put_together(dirs, count, target, out, |dirs, to| restore_chain(dirs, to)) }
}

/// Has `make` make something of backups in `target`.
///
/// # Safety
///
/// CAPI-2.
unsafe fn put_together(
    dirs: *const *const c_char,
    count: usize,
    target: *const c_char,
    out: *mut varve_backup_progress,
    make: impl FnOnce(&[&str], &str) -> Result<BackupSummary, Error>,
) -> varve_code {
    guard_without_database(|| {
        // SAFETY: the caller's.
        let (dirs, target) = unsafe { (texts(dirs, count)?, text(target, "the new directory")?) };
        let made = make(&dirs, target)?;
        // SAFETY: the caller's.
        unsafe { out.write((&made).into()) };
        Ok(VARVE_OK)
    })
}

/// # Safety
///
/// CAPI-2.
unsafe fn texts<'a>(dirs: *const *const c_char, count: usize) -> Result<Vec<&'a str>, Error> {
    let dirs = match count {
        0 => &[],
        // SAFETY: the caller's.
        _ => unsafe { std::slice::from_raw_parts(dirs, count) },
    };
    // SAFETY: the caller's.
    let each = |dir: &*const c_char| unsafe { text(*dir, "a backup's directory") };
    dirs.iter().map(each).collect()
}

/// Makes a whole backup in `target`, which is made, or is empty, of one and the increments that go with it,
/// in their order.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_backup_merge(
    dirs: *const *const c_char,
    count: usize,
    target: *const c_char,
    out: *mut varve_backup_progress,
) -> varve_code {
    // SAFETY: CAPI-2.
    unsafe { put_together(dirs, count, target, out, |dirs, to| merge(dirs, to)) }
}
