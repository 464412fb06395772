//! Values that only the engine's user can make.

use crate::base::{Error, Result};
use crate::row::{Datum, DatumBuf};

/// Asked when a foreign key changes a row of a table that has computed columns or history
/// ([`Transaction::set_value_source`](crate::Transaction::set_value_source)), and when a table that is
/// rebuilt gets a computed column or one of another type, or one of its columns ceases to take NULL
/// ([`PreparedRedefinition::set_value_source`](crate::PreparedRedefinition::set_value_source)). The engine
/// holds no latch meanwhile. An error is the statement's, which is undone.
pub trait ValueSource: Send + Sync {
    /// When the statement began, as the columns of [`SystemTime`](crate::SystemTime) have it.
    fn statement_time(&self) -> Result<Vec<u8>>;

    /// The values of these columns, by the others of this row of `table` (`schema/table`). A table that is
    /// rebuilt is called as it was, and its row is as it will be, with NULL in new columns that are computed.
    /// A new AUTO_INCREMENT column is asked for in the same way, in the order of its rows, and comes first in
    /// `columns`: others may be computed of it.
    fn computed(&self, table: &str, row: &[Datum<'_>], columns: &[usize]) -> Result<DatumBuf>;

    /// What the columns at these positions of a table that is rebuilt have where `table` has this row, the
    /// `n`th. `n` is 0 if that was asked before, or the row is gone: then nobody is told of what is lost.
    fn converted(
        &self,
        table: &str,
        _row: &[Datum<'_>],
        _columns: &[usize],
        _n: u64,
    ) -> Result<DatumBuf> {
        Err(Error::unsupported(format!(
            "converting rows of table {table}"
        )))
    }

    /// What this column has, which ceases to take NULL, where the `n`th row of a table that is rebuilt has
    /// NULL. `n` is 0 if that was asked before, or the row is gone. `None`: such a row is refused.
    fn instead_of_null(&self, _table: &str, _column: usize, _n: u64) -> Option<Vec<u8>> {
        None
    }
}
