//! Engines in C and C++, through the adapters in `native/`.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;
use std::ptr;

use anyhow::{Result, bail};

use crate::engine::{CACHE_BYTES, Durability, Engine, Scan, Visit, Worker};
use crate::rows::VALUE_BYTES;

type OnVisit = extern "C" fn(*mut c_void, u64, *const u8, usize);
type OnChange = extern "C" fn(*mut c_void, *mut u8, usize);

/// `peer_engine` of native/peer.h.
#[repr(C)]
struct Functions {
    open: unsafe extern "C" fn(*const c_char, u64, *mut *mut c_void) -> c_int,
    close: unsafe extern "C" fn(*mut c_void) -> c_int,
    worker_open: unsafe extern "C" fn(*mut c_void, c_int, *mut *mut c_void) -> c_int,
    worker_close: unsafe extern "C" fn(*mut c_void),
    load: unsafe extern "C" fn(*mut c_void, *const u64, usize, *const u8, usize) -> c_int,
    get: unsafe extern "C" fn(*mut c_void, u64, OnVisit, *mut c_void) -> c_int,
    update: unsafe extern "C" fn(*mut c_void, u64, OnChange, *mut c_void) -> c_int,
    hold: unsafe extern "C" fn(*mut c_void) -> c_int,
    scan: unsafe extern "C" fn(*mut c_void, OnVisit, *mut c_void) -> c_int,
    release: unsafe extern "C" fn(*mut c_void) -> c_int,
    message: unsafe extern "C" fn() -> *const c_char,
}

unsafe extern "C" {
    static peer_rocksdb: Functions;
    static peer_wiredtiger: Functions;
}

pub fn open_rocksdb(dir: &Path) -> Result<Box<dyn Engine>> {
    // SAFETY: a constant of the adapter, laid out as `Functions`.
    open(unsafe { &peer_rocksdb }, dir)
}

pub fn open_wiredtiger(dir: &Path) -> Result<Box<dyn Engine>> {
    // SAFETY: as above.
    open(unsafe { &peer_wiredtiger }, dir)
}

struct Native {
    functions: &'static Functions,
    engine: *mut c_void,
}

// SAFETY: the adapters' engines may be used by several threads; each makes its own worker.
unsafe impl Sync for Native {}

fn open(functions: &'static Functions, dir: &Path) -> Result<Box<dyn Engine>> {
    let dir = CString::new(dir.to_str().expect("a path in UTF-8"))?;
    let mut engine = ptr::null_mut();
    // SAFETY: the arguments live through the call.
    let code = unsafe { (functions.open)(dir.as_ptr(), CACHE_BYTES, &mut engine) };
    check(functions, code)?;
    Ok(Box::new(Native { functions, engine }))
}

fn check(functions: &Functions, code: c_int) -> Result<()> {
    if code == 0 {
        return Ok(());
    }
    // SAFETY: a string of the adapter's that lives as long as the thread.
    let message = unsafe { CStr::from_ptr((functions.message)()) };
    bail!("{}", message.to_string_lossy())
}

impl Drop for Native {
    fn drop(&mut self) {
        // SAFETY: no worker is left: each borrows the engine.
        unsafe { (self.functions.close)(self.engine) };
    }
}

impl Engine for Native {
    fn worker(&self, durability: Durability) -> Result<Box<dyn Worker + '_>> {
        let mut worker = ptr::null_mut();
        let sync = c_int::from(durability == Durability::Synced);
        // SAFETY: the engine is open.
        let code = unsafe { (self.functions.worker_open)(self.engine, sync, &mut worker) };
        check(self.functions, code)?;
        let functions = self.functions;
        Ok(Box::new(Thread { functions, worker }))
    }
}

struct Thread {
    functions: &'static Functions,
    worker: *mut c_void,
}

impl Drop for Thread {
    fn drop(&mut self) {
        // SAFETY: opened by `worker_open`, closed once.
        unsafe { (self.functions.worker_close)(self.worker) };
    }
}

extern "C" fn on_visit(context: *mut c_void, key: u64, value: *const u8, len: usize) {
    // SAFETY: `context` is the `Visit` that the caller below passed, the value lives through the call.
    let (visit, value) = unsafe {
        (
            &mut *context.cast::<Visit<'_>>(),
            std::slice::from_raw_parts(value, len),
        )
    };
    visit(key, value);
}

extern "C" fn on_change(context: *mut c_void, value: *mut u8, len: usize) {
    // SAFETY: as above; nobody else has the value during the call.
    let (change, value) = unsafe {
        (
            &mut *context.cast::<&mut dyn FnMut(&mut [u8])>(),
            std::slice::from_raw_parts_mut(value, len),
        )
    };
    change(value);
}

impl Worker for Thread {
    fn load(&mut self, keys: &[u64], values: &[u8]) -> Result<()> {
        assert_eq!(values.len(), keys.len() * VALUE_BYTES);
        let (f, n) = (self.functions, keys.len());
        // SAFETY: the slices have the lengths that are passed.
        let code = unsafe { (f.load)(self.worker, keys.as_ptr(), n, values.as_ptr(), VALUE_BYTES) };
        check(f, code)
    }

    fn get(&mut self, key: u64, mut visit: Visit<'_>) -> Result<()> {
        let context = (&raw mut visit).cast();
        // SAFETY: the context lives through the call, and `on_visit` knows its type.
        let code = unsafe { (self.functions.get)(self.worker, key, on_visit, context) };
        check(self.functions, code)
    }

    fn update(&mut self, key: u64, mut change: &mut dyn FnMut(&mut [u8])) -> Result<()> {
        let context = (&raw mut change).cast();
        // SAFETY: as in `get`.
        let code = unsafe { (self.functions.update)(self.worker, key, on_change, context) };
        check(self.functions, code)
    }

    fn snapshot(&mut self, with: &mut dyn FnMut(Scan<'_>) -> Result<()>) -> Result<()> {
        let (f, worker) = (self.functions, self.worker);
        // SAFETY: the worker is open, and holds no snapshot.
        check(f, unsafe { (f.hold)(worker) })?;
        let end = with(&mut |mut visit| {
            let context = (&raw mut visit).cast();
            // SAFETY: as in `get`; the snapshot is held.
            check(f, unsafe { (f.scan)(worker, on_visit, context) })
        });
        // SAFETY: it was held above.
        end.and(check(f, unsafe { (f.release)(worker) }))
    }
}
