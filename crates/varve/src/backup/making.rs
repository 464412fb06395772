//! Making a backup: the steps that the folder's introduction names.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::list::{Listed, Lister};
use super::manifest::{BackupFile, Manifest};
use super::pages::{Copying, Manner};
use super::restore::sum;
use super::{BackupOptions, BackupSummary, Directories, refuse_content};
use crate::base::{Error, Lsn, PageId, Result, Sabotage, SpaceId, threads};
use crate::ddl::Ddl;
use crate::io::{Disk, OpenMode, create_directory};
use crate::redo::{CONTROL_FILE, Control, ControlFile, LogCopy, REDO_DIR};

/// How often the log is looked at while nothing else is to be done.
const PAUSE: Duration = Duration::from_millis(20);
/// A new tablespace's first pages, which no redo makes (BACKUP-2).
const FIRST_PAGES: u32 = 2;

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

/// The moment that a backup is of.
pub struct End {
    /// All that there were.
    tablespaces: BTreeMap<SpaceId, Listed>,
    /// Where the redo ends.
    to: Lsn,
    /// What the control file is to say, the checkpoint aside.
    control: Control,
}

impl Backup {
    /// Whether one can be made there.
    ///
    /// # Errors
    ///
    /// As `begin`.
    pub fn check(ddl: &Ddl, disk: &dyn Disk, dir: &Path, options: &BackupOptions) -> Result<()> {
        options.validate()?;
        ddl.core.check_writable()?;
        if is_inside(dir, ddl.spaces.dir()) {
            return Err(Error::invalid(format!(
                "a backup in {}, which is in the database's own directory: choose another one",
                dir.display()
            )));
        }
        match disk.exists(dir)? {
            true => refuse_content(disk, dir),
            false => Ok(()),
        }
    }

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
        Backup::check(&ddl, &*disk, dir, &options)?;
        create_directory(&*disk, dir)?;
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
        self.copy_all_telling(&|_| ())
    }

    /// The same. The caller's thread tells now and then how many bytes were copied.
    pub fn copy_all_telling(&mut self, tell: &dyn Fn(u64)) -> Result<()> {
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
                    tell(copying.bytes());
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

    /// Copies what has become durable of the log.
    pub fn follow(&mut self) -> Result<()> {
        self.copying.check_interrupt()?;
        self.log.follow()
    }

    /// Steps 4 and 5.
    pub fn finish(mut self) -> Result<BackupSummary> {
        let end = self.end()?;
        self.complete(end)
    }

    /// Step 5.
    pub fn complete(mut self, end: End) -> Result<BackupSummary> {
        self.log.copy_to(end.to)?;
        let made = self.make_complete(end)?;
        self.is_complete = true;
        Ok(made)
    }

    /// Step 4.
    pub fn end(&mut self) -> Result<End> {
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
            return Ok(End {
                tablespaces: tables,
                to,
                control,
            });
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
    fn make_complete(&mut self, end: End) -> Result<BackupSummary> {
        let End {
            tablespaces: list,
            to,
            control,
        } = end;
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
        files.push(sum(&*self.disk, &self.dir, CONTROL_FILE)?);
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

/// Whether `dir`, which may not be there yet, is in `outer` or is it, by any name.
fn is_inside(dir: &Path, outer: &Path) -> bool {
    let full = std::path::absolute(dir).unwrap_or(dir.to_path_buf());
    // Directories of a simulated disk are none of the system's.
    let there = full.ancestors().find_map(|dir| dir.canonicalize().ok());
    let led_there = there.zip(outer.canonicalize().ok());
    dir.starts_with(outer) || led_there.is_some_and(|(dir, outer)| dir.starts_with(outer))
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
