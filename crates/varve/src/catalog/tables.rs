//! The tables of a database by name and id: a cache of open tables over the stored definitions.
//!
//! A table is opened when somebody asks for it first ([`Source`] does it), and stays open while it is held.
//! More tables than the limit are open only as long as all of them are held: those that were asked for
//! longest ago go first. Temporary tables, and those that stand aside for others, stay: there is something
//! about them that is stored nowhere. What a table that goes had in memory only is made again when it comes
//! back: estimates from the trees, the next row id from the last key, the AUTO_INCREMENT counter from the
//! meta page, as after a restart.
//!
//! - **TAB-1** Each table has one handle at most: it is made by the thread that has **reserved** the table's
//!   name. Others that ask for the table wait for that thread, and for no other one. Nobody waits for
//!   anything but the disk while he has a reservation, nor asks for a table, but DDL.
//! - **TAB-2** A handle has the committed definition. A DDL statement reserves the names of all tables whose
//!   definitions it changes, and of their parents, whose list of children changes: from before its commit
//!   until `Tables` says the same. So a definition that was read before the commit has led to a handle by
//!   then, which the statement holds or changes, or it is read again.
//! - **TAB-3** A handle that goes is held by nobody. Who holds the lock of the maps for writing, and finds no
//!   other reference than the maps', knows that no thread can take one from there. A link of a foreign key
//!   may still become one (`links`): so the handle is marked as dropped first, and references are counted
//!   then; who follows a link does it the other way round, and looks the name up again if he finds the mark.
//! - **TAB-4** The count of changes is raised behind each change of the maps, or of the links of tables in
//!   them, before others see it. So who reads the count, and then what tables say of each other, knows that
//!   they say so as long as the count is the same.
//!
//! No file is read or written under the lock of the maps.

use std::collections::{HashMap, HashSet};
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, OnceLock};

use parking_lot::{Condvar, Mutex, MutexGuard, RwLock, RwLockWriteGuard};

use crate::base::{Error, Result, SpaceId, TableId};

use super::def::TableDef;
use super::foreign::{ColumnNames, ForeignKey};
use super::table::OpenTable;

/// The stored definitions, and how to open what they define.
pub trait Source: Send + Sync {
    /// Opens the table of this name. Called by the thread that has reserved the name.
    ///
    /// # Errors
    ///
    /// What may pass: the table is not broken.
    fn open(&self, name: &str) -> Result<Opened>;

    /// The definition of this name, if it can be read.
    fn definition(&self, name: &str) -> Result<Option<TableDef>>;

    fn name_of(&self, id: TableId) -> Result<Option<String>>;

    fn name_of_space(&self, id: SpaceId) -> Result<Option<String>>;

    /// Opens a table's tablespace, if it is where the table's name says, without the table.
    fn open_space(&self, id: SpaceId) -> Result<()>;

    /// Tables with foreign keys to one of this name.
    fn children_of(&self, name: &str) -> Result<Vec<String>>;

    /// The names of all tables.
    fn names(&self) -> Result<Vec<String>>;
}

/// What came of opening a table.
pub enum Opened {
    Table(Box<OpenTable>),
    Broken(Box<BrokenTable>),
    /// There is no definition of the name.
    Absent,
}

/// What a look-up by name finds.
enum Found {
    Table(Arc<OpenTable>),
    /// Why it can't be used.
    Broken(Error),
    /// The table of this name has stepped aside for another one.
    Vacant,
    Absent,
}

/// The other end of a foreign key.
pub enum End<T> {
    /// It may have been dropped by a statement that is not through.
    Open(T),
    /// It has stepped aside for another table, as ALTER TABLE has it do for a moment.
    Vacant,
    /// There is none, or it can't be used.
    Nobody,
}

#[derive(Default)]
struct Maps {
    by_name: HashMap<String, Arc<OpenTable>>,
    by_id: HashMap<TableId, Arc<OpenTable>>,
    broken: HashMap<String, BrokenTable>,
    /// The tables that have stepped aside for others, which have not taken their places yet, and whose names
    /// theirs were. They are children and own constraints under these names meanwhile.
    vacant: HashMap<TableId, (String, Arc<OpenTable>)>,
    /// So many tables were open when as many as possible had gone: more must be before it is tried again.
    too_many: usize,
}

/// References to a handle that nobody holds: one by its name, one by its id.
const OWN_REFERENCES: usize = 2;

impl Maps {
    /// Puts a handle in. The table that had its name and stepped aside has lost it then.
    fn insert(&mut self, table: Arc<OpenTable>) {
        let name = table.def.name.clone();
        let mut vacant = self.vacant.iter();
        let id = vacant
            .find(|(_, (vacant, _))| *vacant == name)
            .map(|(id, _)| *id);
        if let Some((_, before)) = id.and_then(|id| self.vacant.remove(&id)) {
            self.unregister(&name, &before);
        }
        let other = self.by_id.insert(table.id(), table.clone());
        assert!(other.is_none(), "TAB-1");
        if !is_aside(&name) {
            self.register(&name, &table);
        }
        let other = self.by_name.insert(name, table);
        assert!(other.is_none(), "TAB-1");
    }

    /// Takes the handle out, unless another one has its place by now.
    fn remove(&mut self, table: &OpenTable) {
        let here = self.by_id.get(&table.id());
        if here.is_none_or(|here| !std::ptr::eq(&**here, table)) {
            return;
        }
        self.by_id.remove(&table.id());
        if let Some((name, _)) = self.vacant.remove(&table.id()) {
            self.unregister(&name, table);
        }
        let name = &table.def.name;
        self.by_name.remove(name);
        if !is_aside(name) {
            self.unregister(name, table);
        }
    }

    /// The table is the child of its parents by this name.
    fn register(&self, name: &str, table: &OpenTable) {
        let keys = table.links.keys();
        for key in &*keys {
            if let Some(parent) = self.by_name.get(&key.parent) {
                parent.links.add_child(name);
            }
        }
        // Its own parent, perhaps, which is not in the map yet.
        if keys.iter().any(|key| key.parent == name) {
            table.links.add_child(name);
        }
    }

    fn unregister(&self, name: &str, table: &OpenTable) {
        for key in &*table.links.keys() {
            if let Some(parent) = self.by_name.get(&key.parent) {
                parent.links.remove_child(name);
            }
        }
    }

    fn vacant(&self, name: &str) -> Option<&Arc<OpenTable>> {
        let mut all = self.vacant.values();
        all.find(|(vacant, _)| vacant == name)
            .map(|(_, table)| table)
    }

    /// The open children of a table that is renamed, or whose columns are, follow it, also those that are
    /// being made.
    fn rename_parent(&self, parent: &str, rename: impl Fn(&mut ForeignKey)) {
        let open = self.by_name.values();
        open.for_each(|table| table.links.rename(parent, &rename));
    }

    /// Takes out tables that nobody holds, if there are more than `limit`, those first that were asked for
    /// longest ago. The caller drops them when he has let the lock go.
    fn evict(&mut self, limit: usize) -> Vec<Arc<OpenTable>> {
        let Some(surplus @ 1..) = self.by_name.len().checked_sub(limit) else {
            self.too_many = 0;
            return Vec::new();
        };
        if self.by_name.len() < self.too_many {
            return Vec::new();
        }
        let may_go = |table: &&Arc<OpenTable>| {
            let stays = table.is_temporary() || is_aside(&table.def.name);
            !stays && Arc::strong_count(table) == OWN_REFERENCES
        };
        let mut idle: Vec<_> = self.by_name.values().filter(may_go).cloned().collect();
        idle.sort_by_cached_key(|table| table.last_use());
        // A few more than necessary, so that not every new table has to look at all of them.
        idle.truncate(surplus + limit / 16);
        // TAB-3. One reference is ours.
        idle.retain(|table| {
            table.set_dropped(true);
            fence(Ordering::SeqCst);
            let is_held = Arc::strong_count(table) > OWN_REFERENCES + 1;
            if is_held {
                table.set_dropped(false);
            } else {
                self.by_id.remove(&table.id());
                self.by_name.remove(&table.def.name);
            }
            !is_held
        });
        let left = self.by_name.len();
        self.too_many = if left > limit { left + limit / 16 } else { 0 };
        idle
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

/// The open tables, and the way to the others.
#[derive(Default)]
pub struct Tables {
    maps: RwLock<Maps>,
    /// Tables in which a transaction was not rolled back, as they could not be used: nobody uses them before
    /// the next start, which tries again.
    owed: Mutex<HashSet<TableId>>,
    ddl: Mutex<()>,
    /// DDL has to wait for recovery.
    is_held_back: Mutex<bool>,
    goes_on: Condvar,
    source: OnceLock<Box<dyn Source>>,
    reserved: Mutex<HashSet<String>>,
    /// A reservation has ended.
    released: Condvar,
    /// Relaxed: it stands for itself.
    limit: AtomicUsize,
    /// Counts tables that were opened, to tell older uses from newer ones. Relaxed: see `Maps::evict`; a use
    /// that is taken for another one costs an open at most.
    clock: AtomicU64,
    opened: AtomicU64,
    /// TAB-4.
    changes: AtomicU64,
}

/// The maps, while they are changed (TAB-4).
struct Changing<'a> {
    maps: RwLockWriteGuard<'a, Maps>,
    changes: &'a AtomicU64,
}

impl Deref for Changing<'_> {
    type Target = Maps;

    fn deref(&self) -> &Maps {
        &self.maps
    }
}

impl DerefMut for Changing<'_> {
    fn deref_mut(&mut self) -> &mut Maps {
        &mut self.maps
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        // Release: who sees the count sees the change.
        self.changes.fetch_add(1, Ordering::Release);
    }
}

/// The right to open tables of some names, or to change their definitions, until dropped (TAB-1, TAB-2).
pub struct Reserved<'a> {
    tables: &'a Tables,
    names: Vec<String>,
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        let mut reserved = self.tables.reserved.lock();
        self.names.iter().for_each(|name| {
            reserved.remove(name);
        });
        self.tables.released.notify_all();
    }
}

impl Tables {
    /// At most about `limit` tables are open.
    pub fn new(limit: usize) -> Tables {
        let tables = Tables::default();
        tables.set_limit(limit);
        tables
    }

    pub fn set_limit(&self, limit: usize) {
        self.limit.store(limit, Ordering::Relaxed);
        let mut maps = self.change();
        maps.too_many = 0;
        let gone = maps.evict(limit);
        drop(maps);
        drop(gone);
    }

    /// Where tables come from, from now on. Only the first call counts.
    pub fn set_source(&self, source: Box<dyn Source>) {
        let _ = self.source.set(source);
    }

    fn source(&self) -> Result<&dyn Source> {
        let source = self.source.get().map(|source| &**source);
        source.ok_or_else(|| Error::invalid("definitions are not known yet"))
    }

    fn change(&self) -> Changing<'_> {
        Changing {
            maps: self.maps.write(),
            changes: &self.changes,
        }
    }

    /// What tables say of each other has changed without a change of those that are open.
    pub fn note_change(&self) {
        drop(self.change());
    }

    /// How often the tables that are open, or what they refer to, have changed (TAB-4).
    pub fn changes(&self) -> u64 {
        // Acquire: pairs with the count's increment.
        self.changes.load(Ordering::Acquire)
    }

    /// How many tables are open, and how many were opened so far.
    pub fn counts(&self) -> (usize, u64) {
        let open = self.maps.read().by_name.len();
        (open, self.opened.load(Ordering::Relaxed))
    }

    /// One DDL statement after the other: held from before its definitions commit until the tables here are
    /// what they say. Nobody waits for a table or row lock while he holds it.
    pub fn serialize_ddl(&self) -> MutexGuard<'_, ()> {
        let mut is_held_back = self.is_held_back.lock();
        while *is_held_back {
            self.goes_on.wait(&mut is_held_back);
        }
        drop(is_held_back);
        self.ddl.lock()
    }

    /// Has DDL statements wait until `let_ddl_go_on`. Called before there are any.
    pub fn hold_ddl_back(&self) {
        *self.is_held_back.lock() = true;
    }

    pub fn let_ddl_go_on(&self) {
        *self.is_held_back.lock() = false;
        self.goes_on.notify_all();
    }

    /// Reserves these names for a DDL statement, which holds the mutex above. Waits for those that are being
    /// opened.
    pub fn reserve(&self, names: impl IntoIterator<Item = String>) -> Reserved<'_> {
        let mut names: Vec<String> = names.into_iter().collect();
        names.sort_unstable();
        names.dedup();
        let mut reserved = self.reserved.lock();
        while names.iter().any(|name| reserved.contains(name)) {
            self.released.wait(&mut reserved);
        }
        reserved.extend(names.iter().cloned());
        Reserved {
            tables: self,
            names,
        }
    }

    fn cached(&self, name: &str) -> Option<Found> {
        let maps = self.maps.read();
        match (maps.by_name.get(name), maps.broken.get(name)) {
            (Some(table), _) => {
                table.used_at(self.clock.load(Ordering::Relaxed));
                Some(Found::Table(table.clone()))
            }
            (None, Some(broken)) => Some(Found::Broken(broken.why.clone())),
            (None, None) => None,
        }
    }

    /// The table of this name; it is opened if it is not open.
    fn look_up(&self, name: &str) -> Result<Found> {
        if let Some(found) = self.cached(name) {
            return Ok(found);
        }
        let source = self.source()?;
        let _reserved = self.reserve([name.to_string()]);
        // Somebody else may have been faster.
        if let Some(found) = self.cached(name) {
            return Ok(found);
        }
        Ok(match source.open(name)? {
            Opened::Table(table) if self.is_owed(table.id()) => {
                let what = "it was not there when changes had to be rolled back; start again";
                let why = Error::NoKey { what: what.into() };
                let def = Some(table.def.clone());
                let broken = BrokenTable {
                    why: why.clone(),
                    def,
                };
                self.add_broken(name.to_string(), broken);
                Found::Broken(why)
            }
            Opened::Table(table) => {
                self.set_children(&table)?;
                Found::Table(self.install(*table))
            }
            Opened::Broken(broken) => {
                let why = broken.why.clone();
                self.add_broken(name.to_string(), *broken);
                Found::Broken(why)
            }
            // Its name is reserved, so that no other table takes its place now.
            Opened::Absent if self.maps.read().vacant(name).is_some() => Found::Vacant,
            Opened::Absent => Found::Absent,
        })
    }

    fn install(&self, table: OpenTable) -> Arc<OpenTable> {
        self.opened.fetch_add(1, Ordering::Relaxed);
        table.used_at(self.clock.fetch_add(1, Ordering::Relaxed) + 1);
        let table = Arc::new(table);
        let mut maps = self.change();
        maps.insert(table.clone());
        let gone = maps.evict(self.limit.load(Ordering::Relaxed));
        drop(maps);
        drop(gone);
        table
    }

    /// Tells a handle that is about to be installed which children the table has.
    fn set_children(&self, table: &OpenTable) -> Result<()> {
        let name = &table.def.name;
        if table.is_temporary() || is_aside(name) {
            return Ok(());
        }
        let mut children = self.source()?.children_of(name)?;
        let vacant = self.vacant_tables().into_iter();
        // Not the one whose place this one takes, if that referred to itself.
        let vacant = vacant
            .filter(|(vacant, table)| vacant != name && !table.foreign_keys_to(name).is_empty());
        children.extend(vacant.map(|(name, _)| name));
        table.links.set_children(&children);
        Ok(())
    }

    fn is_named_owed(&self, name: &str) -> bool {
        let id = |broken: BrokenTable| Some(broken.def?.id);
        self.broken(name)
            .and_then(id)
            .is_some_and(|id| self.is_owed(id))
    }

    /// Somebody has said so.
    pub fn is_owed(&self, id: TableId) -> bool {
        self.owed.lock().contains(&id)
    }

    /// A transaction's changes to this table can't be taken back. Says whether there is such a table: nobody
    /// uses it any more then.
    pub fn owe_undo(&self, id: TableId) -> Result<bool> {
        let is_there = self.source()?.name_of(id)?.is_some();
        if is_there {
            self.owed.lock().insert(id);
        }
        Ok(is_there)
    }

    /// The table of this name.
    ///
    /// # Errors
    ///
    /// `NotFound`; why it can't be used; what keeps it from being opened now.
    pub fn get(&self, name: &str) -> Result<Arc<OpenTable>> {
        let mut found = self.look_up(name)?;
        if let Found::Broken(Error::NoKey { .. }) = found
            && !self.is_named_owed(name)
        {
            // The key may be there by now.
            self.remove_broken(name);
            found = self.look_up(name)?;
        }
        match found {
            Found::Table(table) => Ok(table),
            Found::Broken(why) => Err(why),
            Found::Vacant | Found::Absent => Err(Error::not_found(format!("table {name}"))),
        }
    }

    /// The same as the end of a foreign key.
    pub(super) fn end(&self, name: &str) -> Result<End<Arc<OpenTable>>> {
        Ok(match self.look_up(name)? {
            Found::Table(table) => End::Open(table),
            Found::Vacant => End::Vacant,
            // It has its rows.
            Found::Broken(why @ Error::NoKey { .. }) => return Err(why),
            Found::Broken(_) | Found::Absent => End::Nobody,
        })
    }

    /// The same; `None` if there is none, or it can't be used.
    pub fn find(&self, name: &str) -> Result<Option<Arc<OpenTable>>> {
        match self.look_up(name)? {
            Found::Table(table) => Ok(Some(table)),
            Found::Broken(_) | Found::Vacant | Found::Absent => Ok(None),
        }
    }

    /// The same by its id.
    pub fn by_id(&self, id: TableId) -> Result<Option<Arc<OpenTable>>> {
        if let Some(table) = self.maps.read().by_id.get(&id) {
            return Ok(Some(table.clone()));
        }
        if id.is_temporary() {
            return Ok(None);
        }
        let Some(name) = self.source()?.name_of(id)? else {
            return Ok(None);
        };
        let found = self.find(&name)?;
        Ok(found.filter(|table| table.id() == id))
    }

    /// Opens a table's tablespace, of which somebody wants pages and nothing else. Nobody drops it meanwhile.
    pub fn open_space(&self, id: SpaceId) -> Result<()> {
        let _no_ddl = self.serialize_ddl();
        self.source()?.open_space(id)
    }

    /// The name of the table that has this tablespace.
    pub fn name_of_space(&self, id: SpaceId) -> Result<Option<String>> {
        self.source()?.name_of_space(id)
    }

    /// The tables that have stepped aside, and what they were called.
    pub fn vacant_tables(&self) -> Vec<(String, Arc<OpenTable>)> {
        self.maps.read().vacant.values().cloned().collect()
    }

    /// A temporary table of this name.
    pub fn temporary(&self, name: &str) -> Option<Arc<OpenTable>> {
        let named = self.maps.read().by_name.get(name).cloned();
        named.filter(|table| table.is_temporary())
    }

    /// Puts a table there that was made just now. Its name, and its parents', are reserved.
    pub fn add(&self, table: OpenTable) -> Result<Arc<OpenTable>> {
        self.set_children(&table)?;
        Ok(self.install(table))
    }

    /// Adds a table that is found by id only: the system table.
    pub fn add_hidden(&self, table: Arc<OpenTable>) {
        self.change().by_id.insert(table.id(), table);
    }

    /// Remembers why a table can't be used.
    pub fn add_broken(&self, name: String, broken: BrokenTable) {
        self.change().broken.insert(name, broken);
    }

    /// A table that was opened turns out to be damaged. Statements that have it open can't go on.
    pub fn mark_broken(&self, table: &OpenTable, why: Error) {
        let def = Some(table.definition());
        self.add_broken(table.def.name.clone(), BrokenTable { why, def });
        let mut maps = self.change();
        maps.remove(table);
        // TAB-4: links are not followed any more when the change is counted.
        table.set_dropped(true);
    }

    /// The table of this name lacks changes, whether or not it is open. `note` says so on disk, before
    /// anybody opens it.
    pub fn mark_lost(
        &self,
        name: &str,
        why: Error,
        note: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let _reserved = self.reserve([name.to_string()]);
        let def = self.source()?.definition(name)?;
        note()?;
        let open = self.maps.read().by_name.get(name).cloned();
        match (open, def) {
            (Some(table), _) => self.mark_broken(&table, why),
            (None, Some(def)) => {
                let def = Some(def);
                self.add_broken(name.to_string(), BrokenTable { why, def });
            }
            (None, None) => {}
        }
        Ok(())
    }

    pub fn broken(&self, name: &str) -> Option<BrokenTable> {
        self.maps.read().broken.get(name).cloned()
    }

    pub fn remove_broken(&self, name: &str) {
        self.change().broken.remove(name);
    }

    /// The name of a table that can or can't be used, for messages.
    pub fn name_of(&self, id: TableId) -> String {
        if let Some(table) = self.maps.read().by_id.get(&id) {
            return table.def.name.clone();
        }
        let stored = self.source().and_then(|source| source.name_of(id));
        match stored {
            Ok(Some(name)) => name,
            _ => format!("number {id}"),
        }
    }

    /// Takes a table out; its handle stays usable as long as it is held.
    pub fn remove(&self, table: &OpenTable) {
        self.change().remove(table);
    }

    /// Puts the table that is called `to` in the place of `old` in one step. If it has another name, or its
    /// columns have, its children follow it; not if it steps aside, or comes from there: they refer to the
    /// name then. If it can't be opened, or its children not be read, it is looked for anew when it is
    /// needed.
    pub fn replace(
        &self,
        old: &OpenTable,
        to: &str,
        columns: Option<&ColumnNames>,
        new: Result<OpenTable>,
    ) -> Result<()> {
        self.replace_both(old, None, to, columns, new)
    }

    /// Puts the table that is called `made` in the place of `old`, under its name, in one step.
    pub fn take_place(
        &self,
        old: &OpenTable,
        made: &OpenTable,
        columns: &ColumnNames,
        new: Result<OpenTable>,
    ) -> Result<()> {
        self.replace_both(old, Some(made), &old.def.name, Some(columns), new)
    }

    fn replace_both(
        &self,
        old: &OpenTable,
        made: Option<&OpenTable>,
        to: &str,
        columns: Option<&ColumnNames>,
        new: Result<OpenTable>,
    ) -> Result<()> {
        let new = new.and_then(|new| self.set_children(&new).map(|()| new));
        let from = &old.def.name;
        let mut maps = self.change();
        maps.remove(old);
        made.into_iter().for_each(|made| maps.remove(made));
        if let Some(columns) = columns {
            maps.rename_parent(from, |key| columns.rename_parents(key, from));
        }
        if !(from == to || old.is_temporary() || is_aside(from) || is_aside(to)) {
            maps.rename_parent(from, |key| key.parent = to.to_string());
        }
        let new = new?;
        new.used_at(self.clock.load(Ordering::Relaxed));
        let new = Arc::new(new);
        maps.insert(new.clone());
        if !is_aside(from) && is_aside(to) && !old.is_temporary() {
            maps.register(from, &new);
            maps.vacant.insert(new.id(), (from.clone(), new.clone()));
        }
        Ok(())
    }

    /// The names of all tables but temporary ones, sorted.
    pub fn names(&self) -> Result<Vec<String>> {
        let mut names = self.source()?.names()?;
        names.sort();
        Ok(names)
    }

    /// The stored definition of this name, if it can be read.
    pub fn definition(&self, name: &str) -> Result<Option<TableDef>> {
        self.source()?.definition(name)
    }

    /// How many handles there are on a table, but for the caller's.
    pub fn handles(table: &Arc<OpenTable>) -> usize {
        (Arc::strong_count(table) - 1).saturating_sub(OWN_REFERENCES)
    }

    /// The open ones.
    pub fn all_open(&self) -> Vec<Arc<OpenTable>> {
        self.maps.read().by_id.values().cloned().collect()
    }
}
