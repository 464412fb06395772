//! What happened to a disk, in order.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::crash::Change;
use crate::image::{Image, Node};

/// A file, whatever its name is now.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct FileId(pub usize);

#[derive(Clone, Debug)]
pub(crate) enum Op {
    CreateDir(PathBuf),
    Create(PathBuf, FileId),
    Remove(PathBuf),
    Rename(PathBuf, PathBuf),
    /// A symbolic link to the first, at the second.
    Link(PathBuf, PathBuf),
    SyncDir(PathBuf),
    Write(FileId, u64, Arc<[u8]>),
    /// One that is not torn (FAULT-8).
    WriteWhole(FileId, u64, Arc<[u8]>),
    SetLen(FileId, u64),
    Sync(FileId),
    /// A sync that reported a failure (FAULT-7).
    SyncFailed(FileId),
}

impl Op {
    /// The directories in which names change.
    pub fn dirs(&self) -> Vec<&Path> {
        fn parent(path: &Path) -> &Path {
            path.parent().unwrap_or(Path::new("/"))
        }
        match self {
            Op::CreateDir(path) | Op::Create(path, _) | Op::Remove(path) | Op::Link(_, path) => {
                vec![parent(path)]
            }
            Op::Rename(from, to) if parent(from) != parent(to) => vec![parent(from), parent(to)],
            Op::Rename(from, _) => vec![parent(from)],
            Op::SyncDir(_)
            | Op::Write(..)
            | Op::WriteWhole(..)
            | Op::SetLen(..)
            | Op::Sync(_)
            | Op::SyncFailed(_) => Vec::new(),
        }
    }
}

/// What files are called after an operation.
fn follow(names: &mut BTreeMap<PathBuf, FileId>, op: &Op) {
    match op {
        Op::Create(path, id) => drop(names.insert(path.clone(), *id)),
        Op::Remove(path) => drop(names.remove(path)),
        Op::Rename(from, to) => {
            if let Some(id) = names.remove(from) {
                names.insert(to.clone(), id);
            }
        }
        _ => {}
    }
}

/// A disk's first state and everything that was done to it since.
#[derive(Clone)]
pub struct Journal {
    pub(crate) start: Image,
    pub(crate) ops: Arc<[Op]>,
}

impl Journal {
    /// How many operations there are. A crash may happen before the first, after the last, or in between.
    pub fn len(&self) -> usize {
        self.ops.len()
    }

    /// Nothing happened.
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// The files at the start. `SimDisk::new` numbers them in the same order.
    fn first_names(&self) -> BTreeMap<PathBuf, FileId> {
        let files = self.start.nodes.iter();
        let files = files.filter(|(_, node)| matches!(node, Node::File(_)));
        let numbered = files.enumerate();
        numbered
            .map(|(n, (path, _))| (path.clone(), FileId(n)))
            .collect()
    }

    /// The operations that wrote to files that had this extension at the time, and how many parts each of
    /// them may be torn into.
    pub fn writes_to(&self, extension: &str) -> Vec<(usize, usize)> {
        let mut names = self.first_names();
        let mut found = Vec::new();
        for (at, op) in self.ops.iter().enumerate() {
            follow(&mut names, op);
            if let Op::Write(id, ..) | Op::WriteWhole(id, ..) = op {
                let is_it = |(path, file): (&PathBuf, &FileId)| {
                    file == id && path.extension().is_some_and(|e| e == extension)
                };
                if names.iter().any(is_it) {
                    let change = Change::of(op).expect("a write");
                    found.push((at, change.pieces()));
                }
            }
        }
        found
    }

    /// What was done to the file that has this path in the end, in order: where each write began, `None` for
    /// a sync.
    pub fn writes_and_syncs(&self, path: &Path) -> Vec<Option<u64>> {
        let mut names = self.first_names();
        self.ops.iter().for_each(|op| follow(&mut names, op));
        let Some(file) = names.get(path) else {
            return Vec::new();
        };
        let of_file = |op: &Op| match op {
            Op::Write(id, offset, _) | Op::WriteWhole(id, offset, _) if id == file => {
                Some(Some(*offset))
            }
            Op::Sync(id) if id == file => Some(None),
            _ => None,
        };
        self.ops.iter().filter_map(of_file).collect()
    }

    /// What operation number `at` did, for a failure's report.
    pub fn describe(&self, at: usize) -> String {
        match self.ops.get(at) {
            Some(Op::Write(file, offset, bytes) | Op::WriteWhole(file, offset, bytes)) => {
                format!("write {} bytes at {offset} of file {}", bytes.len(), file.0)
            }
            Some(op) => format!("{op:?}"),
            None => "the end".into(),
        }
    }
}
