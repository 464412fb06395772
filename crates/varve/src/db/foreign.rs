//! Foreign keys as programs ask about them, and DDL that heeds them or does not.

use crate::base::Result;
use crate::catalog::{ForeignKey, OpenTable, TableDef};
use crate::ddl::{ConstraintPrefix, ForeignKeyChecks};

use super::{Database, Table};

/// A foreign key with both of its ends.
#[derive(Clone, Debug)]
pub struct Reference {
    /// The table that has it.
    pub child: String,
    /// Its parent and the columns there are called what they are called now.
    pub key: ForeignKey,
    /// Whether the columns take NULL.
    pub nullable: Vec<bool>,
    pub parent: Option<ReferencedParent>,
}

/// A parent that is there and fits.
#[derive(Clone, Debug)]
pub struct ReferencedParent {
    /// The index in which rows are looked for.
    pub index: String,
    /// Whether the columns referred to take NULL.
    pub nullable: Vec<bool>,
}

fn nullable(table: &TableDef, columns: &[String]) -> Vec<bool> {
    let takes_null = |at: usize| table.columns[at].nullable;
    columns
        .iter()
        .map(|name| table.column_index(name).is_some_and(takes_null))
        .collect()
}

fn reference(child: &OpenTable, number: usize) -> Reference {
    let key = child.links.keys()[number].clone();
    let parent = child.links.parent(number).and_then(|link| {
        let parent = link.table.upgrade()?;
        let index = parent.def.all_indexes().nth(link.index)?;
        Some(ReferencedParent {
            index: index.name.clone(),
            nullable: nullable(&parent.def, &key.parent_columns),
        })
    });
    Reference {
        child: child.def.name.clone(),
        nullable: nullable(&child.def, &key.columns),
        key,
        parent,
    }
}

impl Table {
    /// The table's foreign keys.
    pub fn foreign_keys(&self) -> Vec<Reference> {
        let keys = 0..self.table.def.foreign_keys.len();
        keys.map(|number| reference(&self.table, number)).collect()
    }

    /// The foreign keys that refer to the table, its own among them.
    pub fn referencing(&self) -> Vec<Reference> {
        let children = self.table.links.children();
        let open = children
            .iter()
            .filter_map(|link| Some((link.table.upgrade()?, link.number)));
        open.map(|(child, number)| reference(&child, number))
            .collect()
    }

    /// Whether there are any of these. Costs next to nothing.
    pub fn is_referenced(&self) -> bool {
        self.table.links.has_children()
    }
}

impl Database {
    /// Like `create_table`. With checks off the parents of its foreign keys need not be there yet: until they
    /// are, only rows with a NULL in the columns, or those of a transaction that does not check, can be
    /// inserted.
    pub fn create_table_with(&self, def: &TableDef, checks: ForeignKeyChecks) -> Result<Table> {
        Ok(Table {
            table: self.inner.ddl.create_table(def, checks)?,
        })
    }

    /// Like `drop_table`. With checks off also if foreign keys refer to the table: they stay, and wait for a
    /// table of this name that fits.
    pub fn drop_table_with(&self, name: &str, checks: ForeignKeyChecks) -> Result<()> {
        self.inner.ddl.drop_table(name, checks)
    }

    /// Like `truncate_table`. With checks off also if foreign keys refer to the table, whose rows stay.
    pub fn truncate_table_with(&self, name: &str, checks: ForeignKeyChecks) -> Result<()> {
        self.inner.ddl.truncate_table(name, checks)
    }

    /// Gives the table's columns other names, those of all of them in their order, once no transaction uses
    /// the table any more. Handles on it have to be opened again. Those on the tables whose foreign keys
    /// refer to it stay, and the foreign keys say the new names.
    pub fn rename_columns(&self, table: &str, names: &[&str]) -> Result<()> {
        self.inner.ddl.rename_columns(table, names)
    }

    /// Like `rename_table`; the table's constraints whose names begin with `constraints.from` begin with
    /// `constraints.to` then.
    pub fn rename_table_and_constraints(
        &self,
        from: &str,
        to: &str,
        constraints: ConstraintPrefix<'_>,
    ) -> Result<()> {
        self.inner.ddl.rename_table(from, to, Some(constraints))
    }
}
