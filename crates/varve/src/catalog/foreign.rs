//! Foreign keys: what the definition of a child says of its parents, and which index serves what.
//!
//! A foreign key is part of the child's definition and names its parent, which need not exist: tables come
//! in any order, and a parent may be dropped and come back, while checks are off. Which tables are tied is
//! found out when they are opened (`links`).
//!
//! - **FK-1** A foreign key comes only where an index of its own table begins with its columns, whole and in
//!   their order, and keeps one as long as nobody drops it while checks are off. Without one, rows of the
//!   table get parents as ever, but no row can give up a key that others could refer to: nobody can tell
//!   whether one does.

use crate::base::{NoParent, Result};
use crate::row::{ColumnDef, ColumnType, KeyPart};

use super::def::{IndexDef, TableDef};

/// What becomes of the children of a row that is deleted, or whose key is changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ReferentialAction {
    /// The row stays as it is as long as it has children. They are looked for at once, as with `Restrict`,
    /// not at the end of the statement.
    #[default]
    NoAction,
    /// The same.
    Restrict,
    /// They are deleted too, or get the new key.
    Cascade,
    /// They lose their parent: their columns become NULL.
    SetNull,
}

impl ReferentialAction {
    /// The row can't go as long as it has children.
    pub fn refuses(self) -> bool {
        matches!(
            self,
            ReferentialAction::NoAction | ReferentialAction::Restrict
        )
    }
}

/// One foreign key. A row whose columns all have a value has a parent: a row of the table `parent` that has
/// the same values in `parent_columns`.
///
/// ```
/// use varve::{ColumnType, ForeignKey, ReferentialAction, TableDef};
/// let def = TableDef::new("shop/orders")
///     .column("id", ColumnType::u64())
///     .column("customer", ColumnType::u64())
///     .primary(&["id"])
///     .index("by_customer", &["customer"])
///     .foreign_key(
///         ForeignKey::new("orders_customer", &["customer"], "shop/customers", &["id"])
///             .on_delete(ReferentialAction::Cascade),
///     );
/// def.validate().unwrap();
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignKey {
    /// Of the constraint, without the schema.
    pub name: String,
    pub columns: Vec<String>,
    /// `schema/table`.
    pub parent: String,
    pub parent_columns: Vec<String>,
    pub on_delete: ReferentialAction,
    pub on_update: ReferentialAction,
    /// Of a table that is made to take another one's place, whose name begins with `#` until then: that one
    /// has this foreign key, too. The rows that it gets meanwhile are that one's, and are not checked again.
    /// Not stored.
    pub kept: bool,
}

impl ForeignKey {
    pub fn new(
        name: impl Into<String>,
        columns: &[&str],
        parent: impl Into<String>,
        parent_columns: &[&str],
    ) -> ForeignKey {
        let names = |columns: &[&str]| columns.iter().map(|&name| name.to_string()).collect();
        ForeignKey {
            name: name.into(),
            columns: names(columns),
            parent: parent.into(),
            parent_columns: names(parent_columns),
            on_delete: ReferentialAction::NoAction,
            on_update: ReferentialAction::NoAction,
            kept: false,
        }
    }

    pub fn on_delete(mut self, action: ReferentialAction) -> ForeignKey {
        self.on_delete = action;
        self
    }

    pub fn on_update(mut self, action: ReferentialAction) -> ForeignKey {
        self.on_update = action;
        self
    }
}

/// What the columns of a table are called before they are renamed, and after.
#[derive(Debug)]
pub struct ColumnNames {
    names: Vec<(String, String)>,
}

impl ColumnNames {
    /// What the columns of a table are called when it has the definition `to`.
    pub fn new(table: &TableDef, to: &TableDef) -> ColumnNames {
        let pair = |column: &ColumnDef| {
            let now = to.columns.iter().find(|now| now.id == column.id)?;
            Some((column.name.clone(), now.name.clone()))
        };
        let names = table.columns.iter().filter_map(pair).collect();
        ColumnNames { names }
    }

    /// In any case of ASCII letters, as `TableDef::column_index`.
    fn rename(&self, columns: &mut [String]) {
        for column in columns {
            let is_it = |(from, _): &&(String, String)| from.eq_ignore_ascii_case(column);
            if let Some((_, to)) = self.names.iter().find(is_it) {
                column.clone_from(to);
            }
        }
    }

    /// Of a foreign key to the table of this name.
    pub fn rename_parents(&self, key: &mut ForeignKey, table: &str) {
        if key.parent == table {
            self.rename(&mut key.parent_columns);
        }
    }

    /// In the foreign keys of the table's own definition.
    pub fn rename_in(&self, def: &mut TableDef) {
        for key in &mut def.foreign_keys {
            self.rename(&mut key.columns);
            self.rename_parents(key, &def.name);
        }
    }
}

/// Of a foreign key: its columns by number, and the index that begins with them.
#[derive(Clone, Debug)]
pub struct ChildColumns {
    pub columns: Vec<usize>,
    /// `None`: it was dropped while checks were off (FK-1).
    pub index: Option<usize>,
}

impl TableDef {
    /// Adds a foreign key.
    pub fn foreign_key(mut self, key: ForeignKey) -> TableDef {
        self.foreign_keys.push(key);
        self
    }

    /// The positions of these columns, or the first name that is no column's.
    pub(crate) fn positions<'a>(
        &self,
        names: &'a [String],
    ) -> std::result::Result<Vec<usize>, &'a str> {
        let position = |name: &'a String| self.column_index(name).ok_or(name.as_str());
        names.iter().map(position).collect()
    }

    /// Whether children follow `parent` to NULL by this foreign key, and can't: they don't take NULL. As
    /// InnoDB, only of a foreign key that restricts deletions.
    ///
    /// # Errors
    ///
    /// Why `parent` can't be its parent.
    pub fn brings_null(&self, key: &ForeignKey, parent: &TableDef) -> Result<bool, NoParent> {
        let (parent_columns, _) = self.parent_index(key, parent)?;
        let mut pairs = key.columns.iter().zip(parent_columns);
        let brings = |(column, its): (&String, usize)| {
            let own = self.column_index(column);
            parent.columns[its].nullable && own.is_some_and(|own| !self.columns[own].nullable)
        };
        let counts = key.on_delete == ReferentialAction::Restrict
            && key.on_update == ReferentialAction::Cascade;
        Ok(counts && pairs.any(brings))
    }

    /// The number of the first index that begins with these columns, whole and in this order. A secondary
    /// index goes on with the columns of the primary key.
    pub(crate) fn index_beginning_with(&self, columns: &[usize]) -> Option<usize> {
        let begins = |(number, index): (usize, &IndexDef)| {
            let behind = match number {
                0 => &[],
                _ => &self.primary.parts[..],
            };
            let mut parts = index.parts.iter().chain(behind);
            columns.iter().all(|&column| {
                let is = |part: &KeyPart| part.column == column && part.prefix_len.is_none();
                parts.next().is_some_and(is)
            })
        };
        self.all_indexes().enumerate().position(begins)
    }

    /// `None` for a foreign key that is not valid.
    pub(crate) fn child_columns(&self, key: &ForeignKey) -> Option<ChildColumns> {
        let columns = self.positions(&key.columns).ok()?;
        let index = self.index_beginning_with(&columns);
        Some(ChildColumns { columns, index })
    }

    /// Whether an index begins with the columns of this foreign key of the table (FK-1).
    pub(crate) fn serves(&self, key: &ForeignKey) -> bool {
        self.child_columns(key)
            .is_some_and(|own| own.index.is_some())
    }

    /// The parent's columns and the number of the index in which its rows are found, if `parent` can be this
    /// foreign key's parent.
    pub(crate) fn parent_index(
        &self,
        key: &ForeignKey,
        parent: &TableDef,
    ) -> std::result::Result<(Vec<usize>, usize), NoParent> {
        let its = self.parent_columns(key, parent)?;
        let index = parent.index_beginning_with(&its).ok_or(NoParent::Index)?;
        Ok((its, index))
    }

    /// The columns of `parent` to which this foreign key refers, if they have the same types.
    pub(crate) fn parent_columns(
        &self,
        key: &ForeignKey,
        parent: &TableDef,
    ) -> std::result::Result<Vec<usize>, NoParent> {
        let no_column = |name: &str| NoParent::Column(name.to_string());
        let own = self.positions(&key.columns).map_err(no_column)?;
        let its = parent.positions(&key.parent_columns).map_err(no_column)?;
        for (&own, &its) in own.iter().zip(&its) {
            let (column, parent_column) = (&self.columns[own], &parent.columns[its]);
            if !are_comparable(column.ty, parent_column.ty) {
                return Err(NoParent::Types {
                    column: column.name.clone(),
                    parent_column: parent_column.name.clone(),
                });
            }
        }
        Ok(its)
    }
}

/// Whether equal values of the two types are the same bytes, or the same by one collation. What one of them
/// can't hold is equal to nothing in it.
fn are_comparable(a: ColumnType, b: ColumnType) -> bool {
    let is_bytes = |ty| matches!(ty, ColumnType::Bytes(_) | ColumnType::Fixed(_));
    match (a, b) {
        (ColumnType::Text { collation: a, .. }, ColumnType::Text { collation: b, .. }) => a == b,
        _ => a == b || (is_bytes(a) && is_bytes(b)),
    }
}
