//! Foreign keys as programs ask about them, and DDL that heeds them or does not.

use std::path::Path;

use crate::base::Result;
use crate::catalog::{End, ForeignKey, OpenTable, TableDef, Tables};
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

/// The foreign key of `child` with this number.
fn reference(tables: &Tables, child: &OpenTable, number: usize) -> Result<Reference> {
    let key = child.links.keys()[number].clone();
    let parent = match tables.parent_of(child, number)? {
        End::Open((parent, index)) => parent.def.all_indexes().nth(index).map(|index| {
            let nullable = nullable(&parent.def, &key.parent_columns);
            ReferencedParent {
                index: index.name.clone(),
                nullable,
            }
        }),
        End::Vacant | End::Nobody => None,
    };
    Ok(Reference {
        child: child.def.name.clone(),
        nullable: nullable(&child.def, &key.columns),
        key,
        parent,
    })
}

impl Table {
    /// Whether there are any of these. Costs next to nothing.
    pub fn is_referenced(&self) -> bool {
        self.table.links.has_children()
    }
}

impl Database {
    /// The foreign keys of a table.
    pub fn foreign_keys(&self, table: &Table) -> Result<Vec<Reference>> {
        let keys = 0..table.table.def.foreign_keys.len();
        let tables = &self.inner.core.tables;
        keys.map(|number| reference(tables, &table.table, number))
            .collect()
    }

    /// A number that is another one as soon as `foreign_keys` or `referencing` may say something else of any
    /// table, and now and then without that. Costs next to nothing.
    pub fn foreign_keys_changed(&self) -> u64 {
        self.inner.core.tables.changes()
    }

    /// The foreign keys that refer to a table, its own among them.
    pub fn referencing(&self, table: &Table) -> Result<Vec<Reference>> {
        let tables = &self.inner.core.tables;
        let mut all = Vec::new();
        for link in table.table.links.children().iter() {
            if let End::Open((child, keys)) = tables.child_of(&table.table, link)? {
                for key in keys.iter() {
                    all.push(reference(tables, &child, key.number)?);
                }
            }
        }
        Ok(all)
    }

    /// Like `create_table`. With checks off the parents of its foreign keys need not be there yet: until they
    /// are, only rows with a NULL in the columns, or those of a transaction that does not check, can be
    /// inserted.
    pub fn create_table_with(&self, def: &TableDef, checks: ForeignKeyChecks) -> Result<Table> {
        Ok(Table {
            table: self.inner.ddl.create_table(def, checks, None)?,
        })
    }

    /// Like `create_table_with`. The table's file is in this directory, an absolute path outside of the data
    /// directory, in a directory of its own for each schema; both are made if they are not there, and never
    /// removed. The data directory has a symbolic link to the file, by which it is found. `TRUNCATE` leaves
    /// the table there; so does `RENAME`, also to another schema.
    ///
    /// # Errors
    ///
    /// `Invalid` for a directory that can't be used, `AlreadyExists` for a file in the way, `Io` for what the
    /// operating system refuses.
    pub fn create_table_in(
        &self,
        directory: impl AsRef<Path>,
        def: &TableDef,
        checks: ForeignKeyChecks,
    ) -> Result<Table> {
        let directory = Some(directory.as_ref());
        Ok(Table {
            table: self.inner.ddl.create_table(def, checks, directory)?,
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
    /// `constraints.to` then. `checks` counts for a copy, whose name begins with `#`, and which takes the
    /// place of a table that has stepped aside: with checks on it has the indexes that foreign keys have had
    /// there.
    pub fn rename_table_with(
        &self,
        from: &str,
        to: &str,
        constraints: Option<ConstraintPrefix<'_>>,
        checks: ForeignKeyChecks,
    ) -> Result<()> {
        self.inner.ddl.rename_table(from, to, constraints, checks)
    }
}
