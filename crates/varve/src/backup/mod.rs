//! Backups: a copy of a database that is in use, and a database made of such a copy.
//!
//! # What a backup is
//!
//! A directory with the files of a database as a crash might have left them, and a manifest that says which
//! these are (`manifest`). So restoring it is copying the files back, and the ordinary recovery of the next
//! start (`restore`). It holds what had committed when it ended, and nothing else; what was prepared is
//! prepared.
//!
//! # How it is made
//!
//! 1. The redo log's files are kept from the checkpoint on (KEEP-1). From here on redo is copied as it
//!    becomes durable, so that the log seldom keeps more than a file for it.
//! 2. The tablespaces are listed, and the number is noted that the next one will have.
//! 3. Their files are copied, page by page (`pages`), by several threads. Users go on, DDL included.
//! 4. DDL is kept away for a moment, in which the tablespaces are listed again, those that were made
//!    meanwhile are copied, and the log is made durable up to its end: there the backup ends.
//! 5. The rest of the redo is copied, the files get the names that they had in step 4, those of tablespaces
//!    that have gone are left out, the control file is written, and last, when all of it is durable, the
//!    manifest.
//!
//! Why recovery makes a database of that:
//!
//! - **BACKUP-1** Every page was read after step 1, so what it lacks is in the redo from the checkpoint of
//!   step 1 on. Every page was written before step 4 ended, so no change in it is beyond the redo's end
//!   (WAL-1); this is checked. A page's LSN says which redo it has.
//! - **BACKUP-2** The tablespaces are those of the moment at which the redo ends. One that was made after
//!   step 2 has all its changes in the redo, but for the first two pages, with which it was made: these are
//!   copied, and recovery does the rest, however large it is. One that was renamed has the name that it has
//!   in the definitions. Undo tablespaces take each other's places without DDL: it is made sure that none did
//!   between the list and the end of the redo.
//! - **BACKUP-3** Every page was whole when it was written to the backup, or is named in the manifest; every
//!   frame of redo was (LCOPY-1).
//! - **BACKUP-4** Nobody waits for a backup: not for redo capacity (KEEP-2), nor for pages, which no latch
//!   keeps. DDL waits for step 4.
//! - **BACKUP-5** What is not complete, or was changed, is not taken for a backup: there is no manifest
//!   before all is durable, and it has the checksums of all files and its own.
//! - **BACKUP-6** Pages of a tablespace are written encrypted, or in clear, as its copied page 0 says, up to
//!   the backup's end (SP-18): who makes a database of it writes pages as that page says until redo has
//!   changed it. One of which others came to be written otherwise is copied anew, before step 4.
//!
//! Files of tables in other directories are in the backup at their links' places, and so in the database that
//! is made of it: it can be restored beside the one that it was made of. The same with undo tablespaces. What
//! is not in a backup is made anew at each start: temporary tables, the history store, the doublewrite file.

mod chain;
mod changed;
mod collection;
mod list;
mod making;
mod manifest;
mod pages;
mod restore;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::base::{Error, Lsn, PageId, Result};
use crate::io::{DIRECT_BLOCK, Disk, DiskFile};
use crate::page;

pub use collection::{COLLECTION, Collection};
#[cfg(feature = "internals")]
pub use making::Backup;
#[cfg(not(feature = "internals"))]
pub(crate) use making::Backup;
pub use manifest::{BackupFile, MANIFEST};
pub(crate) use restore::refuse_as_database;
pub use restore::{Restoring, begin_restore, merge, restore, restore_chain, verify, verify_chain};
#[cfg(feature = "internals")]
pub use restore::{merge_on, restore_on, verify_on};

/// While a backup is being made its directory has this one, and this mark.
const UNFINISHED: &str = "unfinished";
const UNFINISHED_MARK: &str = "varve-backup.unfinished";

/// So much is read and written at a time.
const PIECE_BYTES: usize = 1 << 20;

/// How a backup is made.
#[derive(Clone, Debug)]
pub struct BackupOptions {
    /// Makes an increment: a backup that has the pages which were written since this one was made, which is a
    /// whole one or an increment itself. Nothing else is read of the tablespaces.
    pub base: Option<PathBuf>,
    /// Threads that copy, the caller's included.
    pub threads: u32,
    /// A backup that is behind the log's checkpoint by more bytes of redo than this fails: the disk of the
    /// database has to hold them. So does one that could end, and nobody ends while so much is written: the
    /// backup's disk has to hold it.
    pub max_redo_bytes: u64,
    /// Of tablespaces; 0: as fast as it goes.
    pub bytes_per_second: u64,
    /// Damaged pages are copied as they are, and tablespaces that were lost left out; the backup says which.
    /// Otherwise it fails.
    pub keep_damaged: bool,
    /// Set by another thread, it ends the backup with [`Error::Interrupted`].
    pub interrupt: Option<Arc<AtomicBool>>,
    #[cfg(feature = "internals")]
    pub piece_bytes: usize,
}

impl Default for BackupOptions {
    fn default() -> BackupOptions {
        BackupOptions {
            base: None,
            threads: 2,
            max_redo_bytes: 8 << 30,
            bytes_per_second: 0,
            keep_damaged: false,
            interrupt: None,
            #[cfg(feature = "internals")]
            piece_bytes: PIECE_BYTES,
        }
    }
}

impl BackupOptions {
    fn validate(&self) -> Result<()> {
        match self.threads {
            1..=64 => Ok(()),
            threads => Err(Error::invalid(format!(
                "backup.threads {threads} is not from 1 to 64"
            ))),
        }
    }

    fn piece_bytes(&self) -> usize {
        #[cfg(feature = "internals")]
        return self.piece_bytes;
        #[cfg(not(feature = "internals"))]
        PIECE_BYTES
    }
}

/// A backup that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupSummary {
    /// The copied redo: all that had committed before it ends is in the backup.
    pub from: Lsn,
    pub to: Lsn,
    /// How many it has, the manifest aside, and their lengths together, holes included.
    pub files: usize,
    pub bytes: u64,
    /// Pages that were damaged, if these were to be kept.
    pub damaged: Vec<PageId>,
    /// Where tablespaces should have been that were not there, if these were to be left out.
    pub lost: Vec<String>,
    /// It has only what was written since its base.
    pub is_increment: bool,
}

/// The directories that files were put in.
#[derive(Default)]
struct Directories {
    made: BTreeSet<PathBuf>,
}

impl Directories {
    /// The place of a file in the backup, whose directory is there then.
    fn make(&mut self, disk: &dyn Disk, dir: &Path, path: &str) -> Result<PathBuf> {
        let full = dir.join(path);
        let parent = full.parent().unwrap_or(dir);
        if !self.made.contains(parent) {
            disk.create_dir_all(parent)?;
            self.made.insert(parent.to_path_buf());
        }
        Ok(full)
    }

    fn sync(&self, disk: &dyn Disk) -> Result<()> {
        self.made.iter().try_for_each(|made| disk.sync_dir(made))
    }
}

/// Writes `bytes` at `offset`, a multiple of the block, but for blocks of zeros: where the file is new these
/// become holes.
fn write_sparse(file: &dyn DiskFile, bytes: &[u8], offset: u64) -> Result<()> {
    let mut run = 0..0;
    for block in bytes.chunks(DIRECT_BLOCK).chain([&[][..]]) {
        if !page::is_zero(block) {
            run.end += block.len();
            continue;
        }
        if !run.is_empty() {
            file.write_at(&bytes[run.clone()], offset + run.start as u64)?;
        }
        let next = run.end + block.len();
        run = next..next;
    }
    Ok(())
}

/// `Invalid` if something is in the directory.
fn refuse_content(disk: &dyn Disk, dir: &Path) -> Result<()> {
    let entries = disk.list(dir)?;
    let Some(first) = entries.first() else {
        return Ok(());
    };
    let has = |name: &str| entries.iter().any(|entry| entry.name == name);
    let what = match (has(MANIFEST), has(UNFINISHED_MARK)) {
        (true, _) => "it holds a backup".to_string(),
        (_, true) => "it holds a backup that is being made, or was cut off".to_string(),
        _ => format!("{} is in it", first.name),
    };
    Err(Error::invalid(format!(
        "directory {}, which is not empty: {what}",
        dir.display()
    )))
}
