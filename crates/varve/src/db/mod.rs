//! A database: opening, closing, background threads, and the faces of tables, transactions and cursors.

mod backup;
mod create;
mod export;
mod foreign;
#[cfg(feature = "internals")]
mod internals;
mod key_text;
mod load;
mod metrics;
mod open;
mod opener;
mod options;
mod pool_dump;
mod pool_warmth;
mod redefine;
mod report;
mod rotation;
mod settings;
mod standing;
mod statistics;
mod stored;
mod table_load;
mod transactions;
mod typed;
mod undo_directory;
mod undo_tablespaces;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::base::{Error, Result, TEMP_SPACE, Xid};
use crate::catalog::{OpenTable, TableDef};
use crate::ddl::{Ddl, ForeignKeyChecks};
use crate::encryption::EncryptionKeys;
use crate::flush::{FlushCounters, Flusher};
use crate::io::{DirLock, Disk, RealDisk};
use crate::lock::SessionText;
use crate::purge::Purge;
use crate::recovery::{Indexer, Progress as RecoveryProgress, Recovery};
use crate::redo::LogWriter;
use crate::row::{Collation, CollationId, Datum};
use crate::table::{
    CheckReport, CurrentRow, Cursor, OnDuplicate, delete_row, insert_row, insert_rows,
    lock_search_key, update_row,
};
use crate::txn::{AutoIncLock, Core, CoreHandles, FlushLog, Isolation, Transaction};

pub use backup::{BackupState, RunningBackup};
pub(crate) use create::CREATION_MARK;
pub use export::TableExport;
pub use foreign::{Reference, ReferencedParent};
pub use metrics::{Metric, MetricKind};
use open::OpenPurpose;
pub use options::Options;
use pool_warmth::PoolWarmth;
pub use pool_warmth::{PoolDumpOptions, PoolDumpStatus};
pub use redefine::{PreparedRedefinition, RedefinitionWaits};
use rotation::Rotation;
pub use rotation::{RotationOptions, RotationProgress};
pub use standing::{Kept, OldView, PurgeStanding, Standing, StoreRoom};
pub use transactions::{LockInfo, LockWaitInfo, TransactionInfo, TransactionState, ViewInfo};
pub use typed::{FromValue, Row, Rows};
pub(crate) use undo_directory::recorded as recorded_undo_directory;
pub use undo_tablespaces::UndoTablespace;

/// An open database. Clones share it; it closes when `close` is called or the last clone goes.
#[derive(Clone)]
pub struct Database {
    pub(crate) inner: Arc<DatabaseInner>,
}

pub(crate) struct DatabaseInner {
    pub core: Arc<Core>,
    /// For transactions.
    pub handles: CoreHandles,
    pub ddl: Arc<Ddl>,
    pub recovery: Arc<Recovery>,
    /// `None` in a database that is only looked at.
    pub indexer: Option<Indexer>,
    pub background: Mutex<Option<Background>>,
    pub flushed: Arc<FlushCounters>,
    pub warmth: PoolWarmth,
    pub rotation: Rotation,
    /// Whether it has threads.
    pub rotates: bool,
    /// Set before the log is poisoned on purpose.
    pub closed: Arc<AtomicBool>,
    pub dir: PathBuf,
    /// Keep other processes out, also of the directory of the undo tablespaces if that is another one.
    pub _dir_locks: (DirLock, Option<DirLock>),
}

/// The threads that work behind the users' backs, in the order in which they stop.
pub(crate) struct Background {
    /// `None` in a database that is only looked at.
    pub purge: Option<Purge>,
    pub recovery: Arc<Recovery>,
    pub flusher: Flusher,
    pub log_writer: LogWriter,
}

impl Background {
    /// Writes nothing more. The log is poisoned.
    fn break_off(mut self) {
        self.stop_purge();
        self.recovery.stop();
        self.flusher.stop();
    }

    fn stop_purge(&mut self) {
        if let Some(purge) = &mut self.purge {
            purge.stop();
        }
    }
}

impl Database {
    /// Opens the database in `dir`, or creates it there if there is none and the options allow it. After a
    /// crash this recovers it first.
    ///
    /// # Errors
    ///
    /// `InUse` if another process has it open, `NotFound` if there is none and none may be created, `Corrupt`
    /// or `CorruptFile` for damage, `Io` for what the operating system refuses.
    pub fn open(dir: impl AsRef<Path>, options: Options) -> Result<Database> {
        open::open(Arc::new(RealDisk), dir.as_ref(), options, OpenPurpose::Use)
    }

    /// Opens it to be looked at: `disk` is one whose changes nobody keeps.
    pub(crate) fn open_to_check(
        disk: Arc<dyn Disk>,
        dir: &Path,
        keys: Option<Arc<dyn EncryptionKeys>>,
    ) -> Result<Database> {
        let options = Options {
            encryption_keys: keys,
            create_if_missing: false,
            doublewrite: false,
            logger: Some(Arc::new(|_, _| {})),
            ..Options::default()
        };
        open::open(disk, dir, options, OpenPurpose::Check)
    }

    /// Writes everything out and stops. Other clones and transactions can't be used afterwards.
    pub fn close(self) -> Result<()> {
        self.inner.close()
    }

    /// Creates a table. Names have the form `schema/table`.
    ///
    /// # Errors
    ///
    /// `AlreadyExists`; `Invalid` for a definition that can't be used; `BadForeignKey` if a parent is not
    /// there or does not fit, `ConstraintExists` if the name of a foreign key is another one's.
    pub fn create_table(&self, def: &TableDef) -> Result<Table> {
        self.create_table_with(def, ForeignKeyChecks::On)
    }

    /// Creates a temporary table: its rows are in no log, and end with the table or when the database is
    /// closed or crashes. It is found under its name, which no other table may have, but is not among
    /// `tables`. One transaction at a time can use it, from its first use of the table to its end, and sees
    /// its newest rows; others get `Invalid`. Otherwise it is a table like others: with indexes, savepoints
    /// and rollback.
    ///
    /// # Errors
    ///
    /// `AlreadyExists`; `Invalid` for a definition that can't be used; `NoSpace`.
    pub fn create_temporary_table(&self, def: &TableDef) -> Result<Table> {
        Ok(Table {
            table: self.inner.ddl.create_temporary_table(def)?,
        })
    }

    /// Drops a table, once no transaction uses it any more.
    ///
    /// # Errors
    ///
    /// `NotFound`; `TableIsReferenced` by a foreign key of another table.
    pub fn drop_table(&self, name: &str) -> Result<()> {
        self.drop_table_with(name, ForeignKeyChecks::On)
    }

    /// Renames a table, once no transaction uses it any more. Handles on it have to be opened again. Those
    /// on the tables whose foreign keys refer to it stay. A name that begins with `#` (`schema/#name`) is
    /// that of a table that is still being filled to take another one's place: after its rename, views that
    /// are older than that refuse it with [`Error::DefinitionChanged`].
    pub fn rename_table(&self, from: &str, to: &str) -> Result<()> {
        self.rename_table_with(from, to, None, ForeignKeyChecks::On)
    }

    /// Removes all rows at once, once no transaction uses the table any more. Handles have to be opened
    /// again. A table to which another one's foreign key refers is refused (`TableIsReferenced`).
    pub fn truncate_table(&self, name: &str) -> Result<()> {
        self.truncate_table_with(name, ForeignKeyChecks::On)
    }

    /// Opens a table.
    pub fn table(&self, name: &str) -> Result<Table> {
        Ok(Table {
            table: self.inner.core.tables.get(name)?,
        })
    }

    /// The names of all tables, sorted; also of those that can't be used.
    pub fn tables(&self) -> Result<Vec<String>> {
        self.inner.core.tables.names()
    }

    /// Begins a transaction. Its read view opens at its first read.
    pub fn begin(&self, isolation: Isolation) -> Transaction {
        Transaction::begin(self.inner.handles.take(), isolation)
    }

    /// The names of all prepared transactions: of those that a crash or the end of their session left, which
    /// wait for `commit_prepared` or `rollback_prepared`, and of those whose [`Transaction`] is still there.
    pub fn prepared(&self) -> Vec<Xid> {
        self.inner.core.prepared.names()
    }

    /// Commits a prepared transaction that was left.
    ///
    /// # Errors
    ///
    /// `NotFound` if none is prepared under the name, `Invalid` if its [`Transaction`] is still there.
    pub fn commit_prepared(&self, xid: &Xid) -> Result<()> {
        self.inner.core.check_writable()?;
        let mut trx = Transaction::find_prepared(self.inner.core.clone(), xid)?;
        trx.remember_changed();
        trx.commit()
    }

    /// Rolls back a prepared transaction that was left. Errors as for `commit_prepared`.
    pub fn rollback_prepared(&self, xid: &Xid) -> Result<()> {
        self.inner.core.check_writable()?;
        Transaction::find_prepared(self.inner.core.clone(), xid)?.rollback()
    }

    /// Has `tell` called once every commit up to now is durable: by this thread if they are, otherwise soon,
    /// by another. Does not wait. If the database is poisoned before, `tell` is dropped without a call.
    pub fn when_durable(&self, tell: impl FnOnce() + Send + 'static) {
        let log = &self.inner.core.log;
        log.when_durable(log.next_lsn(), tell);
    }

    /// Registers a collation for text columns. Tables that use it must not be in use yet.
    pub fn register_collation(&self, collation: Collation) -> Result<()> {
        self.inner.ddl.collations.register(collation)
    }

    /// Whether entries of indexes give texts of a collation back, if not all of them.
    ///
    /// # Errors
    ///
    /// `NotFound`.
    pub fn reads_texts(&self, collation: CollationId) -> Result<bool> {
        let collation = self.inner.ddl.collations.get(collation)?;
        Ok(collation.reads_texts())
    }

    /// When commits become durable.
    pub fn flush_log_at_trx_commit(&self) -> FlushLog {
        self.inner.core.settings.flush_log()
    }

    /// Writes and syncs the redo log up to now: commits that were not waited for become durable.
    pub fn flush_log(&self) -> Result<()> {
        let log = &self.inner.core.log;
        log.sync_to(log.next_lsn())
    }

    /// Wakes transactions that wait for locks or are delayed by purge lag, so that interrupted ones notice.
    pub fn wake_interrupted(&self) {
        self.inner.core.wake_interrupted();
    }

    /// Tells the database's logger, as the engine itself does.
    #[track_caller]
    pub fn warn(&self, message: &str) {
        self.inner.core.warn(message);
    }

    /// Poisons the database: a caller's thread failed in the middle of something. Nothing more is written,
    /// and the next start recovers what was committed.
    pub fn poison(&self, why: &str) {
        self.inner.core.fail(why);
    }

    /// Writes the list of the pages in the buffer pool now.
    pub fn dump_buffer_pool(&self) -> Result<()> {
        self.inner.warmth.dump()
    }

    /// Begins to read the pages on the list in, in the background. `buffer_pool_load_status` tells how far it
    /// is.
    pub fn load_buffer_pool(&self) -> Result<()> {
        self.inner.core.check_usable()?;
        self.inner.warmth.start_load()
    }

    /// Ends that, if it is under way.
    pub fn abort_buffer_pool_load(&self) {
        self.inner.warmth.stop_load();
    }

    pub fn buffer_pool_dump_status(&self) -> PoolDumpStatus {
        self.inner.warmth.dump_status()
    }

    pub fn buffer_pool_load_status(&self) -> PoolDumpStatus {
        self.inner.warmth.load_status()
    }

    /// Empties an undo tablespace, by its number from 1 on, and truncates its file to the initial size: new
    /// transactions keep away from it, and as soon as those that use it have ended and purge is through with
    /// what they left, it is replaced. `false`: that was not so within this time, and it is in use again as
    /// it is. `Options::purge` has the same done by itself.
    ///
    /// # Errors
    ///
    /// `Invalid`: there is no such undo tablespace, or no other one.
    pub fn truncate_undo(&self, number: usize, at_most: Duration) -> Result<bool> {
        self.inner.core.check_writable()?;
        crate::purge::truncate(
            &self.inner.core,
            &self.inner.ddl.control,
            number,
            at_most,
            &|| false,
        )
    }

    /// Checks a table's trees and that rows and entries belong together. Other transactions may go on.
    pub fn check_table(&self, table: &Table) -> Result<CheckReport> {
        check_with(self.begin(Isolation::RepeatableRead), table)
    }

    /// Waits until purge has removed all that was deleted or replaced, at most so long: before the database
    /// is closed, for example, so that the next start has nothing to do. `false`: it is not done yet. An open
    /// view keeps it from that.
    pub fn wait_for_purge(&self, at_most: Duration) -> bool {
        let core = &self.inner.core;
        let begun = std::time::Instant::now();
        while core.undo.history_len() > 0 {
            if begun.elapsed() > at_most || core.check_usable().is_err() {
                return false;
            }
            core.purge_wanted.notify_always();
            std::thread::sleep(Duration::from_millis(1));
        }
        true
    }

    /// What recovery after a crash has still to do in the background.
    pub fn recovery_progress(&self) -> RecoveryProgress {
        self.inner.recovery.progress()
    }

    /// Waits until recovery after a crash has brought all pages up to date and rolled back what had not
    /// ended, at most so long. `false`: it is not through yet.
    pub fn wait_for_recovery(&self, at_most: Duration) -> bool {
        self.inner.recovery.wait(at_most)
    }

    /// Everything that the engine counts.
    pub fn metrics(&self) -> Vec<Metric> {
        let inner = &self.inner;
        let recovery = inner.recovery.progress();
        let indexer = inner.indexer.as_ref().map(Indexer::counters);
        metrics::collect(
            &inner.core,
            &inner.ddl.spaces,
            &inner.flushed,
            recovery,
            indexer,
        )
    }

    /// The same by the names of status variables.
    pub fn status(&self) -> Vec<(&'static str, u64)> {
        let metrics = self.metrics();
        metrics.iter().map(|m| (m.status_name, m.value)).collect()
    }

    /// The undo tablespaces, by number; none if undo is in the system tablespace.
    pub fn undo_tablespaces(&self) -> Vec<UndoTablespace> {
        undo_tablespaces::describe(&self.inner.core.undo)
    }

    /// The last deadlock, who waits for whom, and what holds purge back: titles with lines for a person to
    /// read.
    pub fn report(&self) -> Vec<(&'static str, String)> {
        self.report_with(|_| None)
    }

    /// The same with what `session` says of the sessions that transactions belong to, by their numbers.
    pub fn report_with(
        &self,
        session: impl Fn(u64) -> Option<SessionText>,
    ) -> Vec<(&'static str, String)> {
        let recovery = self.inner.recovery.progress();
        report::sections(&self.inner.core, &self.inner.flushed, recovery, &session)
    }

    pub fn dir(&self) -> &Path {
        &self.inner.dir
    }
}

impl DatabaseInner {
    fn stop_indexer(&self) {
        if let Some(indexer) = &self.indexer {
            indexer.stop();
        }
    }

    /// Stops without writing anything out, as a crash of the process would.
    pub(crate) fn crash(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.core.log.poison("the test crashed the database");
        self.warmth.stop_load();
        self.rotation.stop();
        self.stop_indexer();
        let background = self.background.lock().take();
        background.into_iter().for_each(Background::break_off);
    }

    fn close(&self) -> Result<()> {
        if self.closed.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        let Some(mut background) = self.background.lock().take() else {
            return Ok(());
        };
        self.warmth.stop_load();
        self.rotation.stop();
        self.stop_indexer();
        if self.core.is_read_only() {
            self.core.log.poison("the database was closed");
            background.break_off();
            return Ok(());
        }
        if self.warmth.options().at_shutdown
            && let Err(e) = self.warmth.dump()
        {
            let why = format!("the list of pages in the buffer pool was not written: {e}");
            self.core.warn(&why);
        }
        background.stop_purge();
        background.recovery.finish_pages();
        let core = &self.core;
        let done = background.flusher.shutdown_clean();
        core.log.poison("the database was closed");
        background.flusher.stop();
        drop(background.log_writer);
        if let (Ok(()), Some(indexer)) = (&done, &self.indexer) {
            indexer.remove_all();
        }
        // A program that loads us as a library may take the code away afterwards.
        self.ddl.spaces.end_background();
        // What remains of it after a crash is replaced at the next start.
        let _ = self.ddl.spaces.drop_space(TEMP_SPACE);
        let _ = core.history.close();
        done
    }
}

impl Drop for DatabaseInner {
    fn drop(&mut self) {
        if let Err(e) = self.close() {
            self.core.warn(&format!(
                "closing the database failed, recovery will follow: {e}"
            ));
        }
    }
}

/// A handle on a table.
#[derive(Clone)]
pub struct Table {
    pub(crate) table: Arc<OpenTable>,
}

impl Table {
    /// As it was when the database opened the table: for the names of parents see `foreign_keys`.
    pub fn def(&self) -> &TableDef {
        &self.table.def
    }

    /// Whether `Database::create_temporary_table` made it.
    pub fn is_temporary(&self) -> bool {
        self.table.is_temporary()
    }

    /// Where the table's file is, if that is not the data directory: what `Database::create_table_in` was
    /// told.
    pub fn data_directory(&self) -> Option<&Path> {
        let file = self.table.clustered.tree.space.target()?;
        // In a directory for its schema.
        file.parent()?.parent()
    }

    /// Number of an index by its name; 0 is the primary key.
    pub fn index_by_name(&self, name: &str) -> Option<usize> {
        self.table.def.index_number(name)
    }

    /// Rows in a key range of an index, estimated by looking at a few pages. Bounds are keys (the first parts
    /// of the index) with whether rows that start with them belong to the range.
    pub fn records_in_range(
        &self,
        index: usize,
        low: Option<(&[Datum<'_>], bool)>,
        high: Option<(&[Datum<'_>], bool)>,
    ) -> Result<u64> {
        crate::table::records_in_range(&self.table, index, low, high)
    }

    pub fn page_size(&self) -> usize {
        self.table.clustered.tree.page_size()
    }

    /// When a transaction that has changed rows of the table committed last, in seconds since 1970, as far as
    /// that is known: it is nowhere on disk.
    pub fn changed_at(&self) -> Option<u64> {
        Some(self.table.changed.get()).filter(|at| *at != 0)
    }

    /// The next AUTO_INCREMENT value.
    pub fn auto_increment_next(&self) -> u64 {
        self.table.auto_increment()
    }

    /// Takes `n` consecutive AUTO_INCREMENT values; returns the first.
    pub fn auto_increment_reserve(&self, n: u64) -> u64 {
        self.table.reserve_auto_increment(n)
    }

    /// Makes the next AUTO_INCREMENT value at least `next`.
    pub fn auto_increment_raise(&self, next: u64) {
        self.table.raise_auto_increment(next);
    }

    /// Sets the next AUTO_INCREMENT value durably with the next commit.
    pub fn set_auto_increment(&self, next: u64) -> Result<()> {
        self.table.set_auto_increment(next)
    }

    /// Bytes of the tablespace that are in use, and that it has free.
    pub fn used_and_free_bytes(&self) -> Result<(u64, u64)> {
        self.table.used_and_free_bytes()
    }

    /// The longest `Cursor::position` of this table, in bytes.
    pub fn max_position_bytes(&self) -> usize {
        crate::row::MAX_KEY_BYTES
    }

    /// A cursor over index number `index` (0: the primary key).
    pub fn cursor(&self, index: usize) -> Result<Cursor> {
        Cursor::open(self.table.clone(), index)
    }
}

impl Transaction {
    /// Inserts a row: one datum per column, in the order of the definition.
    ///
    /// # Errors
    ///
    /// `DuplicateKey` names the index; `TooLarge`, `Invalid` for values that don't fit; `LockWaitTimeout` and
    /// `Deadlock` for keys that others work on. The row is not there in any of these cases.
    pub fn insert(&mut self, table: &Table, row: &[Datum<'_>]) -> Result<()> {
        self.insert_or(table, row, OnDuplicate::LockShared)
    }

    /// Like `insert`; says how a row with the same key is locked before `DuplicateKey` is returned.
    pub fn insert_or(
        &mut self,
        table: &Table,
        row: &[Datum<'_>],
        on_duplicate: OnDuplicate,
    ) -> Result<()> {
        self.use_table(&table.table, crate::lock::TableMode::IntentionExclusive)?;
        insert_row(self, &table.table, row, on_duplicate)
    }

    /// Inserts many rows, which costs much less than one `insert` for each: they go in in the order of their
    /// keys, and those that come to lie on one page do so in one step. Some hundreds or thousands at a time
    /// are enough; they need not be in any order.
    ///
    /// ```
    /// use varve::{ColumnType, Database, Isolation, Options, TableDef};
    ///
    /// # fn main() -> varve::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = Database::open(dir.path(), Options::default())?;
    /// let def = TableDef::new("map/squares")
    ///     .column("n", ColumnType::u32())
    ///     .column("square", ColumnType::u64())
    ///     .primary(&["n"]);
    /// let squares = db.create_table(&def)?;
    ///
    /// let numbers: Vec<_> = (0..10_000u32).map(|n| (n.to_le_bytes(),
    /// u64::from(n).pow(2).to_le_bytes())).collect(); let rows: Vec<_> = numbers.iter().map(|(n, square)|
    /// [Some(&n[..]), Some(&square[..])]).collect(); let mut trx = db.begin(Isolation::RepeatableRead);
    /// trx.insert_many(&squares, &rows)?;
    /// trx.commit()?;
    /// assert_eq!(squares.row_count_estimate(), 10_000);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of `insert`. None of the rows is there in any of these cases.
    pub fn insert_many<'a>(
        &mut self,
        table: &Table,
        rows: &[impl AsRef<[Datum<'a>]>],
    ) -> Result<()> {
        self.use_table(&table.table, crate::lock::TableMode::IntentionExclusive)?;
        let rows: Vec<&[Datum<'a>]> = rows.iter().map(AsRef::as_ref).collect();
        insert_rows(self, &table.table, &rows)
    }

    /// Locks a search key exclusively, whether or not any row has it, against transactions that do the same.
    /// One that does so before looking for rows with that key can keep it unique in an index that is not:
    /// others wait until this transaction has ended, and find its row then.
    pub fn lock_key(&mut self, table: &Table, index: usize, key: &[Datum<'_>]) -> Result<()> {
        lock_search_key(self, &table.table, index, key)
    }

    /// Locks a whole table for reading until the transaction ends: waits for transactions that changed it,
    /// prepared transactions included.
    pub fn lock_table_shared(&mut self, table: &Table) -> Result<()> {
        self.use_table(&table.table, crate::lock::TableMode::Shared)
    }

    /// Has a whole table alone, until the transaction ends: waits for all that have locked anything in it, or
    /// have looked for parents there.
    pub fn lock_table_exclusive(&mut self, table: &Table) -> Result<()> {
        self.use_table(&table.table, crate::lock::TableMode::Exclusive)
    }

    /// Takes `n` consecutive AUTO_INCREMENT values for the running statement; returns the first. A statement
    /// that locks the counter gives it up at `end_statement`, `start_statement`, or the transaction's end.
    pub fn auto_increment_reserve(
        &mut self,
        table: &Table,
        n: u64,
        lock: AutoIncLock,
    ) -> Result<u64> {
        self.draw_auto_increment(&table.table, n, lock)
    }

    /// As [`Database::check_table`], for a statement of this transaction, which has not changed the table: it
    /// waits as long as the transaction would, and is interrupted with it.
    pub fn check_table(&self, table: &Table) -> Result<CheckReport> {
        let mut trx = Transaction::begin(self.core().clone(), Isolation::RepeatableRead);
        trx.wait_as(self);
        check_with(trx, table)
    }

    /// Replaces the row that the cursor stands on, which was read with an exclusive lock. `false`: it has
    /// these values already, byte by byte, and nothing was written.
    pub fn update(&mut self, table: &Table, cursor: &Cursor, row: &[Datum<'_>]) -> Result<bool> {
        let current = current_of(self, table, cursor)?;
        update_row(self, &table.table, current, row)
    }

    /// Drops a temporary table that this transaction may have used, for good: a rollback does not bring it
    /// back. Cursors on it can't be used any more.
    ///
    /// # Errors
    ///
    /// `Invalid` for a table that is not temporary or that another transaction uses; `NotFound` if it is
    /// gone.
    pub fn drop_temporary_table(&mut self, table: &Table) -> Result<()> {
        crate::ddl::drop_temporary_table(self, &table.table)
    }

    /// Deletes the row that the cursor stands on, which was read with an exclusive lock.
    pub fn delete(&mut self, table: &Table, cursor: &Cursor) -> Result<()> {
        let current = current_of(self, table, cursor)?;
        delete_row(self, &table.table, current)
    }
}

/// Checks a table by a transaction that is there for nothing else.
fn check_with(mut trx: Transaction, table: &Table) -> Result<CheckReport> {
    let report = crate::table::check_table(&mut trx, &table.table)?;
    trx.commit()?;
    Ok(report)
}

/// The row that the cursor, which has to be one of this table's, stands on.
fn current_of<'a>(trx: &Transaction, table: &Table, cursor: &'a Cursor) -> Result<CurrentRow<'a>> {
    let is_same = std::ptr::eq(cursor.table().mtr_env(), table.table.mtr_env());
    if !is_same || cursor.table().id() != table.table.id() {
        return Err(Error::invalid(format!(
            "a cursor on table {} for a row of table {}",
            cursor.table().def.name,
            table.table.def.name
        )));
    }
    if table.table.is_dropped() {
        let name = &table.table.def.name;
        return Err(Error::not_found(format!("table {name} (it was dropped)")));
    }
    cursor.current(trx)
}
