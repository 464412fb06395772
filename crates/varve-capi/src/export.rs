//! Files of tables on their way to other databases.

use std::ffi::c_char;
use std::mem::MaybeUninit;

use varve::{Database, RedefinitionWaits, TableExport};

use crate::collation::text;
use crate::database::{varve_db, with_checks};
use crate::error::guard;
use crate::error::varve_code::{self, VARVE_OK};
use crate::foreign::varve_foreign_key_checks;
use crate::txn::{varve_txn, waits_of};

/// A table's file that can be copied.
pub struct varve_export {
    _export: TableExport,
}

/// # Safety
///
/// CAPI-2.
unsafe fn waits(txn: *const varve_txn) -> RedefinitionWaits {
    // SAFETY: the caller's promise.
    let txn = unsafe { txn.as_ref() };
    // SAFETY: the caller's promise.
    let waits = txn.map(|txn| unsafe { waits_of(txn) });
    waits.unwrap_or_default()
}

/// Makes a table's file, "schema/table.vdt" in the data directory, one that can be copied, until
/// varve_export_end: it has all that is in the table, and does not change. Others may read the table
/// meanwhile. It begins once no transaction changes the table; waits for locks as long as `txn` does, unless
/// it is null, and an interrupt of `txn` ends the wait with VARVE_INTERRUPTED. Purge stands still for all
/// tables. VARVE_UNSUPPORTED: a temporary table.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_export_begin(
    db: *const varve_db,
    txn: *const varve_txn,
    name: *const c_char,
    out: *mut *mut varve_export,
) -> varve_code {
    // SAFETY: CAPI-2.
    let db = unsafe { &*db };
    guard(&db.0, || {
        // SAFETY: CAPI-2.
        let (name, waits) = unsafe { (text(name, "the table's name")?, waits(txn)) };
        let _export = db.0.export_table(name, waits)?;
        // SAFETY: CAPI-2.
        unsafe { out.write(Box::into_raw(Box::new(varve_export { _export }))) };
        Ok(VARVE_OK)
    })
}

/// The table may be changed again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_export_end(export: *mut varve_export) {
    // SAFETY: CAPI-2; the box came from varve_export_begin.
    drop(unsafe { Box::from_raw(export) });
}

/// Takes a table's rows and its file away, durably, and keeps its definition; also if it can't be used. The
/// caller sees to it that nobody uses it. It can't be opened then (VARVE_DISCARDED), but have a file
/// imported, or be emptied, renamed or dropped. The file that waits to be imported is left alone until then,
/// is renamed and dropped with the table, and keeps it from being emptied. VARVE_DISCARDED: it has no rows.
/// VARVE_UNSUPPORTED: a temporary table.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_table_discard(
    db: *const varve_db,
    name: *const c_char,
    checks: MaybeUninit<varve_foreign_key_checks>,
) -> varve_code {
    // SAFETY: CAPI-2.
    unsafe { with_checks(db, name, checks, Database::discard_table) }
}

/// Gives a table whose rows were discarded, or whose file is lost, those of the file that lies in its place,
/// "schema/table.vdt" in the data directory, durably: a copy of one that was exported, or of one of a
/// database that was closed cleanly. The file is removed. An interrupt of `txn`, unless it is null, ends it
/// with VARVE_INTERRUPTED. Views that are older than that don't read the table (VARVE_DEFINITION_CHANGED).
/// VARVE_ALREADY_EXISTS: the table has its rows; VARVE_SCHEMA_MISMATCH: the file is another table's;
/// VARVE_CORRUPT: it is damaged; VARVE_IO: it is not there. Table and file are as they were then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_table_import(
    db: *const varve_db,
    txn: *const varve_txn,
    name: *const c_char,
) -> varve_code {
    // SAFETY: CAPI-2.
    let db = unsafe { &*db };
    guard(&db.0, || {
        // SAFETY: CAPI-2.
        let (name, waits) = unsafe { (text(name, "the table's name")?, waits(txn)) };
        db.0.import_table(name, waits).map(|()| VARVE_OK)
    })
}
