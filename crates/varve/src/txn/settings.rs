//! Settings that may change while the database is open.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::base::{Error, Result};

/// When a commit's redo is made durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FlushLog {
    /// 0: written and synced about once a second. A crash may lose the last second's commits.
    Lazy,
    /// 1: synced before the commit returns.
    #[default]
    Sync,
    /// 2: given to the operating system before the commit returns, synced about once a second.
    Write,
}

impl FlushLog {
    pub fn from_number(n: u8) -> Option<FlushLog> {
        [FlushLog::Lazy, FlushLog::Sync, FlushLog::Write]
            .get(n as usize)
            .copied()
    }
}

/// How purge works.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PurgeOptions {
    /// Threads that help the one that is always there: at most [`PurgeOptions::MAX_THREADS`].
    pub threads: u32,
    /// Undo pages that are read for a batch: 1 to [`PurgeOptions::MAX_BATCH_SIZE`]. A larger batch visits a
    /// page of a table less often and takes more memory; while threads wait for free frames of the buffer
    /// pool it has four times as many.
    pub batch_size: u32,
    /// After so many batches free undo pages go back to their tablespaces: 1 to
    /// [`PurgeOptions::MAX_TRUNCATE_FREQUENCY`]. When there is nothing to do they go back anyway.
    pub rseg_truncate_frequency: u32,
    /// Truncates undo tablespaces that have become larger than `max_undo_log_size`, one at a time, as soon as
    /// they can be emptied. There have to be two or more.
    pub undo_log_truncate: bool,
    /// Bytes: at least [`PurgeOptions::MIN_MAX_UNDO_LOG_SIZE`].
    pub max_undo_log_size: u64,
    /// While more transactions than this wait to be purged, whatever keeps purge from them, those that update
    /// or delete are slowed down to what purge can take off. 0: they never are.
    pub max_purge_lag: u64,
    /// How long one row change is delayed for that at most: up to
    /// [`PurgeOptions::LONGEST_MAX_PURGE_LAG_DELAY`]. Below 50 µs nobody is delayed: no sleep is shorter.
    pub max_purge_lag_delay: Duration,
}

impl Default for PurgeOptions {
    fn default() -> PurgeOptions {
        PurgeOptions {
            threads: 4,
            batch_size: 300,
            rseg_truncate_frequency: PurgeOptions::MAX_TRUNCATE_FREQUENCY,
            undo_log_truncate: true,
            max_undo_log_size: 128 << 20,
            max_purge_lag: 0,
            max_purge_lag_delay: Duration::from_millis(50),
        }
    }
}

impl PurgeOptions {
    pub const MAX_THREADS: u32 = 32;
    pub const MAX_BATCH_SIZE: u32 = 5000;
    pub const MAX_TRUNCATE_FREQUENCY: u32 = 128;
    pub const MIN_MAX_UNDO_LOG_SIZE: u64 = 10 << 20;
    pub const LONGEST_MAX_PURGE_LAG_DELAY: Duration = Duration::from_secs(10);

    /// A longest delay of 0 is none.
    pub(crate) fn limits_lag(&self) -> bool {
        self.max_purge_lag > 0 && !self.max_purge_lag_delay.is_zero()
    }

    pub(crate) fn validate(&self) -> Result<()> {
        let bounds = [
            ("threads", self.threads, 0, Self::MAX_THREADS),
            ("batch_size", self.batch_size, 1, Self::MAX_BATCH_SIZE),
            (
                "rseg_truncate_frequency",
                self.rseg_truncate_frequency,
                1,
                Self::MAX_TRUNCATE_FREQUENCY,
            ),
        ];
        if self.max_undo_log_size < Self::MIN_MAX_UNDO_LOG_SIZE {
            return Err(Error::invalid(format!(
                "purge.max_undo_log_size {} is below {}",
                self.max_undo_log_size,
                Self::MIN_MAX_UNDO_LOG_SIZE
            )));
        }
        if self.max_purge_lag_delay > Self::LONGEST_MAX_PURGE_LAG_DELAY {
            return Err(Error::invalid(format!(
                "purge.max_purge_lag_delay {:?} is longer than {:?}",
                self.max_purge_lag_delay,
                Self::LONGEST_MAX_PURGE_LAG_DELAY
            )));
        }
        for (name, value, least, most) in bounds {
            if !(least..=most).contains(&value) {
                return Err(Error::invalid(format!(
                    "purge.{name} {value} is not between {least} and {most}"
                )));
            }
        }
        Ok(())
    }
}

/// The history store, with which purge need not wait for old read views.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HistoryOptions {
    /// Purge goes on behind old views, and copies what they need to the store. Without it purge waits for
    /// them, but for those that rely on the store already.
    pub store: bool,
    /// For how long a view holds purge back before purge goes on behind it: up to
    /// [`HistoryOptions::LONGEST_DELAY`].
    pub delay: Duration,
    /// Bytes that the store may take: at least [`HistoryOptions::MIN_MAX_SIZE`]. While it is full purge
    /// waits. `None`: a tenth of the file system.
    pub max_size: Option<u64>,
}

impl Default for HistoryOptions {
    fn default() -> HistoryOptions {
        HistoryOptions {
            store: true,
            delay: Duration::from_secs(1),
            max_size: None,
        }
    }
}

impl HistoryOptions {
    pub const LONGEST_DELAY: Duration = Duration::from_secs(3600);
    pub const MIN_MAX_SIZE: u64 = 1 << 20;

    pub(crate) fn validate(&self) -> Result<()> {
        if self.delay > Self::LONGEST_DELAY {
            return Err(Error::invalid(format!(
                "history.delay {:?} is longer than {:?}",
                self.delay,
                Self::LONGEST_DELAY
            )));
        }
        match self.max_size {
            Some(size) if size < Self::MIN_MAX_SIZE => Err(Error::invalid(format!(
                "history.max_size {size} is below {}",
                Self::MIN_MAX_SIZE
            ))),
            _ => Ok(()),
        }
    }
}

/// Settings that may change while the database is open.
pub struct DynamicSettings {
    flush_log: AtomicU8,
    lock_wait_timeout_ms: AtomicU64,
    purge: Mutex<PurgeOptions>,
    history: Mutex<HistoryOptions>,
}

impl DynamicSettings {
    pub fn new(
        flush_log: FlushLog,
        lock_wait_timeout: Duration,
        purge: PurgeOptions,
        history: HistoryOptions,
    ) -> DynamicSettings {
        DynamicSettings {
            flush_log: AtomicU8::new(flush_log as u8),
            lock_wait_timeout_ms: AtomicU64::new(lock_wait_timeout.as_millis() as u64),
            purge: Mutex::new(purge),
            history: Mutex::new(history),
        }
    }

    // Relaxed throughout: each value stands for itself.
    pub fn flush_log(&self) -> FlushLog {
        FlushLog::from_number(self.flush_log.load(Ordering::Relaxed))
            .expect("only valid values are stored")
    }

    pub fn set_flush_log(&self, mode: FlushLog) {
        self.flush_log.store(mode as u8, Ordering::Relaxed);
    }

    pub fn lock_wait_timeout(&self) -> Duration {
        Duration::from_millis(self.lock_wait_timeout_ms.load(Ordering::Relaxed))
    }

    pub fn set_lock_wait_timeout(&self, timeout: Duration) {
        self.lock_wait_timeout_ms
            .store(timeout.as_millis() as u64, Ordering::Relaxed);
    }

    pub fn purge(&self) -> PurgeOptions {
        *self.purge.lock()
    }

    pub fn set_purge(&self, options: PurgeOptions) -> Result<()> {
        options.validate()?;
        *self.purge.lock() = options;
        Ok(())
    }

    pub fn history(&self) -> HistoryOptions {
        *self.history.lock()
    }

    pub fn set_history(&self, options: HistoryOptions) -> Result<()> {
        options.validate()?;
        *self.history.lock() = options;
        Ok(())
    }
}
