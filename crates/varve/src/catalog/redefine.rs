//! What may change in a table's definition while its rows stay as they are, and what if they are written
//! anew.
//!
//! A column is the one with its id, wherever it stands. Rows have their columns in the order of ids, and
//! carry the schema version that they were written with (ROW-3). So columns change places at will, and a
//! column that is added reads as its default in the rows that are there. One that goes is remembered: rows
//! have it until they change, and its long values are theirs until then.

use crate::base::{Error, Result};
use crate::row::{ColumnDef, ColumnType, GoneColumn, KeyPart};

use super::def::{IndexDef, TableDef};
use super::derived::SystemTime;
use super::foreign::ForeignKey;

/// What becomes of a table's rows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rows {
    Kept,
    /// Indexes may have gone and come again in between.
    KeptInSteps,
    Written,
}

impl TableDef {
    /// This definition with the columns of `to`, in their order, the greatest lengths of their values, and
    /// its indexes. Names of columns may differ; `ColumnNames` has them. Ids, places, how pages are stored,
    /// foreign keys and the comment stay what they are, whatever `to` has. Text of a column without an index
    /// may get another collation: that its bytes mean the same there the caller knows.
    ///
    /// A column of `to` is the one with its id, whatever it is called; one with another id is new, and
    /// needs a default unless it takes NULL. (If a column that went had this id, it gets one of its own.)
    /// Those that are missing go. A column without an index may begin to take NULL. An index of `to` is the
    /// one with its id; without an id it is the one of that name with the same parts. If there is none it
    /// is new. New columns, or another order of them, and new indexes don't come together: rows that an
    /// index is built of are read by the old definition.
    pub fn redefined(&self, to: &TableDef) -> Result<TableDef> {
        let def = self.redefined_with(to, Rows::Kept)?;
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

    /// This definition with the columns and indexes of `to`, the primary key too, for another table that gets
    /// the rows (`table/rebuild.rs`). Of the columns that `redefined` takes none has to begin to take NULL,
    /// they may cease to, and new ones may be computed, or the AUTO_INCREMENT column: rows are written anew.
    /// Ids of tables and indexes are not given yet.
    pub fn rebuilt(&self, to: &TableDef) -> Result<TableDef> {
        if to.defect.is_some() {
            to.validate()?;
        }
        let mut def = self.clone();
        self.redefine_columns(to, &mut def, Rows::Written)?;
        // No row has them any more.
        def.gone.clear();
        // Rows are found again by what they have.
        if !self.has_row_id() && to.has_row_id() {
            return Err(self.refusal("no primary key, where there was one,".into()));
        }
        self.check_filled_alike(to)?;
        (def.auto_increment, def.computed) = (to.auto_increment, to.computed.clone());
        def.system_time.clone_from(&to.system_time);
        (def.compression, def.encryption) = (to.compression, to.encryption);
        def.primary.parts.clone_from(&to.primary.parts);
        def.indexes.clone_from(&to.indexes);
        def.foreign_keys.clear();
        def.validate()?;
        def.foreign_keys.clone_from(&self.foreign_keys);
        Ok(def)
    }

    /// Columns of `to` have their values from where they have them here.
    fn check_filled_alike(&self, to: &TableDef) -> Result<()> {
        let is_filled_alike = self.counted_beside(to) == to.counted_beside(self)
            && self.computed_beside(to) == to.computed_beside(self)
            && self.times() == to.times();
        match is_filled_alike {
            true => Ok(()),
            false => Err(self.refusal("a column that is filled in another way".into())),
        }
    }

    /// The same where several such changes may lie in between.
    pub(crate) fn redefined_in_steps(&self, to: &TableDef) -> Result<TableDef> {
        self.redefined_with(to, Rows::KeptInSteps)
    }

    fn redefined_with(&self, to: &TableDef, rows: Rows) -> Result<TableDef> {
        let refused = |what: String| Err(self.refusal(what));
        if to.defect.is_some() {
            to.validate()?;
        }
        let mut def = self.clone();
        self.redefine_columns(to, &mut def, rows)?;
        if !same_parts((self, &self.primary), (to, &to.primary)) {
            return refused("another primary key".into());
        }
        self.check_filled_alike(to)?;
        let filled = to.computed.iter().chain(&to.auto_increment);
        let mut filled = filled.filter_map(|&at| def.columns.get(at));
        if let Some(new) = filled.find(|new| self.columns.iter().all(|own| own.id != new.id)) {
            return refused(format!(
                "a new column {}, which is computed or counted,",
                new.name
            ));
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

    /// Gives `def`, which is as this one is, the columns of `to`.
    fn redefine_columns(&self, to: &TableDef, def: &mut TableDef, rows: Rows) -> Result<()> {
        let refused = |what: String| Err(self.refusal(what));
        let with_id = |columns: &[ColumnDef], id| columns.iter().position(|c| c.id == id);
        let comes = |column: &ColumnDef| with_id(&self.columns, column.id).is_none();
        let goes = |own: &ColumnDef| with_id(&to.columns, own.id).is_none();
        let is_stored_otherwise =
            |column: &ColumnDef| comes(column) || self.begins_to_take_null(column, to, rows);
        if to.columns.iter().any(is_stored_otherwise) || self.columns.iter().any(goes) {
            let Some(version) = self.schema_version.checked_add(1) else {
                return refused("one more version".into());
            };
            def.schema_version = version;
        }
        for own in self.columns.iter().filter(|own| goes(own)) {
            let name = &own.name;
            let is_it = |column: &String| column.eq_ignore_ascii_case(name);
            let has_it = |key: &ForeignKey| {
                let refers_here = key.parent == self.name;
                key.columns.iter().any(is_it)
                    || (refers_here && key.parent_columns.iter().any(is_it))
            };
            if self.foreign_keys.iter().any(has_it) {
                return refused(format!("no column {name}, which a foreign key has,"));
            }
            let mut column = own.clone();
            column.default = None;
            def.gone.push(GoneColumn {
                column,
                gone_in: def.schema_version,
            });
        }
        def.columns.clear();
        let mut last = self.last_column_id().max(to.last_column_id());
        for column in &to.columns {
            let mut column = column.clone();
            match with_id(&self.columns, column.id) {
                None => {
                    (column.added_in, column.nullable_since) = (def.schema_version, 1);
                    // A column that went had its id.
                    if self.gone.iter().any(|gone| gone.column.id == column.id) {
                        last += 1;
                        column.id = last;
                    }
                }
                Some(at) => {
                    let own = &self.columns[at];
                    let begins = self.begins_to_take_null(&column, to, rows);
                    let is_other =
                        own.nullable != column.nullable && !begins && rows != Rows::Written;
                    // A new index is built of rows that are read by the old definition.
                    let is_bare = self.is_bare(own.id, to, rows)
                        && (rows == Rows::KeptInSteps || !to.has_key_of(own.id, to.all_indexes()));
                    if !takes_all(own.ty, column.ty, is_bare) || is_other {
                        return refused(format!("another type of column {}", own.name));
                    }
                    (column.added_in, column.default) = (own.added_in, own.default.clone());
                    column.nullable_since = match begins {
                        true => def.schema_version,
                        false => own.nullable_since,
                    };
                }
            }
            def.columns.push(column);
        }
        Ok(())
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

    /// A column of `to`, which this table becomes, takes NULL, and here it does not. Keys say of their
    /// columns whether they do.
    fn begins_to_take_null(&self, column: &ColumnDef, to: &TableDef, rows: Rows) -> bool {
        let own = self.columns.iter().find(|own| own.id == column.id);
        let begins = own.is_some_and(|own| column.nullable && !own.nullable);
        begins && self.is_bare(column.id, to, rows)
    }

    /// No index of this table, which becomes `to`, has the column with this id: in several steps, none that
    /// stays.
    fn is_bare(&self, id: u32, to: &TableDef, rows: Rows) -> bool {
        if rows != Rows::KeptInSteps {
            return !self.has_key_of(id, self.all_indexes());
        }
        let stays = |index: &&IndexDef| self.same_index(to, index).is_some();
        !to.has_key_of(id, to.indexes.iter().filter(stays).chain([&to.primary]))
    }

    /// One of these indexes of the table has the column with this id.
    fn has_key_of<'a>(&self, id: u32, indexes: impl Iterator<Item = &'a IndexDef>) -> bool {
        let mut parts = indexes.flat_map(|index| &index.parts);
        parts.any(|part| self.columns.get(part.column).map(|column| column.id) == Some(id))
    }

    /// The id of the AUTO_INCREMENT column, if `other` has this column, too.
    fn counted_beside(&self, other: &TableDef) -> Vec<Option<u32>> {
        self.ids_beside(other, self.auto_increment)
    }

    /// The ids of computed columns that `other` has, too.
    fn computed_beside(&self, other: &TableDef) -> Vec<Option<u32>> {
        self.ids_beside(other, self.computed.iter().copied())
    }

    /// The ids of columns at these positions that `other` has, too.
    fn ids_beside(
        &self,
        other: &TableDef,
        columns: impl IntoIterator<Item = usize>,
    ) -> Vec<Option<u32>> {
        let mut ids = self.ids(columns);
        ids.retain(|id| other.columns.iter().any(|column| Some(column.id) == *id));
        ids
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

/// Whether a column of type `to` takes all that one of type `from` has, stored as it is, in rows and in keys
/// (FREEZE-2). Nothing depends on the collation of one that no index has.
fn takes_all(from: ColumnType, to: ColumnType, is_bare: bool) -> bool {
    use ColumnType::{Bytes, Text};
    match (from, to) {
        (Bytes(from), Bytes(to)) => from <= to,
        (
            Text { collation, .. },
            Text {
                collation: other, ..
            },
        ) => (is_bare || collation == other) && from.max_len() <= to.max_len(),
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
