//! Opening a database: its files, its redo, the threads that write; `load` has transactions and tables.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use parking_lot::Mutex;

use super::load::{Loaded, Loader};
use crate::backup::refuse_as_database;
use crate::base::{Error, Lsn, MemoryLimit, Result, SYSTEM_SPACE, Sabotage, SpaceId};
use crate::buffer::{BufferPool, PageStore, PoolSettings};
use crate::db::create::{CREATION_MARK, create};
use crate::db::options::{
    FORCE_DAMAGE, FORCE_NO_REDO, FORCE_NO_UNDO, Options, RecoveryMemory, to_standard_error,
};
use crate::db::pool_warmth::PoolWarmth;
use crate::db::rotation::Rotation;
use crate::db::{Background, Database, DatabaseInner, undo_directory};
use crate::ddl;
use crate::flush::{CheckpointHold, FlushEnv, FlushSettings, Flusher, doublewrite};
use crate::io::{DirLock, Disk, FlushMethod, IoQueue, Overlay, create_directory};
use crate::purge::Purge;
use crate::recovery::{
    self, Changes, DatabaseIdentity, FoundFile, Indexer, IndexerEnv, PageMap, Recovery, Scan,
};
use crate::redo::{CONTROL_FILE, Control, ControlFile, FORMAT_VERSION, LogWriter, RedoLog};
use crate::space::Spaces;
use crate::txn::{Core, CoreHandles, LogLevel, Logger};
use crate::undo::{Directory, require_system_file};

/// What a database is opened for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpenPurpose {
    Use,
    /// To look at what recovery makes of it, on a disk that may be thrown away: without purge, and without
    /// the callers' collations (COL-2).
    Check,
}

/// Opens the database in `dir`, in phases that each return what the next ones need:
///
/// 1. [`take_directory`]: the directory is locked, and a database is created there if that is wanted;
/// 2. [`open_files`]: the control file is read, tablespaces are found, torn pages restored;
/// 3. [`read_redo`]: what the log says beyond the checkpoint is found out, and the log opened for writing
///    behind it;
/// 4. [`start_writing`]: the buffer pool, and the threads that write the log and dirty pages;
/// 5. [`Opening::attach_redo`]: from here on the thread that loads a page brings it up to date;
/// 6. [`Opening::release_checkpoint`]: the checkpoint may move if no page lacks anything;
/// 7. [`Loader::load`]: transactions and tables;
/// 8. [`Opening::start_background`]: recovery's rest, purge, warming up, the indexer of log files.
pub(crate) fn open(
    disk: Arc<dyn Disk>,
    dir: &Path,
    options: Options,
    purpose: OpenPurpose,
) -> Result<Database> {
    options.validate()?;
    let logger = options.logger.clone().unwrap_or_else(to_standard_error);
    let data_dir = take_directory(disk, dir, purpose, &options, &logger)?;
    let files = open_files(&data_dir, purpose, &options, &logger)?;
    let redo = read_redo(&data_dir, &files, &options, &logger)?;
    let writing = start_writing(&data_dir, &files, &redo, &options, &logger)?;
    let opening = Opening {
        options: &options,
        purpose,
        data_dir,
        logger,
    };
    opening.go_on(files, redo, writing)
}

/// The data directory, and which database is in it.
struct DataDir {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    /// What the paths of undo tablespaces begin with.
    undo_dir: String,
    /// Nothing was there before.
    is_new: bool,
    locks: (DirLock, Option<DirLock>),
}

/// Phase 1.
fn take_directory(
    disk: Arc<dyn Disk>,
    dir: &Path,
    purpose: OpenPurpose,
    options: &Options,
    logger: &Logger,
) -> Result<DataDir> {
    let disk: Arc<dyn Disk> = match options.is_read_only() {
        true => Arc::new(Overlay::locking(disk)),
        false => disk,
    };
    if purpose == OpenPurpose::Use && !options.is_read_only() {
        refuse_as_database(&*disk, dir)?;
    }
    let may_create = options.create_if_missing && !options.is_read_only();
    if may_create && !disk.exists(&dir.join(CONTROL_FILE))? {
        create_directory(&*disk, dir)?;
    }
    let dir_lock = disk.lock_dir(dir)?;
    let is_new = !disk.exists(&dir.join(CONTROL_FILE))? || disk.exists(&dir.join(CREATION_MARK))?;
    if is_new && !may_create {
        return Err(Error::not_found(format!("a database in {}", dir.display())));
    }
    let undo_dir = match (&options.undo_directory, is_new) {
        (Some(wanted), _) => undo_directory::prefix(dir, wanted)?,
        (None, true) => String::new(),
        (None, false) => undo_directory::recorded(&*disk, dir)?,
    };
    let undo_dir_lock = undo_directory::lock(&*disk, dir, &undo_dir, is_new)?;
    if is_new {
        create(&disk, dir, options, &undo_dir)?;
        logger(
            LogLevel::Note,
            &format!("created a database in {}", dir.display()),
        );
    }
    Ok(DataDir {
        disk,
        dir: dir.to_path_buf(),
        undo_dir,
        is_new,
        locks: (dir_lock, undo_dir_lock),
    })
}

/// The files of the database, but for its redo log.
struct Files {
    control_file: Arc<ControlFile>,
    /// What the control file said.
    control: Control,
    spaces: Arc<Spaces>,
    queue: Arc<IoQueue>,
    tables: TableFiles,
}

/// What is known of the table files.
pub(super) enum TableFiles {
    /// They are those that the definitions name. Each is opened when it is needed.
    Match,
    /// They may not be. Those that redo names are opened when the definitions are known.
    MayDiffer,
    /// All are open, by their headers.
    Found(Vec<FoundFile>),
}

/// Phase 2.
fn open_files(
    data_dir: &DataDir,
    purpose: OpenPurpose,
    options: &Options,
    logger: &Logger,
) -> Result<Files> {
    let (disk, dir) = (&data_dir.disk, &*data_dir.dir);
    let note = |message: &str| logger(LogLevel::Note, message);
    let mut other_copy = |e: &Error| {
        let message = format!("{e}; the other copy in the file is used");
        logger(LogLevel::Error, &message);
    };
    let control_file = Arc::new(ControlFile::open(&**disk, dir, &mut other_copy)?);
    let control = control_file.control();
    // Before anything is written: a start that lacks its keys leaves things as they are.
    options.check_keys(control.encrypted)?;
    // Before anything else is written.
    if let Some(older) = control_file.upgrade()? {
        note(&format!(
            "the database is of format version {older}; from now on it is of version {FORMAT_VERSION}, which older programs refuse"
        ));
    }
    control_file.update(|c| c.clean_shutdown = false)?;
    let queue = Arc::new(disk.io_queue(options.use_native_aio)?);
    if queue.is_asynchronous() {
        note(&format!("asynchronous I/O: {}", queue.describe()));
    }
    let spaces = new_spaces(data_dir, &control_file, &queue, options, logger)?;
    if !control.clean_shutdown {
        // What a process that died has made, renamed and removed may not be durable: a table's file, or the
        // mark of the creation. Before anybody goes by it, it is.
        for place in recovery::directories(&**disk, dir, &spaces)? {
            disk.sync_dir(&dir.join(place))?;
        }
    }
    recovery::open_own_files(&**disk, dir, &spaces, &note)?;
    let are_right = control.clean_shutdown && control.files_match;
    let tables = match purpose == OpenPurpose::Use && !options.is_read_only() {
        true if are_right => TableFiles::Match,
        true => TableFiles::MayDiffer,
        false => TableFiles::Found(recovery::find_files(&**disk, dir, &spaces, &note)?),
    };
    spaces.files_match(are_right);
    require_system_file(&spaces)?;
    let wants_direct = options.flush_method == FlushMethod::Direct && !options.is_read_only();
    if wants_direct && !spaces.require(SYSTEM_SPACE)?.is_direct()? {
        tell_of_cache(dir, logger);
    }
    // First of all that needs room: what else does can do without.
    ddl::create_temporary_space(&spaces)?;
    Ok(Files {
        control_file,
        control,
        spaces,
        queue,
        tables,
    })
}

/// Restores pages that the crash tore, before redo is applied to them. `removed` are tablespaces that go.
fn restore_pages(
    data_dir: &DataDir,
    files: &Files,
    removed: &[SpaceId],
    options: &Options,
    logger: &Logger,
) -> Result<()> {
    if options.is_sabotaged(Sabotage::TornPagesKept) {
        return Ok(());
    }
    let (disk, dir, spaces) = (&*data_dir.disk, &*data_dir.dir, &files.spaces);
    // After a clean shutdown all is durable.
    let has_work = matches!(files.tables, TableFiles::MayDiffer);
    let passes_over_refusals = options.force_recovery >= FORCE_DAMAGE;
    let open_space = |id, path: Option<&str>| {
        if !has_work || removed.contains(&id) {
            return Ok(());
        }
        match recovery::open_wherever(spaces, id, path) {
            Err(Error::NoKey { .. }) if options.gives_up_keys() => Ok(()),
            Err(e) if passes_over_refusals && !matches!(e, Error::NoKey { .. }) => Ok(()),
            opened => opened.map(drop),
        }
    };
    let page_size = files.control.page_size as usize;
    let uuid = &files.control.uuid;
    for page in doublewrite::recover(disk, dir, page_size, uuid, &**spaces, &open_space)? {
        let message =
            format!("recovery: restored {page}, which was torn, from the doublewrite file");
        logger(LogLevel::Note, &message);
    }
    Ok(())
}

fn new_spaces(
    data_dir: &DataDir,
    control_file: &Arc<ControlFile>,
    queue: &Arc<IoQueue>,
    options: &Options,
    logger: &Logger,
) -> Result<Arc<Spaces>> {
    let control = control_file.control();
    let spaces = Spaces::new(
        data_dir.disk.clone(),
        &data_dir.dir,
        control.page_size as usize,
        control.uuid,
        options.open_files as usize,
    );
    let noted = control_file.clone();
    spaces.set_noted(control.encrypted, move |encrypted| {
        noted.update(|c| c.encrypted = encrypted)
    });
    let spaces = options.encrypting(spaces)?.with_queue(queue.clone());
    let spaces = spaces.with_method(options.flush_method);
    let spaces = Arc::new(spaces.with_undo_dir(data_dir.undo_dir.clone()));
    let teller = logger.clone();
    let tell = move |words: &str| teller(LogLevel::Warning, words);
    spaces.files().tell_of_refusals(tell);
    Ok(spaces)
}

fn load_written(spaces: &Spaces, control: &Control, logger: &Logger) {
    if let Err(why) = spaces.written_pages().load(control.written) {
        let message = format!(
            "it is not known any more which pages were written since the last backup: the next one can't be an increment: {why}"
        );
        logger(LogLevel::Warning, &message);
    }
}

/// The redo log, and what it says beyond the checkpoint.
struct Redo {
    scan: Scan,
    changes: Changes,
    log: Arc<RedoLog>,
    /// Bytes beyond the checkpoint.
    bytes: u64,
    /// When reading began.
    begun: Instant,
}

/// Phase 3.
fn read_redo(
    data_dir: &DataDir,
    files: &Files,
    options: &Options,
    logger: &Logger,
) -> Result<Redo> {
    let (disk, dir) = (&data_dir.disk, &*data_dir.dir);
    tell_of_mode(options, logger);
    let begun = Instant::now();
    let (control, queue) = (&files.control, &files.queue);
    let reads_redo = options.force_recovery < FORCE_NO_REDO;
    let (scan, changes) = match reads_redo {
        true => {
            let keyring = files.spaces.keyring();
            recovery::scan(disk, dir, control, options.scan_settings(), queue, keyring)?
        }
        false => recovery::pass_over_redo(disk, dir, control)?,
    };
    load_written(&files.spaces, control, logger);
    files.spaces.recover_counters(scan.counters.values());
    if let TableFiles::Found(found) = &files.tables
        && scan.frames > 0
        && options.force_recovery < FORCE_DAMAGE
    {
        recovery::require_readable(found)?;
    }
    restore_pages(data_dir, files, &scan.removed, options, logger)?;
    let settings = options.log_settings(control);
    let (disk, begin) = (disk.clone(), control.checkpoint);
    let mut log = match reads_redo {
        true => RedoLog::open_at(disk, queue.clone(), dir, settings, begin, scan.end)?,
        false => RedoLog::create(disk, dir, settings, scan.end)?,
    };
    log.stops = options.stops();
    let log = Arc::new(log);
    let bytes = log.checkpoint_age_bytes();
    if let TableFiles::Found(found) = &files.tables {
        // What decides is durable now: the redo that was read may have been in the operating system's cache
        // only.
        let note = |message: &str| logger(LogLevel::Note, message);
        recovery::finish_removals(&files.spaces, found, &scan.removed, &note)?;
    }
    Ok(Redo {
        scan,
        changes,
        log,
        bytes,
        begun,
    })
}

/// That it is not opened as usual.
fn tell_of_mode(options: &Options, logger: &Logger) {
    let what = match options.is_read_only() {
        true => "; nothing can be changed, and no file is",
        false => "",
    };
    if options.force_recovery > 0 {
        let level = options.force_recovery;
        let message = format!("the database is opened with force_recovery {level}{what}");
        logger(LogLevel::Warning, &message);
    } else if options.read_only {
        logger(
            LogLevel::Note,
            &format!("the database is opened to be read only{what}"),
        );
    }
}

/// The buffer pool, and the threads that write.
struct Writing {
    pool: Arc<BufferPool>,
    log_writer: LogWriter,
    flusher: Flusher,
    /// Goes after the page cleaner has ended, if something fails: the checkpoint must not pass what was not
    /// replayed.
    hold: CheckpointHold,
    /// Set before the log is poisoned on purpose.
    closing: Arc<AtomicBool>,
    /// Whose id limit the control file gets, once it is there.
    id_limits: Arc<OnceLock<Arc<Core>>>,
}

/// What will be otherwise with the pool's memory than somebody may expect.
fn tell_of_memory(options: &Options, logger: &Logger) {
    if let Some(above) = MemoryLimit::exceeded_by("buffer_pool_bytes", options.buffer_pool_bytes) {
        logger(
            LogLevel::Warning,
            &format!("{above}: the system ends the process when it uses so much"),
        );
    }
    let path = "/sys/kernel/mm/transparent_hugepage/enabled";
    if options.large_pages && std::fs::read_to_string(path).is_ok_and(|s| s.contains("[never]")) {
        logger(
            LogLevel::Note,
            &format!("large_pages: the system gives no huge pages: {path} says never"),
        );
    }
}

/// Phase 4.
fn start_writing(
    data_dir: &DataDir,
    files: &Files,
    redo: &Redo,
    options: &Options,
    logger: &Logger,
) -> Result<Writing> {
    let page_size = files.control.page_size as usize;
    let pool_settings = PoolSettings {
        bytes: options.buffer_pool_bytes,
        page_size,
    };
    let pool = Arc::new(BufferPool::new(pool_settings, files.spaces.clone())?);
    pool.set_large_pages(options.large_pages);
    tell_of_memory(options, logger);
    pool.set_read_ahead_threshold(options.read_ahead_threshold);
    pool.change_buffers.set_options(options.change_buffer);
    let closing = Arc::new(AtomicBool::new(false));
    let (poison_logger, closed) = (logger.clone(), closing.clone());
    let waiting = pool.clone();
    redo.log.set_on_poison(move |why| {
        waiting.give_up_waiting(Error::Poisoned { why: why.clone() });
        if !closed.load(Ordering::Relaxed) {
            poison_logger(LogLevel::Error, &format!("the database stops: {why}"));
        }
    });
    let log_writer = redo.log.spawn_writer()?;
    let id_limits: Arc<OnceLock<Arc<Core>>> = Arc::default();
    let (source, id_limit) = (id_limits.clone(), redo.scan.id_limit);
    let spaces = files.spaces.clone();
    let (flusher, hold) = Flusher::start_held(FlushEnv {
        pool: pool.clone(),
        log: redo.log.clone(),
        control: files.control_file.clone(),
        disk: data_dir.disk.clone(),
        dir: data_dir.dir.clone(),
        settings: FlushSettings {
            doublewrite: options.doublewrite && !options.is_read_only(),
            options: options.flush,
        },
        fill_control: Box::new(move |c| {
            let now = source.get().map_or(0, |core| core.sys.id_limit());
            c.id_limit = c.id_limit.max(now).max(id_limit);
            c.files_match = spaces.do_files_match();
        }),
    })?;
    if files.spaces.keep_open(SYSTEM_SPACE)?.writes_atomically {
        logger(
            LogLevel::Note,
            &format!(
                "the disk promises atomic writes of {page_size} bytes: pages are written without copies in the doublewrite file"
            ),
        );
    }
    Ok(Writing {
        pool,
        log_writer,
        flusher,
        hold,
        closing,
        id_limits,
    })
}

/// What the later phases share.
struct Opening<'a> {
    options: &'a Options,
    purpose: OpenPurpose,
    data_dir: DataDir,
    logger: Logger,
}

impl Opening<'_> {
    fn note(&self, message: &str) {
        (self.logger)(LogLevel::Note, message);
    }

    /// Phases 5 to 8.
    fn go_on(self, mut files: Files, redo: Redo, writing: Writing) -> Result<Database> {
        let Writing {
            pool,
            log_writer,
            // It is dropped after the page cleaner.
            hold,
            flusher,
            closing,
            id_limits,
        } = writing;
        let Redo {
            scan,
            changes,
            log,
            bytes: redo_bytes,
            begun,
        } = redo;
        let may_wait = self.may_wait(&changes, &log)?;
        if !may_wait {
            self.open_all_tables(&mut files, &scan)?;
        }
        let map = self.attach_redo(&files, &scan, changes, &pool)?;
        if scan.frames > 0 && !self.data_dir.is_new {
            self.tell_of_redo(files.control.checkpoint, redo_bytes, begun, map.as_deref());
        }
        let map = match may_wait {
            true => map,
            false => self.apply_now(map, &pool, &log)?,
        };
        let directory = match self.options.force_recovery < FORCE_NO_UNDO {
            // An undo tablespace that was not found has not got its changes either (REC-4).
            true => Directory::read(&pool, &files.spaces)?,
            false => Directory::read_alone(&pool)?,
        };
        // REC-3: a file that has missed redo gets its mark before the checkpoint passes that. REC-5: nor does
        // that pass what is left. DDL-3: nor the removal of a file that is there still.
        let is_compared = !matches!(files.tables, TableFiles::MayDiffer);
        let is_held =
            map.is_some() || !is_compared || files.spaces.any_missed_replay(&scan.removed);
        let hold = is_held.then_some(hold);
        self.release_checkpoint(hold.as_ref(), &log, &flusher)?;
        let loader = Loader {
            options: self.options,
            purpose: self.purpose,
            logger: self.logger.clone(),
            disk: self.data_dir.disk.clone(),
            spaces: files.spaces,
            pool,
            log,
            control_file: files.control_file,
            flusher,
            hold,
            map,
            redo_bytes,
            directory,
            removed: scan.removed,
            tables: files.tables,
        };
        let loaded = loader.load(scan.id_limit, &id_limits)?;
        self.start_background(loaded, &files.control, &files.queue, log_writer, closing)
    }

    /// Phase 5. What pages lack, from here on known to the buffer pool; `None`: nothing.
    fn attach_redo(
        &self,
        files: &Files,
        scan: &Scan,
        changes: Changes,
        pool: &Arc<BufferPool>,
    ) -> Result<Option<Arc<PageMap>>> {
        match changes {
            Changes::Map(map) => {
                if !self.options.is_sabotaged(Sabotage::RecoveredPagesNotNoted) {
                    map.note_written(&**pool.store());
                }
                // Tables' files are opened when it is known where they are.
                let is_later = |space: SpaceId| {
                    let may_be = matches!(files.tables, TableFiles::MayDiffer);
                    may_be && space.is_logged() && files.spaces.get(space).is_none()
                };
                match self.options.recovery_memory() {
                    RecoveryMemory::OfPool(_) => recovery::attach_within(*map, pool, &is_later),
                    RecoveryMemory::Beside(_) => recovery::attach(*map, pool, &is_later),
                }
            }
            Changes::ReadAgain(reader) => {
                self.note(
                    "recovery: no space left for sorting the redo; it is read and applied in order before the database opens",
                );
                let from = files.control.checkpoint;
                recovery::replay(*reader, from, scan.end, &self.data_dir.dir, pool)?;
                // REC-7
                let logged = files.spaces.all().into_iter().map(|space| space.id());
                let logged: Vec<SpaceId> = logged.filter(|id| id.is_logged()).collect();
                files.spaces.sync_all(&logged)?;
                Ok(None)
            }
        }
    }

    fn tell_of_redo(&self, from: Lsn, bytes: u64, begun: Instant, map: Option<&PageMap>) {
        let pages = map.map_or(0, PageMap::left);
        let spilled = map.map_or(0, PageMap::spilled_bytes);
        let seconds = begun.elapsed().as_secs_f64();
        self.note(&match map.is_some_and(PageMap::goes_by_indexes) {
            true => format!(
                "recovery: found {bytes} bytes of redo from LSN {from} by indexes in {seconds:.1} s; {pages} pages lack changes"
            ),
            false => format!(
                "recovery: read {bytes} bytes of redo from LSN {from} in {seconds:.1} s; {pages} pages lack changes, {spilled} bytes of them in a file"
            ),
        });
    }

    /// Whether it is worth while to leave something to background threads.
    fn has_background(&self) -> bool {
        self.purpose == OpenPurpose::Use && !self.data_dir.is_new
    }

    /// Whether redo may be applied behind the users' backs.
    fn may_wait(&self, changes: &Changes, log: &RedoLog) -> Result<bool> {
        let is_worth_it = self.has_background();
        match changes {
            Changes::Map(map) if is_worth_it && map.left() > 0 => {
                Ok(self.options.is_read_only() || recovery::may_wait(log)?)
            }
            Changes::Map(_) => Ok(is_worth_it && !log.needs_space()),
            Changes::ReadAgain(_) => Ok(false),
        }
    }

    /// Redo is applied before the definitions are known: all files are opened.
    fn open_all_tables(&self, files: &mut Files, scan: &Scan) -> Result<()> {
        if !matches!(files.tables, TableFiles::MayDiffer) {
            return Ok(());
        }
        let note = |message: &str| self.note(message);
        let (disk, dir) = (&*self.data_dir.disk, &*self.data_dir.dir);
        let found = recovery::find_files(disk, dir, &files.spaces, &note)?;
        if scan.frames > 0 && self.options.force_recovery < FORCE_DAMAGE {
            recovery::require_readable(&found)?;
        }
        recovery::finish_removals(&files.spaces, &found, &scan.removed, &note)?;
        files.tables = TableFiles::Found(found);
        Ok(())
    }

    /// Applies all redo now. Returns what pages lack then.
    fn apply_now(
        &self,
        map: Option<Arc<PageMap>>,
        pool: &Arc<BufferPool>,
        log: &RedoLog,
    ) -> Result<Option<Arc<PageMap>>> {
        let Some(map) = map else {
            return Ok(None);
        };
        match recovery::apply_all(pool, &map, self.options.recovery_threads()) {
            // REC-6: little is left, and the background thread that does it knows what to do about damage.
            Err(Error::Corrupt { .. }) if self.has_background() && !log.needs_space() => {
                Ok(Some(map))
            }
            done => done.map(|()| None),
        }
    }

    /// Phase 6: sees to it that the log can go on.
    fn release_checkpoint(
        &self,
        hold: Option<&CheckpointHold>,
        log: &RedoLog,
        flusher: &Flusher,
    ) -> Result<()> {
        match hold {
            _ if !log.needs_space() => {}
            // Several crashes after the last checkpoint have left short files, and there may be no room for
            // one more.
            None => {
                flusher.flush_all_to(log.next_lsn())?;
                flusher.checkpoint_now()?;
            }
            Some(_) => log.begin_standstill(
                "the disk has no room for another log file, and the checkpoint stays where it is until the table that lacks its file is known; \
                 make room, or put the file back",
            ),
        }
        Ok(())
    }

    /// Phase 8.
    fn start_background(
        self,
        loaded: Loaded,
        control: &Control,
        queue: &IoQueue,
        log_writer: LogWriter,
        closing: Arc<AtomicBool>,
    ) -> Result<Database> {
        let Loaded {
            core,
            ddl,
            flusher,
            mut rest,
            has_leftovers,
        } = loaded;
        let ddl = Arc::new(ddl);
        let (options, disk, dir) = (self.options, &self.data_dir.disk, &self.data_dir.dir);
        core.log.end_standstill();
        let threads = match options.is_read_only() {
            true => 0,
            false => options.recovery_threads(),
        };
        if core.log.is_sabotaged(Sabotage::RecoveryHoldDropped) {
            rest.hold = None;
            flusher.flush_all_to(core.log.next_lsn())?;
            flusher.checkpoint_now()?;
        }
        let recovery = Recovery::start(core.clone(), ddl.spaces.clone(), rest, threads)?;
        self.record_undo_directory(&core)?;
        let is_used = self.purpose == OpenPurpose::Use && !options.is_read_only();
        if is_used {
            ddl.keep_spare();
            ddl.go_on_with_removals();
        }
        if is_used && has_leftovers && !self.data_dir.is_new {
            let (ddl, next) = (ddl.clone(), ddl.next_rebuild());
            recovery.spawn_last("varve-leftovers", move || ddl.drop_rebuilt_before(next))?;
        }
        let purge = (self.purpose == OpenPurpose::Use && options.purges())
            .then(|| Purge::start(core.clone(), ddl.control.clone()))
            .transpose()?;
        let warmth = PoolWarmth::new(
            core.clone(),
            disk.clone(),
            dir.clone(),
            control.uuid,
            options.pool_dump.clone(),
            flusher.options(),
        );
        if is_used && options.pool_dump.at_startup {
            warmth.start_load()?;
        }
        let indexer = is_used.then(|| {
            Indexer::open(IndexerEnv {
                log: core.log.clone(),
                disk: disk.clone(),
                dir: dir.clone(),
                identity: DatabaseIdentity {
                    page_size: control.page_size,
                    uuid: control.uuid,
                },
                from_bytes: options.redo_index_from_bytes,
                logger: self.logger.clone(),
            })
        });
        if let Some(indexer) = indexer.as_ref().filter(|_| queue.is_asynchronous()) {
            indexer.start()?;
        }
        let writer = flusher.space_writer();
        let rotation = Rotation::new(core.clone(), &ddl, writer, options.rotation);
        let has_keys = !ddl.spaces.keyring().is_empty();
        let may_write = options.force_recovery == 0;
        let rotates = is_used && may_write && has_keys && queue.is_asynchronous();
        if rotates {
            rotation.start()?;
        }
        let background = Background {
            purge,
            recovery: recovery.clone(),
            flusher,
            log_writer,
        };
        Ok(Database {
            inner: Arc::new(DatabaseInner {
                handles: CoreHandles::new(&core),
                warmth,
                rotation,
                rotates,
                core,
                ddl,
                flushed: background.flusher.counters().clone(),
                recovery,
                indexer,
                background: Mutex::new(Some(background)),
                closed: closing,
                dir: self.data_dir.dir,
                _dir_locks: self.data_dir.locks,
            }),
        })
    }

    fn record_undo_directory(&self, core: &Core) -> Result<()> {
        let (disk, dir, undo_dir) = (
            &*self.data_dir.disk,
            &*self.data_dir.dir,
            &self.data_dir.undo_dir,
        );
        if *undo_dir == undo_directory::recorded(disk, dir)? {
            return Ok(());
        }
        undo_directory::record(disk, dir, undo_dir)?;
        core.note(&format!(
            "the undo tablespaces were found in {}",
            dir.join(undo_dir).display()
        ));
        Ok(())
    }
}

fn tell_of_cache(dir: &Path, logger: &Logger) {
    let message = format!(
        "flush_method O_DIRECT: the file system of {} can't do without the operating system's cache, which is used",
        dir.display()
    );
    logger(LogLevel::Warning, &message);
}
