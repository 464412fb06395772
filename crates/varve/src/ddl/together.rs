//! The last step of a redefinition: one table, or several together, get their new definitions.
//!
//! 1. The transaction of the redefinition has locked all tables exclusively, one after the other. It is one
//!    transaction, so a deadlock with somebody who locks them in another order is found like any other.
//! 2. Under the mutex of DDL all is looked at that may be wrong with the new definitions.
//! 3. Trees of indexes that go are put on their tables' lists (LOOSE-1), the stored definitions are replaced,
//!    and the transaction commits. Its redo says which files go with it. Purge is kept away from before the
//!    commit until each table is the new one.
//! 4. Each table follows by itself, as if it had been alone: what a crash leaves of that is put right at the
//!    next start, or when the table is opened (DDL-1, DDL-2, LOOSE-1).
//!
//! - **TOGETHER-1** After a crash or an error all tables of a redefinition have the new definitions, or none
//!   has: one transaction stores them, and nothing else makes a definition count.
//! - **TOGETHER-2** A table is in a redefinition once. Of several tables none has foreign keys, and none is
//!   referred to: the definition of a child could change twice.

use crate::base::{Error, IndexId, PageId, PageNo, Result, TrxId};
use crate::catalog::{LooseTree, OpenTable, PurgeGate, TableDef};
use crate::txn::Transaction;

use super::foreign::{Child, check_children, check_indexes_stay, check_parent_columns};
use super::redefine::Change;
use super::{Ddl, ForeignKeyChecks, store};

/// So many pages with copies of definitions are kept in the pool, so that nothing has to be read for them
/// after the commit. If there are more, a failure to read one costs a warning.
const MOST_HEADERS: usize = 16;

/// What becomes of a table.
struct Step<'a> {
    change: &'a Change,
    def: TableDef,
    /// Those whose definitions change with it.
    children: Vec<Child>,
    /// Trees of indexes that go.
    gone: Vec<LooseTree>,
    /// What the counter was, if it is another one now.
    counter_was: Option<u64>,
}

impl<'a> Step<'a> {
    fn new(change: &'a Change, def: TableDef) -> Step<'a> {
        Step {
            change,
            def,
            children: Vec::new(),
            gone: Vec::new(),
            counter_was: None,
        }
    }

    fn table(&self) -> &'a OpenTable {
        &self.change.table
    }

    /// The table that takes the place, if rows were written anew.
    fn rebuilt(&self) -> Option<&'a OpenTable> {
        self.change.rebuilt.as_deref()
    }

    /// Tables that are not what they were any more.
    fn retired(&self) -> impl Iterator<Item = &'a OpenTable> + use<'a> {
        std::iter::once(self.table()).chain(self.rebuilt())
    }

    /// All definitions that it changes, as they will be.
    fn defs(&self) -> impl Iterator<Item = &TableDef> {
        let children = self.children.iter().map(|child| &child.def);
        std::iter::once(&self.def).chain(children)
    }
}

impl Ddl {
    /// Returns the trees of the indexes that are gone, of each table. They were put on the lists before; if
    /// this fails they are indexes again.
    pub(super) fn put_together(
        &self,
        mut trx: Transaction,
        changes: &mut [Change],
        checks: ForeignKeyChecks,
    ) -> Result<Vec<Vec<LooseTree>>> {
        let _serial = self.core.tables.serialize_ddl();
        changes.iter_mut().for_each(Change::update_foreign_keys);
        let changes = &*changes;
        let mut gone = vec![Vec::new(); changes.len()];
        let mut steps = Vec::new();
        for (change, gone) in changes.iter().zip(&mut gone) {
            let Some(step) = self.step(change, checks)? else {
                continue;
            };
            if changes.len() > 1 {
                self.check_stands_alone(&step)?;
            }
            gone.clone_from(&step.gone);
            steps.push(step);
        }
        if steps.is_empty() {
            return Ok(gone);
        }
        let mut touched: Vec<TableDef> = steps.iter().flat_map(Step::defs).cloned().collect();
        let retired = steps.iter().flat_map(Step::retired);
        touched.extend(retired.map(OpenTable::definition));
        let _reserved = self.reserve([], &touched);
        let headers = steps.iter().take(MOST_HEADERS);
        let _headers: Vec<_> = headers
            .map(|step| self.core.pool.pin(PageId::new(step.def.space, PageNo(0))))
            .collect::<Result<_>>()?;
        let decided = self.store(&mut trx, &mut steps).and_then(|()| {
            let gates: Vec<Vec<PurgeGate<'_>>> = (steps.iter())
                .map(|step| step.retired().map(OpenTable::keep_purge_away).collect())
                .collect();
            let rebuilt = steps.iter().filter(|step| step.rebuilt().is_some());
            let removed: Vec<_> = rebuilt.map(|step| step.table().space()).collect();
            let hold = match removed.is_empty() {
                true => None,
                false => Some(self.decide_removals(&mut trx, &removed)?),
            };
            let retired: Vec<_> = steps.iter().flat_map(Step::retired).collect();
            Ok((gates, hold, self.retire(trx, &retired)?))
        });
        // What stays on a list by a failure of this goes when the table is opened next (LOOSE-1).
        let (gates, _hold, id) = decided.inspect_err(|_| {
            for step in &steps {
                let _ = step.table().fasten(&step.gone);
                let counter = step.counter_was;
                let _ = counter.map(|was| step.table().set_auto_increment(was));
            }
        })?;
        for (step, gates) in steps.into_iter().zip(gates) {
            self.follow(step, id, gates);
        }
        Ok(gone)
    }

    /// What becomes of a table; nothing, if that is what it is.
    fn step<'a>(&self, change: &'a Change, checks: ForeignKeyChecks) -> Result<Option<Step<'a>>> {
        let Change { table, names, .. } = change;
        let before = table.definition();
        let mut def = change.def.clone();
        if let Some(new) = &change.rebuilt {
            def = new.definition();
            def.name.clone_from(&before.name);
            def.foreign_keys.clone_from(&change.def.foreign_keys);
        } else if def == before && change.counter.is_none() {
            return Ok(None);
        }
        if table.is_temporary() {
            return Err(Error::unsupported("redefining a temporary table"));
        }
        // The counter becomes durable with the commit that stores the definition, although that stays.
        if change.rebuilt.is_none() && def == before {
            return Ok(Some(Step::new(change, def)));
        }
        self.check_columns_stay(&before, &def)?;
        let mut children = self.children_renaming_columns(table, names)?;
        // It may be its own parent, also as the table that was filled.
        children.retain(|child| child.def.id != def.id);
        def.validate()?;
        let gone = match change.rebuilt {
            Some(_) => Vec::new(),
            None => (before.indexes_beyond(&def))
                .map(|(_, index)| LooseTree::of(index))
                .collect(),
        };
        let step = Step {
            children,
            gone,
            ..Step::new(change, def)
        };
        check_children(&step.def, step.defs(), check_parent_columns)?;
        if checks != ForeignKeyChecks::Off {
            let id = |name: &String| Some(step.def.columns[step.def.column_index(name)?].id);
            let at = |id| before.columns.iter().position(|column| column.id == id);
            let was = |name: &String| id(name).and_then(at);
            check_indexes_stay(&before, &step.def, step.defs(), was)?;
        }
        self.check_new_foreign_keys(&step.def, change)?;
        Ok(Some(step))
    }

    /// TOGETHER-2.
    fn check_stands_alone(&self, step: &Step<'_>) -> Result<()> {
        let name = &step.def.name;
        let has_keys = !step.def.foreign_keys.is_empty() || !self.children_of(name)?.is_empty();
        match has_keys {
            false => Ok(()),
            true => Err(Error::unsupported(format!(
                "redefining table {name}, which has foreign keys or is referred to, together with others"
            ))),
        }
    }

    /// Stores the definitions, and what has to be known of the tables when they count.
    fn store(&self, trx: &mut Transaction, steps: &mut [Step<'_>]) -> Result<()> {
        if steps.iter().any(|step| step.rebuilt().is_some()) {
            trx.may_use_kept_pages();
        }
        let writer = trx.writer()?;
        for step in steps {
            let table = step.table();
            let Step {
                change,
                def,
                children,
                gone,
                counter_was,
            } = step;
            if let Some(new) = &change.rebuilt {
                if let Some(next) = change.counter {
                    new.set_auto_increment(next)?;
                } else if counts_on(&table.def, def) {
                    new.set_auto_increment(table.auto_increment().max(new.auto_increment()))?;
                }
                store::delete_def(trx, self.system(), &new.def.name)?;
                store::replace_def(trx, self.system(), &def.name, def, TrxId(0))?;
            } else {
                let built = |index: IndexId| change.built.iter().any(|tree| tree.index == index);
                let new = def.indexes.iter_mut().filter(|index| built(index.id));
                new.for_each(|index| index.created_by = writer);
                table.loosen(gone)?;
                store::replace_def(trx, self.system(), &def.name, def, table.created_by)?;
                // After a crash before the commit the table may have it all the same: it leaves out numbers,
                // or goes back to some that no row has.
                if let Some(next) = change.counter {
                    *counter_was = Some(table.auto_increment());
                    table.set_auto_increment(next)?;
                }
            }
            for Child {
                def, created_by, ..
            } in children
            {
                store::replace_def(trx, self.system(), &def.name, def, *created_by)?;
            }
        }
        Ok(())
    }

    /// The definitions count: everybody else finds the table as it is now.
    fn follow(&self, step: Step<'_>, id: TrxId, gates: Vec<PurgeGate<'_>>) {
        let (table, rebuilt) = (step.table(), step.rebuilt());
        let Step {
            change,
            def,
            children,
            ..
        } = step;
        self.refresh_copy(&def);
        let done = match rebuilt {
            Some(new) => {
                let space = def.space;
                let opened = self.open(def, id);
                let placed = (self.core.tables).take_place(table, new, &change.names, opened);
                self.replace_file(table, space);
                placed
            }
            None => {
                let _ = table.fasten(&change.built);
                self.put_in_place(table, Some(&change.names), def, table.created_by)
            }
        };
        drop(gates);
        let children = children.iter();
        children.for_each(|child| self.refresh_copy(&child.def));
        self.tell_of_table(&table.def.name, done);
    }
}

/// Whether the column that is counted was counted before.
pub(super) fn counts_on(from: &TableDef, to: &TableDef) -> bool {
    let counted = |def: &TableDef| Some(def.columns.get(def.auto_increment?)?.id);
    counted(to).is_some() && counted(from) == counted(to)
}
