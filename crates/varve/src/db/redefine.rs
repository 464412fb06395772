//! Definitions of tables that change while the rows stay.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::base::Result;
use crate::catalog::TableDef;
use crate::ddl::Redefinition;
use crate::row::RowRef;
use crate::table::Watch;

use super::{Database, DatabaseInner};

/// A definition that a table is about to get, with its new indexes built. As long as it is there nobody
/// changes the table, but all may read it. Dropped, it leaves the table as it was.
pub struct PreparedRedefinition {
    inner: Arc<DatabaseInner>,
    prepared: Option<Redefinition>,
}

/// Who watches while a definition is prepared.
pub struct RedefinitionWatch<'a> {
    /// When it is set, after which `Database::wake_interrupted` ends waits for locks, also those at the end,
    /// the error is `Interrupted`.
    pub interrupt: Option<&'a Arc<AtomicBool>>,
    /// Is shown a row whose values in the unique index of this name another row has, too. The error
    /// `DuplicateKey` follows.
    pub duplicate: &'a mut dyn FnMut(&str, &RowRef<'_>),
}

impl Database {
    /// Gives the table of this definition's name other names of columns and indexes, columns of bytes or text
    /// greater lengths in bytes, more columns, another order of columns, and other indexes; no row is
    /// changed. A column of `to` is the table's column with its `id`; one with another id is new, and has its
    /// `default` in the rows that are there. An index is the table's index with its `id`, or if that is 0 the
    /// one of its name with the same parts; without such a one it is new, and built. Indexes that `to` does
    /// not have are dropped. All else has to be as it is, or the error is `Unsupported` and says what is not;
    /// foreign keys are not looked at. Handles on the table have to be opened again.
    ///
    /// New indexes are built once no transaction has changes in the table, and nobody makes any until they
    /// are; at the end no transaction may use the table. A consistent view that is older than an index does
    /// not read it: the error is `DefinitionChanged`.
    ///
    /// # Errors
    ///
    /// `DuplicateKey` if rows have the same values in a unique index; `TooLarge` for a row that is too long
    /// for an index; `NoSpace`. The table is as it was then.
    pub fn redefine_table(&self, to: &TableDef) -> Result<()> {
        let watch = RedefinitionWatch {
            interrupt: None,
            duplicate: &mut |_, _| {},
        };
        self.prepare_redefinition(to, watch)?.commit()
    }

    /// The first step of `redefine_table`, in which indexes are built.
    pub fn prepare_redefinition(
        &self,
        to: &TableDef,
        watch: RedefinitionWatch<'_>,
    ) -> Result<PreparedRedefinition> {
        let RedefinitionWatch {
            interrupt,
            duplicate,
        } = watch;
        let watch = Watch {
            interrupt,
            duplicate,
        };
        let prepared = self.inner.ddl.prepare_redefinition(to, watch)?;
        Ok(PreparedRedefinition {
            inner: self.inner.clone(),
            prepared: Some(prepared),
        })
    }

    /// Changes how much memory building indexes may take (`Options::sort_buffer_bytes`).
    ///
    /// # Errors
    ///
    /// `Invalid`: less than 64 KiB.
    pub fn set_sort_buffer_bytes(&self, bytes: u64) -> Result<()> {
        super::options::validate_sort_buffer_bytes(bytes)?;
        self.inner.ddl.set_sort_buffer(bytes);
        Ok(())
    }
}

impl PreparedRedefinition {
    /// The table gets its new definition, durably, once nobody uses it.
    pub fn commit(mut self) -> Result<()> {
        let prepared = self.prepared.take().expect("it is there until the end");
        self.inner.ddl.commit_redefinition(prepared)
    }
}

impl Drop for PreparedRedefinition {
    fn drop(&mut self) {
        if let Some(prepared) = self.prepared.take() {
            self.inner.ddl.abandon_redefinition(prepared);
        }
    }
}
