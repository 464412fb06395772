//! Reading a row's bytes: checked once, then every column in constant time.
//!
//! Invariant **ROW-4**: a `RowRef` exists only for bytes whose version is known, whose end offsets ascend and
//! end exactly at the end of the bytes. So `get` never leaves the row, whatever was on the page. The bytes may be
//! anything: `new` is total.

use super::format::{Layout, NOT_NULLABLE, Slot, VERSION_LEN};
use super::{Damage, Datum, MAX_ROW_BYTES, RowFormat};

/// A row in its stored form. Cheap to copy.
#[derive(Clone, Copy, Debug)]
pub struct RowRef<'a> {
    format: &'a RowFormat,
    layout: &'a Layout,
    bytes: &'a [u8],
}

impl<'a> RowRef<'a> {
    /// Checks that `bytes` are a row of this table, of the current or an older schema version (ROW-4).
    #[inline]
    pub fn new(format: &'a RowFormat, bytes: &'a [u8]) -> Result<RowRef<'a>, Damage> {
        let Some(version) = bytes.first_chunk::<VERSION_LEN>() else {
            return Err(Damage::new("a row of at least 2 bytes", bytes.len()));
        };
        let version = u16::from_le_bytes(*version);
        let Some(layout) = format.layout(version) else {
            return Err(Damage::new(
                "a schema version that the table has had",
                version as usize,
            ));
        };
        if bytes.len() > MAX_ROW_BYTES {
            return Err(Damage::new("a row of at most 32767 bytes", bytes.len()));
        }
        let Some(data_len) = bytes.len().checked_sub(layout.data_at) else {
            return Err(Damage::new("a row with all fixed columns", bytes.len()));
        };
        let mut previous = 0;
        for end in bytes[layout.ends_at..layout.data_at].chunks_exact(2) {
            let end = u16::from_le_bytes([end[0], end[1]]) as usize;
            if end < previous || end > data_len {
                return Err(Damage::new("ascending ends within the row", end));
            }
            previous = end;
        }
        if previous != data_len {
            return Err(Damage::new(
                "a row that ends with its last column",
                data_len,
            ));
        }
        Ok(RowRef {
            format,
            layout,
            bytes,
        })
    }

    /// The stored bytes.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    pub fn format(&self) -> &'a RowFormat {
        self.format
    }

    /// How many columns `get` answers for: those of the current definition.
    pub fn len(&self) -> usize {
        self.layout.places.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The schema version that the row was written with.
    pub fn schema_version(&self) -> u16 {
        u16::from_le_bytes([self.bytes[0], self.bytes[1]])
    }

    /// The value of the column at position `column` of the table's definition. Panics if there is no such
    /// column.
    #[inline]
    pub fn get(&self, column: usize) -> Datum<'a> {
        let place = &self.layout.places[column];
        let bit = place.null_bit;
        if bit != NOT_NULLABLE && self.bytes[VERSION_LEN + bit as usize / 8] >> (bit % 8) & 1 != 0 {
            return None;
        }
        match place.slot {
            Slot::Fixed { offset, len } => {
                Some(&self.bytes[offset as usize..offset as usize + len as usize])
            }
            Slot::Var { index, .. } => {
                let index = index as usize;
                let start = if index == 0 { 0 } else { self.end(index - 1) };
                let data = &self.bytes[self.layout.data_at..];
                Some(&data[start..self.end(index)])
            }
            Slot::Missing => self.format.columns[column].default.as_deref(),
        }
    }

    #[inline]
    fn end(&self, index: usize) -> usize {
        let at = self.layout.ends_at + 2 * index;
        u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]]) as usize
    }

    /// The position of the column called `name`, in any case of ASCII letters.
    pub fn column(&self, name: &str) -> Option<usize> {
        (self.format.columns.iter()).position(|c| c.name.eq_ignore_ascii_case(name))
    }

    /// All columns in definition order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Datum<'a>> + use<'a> {
        let row = *self;
        (0..row.len()).map(move |c| row.get(c))
    }
}
