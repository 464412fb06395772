//! ALTER TABLE that writes all rows anew, while others use the table: another primary key, columns that
//! cease to take NULL, columns and indexes that come together, or nothing but rows in fresh pages.
//!
//! It has the three steps of `redefine`. The new table is a table of its own until the end, `#rebuild-` and
//! a number, which is filled and catches up (`table/rebuild.rs`). Then one transaction gives it the name,
//! and takes the old one's definition away; the old one's file goes, and the new one's takes its place, as
//! TRUNCATE has it. So it is either table after a crash, and the other one is dropped: by that transaction,
//! or at the next start, which drops all tables that are called so.
//!
//! - **REBUILD-2** Nothing but a rebuild that goes on has a table that is called `#rebuild-` and a number.

use std::path::Path;
use std::sync::Arc;

use crate::base::{Error, PageId, PageNo, Result, TrxId};
use crate::catalog::{OpenTable, TableDef, schema_of};
use crate::lock::TableMode;
use crate::space::Space;
use crate::table::{NewTable, Product};
use crate::txn::Transaction;

use super::foreign::check_children;
use super::{Ddl, ForeignKeyChecks, Redefinition, store};

const REBUILT: &str = "#rebuild-";

/// The number in the name of a table that takes another one's place.
fn number_of(name: &str) -> Option<u64> {
    let (_, table) = name.split_once('/')?;
    table.strip_prefix(REBUILT)?.parse().ok()
}

impl Ddl {
    /// Prepares to give the table of this definition's name what `TableDef::rebuilt` takes of it, once nobody
    /// uses it. Others may go on then, until the end. `trx` is a new transaction.
    pub fn prepare_rebuild(&self, to: &TableDef, mut trx: Transaction) -> Result<Redefinition> {
        self.core.check_writable()?;
        let table = self.core.tables.get(&to.name)?;
        table.definition().rebuilt(to)?;
        if table.is_temporary() {
            return Err(Error::unsupported("redefining a temporary table"));
        }
        trx.use_table(&table, TableMode::Exclusive)?;
        // It is kept from other DDL now.
        let def = table.definition().rebuilt(to)?;
        let rebuilt = self.make_rebuilt(&table, &def)?;
        let mut prepared = Redefinition::new(trx, table, def);
        let Redefinition {
            trx, table, def, ..
        } = &mut prepared;
        let new = NewTable::new(rebuilt.clone(), def, &table.def);
        prepared.build = Some(self.start(trx, table, Product::Table(new)));
        prepared.rebuilt = Some(rebuilt);
        Ok(prepared)
    }

    /// Makes the table that is to be filled, with its file where the old one's is.
    fn make_rebuilt(&self, old: &OpenTable, def: &TableDef) -> Result<Arc<OpenTable>> {
        let (number, _, _) = self.control.draw_ids(0)?;
        let mut def = def.clone();
        def.name = format!("{}/{REBUILT}{number}", schema_of(&def.name));
        def.foreign_keys.iter_mut().for_each(|key| key.kept = true);
        let space = self.spaces.get(old.space());
        let directory = space
            .as_deref()
            .and_then(Space::target)
            .and_then(Path::parent);
        self.create_in(&def, ForeignKeyChecks::Off, directory)
    }

    /// The table that was filled takes the place, which the transaction has for itself.
    pub(super) fn commit_rebuild(&self, prepared: Redefinition) -> Result<()> {
        let rebuilt = prepared.rebuilt.clone().expect("it was rebuilt");
        let put = self.put_rebuilt(prepared, &rebuilt);
        if put.is_err() && !rebuilt.is_dropped() {
            self.abandon_rebuilt(&rebuilt);
        }
        put
    }

    fn put_rebuilt(&self, mut prepared: Redefinition, new: &OpenTable) -> Result<()> {
        let _serial = self.core.tables.serialize_ddl();
        prepared.update_foreign_keys();
        let Redefinition {
            mut trx,
            table: old,
            names,
            def: planned,
            ..
        } = prepared;
        let (before, aside) = (old.definition(), new.definition());
        let mut def = aside.clone();
        def.name.clone_from(&before.name);
        def.foreign_keys.clone_from(&planned.foreign_keys);
        self.check_columns_stay(&before, &def)?;
        let mut children = self.children_renaming_columns(&old, &names)?;
        // It may be its own parent.
        children.retain(|child| child.def.id != new.id());
        def.validate()?;
        let mut changed = vec![def.clone()];
        changed.extend(children.iter().map(|child| child.def.clone()));
        check_children(&def, changed.iter())?;
        changed.push(before);
        let _reserved = self.reserve([&*aside.name], &changed);
        if def.auto_increment.is_some() {
            new.set_auto_increment(old.auto_increment().max(new.auto_increment()))?;
        }
        // Nothing has to be read for the copy of the definition then.
        let header = PageId::new(def.space, PageNo(0));
        let _header = self.core.pool.pin(header)?;
        trx.may_use_kept_pages();
        store::delete_def(&mut trx, self.system(), &aside.name)?;
        store::replace_def(&mut trx, self.system(), &def.name, &def, TrxId(0))?;
        for child in &children {
            let def = &child.def;
            store::replace_def(&mut trx, self.system(), &def.name, def, child.created_by)?;
        }
        let _gates = [old.keep_purge_away(), new.keep_purge_away()];
        let _decided = self.decide_removal(&mut trx, old.space())?;
        let id = self.retire(trx, [&*old, new])?;
        self.refresh_copy(&def);
        let space = def.space;
        let opened = self.open(def, id);
        let placed = (self.core.tables).take_place(&old, new, &names, opened);
        let replaced = self.replace_file(&old, space);
        let children = children.iter();
        children.for_each(|child| self.refresh_copy(&child.def));
        self.tell_of_table(&old.def.name, placed.and(replaced));
        Ok(())
    }

    /// The table that was being filled goes. If that fails it does at the next start.
    pub(super) fn abandon_rebuilt(&self, rebuilt: &OpenTable) {
        let name = &rebuilt.def.name;
        if let Err(e) = self.drop_table(name, ForeignKeyChecks::Off) {
            self.spaces.files_match(false);
            self.core.warn(&format!(
                "table {name}, which was to take another one's place, is left to the next start: {e}"
            ));
        }
    }

    /// The next number that a rebuild gets.
    pub fn next_rebuild(&self) -> u64 {
        self.control.control().next_table
    }

    /// Drops what rebuilds with lower numbers have left (REBUILD-2).
    pub fn drop_rebuilt_before(&self, number: u64) -> Result<()> {
        for name in self.core.tables.names()? {
            if number_of(&name).is_some_and(|its| its < number) {
                self.drop_table(&name, ForeignKeyChecks::Off)?;
                self.core.note(&format!(
                    "table {name}, which was to take another one's place, was dropped"
                ));
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
