//! `varve_db`: options, opening and closing, DDL.

use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;
use std::path::Path;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use varve::{
    CollationId, ConstraintPrefix, Database, FlushLog, FlushMethod, ForeignKeyChecks, LogLevel,
    Options, PurgeOptions, Table,
};

use crate::change_buffer::{change_buffer_options, varve_change_buffer_options};
use crate::choice::{choice, chosen};
use crate::collation::{Finder, c_text, text, varve_collation};
use crate::definition::{table_def, varve_table_def};
use crate::encryption::{Keys, varve_rotation_options};
use crate::error::varve_code::{self, VARVE_OK};
use crate::error::{guard, guard_without_database};
use crate::flush::varve_flush_options;
use crate::foreign::varve_foreign_key_checks;
use crate::history::varve_history_options;
use crate::pool_dump::{pool_dump_options, varve_pool_dump_options};

/// An open database. Shared by all threads.
pub struct varve_db(pub(crate) Database);

/// How urgent a message is.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum varve_log_level {
    VARVE_LOG_NOTE = 0,
    VARVE_LOG_WARNING = 1,
    VARVE_LOG_ERROR = 2,
}

/// What a commit waits for.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum varve_flush_log {
    /// Nothing: the log is written and synced once a second.
    VARVE_FLUSH_LAZY = 0,
    /// Its log is on disk.
    VARVE_FLUSH_SYNC = 1,
    /// Its log is with the operating system; synced once a second.
    VARVE_FLUSH_WRITE = 2,
}

choice!(varve_flush_log: VARVE_FLUSH_LAZY, VARVE_FLUSH_SYNC, VARVE_FLUSH_WRITE);

impl From<varve_flush_log> for FlushLog {
    fn from(mode: varve_flush_log) -> FlushLog {
        match mode {
            varve_flush_log::VARVE_FLUSH_LAZY => FlushLog::Lazy,
            varve_flush_log::VARVE_FLUSH_SYNC => FlushLog::Sync,
            varve_flush_log::VARVE_FLUSH_WRITE => FlushLog::Write,
        }
    }
}

/// How data files are read and written. They are synced either way.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum varve_flush_method {
    /// Through the operating system's cache.
    VARVE_METHOD_FSYNC = 0,
    /// Past it, where the file system can do that.
    VARVE_METHOD_O_DIRECT = 1,
}

choice!(varve_flush_method: VARVE_METHOD_FSYNC, VARVE_METHOD_O_DIRECT);

impl From<varve_flush_method> for FlushMethod {
    fn from(method: varve_flush_method) -> FlushMethod {
        match method {
            varve_flush_method::VARVE_METHOD_FSYNC => FlushMethod::Fsync,
            varve_flush_method::VARVE_METHOD_O_DIRECT => FlushMethod::Direct,
        }
    }
}

impl From<FlushMethod> for varve_flush_method {
    fn from(method: FlushMethod) -> varve_flush_method {
        match method {
            FlushMethod::Fsync => varve_flush_method::VARVE_METHOD_FSYNC,
            FlushMethod::Direct => varve_flush_method::VARVE_METHOD_O_DIRECT,
        }
    }
}

/// Receives what the engine has to tell an operator, from any thread. `message` is UTF-8 without a line end.
pub type varve_log_fn =
    unsafe extern "C" fn(context: *mut c_void, level: varve_log_level, message: *const c_char);

/// How purge works.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct varve_purge_options {
    /// Threads that help the one that is always there: 0 to 32.
    pub threads: u32,
    /// Undo pages that are read for a batch: 1 to 5000.
    pub batch_size: u32,
    /// After so many batches free undo pages go back to their tablespaces: 1 to 128.
    pub rseg_truncate_frequency: u32,
    /// Truncate undo tablespaces that are larger than this, one at a time, when they can be emptied.
    pub undo_log_truncate: bool,
    /// Bytes, 10 MiB at least.
    pub max_undo_log_size: u64,
    /// While more transactions than this wait to be purged, those that update or delete are delayed; 0: they
    /// never are.
    pub max_purge_lag: u64,
    /// Microseconds by which a row change is delayed at most, up to 10000000; 0: none is.
    pub max_purge_lag_delay_us: u64,
}

impl From<PurgeOptions> for varve_purge_options {
    fn from(o: PurgeOptions) -> varve_purge_options {
        varve_purge_options {
            threads: o.threads,
            batch_size: o.batch_size,
            rseg_truncate_frequency: o.rseg_truncate_frequency,
            undo_log_truncate: o.undo_log_truncate,
            max_undo_log_size: o.max_undo_log_size,
            max_purge_lag: o.max_purge_lag,
            max_purge_lag_delay_us: o.max_purge_lag_delay.as_micros() as u64,
        }
    }
}

impl From<varve_purge_options> for PurgeOptions {
    fn from(o: varve_purge_options) -> PurgeOptions {
        PurgeOptions {
            threads: o.threads,
            batch_size: o.batch_size,
            rseg_truncate_frequency: o.rseg_truncate_frequency,
            undo_log_truncate: o.undo_log_truncate,
            max_undo_log_size: o.max_undo_log_size,
            max_purge_lag: o.max_purge_lag,
            max_purge_lag_delay: Duration::from_micros(o.max_purge_lag_delay_us),
        }
    }
}

/// How to open a database; varve_options_default fills in what most callers want.
#[repr(C)]
pub struct varve_options {
    /// Fixed when the database is created: 4096 to 65536, a power of two. An existing database keeps its own.
    pub page_size: u32,
    pub buffer_pool_bytes: u64,
    /// Have the system give the pool huge pages where it can.
    pub large_pages: bool,
    pub redo_capacity_bytes: u64,
    pub log_buffer_bytes: u64,
    pub flush_log_at_trx_commit: MaybeUninit<varve_flush_log>,
    /// Write the redo log through the operating system's cache. With VARVE_FLUSH_WRITE that is done anyway.
    pub log_file_buffering: bool,
    pub doublewrite: bool,
    /// How data files are read and written.
    pub flush_method: MaybeUninit<varve_flush_method>,
    /// Use io_uring for pages where it works; otherwise a few threads read and write them.
    pub use_native_aio: bool,
    /// After how many leaves in a row a scan reads those ahead that come next: 1 to 64; 0: it never does.
    pub read_ahead_threshold: u32,
    /// Which changes of entries wait in change buffers.
    pub change_buffer: varve_change_buffer_options,
    pub sort_buffer_bytes: u64,
    /// Optional. Where that is sorted which does not fit, relative to the database's directory, in which it
    /// is otherwise.
    pub sort_directory: *const c_char,
    /// How many percent of each leaf are filled by loads, by building indexes and by rebuilding tables: 10 to
    /// 100.
    pub fill_factor_pct: u32,
    /// Memory that noting the rows which are changed while indexes are built may take: at least 64 KiB.
    pub online_log_bytes: u64,
    /// How changed pages are written.
    pub flush: varve_flush_options,
    /// Whether the buffer pool is filled after a restart as it was before.
    pub pool_dump: varve_pool_dump_options,
    /// Number of undo tablespaces, fixed when the database is created.
    pub undo_tablespaces: u32,
    /// Optional. Where the undo tablespaces of a new database are put, relative to its directory, in which
    /// they are otherwise; for an existing one, where somebody has moved them.
    pub undo_directory: *const c_char,
    /// How many rollback segments transactions take: 1 to 128. There are 95; one without undo tablespaces.
    pub undo_logs: u32,
    /// How many table files may be open at the same time, 10 at least; the database has about 20 more files
    /// open.
    pub open_files: u32,
    /// How many tables may be open that nobody uses; others are opened when they are needed.
    pub table_cache: u32,
    /// Memory that locks of rows and gaps may take.
    pub lock_memory_bytes: u64,
    /// How purge works.
    pub purge: varve_purge_options,
    /// What becomes of versions that old read views need.
    pub history: varve_history_options,
    /// How long a transaction waits for a row lock unless it says otherwise.
    pub lock_wait_timeout_ms: u64,
    /// 0; 1 to 6 to get at what is left of a damaged database, at the price of what is not. From 4 on nothing
    /// can be changed (VARVE_READ_ONLY), and no file is.
    pub force_recovery: u8,
    /// Nothing can be changed (VARVE_READ_ONLY), and no file is: what recovery has to do is done in memory,
    /// however much that is. What had not ended by a crash is not rolled back: plain reads do not see it, and
    /// who wants to lock its rows waits in vain.
    pub read_only: bool,
    /// A directory without a database gets one; otherwise that is VARVE_NOT_FOUND.
    pub create_if_missing: bool,
    /// Optional: what gives the keys of what is encrypted. All three may be used from any thread, several at
    /// a time. The newest version of a key, from 1 on; 0: there is no such key.
    pub newest_key_version: Option<unsafe extern "C" fn(context: *mut c_void, key: u32) -> u32>,
    /// Puts the bytes of a version of a key, 16 to 64, into `out`, which has room for 64. Returns how many
    /// they are; 0: there is no such version.
    pub key: Option<
        unsafe extern "C" fn(context: *mut c_void, key: u32, version: u32, out: *mut u8) -> u32,
    >,
    pub key_context: *mut c_void,
    /// Encrypt the pages of tables that don't say anything else, and those of undo and of the system
    /// tablespace. Takes a key 1.
    pub encrypt_tables: bool,
    /// Encrypt the redo log. Takes a key 1.
    pub encrypt_log: bool,
    /// Encrypt temporary tables.
    pub encrypt_temporary_tables: bool,
    /// How tablespaces become encrypted, or not, that are not as they are to be.
    pub rotation: varve_rotation_options,
    /// Optional; without it there are only Varve's own collations.
    pub find_collation: Option<
        unsafe extern "C" fn(context: *mut c_void, id: u32, out: *mut varve_collation) -> bool,
    >,
    pub collation_context: *mut c_void,
    /// Optional; without it messages go to standard error.
    pub log: Option<
        unsafe extern "C" fn(context: *mut c_void, level: varve_log_level, message: *const c_char),
    >,
    pub log_context: *mut c_void,
}

struct Logger {
    log: varve_log_fn,
    context: *mut c_void,
}

// SAFETY: the caller promises that the function may be called from any thread with this context.
unsafe impl Send for Logger {}
// SAFETY: as above, at the same time too.
unsafe impl Sync for Logger {}

impl Logger {
    fn log(&self, level: LogLevel, message: &str) {
        let level = match level {
            LogLevel::Note => varve_log_level::VARVE_LOG_NOTE,
            LogLevel::Warning => varve_log_level::VARVE_LOG_WARNING,
            LogLevel::Error => varve_log_level::VARVE_LOG_ERROR,
        };
        let message = c_text(message);
        // SAFETY: the message is NUL-terminated and outlives the call.
        unsafe { (self.log)(self.context, level, message.as_ptr()) };
    }
}

/// Fills `options` with the defaults.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_options_default(options: *mut varve_options) {
    let d = Options::default();
    let defaults = varve_options {
        page_size: d.page_size,
        buffer_pool_bytes: d.buffer_pool_bytes,
        large_pages: d.large_pages,
        redo_capacity_bytes: d.redo_capacity_bytes,
        log_buffer_bytes: d.log_buffer_bytes,
        flush_log_at_trx_commit: MaybeUninit::new(varve_flush_log::VARVE_FLUSH_SYNC),
        log_file_buffering: d.log_file_buffering,
        doublewrite: d.doublewrite,
        flush_method: MaybeUninit::new(d.flush_method.into()),
        use_native_aio: d.use_native_aio,
        read_ahead_threshold: d.read_ahead_threshold,
        change_buffer: d.change_buffer.into(),
        sort_buffer_bytes: d.sort_buffer_bytes,
        sort_directory: ptr::null(),
        fill_factor_pct: d.fill_factor_pct,
        online_log_bytes: d.online_log_bytes,
        undo_tablespaces: d.undo_tablespaces,
        undo_directory: ptr::null(),
        undo_logs: d.undo_logs,
        open_files: d.open_files,
        table_cache: d.table_cache,
        lock_memory_bytes: d.lock_memory_bytes,
        purge: d.purge.into(),
        history: d.history.into(),
        flush: d.flush.into(),
        pool_dump: varve_pool_dump_options::default(),
        lock_wait_timeout_ms: d.lock_wait_timeout.as_millis() as u64,
        force_recovery: d.force_recovery,
        read_only: d.read_only,
        create_if_missing: d.create_if_missing,
        newest_key_version: None,
        key: None,
        key_context: ptr::null_mut(),
        encrypt_tables: d.encrypt_tables,
        encrypt_log: d.encrypt_log,
        encrypt_temporary_tables: d.encrypt_temporary_tables,
        rotation: d.rotation.into(),
        find_collation: None,
        collation_context: ptr::null_mut(),
        log: None,
        log_context: ptr::null_mut(),
    };
    // SAFETY: CAPI-2.
    unsafe { options.write(defaults) };
}

/// # Safety
/// CAPI-2 holds for the options' pointers.
unsafe fn options(o: &varve_options) -> varve::Result<Options> {
    let flush_log = chosen("flush_log_at_trx_commit", o.flush_log_at_trx_commit)?;
    let flush_method = chosen("flush_method", o.flush_method)?;
    let mut out = Options {
        page_size: o.page_size,
        buffer_pool_bytes: o.buffer_pool_bytes,
        large_pages: o.large_pages,
        redo_capacity_bytes: o.redo_capacity_bytes,
        log_buffer_bytes: o.log_buffer_bytes,
        flush_log_at_trx_commit: flush_log.into(),
        log_file_buffering: o.log_file_buffering,
        doublewrite: o.doublewrite,
        flush_method: flush_method.into(),
        use_native_aio: o.use_native_aio,
        read_ahead_threshold: o.read_ahead_threshold,
        change_buffer: change_buffer_options(o.change_buffer)?,
        sort_buffer_bytes: o.sort_buffer_bytes,
        fill_factor_pct: o.fill_factor_pct,
        online_log_bytes: o.online_log_bytes,
        undo_tablespaces: o.undo_tablespaces,
        undo_logs: o.undo_logs,
        open_files: o.open_files,
        table_cache: o.table_cache,
        lock_memory_bytes: o.lock_memory_bytes,
        purge: o.purge.into(),
        history: o.history.into(),
        flush: o.flush.into(),
        // SAFETY: the caller's promise.
        pool_dump: unsafe { pool_dump_options(&o.pool_dump)? },
        lock_wait_timeout: Duration::from_millis(o.lock_wait_timeout_ms),
        force_recovery: o.force_recovery,
        read_only: o.read_only,
        create_if_missing: o.create_if_missing,
        encrypt_tables: o.encrypt_tables,
        encrypt_log: o.encrypt_log,
        encrypt_temporary_tables: o.encrypt_temporary_tables,
        rotation: o.rotation.into(),
        ..Options::default()
    };
    if !o.undo_directory.is_null() {
        // SAFETY: the caller's promise.
        let path = unsafe { text(o.undo_directory, "undo_directory")? };
        out.undo_directory = Some(path.into());
    }
    if !o.sort_directory.is_null() {
        // SAFETY: the caller's promise.
        let path = unsafe { text(o.sort_directory, "sort_directory")? };
        out.sort_directory = Some(path.into());
    }
    if let Some(log) = o.log {
        let logger = Logger {
            log,
            context: o.log_context,
        };
        out.logger = Some(Arc::new(move |level, message: &str| {
            logger.log(level, message)
        }));
    }
    if let (Some(newest), Some(key)) = (o.newest_key_version, o.key) {
        out.encryption_keys = Some(Arc::new(Keys::new(newest, key, o.key_context)));
    }
    if let Some(find) = o.find_collation {
        let finder = Finder::new(find, o.collation_context);
        out.find_collation = Some(Arc::new(move |id| finder.find(id)));
    }
    Ok(out)
}

/// Opens the database in directory `dir`, recovering it if it was not closed. `options` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_db_open(
    dir: *const c_char,
    options: *const varve_options,
    out: *mut *mut varve_db,
) -> varve_code {
    guard_without_database(|| {
        // SAFETY: CAPI-2.
        let (dir, options) = unsafe { (text(dir, "the data directory")?, options.as_ref()) };
        let options = match options {
            // SAFETY: CAPI-2.
            Some(options) => unsafe { self::options(options)? },
            None => Options::default(),
        };
        let db = Database::open(Path::new(dir), options)?;
        // SAFETY: CAPI-2.
        unsafe { out.write(Box::into_raw(Box::new(varve_db(db)))) };
        Ok(VARVE_OK)
    })
}

/// Closes the database: everything is flushed, so that opening needs no recovery. All other handles must be
/// closed before. The handle is gone even if this fails; the next open then recovers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_db_close(db: *mut varve_db) -> varve_code {
    // SAFETY: CAPI-2; the box came from varve_db_open.
    let db = unsafe { Box::from_raw(db) };
    guard_without_database(|| db.0.close().map(|()| VARVE_OK))
}

/// Whether entries of indexes give texts of this collation back, if not all of them. False if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_db_reads_texts(db: *const varve_db, collation: u32) -> bool {
    // SAFETY: CAPI-2.
    let db = unsafe { &*db };
    db.0.reads_texts(CollationId(collation)).unwrap_or(false)
}

/// Creates a table, durably (it is there after a crash) unless it is a temporary one. VARVE_ALREADY_EXISTS if
/// there is one of that name, or a file is in the way; VARVE_INVALID for a data directory that can't be one,
/// VARVE_IO if the system refuses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_table_create(
    db: *const varve_db,
    def: *const varve_table_def,
) -> varve_code {
    // SAFETY: CAPI-2.
    let (db, def) = unsafe { (&*db, &*def) };
    guard(&db.0, || {
        // SAFETY: CAPI-2.
        let engine_def = unsafe { table_def(def)? };
        let directory = match def.data_directory.is_null() {
            true => None,
            // SAFETY: CAPI-2.
            false => Some(unsafe { text(def.data_directory, "the data directory")? }),
        };
        let checks = || chosen("foreign_key_checks", def.foreign_key_checks);
        match (def.temporary, directory) {
            (true, None) => db.0.create_temporary_table(&engine_def)?,
            (true, Some(_)) => {
                let what = "a temporary table is in no data directory";
                return Err(varve::Error::invalid(what));
            }
            (false, None) => db.0.create_table_with(&engine_def, checks()?.into())?,
            (false, Some(at)) => db.0.create_table_in(at, &engine_def, checks()?.into())?,
        };
        Ok(VARVE_OK)
    })
}

/// Whether one of the new foreign keys of a table to be created has its rows follow a parent, which is there,
/// to NULL, where they can't have NULL: such changes of the parent will be refused. False, too, if the table
/// can't be created because of an earlier foreign key. With checks off the table itself is not there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_brings_null(
    db: *const varve_db,
    def: *const varve_table_def,
) -> bool {
    // SAFETY: CAPI-2.
    let (db, def) = unsafe { (&*db, &*def) };
    let mut found = false;
    guard(&db.0, || {
        // SAFETY: CAPI-2.
        let engine_def = unsafe { table_def(def)? };
        let checks = chosen("foreign_key_checks", def.foreign_key_checks)?;
        let are_off = ForeignKeyChecks::from(checks) == ForeignKeyChecks::Off;
        for key in engine_def.foreign_keys.iter().filter(|key| !key.kept) {
            let is_self = key.parent == engine_def.name;
            let other = (!is_self).then(|| db.0.table(&key.parent).ok()).flatten();
            let parent = match is_self && !are_off {
                true => Some(&engine_def),
                false => other.as_ref().map(Table::def),
            };
            found = match parent.map(|parent| engine_def.brings_null(key, parent)) {
                None if are_off => continue,
                Some(Ok(false)) => continue,
                Some(Ok(true)) => true,
                None | Some(Err(_)) => false,
            };
            break;
        }
        Ok(VARVE_OK)
    });
    found
}

/// Does something with the table of this name, and sees to foreign keys as `checks` says.
///
/// # Safety
///
/// CAPI-2.
pub(crate) unsafe fn with_checks(
    db: *const varve_db,
    name: *const c_char,
    checks: MaybeUninit<varve_foreign_key_checks>,
    does: impl FnOnce(&Database, &str, ForeignKeyChecks) -> varve::Result<()>,
) -> varve_code {
    // SAFETY: the caller's promise.
    let db = unsafe { &*db };
    guard(&db.0, || {
        // SAFETY: the caller's promise.
        let name = unsafe { text(name, "the table's name")? };
        let checks = chosen("checks", checks)?;
        does(&db.0, name, checks.into()).map(|()| VARVE_OK)
    })
}

/// Drops a table, durably. The caller sees to it that nobody uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_table_drop(
    db: *const varve_db,
    name: *const c_char,
    checks: MaybeUninit<varve_foreign_key_checks>,
) -> varve_code {
    // SAFETY: CAPI-2.
    unsafe { with_checks(db, name, checks, Database::drop_table_with) }
}

/// Renames a table, durably. The caller sees to it that nobody uses it. If `constraints_from` is not null,
/// the table's constraints whose names begin with it begin with `constraints_to` then. `checks` counts for a
/// copy, whose name begins with # behind the schema, and which takes the place of a table that has stepped
/// aside: unless it is VARVE_IGNORE_REFERENCES the copy has the indexes that foreign keys have had there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_table_rename(
    db: *const varve_db,
    from: *const c_char,
    to: *const c_char,
    constraints_from: *const c_char,
    constraints_to: *const c_char,
    checks: MaybeUninit<varve_foreign_key_checks>,
) -> varve_code {
    // SAFETY: CAPI-2.
    let db = unsafe { &*db };
    guard(&db.0, || {
        // SAFETY: CAPI-2.
        let (from, to) = unsafe { (text(from, "the table's name")?, text(to, "the new name")?) };
        let constraints = match constraints_from.is_null() {
            true => None,
            // SAFETY: CAPI-2.
            false => Some(unsafe {
                ConstraintPrefix {
                    from: text(constraints_from, "constraints_from")?,
                    to: text(constraints_to, "constraints_to")?,
                }
            }),
        };
        let checks = chosen("checks", checks)?;
        db.0.rename_table_with(from, to, constraints, checks.into())?;
        Ok(VARVE_OK)
    })
}

/// Empties a table, durably and at once, and starts its counter anew. The caller sees to it that nobody uses
/// it; handles of the table must be opened again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_table_truncate(
    db: *const varve_db,
    name: *const c_char,
    checks: MaybeUninit<varve_foreign_key_checks>,
) -> varve_code {
    // SAFETY: CAPI-2.
    unsafe { with_checks(db, name, checks, Database::truncate_table_with) }
}

/// Receives one text at a time.
pub type varve_text_fn = unsafe extern "C" fn(context: *mut c_void, text: *const c_char);

/// Hands a text to C, for as long as the call takes.
///
/// # Safety
/// CAPI-2 holds for `each`.
pub(crate) unsafe fn tell(each: varve_text_fn, context: *mut c_void, text: &str) {
    let text = c_text(text);
    // SAFETY: the caller's promise.
    unsafe { each(context, text.as_ptr()) };
}

/// Hands the names of all tables but temporary ones to `each`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_db_tables(
    db: *const varve_db,
    each: varve_text_fn,
    context: *mut c_void,
) -> varve_code {
    // SAFETY: CAPI-2.
    let db = unsafe { &*db };
    guard(&db.0, || {
        for name in db.0.tables()? {
            // SAFETY: CAPI-2.
            unsafe { tell(each, context, &name) };
        }
        Ok(VARVE_OK)
    })
}

/// Changes what commits wait for, from now on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_db_set_flush_log(
    db: *const varve_db,
    mode: MaybeUninit<varve_flush_log>,
) -> varve_code {
    // SAFETY: CAPI-2.
    let db = unsafe { &*db };
    guard(&db.0, || {
        let mode = chosen("mode", mode)?;
        db.0.set_flush_log_at_trx_commit(mode.into());
        Ok(VARVE_OK)
    })
}

/// Changes how many tables may be open that nobody uses (`table_cache`).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_db_set_table_cache(db: *const varve_db, tables: u32) {
    // SAFETY: CAPI-2.
    let db = unsafe { &*db };
    guard(&db.0, || {
        db.0.set_table_cache(tables);
        Ok(VARVE_OK)
    });
}

/// Whether deadlocks are looked for when a wait for a lock begins; they are unless this says otherwise.
/// Without it each of their members waits for as long as its timeout says. When it is turned on, those that
/// have come about meanwhile are broken.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_db_set_deadlock_detection(db: *const varve_db, on: bool) {
    // SAFETY: CAPI-2.
    let db = unsafe { &*db };
    guard(&db.0, || {
        db.0.set_deadlock_detection(on);
        Ok(VARVE_OK)
    });
}

/// Changes how much memory locks of rows and gaps may take. Those that are held stay.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_db_set_lock_memory(db: *const varve_db, bytes: u64) {
    // SAFETY: CAPI-2.
    let db = unsafe { &*db };
    guard(&db.0, || {
        db.0.set_lock_memory_bytes(bytes);
        Ok(VARVE_OK)
    });
}

/// Changes after how many leaves in a row a scan reads ahead. VARVE_INVALID: above 64, nothing was changed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_db_set_read_ahead_threshold(
    db: *const varve_db,
    leaves: u32,
) -> varve_code {
    // SAFETY: CAPI-2.
    let db = unsafe { &*db };
    guard(&db.0, || {
        db.0.set_read_ahead_threshold(leaves)?;
        Ok(VARVE_OK)
    })
}

/// Changes how much memory building indexes may take. VARVE_INVALID: less than 64 KiB, nothing was changed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_db_set_sort_buffer(db: *const varve_db, bytes: u64) -> varve_code {
    // SAFETY: CAPI-2.
    let db = unsafe { &*db };
    guard(&db.0, || {
        db.0.set_sort_buffer_bytes(bytes)?;
        Ok(VARVE_OK)
    })
}

/// Changes how many percent of each leaf are filled, by what is built from now on. VARVE_INVALID: less than
/// 10 or more than 100, nothing was changed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_db_set_fill_factor(db: *const varve_db, pct: u32) -> varve_code {
    // SAFETY: CAPI-2.
    let db = unsafe { &*db };
    guard(&db.0, || {
        db.0.set_fill_factor_pct(pct)?;
        Ok(VARVE_OK)
    })
}

/// Changes how much memory noting changed rows may take, for indexes that will be built. VARVE_INVALID: less
/// than 64 KiB, nothing was changed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_db_set_online_log(db: *const varve_db, bytes: u64) -> varve_code {
    // SAFETY: CAPI-2.
    let db = unsafe { &*db };
    guard(&db.0, || {
        db.0.set_online_log_bytes(bytes)?;
        Ok(VARVE_OK)
    })
}

/// Changes how much memory there is for cached pages. More is there at once; less takes a while, and nobody
/// waits for it. VARVE_INVALID: less than 256 pages, or more than the machine's memory; VARVE_NO_SPACE: the
/// system has no more. Then nothing was changed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_db_set_buffer_pool(db: *const varve_db, bytes: u64) -> varve_code {
    // SAFETY: CAPI-2.
    let db = unsafe { &*db };
    guard(&db.0, || {
        db.0.set_buffer_pool_bytes(bytes)?;
        Ok(VARVE_OK)
    })
}

/// Changes how much redo there may be between the checkpoint and the newest change. More is there at once; to
/// less the way is taken while the checkpoint moves. VARVE_INVALID: less than 2 MiB; VARVE_NO_SPACE: no room
/// for the files. Then nothing was changed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_db_set_redo_capacity(db: *const varve_db, bytes: u64) -> varve_code {
    // SAFETY: CAPI-2.
    let db = unsafe { &*db };
    guard(&db.0, || {
        db.0.set_redo_capacity_bytes(bytes)?;
        Ok(VARVE_OK)
    })
}

/// Changes how many rollback segments new transactions take. VARVE_INVALID: not from 1 to 128, nothing was
/// changed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_db_set_undo_logs(db: *const varve_db, count: u32) -> varve_code {
    // SAFETY: CAPI-2.
    let db = unsafe { &*db };
    guard(&db.0, || {
        db.0.set_undo_logs(count)?;
        Ok(VARVE_OK)
    })
}

/// Changes how purge works, from its next batch on. VARVE_INVALID: a value is out of bounds, nothing was
/// changed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_db_set_purge(
    db: *const varve_db,
    options: *const varve_purge_options,
) -> varve_code {
    // SAFETY: CAPI-2.
    let (db, options) = unsafe { (&*db, *options) };
    guard(&db.0, || {
        db.0.set_purge_options(options.into())?;
        Ok(VARVE_OK)
    })
}

/// Empties an undo tablespace, by its number from 1 on, and truncates its file; at most so long. `done` is
/// false if something has kept its undo from being purged until then: it is in use again as it is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_db_truncate_undo(
    db: *const varve_db,
    number: u32,
    at_most_ms: u64,
    done: *mut bool,
) -> varve_code {
    // SAFETY: CAPI-2.
    let db = unsafe { &*db };
    guard(&db.0, || {
        let truncated =
            db.0.truncate_undo(number as usize, Duration::from_millis(at_most_ms))?;
        // SAFETY: CAPI-2.
        unsafe { done.write(truncated) };
        Ok(VARVE_OK)
    })
}

/// Waits until purge has removed all that was deleted or replaced and no open view needs, at most so long.
/// False: it is not done yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_db_wait_for_purge(db: *const varve_db, at_most_ms: u64) -> bool {
    // SAFETY: CAPI-2.
    let db = unsafe { &*db };
    let mut done = false;
    guard(&db.0, || {
        done = db.0.wait_for_purge(Duration::from_millis(at_most_ms));
        Ok(VARVE_OK)
    });
    done
}

/// Makes everything that is committed durable, whatever commits wait for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn varve_db_flush_log(db: *const varve_db) -> varve_code {
    // SAFETY: CAPI-2.
    let db = unsafe { &*db };
    guard(&db.0, || db.0.flush_log().map(|()| VARVE_OK))
}
