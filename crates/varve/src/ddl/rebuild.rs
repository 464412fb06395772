//! ALTER TABLE that writes all rows anew, while others use the table: another primary key, columns of other
//! types, that are counted, or that cease to take NULL, columns and indexes that come together, or nothing
//! but rows in fresh pages.
//!
//! It has the three steps of `redefine`. The new table is a table of its own until the end, `#rebuild-` and
//! a number, which is filled and catches up (`table/rebuild.rs`). Then one transaction gives it the name,
//! and takes the old one's definition away (`together`); the old one's file goes, and the new one's takes
//! its place, as TRUNCATE has it. So it is either table after a crash, and the other one is dropped: by that
//! transaction, or at the next start, which drops all tables that are called so.
//!
//! - **REBUILD-2** A table that is called `#rebuild-` and a number belongs to a rebuild, or an import
//!   (`import`), that goes on, or is one of those that could not be dropped (`Ddl::abandoned`).

use std::path::Path;
use std::sync::Arc;

use crate::base::{Error, Result};
use crate::catalog::{OpenTable, TableDef, schema_of};
use crate::lock::TableMode;
use crate::row::ColumnDef;
use crate::space::Space;
use crate::table::{NewTable, Product};

use super::redefine::Change;
use super::{Ddl, ForeignKeyChecks, Redefinition};

const REBUILT: &str = "#rebuild-";

/// The number in the name of a table that takes another one's place.
fn number_of(name: &str) -> Option<u64> {
    let (_, table) = name.split_once('/')?;
    table.strip_prefix(REBUILT)?.parse().ok()
}

/// Columns that are made of the old row are not among those that `own` has.
fn check_new(own: &TableDef, def: &TableDef, converted: &[usize]) -> Result<()> {
    let is_new = |column: &ColumnDef| own.columns.iter().all(|own| own.id != column.id);
    let is_wrong = |at: &&usize| !def.columns.get(**at).is_some_and(is_new);
    match converted.iter().find(is_wrong) {
        None => Ok(()),
        Some(at) => Err(Error::invalid(format!(
            "column {at} of table {} is to be converted, and is not a new one",
            own.name
        ))),
    }
}

impl Ddl {
    /// Prepares to give the table of this definition's name what `TableDef::rebuilt` takes of it, once nobody
    /// uses it, together with those that are prepared. Others may go on then, until the end. Columns at these
    /// positions, which are new ones, have what is made of the old row. After an error there is nothing to do
    /// but to abandon all.
    pub fn add_rebuild(
        &self,
        prepared: &mut Redefinition,
        to: &TableDef,
        converted: &[usize],
    ) -> Result<()> {
        self.core.check_writable()?;
        let table = self.core.tables.get(&to.name)?;
        prepared.check_is_new(&table)?;
        table.definition().rebuilt(to)?;
        if table.is_temporary() {
            return Err(Error::unsupported("redefining a temporary table"));
        }
        let Redefinition { trx, changes, .. } = prepared;
        trx.use_table(&table, TableMode::Exclusive)?;
        // It is kept from other DDL now.
        let def = table.definition().rebuilt(to)?;
        check_new(&table.def, &def, converted)?;
        let mut change = Change::new(table, def);
        // Their columns may get other names.
        change.update_foreign_keys();
        let rebuilt = self.make_rebuilt(&change.table, &change.def)?;
        let new = NewTable::new(rebuilt.clone(), &change.def, &change.table.def, converted);
        change.build = Some(self.start(trx, &change.table, Product::Table(new)));
        change.rebuilt = Some(rebuilt);
        changes.push(change);
        Ok(())
    }

    /// Makes the table that is to be filled, with its file where the old one's is.
    fn make_rebuilt(&self, old: &OpenTable, def: &TableDef) -> Result<Arc<OpenTable>> {
        let space = self.spaces.get(old.space());
        let directory = space
            .as_deref()
            .and_then(Space::target)
            .and_then(Path::parent);
        self.make_aside(def, directory)
    }

    /// Makes a table that is to be filled, and to have the name in the end.
    pub(super) fn make_aside(
        &self,
        def: &TableDef,
        directory: Option<&Path>,
    ) -> Result<Arc<OpenTable>> {
        let (number, _, _) = self.control.draw_ids(0)?;
        let mut def = def.clone();
        def.name = format!("{}/{REBUILT}{number}", schema_of(&def.name));
        def.foreign_keys.iter_mut().for_each(|key| key.kept = true);
        self.create_in(&def, ForeignKeyChecks::Off, directory)
    }

    /// The table that was being filled goes. If that fails, as what has failed before may still do, a later
    /// statement tries it again, and the next start.
    pub(super) fn abandon_rebuilt(&self, rebuilt: &OpenTable) {
        let name = &rebuilt.def.name;
        if let Err(e) = self.drop_now(name, ForeignKeyChecks::Off) {
            self.spaces.files_match(false);
            self.abandoned.lock().push(name.clone());
            self.core.warn(&format!(
                "table {name}, which was to take another one's place, is left to the next CREATE, DROP or ALTER \
                 TABLE, or the next start: {e}"
            ));
        }
    }

    /// Drops what could not be dropped before; for a statement that has no locks. It is told of once, not at
    /// each statement.
    pub fn drop_abandoned(&self) {
        let mut names = std::mem::take(&mut *self.abandoned.lock());
        if self.core.check_writable().is_ok() {
            names.retain(|name| match self.drop_now(name, ForeignKeyChecks::Off) {
                Ok(()) => {
                    self.note_dropped(name);
                    false
                }
                Err(Error::NotFound { .. }) => false,
                Err(_) => true,
            });
        }
        self.abandoned.lock().append(&mut names);
    }

    fn note_dropped(&self, name: &str) {
        self.core.note(&format!(
            "table {name}, which was to take another one's place, was dropped"
        ));
    }

    /// The next number that a rebuild gets.
    pub fn next_rebuild(&self) -> u64 {
        self.control.control().next_table
    }

    /// Drops what rebuilds with lower numbers have left (REBUILD-2).
    pub fn drop_rebuilt_before(&self, number: u64) -> Result<()> {
        for name in self.core.tables.names()? {
            if number_of(&name).is_some_and(|its| its < number) {
                self.drop_now(&name, ForeignKeyChecks::Off)?;
                self.note_dropped(&name);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_rebuilds() {
        assert_eq!(number_of("a/#rebuild-17"), Some(17));
        for other in [
            "a/#rebuild-",
            "a/#rebuild-x",
            "a/rebuild-17",
            "#rebuild-17",
            "a/#sql-17",
        ] {
            assert_eq!(number_of(other), None, "{other}");
        }
    }
}
