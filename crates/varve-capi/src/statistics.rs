//! Statistics of tables as named values, which the caller stores and gives back.

use std::ffi::{CString, c_char, c_void};
use std::mem::MaybeUninit;

use varve::{NullsInKeys, Statistic, TableStatistics};

use crate::choice::{choice, chosen};
use crate::collation::text;
use crate::error::guard;
use crate::error::varve_code::{self, VARVE_NO_ROW, VARVE_OK};
use crate::table::varve_table;
use crate::txn::{running, varve_txn};
use crate::value::slice_of;

/// What is known of a table as a whole.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct varve_totals {
    pub rows: u64,
    pub clustered_pages: u64,
    pub secondary_pages: u64,
}

/// A value that is known of an index, under InnoDB's names: n_diff_pfx01, …, n_leaf_pages, size.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct varve_statistic {
    pub index: *const c_char,
    pub name: *const c_char,
    pub value: u64,
    /// How many leaves were looked at for it, if any were.
    pub has_sample: bool,
    pub sample: u64,
    /// For people. Null in what the caller gives.
    pub about: *const c_char,
}

/// Receives what is known of a table's indexes, one call for each value. The pointers are valid during the
/// call.
pub type varve_statistic_fn =
    unsafe extern "C" fn(context: *mut c_void, statistic: *const varve_statistic);

/// What keys with a NULL are to estimates.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum varve_nulls {
    /// All NULLs are one value.
    VARVE_NULLS_EQUAL = 0,
    /// Each one is a value of its own.
    VARVE_NULLS_UNEQUAL = 1,
    /// Rows with one are not looked at.
    VARVE_NULLS_IGNORED = 2,
}

choice!(varve_nulls: VARVE_NULLS_EQUAL, VARVE_NULLS_UNEQUAL, VARVE_NULLS_IGNORED);

/// How many leaves of each index are looked at for estimates from now on, and what keys with a NULL are to
/// them, whoever asks for them. What is no varve_nulls is VARVE_NULLS_EQUAL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_table_set_sampling(
    table: *const varve_table,
    leaves: u32,
    nulls: MaybeUninit<varve_nulls>,
) {
    let nulls = match chosen("nulls", nulls) {
        Ok(varve_nulls::VARVE_NULLS_UNEQUAL) => NullsInKeys::Unequal,
        Ok(varve_nulls::VARVE_NULLS_IGNORED) => NullsInKeys::Ignored,
        Ok(varve_nulls::VARVE_NULLS_EQUAL) | Err(_) => NullsInKeys::Equal,
    };
    // SAFETY: CAPI-2.
    let table = unsafe { &(*table).table };
    table.set_sample_leaves(leaves);
    table.set_nulls_in_keys(nulls);
}

/// Whether estimates are kept (varve_table_keep_statistics, varve_table_set_statistics); how many rows the
/// table had when they were made goes to `rows`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_table_keeps_statistics(
    table: *const varve_table,
    rows: *mut u64,
) -> bool {
    // SAFETY: CAPI-2.
    let kept = unsafe { &*table }.table.kept_statistics_rows();
    // SAFETY: CAPI-2.
    unsafe { rows.write(kept.unwrap_or(0)) };
    kept.is_some()
}

/// Tells the estimates that there are. From now on they stay as they are, until varve_table_analyze or
/// varve_table_set_statistics. `txn` may be null; if not, and it locks tables itself, nobody drops or
/// redefines this one until its running transaction ends. VARVE_NO_ROW: there are none yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_table_keep_statistics(
    table: *const varve_table,
    txn: *const varve_txn,
    totals: *mut varve_totals,
    each: varve_statistic_fn,
    context: *mut c_void,
) -> varve_code {
    // SAFETY: CAPI-2.
    let (table, txn) = unsafe { (&*table, txn.as_ref()) };
    guard(&table.db, || {
        let told = match txn {
            // SAFETY: CAPI-2.
            Some(txn) => unsafe { running(txn)? }.keep_statistics(&table.table)?,
            None => table.table.keep_statistics()?,
        };
        let Some(told) = told else {
            return Ok(VARVE_NO_ROW);
        };
        let c = |text: String| CString::new(text).unwrap_or_default();
        for s in told.indexes {
            let (index, name, about) = (c(s.index), c(s.name), c(s.about));
            let statistic = varve_statistic {
                index: index.as_ptr(),
                name: name.as_ptr(),
                value: s.value,
                has_sample: s.sampled.is_some(),
                sample: s.sampled.unwrap_or(0),
                about: about.as_ptr(),
            };
            // SAFETY: CAPI-2.
            unsafe { each(context, &statistic) };
        }
        let found = varve_totals {
            rows: told.rows,
            clustered_pages: told.clustered_pages,
            secondary_pages: told.secondary_pages,
        };
        // SAFETY: CAPI-2.
        unsafe { totals.write(found) };
        Ok(VARVE_OK)
    })
}

/// The table's estimates become these, whatever it contains, and stay like that. Nothing is too absurd; what
/// is said of indexes or columns that the table has not got is passed over. `complete` is whether something
/// was said of each index; the others are looked at.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_table_set_statistics(
    table: *const varve_table,
    totals: *const varve_totals,
    statistics: *const varve_statistic,
    n: u32,
    complete: *mut bool,
) -> varve_code {
    // SAFETY: CAPI-2.
    let (table, totals) = unsafe { (&*table, &*totals) };
    guard(&table.db, || {
        // SAFETY: CAPI-2.
        let given = unsafe { slice_of(statistics, n as usize) };
        let statistic = |s: &varve_statistic| -> varve::Result<Statistic> {
            // SAFETY: CAPI-2.
            let (index, name) = unsafe {
                (
                    text(s.index, "an index's name")?,
                    text(s.name, "a statistic's name")?,
                )
            };
            Ok(Statistic {
                index: index.into(),
                name: name.into(),
                value: s.value,
                sampled: s.has_sample.then_some(s.sample),
                about: String::new(),
            })
        };
        let told = TableStatistics {
            rows: totals.rows,
            clustered_pages: totals.clustered_pages,
            secondary_pages: totals.secondary_pages,
            indexes: given.iter().map(statistic).collect::<varve::Result<_>>()?,
        };
        let is_complete = table.table.set_statistics(&told)?;
        // SAFETY: CAPI-2.
        unsafe { complete.write(is_complete) };
        Ok(VARVE_OK)
    })
}
