//! ALTER TABLE without copying rows: other names of columns and indexes, columns that take more, new columns,
//! another order of columns, columns, indexes and foreign keys that go, indexes that come.
//!
//! It has three steps, so that others are kept from the table for moments only:
//!
//! 1. Under the exclusive lock trees are made for new indexes (LOOSE-1), and from then on changes of rows are
//!    noted. Then the lock becomes an intention, which keeps away other DDL, and who counts on that nothing
//!    changes (CHECK TABLE).
//! 2. The trees are filled (`table/build.rs`), and catch up with the changes (`table/catch_up.rs`).
//! 3. Under the exclusive lock they catch up with the last ones, and the new definition is committed. From
//!    then on the new trees are indexes, and those of dropped indexes are given back, a few hundred pages at
//!    a time. Nobody has to wait for that.
//!
//! Columns are renamed also in the definitions of the children by foreign keys.
//!
//! What needs other rows goes the same way, but builds another table (`rebuild`).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::base::{Error, IndexId, PageId, PageNo, Result};
use crate::catalog::{ColumnNames, ForeignKey, LooseTree, OpenTable, TableDef};
use crate::lock::TableMode;
use crate::table::{Build, Product, SortRoom, TellDuplicate};
use crate::txn::Transaction;

use super::foreign::check_children;
use super::{Ddl, store};

/// A definition that a table is about to get. It is committed or abandoned by `Ddl`.
pub struct Redefinition {
    pub(super) trx: Transaction,
    pub(super) table: Arc<OpenTable>,
    pub(super) names: ColumnNames,
    pub(super) def: TableDef,
    /// Of its new indexes.
    built: Vec<LooseTree>,
    /// The table that is to take the place, if rows are written anew.
    pub(super) rebuilt: Option<Arc<OpenTable>>,
    /// Fills them.
    pub(super) build: Option<Build>,
    /// Names of foreign keys that go.
    pub(super) foreign_gone: Vec<String>,
}

impl Redefinition {
    /// The table gets this definition.
    pub(super) fn new(trx: Transaction, table: Arc<OpenTable>, def: TableDef) -> Redefinition {
        Redefinition {
            names: ColumnNames::new(&table.def, &def),
            trx,
            table,
            def,
            built: Vec::new(),
            rebuilt: None,
            build: None,
            foreign_gone: Vec::new(),
        }
    }

    /// The definition's foreign keys are those that the table has now, but for those that go, with the names
    /// that columns get. Parents may have got other names since it was prepared.
    pub(super) fn update_foreign_keys(&mut self) {
        let def = &mut self.def;
        def.foreign_keys = self.table.definition().foreign_keys;
        def.foreign_keys
            .retain(|key| !self.foreign_gone.contains(&key.name));
        self.names.rename_in(def);
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
        self.commit_redefinition(Redefinition::new(trx, table, def), &mut |_, _| {})
    }

    /// Prepares to give the table of this definition's name what `TableDef::redefined` takes of it, once
    /// nobody uses it. If indexes are to be built, others may go on then, until the end. `trx` is a new
    /// transaction.
    pub fn prepare_redefinition(
        &self,
        to: &TableDef,
        mut trx: Transaction,
    ) -> Result<Redefinition> {
        self.core.check_writable()?;
        let table = self.core.tables.get(&to.name)?;
        table.definition().redefined(to)?;
        trx.use_table(&table, TableMode::Exclusive)?;
        // It is kept from other DDL now.
        let def = table.definition().redefined(to)?;
        self.check_row_fits(&def)?;
        let mut prepared = Redefinition::new(trx, table, def);
        match self.begin_build(&mut prepared) {
            Ok(()) => Ok(prepared),
            Err(e) => {
                self.abandon_redefinition(prepared);
                Err(e)
            }
        }
    }

    /// Makes the trees of new indexes, and lets others use the table.
    fn begin_build(&self, prepared: &mut Redefinition) -> Result<()> {
        let Redefinition {
            trx,
            table,
            def,
            built,
            build,
            ..
        } = prepared;
        let new: Vec<usize> = def.indexes_beyond(&table.def).map(|(n, _)| n).collect();
        // What changes a temporary table is refused at the end.
        if new.is_empty() || table.is_temporary() {
            return Ok(());
        }
        let (_, first, _) = self.control.draw_ids(new.len() as u64)?;
        let mut indexes = Vec::new();
        for (id, n) in (first..).map(IndexId).zip(new) {
            def.stamp_index(1 + n, &self.collations)?;
            let root = table.make_loose_tree(id)?;
            (def.indexes[n].id, def.indexes[n].root) = (id, root);
            built.push(LooseTree { index: id, root });
            indexes.push(table.open_index(def, &def.indexes[n], &self.collations)?);
        }
        *build = Some(self.start(trx, table, Product::Indexes(indexes)));
        Ok(())
    }

    /// Begins to build, and lets others use the table.
    pub(super) fn start(
        &self,
        trx: &mut Transaction,
        table: &Arc<OpenTable>,
        product: Product,
    ) -> Build {
        let most_notes = self.online_log.load(Ordering::Relaxed) as usize;
        let build = Build::begin(trx, table, product, self.sort_room(), most_notes);
        trx.weaken_table(table);
        // A deadlock at the end costs others less.
        trx.set_spared(true);
        build
    }

    /// The table will not have this foreign key any more.
    pub fn drop_foreign_key(&self, prepared: &mut Redefinition, name: &str) -> Result<()> {
        let table = &prepared.table;
        let is_it = |key: &&ForeignKey| key.name.eq_ignore_ascii_case(name);
        match table.def.foreign_keys.iter().find(is_it) {
            Some(key) => {
                prepared.foreign_gone.push(key.name.clone());
                Ok(())
            }
            None => Err(Error::not_found(format!(
                "foreign key {name} of table {}",
                table.def.name
            ))),
        }
    }

    /// Builds what is new while others use the table. May be called again, and is left out if nothing is.
    pub fn build(&self, prepared: &mut Redefinition, tell: TellDuplicate<'_>) -> Result<()> {
        match &mut prepared.build {
            Some(build) => build.advance(tell),
            None => Ok(()),
        }
    }

    /// What the sorters of one statement may take.
    pub fn sort_room(&self) -> SortRoom {
        SortRoom {
            disk: self.spaces.disk().clone(),
            dir: self.spaces.dir().into(),
            memory: self.sort_buffer.load(Ordering::Relaxed) as usize,
        }
    }

    /// Bytes of memory that building the indexes of one statement may take.
    pub fn set_sort_buffer(&self, bytes: u64) {
        // Relaxed: it stands for itself.
        self.sort_buffer.store(bytes, Ordering::Relaxed);
    }

    /// Bytes that noting which rows are changed may take while the indexes of one statement are built.
    pub fn set_online_log(&self, bytes: u64) {
        // Relaxed: it stands for itself.
        self.online_log.store(bytes, Ordering::Relaxed);
    }

    /// Gives the table its new definition, once nobody uses it.
    pub fn commit_redefinition(
        &self,
        mut prepared: Redefinition,
        tell: TellDuplicate<'_>,
    ) -> Result<()> {
        let (table, built) = (prepared.table.clone(), prepared.built.clone());
        if let Err(e) = self.finish_build(&mut prepared, tell) {
            self.abandon_redefinition(prepared);
            return Err(e);
        }
        if prepared.rebuilt.is_some() {
            return self.commit_rebuild(prepared);
        }
        let gone = match self.put_definition(prepared) {
            Ok(gone) => gone,
            Err(e) => {
                self.give_back(&table, &built);
                return Err(e);
            }
        };
        let ids = gone.iter().map(|tree| tree.index);
        self.core.history.note_dropped_indexes(ids);
        self.give_back(&table, &gone);
        Ok(())
    }

    /// Locks the table, and brings what is built up to date.
    fn finish_build(&self, prepared: &mut Redefinition, tell: TellDuplicate<'_>) -> Result<()> {
        let Redefinition {
            trx, table, build, ..
        } = prepared;
        if let Some(build) = build {
            build.advance(tell)?;
        }
        trx.use_table(table, TableMode::Exclusive)?;
        match build.take() {
            Some(mut build) => build.finish(tell),
            None => Ok(()),
        }
    }

    /// The table stays as it is.
    pub fn abandon_redefinition(&self, prepared: Redefinition) {
        let Redefinition {
            trx,
            table,
            built,
            rebuilt,
            build,
            ..
        } = prepared;
        // First, or another one could begin to follow the table, and lose its notes.
        drop(build);
        drop(trx);
        self.give_back(&table, &built);
        if let Some(rebuilt) = rebuilt {
            self.abandon_rebuilt(&rebuilt);
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

    /// Returns the trees of the indexes that are gone. They were put on the list before; if this fails they
    /// are indexes again.
    fn put_definition(&self, mut prepared: Redefinition) -> Result<Vec<LooseTree>> {
        let _serial = self.core.tables.serialize_ddl();
        prepared.update_foreign_keys();
        let Redefinition {
            mut trx,
            table,
            names,
            mut def,
            built,
            ..
        } = prepared;
        let before = table.definition();
        if def == before {
            return Ok(Vec::new());
        }
        if table.is_temporary() {
            return Err(Error::unsupported("redefining a temporary table"));
        }
        self.check_columns_stay(&before, &def)?;
        let children = self.children_renaming_columns(&table, &names)?;
        def.validate()?;
        let mut changed = vec![def.clone()];
        changed.extend(children.iter().map(|child| child.def.clone()));
        check_children(&def, changed.iter())?;
        let _reserved = self.reserve([&*def.name], &changed);
        // Nothing has to be read for the copy of the definition then.
        let header = PageId::new(def.space, PageNo(0));
        let _header = self.core.pool.pin(header)?;
        let writer = trx.writer()?;
        let is_built = |id: IndexId| built.iter().any(|tree| tree.index == id);
        let new = def.indexes.iter_mut().filter(|index| is_built(index.id));
        new.for_each(|index| index.created_by = writer);
        let gone = before.indexes_beyond(&def);
        let gone: Vec<LooseTree> = gone.map(|(_, index)| LooseTree::of(index)).collect();
        table.loosen(&gone)?;
        let stored = (|| {
            store::replace_def(&mut trx, self.system(), &def.name, &def, table.created_by)?;
            for child in &children {
                let def = &child.def;
                store::replace_def(&mut trx, self.system(), &def.name, def, child.created_by)?;
            }
            let gate = table.keep_purge_away();
            self.retire(trx, [&*table])?;
            Ok::<_, Error>(gate)
        })();
        // What stays on the list by a failure of this goes when the table is opened next (LOOSE-1).
        let gate = stored.inspect_err(|_| {
            let _ = table.fasten(&gone);
        })?;
        let _ = table.fasten(&built);
        self.refresh_copy(&def);
        let placed = self.put_in_place(&table, Some(&names), def, table.created_by);
        drop(gate);
        let children = children.iter();
        children.for_each(|child| self.refresh_copy(&child.def));
        self.tell_of_table(&table.def.name, placed);
        Ok(gone)
    }
}
