//! The tables of a database by name and id.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;

use crate::base::{Error, Result, TableId};

use super::table::OpenTable;

#[derive(Default)]
struct Maps {
    by_name: HashMap<String, Arc<OpenTable>>,
    by_id: HashMap<TableId, Arc<OpenTable>>,
    /// Tables that are defined but can't be used, and why.
    broken: HashMap<String, Error>,
}

/// The open tables. Writers are DDL statements; readers hold the lock for a look-up.
#[derive(Default)]
pub struct Tables {
    maps: RwLock<Maps>,
}

impl Tables {
    pub fn get(&self, name: &str) -> Result<Arc<OpenTable>> {
        let maps = self.maps.read();
        match (maps.by_name.get(name), maps.broken.get(name)) {
            (Some(table), _) => Ok(table.clone()),
            (None, Some(why)) => Err(why.clone()),
            (None, None) => Err(Error::not_found(format!("table {name}"))),
        }
    }

    pub fn find(&self, name: &str) -> Option<Arc<OpenTable>> {
        self.maps.read().by_name.get(name).cloned()
    }

    pub fn by_id(&self, id: TableId) -> Option<Arc<OpenTable>> {
        self.maps.read().by_id.get(&id).cloned()
    }

    pub fn add(&self, table: Arc<OpenTable>) {
        let mut maps = self.maps.write();
        maps.by_id.insert(table.id(), table.clone());
        maps.by_name.insert(table.def.name.clone(), table);
    }

    /// Adds a table that is found by id only: the system table.
    pub fn add_hidden(&self, table: Arc<OpenTable>) {
        self.maps.write().by_id.insert(table.id(), table);
    }

    /// Remembers why a table can't be used.
    pub fn add_broken(&self, name: String, why: Error) {
        self.maps.write().broken.insert(name, why);
    }

    /// Takes a table out; its handle stays usable for whoever holds it.
    pub fn remove(&self, table: &OpenTable) {
        let mut maps = self.maps.write();
        maps.by_id.remove(&table.id());
        if maps
            .by_name
            .get(&table.def.name)
            .is_some_and(|t| t.id() == table.id())
        {
            maps.by_name.remove(&table.def.name);
        }
    }

    /// Puts `new` in the place of `old` in one step.
    pub fn replace(&self, old: &OpenTable, new: Arc<OpenTable>) {
        let mut maps = self.maps.write();
        maps.by_id.remove(&old.id());
        maps.by_name.remove(&old.def.name);
        maps.by_id.insert(new.id(), new.clone());
        maps.by_name.insert(new.def.name.clone(), new);
    }

    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = self.maps.read().by_name.keys().cloned().collect();
        names.sort();
        names
    }

    pub fn all(&self) -> Vec<Arc<OpenTable>> {
        self.maps.read().by_id.values().cloned().collect()
    }
}
