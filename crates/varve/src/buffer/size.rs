//! How many frames there are for pages: as many as the setting says, less those that are held back as long as
//! recovery has redo in memory, so that both together take no more than the pool may.
//!
//! - **BUF-9** Frames from the limit on are *withdrawn*, sooner or later: they are free as BUF-3 says, but on no
//!   list, their pins say so, and what memory they had goes back to the system. A frame is withdrawn by whoever
//!   has it free, and comes back once: whoever takes the mark away has it, and puts it on the free list. The
//!   limit is never below half of the setting; a frame below it is not withdrawn for longer than a moment.
//!
//! # Protocol
//!
//! *The limit* changes under the mutex `Size`. To all others frames beyond it are as if they were not there: the
//! clock goes round below it, and a thread that finds no frame has pages written and waits, as always.
//!
//! *It falls.* Whoever takes a frame from the free list, or is about to put one there, and finds it beyond the
//! limit, withdraws it. Those on the list are looked through at once. Frames that hold pages, or are in
//! somebody's hands are noted as *leaving*; the page cleaner comes to them again and again, in portions
//! ([`BufferPool::withdraw_leaving`]): a page that nobody uses and that is clean goes, a dirty one is written
//! before. Which pages go does not depend on their use, but those that go are remembered like newcomers that
//! had to go, so one that is used again is kept when it comes back. A page that stays pinned keeps its frame as
//! long.
//!
//! *It rises.* First the limit, then whoever raises it takes all frames back that it passes and that are
//! withdrawn. Who withdraws a frame just then has either marked it before it is looked at, or finds the new
//! limit: mark and limit are each written before the other is read, all SeqCst. In the second case he tries to
//! take the mark away himself. Those that are still leaving stay where they are.
//!
//! *Memory* is given back under the mutex, so no frame is taken back meanwhile.
//!
//! *More frames than ever* are added before the limit rises: withdrawn ones. Parts that are sized by their
//! number are replaced by larger ones (grown.rs).

use std::collections::VecDeque;

use super::frame::NO_PAGE_ID;
use super::{BufferPool, MIN_FRAMES};
use crate::base::{Error, Result};

/// Under the mutex with which the limit changes.
pub(super) struct Size {
    /// What the setting says.
    frames: u32,
    /// Of these, held back.
    held: u32,
    /// Frames beyond the limit that were not withdrawn when they were looked at last, or may have memory.
    leaving: VecDeque<u32>,
}

impl Size {
    pub fn new(frames: usize) -> Size {
        Size {
            frames: frames as u32,
            held: 0,
            leaving: VecDeque::new(),
        }
    }

    fn limit(&self) -> u32 {
        self.frames - self.held.min(self.frames / 2)
    }
}

/// What became of a frame that is to be withdrawn.
enum Left {
    /// It is.
    Gone,
    /// Its page has to be written before.
    Dirty,
    /// Somebody has it.
    InUse,
}

impl BufferPool {
    /// Changes how many frames there are for pages. More are there when this returns; fewer take the page
    /// cleaner a while ([`BufferPool::frames_leaving`]).
    ///
    /// # Errors
    ///
    /// `Invalid`: fewer than the fewest, or more than there can be. `NoSpace`: the system gives no more memory.
    /// Then nothing has changed.
    pub fn set_frames(&self, frames: usize) -> Result<()> {
        let most = self.frames.most();
        if !(MIN_FRAMES..=most).contains(&frames) {
            return Err(Error::invalid(format!(
                "a buffer pool of {frames} pages: it can have from {MIN_FRAMES} to {most}"
            )));
        }
        let mut size = self.size.lock();
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
        size.frames = frames as u32;
        self.arena.measure(frames);
        self.move_limit(&mut size);
        Ok(())
    }

    /// Holds back frames for so many bytes, but no more than half of them. No page has been in the pool yet.
    pub fn hold_back(&self, bytes: usize) {
        let mut size = self.size.lock();
        size.held = self.pages_of(bytes);
        self.move_limit(&mut size);
        // None has memory that could be given back.
        let mut leaving = size.leaving.drain(..);
        let is_withdrawn = |frame: u32| self.frames[frame as usize].is_withdrawn();
        assert!(leaving.all(is_withdrawn), "BUF-9: no frame was used");
    }

    /// Holds no more frames back than so many bytes take.
    pub(super) fn give_back(&self, bytes: usize) {
        let held = self.pages_of(bytes);
        // Mostly it is as many as before: a page more is read with each call.
        if held >= self.replacement.held() {
            return;
        }
        let mut size = self.size.lock();
        size.held = size.held.min(held);
        self.move_limit(&mut size);
    }

    fn pages_of(&self, bytes: usize) -> u32 {
        u32::try_from(bytes.div_ceil(self.page_size)).unwrap_or(u32::MAX)
    }

    fn move_limit(&self, size: &mut Size) {
        let (before, limit) = (self.replacement.limit(), size.limit());
        self.replacement.set_limit(limit, size.frames - limit);
        if limit > before {
            size.leaving.retain(|&frame| frame >= limit);
            for frame in before..limit {
                if self.frames[frame as usize].take_back() {
                    self.push(frame);
                }
            }
            self.replacement.notify();
        } else if limit < before {
            self.look_through_free();
            size.leaving.extend(limit..before);
            self.replacement.wake_cleaner();
        }
    }

    /// Withdraws those of the free list that are beyond the limit.
    fn look_through_free(&self) {
        for _ in 0..self.replacement.free_len() {
            // Whoever finds it beyond the limit withdraws it.
            let Some(frame) = self.pop() else { break };
            self.push(frame);
        }
    }

    /// Puts a frame on the free list, or out of use.
    pub(super) fn push(&self, frame: u32) {
        match frame < self.replacement.limit() {
            true => self.replacement.push(frame),
            false => self.withdraw(frame),
        }
    }

    /// A frame of the free list.
    pub(super) fn pop(&self) -> Option<u32> {
        loop {
            let frame = self.replacement.pop()?;
            if frame < self.replacement.limit() {
                return Some(frame);
            }
            self.withdraw(frame);
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

    /// Looks at the next `portion` of the frames that are leaving, and withdraws those that nobody uses. Those
    /// whose pages have to be written before are put into `dirty`, in place of what is there. True if some
    /// could be withdrawn, and there are more. For the page cleaner.
    pub fn withdraw_leaving(&self, portion: usize, dirty: &mut Vec<u32>) -> bool {
        dirty.clear();
        let mut size = self.size.lock();
        if size.leaving.is_empty() {
            return false;
        }
        self.look_through_free();
        let mut gone = Vec::new();
        for _ in 0..portion.min(size.leaving.len()) {
            let Some(index) = size.leaving.pop_front() else {
                break;
            };
            match self.try_withdraw(index) {
                Left::Gone => gone.push(index),
                left => {
                    size.leaving.push_back(index);
                    if matches!(left, Left::Dirty) {
                        dirty.push(index);
                    }
                }
            }
        }
        // Those side by side together.
        for run in gone.chunk_by(|a, b| a + 1 == *b) {
            let first = run[0] as usize;
            self.arena.release(first..first + run.len());
        }
        !gone.is_empty() && !size.leaving.is_empty()
    }

    fn try_withdraw(&self, index: u32) -> Left {
        let frame = &self.frames[index as usize];
        if frame.is_withdrawn() {
            return Left::Gone;
        }
        let page = frame.page_id();
        match self.try_recycle(index) {
            true => {
                if page.to_u64() != NO_PAGE_ID {
                    self.replacement.remember(page);
                }
                self.withdraw(index);
                Left::Gone
            }
            false if frame.is_dirty() => Left::Dirty,
            false => Left::InUse,
        }
    }

    /// How many frames there are for pages.
    pub fn usable_frames(&self) -> usize {
        self.replacement.limit() as usize
    }

    pub fn held_back_frames(&self) -> usize {
        self.replacement.held() as usize
    }

    /// Frames that are to go, as the pool was made smaller, and that somebody uses, or that have to be written.
    pub fn frames_leaving(&self) -> usize {
        self.size.lock().leaving.len()
    }

    /// The largest pool that there can be, in frames.
    pub fn most_frames(&self) -> usize {
        self.frames.most()
    }
}
