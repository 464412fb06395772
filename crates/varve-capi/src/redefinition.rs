//! Definitions of tables that change while the table is used.

use std::ffi::{CString, c_char, c_void};
use std::sync::Arc;

use varve::{Database, PreparedRedefinition, RedefinitionWaits, RowRef, TableDef, ValueSource};

use crate::choice::chosen;
use crate::collation::text;
use crate::database::varve_db;
use crate::definition::{converted_in, redefined_as, varve_table_def};
use crate::error::guard;
use crate::error::varve_code::{self, VARVE_OK};
use crate::foreign::{foreign_key, varve_foreign_key};
use crate::txn::{varve_txn, waits_of};
use crate::value::varve_value;
use crate::value_source::varve_value_source;

/// A definition that a table is about to get, or several tables together.
pub struct varve_redefinition {
    prepared: PreparedRedefinition,
    /// Of the tables as they will be.
    columns: usize,
}

/// Receives a row, with a value for each column of the table, that has the same values in the unique index of
/// this name as another one.
pub type varve_duplicate_fn =
    unsafe extern "C" fn(context: *mut c_void, index: *const c_char, row: *const varve_value);

/// Prepares to give the table of this definition's name other names of columns and indexes, columns of bytes
/// or text greater lengths, more columns or fewer, another order, and other indexes, once nobody uses it;
/// no row is changed. All else has to be as it is, or VARVE_UNSUPPORTED says what is not; foreign keys are
/// not looked at. An index that foreign keys need stays, or varve_redefinition_commit says VARVE_INVALID or
/// VARVE_BAD_FOREIGN_KEY, unless the first definition's `foreign_key_checks` is VARVE_IGNORE_REFERENCES. If
/// there are indexes to be built, others may use the table again then, until that commit. A consistent view
/// that is older than an index does not read it (VARVE_DEFINITION_CHANGED). Waits for locks as long as `txn`
/// does, unless it is null, here and later; an interrupt of `txn` ends all with VARVE_INTERRUPTED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_redefinition_prepare(
    db: *const varve_db,
    txn: *const varve_txn,
    def: *const varve_table_def,
    out: *mut *mut varve_redefinition,
) -> varve_code {
    // SAFETY: CAPI-2.
    unsafe {
        prepare(db, txn, def, out, |db, to, waits| {
            db.prepare_redefinition(to, waits)
        })
    }
}

/// Prepares to write all rows of the table of this definition's name anew and to give it this definition,
/// once nobody uses it; others use it then, until varve_redefinition_commit. Beside what
/// varve_redefinition_prepare takes it may have another primary key, or one where there was none, columns
/// that cease to take NULL, new indexes together with other columns, and new columns that are computed,
/// converted, or the AUTO_INCREMENT column (varve_redefinition_set_value_source); while that is counted
/// others may only read. A consistent view that is older than the end does not read the table
/// (VARVE_DEFINITION_CHANGED). VARVE_NULL_VALUE comes of varve_redefinition_build or
/// varve_redefinition_commit if a row has NULL where there is to be none and the value source has nothing
/// instead. All else is as there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_rebuild_prepare(
    db: *const varve_db,
    txn: *const varve_txn,
    def: *const varve_table_def,
    out: *mut *mut varve_redefinition,
) -> varve_code {
    // SAFETY: CAPI-2.
    let converted = unsafe { converted_in(&*def) };
    let rebuild =
        |db: &Database, to: &TableDef, waits| db.prepare_conversion(to, &converted, waits);
    // SAFETY: CAPI-2.
    unsafe { prepare(db, txn, def, out, rebuild) }
}

/// # Safety
///
/// CAPI-2.
unsafe fn prepare(
    db: *const varve_db,
    txn: *const varve_txn,
    def: *const varve_table_def,
    out: *mut *mut varve_redefinition,
    how: impl FnOnce(&Database, &TableDef, RedefinitionWaits) -> varve::Result<PreparedRedefinition>,
) -> varve_code {
    // SAFETY: CAPI-2.
    let (db, txn, def) = unsafe { (&*db, txn.as_ref(), &*def) };
    guard(&db.0, || {
        // SAFETY: CAPI-2.
        let to = unsafe { meant_by(&db.0, def)? };
        // SAFETY: CAPI-2.
        let waits = txn.map(|txn| unsafe { waits_of(txn) });
        let checks = chosen("foreign_key_checks", def.foreign_key_checks)?;
        let mut prepared = how(&db.0, &to, waits.unwrap_or_default())?;
        prepared.set_foreign_key_checks(checks.into())?;
        let handle = Box::into_raw(Box::new(varve_redefinition {
            prepared,
            columns: to.columns.len(),
        }));
        // SAFETY: CAPI-2.
        unsafe { out.write(handle) };
        Ok(VARVE_OK)
    })
}

/// # Safety
///
/// CAPI-2.
unsafe fn meant_by(db: &Database, def: &varve_table_def) -> varve::Result<TableDef> {
    // SAFETY: the caller's promise.
    let name = unsafe { text(def.name, "the table's name")? };
    let table = db.table(name)?;
    // SAFETY: the caller's promise.
    unsafe { redefined_as(def, table.def()) }
}

/// Another table, with as many columns as the first one, too, gets what varve_redefinition_prepare takes:
/// all get their definitions, or none, whatever happens. After an error there is nothing to do but to abandon
/// all. VARVE_UNSUPPORTED comes of varve_redefinition_commit if one of several tables has foreign keys, or is
/// referred to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_redefinition_add(
    db: *const varve_db,
    redefinition: *mut varve_redefinition,
    def: *const varve_table_def,
) -> varve_code {
    // SAFETY: CAPI-2.
    unsafe { add(db, redefinition, def, PreparedRedefinition::and_redefine) }
}

/// Another table is rebuilt, too, as varve_rebuild_prepare does it. All else is as for
/// varve_redefinition_add.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_rebuild_add(
    db: *const varve_db,
    redefinition: *mut varve_redefinition,
    def: *const varve_table_def,
) -> varve_code {
    // SAFETY: CAPI-2.
    let converted = unsafe { converted_in(&*def) };
    let and_convert =
        |prepared: &mut PreparedRedefinition, to: &TableDef| prepared.and_convert(to, &converted);
    // SAFETY: CAPI-2.
    unsafe { add(db, redefinition, def, and_convert) }
}

/// # Safety
///
/// CAPI-2.
unsafe fn add(
    db: *const varve_db,
    redefinition: *mut varve_redefinition,
    def: *const varve_table_def,
    how: impl FnOnce(&mut PreparedRedefinition, &TableDef) -> varve::Result<()>,
) -> varve_code {
    // SAFETY: CAPI-2.
    let (db, redefinition, def) = unsafe { (&*db, &mut *redefinition, &*def) };
    guard(&db.0, || {
        // SAFETY: CAPI-2.
        let to = unsafe { meant_by(&db.0, def)? };
        if to.columns.len() != redefinition.columns {
            return Err(varve::Error::invalid(format!(
                "table {} is to get {} columns, and one before it {}",
                to.name,
                to.columns.len(),
                redefinition.columns
            )));
        }
        how(&mut redefinition.prepared, &to).map(|()| VARVE_OK)
    })
}

/// Sets whom to ask for values of columns that are new in a table that is rebuilt, and computed or counted,
/// and for what columns have that are converted, or cease to take NULL. Columns are converted by the row as
/// it was; all else is asked for by the row of the table as it will be, with NULL in what is asked for. The
/// AUTO_INCREMENT column is asked for once for each row, in their order, one table after the other as they
/// were prepared. `source` is copied; what it points to stays until the redefinition is gone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_redefinition_set_value_source(
    db: *const varve_db,
    redefinition: *mut varve_redefinition,
    source: *const varve_value_source,
) -> varve_code {
    // SAFETY: CAPI-2.
    let (db, redefinition, source) = unsafe { (&*db, &mut *redefinition, *source) };
    guard(&db.0, || {
        let values: Arc<dyn ValueSource> = Arc::new(source);
        redefinition.prepared.set_value_source(&values)?;
        Ok(VARVE_OK)
    })
}

/// The AUTO_INCREMENT counter of each table that is prepared will be `next`, or what follows the greatest
/// value in its rows, which may be less than it is now. Without this it stays, or is what follows the values
/// of a column that is new.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_redefinition_set_auto_increment(
    db: *const varve_db,
    redefinition: *mut varve_redefinition,
    next: u64,
) -> varve_code {
    // SAFETY: CAPI-2.
    let (db, redefinition) = unsafe { (&*db, &mut *redefinition) };
    guard(&db.0, || {
        let set = redefinition.prepared.set_auto_increment(next);
        set.map(|()| VARVE_OK)
    })
}

/// The table that was prepared last will have this foreign key, whose columns are called as they will be. Its
/// rows are not looked at, and the parent need not be there. VARVE_BAD_FOREIGN_KEY if it is there and does
/// not fit; VARVE_CONSTRAINT_EXISTS; either may come of varve_redefinition_commit, too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_redefinition_add_foreign_key(
    db: *const varve_db,
    redefinition: *mut varve_redefinition,
    key: *const varve_foreign_key,
) -> varve_code {
    // SAFETY: CAPI-2.
    let (db, redefinition, key) = unsafe { (&*db, &mut *redefinition, &*key) };
    guard(&db.0, || {
        // SAFETY: CAPI-2.
        let key = unsafe { foreign_key(key)? };
        let added = redefinition.prepared.add_foreign_key(key);
        added.map(|()| VARVE_OK)
    })
}

/// The table that was prepared last will not have this foreign key any more. VARVE_NOT_FOUND: it has none of
/// this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_redefinition_drop_foreign_key(
    db: *const varve_db,
    redefinition: *mut varve_redefinition,
    name: *const c_char,
) -> varve_code {
    // SAFETY: CAPI-2.
    let (db, redefinition) = unsafe { (&*db, &mut *redefinition) };
    guard(&db.0, || {
        // SAFETY: CAPI-2.
        let name = unsafe { text(name, "the foreign key's name")? };
        let dropped = redefinition.prepared.drop_foreign_key(name);
        dropped.map(|()| VARVE_OK)
    })
}

/// Builds the new indexes, or tables, while others use those that are there. VARVE_DUPLICATE_KEY comes after
/// `duplicate` was called; VARVE_TOO_MANY_CHANGES if more was changed meanwhile than there is room to note.
/// After an error it can only be abandoned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_redefinition_build(
    db: *const varve_db,
    redefinition: *mut varve_redefinition,
    duplicate: varve_duplicate_fn,
    context: *mut c_void,
) -> varve_code {
    // SAFETY: CAPI-2.
    let (db, redefinition) = unsafe { (&*db, &mut *redefinition) };
    let mut tell = teller(redefinition.columns, duplicate, context);
    guard(&db.0, || {
        redefinition.prepared.build(&mut tell).map(|()| VARVE_OK)
    })
}

/// Gives the tables their new definitions, durably, once nobody uses them; handles must be opened again.
/// Fails as varve_redefinition_build does. `redefinition` is gone then, whatever the answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_redefinition_commit(
    db: *const varve_db,
    redefinition: *mut varve_redefinition,
    duplicate: varve_duplicate_fn,
    context: *mut c_void,
) -> varve_code {
    // SAFETY: CAPI-2; the box came from varve_redefinition_prepare.
    let (db, redefinition) = unsafe { (&*db, Box::from_raw(redefinition)) };
    let mut tell = teller(redefinition.columns, duplicate, context);
    guard(&db.0, || {
        redefinition.prepared.commit(&mut tell).map(|()| VARVE_OK)
    })
}

/// Hands rows of so many columns to the caller's function.
pub(crate) fn teller(
    columns: usize,
    duplicate: varve_duplicate_fn,
    context: *mut c_void,
) -> impl FnMut(&str, &RowRef<'_>) {
    move |index, row| {
        let values: Vec<_> = (0..columns)
            .map(|at| varve_value::of(row.get(at)))
            .collect();
        let name = CString::new(index).unwrap_or_default();
        // SAFETY: CAPI-2; the values live until the call returns.
        unsafe { duplicate(context, name.as_ptr(), values.as_ptr()) };
    }
}

/// Leaves the tables as they are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_redefinition_abandon(redefinition: *mut varve_redefinition) {
    // SAFETY: CAPI-2; the box came from varve_redefinition_prepare.
    drop(unsafe { Box::from_raw(redefinition) });
}
