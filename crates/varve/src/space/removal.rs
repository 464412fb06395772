//! Large files that are removed give their space back in portions, in the background. A file system that
//! removes a file of 100 GB is busy with it for half a minute, in one piece, and who waits for a sync of
//! another file waits for that.
//!
//! - **SP-11** Removing a file takes the same time whatever its size is. When [`Spaces::drop_space`] and
//!   [`Spaces::replace`] return, the directory that it was in has nothing of it left.
//! - **SP-12** No file is cut that has another name, which an administrator may have given it (a hard link),
//!   or that a thread still has open: that may be writing late (SP-8), or reading ahead.
//!
//! What is no larger than a portion ([`Disk::portion_bytes`]) is removed at once. Of another file goes first
//! what others could see of it:
//!
//! - A table's file is moved to the data directory, durably, where it is called `NUMBER.vdt-gone`: its
//!   schema's directory can be removed, and a crash, or the end of the database, leaves the rest to the next
//!   start, which goes by that name alone. It is a tablespace like others until it is moved. Whether it goes
//!   is decided before (DDL-3); the record of that is in the redo until the move is durable.
//! - What can't be moved there loses its name, and only this process knows it then: a file at the end of a
//!   link, or of a schema whose directory is on another file system. The system lets go of it when the
//!   process ends, in one piece, and so does the end of the database. The same is done with tablespaces that
//!   no definition names, of undo, the history store, temporary tables.
//!
//! Then the tablespace is forgotten, and a thread cuts one portion after the other off the end of the file.
//! It rests between two for three times as long as one took, so that others get their turn, processors
//! included; not while somebody waits for room. It is there as long as there is such a file. None of the
//! other threads can do it: they would keep pages, purge or commits waiting.
//!
//! **On a full disk** there is less room after a removal than there will be. Whoever extends a file tries
//! again whenever a portion has come back ([`OpenFiles::with_room`]), until there is none to come.
//!
//! A file that can't be cut or removed is told of, and left to the next start.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

#[cfg(doc)]
use super::file::OpenFiles;
use super::file::Tell;
use super::{Space, SpaceKind, Spaces};
use crate::base::{Error, PageNo, Result, SpaceId, threads};
use crate::io::{Disk, DiskFile, OpenMode};

/// Extension of a file of which nothing is needed any more.
const GONE_EXTENSION: &str = "vdt-gone";

/// Between two portions: so many times what one took, but no less.
const RESTS: u32 = 3;
const LEAST_REST: Duration = Duration::from_millis(1);
/// How long somebody waits for a portion: one that threads still have may not come soon.
const PATIENCE: Duration = Duration::from_secs(1);
/// Files without a name are open. Of more than so many each goes in one piece.
const MOST_OPEN: usize = 64;

fn gone_path(id: SpaceId) -> String {
    format!("{id}.{GONE_EXTENSION}")
}

/// A large file that goes. Nobody opens it any more.
pub(super) enum Going {
    /// The name that it got, and the file of those who may still have it open.
    Named(PathBuf, Option<Weak<dyn DiskFile>>),
    Nameless(Arc<dyn DiskFile>),
}

/// What remains of it.
enum Rest {
    Nothing,
    More(Going),
    /// SP-12
    InUse(Going),
}

impl Going {
    /// Cuts a portion off its end, or removes it if that is all.
    fn step(self, disk: &dyn Disk) -> Result<Rest> {
        let (names, users) = match &self {
            Going::Named(_, users) => (1, users.as_ref().map_or(0, Weak::strong_count)),
            Going::Nameless(file) => (0, Arc::strong_count(file) - 1),
        };
        let file = match &self {
            Going::Named(path, _) => match disk.open(path, OpenMode::Existing) {
                Err(e) if is_not_found(&e) => return Ok(Rest::Nothing),
                file => file?,
            },
            Going::Nameless(file) => file.clone(),
        };
        let (len, portion) = (file.len()?, disk.portion_bytes());
        if len <= portion || file.names()? > names {
            // What is removed is closed before, for those who measure files.
            drop(file);
            if let Going::Named(path, _) = &self {
                disk.remove(path)?;
            }
            return Ok(Rest::Nothing);
        }
        if users > 0 {
            return Ok(Rest::InUse(self));
        }
        file.set_len(len - portion)?;
        Ok(Rest::More(self))
    }
}

fn is_not_found(e: &Error) -> bool {
    matches!(e, Error::Io { source, .. } if source.kind() == ErrorKind::NotFound)
}

/// The files that go, and the thread.
pub(super) struct Removals {
    shared: Arc<Shared>,
}

struct Shared {
    disk: Arc<dyn Disk>,
    tell: Arc<OnceLock<Tell>>,
    state: Mutex<State>,
    /// A portion has come back, somebody waits for one, or all is over.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    files: VecDeque<Going>,
    /// Portions that came back, ever.
    portions: u64,
    /// Threads that wait for one.
    waiting: u32,
    /// One that has ended is joined by whoever starts the next, or by the end.
    thread: Option<JoinHandle<()>>,
    is_running: bool,
    is_ended: bool,
}

impl Removals {
    pub fn new(disk: Arc<dyn Disk>, tell: Arc<OnceLock<Tell>>) -> Removals {
        Removals {
            shared: Arc::new(Shared {
                disk,
                tell,
                state: Mutex::default(),
                changed: Condvar::new(),
            }),
        }
    }

    fn add(&self, going: Going) {
        let mut state = self.shared.state.lock();
        let is_open = |going: &Going| matches!(going, Going::Nameless(_));
        let open = state.files.iter().filter(|&going| is_open(going)).count();
        if state.is_ended || is_open(&going) && open >= MOST_OPEN {
            drop(state);
            // One with a name stays for the next start.
            drop(going);
            return;
        }
        state.files.push_back(going);
        if state.is_running {
            return;
        }
        let shared = self.shared.clone();
        let before = match threads::spawn("varve-removal", move || shared.run()) {
            Ok(thread) => {
                state.is_running = true;
                state.thread.replace(thread)
            }
            Err(_) => {
                // As at the end of the database.
                let files = std::mem::take(&mut state.files);
                drop(state);
                drop(files);
                return;
            }
        };
        drop(state);
        // It has left its loop.
        before.map(JoinHandle::join);
    }

    /// How many portions have come back.
    pub fn portions(&self) -> u64 {
        self.shared.state.lock().portions
    }

    /// Waits for one more portion than so many. False if none comes.
    pub fn wait_for_more_than(&self, portions: u64) -> bool {
        let until = Instant::now() + PATIENCE;
        let mut state = self.shared.state.lock();
        state.waiting += 1;
        self.shared.changed.notify_all();
        while state.portions == portions
            && state.is_running
            && !(self.shared.changed.wait_until(&mut state, until)).timed_out()
        {}
        state.waiting -= 1;
        state.portions != portions
    }

    /// Leaves all files to the next start, and lets go of those that have no name. The thread has ended then.
    pub fn end(&self) {
        let mut state = self.shared.state.lock();
        state.is_ended = true;
        let (files, thread) = (std::mem::take(&mut state.files), state.thread.take());
        drop(state);
        self.shared.changed.notify_all();
        drop(files);
        thread.map(JoinHandle::join);
    }
}

impl Drop for Removals {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    /// The thread's body.
    fn run(&self) {
        let mut state = self.state.lock();
        while !state.is_ended
            && let Some(going) = state.files.pop_front()
        {
            drop(state);
            let begun = Instant::now();
            let rest = going.step(&*self.disk);
            let took = begun.elapsed();
            let rest = rest.unwrap_or_else(|e| {
                self.tell_of(&e);
                Rest::Nothing
            });
            state = self.state.lock();
            match rest {
                Rest::Nothing => state.portions += 1,
                Rest::More(going) => {
                    state.portions += 1;
                    state.files.push_front(going);
                }
                // Another one may be free.
                Rest::InUse(going) => state.files.push_back(going),
            }
            self.changed.notify_all();
            self.rest(&mut state, took);
        }
        // Put back while the end took the others.
        let files = std::mem::take(&mut state.files);
        state.is_running = false;
        drop(state);
        self.changed.notify_all();
        drop(files);
    }

    fn rest(&self, state: &mut MutexGuard<'_, State>, took: Duration) {
        let now = Instant::now();
        loop {
            let rest = match state.waiting {
                0 => (RESTS * took).max(LEAST_REST),
                _ => LEAST_REST,
            };
            if state.is_ended || self.changed.wait_until(state, now + rest).timed_out() {
                return;
            }
        }
    }

    fn tell_of(&self, e: &Error) {
        if let Some(tell) = self.tell.get() {
            tell(&format!(
                "what is left of a table's file that was removed takes up space until the next start: {e}"
            ));
        }
    }
}

impl Spaces {
    /// Moves a large table's file out of its directory. `None`: it is to be removed. An error: that it has
    /// moved is not durable.
    pub(super) fn move_away(&self, space: &Space) -> Option<Result<Going>> {
        if space.kind() != SpaceKind::Table || space.target().is_some() || !self.is_large(space) {
            return None;
        }
        let users = space.file.to_read().ok()?;
        let moved = self.move_file(space, &gone_path(space.id())).ok()?;
        let going = Going::Named(moved[1].clone(), Some(Arc::downgrade(&users)));
        Some(self.sync_moved(&moved).map(|()| going))
    }

    /// A large file that is about to lose its name. `None`: it can go in one piece.
    pub(super) fn hold_nameless(&self, space: &Space) -> Option<Going> {
        let file = self.is_large(space).then(|| space.file.to_read().ok())?;
        file.map(Going::Nameless)
    }

    /// The same of a file that is no tablespace.
    pub(super) fn hold_unopened(&self, full: &Path) -> Option<Going> {
        let file = self.disk.open(full, OpenMode::Existing).ok()?;
        let is_large = file.len().ok()? > self.disk.portion_bytes();
        is_large.then_some(Going::Nameless(file))
    }

    fn is_large(&self, space: &Space) -> bool {
        space.offset(PageNo(space.size_pages())) > self.disk.portion_bytes()
    }

    /// The file gives its space back by and by (SP-11).
    pub(super) fn let_go(&self, going: Option<Going>) {
        if let Some(going) = going {
            self.files().removals.add(going);
        }
    }

    /// Goes on with what an earlier process has left (SP-11).
    pub fn go_on_with_removals(&self) -> Result<()> {
        for entry in self.disk.list(&self.dir)? {
            let extension = Path::new(&entry.name).extension();
            if !entry.is_dir && extension.is_some_and(|e| e == GONE_EXTENSION) {
                self.let_go(Some(Going::Named(self.dir.join(&entry.name), None)));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use super::*;
    use crate::io::RealDisk;

    fn large() -> u64 {
        5 * RealDisk.portion_bytes() + 1
    }

    /// A sparse file that goes, with its name or without; the same opened by a user; and through a handle by
    /// which one sees what becomes of it.
    fn going(path: &Path, named: bool) -> (Going, Arc<dyn DiskFile>, File) {
        let file = RealDisk.open(path, OpenMode::CreateNew).unwrap();
        file.set_len(large()).unwrap();
        let seen = File::open(path).unwrap();
        let going = match named {
            true => Going::Named(path.into(), Some(Arc::downgrade(&file))),
            false => {
                RealDisk.remove(path).unwrap();
                Going::Nameless(file.clone())
            }
        };
        (going, file, seen)
    }

    fn len(file: &File) -> u64 {
        file.metadata().unwrap().len()
    }

    /// SP-11
    #[test]
    fn a_portion_at_a_time_goes_and_the_last_with_the_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t");
        for named in [true, false] {
            let (mut going, user, seen) = going(&path, named);
            drop(user);
            for portions in 1..=5 {
                let Rest::More(rest) = going.step(&RealDisk).unwrap() else {
                    panic!("{portions} portions, {} bytes", len(&seen));
                };
                assert_eq!(len(&seen), large() - portions * RealDisk.portion_bytes());
                going = rest;
            }
            assert!(matches!(going.step(&RealDisk).unwrap(), Rest::Nothing));
            assert!(!path.exists());
        }
        // Somebody else has removed it.
        let rest = Going::Named(path, None).step(&RealDisk).unwrap();
        assert!(matches!(rest, Rest::Nothing));
    }

    /// SP-12
    #[test]
    fn a_file_that_is_in_use_or_has_another_name_is_not_cut() {
        let dir = tempfile::tempdir().unwrap();
        let [path, other] = ["t", "other"].map(|name| dir.path().join(name));
        for named in [true, false] {
            let (going, user, seen) = going(&path, named);
            let Rest::InUse(going) = going.step(&RealDisk).unwrap() else {
                panic!("it is in use");
            };
            assert_eq!(len(&seen), large());
            drop(user);
            assert!(matches!(going.step(&RealDisk).unwrap(), Rest::More(_)));
            let _ = fs::remove_file(&path);
        }
        let (going, user, seen) = going(&path, true);
        drop(user);
        fs::hard_link(&path, &other).unwrap();
        assert!(matches!(going.step(&RealDisk).unwrap(), Rest::Nothing));
        assert!(!path.exists());
        assert_eq!((other.exists(), len(&seen)), (true, large()));
        let going = Going::Nameless(RealDisk.open(&other, OpenMode::Existing).unwrap());
        assert!(matches!(going.step(&RealDisk).unwrap(), Rest::Nothing));
        assert_eq!((other.exists(), len(&seen)), (true, large()));
    }
}
