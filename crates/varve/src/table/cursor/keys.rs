//! What the caller says about the keys that it wants: where a search ends, and whether the rows are wanted at all.

use crate::base::Result;
use crate::row::{Datum, DatumBuf, successor};

use super::{Current, Cursor, Direction};

impl Cursor {
    /// Where the searches forward that follow end: at rows whose key comes after `values`, the first parts of the
    /// index, or starts with them unless `inclusive`. Rows from there on are not even locked. `None` lifts the end.
    pub fn set_end(&mut self, end: Option<(&[Datum<'_>], bool)>) -> Result<()> {
        let mut key = std::mem::take(&mut self.end);
        key.clear();
        if let Some((values, inclusive)) = end {
            self.index().codec.encode_values(values, &mut key)?;
            if inclusive && !successor(&mut key) {
                key.clear();
            }
        }
        self.end = key;
        Ok(())
    }

    pub(super) fn in_bounds(&self, key: &[u8]) -> bool {
        if self.bounded && !key.starts_with(&self.prefix) {
            return false;
        }
        let is_beyond = self.direction == Direction::Forward && key >= &self.end[..];
        self.end.is_empty() || !is_beyond
    }

    /// Says whether the caller wants nothing of the rows it will search for but the columns of
    /// [`key_columns`](Self::key_columns). Where the view can decide on a secondary entry alone, the row is then not
    /// fetched, and [`key_values`](Self::key_values) has what there is.
    pub fn set_keys_suffice(&mut self, keys_suffice: bool) {
        self.keys_suffice = keys_suffice && self.index != 0;
    }

    /// The columns that `key_values` gives, in its order: the index's own, then those of the primary key. For each its
    /// position in the table's list, and whether its value can be had from a key.
    pub fn key_columns(&self) -> &[(usize, bool)] {
        &self.key_columns
    }

    /// The values of `key_columns`, if the current row was not fetched.
    pub fn key_values(&mut self) -> Result<Option<&DatumBuf>> {
        if self.current != Current::Entry {
            return Ok(None);
        }
        let mut parts = std::mem::take(&mut self.parts);
        parts.clear();
        let own = self.index().codec.decode(&self.key, &mut parts);
        let all = own.and_then(|_| {
            let clustered = &self.table.clustered.codec;
            clustered.decode(&self.clustered, &mut parts)
        });
        self.parts = parts;
        match all {
            Ok(_) => Ok(Some(&self.parts)),
            Err(d) => Err(self.index().damage_at(&self.key, d.expected, d.found)),
        }
    }
}
