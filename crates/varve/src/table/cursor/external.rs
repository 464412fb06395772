//! External values: of the current row, as far as the caller wants them, and of rows whose keys have to be
//! made again.
//!
//! They are fetched without a latch, after the row version was copied or found, and may turn out to be gone:
//! a cut (`table/external.rs`). Then the row is read again from its leaf, and may be another version then, or
//! none.

use crate::base::Result;
use crate::catalog::{EXTERNAL, ROW_AT};
use crate::txn::{Counters, Transaction};

use super::Cursor;
use super::state::Current;
use crate::table::external::row_for_keys;

impl Cursor {
    /// Says which columns the caller will look at in the rows that it searches for from now on: one flag for
    /// each column of the table. `None`: all of them. External values of others are not fetched, and
    /// [`RowRef::get`](crate::row::RowRef::get) must not be asked for them; nor is a row fetched for texts
    /// that its entry does not have, which `key_values` then gives as NULL.
    pub fn set_wanted_columns(&mut self, wanted: Option<&[bool]>) {
        self.long.set_wanted(wanted);
        self.keys.set_wanted(wanted);
    }

    /// Gives back memory that external values took. Those of the current row must not be looked at any more;
    /// the cursor keeps its place.
    pub fn release_values(&mut self) {
        self.long.release();
    }

    /// Makes `key` the key of the row version in `payload` in the cursor's secondary index. `false` is a cut.
    pub(super) fn make_key(&mut self, trx: &Transaction, key: &mut Vec<u8>) -> Result<bool> {
        let bytes = self.row.payload.get(ROW_AT..).unwrap_or_default();
        let index = &self.table.secondary[self.index - 1];
        let codec = &index.codec;
        let values = &mut self.long.for_keys;
        let clustered = &self.row.clustered;
        let history = Some(&trx.core().history);
        let row = row_for_keys(&self.table, history, &[codec], clustered, bytes, values)?;
        let Some(row) = row else {
            return Ok(false);
        };
        key.clear();
        codec.encode_row(&row, key)?;
        index.end_entry_key(key, 0, clustered)?;
        Ok(true)
    }

    /// Whether the row version in `payload` has this key in the cursor's secondary index. `None` is a cut.
    pub(super) fn row_yields(&mut self, trx: &Transaction, key: &[u8]) -> Result<Option<bool>> {
        let mut own = Vec::with_capacity(key.len());
        let made = self.make_key(trx, &mut own)?;
        Ok(made.then(|| own == key))
    }

    /// Reads the row with the cursor's key from the clustered index.
    pub(super) fn fetch_again(&mut self, trx: &mut Transaction) -> Result<bool> {
        if self.index == 0 {
            std::mem::swap(&mut self.row.key, &mut self.row.clustered);
            let found = self.fetch_clustered(trx, None);
            std::mem::swap(&mut self.row.key, &mut self.row.clustered);
            return found;
        }
        let key = std::mem::take(&mut self.row.key);
        let found = self.fetch_clustered(trx, Some(&key));
        self.row.key = key;
        found
    }

    /// Fetches the external values of the current row that the caller wants. `false`: the row is not there
    /// any more.
    #[inline]
    pub(super) fn fetch_external(&mut self, trx: &mut Transaction) -> Result<bool> {
        let flags = match &self.row.at {
            Current::Batch(range) => self.batch.bytes.get(range.start),
            Current::Version | Current::Locked { .. } | Current::Committed => {
                self.row.payload.first()
            }
            Current::None | Current::Entry => None,
        };
        match flags {
            Some(flags) if flags & EXTERNAL != 0 => self.fetch_external_values(trx),
            _ => Ok(true),
        }
    }

    #[cold]
    fn fetch_external_values(&mut self, trx: &mut Transaction) -> Result<bool> {
        loop {
            // Taken out of the cursor meanwhile, whose record it is compared with.
            let mut long = std::mem::take(&mut self.long);
            let fetched = self.record().and_then(|record| {
                let history = &trx.core().history;
                let whole = long.fetch(&self.table, history, self.position(), record)?;
                if !whole {
                    long.note_cut(&self.table, self.position(), record)?;
                }
                Ok(whole)
            });
            self.long = long;
            if fetched.inspect_err(|_| self.row.at = Current::None)? {
                let n = self.long.values.len() as u64;
                Counters::add(&trx.core().counters.external_values_read, n);
                return Ok(true);
            }
            if self.row.at == Current::Committed {
                // The version is gone: whoever had the row locked has ended.
                self.resume_behind_row();
            }
            if !self.fetch_again(trx)? {
                return Ok(false);
            }
        }
    }
}
