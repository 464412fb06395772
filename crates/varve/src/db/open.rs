//! Opening a database: recovery, start of the background threads.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use parking_lot::Mutex;

use crate::base::{
    DISK_THREADS, Error, FIRST_TEMPORARY_ID, PageId, PageNo, Result, SYSTEM_SPACE, Sabotage,
    SpaceId, TableId, TrxId, map_together,
};
use crate::buffer::{BufferPool, PageStore, PoolSettings};
use crate::catalog::{BrokenTable, OpenTable, TableDef, Tables};
use crate::db::create::{CREATION_MARK, create};
use crate::db::options::{
    FORCE_DAMAGE, FORCE_NO_PURGE, FORCE_NO_REDO, FORCE_NO_ROLLBACK, FORCE_NO_UNDO, Options,
    RecoveryMemory, to_standard_error,
};
use crate::db::pool_warmth::PoolWarmth;
use crate::db::{Background, Database, Inner, undo_directory};
use crate::ddl::{self, Ddl, StoredDef};
use crate::flush::{CheckpointHold, FlushEnv, FlushSettings, Flusher, doublewrite};
use crate::io::{Disk, FlushMethod, Overlay};
use crate::mtr::{Mtr, MtrEnv, RawRecord};
use crate::purge::Purge;
use crate::recovery::{self, Changes, Indexer, IndexerEnv, PageMap, Recovery, Rest};
use crate::redo::{CONTROL_FILE, ControlFile, FORMAT_VERSION, RedoLog};
use crate::row::Collations;
use crate::space::{SpaceKind, Spaces};
use crate::stats;
use crate::txn::{
    Core, CoreHandles, DynamicSettings, IdLimitLog, Isolation, LogLevel, Logger, State,
    Transaction, TxnSys,
};
use crate::undo::{
    Directory, ReadAhead, TrxUndo, UndoEnv, UndoSys, format_temporary_segments, require_system_file,
};

/// Logs id limits for the transaction system.
struct LogIdLimit(Arc<MtrEnv>);

impl IdLimitLog for LogIdLimit {
    fn raise(&self, limit: u64) -> Result<()> {
        let mut mtr = Mtr::begin(&self.0, 256)?;
        mtr.log_raw(&RawRecord::IdLimit { limit });
        mtr.commit();
        Ok(())
    }
}

/// Tables whose pages are read ahead before they are opened.
const TABLES_TOGETHER: usize = 64;

/// What a database is opened for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Use,
    /// To look at what recovery makes of it, on a disk that may be thrown away: without purge, and without the callers'
    /// collations (COL-2).
    Check,
}

pub(crate) fn open(
    disk: Arc<dyn Disk>,
    dir: &Path,
    options: Options,
    purpose: Purpose,
) -> Result<Database> {
    options.validate()?;
    let logger: Logger = options.logger.clone().unwrap_or_else(to_standard_error);
    let note = |message: &str| logger(LogLevel::Note, message);
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
        create(&disk, dir, &options, &undo_dir)?;
        note(&format!("created a database in {}", dir.display()));
    }
    let disk: Arc<dyn Disk> = match options.is_read_only() {
        true => Arc::new(Overlay::new(disk)),
        false => disk,
    };
    let mut other_copy = |e: &Error| {
        let message = format!("{e}; the other copy in the file is used");
        logger(LogLevel::Error, &message);
    };
    let control_file = Arc::new(ControlFile::open(&*disk, dir, &mut other_copy)?);
    let control = control_file.control();
    // Before anything else is written.
    if let Some(older) = control_file.upgrade()? {
        note(&format!(
            "the database is of format version {older}; from now on it is of version {FORMAT_VERSION}, which older programs refuse"
        ));
    }
    control_file.update(|c| c.clean_shutdown = false)?;
    let spaces = Spaces::new(
        disk.clone(),
        dir,
        control.page_size as usize,
        control.uuid,
        options.open_files as usize,
    );
    let queue = Arc::new(disk.io_queue(options.use_native_aio)?);
    if queue.is_asynchronous() {
        note(&format!("asynchronous I/O: {}", queue.describe()));
    }
    let spaces = spaces.with_queue(queue.clone());
    let spaces = spaces.with_method(options.flush_method);
    let spaces = Arc::new(spaces.with_undo_dir(undo_dir.clone()));
    let teller = logger.clone();
    let tell = move |words: &str| teller(LogLevel::Warning, words);
    spaces.files().tell_of_refusals(tell);
    if !control.clean_shutdown {
        // What a process that died has made, renamed and removed may not be durable: a table's file, or the mark of the creation. Before anybody
        // goes by it, it is.
        for place in recovery::directories(&*disk, dir, &spaces)? {
            disk.sync_dir(&dir.join(place))?;
        }
    }
    let found = recovery::find_files(&*disk, dir, &spaces, &note)?;
    require_system_file(&spaces)?;
    let wants_direct = options.flush_method == FlushMethod::Direct && !options.is_read_only();
    if wants_direct && !spaces.require(SYSTEM_SPACE)?.is_direct()? {
        tell_of_cache(dir, &logger);
    }
    let page_size = control.page_size as usize;
    let restored = match options.is_sabotaged(Sabotage::TornPagesKept) {
        true => Vec::new(),
        false => doublewrite::recover(&*disk, dir, page_size, &control.uuid, &*spaces)?,
    };
    for page in restored {
        note(&format!(
            "recovery: restored {page}, which was torn, from the doublewrite file"
        ));
    }
    // First of all that needs room: what else does can do without.
    ddl::create_temporary_space(&spaces)?;
    if options.force_recovery > 0 {
        let level = options.force_recovery;
        let what = match options.is_read_only() {
            true => "; nothing can be changed, and no file is",
            false => "",
        };
        let message = format!("the database is opened with force_recovery {level}{what}");
        logger(LogLevel::Warning, &message);
    }
    let begun = Instant::now();
    let is_asynchronous = queue.is_asynchronous();
    let reads_redo = options.force_recovery < FORCE_NO_REDO;
    let (scan, changes) = match reads_redo {
        true => recovery::scan(&disk, dir, &control, (options.scan_settings(), &queue))?,
        false => recovery::pass_over_redo(&disk, dir, &control)?,
    };
    if scan.frames > 0 && options.force_recovery < FORCE_DAMAGE {
        recovery::require_readable(&found)?;
    }
    let settings = options.log_settings(&control);
    let (on, begin) = ((disk.clone(), queue), control.checkpoint);
    #[cfg_attr(not(feature = "sabotage"), expect(unused_mut))]
    let mut log = match reads_redo {
        true => RedoLog::open_at(on, dir, settings, begin, scan.end)?,
        false => RedoLog::create(on.0, dir, settings, scan.end)?,
    };
    #[cfg(feature = "sabotage")]
    {
        log.stops = options.stops.clone();
    }
    let log = Arc::new(log);
    let redo_bytes = log.checkpoint_age_bytes();
    // What decides is durable now: the redo that was read may have been in the operating system's cache only.
    recovery::finish_removals(&spaces, &scan.removed, &note)?;
    let pool_settings = PoolSettings {
        bytes: options.buffer_pool_bytes,
        page_size: control.page_size as usize,
    };
    let pool = Arc::new(BufferPool::new(pool_settings, spaces.clone())?);
    pool.set_read_ahead_threshold(options.read_ahead_threshold);
    let closing = Arc::new(AtomicBool::new(false));
    let (poison_logger, closed) = (logger.clone(), closing.clone());
    let waiting = pool.clone();
    log.set_on_poison(move |why| {
        waiting.give_up_waiting();
        if !closed.load(Ordering::Relaxed) {
            poison_logger(LogLevel::Error, &format!("the database stops: {why}"));
        }
    });
    let log_writer = log.spawn_writer()?;
    let id_limits: Arc<OnceLock<Arc<Core>>> = Arc::default();
    let (source, id_limit) = (id_limits.clone(), scan.id_limit);
    // Goes after the page cleaner has ended, if something fails: the checkpoint must not pass what was not replayed.
    let mut hold;
    let flusher;
    let started = Flusher::start_held(FlushEnv {
        pool: pool.clone(),
        log: log.clone(),
        control: control_file.clone(),
        disk: disk.clone(),
        dir: dir.to_path_buf(),
        settings: FlushSettings {
            doublewrite: options.doublewrite && !options.is_read_only(),
            options: options.flush,
        },
        fill_control: Box::new(move |c| {
            let now = source.get().map_or(0, |core| core.sys.id_limit());
            c.id_limit = c.id_limit.max(now).max(id_limit);
        }),
    })?;
    (flusher, hold) = (started.0, Some(started.1));
    if spaces.keep_open(SYSTEM_SPACE)?.writes_atomically {
        note(&format!(
            "the disk promises atomic writes of {page_size} bytes: pages are written without copies in the doublewrite file"
        ));
    }
    let map = match changes {
        Changes::Map(map) => match options.recovery_memory() {
            RecoveryMemory::OfPool(_) => recovery::attach_within(*map, &pool)?,
            RecoveryMemory::Beside(_) => recovery::attach(*map, &pool)?,
        },
        Changes::ReadAgain(reader) => {
            note(
                "recovery: no space left for sorting the redo; it is read and applied in order before the database opens",
            );
            recovery::replay(*reader, control.checkpoint, scan.end, dir, &pool)?;
            // REC-7
            let logged = spaces.all().into_iter().map(|space| space.id());
            let logged: Vec<SpaceId> = logged.filter(|id| id.is_logged()).collect();
            spaces.sync_all(&logged)?;
            None
        }
    };
    if scan.frames > 0 && !is_new {
        let (pages, spilled) = map
            .as_ref()
            .map_or((0, 0), |m| (m.left(), m.spilled_bytes()));
        let (from, seconds) = (control.checkpoint, begun.elapsed().as_secs_f64());
        note(
            &match map.as_ref().is_some_and(|map| map.goes_by_indexes()) {
                true => format!(
                    "recovery: found {redo_bytes} bytes of redo from LSN {from} by indexes in {seconds:.1} s; {pages} pages lack changes"
                ),
                false => format!(
                    "recovery: read {redo_bytes} bytes of redo from LSN {from} in {seconds:.1} s; {pages} pages lack changes, {spilled} bytes of them in a file"
                ),
            },
        );
    }
    let is_worth_it = map.is_some() && purpose == Purpose::Use && !is_new;
    let may_wait = is_worth_it && (options.is_read_only() || recovery::may_wait(&log)?);
    let map = match map {
        Some(map) if !may_wait => {
            match recovery::apply_all(&pool, &map, options.recovery_threads()) {
                // REC-6: little is left, and whoever does it in the background knows what to do about damage.
                Err(Error::Corrupt { .. }) if is_worth_it && !log.needs_space() => Some(map),
                done => done.map(|()| None)?,
            }
        }
        map => map,
    };
    let directory = match options.force_recovery < FORCE_NO_UNDO {
        // An undo tablespace that was not found has not got its changes either (REC-4).
        true => Directory::read(&pool, &spaces)?,
        false => Directory::read_alone(&pool)?,
    };
    // REC-3: a file that has missed redo gets its mark before the checkpoint passes that. REC-5: nor does that pass what is left.
    if map.is_none() && !spaces.any_missed_replay(&scan.removed) {
        hold = None;
    }
    match &hold {
        // Several crashes after the last checkpoint have left short files, and there may be no room for one more.
        None if log.needs_space() => {
            flusher.flush_all_to(log.next_lsn())?;
            flusher.checkpoint_now()?;
        }
        Some(_) if log.needs_space() => log.begin_standstill(
            "the disk has no room for another log file, and the checkpoint stays where it is until the table that lacks its file is known; \
             make room, or put the file back",
        ),
        _ => {}
    }
    let indexer_logger = logger.clone();
    let opener = Opener {
        options: &options,
        purpose,
        is_after_crash: !control.clean_shutdown,
        logger,
        spaces,
        pool,
        log,
        control_file,
        flusher,
        hold,
        map,
        redo_bytes,
        directory,
        removed: scan.removed,
    };
    let (core, ddl, flusher, mut rest) = opener.finish(scan.id_limit, &id_limits, &found)?;
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
    if undo_dir != undo_directory::recorded(&*disk, dir)? {
        undo_directory::record(&*disk, dir, &undo_dir)?;
        core.note(&format!(
            "the undo tablespaces were found in {}",
            dir.join(&undo_dir).display()
        ));
    }
    let is_used = purpose == Purpose::Use && !options.is_read_only();
    if is_used {
        ddl.keep_spare();
    }
    let purge = (purpose == Purpose::Use && options.force_recovery < FORCE_NO_PURGE)
        .then(|| Purge::start(core.clone(), ddl.control.clone()))
        .transpose()?;
    let warmth = PoolWarmth::new(
        core.clone(),
        disk.clone(),
        dir.to_path_buf(),
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
            dir: dir.to_path_buf(),
            owner: (control.page_size, control.uuid),
            from_bytes: options.redo_index_from_bytes,
            logger: indexer_logger,
        })
    });
    if let Some(indexer) = indexer.as_ref().filter(|_| is_asynchronous) {
        indexer.start()?;
    }
    Ok(Database {
        inner: Arc::new(Inner {
            handles: CoreHandles::new(&core),
            warmth,
            core,
            ddl,
            flushed: flusher.counters().clone(),
            recovery: recovery.clone(),
            indexer,
            background: Mutex::new(Some(Background {
                purge,
                recovery,
                flusher,
                log_writer,
            })),
            closed: closing,
            dir: dir.to_path_buf(),
            _dir_locks: (dir_lock, undo_dir_lock),
        }),
    })
}

/// What the second half of opening works with: pages are up to date, transactions and tables are not loaded yet.
struct Opener<'a> {
    options: &'a Options,
    purpose: Purpose,
    is_after_crash: bool,
    logger: Logger,
    spaces: Arc<Spaces>,
    pool: Arc<BufferPool>,
    log: Arc<RedoLog>,
    control_file: Arc<ControlFile>,
    flusher: Flusher,
    /// Until the files that have missed redo are marked, and no page lacks redo. Goes after the page cleaner has ended.
    hold: Option<CheckpointHold>,
    /// What pages lack.
    map: Option<Arc<PageMap>>,
    redo_bytes: u64,
    directory: Directory,
    /// Tablespaces that redo removes.
    removed: Vec<SpaceId>,
}

impl Opener<'_> {
    fn finish(
        mut self,
        id_limit: u64,
        id_limits: &OnceLock<Arc<Core>>,
        found: &[recovery::FoundFile],
    ) -> Result<(Arc<Core>, Ddl, Flusher, Rest)> {
        let page_size = self.pool.page_size();
        let mtr = Arc::new(MtrEnv::new(self.pool.clone(), self.log.clone()));
        let directory = &self.directory;
        let note = |message: &str| (self.logger)(LogLevel::Note, message);
        let looks_at_undo = self.options.force_recovery < FORCE_NO_UNDO;
        if looks_at_undo {
            recovery::reconcile_undo(&self.spaces, &self.pool, &directory.undo_spaces, &note)?;
        }
        let undo_env = UndoEnv {
            mtr: mtr.clone(),
            pool: self.pool.clone(),
            spaces: self.spaces.clone(),
            page_size,
        };
        format_temporary_segments(&undo_env)?;
        let ahead = |pages: &[PageId]| {
            let threads = self.options.recovery_threads();
            recovery::load_ahead(&self.pool, self.map.as_deref(), pages, threads);
        };
        let ahead = self.may_read_ahead().then_some(&ahead as ReadAhead<'_>);
        let (undo, unfinished) = match looks_at_undo {
            true => UndoSys::load(undo_env, &directory.undo_spaces, id_limit, ahead)?,
            false => (UndoSys::load_temporary(undo_env, id_limit)?, Vec::new()),
        };
        undo.use_rsegs(self.options.undo_logs as usize);
        let sys = TxnSys::new(id_limit, Box::new(LogIdLimit(mtr.clone())));
        for trx in &unfinished {
            let state = match self.is_prepared(trx) {
                true => State::Prepared,
                false => State::Active,
            };
            sys.adopt(trx.trx(), state)?;
        }
        let collations = Arc::new(match (self.purpose, &self.options.find_collation) {
            (Purpose::Check, _) => Collations::with_stand_ins(),
            (Purpose::Use, Some(find)) => Collations::with_finder(find.clone()),
            (Purpose::Use, None) => Collations::new(),
        });
        for collation in &self.options.collations {
            collations.register(collation.clone())?;
        }
        let system_def = ddl::system_def(directory.catalog_root, page_size);
        let system = Arc::new(OpenTable::open(
            system_def,
            TrxId(0),
            &mtr,
            &self.spaces,
            &collations,
        )?);
        let tables = Tables::default();
        tables.add_hidden(system.clone());
        let settings = DynamicSettings::new(
            self.options.flush_log_at_trx_commit,
            self.options.lock_wait_timeout,
            self.options.purge,
        );
        let logger = self.logger.clone();
        let mut core = Core::new(
            mtr.clone(),
            self.pool.clone(),
            self.log.clone(),
            sys,
            undo,
            tables,
            settings,
            logger,
        );
        if self.options.is_read_only() {
            let level = self.options.force_recovery;
            core.refuse_changes(format!(
                "the database was opened with force_recovery {level}; save what can be read, or open it with less than 4"
            ));
        }
        let core = Arc::new(core);
        core.locks.set_memory_limit(self.options.lock_memory_bytes);
        let first = id_limits.set(core.clone());
        debug_assert!(first.is_ok());
        let ddl = Ddl {
            core: core.clone(),
            spaces: self.spaces.clone(),
            control: self.control_file.clone(),
            checkpointer: self.flusher.checkpointer(),
            collations,
            system,
            mutex: Mutex::new(()),
            next_temporary: AtomicU64::new(FIRST_TEMPORARY_ID),
        };
        let losers = self.finish_transactions(&core, &ddl, unfinished, found)?;
        let rest = Rest {
            rolls_back: self.rolls_back(),
            map: self.map,
            hold: self.hold,
            passes_over_damage: self.options.force_recovery >= FORCE_DAMAGE,
            losers,
            redo_bytes: self.redo_bytes,
        };
        Ok((core, ddl, self.flusher, rest))
    }

    /// Whether there is something to be won by having several pages read at the same time.
    fn may_read_ahead(&self) -> bool {
        self.pool.store().reads_in_background()
    }

    /// Has the pages in the pool that `open_table` looks at. After a crash each may have redo to be read and applied first.
    fn read_ahead(&self, core: &Core, stored: &StoredDef) {
        let Ok(def) = &stored.def else {
            return;
        };
        OpenTable::read_ahead(def, &core.mtr, &self.spaces);
        if self.is_after_crash {
            // The copy of the definition is on it. What is wrong with it is told by who looks there.
            let _ = self.pool.shared(PageId::new(def.space, PageNo(0)));
        }
    }

    fn rolls_back(&self) -> bool {
        self.options.force_recovery < FORCE_NO_ROLLBACK
    }

    fn is_prepared(&self, undo: &TrxUndo) -> bool {
        undo.xid().is_some() && !self.log.is_sabotaged(Sabotage::PreparedForgotten)
    }

    /// Rolls back what had not ended and loads the tables in between: first the transactions that changed definitions,
    /// so that the definitions are the committed ones. What was prepared gets its locks and waits for its coordinator. The others get theirs,
    /// too, and are returned: they are rolled back while the database is in use.
    fn finish_transactions(
        &mut self,
        core: &Arc<Core>,
        ddl: &Ddl,
        unfinished: Vec<TrxUndo>,
        found: &[recovery::FoundFile],
    ) -> Result<Vec<Transaction>> {
        let note = |message: &str| (self.logger)(LogLevel::Note, message);
        let mut rest = Vec::new();
        let (prepared, losers): (Vec<_>, Vec<_>) = unfinished
            .into_iter()
            .partition(|undo| self.is_prepared(undo));
        if !losers.is_empty() {
            note(&format!(
                "recovery: rolling back {} transactions",
                losers.len()
            ));
        }
        for undo in prepared {
            let trx = Transaction::recovered_prepared(core.clone(), undo)?;
            let (id, xid) = (trx.id(), trx.xid());
            let (id, xid) = id.zip(xid).expect("a prepared transaction has both");
            note(&format!(
                "recovery: transaction {id} is prepared under the name {xid}"
            ));
        }
        for undo in losers {
            match undo.newest_table(&core.undo.env)? {
                Some(table) if table == ddl::SYSTEM_TABLE && self.rolls_back() => {
                    recovery::roll_back(core, undo)?;
                }
                _ => rest.push(undo),
            }
        }
        let mut reader = Transaction::begin(core.clone(), Isolation::RepeatableRead);
        let defs = ddl::load_defs(&mut reader, &ddl.system)?;
        drop(reader);
        let named = defs.iter().filter_map(|d| d.def.as_ref().ok());
        let named: HashMap<_, _> = named.map(|d| (d.space, d.name.clone())).collect();
        let incomplete = defs.iter().any(|d| d.def.is_err());
        self.raise_ids(&defs)?;
        let missing = recovery::reconcile(core, &self.spaces, found, (&named, incomplete))?;
        let mut defs = defs.into_iter().peekable();
        while defs.peek().is_some() {
            let batch: Vec<StoredDef> = defs.by_ref().take(TABLES_TOGETHER).collect();
            if self.may_read_ahead() {
                map_together(&batch, DISK_THREADS, |stored| self.read_ahead(core, stored));
            }
            for stored in batch {
                let file_is_missing = missing.contains(&stored.name);
                let path = ddl::table_path(&stored.name);
                let file = found.iter().find(|file| file.path == path);
                let refused = file.and_then(recovery::FoundFile::refused);
                self.open_table(core, ddl, stored, (file_is_missing, refused))?;
            }
        }
        if self.map.is_none() {
            self.hold = None;
        }
        if self.purpose == Purpose::Check {
            let mut rest = rest.into_iter();
            rest.try_for_each(|undo| recovery::roll_back(core, undo))?;
            return Ok(Vec::new());
        }
        let tables: Vec<TableId> = core.tables.all().iter().map(|table| table.id()).collect();
        let locked = |undo| Transaction::recovered_loser(core.clone(), undo, &tables);
        rest.into_iter().map(locked).collect()
    }

    /// Ids that a definition, an undo tablespace or a tablespace that redo removes has are not given again: such redo would take the file of
    /// whoever got one. That matters only if the newest copy of the control file was lost.
    fn raise_ids(&self, defs: &[StoredDef]) -> Result<()> {
        let old = self.control_file.control();
        let mut new = old;
        for def in defs.iter().filter_map(|d| d.def.as_ref().ok()) {
            new.next_table = new.next_table.max(def.id.0.saturating_add(1));
            new.next_space = new.next_space.max(def.space.0.saturating_add(1));
            for index in def.all_indexes() {
                new.next_index = new.next_index.max(index.id.0.saturating_add(1));
            }
        }
        let spaces = self.spaces.all();
        let undo = spaces.iter().filter(|s| s.kind() == SpaceKind::Undo);
        for id in undo.map(|s| s.id()).chain(self.removed.iter().copied()) {
            new.next_space = new.next_space.max(id.0.saturating_add(1));
        }
        match new == old {
            true => Ok(()),
            false => self.control_file.update(|c| {
                (c.next_table, c.next_space, c.next_index) =
                    (new.next_table, new.next_space, new.next_index);
            }),
        }
    }

    /// Makes a table usable; one that can't be is remembered with the reason (REC-3).
    fn open_table(
        &self,
        core: &Arc<Core>,
        ddl: &Ddl,
        stored: StoredDef,
        (file_is_missing, refused): (bool, Option<&Error>),
    ) -> Result<()> {
        let StoredDef { name, def, writer } = stored;
        if let Ok(def) = &def
            && file_is_missing
            && self.spaces.missed_replay(def.space)
        {
            self.spaces.put_mark(&ddl::lost_mark_path(def))?;
        }
        let opened = def.as_ref().map_err(Error::clone).and_then(|def| {
            match file_is_missing {
                true => {
                    let missing = || missing_file(self.spaces.dir(), def);
                    return Err(refused.cloned().unwrap_or_else(missing));
                }
                false => check_file(core, &self.spaces, def)?,
            }
            OpenTable::open(
                def.clone(),
                writer,
                &core.mtr,
                &self.spaces,
                &ddl.collations,
            )
        });
        match opened {
            Ok(table) => {
                match core.is_read_only() {
                    true => stats::guess(&table),
                    false if self.is_after_crash => ddl.refresh_copy(&table.def),
                    false => {}
                }
                core.tables.add(Arc::new(table));
            }
            Err(why) => {
                core.error(&format!("table {name} can't be used: {why}"));
                let def = def.ok();
                core.tables.add_broken(name, BrokenTable { why, def });
            }
        }
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

fn missing_file(dir: &Path, def: &TableDef) -> Error {
    Error::CorruptFile {
        path: dir.join(ddl::table_path(&def.name)),
        expected: format!("tablespace {} of table {}", def.space, def.name),
        found: "no file that is it; put it back and start again, or drop the table".into(),
    }
}

/// The tablespace that a definition names is that table's, has all changes, and no other table has been opened in it.
fn check_file(core: &Core, spaces: &Spaces, def: &TableDef) -> Result<()> {
    if spaces.has_mark(&ddl::lost_mark_path(def))? {
        return Err(Error::CorruptFile {
            path: spaces.dir().join(ddl::table_path(&def.name)),
            expected: format!("all changes to table {}", def.name),
            found: "a file that was missing while a crash was recovered; drop the table".into(),
        });
    }
    let space = spaces.require(def.space)?;
    let tables = core.tables.all();
    let other = tables
        .iter()
        .find(|t| t.space() == def.space || t.id() == def.id);
    let found = match (space.kind(), space.table(), other) {
        (SpaceKind::Table, table, None) if table == def.id => return Ok(()),
        (_, _, Some(other)) => format!("that of table {}", other.def.name),
        (kind, table, None) => format!("{kind:?} tablespace of table number {table}"),
    };
    let header = PageId::new(def.space, PageNo(0));
    let expected = format!("the tablespace of table {}, number {}", def.name, def.id);
    Err(Error::corrupt(header, expected, found))
}

/// Creates the data directory and its missing parents, and makes their names durable: what is committed in a directory
/// that a crash takes away is lost. Also of those that are there: a process that has made them may have died before that. One that can't be synced
/// was made by somebody else.
pub(super) fn create_directory(disk: &dyn Disk, dir: &Path) -> Result<()> {
    let mut missing = 0;
    for dir in dir.ancestors().filter(|d| !d.as_os_str().is_empty()) {
        if disk.exists(dir)? {
            break;
        }
        missing += 1;
    }
    disk.create_dir_all(dir)?;
    for (n, parent) in dir.ancestors().skip(1).enumerate() {
        let synced = match parent.as_os_str().is_empty() {
            true => disk.sync_dir(Path::new(".")),
            false => disk.sync_dir(parent),
        };
        if n < missing {
            synced?;
        }
    }
    Ok(())
}
