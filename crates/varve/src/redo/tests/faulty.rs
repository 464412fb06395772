//! A disk that fails when it is told to.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::{START, read, settings};
use crate::base::{Error, Lsn, Result};
use crate::io::{DirEntry, DirLock, Disk, DiskFile, OpenMode, RealDisk};
use crate::redo::{LogSettings, RedoLog};

/// A disk whose writes and syncs can be made to fail, and that counts syncs and remembers writes.
#[derive(Default)]
pub(super) struct Faulty {
    pub(super) fail_sync: AtomicBool,
    pub(super) fail_write: AtomicBool,
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
        let disk = Arc::new(FaultyDisk(self.clone()));
        let end = read(dir, checkpoint).unwrap().1;
        RedoLog::open_at(disk, dir, settings(), checkpoint, end).unwrap()
    }
}

struct FaultyDisk(Arc<Faulty>);

struct FaultyFile(Arc<Faulty>, Arc<dyn DiskFile>);

fn broken(flag: &AtomicBool, op: &'static str, path: &Path) -> Result<()> {
    if flag.load(Ordering::Relaxed) {
        return Err(Error::io(op, path, std::io::Error::other("broken disk")));
    }
    Ok(())
}

impl Disk for FaultyDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(FaultyFile(
            self.0.clone(),
            RealDisk.open(path, mode)?,
        )))
    }
    fn open_direct(&self, path: &Path) -> Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(FaultyFile(
            self.0.clone(),
            RealDisk.open_direct(path)?,
        )))
    }
    fn remove(&self, path: &Path) -> Result<()> {
        RealDisk.remove(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        RealDisk.rename(from, to)
    }
    fn create_dir_all(&self, path: &Path) -> Result<()> {
        RealDisk.create_dir_all(path)
    }
    fn remove_dir(&self, path: &Path) -> Result<()> {
        RealDisk.remove_dir(path)
    }
    fn list(&self, path: &Path) -> Result<Vec<DirEntry>> {
        RealDisk.list(path)
    }
    fn sync_dir(&self, path: &Path) -> Result<()> {
        RealDisk.sync_dir(path)
    }
    fn exists(&self, path: &Path) -> Result<bool> {
        RealDisk.exists(path)
    }
    fn lock_dir(&self, path: &Path) -> Result<DirLock> {
        RealDisk.lock_dir(path)
    }
}

impl DiskFile for FaultyFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.1.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        broken(&self.0.fail_write, "write", self.path())?;
        let written = (self.path().to_path_buf(), offset, buf.len());
        self.0.writes.lock().unwrap().push(written);
        self.1.write_at(buf, offset)
    }
    fn sync(&self) -> Result<()> {
        broken(&self.0.fail_sync, "sync", self.path())?;
        self.0.syncs.fetch_add(1, Ordering::Relaxed);
        self.1.sync()
    }
    fn len(&self) -> Result<u64> {
        self.1.len()
    }
    fn allocate(&self, new_len: u64) -> Result<()> {
        if let Some(left) = &mut *self.0.space.lock().unwrap() {
            if *left == 0 {
                let full = std::io::ErrorKind::StorageFull;
                return Err(Error::io("extend", self.path(), full.into()));
            }
            *left -= 1;
        }
        self.1.allocate(new_len)
    }
    fn fill(&self, from: u64) -> Result<()> {
        self.1.fill(from)
    }
    fn set_len(&self, new_len: u64) -> Result<()> {
        self.1.set_len(new_len)
    }
    fn path(&self) -> &Path {
        self.1.path()
    }
    fn is_direct(&self) -> bool {
        self.1.is_direct()
    }
}

pub(super) fn create_faulty(dir: &Path) -> (Arc<Faulty>, RedoLog) {
    create_faulty_with(dir, false)
}

pub(super) fn create_faulty_with(dir: &Path, buffered: bool) -> (Arc<Faulty>, RedoLog) {
    let faults = Arc::new(Faulty::default());
    let disk = Arc::new(FaultyDisk(faults.clone()));
    let settings = LogSettings {
        buffered,
        ..settings()
    };
    let log = RedoLog::create(disk, dir, settings, START).unwrap();
    (faults, log)
}
