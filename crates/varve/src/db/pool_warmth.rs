//! Keeps the buffer pool warm across restarts: the list of its pages is written at shutdown, and read in
//! again in the background after the start.
//!
//! Reading in takes the pages in their order on disk, `io_capacity_max` of them in a second, and takes only
//! frames that nobody needs. It ends when there are none, when it is told to, and at shutdown. Pages that
//! can't be read are passed over: tablespaces may have gone, and files become shorter, since the list was
//! made. A thread that needs a damaged page will find the damage.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;

use super::pool_dump;
use crate::base::{Error, PageId, Result, threads};
use crate::flush::FlushOptions;
use crate::io::Disk;
use crate::txn::Core;

/// Options for dumping the buffer pool's list of pages at shutdown and loading it at the start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PoolDumpOptions {
    /// Writes the list of pages when the database is closed.
    pub at_shutdown: bool,
    /// Reads the pages on the list in, in the background, when it is opened.
    pub at_startup: bool,
    /// How many of the pages in the pool are listed, in percent: the most recently used ones. 1 to 100.
    pub pct: u32,
    /// The list's name in the data directory.
    pub file: String,
}

impl Default for PoolDumpOptions {
    fn default() -> PoolDumpOptions {
        PoolDumpOptions {
            at_shutdown: false,
            at_startup: false,
            pct: 25,
            file: "varve_buffer_pool".into(),
        }
    }
}

impl PoolDumpOptions {
    pub(crate) fn validate(&self) -> Result<()> {
        if !(1..=100).contains(&self.pct) {
            let what = format!("pool_dump.pct {} is not between 1 and 100", self.pct);
            return Err(Error::invalid(what));
        }
        pool_dump::validate_name(&self.file)
    }
}

/// What writing or reading in the list has come to, for a person to read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PoolDumpStatus {
    pub text: String,
    /// When it ended, if it did.
    pub ended: Option<SystemTime>,
}

impl PoolDumpStatus {
    fn new(text: impl Into<String>) -> PoolDumpStatus {
        PoolDumpStatus {
            text: text.into(),
            ended: None,
        }
    }

    fn ended(text: impl Into<String>) -> PoolDumpStatus {
        PoolDumpStatus {
            ended: Some(SystemTime::now()),
            ..PoolDumpStatus::new(text)
        }
    }
}

/// How often pages are read in: some each time.
const PAUSE: Duration = Duration::from_millis(20);

pub(crate) struct PoolWarmth {
    shared: Arc<Shared>,
    loader: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    core: Arc<Core>,
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    uuid: [u8; 16],
    options: Mutex<PoolDumpOptions>,
    flush_options: Arc<Mutex<FlushOptions>>,
    dump_status: Mutex<PoolDumpStatus>,
    load_status: Mutex<PoolDumpStatus>,
    /// The load is to end.
    stop: AtomicBool,
}

/// Why a load ended.
enum End {
    Complete,
    Full,
    Aborted,
}

impl PoolWarmth {
    pub fn new(
        core: Arc<Core>,
        disk: Arc<dyn Disk>,
        dir: PathBuf,
        uuid: [u8; 16],
        options: PoolDumpOptions,
        flush_options: Arc<Mutex<FlushOptions>>,
    ) -> PoolWarmth {
        PoolWarmth {
            shared: Arc::new(Shared {
                core,
                disk,
                dir,
                uuid,
                options: Mutex::new(options),
                flush_options,
                dump_status: Mutex::new(PoolDumpStatus::new("Dumping of buffer pool not started")),
                load_status: Mutex::new(PoolDumpStatus::new("Loading of buffer pool not started")),
                stop: AtomicBool::new(false),
            }),
            loader: Mutex::default(),
        }
    }

    pub fn options(&self) -> PoolDumpOptions {
        self.shared.options.lock().clone()
    }

    pub fn set_options(&self, options: PoolDumpOptions) -> Result<()> {
        options.validate()?;
        *self.shared.options.lock() = options;
        Ok(())
    }

    pub fn dump_status(&self) -> PoolDumpStatus {
        self.shared.dump_status.lock().clone()
    }

    pub fn load_status(&self) -> PoolDumpStatus {
        self.shared.load_status.lock().clone()
    }

    pub fn dump(&self) -> Result<()> {
        let result = self.shared.dump();
        *self.shared.dump_status.lock() = PoolDumpStatus::ended(match &result {
            Ok(_) => "Buffer pool(s) dump completed".into(),
            Err(e) => format!("Buffer pool(s) dump failed: {e}"),
        });
        result.map(drop)
    }

    /// Begins to read in, in place of a load that is under way.
    pub fn start_load(&self) -> Result<()> {
        let mut loader = self.loader.lock();
        self.shared.stop(&mut loader);
        self.shared.stop.store(false, Ordering::Relaxed);
        *self.shared.load_status.lock() = PoolDumpStatus::new("Loading buffer pool(s)");
        let shared = self.shared.clone();
        *loader = Some(threads::spawn("varve-warm", move || shared.load())?);
        Ok(())
    }

    /// Ends a load, if one is under way.
    pub fn stop_load(&self) {
        self.shared.stop(&mut self.loader.lock());
    }
}

impl Drop for PoolWarmth {
    fn drop(&mut self) {
        self.stop_load();
    }
}

impl Shared {
    fn stop(&self, loader: &mut Option<JoinHandle<()>>) {
        if let Some(thread) = loader.take() {
            self.stop.store(true, Ordering::Relaxed);
            thread.thread().unpark();
            // It does nothing that panics; if it did, the pool would only be colder.
            let _ = thread.join();
        }
    }

    fn dump(&self) -> Result<usize> {
        let options = self.options.lock().clone();
        let mut pages = self.core.pool.pages_by_use();
        // They don't outlive the database.
        pages.retain(|page| page.space.is_logged());
        let listed = (pages.len() * options.pct as usize).div_ceil(100);
        pages.truncate(listed);
        pool_dump::write(
            &*self.disk,
            &self.dir.join(&options.file),
            &self.uuid,
            &pages,
        )?;
        Ok(listed)
    }

    /// The thread's body.
    fn load(&self) {
        let path = self.dir.join(&self.options.lock().file);
        let text = match pool_dump::read(&*self.disk, &path, &self.uuid) {
            Ok(None) => format!(
                "Loading of buffer pool not started: there is no {}",
                path.display()
            ),
            Ok(Some(pages)) => self.read_in(pages),
            Err(e) => {
                self.core
                    .warn(&format!("the buffer pool is not filled: {e}"));
                format!("Buffer pool(s) load failed: {e}")
            }
        };
        *self.load_status.lock() = PoolDumpStatus::ended(text);
    }

    fn read_in(&self, mut pages: Vec<PageId>) -> String {
        // The most recently used ones, if there are more than fit; then in the order on disk.
        pages.truncate(self.core.pool.frames_to_spare());
        pages.sort_unstable_by_key(|page| page.to_u64());
        self.open_files_of(&pages);
        let all = pages.len();
        let (end, done) = self.read_all(&pages);
        let text = match end {
            End::Complete => "Buffer pool(s) load completed",
            End::Full => "Buffer pool(s) load ended because the pool is full",
            End::Aborted => "Buffer pool(s) load aborted",
        };
        let note = format!("buffer pool: {done} of {all} pages on the list were read in or there");
        self.core.note(&note);
        text.into()
    }

    /// Has the tablespaces of these pages open. What can't be opened is passed over.
    fn open_files_of(&self, pages: &[PageId]) {
        for of_one in pages.chunk_by(|a, b| a.space == b.space) {
            let is_open = self.core.undo.env.spaces.get(of_one[0].space).is_some();
            if !is_open && !self.stop.load(Ordering::Relaxed) {
                let _ = self.core.tables.open_space(of_one[0].space);
            }
        }
    }

    /// Returns how it ended, and how many pages were gone through.
    fn read_all(&self, pages: &[PageId]) -> (End, usize) {
        let mut done = 0;
        let (mut allowed, mut looked) = (0.0, Instant::now());
        while done < pages.len() {
            if self.stop.load(Ordering::Relaxed) || self.core.check_usable().is_err() {
                return (End::Aborted, done);
            }
            let rate = f64::from(self.flush_options.lock().io_capacity_max);
            let passed = looked.elapsed().as_secs_f64();
            looked = Instant::now();
            allowed = (allowed + rate * passed).min(rate);
            let spare = self.core.pool.frames_to_spare();
            if spare == 0 {
                return (End::Full, done);
            }
            let next = &pages[done..][..spare.min(allowed as usize).min(pages.len() - done)];
            let n = self.read_some(next);
            allowed -= n as f64;
            done += n;
            self.load_status.lock().text = format!("Loaded {done}/{} pages", pages.len());
            thread::park_timeout(PAUSE);
        }
        (End::Complete, done)
    }

    /// Reads some of the pages in, at least one, and returns how many it went through.
    fn read_some(&self, pages: &[PageId]) -> usize {
        let Some(&first) = pages.first() else {
            return 0;
        };
        let pool = &self.core.pool;
        let begun = pool.prefetch(pages);
        if begun == 0 {
            // Nothing can be read in the background, or enough is being read already. An error is passed
            // over, see above.
            let _ = pool.shared(first);
        }
        begun.max(1)
    }
}
