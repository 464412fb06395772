//! Whether a file has the rows of a table: by the definition that it carries.
//!
//! Rows are read by the file's definition and written by the table's, so versions of rows, ids of columns and
//! tables and columns that are gone may differ. What a row means may not.

use crate::base::{Error, Result};
use crate::row::{ColumnDef, ColumnType, KeyPart};

use super::def::{IndexDef, TableDef};

impl TableDef {
    /// Whether rows by `theirs`, which a file carries, are rows of this table, with the same keys.
    ///
    /// # Errors
    ///
    /// `SchemaMismatch` names the first difference.
    pub(crate) fn check_importable(&self, theirs: &TableDef) -> Result<()> {
        let refused = |what: String| Err(Error::SchemaMismatch { what });
        let (ours, found) = (self.columns.len(), theirs.columns.len());
        if ours != found {
            return refused(format!(
                "the table has {ours} columns, the file has {found}"
            ));
        }
        for (n, (own, other)) in self.columns.iter().zip(&theirs.columns).enumerate() {
            if !own.name.eq_ignore_ascii_case(&other.name) {
                let (n, own, other) = (n + 1, &own.name, &other.name);
                return refused(format!("column {n} is {own}, in the file {other}"));
            }
            let (is, in_file) = (described(own), described(other));
            if is != in_file {
                let name = &own.name;
                return refused(format!("column {name} is {is}, in the file {in_file}"));
            }
        }
        if self.auto_increment != theirs.auto_increment {
            return refused(format!(
                "the AUTO_INCREMENT column is {}, in the file {}",
                self.name_at(self.auto_increment),
                theirs.name_at(theirs.auto_increment)
            ));
        }
        if self.computed != theirs.computed || self.system_time != theirs.system_time {
            return refused("other columns are computed, or keep history, in the file".into());
        }
        self.check_same_index(&self.primary, theirs, &theirs.primary)?;
        for index in &self.indexes {
            match theirs.index_number(&index.name) {
                Some(n @ 1..) => self.check_same_index(index, theirs, &theirs.indexes[n - 1])?,
                _ => return refused(format!("the file has no index {}", index.name)),
            }
        }
        let mut more = theirs.indexes.iter();
        match more.find(|index| self.index_number(&index.name).is_none()) {
            Some(index) => refused(format!("the table has no index {}", index.name)),
            None => Ok(()),
        }
    }

    fn name_at(&self, column: Option<usize>) -> &str {
        column.map_or("none", |at| &self.columns[at].name)
    }

    fn check_same_index(&self, own: &IndexDef, theirs: &TableDef, other: &IndexDef) -> Result<()> {
        let (is, in_file) = (self.describe(own), theirs.describe(other));
        match is == in_file {
            true => Ok(()),
            false => Err(Error::SchemaMismatch {
                what: format!("index {} is {is}, in the file {in_file}", own.name),
            }),
        }
    }

    fn describe(&self, index: &IndexDef) -> String {
        let part = |part: &KeyPart| {
            let prefix = part.prefix_len.map(|len| format!("({len})"));
            let order = if part.descending { " DESC" } else { "" };
            let name = &self.columns[part.column].name;
            format!("{name}{}{order}", prefix.unwrap_or_default())
        };
        let parts: Vec<String> = index.parts.iter().map(part).collect();
        let unique = if index.unique { "unique " } else { "" };
        format!("{unique}({})", parts.join(", "))
    }
}

/// A column's type, and whether it takes NULL.
fn described(column: &ColumnDef) -> String {
    let ty = match column.ty {
        ColumnType::Int { bytes, signed } => {
            let sign = if signed { "" } else { " unsigned" };
            format!("integer of {bytes} bytes{sign}")
        }
        ColumnType::Float => "float".into(),
        ColumnType::Double => "double".into(),
        ColumnType::Fixed(n) => format!("{n} bytes"),
        ColumnType::Bytes(n) => format!("up to {n} bytes"),
        ColumnType::Text {
            collation,
            max_bytes,
        } => format!(
            "text of up to {max_bytes} bytes in collation {}",
            collation.0
        ),
    };
    let null = if column.nullable { "NULL" } else { "NOT NULL" };
    format!("{ty} {null}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::CollationId;

    fn table() -> TableDef {
        TableDef::new("a/t")
            .column("id", ColumnType::i64())
            .nullable("name", ColumnType::text(80))
            .column("code", ColumnType::Fixed(3))
            .primary(&["id"])
            .index("by_name", &["name", "code"])
    }

    #[test]
    fn the_first_difference_is_named() {
        let with = |change: &dyn Fn(&mut TableDef)| {
            let mut def = table();
            change(&mut def);
            def
        };
        let cases: [(TableDef, &str); 13] = [
            (
                table().column("more", ColumnType::i32()),
                "the table has 3 columns, the file has 4",
            ),
            (
                with(&|d| d.columns[1].name = "nome".into()),
                "column 2 is name, in the file nome",
            ),
            (
                with(&|d| d.columns[0].ty = ColumnType::i32()),
                "column id is integer of 8 bytes NOT NULL, in the file integer of 4 bytes NOT NULL",
            ),
            (
                with(&|d| d.columns[0].ty = ColumnType::u64()),
                "column id is integer of 8 bytes NOT NULL, in the file integer of 8 bytes unsigned NOT NULL",
            ),
            (
                with(&|d| d.columns[1].nullable = false),
                "NULL, in the file text of up to 80 bytes in collation 2147483650 NOT NULL",
            ),
            (
                with(&|d| d.columns[1].ty = ColumnType::text_in(CollationId(9), 80)),
                "in the file text of up to 80 bytes in collation 9 NULL",
            ),
            (
                with(&|d| d.auto_increment = Some(0)),
                "AUTO_INCREMENT column is none, in the file id",
            ),
            (
                with(&|d| d.computed = vec![2]),
                "other columns are computed",
            ),
            (
                with(&|d| d.primary.parts[0].descending = true),
                "index PRIMARY is unique (id), in the file unique (id DESC)",
            ),
            (
                with(&|d| d.indexes[0].unique = true),
                "index by_name is (name, code), in the file unique (name, code)",
            ),
            (
                with(&|d| d.indexes[0].parts[0].prefix_len = Some(4)),
                "index by_name is (name, code), in the file (name(4), code)",
            ),
            (
                with(&|d| d.indexes[0].name = "other".into()),
                "the file has no index by_name",
            ),
            (
                table().index("more", &["code"]),
                "the table has no index more",
            ),
        ];
        table().check_importable(&table()).unwrap();
        for (theirs, what) in cases {
            let refused = table().check_importable(&theirs).unwrap_err().to_string();
            assert!(refused.contains(what), "{refused}, expected {what}");
        }
        let mut older = table();
        (older.schema_version, older.id) = (7, crate::base::TableId(99));
        table().check_importable(&older).unwrap();
    }
}
