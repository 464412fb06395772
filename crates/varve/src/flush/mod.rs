//! Writes dirty pages in the background and moves the checkpoint.
//!
//! One thread, the page cleaner, owns all background flushing; it writes for one of these causes, each with
//! its counters: adaptive (so that the checkpoint keeps pace with the redo log, smoothly), async and sync
//! (the checkpoint age is above a watermark), max_dirty (too much of the pool is dirty), background (there is
//! nothing else to do), LRU (threads need clean frames), and requested: `flush_all_to` and `flush_space_to`,
//! which run in the thread that asks, the one that closes the database for example. docs/flushing.md says how
//! it is tuned.
//!
//! `batch` keeps WAL-1 and FL-2, `checkpoint` WAL-2; `batch` and `doublewrite` keep this:
//!
//! - **FL-1** A page is written in place only after a whole copy of it is durable in the doublewrite file,
//!   and the file's previous batch is synced in place before the next one overwrites it; or it is written
//!   atomically.
//!
//! Latches: shared page latches, one at a time and with a time limit, only while copying a page. Mutexes: the
//! batch writer's, then the checkpoint's. Failure: an error of writing or syncing pages (but for those of
//! temporary tables, TEMP-6), or a panic of the thread, poisons the database through [`RedoLog::poison`];
//! from then on nothing is written any more.

mod batch;
mod checkpoint;
mod cleaner;
mod counters;
pub mod doublewrite;
mod options;
mod pace;
#[cfg(all(test, not(loom)))]
mod tests;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

pub use checkpoint::{CheckpointHold, Checkpointer};
pub use counters::{CauseCounters, FlushCounters};
pub use options::FlushOptions;
pub use pace::{ASYNC, SYNC};

use crate::base::{Error, Lsn, Result, SpaceId, threads};
use crate::buffer::{BufferPool, DirtyPage};
use crate::io::Disk;
use crate::redo::{Control, ControlFile, RedoLog};
use batch::BatchWriter;
use cleaner::{Cleaner, Signal};
use counters::{Cause, count};
use doublewrite::Doublewrite;

#[derive(Clone, Copy, Debug)]
pub struct FlushSettings {
    /// Protects pages against torn writes; needed unless the device writes pages atomically.
    pub doublewrite: bool,
    pub options: FlushOptions,
}

impl Default for FlushSettings {
    fn default() -> FlushSettings {
        FlushSettings {
            doublewrite: true,
            options: FlushOptions::default(),
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
    /// Puts what else a checkpoint records (id limits) into the control file's contents. Called after the
    /// checkpoint LSN was fixed, so that what it reads is at least what the log below that LSN says.
    pub fill_control: Box<dyn Fn(&mut Control) + Send + Sync>,
}

/// So often what was changed during a clean shutdown is written again.
const SHUTDOWN_ROUNDS: u32 = 32;
/// So long a caller that wants all pages written waits for files that can't be opened (FL-2), and for room on
/// the disk (FL-3).
const REFUSAL_PATIENCE: Duration = Duration::from_millis(if cfg!(test) { 100 } else { 10_000 });

/// What the cleaner's thread and the flusher's callers share.
struct Shared {
    pool: Arc<BufferPool>,
    log: Arc<RedoLog>,
    writer: Mutex<BatchWriter>,
    /// Pages that there is room for in a batch.
    most_in_batch: usize,
    checkpointer: Arc<Checkpointer>,
    counters: Arc<FlushCounters>,
    /// Read once a round.
    options: Arc<Mutex<FlushOptions>>,
}

impl Shared {
    fn options(&self) -> FlushOptions {
        *self.options.lock()
    }

    /// Pages per batch: nobody can use them meanwhile, so in a small pool they are fewer.
    fn batch_pages(&self) -> usize {
        self.most_in_batch.min(self.pool.usable_frames() / 8)
    }

    /// Takes up to `max` pages (at most a batch) that were changed at or below `up_to`, and writes them.
    /// Returns how many were written: others may have been left because their latches were busy, or have to
    /// wait (FL-2, FL-3).
    fn flush_oldest(&self, up_to: Lsn, max: usize, cause: Cause) -> Result<usize> {
        // The mutex first: a page that is taken is written without waiting for another batch.
        let mut writer = self.writer.lock();
        self.write_some(&mut writer, cause, |taken| {
            let most = max.min(self.batch_pages());
            self.pool.take_oldest(up_to, most, taken);
        })
    }

    /// The same for pages that the pool will reuse after so many rounds of its clock at most, looking
    /// `look_at` frames ahead.
    fn flush_cold(&self, look_at: usize, rounds: u32, max: usize, cause: Cause) -> Result<usize> {
        let mut writer = self.writer.lock();
        self.write_some(&mut writer, cause, |taken| {
            let most = max.min(self.batch_pages());
            self.pool.take_cold(look_at, rounds, most, taken);
        })
    }

    /// Writes pages that `take` takes; others, if there is no room for any of these (FL-3).
    fn write_some(
        &self,
        writer: &mut BatchWriter,
        cause: Cause,
        take: impl Fn(&mut Vec<DirtyPage>),
    ) -> Result<usize> {
        loop {
            let mut taken = Vec::new();
            take(&mut taken);
            let written = self.write(writer, taken, cause)?;
            if written > 0 || writer.refused_now() == 0 {
                return Ok(written);
            }
        }
    }

    /// The same for the pages in these frames, at most a batch, which are to be free.
    fn flush_frames(&self, frames: &[u32]) -> Result<usize> {
        let mut writer = self.writer.lock();
        let taken = self.pool.take_in(frames);
        self.write(&mut writer, taken, Cause::Lru)
    }

    fn write(
        &self,
        writer: &mut BatchWriter,
        taken: Vec<DirtyPage>,
        cause: Cause,
    ) -> Result<usize> {
        let pages = writer.write(taken, cause)?;
        if pages > 0 {
            self.counters.of(cause).flushed(pages);
        }
        Ok(pages)
    }

    fn flush_all_to(&self, lsn: Lsn) -> Result<()> {
        self.flush_until(lsn, || match self.checkpointer.oldest_change() {
            Some(oldest) if oldest < lsn => {
                let up_to = Lsn(lsn.0 - 1);
                self.flush_oldest(up_to, self.batch_pages(), Cause::Requested)
                    .map(Some)
            }
            _ => Ok(None),
        })
    }

    fn flush_space_to(&self, space: SpaceId, lsn: Lsn) -> Result<()> {
        self.flush_until(lsn, || {
            let frames = self.pool.dirty_frames_of(space, Lsn(lsn.0 - 1));
            if frames.is_empty() {
                return Ok(None);
            }
            let mut pages = 0;
            for frames in frames.chunks(self.batch_pages()) {
                let mut taken = Vec::new();
                let mut writer = self.writer.lock();
                self.pool.take_from(frames, space, &mut taken);
                pages += self.write(&mut writer, taken, Cause::Requested)?;
            }
            Ok(Some(pages))
        })
    }

    /// Writes pages until `write`, which says how many it took, finds none that was changed below `lsn`.
    fn flush_until(
        &self,
        lsn: Lsn,
        mut write: impl FnMut() -> Result<Option<usize>>,
    ) -> Result<()> {
        // Every change below is complete then, so it is registered with its page.
        self.log.sync_to(lsn)?;
        // Pages that need not be written at all (BUF-10).
        while self.pool.forget_gone(usize::MAX) {}
        let mut written = Instant::now();
        loop {
            self.log.check()?;
            let Some(pages) = write()? else {
                return Ok(());
            };
            if pages > 0 {
                written = Instant::now();
                continue;
            }
            // What is left is being written by the cleaner or changed by somebody, or its file can't be
            // opened now, or there is no room for it.
            if written.elapsed() > REFUSAL_PATIENCE
                && let Some(refusal) = self.writer.lock().refusal()
            {
                return Err(refusal.clone());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// See [`Flusher::flush_space_to`].
pub struct SpaceWriter(Arc<Shared>);

impl SpaceWriter {
    pub fn flush_to(&self, space: SpaceId, lsn: Lsn) -> Result<()> {
        self.0.flush_space_to(space, lsn)
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
    #[cfg(test)]
    pub fn start(env: FlushEnv) -> Result<Flusher> {
        Ok(Flusher::start_held(env)?.0)
    }

    /// Starts the page cleaner with the checkpoint held where it is, for recovery: pages to which redo has
    /// not been applied yet are not dirty, and only the hold keeps their redo.
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
        let most_in_batch = doublewrite::batch_pages(page_size);
        let writer = BatchWriter::new(
            env.pool.clone(),
            env.log.clone(),
            doublewrite,
            most_in_batch,
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
            most_in_batch,
            checkpointer,
            counters,
            options: Arc::new(Mutex::new(env.settings.options)),
        });
        let signal = Arc::new(Signal::default());
        let (frames, pressure) = (signal.clone(), signal.clone());
        shared.pool.set_cleaner_waker(move || frames.wake());
        shared.log.set_on_pressure(move || pressure.wake());
        let cleaner = Cleaner::new(shared.clone(), signal.clone());
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

    /// The present settings.
    pub fn options(&self) -> Arc<Mutex<FlushOptions>> {
        self.shared.options.clone()
    }

    /// From the cleaner's next round on.
    pub fn set_options(&self, options: FlushOptions) -> Result<()> {
        options.validate()?;
        *self.shared.options.lock() = options;
        self.signal.wake();
        Ok(())
    }

    /// Moves the checkpoint as far as it can go without writing pages, and returns it.
    pub fn checkpoint_now(&self) -> Result<Lsn> {
        self.shared.checkpointer.run(false)
    }

    /// Returns once every page change below `lsn` is in a synced data file.
    ///
    /// # Errors
    ///
    /// One [for want of means](Error::is_out_of_means), or `NoSpace`: pages are left whose files could not be
    /// opened for a while, or for which there was no room on the disk. Nothing is lost.
    pub fn flush_all_to(&self, lsn: Lsn) -> Result<()> {
        self.shared.flush_all_to(lsn)
    }

    /// The same for the pages of one tablespace.
    pub fn flush_space_to(&self, space: SpaceId, lsn: Lsn) -> Result<()> {
        self.shared.flush_space_to(space, lsn)
    }

    /// Writes pages of single tablespaces for whoever wants that.
    pub fn space_writer(&self) -> SpaceWriter {
        SpaceWriter(self.shared.clone())
    }

    pub fn checkpointer(&self) -> Arc<Checkpointer> {
        self.shared.checkpointer.clone()
    }

    /// For a clean shutdown, when nobody begins to change pages any more: writes every page, and a last
    /// checkpoint that says so. Stops the cleaner. A change that was under way may come meanwhile; then it is
    /// written, too.
    pub fn shutdown_clean(&self) -> Result<()> {
        let (mut end, mut checkpoint) = (Lsn(0), Lsn(0));
        for _ in 0..SHUTDOWN_ROUNDS {
            self.shared.flush_all_to(self.shared.log.next_lsn())?;
            self.stop();
            end = self.shared.log.next_lsn();
            checkpoint = self.shared.checkpointer.run(true)?;
            if checkpoint == end {
                return Ok(());
            }
        }
        Err(Error::invalid(format!(
            "clean shutdown at LSN {end} while pages are changed or the checkpoint is held at {checkpoint}"
        )))
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
    threads::spawn("varve-cleaner", body)
}
