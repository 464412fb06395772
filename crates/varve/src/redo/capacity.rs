//! How far the log may get from the checkpoint: reservations of mini-transactions, and the capacity, which
//! can be changed at any time.
//!
//! # Reservations
//! `claimed` is at least `next` plus every outstanding reservation's unused rest and the credits, from which
//! most reservations come (`credit`). One that finds too little there adds its bytes to `claimed` and keeps
//! them only within two bounds:
//!
//! - **LOG-1** `claimed <= checkpoint + limit`. The *limit* is the capacity, except while the capacity is
//!   being lowered.
//! - **LOG-2** `claimed <= room`, up to where there are files (LF-4).
//!
//! So an append under a reservation never waits for the checkpoint, nor the log writer for space on the disk.
//! A thread that finds no room waits without latches until the checkpoint moves, a file is made, or a
//! reservation is given back. Above 7/8 of the capacity, and when a bound is met, the pressure callback asks
//! the page cleaner to advance the checkpoint, once per checkpoint.
//!
//! `room` falls when a spare file is removed. The remover lowers it first and then looks at `claimed`; a
//! claim adds first and then looks at `room` (both SeqCst): one of the two sees the other, and gives way. The
//! limit is no such promise: a claim that passed it a moment before it was lowered counts.
//!
//! Far from the bounds a claim is one addition, which is taken back if it is too much. Once somebody has come
//! near them, until the checkpoint moves, a claim looks first: bytes that are claimed in vain would be in the
//! way of others for a moment. A thread that takes bytes back then looks for waiters; a waiter makes itself
//! known, notes the epoch, and then looks at `claimed` (all SeqCst): one of the two sees the other, so that
//! nobody sleeps on although there is room.
//!
//! # Changing the capacity
//! *Growing*: the files are made first. If there is no space for them, what was made is removed again and
//! nothing has changed. Then the limit is raised, and waiters go on.
//!
//! *Shrinking*: the capacity is lowered at once, so that the page cleaner sees an age beyond it and writes
//! pages at full speed. The limit follows behind: it starts a little above the present age, if that is less
//! than it was, and falls by half of what the checkpoint gains. So writers always have the other half, and
//! nobody waits for the whole way to the new capacity:
//!
//! - **LOG-3** Until the capacity is reached, each step of the checkpoint gives writers room.
//!
//! Files that are not needed for the limit any more are removed meanwhile by the background writer. When the
//! limit has come to the capacity, new files are made in the length that suits it.
//!
//! *Recovery* finds a log that may be full, and can't give any of it up before all of it is applied. Nobody
//! is to wait for that: the limit is raised by what was found (`exempt_recovered`), and falls as after a
//! change of the capacity once the checkpoint moves.
//!
//! A crash at any moment leaves files of various lengths and number, all of which the next opening can use
//! (`file_pool`). The capacity is not written down anywhere: each opening brings its own.
//!
//! `capacity` and `limit` are changed under the mutex of `epoch`, and read without: each value was right at
//! some moment. The checkpoint was stored with Release by `set_checkpoint`.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_utils::CachePadded;
use parking_lot::{Condvar, Mutex, MutexGuard};

use super::LogSettings;
use super::credit::Credit;
use super::file_pool::{FilePool, Step};
use super::files::LogFile;
use super::frame;
use super::log::{RedoLog, count};
use crate::base::{Error, Lsn, Recently, Result, Sabotage};

/// Waiting for capacity looks again at least this often, so that no lost wake-up can hang it.
const RESERVE_RECHECK: Duration = Duration::from_millis(20);

/// What bounds the log, and the waiters for that.
pub(super) struct Bounds {
    claimed: CachePadded<AtomicU64>,
    credit: Credit,
    /// The settings' or the last `set_capacity`'s.
    capacity: AtomicU64,
    limit: AtomicU64,
    room: AtomicU64,
    /// Bytes between the checkpoint and the room when files were released last.
    held: AtomicU64,
    /// From this checkpoint on a file can be used again.
    oldest_end: AtomicU64,
    /// Bytes of all files.
    file_bytes: AtomicU64,
    /// Threads in `wait_for_capacity`.
    waiters: AtomicU32,
    /// Counts the wake-ups, so that a waiter sees one that came between its attempt and its wait.
    epoch: Mutex<u64>,
    moved: Condvar,
    /// Whether the pressure callback was called since the checkpoint last moved.
    pressed: AtomicBool,
    /// One change of the capacity at a time.
    resizing: Mutex<()>,
    /// Why the checkpoint can't move for the time being: a reservation that would wait for it is refused.
    standstill: Mutex<Option<&'static str>>,
    /// Pages can't be written, and the first change that one of them lacks; 0: they fill the pool. Relaxed:
    /// who sees it late is refused late.
    held_back: Recently,
    held_from: AtomicU64,
    /// Where the part of the log that recovery found ends, if nobody is to wait for it; else 0. Relaxed: it
    /// is set before there are users.
    exempt_below: AtomicU64,
}

impl Bounds {
    /// Of a log that is opened with what lies between `checkpoint` and `end`.
    pub fn new(settings: &LogSettings, pool: &FilePool, checkpoint: Lsn, end: Lsn) -> Bounds {
        let capacity = settings.capacity_bytes;
        // It may have been opened with a larger capacity before.
        let limit = capacity.max(end.0 - checkpoint.0 + capacity / 8);
        let bounds = Bounds {
            claimed: CachePadded::new(AtomicU64::new(end.0)),
            credit: Credit::new(),
            capacity: AtomicU64::new(capacity),
            limit: AtomicU64::new(limit),
            room: AtomicU64::new(0),
            held: AtomicU64::new(0),
            oldest_end: AtomicU64::new(0),
            file_bytes: AtomicU64::new(0),
            waiters: AtomicU32::new(0),
            epoch: Mutex::new(0),
            moved: Condvar::new(),
            pressed: AtomicBool::new(false),
            resizing: Mutex::new(()),
            standstill: Mutex::new(None),
            held_back: Recently::default(),
            held_from: AtomicU64::new(0),
            exempt_below: AtomicU64::new(0),
        };
        bounds.show(pool, checkpoint);
        bounds
    }

    /// Publishes what the pool has, files below the checkpoint released. Its mutex is held.
    fn show(&self, pool: &FilePool, checkpoint: Lsn) {
        self.oldest_end
            .store(pool.oldest_end().0, Ordering::Relaxed);
        self.file_bytes.store(pool.bytes(), Ordering::Relaxed);
        let room = pool.room().0;
        let held = room.saturating_sub(checkpoint.0);
        self.held.store(held, Ordering::Relaxed);
        if self.room.swap(room, Ordering::SeqCst) < room {
            self.wake();
        }
    }

    pub fn wake(&self) {
        *self.epoch.lock() += 1;
        self.moved.notify_all();
    }

    /// Whether so much may be claimed (LOG-1, LOG-2).
    fn is_within(&self, claimed: u64, checkpoint: Lsn) -> bool {
        claimed.saturating_sub(checkpoint.0) <= self.limit.load(Ordering::Relaxed)
            && claimed <= self.room.load(Ordering::SeqCst)
    }

    fn unclaim(&self, bytes: u64) {
        self.claimed.fetch_sub(bytes, Ordering::SeqCst);
        if self.waiters.load(Ordering::SeqCst) > 0 {
            self.wake();
        }
    }

    /// A reservation gives its rest back.
    fn give_back(&self, bytes: u64) {
        let capacity = self.capacity.load(Ordering::Relaxed);
        let is_awaited = || self.waiters.load(Ordering::SeqCst) > 0;
        let too_much = self.credit.give(bytes, capacity, is_awaited);
        if too_much > 0 {
            self.unclaim(too_much);
        }
    }

    /// Takes what is at hand from the claims (CREDIT-1).
    fn end_credits(&self) {
        let all = self.credit.take_all();
        if all > 0 {
            self.unclaim(all);
        }
    }

    /// The checkpoint has moved on by so much. Returns whether there may be something to do about the files.
    pub fn checkpoint_moved(&self, checkpoint: Lsn, gained: u64) -> bool {
        self.pressed.store(false, Ordering::Relaxed);
        let mut epoch = self.epoch.lock();
        let limit = self.limit.load(Ordering::Relaxed);
        let capacity = self.capacity.load(Ordering::Relaxed);
        if limit > capacity {
            let claimed = self.claimed.load(Ordering::Relaxed);
            let lowered = limit.saturating_sub(gained / 2);
            let lowered = lowered.min(above_age(claimed, checkpoint, capacity));
            self.limit.store(lowered.max(capacity), Ordering::Relaxed);
        }
        *epoch += 1;
        self.moved.notify_all();
        limit > capacity || checkpoint.0 >= self.oldest_end.load(Ordering::Relaxed)
    }
}

/// What the limit is when the capacity is lowered: a little more than what is there.
fn above_age(claimed: u64, checkpoint: Lsn, capacity: u64) -> u64 {
    claimed.saturating_sub(checkpoint.0) + capacity / 8
}

/// More are not given: the sums of positions stay far from their end.
const MOST_CAPACITY: u64 = 512 << 30;

/// Refuses a capacity that can't hold what a log needs.
pub(super) fn check_capacity(bytes: u64) -> Result<()> {
    let least = 2 * u64::from(frame::MAX_FRAME_BYTES);
    match (least..=MOST_CAPACITY).contains(&bytes) {
        true => Ok(()),
        false => Err(Error::invalid(format!(
            "a redo capacity of {bytes} bytes is not from {least} to {MOST_CAPACITY}"
        ))),
    }
}

/// Redo capacity for one mini-transaction; gives back what was not used when dropped.
pub struct Reservation<'a> {
    log: &'a RedoLog,
    bytes: u64,
    used: Cell<u64>,
}

impl Reservation<'_> {
    /// Takes a frame's bytes out of it.
    pub(super) fn use_up(&self, len: u64) {
        let used = self.used.get() + len;
        assert!(
            used <= self.bytes,
            "a mini-transaction of {used} bytes reserved {}",
            self.bytes
        );
        self.used.set(used);
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        let rest = self.bytes - self.used.get();
        if rest > 0 {
            self.log.bounds.give_back(rest);
        }
    }
}

/// Redo capacity for one mini-transaction that will begin later, and must not wait then.
pub struct HeldCapacity {
    log: Arc<RedoLog>,
    max_bytes: u32,
    /// Claimed, and not handed on to a reservation.
    bytes: Cell<u64>,
}

impl HeldCapacity {
    pub fn max_bytes(&self) -> u32 {
        self.max_bytes
    }

    /// Hands the capacity on to the mini-transaction. Once; later reservations are empty.
    pub fn reservation<'a>(&self, log: &'a RedoLog) -> Reservation<'a> {
        assert!(std::ptr::eq(&*self.log, log), "capacity of another log");
        Reservation {
            log,
            bytes: self.bytes.take(),
            used: Cell::new(0),
        }
    }
}

impl Drop for HeldCapacity {
    fn drop(&mut self) {
        drop(self.reservation(&self.log));
    }
}

// --- Reservations ------------------------------------------------------------------------------------------

impl RedoLog {
    /// Reserves redo capacity for one mini-transaction whose records take at most `max_bytes`. May wait for
    /// the checkpoint to advance: hold no latch.
    pub fn reserve(&self, max_bytes: u32) -> Result<Reservation<'_>> {
        let bytes = frame::frame_bytes(max_bytes as usize + self.body_overhead()) as u64;
        if bytes > u64::from(frame::MAX_FRAME_BYTES) {
            return Err(Error::TooLarge {
                what: "mini-transaction's redo".into(),
                size: max_bytes as usize,
                limit: frame::MAX_FRAME_BYTES as usize - frame::FRAME_HEADER,
            });
        }
        if !self.try_claim(bytes) {
            count(&self.counters.capacity_waits, 1);
            self.wait_for_capacity(bytes)?;
        }
        self.check()?;
        Ok(Reservation {
            log: self,
            bytes,
            used: Cell::new(0),
        })
    }

    /// Like [`reserve`](Self::reserve), if nobody has to be waited for.
    pub(super) fn try_reserve(&self, max_bytes: u32) -> Option<Reservation<'_>> {
        let bytes = frame::frame_bytes(max_bytes as usize + self.body_overhead()) as u64;
        let is_claimed = self.try_claim(bytes);
        is_claimed.then(|| Reservation {
            log: self,
            bytes,
            used: Cell::new(0),
        })
    }

    /// Like [`reserve`](Self::reserve), for a mini-transaction that begins later.
    pub fn hold(self: &Arc<Self>, max_bytes: u32) -> Result<HeldCapacity> {
        let reservation = self.reserve(max_bytes)?;
        let bytes = Cell::new(reservation.bytes);
        std::mem::forget(reservation);
        Ok(HeldCapacity {
            log: self.clone(),
            max_bytes,
            bytes,
        })
    }

    pub(super) fn try_claim(&self, bytes: u64) -> bool {
        let bounds = &self.bounds;
        if bounds.credit.take(bytes) {
            return true;
        }
        if bounds.pressed.load(Ordering::Relaxed) {
            return self.try_claim_near_bounds(bytes);
        }
        let ahead = Credit::ahead(bounds.capacity.load(Ordering::Relaxed), bytes);
        if ahead > 0 && self.try_add_claim(bytes + ahead) {
            bounds.give_back(ahead);
            return true;
        }
        self.try_add_claim(bytes)
    }

    fn try_add_claim(&self, bytes: u64) -> bool {
        let bounds = &self.bounds;
        let claimed = bounds.claimed.fetch_add(bytes, Ordering::SeqCst) + bytes;
        let checkpoint = self.checkpoint_lsn();
        let age = claimed.saturating_sub(checkpoint.0);
        let is_within = bounds.is_within(claimed, checkpoint);
        if !is_within || age > bounds.capacity.load(Ordering::Relaxed) / 8 * 7 {
            self.press();
        }
        if !is_within {
            bounds.unclaim(bytes);
        }
        is_within
    }

    #[cold]
    fn try_claim_near_bounds(&self, bytes: u64) -> bool {
        let bounds = &self.bounds;
        let mut before = bounds.claimed.load(Ordering::SeqCst);
        while bounds.is_within(before + bytes, self.checkpoint_lsn()) {
            let claimed = before + bytes;
            let swapped = bounds.claimed.compare_exchange_weak(
                before,
                claimed,
                Ordering::SeqCst,
                Ordering::SeqCst,
            );
            match swapped {
                Ok(_) if claimed <= bounds.room.load(Ordering::SeqCst) => return true,
                // A spare was removed in between.
                Ok(_) => {
                    bounds.unclaim(bytes);
                    return false;
                }
                Err(now) => before = now,
            }
        }
        false
    }

    fn press(&self) {
        let pressed = &self.bounds.pressed;
        if !pressed.load(Ordering::Relaxed) && !pressed.swap(true, Ordering::Relaxed) {
            self.tell_pressure();
        }
    }

    #[cold]
    fn wait_for_capacity(&self, bytes: u64) -> Result<()> {
        let bounds = &self.bounds;
        bounds.waiters.fetch_add(1, Ordering::SeqCst);
        let result = loop {
            let seen = *bounds.epoch.lock();
            if let Err(e) = self.check() {
                break Err(e);
            }
            // Not to depend on the background thread.
            if self.checkpoint_lsn().0 >= bounds.oldest_end.load(Ordering::Relaxed) {
                self.release_files(&mut self.files.lock());
            }
            // Without the mutex: this may call the pressure callback. CREDIT-1: after `waiters`.
            bounds.end_credits();
            if self.try_claim(bytes) {
                break Ok(());
            }
            if let Some(why) = *bounds.standstill.lock() {
                let what = format!("{bytes} bytes of redo: {why}");
                break Err(Error::NoSpace { what });
            }
            let mut epoch = bounds.epoch.lock();
            if *epoch == seen {
                bounds.moved.wait_for(&mut epoch, RESERVE_RECHECK);
            }
        };
        bounds.waiters.fetch_sub(1, Ordering::Relaxed);
        result
    }
}

// --- The capacity ------------------------------------------------------------------------------------------

impl RedoLog {
    /// How far from the checkpoint the log may get: what was set last, or what there are files for, if that
    /// is less. While the capacity is being lowered the log may be beyond it.
    pub fn capacity(&self) -> u64 {
        let capacity = self.bounds.capacity.load(Ordering::Relaxed);
        // Not 0: others divide by it.
        capacity
            .min(self.bounds.held.load(Ordering::Relaxed))
            .max(1)
    }

    /// How far from the checkpoint the log may get at the moment.
    pub fn capacity_in_force(&self) -> u64 {
        let limit = self.bounds.limit.load(Ordering::Relaxed);
        limit.min(self.bounds.held.load(Ordering::Relaxed))
    }

    /// Bytes of all log files.
    pub fn file_bytes(&self) -> u64 {
        self.bounds.file_bytes.load(Ordering::Relaxed)
    }

    /// Bytes of log between the checkpoint and the newest frame without those that recovery found, if nobody
    /// is to wait for these.
    pub fn counted_age_bytes(&self) -> u64 {
        let exempt = self.bounds.exempt_below.load(Ordering::Relaxed);
        let from = self.checkpoint_lsn().0.max(exempt);
        self.next_lsn().0.saturating_sub(from)
    }

    /// Gives the log room for as much as its capacity beyond what it holds now, which recovery found.
    ///
    /// # Errors
    ///
    /// `NoSpace`: there is no room for the files; everything is as it was.
    pub fn exempt_recovered(&self) -> Result<()> {
        let _one = self.bounds.resizing.lock();
        let capacity = self.bounds.capacity.load(Ordering::Relaxed);
        let bytes = capacity + self.checkpoint_age_bytes();
        let _files = self.make_files_for(bytes)?;
        let mut epoch = self.bounds.epoch.lock();
        self.bounds.limit.fetch_max(bytes, Ordering::Relaxed);
        let end = self.next_lsn().0;
        self.bounds.exempt_below.store(end, Ordering::Relaxed);
        *epoch += 1;
        self.bounds.moved.notify_all();
        Ok(())
    }

    /// For so long: a page with changes from here on can't be written for want of space; `None`: such pages
    /// fill the pool.
    pub fn hold_back(&self, from: Option<Lsn>, lasts: Duration) {
        let (bounds, from) = (&self.bounds, from.unwrap_or(Lsn(0)));
        match bounds.held_back.is_on() {
            true => drop(bounds.held_from.fetch_min(from.0, Ordering::Relaxed)),
            false => bounds.held_from.store(from.0, Ordering::Relaxed),
        }
        bounds.held_back.note(lasts);
    }

    /// Refuses new work if that holds back half the log: the other half is for ending and undoing what has
    /// begun. Takes no mutex, and while there is room looks at one word that nobody writes.
    ///
    /// # Errors
    ///
    /// `NoSpace`.
    #[inline]
    pub fn check_room(&self) -> Result<()> {
        match self.bounds.held_back.is_on() {
            false => Ok(()),
            true => self.check_held_back(),
        }
    }

    #[cold]
    fn check_held_back(&self) -> Result<()> {
        let from = self.bounds.held_from.load(Ordering::Relaxed);
        let age = self.next_lsn().0.saturating_sub(from);
        if from > 0 && age <= self.capacity() / 2 {
            return Ok(());
        }
        Err(Error::NoSpace {
            what: "there is no room on the disk for compressed pages that have grown".into(),
        })
    }

    /// The checkpoint can't move until `end_standstill`, so nothing may wait for it: a reservation that would
    /// is refused with `why`.
    pub fn begin_standstill(&self, why: &'static str) {
        *self.bounds.standstill.lock() = Some(why);
    }

    pub fn end_standstill(&self) {
        *self.bounds.standstill.lock() = None;
    }

    /// Changes the capacity; see above. Waits for files to be made, not for the checkpoint. What it is
    /// already needs none. After an error, which names what is in the way, everything is as it was.
    pub fn set_capacity(&self, bytes: u64) -> Result<()> {
        check_capacity(bytes)?;
        let _one = self.bounds.resizing.lock();
        self.check()?;
        if bytes == self.bounds.capacity.load(Ordering::Relaxed) {
            // Files that are missing for it the background writer makes.
            return Ok(());
        }
        let files = match bytes >= self.bounds.limit.load(Ordering::Relaxed) {
            true => Some(self.make_files_for(bytes)?),
            false => None,
        };
        self.bounds.end_credits();
        let mut epoch = self.bounds.epoch.lock();
        let limit = self.bounds.limit.load(Ordering::Relaxed);
        let claimed = self.bounds.claimed.load(Ordering::Relaxed);
        let lowered = limit.min(above_age(claimed, self.checkpoint_lsn(), bytes));
        self.bounds.capacity.store(bytes, Ordering::Relaxed);
        let limit = lowered.max(bytes);
        self.bounds.limit.store(limit, Ordering::Relaxed);
        *epoch += 1;
        self.bounds.moved.notify_all();
        drop((epoch, files));
        self.press();
        // For the background writer: files that are too much, or another length for new ones.
        self.ring_alarm();
        Ok(())
    }

    /// Makes files for this capacity, and returns the pool that has them: the caller raises the limit before
    /// the background writer, which removes what is not needed for that, gets the pool again.
    fn make_files_for(&self, bytes: u64) -> Result<MutexGuard<'_, FilePool>> {
        let before = {
            let mut files = self.files.lock();
            let before = files.sizing();
            files.growing = true;
            files.keep_for(bytes);
            files.suit(bytes);
            before
        };
        loop {
            // Commits that need the next file come in between.
            let mut files = self.files.lock();
            if !files.lacks() {
                files.growing = false;
                return Ok(files);
            }
            if let Err(e) = files.make_some() {
                files.growing = false;
                files.restore_sizing(before);
                // What is in the way of removing them, if anything, the background writer will tell.
                while let Ok(true) = self.fit_a_step(&mut files) {}
                self.show(&files);
                return Err(match e {
                    Error::NoSpace { what } => Error::NoSpace {
                        what: format!(
                            "redo log files for a capacity of {bytes} bytes, so it stays as it was ({what})"
                        ),
                    },
                    e => e,
                });
            }
            self.show(&files);
        }
    }

    // --- Files ---------------------------------------------------------------------------------------------

    /// Makes a file that is missing or removes one that is too much; false: there is none of either, or it is
    /// needed.
    fn fit_a_step(&self, files: &mut FilePool) -> Result<bool> {
        match files.next_step() {
            None => return Ok(false),
            Some(Step::Make) => match files.make() {
                // KEEP-2
                Err(Error::NoSpace { .. }) if files.gives_way() => {
                    files.release(self.needed_from());
                }
                made => made?,
            },
            Some(Step::Remove(spare)) => {
                // LOG-2: see above.
                self.bounds.end_credits();
                let room = files.room_without(spare);
                self.bounds.room.store(room.0, Ordering::SeqCst);
                if self.bounds.claimed.load(Ordering::SeqCst) > room.0 {
                    return Ok(false);
                }
                files.remove(spare)?;
            }
        }
        Ok(true)
    }

    /// Below this the log is not needed (LF-3).
    fn needed_from(&self) -> Lsn {
        match self.is_sabotaged(Sabotage::LogRecycledTooEarly) {
            true => self.written_lsn(),
            false => self.checkpoint_lsn(),
        }
    }

    fn show(&self, files: &FilePool) {
        self.bounds.show(files, self.checkpoint_lsn());
    }

    /// Lets files below the checkpoint be used again.
    fn release_files(&self, files: &mut FilePool) {
        files.release(self.needed_from());
        self.show(files);
    }

    /// Tells the bounds that the checkpoint was `old`.
    pub(super) fn checkpoint_moved(&self, old: Lsn, new: Lsn) {
        let is_work = self.bounds.checkpoint_moved(new, new.0 - old.0);
        if !is_work {
            return;
        }
        // The thread that has the pool now may have looked at the checkpoint before.
        if let Some(mut files) = self.files.try_lock() {
            self.release_files(&mut files);
        }
        self.ring_alarm();
    }

    /// The file after the current one, which is full.
    pub(super) fn next_file(&self) -> Result<LogFile> {
        let mut files = self.files.lock();
        self.release_files(&mut files);
        let next = files.next();
        self.show(&files);
        next
    }

    /// For the background writer: has the next log file ready before it is needed, and files for the
    /// capacity. On a full disk, or while too many files are open, that can wait: the room is what there are
    /// files for.
    pub(super) fn prepare_file(&self) {
        let prepared = {
            let mut files = self.files.lock();
            self.release_files(&mut files);
            files.prepare()
        };
        // One at a time: a commit that needs the next file comes in between.
        let fitted = loop {
            let mut files = self.files.lock();
            self.aim(&mut files);
            let fitted = self.fit_a_step(&mut files);
            self.show(&files);
            if !matches!(fitted, Ok(true)) {
                break fitted.map(drop);
            }
        };
        for made in [prepared, fitted] {
            match made {
                Ok(()) | Err(Error::NoSpace { .. }) => {}
                Err(e) if e.is_out_of_means() => {}
                Err(e) => self.poison(format!("the redo log files could not be prepared: {e}")),
            }
        }
    }

    /// Tells the pool what files are kept for.
    fn aim(&self, files: &mut FilePool) {
        if files.growing {
            return;
        }
        let capacity = self.bounds.capacity.load(Ordering::Relaxed);
        let limit = self.bounds.limit.load(Ordering::Relaxed);
        files.keep_for(limit);
        if limit == capacity {
            files.suit(capacity);
        }
    }

    /// Whether the current log file is the only one that can be written to, unless the checkpoint moves.
    pub fn needs_space(&self) -> bool {
        self.files.lock().needs_space()
    }
}
