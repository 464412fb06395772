//! What foreign keys ask of DDL: that parents are there and fit, that they stay, and that their children know
//! them under a new name.
//!
//! Constraint names are unique in a schema, in any case of letters.

use crate::base::{BadForeignKey, Error, NoParent, ReferenceError, Result, TrxId};
use crate::catalog::{ColumnNames, ForeignKey, OpenTable, TableDef, is_aside, schema_of};

use crate::txn::Transaction;

use super::Ddl;
use super::lookups::Prefix;
use super::redefine::Change;

/// Whether DDL is to see to foreign keys (`foreign_key_checks`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ForeignKeyChecks {
    /// Parents must be there, and a table that others refer to keeps its rows.
    #[default]
    On,
    /// Tables come and go in any order. What is there must fit all the same.
    Off,
    /// The whole schema is dropped: a table stays only if one of another schema refers to it.
    OtherSchemas,
}

/// A table that refers to another one.
pub(super) struct Child {
    /// What the table is called, or was before it stepped aside.
    name: String,
    pub def: TableDef,
    pub created_by: TrxId,
}

impl Ddl {
    /// The definition of this name, if it can be read.
    fn definition(&self, reader: &mut Transaction, name: &str) -> Result<Option<TableDef>> {
        let stored = self.dictionary.read(reader, name)?;
        Ok(stored.and_then(|stored| stored.def.ok()))
    }

    /// The tables to which these look-ups lead, as far as their definitions can be read and still have
    /// foreign keys to `parent`.
    fn those_with_parent(&self, such: &Prefix, parent: &str) -> Result<Vec<Child>> {
        let mut reader = self.begin();
        let mut children = Vec::new();
        for found in self.dictionary.all(&mut reader, such)?.into_values() {
            let Some(stored) = self.dictionary.read(&mut reader, &found.name)? else {
                continue;
            };
            let created_by = stored.created_by;
            if let Ok(def) = stored.def
                && def.foreign_keys.iter().any(|key| key.parent == parent)
            {
                let name = found.name;
                children.push(Child {
                    name,
                    def,
                    created_by,
                });
            }
        }
        Ok(children)
    }

    /// The tables with foreign keys to a table of this name, itself among them if it has one, and those that
    /// have stepped aside. Not one that has done so for a table of this very name: what it says goes with it.
    pub(super) fn children_of(&self, name: &str) -> Result<Vec<Child>> {
        let mut children = self.those_with_parent(&Prefix::children_of(name), name)?;
        for (called, table) in self.core.tables.vacant_tables() {
            if called != name && !table.foreign_keys_to(name).is_empty() {
                children.push(Child {
                    name: called,
                    def: table.definition(),
                    created_by: table.created_by,
                });
            }
        }
        Ok(children)
    }

    /// Whether a table with this definition may come to be: its foreign keys find all that they need, those
    /// of others that wait for it fit, with checks on with an index, and the constraints' names are free.
    /// What a copy has kept is looked at when it takes its place.
    pub(super) fn check_foreign_keys(
        &self,
        def: &TableDef,
        checks: ForeignKeyChecks,
    ) -> Result<()> {
        let new = def.foreign_keys.iter().filter(|key| !key.kept);
        self.check_new_keys(def, new, checks)?;
        let fits: Fits = match checks {
            ForeignKeyChecks::Off => check_parent_columns,
            _ => check_parent,
        };
        let children = self.children_of(&def.name)?;
        check_children(def, children.iter().map(|child| &child.def), fits)
    }

    /// The same of the foreign keys that the change adds; those that wait for the table are not looked at.
    pub(super) fn check_new_foreign_keys(&self, def: &TableDef, change: &Change) -> Result<()> {
        let is_new = |key: &&ForeignKey| change.foreign_new.iter().any(|new| new.name == key.name);
        let new = def.foreign_keys.iter().filter(is_new);
        self.check_new_keys(def, new, ForeignKeyChecks::Off)
    }

    /// These foreign keys of the definition have an index, parents that fit, and names that are free.
    fn check_new_keys<'a>(
        &self,
        def: &TableDef,
        mut keys: impl Iterator<Item = &'a ForeignKey>,
        checks: ForeignKeyChecks,
    ) -> Result<()> {
        let mut reader = self.begin();
        keys.try_for_each(|key| {
            def.check_served(key)?;
            self.check_constraint_name(&mut reader, def, key)?;
            let is_there = self.check_parent_of(&mut reader, def, key, check_parent)?;
            match is_there || checks == ForeignKeyChecks::Off {
                true => Ok(()),
                false => Err(bad(def, key, NoParent::Table)),
            }
        })
    }

    /// Whether a table that was called `from` may have this definition, which has its new name: the columns
    /// of its foreign keys and of those that others have fit, and the constraints' names are free. Those who
    /// have waited for a table of this name find the indexes that they need. With checks on a copy that takes
    /// another table's place keeps those that foreign keys have had in it; nothing is said of a table that
    /// comes back to its own place, nor where the other one is not known any more, after a crash.
    pub(super) fn check_renamed(
        &self,
        from: &str,
        def: &TableDef,
        checks: ForeignKeyChecks,
    ) -> Result<()> {
        let mut reader = self.begin();
        for key in &def.foreign_keys {
            // What is kept has its name from the table whose place is taken. A copy's new names are looked
            // at when it is made, so that nobody copies in vain, and once more when it takes the place.
            if !key.kept {
                self.check_constraint_name(&mut reader, def, key)?;
            }
            self.check_parent_of(&mut reader, def, key, check_parent_columns)?;
        }
        let children = self.children_of(&def.name)?;
        let children = || children.iter().map(|child| &child.def);
        if !is_aside(from) {
            return check_children(def, children(), check_parent);
        }
        check_children(def, children(), check_parent_columns)?;
        let mut vacant = self.core.tables.vacant_tables().into_iter();
        let place = vacant.find(|(name, table)| *name == def.name && table.id() != def.id);
        match place {
            Some((_, before)) if checks != ForeignKeyChecks::Off => {
                let was = |name: &String| before.def.column_index(name);
                check_indexes_stay(&before.def, def, children().chain([def]), was)
            }
            _ => Ok(()),
        }
    }

    /// The parent of this foreign key of the definition fits, if it is there, which is returned.
    fn check_parent_of(
        &self,
        reader: &mut Transaction,
        def: &TableDef,
        key: &ForeignKey,
        fits: Fits,
    ) -> Result<bool> {
        if key.parent == def.name {
            return fits(def, key, def).map(|()| true);
        }
        match self.definition(reader, &key.parent)? {
            Some(parent) => fits(def, key, &parent).map(|()| true),
            None => Ok(false),
        }
    }

    fn check_constraint_name(
        &self,
        reader: &mut Transaction,
        def: &TableDef,
        key: &ForeignKey,
    ) -> Result<()> {
        let such = Prefix::owners_of(&def.name, &key.name);
        let mut owners = Vec::new();
        for found in self.dictionary.all(reader, &such)?.into_values() {
            let owner = self.definition(reader, &found.name)?;
            owners.extend(owner.map(|owner| (found.name, owner)));
        }
        let vacant = self.core.tables.vacant_tables().into_iter();
        owners.extend(vacant.map(|(name, table)| (name, table.definition())));
        for (name, owner) in owners {
            let has_it = schema_of(&name) == schema_of(&def.name)
                && (owner.foreign_keys.iter())
                    .any(|its| its.name.to_lowercase() == key.name.to_lowercase());
            if has_it && name != def.name && owner.id != def.id {
                let mut names = reference(&owner, key);
                // Not the name under which it stands aside.
                names.table = name;
                return Err(Error::ConstraintExists(Box::new(names)));
            }
        }
        Ok(())
    }

    /// Refuses a definition without a column that others refer to, whatever is called so then.
    pub(super) fn check_columns_stay(&self, before: &TableDef, after: &TableDef) -> Result<()> {
        let stays = |name: &String| {
            let column = before.column_index(name).map(|at| before.columns[at].id);
            column.is_none_or(|id| after.columns.iter().any(|column| column.id == id))
        };
        if before.columns.iter().all(|column| stays(&column.name)) {
            return Ok(());
        }
        for Child { def, .. } in self.children_of(&before.name)? {
            for key in def
                .foreign_keys
                .iter()
                .filter(|key| key.parent == before.name)
            {
                if let Some(name) = key.parent_columns.iter().find(|name| !stays(name)) {
                    return Err(bad(&def, key, NoParent::Column(name.clone())));
                }
            }
        }
        Ok(())
    }

    /// Refuses to take a table away, or its rows, to which others refer.
    pub(super) fn check_not_referenced(
        &self,
        table: &TableDef,
        checks: ForeignKeyChecks,
    ) -> Result<()> {
        let name = &table.name;
        let mut children = match checks {
            ForeignKeyChecks::Off => return Ok(()),
            _ if is_aside(name) => return Ok(()),
            _ => self.children_of(name)?,
        };
        if checks == ForeignKeyChecks::OtherSchemas {
            children.retain(|child| schema_of(&child.name) != schema_of(name));
        }
        for Child { def, .. } in children {
            let mut keys = def.foreign_keys.iter();
            let key = keys.find(|key| key.parent == *name);
            if let Some(key) = key.filter(|_| def.id != table.id) {
                return Err(Error::TableIsReferenced(Box::new(reference(&def, key))));
            }
        }
        Ok(())
    }

    /// The other tables that refer to this one, which is renamed, with the definitions that they get. None if
    /// the table is being made, or steps aside for one that is: they refer to the name then.
    pub(super) fn children_renaming_parent(
        &self,
        table: &OpenTable,
        to: &str,
    ) -> Result<Vec<Child>> {
        let from = &table.def.name;
        if is_aside(from) || is_aside(to) {
            return Ok(Vec::new());
        }
        self.children_with(table, |def| rename_parent(def, from, to))
    }

    /// The other tables that refer to this one, whose columns get other names, with the definitions that they
    /// get.
    pub(super) fn children_renaming_columns(
        &self,
        table: &OpenTable,
        to: &ColumnNames,
    ) -> Result<Vec<Child>> {
        let name = &table.def.name;
        self.children_with(table, |def| {
            let keys = def.foreign_keys.iter_mut();
            keys.for_each(|key| to.rename_parents(key, name));
        })
    }

    fn children_with(
        &self,
        table: &OpenTable,
        change: impl Fn(&mut TableDef),
    ) -> Result<Vec<Child>> {
        let name = &table.def.name;
        let mut children = self.those_with_parent(&Prefix::children_of(name), name)?;
        let aside = Prefix::aside_children_of(name);
        children.extend(self.those_with_parent(&aside, name)?);
        children.retain(|child| child.def.id != table.id());
        children.iter_mut().for_each(|child| change(&mut child.def));
        Ok(children)
    }
}

/// A table's name in the names that its constraints were given, before it is renamed and after.
#[derive(Clone, Copy, Debug)]
pub struct ConstraintPrefix<'a> {
    pub from: &'a str,
    pub to: &'a str,
}

impl ConstraintPrefix<'_> {
    pub(super) fn rename_in(&self, def: &mut TableDef) {
        for key in &mut def.foreign_keys {
            if let Some(rest) = key.name.strip_prefix(self.from) {
                key.name = format!("{}{rest}", self.to);
            }
        }
    }
}

/// The foreign keys to `from` refer to `to`.
pub(super) fn rename_parent(def: &mut TableDef, from: &str, to: &str) {
    let to_it = def.foreign_keys.iter_mut();
    to_it
        .filter(|key| key.parent == from)
        .for_each(|key| key.parent = to.to_string());
}

/// Whether a table can be the parent of this foreign key of the first one.
type Fits = fn(&TableDef, &ForeignKey, &TableDef) -> Result<()>;

/// With all that a foreign key needs there when it comes.
pub(super) fn check_parent(child: &TableDef, key: &ForeignKey, parent: &TableDef) -> Result<()> {
    let fits = child.parent_index(key, parent);
    fits.map(drop).map_err(|why| bad(child, key, why))
}

/// With what it can't be without: its index may have been dropped (FK-1).
pub(super) fn check_parent_columns(
    child: &TableDef,
    key: &ForeignKey,
    parent: &TableDef,
) -> Result<()> {
    let fits = child.parent_columns(key, parent);
    fits.map(drop).map_err(|why| bad(child, key, why))
}

/// The table fits all foreign keys to it that these have.
pub(super) fn check_children<'a>(
    parent: &TableDef,
    children: impl Iterator<Item = &'a TableDef>,
    fits: impl Fn(&TableDef, &ForeignKey, &TableDef) -> Result<()>,
) -> Result<()> {
    for child in children {
        let keys = child.foreign_keys.iter();
        let mut to_it = keys.filter(|key| key.parent == parent.name);
        to_it.try_for_each(|key| fits(child, key, parent))?;
    }
    Ok(())
}

/// Refuses a definition without an index that foreign keys need, on either side, and had `before` (FK-1).
/// `children` are those that refer to it, itself among them if it does; `was` says where a column that they
/// refer to was before.
pub(super) fn check_indexes_stay<'a>(
    before: &TableDef,
    after: &TableDef,
    children: impl Iterator<Item = &'a TableDef>,
    was: impl Fn(&String) -> Option<usize>,
) -> Result<()> {
    for key in &after.foreign_keys {
        let mut had = before.foreign_keys.iter();
        if had.any(|had| had.name == key.name && before.serves(had)) {
            after.check_served(key)?;
        }
    }
    check_children(after, children, |child, key, _| {
        let columns: Option<Vec<_>> = key.parent_columns.iter().map(&was).collect();
        match columns.is_some_and(|columns| before.index_beginning_with(&columns).is_some()) {
            true => check_parent(child, key, after),
            false => Ok(()),
        }
    })
}

fn reference(child: &TableDef, key: &ForeignKey) -> ReferenceError {
    ReferenceError {
        table: child.name.clone(),
        constraint: key.name.clone(),
        parent: key.parent.clone(),
    }
}

fn bad(child: &TableDef, key: &ForeignKey, why: NoParent) -> Error {
    let key = reference(child, key);
    Error::BadForeignKey(Box::new(BadForeignKey { key, why }))
}
