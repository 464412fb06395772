//! What the caller says about the keys that it wants: where a search ends, and whether the rows are wanted at
//! all.

use crate::base::Result;
use crate::row::{Datum, DatumBuf, KeyField, MAX_KEY_BYTES, successor};

use super::{Current, Cursor, Direction};

/// Asked about each entry of a secondary index before its row is locked or fetched, with the values of
/// [`Cursor::key_columns`]; NULL for those that can't be had from a key. `false` passes the row over. No
/// latch is held.
pub type EntryFilter = Box<dyn FnMut(&DatumBuf) -> Result<bool> + Send>;

impl Cursor {
    /// Where the searches forward that follow end: at rows whose key comes after `values`, the first parts of
    /// a search key, or starts with them unless `inclusive`. Rows from there on are not even locked. `None`
    /// lifts the end.
    pub fn set_end(&mut self, end: Option<(&[Datum<'_>], bool)>) -> Result<()> {
        let mut key = std::mem::take(&mut self.end);
        key.clear();
        if let Some((values, inclusive)) = end {
            self.table.encode_search(self.index, values, &mut key)?;
            if inclusive && !successor(&mut key) {
                key.clear();
            }
        }
        self.end = key;
        Ok(())
    }

    /// Where the searches backward that follow end: at rows whose key comes before `values`, the first parts
    /// of a search key, or starts with them unless `inclusive`. Rows from there on are not even locked.
    /// `None` lifts the end.
    pub fn set_begin(&mut self, begin: Option<(&[Datum<'_>], bool)>) -> Result<()> {
        let mut key = std::mem::take(&mut self.begin);
        key.clear();
        if let Some((values, inclusive)) = begin {
            self.table.encode_search(self.index, values, &mut key)?;
            if !inclusive && !successor(&mut key) {
                key = vec![0xff; MAX_KEY_BYTES + 1];
            }
        }
        self.begin = key;
        Ok(())
    }

    /// The key below which a search backward wants nothing.
    pub(super) fn floor(&self) -> &[u8] {
        match self.bounded && self.prefix > self.begin {
            true => &self.prefix,
            false => &self.begin,
        }
    }

    /// The key from which on a search forward wants nothing, if there is one.
    pub(super) fn bound(&self) -> Option<Vec<u8>> {
        if self.direction == Direction::Backward {
            return None;
        }
        let mut past = match self.bounded {
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

    pub(super) fn in_bounds(&self, key: &[u8]) -> bool {
        if self.bounded && !key.starts_with(&self.prefix) {
            return false;
        }
        match self.direction {
            Direction::Forward => self.end.is_empty() || key < &self.end[..],
            Direction::Backward => key >= &self.begin[..],
        }
    }

    /// Passes over the rows of a secondary index whose entries the filter does not want, from the next search
    /// on.
    pub fn set_filter(&mut self, filter: Option<EntryFilter>) {
        self.filter = filter;
    }

    /// Whether the filter wants the entry `self.key` of row `self.clustered`. An entry's key never changes,
    /// so what it says holds for every version of the row that yields it.
    pub(super) fn is_wanted(&mut self) -> Result<bool> {
        let Some(mut filter) = self.filter.take() else {
            return Ok(true);
        };
        let wanted = self.take_apart().and_then(|()| filter(&self.parts));
        self.filter = Some(filter);
        wanted
    }

    /// Says whether the caller wants nothing of the rows it will search for but the columns of
    /// [`key_columns`](Self::key_columns). Where the view can decide on a secondary entry alone, the row is
    /// then not fetched, and [`key_values`](Self::key_values) has what there is.
    pub fn set_keys_suffice(&mut self, keys_suffice: bool) {
        self.keys_suffice = keys_suffice && self.index != 0;
    }

    /// The columns that `key_values` gives, in its order: the index's own, then those of the primary key. For
    /// each its position in the table's list, and whether its value can be had from a key.
    pub fn key_columns(&self) -> &[(usize, bool)] {
        &self.key_columns
    }

    /// The values of `key_columns`, if the current row was not fetched.
    pub fn key_values(&mut self) -> Result<Option<&DatumBuf>> {
        if self.current != Current::Entry {
            return Ok(None);
        }
        self.take_apart()?;
        Ok(Some(&self.parts))
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
        if self.current != Current::Entry {
            return Ok(false);
        }
        for field in fields {
            let (value, rest) = out.split_at_mut(field.len());
            if let Err(d) = field.read(&self.key, value) {
                return Err(self.index().damage_at(&self.key, d.expected, d.found));
            }
            out = rest;
        }
        Ok(true)
    }

    /// Fills `parts` with the values of the entry `self.key` of row `self.clustered`.
    fn take_apart(&mut self) -> Result<()> {
        let mut parts = std::mem::take(&mut self.parts);
        parts.clear();
        let own = self.index().codec.decode(&self.key, &mut parts);
        let all = own.and_then(|_| {
            let clustered = &self.table.clustered.codec;
            clustered.decode(&self.clustered, &mut parts)
        });
        self.parts = parts;
        match all {
            Ok(_) => Ok(()),
            Err(d) => Err(self.index().damage_at(&self.key, d.expected, d.found)),
        }
    }
}
