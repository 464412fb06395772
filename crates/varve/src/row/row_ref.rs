//! Reading a row's bytes: checked once, then every column in constant time.
//!
//! - **ROW-4** A `RowRef` exists only for bytes whose version is known, whose end offsets ascend and end
//!   exactly at the end of the bytes, and whose external columns have as many bytes as a reference. So `get`
//!   never leaves the row, whatever was on the page. The bytes may be anything: `new` is total.

use super::external::EXTERNAL_BIT;
use super::format::{Layout, NOT_NULLABLE, Slot, VERSION_LEN};
use super::{
    Damage, Datum, EXTERNAL_REF_BYTES, ExternalRef, ExternalValues, MAX_ROW_BYTES, RowFormat,
};

/// A row in its stored form. Cheap to copy.
#[derive(Clone, Copy, Debug)]
pub struct RowRef<'a> {
    format: &'a RowFormat,
    layout: &'a Layout,
    bytes: &'a [u8],
    /// A column is external.
    has_external: bool,
    /// External values that were fetched.
    external: Option<&'a ExternalValues>,
}

impl<'a> RowRef<'a> {
    /// Checks that `bytes` are a row of this table, of the current or an older schema version (ROW-4).
    #[inline]
    pub(crate) fn new(format: &'a RowFormat, bytes: &'a [u8]) -> Result<RowRef<'a>, Damage> {
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
        let (mut previous, mut words) = (0, 0);
        for end in bytes[layout.ends_at..layout.data_at].chunks_exact(2) {
            let word = u16::from_le_bytes([end[0], end[1]]);
            let end = (word & !EXTERNAL_BIT) as usize;
            if end < previous || end > data_len {
                return Err(Damage::new("ascending ends within the row", end));
            }
            if word & EXTERNAL_BIT != 0 && end - previous != EXTERNAL_REF_BYTES {
                return Err(Damage::new("a reference of 21 bytes", end - previous));
            }
            previous = end;
            words |= word;
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
            has_external: words & EXTERNAL_BIT != 0,
            external: None,
        })
    }

    /// The same row with external values that were fetched for it.
    pub(crate) fn with_external<'b>(self, values: &'b ExternalValues) -> RowRef<'b>
    where
        'a: 'b,
    {
        RowRef {
            external: Some(values),
            ..self
        }
    }

    /// The stored bytes.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    pub(crate) fn format(&self) -> &'a RowFormat {
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
    /// column, or if it is external and was not fetched (ROW-5).
    #[inline]
    pub fn get(&self, column: usize) -> Datum<'a> {
        match self.fetched(column) {
            Some(datum) => datum,
            None => self.not_fetched(column),
        }
    }

    #[cold]
    fn not_fetched(&self, column: usize) -> ! {
        let name = &self.format.columns[column].name;
        panic!("ROW-5: the external value of column {name} was not fetched");
    }

    /// The same; `None` if the column is external and was not fetched.
    #[inline]
    pub fn fetched(&self, column: usize) -> Option<Datum<'a>> {
        let place = &self.layout.places[column];
        let bit = place.null_bit;
        if bit != NOT_NULLABLE && self.bytes[VERSION_LEN + bit as usize / 8] >> (bit % 8) & 1 != 0 {
            return Some(None);
        }
        Some(match place.slot {
            Slot::Fixed { offset, len } => {
                Some(&self.bytes[offset as usize..offset as usize + len as usize])
            }
            Slot::Var { index, .. } => {
                let index = index as usize;
                let (start, end) = (self.start(index), self.end_word(index));
                if end & EXTERNAL_BIT != 0 {
                    return Some(Some(self.external?.get(column)?));
                }
                Some(&self.bytes[self.layout.data_at..][start..end as usize])
            }
            Slot::Missing => self.format.columns[column].default.as_deref(),
        })
    }

    /// Where the `index`-th variable column starts in the data.
    #[inline]
    fn start(&self, index: usize) -> usize {
        match index {
            0 => 0,
            n => (self.end_word(n - 1) & !EXTERNAL_BIT) as usize,
        }
    }

    #[inline]
    fn end_word(&self, index: usize) -> u16 {
        let at = self.layout.ends_at + 2 * index;
        u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]])
    }

    /// Some columns are external.
    pub fn has_external_values(&self) -> bool {
        self.has_external
    }

    /// The external columns, and where their references are. One that the table does not have any more has a
    /// number behind those of the others.
    pub(crate) fn external_columns(&self) -> impl Iterator<Item = (usize, ExternalRef)> + use<'a> {
        let row = *self;
        let external = move |&(index, _): &(usize, &u16)| row.end_word(index) & EXTERNAL_BIT != 0;
        let vars = row.layout.vars.iter().enumerate();
        vars.filter(external).map(move |(index, &column)| {
            let bytes = &row.bytes[row.layout.data_at + row.start(index)..];
            let bytes = bytes.first_chunk().expect("ROW-4");
            (column as usize, ExternalRef::decode(bytes))
        })
    }

    /// Has the same values as another row of the table, whichever versions they were written with. An
    /// external value is the same if it is in the same place.
    pub(crate) fn is_same(&self, other: &RowRef<'_>) -> bool {
        let (mut a, mut b) = (*self, *other);
        (a.external, b.external) = (None, None);
        let mut columns = 0..self.len();
        let has = |row: &RowRef<'_>, it| row.external_columns().any(|its| its == it);
        let mut external = a.external_columns();
        columns.all(|column| a.fetched(column) == b.fetched(column))
            && external.all(|it| it.0 >= a.len() || has(&b, it))
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

#[cfg(feature = "internals")]
impl<'a> RowRef<'a> {
    /// What of these bytes is a row (ROW-4).
    pub fn read(format: &'a RowFormat, bytes: &'a [u8]) -> Result<RowRef<'a>, Damage> {
        RowRef::new(format, bytes)
    }

    /// Where its external values are.
    pub fn external_refs(&self) -> impl Iterator<Item = ExternalRef> + use<'a> {
        self.external_columns().map(|(_, external)| external)
    }
}
