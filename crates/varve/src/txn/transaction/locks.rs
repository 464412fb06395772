//! The locks that a transaction takes: on rows, gaps and tables.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::base::{Error, IndexId, Result, Sabotage, TableId, TrxId, Watch};
use crate::btree::Seek;
use crate::catalog::{OpenTable, RowRecord, TableDef};
use crate::lock::{Acquired, LastRow, Mode, TableMode, TrxLocks, Wait};

use super::super::value_source::ValueSource;
use super::{Isolation, Transaction, TrxState};

/// The lock of a table that is none: with an intention by who may have changed any table, shared by who
/// locks a table as a whole.
pub(in crate::txn) const EVERY_TABLE: TableId = TableId(0);

impl Transaction {
    /// Locks a row for as long as the transaction lives; waits as long as the lock wait timeout allows.
    pub(crate) fn lock_record(&self, index: IndexId, key: &[u8], mode: Mode) -> Result<Acquired> {
        let got = (self.core.locks).lock_record(self.locks(), index, key, mode, self.wait())?;
        self.maybe_forget(index, key, mode, got);
        Ok(got)
    }

    fn maybe_forget(&self, index: IndexId, key: &[u8], mode: Mode, got: Acquired) {
        let is_new_and_shared = mode == Mode::Shared && got == Acquired::New;
        if is_new_and_shared && self.core.log.is_sabotaged(Sabotage::SharedLocksForgotten) {
            self.unlock_record(index, key);
        }
    }

    /// How this transaction waits for a lock. Tells the lock table what rolling it back would cost.
    pub(in crate::txn) fn wait(&self) -> Wait<'_> {
        // Who would not wait is in no deadlock.
        if self.lock_wait.is_zero() {
            return Wait::No;
        }
        self.locks().set_weight(self.next_undo_no());
        Wait::For {
            timeout: self.lock_wait,
            interrupt: self.interrupt(),
        }
    }

    /// Keeps others from putting keys from `low` up to `high` into an index, for as long as the transaction
    /// lives. Does not wait: called under the latch of the leaf that these keys belong to.
    pub(crate) fn lock_gap(&self, index: IndexId, low: &[u8], high: Option<&[u8]>) -> Result<()> {
        match self.core.log.is_sabotaged(Sabotage::GapsOpen) {
            true => Ok(()),
            false => self.core.locks.lock_gap(self.locks(), index, low, high),
        }
    }

    /// Whether scans are to call `lock_range` for what they pass.
    pub(crate) fn prefers_ranges(&self) -> bool {
        let log = &self.core.log;
        self.core.locks.holds_many(self.locks())
            && !log.is_sabotaged(Sabotage::GapsOpen)
            && !log.is_sabotaged(Sabotage::SharedLocksForgotten)
    }

    /// The same, and locks the rows that are there, all of which the transaction has locked.
    pub(crate) fn lock_range(
        &self,
        index: IndexId,
        interval: (&[u8], Option<&[u8]>),
        mode: Mode,
        row: Option<LastRow<'_>>,
    ) -> Result<()> {
        let locks = &self.core.locks;
        locks.lock_range(self.locks(), index, interval, mode, row)
    }

    /// Whether somebody's gap lock keeps this transaction from putting the key into the index. Does not wait:
    /// called under the exclusive latch of the key's leaf, before the key goes there.
    #[inline]
    pub(crate) fn is_kept_out(&self, index: IndexId, key: &[u8]) -> bool {
        self.core.locks.keeps_out(self.locks(), index, key)
    }

    /// Waits until nobody keeps the key out of the index any more. No latch may be held; look again
    /// afterwards.
    pub(crate) fn wait_to_insert(&self, index: IndexId, key: &[u8]) -> Result<()> {
        self.core
            .locks
            .wait_to_insert(self.locks(), index, key, self.wait())
    }

    /// Locks a row if nobody is in the way. Does not wait: may be called under a page latch.
    pub(crate) fn try_lock_record(
        &self,
        index: IndexId,
        key: &[u8],
        mode: Mode,
    ) -> Option<Acquired> {
        let got = (self.core.locks).try_lock_record(self.locks(), index, key, mode)?;
        self.maybe_forget(index, key, mode, got);
        Some(got)
    }

    pub(crate) fn locks(&self) -> &TrxLocks {
        self.locks
            .as_ref()
            .expect("there until the transaction is dropped")
    }

    /// The transaction did something elsewhere that can't be taken back, or did not: if it runs into a
    /// deadlock, others are rolled back rather than one that did.
    pub fn set_spared(&mut self, spared: bool) {
        self.locks().set_spared(spared);
    }

    /// A prepared transaction gives up what a restart would not bring back either: locks on rows that it did
    /// not change, and on gaps. Nothing of what it wrote depends on them, and who decides about it may take
    /// long. At SERIALIZABLE it keeps them: until it ends, what it has read stays as it was.
    pub fn release_searches(&mut self) {
        if self.state != TrxState::Prepared || self.isolation == Isolation::Serializable {
            return;
        }
        let by_id = |(table, _): &(TableId, TableMode)| self.core.tables.by_id(*table).ok()?;
        let tables: Vec<_> = self.tables.iter().filter_map(by_id).collect();
        self.core
            .locks
            .release_searches(self.locks(), |index, key| {
                // What can't be looked at stays locked, and so does a search key, which has no writer.
                let table = tables.iter().find(|table| table.clustered.id == index);
                let writer = table.and_then(|table| writer_of(table, key).ok());
                writer.is_none_or(|writer| writer == self.id)
            });
    }

    pub(crate) fn lock_wait_timeout(&self) -> Duration {
        self.lock_wait
    }

    /// How long a statement waits for a lock.
    pub fn set_lock_wait_timeout(&mut self, timeout: Duration) {
        self.lock_wait = timeout;
    }

    /// Waits as long as `other` does, is interrupted with it, and tells its watch.
    pub(crate) fn wait_as(&mut self, other: &Transaction) {
        self.lock_wait = other.lock_wait;
        self.set_interrupt(other.interrupt().clone());
        self.set_watch(other.watch().cloned());
    }

    /// An error if a wait for another thread has to stop: the transaction was interrupted, or the database
    /// has stopped.
    pub(crate) fn check_waiting(&self) -> Result<()> {
        self.check_interrupt()?;
        self.core.check_usable()
    }

    /// From now on this one is told how far statements have come that take long: loads, checks, statistics
    /// and rollbacks, which are given this transaction.
    pub fn set_watch(&mut self, watch: Option<Watch>) {
        self.watch = watch;
    }

    /// Where what it builds and loads is sorted, if memory is not enough for that: in this directory, in a
    /// file without a name. `None`: where `Options::sort_directory` says.
    pub fn set_sort_directory(&mut self, directory: Option<PathBuf>) {
        self.sort_directory = directory;
    }

    pub(crate) fn sort_directory(&self) -> Option<&Path> {
        self.sort_directory.as_deref()
    }

    pub(crate) fn watch(&self) -> Option<&Watch> {
        self.watch.as_ref()
    }

    /// The caller keeps tables from changing under the transaction by means of its own (MariaDB's metadata
    /// locks), so that readers need no intention locks. Writers take theirs all the same: CHECK TABLE waits
    /// for them.
    pub fn trust_metadata_locks(&mut self) {
        self.own_table_locks = false;
    }

    /// Whether changes are checked by foreign keys, and followed by their children (`foreign_key_checks`). On
    /// unless this was called. What is changed while they are off is not looked at later.
    pub fn set_foreign_key_checks(&mut self, on: bool) {
        self.foreign_key_checks = on;
    }

    pub(crate) fn checks_foreign_keys(&self) -> bool {
        self.foreign_key_checks
    }

    /// Whom to ask for values when a foreign key changes a row whose table has computed columns or history.
    /// Without one such a change is refused.
    pub fn set_value_source(&mut self, values: Arc<dyn ValueSource>) {
        self.values = Some(values);
    }

    /// Asks whom `other` asks.
    pub(crate) fn ask_as(&mut self, other: &Transaction) {
        self.values.clone_from(&other.values);
    }

    pub(crate) fn values(&self) -> Option<Arc<dyn ValueSource>> {
        self.values.clone()
    }

    pub(crate) fn value_source(&self, table: &OpenTable) -> Result<Arc<dyn ValueSource>> {
        self.values.clone().ok_or_else(|| {
            Error::unsupported(format!(
                "a row of table {}, which has computed columns or history, is to be made, and the transaction has nobody to ask",
                table.def.name
            ))
        })
    }

    /// Locks a table that an operation is about to use, and makes sure that it has not been dropped
    /// meanwhile.
    pub(crate) fn use_table(&mut self, table: &OpenTable, mode: TableMode) -> Result<()> {
        if table.is_temporary() {
            self.core.undo.env.spaces.check_temporary()?;
        }
        self.take_table(table, mode)
    }

    /// The same for a caller that does not need what is in it.
    pub(crate) fn take_table(&mut self, table: &OpenTable, mode: TableMode) -> Result<()> {
        self.check_database(table)?;
        if table.is_temporary() {
            self.claim_table(table)?;
        } else if !self.has_table(table.id(), mode) {
            if self.own_table_locks || mode != TableMode::IntentionShared {
                self.lock_table(table.id(), mode)?;
            } else {
                self.check_active()?;
                self.tables.push((table.id(), mode));
            }
        }
        if !table.is_dropped() {
            return Ok(());
        }
        let name = &table.def.name;
        // A rollback has found it damaged meanwhile, unless it was dropped.
        let is_it = |def: &TableDef| def.id == table.id();
        match self.core.tables.broken(name) {
            Some(broken) if broken.def.as_ref().is_some_and(is_it) => Err(broken.why),
            _ => Err(Error::not_found(format!(
                "table {name} (it was dropped or renamed)"
            ))),
        }
    }

    pub(in crate::txn) fn check_database(&self, table: &OpenTable) -> Result<()> {
        if std::ptr::eq(table.mtr_env(), &*self.core.mtr) {
            return Ok(());
        }
        let name = &table.def.name;
        Err(Error::invalid(format!(
            "table {name} belongs to another database than the transaction"
        )))
    }

    /// TEMP-1. Nobody waits: a temporary table belongs to one session, which has one transaction at a time.
    fn claim_table(&mut self, table: &OpenTable) -> Result<()> {
        if self.has_table(table.id(), TableMode::Exclusive) {
            return Ok(());
        }
        self.check_active()?;
        let claim = table.claim().ok_or_else(|| {
            let name = &table.def.name;
            Error::invalid(format!(
                "another transaction is using the temporary table {name}; end it first"
            ))
        })?;
        self.claims.push(claim);
        self.tables.push((table.id(), TableMode::Exclusive));
        Ok(())
    }

    /// Lets others read a table again that the transaction has locked exclusively, and change it unless `to`
    /// is `Shared`; DDL waits on.
    pub(crate) fn weaken_table(&mut self, table: &OpenTable, to: TableMode) {
        let locks = self.locks();
        let is_weaker = self.core.locks.weaken_table(locks, table.id(), to);
        debug_assert!(is_weaker, "it was locked exclusively");
        for (id, mode) in &mut self.tables {
            if *id == table.id() && *mode == TableMode::Exclusive {
                *mode = to;
            }
        }
    }

    pub(crate) fn has_table(&self, table: TableId, mode: TableMode) -> bool {
        let covers = |(t, m): &(TableId, TableMode)| *t == table && m.covers(mode);
        self.tables.iter().any(covers)
    }

    /// The row was changed: its TrxId says now that it is locked.
    #[inline]
    pub(crate) fn give_up_written(&self, index: IndexId, key: &[u8]) {
        self.core.locks.give_up_written(self.locks(), index, key);
    }

    /// Gives up a row lock that the transaction took but does not want.
    pub(crate) fn unlock_record(&self, index: IndexId, key: &[u8]) {
        self.core.locks.unlock_record(self.locks(), index, key);
    }

    /// Whether others may have to wait for the transaction: it has written, or locked anything.
    pub fn holds_locks(&self) -> bool {
        self.id().is_some() || self.locks().holds_any()
    }

    /// Locks a table for what a statement does beside those that it names: their intentions may be the
    /// caller's alone, who may have given them up since. False, and nothing is locked, if this is no handle
    /// of the table any more: DDL that was waited for has dropped it, or put it aside and will drop it soon.
    /// It would wait for the lock until the transaction has ended (FK-5).
    pub(crate) fn lock_other_table(&mut self, table: &OpenTable, mode: TableMode) -> Result<bool> {
        let id = table.id();
        let is_read = !self.own_table_locks && mode == TableMode::IntentionShared;
        let is_held = match is_read {
            true => self.read_tables.contains(&id),
            false => self.has_table(id, mode),
        };
        if is_read && !is_held {
            self.check_active()?;
            let locks = &self.core.locks;
            locks.lock_table(self.locks(), id, mode, self.wait())?;
            self.read_tables.push(id);
        } else if !is_held {
            self.lock_table(id, mode)?;
        }
        let is_gone = table.is_dropped();
        if is_gone && !is_held {
            match is_read {
                true => drop(self.read_tables.pop()),
                false => drop(self.tables.pop()),
            }
            self.core.locks.unlock_table(self.locks(), id, mode);
        }
        Ok(!is_gone)
    }

    /// Locks a table in an intention or full mode.
    pub(crate) fn lock_table(&mut self, table: TableId, mode: TableMode) -> Result<()> {
        if self.has_table(table, mode) {
            return Ok(());
        }
        self.check_active()?;
        // Nobody waits for what will be refused.
        if matches!(mode, TableMode::IntentionExclusive | TableMode::Exclusive) {
            self.core.check_writable()?;
        }
        let is_whole = matches!(mode, TableMode::Shared | TableMode::Exclusive);
        // Relaxed: it is set before anybody uses the database.
        if is_whole && self.core.any_table_may_be_changed.load(Ordering::Relaxed) {
            self.take(EVERY_TABLE, TableMode::Shared)?;
        }
        self.take(table, mode)
    }

    fn take(&mut self, table: TableId, mode: TableMode) -> Result<()> {
        let locks = &self.core.locks;
        locks.lock_table(self.locks(), table, mode, self.wait())?;
        self.tables.push((table, mode));
        Ok(())
    }
}

/// Who wrote the record with this clustered key; `None` if there is none.
fn writer_of(table: &OpenTable, key: &[u8]) -> Result<Option<TrxId>> {
    let leaf = table.clustered.tree.latch_leaf_shared(key, Seek::Ge)?;
    if !leaf.exact {
        return Ok(None);
    }
    let record = RowRecord::decode(leaf.slotted().payload(leaf.at));
    Ok(record.map(|record| record.trx))
}
