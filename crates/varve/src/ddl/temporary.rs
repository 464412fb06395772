//! Temporary tables: all of them in one tablespace that is never redo-logged and is made anew at every start.
//!
//! A temporary table is a few trees in `temp.vdt` and an entry in the list of open tables, nothing else: it
//! has no stored definition, no file and no counter page, its ids are counted in memory, and making or
//! dropping one writes and syncs nothing. Its name must differ from those of all tables. Rows, indexes,
//! savepoints and rollback are those of any table; its undo is in rollback segments of the same tablespace
//! (TEMP-4), so a transaction that changes nothing else has nothing to wait for when it commits.
//!
//! - **TEMP-1** A transaction that uses a temporary table, also by reading, has claimed it until it ends
//!   ([`Transaction::use_table`]); others are refused. So one transaction at a time uses it, and needs no
//!   locks.
//! - **TEMP-2** Reads of a temporary table look at the newest version of each row, never at a view. By TEMP-1
//!   that is what the reader wrote itself or what was committed before it claimed the table, and no other
//!   transaction can change it before the reader ends: what a view would have shown, unless the view is older
//!   than the claim. Older versions serve rollback only, so purge need not wait for any view (PURGE-3).
//! - **TEMP-3** A table is dropped by a transaction that has claimed it. If that transaction has changed it,
//!   its undo records stay, and rollback passes over them; purge does so for records of any table that is
//!   gone. Ids are not used twice, so nothing is taken for another table's.
//! - **TEMP-5** A temporary table knows its overflow pages
//!   ([`TemporaryPages`](crate::catalog::TemporaryPages)): dropped or truncated, it gives them back with its
//!   trees', whichever transactions wrote them and whether or not purge has got to them.
//!
//! After a failure while pages are given back, some are lost until the next start, and the administrator is
//! told. When the disk fails where the tablespace is, temporary tables can't be used until the next start,
//! and all else goes on (TEMP-6 in `space/unlogged.rs`).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::base::{Error, IndexId, PageNo, Result, TEMP_SPACE, TableId, TrxId};
use crate::btree::{Tree, empty_trees};
use crate::catalog::{OpenTable, TableDef};
use crate::encryption::Encryption;
use crate::lock::TableMode;
use crate::mtr::Mtr;
use crate::space::{DefinitionCopy, NewSpace, SpaceKind, Spaces};
use crate::txn::{Core, Transaction};

use super::Ddl;

/// The temporary tablespace, relative to the data directory.
pub const TEMP_FILE: &str = "temp.vdt";
/// Its pages to begin with: the headers of the rollback segments, and a few small tables.
const FIRST_PAGES: u32 = 64;
/// The creator of a table that every view may read.
const EVERYBODYS: TrxId = TrxId(0);

/// Makes the temporary tablespace, in the place of what is left of an earlier process's.
pub fn create_temporary_space(spaces: &Spaces) -> Result<()> {
    let made = spaces.create_on_full_disk(NewSpace {
        id: TEMP_SPACE,
        path: TEMP_FILE,
        kind: SpaceKind::Temp,
        table: TableId(0),
        definition: DefinitionCopy::default(),
        pages: FIRST_PAGES,
        target: None,
        compression: None,
        encryption: Encryption::default(),
    });
    made.map(drop)
}

impl Ddl {
    /// Creates a temporary table. Ids, tablespace and root pages of `def` are assigned here.
    pub fn create_temporary_table(&self, def: &TableDef) -> Result<Arc<OpenTable>> {
        self.core.check_writable()?;
        self.spaces.check_temporary()?;
        def.validate()?;
        if let Some(key) = def.foreign_keys.first() {
            return Err(Error::unsupported(format!(
                "foreign key {} of table {}, which is temporary",
                key.name, def.name
            )));
        }
        self.check_row_fits(def)?;
        let mut def = def.clone();
        def.stamp_indexes(self.built_with())?;
        let _serial = self.core.tables.serialize_ddl();
        self.check_absent(&def.name)?;
        self.assign_temporary_ids(&mut def);
        let mut roots = Vec::new();
        let made = self
            .plant_roots(&mut def, &mut roots)
            .and_then(|()| self.open(def, EVERYBODYS))
            .and_then(|table| self.core.tables.add(table));
        if made.is_err() {
            roots.sort_unstable();
            let space = self.spaces.require(TEMP_SPACE)?;
            warn_if_lost(&self.core, space.discard(&self.core.mtr, &roots));
        }
        made
    }

    fn assign_temporary_ids(&self, def: &mut TableDef) {
        let indexes = 1 + def.indexes.len() as u64;
        // Relaxed: only uniqueness counts.
        let first = self
            .next_temporary
            .fetch_add(1 + indexes, Ordering::Relaxed);
        def.id = TableId(first);
        def.space = TEMP_SPACE;
        let indexes = std::iter::once(&mut def.primary).chain(&mut def.indexes);
        for (index, id) in indexes.zip(first + 1..) {
            index.id = IndexId(id);
        }
    }

    /// Makes the table's trees. `roots` gets their root pages, also if it fails.
    fn plant_roots(&self, def: &mut TableDef, roots: &mut Vec<PageNo>) -> Result<()> {
        let space = self.spaces.require(TEMP_SPACE)?;
        let mtr_env = &self.core.mtr;
        let _reserved = space.reserve(mtr_env, 1 + def.indexes.len() as u32)?;
        for index in std::iter::once(&mut def.primary).chain(&mut def.indexes) {
            let mut mtr = Mtr::begin_in(mtr_env, TEMP_SPACE, 0)?;
            index.root = Tree::create(&mut mtr, &space, index.id)?;
            mtr.commit();
            roots.push(index.root);
        }
        Ok(())
    }

    /// Gives a temporary table another name. Handles have to be opened again.
    pub(super) fn rename_temporary(&self, table: &OpenTable, to: &str) -> Result<()> {
        let _serial = self.core.tables.serialize_ddl();
        let mut def = table.def.clone();
        def.name = to.to_string();
        def.validate()?;
        self.check_absent(to)?;
        let _gate = table.keep_purge_away();
        let mut renamed = self.open(def, table.created_by)?;
        renamed.take_over_from(table);
        table.set_dropped(true);
        self.core.tables.replace(table, to, None, Ok(renamed))
    }

    /// Removes all rows of a temporary table. The caller's transaction has claimed it and changed nothing in
    /// it. Handles stay as they are.
    pub(super) fn truncate_temporary(&self, table: &OpenTable) -> Result<()> {
        let _gate = table.keep_purge_away();
        let trees: Vec<&Tree> = table.indexes().map(|i| &i.tree).collect();
        let pages = empty_trees(&trees)?;
        table.restart_counters();
        let space = &table.clustered.tree.space;
        warn_if_lost(&self.core, space.discard(&self.core.mtr, &pages));
        warn_if_lost(&self.core, table.discard_overflow());
        Ok(())
    }
}

/// Drops a temporary table in a transaction, which may have used it and goes on (TEMP-3).
pub fn drop_temporary_table(trx: &mut Transaction, table: &OpenTable) -> Result<()> {
    if !table.is_temporary() {
        let name = &table.def.name;
        return Err(Error::invalid(format!("table {name} is not temporary")));
    }
    trx.take_table(table, TableMode::Exclusive)?;
    let core = trx.core().clone();
    let _gate = table.keep_purge_away();
    table.set_dropped(true);
    core.tables.remove(table);
    if core.undo.env.spaces.check_temporary().is_err() {
        // Nobody will want its pages.
        return Ok(());
    }
    warn_if_lost(&core, table.indexes().try_for_each(|i| i.tree.discard()));
    warn_if_lost(&core, table.discard_overflow());
    Ok(())
}

/// What the caller did has happened, whatever became of the pages.
fn warn_if_lost(core: &Core, given_back: Result<()>) {
    if let Err(e) = given_back {
        core.warn(&format!(
            "pages of a temporary table are lost until the next start: {e}"
        ));
    }
}
