//! What tests and tools do with a database beside what its users do.

use std::path::Path;
use std::sync::Arc;

use crate::base::Result;
use crate::io::Disk;
use crate::recovery::Indexer;
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

    pub fn core(&self) -> &Arc<Core> {
        &self.inner.core
    }
}
