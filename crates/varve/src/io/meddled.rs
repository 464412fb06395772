//! The operating system's disk with a test in between, which sees what is done, or keeps it from being done.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{DirEntry, DirLock, Disk, DiskFile, OpenMode, RealDisk};
use crate::base::Result;

/// What a test does before an operation. An error is the operation's, which is not done then.
pub(crate) trait Meddler: Send + Sync + 'static {
    fn before_open(&self, _path: &Path) -> Result<()> {
        Ok(())
    }
    fn before_write(&self, _path: &Path, _offset: u64, _len: usize) -> Result<()> {
        Ok(())
    }
    fn before_sync(&self, _path: &Path) -> Result<()> {
        Ok(())
    }
    fn before_allocate(&self, _path: &Path, _new_len: u64) -> Result<()> {
        Ok(())
    }
    fn before_sync_dir(&self) {}
    fn portion_bytes(&self) -> u64 {
        RealDisk.portion_bytes()
    }
    fn opened(&self) {}
    fn before_close(&self) {}
    /// The longest write that files promise to be atomic, though they are not.
    fn atomic_bytes(&self) -> usize {
        0
    }
}

pub(crate) struct MeddledDisk<M> {
    pub with: Arc<M>,
}

impl<M: Meddler> MeddledDisk<M> {
    pub fn new(with: Arc<M>) -> Arc<MeddledDisk<M>> {
        Arc::new(MeddledDisk { with })
    }
}

/// A file of such a disk.
pub(crate) fn meddled<M: Meddler>(file: Arc<dyn DiskFile>, with: &Arc<M>) -> Arc<dyn DiskFile> {
    with.opened();
    let with = with.clone();
    Arc::new(MeddledFile { file, with })
}

struct MeddledFile<M: Meddler> {
    file: Arc<dyn DiskFile>,
    with: Arc<M>,
}

impl<M: Meddler> Disk for MeddledDisk<M> {
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn DiskFile>> {
        self.with.before_open(path)?;
        Ok(meddled(RealDisk.open(path, mode)?, &self.with))
    }
    fn open_direct(&self, path: &Path) -> Result<Arc<dyn DiskFile>> {
        self.with.before_open(path)?;
        Ok(meddled(RealDisk.open_direct(path)?, &self.with))
    }
    fn remove(&self, path: &Path) -> Result<()> {
        RealDisk.remove(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        RealDisk.rename(from, to)
    }
    fn link(&self, target: &Path, path: &Path) -> Result<()> {
        RealDisk.link(target, path)
    }
    fn read_link(&self, path: &Path) -> Result<Option<PathBuf>> {
        RealDisk.read_link(path)
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
        self.with.before_sync_dir();
        RealDisk.sync_dir(path)
    }
    fn exists(&self, path: &Path) -> Result<bool> {
        RealDisk.exists(path)
    }
    fn portion_bytes(&self) -> u64 {
        self.with.portion_bytes()
    }
    fn lock_dir(&self, path: &Path) -> Result<DirLock> {
        RealDisk.lock_dir(path)
    }
}

/// It is not the system's: a queue carries out what is wanted of it by these calls.
impl<M: Meddler> DiskFile for MeddledFile<M> {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.file.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.with.before_write(self.path(), offset, buf.len())?;
        self.file.write_at(buf, offset)
    }
    fn writes_atomically(&self, bytes: usize) -> bool {
        bytes <= self.with.atomic_bytes()
    }
    fn write_atomic_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        assert!(self.writes_atomically(buf.len()), "IO-7");
        self.write_at(buf, offset)
    }
    fn sync(&self) -> Result<()> {
        self.with.before_sync(self.path())?;
        self.file.sync()
    }
    fn len(&self) -> Result<u64> {
        self.file.len()
    }
    fn allocate(&self, new_len: u64) -> Result<()> {
        self.with.before_allocate(self.path(), new_len)?;
        self.file.allocate(new_len)
    }
    fn fill(&self, from: u64) -> Result<()> {
        self.file.fill(from)
    }
    fn set_len(&self, new_len: u64) -> Result<()> {
        self.file.set_len(new_len)
    }
    fn path(&self) -> &Path {
        self.file.path()
    }
    fn names(&self) -> Result<u64> {
        self.file.names()
    }
    fn is_direct(&self) -> bool {
        self.file.is_direct()
    }
}

impl<M: Meddler> Drop for MeddledFile<M> {
    fn drop(&mut self) {
        self.with.before_close();
    }
}
