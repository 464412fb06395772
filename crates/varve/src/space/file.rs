//! A tablespace's file: open while it is used, and after that as long as there is room for it among the open
//! files.
//!
//! A process may have only so many files open, and a database may have more tables. [`OpenFiles`] knows which
//! table files are open and closes those that were used longest ago; a [`SpaceFile`] opens its own again when
//! somebody needs it. The system tablespace and those of undo and of temporary tables stay open and are not
//! counted.
//!
//! - **FILE-1** A handle is closed only when no operation is on it and every write through it has been
//!   synced: the operating system tells of a failed write those who had the file open at the time. A sync
//!   that somebody else begins may come before a write that is on its way, so a thread that writes pages
//!   keeps the file open from before the first write until its own sync is over ([`SpaceFile::if_there`]).
//!   What an earlier process has written may not be durable either, as long as this one has not synced the
//!   file: to be synced it is opened then, if it is closed.
//! - **FILE-2** A file is opened again under the name that it has then: renaming holds the same mutex as
//!   opening. Once it is given up, because it is removed or another takes its place, it is never opened
//!   again.
//! - **FILE-3** More files than the limit are open only as long as all of them are in use or wait for their
//!   sync, which a batch of the page cleaner ends with; those that just left the list are closed a moment
//!   later.
//! - **FILE-4** Where the system refuses to open a file because too many are open, idle ones are closed, and
//!   it is tried again.
//!
//! The administrator is told when a file can't be extended for want of space, or not be opened because too
//! many are, and when it can again ([`OpenFiles::tell_of_refusals`]).
//!
//! Mutexes: a file's own, then that of the file that takes its place, then the list's; under the list's,
//! other files' own by `try_lock` only. No file is closed under the list's mutex: that may take long.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

use super::removal::Removals;
use crate::base::{Durations, Error, Result};
use crate::io::{Disk, DiskFile, FlushMethod, OpenMode, write_aligned};

/// How often it is told that something is refused.
const TELL_AGAIN: Duration = Duration::from_secs(60);

/// How often opening a file is tried, after some idle ones were closed each time (FILE-4).
const OPEN_TRIES: usize = 5;

pub(super) type Tell = Box<dyn Fn(&str) + Send + Sync>;

/// A kind of refusal, and what was told about it.
#[derive(Default)]
struct Refusal {
    /// It was told, and not yet that it is over. Relaxed: a thread that sees that too late leaves it to the
    /// next one.
    is_told: AtomicBool,
    at: Mutex<Option<Instant>>,
}

impl Refusal {
    /// It was refused: gives the words to `tell`, once in a while.
    fn refused(&self, tell: &Tell, words: impl FnOnce() -> String) {
        let mut at = self.at.lock();
        if at.is_none_or(|at| at.elapsed() >= TELL_AGAIN) {
            *at = Some(Instant::now());
            self.is_told.store(true, Relaxed);
            tell(&words());
        }
    }

    /// It was not refused this time.
    fn is_over(&self, tell: &Tell, words: &str) {
        if self.is_told.load(Relaxed) && self.is_told.swap(false, Relaxed) {
            tell(words);
        }
    }
}

/// What closing idle files works on.
type List = HashMap<u64, Weak<SpaceFile>>;

/// The table files that are open.
pub struct OpenFiles {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    limit: usize,
    method: FlushMethod,
    /// Counts uses, to tell older ones from newer ones. Relaxed: a use that is taken for another one costs an
    /// open at most.
    clock: AtomicU64,
    /// By their `number`.
    open: Mutex<List>,
    reopened: AtomicU64,
    tell: Arc<OnceLock<Tell>>,
    space: Refusal,
    means: Refusal,
    /// Files that are given up, and give their space back by and by.
    pub(super) removals: Removals,
}

impl OpenFiles {
    pub fn new(disk: Arc<dyn Disk>, dir: PathBuf, limit: usize) -> Arc<OpenFiles> {
        let tell = Arc::default();
        Arc::new(OpenFiles {
            removals: Removals::new(disk.clone(), Arc::clone(&tell)),
            disk,
            dir,
            limit,
            method: FlushMethod::Fsync,
            clock: AtomicU64::new(0),
            open: Mutex::default(),
            reopened: AtomicU64::new(0),
            tell,
            space: Refusal::default(),
            means: Refusal::default(),
        })
    }

    /// How the files that are opened from now on are used.
    pub fn set_method(&mut self, method: FlushMethod) {
        self.method = method;
    }

    /// Opens a file for its pages.
    pub fn open_for_pages(&self, path: &Path) -> Result<Arc<dyn DiskFile>> {
        self.with_means(|| match self.method {
            FlushMethod::Fsync => self.disk.open(path, OpenMode::Existing),
            FlushMethod::Direct => self.disk.open_direct(path),
        })
    }

    /// The same, where it is open already.
    pub fn for_pages(&self, file: Arc<dyn DiskFile>) -> Result<Arc<dyn DiskFile>> {
        match self.method {
            FlushMethod::Fsync => Ok(file),
            FlushMethod::Direct => self.open_for_pages(file.path()),
        }
    }

    /// Does what opens a file; if too many are open, again after some that are idle were closed (FILE-4).
    pub fn with_means<T>(&self, open: impl Fn() -> Result<T>) -> Result<T> {
        for _ in 1..OPEN_TRIES {
            match open() {
                Err(e) if e.is_out_of_means() => {}
                opened => return self.opened(opened),
            }
            if self.close_idle(self.open.lock(), 1 + self.limit / 16, None) == 0 {
                break;
            }
        }
        self.opened(open())
    }

    /// What came of opening a file.
    fn opened<T>(&self, opened: Result<T>) -> Result<T> {
        if let Some(tell) = self.tell.get() {
            match &opened {
                Ok(_) => self.means.is_over(tell, "files can be opened again"),
                Err(e) if e.is_out_of_means() => self.means.refused(tell, || {
                    format!(
                        "{e}; {} files of tables are open; pages that can't be written are written later, statements that have to open a file are refused: \
                         let the process have more files open, or Varve fewer",
                        self.count()
                    )
                }),
                Err(_) => {}
            }
        }
        opened
    }

    /// Gives the words for the administrator to `tell` when a file can't be extended for want of space, or
    /// can't be opened because too many are open, once a minute at most, and when one could after that. Only
    /// the first call counts.
    pub fn tell_of_refusals(&self, tell: impl Fn(&str) + Send + Sync + 'static) {
        let _ = self.tell.set(Box::new(tell));
    }

    /// Tells the administrator.
    pub fn tell(&self, words: &str) {
        if let Some(tell) = self.tell.get() {
            tell(words);
        }
    }

    /// Does what needs room on the disk; again whenever a file that was removed has given some back (SP-11).
    pub fn with_room(&self, extend: impl Fn() -> Result<()>) -> Result<()> {
        loop {
            let portions = self.removals.portions();
            match extend() {
                Err(Error::NoSpace { .. }) if self.removals.wait_for_more_than(portions) => {}
                done => return done,
            }
        }
    }

    /// What came of extending a file.
    fn extended(&self, done: &Result<()>) {
        let Some(tell) = self.tell.get() else {
            return;
        };
        match done {
            Ok(()) => self.space.is_over(tell, "there is space again"),
            Err(Error::NoSpace { what }) => self.space.refused(tell, || {
                format!(
                    "no space left: {what}; statements that need room are refused until there is some, nothing has to be restarted then"
                )
            }),
            Err(_) => {}
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

    /// Takes a file into the list, and closes others if it is too long (FILE-3). The caller holds the file's
    /// mutex, if others know the file.
    fn enter(&self, file: &SpaceFile) {
        let mut open = self.open.lock();
        open.insert(file.number, file.me.clone());
        if let Some(surplus @ 1..) = open.len().checked_sub(self.limit) {
            // A few more than necessary, so that not every open has to look at all of them.
            self.close_idle(open, surplus + self.limit / 16, Some(file.number));
        }
    }

    /// Closes up to so many files that are idle, but not this one, those first that were used longest ago.
    /// Returns how many.
    fn close_idle(
        &self,
        mut open: MutexGuard<'_, List>,
        most: usize,
        except: Option<u64>,
    ) -> usize {
        let known = open.values().filter_map(Weak::upgrade);
        let mut known: Vec<_> = known.map(|f| (f.last_use.load(Relaxed), f)).collect();
        known.sort_unstable_by_key(|(last_use, _)| *last_use);
        let mut closed = Vec::new();
        for (_, file) in &known {
            if closed.len() == most {
                break;
            }
            if Some(file.number) != except
                && let Some(handle) = file.to_close()
            {
                open.remove(&file.number);
                closed.push(handle);
            }
        }
        // Also the files themselves go after that: the last of its owners takes a file off the list.
        drop(open);
        closed.len()
    }

    fn leave(&self, number: u64) {
        self.open.lock().remove(&number);
    }
}

struct FileState {
    /// `None` while it is closed.
    handle: Option<Arc<dyn DiskFile>>,
    /// Relative to the data directory.
    path: String,
    /// Somebody wrote since the last sync began.
    owes_sync: bool,
    /// This process has synced it, so that nothing is left of what an earlier one has written.
    was_synced: bool,
    /// Nobody will open it again.
    is_given_up: bool,
}

/// Keeps others off a file that nobody needs any more.
#[must_use]
pub struct GivenUp<'a> {
    _state: MutexGuard<'a, FileState>,
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
    state: Mutex<FileState>,
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
            state: Mutex::new(FileState {
                handle: Some(handle),
                path: path.into(),
                owes_sync: false,
                was_synced: false,
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

    /// The file, which stays open as long as the caller has it; `None` if it is given up.
    pub fn if_there(&self) -> Result<Option<Arc<dyn DiskFile>>> {
        self.handle_if_there(&mut self.state.lock())
    }

    /// The same to write to: it owes a sync from now on (FILE-1).
    pub fn to_write(&self) -> Result<Option<Arc<dyn DiskFile>>> {
        let mut state = self.state.lock();
        let handle = self.handle_if_there(&mut state)?;
        state.owes_sync |= handle.is_some();
        Ok(handle)
    }

    fn handle_if_there(&self, state: &mut FileState) -> Result<Option<Arc<dyn DiskFile>>> {
        match state.is_given_up {
            true => Ok(None),
            false => self.handle(state).map(Some),
        }
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
        let handle = self.to_sync()?;
        let done = handle.as_ref().map_or(Ok(()), |handle| handle.sync());
        if done.is_err() {
            self.is_not_synced();
        }
        done
    }

    /// The file that the caller is going to sync, and keeps open until that is done: a thread that writes
    /// from now on owes another one. `None`: it is closed and owes nothing (FILE-1), or it is given up.
    pub fn to_sync(&self) -> Result<Option<Arc<dyn DiskFile>>> {
        let mut state = self.state.lock();
        let handle = match state.handle {
            None if state.was_synced => None,
            _ => self.handle_if_there(&mut state)?,
        };
        state.was_synced |= handle.is_some();
        state.owes_sync &= handle.is_none();
        Ok(handle)
    }

    /// Nothing came of the sync that `to_sync` was called for.
    pub fn is_not_synced(&self) {
        let mut state = self.state.lock();
        (state.owes_sync, state.was_synced) = (true, false);
    }

    /// Extends the file. That need not be synced: recovery extends it again if it has to.
    pub fn allocate(&self, new_len: u64) -> Result<()> {
        let handle = self.handle(&mut self.state.lock())?;
        let done = self.files.with_room(|| handle.allocate(new_len));
        self.files.extended(&done);
        done
    }

    /// Sees to it that what is written there later has its space on the disk.
    pub fn reserve(&self, offset: u64, len: u64) -> Result<()> {
        let Some(handle) = self.if_there()? else {
            return Ok(());
        };
        let done = handle.reserve(offset, len);
        // Where space is there already, that says nothing about the disk.
        if done.is_err() {
            self.files.extended(&done);
        }
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

    /// Has `remove`, which is handed the path, take the file away, and never opens it again (FILE-2). Whoever
    /// reads or writes waits as long as the caller keeps the answer (SP-8). If `remove` fails nothing has
    /// changed.
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
    fn handle(&self, state: &mut FileState) -> Result<Arc<dyn DiskFile>> {
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

    /// FILE-1. The handle, if it can be closed now.
    fn to_close(&self) -> Option<Arc<dyn DiskFile>> {
        let mut state = self.state.try_lock()?;
        // Others get hold of it only under this mutex: a thread that has it already is counted.
        let is_idle = state.handle.as_ref().map(Arc::strong_count) == Some(1);
        match is_idle && !state.owes_sync {
            true => state.handle.take(),
            false => None,
        }
    }
}

impl Drop for SpaceFile {
    fn drop(&mut self) {
        if self.is_counted && self.state.get_mut().handle.is_some() {
            self.files.leave(self.number);
        }
    }
}
