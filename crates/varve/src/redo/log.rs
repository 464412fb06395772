//! [`RedoLog`]: reservation, append, write, group commit, checkpoint position.
//!
//! # Positions
//! `durable <= written <= complete <= next`. `written` and `durable` are published with Release after the
//! bytes they speak of were written or synced and read with Acquire. The ring's own protocol is in `ring`.
//!
//! # Group commit
//! The first committer that finds nobody syncing becomes the leader: it waits until its own LSN is complete
//! (another mini-transaction may still be copying below it), writes everything complete and syncs it.
//! Everybody else sleeps, and is woken when its LSN is durable, or to lead the next group. `group` has the
//! protocol.
//!
//! Committers that come back for more would split into two groups that alternate, each syncing while the
//! other works. So a leader that expects more followers than it has (gather.rs) lets the others queue up
//! first, for a fraction of what a sync takes.
//!
//! # Failure
//! WAL-4: after `poison` no position is published any more, the writer throws away what it drains so that
//! appenders under latches never hang, and every waiting or later `sync_to`, `write_to` and `reserve` returns
//! `Error::Poisoned`.

use std::cell::Cell;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use parking_lot::{Condvar, Mutex};

use super::LogSettings;
use super::capacity::{Bounds, Reservation};
use super::file_pool::FilePool;
use super::files::LogFile;
use super::frame;
use super::group::{Group, Role};
use super::ring::Ring;
use super::write::Writer;
use crate::base::{Error, Lsn, Result, Sabotage, Stops};
use crate::encryption::{Cipher, TAG_BYTES};
use crate::io::{Disk, IoQueue};

type Callback<T> = OnceLock<Box<dyn Fn(T) + Send + Sync>>;
type Watcher = Box<dyn FnOnce() + Send>;

/// How often things happened, for status output. Only counted off the fast paths.
#[derive(Debug, Default)]
pub struct LogCounters {
    /// Write calls, and how far they have brought the log.
    pub writes: AtomicU64,
    pub written_bytes: AtomicU64,
    /// What these writes wrote besides: the beginning of a block that was written before, and zeros up to its
    /// end.
    pub padding_bytes: AtomicU64,
    /// Syncs of log files.
    pub syncs: AtomicU64,
    /// Committers that waited for another's sync.
    pub sync_follows: AtomicU64,
    /// Mini-transactions that waited for redo capacity.
    pub capacity_waits: AtomicU64,
    /// Mini-transactions that waited for room in the log buffer.
    pub buffer_waits: AtomicU64,
    /// Log files begun.
    pub file_switches: AtomicU64,
}

pub(super) fn count(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

pub struct RedoLog {
    pub(super) ring: Ring,
    generation: u64,
    /// If frames are encrypted.
    cipher: Option<Arc<Cipher>>,
    /// What the database does wrong on purpose. It stands here because every part of it can reach the log.
    sabotage: Option<Sabotage>,
    /// Where tests hold a thread. It stands here for the same reason.
    pub stops: Arc<Stops>,
    pub(super) bounds: Bounds,
    /// Stored with Release by `set_checkpoint`.
    checkpoint: AtomicU64,
    /// What the last mark names, or where the log was opened. For the leader (`mark`).
    pub(super) marked: AtomicU64,
    pub(super) written: AtomicU64,
    on_pressure: Callback<()>,
    pub(super) writer: Mutex<Writer>,
    pub(super) files: Mutex<FilePool>,
    group: CachePadded<Group>,
    pub(super) poisoned: AtomicBool,
    poison_why: OnceLock<String>,
    on_poison: Callback<String>,
    /// Callbacks for when the log is durable up to an LSN; called by `writer.rs`.
    watchers: Mutex<Vec<(Lsn, Watcher)>>,
    /// What `writer.rs` waits on.
    pub(super) alarm: Alarm,
    pub(super) counters: LogCounters,
}

thread_local! {
    /// A frame's body while it is encrypted.
    static ENCRYPTED_BODY: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A thread keeps no more memory for that.
const KEPT_BODY_BYTES: usize = 64 << 10;

/// So many bytes in the log buffer are written without waiting for a commit, or half of what it takes if that
/// is less: long writes, and a commit that comes after many changes has little to wait for.
const WRITTEN_AT: u64 = 2 << 20;

/// Wakes the background writer.
#[derive(Default)]
pub(super) struct Alarm {
    pub(super) state: Mutex<AlarmState>,
    pub(super) rung: Condvar,
    /// Whether it was rung already, so that appenders do not take the mutex each time.
    pub(super) ringing: AtomicBool,
}

#[derive(Default)]
pub(super) struct AlarmState {
    pub(super) wanted: bool,
    pub(super) stop: bool,
}

/// A frame that is in the log buffer but not yet complete: nothing from it on can be written until it is
/// given to [`RedoLog::complete`].
#[must_use = "the log stands still until the frame is completed"]
#[derive(Debug)]
pub struct Ticket {
    pub start: Lsn,
    pub end: Lsn,
    /// `None`: the log was poisoned while there was no room, and the frame is lost.
    header: Option<u64>,
}

impl RedoLog {
    /// Creates the log in `data_dir`, empty, beginning at `start` (a multiple of 8).
    pub fn create(
        disk: Arc<dyn Disk>,
        data_dir: &Path,
        settings: LogSettings,
        start: Lsn,
    ) -> Result<RedoLog> {
        settings.validate()?;
        let (pool, first) = FilePool::create(disk, data_dir, settings.clone(), start)?;
        Ok(RedoLog::new(&settings, pool, first, start, start))
    }

    /// Opens the log for writing after recovery read it from `checkpoint` to `end`. What lies beyond `end` is
    /// dropped. Files are synced together by the queue.
    pub fn open_at(
        disk: Arc<dyn Disk>,
        queue: Arc<IoQueue>,
        data_dir: &Path,
        settings: LogSettings,
        checkpoint: Lsn,
        end: Lsn,
    ) -> Result<RedoLog> {
        settings.validate()?;
        let copy = settings.clone();
        let (pool, first) = FilePool::open_at(disk, queue, data_dir, copy, checkpoint, end)?;
        Ok(RedoLog::new(&settings, pool, first, checkpoint, end))
    }

    fn new(
        settings: &LogSettings,
        pool: FilePool,
        first: LogFile,
        checkpoint: Lsn,
        end: Lsn,
    ) -> RedoLog {
        RedoLog {
            ring: Ring::new(settings.buffer_bytes, end),
            generation: pool.generation(),
            cipher: pool.cipher().cloned(),
            sabotage: settings.sabotage,
            stops: Arc::default(),
            bounds: Bounds::new(settings, &pool, checkpoint, end),
            checkpoint: AtomicU64::new(checkpoint.0),
            // What lies before it is whole, says the generation.
            marked: AtomicU64::new(end.0),
            written: AtomicU64::new(end.0),
            on_pressure: OnceLock::new(),
            writer: Mutex::new(Writer::new(first)),
            files: Mutex::new(pool),
            group: CachePadded::new(Group::new(end)),
            poisoned: AtomicBool::new(false),
            poison_why: OnceLock::new(),
            on_poison: OnceLock::new(),
            watchers: Mutex::default(),
            alarm: Alarm::default(),
            counters: LogCounters::default(),
        }
    }

    /// Called, by a thread that holds no latch, when the checkpoint should advance. Set once.
    pub fn set_on_pressure(&self, callback: impl Fn() + Send + Sync + 'static) {
        let _ = self.on_pressure.set(Box::new(move |()| callback()));
    }

    /// Called once with the reason when the log is poisoned, possibly while the log is being written: it must
    /// not call the log. Set once.
    pub fn set_on_poison(&self, callback: impl Fn(String) + Send + Sync + 'static) {
        let _ = self.on_poison.set(Box::new(callback));
    }

    pub fn counters(&self) -> &LogCounters {
        &self.counters
    }

    /// Where the next frame will begin, at least.
    pub fn next_lsn(&self) -> Lsn {
        self.ring.next()
    }

    /// The end of the contiguous stream of complete frames.
    pub fn complete_lsn(&self) -> Lsn {
        self.ring.advance(frame_len)
    }

    pub fn written_lsn(&self) -> Lsn {
        Lsn(self.written.load(Ordering::Acquire))
    }

    pub fn durable_lsn(&self) -> Lsn {
        self.group.durable()
    }

    pub fn checkpoint_lsn(&self) -> Lsn {
        Lsn(self.checkpoint.load(Ordering::Acquire))
    }

    /// Bytes of log between the checkpoint and the newest frame.
    pub fn checkpoint_age_bytes(&self) -> u64 {
        let checkpoint = self.checkpoint.load(Ordering::Acquire);
        self.ring.next().0 - checkpoint
    }

    /// Says that the control file durably names `lsn` as the checkpoint: log below it may be overwritten.
    pub fn set_checkpoint(&self, lsn: Lsn) {
        let old = self.checkpoint.swap(lsn.0, Ordering::Release);
        assert!(
            old <= lsn.0,
            "WAL-2: the checkpoint goes from {old} back to {lsn}"
        );
        assert!(
            lsn <= self.durable_lsn(),
            "WAL-2: checkpoint {lsn} above the durable log"
        );
        self.checkpoint_moved(Lsn(old), lsn);
    }

    pub(super) fn tell_pressure(&self) {
        if let Some(callback) = self.on_pressure.get() {
            callback(());
        }
    }

    // --- Append --------------------------------------------------------------------------------------------

    /// Puts a frame whose body is the parts one after the other into the log buffer. Can't fail; waits only
    /// for the log writer. The caller stamps its pages with the ticket's LSNs and then calls
    /// [`complete`](Self::complete); it must not stop in between. If the log is poisoned the frame may be
    /// lost: its LSN never becomes durable, and its waiters get an error (WAL-4).
    pub fn append(&self, reservation: &Reservation<'_>, parts: &[&[u8]]) -> Ticket {
        match &self.cipher {
            Some(cipher) => self.append_encrypted(reservation, parts, cipher),
            None => self.append_clear(reservation, parts),
        }
    }

    /// What a body takes more than its own bytes, a frame's header aside.
    pub(super) fn body_overhead(&self) -> usize {
        self.cipher.as_ref().map_or(0, |_| TAG_BYTES)
    }

    /// Encrypted between taking the place, which is the nonce, and copying it there: appenders behind this
    /// one wait no longer for that than for a longer frame.
    fn append_encrypted(
        &self,
        reservation: &Reservation<'_>,
        parts: &[&[u8]],
        cipher: &Cipher,
    ) -> Ticket {
        // A thread that is ending has none any more.
        let mut body = ENCRYPTED_BODY.try_with(Cell::take).unwrap_or_default();
        parts.iter().for_each(|part| body.extend_from_slice(part));
        let length = frame::length_field(body.len() + TAG_BYTES);
        let len = u64::from(length & !7);
        reservation.use_up(len);
        let start = self.ring.take(len);
        let has_room = self.ring.has_room(start, len) || self.wait_for_room(start, len);
        let header = has_room.then(|| {
            let tag = frame::encrypt(cipher, start, &mut body);
            let parts: &[&[u8]] = &[&body, &tag];
            self.ring.copy(Lsn(start.0 + 8), parts);
            frame::header_word(frame::body_crc(parts), length, start, self.generation)
        });
        if body.capacity() <= KEPT_BODY_BYTES {
            body.clear();
            let _ = ENCRYPTED_BODY.try_with(|kept| kept.set(body));
        }
        Ticket {
            start,
            end: Lsn(start.0 + len),
            header,
        }
    }

    pub(super) fn append_clear(&self, reservation: &Reservation<'_>, parts: &[&[u8]]) -> Ticket {
        let body: usize = parts.iter().map(|p| p.len()).sum();
        let length = frame::length_field(body);
        let len = u64::from(length & !7);
        reservation.use_up(len);
        let crc = frame::body_crc(parts);

        let start = self.ring.take(len);
        let has_room = self.ring.has_room(start, len) || self.wait_for_room(start, len);
        let header = has_room.then(|| {
            self.ring.copy(Lsn(start.0 + 8), parts);
            frame::header_word(crc, length, start, self.generation)
        });
        Ticket {
            start,
            end: Lsn(start.0 + len),
            header,
        }
    }

    /// Lets the log go on past the frame.
    pub fn complete(&self, ticket: Ticket) {
        let Some(header) = ticket.header else {
            return;
        };
        self.ring.mark(ticket.start, header);
        // By the frame's end: the place behind it is what all threads write.
        if self.ring.used_to(ticket.end) > WRITTEN_AT.min(self.ring.size() / 2) {
            self.ring_alarm();
        }
    }

    pub(super) fn ring_alarm(&self) {
        if !self.alarm.ringing.load(Ordering::Relaxed)
            && !self.alarm.ringing.swap(true, Ordering::Relaxed)
        {
            self.alarm.state.lock().wanted = true;
            self.alarm.rung.notify_one();
        }
    }

    /// False if the log was poisoned: there may never be room, because a frame before this one is not going
    /// to be completed.
    #[cold]
    fn wait_for_room(&self, start: Lsn, len: u64) -> bool {
        count(&self.counters.buffer_waits, 1);
        let mut backoff = Backoff::default();
        while !self.ring.has_room(start, len) {
            if self.check().is_err() {
                return false;
            }
            // Not to depend on the background thread: a thread that needs room writes.
            if !self.try_write_out() {
                backoff.wait();
            }
        }
        true
    }

    // --- Sync ----------------------------------------------------------------------------------------------

    /// Returns once the log up to `lsn` is durable.
    pub fn sync_to(&self, lsn: Lsn) -> Result<()> {
        loop {
            self.check()?;
            if self.durable_lsn() >= lsn {
                return Ok(());
            }
            match self.group.join(lsn) {
                Role::Served => {}
                Role::Follow(ticket) => {
                    count(&self.counters.sync_follows, 1);
                    self.group.follow(&ticket);
                }
                Role::Lead => {
                    let _resign = Resign { log: self };
                    self.group.gather();
                    self.lead(lsn)?;
                }
            }
        }
    }

    /// Has `tell` called once the log up to `lsn` is durable: now if it is, otherwise by the background
    /// writer, which syncs for it. Does not wait. If the log is poisoned before, `tell` is dropped without a
    /// call: whoever poisons drops those that are in the list, and who finds the log poisoned after he came
    /// into the list those that came later. One of the two sees the other, as the list has a mutex.
    pub fn when_durable(&self, lsn: Lsn, tell: impl FnOnce() + Send + 'static) {
        if self.durable_lsn() >= lsn {
            return tell();
        }
        self.watchers.lock().push((lsn, Box::new(tell)));
        // Not `ring_alarm`: one that rings already may have been heard before we were in the list.
        self.alarm.state.lock().wanted = true;
        self.alarm.rung.notify_one();
        if self.check().is_err() {
            self.drop_watchers();
        }
    }

    /// Nothing becomes durable any more.
    fn drop_watchers(&self) {
        // Without the mutex: what they have may do anything as it goes.
        let watchers = std::mem::take(&mut *self.watchers.lock());
        drop(watchers);
    }

    /// Syncs as far as somebody wants to be told, and tells. For the background writer.
    pub(super) fn serve_watchers(&self) -> Result<()> {
        let Some(lsn) = self.watchers.lock().iter().map(|(lsn, _)| *lsn).max() else {
            return Ok(());
        };
        self.sync_to(lsn)?;
        let durable = self.durable_lsn();
        let served: Vec<(Lsn, Watcher)> = {
            let mut watchers = self.watchers.lock();
            let (served, rest) = watchers.drain(..).partition(|(lsn, _)| *lsn <= durable);
            *watchers = rest;
            served
        };
        served.into_iter().for_each(|(_, tell)| tell());
        Ok(())
    }

    /// Writes everything complete, at least up to `lsn`, and a mark, and syncs it. One thread at a time.
    fn lead(&self, lsn: Lsn) -> Result<()> {
        // Of what was synced last: it is in this group, and synced with it.
        let mark = self.put_mark();
        self.wait_complete(mark.map_or(lsn, |mark| mark.max(lsn)))?;
        self.group.close(self.complete_lsn());
        let files = self.write_to_sync();
        self.check()?;
        let begun = Instant::now();
        for file in files {
            count(&self.counters.syncs, 1);
            let retry = |e| match self.is_sabotaged(Sabotage::FailedSyncRetried) {
                true => file.sync(),
                false => Err(e),
            };
            if let Err(e) = file.sync().or_else(retry) {
                self.poison(format!("the redo log could not be synced: {e}"));
                return self.check();
            }
        }
        self.group.publish(begun.elapsed());
        Ok(())
    }

    /// Ends a leader's group.
    fn resign(&self) {
        #[cfg(feature = "sabotage")]
        if self.is_sabotaged(Sabotage::CommitWakeForgotten) {
            return self.group.end_silently();
        }
        self.group.end();
        if self.poisoned.load(Ordering::Acquire) {
            self.group.wake_all();
        }
    }

    // --- Failure -------------------------------------------------------------------------------------------

    /// Whether the database is to do this wrong.
    #[inline]
    pub fn is_sabotaged(&self, sabotage: Sabotage) -> bool {
        cfg!(feature = "sabotage") && self.sabotage == Some(sabotage)
    }

    /// WAL-4: stops the database. The first reason is kept.
    pub fn poison(&self, why: impl Into<String>) {
        let why = why.into();
        let first = self.poison_why.set(why.clone()).is_ok();
        // Also by a second caller: the first may not have got here yet, and nobody may go on after this
        // returns.
        self.poisoned.store(true, Ordering::Release);
        if !first {
            return;
        }
        self.group.wake_all();
        self.bounds.wake();
        self.drop_watchers();
        if let Some(callback) = self.on_poison.get() {
            callback(why);
        }
    }

    /// `Error::Poisoned` once the database was stopped.
    pub fn check(&self) -> Result<()> {
        if !self.poisoned.load(Ordering::Acquire) {
            return Ok(());
        }
        let why = self.poison_why.get().cloned().unwrap_or_default();
        Err(Error::Poisoned { why })
    }
}

/// A frame's length from its header word, for [`Ring::advance`].
fn frame_len(header: u64) -> u64 {
    header & 0xffff_fff8
}

/// Ends the leader's group however the leader returns.
struct Resign<'a> {
    log: &'a RedoLog,
}

impl Drop for Resign<'_> {
    fn drop(&mut self) {
        self.log.resign();
    }
}

/// Waiting for something that takes a few hundred nanoseconds unless its thread lost the processor.
#[derive(Default)]
pub(super) struct Backoff {
    rounds: u32,
}

impl Backoff {
    pub(super) fn wait(&mut self) {
        self.rounds += 1;
        match self.rounds {
            0..=6 => (0..1 << self.rounds).for_each(|_| std::hint::spin_loop()),
            7..=40 => thread::yield_now(),
            _ => thread::sleep(Duration::from_micros(50)),
        }
    }
}
