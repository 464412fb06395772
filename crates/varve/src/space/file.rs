//! A tablespace's file: open while it is used, and after that as long as there is room for it among the open files.
//!
//! A process may have only so many files open, and a database may have more tables. [`OpenFiles`] knows which table files are
//! open and closes those that were used longest ago; a [`SpaceFile`] opens its own again when somebody needs it. The
//! system tablespace and those of undo and of temporary tables stay open and are not counted.
//!
//! - **FILE-1** A handle is closed only when no operation is on it and every write through it has been synced: the operating
//!   system tells of a failed write those who had the file open at the time.
//! - **FILE-2** A file is opened again under the name that it has then: renaming holds the same mutex as opening. Once it is given
//!   up, because it is removed or another takes its place, it is never opened again.
//! - **FILE-3** More files than the limit are open only as long as all of them are in use or wait for their sync, which a batch
//!   of the page cleaner ends with.
//!
//! Who keeps the database is told when a file can't be extended for want of space, and when it can again
//! ([`OpenFiles::tell_of_space`]).
//!
//! Mutexes: a file's own, then that of the file that takes its place, then the list's; under the list's, other files' own by
//! `try_lock` only.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

use crate::base::{Durations, Error, Result};
use crate::io::{Disk, DiskFile, FlushMethod, OpenMode, write_aligned};

/// How often it is told that there is no space.
const SPACE_TELL: Duration = Duration::from_secs(60);

type Tell = Box<dyn Fn(&str) + Send + Sync>;

/// What was told about space.
#[derive(Default)]
struct Told {
    at: Option<Instant>,
    /// Nothing was extended since.
    is_full: bool,
}

/// The table files that are open.
pub struct OpenFiles {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    limit: usize,
    method: FlushMethod,
    /// Counts uses, to tell older ones from newer ones. Relaxed: a use that is taken for another one costs an open at most.
    clock: AtomicU64,
    /// By their `number`.
    open: Mutex<HashMap<u64, Weak<SpaceFile>>>,
    reopened: AtomicU64,
    tell: OnceLock<Tell>,
    told: Mutex<Told>,
}

impl OpenFiles {
    pub fn new(disk: Arc<dyn Disk>, dir: PathBuf, limit: usize) -> Arc<OpenFiles> {
        Arc::new(OpenFiles {
            disk,
            dir,
            limit,
            method: FlushMethod::Fsync,
            clock: AtomicU64::new(0),
            open: Mutex::default(),
            reopened: AtomicU64::new(0),
            tell: OnceLock::new(),
            told: Mutex::default(),
        })
    }

    /// How the files that are opened from now on are used.
    pub fn set_method(&mut self, method: FlushMethod) {
        self.method = method;
    }

    /// Opens a file for its pages.
    fn open_for_pages(&self, path: &Path) -> Result<Arc<dyn DiskFile>> {
        match self.method {
            FlushMethod::Fsync => self.disk.open(path, OpenMode::Existing),
            FlushMethod::Direct => self.disk.open_direct(path),
        }
    }

    /// The same, where it is open already.
    pub fn for_pages(&self, file: Arc<dyn DiskFile>) -> Result<Arc<dyn DiskFile>> {
        match self.method {
            FlushMethod::Fsync => Ok(file),
            FlushMethod::Direct => self.disk.open_direct(file.path()),
        }
    }

    /// Gives the words for whoever keeps the database to `tell` when a file can't be extended for want of space, once a minute at
    /// most, and when one was extended after that. Only the first call counts.
    pub fn tell_of_space(&self, tell: impl Fn(&str) + Send + Sync + 'static) {
        let _ = self.tell.set(Box::new(tell));
    }

    /// What came of extending a file.
    fn extended(&self, done: &Result<()>) {
        let Some(tell) = self.tell.get() else {
            return;
        };
        let mut told = self.told.lock();
        match done {
            Ok(()) if told.is_full => {
                told.is_full = false;
                tell("there is space again");
            }
            Err(Error::NoSpace { what }) if told.at.is_none_or(|at| at.elapsed() >= SPACE_TELL) => {
                (told.at, told.is_full) = (Some(Instant::now()), true);
                tell(&format!(
                    "no space left: {what}; statements that need room are refused until there is some, nothing has to be restarted then"
                ));
            }
            _ => {}
        }
    }

    pub fn count(&self) -> usize {
        self.open.lock().len()
    }

    /// How often a file had to be opened again.
    pub fn reopened(&self) -> u64 {
        self.reopened.load(Relaxed)
    }

    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Relaxed)
    }

    /// Takes a file into the list, and closes others if it is too long (FILE-3). The caller holds the file's mutex, if others
    /// know the file.
    fn enter(&self, file: &SpaceFile) {
        // Dropped after the list's mutex is released: a file that goes takes itself off the list.
        let mut others: Vec<(u64, Arc<SpaceFile>)> = Vec::new();
        let mut open = self.open.lock();
        open.insert(file.number, file.me.clone());
        if open.len() <= self.limit {
            return;
        }
        // A few more than necessary, so that not every open has to look at all of them.
        let mut surplus = open.len() - self.limit + self.limit / 16;
        let known = open.values().filter_map(Weak::upgrade);
        others.extend(known.map(|f| (f.last_use.load(Relaxed), f)));
        others.sort_unstable_by_key(|(last_use, _)| *last_use);
        for (_, other) in &others {
            if surplus == 0 {
                break;
            }
            if other.number != file.number && other.try_close() {
                open.remove(&other.number);
                surplus -= 1;
            }
        }
    }

    fn leave(&self, number: u64) {
        self.open.lock().remove(&number);
    }
}

struct State {
    /// `None` while it is closed.
    handle: Option<Arc<dyn DiskFile>>,
    /// Relative to the data directory.
    path: String,
    /// Somebody wrote since the last sync began.
    owes_sync: bool,
    /// Nobody will open it again.
    is_given_up: bool,
}

/// Keeps others off a file that nobody needs any more.
#[must_use]
pub struct GivenUp<'a> {
    _state: MutexGuard<'a, State>,
    /// Closed last: that may take long for a large file that has no name any more.
    _handle: Option<Arc<dyn DiskFile>>,
}

fn given_up(path: &str) -> Error {
    Error::not_found(format!("file {path}"))
}

/// The file of one tablespace. All methods may be called from several threads at once.
pub struct SpaceFile {
    files: Arc<OpenFiles>,
    me: Weak<SpaceFile>,
    /// No other's, also if it is the same file under another tablespace object.
    number: u64,
    /// Whether it may be closed while it is not used.
    is_counted: bool,
    last_use: AtomicU64,
    state: Mutex<State>,
}

impl SpaceFile {
    /// A file that is open and stays so.
    pub fn kept_open(files: &Arc<OpenFiles>, path: &str, handle: Arc<dyn DiskFile>) -> Arc<Self> {
        Self::new(files, path, handle, false)
    }

    /// A file that is open now, and may be closed and opened again under its path.
    pub fn counted(files: &Arc<OpenFiles>, path: &str, handle: Arc<dyn DiskFile>) -> Arc<Self> {
        let file = Self::new(files, path, handle, true);
        files.enter(&file);
        file
    }

    fn new(
        files: &Arc<OpenFiles>,
        path: &str,
        handle: Arc<dyn DiskFile>,
        is_counted: bool,
    ) -> Arc<Self> {
        let now = files.tick();
        Arc::new_cyclic(|me| SpaceFile {
            files: files.clone(),
            me: me.clone(),
            number: now,
            is_counted,
            last_use: AtomicU64::new(now),
            state: Mutex::new(State {
                handle: Some(handle),
                path: path.into(),
                owes_sync: false,
                is_given_up: false,
            }),
        })
    }

    /// Relative to the data directory.
    pub fn path(&self) -> String {
        self.state.lock().path.clone()
    }

    /// The file to read from, which stays open as long as the caller has it.
    pub fn to_read(&self) -> Result<Arc<dyn DiskFile>> {
        self.handle(&mut self.state.lock())
    }

    /// The file to write to, which stays open as long as the caller has it, and owes a sync from now on; `None` if it is given up.
    pub fn to_write(&self) -> Result<Option<Arc<dyn DiskFile>>> {
        let mut state = self.state.lock();
        if state.is_given_up {
            return Ok(None);
        }
        let handle = self.handle(&mut state)?;
        state.owes_sync = true;
        Ok(Some(handle))
    }

    /// Writes nothing if the file is given up.
    pub fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        match self.to_write()? {
            Some(handle) => write_aligned(&*handle, buf, offset),
            None => Ok(()),
        }
    }

    /// Makes everything written so far durable.
    pub fn sync(&self) -> Result<()> {
        let done = self.to_sync().map_or(Ok(()), |handle| handle.sync());
        if done.is_err() {
            self.is_not_synced();
        }
        done
    }

    /// The file that the caller is going to sync, and keeps open until that is done: who writes from now on owes another one. `None`: what
    /// is closed owes nothing (FILE-1).
    pub fn to_sync(&self) -> Option<Arc<dyn DiskFile>> {
        let mut state = self.state.lock();
        let handle = state.handle.clone()?;
        state.owes_sync = false;
        Some(handle)
    }

    /// Nothing came of the sync that `to_sync` was called for.
    pub fn is_not_synced(&self) {
        self.state.lock().owes_sync = true;
    }

    /// Extends the file. That need not be synced: recovery extends it again if it has to.
    pub fn allocate(&self, new_len: u64) -> Result<()> {
        let handle = self.handle(&mut self.state.lock())?;
        let done = handle.allocate(new_len);
        self.files.extended(&done);
        done
    }

    /// Sees to it that the whole file has its space on the disk, as far as there is room.
    pub fn fill_holes(&self) -> Result<()> {
        let handle = self.handle(&mut self.state.lock())?;
        let done = handle.fill_holes();
        if matches!(done, Err(Error::NoSpace { .. })) {
            self.files.extended(&done);
            return Ok(());
        }
        done
    }

    /// Has `rename`, which is handed the path so far, give the file another one (FILE-2).
    pub fn rename(&self, to: &str, rename: impl FnOnce(&str) -> Result<()>) -> Result<()> {
        let mut state = self.state.lock();
        rename(&state.path)?;
        state.path = to.into();
        Ok(())
    }

    /// Another path from now on, for a file that stays open: nobody looks for it there.
    pub fn is_called(&self, path: String, held: &Durations) {
        assert!(!self.is_counted, "FILE-2");
        let mut state = self.state.lock();
        let _held = held.begin();
        state.path = path;
    }

    /// Nothing is written any more to a file that stayed open, and that is gone for good (SP-8).
    pub fn end(&self, held: &Durations) {
        assert!(!self.is_counted, "FILE-2");
        let mut state = self.state.lock();
        let timed = held.begin();
        state.is_given_up = true;
        let handle = state.handle.take();
        drop(timed);
        drop(state);
        // That may take long for a large file that has no name any more.
        drop(handle);
    }

    /// Has `remove`, which is handed the path, take the file away, and never opens it again (FILE-2). Whoever reads or writes waits as
    /// long as the caller keeps the answer (SP-8). If `remove` fails nothing has changed.
    pub fn give_up(&self, remove: impl FnOnce(&str) -> Result<()>) -> Result<GivenUp<'_>> {
        let mut state = self.state.lock();
        if state.is_given_up {
            return Err(given_up(&state.path));
        }
        remove(&state.path)?;
        state.is_given_up = true;
        let handle = state.handle.take();
        if handle.is_some() && self.is_counted {
            self.files.leave(self.number);
        }
        Ok(GivenUp {
            _state: state,
            _handle: handle,
        })
    }

    /// The open file. While the caller has it, it is not closed.
    fn handle(&self, state: &mut State) -> Result<Arc<dyn DiskFile>> {
        if state.is_given_up {
            return Err(given_up(&state.path));
        }
        self.last_use.store(self.files.tick(), Relaxed);
        if let Some(handle) = &state.handle {
            return Ok(handle.clone());
        }
        self.files.enter(self);
        let path = self.files.dir.join(&state.path);
        let opened = self.files.open_for_pages(&path);
        let handle = opened.inspect_err(|_| self.files.leave(self.number))?;
        self.files.reopened.fetch_add(1, Relaxed);
        state.handle = Some(handle.clone());
        Ok(handle)
    }

    /// FILE-1. False if it can't be closed now.
    fn try_close(&self) -> bool {
        let Some(mut state) = self.state.try_lock() else {
            return false;
        };
        // Others get hold of it only under this mutex: whoever has it already is counted.
        let is_idle = state.handle.as_ref().map(Arc::strong_count) == Some(1);
        if !is_idle || state.owes_sync {
            return false;
        }
        state.handle = None;
        true
    }
}

impl Drop for SpaceFile {
    fn drop(&mut self) {
        if self.is_counted && self.state.get_mut().handle.is_some() {
            self.files.leave(self.number);
        }
    }
}
