//! Reads, writes and syncs by io_uring: one thread owns the ring, hands requests to the kernel and hears what
//! came of them.
//!
//! No other thread touches the ring. The kernel ties requests to the thread that handed them over: it cancels
//! them when that thread ends, and interrupts its system calls when one is over. Neither must happen to
//! threads that are not ours.
//!
//! **Waiting.** The thread waits in the kernel for whatever is over first. Among what it waits for is always
//! a read of an event counter, the bell: a thread that puts a request into an inbox that is not being looked
//! at rings it.
//!
//! **Memory.** A request stays in `flights` from before the kernel hears of it until it has said what came of
//! it (IOQ-1). The thread ends only when nothing is in flight, not even the bell. Should it panic, it takes
//! the process with it: memory that the kernel may still write to can't be given back, nor can those who wait
//! be told.
//!
//! **Failure.** A read or write that the kernel does not carry out for want of means (`EAGAIN`), because of a
//! signal (`EINTR`), because it was taken back (`ECANCELED`), or only in part, is finished by a call that
//! waits: whatever it has moved, the same bytes are moved to the same place again, and it is not over before.
//! But an atomic write that was made in part has failed. All other errors are the request's, and so is any
//! error of a sync. If the kernel takes nothing at all for a moment, the thread tries again.
//!
//! No error says that a sync had not begun (IO-4). `EINTR` is what its file system says when it gave up in
//! the middle (real.rs). `ECANCELED` is what the ring says of a request that it has not begun: of a chain
//! that broke, that somebody takes back, or whose thread ends. None of that happens here; and a file system
//! may say the same of a sync that it has begun, FUSE and the network's any error, `EAGAIN` too.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use io_uring::types::{Fd, FsyncFlags};
use io_uring::{IoUring, opcode, squeue};

use super::queue::{Inbox, Left, spawn};
use super::real::RWF_ATOMIC;
use super::transfer::{Op, Request};
use crate::base::{Error, Result};

/// Requests that the kernel has at the same time.
const DEPTH: usize = 256;

/// What the bell's read is called; others are called by their place in `flights`.
const BELL: u64 = u64::MAX;

/// What the kernel says of a request.
#[derive(Debug)]
enum Verdict {
    Done,
    /// So many bytes were moved. The rest is ours.
    Part(usize),
    Failed(io::Error),
}

/// The error says nothing of file and disk: the same may succeed as a call that waits.
fn is_not_done(error: i32) -> bool {
    matches!(error, libc::EAGAIN | libc::EINTR | libc::ECANCELED)
}

fn verdict(op: Op, result: i32, len: usize) -> Verdict {
    match usize::try_from(result) {
        Ok(moved) if moved >= len => Verdict::Done,
        Ok(moved) => Verdict::Part(moved),
        Err(_) if op != Op::Sync && is_not_done(-result) => Verdict::Part(0),
        Err(_) => Verdict::Failed(io::Error::from_raw_os_error(-result)),
    }
}

/// Starts the thread, if io_uring works.
pub(super) fn start() -> Result<(Arc<Inbox>, JoinHandle<()>)> {
    let fail = |op| move |e| Error::io(op, "io_uring", e);
    // One more for the bell.
    let mut ring = IoUring::new(DEPTH as u32).map_err(fail("set up"))?;
    probe(&mut ring).map_err(fail("read by"))?;
    let bell = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC);
    let bell = bell.map_err(|e| fail("make a bell for")(e.into()))?;
    let inbox = Arc::new(Inbox::with_bell(bell));
    let owner = Owner {
        ring,
        inbox: inbox.clone(),
        flights: (1..DEPTH).map(|_| None).collect(),
        free: (0..DEPTH as u32 - 1).collect(),
        fresh: Vec::new(),
        left: Left::Open,
        heard: Box::new([0; 8]),
        bell_is_read: false,
    };
    Ok((inbox, spawn(move || owner.run())?))
}

/// Really reads something: a sandbox may allow to make a ring and refuse to use it.
fn probe(ring: &mut IoUring) -> io::Result<()> {
    let file = File::open("/dev/zero")?;
    let mut bytes = [1u8; 64];
    let parts = [libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    }];
    let read = opcode::Readv::new(Fd(file.as_raw_fd()), parts.as_ptr(), 1).build();
    // SAFETY: memory and file stay until the loop below has seen that the read is over; if it has not been
    // handed over, it never is, as the ring is dropped then.
    unsafe { ring.submission().push(&read) }.map_err(io::Error::other)?;
    loop {
        match ring.submit_and_wait(1) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            done => done?,
        };
        let Some(over) = ring.completion().next() else {
            continue;
        };
        return match verdict(Op::Read, over.result(), bytes.len()) {
            Verdict::Done if bytes == [0; 64] => Ok(()),
            Verdict::Failed(e) => Err(e),
            other => Err(io::Error::other(format!("{other:?} of a small read"))),
        };
    }
}

/// Ends the process if it is dropped by a panic.
struct NoUnwinding;

impl Drop for NoUnwinding {
    fn drop(&mut self) {
        if thread::panicking() {
            std::process::abort();
        }
    }
}

/// The ring's thread.
struct Owner {
    ring: IoUring,
    inbox: Arc<Inbox>,
    /// What the kernel has, or is about to get.
    flights: Box<[Option<Request>]>,
    /// Places in `flights`.
    free: Vec<u32>,
    /// Taken from the inbox just now.
    fresh: Vec<Request>,
    /// What may still come.
    left: Left,
    /// Where the kernel writes how often the bell was rung.
    heard: Box<[u8; 8]>,
    bell_is_read: bool,
}

impl Owner {
    fn run(mut self) {
        let _guard = NoUnwinding;
        loop {
            let over = self.reap();
            self.hand_over();
            let is_idle = self.free.len() == self.flights.len() && !self.bell_is_read;
            if over.is_empty() && self.left == Left::Nothing && is_idle {
                return;
            }
            // New requests get under way before the callers of finished ones are told.
            let entered = self.ring.submit_and_wait(usize::from(over.is_empty()));
            for (request, verdict) in over {
                let result = match verdict {
                    Verdict::Done => Ok(()),
                    Verdict::Part(moved) => request.finish(moved),
                    Verdict::Failed(e) => Err(request.error(e)),
                };
                request.complete(result);
            }
            if entered.is_err_and(|e| e.kind() != io::ErrorKind::Interrupted) {
                thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// The requests that are finished.
    fn reap(&mut self) -> Vec<(Request, Verdict)> {
        let mut over = Vec::new();
        for entry in self.ring.completion() {
            if entry.user_data() == BELL {
                self.bell_is_read = false;
                continue;
            }
            let place = entry.user_data() as usize;
            let request = self.flights[place].take().expect("it was in flight");
            self.free.push(place as u32);
            let verdict = verdict(request.op(), entry.result(), request.len());
            over.push((request, verdict));
        }
        over
    }

    /// Takes what is new, as far as there is room.
    fn hand_over(&mut self) {
        self.left = self.inbox.take(self.free.len(), &mut self.fresh);
        for request in std::mem::take(&mut self.fresh) {
            let Some(file) = request.descriptor() else {
                request.run();
                continue;
            };
            request.count();
            let place = self.free.pop().expect("no more were taken");
            let entry = entry(&request, file).user_data(u64::from(place));
            self.flights[place as usize] = Some(request);
            self.push(&entry);
        }
        // Once the inbox is closed nobody rings any more.
        if !self.bell_is_read && self.left == Left::Open {
            let bell = Fd(self.inbox.bell().as_raw_fd());
            let read = opcode::Read::new(bell, self.heard.as_mut_ptr(), 8).build();
            self.bell_is_read = true;
            self.push(&read.user_data(BELL));
        }
    }

    fn push(&mut self, entry: &squeue::Entry) {
        // SAFETY: what it names is in `flights`, or is `heard`, and stays there until the kernel has said
        // that it is over.
        let pushed = unsafe { self.ring.submission().push(entry) };
        // The ring has an entry for each place in `flights` and for the bell.
        pushed.expect("room in the ring");
    }
}

fn entry(request: &Request, file: RawFd) -> squeue::Entry {
    let (parts, n) = request.vector();
    let (file, n) = (Fd(file), n as u32);
    let entry = match request.op() {
        Op::WriteAtomically => {
            let piece = request.piece();
            opcode::Write::new(file, piece.iov_base.cast(), piece.iov_len as u32)
                .offset(request.offset())
                .rw_flags(RWF_ATOMIC as i32)
                .build()
        }
        Op::Read => opcode::Readv::new(file, parts, n)
            .offset(request.offset())
            .build(),
        Op::Write => opcode::Writev::new(file, parts, n)
            .offset(request.offset())
            .build(),
        // The kernel never has this done by the thread that hands it over.
        Op::Sync => {
            return opcode::Fsync::new(file).flags(FsyncFlags::DATASYNC).build();
        }
    };
    // What goes through the system's cache is copied by the thread that carries it out: better by the
    // kernel's own threads, of which there are several, than by ours.
    match request.is_direct() {
        true => entry,
        false => entry.flags(squeue::Flags::ASYNC),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts() {
        let cases = [
            (100, "Done"),
            (40, "Part(40)"),
            (0, "Part(0)"),
            (-libc::EAGAIN, "Part(0)"),
            (-libc::EINTR, "Part(0)"),
            (-libc::ECANCELED, "Part(0)"),
        ];
        for (result, expected) in cases {
            let found = format!("{:?}", verdict(Op::Read, result, 100));
            assert_eq!(found, expected, "{result}");
        }
        assert!(matches!(verdict(Op::Sync, 0, 0), Verdict::Done));
        for (op, error) in [
            (Op::Write, libc::EIO),
            (Op::WriteAtomically, libc::EOPNOTSUPP),
            (Op::Sync, libc::EIO),
            (Op::Sync, libc::EAGAIN),
            (Op::Sync, libc::EINTR),
            (Op::Sync, libc::ECANCELED),
        ] {
            let Verdict::Failed(e) = verdict(op, -error, 0) else {
                panic!("an error of the disk");
            };
            assert_eq!(e.raw_os_error(), Some(error));
        }
    }
}
