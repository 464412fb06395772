//! `varve_value_source`: values that only the caller can make, for rows that the engine makes: a foreign key
//! changes them, or their table is rebuilt.

use std::ffi::{c_char, c_void};

use varve::{Datum, DatumBuf, Error, ValueSource};

use crate::collation::c_text;
use crate::value::varve_value;

/// The functions are called by the session's own thread, within the call that changes the parent's row, or
/// rebuilds the table. False: there is no such value, and the change is refused. What `out` points to stays
/// as it is until the next call of the function, or the end of the call that changes the row.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct varve_value_source {
    pub context: *mut c_void,
    /// When the statement began, as the columns of varve_system_time have it.
    pub statement_time: unsafe extern "C" fn(context: *mut c_void, out: *mut varve_value) -> bool,
    /// The values of `n` computed columns of a table ("schema/table"), of which `columns` has the positions,
    /// by the others of this row; of the AUTO_INCREMENT column, where that is new, the row's number; it
    /// comes first.
    pub computed: unsafe extern "C" fn(
        context: *mut c_void,
        table: *const c_char,
        row: *const varve_value,
        columns: *const u32,
        n: u32,
        out: *mut varve_value,
    ) -> bool,
    /// The values of `n` columns of a table that is rebuilt, of which `columns` has the positions, by its
    /// `row_number`th row as it was; 0 if that was asked before, or the row is gone: then nobody is to be
    /// told of what is lost.
    pub converted: unsafe extern "C" fn(
        context: *mut c_void,
        table: *const c_char,
        row: *const varve_value,
        columns: *const u32,
        n: u32,
        row_number: u64,
        out: *mut varve_value,
    ) -> bool,
    /// What the column at this position, which ceases to take NULL, has where the `row`th row of a table that
    /// is rebuilt has NULL; 0 if that was asked before, or the row is gone.
    pub instead_of_null: unsafe extern "C" fn(
        context: *mut c_void,
        table: *const c_char,
        column: u32,
        row: u64,
        out: *mut varve_value,
    ) -> bool,
}

// SAFETY: it is used by the session's own thread only; that thread may be another one in each call.
unsafe impl Send for varve_value_source {}
// SAFETY: the same.
unsafe impl Sync for varve_value_source {}

/// Has a function of the caller fill in values of these columns; none, if it does not.
fn ask(
    table: &str,
    row: &[Datum<'_>],
    columns: &[usize],
    fill: impl FnOnce(*const c_char, *const varve_value, *const u32, u32, *mut varve_value) -> bool,
) -> Option<DatumBuf> {
    let name = c_text(table);
    let row: Vec<_> = row.iter().map(|datum| varve_value::of(*datum)).collect();
    let columns: Vec<_> = columns.iter().map(|column| *column as u32).collect();
    let mut out = vec![varve_value::NULL; columns.len()];
    let (n, to) = (columns.len() as u32, out.as_mut_ptr());
    if !fill(name.as_ptr(), row.as_ptr(), columns.as_ptr(), n, to) {
        return None;
    }
    let mut values = DatumBuf::new();
    for value in out {
        // SAFETY: CAPI-2; the value is copied at once.
        values.push(unsafe { value.datum() });
    }
    Some(values)
}

impl ValueSource for varve_value_source {
    fn statement_time(&self) -> varve::Result<Vec<u8>> {
        let mut time = varve_value::NULL;
        // SAFETY: CAPI-2.
        let is_told = unsafe { (self.statement_time)(self.context, &mut time) };
        // SAFETY: CAPI-2; the value is copied at once.
        match unsafe { time.datum() } {
            Some(bytes) if is_told => Ok(bytes.to_vec()),
            _ => Err(Error::invalid(
                "the caller does not say when the statement began",
            )),
        }
    }

    fn computed(
        &self,
        table: &str,
        row: &[Datum<'_>],
        columns: &[usize],
    ) -> varve::Result<DatumBuf> {
        let computed = |name, row, columns, n, out| {
            // SAFETY: CAPI-2. All pointers are to as many values as the call is told of.
            unsafe { (self.computed)(self.context, name, row, columns, n, out) }
        };
        ask(table, row, columns, computed).ok_or_else(|| {
            Error::invalid(format!(
                "the caller computes no values for a row of table {table}"
            ))
        })
    }

    fn converted(
        &self,
        table: &str,
        row: &[Datum<'_>],
        columns: &[usize],
        number: u64,
    ) -> varve::Result<DatumBuf> {
        let converted = |name, row, columns, n, out| {
            // SAFETY: CAPI-2. All pointers are to as many values as the call is told of.
            unsafe { (self.converted)(self.context, name, row, columns, n, number, out) }
        };
        ask(table, row, columns, converted)
            .ok_or_else(|| Error::invalid(format!("the caller converts no row of table {table}")))
    }

    fn instead_of_null(&self, table: &str, column: usize, n: u64) -> Option<Vec<u8>> {
        let name = c_text(table);
        let mut out = varve_value::NULL;
        // SAFETY: CAPI-2.
        let is_told = unsafe {
            (self.instead_of_null)(self.context, name.as_ptr(), column as u32, n, &mut out)
        };
        // SAFETY: CAPI-2; the value is copied at once.
        unsafe { out.datum() }
            .filter(|_| is_told)
            .map(<[u8]>::to_vec)
    }
}
