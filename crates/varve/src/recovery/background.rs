//! What recovery leaves to be done while the database is in use: pages that nobody has touched, and
//! transactions that had not ended.
//!
//! **Pages.** The page map (`map`) stands behind the pool: the thread that loads a page brings it up to date
//! (BUF-6). Threads of ours load the rest, one partition after the other, with the reads of a batch of pages
//! under way together where the disk can do that, while the partition's redo is loaded. They stay behind
//! users: while somebody waits for a frame they rest, unless the database is being closed. When the map is
//! empty the checkpoint's hold goes, and the file of redo.
//!
//! **Transactions** that were not prepared are rolled back by another thread, one after the other. They are
//! registered as active, so that what they changed is locked implicitly, and hold locks on their tables, as
//! prepared ones do; so nobody has to know about them. On a full disk they wait (RB-1). If the database is
//! closed before, the rest is left, with its undo, to the next start (RB-2).
//!
//! **Files** are compared with the definitions by a third thread (`comparison`). A fourth one comes after
//! both, and drops what rebuilds of tables have left (`ddl::rebuild`).
//!
//! - **REC-5** The checkpoint stays at or below where recovery began reading until no page lacks redo
//!   (MAP-2), or what lacks it is marked as lost on disk; and until the files are compared.
//! - **REC-6** A page to which its redo can't be applied, because what is stored or the redo is damaged, is
//!   of a table: then the table is marked as one that lacks changes, on disk, before anything else (REC-3),
//!   and the page stays in the map, so that nobody sees it without them. Otherwise the database is poisoned,
//!   unless it was opened to pass over damage. What the system refuses may pass: it is tried again for a
//!   while; then the database is poisoned, and the next start tries again (REC-4).
//!
//! A panic of a thread poisons the database. No latches but those of pages being loaded.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::BATCH_PAGES;
use super::comparison::FileComparison;
use super::map::PageMap;
use crate::base::{Error, PageId, Result, threads};
use crate::ddl::lost_mark_path;
use crate::flush::CheckpointHold;
use crate::space::{SpaceKind, Spaces};
use crate::txn::{Core, Transaction};

/// The redo of a map that goes by indexes is divided no sooner after the database opened. It takes all that
/// the disk can do for a while, and who opened the database is hardly through with its own start, nor are the
/// first users, whose pages come by indexes meanwhile.
const GRACE: Duration = Duration::from_millis(300);
/// How long a thread rests while users wait for frames.
const REST: Duration = Duration::from_millis(5);
/// Pages that could not be loaded are tried again after so long, so many times.
const RETRY: Duration = Duration::from_millis(100);
const MOST_RETRIES: u32 = 100;

/// The work that is left.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    /// Redo that was found.
    pub redo_bytes: u64,
    /// Memory that it took, divided by pages, and bytes of it that were put in a file.
    pub memory_bytes: u64,
    pub file_bytes: u64,
    /// Pages that lacked redo, and those that still do.
    pub pages: u64,
    pub pages_left: u64,
    /// Transactions that are still to be rolled back, and about how many changes they have.
    pub transactions_left: u64,
    pub changes_left: u64,
    /// How long that will take, going by how long it has taken so far.
    pub seconds_left: u64,
}

/// The work that is left when the database opens.
pub struct PendingRecovery {
    pub map: Option<Arc<PageMap>>,
    pub hold: Option<CheckpointHold>,
    pub losers: Vec<Transaction>,
    /// Of table files with definitions, for which DDL waits.
    pub comparison: Option<FileComparison>,
    /// Whether these are to be rolled back.
    pub rolls_back: bool,
    /// Whether a damaged page of the system or an undo tablespace stops nobody (REC-6).
    pub passes_over_damage: bool,
    pub redo_bytes: u64,
}

/// Recovery going on in the background.
pub struct Recovery {
    shared: Arc<Shared>,
    /// Transactions that are not rolled back: they keep their locks.
    _kept: Mutex<Vec<Transaction>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Threads bring pages up to date.
    has_page_threads: bool,
}

struct Shared {
    core: Arc<Core>,
    spaces: Arc<Spaces>,
    begun: Instant,
    redo_bytes: u64,
    /// The most so far.
    memory_bytes: AtomicU64,
    file_bytes: AtomicU64,
    pages: u64,
    /// `None` once it is empty.
    map: Mutex<Option<Arc<PageMap>>>,
    hold: Mutex<Option<CheckpointHold>>,
    /// The next partition to look at.
    next: AtomicUsize,
    retries: AtomicU64,
    /// That the log was read as a whole.
    has_told: AtomicBool,
    passes_over_damage: bool,
    changes: u64,
    changes_left: AtomicU64,
    transactions_left: AtomicU64,
    stop: AtomicBool,
    /// Nobody else is to be considered.
    hurry: AtomicBool,
    /// What is done with, or given up.
    ended: Mutex<Ended>,
    changed: Condvar,
}

#[derive(Clone, Copy, Default)]
struct Ended {
    /// No page lacks redo.
    settled: bool,
    pages: bool,
    transactions: bool,
    files: bool,
    leftovers: bool,
}

impl Recovery {
    /// Starts `threads` threads for the pages, and one for the transactions, as far as there are any. With 0
    /// there is none for either.
    pub fn start(
        core: Arc<Core>,
        spaces: Arc<Spaces>,
        rest: PendingRecovery,
        threads: usize,
    ) -> Result<Arc<Recovery>> {
        // What is only read is brought up to date as it is used, and the rest stays as it is.
        let is_only_read = core.is_read_only();
        let losers = rest.losers.iter().filter(|_| !is_only_read);
        let (transactions, changes) = losers.fold((0, 0), |(transactions, changes), loser| {
            (transactions + 1, changes + loser.next_undo_no())
        });
        let map = rest.map;
        let ended = Ended {
            settled: map.is_none(),
            pages: map.is_none() || is_only_read,
            transactions: rest.losers.is_empty() || !rest.rolls_back,
            files: rest.comparison.is_none(),
            leftovers: true,
        };
        let shared = Arc::new(Shared {
            core,
            spaces,
            begun: Instant::now(),
            redo_bytes: rest.redo_bytes,
            memory_bytes: AtomicU64::new(0),
            file_bytes: AtomicU64::new(0),
            pages: map
                .as_ref()
                .filter(|_| !is_only_read)
                .map_or(0, |map| map.left()),
            hold: Mutex::new(
                rest.hold
                    .filter(|_| map.is_some() || rest.comparison.is_some()),
            ),
            map: Mutex::new(map.clone()),
            next: AtomicUsize::new(0),
            retries: AtomicU64::new(0),
            has_told: AtomicBool::new(false),
            passes_over_damage: rest.passes_over_damage,
            changes,
            changes_left: AtomicU64::new(changes),
            transactions_left: AtomicU64::new(transactions),
            stop: AtomicBool::new(false),
            hurry: AtomicBool::new(false),
            ended: Mutex::new(ended),
            changed: Condvar::new(),
        });
        let (kept, losers) = match threads > 0 && rest.rolls_back {
            true => (Vec::new(), rest.losers),
            false => (rest.losers, Vec::new()),
        };
        let recovery = Arc::new(Recovery {
            shared: shared.clone(),
            _kept: Mutex::new(kept),
            threads: Mutex::default(),
            has_page_threads: threads > 0,
        });
        if let Some(map) = map {
            shared.count_bytes(&map);
            if map.left() == 0 {
                shared.end_pages(&map);
            }
            let threads = if map.left() == 0 { 0 } else { threads };
            for _ in 0..threads {
                let (shared, map) = (shared.clone(), map.clone());
                recovery.spawn("varve-redo-apply", move || shared.apply_pages(&map))?;
            }
        }
        if let Some(comparison) = rest.comparison {
            let shared = shared.clone();
            recovery.spawn("varve-files", move || shared.compare_files(&comparison))?;
        }
        if !losers.is_empty() {
            recovery.spawn("varve-rollback", move || shared.roll_back(losers))?;
        }
        Ok(recovery)
    }

    /// Has a thread of its own do what is left when files and transactions are done with, unless the database
    /// is closed before.
    pub fn spawn_last(
        &self,
        name: &'static str,
        left: impl FnOnce() -> Result<()> + Send + 'static,
    ) -> Result<()> {
        let shared = self.shared.clone();
        shared.ended.lock().leftovers = false;
        self.spawn(name, move || {
            let done = shared.wait_for_others().then(left);
            if let Some(Err(e)) = &done {
                shared.core.warn(&format!("recovery: {name}: {e}"));
            }
            if !matches!(done, Some(Ok(()))) {
                // The next start looks again.
                shared.spaces.files_match(false);
            }
            shared.end(|ended| ended.leftovers = true);
        })
    }

    fn spawn(&self, name: &'static str, body: impl FnOnce() + Send + 'static) -> Result<()> {
        let core = self.shared.core.clone();
        let body = move || {
            if catch_unwind(AssertUnwindSafe(body)).is_err() {
                core.fail(&format!("the thread {name} of recovery panicked"));
            }
        };
        self.threads.lock().push(threads::spawn(name, body)?);
        Ok(())
    }

    pub fn progress(&self) -> Progress {
        let shared = &self.shared;
        let map = shared.map.lock().clone();
        map.iter().for_each(|map| shared.count_bytes(map));
        let is_only_read = shared.core.is_read_only();
        let pages_left = map.filter(|_| !is_only_read).map_or(0, |map| map.left());
        let changes_left = shared.changes_left.load(Relaxed);
        let elapsed = shared.begun.elapsed().as_secs_f64();
        let seconds = |left: u64, all: u64| match all - left.min(all) {
            0 => 0.0,
            done => elapsed * left as f64 / done as f64,
        };
        let left = seconds(pages_left, shared.pages).max(seconds(changes_left, shared.changes));
        Progress {
            redo_bytes: shared.redo_bytes,
            memory_bytes: shared.memory_bytes.load(Relaxed),
            file_bytes: shared.file_bytes.load(Relaxed),
            pages: shared.pages,
            pages_left,
            transactions_left: shared.transactions_left.load(Relaxed),
            changes_left,
            seconds_left: left.ceil() as u64,
        }
    }

    /// Waits until nothing is left to be done, at most so long; true if that is so.
    pub fn wait(&self, at_most: Duration) -> bool {
        self.wait_for(at_most, |ended| {
            ended.pages && ended.transactions && ended.files && ended.leftovers
        })
    }

    fn wait_for(&self, at_most: Duration, is_it: impl Fn(Ended) -> bool) -> bool {
        let deadline = Instant::now().checked_add(at_most);
        let mut ended = self.shared.ended.lock();
        // Nobody tells when the database is poisoned.
        while !is_it(*ended) && self.shared.core.check_usable().is_ok() {
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return false;
            }
            self.shared
                .changed
                .wait_for(&mut ended, Duration::from_millis(20));
        }
        is_it(*ended)
    }

    /// For a clean shutdown: brings all pages up to date as fast as it goes, and leaves transactions that are
    /// not rolled back yet to the next start.
    pub fn finish_pages(&self) {
        self.shared.hurry.store(true, Relaxed);
        let map = self.shared.map.lock().clone();
        if let (false, Some(map)) = (self.has_page_threads, map) {
            self.shared.apply_pages(&map);
        }
        self.wait_for(Duration::MAX, |ended| ended.pages && ended.files);
        self.stop();
    }

    /// Stops the threads, wherever they are.
    pub fn stop(&self) {
        self.shared.stop.store(true, Relaxed);
        let map = self.shared.map.lock().clone();
        map.iter().for_each(|map| map.stop_dividing());
        for thread in self.threads.lock().drain(..) {
            // A panic has been caught and has poisoned the database.
            let _ = thread.join();
        }
    }
}

impl Drop for Recovery {
    fn drop(&mut self) {
        self.stop();
        if self.shared.hold.lock().is_some() {
            // REC-5: no checkpoint follows.
            self.shared
                .core
                .fail("the database was closed before recovery was through");
        }
    }
}

impl Shared {
    fn is_stopped(&self) -> bool {
        self.stop.load(Relaxed) || self.core.check_usable().is_err()
    }

    /// Until files and transactions are done with; false if they will not be.
    fn wait_for_others(&self) -> bool {
        let are_done = |ended: &Ended| ended.files && ended.transactions;
        let mut ended = self.ended.lock();
        // Nobody tells when the database is closed.
        while !are_done(&ended) && !self.is_stopped() {
            self.changed.wait_for(&mut ended, Duration::from_millis(20));
        }
        are_done(&ended) && !self.is_stopped()
    }

    fn tell_divided(&self, map: &PageMap) {
        self.core.note(&format!(
            "recovery: the redo log was read {:.1} s after opening; {} pages lack changes, {} bytes of them in a file",
            self.begun.elapsed().as_secs_f64(),
            map.left(),
            map.spilled_bytes()
        ));
    }

    fn is_early(&self) -> bool {
        let hurries = self.hurry.load(Relaxed) || self.is_stopped();
        self.begun.elapsed() < GRACE && !hurries
    }

    fn count_bytes(&self, map: &PageMap) {
        self.memory_bytes.fetch_max(map.memory_bytes(), Relaxed);
        self.file_bytes.fetch_max(map.spilled_bytes(), Relaxed);
    }

    /// A thread's body: brings pages up to date until none is left.
    fn apply_pages(&self, map: &Arc<PageMap>) {
        let goes_by_indexes = map.goes_by_indexes();
        while goes_by_indexes && self.is_early() {
            std::thread::sleep(REST);
        }
        match map.divide() {
            Ok(()) => {
                if goes_by_indexes && !self.has_told.swap(true, Relaxed) {
                    self.tell_divided(map);
                }
            }
            // Each page by itself.
            Err(Error::NoSpace { .. }) => {}
            Err(_) if map.left() == 0 => {}
            Err(_) if self.is_stopped() => return,
            Err(e) => {
                let what = format!("recovery can't read the redo log as a whole: {e}");
                return self.core.fail(&what);
            }
        }
        while !self.is_stopped() {
            if map.left() == 0 {
                return self.end_pages(map);
            }
            let partition = self.next.fetch_add(1, Relaxed);
            match partition < map.groups() {
                true => self.apply_partition(map, partition),
                false => self.start_again(map),
            }
        }
    }

    fn apply_partition(&self, map: &Arc<PageMap>, partition: usize) {
        let mut loaded = None;
        for batch in map.waiting(partition).chunks(BATCH_PAGES) {
            if self.is_stopped() {
                return;
            }
            super::read_together(&self.core.pool, map, partition, batch, &mut loaded);
            // What is left: pages that are not read, or could not be, or for which no frame was at hand.
            for &page in batch {
                if map.waits(page) {
                    self.load(map, page);
                }
                self.make_way();
            }
        }
    }

    /// Some pages could not be loaded, or are just being loaded by others. Of all threads one begins anew and
    /// counts it.
    fn start_again(&self, map: &PageMap) {
        std::thread::sleep(RETRY);
        let at = self.next.load(Relaxed);
        let is_at_the_end = at >= map.groups() && map.left() > 0 && !self.is_stopped();
        if !is_at_the_end || self.next.compare_exchange(at, 0, Relaxed, Relaxed).is_err() {
            return;
        }
        if self.retries.fetch_add(1, Relaxed) > u64::from(MOST_RETRIES) {
            let left = map.left();
            self.core.fail(&format!(
                "recovery could not bring {left} pages up to date; the next start tries again"
            ));
        }
    }

    /// Users go first.
    fn make_way(&self) {
        while self.core.pool.frames_wanted() > 0 && !self.hurry.load(Relaxed) && !self.is_stopped()
        {
            std::thread::sleep(REST);
        }
    }

    /// Brings a page up to date by loading it (BUF-6).
    fn load(&self, map: &PageMap, page: PageId) {
        match self.core.pool.shared(page).map(drop) {
            Ok(()) => self.retries.store(0, Relaxed),
            Err(e @ Error::Corrupt { .. }) => self.give_up(map, page, e),
            // Its tablespace is going; or all frames are in use for now; or the database is poisoned.
            Err(Error::NotFound { .. } | Error::NoSpace { .. } | Error::Poisoned { .. }) => {}
            Err(e) => {
                if self.retries.load(Relaxed) == 0 {
                    self.core.warn(&format!(
                        "recovery can't bring {page} up to date and will try again: {e}"
                    ));
                }
            }
        }
    }

    /// REC-6.
    fn give_up(&self, map: &PageMap, page: PageId, why: Error) {
        let kind = self.spaces.get(page.space).map(|space| space.kind());
        match kind {
            None => return,
            Some(SpaceKind::Table) => {}
            Some(_) if self.passes_over_damage => {
                let what = format!("recovery passes over {page}, which nobody can use: {why}");
                self.core.error(&what);
            }
            Some(_) => {
                return self
                    .core
                    .fail(&format!("recovery can't bring {page} up to date: {why}"));
            }
        }
        let tables = &self.core.tables;
        let name = match tables.name_of_space(page.space) {
            Ok(name) => name,
            Err(e) => {
                return self.core.warn(&format!(
                    "recovery can't find out whose page {page} is, and will try again: {e}"
                ));
            }
        };
        // A table whose definition can't be read has no mark; nor is there anybody who could use it.
        if let Some(name) = name {
            let what = format!("table {name} can't be used: {why}");
            let mark = || self.spaces.put_mark(&lost_mark_path(&name, page.space));
            if let Err(e) = tables.mark_lost(&name, why, mark) {
                return self.core.warn(&format!(
                    "table {name} lacks changes, which can't be noted, and will be tried again: {e}"
                ));
            }
            self.core.error(&what);
        }
        map.give_up(page);
    }

    /// No page lacks redo. The first thread sees to the rest.
    fn end_pages(&self, map: &PageMap) {
        if self.map.lock().take().is_none() {
            return;
        }
        self.count_bytes(map);
        while !map.is_through() {
            std::thread::yield_now();
        }
        if let Err(e) = map.sync_files(&**self.core.pool.store()) {
            // REC-7
            return self
                .core
                .fail(&format!("data files could not be synced: {e}"));
        }
        self.core.pool.settle_pending();
        // REC-5. Everything is registered (MAP-2), and in order (DQ-4).
        self.end(|ended| ended.settled = true);
        if map.has_given_up() {
            // Their redo stays (REC-6).
        } else {
            self.core.pool.end_pending();
            if let Err(e) = map.remove_file() {
                self.core
                    .warn(&format!("recovery's file is left to the next start: {e}"));
            }
        }
        if self.pages > 0 {
            self.core.note(&format!(
                "recovery: {} pages were brought up to date in {:.1} s after opening",
                self.pages,
                self.begun.elapsed().as_secs_f64()
            ));
        }
        self.end(|ended| ended.pages = true);
    }

    /// Something is done with. The checkpoint may move when no page lacks redo, and files that redo removes
    /// are gone.
    fn end(&self, what: impl FnOnce(&mut Ended)) {
        let mut ended = self.ended.lock();
        what(&mut ended);
        if ended.settled && ended.files {
            *self.hold.lock() = None;
        }
        self.changed.notify_all();
    }

    /// A thread's body.
    fn compare_files(&self, comparison: &FileComparison) {
        match comparison.run() {
            Ok(()) => self.end(|ended| ended.files = true),
            Err(e) => self.core.fail(&format!(
                "table files can't be compared with the definitions: {e}"
            )),
        }
        // Nobody can change anything if it failed.
        self.core.tables.let_ddl_go_on();
    }

    /// The other thread's body.
    fn roll_back(&self, losers: Vec<Transaction>) {
        let count = losers.len();
        for trx in losers {
            let (id, changes) = (trx.id(), trx.next_undo_no());
            let before = self.changes_left.load(Relaxed);
            match trx.roll_back_in_background(&self.stop, &self.changes_left) {
                Ok(()) => {}
                Err(_) if self.is_stopped() => {}
                Err(e) => self
                    .core
                    .fail(&format!("rollback of transaction {id:?} failed: {e}")),
            }
            if self.is_stopped() {
                continue;
            }
            self.changes_left
                .store(before.saturating_sub(changes), Relaxed);
            self.transactions_left.fetch_sub(1, Relaxed);
        }
        if !self.is_stopped() {
            self.core.note(&format!(
                "recovery: {count} transactions were rolled back in {:.1} s after opening",
                self.begun.elapsed().as_secs_f64()
            ));
            self.end(|ended| ended.transactions = true);
        }
    }
}
