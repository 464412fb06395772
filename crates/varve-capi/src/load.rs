//! Loading empty tables.

use std::ffi::c_void;

use varve::TableLoad;

use crate::error::guard;
use crate::error::varve_code::{self, VARVE_OK, VARVE_UNSUPPORTED};
use crate::redefinition::{teller, varve_duplicate_fn};
use crate::table::varve_table;
use crate::txn::{running, varve_txn, with_running};
use crate::value::{varve_value, with_datums};

/// Rows on their way into a table that was empty.
pub struct varve_load {
    load: TableLoad,
    /// How many columns the table has.
    columns: usize,
}

/// Begins to load all rows of an empty table, which takes a fraction of what inserts take. Otherwise it is
/// as if the transaction had inserted them. It has the table locked exclusively until varve_load_finish or
/// varve_load_abandon, and should not use it otherwise until then.
///
/// If the table's name begins with # behind the schema nobody uses it before varve_table_rename gives it
/// another one. It is locked until the transaction ends, and if the load does not come to its end the table
/// is to be dropped: there is no way back.
///
/// Sorting takes the memory of varve_options.sort_buffer_bytes, divided by `at_once`: how many loads go on at
/// the same time. VARVE_UNSUPPORTED: the table is a temporary one, or has foreign keys to be checked: not
/// varve_foreign_key.kept, and not a transaction that does not check them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_load_begin(
    txn: *const varve_txn,
    table: *const varve_table,
    at_once: u32,
    out: *mut *mut varve_load,
) -> varve_code {
    // SAFETY: CAPI-2.
    unsafe {
        let table = &*table;
        with_running(txn, |t| {
            let load = table.db.load_table(t, &table.table, at_once as usize)?;
            out.write(boxed(table, load));
            Ok(())
        })
    }
}

/// The same if that can be at once. VARVE_UNSUPPORTED, without an error's words: rows are to be inserted,
/// because the table is not empty, or others use it, or it can't be loaded at all.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_load_try(
    txn: *const varve_txn,
    table: *const varve_table,
    at_once: u32,
    out: *mut *mut varve_load,
) -> varve_code {
    // SAFETY: CAPI-2.
    let (txn, table) = unsafe { (&*txn, &*table) };
    guard(&txn.db, || {
        // SAFETY: CAPI-2.
        let t = unsafe { running(txn)? };
        let load = table.db.try_load_table(t, &table.table, at_once as usize)?;
        let Some(load) = load else {
            return Ok(VARVE_UNSUPPORTED);
        };
        // SAFETY: CAPI-2.
        unsafe { out.write(boxed(table, load)) };
        Ok(VARVE_OK)
    })
}

fn boxed(table: &varve_table, load: TableLoad) -> *mut varve_load {
    let columns = table.table.def().columns.len();
    Box::into_raw(Box::new(varve_load { load, columns }))
}

/// Takes a row: `n` values, one for each column, in the table's order. It may come in any place of the order
/// of its primary key. After an error no other row is taken.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_load_row(
    load: *mut varve_load,
    txn: *const varve_txn,
    row: *const varve_value,
    n: u32,
) -> varve_code {
    // SAFETY: CAPI-2; the load is its transaction's thread's.
    unsafe {
        let load = &mut (*load).load;
        with_running(txn, |t| with_datums(row, n, |row| load.push(t, row)))
    }
}

/// The same for who has to know at once whether the row is a duplicate, of a table that has no unique index
/// but the primary key. VARVE_UNSUPPORTED, without an error's words: it does not come behind the others in
/// the order of the primary key, and was not taken. When the load has been finished it may be inserted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_load_next(
    load: *mut varve_load,
    txn: *const varve_txn,
    row: *const varve_value,
    n: u32,
) -> varve_code {
    // SAFETY: CAPI-2; the load is its transaction's thread's.
    let (load, txn) = unsafe { (&mut (*load).load, &*txn) };
    guard(&txn.db, || {
        // SAFETY: CAPI-2.
        let is_taken = unsafe {
            let t = running(txn)?;
            with_datums(row, n, |row| load.push_next(t, row))?
        };
        Ok(match is_taken {
            true => VARVE_OK,
            false => VARVE_UNSUPPORTED,
        })
    })
}

/// Loads what is left; the table has all rows then, and its indexes all entries, a table whose name begins
/// with # durably. If rows have the
/// same values in a unique index, `duplicate` is called before the answer is VARVE_DUPLICATE_KEY: with the
/// first row that has those of one that came before it. `load` is gone then, whatever the answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_load_finish(
    load: *mut varve_load,
    txn: *const varve_txn,
    duplicate: varve_duplicate_fn,
    context: *mut c_void,
) -> varve_code {
    // SAFETY: CAPI-2; the box came from varve_load_begin.
    let (load, txn) = unsafe { (Box::from_raw(load), &*txn) };
    let varve_load { load, columns } = *load;
    let mut tell = teller(columns, duplicate, context);
    guard(&txn.db, || {
        // SAFETY: CAPI-2.
        load.finish(unsafe { running(txn)? }, &mut tell)?;
        Ok(VARVE_OK)
    })
}

/// Ends a load before its end. What it has done of a table whose name does not begin with #, a rollback takes
/// back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_load_abandon(load: *mut varve_load, txn: *const varve_txn) {
    // SAFETY: CAPI-2; the box came from varve_load_begin.
    let (load, txn) = unsafe { (Box::from_raw(load), &*txn) };
    // SAFETY: CAPI-2.
    if let Ok(t) = unsafe { running(txn) } {
        load.load.abandon(t);
    }
}
