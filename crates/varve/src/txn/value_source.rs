//! Values that only the engine's user can make.

use crate::base::Result;
use crate::row::{Datum, DatumBuf};

/// Asked when a foreign key changes a row of a table that has computed columns or history
/// ([`Transaction::set_value_source`](crate::Transaction::set_value_source)), and when a table that is
/// rebuilt gets a computed column
/// ([`PreparedRedefinition::set_value_source`](crate::PreparedRedefinition::set_value_source)). The engine
/// holds no latch meanwhile. An error of either is the statement's, which is undone.
pub trait ValueSource: Send + Sync {
    /// When the statement began, as the columns of [`SystemTime`](crate::SystemTime) have it.
    fn statement_time(&self) -> Result<Vec<u8>>;

    /// The values of these columns, by the others of this row of `table` (`schema/table`). A table that is
    /// rebuilt is called as it was, and its row is as it will be, with NULL in new columns that are computed.
    fn computed(&self, table: &str, row: &[Datum<'_>], columns: &[usize]) -> Result<DatumBuf>;
}
