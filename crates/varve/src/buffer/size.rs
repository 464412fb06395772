//! How many frames there are for pages: as many as the setting says, less those that are held back as long as
//! recovery has redo in memory, so that both together take no more than the pool may.
//!
//! - **BUF-9** Frames from the limit on are *withdrawn*, sooner or later: they are free as BUF-3 says, but
//!   on no list, their pins say so, and what memory they had goes back to the system. A frame is withdrawn
//!   by whoever has it free, and comes back once: whoever takes the mark away has it, and puts it on the
//!   free list. The limit is never below half of the setting; a frame below it is not withdrawn for longer
//!   than a moment.
//!
//! # Protocol
//!
//! *The limit* changes under a mutex. To all others frames beyond it are as if they were not there: the
//! clock goes round below it, and a thread that finds no frame has pages written and waits, as always.
//!
//! *It falls.* Whoever has a frame that is free, and finds it beyond the limit, withdraws it. Those on the
//! free list are looked through at once. All frames that the limit has passed are noted as *leaving*; the
//! page cleaner comes to them again and again ([`BufferPool::withdraw_leaving`]): a page that nobody uses
//! and that is clean goes, a dirty one is written before. Which pages go does not depend on their use, but
//! those that go are remembered like newcomers that had to go, so one that is used again is kept when it
//! comes back. A page that is pinned, or changed again and again, keeps its frame until it rests.
//!
//! *It rises.* First the limit, then whoever raises it takes all frames back that it passes and that are
//! withdrawn. Who withdraws a frame just then has either marked it before it is looked at, or finds the new
//! limit: mark and limit are each written before the other is read, all SeqCst. In the second case he tries
//! to take the mark away himself. Those that are still leaving stay where they are.
//!
//! *Memory* is given back under the mutex, so the limit stays where it is, and no frame beyond it is used.
//! (Who was late, after a limit that has fallen again meanwhile, may put one on the free list; there it is
//! found beyond the limit.)
//!
//! *More frames than ever* are added before the limit rises, under a mutex of their own: withdrawn ones.
//! Parts that are sized by their number are replaced by larger ones (grown.rs).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering::*};

use parking_lot::Mutex;

use super::frame::NO_PAGE_ID;
use super::{BufferPool, MIN_FRAMES};
use crate::base::{Error, Result};

pub(super) struct Size {
    /// Held by who adds frames, which takes a while. Before `state`.
    adding: Mutex<()>,
    /// The limit changes under it.
    state: Mutex<State>,
    /// The following change under `state`. Relaxed: who reads them without it is told of a moment.
    ///
    /// What the setting says.
    frames: AtomicU32,
    /// Frames that are to be held back; not more than half are.
    held: AtomicU32,
    /// How many are leaving.
    leaving: AtomicU32,
}

struct State {
    /// Frames beyond the limit that were not withdrawn when they were looked at last, or may have memory.
    leaving: VecDeque<u32>,
}

impl Size {
    pub fn new(frames: usize) -> Size {
        Size {
            adding: Mutex::default(),
            state: Mutex::new(State {
                leaving: VecDeque::new(),
            }),
            frames: AtomicU32::new(frames as u32),
            held: AtomicU32::new(0),
            leaving: AtomicU32::new(0),
        }
    }

    fn note(&self, state: &State) {
        self.leaving.store(state.leaving.len() as u32, Relaxed);
    }

    fn limit(&self) -> u32 {
        let frames = self.frames.load(Relaxed);
        frames - self.held.load(Relaxed).min(frames / 2)
    }
}

/// What became of a frame that is to be withdrawn.
enum Left {
    /// It is.
    Gone,
    /// Its page has to be written before.
    Dirty,
    /// It is on the free list, or about to be.
    Free,
    /// Somebody has it.
    InUse,
}

/// What came of looking at frames that are leaving.
#[derive(Default)]
pub struct Leaving {
    /// How many were looked at.
    pub seen: usize,
    /// How many of them are withdrawn now.
    pub gone: usize,
    /// Those whose pages have to be written before.
    pub dirty: Vec<u32>,
}

impl BufferPool {
    /// Changes how many frames there are for pages. More are there when this returns; fewer take the page
    /// cleaner a while ([`BufferPool::frames_leaving`]).
    ///
    /// # Errors
    ///
    /// `Invalid`: fewer than the fewest, or more than there can be. `NoSpace`: the system gives no more
    /// memory. Then nothing has changed.
    pub fn set_frames(&self, frames: usize) -> Result<()> {
        let most = self.frames.most();
        if !(MIN_FRAMES..=most).contains(&frames) {
            return Err(Error::invalid(format!(
                "a buffer pool of {frames} pages: it can have from {MIN_FRAMES} to {most}"
            )));
        }
        let _one = self.size.adding.lock();
        let before = self.frames.len();
        if frames > before {
            self.arena.grow(frames)?;
            self.frames.grow(frames)?;
            self.frames[before..]
                .iter()
                .for_each(|frame| frame.withdraw());
            self.table.grow(&self.frames);
            self.replacement.grow(frames);
            self.gone.grow(frames);
        }
        self.arena.measure(frames);
        let mut state = self.size.state.lock();
        self.size.frames.store(frames as u32, Relaxed);
        self.move_limit(&mut state);
        Ok(())
    }

    /// Holds back frames for so many bytes, but no more than half of them. No page has been in the pool yet.
    pub fn hold_back(&self, bytes: usize) {
        let mut state = self.size.state.lock();
        self.size.held.store(self.pages_of(bytes), Relaxed);
        self.move_limit(&mut state);
        // None has memory that could be given back.
        let is_withdrawn = |frame: u32| self.frames[frame as usize].is_withdrawn();
        let are_unused = state.leaving.drain(..).all(is_withdrawn);
        assert!(are_unused, "BUF-9: no frame was used");
        self.size.note(&state);
    }

    /// Holds no more frames back than so many bytes take.
    pub(super) fn give_back(&self, bytes: usize) {
        let held = self.pages_of(bytes);
        // Mostly it is as many as before.
        if held >= self.size.held.load(Relaxed) {
            return;
        }
        let mut state = self.size.state.lock();
        self.size.held.fetch_min(held, Relaxed);
        self.move_limit(&mut state);
    }

    fn pages_of(&self, bytes: usize) -> u32 {
        u32::try_from(bytes.div_ceil(self.page_size)).unwrap_or(u32::MAX)
    }

    fn move_limit(&self, state: &mut State) {
        let (before, limit) = (self.replacement.limit(), self.size.limit());
        self.replacement.set_limit(limit);
        if limit > before {
            state.leaving.retain(|&frame| frame >= limit);
            for frame in before..limit {
                if self.frames[frame as usize].take_back() {
                    self.push(frame);
                }
            }
            self.replacement.notify();
        } else if limit < before {
            self.look_through_free();
            state.leaving.extend(limit..before);
            self.replacement.wake_cleaner();
        }
        self.size.note(state);
    }

    /// Withdraws those of the free list that are beyond the limit.
    fn look_through_free(&self) {
        for _ in 0..self.replacement.free_len() {
            // Whoever finds it beyond the limit withdraws it.
            let Some(frame) = self.pop() else { break };
            self.push(frame);
        }
    }

    /// The frame, which the caller has and which is as BUF-3 says, if it is still one for pages.
    pub(super) fn usable(&self, frame: u32) -> Option<u32> {
        if frame < self.replacement.limit() {
            return Some(frame);
        }
        self.withdraw(frame);
        None
    }

    /// Puts a frame on the free list, or out of use.
    pub(super) fn push(&self, frame: u32) {
        if let Some(frame) = self.usable(frame) {
            self.replacement.push(frame);
        }
    }

    /// A frame of the free list.
    pub(super) fn pop(&self) -> Option<u32> {
        loop {
            let frame = self.usable(self.replacement.pop()?);
            if frame.is_some() {
                return frame;
            }
        }
    }

    /// The frame, which the caller has and which is as BUF-3 says, is beyond the limit.
    fn withdraw(&self, index: u32) {
        let frame = &self.frames[index as usize];
        frame.withdraw();
        if index < self.replacement.limit() && frame.take_back() {
            self.replacement.push(index);
        }
    }

    /// Looks at the next of the frames that are leaving, at so many at most, and until so many have to be
    /// written; withdraws those that nobody uses. For the page cleaner.
    pub fn withdraw_leaving(&self, most: usize, most_dirty: usize) -> Leaving {
        let mut found = Leaving::default();
        let mut state = self.size.state.lock();
        let (mut gone, mut is_any_free) = (Vec::new(), false);
        for _ in 0..most.min(state.leaving.len()) {
            if found.dirty.len() >= most_dirty {
                break;
            }
            let Some(index) = state.leaving.pop_front() else {
                break;
            };
            found.seen += 1;
            let left = self.try_withdraw(index);
            match left {
                Left::Gone => {
                    gone.push(index);
                    continue;
                }
                Left::Dirty => found.dirty.push(index),
                Left::Free => is_any_free = true,
                Left::InUse => {}
            }
            state.leaving.push_back(index);
        }
        if is_any_free {
            self.look_through_free();
        }
        // Those side by side together.
        for run in gone.chunk_by(|a, b| a + 1 == *b) {
            let first = run[0] as usize;
            self.arena.release(first..first + run.len());
        }
        found.gone = gone.len();
        self.size.note(&state);
        found
    }

    fn try_withdraw(&self, index: u32) -> Left {
        let frame = &self.frames[index as usize];
        if frame.is_withdrawn() {
            return Left::Gone;
        }
        let page = frame.page_id();
        let has_page = page.to_u64() != NO_PAGE_ID;
        if self.try_recycle(index) {
            if has_page {
                self.replacement.remember(page);
            }
            self.withdraw(index);
            return Left::Gone;
        }
        match frame.unpinned() {
            true if frame.is_dirty() => Left::Dirty,
            false if !has_page => Left::Free,
            // A page that is pinned stays, written or not.
            _ => Left::InUse,
        }
    }

    /// How many frames there are for pages.
    pub fn usable_frames(&self) -> usize {
        self.replacement.limit() as usize
    }

    /// How many the setting says.
    pub fn n_frames(&self) -> usize {
        self.size.frames.load(Relaxed) as usize
    }

    pub fn held_back_frames(&self) -> usize {
        self.n_frames().saturating_sub(self.usable_frames())
    }

    /// Frames that are to go, as the pool was made smaller, and that nobody has looked at, somebody uses, or
    /// that have to be written.
    pub fn frames_leaving(&self) -> usize {
        self.size.leaving.load(Relaxed) as usize
    }

    /// The largest pool that there can be, in frames.
    pub fn most_frames(&self) -> usize {
        self.frames.most()
    }
}
