//! What the caller says about the keys that it wants: where a search ends, and whether the rows are wanted at
//! all.

use crate::base::Result;
use crate::catalog::{OpenIndex, OpenTable};
use crate::page::LONGEST_KEY;
use crate::row::{Datum, DatumBuf, KeyField, Readable, successor};

use super::Cursor;
use super::state::{Current, Direction};

/// Asked about each entry of a secondary index before its row is locked or fetched, with the values of
/// [`Cursor::key_columns`], NULL for those that can't be had from a key, and 0 for −0; and with the position
/// of its row. `false` passes the row over. No latch is held.
pub type EntryFilter = Box<dyn FnMut(&DatumBuf, &[u8]) -> Result<bool> + Send>;

/// Which keys a search wants.
#[derive(Default)]
pub(super) struct Bounds {
    /// What the search was given: what `next_same` and exact searches find must start with it.
    pub prefix: Vec<u8>,
    pub within_prefix: bool,
    /// Searches forward end before this key, if it is not empty.
    end: Vec<u8>,
    /// Searches backward end behind this key, which may be empty.
    begin: Vec<u8>,
}

impl Bounds {
    /// The key below which a search backward wants nothing.
    pub fn floor(&self) -> &[u8] {
        match self.within_prefix && self.prefix > self.begin {
            true => &self.prefix,
            false => &self.begin,
        }
    }

    /// The key from which on a search forward wants nothing, if there is one.
    pub fn ceiling(&self) -> Option<Vec<u8>> {
        let mut past = match self.within_prefix {
            true => self.prefix.clone(),
            false => Vec::new(),
        };
        // The empty key has no successor.
        let past = successor(&mut past).then_some(past);
        let end = (!self.end.is_empty()).then(|| self.end.clone());
        match (past, end) {
            (Some(past), Some(end)) => Some(past.min(end)),
            (past, end) => past.or(end),
        }
    }

    /// Where a search in this direction ends.
    pub fn far_end(&self, direction: Direction) -> Option<Vec<u8>> {
        match direction {
            Direction::Forward => self.ceiling(),
            Direction::Backward => Some(self.floor().to_vec()),
        }
    }

    /// A search in this direction may find the key.
    pub fn contain(&self, key: &[u8], direction: Direction) -> bool {
        if self.within_prefix && !key.starts_with(&self.prefix) {
            return false;
        }
        match direction {
            Direction::Forward => self.end.is_empty() || key < &self.end[..],
            Direction::Backward => key >= &self.begin[..],
        }
    }
}

/// What is read from the keys of entries.
pub(super) struct KeyReads {
    pub filter: Option<EntryFilter>,
    /// Consistent reads of a secondary index need not fetch the row.
    pub suffice: bool,
    /// See [`Cursor::key_columns`].
    columns: Vec<(usize, Readable)>,
    /// Keys may have floating-point zeros (KEY-5).
    may_be_inexact: bool,
    /// The current entry's key, taken apart.
    parts: DatumBuf,
}

impl KeyReads {
    /// None yet, of this index.
    pub fn of(table: &OpenTable, index: usize) -> KeyReads {
        let own = (index > 0).then(|| (&table.def.indexes[index - 1], &table.secondary[index - 1]));
        let clustered = (&table.def.primary, &table.clustered);
        let columns = (own.into_iter().chain([clustered]))
            .flat_map(|(def, open)| {
                let parts = def.parts.iter().enumerate();
                parts.map(|(i, part)| (part.column, open.codec.readable(i)))
            })
            .collect();
        let has_floats = |(_, open): (_, &OpenIndex)| open.codec.has_floats();
        KeyReads {
            filter: None,
            suffice: false,
            may_be_inexact: own.is_some_and(has_floats) || has_floats(clustered),
            columns,
            parts: DatumBuf::new(),
        }
    }
}

impl Cursor {
    /// Where the searches forward that follow end: at rows whose key comes after `values`, the first parts of
    /// a search key, or starts with them unless `inclusive`. Rows from there on are not even locked. `None`
    /// lifts the end.
    pub fn set_end(&mut self, end: Option<(&[Datum<'_>], bool)>) -> Result<()> {
        let mut key = std::mem::take(&mut self.bounds.end);
        key.clear();
        if let Some((values, inclusive)) = end {
            self.table.encode_search(self.index, values, &mut key)?;
            if inclusive && !successor(&mut key) {
                key.clear();
            }
        }
        self.bounds.end = key;
        Ok(())
    }

    /// Where the searches backward that follow end: at rows whose key comes before `values`, the first parts
    /// of a search key, or starts with them unless `inclusive`. Rows from there on are not even locked.
    /// `None` lifts the end.
    pub fn set_begin(&mut self, begin: Option<(&[Datum<'_>], bool)>) -> Result<()> {
        let mut key = std::mem::take(&mut self.bounds.begin);
        key.clear();
        if let Some((values, inclusive)) = begin {
            self.table.encode_search(self.index, values, &mut key)?;
            if !inclusive && !successor(&mut key) {
                key = vec![0xff; LONGEST_KEY + 1];
            }
        }
        self.bounds.begin = key;
        Ok(())
    }

    /// Passes over the rows of a secondary index whose entries the filter does not want, from the next search
    /// on.
    pub fn set_filter(&mut self, filter: Option<EntryFilter>) {
        self.keys.filter = filter;
    }

    /// Whether the filter wants the entry `row.key` of row `row.clustered`. An entry's key never changes,
    /// so what it says holds for every version of the row that yields it.
    pub(super) fn is_wanted(&mut self) -> Result<bool> {
        let Some(mut filter) = self.keys.filter.take() else {
            return Ok(true);
        };
        let wanted = self
            .take_apart()
            .and_then(|()| filter(&self.keys.parts, &self.row.clustered));
        self.keys.filter = Some(filter);
        wanted
    }

    /// Whether the key of the entry `row.key` of row `row.clustered` gives values as they were stored
    /// (KEY-5).
    #[inline]
    pub(super) fn is_key_exact(&self) -> Result<bool> {
        if !self.keys.may_be_inexact {
            return Ok(true);
        }
        let clustered = &self.table.clustered.codec;
        let own = self.index().codec.is_exact(&self.row.key);
        own.and_then(|exact| Ok(exact && clustered.is_exact(&self.row.clustered)?))
            .map_err(|d| self.index().damage_at(&self.row.key, d.expected, d.found))
    }

    /// Says whether the caller wants nothing of the rows it will search for but the columns of
    /// [`key_columns`](Self::key_columns). Where the view can decide on a secondary entry alone, the row is
    /// then not fetched, and [`key_values`](Self::key_values) has what there is.
    pub fn set_keys_suffice(&mut self, keys_suffice: bool) {
        self.keys.suffice = keys_suffice && self.index != 0;
    }

    /// The columns that `key_values` gives, in its order: the index's own, then those of the primary key. For
    /// each its position in the table's list, and whether its value can be had from a key.
    pub fn key_columns(&self) -> &[(usize, Readable)] {
        &self.keys.columns
    }

    /// The values of `key_columns`, if the current row was not fetched.
    pub fn key_values(&mut self) -> Result<Option<&DatumBuf>> {
        if self.row.at != Current::Entry {
            return Ok(None);
        }
        self.take_apart()?;
        Ok(Some(&self.keys.parts))
    }

    /// The columns of `key_columns` whose values stand at constant places in the index's keys.
    pub fn key_fields(&self) -> Vec<KeyField> {
        let mut fields = Vec::new();
        let clustered = &self.table.clustered.codec;
        let end = match self.index {
            0 => Some(0),
            _ => self.index().codec.fields(0, &mut fields),
        };
        if let Some(end) = end {
            clustered.fields(end, &mut fields);
        }
        fields
    }

    /// Reads fields of the current row's key, if the row was not fetched: `out` gets their values one behind
    /// the other, and has just the room for them. `false` if it was.
    #[inline]
    pub fn read_fields(&self, fields: &[KeyField], mut out: &mut [u8]) -> Result<bool> {
        if self.row.at != Current::Entry {
            return Ok(false);
        }
        for field in fields {
            let (value, rest) = out.split_at_mut(field.len());
            if let Err(d) = field.read(&self.row.key, value) {
                return Err(self.index().damage_at(&self.row.key, d.expected, d.found));
            }
            out = rest;
        }
        Ok(true)
    }

    /// Fills `parts` with the values of the entry `row.key` of row `row.clustered`.
    fn take_apart(&mut self) -> Result<()> {
        let mut parts = std::mem::take(&mut self.keys.parts);
        parts.clear();
        let own = self.index().codec.decode(&self.row.key, &mut parts);
        let all = own.and_then(|_| {
            let clustered = &self.table.clustered.codec;
            clustered.decode(&self.row.clustered, &mut parts)
        });
        self.keys.parts = parts;
        match all {
            Ok(_) => Ok(()),
            Err(d) => Err(self.index().damage_at(&self.row.key, d.expected, d.found)),
        }
    }
}
