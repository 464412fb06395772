//! Columns whose values are not the writer's choice: those that are computed from others of the row, and
//! those that say when a row was true.
//!
//! Whoever writes a row gives these values like any others. The engine needs to know of them when it changes
//! rows by itself, by a foreign key: it asks the transaction's [`ValueSource`](crate::ValueSource) then.
//!
//! - **HIST-1** A row of the past, whose end is not `forever`, needs no parents, is nobody's parent, and
//!   follows nobody. A row that becomes one is deleted, as far as foreign keys go.

use crate::row::{Datum, RowRef};

use super::def::TableDef;

/// The table keeps its rows' history among its rows (MariaDB's system versioning). Each has a column that
/// says since when it has been true, and one that says until when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemTime {
    pub start: usize,
    pub end: usize,
    /// What `end` is in a row that is true now.
    pub forever: Vec<u8>,
    /// Columns whose changes make no history.
    pub unversioned: Vec<usize>,
}

impl TableDef {
    /// Columns whose values are computed from others of the row.
    pub fn computed(mut self, columns: &[&str]) -> TableDef {
        let columns = self.named("the computed columns are", columns);
        self.computed.extend(columns);
        self
    }

    /// Keeps history: `end` has the value `forever` in rows that are true now.
    pub fn system_time(
        mut self,
        start: &str,
        end: &str,
        forever: &[u8],
        unversioned: &[&str],
    ) -> TableDef {
        let ends = self.named("the times are in", &[start, end]);
        let unversioned = self.named("there is no history of", unversioned);
        if let [start, end] = ends[..] {
            self.system_time = Some(SystemTime {
                start,
                end,
                forever: forever.to_vec(),
                unversioned,
            });
        }
        self
    }

    pub(crate) fn is_history(&self, values: &[Datum<'_>]) -> bool {
        let time = self.system_time.as_ref();
        time.is_some_and(|time| values[time.end] != Some(&time.forever))
    }

    pub(crate) fn is_history_row(&self, row: &RowRef<'_>) -> bool {
        let time = self.system_time.as_ref();
        time.is_some_and(|time| row.get(time.end) != Some(&time.forever))
    }
}
