//! Who measures background threads, files and memory, as the server's performance schema does: one for the
//! process, and nobody by default. Then each place that could be measured costs a load.
//!
//! - **INSTR-1** A thread, an open file and memory that were told to begin are told to end. Of a file that is
//!   removed, or replaced, while it is open that is later than its end by name.

use std::os::fd::RawFd;
use std::path::Path;
use std::sync::OnceLock;

use super::{Error, Result};

/// What is done with a file. One that is open is known by its descriptor, which belongs to no other one until
/// it is closed.
#[derive(Clone, Copy, Debug)]
pub enum FileOperation<'a> {
    Create(&'a Path),
    Open(&'a Path),
    /// It is about to be closed.
    Close(RawFd),
    /// So many bytes.
    Read(RawFd, usize),
    Write(RawFd, usize),
    Sync(RawFd),
    ChangeSize(RawFd),
    Remove(&'a Path),
    Rename(&'a Path, &'a Path),
}

/// What memory is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// The frames of the pages, as many as there may be.
    BufferPool,
    /// Redo on its way to the disk.
    LogBuffer,
    /// Entries that are sorted for new indexes and loads.
    SortBuffers,
}

/// Told of all that is measured, by the thread that does it.
pub trait Instruments: Send + Sync {
    /// A background thread begins: before all else, and only once.
    fn thread_begins(&self, name: &str);
    fn thread_ends(&self);
    /// Measures `call`, which is called once, and returns the descriptor of a file that it has opened, any
    /// other number that is not negative if it has done something else, and -1 if it has failed.
    fn file(&self, operation: FileOperation<'_>, call: &mut dyn FnMut() -> RawFd);
    /// So many bytes are taken, or given back.
    fn memory(&self, what: Memory, bytes: i64);
}

static INSTRUMENTS: OnceLock<Box<dyn Instruments>> = OnceLock::new();

/// From now on, for all databases of the process; to be called before the first one is opened, as files that
/// are open already would be told without their names.
///
/// # Errors
///
/// There are some.
pub fn set_instruments(instruments: Box<dyn Instruments>) -> Result<()> {
    INSTRUMENTS
        .set(instruments)
        .map_err(|_| Error::AlreadyExists {
            what: "a set of instruments".into(),
        })
}

/// Whether there is somebody to be told.
pub(crate) fn is_measured() -> bool {
    INSTRUMENTS.get().is_some()
}

/// Does something with a file, of which `descriptor` knows what it was opened as.
pub(crate) fn measure_file<T>(
    operation: FileOperation<'_>,
    call: impl FnOnce() -> Result<T>,
    descriptor: impl Fn(&T) -> RawFd,
) -> Result<T> {
    let Some(instruments) = INSTRUMENTS.get() else {
        return call();
    };
    let (mut call, mut result) = (Some(call), None);
    instruments.file(operation, &mut || {
        let call = call.take().expect("it is called once");
        let done = result.insert(call());
        done.as_ref().map_or(-1, &descriptor)
    });
    result.expect("it was called")
}

/// The same with one that is open.
pub(crate) fn measure_open_file<T>(
    operation: FileOperation<'_>,
    call: impl FnOnce() -> Result<T>,
) -> Result<T> {
    measure_file(operation, call, |_| 0)
}

/// The thread in which it is made, until it is dropped there.
#[must_use]
pub struct MeasuredThread(());

impl MeasuredThread {
    /// For the threads of what belongs to a database, such as its monitor; to be called before all else in
    /// them. `None` if nobody measures.
    pub fn begin() -> Option<MeasuredThread> {
        let instruments = INSTRUMENTS.get()?;
        instruments.thread_begins(std::thread::current().name().unwrap_or_default());
        Some(MeasuredThread(()))
    }
}

impl Drop for MeasuredThread {
    fn drop(&mut self) {
        if let Some(instruments) = INSTRUMENTS.get() {
            instruments.thread_ends();
        }
    }
}

/// So many bytes, as long as it is there.
pub(crate) struct MeasuredMemory {
    what: Memory,
    /// That were told.
    bytes: usize,
}

impl MeasuredMemory {
    pub(crate) fn new(what: Memory, bytes: usize) -> MeasuredMemory {
        let mut measured = MeasuredMemory { what, bytes: 0 };
        measured.resize(bytes);
        measured
    }

    pub(crate) fn resize(&mut self, bytes: usize) {
        if let Some(instruments) = INSTRUMENTS.get() {
            instruments.memory(self.what, bytes as i64 - self.bytes as i64);
            self.bytes = bytes;
        }
    }
}

impl Drop for MeasuredMemory {
    fn drop(&mut self) {
        self.resize(0);
    }
}
