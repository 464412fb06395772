//! [`Overlay`]: a disk whose changes stay in memory, over another one that is only read.
//!
//! A database on it sees what it wrote; the disk below never changes. So a database that was not closed can
//! be recovered to be looked at, and looked at again.
//!
//! - **OV-1** The disk below is read, listed and locked, nothing else: its files are opened
//!   [`OpenMode::ReadOnly`]. Its links are read, and followed here: what they lead to may have changed here.
//! - **OV-2** Nothing is durable: `sync` does nothing. It ends with the process.
//!
//! Memory: blocks of 4 KiB that were written, and a little for each file that was opened. Reserved space
//! takes none. A handle below is open as long as one of the overlay's is.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};

use super::{DirEntry, DirLock, Disk, DiskFile, LOCK_FILE, OpenMode};
use crate::base::{Error, Result};

const BLOCK: u64 = 4096;

/// More links one after the other lead in a circle.
const MOST_LINKS: usize = 40;

/// A disk over another one.
pub struct Overlay {
    below: Arc<dyn Disk>,
    /// Names that were used or changed. All others are as they are below.
    names: Mutex<BTreeMap<PathBuf, Name>>,
    /// `Overlay::locking` has made it.
    locks_below: bool,
}

#[derive(Clone)]
enum Name {
    Gone,
    Dir,
    File(Arc<Layer>),
    /// A symbolic link, and where it leads.
    Link(PathBuf),
}

/// The bytes that were written to a file, and the parts of the one below that still show.
struct Layer {
    /// Where the file was below; `None` if it was made here.
    origin: Option<PathBuf>,
    content: RwLock<Content>,
}

#[derive(Default)]
struct Content {
    len: u64,
    /// Bytes of the file below that are to be seen where no block is.
    below_len: u64,
    blocks: HashMap<u64, Box<[u8; BLOCK as usize]>>,
}

fn refuse<T>(op: &'static str, path: &Path, kind: io::ErrorKind) -> Result<T> {
    Err(Error::io(op, path, kind.into()))
}

impl Overlay {
    pub fn new(below: Arc<dyn Disk>) -> Overlay {
        Overlay {
            below,
            names: Mutex::default(),
            locks_below: false,
        }
    }

    /// As `new`; who locks a directory here keeps it from being changed where it lies.
    pub fn locking(below: Arc<dyn Disk>) -> Overlay {
        Overlay {
            locks_below: true,
            ..Overlay::new(below)
        }
    }

    /// Takes the directory below, so that nobody changes it meanwhile. One without a lock file has never been
    /// opened where it lies, and is not marked now (OV-1).
    pub fn lock_below(&self, path: &Path) -> Result<DirLock> {
        match self.below.exists(&path.join(LOCK_FILE))? {
            true => self.below.lock_dir(path),
            false => Ok(Box::new(())),
        }
    }

    /// The path of the file that is opened under a path (IO-9).
    fn followed(&self, path: &Path) -> Result<PathBuf> {
        let mut at = path.to_path_buf();
        for _ in 0..MOST_LINKS {
            match self.read_link(&at)? {
                Some(target) => at = at.parent().unwrap_or(Path::new("")).join(target),
                None => return Ok(at),
            }
        }
        Err(Error::io("follow", path, rustix::io::Errno::LOOP.into()))
    }

    /// The file's layer, which is made if the file is there below. Links are not followed.
    fn layer(&self, op: &'static str, path: &Path) -> Result<Arc<Layer>> {
        let mut names = self.names.lock();
        match names.get(path) {
            Some(Name::File(layer)) => return Ok(layer.clone()),
            Some(Name::Dir) => return refuse(op, path, io::ErrorKind::IsADirectory),
            Some(Name::Link(_)) => return refuse(op, path, io::ErrorKind::InvalidInput),
            Some(Name::Gone) => return refuse(op, path, io::ErrorKind::NotFound),
            None => {}
        }
        let len = self.below.open(path, OpenMode::ReadOnly)?.len()?;
        let layer = Arc::new(Layer {
            origin: Some(path.into()),
            content: RwLock::new(Content {
                len,
                below_len: len,
                blocks: HashMap::new(),
            }),
        });
        names.insert(path.into(), Name::File(layer.clone()));
        Ok(layer)
    }

    fn handle(&self, layer: Arc<Layer>, path: &Path) -> Result<Arc<dyn DiskFile>> {
        let below = match &layer.origin {
            Some(origin) => Some(self.below.open(origin, OpenMode::ReadOnly)?),
            None => None,
        };
        Ok(Arc::new(File {
            layer,
            below,
            path: path.into(),
        }))
    }
}

impl Disk for Overlay {
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn DiskFile>> {
        if matches!(mode, OpenMode::Existing | OpenMode::ReadOnly) {
            let layer = self.layer("open", &self.followed(path)?)?;
            return self.handle(layer, path);
        }
        if self.exists(path)? {
            return refuse("create", path, io::ErrorKind::AlreadyExists);
        }
        let layer = Arc::new(Layer {
            origin: None,
            content: RwLock::default(),
        });
        let name = Name::File(layer.clone());
        self.names.lock().insert(path.into(), name);
        self.handle(layer, path)
    }

    fn open_direct(&self, path: &Path) -> Result<Arc<dyn DiskFile>> {
        self.open(path, OpenMode::Existing)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        if self.read_link(path)?.is_none() {
            self.layer("remove", path)?;
        }
        self.names.lock().insert(path.into(), Name::Gone);
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let moved = match self.read_link(from)? {
            Some(target) => Name::Link(target),
            None => Name::File(self.layer("rename", from)?),
        };
        let mut names = self.names.lock();
        names.insert(from.into(), Name::Gone);
        names.insert(to.into(), moved);
        Ok(())
    }

    fn link(&self, target: &Path, path: &Path) -> Result<()> {
        if self.exists(path)? {
            return refuse("link", path, io::ErrorKind::AlreadyExists);
        }
        let name = Name::Link(target.into());
        self.names.lock().insert(path.into(), name);
        Ok(())
    }

    fn read_link(&self, path: &Path) -> Result<Option<PathBuf>> {
        match self.names.lock().get(path) {
            Some(Name::Link(target)) => Ok(Some(target.clone())),
            Some(_) => Ok(None),
            None => self.below.read_link(path),
        }
    }

    fn create_dir_all(&self, path: &Path) -> Result<()> {
        for dir in path.ancestors().filter(|d| !d.as_os_str().is_empty()) {
            if !self.exists(dir)? {
                self.names.lock().insert(dir.into(), Name::Dir);
            }
        }
        Ok(())
    }

    fn remove_dir(&self, path: &Path) -> Result<()> {
        if !self.list(path)?.is_empty() {
            return refuse("remove directory", path, io::ErrorKind::DirectoryNotEmpty);
        }
        self.names.lock().insert(path.into(), Name::Gone);
        Ok(())
    }

    fn list(&self, path: &Path) -> Result<Vec<DirEntry>> {
        let names = self.names.lock();
        let below = match names.get(path) {
            Some(Name::Gone) => return refuse("list", path, io::ErrorKind::NotFound),
            Some(Name::Dir) => Vec::new(),
            _ => self.below.list(path)?,
        };
        let mut entries: BTreeMap<String, DirEntry> =
            below.into_iter().map(|e| (e.name.clone(), e)).collect();
        for (own, name) in names.iter().filter(|(own, _)| own.parent() == Some(path)) {
            let Some(file_name) = own.file_name().and_then(|n| n.to_str()) else {
                continue;
            };
            let len = match name {
                Name::Gone => {
                    entries.remove(file_name);
                    continue;
                }
                Name::Dir => 0,
                Name::Link(target) => target.as_os_str().len() as u64,
                Name::File(layer) => layer.content.read().len,
            };
            let entry = DirEntry {
                name: file_name.into(),
                is_dir: matches!(name, Name::Dir),
                len,
            };
            entries.insert(file_name.into(), entry);
        }
        Ok(entries.into_values().collect())
    }

    fn sync_dir(&self, _path: &Path) -> Result<()> {
        Ok(())
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        match self.names.lock().get(path) {
            Some(Name::Gone) => Ok(false),
            Some(_) => Ok(true),
            None => self.below.exists(path),
        }
    }

    /// Nothing is given back.
    fn portion_bytes(&self) -> u64 {
        u64::MAX
    }

    /// Changes here concern no other process; what is read may.
    fn lock_dir(&self, path: &Path) -> Result<DirLock> {
        match self.locks_below {
            true => self.lock_below(path),
            false => Ok(Box::new(())),
        }
    }
}

struct File {
    layer: Arc<Layer>,
    below: Option<Arc<dyn DiskFile>>,
    path: PathBuf,
}

impl File {
    /// Fills `buf` with what is to be seen of the file below, and zeros.
    fn read_below(&self, below_len: u64, buf: &mut [u8], offset: u64) -> Result<()> {
        let there = below_len.saturating_sub(offset).min(buf.len() as u64) as usize;
        let (seen, rest) = buf.split_at_mut(there);
        rest.fill(0);
        match &self.below {
            Some(below) if !seen.is_empty() => below.read_at(seen, offset),
            _ => Ok(()),
        }
    }
}

/// The pieces of `[offset, offset + len)` by block: its number, where in it the piece begins, where in the
/// range, how long.
fn pieces(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, usize, usize)> {
    let end = offset + len as u64;
    let blocks = offset / BLOCK..end.div_ceil(BLOCK);
    blocks.map(move |block| {
        let (from, to) = (offset.max(block * BLOCK), end.min((block + 1) * BLOCK));
        let (in_block, in_range) = ((from - block * BLOCK) as usize, (from - offset) as usize);
        (block, in_block, in_range, (to - from) as usize)
    })
}

impl DiskFile for File {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let content = self.layer.content.read();
        let end = offset.checked_add(buf.len() as u64);
        if end.is_none_or(|end| end > content.len) {
            return refuse("read", &self.path, io::ErrorKind::UnexpectedEof);
        }
        self.read_below(content.below_len, buf, offset)?;
        if content.blocks.is_empty() {
            return Ok(());
        }
        for (block, in_block, in_range, len) in pieces(offset, buf.len()) {
            if let Some(bytes) = content.blocks.get(&block) {
                buf[in_range..in_range + len].copy_from_slice(&bytes[in_block..in_block + len]);
            }
        }
        Ok(())
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        let content = &mut *self.layer.content.write();
        for (block, in_block, in_range, len) in pieces(offset, buf.len()) {
            if !content.blocks.contains_key(&block) {
                let mut bytes = Box::new([0; BLOCK as usize]);
                self.read_below(content.below_len, &mut bytes[..], block * BLOCK)?;
                content.blocks.insert(block, bytes);
            }
            let bytes = content.blocks.get_mut(&block).expect("just made");
            bytes[in_block..in_block + len].copy_from_slice(&buf[in_range..in_range + len]);
        }
        content.len = content.len.max(offset + buf.len() as u64);
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn len(&self) -> Result<u64> {
        Ok(self.layer.content.read().len)
    }

    fn allocate(&self, new_len: u64) -> Result<()> {
        let mut content = self.layer.content.write();
        content.len = content.len.max(new_len);
        Ok(())
    }

    /// A range that was never written reads as zero already.
    fn fill(&self, _from: u64) -> Result<()> {
        Ok(())
    }

    fn set_len(&self, new_len: u64) -> Result<()> {
        let content = &mut *self.layer.content.write();
        content.below_len = content.below_len.min(new_len);
        content.len = new_len;
        content.blocks.retain(|block, _| block * BLOCK < new_len);
        if let Some(bytes) = content.blocks.get_mut(&(new_len / BLOCK)) {
            bytes[(new_len % BLOCK) as usize..].fill(0);
        }
        Ok(())
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::RealDisk;

    fn bytes(file: &dyn DiskFile) -> Vec<u8> {
        let mut out = vec![1; file.len().unwrap() as usize];
        file.read_at(&mut out, 0).unwrap();
        out
    }

    fn names(disk: &dyn Disk, dir: &Path) -> Vec<String> {
        let entries = disk.list(dir).unwrap();
        entries.into_iter().map(|e| e.name).collect()
    }

    /// IO-9 and OV-1.
    #[test]
    fn links_are_followed_above() {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (at, out) = (
            |name: &str| dir.path().join(name),
            other.path().join("file"),
        );
        std::fs::write(&out, b"below").unwrap();
        RealDisk.link(&out, &at("a")).unwrap();
        let disk = Overlay::new(Arc::new(RealDisk));
        let file = disk.open(&at("a"), OpenMode::Existing).unwrap();
        file.write_at(b"above", 0).unwrap();
        assert_eq!(
            bytes(&*disk.open(&out, OpenMode::Existing).unwrap()),
            b"above"
        );
        disk.rename(&at("a"), &at("b")).unwrap();
        assert_eq!(disk.read_link(&at("b")).unwrap(), Some(out.clone()));
        assert!(disk.read_link(&at("a")).unwrap().is_none() && !disk.exists(&at("a")).unwrap());
        assert_eq!(
            bytes(&*disk.open(&at("b"), OpenMode::Existing).unwrap()),
            b"above"
        );
        disk.remove(&out).unwrap();
        assert!(disk.exists(&at("b")).unwrap() && disk.open(&at("b"), OpenMode::Existing).is_err());
        disk.remove(&at("b")).unwrap();
        disk.link(&at("c"), &at("b")).unwrap();
        disk.link(&at("b"), &at("c")).unwrap();
        assert!(disk.link(&out, &at("c")).is_err());
        assert_eq!(names(&disk, dir.path()), ["b", "c"]);
        disk.open(&at("b"), OpenMode::Existing)
            .err()
            .expect("a circle");
        assert_eq!(names(&RealDisk, dir.path()), ["a"]);
        assert_eq!(std::fs::read(&out).unwrap(), b"below");
    }

    /// OV-1 and OV-2: whatever is done above, the disk below stays as it was.
    #[test]
    fn changes_are_seen_above_and_not_below() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let old: Vec<u8> = (0..10_000u32).map(|n| n as u8).collect();
        std::fs::write(at("a"), &old).unwrap();
        std::fs::write(at("b"), b"b").unwrap();
        let disk = Overlay::new(Arc::new(RealDisk));
        let file = disk.open(&at("a"), OpenMode::Existing).unwrap();
        file.write_at(b"new", 4095).unwrap();
        let mut want = old.clone();
        want[4095..4098].copy_from_slice(b"new");
        assert_eq!(bytes(&*file), want);
        file.set_len(4097).unwrap();
        file.allocate(9000).unwrap();
        file.sync().unwrap();
        want.truncate(4097);
        want.resize(9000, 0);
        assert_eq!(bytes(&*file), want);
        assert!(file.read_at(&mut [0; 2], 8999).is_err());
        disk.rename(&at("a"), &at("b")).unwrap();
        disk.create_dir_all(&at("x/y")).unwrap();
        disk.open(&at("x/c"), OpenMode::CreateNew).unwrap();
        let again = disk.open(&at("b"), OpenMode::Existing).unwrap();
        assert_eq!(bytes(&*again), want);
        assert_eq!(names(&disk, dir.path()), ["b", "x"]);
        assert_eq!(names(&disk, &at("x")), ["c", "y"]);
        assert!(disk.open(&at("a"), OpenMode::Existing).is_err());
        assert!(disk.open(&at("b"), OpenMode::CreateNew).is_err());
        disk.remove(&at("b")).unwrap();
        assert!(!disk.exists(&at("b")).unwrap());
        disk.sync_dir(dir.path()).unwrap();
        drop(disk.lock_below(dir.path()).unwrap());
        assert_eq!(names(&RealDisk, dir.path()), ["a", "b"]);
        assert_eq!(std::fs::read(at("a")).unwrap(), old);
        let lock = RealDisk.lock_dir(dir.path()).unwrap();
        let refused = disk.lock_below(dir.path()).err().unwrap();
        assert!(matches!(refused, Error::InUse { .. }), "{refused}");
        drop(lock);
    }
}
