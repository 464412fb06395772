//! Who measures background threads, files and memory: a server's performance schema.

use std::any::Any;
use std::ffi::{CString, c_char, c_int, c_void};
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::ptr;

use varve::{FileOperation, Instruments, Memory, set_instruments};

use crate::error::guard_without_database as guard;
use crate::error::varve_code::{self, VARVE_OK};

/// What is done with a file.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum varve_file_operation {
    VARVE_FILE_CREATE,
    VARVE_FILE_OPEN,
    /// It is about to be closed.
    VARVE_FILE_CLOSE,
    VARVE_FILE_READ,
    VARVE_FILE_WRITE,
    VARVE_FILE_SYNC,
    VARVE_FILE_CHANGE_SIZE,
    VARVE_FILE_REMOVE,
    VARVE_FILE_RENAME,
}

/// What is done with which file.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct varve_file_event {
    pub operation: varve_file_operation,
    /// Of a file that is created, opened, removed or renamed; otherwise null.
    pub path: *const c_char,
    /// What it is renamed to; otherwise null.
    pub to: *const c_char,
    /// Of one that is open; otherwise -1. It belongs to no other file until that is closed.
    pub descriptor: c_int,
    /// Those that are read or written.
    pub bytes: usize,
}

/// Does what is measured. Returns the descriptor of a file that was created or opened, 0 for anything else,
/// -1 if it has failed.
pub type varve_file_call = unsafe extern "C" fn(context: *mut c_void) -> c_int;

/// What memory is for.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum varve_memory {
    /// The frames of the pages, as many as there may be.
    VARVE_MEMORY_BUFFER_POOL,
    /// Redo on its way to the disk.
    VARVE_MEMORY_LOG_BUFFER,
    /// Entries that are sorted for new indexes and loads.
    VARVE_MEMORY_SORT_BUFFERS,
}

/// Told of all that is measured, by the thread that does it. None of them may call this library.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct varve_instruments {
    /// A background thread begins: before all else, and only once.
    pub thread_begins: unsafe extern "C" fn(name: *const c_char),
    pub thread_ends: unsafe extern "C" fn(),
    /// Measures `call`, which has to be called once. What goes through io_uring is told as it begins, and
    /// takes no time.
    pub file: unsafe extern "C" fn(
        event: *const varve_file_event,
        call: varve_file_call,
        context: *mut c_void,
    ),
    /// So many bytes are taken, or given back if that is negative.
    pub memory: unsafe extern "C" fn(what: varve_memory, bytes: i64),
}

/// Has these measure what all databases of this process do from now on, for as long as it runs. Call it
/// before the first one is opened: files that are open already would be told without their names.
///
/// # Errors
///
/// `VARVE_ALREADY_EXISTS`: there are some.
///
/// # Safety
///
/// `instruments` points to such a structure. Its functions may be called by any thread until the process
/// ends, or no database is open any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_set_instruments(
    instruments: *const varve_instruments,
) -> varve_code {
    guard(|| {
        // SAFETY: the caller's promise.
        let instruments = unsafe { *instruments };
        set_instruments(Box::new(Caller(instruments)))?;
        Ok(VARVE_OK)
    })
}

struct Caller(varve_instruments);

/// A name that is none in C, which no file of ours has, is empty.
fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap_or_default()
}

/// What is measured, and the panic that it came to, which goes on behind the caller's function.
struct Measured<'a> {
    call: &'a mut dyn FnMut() -> RawFd,
    panic: Option<Box<dyn Any + Send>>,
}

/// Calls what is behind the context.
unsafe extern "C" fn call(context: *mut c_void) -> c_int {
    // SAFETY: `Caller::file` has passed it, and is still there.
    let measured = unsafe { &mut *context.cast::<Measured<'_>>() };
    match catch_unwind(AssertUnwindSafe(&mut *measured.call)) {
        Ok(done) => done,
        Err(panic) => {
            measured.panic = Some(panic);
            -1
        }
    }
}

impl Instruments for Caller {
    fn thread_begins(&self, name: &str) {
        let name = CString::new(name).unwrap_or_default();
        // SAFETY: as `varve_set_instruments` was promised; so below.
        unsafe { (self.0.thread_begins)(name.as_ptr()) }
    }

    fn thread_ends(&self) {
        // SAFETY: see above.
        unsafe { (self.0.thread_ends)() }
    }

    fn file(&self, operation: FileOperation<'_>, does: &mut dyn FnMut() -> RawFd) {
        use varve_file_operation::*;
        let (operation, path, to, descriptor, bytes) = match operation {
            FileOperation::Create(path) => (VARVE_FILE_CREATE, Some(path), None, -1, 0),
            FileOperation::Open(path) => (VARVE_FILE_OPEN, Some(path), None, -1, 0),
            FileOperation::Close(file) => (VARVE_FILE_CLOSE, None, None, file, 0),
            FileOperation::Read(file, bytes) => (VARVE_FILE_READ, None, None, file, bytes),
            FileOperation::Write(file, bytes) => (VARVE_FILE_WRITE, None, None, file, bytes),
            FileOperation::Sync(file) => (VARVE_FILE_SYNC, None, None, file, 0),
            FileOperation::ChangeSize(file) => (VARVE_FILE_CHANGE_SIZE, None, None, file, 0),
            FileOperation::Remove(path) => (VARVE_FILE_REMOVE, Some(path), None, -1, 0),
            FileOperation::Rename(path, to) => (VARVE_FILE_RENAME, Some(path), Some(to), -1, 0),
        };
        let (path, to) = (path.map(c_path), to.map(c_path));
        let c_text = |text: &Option<CString>| text.as_ref().map_or(ptr::null(), |t| t.as_ptr());
        let event = varve_file_event {
            operation,
            path: c_text(&path),
            to: c_text(&to),
            descriptor,
            bytes,
        };
        let mut measured = Measured {
            call: does,
            panic: None,
        };
        // SAFETY: see above; event and context are there until it returns.
        unsafe { (self.0.file)(&event, call, ptr::from_mut(&mut measured).cast()) }
        if let Some(panic) = measured.panic {
            resume_unwind(panic);
        }
    }

    fn memory(&self, what: Memory, bytes: i64) {
        use varve_memory::*;
        let what = match what {
            Memory::BufferPool => VARVE_MEMORY_BUFFER_POOL,
            Memory::LogBuffer => VARVE_MEMORY_LOG_BUFFER,
            Memory::SortBuffers => VARVE_MEMORY_SORT_BUFFERS,
        };
        // SAFETY: see above.
        unsafe { (self.0.memory)(what, bytes) }
    }
}
