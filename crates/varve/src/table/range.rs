//! How many rows lie in a key range, for the optimizer.

use crate::base::Result;
use crate::catalog::OpenTable;
use crate::row::{Datum, successor};

/// A bound: the first parts of a search key (`OpenTable::encode_search`), and whether rows that start with
/// them belong to the range.
pub type Bound<'a> = Option<(&'a [Datum<'a>], bool)>;

/// Estimates the rows of index number `index` between two bounds from a few pages.
pub fn records_in_range(
    table: &OpenTable,
    index: usize,
    low: Bound<'_>,
    high: Bound<'_>,
) -> Result<u64> {
    let mut from = Vec::new();
    if let Some((values, inclusive)) = low {
        table.encode_search(index, values, &mut from)?;
        if !inclusive && !successor(&mut from) {
            return Ok(0);
        }
    }
    let mut to = None;
    if let Some((values, inclusive)) = high {
        let mut key = Vec::new();
        table.encode_search(index, values, &mut key)?;
        let bounded = !inclusive || successor(&mut key);
        to = bounded.then_some(key);
    }
    let index = table.index_at(index)?;
    let own = index.tree.estimate_between(&from, to.as_deref())?;
    Ok(match index.buffer.tree_in_use()? {
        None => own,
        // Most of what it has are insertions.
        Some(buffer) => own + buffer.estimate_between(&from, to.as_deref())?,
    })
}
