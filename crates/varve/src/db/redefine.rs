//! Definitions of tables that change while the table is used.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::base::{Error, Result, Watch};
use crate::catalog::{ForeignKey, TableDef};
use crate::ddl::{Ddl, ForeignKeyChecks, Redefinition};
use crate::row::RowRef;
use crate::txn::ValueSource;

use super::{Database, DatabaseInner, Table};

/// A definition that a table is about to get, or several tables together. Dropped, it leaves them as they
/// were. As long as it is there no other definition can be prepared for them, and if something is built for
/// it the tables can't be checked.
pub struct PreparedRedefinition {
    inner: Arc<DatabaseInner>,
    /// `None`: a table that was to be added has failed.
    prepared: Option<Redefinition>,
}

/// How a redefinition, an export or an import waits for locks, where it sorts, and who watches it.
#[derive(Clone, Debug, Default)]
pub struct RedefinitionWaits {
    /// When it is set, after which `Database::wake_interrupted` ends waits, the error is `Interrupted`.
    pub interrupt: Option<Arc<AtomicBool>>,
    /// `None`: as long as a transaction does for which nobody says it.
    pub lock_wait_timeout: Option<Duration>,
    /// Is told how far it has come.
    pub watch: Option<Watch>,
    /// Where it sorts: `Transaction::set_sort_directory`.
    pub sort_directory: Option<PathBuf>,
}

impl Database {
    /// Gives the table of this definition's name other names of columns and indexes, columns of bytes or
    /// text greater lengths in bytes, more columns or fewer, another order of columns, and other indexes;
    /// no row is changed. A column of `to` is the table's column with its `id`, and may begin to take NULL
    /// if it is in no index; one with another id is new, and has its `default` in the rows that are there.
    /// An index is the table's index with its `id`, or if that is 0 the one of its name with the same
    /// parts; without such a one it is new, and built. Indexes that `to` does not have are dropped. All
    /// else has to be as it is, or the error is `Unsupported` and says what is not; foreign keys stay (but
    /// see [`PreparedRedefinition`]). Handles on the table have to be opened again.
    ///
    /// It begins once no transaction uses the table. While new indexes are built others may read and change
    /// it; at the end no transaction may use it, again. A consistent view that is older than an index does
    /// not read it: the error is `DefinitionChanged`.
    ///
    /// # Errors
    ///
    /// `DuplicateKey` if rows have the same values in a unique index; `TooLarge` for a row that is too long
    /// for an index; `TooManyChanges` (`Options::online_log_bytes`); `NoSpace`. The table is as it was
    /// then.
    pub fn redefine_table(&self, to: &TableDef) -> Result<()> {
        let tell = &mut |_: &str, _: &RowRef<'_>| {};
        self.prepare_redefinition(to, RedefinitionWaits::default())?
            .commit(tell)
    }

    /// Whether `redefine_table` takes this definition for the table.
    pub fn check_redefinition(&self, table: &Table, to: &TableDef) -> Result<()> {
        self.inner.ddl.redefined(&table.table, to).map(drop)
    }

    /// The first step of `redefine_table`: it begins, and if there are indexes to be built, others go on.
    /// `waits` is about all steps.
    pub fn prepare_redefinition(
        &self,
        to: &TableDef,
        waits: RedefinitionWaits,
    ) -> Result<PreparedRedefinition> {
        self.prepare(waits, |ddl, prepared| ddl.add_redefinition(prepared, to))
    }

    /// Writes all rows of the table of this definition's name anew, in order, while others use it, and gives
    /// it this definition. That may be the one that it has. Beside what `redefine_table` takes it may have
    /// another primary key, or one where there was none, other indexes together with other columns, columns
    /// that cease to take NULL, and new ones that are computed, for which somebody has to be asked
    /// ([`PreparedRedefinition::set_value_source`]). So has a new AUTO_INCREMENT column, and then others may
    /// only read. It begins once no transaction uses the table, and ends so. A consistent view that is older
    /// than the end does not read the table: the error is `DefinitionChanged`.
    ///
    /// # Errors
    ///
    /// Those of `redefine_table`, and `NullValue`: a row has NULL where there is to be none, and nobody says
    /// what it is to be instead. The table is as it was then.
    pub fn rebuild_table(&self, to: &TableDef) -> Result<()> {
        let tell = &mut |_: &str, _: &RowRef<'_>| {};
        self.prepare_rebuild(to, RedefinitionWaits::default())?
            .commit(tell)
    }

    /// The first step of `rebuild_table`. `waits` is about all steps.
    pub fn prepare_rebuild(
        &self,
        to: &TableDef,
        waits: RedefinitionWaits,
    ) -> Result<PreparedRedefinition> {
        self.prepare_conversion(to, &[], waits)
    }

    /// A rebuild, in which the columns at these positions of `to` have what the value source makes of each
    /// old row ([`ValueSource::converted`]): those of a column of another type, for instance. They are new
    /// ones for all else, with ids that no column of the table has, and defaults that they can have.
    ///
    /// # Errors
    ///
    /// Those of `rebuild_table`, and what the value source says of a row.
    pub fn prepare_conversion(
        &self,
        to: &TableDef,
        converted: &[usize],
        waits: RedefinitionWaits,
    ) -> Result<PreparedRedefinition> {
        self.prepare(waits, |ddl, prepared| {
            ddl.add_rebuild(prepared, to, converted)
        })
    }

    fn prepare(
        &self,
        waits: RedefinitionWaits,
        add: impl FnOnce(&Ddl, &mut Redefinition) -> Result<()>,
    ) -> Result<PreparedRedefinition> {
        self.inner.ddl.drop_abandoned();
        let trx = self.begin_waiting(waits);
        let mut prepared = PreparedRedefinition {
            inner: self.inner.clone(),
            prepared: Some(Redefinition::new(trx)),
        };
        prepared.add(add)?;
        Ok(prepared)
    }

    /// Changes how much memory building indexes may take (`Options::sort_buffer_bytes`).
    ///
    /// # Errors
    ///
    /// `Invalid`: less than 64 KiB.
    pub fn set_sort_buffer_bytes(&self, bytes: u64) -> Result<()> {
        super::options::validate_build_bytes("sort_buffer_bytes", bytes)?;
        self.inner.ddl.set_sort_buffer(bytes);
        Ok(())
    }

    /// Changes how much of each leaf is filled (`Options::fill_factor_pct`), for what is built from now on.
    ///
    /// # Errors
    ///
    /// `Invalid`: less than 10, or more than 100.
    pub fn set_fill_factor_pct(&self, pct: u32) -> Result<()> {
        super::options::validate_fill_factor_pct(pct)?;
        self.inner.ddl.set_fill_factor_pct(pct);
        Ok(())
    }

    /// Changes how much memory noting changed rows may take (`Options::online_log_bytes`), for indexes that
    /// will be built.
    ///
    /// # Errors
    ///
    /// `Invalid`: less than 64 KiB.
    pub fn set_online_log_bytes(&self, bytes: u64) -> Result<()> {
        super::options::validate_build_bytes("online_log_bytes", bytes)?;
        self.inner.ddl.set_online_log(bytes);
        Ok(())
    }
}

fn ready(prepared: &mut Option<Redefinition>) -> Result<&mut Redefinition> {
    let failed = || Error::invalid("a redefinition that has failed goes on; give it up");
    prepared.as_mut().ok_or_else(failed)
}

impl PreparedRedefinition {
    /// Another table, too, gets what `Database::redefine_table` takes: all get their definitions, or none,
    /// also if the process dies. It is prepared as the first one was, while that is kept from other DDL.
    /// After an error there is nothing to do but to drop it.
    ///
    /// # Errors
    ///
    /// `Invalid`: the table is among them already. The end is refused with `Unsupported` if one of several
    /// tables has foreign keys, or is referred to.
    pub fn and_redefine(&mut self, to: &TableDef) -> Result<()> {
        self.add(|ddl, prepared| ddl.add_redefinition(prepared, to))
    }

    /// Another table is rebuilt, too, as `Database::rebuild_table` does it. All else is as for
    /// [`and_redefine`](Self::and_redefine).
    pub fn and_rebuild(&mut self, to: &TableDef) -> Result<()> {
        self.and_convert(to, &[])
    }

    /// The same, and the columns at these positions are converted, as `Database::prepare_conversion` does it.
    pub fn and_convert(&mut self, to: &TableDef, converted: &[usize]) -> Result<()> {
        self.add(|ddl, prepared| ddl.add_rebuild(prepared, to, converted))
    }

    fn add(&mut self, add: impl FnOnce(&Ddl, &mut Redefinition) -> Result<()>) -> Result<()> {
        let ddl = &self.inner.ddl;
        let added = add(ddl, ready(&mut self.prepared)?);
        if added.is_err() {
            // One of the tables may be ready by half.
            self.prepared
                .take()
                .into_iter()
                .for_each(|prepared| ddl.abandon_redefinition(prepared));
        }
        added
    }

    /// The table that was prepared last will not have this foreign key any more. `NotFound`: it has none of
    /// this name.
    pub fn drop_foreign_key(&mut self, name: &str) -> Result<()> {
        let prepared = ready(&mut self.prepared)?;
        self.inner.ddl.drop_foreign_key(prepared, name)
    }

    /// The table that was prepared last will have this foreign key, which names columns as they will be
    /// called. Its rows are not looked at, and the parent need not be there. Rows that others write are
    /// checked as soon as it has it.
    ///
    /// # Errors
    ///
    /// `BadForeignKey`: the parent is there, and does not fit. `ConstraintExists`: another table of the
    /// schema has a foreign key of this name. Both may come from the end, too.
    pub fn add_foreign_key(&mut self, key: ForeignKey) -> Result<()> {
        let prepared = ready(&mut self.prepared)?;
        self.inner.ddl.add_foreign_key(prepared, key)
    }

    /// With checks off all tables that were prepared may lose indexes that foreign keys need. As long as
    /// there is none on the side of the parent, nobody finds a parent there; without one on the side of the
    /// child no row of the parent can be deleted or get another key, but by transactions that don't check.
    pub fn set_foreign_key_checks(&mut self, checks: ForeignKeyChecks) -> Result<()> {
        ready(&mut self.prepared)?.set_foreign_key_checks(checks);
        Ok(())
    }

    /// The AUTO_INCREMENT counter of each table that is prepared will be `next`, or what follows the greatest
    /// value in its rows, which may be less than it is now. Without this it stays, or is what follows the
    /// values of a column that is new.
    pub fn set_auto_increment(&mut self, next: u64) -> Result<()> {
        let prepared = ready(&mut self.prepared)?;
        self.inner.ddl.set_counter(prepared, next);
        Ok(())
    }

    /// Whom to ask for values of computed columns that are new, of a new AUTO_INCREMENT column and of those
    /// that are converted, all of which are refused without one when rows are written; and for what columns
    /// have instead of NULL that cease to take it.
    pub fn set_value_source(&mut self, values: &Arc<dyn ValueSource>) -> Result<()> {
        ready(&mut self.prepared)?.set_value_source(values);
        Ok(())
    }

    /// Builds new indexes, or writes the rows, while others use the table; may be called again, when they
    /// have changed it. `tell` is shown a row whose values in the unique index of this name another row has,
    /// too: the error `DuplicateKey` follows. After an error there is nothing to do but to drop it.
    pub fn build(&mut self, tell: &mut dyn FnMut(&str, &RowRef<'_>)) -> Result<()> {
        let prepared = ready(&mut self.prepared)?;
        self.inner.ddl.build(prepared, tell)
    }

    /// The tables get their new definitions, durably, once nobody uses them. Does what `build` does, and if
    /// that was called, has less to do while nobody uses the tables.
    pub fn commit(mut self, tell: &mut dyn FnMut(&str, &RowRef<'_>)) -> Result<()> {
        ready(&mut self.prepared)?;
        let prepared = self.prepared.take().expect("it is there");
        self.inner.ddl.commit_redefinition(prepared, tell)
    }
}

impl Drop for PreparedRedefinition {
    fn drop(&mut self) {
        if let Some(prepared) = self.prepared.take() {
            self.inner.ddl.abandon_redefinition(prepared);
        }
    }
}
