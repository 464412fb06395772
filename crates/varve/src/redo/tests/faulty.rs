//! A disk that fails when it is told to.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::{START, read, settings};
use crate::base::{Error, Lsn, Result};
use crate::io::IoQueue;
use crate::io::meddled::{MeddledDisk, Meddler};
use crate::redo::{LogSettings, RedoLog};

/// A disk whose writes and syncs can be made to fail, and that counts syncs and remembers writes.
#[derive(Default)]
pub(super) struct Faulty {
    pub(super) fail_sync: AtomicBool,
    pub(super) fail_write: AtomicBool,
    pub(super) too_many_open: AtomicBool,
    /// How many more files can be made; `None`: as many as one likes.
    space: Mutex<Option<u64>>,
    pub(super) syncs: AtomicU64,
    /// File, offset, length.
    pub(super) writes: Mutex<Vec<(PathBuf, u64, usize)>>,
}

impl Faulty {
    pub(super) fn space_for(&self, files: u64) {
        *self.space.lock().unwrap() = Some(files);
    }

    /// Opens a log again on this disk.
    pub(super) fn reopen(self: &Arc<Self>, dir: &Path, checkpoint: Lsn) -> RedoLog {
        let disk = MeddledDisk::new(self.clone());
        let end = read(dir, checkpoint).unwrap().1;
        let queue = Arc::new(IoQueue::one_by_one());
        RedoLog::open_at(disk, queue, dir, settings(), checkpoint, end).unwrap()
    }
}

fn broken(flag: &AtomicBool, op: &'static str, path: &Path) -> Result<()> {
    match flag.load(Ordering::Relaxed) {
        true => Err(Error::io(op, path, std::io::Error::other("broken disk"))),
        false => Ok(()),
    }
}

impl Meddler for Faulty {
    fn before_open(&self, path: &Path) -> Result<()> {
        if self.too_many_open.load(Ordering::Relaxed) {
            let why = std::io::Error::from_raw_os_error(libc::EMFILE);
            return Err(Error::io("open", path, why));
        }
        Ok(())
    }
    fn before_write(&self, path: &Path, offset: u64, len: usize) -> Result<()> {
        broken(&self.fail_write, "write", path)?;
        let written = (path.to_path_buf(), offset, len);
        self.writes.lock().unwrap().push(written);
        Ok(())
    }
    fn before_sync(&self, path: &Path) -> Result<()> {
        broken(&self.fail_sync, "sync", path)?;
        self.syncs.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
    fn before_allocate(&self, path: &Path, _: u64) -> Result<()> {
        if let Some(left) = &mut *self.space.lock().unwrap() {
            if *left == 0 {
                let full = std::io::ErrorKind::StorageFull;
                return Err(Error::io("extend", path, full.into()));
            }
            *left -= 1;
        }
        Ok(())
    }
}

pub(super) fn create_faulty(dir: &Path) -> (Arc<Faulty>, RedoLog) {
    create_faulty_with(dir, false)
}

pub(super) fn create_faulty_with(dir: &Path, buffered: bool) -> (Arc<Faulty>, RedoLog) {
    let faults = Arc::new(Faulty::default());
    let disk = MeddledDisk::new(faults.clone());
    let settings = LogSettings {
        buffered,
        ..settings()
    };
    let log = RedoLog::create(disk, dir, settings, START).unwrap();
    (faults, log)
}
