//! What there is in the database: stored definitions, open tables, tablespaces.

use std::sync::Arc;

use crate::base::{Result, SpaceId};
use crate::buffer::PooledPage;
use crate::catalog::{TableDef, Tables, is_aside};
use crate::ddl::table_path;
use crate::space::SpaceKind;

use super::{Database, Table};

impl Database {
    /// The stored definition of a table, without opening it; `None` if there is none that can be read. Of a
    /// temporary table nothing is stored.
    pub fn definition(&self, name: &str) -> Result<Option<TableDef>> {
        self.inner.core.tables.definition(name)
    }

    /// The tables that are open, but for temporary ones, and how many handles there are on each; sorted by
    /// name. A table stays open for a while when nobody has a handle on it any more.
    pub fn open_tables(&self) -> Vec<(Table, usize)> {
        let mut open = self.inner.core.tables.all_open();
        open.retain(|table| !table.is_temporary() && !is_aside(&table.def.name));
        open.sort_by(|a, b| a.def.name.cmp(&b.def.name));
        let with_handles = |table: Arc<_>| {
            let handles = Tables::handles(&table);
            (Table { table }, handles)
        };
        open.into_iter().map(with_handles).collect()
    }

    /// The size of all pages of the database.
    pub fn page_size(&self) -> usize {
        self.inner.core.undo.env.pool.page_size()
    }

    /// Hands every page that is in the buffer pool to `each`, until that says false. Each is looked at for a
    /// moment, without waiting for anybody.
    pub fn pool_pages(&self, each: &mut dyn FnMut(PooledPage) -> bool) {
        self.inner.core.undo.env.pool.each_page(each);
    }

    /// The tablespaces that are no table's, by number, with their paths, which are relative to the data
    /// directory unless a file is elsewhere.
    pub fn own_tablespaces(&self) -> Vec<(SpaceId, String)> {
        let mut spaces = self.inner.ddl.spaces.all();
        spaces.retain(|space| space.kind() != SpaceKind::Table);
        spaces.sort_by_key(|space| space.id());
        (spaces.iter())
            .map(|space| (space.id(), space.path()))
            .collect()
    }
}

impl TableDef {
    /// Where the table's file is, relative to the data directory. It may be a link.
    pub fn file(&self) -> String {
        table_path(&self.name)
    }
}

impl Table {
    /// Estimates of its indexes have been made.
    pub fn has_estimates(&self) -> bool {
        !self.table.estimates.indexes.lock().is_empty()
    }
}
