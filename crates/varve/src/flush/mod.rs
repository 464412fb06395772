//! Writes dirty pages in the background and moves the checkpoint.
//!
//! One thread, the page cleaner, owns all background flushing; it writes for one of these causes, each with its counters:
//! adaptive (so that the checkpoint keeps pace with the redo log, smoothly), urgent (the log is nearly full), frames (threads
//! need clean frames), idle, and `flush_all_to`, which runs in the thread that asks.
//!
//! Invariants and who keeps them:
//!
//! - **WAL-1** a page is written only after the log is durable up to its page LSN: asserted in `batch`.
//! - **WAL-2** the checkpoint never passes a change that is not in a synced data page, unless the file is gone for good (SP-8): `checkpoint`.
//! - **FL-1** a page is written in place only after a whole copy of it is durable in the doublewrite file, and the
//!   file's previous batch is synced in place before the next one overwrites it: `batch`, `doublewrite`.
//!
//! Latches: shared page latches, one at a time and with a time limit, only while copying a page. Mutexes: the batch
//! writer's, then the checkpoint's. Failure: an error of writing or syncing pages, or a panic of the thread, poisons the database through
//! [`RedoLog::poison`]; from then on nothing is written any more.

mod batch;
mod checkpoint;
mod cleaner;
pub mod doublewrite;
#[cfg(all(test, not(loom)))]
mod tests;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;

pub use checkpoint::{CheckpointHold, Checkpointer};

use crate::base::{Error, Lsn, Result};
use crate::buffer::BufferPool;
use crate::io::Disk;
use crate::redo::{Control, ControlFile, RedoLog};
use batch::BatchWriter;
use cleaner::{Cleaner, Signal};
use doublewrite::Doublewrite;

#[derive(Clone, Copy, Debug)]
pub struct FlushSettings {
    /// Protects pages against torn writes; needed unless the device writes pages atomically.
    pub doublewrite: bool,
    /// Pages written per second while nothing else goes on.
    pub io_capacity_pages: u64,
}

impl Default for FlushSettings {
    fn default() -> FlushSettings {
        FlushSettings {
            doublewrite: true,
            io_capacity_pages: 200,
        }
    }
}

/// What the flusher works on. Tablespaces are reached through the pool's store.
pub struct FlushEnv {
    pub pool: Arc<BufferPool>,
    pub log: Arc<RedoLog>,
    pub control: Arc<ControlFile>,
    pub disk: Arc<dyn Disk>,
    /// The data directory.
    pub dir: PathBuf,
    pub settings: FlushSettings,
    /// Puts what else a checkpoint records (id limits) into the control file's contents. Called after the checkpoint LSN
    /// was fixed, so that what it reads is at least what the log below that LSN says.
    pub fill_control: Box<dyn Fn(&mut Control) + Send + Sync>,
}

/// Pages written per cause, and what else happened.
#[derive(Debug, Default)]
pub struct FlushCounters {
    pub adaptive_pages: AtomicU64,
    pub urgent_pages: AtomicU64,
    pub frames_pages: AtomicU64,
    pub idle_pages: AtomicU64,
    pub requested_pages: AtomicU64,
    /// Batches, and pages that also went to the doublewrite file.
    pub batches: AtomicU64,
    pub doublewrite_pages: AtomicU64,
    /// Syncs of tablespaces.
    pub space_syncs: AtomicU64,
    /// Pages whose latch was busy, left for the next time.
    pub skipped_pages: AtomicU64,
    pub checkpoints: AtomicU64,
}

/// Why pages are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    Adaptive,
    Urgent,
    Frames,
    Idle,
    Requested,
}

impl FlushCounters {
    fn pages(&self, cause: Cause) -> &AtomicU64 {
        match cause {
            Cause::Adaptive => &self.adaptive_pages,
            Cause::Urgent => &self.urgent_pages,
            Cause::Frames => &self.frames_pages,
            Cause::Idle => &self.idle_pages,
            Cause::Requested => &self.requested_pages,
        }
    }
}

fn count(counter: &AtomicU64, n: usize) {
    counter.fetch_add(n as u64, Ordering::Relaxed);
}

/// What the cleaner's thread and the flusher's callers share.
struct Shared {
    pool: Arc<BufferPool>,
    log: Arc<RedoLog>,
    writer: Mutex<BatchWriter>,
    /// Pages per batch.
    batch_pages: usize,
    checkpointer: Arc<Checkpointer>,
    counters: Arc<FlushCounters>,
}

impl Shared {
    /// Takes up to `max` pages (at most a batch) that were changed at or below `up_to`, and writes them. Returns how
    /// many were taken; some of them may have been left because their latches were busy.
    fn flush_oldest(&self, up_to: Lsn, max: usize, cause: Cause) -> Result<usize> {
        let mut taken = Vec::new();
        // The mutex first: a page that is taken is written without waiting for another batch.
        let mut writer = self.writer.lock();
        self.pool
            .take_oldest(up_to, max.min(self.batch_pages), &mut taken);
        writer.write(taken, cause)
    }

    /// The same for pages that the pool would like to reuse.
    fn flush_unused(&self, look_at: usize) -> Result<usize> {
        let mut taken = Vec::new();
        let mut writer = self.writer.lock();
        self.pool.take_unused(look_at, self.batch_pages, &mut taken);
        writer.write(taken, Cause::Frames)
    }

    fn flush_all_to(&self, lsn: Lsn) -> Result<()> {
        // Every change below is complete then, so it is registered with its page.
        self.log.sync_to(lsn)?;
        loop {
            self.log.check()?;
            match self.checkpointer.oldest_change() {
                Some(oldest) if oldest < lsn => {}
                _ => return Ok(()),
            }
            if self.flush_oldest(Lsn(lsn.0 - 1), self.batch_pages, Cause::Requested)? == 0 {
                // What is left is being written by the cleaner or changed by somebody.
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

/// The page cleaner and its checkpoints. Dropping it stops the thread and writes nothing more.
pub struct Flusher {
    shared: Arc<Shared>,
    signal: Arc<Signal>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Flusher {
    /// Starts the page cleaner.
    pub fn start(env: FlushEnv) -> Result<Flusher> {
        Ok(Flusher::start_held(env)?.0)
    }

    /// Starts the page cleaner with the checkpoint held where it is, for recovery: pages to which redo has not been
    /// applied yet are not dirty, and only the hold keeps their redo.
    pub fn start_held(env: FlushEnv) -> Result<(Flusher, CheckpointHold)> {
        let page_size = env.pool.page_size();
        let uuid = env.control.control().uuid;
        let doublewrite = if env.settings.doublewrite {
            Some(Doublewrite::open(&*env.disk, &env.dir, page_size, uuid)?)
        } else {
            doublewrite::invalidate(&*env.disk, &env.dir)?;
            None
        };
        let counters = Arc::new(FlushCounters::default());
        let batch_pages = doublewrite::batch_pages(page_size).min(env.pool.n_frames() / 8);
        let writer = BatchWriter::new(
            env.pool.clone(),
            env.log.clone(),
            doublewrite,
            batch_pages,
            counters.clone(),
        );
        let checkpointer = Arc::new(Checkpointer::new(
            env.pool.clone(),
            env.log.clone(),
            env.control,
            env.fill_control,
            counters.clone(),
        ));
        let hold = checkpointer.hold_at(env.log.checkpoint_lsn());
        let shared = Arc::new(Shared {
            pool: env.pool,
            log: env.log,
            writer: Mutex::new(writer),
            batch_pages,
            checkpointer,
            counters,
        });
        let signal = Arc::new(Signal::default());
        let (frames, pressure) = (signal.clone(), signal.clone());
        shared.pool.set_cleaner_waker(move || frames.wake());
        shared.log.set_on_pressure(move || pressure.wake());
        let cleaner = Cleaner::new(shared.clone(), signal.clone(), env.settings);
        let thread = spawn(cleaner, shared.log.clone())?;
        let flusher = Flusher {
            shared,
            signal,
            thread: Mutex::new(Some(thread)),
        };
        Ok((flusher, hold))
    }

    pub fn counters(&self) -> &Arc<FlushCounters> {
        &self.shared.counters
    }

    /// Moves the checkpoint as far as it can go without writing pages, and returns it.
    pub fn checkpoint_now(&self) -> Result<Lsn> {
        self.shared.checkpointer.run(false)
    }

    /// Returns once every page change below `lsn` is in a synced data file.
    pub fn flush_all_to(&self, lsn: Lsn) -> Result<()> {
        self.shared.flush_all_to(lsn)
    }

    pub fn checkpointer(&self) -> Arc<Checkpointer> {
        self.shared.checkpointer.clone()
    }

    /// For a clean shutdown, when nothing changes pages any more: writes every page, and a last checkpoint that says
    /// so. Stops the cleaner.
    pub fn shutdown_clean(&self) -> Result<()> {
        self.shared.flush_all_to(self.shared.log.next_lsn())?;
        self.stop();
        let end = self.shared.log.next_lsn();
        let checkpoint = self.shared.checkpointer.run(true)?;
        if checkpoint != end {
            return Err(Error::invalid(format!(
                "clean shutdown at LSN {end} while pages are changed or the checkpoint is held at {checkpoint}"
            )));
        }
        Ok(())
    }

    /// Stops the page cleaner. Dirty pages stay as they are: recovery repeats their changes.
    pub fn stop(&self) {
        self.signal.stop();
        if let Some(thread) = self.thread.lock().take() {
            // A panic has been caught and has poisoned the database.
            let _ = thread.join();
        }
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        self.stop();
    }
}

fn spawn(cleaner: Cleaner, log: Arc<RedoLog>) -> Result<JoinHandle<()>> {
    let body = move || {
        let mut cleaner = cleaner;
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| cleaner.run())) {
            let what = panic
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string()))
                .unwrap_or_default();
            log.poison(format!("the page cleaner panicked: {what}"));
        }
    };
    std::thread::Builder::new()
        .name("varve-cleaner".into())
        .spawn(body)
        .map_err(|e| Error::io("start thread", "varve-cleaner", e))
}
