//! Rows on their way to C: arrays of values, of which those of wanted columns are set.
//!
//! The values point into the cursor's copy of a row; or into `values`, if the index's key gave them.

use varve::{Cursor, Datum, DatumBuf, KeyField, Peeked};

use crate::value::varve_value;

/// A cursor's rows for C: the current one, and as many behind it as are handed over at once.
pub(crate) struct RowsForC {
    /// One value for each column of each row; null for columns that are not wanted.
    rows: Vec<varve_value>,
    columns: usize,
    /// Columns that the caller will look at.
    wanted: Vec<usize>,
    keys_suffice: bool,
    /// See `Cursor::key_columns`.
    key_columns: Vec<(usize, bool)>,
    /// See `Cursor::key_fields`.
    key_fields: Vec<KeyField>,
    /// Those that are read, if they give everything that is wanted of a key.
    fields: Option<Vec<KeyField>>,
    /// Bytes that they take, and what was read of them for each row.
    fields_len: usize,
    values: Vec<u8>,
    /// Otherwise: the values of `key_columns` of the rows behind the current one.
    ahead: DatumBuf,
    /// Room for a key.
    key: Vec<u8>,
}

/// Rows and values handed over at once, at most.
const MOST_ROWS: usize = 64;
const MOST_VALUES: usize = 512;

impl RowsForC {
    pub fn new(cursor: &Cursor, columns: usize) -> RowsForC {
        RowsForC {
            rows: vec![varve_value::NULL; columns],
            columns,
            wanted: (0..columns).collect(),
            keys_suffice: false,
            key_columns: cursor.key_columns().to_vec(),
            key_fields: cursor.key_fields(),
            fields: None,
            fields_len: 0,
            values: Vec::new(),
            ahead: DatumBuf::new(),
            key: Vec::new(),
        }
    }

    pub fn columns(&self) -> usize {
        self.columns
    }

    /// The first row.
    pub fn as_ptr(&self) -> *const varve_value {
        self.rows.as_ptr()
    }

    pub fn key_columns(&self) -> &[(usize, bool)] {
        &self.key_columns
    }

    /// Only columns for which `is_wanted` is true will be looked at.
    pub fn want(&mut self, is_wanted: impl FnMut(&usize) -> bool) {
        self.wanted.clear();
        self.wanted.extend((0..self.columns).filter(is_wanted));
        self.plan();
    }

    pub fn set_keys_suffice(&mut self, keys_suffice: bool) {
        self.keys_suffice = keys_suffice;
        self.plan();
    }

    /// Forgets all values.
    pub fn clear(&mut self) {
        self.rows.fill(varve_value::NULL);
    }

    /// The caller wants other columns than before, or they can be had in another way.
    fn plan(&mut self) {
        self.clear();
        let readable = |column: &&usize| {
            let mut columns = self.key_columns.iter();
            columns.any(|(c, readable)| c == *column && *readable)
        };
        let field = |column: &usize| {
            let mut fields = self.key_fields.iter().copied();
            fields.find(|f| f.column == *column)
        };
        let wanted = self.wanted.iter().filter(readable);
        self.fields = match self.keys_suffice {
            true => wanted.map(field).collect(),
            false => None,
        };
        self.fields_len = self.fields.iter().flatten().map(KeyField::len).sum();
        self.make_room(1);
    }

    /// Makes room for so many rows. Pointers to earlier ones mean nothing any more.
    fn make_room(&mut self, rows: usize) {
        let (values, bytes) = (rows * self.columns, rows * self.fields_len);
        self.rows
            .resize(values.max(self.rows.len()), varve_value::NULL);
        self.values.resize(bytes.max(self.values.len()), 0);
    }

    /// Makes room for a portion; returns how many rows it may have.
    pub fn begin_portion(&mut self) -> usize {
        self.ahead.clear();
        let most = (MOST_VALUES / self.columns.max(1)).clamp(1, MOST_ROWS);
        if self.rows.len() < most * self.columns || self.values.len() < most * self.fields_len {
            self.make_room(most);
        }
        most
    }

    /// Makes the cursor's row the first one.
    #[inline]
    pub fn put_current(&mut self, cursor: &mut Cursor) -> varve::Result<()> {
        if self.keys_suffice && self.put_key(cursor)? {
            return Ok(());
        }
        let row = cursor.row()?;
        for &column in &self.wanted {
            // An external value that nobody wants was not fetched.
            let value = row.fetched(column);
            self.rows[column] = value.map_or(varve_value::NULL, varve_value::of);
        }
        Ok(())
    }

    /// Takes the cursor's row from its key. `false` if the row was fetched.
    #[inline]
    fn put_key(&mut self, cursor: &mut Cursor) -> varve::Result<bool> {
        let Some(fields) = &self.fields else {
            let values = cursor.key_values()?;
            if let Some(values) = values {
                fill(&mut self.rows, &self.key_columns, values.iter());
            }
            return Ok(values.is_some());
        };
        let values = &mut self.values[..self.fields_len];
        let is_entry = cursor.read_fields(fields, values)?;
        if is_entry {
            point_to(fields, values, &mut self.rows);
        }
        Ok(is_entry)
    }

    /// Makes what the cursor has peeked at row number `n` of the portion, which `end_portion` completes.
    /// `false` if it can't be had that way.
    #[inline]
    pub fn put_peeked(&mut self, cursor: &Cursor, n: usize, peeked: Peeked<'_>) -> bool {
        let row = &mut self.rows[n * self.columns..][..self.columns];
        match (peeked, &self.fields) {
            (Peeked::Row(from), _) => {
                for &column in &self.wanted {
                    row[column] = varve_value::of(from.get(column));
                }
                true
            }
            (Peeked::Entry(entry), Some(fields)) => {
                let values = &mut self.values[n * self.fields_len..][..self.fields_len];
                let is_read = Peeked::read_fields(entry.key, fields, values);
                point_to(fields, values, row);
                is_read
            }
            (Peeked::Entry(entry), None) => {
                let read = cursor.read_peeked(&entry, &mut self.key, &mut self.ahead);
                read.is_some()
            }
        }
    }

    /// The portion has so many rows behind the first one.
    #[inline]
    pub fn end_portion(&mut self, n: usize) {
        if self.ahead.is_empty() {
            return;
        }
        // Only now do the values stay where they are.
        let mut values = self.ahead.iter();
        for row in self.rows[self.columns..]
            .chunks_exact_mut(self.columns)
            .take(n)
        {
            fill(row, &self.key_columns, values.by_ref());
        }
    }
}

/// Has a row's values point to what was read of the fields.
#[inline]
fn point_to(fields: &[KeyField], mut values: &[u8], row: &mut [varve_value]) {
    for field in fields {
        let (value, rest) = values.split_at(field.len());
        row[field.column] = varve_value::of(Some(value));
        values = rest;
    }
}

/// Puts the values of an entry where their columns stand in a row.
#[inline]
pub(crate) fn fill<'a>(
    row: &mut [varve_value],
    key_columns: &[(usize, bool)],
    values: impl Iterator<Item = Datum<'a>>,
) {
    for (&(column, readable), value) in key_columns.iter().zip(values) {
        if readable {
            row[column] = varve_value::of(value);
        }
    }
}
