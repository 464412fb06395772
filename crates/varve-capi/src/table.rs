//! `varve_table`: an open table, its statistics, its counter and its check.

use std::ffi::{CStr, CString, c_char, c_void};
use std::path::Path;
use std::ptr;

use varve::{ColumnType, Database, KeyPart, MAX_KEY_BYTES, Table, TableDef};

use crate::collation::text;
use crate::database::{tell, varve_db, varve_text_fn};
use crate::definition::{redefined_as, table_def, varve_table_def};
use crate::error::varve_code::{self, VARVE_OK};
use crate::error::{guard, last_duplicate_index};
use crate::txn::{running, varve_txn};
use crate::value::{varve_value, with_datums};

/// An open table. Shared by all threads.
pub struct varve_table {
    pub(crate) db: Database,
    pub(crate) table: Table,
    data_directory: Option<CString>,
}

/// Figures about a table. Estimates, but the counter.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct varve_table_stats {
    pub rows: u64,
    /// Bytes of the table's file that are in use, and that are not.
    pub used_bytes: u64,
    pub free_bytes: u64,
    /// The next value of the counter.
    pub auto_increment: u64,
    /// The parts of `used_bytes` that are the clustered index's, with its long values, and the secondary
    /// ones'. Before the first varve_table_rows_per_key all is taken for the clustered index's.
    pub data_bytes: u64,
    pub index_bytes: u64,
    /// When a transaction that has changed the table committed last, in seconds since 1970; 0 if that is not
    /// known: it is nowhere on disk.
    pub changed_at: u64,
    pub page_bytes: u32,
    /// varve_table_rows_per_key would look at the table again.
    pub is_stale: bool,
}

impl varve_table_stats {
    pub fn of(t: &Table) -> varve::Result<varve_table_stats> {
        let (used_bytes, free_bytes) = t.used_and_free_bytes()?;
        let index_bytes = t.secondary_bytes_estimate();
        Ok(varve_table_stats {
            rows: t.row_count_estimate(),
            used_bytes,
            free_bytes,
            auto_increment: t.auto_increment_next(),
            data_bytes: t.clustered_bytes_estimate(used_bytes),
            index_bytes: match t.kept_statistics_rows() {
                Some(_) => index_bytes,
                None => index_bytes.min(used_bytes),
            },
            changed_at: t.changed_at().unwrap_or(0),
            page_bytes: t.page_size() as u32,
            is_stale: t.estimates_are_stale(),
        })
    }
}

/// Opens a table.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_table_open(
    db: *const varve_db,
    name: *const c_char,
    out: *mut *mut varve_table,
) -> varve_code {
    // SAFETY: CAPI-2.
    let db = unsafe { &*db };
    guard(&db.0, || {
        // SAFETY: CAPI-2.
        let name = unsafe { text(name, "the table's name")? };
        let table = db.0.table(name)?;
        let directory = table.data_directory().and_then(Path::to_str);
        let handle = varve_table {
            db: db.0.clone(),
            data_directory: directory.and_then(|text| CString::new(text).ok()),
            table,
        };
        // SAFETY: CAPI-2.
        unsafe { out.write(Box::into_raw(Box::new(handle))) };
        Ok(VARVE_OK)
    })
}

/// Closes a table's handle; cursors on it may stay open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_table_close(table: *mut varve_table) {
    // SAFETY: CAPI-2; the box came from varve_table_open.
    drop(unsafe { Box::from_raw(table) });
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_table_n_columns(table: *const varve_table) -> u32 {
    // SAFETY: CAPI-2.
    unsafe { &*table }.table.def().columns.len() as u32
}

/// A number that becomes another one when the table is redefined, and is the same after a restart.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_table_hash(table: *const varve_table) -> u64 {
    // SAFETY: CAPI-2.
    unsafe { &*table }.table.def().hash()
}

/// Whether the table has exactly these columns and this primary key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_table_is_made_of(
    table: *const varve_table,
    def: *const varve_table_def,
) -> bool {
    // SAFETY: CAPI-2.
    let (table, def) = unsafe { ((&*table).table.def(), table_def(&*def)) };
    let Ok(def) = def else { return false };
    let columns = |def: &TableDef| -> Vec<_> {
        let columns = def.columns.iter();
        columns
            .map(|c| (c.name.clone(), c.ty, c.nullable))
            .collect()
    };
    let primary = |def: &TableDef| -> Vec<_> {
        let parts = def.primary.parts.iter();
        parts
            .map(|p| (p.column, p.descending, p.prefix_len))
            .collect()
    };
    columns(table) == columns(&def) && primary(table) == primary(&def)
}

/// Whether varve_redefinition_prepare takes this definition for the table.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_table_can_become(
    table: *const varve_table,
    def: *const varve_table_def,
) -> bool {
    // SAFETY: CAPI-2.
    let table = unsafe { &*table };
    // SAFETY: CAPI-2.
    let def = unsafe { redefined_as(&*def, table.table.def()) };
    def.is_ok_and(|def| table.db.check_redefinition(&table.table, &def).is_ok())
}

/// Whether the table has just this definition: varve_redefinition_prepare would take it, and change nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_table_is_defined_as(
    table: *const varve_table,
    def: *const varve_table_def,
) -> bool {
    // SAFETY: CAPI-2.
    let table = unsafe { &*table }.table.def();
    // SAFETY: CAPI-2.
    let to = unsafe { redefined_as(&*def, table) };
    to.and_then(|to| table.redefined(&to))
        .is_ok_and(|to| to == *table)
}

/// Whether varve_rebuild_prepare takes this definition for the table.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_table_can_be_rebuilt(
    table: *const varve_table,
    def: *const varve_table_def,
) -> bool {
    // SAFETY: CAPI-2.
    let table = unsafe { &*table }.table.def();
    // SAFETY: CAPI-2.
    let def = unsafe { redefined_as(&*def, table) };
    def.is_ok_and(|def| table.rebuilt(&def).is_ok())
}

/// Is it a temporary table? Nobody else can use it, so there is nobody to wait for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_table_is_temporary(table: *const varve_table) -> bool {
    // SAFETY: CAPI-2.
    unsafe { &*table }.table.is_temporary()
}

/// The directory that the table's file was given when it was created (varve_table_def), until the handle is
/// closed; null if it is in the data directory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_table_data_directory(table: *const varve_table) -> *const c_char {
    // SAFETY: CAPI-2.
    let directory = unsafe { &*table }.data_directory.as_deref();
    directory.map_or(ptr::null(), CStr::as_ptr)
}

/// Number of secondary indexes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_table_n_indexes(table: *const varve_table) -> u32 {
    // SAFETY: CAPI-2.
    unsafe { &*table }.table.def().indexes.len() as u32
}

/// An upper bound of the clustered keys that rows of the table can have, in bytes.
fn max_position(def: &TableDef) -> usize {
    if def.has_row_id() {
        return 8;
    }
    let part = |p: &KeyPart| {
        let c = &def.columns[p.column];
        let value = match c.ty {
            // Escapes at most double it.
            ColumnType::Bytes(max) => 2 * max as usize + 8,
            // A character of two bytes or more can have 18 weights of two bytes, which escapes make half as
            // long again; a character of one byte has at most two weights.
            ColumnType::Text { max_bytes, .. } => 27 * max_bytes as usize + 8,
            other => other.max_len(),
        };
        value + usize::from(c.nullable)
    };
    let parts: usize = def.primary.parts.iter().map(part).sum();
    parts.min(MAX_KEY_BYTES)
}

/// The longest position that varve_cursor_position can give for this table, in bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_table_max_position(table: *const varve_table) -> u32 {
    // SAFETY: CAPI-2.
    max_position(unsafe { &*table }.table.def()) as u32
}

/// The index of `table` that this thread's last VARVE_DUPLICATE_KEY was about: 0 the clustered one, 1, 2, …
/// the secondary ones, UINT32_MAX if it was about none of this table's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_last_error_index(table: *const varve_table) -> u32 {
    // SAFETY: CAPI-2.
    let table = unsafe { &*table };
    let index = last_duplicate_index();
    (table.table.index_by_name(&index)).map_or(u32::MAX, |at| at as u32)
}

/// Looks up a table's statistics.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_table_get_stats(
    table: *const varve_table,
    out: *mut varve_table_stats,
) -> varve_code {
    // SAFETY: CAPI-2.
    let table = unsafe { &*table };
    guard(&table.db, || {
        let stats = varve_table_stats::of(&table.table)?;
        // SAFETY: CAPI-2.
        unsafe { out.write(stats) };
        Ok(VARVE_OK)
    })
}

/// Estimates for each n = 1, 2, … how many rows share the first n parts of their key, on average: the index's
/// own parts, then in a secondary index those of the primary key. `out` gets at most `n` of them. Estimates
/// are kept, and made again when a tenth of the rows has come or gone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_table_rows_per_key(
    table: *const varve_table,
    index: u32,
    out: *mut f64,
    n: u32,
) -> varve_code {
    // SAFETY: CAPI-2.
    let table = unsafe { &*table };
    guard(&table.db, || {
        let estimate = table.table.index_estimate(index as usize)?;
        for (i, rows) in estimate.rows_per_key.iter().take(n as usize).enumerate() {
            // SAFETY: CAPI-2.
            unsafe { out.add(i).write(*rows) };
        }
        Ok(VARVE_OK)
    })
}

/// Makes the estimates about all indexes anew. `txn` may be null; if not, what interrupts its running
/// transaction ends this, too, and if it locks tables itself nobody drops or redefines this one until it
/// ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_table_analyze(
    table: *const varve_table,
    txn: *const varve_txn,
) -> varve_code {
    // SAFETY: CAPI-2.
    let (table, txn) = unsafe { (&*table, txn.as_ref()) };
    guard(&table.db, || {
        match txn {
            // SAFETY: CAPI-2.
            Some(txn) => unsafe { running(txn)? }.analyze(&table.table)?,
            None => table.table.analyze()?,
        }
        Ok(VARVE_OK)
    })
}

/// One end of a range of keys. `values` are the first `n` parts of the key, as varve_cursor_seek takes them;
/// none mean no limit on this side.
#[repr(C)]
pub struct varve_bound {
    pub values: *const varve_value,
    pub n: u32,
    pub inclusive: bool,
}

/// Estimates the number of rows between two keys of an index.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_table_records_in_range(
    table: *const varve_table,
    index: u32,
    low: *const varve_bound,
    high: *const varve_bound,
    out: *mut u64,
) -> varve_code {
    // SAFETY: CAPI-2.
    let (table, low, high) = unsafe { (&*table, &*low, &*high) };
    guard(&table.db, || {
        // SAFETY: CAPI-2.
        let rows = unsafe {
            with_datums(low.values, low.n, |l| {
                with_datums(high.values, high.n, |h| {
                    let l = (low.n != 0).then_some((l, low.inclusive));
                    let h = (high.n != 0).then_some((h, high.inclusive));
                    table.table.records_in_range(index as usize, l, h)
                })
            })?
        };
        // SAFETY: CAPI-2.
        unsafe { out.write(rows) };
        Ok(VARVE_OK)
    })
}

/// Makes `next` the counter's next value, durably.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_table_set_auto_increment(
    table: *const varve_table,
    next: u64,
) -> varve_code {
    // SAFETY: CAPI-2.
    let table = unsafe { &*table };
    guard(&table.db, || {
        table.table.set_auto_increment(next)?;
        if !table.table.is_temporary() {
            // The caller's statement commits nothing.
            table.db.flush_log()?;
        }
        Ok(VARVE_OK)
    })
}

/// Makes the counter's next value at least `next`, in memory only: rows with values of the counter make it
/// durable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_table_raise_auto_increment(table: *const varve_table, next: u64) {
    // SAFETY: CAPI-2.
    let table = unsafe { &*table };
    table.table.auto_increment_raise(next);
}

/// Checks a table's structure: order, links, counts, and that clustered and secondary entries pair up. Each
/// thing wrong goes to `each`, and makes the call return VARVE_CORRUPT; rows without a parent go there, too,
/// and do not. `rows` gets the number of rows. `txn`
/// may be null; if not, the check waits for others as long as its running transaction would, which has not
/// changed the table, and is interrupted with it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_table_check(
    table: *const varve_table,
    txn: *const varve_txn,
    each: varve_text_fn,
    context: *mut c_void,
    rows: *mut u64,
) -> varve_code {
    // SAFETY: CAPI-2.
    let (table, txn) = unsafe { (&*table, txn.as_ref()) };
    guard(&table.db, || {
        let report = match txn {
            // SAFETY: CAPI-2.
            Some(txn) => unsafe { running(txn)? }.check_table(&table.table)?,
            None => table.db.check_table(&table.table)?,
        };
        // SAFETY: CAPI-2.
        unsafe { rows.write(report.rows) };
        for e in report.errors.iter().chain(&report.notes) {
            // SAFETY: CAPI-2.
            unsafe { tell(each, context, e) };
        }
        if report.errors.is_empty() {
            Ok(VARVE_OK)
        } else {
            Ok(varve_code::VARVE_CORRUPT)
        }
    })
}
