//! Collations that the caller brings: C functions behind the engine's `Weigh`.

use std::ffi::{CStr, CString, c_char, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Arc;

use varve::{Collation, CollationId, Error, Letters, Pad, Weigh};

use crate::choice::{choice, chosen};

/// How a character set stores characters.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum varve_letters {
    /// In any other way.
    VARVE_LETTERS_UNKNOWN = 0,
    /// Each in one byte, those of ASCII as there.
    VARVE_LETTERS_BYTES = 1,
    VARVE_LETTERS_UTF8 = 2,
}

/// Of so many texts an entry of an index may give the values back, at most: of the first ones among its own
/// columns and those of the primary key, which come behind. Parts of columns do not count.
pub const VARVE_MOST_FORMS: u32 = 3;

const _: () = assert!(VARVE_MOST_FORMS as usize == varve::MOST_FORMS);

choice!(
    varve_letters: VARVE_LETTERS_UNKNOWN,
    VARVE_LETTERS_BYTES,
    VARVE_LETTERS_UTF8
);

/// A collation: an order of texts, given as a function from a text to weights whose memcmp order it is.
///
/// The functions are called from any thread, at the same time too, as long as the database is open.
#[repr(C)]
pub struct varve_collation {
    /// The caller's number for it, below 1 << 31.
    pub id: u32,
    pub name: *const c_char,
    /// Names the data behind the order (a Unicode version, a library's version). An index that was built with
    /// another version is closed until it is rebuilt.
    pub version: *const c_char,
    /// The weights of a text are its bytes: `weights` is not called and may be null.
    pub bytewise: bool,
    /// PAD SPACE: all weights consist of units of this many bytes (1 to 4), and the first unit of
    /// `pad_weight` is that of a space. 0 for NO PAD. `weights` never pads.
    pub pad_unit: u8,
    pub pad_weight: [u8; 4],
    /// How characters are stored. If that is known, entries of indexes may give texts back. Of an id that
    /// indexes have been made with it must never become another one.
    pub letters: MaybeUninit<varve_letters>,
    /// The functions' first argument.
    pub context: *mut c_void,
    /// Writes the weights of a text. Returns how many bytes they take; more than `capacity` if there is not
    /// room for them, and then it is called again with at least that much.
    pub weights: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            text: *const u8,
            len: usize,
            out: *mut u8,
            capacity: usize,
        ) -> usize,
    >,
    /// How many bytes the first `chars` characters of a text take, at most `len`.
    pub prefix_bytes: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            text: *const u8,
            len: usize,
            chars: usize,
        ) -> usize,
    >,
}

type WeightsFn = unsafe extern "C" fn(*mut c_void, *const u8, usize, *mut u8, usize) -> usize;
type PrefixFn = unsafe extern "C" fn(*mut c_void, *const u8, usize, usize) -> usize;

struct Functions {
    context: *mut c_void,
    weights: Option<WeightsFn>,
    prefix_bytes: PrefixFn,
    letters: Letters,
}

// SAFETY: the caller promises that the functions may be called from any thread with this context.
unsafe impl Send for Functions {}
// SAFETY: as above, at the same time too.
unsafe impl Sync for Functions {}

impl Weigh for Functions {
    fn weights(&self, text: &[u8], out: &mut Vec<u8>) {
        let Some(weights) = self.weights else {
            out.extend_from_slice(text);
            return;
        };
        let mut room = text.len() * 2 + 16;
        loop {
            out.reserve(room);
            let spare = out.spare_capacity_mut();
            let capacity = spare.len();
            let to = spare.as_mut_ptr().cast::<u8>();
            // SAFETY: `to` has room for `capacity` bytes, and the caller's function writes no more.
            let len = unsafe { weights(self.context, text.as_ptr(), text.len(), to, capacity) };
            if len <= capacity {
                // SAFETY: the function wrote `len` bytes there.
                unsafe { out.set_len(out.len() + len) };
                return;
            }
            room = len;
        }
    }

    fn prefix_bytes(&self, text: &[u8], chars: usize) -> usize {
        // SAFETY: the pointer has that many bytes.
        unsafe { (self.prefix_bytes)(self.context, text.as_ptr(), text.len(), chars) }
    }

    fn letters(&self) -> Letters {
        self.letters
    }
}

/// The engine's collation from C's.
///
/// # Safety
/// `c` is valid, and its functions and context stay so as long as the database is open.
unsafe fn collation(c: &varve_collation) -> varve::Result<Collation> {
    // SAFETY: the caller's promise.
    let name = unsafe { text(c.name, "the collation's name")? };
    // SAFETY: the caller's promise.
    let version = unsafe { text(c.version, "the collation's version")? };
    if c.id >= 1 << 31 {
        return Err(Error::invalid(format!(
            "collation {name}: ids from 2^31 on are Varve's own"
        )));
    }
    let (Some(prefix_bytes), true) = (c.prefix_bytes, c.bytewise || c.weights.is_some()) else {
        return Err(Error::invalid(format!(
            "collation {name} lacks one of its functions"
        )));
    };
    let pad = match c.pad_unit {
        0 => Pad::None,
        unit => Pad::Space {
            unit,
            weight: c.pad_weight,
        },
    };
    let id = CollationId(c.id);
    let functions = Arc::new(Functions {
        context: c.context,
        weights: c.weights,
        prefix_bytes,
        letters: match chosen("the collation's letters", c.letters)? {
            varve_letters::VARVE_LETTERS_UNKNOWN => Letters::Unknown,
            varve_letters::VARVE_LETTERS_BYTES => Letters::Bytes,
            varve_letters::VARVE_LETTERS_UTF8 => Letters::Utf8,
        },
    });
    if c.bytewise {
        Collation::bytewise(id, name, pad, functions)
    } else {
        Collation::new(id, name, version, pad, functions)
    }
}

/// A C string as UTF-8.
///
/// # Safety
/// `s` is null or NUL-terminated, and outlives `'a` unchanged.
pub unsafe fn text<'a>(s: *const c_char, what: &str) -> varve::Result<&'a str> {
    if s.is_null() {
        return Err(Error::invalid(format!("{what} is missing")));
    }
    // SAFETY: the caller's promise.
    let s = unsafe { CStr::from_ptr(s) };
    s.to_str()
        .map_err(|_| Error::invalid(format!("{what} is not UTF-8: {}", s.to_string_lossy())))
}

/// A text for C, which has no NUL in its texts: a space stands for it.
pub fn c_text(text: &str) -> CString {
    CString::new(text.replace('\0', " ")).unwrap_or_default()
}

/// Fills in `out` with the collation that has number `id`, and returns true; false if there is none. Called
/// when a table that uses it is created or opened, at most once for each number, also while the database is
/// being opened. What `out` points to must stay as long as the database is open, `name` and `version` only
/// until the next call.
pub type varve_find_collation_fn =
    unsafe extern "C" fn(context: *mut c_void, id: u32, out: *mut varve_collation) -> bool;

/// The caller's collations.
pub struct Finder {
    find: varve_find_collation_fn,
    context: *mut c_void,
}

// SAFETY: the caller promises that the function may be called from any thread with this context.
unsafe impl Send for Finder {}
// SAFETY: as above, at the same time too.
unsafe impl Sync for Finder {}

impl Finder {
    pub fn new(find: varve_find_collation_fn, context: *mut c_void) -> Finder {
        Finder { find, context }
    }

    pub fn find(&self, id: CollationId) -> varve::Result<Option<Collation>> {
        let mut out = varve_collation {
            id: id.0,
            name: ptr::null(),
            version: ptr::null(),
            bytewise: false,
            pad_unit: 0,
            pad_weight: [0; 4],
            letters: MaybeUninit::new(varve_letters::VARVE_LETTERS_UNKNOWN),
            context: ptr::null_mut(),
            weights: None,
            prefix_bytes: None,
        };
        // SAFETY: `out` outlives the call; the rest is CAPI-2.
        unsafe {
            match (self.find)(self.context, id.0, &mut out) {
                true => collation(&out).map(Some),
                false => Ok(None),
            }
        }
    }
}
