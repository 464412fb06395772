//! The tables of a database by name and id.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;

use crate::base::{Error, Result, TableId};

use super::def::TableDef;
use super::table::OpenTable;

#[derive(Default)]
struct Maps {
    by_name: HashMap<String, Arc<OpenTable>>,
    by_id: HashMap<TableId, Arc<OpenTable>>,
    broken: HashMap<String, BrokenTable>,
}

/// A table that is defined but can't be used.
#[derive(Clone)]
pub struct BrokenTable {
    pub why: Error,
    /// `None`: it is the definition that can't be read.
    pub def: Option<TableDef>,
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
            (None, Some(broken)) => Err(broken.why.clone()),
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
    pub fn add_broken(&self, name: String, broken: BrokenTable) {
        self.maps.write().broken.insert(name, broken);
    }

    /// A table that was opened turns out to be damaged. Statements that have it open can't go on.
    pub fn mark_broken(&self, table: &OpenTable, why: Error) {
        let def = Some(table.def.clone());
        self.add_broken(table.def.name.clone(), BrokenTable { why, def });
        self.remove(table);
        table.set_dropped(true);
    }

    pub fn broken(&self, name: &str) -> Option<BrokenTable> {
        self.maps.read().broken.get(name).cloned()
    }

    /// All tables that can't be used, by name.
    pub fn all_broken(&self) -> Vec<(String, BrokenTable)> {
        let maps = self.maps.read();
        let mut all: Vec<_> = maps.broken.clone().into_iter().collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }

    pub fn remove_broken(&self, name: &str) {
        self.maps.write().broken.remove(name);
    }

    pub fn is_broken(&self, id: TableId) -> bool {
        let is = |b: &BrokenTable| b.def.as_ref().is_none_or(|def| def.id == id);
        self.maps.read().broken.values().any(is)
    }

    /// The name of a table that can or can't be used, for messages.
    pub fn name_of(&self, id: TableId) -> String {
        let maps = self.maps.read();
        let defs = maps.broken.values().filter_map(|b| b.def.as_ref());
        let mut all = defs.chain(maps.by_id.values().map(|t| &t.def));
        match all.find(|def| def.id == id) {
            Some(def) => def.name.clone(),
            None => format!("number {id}"),
        }
    }

    /// Takes a table out; its handle stays usable as long as it is held.
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

    /// The names of all tables but temporary ones, sorted.
    pub fn names(&self) -> Vec<String> {
        let maps = self.maps.read();
        let lasting = maps.by_name.values().filter(|t| !t.is_temporary());
        let mut names: Vec<_> = lasting.map(|t| t.def.name.clone()).collect();
        names.sort();
        names
    }

    pub fn all(&self) -> Vec<Arc<OpenTable>> {
        self.maps.read().by_id.values().cloned().collect()
    }
}
