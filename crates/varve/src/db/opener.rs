//! Opens tables as they are asked for: definition, file, trees.
//!
//! A table's file is where its name says. If it is not, because a rename did not get through, or somebody has
//! moved it, it is looked for in all directories by its header, and gets its place again.

use std::collections::HashSet;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::base::{Error, PageId, PageNo, Result, SpaceId, TableId, TrxId};
use crate::catalog::{BrokenTable, OpenTable, Opened, Source, TableDef};
use crate::ddl::lookups::{Prefix, Rows};
use crate::ddl::{Dictionary, Lookup, StoredDef, lost_mark_path, refresh_copy, table_path};
use crate::recovery;
use crate::row::Collations;
use crate::space::{Space, SpaceKind, Spaces};
use crate::stats;
use crate::txn::{Core, Isolation, Transaction};

pub(super) struct TableOpener {
    pub core: Weak<Core>,
    pub dictionary: Arc<Dictionary>,
    pub spaces: Arc<Spaces>,
    pub collations: Arc<Collations>,
    /// Files are only looked at: none is renamed, and no copy of a definition made right.
    pub only_looks: bool,
    /// Tables without their keys that the administrator was told of.
    pub told_keys: Mutex<HashSet<String>>,
}

impl TableOpener {
    fn core(&self) -> Result<Arc<Core>> {
        let closed = || Error::Poisoned {
            why: "the database is closed".into(),
        };
        self.core.upgrade().ok_or_else(closed)
    }

    fn reader(&self) -> Result<Transaction> {
        Ok(Transaction::begin(self.core()?, Isolation::RepeatableRead))
    }

    fn look_up(&self, lookup: Lookup<'_>) -> Result<Option<String>> {
        let found = self.dictionary.find(&mut self.reader()?, lookup)?;
        Ok(found.map(|found| found.name))
    }

    fn all(&self, prefix: &Prefix) -> Result<Rows> {
        self.dictionary.all(&mut self.reader()?, prefix)
    }

    fn open_defined(&self, def: &TableDef, created_by: TrxId) -> Result<OpenTable> {
        let core = self.core()?;
        let spaces = &self.spaces;
        let space = self.space_of(&core, def);
        if let Err(e) = &space
            && !may_pass(e)
        {
            return Err(e.clone());
        }
        if spaces.has_mark(&lost_mark_path(&def.name, def.space))? {
            return Err(Error::CorruptFile {
                path: spaces.dir().join(table_path(&def.name)),
                expected: format!("all changes to table {}", def.name),
                found: "a file that was missing while a crash was recovered; drop the table".into(),
            });
        }
        let space = space?;
        check_owner(&space, def)?;
        check_encryption(&space, def)?;
        self.put_right(&core, &space, &table_path(&def.name));
        let table = OpenTable::open(def.clone(), created_by, &core.mtr, spaces, &self.collations)?;
        if core.is_read_only() {
            stats::guess(&table);
        }
        if !self.only_looks {
            refresh_copy(&core, spaces, def);
        }
        if !self.only_looks && !core.is_read_only() {
            give_back_loose_trees(&core, &table);
        }
        Ok(table)
    }

    fn space_of(&self, core: &Core, def: &TableDef) -> Result<Arc<Space>> {
        let (spaces, path) = (&self.spaces, table_path(&def.name));
        if recovery::open_wherever(spaces, def.space, Some(&path))? {
            return spaces.require(def.space);
        }
        match spaces.inspect(&path) {
            Err(e) if !matches!(e, Error::Io { .. }) => {
                core.note(&format!("tablespace file {path} can't be used: {e}"));
            }
            _ => {}
        }
        let led = match spaces.dangling(&path)? {
            Some(link) => format!(" (the link leads to {})", link.target.display()),
            None => String::new(),
        };
        let advice = "put it back and start again, or drop the table";
        Err(Error::CorruptFile {
            path: spaces.dir().join(path),
            expected: format!("tablespace {} of table {}", def.space, def.name),
            found: format!("no file that is it{led}; {advice}"),
        })
    }

    /// Gives the file the name that it should have.
    fn put_right(&self, core: &Core, space: &Space, to: &str) {
        let from = space.path();
        if from == to || self.only_looks {
            return;
        }
        let note = |message: &str| core.note(message);
        if !recovery::finish_rename(&self.spaces, space.id(), &from, to, &note) {
            self.spaces.files_match(false);
        }
    }
}

/// What a crash has left of indexes that came or went (LOOSE-1).
fn give_back_loose_trees(core: &Core, table: &OpenTable) {
    if let Err(e) = table.give_back_loose_trees(|_| true) {
        let name = &table.def.name;
        core.warn(&format!(
            "table {name} keeps the pages of an index that it does not have, until it is opened next: {e}"
        ));
    }
}

/// The tablespace that a definition names is that table's.
fn check_owner(space: &Space, def: &TableDef) -> Result<()> {
    if space.kind() == SpaceKind::Table && space.table() == def.id {
        return Ok(());
    }
    let header = PageId::new(def.space, PageNo(0));
    let expected = format!("the tablespace of table {}, number {}", def.name, def.id);
    let (kind, table) = (space.kind(), space.table());
    let found = format!("{kind:?} tablespace of table number {table}");
    Err(Error::corrupt(header, expected, found))
}

/// SP-16: what the file says is not all that there is to go by.
fn check_encryption(space: &Space, def: &TableDef) -> Result<()> {
    let found = space.header().encryption;
    if found == def.encryption {
        return Ok(());
    }
    let header = PageId::new(def.space, PageNo(0));
    let expected = format!("{:?}", def.encryption);
    Err(Error::corrupt(header, expected, format!("{found:?}")))
}

/// It says nothing about the table: the system refuses something, or the database has stopped. A table whose
/// key is not there can be dropped, and others do without it; whoever wants it tries again (`Tables::get`).
fn may_pass(e: &Error) -> bool {
    let has_key = !matches!(e, Error::NoKey { .. });
    has_key && recovery::is_refusal(e) || matches!(e, Error::Poisoned { .. })
}

impl Source for TableOpener {
    fn open(&self, name: &str) -> Result<Opened> {
        // A definition that is read may be one whose commit failed to become durable, of a table that is open
        // under the name that it had before.
        self.core()?.check_usable()?;
        let stored = self.dictionary.read(&mut self.reader()?, name)?;
        let Some(StoredDef {
            def, created_by, ..
        }) = stored
        else {
            return Ok(Opened::Absent);
        };
        let opened = match &def {
            // IMPORT-1
            Ok(def) if def.discarded => {
                let why = Error::TablespaceDiscarded { table: name.into() };
                let def = Some(def.clone());
                return Ok(Opened::Broken(Box::new(BrokenTable { why, def })));
            }
            Ok(def) => self.open_defined(def, created_by),
            Err(e) => Err(e.clone()),
        };
        match opened {
            Ok(table) => Ok(Opened::Table(Box::new(table))),
            Err(e) if may_pass(&e) => Err(e),
            Err(why) => {
                // Who wants a table without its key tries again and again.
                let is_told = matches!(why, Error::NoKey { .. })
                    && !self.told_keys.lock().insert(name.to_owned());
                if !is_told {
                    self.core()?
                        .error(&format!("table {name} can't be used: {why}"));
                }
                let def = def.ok();
                Ok(Opened::Broken(Box::new(BrokenTable { why, def })))
            }
        }
    }

    fn definition(&self, name: &str) -> Result<Option<TableDef>> {
        let stored = self.dictionary.read(&mut self.reader()?, name)?;
        Ok(stored.and_then(|stored| stored.def.ok()))
    }

    fn name_of(&self, id: TableId) -> Result<Option<String>> {
        self.look_up(Lookup::Table(id))
    }

    fn name_of_space(&self, id: SpaceId) -> Result<Option<String>> {
        self.look_up(Lookup::Space(id))
    }

    fn open_space(&self, id: SpaceId) -> Result<()> {
        match self.name_of_space(id)? {
            Some(name) => self.spaces.open_at(&table_path(&name), id).map(drop),
            None => Ok(()),
        }
    }

    fn children_of(&self, name: &str) -> Result<Vec<String>> {
        let found = self.all(&Prefix::children_of(name))?.into_values();
        Ok(found.map(|found| found.name).collect())
    }

    fn names(&self) -> Result<Vec<String>> {
        let mut found = self.all(&Prefix::tables())?;
        found.extend(self.all(&Prefix::unreadable())?);
        Ok(found.into_values().map(|found| found.name).collect())
    }
}
