//! How a database is opened.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::base::{Error, Result, Sabotage, Stops, processors};
use crate::buffer::{ChangeBufferOptions, READ_AHEAD_THRESHOLD};
use crate::db::{PoolDumpOptions, RotationOptions};
use crate::encryption::{Encryption, EncryptionKeys, Keyring};
use crate::flush::FlushOptions;
use crate::io::FlushMethod;
use crate::recovery::ScanSettings;
use crate::redo::{Control, LogSettings, Through};
use crate::row::{Collation, FindCollation};
use crate::space::Spaces;
use crate::txn::{FlushLog, HistoryOptions, Logger, PurgeOptions, RING_BITS};
use crate::undo::{MAX_UNDO_LOGS, MAX_UNDO_SPACES};

const LEAST_OPEN_FILES: u32 = 10;
const MAX_READ_AHEAD_THRESHOLD: u32 = 64;
const MIN_BUILD_BYTES: u64 = 64 << 10;
/// Levels of `Options::force_recovery`: damage that recovery meets is passed over; nothing is purged; nothing
/// is rolled back; nothing is written, and nothing looked at that nobody asks for; undo is not looked at;
/// redo is not looked at.
pub(super) const FORCE_DAMAGE: u8 = 1;
const FORCE_NO_PURGE: u8 = 2;
const FORCE_NO_ROLLBACK: u8 = 3;
const FORCE_READ_ONLY: u8 = 4;
pub(super) const FORCE_NO_UNDO: u8 = 5;
pub(super) const FORCE_NO_REDO: u8 = 6;
const MOST_FORCE: u8 = FORCE_NO_REDO;
const LEAST_RECOVERY_MEMORY_BYTES: u64 = 4 << 20;
/// With less, half of the pool would be hardly more than a quarter beside it, and what is left hardly enough.
const LEAST_SHARED_POOL_BYTES: u64 = 256 << 20;
const MOST_SCAN_THREADS: usize = 8;
const MOST_RECOVERY_THREADS: usize = 8;

/// How a database is opened. `Options::default()` suits a small machine.
#[derive(Clone)]
pub struct Options {
    /// Bytes of a page, fixed when the database is created: a power of two from 4096 to 65536.
    pub page_size: u32,
    /// Bytes of memory for pages.
    pub buffer_pool_bytes: u64,
    /// Has the system give the pool huge pages, 2 MiB on most machines, where it can (Linux's transparent
    /// ones): a search in the pool then misses the processor's table of addresses less often. The system may
    /// be set to give none, which the log says.
    pub large_pages: bool,
    /// Bytes of redo between the checkpoint and the newest change.
    pub redo_capacity_bytes: u64,
    /// Bytes of the log buffer: a power of two.
    pub log_buffer_bytes: u64,
    /// When commits become durable.
    pub flush_log_at_trx_commit: FlushLog,
    /// Writes the redo log through the operating system's cache: of use only where commits wait for no disk.
    /// With [`FlushLog::Write`] it is done anyway.
    pub log_file_buffering: bool,
    /// Protects pages from being torn by a crash while they are written.
    pub doublewrite: bool,
    /// Whether data files are read and written past the operating system's cache, which is worth it for a
    /// pool that has most of the memory, and not for a small one beside much memory. If the file system can't
    /// do that, they go through it, and the log says so.
    pub flush_method: FlushMethod,
    /// Reads and writes pages by the operating system's own way for many operations at a time (io_uring),
    /// where it works; a few threads do it otherwise. The log says which.
    pub use_native_aio: bool,
    /// After how many leaves in a row a scan reads those ahead that come next: 1 to 64; 0: it never does.
    pub read_ahead_threshold: u32,
    /// Which changes of entries wait in change buffers while their leaf is not in the pool, and for how many
    /// of them there is room.
    pub change_buffer: ChangeBufferOptions,
    /// Bytes of memory that building the indexes of one `redefine_table` may take; what does not fit goes
    /// into a file. At least 64 KiB.
    pub sort_buffer_bytes: u64,
    /// Where such a file is, relative to the database's directory, in which it is otherwise. It has no name
    /// there, so nothing of it is left by a process that is killed. A transaction may say something else
    /// (`Transaction::set_sort_directory`).
    pub sort_directory: Option<PathBuf>,
    /// Gives the keys of what is encrypted.
    pub encryption_keys: Option<Arc<dyn EncryptionKeys>>,
    /// Encrypts the pages of tables that don't say anything else ([`TableDef::encryption`]), and those of
    /// undo and of the system tablespace: those that are written from now on. Takes a key 1.
    ///
    /// [`TableDef::encryption`]: crate::TableDef::encryption
    pub encrypt_tables: bool,
    /// Encrypts the redo log from now on, with key 1.
    pub encrypt_log: bool,
    /// Encrypts temporary tables, with a key that this process draws.
    pub encrypt_temporary_tables: bool,
    /// How tablespaces become encrypted, or not, that are not as they are to be.
    pub rotation: RotationOptions,
    /// How many percent of each leaf are filled by loads, by building indexes and by rebuilding tables: 10 to
    /// 100. What is left is room for rows that come later.
    pub fill_factor_pct: u32,
    /// Bytes of memory that noting the rows which are changed meanwhile may take; if it is not enough,
    /// building the indexes fails. At least 64 KiB.
    pub online_log_bytes: u64,
    /// How changed pages are written.
    pub flush: FlushOptions,
    /// Whether the buffer pool is filled after a restart as it was before.
    pub pool_dump: PoolDumpOptions,
    /// How many table files may be open at the same time: at least 10. Others are opened when they are
    /// needed, in the place of those used longest ago. The database has about 20 more files open.
    pub open_files: u32,
    /// How many tables may be open that nobody uses: others are opened when they are needed, in the place of
    /// those used longest ago.
    pub table_cache: u32,
    /// Undo tablespaces, fixed when the database is created: 1 to 95, or 0 for a single rollback segment in
    /// the system tablespace, which suits small databases with few writers.
    pub undo_tablespaces: u32,
    /// Where the undo tablespaces of a new database are put, relative to its directory, in which they are
    /// otherwise. A database knows where they are; if somebody has moved them, this says where to.
    pub undo_directory: Option<PathBuf>,
    /// How many rollback segments transactions take: 1 to 128. There are 95 in the undo tablespaces, and one
    /// if there are no undo tablespaces. A rollback segment has room for 1,024 undo logs of running
    /// transactions, each of which has one or two.
    pub undo_logs: u32,
    /// How long a statement waits for a lock.
    pub lock_wait_timeout: Duration,
    /// Bytes that locks of rows and gaps may take: more are refused with `LockTableFull`.
    pub lock_memory_bytes: u64,
    /// How purge works.
    pub purge: PurgeOptions,
    /// What becomes of versions that old read views need.
    pub history: HistoryOptions,
    /// Collations besides the built-in ones.
    pub collations: Vec<Collation>,
    /// Asked for other collations when a table that uses them is created or opened.
    pub find_collation: Option<FindCollation>,
    /// Bytes of redo that recovery keeps in memory, beside the buffer pool, until it is applied; what is more
    /// goes to a file in the data directory meanwhile. 0: if the buffer pool has 256 MiB or more, half of it,
    /// which has so much less room for pages until then; else a quarter of it, beside it.
    pub recovery_memory_bytes: u64,
    /// From how many bytes on the buffer pool is large enough for that.
    #[cfg(feature = "internals")]
    pub least_shared_pool_bytes: u64,
    /// While there is so much redo between the checkpoint and the newest change, full files of the redo log
    /// get indexes, by which the start after a crash need not read them before the database opens. Less is
    /// read in a fraction of a second. `u64::MAX`: no file gets one.
    pub redo_index_from_bytes: u64,
    /// Threads that bring pages up to date while the database is in use after a crash; `None`: two at least,
    /// one for each processor, eight at most. With 0 only those pages are that somebody uses, until the
    /// database is closed, no transaction is rolled back, and the redo log may become full.
    #[cfg(feature = "internals")]
    pub recovery_threads: Option<usize>,
    /// The states of so many ids of transactions, as a power of two, are in an array; those of older ones
    /// that are needed are elsewhere. Tests take few, to get there.
    #[cfg(feature = "internals")]
    pub transaction_ring_bits: u32,
    /// To get at what is left of a damaged database that does not open or does not stay open: 0 to 6,
    /// docs/damage.md has what each level passes over. From 1 to 3 nothing that was not lost before is safe.
    /// From 4 on nothing can be changed: everything that recovery does stays in memory, and the files are as
    /// they were.
    pub force_recovery: u8,
    /// Nothing can be changed, and no file is: what recovery has to do is done in memory, however much that
    /// is. What had not ended by a crash is not rolled back: plain reads do not see it, and who wants to lock
    /// its rows waits in vain. For a copy on a medium that can't be written.
    pub read_only: bool,
    /// Create the database if the directory has none.
    pub create_if_missing: bool,
    /// Receives messages for the administrator; standard error if `None`.
    pub logger: Option<Logger>,
    /// What the database does wrong on purpose, for tests of tests.
    #[cfg(feature = "sabotage")]
    pub sabotage: Option<Sabotage>,
    /// Where tests hold a thread.
    #[cfg(feature = "sabotage")]
    pub stops: Arc<Stops>,
}

/// Where recovery has its memory, and how many bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RecoveryMemory {
    /// The pool has so much less as long as it is used.
    OfPool(u64),
    Beside(u64),
}

impl Default for Options {
    fn default() -> Options {
        Options {
            page_size: 16384,
            buffer_pool_bytes: 128 << 20,
            large_pages: true,
            redo_capacity_bytes: 96 << 20,
            log_buffer_bytes: 16 << 20,
            flush_log_at_trx_commit: FlushLog::Sync,
            log_file_buffering: false,
            doublewrite: true,
            flush_method: FlushMethod::Fsync,
            use_native_aio: true,
            read_ahead_threshold: READ_AHEAD_THRESHOLD,
            change_buffer: ChangeBufferOptions::default(),
            sort_buffer_bytes: 32 << 20,
            sort_directory: None,
            encryption_keys: None,
            encrypt_tables: false,
            encrypt_log: false,
            encrypt_temporary_tables: false,
            rotation: RotationOptions::default(),
            fill_factor_pct: 100,
            online_log_bytes: 128 << 20,
            flush: FlushOptions::default(),
            pool_dump: PoolDumpOptions::default(),
            open_files: 512,
            table_cache: 2000,
            undo_tablespaces: 2,
            undo_directory: None,
            undo_logs: MAX_UNDO_LOGS as u32,
            lock_wait_timeout: Duration::from_secs(50),
            lock_memory_bytes: 1 << 30,
            purge: PurgeOptions::default(),
            history: HistoryOptions::default(),
            collations: Vec::new(),
            find_collation: None,
            recovery_memory_bytes: 0,
            #[cfg(feature = "internals")]
            least_shared_pool_bytes: LEAST_SHARED_POOL_BYTES,
            redo_index_from_bytes: 256 << 20,
            #[cfg(feature = "internals")]
            recovery_threads: None,
            #[cfg(feature = "internals")]
            transaction_ring_bits: RING_BITS,
            force_recovery: 0,
            read_only: false,
            create_if_missing: true,
            logger: None,
            #[cfg(feature = "sabotage")]
            sabotage: None,
            #[cfg(feature = "sabotage")]
            stops: Arc::default(),
        }
    }
}

impl Options {
    pub(super) fn validate(&self) -> Result<()> {
        if !self.page_size.is_power_of_two() || !(4096..=65536).contains(&self.page_size) {
            return Err(Error::invalid(format!(
                "page_size {} is not a power of two from 4096 to 65536",
                self.page_size
            )));
        }
        if self.undo_tablespaces > MAX_UNDO_SPACES as u32 {
            return Err(Error::invalid(format!(
                "undo_tablespaces {} is above {MAX_UNDO_SPACES}",
                self.undo_tablespaces
            )));
        }
        validate_undo_logs(self.undo_logs)?;
        validate_read_ahead_threshold(self.read_ahead_threshold)?;
        validate_build_bytes("sort_buffer_bytes", self.sort_buffer_bytes)?;
        validate_fill_factor_pct(self.fill_factor_pct)?;
        validate_build_bytes("online_log_bytes", self.online_log_bytes)?;
        if self.open_files < LEAST_OPEN_FILES {
            return Err(Error::invalid(format!(
                "open_files {} is below {LEAST_OPEN_FILES}",
                self.open_files
            )));
        }
        self.change_buffer.validate()?;
        self.purge.validate()?;
        self.history.validate()?;
        self.flush.validate()?;
        self.pool_dump.validate()?;
        self.rotation.validate()?;
        if self.force_recovery > MOST_FORCE {
            return Err(Error::unsupported(format!(
                "force_recovery {}: there are levels up to {MOST_FORCE}",
                self.force_recovery
            )));
        }
        let bits = self.transaction_ring_bits();
        if !(10..=24).contains(&bits) {
            return Err(Error::invalid(format!("transaction_ring_bits {bits}")));
        }
        validate_buffer_pool(self.buffer_pool_bytes, u64::from(self.page_size))
    }

    /// Has the tablespaces encrypted as it is wanted.
    pub(super) fn encrypting(&self, spaces: Spaces) -> Result<Spaces> {
        let spaces = spaces.with_keys(self.keyring());
        spaces.set_encrypts_tables(self.encrypt_tables)?;
        spaces.set_encrypts_temporary(self.encrypt_temporary_tables);
        Ok(spaces)
    }

    /// Whether a start goes on without a table that has redo, and lacks its key: not by accident.
    pub(super) fn gives_up_keys(&self) -> bool {
        self.force_recovery > FORCE_DAMAGE
    }

    /// Whether there is the key that takes, if there may be encrypted tables.
    pub(super) fn check_keys(&self, may_be_encrypted: bool) -> Result<()> {
        let takes_key = self.encrypt_tables || self.encrypt_log || may_be_encrypted;
        match takes_key {
            true => self.keyring().newest(Encryption::FIRST_KEY).map(drop),
            false => Ok(()),
        }
    }

    fn keyring(&self) -> Keyring {
        #[cfg_attr(not(feature = "sabotage"), expect(unused_mut))]
        let mut keyring = Keyring::new(self.encryption_keys.clone());
        #[cfg(feature = "sabotage")]
        {
            keyring.takes_all = self.is_sabotaged(Sabotage::TagNotChecked);
        }
        keyring
    }

    /// Where sorts go of a database in this directory.
    pub(super) fn sort_directory_in(&self, dir: &Path) -> PathBuf {
        match &self.sort_directory {
            Some(own) => dir.join(own),
            None => dir.into(),
        }
    }

    pub(super) fn is_read_only(&self) -> bool {
        self.read_only || self.force_recovery >= FORCE_READ_ONLY
    }

    pub(super) fn purges(&self) -> bool {
        !self.is_read_only() && self.force_recovery < FORCE_NO_PURGE
    }

    pub(super) fn rolls_back(&self) -> bool {
        !self.is_read_only() && self.force_recovery < FORCE_NO_ROLLBACK
    }

    /// Whether the database is to do this wrong.
    pub(super) fn is_sabotaged(&self, _sabotage: Sabotage) -> bool {
        #[cfg(feature = "sabotage")]
        return self.sabotage == Some(_sabotage);
        #[cfg(not(feature = "sabotage"))]
        false
    }

    pub(super) fn stops(&self) -> Arc<Stops> {
        #[cfg(feature = "sabotage")]
        return self.stops.clone();
        #[cfg(not(feature = "sabotage"))]
        Arc::default()
    }

    pub(super) fn recovery_memory(&self) -> RecoveryMemory {
        let pool = self.buffer_pool_bytes;
        match self.recovery_memory_bytes {
            0 if pool >= self.least_shared_pool_bytes() => RecoveryMemory::OfPool(pool / 2),
            0 => RecoveryMemory::Beside((pool / 4).max(LEAST_RECOVERY_MEMORY_BYTES)),
            bytes => RecoveryMemory::Beside(bytes),
        }
    }

    pub(super) fn scan_settings(&self) -> ScanSettings {
        let (RecoveryMemory::OfPool(memory_bytes) | RecoveryMemory::Beside(memory_bytes)) =
            self.recovery_memory();
        ScanSettings {
            memory_bytes,
            threads: processors().min(MOST_SCAN_THREADS),
            through: match self.log_is_buffered() {
                true => Through::Cache,
                false => Through::Direct,
            },
            spill: self.flush_method,
            goes_by_indexes: !self.is_read_only(),
            forgets_a_block: self.is_sabotaged(Sabotage::RecoveryBlockForgotten),
        }
    }

    fn least_shared_pool_bytes(&self) -> u64 {
        #[cfg(feature = "internals")]
        return self.least_shared_pool_bytes;
        #[cfg(not(feature = "internals"))]
        LEAST_SHARED_POOL_BYTES
    }

    pub(super) fn recovery_threads(&self) -> usize {
        #[cfg(feature = "internals")]
        if let Some(threads) = self.recovery_threads {
            return threads;
        }
        processors().clamp(2, MOST_RECOVERY_THREADS)
    }

    pub(super) fn transaction_ring_bits(&self) -> u32 {
        #[cfg(feature = "internals")]
        return self.transaction_ring_bits;
        #[cfg(not(feature = "internals"))]
        RING_BITS
    }

    /// The log is written and read through the operating system's cache.
    fn log_is_buffered(&self) -> bool {
        self.log_file_buffering || self.flush_log_at_trx_commit == FlushLog::Write
    }

    pub(super) fn log_settings(&self, control: &Control) -> LogSettings {
        let mut settings =
            LogSettings::new(self.redo_capacity_bytes, control.page_size, control.uuid);
        settings.buffer_bytes = self.log_buffer_bytes;
        settings.buffered = self.log_is_buffered();
        settings.encrypted = self.encrypt_log;
        settings.keyring = self.keyring();
        #[cfg(feature = "sabotage")]
        {
            settings.sabotage = self.sabotage;
        }
        settings
    }
}

pub(super) fn validate_build_bytes(option: &str, bytes: u64) -> Result<()> {
    match bytes {
        MIN_BUILD_BYTES.. => Ok(()),
        _ => {
            let what = format!("{option} {bytes} is below {MIN_BUILD_BYTES}");
            Err(Error::invalid(what))
        }
    }
}

pub(super) fn validate_fill_factor_pct(pct: u32) -> Result<()> {
    match (10..=100).contains(&pct) {
        true => Ok(()),
        false => {
            let what = format!("fill_factor_pct {pct} is not from 10 to 100");
            Err(Error::invalid(what))
        }
    }
}

pub(super) fn validate_buffer_pool(bytes: u64, page_size: u64) -> Result<()> {
    let least = 256 * page_size;
    match bytes >= least {
        true => Ok(()),
        false => {
            let what = format!("buffer_pool_bytes {bytes} is below 256 pages ({least} bytes)");
            Err(Error::invalid(what))
        }
    }
}

pub(super) fn validate_read_ahead_threshold(leaves: u32) -> Result<()> {
    match leaves <= MAX_READ_AHEAD_THRESHOLD {
        true => Ok(()),
        false => {
            let what = format!("read_ahead_threshold {leaves} is above {MAX_READ_AHEAD_THRESHOLD}");
            Err(Error::invalid(what))
        }
    }
}

pub(super) fn validate_undo_logs(count: u32) -> Result<()> {
    match (1..=MAX_UNDO_LOGS as u32).contains(&count) {
        true => Ok(()),
        false => {
            let what = format!("undo_logs {count} is not from 1 to {MAX_UNDO_LOGS}");
            Err(Error::invalid(what))
        }
    }
}

pub(super) fn to_standard_error() -> Logger {
    Arc::new(|level, message| eprintln!("varve {level:?}: {message}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recovery_takes_half_of_a_large_pool_or_has_memory_of_its_own() {
        use RecoveryMemory::*;
        const MIB: u64 = 1 << 20;
        for (pool, set, memory) in [
            (4 * MIB, 0, Beside(4 * MIB)),
            (128 * MIB, 0, Beside(32 * MIB)),
            (255 * MIB, 0, Beside(255 * MIB / 4)),
            (256 * MIB, 0, OfPool(128 * MIB)),
            (2048 * MIB, 0, OfPool(1024 * MIB)),
            (2048 * MIB, 100, Beside(100)),
            (128 * MIB, 512 * MIB, Beside(512 * MIB)),
        ] {
            let options = Options {
                buffer_pool_bytes: pool,
                recovery_memory_bytes: set,
                ..Options::default()
            };
            let what = format!("pool of {pool} bytes, {set} set");
            assert_eq!(options.recovery_memory(), memory, "{what}");
            let (OfPool(bytes) | Beside(bytes)) = memory;
            assert_eq!(options.scan_settings().memory_bytes, bytes, "{what}");
        }
    }
}
