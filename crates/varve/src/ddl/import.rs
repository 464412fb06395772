//! DISCARD and IMPORT TABLESPACE: a table gives up its file, and gets the rows of another one, which a user
//! has put there: of this database or of another, of this version of the format or an older one.
//!
//! **Discarding** gives the table a definition that says so, in the numbers of a table and a tablespace that
//! never were. The old file first gets a name of its own, `.discarded-` and its number, and goes with the
//! commit, which has decided it, as that of a table that is dropped (DDL-3). A mark says that what lies in
//! the file's old place from then on is a user's (SP-13). A crash before the commit leaves a file whose name
//! is not its table's, and the next start renames it; one after it leaves a file that redo removes. A table
//! whose file is damaged or lost is discarded, too.
//!
//! **Importing** reads the file as `varve dump` does (`table/file.rs`), and loads its rows into a table of
//! their own, `#rebuild-` and a number, with the definition of the table that waits. No page is taken over.
//! So nothing in the file has to be made to fit: neither numbers of tablespaces, tables, indexes and
//! transactions, nor LSNs, undo, versions of rows, or the order that collations give keys; deleted rows,
//! long values of nobody and trees that were being given back stay behind. The size of pages may be another.
//! It costs what copying the table costs, and room for both files. In the end one transaction takes away the
//! definition of the table that waited and gives the new one its name; then the user's file goes, and the new
//! one gets its place. So after a crash the table waits, and the user's file is where it was, or it has the
//! rows: what is left of a load is dropped at the next start (REBUILD-2), and the user's file, if it is still
//! there, put aside.
//!
//! Rows are those that stand in the file. A file that was copied while nobody kept others from changing it
//! (`db/export.rs`), and not from a database that was closed, may have rows of transactions that did not
//! commit, and lack others.
//!
//! - **IMPORT-1** A table is discarded if and only if its stored definition says so. Nobody opens it, and all
//!   that can be done with it is to import a file, to empty it, which gives it a new one, and to rename or
//!   drop it, with a file that waits.
//! - **IMPORT-2** The place of a discarded table's file is marked (SP-13) from before the definition is
//!   committed until it is changed. So what a user puts there is never opened as a tablespace, whatever its
//!   header says.
//! - **IMPORT-3** A row is imported only if all pages of the file were read, with their right checksums, and
//!   the leaves have all keys from the first to the last.

use std::path::PathBuf;
use std::sync::Arc;

use crate::base::{Error, PageId, PageNo, Result, SpaceId, TableId, TrxId};
use crate::catalog::{BrokenTable, OpenTable, TableDef, schema_of};
use crate::flush::CheckpointHold;
use crate::lock::TableMode;
use crate::row::{Datum, RowRef};
use crate::table::{FromFile, TableFile, TableLoad, check_interrupt, table_file_with};
use crate::txn::Transaction;

use super::foreign::ConstraintPrefix;
use super::{Ddl, ForeignKeyChecks, lost_mark_path, store, table_path};

impl Ddl {
    /// Takes a table's rows away, and keeps its definition, once nobody uses it; also those of one that can't
    /// be used.
    pub fn discard_table(&self, name: &str, checks: ForeignKeyChecks) -> Result<()> {
        let found = self.core.tables.get(name).map(drop);
        match (found, self.core.tables.broken(name)) {
            (Err(e @ Error::TablespaceDiscarded { .. }), _) => return Err(e),
            (Err(_), Some(broken)) => return self.discard_broken(name, &broken, checks),
            _ => {}
        }
        let (mut trx, table) = self.lock_to_drop(name)?;
        trx.may_use_kept_pages();
        if table.is_temporary() {
            return Err(Error::unsupported("discarding a temporary table's rows"));
        }
        let _serial = self.core.tables.serialize_ddl();
        self.check_not_referenced(&table.def, checks)?;
        let def = table.definition();
        let _reserved = self.reserve([name], std::slice::from_ref(&def));
        let _gate = table.keep_purge_away();
        let retire = |trx| self.retire(trx, &[&*table]);
        let _decided = self.store_discarded(trx, &def, Some(table.space()), retire)?;
        self.core.tables.remove(&table);
        self.remove_file(table.space());
        self.forget_versions(&table);
        Ok(())
    }

    /// The same if the file is damaged or not there. One in its place that is another's stays: it may be
    /// there to be imported.
    fn discard_broken(
        &self,
        name: &str,
        broken: &BrokenTable,
        checks: ForeignKeyChecks,
    ) -> Result<()> {
        self.core.check_writable()?;
        let _serial = self.core.tables.serialize_ddl();
        let Some(def) = &broken.def else {
            return Err(broken.why.clone());
        };
        self.check_not_referenced(def, checks)?;
        let _reserved = self.reserve([name], std::slice::from_ref(def));
        let id = self.space_of_broken(name, broken, &table_path(name))?;
        let mut trx = self.begin();
        trx.may_use_kept_pages();
        let _decided = self.store_discarded(trx, def, id, |trx| self.commit(trx))?;
        self.core.tables.remove_broken(name);
        id.into_iter().for_each(|id| self.remove_file(id));
        self.spaces
            .remove_unopened(&lost_mark_path(name, def.space))?;
        self.core.warn(&format!(
            "the rows of table {name}, which could not be used ({}), were discarded",
            broken.why
        ));
        Ok(())
    }

    /// Commits that a table has no rows. Its file, if it has one, has another name then, and the place is for
    /// a user's.
    fn store_discarded(
        &self,
        mut trx: Transaction,
        old: &TableDef,
        space: Option<SpaceId>,
        commit: impl FnOnce(Transaction) -> Result<TrxId>,
    ) -> Result<CheckpointHold> {
        let mut def = old.clone();
        // Nobody has the numbers: neither undo nor redo of the rows that go is for this table.
        let (table, _, number) = self.control.draw_ids(0)?;
        (def.id, def.space, def.discarded) = (TableId(table), SpaceId(number), true);
        if let Some(space) = space {
            let aside = format!("{}/.discarded-{space}", schema_of(&def.name));
            self.spaces.rename(space, &table_path(&aside))?;
        }
        let stored = (|| {
            self.spaces.await_file(&table_path(&def.name))?;
            store::replace_def(&mut trx, self.system(), &def.name, &def, TrxId(0))?;
            let decided = self.decide_removals(&mut trx, space.as_slice())?;
            commit(trx)?;
            Ok::<_, Error>(decided)
        })();
        stored.inspect_err(|_| self.keep_rows(&def.name, space))
    }

    /// The table keeps its rows after all.
    fn keep_rows(&self, name: &str, space: Option<SpaceId>) {
        // Else it is not known whether it does.
        if self.core.check_usable().is_err() {
            return;
        }
        let path = table_path(name);
        let kept = match space {
            Some(space) => self.spaces.rename(space, &path),
            None => self.spaces.stop_awaiting(&path),
        };
        self.tell_of_file(name, kept);
    }

    /// The definition of a table whose rows were discarded.
    fn discarded(&self, name: &str) -> Result<TableDef> {
        let stored = self.dictionary.read(&mut self.begin(), name)?;
        let Some(stored) = stored else {
            return Err(Error::not_found(format!("table {name}")));
        };
        match stored.def? {
            def if def.discarded => Ok(def),
            _ => Err(Error::AlreadyExists {
                what: format!("the tablespace of table {name}"),
            }),
        }
    }

    /// Drops a table whose rows were discarded, with a file that lies in its place to be imported.
    pub(super) fn drop_discarded(&self, name: &str, checks: ForeignKeyChecks) -> Result<()> {
        self.core.check_writable()?;
        let _serial = self.core.tables.serialize_ddl();
        let def = self.discarded(name)?;
        self.check_not_referenced(&def, checks)?;
        let _reserved = self.reserve([name], std::slice::from_ref(&def));
        let mut trx = self.begin();
        trx.may_use_kept_pages();
        store::delete_def(&mut trx, self.system(), name)?;
        self.commit(trx)?;
        self.core.tables.remove_broken(name);
        let path = table_path(name);
        let removed = self.spaces.remove_name(&path);
        removed.and_then(|()| self.spaces.stop_awaiting(&path))
    }

    /// Gives a table whose rows were discarded another name, with a file that lies in its place to be
    /// imported. Nobody refers to it.
    pub(super) fn rename_discarded(
        &self,
        from: &str,
        to: &str,
        constraints: Option<ConstraintPrefix<'_>>,
        checks: ForeignKeyChecks,
    ) -> Result<()> {
        self.core.check_writable()?;
        let _serial = self.core.tables.serialize_ddl();
        let mut def = self.discarded(from)?;
        self.check_not_referenced(&def, ForeignKeyChecks::On)?;
        let _reserved = self.reserve([from, to], std::slice::from_ref(&def));
        self.give_name(&mut def, to, constraints, checks)?;
        let [old, new] = [from, to].map(table_path);
        self.spaces.prepare_rename(&new)?;
        let mut trx = self.begin();
        trx.may_use_kept_pages();
        let stored = (|| {
            self.spaces.await_file(&new)?;
            store::replace_def(&mut trx, self.system(), from, &def, TrxId(0))?;
            self.commit(trx)
        })();
        // If it is not known what is committed both places are a user's until the next start.
        if stored.is_err() && self.core.check_usable().is_ok() {
            self.spaces.stop_awaiting(&new)?;
        }
        stored?;
        self.core.tables.remove_broken(from);
        let moved = self.spaces.move_awaited(&old, &new);
        self.tell_of_file(to, moved.and_then(|()| self.spaces.stop_awaiting(&old)));
        Ok(())
    }

    /// Gives a table whose rows were discarded an empty file.
    pub(super) fn truncate_discarded(&self, name: &str, checks: ForeignKeyChecks) -> Result<()> {
        let def = self.discarded(name)?;
        self.check_not_referenced(&def, checks)?;
        // It is a user's, who has not said what is to become of it.
        self.spaces.prepare_rename(&table_path(name))?;
        self.make_usable(self.begin(), &def, |_, _| Ok(()))
    }

    /// Gives a table whose rows were discarded, or whose file is lost, those of the file that lies in its
    /// place. `trx` is new: its interrupt ends the import.
    pub fn import_table(&self, name: &str, trx: Transaction) -> Result<()> {
        self.core.check_writable()?;
        let found = self.core.tables.get(name).map(drop);
        let lost = self.core.tables.broken(name).filter(|_| found.is_err());
        let lost = lost.filter(|broken| self.has_lost_file(name, broken));
        let mut def = match lost.as_ref().and_then(|broken| broken.def.clone()) {
            Some(def) => def,
            None => self.discarded(name)?,
        };
        let source = Source::open(self, name)?;
        def.check_importable(&source.def)?;
        if let Some(broken) = lost {
            self.discard_broken(name, &broken, ForeignKeyChecks::Off)?;
            def = self.discarded(name)?;
        }
        self.make_usable(trx, &def, |trx, made| self.fill_from(trx, &source, made))
    }

    /// Whether what lies in the place of a table's file, if anything, is another's.
    fn has_lost_file(&self, name: &str, broken: &BrokenTable) -> bool {
        let Some(def) = broken.def.as_ref().filter(|def| !def.discarded) else {
            return false;
        };
        match self.spaces.inspect(&table_path(name)) {
            Ok(header) => header.intro.space != def.space || header.table != def.id,
            Err(e) => matches!(e, Error::Io { .. }),
        }
    }

    /// Makes a table in the place of one that was discarded, with the rows that `fill` gives it.
    fn make_usable(
        &self,
        mut trx: Transaction,
        def: &TableDef,
        fill: impl FnOnce(&mut Transaction, &Arc<OpenTable>) -> Result<()>,
    ) -> Result<()> {
        let mut made = def.clone();
        made.discarded = false;
        let made = self.make_aside(&made, None)?;
        let filled = fill(&mut trx, &made);
        let put = filled.and_then(|()| self.put_imported(trx, def, &made));
        if put.is_err() && !made.is_dropped() {
            self.abandon_rebuilt(&made);
        }
        put
    }

    /// Loads the rows of the file.
    fn fill_from(
        &self,
        trx: &mut Transaction,
        source: &Source,
        made: &Arc<OpenTable>,
    ) -> Result<()> {
        // Parents are not looked for, as InnoDB has it.
        trx.set_foreign_key_checks(false);
        let room = self.build_room(trx);
        let mut load = TableLoad::begin(trx, made, room)?;
        let mut row = ImportedRow {
            source,
            into: made,
            long: Vec::new(),
        };
        let (watch, interrupt) = (trx.watch().cloned(), trx.interrupt().clone());
        let going_on = || check_interrupt(&interrupt);
        let each = &mut |found: FromFile<'_>| match found {
            FromFile::Skipped(what) => Err(source.damaged(what)),
            FromFile::Row {
                is_deleted: true, ..
            } => Ok(()),
            FromFile::Row { row: found, .. } => row.push(trx, &mut load, found),
        };
        let file = &source.file;
        file.rows(&source.def, watch.as_ref(), &going_on, each)?;
        load.finish(trx, &mut |_, _| {})?;
        if made.def.auto_increment.is_some() {
            let next = source.file.auto_increment()?;
            made.set_auto_increment(next.max(made.auto_increment()))?;
        }
        Ok(())
    }

    /// The table that was filled takes the name.
    fn put_imported(
        &self,
        mut trx: Transaction,
        discarded: &TableDef,
        new: &OpenTable,
    ) -> Result<()> {
        let name = &discarded.name;
        let _serial = self.core.tables.serialize_ddl();
        trx.use_table(new, TableMode::Exclusive)?;
        let aside = new.definition();
        let mut def = aside.clone();
        def.name.clone_from(name);
        def.foreign_keys.clone_from(&discarded.foreign_keys);
        def.validate()?;
        let changed = [def.clone(), discarded.clone()];
        let _reserved = self.reserve([&*aside.name], &changed);
        // Somebody may have imported or dropped it meanwhile.
        if self.discarded(name)? != *discarded {
            return Err(Error::not_found(format!("table {name}, as it was,")));
        }
        // Nothing has to be read for the copy of the definition then.
        let _header = self.core.pool.pin(PageId::new(def.space, PageNo(0)))?;
        trx.may_use_kept_pages();
        store::delete_def(&mut trx, self.system(), &aside.name)?;
        store::replace_def(&mut trx, self.system(), name, &def, TrxId(0))?;
        let _gate = new.keep_purge_away();
        let id = self.retire(trx, &[new])?;
        self.refresh_copy(&def);
        let (space, path) = (def.space, table_path(name));
        self.core.tables.remove_broken(name);
        let placed = self.put_in_place(new, None, def, id);
        let removed = self.spaces.remove_name(&path);
        let moved = removed.and_then(|()| self.spaces.rename(space, &path));
        self.tell_of_file(name, moved);
        self.tell_of_table(name, placed);
        Ok(())
    }
}

/// The file that is imported.
struct Source {
    file: TableFile,
    def: TableDef,
    path: PathBuf,
}

impl Source {
    fn open(ddl: &Ddl, name: &str) -> Result<Source> {
        let path = ddl.spaces.dir().join(table_path(name));
        let file = table_file_with(&**ddl.spaces.disk(), &path, ddl.spaces.keyring())?;
        let mut source = Source {
            file,
            def: TableDef::new(name),
            path,
        };
        match source.file.definition() {
            Some(def) => source.def = def.clone(),
            None => return Err(source.damaged("no definition of a table".into())),
        }
        Ok(source)
    }

    fn damaged(&self, found: String) -> Error {
        Error::CorruptFile {
            path: self.path.clone(),
            expected: "a whole table".into(),
            found,
        }
    }
}

/// A row on its way.
struct ImportedRow<'a> {
    source: &'a Source,
    into: &'a OpenTable,
    /// Long values, by column.
    long: Vec<(usize, Vec<u8>)>,
}

impl ImportedRow<'_> {
    fn push(&mut self, trx: &mut Transaction, load: &mut TableLoad, row: RowRef<'_>) -> Result<()> {
        let Source { file, def, .. } = self.source;
        let columns = def.columns.len();
        self.long.clear();
        // Those of columns that are gone stay behind.
        for (column, chain) in row.external_columns().filter(|(n, _)| *n < columns) {
            let name = &def.columns[column].name;
            let lost = || format!("a value of column {name}, of which a page can't be read");
            let value = file.external_value(def, &chain);
            let value = value.ok_or_else(|| self.source.damaged(lost()))?;
            self.long.push((column, value));
        }
        let mut datums: Vec<Datum<'_>> = Vec::with_capacity(columns);
        for (n, column) in self.into.def.columns.iter().enumerate() {
            let datum = match self.long.iter().find(|(long, _)| *long == n) {
                Some((_, value)) => Some(&**value),
                None => row.fetched(n).flatten(),
            };
            // The file's word for it is not enough.
            let checked = column.check(datum);
            checked.map_err(|e| self.source.damaged(e.to_string()))?;
            datums.push(datum);
        }
        load.push(trx, &datums)
    }
}
