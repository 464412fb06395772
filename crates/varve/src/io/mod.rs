//! The only way to files: the [`Disk`] and [`DiskFile`] traits, and [`RealDisk`] on the operating system.
//!
//! What callers may rely on, and what a simulated disk must keep:
//!
//! - **IO-1** `write_at` promises nothing across a crash until `sync` of that file returned: unsynced writes
//!   may be lost, reordered or torn at any 512-byte boundary.
//! - **IO-2** `sync` makes the file's data durable, and of its metadata what is needed to read the data back
//!   (its length). It does not make the file's *name* durable: creating, removing and renaming need
//!   `sync_dir` of the directory.
//! - **IO-3** `rename` replaces an existing target atomically.
//! - **IO-4** After `sync` failed the state of all writes since the last successful one is unknown; calling
//!   it again proves nothing, and nothing here does so, not even if it was interrupted (real.rs). Callers
//!   poison the database.
//! - **IO-5** Bytes that `allocate` or `set_len` added read as zero.
//! - **IO-6** A file from `open_direct` is read and written in whole blocks of [`DIRECT_BLOCK`] bytes, at
//!   multiples of it, with memory that is aligned to it ([`AlignedBuf`]): the system may refuse anything
//!   else.
//! - **IO-7** A write by `write_atomic_at`, of a length for which `writes_atomically` says yes, is on the
//!   disk whole or not at all after a crash. It needs a `sync` like others.
//! - **IO-9** A symbolic link to a file is a name of its own. `open` and `open_direct` follow it; `remove`,
//!   `rename` and `exists` are about the link, wherever it leads, and for `CreateNew` it is a name that is
//!   taken. `sync_dir` of the link's directory makes it durable, whole, and nothing about what it leads to.
//! - **IO-10** Bytes that `punch` gave back read as zero, and writing them again may fail for want of space
//!   unless they were reserved. Across a crash it is like a write (IO-1).
//!
//! Many reads, writes and syncs at the same time go through an [`IoQueue`], to which the same holds.
//!
//! No latch is held and no caching is done here. Every error names the operation and the path.

mod aligned;
mod directory;
mod mapped;
#[cfg(test)]
pub(crate) mod meddled;
mod nameless;
mod overlay;
mod queue;
#[cfg(all(test, not(loom)))]
mod queue_tests;
mod real;
mod transfer;
mod uring;
mod whole;

use std::any::Any;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::base::{Error, Result};

pub use aligned::{AlignedBuf, DIRECT_BLOCK, read_aligned, write_aligned};
pub use directory::{create_directory, replace_file};
pub use mapped::{MappedBlock, MappedBlocks};
pub use nameless::create_nameless;
pub use overlay::Overlay;
pub use queue::IoQueue;
pub use real::{LOCK_FILE, RealDisk};
pub use transfer::{Piece, Read, Reading, Request, Transfer, Write, Writing};
pub use whole::{read_whole, write_whole};

/// How [`Disk::open`] treats a file that exists or does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// The file must exist.
    Existing,
    /// The file must not exist; it is created empty.
    CreateNew,
    /// The same, and other users of the system can't open it.
    CreatePrivate,
    /// The file must exist, and is only read.
    ReadOnly,
}

/// One name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    pub name: String,
    pub is_dir: bool,
    pub len: u64,
}

/// How data files are read and written. What is durable when is the same: they are synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushMethod {
    /// Through the operating system's cache.
    Fsync,
    /// Past it, where the file system can do that.
    Direct,
}

/// Held while a data directory is open; dropping it lets another process in.
pub type DirLock = Box<dyn Any + Send + Sync>;

/// A file system. Paths are used as given.
pub trait Disk: Send + Sync {
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn DiskFile>>;
    /// Opens an existing file to read and write it past the operating system's cache, if the file system can
    /// do that; if not, as `open` does ([`DiskFile::is_direct`]). IO-6. Nothing else of the contract changes:
    /// what is written still needs `sync`.
    fn open_direct(&self, path: &Path) -> Result<Arc<dyn DiskFile>>;
    fn remove(&self, path: &Path) -> Result<()>;
    /// Removes the name of a file that stays open ([`create_nameless`]).
    fn remove_name(&self, path: &Path) -> Result<()> {
        self.remove(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;
    /// Makes a symbolic link to `target` at `path`, which must be free (IO-9).
    fn link(&self, target: &Path, path: &Path) -> Result<()>;
    /// Where the symbolic link at `path` leads, in the words that it was made with; `None` if there is none.
    fn read_link(&self, path: &Path) -> Result<Option<PathBuf>>;
    /// Creates the directory and its missing parents; fine if it exists.
    fn create_dir_all(&self, path: &Path) -> Result<()>;
    /// Removes an empty directory.
    fn remove_dir(&self, path: &Path) -> Result<()>;
    /// The directory's entries, sorted by name.
    fn list(&self, path: &Path) -> Result<Vec<DirEntry>>;
    /// Makes created, removed and renamed names in this directory durable.
    fn sync_dir(&self, path: &Path) -> Result<()>;
    fn exists(&self, path: &Path) -> Result<bool>;
    /// The size of the file system with this directory, in bytes; one without a size has the largest there
    /// is.
    fn file_system_bytes(&self, _path: &Path) -> Result<u64> {
        Ok(u64::MAX)
    }
    /// How much of a file is given back to the file system at once when it goes: who waits for a sync of
    /// another file may wait for that, too.
    fn portion_bytes(&self) -> u64 {
        16 << 20
    }
    /// Takes the directory for this process; `Error::InUse` if somebody has it.
    fn lock_dir(&self, path: &Path) -> Result<DirLock>;
    /// A queue for reads, writes and syncs of its files. `native`: by what the system has for that, where it
    /// does. What is not the system's own carries out one after the other, by the calls of [`DiskFile`].
    fn io_queue(&self, _native: bool) -> Result<IoQueue> {
        Ok(IoQueue::one_by_one())
    }
}

/// An open file. All methods may be called from several threads at once; overlapping concurrent writes are
/// the caller's to avoid.
pub trait DiskFile: Send + Sync {
    /// Fills `buf` from `offset`; reading past the end is an error.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()>;
    /// Writes all of `buf`, extending the file if it ends earlier.
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()>;
    /// Whether the file system and the device promise that a write of so many bytes, at a multiple of that,
    /// is never torn (IO-7). The answer does not change while the file is open.
    fn writes_atomically(&self, _bytes: usize) -> bool {
        false
    }
    /// Writes all of `buf` at a multiple of its length, atomically (IO-7); an error if that is not promised.
    fn write_atomic_at(&self, _buf: &[u8], _offset: u64) -> Result<()> {
        let why = std::io::ErrorKind::Unsupported.into();
        Err(Error::io("write atomically", self.path(), why))
    }
    /// Makes everything written so far durable (fdatasync).
    fn sync(&self) -> Result<()>;
    fn len(&self) -> Result<u64>;
    #[cfg(feature = "internals")]
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Extends the file to `new_len` with its space reserved on the device, so that later writes below
    /// `new_len` do not fail for space. The new bytes read as zero. Does nothing if the file is that long
    /// already. If it fails the file is as long as before, or, after a crash, somewhat longer.
    fn allocate(&self, new_len: u64) -> Result<()>;
    /// Reserves space for the holes that the file has, as one may that was copied, so that later writes there
    /// do not fail for space. Does nothing where the system can't do that.
    fn fill_holes(&self) -> Result<()> {
        Ok(())
    }
    /// Sees to it that later writes of these bytes, which are in the file, do not fail for space (IO-10). An
    /// error for want of space has changed nothing.
    fn reserve(&self, _offset: u64, _len: u64) -> Result<()> {
        Ok(())
    }
    /// Gives the space of these bytes, in the file, back to the file system (IO-10). False where the system
    /// can't do that, and nothing has changed.
    fn punch(&self, _offset: u64, _len: u64) -> Result<bool> {
        Ok(false)
    }
    /// Writes zeros from `from` to the end, where the file has only reserved space, so that a later `sync` of
    /// writes there need not record that the space is now used. To readers nothing changes. IO-6 holds for
    /// `from` and the length.
    fn fill(&self, from: u64) -> Result<()>;
    /// Cuts or extends the file (without reserving space).
    fn set_len(&self, new_len: u64) -> Result<()>;
    fn path(&self) -> &Path;
    /// How many names the file has, in all directories; 1 where that is not known.
    fn names(&self) -> Result<u64> {
        Ok(1)
    }
    /// Reads and writes go past the operating system's cache (IO-6).
    fn is_direct(&self) -> bool {
        false
    }
    /// The file as the operating system knows it, for a queue; `None` if it is not the system's.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
