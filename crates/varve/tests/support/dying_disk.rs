//! A disk that stops working in the middle, as it looks to a process that dies, or to one whose device fails.

use std::any::Any;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use varve::internals::io::{DirEntry, Disk, DiskFile, OpenMode, RealDisk};
use varve::{Error, Result};

/// A disk of a process that dies: after so many changing operations nothing works any more. What is done in
/// the background to files that go does not count: how much that is by the end of a statement is chance. Or
/// one of them fails, and the process lives.
#[derive(Clone)]
pub struct DyingDisk {
    left: Arc<AtomicI64>,
    /// What fails then is one operation.
    fails_once: Arc<AtomicBool>,
    reads_fail: Arc<AtomicBool>,
    full: Arc<Mutex<Option<&'static str>>>,
    before: Arc<Mutex<Option<Before>>>,
    portion_bytes: Arc<AtomicU64>,
}

type Before = Arc<dyn Fn(&str, &Path) + Send + Sync>;

#[allow(dead_code, reason = "each test uses its part")]
impl DyingDisk {
    pub fn new() -> DyingDisk {
        DyingDisk {
            left: Arc::new(AtomicI64::new(i64::MAX)),
            fails_once: Arc::default(),
            reads_fail: Arc::default(),
            full: Arc::default(),
            before: Arc::default(),
            portion_bytes: Arc::new(AtomicU64::new(RealDisk.portion_bytes())),
        }
    }

    /// Called with "read", "sync", "remove" or "rename", and the file's path, before that is done, which
    /// waits for it.
    pub fn before(&self, call: impl Fn(&str, &Path) + Send + Sync + 'static) {
        *self.before.lock().unwrap() = Some(Arc::new(call));
    }

    fn tell(&self, operation: &str, path: &Path) {
        let before = self.before.lock().unwrap().clone();
        if let Some(call) = before {
            call(operation, path);
        }
    }

    /// From now on there is no room for files whose path contains `part`: they can't become longer.
    pub fn fill_up_for(&self, part: &'static str) {
        *self.full.lock().unwrap() = Some(part);
    }

    pub fn make_room(&self) {
        *self.full.lock().unwrap() = None;
    }

    /// Files that are larger go in such portions.
    pub fn set_portion(&self, bytes: u64) {
        self.portion_bytes.store(bytes, Ordering::SeqCst);
    }

    pub fn live_for(&self, operations: i64) {
        self.left.store(operations, Ordering::SeqCst);
    }

    /// After so many changing operations one fails.
    pub fn fail_once_after(&self, operations: i64) {
        self.fails_once.store(true, Ordering::SeqCst);
        self.live_for(operations);
    }

    /// Whether it has.
    pub fn has_failed_once(&self) -> bool {
        !self.fails_once.load(Ordering::SeqCst)
    }

    /// Nothing can be read while this is set; writing goes on.
    pub fn fail_reads(&self, fail: bool) {
        self.reads_fail.store(fail, Ordering::SeqCst);
    }

    fn alive(&self, op: &'static str, path: &Path, changes: i64) -> Result<()> {
        if self.left.fetch_sub(changes, Ordering::SeqCst) >= changes.max(1) {
            return Ok(());
        }
        let why = match self.fails_once.load(Ordering::SeqCst) {
            true if changes == 0 => return Ok(()),
            true => {
                self.left.store(i64::MAX, Ordering::SeqCst);
                self.fails_once.store(false, Ordering::SeqCst);
                "the test lets it fail"
            }
            false => "the process is dead",
        };
        Err(Error::io(op, path, std::io::Error::other(why)))
    }
}

struct DyingFile {
    file: Arc<dyn DiskFile>,
    disk: DyingDisk,
}

impl Disk for DyingDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn DiskFile>> {
        let creates = matches!(mode, OpenMode::CreateNew | OpenMode::CreatePrivate);
        self.alive("open", path, i64::from(creates))?;
        let file = RealDisk.open(path, mode)?;
        let disk = self.clone();
        Ok(Arc::new(DyingFile { file, disk }))
    }
    fn open_direct(&self, path: &Path) -> Result<Arc<dyn DiskFile>> {
        self.alive("open", path, 0)?;
        let (file, disk) = (RealDisk.open_direct(path)?, self.clone());
        Ok(Arc::new(DyingFile { file, disk }))
    }
    fn remove(&self, path: &Path) -> Result<()> {
        self.tell("remove", path);
        self.alive("remove", path, i64::from(!goes(path)))?;
        RealDisk.remove(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.tell("rename", from);
        self.alive("rename", from, 1)?;
        RealDisk.rename(from, to)
    }
    fn link(&self, target: &Path, path: &Path) -> Result<()> {
        self.alive("link", path, 1)?;
        RealDisk.link(target, path)
    }
    fn read_link(&self, path: &Path) -> Result<Option<PathBuf>> {
        self.alive("read link", path, 0)?;
        RealDisk.read_link(path)
    }
    fn create_dir_all(&self, path: &Path) -> Result<()> {
        self.alive("create directory", path, 1)?;
        RealDisk.create_dir_all(path)
    }
    fn remove_dir(&self, path: &Path) -> Result<()> {
        self.alive("remove directory", path, 1)?;
        RealDisk.remove_dir(path)
    }
    fn list(&self, path: &Path) -> Result<Vec<DirEntry>> {
        self.alive("list", path, 0)?;
        RealDisk.list(path)
    }
    fn sync_dir(&self, path: &Path) -> Result<()> {
        self.alive("sync directory", path, 1)?;
        RealDisk.sync_dir(path)
    }
    fn exists(&self, path: &Path) -> Result<bool> {
        self.alive("look for", path, 0)?;
        RealDisk.exists(path)
    }
    fn portion_bytes(&self) -> u64 {
        self.portion_bytes.load(Ordering::SeqCst)
    }
    fn lock_dir(&self, path: &Path) -> Result<Box<dyn Any + Send + Sync>> {
        RealDisk.lock_dir(path)
    }
}

fn goes(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == "vdt-gone")
}

impl DyingFile {
    fn room_for(&self, op: &'static str, len: u64) -> Result<()> {
        let is_full = |part: &str| self.path().to_string_lossy().contains(part);
        let full = self.disk.full.lock().unwrap().is_some_and(is_full);
        if full && len > self.file.len()? {
            let full = std::io::ErrorKind::StorageFull;
            return Err(Error::io(op, self.path(), full.into()));
        }
        Ok(())
    }
}

impl DiskFile for DyingFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.disk.tell("read", self.path());
        if self.disk.reads_fail.load(Ordering::SeqCst) {
            let why = std::io::Error::other("the test lets reads fail");
            return Err(Error::io("read", self.path(), why));
        }
        self.disk.alive("read", self.path(), 0)?;
        self.file.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.disk.alive("write", self.path(), 1)?;
        self.room_for("write", offset + buf.len() as u64)?;
        self.file.write_at(buf, offset)
    }
    fn sync(&self) -> Result<()> {
        self.disk.tell("sync", self.path());
        self.disk.alive("sync", self.path(), 1)?;
        self.file.sync()
    }
    fn len(&self) -> Result<u64> {
        self.file.len()
    }
    fn allocate(&self, new_len: u64) -> Result<()> {
        self.disk.alive("allocate", self.path(), 1)?;
        self.room_for("extend", new_len)?;
        self.file.allocate(new_len)
    }
    fn reserve(&self, offset: u64, len: u64) -> Result<()> {
        self.disk.alive("reserve", self.path(), 1)?;
        self.file.reserve(offset, len)
    }
    fn punch(&self, offset: u64, len: u64) -> Result<bool> {
        self.disk.alive("punch", self.path(), 1)?;
        self.file.punch(offset, len)
    }
    fn fill(&self, from: u64) -> Result<()> {
        self.disk.alive("fill", self.path(), 1)?;
        self.file.fill(from)
    }
    fn set_len(&self, new_len: u64) -> Result<()> {
        let counts = !goes(self.path()) && self.names()? > 0;
        self.disk.alive("cut", self.path(), i64::from(counts))?;
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
