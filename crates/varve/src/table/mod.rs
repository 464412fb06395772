//! Rows: insert, update, delete, get and scan over one clustered and any number of secondary indexes.

mod build;
mod bulk;
mod catch_up;
mod check;
mod counted;
mod cursor;
mod entry;
mod external;
mod file;
mod follow;
mod foreign;
mod load;
mod merging;
mod orphans;
mod range;
mod rebuild;
mod rowlock;
mod sorter;
#[cfg(all(test, not(loom)))]
mod sorter_tests;
mod undo;
mod unique;
mod version;
mod write;

pub use build::{Build, BuildRoom, Product, TellDuplicate, check_interrupt};
pub use bulk::insert_rows;
pub use check::{CheckReport, check_quiet_table, check_table};
pub use counted::after_greatest_counted;
pub use cursor::{Cursor, EntryFilter, KeyMatch, LockMode, Peeked, PeekedEntry};
pub(crate) use file::FromFile;
#[cfg(feature = "internals")]
pub use file::table_file_on;
pub use file::{TableFile, table_file_with};
pub use load::TableLoad;
pub use merging::{Merged, merge_on};
pub use orphans::find_orphans;
pub use range::records_in_range;
pub use rebuild::NewTable;
pub use rowlock::lock_search_key;
pub use sorter::SortHelpers;
pub use version::{AfterCut, Cuts, read_leaf, row_record};
pub use write::{CurrentRow, OnDuplicate, delete_row, insert_row, update_row};
