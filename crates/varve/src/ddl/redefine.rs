//! ALTER TABLE without copying rows: other names of columns and indexes, columns that take more, new columns,
//! another order of columns, columns, indexes and foreign keys that go, indexes and foreign keys that come.
//!
//! It has three steps, so that others are kept from the table for moments only:
//!
//! 1. Under the exclusive lock trees are made for new indexes (LOOSE-1), and from then on changes of rows are
//!    noted. Then the lock becomes an intention, which keeps away other DDL, and who counts on that nothing
//!    changes (CHECK TABLE).
//! 2. The trees are filled (`table/build.rs`), and catch up with the changes (`table/catch_up.rs`).
//! 3. Under the exclusive lock they catch up with the last ones, and the new definition is committed
//!    (`together`). From then on the new trees are indexes, and those of dropped indexes are given back, a
//!    few hundred pages at a time. Nobody has to wait for that.
//!
//! Columns are renamed also in the definitions of the children by foreign keys.
//!
//! What needs other rows goes the same way, but builds another table (`rebuild`). Several tables may get
//! their definitions together, as the partitions of one do for its users: each is prepared and built by
//! itself, and one transaction has the locks of all.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::base::{Error, IndexId, Result};
use crate::catalog::{ColumnNames, ForeignKey, LooseTree, OpenTable, TableDef};
use crate::lock::TableMode;
use crate::table::{Build, BuildRoom, Product, TellDuplicate, after_greatest_counted};
use crate::txn::{Transaction, ValueSource};

use super::together::counts_on;
use super::{Ddl, ForeignKeyChecks};

/// Definitions that tables are about to get, all of them or none. They are committed or abandoned by `Ddl`.
pub struct Redefinition {
    pub(super) trx: Transaction,
    pub(super) changes: Vec<Change>,
    /// Off: indexes that foreign keys need may go.
    checks: ForeignKeyChecks,
}

/// A table that is about to get another definition.
pub(super) struct Change {
    pub(super) table: Arc<OpenTable>,
    pub(super) names: ColumnNames,
    pub(super) def: TableDef,
    /// Of its new indexes.
    pub(super) built: Vec<LooseTree>,
    /// The table that is to take the place, if rows are written anew.
    pub(super) rebuilt: Option<Arc<OpenTable>>,
    /// Fills them.
    pub(super) build: Option<Build>,
    /// Names of foreign keys that go.
    pub(super) foreign_gone: Vec<String>,
    /// Foreign keys that come.
    pub(super) foreign_new: Vec<ForeignKey>,
    /// What the AUTO_INCREMENT counter becomes; until nobody uses the table, if rows have no greater values.
    pub(super) counter: Option<u64>,
}

impl Change {
    /// The table gets this definition.
    pub(super) fn new(table: Arc<OpenTable>, def: TableDef) -> Change {
        Change {
            names: ColumnNames::new(&table.def, &def),
            table,
            def,
            built: Vec::new(),
            rebuilt: None,
            build: None,
            foreign_gone: Vec::new(),
            foreign_new: Vec::new(),
            counter: None,
        }
    }

    /// The definition's foreign keys are those that the table has now, but for those that go, with the names
    /// that columns get, and those that come. Parents may have got other names since it was prepared.
    pub(super) fn update_foreign_keys(&mut self) {
        let def = &mut self.def;
        def.foreign_keys = self.table.definition().foreign_keys;
        def.foreign_keys
            .retain(|key| !self.foreign_gone.contains(&key.name));
        self.names.rename_in(def);
        def.foreign_keys.extend(self.foreign_new.iter().cloned());
    }

    /// What the counter becomes by the rows that the table will have, which nobody changes; `None`: nothing
    /// is said of it, or the column that was counted goes.
    fn next_number(&self, trx: &Transaction) -> Result<Option<u64>> {
        let (table, is_counted) = match &self.rebuilt {
            Some(new) => (new, new.def.auto_increment.is_some()),
            None => (&self.table, counts_on(&self.table.def, &self.def)),
        };
        let Some(next) = self.counter.filter(|_| is_counted) else {
            return Ok(None);
        };
        Ok(Some(next.max(after_greatest_counted(trx, table)?)))
    }
}

impl Redefinition {
    /// No table gets another definition yet. `trx` is a new transaction.
    pub fn new(trx: Transaction) -> Redefinition {
        Redefinition {
            trx,
            changes: Vec::new(),
            checks: ForeignKeyChecks::On,
        }
    }

    /// With checks off the tables may lose indexes that foreign keys need, theirs or those of others.
    pub fn set_foreign_key_checks(&mut self, checks: ForeignKeyChecks) {
        self.checks = checks;
    }

    /// Whom to ask for values of computed columns that come.
    pub fn set_value_source(&mut self, values: &Arc<dyn ValueSource>) {
        self.trx.set_value_source(values.clone());
        let builds = self
            .changes
            .iter_mut()
            .filter_map(|change| change.build.as_mut());
        builds.for_each(|build| build.set_value_source(values.clone()));
    }

    fn last(&mut self) -> Result<&mut Change> {
        let last = self.changes.last_mut();
        last.ok_or_else(|| Error::invalid("no table is to be redefined"))
    }

    /// TOGETHER-2: the table is not among them.
    pub(super) fn check_is_new(&self, table: &OpenTable) -> Result<()> {
        let mut changes = self.changes.iter();
        match changes.all(|change| change.table.id() != table.id()) {
            true => Ok(()),
            false => Err(Error::invalid(format!(
                "table {} is to get two definitions at once",
                table.def.name
            ))),
        }
    }
}

impl Ddl {
    /// Gives the columns of a table other names, those of all of them in their order, once nobody uses it.
    pub fn rename_columns(&self, name: &str, to: &[&str]) -> Result<()> {
        let (trx, table) = self.lock(name)?;
        let mut named = table.definition();
        if to.len() != named.columns.len() {
            let columns = named.columns.len();
            let names = to.len();
            return Err(Error::invalid(format!(
                "table {name} has {columns} columns, which can't get {names} names"
            )));
        }
        for (column, to) in named.columns.iter_mut().zip(to) {
            column.name = to.to_string();
        }
        let def = table.definition().redefined(&named)?;
        let mut prepared = Redefinition::new(trx);
        prepared.changes.push(Change::new(table, def));
        self.commit_redefinition(prepared, &mut |_, _| {})
    }

    /// What the table becomes with the definition `to`, if its rows and indexes can stay as they are.
    pub fn redefined(&self, table: &OpenTable, to: &TableDef) -> Result<TableDef> {
        let own = table.definition();
        let def = own.redefined(to)?;
        def.check_room(&own, self.built_with())?;
        Ok(def)
    }

    /// Prepares to give the table of this definition's name what `Ddl::redefined` takes of it, once
    /// nobody uses it, together with those that are prepared. If indexes are to be built, others may go on
    /// then, until the end. After an error there is nothing to do but to abandon all.
    pub fn add_redefinition(&self, prepared: &mut Redefinition, to: &TableDef) -> Result<()> {
        self.core.check_writable()?;
        let table = self.core.tables.get(&to.name)?;
        prepared.check_is_new(&table)?;
        self.redefined(&table, to)?;
        prepared.trx.use_table(&table, TableMode::Exclusive)?;
        // It is kept from other DDL now.
        let def = self.redefined(&table, to)?;
        self.check_row_fits(&def)?;
        let Redefinition { trx, changes, .. } = prepared;
        changes.push(Change::new(table, def));
        let change = changes.last_mut().expect("it was pushed");
        self.begin_build(trx, change)
    }

    /// Makes the trees of new indexes, and lets others use the table.
    fn begin_build(&self, trx: &mut Transaction, change: &mut Change) -> Result<()> {
        let Change {
            table,
            def,
            built,
            build,
            ..
        } = change;
        let new: Vec<usize> = def.indexes_beyond(&table.def).map(|(n, _)| n).collect();
        // What changes a temporary table is refused at the end.
        if new.is_empty() || table.is_temporary() {
            return Ok(());
        }
        let (_, first, _) = self.control.draw_ids(new.len() as u64)?;
        let mut indexes = Vec::new();
        for (id, n) in (first..).map(IndexId).zip(new) {
            def.stamp_index(1 + n, self.built_with())?;
            let root = table.make_loose_tree(id)?;
            (def.indexes[n].id, def.indexes[n].root) = (id, root);
            built.push(LooseTree { index: id, root });
            indexes.push(table.open_index(def, &def.indexes[n], &self.collations)?);
        }
        *build = Some(self.start(trx, table, Product::Indexes(indexes)));
        Ok(())
    }

    /// Begins to build, and lets others use the table, or at least read it.
    pub(super) fn start(
        &self,
        trx: &mut Transaction,
        table: &Arc<OpenTable>,
        product: Product,
    ) -> Build {
        let most_notes = self.online_log.load(Ordering::Relaxed) as usize;
        let others_may = product.others_may();
        let build = Build::begin(trx, table, product, self.build_room(trx), most_notes);
        trx.weaken_table(table, others_may);
        // A deadlock at the end costs others less.
        trx.set_spared(true);
        build
    }

    /// The table that was prepared last will have this foreign key. Its rows are not looked at. The parent
    /// need not be there, but if it is it has to fit; that is found out at the end, again.
    pub fn add_foreign_key(&self, prepared: &mut Redefinition, key: ForeignKey) -> Result<()> {
        let change = prepared.last()?;
        change.foreign_new.push(key);
        change.update_foreign_keys();
        change.def.validate()?;
        self.check_new_foreign_keys(&change.def, change)
    }

    /// The table that was prepared last will not have this foreign key any more.
    pub fn drop_foreign_key(&self, prepared: &mut Redefinition, name: &str) -> Result<()> {
        let change = prepared.last()?;
        let table = &change.table;
        let is_it = |key: &&ForeignKey| key.name.eq_ignore_ascii_case(name);
        match table.def.foreign_keys.iter().find(is_it) {
            Some(key) => {
                change.foreign_gone.push(key.name.clone());
                Ok(())
            }
            None => Err(Error::not_found(format!(
                "foreign key {name} of table {}",
                table.def.name
            ))),
        }
    }

    /// The AUTO_INCREMENT counter of each table that is prepared will be `next`, or what follows the greatest
    /// value in its rows.
    pub fn set_counter(&self, prepared: &mut Redefinition, next: u64) {
        let changes = prepared.changes.iter_mut();
        changes.for_each(|change| change.counter = Some(next));
    }

    /// Builds what is new while others use the tables. May be called again, and is left out if nothing is.
    pub fn build(&self, prepared: &mut Redefinition, tell: TellDuplicate<'_>) -> Result<()> {
        let mut builds = (prepared.changes.iter_mut()).filter_map(|change| change.build.as_mut());
        builds.try_for_each(|build| build.advance(tell))
    }

    /// What one statement of this transaction may take for building trees.
    pub fn build_room(&self, trx: &Transaction) -> BuildRoom {
        BuildRoom {
            disk: self.spaces.disk().clone(),
            dir: trx.sort_directory().unwrap_or(&self.sort_directory).into(),
            memory: self.sort_buffer.load(Ordering::Relaxed) as usize,
            fill_factor_pct: self.fill_factor_pct.load(Ordering::Relaxed),
            helpers: self.sort_helpers.clone(),
            scratch: (self.spaces.encrypts_anything())
                .then(|| self.spaces.keyring().scratch().clone()),
        }
    }

    /// Bytes of memory that building the indexes of one statement may take.
    pub fn set_sort_buffer(&self, bytes: u64) {
        // Relaxed: it stands for itself.
        self.sort_buffer.store(bytes, Ordering::Relaxed);
    }

    /// How much of each leaf is filled by statements that build trees from now on.
    pub fn set_fill_factor_pct(&self, pct: u32) {
        // Relaxed: it stands for itself.
        self.fill_factor_pct.store(pct, Ordering::Relaxed);
    }

    /// Bytes that noting which rows are changed may take while the indexes of one statement are built.
    pub fn set_online_log(&self, bytes: u64) {
        // Relaxed: it stands for itself.
        self.online_log.store(bytes, Ordering::Relaxed);
    }

    /// Gives the tables their new definitions, once nobody uses them.
    pub fn commit_redefinition(
        &self,
        mut prepared: Redefinition,
        tell: TellDuplicate<'_>,
    ) -> Result<()> {
        if let Err(e) = self.finish_builds(&mut prepared, tell) {
            self.abandon_redefinition(prepared);
            return Err(e);
        }
        let Redefinition {
            trx,
            mut changes,
            checks,
        } = prepared;
        match self.put_together(trx, &mut changes, checks) {
            Ok(gone) => {
                for (change, gone) in changes.iter().zip(&gone) {
                    let ids = gone.iter().map(|tree| tree.index);
                    self.core.history.note_dropped_indexes(ids);
                    self.give_back(&change.table, gone);
                }
                Ok(())
            }
            Err(e) => {
                self.take_back(&changes);
                Err(e)
            }
        }
    }

    /// Locks the tables, and brings what is built up to date.
    fn finish_builds(&self, prepared: &mut Redefinition, tell: TellDuplicate<'_>) -> Result<()> {
        self.build(prepared, tell)?;
        let Redefinition { trx, changes, .. } = prepared;
        (changes.iter())
            .try_for_each(|change| trx.use_table(&change.table, TableMode::Exclusive))?;
        let mut builds = changes.iter_mut().filter_map(|change| change.build.take());
        builds.try_for_each(|mut build| build.finish(tell))?;
        for change in changes.iter_mut() {
            change.counter = change.next_number(trx)?;
        }
        Ok(())
    }

    /// The tables stay as they are.
    pub fn abandon_redefinition(&self, prepared: Redefinition) {
        let Redefinition {
            trx, mut changes, ..
        } = prepared;
        // First, or another one could begin to follow a table, and lose its notes.
        changes.iter_mut().for_each(|change| change.build = None);
        drop(trx);
        self.take_back(&changes);
    }

    /// What was built goes.
    fn take_back(&self, changes: &[Change]) {
        for change in changes {
            self.give_back(&change.table, &change.built);
            if let Some(rebuilt) = change.rebuilt.as_ref().filter(|new| !new.is_dropped()) {
                self.abandon_rebuilt(rebuilt);
            }
        }
    }

    /// Gives the pages of trees back that are no index of the table, which may have been replaced since. If
    /// that fails it is done when the table is opened next.
    fn give_back(&self, table: &OpenTable, trees: &[LooseTree]) {
        // After a failed commit nobody knows what is an index.
        if trees.is_empty() || self.core.check_usable().is_err() {
            return;
        }
        let name = &table.def.name;
        let give_back = || {
            let now = self.core.tables.get(name)?;
            // No other DDL, and as long as it is held it is not opened again.
            let mut trx = self.begin();
            trx.use_table(&now, TableMode::IntentionExclusive)?;
            match now.id() == table.id() {
                true => now.give_back_loose_trees(|tree| trees.contains(tree)),
                false => Ok(()),
            }
        };
        match give_back() {
            // It was dropped, or is called something else.
            Ok(()) | Err(Error::NotFound { .. }) => {}
            Err(e) => self.core.warn(&format!(
                "table {name} keeps the pages of an index that it does not have, until it is opened next: {e}"
            )),
        }
    }
}
