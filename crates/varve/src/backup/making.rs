//! Making a backup: the steps that the folder's introduction names.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::list::{Listed, Lister};
use super::manifest::{BackupFile, BackupSpace, MANIFEST, Manifest, changed_path, unfinished};
use super::pages::{Base, Copied, Copying, Manner};
use super::restore::sum;
use super::{
    BackupOptions, BackupSummary, Directories, UNFINISHED, UNFINISHED_MARK, refuse_content,
};
use crate::base::{Error, Lsn, PageId, Result, Sabotage, SpaceId, threads};
use crate::ddl::Ddl;
use crate::io::{Disk, OpenMode, create_directory};
use crate::redo::{CONTROL_FILE, Control, ControlFile, LogCopy, REDO_DIR};
use crate::space::{PeriodId, Stage};

/// How often the log is looked at while nothing else is to be done.
const PAUSE: Duration = Duration::from_millis(20);
/// Rounds until nothing has to be copied anew.
const MOST_ROUNDS: usize = 20;
/// How long a tablespace of undo is looked for while others take its place.
const PATIENCE: Duration = Duration::from_secs(5);
/// A new tablespace's first pages, which no redo makes (BACKUP-2).
const FIRST_PAGES: u32 = 2;

/// A backup that is being made. If it does not come to its end, what was written goes.
pub struct Backup {
    ddl: Arc<Ddl>,
    options: BackupOptions,
    begun: u64,
    from: Lsn,
    log: LogCopy,
    /// Tablespaces from here on were made after it began.
    first_new: SpaceId,
    copying: Copying,
    place: Place,
    /// That begins with it.
    period: PeriodId,
}

/// The directory, and what was made in it: that goes if the backup does not come to its end.
struct Place {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    directories: Directories,
    /// Files in their places.
    files: Vec<PathBuf>,
    is_complete: bool,
}

impl Place {
    /// Takes the directory, which is empty or is made, for this backup alone.
    fn take(disk: Arc<dyn Disk>, dir: &Path) -> Result<Place> {
        create_directory(&*disk, dir)?;
        refuse_content(&*disk, dir)?;
        let mark = dir.join(UNFINISHED_MARK);
        // Of two that come together one does not get it.
        disk.open(&mark, OpenMode::CreatePrivate)?;
        let place = Place {
            dir: dir.to_path_buf(),
            directories: Directories::default(),
            files: vec![mark],
            is_complete: false,
            disk,
        };
        place.disk.create_dir_all(&dir.join(UNFINISHED))?;
        Ok(place)
    }

    /// Where a file of the backup is to be.
    fn of(&mut self, path: &str) -> Result<PathBuf> {
        let full = self.directories.make(&*self.disk, &self.dir, path)?;
        self.files.push(full.clone());
        Ok(full)
    }

    /// All but the manifest is in its place.
    fn settle(&mut self) -> Result<()> {
        remove_directory(&*self.disk, &self.dir.join(UNFINISHED))?;
        self.disk.remove(&self.dir.join(UNFINISHED_MARK))?;
        self.directories.sync(&*self.disk)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.is_complete {
            return;
        }
        // What can't be removed has no manifest, and is refused by name as a backup and as a place for one.
        let disk = &*self.disk;
        let _ = remove_directory(disk, &self.dir.join(UNFINISHED));
        let _ = remove_directory(disk, &self.dir.join(REDO_DIR));
        let names = [CONTROL_FILE, MANIFEST, &unfinished(MANIFEST)];
        let named = names.iter().map(|name| self.dir.join(name));
        for file in named.chain(self.files.drain(..)) {
            let _ = disk.remove(&file);
        }
        for directory in self.directories.made.iter().rev() {
            if *directory != self.dir {
                let _ = disk.remove_dir(directory);
            }
        }
    }
}

/// The moment that a backup is of.
pub struct End {
    /// All that there were.
    tablespaces: BTreeMap<SpaceId, Listed>,
    /// Places of tables that are neither in their definitions nor in their files.
    lost: Vec<String>,
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
        Backup::checked_base(ddl, disk, dir, options).map(drop)
    }

    /// The same, and what an increment goes with.
    fn checked_base(
        ddl: &Ddl,
        disk: &dyn Disk,
        dir: &Path,
        options: &BackupOptions,
    ) -> Result<Option<Base>> {
        options.validate()?;
        ddl.core.check_writable()?;
        if is_inside(dir, ddl.spaces.dir()) {
            return Err(Error::invalid(format!(
                "a backup in {}, which is in the database's own directory: choose another one",
                dir.display()
            )));
        }
        let base = base_of(ddl, disk, options)?;
        let written = ddl.spaces.written_pages();
        if let Some(base) = base.as_ref().filter(|base| !written.knows(base.period)) {
            return Err(base.unknown(written));
        }
        if disk.exists(dir)? {
            refuse_content(disk, dir)?;
        }
        Ok(base)
    }

    /// Steps 1 and 2.
    ///
    /// # Errors
    ///
    /// `Invalid`: the directory is not empty, or is in the database's own; there can't be an increment on
    /// that base. `NotFound`, `CorruptFile`: it is no backup.
    pub fn begin(
        ddl: Arc<Ddl>,
        disk: Arc<dyn Disk>,
        dir: &Path,
        options: BackupOptions,
    ) -> Result<Backup> {
        let base = Backup::checked_base(&ddl, &*disk, dir, &options)?;
        let place = Place::take(disk.clone(), dir)?;
        let core = &ddl.core;
        let (from, kept) = core.log.keep_from_checkpoint(options.max_redo_bytes);
        let log = LogCopy::begin(from, kept, disk.clone(), dir)?;
        let (period, place_of_notes) = ddl.spaces.written_pages().begin()?;
        ddl.control
            .update(|control| control.written = Some(place_of_notes))?;
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
        base.as_ref().map_or(Ok(()), |base| base.ask(&lister))?;
        let list = {
            let _no_ddl = core.tables.serialize_ddl();
            let mut list = lister.undo();
            list.append(&mut lister.tables()?.0);
            list.into_values().collect()
        };
        Ok(Backup {
            begun: now(),
            from,
            log,
            first_new,
            copying: Copying::new(manner, lister, base, (disk, dir), list),
            ddl,
            options,
            place,
            period,
        })
    }

    /// Step 3, with several threads. The caller's follows the log in between, and tells how many bytes were
    /// copied.
    pub fn copy_all(&mut self, tell: &dyn Fn(u64)) -> Result<()> {
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
            // Also if it panics.
            let _leaves = Leaves(&busy);
            let mut buf = None;
            let mut done = Ok(true);
            while matches!(done, Ok(true)) && !stops.load(Relaxed) {
                done = copying.step(&mut buf);
            }
            if done.is_err() {
                stops.store(true, Relaxed);
            }
            done.map(drop)
        };
        thread::scope(|scope| {
            let mut helpers = Vec::new();
            for _ in 1..options.threads {
                busy.fetch_add(1, Relaxed);
                match threads::spawn_scoped(scope, "varve-backup", copy) {
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

    /// Where the copied redo ends.
    pub fn copied_to(&self) -> Lsn {
        self.log.end()
    }

    /// Copies what has become durable of the log.
    pub fn follow(&mut self) -> Result<()> {
        self.copying.check_interrupt()?;
        self.log.follow()
    }

    /// Copies tablespaces that were made meanwhile, and those that are to be copied anew, so that little is
    /// left for step 4.
    pub fn keep_up(&mut self) -> Result<()> {
        self.forget_other_stages()?;
        let (tables, _) = self.copying.lister().tables()?;
        self.copy_new(&tables)?;
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
        self.place.is_complete = true;
        Ok(made)
    }

    /// Step 4.
    pub fn end(&mut self) -> Result<End> {
        for _ in 0..MOST_ROUNDS {
            // Before DDL waits: most of what is left.
            self.keep_up()?;
            if let Some(end) = self.end_now()? {
                return Ok(end);
            }
        }
        Err(Error::invalid(
            "a backup that could not end, because tablespaces are being encrypted or replaced all the time: try again",
        ))
    }

    /// Step 4, if nothing else has to be copied anew before. DDL waits meanwhile.
    fn end_now(&self) -> Result<Option<End>> {
        let core = &self.ddl.core;
        let _no_ddl = core.tables.serialize_ddl();
        let (mut tables, lost) = self.copying.lister().tables()?;
        self.copy_new(&tables)?;
        let patience = Instant::now() + PATIENCE;
        loop {
            core.check_usable()?;
            self.copying.check_interrupt()?;
            let mut undo = self.copying.lister().undo();
            self.copy_new(&undo)?;
            core.log.sync_to(core.log.next_lsn())?;
            let to = core.log.durable_lsn();
            let after = self.copying.lister().undo();
            let mut spaces = core.undo.spaces().iter().map(|space| space.id());
            let lacks = spaces.find(|space| !self.copying.has(*space));
            // BACKUP-2: one that is being made now is in neither, or in both.
            if lacks.is_none() && after.keys().eq(undo.keys()) {
                if self.forget_other_stages()? {
                    return Ok(None);
                }
                // What no rollback segment is in any more may have lost its file.
                undo.retain(|space, _| self.copying.has(*space));
                tables.append(&mut undo);
                let control = self.ddl.control.control();
                return Ok(Some(End {
                    tablespaces: tables,
                    lost,
                    to,
                    control,
                }));
            }
            if Instant::now() > patience {
                let what = lacks.map_or("undo tablespaces that stay".into(), |space| {
                    format!("the file of undo tablespace {space}")
                });
                return Err(Error::not_found(what));
            }
            thread::sleep(PAUSE);
        }
    }

    /// BACKUP-6: tablespaces whose stage of encryption has become another one are to be copied anew. Whether
    /// there are any.
    fn forget_other_stages(&self) -> Result<bool> {
        self.copying.forget_if(|space, copied| {
            // One that was made meanwhile has all its pages in the redo.
            let is_new = space >= self.first_new;
            let now = self.copying.lister().stage(space);
            // A page 0 that is damaged says nothing.
            let says = copied.encrypted.is_some() && now.is_some();
            !is_new && says && now.map(Stage::writes_encrypted) != copied.encrypted
        })
    }

    /// Copies what was not copied of these tablespaces: those that were made meanwhile, and that others were
    /// in the way of. Those that are not there are left out.
    fn copy_new(&self, list: &BTreeMap<SpaceId, Listed>) -> Result<()> {
        let log = &self.ddl.core.log;
        for listed in list.values() {
            let is_new = listed.space >= self.first_new;
            if self.copying.has(listed.space)
                || is_new && log.is_sabotaged(Sabotage::BackupWithoutNewTables)
            {
                continue;
            }
            let most = match is_new {
                true => FIRST_PAGES,
                false => u32::MAX,
            };
            self.copying.copy_now(listed, most)?;
        }
        Ok(())
    }

    /// Step 5, but for the redo.
    fn make_complete(&mut self, end: End) -> Result<BackupSummary> {
        let End {
            tablespaces: list,
            mut lost,
            to,
            control,
        } = end;
        let Copied {
            mut spaces,
            mut damaged,
            newest,
        } = self.copying.take();
        if newest > to {
            return Err(Error::CorruptFile {
                path: self.ddl.spaces.dir().to_path_buf(),
                expected: format!("pages with changes up to the end of the redo log, LSN {to}"),
                found: format!("one of LSN {newest}"),
            });
        }
        damaged.retain(|page| list.contains_key(&page.space));
        let (mut files, mut tablespaces) = (Vec::new(), Vec::new());
        for listed in list.into_values() {
            for mark in &listed.marks {
                let path = self.place.of(mark)?;
                let file = self.place.disk.open(&path, OpenMode::CreatePrivate)?;
                file.sync()?;
                files.push(BackupFile {
                    path: mark.clone(),
                    bytes: 0,
                    crc: 0,
                });
            }
            let Some(copied) = spaces.remove(&listed.space) else {
                if !listed.is_discarded {
                    lost.push(listed.place);
                }
                continue;
            };
            if let Some((bytes, crc)) = copied.file {
                let path = match copied.is_whole {
                    true => listed.place.clone(),
                    false => changed_path(listed.space),
                };
                let from = self.copying.unfinished_path(listed.space);
                let place = self.place.of(&path)?;
                self.place.disk.rename(&from, &place)?;
                files.push(BackupFile { path, bytes, crc });
            }
            tablespaces.push(BackupSpace {
                space: listed.space,
                pages: copied.pages,
                encrypted: copied.encrypted,
                is_whole: copied.is_whole,
                path: listed.place,
            });
        }
        if let (Some(path), false) = (lost.first(), self.options.keep_damaged) {
            return Err(Error::not_found(format!(
                "{path}, a table's file that the backup would lack unless damaged tables are kept as they are,"
            )));
        }
        // With copies of tablespaces that have gone.
        self.place.settle()?;
        self.write_rest((files, tablespaces), (to, control), (damaged, lost))
    }

    /// The log, the control file, and the manifest.
    fn write_rest(
        &mut self,
        (mut files, spaces): (Vec<BackupFile>, Vec<BackupSpace>),
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
            written: None,
            ..control
        };
        let (disk, dir) = (&*self.place.disk, &*self.place.dir);
        let mode = OpenMode::CreatePrivate;
        drop(ControlFile::create_as(disk, dir, control, mode)?);
        files.push(sum(disk, dir, CONTROL_FILE)?);
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
            period: Some(self.period),
            base: self.copying.base_period(),
            spaces,
            files,
        };
        self.copying.check_interrupt()?;
        manifest.write(disk, dir)?;
        Ok(manifest.into_summary())
    }
}

/// What an increment goes with.
fn base_of(ddl: &Ddl, disk: &dyn Disk, options: &BackupOptions) -> Result<Option<Base>> {
    let Some(dir) = &options.base else {
        return Ok(None);
    };
    let manifest = Manifest::read(disk, dir)?;
    Base::of(&manifest, dir, ddl.control.control().uuid).map(Some)
}

/// Counts a thread that ends.
struct Leaves<'a>(&'a AtomicUsize);

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
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

/// Removes a directory with all that is in it.
fn remove_directory(disk: &dyn Disk, dir: &Path) -> Result<()> {
    for entry in disk.list(dir)? {
        let path = dir.join(&entry.name);
        match entry.is_dir {
            true => remove_directory(disk, &path)?,
            false => disk.remove(&path)?,
        }
    }
    disk.remove_dir(dir)
}

/// Seconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}
