//! Reads, writes and syncs in flight: their memory, and who is told when they are over.
//!
//! - **IOQ-1** The memory of an operation stays where it is, and is nobody else's, from when the operation is
//!   handed over until its [`Transfer`] is told what came of it, or dropped. Who has a `Request` owns that
//!   memory: the only way to lose it is to drop it, which nobody does while the system may still use it.

#![allow(unsafe_code)]

use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use smallvec::SmallVec;

use super::whole::move_whole;
use super::{AlignedBuf, DiskFile};
use crate::base::instruments::{FileOperation, is_measured, measure_open_file};
use crate::base::{Error, Result};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Op {
    Read,
    Write,
    /// IO-7. It has one piece.
    WriteAtomically,
    /// Of the whole file. Moves nothing.
    Sync,
}

/// A piece of memory, as the system calls want it.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Piece(libc::iovec);

// SAFETY: an address and a length; what may be done there is the business of `Transfer`.
unsafe impl Send for Piece {}
// SAFETY: as above.
unsafe impl Sync for Piece {}

impl Piece {
    pub fn new(start: *mut u8, len: usize) -> Piece {
        Piece(libc::iovec {
            iov_base: start.cast(),
            iov_len: len,
        })
    }
}

/// What one operation reads into or writes from: pieces of memory that stand side by side in the file. Told
/// once what came of it.
///
/// # Safety
///
/// What `pieces` returns is the same each time, and IOQ-1 holds for the memory that it names: valid for reads
/// and writes of its length; touched by nobody else if the operation is a read, changed by nobody if it is a
/// write.
pub unsafe trait Transfer: Send {
    fn pieces(&self) -> &[Piece];
    /// The operation is over: all bytes were moved, or nobody knows which. Must not wait for another
    /// operation.
    fn done(self: Box<Self>, result: Result<()>);
}

/// One read, write or sync of a file.
pub struct Request {
    file: Arc<dyn DiskFile>,
    op: Op,
    offset: u64,
    transfer: Box<dyn Transfer>,
}

impl Request {
    /// Reading past the end of the file is an error.
    pub fn read(file: Arc<dyn DiskFile>, offset: u64, into: Box<dyn Transfer>) -> Request {
        Request {
            file,
            op: Op::Read,
            offset,
            transfer: into,
        }
    }

    pub(super) fn op(&self) -> Op {
        self.op
    }

    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// The file as the system knows it; valid as long as the request is there.
    pub(super) fn descriptor(&self) -> Option<libc::c_int> {
        Some(self.file.descriptor()?.as_raw_fd())
    }

    pub(super) fn is_direct(&self) -> bool {
        self.file.is_direct()
    }

    /// The memory of a request that has one piece.
    pub(super) fn piece(&self) -> libc::iovec {
        let [piece] = self.transfer.pieces() else {
            panic!("{:?} has one piece", self.op);
        };
        piece.0
    }

    /// As the system calls want it, in its place as long as the request is there.
    pub(super) fn vector(&self) -> (*const libc::iovec, usize) {
        let pieces = self.transfer.pieces();
        // `Piece` is transparent.
        (pieces.as_ptr().cast(), pieces.len())
    }

    pub(super) fn len(&self) -> usize {
        let pieces = self.transfer.pieces().iter();
        pieces.map(|piece| piece.0.iov_len).sum()
    }

    /// Does what is left behind the first `done` bytes by calls that wait.
    pub(super) fn finish(&self, done: usize) -> Result<()> {
        let if_none = match self.op {
            Op::Read => io::ErrorKind::UnexpectedEof,
            Op::Write => io::ErrorKind::WriteZero,
            Op::WriteAtomically => return self.finish_atomically(done),
            Op::Sync => return self.file.sync(),
        };
        let Some(file) = self.descriptor() else {
            return self.finish_by_pieces(done);
        };
        let call = |done: usize| {
            let rest = self.rest(done);
            let (parts, n) = (rest.as_ptr(), rest.len() as libc::c_int);
            let at = libc::off_t::try_from(self.offset + done as u64);
            let at = at.map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
            // SAFETY: `self` keeps the file open, and its memory is ours to read or write (IOQ-1).
            let moved = unsafe {
                match self.op {
                    Op::Read => libc::preadv(file, parts, n, at),
                    _ => libc::pwritev(file, parts, n, at),
                }
            };
            usize::try_from(moved).map_err(|_| io::Error::last_os_error())
        };
        move_whole(done..self.len(), if_none, call).map_err(|e| self.error(e))
    }

    /// All of it or nothing: what the system moved in part was not atomic, and the rest does not make it so.
    fn finish_atomically(&self, done: usize) -> Result<()> {
        if done > 0 {
            return Err(self.error(io::ErrorKind::WriteZero.into()));
        }
        let piece = self.piece();
        // SAFETY: IOQ-1: valid, and nobody changes it.
        let bytes =
            unsafe { std::slice::from_raw_parts(piece.iov_base.cast::<u8>(), piece.iov_len) };
        self.file.write_atomic_at(bytes, self.offset)
    }

    /// The memory behind the first `done` bytes.
    fn rest(&self, mut done: usize) -> SmallVec<[libc::iovec; 16]> {
        let mut rest = SmallVec::new();
        for &Piece(piece) in self.transfer.pieces() {
            let skipped = done.min(piece.iov_len);
            done -= skipped;
            if skipped < piece.iov_len {
                rest.push(libc::iovec {
                    iov_base: piece.iov_base.cast::<u8>().wrapping_add(skipped).cast(),
                    iov_len: piece.iov_len - skipped,
                });
            }
        }
        rest
    }

    /// The same for a file that is not the system's.
    fn finish_by_pieces(&self, done: usize) -> Result<()> {
        let mut at = self.offset + done as u64;
        for part in self.rest(done) {
            let start = part.iov_base.cast::<u8>();
            match self.op {
                // SAFETY: IOQ-1: valid, and nobody else's.
                Op::Read => unsafe {
                    let bytes = std::slice::from_raw_parts_mut(start, part.iov_len);
                    self.file.read_at(bytes, at)?;
                },
                // SAFETY: IOQ-1: valid, and nobody changes it.
                _ => unsafe {
                    let bytes = std::slice::from_raw_parts(start, part.iov_len);
                    self.file.write_at(bytes, at)?;
                },
            }
            at += part.iov_len as u64;
        }
        Ok(())
    }

    pub(super) fn error(&self, e: io::Error) -> Error {
        let op = match self.op {
            Op::Read => "read",
            Op::Write => "write",
            Op::WriteAtomically => "write atomically",
            Op::Sync => "sync",
        };
        Error::io(op, self.file.path(), e)
    }

    /// What is done by the file's own calls is measured there.
    fn measured(&self, call: impl FnOnce() -> Result<()>) -> Result<()> {
        match (self.op, self.operation()) {
            (Op::Read | Op::Write, Some(operation)) => measure_open_file(operation, call),
            _ => call(),
        }
    }

    /// Tells that it is begun, and nothing of how long it takes: who measures files does one thing at a time.
    pub(super) fn count(&self) {
        if let Some(operation) = self.operation() {
            let counted = measure_open_file(operation, || Ok(()));
            debug_assert!(counted.is_ok());
        }
    }

    /// `None`: it is no file of the system's, or nobody wants to know.
    fn operation(&self) -> Option<FileOperation<'static>> {
        if !is_measured() {
            return None;
        }
        let file = self.descriptor()?;
        Some(match self.op {
            Op::Read => FileOperation::Read(file, self.len()),
            Op::Write | Op::WriteAtomically => FileOperation::Write(file, self.len()),
            Op::Sync => FileOperation::Sync(file),
        })
    }

    /// Does all of it, waiting.
    pub(super) fn run(self) {
        let result = self.measured(|| self.finish(0));
        self.complete(result);
    }

    /// Tells the waiter. The file is let go before, so that it may be closed as soon as they know. A panic
    /// there ends with whatever it was about, and not the thread, which others need: the transfer's `drop`
    /// gives back what it held.
    pub(super) fn complete(self, result: Result<()>) {
        let Request { file, transfer, .. } = self;
        drop(file);
        let _ = catch_unwind(AssertUnwindSafe(|| transfer.done(result)));
    }
}

/// A write of [`super::IoQueue::write_all`].
pub struct Write<'a> {
    file: Arc<dyn DiskFile>,
    op: Op,
    offset: u64,
    bytes: &'a [u8],
}

impl<'a> Write<'a> {
    pub fn new(file: Arc<dyn DiskFile>, offset: u64, bytes: &'a [u8]) -> Write<'a> {
        let op = Op::Write;
        Write {
            file,
            op,
            offset,
            bytes,
        }
    }

    /// Of a file that promises it (IO-7), at a multiple of the length.
    pub fn atomic(file: Arc<dyn DiskFile>, offset: u64, bytes: &'a [u8]) -> Write<'a> {
        let op = Op::WriteAtomically;
        Write {
            op,
            ..Write::new(file, offset, bytes)
        }
    }

    /// Does it, waiting.
    pub(super) fn run(&self) -> Result<()> {
        match self.op {
            Op::WriteAtomically => self.file.write_atomic_at(self.bytes, self.offset),
            _ => self.file.write_at(self.bytes, self.offset),
        }
    }
}

/// Several operations, some of which are under way.
#[derive(Default)]
struct Outcome {
    state: Mutex<Pending>,
    over: Condvar,
}

#[derive(Default)]
struct Pending {
    left: usize,
    failed: Option<Error>,
}

impl Outcome {
    fn tell(&self, result: Result<()>) {
        let mut state = self.state.lock();
        state.left -= 1;
        if let Err(e) = result {
            state.failed.get_or_insert(e);
        }
        if state.left == 0 {
            self.over.notify_all();
        }
    }

    fn wait(&self) {
        let mut state = self.state.lock();
        while state.left > 0 {
            self.over.wait(&mut state);
        }
    }
}

/// A write, or a sync, which has no memory.
struct Job {
    piece: Option<Piece>,
    outcome: Option<Arc<Outcome>>,
}

// SAFETY: `WaitForAll` does not go, nor unwind, before every job was told or dropped, and whoever has it
// borrows the bytes of writes for longer than that.
unsafe impl Transfer for Job {
    fn pieces(&self) -> &[Piece] {
        self.piece.as_slice()
    }

    fn done(mut self: Box<Self>, result: Result<()>) {
        if let Some(outcome) = self.outcome.take() {
            outcome.tell(result);
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if let Some(outcome) = self.outcome.take() {
            outcome.tell(Err(Error::Poisoned {
                why: "a write or sync was given up before it began".into(),
            }));
        }
    }
}

/// Jobs that are waited for together, whatever happens.
#[derive(Default)]
struct WaitForAll(Arc<Outcome>);

impl Drop for WaitForAll {
    fn drop(&mut self) {
        self.0.wait();
    }
}

impl WaitForAll {
    fn job(&self, piece: Option<Piece>) -> Box<Job> {
        self.0.state.lock().left += 1;
        let outcome = Some(self.0.clone());
        Box::new(Job { piece, outcome })
    }

    /// The first error that was met.
    fn result(self) -> Result<()> {
        self.0.wait();
        let failed = self.0.state.lock().failed.take();
        failed.map_or(Ok(()), Err)
    }
}

/// Has `submit` carry out all writes, and waits until all of them are over. The first error that was met.
pub(super) fn write_all(writes: Vec<Write<'_>>, submit: impl FnOnce(Vec<Request>)) -> Result<()> {
    let all = WaitForAll::default();
    let request = |write: Write<'_>| Request {
        file: write.file,
        op: write.op,
        offset: write.offset,
        transfer: all.job(Some(Piece::new(
            write.bytes.as_ptr().cast_mut(),
            write.bytes.len(),
        ))),
    };
    submit(writes.into_iter().map(request).collect());
    all.result()
}

/// The same for syncs.
pub(super) fn sync_all(
    files: &[Arc<dyn DiskFile>],
    submit: impl FnOnce(Vec<Request>),
) -> Result<()> {
    let all = WaitForAll::default();
    let request = |file: &Arc<dyn DiskFile>| Request {
        file: file.clone(),
        op: Op::Sync,
        offset: 0,
        transfer: all.job(None),
    };
    submit(files.iter().map(request).collect());
    all.result()
}

/// A read of [`super::IoQueue::read_all`]: `range` of the memory is filled.
pub struct Read {
    pub file: Arc<dyn DiskFile>,
    pub offset: u64,
    pub into: AlignedBuf,
    pub range: Range<usize>,
}

/// A read that is under way. Its memory comes back with what came of it.
pub struct Reading(Arc<OwnOutcome>);

impl Reading {
    /// Waits until it is over.
    pub fn wait(self) -> Result<AlignedBuf> {
        self.0.wait()
    }
}

/// A write of [`super::IoQueue::write_own`] that is under way. Its memory comes back when it is over, unless
/// it failed.
pub struct Writing(Arc<OwnOutcome>);

impl Writing {
    /// Waits until it is over.
    pub fn wait(self) -> Result<AlignedBuf> {
        self.0.wait()
    }
}

/// The result of an operation on memory of its own.
#[derive(Default)]
struct OwnOutcome {
    over: Mutex<Option<Result<AlignedBuf>>>,
    told: Condvar,
}

impl OwnOutcome {
    fn tell(&self, over: Result<AlignedBuf>) {
        self.over.lock().get_or_insert(over);
        self.told.notify_all();
    }

    fn wait(&self) -> Result<AlignedBuf> {
        let mut over = self.over.lock();
        loop {
            if let Some(over) = over.take() {
                return over;
            }
            self.told.wait(&mut over);
        }
    }
}

struct OwnJob {
    /// `None`: it was told.
    bytes: Option<AlignedBuf>,
    pieces: [Piece; 1],
    outcome: Arc<OwnOutcome>,
}

// SAFETY: the job owns the bytes, which don't move with it, and nobody looks at them before it was told.
unsafe impl Transfer for OwnJob {
    fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    fn done(mut self: Box<Self>, result: Result<()>) {
        if let Some(bytes) = self.bytes.take() {
            self.outcome.tell(result.map(|()| bytes));
        }
    }
}

impl Drop for OwnJob {
    fn drop(&mut self) {
        if self.bytes.is_some() {
            self.outcome.tell(Err(Error::Poisoned {
                why: "a read or write was given up before it began".into(),
            }));
        }
    }
}

impl OwnJob {
    fn new(mut bytes: AlignedBuf, range: Range<usize>) -> (Box<OwnJob>, Arc<OwnOutcome>) {
        let part = &mut bytes[range];
        let pieces = [Piece::new(part.as_mut_ptr(), part.len())];
        let outcome = Arc::<OwnOutcome>::default();
        let job = OwnJob {
            bytes: Some(bytes),
            pieces,
            outcome: outcome.clone(),
        };
        (Box::new(job), outcome)
    }
}

/// The request for a read, and what will come of it.
pub(super) fn read(read: Read) -> (Request, Reading) {
    let (job, outcome) = OwnJob::new(read.into, read.range);
    let request = Request::read(read.file, read.offset, job);
    (request, Reading(outcome))
}

/// The request for a write of the first `len` bytes, and what will come of it.
pub(super) fn write_own(
    file: Arc<dyn DiskFile>,
    offset: u64,
    bytes: AlignedBuf,
    len: usize,
) -> (Request, Writing) {
    let (transfer, outcome) = OwnJob::new(bytes, 0..len);
    let request = Request {
        file,
        op: Op::Write,
        offset,
        transfer,
    };
    (request, Writing(outcome))
}
