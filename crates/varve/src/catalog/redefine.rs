//! What may change in a table's definition while its rows stay as they are.

use crate::base::{Error, Result};
use crate::row::{ColumnType, KeyPart};

use super::def::{IndexDef, TableDef};

impl TableDef {
    /// This definition with the indexes of `to` and the greatest lengths of values that it has. Of all else
    /// only the names of columns may differ, which `ColumnNames` changes. Ids, places, foreign keys and the
    /// comment stay what they are, whatever `to` has.
    ///
    /// An index of `to` is the one with its id, whatever it is called; without an id the one of that name
    /// with the same parts. If there is none it is a new one.
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
        if !same_parts(&self.primary, &to.primary) {
            return refused("another primary key".into());
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
        def.indexes.clear();
        for index in &to.indexes {
            let Some(own) = self.same_index(index) else {
                def.indexes.push(index.clone());
                continue;
            };
            if own.unique != index.unique || !same_parts(own, index) {
                return refused(format!("another index {}", own.name));
            }
            let mut own = own.clone();
            own.name.clone_from(&index.name);
            def.indexes.push(own);
        }
        let has = |def: &TableDef, index: &IndexDef| def.indexes.iter().any(|i| i.id == index.id);
        let comes = |index: &IndexDef| !has(self, index);
        let goes = |index: &IndexDef| !has(&def, index);
        if def.indexes.iter().any(comes) || self.indexes.iter().any(goes) {
            def.indexes_at_first = self.trees_at_first() as u16;
        }
        Ok(def)
    }

    /// The index of this table that `other` is.
    fn same_index(&self, other: &IndexDef) -> Option<&IndexDef> {
        let is_it = |own: &&IndexDef| match other.id.0 {
            0 => {
                let is_called_so = own.name.eq_ignore_ascii_case(&other.name);
                is_called_so && own.unique == other.unique && same_parts(own, other)
            }
            id => own.id.0 == id,
        };
        self.indexes.iter().find(is_it)
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
