//! [`SimDisk`]: the traits of `varve::internals::io` on memory, with a journal of everything that changes.
//!
//! One mutex guards the whole disk; the order in which operations take it is the order of the journal.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fmt, io};

use parking_lot::Mutex;
use varve::internals::io::{
    DIRECT_BLOCK, DirEntry, DirLock, Disk, DiskFile, OpenMode, read_whole, write_whole,
};
use varve::{Error, Result};

use crate::SECTOR;
use crate::contents::Contents;
use crate::fault::{Failure, Fault, Lie, Operation};
use crate::image::{Image, Node};
use crate::journal::{FileId, Journal, Op};

/// More links one after the other lead in a circle.
const MOST_LINKS: usize = 40;

/// A disk in memory. Clones are the same disk.
#[derive(Clone)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
}

#[derive(Clone)]
enum Name {
    Dir,
    File(FileId),
    Link(PathBuf),
}

struct State {
    start: Image,
    names: BTreeMap<PathBuf, Name>,
    files: Vec<Contents>,
    ops: Vec<Op>,
    faults: Vec<Fault>,
    struck: u64,
    lies: Vec<Lie>,
    capacity: u64,
    /// The longest write that is not torn (FAULT-8); 0: none is promised.
    atomic_bytes: usize,
    locked: BTreeSet<PathBuf>,
    /// Blocks whose space was given back, and not reserved since (IO-10).
    holes: BTreeSet<(FileId, u64)>,
}

impl Default for SimDisk {
    fn default() -> SimDisk {
        SimDisk::new(Image::new())
    }
}

impl fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimDisk after {} operations", self.operations())
    }
}

impl SimDisk {
    /// A disk that holds `image`, all of it durable.
    pub fn new(image: Image) -> SimDisk {
        let (mut names, mut files) = (BTreeMap::new(), Vec::new());
        for (path, node) in &image.nodes {
            let name = match node {
                Node::Dir => Name::Dir,
                Node::Link(target) => Name::Link(target.clone()),
                Node::File(contents) => {
                    files.push(contents.clone());
                    Name::File(FileId(files.len() - 1))
                }
            };
            names.insert(path.clone(), name);
        }
        SimDisk {
            state: Arc::new(Mutex::new(State {
                start: image,
                names,
                files,
                ops: Vec::new(),
                faults: Vec::new(),
                struck: 0,
                lies: Vec::new(),
                capacity: u64::MAX,
                atomic_bytes: 0,
                locked: BTreeSet::new(),
                holes: BTreeSet::new(),
            })),
        }
    }

    /// Another disk with the same content, all of it durable.
    pub fn copy(&self) -> SimDisk {
        SimDisk::new(self.image())
    }

    /// What it shows now.
    pub fn image(&self) -> Image {
        let state = self.state.lock();
        let node = |name: &Name| match name {
            Name::Dir => Node::Dir,
            Name::Link(target) => Node::Link(target.clone()),
            Name::File(id) => Node::File(state.files[id.0].clone()),
        };
        let nodes = state.names.iter();
        let nodes = nodes.map(|(path, name)| (path.clone(), node(name)));
        Image {
            nodes: nodes.collect(),
        }
    }

    /// The names of all files, sorted.
    pub fn files(&self) -> Vec<PathBuf> {
        let state = self.state.lock();
        let is_file = |name: &Name| matches!(name, Name::File(_));
        let files = state.names.iter().filter(|(_, name)| is_file(name));
        files.map(|(path, _)| path.clone()).collect()
    }

    /// How many operations have changed the disk.
    pub fn operations(&self) -> usize {
        self.state.lock().ops.len()
    }

    /// Everything that happened so far.
    pub fn journal(&self) -> Journal {
        let state = self.state.lock();
        Journal {
            start: state.start.clone(),
            ops: state.ops.clone().into(),
        }
    }

    /// Lets operations fail from now on.
    pub fn inject(&self, fault: Fault) {
        self.state.lock().faults.push(fault);
    }

    /// How many operations have failed as they were told to.
    pub fn faults_struck(&self) -> u64 {
        self.state.lock().struck
    }

    /// From now on operations of this kind are reported as done but are not.
    pub fn lie(&self, lie: Lie) {
        self.state.lock().lies.push(lie);
    }

    /// Nothing fails any more.
    pub fn heal(&self) {
        let mut state = self.state.lock();
        state.faults.clear();
        state.capacity = u64::MAX;
    }

    /// Files can't grow beyond so many bytes together.
    pub fn set_capacity(&self, bytes: u64) {
        self.state.lock().capacity = bytes;
    }

    /// Promises that atomic writes of up to so many bytes, a power of two, are not torn (FAULT-8).
    pub fn promise_atomic_writes(&self, bytes: usize) {
        assert!(bytes.is_power_of_two());
        self.state.lock().atomic_bytes = bytes;
    }

    /// Bytes of all files.
    pub fn used(&self) -> u64 {
        self.state.lock().used()
    }

    fn file(&self, id: FileId, path: &Path, is_direct: bool) -> Arc<SimFile> {
        Arc::new(SimFile {
            disk: self.clone(),
            id,
            path: path.to_path_buf(),
            is_direct,
        })
    }
}

fn is_a_directory(path: &Path) -> Error {
    Error::io("open", path, io::ErrorKind::IsADirectory.into())
}

impl State {
    fn used(&self) -> u64 {
        let len = |name: &Name| match name {
            Name::Dir | Name::Link(_) => 0,
            Name::File(id) => self.files[id.0].len(),
        };
        self.names.values().map(len).sum()
    }

    fn strike(&mut self, operation: Operation, path: &Path) -> Option<Failure> {
        let strikes = |fault: &mut Fault| fault.strikes(operation, path);
        let failure = self.faults.iter_mut().find_map(strikes)?;
        self.struck += 1;
        Some(failure)
    }

    fn check(&mut self, operation: Operation, op: &'static str, path: &Path) -> Result<()> {
        match self.strike(operation, path) {
            // What these move has no length that could be short.
            None | Some(Failure::Short) => Ok(()),
            Some(failure) => Err(Error::io(op, path, failure.error())),
        }
    }

    /// Whether a file may become `new_len` long.
    fn check_growth(
        &self,
        op: &'static str,
        file: FileId,
        path: &Path,
        new_len: u64,
    ) -> Result<()> {
        let more = new_len.saturating_sub(self.files[file.0].len());
        if more > 0 && self.capacity < u64::MAX && self.used().saturating_add(more) > self.capacity
        {
            return Err(Error::io(op, path, Failure::NoSpace.error()));
        }
        Ok(())
    }

    fn write(&mut self, file: FileId, offset: u64, bytes: &[u8]) {
        for block in blocks(offset, bytes.len() as u64) {
            let is_hole = self.holes.contains(&(file, block));
            assert!(!is_hole, "IO-10: block {block} has no space for sure");
        }
        self.files[file.0].write(bytes, offset);
        self.ops.push(Op::Write(file, offset, bytes.into()));
    }

    fn name(&self, op: &'static str, path: &Path) -> Result<Name> {
        if path == Path::new("/") {
            return Ok(Name::Dir);
        }
        let missing = || Error::io(op, path, io::ErrorKind::NotFound.into());
        self.names.get(path).cloned().ok_or_else(missing)
    }

    /// The file that is opened under this path (IO-9).
    fn opened(&self, path: &Path) -> Result<FileId> {
        let mut at = path.to_path_buf();
        for _ in 0..MOST_LINKS {
            let missing = || Error::io("open", path, io::ErrorKind::NotFound.into());
            match self.names.get(&at).ok_or_else(missing)? {
                Name::File(id) => return Ok(*id),
                Name::Dir => return Err(is_a_directory(path)),
                Name::Link(target) => at = at.parent().unwrap_or(Path::new("/")).join(target),
            }
        }
        Err(Error::io(
            "open",
            path,
            io::Error::other("links in a circle"),
        ))
    }

    fn require_parent(&self, op: &'static str, path: &Path) -> Result<()> {
        let parent = path.parent().unwrap_or(Path::new("/"));
        self.name(op, parent).map(|_| ())
    }

    /// The names directly in a directory.
    fn children<'a>(&'a self, dir: &'a Path) -> impl Iterator<Item = (&'a Path, Name)> {
        self.names
            .range(dir.to_path_buf()..)
            .take_while(move |(path, _)| path.starts_with(dir))
            .filter(move |(path, _)| path.parent() == Some(dir))
            .map(|(path, name)| (path.as_path(), name.clone()))
    }
}

impl Disk for SimDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn DiskFile>> {
        let mut state = self.state.lock();
        let id = match mode {
            OpenMode::Existing | OpenMode::ReadOnly => {
                state.check(Operation::Open, "open", path)?;
                state.opened(path)?
            }
            OpenMode::CreateNew | OpenMode::CreatePrivate => {
                state.check(Operation::Names, "create", path)?;
                state.require_parent("create", path)?;
                if state.names.contains_key(path) {
                    let why = io::Error::from(io::ErrorKind::AlreadyExists);
                    return Err(Error::io("create", path, why));
                }
                state.files.push(Contents::default());
                let id = FileId(state.files.len() - 1);
                state.names.insert(path.to_path_buf(), Name::File(id));
                state.ops.push(Op::Create(path.to_path_buf(), id));
                id
            }
        };
        Ok(self.file(id, path, false))
    }

    fn open_direct(&self, path: &Path) -> Result<Arc<dyn DiskFile>> {
        let mut state = self.state.lock();
        state.check(Operation::Open, "open", path)?;
        let id = state.opened(path)?;
        Ok(self.file(id, path, true))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        let mut state = self.state.lock();
        state.check(Operation::Names, "remove", path)?;
        state.name("remove", path)?;
        state.names.remove(path);
        state.ops.push(Op::Remove(path.to_path_buf()));
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let mut state = self.state.lock();
        state.check(Operation::Names, "rename", from)?;
        let name = state.name("rename", from)?;
        state.require_parent("rename", to)?;
        state.names.remove(from);
        state.names.insert(to.to_path_buf(), name);
        state.ops.push(Op::Rename(from.into(), to.into()));
        Ok(())
    }

    fn link(&self, target: &Path, path: &Path) -> Result<()> {
        let mut state = self.state.lock();
        state.check(Operation::Names, "link", path)?;
        state.require_parent("link", path)?;
        if state.names.contains_key(path) {
            let why = io::Error::from(io::ErrorKind::AlreadyExists);
            return Err(Error::io("link", path, why));
        }
        let name = Name::Link(target.into());
        state.names.insert(path.into(), name);
        state.ops.push(Op::Link(target.into(), path.into()));
        Ok(())
    }

    fn read_link(&self, path: &Path) -> Result<Option<PathBuf>> {
        let mut state = self.state.lock();
        state.check(Operation::Open, "read link", path)?;
        match state.names.get(path) {
            Some(Name::Link(target)) => Ok(Some(target.clone())),
            _ => Ok(None),
        }
    }

    fn create_dir_all(&self, path: &Path) -> Result<()> {
        let mut state = self.state.lock();
        state.check(Operation::Names, "create directory", path)?;
        let mut missing: Vec<&Path> = path
            .ancestors()
            .take_while(|p| p.parent().is_some() && !state.names.contains_key(*p))
            .collect();
        while let Some(dir) = missing.pop() {
            state.names.insert(dir.to_path_buf(), Name::Dir);
            state.ops.push(Op::CreateDir(dir.to_path_buf()));
        }
        Ok(())
    }

    fn remove_dir(&self, path: &Path) -> Result<()> {
        let mut state = self.state.lock();
        state.check(Operation::Names, "remove directory", path)?;
        state.name("remove directory", path)?;
        if state.children(path).next().is_some() {
            let why = io::Error::from(io::ErrorKind::DirectoryNotEmpty);
            return Err(Error::io("remove directory", path, why));
        }
        state.names.remove(path);
        state.ops.push(Op::Remove(path.to_path_buf()));
        Ok(())
    }

    fn list(&self, path: &Path) -> Result<Vec<DirEntry>> {
        let mut state = self.state.lock();
        state.check(Operation::Open, "list", path)?;
        state.name("list", path)?;
        let entry = |(path, name): (&Path, Name)| DirEntry {
            name: path
                .file_name()
                .expect("a child has a name")
                .to_string_lossy()
                .into_owned(),
            is_dir: matches!(name, Name::Dir),
            len: match name {
                Name::Dir | Name::Link(_) => 0,
                Name::File(id) => state.files[id.0].len(),
            },
        };
        Ok(state.children(path).map(entry).collect())
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        let mut state = self.state.lock();
        state.check(Operation::Names, "sync directory", path)?;
        state.name("sync directory", path)?;
        if !state.lies.contains(&Lie::SyncDir) {
            state.ops.push(Op::SyncDir(path.to_path_buf()));
        }
        Ok(())
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        let mut state = self.state.lock();
        state.check(Operation::Open, "look for", path)?;
        Ok(state.names.contains_key(path))
    }

    /// So that tables with few rows go in portions.
    fn portion_bytes(&self) -> u64 {
        16 << 10
    }

    fn lock_dir(&self, path: &Path) -> Result<DirLock> {
        if !self.state.lock().locked.insert(path.to_path_buf()) {
            return Err(Error::InUse { path: path.into() });
        }
        Ok(Box::new(Lock(self.clone(), path.into())) as Box<dyn Any + Send + Sync>)
    }
}

struct Lock(SimDisk, PathBuf);

impl Drop for Lock {
    fn drop(&mut self) {
        self.0.state.lock().locked.remove(&self.1);
    }
}

/// The blocks that these bytes touch.
fn blocks(offset: u64, len: u64) -> std::ops::Range<u64> {
    let size = DIRECT_BLOCK as u64;
    offset / size..(offset + len).div_ceil(size)
}

struct SimFile {
    disk: SimDisk,
    id: FileId,
    path: PathBuf,
    is_direct: bool,
}

/// What the system calls do that together make up one read or write.
struct Calls {
    failure: Option<Failure>,
    made: usize,
}

impl Calls {
    fn new(failure: Option<Failure>) -> Calls {
        Calls { failure, made: 0 }
    }

    /// How many of `wanted` bytes the next call moves.
    fn moves(&mut self, wanted: usize, is_direct: bool) -> io::Result<usize> {
        self.made += 1;
        match (self.failure, self.made) {
            (None, _) | (Some(Failure::Short), 3..) => Ok(wanted),
            (Some(Failure::Short), 2) if is_direct => {
                let blocks = (wanted / 2).next_multiple_of(DIRECT_BLOCK);
                Ok(blocks.min(wanted))
            }
            (Some(Failure::Short), 2) => Ok(wanted.div_ceil(2)),
            (Some(failure), _) => Err(failure.error()),
        }
    }
}

impl SimFile {
    /// IO-6: a real disk may refuse it, or not.
    fn check_direct(&self, places: &[u64]) {
        let is_aligned = |at: &u64| at.is_multiple_of(DIRECT_BLOCK as u64);
        assert!(
            !self.is_direct || places.iter().all(is_aligned),
            "IO-6: {places:#x?} of {}",
            self.path.display()
        );
    }
}

impl DiskFile for SimFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.check_direct(&[buf.as_ptr().addr() as u64, buf.len() as u64, offset]);
        let mut state = self.disk.state.lock();
        let mut calls = Calls::new(state.strike(Operation::Read, &self.path));
        let file = &state.files[self.id.0];
        let call = |part: &mut [u8], at: u64| {
            let left = file.len().saturating_sub(at).min(part.len() as u64) as usize;
            let n = calls.moves(left, self.is_direct)?;
            assert!(n == 0 || file.read(&mut part[..n], at));
            Ok(n)
        };
        read_whole(buf, offset, call).map_err(|e| Error::io("read", &self.path, e))
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.check_direct(&[buf.as_ptr().addr() as u64, buf.len() as u64, offset]);
        let mut state = self.disk.state.lock();
        let failure = state.strike(Operation::Write, &self.path);
        if failure == Some(Failure::Io) {
            // FAULT-6: the first half of its sectors.
            let half = buf.len() / 2 / SECTOR * SECTOR;
            state.write(self.id, offset, &buf[..half]);
        }
        let mut calls = Calls::new(failure);
        state.check_growth("write", self.id, &self.path, offset + buf.len() as u64)?;
        let call = |part: &[u8], at: u64| {
            let n = calls.moves(part.len(), self.is_direct)?;
            state.write(self.id, at, &part[..n]);
            Ok(n)
        };
        write_whole(buf, offset, call).map_err(|e| Error::io("write", &self.path, e))
    }

    fn writes_atomically(&self, bytes: usize) -> bool {
        bytes.is_power_of_two() && bytes <= self.disk.state.lock().atomic_bytes
    }

    fn write_atomic_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        if !self.writes_atomically(buf.len()) || !offset.is_multiple_of(buf.len() as u64) {
            let why = io::Error::from(io::ErrorKind::InvalidInput);
            return Err(Error::io("write atomically", &self.path, why));
        }
        self.check_direct(&[buf.as_ptr().addr() as u64, buf.len() as u64, offset]);
        let mut state = self.disk.state.lock();
        state.check(Operation::Write, "write atomically", &self.path)?;
        let end = offset + buf.len() as u64;
        state.check_growth("write atomically", self.id, &self.path, end)?;
        state.files[self.id.0].write(buf, offset);
        state.ops.push(Op::WriteWhole(self.id, offset, buf.into()));
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        let mut state = self.disk.state.lock();
        if let Err(e) = state.check(Operation::Sync, "sync", &self.path) {
            state.ops.push(Op::SyncFailed(self.id));
            return Err(e);
        }
        let extension = self.path.extension().unwrap_or_default();
        let lies = |lie: &Lie| matches!(lie, Lie::Sync { files } if extension == *files);
        if !state.lies.iter().any(lies) {
            state.ops.push(Op::Sync(self.id));
        }
        Ok(())
    }

    fn len(&self) -> Result<u64> {
        Ok(self.disk.state.lock().files[self.id.0].len())
    }

    fn allocate(&self, new_len: u64) -> Result<()> {
        if new_len <= self.len()? {
            return Ok(());
        }
        self.set_len(new_len)
    }

    /// The disk's capacity counts lengths of files, holes included.
    fn reserve(&self, offset: u64, len: u64) -> Result<()> {
        let mut state = self.disk.state.lock();
        state.check(Operation::Extend, "reserve space in", &self.path)?;
        assert!(offset + len <= state.files[self.id.0].len(), "IO-10");
        for block in blocks(offset, len) {
            state.holes.remove(&(self.id, block));
        }
        Ok(())
    }

    /// IO-10: a write of zeros.
    fn punch(&self, offset: u64, len: u64) -> Result<bool> {
        let mut state = self.disk.state.lock();
        state.check(Operation::Extend, "give back space of", &self.path)?;
        assert!(offset + len <= state.files[self.id.0].len(), "IO-10");
        // One may be punched again.
        for block in blocks(offset, len) {
            state.holes.remove(&(self.id, block));
        }
        state.write(self.id, offset, &vec![0; len as usize]);
        let punched = blocks(offset, len).map(|block| (self.id, block));
        state.holes.extend(punched);
        Ok(true)
    }

    /// Here space that is reserved is like any other.
    fn fill(&self, from: u64) -> Result<()> {
        self.check_direct(&[from, self.len()?]);
        let mut state = self.disk.state.lock();
        state.check(Operation::Write, "fill", &self.path)
    }

    fn set_len(&self, new_len: u64) -> Result<()> {
        let mut state = self.disk.state.lock();
        state.check(Operation::Extend, "extend", &self.path)?;
        state.check_growth("extend", self.id, &self.path, new_len)?;
        state.files[self.id.0].set_len(new_len);
        state.ops.push(Op::SetLen(self.id, new_len));
        Ok(())
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn is_direct(&self) -> bool {
        self.is_direct
    }
}
