//! Definitions of tables that change while the rows stay.

use std::ffi::{CString, c_char, c_void};

use varve::{PreparedRedefinition, RedefinitionWatch, RowRef};

use crate::collation::text;
use crate::database::varve_db;
use crate::definition::{redefined_as, varve_table_def};
use crate::error::guard;
use crate::error::varve_code::{self, VARVE_OK};
use crate::txn::varve_txn;
use crate::value::varve_value;

/// A definition that a table is about to get.
pub struct varve_redefinition(PreparedRedefinition);

/// Receives a row, with a value for each column of the table, that has the same values in the unique index of
/// this name as another one.
pub type varve_duplicate_fn =
    unsafe extern "C" fn(context: *mut c_void, index: *const c_char, row: *const varve_value);

/// Prepares to give the table of this definition's name other names of columns and indexes, columns of bytes
/// or text greater lengths, more columns, another order of columns, and other indexes; no row is changed. All
/// else has to be as it is, or VARVE_UNSUPPORTED says what is not; foreign keys are not looked at. New
/// indexes are built, which, as all waiting, ends with VARVE_INTERRUPTED if `txn`, unless it is null, is
/// interrupted, and with VARVE_DUPLICATE_KEY after `duplicate` was called. As long as the result is there
/// nobody changes the table. A consistent view that is older than an index does not read it
/// (VARVE_DEFINITION_CHANGED).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_redefinition_prepare(
    db: *const varve_db,
    txn: *const varve_txn,
    def: *const varve_table_def,
    duplicate: varve_duplicate_fn,
    context: *mut c_void,
    out: *mut *mut varve_redefinition,
) -> varve_code {
    // SAFETY: CAPI-2.
    let (db, txn, def) = unsafe { (&*db, txn.as_ref(), &*def) };
    guard(&db.0, || {
        // SAFETY: CAPI-2.
        let name = unsafe { text(def.name, "the table's name")? };
        let table = db.0.table(name)?;
        // SAFETY: CAPI-2.
        let to = unsafe { redefined_as(def, table.def())? };
        drop(table);
        let mut tell = |index: &str, row: &RowRef<'_>| {
            let columns = to.columns.len();
            let values: Vec<_> = (0..columns)
                .map(|at| varve_value::of(row.get(at)))
                .collect();
            let name = CString::new(index).unwrap_or_default();
            // SAFETY: CAPI-2; the values live until the call returns.
            unsafe { duplicate(context, name.as_ptr(), values.as_ptr()) };
        };
        let watch = RedefinitionWatch {
            interrupt: txn.map(|txn| &txn.interrupt),
            duplicate: &mut tell,
        };
        let prepared = db.0.prepare_redefinition(&to, watch)?;
        let handle = Box::into_raw(Box::new(varve_redefinition(prepared)));
        // SAFETY: CAPI-2.
        unsafe { out.write(handle) };
        Ok(VARVE_OK)
    })
}

/// Gives the table its new definition, durably. The caller sees to it that nobody uses the table; handles of
/// it must be opened again. `redefinition` is gone then, whatever the answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_redefinition_commit(
    db: *const varve_db,
    redefinition: *mut varve_redefinition,
) -> varve_code {
    // SAFETY: CAPI-2; the box came from varve_redefinition_prepare.
    let (db, prepared) = unsafe { (&*db, Box::from_raw(redefinition)) };
    guard(&db.0, || prepared.0.commit().map(|()| VARVE_OK))
}

/// Leaves the table as it is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_redefinition_abandon(redefinition: *mut varve_redefinition) {
    // SAFETY: CAPI-2; the box came from varve_redefinition_prepare.
    drop(unsafe { Box::from_raw(redefinition) });
}
