//! The tables of a database by name and id.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard, RwLock};

use crate::base::{Error, Result, TableId};

use super::def::TableDef;
use super::foreign::{ColumnNames, ForeignKey};
use super::links::{children_of, parents_of};
use super::table::OpenTable;

#[derive(Default)]
struct Maps {
    by_name: HashMap<String, Arc<OpenTable>>,
    by_id: HashMap<TableId, Arc<OpenTable>>,
    broken: HashMap<String, BrokenTable>,
    /// The names of open tables with foreign keys, by the name of the parent, which need not be there.
    children: HashMap<String, BTreeSet<String>>,
    /// The tables that have constraints, by `constraint_key`.
    constraints: HashMap<String, String>,
    /// The tables that have stepped aside for others, which have not taken their places yet, and whose names
    /// theirs were. They are children and own constraints under these names meanwhile.
    vacant: HashMap<TableId, (String, Arc<OpenTable>)>,
}

/// Constraint names are unique in a schema, in any case of letters.
fn constraint_key(table: &str, constraint: &str) -> String {
    format!("{}/{}", schema_of(table), constraint.to_lowercase())
}

impl Maps {
    /// Returns the table that had this name and stepped aside.
    fn insert(&mut self, table: Arc<OpenTable>) -> Option<Arc<OpenTable>> {
        let name = table.def.name.clone();
        let mut vacant = self.vacant.iter();
        let id = vacant
            .find(|(_, (vacant, _))| *vacant == name)
            .map(|(id, _)| *id);
        let before = id
            .and_then(|id| self.vacant.remove(&id))
            .map(|(_, before)| before);
        if let Some(before) = &before {
            self.unregister(&name, before);
        }
        self.by_id.insert(table.id(), table.clone());
        if !is_aside(&name) {
            self.register(&name, &table);
        }
        self.by_name.insert(name, table);
        before
    }

    /// Takes the handle out, unless another one has its place by now.
    fn remove(&mut self, table: &OpenTable) {
        self.by_id.remove(&table.id());
        if let Some((name, _)) = self.vacant.remove(&table.id()) {
            self.unregister(&name, table);
        }
        let name = &table.def.name;
        if self.by_name.get(name).is_none_or(|t| t.id() != table.id()) {
            return;
        }
        self.by_name.remove(name);
        if !is_aside(name) {
            self.unregister(name, table);
        }
    }

    /// The table is the child of its parents by this name, and owns its constraints.
    fn register(&mut self, name: &str, table: &OpenTable) {
        for key in &*table.links.keys() {
            let children = self.children.entry(key.parent.clone()).or_default();
            children.insert(name.to_string());
            let constraint = constraint_key(name, &key.name);
            self.constraints.insert(constraint, name.to_string());
        }
    }

    fn unregister(&mut self, name: &str, table: &OpenTable) {
        for key in &*table.links.keys() {
            let constraint = self.constraints.entry(constraint_key(name, &key.name));
            if let Entry::Occupied(owner) = constraint
                && owner.get() == name
            {
                owner.remove();
            }
            if let Entry::Occupied(mut children) = self.children.entry(key.parent.clone()) {
                children.get_mut().remove(name);
                if children.get().is_empty() {
                    children.remove();
                }
            }
        }
    }

    fn vacant(&self, name: &str) -> Option<&Arc<OpenTable>> {
        let mut all = self.vacant.values();
        all.find(|(vacant, _)| vacant == name)
            .map(|(_, table)| table)
    }

    /// The table of this name, or the one that had it and stepped aside.
    fn named(&self, name: &str) -> Option<Arc<OpenTable>> {
        self.by_name
            .get(name)
            .or_else(|| self.vacant(name))
            .cloned()
    }

    /// Tables that are aside and have a foreign key to a table of this name.
    fn aside_children_of(&self, parent: &str) -> Vec<Arc<OpenTable>> {
        let all = self.by_name.iter();
        let aside =
            all.filter(|(name, table)| is_aside(name) && !table.foreign_keys_to(parent).is_empty());
        aside.map(|(_, table)| table.clone()).collect()
    }

    /// The children of a table that is renamed follow it, also those that are being made.
    fn rename_parent(&mut self, from: &str, to: &str) {
        let rename = |key: &mut ForeignKey| {
            if key.parent == from {
                key.parent = to.to_string();
            }
        };
        for child in self.aside_children_of(from) {
            child.links.rename(rename);
            self.link(&child);
        }
        let Some(children) = self.children.remove(from) else {
            return;
        };
        let tables = children.iter().filter_map(|name| self.by_name.get(name));
        tables.for_each(|child| child.links.rename(rename));
        self.children
            .entry(to.to_string())
            .or_default()
            .extend(children);
    }

    /// FK-2: the links of this table and of those that are tied to it by foreign keys, of old and of new.
    fn link_around(&self, changed: &OpenTable) {
        let name = &changed.def.name;
        let children = self.children.get(name).into_iter().flatten();
        let keys = changed.links.keys();
        let parents = keys.iter().map(|key| &key.parent);
        let names: BTreeSet<&String> = children.chain(parents).chain([name]).collect();
        let tables = names.into_iter().filter_map(|name| self.by_name.get(name));
        tables.for_each(|table| self.link(table));
    }

    fn link(&self, table: &Arc<OpenTable>) {
        let by_name = |name: &str| {
            let named = self.by_name.get(name)?;
            (!named.is_temporary()).then(|| named.clone())
        };
        let is_parent = !table.is_temporary() && !is_aside(&table.def.name);
        let named = self.children.get(&table.def.name).filter(|_| is_parent);
        let named = || named.into_iter().flatten();
        let waits = named().any(|name| self.vacant(name).is_some());
        let children = children_of(table, named().filter_map(|name| by_name(name)));
        table.links.set(parents_of(table, by_name), children, waits);
    }
}

/// "schema" of "schema/table".
pub fn schema_of(name: &str) -> &str {
    name.split_once('/').map_or("", |(schema, _)| schema)
}

/// The table is being made for another one, or was replaced by one.
pub fn is_aside(name: &str) -> bool {
    let table = name.split_once('/').map_or(name, |(_, table)| table);
    table.starts_with('#')
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
    ddl: Mutex<()>,
}

impl Tables {
    /// One DDL statement after the other: held from before its definitions commit until the tables here are
    /// what they say. Nobody waits for a table or row lock while he holds it.
    pub fn serialize_ddl(&self) -> MutexGuard<'_, ()> {
        self.ddl.lock()
    }

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

    /// Whether the table of this name has stepped aside for another one, as ALTER TABLE has it do for a
    /// moment.
    pub fn is_vacant(&self, name: &str) -> bool {
        self.maps.read().vacant(name).is_some()
    }

    /// The open tables with foreign keys to a table of this name, itself among them if it has one, and those
    /// that have stepped aside.
    pub fn children_of(&self, name: &str) -> Vec<Arc<OpenTable>> {
        let maps = self.maps.read();
        let names = maps.children.get(name).into_iter().flatten();
        names.filter_map(|name| maps.named(name)).collect()
    }

    /// The tables that are being made, or have stepped aside, and have such foreign keys.
    pub fn aside_children_of(&self, name: &str) -> Vec<Arc<OpenTable>> {
        self.maps.read().aside_children_of(name)
    }

    /// The table that has a foreign key of this name, in the schema of `table`, and what it is called, or was
    /// before it stepped aside.
    pub fn constraint_of(&self, table: &str, constraint: &str) -> Option<(String, Arc<OpenTable>)> {
        let maps = self.maps.read();
        let owner = maps.constraints.get(&constraint_key(table, constraint))?;
        Some((owner.clone(), maps.named(owner)?))
    }

    pub fn by_id(&self, id: TableId) -> Option<Arc<OpenTable>> {
        self.maps.read().by_id.get(&id).cloned()
    }

    pub fn add(&self, table: Arc<OpenTable>) {
        let mut maps = self.maps.write();
        let before = maps.insert(table.clone());
        maps.link_around(&table);
        before.iter().for_each(|before| maps.link_around(before));
    }

    /// Like `add`, for many: their foreign keys are at work after `link_all`.
    pub fn add_unlinked(&self, table: Arc<OpenTable>) {
        drop(self.maps.write().insert(table));
    }

    pub fn link_all(&self) {
        let maps = self.maps.write();
        maps.by_name.values().for_each(|table| maps.link(table));
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
        let def = Some(table.definition());
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
        maps.remove(table);
        maps.link_around(table);
    }

    /// Puts `new` in the place of `old` in one step. If it has another name, its children follow it; not if
    /// it steps aside, or comes from there: they refer to the name then.
    pub fn replace(&self, old: &OpenTable, new: Arc<OpenTable>) {
        let mut maps = self.maps.write();
        maps.remove(old);
        let before = maps.insert(new.clone());
        let (from, to) = (&old.def.name, &new.def.name);
        match (is_aside(from), is_aside(to)) {
            _ if from == to || old.is_temporary() => {}
            (false, false) => maps.rename_parent(from, to),
            (false, true) => {
                maps.register(from, &new);
                maps.vacant.insert(new.id(), (from.clone(), new.clone()));
            }
            (true, _) => {}
        }
        maps.link_around(old);
        maps.link_around(&new);
        before.iter().for_each(|before| maps.link_around(before));
    }

    /// Puts `new` in the place of `old`, whose columns got other names. The foreign keys of its children say
    /// these from then on.
    pub fn replace_renaming_columns(&self, old: &OpenTable, new: Arc<OpenTable>, to: &ColumnNames) {
        let mut maps = self.maps.write();
        let name = &old.def.name;
        let children = maps.children.get(name).into_iter().flatten();
        let children = children.filter_map(|child| maps.named(child));
        for child in children.chain(maps.aside_children_of(name)) {
            child.links.rename(|key| to.rename_parents(key, name));
        }
        maps.remove(old);
        maps.insert(new.clone());
        maps.link_around(&new);
        for child in maps.aside_children_of(name) {
            maps.link(&child);
        }
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
