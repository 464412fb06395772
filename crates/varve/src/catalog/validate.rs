//! What makes a table definition usable: names, limits, and that everything it refers to is there.
//!
//! Establishes DEF-1, for definitions of callers and for those read from disk alike. Nothing here panics.

use std::collections::HashSet;

use crate::base::{Error, Result};
use crate::encryption::Encryption;
use crate::row::{
    ColumnDef, ColumnType, GoneColumn, KeyPart, MAX_KEY_PARTS, MAX_KEY_SOURCE_BYTES, MAX_ROW_BYTES,
};

use super::def::{
    IndexDef, MAX_COLUMNS, MAX_FOREIGN_KEYS, MAX_INDEXES, MAX_NAME_BYTES, PRIMARY_NAME, TableDef,
};
use super::foreign::{ForeignKey, ReferentialAction};

impl TableDef {
    /// Is this a table that can be created? The error says what is wrong with what (DEF-1).
    pub fn validate(&self) -> Result<()> {
        self.check().map_err(|what| Error::Invalid {
            what: format!("table {}: {what}", self.name.escape_debug()),
        })
    }

    fn check(&self) -> Result<(), String> {
        if let Some(defect) = &self.defect {
            return Err(defect.clone());
        }
        check_table_name(&self.name)?;
        if self.schema_version == 0 {
            return Err("schema versions start at 1".into());
        }
        self.check_columns()?;
        if self.indexes.len() > MAX_INDEXES {
            return Err(format!(
                "{} indexes, the limit is {MAX_INDEXES}",
                self.indexes.len()
            ));
        }
        let mut names = HashSet::new();
        for (number, index) in self.all_indexes().enumerate() {
            self.check_index(number, index)
                .map_err(|e| format!("index {}: {e}", index.name))?;
            if !names.insert(index.name.to_lowercase()) {
                return Err(format!("two indexes are called {}", index.name));
            }
        }
        if let Some(compression) = self.compression.filter(|c| !c.is_valid()) {
            return Err(format!(
                "compression of level {}, which is none",
                compression.level
            ));
        }
        if self.encryption.key < Encryption::FIRST_KEY {
            return Err("encryption keys have numbers from 1 on".into());
        }
        self.check_foreign_keys()?;
        self.check_derived()?;
        self.check_auto_increment()
    }

    fn check_derived(&self) -> Result<(), String> {
        let time = self.system_time.iter();
        let times = time.flat_map(|t| [&t.start, &t.end].into_iter().chain(&t.unversioned));
        if let Some(column) = self
            .computed
            .iter()
            .chain(times)
            .find(|c| **c >= self.columns.len())
        {
            return Err(format!("column number {column} does not exist"));
        }
        let Some(time) = &self.system_time else {
            return Ok(());
        };
        let (start, end) = (&self.columns[time.start], &self.columns[time.end]);
        let is_time = |column: &ColumnDef| {
            column.ty == ColumnType::Fixed(time.forever.len() as u32) && !column.nullable
        };
        match time.start != time.end && is_time(start) && is_time(end) {
            true => Ok(()),
            false => Err(format!(
                "columns {} and {} can't be the times of history: these are two, of {} bytes each, and never NULL",
                start.name,
                end.name,
                time.forever.len()
            )),
        }
    }

    fn check_foreign_keys(&self) -> Result<(), String> {
        if self.foreign_keys.len() > MAX_FOREIGN_KEYS {
            return Err(format!(
                "{} foreign keys, the limit is {MAX_FOREIGN_KEYS}",
                self.foreign_keys.len()
            ));
        }
        let mut names = HashSet::new();
        for key in &self.foreign_keys {
            self.check_foreign_key(key)
                .map_err(|e| format!("foreign key {}: {e}", key.name.escape_debug()))?;
            if !names.insert(key.name.to_lowercase()) {
                return Err(format!("two foreign keys are called {}", key.name));
            }
        }
        Ok(())
    }

    /// What it is that this foreign key lacks: an index of its own table (FK-1).
    pub(crate) fn check_served(&self, key: &ForeignKey) -> Result<()> {
        match self.serves(key) {
            true => Ok(()),
            false => Err(Error::invalid(format!(
                "table {}: foreign key {}: no index begins with its columns ({}), whole and in this order; add one",
                self.name,
                key.name.escape_debug(),
                key.columns.join(", ")
            ))),
        }
    }

    fn check_foreign_key(&self, key: &ForeignKey) -> Result<(), String> {
        check_name(&key.name)?;
        check_table_name(&key.parent)?;
        let (own, its) = (key.columns.len(), key.parent_columns.len());
        if own != its || own == 0 {
            return Err(format!("{own} columns refer to {its} of the parent"));
        }
        key.parent_columns.iter().try_for_each(|c| check_name(c))?;
        let columns = self
            .positions(&key.columns)
            .map_err(|name| format!("names column {name}, which does not exist"))?;
        let sets_null = [key.on_delete, key.on_update].contains(&ReferentialAction::SetNull);
        let takes_no_null = |c: &&usize| !self.columns[**c].nullable;
        match columns.iter().find(takes_no_null) {
            Some(&c) if sets_null => Err(format!(
                "SET NULL, and column {} takes no NULL",
                self.columns[c].name
            )),
            _ => Ok(()),
        }
    }

    fn check_columns(&self) -> Result<(), String> {
        // None at all if those of its user's table are all virtual.
        let columns = self.columns.len() + self.gone.len();
        if columns > MAX_COLUMNS {
            let had = match self.gone.len() {
                0 => String::new(),
                n => format!(", with {n} that are gone from it"),
            };
            return Err(format!(
                "{columns} columns{had}, the limit is {MAX_COLUMNS}"
            ));
        }
        let (mut names, mut ids) = (HashSet::new(), HashSet::new());
        for column in &self.columns {
            check_column(column, self.schema_version)
                .map_err(|e| format!("column {}: {e}", column.name.escape_debug()))?;
            if !names.insert(column.name.to_lowercase()) {
                return Err(format!("two columns are called {}", column.name));
            }
            if column.id == 0 || !ids.insert(column.id) {
                return Err(format!("column {} has no id of its own", column.name));
            }
        }
        for GoneColumn { column, gone_in } in &self.gone {
            let name = column.name.escape_debug();
            check_stored(column, self.schema_version).map_err(|e| format!("column {name}: {e}"))?;
            if column.id == 0 || !ids.insert(column.id) {
                return Err(format!(
                    "column {name}, which is gone, has no id of its own"
                ));
            }
            if *gone_in <= column.added_in || *gone_in > self.schema_version {
                return Err(format!(
                    "column {name} gone in schema version {gone_in}; it came in {}, and the table is at {}",
                    column.added_in, self.schema_version
                ));
            }
        }
        match self.row_format() {
            Ok(_) => Ok(()),
            Err(e) => Err(e.to_string()),
        }
    }

    fn check_index(&self, number: usize, index: &IndexDef) -> Result<(), String> {
        check_name(&index.name)?;
        if number == 0 {
            if index.name != PRIMARY_NAME || !index.unique {
                return Err(format!(
                    "the clustered index is unique and called {PRIMARY_NAME}"
                ));
            }
        } else if index.parts.is_empty() {
            return Err("no columns".into());
        }
        if index.parts.len() > MAX_KEY_PARTS {
            return Err(format!(
                "{} columns, the limit is {MAX_KEY_PARTS}",
                index.parts.len()
            ));
        }
        let mut used = HashSet::new();
        let mut bytes = 0;
        for part in &index.parts {
            let Some(column) = self.columns.get(part.column) else {
                return Err(format!(
                    "names column number {}, which does not exist",
                    part.column
                ));
            };
            if !used.insert(part.column) {
                return Err(format!("column {} is in it twice", column.name));
            }
            if number == 0 && column.nullable {
                return Err(format!("column {} takes NULL", column.name));
            }
            bytes += part_bytes(part, column)?;
        }
        if bytes > MAX_KEY_SOURCE_BYTES {
            return Err(format!(
                "its columns have up to {bytes} bytes, the limit is {MAX_KEY_SOURCE_BYTES}"
            ));
        }
        Ok(())
    }

    /// How many parts of the clustered key count in the order of a secondary index's entries: as many as have
    /// [`MAX_KEY_SOURCE_BYTES`] with the index's own parts; those that are wholly among these are not counted
    /// (TAIL-2). So does MariaDB's server extend keys, but for this: where it stops it compares the part's
    /// number with how many it would add, and takes all if that is not less.
    pub(super) fn ordered_parts(&self, index: &IndexDef) -> usize {
        let bytes_of = |part: &KeyPart| part_bytes(part, &self.columns[part.column]);
        let bytes = |part| bytes_of(part).unwrap_or(MAX_KEY_SOURCE_BYTES);
        let is_own = |part: &KeyPart| {
            index
                .parts
                .iter()
                .any(|own| own.column == part.column && own.prefix_len.is_none())
        };
        let parts = &self.primary.parts;
        let others = || (0..parts.len()).filter(|n| !is_own(&parts[*n]));
        let mut all = index.parts.iter().map(bytes).sum::<usize>();
        let end = others().find(|n| {
            all += bytes(&parts[*n]);
            all > MAX_KEY_SOURCE_BYTES
        });
        let end = end.filter(|end| *end < others().count());
        let end = end.unwrap_or(parts.len());
        others()
            .take_while(|n| *n < end)
            .last()
            .map_or(0, |n| n + 1)
    }

    fn check_auto_increment(&self) -> Result<(), String> {
        let Some(at) = self.auto_increment else {
            return Ok(());
        };
        let column = self
            .columns
            .get(at)
            .ok_or("AUTO_INCREMENT names no column")?;
        let counts = matches!(
            column.ty,
            ColumnType::Int { .. } | ColumnType::Float | ColumnType::Double
        );
        if !counts {
            return Err(format!(
                "AUTO_INCREMENT column {} is no number",
                column.name
            ));
        }
        if !self
            .all_indexes()
            .any(|i| i.parts.first().is_some_and(|p| p.column == at))
        {
            return Err(format!(
                "AUTO_INCREMENT column {} is not the first column of an index",
                column.name
            ));
        }
        Ok(())
    }
}

/// The most source bytes that a key part can have.
fn part_bytes(part: &KeyPart, column: &ColumnDef) -> Result<usize, String> {
    let name = &column.name;
    let max = column.ty.max_len();
    match (part.prefix_len, column.ty) {
        (Some(0), _) => Err(format!("a prefix of no bytes of column {name}")),
        // A character has at least one byte; what it has more is checked when a row is written.
        (Some(n), ColumnType::Text { .. } | ColumnType::Bytes(_) | ColumnType::Fixed(_)) => {
            Ok(max.min(n as usize))
        }
        (Some(_), ty) => Err(format!("a prefix of column {name}, which is {ty}")),
        (None, _) if max > MAX_KEY_SOURCE_BYTES => Err(format!(
            "values of column {name} may have {max} bytes; give a prefix length (limit {MAX_KEY_SOURCE_BYTES})"
        )),
        (None, _) => Ok(max),
    }
}

fn check_column(column: &ColumnDef, schema_version: u16) -> Result<(), String> {
    check_stored(column, schema_version)?;
    if column.added_in > 1 || column.default.is_some() {
        column
            .check(column.default.as_deref())
            .map_err(|e| format!("its default does not fit: {e}"))?;
    }
    Ok(())
}

/// The same, whatever older rows read as.
fn check_stored(column: &ColumnDef, schema_version: u16) -> Result<(), String> {
    check_name(&column.name)?;
    match column.ty {
        ColumnType::Int { bytes, .. } if !matches!(bytes, 1 | 2 | 3 | 4 | 8) => {
            return Err(format!("integers have 1, 2, 3, 4 or 8 bytes, not {bytes}"));
        }
        ColumnType::Fixed(n) if n == 0 || n as usize > MAX_ROW_BYTES => {
            return Err(format!(
                "a fixed length of {n} bytes; 1 to {MAX_ROW_BYTES} are possible"
            ));
        }
        _ => {}
    }
    if column.added_in == 0 || column.added_in > schema_version {
        return Err(format!(
            "added in schema version {}, the table is at {schema_version}",
            column.added_in
        ));
    }
    if column.nullable_since == 0 || column.nullable_since > schema_version {
        return Err(format!(
            "takes NULL since schema version {}, the table is at {schema_version}",
            column.nullable_since
        ));
    }
    Ok(())
}

fn check_name(name: &str) -> Result<(), String> {
    if name.is_empty() || name.len() > MAX_NAME_BYTES {
        return Err(format!(
            "a name of {} bytes; 1 to {MAX_NAME_BYTES} are possible",
            name.len()
        ));
    }
    // SQL has any other character in names.
    match name.contains('\0') {
        true => Err("a zero byte in a name".into()),
        false => Ok(()),
    }
}

/// `schema/table`, both fit for a file name on its own.
fn check_table_name(name: &str) -> Result<(), String> {
    let Some((schema, table)) = name.split_once('/') else {
        return Err("a table's name is schema/table".into());
    };
    for part in [schema, table] {
        check_name(part)?;
        let is_unfit = |c: char| c.is_control() || c == '/' || c == '\\';
        if part.contains(is_unfit) || part.starts_with('.') {
            return Err("a name that can't be a file's".into());
        }
    }
    Ok(())
}
