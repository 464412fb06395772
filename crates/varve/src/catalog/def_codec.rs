//! Table definitions as bytes, for the catalog and for the copy in the table's own file.
//!
//! All integers are little-endian; a string is its length (u16) and its bytes, a blob the same with u32. The
//! layout is in docs/format.md. The carrier has the checksum. The first word is the version of this encoding:
//! one that is not known is refused by name.
//!
//! Decoding is total: lengths are checked against what is there before anything is allocated, and what was
//! read must pass `TableDef::validate` (DEF-1).

use std::ops::Range;

use crate::base::{Error, IndexId, PageNo, Result, SpaceId, TableId, TrxId};
use crate::encryption::Encryption;
use crate::page::Compression;
use crate::row::{CollationId, ColumnDef, ColumnType, GoneColumn, KeyPart};

use super::{ForeignKey, IndexDef, ReferentialAction, SystemTime, TableDef};

/// The encoding that has encrypted pages. A definition is written in the first one that has all of it, which
/// older versions may read.
const VERSION: u16 = WITH_ENCRYPTION;
const WITH_ENCRYPTION: u16 = 9;
/// Compressed pages.
const WITH_COMPRESSION: u16 = 8;
/// Parts of keys in segments.
const WITH_SEGMENTS: u16 = 7;
/// Discarded tablespaces.
const WITH_DISCARDED: u16 = 6;
/// Columns that are gone, or take NULL since a later version.
const WITH_GONE_COLUMNS: u16 = 5;
/// Indexes younger than their table.
const WITH_YOUNG_INDEXES: u16 = 4;
/// Computed columns and history.
const WITH_DERIVED: u16 = 3;
const WITH_FOREIGN_KEYS: u16 = 2;
const FIRST: u16 = 1;

const INT: u8 = 1;
const FLOAT: u8 = 2;
const DOUBLE: u8 = 3;
const FIXED: u8 = 4;
const BYTES: u8 = 5;
const TEXT: u8 = 6;

const COLUMN_NULLABLE: u8 = 1;
const COLUMN_DEFAULT: u8 = 2;
const INDEX_UNIQUE: u8 = 1;
const PART_DESCENDING: u8 = 1;
const PART_PREFIX: u8 = 2;
const PART_SEGMENTED: u8 = 4;
/// From `WITH_ENCRYPTION` on.
const UNCOMPRESSED: [u8; 2] = [0; 2];

/// Where the two ids are, behind the version.
const IDS: Range<usize> = 2..14;
/// Offset of the table's name, behind the version, two ids and the schema version.
const NAME_AT: usize = 16;

/// `auto_increment` of a table without such a column.
const NO_COLUMN: u16 = u16::MAX;

impl TableDef {
    /// Appends the encoded definition to `out`. It must be valid.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let is_young = |index: &IndexDef| index.created_by != TrxId(0);
        let takes_null_later = |column: &ColumnDef| column.nullable_since > 1;
        let version = match (self.computed.is_empty(), &self.system_time) {
            _ if self.encryption != Encryption::default() => WITH_ENCRYPTION,
            _ if self.compression.is_some() => WITH_COMPRESSION,
            _ if self.all_indexes().any(IndexDef::is_segmented) => WITH_SEGMENTS,
            _ if self.discarded => WITH_DISCARDED,
            _ if !self.gone.is_empty() || self.columns.iter().any(takes_null_later) => {
                WITH_GONE_COLUMNS
            }
            _ if self.indexes_at_first > 0 || self.indexes.iter().any(is_young) => {
                WITH_YOUNG_INDEXES
            }
            (true, None) if self.foreign_keys.is_empty() => FIRST,
            (true, None) => WITH_FOREIGN_KEYS,
            _ => WITH_DERIVED,
        };
        put(out, version.to_le_bytes());
        put(out, self.id.0.to_le_bytes());
        put(out, self.space.0.to_le_bytes());
        put(out, self.schema_version.to_le_bytes());
        put_str(out, &self.name);
        let auto_increment = self.auto_increment.map_or(NO_COLUMN, |c| c as u16);
        put(out, auto_increment.to_le_bytes());
        put(out, (self.columns.len() as u16).to_le_bytes());
        for column in &self.columns {
            put_column(out, column);
        }
        put(out, (self.indexes.len() as u16).to_le_bytes());
        for index in self.all_indexes() {
            put_index(out, index);
        }
        put_blob(out, &self.comment);
        if version >= WITH_FOREIGN_KEYS {
            put(out, (self.foreign_keys.len() as u16).to_le_bytes());
            for key in &self.foreign_keys {
                put_foreign_key(out, key);
            }
        }
        if version >= WITH_DERIVED {
            put_positions(out, &self.computed);
            put_system_time(out, self.system_time.as_ref());
        }
        if version >= WITH_YOUNG_INDEXES {
            put(out, self.indexes_at_first.to_le_bytes());
            for index in &self.indexes {
                put(out, index.created_by.0.to_le_bytes());
            }
        }
        if version >= WITH_GONE_COLUMNS {
            put(out, (self.gone.len() as u16).to_le_bytes());
            for gone in &self.gone {
                put_column(out, &gone.column);
                put(out, gone.gone_in.to_le_bytes());
            }
            for column in self.columns_and_gone() {
                put(out, column.nullable_since.to_le_bytes());
            }
        }
        if version >= WITH_DISCARDED {
            put(out, [u8::from(self.discarded)]);
        }
        if version >= WITH_COMPRESSION {
            let compression = self.compression.map_or(UNCOMPRESSED, Compression::to_bytes);
            put(out, compression);
        }
        if version >= WITH_ENCRYPTION {
            put(out, self.encryption.to_bytes());
        }
    }

    /// The ids of table and tablespace in an encoded definition: what no change of it changes.
    pub(crate) fn ids_in(encoded: &[u8]) -> Option<&[u8]> {
        encoded.get(IDS)
    }

    /// Where the table's name ends in an encoded definition.
    pub(super) fn name_end(encoded: &[u8]) -> usize {
        let name = u16::from_le_bytes([encoded[NAME_AT], encoded[NAME_AT + 1]]);
        NAME_AT + 2 + usize::from(name)
    }

    /// The table's name, if it is in this beginning of an encoded definition.
    pub(crate) fn name_in(beginning: &[u8]) -> Option<String> {
        let mut r = Reader {
            rest: beginning.get(NAME_AT..)?,
        };
        r.str().ok().map(String::from)
    }

    /// Reads a definition back.
    pub fn decode(bytes: &[u8]) -> Result<TableDef> {
        let mut r = Reader { rest: bytes };
        let version = r.u16()?;
        if !(FIRST..=VERSION).contains(&version) {
            return Err(Error::unsupported(format!(
                "table definition of format {version}; this version reads formats up to {VERSION}"
            )));
        }
        let (id, space, schema_version) = (TableId(r.u64()?), SpaceId(r.u32()?), r.u16()?);
        let mut def = TableDef::new(r.str()?);
        (def.id, def.space, def.schema_version) = (id, space, schema_version);
        def.auto_increment = Some(r.u16()?).filter(|c| *c != NO_COLUMN).map(usize::from);
        let columns = r.u16()?;
        def.columns = (0..columns).map(|_| r.column()).collect::<Result<_>>()?;
        let indexes = r.u16()?;
        def.primary = r.index(version)?;
        def.indexes = (0..indexes)
            .map(|_| r.index(version))
            .collect::<Result<_>>()?;
        def.comment = r.blob()?.to_vec();
        if version >= WITH_FOREIGN_KEYS {
            let keys = r.u16()?;
            def.foreign_keys = (0..keys).map(|_| r.foreign_key()).collect::<Result<_>>()?;
        }
        if version >= WITH_DERIVED {
            def.computed = r.positions()?;
            def.system_time = r.system_time()?;
        }
        if version >= WITH_YOUNG_INDEXES {
            def.indexes_at_first = r.u16()?;
            for index in &mut def.indexes {
                index.created_by = TrxId(r.u64()?);
            }
        }
        if version >= WITH_GONE_COLUMNS {
            let gone = r.u16()?;
            def.gone = (0..gone).map(|_| r.gone_column()).collect::<Result<_>>()?;
            let gone = def.gone.iter_mut().map(|gone| &mut gone.column);
            for column in def.columns.iter_mut().chain(gone) {
                column.nullable_since = r.u16()?;
            }
        }
        if version >= WITH_DISCARDED {
            def.discarded = r.flags(1)? == 1;
        }
        if version >= WITH_COMPRESSION {
            let bytes = r.array()?;
            let may_be_none = version >= WITH_ENCRYPTION;
            if !may_be_none || bytes != UNCOMPRESSED {
                let known = Compression::from_bytes(bytes);
                def.compression = Some(known.ok_or_else(|| damaged("a compression of pages"))?);
            }
        }
        if version >= WITH_ENCRYPTION {
            let known = Encryption::from_bytes(r.array()?);
            def.encryption = known.ok_or_else(|| damaged("an encryption of pages"))?;
        }
        if !r.rest.is_empty() {
            return Err(damaged("bytes behind the end"));
        }
        def.validate()?;
        Ok(def)
    }
}

fn put<const N: usize>(out: &mut Vec<u8>, bytes: [u8; N]) {
    out.extend_from_slice(&bytes);
}

fn put_str(out: &mut Vec<u8>, s: &str) {
    let len = u16::try_from(s.len()).expect("validated names are short");
    put(out, len.to_le_bytes());
    out.extend_from_slice(s.as_bytes());
}

fn put_blob(out: &mut Vec<u8>, b: &[u8]) {
    let len = u32::try_from(b.len()).expect("a definition is shorter than 4 GiB");
    put(out, len.to_le_bytes());
    out.extend_from_slice(b);
}

fn put_column(out: &mut Vec<u8>, column: &ColumnDef) {
    put(out, column.id.to_le_bytes());
    put_str(out, &column.name);
    let (tag, small, wide) = match column.ty {
        ColumnType::Int { bytes, signed } => (INT, bytes, signed as u32),
        ColumnType::Float => (FLOAT, 0, 0),
        ColumnType::Double => (DOUBLE, 0, 0),
        ColumnType::Fixed(n) => (FIXED, 0, n),
        ColumnType::Bytes(n) => (BYTES, 0, n),
        ColumnType::Text { max_bytes, .. } => (TEXT, 0, max_bytes),
    };
    put(out, [tag, small]);
    put(out, wide.to_le_bytes());
    if let ColumnType::Text { collation, .. } = column.ty {
        put(out, collation.0.to_le_bytes());
    }
    let nullable = if column.nullable { COLUMN_NULLABLE } else { 0 };
    let default = column.default.as_ref().map_or(0, |_| COLUMN_DEFAULT);
    put(out, [nullable | default]);
    put(out, column.added_in.to_le_bytes());
    if let Some(default) = &column.default {
        put_blob(out, default);
    }
}

fn put_index(out: &mut Vec<u8>, index: &IndexDef) {
    put(out, index.id.0.to_le_bytes());
    put_str(out, &index.name);
    put(out, [if index.unique { INDEX_UNIQUE } else { 0 }]);
    put(out, index.root.0.to_le_bytes());
    put(out, (index.parts.len() as u16).to_le_bytes());
    for part in &index.parts {
        put(out, (part.column as u16).to_le_bytes());
        let descending = if part.descending { PART_DESCENDING } else { 0 };
        let prefix = part.prefix_len.map_or(0, |_| PART_PREFIX);
        let segmented = if part.segmented { PART_SEGMENTED } else { 0 };
        put(out, [descending | prefix | segmented]);
        put(out, part.prefix_len.unwrap_or(0).to_le_bytes());
        put(out, part.fingerprint.to_le_bytes());
    }
}

fn put_foreign_key(out: &mut Vec<u8>, key: &ForeignKey) {
    put_str(out, &key.name);
    put_str(out, &key.parent);
    put(
        out,
        [action_code(key.on_delete), action_code(key.on_update)],
    );
    put(out, (key.columns.len() as u16).to_le_bytes());
    for (own, its) in key.columns.iter().zip(&key.parent_columns) {
        put_str(out, own);
        put_str(out, its);
    }
}

fn put_positions(out: &mut Vec<u8>, columns: &[usize]) {
    put(out, (columns.len() as u16).to_le_bytes());
    for column in columns {
        put(out, (*column as u16).to_le_bytes());
    }
}

fn put_system_time(out: &mut Vec<u8>, time: Option<&SystemTime>) {
    put(out, [u8::from(time.is_some())]);
    if let Some(time) = time {
        put_positions(out, &[time.start, time.end]);
        put_blob(out, &time.forever);
        put_positions(out, &time.unversioned);
    }
}

fn action_code(action: ReferentialAction) -> u8 {
    match action {
        ReferentialAction::NoAction => 0,
        ReferentialAction::Restrict => 1,
        ReferentialAction::Cascade => 2,
        ReferentialAction::SetNull => 3,
    }
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, n: usize) -> Result<&'a [u8]> {
        let (head, rest) = self
            .rest
            .split_at_checked(n)
            .ok_or_else(|| damaged("cut off"))?;
        self.rest = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        Ok(self.take(N)?.try_into().expect("took N bytes"))
    }

    fn u8(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    fn u16(&mut self) -> Result<u16> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn str(&mut self) -> Result<&'a str> {
        let len = self.u16()? as usize;
        str::from_utf8(self.take(len)?).map_err(|_| damaged("a name that is not UTF-8"))
    }

    fn blob(&mut self) -> Result<&'a [u8]> {
        let len = self.u32()? as usize;
        self.take(len)
    }

    /// A byte of flags, none of them but `known`.
    fn flags(&mut self, known: u8) -> Result<u8> {
        match self.u8()? {
            f if f & !known == 0 => Ok(f),
            _ => Err(damaged("an unknown flag")),
        }
    }

    fn column(&mut self) -> Result<ColumnDef> {
        let id = self.u32()?;
        let name = self.str()?;
        let (tag, small, wide) = (self.u8()?, self.u8()?, self.u32()?);
        let ty = match tag {
            INT => ColumnType::Int {
                bytes: small,
                signed: wide != 0,
            },
            FLOAT => ColumnType::Float,
            DOUBLE => ColumnType::Double,
            FIXED => ColumnType::Fixed(wide),
            BYTES => ColumnType::Bytes(wide),
            TEXT => ColumnType::text_in(CollationId(self.u32()?), wide),
            _ => return Err(damaged("an unknown column type")),
        };
        let mut column = ColumnDef::new(name, ty);
        let flags = self.flags(COLUMN_NULLABLE | COLUMN_DEFAULT)?;
        column.id = id;
        column.nullable = flags & COLUMN_NULLABLE != 0;
        column.added_in = self.u16()?;
        if flags & COLUMN_DEFAULT != 0 {
            column.default = Some(self.blob()?.to_vec());
        }
        Ok(column)
    }

    fn gone_column(&mut self) -> Result<GoneColumn> {
        Ok(GoneColumn {
            column: self.column()?,
            gone_in: self.u16()?,
        })
    }

    fn action(&mut self) -> Result<ReferentialAction> {
        match self.u8()? {
            0 => Ok(ReferentialAction::NoAction),
            1 => Ok(ReferentialAction::Restrict),
            2 => Ok(ReferentialAction::Cascade),
            3 => Ok(ReferentialAction::SetNull),
            _ => Err(damaged("an unknown referential action")),
        }
    }

    fn foreign_key(&mut self) -> Result<ForeignKey> {
        let name = self.str()?;
        let mut key = ForeignKey::new(name, &[], self.str()?, &[]);
        (key.on_delete, key.on_update) = (self.action()?, self.action()?);
        for _ in 0..self.u16()? {
            key.columns.push(self.str()?.to_string());
            key.parent_columns.push(self.str()?.to_string());
        }
        Ok(key)
    }

    fn positions(&mut self) -> Result<Vec<usize>> {
        let n = self.u16()?;
        (0..n).map(|_| Ok(usize::from(self.u16()?))).collect()
    }

    fn system_time(&mut self) -> Result<Option<SystemTime>> {
        match self.u8()? {
            0 => return Ok(None),
            1 => {}
            _ => return Err(damaged("an unknown kind of history")),
        }
        let [start, end] = self.positions()?[..] else {
            return Err(damaged("history without two times"));
        };
        Ok(Some(SystemTime {
            start,
            end,
            forever: self.blob()?.to_vec(),
            unversioned: self.positions()?,
        }))
    }

    fn index(&mut self, version: u16) -> Result<IndexDef> {
        let young = if version < WITH_SEGMENTS {
            0
        } else {
            PART_SEGMENTED
        };
        let id = IndexId(self.u64()?);
        let mut index = IndexDef::new(self.str()?, Vec::new());
        index.id = id;
        index.unique = self.flags(INDEX_UNIQUE)? != 0;
        index.root = PageNo(self.u32()?);
        for _ in 0..self.u16()? {
            let mut part = KeyPart::new(self.u16()? as usize);
            let flags = self.flags(PART_DESCENDING | PART_PREFIX | young)?;
            let prefix = self.u32()?;
            part.descending = flags & PART_DESCENDING != 0;
            part.prefix_len = (flags & PART_PREFIX != 0).then_some(prefix);
            part.segmented = flags & PART_SEGMENTED != 0;
            part.fingerprint = self.u64()?;
            index.parts.push(part);
        }
        Ok(index)
    }
}

#[cold]
fn damaged(what: &str) -> Error {
    Error::invalid(format!("damaged table definition: {what}"))
}
