//! Table definitions as plain structs, and their translation into the engine's.

use std::ffi::{CString, c_char};
use std::mem::MaybeUninit;
use std::ptr;

use varve::{
    CollationId, ColumnDef, ColumnType, Compression, CompressionAlgorithm, Encryption,
    EncryptionMode, Error, IndexDef, KeyPart, SystemTime, TableDef,
};

use crate::choice::{choice, chosen};
use crate::collation::{c_text, text};
use crate::foreign::{KeyTexts, foreign_key, varve_foreign_key, varve_foreign_key_checks};
use crate::value::{slice_of, varve_value};

/// What kind of values a column holds.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum varve_type {
    /// Signed integer of `size` 1, 2, 3, 4 or 8 bytes.
    VARVE_INT = 1,
    /// Unsigned integer of `size` 1, 2, 3, 4 or 8 bytes.
    VARVE_UINT = 2,
    /// IEEE 754, 4 bytes; `size` is not looked at.
    VARVE_FLOAT = 3,
    /// IEEE 754, 8 bytes; `size` is not looked at.
    VARVE_DOUBLE = 4,
    /// Exactly `size` bytes, in memcmp order.
    VARVE_FIXED = 5,
    /// At most `size` bytes, in memcmp order.
    VARVE_BYTES = 6,
    /// At most `size` bytes of text, in the order of `collation`.
    VARVE_TEXT = 7,
}

choice!(
    varve_type: VARVE_INT, VARVE_UINT, VARVE_FLOAT, VARVE_DOUBLE, VARVE_FIXED, VARVE_BYTES, VARVE_TEXT,
);

#[repr(C)]
pub struct varve_column_def {
    pub name: *const c_char,
    pub kind: MaybeUninit<varve_type>,
    pub size: u32,
    pub collation: u32,
    pub nullable: bool,
    /// The value is computed from other columns of the row (varve_value_source).
    pub computed: bool,
    /// In a table with history: its changes make none.
    pub unversioned: bool,
    /// For varve_rebuild_prepare, of a new one: what it has is made of each row that is there
    /// (varve_value_source), as that of a column of another type is.
    pub converted: bool,
    /// For varve_redefinition_prepare: the name of the table's column that this one is. Null: it is the one
    /// of this name, or else a new one. Empty: it is a new one, whatever it is called. Columns of the table
    /// that none of these is go.
    pub was: *const c_char,
    /// What a new one has in the rows that are there.
    pub in_old_rows: varve_value,
}

/// How a table keeps its rows' history among its rows.
#[repr(C)]
pub struct varve_system_time {
    /// Positions of the two columns that say since when a row is true, and until when.
    pub start: u32,
    pub end: u32,
    /// What the second one is in a row that is true now.
    pub forever: varve_value,
}

#[repr(C)]
pub struct varve_key_part {
    /// Position in the table's list of columns.
    pub column: u32,
    /// 0 for the whole value, else only so many characters of a text or bytes of anything else.
    pub prefix: u32,
    pub descending: bool,
}

#[repr(C)]
pub struct varve_index_def {
    pub name: *const c_char,
    pub unique: bool,
    pub parts: *const varve_key_part,
    pub n_parts: u32,
    /// For varve_redefinition_prepare: the name of the table's index that this one is. Null: it is the one of
    /// this name if that has these parts, or else a new one.
    pub was: *const c_char,
}

/// Positions of the columns whose values are made of each row that is there.
///
/// # Safety
/// As for `table_def`.
pub unsafe fn converted_in(def: &varve_table_def) -> Vec<usize> {
    // SAFETY: the caller's promise.
    let columns = unsafe { slice_of(def.columns, def.n_columns as usize) };
    let converted = columns.iter().enumerate();
    let converted = converted.filter(|(_, column)| column.converted);
    converted.map(|(position, _)| position).collect()
}

/// The same, where `table` has the columns and indexes that were there before.
///
/// # Safety
/// As for `table_def`.
pub unsafe fn redefined_as(def: &varve_table_def, table: &TableDef) -> varve::Result<TableDef> {
    // SAFETY: the caller's promise.
    let (mut out, columns, indexes) = unsafe {
        (
            table_def(def)?,
            slice_of(def.columns, def.n_columns as usize),
            slice_of(def.indexes, def.n_indexes as usize),
        )
    };
    out.compression = compression(def, Some(table))?;
    out.encryption = encryption(def, Some(table))?;
    let mut last = table.last_column_id();
    for (to, column) in out.columns.iter_mut().zip(columns) {
        let was = match column.was.is_null() {
            true => to.name.clone(),
            // SAFETY: the caller's promise.
            false => unsafe { text(column.was, "a column's name")?.to_string() },
        };
        let old = table.column_index(&was);
        if old.is_none() && !column.was.is_null() && !was.is_empty() {
            return Err(Error::not_found(format!(
                "column {was} of table {}",
                table.name
            )));
        }
        to.id = match old {
            Some(at) => table.columns[at].id,
            None => {
                last += 1;
                // SAFETY: the caller's promise.
                to.default = unsafe { column.in_old_rows.datum() }.map(<[u8]>::to_vec);
                last
            }
        };
    }
    for (to, index) in out.indexes.iter_mut().zip(indexes) {
        if index.was.is_null() {
            continue;
        }
        // SAFETY: the caller's promise.
        let was = unsafe { text(index.was, "an index's name")? };
        let old = table
            .indexes
            .iter()
            .find(|i| i.name.eq_ignore_ascii_case(was));
        let missing = || Error::not_found(format!("index {was} of table {}", table.name));
        to.id = old.ok_or_else(missing)?.id;
    }
    Ok(out)
}

/// How the pages of a table's file are stored.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum varve_compression {
    /// As they are.
    VARVE_UNCOMPRESSED = 0,
    /// By LZ4: quick.
    VARVE_LZ4 = 1,
    /// By Zstandard: smaller.
    VARVE_ZSTD = 2,
    /// For varve_rebuild_prepare: as they were before, by Zstandard with another level if one is given. A new
    /// table has its pages as they are.
    VARVE_COMPRESSED_AS_BEFORE = 3,
}

choice!(
    varve_compression: VARVE_UNCOMPRESSED, VARVE_LZ4, VARVE_ZSTD, VARVE_COMPRESSED_AS_BEFORE,
);

/// Whether the pages of a table's file are encrypted.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum varve_encryption {
    /// As it is set for all tables.
    VARVE_ENCRYPTED_DEFAULT = 0,
    VARVE_ENCRYPTED = 1,
    VARVE_NOT_ENCRYPTED = 2,
    /// For varve_rebuild_prepare: as it was before, with the same key. A new table has it as it is set for
    /// all.
    VARVE_ENCRYPTED_AS_BEFORE = 3,
}

choice!(
    varve_encryption: VARVE_ENCRYPTED_DEFAULT, VARVE_ENCRYPTED, VARVE_NOT_ENCRYPTED,
        VARVE_ENCRYPTED_AS_BEFORE,
);

/// `before`: of the table that is there, if there is one.
fn encryption(def: &varve_table_def, before: Option<&TableDef>) -> varve::Result<Encryption> {
    use varve_encryption::*;
    let mode = match chosen("the encryption of pages", def.encryption)? {
        VARVE_ENCRYPTED_DEFAULT => EncryptionMode::Default,
        VARVE_ENCRYPTED => EncryptionMode::On,
        VARVE_NOT_ENCRYPTED => EncryptionMode::Off,
        VARVE_ENCRYPTED_AS_BEFORE => {
            return Ok(before.map_or(Encryption::default(), |before| before.encryption));
        }
    };
    let key = def.encryption_key.max(Encryption::FIRST_KEY);
    Ok(Encryption { mode, key })
}

/// `before`: of the table that is there, if there is one.
fn compression(
    def: &varve_table_def,
    before: Option<&TableDef>,
) -> varve::Result<Option<Compression>> {
    use varve_compression::*;
    let level = u8::try_from(def.compression_level).ok();
    let level = level.filter(|level| Compression::zstd(*level).is_valid());
    Ok(match chosen("the compression of pages", def.compression)? {
        VARVE_UNCOMPRESSED => None,
        VARVE_LZ4 => Some(Compression::LZ4),
        VARVE_ZSTD => {
            let unknown = || {
                Error::invalid(format!(
                    "the level of compression is 1 to {}, not {}",
                    Compression::MAX_LEVEL,
                    def.compression_level
                ))
            };
            Some(Compression::zstd(level.ok_or_else(unknown)?))
        }
        VARVE_COMPRESSED_AS_BEFORE => {
            let as_before = before.and_then(|before| before.compression);
            as_before.map(|compression| match (compression.algorithm, level) {
                (CompressionAlgorithm::Zstd, Some(level)) => Compression::zstd(level),
                _ => compression,
            })
        }
    })
}

#[repr(C)]
pub struct varve_table_def {
    /// "schema/table"
    pub name: *const c_char,
    pub columns: *const varve_column_def,
    pub n_columns: u32,
    /// The clustered key. None: rows get a hidden id.
    pub primary: *const varve_key_part,
    pub n_primary: u32,
    /// The secondary indexes; calls name them 1, 2, … in this order, the clustered index is 0.
    pub indexes: *const varve_index_def,
    pub n_indexes: u32,
    /// Foreign keys, and whether their parents have to be there (VARVE_CHECK_REFERENCES) or not.
    pub foreign_keys: *const varve_foreign_key,
    pub n_foreign_keys: u32,
    pub foreign_key_checks: MaybeUninit<varve_foreign_key_checks>,
    /// Position of the column that the table's counter numbers, UINT32_MAX for none.
    pub auto_increment: u32,
    /// Optional: the table keeps history.
    pub system_time: *const varve_system_time,
    /// Its rows are in no log, and the table ends when it is dropped or the database is closed. One
    /// transaction at a time can use it.
    pub temporary: bool,
    /// Optional: the directory for the table's file, an absolute path outside of the data directory. The file
    /// is in a directory there that is called as the schema is. Not for a temporary table.
    pub data_directory: *const c_char,
    /// How its pages are stored, where that saves blocks of the disk: pages larger than 4 KiB. Those of a
    /// temporary table are stored as they are. varve_redefinition_prepare does not look at it.
    pub compression: MaybeUninit<varve_compression>,
    /// Of Zstandard, 1 to 22; 0 where nothing depends on it.
    pub compression_level: u32,
    /// Whether they are encrypted. varve_redefinition_prepare does not look at it, nor at the key.
    pub encryption: MaybeUninit<varve_encryption>,
    /// The number of the key; 0: key 1.
    pub encryption_key: u32,
}

fn column_type(c: &varve_column_def, name: &str) -> varve::Result<ColumnType> {
    use varve_type::*;
    let int = |signed| {
        let bytes = u8::try_from(c.size).unwrap_or(0);
        if matches!(bytes, 1 | 2 | 3 | 4 | 8) {
            return Ok(ColumnType::Int { bytes, signed });
        }
        Err(Error::invalid(format!(
            "column {name}: an integer has 1, 2, 3, 4 or 8 bytes, not {}",
            c.size
        )))
    };
    Ok(
        match chosen(&format!("the kind of column {name}"), c.kind)? {
            VARVE_INT => int(true)?,
            VARVE_UINT => int(false)?,
            VARVE_FLOAT => ColumnType::Float,
            VARVE_DOUBLE => ColumnType::Double,
            VARVE_FIXED => ColumnType::Fixed(c.size),
            VARVE_BYTES => ColumnType::Bytes(c.size),
            VARVE_TEXT => ColumnType::text_in(CollationId(c.collation), c.size),
        },
    )
}

/// # Safety
/// If `n` is not 0, `parts` points to `n` parts.
unsafe fn key_parts(parts: *const varve_key_part, n: u32) -> Vec<KeyPart> {
    // SAFETY: the caller's promise.
    let parts = unsafe { slice_of(parts, n as usize) };
    let part = |p: &varve_key_part| {
        let mut part = KeyPart::new(p.column as usize);
        part.descending = p.descending;
        part.prefix_len = (p.prefix != 0).then_some(p.prefix);
        part
    };
    parts.iter().map(part).collect()
}

/// The engine's definition from C's.
///
/// # Safety
/// CAPI-2 for everything that `def` points to.
pub unsafe fn table_def(def: &varve_table_def) -> varve::Result<TableDef> {
    // SAFETY: the caller's promise.
    let name = unsafe { text(def.name, "the table's name")? };
    // SAFETY: the caller's promise.
    let (columns, indexes) = unsafe {
        (
            slice_of(def.columns, def.n_columns as usize),
            slice_of(def.indexes, def.n_indexes as usize),
        )
    };
    let mut out = TableDef::new(name);
    for c in columns {
        // SAFETY: the caller's promise.
        let name = unsafe { text(c.name, "a column's name")? };
        let mut column = ColumnDef::new(name, column_type(c, name)?);
        column.nullable = c.nullable;
        out = out.add_column(column);
    }
    let flagged = |flag: fn(&varve_column_def) -> bool| {
        let all = columns.iter().enumerate().filter(move |(_, c)| flag(c));
        all.map(|(position, _)| position).collect()
    };
    out.computed = flagged(|c| c.computed);
    // SAFETY: the caller's promise.
    if let Some(time) = unsafe { def.system_time.as_ref() } {
        out.system_time = Some(SystemTime {
            start: time.start as usize,
            end: time.end as usize,
            // SAFETY: the caller's promise.
            forever: unsafe { time.forever.datum() }.unwrap_or_default().to_vec(),
            unversioned: flagged(|c| c.unversioned),
        });
    }
    // SAFETY: the caller's promise.
    out.primary.parts = unsafe { key_parts(def.primary, def.n_primary) };
    for i in indexes {
        // SAFETY: the caller's promise.
        let (name, parts) = unsafe {
            (
                text(i.name, "an index's name")?,
                key_parts(i.parts, i.n_parts),
            )
        };
        let mut index = IndexDef::new(name, parts);
        index.unique = i.unique;
        out = out.add_index(index);
    }
    // SAFETY: the caller's promise.
    for key in unsafe { slice_of(def.foreign_keys, def.n_foreign_keys as usize) } {
        // SAFETY: the caller's promise.
        out = out.foreign_key(unsafe { foreign_key(key)? });
    }
    if def.auto_increment != u32::MAX {
        out.auto_increment = Some(def.auto_increment as usize);
    }
    out.compression = compression(def, None)?;
    out.encryption = encryption(def, None)?;
    Ok(out)
}

fn c_type(ty: ColumnType) -> (varve_type, u32, u32) {
    use varve_type::*;
    match ty {
        ColumnType::Int { bytes, signed } => {
            let kind = if signed { VARVE_INT } else { VARVE_UINT };
            (kind, bytes.into(), 0)
        }
        ColumnType::Float => (VARVE_FLOAT, 4, 0),
        ColumnType::Double => (VARVE_DOUBLE, 8, 0),
        ColumnType::Fixed(size) => (VARVE_FIXED, size, 0),
        ColumnType::Bytes(size) => (VARVE_BYTES, size, 0),
        ColumnType::Text {
            collation,
            max_bytes,
        } => (VARVE_TEXT, max_bytes, collation.0),
    }
}

fn c_parts(index: &IndexDef) -> Vec<varve_key_part> {
    let part = |part: &KeyPart| varve_key_part {
        column: part.column as u32,
        prefix: part.prefix_len.unwrap_or(0),
        descending: part.descending,
    };
    index.parts.iter().map(part).collect()
}

/// Calls `f` with the definition as C has it, of which `table_def` makes the same again, but for what the
/// engine has added.
pub fn with_c_def(def: &TableDef, f: impl FnOnce(varve_table_def)) {
    let names: Vec<CString> = def.columns.iter().map(|c| c_text(&c.name)).collect();
    let time = def.system_time.as_ref();
    let column = |(position, name): (usize, &CString)| {
        let column = &def.columns[position];
        let (kind, size, collation) = c_type(column.ty);
        varve_column_def {
            name: name.as_ptr(),
            kind: MaybeUninit::new(kind),
            size,
            collation,
            nullable: column.nullable,
            computed: def.computed.contains(&position),
            unversioned: time.is_some_and(|time| time.unversioned.contains(&position)),
            converted: false,
            was: ptr::null(),
            in_old_rows: varve_value::of(column.default.as_deref()),
        }
    };
    let columns: Vec<_> = names.iter().enumerate().map(column).collect();
    let primary = c_parts(&def.primary);
    let of_indexes: Vec<_> = (def.indexes.iter())
        .map(|index| (c_text(&index.name), c_parts(index)))
        .collect();
    let index =
        |(index, (name, parts)): (&IndexDef, &(CString, Vec<varve_key_part>))| varve_index_def {
            name: name.as_ptr(),
            unique: index.unique,
            parts: parts.as_ptr(),
            n_parts: parts.len() as u32,
            was: ptr::null(),
        };
    let indexes: Vec<_> = def.indexes.iter().zip(&of_indexes).map(index).collect();
    let key_texts: Vec<_> = (def.foreign_keys.iter())
        .map(|key| KeyTexts::new(key, &def.name))
        .collect();
    let foreign_keys: Vec<_> = key_texts.iter().map(KeyTexts::told).collect();
    let system_time = time.map(|time| varve_system_time {
        start: time.start as u32,
        end: time.end as u32,
        forever: varve_value::of(Some(&time.forever)),
    });
    let name = c_text(&def.name);
    f(varve_table_def {
        name: name.as_ptr(),
        columns: columns.as_ptr(),
        n_columns: columns.len() as u32,
        primary: primary.as_ptr(),
        n_primary: primary.len() as u32,
        indexes: indexes.as_ptr(),
        n_indexes: indexes.len() as u32,
        foreign_keys: foreign_keys.as_ptr(),
        n_foreign_keys: foreign_keys.len() as u32,
        foreign_key_checks: MaybeUninit::new(varve_foreign_key_checks::VARVE_CHECK_REFERENCES),
        auto_increment: (def.auto_increment).map_or(u32::MAX, |at| at as u32),
        system_time: system_time.as_ref().map_or(ptr::null(), ptr::from_ref),
        temporary: false,
        data_directory: ptr::null(),
        compression: MaybeUninit::new(match def.compression.map(|c| c.algorithm) {
            None => varve_compression::VARVE_UNCOMPRESSED,
            Some(CompressionAlgorithm::Lz4) => varve_compression::VARVE_LZ4,
            Some(CompressionAlgorithm::Zstd) => varve_compression::VARVE_ZSTD,
        }),
        compression_level: def.compression.map_or(0, |c| c.level.into()),
        encryption: MaybeUninit::new(match def.encryption.mode {
            EncryptionMode::Default => varve_encryption::VARVE_ENCRYPTED_DEFAULT,
            EncryptionMode::On => varve_encryption::VARVE_ENCRYPTED,
            EncryptionMode::Off => varve_encryption::VARVE_NOT_ENCRYPTED,
        }),
        encryption_key: def.encryption.key,
    });
}

#[cfg(test)]
mod tests {
    use varve::{ForeignKey, ReferentialAction};

    use super::*;

    fn there_and_back(def: &TableDef) -> TableDef {
        let mut back = None;
        // SAFETY: all that the definition points to outlives the call.
        with_c_def(def, |told| back = unsafe { table_def(&told) }.ok());
        back.unwrap()
    }

    #[test]
    fn a_definition_goes_to_c_and_back() {
        let mut def = TableDef::new("shop/orders")
            .column("id", ColumnType::u64())
            .nullable("customer", ColumnType::text_in(CollationId(8), 80))
            .column("weight", ColumnType::Double)
            .column("share", ColumnType::Float)
            .column("code", ColumnType::Fixed(7))
            .column("note", ColumnType::Bytes(1000))
            .column("small", ColumnType::i16())
            .primary(&["id"])
            .index("by_customer", &["customer", "weight"])
            .unique("by_note", &["note"])
            .auto_increment("id")
            .compressed(Compression::zstd(7))
            .encrypted(3)
            .foreign_key(
                ForeignKey::new("of_customer", &["customer"], "shop/customers", &["name"])
                    .on_delete(ReferentialAction::SetNull)
                    .on_update(ReferentialAction::Cascade),
            );
        def.indexes[0].parts[0].prefix_len = Some(9);
        def.indexes[1].parts[0].descending = true;
        def.computed = vec![3];
        def.system_time = Some(SystemTime {
            start: 4,
            end: 5,
            forever: vec![7; 3],
            unversioned: vec![2, 6],
        });
        assert_eq!(there_and_back(&def), def);
        let without_keys = TableDef::new("a/t").column("n", ColumnType::i32());
        assert_eq!(there_and_back(&without_keys), without_keys);
    }
}
