//! What foreign keys ask of DDL: that parents are there and fit, that they stay, and that their children know
//! them under a new name.
//!
//! Constraint names are unique in a schema, in any case of letters.

use std::sync::Arc;

use crate::base::{Error, Result};
use crate::catalog::{ForeignKey, NoParent, OpenTable, TableDef, is_aside};

use super::Ddl;

/// Whether DDL is to see to foreign keys (`foreign_key_checks`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ForeignKeyChecks {
    /// Parents must be there, and a table that others refer to stays.
    On,
    /// Tables come and go in any order. What is there must fit all the same.
    Off,
}

impl Ddl {
    /// Whether a table with this definition may be there: its foreign keys have parents that fit, those of
    /// others that wait for it fit, and the constraints' names are free.
    pub(super) fn check_foreign_keys(
        &self,
        def: &TableDef,
        checks: ForeignKeyChecks,
    ) -> Result<()> {
        if is_aside(&def.name) {
            return Ok(());
        }
        for key in &def.foreign_keys {
            self.check_constraint_name(def, key)?;
            let other = match key.parent == def.name {
                true => None,
                false => (self.core.tables.find(&key.parent)).filter(|t| !t.is_temporary()),
            };
            match &other {
                Some(parent) => check_parent(def, key, &parent.def)?,
                None if key.parent == def.name => check_parent(def, key, def)?,
                None if checks == ForeignKeyChecks::Off => {}
                None => {
                    return Err(Error::not_found(format!(
                        "table {}, the parent by foreign key {} of table {}",
                        key.parent, key.name, def.name
                    )));
                }
            }
        }
        for child in self.core.tables.children_of(&def.name) {
            for number in child.foreign_keys_to(&def.name) {
                check_parent(&child.def, &child.def.foreign_keys[number], def)?;
            }
        }
        Ok(())
    }

    fn check_constraint_name(&self, def: &TableDef, key: &ForeignKey) -> Result<()> {
        match self.core.tables.constraint_of(&def.name, &key.name) {
            Some(table) if table.id() != def.id => Err(Error::AlreadyExists {
                what: format!("foreign key {}, of table {},", key.name, table.def.name),
            }),
            _ => Ok(()),
        }
    }

    /// Refuses to take a table away, or its rows, to which others refer.
    pub(super) fn check_not_referenced(&self, table: &OpenTable) -> Result<()> {
        for child in self.core.tables.children_of(&table.def.name) {
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
        let mut children = self.core.tables.children_of(from);
        children.retain(|child| child.id() != table.id());
        let renamed = |child: Arc<OpenTable>| {
            let mut def = child.definition();
            rename_parent(&mut def, from, to);
            def
        };
        children.into_iter().map(renamed).collect()
    }
}

/// The foreign keys to `from` refer to `to`.
pub(super) fn rename_parent(def: &mut TableDef, from: &str, to: &str) {
    let to_it = def.foreign_keys.iter_mut();
    to_it
        .filter(|key| key.parent == from)
        .for_each(|key| key.parent = to.to_string());
}

fn check_parent(child: &TableDef, key: &ForeignKey, parent: &TableDef) -> Result<()> {
    let what = match child.parent_index(key, parent) {
        Ok(_) => return Ok(()),
        Err(NoParent::Column(column)) => format!("it has no column {column}"),
        Err(NoParent::Types {
            column,
            parent_column,
        }) => format!(
            "its column {parent_column} and the child's column {column} have different types"
        ),
        Err(NoParent::Index) => format!(
            "no index of it begins with ({}), whole and in this order; add one",
            key.parent_columns.join(", ")
        ),
    };
    Err(Error::invalid(format!(
        "table {} can't be the parent by foreign key {} of table {}: {what}",
        parent.name, key.name, child.name
    )))
}
