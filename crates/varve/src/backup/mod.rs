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
//!
//! Files of tables in other directories are in the backup at their links' places, and so in the database that
//! is made of it: it can be restored beside the one that it was made of. The same with undo tablespaces. What
//! is not in a backup is made anew at each start: temporary tables, the history store, the doublewrite file.

mod list;
mod manifest;
mod pages;
mod restore;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::base::{Error, Lsn, PageId, Result, Sabotage, SpaceId, threads};
use crate::ddl::Ddl;
use crate::io::{Disk, OpenMode, create_directory};
use crate::redo::{CONTROL_FILE, Control, ControlFile, LogCopy, REDO_DIR};

use list::{Listed, Lister};
use manifest::Manifest;
use pages::{Copying, Manner};

pub use manifest::{BackupFile, MANIFEST};
pub(crate) use restore::refuse_as_database;
pub use restore::{restore, verify};
#[cfg(feature = "internals")]
pub use restore::{restore_on, verify_on};

/// So much is read and written at a time.
const PIECE_BYTES: usize = 1 << 20;
/// How often the log is looked at while nothing else is to be done.
const PAUSE: Duration = Duration::from_millis(20);
/// A new tablespace's first pages, which no redo makes (BACKUP-2).
const FIRST_PAGES: u32 = 2;

/// How a backup is made.
#[derive(Clone, Debug)]
pub struct BackupOptions {
    /// Threads that copy, the caller's included.
    pub threads: u32,
    /// A backup that is behind the log's checkpoint by more bytes of redo than this fails: the disk of the
    /// database has to hold them.
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
    pub files: usize,
    pub bytes: u64,
    /// Pages that were damaged, if these were to be kept.
    pub damaged: Vec<PageId>,
    /// Where tablespaces should have been that were not there, if these were to be left out.
    pub lost: Vec<String>,
}

/// A backup that is being made. If it does not come to its end, what was written goes.
pub struct Backup {
    ddl: Arc<Ddl>,
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    options: BackupOptions,
    begun: u64,
    from: Lsn,
    log: LogCopy,
    /// Tablespaces from here on were made after it began.
    first_new: SpaceId,
    copying: Copying,
    is_complete: bool,
}

/// Makes a backup in `dir`, which is made, or is empty.
pub(crate) fn back_up(ddl: &Arc<Ddl>, dir: &Path, options: BackupOptions) -> Result<BackupSummary> {
    let mut backup = Backup::begin(ddl.clone(), ddl.spaces.disk().clone(), dir, options)?;
    backup.copy_all()?;
    backup.finish()
}

impl Backup {
    /// Steps 1 and 2.
    ///
    /// # Errors
    ///
    /// `Invalid`: the directory is not empty, or is in the database's own.
    pub fn begin(
        ddl: Arc<Ddl>,
        disk: Arc<dyn Disk>,
        dir: &Path,
        options: BackupOptions,
    ) -> Result<Backup> {
        options.validate()?;
        ddl.core.check_writable()?;
        if is_inside(dir, ddl.spaces.dir()) {
            return Err(Error::invalid(format!(
                "a backup in {}, which is in the database's own directory: choose another one",
                dir.display()
            )));
        }
        create_directory(&*disk, dir)?;
        refuse_content(&*disk, dir)?;
        let core = &ddl.core;
        let (from, kept) = core.log.keep_from_checkpoint(options.max_redo_bytes);
        let log = LogCopy::begin(from, kept, disk.clone(), dir)?;
        let first_new = SpaceId(ddl.control.control().next_space);
        let page_size = core.pool.page_size();
        let manner = Manner {
            page_size,
            piece_pages: (options.piece_bytes() / page_size).max(1) as u32,
            bytes_per_second: options.bytes_per_second,
            keeps_damaged: options.keep_damaged,
            interrupt: options.interrupt.clone(),
            is_careless: core.log.is_sabotaged(Sabotage::TornPageInBackup),
        };
        let lister = Lister::new(ddl.clone());
        let list = {
            let _no_ddl = core.tables.serialize_ddl();
            let mut list = lister.undo();
            list.append(&mut lister.tables()?);
            list.into_values().collect()
        };
        Ok(Backup {
            begun: now(),
            from,
            log,
            first_new,
            copying: Copying::new(manner, lister, (disk.clone(), dir), list),
            ddl,
            disk,
            dir: dir.to_path_buf(),
            options,
            is_complete: false,
        })
    }

    /// Step 3, with several threads. The caller's follows the log in between.
    pub fn copy_all(&mut self) -> Result<()> {
        let Backup {
            copying,
            log,
            options,
            ddl,
            ..
        } = self;
        let (copying, core) = (&*copying, &ddl.core);
        let busy = AtomicUsize::new(0);
        let stops = AtomicBool::new(false);
        let copy = || {
            let mut buf = None;
            let mut done = Ok(true);
            while matches!(done, Ok(true)) && !stops.load(Relaxed) {
                done = copying.step(&mut buf);
            }
            if done.is_err() {
                stops.store(true, Relaxed);
            }
            busy.fetch_sub(1, Relaxed);
            done.map(drop)
        };
        thread::scope(|scope| {
            let mut helpers = Vec::new();
            for _ in 1..options.threads {
                busy.fetch_add(1, Relaxed);
                match threads::spawn_scoped(scope, "varve-backup", &copy) {
                    Ok(helper) => helpers.push(helper),
                    // Others do its part.
                    Err(_) => drop(busy.fetch_sub(1, Relaxed)),
                }
            }
            let mut own = || -> Result<()> {
                let mut buf = None;
                loop {
                    core.check_usable()?;
                    log.follow()?;
                    if stops.load(Relaxed) {
                        return Ok(());
                    }
                    if copying.step(&mut buf)? {
                        continue;
                    }
                    match busy.load(Relaxed) {
                        0 => return Ok(()),
                        _ => thread::sleep(PAUSE),
                    }
                }
            };
            let own = own();
            stops.store(true, Relaxed);
            let helped = helpers.into_iter();
            let helped = helped.map(|helper| helper.join().expect("its panic is ours"));
            helped.fold(own, |all, one| all.and(one))
        })
    }

    /// Copies a piece of a tablespace, and what has become durable of the log. False: step 3 is over.
    #[cfg(feature = "internals")]
    pub fn step(&mut self) -> Result<bool> {
        self.log.follow()?;
        self.copying.step(&mut None)
    }

    /// Steps 4 and 5.
    pub fn finish(mut self) -> Result<BackupSummary> {
        let (list, to, control) = self.end()?;
        self.log.copy_to(to)?;
        let made = self.make_complete(list, to, control)?;
        self.is_complete = true;
        Ok(made)
    }

    /// Step 4. Which tablespaces there are, where the redo ends, and what the control file is to say.
    fn end(&mut self) -> Result<(BTreeMap<SpaceId, Listed>, Lsn, Control)> {
        // Before DDL waits: most of what is left.
        self.log.follow()?;
        let core = &self.ddl.core;
        let _no_ddl = core.tables.serialize_ddl();
        let mut tables = self.copying.lister().tables()?;
        self.copy_new(&tables)?;
        loop {
            self.copying.check_interrupt()?;
            let mut undo = self.copying.lister().undo();
            if !self.copy_new(&undo)? {
                // One of them has gone.
                thread::sleep(PAUSE);
                continue;
            }
            core.log.sync_to(core.log.next_lsn())?;
            let to = core.log.durable_lsn();
            let after = self.copying.lister().undo();
            // BACKUP-2: one that is being made now is in neither, or in both.
            if !after.keys().eq(undo.keys()) {
                continue;
            }
            let control = self.ddl.control.control();
            tables.append(&mut undo);
            return Ok((tables, to, control));
        }
    }

    /// Copies what was not copied of these tablespaces: those that were made meanwhile, and that others were
    /// in the way of. False: one of them is not there.
    fn copy_new(&self, list: &BTreeMap<SpaceId, Listed>) -> Result<bool> {
        let (copied, ..) = self.copying.copied();
        let log = &self.ddl.core.log;
        let mut are_there = true;
        for listed in list.values() {
            let is_new = listed.space >= self.first_new;
            if copied.contains_key(&listed.space)
                || is_new && log.is_sabotaged(Sabotage::BackupWithoutNewTables)
            {
                continue;
            }
            let most = match is_new {
                true => FIRST_PAGES,
                false => u32::MAX,
            };
            are_there &= self.copying.copy_now(listed, most)?;
        }
        Ok(are_there)
    }

    /// Step 5, but for the redo.
    fn make_complete(
        &mut self,
        list: BTreeMap<SpaceId, Listed>,
        to: Lsn,
        control: Control,
    ) -> Result<BackupSummary> {
        let (mut copied, mut damaged, newest) = self.copying.copied();
        if newest > to {
            return Err(Error::CorruptFile {
                path: self.ddl.spaces.dir().to_path_buf(),
                expected: format!("pages with changes up to the end of the redo log, LSN {to}"),
                found: format!("one of LSN {newest}"),
            });
        }
        damaged.retain(|page| list.contains_key(&page.space));
        let (mut files, mut lost) = (Vec::new(), Vec::new());
        let mut directories = Directories::default();
        for listed in list.into_values() {
            for mark in &listed.marks {
                let path = directories.make(&*self.disk, &self.dir, mark)?;
                self.disk.open(&path, OpenMode::CreatePrivate)?.sync()?;
                files.push(BackupFile {
                    path: mark.clone(),
                    bytes: 0,
                    crc: 0,
                });
            }
            let Some(copied) = copied.remove(&listed.space) else {
                if !listed.is_discarded {
                    lost.push(listed.place);
                }
                continue;
            };
            let place = directories.make(&*self.disk, &self.dir, &listed.place)?;
            let from = self.copying.unfinished_path(listed.space);
            self.disk.rename(&from, &place)?;
            files.push(BackupFile {
                path: listed.place,
                bytes: copied.bytes,
                crc: copied.crc,
            });
        }
        if let (Some(path), false) = (lost.first(), self.options.keep_damaged) {
            return Err(Error::not_found(format!(
                "{path}, the file of a table: the backup would lack it; drop the table, or have what is damaged kept"
            )));
        }
        // Of tablespaces that have gone.
        for space in copied.into_keys() {
            self.disk.remove(&self.copying.unfinished_path(space))?;
        }
        directories.sync(&*self.disk)?;
        self.write_rest(files, (to, control), (damaged, lost))
    }

    /// The log, the control file, and the manifest.
    fn write_rest(
        &mut self,
        mut files: Vec<BackupFile>,
        (to, control): (Lsn, Control),
        (damaged, lost): (Vec<PageId>, Vec<String>),
    ) -> Result<BackupSummary> {
        for file in self.log.finish()? {
            files.push(BackupFile {
                path: format!("{REDO_DIR}/{}", file.name),
                bytes: file.bytes,
                crc: file.crc,
            });
        }
        let checkpoint = match self
            .ddl
            .core
            .log
            .is_sabotaged(Sabotage::BackupWithoutOldRedo)
        {
            true => control.checkpoint,
            false => self.from,
        };
        let control = Control {
            checkpoint,
            clean_shutdown: false,
            files_match: false,
            ..control
        };
        let mode = OpenMode::CreatePrivate;
        drop(ControlFile::create_as(
            &*self.disk,
            &self.dir,
            control,
            mode,
        )?);
        files.push(restore::sum(&*self.disk, &self.dir, CONTROL_FILE)?);
        files.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        let manifest = Manifest {
            uuid: control.uuid,
            page_size: control.page_size,
            begun: self.begun,
            ended: now(),
            from: self.from,
            to,
            damaged,
            lost,
            files,
        };
        manifest.write(&*self.disk, &self.dir)?;
        Ok(BackupSummary {
            from: manifest.from,
            to,
            files: manifest.files.len(),
            bytes: manifest.files.iter().map(|file| file.bytes).sum(),
            damaged: manifest.damaged,
            lost: manifest.lost,
        })
    }
}

impl Drop for Backup {
    fn drop(&mut self) {
        if !self.is_complete {
            // What stays has no manifest, and is refused by name as a backup and as a place for one.
            let _ = remove_content(&*self.disk, &self.dir);
        }
    }
}

/// The directories that files were put in.
#[derive(Default)]
struct Directories {
    made: Vec<PathBuf>,
}

impl Directories {
    /// The place of a file in the backup, whose directory is there then.
    fn make(&mut self, disk: &dyn Disk, dir: &Path, path: &str) -> Result<PathBuf> {
        let full = dir.join(path);
        let parent = full.parent().unwrap_or(dir);
        if !self.made.iter().any(|made| made == parent) {
            disk.create_dir_all(parent)?;
            self.made.push(parent.to_path_buf());
        }
        Ok(full)
    }

    fn sync(&self, disk: &dyn Disk) -> Result<()> {
        self.made.iter().try_for_each(|made| disk.sync_dir(made))
    }
}

/// Whether `dir`, which may not be there yet, is in `outer` or is it, by any name.
fn is_inside(dir: &Path, outer: &Path) -> bool {
    let full = std::path::absolute(dir).unwrap_or(dir.to_path_buf());
    // Directories of a simulated disk are none of the system's.
    let there = full.ancestors().find_map(|dir| dir.canonicalize().ok());
    let led_there = there.zip(outer.canonicalize().ok());
    dir.starts_with(outer) || led_there.is_some_and(|(dir, outer)| dir.starts_with(outer))
}

/// `Invalid` if something is in the directory.
fn refuse_content(disk: &dyn Disk, dir: &Path) -> Result<()> {
    let entries = disk.list(dir)?;
    let Some(first) = entries.first() else {
        return Ok(());
    };
    let what = match entries.iter().any(|entry| entry.name == MANIFEST) {
        true => "it holds a backup".to_string(),
        false => format!("{} is in it", first.name),
    };
    Err(Error::invalid(format!(
        "directory {}, which is not empty: {what}",
        dir.display()
    )))
}

/// Removes what is in the directory.
fn remove_content(disk: &dyn Disk, dir: &Path) -> Result<()> {
    for entry in disk.list(dir)? {
        let path = dir.join(&entry.name);
        match entry.is_dir {
            true => {
                remove_content(disk, &path)?;
                disk.remove_dir(&path)?;
            }
            false => disk.remove(&path)?,
        }
    }
    Ok(())
}

/// Seconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}
