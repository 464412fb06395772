//! Free frames, and who gives way to make them.
//!
//! **Policy.** Two parts. A page that is put in is on *probation* (probation.rs). As long as more than a
//! tenth of the frames hold newcomers the oldest of them go first, and the hand below stands still: what
//! passes through once, a scan's pages or leaves and undo that a statement changes row by row, makes room
//! for itself, whatever its number. One that is used again before its turn comes stays. One that had to go,
//! and comes back before the pool was filled anew, stays at once.
//!
//! All others are the *clock's*, which has small usage counters (GCLOCK). Uses are counted at most once per
//! *tick*, a tick being the loading of 1/16 of the pool: a locking cursor that latches the same leaf once
//! per row has used it once. A counted use is worth two rounds of the hand, four can be saved up: a page
//! that is used once in two rounds stays for good, where strict LRU would have dropped it after one. A hit
//! within a tick writes to no cache line but the latch's, which a list with a midpoint (InnoDB's) can't
//! have. After five rounds without a find every page has been seen without a life left.
//!
//! A newcomer whose turn comes while it is dirty gets another turn, as it is written soon: the page cleaner
//! takes the older half of them first. Until then the hand frees a frame if it finds one close by, so that
//! bulk changes don't use up the lives of all the others.
//!
//! **Fewer frames.** Frames from the limit on are out of use (BUF-9, size.rs): the free list does not have
//! them, and the hand goes round below it. When the limit moves the hand is somewhere else, which does no
//! harm.
//!
//! **Ahead of demand.** The page cleaner keeps a number of frames free ([`BufferPool::refill_free`]), and is
//! woken when half of them are taken; a thread that finds none left moves the hand itself.
//!
//! **Waiting.** Only clean pages go. When there is none among the newcomers, or in five rounds of the hand,
//! the caller asks the page cleaner and waits for it to finish a write. That never deadlocks: the cleaner
//! takes shared latches one at a time, with a time limit, of pages that it skips if it can't have them. It
//! can fail: `Error::NoSpace` after [`GIVE_UP`], when the pool is smaller than what its users keep latched
//! and pinned.
//!
//! **Memory.** The arena's memory is the system's until it is written to for the first time. Clearing it then
//! costs the thread that fills the pool as much as its own work, so the page cleaner asks for it beforehand:
//! as much as is in use and a sixteenth of the pool, but no more than [`MAX_AHEAD_BYTES`], which keeps it
//! from its other duties for some 0.1 s. A small database in a large pool takes no more than that.

#![allow(unsafe_code)]

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};
use std::time::{Duration, Instant};

use crossbeam_queue::SegQueue;
use crossbeam_utils::CachePadded;
use parking_lot::{Condvar, Mutex};

use super::BufferPool;
use super::frame::{Frame, NO_PAGE_ID};
use super::grown::Grown;
use super::probation::Probation;
use super::touched::{Clock, Tick};
use crate::base::{Error, PageId, Result, sync};

/// The hand is advanced by this many frames at once, so that threads looking for frames rarely meet.
const HAND_STEP: usize = 8;

/// How long a thread waits for a free frame before it reports an error.
const GIVE_UP: Duration = Duration::from_secs(60);

/// Newcomers that are looked at for one that can go.
const TURNS: usize = 64;

/// How long a thread waits for newcomers to be written before the hand goes round for it.
const NEWCOMERS_PATIENCE: Duration = Duration::from_millis(100);

/// What came of looking for a newcomer that has to go.
enum Newcomer {
    /// Its frame, freed.
    Goes(u32),
    /// There are enough, and some have to be written first.
    IsDirty,
    None,
}

pub(super) struct Replacement {
    /// Frames that hold nothing (BUF-3).
    free: SegQueue<u32>,
    /// Frames from this one on are out of use (BUF-9). SeqCst: size.rs.
    limit: sync::AtomicU32,
    /// The clock hand; taken modulo the limit.
    hand: CachePadded<AtomicU64>,
    /// Number of pages loaded; ticks derive from it.
    loads: CachePadded<AtomicU64>,
    clock: Clock,
    probation: Grown<Probation>,
    /// Threads that wait for the cleaner.
    waiting: AtomicU32,
    cleaned: (Mutex<()>, Condvar),
    /// Nobody will clean any frame, and why. A waiter looks again soon.
    given_up: OnceLock<Error>,
    wake_cleaner: OnceLock<Box<dyn Fn() + Send + Sync>>,
    /// With fewer free frames than this the cleaner is woken, once until it has looked after them. Relaxed
    /// both: a missed one wakes nobody until the cleaner's next round, or until somebody waits.
    low_mark: AtomicU32,
    told_low: AtomicBool,
    pub(super) backing: Backing,
}

/// Memory is asked for at most so far ahead of its use.
const MAX_AHEAD_BYTES: usize = 256 << 20;

/// How much of the arena has memory. Frames are used for the first time in their order. Relaxed throughout:
/// only advice to the system depends on it.
pub(super) struct Backing {
    /// Frames below this have memory. Written by the page cleaner.
    pub(super) until: AtomicU32,
    /// One more than the highest frame that was used when the cleaner was asked.
    used: AtomicU32,
    /// The cleaner was asked for more.
    asked: AtomicBool,
    /// So many frames beyond those in use have memory at most.
    most_ahead: u32,
}

impl Backing {
    fn new(page_size: usize) -> Backing {
        Backing {
            until: AtomicU32::new(0),
            used: AtomicU32::new(0),
            asked: AtomicBool::new(false),
            most_ahead: (MAX_AHEAD_BYTES / page_size) as u32,
        }
    }

    /// How many frames beyond those in use are to have memory.
    fn ahead(&self, limit: u32) -> u32 {
        (limit / 16).min(self.most_ahead)
    }

    /// Whether `frame` is so close to the frames without memory that more is wanted, of those below `limit`.
    #[inline]
    fn is_short(&self, frame: u32, limit: u32) -> bool {
        let until = self.until.load(Relaxed);
        until < limit && frame + self.ahead(limit) / 2 >= until
    }

    /// Frames from this one on lose their memory.
    fn end_at(&self, limit: u32) {
        self.until.fetch_min(limit, Relaxed);
        self.used.fetch_min(limit, Relaxed);
    }
}

impl Replacement {
    pub fn new(frames: usize, page_size: usize) -> Replacement {
        let free = SegQueue::new();
        (0..frames).for_each(|frame| free.push(frame as u32));
        Replacement {
            free,
            limit: sync::AtomicU32::new(frames as u32),
            hand: CachePadded::new(AtomicU64::new(0)),
            loads: CachePadded::new(AtomicU64::new(0)),
            clock: Clock::new(),
            probation: Grown::new(Probation::new(frames)),
            waiting: AtomicU32::new(0),
            cleaned: Default::default(),
            given_up: OnceLock::new(),
            wake_cleaner: OnceLock::new(),
            low_mark: AtomicU32::new(0),
            told_low: AtomicBool::new(false),
            backing: Backing::new(page_size),
        }
    }

    #[inline]
    pub fn now(&self) -> Tick {
        self.clock.now()
    }

    pub fn count_load(&self) {
        let loads = self.loads.fetch_add(1, Relaxed) + 1;
        if loads.is_multiple_of(u64::from(self.limit() / 16).max(1)) {
            self.clock.tick();
        }
    }

    pub fn loads(&self) -> u64 {
        self.loads.load(Relaxed)
    }

    pub(super) fn pop(&self) -> Option<u32> {
        self.free.pop()
    }

    pub(super) fn push(&self, frame: u32) {
        self.free.push(frame);
    }

    #[inline]
    pub fn limit(&self) -> u32 {
        self.limit.load(SeqCst)
    }

    /// By one thread at a time (size.rs).
    pub fn set_limit(&self, limit: u32) {
        self.limit.store(limit, SeqCst);
        sync::between_seq_cst();
        self.backing.end_at(limit);
    }

    /// The pool has so many frames now. By one thread at a time. Who is on probation is forgotten, which does
    /// no harm once in a while.
    pub fn grow(&self, frames: usize) {
        if frames > self.probation.room() {
            let twice = 2 * self.probation.room();
            self.probation.replace(Probation::new(frames.max(twice)));
        }
    }

    /// The page goes, though it may be used: it is kept when it comes back soon.
    pub fn remember(&self, page: PageId) {
        self.probation.remember(page, self.loads());
    }

    pub fn free_len(&self) -> usize {
        self.free.len()
    }

    pub fn set_waker(&self, wake: Box<dyn Fn() + Send + Sync>) {
        assert!(
            self.wake_cleaner.set(wake).is_ok(),
            "one page cleaner a pool"
        );
    }

    pub fn low_mark(&self) -> usize {
        self.low_mark.load(Relaxed) as usize
    }

    pub fn waiting(&self) -> u32 {
        self.waiting.load(Relaxed)
    }

    /// Free frames are getting scarce, and the cleaner has not been told.
    fn is_low(&self) -> bool {
        self.free.len() < self.low_mark()
            && !self.told_low.load(Relaxed)
            && !self.told_low.swap(true, Relaxed)
    }

    pub(super) fn wake_cleaner(&self) {
        if let Some(wake) = self.wake_cleaner.get() {
            wake();
        }
    }

    /// A frame became clean or free. Pairs with `wait`, which counts itself before it looks for a frame a
    /// last time.
    pub fn notify(&self) {
        if self.waiting.load(SeqCst) > 0 {
            let _guard = self.cleaned.0.lock();
            self.cleaned.1.notify_all();
        }
    }
}

impl BufferPool {
    /// A free frame: claimed, exclusively latched, naming no page.
    pub(super) fn free_frame(&self) -> Result<u32> {
        match self.pop_free().or_else(|| self.spare(self.all_rounds())) {
            Some(f) => Ok(f),
            None => self.wait_for_frame(),
        }
    }

    /// After so many frames every page has been seen without a life left.
    fn all_rounds(&self) -> usize {
        5 * self.usable_frames()
    }

    /// The frame of a newcomer that has to go; if there is none, one that the hand frees within so many
    /// steps; within a few, if newcomers have to be written.
    pub(super) fn spare(&self, steps: usize) -> Option<u32> {
        match self.newcomer_that_goes() {
            Newcomer::Goes(frame) => Some(frame),
            Newcomer::IsDirty => self.sweep(steps.min(HAND_STEP)),
            Newcomer::None => self.sweep(steps),
        }
    }

    /// The page, which has just come into the frame, is on probation, unless it is back soon.
    pub(super) fn admit(&self, frame: &Frame, page: PageId) {
        let r = &self.replacement;
        let frames = u64::from(r.limit());
        match r.probation.has_gone_lately(page, r.loads(), frames) {
            true => frame.touched.trust(),
            false => r.probation.push(page),
        }
    }

    /// The frame of the oldest newcomer that can go, if there are enough of them. Those that were used again
    /// are the clock's from now on.
    fn newcomer_that_goes(&self) -> Newcomer {
        let r = &self.replacement;
        let mut none = Newcomer::None;
        for _ in 0..TURNS {
            if !r.probation.is_full(u64::from(r.limit())) {
                break;
            }
            let Some(page) = r.probation.pop() else {
                continue;
            };
            let Some(index) = self.table.find(&self.frames, page) else {
                continue;
            };
            let f = &self.frames[index as usize];
            let is_passer_by = !f.touched.is_unused_ahead();
            if f.touched.usage() > 0 {
                continue;
            }
            if f.is_dirty() {
                none = Newcomer::IsDirty;
            } else if f.unpinned() && f.touched.is_done(r.now()) && self.try_recycle(index) {
                if is_passer_by {
                    r.probation.remember(page, r.loads());
                }
                if let Some(index) = self.usable(index) {
                    return Newcomer::Goes(index);
                }
                continue;
            }
            r.probation.push(page);
        }
        none
    }

    /// One of the free list.
    pub(super) fn pop_free(&self) -> Option<u32> {
        let r = &self.replacement;
        let f = self.pop()?;
        if r.backing.is_short(f, r.limit()) {
            self.want_memory(f);
        }
        if r.is_low() {
            r.wake_cleaner();
        }
        Some(f)
    }

    #[cold]
    fn want_memory(&self, frame: u32) {
        let backing = &self.replacement.backing;
        backing.used.fetch_max(frame + 1, Relaxed);
        if !backing.asked.swap(true, Relaxed) {
            self.replacement.wake_cleaner();
        }
    }

    /// The database was poisoned, so no page will be written any more: a wait for a frame soon ends with
    /// `why`.
    pub fn give_up_waiting(&self, why: Error) {
        // The first reason counts.
        let _ = self.replacement.given_up.set(why);
    }

    /// Has the system give memory to the frames that will be used next. For the cleaner.
    pub fn back_ahead(&self) {
        let backing = &self.replacement.backing;
        backing.asked.store(false, Relaxed);
        let from = backing.until.load(Relaxed);
        let limit = self.replacement.limit();
        let to = (backing.used.load(Relaxed)).saturating_add(backing.ahead(limit));
        let to = to.min(limit);
        if to > from {
            self.arena.back(from as usize..to as usize);
            backing.until.store(to, Relaxed);
        }
    }

    #[cold]
    fn wait_for_frame(&self) -> Result<u32> {
        let r = &self.replacement;
        let started = Instant::now();
        r.waiting.fetch_add(1, SeqCst);
        self.counters.free_waits.fetch_add(1, Relaxed);
        let found = loop {
            r.wake_cleaner();
            let mut guard = r.cleaned.0.lock();
            let found = self
                .pop()
                .or_else(|| match started.elapsed() < NEWCOMERS_PATIENCE {
                    true => self.spare(self.all_rounds()),
                    false => self.sweep(self.all_rounds()),
                });
            if let Some(f) = found {
                break Ok(f);
            }
            // The time limit covers wake-ups that nobody sends: a latch given back, a pin dropped.
            r.cleaned.1.wait_for(&mut guard, Duration::from_millis(5));
            drop(guard);
            if let Some(why) = r.given_up.get() {
                break Err(why.clone());
            }
            if started.elapsed() > GIVE_UP {
                let n = self.usable_frames();
                break Err(Error::NoSpace {
                    what: format!(
                        "all {n} frames of the buffer pool are in use or could not be written: make it larger, unless the disk is full"
                    ),
                });
            }
        };
        r.waiting.fetch_sub(1, SeqCst);
        found
    }

    /// Lets the clock hand pass over up to `steps` frames until it has freed some. Returns the first; others
    /// of the same step go to the free list, since the hand won't be back before its next round.
    pub(super) fn sweep(&self, steps: usize) -> Option<u32> {
        let n = u64::from(self.replacement.limit());
        let mut found = None;
        for _ in 0..steps.div_ceil(HAND_STEP) {
            let start = self.replacement.hand.fetch_add(HAND_STEP as u64, Relaxed);
            for at in start..start + HAND_STEP as u64 {
                let index = (at % n) as u32;
                let f = &self.frames[index as usize];
                if !f.unpinned() || !f.touched.age() || f.is_dirty() || !self.try_recycle(index) {
                    continue;
                }
                match found {
                    None => found = self.usable(index),
                    Some(_) => self.push(index),
                }
            }
            if found.is_some() {
                break;
            }
        }
        found
    }

    /// Takes the page out of a frame that nobody uses and that is clean. Afterwards the frame is as BUF-3
    /// says.
    pub(super) fn try_recycle(&self, index: u32) -> bool {
        let f = &self.frames[index as usize];
        if !f.try_claim() {
            return false;
        }
        if !f.latch.try_lock_exclusive() {
            f.unclaim();
            return false;
        }
        if f.is_dirty() {
            // SAFETY: latched above.
            unsafe { f.latch.unlock_exclusive() };
            f.unclaim();
            return false;
        }
        if f.page.load(Relaxed) != NO_PAGE_ID && f.touched.is_unused_ahead() {
            self.counters.read_ahead_evicted.fetch_add(1, Relaxed);
        }
        self.empty(index);
        self.counters.evictions.fetch_add(1, Relaxed);
        true
    }

    /// Breaks the link between a frame and its page. The caller has the exclusive latch.
    fn empty(&self, index: u32) {
        let f = &self.frames[index as usize];
        let page = f.page.load(Acquire);
        if page != NO_PAGE_ID {
            f.clear_image();
            self.tell_hits(f.touched.end());
            self.table
                .remove(&self.frames, index, PageId::from_u64(page));
        }
    }

    pub(super) fn push_free(&self, index: u32) {
        self.push(index);
        self.replacement.notify();
    }

    /// Ends the stay of a page that could not be filled. The caller has the exclusive latch, which is given
    /// back. Threads that wait for the latch find that the frame holds something else and start again;
    /// because of them the frame can't always be claimed. Then it stays behind empty, and the clock picks it
    /// up.
    pub(super) fn give_up(&self, index: u32) {
        let f = &self.frames[index as usize];
        self.empty(index);
        if f.try_claim() {
            self.push_free(index);
        } else {
            // SAFETY: the caller's latch.
            unsafe { f.latch.unlock_exclusive() };
        }
    }

    /// Forgets a page whose content nobody will look at again, without writing it. If its frame is in use
    /// just now (the cleaner may be writing it), it stays there, and becomes clean and free in the usual way.
    pub fn forget(&self, id: PageId) {
        if let Some(index) = self.table.find(&self.frames, id) {
            self.forget_if(index, |page| page == id);
        }
    }

    /// Whether the frame holds such a page; without its latch that may change at once.
    pub(super) fn may_hold(&self, index: u32, is_it: impl Fn(PageId) -> bool) -> bool {
        let f = &self.frames[index as usize];
        f.page.load(Relaxed) != NO_PAGE_ID && is_it(f.page_id())
    }

    /// Empties a frame that nobody uses, if it holds such a page.
    pub(super) fn forget_if(&self, index: u32, is_it: impl Fn(PageId) -> bool) {
        let f = &self.frames[index as usize];
        if !f.try_claim() {
            return;
        }
        if !f.latch.try_lock_exclusive() {
            f.unclaim();
            return;
        }
        if self.may_hold(index, is_it) {
            f.with_dirty_state(|| {
                f.next_first_change.store(0, Relaxed);
                let old = f.first_change.swap(0, Release);
                self.dirty.count_change(old, 0);
            });
            self.empty(index);
            self.push_free(index);
        } else {
            // SAFETY: latched above.
            unsafe { f.latch.unlock_exclusive() };
            f.unclaim();
        }
    }

    /// Takes clean pages that the clock would take next out of their frames until `target` frames are free
    /// or the hand went round once. For the cleaner, so that users find free frames at once. Returns how
    /// many are free.
    pub fn refill_free(&self, target: usize) -> usize {
        let target = target.min(self.usable_frames());
        let r = &self.replacement;
        r.low_mark.store(target as u32 / 2, Relaxed);
        r.told_low.store(false, Relaxed);
        let mut steps = self.usable_frames();
        while r.free_len() < target && steps > 0 {
            match self.newcomer_that_goes() {
                Newcomer::Goes(frame) => self.push_free(frame),
                Newcomer::IsDirty => break,
                Newcomer::None => {
                    let portion = steps.min(64);
                    steps -= portion;
                    (self.sweep(portion).into_iter()).for_each(|frame| self.push_free(frame));
                }
            }
        }
        r.free_len()
    }

    /// Frames with dirty pages that would go, if they were clean: the older newcomers, then those just
    /// ahead of the clock hand which it would pass at most `rounds` times before it takes them, in the
    /// order in which it comes to them.
    pub(super) fn cold_dirty_ahead(
        &self,
        look_at: usize,
        rounds: u32,
    ) -> impl Iterator<Item = u32> + '_ {
        let r = &self.replacement;
        let n = u64::from(r.limit());
        let start = r.hand.load(Relaxed);
        let newcomers =
            (r.probation.older_half()).filter_map(|page| self.table.find(&self.frames, page));
        newcomers
            .chain((start..start + (look_at as u64).min(n)).map(move |at| (at % n) as u32))
            .filter(move |&i| {
                let f = &self.frames[i as usize];
                f.touched.usage() <= rounds && f.is_dirty() && f.unpinned()
            })
    }
}
