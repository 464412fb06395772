//! Whether a backup is what was made, and a database made of it.
//!
//! Everything is checked before the first file is written: the manifest, the length and checksum of each
//! file, each page by its own checksum, each frame of redo. While files are copied their checksums are
//! computed again: what changes meanwhile is told.
//!
//! The first file of the new database is the manifest, and the last thing that happens is that it goes. A
//! directory that has one is not opened as a database: what an interrupted restore has left is refused by
//! name, and so is the backup itself, which opening would change.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::chain::{Chain, Composed};
use super::changed::{self, ChangedFile};
use super::manifest::{BackupFile, BackupSpace, MANIFEST, Manifest};
use super::{BackupSummary, Directories, refuse_content, write_sparse};
use crate::base::{DISK_THREADS, Error, PageId, PageNo, Result, map_together};
use crate::ddl::FILE_EXTENSION;
use crate::io::{Disk, DiskFile, OpenMode, RealDisk, create_directory};
use crate::page;
use crate::redo::{CONTROL_FILE, control_copies, verify_copied_log};
use crate::space::FileHeader;

/// So much is read and written at a time: whole pages of any size.
const CHUNK: usize = 1 << 20;

/// Reads all of the backup in `dir`, and finds out whether it is as it was made.
///
/// # Errors
///
/// `NotFound`: there is no backup, or it is not complete. `CorruptFile`, `Corrupt`: what is wrong with it.
pub fn verify(dir: impl AsRef<Path>) -> Result<BackupSummary> {
    verify_on(&RealDisk, dir.as_ref())
}

/// The same with a backup and the increments that go with it, in their order.
///
/// # Errors
///
/// Those of [`verify`]. `Invalid`: one does not go with the one before.
pub fn verify_chain(dirs: &[impl AsRef<Path>]) -> Result<BackupSummary> {
    let chain = Chain::read_verified(&RealDisk, &paths(dirs))?;
    Ok(chain.summary(&chain.files()?))
}

/// Makes a database of the backup in `dir`. Its directory `target` is made, or is empty. Its first start
/// recovers it, as after a crash.
///
/// # Errors
///
/// Those of [`verify`], when nothing was written yet. `Invalid`: there is something in the directory.
pub fn restore(dir: impl AsRef<Path>, target: impl AsRef<Path>) -> Result<BackupSummary> {
    restore_on(&RealDisk, &[dir.as_ref()], target.as_ref())
}

/// The same with a backup and the increments that go with it, in their order: what had committed when the
/// last one ended.
///
/// # Errors
///
/// Those of [`restore`]. `Invalid`: one does not go with the one before.
pub fn restore_chain(dirs: &[impl AsRef<Path>], target: impl AsRef<Path>) -> Result<BackupSummary> {
    restore_on(&RealDisk, &paths(dirs), target.as_ref())
}

/// Makes a whole backup of one and the increments that go with it, in their order. The next increment may
/// have it as its base, as well as the last one of them.
///
/// # Errors
///
/// Those of [`restore_chain`].
pub fn merge(dirs: &[impl AsRef<Path>], target: impl AsRef<Path>) -> Result<BackupSummary> {
    merge_on(&RealDisk, &paths(dirs), target.as_ref())
}

fn paths(dirs: &[impl AsRef<Path>]) -> Vec<&Path> {
    dirs.iter().map(AsRef::as_ref).collect()
}

/// Has a directory, which is empty or is made, refused as a database until [`Restoring::finish`] was there,
/// whatever else comes there before. The backup is verified, and the increments.
///
/// # Errors
///
/// Those of [`restore_chain`].
pub fn begin_restore(dirs: &[impl AsRef<Path>], target: &Path) -> Result<Restoring<'static>> {
    Restoring::begin(&RealDisk, &paths(dirs), target)
}

/// A database that is being made of a backup. Without `finish` its directory stays refused.
#[must_use]
pub struct Restoring<'a> {
    disk: &'a dyn Disk,
    chain: Chain<'a>,
    target: PathBuf,
}

impl<'a> Restoring<'a> {
    fn begin(disk: &'a dyn Disk, dirs: &[&Path], target: &Path) -> Result<Restoring<'a>> {
        let chain = Chain::read_verified(disk, dirs)?;
        create_directory(disk, target)?;
        refuse_content(disk, target)?;
        chain.last().manifest.write(disk, target)?;
        Ok(Restoring {
            disk,
            chain,
            target: target.to_path_buf(),
        })
    }

    /// Copies the files. None of them is there.
    ///
    /// # Errors
    ///
    /// `CorruptFile`: a file has changed since it was verified. `Io`: one can't be read or written.
    pub fn finish(self) -> Result<BackupSummary> {
        let (disk, target) = (self.disk, &*self.target);
        let files = self.chain.files()?;
        self.make(&files, |copy| {
            // The holes of a compressed tablespace belong to it. Others are as they were made: later writes
            // do not fail for space.
            match FileHeader::read(copy).is_ok_and(|header| header.compression.is_some()) {
                true => Ok(()),
                false => copy.fill_holes(),
            }
        })?;
        disk.remove(&target.join(MANIFEST))?;
        disk.sync_dir(target)?;
        Ok(self.chain.summary(&files))
    }

    /// Makes the files, durably, the control file last.
    fn make(
        &self,
        files: &[Composed<'_>],
        finish: impl Fn(&dyn DiskFile) -> Result<()> + Sync,
    ) -> Result<()> {
        let (disk, target) = (self.disk, &*self.target);
        let mut directories = Directories::default();
        for file in files {
            directories.make(disk, target, file.path)?;
        }
        let is_control = |file: &&Composed<'_>| file.path == CONTROL_FILE;
        let (control, others): (Vec<_>, Vec<_>) = files.iter().partition(is_control);
        for files in [others, control] {
            let made = map_together(&files, DISK_THREADS, |file| {
                let made = self.chain.make(file, target)?;
                finish(&*made)?;
                made.sync()
            });
            made.into_iter().collect::<Result<()>>()?;
        }
        directories.sync(disk)?;
        disk.sync_dir(target)
    }

    /// Makes a whole backup instead.
    fn merge(self) -> Result<BackupSummary> {
        let (disk, target) = (self.disk, &*self.target);
        let files = self.chain.files()?;
        self.make(&files, |_| Ok(()))?;
        let listed = map_together(&files, DISK_THREADS, |file| sum(disk, target, file.path));
        let listed: Vec<BackupFile> = listed.into_iter().collect::<Result<_>>()?;
        let last = self.chain.last().manifest.clone();
        let spaces = last.spaces.into_iter().map(|space| BackupSpace {
            is_whole: true,
            ..space
        });
        let manifest = Manifest {
            base: None,
            spaces: spaces.collect(),
            files: listed,
            ..last
        };
        // In place of the one that said that it is not complete.
        manifest.write(disk, target)?;
        Ok(manifest.into_summary())
    }
}

/// [`verify`] on another implementation of the disk.
pub fn verify_on(disk: &dyn Disk, dir: &Path) -> Result<BackupSummary> {
    let manifest = Manifest::read(disk, dir)?;
    verify_content(disk, dir, &manifest)?;
    Ok(manifest.into_summary())
}

/// [`restore_chain`] on another implementation of the disk.
pub fn restore_on(disk: &dyn Disk, dirs: &[&Path], target: &Path) -> Result<BackupSummary> {
    Restoring::begin(disk, dirs, target)?.finish()
}

/// [`merge`] on another implementation of the disk.
pub fn merge_on(disk: &dyn Disk, dirs: &[&Path], target: &Path) -> Result<BackupSummary> {
    Restoring::begin(disk, dirs, target)?.merge()
}

/// Refuses a backup, or what an interrupted restore has left, as a database.
pub(crate) fn refuse_as_database(disk: &dyn Disk, dir: &Path) -> Result<()> {
    match disk.exists(&dir.join(MANIFEST))? {
        false => Ok(()),
        true => Err(Error::invalid(format!(
            "a database in {}: {MANIFEST} says that it is a backup, or what a restore has left that did not come \
             to its end. `varve restore` makes a database of a backup, in an empty directory",
            dir.display()
        ))),
    }
}

/// Whether all is in the backup in `dir` as its manifest says.
pub(super) fn verify_content(disk: &dyn Disk, dir: &Path, manifest: &Manifest) -> Result<()> {
    let damaged: BTreeSet<PageId> = manifest.damaged.iter().copied().collect();
    let verified = map_together(&manifest.files, DISK_THREADS, |file| {
        let found = check_file(disk, dir, file, manifest.page_size as usize, &damaged)?;
        check_sum(&dir.join(&file.path), file, &found)
    });
    verified.into_iter().collect::<Result<()>>()?;
    let (from, to) = (manifest.from, manifest.to);
    verify_copied_log(disk, dir, &manifest.uuid, from, to)?;
    let copies = control_copies(disk, dir)?;
    let says_so = copies.into_iter().any(|copy| {
        let control = copy.ok().flatten().map(|copied| copied.control);
        control.is_some_and(|c| c.uuid == manifest.uuid && c.checkpoint == from)
    });
    match says_so {
        true => Ok(()),
        false => Err(Error::CorruptFile {
            path: dir.join(CONTROL_FILE),
            expected: format!("a checkpoint at LSN {from}, as {MANIFEST} says"),
            found: "another one".into(),
        }),
    }
}

/// Checks the pages of a tablespace, and computes the checksum of any file.
fn check_file(
    disk: &dyn Disk,
    dir: &Path,
    file: &BackupFile,
    page_size: usize,
    damaged: &BTreeSet<PageId>,
) -> Result<BackupFile> {
    let path = dir.join(&file.path);
    let extension = Path::new(&file.path).extension();
    let has = |known: &str| extension.is_some_and(|e| e == known);
    let changed;
    let mut pages: Box<dyn Iterator<Item = PageId> + '_> = if has(FILE_EXTENSION) {
        let header = FileHeader::read(&*disk.open(&path, OpenMode::ReadOnly)?)?;
        let space = header.intro.space;
        Box::new((0..=u32::MAX).map(move |no| PageId::new(space, PageNo(no))))
    } else if has(changed::EXTENSION) {
        changed = ChangedFile::open(disk, &path, page_size)?;
        Box::new(changed.pages())
    } else {
        Box::new(std::iter::empty())
    };
    read_all(disk, dir, &file.path, &mut |bytes, _| {
        // What is behind an increment's pages is none.
        for (bytes, id) in bytes.chunks(page_size).zip(&mut pages) {
            let whole = match bytes.len() == page_size {
                true if damaged.contains(&id) => Ok(()),
                true => page::verify(bytes, id),
                false => {
                    let found = format!("{} bytes", bytes.len());
                    Err(Error::corrupt(id, "a whole page", found))
                }
            };
            whole.map_err(|e| e.in_file(&path.display().to_string()))?;
        }
        Ok(())
    })
}

/// What is to be said of a file in a manifest.
pub(super) fn sum(disk: &dyn Disk, dir: &Path, path: &str) -> Result<BackupFile> {
    read_all(disk, dir, path, &mut |_, _| Ok(()))
}

/// Reads a file from its beginning to its end. `each` gets the bytes, whole pages, and where they stand.
pub(super) fn read_all(
    disk: &dyn Disk,
    dir: &Path,
    path: &str,
    each: &mut dyn FnMut(&mut [u8], u64) -> Result<()>,
) -> Result<BackupFile> {
    let file = disk.open(&dir.join(path), OpenMode::ReadOnly)?;
    let bytes = file.len()?;
    let mut buf = vec![0; CHUNK.min(bytes as usize)];
    let (mut at, mut crc) = (0, 0);
    while at < bytes {
        let some = &mut buf[..CHUNK.min((bytes - at) as usize)];
        file.read_at(some, at)?;
        crc = crc32c::crc32c_append(crc, some);
        each(some, at)?;
        at += some.len() as u64;
    }
    Ok(BackupFile {
        path: path.into(),
        bytes,
        crc,
    })
}

pub(super) fn check_sum(path: &Path, expected: &BackupFile, found: &BackupFile) -> Result<()> {
    let words = |file: &BackupFile| format!("{} bytes with checksum {:08x}", file.bytes, file.crc);
    match expected == found {
        true => Ok(()),
        false => Err(Error::CorruptFile {
            path: path.to_path_buf(),
            expected: words(expected),
            found: words(found),
        }),
    }
}

/// Copies a file to the same place in `target`, with holes for its zeros; the caller syncs it.
pub(super) fn copy_back(
    disk: &dyn Disk,
    dir: &Path,
    target: &Path,
    file: &BackupFile,
) -> Result<Arc<dyn DiskFile>> {
    let to = disk.open(&target.join(&file.path), OpenMode::CreatePrivate)?;
    let found = read_all(disk, dir, &file.path, &mut |bytes, offset| {
        write_sparse(&*to, bytes, offset)
    })?;
    check_sum(&dir.join(&file.path), file, &found)?;
    to.set_len(file.bytes)?;
    Ok(to)
}
