//! `varve_value`: a column's value as C sees it.

use std::ptr;

use varve::Datum;

/// A column's value. `ptr` is null for SQL NULL. Integers and floats are little-endian, of the column's width; fixed
/// columns have exactly their width; an empty byte string has a pointer, which is not looked at.
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
    unsafe fn datum<'a>(self) -> Datum<'a> {
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

/// Most values that are converted without allocating.
const INLINE: usize = 64;

/// Calls `f` with the values as datums.
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
    if values.len() <= INLINE {
        let mut datums: [Datum<'_>; INLINE] = [None; INLINE];
        for (d, v) in datums.iter_mut().zip(values) {
            // SAFETY: the caller's promise.
            *d = unsafe { v.datum() };
        }
        return f(&datums[..values.len()]);
    }
    // SAFETY: the caller's promise.
    let datums: Vec<Datum<'_>> = values.iter().map(|v| unsafe { v.datum() }).collect();
    f(&datums)
}
