//! Reading pages before somebody needs them.
//!
//! **Prefetch.** [`BufferPool::prefetch`] takes free frames, or clean ones that the clock gives without a
//! search, and waits for nothing. Each is linked under its page as by a load (mod.rs), so that a page is
//! never in two frames, and a thread that needs it meanwhile pins the frame and waits on its latch. That
//! latch belongs to the read ([`Loading`]), which the store's queue carries out, and is given back by the
//! thread that hears that it is over: it checks the page as a load does, and unlatches the frame. A page that
//! could not be read, or is damaged, is unlinked without a message: a waiter finds the id gone, makes its own
//! attempt, and meets the error itself.
//!
//! The reads' latches are many at a time and taken in no order. That is safe, because a thread that has them
//! waits for the disk only, and never for a latch, a mutex held by a thread that waits for one, or a frame.
//!
//! **Recovery.** [`BufferPool::read_pending`] does the same with pages for which redo is pending
//! (pending.rs), which `prefetch` passes over. The thread that completes such a read hands the frames, still
//! latched, to the recovery's thread that wanted them ([`Arrived`]), and that brings them up to date before
//! it gives the latches back (BUF-6). Until it has, it waits for the disk only, for these reads and those of
//! recovery's own file.
//!
//! Pages that lie side by side in a file, whichever way, are read together, at most [`RUN_BYTES`] at a time,
//! so that the first of them need not wait for long. At most an eighth of the pool's frames, and no more than
//! [`MAX_UNDER_WAY`], are being filled so.
//!
//! **Replacement.** A page that was read ahead is on probation like one that was just loaded, whenever it
//! comes to be used: its first use counts for nothing. It has more time for that (touched.rs); one that is
//! never used goes, and is counted.

#![allow(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use std::sync::mpsc::Sender;

use smallvec::SmallVec;

use super::{BufferPool, Need, PageRun, PendingRedo};
use crate::base::{PageId, PageNo, Result};
use crate::io::{Piece, Transfer};

/// Bytes read by one operation.
const RUN_BYTES: usize = 256 << 10;

/// Pages that are being read ahead at the same time.
const MAX_UNDER_WAY: usize = 512;

/// Pages read ahead of a walk over many.
const WALK: usize = 64;

/// How far the clock hand goes for a frame.
const SWEEP: usize = 32;

/// Pages side by side that are being read into their frames, each of which is latched exclusively.
struct Loading {
    pool: Arc<BufferPool>,
    first: PageId,
    frames: SmallVec<[u32; 16]>,
    pieces: SmallVec<[Piece; 16]>,
    /// The receiver, which brings the pages up to date.
    to: Option<Sender<Arrived>>,
}

/// Pages that were read and lack redo, in frames that are latched exclusively. Dropped, they are given up.
pub struct Arrived(Box<Loading>);

impl Arrived {
    /// Brings the pages up to date and lets others have them (BUF-6). Those for which that fails are
    /// unlinked: a thread that needs them makes its own attempt.
    pub fn finish(mut self, redo: &dyn PendingRedo) {
        self.0.end_each(|pool, frame, id, bytes| {
            pool.check_loaded(id, bytes)?;
            match redo.need(id) {
                // Somebody had loaded it, and it was written and gave way, before it was read.
                Need::Nothing => Ok(()),
                _ => pool.bring_up_to_date(redo, frame, id, bytes),
            }
        });
    }
}

impl Loading {
    /// Ends the load of each page by `end`, and gives its latch back, or the page up.
    fn end_each(&mut self, end: impl Fn(&BufferPool, u32, PageId, &mut [u8]) -> Result<()>) {
        let pool = self.pool.clone();
        while let Some(&index) = self.frames.last() {
            let no = PageNo(self.first.no.0 + self.frames.len() as u32 - 1);
            let id = PageId::new(self.first.space, no);
            // SAFETY: latched exclusively, and the read is over.
            let bytes = unsafe {
                std::slice::from_raw_parts_mut(pool.arena.page_ptr(index), pool.page_size)
            };
            let ended = end(&pool, index, id, bytes);
            // What is not among `frames` any more is not given up by `drop`.
            self.frames.pop();
            pool.counters.ahead_under_way.fetch_sub(1, Relaxed);
            match ended {
                // SAFETY: latched exclusively by `start_loading`.
                Ok(()) => unsafe { pool.frames[index as usize].latch.unlock_exclusive() },
                Err(_) => pool.give_up(index),
            }
        }
    }

    /// Where the page stands among the others, if it lies beside them.
    fn place_of(&self, id: PageId) -> Option<usize> {
        let (first, n) = (self.first.no.0, self.frames.len());
        match id.no.0 {
            _ if id.space != self.first.space => None,
            no if no.checked_add(1) == Some(first) => Some(0),
            no if first.checked_add(n as u32) == Some(no) => Some(n),
            _ => None,
        }
    }
}

// SAFETY: the frames are latched exclusively until `done` or `drop`, and `pool` keeps their memory.
unsafe impl Transfer for Loading {
    fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    fn done(mut self: Box<Self>, result: Result<()>) {
        if result.is_err() {
            return;
        }
        match self.to.take() {
            // The receiver is gone: the frames are given up.
            Some(to) => drop(to.send(Arrived(self))),
            None => self.end_each(|pool, _, id, bytes| pool.check_loaded(id, bytes)),
        }
    }
}

impl Drop for Loading {
    fn drop(&mut self) {
        let pool = &self.pool;
        let left = self.frames.len() as u64;
        pool.counters.ahead_under_way.fetch_sub(left, Relaxed);
        self.frames.iter().for_each(|&index| pool.give_up(index));
    }
}

impl BufferPool {
    /// Begins to read those of these pages that are not in the pool, and does not wait for them. Stops at the
    /// first for which there is no frame at hand, and returns how many it went through. Pages in ascending or
    /// descending order are read together where they lie side by side. What can't be read is passed over in
    /// silence. The caller may hold latches.
    pub fn prefetch(self: &Arc<Self>, pages: &[PageId]) -> usize {
        // BUF-6
        self.start_reading(pages, None, |id| self.pending_for(id).is_none())
    }

    /// The same with pages that lack redo. They come to `to`, each latched until its [`Arrived`] is finished
    /// or dropped; until then the caller waits for nothing else. When all of them have come, or can't, `to`
    /// and its clones are gone.
    pub fn read_pending(self: &Arc<Self>, pages: &[PageId], to: Sender<Arrived>) {
        self.start_reading(pages, Some(to), |id| {
            self.pending_for(id)
                .is_some_and(|(_, need)| need == Need::Stored)
        });
    }

    fn start_reading(
        self: &Arc<Self>,
        pages: &[PageId],
        to: Option<Sender<Arrived>>,
        is_wanted: impl Fn(PageId) -> bool,
    ) -> usize {
        if !self.store.reads_in_background() {
            return 0;
        }
        let mut runs: Vec<Loading> = Vec::new();
        let mut passed = 0;
        for &id in pages {
            if !self.is_resident(id) && is_wanted(id) {
                let Some(frame) = self.spare_frame() else {
                    break;
                };
                if self.start_loading(frame, id) {
                    self.add_to_runs(&mut runs, id, frame, &to);
                }
            }
            passed += 1;
        }
        let run = |loading: Loading| PageRun {
            first: loading.first,
            pages: loading.frames.len() as u32,
            into: Box::new(loading),
        };
        if !runs.is_empty() {
            self.store.start_reads(runs.into_iter().map(run).collect());
        }
        passed
    }

    /// For a walk over many pages in an order that is known, which is at its page number `at` now: sees to it
    /// that some are read ahead, unless the setting is never to do so.
    pub fn prefetch_walk(self: &Arc<Self>, at: usize, page: impl Fn(usize) -> Option<PageId>) {
        if self.read_ahead_threshold() > 0 && at.is_multiple_of(WALK / 2) {
            let ahead: Vec<_> = (at..at + WALK).map_while(page).collect();
            self.prefetch(&ahead);
        }
    }

    /// A free frame, as BUF-3 says, if one is at hand and nobody waits for one.
    fn spare_frame(&self) -> Option<u32> {
        let under_way = self.counters.ahead_under_way.load(Relaxed) as usize;
        let most = (self.usable_frames() / 8).clamp(1, MAX_UNDER_WAY);
        if under_way >= most || self.replacement.waiting() > 0 {
            return None;
        }
        self.pop_free().or_else(|| self.spare(SWEEP))
    }

    /// Links a free frame under the page, to be filled. False if the page has a frame already; then this one
    /// is free again.
    fn start_loading(&self, index: u32, id: PageId) -> bool {
        if !self.link(index, id) {
            return false;
        }
        let frame = &self.frames[index as usize];
        frame.touched.start_ahead(self.replacement.now());
        self.admit(frame, id);
        frame.unclaim();
        self.counters.read_ahead.fetch_add(1, Relaxed);
        self.counters.ahead_under_way.fetch_add(1, Relaxed);
        true
    }

    fn add_to_runs(
        self: &Arc<Self>,
        runs: &mut Vec<Loading>,
        id: PageId,
        frame: u32,
        to: &Option<Sender<Arrived>>,
    ) {
        let piece = Piece::new(self.arena.page_ptr(frame), self.page_size);
        if let Some(run) = runs.last_mut()
            && (run.frames.len() + 1) * self.page_size <= RUN_BYTES
            && let Some(at) = run.place_of(id)
        {
            run.first = run.first.min(id);
            run.frames.insert(at, frame);
            run.pieces.insert(at, piece);
            return;
        }
        runs.push(Loading {
            pool: self.clone(),
            first: id,
            frames: SmallVec::from_slice(&[frame]),
            pieces: std::iter::once(piece).collect(),
            to: to.clone(),
        });
    }
}
