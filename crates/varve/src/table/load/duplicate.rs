//! Which of the rows is named that have the same key in a unique index (LOAD-4): each row has a number, in
//! the order in which they came, and the wanted one is the first that came after another one with its key.

use crate::base::Result;
use crate::catalog::{ClusteredKey, OpenTable, RowRecord};
use crate::row::{ExternalValues, RowRef};

use super::super::external::whole_row;
use super::super::version::read_leaf;

/// A row that has the same key as one that came before.
pub struct Duplicate {
    pub number: u64,
    key: Vec<u8>,
    /// Its clustered record; `None`: the clustered tree has it.
    record: Option<Vec<u8>>,
}

impl Duplicate {
    /// Makes `found` the row with this number, its clustered key and its record, unless it is one that came
    /// earlier.
    pub fn keep_earlier(
        found: &mut Option<Duplicate>,
        number: u64,
        key: &[u8],
        record: Option<&[u8]>,
    ) {
        if found.as_ref().is_none_or(|other| number < other.number) {
            *found = Some(Duplicate {
                number,
                key: key.to_vec(),
                record: record.map(<[u8]>::to_vec),
            });
        }
    }

    /// Shows the row, with all its values.
    pub fn tell(
        self,
        table: &OpenTable,
        index: &str,
        tell: &mut dyn FnMut(&str, &RowRef<'_>),
    ) -> Result<()> {
        let key = &self.key;
        let mut record = self.record.unwrap_or_default();
        let is_there = !record.is_empty() || read_leaf(&table.clustered, key, &mut record)?;
        let decoded = RowRecord::decode(&record).filter(|_| is_there);
        let damaged = || table.clustered.damage_at(key, "a row", "something else");
        let decoded = decoded.ok_or_else(damaged)?;
        let mut values = ExternalValues::default();
        tell(
            index,
            &whole_row(table, None, key, decoded.row, &mut values)?,
        );
        Ok(())
    }
}

/// Looks for entries with the same own key, as they come in order.
#[derive(Default)]
pub struct SameKeys {
    /// The own key at hand; empty: there was none yet.
    own: Vec<u8>,
    /// Of its rows, that with the lowest number, and its clustered key.
    first: (u64, Vec<u8>),
    pub found: Option<Duplicate>,
}

impl SameKeys {
    /// An entry with this own key comes, of the row with this clustered key and number.
    pub fn see(&mut self, own: &[u8], clustered: ClusteredKey<'_>, number: u64) {
        if self.own != own {
            self.own.clear();
            self.own.extend_from_slice(own);
            self.first.0 = number;
            self.first.1.clear();
            clustered.push_to(&mut self.first.1);
            return;
        }
        // One of the two came later. The second of all with this key is the later of the first and another
        // one, at some time.
        let mut later = (number, clustered.to_vec());
        if later.0 < self.first.0 {
            std::mem::swap(&mut later, &mut self.first);
        }
        Duplicate::keep_earlier(&mut self.found, later.0, &later.1, None);
    }
}
