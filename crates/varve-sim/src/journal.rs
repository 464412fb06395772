//! What happened to a disk, in order.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::image::Image;

/// A file, whatever its name is now.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct FileId(pub usize);

#[derive(Clone, Debug)]
pub(crate) enum Op {
    CreateDir(PathBuf),
    Create(PathBuf, FileId),
    Remove(PathBuf),
    Rename(PathBuf, PathBuf),
    SyncDir(PathBuf),
    Write(FileId, u64, Arc<[u8]>),
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
            Op::CreateDir(path) | Op::Create(path, _) | Op::Remove(path) => vec![parent(path)],
            Op::Rename(from, to) if parent(from) != parent(to) => vec![parent(from), parent(to)],
            Op::Rename(from, _) => vec![parent(from)],
            Op::SyncDir(_) | Op::Write(..) | Op::SetLen(..) | Op::Sync(_) | Op::SyncFailed(_) => {
                Vec::new()
            }
        }
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

    /// What operation number `at` did, for a failure's report.
    pub fn describe(&self, at: usize) -> String {
        match self.ops.get(at) {
            Some(Op::Write(file, offset, bytes)) => {
                format!("write {} bytes at {offset} of file {}", bytes.len(), file.0)
            }
            Some(op) => format!("{op:?}"),
            None => "the end".into(),
        }
    }
}
