//! What transactions, purge, recovery and DDL of one database share.

use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::base::{Counter, Error, IndexId, Lsn, Result, Sabotage, TrxNo};
use crate::buffer::BufferPool;
use crate::catalog::Tables;
use crate::history::History;
use crate::lock::LockManager;
use crate::mtr::MtrEnv;
use crate::redo::RedoLog;
use crate::undo::UndoSys;

use super::pacer::Pacer;
use super::parts::SpareParts;
use super::prepared::Prepared;
use super::purge_pause::PurgePause;
use super::purge_progress::PurgeProgress;
use super::settings::{DynamicSettings, FlushLog, PurgeOptions};
use super::sys::TxnSys;
use super::told::Told;

/// How urgent a message for the administrator is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogLevel {
    Note,
    Warning,
    Error,
}

/// Receives messages for the administrator.
pub type Logger = Arc<dyn Fn(LogLevel, &str) + Send + Sync>;

/// Wakes a background thread that sleeps while there is nothing to do.
#[derive(Default)]
pub struct Wakeup {
    signalled: Mutex<bool>,
    wake: Condvar,
    /// 1 while somebody sleeps: a notification without a sleeper is one load.
    sleeping: AtomicU8,
}

impl Wakeup {
    pub fn notify(&self) {
        // SeqCst on both sides: either the sleeper's look at the work sees ours, or we see it sleeping.
        if self.sleeping.load(Ordering::SeqCst) == 0 {
            return;
        }
        self.notify_always();
    }

    pub fn notify_always(&self) {
        *self.signalled.lock() = true;
        self.wake.notify_all();
    }

    /// Sleeps for `timeout` unless `notify_always` is called; `notify` does not see a sleeper. Returns
    /// whether it was called.
    pub fn pause(&self, timeout: Duration) -> bool {
        let mut signalled = self.signalled.lock();
        if !*signalled {
            self.wake.wait_for(&mut signalled, timeout);
        }
        // Left as it is for the `sleep` that follows.
        *signalled
    }

    /// Sleeps until notified or for `timeout`. `has_work` is asked once more after the sleeper is announced.
    pub fn sleep(&self, timeout: Duration, has_work: impl Fn() -> bool) {
        self.sleeping.store(1, Ordering::SeqCst);
        if !has_work() {
            let mut signalled = self.signalled.lock();
            if !*signalled {
                self.wake.wait_for(&mut signalled, timeout);
            }
            *signalled = false;
        }
        self.sleeping.store(0, Ordering::SeqCst);
    }
}

/// Counters of row operations and their kin; each stands for itself.
#[derive(Default)]
pub struct Counters {
    pub rows_inserted: Counter,
    /// Of these, with a load.
    pub rows_loaded: Counter,
    pub rows_updated: Counter,
    pub rows_deleted: Counter,
    pub rows_read: Counter,
    /// External values that were written to overflow pages, and that readers fetched from there.
    pub external_values_written: Counter,
    pub external_values_read: Counter,
    /// Overflow pages that purge and rollback gave back.
    pub overflow_pages_freed: Counter,
    pub commits: Counter,
    pub rollbacks: Counter,
    /// Roll pointers whose undo record was gone although the leaf record had not changed: zero in a sound
    /// database.
    pub undo_cuts: Counter,
    pub purged_logs: Counter,
    pub purged_records: Counter,
    /// Batches of purge, and the undo pages read for them.
    pub purge_invoked: Counter,
    pub purge_undo_log_pages: Counter,
    /// Undo records that purge has worked off: of deleted rows, and others.
    pub purge_del_mark_records: Counter,
    pub purge_upd_exist_or_extern_records: Counter,
    /// Undo records that the workers of purge have worked off.
    pub purge_helper_records: Counter,
    /// Microseconds for which purge left the processors to others (purge/pacing.rs).
    pub purge_pause_usec: Counter,
    /// Standstills of purge, and their ends (purge/pacing.rs).
    pub purge_stop_count: Counter,
    pub purge_resume_count: Counter,
    /// Truncations of undo tablespaces, and the microseconds that they took once a tablespace was empty.
    pub undo_truncations: Counter,
    pub undo_truncate_usec: Counter,
}

impl Counters {
    #[inline]
    pub fn add(counter: &Counter, n: u64) {
        counter.add(n);
    }
}

/// Number of stripes of the unique-check latches.
const UNIQUE_STRIPES: usize = 256;

/// What transactions, purge, recovery and DDL of one database share.
pub struct Core {
    pub mtr: Arc<MtrEnv>,
    pub pool: Arc<BufferPool>,
    pub log: Arc<RedoLog>,
    pub sys: TxnSys,
    pub locks: LockManager,
    pub undo: UndoSys,
    pub tables: Tables,
    /// A transaction that recovery has found may have changed any table (`EVERY_TABLE`).
    pub any_table_may_be_changed: AtomicBool,
    pub settings: DynamicSettings,
    pub counters: Counters,
    /// Of transactions that ended, for those to come.
    pub(super) spare: SpareParts,
    /// What views need that purge goes on behind.
    pub history: History,
    pub purge_wanted: Wakeup,
    pub purge_progress: PurgeProgress,
    pub purge_pause: PurgePause,
    /// Delays writers while purge lags.
    pub pacer: Pacer,
    /// The options of lag control may have changed.
    pub lag_options_changed: Wakeup,
    /// A change buffer has got its first entry, or nothing is to be buffered any more.
    pub merging_wanted: Wakeup,
    /// The oldest view when somebody looked last, and since when it has been that.
    oldest_view: Mutex<Option<(TrxNo, Instant)>>,
    pub prepared: Prepared,
    /// A unique check and its insert happen under the stripe of (index, unique key): two transactions that
    /// insert the same key check one after the other. Taken before page latches, never held during a lock
    /// wait.
    unique_stripes: Box<[Mutex<()>]>,
    logger: Logger,
    told: Told,
    /// Why nothing may be changed, if that is so.
    read_only: Option<String>,
}

impl Core {
    #[allow(clippy::too_many_arguments)]
    pub fn new(
        mtr: Arc<MtrEnv>,
        pool: Arc<BufferPool>,
        log: Arc<RedoLog>,
        sys: TxnSys,
        undo: UndoSys,
        tables: Tables,
        settings: DynamicSettings,
        logger: Logger,
    ) -> Core {
        Core {
            history: History::new(mtr.clone(), undo.env.spaces.clone()),
            mtr,
            pool,
            log,
            sys,
            locks: LockManager::new(),
            undo,
            tables,
            any_table_may_be_changed: AtomicBool::new(false),
            settings,
            counters: Counters::default(),
            spare: SpareParts::default(),
            purge_wanted: Wakeup::default(),
            purge_progress: PurgeProgress::default(),
            purge_pause: PurgePause::default(),
            pacer: Pacer::default(),
            lag_options_changed: Wakeup::default(),
            merging_wanted: Wakeup::default(),
            oldest_view: Mutex::new(None),
            prepared: Prepared::default(),
            unique_stripes: (0..UNIQUE_STRIPES).map(|_| Mutex::new(())).collect(),
            logger,
            told: Told::default(),
            read_only: None,
        }
    }

    /// Refuses changes from the beginning.
    pub fn refuse_changes(&mut self, why: String) {
        self.read_only = Some(why);
    }

    pub fn is_read_only(&self) -> bool {
        self.read_only.is_some()
    }

    /// The number of the oldest open view, which holds purge back, and for how long it is known to have been
    /// the oldest. Views don't look at the clock when they open: purge asks here now and then.
    pub fn oldest_view(&self) -> Option<(TrxNo, Duration)> {
        let oldest = self.sys.view_numbers().into_iter().min();
        let mut known = self.oldest_view.lock();
        if oldest != known.map(|(number, _)| number) {
            *known = oldest.map(|number| (number, Instant::now()));
        }
        known.map(|(number, since)| (number, since.elapsed()))
    }

    /// The stripe of a unique key.
    pub fn unique_stripe(&self, index: IndexId, key: &[u8]) -> &Mutex<()> {
        let hash = crc32c::crc32c_append(index.0 as u32, key);
        &self.unique_stripes[hash as usize % UNIQUE_STRIPES]
    }

    /// Makes a commit that ends at `lsn` as durable as the setting asks.
    pub fn make_durable(&self, lsn: Lsn) -> Result<()> {
        match self.settings.flush_log() {
            _ if self.log.is_sabotaged(Sabotage::AcknowledgedTooEarly) => Ok(()),
            FlushLog::Sync => self.log.sync_to(lsn),
            FlushLog::Write => self.log.write_to(lsn),
            FlushLog::Lazy => self.log.check(),
        }
    }

    /// Changes how purge works. Without a limit nobody is delayed from here on.
    pub fn set_purge(&self, options: PurgeOptions) -> Result<()> {
        self.settings.set_purge(options)?;
        if !options.limits_lag() {
            self.pacer.end();
        }
        self.lag_options_changed.notify_always();
        Ok(())
    }

    /// Wakes transactions that wait, so that interrupted ones notice.
    pub fn wake_interrupted(&self) {
        self.locks.wake_interrupted();
        self.pacer.wake_all();
    }

    /// An error if the database was poisoned.
    pub fn check_usable(&self) -> Result<()> {
        self.log.check()
    }

    /// The same for a caller that wants to change something.
    pub fn check_writable(&self) -> Result<()> {
        match &self.read_only {
            None => self.check_usable(),
            Some(why) => Err(Error::ReadOnly { why: why.clone() }),
        }
    }

    #[track_caller]
    pub fn note(&self, message: &str) {
        self.tell(LogLevel::Note, message, Location::caller());
    }

    #[track_caller]
    pub fn warn(&self, message: &str) {
        self.tell(LogLevel::Warning, message, Location::caller());
    }

    #[track_caller]
    pub fn error(&self, message: &str) {
        self.tell(LogLevel::Error, message, Location::caller());
    }

    fn tell(&self, level: LogLevel, message: &str, place: &'static Location<'static>) {
        match self.told.take(place, Instant::now()) {
            None => {}
            Some(0) => (self.logger)(level, message),
            Some(left_out) => (self.logger)(
                level,
                &format!("{message} (and {left_out} more like this before, which were left out)"),
            ),
        }
    }

    /// Poisons the database: something that can't be taken back failed halfway.
    pub fn fail(&self, why: &str) {
        self.log.poison(why);
    }
}
