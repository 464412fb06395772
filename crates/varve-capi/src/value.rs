//! `varve_value`: a column's value as C sees it.

use std::ptr;

use varve::Datum;

/// A column's value. `ptr` is null for SQL NULL. Integers and floats are little-endian, of the column's
/// width; fixed columns have exactly their width; an empty byte string has a pointer, which is not looked at.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct varve_value {
    pub ptr: *const u8,
    pub len: u32,
}

impl varve_value {
    pub const NULL: varve_value = varve_value {
        ptr: ptr::null(),
        len: 0,
    };

    #[inline]
    pub fn of(datum: Datum<'_>) -> varve_value {
        match datum {
            None => varve_value::NULL,
            Some(b) => varve_value {
                ptr: b.as_ptr(),
                len: b.len() as u32,
            },
        }
    }

    /// The bytes behind the value.
    ///
    /// # Safety
    /// `ptr` is null or points to `len` bytes that outlive `'a` unchanged.
    #[inline]
    pub(crate) unsafe fn datum<'a>(self) -> Datum<'a> {
        if self.ptr.is_null() {
            return None;
        }
        // SAFETY: the caller's promise.
        Some(unsafe { slice_of(self.ptr, self.len as usize) })
    }
}

/// A slice from C: the pointer of an empty one is not looked at.
///
/// # Safety
/// If `len` is not 0, `ptr` points to `len` values that outlive `'a` unchanged.
#[inline]
pub unsafe fn slice_of<'a, T>(ptr: *const T, len: usize) -> &'a [T] {
    if len == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(ptr, len) }
}

/// Calls `f` with the values as datums, without allocating unless there are many.
///
/// # Safety
/// As for `varve_value::datum`, for each of the `n` values at `values`, for the time of the call.
#[inline]
pub unsafe fn with_datums<R>(
    values: *const varve_value,
    n: u32,
    f: impl FnOnce(&[Datum<'_>]) -> R,
) -> R {
    // SAFETY: the caller's promise.
    let values = unsafe { slice_of(values, n as usize) };
    // SAFETY: the caller's promise.
    let datums = values.iter().map(|v| unsafe { v.datum() });
    // Nearly all search keys and many rows have so few that clearing the room for more would show.
    match values.len() {
        0..=8 => f(filled(&mut [None; 8], datums)),
        9..=64 => f(filled(&mut [None; 64], datums)),
        _ => f(&datums.collect::<Vec<_>>()),
    }
}

#[inline]
fn filled<'a, 'v>(
    room: &'a mut [Datum<'v>],
    datums: impl ExactSizeIterator<Item = Datum<'v>>,
) -> &'a [Datum<'v>] {
    let n = datums.len();
    room.iter_mut()
        .zip(datums)
        .for_each(|(to, datum)| *to = datum);
    &room[..n]
}
