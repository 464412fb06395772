//! CREATE, DROP, RENAME and TRUNCATE TABLE, each atomic across a crash.
//!
//! The stored definitions (`store`) are the only truth, and they change in a transaction of their own. Files
//! follow:
//!
//! - CREATE and TRUNCATE make a new file, synced, before the definition that names its tablespace commits. A
//!   crash before the commit leaves a file whose tablespace no definition names, and which has no rows:
//!   start-up removes it.
//! - DROP and TRUNCATE remove the old file after the commit is durable. The commit's own mini-transaction has
//!   a `FileDelete` record: a crash leaves it in the redo, and start-up removes the file. A large one is
//!   moved away instead, and gives its space back by and by (SP-11).
//! - What changes while the rows stay is in `redefine`: names of columns and indexes, greatest lengths of
//!   values, and indexes that come and go. The trees of these are in the table's file, whose list of loose
//!   trees says what a crash has left (LOOSE-1).
//! - What writes the rows anew is in `rebuild`. How both end, for several tables at once, is in `together`.
//! - Tables without a file, which get one, are in `import`; what is in a new file is in `making`.
//! - RENAME (and TRUNCATE's last step) renames the file after the commit is durable. A crash before leaves a
//!   file whose name is not what its definition says: start-up renames it. Files are recognised by the
//!   SpaceId in their header. What can be wrong with the new path is found before the commit.
//!
//! After a failed sync nobody knows what is committed: then files are left to the next start.
//!
//! - **DDL-1** After a start the table files are exactly those that the committed definitions name, when it
//!   has compared them. A file that lies where a table without one would have its own is not looked at
//!   (IMPORT-2). A start after a clean shutdown that vouches for the files does not look.
//! - **DDL-3** No file with rows is removed because no definition names it: that may be due to a write of a
//!   page of definitions that the disk lost. A removal is decided by redo alone, and the checkpoint stays
//!   before its record until the file is gone. A file with rows that nothing names is put aside.
//! - **DDL-2** The copy of a table's definition on page 0 of its file, by which `varve dump` reads the file
//!   alone, says what the stored definition says, of a long one what the name is. It is written after the
//!   commit if the table is open, and made right whenever the table is opened. A second copy never changes
//!   (DEF-2).
//!
//! - **DDL-4** A statement whose definitions are committed has succeeded, whatever its file is called: who
//!   heard of an error would go by the old name. A file that could not get its table's name is found by its
//!   tablespace, and gives its place to the next table that gets the name.
//!
//! Temporary tables have neither stored definitions nor files: `temporary`.
//!
//! Locks: the table's exclusive lock (waits for transactions that use it; temporary ones are claimed
//! instead), then the mutex that serialises DDL statements, which nobody holds while he waits for a lock.

mod dictionary;
mod elsewhere;
mod foreign;
mod import;
pub mod lookups;
mod making;
mod rebuild;
mod redefine;
mod store;
mod temporary;
mod together;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};

use parking_lot::Mutex;

use crate::base::{
    Error, IndexId, PageId, PageNo, Result, Sabotage, SpaceId, StopPoint, TableId, TrxId,
};
use crate::catalog::{
    BrokenTable, BuiltWith, ColumnNames, FIRST_ROOT_PAGE, OpenTable, ROW_AT, Reserved, TableDef,
    first_copy, is_aside, schema_of,
};
use crate::flush::{CheckpointHold, Checkpointer};
use crate::lock::TableMode;
use crate::mtr::Mtr;
use crate::page::max_record;
use crate::redo::ControlFile;
use crate::row::Collations;
use crate::space::{SPARE_FILE, Space, SpaceKind, Spaces};
use crate::table::SortHelpers;
use crate::txn::{Core, Isolation, Transaction};

use foreign::{Child, rename_parent};
use lookups::Prefix;

pub use dictionary::Dictionary;
pub use foreign::{ConstraintPrefix, ForeignKeyChecks};
pub use lookups::Lookup;
pub use redefine::Redefinition;
pub use store::{FIRST_USER_ID, SYSTEM_INDEX, SYSTEM_TABLE, StoredDef, load_defs, system_def};
pub use temporary::{TEMP_FILE, create_temporary_space, drop_temporary_table};

/// Extension of tablespace files.
pub const FILE_EXTENSION: &str = "vdt";

/// What DDL works on.
pub struct Ddl {
    pub core: Arc<Core>,
    pub spaces: Arc<Spaces>,
    pub control: Arc<ControlFile>,
    pub checkpointer: Arc<Checkpointer>,
    pub collations: Arc<Collations>,
    pub dictionary: Arc<Dictionary>,
    /// The next id of a temporary table or of one of its indexes.
    pub next_temporary: AtomicU64,
    /// See `set_sort_buffer`.
    pub sort_buffer: AtomicU64,
    /// Where sorts of transactions go that have no directory of their own for that.
    pub sort_directory: PathBuf,
    /// Of all statements that sort.
    pub sort_helpers: Arc<SortHelpers>,
    /// See `set_fill_factor_pct`.
    pub fill_factor_pct: AtomicU32,
    /// See `set_online_log`.
    pub online_log: AtomicU64,
    /// See `abandon_rebuilt`.
    pub abandoned: Mutex<Vec<String>>,
}

/// The file of the table `schema/table`, relative to the data directory.
pub fn table_path(name: &str) -> String {
    format!("{name}.{FILE_EXTENSION}")
}

/// Exists if the tablespace was missing while a crash was recovered: should its file come back, it lacks
/// changes.
pub fn lost_mark_path(name: &str, space: SpaceId) -> String {
    format!("{name}.{space}.lost")
}

impl Ddl {
    fn begin(&self) -> Transaction {
        Transaction::begin(self.core.clone(), Isolation::RepeatableRead)
    }

    fn system(&self) -> &Arc<OpenTable> {
        &self.dictionary.system
    }

    /// Makes the look-ups of a database that is new, or was made by a program without them.
    pub fn make_lookups(&self) -> Result<()> {
        let mut trx = self.begin();
        if lookups::are_complete(&mut trx, self.system())? {
            return Ok(());
        }
        lookups::make(&mut trx, self.system())?;
        self.commit(trx).map(drop)
    }

    /// Creates a table. Ids, tablespace and root pages of `def` are assigned here.
    /// Its file is in the data directory, or in another one.
    pub fn create_table(
        &self,
        def: &TableDef,
        checks: ForeignKeyChecks,
        directory: Option<&Path>,
    ) -> Result<Arc<OpenTable>> {
        self.drop_abandoned();
        let directory =
            directory.map(|directory| elsewhere::directory_of(self, &def.name, directory));
        self.create_in(def, checks, directory.transpose()?.as_deref())
    }

    /// The same with the directory in which its file is itself.
    fn create_in(
        &self,
        def: &TableDef,
        checks: ForeignKeyChecks,
        directory: Option<&Path>,
    ) -> Result<Arc<OpenTable>> {
        self.core.check_writable()?;
        def.validate()?;
        self.check_row_fits(def)?;
        let _serial = self.core.tables.serialize_ddl();
        self.check_absent(&def.name)?;
        let mut def = def.clone();
        def.id = TableId(0);
        if !is_aside(&def.name) {
            def.foreign_keys.iter_mut().for_each(|key| key.kept = false);
        }
        let _reserved = self.reserve([], std::slice::from_ref(&def));
        self.check_foreign_keys(&def, checks)?;
        let mut foreign_keys = def.foreign_keys.iter();
        debug_assert!(foreign_keys.all(|key| key.kept || def.serves(key)), "FK-1");
        def.stamp_indexes(self.built_with())?;
        self.assign_ids(&mut def)?;
        self.free_place(&def.name, def.space)?;
        let target = directory.map(|directory| directory.join(elsewhere::file_name(&def)));
        let path = table_path(&def.name);
        self.build_file(&def, &path, target.as_deref(), Spaces::create)?;
        let stored = (|| {
            let mut trx = self.begin();
            store::write_def(&mut trx, self.system(), &def, TrxId(0))?;
            self.commit(trx)
        })();
        let id = match stored {
            Ok(id) => id,
            Err(e) => {
                self.remove_file(def.space);
                return Err(e);
            }
        };
        self.keep_spare();
        // TAB-4: it is there for others, also if it can't be opened now.
        self.core.tables.note_change();
        let table = self.open(def, id)?;
        self.core.tables.add(table)
    }

    /// TAB-2: these names, and those of these tables and of their parents.
    fn reserve<const N: usize>(&self, names: [&str; N], defs: &[TableDef]) -> Reserved<'_> {
        let keys = defs.iter().flat_map(|def| &def.foreign_keys);
        let parents = keys.map(|key| key.parent.clone());
        let tables = defs.iter().map(|def| def.name.clone());
        let names = names.into_iter().map(String::from);
        self.core.tables.reserve(names.chain(tables).chain(parents))
    }

    /// What an index is built with.
    fn built_with(&self) -> BuiltWith<'_> {
        BuiltWith {
            collations: &self.collations,
            page_size: self.core.pool.page_size(),
        }
    }

    /// A table of which not even the emptiest row would fit in a page is of no use. What is longer may be
    /// moved out.
    fn check_row_fits(&self, def: &TableDef) -> Result<()> {
        let limit = max_record(self.core.pool.page_size());
        let size = def.row_format()?.shortest_row() + ROW_AT;
        if size <= limit {
            return Ok(());
        }
        Err(Error::TooLarge {
            what: format!(
                "a row of table {}, even with nothing in its columns of variable length,",
                def.name
            ),
            size,
            limit,
        })
    }

    fn open(&self, def: TableDef, created_by: TrxId) -> Result<OpenTable> {
        let (mtr, spaces) = (&self.core.mtr, &self.spaces);
        OpenTable::open(def, created_by, mtr, spaces, &self.collations)
    }

    fn check_absent(&self, name: &str) -> Result<()> {
        let tables = &self.core.tables;
        let is_temporary = tables.temporary(name).is_some();
        let is_there = is_temporary || self.dictionary.read(&mut self.begin(), name)?.is_some();
        let what = match (is_there, tables.broken(name)) {
            (false, _) => return Ok(()),
            (true, None) => format!("table {name}"),
            (true, Some(_)) => format!("table {name}, which can't be used and must be dropped,"),
        };
        Err(Error::AlreadyExists { what })
    }

    /// Commits a DDL transaction durably, whatever `flush_log_at_trx_commit` says: files are removed on its
    /// strength.
    fn commit(&self, mut trx: Transaction) -> Result<TrxId> {
        let id = trx.id().expect("a DDL transaction writes");
        trx.commit_start()?;
        if let Some(lsn) = trx.commit_lsn() {
            self.core.log.sync_to(lsn)?;
        }
        Ok(id)
    }

    /// Draws fresh ids for the table, its indexes and its tablespace; they are never reused.
    fn assign_ids(&self, def: &mut TableDef) -> Result<()> {
        let indexes = 1 + def.indexes.len() as u64;
        let (table, index, space) = self.control.draw_ids(indexes)?;
        def.id = TableId(table);
        def.space = SpaceId(space);
        for (n, i) in std::iter::once(&mut def.primary)
            .chain(&mut def.indexes)
            .enumerate()
        {
            i.id = IndexId(index + n as u64);
            i.root.0 = FIRST_ROOT_PAGE.0 + n as u32;
            i.created_by = TrxId(0);
        }
        def.indexes_at_first = 0;
        def.forget_older_rows();
        Ok(())
    }

    /// The commit of `trx`, which has changed definitions, decides that these tablespaces go (DDL-3).
    /// Recovery removes the files while the answer is kept.
    fn decide_removals(&self, trx: &mut Transaction, spaces: &[SpaceId]) -> Result<CheckpointHold> {
        for &space in spaces {
            let path = self.spaces.get(space).map_or(String::new(), |s| s.path());
            trx.removes_file(space, path)?;
        }
        // From here on nobody waits for redo capacity.
        trx.hold_commit()?;
        Ok(self.checkpointer.hold_here())
    }

    /// Drops a tablespace and its file. A file that can't be removed now is put aside at the next start,
    /// unless that comes after a crash.
    fn remove_file(&self, space: SpaceId) {
        if self.core.check_usable().is_err() {
            // What has been committed is not known any more: the next start will know whose file this is.
            return;
        }
        match self.spaces.drop_space(space) {
            Ok(()) => self.core.pool.drop_space(space),
            // Recovery may come to it until then: its pages are written (SP-8).
            Err(e) => {
                self.spaces.files_match(false);
                self.core.warn(&format!(
                    "the file of tablespace {space} is of no use any more, but can't be removed: {e}"
                ));
            }
        }
        self.keep_spare();
    }

    /// Large files that are gone give the rest of their space back.
    pub fn go_on_with_removals(&self) {
        if let Err(e) = self.spaces.go_on_with_removals() {
            self.core.warn(&format!(
                "files that were removed take up space until the next start: {e}"
            ));
        }
    }

    /// Makes the spare (SP-10) if it is missing: there may be room now.
    pub fn keep_spare(&self) {
        if let Err(e) = self.spaces.keep_spare() {
            self.core.warn(&format!(
                "{SPARE_FILE} can't be made, without which TRUNCATE TABLE is refused on a full disk: {e}"
            ));
        }
    }

    /// A DDL transaction that has the table for itself.
    fn lock(&self, name: &str) -> Result<(Transaction, Arc<OpenTable>)> {
        let (mut trx, table) = self.lock_to_drop(name)?;
        trx.use_table(&table, TableMode::Exclusive)?;
        Ok((trx, table))
    }

    /// The same if nothing in the table is needed.
    fn lock_to_drop(&self, name: &str) -> Result<(Transaction, Arc<OpenTable>)> {
        self.core.check_writable()?;
        let table = self.core.tables.get(name)?;
        let mut trx = self.begin();
        trx.take_table(&table, TableMode::Exclusive)?;
        Ok((trx, table))
    }

    /// Drops a table once nobody uses it; also one that can't be used.
    pub fn drop_table(&self, name: &str, checks: ForeignKeyChecks) -> Result<()> {
        let dropped = self.drop_now(name, checks);
        if dropped.is_ok() {
            // It may have been one of them.
            self.abandoned.lock().retain(|left| left != name);
        }
        self.drop_abandoned();
        dropped
    }

    fn drop_now(&self, name: &str, checks: ForeignKeyChecks) -> Result<()> {
        let found = self.core.tables.get(name).map(drop);
        if let Some(broken) = self.core.tables.broken(name).filter(|_| found.is_err()) {
            return match broken.why {
                Error::TablespaceDiscarded { .. } => self.drop_discarded(name, checks),
                _ => self.drop_broken(name, &broken),
            };
        }
        let (mut trx, table) = self.lock_to_drop(name)?;
        trx.may_use_kept_pages();
        if table.is_temporary() {
            drop_temporary_table(&mut trx, &table)?;
            return trx.commit();
        }
        let _serial = self.core.tables.serialize_ddl();
        self.check_not_referenced(&table.def, checks)?;
        let _reserved = self.reserve([name], &[table.definition()]);
        store::delete_def(&mut trx, self.system(), name)?;
        let _gate = table.keep_purge_away();
        let _decided = self.decide_removals(&mut trx, &[table.space()])?;
        if self
            .core
            .log
            .is_sabotaged(Sabotage::FileRemovedBeforeCommit)
        {
            self.remove_file(table.space());
        }
        self.retire(trx, &[&*table])?;
        self.core.tables.remove(&table);
        self.remove_file(table.space());
        self.forget_versions(&table);
        Ok(())
    }

    /// Nobody looks for old versions of the table's rows any more.
    fn forget_versions(&self, table: &OpenTable) {
        self.core
            .history
            .note_dropped(table.id(), table.indexes().map(|index| index.id));
    }

    /// Drops a table that can't be used: its definition, and what there is of its file.
    fn drop_broken(&self, name: &str, broken: &BrokenTable) -> Result<()> {
        self.core.check_writable()?;
        let _serial = self.core.tables.serialize_ddl();
        let _reserved = self.reserve([name], broken.def.as_slice());
        let path = table_path(name);
        let id = self.space_of_broken(name, broken, &path)?;
        let mut trx = self.begin();
        trx.may_use_kept_pages();
        store::delete_broken_def(&mut trx, self.system(), name)?;
        let _decided = id
            .map(|id| self.decide_removals(&mut trx, &[id]))
            .transpose()?;
        self.commit(trx)?;
        self.core.tables.remove_broken(name);
        let file = match id {
            Some(id) => {
                self.remove_file(id);
                "its file is removed"
            }
            None if self.is_anothers_file(&path, name)? => "it had no file",
            None => match self.spaces.remove_unopened(&path)? {
                true => "its damaged file is removed",
                false => "it had no file",
            },
        };
        if let Some(def) = &broken.def {
            self.spaces
                .remove_unopened(&lost_mark_path(&def.name, def.space))?;
        }
        self.core.warn(&format!(
            "table {name} was dropped, which could not be used ({}); {file}",
            broken.why
        ));
        Ok(())
    }

    /// The tablespace of a table that can't be used, opened, if its file is there and is no other table's.
    fn space_of_broken(
        &self,
        name: &str,
        broken: &BrokenTable,
        path: &str,
    ) -> Result<Option<SpaceId>> {
        let id = match &broken.def {
            Some(def) => Some(def.space),
            None => self.space_named(name)?,
        };
        let Some(id) = id else {
            return Ok(None);
        };
        let is_table = |space: Arc<Space>| space.kind() == SpaceKind::Table;
        let is_there = self.spaces.open_to_remove(path, id).is_ok_and(is_table);
        Ok((is_there && !self.is_anothers(id, name)?).then_some(id))
    }

    /// The tablespace that leads to this name.
    fn space_named(&self, name: &str) -> Result<Option<SpaceId>> {
        let such = Prefix::spaces();
        let all = self.dictionary.all(&mut self.begin(), &such)?;
        let key = all.iter().find(|(_, found)| found.name == name);
        let number = key.and_then(|(key, _)| such.number_in(key));
        Ok(number.map(|number| SpaceId(number as u32)))
    }

    /// Whether another table than `name` has this tablespace.
    fn is_anothers(&self, space: SpaceId, name: &str) -> Result<bool> {
        let found = self
            .dictionary
            .find(&mut self.begin(), Lookup::Space(space))?;
        Ok(found.is_some_and(|found| found.name != name))
    }

    /// Whether the file is another table's by its header.
    fn is_anothers_file(&self, path: &str, name: &str) -> Result<bool> {
        match self.spaces.inspect(path) {
            Ok(header) => self.is_anothers(header.intro.space, name),
            Err(_) => Ok(false),
        }
    }

    /// Commits while the tables are marked as dropped, so that a transaction that waited for a lock finds
    /// them gone. The caller keeps purge away until the table of that name is the new one: purge must not
    /// miss a record of a renamed table.
    fn retire(&self, trx: Transaction, tables: &[&OpenTable]) -> Result<TrxId> {
        let mark = |dropped| tables.iter().for_each(|table| table.set_dropped(dropped));
        mark(true);
        self.commit(trx).inspect_err(|_| mark(false))
    }

    /// Renames a table once nobody uses it. One whose name begins with `#` is still being made, as a copy
    /// that ALTER TABLE makes, until it gets another name: views that are older than that don't read it.
    pub fn rename_table(
        &self,
        from: &str,
        to: &str,
        constraints: Option<ConstraintPrefix<'_>>,
        checks: ForeignKeyChecks,
    ) -> Result<()> {
        let (mut trx, table) = match self.lock(from) {
            Err(Error::TablespaceDiscarded { .. }) => {
                return self.rename_discarded(from, to, constraints, checks);
            }
            locked => locked?,
        };
        trx.may_use_kept_pages();
        if table.is_temporary() {
            return self.rename_temporary(&table, to);
        }
        let _serial = self.core.tables.serialize_ddl();
        let children = self.children_renaming_parent(&table, to)?;
        let mut def = table.definition();
        self.give_name(&mut def, to, constraints, checks)?;
        if !is_aside(to) {
            def.foreign_keys.iter_mut().for_each(|key| key.kept = false);
        }
        let mut changed = vec![table.definition(), def.clone()];
        changed.extend(children.iter().map(|child| child.def.clone()));
        let _reserved = self.reserve([from, to], &changed);
        // What can be wrong with the new path is found before the rename is decided.
        let (space, path) = (table.space(), table_path(to));
        if self.spaces.require(space)?.path() != path {
            self.spaces.prepare_rename(&path)?;
        }
        // Nor is there anything to be read for the copy of the definition then.
        let header = PageId::new(def.space, PageNo(0));
        let _header = self.core.pool.pin(header)?;
        let is_made_now = is_aside(from) && !is_aside(to);
        let created_by = if is_made_now {
            TrxId(0)
        } else {
            table.created_by
        };
        store::replace_def(&mut trx, self.system(), from, &def, created_by)?;
        for Child {
            def, created_by, ..
        } in &children
        {
            store::replace_def(&mut trx, self.system(), &def.name, def, *created_by)?;
        }
        let _gate = table.keep_purge_away();
        let id = self.retire(trx, &[&*table])?;
        self.core.log.stops.pass(StopPoint::TableRenamed);
        self.refresh_copy(&def);
        let moved = self.spaces.rename(space, &path);
        let created_by = if is_made_now { id } else { table.created_by };
        let placed = self.put_in_place(&table, None, def, created_by);
        children
            .iter()
            .for_each(|child| self.refresh_copy(&child.def));
        self.tell_of_file(to, moved);
        self.tell_of_table(to, placed);
        Ok(())
    }

    /// Gives the definition another name, which is free, and what has the former one in it: constraints whose
    /// names were made of it, and foreign keys to the table itself. All of them fit there.
    fn give_name(
        &self,
        def: &mut TableDef,
        to: &str,
        constraints: Option<ConstraintPrefix<'_>>,
        checks: ForeignKeyChecks,
    ) -> Result<()> {
        let from = std::mem::replace(&mut def.name, to.to_string());
        if !(is_aside(&from) || is_aside(to)) {
            rename_parent(def, &from, to);
        }
        if let Some(prefix) = constraints {
            prefix.rename_in(def);
        }
        def.validate()?;
        self.check_absent(to)?;
        self.free_place(to, def.space)?;
        self.check_renamed(&from, def, checks)
    }

    /// Makes the copy of the definition on page 0 of the table's file that of `def` (DDL-2).
    fn refresh_copy(&self, def: &TableDef) {
        refresh_copy(&self.core, &self.spaces, def);
    }

    /// Has the table under its new definition, with columns that may have got other names, in the place of
    /// the old one. Views that don't see `created_by` don't read it. If it can't be opened now, it is opened
    /// when somebody asks for it.
    fn put_in_place(
        &self,
        old: &OpenTable,
        columns: Option<&ColumnNames>,
        def: TableDef,
        created_by: TrxId,
    ) -> Result<()> {
        let to = def.name.clone();
        let mut new = self.open(def, created_by);
        if let Ok(new) = &mut new {
            if new.id() == old.id() {
                new.take_over_from(old);
            }
            // What fills a copy is no change of the table.
            if !is_aside(&old.def.name) {
                new.changed = old.changed.clone();
            }
        }
        self.core.tables.replace(old, &to, columns, new)
    }

    /// A table has its new definition, and what has to follow may have failed. That is not for the statement
    /// to report, whose caller would go by the old one: who uses the table next tries again, or hears of it.
    fn tell_of_table(&self, name: &str, done: Result<()>) {
        if let Err(e) = done {
            self.core.warn(&format!(
                "table {name} has its new definition, but is not ready yet: {e}"
            ));
        }
    }

    /// Empties a table by giving it a fresh tablespace.
    pub fn truncate_table(&self, name: &str, checks: ForeignKeyChecks) -> Result<()> {
        let (mut trx, table) = match self.lock(name) {
            Err(Error::TablespaceDiscarded { .. }) => return self.truncate_discarded(name, checks),
            locked => locked?,
        };
        trx.may_use_kept_pages();
        if table.is_temporary() {
            return self.truncate_temporary(&table);
        }
        let _serial = self.core.tables.serialize_ddl();
        self.check_not_referenced(&table.def, checks)?;
        let mut def = table.definition();
        self.assign_ids(&mut def)?;
        let _reserved = self.reserve([name], std::slice::from_ref(&def));
        let schema = schema_of(name);
        // No table's name begins with a dot.
        let fresh = table_path(&format!("{schema}/.truncate-{}", def.space));
        let old = self.spaces.get(table.space());
        let directory = old
            .as_deref()
            .and_then(Space::target)
            .and_then(Path::parent);
        let target = directory.map(|directory| directory.join(elsewhere::file_name(&def)));
        self.build_file(&def, &fresh, target.as_deref(), Spaces::create_on_full_disk)?;
        let _gate = table.keep_purge_away();
        let stored = (|| {
            store::replace_def(&mut trx, self.system(), name, &def, TrxId(0))?;
            let decided = self.decide_removals(&mut trx, &[table.space()])?;
            Ok::<_, Error>((self.retire(trx, &[&*table])?, decided))
        })();
        let (id, _decided) = stored.inspect_err(|_| self.remove_file(def.space))?;
        let space = def.space;
        let placed = self.put_in_place(&table, None, def, id);
        self.replace_file(&table, space);
        self.tell_of_table(name, placed);
        Ok(())
    }

    /// The file of the tablespace takes the place of the table's, which is gone.
    fn replace_file(&self, gone: &OpenTable, space: SpaceId) {
        let replaced = self.spaces.replace(gone.space(), space);
        if replaced.is_ok() {
            self.core.pool.drop_space(gone.space());
        }
        self.tell_of_file(&gone.def.name, replaced);
        self.keep_spare();
        self.forget_versions(gone);
    }

    /// A file was to get its table's name, which is committed (DDL-4).
    fn tell_of_file(&self, name: &str, moved: Result<()>) {
        if let Err(e) = moved {
            self.spaces.files_match(false);
            self.core.warn(&format!(
                "the file of table {name} keeps another name until the next start: {e}"
            ));
        }
    }

    /// A file that has kept a name which another table is to get now (`tell_of_file`, `remove_file`) gets its
    /// own, or goes (DDL-4). The file of `own` is in nobody's way.
    fn free_place(&self, name: &str, own: SpaceId) -> Result<()> {
        let path = table_path(name);
        if self.spaces.do_files_match() || !self.spaces.has_file(&path)? {
            return Ok(());
        }
        let mut all = self.spaces.all().into_iter();
        let Some(there) = all.find(|space| space.id() != own && space.path() == path) else {
            return Ok(());
        };
        let lookup = Lookup::Space(there.id());
        match self.dictionary.find(&mut self.begin(), lookup)? {
            Some(table) => {
                self.spaces.rename(there.id(), &table_path(&table.name))?;
                assert_ne!(there.path(), path, "DDL-4: no table has the name yet");
            }
            None => self.remove_file(there.id()),
        }
        Ok(())
    }
}

/// Makes the copy of the definition on page 0 of the table's file that of `def`, if it is another one
/// (DDL-2). If the file is not open, that is done when it is.
pub fn refresh_copy(core: &Core, spaces: &Spaces, def: &TableDef) {
    let Some(space) = spaces.get(def.space) else {
        return;
    };
    let refresh = || {
        let page_size = core.pool.page_size();
        let mut encoded = Vec::new();
        def.encode(&mut encoded);
        let copy = first_copy(&encoded, page_size);
        // A copy that can't be read is damage: it is left as it is, for a person to see.
        if !space.has_definition(&core.mtr, copy)? {
            let mut mtr = Mtr::begin(&core.mtr, page_size as u32 + 256)?;
            space.set_definition(&mut mtr, copy)?;
            mtr.commit();
        }
        Ok::<_, Error>(())
    };
    if let Err(e) = refresh() {
        let name = &def.name;
        core.warn(&format!(
            "the copy of the definition in the file of table {name} is not up to date: {e}"
        ));
    }
}
