//! What foreign keys ask of DDL: that parents are there and fit, that they stay, and that their children know
//! them under a new name.
//!
//! Constraint names are unique in a schema, in any case of letters.

use std::sync::Arc;

use crate::base::{BadForeignKey, Error, NoParent, ReferenceError, Result};
use crate::catalog::{ColumnNames, ForeignKey, OpenTable, TableDef, is_aside, schema_of};

use super::Ddl;

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

impl Ddl {
    /// Whether a table with this definition may be there: its foreign keys have parents that fit, those of
    /// others that wait for it fit, and the constraints' names are free.
    pub(super) fn check_foreign_keys(
        &self,
        def: &TableDef,
        checks: ForeignKeyChecks,
    ) -> Result<()> {
        let is_aside = is_aside(&def.name);
        for key in &def.foreign_keys {
            if is_aside && key.kept {
                continue;
            }
            // What is kept has its name from the table whose place is taken.
            if !is_aside && !key.kept {
                self.check_constraint_name(def, key)?;
            }
            let other = match key.parent == def.name {
                true => None,
                false => (self.core.tables.find(&key.parent)).filter(|t| !t.is_temporary()),
            };
            match &other {
                Some(parent) => check_parent(def, key, &parent.def)?,
                None if key.parent == def.name => check_parent(def, key, def)?,
                None if checks == ForeignKeyChecks::Off => {}
                None => return Err(bad(def, key, NoParent::Table)),
            }
        }
        for child in self.core.tables.children_of(&def.name) {
            for number in child.foreign_keys_to(&def.name) {
                check_parent(&child.def, &child.links.keys()[number], def)?;
            }
        }
        Ok(())
    }

    fn check_constraint_name(&self, def: &TableDef, key: &ForeignKey) -> Result<()> {
        match self.core.tables.constraint_of(&def.name, &key.name) {
            Some((owner, table)) if owner != def.name && table.id() != def.id => {
                let mut names = reference(&table.def, key);
                // Not the name under which it stands aside.
                names.table = owner;
                Err(Error::ConstraintExists(Box::new(names)))
            }
            _ => Ok(()),
        }
    }

    /// Refuses to take a table away, or its rows, to which others refer.
    pub(super) fn check_not_referenced(
        &self,
        table: &OpenTable,
        checks: ForeignKeyChecks,
    ) -> Result<()> {
        let name = &table.def.name;
        let mut children = match checks {
            ForeignKeyChecks::Off => return Ok(()),
            _ if is_aside(name) => return Ok(()),
            _ => self.core.tables.children_of(name),
        };
        if checks == ForeignKeyChecks::OtherSchemas {
            children.retain(|child| schema_of(&child.def.name) != schema_of(name));
        }
        for child in children {
            let keys = child.foreign_keys_to(&table.def.name);
            if child.id() != table.id()
                && let Some(&number) = keys.first()
            {
                return Err(Error::TableIsReferenced(child.reference(number)));
            }
        }
        Ok(())
    }

    /// The other tables that refer to this one, which is renamed, with the definitions that they get. None if
    /// the table is being made, or steps aside for one that is: they refer to the name then.
    pub(super) fn children_renaming_parent(&self, table: &OpenTable, to: &str) -> Vec<TableDef> {
        let from = &table.def.name;
        if is_aside(from) || is_aside(to) {
            return Vec::new();
        }
        self.children_with(table, |def| rename_parent(def, from, to))
    }

    /// The other tables that refer to this one, whose columns get other names, with the definitions that they
    /// get.
    pub(super) fn children_renaming_columns(
        &self,
        table: &OpenTable,
        to: &ColumnNames,
    ) -> Vec<TableDef> {
        let name = &table.def.name;
        self.children_with(table, |def| {
            let keys = def.foreign_keys.iter_mut();
            keys.for_each(|key| to.rename_parents(key, name));
        })
    }

    fn children_with(&self, table: &OpenTable, change: impl Fn(&mut TableDef)) -> Vec<TableDef> {
        let tables = &self.core.tables;
        let mut children = tables.children_of(&table.def.name);
        children.extend(tables.aside_children_of(&table.def.name));
        children.sort_by_key(|child| child.id());
        children.dedup_by_key(|child| child.id());
        children.retain(|child| child.id() != table.id());
        let changed = |child: Arc<OpenTable>| {
            let mut def = child.definition();
            change(&mut def);
            def
        };
        children.into_iter().map(changed).collect()
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

/// The children of a table whose columns get other names must find them.
pub(super) fn check_children<'a>(
    parent: &TableDef,
    children: impl Iterator<Item = &'a TableDef>,
) -> Result<()> {
    for child in children {
        let keys = child.foreign_keys.iter();
        let mut to_it = keys.filter(|key| key.parent == parent.name);
        to_it.try_for_each(|key| check_parent(child, key, parent))?;
    }
    Ok(())
}

fn check_parent(child: &TableDef, key: &ForeignKey, parent: &TableDef) -> Result<()> {
    let fits = child.parent_index(key, parent);
    fits.map(drop).map_err(|why| bad(child, key, why))
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
