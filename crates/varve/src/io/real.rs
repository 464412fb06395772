//! [`RealDisk`]: the traits on the operating system's files, with positioned reads and writes.
//!
//! The directory lock is an advisory `flock` on `varve.lock`: it goes away with the process, however that
//! ends. Errors come back at once; what is repeated is a system call that was interrupted or moved fewer
//! bytes than it was asked to (`whole.rs`). A sync that failed is not (IO-4), and one that was interrupted
//! has failed: its file system gave up in the middle, and may by then have taken note of an error of the
//! disk, which the kernel reports once: the next sync would succeed. (ext4 returns the first error of a sync
//! and forgets the others.) The file systems of a local disk can't be interrupted there; FUSE and the
//! network's can.
#![allow(unsafe_code)]

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rustix::fs::{AtFlags, StatxFlags, statvfs, statx};
use rustix::io::{Errno, ReadWriteFlags, pwritev2};

use super::{
    AlignedBuf, DIRECT_BLOCK, DirEntry, DirLock, Disk, DiskFile, IoQueue, OpenMode, read_whole,
    write_whole,
};
use crate::base::instruments::{FileOperation, measure_file, measure_open_file as measure};
use crate::base::{Error, Result};

/// The name of the file that carries the directory lock.
pub const LOCK_FILE: &str = "varve.lock";

/// The operating system's file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

fn fail<T>(op: &'static str, path: &Path, result: io::Result<T>) -> Result<T> {
    result.map_err(|source| Error::io(op, path, source))
}

impl Disk for RealDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        options.read(true).write(mode != OpenMode::ReadOnly);
        let op = match mode {
            OpenMode::Existing | OpenMode::ReadOnly => "open",
            OpenMode::CreateNew => {
                options.create_new(true);
                "create"
            }
            OpenMode::CreatePrivate => {
                options.create_new(true).mode(0o600);
                "create"
            }
        };
        let operation = match mode {
            OpenMode::Existing | OpenMode::ReadOnly => FileOperation::Open(path),
            OpenMode::CreateNew | OpenMode::CreatePrivate => FileOperation::Create(path),
        };
        let open = || fail(op, path, options.open(path));
        let file = measure_file(operation, open, File::as_raw_fd)?;
        let kind = match mode {
            OpenMode::CreatePrivate => Kind::Private,
            _ => Kind::Buffered,
        };
        Ok(Arc::new(RealFile::new(file, path, kind)))
    }

    fn open_direct(&self, path: &Path) -> Result<Arc<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(libc::O_DIRECT);
        let open = || match options.open(path) {
            // The file system knows no direct writes.
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => Ok(None),
            opened => fail("open", path, opened).map(Some),
        };
        let descriptor = |file: &Option<File>| file.as_ref().map_or(-1, File::as_raw_fd);
        match measure_file(FileOperation::Open(path), open, descriptor)? {
            Some(file) => Ok(Arc::new(RealFile::new(file, path, Kind::Direct))),
            None => self.open(path, OpenMode::Existing),
        }
    }

    fn remove(&self, path: &Path) -> Result<()> {
        measure(FileOperation::Remove(path), || {
            fail("remove", path, fs::remove_file(path))
        })
    }

    fn remove_name(&self, path: &Path) -> Result<()> {
        // The file is measured under this name until it is closed.
        fail("remove", path, fs::remove_file(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        measure(FileOperation::Rename(from, to), || {
            fail("rename", from, fs::rename(from, to))
        })
    }

    fn link(&self, target: &Path, path: &Path) -> Result<()> {
        fail("link", path, std::os::unix::fs::symlink(target, path))
    }

    fn read_link(&self, path: &Path) -> Result<Option<PathBuf>> {
        use io::ErrorKind::{InvalidInput, NotFound};
        match fs::read_link(path) {
            // What is there is no link.
            Err(e) if matches!(e.kind(), InvalidInput | NotFound) => Ok(None),
            read => fail("read link", path, read).map(Some),
        }
    }

    fn create_dir_all(&self, path: &Path) -> Result<()> {
        fail("create directory", path, fs::create_dir_all(path))
    }

    fn remove_dir(&self, path: &Path) -> Result<()> {
        fail("remove directory", path, fs::remove_dir(path))
    }

    fn list(&self, path: &Path) -> Result<Vec<DirEntry>> {
        let mut entries = Vec::new();
        for entry in fail("list", path, fs::read_dir(path))? {
            let entry = fail("list", path, entry)?;
            // Varve's own names are all UTF-8; a name that is not belongs to somebody else.
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            let meta = match entry.metadata() {
                Ok(meta) => meta,
                // Removed between reading the directory and asking for its length.
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                Err(e) => return Err(Error::io("list", entry.path(), e)),
            };
            entries.push(DirEntry {
                name,
                is_dir: meta.is_dir(),
                len: meta.len(),
            });
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        let dir = fail("open directory", path, File::open(path))?;
        // Not the standard library's, which tries again when it was interrupted; so below.
        let synced = rustix::fs::fsync(&dir).map_err(io::Error::from);
        fail("sync directory", path, synced)
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        // Not `fs::exists`, which follows links.
        match fs::symlink_metadata(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            found => fail("look for", path, found).map(|_| true),
        }
    }

    fn file_system_bytes(&self, path: &Path) -> Result<u64> {
        let found =
            statvfs(path).map_err(|e| Error::io("look at the file system of", path, e.into()))?;
        Ok(found.f_blocks.saturating_mul(found.f_frsize))
    }

    fn lock_dir(&self, path: &Path) -> Result<DirLock> {
        let lock_path = path.join(LOCK_FILE);
        let mut opened = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&lock_path);
        // On a medium that can't be written it is locked all the same.
        if (opened.as_ref()).is_err_and(|e| e.kind() == io::ErrorKind::ReadOnlyFilesystem) {
            opened = File::open(&lock_path);
        }
        let file = fail("open", &lock_path, opened)?;
        match file.try_lock() {
            Ok(()) => Ok(Box::new(LockedDir(file))),
            Err(TryLockError::WouldBlock) => Err(Error::InUse {
                path: path.to_path_buf(),
            }),
            Err(TryLockError::Error(e)) => Err(Error::io("lock", &lock_path, e)),
        }
    }

    fn io_queue(&self, native: bool) -> Result<IoQueue> {
        IoQueue::start(native)
    }
}

/// Unlocks by itself: a process that is being forked at the moment has the lock's file open, too, until it
/// calls `exec`, and closing ours would leave it locked.
struct LockedDir(File);

impl Drop for LockedDir {
    fn drop(&mut self) {
        // What can go wrong is that the lock is gone already.
        let _ = self.0.unlock();
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Through the system's cache.
    Buffered,
    /// The same; it has no name any more (`create_nameless`).
    Private,
    /// Past the cache.
    Direct,
}

struct RealFile {
    file: File,
    path: PathBuf,
    kind: Kind,
    /// The least and the greatest length of an atomic write, once somebody has asked; zeros: none is
    /// promised.
    atomic: OnceLock<(u32, u32)>,
}

impl RealFile {
    fn new(file: File, path: &Path, kind: Kind) -> RealFile {
        RealFile {
            file,
            path: path.to_path_buf(),
            kind,
            atomic: OnceLock::new(),
        }
    }

    fn measure<T>(
        &self,
        operation: impl FnOnce(RawFd) -> FileOperation<'static>,
        call: impl FnOnce() -> io::Result<T>,
        op: &'static str,
    ) -> Result<T> {
        let call = || fail(op, &self.path, call());
        measure(operation(self.file.as_raw_fd()), call)
    }
}

impl Drop for RealFile {
    fn drop(&mut self) {
        // Another file may have the descriptor as soon as it is closed, so that is what comes after.
        let mut ended = measure(FileOperation::Close(self.file.as_raw_fd()), || Ok(()));
        if self.kind == Kind::Private {
            ended = ended.and_then(|()| measure(FileOperation::Remove(&self.path), || Ok(())));
        }
        debug_assert!(ended.is_ok());
    }
}

/// What the kernel's headers call these; the library does not know them.
const STATX_WRITE_ATOMIC: u32 = 0x1_0000;
pub(super) const RWF_ATOMIC: u32 = 0x40;

/// IO-7, by what the file system says of this file. A kernel that does not know the question promises
/// nothing.
fn atomic_lengths(file: &File) -> (u32, u32) {
    let mask = StatxFlags::from_bits_retain(STATX_WRITE_ATOMIC);
    match statx(file, c"", AtFlags::EMPTY_PATH, mask) {
        Ok(found) if found.stx_mask & STATX_WRITE_ATOMIC != 0 => (
            found.stx_atomic_write_unit_min,
            found.stx_atomic_write_unit_max,
        ),
        _ => (0, 0),
    }
}

impl DiskFile for RealFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let call = |part: &mut [u8], at| self.file.read_at(part, at);
        let bytes = buf.len();
        let read = || read_whole(buf, offset, call);
        self.measure(|file| FileOperation::Read(file, bytes), read, "read")
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        let call = |part: &[u8], at| self.file.write_at(part, at);
        let write = || write_whole(buf, offset, call);
        self.measure(|file| FileOperation::Write(file, buf.len()), write, "write")
    }

    fn writes_atomically(&self, bytes: usize) -> bool {
        // Only writes past the system's cache can be atomic.
        let (least, most) = match self.kind {
            Kind::Direct => *self.atomic.get_or_init(|| atomic_lengths(&self.file)),
            Kind::Buffered | Kind::Private => (0, 0),
        };
        let is_within = least > 0 && (least as usize..=most as usize).contains(&bytes);
        is_within && bytes.is_power_of_two()
    }

    fn write_atomic_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        let flags = ReadWriteFlags::from_bits_retain(RWF_ATOMIC);
        let write = || loop {
            match pwritev2(&self.file, &[IoSlice::new(buf)], offset, flags) {
                Err(Errno::INTR) => {}
                Ok(n) if n < buf.len() => break Err(io::ErrorKind::WriteZero.into()),
                written => break written.map(drop).map_err(io::Error::from),
            }
        };
        let operation = |file| FileOperation::Write(file, buf.len());
        self.measure(operation, write, "write atomically")
    }

    fn sync(&self) -> Result<()> {
        let sync = || rustix::fs::fdatasync(&self.file).map_err(io::Error::from);
        self.measure(FileOperation::Sync, sync, "sync")
    }

    fn len(&self) -> Result<u64> {
        Ok(fail("get length of", &self.path, self.file.metadata())?.len())
    }

    fn allocate(&self, new_len: u64) -> Result<()> {
        let len = self.len()?;
        if new_len <= len {
            return Ok(());
        }
        let extend = || match fallocate(&self.file, len, new_len - len) {
            // The file system can't reserve space: writing zeros does it too.
            Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                write_zeros(&self.file, len, new_len)
            }
            result => result,
        };
        let extended = self.measure(FileOperation::ChangeSize, extend, "extend");
        if extended.is_err() {
            // Some file systems keep what they had space for. The first error is the one to report.
            let _ = self.file.set_len(len);
        }
        extended
    }

    fn fill_holes(&self) -> Result<()> {
        match fallocate(&self.file, 0, self.len()?) {
            // An empty file; a file system that can't reserve space.
            Err(e) if matches!(e.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP)) => Ok(()),
            result => fail("reserve space for", &self.path, result),
        }
    }

    fn reserve(&self, offset: u64, len: u64) -> Result<()> {
        let mode = libc::FALLOC_FL_KEEP_SIZE;
        let reserve = || match fallocate_as(&self.file, mode, offset, len) {
            // The file system can't do that. Mostly it has no holes then, either.
            Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(()),
            result => result,
        };
        self.measure(FileOperation::ChangeSize, reserve, "reserve space in")
    }

    fn punch(&self, offset: u64, len: u64) -> Result<bool> {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        let punch = || match fallocate_as(&self.file, mode, offset, len) {
            Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(false),
            result => result.map(|()| true),
        };
        self.measure(FileOperation::ChangeSize, punch, "give back space of")
    }

    fn fill(&self, from: u64) -> Result<()> {
        let len = self.len()?;
        fail("fill", &self.path, write_zeros(&self.file, from, len))
    }

    fn set_len(&self, new_len: u64) -> Result<()> {
        let change = || self.file.set_len(new_len);
        self.measure(FileOperation::ChangeSize, change, "set length of")
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn names(&self) -> Result<u64> {
        let found = fail("count the names of", &self.path, self.file.metadata())?;
        Ok(found.nlink())
    }

    fn is_direct(&self) -> bool {
        self.kind == Kind::Direct
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.file.as_fd())
    }
}

fn fallocate(file: &File, offset: u64, len: u64) -> io::Result<()> {
    fallocate_as(file, 0, offset, len)
}

fn fallocate_as(file: &File, mode: libc::c_int, offset: u64, len: u64) -> io::Result<()> {
    let out_of_range = |_| io::Error::from(io::ErrorKind::FileTooLarge);
    let offset = libc::off_t::try_from(offset).map_err(out_of_range)?;
    let len = libc::off_t::try_from(len).map_err(out_of_range)?;
    loop {
        // SAFETY: the call takes plain integers and a descriptor that `file` keeps open; it touches no memory
        // of ours.
        if unsafe { libc::fallocate(file.as_raw_fd(), mode, offset, len) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

fn write_zeros(file: &File, from: u64, to: u64) -> io::Result<()> {
    let least = ((to - from) as usize).next_multiple_of(DIRECT_BLOCK);
    let zeros = AlignedBuf::new(least.min(1 << 20));
    let mut at = from;
    while at < to {
        let n = (to - at).min(zeros.len() as u64);
        write_whole(&zeros[..n as usize], at, |part, at| file.write_at(part, at))?;
        at += n;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn files_keep_what_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let file = RealDisk.open(&path, OpenMode::CreateNew).unwrap();
        file.write_at(b"hello", 100).unwrap();
        file.sync().unwrap();
        assert_eq!(file.len().unwrap(), 105);
        let file = RealDisk.open(&path, OpenMode::Existing).unwrap();
        let mut b = [1u8; 7];
        file.read_at(&mut b, 98).unwrap();
        assert_eq!(&b, b"\0\0hello");
        assert!(
            file.read_at(&mut b, 99).is_err(),
            "a read past the end must not be short"
        );
    }

    /// From here on the kernel answers this thread's calls number `call` with an error, and does nothing.
    fn refuse(call: libc::c_long, error: i32) {
        let one = |code: u32, jt, jf, k| libc::sock_filter {
            code: code as u16,
            jt,
            jf,
            k,
        };
        // The call's number is the first word of what the filter sees.
        let mut filter = [
            one(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
            one(libc::BPF_JMP | libc::BPF_JEQ, 0, 1, call as u32),
            one(libc::BPF_RET, 0, 0, libc::SECCOMP_RET_ERRNO | error as u32),
            one(libc::BPF_RET, 0, 0, libc::SECCOMP_RET_ALLOW),
        ];
        let program = libc::sock_fprog {
            len: filter.len() as u16,
            filter: filter.as_mut_ptr(),
        };
        // SAFETY: the kernel copies the filter before it returns.
        let refused = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
            let mode = libc::SECCOMP_MODE_FILTER;
            libc::prctl(libc::PR_SET_SECCOMP, mode, &program, 0, 0)
        };
        assert_eq!(refused, 0, "{}", io::Error::last_os_error());
    }

    /// IO-4: a sync that was interrupted has failed like any other. One that is tried again here never comes
    /// to its end.
    #[test]
    fn an_interrupted_sync_has_failed() {
        use std::sync::mpsc;
        use std::time::Duration;
        for call in [libc::SYS_fdatasync, libc::SYS_fsync] {
            let dir = tempfile::tempdir().unwrap();
            let at = dir.path().join("a");
            let file = RealDisk.open(&at, OpenMode::CreateNew).unwrap();
            let dir = dir.path().to_path_buf();
            let (tell, told) = mpsc::channel();
            std::thread::spawn(move || {
                refuse(call, libc::EINTR);
                let synced = match call {
                    libc::SYS_fdatasync => file.sync(),
                    _ => RealDisk.sync_dir(&dir),
                };
                tell.send(synced).unwrap();
            });
            let synced = told.recv_timeout(Duration::from_secs(60));
            match synced.expect("it comes to an end") {
                Err(Error::Io { source, .. }) => {
                    assert_eq!(source.raw_os_error(), Some(libc::EINTR));
                }
                other => panic!("{other:?}"),
            }
        }
    }

    /// IO-7: what is promised is kept, and what is not promised is refused and changes nothing.
    #[test]
    fn atomic_writes_are_made_or_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let cached = RealDisk.open(&path, OpenMode::CreateNew).unwrap();
        cached.write_at(&[1; 1 << 16], 0).unwrap();
        cached.sync().unwrap();
        assert!(!cached.writes_atomically(4096), "not through the cache");
        let file = RealDisk.open_direct(&path).unwrap();
        let mut buf = AlignedBuf::new(1 << 16);
        for len in [4096, 16384, 65536] {
            buf.fill(2);
            let is_promised = file.writes_atomically(len);
            println!("{len}: {is_promised}");
            let written = file.write_atomic_at(&buf[..len], 0);
            assert!(written.is_ok() || !is_promised, "{written:?}");
            file.read_at(&mut buf[..len], 0).unwrap();
            let value = if written.is_ok() { 2 } else { 1 };
            assert!(buf[..len].iter().all(|b| *b == value));
        }
        assert!(!file.writes_atomically(6144), "no power of two");
    }

    #[test]
    fn open_modes_are_strict() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        assert!(RealDisk.open(&path, OpenMode::Existing).is_err());
        RealDisk.open(&path, OpenMode::CreateNew).unwrap();
        let error = RealDisk.open(&path, OpenMode::CreateNew).err().unwrap();
        assert!(
            error.to_string().contains(path.to_str().unwrap()),
            "{error} must name the file"
        );
    }

    #[test]
    fn holes_get_space_and_nothing_changes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let file = RealDisk.open(&path, OpenMode::CreateNew).unwrap();
        file.fill_holes().unwrap();
        file.set_len(1 << 20).unwrap();
        file.write_at(b"hello", 300_000).unwrap();
        let bytes = || fs::read(&path).unwrap();
        let before = bytes();
        file.fill_holes().unwrap();
        assert!(bytes() == before);
        let other = File::create(dir.path().join("b")).unwrap();
        let can_reserve = fallocate(&other, 0, 4096).is_ok();
        let bytes = fs::metadata(&path).unwrap().blocks() * 512;
        assert!(!can_reserve || bytes >= 1 << 20, "{bytes}");
    }

    /// IO-10.
    #[test]
    fn punched_bytes_read_as_zero_and_take_no_space() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let file = RealDisk.open(&path, OpenMode::CreateNew).unwrap();
        file.write_at(&[7; 1 << 16], 0).unwrap();
        file.sync().unwrap();
        let blocks = || fs::metadata(&path).unwrap().blocks();
        let full = blocks();
        let is_punched = file.punch(4096, 1 << 15).unwrap();
        let mut b = vec![1u8; 1 << 16];
        file.read_at(&mut b, 0).unwrap();
        let hole = 4096..4096 + (1 << 15);
        let value = if is_punched { 0 } else { 7 };
        assert!(b[hole.clone()].iter().all(|&b| b == value));
        assert!(
            b[..hole.start]
                .iter()
                .chain(&b[hole.end..])
                .all(|&b| b == 7)
        );
        assert!(!is_punched || blocks() < full);
        file.reserve(4096, 1 << 15).unwrap();
        assert_eq!(blocks(), full);
        assert_eq!(file.len().unwrap(), 1 << 16);
    }

    /// IO-5.
    #[test]
    fn allocated_bytes_are_zero_and_old_ones_stay() {
        let dir = tempfile::tempdir().unwrap();
        let file = RealDisk
            .open(&dir.path().join("a"), OpenMode::CreateNew)
            .unwrap();
        file.write_at(&[7; 10], 0).unwrap();
        file.allocate(1 << 16).unwrap();
        file.allocate(100).unwrap();
        assert_eq!(file.len().unwrap(), 1 << 16, "allocate never shortens");
        let mut b = vec![1u8; 1 << 16];
        file.read_at(&mut b, 0).unwrap();
        assert_eq!(b[..10], [7; 10]);
        assert!(b[10..].iter().all(|&x| x == 0));
        write_zeros(
            &File::options()
                .write(true)
                .open(dir.path().join("a"))
                .unwrap(),
            5,
            8,
        )
        .unwrap();
        file.read_at(&mut b[..10], 0).unwrap();
        assert_eq!(b[..10], [7, 7, 7, 7, 7, 0, 0, 0, 7, 7]);
    }

    #[test]
    fn direct_writes_are_like_others() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let len = 5 * DIRECT_BLOCK;
        let file = RealDisk.open(&path, OpenMode::CreateNew).unwrap();
        file.write_at(&[1; DIRECT_BLOCK], 0).unwrap();
        file.allocate(len as u64).unwrap();
        let direct = RealDisk.open_direct(&path).unwrap();
        direct.fill(DIRECT_BLOCK as u64).unwrap();
        let mut block = AlignedBuf::new(2 * DIRECT_BLOCK);
        block.fill(9);
        direct.write_at(&block, 2 * DIRECT_BLOCK as u64).unwrap();
        direct.sync().unwrap();
        let mut read = vec![7; len];
        file.read_at(&mut read, 0).unwrap();
        let expected = [1, 0, 9, 9, 0].map(|byte| [byte; DIRECT_BLOCK]);
        assert_eq!(read, expected.as_flattened());
        assert!(RealDisk.open_direct(&dir.path().join("b")).is_err());
    }

    /// IO-3, among others: a rename replaces.
    #[test]
    fn directory_lists_renames_and_removes() {
        let dir = tempfile::tempdir().unwrap();
        let at = |n: &str| dir.path().join(n);
        RealDisk.create_dir_all(&at("sub/deep")).unwrap();
        RealDisk
            .open(&at("b"), OpenMode::CreateNew)
            .unwrap()
            .set_len(3)
            .unwrap();
        RealDisk.open(&at("a"), OpenMode::CreateNew).unwrap();
        RealDisk.rename(&at("b"), &at("a")).unwrap();
        RealDisk.sync_dir(dir.path()).unwrap();
        let entries = RealDisk.list(dir.path()).unwrap();
        let names: Vec<_> = entries
            .iter()
            .map(|e| (e.name.as_str(), e.is_dir))
            .collect();
        assert_eq!(names, [("a", false), ("sub", true)]);
        assert_eq!(entries[0].len, 3, "the renamed file replaced the other");
        RealDisk.remove(&at("a")).unwrap();
        assert!(!RealDisk.exists(&at("a")).unwrap());
        RealDisk.remove_dir(&at("sub/deep")).unwrap();
        assert!(RealDisk.exists(&at("sub")).unwrap());
    }

    /// IO-9.
    #[test]
    fn links_are_names_of_their_own() {
        let dir = tempfile::tempdir().unwrap();
        let at = |n: &str| dir.path().join(n);
        let file = RealDisk.open(&at("a"), OpenMode::CreateNew).unwrap();
        file.write_at(b"abc", 0).unwrap();
        RealDisk.link(&at("a"), &at("l")).unwrap();
        assert_eq!(RealDisk.read_link(&at("l")).unwrap(), Some(at("a")));
        let none = |n: &str| RealDisk.read_link(&at(n)).unwrap().is_none();
        assert!(none("a") && none("b"));
        for open in [
            RealDisk.open(&at("l"), OpenMode::Existing),
            RealDisk.open_direct(&at("l")),
        ] {
            assert_eq!(open.unwrap().len().unwrap(), 3);
        }
        RealDisk.rename(&at("l"), &at("m")).unwrap();
        RealDisk.remove(&at("a")).unwrap();
        assert!(RealDisk.exists(&at("m")).unwrap(), "it leads nowhere");
        assert!(RealDisk.open(&at("m"), OpenMode::Existing).is_err());
        assert!(RealDisk.open(&at("m"), OpenMode::CreateNew).is_err());
        assert!(RealDisk.link(&at("a"), &at("m")).is_err());
        RealDisk.open(&at("a"), OpenMode::CreateNew).unwrap();
        RealDisk.remove(&at("m")).unwrap();
        let left = RealDisk.exists(&at("a")).unwrap() && !RealDisk.exists(&at("m")).unwrap();
        assert!(left, "the link goes alone");
    }

    #[test]
    fn a_directory_is_locked_once() {
        let dir = tempfile::tempdir().unwrap();
        let lock = RealDisk.lock_dir(dir.path()).unwrap();
        assert!(matches!(
            RealDisk.lock_dir(dir.path()),
            Err(Error::InUse { .. })
        ));
        drop(lock);
        RealDisk.lock_dir(dir.path()).unwrap();
    }

    #[test]
    fn a_lock_ends_though_a_child_process_has_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(LOCK_FILE);
        let lock = LockedDir(File::create(path).unwrap());
        lock.0.try_lock().unwrap();
        // What a fork does to it.
        let _inherited = lock.0.try_clone().unwrap();
        assert!(RealDisk.lock_dir(dir.path()).is_err());
        drop(lock);
        RealDisk.lock_dir(dir.path()).unwrap();
    }
}
