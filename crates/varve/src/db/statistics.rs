//! What is known of a table's contents without looking: for whoever chooses between indexes, or keeps it.

use std::sync::atomic::Ordering;

use crate::base::Result;
use crate::catalog::{FIRST_ROOT_PAGE, IndexEstimate};
use crate::lock::TableMode;
use crate::stats::{self, NullsInKeys, TableStatistics};
use crate::txn::Transaction;

use super::Table;

impl Table {
    /// Rows, as far as known: an estimate from when the table was opened, or what `set_statistics` said,
    /// counted since.
    pub fn row_count_estimate(&self) -> u64 {
        self.table.row_count()
    }

    /// What a sample says about index number `index`: how many rows share the first columns of a key, how
    /// many leaf pages there are. Kept in memory, and made again when a tenth of the rows has come or gone,
    /// unless they are kept until further notice (`keep_statistics`).
    pub fn index_estimate(&self, index: usize) -> Result<IndexEstimate> {
        stats::index_estimate(&self.table, index)
    }

    /// Makes the estimates about all indexes anew.
    pub fn analyze(&self) -> Result<()> {
        stats::analyze(&self.table, None, &|| Ok(()))
    }

    /// How many leaves of an index are looked at for estimates from now on, by all who use the table; 0 is 1.
    pub fn set_sample_leaves(&self, leaves: u32) {
        let to = &self.table.estimates.sample_leaves;
        to.store(leaves, Ordering::Relaxed);
    }

    /// What keys with a NULL are to estimates that are made from now on, by all who use the table.
    pub fn set_nulls_in_keys(&self, nulls: NullsInKeys) {
        // Relaxed: it stands for itself.
        (self.table.estimates.nulls).store(nulls as u8, Ordering::Relaxed);
    }

    /// `index_estimate` would look at the table again.
    pub fn estimates_are_stale(&self) -> bool {
        self.table.estimates_are_stale()
    }

    /// How many rows the table had when its estimates were made, if they are kept until further notice.
    pub fn kept_statistics_rows(&self) -> Option<u64> {
        // Relaxed: estimates.
        let kept = self.table.estimates.kept.load(Ordering::Relaxed);
        kept.then(|| self.table.estimates.made_at_rows.load(Ordering::Relaxed))
    }

    /// The estimates that there are as a list of values, to be stored elsewhere. From now on they stay as
    /// they are: until `analyze`, `keep_statistics` or `set_statistics`. `None`: there are none yet.
    pub fn keep_statistics(&self) -> Result<Option<TableStatistics>> {
        stats::keep(&self.table)
    }

    /// The table's estimates become these, whatever it contains, and stay like that, as after
    /// `keep_statistics`. Nothing is too absurd; what is said of indexes or columns that the table does not
    /// have, is passed over. An index of which nothing is said is looked at, and makes the answer `false`.
    pub fn set_statistics(&self, told: &TableStatistics) -> Result<bool> {
        stats::take(&self.table, told)
    }

    /// Bytes of the secondary indexes' leaves, as estimated last; 0 if nobody has asked for estimates yet.
    pub fn secondary_bytes_estimate(&self) -> u64 {
        let pages = self.table.estimates.secondary_pages.load(Ordering::Relaxed);
        pages.saturating_mul(self.page_size() as u64)
    }

    /// Bytes of the clustered index with its external values: what was said by statistics that are kept, or
    /// what is left of the `used` bytes.
    pub fn clustered_bytes_estimate(&self, used: u64) -> u64 {
        let page = self.page_size() as u64;
        let kept = self.table.estimates.clustered_pages.load(Ordering::Relaxed);
        if kept > 0 {
            return kept.saturating_mul(page);
        }
        let others = match self.is_temporary() {
            true => 0,
            false => u64::from(FIRST_ROOT_PAGE.0) * page,
        };
        let rest = used.saturating_sub(others.saturating_add(self.secondary_bytes_estimate()));
        rest.max(page)
    }
}

impl Transaction {
    /// As [`Table::analyze`]; is interrupted with the transaction. Until that ends nobody drops the table or
    /// gives it another definition.
    pub fn analyze(&mut self, table: &Table) -> Result<()> {
        self.use_table(&table.table, TableMode::IntentionShared)?;
        stats::analyze(&table.table, self.watch(), &|| self.check_interrupt())
    }

    /// As [`Table::keep_statistics`]. Until the transaction ends nobody drops the table or gives it another
    /// definition: what is stored in it is this table's.
    pub fn keep_statistics(&mut self, table: &Table) -> Result<Option<TableStatistics>> {
        self.use_table(&table.table, TableMode::IntentionShared)?;
        stats::keep(&table.table)
    }
}
