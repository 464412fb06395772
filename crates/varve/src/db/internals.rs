//! What tests and tools do with a database beside what its users do.

use std::path::Path;
use std::sync::Arc;

use crate::backup::{Backup, BackupOptions};
use crate::base::Result;
use crate::io::Disk;
use crate::purge::in_table;
use crate::recovery::Indexer;
use crate::table::merge_on;
use crate::txn::Core;

use super::open::{self, OpenPurpose};
use super::{Database, Options};

impl Database {
    /// Like `open`, on another implementation of the disk.
    pub fn open_on(disk: Arc<dyn Disk>, dir: &Path, options: Options) -> Result<Database> {
        open::open(disk, dir, options, OpenPurpose::Use)
    }

    /// Stops without writing anything out, as a crash of the process would.
    pub fn crash(self) {
        self.inner.crash();
    }

    /// Indexes the next full file of the redo log, as a thread does by itself where the disk carries out
    /// several operations at the same time. Returns its number; `None`: there is nothing to do now.
    pub fn index_redo(&self) -> Result<Option<u64>> {
        let indexer = self.inner.indexer.as_ref();
        indexer.map_or(Ok(None), Indexer::index_next)
    }

    /// Changes of entries go into change buffers wherever their leaves are, and however many there are.
    pub fn buffer_all_changes(&self, all: bool) {
        self.inner.core.pool.change_buffers.set_always(all);
    }

    /// Merges what the change buffers of a table have for a few leaves of each index. Returns how many
    /// entries that were.
    pub fn merge_changes(&self, table: &str, leaves: usize) -> Result<usize> {
        let core = &self.inner.core;
        let id = core.tables.get(table)?.id();
        in_table(core, id, |table| {
            table.secondary.iter().try_fold(0, |sum, index| {
                Ok(sum + merge_on(core, table, index, leaves)?.entries)
            })
        })
    }

    /// Begins a backup that is made step by step.
    pub fn backup_in_steps(&self, dir: &Path, options: BackupOptions) -> Result<Backup> {
        self.begin_backup(dir, options)
    }

    pub fn core(&self) -> &Arc<Core> {
        &self.inner.core
    }
}
