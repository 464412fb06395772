//! [`IoQueue`]: many reads, writes and syncs under way at the same time.
//!
//! A caller hands over a batch of [`Request`]s and goes on; each is told when it is over, by a thread of the
//! queue. Which order they are carried out in is not said, so what must come after another waits for it
//! first. What is durable when is as for the calls of [`DiskFile`](super::DiskFile) (IO-1): a write that is
//! over still needs `sync`.
//!
//! There are three ways to do it, and to the user they differ in speed only:
//!
//! - **io_uring** (`uring.rs`): one thread hands them to the kernel, many at once, and hears what came of
//!   them.
//! - **Threads**: each of a few takes one after the other and waits for it. For systems where io_uring is
//!   missing, or refused by a setting or a sandbox.
//! - **One after the other**, in the thread that hands them over. For disks in memory, and those of tests,
//!   which judge the order of writes and syncs. Nothing is gained by reading ahead there:
//!   [`IoQueue::is_asynchronous`] says so.
//!
//! [`IoQueue::start`] tries the first by really reading something, takes the second if that does not work,
//! and says which one and why ([`IoQueue::describe`]).
//!
//! - **IOQ-2** Every request that was handed over is told what came of it. Closing the queue waits for them,
//!   and for its threads; what is handed over later is dropped.
//!
//! The queue has no limit of its own: page writes are bounded by a batch, reads ahead by the pool
//! (`buffer/prefetch.rs`). Mutexes: those of the inbox and of the list of threads, leaves, held for a few
//! instructions.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use parking_lot::{Condvar, Mutex};

use super::transfer::{self, Read, Reading, Request, Write, Writing};
use super::{AlignedBuf, DiskFile, uring};
use crate::base::{Result, threads};

/// How many threads wait for the disk where io_uring is not to be had.
const THREADS: usize = 8;

/// Requests on their way to the queue's threads.
#[derive(Default)]
pub(super) struct Inbox {
    state: Mutex<InboxState>,
    /// Somebody of the pool of threads is wanted.
    filled: Condvar,
    /// Wakes the thread that waits for the kernel.
    bell: Option<OwnedFd>,
}

#[derive(Default)]
struct InboxState {
    waiting: VecDeque<Request>,
    /// The thread that waits for the kernel does not look here until it is woken.
    is_unattended: bool,
    is_closed: bool,
}

/// What may still come to an inbox.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Left {
    Open,
    /// Only what is in it.
    Closing,
    Nothing,
}

impl Inbox {
    pub(super) fn with_bell(bell: OwnedFd) -> Inbox {
        Inbox {
            bell: Some(bell),
            ..Inbox::default()
        }
    }

    pub(super) fn bell(&self) -> &OwnedFd {
        self.bell.as_ref().expect("an inbox with a bell")
    }

    fn ring(&self) {
        if let Some(bell) = &self.bell {
            // It can only fail if it has been rung 2^64 times without an answer.
            let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
        }
    }

    /// Nothing is put into one that is closed.
    fn put(&self, requests: Vec<Request>) {
        let n = requests.len();
        let mut state = self.state.lock();
        if state.is_closed {
            drop(state);
            return drop(requests);
        }
        state.waiting.extend(requests);
        let is_unattended = std::mem::take(&mut state.is_unattended);
        drop(state);
        if is_unattended {
            self.ring();
        }
        for _ in 0..n.min(THREADS) {
            self.filled.notify_one();
        }
    }

    fn close(&self) {
        self.state.lock().is_closed = true;
        self.filled.notify_all();
        self.ring();
    }

    /// At most so many requests, without waiting. From now on the bell rings for others, if none are left.
    pub(super) fn take(&self, at_most: usize, out: &mut Vec<Request>) -> Left {
        let mut state = self.state.lock();
        let n = state.waiting.len().min(at_most);
        out.extend(state.waiting.drain(..n));
        state.is_unattended = state.waiting.is_empty();
        match (state.is_closed, state.waiting.is_empty()) {
            (false, _) => Left::Open,
            (true, false) => Left::Closing,
            (true, true) => Left::Nothing,
        }
    }

    /// The next request; `None` at the end.
    fn wait(&self) -> Option<Request> {
        let mut state = self.state.lock();
        loop {
            if let Some(request) = state.waiting.pop_front() {
                return Some(request);
            }
            if state.is_closed {
                return None;
            }
            self.filled.wait(&mut state);
        }
    }
}

/// Carries out reads and writes. See the module's introduction.
pub struct IoQueue {
    /// `None`: one after the other.
    inbox: Option<Arc<Inbox>>,
    /// Until it is closed.
    threads: Mutex<Vec<JoinHandle<()>>>,
    describe: String,
}

impl IoQueue {
    /// One after the other, in the thread that hands them over.
    pub fn one_by_one() -> IoQueue {
        IoQueue {
            inbox: None,
            threads: Mutex::default(),
            describe: "one operation after the other".into(),
        }
    }

    /// With io_uring, if `native` and the system lets us; otherwise with threads.
    pub fn start(native: bool) -> Result<IoQueue> {
        if !native {
            return IoQueue::with_threads("io_uring is not wanted".into());
        }
        match uring::start() {
            Ok((inbox, thread)) => Ok(IoQueue {
                inbox: Some(inbox),
                threads: Mutex::new(vec![thread]),
                describe: "io_uring".into(),
            }),
            Err(e) => IoQueue::with_threads(format!("io_uring does not work here: {e}")),
        }
    }

    fn with_threads(why: String) -> Result<IoQueue> {
        let inbox = Arc::new(Inbox::default());
        let queue = IoQueue {
            inbox: Some(inbox.clone()),
            threads: Mutex::default(),
            describe: format!("{THREADS} threads ({why})"),
        };
        for _ in 0..THREADS {
            let inbox = inbox.clone();
            let body = move || {
                while let Some(request) = inbox.wait() {
                    request.run();
                }
            };
            queue.threads.lock().push(spawn(body)?);
        }
        Ok(queue)
    }

    /// How it is done, and why, for the log.
    pub fn describe(&self) -> &str {
        &self.describe
    }

    /// The caller goes on meanwhile.
    pub fn is_asynchronous(&self) -> bool {
        self.inbox.is_some()
    }

    /// Hands over a batch. Each is told when it is over, maybe before this returns, or dropped if the queue
    /// is closed (IOQ-2).
    pub fn submit(&self, requests: Vec<Request>) {
        if requests.is_empty() {
            return;
        }
        match &self.inbox {
            Some(inbox) => inbox.put(requests),
            None => requests.into_iter().for_each(Request::run),
        }
    }

    /// Begins these reads.
    pub fn read_all(&self, reads: Vec<Read>) -> Vec<Reading> {
        let (requests, readings) = reads.into_iter().map(transfer::read).unzip();
        self.submit(requests);
        readings
    }

    /// Begins to write the first `len` bytes of `bytes`.
    pub fn write_own(
        &self,
        file: Arc<dyn DiskFile>,
        offset: u64,
        bytes: AlignedBuf,
        len: usize,
    ) -> Writing {
        let (request, writing) = transfer::write_own(file, offset, bytes, len);
        self.submit(vec![request]);
        writing
    }

    /// Writes all of it, in any order, and waits until everything is over. On an error nobody knows what was
    /// written.
    pub fn write_all(&self, writes: Vec<Write<'_>>) -> Result<()> {
        if self.inbox.is_some() && writes.len() > 1 {
            return transfer::write_all(writes, |requests| self.submit(requests));
        }
        // One write is soonest done by the caller itself.
        writes.iter().try_for_each(Write::run)
    }

    /// Syncs these files, and waits until all of it is over. On an error nobody knows which were. The disk
    /// can flush its cache once for several.
    pub fn sync_all(&self, files: &[Arc<dyn DiskFile>]) -> Result<()> {
        if self.inbox.is_some() && files.len() > 1 {
            return transfer::sync_all(files, |requests| self.submit(requests));
        }
        files.iter().try_for_each(|file| file.sync())
    }

    /// Waits until everything is over and no thread of the queue is left, and takes nothing from then on. A
    /// thread of the queue that calls this ends by itself.
    pub fn close(&self) {
        if let Some(inbox) = &self.inbox {
            inbox.close();
        }
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            // The last owner may be what one of the threads has just told.
            if thread.thread().id() != thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}

impl Drop for IoQueue {
    fn drop(&mut self) {
        self.close();
    }
}

pub(super) fn spawn(body: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    threads::spawn("varve-io", body)
}
