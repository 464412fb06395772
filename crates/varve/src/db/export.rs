//! Files of tables on their way to other databases.
//!
//! A table's file can be copied while a [`TableExport`] is there. It is complete then, and nothing writes to
//! it:
//!
//! - its lock keeps those away who would change rows, and DDL. It waits for all transactions that have
//!   changed the table, prepared ones and those that recovery rolls back, too: so no row needs undo;
//! - purge is paused (PAUSE-1): delete-marked rows and their long values stay where they are;
//! - then its pages are written and synced. A page that is not changed is not written again.

use std::time::Duration;

use crate::base::{Error, Result, SpaceId};
use crate::ddl::{ForeignKeyChecks, refresh_copy};
use crate::lock::TableMode;
use crate::txn::{Isolation, PurgePaused, Transaction};

use super::{Database, RedefinitionWaits};

/// How long an export waits for recovery, unless somebody says it.
const RECOVERY_PATIENCE: Duration = Duration::from_secs(3600);

/// As long as it is there a table's file does not change, and has all that is in the table.
pub struct TableExport {
    /// Has the table's lock.
    _trx: Transaction,
    _no_purge: PurgePaused,
}

impl Database {
    /// Makes a table's file one that can be copied, until the export is dropped; others may read the table
    /// meanwhile. It begins once no transaction changes the table. Purge stands still for all tables.
    ///
    /// The file can be [imported](Database::import_table) into a table of another database.
    ///
    /// # Errors
    ///
    /// `Unsupported`: a temporary table.
    pub fn export_table(&self, name: &str, waits: RedefinitionWaits) -> Result<TableExport> {
        let (core, spaces) = (&self.inner.core, &self.inner.ddl.spaces);
        core.check_writable()?;
        // Pages that recovery has not come to are not dirty, and not as they are in the pool.
        let patience = waits.lock_wait_timeout.unwrap_or(RECOVERY_PATIENCE);
        if !self.wait_for_recovery(patience) {
            return Err(Error::LockWaitTimeout);
        }
        let table = core.tables.get(name)?;
        if table.is_temporary() {
            return Err(Error::unsupported("exporting a temporary table"));
        }
        let mut trx = self.begin_waiting(waits);
        trx.use_table(&table, TableMode::Shared)?;
        let no_purge = PurgePaused::begin(core.clone());
        refresh_copy(core, spaces, &table.def);
        self.write_pages_of(table.space())?;
        Ok(TableExport {
            _trx: trx,
            _no_purge: no_purge,
        })
    }

    /// Takes a table's rows and its file away, and keeps its definition, once no transaction uses it; also if
    /// it can't be used. The table is of no use then (`TablespaceDiscarded`) but to import a file, or to be
    /// emptied, renamed or dropped. The file that waits to be imported is left alone until then, is renamed
    /// and dropped with the table, and keeps it from being emptied (`AlreadyExists`).
    ///
    /// # Errors
    ///
    /// `TablespaceDiscarded`: there are none; `TableIsReferenced`, unless `checks` are off; `Unsupported`: a
    /// temporary table.
    pub fn discard_table(&self, name: &str, checks: ForeignKeyChecks) -> Result<()> {
        self.inner.ddl.discard_table(name, checks)
    }

    /// Gives a table whose rows were discarded, or whose file is lost, those of a file that is in its place,
    /// `schema/table.vdt` in the data directory: a copy of an exported file, or one of a database that was
    /// closed cleanly. The rows are copied, with indexes of their own, and the file is removed. Consistent
    /// views that are older than that don't read the table (`DefinitionChanged`). Foreign keys are not
    /// looked at.
    ///
    /// # Errors
    ///
    /// `AlreadyExists`: the table has its rows. `SchemaMismatch`: the file's table has other columns or
    /// indexes. `CorruptFile`: it is damaged. The table and the file are as they were then.
    pub fn import_table(&self, name: &str, waits: RedefinitionWaits) -> Result<()> {
        let trx = self.begin_waiting(waits);
        self.inner.ddl.import_table(name, trx)
    }

    /// Returns when the pages of a tablespace, as they are now, are in its file.
    fn write_pages_of(&self, space: SpaceId) -> Result<()> {
        match &*self.inner.background.lock() {
            Some(background) => {
                let log = &self.inner.core.log;
                background.flusher.flush_space_to(space, log.next_lsn())
            }
            None => Err(Error::invalid("the database is closed")),
        }
    }

    pub(super) fn begin_waiting(&self, waits: RedefinitionWaits) -> Transaction {
        let RedefinitionWaits {
            interrupt,
            lock_wait_timeout,
            watch,
            sort_directory,
        } = waits;
        let mut trx = self.begin(Isolation::RepeatableRead);
        interrupt
            .into_iter()
            .for_each(|flag| trx.set_interrupt(flag));
        lock_wait_timeout
            .into_iter()
            .for_each(|timeout| trx.set_lock_wait_timeout(timeout));
        trx.set_watch(watch);
        trx.set_sort_directory(sort_directory);
        trx
    }
}
