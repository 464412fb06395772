//! A disk in memory, whose whole content is copied in a moment: blocks are shared until one side writes them.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use varve::io::{DirEntry, Disk, DiskFile, OpenMode};
use varve::{Error, Result};

const BLOCK: usize = 4096;
type Block = [u8; BLOCK];

/// The bytes of a file. Blocks that are not there are zero.
#[derive(Clone, Default)]
struct Content {
    len: u64,
    blocks: BTreeMap<u64, Arc<Block>>,
}

impl Content {
    /// Calls `f` with each piece of the range: block number, range within the block, range within the caller's bytes.
    fn pieces(offset: u64, len: usize, mut f: impl FnMut(u64, usize, std::ops::Range<usize>)) {
        let mut done = 0;
        while done < len {
            let at = offset + done as u64;
            let start = (at % BLOCK as u64) as usize;
            let n = (BLOCK - start).min(len - done);
            f(at / BLOCK as u64, start, done..done + n);
            done += n;
        }
    }

    fn read(&self, buf: &mut [u8], offset: u64) {
        Content::pieces(offset, buf.len(), |block, start, range| {
            let n = range.len();
            match self.blocks.get(&block) {
                Some(bytes) => buf[range].copy_from_slice(&bytes[start..start + n]),
                None => buf[range].fill(0),
            }
        });
    }

    fn write(&mut self, buf: &[u8], offset: u64) {
        Content::pieces(offset, buf.len(), |block, start, range| {
            let bytes = self.blocks.entry(block);
            let bytes = Arc::make_mut(bytes.or_insert_with(|| Arc::new([0; BLOCK])));
            bytes[start..start + range.len()].copy_from_slice(&buf[range]);
        });
        self.len = self.len.max(offset + buf.len() as u64);
    }

    fn set_len(&mut self, len: u64) {
        self.blocks.retain(|block, _| block * BLOCK as u64 <= len);
        let (last, within) = (len / BLOCK as u64, (len % BLOCK as u64) as usize);
        if let Some(bytes) = self.blocks.get_mut(&last) {
            Arc::make_mut(bytes)[within..].fill(0);
        }
        self.len = len;
    }
}

#[derive(Default)]
struct Tree {
    files: BTreeMap<PathBuf, Arc<Mutex<Content>>>,
    dirs: BTreeSet<PathBuf>,
}

/// Clones are handles of the same disk.
#[derive(Clone, Default)]
pub struct MemDisk {
    tree: Arc<Mutex<Tree>>,
}

#[allow(dead_code, reason = "each test uses its part")]
impl MemDisk {
    pub fn new() -> MemDisk {
        MemDisk::default()
    }

    /// Another disk with the same content.
    pub fn copy(&self) -> MemDisk {
        let tree = self.lock();
        let copy = |(path, content): (&PathBuf, &Arc<Mutex<Content>>)| {
            let content = content.lock().unwrap().clone();
            (path.clone(), Arc::new(Mutex::new(content)))
        };
        let tree = Tree {
            files: tree.files.iter().map(copy).collect(),
            dirs: tree.dirs.clone(),
        };
        MemDisk {
            tree: Arc::new(Mutex::new(tree)),
        }
    }

    pub fn files(&self) -> Vec<PathBuf> {
        self.lock().files.keys().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Tree> {
        self.tree.lock().unwrap()
    }
}

fn refused(op: &'static str, path: &Path, kind: std::io::ErrorKind) -> Error {
    Error::io(op, path, kind.into())
}

struct MemFile {
    content: Arc<Mutex<Content>>,
    path: PathBuf,
}

impl Disk for MemDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn DiskFile>> {
        let mut tree = self.lock();
        let content = match (tree.files.get(path), mode) {
            (Some(content), OpenMode::Existing) => content.clone(),
            (None, OpenMode::CreateNew) => {
                let content = Arc::<Mutex<Content>>::default();
                tree.files.insert(path.into(), content.clone());
                content
            }
            (Some(_), _) => return Err(refused("open", path, std::io::ErrorKind::AlreadyExists)),
            (None, _) => return Err(refused("open", path, std::io::ErrorKind::NotFound)),
        };
        let path = path.into();
        Ok(Arc::new(MemFile { content, path }))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        match self.lock().files.remove(path) {
            Some(_) => Ok(()),
            None => Err(refused("remove", path, std::io::ErrorKind::NotFound)),
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let mut tree = self.lock();
        match tree.files.remove(from) {
            Some(content) => drop(tree.files.insert(to.into(), content)),
            None => return Err(refused("rename", from, std::io::ErrorKind::NotFound)),
        }
        Ok(())
    }

    fn create_dir_all(&self, path: &Path) -> Result<()> {
        let mut tree = self.lock();
        tree.dirs.extend(path.ancestors().map(PathBuf::from));
        Ok(())
    }

    fn remove_dir(&self, path: &Path) -> Result<()> {
        self.lock().dirs.remove(path);
        Ok(())
    }

    fn list(&self, path: &Path) -> Result<Vec<DirEntry>> {
        let tree = self.lock();
        let name = |p: &PathBuf| {
            let inside = p.parent() == Some(path);
            inside.then(|| p.file_name()?.to_str().map(str::to_string))?
        };
        let files = tree.files.iter().filter_map(|(p, content)| {
            Some(DirEntry {
                name: name(p)?,
                is_dir: false,
                len: content.lock().unwrap().len,
            })
        });
        let dirs = tree.dirs.iter().filter_map(|p| {
            Some(DirEntry {
                name: name(p)?,
                is_dir: true,
                len: 0,
            })
        });
        let mut entries: Vec<_> = files.chain(dirs).collect();
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn sync_dir(&self, _: &Path) -> Result<()> {
        Ok(())
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        let tree = self.lock();
        Ok(tree.files.contains_key(path) || tree.dirs.contains(path))
    }

    fn lock_dir(&self, _: &Path) -> Result<Box<dyn Any + Send + Sync>> {
        Ok(Box::new(()))
    }
}

impl MemFile {
    fn lock(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap()
    }
}

impl DiskFile for MemFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let content = self.lock();
        if offset + buf.len() as u64 > content.len {
            return Err(refused(
                "read",
                &self.path,
                std::io::ErrorKind::UnexpectedEof,
            ));
        }
        content.read(buf, offset);
        Ok(())
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.lock().write(buf, offset);
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn len(&self) -> Result<u64> {
        Ok(self.lock().len)
    }

    fn allocate(&self, new_len: u64) -> Result<()> {
        let mut content = self.lock();
        content.len = content.len.max(new_len);
        Ok(())
    }

    fn set_len(&self, new_len: u64) -> Result<()> {
        self.lock().set_len(new_len);
        Ok(())
    }

    fn path(&self) -> &Path {
        &self.path
    }
}
