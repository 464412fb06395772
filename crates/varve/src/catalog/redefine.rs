//! What may change in a table's definition while its rows and entries stay as they are.

use crate::base::{Error, Result};
use crate::row::{ColumnType, KeyPart};

use super::def::{IndexDef, TableDef};

impl TableDef {
    /// This definition with the names of indexes and the greatest lengths of values that `to` has. Of all
    /// else only the names of columns may differ, which `ColumnNames` changes. Ids, places, foreign keys and
    /// the comment stay what they are, whatever `to` has.
    pub fn redefined(&self, to: &TableDef) -> Result<TableDef> {
        to.validate()?;
        let refused = |what: String| {
            let what = format!("{what} of table {}, without copying its rows", self.name);
            Err(Error::Unsupported { what })
        };
        if self.columns.len() != to.columns.len() {
            return refused("another number of columns".into());
        }
        for (from, to) in self.columns.iter().zip(&to.columns) {
            if !takes_all(from.ty, to.ty) || from.nullable != to.nullable {
                return refused(format!("another type of column {}", from.name));
            }
        }
        let are_same = |a: &IndexDef, b: &IndexDef| a.unique == b.unique && same_parts(a, b);
        let mut indexes = self.all_indexes().zip(to.all_indexes());
        if self.indexes.len() != to.indexes.len() || !indexes.all(|(a, b)| are_same(a, b)) {
            return refused("another index".into());
        }
        let (counted, computed) = (self.auto_increment, &self.computed);
        if (counted, computed, &self.system_time)
            != (to.auto_increment, &to.computed, &to.system_time)
        {
            return refused("a column that is filled in another way".into());
        }
        let mut def = self.clone();
        for (column, to) in def.columns.iter_mut().zip(&to.columns) {
            column.ty = to.ty;
        }
        for (index, to) in def.indexes.iter_mut().zip(&to.indexes) {
            index.name.clone_from(&to.name);
        }
        Ok(def)
    }
}

/// Whether a column of type `to` takes all that one of type `from` has, stored as it is.
fn takes_all(from: ColumnType, to: ColumnType) -> bool {
    use ColumnType::{Bytes, Text};
    match (from, to) {
        (Bytes(from), Bytes(to)) => from <= to,
        (
            Text { collation, .. },
            Text {
                collation: other, ..
            },
        ) => collation == other && from.max_len() <= to.max_len(),
        _ => from == to,
    }
}

fn same_parts(a: &IndexDef, b: &IndexDef) -> bool {
    let known = |part: &KeyPart| (part.column, part.descending, part.prefix_len);
    a.parts.iter().map(known).eq(b.parts.iter().map(known))
}
