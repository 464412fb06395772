//! Column types, column definitions and key parts: what a table is made of, without the table.
//!
//! A datum is the bytes of one column value, or `None` for NULL. The bytes of each type:
//!
//! | type | bytes |
//! |---|---|
//! | `Int { bytes, signed }` | little-endian, exactly 1, 2, 3, 4 or 8 bytes |
//! | `Float`, `Double` | IEEE 754, little-endian, 4 and 8 bytes |
//! | `Fixed(n)` | exactly `n` bytes |
//! | `Bytes(max)` | up to `max` bytes |
//! | `Text { collation, max_bytes }` | up to `max_bytes` bytes in the collation's character set |
//!
//! - **ROW-1** A datum that passed [`ColumnDef::check`] has a length its type allows; the codecs rely on that
//!   for every row they read back.

use crate::base::{Error, Result};

use super::CollationId;

/// The bytes of one column value; `None` is NULL.
pub type Datum<'a> = Option<&'a [u8]>;

/// What kind of values a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnType {
    /// An integer of 1, 2, 3, 4 or 8 bytes.
    Int { bytes: u8, signed: bool },
    /// IEEE 754 single precision.
    Float,
    /// IEEE 754 double precision.
    Double,
    /// Exactly this many bytes.
    Fixed(u32),
    /// Up to this many bytes, ordered bytewise.
    Bytes(u32),
    /// Up to `max_bytes` bytes of text, ordered by a collation.
    Text {
        collation: CollationId,
        max_bytes: u32,
    },
}

impl ColumnType {
    /// Signed integers of 8, 16, 24, 32 and 64 bits.
    pub const fn i8() -> ColumnType {
        Self::int(1, true)
    }
    pub const fn i16() -> ColumnType {
        Self::int(2, true)
    }
    pub const fn i24() -> ColumnType {
        Self::int(3, true)
    }
    pub const fn i32() -> ColumnType {
        Self::int(4, true)
    }
    pub const fn i64() -> ColumnType {
        Self::int(8, true)
    }
    /// Unsigned integers of 8, 16, 24, 32 and 64 bits.
    pub const fn u8() -> ColumnType {
        Self::int(1, false)
    }
    pub const fn u16() -> ColumnType {
        Self::int(2, false)
    }
    pub const fn u24() -> ColumnType {
        Self::int(3, false)
    }
    pub const fn u32() -> ColumnType {
        Self::int(4, false)
    }
    pub const fn u64() -> ColumnType {
        Self::int(8, false)
    }

    const fn int(bytes: u8, signed: bool) -> ColumnType {
        ColumnType::Int { bytes, signed }
    }

    /// Text in Unicode code point order (UTF-8), trailing spaces significant.
    pub const fn text(max_bytes: u32) -> ColumnType {
        Self::text_in(CollationId::UTF8_BIN, max_bytes)
    }

    /// Text ordered by `collation`.
    pub const fn text_in(collation: CollationId, max_bytes: u32) -> ColumnType {
        ColumnType::Text {
            collation,
            max_bytes,
        }
    }

    /// The length of every value of this type, `None` for types of variable length.
    pub const fn fixed_len(self) -> Option<usize> {
        match self {
            ColumnType::Int { bytes, .. } => Some(bytes as usize),
            ColumnType::Float => Some(4),
            ColumnType::Double => Some(8),
            ColumnType::Fixed(n) => Some(n as usize),
            ColumnType::Bytes(_) | ColumnType::Text { .. } => None,
        }
    }

    /// The longest value of this type.
    pub const fn max_len(self) -> usize {
        match self {
            ColumnType::Bytes(max) | ColumnType::Text { max_bytes: max, .. } => max as usize,
            _ => match self.fixed_len() {
                Some(n) => n,
                None => 0,
            },
        }
    }
}

/// One column of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnDef {
    /// Stable: given once, never reused in this table. Rows store their columns in id order.
    pub id: u32,
    pub name: String,
    pub ty: ColumnType,
    pub nullable: bool,
    /// Since which schema version it takes NULL, if it does: older rows do not say whether they have one.
    pub nullable_since: u16,
    /// The schema version that brought this column: rows of an older version do not contain it.
    pub added_in: u16,
    /// What the column holds in rows older than `added_in`; `None` is NULL.
    pub default: Option<Vec<u8>>,
}

/// A column that the table has had, and that rows of some versions have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoneColumn {
    pub column: ColumnDef,
    /// The first schema version without it.
    pub gone_in: u16,
}

impl ColumnDef {
    /// A column that is there from a table's first schema version on. The table gives it its id.
    pub fn new(name: impl Into<String>, ty: ColumnType) -> ColumnDef {
        ColumnDef {
            id: 0,
            name: name.into(),
            ty,
            nullable: false,
            nullable_since: 1,
            added_in: 1,
            default: None,
        }
    }

    /// The same column, but NULL is allowed.
    pub fn nullable(mut self) -> ColumnDef {
        self.nullable = true;
        self
    }

    /// Does `datum` fit this column (ROW-1)? The error names the column.
    pub fn check(&self, datum: Datum<'_>) -> Result<()> {
        let Some(bytes) = datum else {
            return if self.nullable {
                Ok(())
            } else {
                Err(Error::invalid(format!(
                    "column {} does not take NULL",
                    self.name
                )))
            };
        };
        match self.ty.fixed_len() {
            Some(len) if bytes.len() != len => Err(Error::invalid(format!(
                "column {} takes exactly {len} bytes, got {}",
                self.name,
                bytes.len()
            ))),
            None if bytes.len() > self.ty.max_len() => Err(Error::TooLarge {
                what: format!("value of column {}", self.name),
                size: bytes.len(),
                limit: self.ty.max_len(),
            }),
            _ => Ok(()),
        }
    }
}

/// One part of an index key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPart {
    /// Which column: its position in the table's list of columns.
    pub column: usize,
    pub descending: bool,
    /// Only the start of the value is in the key: this many characters of a `Text` column, this many
    /// bytes of a `Bytes` or `Fixed` column.
    pub prefix_len: Option<u32>,
    /// The fingerprint of the collation that the index was built with, 0 before the table is created
    /// and for columns without a collation. An index whose collation changed must not be used: its
    /// order is no longer the collation's.
    pub fingerprint: u64,
    /// Values of any length are stored in segments, which is for indexes whose keys might be too long
    /// otherwise (KEY-8). It is decided when the index is made, whatever its definition says.
    pub segmented: bool,
}

impl KeyPart {
    pub fn new(column: usize) -> KeyPart {
        KeyPart {
            column,
            descending: false,
            prefix_len: None,
            fingerprint: 0,
            segmented: false,
        }
    }

    pub fn descending(mut self) -> KeyPart {
        self.descending = true;
        self
    }

    pub fn prefix(mut self, len: u32) -> KeyPart {
        self.prefix_len = Some(len);
        self
    }
}

/// What is wrong with bytes that should be a row, a key or a definition. The reader of the page adds
/// where it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    pub expected: &'static str,
    pub found: u64,
}

impl Damage {
    pub(crate) fn new(expected: &'static str, found: usize) -> Damage {
        Damage {
            expected,
            found: found as u64,
        }
    }
}
