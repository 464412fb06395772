//! What may change in a table's definition while its rows stay as they are.
//!
//! A column is the one with its id, wherever it stands. Rows have their columns in the order of ids, and
//! carry the schema version that they were written with (ROW-3). So columns change places at will, and a
//! column that is added reads as its default in the rows that are there.

use crate::base::{Error, Result};
use crate::row::{ColumnDef, ColumnType, KeyPart};

use super::def::{IndexDef, TableDef};
use super::derived::SystemTime;

impl TableDef {
    /// This definition with the columns of `to`, in their order, the greatest lengths of their values, and
    /// its indexes. Names of columns may differ; `ColumnNames` has them. Ids, places, foreign keys and the
    /// comment stay what they are, whatever `to` has.
    ///
    /// A column of `to` is the one with its id, whatever it is called; one with another id is new, and needs
    /// a default unless it takes NULL. None may be missing. An index of `to` is the one with its id; without
    /// an id it is the one of that name with the same parts. If there is none it is new. New columns, or
    /// another order of them, and new indexes don't come together: rows that an index is built of are read by
    /// the old definition.
    pub fn redefined(&self, to: &TableDef) -> Result<TableDef> {
        let def = self.redefined_in_steps(to)?;
        let ids = |def: &TableDef| def.ids(0..def.columns.len());
        match ids(&def) != ids(self) && def.indexes_beyond(self).next().is_some() {
            false => Ok(def),
            true => Err(self.refusal("other columns, or places, and new indexes at once".into())),
        }
    }

    fn refusal(&self, what: String) -> Error {
        let what = format!("{what} of table {}, without copying its rows", self.name);
        Error::Unsupported { what }
    }

    /// The same where several such changes may lie in between.
    pub(crate) fn redefined_in_steps(&self, to: &TableDef) -> Result<TableDef> {
        let refused = |what: String| Err(self.refusal(what));
        if to.defect.is_some() {
            to.validate()?;
        }
        let with_id = |columns: &[ColumnDef], id| columns.iter().position(|c| c.id == id);
        let is_missing = |own: &&ColumnDef| with_id(&to.columns, own.id).is_none();
        if let Some(missing) = self.columns.iter().find(is_missing) {
            return refused(format!("no column {}", missing.name));
        }
        let mut def = self.clone();
        if to.columns.len() > self.columns.len() {
            let Some(version) = self.schema_version.checked_add(1) else {
                return refused("one more version".into());
            };
            def.schema_version = version;
        }
        def.columns.clear();
        for column in &to.columns {
            let mut column = column.clone();
            match with_id(&self.columns, column.id) {
                None => column.added_in = def.schema_version,
                Some(at) => {
                    let own = &self.columns[at];
                    if !takes_all(own.ty, column.ty) || own.nullable != column.nullable {
                        return refused(format!("another type of column {}", own.name));
                    }
                    (column.added_in, column.default) = (own.added_in, own.default.clone());
                }
            }
            def.columns.push(column);
        }
        if !same_parts((self, &self.primary), (to, &to.primary)) {
            return refused("another primary key".into());
        }
        let is_filled_alike = self.ids(self.auto_increment) == to.ids(to.auto_increment)
            && self.ids(self.computed.iter().copied()) == to.ids(to.computed.iter().copied())
            && self.times() == to.times();
        if !is_filled_alike {
            return refused("a column that is filled in another way".into());
        }
        (def.auto_increment, def.computed) = (to.auto_increment, to.computed.clone());
        def.system_time.clone_from(&to.system_time);
        def.primary.parts = moved_parts(&self.primary, &to.primary);
        def.indexes.clear();
        for index in &to.indexes {
            let Some(own) = self.same_index(to, index) else {
                def.indexes.push(index.clone());
                continue;
            };
            if own.unique != index.unique || !same_parts((self, own), (to, index)) {
                return refused(format!("another index {}", own.name));
            }
            if def.indexes.iter().any(|index| index.id == own.id) {
                return Err(Error::invalid(format!(
                    "index {} of table {} twice, as {}",
                    own.name, self.name, index.name
                )));
            }
            let mut own = own.clone();
            own.parts = moved_parts(&own, index);
            own.name.clone_from(&index.name);
            def.indexes.push(own);
        }
        let come_or_go = def.indexes_beyond(self).chain(self.indexes_beyond(&def));
        if come_or_go.count() > 0 {
            def.indexes_at_first = self.trees_at_first() as u16;
        }
        def.foreign_keys.clear();
        def.validate()?;
        def.foreign_keys.clone_from(&self.foreign_keys);
        Ok(def)
    }

    /// The secondary indexes that `other` does not have, each with its place among them.
    pub(crate) fn indexes_beyond(
        &self,
        other: &TableDef,
    ) -> impl Iterator<Item = (usize, &IndexDef)> {
        let has_it = |index: &IndexDef| other.indexes.iter().any(|its| its.id == index.id);
        let all = self.indexes.iter().enumerate();
        all.filter(move |(_, index)| !has_it(index))
    }

    /// The index of this table that `other` is, an index of `to`.
    fn same_index(&self, to: &TableDef, other: &IndexDef) -> Option<&IndexDef> {
        let is_it = |own: &&IndexDef| match other.id.0 {
            0 => {
                let is_called_so = own.name.eq_ignore_ascii_case(&other.name);
                is_called_so && own.unique == other.unique && same_parts((self, own), (to, other))
            }
            id => own.id.0 == id,
        };
        self.indexes.iter().find(is_it)
    }

    /// The ids of columns at these positions.
    fn ids(&self, columns: impl IntoIterator<Item = usize>) -> Vec<Option<u32>> {
        let id = |at: usize| self.columns.get(at).map(|column| column.id);
        columns.into_iter().map(id).collect()
    }

    /// What there is of history, by the ids of columns.
    fn times(&self) -> Option<(Vec<Option<u32>>, &[u8])> {
        let time = self.system_time.as_ref()?;
        let SystemTime {
            start,
            end,
            forever,
            unversioned,
        } = time;
        let columns = [*start, *end]
            .into_iter()
            .chain(unversioned.iter().copied());
        Some((self.ids(columns), forever))
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

/// Whether two indexes, each of its table, are on the same columns.
fn same_parts((a_table, a): (&TableDef, &IndexDef), (b_table, b): (&TableDef, &IndexDef)) -> bool {
    let known = |table: &TableDef, part: &KeyPart| {
        let id = table.columns.get(part.column).map(|column| column.id);
        (id, part.descending, part.prefix_len)
    };
    let of_a = a.parts.iter().map(|part| known(a_table, part));
    of_a.eq(b.parts.iter().map(|part| known(b_table, part)))
}

/// The parts of `own`, where the columns of the same parts of `to` are.
fn moved_parts(own: &IndexDef, to: &IndexDef) -> Vec<KeyPart> {
    let parts = own.parts.iter().zip(&to.parts);
    parts
        .map(|(own, to)| KeyPart {
            column: to.column,
            ..own.clone()
        })
        .collect()
}
